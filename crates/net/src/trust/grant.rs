//! What an operator may do, written into its certificate as names: who holds a signed certificate
//! holds the whole of it, and no agent needs a list.
//!
//! ```text
//! outpour:operator:ana
//! outpour:root:/srv/models
//! outpour:host:gpu*
//! ```

use std::path::{Component, Path, PathBuf};

use outpour_core::network::glob;
use rcgen::SanType;
use serde::{Deserialize, Serialize};

use crate::error::Error;
use crate::identity::issue_error;

/// How many directories and hosts a certificate names at most.
pub const GRANT_MAX: usize = 64;
/// How many bytes they have together: a certificate has to fit a handshake.
const GRANT_BYTES_MAX: usize = 8 << 10;
/// How long the name of an operator is at most.
pub const OPERATOR_BYTES_MAX: usize = 64;
const HOST_BYTES_MAX: usize = 253;

const OPERATOR: &str = "outpour:operator:";
const ROOT: &str = "outpour:root:";
const HOST: &str = "outpour:host:";

/// Where an operator may read and write.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Grant {
    /// Directories on hosts; with none, wherever the agents may.
    roots: Vec<PathBuf>,
    /// Names of hosts as their certificates have them, in which `*` stands for any characters; with
    /// none, all.
    hosts: Vec<String>,
}

impl Grant {
    /// A grant of these directories on these hosts; an empty list means all.
    ///
    /// # Errors
    /// If a directory is no absolute path in UTF-8 without `..`, a pattern has characters that no
    /// host has, or they are too many.
    pub fn new(roots: Vec<PathBuf>, hosts: Vec<String>) -> Result<Self, Error> {
        let grant = Self { roots, hosts };
        let why = grant.fault();
        match why {
            Some(why) => Err(issue_error("the operator", why)),
            None => Ok(grant),
        }
    }

    pub(super) fn fault(&self) -> Option<String> {
        if self.roots.len().saturating_add(self.hosts.len()) > GRANT_MAX {
            return Some(format!("more than {GRANT_MAX} directories and hosts"));
        }
        let bytes = self.names("").iter().map(String::len).sum::<usize>();
        if bytes > GRANT_BYTES_MAX {
            return Some("its directories and hosts are too long for a certificate".to_owned());
        }
        let root = self.roots.iter().find(|root| !is_plain(root));
        if let Some(root) = root {
            return Some(format!(
                "the root {}: expected an absolute path in UTF-8 without `..`",
                root.display()
            ));
        }
        let host = self.hosts.iter().find(|host| !is_pattern(host))?;
        Some(format!(
            "the host `{host}`: expected letters, digits, `.`, `-`, `_`, `:`, and `*` for any of them"
        ))
    }

    /// The directories beneath which the operator may read and write; `None` for wherever the agent
    /// may.
    pub fn roots(&self) -> Option<&[PathBuf]> {
        (!self.roots.is_empty()).then_some(&*self.roots)
    }

    /// The patterns of hosts; none for all.
    pub fn hosts(&self) -> &[String] {
        &self.hosts
    }

    /// Whether it is for the host of this name.
    pub fn allows_host(&self, host: &str) -> bool {
        let host = host.to_ascii_lowercase();
        let matches = |pattern: &String| glob::matches(&pattern.to_ascii_lowercase(), &host);
        self.hosts.is_empty() || self.hosts.iter().any(matches)
    }

    pub(super) fn names(&self, operator: &str) -> Vec<String> {
        let roots = self.roots.iter().map(|root| {
            let path = root.as_os_str().as_encoded_bytes();
            format!("{ROOT}{}", encode(path))
        });
        let hosts = self.hosts.iter().map(|host| format!("{HOST}{host}"));
        let names = std::iter::once(format!("{OPERATOR}{operator}"));
        names.chain(roots).chain(hosts).collect()
    }

    /// The names of a certificate that grants this to an operator.
    pub(super) fn certified(&self, operator: &str) -> Result<Vec<SanType>, Error> {
        if !is_name(operator) {
            return Err(issue_error(
                operator,
                format!(
                    "the name of an operator has at most {OPERATOR_BYTES_MAX} letters, digits and `.`, `-`, \
                     `_`, `@`"
                ),
            ));
        }
        let names = self.names(operator).into_iter();
        let names = names.map(|name| Ok(SanType::URI(name.try_into()?)));
        let names: Result<Vec<_>, rcgen::Error> = names.collect();
        names.map_err(|error| issue_error(operator, error))
    }

    /// Reads such names. One that is not understood could be a restriction, so it is an error.
    pub(super) fn read<'a>(
        names: impl Iterator<Item = &'a str>,
    ) -> Result<(String, Self), &'static str> {
        let (mut operator, mut grant) = (None, Self::default());
        for name in names {
            if let Some(name) = name.strip_prefix(OPERATOR) {
                let twice = operator.replace(name.to_owned()).is_some();
                if twice || !is_name(name) {
                    return Err("it names no operator");
                }
            } else if let Some(root) = name.strip_prefix(ROOT) {
                let root = decode(root).ok_or("its roots are no paths")?;
                grant.roots.push(PathBuf::from(root));
            } else if let Some(host) = name.strip_prefix(HOST) {
                grant.hosts.push(host.to_owned());
            } else {
                return Err("it has a name that this release does not know");
            }
        }
        if grant.fault().is_some() {
            return Err("what it grants makes no sense");
        }
        Ok((operator.ok_or("it names no operator")?, grant))
    }
}

fn is_plain(root: &Path) -> bool {
    let parts = |part| matches!(part, Component::RootDir | Component::Normal(_));
    root.is_absolute() && root.to_str().is_some() && root.components().all(parts)
}

fn is_pattern(host: &str) -> bool {
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || b".-_:*".contains(&byte);
    !host.is_empty() && host.len() <= HOST_BYTES_MAX && host.bytes().all(fits)
}

fn is_name(name: &str) -> bool {
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || b".-_@".contains(&byte);
    !name.is_empty() && name.len() <= OPERATOR_BYTES_MAX && name.bytes().all(fits)
}

/// Names of certificates are ASCII: other bytes become `%` and two digits.
fn encode(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len());
    for byte in bytes {
        match byte {
            b'%' | 0..=b' ' | 0x7f.. => text += &format!("%{byte:02x}"),
            byte => text.push(char::from(*byte)),
        }
    }
    text
}

fn decode(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, more @ ..] = rest {
        rest = more;
        if *first != b'%' {
            bytes.push(*first);
            continue;
        }
        let (digits, more) = rest.split_at_checked(2)?;
        let digits = std::str::from_utf8(digits).ok()?;
        // A sign would count as one.
        let digits = digits
            .bytes()
            .all(|digit| digit.is_ascii_hexdigit())
            .then_some(digits)?;
        bytes.push(u8::from_str_radix(digits, 16).ok()?);
        rest = more;
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn grant(roots: &[&str], hosts: &[&str]) -> Result<Grant, Error> {
        let roots = roots.iter().map(PathBuf::from).collect();
        Grant::new(roots, hosts.iter().map(ToString::to_string).collect())
    }

    #[test]
    fn a_grant_survives_its_certificate() {
        for (roots, hosts) in [
            (
                &["/srv/models", "/a b/100%/\u{1b}ü"][..],
                &["gpu*", "fe80::1"][..],
            ),
            (&[], &["*"]),
            (&["/"], &[]),
        ] {
            let grant = grant(roots, hosts).unwrap();
            let names = grant.names("ana@build-1");
            assert!(
                names
                    .iter()
                    .all(|name| name.is_ascii() && !name.contains(' ')),
                "{names:?}"
            );
            let read = Grant::read(names.iter().map(String::as_str)).unwrap();
            assert_eq!(read, ("ana@build-1".to_owned(), grant));
        }
    }

    #[test]
    fn hosts_are_matched_whole_and_without_case() {
        let grant = grant(&[], &["GPU*.example", "10.0.0.7"]).unwrap();
        for host in ["gpu1.example", "Gpu.Example", "10.0.0.7"] {
            assert!(grant.allows_host(host), "{host}");
        }
        for host in ["gpu1.example.org", "xgpu1.example", "10.0.0.70", ""] {
            assert!(!grant.allows_host(host), "{host}");
        }
        assert!(Grant::default().allows_host("anything"));
    }

    #[test]
    fn nonsense_is_granted_to_nobody() {
        for root in ["srv", "", "/srv/../etc", "./x"] {
            assert!(grant(&[root], &[]).is_err(), "{root:?}");
        }
        for host in ["", "a b", "node[1-3]", "h\n"] {
            assert!(grant(&[], &[host]).is_err(), "{host:?}");
        }
        assert!(grant(&["/x"; GRANT_MAX + 1], &[]).is_err());
        let long = format!("/{}", "x".repeat(GRANT_BYTES_MAX));
        assert!(grant(&[&long], &[]).is_err());
        for name in ["", "a b", "a\n", "ü", &"n".repeat(OPERATOR_BYTES_MAX + 1)] {
            assert!(Grant::default().certified(name).is_err(), "{name:?}");
        }
        for names in [
            &[][..],
            &["outpour:root:/srv"],
            &["outpour:operator:a", "outpour:operator:b"],
            &["outpour:operator:a", "outpour:until:2030"],
            &["outpour:operator:a", "outpour:root:srv"],
            &["outpour:operator:a", "outpour:root:/%2"],
            &["outpour:operator:a", "outpour:root:/%+1"],
            &["outpour:operator:a", "outpour:root:/%ff"],
            &["outpour:operator:a", "outpour:root:"],
            &["outpour:operator:a", "outpour:host:"],
        ] {
            assert!(Grant::read(names.iter().copied()).is_err(), "{names:?}");
        }
    }
}
