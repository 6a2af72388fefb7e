//! Lets a script change the network while the transfer runs.

use outpour_core::network::{Change, ClusterId};
use outpour_core::script::Timeline;

use super::{Happening, World};

impl World {
    /// Takes the script's next moment from the timeline and waits for it.
    pub(super) fn follow_script(&mut self) {
        if let Some((at, changes)) = self.timeline.as_mut().and_then(Timeline::next) {
            self.changes = changes;
            self.queue.push(at, Happening::Script);
        }
    }

    pub(super) fn on_script(&mut self) {
        self.trace.record(self.now, "script", [0; 3], &[]);
        for change in std::mem::take(&mut self.changes) {
            self.wires.apply(&change);
            if let Change::Delay { from, to, .. } = change {
                self.refresh_delays(from, to);
            }
        }
        self.follow_script();
    }

    pub(super) fn refresh_all_delays(&mut self) {
        let clusters = || (0..self.wires.network.clusters().len() as u32).map(ClusterId);
        let pairs: Vec<_> = clusters()
            .flat_map(|from| clusters().map(move |to| (from, to)))
            .collect();
        for (from, to) in pairs {
            self.refresh_delays(from, to);
        }
    }

    fn refresh_delays(&mut self, from: ClusterId, to: ClusterId) {
        let network = &self.wires.network;
        for sender in network.nodes_of(from) {
            for receiver in network.nodes_of(to) {
                if let Some(end) = self.ends.get_mut(sender, receiver) {
                    end.delay = network.path(sender, receiver).delay;
                }
            }
        }
    }
}
