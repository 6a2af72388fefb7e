//! A multicast plan: weighted trees along which an object is pushed.
//!
//! A planner makes it from a network model, protocols execute it, commands print and draw it. Each
//! tree spans the same nodes from the same roots, and carries a share of the object in proportion
//! to its rate [Burger §3.2.1]. With several roots it is a forest: every other node has one parent.

use serde::{Deserialize, Serialize};

use crate::{NodeId, Rate};

/// How many trees a plan may have.
pub const TREES_MAX: usize = 65_536;

/// How many edges all trees of a plan together may have.
pub const EDGES_MAX: usize = 4 << 20;

/// One tree: which node forwards to which, and at what rate.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Tree {
    /// At which rate the data of this tree passes each of its edges.
    pub rate: Rate,
    /// Parent and child, such that a parent's own edge comes before those to its children.
    pub edges: Vec<(NodeId, NodeId)>,
}

/// The trees of one multicast.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Plan {
    /// The nodes that have the data from the start; no tree enters them.
    pub roots: Vec<NodeId>,
    /// The trees, none of rate zero.
    pub trees: Vec<Tree>,
}

/// Why something is no plan.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PlanError {
    /// It has no tree, too many, or too many edges.
    #[error("a plan has 1 to {TREES_MAX} trees and at most {EDGES_MAX} edges")]
    Size,
    /// A node that is not there.
    #[error("tree {tree} names node {node}, which is not among the {nodes} there are")]
    Node {
        /// Index of the tree.
        tree: usize,
        /// The node.
        node: NodeId,
        /// How many nodes there are.
        nodes: u32,
    },
    /// It has no root, or one twice.
    #[error("a plan has one root or several, each once")]
    Roots,
    /// An edge from a node that does not have the data yet, or to one that has.
    #[error("tree {tree}: edge {from} -> {to} does not continue a tree from the root")]
    Shape {
        /// Index of the tree.
        tree: usize,
        /// The edge's beginning.
        from: NodeId,
        /// The edge's end.
        to: NodeId,
    },
    /// A tree that misses a node.
    #[error("tree {tree} does not reach node {node}")]
    Unreached {
        /// Index of the tree.
        tree: usize,
        /// A node it misses.
        node: NodeId,
    },
    /// A tree whose rate is zero.
    #[error("tree {tree} has the rate 0")]
    Idle {
        /// Index of the tree.
        tree: usize,
    },
}

impl Plan {
    /// The sum of the trees' rates.
    pub fn throughput(&self) -> Rate {
        self.trees.iter().map(|tree| tree.rate).sum()
    }

    /// Checks that every tree spans `nodes` nodes, 0 and up, from the roots, edges in order.
    ///
    /// # Errors
    /// Says which tree is wrong and how.
    pub fn check(&self, nodes: u32) -> Result<(), PlanError> {
        let edges: usize = self.trees.iter().map(|tree| tree.edges.len()).sum();
        if self.trees.is_empty() || self.trees.len() > TREES_MAX || edges > EDGES_MAX {
            return Err(PlanError::Size);
        }
        let mut roots = self.roots.clone();
        roots.sort_unstable();
        roots.dedup();
        if roots.is_empty() || roots.len() < self.roots.len() {
            return Err(PlanError::Roots);
        }
        self.trees
            .iter()
            .enumerate()
            .try_for_each(|(index, tree)| self.check_tree(index, tree, nodes))
    }

    fn check_tree(&self, index: usize, tree: &Tree, nodes: u32) -> Result<(), PlanError> {
        let known = |node: NodeId| {
            if node.0 < nodes {
                return Ok(());
            }
            Err(PlanError::Node {
                tree: index,
                node,
                nodes,
            })
        };
        self.roots.iter().try_for_each(|root| known(*root))?;
        if tree.rate == Rate::ZERO {
            return Err(PlanError::Idle { tree: index });
        }
        let mut reached = vec![false; nodes as usize];
        for root in &self.roots {
            reached[root.index()] = true;
        }
        for (from, to) in &tree.edges {
            known(*from)?;
            known(*to)?;
            if !reached[from.index()] || reached[to.index()] {
                return Err(PlanError::Shape {
                    tree: index,
                    from: *from,
                    to: *to,
                });
            }
            reached[to.index()] = true;
        }
        match (0..nodes).find(|node| !reached[*node as usize]) {
            None => Ok(()),
            Some(node) => Err(PlanError::Unreached {
                tree: index,
                node: NodeId(node),
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(edges: &[(u32, u32)]) -> Plan {
        let edges = edges.iter().map(|(a, b)| (NodeId(*a), NodeId(*b)));
        Plan {
            roots: vec![NodeId(0)],
            trees: vec![Tree {
                rate: Rate::from_bytes_per_s(1.0).unwrap_or(Rate::ZERO),
                edges: edges.collect(),
            }],
        }
    }

    #[test]
    fn only_trees_from_the_root_in_order_pass() {
        assert_eq!(plan(&[(0, 2), (2, 1)]).check(3), Ok(()));
        assert!(matches!(
            plan(&[(2, 1), (0, 2)]).check(3),
            Err(PlanError::Shape { .. })
        ));
        assert!(matches!(
            plan(&[(0, 1), (1, 0)]).check(2),
            Err(PlanError::Shape { .. })
        ));
        assert!(matches!(
            plan(&[(0, 1)]).check(3),
            Err(PlanError::Unreached { .. })
        ));
        assert!(matches!(
            plan(&[(0, 9)]).check(3),
            Err(PlanError::Node { .. })
        ));
    }

    #[test]
    fn of_several_roots_each_begins_a_part_and_none_is_entered() {
        let forest = |edges: &[(u32, u32)], roots: &[u32]| Plan {
            roots: roots.iter().map(|root| NodeId(*root)).collect(),
            ..plan(edges)
        };
        assert_eq!(forest(&[(0, 2), (1, 3)], &[0, 1]).check(4), Ok(()));
        assert!(matches!(
            forest(&[(0, 2), (2, 1), (1, 3)], &[0, 1]).check(4),
            Err(PlanError::Shape { .. })
        ));
        for roots in [&[][..], &[0, 1, 0]] {
            let plan = forest(&[(0, 2), (1, 3)], roots);
            assert_eq!(plan.check(4), Err(PlanError::Roots));
        }
    }

    #[test]
    fn a_tree_without_a_rate_is_refused() {
        let mut plan = plan(&[(0, 1)]);
        plan.trees[0].rate = Rate::ZERO;
        assert_eq!(plan.check(2), Err(PlanError::Idle { tree: 0 }));
        plan.trees.clear();
        assert_eq!(plan.check(2), Err(PlanError::Size));
    }
}
