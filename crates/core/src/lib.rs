//! Vocabulary of Outpour: ids, units, block sets, manifest, network model, topologies.
//!
//! Everything here is plain data: no files, sockets, clocks or threads. The other crates speak to
//! each other in these types, so one concept has one name from the command line to the wire.

pub mod batches;
pub mod blocks;
pub mod holding;
pub mod id;
pub mod manifest;
pub mod network;
pub mod plan;
pub mod priority;
pub mod script;
pub mod separation;
pub mod text;
pub mod time;
pub mod toml_lines;
pub mod topology;
pub mod units;

pub use batches::{BatchId, Batches};
pub use blocks::{BlockId, BlockSet, MESSAGE_BYTES_MAX};
pub use holding::{Holding, Support, Worth};
pub use id::NodeId;
pub use network::Network;
pub use plan::Plan;
pub use priority::Priority;
pub use separation::{Separation, Traffic};
pub use time::Time;
pub use units::{Bytes, Rate};
