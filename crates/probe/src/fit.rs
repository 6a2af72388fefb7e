//! From measurements to a network: the capacities that explain what flows achieved alone and
//! together.
//!
//! A flow shows the narrowest part of its way, no more. Where several flows together achieve less
//! than the sum of what each does alone, something they share is full, and their sum is its
//! capacity; where they do not, what they share is wide enough for them, and no limit is written
//! down for it.

use std::collections::BTreeMap;
use std::time::Duration;

use outpour_core::network::{Cluster, LinkRule, Members, Network, NetworkError};
use outpour_core::{NodeId, Rate};

use crate::schedule::Of;

/// Flows together achieve less than alone if it is less than this share of the sum.
const FULL: f64 = 0.9;

/// A node that moves this much more inside its cluster than abroad does so over another network.
const INTERCONNECT: f64 = 1.2;

/// What was found out.
#[derive(Clone, Debug, Default)]
pub struct Findings {
    /// Rates by what they are a measure of.
    pub rates: BTreeMap<Of, Rate>,
    /// Shortest round trips.
    pub round_trips: BTreeMap<(NodeId, NodeId), Duration>,
}

impl Findings {
    fn rate(&self, of: Of) -> Option<f64> {
        self.rates.get(&of).map(|rate| rate.bytes_per_s())
    }
}

/// A cluster by name and nodes.
#[derive(Clone, Debug)]
pub struct Site {
    /// Its name.
    pub name: String,
    /// Its nodes.
    pub nodes: Vec<NodeId>,
}

/// The network that explains `findings`; `names` are those of the nodes.
///
/// What could not be measured between two clusters is a dead link: nothing is promised there.
///
/// # Errors
/// If names are no names of nodes or clusters, or not distinct.
pub fn network(
    sites: &[Site],
    names: &[String],
    findings: &Findings,
) -> Result<Network, NetworkError> {
    let clusters = sites.iter().zip(0..);
    let clusters = clusters.map(|(site, id)| cluster(site, id, sites, names, findings));
    let mut rules = Vec::new();
    for (a, from) in sites.iter().enumerate() {
        for (b, to) in sites.iter().enumerate().filter(|(b, _)| *b != a) {
            let rate = link(from, to, (a as u32, b as u32), findings);
            let pair = (from.nodes[0], to.nodes[0]);
            rules.push(LinkRule {
                from: from.name.clone(),
                to: to.name.clone(),
                rate: Some(rounded(rate.unwrap_or(0.0))),
                delay: one_way(findings, pair),
                ..LinkRule::default()
            });
        }
    }
    Network::new(clusters.collect(), rules)
}

/// A rate with as many digits as a measurement has.
fn rounded(rate: f64) -> Rate {
    let unit = 10_f64.powf(rate.max(1.0).log10().floor() - 3.0).max(1.0);
    Rate::from_bytes_per_s((rate / unit).round() * unit).unwrap_or(Rate::ZERO)
}

fn one_way(findings: &Findings, (a, b): (NodeId, NodeId)) -> Option<Duration> {
    let there = findings.round_trips.get(&(a, b));
    let round = there.or_else(|| findings.round_trips.get(&(b, a)))?;
    // Whole microseconds: more is not measured.
    Some(Duration::from_micros(round.as_micros() as u64 / 2))
}

/// What passes from one cluster to another.
fn link(from: &Site, to: &Site, (a, b): (u32, u32), findings: &Findings) -> Option<f64> {
    let single = findings.rate(Of::Path(from.nodes[0], to.nodes[0]));
    let several = findings.rate(Of::Link(a, b));
    match (single, several) {
        (Some(single), Some(several)) => Some(single.max(several)),
        (single, several) => single.or(several),
    }
}

/// What the nodes of a cluster can do.
fn cluster(site: &Site, id: u32, sites: &[Site], names: &[String], all: &Findings) -> Cluster {
    let members = site.nodes.iter().filter_map(|node| names.get(node.index()));
    let members = Members::Names(members.cloned().collect());
    let mut cluster = Cluster::new(&site.name, members);
    let local = local(site, all);
    if let Some(delay) = site
        .nodes
        .get(1)
        .and_then(|b| one_way(all, (site.nodes[0], *b)))
    {
        cluster.local_delay = delay;
    }
    let (abroad_out, abroad_in) = abroad(site, id, sites, all);
    let (inside_out, inside_in) = inside(site, all, local);
    let separate = |abroad: Option<f64>, inside: Option<f64>| {
        abroad
            .zip(inside.or(local))
            .is_some_and(|(abroad, inside)| inside > INTERCONNECT * abroad)
    };
    let unlimited = |rate: Option<f64>| rate.map_or(Rate::UNLIMITED, rounded);
    if separate(abroad_out, inside_out) || separate(abroad_in, inside_in) {
        cluster.interconnect = true;
        cluster.node_out = unlimited(abroad_out);
        cluster.node_in = unlimited(abroad_in);
    } else {
        let widest = |a: Option<f64>, b: Option<f64>| match (a, b) {
            (Some(a), Some(b)) => Some(a.max(b)),
            (a, b) => a.or(b),
        };
        cluster.node_out = unlimited(widest(abroad_out, inside_out));
        cluster.node_in = unlimited(widest(abroad_in, inside_in));
    }
    let narrow = match (inside_out, inside_in) {
        (Some(a), Some(b)) => Some(a.min(b)),
        (a, b) => a.or(b),
    };
    // A path as fast as its node says nothing about itself.
    cluster.local = match (local, narrow) {
        (Some(local), Some(node)) if local >= FULL * node && !cluster.interconnect => {
            Rate::UNLIMITED
        }
        (local, _) => unlimited(local),
    };
    let links = |outgoing: bool| {
        let others = sites.iter().zip(0..).filter(|(_, other)| *other != id);
        let rates = others.filter_map(|(other, b)| {
            if outgoing {
                link(site, other, (id, b), all)
            } else {
                link(other, site, (b, id), all)
            }
        });
        rates.sum::<f64>()
    };
    let full = |of: Of, sum: f64| all.rate(of).filter(|rate| *rate < FULL * sum);
    cluster.cluster_out = unlimited(full(Of::ClusterOut(id), links(true)));
    cluster.cluster_in = unlimited(full(Of::ClusterIn(id), links(false)));
    cluster
}

/// What passes between two nodes of a cluster: the slowest path seen.
fn local(site: &Site, all: &Findings) -> Option<f64> {
    let paths = all.rates.iter().filter_map(|(of, rate)| match of {
        Of::Path(a, b) if site.nodes.contains(a) && site.nodes.contains(b) => {
            Some(rate.bytes_per_s())
        }
        _ => None,
    });
    paths.min_by(f64::total_cmp)
}

/// What a node moves inside its cluster at most, out and in, where that is what limits it: the
/// least over its nodes, for a network has one figure for all.
fn inside(site: &Site, all: &Findings, local: Option<f64>) -> (Option<f64>, Option<f64>) {
    let peers = (site.nodes.len().saturating_sub(1)).min(crate::schedule::PEERS_MAX) as f64;
    let least = |of: fn(NodeId) -> Of| {
        let rates = site.nodes.iter().filter_map(|node| all.rate(of(*node)));
        let least = rates.min_by(f64::total_cmp)?;
        (least < FULL * peers * local?).then_some(least)
    };
    (least(Of::NodeOut), least(Of::NodeIn))
}

/// What a node moves to and from other clusters at most, where that is what limits it.
fn abroad(site: &Site, id: u32, sites: &[Site], all: &Findings) -> (Option<f64>, Option<f64>) {
    let one = site.nodes[0];
    if site.nodes.len() < 2 {
        // Its cluster's access link is its own.
        return (None, None);
    }
    let others: Vec<(&Site, u32)> = sites.iter().zip(0..).filter(|(_, b)| *b != id).collect();
    let limit = |alone: &dyn Fn(NodeId) -> Of, link: &dyn Fn(u32) -> Of, together: Of| {
        let rates = others.iter().map(|(other, b)| {
            let (alone, link) = (all.rate(alone(other.nodes[0])), all.rate(link(*b)));
            (alone.unwrap_or(0.0), link)
        });
        let rates: Vec<(f64, Option<f64>)> = rates.collect();
        let together = all.rate(together);
        let alone = rates.iter().map(|(alone, _)| *alone);
        // No measurement saw it move more than this.
        let most = alone.clone().chain(together).fold(0.0, f64::max);
        let shared = together.is_some_and(|together| together < FULL * alone.sum::<f64>());
        // Alone it fills less of a link than with others, though it moves all it can.
        let held_back = rates.iter().any(|(alone, link)| {
            link.is_some_and(|link| *alone < FULL * link) && *alone >= FULL * most
        });
        (shared || held_back).then_some(most)
    };
    (
        limit(
            &|other| Of::Path(one, other),
            &|b| Of::Link(id, b),
            Of::NodeAbroad(one),
        ),
        limit(
            &|other| Of::Path(other, one),
            &|b| Of::Link(b, id),
            Of::NodeFromAbroad(one),
        ),
    )
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use outpour_core::network::{ClusterId, Resource};

    use super::*;
    use crate::schedule::{Flow, Measurement, Schedule, Wanted};

    /// What flows achieve together on a known network: shared evenly, step by step.
    fn shares(network: &Network, flows: &[Flow]) -> f64 {
        let ways: Vec<Vec<Resource>> = flows
            .iter()
            .map(|(a, b)| network.path(*a, *b).resources().to_vec())
            .collect();
        let mut rate = vec![None; flows.len()];
        while rate.iter().any(Option::is_none) {
            let mut tightest: Option<(f64, Resource)> = None;
            for resource in ways.iter().flatten() {
                let users = |n: &usize| ways[*n].contains(resource);
                let open = (0..flows.len())
                    .filter(users)
                    .filter(|n| rate[*n].is_none());
                let open = open.count() as f64;
                let used: f64 = (0..flows.len()).filter(users).filter_map(|n| rate[n]).sum();
                let share = (network.capacity(*resource).bytes_per_s() - used) / open;
                if open > 0.0 && tightest.is_none_or(|(least, _)| share < least) {
                    tightest = Some((share, *resource));
                }
            }
            let Some((share, resource)) = tightest.filter(|(share, _)| share.is_finite()) else {
                break;
            };
            for (n, way) in ways.iter().enumerate() {
                if way.contains(&resource) && rate[n].is_none() {
                    rate[n] = Some(share);
                }
            }
        }
        // A machine is never infinitely fast.
        rate.iter().map(|rate| rate.unwrap_or(400e6)).sum()
    }

    /// Measures a known network without error and fits one to what was found.
    fn refit(text: &str) -> (Network, Network) {
        let truth = Network::from_toml(text, "truth.toml").unwrap();
        let sites: Vec<Site> = (0..truth.clusters().len() as u32)
            .map(|id| Site {
                name: truth.clusters()[id as usize].name.clone(),
                nodes: truth.nodes_of(ClusterId(id)).collect(),
            })
            .collect();
        let names: Vec<String> = truth.nodes().map(|n| truth.name(n).to_owned()).collect();
        let nodes: Vec<Vec<NodeId>> = sites.iter().map(|site| site.nodes.clone()).collect();
        let wanted = Wanted {
            packets: false,
            hops: false,
        };
        let mut schedule = Schedule::new(&nodes, wanted);
        let mut findings = Findings::default();
        while let Some((ticket, measurement)) = schedule.begin() {
            match measurement {
                Measurement::RoundTrip(a, b) => {
                    let round = truth.path(a, b).delay + truth.path(b, a).delay;
                    findings.round_trips.insert((a, b), round);
                }
                Measurement::Rate { of, flows } => {
                    let rate = Rate::from_bytes_per_s(shares(&truth, &flows)).unwrap();
                    findings.rates.insert(of, rate);
                }
                _ => {}
            }
            schedule.done(ticket);
        }
        let found = network(&sites, &names, &findings).unwrap();
        let again = Network::from_toml(&found.to_toml(), "again.toml").unwrap();
        assert_eq!(again, found);
        (truth, found)
    }

    #[track_caller]
    fn assert_same(text: &str) {
        let (truth, found) = refit(text);
        for (a, b) in truth.clusters().iter().zip(found.clusters()) {
            assert_eq!(
                (a.node_out, a.node_in),
                (b.node_out, b.node_in),
                "{}",
                a.name
            );
            assert_eq!(
                (a.cluster_out, a.cluster_in),
                (b.cluster_out, b.cluster_in),
                "{}",
                a.name
            );
            assert_eq!(a.local_delay, b.local_delay, "{}", a.name);
            assert_eq!(a.interconnect, b.interconnect, "{}", a.name);
        }
        let ids = || (0..truth.clusters().len() as u32).map(ClusterId);
        for (a, b) in ids()
            .flat_map(|a| ids().map(move |b| (a, b)))
            .filter(|(a, b)| a != b)
        {
            assert_eq!(truth.link(a, b).rate, found.link(a, b).rate, "{a:?} {b:?}");
            assert_eq!(
                truth.link(a, b).delay,
                found.link(a, b).delay,
                "{a:?} {b:?}"
            );
        }
    }

    #[test]
    fn links_between_clusters_are_found() {
        assert_same(
            r#"
            [[cluster]]
            name = "a"
            nodes = 4
            local_delay = "0.1 ms"
            [[cluster]]
            name = "b"
            nodes = 3
            local_delay = "0.1 ms"
            [[cluster]]
            name = "c"
            nodes = 1
            [[link]]
            from = "*"
            to = "*"
            rate = "10 MB/s"
            delay = "10 ms"
            [[link]]
            from = "a"
            to = "c"
            rate = "2 MB/s"
            delay = "5 ms"
            both = true
            "#,
        );
    }

    #[test]
    fn access_links_of_nodes_and_clusters_are_found() {
        assert_same(
            r#"
            [[cluster]]
            name = "a"
            nodes = 4
            node_out = "8 MB/s"
            node_in = "8 MB/s"
            out = "18 MB/s"
            in = "20 MB/s"
            [[cluster]]
            name = "b"
            nodes = 4
            node_out = "8 MB/s"
            node_in = "8 MB/s"
            [[cluster]]
            name = "c"
            nodes = 4
            node_out = "8 MB/s"
            node_in = "8 MB/s"
            [[link]]
            from = "*"
            to = "*"
            rate = "12 MB/s"
            "#,
        );
    }

    #[test]
    fn an_interconnect_is_told_from_the_way_abroad() {
        assert_same(
            r#"
            [[cluster]]
            name = "a"
            nodes = 4
            node_out = "8 MB/s"
            node_in = "8 MB/s"
            local = "50 MB/s"
            interconnect = true
            [[cluster]]
            name = "b"
            nodes = 4
            node_out = "8 MB/s"
            node_in = "8 MB/s"
            local = "50 MB/s"
            interconnect = true
            [[link]]
            from = "*"
            to = "*"
            rate = "20 MB/s"
            "#,
        );
    }

    #[test]
    fn what_was_not_measured_is_not_promised() {
        let site = |name: &str, node| Site {
            name: name.to_owned(),
            nodes: vec![NodeId(node)],
        };
        let names = ["x".to_owned(), "y".to_owned()];
        let mut findings = Findings::default();
        let rate = Rate::from_bytes_per_s(1_234_567.0).unwrap();
        findings.rates.insert(Of::Path(NodeId(0), NodeId(1)), rate);
        let found = network(&[site("a", 0), site("b", 1)], &names, &findings).unwrap();
        let (a, b) = (ClusterId(0), ClusterId(1));
        assert_eq!(found.link(a, b).rate.bytes_per_s(), 1_235_000.0);
        assert_eq!(found.link(b, a).rate, Rate::ZERO);
        assert_eq!(found.link(a, b).delay, Duration::ZERO);
    }
}
