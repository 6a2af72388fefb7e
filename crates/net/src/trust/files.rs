//! Files of identities: private, and whole or not at all.

use std::fs::{self, OpenOptions};
use std::io::{ErrorKind, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivatePkcs8KeyDer};

use super::unusable;
use crate::SessionId;
use crate::error::Error;

/// How long a file of certificates and a key may be.
const FILE_BYTES_MAX: usize = 64 << 10;

/// The certificates and the key (PKCS #8) of a PEM file.
pub(super) fn load(path: &Path) -> Result<(Vec<CertificateDer<'static>>, Vec<u8>), Error> {
    parse(&read(path)?, path)
}

/// The same of the text of such a file.
pub(super) fn parse(
    text: &str,
    path: &Path,
) -> Result<(Vec<CertificateDer<'static>>, Vec<u8>), Error> {
    let certificates: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(text.as_bytes()).collect();
    let certificates = certificates.map_err(|error| unusable(path, error))?;
    Ok((certificates, key(text, path)?))
}

/// The key (PKCS #8) of a PEM file.
pub(super) fn key(text: &str, path: &Path) -> Result<Vec<u8>, Error> {
    let key = PrivatePkcs8KeyDer::from_pem_slice(text.as_bytes()).map_err(|error| match error {
        pem::Error::NoItemsFound => unusable(path, "it holds no private key"),
        error => unusable(path, error),
    })?;
    Ok(key.secret_pkcs8_der().to_vec())
}

/// Reads a file with certificates or a key; keys that others may read are no secrets.
pub(super) fn read(path: &Path) -> Result<String, Error> {
    let (bytes, mode) = read_most(path, FILE_BYTES_MAX)?;
    let text = String::from_utf8(bytes).map_err(|_| unusable(path, "it is no text"))?;
    if text.contains("PRIVATE KEY") && mode & 0o077 != 0 {
        return Err(unusable(
            path,
            "its key can be read by others; chmod 600 it",
        ));
    }
    Ok(text)
}

/// Reads a file of at most so many bytes, and says what its mode is.
fn read_most(path: &Path, most: usize) -> Result<(Vec<u8>, u32), Error> {
    let file = |error| Error::File {
        path: path.to_owned(),
        error,
    };
    let opened = fs::File::open(path).map_err(file)?;
    let metadata = opened.metadata().map_err(file)?;
    let mut bytes = Vec::new();
    let read = opened
        .take(most.saturating_add(1) as u64)
        .read_to_end(&mut bytes);
    read.map_err(file)?;
    if bytes.len() > most {
        return Err(unusable(path, "the file is too long"));
    }
    Ok((bytes, metadata.mode()))
}

/// Reads a file of at most so many bytes; `None` if it is not there.
pub(super) fn read_any(path: &Path, most: usize) -> Result<Option<Vec<u8>>, Error> {
    match read_most(path, most) {
        Ok((bytes, _)) => Ok(Some(bytes)),
        Err(Error::File { error, .. }) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// Creates a file that only its owner can read: whole or not at all, and never over another.
pub(super) fn create(path: &Path, text: &str) -> Result<(), Error> {
    // Unlike a rename, a link does not replace what is there.
    place(path, text.as_bytes(), |temporary| {
        fs::hard_link(temporary, path)
    })
}

/// Replaces a file, or creates it: a power cut leaves the old or the new one.
pub(super) fn replace(path: &Path, bytes: &[u8]) -> Result<(), Error> {
    place(path, bytes, |temporary| fs::rename(temporary, path))
}

/// Checks that a file can be replaced, and changes nothing.
pub(super) fn check_replaceable(path: &Path) -> Result<(), Error> {
    place(path, &[], |_| Ok(()))
}

fn place(
    path: &Path,
    bytes: &[u8],
    put: impl FnOnce(&Path) -> std::io::Result<()>,
) -> Result<(), Error> {
    let file = |error| Error::File {
        path: path.to_owned(),
        error,
    };
    let temporary = temporary(path)?;
    let write = || {
        let mut out = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&temporary)?;
        out.write_all(bytes)?;
        out.sync_all()?;
        put(&temporary)
    };
    let written = write();
    let _ = fs::remove_file(&temporary);
    match written {
        Err(error) if error.kind() == ErrorKind::AlreadyExists => Err(Error::Exists {
            path: path.to_owned(),
        }),
        Err(error) => Err(file(error)),
        Ok(()) => sync_parent(path).map_err(file),
    }
}

fn temporary(path: &Path) -> Result<PathBuf, Error> {
    let mut name = std::ffi::OsString::from(".");
    name.push(
        path.file_name()
            .ok_or_else(|| unusable(path, "it is not the name of a file"))?,
    );
    name.push(format!(".{}", SessionId::random()?));
    Ok(path.with_file_name(name))
}

fn sync_parent(path: &Path) -> std::io::Result<()> {
    let parent = path
        .parent()
        .filter(|parent| !parent.as_os_str().is_empty());
    fs::File::open(parent.unwrap_or_else(|| Path::new(".")))?.sync_all()
}
