//! The protocols by name: a new one is a new file and a line here.

use outpour_core::manifest::BlockSize;
use outpour_core::network::Network;
use outpour_core::{NodeId, Separation};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::promise::Promise;
use crate::{Protocol, Setup};

/// A protocol that can be asked for by name, and what drivers and planners have to know of it.
#[derive(Clone, Copy, Debug)]
pub struct Entry {
    /// The name in commands, JSON and on the wire.
    pub name: &'static str,
    /// One line for people.
    pub about: &'static str,
    /// Whether it is there for others to be compared with, rather than to be chosen.
    pub baseline: bool,
    /// Where the plan that it executes comes from, if it executes one.
    pub plan: PlanFrom,
    /// Whether nodes may want some of the blocks, or none and pass on what others want. With a
    /// protocol that is not selective every node gets every block.
    pub selective: bool,
    /// How it codes, if it does.
    pub coding: Option<CodingTraits>,
    /// How large the blocks of an object are that goes to so many receivers, unless the user says
    /// so.
    pub block_size: fn(receivers: usize) -> BlockSize,
    /// Whether bytes are options of it.
    pub takes: fn(&EncodedOptions) -> bool,
    /// What it promises about blocks that come more than once; the simulator holds it to that.
    pub promise: Promise,
    /// Builds one node's part.
    pub build: fn(Setup, &EncodedOptions) -> Box<dyn Protocol>,
}

/// Where a protocol's plan comes from.
#[derive(Clone, Copy, Debug)]
pub enum PlanFrom {
    /// It needs none.
    Nowhere,
    /// A planner's method of this name, applied to the network.
    Method(&'static str),
    /// The user.
    User,
    /// The protocol itself, while it runs.
    Network {
        /// Makes its options of the members' network, of where in it each member is, and of how room
        /// is left for latency-sensitive traffic, if it is.
        describe: fn(&Network, &[NodeId], Option<Separation>) -> EncodedOptions,
        /// A planner's method with whose plan it may begin, if it begins with any.
        first: Option<&'static str>,
    },
}

impl PlanFrom {
    /// Whether the protocol executes a plan that is there before it begins.
    pub const fn is_made_before(&self) -> bool {
        matches!(self, Self::Method(_) | Self::User)
    }

    /// Whether the protocol can be given a plan.
    pub const fn may_be_made_before(&self) -> bool {
        let begins = matches!(self, Self::Network { first: Some(_), .. });
        self.is_made_before() || begins
    }
}

/// What a coded protocol asks of its drivers.
#[derive(Clone, Copy, Debug)]
pub struct CodingTraits {
    /// A node has packets of at most so many batches that are not whole.
    pub live_batches: u32,
    /// A good number of blocks to code together if each has so many bytes.
    pub batch_blocks: fn(block_bytes: u32) -> u16,
}

/// The size of blocks for protocols to which it makes no difference.
pub const USUAL_BLOCKS: fn(usize) -> BlockSize = |_| BlockSize::Usual;

/// For protocols without options.
pub const NO_OPTIONS: fn(&EncodedOptions) -> bool = |options| options.0.is_empty();

/// What a protocol can be told besides the [`Setup`], the same on every node. Each protocol has its
/// own type of options; outside of it they are bytes, and none are its default.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct EncodedOptions(Vec<u8>);

impl EncodedOptions {
    /// Options of a protocol that takes this type.
    pub fn of(options: &impl Serialize) -> Self {
        Self(crate::encode(options))
    }

    /// What these are to a protocol that takes this type; `None` if they are no such options.
    pub fn read<T: DeserializeOwned + Default>(&self) -> Option<T> {
        if self.0.is_empty() {
            return Some(T::default());
        }
        let (options, rest) = postcard::take_from_bytes(&self.0).ok()?;
        rest.is_empty().then_some(options)
    }
}

/// A protocol with options that it takes, so that it can be built. On the wire it is the name and
/// the options; unknown protocols and options that are not taken cannot be read.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(
    try_from = "(String, EncodedOptions)",
    into = "(String, EncodedOptions)"
)]
pub struct Configured {
    entry: &'static Entry,
    options: EncodedOptions,
}

impl Configured {
    /// The registry's line.
    pub const fn entry(&self) -> &'static Entry {
        self.entry
    }

    /// The options.
    pub const fn options(&self) -> &EncodedOptions {
        &self.options
    }

    /// Builds one node's part.
    pub fn build(&self, setup: Setup) -> Box<dyn Protocol> {
        setup.check();
        debug_assert!((self.entry.takes)(&self.options), "others' options");
        debug_assert!(setup.batches.is_none() || self.entry.coding.is_some());
        debug_assert!(setup.plan.is_none() || self.entry.plan.may_be_made_before());
        (self.entry.build)(setup, &self.options)
    }
}

impl From<Configured> for (String, EncodedOptions) {
    fn from(configured: Configured) -> Self {
        (configured.entry.name.to_owned(), configured.options)
    }
}

impl TryFrom<(String, EncodedOptions)> for Configured {
    type Error = String;

    fn try_from((name, options): (String, EncodedOptions)) -> Result<Self, String> {
        let configured = by_name(&name)?.with(options);
        configured.ok_or_else(|| format!("these are no options of protocol `{name}`"))
    }
}

impl Entry {
    /// Whether it can leave room for latency-sensitive traffic: as those do that decide while they run.
    pub const fn separates(&self) -> bool {
        matches!(self.plan, PlanFrom::Network { .. })
    }

    /// The protocol with these options; `None` if it does not take them.
    pub fn with(&'static self, options: EncodedOptions) -> Option<Configured> {
        let entry = self;
        (self.takes)(&options).then_some(Configured { entry, options })
    }

    /// The protocol with its default options.
    pub fn by_default(&'static self) -> Configured {
        let (entry, options) = (self, EncodedOptions::default());
        debug_assert!((entry.takes)(&options), "no options are the default");
        Configured { entry, options }
    }
}

/// Every protocol.
pub const ENTRIES: &[Entry] = &[
    crate::direct::ENTRY,
    crate::chain::ENTRY,
    crate::swarm::ENTRY,
    crate::bittorrent::ENTRY,
    crate::mob::ENTRY,
    crate::robber::ENTRY,
    crate::push::ENTRY,
    crate::adaptive::ENTRY,
    crate::central::ENTRY,
    crate::gossip::CODED,
    crate::gossip::RANDOM_BLOCK,
    crate::tree::TREE,
    crate::tree::BALANCED,
    crate::tree::OPTIMAL,
    crate::tree::FPFR,
    crate::tree::MAX_BOTTLENECK,
    crate::tree::BINOMIAL,
    crate::tree::BINARY,
    crate::tree::MAGPIE,
];

/// The protocol called `name`.
pub fn find(name: &str) -> Option<&'static Entry> {
    let mut called = ENTRIES.iter().filter(|entry| entry.name == name);
    let found = called.next();
    debug_assert!(called.next().is_none(), "two protocols are called {name}");
    found
}

/// The protocol called `name`.
///
/// # Errors
/// A line that says which there are.
pub fn by_name(name: &str) -> Result<&'static Entry, String> {
    find(name).ok_or_else(|| {
        let names: Vec<&str> = ENTRIES.iter().map(|entry| entry.name).collect();
        let names = names.join(", ");
        format!("there is no protocol `{name}`; there are {names} and auto")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_name_lists_the_known_ones() {
        assert!(by_name("swarm").is_ok());
        let error = by_name("warp").err().unwrap_or_default();
        assert!(
            error.contains("`warp`") && error.contains("chain"),
            "{error}"
        );
    }

    #[test]
    fn options_are_taken_by_those_whose_they_are() {
        let asked = crate::gossip::GossipOptions {
            slack: 3,
            ..crate::gossip::GossipOptions::default()
        };
        let options = EncodedOptions::of(&asked);
        assert_eq!(options.read(), Some(asked));
        let usual = EncodedOptions::default();
        assert_eq!(usual.read(), Some(crate::gossip::GossipOptions::default()));
        let accepts = |name: &str, options: &EncodedOptions| {
            find(name).is_some_and(|entry| entry.with(options.clone()).is_some())
        };
        for entry in ENTRIES {
            assert!(accepts(entry.name, &usual), "{}", entry.name);
        }
        assert!(accepts("coded-gossip", &options));
        assert!(accepts("random-block", &options));
        assert!(!accepts("swarm", &options));
        let mut longer = options;
        longer.0.push(0);
        assert!(!accepts("coded-gossip", &longer));
        assert!(!accepts("coded-gossip", &EncodedOptions(vec![0xff; 9])));
    }
}
