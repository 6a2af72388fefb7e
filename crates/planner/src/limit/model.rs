//! The network as the program sees it: flows between classes, and what they share.

use std::collections::BTreeSet;
use std::time::Duration;

use outpour_core::network::Network;
use outpour_core::{NodeId, Rate};

use super::classes::{Class, Group, classify};

/// The flow from one class to another, or among the nodes of one.
pub(super) struct Arc {
    pub(super) from: usize,
    pub(super) to: usize,
    /// Whether nothing on the way has a limit.
    pub(super) free: bool,
    delay: Duration,
}

/// What several flows share. Classes and groups by index.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Shared {
    /// What the nodes of a class send.
    NodeOut(usize),
    /// What the nodes of a class receive.
    NodeIn(usize),
    /// What a group sends to others.
    ClusterOut(usize),
    /// What a group receives from others.
    ClusterIn(usize),
    /// The links from one group to another.
    Link(usize, usize),
    /// The links between the nodes of a group.
    Local(usize),
    /// What the nodes of a class send over all their networks.
    LimitOut(usize),
    /// What the nodes of a class receive over all their networks.
    LimitIn(usize),
}

/// A capacity and the flows it limits.
pub(super) struct Row {
    pub(super) shared: Shared,
    /// Of all the equal things the row stands for together, bytes per second; finite, above zero.
    pub(super) capacity: f64,
    pub(super) arcs: Vec<usize>,
}

/// The flows a transfer can have and what they share.
pub(super) struct Model<'a> {
    pub(super) network: &'a Network,
    pub(super) groups: Vec<Group>,
    pub(super) classes: Vec<Class>,
    pub(super) arcs: Vec<Arc>,
    pub(super) rows: Vec<Row>,
}

impl<'a> Model<'a> {
    /// The model of a transfer from `sources` to the nodes that are `wanted`.
    pub(super) fn new(network: &'a Network, sources: &[NodeId], wanted: &[bool]) -> Self {
        let (groups, classes) = classify(network, sources, wanted);
        let mut model = Self {
            network,
            groups,
            classes,
            arcs: Vec::new(),
            rows: Vec::new(),
        };
        for from in 0..model.classes.len() {
            for to in 0..model.classes.len() {
                model.arcs.extend(model.arc(from, to));
            }
        }
        model.add_rows();
        model
    }

    /// The classes that receive.
    pub(super) fn receivers(&self) -> impl Iterator<Item = usize> + '_ {
        (0..self.classes.len()).filter(|class| self.classes[*class].receives)
    }

    /// The classes of the sources.
    pub(super) fn roots(&self) -> impl Iterator<Item = usize> + '_ {
        (0..self.classes.len()).filter(|class| self.classes[*class].root)
    }

    /// The groups that have a source, each once.
    pub(super) fn homes(&self) -> BTreeSet<usize> {
        self.roots().map(|root| self.classes[root].group).collect()
    }

    /// The shortest delay from a source to the nodes of each class, if anything gets there.
    pub(super) fn delays(&self) -> Vec<Option<Duration>> {
        self.distances(|arc| Some(arc.delay))
    }

    /// Whether the sources reach every receiver without passing anything that has a limit.
    pub(super) fn is_free(&self) -> bool {
        let reached = self.distances(|arc| arc.free.then_some(Duration::ZERO));
        self.receivers().all(|class| reached[class].is_some())
    }

    /// Dijkstra over the classes; arcs without a length do not exist.
    fn distances(&self, length: impl Fn(&Arc) -> Option<Duration>) -> Vec<Option<Duration>> {
        let mut leaving: Vec<Vec<&Arc>> = vec![Vec::new(); self.classes.len()];
        for arc in &self.arcs {
            leaving[arc.from].push(arc);
        }
        let mut found = vec![None; self.classes.len()];
        let mut open = vec![None; self.classes.len()];
        for root in self.roots() {
            open[root] = Some(Duration::ZERO);
        }
        while let Some((at, distance)) = (open.iter().enumerate())
            .filter_map(|(class, distance)| Some((class, (*distance)?)))
            .min_by_key(|(_, distance)| *distance)
        {
            open[at] = None;
            found[at] = Some(distance);
            for arc in leaving[at].iter().filter(|arc| found[arc.to].is_none()) {
                if let Some(length) = length(arc) {
                    let there = distance.saturating_add(length);
                    let best: &mut Option<Duration> = &mut open[arc.to];
                    *best = Some(best.map_or(there, |best| best.min(there)));
                }
            }
        }
        found
    }

    /// How many ordered pairs of nodes a flow from one class to another has.
    pub(super) fn pairs(&self, from: usize, to: usize) -> f64 {
        let (a, b) = (self.classes[from].nodes, self.classes[to].nodes);
        f64::from(a) * f64::from(if from == to { b - 1 } else { b })
    }

    /// The flow from one class to another; `None` if there can be none, or none of any use.
    fn arc(&self, from: usize, to: usize) -> Option<Arc> {
        let (a, b) = (&self.classes[from], &self.classes[to]);
        if b.root || self.pairs(from, to) == 0.0 {
            return None;
        }
        let (link, delay) = self.link(a.group, b.group);
        let mut passes = match self.is_apart(from, to) {
            true => vec![self.network.limit(), link],
            false => vec![a.out, link, b.into],
        };
        if a.group != b.group {
            let cluster = |group: usize| {
                let id = self.groups[group].cluster;
                &self.network.clusters()[id.index()]
            };
            passes.push(cluster(a.group).cluster_out);
            passes.push(cluster(b.group).cluster_in);
        }
        (!passes.iter().any(|rate| rate.is_zero())).then(|| Arc {
            from,
            to,
            free: passes.iter().all(|rate| rate.is_unlimited()),
            delay,
        })
    }

    /// Whether data from one class to another passes an interconnect, and no access link.
    fn is_apart(&self, from: usize, to: usize) -> bool {
        let (a, b) = (self.classes[from].group, self.classes[to].group);
        a == b && self.groups[a].interconnect
    }

    /// What each node of a class sends at most over all its networks.
    pub(super) fn sends(&self, class: usize) -> Rate {
        let Class { group, out, .. } = self.classes[class];
        match self.groups[group].interconnect {
            true => self.network.limit(),
            false => out,
        }
    }

    /// Rate and delay from a cluster of one group to a cluster of another. Inside a group they are
    /// those between two of its nodes.
    fn link(&self, from: usize, to: usize) -> (Rate, Duration) {
        let (a, b) = (&self.groups[from], &self.groups[to]);
        let to = match a.second {
            Some(second) if from == to => second,
            _ => b.cluster,
        };
        let link = self.network.link(a.cluster, to);
        (link.rate, link.delay)
    }

    fn add_rows(&mut self) {
        let (classes, groups) = (self.classes.len(), self.groups.len());
        let mut node_out = vec![Vec::new(); classes];
        let mut node_in = vec![Vec::new(); classes];
        let mut limit_out = vec![Vec::new(); classes];
        let mut limit_in = vec![Vec::new(); classes];
        let mut cluster_out = vec![Vec::new(); groups];
        let mut cluster_in = vec![Vec::new(); groups];
        let mut links = vec![Vec::new(); groups * groups];
        let mut rows = Vec::new();
        for (index, arc) in self.arcs.iter().enumerate() {
            let (a, b) = (self.classes[arc.from].group, self.classes[arc.to].group);
            if !self.is_apart(arc.from, arc.to) {
                node_out[arc.from].push(index);
                node_in[arc.to].push(index);
            }
            // Without an interconnect, the access link carries all that the limit counts.
            if self.groups[a].interconnect {
                limit_out[arc.from].push(index);
            }
            if self.groups[b].interconnect {
                limit_in[arc.to].push(index);
            }
            if a == b {
                let shared = Shared::Local(a);
                let times = self.pairs(arc.from, arc.to);
                push(&mut rows, shared, self.link(a, a).0, times, vec![index]);
            } else {
                cluster_out[a].push(index);
                cluster_in[b].push(index);
                links[a * groups + b].push(index);
            }
        }
        for (index, (out, into)) in node_out.into_iter().zip(node_in).enumerate() {
            let class = &self.classes[index];
            let times = f64::from(class.nodes);
            push(&mut rows, Shared::NodeOut(index), class.out, times, out);
            push(&mut rows, Shared::NodeIn(index), class.into, times, into);
        }
        for (index, (out, into)) in limit_out.into_iter().zip(limit_in).enumerate() {
            let times = f64::from(self.classes[index].nodes);
            let limit = self.network.limit();
            push(&mut rows, Shared::LimitOut(index), limit, times, out);
            push(&mut rows, Shared::LimitIn(index), limit, times, into);
        }
        for (index, (out, into)) in cluster_out.into_iter().zip(cluster_in).enumerate() {
            // A single node's own capacity has the access link of its cluster in it.
            if !self.groups[index].single {
                let cluster = &self.network.clusters()[self.groups[index].cluster.index()];
                push(
                    &mut rows,
                    Shared::ClusterOut(index),
                    cluster.cluster_out,
                    1.0,
                    out,
                );
                push(
                    &mut rows,
                    Shared::ClusterIn(index),
                    cluster.cluster_in,
                    1.0,
                    into,
                );
            }
        }
        for (pair, arcs) in links.into_iter().enumerate() {
            let (a, b) = (pair / groups, pair % groups);
            if !arcs.is_empty() {
                let times = f64::from(self.groups[a].clusters) * f64::from(self.groups[b].clusters);
                push(
                    &mut rows,
                    Shared::Link(a, b),
                    self.link(a, b).0,
                    times,
                    arcs,
                );
            }
        }
        self.rows = rows;
    }
}

fn push(rows: &mut Vec<Row>, shared: Shared, rate: Rate, times: f64, arcs: Vec<usize>) {
    if !arcs.is_empty() && !rate.is_unlimited() {
        rows.push(Row {
            shared,
            capacity: rate.bytes_per_s() * times,
            arcs,
        });
    }
}
