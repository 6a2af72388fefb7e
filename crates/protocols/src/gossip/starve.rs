//! When to ask a source for what others could give.
//!
//! A source that gives each block once is asked for new blocks, and others for the rest, which they
//! have of it. But the nodes that were given it may be lost, or slow, or stand still, and a node that is
//! behind can do nothing with new blocks: it has packets of a few batches only. So what no other node
//! gives for a while is asked of the source, and from then on without a pause, until another node gives
//! of it again: a wait for each piece would be longer the fewer pieces come.

use std::time::Duration;

use outpour_core::{BatchId, NodeId, Time};

use super::Gossip;
use super::receive::Choice;

/// A source is asked for what others could give if nothing of it came for so long and for so many
/// times the usual gap. If batches are of so many blocks that there is much else to ask for
/// meanwhile, also for so many times what a piece usually takes: what the source gave another node is
/// on its way.
const STARVE: Duration = Duration::from_millis(250);
pub(super) const STARVE_GAPS: f64 = 8.0;
const STARVE_TIMES: f64 = 6.0;
const STARVE_BLOCKS: u16 = 16;

impl Gossip {
    /// How long others may give nothing.
    fn patience(&self) -> Duration {
        let mut usual = STARVE_GAPS * self.usual_gap();
        if self.hold.batches.size() >= STARVE_BLOCKS {
            usual = usual.max(STARVE_TIMES * self.latency);
        }
        debug_assert!(usual > 0.0);
        STARVE.max(Duration::from_secs_f64(usual))
    }

    /// Whether nothing of a batch came for long.
    pub(super) fn starves(&self, now: Time, batch: BatchId) -> bool {
        let live = self.hold.live.get(&batch);
        debug_assert!(
            !self.hold.whole.contains(batch),
            "what is whole starves of nothing"
        );
        let since = live.map_or(self.gained, |live| live.grew);
        debug_assert!(since <= now);
        live.is_none_or(|live| live.coming.is_empty()) && now.since(since) >= self.patience()
    }

    /// From when on a batch is looked at it is known whether others give of it.
    pub(super) fn mind_candidates(&mut self, now: Time, from: NodeId) {
        if !self.coded || self.lead_of(from).is_none() {
            return;
        }
        for batch in self.candidates() {
            if !self.hold.live.contains_key(&batch) {
                self.hold.live_mut(batch, now).fed = self.fed;
            }
        }
    }

    /// What to ask of a source that would rather give of the batch `fresh`, which is of no use
    /// here: what no other node gave for long.
    pub(super) fn choose_unfed(&self, now: Time, from: NodeId, fresh: BatchId) -> Option<Choice> {
        let peer = self.neighbours.get(from)?;
        let standing = peer.standing.as_ref()?;
        debug_assert!(self.coded);
        let patience = self.patience();
        let unfed = |batch: &BatchId| {
            let live = self.hold.live.get(batch);
            *batch != fresh && live.is_some_and(|live| now.since(live.fed) >= patience)
        };
        let found = self.candidates().filter(unfed);
        let mut found = found.map(|batch| self.adds(peer, standing, batch));
        found.find(|choice| matches!(choice, Choice::Take(..)))
    }

    /// The batch that a source would rather send of, if it offers any.
    fn lead_of(&self, node: NodeId) -> Option<BatchId> {
        let standing = self.neighbours.get(node)?.standing.as_ref()?;
        standing.lead.and_then(|lead| lead.fresh)
    }
}
