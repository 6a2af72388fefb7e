//! Limits while a network changes.

use outpour_core::network::{Change, Network, Resource};
use outpour_core::{Bytes, NodeId, Rate, Time};
use outpour_planner::{LimitError, clairvoyant, limit, limit_over};

const MB: f64 = 1e6;

fn rate(mb: f64) -> Rate {
    Rate::from_bytes_per_s(mb * MB).unwrap()
}

/// Hosts A, B and C, one behind the other.
fn line() -> Network {
    let hosts = ["A", "B", "C"].map(|name| format!("[[cluster]]\nname='{name}'\nnodes=1\n"));
    let links = [("A", "B"), ("B", "C")]
        .map(|(a, b)| format!("[[link]]\nfrom='{a}'\nto='{b}'\nrate='10 MB/s'\n"));
    Network::from_toml(&(hosts.concat() + &links.concat()), "test.toml").unwrap()
}

fn set(network: &Network, from: &str, to: &str, mb: f64) -> Change {
    let cluster = |name| network.cluster_of(network.node(name).unwrap());
    Change::Capacity {
        resource: Resource::Link(cluster(from), cluster(to)),
        rate: rate(mb),
    }
}

fn at(seconds: f64, changes: Vec<Change>) -> (Time, Vec<Change>) {
    (Time::from_secs_f64(seconds), changes)
}

#[track_caller]
fn assert_near(found: f64, expected: f64) {
    assert!(
        (found / expected - 1.0).abs() < 1e-5,
        "found {found}, expected {expected}"
    );
}

#[test]
fn every_situation_counts_for_as_long_as_it_lasts() {
    let network = line();
    let root = NodeId(0);
    let changes = vec![
        at(0.0, vec![set(&network, "A", "B", 5.0)]),
        at(10.0, vec![set(&network, "A", "B", 20.0)]),
        at(15.0, vec![set(&network, "B", "C", 1.0)]),
    ];
    // 50 MB until 10 s, 50 MB until 15 s, then 1 MB/s.
    let over = clairvoyant(&network, &[root], Bytes(80_000_000), changes.clone()).unwrap();
    assert_near(over.seconds, 13.0);
    let over = clairvoyant(&network, &[root], Bytes(102_000_000), changes).unwrap();
    assert_near(over.seconds, 17.0);
    assert_near(over.throughput.bytes_per_s(), 6.0 * MB);
    assert!(over.exact);
}

#[test]
fn data_sent_ahead_beats_the_clairvoyant_but_not_the_limit() {
    let network = line();
    let root = NodeId(0);
    // The second link is slow while the first is fast, and the other way round.
    let changes = vec![
        at(0.0, vec![set(&network, "B", "C", 1.0)]),
        at(
            10.0,
            vec![set(&network, "A", "B", 1.0), set(&network, "B", "C", 10.0)],
        ),
    ];
    let size = Bytes(100_000_000);
    let adapts = clairvoyant(&network, &[root], size, changes.clone()).unwrap();
    assert_near(adapts.seconds, 100.0);
    // All of it is in B after 10 s, and 10 MB of it in C.
    let least = limit_over(&network, &[root], size, changes).unwrap();
    assert_near(least.seconds, 19.0);
}

#[test]
fn what_is_fast_too_late_does_not_count() {
    let network = line();
    // The first link is fast only when B has long been waiting for it. On average both carry 5.5 MB/s
    // after 20 s, but until 10 s B has only 10 MB to pass on, and from then on 1 MB/s leave it.
    let changes = vec![
        at(0.0, vec![set(&network, "A", "B", 1.0)]),
        at(
            10.0,
            vec![set(&network, "A", "B", 10.0), set(&network, "B", "C", 1.0)],
        ),
    ];
    let over = limit_over(&network, &[NodeId(0)], Bytes(100_000_000), changes.clone()).unwrap();
    assert_near(over.seconds, 100.0);
    let over = limit_over(&network, &[NodeId(0)], Bytes(10_000_000), changes).unwrap();
    assert_near(over.seconds, 10.0);
}

#[test]
fn without_changes_both_are_the_limit() {
    let network = line();
    let size = Bytes(50_000_000);
    let expected = limit(&network, &[NodeId(0)], size).unwrap().seconds;
    assert_near(
        clairvoyant(&network, &[NodeId(0)], size, [])
            .unwrap()
            .seconds,
        expected,
    );
    assert_near(
        limit_over(&network, &[NodeId(0)], size, [])
            .unwrap()
            .seconds,
        expected,
    );
}

#[test]
fn a_script_without_end_is_followed_only_as_long_as_it_takes() {
    let network = line();
    let changes = (0..).map(|round| {
        let mb = if round % 2 == 0 { 2.0 } else { 6.0 };
        at(f64::from(round), vec![set(&network, "B", "C", mb)])
    });
    let over = clairvoyant(&network, &[NodeId(0)], Bytes(400_000_000), changes.clone()).unwrap();
    assert_near(over.seconds, 100.0);
    let over = limit_over(&network, &[NodeId(0)], Bytes(400_000_000), changes).unwrap();
    assert_near(over.seconds, 100.0);
}

#[test]
fn a_way_that_opens_later_is_waited_for() {
    let network = line();
    let size = Bytes(50_000_000);
    let opens = vec![
        at(0.0, vec![set(&network, "B", "C", 0.0)]),
        at(3.0, vec![set(&network, "B", "C", 10.0)]),
    ];
    assert_near(
        clairvoyant(&network, &[NodeId(0)], size, opens.clone())
            .unwrap()
            .seconds,
        8.0,
    );
    assert_near(
        limit_over(&network, &[NodeId(0)], size, opens)
            .unwrap()
            .seconds,
        8.0,
    );
    let closes = vec![at(1.0, vec![set(&network, "B", "C", 0.0)])];
    for over in [clairvoyant, limit_over] {
        let error = over(&network, &[NodeId(0)], size, closes.clone()).unwrap_err();
        assert!(matches!(error, LimitError::Unreachable { .. }));
    }
}
