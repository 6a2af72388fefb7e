//! A sender with a full window, stepped by hand.

use std::time::Duration;

use outpour_congestion::{Ack, CongestionControl, Loss, Timeout};

/// Sends as much as the window allows and has everything acknowledged in its order.
pub(crate) struct Feed {
    pub(crate) control: Box<dyn CongestionControl>,
    pub(crate) now: Duration,
    pub(crate) rtt: Duration,
    /// The next transmission.
    pub(crate) next: u64,
    /// The oldest packet in flight.
    pub(crate) oldest: u64,
}

impl Feed {
    pub(crate) fn new(control: Box<dyn CongestionControl>, rtt: Duration) -> Self {
        let mut feed = Self {
            control,
            now: Duration::ZERO,
            rtt,
            next: 0,
            oldest: 0,
        };
        feed.send();
        feed
    }

    pub(crate) fn window(&self) -> f64 {
        self.control.window()
    }

    fn send(&mut self) {
        self.next = self.next.max(self.oldest + self.control.window() as u64);
    }

    /// Acknowledges `acked` packets, `marked` of them with marks.
    pub(crate) fn ack(&mut self, acked: u64, marked: u64) {
        let in_flight = self.next - self.oldest;
        assert!(acked <= in_flight, "{acked} of {in_flight}");
        self.oldest += acked;
        self.control.on_ack(&Ack {
            now: self.now,
            acked,
            marked,
            largest: self.oldest - 1,
            next: self.next,
            in_flight,
            rtt: Some(self.rtt),
            is_app_limited: false,
        });
        self.send();
    }

    /// One round trip: all that is in flight at its start is acknowledged one by one, evenly over time;
    /// `marked` says which have marks.
    pub(crate) fn round(&mut self, marked: impl Fn(u64) -> bool) {
        let flight = self.next - self.oldest;
        let begun = self.now;
        for index in 0..flight {
            self.now = begun + self.rtt.mul_f64((index + 1) as f64 / flight as f64);
            self.ack(1, u64::from(marked(index)));
        }
    }

    /// Takes the oldest `lost` packets for lost.
    pub(crate) fn lose(&mut self, lost: u64) {
        let in_flight = self.next - self.oldest;
        assert!(lost <= in_flight, "{lost} of {in_flight}");
        self.oldest += lost;
        self.control.on_loss(&Loss {
            now: self.now,
            lost,
            largest: self.oldest - 1,
            next: self.next,
            in_flight,
        });
        self.send();
    }

    /// Lets the timer run out.
    pub(crate) fn time_out(&mut self) {
        let in_flight = self.next - self.oldest;
        self.oldest = self.next;
        self.control.on_timeout(&Timeout {
            now: self.now,
            next: self.next,
            in_flight,
        });
        self.send();
    }
}

/// Asserts that two numbers differ by at most `share` of the second.
#[track_caller]
pub(crate) fn near(found: f64, expected: f64, share: f64) {
    assert!(
        (found - expected).abs() <= share * expected.abs(),
        "{found} instead of {expected}"
    );
}
