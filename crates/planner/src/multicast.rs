//! Multicast plans: which trees carry an object, and at which rates.
//!
//! Trees are sought between *sites*: clusters taken as one host each, with the capacities of their
//! nodes summed [Burger §3.2.1]. A tree between sites then becomes one or several *lanes*, trees
//! over nodes: wide-area connections join members of the clusters in parallel, and the member that
//! received data hands it on inside its cluster [Burger §3.2.2]. Lanes are laid such that no
//! node, however slow, carries more than it can. In a network of a single cluster the nodes
//! themselves are the sites.
//!
//! The throughput of a plan always counts every capacity of the model, whatever the method that
//! found its trees looked at. Methods that shape traffic (`balanced`, `optimal`) choose the rates
//! of their trees; those of the others keep their proportions and are scaled down until everything
//! fits, which is what plain connections that share a bottleneck come to.

mod direct;
pub mod json;
mod lanes;
mod packing;
mod rates;
mod search;
mod shapes;
mod sites;
pub mod svg;

use std::fmt;
use std::str::FromStr;

use outpour_core::network::{ClusterId, Network, Resource};
use outpour_core::plan::{EDGES_MAX, Plan};
use outpour_core::{Bytes, NodeId, Rate};

use crate::{LimitError, limit};
use rates::Rated;
use sites::{SiteTree, Sites};

/// A throughput this close to the optimum is the optimum, relative.
const ROUNDING: f64 = 1e-6;

/// Said when a plan is not what was asked for.
const SOLVER_FAILED: &str = "the solver of linear programs failed: this is the plan of fpfr";

/// Said when the trees of a method lead through nodes that cannot send.
const NOTHING_PASSES: &str = "every tree of this method leads through a node that sends nothing: this is the plan of optimal";

/// How a plan is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Method {
    /// From the roots' sites to every other; where links are dead, the lowest tree there is, and of
    /// those the one with the highest throughput.
    Direct,
    /// From each site to the next, in the order of the network.
    Chain,
    /// A binary tree in the order of the network.
    Binary,
    /// A binomial tree in the order of the network.
    Binomial,
    /// Direct from cluster to cluster, and one binomial tree inside each [Burger §3.1.2, MagPIe].
    Magpie,
    /// The tree whose slowest link is the fastest, after Prim [Burger §3.1.2].
    MaxBottleneck,
    /// Trees by depth-first search until the links are used up [Burger §3.1.2, FPFR].
    Fpfr,
    /// FPFR's trees at the rates a linear program finds [Burger §3.2.1].
    Balanced,
    /// The best rates of the best trees: no plan has a higher throughput.
    Optimal,
}

impl Method {
    /// Every method.
    pub const ALL: [Self; 9] = [
        Self::Direct,
        Self::Chain,
        Self::Binary,
        Self::Binomial,
        Self::Magpie,
        Self::MaxBottleneck,
        Self::Fpfr,
        Self::Balanced,
        Self::Optimal,
    ];

    /// The name in commands and JSON.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Direct => "direct",
            Self::Chain => "chain",
            Self::Binary => "binary",
            Self::Binomial => "binomial",
            Self::Magpie => "magpie",
            Self::MaxBottleneck => "max-bottleneck",
            Self::Fpfr => "fpfr",
            Self::Balanced => "balanced",
            Self::Optimal => "optimal",
        }
    }

    /// One line for people.
    pub const fn about(self) -> &'static str {
        match self {
            Self::Direct => {
                "directly from the sources to all nodes, through others only around dead links"
            }
            Self::Chain => "one after the other, in the order of the network",
            Self::Binary => "a binary tree, in the order of the network",
            Self::Binomial => "a binomial tree, in the order of the network",
            Self::Magpie => "direct between clusters, a binomial tree inside each",
            Self::MaxBottleneck => "the tree whose slowest link is the fastest",
            Self::Fpfr => "trees by depth-first search until all links are used up",
            Self::Balanced => "the trees of fpfr at the best rates for them",
            Self::Optimal => "the best rates of the best trees: the optimum itself",
        }
    }
}

impl fmt::Display for Method {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A name that no method has.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no method is called `{name}`; there are {}", names())]
pub struct UnknownMethod {
    /// The name.
    pub name: String,
}

fn names() -> String {
    Method::ALL.map(Method::name).join(", ")
}

impl FromStr for Method {
    type Err = UnknownMethod;
    fn from_str(name: &str) -> Result<Self, UnknownMethod> {
        let found = Self::ALL.into_iter().find(|method| method.name() == name);
        found.ok_or_else(|| UnknownMethod {
            name: name.to_owned(),
        })
    }
}

/// A plan and what is known about it.
#[derive(Clone, Debug, PartialEq)]
pub struct Planned {
    /// The method that was asked for.
    pub method: Method,
    /// Trees over all nodes of the network, which can be executed as they are.
    pub plan: Plan,
    /// The same between clusters, as people think of it: the trees that differ between clusters,
    /// with the rates of their lanes summed.
    pub routes: Vec<Route>,
    /// What the plan brings to every node at once, within all capacities.
    pub throughput: Rate,
    /// The most that any plan could; see [`Planned::exact`].
    pub optimum: Rate,
    /// Whether `optimum` was solved for. Otherwise it is a bound that may be out of reach.
    pub exact: bool,
    /// What the plan uses up, in the order of [`Resource`].
    pub saturated: Vec<Resource>,
    /// Why another method had to stand in, if one had to.
    pub fallback: Option<String>,
}

impl Planned {
    /// How far the throughput is below the optimum, as a share of it.
    pub fn gap(&self) -> f64 {
        match self.throughput < self.optimum {
            true if self.optimum.is_unlimited() => 1.0,
            true => 1.0 - self.throughput.bytes_per_s() / self.optimum.bytes_per_s(),
            false => 0.0,
        }
    }
}

/// A tree between clusters; between nodes, if the network is one cluster.
#[derive(Clone, Debug, PartialEq)]
pub struct Route {
    /// The sum over its lanes.
    pub rate: Rate,
    /// From site to site, in the order in which data gets there.
    pub edges: Vec<(Place, Place)>,
}

/// An end of a [`Route`]'s edge.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Place {
    /// A cluster.
    Cluster(ClusterId),
    /// A node of the only cluster there is, or of one whose nodes cannot talk to each other.
    Node(NodeId),
}

impl Place {
    /// The name of the place; that of the node for a cluster of one.
    pub fn name(self, network: &Network) -> &str {
        match self {
            Self::Cluster(id) => &network.clusters()[id.index()].name,
            Self::Node(node) => network.name(node),
        }
    }
}

/// Why there is no plan.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PlanError {
    /// A source is missing, or the sources do not reach all nodes.
    #[error(transparent)]
    Limit(#[from] LimitError),
    /// The trees together would have too many edges.
    #[error("a plan for {nodes} nodes would have {edges} edges, where {EDGES_MAX} are the most")]
    TooLarge {
        /// How many nodes there are.
        nodes: u32,
        /// How many edges the trees have together.
        edges: usize,
    },
}

/// Plans how to bring an object from `sources`, which all have it, to every other node of `network`.
/// Shapes that are fixed (chain, binary, binomial) use the first source alone.
///
/// # Errors
/// If there is no source or one is no node of the network, some node cannot be reached, or the plan would be too
/// large.
///
/// ```
/// use outpour_core::network::Network;
/// use outpour_planner::multicast::{Method, plan};
/// let network = Network::from_toml(
///     "[[cluster]]\nname = 'A'\nnodes = 1\nout = '10 MB/s'\nin = '10 MB/s'\n\
///      [[cluster]]\nname = 'B'\nnodes = 1\nout = '10 MB/s'\nin = '10 MB/s'\n\
///      [[cluster]]\nname = 'C'\nnodes = 1\nout = '10 MB/s'\nin = '10 MB/s'\n",
///     "net.toml",
/// )?;
/// let planned = plan(&network, &[network.node("A").unwrap()], Method::Direct)?;
/// assert_eq!(planned.throughput.to_string(), "5 MB/s");
/// assert_eq!(planned.optimum.to_string(), "10 MB/s");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn plan(network: &Network, sources: &[NodeId], method: Method) -> Result<Planned, PlanError> {
    let limit = limit(network, sources, Bytes::ZERO)?;
    let mut sources = sources.to_vec();
    sources.sort_unstable();
    sources.dedup();
    let sites = Sites::new(network, &sources);
    let mut found = find(&sites, method);
    let mut rated = execute(&sites, &found, method)?;
    let mut routes = routes(&sites, &found.trees, &rated.lanes);
    // Where clusters cannot be taken for hosts, say because their nodes have too little to spare
    // for each other, the nodes themselves can be.
    let enough = limit.throughput.bytes_per_s() * (1.0 - ROUNDING);
    let hosts = (method == Method::Optimal && rated.throughput().bytes_per_s() < enough)
        .then(|| Sites::of_few_nodes(network, &sources))
        .flatten();
    if let Some(hosts) = hosts {
        let other = find(&hosts, method);
        let better = execute(&hosts, &other, method)?;
        if better.throughput() > rated.throughput() {
            routes = self::routes(&hosts, &other.trees, &better.lanes);
            (found, rated) = (other, better);
        }
    }
    let throughput = rated.throughput();
    if throughput.is_zero() && method != Method::Optimal {
        return Ok(Planned {
            method,
            fallback: Some(NOTHING_PASSES.to_owned()),
            ..plan(network, &sources, Method::Optimal)?
        });
    }
    let (optimum, exact) = match found.bound {
        Some((bound, exact)) if !limit.exact => (limit.throughput.min(bound), exact),
        _ => (limit.throughput, limit.exact),
    };
    Ok(Planned {
        method,
        plan: Plan {
            roots: sources,
            trees: rated.lanes.into_iter().map(|lane| lane.tree).collect(),
        },
        routes,
        throughput,
        // A plan at the optimum may be a rounding above it.
        optimum: optimum.max(throughput),
        exact,
        saturated: rated.saturated,
        fallback: found.fallback,
    })
}

/// What a method found.
struct Found {
    trees: Vec<SiteTree>,
    /// What no plan exceeds, and whether that is the optimum; if the method says so.
    bound: Option<(Rate, bool)>,
    fallback: Option<String>,
}

impl Found {
    const fn new(trees: Vec<SiteTree>) -> Self {
        Self {
            trees,
            bound: None,
            fallback: None,
        }
    }
}

/// The trees of a method between sites.
fn find(sites: &Sites<'_>, method: Method) -> Found {
    match method {
        Method::Direct | Method::Magpie => Found::new(vec![direct::tree(sites)]),
        Method::Chain => Found::new(vec![shapes::chain(sites)]),
        Method::Binary => Found::new(vec![shapes::binary(sites)]),
        Method::Binomial => Found::new(vec![shapes::binomial(sites)]),
        Method::MaxBottleneck => Found::new(vec![search::max_bottleneck(sites)]),
        Method::Fpfr => Found::new(search::fpfr(sites)),
        Method::Balanced => {
            let trees = search::fpfr(sites);
            match packing::balance(sites, &trees) {
                Some(balanced) => Found::new(balanced),
                None => Found {
                    fallback: Some(SOLVER_FAILED.to_owned()),
                    ..Found::new(trees)
                },
            }
        }
        Method::Optimal => match packing::optimal(sites) {
            Some(best) => Found {
                bound: sites.bounds_nodes().then_some((best.upper, best.exact)),
                ..Found::new(best.trees)
            },
            None => Found {
                fallback: Some(SOLVER_FAILED.to_owned()),
                ..Found::new(search::fpfr(sites))
            },
        },
    }
}

/// Lanes for the trees, at rates that fit.
fn execute(sites: &Sites<'_>, found: &Found, method: Method) -> Result<Rated, PlanError> {
    let lanes = match method {
        Method::Magpie => lanes::gateways(sites, &found.trees),
        _ => lanes::lay(sites, &found.trees),
    };
    let edges = lanes.iter().map(|lane| lane.tree.edges.len()).sum();
    if edges > EDGES_MAX {
        let nodes = sites.network.node_count();
        return Err(PlanError::TooLarge { nodes, edges });
    }
    let shaped = matches!(method, Method::Balanced | Method::Optimal) && found.fallback.is_none();
    Ok(rates::fit(sites.network, lanes, shaped))
}

/// The trees between sites with what their lanes carry.
fn routes(sites: &Sites<'_>, trees: &[SiteTree], lanes: &[lanes::Lane]) -> Vec<Route> {
    let routes = trees.iter().enumerate().map(|(index, tree)| {
        let lanes = lanes.iter().filter(|lane| lane.of == index);
        Route {
            rate: lanes.map(|lane| lane.tree.rate).sum(),
            edges: (tree.edges.iter())
                .map(|(from, to)| (sites.place(*from), sites.place(*to)))
                .collect(),
        }
    });
    routes.filter(|route| !route.rate.is_zero()).collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use crate::lp::failing;

    /// Five hosts whose best plan takes several trees, and several programs to find.
    fn network() -> Network {
        let mut text = String::new();
        for (host, (out, into)) in [(90, 50), (40, 60), (30, 70), (55, 45), (20, 80)]
            .into_iter()
            .enumerate()
        {
            text.push_str(&format!(
                "[[cluster]]\nname='h{host}'\nnodes=1\nout='{out} MB/s'\nin='{into} MB/s'\n"
            ));
        }
        for (a, b) in (0..5).flat_map(|a| (0..5).map(move |b| (a, b))) {
            let rate = 3 + (7 * a + 11 * b) % 17;
            if a != b {
                text.push_str(&format!(
                    "[[link]]\nfrom='h{a}'\nto='h{b}'\nrate='{rate} MB/s'\n"
                ));
            }
        }
        Network::from_toml(&text, "net.toml").unwrap()
    }

    /// Whenever the solver fails there is a plan all the same: that of fpfr, which says so, or a
    /// whole one that the lost program would not have bettered.
    #[test]
    fn where_the_solver_fails_fpfr_stands_in_and_says_so() {
        let network = network();
        let root = NodeId(0);
        let trees = plan(&network, &[root], Method::Fpfr).unwrap();
        for method in [Method::Balanced, Method::Optimal] {
            let whole = plan(&network, &[root], method).unwrap();
            assert_eq!(whole.fallback, None);
            assert!(whole.throughput > trees.throughput);
            let mut fallbacks = 0;
            for calls in 0.. {
                let (planned, failed) =
                    failing::after(calls, || plan(&network, &[root], method).unwrap());
                if !failed {
                    break;
                }
                planned.plan.check(network.node_count()).unwrap();
                if planned.fallback.is_some() {
                    fallbacks += 1;
                    assert_eq!(planned.fallback.as_deref(), Some(SOLVER_FAILED));
                    assert_eq!(planned.method, method);
                    assert_eq!(planned.plan, trees.plan);
                } else {
                    let least = whole.throughput.bytes_per_s() * (1.0 - ROUNDING);
                    assert!(planned.throughput.bytes_per_s() >= least);
                }
            }
            assert!(fallbacks > 0);
        }
    }
}
