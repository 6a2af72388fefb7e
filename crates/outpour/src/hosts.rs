//! Where an object is to be: `[user@]host[:port]:/path`, ranges of hosts, hosts files.
//!
//! Host names end up as arguments of `ssh` and in what people read, and they come from files that
//! others may have written. So a name is a short list of harmless characters and never begins
//! with `-`; everything else is refused here, before anything is started.

#![cfg_attr(
    not(test),
    deny(
        clippy::unwrap_used,
        clippy::expect_used,
        clippy::indexing_slicing,
        clippy::arithmetic_side_effects
    )
)]

pub(crate) mod file;
mod range;

use std::collections::{HashMap, HashSet};
use std::ffi::{OsStr, OsString};
use std::net::Ipv6Addr;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::str::FromStr;

use outpour_core::text::{escape, excerpt};

/// How many hosts one cast may have.
pub const HOSTS_MAX: usize = 10_000;

/// How long a host name may be, as in DNS.
const NAME_BYTES_MAX: usize = 255;

/// How long a destination path may be, as Linux has it.
const PATH_BYTES_MAX: usize = 4096;

/// One place an object is to be cast to.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Destination {
    /// As it was written, unique within a cast; used in every message.
    pub name: String,
    /// The user to log in as, if one was given.
    pub user: Option<String>,
    /// Host name or address, an IPv6 address without brackets.
    pub host: String,
    /// The port of its SSH server or service, if one was given.
    pub port: Option<u16>,
    /// Where the object is to be on that host.
    pub path: PathBuf,
    /// The cluster the host is in, if the hosts file says so.
    pub cluster: Option<String>,
    /// What the host is called in a described network, if the hosts file says so.
    pub node: Option<String>,
}

impl Destination {
    /// The service on a host, on its usual port, by the host's name or address.
    pub fn service_on(host: String) -> Self {
        Self {
            name: host.clone(),
            user: None,
            host,
            port: None,
            path: PathBuf::from("/"),
            cluster: None,
            node: None,
        }
    }
}

/// What is wrong with the destinations of a cast.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum HostsError {
    /// A destination cannot be understood.
    #[error("destination `{text}`: {fault}")]
    Destination {
        /// What was written.
        text: String,
        /// What is wrong with it.
        fault: HostFault,
    },
    /// A source on another host cannot be understood.
    #[error("source `{text}`: {fault}")]
    Source {
        /// What was written.
        text: String,
        /// What is wrong with it.
        fault: HostFault,
    },
    /// A relay cannot be understood.
    #[error("relay `{text}`: {fault}")]
    Relay {
        /// What was written.
        text: String,
        /// What is wrong with it.
        fault: HostFault,
    },
    /// A line of a hosts file cannot be understood.
    #[error("{file}:{line}: {fault}")]
    Line {
        /// The file.
        file: String,
        /// The line's number, from one.
        line: usize,
        /// What is wrong with it.
        fault: HostFault,
    },
    /// A hosts file cannot be read.
    #[error("{file}: cannot read the hosts file: {why}")]
    Unreadable {
        /// The file.
        file: String,
        /// Why.
        why: String,
    },
    /// A hosts file names no host.
    #[error("{file}: the hosts file names no host")]
    Empty {
        /// The file.
        file: String,
    },
    /// Two destinations are the same place.
    #[error("`{0}` is named twice")]
    Twice(String),
    /// A destination that is a part of another one.
    #[error("destination `{inner}` is inside destination `{outer}`")]
    Inside {
        /// The inner one.
        inner: String,
        /// The one that it is inside of.
        outer: String,
    },
    /// A host is to do two things in one cast.
    #[error("`{0}` can be only one of source, relay and destination")]
    Both(String),
    /// There is no host at all.
    #[error("no destination")]
    Nobody,
    /// More hosts than a cast may have.
    #[error("more than {HOSTS_MAX} hosts")]
    TooMany,
}

/// What is wrong with one host or destination.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum HostFault {
    /// No path, or none that is absolute.
    #[error("expected [user@]host:/path, with an absolute path")]
    Shape,
    /// A path that no host takes.
    #[error("the path is longer than {PATH_BYTES_MAX} bytes")]
    LongPath,
    /// A name in braces that stands for nothing.
    #[error(
        "`{{{0}}}` is not known; known is `{{host}}`, and `{{{{{0}}}}}` means the text `{{{0}}}`"
    )]
    Placeholder(String),
    /// Nothing where the host is to be.
    #[error("the host name is missing")]
    NoHost,
    /// A name longer than names are.
    #[error("a host name is at most {NAME_BYTES_MAX} characters long")]
    LongName,
    /// A name that programs would take for an option.
    #[error("`{0}` cannot begin with `-`")]
    Dash(String),
    /// A name with a letter that names do not have, and the letter.
    #[error("`{0}` has {1} in it; names are made of letters, digits, `.`, `-` and `_`")]
    Letter(String, String),
    /// No IPv6 address in brackets that hold one.
    #[error("`{0}` is not an IPv6 address")]
    Address(String),
    /// An IPv6 address without brackets.
    #[error("`{0}` has more than one colon; write an IPv6 address in brackets, as [::1]")]
    Colons(String),
    /// No port where one is to be.
    #[error("`{0}` is not a port (1 to 65535)")]
    Port(String),
    /// No range in brackets.
    #[error("`[{0}]` is not a range; expected numbers as in [1-19], [01-19] or [1,3,5-7]")]
    Range(String),
    /// A range whose end comes first.
    #[error("`[{0}]` runs backwards")]
    Backwards(String),
    /// A range of padded numbers whose ends differ in length.
    #[error("`[{0}]` mixes widths; write both ends with the same number of digits")]
    Widths(String),
    /// A bracket without its end.
    #[error("a bracket is not closed")]
    Open,
    /// A path in a hosts file.
    #[error("a path does not belong here; it is the same for all hosts of a file")]
    PathInFile,
    /// Something after a host that is not known.
    #[error("`{0}` is not known; expected `cluster=NAME` or `node=NAME` after the host")]
    Word(String),
    /// One node for several hosts.
    #[error("`node={0}` names one node, but the line names several hosts")]
    ManyNodes(String),
    /// Bytes that are no text.
    #[error("not UTF-8 text")]
    NotText,
    /// More hosts than a cast may have.
    #[error("more than {HOSTS_MAX} hosts")]
    TooMany,
}

/// Destinations that are being gathered.
#[derive(Clone, Debug, Default)]
pub struct Destinations {
    all: Vec<Destination>,
}

impl Destinations {
    /// Adds `[user@]host[:port]:/path`; a range of hosts makes several of it.
    ///
    /// In the path `{host}` stands for the host's name, and `{{name}}` for the text `{name}`.
    ///
    /// # Errors
    /// If it cannot be understood, or there are too many.
    pub fn add(&mut self, text: &OsStr) -> Result<(), HostsError> {
        let found = destination(text, true);
        self.add_found(text, found)
    }

    /// Adds hosts where no path is needed; one that is there is passed over.
    ///
    /// # Errors
    /// As [`Destinations::add`].
    pub fn add_hosts(&mut self, text: &OsStr) -> Result<(), HostsError> {
        let found = destination(text, false);
        self.add_found(text, found)
    }

    fn add_found(
        &mut self,
        text: &OsStr,
        found: Result<Vec<Destination>, HostFault>,
    ) -> Result<(), HostsError> {
        let found = found.map_err(|fault| HostsError::Destination {
            text: show(text),
            fault,
        })?;
        self.extend(found)
    }

    /// Adds the hosts of a file, all with this path.
    ///
    /// The file has one `[user@]host[:port]` a line, with ranges if one likes; `#` begins a
    /// comment, `cluster=NAME` after a host says which hosts share a fast network, `node=NAME` what
    /// the host is called in a described network.
    ///
    /// # Errors
    /// If the file cannot be read, a line of it or the path cannot be understood, it names no host,
    /// or there are too many.
    pub fn add_file(&mut self, file: &Path, path: &Path) -> Result<(), HostsError> {
        let found = file::read(file, path)?;
        self.extend(found)
    }

    /// Adds destinations.
    ///
    /// # Errors
    /// If there are too many.
    pub fn extend(&mut self, all: impl IntoIterator<Item = Destination>) -> Result<(), HostsError> {
        for one in all {
            if self.all.len() == HOSTS_MAX {
                return Err(HostsError::TooMany);
            }
            self.all.push(one);
        }
        Ok(())
    }

    /// All of them, in the order in which they came, each with a name of its own.
    ///
    /// # Errors
    /// If there is none, or a place is named twice.
    pub fn finish(self) -> Result<Vec<Destination>, HostsError> {
        if self.all.is_empty() {
            return Err(HostsError::Nobody);
        }
        self.finish_any()
    }

    /// As [`Destinations::finish`]; there may be none.
    pub(crate) fn finish_any(mut self) -> Result<Vec<Destination>, HostsError> {
        refuse_twins(&self.all)?;
        tell_apart(&mut self.all);
        Ok(self.all)
    }
}

/// Refuses hosts that are to get what they have.
///
/// # Errors
/// If there is one.
pub(crate) fn refuse_both(some: &[Destination], others: &[Destination]) -> Result<(), HostsError> {
    let key = |host: &Destination| (host.host.clone(), host.port);
    let some: HashSet<_> = some.iter().map(key).collect();
    match others.iter().find(|host| some.contains(&key(host))) {
        Some(host) => Err(HostsError::Both(host.name.clone())),
        None => Ok(()),
    }
}

/// Reads one destination; a range makes several of it.
fn destination(text: &OsStr, with_path: bool) -> Result<Vec<Destination>, HostFault> {
    let bytes = text.as_bytes();
    let split = bytes.windows(2).position(|pair| pair == b":/");
    let (hosts, path) = match split {
        Some(split) if with_path => {
            let (hosts, path) = bytes.split_at(split);
            (hosts, path.strip_prefix(b":").unwrap_or(path))
        }
        None if with_path => return Err(HostFault::Shape),
        split => (bytes.split_at(split.unwrap_or(bytes.len())).0, NOWHERE),
    };
    let hosts = std::str::from_utf8(hosts).map_err(|_| HostFault::NotText)?;
    let path = absolute(Path::new(OsStr::from_bytes(path)))?;
    Ok(hosts.parse::<HostRange>()?.at(path).collect())
}

/// Checks a destination path.
fn absolute(path: &Path) -> Result<&Path, HostFault> {
    if path.as_os_str().len() > PATH_BYTES_MAX {
        return Err(HostFault::LongPath);
    }
    if !path.is_absolute() {
        return Err(HostFault::Shape);
    }
    match pieces(path.as_os_str().as_bytes()).find_map(Piece::unknown) {
        Some(name) => Err(HostFault::Placeholder(show(OsStr::from_bytes(name)))),
        None => Ok(path),
    }
}

/// What a hosts file says about the hosts of a line.
#[derive(Default)]
struct Words {
    cluster: Option<String>,
    node: Option<String>,
}

/// The path of a host that is not asked for one.
const NOWHERE: &[u8] = b"/";

/// How a destination path names its host, in braces.
const HOST_IN_PATH: &[u8] = b"host";

/// A part of a destination path.
enum Piece<'a> {
    Text(&'a [u8]),
    /// A name in braces.
    Name(&'a [u8]),
}

impl<'a> Piece<'a> {
    fn unknown(self) -> Option<&'a [u8]> {
        match self {
            Self::Name(name) if name != HOST_IN_PATH => Some(name),
            _ => None,
        }
    }
}

/// Splits a path at names in braces. A name in two pairs of braces is that name in one, as text; all
/// other braces are text as well.
fn pieces(path: &[u8]) -> impl Iterator<Item = Piece<'_>> {
    let mut rest = path;
    std::iter::from_fn(move || {
        if let Some((in_one, after)) = named_in(rest, b"{{", b"}}") {
            // In one pair of braces of the two.
            let text = in_one.get(1..in_one.len().saturating_sub(1));
            rest = after;
            return Some(Piece::Text(text.unwrap_or_default()));
        }
        if let Some((named, after)) = named_in(rest, b"{", b"}") {
            let name = named.get(1..named.len().saturating_sub(1));
            rest = after;
            return Some(Piece::Name(name.unwrap_or_default()));
        }
        // Up to the next brace.
        let end = rest.iter().skip(1).position(|byte| *byte == b'{');
        let end = end.map_or(rest.len(), |end| end.saturating_add(1));
        let (text, after) = rest.split_at_checked(end)?;
        rest = after;
        (!text.is_empty()).then_some(Piece::Text(text))
    })
}

/// Splits a text after a name between `open` and `close` at its start.
fn named_in<'a>(text: &'a [u8], open: &[u8], close: &[u8]) -> Option<(&'a [u8], &'a [u8])> {
    let rest = text.strip_prefix(open)?;
    let is_name = |byte: &u8| byte.is_ascii_alphanumeric() || b"_-".contains(byte);
    let len = rest
        .iter()
        .position(|byte| !is_name(byte))
        .filter(|len| *len > 0)?;
    let after = rest.get(len..)?.strip_prefix(close)?;
    text.split_at_checked(text.len().saturating_sub(after.len()))
}

/// The path with the host's name where it says `{host}`, and the text `{name}` where it says `{{name}}`.
fn with_host(path: &Path, host: &str) -> PathBuf {
    let bytes = path.as_os_str().as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    for piece in pieces(bytes) {
        match piece {
            Piece::Text(text) => out.extend_from_slice(text),
            Piece::Name(name) if name == HOST_IN_PATH => out.extend_from_slice(host.as_bytes()),
            Piece::Name(name) => out.extend([b"{", name, b"}"].concat()),
        }
    }
    PathBuf::from(OsString::from_vec(out))
}

/// Hosts as they are typed: `[user@]host[:port]`, where the host may have ranges.
///
/// ```
/// let hosts: outpour::HostRange = "ops@node[08-11]".parse()?;
/// assert_eq!(hosts.names(), ["node08", "node09", "node10", "node11"]);
/// # Ok::<(), outpour::HostFault>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostRange {
    user: Option<String>,
    names: Vec<String>,
    port: Option<u16>,
}

impl HostRange {
    /// The names of the hosts, the last range counting fastest; at most [`HOSTS_MAX`].
    pub fn names(&self) -> &[String] {
        &self.names
    }

    /// A path on each of them, in which `{host}` stands for the host's name.
    pub fn at(self, path: &Path) -> impl Iterator<Item = Destination> + use<'_> {
        let (user, port) = (self.user, self.port);
        let names = self.names.into_iter();
        names.map(move |host| Destination {
            name: full_name(user.as_deref(), &host, port),
            user: user.clone(),
            path: with_host(path, &host),
            host,
            port,
            cluster: None,
            node: None,
        })
    }
}

/// A host as it is written: `user@host:port`, an IPv6 address in brackets.
fn full_name(user: Option<&str>, host: &str, port: Option<u16>) -> String {
    let mut name = user.map(|user| format!("{user}@")).unwrap_or_default();
    if host.contains(':') {
        name.push_str(&format!("[{host}]"));
    } else {
        name.push_str(host);
    }
    if let Some(port) = port {
        name.push_str(&format!(":{port}"));
    }
    name
}

impl FromStr for HostRange {
    type Err = HostFault;

    fn from_str(text: &str) -> Result<Self, HostFault> {
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
        Ok(Self { user, names, port })
    }
}

/// Reads `[address]` with or without a port; `None` if the bracket holds a range.
fn ipv6(text: &str) -> Result<Option<(String, Option<u16>)>, HostFault> {
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
        return Err(HostFault::Address(show(address)));
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
fn named(text: &str) -> Result<(Vec<String>, Option<u16>), HostFault> {
    let (pattern, port) = match text.rsplit_once(':') {
        Some((pattern, _)) if pattern.contains(':') => return Err(HostFault::Colons(show(text))),
        Some((pattern, digits)) => (pattern, Some(port(digits)?)),
        None => (text, None),
    };
    let names = range::expand(pattern, HOSTS_MAX)?;
    for name in &names {
        if name.len() > NAME_BYTES_MAX {
            return Err(HostFault::LongName);
        }
        harmless(name, "")?;
    }
    Ok((names, port))
}

fn port(digits: &str) -> Result<u16, HostFault> {
    let plain = digits.bytes().all(|byte| byte.is_ascii_digit());
    match digits.parse() {
        Ok(port) if plain && port > 0 => Ok(port),
        _ => Err(HostFault::Port(show(digits))),
    }
}

/// Refuses a name that a shell, `ssh` or a terminal could take for something else.
fn harmless(name: &str, also: &str) -> Result<(), HostFault> {
    if name.is_empty() {
        return Err(HostFault::NoHost);
    }
    if name.starts_with('-') {
        return Err(HostFault::Dash(show(name)));
    }
    let fine = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c) || also.contains(c);
    match name.chars().find(|c| !fine(*c)) {
        None => Ok(()),
        Some(c) if c.is_whitespace() => {
            Err(HostFault::Letter(show(name), "white space".to_owned()))
        }
        Some(c) => {
            let letter = format!("`{}`", escape(&c.to_string()));
            Err(HostFault::Letter(show(name), letter))
        }
    }
}

/// Refuses a place that is named twice, whatever user logs in there.
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

/// Refuses a destination inside another one, where what is cast is a tree: neither could be written as
/// long as the other is.
///
/// # Errors
/// If there is one.
pub(crate) fn refuse_nested(all: &[Destination]) -> Result<(), HostsError> {
    let key = |one: &Destination| (one.host.to_ascii_lowercase(), one.port);
    let mut places: HashMap<_, HashSet<PathBuf>> = HashMap::new();
    for one in all {
        let path = one.path.components().collect();
        places.entry(key(one)).or_default().insert(path);
    }
    for one in all {
        let there = places.get(&key(one)).filter(|there| there.len() > 1);
        let outer = there.and_then(|there| {
            let mut above = one.path.ancestors().skip(1);
            above.find_map(|path| there.get(path))
        });
        if let Some(outer) = outer {
            let at = |path: &Path| {
                let name = full_name(one.user.as_deref(), &one.host, one.port);
                format!("{name}:{}", escape(&path.to_string_lossy()))
            };
            return Err(HostsError::Inside {
                inner: at(&one.path),
                outer: at(outer),
            });
        }
    }
    Ok(())
}

/// Adds the path to the name where one host is to hold several copies.
fn tell_apart(all: &mut [Destination]) {
    let mut times: HashMap<String, u32> = HashMap::new();
    for one in &*all {
        let times = times.entry(one.name.clone()).or_default();
        *times = times.saturating_add(1);
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
