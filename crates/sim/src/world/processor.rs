//! The time that coding takes: each node has one core for it, which does one thing after another.

use std::time::Duration;

use outpour_core::{NodeId, Rate, Time};

use super::World;

/// What the core of a node has to do.
#[derive(Debug, Default)]
pub(super) struct Processor {
    /// When it is through with what it was given so far.
    free: Time,
    /// How long it has been or will be at work for that.
    busy: Duration,
}

impl Processor {
    /// Forgets what it was given: its process died.
    pub(super) const fn stop(&mut self, now: Time) {
        self.free = now;
    }
}

impl World {
    /// Has coding take time: so many bytes of blocks or packets are multiplied and added in a
    /// second. To be said at the start; without it coding takes no time.
    pub const fn set_coding_speed(&mut self, speed: Rate) {
        self.coding_speed = speed;
    }

    /// How long a node's core was at work for coding.
    pub fn coding_time(&self, node: NodeId) -> Duration {
        self.nodes[node.index()].processor.busy
    }

    /// Has a node multiply and add so many bytes; when that will be done.
    pub(super) fn compute(&mut self, node: NodeId, bytes: u64) -> Time {
        if self.coding_speed.is_unlimited() || self.coding_speed.is_zero() {
            return self.now;
        }
        let work = Duration::from_secs_f64(bytes as f64 / self.coding_speed.bytes_per_s());
        let processor = &mut self.nodes[node.index()].processor;
        processor.busy += work;
        processor.free = processor.free.max(self.now) + work;
        processor.free
    }
}
