//! The members of a cast of which one is bad: eleven nodes whose own links are the limit, and what is cast
//! between them.

use std::path::{Path, PathBuf};

use outpour_core::Bytes;

use super::BenchTrustOptions;
use super::site::{Order, Site};
use crate::ExperimentError;
use crate::lab::{Lab, median};

/// One that sends each host its own copy from the source is not among them: it has no members.
pub(super) const PROTOCOLS: [&str; 10] = [
    "auto",
    "chain",
    "swarm",
    "mob",
    "robber",
    "optimal",
    "push",
    "central",
    "coded-gossip",
    "adaptive",
];
/// Those of a short run.
const PROTOCOLS_SHORT: [&str; 2] = ["chain", "swarm"];
/// Protocols that are told of no network: to them all hosts are alike.
const WITHOUT_NETWORK: [&str; 4] = ["auto", "chain", "swarm", "push"];

/// The node of the source, and the one that may be bad: the first of the next cluster, in the line of a
/// chain before most of the others.
const SOURCE: &str = "a0";
pub(super) const BAD: &str = "b0";
const SIZE: Bytes = Bytes(20_000_000);
const SIZE_SHORT: Bytes = Bytes(4_000_000);
/// What every node sends, and receives, at most, in bytes per second.
pub(super) const RATE: f64 = 2.5e6;
pub(super) const NETWORK: &str = "\
[[cluster]]
name = \"a\"
nodes = 4
node_out = \"20 Mbit/s\"
node_in = \"20 Mbit/s\"
[[cluster]]
name = \"b\"
nodes = 4
node_out = \"20 Mbit/s\"
node_in = \"20 Mbit/s\"
[[cluster]]
name = \"c\"
nodes = 3
node_out = \"20 Mbit/s\"
node_in = \"20 Mbit/s\"
[[link]]
from = \"*\"
to = \"*\"
rate = \"60 Mbit/s\"
delay = \"2 ms\"
";

/// The protocols that are asked for.
pub(super) fn protocols(options: &BenchTrustOptions) -> Vec<&'static str> {
    match options.short {
        true => options.chosen(&PROTOCOLS_SHORT),
        false => options.chosen(&PROTOCOLS),
    }
}

/// What is cast, and its size.
pub(super) fn object(
    lab: &Lab,
    options: &BenchTrustOptions,
) -> Result<(PathBuf, Bytes), ExperimentError> {
    let size = if options.short { SIZE_SHORT } else { SIZE };
    Ok((lab.object("object", size, options.seed)?, size))
}

/// A cast to all ten by a protocol.
pub(super) fn order<'a>(site: &Site<'_>, source: &'a Path, protocol: &str, seed: u64) -> Order<'a> {
    let seed = seed.to_string();
    let options = [
        "--protocol",
        protocol,
        "--patience",
        "120 s",
        "--seed",
        &seed,
    ];
    let mut options = options.map(str::to_owned).to_vec();
    if !WITHOUT_NETWORK.contains(&protocol) {
        let network = site.lab.path("network.toml").display().to_string();
        let network = ["--network", &network, "--root", SOURCE];
        options.extend(network.map(str::to_owned));
    }
    Order {
        source,
        from: SOURCE,
        hosts: hosts(),
        options,
        environment: Vec::new(),
        name: "cast".to_owned(),
    }
}

/// The hosts, in the order in which they are named.
fn hosts() -> Vec<String> {
    let of = |cluster: &'static str, nodes: std::ops::Range<u32>| {
        nodes.map(move |node| format!("{cluster}{node}"))
    };
    of("a", 1..4)
        .chain(of("b", 0..4))
        .chain(of("c", 0..3))
        .collect()
}

/// The times of casts of a kind.
pub(super) type Times = Vec<Result<f64, ExperimentError>>;

/// The median of times, or what went wrong first.
pub(super) fn middle(times: Times) -> Result<f64, ExperimentError> {
    let times = times.into_iter().collect::<Result<Vec<f64>, _>>()?;
    let none = || ExperimentError::Setup("nothing was cast".to_owned());
    median(times).ok_or_else(none)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ten_hosts_are_named_and_the_bad_one_is_one_of_them() {
        let hosts = hosts();
        assert_eq!(hosts.len(), 10);
        assert!(hosts.contains(&BAD.to_owned()) && !hosts.contains(&SOURCE.to_owned()));
    }
}
