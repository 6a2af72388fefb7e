//! Hosts files: one `[user@]host[:port]` a line, ranges allowed, then `cluster=NAME` and
//! `node=NAME` if one likes; `#` begins a comment.

use std::ffi::OsStr;
use std::fs::File;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use super::{
    Destination, Fault, HOSTS_MAX, HostsError, NOWHERE, Words, absolute, harmless, hosts, show,
};

/// How large a hosts file may be: the longest names for the most hosts fit.
const FILE_BYTES_MAX: u64 = 4 << 20;

/// Reads `FILE:/PATH` and the file it names.
///
/// # Errors
/// If the argument or a line of the file cannot be understood; the error has the line's number.
pub(super) fn read(argument: &OsStr, with_path: bool) -> Result<Vec<Destination>, HostsError> {
    let bytes = argument.as_bytes();
    // The last one: the file may lie anywhere, the destination hardly has `:/` inside.
    let split = bytes
        .windows(2)
        .rposition(|pair| pair == b":/")
        .filter(|split| *split > 0);
    let (name, path) = match split {
        Some(split) if with_path => (&bytes[..split], &bytes[split + 1..]),
        None if with_path => {
            return Err(HostsError::NoPath {
                text: show(argument),
            });
        }
        split => (&bytes[..split.unwrap_or(bytes.len())], NOWHERE),
    };
    let path = absolute(OsStr::from_bytes(path)).map_err(|fault| HostsError::Destination {
        text: show(argument),
        fault,
    })?;
    let name = OsStr::from_bytes(name);
    let file = show(name);
    let text = text(Path::new(name)).map_err(|why| HostsError::Unreadable {
        file: file.clone(),
        why,
    })?;
    let found = parse(&text, &path).map_err(|(line, fault)| HostsError::Line {
        file: file.clone(),
        line,
        fault,
    })?;
    if found.is_empty() {
        return Err(HostsError::Empty { file });
    }
    Ok(found)
}

fn text(path: &Path) -> Result<Vec<u8>, String> {
    let mut text = Vec::new();
    File::open(path)
        .and_then(|file| file.take(FILE_BYTES_MAX + 1).read_to_end(&mut text))
        .map_err(|error| error.to_string())?;
    if text.len() as u64 > FILE_BYTES_MAX {
        return Err(format!("it is larger than {} MiB", FILE_BYTES_MAX >> 20));
    }
    Ok(text)
}

/// Reads the lines of a hosts file; an error comes with its line's number, from one.
pub(super) fn parse(text: &[u8], path: &Path) -> Result<Vec<Destination>, (usize, Fault)> {
    let mut all = Vec::new();
    for (number, line) in (1..).zip(text.split(|byte| *byte == b'\n')) {
        let fail = |fault| (number, fault);
        let line = std::str::from_utf8(line).map_err(|_| fail(Fault::NotText))?;
        let line = line.split('#').next().unwrap_or_default();
        let mut words = line.split_ascii_whitespace();
        let Some(host) = words.next() else {
            continue;
        };
        if host.contains(":/") {
            return Err(fail(Fault::PathInFile));
        }
        let words = said(words).map_err(fail)?;
        let before = all.len();
        let found = hosts(host).map_err(fail)?;
        all.extend(found.map(|host| host.at(path, &words)));
        if let Some(node) = words.node
            && all.len() > before + 1
        {
            return Err(fail(Fault::ManyNodes(node)));
        }
        if all.len() > HOSTS_MAX {
            return Err(fail(Fault::TooMany));
        }
    }
    Ok(all)
}

/// Reads what follows the host on its line.
fn said<'a>(all: impl Iterator<Item = &'a str>) -> Result<Words, Fault> {
    let mut words = Words::default();
    for word in all {
        let (slot, name) = match word.split_once('=') {
            Some(("cluster", name)) => (&mut words.cluster, name),
            Some(("node", name)) => (&mut words.node, name),
            _ => return Err(Fault::Word(show(word))),
        };
        if slot.is_some() || name.is_empty() {
            return Err(Fault::Word(show(word)));
        }
        harmless(name, "")?;
        *slot = Some(name.to_owned());
    }
    Ok(words)
}
