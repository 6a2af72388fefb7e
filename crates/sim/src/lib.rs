//! Flow-level simulator that drives the real protocols in virtual time.
//!
//! A result from here is a statement about the program that users run: the protocols, the nodes and
//! the coordinator are the very state machines that real agents host, built from the same registry.
//! Only what a simulation is differs: [`queue`] is the clock, [`flow`] the network, and a block's
//! bytes are a token. [`world`] joins them and lists what is assumed.
//!
//! - [`cast::simulate`] answers what a transfer would take on a given network.
//! - [`replicate::replicate`] answers what jobs of many sites would take under the central controller.
//! - [`fluid::Fluid::run`] answers how flows under weighted fair congestion control share a link, by equations.
//! - [`packets::flows::Flows::run`] plays flows packet by packet, as senders and receivers really are.
//! - [`rounds::run`] plays a gossip in rounds, as it is analysed on paper.
//! - [`fuzz::fuzz`] plays random transfers with random faults, see [`fault`], and holds each
//!   against what must be true of all, see [`check`].
//!
//! Everything follows from a seed: the same seed gives the same trace, event by event.

pub mod cast;
mod chart;
pub mod check;
mod dice;
pub mod fault;
pub mod flow;
pub mod fluid;
pub mod fuzz;
pub mod object;
pub mod pacer;
pub mod packets;
pub mod parallel;
pub mod queue;
pub mod replicate;
pub mod rogue;
pub mod rounds;
pub mod shuffle;
mod trace;
pub mod transport;
mod wires;
pub mod world;
