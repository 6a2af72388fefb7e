//! A sender and a receiver of DCCP with TCP-like congestion control (CCID 2, RFC 4341): packets are
//! numbered and never repeated, acknowledgements tell which of the last ones arrived.
//!
//! An acknowledgement vector (RFC 4340 §11.4) tells of the last 64 packets here, whatever was told
//! before: so it makes up for acknowledgements that got lost, without acknowledgements of those. The
//! receiver answers every `ack ratio` packets, which each packet says (in place of a negotiation) and
//! which is half of the window or less (RFC 4341 §6.1.1), and at once after a gap or a mark.

use std::collections::VecDeque;
use std::time::Duration;

use outpour_congestion::{Ack as Acked, CongestionControl, Loss, REORDERING_MAX, Timeout};
use outpour_core::Time;

use super::rto::{Rto, RtoBounds};

/// How many packets an acknowledgement can tell of.
const SPAN: u64 = u64::BITS as u64;

/// The receiver answers every second packet (RFC 4341 §6.1).
const ACK_RATIO: u64 = 2;

/// No packet waits longer for its acknowledgement (RFC 1122 §4.2.3.2, RFC 4341 §6.1).
const ACK_DELAY: Duration = Duration::from_millis(200);

/// A packet with data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Data {
    /// Its place in the order of sending, from zero.
    pub number: u64,
    /// Every how many packets the receiver is to answer.
    pub ack_ratio: u8,
}

/// Which packets have arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ack {
    /// The largest number that has.
    pub number: u64,
    /// Bit k says that packet `number - k` has.
    pub received: u64,
    /// Bit k says that it had a congestion mark.
    pub marked: u64,
}

/// What a sender has done so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Packets sent.
    pub sent: u64,
    /// Packets taken for lost.
    pub lost: u64,
    /// How often the timer ran out.
    pub timeouts: u64,
}

/// The sender of a flow.
#[derive(Debug)]
pub struct Sender {
    control: Box<dyn CongestionControl>,
    rto: Rto,
    packets: Option<u64>,
    /// When packets from `first` on were sent, as long as they are in flight.
    slots: VecDeque<Option<Time>>,
    first: u64,
    in_flight: u64,
    /// The highest numbers that were acknowledged, highest first.
    highest: [Option<u64>; REORDERING_MAX as usize],
    timer_set: Time,
    is_app_limited: bool,
    counts: Counts,
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
            in_flight: 0,
            highest: [None; REORDERING_MAX as usize],
            timer_set: Time::ZERO,
            is_app_limited: false,
            counts: Counts::default(),
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

    /// Whether nothing is left to send and nothing in flight.
    pub fn is_done(&self) -> bool {
        self.in_flight == 0 && self.packets.is_some_and(|packets| self.next() >= packets)
    }

    /// The receiver tells what has arrived.
    pub fn handle_ack(&mut self, now: Time, ack: &Ack) {
        if ack.number >= self.next() {
            debug_assert!(false, "packet {} was never sent", ack.number);
            return;
        }
        let before = self.in_flight;
        let (mut acked, mut marked, mut latest) = (0, 0, None);
        for back in 0..SPAN.min(ack.number + 1) {
            let number = ack.number - back;
            if number < self.first {
                break;
            }
            let slot = &mut self.slots[(number - self.first) as usize];
            if ack.received >> back & 1 == 0 {
                continue;
            }
            let Some(sent) = slot.take() else {
                continue;
            };
            acked += 1;
            marked += ack.marked >> back & 1;
            latest = latest.or_else(|| Some((number, now.since(sent))));
            self.note_highest(number);
        }
        let Some((largest, rtt)) = latest else {
            return;
        };
        self.in_flight -= acked;
        self.timer_set = now;
        self.rto.on_sample(rtt);
        self.control.on_ack(&Acked {
            now: now.since(Time::ZERO),
            acked,
            marked,
            largest,
            next: self.next(),
            in_flight: before,
            rtt: Some(rtt),
            is_app_limited: self.is_app_limited,
        });
        self.is_app_limited = false;
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
            next: self.next(),
            in_flight: self.in_flight,
        });
        self.first = self.next();
        self.slots.clear();
        self.counts.lost += self.in_flight;
        self.counts.timeouts += 1;
        self.in_flight = 0;
        self.rto.on_timeout();
        self.timer_set = now;
    }

    /// When the timer runs out; it runs while anything is in flight.
    pub fn wake_at(&self) -> Option<Time> {
        (self.in_flight > 0).then(|| self.timer_set + self.rto.timeout())
    }

    /// The next packet, if one may be in flight.
    pub fn poll_send(&mut self, now: Time) -> Option<Data> {
        let window = self.control.window() as u64;
        if self.in_flight >= window {
            return None;
        }
        let number = self.next();
        if self.packets.is_some_and(|packets| number >= packets) {
            self.is_app_limited = true;
            return None;
        }
        if self.in_flight == 0 {
            self.timer_set = now;
        }
        self.slots.push_back(Some(now));
        self.in_flight += 1;
        self.counts.sent += 1;
        let ack_ratio = ACK_RATIO.min(window / 2).max(1) as u8;
        Some(Data { number, ack_ratio })
    }

    /// The number of the next packet.
    fn next(&self) -> u64 {
        self.first + self.slots.len() as u64
    }

    fn note_highest(&mut self, number: u64) {
        let mut number = Some(number);
        for place in &mut self.highest {
            if number > *place {
                std::mem::swap(place, &mut number);
            }
        }
    }

    fn find_losses(&mut self, now: Time) {
        let before = self.in_flight;
        let until = self.highest[REORDERING_MAX as usize - 1].unwrap_or(0);
        let (mut lost, mut largest) = (0, 0);
        // What is in flight begins after what was judged, and what was judged is not kept.
        while self.first < until || self.slots.front().is_some_and(Option::is_none) {
            if self.slots.pop_front().flatten().is_some() {
                lost += 1;
                largest = self.first;
            }
            self.first += 1;
        }
        if lost > 0 {
            self.in_flight -= lost;
            self.counts.lost += lost;
            self.control.on_loss(&Loss {
                now: now.since(Time::ZERO),
                lost,
                largest,
                next: self.next(),
                in_flight: before,
            });
        }
    }

    fn check(&self) {
        debug_assert!(self.in_flight <= self.slots.len() as u64);
        debug_assert!(self.slots.is_empty() == (self.in_flight == 0));
    }
}

/// The receiver of a flow.
#[derive(Clone, Debug, Default)]
pub struct Receiver {
    /// What the next acknowledgement says.
    told: Option<Ack>,
    /// How many packets wait for one, and until when.
    waiting: u8,
    due: Option<Time>,
    received: u64,
}

impl Receiver {
    /// How many packets have arrived.
    pub fn received(&self) -> u64 {
        self.received
    }

    /// A packet arrives; what to answer, if it is time.
    pub fn handle_data(&mut self, now: Time, data: Data, is_marked: bool) -> Option<Ack> {
        self.received += 1;
        let marked = u64::from(is_marked);
        let mut told = self.told.unwrap_or(Ack {
            number: data.number,
            received: 0,
            marked: 0,
        });
        let shifted = |bits: u64, by: u64| if by < SPAN { bits << by } else { 0 };
        // News of congestion does not wait, as with TCP (RFC 5681 §4.2): where windows are small it would
        // until the timer ran out.
        let is_news = is_marked || self.told.is_some() && data.number != told.number + 1;
        match data.number.checked_sub(told.number) {
            Some(ahead) => {
                told = Ack {
                    number: data.number,
                    received: shifted(told.received, ahead) | 1,
                    marked: shifted(told.marked, ahead) | marked,
                };
            }
            None => {
                let back = told.number - data.number;
                told.received |= shifted(1, back);
                told.marked |= shifted(marked, back);
            }
        }
        self.told = Some(told);
        self.waiting += 1;
        if self.waiting >= data.ack_ratio || is_news {
            return self.tell();
        }
        self.due = self.due.or(Some(now + ACK_DELAY));
        None
    }

    /// When to answer although no other packet has arrived.
    pub fn wake_at(&self) -> Option<Time> {
        self.due
    }

    /// The time of [`Receiver::wake_at`] has come; what to answer.
    pub fn handle_wake(&mut self, now: Time) -> Option<Ack> {
        self.due.filter(|due| *due <= now)?;
        self.tell()
    }

    fn tell(&mut self) -> Option<Ack> {
        self.waiting = 0;
        self.due = None;
        self.told
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use outpour_congestion::{Algorithm, DccpOptions};

    use super::*;

    fn sender(window: f64) -> Sender {
        let options = DccpOptions {
            initial_window: window,
            ..DccpOptions::default()
        };
        let control = Algorithm::Dccp(options).build().unwrap();
        Sender::new(
            control,
            None,
            RtoBounds::standard(Duration::from_millis(10)),
        )
    }

    #[test]
    fn what_three_later_ones_passed_is_lost_and_the_window_halves_once() {
        let (mut sender, mut receiver) = (sender(8.0), Receiver::default());
        let (now, later) = (Time::ZERO, Time::from_secs_f64(0.1));
        let sent: Vec<Data> = std::iter::from_fn(|| sender.poll_send(now)).collect();
        assert_eq!((sent.len(), sent[0].ack_ratio), (8, 2));
        for data in &sent[2..] {
            if let Some(ack) = receiver.handle_data(later, *data, false) {
                sender.handle_ack(later, &ack);
            }
        }
        assert_eq!(sender.counts().lost, 2);
        // Six were acknowledged: 5 in slow start by then, halved.
        assert!(sender.control().window() < 6.0);
        let next = sender.poll_send(later).unwrap();
        assert_eq!(next.number, 8, "nothing is repeated");
        assert_eq!(receiver.received(), 6);
    }

    #[test]
    fn a_vector_makes_up_for_acknowledgements_that_were_lost() {
        let (mut sender, mut receiver) = (sender(8.0), Receiver::default());
        let now = Time::ZERO;
        let sent: Vec<Data> = std::iter::from_fn(|| sender.poll_send(now)).collect();
        let told = sent.iter().map(|it| receiver.handle_data(now, *it, false));
        let last = told.flatten().last().unwrap();
        assert_eq!((last.number, last.received), (7, 0xff));
        sender.handle_ack(now, &last);
        assert_eq!((sender.in_flight, sender.counts().lost), (0, 0));
    }

    #[test]
    fn a_packet_that_stays_alone_is_answered_after_a_while() {
        let mut receiver = Receiver::default();
        let data = Data {
            number: 3,
            ack_ratio: 2,
        };
        assert_eq!(receiver.handle_data(Time(5), data, false), None);
        let due = receiver.wake_at().unwrap();
        assert_eq!(due, Time(5) + ACK_DELAY);
        assert_eq!(receiver.handle_wake(Time(6)), None);
        let ack = receiver.handle_wake(due).unwrap();
        assert_eq!((ack.number, ack.received, ack.marked), (3, 1, 0));
        assert_eq!(receiver.wake_at(), None);
        // A gap and a mark are answered at once.
        let next = |number| Data { number, ..data };
        let ack = receiver.handle_data(Time(7), next(5), false).unwrap();
        assert_eq!((ack.number, ack.received, ack.marked), (5, 0b101, 0));
        let ack = receiver.handle_data(Time(8), next(6), true).unwrap();
        assert_eq!((ack.number, ack.received, ack.marked), (6, 0b1011, 1));
    }

    #[test]
    fn the_timer_takes_all_for_lost() {
        let mut sender = sender(4.0);
        while sender.poll_send(Time::ZERO).is_some() {}
        let due = sender.wake_at().unwrap();
        sender.handle_wake(due);
        let counts = sender.counts();
        assert_eq!((counts.lost, counts.timeouts), (4, 1));
        let next = sender.poll_send(due).unwrap();
        assert_eq!((next.number, next.ack_ratio), (4, 1));
        assert_eq!(sender.poll_send(due), None);
        // What was acknowledged too late changes nothing.
        let ack = Ack {
            number: 3,
            received: 0xf,
            marked: 0,
        };
        sender.handle_ack(due, &ack);
        assert_eq!(sender.in_flight, 1);
    }
}
