//! A peer that is up: what it wants and has, and how things stand with it.

use outpour_core::{BlockId, BlockSet, Time};

use super::preference::Preference;
use crate::interest::{Interest, Metal, Offers};
use crate::requests::Requests;

/// A peer that is up.
#[derive(Debug)]
pub(super) struct Peer {
    pub(super) local: bool,
    /// It wants nothing itself, as far as is known.
    pub(super) relay: bool,
    /// It was told what this node desires.
    pub(super) greeted: bool,
    /// How many blocks this node had then.
    pub(super) told: u32,
    /// When it came up.
    pub(super) since: Time,
    /// When it was first asked for something, or last delivered, since it was asked for nothing.
    pub(super) waited_for: Time,
    /// Something came from it.
    pub(super) delivered: bool,
    /// It said what it desires.
    pub(super) spoke: bool,
    /// The blocks it is known to have.
    pub(super) theirs: BlockSet,
    /// What it desires of us, if it is foreign.
    pub(super) wants: BlockSet,
    pub(super) offers: Offers,
    pub(super) requests: Requests,
    /// In the labour force: it presumably has work.
    pub(super) works: bool,
    /// It has all that it wants.
    pub(super) done: bool,
    /// It takes no work, as it does not want everything.
    pub(super) loner: bool,
    /// What this node is to fetch for it.
    pub(super) errand: Option<BlockSet>,
}

impl Peer {
    pub(super) fn new(now: Time, local: bool, relay: bool, blocks: u32) -> Self {
        Self {
            local,
            relay,
            greeted: false,
            told: 0,
            since: now,
            waited_for: now,
            delivered: false,
            spoke: false,
            theirs: BlockSet::new(blocks),
            wants: BlockSet::new(if local { 0 } else { blocks }),
            offers: Offers::default(),
            requests: Requests::default(),
            works: false,
            done: false,
            loner: false,
            errand: None,
        }
    }

    pub(super) const fn metal(&self) -> Metal {
        if self.local { Metal::Any } else { Metal::Gold }
    }

    /// Notes a block it has, if that may be asked of it.
    pub(super) fn offer(&mut self, block: BlockId, interest: &Interest, preference: &Preference) {
        if interest.wants(block, self.metal()) {
            let preferred = preference.prefers(block, self.local);
            self.offers.add(block, preferred, interest);
        }
    }

    /// Whether it has to hear that this node got the block.
    pub(super) fn cares_for(&self, block: BlockId) -> bool {
        self.spoke && !self.theirs.contains(block) && (self.local || self.wants.contains(block))
    }
}
