//! Weighted fair congestion control.

use crate::error::{gain, positive, share, window};
use crate::round::Marks;
use crate::{
    Ack, CongestionControl, Loss, OptionError, Timeout, WINDOW_MAX, WINDOW_MIN, Weighted, bounded,
};

/// An acknowledgement of more packets counts as one of so many, so that it takes no time worth speaking of.
const ACKED_MAX: u64 = 1 << 16;

/// Options of [`Wfcc`]. The defaults are those of the paper's experiments [PPUSH §IV-B].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct WfccOptions {
    /// The weight: flows share a bottleneck in proportion to it. Above 0; below 1/2 a window may lose more
    /// in one round trip than it has [PPUSH, equation 21].
    pub theta: f64,
    /// The weight of a new window of data in the running average of marks, above 0 and at most 1.
    pub g: f64,
    /// The running average before anything is known, from 0 to 1.
    pub alpha: f64,
    /// The window at the start, in packets from 1.
    pub initial_window: f64,
    /// Whether the window doubles every round trip until the first mark or loss, as in TCP; again after a
    /// timeout, until half the window of before. The paper does not say how flows start; its fluid model
    /// begins with one packet and grows by one per round trip. Flows that start fast should start with an
    /// `alpha` of 1 as well: at 0 the first marks would change nothing.
    pub has_slow_start: bool,
}

impl Default for WfccOptions {
    fn default() -> Self {
        Self {
            theta: 1.0,
            g: 1.0 / 16.0,
            alpha: 0.0,
            initial_window: 1.0,
            has_slow_start: false,
        }
    }
}

/// Weighted fair congestion control: DCTCP's running average of marks, applied per packet and weakened by
/// a weight [PPUSH §III-B].
///
/// Per acknowledged packet the window W grows by 1/W and, if the packet had a mark, shrinks by
/// `alpha / (2 theta)`. So a window of marked packets takes `alpha W / (2 theta)` off, and in equilibrium
/// windows are in proportion to theta. A loss by itself changes nothing: content is rateless, so
/// a sender neither waits for what is missing nor takes it for congestion, of which marks tell. Only a
/// timeout, when all in flight is lost, brings the window down to 1: then nothing tells anything.
#[derive(Clone, Debug)]
pub struct Wfcc {
    theta: f64,
    g: f64,
    has_slow_start: bool,
    window: f64,
    alpha: f64,
    /// Slow start ends at this window; it is over if none.
    slow_start_until: Option<f64>,
    marks: Marks,
    /// Whether nothing was acknowledged since the last timeout.
    timed_out: bool,
}

impl Wfcc {
    /// A flow that has sent nothing yet.
    ///
    /// # Errors
    /// If an option is out of range; names it.
    pub fn new(options: WfccOptions) -> Result<Self, OptionError> {
        positive("theta", options.theta)?;
        gain("g", options.g)?;
        share("alpha", options.alpha)?;
        window("initial_window", options.initial_window)?;
        Ok(Self {
            theta: options.theta,
            g: options.g,
            has_slow_start: options.has_slow_start,
            window: options.initial_window,
            alpha: options.alpha,
            slow_start_until: options.has_slow_start.then_some(WINDOW_MAX),
            marks: Marks::default(),
            timed_out: false,
        })
    }

    fn check(&self) {
        debug_assert!(
            (0.0..=1.0).contains(&self.alpha),
            "alpha is {} and a share of packets",
            self.alpha
        );
        debug_assert_eq!(bounded(self.window), self.window, "out of bounds");
        debug_assert!(self.has_slow_start || self.slow_start_until.is_none());
        debug_assert!(self.theta > 0.0 && self.theta.is_finite());
    }
}

impl CongestionControl for Wfcc {
    fn on_ack(&mut self, ack: &Ack) {
        if ack.acked == 0 {
            return;
        }
        self.timed_out = false;
        let marked = ack.marked.min(ack.acked);
        let ended = self.marks.count(ack.acked, marked, ack.largest, ack.next);
        if let Some(share) = ended {
            self.alpha += self.g * (share - self.alpha);
            // Rounding may lead out by a hair.
            self.alpha = self.alpha.clamp(0.0, 1.0);
        }
        if marked > 0 {
            self.slow_start_until = None;
        }
        let acked = ack.acked.min(ACKED_MAX);
        for _ in 0..if ack.is_app_limited { 0 } else { acked } {
            let (step, until) = match self.slow_start_until {
                Some(until) if self.window < until => (1.0, until),
                _ => (1.0 / self.window, WINDOW_MAX),
            };
            self.window = (self.window + step).min(until.max(self.window));
        }
        if self.slow_start_until.is_some_and(|it| self.window >= it) {
            self.slow_start_until = None;
        }
        let less = self.alpha / (2.0 * self.theta);
        self.window = match marked {
            0 => bounded(self.window),
            marked => bounded(self.window - marked.min(ACKED_MAX) as f64 * less),
        };
        self.check();
    }

    fn on_loss(&mut self, loss: &Loss) {
        if loss.lost > 0 {
            self.slow_start_until = None;
        }
        self.check();
    }

    fn on_timeout(&mut self, timeout: &Timeout) {
        // A timer that runs out again has nothing new to say about how large the window was.
        if self.has_slow_start && !self.timed_out {
            let half = self.window / 2.0;
            self.slow_start_until = Some(half).filter(|half| *half > WINDOW_MIN);
        }
        self.timed_out = true;
        self.window = WINDOW_MIN;
        self.marks.restart(timeout.next);
        self.check();
    }

    fn window(&self) -> f64 {
        self.window
    }

    fn is_slow_start(&self) -> bool {
        self.slow_start_until.is_some()
    }

    fn alpha(&self) -> Option<f64> {
        Some(self.alpha)
    }

    fn weighted(&mut self) -> Option<&mut dyn Weighted> {
        Some(self)
    }
}

impl Weighted for Wfcc {
    fn theta(&self) -> f64 {
        self.theta
    }

    fn set_theta(&mut self, theta: f64) -> Result<(), OptionError> {
        positive("theta", theta)?;
        self.theta = theta;
        Ok(())
    }
}
