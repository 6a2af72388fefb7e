//! Gossip over permutations: `coded-gossip` and, without coding, `random-block`.

use serde::{Deserialize, Serialize};

/// How a gossip moves batches, the same on every node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Options {
    /// In which order.
    pub schedule: Schedule,
    /// How many packets more than a batch has blocks a source sends of it before it goes on to the
    /// next; the constant C of the paper. `Stream` does not use it.
    pub slack: u32,
    /// After how many new blocks a node of `random-block` says again what it has.
    pub map_every: u32,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            schedule: Schedule::Stream,
            slack: 1,
            map_every: 2,
        }
    }
}

/// In which order the batches of an object are moved.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Schedule {
    /// A batch begins when everybody has the one before.
    Sequential,
    /// Who has a batch goes on with the next; earlier batches come first ([Cooper], Algorithm 1).
    Overlap1,
    /// The next batch begins, and comes first for a while, before everybody has the one before
    /// ([Cooper], Algorithm 2).
    Overlap2,
    /// A source gives each block of each batch once, one batch after the other; everybody asks
    /// for the earliest batch that the sender can add something to.
    Stream,
}

impl Schedule {
    /// Every schedule.
    pub const ALL: [Self; 4] = [
        Self::Sequential,
        Self::Overlap1,
        Self::Overlap2,
        Self::Stream,
    ];

    /// Its name in commands and reports.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Sequential => "sequential",
            Self::Overlap1 => "overlap-1",
            Self::Overlap2 => "overlap-2",
            Self::Stream => "stream",
        }
    }
}
