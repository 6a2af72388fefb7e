//! How users and groups are called on this host.
//!
//! The files are read directly: asking the system's resolver would load whatever it is configured to
//! use into this process, and may wait for a network.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read;

use outpour_core::manifest::is_owner_name;

/// How much of such a file is read, in bytes.
const BYTES_MAX: u64 = 16 << 20;

/// The users or the groups of this host.
#[derive(Debug, Default)]
pub(crate) struct Owners {
    names: BTreeMap<u32, Vec<u8>>,
    numbers: BTreeMap<Vec<u8>, u32>,
}

impl Owners {
    pub(crate) fn users() -> Self {
        Self::read("/etc/passwd")
    }

    pub(crate) fn groups() -> Self {
        Self::read("/etc/group")
    }

    /// A host without such a file calls nobody by name.
    fn read(path: &str) -> Self {
        let mut text = Vec::new();
        let read = File::open(path).and_then(|file| file.take(BYTES_MAX).read_to_end(&mut text));
        if let Err(error) = read {
            tracing::debug!(path, %error, "owners are known by number only");
        }
        Self::parse(&text)
    }

    fn parse(text: &[u8]) -> Self {
        let mut owners = Self::default();
        for line in text.split(|byte| *byte == b'\n') {
            let mut fields = line.split(|byte| *byte == b':');
            let (Some(name), Some(id)) = (fields.next(), fields.nth(1)) else {
                continue;
            };
            let id = std::str::from_utf8(id).ok().and_then(|id| id.parse().ok());
            let Some(id) = id.filter(|id| *id != u32::MAX && is_owner_name(name)) else {
                continue;
            };
            // The first line counts, as it does for the system.
            owners.names.entry(id).or_insert_with(|| name.to_vec());
            owners.numbers.entry(name.to_vec()).or_insert(id);
        }
        owners
    }

    /// The name of a number.
    pub(crate) fn name(&self, id: u32) -> Option<&[u8]> {
        self.names.get(&id).map(Vec::as_slice)
    }

    /// The number that an owner has here who has `id` at the source and is called `name` there. Root is
    /// root everywhere, and nobody else is.
    pub(crate) fn number(&self, id: u32, name: &[u8]) -> u32 {
        let known = self.numbers.get(name).copied();
        match known {
            Some(known) if id != 0 && known != 0 => known,
            _ => id,
        }
    }
}

/// Reads arbitrary bytes as a file of owners; for tests. Root is root, whatever it says.
pub(crate) fn fuzz(bytes: &[u8]) {
    let owners = Owners::parse(bytes);
    for (id, name) in &owners.names {
        assert!(*id != u32::MAX && is_owner_name(name));
        assert_eq!(owners.name(*id), Some(&**name));
        assert_eq!(owners.number(0, name), 0);
    }
    for (name, id) in &owners.numbers {
        let expected = if *id == 0 { 7 } else { *id };
        assert_eq!(owners.number(7, name), expected);
    }
}

#[cfg(all(test, not(feature = "simulated")))]
mod tests {
    use super::*;

    #[test]
    fn names_are_found_and_nonsense_is_passed_over() {
        let owners = Owners::parse(
            b"root:x:0:0:root:/root:/bin/sh\n+::::::\nana:x:1000:1000::/:\nbob:x:-1:1::/:\n\
              # none\ntoor:x:0:0:::\nana2:x:1000:1::/:\nmany:x:4294967295:0:::\neva:x:1001:\n",
        );
        assert_eq!(owners.name(0), Some(&b"root"[..]));
        assert_eq!(owners.name(1000), Some(&b"ana"[..]));
        assert_eq!(owners.name(1001), Some(&b"eva"[..]));
        assert_eq!(owners.name(u32::MAX), None);
        assert_eq!(owners.number(7, b"ana"), 1000);
        assert_eq!(owners.number(7, b"ana2"), 1000);
        assert_eq!(owners.number(7, b"bob"), 7);
        assert_eq!(owners.number(7, b"nobody here"), 7);
        // Who is no root there does not become it here, and the other way round.
        assert_eq!(owners.number(7, b"root"), 7);
        assert_eq!(owners.number(0, b"ana"), 0);
    }
}
