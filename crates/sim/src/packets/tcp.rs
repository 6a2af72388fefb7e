//! A sender and a receiver of the TCP family, packet by packet, under any congestion control.
//!
//! Acknowledgements are cumulative, one for each packet, with up to three blocks of what was
//! received beyond (SACK, RFC 2018). A packet is lost once three packets of higher sequence are
//! known to have arrived (RFC 6675 §4); lost packets are repeated before new ones are sent, as far
//! as what is in flight leaves room in the window (RFC 6675 §5). That a repeated packet was lost as
//! well only the timer tells (RFC 6298). Each acknowledgement says whether its packet had a
//! congestion mark, as DCTCP wants it (RFC 8257 §3.2, without delayed acknowledgements).
//!
//! What is left out: handshakes, flow control and Nagle's algorithm, as flows here always have
//! something to send and somebody who takes it; and reneging receivers, so what was acknowledged
//! selectively stays so after a timeout.

mod receiver;

use std::collections::VecDeque;
use std::time::Duration;

use outpour_congestion::{Ack as Acked, CongestionControl, Loss, REORDERING_MAX, Timeout};
use outpour_core::Time;
use rand_core::{RngCore as _, SeedableRng as _};
use rand_pcg::Pcg64Mcg;

pub use receiver::{Ack, BLOCKS, Receiver};

use super::rto::{Rto, RtoBounds};

/// How many packets follow the first that is not acknowledged, at most.
pub const OUTSTANDING_MAX: usize = 1 << 20;

/// No timeout is shorter unless one says so: RFC 6298 §2.4 says 1 s, what is in use says this.
pub const RTO_MIN: Duration = Duration::from_millis(200);

/// A packet with data: which of the flow's it is, from zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment {
    /// Its place in the stream.
    pub sequence: u64,
}

/// What a sender has done so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Packets sent, repeated ones included.
    pub sent: u64,
    /// Of these, those that were sent before.
    pub repeated: u64,
    /// Packets taken for lost.
    pub lost: u64,
    /// How often the timer ran out.
    pub timeouts: u64,
}

/// What is known of a packet that is not acknowledged cumulatively.
#[derive(Clone, Copy, Debug)]
enum Slot {
    /// Its last transmission has this number and was at that time.
    InFlight {
        number: u64,
        sent: Time,
        is_repeat: bool,
    },
    /// Taken for lost and not sent again yet.
    Lost,
    /// It has arrived, and so have those after it up to this sequence, without it.
    Acked { until: u64 },
}

/// The sender of a flow.
#[derive(Debug)]
pub struct Sender {
    control: Box<dyn CongestionControl>,
    rto: Rto,
    /// How many packets the flow has, if it ends.
    packets: Option<u64>,
    /// From the first that is not acknowledged on.
    slots: VecDeque<Slot>,
    first: u64,
    /// The number of the next transmission.
    next_number: u64,
    in_flight: u64,
    /// How many are lost and not sent again; none of them is before `lost_from`.
    lost: u64,
    lost_from: u64,
    /// The highest sequences that were acknowledged selectively, highest first.
    highest: [Option<u64>; REORDERING_MAX as usize],
    /// All before it that have not arrived were taken for lost.
    judged: u64,
    /// Recovery from losses lasts until all before this are acknowledged.
    recovery: Option<u64>,
    /// The first repetition of a recovery does not wait for room (RFC 6675 §5, step 4.3).
    is_forced: bool,
    timer_set: Time,
    is_app_limited: bool,
    counts: Counts,
    /// What parts of a packet in the window are drawn by, if they count.
    parts: Option<Pcg64Mcg>,
    /// What is added to the window before its part of a packet is cut off, from 0 to 1.
    added: f64,
}

/// What an acknowledgement told that was not known.
#[derive(Default)]
struct News {
    acked: u64,
    /// Of the transmission of the highest number: that, and how long it took if that is certain.
    latest: Option<(u64, Option<Duration>)>,
}

impl Sender {
    /// A flow of so many packets, or without an end; timeouts are within `rto`.
    pub fn new(control: Box<dyn CongestionControl>, packets: Option<u64>, rto: RtoBounds) -> Self {
        Self {
            control,
            rto: Rto::new(rto),
            packets,
            slots: VecDeque::new(),
            first: 0,
            next_number: 0,
            in_flight: 0,
            lost: 0,
            lost_from: 0,
            highest: [None; REORDERING_MAX as usize],
            judged: 0,
            recovery: None,
            is_forced: false,
            timer_set: Time::ZERO,
            is_app_limited: false,
            counts: Counts::default(),
            parts: None,
            added: 0.0,
        }
    }

    /// Rounds windows up as often as their part of a packet says, drawn with each acknowledgement from `seed`; otherwise
    /// the part is cut off.
    pub fn with_parts(self, seed: u64) -> Self {
        Self {
            parts: Some(Pcg64Mcg::seed_from_u64(seed)),
            ..self
        }
    }

    /// Its congestion control.
    pub fn control(&self) -> &dyn CongestionControl {
        &*self.control
    }

    /// The smoothed round-trip time, if there was a sample.
    pub fn rtt(&self) -> Option<Duration> {
        self.rto.smoothed()
    }

    /// What it has done so far.
    pub fn counts(&self) -> Counts {
        self.counts
    }

    /// Whether all packets were acknowledged.
    pub fn is_done(&self) -> bool {
        self.packets.is_some_and(|packets| self.first >= packets)
    }

    /// The receiver acknowledges packets.
    pub fn handle_ack(&mut self, now: Time, ack: &Ack) {
        let (before, mut news) = (self.in_flight, News::default());
        if let Some(random) = &mut self.parts {
            self.added = f64::from(random.next_u32()) / (f64::from(u32::MAX) + 1.0);
        }
        let next = ack.next.min(self.end());
        if next > self.first {
            self.timer_set = now;
        }
        while self.first < next {
            let Some(slot) = self.slots.pop_front() else {
                break;
            };
            self.first += 1;
            self.learn(slot, now, &mut news);
        }
        for (from, to) in ack.blocks() {
            self.learn_block(from, to.min(self.end()), now, &mut news);
        }
        if let Some((largest, rtt)) = news.latest {
            if let Some(rtt) = rtt {
                self.rto.on_sample(rtt);
            }
            self.control.on_ack(&Acked {
                now: now.since(Time::ZERO),
                acked: news.acked,
                marked: u64::from(ack.is_marked),
                largest,
                next: self.next_number,
                in_flight: before,
                rtt,
                is_app_limited: self.is_app_limited,
            });
            self.is_app_limited = false;
        }
        self.find_losses(now);
        self.check();
    }

    /// The time of [`Sender::wake_at`] has come: everything in flight is taken for lost.
    pub fn handle_wake(&mut self, now: Time) {
        if self.wake_at().is_none_or(|at| at > now) {
            return;
        }
        self.control.on_timeout(&Timeout {
            now: now.since(Time::ZERO),
            next: self.next_number,
            in_flight: self.in_flight,
        });
        for slot in &mut self.slots {
            if matches!(slot, Slot::InFlight { .. }) {
                *slot = Slot::Lost;
                self.lost += 1;
            }
        }
        self.counts.lost += self.in_flight;
        self.counts.timeouts += 1;
        self.in_flight = 0;
        (self.lost_from, self.judged) = (self.first, self.end());
        self.recovery = None;
        self.is_forced = false;
        self.rto.on_timeout();
        self.timer_set = now;
        self.check();
    }

    /// When the timer runs out; it runs while anything waits for an acknowledgement.
    pub fn wake_at(&self) -> Option<Time> {
        let is_on = !self.slots.is_empty();
        is_on.then(|| self.timer_set + self.rto.timeout())
    }

    /// The next packet, if one may be in flight.
    pub fn poll_send(&mut self, now: Time) -> Option<Segment> {
        let has_room = self.in_flight < (self.control.window() + self.added) as u64;
        if self.lost > 0 && (has_room || self.is_forced) {
            self.is_forced = false;
            return Some(self.repeat(now));
        }
        if !has_room {
            return None;
        }
        let is_last = self.packets.is_some_and(|packets| self.end() >= packets);
        if is_last || self.slots.len() >= OUTSTANDING_MAX {
            self.is_app_limited = true;
            return None;
        }
        if self.slots.is_empty() {
            self.timer_set = now;
        }
        let sequence = self.end();
        let slot = self.transmit(now, false);
        self.slots.push_back(slot);
        Some(Segment { sequence })
    }

    /// The sequence after the last that was sent.
    fn end(&self) -> u64 {
        self.first + self.slots.len() as u64
    }

    fn transmit(&mut self, sent: Time, is_repeat: bool) -> Slot {
        let number = self.next_number;
        self.next_number += 1;
        self.in_flight += 1;
        self.counts.sent += 1;
        Slot::InFlight {
            number,
            sent,
            is_repeat,
        }
    }

    fn repeat(&mut self, now: Time) -> Segment {
        let from = self.lost_from.max(self.first);
        let mut behind = self.slots.range((from - self.first) as usize..);
        let ahead = behind.position(|slot| matches!(slot, Slot::Lost));
        debug_assert!(ahead.is_some(), "lost packets were miscounted");
        let sequence = from + ahead.unwrap_or(0) as u64;
        if sequence == self.first {
            // Its acknowledgement is what the timer waits for.
            self.timer_set = now;
        }
        let slot = self.transmit(now, true);
        self.slots[(sequence - self.first) as usize] = slot;
        self.lost_from = sequence + 1;
        self.lost -= 1;
        self.counts.repeated += 1;
        Segment { sequence }
    }

    /// A packet is known to have arrived.
    fn learn(&mut self, slot: Slot, now: Time, news: &mut News) {
        match slot {
            Slot::InFlight {
                number,
                sent,
                is_repeat,
            } => {
                self.in_flight -= 1;
                news.acked += 1;
                if news.latest.is_none_or(|(latest, _)| number > latest) {
                    // Of what was sent twice one does not know which arrived (Karn's rule).
                    let rtt = (!is_repeat).then(|| now.since(sent));
                    news.latest = Some((number, rtt));
                }
            }
            // It was only late.
            Slot::Lost => self.lost -= 1,
            Slot::Acked { .. } => {}
        }
    }

    /// Packets of sequences `from` up to `to`, without it, are known to have arrived.
    fn learn_block(&mut self, from: u64, to: u64, now: Time, news: &mut News) {
        let from = from.max(self.first);
        let mut sequence = from;
        while sequence < to {
            let index = (sequence - self.first) as usize;
            let slot = self.slots[index];
            if let Slot::Acked { until } = slot {
                debug_assert!(until > sequence);
                sequence = until;
                continue;
            }
            self.learn(slot, now, news);
            sequence += 1;
            self.slots[index] = Slot::Acked { until: sequence };
            self.note_highest(sequence - 1);
        }
        // The same block comes again and again as it grows: the next time it is one step to its end.
        if from < to && sequence > from {
            self.slots[(from - self.first) as usize] = Slot::Acked { until: sequence };
        }
    }

    fn note_highest(&mut self, sequence: u64) {
        let mut sequence = Some(sequence);
        for place in &mut self.highest {
            if sequence > *place {
                std::mem::swap(place, &mut sequence);
            }
        }
    }

    fn find_losses(&mut self, now: Time) {
        let before = self.in_flight;
        let (mut lost, mut largest) = (0, 0);
        let Some(until) = self.highest[REORDERING_MAX as usize - 1] else {
            return;
        };
        for sequence in self.judged.max(self.first)..until {
            let slot = &mut self.slots[(sequence - self.first) as usize];
            if let Slot::InFlight { number, .. } = *slot {
                *slot = Slot::Lost;
                largest = largest.max(number);
                lost += 1;
            }
        }
        self.judged = self.judged.max(until);
        if lost == 0 {
            return;
        }
        self.in_flight -= lost;
        self.lost += lost;
        self.counts.lost += lost;
        if self.recovery.is_none_or(|until| self.first >= until) {
            self.recovery = Some(self.end());
            self.is_forced = true;
        }
        self.control.on_loss(&Loss {
            now: now.since(Time::ZERO),
            lost,
            largest,
            next: self.next_number,
            in_flight: before,
        });
    }

    fn check(&self) {
        debug_assert!(self.in_flight + self.lost <= self.slots.len() as u64);
        debug_assert!(self.slots.len() <= OUTSTANDING_MAX);
        debug_assert!(self.judged <= self.end() || self.slots.is_empty());
        debug_assert!(
            !matches!(self.slots.front(), Some(Slot::Acked { .. })),
            "the first that is missing has arrived"
        );
    }
}

/// Its weight against other flows, if its congestion control has one.
impl Sender {
    /// Sets the weight; those without one ignore it.
    ///
    /// # Errors
    /// If `theta` is not a finite number above 0.
    pub fn set_theta(&mut self, theta: f64) -> Result<(), outpour_congestion::OptionError> {
        match self.control.weighted() {
            Some(weighted) => weighted.set_theta(theta),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests;
