//! What the fuzz target begins with. With `OUTPOUR_BLESS=1` the tests write it anew, as a change of a message does
//! away with the old.

use std::path::Path;
use std::time::Duration;

use outpour_push::wire::{Message, encode};
use outpour_push::*;

fn flow(seat: u32) -> FlowId {
    FlowId {
        task: TaskId(1),
        seat,
    }
}

fn order(serial: u32, state: OrderState, theta: f64, assignment: Assignment) -> Order {
    Order {
        flow: flow(0),
        epoch: serial / 4,
        incarnation: 0,
        serial,
        state,
        theta,
        device: DeviceId(1),
        uri: "object".to_owned(),
        layout: Layout::new(50, 10).unwrap(),
        assignment,
    }
}

/// The seeds by name: messages, each with the payload that follows it.
fn seeds() -> Vec<(&'static str, Vec<Message>, &'static [u8])> {
    let layout = Layout::new(50, 10).unwrap();
    let uri = || "object".to_owned();
    let (source, device, task) = (SourceId(1), DeviceId(1), TaskId(1));
    let data = |seat, number, block, symbol| {
        Message::Data(Data {
            flow: flow(seat),
            number,
            block,
            symbol,
        })
    };
    let ack = |number, received, floor, block| {
        Message::Ack(Ack {
            flow: flow(0),
            number,
            received,
            marked: received & 2,
            floor,
            block,
            needed: 3,
            needed_next: 5,
        })
    };
    let to = Message::ToController;
    let progress = |task, floor, remaining| Progress {
        task,
        floor,
        remaining,
    };
    let ended = |flow, end| to(ToController::Ended { source, flow, end });
    let accepted = |seats, is_coded| {
        Message::ToReceiver(ToReceiver::Accepted(Accepted {
            task,
            epoch: 0,
            layout,
            seats,
            sources: 3,
            is_coded,
        }))
    };
    let rateless = Assignment::Rateless {
        seats: 4,
        sources: 2,
    };
    let share = |count| Assignment::Share { first: 10, count };
    let orders = |list: &[(u32, OrderState, f64)]| {
        let it = list.iter().map(|it| order(it.0, it.1, it.2, rateless));
        it.map(|it| Message::ToSource(ToSource::Order(it)))
            .collect()
    };
    let one = |assignment| {
        let order = order(1, OrderState::Push, 1.0, assignment);
        vec![Message::ToSource(ToSource::Order(order))]
    };
    let resume = |task| {
        to(ToController::Resume {
            progress: progress(task, 2, 30),
            uri: uri(),
            device,
            layout,
            seats: 4,
            seats_seen: 3,
            is_coded: true,
            epoch: 1,
        })
    };
    vec![
        ("empty", vec![], b""),
        (
            "data_block",
            (0..12)
                .map(|it| data(it % 4, u64::from(it / 4), 0, it))
                .collect(),
            b"x",
        ),
        ("data_far", vec![data(3, u64::MAX, 4, (1 << 24) - 1)], b""),
        ("data_strange", vec![data(4, 0, 5, u32::MAX)], b"payload"),
        (
            "acks",
            vec![ack(0, 1, 0, 0), ack(1, 3, 0, 0), ack(3, 9, 1, 1)],
            b"",
        ),
        ("ack_never_sent", vec![ack(u64::MAX, u64::MAX, 0, 0)], b""),
        ("ack_block", vec![ack(0, 1, 6, 9)], b""),
        (
            "fins",
            vec![
                Message::Fin(flow(0)),
                Message::FinAck(flow(0)),
                Message::Fin(flow(300)),
            ],
            b"",
        ),
        (
            "controller_task",
            vec![
                to(ToController::Announce {
                    source,
                    uri: uri(),
                    layout,
                    epoch: 0,
                    incarnation: 0,
                }),
                to(ToController::Request { uri: uri(), device }),
                to(ToController::Obeyed {
                    flow: flow(0),
                    serial: 1,
                }),
                to(ToController::Progress(progress(task, 2, 30))),
                to(ToController::Heartbeat {
                    source,
                    epoch: 3,
                    incarnation: 1,
                }),
                ended(flow(0), FlowEnd::Silent(Duration::from_secs(1))),
                to(ToController::Fin {
                    task,
                    device: DeviceId(7),
                }),
            ],
            b"",
        ),
        (
            "controller_lies",
            vec![
                to(ToController::Progress(progress(
                    TaskId(9),
                    u32::MAX,
                    u64::MAX,
                ))),
                ended(flow(9), FlowEnd::Lied(Lie::NeverSent(7))),
                resume(TaskId(u64::MAX)),
                to(ToController::Fin {
                    task: TaskId(u64::MAX),
                    device: DeviceId(0),
                }),
            ],
            b"",
        ),
        (
            "controller_follows",
            vec![
                to(ToController::Flow {
                    source,
                    order: order(1, OrderState::Push, 1.0, rateless),
                }),
                resume(task),
                to(ToController::Flow {
                    source,
                    order: order(9, OrderState::Pause, 2.0, share(40)),
                }),
            ],
            b"",
        ),
        (
            "receiver",
            vec![
                accepted(4, true),
                accepted(0, false),
                Message::ToReceiver(ToReceiver::FinAck(task)),
                Message::ToReceiver(ToReceiver::Failed { task, epoch: 2 }),
                Message::ToReceiver(ToReceiver::Refused(Refusal::Busy)),
            ],
            b"",
        ),
        (
            "orders",
            orders(&[
                (1, OrderState::Push, 1.0),
                (2, OrderState::Pause, 2.0),
                (3, OrderState::Push, f64::NAN),
                (4, OrderState::Stop, 1.0),
            ]),
            b"",
        ),
        (
            "orders_of_epochs",
            orders(&[(9, OrderState::Push, 1.0), (3, OrderState::Stop, 1.0)]),
            b"",
        ),
        (
            "end_and_epoch",
            vec![
                Message::ToSource(ToSource::EndAck(flow(0))),
                Message::ToSource(ToSource::Epoch(u32::MAX)),
            ],
            b"",
        ),
        ("order_share", one(share(40)), b""),
        ("order_cannot", one(share(u64::MAX)), b""),
    ]
}

#[test]
fn the_seeds_of_the_corpus_are_what_messages_look_like() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/push_messages");
    for (name, messages, payload) in seeds() {
        let mut bytes = Vec::new();
        for message in &messages {
            let mut one = encode(message, Vec::new());
            if matches!(message, Message::Data(_)) {
                one.extend(payload);
            }
            bytes.push(u8::try_from(one.len()).unwrap());
            bytes.extend(one);
        }
        let path = root.join(name);
        if option_env!("OUTPOUR_BLESS").is_some() {
            std::fs::write(&path, &bytes).unwrap();
        }
        let there = std::fs::read(&path).unwrap();
        assert!(there == bytes, "{name} is not what it was written as");
    }
}
