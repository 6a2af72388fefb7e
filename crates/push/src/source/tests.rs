//! Tests of a source alone.
#![allow(clippy::unwrap_used)]

use super::*;
use crate::{Assignment, TaskId};

const FLOW: FlowId = FlowId {
    task: TaskId(1),
    seat: 0,
};

fn at(ms: u64) -> Time {
    Time(ms * 1_000_000)
}

fn layout() -> Layout {
    Layout::new(1000, 100).unwrap()
}

fn source() -> Source {
    let mut source = Source::new(SourceOptions::new(SourceId(3)), at(0)).unwrap();
    source.hold("object", layout()).unwrap();
    source
}

fn order(serial: u32, state: OrderState) -> ToSource {
    ToSource::Order(Order {
        epoch: 0,
        incarnation: 0,
        flow: FLOW,
        serial,
        state,
        theta: 1.0,
        device: DeviceId(7),
        uri: "object".to_owned(),
        layout: layout(),
        assignment: Assignment::Rateless {
            seats: 4,
            sources: 1,
        },
    })
}

fn outputs(source: &mut Source, now: Time) -> Vec<SourceOutput> {
    std::iter::from_fn(|| source.poll_transmit(now)).collect()
}

fn packets(outputs: &[SourceOutput]) -> usize {
    let is_packet = |it: &&SourceOutput| matches!(it, SourceOutput::Data(DeviceId(7), _));
    outputs.iter().filter(is_packet).count()
}

fn is_obeyed(outputs: &[SourceOutput], serial: u32) -> bool {
    let flow = FLOW;
    outputs.contains(&SourceOutput::Controller(ToController::Obeyed {
        flow,
        serial,
    }))
}

#[test]
fn what_it_has_is_announced_in_turn_for_ever() {
    let mut source = source();
    source.hold("other", layout()).unwrap();
    let mut names = Vec::new();
    for ms in 0..1001 {
        for output in outputs(&mut source, at(ms)) {
            match output {
                SourceOutput::Controller(ToController::Announce { uri, .. }) => {
                    names.push((ms, uri))
                }
                other => panic!("{other:?}"),
            }
        }
    }
    let expected = [
        (0, "object"),
        (0, "other"),
        (250, "object"),
        (500, "other"),
        (750, "object"),
    ];
    let all: Vec<_> = names.iter().map(|it| (it.0, it.1.as_str())).collect();
    assert_eq!(all[..5], expected);
    let mut empty = Source::new(SourceOptions::new(SourceId(4)), at(0)).unwrap();
    let beat = SourceOutput::Controller(ToController::Heartbeat {
        source: SourceId(4),
        epoch: 0,
        incarnation: 0,
    });
    assert_eq!(outputs(&mut empty, at(0)), [beat]);
}

#[test]
fn orders_are_obeyed_in_their_order() {
    let mut source = source();
    outputs(&mut source, at(0));
    source.handle_controller(at(1), &order(2, OrderState::Pause));
    let all = outputs(&mut source, at(1));
    assert!(is_obeyed(&all, 2) && packets(&all) == 0, "{all:?}");
    // The one before comes late: it is answered and changes nothing.
    source.handle_controller(at(2), &order(1, OrderState::Push));
    let all = outputs(&mut source, at(2));
    assert!(is_obeyed(&all, 1) && packets(&all) == 0, "{all:?}");
    source.handle_controller(at(3), &order(3, OrderState::Push));
    assert_eq!(packets(&outputs(&mut source, at(3))), 1);
}

#[test]
fn an_end_is_told_until_it_is_known_and_nothing_revives_the_flow() {
    let mut source = source();
    outputs(&mut source, at(0));
    source.handle_controller(at(1), &order(1, OrderState::Push));
    assert_eq!(packets(&outputs(&mut source, at(1))), 1);
    source.handle_fin(FLOW);
    let ended = SourceOutput::Controller(ToController::Ended {
        source: SourceId(3),
        flow: FLOW,
        end: FlowEnd::Completed,
    });
    let fin_ack = SourceOutput::FinAck(DeviceId(7), FLOW);
    assert_eq!(outputs(&mut source, at(2)), [fin_ack, ended.clone()]);
    assert_eq!(source.wake_at(), Some(at(202)));
    source.handle_wake(at(202));
    assert!(outputs(&mut source, at(202)).contains(&ended));
    source.handle_controller(at(203), &ToSource::EndAck(FLOW));
    assert_eq!(source.senders().count(), 0);
    // Who orders it anew does not know that, and hears it again; a stop is obeyed already.
    source.handle_controller(at(204), &order(1, OrderState::Push));
    assert_eq!(outputs(&mut source, at(204)), [ended]);
    source.handle_controller(at(205), &order(2, OrderState::Stop));
    let all = outputs(&mut source, at(205));
    assert!(is_obeyed(&all, 2) && all.len() == 1, "{all:?}");
    assert_eq!(source.senders().count(), 0);
}

#[test]
fn an_end_that_nobody_wants_to_know_is_forgotten() {
    let mut source = source();
    source.handle_controller(at(1), &order(1, OrderState::Push));
    outputs(&mut source, at(1));
    source.handle_controller(at(2), &order(2, OrderState::Stop));
    let (mut now, mut told) = (at(2), 0);
    while source.senders().count() > 0 {
        let is_end =
            |it: &&SourceOutput| matches!(it, SourceOutput::Controller(ToController::Ended { .. }));
        told += outputs(&mut source, now).iter().filter(is_end).count();
        now = source.wake_at().unwrap();
        source.handle_wake(now);
        assert!(now < at(5000));
    }
    assert_eq!(told, 10);
}

#[test]
fn what_it_cannot_push_it_refuses() {
    let mut source = source();
    outputs(&mut source, at(0));
    let ToSource::Order(mut bad) = order(1, OrderState::Push) else {
        panic!();
    };
    bad.layout = Layout::new(1000, 99).unwrap();
    source.handle_controller(at(1), &ToSource::Order(bad.clone()));
    let refused = SourceOutput::Controller(ToController::Ended {
        source: SourceId(3),
        flow: FLOW,
        end: FlowEnd::Refused,
    });
    assert_eq!(outputs(&mut source, at(1)), std::slice::from_ref(&refused));
    bad.layout = layout();
    bad.flow.seat = 4;
    source.handle_controller(at(1), &ToSource::Order(bad));
    let all = outputs(&mut source, at(1));
    assert!(
        matches!(
            all[..],
            [SourceOutput::Controller(ToController::Ended { .. })]
        ),
        "{all:?}"
    );
    assert!(source.hold("", layout()).is_err());
    assert!(
        source
            .hold(&"u".repeat(URI_BYTES_MAX + 1), layout())
            .is_err()
    );
}
