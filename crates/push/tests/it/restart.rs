//! A controller loses its memory, and another takes over what runs.

use std::time::Duration;

use outpour_push::*;

use crate::world::{MS, Net, URI, World, secs};

fn large() -> Layout {
    Layout::new(60_000, 512).unwrap()
}

/// A task with three of so many sources, half a second after it began.
fn running(seed: u64, sources: u32, net: Net) -> World {
    let options = ControllerOptions {
        epoch: 1,
        ..ControllerOptions::default()
    };
    let mut world = World::new(seed, net, options);
    for id in 0..sources {
        world.source(id, large(), None);
    }
    world.run_for(500 * MS);
    world.receiver(1, None, true);
    world.run_for(500 * MS);
    world
}

fn sources(world: &World) -> Vec<SourceId> {
    let task = world.controller.tasks().next();
    let view = task.and_then(|it| world.controller.task(it));
    view.map_or_else(Vec::new, |it| it.sources.iter().map(|it| it.0).collect())
}

#[test]
fn a_controller_that_lost_its_memory_picks_up_what_runs_and_restarts_nothing() {
    let mut world = running(1, 5, Net::default());
    let task = world.controller.tasks().next().unwrap();
    assert_eq!(task.epoch(), 1);
    let (before, symbols) = (sources(&world), world.device(1).counts().symbols);
    let flows = world.seats.clone();
    world.restart_controller(2);
    assert_eq!(world.controller.tasks().count(), 0);
    world.run_for(1500 * MS);
    let after = world.controller.tasks().collect::<Vec<_>>();
    assert_eq!(after, [task], "the task keeps its number");
    assert_eq!(sources(&world), before);
    assert_eq!(world.seats, flows, "no flow was begun anew");
    assert!(world.device(1).counts().symbols > symbols, "nothing moved");
    let view = world.controller.task(task).unwrap();
    assert!(view.remaining < large().symbols(), "progress was not heard");
    assert!(world.finish(secs(60.0)));
    assert_eq!(world.device(1).end(), Some(ReceiverEnd::Completed));
    assert_eq!(world.controller.end(task), Some(TaskEnd::Completed));
    assert_eq!(world.device(1).counts().duplicates, 0);
}

#[test]
fn a_source_that_dies_after_the_restart_is_replaced_in_a_new_seat() {
    let mut world = running(2, 5, Net::default());
    let dead = sources(&world)[0];
    world.restart_controller(2);
    world.run_for(1200 * MS);
    world.sources.remove(&dead);
    world.run_for(1500 * MS);
    let now = sources(&world);
    assert_eq!(now.len(), 3, "{now:?}");
    assert!(!now.contains(&dead));
    let seats: Vec<u32> = world.seats.iter().map(|it| it.1.seat).collect();
    assert_eq!(seats, [0, 1, 2, 3]);
    assert!(world.finish(secs(60.0)));
    assert_eq!(world.device(1).end(), Some(ReceiverEnd::Completed));
    assert_eq!(world.device(1).counts().duplicates, 0);
}

#[test]
fn a_task_whose_sources_all_died_meanwhile_is_resumed_by_its_receiver() {
    let mut world = running(3, 3, Net::default());
    let task = world.controller.tasks().next().unwrap();
    let (floor, old) = (world.device(1).progress().unwrap().floor, world.seats.len());
    assert!(floor > 0);
    world.restart_controller(2);
    world.sources.clear();
    world.run_for(1200 * MS);
    world.source(9, large(), None);
    world.run_for(2000 * MS);
    assert_eq!(world.controller.tasks().collect::<Vec<_>>(), [task]);
    assert_eq!(sources(&world), [SourceId(9)]);
    assert_eq!(world.seats.len(), old + 1, "{:?}", world.seats);
    assert!(world.device(1).progress().unwrap().floor >= floor);
    assert!(world.finish(secs(60.0)));
    assert_eq!(world.device(1).end(), Some(ReceiverEnd::Completed));
    assert_eq!(
        world.device(1).counts().duplicates,
        0,
        "a seat was taken twice"
    );
}

#[test]
fn numbers_of_tasks_do_not_come_again_after_a_restart() {
    let mut world = running(4, 3, Net::default());
    let first = world.controller.tasks().next().unwrap();
    world.restart_controller(2);
    world.run_for(300 * MS);
    world.receiver(2, None, true);
    world.run_for(1500 * MS);
    let tasks: Vec<TaskId> = world.controller.tasks().collect();
    assert_eq!(tasks.len(), 2);
    assert_eq!((tasks[0], tasks[1].epoch()), (first, 2));
    assert!(world.finish(secs(90.0)));
    for device in [1, 2] {
        assert_eq!(world.device(device).end(), Some(ReceiverEnd::Completed));
    }
}

#[test]
fn orders_of_a_controller_that_another_has_followed_are_refused() {
    let mut world = running(5, 3, Net::default());
    let task = world.controller.tasks().next().unwrap();
    // The old one is not dead, only slow.
    let epoch_1 = ControllerOptions {
        epoch: 1,
        ..ControllerOptions::default()
    };
    let mut old = std::mem::replace(
        &mut world.controller,
        Controller::new(epoch_1, world.now).unwrap(),
    );
    world.restart_controller(2);
    world.run_for(1200 * MS);
    // It thinks the receiver has gone, and stops all of its flows.
    let later = world.now + Duration::from_secs(40);
    for source in (0..3).map(SourceId) {
        let beat = ToController::Heartbeat {
            source,
            epoch: 1,
            incarnation: 0,
        };
        old.handle_message(later, &beat);
    }
    old.handle_wake(later);
    assert_eq!(old.end(task), Some(TaskEnd::Silent));
    let (mut stops, mut failed) = (0, 0);
    let now = world.now;
    while let Some(output) = old.poll_transmit(later) {
        match output {
            ControllerOutput::Source(source, message) => {
                stops += 1;
                let to = world.sources.get_mut(&source).unwrap();
                to.handle_controller(now, &message);
                assert_eq!((to.epoch(), to.outdated() > 0), (2, true));
            }
            ControllerOutput::Receiver(device, message) => {
                failed += 1;
                let to = world.receivers.get_mut(&device).unwrap();
                to.handle_controller(now, &message);
            }
        }
    }
    assert!(
        stops >= 3 && failed >= 1,
        "{stops} stops, {failed} failures"
    );
    assert_eq!(
        world.device(1).end(),
        None,
        "a task of the later one was ended"
    );
    // Heartbeats tell it that there may be a later one.
    let beat = ToController::Heartbeat {
        source: SourceId(0),
        epoch: 2,
        incarnation: 0,
    };
    old.handle_message(later, &beat);
    assert_eq!((old.epoch(), old.heard_epoch()), (1, 2));
    assert!(world.finish(secs(60.0)));
    assert_eq!(world.device(1).end(), Some(ReceiverEnd::Completed));
}

#[test]
fn a_source_that_was_restarted_remembers_the_epoch() {
    let mut options = SourceOptions::new(SourceId(1));
    options.epoch = 7;
    let mut source = Source::new(options, secs(0.0)).unwrap();
    source.hold(URI, large()).unwrap();
    let flow = FlowId {
        task: TaskId(6 << 32 | 1),
        seat: 0,
    };
    let mut order = Order {
        flow,
        epoch: 6,
        incarnation: 0,
        serial: 1,
        state: OrderState::Push,
        theta: 1.0,
        device: DeviceId(1),
        uri: URI.to_owned(),
        layout: large(),
        assignment: Assignment::Rateless {
            seats: 4,
            sources: 1,
        },
    };
    source.handle_controller(secs(0.0), &ToSource::Order(order.clone()));
    assert!(source.sender(flow).is_none() && source.outdated() == 1);
    order.epoch = 7;
    source.handle_controller(secs(0.0), &ToSource::Order(order));
    assert!(source.sender(flow).is_some());
}

#[test]
fn what_a_source_invents_makes_no_other_source_send() {
    let mut world = running(6, 3, Net::default());
    assert!(world.finish(secs(60.0)));
    world.restart_controller(2);
    world.run_for(1500 * MS);
    let packets = world.packets;
    // A task for a device that never asked.
    let order = Order {
        flow: FlowId {
            task: TaskId(1 << 32 | 77),
            seat: 0,
        },
        epoch: 1,
        incarnation: 0,
        serial: 1,
        state: OrderState::Push,
        theta: 1.0,
        device: DeviceId(66),
        uri: URI.to_owned(),
        layout: large(),
        assignment: Assignment::Rateless {
            seats: 256,
            sources: 3,
        },
    };
    let source = SourceId(0);
    let now = world.now;
    world
        .controller
        .handle_message(now, &ToController::Flow { source, order });
    world.run_for(Duration::from_secs(40));
    assert_eq!(
        world.packets, packets,
        "others push to a device that did not ask"
    );
    assert_eq!(world.controller.tasks().count(), 0, "it is kept for ever");
}

/// What a source may say of a flow of device 1's task, or of another for the same.
fn forged(world: &World, task: TaskId, layout: Layout) -> ToController {
    let seats = world.controller.task(task).map_or(256, |_| 256);
    ToController::Flow {
        source: SourceId(4),
        order: Order {
            flow: FlowId { task, seat: 9 },
            epoch: 1,
            incarnation: 0,
            serial: 1,
            state: OrderState::Push,
            theta: 1.0,
            device: DeviceId(1),
            uri: URI.to_owned(),
            layout,
            assignment: Assignment::Rateless { seats, sources: 3 },
        },
    }
}

#[test]
fn no_source_speaks_for_a_receiver() {
    for other in [false, true] {
        let mut world = running(7, 5, Net::default());
        let live = world.controller.tasks().next().unwrap();
        let (before, flows) = (sources(&world), world.seats.clone());
        world.restart_controller(2);
        // Of an older task for the same object and device, or of the live one, cut otherwise.
        let (task, layout) = match other {
            true => (TaskId(1 << 32 | 77), large()),
            false => (live, Layout::new(7, 7).unwrap()),
        };
        let message = forged(&world, task, layout);
        let now = world.now;
        world.controller.handle_message(now, &message);
        assert_eq!(world.controller.tasks().count(), 0);
        world.run_for(1500 * MS);
        let tasks: Vec<TaskId> = world.controller.tasks().collect();
        assert_eq!(tasks, [live]);
        assert_eq!((sources(&world), &world.seats), (before, &flows));
        let now = world.now;
        world.controller.handle_message(now, &message);
        assert!(world.finish(secs(60.0)));
        assert_eq!(world.device(1).end(), Some(ReceiverEnd::Completed));
        assert_eq!(world.controller.end(live), Some(TaskEnd::Completed));
    }
}

#[test]
fn a_device_gets_what_it_asks_for_whatever_a_source_said_before() {
    let options = ControllerOptions {
        epoch: 1,
        ..ControllerOptions::default()
    };
    let mut world = World::new(8, Net::default(), options);
    for id in 0..5 {
        world.source(id, large(), None);
    }
    world.run_for(500 * MS);
    let message = forged(&world, TaskId(5), Layout::new(7, 7).unwrap());
    let now = world.now;
    world.controller.handle_message(now, &message);
    world.receiver(1, None, true);
    assert!(world.finish(secs(60.0)));
    assert_eq!(world.device(1).end(), Some(ReceiverEnd::Completed));
}

#[test]
fn flows_are_asked_for_when_their_receiver_is_heard_late() {
    let mut world = running(9, 3, Net::default());
    let (before, flows) = (sources(&world), world.seats.clone());
    world.restart_controller(2);
    // All sources have told of their flows and been silent since, before the receiver is heard.
    let beats: Vec<SourceId> = world.sources.keys().copied().collect();
    let now = world.now;
    for source in beats {
        let to = world.sources.get_mut(&source).unwrap();
        to.handle_controller(now, &ToSource::Epoch(2));
    }
    world.run_for(2500 * MS);
    assert_eq!((sources(&world), &world.seats), (before, &flows));
    assert!(world.finish(secs(60.0)));
    assert_eq!(world.device(1).counts().duplicates, 0);
}

/// The process of a source ends and is started again, at once.
fn restart_source(world: &mut World, id: SourceId, incarnation: u64) {
    let options = SourceOptions {
        incarnation,
        ..SourceOptions::new(id)
    };
    world.source(id.0, large(), Some(options));
}

#[test]
fn a_source_that_is_back_before_it_is_missed_begins_in_a_seat_of_its_own() {
    for seed in 0..5 {
        // Of three sources one is needed again, of five others may take its place; some messages are lost.
        let net = Net {
            other_loss: 0.05 * seed as f64,
            ..Net::default()
        };
        let mut world = running(20 + seed, 3 + 2 * (seed as u32 % 2), net);
        let before = world.seats.clone();
        let id = sources(&world)[0];
        restart_source(&mut world, id, 1);
        world.run_for(800 * MS);
        assert_eq!(sources(&world).len(), 3);
        // Orders go on to change: there is another task, which is smaller.
        world.receiver(2, None, true);
        assert!(world.finish(secs(90.0)), "seed {seed}");
        for device in [1, 2] {
            let device = world.device(device);
            assert_eq!(device.end(), Some(ReceiverEnd::Completed), "seed {seed}");
            assert_eq!(device.counts().duplicates, 0, "seed {seed}");
        }
        let seats = world.seats.iter().filter(|it| it.0 == DeviceId(1));
        assert!(seats.count() > before.len(), "it began in the same seat");
        let is_lie = |it: &&(FlowId, FlowEnd)| matches!(it.1, FlowEnd::Lied(_));
        assert_eq!(world.ends.iter().find(is_lie), None, "seed {seed}");
    }
}

#[test]
fn a_source_that_restarts_with_its_controller_has_no_flows_to_pick_up() {
    let mut world = running(30, 3, Net::default());
    let task = world.controller.tasks().next().unwrap();
    let id = sources(&world)[0];
    // What it says of its flow arrives when it is no more, and before the source is known.
    let flow = world.sources[&id].senders().next().unwrap().flow();
    let mut order = match forged(&world, task, large()) {
        ToController::Flow { order, .. } => order,
        other => panic!("{other:?}"),
    };
    order.flow = flow;
    world.restart_controller(2);
    restart_source(&mut world, id, 1);
    let now = world.now;
    world.run_for(300 * MS);
    let late = ToController::Flow { source: id, order };
    let at = world.now;
    world.controller.handle_message(at, &late);
    assert!(at > now);
    world.run_for(1500 * MS);
    assert_eq!(world.controller.tasks().collect::<Vec<_>>(), [task]);
    assert_eq!(sources(&world).len(), 3);
    assert!(
        world.sources[&id].sender(flow).is_none(),
        "begun anew in the same seat"
    );
    assert!(world.finish(secs(60.0)));
    assert_eq!(world.device(1).end(), Some(ReceiverEnd::Completed));
    assert_eq!(world.device(1).counts().duplicates, 0);
}

#[test]
fn orders_for_an_earlier_life_of_a_source_and_words_of_it_come_to_nothing() {
    let mut world = running(31, 3, Net::default());
    let id = sources(&world)[0];
    restart_source(&mut world, id, 5);
    world.run_for(500 * MS);
    let seats = world
        .controller
        .task(world.controller.tasks().next().unwrap());
    let is_refused = world.sources[&id].outdated();
    let flow = forged(&world, TaskId(9), large());
    let ToController::Flow { mut order, .. } = flow else {
        panic!("no flow");
    };
    let now = world.now;
    for incarnation in [0, 4, 6] {
        order.incarnation = incarnation;
        let to = world.sources.get_mut(&id).unwrap();
        to.handle_controller(now, &ToSource::Order(order.clone()));
        assert!(to.sender(order.flow).is_none(), "{incarnation}");
    }
    assert_eq!(world.sources[&id].outdated(), is_refused + 3);
    for message in [
        ToController::Heartbeat {
            source: id,
            epoch: 1,
            incarnation: 4,
        },
        ToController::Announce {
            source: id,
            uri: "other".to_owned(),
            layout: large(),
            epoch: 1,
            incarnation: 4,
        },
    ] {
        world.controller.handle_message(now, &message);
    }
    assert_eq!(world.controller.layout("other"), None);
    let now = world
        .controller
        .task(world.controller.tasks().next().unwrap());
    assert_eq!(now.map(|it| it.sources), seats.map(|it| it.sources));
}

#[test]
fn a_receiver_that_is_done_gets_its_answer_from_a_controller_that_never_knew_its_task() {
    let mut world = running(40, 3, Net::default());
    let task = world.controller.tasks().next().unwrap();
    while !world.device(1).is_complete() {
        assert!(world.step(secs(60.0)));
    }
    world.restart_controller(2);
    let late = ToController::Resume {
        progress: Progress {
            task,
            floor: 0,
            remaining: 1,
        },
        uri: URI.to_owned(),
        device: DeviceId(1),
        layout: large(),
        seats: SEATS_MAX,
        seats_seen: 3,
        is_coded: true,
        epoch: 1,
    };
    let done = world.now;
    assert!(world.finish(secs(60.0)));
    let waited = world.now.since(done);
    assert!(waited < 50 * MS, "{waited:?} for an answer");
    assert_eq!(world.controller.end(task), Some(TaskEnd::Completed));
    // A word that was under way for long does not begin it again.
    let now = world.now;
    world.controller.handle_message(now, &late);
    assert_eq!(world.controller.tasks().count(), 0);
}

/// A task in equal shares of so many symbols from three sources, half a second after it began.
fn shared(seed: u64, layout: Layout, net: Net) -> World {
    let options = ControllerOptions {
        epoch: 1,
        split: Split::Equal,
        ..ControllerOptions::default()
    };
    let mut world = World::new(seed, net, options);
    for id in 0..3 {
        world.source(id, layout, None);
    }
    world.run_for(500 * MS);
    world.receiver(1, None, false);
    world.run_for(500 * MS);
    world
}

#[test]
fn a_share_whose_source_died_with_the_controller_is_given_to_another() {
    for dead in 0..3 {
        let mut world = shared(50, large(), Net::default());
        let task = world.controller.tasks().next().unwrap();
        let before = sources(&world).len();
        assert_eq!(before, 3);
        world.restart_controller(2);
        world.sources.remove(&SourceId(dead));
        assert!(world.finish(secs(60.0)), "without source {dead}");
        let device = world.device(1);
        assert_eq!(device.end(), Some(ReceiverEnd::Completed), "{dead}");
        assert_eq!(world.controller.end(task), Some(TaskEnd::Completed));
        // What the dead one had delivered comes again at most.
        let again = device.counts().packets - device.counts().symbols;
        assert!(again < large().symbols() / 3, "{again} came again");
    }
}

#[test]
fn shares_that_were_delivered_before_the_restart_are_left_out_block_by_block() {
    // Seat 0 is behind, so blocks after its share are decoded first.
    let net = Net {
        detour: 100 * MS,
        ..Net::default()
    };
    let layout = Layout::new(30_000, 512).unwrap();
    let mut world = shared(60, layout, net);
    let is_done = |it: &&(FlowId, FlowEnd)| it.1 == FlowEnd::Completed;
    while world.ends.iter().filter(is_done).count() < 2 {
        assert!(world.step(secs(60.0)), "{:?}", world.ends);
    }
    let there = world.device(1).counts().symbols;
    assert!(there > 20_000 && world.device(1).end().is_none());
    // Nobody is left who knows of shares.
    world.restart_controller(2);
    world.sources.clear();
    world.run_for(1500 * MS);
    world.source(9, layout, None);
    assert!(world.finish(secs(60.0)));
    let counts = world.device(1).counts();
    assert_eq!(world.device(1).end(), Some(ReceiverEnd::Completed));
    let again = counts.packets - counts.symbols;
    assert!(again < there / 4, "{again} of {there} came again");
}
