//! TCP Reno.

use crate::error::window;
use crate::tcp::Tcp;
use crate::{Ack, CongestionControl, Loss, OptionError, Timeout};

/// Options of [`Reno`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RenoOptions {
    /// The window at the start, in packets from 1; 10 by RFC 6928.
    pub initial_window: f64,
}

impl Default for RenoOptions {
    fn default() -> Self {
        Self {
            initial_window: 10.0,
        }
    }
}

/// TCP Reno (RFC 5681): one packet more per acknowledgement in slow start, one per window after it; half at a loss.
///
/// All losses of a window of data are one, as with NewReno (RFC 6582), and a mark is as good as a loss
/// (RFC 3168 §6.1.2). Until a packet is acknowledged that was sent after the reaction, the window stays. The
/// three packets by which TCP inflates the window meanwhile are left out: they make up for packets that have
/// left the network and are not acknowledged cumulatively, and here all are acknowledged or lost.
#[derive(Clone, Debug)]
pub struct Reno {
    tcp: Tcp,
}

impl Reno {
    /// A flow that has sent nothing yet.
    ///
    /// # Errors
    /// If an option is out of range; names it.
    pub fn new(options: RenoOptions) -> Result<Self, OptionError> {
        window("initial_window", options.initial_window)?;
        Ok(Self {
            tcp: Tcp::new(options.initial_window),
        })
    }

    fn halve(&mut self, packet: u64, in_flight: u64, least: f64, next: u64) {
        if self.tcp.is_news(packet) {
            let half = self.tcp.flight(in_flight) / 2.0;
            self.tcp.reduce(half, least, next);
            self.tcp.check();
            debug_assert!(self.tcp.window < 2.0 || !self.tcp.is_slow_start());
        }
    }
}

impl CongestionControl for Reno {
    fn on_ack(&mut self, ack: &Ack) {
        let may_grow = self.tcp.may_grow(ack);
        if ack.marked.min(ack.acked) > 0 {
            self.halve(ack.largest, ack.in_flight, 1.0, ack.next);
        } else if may_grow && self.tcp.is_slow_start() {
            // An acknowledgement of much at once would bring about a burst (RFC 5681, equation 2).
            self.tcp.grow_slow_start(1.0);
        } else if may_grow {
            self.tcp.grow_linearly(ack.acked);
        }
        self.tcp.check();
    }

    fn on_loss(&mut self, loss: &Loss) {
        if loss.lost > 0 {
            self.halve(loss.largest, loss.in_flight, 2.0, loss.next);
        }
    }

    fn on_timeout(&mut self, timeout: &Timeout) {
        let flight = self.tcp.flight(timeout.in_flight);
        self.tcp.on_timeout(timeout, flight, 0.5);
        self.tcp.check();
    }

    fn window(&self) -> f64 {
        self.tcp.window
    }

    fn is_slow_start(&self) -> bool {
        self.tcp.is_slow_start()
    }
}
