//! Rates that protocols set towards peers while blocks move, and what comes of them.

use std::time::Duration;

use outpour_core::{NodeId, Rate, Time};
use outpour_protocols::node::Input;

use super::packets::Piece;
use super::{Happening, World};

/// How often a node is told what its peers achieve towards which it has set a rate.
const ACHIEVED: Duration = Duration::from_millis(500);
/// What was sent is compared with what a rate allows up to this share, and this many bytes.
const TOLERANCE: f64 = 1e-6;
const TOLERANCE_BYTES: f64 = 1.0;

/// A rate from one node towards another.
#[derive(Debug)]
pub(super) struct Pace {
    /// Bytes per second.
    rate: f64,
    /// Since when that is so.
    since: Time,
    /// Bytes that the rates so far allowed until then, since it was last told.
    allowed: f64,
    /// Bytes of the pieces that have left since it was set.
    sent: f64,
    /// Bytes that had left when it was last told, those of the piece under way included, and when.
    told: (f64, Time),
}

impl Pace {
    /// The rate changes.
    fn change(&mut self, now: Time, rate: f64) {
        self.allowed += self.rate * now.since(self.since).as_secs_f64();
        (self.rate, self.since) = (rate, now);
    }
}

impl World {
    /// The most that a node may send a peer, in bytes per second, as it has set it.
    pub(super) fn rate_towards(&self, from: NodeId, to: NodeId) -> f64 {
        let pace = self.paces.get(&(from, to));
        pace.map_or(f64::INFINITY, |pace| pace.rate)
    }

    /// A node sets a rate towards a peer, or takes it away.
    pub(super) fn set_rate(&mut self, from: NodeId, to: NodeId, rate: Rate) {
        let (now, under_way) = (self.now, self.under_way(from, to));
        if rate.is_unlimited() {
            self.paces.remove(&(from, to));
            return self.limit(from, to);
        }
        let rate = rate.bytes_per_s();
        let new = || Pace {
            rate,
            since: now,
            allowed: 0.0,
            sent: 0.0,
            told: (under_way, now),
        };
        let pace = self.paces.entry((from, to)).or_insert_with(new);
        pace.change(now, rate);
        self.limit(from, to);
        let node = &mut self.nodes[from.index()];
        if !std::mem::replace(&mut node.measures, true) {
            let life = node.life;
            let achieved = Happening::Achieved { node: from, life };
            self.queue.push(now + ACHIEVED, achieved);
        }
    }

    /// The connection is gone, and its rate with it.
    pub(super) fn forget_rate(&mut self, from: NodeId, to: NodeId) {
        if !self.paces.is_empty() && self.paces.remove(&(from, to)).is_some() {
            self.limit(from, to);
        }
    }

    /// A piece has left.
    pub(super) fn note_sent(&mut self, from: NodeId, to: NodeId, bytes: u32) {
        if !self.paces.is_empty()
            && let Some(pace) = self.paces.get_mut(&(from, to))
        {
            pace.sent += f64::from(bytes);
        }
    }

    /// How much of the piece under way has left, in bytes.
    fn under_way(&self, from: NodeId, to: NodeId) -> f64 {
        let Some(end) = self.ends.get(from, to) else {
            return 0.0;
        };
        let (Some(flow), Some(piece)) = (end.flow, end.queue.front()) else {
            return 0.0;
        };
        match piece {
            // It is still being made.
            Piece::Packet { ready, .. } if *ready > self.now => 0.0,
            // One that ends just now has left all but for the word of it.
            _ => (f64::from(self.bytes_of(*piece)) - self.left(flow)).max(0.0),
        }
    }

    /// Tells a node what its peers achieve.
    pub(super) fn on_achieved(&mut self, node: NodeId, life: u32) {
        if self.nodes[node.index()].life != life {
            return;
        }
        let own = (node, NodeId(0))..=(node, NodeId(u32::MAX));
        let peers: Vec<NodeId> = self.paces.range(own).map(|((_, to), _)| *to).collect();
        if peers.is_empty() {
            self.nodes[node.index()].measures = false;
            return;
        }
        for to in peers {
            if let Some(rate) = self.measure(node, to) {
                self.tell(node, Input::Achieved(to, rate));
            }
        }
        let achieved = Happening::Achieved { node, life };
        self.queue.push(self.now + ACHIEVED, achieved);
    }

    /// What a peer achieved since it was last told; nothing if that is now.
    fn measure(&mut self, from: NodeId, to: NodeId) -> Option<Rate> {
        let (now, under_way) = (self.now, self.under_way(from, to));
        let pace = self.paces.get_mut(&(from, to))?;
        pace.change(now, pace.rate);
        let left = pace.sent + under_way;
        let (before, at) = std::mem::replace(&mut pace.told, (left, now));
        let (moved, allowed) = (left - before, std::mem::take(&mut pace.allowed));
        if self.checked && moved > allowed * (1.0 + TOLERANCE) + TOLERANCE_BYTES {
            let what = format!("{moved} bytes left for {to} where its rate allows {allowed}");
            self.audit.violation(now, Some(from), what);
        }
        let seconds = now.since(at).as_secs_f64();
        let rate = (seconds > 0.0).then(|| moved.max(0.0) / seconds)?;
        Rate::from_bytes_per_s(rate)
    }
}
