//! Senders and a receiver of a push with real payload.

use outpour_core::Time;
use outpour_push::*;
use outpour_raptor::{BlockEncoder, Encoder};
use rand_core::{RngCore as _, SeedableRng as _};
use rand_pcg::Pcg64Mcg;

use crate::Object;

const TASK: TaskId = TaskId(1);
const SEATS: u32 = 8;

/// What happens to a packet on its way.
type Way = fn(&mut Pcg64Mcg, &Data, &mut Vec<u8>) -> bool;

/// Three sources push an object over a network that does this; says how it ended at the receiver.
fn push(object: &Object, way: Way) -> (Receiver, usize, usize) {
    let layout = object.cut.layout();
    let mut random = Pcg64Mcg::seed_from_u64(9);
    let mut encoder = Encoder::new(object.cut);
    let mut blocks: Vec<BlockEncoder> = (0..layout.blocks())
        .map(|it| encoder.block(it, object.block(it).to_vec()).unwrap())
        .collect();
    let mut now = Time::ZERO;
    let mut senders: Vec<Sender> = (0..3)
        .map(|seat| {
            let assignment = Assignment::Rateless {
                seats: SEATS,
                sources: 3,
            };
            let options = SenderOptions::new(FlowId { task: TASK, seat }, layout, assignment);
            Sender::new(&options).unwrap()
        })
        .collect();
    let (decoder, found) = object.decoder(8 << 20);
    let options = ReceiverOptions::new("object", DeviceId(7));
    let mut receiver = Receiver::new(options, Box::new(decoder), now).unwrap();
    let accepted = Accepted {
        epoch: 0,
        task: TASK,
        layout,
        seats: SEATS,
        sources: 3,
        is_coded: true,
    };
    receiver.handle_controller(now, &ToReceiver::Accepted(accepted));
    let mut payload = Vec::new();
    while !receiver.is_complete() && receiver.end().is_none() && now < Time(60_000_000_000) {
        now.0 += 1_000_000;
        for sender in &mut senders {
            sender.handle_wake(now);
            while let Some(output) = sender.poll_send(now) {
                let SenderOutput::Data(data) = output else {
                    continue;
                };
                blocks[data.block as usize]
                    .symbol(data.symbol, &mut payload)
                    .unwrap();
                if way(&mut random, &data, &mut payload)
                    && let Some(ack) = receiver.handle_data(now, &data, false, &payload)
                {
                    sender.handle_ack(now, &ack);
                }
            }
        }
        receiver.handle_wake(now);
        while receiver.poll_transmit(now).is_some() {}
    }
    let found = found.lock().unwrap();
    (receiver, found.right.len(), found.spoilt.len())
}

#[test]
fn an_object_pushed_by_three_sources_with_losses_has_the_hashes_of_its_manifest() {
    let object = Object::new(1, 300_000, 500, 64);
    let (receiver, right, spoilt) = push(&object, |random, _, _| random.next_u32() % 10 > 0);
    assert!(receiver.is_complete());
    assert_eq!((right, spoilt), (10, 0));
    // Ten blocks of 64 need few symbols more than they have.
    let symbols = receiver.counts().symbols;
    assert!((600..=620).contains(&symbols), "{symbols} symbols");
}

#[test]
fn payloads_of_wrong_size_are_as_good_as_lost() {
    let object = Object::new(2, 100_000, 500, 64);
    let way = |random: &mut Pcg64Mcg, _: &Data, payload: &mut Vec<u8>| {
        match random.next_u32() % 10 {
            0 => payload.truncate(499),
            1 => payload.push(0),
            2 => payload.clear(),
            _ => {}
        }
        true
    };
    let (receiver, right, spoilt) = push(&object, way);
    assert!(receiver.is_complete());
    assert_eq!((right, spoilt), (4, 0));
    let counts = receiver.counts();
    assert!(counts.refused > counts.symbols / 5, "{counts:?}");
}

#[test]
fn a_source_that_lies_ends_the_task_with_that_reason_and_no_wrong_block() {
    let object = Object::new(3, 100_000, 500, 64);
    let way = |_: &mut Pcg64Mcg, data: &Data, payload: &mut Vec<u8>| {
        if data.block == 2 && data.symbol < SEATS {
            payload[0] ^= 1;
        }
        true
    };
    let (receiver, right, spoilt) = push(&object, way);
    assert_eq!(receiver.end(), Some(ReceiverEnd::Undecodable(2)));
    assert_eq!(spoilt, 1);
    assert!(right < 4);
}
