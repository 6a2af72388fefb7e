//! The time that coding takes: each node has a core for each of its encoders, which does one thing
//! after another.

use std::time::Duration;

use outpour_core::{NodeId, Rate, Time};

use super::World;

/// What the cores of a node have to do.
#[derive(Debug)]
pub(super) struct Processor {
    /// When each is through with what it was given so far.
    free: Vec<Time>,
    /// How long all together have been or will be at work for that.
    busy: Duration,
}

impl Processor {
    pub(super) fn new(cores: u8) -> Self {
        Self {
            free: vec![Time::ZERO; usize::from(cores.max(1))],
            busy: Duration::ZERO,
        }
    }

    /// Forgets what it was given: its process died.
    pub(super) fn stop(&mut self, now: Time) {
        self.free.fill(now);
    }

    /// Gives work to the core that is free first; when it will be done.
    fn take(&mut self, now: Time, work: Duration) -> Time {
        self.busy += work;
        let Some(first) = self.free.iter_mut().min() else {
            return now;
        };
        *first = now.max(*first) + work;
        *first
    }
}

impl World {
    /// Has coding take time: so many bytes of blocks or packets are multiplied and added in a
    /// second. To be said at the start; without it coding takes no time.
    pub const fn set_coding_speed(&mut self, speed: Rate) {
        self.coding_speed = speed;
    }

    /// How many nodes there are.
    pub fn node_count(&self) -> u32 {
        self.nodes.len() as u32
    }

    /// How long a node's cores were at work for coding, all together.
    pub fn coding_time(&self, node: NodeId) -> Duration {
        self.nodes[node.index()].processor.busy
    }

    /// Has a node multiply and add so many bytes; when that will be done.
    pub(super) fn compute(&mut self, node: NodeId, bytes: u64) -> Time {
        if self.coding_speed.is_unlimited() || self.coding_speed.is_zero() {
            return self.now;
        }
        let work = Duration::from_secs_f64(bytes as f64 / self.coding_speed.bytes_per_s());
        self.nodes[node.index()].processor.take(self.now, work)
    }
}
