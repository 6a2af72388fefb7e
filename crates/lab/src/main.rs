//! What serves research and not users: experiments with real casts in emulated networks and in the
//! simulator, and an agent that can be made to lie.
//!
//! Experiments start this program for everything that they need: it emulates, casts and runs agents
//! as `outpour` does, by the same code.

mod args;
mod commands;
mod foreground;
mod liar;
mod rogue;
mod stranger;

use std::process::ExitCode;

use mimalloc::MiMalloc;

#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

fn main() -> ExitCode {
    outpour_cli::start::<args::Cli>()
}
