//! The shapes that papers use.

use super::error::check_live;
use super::{NODES_MAX, SWITCHES_MAX, Topology, TopologyError, Vertex, Wire};
use crate::network::Link;

/// The largest fat tree has 65,536 hosts.
const FAT_TREE_MAX: u32 = 64;

/// A topology in the making.
#[derive(Default)]
pub(super) struct Draft {
    hosts: Vec<String>,
    switches: Vec<String>,
    wires: Vec<Wire>,
}

impl Draft {
    /// One with so many hosts, which are called h0, h1, ...
    fn with_hosts(hosts: u32) -> Self {
        Self {
            hosts: (0..hosts).map(|host| format!("h{host}")).collect(),
            ..Self::default()
        }
    }

    /// One with these hosts.
    pub(super) fn of(hosts: Vec<String>) -> Self {
        Self {
            hosts,
            ..Self::default()
        }
    }

    /// A further switch.
    pub(super) fn switch(&mut self, name: String) -> Vertex {
        self.switches.push(name);
        Vertex((self.hosts.len() + self.switches.len()) as u32 - 1)
    }

    /// A wire from one vertex to another.
    pub(super) fn wire(&mut self, from: Vertex, to: Vertex, link: Link) {
        self.wires.push(Wire { from, to, link });
    }

    /// Wires both ways between two vertices.
    pub(super) fn join(&mut self, a: Vertex, b: Vertex, link: Link) {
        self.wire(a, b, link);
        self.wire(b, a, link);
    }

    pub(super) fn finish(self) -> Result<Topology, TopologyError> {
        Topology::new(self.hosts, self.switches, self.wires)
    }

    /// The same where it is known that every host reaches every other.
    pub(super) fn finish_connected(self) -> Result<Topology, TopologyError> {
        Topology::unchecked(self.hosts, self.switches, self.wires)
    }
}

/// Refuses a number of something that is zero or above `max`.
fn check_count(what: &'static str, found: u32, max: usize) -> Result<(), TopologyError> {
    if found == 0 {
        let expected = "at least one";
        return Err(TopologyError::Count {
            what,
            expected,
            found,
        });
    }
    if found as usize > max {
        return Err(TopologyError::TooMany { what, max });
    }
    Ok(())
}

impl Topology {
    /// Hosts h0, h1, ... on one switch that is never the bottleneck itself: packets wait where
    /// they leave a host and where they leave the switch. `edge` is each of the wires between a
    /// host and the switch, in either direction.
    ///
    /// # Errors
    /// Without hosts or with too many, and if the link is dead or cannot be.
    pub fn one_big_switch(hosts: u32, edge: Link) -> Result<Self, TopologyError> {
        check_count("hosts", hosts, NODES_MAX)?;
        check_live(&edge, "link of hosts")?;
        let mut draft = Draft::with_hosts(hosts);
        let switch = draft.switch("switch".to_owned());
        for host in 0..hosts {
            draft.join(Vertex(host), switch, edge);
        }
        draft.finish()
    }

    /// Leaves with hosts, every leaf joined with every spine. `edge` is each wire between a host
    /// and its leaf, `fabric` each between a leaf and a spine. The hosts of a leaf have consecutive
    /// numbers.
    ///
    /// # Errors
    /// Without leaves, hosts or spines, with too many, and if a link is dead or cannot be.
    pub fn leaf_spine(
        leaves: u32,
        hosts_per_leaf: u32,
        spines: u32,
        edge: Link,
        fabric: Link,
    ) -> Result<Self, TopologyError> {
        check_count("leaves", leaves, SWITCHES_MAX)?;
        check_count("hosts of a leaf", hosts_per_leaf, NODES_MAX)?;
        check_count("spines", spines, SWITCHES_MAX)?;
        let hosts = leaves.saturating_mul(hosts_per_leaf);
        check_count("hosts", hosts, NODES_MAX)?;
        check_count("wires", leaves.saturating_mul(spines), super::WIRES_MAX)?;
        check_live(&edge, "link of hosts")?;
        check_live(&fabric, "link of the fabric")?;
        let mut draft = Draft::with_hosts(hosts);
        let spine = |index| format!("spine{index}");
        let spines: Vec<_> = (0..spines).map(|i| draft.switch(spine(i))).collect();
        for leaf in 0..leaves {
            let switch = draft.switch(format!("leaf{leaf}"));
            for host in leaf * hosts_per_leaf..(leaf + 1) * hosts_per_leaf {
                draft.join(Vertex(host), switch, edge);
            }
            for spine in &spines {
                draft.join(switch, *spine, fabric);
            }
        }
        draft.finish()
    }

    /// A fat tree of switches with `k` ports [Al-Fares, Loukissas and Vahdat 2008]: k pods of k / 2
    /// lower and k / 2 upper switches, (k / 2)^2 core switches and k^3 / 4 hosts. `edge` is each
    /// wire of a host, `fabric` each between switches. The k^2 / 4 hosts of a pod have consecutive
    /// numbers, and so have the k / 2 of a switch.
    ///
    /// # Errors
    /// If k is odd or not from 2 to 64, and if a link is dead or cannot be.
    pub fn fat_tree(k: u32, edge: Link, fabric: Link) -> Result<Self, TopologyError> {
        if !k.is_multiple_of(2) || !(2..=FAT_TREE_MAX).contains(&k) {
            return Err(TopologyError::Count {
                what: "k of a fat tree",
                expected: "an even number from 2 to 64",
                found: k,
            });
        }
        check_live(&edge, "link of hosts")?;
        check_live(&fabric, "link of the fabric")?;
        let half = k / 2;
        let mut draft = Draft::with_hosts(k * half * half);
        let core: Vec<_> = (0..half * half)
            .map(|index| draft.switch(format!("core{index}")))
            .collect();
        for pod in 0..k {
            let upper: Vec<_> = (0..half)
                .map(|index| draft.switch(format!("pod{pod}.upper{index}")))
                .collect();
            // The first upper switch of every pod is joined with the first k / 2 of the core.
            for (upper, core) in upper.iter().zip(core.chunks(half as usize)) {
                core.iter()
                    .for_each(|core| draft.join(*upper, *core, fabric));
            }
            for index in 0..half {
                let lower = draft.switch(format!("pod{pod}.lower{index}"));
                let first = (pod * half + index) * half;
                (first..first + half).for_each(|host| draft.join(Vertex(host), lower, edge));
                upper
                    .iter()
                    .for_each(|upper| draft.join(lower, *upper, fabric));
            }
        }
        draft.finish()
    }
}
