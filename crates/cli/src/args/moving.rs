//! How an object is moved: what a cast and its simulation can be asked for.

use clap::Args;
use outpour_core::{Rate, Separation};
use outpour_net::CONNECTIONS_MAX;
use outpour_protocols::gossip::{self, GossipOptions, Schedule};
use outpour_protocols::registry;
use outpour_terms::{Asked, ENCODERS_MAX};

use super::protocols;
use crate::out::Failure;
use crate::values;

/// How an object is moved.
#[derive(Clone, Debug, Args)]
pub(crate) struct Moving {
    /// The protocol that moves the blocks; `outpour protocols` lists the baselines, too
    #[arg(short, long, value_name = "NAME", default_value = "auto", value_parser = protocols())]
    pub(crate) protocol: String,

    /// Limit every node, the source too, in each direction: "200 Mbit/s", "25 MB/s"
    #[arg(long, value_name = "RATE", value_parser = values::rate)]
    pub(crate) limit: Option<Rate>,

    /// Expect hosts to fail or to come and go: `auto` prefers protocols that tolerate it
    #[arg(long)]
    pub(crate) unreliable: bool,

    /// Leave room for other traffic: together fill this share of links between clusters, in percent
    ///
    /// The cast fills its part and no more, so that traffic that needs short delays finds short queues.
    /// Protocol `central` alone can do that, and needs --network. What other traffic there is, --traffic says; in
    /// `outpour sim cast` the lines `setForeground` of a script.
    #[arg(long, value_name = "PERCENT", value_parser = values::threshold)]
    pub(crate) threshold: Option<Separation>,

    /// Leave room on links for the most other traffic that there ever was, instead of a threshold
    #[arg(long, conflicts_with = "threshold")]
    pub(crate) peak: bool,

    /// Block size, a power of two [default: by object size and protocol]
    #[arg(long, value_name = "SIZE", value_parser = values::block)]
    pub(crate) block: Option<u32>,

    /// TCP connections for blocks between each pair of nodes; if these are several, messages have one
    /// more [default: by round-trip time; one in simulations]
    #[arg(long, value_name = "N")]
    #[arg(value_parser = clap::value_parser!(u8).range(1..=i64::from(CONNECTIONS_MAX)))]
    pub(crate) connections: Option<u8>,

    /// Number of blocks that coded-gossip codes together, 1 to 256
    /// [default: by block size, limit and processor speed]
    #[arg(long, value_name = "K", value_parser = clap::value_parser!(u16).range(1..=256))]
    pub(crate) batch_blocks: Option<u16>,

    /// Order in which coded-gossip moves batches [default: stream]
    #[arg(long, value_name = "NAME", value_parser = values::schedule())]
    pub(crate) schedule: Option<Schedule>,

    /// Extra packets that a source of coded-gossip sends per batch; none with schedule stream
    /// [default: 1]
    #[arg(long, value_name = "C")]
    pub(crate) slack: Option<u32>,

    /// Re-announce interval of random-block, in new blocks [default: 2]
    #[arg(long, value_name = "M")]
    #[arg(value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) map_every: Option<u32>,

    /// Threads per node that encode packets
    #[arg(long, value_name = "N", default_value_t = 1)]
    #[arg(value_parser = clap::value_parser!(u8).range(1..=ENCODERS_MAX as i64))]
    pub(crate) encoders: u8,

    /// Seed of the random choices [default: a new one each time; 1 in simulations]
    #[arg(long, value_name = "N")]
    pub(crate) seed: Option<u64>,
}

impl Moving {
    /// What is asked for, but for a plan.
    ///
    /// # Errors
    /// If there is no such protocol, or it does not take an option that was given.
    pub(crate) fn asked(&self) -> Result<Asked, Failure> {
        let protocol = self.protocol()?;
        self.check_options(protocol)?;
        let usual = GossipOptions::default();
        Ok(Asked {
            protocol,
            options: gossip::asked(&GossipOptions {
                schedule: self.schedule.unwrap_or(usual.schedule),
                slack: self.slack.unwrap_or(usual.slack),
                map_every: self.map_every.unwrap_or(usual.map_every),
            }),
            plan: None,
            limit: self.limit(),
            unreliable: self.unreliable,
            separation: self.separation(),
            block_bytes: self.block,
            batch_blocks: self.batch_blocks,
            encoders: self.encoders,
            connections: self.connections,
            seed: self.seed,
        })
    }

    /// How room is left for other traffic, if it is.
    pub(crate) fn separation(&self) -> Option<Separation> {
        match self.peak {
            true => Some(Separation::Peak),
            false => self.threshold,
        }
    }

    /// Limit of every node in each direction.
    pub(crate) fn limit(&self) -> Rate {
        self.limit.unwrap_or(Rate::UNLIMITED)
    }

    /// Refuses a protocol for which there is no plan or a superfluous one, or no network to plan on.
    ///
    /// # Errors
    /// If it is so.
    pub(crate) fn check_plan(&self, has_plan: bool, has_network: bool) -> Result<(), Failure> {
        let Some(entry) = self.protocol()? else {
            return Ok(());
        };
        let checked = outpour_terms::check_plan(entry, has_plan, has_network);
        checked.map_err(|error| Failure::Usage(error.to_string()))
    }

    /// Refuses options of other protocols than the one that was named.
    fn check_options(&self, protocol: Option<&registry::Entry>) -> Result<(), Failure> {
        let Some(entry) = protocol else {
            return Ok(());
        };
        let given = [
            ("--schedule", self.schedule.is_some(), gossip::CODED.name),
            ("--slack", self.slack.is_some(), gossip::CODED.name),
            (
                "--map-every",
                self.map_every.is_some(),
                gossip::RANDOM_BLOCK.name,
            ),
        ];
        let mut others = given
            .iter()
            .filter(|(_, given, of)| *given && *of != entry.name);
        match others.next() {
            Some((option, _, of)) => Err(Failure::Usage(format!(
                "{option} is an option of protocol `{of}`, not of `{}`",
                entry.name
            ))),
            None => Ok(()),
        }
    }

    /// The protocol; nothing if one is to be chosen.
    fn protocol(&self) -> Result<Option<&'static registry::Entry>, Failure> {
        if self.protocol == AUTO {
            return Ok(None);
        }
        let found = registry::by_name(&self.protocol).map_err(Failure::Usage)?;
        Ok(Some(found))
    }
}

/// The protocol that stands for a choice among the others.
const AUTO: &str = "auto";
