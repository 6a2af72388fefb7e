//! Weighted fair congestion control, step by step.

use std::time::Duration;

use outpour_congestion::{CongestionControl, Wfcc, WfccOptions};

use crate::feed::{Feed, near};

fn feed(options: WfccOptions) -> Feed {
    let control = Wfcc::new(options).unwrap();
    Feed::new(Box::new(control), Duration::from_millis(10))
}

fn at(window: f64, alpha: f64, theta: f64) -> Feed {
    feed(WfccOptions {
        theta,
        alpha,
        initial_window: window,
        ..WfccOptions::default()
    })
}

#[test]
fn a_packet_without_a_mark_adds_its_part_of_one() {
    let mut feed = at(4.0, 0.5, 1.0);
    feed.ack(1, 0);
    assert_eq!(feed.window(), 4.25);
    feed.ack(1, 0);
    assert_eq!(feed.window(), 4.25 + 1.0 / 4.25);
    // Two at once are as good as one after the other.
    let mut both = at(4.0, 0.5, 1.0);
    both.ack(2, 0);
    assert_eq!(both.window(), feed.window());
}

#[test]
fn a_mark_takes_off_by_weight() {
    for (theta, less) in [(1.0, 0.25), (4.0, 0.0625), (0.5, 0.5)] {
        let mut feed = at(10.0, 0.5, theta);
        feed.ack(1, 1);
        near(feed.window(), 10.0 + 0.1 - less, 1e-12);
    }
}

#[test]
fn a_window_of_marks_takes_off_as_in_the_fluid_model() {
    // Equation 5: per round trip 1 - alpha W / (2 theta).
    let mut feed = at(100.0, 0.2, 2.0);
    feed.round(|_| true);
    let (first, step) = (100.0, 1.0 - 0.2 * 100.0 / 4.0);
    near(feed.window() - first, step, 0.05);
}

#[test]
fn the_running_average_takes_a_window_at_a_time() {
    let mut feed = at(16.0, 0.0, 100.0);
    assert_eq!(feed.control.alpha(), Some(0.0));
    feed.round(|index| index < 8);
    // The window is over with the first packet sent after its beginning.
    feed.ack(1, 0);
    near(feed.control.alpha().unwrap(), 8.0 / 17.0 / 16.0, 1e-12);
    for _ in 0..200 {
        feed.round(|index| index.is_multiple_of(4));
    }
    near(feed.control.alpha().unwrap(), 0.25, 0.03);
}

#[test]
fn weights_change_on_the_way() {
    let mut control = Wfcc::new(WfccOptions {
        alpha: 1.0,
        initial_window: 50.0,
        ..WfccOptions::default()
    })
    .unwrap();
    for theta in [0.0, -1.0, f64::NAN, f64::INFINITY] {
        let error = control.weighted().unwrap().set_theta(theta).unwrap_err();
        assert!(error.to_string().starts_with("`theta` is "), "{error}");
    }
    assert_eq!(control.weighted().unwrap().theta(), 1.0);
    control.weighted().unwrap().set_theta(50.5).unwrap();
    let mut feed = Feed::new(Box::new(control), Duration::from_millis(10));
    feed.ack(1, 1);
    near(feed.window(), 50.0 + 1.0 / 50.0 - 1.0 / 101.0, 1e-12);
}

#[test]
fn losses_change_nothing_and_a_timeout_leaves_one_packet() {
    let mut feed = at(70.0, 0.3, 1.0);
    feed.lose(60);
    assert_eq!(feed.window(), 70.0);
    feed.time_out();
    assert_eq!(feed.window(), 1.0);
    assert_eq!(feed.control.alpha(), Some(0.3));
    assert!(!feed.control.is_slow_start());
    feed.ack(1, 0);
    assert_eq!(feed.window(), 2.0);
    feed.ack(1, 0);
    assert_eq!(feed.window(), 2.5);
}

#[test]
fn the_window_is_one_packet_at_least() {
    let mut feed = at(1.5, 1.0, 0.01);
    feed.ack(1, 1);
    assert_eq!(feed.window(), 1.0);
}

#[test]
fn slow_start_doubles_until_a_mark_a_loss_or_half_of_what_was() {
    let started = || {
        feed(WfccOptions {
            alpha: 1.0,
            initial_window: 2.0,
            has_slow_start: true,
            ..WfccOptions::default()
        })
    };
    let mut marked = started();
    for expected in [4.0, 8.0, 16.0] {
        marked.round(|_| false);
        assert_eq!(marked.window(), expected);
    }
    assert!(marked.control.is_slow_start());
    marked.ack(1, 1);
    assert!(!marked.control.is_slow_start() && marked.window() < 16.0);

    let mut lossy = started();
    lossy.round(|_| false);
    lossy.lose(1);
    assert!(!lossy.control.is_slow_start());
    lossy.ack(1, 0);
    assert_eq!(lossy.window(), 4.25);

    let mut silent = started();
    (0..3).for_each(|_| silent.round(|_| false));
    silent.time_out();
    // The timer running out again says nothing about the window of 16.
    silent.time_out();
    assert!(silent.control.is_slow_start());
    (0..3).for_each(|_| silent.round(|_| false));
    assert_eq!(silent.window(), 8.0);
    assert!(!silent.control.is_slow_start());
}

#[test]
fn windows_in_equilibrium_are_in_proportion_to_weights() {
    // The same marks for both, as at one bottleneck: three packets of ten.
    let windows = [1.0, 4.0].map(|theta| {
        let mut feed = at(20.0, 0.0, theta);
        let mut sum = 0.0;
        for round in 0..4000 {
            feed.round(|index| index % 10 < 3);
            sum += if round < 2000 { 0.0 } else { feed.window() };
        }
        sum / 2000.0
    });
    near(windows[1] / windows[0], 4.0, 0.1);
    // Equation 15.
    near(windows[1], 2.0 * 4.0 / (0.3 * 0.3), 0.1);
}

#[test]
fn a_window_of_one_packet_has_no_half_to_start_towards() {
    let mut feed = feed(WfccOptions {
        has_slow_start: true,
        ..WfccOptions::default()
    });
    feed.time_out();
    assert!(!feed.control.is_slow_start());
}
