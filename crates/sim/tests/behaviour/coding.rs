//! Coding takes time: what that costs, and when it costs nothing.

use std::time::Duration;

use outpour_core::Bytes;
use outpour_core::network::Network;
use outpour_sim::cast::{CastConfig, CodingReport, SimReport, simulate, trace};
use outpour_terms::Asked;

use super::{asked, assert_within, cast, rate, star};

/// A gossip of eight nodes at 1 Gbit/s, whose cores code at this speed.
fn fast(speed: &str, batch_blocks: Option<u16>) -> CastConfig {
    let node = rate("1 Gbit/s");
    let network = Network::uniform(8, node, node, Duration::from_micros(100)).unwrap();
    CastConfig {
        size: Bytes(40_000_000),
        asked: Asked {
            batch_blocks,
            ..asked("coded-gossip", 64 << 10)
        },
        coding_speed: Some(rate(speed)),
        ..cast(network, "coded-gossip", 1)
    }
}

fn run(config: CastConfig) -> (SimReport, CodingReport) {
    let report = simulate(config).unwrap();
    let coding = report.coding.clone().unwrap();
    (report, coding)
}

#[test]
fn at_its_best_batch_size_coding_hides_behind_fast_links() {
    let (report, coding) = run(fast("10 GB/s", None));
    assert_eq!(coding.best_batch_blocks, Some(80));
    assert_eq!(coding.batch_blocks, 20);
    assert!(report.ratio <= 1.1, "{report:?}");
    // Each byte is made once and decoded once, of 20 blocks each, but for those given as they are.
    assert!((0.1..0.6).contains(&coding.busy_share), "{coding:?}");
}

#[test]
fn a_processor_that_is_too_slow_is_what_limits_a_gossip() {
    let (hidden, free) = run(fast("unlimited", Some(64)));
    assert_eq!((free.busy_s, free.speed_bytes_per_s), (0.0, None));
    let (slow, coding) = run(fast("2 GB/s", Some(64)));
    assert!(slow.finish_s > 2.0 * hidden.finish_s, "{slow:?}");
    assert!((0.8..=1.0).contains(&coding.busy_share), "{coding:?}");
    // Twice the speed, half the time.
    let (faster, _) = run(fast("4 GB/s", Some(64)));
    assert_within(slow.finish_s / faster.finish_s, 2.0, 0.25);
}

/// All have the same few blocks at first, and the same dimensions of them: ranks alone do not say
/// which node has something new.
#[test]
fn hardly_a_packet_adds_nothing() {
    let node = rate("15 Mbit/s");
    for seed in 1..=4 {
        let network = Network::uniform(20, node, node, Duration::from_micros(500)).unwrap();
        let (report, coding) = run(CastConfig {
            size: Bytes(20_000_000),
            asked: Asked {
                seed: Some(seed),
                ..asked("coded-gossip", 64 << 10)
            },
            ..cast(network, "coded-gossip", 1)
        });
        let least = 18 * 20_000_000 / (64 << 10);
        assert!(coding.packets > least * 9 / 10, "{coding:?}");
        assert!(
            coding.wasted * 50 < coding.packets,
            "{coding:?}, {report:?}"
        );
    }
}

#[test]
fn only_protocols_that_code_report_coding() {
    assert!(
        simulate(cast(star(3), "swarm", 20))
            .unwrap()
            .coding
            .is_none()
    );
}

#[test]
fn the_same_speed_gives_the_same_trace() {
    let hash = |speed| trace(fast(speed, Some(64)), None).unwrap().1;
    assert_eq!(hash("3 GB/s"), hash("3 GB/s"));
    assert_ne!(hash("3 GB/s"), hash("4 GB/s"));
}

#[test]
fn large_objects_are_coded_in_smaller_blocks() {
    let with_block = |block_bytes: Option<u32>, protocol: &str| CastConfig {
        size: Bytes(2 << 30),
        asked: Asked {
            block_bytes,
            ..asked(protocol, 0)
        },
        ..fast("unlimited", None)
    };
    let (chosen, coding) = run(with_block(None, "coded-gossip"));
    assert_eq!(coding.batch_blocks, 32);
    let (given, _) = run(with_block(Some(128 << 10), "coded-gossip"));
    assert_eq!(chosen.finish_s, given.finish_s);
    // Where nothing is coded they are larger.
    let line = simulate(with_block(None, "chain")).unwrap();
    let usual = simulate(with_block(Some(256 << 10), "chain")).unwrap();
    assert_eq!(line.finish_s, usual.finish_s);
}
