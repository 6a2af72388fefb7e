//! When the flows that a resource limits are through.
//!
//! They all have the same rate, its level. So it is enough to count what each of them has been
//! given, and to know at which count each is through: a new level changes one number instead of
//! the finish of every flow.

use outpour_core::Time;

/// What one resource has given to each of the flows it limits.
#[derive(Debug, Default)]
pub(super) struct Clock {
    /// Bytes given to each flow, up to `since`.
    given: f64,
    since: Time,
    /// At how many bytes given each flow is through; never, if it has nothing to send.
    flows: Vec<(f64, u32)>,
}

impl Clock {
    /// Lets time pass at a level.
    pub(super) fn advance(&mut self, now: Time, level: f64) {
        let elapsed = now.since(self.since).as_secs_f64();
        if elapsed > 0.0 && level.is_finite() && !self.flows.is_empty() {
            self.given += level * elapsed;
        }
        self.since = now;
    }

    /// Adds a flow with so many bytes left; says where it is.
    pub(super) fn add(&mut self, flow: u32, left: f64) -> u32 {
        if self.flows.is_empty() {
            // Small numbers are exact.
            self.given = 0.0;
        }
        self.flows.push((self.given + left, flow));
        (self.flows.len() - 1) as u32
    }

    /// Takes a flow out; returns the bytes it has left and the flow that is in its place now.
    pub(super) fn remove(&mut self, place: u32) -> (f64, Option<u32>) {
        let (through, _) = self.flows.swap_remove(place as usize);
        let moved = self.flows.get(place as usize).map(|(_, flow)| *flow);
        ((through - self.given).max(0.0), moved)
    }

    /// How many bytes a flow has left at a time, if the level has been the same since.
    pub(super) fn left(&self, place: u32, now: Time, level: f64) -> f64 {
        let (through, _) = self.flows[place as usize];
        let elapsed = now.since(self.since).as_secs_f64();
        let given = if level.is_finite() {
            level * elapsed
        } else {
            0.0
        };
        (through - self.given - given).max(0.0)
    }

    /// Gives a flow so many bytes to send.
    pub(super) fn load(&mut self, place: u32, bytes: f64) {
        self.flows[place as usize].0 = self.given + bytes;
    }

    fn first(&self) -> Option<(f64, u32)> {
        self.flows
            .iter()
            .copied()
            .min_by(|a, b| a.partial_cmp(b).unwrap_or(std::cmp::Ordering::Equal))
    }

    /// When the first flow is through, if the level stays.
    pub(super) fn next(&self, level: f64) -> Option<Time> {
        let (through, _) = self.first()?;
        if through == f64::INFINITY || level == 0.0 {
            return None;
        }
        let nanos = ((through - self.given).max(0.0) / level * 1e9).ceil();
        // Saturates: what takes longer than virtual time lasts never ends.
        Some(Time(self.since.0.saturating_add(nanos as u64)))
    }

    /// The flow that is through first; it has nothing to send any more.
    pub(super) fn pop(&mut self) -> Option<u32> {
        let (_, flow) = self.first()?;
        self.flows
            .iter_mut()
            .filter(|(_, other)| *other == flow)
            .for_each(|it| it.0 = f64::INFINITY);
        Some(flow)
    }
}
