//! Who is told to send is who has the blocks, wherever it stands in its site.

use outpour_controller::{FINE_MEMBERS_MAX, Job, Source};
use outpour_core::NodeId;
use outpour_core::network::Network;

use super::world::{World, full, job, to_nodes};

const BLOCKS: u32 = 12;
const BLOCK: u64 = 1_000_000;

/// Nodes of a site, where each is looked at, and where those of a site are as one.
const FEW: u32 = 4;
const MANY: u32 = FINE_MEMBERS_MAX as u32 / 2 + 1;

/// Two sites of so many nodes, in which all that nodes send passes their access links.
fn network(nodes: u32) -> Network {
    let site = |name| {
        format!(
            "[[cluster]]\nname = \"{name}\"\nnodes = {nodes}\nnode_out = \"10 MB/s\"\nnode_in = \"10 MB/s\"\n"
        )
    };
    let link = "[[link]]\nfrom = \"a\"\nto = \"b\"\nrate = \"40 MB/s\"\nboth = true\n";
    Network::from_toml(&(site("a") + &site("b") + link), "sites").unwrap()
}

/// A job of these sources to all other nodes; the world holds every order against what its node has.
fn finishes(nodes: u32, sources: Vec<Source>) {
    let has = |node: &u32| sources.iter().any(|source| source.node == NodeId(*node));
    let others: Vec<u32> = (0..2 * nodes).filter(|node| !has(node)).collect();
    let plain = job(BLOCKS.into(), BLOCK, 0, to_nodes(others.clone()));
    let mut world = World::new(network(nodes), full(3.0));
    let id = world.submit(Job { sources, ..plain });
    let first = world.cycle();
    assert!(!first.orders.is_empty(), "nothing is sent");
    world.finish(60);
    for (node, block) in others
        .iter()
        .flat_map(|node| (0..BLOCKS).map(move |it| (node, it)))
    {
        assert!(world.holds(id, NodeId(*node), block));
    }
}

#[test]
fn any_node_of_a_site_may_be_the_one_that_has_everything() {
    for nodes in [FEW, MANY] {
        for node in [0, 1, nodes - 1, nodes, 2 * nodes - 1] {
            let blocks = vec![0..BLOCKS];
            let node = NodeId(node);
            finishes(nodes, vec![Source { node, blocks }]);
        }
    }
}

#[test]
fn nodes_that_have_parts_send_their_parts() {
    for nodes in [FEW, MANY] {
        for [one, other] in [[0, 1], [3, 2], [1, nodes + 1], [2 * nodes - 1, 0]] {
            let half = BLOCKS / 2;
            let source = |node, blocks| Source {
                node: NodeId(node),
                blocks: vec![blocks],
            };
            finishes(
                nodes,
                vec![source(one, 0..half), source(other, half..BLOCKS)],
            );
            // Where both have the same part, either may send it.
            let (first, second) = (0..half + 3, half - 3..BLOCKS);
            finishes(nodes, vec![source(one, first), source(other, second)]);
        }
    }
}
