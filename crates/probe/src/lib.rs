//! Measuring a network between running agents.
//!
//! Plans are only as good as the figures they are made from, and those of a real network have to
//! be measured: how long a packet takes there and back, how fast the data plane moves data between
//! two nodes, how fast a node or a cluster sends and receives in all, and which paths share a link
//! [Burger §2.3, §2.5]. Which node measures what and when is decided apart from the sockets that
//! do it:
//!
//! - [`schedule`]: whose turn it is. Measurements that share a link spoil each other, so there is
//!   one token in each cluster, and one among the clusters' representatives;
//! - [`estimate`], [`available`]: from arrival times to rates;
//! - [`hops`]: routes, and the links that several of them share;
//! - [`fit`]: from all measurements to a network that planning, simulation and casting take;
//! - [`history`], [`forecast`]: what was measured before, and what to expect next;
//! - [`node`]: one node's part, on sockets.

pub mod available;
pub mod estimate;
pub mod fit;
pub mod forecast;
#[doc(hidden)]
pub mod fuzzing;
pub mod history;
pub mod hops;
pub mod message;
pub mod node;
mod reflector;
pub mod schedule;
mod train;
