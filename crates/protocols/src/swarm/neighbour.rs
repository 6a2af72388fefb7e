//! What a node knows of one neighbour.

use std::collections::VecDeque;

use outpour_core::{BlockId, BlockSet, Time};

use super::download::{
    CREDIT_MAX, PACED_MIN, PER_NEIGHBOUR_MAX, UNPROVEN_MAX, VAIN_MAX, WINDOW_SLACK_S,
};
use super::upload::{REQUESTS_MAX, SLOTS_MAX};
use crate::peers::Peers;

/// A block that is to come.
#[derive(Clone, Copy)]
pub(super) struct Asked {
    pub(super) block: BlockId,
    pub(super) since: Time,
    /// It was not requested: a seeding source gave it earlier.
    pub(super) given: bool,
}

/// What a neighbour wants. Nearly always that is everything, which takes no memory and no look.
pub(super) enum Wanted {
    /// Every block.
    All,
    /// These; none if it is a relay.
    Only(BlockSet),
}

impl Wanted {
    pub(super) fn of(blocks: BlockSet) -> Self {
        match blocks.is_full() {
            true => Self::All,
            false => Self::Only(blocks),
        }
    }

    fn contains(&self, block: BlockId) -> bool {
        match self {
            Self::All => true,
            Self::Only(blocks) => blocks.contains(block),
        }
    }

    /// How many blocks of so many.
    pub(super) fn count(&self, blocks: u32) -> u32 {
        match self {
            Self::All => blocks,
            Self::Only(only) => only.count(),
        }
    }

    /// Whether it wants nothing for itself.
    pub(super) const fn is_nothing(&self) -> bool {
        match self {
            Self::All => false,
            Self::Only(blocks) => blocks.is_empty(),
        }
    }

    /// What it lacks of that when it has these.
    pub(super) fn lacking(&self, theirs: &BlockSet) -> BlockSet {
        let mut lacking = match self {
            Self::All => BlockSet::full(theirs.len()),
            Self::Only(blocks) => blocks.clone(),
        };
        lacking.subtract(theirs);
        lacking
    }
}

/// One neighbour, from its `PeerUp` to its `PeerDown`.
pub(super) struct Neighbour {
    /// The blocks it said it has.
    pub(super) theirs: BlockSet,
    /// The blocks it said it wants.
    pub(super) want: Wanted,
    /// How many of those it lacks.
    pub(super) lacks: u32,
    /// It is a source that gives each block once first: ask it, do not request.
    pub(super) seeding: bool,
    /// How often it said what it has as a set.
    pub(super) bitfields: u32,
    /// When it ended giving each block once, if it did.
    pub(super) ended: Option<Time>,
    /// When something last came from it.
    pub(super) heard: Time,
    /// When something was last said to it.
    pub(super) spoken: Time,

    /// Blocks requested from it, and given by it as a seeding source, oldest first.
    pub(super) asked: VecDeque<Asked>,
    /// Blocks asked of it as a seeding source that have not come.
    pub(super) credit: u32,
    /// When it last delivered, or when the credit rose from zero.
    pub(super) delivered: Time,
    /// Seconds from request to arrival, smoothed; zero until known.
    pub(super) latency: f64,
    /// The shortest time from request to arrival, in seconds; zero until known.
    pub(super) best: f64,
    /// Seconds between arrivals of what was requested while something was, smoothed; zero until known.
    pub(super) pace: f64,
    /// How many requested blocks came from it.
    pub(super) came: u32,
    /// Seconds between blocks from it as a seeding source, smoothed; zero until known.
    pub(super) gap: f64,
    /// It failed to deliver; nothing is asked of it until then.
    pub(super) snubbed_until: Option<Time>,
    /// How often it failed to, less how often it delivered since.
    pub(super) vain: u32,
    /// It had nothing to request when last looked at.
    pub(super) dull: bool,

    /// Blocks it requested from us that are not with the driver yet, oldest first.
    pub(super) wants: VecDeque<BlockId>,
    /// Blocks it asked of us as a seeding source.
    pub(super) wants_any: u32,
    /// It may request although we seed.
    pub(super) released: bool,
    /// Blocks it was given by us as a seeding source, if it was any.
    pub(super) given: Option<BlockSet>,
    /// Blocks for it in the driver's queue, and whether it waits for them.
    pub(super) queued: Vec<(BlockId, bool)>,
}

impl Neighbour {
    pub(super) fn new(blocks: u32, now: Time) -> Self {
        Self {
            theirs: BlockSet::new(blocks),
            want: Wanted::Only(BlockSet::new(blocks)),
            lacks: blocks,
            seeding: false,
            bitfields: 0,
            ended: None,
            heard: now,
            spoken: now,
            asked: VecDeque::new(),
            credit: 0,
            delivered: now,
            latency: 0.0,
            best: 0.0,
            pace: 0.0,
            came: 0,
            gap: 0.0,
            snubbed_until: None,
            vain: 0,
            dull: false,
            wants: VecDeque::new(),
            wants_any: 0,
            released: false,
            given: None,
            queued: Vec::new(),
        }
    }

    /// What holds between any two events, in so far as it costs nothing to look.
    pub(super) fn check(&self, now: Time) {
        if let Wanted::Only(blocks) = &self.want {
            debug_assert_eq!(self.theirs.len(), blocks.len());
        }
        debug_assert!(self.lacks <= self.theirs.len());
        debug_assert!(self.asked.len() <= PER_NEIGHBOUR_MAX);
        debug_assert!(self.credit <= CREDIT_MAX);
        debug_assert!(
            self.credit == 0 || self.seeding,
            "only sources are asked for any"
        );
        debug_assert!(self.wants.len() <= REQUESTS_MAX);
        debug_assert!(self.wants_any as usize <= REQUESTS_MAX);
        debug_assert!(self.queued.len() <= SLOTS_MAX);
        debug_assert!(self.vain <= VAIN_MAX);
        debug_assert!(self.latency >= 0.0);
        debug_assert!(self.gap >= 0.0);
        debug_assert!(self.heard <= now);
        debug_assert!(self.spoken <= now);
        debug_assert!(self.delivered <= now);
    }

    /// It says what it has and what it wants.
    pub(super) fn set(&mut self, theirs: BlockSet, want: Wanted) {
        self.lacks = match &want {
            Wanted::All => theirs.missing(),
            Wanted::Only(_) => want.lacking(&theirs).count(),
        };
        debug_assert!(self.lacks <= theirs.missing());
        (self.theirs, self.want) = (theirs, want);
    }

    /// It has got a block; whether that was not known.
    pub(super) fn got(&mut self, block: BlockId) -> bool {
        let fresh = self.theirs.insert(block);
        let lacked = fresh && self.want.contains(block);
        debug_assert!(self.lacks > 0 || !lacked, "it lacked block {block}");
        self.lacks -= u32::from(lacked);
        fresh
    }

    /// It turns out not to have a block; whether it was thought to have it.
    pub(super) fn lost(&mut self, block: BlockId) -> bool {
        let had = self.theirs.remove(block);
        self.lacks += u32::from(had && self.want.contains(block));
        had
    }

    /// Whether it matters to it which blocks there are: it lacks some, or may take some for others.
    pub(super) const fn is_curious(&self) -> bool {
        self.lacks > 0 || self.want.is_nothing() && !self.theirs.is_full()
    }

    /// Whether it waits for blocks from us.
    pub(super) fn is_waiting(&self) -> bool {
        let queued = self.queued.iter().any(|(_, wanted)| *wanted);
        !self.wants.is_empty() || self.wants_any > 0 || queued
    }

    /// It wants a block, after all perhaps; says whether that is with the driver.
    pub(super) fn wants_again(&mut self, block: BlockId) -> bool {
        let queued = self.queued.iter_mut().find(|(queued, _)| *queued == block);
        queued.map(|(_, wanted)| *wanted = true).is_some()
    }

    /// It is given a block, of so many, by us as a seeding source.
    pub(super) fn give(&mut self, block: BlockId, blocks: u32) {
        let given = self.given.get_or_insert_with(|| BlockSet::new(blocks));
        let fresh = given.insert(block);
        debug_assert!(fresh, "{block} was given before");
    }

    /// Whether it was given a block: then that is on its way, or there.
    pub(super) fn was_given(&self, block: BlockId) -> bool {
        let given = self.given.as_ref();
        given.is_some_and(|given| given.contains(block))
    }

    /// It does not want these any more. What is with the driver comes all the same.
    pub(super) fn cancel(&mut self, blocks: &[BlockId]) {
        self.wants.retain(|want| !blocks.contains(want));
        for (block, wanted) in &mut self.queued {
            *wanted &= !blocks.contains(block);
        }
    }

    /// How many requests it may have: as many as it answers in twice its shortest delay and a little more.
    /// One that failed has to deliver first, and of one of which nothing is known it is not known
    /// whether it will. What comes first comes in a burst, which says nothing of a neighbour's rate, so it gets one more
    /// for each block: else the first to answer would be asked for all that others have as well.
    pub(super) fn allowance(&self) -> usize {
        if self.vain > 0 {
            return 1;
        }
        if !self.has_delivered() {
            return UNPROVEN_MAX;
        }
        let pace = if self.pace > 0.0 { self.pace } else { self.gap };
        let cover = 2.0 * self.best + WINDOW_SLACK_S;
        let known = UNPROVEN_MAX.saturating_add(self.came as usize);
        ((cover / pace) as usize).clamp(PACED_MIN, PER_NEIGHBOUR_MAX.min(known))
    }

    /// How many of its requests nobody counts on, as it may never answer.
    pub(super) fn doubtful(&self) -> usize {
        if self.vain == 0 && self.has_delivered() {
            return 0;
        }
        self.asked.len().saturating_sub(self.allowance())
    }

    /// Whether anything ever came from it.
    pub(super) const fn has_delivered(&self) -> bool {
        self.latency > 0.0 || self.gap > 0.0
    }

    pub(super) fn is_snubbed(&self, now: Time) -> bool {
        self.snubbed_until.is_some_and(|until| until > now)
    }
}

/// The neighbours of a node.
pub(super) type Neighbours = Peers<Neighbour>;
