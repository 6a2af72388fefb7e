//! What was found, for people and programs.

use std::collections::BTreeMap;
use std::net::IpAddr;

use outpour_core::NodeId;
use outpour_core::network::Network;
use outpour_probe::fit::{self, Site};
use outpour_probe::hops::{self, Route};
use outpour_probe::schedule::{Measurement, Of};
use serde::Serialize;

use super::{Probe, ProbeError, path_of};

/// One host.
#[derive(Clone, Debug, Serialize)]
pub struct NodeReport {
    /// What it is called.
    pub node: String,
    /// The cluster it is in, if it took part.
    pub cluster: Option<String>,
    /// Why it took no part, or not to the end.
    pub error: Option<String>,
}

/// One path between two nodes.
#[derive(Clone, Debug, Serialize)]
pub struct PathReport {
    /// The node that sends.
    pub from: String,
    /// The node that receives.
    pub to: String,
    /// The shortest round trip.
    pub round_trip_s: Option<f64>,
    /// What the data plane achieves alone.
    pub rate_bytes_per_s: Option<f64>,
    /// The capacity of the narrowest link, from the spread of packets.
    pub capacity_bytes_per_s: Option<f64>,
    /// What other traffic leaves free, from the spread of packets.
    pub available_bytes_per_s: Option<f64>,
    /// The routers on the way; none if routes were not asked for or are not permitted.
    pub hops: Option<Vec<Option<IpAddr>>>,
    /// What could not be measured, and why.
    pub errors: Vec<String>,
}

/// What several flows achieve together.
#[derive(Clone, Debug, Serialize)]
pub struct RateReport {
    /// What they share: a node, a cluster, or two clusters and the link between them.
    pub of: String,
    /// In which direction: `out`, `in`, `out-abroad`, `in-abroad`, or `link`.
    pub what: &'static str,
    /// The sum.
    pub rate_bytes_per_s: f64,
}

/// A link between routers that several paths pass.
#[derive(Clone, Debug, Serialize)]
pub struct HopLinkReport {
    /// The router it leaves.
    pub from: IpAddr,
    /// The router it leads to.
    pub to: IpAddr,
    /// The paths, by node.
    pub paths: Vec<[String; 2]>,
}

/// Everything that was found.
#[derive(Clone, Debug, Serialize)]
pub struct ProbeReport {
    /// Every host.
    pub nodes: Vec<NodeReport>,
    /// Every path that was looked at.
    pub paths: Vec<PathReport>,
    /// What flows achieve together.
    pub rates: Vec<RateReport>,
    /// Links between routers that several paths pass.
    pub shared_links: Vec<HopLinkReport>,
    /// The network.
    #[serde(skip)]
    pub network: Option<Network>,
}

impl Probe {
    /// Makes a network of what was found.
    pub(super) fn report(&self, sites: Vec<Site>) -> Result<ProbeReport, ProbeError> {
        let names: Vec<String> = self.hosts.iter().map(|host| host.name.clone()).collect();
        let network = fit::network(&sites, &names, &self.findings)?;
        let nodes = (0..).map(NodeId).zip(&names);
        let nodes = nodes.map(|(node, name)| NodeReport {
            node: name.clone(),
            cluster: sites
                .iter()
                .find(|site| site.nodes.contains(&node))
                .map(|site| site.name.clone()),
            error: self.lost.get(&node).cloned(),
        });
        Ok(ProbeReport {
            nodes: nodes.collect(),
            paths: self.paths(),
            rates: self.rates(&sites),
            shared_links: self.shared_links(),
            network: Some(network),
        })
    }

    fn paths(&self) -> Vec<PathReport> {
        let mut all: BTreeMap<(NodeId, NodeId), PathReport> = BTreeMap::new();
        let mut path = |pair: (NodeId, NodeId), fill: &dyn Fn(&mut PathReport)| {
            fill(all.entry(pair).or_insert_with(|| PathReport {
                from: self.name(pair.0).to_owned(),
                to: self.name(pair.1).to_owned(),
                round_trip_s: None,
                rate_bytes_per_s: None,
                capacity_bytes_per_s: None,
                available_bytes_per_s: None,
                hops: None,
                errors: Vec::new(),
            }));
        };
        for (pair, time) in &self.findings.round_trips {
            let seconds = Some(time.as_secs_f64());
            path(*pair, &|path| path.round_trip_s = seconds);
        }
        for (of, rate) in &self.findings.rates {
            if let Some(pair) = path_of(*of) {
                path(pair, &|path| {
                    path.rate_bytes_per_s = Some(rate.bytes_per_s())
                });
            }
        }
        for (pair, packets) in &self.packets {
            path(*pair, &|path| {
                path.capacity_bytes_per_s = packets.capacity;
                path.available_bytes_per_s = packets.available;
            });
        }
        for (pair, hops) in &self.hops {
            path(*pair, &|path| path.hops = Some(hops.clone()));
        }
        for (measurement, error) in &self.failures {
            let (what, pair) = match measurement {
                Measurement::RoundTrip(a, b) => ("round trip", (*a, *b)),
                Measurement::Packets(a, b) => ("packets", (*a, *b)),
                Measurement::Hops(a, b) => ("route", (*a, *b)),
                Measurement::Rate { of, flows } => match (path_of(*of), flows.first()) {
                    (Some(pair), _) => ("rate", pair),
                    (None, Some(first)) => ("rate of several flows", *first),
                    (None, None) => continue,
                },
            };
            path(pair, &|path| path.errors.push(format!("{what}: {error}")));
        }
        all.into_values().collect()
    }

    fn rates(&self, sites: &[Site]) -> Vec<RateReport> {
        let site = |id: u32| sites.get(id as usize).map_or("?", |site| &site.name);
        let name = |of: Of| match of {
            Of::Path(..) => None,
            Of::Link(a, b) => Some((format!("{} -> {}", site(a), site(b)), "link")),
            Of::NodeOut(node) => Some((self.name(node).to_owned(), "out")),
            Of::NodeIn(node) => Some((self.name(node).to_owned(), "in")),
            Of::NodeAbroad(node) => Some((self.name(node).to_owned(), "out-abroad")),
            Of::NodeFromAbroad(node) => Some((self.name(node).to_owned(), "in-abroad")),
            Of::ClusterOut(id) => Some((site(id).to_owned(), "out-abroad")),
            Of::ClusterIn(id) => Some((site(id).to_owned(), "in-abroad")),
        };
        let all = self.findings.rates.iter();
        let report = |(of, rate): (&Of, &outpour_core::Rate)| {
            let (of, what) = name(*of)?;
            Some(RateReport {
                of,
                what,
                rate_bytes_per_s: rate.bytes_per_s(),
            })
        };
        all.filter_map(report).collect()
    }

    fn shared_links(&self) -> Vec<HopLinkReport> {
        let routes: Vec<Route<(NodeId, NodeId)>> = self
            .hops
            .iter()
            .map(|(of, hops)| Route {
                of: *of,
                hops: hops.clone(),
            })
            .collect();
        let shared = hops::shared(&routes);
        let report = |((from, to), paths): (hops::HopLink, _)| {
            let paths: std::collections::BTreeSet<(NodeId, NodeId)> = paths;
            let name = |node| self.name(node).to_owned();
            HopLinkReport {
                from,
                to,
                paths: paths.into_iter().map(|(a, b)| [name(a), name(b)]).collect(),
            }
        };
        shared.into_iter().map(report).collect()
    }
}

impl ProbeReport {
    /// Every figure by a name that stays the same, for a history.
    pub fn figures(&self) -> Vec<(String, f64)> {
        let mut all = Vec::new();
        for path in &self.paths {
            let mut add = |what: &str, value: Option<f64>| {
                let name = format!("{} -> {} {what}", path.from, path.to);
                all.extend(value.map(|value| (name, value)));
            };
            add("round_trip_s", path.round_trip_s);
            add("rate_bytes_per_s", path.rate_bytes_per_s);
            add("capacity_bytes_per_s", path.capacity_bytes_per_s);
            add("available_bytes_per_s", path.available_bytes_per_s);
        }
        for rate in &self.rates {
            let name = format!("{} {} rate_bytes_per_s", rate.of, rate.what);
            all.push((name, rate.rate_bytes_per_s));
        }
        all
    }
}
