//! Ctrl-C: the agents leave at once, what they have is kept, and the same command goes on.

use std::time::{Duration, Instant};

use crate::harness::{BYTES, Cluster, Report};

/// From the signal to the end of the command.
const END_MAX: Duration = Duration::from_secs(10);

#[test]
fn an_interrupted_cast_continues() {
    let cluster = Cluster::new(3);
    let mut cast = cluster.begin("swarm", &[]);
    cluster.wait_for_share(&mut cast, 0, 0.4);
    cast.signal("INT");
    let signalled = Instant::now();
    let first = Report::of(cast.end(), 1);
    assert!(signalled.elapsed() < END_MAX, "{:?}", signalled.elapsed());
    for host in cluster.hosts() {
        assert_eq!(
            first.error(host),
            "interrupted; what it has is kept for the next attempt"
        );
    }
    cluster.wait_for_peace();
    let held: Vec<u64> = cluster.hosts().map(|host| cluster.held(host)).collect();
    for host in cluster.hosts() {
        assert!(held[host] < BYTES);
        cluster.assert_nothing_half(host, &cluster.source);
    }
    let again = Report::of(cluster.begin("swarm", &[]).end(), 0);
    again.assert_verified(&cluster, cluster.hosts());
    for host in cluster.hosts() {
        again.assert_resumed(host, held[host]);
    }
    // An agent has nothing to complain of.
    assert_eq!(cluster.stop(), ["", "", ""]);
}

#[test]
fn an_interrupt_before_anything_moved_ends_it_too() {
    let cluster = Cluster::new(2);
    // One agent does not answer, so the cast waits for it.
    cluster.signal(1, "STOP");
    let record = cluster.aside().join("record");
    let mut cast = cluster.begin("chain", &["--progress", record.to_str().unwrap()]);
    // It joins once the source is hashed; before, no host has anything to report.
    crate::harness::wait_until("the first agent's part", || {
        cast.assert_runs();
        let record = std::fs::read_to_string(&record).unwrap_or_default();
        record.contains(r#""state":"joined""#)
    });
    cast.signal("INT");
    let signalled = Instant::now();
    let report = Report::of(cast.end(), 1);
    assert!(signalled.elapsed() < END_MAX, "{:?}", signalled.elapsed());
    for host in cluster.hosts() {
        assert!(report.error(host).starts_with("interrupted"));
    }
    cluster.signal(1, "CONT");
    cluster.wait_for_peace();
    assert!(cluster.hosts().all(|host| cluster.held(host) == 0));
}
