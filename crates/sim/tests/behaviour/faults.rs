//! Each kind of fault, with the protocols that have to cope with it.

use std::time::Duration;

use outpour_core::network::{ClusterId, Network};
use outpour_core::{NodeId, Rate, Time};
use outpour_sim::cast::{CastConfig, CastError, SimReport, simulate};
use outpour_sim::fault::{Fault, FaultKind};

use super::{MIB, assert_within, cast, rate, star};

/// A 20 s transfer of 200 MiB among eight nodes of 10 MB/s, with faults at its third second.
fn with(protocol: &str, kinds: &[(Option<u64>, FaultKind)]) -> Result<SimReport, CastError> {
    let fault = |(lasts, kind): &(Option<u64>, FaultKind)| Fault {
        at: Time::from_secs_f64(3.0),
        lasts: lasts.map(Duration::from_secs),
        kind: kind.clone(),
    };
    let faults = kinds.iter().map(fault).collect();
    simulate(CastConfig {
        faults,
        ..cast(star(8), protocol, 200)
    })
}

fn undisturbed(protocol: &str) -> f64 {
    with(protocol, &[]).unwrap().finish_s
}

const fn crash(node: u32, silent: bool) -> FaultKind {
    FaultKind::Crash {
        node: NodeId(node),
        unjournaled: Duration::from_secs(1),
        silent,
    }
}

#[test]
fn the_others_finish_when_a_node_crashes_for_good() {
    for (protocol, silent) in [
        ("chain", false),
        ("chain", true),
        ("swarm", false),
        ("swarm", true),
    ] {
        let report = with(protocol, &[(None, crash(3, silent))]).unwrap();
        assert_eq!(report.nodes[2].finish_s, None);
        assert_eq!(
            report
                .nodes
                .iter()
                .filter(|node| node.finish_s.is_some())
                .count(),
            6
        );
        assert!(
            report.finish_s < 2.0 * undisturbed(protocol),
            "{protocol} {}",
            report.finish_s
        );
    }
}

#[test]
fn a_node_that_crashed_comes_back_and_finishes() {
    for protocol in ["direct", "chain", "swarm"] {
        let report = with(protocol, &[(Some(5), crash(3, false))]).unwrap();
        assert!(report.nodes.iter().all(|node| node.finish_s.is_some()));
        assert!(
            report.finish_s < 2.0 * undisturbed(protocol),
            "{protocol} {}",
            report.finish_s
        );
    }
}

#[test]
fn a_source_that_comes_back_is_used_again() {
    for protocol in ["direct", "chain", "swarm"] {
        let report = with(protocol, &[(Some(4), crash(0, false))]).unwrap();
        assert!(report.finish_s > undisturbed(protocol), "{protocol}");
    }
}

#[test]
fn a_source_that_is_gone_too_early_leaves_the_cast_stuck() {
    for protocol in ["direct", "chain", "swarm"] {
        let error = with(protocol, &[(None, crash(0, false))]).unwrap_err();
        assert!(
            matches!(error, CastError::Stuck { missing: 7, .. }),
            "{protocol}: {error}"
        );
    }
}

#[test]
fn a_stalled_node_is_bypassed_and_catches_up() {
    for protocol in ["chain", "swarm"] {
        let normal = undisturbed(protocol);
        let report = with(
            protocol,
            &[(Some(60), FaultKind::Stall { node: NodeId(3) })],
        )
        .unwrap();
        let times: Vec<f64> = report
            .nodes
            .iter()
            .filter_map(|node| node.finish_s)
            .collect();
        let (stalled, others) = (times[2], [&times[..2], &times[3..]].concat());
        let last = others.into_iter().fold(0.0, f64::max);
        assert!(
            last < 1.5 * normal,
            "{protocol}: others took {last}, normally {normal}"
        );
        assert!(stalled > 63.0, "{protocol}: {stalled}");
    }
}

#[test]
fn a_slower_node_slows_what_passes_it() {
    let half = FaultKind::NodeRate {
        node: NodeId(0),
        out: rate("5 MB/s"),
        into: rate("5 MB/s"),
    };
    let report = with("chain", &[(None, half)]).unwrap();
    let size = 200.0 * MIB as f64;
    // Three seconds at the full rate, the rest at half of it, six blocks from hop to hop.
    let expected = 3.0 + (size - 30e6) / 5e6 + 6.0 * MIB as f64 / 10e6;
    assert_within(report.finish_s, expected, 0.01);
}

#[test]
fn a_dead_link_holds_everything_up_until_it_is_back() {
    let toml = r#"
        [[cluster]]
        name = "A"
        nodes = 1
        [[cluster]]
        name = "B"
        nodes = 2
        [[link]]
        from = "A"
        to = "B"
        rate = "10 MB/s"
        both = true
    "#;
    let network = Network::from_toml(toml, "dead.toml").unwrap();
    let kind = FaultKind::LinkRate {
        from: ClusterId(0),
        to: ClusterId(1),
        rate: Rate::ZERO,
    };
    let fault = Fault {
        at: Time::from_secs_f64(2.0),
        lasts: Some(Duration::from_secs(30)),
        kind,
    };
    let config = cast(network, "chain", 100);
    let normal = simulate(config.clone()).unwrap().finish_s;
    let report = simulate(CastConfig {
        faults: vec![fault],
        ..config
    })
    .unwrap();
    assert!(
        report.finish_s > normal + 29.0,
        "{} after {normal}",
        report.finish_s
    );
    assert!(
        report.finish_s < normal + 45.0,
        "{} after {normal}",
        report.finish_s
    );
}

#[test]
fn late_messages_and_partitions_are_survived() {
    let late = FaultKind::MessageDelay {
        node: NodeId(2),
        extra: Duration::from_millis(700),
    };
    let apart = FaultKind::Partition {
        one: NodeId(0),
        other: NodeId(1),
    };
    for protocol in ["direct", "chain", "swarm"] {
        for kind in [&late, &apart] {
            let report = with(protocol, &[(Some(15), kind.clone())]).unwrap();
            let normal = undisturbed(protocol);
            assert!(
                report.finish_s < normal + 40.0,
                "{protocol} {kind:?} {}",
                report.finish_s
            );
        }
    }
}

#[test]
fn wrong_bytes_reach_nobody() {
    for protocol in ["chain", "swarm"] {
        let report = with(
            protocol,
            &[(
                Some(10),
                FaultKind::WrongBytes {
                    node: NodeId(2),
                    share: 0.3,
                    packets_only: false,
                },
            )],
        )
        .unwrap();
        assert!(
            report.nodes.iter().all(|node| node.finish_s.is_some()),
            "{protocol}"
        );
    }
}
