//! Destinations as the user types them: `[user@]host[:port]:/path`, ranges of hosts, hosts files.
//!
//! Host names end up as arguments of `ssh` and in what people read, and they come from files that
//! others may have written. So a name is a short list of harmless characters and never begins
//! with `-`; everything else is refused here, before anything is started.

mod file;
mod range;

use std::collections::{HashMap, HashSet};
use std::ffi::{OsStr, OsString};
use std::net::Ipv6Addr;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use outpour_core::text::{escape, excerpt};

/// How many hosts one cast may have.
pub(crate) const HOSTS_MAX: usize = 10_000;

/// How long a host name may be, as in DNS.
const NAME_BYTES_MAX: usize = 255;

/// How long a destination path may be, as Linux has it.
const PATH_BYTES_MAX: usize = 4096;

/// One place an object is to be cast to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Destination {
    /// As the user wrote it, unique within a cast; used in every message.
    pub(crate) name: String,
    /// The user to log in as, if one was given.
    pub(crate) user: Option<String>,
    /// Host name or address, an IPv6 address without brackets.
    pub(crate) host: String,
    /// The port of its SSH server or daemon, if one was given.
    pub(crate) port: Option<u16>,
    /// Where the object is to be on that host.
    pub(crate) path: PathBuf,
    /// The cluster the host is in, if the hosts file says so.
    pub(crate) cluster: Option<String>,
    /// What the host is called in a described network, if the hosts file says so.
    pub(crate) node: Option<String>,
}

/// What is wrong with the destinations of a command.
#[derive(Debug, thiserror::Error)]
pub(crate) enum HostsError {
    /// A destination cannot be understood.
    #[error("destination `{text}`: {fault}")]
    Destination { text: String, fault: Fault },
    /// A line of a hosts file cannot be understood.
    #[error("{file}:{line}: {fault}")]
    Line {
        file: String,
        line: usize,
        fault: Fault,
    },
    /// A hosts file cannot be read.
    #[error("{file}: cannot read the hosts file: {why}")]
    Unreadable { file: String, why: String },
    /// A hosts file names nobody.
    #[error("{file}: the hosts file names no host")]
    Empty { file: String },
    /// `--hosts` lacks its path.
    #[error("--hosts `{text}`: expected FILE:/PATH, a hosts file and where the object is to be")]
    NoPath { text: String },
    /// Two destinations are the same place.
    #[error("destination `{0}` is named twice")]
    Twice(String),
    /// The command names no host at all.
    #[error("no destination: name one as [user@]host:/path, or use --hosts FILE:/path")]
    Nowhere,
    /// The command names no host at all, where no path is asked for.
    #[error("no host: name them as [user@]host, or use --hosts FILE")]
    Nobody,
    /// More hosts than a cast may have.
    #[error("more than {HOSTS_MAX} hosts")]
    TooMany,
}

/// What is wrong with one host or destination.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Fault {
    #[error("expected [user@]host:/path, with an absolute path")]
    Shape,
    #[error("the path is longer than {PATH_BYTES_MAX} bytes")]
    LongPath,
    #[error("the host name is missing")]
    NoHost,
    #[error("a host name is at most {NAME_BYTES_MAX} characters long")]
    LongName,
    #[error("`{0}` cannot begin with `-`")]
    Dash(String),
    #[error("`{0}` has {1} in it; names are made of letters, digits, `.`, `-` and `_`")]
    Letter(String, String),
    #[error("`{0}` is not an IPv6 address")]
    Address(String),
    #[error("`{0}` has more than one colon; write an IPv6 address in brackets, as [::1]")]
    Colons(String),
    #[error("`{0}` is not a port (1 to 65535)")]
    Port(String),
    #[error("`[{0}]` is not a range; expected numbers as in [1-19], [01-19] or [1,3,5-7]")]
    Range(String),
    #[error("`[{0}]` runs backwards")]
    Backwards(String),
    #[error("`[{0}]` mixes widths; write both ends with the same number of digits")]
    Widths(String),
    #[error("a bracket is not closed")]
    Open,
    #[error("a path does not belong here; it follows the file: --hosts FILE:/PATH")]
    PathInFile,
    #[error("`{0}` is not known; expected `cluster=NAME` or `node=NAME` after the host")]
    Word(String),
    #[error("`node={0}` names one node, but the line names several hosts")]
    ManyNodes(String),
    #[error("not UTF-8 text")]
    NotText,
    #[error("more than {HOSTS_MAX} hosts")]
    TooMany,
}

/// Reads all destinations of a command: those given as arguments, then those of hosts files.
///
/// # Errors
/// The first destination or line that cannot be understood, a place named twice, too many hosts,
/// or none.
pub(crate) fn collect(
    arguments: &[OsString],
    files: &[OsString],
) -> Result<Vec<Destination>, HostsError> {
    read(arguments, files, true)
}

/// Reads hosts as [`collect`] does, where no path is needed; one that is there is passed over.
///
/// # Errors
/// As [`collect`].
pub(crate) fn collect_hosts(
    arguments: &[OsString],
    files: &[OsString],
) -> Result<Vec<Destination>, HostsError> {
    read(arguments, files, false)
}

fn read(
    arguments: &[OsString],
    files: &[OsString],
    with_path: bool,
) -> Result<Vec<Destination>, HostsError> {
    let mut all = Vec::new();
    for text in arguments {
        let found = destination(text, with_path).map_err(|fault| HostsError::Destination {
            text: show(text),
            fault,
        })?;
        all.extend(found);
        if all.len() > HOSTS_MAX {
            return Err(HostsError::TooMany);
        }
    }
    for text in files {
        all.extend(file::read(text, with_path)?);
        if all.len() > HOSTS_MAX {
            return Err(HostsError::TooMany);
        }
    }
    if all.is_empty() {
        return Err(if with_path {
            HostsError::Nowhere
        } else {
            HostsError::Nobody
        });
    }
    refuse_twins(&all)?;
    tell_apart(&mut all);
    Ok(all)
}

/// Reads one destination; a range makes several of it.
fn destination(text: &OsStr, with_path: bool) -> Result<Vec<Destination>, Fault> {
    let bytes = text.as_bytes();
    let split = bytes.windows(2).position(|pair| pair == b":/");
    let (host, path) = match split {
        Some(split) if with_path => (&bytes[..split], &bytes[split + 1..]),
        None if with_path => return Err(Fault::Shape),
        split => (&bytes[..split.unwrap_or(bytes.len())], NOWHERE),
    };
    let host = std::str::from_utf8(host).map_err(|_| Fault::NotText)?;
    let path = absolute(OsStr::from_bytes(path))?;
    Ok(hosts(host)?
        .map(|host| host.at(&path, &Words::default()))
        .collect())
}

/// Checks a destination path.
fn absolute(path: &OsStr) -> Result<PathBuf, Fault> {
    if path.len() > PATH_BYTES_MAX {
        return Err(Fault::LongPath);
    }
    Ok(PathBuf::from(path))
}

/// What a hosts file says about the hosts of a line.
#[derive(Default)]
struct Words {
    cluster: Option<String>,
    node: Option<String>,
}

/// The path of a host that is not asked for one.
const NOWHERE: &[u8] = b"/";

/// How a destination path names its host.
const HOST_IN_PATH: &[u8] = b"{host}";

/// The path with the host's name where it says `{host}`.
fn with_host(path: &Path, host: &str) -> PathBuf {
    let bytes = path.as_os_str().as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut rest = bytes;
    while let Some(at) = rest
        .windows(HOST_IN_PATH.len())
        .position(|window| window == HOST_IN_PATH)
    {
        out.extend_from_slice(&rest[..at]);
        out.extend_from_slice(host.as_bytes());
        rest = &rest[at + HOST_IN_PATH.len()..];
    }
    out.extend_from_slice(rest);
    PathBuf::from(OsString::from_vec(out))
}

/// A host without a path.
struct Host {
    user: Option<String>,
    host: String,
    port: Option<u16>,
}

impl Host {
    fn at(self, path: &Path, words: &Words) -> Destination {
        let mut name = String::new();
        if let Some(user) = &self.user {
            name.push_str(user);
            name.push('@');
        }
        if self.host.contains(':') {
            name.push_str(&format!("[{}]", self.host));
        } else {
            name.push_str(&self.host);
        }
        if let Some(port) = self.port {
            name.push_str(&format!(":{port}"));
        }
        Destination {
            name,
            user: self.user,
            path: with_host(path, &self.host),
            host: self.host,
            port: self.port,
            cluster: words.cluster.clone(),
            node: words.node.clone(),
        }
    }
}

/// Reads `[user@]host[:port]`, where the host may have ranges.
fn hosts(text: &str) -> Result<impl Iterator<Item = Host> + use<>, Fault> {
    let (user, rest) = match text.rsplit_once('@') {
        Some((user, rest)) => (Some(user), rest),
        None => (None, text),
    };
    if let Some(user) = user {
        harmless(user, "@+")?;
    }
    let (names, port) = match ipv6(rest)? {
        Some((address, port)) => (vec![address], port),
        None => named(rest)?,
    };
    let user = user.map(str::to_owned);
    Ok(names.into_iter().map(move |host| Host {
        user: user.clone(),
        host,
        port,
    }))
}

/// Reads `[address]` with or without a port; `None` if the bracket holds a range.
fn ipv6(text: &str) -> Result<Option<(String, Option<u16>)>, Fault> {
    let Some((address, rest)) = text.strip_prefix('[').and_then(|rest| rest.split_once(']')) else {
        return Ok(None);
    };
    if !address.contains(':') {
        return Ok(None);
    }
    let (digits, zone) = match address.split_once('%') {
        Some((digits, zone)) => (digits, Some(zone)),
        None => (address, None),
    };
    if digits.parse::<Ipv6Addr>().is_err() {
        return Err(Fault::Address(show(address)));
    }
    if let Some(zone) = zone {
        harmless(zone, "")?;
    }
    let port = match rest {
        "" => None,
        rest => Some(port(rest.strip_prefix(':').unwrap_or(rest))?),
    };
    Ok(Some((address.to_owned(), port)))
}

/// Reads a host name with ranges, with or without a port.
fn named(text: &str) -> Result<(Vec<String>, Option<u16>), Fault> {
    let (pattern, port) = match text.rsplit_once(':') {
        Some((pattern, _)) if pattern.contains(':') => return Err(Fault::Colons(show(text))),
        Some((pattern, digits)) => (pattern, Some(port(digits)?)),
        None => (text, None),
    };
    let names = range::expand(pattern, HOSTS_MAX)?;
    for name in &names {
        if name.len() > NAME_BYTES_MAX {
            return Err(Fault::LongName);
        }
        harmless(name, "")?;
    }
    Ok((names, port))
}

fn port(digits: &str) -> Result<u16, Fault> {
    let plain = digits.bytes().all(|byte| byte.is_ascii_digit());
    match digits.parse() {
        Ok(port) if plain && port > 0 => Ok(port),
        _ => Err(Fault::Port(show(digits))),
    }
}

/// Refuses a name that a shell, `ssh` or a terminal could take for something else.
fn harmless(name: &str, also: &str) -> Result<(), Fault> {
    if name.is_empty() {
        return Err(Fault::NoHost);
    }
    if name.starts_with('-') {
        return Err(Fault::Dash(show(name)));
    }
    let fine = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c) || also.contains(c);
    match name.chars().find(|c| !fine(*c)) {
        None => Ok(()),
        Some(c) if c.is_whitespace() => Err(Fault::Letter(show(name), "white space".to_owned())),
        Some(c) => {
            let letter = format!("`{}`", escape(&c.to_string()));
            Err(Fault::Letter(show(name), letter))
        }
    }
}

/// Refuses a place that is named twice, whoever logs in there.
fn refuse_twins(all: &[Destination]) -> Result<(), HostsError> {
    let mut seen = HashSet::with_capacity(all.len());
    for one in all {
        // Components drop the trailing and double slashes that would hide a twin.
        let path: PathBuf = one.path.components().collect();
        if !seen.insert((one.host.to_ascii_lowercase(), one.port, path)) {
            let path = one.path.to_string_lossy();
            return Err(HostsError::Twice(format!("{}:{}", one.name, escape(&path))));
        }
    }
    Ok(())
}

/// Adds the path to the name where one host is to hold several copies.
fn tell_apart(all: &mut [Destination]) {
    let mut times: HashMap<String, u32> = HashMap::new();
    for one in &*all {
        *times.entry(one.name.clone()).or_default() += 1;
    }
    for one in all {
        if times.get(&one.name).is_some_and(|times| *times > 1) {
            one.name = format!("{}:{}", one.name, escape(&one.path.to_string_lossy()));
        }
    }
}

/// Text of the user's as a message may carry it.
fn show(text: impl AsRef<OsStr>) -> String {
    excerpt(&text.as_ref().to_string_lossy()).into_owned()
}

#[cfg(test)]
mod tests;
