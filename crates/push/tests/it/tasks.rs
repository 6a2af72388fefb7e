//! Sources and receivers come and go in the middle of a task.

use std::time::Duration;

use outpour_push::*;

use crate::world::{MS, Net, URI, World, secs};

fn world(seed: u64, sources: u32, layout: Layout) -> World {
    world_with(seed, sources, layout, ControllerOptions::default())
}

fn world_with(seed: u64, sources: u32, layout: Layout, options: ControllerOptions) -> World {
    let mut world = World::new(seed, Net::default(), options);
    for id in 0..sources {
        world.source(id, layout, None);
    }
    world.run_for(100 * MS);
    world.receiver(1, None, true);
    world
}

fn large() -> Layout {
    Layout::new(40_000, 512).unwrap()
}

#[test]
fn a_source_that_dies_is_replaced() {
    let mut world = world(1, 4, large());
    world.run_for(400 * MS);
    let task = world.controller.tasks().next().unwrap();
    let before = world.controller.task(task).unwrap().sources;
    assert_eq!(before.len(), 3);
    let dead = before[0].0;
    world.sources.remove(&dead);
    world.run_for(Duration::from_millis(1400));
    assert!(
        !world.device(1).is_complete(),
        "over before the death could matter"
    );
    let after = world.controller.task(task).unwrap().sources;
    assert_eq!(after.len(), 3);
    assert!(after.iter().all(|it| it.0 != dead));
    assert!(world.finish(secs(60.0)));
    assert_eq!(world.device(1).end(), Some(ReceiverEnd::Completed));
}

#[test]
fn a_source_that_joins_pushes_too() {
    let mut world = world(2, 1, large());
    world.run_for(400 * MS);
    world.source(9, large(), None);
    world.run_for(100 * MS);
    let task = world.controller.tasks().next().unwrap();
    assert_eq!(world.controller.task(task).unwrap().sources.len(), 2);
    assert!(world.finish(secs(60.0)));
    assert_eq!(world.device(1).end(), Some(ReceiverEnd::Completed));
}

#[test]
fn sources_fall_silent_within_a_second_of_their_receiver() {
    for seed in 0..5 {
        // The controller would pause them about as soon.
        let options = ControllerOptions {
            receiver_silence: Duration::from_secs(5),
            ..ControllerOptions::default()
        };
        let mut world = world_with(seed, 3, large(), options);
        world.run_for(300 * MS);
        world.receivers.clear();
        let gone = world.now;
        let sent = world.packets;
        world.run_for(Duration::from_secs(3));
        let last = world.last_data[&DeviceId(1)].since(gone);
        // An acknowledgement may have been on its way.
        assert!(
            last <= Duration::from_secs(1) + world.net.delay * 2,
            "sent for {last:?}"
        );
        assert!(world.packets > sent, "nobody tried");
        assert_eq!(world.ends.len(), 3);
        assert!(
            world
                .ends
                .iter()
                .all(|it| matches!(it.1, FlowEnd::Silent(_))),
            "{:?}",
            world.ends
        );
        let probes = world.packets - sent;
        assert!(probes < 3 * 100, "{probes} packets to nobody");
        world.run_for(Duration::from_secs(40));
        assert_eq!(world.controller.tasks().count(), 0);
        assert_eq!(world.controller.end(TaskId(1)), Some(TaskEnd::Silent));
    }
}

#[test]
fn flows_of_a_silent_receiver_pause_and_go_on() {
    let mut world = world(3, 3, large());
    world.run_for(300 * MS);
    let receiver = world.receivers.remove(&DeviceId(1)).unwrap();
    world.run_for(Duration::from_secs(2));
    let task = world.controller.tasks().next().unwrap();
    assert!(world.controller.task(task).unwrap().is_paused);
    let sent = world.packets;
    world.run_for(Duration::from_secs(2));
    assert_eq!(world.packets, sent, "sent while paused");
    world.receivers.insert(DeviceId(1), receiver);
    assert!(world.finish(secs(60.0)));
    assert_eq!(world.device(1).end(), Some(ReceiverEnd::Completed));
    assert_eq!(
        world.device(1).counts().duplicates,
        0,
        "new seats send new symbols"
    );
}

#[test]
fn who_asks_for_what_nobody_has_is_told() {
    let mut world = World::new(1, Net::default(), ControllerOptions::default());
    world.receiver(1, None, true);
    assert!(world.finish(secs(5.0)));
    let end = world.device(1).end();
    assert_eq!(end, Some(ReceiverEnd::Refused(Refusal::NoSuchObject)));
}

#[test]
fn without_a_controller_or_a_source_the_end_has_a_reason() {
    let net = Net {
        other_loss: 1.0,
        ..Net::default()
    };
    let mut lost = World::new(1, net, ControllerOptions::default());
    lost.receiver(1, None, true);
    assert!(lost.finish(secs(10.0)));
    assert_eq!(lost.device(1).end(), Some(ReceiverEnd::NoController));

    let mut starved = world(4, 2, large());
    starved.run_for(300 * MS);
    starved.sources.clear();
    assert!(starved.finish(secs(60.0)));
    let end = starved.device(1).end();
    let reasons = [
        ReceiverEnd::Starved,
        ReceiverEnd::Refused(Refusal::TaskFailed),
    ];
    assert!(reasons.map(Some).contains(&end), "{end:?}");
}

#[test]
fn the_smaller_task_gets_through_first() {
    let mut world = World::new(5, Net::default(), ControllerOptions::default());
    let (small, big) = (
        Layout::new(10_000, 500).unwrap(),
        Layout::new(30_000, 500).unwrap(),
    );
    world.source(1, big, None);
    world
        .sources
        .get_mut(&SourceId(1))
        .unwrap()
        .hold("small", small)
        .unwrap();
    let link = LinkId(1);
    world.controller.set_link(link, 20.0).unwrap();
    for device in [1, 2] {
        world
            .controller
            .set_path(SourceId(1), DeviceId(device), vec![link]);
    }
    world.run_for(100 * MS);
    world.receiver(1, None, true);
    world.run_for(50 * MS);
    world.receiver(2, Some(ReceiverOptions::new("small", DeviceId(2))), true);
    world.run_for(50 * MS);
    let theta = |world: &World, task, seat| {
        world.controller.theta(FlowId {
            task: TaskId(task),
            seat,
        })
    };
    assert_eq!(theta(&world, 1, 0), Some(0.5));
    assert_eq!(theta(&world, 2, 0), Some(19.5));
    // What was ordered has arrived.
    let flow = FlowId {
        task: TaskId(1),
        seat: 0,
    };
    assert!(world.sources[&SourceId(1)].sender(flow).is_some());
    world.controller.set_priority(TaskId(1), 100.0).unwrap();
    world.run_for(200 * MS);
    assert_eq!(theta(&world, 1, 0), Some(19.5));
    assert!(world.finish(secs(60.0)));
    assert_eq!(URI, "object");
}

#[test]
fn everybody_forgets_a_task_that_is_over() {
    let net = Net {
        other_loss: 0.3,
        data_loss: 0.1,
        ..Net::default()
    };
    let mut world = World::new(6, net, ControllerOptions::default());
    let layout = Layout::new(2000, 200).unwrap();
    for id in 0..3 {
        world.source(id, layout, None);
    }
    world.run_for(Duration::from_secs(1));
    world.receiver(1, None, true);
    assert!(world.finish(secs(60.0)));
    assert_eq!(world.device(1).end(), Some(ReceiverEnd::Completed));
    world.run_for(Duration::from_secs(5));
    assert_eq!(world.controller.tasks().count(), 0);
    assert!(world.sources.values().all(|it| it.senders().count() == 0));
}
