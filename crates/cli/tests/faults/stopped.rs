//! A node that stands still in the middle (SIGSTOP) is bypassed, reported, and can come back.

use std::time::{Duration, Instant};

use crate::harness::{Cluster, Report};

/// How long a command waits for agents that were told to leave.
const FAREWELL: Duration = Duration::from_secs(3);

fn one_stands_still(protocol: &str, victim: usize) {
    let cluster = Cluster::new(4);
    // Were it not bypassed, no host behind it would get anything for this long, and all would fail.
    let start = Instant::now();
    let mut cast = cluster.begin(protocol, &["--patience", "10 s"]);
    cluster.wait_for_share(&mut cast, victim, 0.4);
    cluster.signal(victim, "STOP");
    let first = Report::of(cast.end(), 1);
    // An agent that stands still does not leave, and is not waited for again.
    assert!(start.elapsed() < first.took() + FAREWELL);
    first.assert_verified(&cluster, cluster.others(victim));
    let error = first.error(victim);
    assert!(error.starts_with("nothing heard from it for "), "{error}");
    cluster.assert_nothing_half(victim, &cluster.source);

    let held = cluster.held(victim);
    cluster.signal(victim, "CONT");
    let second = Report::of(cluster.begin(protocol, &[]).end(), 0);
    second.assert_verified(&cluster, cluster.hosts());
    second.assert_resumed(victim, held);
    cluster.wait_for_peace();
}

#[test]
fn in_a_chain() {
    one_stands_still("chain", 1);
}

#[test]
fn in_a_swarm() {
    one_stands_still("swarm", 1);
}

/// Ctrl-Z and `fg`, or a laptop that was closed for a while.
#[test]
fn the_command_itself() {
    let cluster = Cluster::new(2);
    let mut cast = cluster.begin("chain", &["--patience", "3 s"]);
    cluster.wait_for_share(&mut cast, 1, 0.4);
    cast.signal("STOP");
    // The fault is that it takes long: more than the patience of any host, and than links stay up.
    std::thread::sleep(Duration::from_secs(12));
    cast.signal("CONT");
    let report = Report::of(cast.end(), 0);
    report.assert_verified(&cluster, cluster.hosts());
    cluster.wait_for_peace();
}
