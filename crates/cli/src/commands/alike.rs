//! A cast and its simulation that know the same come to the same terms.

#![allow(clippy::unwrap_used)]

use std::path::Path;

use clap::Parser as _;
use outpour_core::Bytes;
use outpour_terms::{Facts, Terms, decide};

use super::{cast, sim};
use crate::args::{Cli, Command, SimCommand};
use crate::hosts;

const MB: u64 = 1_000_000;

/// Twenty nodes at 15 Mbit/s.
const STAR: &str = "[[cluster]]\nname = \"a\"\nnodes = 20\nnode_out = \"15 Mbit/s\"\n\
                    node_in = \"15 Mbit/s\"\n";
/// The same, of which one is slower.
const UNEVEN: &str = "[[node]]\nname = \"a3\"\nout = \"1 MB/s\"\nin = \"1 MB/s\"\n";
/// Three clusters of a few fast nodes each, joined by slow links.
const SITES: &str = "cluster = [{ name = \"a\", nodes = 3 }, { name = \"b\", nodes = 4 }, \
                     { name = \"c\", nodes = 2 }]\n\
                     link = [{ from = \"*\", to = \"*\", rate = \"10 MB/s\", delay = \"5 ms\" }]\n";

fn parse(words: &[&str]) -> Command {
    Cli::try_parse_from(words).unwrap().command
}

/// What a cast of so many bytes from a node of the network to all others is agreed to be.
fn real(network: &Path, nodes: &[String], size: u64, options: &[&str]) -> Facts {
    let network = network.to_str().unwrap();
    let (root, others) = nodes.split_first().unwrap();
    let hosts: Vec<String> = others.iter().map(|name| format!("{name}:/copy")).collect();
    let mut words = vec!["outpour", "cast", "/source"];
    words.extend(hosts.iter().map(String::as_str));
    words.extend(["--network", network, "--root", root]);
    words.extend(options);
    let Command::Cast(args) = parse(&words) else {
        panic!("a cast");
    };
    let hosts = hosts::collect(args.sources().1, &args.hosts).unwrap();
    let cast = cast::cast(&args, hosts).unwrap();
    cast.facts(Bytes(size), 1).unwrap()
}

fn simulated(network: &Path, root: &str, size: u64, options: &[&str]) -> Facts {
    let (network, size) = (network.to_str().unwrap(), format!("{size} B"));
    let mut words = vec!["outpour", "sim", "cast", "--network", network];
    words.extend(["--root", root, "--size", &size]);
    words.extend(options);
    let Command::Sim(SimCommand::Cast(args)) = parse(&words) else {
        panic!("a simulated cast");
    };
    let config = sim::config(&args).unwrap();
    outpour_sim::cast::facts(&config, &config.network).unwrap()
}

/// All of the terms, in words.
fn said(terms: &Terms) -> String {
    format!("{terms:?}")
}

#[test]
fn what_is_simulated_is_what_is_done() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("net.toml");
    let uneven = format!("{STAR}{UNEVEN}");
    let mut protocols = std::collections::BTreeSet::new();
    for (network, size, options) in [
        (STAR, 100 * MB, &[][..]),
        (STAR, MB, &[]),
        (STAR, 100 * MB, &["--unreliable"]),
        (STAR, 3_000 * MB, &["--unreliable", "--batch-blocks", "20"]),
        (STAR, 0, &[]),
        (&uneven, 100 * MB, &[]),
        (&uneven, 100 * MB, &["--limit", "500 kB/s"]),
        (&uneven, 100 * MB, &["--block", "1 MiB"]),
        (SITES, 100 * MB, &[]),
        (SITES, 10 * MB, &[]),
        (SITES, 40_000 * MB, &["--limit", "50 MB/s"]),
        (SITES, 100 * MB, &["--protocol", "robber"]),
        (SITES, 100 * MB, &["--protocol", "balanced"]),
        (
            SITES,
            100 * MB,
            &["--protocol", "coded-gossip", "--schedule", "overlap-1"],
        ),
        (
            SITES,
            100 * MB,
            &["--protocol", "random-block", "--map-every", "7"],
        ),
        (
            SITES,
            100 * MB,
            &["--protocol", "swarm", "--connections", "3"],
        ),
    ] {
        std::fs::write(&path, network).unwrap();
        let parsed = sim::network(&path).unwrap_or_else(|_| panic!("a network"));
        let nodes: Vec<String> = parsed
            .nodes()
            .map(|it| parsed.name(it).to_owned())
            .collect();
        let mut real = real(&path, &nodes, size, options);
        let mut simulated = simulated(&path, &nodes[0], size, options);
        // What is measured here is assumed there.
        assert!(!simulated.coding_speed.is_unlimited());
        real.coding_speed = simulated.coding_speed;
        simulated.seed = real.seed;
        let (real, simulated) = (decide(&real).unwrap(), decide(&simulated).unwrap());
        assert_eq!(
            said(&real.terms),
            said(&simulated.terms),
            "{size} {options:?}"
        );
        protocols.insert(real.terms.protocol.entry().name);
    }
    // The table reaches what there is to choose from.
    for name in ["chain", "swarm", "coded-gossip", "optimal", "central"] {
        assert!(protocols.contains(name), "{name} of {protocols:?}");
    }
}
