//! The protocols by name: a new one is a new file and a line here.

use crate::{Protocol, Setup};

/// A protocol that can be asked for by name.
#[derive(Clone, Copy, Debug)]
pub struct Entry {
    /// The name in commands, JSON and on the wire.
    pub name: &'static str,
    /// One line for people.
    pub about: &'static str,
    /// Builds one node's part.
    pub build: fn(Setup) -> Box<dyn Protocol>,
}

/// Every protocol.
pub const ENTRIES: &[Entry] = &[
    crate::direct::ENTRY,
    crate::chain::ENTRY,
    crate::swarm::ENTRY,
];

/// The protocol called `name`.
pub fn find(name: &str) -> Option<&'static Entry> {
    ENTRIES.iter().find(|entry| entry.name == name)
}
