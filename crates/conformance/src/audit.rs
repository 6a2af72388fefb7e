//! What must hold of every play: the lines of the contract that no single case can show.

use std::collections::{BTreeMap, BTreeSet};

use outpour_core::{BatchId, BlockId, NodeId, Time};
use outpour_protocols::Action;

use crate::record::{Heard, Line, Record, What};

/// A block or a packet that a peer is to be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Piece {
    Block(BlockId),
    Packet(BatchId),
}

/// What one node's lines so far come to.
#[derive(Default)]
struct Node {
    started: bool,
    now: Time,
    up: BTreeSet<NodeId>,
    left: BTreeSet<NodeId>,
    /// Pieces that wait for the word that they are sent.
    unsent: BTreeMap<NodeId, Vec<Piece>>,
    timers: BTreeMap<u32, Time>,
    /// Peers towards which a rate is set.
    limited: BTreeSet<NodeId>,
}

impl Record {
    /// Checks what must hold in every case.
    ///
    /// # Errors
    /// Says what the first line is that breaks the contract.
    pub(crate) fn audit(&self) -> Result<(), String> {
        let mut nodes: BTreeMap<NodeId, Node> = BTreeMap::new();
        let mut said: BTreeMap<(NodeId, NodeId), Vec<&[u8]>> = BTreeMap::new();
        for line in &self.lines {
            let node = nodes.entry(line.node).or_default();
            let checked = match &line.what {
                What::Did(action) => {
                    if let Action::Send { to, body } = action {
                        said.entry((line.node, *to)).or_default().push(body);
                    }
                    node.acts(action);
                    Ok(())
                }
                What::Heard(heard) => node.hears(line, heard, self.case.coded),
            };
            checked.map_err(|error| format!("{}: {error}: {:?}", line.node, line.what))?;
        }
        self.audit_messages(&said)
    }

    /// What came is what was said, in order and each once; some may be lost with a connection.
    fn audit_messages(&self, said: &BTreeMap<(NodeId, NodeId), Vec<&[u8]>>) -> Result<(), String> {
        let mut read: BTreeMap<(NodeId, NodeId), usize> = BTreeMap::new();
        for line in &self.lines {
            let What::Heard(Heard::Message(from, body)) = &line.what else {
                continue;
            };
            let pair = (*from, line.node);
            let words = said.get(&pair).map_or(&[][..], Vec::as_slice);
            let read = read.entry(pair).or_default();
            let rest = words.get(*read..).unwrap_or_default();
            let Some(at) = rest.iter().position(|word| *word == body) else {
                return Err(format!(
                    "a message from {from} to {} that was not said, or not after the last one",
                    line.node
                ));
            };
            *read += at + 1;
        }
        Ok(())
    }
}

impl Node {
    fn acts(&mut self, action: &Action) {
        match action {
            Action::SendBlock { to, block } => self.unsent(*to).push(Piece::Block(*block)),
            Action::SendPacket { to, batch, .. } => self.unsent(*to).push(Piece::Packet(*batch)),
            Action::SetRate { to, rate } if rate.is_unlimited() => {
                self.limited.remove(to);
            }
            Action::SetRate { to, .. } => {
                self.limited.insert(*to);
            }
            Action::SetTimer { timer, at } => {
                self.timers.insert(timer.0, *at);
            }
            _ => {}
        }
    }

    fn unsent(&mut self, to: NodeId) -> &mut Vec<Piece> {
        self.unsent.entry(to).or_default()
    }

    fn hears(&mut self, line: &Line, heard: &Heard, coded: bool) -> Result<(), &'static str> {
        if line.at < self.now {
            return Err("time goes back");
        }
        self.now = line.at;
        if (*heard == Heard::Start) == self.started {
            return Err("the start is not the first event, or comes twice");
        }
        self.started = true;
        match heard {
            Heard::Up(peer) if self.left.contains(peer) => Err("up after it has left"),
            Heard::Up(peer) if !self.up.insert(*peer) => Err("up twice"),
            Heard::Down(peer) if !self.up.remove(peer) => Err("down though it was not up"),
            Heard::Down(peer) => {
                self.unsent.remove(peer);
                self.limited.remove(peer);
                Ok(())
            }
            Heard::Left(peer) if !self.left.insert(*peer) => Err("left twice"),
            // Decoding takes its time, and a batch may spoil long after the packet came.
            Heard::Arrived { .. } | Heard::Rejected(..) if coded => Ok(()),
            Heard::Message(from, _)
            | Heard::Rejected(from, _)
            | Heard::Arrived { from, .. }
            | Heard::Packet { from, .. }
                if !self.up.contains(from) =>
            {
                Err("from a peer that is not up")
            }
            Heard::Sent(to, block) => self.sent(*to, Piece::Block(*block)),
            Heard::PacketSent(to, batch) => self.sent(*to, Piece::Packet(*batch)),
            Heard::Achieved(to, _) if !self.limited.contains(to) => {
                Err("of a peer towards which no rate is set")
            }
            Heard::Timer(timer) => match self.timers.remove(timer) {
                Some(due) if due <= line.at => Ok(()),
                Some(_) => Err("a timer that is not due"),
                None => Err("a timer that is not set"),
            },
            _ => Ok(()),
        }
    }

    fn sent(&mut self, to: NodeId, piece: Piece) -> Result<(), &'static str> {
        let unsent = self.unsent(to);
        match unsent.iter().position(|other| *other == piece) {
            Some(at) => {
                unsent.remove(at);
                Ok(())
            }
            None => Err("sent, though that was not asked for on this connection"),
        }
    }
}
