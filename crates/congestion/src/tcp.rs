//! What the descendants of TCP share: slow start below a threshold, one reaction per window of data, one
//! packet after a timeout.

use crate::round::Recovery;
use crate::{Ack, Timeout, WINDOW_MAX, WINDOW_MIN, bounded};

/// No threshold is lower, in packets (RFC 5681, equation 4).
const THRESHOLD_MIN: f64 = 2.0;

#[derive(Clone, Debug)]
pub(crate) struct Tcp {
    /// Packets.
    pub(crate) window: f64,
    /// Below it the window grows with every packet.
    threshold: f64,
    recovery: Recovery,
    /// Whether the window stays until a packet is acknowledged that was sent after the last reaction.
    holds: bool,
    /// Whether nothing was acknowledged since the last timeout.
    timed_out: bool,
}

impl Tcp {
    pub(crate) fn new(initial_window: f64) -> Self {
        Self {
            window: bounded(initial_window),
            // Arbitrarily high: the network says where it ends.
            threshold: WINDOW_MAX,
            recovery: Recovery::default(),
            holds: false,
            timed_out: false,
        }
    }

    pub(crate) fn is_slow_start(&self) -> bool {
        self.window < self.threshold
    }

    /// Whether nothing was acknowledged since the last timeout.
    pub(crate) fn is_timed_out(&self) -> bool {
        self.timed_out
    }

    /// Hears of an acknowledgement; whether the window may grow by it.
    pub(crate) fn may_grow(&mut self, ack: &Ack) -> bool {
        if ack.acked == 0 {
            return false;
        }
        self.timed_out = false;
        let holds = self.holds && self.recovery.covers(ack.largest);
        !(ack.is_app_limited || holds)
    }

    /// Grows in slow start, by `packets` at most and not beyond the threshold.
    pub(crate) fn grow_slow_start(&mut self, packets: f64) {
        debug_assert!(self.is_slow_start(), "the threshold has been reached");
        debug_assert!(packets >= 0.0, "slow start does not shrink");
        self.window = bounded((self.window + packets).min(self.threshold));
    }

    /// Grows by one packet per window of acknowledged ones (RFC 5681 §3.1).
    pub(crate) fn grow_linearly(&mut self, acked: u64) {
        let windows = (acked as f64 / self.window).min(1.0);
        debug_assert!(windows > 0.0, "nothing was acknowledged");
        self.window = bounded(self.window + windows);
    }

    /// Whether a loss or a mark of that packet is news: it was sent after the last reaction.
    pub(crate) fn is_news(&self, packet: u64) -> bool {
        !self.recovery.covers(packet)
    }

    /// Reacts to congestion: `window` is what is left, at least `least`. It stays so until a packet is
    /// acknowledged that was sent after this.
    pub(crate) fn reduce(&mut self, window: f64, least: f64, next: u64) {
        let before = self.window;
        debug_assert!(window >= 0.0 && least >= WINDOW_MIN, "{window}, {least}");
        self.threshold = window.max(least).clamp(THRESHOLD_MIN, WINDOW_MAX);
        // What is smaller than the least threshold does not grow by a loss.
        self.window = bounded(window.max(least).min(before));
        self.recovery.begin(next);
        self.holds = true;
        debug_assert!(self.window <= before, "a reaction made the window larger");
        debug_assert!(self.window <= self.threshold, "slow start would be missed");
    }

    /// Lets the window grow again at once after a reaction.
    pub(crate) fn release(&mut self) {
        self.holds = false;
    }

    /// What always holds between events.
    pub(crate) fn check(&self) {
        debug_assert_eq!(bounded(self.window), self.window, "out of bounds");
        debug_assert!(
            (THRESHOLD_MIN..=WINDOW_MAX).contains(&self.threshold),
            "a threshold of {}",
            self.threshold
        );
        debug_assert!(
            !self.timed_out || self.window == WINDOW_MIN,
            "a window of {} grew with nothing acknowledged",
            self.window
        );
    }

    /// What is known to have been in flight at once, at most the window.
    pub(crate) fn flight(&self, in_flight: u64) -> f64 {
        (in_flight as f64).min(self.window)
    }

    /// Starts over with one packet, towards `share` of what there was (RFC 5681, equation 4).
    pub(crate) fn on_timeout(&mut self, timeout: &Timeout, before: f64, share: f64) {
        // When the timer runs out again, the window of one packet says nothing about the network.
        if !self.timed_out {
            self.threshold = (before * share).clamp(THRESHOLD_MIN, WINDOW_MAX);
        }
        self.timed_out = true;
        self.window = WINDOW_MIN;
        self.recovery.begin(timeout.next);
        self.holds = true;
        debug_assert!(self.is_slow_start(), "a timeout ends in slow start");
    }
}
