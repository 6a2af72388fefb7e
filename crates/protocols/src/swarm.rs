//! `swarm`: a mesh in which the receivers ask for blocks.
//!
//! Nodes announce their blocks to their neighbours and request what they lack, the rarest first, where
//! an answer is expected soonest. A source gives each block once before it gives any twice:
//! until then it does not announce its blocks, and its neighbours ask it for any block. So its outgoing
//! rate carries no block twice while there is one that no other node could pass on. Several sources
//! begin with different parts, and each tells the others what it gives. Where there is only one node
//! to give to, none of this is of use.
//!
//! The number of requests under way follows the measured rate and delay, over all and for each neighbour.
//! A neighbour that falls silent, or takes far longer than it used to or than others do, loses its requests to
//! others, and is asked for a single block until it delivers. One that says that it has everything, and sends
//! nothing, costs little: of what was never delivered by it few requests count, and what it alone says
//! that it has the source gives all the same. When everything
//! missing has been asked for, late blocks are asked for a second time, and the loser cancelled.
//!
//! Nodes say what they want. A relay, which wants nothing, takes what its neighbours lack, as any
//! node does that has use for a block, and no more once they have all.

mod check;
mod download;
#[cfg(test)]
mod late_tests;
mod neighbour;
mod recent;
mod seeding;
mod topology;
mod upload;

use std::time::Duration;

use outpour_core::blocks::WireBlocks;
use outpour_core::{BlockId, BlockSet, NodeId, Time};
use rand_core::{RngCore, SeedableRng};
use rand_pcg::Pcg64Mcg;
use serde::{Deserialize, Serialize};

use crate::promise::{Promise, Supply};
use crate::registry::{Entry, NO_OPTIONS, PlanFrom, USUAL_BLOCKS};
use crate::{Action, Actions, Event, Member, Protocol, Setup, TimerId};
use download::{Downloads, PER_NEIGHBOUR_MAX};
use neighbour::{Neighbour, Neighbours, Wanted};
use seeding::Share;
use upload::Uploads;

/// The registry's line.
pub const ENTRY: Entry = Entry {
    name: "swarm",
    about: "receivers request blocks from their neighbours, the rarest first",
    baseline: false,
    plan: PlanFrom::Nowhere,
    selective: true,
    coding: None,
    block_size: USUAL_BLOCKS,
    takes: NO_OPTIONS,
    // A source gives a block before it hears that a node has it from an older copy, and when all that
    // is missing is asked for, it is asked for twice; small objects are from the start.
    promise: PROMISE,
    build: |setup, _| Box::new(Swarm::new(Kind::Swarm, setup)) as Box<dyn Protocol>,
};

/// See [`ENTRY`].
pub(crate) const PROMISE: Promise = Promise {
    copies: 1,
    ahead: download::AGAIN_MAX as u32,
    turn: download::WINDOW_MIN as u32,
    pulled: 0,
    supply: Supply::Anybody,
    once_per_cluster: false,
};

/// Who is asked, and who is served first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// All that have something are asked, and served in turn.
    Swarm,
    /// A few are asked at a time, and served by weight, see [`push`](crate::push).
    Push,
}

/// How many more neighbours are called when none has anything new for a while.
const CALLS_MORE: usize = 3;
const BORED_AFTER: Duration = Duration::from_secs(3);
/// How often clocks are looked at.
const TICK: Duration = Duration::from_millis(250);
/// New blocks are announced together, after at most this long.
const ANNOUNCE_MAX: Duration = Duration::from_millis(250);
const ANNOUNCE_MIN: Duration = Duration::from_millis(1);
const _: () = assert!(ANNOUNCE_MIN.as_nanos() <= ANNOUNCE_MAX.as_nanos());

/// How often a neighbour says what it has as a set while a link lasts: at first, when it gives each block once and
/// lets this node request all the same, and when it ends that.
const BITFIELDS_MAX: u32 = 3;
/// What a neighbour did that named such blocks.
const UNKNOWN: &str = "named blocks the object lacks";
const TICKER: TimerId = TimerId(0);
const ANNOUNCER: TimerId = TimerId(1);

#[derive(Serialize, Deserialize)]
enum Message {
    /// What the sender has and what it wants; of a source that is `seeding` no node needs to know
    /// what it has.
    Bitfield {
        have: WireBlocks,
        want: WireBlocks,
        seeding: bool,
    },
    /// Blocks the sender got since it last spoke; between sources that seed, blocks it gave.
    Have { blocks: Vec<BlockId> },
    /// Send me these.
    Request { blocks: Vec<BlockId> },
    /// Of these not, if they are not on their way.
    Cancel { blocks: Vec<BlockId> },
    /// To a seeding source: send me any `blocks` blocks more.
    Ask { blocks: u32 },
    /// From a source that ends seeding, if others have the blocks, too: these are on their way.
    Given { blocks: WireBlocks },
    /// These will not come.
    Refuse { blocks: Vec<BlockId> },
    /// Your requests are not forgotten.
    Alive,
}

/// One node of the mesh.
pub struct Swarm {
    setup: Setup,
    have: BlockSet,
    /// What is wanted here, or of a relay what its neighbours lack, and not here.
    lacking: BlockSet,
    neighbours: Neighbours,
    /// Members that left or broke the protocol.
    gone: Vec<bool>,
    /// The nodes that this node calls.
    called: Vec<bool>,
    downloads: Downloads,
    uploads: Uploads,
    /// Blocks not yet announced.
    news: Vec<BlockId>,
    bored_since: Time,
    ticking: bool,
    announcing: bool,
    random: Pcg64Mcg,
}

impl Swarm {
    pub(crate) fn new(kind: Kind, setup: Setup) -> Self {
        let members = setup.members.len();
        let blocks = setup.have.len();
        let mut lacking = setup.want.clone();
        lacking.subtract(&setup.have);
        Self {
            have: setup.have.clone(),
            lacking,
            neighbours: Neighbours::default(),
            gone: vec![false; members],
            called: vec![false; members],
            downloads: Downloads::new(blocks, kind),
            uploads: Uploads::new(blocks, seeds(&setup), kind),
            news: Vec::new(),
            bored_since: Time::ZERO,
            ticking: false,
            announcing: false,
            random: Pcg64Mcg::seed_from_u64(setup.seed ^ u64::from(setup.me.0) << 32),
            setup,
        }
    }

    // ---- choosing peers

    fn start(&mut self, now: Time, out: &mut Actions) {
        self.bored_since = now;
        let setup = &self.setup;
        let mut nodes = topology::neighbours(&setup.members, setup.me, setup.seed);
        if self.uploads.is_seeding() {
            // Each has to hear what the others give.
            let all = (0..setup.members.len() as u32).map(NodeId);
            let fellow =
                |node: &NodeId| *node != setup.me && setup.members[node.index()].is_source();
            nodes.extend(all.filter(fellow));
        }
        for node in nodes {
            self.call(node, out);
        }
        self.tick_on(now, out);
    }

    /// Calls some members not called yet, at random.
    fn call_more(&mut self, out: &mut Actions) {
        let mut candidates: Vec<NodeId> = (0..self.setup.members.len() as u32)
            .map(NodeId)
            .filter(|node| *node != self.setup.me && !self.neighbours.contains(*node))
            .filter(|node| !self.gone[node.index()] && !self.called[node.index()])
            .collect();
        for _ in 0..CALLS_MORE.min(candidates.len()) {
            let index = self.random.next_u32() as usize % candidates.len();
            let node = candidates.swap_remove(index);
            self.call(node, out);
        }
    }

    fn call(&mut self, node: NodeId, out: &mut Actions) {
        debug_assert!(node != self.setup.me, "a node calls itself");
        debug_assert!(!self.gone[node.index()], "{node} is gone");
        debug_assert!(!self.called[node.index()], "{node} is called already");
        self.called[node.index()] = true;
        out.push(Action::Connect(node));
    }

    fn on_up(&mut self, now: Time, peer: NodeId, out: &mut Actions) {
        debug_assert!(!self.neighbours.contains(peer), "{peer} is up twice");
        self.neighbours
            .insert(peer, Neighbour::new(self.have.len(), now));
        self.downloads.welcome();
        let seeding = self.uploads.is_seeding();
        let have = if seeding {
            BlockSet::new(self.have.len())
        } else {
            self.have.clone()
        };
        out.send(
            peer,
            &Message::Bitfield {
                have: have.to_wire(),
                want: self.setup.want.to_wire(),
                seeding,
            },
        );
        self.tick_on(now, out);
    }

    /// Whether this node takes blocks for others' sake alone.
    fn is_relay(&self) -> bool {
        self.setup.want.is_empty()
    }

    /// Of a relay: finds out what its neighbours lack.
    fn look_around(&mut self) {
        if !self.is_relay() {
            return;
        }
        let mut lacking = BlockSet::new(self.have.len());
        // A source that seeds only seems to lack what it gives.
        let needy = |peer: &Neighbour| peer.lacks > 0 && !peer.seeding;
        for (_, peer) in self.neighbours.iter().filter(|(_, peer)| needy(peer)) {
            lacking.union(&peer.want.lacking(&peer.theirs));
        }
        lacking.subtract(&self.have);
        self.lacking = lacking;
    }

    fn on_down(&mut self, now: Time, peer: NodeId, out: &mut Actions) {
        let Some(mut neighbour) = self.neighbours.remove(peer) else {
            return;
        };
        self.look_around();
        self.downloads.forget(&mut neighbour);
        self.uploads.forget(peer);
        if self.called[peer.index()] && !self.gone[peer.index()] {
            out.push(Action::Connect(peer));
        }
        self.download(now, out);
        self.upload(now, out);
        // A relay may have looked around anew, and lack something again.
        if !self.lacking.is_empty() {
            self.tick_on(now, out);
        }
    }

    fn on_gone(&mut self, now: Time, peer: NodeId, out: &mut Actions) {
        self.gone[peer.index()] = true;
        if self.called[peer.index()] {
            self.called[peer.index()] = false;
            out.push(Action::Disconnect(peer));
        }
        self.on_down(now, peer, out);
    }

    fn accuse(&mut self, peer: NodeId, offence: &'static str, out: &mut Actions) {
        self.gone[peer.index()] = true;
        out.push(Action::Accuse { peer, offence });
    }

    // ---- receiving

    fn download(&mut self, now: Time, out: &mut Actions) {
        if !self.lacking.is_empty() {
            let random = self.random.next_u64();
            self.downloads
                .fill(now, &self.lacking, &mut self.neighbours, random, out);
        }
    }

    fn on_block(
        &mut self,
        now: Time,
        from: NodeId,
        block: BlockId,
        fresh: bool,
        out: &mut Actions,
    ) {
        self.downloads
            .arrived(now, from, block, &mut self.neighbours, out);
        if fresh && self.have.insert(block) {
            self.bored_since = now;
            self.news.push(block);
            self.announce_soon(now, out);
            if self.lacking.remove(block) && self.lacking.is_empty() {
                self.downloads.finish(&mut self.neighbours, out);
            }
        }
        self.download(now, out);
    }

    fn announce_soon(&mut self, now: Time, out: &mut Actions) {
        if !self.announcing {
            self.announcing = true;
            let gap = self.downloads.block_gap();
            // Near the end a late word costs more than a short message.
            let blocks = if self.lacking.count() < 32 { 0.5 } else { 4.0 };
            let delay = Duration::from_secs_f64((blocks * gap).min(ANNOUNCE_MAX.as_secs_f64()));
            let at = now + delay.max(ANNOUNCE_MIN);
            out.push(Action::SetTimer {
                timer: ANNOUNCER,
                at,
            });
        }
    }

    fn announce(&mut self, now: Time, out: &mut Actions) {
        self.announcing = false;
        let blocks = std::mem::take(&mut self.news);
        if blocks.is_empty() || self.uploads.is_seeding() {
            return;
        }
        let told = self
            .neighbours
            .iter_mut()
            .filter(|(_, peer)| peer.is_curious());
        let told = told.map(|(node, peer)| {
            peer.spoken = now;
            node
        });
        out.send_all(told, &Message::Have { blocks });
    }

    // ---- sending

    fn upload(&mut self, now: Time, out: &mut Actions) {
        let was_seeding = self.uploads.is_seeding();
        let gave = self.uploads.serve(
            now,
            &self.have,
            &mut self.neighbours,
            self.downloads.holders(),
            out,
        );
        if !gave.is_empty() {
            let sources = self.neighbours.iter().filter(|(_, peer)| peer.seeding);
            let message = Message::Have { blocks: gave };
            out.send_all(sources.map(|(node, _)| node), &message);
        }
        if was_seeding && !self.uploads.is_seeding() {
            self.end_seeding(out);
        }
    }

    /// Whether another source is there.
    fn has_fellow(&self) -> bool {
        let members = &self.setup.members;
        let mut neighbours = self.neighbours.iter();
        neighbours.any(|(node, _)| members[node.index()].is_source())
    }

    /// From now on the neighbours request what they lack. If others have it, they are told what
    /// comes unasked, so that they do not ask these for it. If none has, there is no other node to
    /// ask: then a request for what is coming does no harm, and one for another of the last blocks
    /// does (twenty nodes at 10 MB/s need 1.13 times the limit for 400 MiB, and 1.15 if told).
    fn end_seeding(&mut self, out: &mut Actions) {
        debug_assert!(self.have.is_full(), "a source seeds");
        debug_assert!(!self.uploads.is_seeding());
        let told = self.uploads.has_learned() || self.has_fellow();
        for (node, peer) in self.neighbours.iter_mut() {
            let Some(given) = peer.given.as_ref().filter(|_| told) else {
                continue;
            };
            let mut given = given.clone();
            given.subtract(&peer.theirs);
            if !given.is_empty() {
                let blocks = given.to_wire();
                out.send(node, &Message::Given { blocks });
            }
        }
        let message = Message::Bitfield {
            have: self.have.to_wire(),
            want: self.setup.want.to_wire(),
            seeding: false,
        };
        out.send_all(self.neighbours.iter().map(|(node, _)| node), &message);
    }

    // ---- clocks and messages

    fn tick_on(&mut self, now: Time, out: &mut Actions) {
        if !self.ticking {
            self.ticking = true;
            out.push(Action::SetTimer {
                timer: TICKER,
                at: now + TICK,
            });
        }
    }

    fn on_tick(&mut self, now: Time, out: &mut Actions) {
        self.ticking = false;
        for (node, neighbour) in self.neighbours.iter_mut() {
            if neighbour.is_waiting() && now.since(neighbour.spoken) >= 2 * TICK {
                neighbour.spoken = now;
                out.send(node, &Message::Alive);
            }
        }
        self.upload(now, out);
        self.look_around();
        if !self.lacking.is_empty() {
            self.downloads.watch(now, &mut self.neighbours, out);
            self.download(now, out);
            if now.since(self.bored_since) >= BORED_AFTER {
                self.bored_since = now;
                self.call_more(out);
            }
        }
        if !self.lacking.is_empty() || self.neighbours.iter().any(|(_, peer)| peer.is_waiting()) {
            self.tick_on(now, out);
        }
    }

    fn on_message(&mut self, now: Time, from: NodeId, body: &[u8], out: &mut Actions) {
        let Ok(message) = postcard::from_bytes(body) else {
            self.accuse(from, "sent an invalid message", out);
            return;
        };
        let len = self.have.len();
        let Some(neighbour) = self.neighbours.get_mut(from) else {
            return;
        };
        neighbour.heard = now;
        if let Some(fault) = fault(&message, len) {
            self.accuse(from, fault, out);
            return;
        }
        match message {
            Message::Bitfield {
                have,
                want,
                seeding,
            } => {
                neighbour.bitfields += 1;
                if neighbour.bitfields > BITFIELDS_MAX {
                    self.accuse(from, "says as a set what it has again and again", out);
                    return;
                }
                let read = |blocks| BlockSet::from_wire(blocks, len);
                let (Some(theirs), Some(want)) = (read(&have), read(&want)) else {
                    self.accuse(from, UNKNOWN, out);
                    return;
                };
                let claims: Vec<BlockId> = match self.uploads.is_seeding() {
                    true => theirs.iter().collect(),
                    false => Vec::new(),
                };
                if !seeding {
                    self.uploads.note_wanted(&want);
                }
                let want = Wanted::of(want);
                self.downloads
                    .bitfield(now, neighbour, theirs, want, seeding);
                let holders = self.downloads.holders();
                self.uploads.learn(claims.into_iter(), holders);
                self.look_around();
                self.upload(now, out);
                self.download(now, out);
                if !self.lacking.is_empty() {
                    self.tick_on(now, out);
                }
            }
            Message::Have { blocks } => {
                let is_fellow = neighbour.seeding;
                self.downloads.have(neighbour, &blocks);
                if is_fellow {
                    self.uploads.took(&blocks);
                } else {
                    let holders = self.downloads.holders();
                    self.uploads.learn(blocks.iter().copied(), holders);
                }
                if self.uploads.is_seeding() {
                    self.upload(now, out);
                }
                self.download(now, out);
            }
            Message::Request { blocks } => {
                self.uploads
                    .request(from, neighbour, &blocks, &self.have, out);
                self.upload(now, out);
                self.tick_on(now, out);
            }
            Message::Ask { blocks } => {
                self.uploads.ask(neighbour, blocks);
                self.upload(now, out);
                self.tick_on(now, out);
            }
            Message::Given { blocks } => {
                let Some(blocks) = BlockSet::from_wire(&blocks, len) else {
                    self.accuse(from, UNKNOWN, out);
                    return;
                };
                let missing = blocks.iter().filter(|block| !self.have.contains(*block));
                self.downloads
                    .given(now, from, missing, &mut self.neighbours, out);
            }
            Message::Cancel { blocks } => neighbour.cancel(&blocks),
            Message::Refuse { blocks } => {
                self.downloads.refused(neighbour, &blocks);
                self.download(now, out);
            }
            Message::Alive => {}
        }
    }
}

/// What is wrong with a message about an object of so many blocks. No more is looked at than there can be: what
/// a node asks of one neighbour, takes back or is refused is among the requests that it has under way there.
fn fault(message: &Message, len: u32) -> Option<&'static str> {
    const TOO_MANY: &str = "named more blocks than may be asked for at a time";
    let known = |blocks: &[BlockId]| blocks.iter().all(|block| *block < len);
    let sound = match message {
        Message::Request { blocks } | Message::Cancel { blocks } | Message::Refuse { blocks }
            if blocks.len() > PER_NEIGHBOUR_MAX =>
        {
            return Some(TOO_MANY);
        }
        Message::Have { blocks }
        | Message::Request { blocks }
        | Message::Cancel { blocks }
        | Message::Refuse { blocks } => known(blocks),
        // Sets are looked at where they are read.
        Message::Bitfield { .. } | Message::Given { .. } | Message::Ask { .. } | Message::Alive => {
            true
        }
    };
    (!sound).then_some(UNKNOWN)
}

/// Which of the sources that give each block once this is; nothing if it is none, or if there are
/// no two nodes that could pass blocks on to each other.
fn seeds(setup: &Setup) -> Option<Share> {
    let sources = |members: &[Member]| members.iter().filter(|it| it.is_source()).count();
    let (me, of) = (setup.me.index(), sources(&setup.members));
    let others = setup.members.len() - of;
    let alone = others < 2;
    if !setup.members[me].is_source() || !setup.have.is_full() || alone {
        return None;
    }
    let index = sources(&setup.members[..me]) as u32;
    Some(Share {
        index,
        of: of as u32,
        among: others as u32,
    })
}

impl Protocol for Swarm {
    fn handle(&mut self, now: Time, event: Event<'_>, out: &mut Actions) {
        match event {
            Event::Coded(_) | Event::Achieved { .. } | Event::Foreground(_) => {}
            Event::Start => self.start(now, out),
            Event::PeerUp(peer) => self.on_up(now, peer, out),
            Event::PeerDown(peer) => self.on_down(now, peer, out),
            Event::Left(peer) => self.on_gone(now, peer, out),
            Event::Message { from, body } => self.on_message(now, from, body, out),
            Event::Arrived { from, block, fresh } => self.on_block(now, from, block, fresh, out),
            Event::Rejected { from, .. } => self.gone[from.index()] = true,
            Event::Sent { to, block } => {
                self.uploads.sent(now, to, block, &mut self.neighbours);
                self.upload(now, out);
            }
            Event::Timer(ANNOUNCER) => self.announce(now, out),
            Event::Timer(_) => self.on_tick(now, out),
        }
        self.check(now);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use crate::Role;

    fn say(relay: &mut Swarm, now: f64, from: u32, message: &Message, out: &mut Actions) {
        let (from, body) = (NodeId(from), postcard::to_stdvec(message).unwrap());
        let event = Event::Message { from, body: &body };
        relay.handle(Time::from_secs_f64(now), event, out);
    }

    #[test]
    fn who_names_more_blocks_than_may_be_asked_for_is_accused() {
        let most = PER_NEIGHBOUR_MAX as u32;
        let member = |node| Member {
            cluster: 0,
            role: match node {
                0 => Role::Source,
                _ => Role::Receiver,
            },
        };
        let messages: [fn(Vec<BlockId>) -> Message; 3] = [
            |blocks| Message::Request { blocks },
            |blocks| Message::Cancel { blocks },
            |blocks| Message::Refuse { blocks },
        ];
        for message in messages {
            // The same block again and again is as much work.
            for (blocks, accused) in [
                ((0..most).collect(), false),
                (vec![0; most as usize], false),
                ((0..=most).collect(), true),
                (vec![0; most as usize + 1], true),
                (vec![most + 10], true),
            ] {
                let full = BlockSet::full(most + 10);
                let setup = Setup {
                    me: NodeId(0),
                    members: (0..2).map(member).collect(),
                    block_bytes: 1024,
                    have: full.clone(),
                    want: full,
                    seed: 1,
                    plan: None,
                    batches: None,
                };
                let mut source = Swarm::new(Kind::Swarm, setup);
                let mut out = Actions::default();
                source.handle(Time::ZERO, Event::Start, &mut out);
                source.handle(Time::ZERO, Event::PeerUp(NodeId(1)), &mut out);
                say(&mut source, 0.0, 1, &message(blocks), &mut out);
                let accuses = |action| matches!(action, Action::Accuse { .. });
                assert_eq!(out.drain().any(accuses), accused);
            }
        }
    }

    #[test]
    fn a_relay_watches_what_it_lacks_once_a_neighbour_is_gone() {
        let role = |node| match node {
            0 => Role::Relay,
            _ => Role::Receiver,
        };
        let member = |node| Member {
            cluster: 0,
            role: role(node),
        };
        let none = BlockSet::new(1);
        let mut relay = Swarm::new(
            Kind::Swarm,
            Setup {
                me: NodeId(0),
                members: (0..3).map(member).collect(),
                block_bytes: 1024,
                have: none.clone(),
                want: none.clone(),
                seed: 1,
                plan: None,
                batches: None,
            },
        );
        let mut out = Actions::default();
        relay.handle(Time::ZERO, Event::Start, &mut out);
        let all = || BlockSet::full(1).to_wire();
        for (node, have) in [(1, all()), (2, none.to_wire())] {
            let up = Event::PeerUp(NodeId(node));
            relay.handle(Time::ZERO, up, &mut out);
            let (want, seeding) = (all(), false);
            let message = Message::Bitfield {
                have,
                want,
                seeding,
            };
            say(&mut relay, 0.0, node, &message, &mut out);
        }
        // The node for which it was asked gets it elsewhere, and the node that was asked does not
        // have it.
        let blocks = vec![0];
        say(&mut relay, 0.1, 2, &Message::Have { blocks }, &mut out);
        let tick = Event::Timer(TICKER);
        relay.handle(Time::from_secs_f64(0.25), tick, &mut out);
        let blocks = vec![0];
        say(&mut relay, 0.3, 1, &Message::Refuse { blocks }, &mut out);
        out.drain().for_each(drop);
        let down = Event::PeerDown(NodeId(2));
        relay.handle(Time::from_secs_f64(0.4), down, &mut out);
        let ticks = |action| matches!(action, Action::SetTimer { timer, .. } if timer == TICKER);
        assert!(out.drain().any(ticks), "nothing looks whether it comes");
    }
}
