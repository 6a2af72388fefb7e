//! CUBIC.

use std::time::Duration;

use crate::error::{OptionError, window};
use crate::tcp::Tcp;
use crate::{Ack, CongestionControl, Loss, Timeout};

/// Options of [`Cubic`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CubicOptions {
    /// How fast the window grows far from where congestion was, in packets per cubic second, from 10^-6 to 10^6; 0.4 by
    /// RFC 9438 §5.1.
    pub c: f64,
    /// What is left of the window after congestion, above 0 and below 1; 0.7 by RFC 9438 §4.6.
    pub beta: f64,
    /// Whether a flow whose window shrinks from one congestion to the next makes room for others
    /// (RFC 9438 §4.7).
    pub has_fast_convergence: bool,
    /// The window at the start, in packets from 1; 10 by RFC 6928.
    pub initial_window: f64,
}

impl Default for CubicOptions {
    fn default() -> Self {
        Self {
            c: 0.4,
            beta: 0.7,
            has_fast_convergence: true,
            initial_window: 10.0,
        }
    }
}

/// CUBIC (RFC 9438): the window is a cubic function of the time since the last congestion, flat where that was.
///
/// It returns to the window of the last congestion after `K = cbrt((W_max - W) / C)` seconds, where `W` is what congestion left of it, and is
/// never less than what Reno would have (§4.3). One deviation: slow start has no early exit (HyStart++, which
/// §4.10 leaves to choose).
#[derive(Clone, Debug)]
pub struct Cubic {
    tcp: Tcp,
    options: CubicOptions,
    /// The window at the last congestion, in packets, perhaps less for fast convergence; none if the last
    /// was a timeout or there was none.
    w_max: Option<f64>,
    /// The window right before the last reaction, in packets; Reno's growth applies above it.
    prior: f64,
    epoch: Option<Epoch>,
    last_ack: Duration,
    /// Smoothed round-trip time, seconds (RFC 6298 §2).
    rtt_s: Option<f64>,
}

/// A time of congestion avoidance.
#[derive(Clone, Copy, Debug)]
struct Epoch {
    start: Duration,
    /// Where the curve is flat, in packets.
    w_max: f64,
    /// When it is, seconds after the start.
    k_s: f64,
    /// What Reno would have, in packets.
    w_est: f64,
}

impl Epoch {
    /// The curve, in packets (RFC 9438, equation 1).
    fn curve(&self, c: f64, at_s: f64) -> f64 {
        c * (at_s - self.k_s).powi(3) + self.w_max
    }
}

impl Cubic {
    /// A flow that has sent nothing yet.
    ///
    /// # Errors
    /// If an option is out of range; names it.
    pub fn new(options: CubicOptions) -> Result<Self, OptionError> {
        OptionError::check(
            "c",
            options.c,
            (1e-6..=1e6).contains(&options.c),
            "a number from 0.000001 to 1000000",
        )?;
        let is_part = options.beta > 0.0 && options.beta < 1.0;
        OptionError::check(
            "beta",
            options.beta,
            is_part,
            "a number above 0 and below 1",
        )?;
        window("initial_window", options.initial_window)?;
        Ok(Self {
            tcp: Tcp::new(options.initial_window),
            options,
            w_max: None,
            prior: 0.0,
            epoch: None,
            last_ack: Duration::ZERO,
            rtt_s: None,
        })
    }

    fn begin_epoch(&self, now: Duration) -> Epoch {
        let window = self.tcp.window;
        // Without congestion to return to, the curve begins where it is flat (§4.8, §4.10).
        let w_max = self.w_max.map_or(window, |w_max| w_max.max(window));
        let k_s = ((w_max - window) / self.options.c).cbrt();
        debug_assert!(k_s >= 0.0 && k_s.is_finite(), "{k_s}");
        Epoch {
            start: now,
            w_max,
            k_s,
            w_est: window,
        }
    }

    /// Grows in congestion avoidance (RFC 9438 §4.2 to §4.5).
    fn grow(&mut self, ack: &Ack) {
        let CubicOptions { c, beta, .. } = self.options;
        let mut epoch = match self.epoch {
            Some(epoch) => epoch,
            None => self.begin_epoch(ack.now),
        };
        let window = self.tcp.window;
        let windows = (ack.acked as f64 / window).min(1.0);
        let alpha = match epoch.w_est < self.prior {
            true => 3.0 * (1.0 - beta) / (1.0 + beta),
            false => 1.0,
        };
        epoch.w_est = crate::bounded(epoch.w_est + alpha * windows);
        let at_s = ack.now.saturating_sub(epoch.start).as_secs_f64();
        self.tcp.window = if epoch.curve(c, at_s) < epoch.w_est {
            crate::bounded(epoch.w_est.max(window))
        } else {
            let ahead = epoch.curve(c, at_s + self.rtt_s.unwrap_or(0.0));
            let target = ahead.clamp(window, 1.5 * window);
            crate::bounded(window + (target - window) * windows)
        };
        debug_assert!(epoch.w_max >= epoch.curve(c, 0.0) - 1e-6 * epoch.w_max);
        self.epoch = Some(epoch);
        debug_assert!(self.tcp.window >= window, "avoidance does not shrink");
    }

    fn react(&mut self, packet: u64, in_flight: u64, least: f64, next: u64) {
        if !self.tcp.is_news(packet) {
            return;
        }
        let CubicOptions { beta, .. } = self.options;
        let window = self.tcp.window;
        let makes_room =
            self.options.has_fast_convergence && self.w_max.is_some_and(|it| window < it);
        self.w_max = Some(match makes_room {
            true => window * (1.0 + beta) / 2.0,
            false => window,
        });
        self.prior = window;
        self.epoch = None;
        self.tcp
            .reduce(self.tcp.flight(in_flight) * beta, least, next);
        debug_assert!(
            self.w_max.is_some_and(|it| it <= window),
            "flat above {window}"
        );
        self.tcp.check();
    }
}

impl CongestionControl for Cubic {
    fn on_ack(&mut self, ack: &Ack) {
        if let Some(rtt) = ack.rtt.map(|rtt| rtt.as_secs_f64()) {
            self.rtt_s = Some(self.rtt_s.map_or(rtt, |it| it + (rtt - it) / 8.0));
        }
        let passed = ack.now.saturating_sub(self.last_ack);
        self.last_ack = self.last_ack.max(ack.now);
        if let Some(epoch) = self.epoch.as_mut().filter(|_| ack.is_app_limited) {
            // A time in which the window was not used does not count (§5.8).
            epoch.start = epoch.start.saturating_add(passed);
        }
        let may_grow = self.tcp.may_grow(ack);
        if ack.marked.min(ack.acked) > 0 {
            self.react(ack.largest, ack.in_flight, 1.0, ack.next);
        } else if may_grow && self.tcp.is_slow_start() {
            self.tcp.grow_slow_start(1.0);
        } else if may_grow {
            self.grow(ack);
        }
        self.tcp.check();
        debug_assert!(
            self.epoch.is_none() || !self.tcp.is_slow_start(),
            "slow start within congestion avoidance"
        );
    }

    fn on_loss(&mut self, loss: &Loss) {
        if loss.lost > 0 {
            self.react(loss.largest, loss.in_flight, 2.0, loss.next);
        }
    }

    fn on_timeout(&mut self, timeout: &Timeout) {
        if !self.tcp.is_timed_out() {
            self.prior = self.tcp.window;
        }
        let flight = self.tcp.flight(timeout.in_flight);
        self.tcp.on_timeout(timeout, flight, self.options.beta);
        self.tcp.check();
        self.w_max = None;
        self.epoch = None;
    }

    fn window(&self) -> f64 {
        self.tcp.window
    }

    fn is_slow_start(&self) -> bool {
        self.tcp.is_slow_start()
    }
}
