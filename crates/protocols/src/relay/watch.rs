//! How long a node waits for its parent, and which of its children it serves.

use std::time::Duration;

use outpour_core::{NodeId, Time};

use super::{
    ANSWER_MAX, CONNECT_MAX, DRIED_MAX, Message, Relay, SILENCE_MAX, STRAY, STRAY_MAX, Upstream,
    WAIT_MAX,
};
use crate::{Action, Actions};

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

    /// Tells children that their parent is alive, and passes on those that are too many.
    ///
    /// One that was bypassed may come back, and one may insist. It takes its place behind whoever takes more: a
    /// child that takes little, as its disk is slow, would hold up all behind it. Until it is known what all take they
    /// are all served.
    pub(super) fn watch_children(&mut self, now: Time, out: &mut Actions) {
        for child in self.children.values_mut() {
            child.note_tick();
        }
        for (node, child) in &self.children {
            self.say_alive(*node, child.has_more(), out);
        }
        let live = self.children.iter().filter(|(_, child)| child.is_live(now));
        let live = live.map(|(node, child)| Some((child.progress()?, child.rank, *node)));
        let live: Vec<Option<(u32, u64, NodeId)>> = live.collect();
        if live.len() <= self.shape.children_max {
            return;
        }
        let Some(live) = live.into_iter().collect::<Option<Vec<_>>>() else {
            return;
        };
        if let (Some((.., least)), Some((.., most))) = (live.iter().min(), live.iter().max()) {
            out.send(*least, &Message::Redirect { to: *most });
        }
    }
}
