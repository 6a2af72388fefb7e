//! Tests of messages as bytes.
#![allow(clippy::unwrap_used)]

use std::time::Duration;

use proptest::prelude::*;

use super::*;
use crate::*;

fn all() -> Vec<Message> {
    let flow = FlowId {
        task: TaskId(u64::MAX),
        seat: 255,
    };
    let layout = Layout::new(1 << 40, 56_403).unwrap();
    let uri = "u".repeat(URI_BYTES_MAX);
    let end = FlowEnd::Silent(Duration::MAX);
    let source = SourceId(u32::MAX);
    vec![
        Message::Data(Data {
            flow,
            number: u64::MAX,
            block: u32::MAX,
            symbol: u32::MAX,
        }),
        Message::Ack(Ack {
            flow,
            number: u64::MAX,
            received: u64::MAX,
            marked: u64::MAX,
            floor: u32::MAX,
            block: u32::MAX,
            needed: u32::MAX,
            needed_next: u32::MAX,
        }),
        Message::Fin(flow),
        Message::FinAck(flow),
        Message::ToController(ToController::Request {
            uri: uri.clone(),
            device: DeviceId(u64::MAX),
        }),
        Message::ToController(ToController::Announce {
            epoch: 0,
            incarnation: u64::MAX,
            source,
            uri: uri.clone(),
            layout,
        }),
        Message::ToController(ToController::Ended { source, flow, end }),
        Message::ToController(ToController::Progress(Progress {
            task: TaskId(u64::MAX),
            floor: 1,
            remaining: 2,
        })),
        Message::ToController(ToController::Fin {
            task: TaskId(u64::MAX),
            device: DeviceId(u64::MAX),
        }),
        Message::ToController(ToController::Heartbeat {
            source,
            epoch: 1,
            incarnation: 2,
        }),
        Message::ToController(ToController::Obeyed { flow, serial: 1 }),
        Message::ToReceiver(ToReceiver::Refused(Refusal::Busy)),
        Message::ToReceiver(ToReceiver::FinAck(TaskId(9))),
        Message::ToSource(ToSource::EndAck(flow)),
        Message::ToController(ToController::Resume {
            progress: Progress {
                task: TaskId(u64::MAX),
                floor: u32::MAX,
                remaining: u64::MAX,
            },
            uri: uri.clone(),
            device: DeviceId(u64::MAX),
            layout,
            seats: 256,
            seats_seen: 256,
            is_coded: true,
            epoch: 1,
        }),
        Message::ToReceiver(ToReceiver::Failed {
            task: TaskId(u64::MAX),
            epoch: u32::MAX,
        }),
        Message::ToSource(ToSource::Epoch(u32::MAX)),
        Message::ToReceiver(ToReceiver::Accepted(Accepted {
            epoch: 0,
            task: TaskId(7),
            layout,
            seats: 256,
            sources: 3,
            is_coded: true,
        })),
        Message::ToSource(ToSource::Order(Order {
            epoch: 0,
            incarnation: u64::MAX,
            flow,
            serial: u32::MAX,
            state: OrderState::Pause,
            theta: 0.5,
            device: DeviceId(u64::MAX),
            uri,
            layout,
            assignment: Assignment::Share {
                first: u64::MAX,
                count: u64::MAX,
            },
        })),
    ]
}

#[test]
fn messages_come_back_and_fit_their_bound() {
    for message in all() {
        let bytes = encode(&message, Vec::new());
        assert!(
            bytes.len() <= MESSAGE_BYTES_MAX,
            "{} bytes: {message:?}",
            bytes.len()
        );
        assert_eq!(decode(&bytes).unwrap(), (message, &[][..]));
    }
}

/// What messages of this version look like, by a digest (FNV-1a) of all that follows the first bytes.
const LOOKS: (u8, u64) = (0xA2, 0xab25_f484_bb7c_ec22);

#[test]
fn messages_that_look_otherwise_have_another_version() {
    let mut digest = 0xcbf2_9ce4_8422_2325_u64;
    for message in all() {
        let bytes = encode(&message, Vec::new());
        assert_eq!(bytes[0], VERSION);
        for byte in &bytes[1..] {
            digest = (digest ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3);
        }
    }
    assert_eq!(
        (VERSION, digest),
        LOOKS,
        "messages changed: count VERSION up, and note both here"
    );
}

#[test]
fn an_end_of_another_release_is_refused_by_its_first_byte() {
    for message in all() {
        let mut bytes = encode(&message, Vec::new());
        for other in [VERSION - 1, VERSION + 1] {
            bytes[0] = other;
            let found = Some(other);
            assert_eq!(decode(&bytes), Err(WireError::Version { found }));
        }
    }
}

#[test]
fn only_packets_have_a_payload() {
    for message in all() {
        let mut bytes = encode(&message, Vec::new());
        bytes.extend(b"payload");
        match message {
            Message::Data(_) => assert_eq!(decode(&bytes).unwrap(), (message, &b"payload"[..])),
            _ => assert_eq!(decode(&bytes), Err(WireError::Trailing { bytes: 7 })),
        }
    }
}

#[test]
fn cut_off_messages_are_errors() {
    for message in all() {
        let bytes = encode(&message, Vec::new());
        for len in 0..bytes.len() {
            assert!(decode(&bytes[..len]).is_err(), "{len} bytes of {message:?}");
        }
    }
}

#[test]
fn other_versions_and_layouts_that_cannot_be_are_errors() {
    assert_eq!(decode(&[]), Err(WireError::Version { found: None }));
    assert_eq!(decode(&[7, 0]), Err(WireError::Version { found: Some(7) }));
    let announce = Message::ToController(ToController::Announce {
        epoch: 0,
        incarnation: 0,
        source: SourceId(1),
        uri: "u".to_owned(),
        layout: Layout::new(1, 1).unwrap(),
    });
    let mut bytes = encode(&announce, Vec::new());
    // The last bytes are the number of symbols of a block, the epoch and the incarnation.
    let symbols = bytes.len() - 3;
    bytes[symbols] = 0;
    assert!(matches!(decode(&bytes), Err(WireError::Malformed { .. })));
}

proptest! {
    #[test]
    fn any_bytes_are_a_message_or_an_error(mut bytes in prop::collection::vec(any::<u8>(), 0..200), kind in 0_u8..8) {
        let _ = decode(&bytes);
        if bytes.len() > 1 {
            bytes[0] = VERSION;
            bytes[1] = kind;
        }
        if let Ok((message, payload)) = decode(&bytes) {
            let mut again = encode(&message, Vec::new());
            again.extend(payload);
            prop_assert_eq!(decode(&again).unwrap().0, message);
        }
    }
}
