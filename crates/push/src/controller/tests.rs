//! Tests of the controller alone.
#![allow(clippy::unwrap_used)]

use super::*;
use crate::{Assignment, Lie, Order};

fn at(ms: u64) -> Time {
    Time(ms * 1_000_000)
}

fn layout() -> Layout {
    Layout::new(1000, 100).unwrap()
}

/// One with so many sources that have the object, and a task.
fn with_task(options: ControllerOptions, sources: u32) -> (Controller, Vec<Order>) {
    let mut controller = Controller::new(options, at(0)).unwrap();
    for source in 0..sources {
        announce(&mut controller, at(0), source);
    }
    request(&mut controller, at(0), 1);
    let orders = orders(&mut controller, at(0));
    (controller, orders)
}

fn announce(controller: &mut Controller, now: Time, source: u32) {
    let message = ToController::Announce {
        epoch: 0,
        incarnation: 0,
        source: SourceId(source),
        uri: "object".to_owned(),
        layout: layout(),
    };
    controller.handle_message(now, &message);
}

fn request(controller: &mut Controller, now: Time, device: u64) {
    let message = ToController::Request {
        uri: "object".to_owned(),
        device: DeviceId(device),
    };
    controller.handle_message(now, &message);
}

/// The device of a number has the object, by the task of the same number.
fn fin(number: u64) -> ToController {
    ToController::Fin {
        task: TaskId(number),
        device: DeviceId(number),
    }
}

fn progress(controller: &mut Controller, now: Time, remaining: u64) {
    let progress = Progress {
        task: TaskId(1),
        floor: 0,
        remaining,
    };
    controller.handle_message(now, &ToController::Progress(progress));
}

fn outputs(controller: &mut Controller, now: Time) -> Vec<ControllerOutput> {
    std::iter::from_fn(|| controller.poll_transmit(now)).collect()
}

/// The orders it sends now; all else is left out.
fn orders(controller: &mut Controller, now: Time) -> Vec<Order> {
    let is_order = |it| match it {
        ControllerOutput::Source(_, ToSource::Order(order)) => Some(order),
        _ => None,
    };
    outputs(controller, now)
        .into_iter()
        .filter_map(is_order)
        .collect()
}

fn answers(controller: &mut Controller, now: Time) -> Vec<ToReceiver> {
    let is_answer = |it| match it {
        ControllerOutput::Receiver(_, answer) => Some(answer),
        ControllerOutput::Source(..) => None,
    };
    outputs(controller, now)
        .into_iter()
        .filter_map(is_answer)
        .collect()
}

fn obey(controller: &mut Controller, now: Time, orders: &[Order]) {
    for order in orders {
        let (flow, serial) = (order.flow, order.serial);
        controller.handle_message(now, &ToController::Obeyed { flow, serial });
    }
}

fn sources(controller: &Controller) -> Vec<SourceId> {
    let mut all: Vec<_> = controller
        .task(TaskId(1))
        .unwrap()
        .sources
        .iter()
        .map(|it| it.0)
        .collect();
    all.sort();
    all
}

#[test]
fn three_of_the_live_holders_push_and_the_seed_says_which() {
    let picks: BTreeSet<Vec<SourceId>> = (0..40)
        .map(|seed| {
            let options = ControllerOptions {
                seed,
                ..ControllerOptions::default()
            };
            let (controller, orders) = with_task(options, 5);
            assert_eq!(orders.len(), 3);
            let all = sources(&controller);
            assert_eq!(
                all.iter().collect::<BTreeSet<_>>().len(),
                3,
                "one pushes twice"
            );
            let seats: Vec<u32> = orders.iter().map(|it| it.flow.seat).collect();
            assert_eq!(seats, [0, 1, 2]);
            all
        })
        .collect();
    assert!(picks.len() >= 9, "10 are possible: {picks:?}");
}

#[test]
fn an_order_is_repeated_until_it_is_obeyed() {
    let (mut controller, first) = with_task(ControllerOptions::default(), 1);
    assert_eq!(first.len(), 1);
    assert_eq!(first[0].state, OrderState::Push);
    assert_eq!(orders(&mut controller, at(99)), []);
    assert_eq!(orders(&mut controller, at(100)), first);
    obey(&mut controller, at(150), &first);
    assert_eq!(orders(&mut controller, at(900)), []);
}

#[test]
fn a_source_that_never_obeys_is_replaced() {
    let (mut controller, first) = with_task(
        ControllerOptions {
            fanout: 1,
            ..ControllerOptions::default()
        },
        2,
    );
    let silent = sources(&controller)[0];
    let mut seen = first;
    while sources(&controller) == [silent] {
        let now = controller.wake_at().unwrap();
        assert!(now < at(5000), "{} orders, {now}", seen.len());
        // Both say that they live.
        for source in 0..2 {
            controller.handle_message(
                now,
                &ToController::Heartbeat {
                    source: SourceId(source),
                    epoch: 0,
                    incarnation: 0,
                },
            );
        }
        progress(&mut controller, now, 1000);
        controller.handle_wake(now);
        seen.extend(orders(&mut controller, now));
    }
    assert_ne!(sources(&controller), [silent]);
    assert_eq!(seen.iter().filter(|it| it.flow.seat == 0).count(), 20);
}

#[test]
fn a_dead_source_is_replaced_and_the_receiver_told() {
    let (mut controller, _) = with_task(ControllerOptions::default(), 4);
    let all = sources(&controller);
    let dead = all[0];
    for ms in [400, 800, 1200] {
        for source in (0..4).filter(|it| SourceId(*it) != dead) {
            controller.handle_message(
                at(ms),
                &ToController::Heartbeat {
                    source: SourceId(source),
                    epoch: 0,
                    incarnation: 0,
                },
            );
        }
        progress(&mut controller, at(ms), 900);
        controller.handle_wake(at(ms));
    }
    let now = sources(&controller);
    assert_eq!(now.len(), 3);
    assert!(!now.contains(&dead));
    let told = answers(&mut controller, at(1200));
    let is_told = |it: &ToReceiver| matches!(it, ToReceiver::Accepted(it) if it.sources == 3);
    assert!(told.iter().any(is_told), "{told:?}");
}

#[test]
fn flows_of_a_silent_receiver_pause_and_go_on_when_it_is_heard() {
    let (mut controller, first) = with_task(ControllerOptions::default(), 2);
    obey(&mut controller, at(1), &first);
    let beat = |controller: &mut Controller, ms| {
        for source in 0..2 {
            controller.handle_message(
                at(ms),
                &ToController::Heartbeat {
                    source: SourceId(source),
                    epoch: 0,
                    incarnation: 0,
                },
            );
        }
        controller.handle_wake(at(ms));
        orders(controller, at(ms))
    };
    assert_eq!(beat(&mut controller, 999), []);
    let paused = beat(&mut controller, 1100);
    assert_eq!(paused.len(), 2);
    assert!(
        paused
            .iter()
            .all(|it| it.state == OrderState::Pause && it.serial > 1)
    );
    assert!(controller.task(TaskId(1)).unwrap().is_paused);
    obey(&mut controller, at(1150), &paused);
    progress(&mut controller, at(1200), 900);
    let resumed = orders(&mut controller, at(1200));
    assert!(resumed.len() == 2 && resumed.iter().all(|it| it.state == OrderState::Push));
}

#[test]
fn a_fin_stops_all_and_is_answered_every_time() {
    let (mut controller, first) = with_task(ControllerOptions::default(), 3);
    obey(&mut controller, at(1), &first);
    controller.handle_message(at(2), &fin(1));
    let all = outputs(&mut controller, at(2));
    let fin_ack = ControllerOutput::Receiver(DeviceId(1), ToReceiver::FinAck(TaskId(1)));
    assert!(all.contains(&fin_ack));
    let stops = |all: &[ControllerOutput]| {
        let is_stop = |it: &&ControllerOutput| matches!(it, ControllerOutput::Source(_, ToSource::Order(it)) if it.state == OrderState::Stop);
        all.iter().filter(is_stop).count()
    };
    assert_eq!(stops(&all), 3);
    assert_eq!(controller.end(TaskId(1)), Some(TaskEnd::Completed));
    controller.handle_message(at(3), &fin(1));
    assert_eq!(outputs(&mut controller, at(3)), [fin_ack]);
    // Nobody else speaks for the device.
    let other = ToController::Fin {
        task: TaskId(1),
        device: DeviceId(2),
    };
    controller.handle_message(at(3), &other);
    assert_eq!(outputs(&mut controller, at(3)), []);
    // Until it is obeyed.
    assert_eq!(stops(&outputs(&mut controller, at(102))), 3);
    for order in first {
        let (flow, serial) = (order.flow, 2);
        controller.handle_message(at(103), &ToController::Obeyed { flow, serial });
    }
    assert_eq!(stops(&outputs(&mut controller, at(500))), 0);
}

#[test]
fn a_lie_to_one_source_ends_the_task() {
    let (mut controller, first) = with_task(ControllerOptions::default(), 3);
    let ended = ToController::Ended {
        source: SourceId(0),
        flow: first[0].flow,
        end: FlowEnd::Lied(Lie::NeverSent(7)),
    };
    controller.handle_message(at(5), &ended);
    assert_eq!(controller.end(TaskId(1)), Some(TaskEnd::Lied));
    let told = answers(&mut controller, at(5));
    let failed = ToReceiver::Failed {
        task: TaskId(1),
        epoch: 0,
    };
    assert!(told.contains(&failed));
    // It is told again as long as it reports.
    progress(&mut controller, at(6), 5);
    assert_eq!(answers(&mut controller, at(6)), [failed]);
}

#[test]
fn requests_are_granted_once_and_within_bounds() {
    let options = ControllerOptions {
        tasks_max: 2,
        ..ControllerOptions::default()
    };
    let (mut controller, _) = with_task(options, 1);
    request(&mut controller, at(1), 1);
    assert_eq!(controller.tasks().count(), 1, "the same request again");
    request(&mut controller, at(1), 2);
    assert_eq!(controller.tasks().count(), 2);
    outputs(&mut controller, at(1));
    request(&mut controller, at(1), 3);
    assert_eq!(
        answers(&mut controller, at(1)),
        [ToReceiver::Refused(Refusal::Busy)]
    );
    let other = ToController::Request {
        uri: "other".to_owned(),
        device: DeviceId(1),
    };
    controller.handle_message(at(1), &other);
    assert_eq!(
        answers(&mut controller, at(1)),
        [ToReceiver::Refused(Refusal::NoSuchObject)]
    );
}

#[test]
fn who_cuts_an_object_differently_does_not_push_it() {
    let (mut controller, _) = with_task(ControllerOptions::default(), 1);
    let other = ToController::Announce {
        epoch: 0,
        incarnation: 0,
        source: SourceId(9),
        uri: "object".to_owned(),
        layout: Layout::new(1000, 99).unwrap(),
    };
    controller.handle_message(at(1), &other);
    assert_eq!(sources(&controller), [SourceId(0)]);
    announce(&mut controller, at(2), 8);
    assert_eq!(sources(&controller), [SourceId(0), SourceId(8)]);
}

#[test]
fn shares_make_up_the_object_and_pass_to_others() {
    let options = ControllerOptions {
        split: Split::Equal,
        ..ControllerOptions::default()
    };
    let (mut controller, orders_) = with_task(options, 3);
    let share = |order: &Order| match order.assignment {
        Assignment::Share { first, count } => (first, count),
        Assignment::Rateless { .. } => panic!("{order:?}"),
    };
    let shares: Vec<_> = orders_.iter().map(share).collect();
    assert_eq!(shares, [(0, 333), (333, 333), (666, 334)]);
    let ended = |flow, end| ToController::Ended {
        source: SourceId(0),
        flow,
        end,
    };
    controller.handle_message(
        at(1),
        &ended(orders_[1].flow, FlowEnd::Silent(Duration::ZERO)),
    );
    controller.handle_message(at(1), &ended(orders_[2].flow, FlowEnd::Completed));
    obey(&mut controller, at(1), &orders_);
    assert_eq!(orders(&mut controller, at(1)), []);
    progress(&mut controller, at(2), 500);
    let again = orders(&mut controller, at(2));
    assert_eq!(again.iter().map(share).collect::<Vec<_>>(), [(333, 333)]);
    assert_eq!(again[0].flow.seat, 3);
}

#[test]
fn a_task_without_seats_or_sources_ends() {
    let options = ControllerOptions {
        seats: 1,
        fanout: 1,
        ..ControllerOptions::default()
    };
    let (mut controller, first) = with_task(options, 1);
    let ended = ToController::Ended {
        source: SourceId(0),
        flow: first[0].flow,
        end: FlowEnd::Silent(Duration::ZERO),
    };
    controller.handle_message(at(1), &ended);
    progress(&mut controller, at(2), 500);
    assert_eq!(controller.end(TaskId(1)), Some(TaskEnd::NoSource));

    let (mut controller, _) = with_task(ControllerOptions::default(), 1);
    for second in 1..=30 {
        progress(&mut controller, at(second * 1000), 500);
        controller.handle_wake(at(second * 1000));
        let is_over = controller.end(TaskId(1)).is_some();
        assert_eq!(is_over, second == 30, "after {second} s");
    }
    assert_eq!(controller.end(TaskId(1)), Some(TaskEnd::NoSource));
}

#[test]
fn weights_follow_arrivals_completions_and_progress() {
    let (mut controller, _) = with_task(ControllerOptions::default(), 1);
    let link = LinkId(7);
    controller.set_link(link, 55.0).unwrap();
    for device in 1..4 {
        controller.set_path(SourceId(0), DeviceId(device), vec![link]);
    }
    let theta = |controller: &Controller, task| {
        let flow = FlowId {
            task: TaskId(task),
            seat: 0,
        };
        controller.theta(flow)
    };
    assert_eq!(theta(&controller, 1), Some(1.0), "its path was not known");
    request(&mut controller, at(1), 2);
    request(&mut controller, at(1), 3);
    assert_eq!(
        [1, 2, 3].map(|it| theta(&controller, it)),
        [Some(54.0), Some(0.5), Some(0.5)]
    );
    // The third gets ahead, which counts from the next period on.
    let progress = Progress {
        task: TaskId(3),
        floor: 0,
        remaining: 900,
    };
    controller.handle_message(at(2), &ToController::Progress(progress));
    assert_eq!(theta(&controller, 3), Some(0.5));
    controller.handle_wake(at(100));
    assert_eq!(
        [1, 2, 3].map(|it| theta(&controller, it)),
        [Some(0.5), Some(0.5), Some(54.0)]
    );
    controller.handle_message(at(101), &fin(3));
    assert_eq!(
        [1, 2].map(|it| theta(&controller, it)),
        [Some(54.5), Some(0.5)]
    );
}

#[test]
fn options_out_of_range_are_errors() {
    let is_err = |change: fn(&mut ControllerOptions)| {
        let mut options = ControllerOptions::default();
        change(&mut options);
        Controller::new(options, at(0)).is_err()
    };
    assert!(!is_err(|_| {}));
    assert!(is_err(|it| it.seats = 257));
    assert!(is_err(|it| it.fanout = 0));
    assert!(is_err(|it| it.theta = ThetaPolicy::Fixed(f64::NAN)));
    assert!(is_err(|it| it.period = Duration::ZERO));
    let mut controller = Controller::new(ControllerOptions::default(), at(0)).unwrap();
    assert!(controller.set_link(LinkId(1), 0.0).is_err());
    assert!(controller.set_priority(TaskId(1), -1.0).is_err());
}
