//! Input for what reads files of jobs, shuffles, flows, sizes and traces.

use std::sync::OnceLock;

use outpour_controller::{Destinations, read_jobs};
use outpour_core::{Bytes, Network};
use outpour_planner::shuffle::file::ShuffleFile;
use outpour_planner::shuffle::place;
use outpour_sim::fluid::file::{Capacity, FluidFile};
use outpour_sim::packets::flows::file::parse as parse_flows;
use outpour_sim::packets::tasks::Shape;
use outpour_sim::packets::tasks::sizes::{PACKETS_MAX, Sizes};
use outpour_sim::shuffle::benchmark::Trace;
use outpour_sim::shuffle::jobs::JobsFile;
use rand_core::SeedableRng as _;
use rand_pcg::Pcg64Mcg;

use crate::core::BASE;
use crate::text;

fn base() -> &'static Network {
    static NETWORK: OnceLock<Network> = OnceLock::new();
    NETWORK.get_or_init(|| Network::from_toml(BASE, "base.toml").expect("a small network"))
}

/// Jobs that are let through have blocks, sources that share them, and destinations in the network.
pub(crate) fn jobs(bytes: &[u8]) {
    let Some(Ok(read)) = text(bytes).map(|text| read_jobs(text, "fuzz.toml", base())) else {
        return;
    };
    assert!(!read.jobs.is_empty());
    let nodes = base().node_count();
    for named in &read.jobs {
        let job = &named.job;
        let blocks = job.block_count().expect("a job that can be");
        assert!(blocks <= outpour_controller::BLOCKS_MAX);
        assert!(!job.sources.is_empty());
        for source in &job.sources {
            assert!(source.node.0 < nodes);
            assert!(source.blocks.iter().all(|run| run.end <= blocks));
        }
        match &job.destinations {
            Destinations::Nodes(all) => assert!(all.iter().all(|node| node.0 < nodes)),
            Destinations::Sites(all) => {
                assert!(
                    all.iter()
                        .all(|site| site.index() < base().clusters().len())
                );
            }
        }
        assert!(job.relays.iter().all(|node| node.0 < nodes));
    }
}

/// A shuffle that is let through can be placed, or it is said why not. A matrix follows a byte of zero.
pub(crate) fn shuffle(bytes: &[u8]) {
    let Some(text) = text(bytes) else {
        return;
    };
    let (text, matrix) = match text.split_once('\0') {
        Some((text, matrix)) => (text, Some(matrix)),
        None => (text, None),
    };
    let Ok(file) = ShuffleFile::parse(text, "fuzz.toml") else {
        return;
    };
    let Ok(shuffle) = file.resolve(base(), matrix) else {
        return;
    };
    match place(&shuffle.coflow, &shuffle.hosts, &shuffle.started) {
        Ok(placement) => {
            assert!(placement.seconds >= 0.0, "{}", placement.seconds);
            assert_eq!(placement.hosts.len(), shuffle.reducers.len());
        }
        Err(error) => {
            let _ = shuffle.explain(base(), &error);
        }
    }
}

/// Flows that are let through are flows; whether their numbers can be is found when they are played.
pub(crate) fn flows(bytes: &[u8]) {
    if let Some(Ok(flows)) = text(bytes).map(|text| parse_flows(text, "fuzz.toml")) {
        let _ = format!("{flows:?}");
    }
}

/// What is let through can be checked.
pub(crate) fn fluid(bytes: &[u8]) {
    let Some(text) = text(bytes) else {
        return;
    };
    if let Ok(file) = FluidFile::parse(text, "fuzz.toml")
        && let Some(capacity) = file.capacity
    {
        let _ = capacity.packets_per_s(file.packet);
    }
    if let Ok(capacity) = text.parse::<Capacity>() {
        for packet in [
            None,
            Some(Bytes(0)),
            Some(Bytes(1500)),
            Some(Bytes(u64::MAX)),
        ] {
            let rate = capacity.packets_per_s(packet);
            assert!(rate.is_err() || rate.is_ok_and(|rate| rate >= 0.0));
        }
    }
    let _ = text.parse::<Shape>();
}

/// Sizes that are let through are drawn from their range.
pub(crate) fn sizes(bytes: &[u8]) {
    let Some(Ok(sizes)) = text(bytes).map(|text| Sizes::parse(text, "fuzz.cdf")) else {
        return;
    };
    let (low, high) = sizes.range();
    assert!(1.0 <= low && low <= high && high <= PACKETS_MAX);
    let mean = sizes.mean();
    assert!(
        low * 0.999_999 <= mean && mean <= high * 1.000_001,
        "{mean} of {low} to {high}"
    );
    let mut dice = Pcg64Mcg::seed_from_u64(1);
    for sizes in [
        sizes.clone(),
        sizes.clone().times(0.5),
        sizes.scaled((0.0, 1e12)),
    ] {
        let (low, high) = sizes.range();
        for _ in 0..50 {
            let size = sizes.draw(&mut dice) as f64;
            assert!(
                low - 0.5 <= size && size <= high + 0.5,
                "{size} of {low} to {high}"
            );
        }
    }
}

/// A trace that is let through has coflows between its racks, which come in order.
pub(crate) fn trace(bytes: &[u8]) {
    let Some(Ok(trace)) = text(bytes).map(|text| Trace::parse(text, "fuzz.txt")) else {
        return;
    };
    assert!(!trace.coflows.is_empty());
    for coflow in &trace.coflows {
        assert!(coflow.mappers.iter().all(|rack| *rack < trace.racks));
        assert!(coflow.reducers.iter().all(|(rack, _)| *rack < trace.racks));
        assert!(coflow.bytes().is_finite() && coflow.bytes() >= 0.0);
    }
    let arrivals = trace.arrivals();
    assert_eq!(arrivals.len(), trace.coflows.len());
    assert!(arrivals.is_sorted_by(|(_, a), (_, b)| a.at_s <= b.at_s));
}

/// Jobs that are let through have sizes, sorted, or it is said why they have none.
pub(crate) fn shuffle_jobs(bytes: &[u8]) {
    let Some(Ok(file)) = text(bytes).map(|text| JobsFile::parse(text, "fuzz.toml")) else {
        return;
    };
    assert!(file.count > 0);
    if let Ok(sizes) = file.observed("fuzz.toml", &[1e6, 2e3]) {
        assert!(!sizes.is_empty() && sizes.is_sorted() && sizes[0] > 0.0);
    }
}
