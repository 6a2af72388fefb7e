//! One port: queues served at a rate, and a delay behind them.

use std::collections::VecDeque;

use outpour_core::Rate;
use rand_core::RngCore;

use crate::class::{Classes, Joined};
use crate::engine::{Load, Parcel};
use crate::loss::Loss;
use crate::setting::Setting;
use crate::stats::{Stats, Tally};

/// What happens to a packet that enters.
pub(crate) enum Entry<P> {
    /// Nothing holds it here.
    Passes(Parcel<P>),
    /// It is served at once, until then if ever.
    Served { until: Option<u64> },
    /// It waits.
    Waits { marked: bool, trimmed: bool },
    /// It is delayed; if it is the only one, it emerges then.
    Delayed { emerges_at: Option<u64> },
    /// There is no room for it, and it is gone.
    Dropped,
    /// It is lost at random or on order.
    Lost,
}

/// A packet that was served, and when the next one will have been, if ever.
pub(crate) struct Finished<P> {
    pub(crate) parcel: Option<Parcel<P>>,
    pub(crate) next: Option<u64>,
}

pub(crate) struct Port<P> {
    /// Nanoseconds a byte takes: zero without limit, infinite if nothing passes.
    nanos_per_byte: f64,
    delay_nanos: u64,
    loss: Loss,
    /// How many of the next packets are lost on order.
    lose: u64,
    trims: bool,
    classes: Classes<P>,
    /// How many bytes of the packet in service were left at what time.
    left_bytes: f64,
    since: u64,
    /// Times are whole nanoseconds. The part of one that this leaves out is carried on to the next
    /// packet, so that rates are exact in the long run.
    fraction: f64,
    /// When the packet in service began.
    began: u64,
    line: VecDeque<(u64, Parcel<P>)>,
    /// When the last packet of the delay line emerges; no later one does so before it.
    last_emerges: u64,
    tally: Tally,
}

impl<P: Load> Port<P> {
    pub(crate) fn new(setting: &Setting) -> Self {
        Self {
            nanos_per_byte: nanos_per_byte(setting.rate),
            delay_nanos: delay_nanos(setting),
            loss: setting.loss,
            lose: 0,
            trims: setting.discipline.trims(),
            classes: Classes::new(&setting.discipline),
            left_bytes: 0.0,
            since: 0,
            fraction: 0.0,
            began: 0,
            line: VecDeque::new(),
            last_emerges: 0,
            tally: Tally::default(),
        }
    }

    /// A packet comes.
    pub(crate) fn enter(
        &mut self,
        parcel: Parcel<P>,
        now: u64,
        dice: &mut impl RngCore,
    ) -> Entry<P> {
        if self.is_lost(dice) {
            self.tally.lost += u64::from(parcel.load.packets());
            return Entry::Lost;
        }
        if !self.classes.is_idle() {
            return self.join(parcel, now);
        }
        if self.nanos_per_byte == 0.0 {
            self.count(&parcel.load);
            return self.delay(parcel, now);
        }
        self.classes.serve(parcel);
        self.fraction = 0.0;
        let until = self.begin(now);
        Entry::Served { until }
    }

    fn is_lost(&mut self, dice: &mut impl RngCore) -> bool {
        if self.lose > 0 {
            self.lose -= 1;
            return true;
        }
        self.loss.strikes(dice)
    }

    fn join(&mut self, parcel: Parcel<P>, now: u64) -> Entry<P> {
        let packets = u64::from(parcel.load.packets());
        let mut joined = self.classes.join(parcel);
        let mut trimmed = false;
        if let Joined::Full(mut parcel) = joined {
            trimmed = self.trims && parcel.load.trim();
            joined = match trimmed {
                true => self.classes.join(parcel),
                false => Joined::Full(parcel),
            };
        }
        let Joined::Yes { marked } = joined else {
            self.tally.dropped += packets;
            return Entry::Dropped;
        };
        self.tally.trimmed += if trimmed { packets } else { 0 };
        self.tally.marked += if marked { packets } else { 0 };
        self.tally.wait(self.classes.packets_waiting(), now);
        Entry::Waits { marked, trimmed }
    }

    /// The packet in service is done.
    pub(crate) fn finish(&mut self, now: u64) -> Finished<P> {
        self.tally.busy_nanos += now - self.began;
        let exact = self.fraction + self.left_bytes * self.nanos_per_byte;
        // More is no fraction: then the driver was late, which speeds nothing up.
        self.fraction = (exact - (now - self.since) as f64).clamp(-0.5, 0.5);
        let parcel = self.classes.finish();
        if let Some(parcel) = &parcel {
            self.count(&parcel.load);
        }
        let next = if self.classes.is_idle() {
            None
        } else {
            self.tally.wait(self.classes.packets_waiting(), now);
            self.begin(now)
        };
        Finished { parcel, next }
    }

    fn count(&mut self, load: &P) {
        self.tally.packets += u64::from(load.packets());
        self.tally.bytes += u64::from(load.wire_bytes());
    }

    /// A packet enters the delay line.
    pub(crate) fn delay(&mut self, parcel: Parcel<P>, now: u64) -> Entry<P> {
        if self.delay_nanos == 0 && self.line.is_empty() {
            return Entry::Passes(parcel);
        }
        // A delay that shrinks lets no packet overtake another.
        let emerges = (now.saturating_add(self.delay_nanos)).max(self.last_emerges);
        self.last_emerges = emerges;
        let emerges_at = self.line.is_empty().then_some(emerges);
        self.line.push_back((emerges, parcel));
        Entry::Delayed { emerges_at }
    }

    /// The first packet leaves the delay line; the next one does at the time that comes with it.
    pub(crate) fn emerge(&mut self) -> Finished<P> {
        let parcel = self.line.pop_front().map(|(_, parcel)| parcel);
        let next = self.line.front().map(|(time, _)| *time);
        Finished { parcel, next }
    }

    /// Changes the setting. A packet in service goes on at the new rate: if that is another one,
    /// the new time it is done comes back, if ever.
    pub(crate) fn set(&mut self, setting: &Setting, now: u64) -> Option<Option<u64>> {
        self.delay_nanos = delay_nanos(setting);
        self.loss = self.loss.changed_to(setting.loss);
        self.trims = setting.discipline.trims();
        self.classes.set(&setting.discipline);
        self.set_rate(setting.rate, now)
    }

    /// Changes the rate, as [`Port::set`] does.
    pub(crate) fn set_rate(&mut self, rate: Rate, now: u64) -> Option<Option<u64>> {
        let old = std::mem::replace(&mut self.nanos_per_byte, nanos_per_byte(rate));
        if old == self.nanos_per_byte || self.classes.is_idle() {
            return None;
        }
        if old > 0.0 {
            let served = (now - self.since) as f64 - self.fraction;
            self.left_bytes = (self.left_bytes - served.max(0.0) / old).max(0.0);
        }
        self.since = now;
        self.fraction = 0.0;
        Some(self.served_at())
    }

    /// The next packets are lost, whatever else happens.
    pub(crate) fn lose_next(&mut self, packets: u64) {
        self.lose = self.lose.saturating_add(packets);
    }

    pub(crate) fn stats(&self, now: u64) -> Stats {
        let busy_since = (!self.classes.is_idle()).then_some(self.began);
        self.tally.stats(busy_since, now)
    }

    /// All packets that are here.
    pub(crate) fn parcels(&self) -> impl Iterator<Item = &Parcel<P>> {
        let delayed = self.line.iter().map(|(_, parcel)| parcel);
        self.classes.parcels().chain(delayed)
    }

    fn begin(&mut self, now: u64) -> Option<u64> {
        self.left_bytes = self.classes.serving_bytes().map_or(0.0, f64::from);
        self.since = now;
        self.began = now;
        self.served_at()
    }

    fn served_at(&self) -> Option<u64> {
        let nanos = self.left_bytes * self.nanos_per_byte + self.fraction;
        // Nothing is ever served at a rate of zero, and NaN is no bytes at that rate.
        if !nanos.is_finite() {
            return None;
        }
        // Below zero, which what is carried on may bring about, this is zero.
        Some(self.since.saturating_add(nanos.round() as u64))
    }
}

fn nanos_per_byte(rate: Rate) -> f64 {
    1e9 / rate.bytes_per_s()
}

fn delay_nanos(setting: &Setting) -> u64 {
    u64::try_from(setting.delay.as_nanos()).unwrap_or(u64::MAX)
}
