//! The terms of a cast: everything that its nodes have to agree on before the first block moves.
//!
//! [`decide`] makes them of [`Facts`]: what is known of the object, the members and the network,
//! and what the user asked for. It is a pure function, and the only place where such things are
//! decided: a simulated cast and a real one that know the same come to the same terms. The agent
//! sends them to every node, and each makes its [`Setup`] of them.

pub mod auto;
pub mod batching;
mod coding;
mod error;
mod manifest;
pub mod placement;
mod plan;

use std::sync::Arc;

use outpour_core::manifest::BlockSize;
use outpour_core::{Batches, BlockSet, Bytes, NodeId, Plan, Rate, Separation};
use outpour_protocols::registry::{Configured, EncodedOptions, Entry, PlanFrom};
use outpour_protocols::{Member, Role, Setup, central, chain, gossip, tree};
use serde::{Deserialize, Serialize};

use auto::{Paths, Situation};
use batching::Batching;
use placement::Placement;

pub use coding::{Coding, ENCODERS_MAX, kept_batches};
pub use error::{DecideError, TermsError};
pub use manifest::ManifestShape;
pub use plan::{PLAN_BYTES_MAX, check_asked, check_plan};

/// Why a cast goes by a protocol that the user named.
pub const ASKED_FOR: &str = "asked for";

/// What is known before a cast begins.
#[derive(Clone, Debug)]
pub struct Facts {
    /// Size of the object.
    pub size: Bytes,
    /// The members, indexed by node.
    pub members: Vec<Member>,
    /// Where the members are in a described network, if one was described.
    pub placement: Option<Placement>,
    /// Bytes of blocks that a core of a node multiplies and adds in a second.
    pub coding_speed: Rate,
    /// A seed for the protocols' random choices, unless the user asked for one.
    pub seed: u64,
    /// What the user asked for.
    pub asked: Asked,
}

/// What the user of a cast asked for; what is not asked for is decided.
#[derive(Clone, Debug)]
pub struct Asked {
    /// The protocol.
    pub protocol: Option<&'static Entry>,
    /// Options of protocols, by name; those of the protocol that it comes to are used.
    pub options: Vec<(&'static str, EncodedOptions)>,
    /// A plan for the members, to be executed by a protocol that takes one.
    pub plan: Option<Plan>,
    /// Limit of every node in each direction.
    pub limit: Rate,
    /// Whether hosts are expected to fail or to come and go.
    pub unreliable: bool,
    /// How room is left on links between clusters for latency-sensitive traffic; `None` if none has to be.
    pub separation: Option<Separation>,
    /// Bytes of a block.
    pub block_bytes: Option<u32>,
    /// How many blocks are coded together.
    pub batch_blocks: Option<u16>,
    /// How many threads of a node make packets.
    pub encoders: u8,
    /// Connections per pair of nodes; `None` goes by the path's delay.
    pub connections: Option<u8>,
    /// Seed of the protocols' random choices.
    pub seed: Option<u64>,
}

impl Default for Asked {
    fn default() -> Self {
        Self {
            protocol: None,
            options: Vec::new(),
            plan: None,
            limit: Rate::UNLIMITED,
            unreliable: false,
            separation: None,
            block_bytes: None,
            batch_blocks: None,
            encoders: 1,
            connections: None,
            seed: None,
        }
    }
}

/// What is agreed.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Terms {
    /// How blocks travel.
    pub protocol: Configured,
    /// Why in this way, in one clause.
    pub why: String,
    /// The members, indexed by node.
    pub members: Vec<Member>,
    /// Bytes of a block of the object but the last of a file.
    pub block_bytes: u32,
    /// How the object is coded, if the protocol codes.
    pub coding: Option<Coding>,
    /// The plan to execute, if the protocol executes one.
    #[serde(with = "plan::shared")]
    pub plan: Option<Arc<Plan>>,
    /// Limit of every node in each direction.
    pub limit: Rate,
    /// Connections per pair of nodes; `None` goes by the path's delay.
    pub connections: Option<u8>,
    /// Seed of the transfers' randomness.
    pub seed: u64,
}

/// Terms, and what people should read about how it came to them.
#[derive(Clone, Debug)]
pub struct Decision {
    /// The terms.
    pub terms: Terms,
    /// Something about the plan.
    pub notice: Option<String>,
    /// What the size of batches follows from, if the object is coded.
    pub batching: Option<Batching>,
}

impl Decision {
    /// Why the terms are these, for people.
    pub fn explain(&self, asked: &Asked) -> String {
        let why = &self.terms.why;
        match self.batching.filter(|_| asked.batch_blocks.is_none()) {
            Some(batching) => format!("{why}; {batching}"),
            None => why.clone(),
        }
    }
}

/// Decides on the terms of a cast. Takes as long as the planner does if a plan has to be made.
///
/// # Errors
/// If what the user asked for cannot be had.
pub fn decide(facts: &Facts) -> Result<Decision, DecideError> {
    let asked = &facts.asked;
    check_asked(asked, facts.has_relays())?;
    let (entry, why) = protocol(facts)?;
    check_plan(entry, asked.plan.is_some(), facts.placement.is_some())?;
    let block_bytes = facts.block_bytes(entry);
    let blocks = facts.blocks(entry);
    let batching = facts.batching(entry);
    let coding = match &batching {
        Some(batching) => {
            let coding = Coding {
                batch_blocks: batching.blocks,
                encoders: asked.encoders,
            };
            coding.batches(entry, blocks, block_bytes)?;
            Some(coding)
        }
        None => None,
    };
    let (plan, notice) = plan::make(entry, facts)?;
    let options = options(entry, facts);
    let name = entry.name;
    let protocol = entry.with(options);
    let terms = Terms {
        protocol: protocol.ok_or(DecideError::Options { protocol: name })?,
        why,
        members: facts.members.clone(),
        block_bytes,
        coding,
        plan: plan.map(Arc::new),
        limit: asked.limit,
        connections: asked.connections,
        seed: asked.seed.unwrap_or(facts.seed),
    };
    Ok(Decision {
        terms,
        notice,
        batching,
    })
}

/// What a protocol is told: what the user asked for, or else what follows from the network.
fn options(entry: &Entry, facts: &Facts) -> EncodedOptions {
    let mut asked = facts.asked.options.iter();
    match (
        asked.find(|(name, _)| *name == entry.name),
        entry.plan,
        &facts.placement,
    ) {
        (Some((_, options)), ..) => options.clone(),
        (None, PlanFrom::Network { describe, .. }, Some(placement)) => describe(
            placement.network(),
            placement.nodes(),
            facts.asked.separation,
        ),
        _ => EncodedOptions::default(),
    }
}

/// The protocol of a cast, and why it is that one.
fn protocol(facts: &Facts) -> Result<(&'static Entry, String), DecideError> {
    let asked = &facts.asked;
    if let Some(entry) = asked.protocol {
        return Ok((entry, ASKED_FOR.to_owned()));
    }
    if asked.plan.is_some() {
        return Ok((&tree::TREE, "there is a plan".to_owned()));
    }
    if asked.separation.is_some() {
        let why = "it alone leaves room for other traffic".to_owned();
        return Ok((&central::ENTRY, why));
    }
    let coded = &gossip::CODED;
    let usual = &chain::ENTRY;
    let network = facts.placement.as_ref().map(Placement::network);
    let mut clusters: Vec<u32> = facts.members.iter().map(|it| it.cluster).collect();
    clusters.sort_unstable();
    clusters.dedup();
    let choice = auto::choose(Situation {
        sources: facts
            .members
            .iter()
            .filter(|member| member.is_source())
            .count(),
        receivers: facts.receivers(),
        size: facts.size,
        blocks: facts.blocks(usual),
        coded_blocks: facts.blocks(coded),
        clusters: clusters.len(),
        network: network.is_some(),
        paths: network.map_or_else(|| Paths::limited(asked.limit), Paths::of),
        relays: facts.has_relays(),
        unreliable: asked.unreliable,
        batching: facts.batching(coded),
    });
    Ok((choice.entry, choice.why))
}

impl Facts {
    /// How many members are to get the object.
    fn receivers(&self) -> usize {
        receivers(&self.members)
    }

    /// Whether some member wants nothing of the object.
    fn has_relays(&self) -> bool {
        self.members.iter().any(|member| member.role == Role::Relay)
    }

    /// The highest rate at which a node sends, if anything is known of it.
    pub fn fastest(&self) -> Rate {
        let network = self.placement.as_ref().map(Placement::network);
        network.map_or(self.asked.limit, auto::fastest)
    }

    /// Bytes of a block if the object goes by this protocol.
    fn block_bytes(&self, entry: &Entry) -> u32 {
        let size = match self.asked.block_bytes {
            Some(bytes) => BlockSize::Given(bytes),
            None => (entry.block_size)(self.receivers()),
        };
        size.bytes(self.size)
    }

    /// How many blocks the object has if it goes by this protocol; as many as there are files more
    /// at most, where it is a tree.
    fn blocks(&self, entry: &Entry) -> u32 {
        let block = u64::from(self.block_bytes(entry)).max(1);
        u32::try_from(self.size.0.div_ceil(block)).unwrap_or(u32::MAX)
    }

    /// How many blocks are coded together: as the user says, or as many as processors keep up with.
    fn batching(&self, entry: &Entry) -> Option<Batching> {
        let traits = entry.coding?;
        let usual = (traits.batch_blocks)(self.block_bytes(entry));
        let mut batching = Batching::new(usual, self.coding_speed, self.fastest());
        if let Some(blocks) = self.asked.batch_blocks {
            batching.blocks = blocks;
        }
        Some(batching)
    }
}

fn receivers(members: &[Member]) -> usize {
    let receivers = members
        .iter()
        .filter(|member| member.role == Role::Receiver);
    receivers.count()
}

/// Whether the speed of processors matters for what a cast comes to, if it goes by the protocol that
/// was asked for, or by one that is to be chosen.
pub fn may_code(protocol: Option<&Entry>) -> bool {
    protocol.is_none_or(|entry| entry.coding.is_some())
}

impl Terms {
    /// Terms of a cast whose members only have to move blocks, by a protocol as it is by default.
    pub fn new(protocol: Configured, members: Vec<Member>, seed: u64) -> Self {
        Self {
            protocol,
            why: ASKED_FOR.to_owned(),
            members,
            block_bytes: 0,
            coding: None,
            plan: None,
            limit: Rate::UNLIMITED,
            connections: None,
            seed,
        }
    }

    /// Refuses terms that came from elsewhere and cannot be.
    ///
    /// # Errors
    /// If `me` is no member, or plan or coding do not fit protocol and members.
    pub fn check(&self, me: NodeId) -> Result<(), TermsError> {
        if me.index() >= self.members.len() {
            return Err(TermsError::Member);
        }
        let entry = self.protocol.entry();
        if !entry.selective && self.members.iter().any(|member| member.role == Role::Relay) {
            let protocol = entry.name;
            return Err(TermsError::Relays { protocol });
        }
        plan::check_agreed(entry, self.plan.as_deref(), &self.members)?;
        let (protocol, with) = (entry.name, self.coding.is_some());
        if entry.coding.is_some() != with {
            return Err(TermsError::Coding { protocol, with });
        }
        Ok(())
    }

    /// How many members are to get the object.
    pub fn receivers(&self) -> usize {
        receivers(&self.members)
    }

    /// How the object's blocks are grouped, if they are coded. A manifest's never are: it is small.
    ///
    /// # Errors
    /// If that would take too much memory.
    pub fn batches(&self, blocks: u32, block_bytes: u32) -> Result<Option<Batches>, TermsError> {
        let batches = |coding: Coding| coding.batches(self.protocol.entry(), blocks, block_bytes);
        self.coding.map(batches).transpose()
    }

    /// What a node knows when its part in a transfer begins, with the blocks in `have` out of all
    /// that there are, of which it is to get those in `want`, grouped into `batches` if they are
    /// coded.
    pub fn setup(
        &self,
        me: NodeId,
        have: BlockSet,
        want: BlockSet,
        block_bytes: u32,
        batches: Option<Batches>,
    ) -> Setup {
        Setup {
            me,
            members: self.members.clone(),
            block_bytes,
            have,
            want,
            seed: self.seed,
            plan: self.plan.clone(),
            batches,
        }
    }
}
