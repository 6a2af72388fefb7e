//! The shortest ways between hosts.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

use super::{Topology, Vertex, WireId};
use crate::NodeId;

/// What makes a way short.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Metric {
    /// How many wires it has, as in data centres.
    #[default]
    Hops,
    /// How long it takes without queues, as in wide areas; among equals, how many wires it has.
    Delay,
}

/// How far it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Distance {
    /// By [`Metric::Delay`] how long the way takes without queues, in nanoseconds; else zero.
    pub delay_nanos: u64,
    /// How many wires it has.
    pub hops: u32,
}

impl Distance {
    const FAR: Self = Self {
        delay_nanos: u64::MAX,
        hops: u32::MAX,
    };

    fn plus(self, other: Self) -> Self {
        Self {
            delay_nanos: self.delay_nanos + other.delay_nanos,
            hops: self.hops + other.hops,
        }
    }
}

/// The shortest ways of a topology. What leads to a host is worked out when it is asked for the
/// first time and kept: 16 bytes for each vertex.
#[derive(Clone, Debug)]
pub struct Paths {
    topology: Topology,
    metric: Metric,
    /// For each host how far it is from every vertex.
    toward: Vec<Option<Box<[Distance]>>>,
}

impl Paths {
    /// The shortest ways by a metric.
    pub fn new(topology: Topology, metric: Metric) -> Self {
        let toward = vec![None; topology.host_count() as usize];
        Self {
            topology,
            metric,
            toward,
        }
    }

    /// The topology.
    pub fn topology(&self) -> &Topology {
        &self.topology
    }

    /// How far it is from one host to another.
    pub fn distance(&mut self, from: NodeId, to: NodeId) -> Distance {
        self.prepare(to)[from.index()]
    }

    /// How many shortest ways there are from one host to another; one from a host to itself. At
    /// most 2^64 - 1.
    pub fn count(&mut self, from: NodeId, to: NodeId) -> u64 {
        self.prepare(to);
        // Those that are farther first: when one's turn comes, all ways to it are counted.
        let mut open = BTreeMap::from(
            [(Reverse(self.left(from.into(), to)), from.into())]
                .map(|(left, vertex): (_, Vertex)| ((left, vertex), 1_u64)),
        );
        while let Some(((_, vertex), ways)) = open.pop_first() {
            if vertex == to.into() {
                return ways;
            }
            for wire in self.next(vertex, to) {
                let next = self.topology.wire(wire).to;
                let sum = open
                    .entry((Reverse(self.left(next, to)), next))
                    .or_insert(0);
                *sum = sum.saturating_add(ways);
            }
        }
        0
    }

    /// One of the shortest ways from one host to another, the same for the same `choice`. At each
    /// vertex one of the wires that lead on is drawn, from `choice` and the vertex; all are equally
    /// likely. So a flow keeps its way if `choice` is the flow's, and packets are sprayed if it is
    /// the packet's.
    pub fn pick(&mut self, from: NodeId, to: NodeId, choice: u64) -> Vec<WireId> {
        self.prepare(to);
        let (mut path, mut at) = (Vec::new(), Vertex::from(from));
        while at != to.into() {
            let ways = self.next(at, to).count() as u64;
            debug_assert!(ways > 0, "a topology whose hosts are not connected");
            let drawn = scattered(choice ^ (u64::from(at.0) << 32 | 0x9e37_79b9)) % ways.max(1);
            let Some(wire) = self.next(at, to).nth(drawn as usize) else {
                break;
            };
            path.push(wire);
            at = self.topology.wire(wire).to;
        }
        path
    }

    /// The shortest ways from one host to another, at most `max` of them, in the order of their
    /// wires.
    pub fn all(&mut self, from: NodeId, to: NodeId, max: usize) -> Vec<Vec<WireId>> {
        self.prepare(to);
        let mut found = Vec::new();
        let mut open = vec![(Vertex::from(from), Vec::new())];
        while let Some((vertex, path)) = open.pop() {
            if found.len() == max {
                break;
            }
            if vertex == to.into() {
                found.push(path);
                continue;
            }
            let first = open.len();
            for wire in self.next(vertex, to) {
                let mut longer = path.clone();
                longer.push(wire);
                open.push((self.topology.wire(wire).to, longer));
            }
            // The lowest wire is to be looked at first.
            open[first..].reverse();
        }
        found
    }

    /// How much passes each wire if hosts send these amounts to one host, and all that comes to a
    /// vertex leaves it in equal parts by the wires that lead on: what [`Paths::pick`] does on
    /// average. Wires that nothing passes are left out.
    pub fn spread(
        &mut self,
        to: NodeId,
        amounts: impl IntoIterator<Item = (NodeId, f64)>,
    ) -> Vec<(WireId, f64)> {
        self.prepare(to);
        // Those that are farther first: when one's turn comes, all that passes it has come.
        let mut open = BTreeMap::new();
        for (from, amount) in amounts {
            let key = (Reverse(self.left(from.into(), to)), Vertex::from(from));
            *open.entry(key).or_insert(0.0) += amount;
        }
        let mut passed = Vec::new();
        while let Some(((_, vertex), amount)) = open.pop_first() {
            if vertex == to.into() {
                continue;
            }
            let part = amount / self.next(vertex, to).count().max(1) as f64;
            for wire in self.next(vertex, to) {
                let next = self.topology.wire(wire).to;
                passed.push((wire, part));
                *open
                    .entry((Reverse(self.left(next, to)), next))
                    .or_insert(0.0) += part;
            }
        }
        passed
    }

    /// The wires that lead on from a vertex by a shortest way.
    fn next(&self, vertex: Vertex, to: NodeId) -> impl Iterator<Item = WireId> {
        let left = self.left(vertex, to);
        let outgoing = self.topology.outgoing(vertex).iter().copied();
        outgoing.filter(move |wire| {
            let next = self.topology.wire(*wire).to;
            let passes = !self.topology.is_host(next) || next == to.into();
            let after = self.left(next, to);
            passes && after != Distance::FAR && after.plus(self.length(*wire)) == left
        })
    }

    /// How far a vertex is from a host to which ways are prepared.
    fn left(&self, vertex: Vertex, to: NodeId) -> Distance {
        let toward = self.toward[to.index()].as_ref();
        toward.map_or(Distance::FAR, |toward| toward[vertex.index()])
    }

    fn length(&self, wire: WireId) -> Distance {
        let delay = self.topology.wire(wire).link.delay;
        Distance {
            delay_nanos: match self.metric {
                Metric::Hops => 0,
                // A topology's delays are below an hour.
                Metric::Delay => delay.as_nanos() as u64,
            },
            hops: 1,
        }
    }

    fn prepare(&mut self, to: NodeId) -> &[Distance] {
        if self.toward[to.index()].is_none() {
            let distances = self.distances(to);
            self.toward[to.index()] = Some(distances);
        }
        self.toward[to.index()].as_deref().unwrap_or(&[])
    }

    /// How far each vertex is from a host [Dijkstra 1959].
    fn distances(&self, to: NodeId) -> Box<[Distance]> {
        let start = Vertex::from(to);
        let mut distances = vec![Distance::FAR; self.topology.vertex_count() as usize];
        distances[start.index()] = Distance::default();
        let mut open = BinaryHeap::from([Reverse((Distance::default(), start))]);
        while let Some(Reverse((distance, vertex))) = open.pop() {
            if distance > distances[vertex.index()] {
                continue;
            }
            if self.topology.is_host(vertex) && vertex != start {
                // Nothing passes other hosts.
                continue;
            }
            for wire in self.topology.incoming(vertex) {
                let before = self.topology.wire(*wire).from;
                let longer = distance.plus(self.length(*wire));
                if longer < distances[before.index()] {
                    distances[before.index()] = longer;
                    open.push(Reverse((longer, before)));
                }
            }
        }
        distances.into()
    }
}

/// A number whose every bit depends on every bit of another: SplitMix64 [Steele, Lea and Flood
/// 2014].
fn scattered(number: u64) -> u64 {
    let mut mixed = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}
