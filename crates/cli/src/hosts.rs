//! Destinations as arguments: `[user@]host[:port]:/path`, and `FILE:/PATH` of `--hosts`.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use outpour::{Destination, Destinations, HostFault, HostsError};
use outpour_core::text::excerpt;

use crate::out::Failure;

/// The path of a host that is not asked for one.
const NOWHERE: &str = "/";

/// Reads all destinations of a command: those given as arguments, then those of hosts files.
///
/// # Errors
/// The first destination or line that cannot be understood, a place named twice, too many hosts,
/// or none.
pub(crate) fn collect(
    arguments: &[OsString],
    files: &[OsString],
) -> Result<Vec<Destination>, Failure> {
    let mut all = Destinations::default();
    for text in arguments {
        all.add(text).map_err(misuse)?;
    }
    for text in files {
        let (file, path) = split(text).ok_or_else(|| {
            let text = text.to_string_lossy();
            Failure::Usage(format!(
                "--hosts `{}`: expected FILE:/PATH, a hosts file and where the object is to be",
                excerpt(&text)
            ))
        })?;
        all.add_file(file, path).map_err(misuse)?;
    }
    all.finish().map_err(|error| match error {
        HostsError::Nobody => Failure::Usage(
            "no destination: name one as [user@]host:/path, or use --hosts FILE:/path".to_owned(),
        ),
        error => misuse(error),
    })
}

/// Reads hosts as [`collect`] does, where no path is needed; one that is there is passed over.
///
/// # Errors
/// As [`collect`].
pub(crate) fn collect_hosts(
    arguments: &[OsString],
    files: &[OsString],
) -> Result<Vec<Destination>, Failure> {
    let mut all = Destinations::default();
    for text in arguments {
        all.add_hosts(text).map_err(misuse)?;
    }
    for text in files {
        let file = split(text).map_or_else(|| Path::new(text), |(file, _)| file);
        all.add_file(file, Path::new(NOWHERE)).map_err(misuse)?;
    }
    all.finish().map_err(|error| match error {
        HostsError::Nobody => {
            Failure::Usage("no host: name them as [user@]host, or use --hosts FILE".to_owned())
        }
        error => misuse(error),
    })
}

/// Splits `FILE:/PATH`.
fn split(text: &OsStr) -> Option<(&Path, &Path)> {
    let bytes = text.as_bytes();
    // The last one: the file may lie anywhere, the destination hardly has `:/` inside.
    let split = bytes.windows(2).rposition(|pair| pair == b":/");
    let split = split.filter(|split| *split > 0)?;
    let (file, path) = (bytes.get(..split)?, bytes.get(split + 1..)?);
    Some((
        Path::new(OsStr::from_bytes(file)),
        Path::new(OsStr::from_bytes(path)),
    ))
}

/// What is wrong, and which option puts it right.
pub(crate) fn misuse(error: HostsError) -> Failure {
    let remedy = match &error {
        HostsError::Line {
            fault: HostFault::PathInFile,
            ..
        } => ": --hosts FILE:/PATH",
        _ => "",
    };
    Failure::Usage(format!("{error}{remedy}"))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn a_hosts_argument_is_split_at_its_last_path() {
        let parts = |text: &'static str| split(OsStr::new(text));
        let expected = (Path::new("/etc/my:hosts.txt"), Path::new("/srv/x"));
        assert_eq!(parts("/etc/my:hosts.txt:/srv/x"), Some(expected));
        assert_eq!(parts("a:/b:/c").unwrap().0, Path::new("a:/b"));
        for whole in ["hosts.txt", ":/srv/x", ""] {
            assert_eq!(parts(whole), None, "{whole}");
        }
    }

    #[test]
    fn hosts_that_are_measured_need_no_path() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("hosts.txt");
        std::fs::write(&file, "b\n").unwrap();
        for tail in ["", ":/srv/x"] {
            let mut argument = file.clone().into_os_string();
            argument.push(tail);
            let found = collect_hosts(&["a".into()], &[argument]).unwrap();
            let found: Vec<_> = found.iter().map(|one| one.host.as_str()).collect();
            assert_eq!(found, ["a", "b"]);
        }
    }
}
