//! Reno and TCP-like DCCP: RFC 5681, RFC 6582, RFC 4341.

use std::time::Duration;

use outpour_congestion::{Ack, Algorithm, DccpOptions, RenoOptions, Timeout};

use crate::feed::Feed;

fn reno(initial_window: f64) -> Feed {
    let options = RenoOptions { initial_window };
    let control = Algorithm::Reno(options).build().unwrap();
    Feed::new(control, Duration::from_millis(10))
}

/// A window that has left slow start at `window` packets.
fn avoiding(window: f64) -> Feed {
    let mut feed = reno(2.0 * window);
    feed.lose(1);
    assert_eq!(feed.window(), window);
    // What was in flight is acknowledged; from then on the window grows.
    feed.ack(feed.next - feed.oldest, 0);
    assert_eq!(feed.window(), window);
    feed
}

#[test]
fn slow_start_doubles_and_a_loss_halves() {
    let mut feed = reno(10.0);
    assert!(feed.control.is_slow_start());
    feed.round(|_| false);
    assert_eq!(feed.window(), 20.0);
    feed.lose(1);
    assert_eq!(feed.window(), 10.0);
    assert!(!feed.control.is_slow_start());
}

#[test]
fn an_acknowledgement_of_much_at_once_adds_one_packet() {
    let mut feed = reno(10.0);
    feed.ack(10, 0);
    assert_eq!(feed.window(), 11.0);
}

#[test]
fn after_slow_start_it_grows_by_one_packet_per_window() {
    let mut feed = avoiding(20.0);
    for round in 1..=10 {
        feed.round(|_| false);
        let expected = 20.0 + f64::from(round);
        assert!((feed.window() - expected).abs() < 0.5, "{}", feed.window());
    }
}

#[test]
fn losses_of_one_window_are_one() {
    let mut feed = reno(40.0);
    feed.lose(1);
    feed.lose(5);
    feed.ack(4, 0);
    feed.lose(2);
    assert_eq!(feed.window(), 20.0);
    // A packet sent after the reaction is lost: that is another one.
    feed.ack(feed.next - feed.oldest, 0);
    feed.round(|_| false);
    let before = feed.window();
    feed.lose(1);
    assert!(feed.window() <= before / 2.0 + 0.5, "{}", feed.window());
}

#[test]
fn a_mark_is_as_good_as_a_loss() {
    let mut feed = reno(40.0);
    feed.ack(1, 1);
    assert_eq!(feed.window(), 20.0);
    feed.ack(1, 1);
    feed.lose(1);
    assert_eq!(feed.window(), 20.0);
}

#[test]
fn a_timeout_starts_over_up_to_half() {
    let mut feed = reno(32.0);
    feed.time_out();
    assert_eq!(feed.window(), 1.0);
    // The timer that runs out again leaves the threshold (RFC 5681 §3.1).
    feed.time_out();
    for expected in [2.0, 4.0, 8.0, 16.0] {
        assert!(feed.control.is_slow_start());
        feed.round(|_| false);
        assert_eq!(feed.window(), expected);
    }
    assert!(!feed.control.is_slow_start());
    feed.round(|_| false);
    assert!(feed.window() < 17.5);
}

#[test]
fn at_a_timeout_dccp_halves_its_window_and_tcp_what_is_in_flight() {
    for (name, most) in [("dccp", 8.0), ("reno", 2.0)] {
        let algorithm = match name {
            "dccp" => Algorithm::Dccp(DccpOptions {
                initial_window: 16.0,
                ..DccpOptions::default()
            }),
            _ => Algorithm::Reno(RenoOptions {
                initial_window: 16.0,
            }),
        };
        let mut feed = Feed::new(algorithm.build().unwrap(), Duration::from_millis(10));
        feed.control.on_timeout(&Timeout {
            now: Duration::from_secs(1),
            in_flight: 4,
            next: 4,
        });
        let mut last = 0.0;
        for number in 4..100 {
            if !feed.control.is_slow_start() {
                break;
            }
            feed.control.on_ack(&Ack {
                now: Duration::from_secs(2),
                acked: 1,
                marked: 0,
                largest: number,
                next: number + 9,
                in_flight: 9,
                rtt: None,
                is_app_limited: false,
            });
            last = feed.window();
        }
        assert!(!feed.control.is_slow_start(), "{name}: {last}");
        assert_eq!(feed.window(), most, "{name}");
    }
}

#[test]
fn what_was_in_flight_counts_and_not_what_might_have_been() {
    let mut feed = reno(40.0);
    let ack = Ack {
        now: Duration::ZERO,
        acked: 1,
        marked: 1,
        largest: 5,
        next: 12,
        in_flight: 12,
        rtt: None,
        is_app_limited: true,
    };
    feed.control.on_ack(&ack);
    assert_eq!(feed.window(), 6.0);
}

#[test]
fn a_window_that_is_not_used_does_not_grow() {
    for name in Algorithm::NAMES {
        let mut control = name.parse::<Algorithm>().unwrap().build().unwrap();
        let before = control.window();
        let ack = |is_app_limited| Ack {
            now: Duration::from_millis(5),
            acked: 1,
            marked: 0,
            largest: 0,
            next: 1,
            in_flight: 1,
            rtt: None,
            is_app_limited,
        };
        control.on_ack(&ack(true));
        assert_eq!(control.window(), before, "{name}");
        control.on_ack(&ack(false));
        assert!(control.window() > before, "{name}");
    }
}

#[test]
fn dccp_starts_half_as_fast_and_halves_once_per_window() {
    let options = DccpOptions {
        initial_window: 4.0,
        ..DccpOptions::default()
    };
    let control = Algorithm::Dccp(options).build().unwrap();
    let mut feed = Feed::new(control, Duration::from_millis(10));
    feed.ack(2, 0);
    assert_eq!(feed.window(), 5.0);
    // More than the ratio of acknowledgements has no more effect (RFC 4341 §5).
    feed.ack(3, 0);
    assert_eq!(feed.window(), 6.0);
    while feed.window() < 20.0 {
        feed.ack(2, 0);
    }
    feed.lose(1);
    feed.ack(1, 1);
    assert_eq!(feed.window(), 10.0);
    assert!(!feed.control.is_slow_start());
    feed.ack(feed.next - feed.oldest, 0);
    feed.round(|_| false);
    assert!((feed.window() - 11.0).abs() < 0.1, "{}", feed.window());
    feed.time_out();
    assert_eq!(feed.window(), 1.0);
}
