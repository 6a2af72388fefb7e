//! What happens once per window of data: a share of marks, a reaction to congestion.
//!
//! A window of data ends when a packet is acknowledged that was sent after it began. Numbers of packets
//! tell which ones were, so no clock and no estimate of the round-trip time is needed.

/// Counts acknowledgements and marks of one window of data after the other.
#[derive(Clone, Debug, Default)]
pub(crate) struct Marks {
    /// The window is over when this packet, or a later one, is acknowledged.
    end: Option<u64>,
    acked: u64,
    marked: u64,
}

impl Marks {
    /// Counts `acked` packets, of which `marked` were, up to number `largest`. Returns the share of marked
    /// packets of the window that this ends.
    pub(crate) fn count(
        &mut self,
        acked: u64,
        marked: u64,
        largest: u64,
        next: u64,
    ) -> Option<f64> {
        debug_assert!(marked <= acked, "more marks than packets");
        self.acked = self.acked.saturating_add(acked);
        self.marked = self.marked.saturating_add(marked);
        let end = *self.end.get_or_insert(next);
        debug_assert!(self.marked <= self.acked, "counted apart");
        if largest < end || self.acked == 0 {
            return None;
        }
        let share = self.marked as f64 / self.acked as f64;
        debug_assert!((0.0..=1.0).contains(&share), "{share}");
        *self = Self {
            end: Some(next),
            ..Self::default()
        };
        Some(share)
    }

    /// Begins anew with the packet of number `next`: nothing before it will be acknowledged.
    pub(crate) fn restart(&mut self, next: u64) {
        *self = Self {
            end: Some(next),
            ..Self::default()
        };
    }
}

/// Makes sure that one window of data brings about one reaction: what else is lost or marked of it was
/// sent before the sender could react.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Recovery {
    /// The first packet that was sent after the reaction.
    until: Option<u64>,
}

impl Recovery {
    /// Whether the packet was sent before the last reaction.
    pub(crate) fn covers(self, packet: u64) -> bool {
        self.until.is_some_and(|until| packet < until)
    }

    /// Notes a reaction; the next packet is the first that knows of it.
    pub(crate) fn begin(&mut self, next: u64) {
        // A driver that counts back would otherwise make the same packets bring about another reaction.
        self.until = Some(self.until.map_or(next, |until| until.max(next)));
        debug_assert!(
            next == 0 || self.covers(next - 1),
            "sent before the reaction"
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_comes_once_per_window_of_data() {
        let mut marks = Marks::default();
        // Ten packets were sent before the first acknowledgement: the window ends with packet 10.
        for largest in 0..10 {
            assert_eq!(
                marks.count(1, u64::from(largest < 5), largest, 10 + largest),
                None
            );
        }
        assert_eq!(marks.count(1, 0, 10, 20), Some(5.0 / 11.0));
        assert_eq!(marks.count(1, 1, 19, 30), None);
        assert_eq!(marks.count(1, 1, 20, 31), Some(1.0));
    }

    #[test]
    fn packets_sent_before_a_reaction_are_covered() {
        let mut recovery = Recovery::default();
        assert!(!recovery.covers(0));
        recovery.begin(10);
        assert!(recovery.covers(9) && !recovery.covers(10));
        recovery.begin(5);
        assert!(recovery.covers(9));
    }
}
