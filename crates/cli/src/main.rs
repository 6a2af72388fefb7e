//! Moves bulk data to many hosts in close to the least time the network allows.

use std::process::ExitCode;

use mimalloc::MiMalloc;
use outpour_cli::args::Cli;

#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

fn main() -> ExitCode {
    outpour_cli::start::<Cli>()
}
