//! One flow: pushes symbols of an object to one receiver.

mod flight;
mod work;

use std::time::Duration;

use outpour_congestion::{Ack as Acked, Algorithm, CongestionControl, Loss, Timeout};
use outpour_core::Time;
use rand_core::{RngCore as _, SeedableRng as _};
use rand_pcg::Pcg64Mcg;

pub use self::flight::FLIGHT_MAX;
use self::flight::{Flight, Found};
use self::work::Work;
use crate::rtt::Rtt;
use crate::{ACK_SPAN, Ack, Assignment, Data, Error, FlowEnd, FlowId, Layout, Lie};

/// Skipped packet numbers are remembered, the latest so many.
const SKIPPED_MAX: usize = 64;

/// How long a sender waits for what.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SenderTimers {
    /// The retransmission timeout before there is an estimate. RFC 6298 §2.1 says 1 s; a flow that is to be
    /// quiet after `silence_max` would then never try twice.
    pub rto_initial: Duration,
    /// No timeout is shorter. RFC 6298 §2.4 says 1 s, for the same reason not here.
    pub rto_min: Duration,
    /// No timeout is longer; doubling stops there.
    pub rto_max: Duration,
    /// When the timer first runs out, so many packets go out beyond the window to provoke an acknowledgement
    /// (RFC 9002 §6.2.4); only when it runs out again is all taken for lost. With 0 it is so at once, as in
    /// RFC 6298. A small window that is lost whole is no sign of a network that is down.
    pub probes: u32,
    /// A receiver that acknowledges nothing for so long is taken for gone, and the flow ends.
    pub silence_max: Duration,
    /// A FIN is repeated after so long.
    pub fin_interval: Duration,
    /// A FIN is sent at most so often; then the flow ends without an answer.
    pub fin_tries: u32,
}

impl Default for SenderTimers {
    fn default() -> Self {
        Self {
            rto_initial: Duration::from_millis(100),
            rto_min: Duration::from_millis(10),
            rto_max: Duration::from_millis(250),
            probes: 2,
            silence_max: Duration::from_secs(1),
            fin_interval: Duration::from_millis(100),
            fin_tries: 5,
        }
    }
}

/// What a [`Sender`] is to do.
#[derive(Clone, Debug, PartialEq)]
pub struct SenderOptions {
    /// The flow.
    pub flow: FlowId,
    /// How the object is cut.
    pub layout: Layout,
    /// Which symbols it sends.
    pub assignment: Assignment,
    /// How many may be in flight.
    pub congestion: Algorithm,
    /// How long it waits for what.
    pub timers: SenderTimers,
    /// A packet number is skipped once in so many packets, on average; never if 0. A receiver that
    /// acknowledges what it has not got will acknowledge one of these.
    pub skip_every: u32,
    /// At most so many packets follow the last acknowledgement, whatever the window, besides a few that probe:
    /// 512 packets of 1400 bytes are below 1 MiB.
    pub unanswered_max: u32,
    /// What the skipped numbers are drawn from; receivers must not know it.
    pub seed: u64,
}

impl SenderOptions {
    /// Those of a flow, with the defaults for all else: WFCC with theta 1.
    pub fn new(flow: FlowId, layout: Layout, assignment: Assignment) -> Self {
        Self {
            flow,
            layout,
            assignment,
            congestion: Algorithm::Wfcc(outpour_congestion::WfccOptions::default()),
            timers: SenderTimers::default(),
            skip_every: 200,
            unanswered_max: 512,
            seed: 0,
        }
    }
}

/// What a [`Sender`] wants sent to its receiver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SenderOutput {
    /// A packet; the driver adds the payload of the symbol.
    Data(Data),
    /// This sender has nothing left to do for the receiver.
    Fin(FlowId),
    /// It has heard that the receiver has the object.
    FinAck(FlowId),
}

/// What a [`Sender`] has done so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SenderCounts {
    /// Packets sent.
    pub sent: u64,
    /// Of these, acknowledged in time.
    pub acked: u64,
    /// Of those acknowledged, with a congestion mark.
    pub marked: u64,
    /// Taken for lost, because later ones were acknowledged or the timer ran out.
    pub lost: u64,
    /// Packets that carried a symbol which was sent before; none of a rateless flow.
    pub repeated: u64,
    /// Packet numbers skipped.
    pub skipped: u64,
    /// How often the timer ran out.
    pub timeouts: u64,
}

/// How far a [`Sender`] is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SenderProgress {
    /// The first block that the receiver has not decoded, as far as the sender was told.
    pub floor: u32,
    /// Packets in flight.
    pub in_flight: u32,
    /// The congestion window, in packets.
    pub window: f64,
    /// The smoothed round-trip time, if there was an acknowledgement.
    pub rtt: Option<Duration>,
    /// What it has done so far.
    pub counts: SenderCounts,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Pushing,
    Paused,
    /// All is done, and the receiver is told so: how often it was, and when to tell it again.
    Finishing(u32, Time),
    Over(FlowEnd),
}

/// One flow from one source to one receiver.
///
/// Loss is judged as in [PPUSH §III-B]: a packet is lost once [`outpour_congestion::REORDERING_MAX`] packets
/// sent after it were acknowledged. In a rateless flow a new symbol takes its place, never the same again.
#[derive(Debug)]
pub struct Sender {
    flow: FlowId,
    blocks: u32,
    timers: SenderTimers,
    unanswered_max: u32,
    control: Box<dyn CongestionControl>,
    rtt: Rtt,
    work: Work,
    flight: Flight,
    state: State,
    /// When the timer was set; it runs only while something is in flight.
    timer_set: Time,
    /// How many packets may still be sent beyond the window as probes.
    probes: u32,
    /// Since when packets wait for an acknowledgement, and how many were sent since then.
    unanswered: Option<(Time, u32)>,
    /// The largest number that was ever acknowledged.
    heard: Option<u64>,
    /// Whether the window had room that there was nothing to fill with.
    is_app_limited: bool,
    owes_fin_ack: bool,
    skip_every: u32,
    skip_next: u64,
    skipped: std::collections::VecDeque<u64>,
    random: Pcg64Mcg,
    counts: SenderCounts,
    fraction: Fraction,
}

impl Sender {
    /// A flow that has sent nothing yet.
    ///
    /// # Errors
    /// If an option is out of range; names it.
    pub fn new(options: &SenderOptions) -> Result<Self, Error> {
        let timers = options.timers;
        let positive = |field, it: Duration| {
            Error::check(field, it.as_secs_f64(), !it.is_zero(), "a time above 0")
        };
        positive("rto_initial", timers.rto_initial)?;
        positive("rto_min", timers.rto_min)?;
        positive("silence_max", timers.silence_max)?;
        positive("fin_interval", timers.fin_interval)?;
        let is_fine = timers.rto_max >= timers.rto_min;
        let max = timers.rto_max.as_secs_f64();
        Error::check("rto_max", max, is_fine, "at least rto_min")?;
        let unanswered = options.unanswered_max;
        Error::check(
            "unanswered_max",
            unanswered.into(),
            unanswered > 0,
            "at least 1",
        )?;
        let mut sender = Self {
            flow: options.flow,
            blocks: options.layout.blocks(),
            timers,
            unanswered_max: options.unanswered_max,
            control: options.congestion.build()?,
            rtt: Rtt::new(timers.rto_initial, timers.rto_min, timers.rto_max),
            work: Work::new(options.flow.seat, options.layout, options.assignment)?,
            flight: Flight::default(),
            state: State::Pushing,
            timer_set: Time::ZERO,
            probes: 0,
            unanswered: None,
            heard: None,
            is_app_limited: false,
            owes_fin_ack: false,
            skip_every: options.skip_every,
            skip_next: u64::MAX,
            skipped: std::collections::VecDeque::with_capacity(SKIPPED_MAX),
            random: Pcg64Mcg::seed_from_u64(options.seed),
            counts: SenderCounts::default(),
            fraction: Fraction::default(),
        };
        sender.draw_skip(0);
        Ok(sender)
    }

    /// The flow it is.
    pub fn flow(&self) -> FlowId {
        self.flow
    }

    /// Why it is over, if it is.
    pub fn end(&self) -> Option<FlowEnd> {
        match self.state {
            State::Over(end) => Some(end),
            _ => None,
        }
    }

    /// How far it is.
    pub fn progress(&self) -> SenderProgress {
        SenderProgress {
            floor: self.work.floor(),
            in_flight: self.flight.len(),
            window: self.control.window(),
            rtt: self.rtt.smoothed(),
            counts: self.counts,
        }
    }

    /// Its congestion control.
    pub fn control(&self) -> &dyn CongestionControl {
        &*self.control
    }

    /// Sets the weight of its congestion control; those without a weight ignore it.
    ///
    /// # Errors
    /// If `theta` is not a finite number above 0; the weight stays as it was.
    pub fn set_theta(&mut self, theta: f64) -> Result<(), Error> {
        match self.control.weighted() {
            Some(weighted) => Ok(weighted.set_theta(theta)?),
            None => Ok(()),
        }
    }

    /// Stops sending for now, or goes on.
    pub fn set_paused(&mut self, now: Time, is_paused: bool) {
        match (self.state, is_paused) {
            (State::Pushing, true) => self.state = State::Paused,
            (State::Paused, false) => {
                self.state = State::Pushing;
                // The time of the pause is nobody's silence.
                self.timer_set = now;
                self.unanswered = self.unanswered.map(|(_, sent)| (now, sent));
            }
            _ => {}
        }
    }

    /// Ends the flow at once.
    pub fn stop(&mut self) {
        self.finish(FlowEnd::Stopped);
    }

    /// The receiver acknowledges packets.
    pub fn handle_ack(&mut self, now: Time, ack: &Ack) {
        debug_assert_eq!(ack.flow, self.flow, "the driver mixed up flows");
        if matches!(self.state, State::Over(_)) {
            return;
        }
        if let Some(lie) = self.lie(ack) {
            return self.finish(FlowEnd::Lied(lie));
        }
        let in_flight = self.flight.len();
        let mut news = News::default();
        // The largest first, so that it gives the time of the round trip.
        let mut bits = ack.received | 1;
        while bits != 0 {
            let back = bits.trailing_zeros();
            bits &= bits - 1;
            let Some(number) = ack.number.checked_sub(back.into()) else {
                break;
            };
            if let Found::InFlight(slot) = self.flight.ack(number) {
                self.work.on_acked(slot.place);
                news.marked += ack.marked >> back & 1;
                news.acked += 1;
                if news.largest.is_none() {
                    news.largest = Some((number, now.since(slot.sent)));
                }
            }
        }
        let is_newer = self.heard.is_none_or(|it| ack.number > it);
        if is_newer || news.largest.is_some() {
            self.heard = self.heard.max(Some(ack.number));
            self.unanswered = (!self.flight.is_empty()).then_some((now, 0));
            self.timer_set = now;
        }
        debug_assert!(news.marked <= news.acked);
        debug_assert!(self.heard.is_none_or(|it| it < self.flight.next()));
        self.work.on_told(ack);
        if let Some((largest, rtt)) = news.largest {
            self.counts.acked += news.acked;
            self.counts.marked += news.marked;
            self.rtt.on_sample(rtt);
            self.probes = 0;
            self.control.on_ack(&Acked {
                now: since_origin(now),
                acked: news.acked,
                marked: news.marked,
                largest,
                next: self.flight.next(),
                in_flight: in_flight.into(),
                rtt: Some(rtt),
                is_app_limited: self.is_app_limited,
            });
            self.is_app_limited = false;
            self.fraction.draw(&mut self.random);
            self.find_losses(now);
        }
        if self.work.is_done() && !matches!(self.state, State::Finishing(..)) {
            self.state = State::Finishing(0, now);
        }
        self.check();
    }

    /// The receiver has all it wants.
    pub fn handle_fin(&mut self) {
        self.owes_fin_ack = true;
        self.finish(FlowEnd::Completed);
    }

    /// The receiver has heard that this sender is done.
    pub fn handle_fin_ack(&mut self) {
        if matches!(self.state, State::Finishing(..)) {
            self.finish(FlowEnd::Completed);
        }
    }

    /// The time of [`Sender::wake_at`] has come; does nothing before.
    pub fn handle_wake(&mut self, now: Time) {
        match self.state {
            State::Paused | State::Over(_) => return,
            State::Finishing(tries, at) if at <= now && tries >= self.timers.fin_tries => {
                return self.finish(FlowEnd::Completed);
            }
            State::Finishing(..) => return,
            State::Pushing => {}
        }
        if let Some((since, _)) = self.unanswered
            && since + self.timers.silence_max <= now
        {
            return self.finish(FlowEnd::Silent(now.since(since)));
        }
        if !self.flight.is_empty() && self.timer_set + self.rtt.timeout() <= now {
            match self.rtt.is_backing_off() {
                false if self.timers.probes > 0 => {
                    self.rtt.on_timeout();
                    self.timer_set = now;
                    self.probes = self.timers.probes;
                }
                _ => self.time_out(now),
            }
        }
        self.check();
    }

    /// When to call [`Sender::handle_wake`] and [`Sender::poll_send`] although nothing has arrived.
    pub fn wake_at(&self) -> Option<Time> {
        match self.state {
            State::Paused | State::Over(_) => None,
            State::Finishing(_, at) => Some(at),
            State::Pushing => {
                let silent = self.unanswered.map(|it| it.0 + self.timers.silence_max);
                let timer = (!self.flight.is_empty()).then(|| self.timer_set + self.rtt.timeout());
                silent.into_iter().chain(timer).min()
            }
        }
    }

    /// What to send now; call it until it returns nothing.
    pub fn poll_send(&mut self, now: Time) -> Option<SenderOutput> {
        if std::mem::take(&mut self.owes_fin_ack) {
            return Some(SenderOutput::FinAck(self.flow));
        }
        match self.state {
            State::Paused | State::Over(_) => None,
            State::Finishing(tries, at) if at <= now && tries < self.timers.fin_tries => {
                self.state = State::Finishing(tries + 1, now + self.timers.fin_interval);
                Some(SenderOutput::Fin(self.flow))
            }
            State::Finishing(..) => None,
            State::Pushing => match self.push(now) {
                Some(data) => Some(SenderOutput::Data(data)),
                None if self.work.is_done() => {
                    self.state = State::Finishing(1, now + self.timers.fin_interval);
                    Some(SenderOutput::Fin(self.flow))
                }
                None => None,
            },
        }
    }

    /// The next packet, if one may be in flight and there is a symbol to send.
    fn push(&mut self, now: Time) -> Option<Data> {
        let window = self.fraction.whole(self.control.window()).min(FLIGHT_MAX);
        debug_assert!(window >= 1, "a sender that may send nothing learns nothing");
        let unanswered = self.unanswered.map_or(0, |it| it.1);
        // After a timeout nothing is in flight, and one packet has to try.
        let is_held = unanswered >= self.unanswered_max && !self.flight.is_empty();
        let is_full = self.flight.len() >= window || is_held;
        if is_full && (self.probes == 0 || self.flight.len() >= FLIGHT_MAX) {
            return None;
        }
        let Some(next) = self.work.next() else {
            self.is_app_limited = true;
            if let Some(block) = self.work.exhausted() {
                self.finish(FlowEnd::OutOfSymbols(block));
            }
            return None;
        };
        if self.flight.next() == self.skip_next {
            let number = self.flight.skip();
            if self.skipped.len() == SKIPPED_MAX {
                self.skipped.pop_front();
            }
            self.skipped.push_back(number);
            self.counts.skipped += 1;
            self.draw_skip(number + 1);
        }
        if self.flight.is_empty() {
            // RFC 6298 §5.1.
            self.timer_set = now;
        }
        if is_full {
            self.probes -= 1;
        }
        let number = self.flight.send(now, next.place);
        self.unanswered = match self.unanswered {
            None => Some((now, 1)),
            Some((since, sent)) => Some((since, sent.saturating_add(1))),
        };
        self.counts.sent += 1;
        self.counts.repeated += u64::from(next.is_repeat);
        self.check();
        Some(Data {
            flow: self.flow,
            number,
            block: next.place.block,
            symbol: next.place.symbol,
        })
    }

    /// What an acknowledgement says that cannot be so.
    fn lie(&self, ack: &Ack) -> Option<Lie> {
        if ack.number >= self.flight.next() {
            return Some(Lie::NeverSent(ack.number));
        }
        let received = ack.received | 1;
        if let Some(beyond) = 63_u32.checked_sub(received.leading_zeros())
            && u64::from(beyond) > ack.number
        {
            return Some(Lie::NeverSent(u64::MAX));
        }
        let back = |number: u64| ack.number.checked_sub(number);
        let is_named =
            |it: &u64| back(*it).is_some_and(|it| it < ACK_SPAN.into() && received >> it & 1 == 1);
        // The latest first: once one is too old to be named, so are those before it.
        let is_near = |it: &u64| back(*it).is_none_or(|it| it < ACK_SPAN.into());
        let mut near = self.skipped.iter().rev().copied().take_while(is_near);
        if let Some(number) = near.find(is_named) {
            return Some(Lie::NeverSent(number));
        }
        let is_known = ack.block < self.blocks && ack.floor <= self.blocks;
        (!is_known).then(|| Lie::NoSuchBlock(ack.block.max(ack.floor)))
    }

    fn find_losses(&mut self, now: Time) {
        let in_flight = self.flight.len();
        let (mut lost, mut largest) = (0, 0);
        while let Some((number, place)) = self.flight.next_lost() {
            self.work.on_lost(place);
            lost += 1;
            largest = number;
        }
        if lost > 0 {
            self.counts.lost += lost;
            self.control.on_loss(&Loss {
                now: since_origin(now),
                lost,
                largest,
                next: self.flight.next(),
                in_flight: in_flight.into(),
            });
        }
    }

    /// Takes everything in flight for lost (RFC 6298 §5.4 to §5.6).
    fn time_out(&mut self, now: Time) {
        let in_flight = self.flight.len();
        debug_assert!(in_flight > 0, "a timer ran without anything in flight");
        self.control.on_timeout(&Timeout {
            now: since_origin(now),
            next: self.flight.next(),
            in_flight: in_flight.into(),
        });
        while let Some(place) = self.flight.give_up() {
            self.work.on_lost(place);
        }
        self.rtt.on_timeout();
        self.timer_set = now;
        self.probes = 0;
        self.counts.lost += u64::from(in_flight);
        self.counts.timeouts += 1;
    }

    /// The first end holds.
    fn finish(&mut self, end: FlowEnd) {
        if !matches!(self.state, State::Over(_)) {
            self.state = State::Over(end);
        }
    }

    /// Draws which number at or after `from` is skipped next.
    fn draw_skip(&mut self, from: u64) {
        if self.skip_every > 0 {
            let gaps = u64::from(self.skip_every) * 2 - 1;
            self.skip_next = from + 1 + self.random.next_u64() % gaps;
        }
    }

    fn check(&self) {
        debug_assert!(self.flight.len() <= FLIGHT_MAX);
        debug_assert!(self.skipped.len() <= SKIPPED_MAX);
        debug_assert!(self.probes <= self.timers.probes);
        debug_assert!(self.counts.marked <= self.counts.acked);
        debug_assert!(
            self.counts.acked + self.counts.lost + u64::from(self.flight.len()) == self.counts.sent,
            "packets are acknowledged, lost or in flight: {:?}",
            self.counts
        );
        debug_assert!(self.work.in_flight() <= self.flight.len());
        debug_assert!(self.skip_next >= self.flight.next());
    }
}

/// What becomes of the part of a window that is no whole packet.
///
/// If it were cut off, flows would have half a packet less in flight than their windows say, which weighs more
/// the smaller a window is: with windows of 6 and 24, as thetas of 1 and 4 give over 30 packets, goodputs would
/// be as 1 to 4.3. So a window is rounded up as often as its part says. Whether it is, is drawn with each
/// acknowledgement: rounding up in turns, round trip by round trip, gets into step with the marks of the queue.
#[derive(Clone, Copy, Debug, Default)]
struct Fraction {
    /// From 0 to 1: what is added before cutting off.
    threshold: f64,
}

impl Fraction {
    fn draw(&mut self, random: &mut Pcg64Mcg) {
        self.threshold = f64::from(random.next_u32()) / (f64::from(u32::MAX) + 1.0);
    }

    /// How many packets of that window may be in flight now.
    fn whole(self, window: f64) -> u32 {
        debug_assert!((0.0..1.0).contains(&self.threshold));
        (window + self.threshold) as u32
    }
}

/// What an acknowledgement told that was not known.
#[derive(Default)]
struct News {
    acked: u64,
    marked: u64,
    /// The largest number among these, and how long its round trip took.
    largest: Option<(u64, Duration)>,
}

fn since_origin(now: Time) -> Duration {
    now.since(Time::ZERO)
}

#[cfg(test)]
mod tests;
