//! Which address a node has: 10.CLUSTER.x.y, so that people see from an address where it is.

use std::net::Ipv4Addr;

use outpour_core::network::{ClusterId, Network};

use crate::EmuError;

/// The bits all nodes' addresses share.
pub(crate) const PREFIX: u32 = 8;

/// How many nodes an emulation has at most; each costs a namespace, a device and a descriptor.
pub const NODES_MAX: u32 = 256;

/// How many clusters an emulation has at most.
pub const CLUSTERS_MAX: usize = 250;

/// How many nodes one value of the third octet stands for: 1 to 250 in the fourth.
const PER_OCTET: u32 = 250;

/// The addresses of all nodes.
#[derive(Clone, Debug)]
pub(crate) struct Addresses {
    /// The first node of each cluster, and the number of nodes at the end.
    first: Vec<u16>,
}

impl Addresses {
    pub(crate) fn new(network: &Network) -> Result<Self, EmuError> {
        let (nodes, max) = (network.node_count(), NODES_MAX);
        if nodes > max {
            return Err(EmuError::TooManyNodes { nodes, max });
        }
        let (clusters, max) = (network.clusters().len(), CLUSTERS_MAX);
        if clusters > max {
            return Err(EmuError::TooManyClusters { clusters, max });
        }
        let ids = (0..clusters as u32).map(ClusterId);
        let mut first: Vec<u16> = ids
            .filter_map(|id| network.nodes_of(id).next().map(|node| node.0 as u16))
            .collect();
        first.push(nodes as u16);
        Ok(Self { first })
    }

    /// The address of a node, by number.
    pub(crate) fn of(&self, node: u16) -> Ipv4Addr {
        let cluster = self.first.partition_point(|first| *first <= node) - 1;
        let within = u32::from(node - self.first[cluster]);
        let [third, fourth] = [within / PER_OCTET, within % PER_OCTET + 1];
        Ipv4Addr::new(10, cluster as u8 + 1, third as u8, fourth as u8)
    }

    /// The node of an address.
    pub(crate) fn node(&self, address: Ipv4Addr) -> Option<u16> {
        let [ten, cluster, third, fourth] = address.octets();
        let cluster = usize::from(cluster).checked_sub(1)?;
        let within = u32::from(third) * PER_OCTET + u32::from(fourth).checked_sub(1)?;
        let (first, end) = (self.first.get(cluster)?, self.first.get(cluster + 1)?);
        let node = u32::from(*first) + within;
        let there = ten == 10 && u32::from(fourth) <= PER_OCTET && node < u32::from(*end);
        there.then_some(node as u16)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use outpour_core::Rate;
    use std::time::Duration;

    use super::*;

    #[test]
    fn every_node_is_found_by_its_address() {
        let text = "[[cluster]]\nname='a'\nnodes=2\n[[cluster]]\nname='b'\nnodes=254";
        let network = Network::from_toml(text, "net.toml").unwrap();
        let addresses = Addresses::new(&network).unwrap();
        for node in 0..256 {
            assert_eq!(addresses.node(addresses.of(node)), Some(node));
        }
        assert_eq!(addresses.of(1), Ipv4Addr::new(10, 1, 0, 2));
        assert_eq!(addresses.of(252), Ipv4Addr::new(10, 2, 1, 1));
        for none in [
            [10, 1, 0, 0],
            [10, 1, 0, 3],
            [10, 0, 0, 1],
            [10, 3, 0, 1],
            [11, 1, 0, 1],
        ] {
            assert_eq!(addresses.node(Ipv4Addr::from(none)), None);
        }
        assert_eq!(addresses.node(Ipv4Addr::new(10, 2, 0, 251)), None);
    }

    #[test]
    fn too_many_nodes_are_refused() {
        let of = |nodes| {
            let free = Rate::UNLIMITED;
            Addresses::new(&Network::uniform(nodes, free, free, Duration::ZERO).unwrap())
        };
        assert!(of(NODES_MAX).is_ok());
        let said = of(NODES_MAX + 1).unwrap_err().to_string();
        assert_eq!(
            said,
            "the network has 257 nodes; an emulation has at most 256"
        );
    }
}
