//! Central scheduling: one controller decides which server sends which blocks where, and how fast.
//!
//! Every few seconds it looks at what all servers have, what the network can carry besides
//! latency-sensitive traffic, and what jobs ask for, and gives each agent the difference to its last
//! orders [BDS §4, §5]. A cycle has two steps. *Scheduling* takes the blocks of the fewest copies;
//! *routing* finds how much to send between which servers so that the most gets through. Both work
//! on runs of blocks in equal state, and on sites instead of servers where there are many, so the
//! work of a cycle grows with what is moved in it.
//!
//! ```
//! use outpour_controller::{Config, Controller, Destinations, Input, Job};
//! use outpour_core::network::Network;
//! use outpour_core::{Bytes, NodeId, Time};
//! let network = Network::uniform(3, "10 MB/s".parse()?, "10 MB/s".parse()?, Default::default())?;
//! let mut controller = Controller::new(network, Config::default())?;
//! for node in [0, 1, 2].map(NodeId) {
//!     controller.handle(Input::Came { node })?;
//! }
//! let to = Destinations::Nodes(vec![NodeId(1), NodeId(2)]);
//! let job = Job::new(Bytes(1_000_000_000), Bytes(1_000_000), [NodeId(0)], to);
//! controller.submit(Time::ZERO, job)?;
//! let decision = controller.decide(Time::ZERO);
//! // The source sends at its full rate, different blocks to each.
//! assert_eq!(decision.planned_bytes, 30e6);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod blocks;
mod config;
mod controller;
mod decide;
mod demand;
mod estimate;
mod file;
mod fill;
mod input;
mod job;
mod notice;
mod order;
mod room;
mod route;
mod task;

pub use blocks::Runs;
pub use config::{CYCLE_MAX, CYCLE_MIN, Config, ConfigError, Method};
pub use controller::{Admitted, Controller, NOTICES_MAX, SEVERED_MAX};
pub use file::{FileError, NamedJob, ReadJobs, TEXT_BYTES_MAX, read_jobs};
pub use input::{Blocks, Input, InputError, RUNS_MAX, Report};
pub use job::{BLOCKS_MAX, Destinations, FINE_MEMBERS_MAX, JOBS_MAX, Job, JobError, JobId, Source};
pub use notice::{Decision, Notice, cannot_meet};
pub use order::{Change, Order, Stamp};
