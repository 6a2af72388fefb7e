//! What a port has done.

/// What a port has done from the start of time to a given moment.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Stats {
    /// Packets that were served.
    pub packets: u64,
    /// Bytes of the packets that were served, headers included.
    pub bytes: u64,
    /// Packets that were marked.
    pub marked: u64,
    /// Packets that found no room.
    pub dropped: u64,
    /// Packets that were lost at random or on order.
    pub lost: u64,
    /// Packets that lost their payload and went on.
    pub trimmed: u64,
    /// How many packets waited in all queues together on average over time, the one in service
    /// left out.
    pub mean_queue_packets: f64,
    /// How many wait at that moment.
    pub queue_packets: u64,
    /// How many waited at most.
    pub max_queue_packets: u64,
    /// For how many nanoseconds a packet was in service, also at a rate of zero.
    pub busy_nanos: u64,
}

/// The counters behind [`Stats`].
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Tally {
    pub(crate) packets: u64,
    pub(crate) bytes: u64,
    pub(crate) marked: u64,
    pub(crate) dropped: u64,
    pub(crate) lost: u64,
    pub(crate) trimmed: u64,
    pub(crate) busy_nanos: u64,
    waiting: u64,
    most: u64,
    /// Packets times nanoseconds: there are no more than 2^64 of each.
    area: u128,
    changed: u64,
}

impl Tally {
    /// From now on `waiting` packets wait.
    pub(crate) fn wait(&mut self, waiting: u64, now: u64) {
        self.area += u128::from(self.waiting) * u128::from(now - self.changed);
        self.changed = now;
        self.waiting = waiting;
        self.most = self.most.max(waiting);
    }

    /// What has been done up to `now`, if a packet has been in service since `busy_since`.
    pub(crate) fn stats(&self, busy_since: Option<u64>, now: u64) -> Stats {
        let since = now.saturating_sub(self.changed);
        let area = self.area + u128::from(self.waiting) * u128::from(since);
        let busy = busy_since.map_or(0, |since| now.saturating_sub(since));
        Stats {
            packets: self.packets,
            bytes: self.bytes,
            marked: self.marked,
            dropped: self.dropped,
            lost: self.lost,
            trimmed: self.trimmed,
            mean_queue_packets: area as f64 / (now as f64).max(1.0),
            queue_packets: self.waiting,
            max_queue_packets: self.most,
            busy_nanos: self.busy_nanos + busy,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_packets_that_wait_for_centuries_are_counted() {
        let mut tally = Tally::default();
        tally.wait(1_000_000, 0);
        let end = u64::MAX / 2;
        assert_eq!(tally.stats(None, end).mean_queue_packets, 1e6);
        tally.wait(0, end);
        assert_eq!(tally.stats(None, u64::MAX - 1).mean_queue_packets, 5e5);
    }
}
