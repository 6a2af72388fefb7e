//! What happened in a play, in order.

use std::fmt;

use outpour_core::{BatchId, BlockId, Holding, NodeId, Rate, Time, Traffic, Worth};
use outpour_protocols::{Action, Coded, Event};

use crate::{Accusation, Case};

/// An event as it is put on record.
#[derive(Clone, Debug, PartialEq)]
pub enum Heard {
    /// [`Event::Start`].
    Start,
    /// [`Event::PeerUp`].
    Up(NodeId),
    /// [`Event::PeerDown`].
    Down(NodeId),
    /// [`Event::Left`].
    Left(NodeId),
    /// [`Event::Message`].
    Message(NodeId, Vec<u8>),
    /// [`Event::Arrived`].
    Arrived {
        /// The sender.
        from: NodeId,
        /// Which block.
        block: BlockId,
        /// Whether it was not here yet.
        fresh: bool,
    },
    /// [`Event::Rejected`].
    Rejected(NodeId, BlockId),
    /// [`Event::Sent`].
    Sent(NodeId, BlockId),
    /// [`Coded::Packet`].
    Packet {
        /// The sender.
        from: NodeId,
        /// Of which batch.
        batch: BatchId,
        /// What it was worth.
        worth: Worth,
        /// What is here of the batch.
        holding: Holding,
    },
    /// [`Coded::Decoded`].
    Decoded(BatchId),
    /// [`Coded::Spoiled`].
    Spoiled(BatchId),
    /// [`Coded::Sent`].
    PacketSent(NodeId, BatchId),
    /// [`Event::Achieved`].
    Achieved(NodeId, Rate),
    /// [`Event::Foreground`].
    Foreground(Vec<Traffic>),
    /// [`Event::Timer`].
    Timer(u32),
}

impl From<Event<'_>> for Heard {
    fn from(event: Event<'_>) -> Self {
        match event {
            Event::Start => Self::Start,
            Event::PeerUp(peer) => Self::Up(peer),
            Event::PeerDown(peer) => Self::Down(peer),
            Event::Left(peer) => Self::Left(peer),
            Event::Message { from, body } => Self::Message(from, body.to_vec()),
            Event::Arrived { from, block, fresh } => Self::Arrived { from, block, fresh },
            Event::Rejected { from, block } => Self::Rejected(from, block),
            Event::Sent { to, block } => Self::Sent(to, block),
            Event::Coded(Coded::Packet {
                from,
                batch,
                worth,
                holding,
            }) => Self::Packet {
                from,
                batch,
                worth,
                holding,
            },
            Event::Coded(Coded::Decoded { batch }) => Self::Decoded(batch),
            Event::Coded(Coded::Spoiled { batch }) => Self::Spoiled(batch),
            Event::Coded(Coded::Sent { to, batch }) => Self::PacketSent(to, batch),
            Event::Achieved { to, rate } => Self::Achieved(to, rate),
            Event::Foreground(traffic) => Self::Foreground(traffic.to_vec()),
            Event::Timer(timer) => Self::Timer(timer.0),
        }
    }
}

/// What a line says.
#[derive(Clone, Debug, PartialEq)]
pub enum What {
    /// The protocol was told this.
    Heard(Heard),
    /// The protocol wanted this.
    Did(Action),
}

/// One thing that happened at a node.
#[derive(Clone, Debug, PartialEq)]
pub struct Line {
    /// Where.
    pub node: NodeId,
    /// When, by the node's clock.
    pub at: Time,
    /// What.
    pub what: What,
}

/// All of a play.
#[derive(Clone, Debug)]
pub struct Record {
    /// What was played.
    pub case: &'static Case,
    /// What happened, in the order in which it was put on record.
    pub lines: Vec<Line>,
    /// What the coordinator was told.
    pub accusations: Vec<Accusation>,
}

impl Record {
    /// What a node's protocol was told, in order.
    pub fn heard(&self, node: u32) -> Vec<&Heard> {
        let lines = self.lines.iter().filter(|line| line.node.0 == node);
        let heard = lines.filter_map(|line| match &line.what {
            What::Heard(heard) => Some(heard),
            What::Did(_) => None,
        });
        heard.collect()
    }

    /// How often a node's protocol was told such a thing.
    pub fn count(&self, node: u32, wanted: impl Fn(&Heard) -> bool) -> usize {
        let heard = self.heard(node).into_iter();
        heard.filter(|heard| wanted(heard)).count()
    }

    /// Where among what a node's protocol was told the first such thing is.
    ///
    /// # Errors
    /// If there is none.
    pub fn first(&self, node: u32, wanted: &Heard) -> Result<usize, String> {
        let heard = self.heard(node);
        let first = heard.iter().position(|heard| *heard == wanted);
        first.ok_or_else(|| format!("node {node} was not told {wanted:?}"))
    }

    /// Whether one node accused another.
    pub fn accused(&self, by: u32, peer: u32) -> bool {
        let (by, peer) = (NodeId(by), NodeId(peer));
        self.accusations.contains(&Accusation { by, peer })
    }
}

/// Every line that a person needs to see what went wrong.
impl fmt::Display for Record {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for line in &self.lines {
            let ms = line.at.as_secs_f64() * 1e3;
            match &line.what {
                What::Heard(Heard::Message(from, body)) => {
                    let len = body.len();
                    writeln!(f, "{ms:9.3} ms  {}  {len} bytes from {from}", line.node)?;
                }
                What::Heard(heard) => writeln!(f, "{ms:9.3} ms  {}  {heard:?}", line.node)?,
                What::Did(Action::Send { to, body }) => {
                    let len = body.len();
                    writeln!(f, "{ms:9.3} ms  {}      {len} bytes to {to}", line.node)?;
                }
                What::Did(action) => writeln!(f, "{ms:9.3} ms  {}      {action:?}", line.node)?,
            }
        }
        Ok(())
    }
}
