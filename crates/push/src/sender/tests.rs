//! Tests of the sender alone.
#![allow(clippy::unwrap_used)]

use outpour_congestion::WfccOptions;

use super::*;
use crate::TaskId;

const MS: Duration = Duration::from_millis(1);
const FLOW: FlowId = FlowId {
    task: TaskId(1),
    seat: 2,
};

fn options(window: f64) -> SenderOptions {
    let assignment = Assignment::Rateless {
        seats: 8,
        sources: 1,
    };
    let layout = Layout::new(1000, 100).unwrap();
    SenderOptions {
        congestion: Algorithm::Wfcc(WfccOptions {
            initial_window: window,
            ..WfccOptions::default()
        }),
        skip_every: 0,
        ..SenderOptions::new(FLOW, layout, assignment)
    }
}

fn share(window: f64, first: u64, count: u64) -> SenderOptions {
    SenderOptions {
        assignment: Assignment::Share { first, count },
        ..options(window)
    }
}

fn sender(options: &SenderOptions) -> Sender {
    Sender::new(options).unwrap()
}

/// Everything it sends now.
fn sent(sender: &mut Sender, now: Time) -> Vec<Data> {
    let mut all = Vec::new();
    while let Some(output) = sender.poll_send(now) {
        match output {
            SenderOutput::Data(data) => all.push(data),
            other => panic!("expected packets: {other:?}"),
        }
    }
    all
}

fn ack(number: u64, block: u32, needed: u32) -> Ack {
    Ack {
        flow: FLOW,
        number,
        received: 1,
        marked: 0,
        floor: 0,
        block,
        needed,
        needed_next: 102,
    }
}

fn at(ms: u64) -> Time {
    Time(ms * 1_000_000)
}

#[test]
fn symbols_are_those_of_the_seat() {
    let mut sender = sender(&options(5.0));
    let all = sent(&mut sender, at(0));
    let symbols: Vec<_> = all
        .iter()
        .map(|it| (it.number, it.block, it.symbol))
        .collect();
    let expected = [(0, 0, 2), (1, 0, 10), (2, 0, 18), (3, 0, 26), (4, 0, 34)];
    assert_eq!(symbols, expected, "a window full");
}

#[test]
fn a_packet_is_lost_once_three_later_ones_have_arrived() {
    let mut sender = sender(&options(6.0));
    sent(&mut sender, at(0));
    sender.handle_ack(at(10), &ack(3, 0, 90));
    sender.handle_ack(at(10), &ack(5, 0, 90));
    assert_eq!(sender.progress().counts.lost, 0, "two are not three");
    sender.handle_ack(at(10), &ack(4, 0, 90));
    // 0, 1 and 2 have three later ones, and nobody else.
    assert_eq!(sender.progress().counts.lost, 3);
    assert_eq!(sender.progress().in_flight, 0);
    // None of them is sent again.
    let all = sent(&mut sender, at(10));
    assert!(all.iter().all(|it| it.symbol > 34), "{all:?}");
    assert!(all.len() >= 6);
    assert_eq!(sender.progress().counts.repeated, 0);
    // What was taken for lost and comes late is neither counted nor sent.
    let before = sender.progress();
    sender.handle_ack(at(11), &ack(1, 0, 90));
    assert_eq!(sender.progress(), before);
}

#[test]
fn it_moves_on_once_more_is_on_its_way_than_is_needed() {
    let mut sender = sender(&options(20.0));
    assert_eq!(sent(&mut sender, at(0)).len(), 20);
    // Of the first block 19 are in flight, and 22 are needed: 4 more make it more than is needed.
    let mut told = ack(0, 0, 22);
    told.needed_next = 1;
    sender.handle_ack(at(10), &told);
    let blocks = |all: &[Data]| all.iter().map(|it| it.block).collect::<Vec<_>>();
    let first = blocks(&sent(&mut sender, at(10)));
    assert!(first.iter().all(|block| *block == 0), "{first:?}");
    let mut told = ack(10, 0, 17);
    told.received = 0b11_1111_1111;
    told.needed_next = 1;
    sender.handle_ack(at(10), &told);
    // 18 should be in flight; then two of the next block, as one is needed, and then of the third. What the window has
    // beyond a whole packet may be one more.
    let in_flight = sender.progress().in_flight as usize;
    let all = blocks(&sent(&mut sender, at(10)));
    let more = 18 - in_flight;
    assert_eq!(all[..more], vec![0; more], "{:?}", sender.progress());
    let next = [1, 1, 2];
    assert_eq!(all[more..], next[..all.len() - more], "{all:?}");
    assert!(all.len() >= more + 2, "{all:?}");
}

#[test]
fn a_block_that_others_have_begun_needs_less() {
    let mut sender = sender(&options(10.0));
    sent(&mut sender, at(0));
    // The first is decoded, of the second little is needed, of the third nobody has said anything.
    let mut told = ack(9, 0, 0);
    told.received = 0b11_1111_1111;
    told.needed_next = 3;
    sender.handle_ack(at(10), &told);
    let all = sent(&mut sender, at(10));
    let blocks: Vec<_> = all.iter().map(|it| it.block).collect();
    assert_eq!(blocks[..4], [1; 4]);
    // What the window has beyond ten whole packets may be one more.
    assert!((10..=11).contains(&blocks.len()), "{blocks:?}");
    assert!(blocks[4..].iter().all(|block| *block == 2), "{blocks:?}");
}

#[test]
fn what_was_told_before_does_not_count() {
    let mut sender = sender(&options(10.0));
    sent(&mut sender, at(0));
    sender.handle_ack(at(10), &ack(5, 0, 1));
    sender.handle_ack(at(10), &ack(4, 0, 100));
    let all = sent(&mut sender, at(10));
    assert!(!all.is_empty());
    assert!(all.iter().all(|it| it.block == 1), "{all:?}");
    // A block that is decoded stays so.
    sender.handle_ack(at(11), &ack(6, 0, 0));
    sender.handle_ack(at(11), &ack(7, 0, 50));
    assert!(sent(&mut sender, at(11)).iter().all(|it| it.block > 0));
}

#[test]
fn a_share_is_repeated_until_it_is_there() {
    let mut sender = sender(&share(10.0, 98, 5));
    let all = sent(&mut sender, at(0));
    let places: Vec<_> = all.iter().map(|it| (it.block, it.symbol)).collect();
    assert_eq!(places, [(0, 98), (0, 99), (1, 0), (1, 1), (1, 2)]);
    let mut told = ack(4, 1, 5);
    told.received = 0b1110;
    sender.handle_ack(at(10), &told);
    let again = sent(&mut sender, at(10));
    assert_eq!(again.len(), 1);
    assert_eq!(
        (again[0].number, again[0].block, again[0].symbol),
        (5, 0, 98)
    );
    sender.handle_ack(at(20), &ack(5, 0, 5));
    assert_eq!(sender.poll_send(at(20)), Some(SenderOutput::Fin(FLOW)));
    assert_eq!(sender.poll_send(at(20)), None);
    // Again until it is answered.
    let again = sender.wake_at().unwrap();
    assert_eq!(again, at(120));
    sender.handle_wake(again);
    assert_eq!(sender.poll_send(again), Some(SenderOutput::Fin(FLOW)));
    sender.handle_fin_ack();
    assert_eq!(sender.end(), Some(FlowEnd::Completed));
    assert_eq!(sender.wake_at(), None);
}

#[test]
fn fins_without_an_answer_come_to_an_end() {
    let mut sender = sender(&share(10.0, 0, 1));
    sent(&mut sender, at(0));
    sender.handle_ack(at(10), &ack(0, 0, 1));
    let mut fins = 0;
    while sender.end().is_none() {
        let now = sender.wake_at().unwrap();
        sender.handle_wake(now);
        fins += u32::from(sender.poll_send(now).is_some());
    }
    assert_eq!(fins, SenderTimers::default().fin_tries);
    assert_eq!(sender.end(), Some(FlowEnd::Completed));
}

#[test]
fn the_first_timeout_probes_and_the_second_collapses_the_window() {
    let mut sender = sender(&options(20.0));
    sent(&mut sender, at(0));
    sender.handle_ack(at(20), &ack(19, 0, 90));
    sent(&mut sender, at(20));
    // RFC 6298: 20 ms and four times 10 ms.
    let first = sender.wake_at().unwrap();
    assert_eq!(first, at(80));
    sender.handle_wake(at(79));
    assert!(sent(&mut sender, at(79)).is_empty());
    sender.handle_wake(first);
    assert_eq!(sent(&mut sender, first).len(), 2, "probes");
    assert_eq!(sender.progress().counts.lost, 0);
    let second = sender.wake_at().unwrap();
    assert_eq!(second, first + 120 * MS);
    sender.handle_wake(second);
    assert_eq!(sender.progress().window, 1.0);
    assert_eq!(sender.progress().in_flight, 0);
    let all = sent(&mut sender, second);
    assert_eq!(all.len(), 1);
    assert!(all[0].symbol > 22 * 8, "a new symbol: {all:?}");
}

#[test]
fn without_probes_the_first_timeout_collapses_the_window() {
    let mut options = options(20.0);
    options.timers.probes = 0;
    let mut sender = sender(&options);
    sent(&mut sender, at(0));
    let first = sender.wake_at().unwrap();
    assert_eq!(first, at(100));
    sender.handle_wake(first);
    assert_eq!(sender.progress().window, 1.0);
    assert_eq!(sender.progress().counts.timeouts, 1);
}

#[test]
fn a_receiver_that_never_answers_gets_little_and_the_flow_ends_in_a_second() {
    let mut sender = sender(&options(10.0));
    let (mut now, mut packets) = (at(0), 0);
    let mut last = now;
    while sender.end().is_none() {
        let count = sent(&mut sender, now).len();
        packets += count;
        last = if count > 0 { now } else { last };
        now = sender.wake_at().unwrap();
        sender.handle_wake(now);
    }
    assert_eq!(sender.end(), Some(FlowEnd::Silent(1000 * MS)));
    assert_eq!(now, at(1000));
    assert!(last < at(1000));
    assert!((12..20).contains(&packets), "{packets} packets");
    assert_eq!(sender.poll_send(now), None);
}

#[test]
fn little_follows_the_last_acknowledgement_whatever_the_window() {
    let mut options = options(5000.0);
    options.unanswered_max = 50;
    let mut sender = sender(&options);
    assert_eq!(sent(&mut sender, at(0)).len(), 50);
    sender.handle_ack(at(10), &ack(0, 0, 100));
    assert_eq!(sent(&mut sender, at(10)).len(), 50);
    // What tells nothing new opens nothing.
    sender.handle_ack(at(10), &ack(0, 0, 100));
    assert!(sent(&mut sender, at(10)).is_empty());
}

#[test]
fn acknowledging_what_was_never_sent_ends_the_flow() {
    let mut options = options(500.0);
    options.skip_every = 20;
    let mut one = sender(&options);
    let numbers: Vec<u64> = sent(&mut one, at(0)).iter().map(|it| it.number).collect();
    let last = *numbers.last().unwrap();
    let skipped: Vec<u64> = (0..last).filter(|it| !numbers.contains(it)).collect();
    assert!((10..50).contains(&skipped.len()), "{skipped:?}");
    assert_eq!(one.progress().counts.skipped, skipped.len() as u64);
    for number in numbers {
        one.handle_ack(at(10), &ack(number, 0, 100));
        assert_eq!(one.end(), None, "{number} was sent");
    }

    let mut two = sender(&options);
    sent(&mut two, at(0));
    two.handle_ack(at(10), &ack(skipped[3], 0, 100));
    assert_eq!(two.end(), Some(FlowEnd::Lied(Lie::NeverSent(skipped[3]))));

    let mut three = sender(&options);
    sent(&mut three, at(0));
    three.handle_ack(at(10), &ack(last + 1, 0, 100));
    assert_eq!(three.end(), Some(FlowEnd::Lied(Lie::NeverSent(last + 1))));
    three.handle_fin();
    assert_ne!(three.end(), Some(FlowEnd::Completed), "the first end holds");
}

/// Any number with any one more, from the first to behind the last.
#[test]
fn what_was_not_sent_can_be_acknowledged_at_no_place() {
    let mut options = options(500.0);
    options.skip_every = 20;
    let mut sender = sender(&options);
    let numbers: Vec<u64> = sent(&mut sender, at(0))
        .iter()
        .map(|it| it.number)
        .collect();
    let next = sender.flight.next();
    assert!(
        next > 200 && numbers.len() < next as usize,
        "some are left out"
    );
    let mut lies = 0;
    for number in (0..next + 70).chain([u64::MAX - 1, u64::MAX]) {
        for back in 0..u64::BITS {
            let told = Ack {
                received: 1 << back,
                ..ack(number, 0, 100)
            };
            let named = [Some(number), number.checked_sub(back.into())];
            let was_sent =
                |it: Option<u64>| it.is_some_and(|it| numbers.binary_search(&it).is_ok());
            let is_true = named.into_iter().all(was_sent);
            assert_eq!(
                sender.lie(&told).is_none(),
                is_true,
                "{number} and {back} before"
            );
            lies += u32::from(!is_true);
        }
    }
    assert!(lies > 64 * 70);
}

#[test]
fn blocks_that_are_not_there_end_the_flow_and_the_last_does_not() {
    let mut one = sender(&options(10.0));
    sent(&mut one, at(0));
    one.handle_ack(at(10), &ack(0, 9, 1));
    assert_eq!(one.end(), None);
    one.handle_ack(at(10), &ack(0, 10, 1));
    assert_eq!(one.end(), Some(FlowEnd::Lied(Lie::NoSuchBlock(10))));

    let mut two = sender(&options(10.0));
    sent(&mut two, at(0));
    let mut told = ack(0, 0, 0);
    told.floor = 10;
    two.handle_ack(at(10), &told);
    assert_eq!(
        two.poll_send(at(10)),
        Some(SenderOutput::Fin(FLOW)),
        "all is decoded"
    );
}

#[test]
fn a_block_has_only_so_many_symbols() {
    let mut options = options(100.0);
    options.flow.seat = 255;
    options.assignment = Assignment::Rateless {
        seats: 256,
        sources: 1,
    };
    let mut sender = sender(&options);
    let mut packets = 0;
    let mut arrives = std::collections::VecDeque::new();
    while sender.end().is_none() {
        let all = sent(&mut sender, at(packets));
        assert!(all.iter().all(|it| it.symbol < crate::SYMBOL_NUMBERS));
        packets += all.len() as u64;
        arrives.extend(all.iter().map(|it| it.number));
        // The receiver says that it still needs all of the first block, whatever comes.
        let mut told = ack(arrives.pop_front().unwrap(), 0, 102);
        told.flow = options.flow;
        sender.handle_ack(at(packets), &told);
    }
    assert_eq!(sender.end(), Some(FlowEnd::OutOfSymbols(0)));
}

#[test]
fn a_pause_is_nobodys_silence() {
    let mut sender = sender(&options(10.0));
    sent(&mut sender, at(0));
    sender.set_paused(at(500), true);
    assert_eq!(sender.wake_at(), None);
    sender.handle_wake(at(5000));
    sender.set_paused(at(5000), false);
    sender.handle_wake(at(5000));
    assert_eq!(sender.end(), None);
    sender.handle_wake(at(6000));
    assert!(matches!(sender.end(), Some(FlowEnd::Silent(_))));
}

#[test]
fn a_weight_can_change_at_any_time_and_a_fin_ends_at_once() {
    let mut sender = sender(&options(10.0));
    sent(&mut sender, at(0));
    sender.set_theta(4.0).unwrap();
    assert!(sender.set_theta(0.0).is_err());
    assert_eq!(sender.control.weighted().unwrap().theta(), 4.0);
    sender.handle_fin();
    assert_eq!(sender.end(), Some(FlowEnd::Completed));
    assert_eq!(sender.poll_send(at(1)), Some(SenderOutput::FinAck(FLOW)));
    assert_eq!(sender.poll_send(at(1)), None);
    // The answer may be lost.
    sender.handle_fin();
    assert_eq!(sender.poll_send(at(2)), Some(SenderOutput::FinAck(FLOW)));
}

#[test]
fn options_out_of_range_are_errors() {
    let is_err = |change: fn(&mut SenderOptions)| {
        let mut options = options(1.0);
        change(&mut options);
        Sender::new(&options).is_err()
    };
    assert!(!is_err(|_| {}));
    assert!(is_err(|it| it.flow.seat = 8));
    assert!(!is_err(|it| it.flow.seat = 7));
    assert!(is_err(|it| it.unanswered_max = 0));
    assert!(is_err(|it| it.timers.silence_max = Duration::ZERO));
    assert!(is_err(|it| it.timers.rto_max = it.timers.rto_min / 2));
    assert!(is_err(|it| it.assignment = Assignment::Share {
        first: 999,
        count: 2
    }));
    assert!(!is_err(|it| it.assignment = Assignment::Share {
        first: 999,
        count: 1
    }));
    assert!(is_err(|it| {
        it.assignment = Assignment::Share {
            first: u64::MAX,
            count: 2,
        };
    }));
    assert!(is_err(|it| it.assignment = Assignment::Rateless {
        seats: 257,
        sources: 1
    }));
}

/// What may be in flight is a whole number, and on average as much as the window.
#[test]
fn a_part_of_a_packet_is_in_flight_as_often_as_it_says() {
    let mut random = Pcg64Mcg::seed_from_u64(1);
    let mut fraction = Fraction::default();
    for window in [1.0, 1.25, 6.5, 110.0, 110.9] {
        let draws = 100_000;
        let sum: u64 = (0..draws)
            .map(|_| {
                fraction.draw(&mut random);
                let whole = fraction.whole(window);
                assert!(f64::from(whole) > window - 1.0 && f64::from(whole) < window + 1.0);
                u64::from(whole)
            })
            .sum();
        let mean = sum as f64 / f64::from(draws);
        assert!((mean - window).abs() < 0.01, "{mean} instead of {window}");
    }
}
