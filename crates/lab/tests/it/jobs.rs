//! `jobs`: a file of jobs that the simulator reads.

use std::fs;

use crate::support::call;

const NETWORK: &str = "[[cluster]]\nname = \"a\"\nnodes = 1\n[[cluster]]\nname = \"b\"\nnodes = 1\n\
    [[cluster]]\nname = \"c\"\nnodes = 1\n[[cluster]]\nname = \"d\"\nnodes = 1\n";

#[test]
fn a_seed_is_a_file_of_so_many_jobs() {
    let dir = tempfile::tempdir().unwrap();
    let (network, jobs) = (dir.path().join("net.toml"), dir.path().join("jobs.toml"));
    fs::write(&network, NETWORK).unwrap();
    let network = network.to_str().unwrap();
    let base = ["jobs", "--network", network, "--count", "50"];
    let drawn = |more: &[&str]| call(base.iter().chain(more)).expect(0).out;
    let first = drawn(&["--seed", "3"]);
    assert_eq!(first, drawn(&["--seed", "3"]));
    assert_ne!(first, drawn(&["--seed", "4"]));
    drawn(&["--seed", "3", "--output", jobs.to_str().unwrap()]);
    assert_eq!(fs::read_to_string(&jobs).unwrap(), first);
    assert_eq!(first.matches("[[job]]\n").count(), 50);
}

#[test]
fn what_cannot_be_drawn_is_said_in_one_line() {
    let dir = tempfile::tempdir().unwrap();
    let (few, network) = (dir.path().join("few.toml"), dir.path().join("net.toml"));
    fs::write(&few, "[[cluster]]\nname = \"a\"\nnodes = 9\n").unwrap();
    fs::write(&network, NETWORK).unwrap();
    let (few, network) = (few.to_str().unwrap(), network.to_str().unwrap());
    let missing = dir.path().join("no/jobs.toml");
    for (network, more, code, says) in [
        (
            few,
            ["--seed", "1"],
            1,
            "the network has 1 sites; a multicast needs 3",
        ),
        (
            network,
            ["--days", "0"],
            2,
            "the number of days is to be a number above 0",
        ),
        (
            network,
            ["--scale", "nan"],
            2,
            "the factor of sizes is to be a number above 0",
        ),
        (network, ["--count", "0"], 2, "--count"),
        (
            network,
            ["--output", missing.to_str().unwrap()],
            1,
            "cannot write the jobs: ",
        ),
    ] {
        let ran = call(["jobs", "--network", network].iter().chain(&more)).expect(code);
        assert!(ran.err.contains(says), "{}", ran.err);
        assert_eq!(ran.out, "");
    }
}
