//! Mending: how a node gets what the usual way does not bring any more.
//!
//! A push loses blocks when a node dies that was to forward them. A node that misses a block for too
//! long asks a few others what they have, and pulls the blocks it wants from nodes that have them, each
//! from one at a time. It asks others the next time, so in the end it finds every block that a
//! reachable node has. Protocols own a [`Mender`], tell it what happens, and send its errands along
//! with what they push.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use outpour_core::blocks::WireBlocks;
use outpour_core::{BlockId, BlockSet, NodeId, Time};
use serde::{Deserialize, Serialize};

use crate::{Action, Actions};

/// How many peers are asked at once.
const ASKED_MAX: usize = 16;
/// How long until others are asked.
const ASK_EVERY: Duration = Duration::from_secs(2);
/// How many blocks one peer may owe; it is told the next ones when half of these have come.
pub(crate) const OWED_MAX: usize = 16;
/// How many errands one peer may have here at most.
const ERRANDS_MAX: usize = 4 * OWED_MAX;
/// How long a block that was promised may take, unless blocks are known to take longer.
const PROMISE_MAX: Duration = Duration::from_secs(3);
/// The same in times of the usual gap between blocks.
const PROMISE_GAPS: f64 = 4.0 * OWED_MAX as f64;

/// What menders say to each other, inside the messages of the protocol that owns them.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum MendMessage {
    /// What do you have?
    Ask,
    /// This.
    Offer { have: WireBlocks },
    /// Then send me these.
    Pull { blocks: Vec<BlockId> },
}

/// How a protocol sends what its mender says.
pub(crate) type Wrap<'a> = dyn FnMut(NodeId, MendMessage, &mut Actions) + 'a;

/// The part of a node that mends.
#[derive(Debug)]
pub(crate) struct Mender {
    me: NodeId,
    /// Blocks to pull from nodes that have them.
    wanted: BlockSet,
    asked: Time,
    /// Where the next round of questions begins.
    turn: usize,
    /// The blocks of the nodes that were asked last.
    offers: BTreeMap<NodeId, BlockSet>,
    /// Blocks promised: by which node, and since when.
    owed: BTreeMap<BlockId, (NodeId, Time)>,
    /// Peers that offered blocks and did not send them: they are asked for what nobody else offers.
    broke: BTreeSet<NodeId>,
    /// Blocks promised to others.
    errands: BTreeMap<NodeId, VecDeque<BlockId>>,
}

/// What a mender has to know of its node.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Around<'a> {
    /// Nodes that can be talked to.
    pub(crate) up: &'a [bool],
    /// Nodes that are out for good.
    pub(crate) gone: &'a [bool],
    /// What the node has.
    pub(crate) have: &'a BlockSet,
    /// Seconds between blocks, as far as known.
    pub(crate) gap: f64,
}

impl Mender {
    pub(crate) fn new(me: NodeId, blocks: u32) -> Self {
        Self {
            me,
            wanted: BlockSet::new(blocks),
            asked: Time::ZERO,
            turn: me.index(),
            offers: BTreeMap::new(),
            owed: BTreeMap::new(),
            broke: BTreeSet::new(),
            errands: BTreeMap::new(),
        }
    }

    // ---- getting

    /// Looks at the clock. `missed` are the blocks that are long overdue.
    pub(crate) fn on_tick(
        &mut self,
        now: Time,
        missed: Option<BlockSet>,
        around: Around<'_>,
        wrap: &mut Wrap<'_>,
        out: &mut Actions,
    ) {
        debug_assert!(around.gap >= 0.0);
        debug_assert!(self.asked <= now);
        let patience = PROMISE_MAX.max(Duration::from_secs_f64(PROMISE_GAPS * around.gap));
        let broken = |(_, (peer, since)): (&BlockId, &(NodeId, Time))| {
            (now.since(*since) > patience).then_some(*peer)
        };
        while let Some(peer) = self.owed.iter().find_map(broken) {
            self.forget(peer);
            self.broke.insert(peer);
        }
        let Some(missed) = missed else { return };
        self.wanted.union(&missed);
        if self.owed.is_empty() {
            // Nothing came of what others offered.
            let last = self.offers.keys().find(|peer| self.broke.contains(peer));
            if let Some(peer) = last.copied() {
                self.pull(now, peer, around, wrap, out);
                self.offers.remove(&peer);
            }
        }
        if self.owed.is_empty() && now.since(self.asked) >= ASK_EVERY {
            self.ask(now, around, wrap, out);
        }
        self.check(now, around);
    }

    /// What holds whenever the protocol has told all that happened.
    fn check(&self, now: Time, around: Around<'_>) {
        debug_assert!(self.turn < around.up.len());
        debug_assert!(self.offers.len() <= 2 * ASKED_MAX);
        debug_assert!(!self.offers.contains_key(&self.me));
        debug_assert!(!self.errands.contains_key(&self.me));
        debug_assert!(!self.wanted.iter().any(|block| around.have.contains(block)));
        if !cfg!(debug_assertions) {
            return;
        }
        for (block, (peer, since)) in &self.owed {
            debug_assert!(!around.have.contains(*block), "{block} is here, and owed");
            debug_assert!(*peer != self.me);
            debug_assert!(*since <= now);
        }
    }

    /// How many blocks a peer owes.
    fn owed_by(&self, peer: NodeId) -> usize {
        self.owed.values().filter(|(who, _)| *who == peer).count()
    }

    /// Asks the next few others; nodes that are not up are called, and asked when they are.
    fn ask(&mut self, now: Time, around: Around<'_>, wrap: &mut Wrap<'_>, out: &mut Actions) {
        debug_assert_eq!(around.up.len(), around.gone.len());
        debug_assert!(!around.up[self.me.index()], "a node is no peer of its own");
        self.asked = now;
        self.offers.clear();
        let members = around.up.len();
        let mut asked = 0;
        for step in 1..=members {
            let index = (self.turn + step) % members;
            let peer = NodeId(index as u32);
            if peer == self.me || around.gone[index] {
                continue;
            }
            if around.up[index] {
                wrap(peer, MendMessage::Ask, out);
            } else {
                out.push(Action::Connect(peer));
            }
            asked += 1;
            if asked == ASKED_MAX {
                self.turn = index;
                break;
            }
        }
    }

    fn pull(
        &mut self,
        now: Time,
        peer: NodeId,
        around: Around<'_>,
        wrap: &mut Wrap<'_>,
        out: &mut Actions,
    ) {
        let owes = self.owed_by(peer);
        let Some(offer) = self.offers.get(&peer).filter(|_| owes <= OWED_MAX / 2) else {
            return;
        };
        let mut blocks = Vec::new();
        let len = self.wanted.len();
        // Nodes that miss the same begin at different places, and can give to each other sooner.
        let start = (u64::from(self.me.0) * 2_654_435_761 % u64::from(len.max(1))) as BlockId;
        for (from, until) in [(start, len), (0, start)] {
            let mut cursor = from;
            while blocks.len() + owes < OWED_MAX
                && let Some(block) = self.wanted.next_present(cursor)
                && block < until
            {
                let useful = offer.contains(block) && !around.have.contains(block);
                if useful && !self.owed.contains_key(&block) {
                    blocks.push(block);
                }
                cursor = block + 1;
            }
        }
        if !blocks.is_empty() {
            self.owed
                .extend(blocks.iter().map(|block| (*block, (peer, now))));
            debug_assert_eq!(
                self.owed_by(peer),
                owes + blocks.len(),
                "one is pulled twice"
            );
            debug_assert!(self.owed_by(peer) <= OWED_MAX);
            wrap(peer, MendMessage::Pull { blocks }, out);
        }
    }

    /// The usual way brings something again: beyond what is promised nothing is pulled, as it would
    /// come twice. What is overdue still will be named again.
    pub(crate) fn rest(&mut self) {
        self.wanted = BlockSet::new(self.wanted.len());
        self.offers.clear();
    }

    /// A block has arrived from any node; returns whether any node promised it.
    pub(crate) fn on_arrived(
        &mut self,
        now: Time,
        block: BlockId,
        around: Around<'_>,
        wrap: &mut Wrap<'_>,
        out: &mut Actions,
    ) -> bool {
        self.wanted.remove(block);
        let Some((peer, _)) = self.owed.remove(&block) else {
            return false;
        };
        // It keeps its promises: the rest has more time.
        self.broke.remove(&peer);
        let theirs = self.owed.values_mut().filter(|(who, _)| *who == peer);
        theirs.for_each(|(_, since)| *since = now);
        self.pull(now, peer, around, wrap, out);
        true
    }

    fn forget(&mut self, peer: NodeId) {
        self.offers.remove(&peer);
        self.owed.retain(|_, (who, _)| *who != peer);
    }

    // ---- giving

    /// The next block that a peer was promised.
    pub(crate) fn next_errand(&mut self, peer: NodeId) -> Option<BlockId> {
        let errands = self.errands.get_mut(&peer)?;
        let block = errands.pop_front();
        debug_assert!(errands.len() < ERRANDS_MAX);
        if errands.is_empty() {
            self.errands.remove(&peer);
        }
        block
    }

    // ---- words

    /// Takes a message; `Err` is an offence.
    pub(crate) fn on_message(
        &mut self,
        now: Time,
        from: NodeId,
        message: MendMessage,
        around: Around<'_>,
        wrap: &mut Wrap<'_>,
        out: &mut Actions,
    ) -> Result<(), &'static str> {
        debug_assert!(from != self.me);
        match message {
            MendMessage::Ask => {
                let have = around.have.to_wire();
                wrap(from, MendMessage::Offer { have }, out);
            }
            MendMessage::Offer { have } => {
                let offer = BlockSet::from_wire(&have, around.have.len())
                    .ok_or("offers blocks the object lacks")?;
                if self.offers.len() < 2 * ASKED_MAX && !self.wanted.is_empty() {
                    self.offers.insert(from, offer);
                    if !self.broke.contains(&from) {
                        self.pull(now, from, around, wrap, out);
                    }
                }
            }
            MendMessage::Pull { blocks } => {
                if blocks.iter().any(|block| *block >= around.have.len()) {
                    return Err("pulls blocks the object lacks");
                }
                let errands = self.errands.entry(from).or_default();
                for block in blocks {
                    // What it was offered may be lost since; it will ask again.
                    let known = errands.len() >= ERRANDS_MAX || errands.contains(&block);
                    if around.have.contains(block) && !known {
                        errands.push_back(block);
                    }
                }
            }
        }
        Ok(())
    }

    /// A peer can be talked to.
    pub(crate) fn on_up(&self, peer: NodeId, wrap: &mut Wrap<'_>, out: &mut Actions) {
        debug_assert!(
            self.owed_by(peer) == 0,
            "what it owed is forgotten with the link"
        );
        debug_assert!(!self.offers.contains_key(&peer));
        debug_assert!(!self.errands.contains_key(&peer));
        if !self.wanted.is_empty() {
            wrap(peer, MendMessage::Ask, out);
        }
    }

    /// A peer cannot be talked to any more.
    pub(crate) fn on_down(&mut self, peer: NodeId) {
        self.forget(peer);
        self.errands.remove(&peer);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    const ME: NodeId = NodeId(0);
    const PEER: NodeId = NodeId(1);

    /// What a mender said, without the wrapping.
    type Said = Vec<(NodeId, MendMessage)>;

    struct Node {
        mender: Mender,
        have: BlockSet,
        up: Vec<bool>,
        said: Said,
        out: Actions,
    }

    impl Node {
        fn new(have: BlockSet, members: usize) -> Self {
            Self {
                mender: Mender::new(ME, have.len()),
                have,
                up: (0..members).map(|node| node != ME.index()).collect(),
                said: Vec::new(),
                out: Actions::default(),
            }
        }

        fn act<T>(
            &mut self,
            work: impl FnOnce(&mut Mender, Around<'_>, &mut Wrap<'_>, &mut Actions) -> T,
        ) -> (T, Said) {
            let gone = vec![false; self.up.len()];
            let around = Around {
                up: &self.up,
                gone: &gone,
                have: &self.have,
                gap: 0.1,
            };
            let said = &mut self.said;
            let mut wrap = |to, message, _: &mut Actions| said.push((to, message));
            let done = work(&mut self.mender, around, &mut wrap, &mut self.out);
            (done, std::mem::take(&mut self.said))
        }

        fn tick(&mut self, now: Time, missed: Option<BlockSet>) -> Said {
            self.act(|it, around, wrap, out| it.on_tick(now, missed, around, wrap, out))
                .1
        }

        fn hear(&mut self, now: Time, message: MendMessage) -> (Result<(), &'static str>, Said) {
            self.act(|it, around, wrap, out| it.on_message(now, PEER, message, around, wrap, out))
        }
    }

    fn seconds(seconds: u64) -> Time {
        Time(seconds * 1_000_000_000)
    }

    fn pulled(said: &Said) -> Vec<BlockId> {
        match said.as_slice() {
            [(PEER, MendMessage::Pull { blocks })] => blocks.clone(),
            _ => Vec::new(),
        }
    }

    #[test]
    fn who_misses_something_asks_a_few_and_pulls_a_few() {
        let mut node = Node::new(BlockSet::new(100), 40);
        let asked = node.tick(seconds(10), Some(BlockSet::full(100)));
        assert_eq!(asked.len(), ASKED_MAX);
        let have = BlockSet::full(100).to_wire();
        let (_, said) = node.hear(seconds(10), MendMessage::Offer { have });
        assert_eq!(pulled(&said), (0..OWED_MAX as u32).collect::<Vec<_>>());
        // A promise that is not kept is forgotten, and others are asked.
        assert!(node.tick(seconds(15), Some(BlockSet::full(100))).is_empty());
        let asked = node.tick(seconds(60), Some(BlockSet::full(100)));
        assert_eq!(asked.len(), ASKED_MAX);
        assert_eq!(asked[0].0, NodeId(ASKED_MAX as u32 + 1));
    }

    #[test]
    fn who_gets_things_the_usual_way_again_pulls_no_more() {
        let mut node = Node::new(BlockSet::new(100), 2);
        let all = || Some(BlockSet::full(100));
        node.tick(seconds(10), all());
        let offer = || MendMessage::Offer {
            have: BlockSet::full(100).to_wire(),
        };
        let (_, said) = node.hear(seconds(10), offer());
        assert_eq!(pulled(&said).len(), OWED_MAX);
        node.mender.rest();
        for block in 0..OWED_MAX as u32 {
            let arrived =
                |it: &mut Mender, around: Around<'_>, wrap: &mut Wrap<'_>, out: &mut _| {
                    it.on_arrived(seconds(11), block, around, wrap, out)
                };
            let (promised, said) = node.act(arrived);
            assert!(promised && said.is_empty());
        }
        assert!(pulled(&node.hear(seconds(11), offer()).1).is_empty());
        // What is overdue later is asked for as before.
        assert_eq!(node.tick(seconds(20), all()).len(), 1);
        assert_eq!(pulled(&node.hear(seconds(20), offer()).1).len(), OWED_MAX);
    }

    #[test]
    fn nobody_is_owed_more_than_the_bound() {
        let mut node = Node::new(BlockSet::full(1000), 2);
        for first in 0..20 {
            let blocks = (first * 50..first * 50 + 50).collect();
            let (said, _) = node.hear(seconds(1), MendMessage::Pull { blocks });
            assert_eq!(said, Ok(()));
        }
        let errands = std::iter::from_fn(|| node.mender.next_errand(PEER)).count();
        assert_eq!(errands, ERRANDS_MAX);
    }

    #[test]
    fn blocks_that_are_none_are_an_offence() {
        let mut node = Node::new(BlockSet::full(10), 2);
        let (said, _) = node.hear(seconds(1), MendMessage::Pull { blocks: vec![10] });
        assert!(said.is_err());
        let have = BlockSet::full(11).to_wire();
        assert!(
            node.hear(seconds(1), MendMessage::Offer { have })
                .0
                .is_err()
        );
    }
}
