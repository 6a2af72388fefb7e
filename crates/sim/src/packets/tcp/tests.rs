//! A flow over a line that loses what it is told to.

#![allow(clippy::unwrap_used)]

use std::collections::VecDeque;

use outpour_congestion::{Algorithm, RenoOptions};

use super::*;

const MS: Duration = Duration::from_millis(1);

/// A flow over a line that takes 10 ms each way and loses packets by their place in the order of
/// sending.
struct Line {
    sender: Sender,
    receiver: Receiver,
    data: VecDeque<(Time, Segment)>,
    acks: VecDeque<(Time, Ack)>,
    sent: Vec<u64>,
    now: Time,
}

impl Line {
    fn new(window: f64, packets: u64) -> Self {
        let options = RenoOptions {
            initial_window: window,
        };
        let control = Algorithm::Reno(options).build().unwrap();
        Self {
            sender: Sender::new(control, Some(packets), RtoBounds::standard(200 * MS)),
            receiver: Receiver::default(),
            data: VecDeque::new(),
            acks: VecDeque::new(),
            sent: Vec::new(),
            now: Time::ZERO,
        }
    }

    /// Runs until all is acknowledged; `is_lost` is asked for each transmission, from zero.
    fn run(&mut self, is_lost: impl Fn(usize) -> bool) {
        for _ in 0..100_000 {
            while let Some(segment) = self.sender.poll_send(self.now) {
                if !is_lost(self.sent.len()) {
                    self.data.push_back((self.now + 10 * MS, segment));
                }
                self.sent.push(segment.sequence);
            }
            if self.sender.is_done() {
                return;
            }
            let times = [
                self.data.front().map(|it| it.0),
                self.acks.front().map(|it| it.0),
                self.sender.wake_at(),
            ];
            self.now = times.into_iter().flatten().min().unwrap();
            if self.data.front().is_some_and(|it| it.0 <= self.now) {
                let segment = self.data.pop_front().unwrap().1;
                let ack = self.receiver.handle_segment(segment, false);
                self.acks.push_back((self.now + 10 * MS, ack));
            } else if self.acks.front().is_some_and(|it| it.0 <= self.now) {
                let ack = self.acks.pop_front().unwrap().1;
                self.sender.handle_ack(self.now, &ack);
            } else {
                self.sender.handle_wake(self.now);
            }
        }
        panic!("it does not end: {:?}", self.sender);
    }
}

#[test]
fn without_losses_nothing_is_sent_twice() {
    let mut line = Line::new(4.0, 100);
    line.run(|_| false);
    assert_eq!(line.sent, (0..100).collect::<Vec<_>>());
    assert_eq!(line.sender.counts().lost, 0);
    assert_eq!(line.sender.rtt(), Some(20 * MS));
}

#[test]
fn a_single_loss_is_repeated_after_three_later_ones_without_a_timeout() {
    let mut line = Line::new(10.0, 100);
    line.run(|at| at == 4);
    let counts = line.sender.counts();
    assert_eq!((counts.lost, counts.repeated, counts.timeouts), (1, 1, 0));
    let again = line.sent.iter().rposition(|it| *it == 4).unwrap();
    // In slow start packets 0 to 3, 5 and 6 let two more out each; with 7 it is lost, and goes first.
    assert_eq!(&line.sent[18..again], &[18, 19, 20, 21], "{:?}", line.sent);
    assert_eq!(line.receiver.received(), 100);
    assert_eq!(line.receiver.repeated(), 0);
}

#[test]
fn a_burst_is_repeated_whole_and_nothing_that_has_arrived() {
    let mut line = Line::new(40.0, 200);
    line.run(|at| (5..25).contains(&at));
    let counts = line.sender.counts();
    assert_eq!((counts.lost, counts.repeated, counts.timeouts), (20, 20, 0));
    assert_eq!(line.receiver.repeated(), 0);
}

#[test]
fn a_repetition_that_is_lost_waits_for_the_timer() {
    let mut line = Line::new(10.0, 100);
    line.run(|at| at == 4 || at == 22);
    assert_eq!(line.sent[22], 4, "{:?}", line.sent);
    let counts = line.sender.counts();
    assert!(counts.timeouts >= 1, "{counts:?}");
    assert_eq!(line.receiver.received(), 100);
}

#[test]
fn when_all_is_lost_the_timer_begins_with_one_and_doubles() {
    let mut line = Line::new(4.0, 8);
    line.run(|at| at < 6);
    // Four, then the first one alone after 1 s, after 2 s, and 4 s later with success.
    assert_eq!(&line.sent[..7], &[0, 1, 2, 3, 0, 0, 0]);
    assert_eq!(line.sender.counts().timeouts, 3);
    assert!(line.now >= Time::ZERO + 7000 * MS, "{}", line.now);
    assert_eq!(line.receiver.received(), 8);
}

#[test]
fn whatever_is_lost_all_arrives_once() {
    for seed in 0..200_u64 {
        let mut line = Line::new(1.0 + (seed % 30) as f64, 300);
        let share = seed % 40;
        let drawn = |at: usize| {
            let mixed = (at as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15 ^ seed << 17);
            (mixed ^ mixed >> 29).wrapping_mul(0xbf58_476d_1ce4_e5b9) >> 33
        };
        line.run(|at| drawn(at) % 100 < share);
        assert_eq!(line.receiver.received(), 300, "seed {seed}");
        let counts = line.sender.counts();
        assert_eq!(counts.sent, 300 + counts.repeated, "seed {seed}");
        // What the timer takes for lost may be only late.
        assert!(counts.lost >= counts.repeated, "seed {seed}");
    }
}

#[test]
fn an_acknowledgement_tells_of_the_blocks_that_changed_last() {
    let mut receiver = Receiver::default();
    let mut ack = Ack::default();
    for sequence in [0, 2, 4, 6, 8, 4, 5] {
        ack = receiver.handle_segment(Segment { sequence }, sequence == 5);
    }
    assert_eq!(ack.next, 1);
    assert!(ack.is_marked);
    let blocks: Vec<_> = ack.blocks().collect();
    assert_eq!(blocks, [(4, 7), (8, 9), (2, 3)]);
    assert_eq!((receiver.received(), receiver.repeated()), (6, 1));
    for sequence in [1, 3, 7] {
        ack = receiver.handle_segment(Segment { sequence }, false);
    }
    assert_eq!((ack.next, ack.blocks().count()), (9, 0));
}

/// A window that stays.
#[derive(Debug)]
struct Still(f64);

impl CongestionControl for Still {
    fn on_ack(&mut self, _: &Acked) {}
    fn on_loss(&mut self, _: &Loss) {}
    fn on_timeout(&mut self, _: &Timeout) {}
    fn window(&self) -> f64 {
        self.0
    }
    fn is_slow_start(&self) -> bool {
        false
    }
}

#[test]
fn parts_of_a_packet_count_as_often_as_they_say() {
    let in_flight = |mut sender: Sender| {
        let (mut receiver, mut flight, mut sum) = (Receiver::default(), VecDeque::new(), 0);
        for step in 0..20_000 {
            let now = Time::ZERO + step * MS;
            flight.extend(std::iter::from_fn(|| sender.poll_send(now)));
            sum += flight.len();
            let segment = flight.pop_front().unwrap();
            let ack = receiver.handle_segment(segment, false);
            sender.handle_ack(now, &ack);
        }
        sum as f64 / 20_000.0
    };
    let sender = || Sender::new(Box::new(Still(2.25)), None, RtoBounds::standard(200 * MS));
    assert_eq!(in_flight(sender()), 2.0);
    let mean = in_flight(sender().with_parts(1));
    assert!((2.2..=2.3).contains(&mean), "{mean}");
}
