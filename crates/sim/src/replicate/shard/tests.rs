//! One shard in place of all.
#![allow(clippy::unwrap_used)]

use super::super::System;
use super::super::tests::{run, scenario, servers};
use super::*;

const JOB: &str =
    "[[job]]\nname = \"j\"\nsize = \"48 GB\"\nfrom = [\"a\"]\nsites = [\"b\", \"c\", \"d\"]\n";
/// For systems that choose at random.
const SEEDS: u64 = 4;

fn four_sites() -> String {
    ["a", "b", "c", "d"].map(|site| servers(site, 24)).concat()
}

fn mean_s(config: &ReplicateConfig) -> f64 {
    let seeds = match config.system {
        System::Gingko | System::Bullet | System::Robber => SEEDS,
        _ => 1,
    };
    let with = |seed| {
        let config = ReplicateConfig {
            seed,
            ..config.clone()
        };
        run(config).finish_s
    };
    (1..=seeds).map(with).sum::<f64>() / seeds as f64
}

#[test]
fn a_shard_takes_as_long_as_all() {
    let slow = "[[link]]\nfrom = \"*\"\nto = \"*\"\nrate = \"1 GB/s\"\n\
                [[link]]\nfrom = \"a\"\nto = \"b\"\nrate = \"120 MB/s\"\n";
    for (network, which) in [(four_sites(), "access"), (four_sites() + slow, "link")] {
        for system in System::ALL {
            let all = ReplicateConfig {
                system,
                ..scenario(&network, JOB, 100.0)
            };
            let one = all.clone().shard(3).unwrap();
            let (all, one) = (mean_s(&all), mean_s(&one));
            let apart = (one / all - 1.0).abs();
            assert!(apart < 0.05, "{system}, {which}: {one} of {all}");
        }
    }
}

#[test]
fn a_shard_has_its_part_of_what_servers_share_and_all_of_what_is_their_own() {
    let network = "[[cluster]]\nname = \"a\"\nnodes = 4\nnode_out = \"20 MB/s\"\nnode_in = \"10 MB/s\"\n\
                   out = \"60 MB/s\"\nin = \"40 MB/s\"\nlocal = \"15 MB/s\"\n\
                   [[cluster]]\nname = \"b\"\nnodes = 2\n\
                   [[link]]\nfrom = \"*\"\nto = \"*\"\nrate = \"30 MB/s\"\ndelay = \"10 ms\"\n";
    let job = "[[job]]\nname = \"j\"\nsize = \"84 MB\"\nfrom = [\"a\"]\nsites = [\"b\"]\nlimit = \"8 MB/s\"\n";
    let mut config = scenario(network, job, 100.0);
    config.network = config
        .network
        .limited(Rate::from_bytes_per_s(18e6).unwrap());
    let whole = config.clone();
    let one = config.shard(2).unwrap();
    let names: Vec<&str> = one.network.nodes().map(|it| one.network.name(it)).collect();
    assert_eq!(names, ["a0", "a1", "b0"]);
    let (a, b) = (ClusterId(0), ClusterId(1));
    let mb = |resource| one.network.capacity(resource).bytes_per_s() / 1e6;
    assert_eq!(mb(Resource::NodeOut(NodeId(0))), 18.0, "the limit of hosts");
    assert_eq!(mb(Resource::NodeIn(NodeId(1))), 10.0);
    assert_eq!(mb(Resource::Local(NodeId(0), NodeId(1))), 15.0);
    assert_eq!(mb(Resource::ClusterOut(a)), 30.0);
    assert_eq!(mb(Resource::ClusterIn(a)), 20.0);
    assert_eq!(mb(Resource::Link(a, b)), 15.0);
    assert_eq!(one.network.link(a, b).delay, whole.network.link(a, b).delay);
    assert!(one.network.capacity(Resource::ClusterIn(b)).is_unlimited());
    let job = &one.jobs[0].job;
    assert_eq!(
        (job.size, job.limit.bytes_per_s()),
        (Bytes(42_000_000), 4e6)
    );
    let parts = job.sources.iter().flat_map(|it| it.blocks.clone());
    assert_eq!(parts.collect::<Vec<_>>(), [0..10, 10..21]);
    assert!(job.sources.iter().all(|source| source.blocks.len() == 1));
    assert_eq!(whole.shard(1).unwrap().shards, 1);
}

#[test]
fn worlds_without_equal_shards_are_refused() {
    let two = servers("a", 4) + &servers("b", 4);
    let slower = "[[node]]\nname = \"b2\"\nout = \"5 MB/s\"\n";
    let job = |rest: &str| format!("[[job]]\nname = \"j\"\nsize = \"8 GB\"\n{rest}");
    let whole = job("from = [\"a\"]\nsites = [\"b\"]\n");
    let relays = job("from = [\"a\"]\nsites = [\"b\"]\nrelays = [\"a1\"]\n");
    let cases = [
        (
            two.clone(),
            whole.clone(),
            3,
            "site `a` has 4 servers, which do not divide into 3 equal shards",
        ),
        (
            two.clone() + slower,
            whole.clone(),
            2,
            "`b2` is not as fast as the other servers of `b`, so no shard stands for all",
        ),
        (
            two.clone(),
            job("from = [\"a\"]\nnodes = [\"b1\"]\n"),
            2,
            "j: it goes to single nodes, so no shard stands for all",
        ),
        (
            two.clone(),
            job("from = [\"a1\"]\nsites = [\"b\"]\n"),
            2,
            "j: servers of a site that it comes from have unequal parts of it, so no shard stands for all",
        ),
        (
            two.clone(),
            relays,
            2,
            "j: its relays are not whole sites, so no shard stands for all",
        ),
        (
            two.clone(),
            whole.replace("8 GB", "2 MB"),
            2,
            "j: it has fewer blocks than there are shards, so no shard stands for all",
        ),
    ];
    for (network, jobs, shards, message) in cases {
        let error = scenario(&network, &jobs, 100.0).shard(shards).unwrap_err();
        assert_eq!(error.to_string(), message);
    }
    let mut scripted = scenario(&two, &whole, 100.0);
    scripted.script = Some(outpour_core::script::Script::parse("sleep 1 s\n", "s").unwrap());
    assert_eq!(scripted.shard(2).unwrap_err(), ShardError::Script);
}
