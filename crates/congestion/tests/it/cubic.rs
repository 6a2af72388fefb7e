//! CUBIC: RFC 9438.

use std::time::Duration;

use outpour_congestion::{Ack, CongestionControl, Cubic, CubicOptions, Loss};

use crate::feed::{Feed, near};

fn feed(window: f64, rtt: Duration, has_fast_convergence: bool) -> Feed {
    let control = Cubic::new(CubicOptions {
        initial_window: window,
        has_fast_convergence,
        ..CubicOptions::default()
    });
    Feed::new(Box::new(control.unwrap()), rtt)
}

/// Loses a packet, and has the rest acknowledged that was sent before.
fn congest(feed: &mut Feed) {
    feed.lose(1);
    feed.ack(feed.next - feed.oldest, 0);
}

#[test]
fn the_curve_is_concave_reaches_the_old_window_after_k_and_is_convex_from_there() {
    let (w_max, rtt) = (1000.0, Duration::from_millis(100));
    let mut feed = feed(w_max, rtt, true);
    congest(&mut feed);
    near(feed.window(), 700.0, 1e-12);
    // K = cbrt(W_max (1 - beta) / C) = cbrt(1000 * 0.3 / 0.4).
    let k_s = 750.0_f64.cbrt();
    let mut windows = vec![feed.window()];
    while feed.now.as_secs_f64() < 2.0 * k_s {
        feed.round(|_| false);
        windows.push(feed.window());
        let t = feed.now.as_secs_f64();
        let curve = 0.4 * (t - k_s).powi(3) + w_max;
        near(feed.window(), curve, 0.02);
    }
    let at_k = windows[(k_s * 10.0).round() as usize];
    near(at_k, w_max, 0.005);
    let growth: Vec<f64> = windows.windows(2).map(|pair| pair[1] - pair[0]).collect();
    let (early, late) = growth.split_at((k_s * 10.0) as usize);
    assert!(early[5] > 4.0 * early[60], "{early:?}");
    assert!(late[80] > 4.0 * late[20], "{late:?}");
    // Symmetric about K: the window has gained as much as the congestion took.
    near(feed.window(), 1300.0, 0.02);
}

#[test]
fn where_round_trips_are_short_it_is_as_fast_as_reno() {
    // K is 4.2 s, and a window of 100 returns in fewer round trips of 1 ms by RFC 9438 §4.3.
    let mut feed = feed(100.0, Duration::from_millis(1), true);
    congest(&mut feed);
    let alpha = 3.0 * 0.3 / 1.7;
    for _ in 0..50 {
        feed.round(|_| false);
    }
    near(feed.window() - 70.0, 50.0 * alpha, 0.05);
    // Beyond the window before the congestion it grows like Reno.
    while feed.window() < 100.0 {
        feed.round(|_| false);
    }
    let before = feed.window();
    for _ in 0..20 {
        feed.round(|_| false);
    }
    near(feed.window() - before, 20.0, 0.05);
}

#[test]
fn a_flow_that_shrinks_makes_room() {
    for (makes_room, flat) in [(true, 700.0 * 0.85), (false, 700.0)] {
        let rtt = Duration::from_millis(100);
        let mut feed = feed(1000.0, rtt, makes_room);
        congest(&mut feed);
        feed.lose(1);
        assert!(feed.window() < 495.0, "{}", feed.window());
        feed.ack(feed.next - feed.oldest, 0);
        let (begun, window) = (feed.now, feed.window());
        // It is flat after K seconds.
        let k_s = ((flat - window) / 0.4).cbrt();
        while (feed.now - begun).as_secs_f64() < k_s {
            feed.round(|_| false);
        }
        near(feed.window(), flat, 0.01);
    }
}

#[test]
fn a_mark_takes_as_much_as_a_loss() {
    let mut feed = feed(100.0, Duration::from_millis(10), true);
    feed.ack(1, 1);
    near(feed.window(), 70.0, 1e-12);
    feed.ack(1, 1);
    near(feed.window(), 70.0, 1e-12);
}

#[test]
fn after_a_timeout_slow_start_ends_at_its_part_and_the_curve_begins_flat() {
    let mut feed = feed(100.0, Duration::from_millis(100), true);
    feed.time_out();
    assert_eq!(feed.window(), 1.0);
    while feed.control.is_slow_start() {
        feed.round(|_| false);
    }
    near(feed.window(), 70.0, 0.01);
    let (begun, window) = (feed.now, feed.window());
    for _ in 0..20 {
        feed.round(|_| false);
    }
    let t = (feed.now - begun).as_secs_f64();
    // Reno's growth and the curve from its flat part: the larger of both.
    let expected = (0.4 * t.powi(3)).max(20.0 * 3.0 * 0.3 / 1.7);
    near(feed.window() - window, expected, 0.12);
}

#[test]
fn a_timeout_forgets_where_congestion_was() {
    let mut feed = feed(1000.0, Duration::from_millis(100), true);
    congest(&mut feed);
    feed.time_out();
    // What is in flight from here on is a tenth of what was: the path has changed.
    while feed.window() < 60.0 {
        feed.round(|_| false);
    }
    feed.time_out();
    while feed.control.is_slow_start() {
        feed.round(|_| false);
    }
    let window = feed.window();
    assert!(window < 100.0, "{window}");
    for _ in 0..10 {
        feed.round(|_| false);
    }
    // Towards 1000 packets it would rise by tens of packets a second.
    assert!(
        feed.window() < window + 8.0,
        "{} from {window}",
        feed.window()
    );
}

#[test]
fn a_window_grows_by_half_per_round_trip_at_most() {
    // A round trip of 20 s: the curve is far above at once.
    let mut feed = feed(100.0, Duration::from_secs(20), true);
    congest(&mut feed);
    for _ in 0..6 {
        let before = feed.window();
        feed.round(|_| false);
        assert!(
            feed.window() <= 1.51 * before,
            "{} of {before}",
            feed.window()
        );
        assert!(feed.window() > before);
    }
}

#[test]
fn a_time_without_use_does_not_count() {
    let mut control = Cubic::new(CubicOptions::default()).unwrap();
    let ack = |at_s: f64, largest, is_app_limited| Ack {
        now: Duration::from_secs_f64(at_s),
        acked: 1,
        marked: 0,
        largest,
        next: largest + 10,
        in_flight: 10,
        rtt: Some(Duration::from_millis(100)),
        is_app_limited,
    };
    let loss = Loss {
        now: Duration::from_secs(1),
        lost: 1,
        largest: 0,
        next: 10,
        in_flight: 10,
    };
    control.on_loss(&loss);
    control.on_ack(&ack(1.0, 20, false));
    let before = control.window();
    for at_s in 2..1000 {
        control.on_ack(&ack(f64::from(at_s), 20, true));
    }
    assert_eq!(control.window(), before);
    control.on_ack(&ack(999.05, 40, false));
    assert!(control.window() < before + 0.25, "{}", control.window());
}
