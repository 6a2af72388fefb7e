//! Bounds on the time of jobs that no method beats.
//!
//! A site is taken as one node that sends and receives what its servers do together. What reaches
//! several sites then takes at least as long as one object from the sources' sites to theirs. Jobs
//! together take at least as long as what a site is to receive of all of them. Links count with the
//! share of them that bulk may use.

use std::collections::{BTreeMap, BTreeSet};

use outpour_controller::{Destinations, Job};
use outpour_core::network::{Cluster, ClusterId, LinkRule, Members, Network, Resource};
use outpour_core::{Bytes, NodeId, Rate, Separation};

/// Least seconds for one job alone.
pub(super) fn alone(network: &Network, separation: Separation, job: &Job) -> f64 {
    let sites = sites_of(network, job);
    let from: BTreeSet<ClusterId> = job
        .sources
        .iter()
        .map(|source| network.cluster_of(source.node))
        .collect();
    let far: Vec<NodeId> = sites
        .keys()
        .filter(|site| !from.contains(site))
        .map(|site| NodeId(site.0))
        .collect();
    let relays = job.relays.iter().map(|node| network.cluster_of(*node));
    let open: BTreeSet<ClusterId> = from
        .iter()
        .chain(sites.keys())
        .copied()
        .chain(relays)
        .collect();
    let from: Vec<NodeId> = from.into_iter().map(|site| NodeId(site.0)).collect();
    let between = match (far.is_empty(), joined(network, separation, &open)) {
        (false, Some(joined)) => outpour_planner::limit_for(&joined, &from, &far, job.size).ok(),
        _ => None,
    };
    let between = between.map_or(0.0, |limit| limit.seconds);
    let limited = job.limit.seconds_for(lacking(network, job, &sites));
    between.max(limited).max(nodes_alone(network, job))
}

/// Least seconds for all jobs together, from the start of the first on: what has to enter each site, and
/// what has to leave those that alone have it.
pub(super) fn together<'a>(
    network: &Network,
    separation: Separation,
    jobs: impl Iterator<Item = &'a Job>,
) -> f64 {
    let mut first: f64 = f64::INFINITY;
    let mut into: BTreeMap<ClusterId, u64> = BTreeMap::new();
    let mut out: BTreeMap<ClusterId, u64> = BTreeMap::new();
    for job in jobs {
        first = first.min(job.start.as_secs_f64());
        let had = job.sources.iter();
        let had: BTreeSet<ClusterId> = had.map(|it| network.cluster_of(it.node)).collect();
        let sites = sites_of(network, job);
        let lacking = || sites.keys().filter(|site| !had.contains(site));
        for site in lacking() {
            *into.entry(*site).or_default() += job.size.0;
        }
        if let (1, Some(site), Some(_)) = (had.len(), had.first(), lacking().next()) {
            *out.entry(*site).or_default() += job.size.0;
        }
    }
    let link = |from, to| shared(network.capacity(Resource::Link(from, to)), separation);
    let others = |site: ClusterId| {
        let all = (0..network.clusters().len() as u32).map(ClusterId);
        all.filter(move |other| *other != site)
    };
    let enters = |site: ClusterId| {
        let links = others(site).map(|from| link(from, site).bytes_per_s());
        ends(network, separation, site).1.min(total(links))
    };
    let leaves = |site: ClusterId| {
        let links = others(site).map(|to| link(site, to).bytes_per_s());
        ends(network, separation, site).0.min(total(links))
    };
    let into = into
        .into_iter()
        .map(|(site, bytes)| enters(site).seconds_for(Bytes(bytes)));
    let out = out
        .into_iter()
        .map(|(site, bytes)| leaves(site).seconds_for(Bytes(bytes)));
    let most = into.chain(out).fold(0.0, f64::max);
    if first.is_finite() { first + most } else { 0.0 }
}

/// What the servers of a site send and receive together, no more than what joins it to others carries.
fn ends(network: &Network, separation: Separation, site: ClusterId) -> (Rate, Rate) {
    let end = |node: fn(NodeId) -> Resource, access: Resource| {
        let nodes = network.nodes_of(site);
        let nodes = total(nodes.map(|it| network.capacity(node(it)).bytes_per_s()));
        nodes.min(shared(network.capacity(access), separation))
    };
    (
        end(Resource::NodeOut, Resource::ClusterOut(site)),
        end(Resource::NodeIn, Resource::ClusterIn(site)),
    )
}

fn total(rates: impl Iterator<Item = f64>) -> Rate {
    Rate::from_bytes_per_s(rates.sum()).unwrap_or(Rate::UNLIMITED)
}

/// The sites that get something, with how many copies they get at least.
fn sites_of(network: &Network, job: &Job) -> BTreeMap<ClusterId, u64> {
    let mut sites = BTreeMap::new();
    match &job.destinations {
        Destinations::Sites(to) => sites.extend(to.iter().map(|site| (*site, 1))),
        Destinations::Nodes(nodes) => {
            for node in nodes {
                *sites.entry(network.cluster_of(*node)).or_default() += 1;
            }
        }
    }
    sites
}

/// What has to be moved at least.
fn lacking(network: &Network, job: &Job, sites: &BTreeMap<ClusterId, u64>) -> Bytes {
    let had = |site: &ClusterId| {
        let mut sources = job.sources.iter();
        sources.any(|source| network.cluster_of(source.node) == *site)
    };
    let copies = sites.iter().filter(|(site, _)| !had(site));
    Bytes(copies.map(|(_, copies)| copies * job.size.0).sum())
}

/// A node receives a whole object no faster than it can.
fn nodes_alone(network: &Network, job: &Job) -> f64 {
    let Destinations::Nodes(nodes) = &job.destinations else {
        return 0.0;
    };
    let sources: BTreeSet<NodeId> = job.sources.iter().map(|source| source.node).collect();
    let lacking = nodes.iter().filter(|node| !sources.contains(node));
    let time = |node: &NodeId| {
        let path = Resource::NodeIn(*node);
        network.capacity(path).seconds_for(job.size)
    };
    // A site with an interconnect does not count it inside.
    let open =
        |node: &&NodeId| !network.clusters()[network.cluster_of(**node).index()].interconnect;
    lacking.filter(open).map(time).fold(0.0, f64::max)
}

/// What bulk may use of a link between sites.
pub(super) fn shared(rate: Rate, separation: Separation) -> Rate {
    match separation {
        Separation::Threshold { percent } if !rate.is_unlimited() => {
            Rate::from_bytes_per_s(rate.bytes_per_s() * percent / 100.0).unwrap_or(rate)
        }
        _ => rate,
    }
}

/// The network with one node for each site; those that are not `open` pass nothing on.
fn joined(
    network: &Network,
    separation: Separation,
    open: &BTreeSet<ClusterId>,
) -> Option<Network> {
    let site = |(index, site): (usize, &Cluster)| {
        let id = ClusterId(index as u32);
        let (node_out, node_in) = match open.contains(&id) {
            true => ends(network, separation, id),
            false => (Rate::ZERO, Rate::ZERO),
        };
        Cluster {
            node_out,
            node_in,
            ..Cluster::new(site.name.clone(), Members::Count(1))
        }
    };
    let sites = network.clusters().iter().enumerate().map(site).collect();
    let rule = |rule: &LinkRule| LinkRule {
        rate: rule.rate.map(|rate| shared(rate, separation)),
        // Propagation is not simulated.
        delay: None,
        ..rule.clone()
    };
    let rules = network.rules().iter().map(rule).collect();
    Network::new(sites, rules).ok()
}
