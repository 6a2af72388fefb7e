//! Tests of the receiver alone.
#![allow(clippy::unwrap_used)]

use super::*;
use crate::{ChanceDecoder, Layout};

const MS: Duration = Duration::from_millis(1);
const TASK: TaskId = TaskId(5);

/// Decodes nothing, ever.
#[derive(Debug)]
struct Never;

impl Decoder for Never {
    fn begin(&mut self, _: &Layout) -> bool {
        true
    }
    fn add(&mut self, _: u32, _: u32, _: u32, _: &[u8]) -> bool {
        false
    }
}

fn at(ms: u64) -> Time {
    Time(ms * 1_000_000)
}

fn options() -> ReceiverOptions {
    ReceiverOptions {
        estimate: Estimate::Even,
        ..ReceiverOptions::new("object", DeviceId(1))
    }
}

/// A receiver of an object of 250 symbols in blocks of 100, from four seats.
fn begun(options: ReceiverOptions, decoder: Box<dyn Decoder>, sources: u32) -> Receiver {
    let mut receiver = Receiver::new(options, decoder, at(0)).unwrap();
    receiver.handle_controller(at(0), &accepted(sources));
    assert_eq!(receiver.id(), Some(TASK));
    receiver
}

fn accepted(sources: u32) -> ToReceiver {
    ToReceiver::Accepted(Accepted {
        epoch: 0,
        task: TASK,
        layout: Layout::new(250, 100).unwrap(),
        seats: 4,
        sources,
        is_coded: true,
    })
}

/// The packet of a flow with that number carries its symbol of that number.
fn data(seat: u32, number: u64, block: u32) -> Data {
    Data {
        flow: FlowId { task: TASK, seat },
        number,
        block,
        symbol: seat + 4 * number as u32,
    }
}

fn outputs(receiver: &mut Receiver, now: Time) -> Vec<ReceiverOutput> {
    std::iter::from_fn(|| receiver.poll_transmit(now)).collect()
}

#[test]
fn a_request_is_repeated_until_it_is_answered() {
    let mut receiver = Receiver::new(options(), Box::new(Never), at(0)).unwrap();
    let request = ReceiverOutput::Controller(ToController::Request {
        uri: "object".to_owned(),
        device: DeviceId(1),
    });
    assert_eq!(
        outputs(&mut receiver, at(0)),
        std::slice::from_ref(&request)
    );
    assert_eq!(outputs(&mut receiver, at(199)), []);
    assert_eq!(outputs(&mut receiver, at(200)), [request]);
    receiver.handle_controller(at(210), &accepted(3));
    assert_eq!(outputs(&mut receiver, at(309)), []);
    let progress = outputs(&mut receiver, at(310));
    let expected = Progress {
        task: TASK,
        floor: 0,
        remaining: 250,
    };
    assert_eq!(
        progress,
        [ReceiverOutput::Controller(ToController::Progress(expected))]
    );
}

#[test]
fn without_an_answer_it_ends() {
    let mut receiver = Receiver::new(options(), Box::new(Never), at(0)).unwrap();
    let mut requests = 0;
    while receiver.end().is_none() {
        let now = receiver.wake_at().unwrap();
        receiver.handle_wake(now);
        requests += outputs(&mut receiver, now).len();
    }
    assert_eq!(requests, 25);
    assert_eq!(receiver.end(), Some(ReceiverEnd::NoController));
}

#[test]
fn a_packet_is_acknowledged_with_what_is_still_needed() {
    let mut receiver = begun(options(), Box::new(ChanceDecoder::new(1)), 2);
    let first = receiver
        .handle_data(at(1), &data(0, 0, 0), false, &[])
        .unwrap();
    // ceil((100 - 1 + 2) / 2), and of the next block ceil(102 / 2).
    assert_eq!((first.needed, first.needed_next, first.floor), (51, 51, 0));
    assert_eq!((first.number, first.received, first.marked), (0, 1, 0));
    let second = receiver
        .handle_data(at(2), &data(0, 2, 0), true, &[])
        .unwrap();
    assert_eq!(
        (second.number, second.received, second.marked),
        (2, 0b101, 1)
    );
    assert_eq!((second.block, second.needed), (0, 50));
    // Of the last block, which has 50 symbols; there is none after it.
    let last = receiver
        .handle_data(at(3), &data(1, 0, 2), false, &[])
        .unwrap();
    assert_eq!((last.needed, last.needed_next), (26, 0));
}

#[test]
fn the_rest_is_divided_among_those_that_are_heard() {
    let mut receiver = begun(options(), Box::new(ChanceDecoder::new(1)), 1);
    let needed = |receiver: &mut Receiver, now, seat, number| {
        let data = data(seat, number, 0);
        receiver.handle_data(now, &data, false, &[]).unwrap().needed
    };
    assert_eq!(needed(&mut receiver, at(1), 0, 0), 101);
    assert_eq!(needed(&mut receiver, at(1), 1, 0), 50);
    // The controller knows of a third that has not been heard yet.
    receiver.handle_controller(at(2), &accepted(3));
    assert_eq!(needed(&mut receiver, at(2), 0, 1), 33);
    // It never comes, and the second falls silent.
    assert_eq!(needed(&mut receiver, at(1100), 0, 2), 49);
    receiver.handle_wake(receiver.wake_at().unwrap().max(at(1100)));
    assert_eq!(needed(&mut receiver, at(1101), 0, 3), 97);
    // One that says it is done does not count, either.
    assert_eq!(needed(&mut receiver, at(1102), 1, 1), 48);
    receiver.handle_fin(FlowId {
        task: TASK,
        seat: 1,
    });
    assert_eq!(needed(&mut receiver, at(1103), 0, 4), 95);
    let fin_ack = ReceiverOutput::FinAck(FlowId {
        task: TASK,
        seat: 1,
    });
    assert!(outputs(&mut receiver, at(1103)).contains(&fin_ack));
}

#[test]
fn a_part_is_what_a_flow_delivered_of_blocks_before() {
    let options = ReceiverOptions::new("object", DeviceId(1));
    let mut receiver = begun(options, Box::new(ChanceDecoder::new(1)), 2);
    let mut last = None;
    // Of the first block one flow delivers three in four.
    for number in 0..30 {
        for seat in if number % 3 == 0 { 0..2 } else { 0..1 } {
            for nth in 0..if seat == 0 { 3 } else { 2 } {
                let data = data(seat, number * 3 + nth, 0);
                last = receiver.handle_data(at(1), &data, false, &[]).or(last);
            }
        }
    }
    assert_eq!(last.unwrap().floor, 1, "decoded");
    let of = |receiver: &mut Receiver, seat| {
        let data = data(seat, 200, 1);
        receiver
            .handle_data(at(2), &data, false, &[])
            .unwrap()
            .needed
    };
    // Of 102, and not more than an even part.
    let (large, small) = (of(&mut receiver, 0), of(&mut receiver, 1));
    assert_eq!(large, 51);
    assert!((15..35).contains(&small), "{small}");
}

#[test]
fn several_packets_are_acknowledged_together_or_after_a_while() {
    let mut four = options();
    four.ack_every = 4;
    let mut receiver = begun(four, Box::new(ChanceDecoder::new(1)), 1);
    for number in [0, 1, 3] {
        assert_eq!(
            receiver.handle_data(at(1), &data(0, number, 0), number == 1, &[]),
            None
        );
    }
    let all = receiver
        .handle_data(at(1), &data(0, 2, 0), false, &[])
        .unwrap();
    assert_eq!((all.number, all.received, all.marked), (3, 0b1111, 0b100));
    assert_eq!(
        receiver.handle_data(at(5), &data(0, 4, 0), false, &[]),
        None
    );
    assert_eq!(outputs(&mut receiver, at(5)), []);
    assert_eq!(receiver.wake_at(), Some(at(6)));
    match outputs(&mut receiver, at(6))[..] {
        [ReceiverOutput::Ack(ack)] => assert_eq!((ack.number, ack.received & 1), (4, 1)),
        ref other => panic!("{other:?}"),
    }
    assert!(receiver.wake_at().unwrap() > at(6));
    // One that would fall out of what an acknowledgement can tell is acknowledged before.
    assert_eq!(
        receiver.handle_data(at(7), &data(0, 10, 0), false, &[]),
        None
    );
    let before = receiver
        .handle_data(at(7), &data(0, 26, 0), false, &[])
        .unwrap();
    assert_eq!(before.number, 10);
    // One that is too old for the others goes alone.
    let old = receiver
        .handle_data(at(7), &data(0, 7, 0), true, &[])
        .unwrap();
    assert_eq!((old.number, old.received, old.marked), (7, 1, 1));
}

#[test]
fn what_came_already_is_acknowledged_and_counted() {
    let mut receiver = begun(options(), Box::new(ChanceDecoder::new(1)), 1);
    let first = receiver
        .handle_data(at(1), &data(0, 0, 0), false, &[])
        .unwrap();
    let again = receiver
        .handle_data(at(1), &data(0, 0, 0), false, &[])
        .unwrap();
    assert_eq!(first, again);
    let counts = receiver.counts();
    assert_eq!(
        (counts.packets, counts.duplicates, counts.symbols),
        (2, 1, 1)
    );
}

#[test]
fn what_no_honest_sender_sends_is_not_acknowledged() {
    let mut receiver = begun(options(), Box::new(ChanceDecoder::new(1)), 1);
    let fine = data(1, 1, 2);
    let changed = |change: fn(&mut Data)| {
        let mut data = fine;
        change(&mut data);
        data
    };
    for (bad, what) in [
        (changed(|it| it.block = 3), "a block that is not there"),
        (changed(|it| it.symbol += 1), "a symbol of another seat"),
        (
            changed(|it| it.symbol = crate::SYMBOL_NUMBERS + 1),
            "a symbol beyond all",
        ),
        (changed(|it| it.flow.seat = 5), "a seat that is not there"),
        (changed(|it| it.flow.task = TaskId(6)), "another task"),
    ] {
        assert_eq!(
            receiver.handle_data(at(1), &bad, false, &[]),
            None,
            "{what}"
        );
    }
    assert_eq!(receiver.counts().invalid, 5);
    assert!(receiver.handle_data(at(1), &fine, false, &[]).is_some());
}

#[test]
fn a_block_that_cannot_be_decoded_ends_the_task() {
    let mut receiver = begun(options(), Box::new(Never), 1);
    for number in 0..163 {
        receiver.handle_data(at(1), &data(0, number, 0), false, &[]);
        assert_eq!(receiver.end(), None, "symbol {number}");
    }
    receiver.handle_data(at(1), &data(0, 163, 0), false, &[]);
    assert_eq!(receiver.end(), Some(ReceiverEnd::Undecodable(0)));
}

#[test]
fn without_new_symbols_it_starves() {
    let mut receiver = begun(options(), Box::new(ChanceDecoder::new(1)), 1);
    receiver.handle_data(at(1000), &data(0, 0, 0), false, &[]);
    // The same again is nothing new.
    receiver.handle_data(at(20_000), &data(0, 0, 0), false, &[]);
    receiver.handle_wake(at(30_999));
    assert_eq!(receiver.end(), None);
    receiver.handle_wake(at(31_000));
    assert_eq!(receiver.end(), Some(ReceiverEnd::Starved));
}

#[test]
fn fins_go_to_all_until_each_has_answered() {
    let mut receiver = begun(options(), Box::new(ChanceDecoder::new(1)), 2);
    let mut number = 0;
    while !receiver.is_complete() {
        let block = receiver.progress().unwrap().floor;
        for seat in 0..2 {
            receiver.handle_data(at(1), &data(seat, number, block), false, &[]);
        }
        number += 1;
    }
    let remaining = receiver.progress().unwrap();
    assert_eq!((remaining.floor, remaining.remaining), (3, 0));
    let to_controller = ReceiverOutput::Controller(ToController::Fin {
        task: TASK,
        device: DeviceId(1),
    });
    let fin = |seat| ReceiverOutput::Fin(FlowId { task: TASK, seat });
    assert_eq!(
        outputs(&mut receiver, at(1)),
        [to_controller.clone(), fin(0), fin(1)]
    );
    assert_eq!(outputs(&mut receiver, at(100)), []);
    receiver.handle_fin_ack(FlowId {
        task: TASK,
        seat: 0,
    });
    assert_eq!(outputs(&mut receiver, at(101)), [to_controller, fin(1)]);
    receiver.handle_controller(at(110), &ToReceiver::FinAck(TASK));
    assert_eq!(receiver.end(), None);
    assert_eq!(outputs(&mut receiver, at(201)), [fin(1)]);
    receiver.handle_fin_ack(FlowId {
        task: TASK,
        seat: 1,
    });
    assert_eq!(receiver.end(), Some(ReceiverEnd::Completed));
}

#[test]
fn blocks_too_far_ahead_are_neither_kept_nor_acknowledged() {
    let mut receiver = Receiver::new(options(), Box::new(ChanceDecoder::new(1)), at(0)).unwrap();
    let accepted = Accepted {
        epoch: 0,
        task: TASK,
        layout: Layout::new(100_000, 100).unwrap(),
        seats: 4,
        sources: 1,
        is_coded: true,
    };
    receiver.handle_controller(at(0), &ToReceiver::Accepted(accepted));
    let last = receiver.handle_data(at(1), &data(0, 0, AHEAD_MAX - 1), false, &[]);
    assert!(last.is_some());
    let ahead = receiver.handle_data(at(1), &data(0, 1, AHEAD_MAX), false, &[]);
    assert_eq!(ahead, None);
    assert_eq!(receiver.counts().ahead, 1);
    assert_eq!(receiver.footprint().blocks, AHEAD_MAX as usize);
}

#[test]
fn options_out_of_range_are_errors() {
    let is_err = |change: fn(&mut ReceiverOptions)| {
        let mut options = options();
        change(&mut options);
        Receiver::new(options, Box::new(Never), at(0)).is_err()
    };
    assert!(!is_err(|_| {}));
    assert!(is_err(|it| it.uri.clear()));
    assert!(is_err(|it| it.uri = "u".repeat(URI_BYTES_MAX + 1)));
    assert!(is_err(|it| it.ack_every = 33));
    assert!(is_err(|it| it.ack_covers = 65));
    assert!(is_err(|it| it.ack_every = 17));
    assert!(is_err(|it| it.fin_interval = Duration::ZERO));
    let mut receiver = Receiver::new(options(), Box::new(Never), at(0)).unwrap();
    let accepted = Accepted {
        epoch: 0,
        task: TASK,
        layout: Layout::new(1, 1).unwrap(),
        seats: 0,
        sources: 1,
        is_coded: true,
    };
    receiver.handle_controller(at(0) + MS, &ToReceiver::Accepted(accepted));
    assert_eq!(receiver.end(), Some(ReceiverEnd::BadTask));
}
