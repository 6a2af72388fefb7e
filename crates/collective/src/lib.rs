//! Collective operations between clusters, as library calls.
//!
//! A parallel program whose processes run in several clusters opens a [`Group`] once and then
//! exchanges data over it again and again. [`Group::all_gather`] brings what each member has to
//! every member; [`Group::multicast`] brings what one has to all. Both move blocks by Robber, so
//! each byte enters each cluster once and every pair of clusters carries a share
//! ([Burger §5.2.3]): all-gather uses one series per cluster, on which the nodes of the cluster
//! hold the stripes of what is multicast.
//!
//! ```no_run
//! # async fn example() -> Result<(), outpour_collective::GroupError> {
//! use outpour_collective::{Group, JoinConfig, Rendezvous};
//!
//! // Once, anywhere: a place to meet for eight members. The ticket is secret.
//! let rendezvous = Rendezvous::bind(([10, 0, 0, 1], 0).into(), 8).await?;
//! let ticket = rendezvous.ticket().to_string();
//! tokio::spawn(rendezvous.serve());
//!
//! // In each of the eight processes, which have the ticket:
//! let mut group = Group::join(JoinConfig::new(ticket.parse()?, 3, "cluster-b")).await?;
//! let all = group.all_gather(b"mine").await?;
//! assert_eq!(all[3], b"mine");
//! group.leave().await?;
//! # Ok(())
//! # }
//! ```
//!
//! # Security
//!
//! Members find each other at a [`Rendezvous`], which holds the authority of the group. A process
//! that knows the [`Ticket`] is a member; everything said there is authenticated by a key derived
//! from it, in both directions, and nothing said there is secret. Members then talk over mutually
//! authenticated TLS 1.3. Every block is verified against the BLAKE3 hashes that its owner told
//! each member itself.
//!
//! # Failures
//!
//! A collective operation needs every member. If one stays unreachable for
//! [`JoinConfig::patience`], or breaks the protocol, the operation under way and all later ones
//! fail with [`GroupError::Lost`], which says which member it was. A connection that breaks and
//! comes back sooner does no harm.

mod driver;
mod error;
#[doc(hidden)]
pub mod fuzzing;
mod group;
mod rendezvous;
mod store;
mod ticket;
mod track;
mod wire;

pub use error::GroupError;
pub use group::{Group, JoinConfig};
pub use rendezvous::Rendezvous;
pub use ticket::{Ticket, TicketError};

/// How many members a group may have; each is connected with every other.
pub const MEMBERS_MAX: u32 = 256;

/// How many bytes a member may give to one operation.
pub const BYTES_MAX: usize = 1 << 30;
