//! Plans as JSON: what `outpour plan multicast --json` prints and `--plan` reads.

use outpour_core::Rate;
use outpour_core::network::Network;
use serde::Serialize;

use super::Planned;

/// A plan with the names of its nodes, for serialisation. Rates without a limit are null.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Document {
    /// The name of the method.
    pub method: &'static str,
    /// The nodes that hold the object.
    pub roots: Vec<String>,
    /// What the plan brings to every node at once.
    pub throughput_bytes_per_s: Option<f64>,
    /// The most that any plan could.
    pub optimum_bytes_per_s: Option<f64>,
    /// Whether that was solved for; otherwise no plan exceeds it, but it may be out of reach.
    pub exact: bool,
    /// How far the throughput is below the optimum, as a share of it.
    pub gap: f64,
    /// The trees over all nodes, to be executed.
    pub trees: Vec<TreeDocument>,
    /// The trees between clusters that they are parts of.
    pub routes: Vec<TreeDocument>,
    /// What the plan uses up, in words.
    pub saturated: Vec<String>,
    /// Why another method had to stand in, if one had to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fallback: Option<String>,
    /// How long planning took.
    pub solve_s: f64,
}

/// A tree of a [`Document`].
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct TreeDocument {
    /// At which rate its data passes each of its edges.
    pub rate_bytes_per_s: Option<f64>,
    /// Parent and child, a parent's own edge before those to its children.
    pub edges: Vec<[String; 2]>,
}

impl Document {
    /// The document of a plan for `network` that took `solve_s` seconds.
    pub fn new(network: &Network, planned: &Planned, solve_s: f64) -> Self {
        let trees = planned.plan.trees.iter().map(|tree| {
            let edges = tree.edges.iter().map(|(from, to)| [*from, *to]);
            TreeDocument {
                rate_bytes_per_s: finite(tree.rate),
                edges: edges
                    .map(|edge| edge.map(|node| network.name(node).to_owned()))
                    .collect(),
            }
        });
        let routes = planned.routes.iter().map(|route| {
            let edges = route.edges.iter().map(|(from, to)| [*from, *to]);
            TreeDocument {
                rate_bytes_per_s: finite(route.rate),
                edges: edges
                    .map(|edge| edge.map(|place| place.name(network).to_owned()))
                    .collect(),
            }
        });
        let saturated = planned.saturated.iter();
        let roots = planned.plan.roots.iter();
        Self {
            method: planned.method.name(),
            roots: roots.map(|root| network.name(*root).to_owned()).collect(),
            throughput_bytes_per_s: finite(planned.throughput),
            optimum_bytes_per_s: finite(planned.optimum),
            exact: planned.exact,
            gap: planned.gap(),
            trees: trees.collect(),
            routes: routes.collect(),
            saturated: saturated
                .map(|resource| network.describe(*resource))
                .collect(),
            fallback: planned.fallback.clone(),
            solve_s,
        }
    }
}

fn finite(rate: Rate) -> Option<f64> {
    (!rate.is_unlimited()).then(|| rate.bytes_per_s())
}
