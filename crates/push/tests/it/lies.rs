//! Receivers that acknowledge what they have not got.

use std::time::Duration;

use outpour_push::*;

use crate::world::{MS, Net, World, secs};

fn lied(forge: fn(&mut Ack)) -> World {
    let layout = Layout::new(20_000, 512).unwrap();
    let mut world = World::new(
        1,
        Net {
            data_loss: 0.02,
            ..Net::default()
        },
        ControllerOptions::default(),
    );
    for id in 0..3 {
        world.source(id, layout, None);
    }
    world.run_for(100 * MS);
    world.receiver(1, None, true);
    world.forge = Some(forge);
    assert!(world.finish(secs(60.0)));
    world.run_for(Duration::from_secs(2));
    world
}

fn assert_lied(world: &World) {
    let end = world
        .ends
        .iter()
        .find(|it| matches!(it.1, FlowEnd::Lied(_)));
    assert!(end.is_some(), "{:?}", world.ends);
    let refused = ReceiverEnd::Refused(Refusal::TaskFailed);
    assert_eq!(world.device(1).end(), Some(refused));
    assert_eq!(world.controller.end(TaskId(1)), Some(TaskEnd::Lied));
    assert!(
        world.ends.len() >= 3,
        "the others were stopped: {:?}",
        world.ends
    );
}

#[test]
fn who_acknowledges_the_future_is_cut_off() {
    assert_lied(&lied(|ack| {
        ack.number += 5;
        ack.received = 0b111111;
    }));
}

#[test]
fn who_acknowledges_what_was_skipped_is_cut_off() {
    // As if all had arrived that was sent before.
    assert_lied(&lied(|ack| {
        let known = (ack.number + 1).min(64) as u32;
        ack.received = u64::MAX >> (64 - known);
    }));
}

#[test]
fn who_invents_blocks_is_cut_off() {
    assert_lied(&lied(|ack| ack.floor = u32::MAX));
}

#[test]
fn an_honest_receiver_never_names_what_was_skipped() {
    let world = lied(|_| {});
    assert_eq!(world.device(1).end(), Some(ReceiverEnd::Completed));
    assert!(
        world
            .ends
            .iter()
            .all(|it| !matches!(it.1, FlowEnd::Lied(_)))
    );
}
