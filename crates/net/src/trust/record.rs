//! What a trust directory has issued: a line of JSON for each certificate of which something may go on.

use std::fmt::Display;
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

use super::certificates::{SKEW, unix_now};
use super::certified::{Certified, Serial, Subject};
use super::files::{read_any, replace};
use super::grant::Grant;
use super::unusable;
use crate::error::Error;

/// How long the record may be: some 50,000 certificates.
const RECORD_BYTES_MAX: usize = 16 << 20;

/// The last second of the year 9999, beyond which no certificate goes.
const UNTIL_MAX: u64 = 253_402_300_799;

/// For so long after it has expired an operator's certificate can be revoked still: what it began goes on.
const REVOCABLE: Duration = Duration::from_secs(30 * 24 * 3600);

/// What a certificate is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// To command agents.
    Operator,
    /// To be the agent of a host.
    Agent,
}

/// A certificate that was issued.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Issued {
    /// What it is for.
    pub kind: Kind,
    /// The operator's name, or the host's.
    pub name: String,
    /// Its number.
    pub serial: Serial,
    /// Where an operator may read and write.
    #[serde(flatten)]
    pub grant: Grant,
    /// Until when it is valid, in seconds since 1970.
    until: u64,
}

impl Issued {
    pub(super) fn of(certified: &Certified) -> Self {
        let (kind, name, grant) = match &certified.subject {
            Subject::Operator(name, grant) => (Kind::Operator, name, grant.clone()),
            Subject::Agent(host) => (Kind::Agent, host, Grant::default()),
        };
        let until = certified.until().duration_since(UNIX_EPOCH);
        Self {
            kind,
            name: name.clone(),
            serial: certified.serial.clone(),
            grant,
            until: until.unwrap_or_default().as_secs(),
        }
    }

    /// Whether somebody accepts it still.
    pub(super) fn is_valid(&self) -> bool {
        Duration::from_secs(self.until).saturating_add(SKEW) >= unix_now()
    }

    /// Whether it may have begun something that goes on.
    fn is_revocable(&self) -> bool {
        let more = match self.kind {
            Kind::Operator => REVOCABLE,
            Kind::Agent => Duration::ZERO,
        };
        let last = Duration::from_secs(self.until).saturating_add(SKEW);
        last.saturating_add(more) >= unix_now()
    }

    /// Until when it is valid.
    pub fn until(&self) -> SystemTime {
        let until = Duration::from_secs(self.until.min(UNTIL_MAX));
        UNIX_EPOCH.checked_add(until).unwrap_or(UNIX_EPOCH)
    }
}

/// The certificates of a record, the oldest first.
pub(super) fn load(path: &Path) -> Result<Vec<Issued>, Error> {
    let text = read_any(path, RECORD_BYTES_MAX)?.unwrap_or_default();
    parse(&text, path)
}

/// The same of what such a file holds.
pub(super) fn parse(text: &[u8], path: &Path) -> Result<Vec<Issued>, Error> {
    let lines = text.split(|byte| *byte == b'\n').zip(1..);
    let lines = lines.filter(|(line, _)| !line.is_empty());
    let parse = |(line, number): (&[u8], u32)| {
        let wrong = |why: &dyn Display| unusable(path, format!("line {number}: {why}"));
        let issued: Issued = serde_json::from_slice(line).map_err(|error| wrong(&error))?;
        match issued.grant.fault() {
            Some(why) => Err(wrong(&why)),
            None => Ok(issued),
        }
    };
    lines.map(parse).collect()
}

/// Adds a certificate and leaves out those of which nothing goes on. The caller holds the
/// directory's lock.
pub(super) fn add(path: &Path, issued: Issued) -> Result<(), Error> {
    let mut all = load(path)?;
    all.retain(Issued::is_revocable);
    all.push(issued);
    let text = print(&all, path)?;
    if text.len() > RECORD_BYTES_MAX {
        return Err(unusable(path, "it would be too long"));
    }
    replace(path, &text)
}

/// What the file holds of these.
pub(super) fn print(all: &[Issued], path: &Path) -> Result<Vec<u8>, Error> {
    let mut text = Vec::new();
    for issued in all {
        serde_json::to_writer(&mut text, issued).map_err(|error| unusable(path, error))?;
        text.push(b'\n');
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn line(serial: &str, until: u64, roots: &str) -> String {
        format!(
            r#"{{"kind":"operator","name":"ana","serial":"{serial}","roots":[{roots}],"hosts":[],"until":{until}}}"#
        )
    }

    #[test]
    fn what_no_directory_writes_is_refused_and_no_time_is_too_late() {
        let read = |line: String| parse(line.as_bytes(), Path::new("issued.jsonl"));
        let all = read(line("4f", u64::MAX, r#""/srv""#)).unwrap();
        assert!(all[0].is_valid() && all[0].is_revocable());
        assert_eq!(all[0].until(), UNIX_EPOCH + Duration::from_secs(UNTIL_MAX));
        assert_eq!(all[0].serial.bytes(), [0x4f]);
        for serial in ["", "0f", "4F", "-1", "4g", &"1".repeat(41)] {
            let error = read(line(serial, 1, "")).unwrap_err().to_string();
            assert!(error.contains("line 1: it has the number of no"), "{error}");
        }
        let error = read(line("4f", 1, r#""/srv/..""#)).unwrap_err().to_string();
        assert!(error.contains("line 1: the root /srv/.."), "{error}");
    }
}
