//! Whatever comes, in whichever order, a window is a number of packets within its bounds.

use std::time::Duration;

use outpour_congestion::{
    Ack, Algorithm, CubicOptions, Loss, Timeout, WINDOW_MAX, WINDOW_MIN, WfccOptions,
};
use proptest::prelude::*;

#[derive(Clone, Debug)]
enum Event {
    Ack(Ack),
    Loss(Loss),
    Timeout(Timeout),
    Theta(f64),
}

/// Mostly small numbers, at times the largest.
fn count() -> impl Strategy<Value = u64> {
    prop_oneof![8 => 0..200_u64, 1 => 0..1_000_000_u64, 1 => any::<u64>()]
}

fn time() -> impl Strategy<Value = Duration> {
    prop_oneof![
        8 => (0..60_000_u64).prop_map(Duration::from_millis),
        1 => Just(Duration::ZERO),
        1 => Just(Duration::MAX),
    ]
}

fn event() -> impl Strategy<Value = Event> {
    let ack = (
        time(),
        count(),
        count(),
        count(),
        count(),
        count(),
        proptest::option::of(time()),
        any::<bool>(),
    );
    let ack = ack.prop_map(
        |(now, acked, marked, largest, next, in_flight, rtt, is_app_limited)| {
            Event::Ack(Ack {
                now,
                acked,
                marked,
                largest,
                next,
                in_flight,
                rtt,
                is_app_limited,
            })
        },
    );
    let loss = (time(), count(), count(), count(), count()).prop_map(
        |(now, lost, largest, next, in_flight)| {
            Event::Loss(Loss {
                now,
                lost,
                largest,
                next,
                in_flight,
            })
        },
    );
    let timeout = (time(), count(), count()).prop_map(|(now, next, in_flight)| {
        Event::Timeout(Timeout {
            now,
            next,
            in_flight,
        })
    });
    let theta = prop_oneof![1e-300..1e300_f64, 0.1..10.0_f64, any::<f64>()].prop_map(Event::Theta);
    prop_oneof![12 => ack, 3 => loss, 1 => timeout, 1 => theta]
}

fn algorithm() -> impl Strategy<Value = Algorithm> {
    let named = (0..Algorithm::NAMES.len()).prop_map(|it| Algorithm::NAMES[it].parse().unwrap());
    let wfcc = (
        1e-300..1e300_f64,
        0.001..=1.0_f64,
        0.0..=1.0_f64,
        any::<bool>(),
    )
        .prop_map(|(theta, g, alpha, has_slow_start)| {
            Algorithm::Wfcc(WfccOptions {
                theta,
                g,
                alpha,
                has_slow_start,
                initial_window: WINDOW_MAX,
            })
        });
    let cubic = (1e-6..1e6_f64, 0.001..0.999_f64).prop_map(|(c, beta)| {
        Algorithm::Cubic(CubicOptions {
            c,
            beta,
            ..CubicOptions::default()
        })
    });
    prop_oneof![3 => named, 1 => wfcc, 1 => cubic]
}

proptest! {
    #[test]
    fn a_window_stays_within_its_bounds(
        algorithm in algorithm(),
        events in proptest::collection::vec(event(), 1..200),
    ) {
        let mut control = algorithm.build().unwrap();
        for event in events {
            let before = control.window();
            match &event {
                Event::Ack(ack) => control.on_ack(ack),
                Event::Loss(loss) => {
                    control.on_loss(loss);
                    prop_assert!(control.window() <= before, "a loss grew the window: {event:?}");
                }
                Event::Timeout(timeout) => {
                    control.on_timeout(timeout);
                    prop_assert_eq!(control.window(), 1.0);
                }
                Event::Theta(theta) => {
                    if let Some(weighted) = control.weighted() {
                        let is_sound = *theta > 0.0 && theta.is_finite();
                        prop_assert_eq!(weighted.set_theta(*theta).is_ok(), is_sound);
                    }
                }
            }
            let window = control.window();
            prop_assert!((WINDOW_MIN..=WINDOW_MAX).contains(&window), "{window} after {event:?}");
            if let Some(alpha) = control.alpha() {
                prop_assert!((0.0..=1.0).contains(&alpha), "{alpha} after {event:?}");
            }
        }
    }
}
