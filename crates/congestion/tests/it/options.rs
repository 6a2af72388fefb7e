//! Options out of range are refused by name, and those at the edge are not.

use outpour_congestion::{
    Algorithm, CubicOptions, DccpOptions, DctcpOptions, OptionError, RenoOptions, WfccOptions,
};

#[track_caller]
fn refused(algorithm: Algorithm, field: &str) {
    match algorithm.build() {
        Err(error @ OptionError::OutOfRange { .. }) => {
            let text = error.to_string();
            assert!(text.starts_with(&format!("`{field}` is ")), "{text}");
            assert!(text.contains(": expected a "), "{text}");
        }
        other => panic!("{algorithm:?}: {other:?}"),
    }
}

#[track_caller]
fn taken(algorithm: Algorithm) {
    assert!(algorithm.build().is_ok(), "{algorithm:?}");
}

#[test]
fn of_wfcc() {
    let options = WfccOptions::default();
    for theta in [0.0, -1.0, f64::NAN, f64::INFINITY] {
        refused(Algorithm::Wfcc(WfccOptions { theta, ..options }), "theta");
    }
    for g in [0.0, 1.001, f64::NAN, -0.5] {
        refused(Algorithm::Wfcc(WfccOptions { g, ..options }), "g");
    }
    for alpha in [-0.001, 1.001, f64::NAN] {
        refused(Algorithm::Wfcc(WfccOptions { alpha, ..options }), "alpha");
    }
    taken(Algorithm::Wfcc(WfccOptions {
        theta: 1e-9,
        g: 1.0,
        alpha: 1.0,
        ..options
    }));
}

#[test]
fn of_the_others() {
    let dctcp = DctcpOptions::default();
    refused(Algorithm::Dctcp(DctcpOptions { g: 0.0, ..dctcp }), "g");
    refused(
        Algorithm::Dctcp(DctcpOptions {
            alpha: 2.0,
            ..dctcp
        }),
        "alpha",
    );
    for window_min in [0.0, 0.999, f64::NAN] {
        let options = DctcpOptions {
            window_min,
            ..dctcp
        };
        refused(Algorithm::Dctcp(options), "window_min");
    }
    let cubic = CubicOptions::default();
    for c in [0.0, 1e-310, 1e300, f64::NAN] {
        refused(Algorithm::Cubic(CubicOptions { c, ..cubic }), "c");
    }
    for beta in [0.0, 1.0, f64::NAN] {
        refused(Algorithm::Cubic(CubicOptions { beta, ..cubic }), "beta");
    }
    let dccp = DccpOptions::default();
    refused(
        Algorithm::Dccp(DccpOptions {
            ack_ratio: 0.0,
            ..dccp
        }),
        "ack_ratio",
    );
}

#[test]
fn windows_are_from_one_packet_to_a_bound() {
    let with = |initial_window| {
        [
            Algorithm::Wfcc(WfccOptions {
                initial_window,
                ..WfccOptions::default()
            }),
            Algorithm::Dctcp(DctcpOptions {
                initial_window,
                ..DctcpOptions::default()
            }),
            Algorithm::Reno(RenoOptions { initial_window }),
            Algorithm::Cubic(CubicOptions {
                initial_window,
                ..CubicOptions::default()
            }),
            Algorithm::Dccp(DccpOptions {
                initial_window,
                ..DccpOptions::default()
            }),
        ]
    };
    for window in [0.0, 0.999, 1.1e9, f64::NAN, f64::INFINITY] {
        for algorithm in with(window) {
            refused(algorithm, "initial_window");
        }
    }
    for window in [1.0, 1_073_741_824.0] {
        with(window).into_iter().for_each(taken);
    }
}
