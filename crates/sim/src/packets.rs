//! Senders and receivers on a network packet by packet, in virtual time.
//!
//! A [`World`] joins an [engine](outpour_packets::Engine) with machines at its ends: each is an
//! [`Endpoint`] without I/O, to which packets come and from which packets go, along ways that were
//! laid before. It knows nothing of what the machines say to each other, so a handful of flows
//! ([`flows`]) and whole tasks of many sources ([`tasks`]) are driven alike.
//!
//! Machines here: [`tcp`] with any congestion control, [`dccp`], [`scdp`], and those of Parallel Push.
//!
//! Everything follows from what is set up and one seed; equal runs give equal traces. Nothing is
//! allocated for a packet once queues and tables have grown to their sizes.

pub mod dccp;
pub mod flows;
mod rto;
pub mod scdp;
pub mod tasks;
pub mod tcp;
mod world;

pub use rto::RtoBounds;
pub use world::{Endpoint, EndpointId, Incoming, Outgoing, Packet, Way, WayCounts, WayId, World};
