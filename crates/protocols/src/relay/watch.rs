//! How long a node waits for its parent, and which of its children it serves.

use std::time::Duration;

use outpour_core::{NodeId, Time};

use super::{
    ANSWER_MAX, CONNECT_MAX, DRIED_MAX, Message, Relay, SILENCE_MAX, STRAY, STRAY_MAX, Upstream,
    WAIT_MAX,
};
use crate::{Action, Actions};

/// So many times less than another is far less.
const MUCH_LESS: u32 = 4;

impl Relay {
    /// Leaves a parent that will not do.
    pub(super) fn watch_parent(&mut self, now: Time, out: &mut Actions) {
        match self.upstream {
            Upstream::None => self.seek(now, out),
            // Where nobody else is to be had, breaking off what is under way would only make it longer.
            Upstream::Connecting { peer, since }
                if now.since(since) >= CONNECT_MAX && self.has_choice(peer) =>
            {
                // A child may be the one that is slow to answer; keep that link.
                if !self.children.contains_key(&peer) {
                    out.push(Action::Disconnect(peer));
                }
                self.leave(now, out);
            }
            Upstream::Attached {
                peer,
                heard,
                progress,
                answered,
                more,
                hops,
                received,
                ..
            } => {
                let before = self.shape.parents[..self.shape.before].contains(&peer);
                let patience = if more {
                    // Blocks may take longer than expected: give the next one more time.
                    let patience = self.patience * (1 << self.dried);
                    // One that gave before may just have been held up.
                    if received > 0 { patience * 2 } else { patience }
                } else if hops == STRAY && !before {
                    STRAY_MAX
                } else {
                    WAIT_MAX
                };
                let dry = patience.max(Duration::from_secs_f64(4.0 * self.block_gap));
                let is_dry = now.since(progress) >= dry;
                let silence = if answered { SILENCE_MAX } else { ANSWER_MAX };
                if is_dry || now.since(heard) >= silence {
                    self.dried = (self.dried + u32::from(is_dry)).min(DRIED_MAX);
                    self.leave(now, out);
                }
            }
            Upstream::Connecting { .. } => {}
        }
    }

    /// The parent is not to blame for what did not come until now.
    pub(super) fn excuse(&mut self, now: Time) {
        match &mut self.upstream {
            Upstream::Attached {
                heard, progress, ..
            } => (*heard, *progress) = (now, now),
            Upstream::Connecting { since, .. } => *since = now,
            Upstream::None => {}
        }
    }

    /// Tells children that their parent is alive, and passes on those that are too many.
    ///
    /// One that was bypassed may come back: it takes its place behind the latest, which replaced it. But whoever
    /// takes far less than the others, as its disk is slow, goes behind them however late it came: it would hold
    /// up all behind it.
    pub(super) fn watch_children(&mut self, now: Time, out: &mut Actions) {
        for child in self.children.values_mut() {
            child.note_tick();
        }
        for (node, child) in &self.children {
            self.say_alive(*node, child.has_more(), out);
        }
        let mut live: Vec<(u64, u32, NodeId)> = Vec::new();
        for (node, child) in &self.children {
            if child.is_live(now) {
                // Until it is known what all take they are all served.
                let Some(progress) = child.progress() else {
                    return;
                };
                live.push((child.rank, progress, *node));
            }
        }
        live.sort_unstable();
        if live.len() <= self.shape.children_max {
            return;
        }
        let (Some(oldest), Some(newest)) = (live.first(), live.last()) else {
            return;
        };
        let most = live.iter().max_by_key(|(_, progress, _)| *progress);
        let slow = most.filter(|(_, most, _)| newest.1.saturating_mul(MUCH_LESS) < *most);
        let (who, to) = slow.map_or((oldest.2, newest.2), |(.., best)| (newest.2, *best));
        if who != to {
            out.send(who, &Message::Redirect { to });
        }
    }
}
