//! What a node knows of one neighbour.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use outpour_core::{BatchId, BlockSet, Holding, NodeId, Time};

use super::message::{Lead, Part, Piece};
use super::receive::{AHEAD_MAX, OWED_MAX};
use super::send::QUEUED_MAX;

/// What a neighbour says it could send.
#[derive(Debug)]
pub(super) struct Standing {
    pub(super) parts: Vec<Part>,
    pub(super) lead: Option<Lead>,
    /// Counts the offers that came here: earlier ones are made use of first.
    pub(super) turn: u64,
    /// The neighbour had little to do, when it said so.
    pub(super) spare: Option<Time>,
}

/// For so long it is believed that a neighbour has little to do.
const SPARE: Duration = Duration::from_millis(250);

impl Standing {
    /// Whether the neighbour has little else to do.
    pub(super) fn is_spare(&self, now: Time) -> bool {
        self.spare.is_some_and(|at| now.since(at) < SPARE)
    }
}

/// Something a neighbour was asked to send.
#[derive(Clone, Copy, Debug)]
pub(super) struct Granted {
    pub(super) piece: Piece,
    pub(super) at: Time,
    /// What the neighbour said to have of the batch.
    pub(super) theirs: Holding,
    /// The neighbour is to offer again at once, and has not yet.
    pub(super) more: bool,
    /// It has left there.
    pub(super) left: bool,
    /// It takes so long that it is not counted on any more.
    pub(super) late: bool,
}

impl Granted {
    /// Whether it is counted on and has not left.
    const fn is_due(&self) -> bool {
        !self.late && !self.left
    }
}

/// What a neighbour gave of a batch.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Gave {
    /// Packets that were new: so much of what it has is here.
    pub(super) innovative: u16,
    /// With so much of the batch it had nothing new.
    pub(super) barren: u16,
    /// Pure packets among those that were new.
    pub(super) pure: u16,
}

/// What others say of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Repute {
    /// Nothing bad.
    Good,
    /// This node, which may be wrong itself, says that it sent something wrong.
    Doubtful(NodeId),
    /// So say two: it is served when all others have everything.
    Bad,
}

/// What became of this node's last offer to a neighbour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Offered {
    /// There is none.
    Not,
    /// It was not answered, since then.
    Asked(Time),
    /// The neighbour may make use of it later.
    Stands,
    /// There was nothing new in it.
    Stale,
}

#[derive(Debug)]
pub(super) struct Neighbour {
    /// It said as a set what it has, which it does once.
    pub(super) greeted: bool,
    /// Batches that are whole there.
    pub(super) whole: BlockSet,
    /// Blocks that are there for all we know.
    pub(super) blocks: BlockSet,

    // ---- as a receiver
    /// It takes only what is made of verified blocks.
    pub(super) careful: bool,
    /// The last offer said which blocks there are.
    pub(super) offered_blocks: bool,
    pub(super) offered: Offered,
    pub(super) offered_at: Time,
    /// What there was to offer then: `Holdings::gains`.
    pub(super) offered_gains: u64,
    /// The batch that a source would rather send, as of that offer.
    pub(super) offered_lead: Option<Lead>,
    /// Pieces under way to it.
    pub(super) queue: usize,

    // ---- as a sender
    pub(super) standing: Option<Standing>,
    pub(super) granted: VecDeque<Granted>,
    /// Pieces granted one after the other.
    pub(super) lease: u32,
    /// A piece came before the offer that was to follow it: its place is kept, since then.
    pub(super) renews: Option<Time>,
    /// What came from it of batches that are not whole here.
    pub(super) gave: BTreeMap<BatchId, Gave>,
    pub(super) innovative: u32,
    pub(super) dependent: u32,
    pub(super) unasked: u32,
    /// The next thing to ask of it is a block, not a packet.
    pub(super) block_next: bool,
}

impl Neighbour {
    /// It says what it has as a set; whether it did before.
    pub(super) const fn greets_again(&mut self) -> bool {
        std::mem::replace(&mut self.greeted, true)
    }

    pub(super) fn new(batches: u32, blocks: u32) -> Self {
        Self {
            greeted: false,
            whole: BlockSet::new(batches),
            blocks: BlockSet::new(blocks),
            careful: false,
            offered_blocks: false,
            offered: Offered::Not,
            offered_at: Time::ZERO,
            offered_gains: 0,
            offered_lead: None,
            queue: 0,
            standing: None,
            granted: VecDeque::new(),
            lease: 0,
            renews: None,
            gave: BTreeMap::new(),
            innovative: 0,
            dependent: 0,
            unasked: 0,
            block_next: false,
        }
    }

    /// What holds of it after every event.
    pub(super) fn check(&self, now: Time, turn: u64) {
        debug_assert!(self.queue <= QUEUED_MAX);
        debug_assert!(self.granted.len() <= OWED_MAX);
        debug_assert!(self.coming() <= AHEAD_MAX);
        debug_assert!(self.granted.iter().all(|grant| grant.at <= now));
        debug_assert!(self.renews.is_none_or(|since| since <= now));
        debug_assert!(self.offered_at <= now);
        if let Offered::Asked(at) = self.offered {
            debug_assert_eq!(at, self.offered_at);
        }
        if let Some(standing) = &self.standing {
            debug_assert!(standing.turn <= turn);
            debug_assert!(standing.spare.is_none_or(|since| since <= now));
        }
    }

    /// It answers the last offer, if it has not already; keeps the shortest time that takes, in
    /// seconds.
    pub(super) fn answers(&self, now: Time, round_trip: &mut f64) -> bool {
        let Offered::Asked(at) = self.offered else {
            return false;
        };
        *round_trip = round_trip.min(now.since(at).as_secs_f64());
        true
    }

    /// How many pieces are on their way from it.
    pub(super) fn coming(&self) -> usize {
        self.granted.iter().filter(|grant| grant.is_due()).count()
    }

    /// Whether it has a place: something of it is coming, or about to.
    pub(super) fn is_placed(&self) -> bool {
        self.renews.is_some() || self.granted.iter().any(Granted::is_due)
    }
}
