//! Data Center TCP.

use crate::error::{gain, share, window};
use crate::round::Marks;
use crate::tcp::Tcp;
use crate::{Ack, CongestionControl, Loss, OptionError, Timeout, WINDOW_MIN};

/// Options of [`Dctcp`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct DctcpOptions {
    /// The weight of a new window of data in the running average of marks, above 0 and at most 1; 1/16 by
    /// RFC 8257 §4.2.
    pub g: f64,
    /// The running average before anything is known, from 0 to 1; 1 by RFC 8257 §3.3, so that the first mark
    /// halves the window.
    pub alpha: f64,
    /// The window at the start, in packets from 1; 10 by RFC 6928.
    pub initial_window: f64,
    /// No mark makes the window smaller than this, in packets from 1. RFC 8257 names no least; that of RFC 3168
    /// §6.1.2, which it builds on, is 1. Linux has 2.
    pub window_min: f64,
    /// Whether acknowledgements with marks let the window grow as well: then it always gains a packet per window
    /// of data, as in the analysis of [Alizadeh et al. 2010, §3.3].
    pub grows_when_marked: bool,
}

impl Default for DctcpOptions {
    fn default() -> Self {
        Self {
            g: 1.0 / 16.0,
            alpha: 1.0,
            initial_window: 10.0,
            window_min: WINDOW_MIN,
            grows_when_marked: false,
        }
    }
}

/// Data Center TCP (RFC 8257): the more packets of a window have marks, the more the window shrinks.
///
/// Once per window of data with marks it shrinks by `alpha / 2` of itself (§3.3); it grows, and reacts to losses
/// and timeouts, like [`crate::Reno`] (§3.4, §3.5). Acknowledgements without marks go on to let it grow while
/// those of the same window come in that had some: the reaction has the extent of the congestion already.
#[derive(Clone, Debug)]
pub struct Dctcp {
    tcp: Tcp,
    g: f64,
    alpha: f64,
    window_min: f64,
    grows_when_marked: bool,
    marks: Marks,
}

impl Dctcp {
    /// A flow that has sent nothing yet.
    ///
    /// # Errors
    /// If an option is out of range; names it.
    pub fn new(options: DctcpOptions) -> Result<Self, OptionError> {
        gain("g", options.g)?;
        share("alpha", options.alpha)?;
        window("initial_window", options.initial_window)?;
        window("window_min", options.window_min)?;
        Ok(Self {
            tcp: Tcp::new(options.initial_window),
            g: options.g,
            alpha: options.alpha,
            window_min: options.window_min,
            grows_when_marked: options.grows_when_marked,
            marks: Marks::default(),
        })
    }
}

impl CongestionControl for Dctcp {
    fn on_ack(&mut self, ack: &Ack) {
        let may_grow = self.tcp.may_grow(ack);
        let marked = ack.marked.min(ack.acked);
        let ended = self.marks.count(ack.acked, marked, ack.largest, ack.next);
        if let Some(share) = ended {
            self.alpha = (self.alpha + self.g * (share - self.alpha)).clamp(0.0, 1.0);
        }
        if marked > 0 && self.tcp.is_news(ack.largest) {
            let left = self.tcp.window * (1.0 - self.alpha / 2.0);
            self.tcp.reduce(left, self.window_min, ack.next);
            self.tcp.release();
        }
        if may_grow && (marked == 0 || self.grows_when_marked) {
            match self.tcp.is_slow_start() {
                true => self.tcp.grow_slow_start(1.0),
                false => self.tcp.grow_linearly(ack.acked),
            }
        }
        debug_assert!((0.0..=1.0).contains(&self.alpha), "{}", self.alpha);
        self.tcp.check();
    }

    fn on_loss(&mut self, loss: &Loss) {
        if loss.lost > 0 && self.tcp.is_news(loss.largest) {
            let half = self.tcp.flight(loss.in_flight) / 2.0;
            self.tcp.reduce(half, 2.0, loss.next);
        }
    }

    fn on_timeout(&mut self, timeout: &Timeout) {
        let flight = self.tcp.flight(timeout.in_flight);
        self.tcp.on_timeout(timeout, flight, 0.5);
        self.tcp.check();
        self.marks.restart(timeout.next);
    }

    fn window(&self) -> f64 {
        self.tcp.window
    }

    fn is_slow_start(&self) -> bool {
        self.tcp.is_slow_start()
    }

    fn alpha(&self) -> Option<f64> {
        Some(self.alpha)
    }
}
