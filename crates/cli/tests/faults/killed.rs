//! kill -9 of any part of a cast: the others finish, and the same command completes the rest.

use crate::harness::{AGAIN_MAX, BYTES, Cluster, Report};

const LOST: &str = "its agent ended before the cast did; the same command continues where it \
                    stopped";

/// Four hosts, one of which dies in the middle; returns what it held then.
fn one_dies(protocol: &str, victim: usize) -> (Cluster, u64) {
    let mut cluster = Cluster::new(4);
    let mut cast = cluster.begin(protocol, &[]);
    cluster.wait_for_share(&mut cast, victim, 0.6);
    cluster.kill(victim);
    let held = cluster.held(victim);
    assert!(held > AGAIN_MAX, "else nothing is shown below");
    let first = Report::of(cast.end(), 1);
    assert_eq!(first.error(victim), LOST);
    first.assert_verified(&cluster, cluster.others(victim));
    assert!(held < BYTES);
    cluster.assert_nothing_half(victim, &cluster.source);
    (cluster, held)
}

fn one_dies_and_comes_back(protocol: &str, victim: usize) {
    let (mut cluster, held) = one_dies(protocol, victim);
    cluster.restart(victim);
    let second = Report::of(cluster.begin(protocol, &[]).end(), 0);
    second.assert_verified(&cluster, cluster.hosts());
    second.assert_resumed(victim, held);
    for other in cluster.others(victim) {
        assert_eq!(second.number(other, "received_bytes"), 0);
    }
    cluster.wait_for_peace();
}

#[test]
fn a_receiver_of_a_swarm() {
    one_dies_and_comes_back("swarm", 2);
}

#[test]
fn a_node_of_a_coded_gossip() {
    one_dies_and_comes_back("coded-gossip", 2);
}

#[test]
fn a_robber() {
    one_dies_and_comes_back("robber", 2);
}

#[test]
fn a_member_of_a_mob() {
    one_dies_and_comes_back("mob", 1);
}

#[test]
fn a_node_of_adaptive_multicasting() {
    one_dies("adaptive", 2);
}

#[test]
fn a_relay_in_the_middle_of_a_chain() {
    one_dies_and_comes_back("chain", 1);
}

fn the_source_dies_and_comes_back(protocol: &str) {
    let cluster = Cluster::new(3);
    let mut cast = cluster.begin(protocol, &[]);
    cluster.wait_for_share(&mut cast, 2, 0.4);
    cast.signal("KILL");
    assert_eq!(cast.end().code, None);
    cluster.wait_for_peace();
    let held: Vec<u64> = cluster.hosts().map(|host| cluster.held(host)).collect();
    for host in cluster.hosts() {
        assert!(held[host] < BYTES);
        cluster.assert_nothing_half(host, &cluster.source);
    }

    let again = Report::of(cluster.begin(protocol, &[]).end(), 0);
    again.assert_verified(&cluster, cluster.hosts());
    for host in cluster.hosts() {
        again.assert_resumed(host, held[host]);
    }
    cluster.wait_for_peace();
    // Each agent had said what happened.
    for said in cluster.stop() {
        assert_eq!(said.lines().count(), 1, "{said}");
        assert!(
            said.starts_with(
                "outpour: cast by operator from 127.0.0.1: the command that started this cast went away; "
            ),
            "{said}"
        );
    }
}

#[test]
fn the_source_of_a_chain() {
    the_source_dies_and_comes_back("chain");
}

#[test]
fn the_source_of_a_coded_gossip() {
    the_source_dies_and_comes_back("coded-gossip");
}

#[test]
fn the_source_of_robbers() {
    the_source_dies_and_comes_back("robber");
}

#[test]
fn the_source_of_a_swarm() {
    the_source_dies_and_comes_back("swarm");
}

#[test]
fn one_again_and_again() {
    const VICTIM: usize = 0;
    let mut cluster = Cluster::new(2);
    for share in [0.1, 0.35, 0.6, 0.85] {
        let mut cast = cluster.begin("swarm", &[]);
        cluster.wait_for_share(&mut cast, VICTIM, share);
        cluster.kill(VICTIM);
        let held = cluster.held(VICTIM);
        let report = Report::of(cast.end(), 1);
        assert_eq!(report.error(VICTIM), LOST);
        report.assert_verified(&cluster, [1]);
        cluster.assert_nothing_half(VICTIM, &cluster.source);
        cluster.restart(VICTIM);
        assert!(cluster.held(VICTIM) >= held);
    }
    let held = cluster.held(VICTIM);
    let last = Report::of(cluster.begin("swarm", &[]).end(), 0);
    last.assert_verified(&cluster, cluster.hosts());
    last.assert_resumed(VICTIM, held);
}
