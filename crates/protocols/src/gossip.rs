//! Gossip over permutations: `coded-gossip` and, without coding, `random-block`.
//!
//! Every node offers what it has to its successors in a list of random permutations, one after
//! the other ([Cooper §5]). An offer says how much the sender has of which batch. The receiver
//! grants it if it has room, and names the batch: it alone knows what adds to what it has. If it
//! is busy the sender goes on to its next successor, and the offer stands until the receiver has
//! room. So both directions of every node are in use as long as any node has anything for it, and no
//! node keeps track of the whole.
//!
//! The successors in the first permutations are *partners*: they come first, and receivers always
//! have room for them. TCP divides rates well among connections that are always in use, and badly
//! among connections that come and go: in an emulated network of twenty nodes, where each sends to
//! twelve as fast as it can, receivers get 0.96 of what a plain copy gets; if each sends 64 KiB to
//! one after the other, six at a time, 0.90.
//!
//! What is sent is a packet: a random combination of all that the sender has of the batch. As
//! long as the sender has any dimension that the receiver lacks, a packet brings a new one, so
//! no node has to know which node has what. Offers state for each batch how many dimensions there are, and in
//! how many blocks: its rank and its *support*. A node with a higher rank, or with blocks that do not
//! occur here, certainly has something new; a node with nothing but blocks of which all dimensions are
//! here or coming has not. A source gives each block once before anything else. A node takes the
//! earliest batch that an offer adds to, and has at most `LIVE_MAX` batches in part; a source is
//! asked for an earlier batch only if no other node gives it, so what it sends is new to all.
//!
//! # Wrong packets
//!
//! A packet cannot be verified before its batch is decoded, and until then it is passed on in
//! combinations. So the sender of a wrong packet may only have received one, and when one node decodes
//! a batch to wrong bytes, most nodes hold something wrong already. It tells all its neighbours, and
//! from then on all nodes are *careful*: they take only what is made of verified blocks. Most of that
//! are blocks, verified on arrival; offers list them. Some are *pure* packets, made of verified blocks
//! alone, to find nodes that lie in packets only: a wrong pure packet
//! convicts its sender when its batch is whole, and as few others are in use it spoils little.
//!
//! A node that received something wrong cuts the sender off and tells its neighbours. They do not take
//! one node's word for it; a node that two accuse is served when all others have everything, because
//! what it is given reaches no other node.
//!
//! What it costs: what was under way when the first wrong packet came is moved twice; after that a
//! careful gossip is about as fast as `random-block`. One that cries wolf slows the others down as
//! much. A node that sends wrong packets only while they are mixed with those of others is held off but
//! not named. Where blocks are lost with the nodes that had them, and nothing verified comes any more,
//! other packets are taken after all.
//!
//! # When sources are gone
//!
//! Nodes go on exchanging until no rank rises any more: a batch is whole as soon as the
//! remaining nodes have full rank together. Where they have not, the remaining blocks are looked for
//! and pulled, so that all nodes have at least these.

mod holdings;
mod message;
mod neighbour;
mod receive;
mod seeding;
mod send;
mod starve;
mod topology;

use std::collections::VecDeque;
use std::time::Duration;

use outpour_core::manifest::BlockSize;
use outpour_core::{BatchId, Batches, BlockSet, NodeId, Time};
use rand_core::SeedableRng;
use rand_pcg::Pcg64Mcg;
use serde::{Deserialize, Serialize};

use crate::mend::{self, Around, Mender, Wrap};
use crate::peers::Peers;
use crate::promise::Promise;
use crate::registry::{self, CodingTraits, Entry, PlanFrom, USUAL_BLOCKS};
use crate::{Action, Actions, Coded, Event, Protocol, Setup, TimerId};
use holdings::Holdings;
use message::{Message, Piece};
use neighbour::{Neighbour, Offered, Repute, Standing};
use seeding::Seeding;
use topology::Topology;

/// The registry's line.
pub const CODED: Entry = Entry {
    name: "coded-gossip",
    about: "nodes send random combinations of their blocks along random permutations",
    baseline: false,
    plan: PlanFrom::Nowhere,
    selective: false,
    coding: Some(CodingTraits {
        live_batches: LIVE_MAX as u32,
        batch_blocks,
    }),
    block_size,
    takes,
    // What is on its way when others have made a batch whole comes for nothing.
    promise: Promise {
        ahead: receive::AHEAD_MAX as u32,
        ..PROMISE
    },
    build: |setup, options| Box::new(Gossip::new(setup, options)) as Box<dyn Protocol>,
};

/// The registry's line.
pub const RANDOM_BLOCK: Entry = Entry {
    name: "random-block",
    about: "nodes send random blocks that the next one lacks along random permutations",
    baseline: true,
    plan: PlanFrom::Nowhere,
    selective: false,
    coding: None,
    block_size: USUAL_BLOCKS,
    takes,
    promise: PROMISE,
    build: |setup, options| Box::new(Gossip::new(setup, options)) as Box<dyn Protocol>,
};

fn takes(options: &registry::EncodedOptions) -> bool {
    options.read::<GossipOptions>().is_some()
}

/// Late pieces are asked of others.
const PROMISE: Promise = Promise::per_turn(receive::OWED_MAX as u32, mend::OWED_MAX as u32);

/// A node has packets of at most so many batches that are not whole.
const LIVE_MAX: usize = 8;
/// How often clocks are looked at.
const TICK: Duration = Duration::from_millis(250);
/// Where nothing comes for so long, what is missing is looked for everywhere.
const MEND_AFTER: Duration = Duration::from_secs(3);

/// Bytes of a batch at most, unless a block is larger: so much is moved twice if packets are
/// wrong, and a few times as much is kept in memory.
const BATCH_BYTES_MAX: u32 = 4 << 20;
/// Blocks of a batch at most: coding costs as many operations per byte. Less than 32 costs time,
/// as nodes that have little of a batch have the same more often: 100 MB to twenty nodes at
/// 15 Mbit/s take 1.05 times the limit with 64 blocks of 64 KiB, 1.12 with 16, 1.29 with 8 and 1.64
/// with 4.
const BATCH_MAX: u32 = 64;
const _: () = assert!(BATCH_MAX <= outpour_core::batches::BATCH_BLOCKS_MAX as u32);

/// How large coded blocks are: a batch needs many of them, but a neighbour gives one in a round trip,
/// and where there are few neighbours all together have to have enough on their way.
///
/// 3 GB to twenty nodes at 100 Mbit/s take 1.08 times the limit with blocks of 64 KiB, 1.36 with
/// 256 KiB, simulated over TCP. Real agents in an emulated network: 1.2 GB to seven at 250 Mbit/s
/// take 45.2 s with 64 KiB, 42.2 with 128, 51.3 with 256, the limit being 38.4; 4 GB to three at
/// 600 Mbit/s 102, 64 to 68 and 58 s, 61 with 512 KiB, the limit being 53.3.
const BLOCK_BYTES: u32 = 64 << 10;
const ON_THEIR_WAY: u32 = 1 << 20;

/// How large the blocks of an object are that goes to so many receivers, unless the user says so.
fn block_size(receivers: usize) -> BlockSize {
    let receivers = u32::try_from(receivers).unwrap_or(u32::MAX).max(1);
    let share = (ON_THEIR_WAY / receivers).max(BLOCK_BYTES);
    BlockSize::AtMost(1 << share.ilog2())
}

/// A good number of blocks to code together if each has so many bytes.
fn batch_blocks(block_bytes: u32) -> u16 {
    (BATCH_BYTES_MAX / block_bytes.max(1)).clamp(1, BATCH_MAX) as u16
}

/// Neighbours that send here, and neighbours that are sent to, at once: as many in both directions,
/// so that all can have their equal share of every rate. Their pieces have so many bytes in all, as
/// far as there are not too many or too few of them. Rates rest while answers to offers wait in the
/// network's queues, and TCP's windows shrink at each loss there; more connections have more on
/// their way. But each piece takes longer. With 3 of 19 receivers at half the rate of the others,
/// 15 Mbit/s, 100 MB take these 61 s in 12 pieces of 64 KiB at a time, and 62 to 69 s in 6,
/// simulated over TCP; where all are alike 59 s and 58 s.
const SLOTS_BYTES: u32 = 768 << 10;
const SLOTS_MIN: usize = 2;
const SLOTS_MANY: usize = 12;
const SLOTS_MAX: usize = 32;
const _: () = assert!(SLOTS_MIN <= SLOTS_MANY);
const _: () = assert!(SLOTS_MANY <= SLOTS_MAX);
/// A piece of each covers this much time of the rate, in seconds, and so many round trips. Eight
/// nodes at 1 Gbit/s take 1.38 times the limit with 4 pieces of 64 KiB at once and 1.04 with 16.
const COVER_S: f64 = 0.016;
const COVER_ROUND_TRIPS: f64 = 4.0;
/// Bytes per second that come, as long as that is not known.
const RATE_GUESS: f64 = 1e6;
/// Longer round trips are not covered.
const ROUND_TRIP_MAX: f64 = 0.3;

/// With how many neighbours to exchange pieces of so many bytes in a direction, at least.
fn slots_least(block_bytes: u32) -> usize {
    let least = SLOTS_BYTES / block_bytes.max(1);
    (least as usize).clamp(SLOTS_MIN, SLOTS_MANY)
}

const TICKER: TimerId = TimerId(0);

/// How a gossip moves batches, the same on every node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GossipOptions {
    /// In which order.
    pub schedule: Schedule,
    /// How many packets more than a batch has blocks a source sends of it before it goes on to the
    /// next; the constant C of the paper. `Stream` does not use it.
    pub slack: u32,
    /// Re-announce interval of `random-block`, in new blocks.
    pub map_every: u32,
}

impl Default for GossipOptions {
    fn default() -> Self {
        Self {
            schedule: Schedule::Stream,
            slack: 1,
            map_every: 2,
        }
    }
}

/// The same for every gossip, as [`registry::Entry::with`] takes them.
pub fn asked(options: &GossipOptions) -> Vec<(&'static str, registry::EncodedOptions)> {
    let options = registry::EncodedOptions::of(options);
    let names = [CODED.name, RANDOM_BLOCK.name];
    names.map(|name| (name, options.clone())).to_vec()
}

/// In which order the batches of an object are moved.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Schedule {
    /// A batch begins when all nodes have the one before.
    Sequential,
    /// A node that has a batch continues with the next; earlier batches come first [Cooper §4.1].
    Overlap1,
    /// The next batch begins, and comes first for a while, before all nodes have the one before
    /// [Cooper §4.2].
    Overlap2,
    /// A source gives each block of each batch once, one batch after the other; all nodes ask
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

/// One node of a gossip.
struct Gossip {
    options: GossipOptions,
    /// Whether packets are sent; if not, each block is a batch.
    coded: bool,
    hold: Holdings,
    neighbours: Peers<Neighbour>,
    topology: Topology,
    /// Nodes that had everything from the start: only these lead.
    sources: Vec<bool>,
    /// Nodes that can be talked to.
    up: Vec<bool>,
    /// Members that left or broke the protocol.
    gone: Vec<bool>,
    /// What others say of members that sent them something wrong.
    repute: Vec<Repute>,
    /// Nodes that sent something wrong here.
    convicts: Vec<NodeId>,
    mender: Mender,
    random: Pcg64Mcg,
    /// With how many neighbours to exchange pieces in a direction, at least.
    slots_least: usize,
    /// Seconds between pieces as long as they are not known.
    gap_guess: f64,

    // ---- sending
    seeding: Option<Seeding>,
    /// Pieces with the driver: their recipients, since when.
    sends: VecDeque<(NodeId, Time)>,
    /// Seconds from handing a piece to the driver until it is sent, smoothed.
    service: f64,
    /// Seconds between pieces that left, smoothed.
    sent_gap: f64,
    left: Option<Time>,
    /// When anything was last sent to a node of good repute.
    served: Time,
    /// The shortest time an answer took, in seconds.
    round_trip: f64,
    /// Whole batches not yet announced.
    news: Vec<BatchId>,

    // ---- receiving
    /// Blocks granted and not come yet.
    asked: BlockSet,
    /// Wrong packets are about: only what is made of verified blocks is asked for.
    careful: bool,
    /// Nothing of that kind came for long: other packets are better than nothing.
    desperate: bool,
    /// The batch that comes first.
    prefer: Option<BatchId>,
    /// Counts offers that came.
    turn: u64,
    /// Seconds from a grant until the piece has come, smoothed.
    latency: f64,
    /// Seconds between pieces, smoothed.
    gap: f64,
    came: Option<Time>,
    /// When anything new came.
    gained: Time,
    /// When anything new came from a node that is no source.
    fed: Time,
    /// When doubts were last forgotten.
    doubted: Time,
    /// How often since then.
    doubts: u32,
    ticking: bool,
}

impl Gossip {
    fn new(setup: Setup, options: &registry::EncodedOptions) -> Self {
        // Drivers give nothing but what `takes` has seen.
        let options = options.read().unwrap_or_default();
        let (me, blocks) = (setup.me, setup.have.len());
        let members = setup.members.len();
        let coded = setup.batches.is_some();
        let single = || Batches::new(blocks, 1);
        let batches = setup.batches.or_else(single);
        let batches = batches.expect("batches of one block are sound");
        debug_assert_eq!(batches.blocks(), blocks);
        let source = setup.members[me.index()].is_source() && setup.have.is_full();
        Self {
            options,
            coded,
            hold: Holdings::new(batches, setup.have),
            neighbours: Peers::default(),
            topology: Topology::new(me, members, setup.seed),
            sources: setup.members.iter().map(|it| it.is_source()).collect(),
            up: vec![false; members],
            gone: vec![false; members],
            repute: vec![Repute::Good; members],
            convicts: Vec::new(),
            mender: Mender::new(me, blocks),
            random: Pcg64Mcg::seed_from_u64(setup.seed ^ u64::from(me.0) << 32),
            slots_least: slots_least(setup.block_bytes),
            gap_guess: f64::from(setup.block_bytes) / RATE_GUESS,
            seeding: (source && coded).then(|| Seeding::new(me, &setup.members, batches, options)),
            sends: VecDeque::new(),
            service: 0.0,
            sent_gap: 0.0,
            left: None,
            served: Time::ZERO,
            round_trip: ROUND_TRIP_MAX,
            news: Vec::new(),
            asked: BlockSet::new(blocks),
            careful: false,
            desperate: false,
            prefer: None,
            turn: 0,
            latency: 0.0,
            gap: 0.0,
            came: None,
            gained: Time::ZERO,
            fed: Time::ZERO,
            doubted: Time::ZERO,
            doubts: 0,
            ticking: false,
        }
    }

    /// What holds after every event.
    fn check(&self, now: Time) {
        if !cfg!(debug_assertions) {
            return;
        }
        let (mut queued, mut granted) = (0, 0);
        for (node, peer) in self.neighbours.iter() {
            debug_assert!(self.up[node.index()]);
            peer.check(now, self.turn);
            queued += peer.queue;
            for grant in peer.granted.iter().filter(|grant| !grant.late) {
                granted += 1;
                debug_assert!(
                    !self
                        .hold
                        .whole
                        .contains(grant.piece.batch(self.hold.batches))
                );
                if let Piece::Block(block) = grant.piece {
                    let here = self.hold.have.contains(block);
                    debug_assert!(here || self.asked.contains(block), "{block} may come twice");
                }
            }
        }
        debug_assert_eq!(queued, self.sends.len());
        let coming = self.hold.live.values().map(|live| live.coming.len());
        debug_assert_eq!(coming.sum::<usize>(), granted);
        debug_assert!(
            self.hold.is_full() || self.ticking,
            "it would wait for ever"
        );
        debug_assert!(self.sends.is_empty() || self.ticking);
        debug_assert!(
            self.seeding.is_none() || self.hold.is_full(),
            "only a node that has all seeds"
        );
        debug_assert!(!self.careful || self.coded);
        debug_assert!(!self.desperate || self.careful);
        debug_assert!(self.convicts.iter().all(|node| self.gone[node.index()]));
        debug_assert!(self.fed <= self.gained);
        debug_assert!(self.gained.max(self.served).max(self.doubted) <= now);
        debug_assert!(self.left.max(self.came).is_none_or(|at| at <= now));
    }

    /// With how many neighbours to exchange pieces in a direction, one coming every `gap` seconds.
    fn cover(&self, gap: f64) -> usize {
        let round_trip = if self.round_trip < ROUND_TRIP_MAX {
            self.round_trip
        } else {
            0.0
        };
        debug_assert!(gap >= 0.0);
        debug_assert!(round_trip >= 0.0);
        let cover = COVER_S + COVER_ROUND_TRIPS * round_trip;
        let slots = if gap > 0.0 { cover / gap } else { 0.0 };
        (slots.ceil() as usize).clamp(self.slots_least, SLOTS_MAX)
    }

    /// Seconds between pieces that come.
    pub(super) fn usual_gap(&self) -> f64 {
        match self.gap {
            0.0 => self.gap_guess,
            known => known,
        }
    }

    fn start(&mut self, now: Time, out: &mut Actions) {
        (self.gained, self.fed) = (now, now);
        for node in &self.topology.neighbours {
            out.push(Action::Connect(*node));
        }
        self.tick_on(now, out);
    }

    fn on_up(&mut self, now: Time, peer: NodeId, out: &mut Actions) {
        debug_assert!(!self.neighbours.contains(peer), "{peer} is up twice");
        self.up[peer.index()] = true;
        let batches = self.hold.batches;
        let neighbour = Neighbour::new(batches.count(), batches.blocks());
        self.neighbours.insert(peer, neighbour);
        let have = self.hold.have.to_wire();
        out.send(peer, &Message::Hello { have });
        if self.careful {
            out.send(peer, &Message::Careful);
        }
        for convict in &self.convicts {
            out.send(peer, &Message::Convicted { peer: *convict });
        }
        self.mend(|mender, _, wrap| mender.on_up(peer, wrap, out));
        self.tick_on(now, out);
    }

    fn on_down(&mut self, now: Time, peer: NodeId, out: &mut Actions) {
        self.up[peer.index()] = false;
        self.sends.retain(|(to, _)| *to != peer);
        self.mender.on_down(peer);
        let Some(neighbour) = self.neighbours.remove(peer) else {
            return;
        };
        self.forget(neighbour);
        if self.topology.neighbours.contains(&peer) && !self.gone[peer.index()] {
            out.push(Action::Connect(peer));
        }
        self.on_progress();
        self.take_offers(now, out);
        self.pump(now, out);
    }

    fn on_left(&mut self, now: Time, peer: NodeId, out: &mut Actions) {
        self.gone[peer.index()] = true;
        out.push(Action::Disconnect(peer));
        self.on_down(now, peer, out);
    }

    fn tick_on(&mut self, now: Time, out: &mut Actions) {
        if !self.ticking {
            self.ticking = true;
            let (timer, at) = (TICKER, now + TICK);
            out.push(Action::SetTimer { timer, at });
        }
    }

    fn on_tick(&mut self, now: Time, out: &mut Actions) {
        self.ticking = false;
        self.announce(out);
        if !self.hold.is_full() {
            self.watch(now, out);
        }
        self.pump(now, out);
        let asked = |(_, peer): (NodeId, &Neighbour)| matches!(peer.offered, Offered::Asked(_));
        let waits = self.neighbours.iter().any(asked);
        if !self.hold.is_full() || waits || !self.sends.is_empty() {
            self.tick_on(now, out);
        }
    }

    /// Calls `work` with the mender and what it needs.
    fn mend<T>(&mut self, work: impl FnOnce(&mut Mender, Around<'_>, &mut Wrap<'_>) -> T) -> T {
        let around = Around {
            up: &self.up,
            gone: &self.gone,
            have: &self.hold.have,
            gap: self.usual_gap(),
        };
        let mut wrap = |to, message, out: &mut Actions| out.send(to, &Message::Mend(message));
        work(&mut self.mender, around, &mut wrap)
    }

    fn on_message(&mut self, now: Time, from: NodeId, body: &[u8], out: &mut Actions) {
        if self.gone[from.index()] || !self.neighbours.contains(from) {
            return;
        }
        let message = postcard::from_bytes::<Message>(body);
        let Some(message) = message.ok().filter(|it| it.is_sound(self.hold.batches)) else {
            self.accuse(from, "sent an invalid message", out);
            return;
        };
        match message {
            Message::Hello { .. }
                if self
                    .neighbours
                    .get_mut(from)
                    .is_some_and(Neighbour::greets_again) =>
            {
                self.accuse(from, "says as a set what it has again", out);
            }
            Message::Hello { have } => {
                let len = self.hold.have.len();
                let have = BlockSet::from_wire(&have, len).unwrap_or_else(|| BlockSet::new(len));
                self.on_hello(now, from, have, out);
            }
            Message::Whole { batches } => self.on_theirs(now, from, &batches, out),
            Message::Offer {
                parts,
                lead,
                queued,
                spare,
            } => {
                let lead = lead.filter(|_| self.sources[from.index()]);
                self.turn += 1;
                let standing = Standing {
                    parts,
                    lead,
                    turn: self.turn,
                    spare: spare.then_some(now),
                };
                self.on_offer(now, from, standing, queued, out);
            }
            Message::Grant { piece, more } => self.on_grant(now, from, piece, more, out),
            Message::Busy { idle } => self.on_busy(now, from, idle, out),
            Message::Decline { piece } => self.on_decline(now, from, piece, out),
            Message::Careful => self.on_careful(now, from, out),
            Message::Convicted { peer } => self.on_convicted(from, peer),
            Message::Prefer { batch } if self.sources[from.index()] => self.prefer = batch,
            Message::Prefer { .. } => self.accuse(from, "leads without being a source", out),
            Message::Mend(message) => {
                let heard = self.mend(|mender, around, wrap| {
                    mender.on_message(now, from, message, around, wrap, out)
                });
                match heard {
                    Ok(()) => self.run_errands(now, from, out),
                    Err(offence) => self.accuse(from, offence, out),
                }
            }
        }
    }

    fn on_hello(&mut self, now: Time, from: NodeId, have: BlockSet, out: &mut Actions) {
        if let Some(seeding) = &mut self.seeding
            && !have.is_full()
        {
            seeding.learn(have.iter());
        }
        if let Some(peer) = self.neighbours.get_mut(from) {
            peer.whole = holdings::whole(self.hold.batches, &have);
            peer.blocks = have;
        }
        self.on_progress();
        self.take_offers(now, out);
        self.pump(now, out);
    }

    /// A neighbour got batches whole.
    fn on_theirs(&mut self, now: Time, from: NodeId, batches: &[BatchId], out: &mut Actions) {
        for batch in batches {
            if let Some(seeding) = &mut self.seeding {
                seeding.learn(self.hold.batches.range(*batch));
            }
            if let Some(peer) = self.neighbours.get_mut(from) {
                peer.whole.insert(*batch);
            }
        }
        self.on_progress();
        self.take_offers(now, out);
        self.pump(now, out);
    }

    fn on_coded(&mut self, now: Time, event: Coded, out: &mut Actions) {
        match event {
            Coded::Packet {
                from,
                batch,
                worth,
                holding,
            } => self.on_packet(now, from, batch, worth, holding, out),
            Coded::Decoded { .. } => {}
            Coded::Spoiled { batch } => self.on_spoiled(now, batch, out),
            Coded::Sent { to, .. } => self.on_sent(now, to, out),
        }
    }
}

impl Protocol for Gossip {
    fn handle(&mut self, now: Time, event: Event<'_>, out: &mut Actions) {
        match event {
            Event::Start => self.start(now, out),
            Event::PeerUp(peer) => self.on_up(now, peer, out),
            Event::PeerDown(peer) => self.on_down(now, peer, out),
            Event::Left(peer) => self.on_left(now, peer, out),
            Event::Message { from, body } => self.on_message(now, from, body, out),
            Event::Arrived { from, block, fresh } => self.on_block(now, from, block, fresh, out),
            Event::Rejected { from, .. } => self.convict(from, out),
            Event::Sent { to, .. } => self.on_sent(now, to, out),
            Event::Coded(event) => self.on_coded(now, event, out),
            Event::Achieved { .. } | Event::Foreground(_) => {}
            Event::Timer(_) => self.on_tick(now, out),
        }
        self.check(now);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::{Member, Role};

    /// Has the peer come up with the whole object and offer it; what the node asks of which peer
    /// then.
    fn offer(node: &mut dyn Protocol, now: Time, from: NodeId) -> Vec<(NodeId, Piece)> {
        let hello = Message::Hello {
            have: BlockSet::full(1).to_wire(),
        };
        let offer = Message::Offer {
            parts: Vec::new(),
            lead: None,
            queued: 0,
            spare: false,
        };
        let mut out = Actions::default();
        node.handle(now, Event::PeerUp(from), &mut out);
        for message in [hello, offer] {
            let body = &crate::encode(&message);
            node.handle(now, Event::Message { from, body }, &mut out);
        }
        let granted = |action| match action {
            Action::Send { to, body } => match postcard::from_bytes(&body).unwrap() {
                Message::Grant { piece, .. } => Some((to, piece)),
                _ => None,
            },
            _ => None,
        };
        out.drain().filter_map(granted).collect()
    }

    #[test]
    fn a_late_block_that_will_not_come_is_not_asked_of_a_third() {
        let member = |role| Member { cluster: 0, role };
        let mut node = RANDOM_BLOCK.by_default().build(Setup {
            me: NodeId(3),
            members: [Role::Source, Role::Source, Role::Source, Role::Receiver]
                .map(member)
                .to_vec(),
            block_bytes: 1024,
            have: BlockSet::new(1),
            want: BlockSet::full(1),
            seed: 1,
            plan: None,
            batches: None,
        });
        let (now, later) = (Time::ZERO, Time::from_secs_f64(60.0));
        let block = Piece::Block(0);
        let mut out = Actions::default();
        node.handle(now, Event::Start, &mut out);
        assert_eq!(offer(&mut *node, now, NodeId(0)), [(NodeId(0), block)]);
        node.handle(later, Event::Timer(TICKER), &mut out);
        assert_eq!(offer(&mut *node, later, NodeId(1)), [(NodeId(1), block)]);
        let declined = Event::Message {
            from: NodeId(0),
            body: &crate::encode(&Message::Decline { piece: block }),
        };
        node.handle(later, declined, &mut out);
        assert_eq!(offer(&mut *node, later, NodeId(2)), []);
    }

    #[test]
    fn coded_blocks_are_small_and_the_larger_the_fewer_there_are_to_give_them() {
        let most = |receivers| match block_size(receivers) {
            BlockSize::AtMost(bytes) => bytes >> 10,
            _ => 0,
        };
        let found = [0, 1, 2, 3, 4, 5, 8, 9, 16, 19, usize::MAX].map(most);
        assert_eq!(found, [1024, 1024, 512, 256, 256, 128, 128, 64, 64, 64, 64]);
        assert_eq!((RANDOM_BLOCK.block_size)(19), BlockSize::Usual);
    }
}
