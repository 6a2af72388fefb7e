//! Identities of agents that run as a service and of their operators.
//!
//! A trust directory holds two authorities: one signs operators, the other signs agents, and a
//! role is nothing but which of them signed. An agent obeys every holder of an operator certificate,
//! and can prove to an operator only that it is the host it is named for; it can neither command
//! another agent nor pose as one.
//!
//! ```text
//! operator-ca.pem   certificate of the operators' authority
//! operator-ca.key   its key
//! agent-ca.pem      certificate of the agents' authority
//! agent-ca.key      its key
//! operator.pem      certificate and key of the operator who made the directory
//! ```
//!
//! What an agent needs is one file: its certificate and key, and the operators' authority. Files
//! with keys are readable by their owner only, appear whole or not at all, and are never
//! overwritten.

mod certificates;

use std::fs::{self, DirBuilder, OpenOptions};
use std::io::{ErrorKind, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rcgen::{CertificateParams, ExtendedKeyUsagePurpose, Issuer, KeyPair, PKCS_ED25519};
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivatePkcs8KeyDer, ServerName};
use tokio::net::TcpStream;
use tokio_rustls::{TlsAcceptor, TlsConnector, client, server};

use self::certificates::{authority_params, configs, leaf_params};
use crate::SessionId;
use crate::error::Error;
use crate::identity::{credentials_error, issue_error};

/// Authorities and what they sign are valid for so long.
const AUTHORITY_YEARS: u32 = 10;
const CERTIFICATE_YEARS: u32 = 2;
// No certificate outlives a fresh authority.
const _: () = assert!(CERTIFICATE_YEARS < AUTHORITY_YEARS);
/// How long a file of certificates and a key may be.
const FILE_BYTES_MAX: u64 = 64 << 10;

const OPERATOR_NAME: &str = "operator.outpour";

/// The two authorities of a trust directory.
#[derive(Clone, Copy)]
enum Role {
    Operator,
    Agent,
}

impl Role {
    const fn stem(self) -> &'static str {
        match self {
            Self::Operator => "operator-ca",
            Self::Agent => "agent-ca",
        }
    }

    /// Every field of the authority's certificate; the same each time but for the dates, so that
    /// the key alone brings the issuer back.
    fn params(self) -> CertificateParams {
        authority_params(&format!("Outpour {}", self.stem()), years(AUTHORITY_YEARS))
    }
}

/// Makes a trust directory with two new authorities and an operator.
///
/// # Errors
/// If the directory holds an authority already, or cannot be written.
pub fn init(dir: &Path) -> Result<(), Error> {
    let file = |error| Error::File {
        path: dir.to_owned(),
        error,
    };
    DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(dir)
        .map_err(file)?;
    for role in [Role::Operator, Role::Agent] {
        let path = dir.join(role.stem()).with_extension("key");
        if path.exists() {
            return Err(Error::Exists { path });
        }
    }
    for role in [Role::Operator, Role::Agent] {
        let pair = new_key(role.stem())?;
        let issued = role.params().self_signed(&pair);
        let certificate = issued.map_err(|error| issue_error(role.stem(), error))?;
        let path = dir.join(role.stem());
        create(&path.with_extension("key"), &pair.serialize_pem())?;
        create(&path.with_extension("pem"), &certificate.pem())?;
    }
    let (certificate, key) = sign(dir, Role::Operator, OPERATOR_NAME)?;
    create(&dir.join("operator.pem"), &format!("{certificate}{key}"))
}

/// Issues the identity of the agent on `host` and writes it to `out`, for that host alone.
///
/// # Errors
/// If `host` is neither a DNS name nor an address, if the directory is not usable, or if `out`
/// exists.
pub fn issue(dir: &Path, host: &str, out: &Path) -> Result<(), Error> {
    server_name(host)?;
    let operators = read(&dir.join("operator-ca.pem"))?;
    let (certificate, key) = sign(dir, Role::Agent, host)?;
    create(out, &format!("{certificate}{key}{operators}"))
}

fn sign(dir: &Path, role: Role, name: &str) -> Result<(String, String), Error> {
    let path = dir.join(role.stem()).with_extension("key");
    let authority = KeyPair::from_pem(&read(&path)?)
        .map_err(|error| credentials_error(&path.display().to_string(), error))?;
    let issuer = Issuer::new(role.params(), authority);
    let usage = match role {
        Role::Operator => ExtendedKeyUsagePurpose::ClientAuth,
        Role::Agent => ExtendedKeyUsagePurpose::ServerAuth,
    };
    let pair = new_key(name)?;
    let params = leaf_params(name, vec![usage], years(CERTIFICATE_YEARS))?;
    let certificate = params
        .signed_by(&pair, &issuer)
        .map_err(|error| issue_error(name, error))?;
    Ok((certificate.pem(), pair.serialize_pem()))
}

/// A service's identity: takes control connections from operators.
#[derive(Clone)]
pub struct Agent {
    acceptor: TlsAcceptor,
}

impl Agent {
    /// Reads what [`issue`] wrote.
    ///
    /// # Errors
    /// If the file cannot be read, may be read by others, or is not what it should be.
    pub fn load(path: &Path) -> Result<Self, Error> {
        let (certificates, key) = load(path)?;
        let [own, operators] = two(certificates, path)?;
        // An agent never dials with this identity; which servers it would trust does not matter.
        let (_, config) = configs(vec![own], &key, &operators, &operators)?;
        Ok(Self {
            acceptor: TlsAcceptor::from(Arc::new(config)),
        })
    }

    /// Secures a connection that came in; only an operator gets through.
    ///
    /// The caller bounds how long this may take.
    ///
    /// # Errors
    /// If the peer is no operator, or the connection breaks.
    pub async fn accept(
        &self,
        stream: TcpStream,
    ) -> Result<server::TlsStream<TcpStream>, std::io::Error> {
        self.acceptor.accept(stream).await
    }
}

/// An operator's identity: gives orders to agents.
#[derive(Clone)]
pub struct Operator {
    connector: TlsConnector,
}

impl Operator {
    /// Reads the operator of a trust directory.
    ///
    /// # Errors
    /// If the directory is not usable.
    pub fn load(dir: &Path) -> Result<Self, Error> {
        let path = dir.join("operator.pem");
        let (certificates, key) = load(&path)?;
        let own = certificates.into_iter().next();
        let own = own.ok_or_else(|| unusable(&path, "it holds no certificate"))?;
        let agents = dir.join("agent-ca.pem");
        let agents = CertificateDer::from_pem_slice(read(&agents)?.as_bytes())
            .map_err(|error| unusable(&agents, error))?;
        let (config, _) = configs(vec![own], &key, &agents, &agents)?;
        Ok(Self {
            connector: TlsConnector::from(Arc::new(config)),
        })
    }

    /// Secures a connection to the agent on `host`; only that agent gets through.
    ///
    /// # Errors
    /// If `host` is neither a DNS name nor an address, if the peer is not its agent or refuses
    /// this operator, or if the connection breaks.
    pub async fn connect(
        &self,
        host: &str,
        stream: TcpStream,
    ) -> Result<client::TlsStream<TcpStream>, std::io::Error> {
        let name = server_name(host).map_err(std::io::Error::other)?;
        self.connector.connect(name, stream).await
    }
}

/// Whether [`Operator::connect`] failed because the peer speaks no TLS, so that it did not even come to
/// who it is.
pub fn is_no_tls(error: &std::io::Error) -> bool {
    let inner = error.get_ref();
    let inner = inner.and_then(|inner| inner.downcast_ref::<rustls::Error>());
    matches!(inner, Some(rustls::Error::InvalidMessage(_)))
}

fn years(years: u32) -> Duration {
    Duration::from_secs(365 * 24 * 3600) * years
}

fn new_key(name: &str) -> Result<KeyPair, Error> {
    KeyPair::generate_for(&PKCS_ED25519).map_err(|error| issue_error(name, error))
}

fn server_name(host: &str) -> Result<ServerName<'static>, Error> {
    ServerName::try_from(host.to_owned())
        .map_err(|_| issue_error(host, "it is neither a DNS name nor an IP address"))
}

fn unusable(path: &Path, why: impl std::fmt::Display) -> Error {
    credentials_error(&path.display().to_string(), why)
}

fn two(
    certificates: Vec<CertificateDer<'static>>,
    path: &Path,
) -> Result<[CertificateDer<'static>; 2], Error> {
    certificates.try_into().map_err(|found: Vec<_>| {
        unusable(
            path,
            format!("it holds {} certificates instead of 2", found.len()),
        )
    })
}

/// The certificates and the key (PKCS #8) of a PEM file.
fn load(path: &Path) -> Result<(Vec<CertificateDer<'static>>, Vec<u8>), Error> {
    let text = read(path)?;
    let certificates: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(text.as_bytes()).collect();
    let certificates = certificates.map_err(|error| unusable(path, error))?;
    let key = PrivatePkcs8KeyDer::from_pem_slice(text.as_bytes()).map_err(|error| match error {
        pem::Error::NoItemsFound => unusable(path, "it holds no private key"),
        error => unusable(path, error),
    })?;
    Ok((certificates, key.secret_pkcs8_der().to_vec()))
}

/// Reads a file of the trust directory; keys that others may read are no secrets.
fn read(path: &Path) -> Result<String, Error> {
    use std::os::unix::fs::MetadataExt;
    let file = |error| Error::File {
        path: path.to_owned(),
        error,
    };
    let metadata = fs::metadata(path).map_err(file)?;
    if metadata.len() > FILE_BYTES_MAX {
        return Err(unusable(path, "the file is too long"));
    }
    let text = fs::read_to_string(path).map_err(file)?;
    if text.contains("PRIVATE KEY") && metadata.mode() & 0o077 != 0 {
        return Err(unusable(
            path,
            "its key can be read by others; chmod 600 it",
        ));
    }
    Ok(text)
}

/// Creates a file that only its owner can read: whole or not at all, and never over another.
fn create(path: &Path, text: &str) -> Result<(), Error> {
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
        out.write_all(text.as_bytes())?;
        out.sync_all()?;
        // Unlike a rename, a link does not replace what is there.
        fs::hard_link(&temporary, path)
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
