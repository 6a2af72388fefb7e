//! The systems that can move jobs.

use std::fmt;
use std::str::FromStr;

use serde::Serialize;

/// What moves the jobs of a simulation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum System {
    /// The central controller.
    #[default]
    Central,
    /// Receivers that choose among the few servers they know [BDS §2.3].
    Gingko,
    /// A tree with a mesh over it.
    Bullet,
    /// Three layers of sources, reflectors and sinks, in order.
    Akamai,
    /// All from the sources.
    Direct,
    /// Each destination from the one before it.
    Chain,
    /// Servers that fetch their share from random others and help each other when done.
    Robber,
}

impl System {
    /// All of them.
    pub const ALL: [Self; 7] = [
        Self::Central,
        Self::Gingko,
        Self::Bullet,
        Self::Akamai,
        Self::Direct,
        Self::Chain,
        Self::Robber,
    ];

    /// What people call it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Central => "central",
            Self::Gingko => "gingko",
            Self::Bullet => "bullet",
            Self::Akamai => "akamai",
            Self::Direct => "direct",
            Self::Chain => "chain",
            Self::Robber => "robber",
        }
    }
}

impl fmt::Display for System {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// There is no such system.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("there is no system `{0}`")]
pub struct UnknownSystem(String);

impl FromStr for System {
    type Err = UnknownSystem;

    fn from_str(name: &str) -> Result<Self, Self::Err> {
        let mut all = Self::ALL.into_iter();
        all.find(|system| system.name() == name)
            .ok_or_else(|| UnknownSystem(name.to_owned()))
    }
}
