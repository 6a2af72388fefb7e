//! How long plans between many sites take: sizes, seconds, trees, gap.
//!
//! `cargo run --release -p outpour-planner --example planner_scale`
#![allow(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    clippy::disallowed_types
)]

use std::fmt::Write;
use std::time::Instant;

use outpour_core::network::Network;
use outpour_core::{Bytes, NodeId};
use outpour_planner::limit;
use outpour_planner::multicast::{Method, plan};

/// Random numbers from 0 to 1, the same in every run.
fn random(state: &mut u64) -> f64 {
    *state = state
        .wrapping_mul(6_364_136_223_846_793_005)
        .wrapping_add(1_442_695_040_888_963_407);
    (*state >> 40) as f64 / f64::from(1 << 24)
}

/// What sites send at most, MB/s, and the slowest of their links.
struct Kind {
    name: &'static str,
    out: (f64, f64),
    link: f64,
}

const KINDS: [Kind; 3] = [
    Kind {
        name: "links bind",
        out: (20.0, 30.0),
        link: 0.2,
    },
    Kind {
        name: "sites bind",
        out: (9.0, 15.0),
        link: 1.0,
    },
    Kind {
        name: "both bind",
        out: (6.0, 13.0),
        link: 0.4,
    },
];

/// A network of `count` sites, a fifth of its links dead.
fn network(count: usize, kind: &Kind, state: &mut u64) -> Network {
    let mut text = String::new();
    for site in 0..count {
        let (low, high) = kind.out;
        let out = low + random(state) * (high - low);
        let into = 10.0 + random(state) * 20.0;
        let keys = format!("out = \"{out} MB/s\"\nin = \"{into} MB/s\"");
        writeln!(text, "[[cluster]]\nname = \"s{site}\"\nnodes = 1\n{keys}").unwrap();
    }
    for (a, b) in (0..count).flat_map(|a| (0..count).map(move |b| (a, b))) {
        let rate = kind.link + random(state) * random(state) * 60.0 / count as f64;
        if a != b && random(state) > 0.2 {
            let ends = format!("from = \"s{a}\"\nto = \"s{b}\"");
            writeln!(text, "[[link]]\n{ends}\nrate = \"{rate} MB/s\"").unwrap();
        }
    }
    Network::from_toml(&text, "random").unwrap()
}

fn main() {
    let mut state = 1;
    println!("network         sites  method    seconds  trees    MB/s  of bound  exact  limit_s");
    for kind in &KINDS {
        for count in [8, 16, 32, 64] {
            let network = network(count, kind, &mut state);
            let root = NodeId(0);
            let began = Instant::now();
            limit(&network, &[root], Bytes(1)).unwrap();
            let limit_s = began.elapsed().as_secs_f64();
            for method in [Method::Fpfr, Method::Balanced, Method::Optimal] {
                let began = Instant::now();
                let planned = plan(&network, &[root], method).unwrap();
                let seconds = began.elapsed().as_secs_f64() - limit_s;
                let rate = planned.throughput.bytes_per_s();
                println!(
                    "{:<14} {count:>6}  {:<8} {seconds:>8.3} {:>6} {:>7.3}  {:>8.5}  {:<5} {limit_s:>8.3}",
                    kind.name,
                    method.name(),
                    planned.routes.len(),
                    rate / 1e6,
                    rate / planned.optimum.bytes_per_s(),
                    planned.exact,
                );
            }
        }
    }
}
