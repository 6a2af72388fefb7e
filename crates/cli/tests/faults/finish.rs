//! Hosts that get every block and then cannot put the files in place: none of them is verified.

use std::fs;

use crate::harness::{Cluster, Report};

const HOST: usize = 1;

/// A directory with something in it appears where `name` belongs, when it was seen already that
/// nothing is there.
fn something_gets_in_the_way(protocol: &str, name: &str) {
    let cluster = Cluster::new(3);
    let mut cast = cluster.begin(protocol, &[]);
    cluster.wait_for_share(&mut cast, HOST, 0.3);
    let taken = cluster.copy(HOST).join(name);
    fs::create_dir_all(taken.join("mine")).unwrap();
    let first = Report::of(cast.end(), 1);
    first.assert_verified(&cluster, cluster.others(HOST));
    let error = first.error(HOST);
    let expected = format!("{}: a directory where ", taken.display());
    assert!(error.starts_with(&expected), "{error}");
    let host = first.host(HOST);
    assert_eq!(host["verified"], false, "{host}");
    assert!(host["finish_s"].is_null(), "{host}");
    assert!(taken.join("mine").is_dir());
    cluster.wait_for_peace();

    fs::remove_dir_all(&taken).unwrap();
    let held = cluster.held(HOST);
    let second = Report::of(cluster.begin(protocol, &[]).end(), 0);
    second.assert_verified(&cluster, cluster.hosts());
    second.assert_resumed(HOST, held);
}

/// Links are made at the very end, when all blocks are there and the host has said so.
#[test]
fn where_a_link_belongs() {
    something_gets_in_the_way("chain", "link");
}

#[test]
fn where_the_last_file_belongs() {
    something_gets_in_the_way("swarm", "large/11");
}
