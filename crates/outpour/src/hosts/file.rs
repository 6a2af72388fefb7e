//! Hosts files: one `[user@]host[:port]` a line, ranges allowed, then `cluster=NAME` and
//! `node=NAME` if one likes; `#` begins a comment.

#![cfg_attr(
    not(test),
    deny(
        clippy::unwrap_used,
        clippy::expect_used,
        clippy::indexing_slicing,
        clippy::arithmetic_side_effects
    )
)]

use std::fs::File;
use std::io::Read;
use std::path::Path;

use super::{
    Destination, HOSTS_MAX, HostFault, HostRange, HostsError, Words, absolute, harmless, show,
};

/// How large a hosts file may be: the longest names for the most hosts fit.
const FILE_BYTES_MAX: u64 = 4 << 20;

/// Reads a hosts file; all hosts get this path.
///
/// # Errors
/// If the file or the path cannot be understood; the error has the line's number.
pub(super) fn read(file: &Path, path: &Path) -> Result<Vec<Destination>, HostsError> {
    let path = absolute(path).map_err(|fault| HostsError::Destination {
        text: show(path),
        fault,
    })?;
    let name = show(file);
    let text = text(file).map_err(|why| HostsError::Unreadable {
        file: name.clone(),
        why,
    })?;
    let found = parse(&text, path).map_err(|(line, fault)| HostsError::Line {
        file: name.clone(),
        line,
        fault,
    })?;
    if found.is_empty() {
        return Err(HostsError::Empty { file: name });
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
pub(crate) fn parse(text: &[u8], path: &Path) -> Result<Vec<Destination>, (usize, HostFault)> {
    let mut all = Vec::new();
    for (number, line) in (1..).zip(text.split(|byte| *byte == b'\n')) {
        let fail = |fault| (number, fault);
        let line = std::str::from_utf8(line).map_err(|_| fail(HostFault::NotText))?;
        let line = line.split('#').next().unwrap_or_default();
        let mut words = line.split_ascii_whitespace();
        let Some(host) = words.next() else {
            continue;
        };
        if host.contains(":/") {
            return Err(fail(HostFault::PathInFile));
        }
        let words = said(words).map_err(fail)?;
        let before = all.len();
        let found: HostRange = host.parse().map_err(fail)?;
        all.extend(found.at(path).map(|host| Destination {
            cluster: words.cluster.clone(),
            node: words.node.clone(),
            ..host
        }));
        if let Some(node) = words.node
            && all.len() > before.saturating_add(1)
        {
            return Err(fail(HostFault::ManyNodes(node)));
        }
        if all.len() > HOSTS_MAX {
            return Err(fail(HostFault::TooMany));
        }
    }
    Ok(all)
}

/// Reads what follows the host on its line.
fn said<'a>(all: impl Iterator<Item = &'a str>) -> Result<Words, HostFault> {
    let mut words = Words::default();
    for word in all {
        let (slot, name) = match word.split_once('=') {
            Some(("cluster", name)) => (&mut words.cluster, name),
            Some(("node", name)) => (&mut words.node, name),
            _ => return Err(HostFault::Word(show(word))),
        };
        if slot.is_some() || name.is_empty() {
            return Err(HostFault::Word(show(word)));
        }
        harmless(name, "")?;
        *slot = Some(name.to_owned());
    }
    Ok(words)
}
