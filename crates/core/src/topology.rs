//! Hosts and switches joined by wires, and the shortest ways between hosts.
//!
//! A [network](crate::network) says what a transfer between clusters may use; a topology says which
//! switches a packet passes, and that there may be several ways. A **wire** is one direction
//! between two vertices and leaves its first vertex by a port of its own: its [`Link`] is what that
//! port does to packets. Rates are in bytes per second, with headers; [`packets_per_s`] turns those
//! of papers that count packets into such. Hosts only send and receive, packets of others never
//! pass them.
//!
//! ```
//! use outpour_core::topology::{Metric, Paths, Topology, packets_per_s};
//! use outpour_core::{NodeId, network::Link};
//! let link = Link { rate: packets_per_s(2e5, 1500).unwrap(), ..Link::OPEN };
//! let topology = Topology::fat_tree(4, link, link)?;
//! assert_eq!(topology.host_count(), 16);
//! let mut paths = Paths::new(topology, Metric::Hops);
//! // Between pods there are as many ways as switches in the core.
//! assert_eq!(paths.count(NodeId(0), NodeId(15)), 4);
//! assert_eq!(paths.pick(NodeId(0), NodeId(15), 7).len(), 6);
//! # Ok::<(), outpour_core::topology::TopologyError>(())
//! ```

mod build;
mod connected;
mod csv;
mod error;
mod of_network;
mod paths;

use std::time::Duration;

use crate::network::{Link, NODES_MAX};
use crate::{NodeId, Rate};

pub use csv::SITES_MAX;
pub use error::TopologyError;
pub use paths::{Distance, Metric, Paths};

/// How many wires a topology may have.
pub const WIRES_MAX: usize = 1 << 20;

/// How many switches a topology may have.
pub const SWITCHES_MAX: usize = 1 << 20;

/// How long a wire's delay may be, so that those of a path add up.
pub const DELAY_MAX: Duration = Duration::from_secs(3600);

/// The rate that carries `packets` of `bytes` each, headers included, in a second; `None` if it is
/// negative or not a number.
pub fn packets_per_s(packets: f64, bytes: u32) -> Option<Rate> {
    Rate::from_bytes_per_s(packets * f64::from(bytes))
}

/// A host or a switch. Hosts come first, in the order of their [`NodeId`]s, switches follow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Vertex(pub u32);

impl Vertex {
    /// The index of the vertex among hosts and switches.
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

impl From<NodeId> for Vertex {
    fn from(host: NodeId) -> Self {
        Self(host.0)
    }
}

/// A wire of a [`Topology`]: its index in the list of wires.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WireId(pub u32);

impl WireId {
    /// The index of the wire in the list of wires.
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

/// One direction between two vertices.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Wire {
    /// Where packets come from: whose port it is.
    pub from: Vertex,
    /// Where they go.
    pub to: Vertex,
    /// What the port does to packets and how long they are on the wire.
    pub link: Link,
}

/// Hosts, switches and wires, checked: every host reaches every other.
///
/// Ids come from the topology itself; handing it the id of another one may panic.
#[derive(Clone, Debug, PartialEq)]
pub struct Topology {
    /// Of hosts, then of switches.
    names: Vec<String>,
    hosts: u32,
    wires: Vec<Wire>,
    outgoing: Grouped,
    incoming: Grouped,
}

impl Topology {
    /// Any topology: names of hosts, names of switches and the wires. Two vertices may be joined by
    /// several wires.
    ///
    /// # Errors
    /// Without hosts, with too much of anything, if a wire joins a vertex with itself or one that
    /// is not there, if its link cannot be, and if a host does not reach another.
    pub fn new(
        hosts: Vec<String>,
        switches: Vec<String>,
        wires: Vec<Wire>,
    ) -> Result<Self, TopologyError> {
        Self::unchecked(hosts, switches, wires)?.connected()
    }

    /// The same, whether hosts reach each other or not.
    fn unchecked(
        hosts: Vec<String>,
        switches: Vec<String>,
        wires: Vec<Wire>,
    ) -> Result<Self, TopologyError> {
        let host_count = hosts.len() as u32;
        for (what, found, max) in [
            ("hosts", hosts.len(), NODES_MAX),
            ("switches", switches.len(), SWITCHES_MAX),
            ("wires", wires.len(), WIRES_MAX),
        ] {
            if found > max {
                return Err(TopologyError::TooMany { what, max });
            }
        }
        if hosts.is_empty() {
            return Err(TopologyError::NoHosts);
        }
        let mut names = hosts;
        names.extend(switches);
        for (index, wire) in wires.iter().enumerate() {
            let inside = |vertex: Vertex| vertex.index() < names.len();
            if !inside(wire.from) || !inside(wire.to) || wire.from == wire.to {
                return Err(TopologyError::BadWire { index });
            }
            error::check_link(&wire.link, || {
                let name = |vertex: Vertex| names[vertex.index()].as_str();
                format!("wire from `{}` to `{}`", name(wire.from), name(wire.to))
            })?;
        }
        let topology = Self {
            outgoing: Grouped::by(names.len(), wires.iter().map(|wire| wire.from)),
            incoming: Grouped::by(names.len(), wires.iter().map(|wire| wire.to)),
            names,
            hosts: host_count,
            wires,
        };
        Ok(topology)
    }

    /// Refuses a topology with hosts that do not reach others.
    fn connected(self) -> Result<Self, TopologyError> {
        match connected::apart(&self) {
            Some((from, to)) => Err(TopologyError::Apart {
                from: self.name(from).to_owned(),
                to: self.name(to).to_owned(),
            }),
            None => Ok(self),
        }
    }

    /// How many hosts there are.
    pub fn host_count(&self) -> u32 {
        self.hosts
    }

    /// All hosts.
    pub fn hosts(&self) -> impl Iterator<Item = NodeId> + use<> {
        (0..self.hosts).map(NodeId)
    }

    /// How many hosts and switches there are.
    pub fn vertex_count(&self) -> u32 {
        self.names.len() as u32
    }

    /// Whether a vertex is a host.
    pub fn is_host(&self, vertex: Vertex) -> bool {
        vertex.0 < self.hosts
    }

    /// The name of a host or a switch.
    pub fn name(&self, vertex: Vertex) -> &str {
        &self.names[vertex.index()]
    }

    /// The wires, indexed by [`WireId`].
    pub fn wires(&self) -> &[Wire] {
        &self.wires
    }

    /// A wire.
    pub fn wire(&self, id: WireId) -> &Wire {
        &self.wires[id.index()]
    }

    /// The wires that leave a vertex, lowest id first.
    pub fn outgoing(&self, vertex: Vertex) -> &[WireId] {
        self.outgoing.of(vertex)
    }

    /// The wires that end at a vertex, lowest id first.
    pub fn incoming(&self, vertex: Vertex) -> &[WireId] {
        self.incoming.of(vertex)
    }

    /// The way back over the same vertices, as acknowledgements take it; `None` if a wire has none in
    /// the other direction. Where there are several, the one of the lowest id.
    pub fn back(&self, path: &[WireId]) -> Option<Vec<WireId>> {
        let back = path.iter().rev().map(|id| {
            let Wire { from, to, .. } = *self.wire(*id);
            let mut wires = self.outgoing(to).iter();
            wires.find(|wire| self.wire(**wire).to == from).copied()
        });
        back.collect()
    }

    /// The same with other links: `link` is asked for each wire, as for delays that follow from
    /// where both ends are.
    ///
    /// # Errors
    /// If a link cannot be.
    pub fn with_links(
        mut self,
        mut link: impl FnMut(&Self, &Wire) -> Link,
    ) -> Result<Self, TopologyError> {
        let links: Vec<_> = self.wires.iter().map(|wire| link(&self, wire)).collect();
        for (index, link) in links.into_iter().enumerate() {
            let wire = self.wires[index];
            error::check_link(&link, || {
                let (from, to) = (self.name(wire.from), self.name(wire.to));
                format!("wire from `{from}` to `{to}`")
            })?;
            self.wires[index].link = link;
        }
        Ok(self)
    }
}

/// Wires by one of their ends.
#[derive(Clone, Debug, PartialEq)]
struct Grouped {
    wires: Vec<WireId>,
    /// Where those of each vertex begin, and their number at the end.
    starts: Vec<u32>,
}

impl Grouped {
    fn by(vertices: usize, ends: impl Iterator<Item = Vertex> + Clone) -> Self {
        let mut starts = vec![0; vertices + 1];
        for end in ends.clone() {
            starts[end.index() + 1] += 1;
        }
        for vertex in 0..vertices {
            starts[vertex + 1] += starts[vertex];
        }
        let mut next = starts.clone();
        let mut wires = vec![WireId(0); starts[vertices] as usize];
        for (index, end) in ends.enumerate() {
            let at = &mut next[end.index()];
            wires[*at as usize] = WireId(index as u32);
            *at += 1;
        }
        Self { wires, starts }
    }

    fn of(&self, vertex: Vertex) -> &[WireId] {
        let [start, end] = [vertex.index(), vertex.index() + 1].map(|at| self.starts[at] as usize);
        &self.wires[start..end]
    }
}

#[cfg(test)]
mod tests;
