//! TCP-like congestion control of DCCP.

use crate::error::{positive, window};
use crate::tcp::Tcp;
use crate::{Ack, CongestionControl, Loss, OptionError, Timeout};

/// Options of [`Dccp`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct DccpOptions {
    /// How many packets the receiver acknowledges at a time, above 0; 2 by RFC 4340 §11.3. Slow start grows by
    /// half of it per acknowledgement at most.
    pub ack_ratio: f64,
    /// The window at the start, in packets from 1; 4 at most by RFC 4341 §5.
    pub initial_window: f64,
}

impl Default for DccpOptions {
    fn default() -> Self {
        Self {
            ack_ratio: 2.0,
            initial_window: 4.0,
        }
    }
}

/// TCP-like congestion control, CCID 2 of DCCP (RFC 4341 §5).
///
/// Slow start grows by one packet for every two acknowledged without marks, then one per window; a loss or a
/// mark halves the window once per window of data. Nothing is sent again, so no packet waits for another
/// and nothing is inflated.
#[derive(Clone, Debug)]
pub struct Dccp {
    tcp: Tcp,
    ack_ratio: f64,
}

impl Dccp {
    /// A flow that has sent nothing yet.
    ///
    /// # Errors
    /// If an option is out of range; names it.
    pub fn new(options: DccpOptions) -> Result<Self, OptionError> {
        positive("ack_ratio", options.ack_ratio)?;
        window("initial_window", options.initial_window)?;
        Ok(Self {
            tcp: Tcp::new(options.initial_window),
            ack_ratio: options.ack_ratio,
        })
    }

    fn halve(&mut self, packet: u64, next: u64) {
        if self.tcp.is_news(packet) {
            self.tcp.reduce(self.tcp.window / 2.0, 1.0, next);
            self.tcp.check();
            debug_assert!(self.tcp.window < 2.0 || !self.tcp.is_slow_start());
        }
    }
}

impl CongestionControl for Dccp {
    fn on_ack(&mut self, ack: &Ack) {
        let may_grow = self.tcp.may_grow(ack);
        if ack.marked.min(ack.acked) > 0 {
            self.halve(ack.largest, ack.next);
        } else if may_grow && self.tcp.is_slow_start() {
            let packets = (ack.acked as f64 / 2.0).min(self.ack_ratio / 2.0);
            self.tcp.grow_slow_start(packets);
        } else if may_grow {
            self.tcp.grow_linearly(ack.acked);
        }
        self.tcp.check();
        debug_assert!(self.ack_ratio > 0.0, "{}", self.ack_ratio);
    }

    fn on_loss(&mut self, loss: &Loss) {
        if loss.lost > 0 {
            self.halve(loss.largest, loss.next);
        }
    }

    fn on_timeout(&mut self, timeout: &Timeout) {
        // Half of the window, where TCP halves what is in flight (RFC 4341 §5).
        let window = self.tcp.window;
        self.tcp.on_timeout(timeout, window, 0.5);
        self.tcp.check();
    }

    fn window(&self) -> f64 {
        self.tcp.window
    }

    fn is_slow_start(&self) -> bool {
        self.tcp.is_slow_start()
    }
}
