//! One node's part in a cast: protocol, data plane and store joined, on both ends of a control
//! channel.
//!
//! [`session::serve`] is the agent's end; [`cast::run`] is the end of the command that hosts the
//! coordinator and the source. How a control channel comes to be is the [`launch::Launcher`]'s
//! business: SSH, a child process, or TLS to a running service.

mod bounds;
mod budget;
pub mod cast;
mod clock;
mod coded;
mod content;
pub mod control;
mod disk;
mod epochs;
#[doc(hidden)]
pub mod fuzzing;
pub mod launch;
mod mailbox;
mod node;
pub mod probe;
pub mod session;
pub mod view;
mod wrap;

pub use epochs::{Epochs, EpochsError, TRANSFERS_MAX};
pub use wrap::Wrap;
