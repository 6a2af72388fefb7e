//! The limit of a transfer: the least time the network model allows for it.
//!
//! # Throughput
//!
//! Averaged over a transfer, data flows from node to node at rates that fit the capacities of the
//! model, and across every boundary that parts the sources from a receiver it has to flow at least at
//! the rate at which the whole object arrives. The largest rate `r` for which such flows exist is
//! therefore a bound on every method; and where all nodes are receivers it can be reached, because
//! a network with that much flow across every boundary splits into spanning trees of total rate
//! `r` (Edmonds). Capacities shared by several flows (access links of nodes and clusters) are rows
//! of a linear program; the boundaries are its cuts, found as they are violated by maximum flows.
//!
//! Equal nodes need no variables of their own. Swapping two of them changes nothing, so averaging
//! a solution over all swaps gives one that is as good and treats them alike; the program has one
//! flow per ordered pair of *classes* of equal nodes. The boundaries that matter then take a class
//! wholly or not at all (the flow across is concave in the number of members taken), but for the
//! class of the receiver in question, which is parted from it alone.
//!
//! # Time
//!
//! Delays overlap with sending, so the largest delay may not simply be added: a receiver near the
//! sources can be served last. What holds is this. Data for receivers that are all at least `d` away
//! moves on no link, and through no node, for longer than the whole time less `d`. So for every
//! set of receivers the time is at least `d + size / r`, with their own `d` and `r`; the limit is
//! the largest of these over the sets "at least that far away".

mod classes;
mod cuts;
mod flow;
mod model;
mod program;
mod throughput;

use std::time::Duration;

use outpour_core::network::Network;
use outpour_core::{Bytes, NodeId, Rate};

use model::Model;

/// How many sets of receivers are tried for the effect of their delay. Each is a bound by itself,
/// so leaving some out costs precision, never truth.
const DELAY_SETS_MAX: usize = 6;

/// What the delay of a set has to be able to add to the limit before it is looked into, relative.
const DELAY_GAIN_MIN: f64 = 1e-3;

/// The numerical error of a solved program, relative; rates are rounded up by it so that a limit
/// stays one.
const ROUNDING: f64 = 1e-6;

/// The least time in which an object can reach its receivers.
#[derive(Clone, Debug, PartialEq)]
pub struct Limit {
    /// The highest rate at which all receivers together can be served: the object's size over the
    /// time, for an object so large that delay does not count.
    pub throughput: Rate,
    /// The least time, delays included.
    pub seconds: f64,
    /// What keeps the throughput from being higher, in words.
    pub bottleneck: String,
    /// Whether the throughput was solved for. Otherwise the network has too many different parts
    /// for that, and the limit rests on each of them alone: still true, perhaps out of reach.
    pub exact: bool,
}

/// Why there is no limit.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LimitError {
    /// An id that is not of this network.
    #[error("node {node} is not in the network, which has {count} nodes")]
    UnknownNode {
        /// The id.
        node: NodeId,
        /// How many nodes there are.
        count: u32,
    },
    /// No node has the object.
    #[error("no node has the object")]
    NoSource,
    /// A receiver that nothing can reach.
    #[error("no path from `{sources}` to `{node}`: every path has a link or a node of rate 0")]
    Unreachable {
        /// The names of the sources.
        sources: String,
        /// The name of the receiver.
        node: String,
    },
}

/// The limit for bringing `size` bytes from `sources`, which all have them, to every other node of
/// `network`.
///
/// # Errors
/// If there is no source or one is no node of the network, or some node cannot be reached.
///
/// ```
/// use outpour_core::network::Network;
/// use outpour_core::{Bytes, Rate};
/// let rate: Rate = "15 Mbit/s".parse()?;
/// let network = Network::uniform(20, rate, rate, std::time::Duration::ZERO)?;
/// let limit = outpour_planner::limit(&network, &[network.node("n0").unwrap()], Bytes(100_000_000))?;
/// assert_eq!(limit.throughput, rate);
/// assert!((limit.seconds - 53.33).abs() < 0.01);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn limit(network: &Network, sources: &[NodeId], size: Bytes) -> Result<Limit, LimitError> {
    let all: Vec<NodeId> = network.nodes().collect();
    limit_for(network, sources, &all, size)
}

/// The limit for bringing `size` bytes from `sources` to `receivers`; other nodes may pass data on.
///
/// A source among the receivers counts for nothing, as does a node that is named twice.
///
/// # Errors
/// If there is no source, a source or a receiver is no node of the network, or some receiver cannot be reached.
pub fn limit_for(
    network: &Network,
    sources: &[NodeId],
    receivers: &[NodeId],
    size: Bytes,
) -> Result<Limit, LimitError> {
    let count = network.node_count();
    if sources.is_empty() {
        return Err(LimitError::NoSource);
    }
    if let Some(node) = sources.iter().chain(receivers).find(|node| node.0 >= count) {
        return Err(LimitError::UnknownNode { node: *node, count });
    }
    let mut wanted = vec![false; count as usize];
    for node in receivers {
        wanted[node.index()] = true;
    }
    for source in sources {
        wanted[source.index()] = false;
    }
    let mut model = Model::new(network, sources, &wanted);
    let delays = model.delays();
    let unreachable = (model.classes.iter().zip(&delays))
        .find(|(class, delay)| class.receives && delay.is_none());
    if let Some((class, _)) = unreachable {
        let names: Vec<&str> = sources.iter().map(|node| network.name(*node)).collect();
        return Err(LimitError::Unreachable {
            sources: names.join("` or `"),
            node: network.name(class.first).to_owned(),
        });
    }

    let best = model.throughput();
    let seconds = match size {
        Bytes::ZERO => 0.0,
        _ => least_seconds(&mut model, &delays, best.rate, size),
    };
    Ok(Limit {
        throughput: best.rate,
        seconds,
        bottleneck: best.bottleneck,
        exact: best.exact,
    })
}

/// The largest of `delay + size / rate` over sets of receivers at least so far away; `all` is the
/// rate of all of them. Leaves `model` with some of its receivers struck off.
fn least_seconds(model: &mut Model, delays: &[Option<Duration>], all: Rate, size: Bytes) -> f64 {
    let mut far: Vec<Duration> = (model.classes.iter().zip(delays))
        .filter_map(|(class, delay)| delay.filter(|_| class.receives))
        .collect();
    far.sort_unstable();
    far.dedup();
    let nearest = far.first().copied().unwrap_or(Duration::ZERO);
    let mut least = nearest.as_secs_f64() + all.seconds_for(size);

    let receives: Vec<bool> = model.classes.iter().map(|class| class.receives).collect();
    let step = far.len().div_ceil(DELAY_SETS_MAX).max(1);
    // The farthest first: the nearer ones often cannot add anything to what it gives.
    for delay in far.into_iter().skip(1).rev().step_by(step) {
        // Fewer receivers are never slower to serve, so this is the most the set can give.
        let most = delay.as_secs_f64() + all.seconds_for(size);
        if most <= least * (1.0 + DELAY_GAIN_MIN) {
            break;
        }
        for (index, class) in model.classes.iter_mut().enumerate() {
            class.receives = receives[index] && delays[index] >= Some(delay);
        }
        let rate = model.throughput().rate;
        least = least.max(delay.as_secs_f64() + rate.seconds_for(size));
    }
    least
}
