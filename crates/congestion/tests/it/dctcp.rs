//! Data Center TCP: RFC 8257.

use std::time::Duration;

use outpour_congestion::{Dctcp, DctcpOptions};

use crate::feed::{Feed, near};

fn feed(alpha: f64, initial_window: f64) -> Feed {
    let control = Dctcp::new(DctcpOptions {
        alpha,
        initial_window,
        ..DctcpOptions::default()
    });
    Feed::new(Box::new(control.unwrap()), Duration::from_millis(1))
}

#[test]
fn the_running_average_becomes_the_share_of_marks() {
    for every in [1, 2, 5] {
        let mut feed = feed(1.0, 20.0);
        for _ in 0..200 {
            feed.round(|index| index % every == 0);
        }
        let window = feed.window();
        // The first of every few is one more than its share of a small window.
        let share = (window / every as f64).ceil() / window;
        near(feed.control.alpha().unwrap(), share, 0.15);
    }
}

#[test]
fn without_marks_it_is_forgotten_by_a_sixteenth_per_window() {
    let mut feed = feed(1.0, 8.0);
    feed.round(|_| false);
    feed.ack(1, 0);
    assert_eq!(feed.control.alpha(), Some(15.0 / 16.0));
}

#[test]
fn the_first_mark_halves_and_later_ones_by_the_extent() {
    let mut fresh = feed(1.0, 20.0);
    fresh.ack(1, 1);
    assert_eq!(fresh.window(), 10.0);
    assert!(!fresh.control.is_slow_start());
    let mut calm = feed(0.2, 20.0);
    calm.ack(1, 1);
    near(calm.window(), 18.0, 1e-12);
    // Once per window.
    calm.ack(1, 1);
    near(calm.window(), 18.0, 1e-12);
    // Unmarked packets of the same window let it grow on.
    calm.ack(1, 0);
    near(calm.window(), 18.0 + 1.0 / 18.0, 1e-12);
}

#[test]
fn a_loss_halves_whatever_the_marks_were() {
    let mut feed = feed(0.1, 20.0);
    feed.lose(1);
    assert_eq!(feed.window(), 10.0);
    feed.ack(1, 0);
    assert_eq!(
        feed.window(),
        10.0,
        "it was sent before the loss was noticed"
    );
    feed.time_out();
    assert_eq!(feed.window(), 1.0);
    assert!(feed.control.is_slow_start());
}

#[test]
fn marks_leave_the_least_window_and_a_timeout_does_not() {
    for (window_min, left) in [(1.0, 1.0), (2.0, 2.0), (3.0, 3.0)] {
        let control = Dctcp::new(DctcpOptions {
            initial_window: 8.0,
            window_min,
            ..DctcpOptions::default()
        });
        let mut feed = Feed::new(Box::new(control.unwrap()), Duration::from_millis(1));
        for _ in 0..20 {
            feed.round(|_| true);
        }
        assert_eq!(feed.window(), left);
        feed.time_out();
        assert_eq!(feed.window(), 1.0);
        // What is below the least already does not grow by a mark.
        feed.ack(1, 1);
        assert_eq!(feed.window(), 1.0);
    }
}

#[test]
fn a_window_that_grows_when_marked_swings_by_a_packet_above_the_least() {
    let swing = |grows_when_marked| {
        let control = Dctcp::new(DctcpOptions {
            initial_window: 8.0,
            window_min: 2.0,
            grows_when_marked,
            ..DctcpOptions::default()
        });
        let mut feed = Feed::new(Box::new(control.unwrap()), Duration::from_millis(1));
        for _ in 0..20 {
            feed.round(|_| true);
        }
        let windows: Vec<f64> = (0..40)
            .map(|_| {
                feed.ack(1, 1);
                feed.window()
            })
            .collect();
        windows.into_iter().fold(0.0, f64::max)
    };
    assert_eq!(swing(false), 2.0);
    let most = swing(true);
    assert!((2.4..=3.5).contains(&most), "{most}");
}
