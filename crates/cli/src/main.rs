//! Moves bulk data to many hosts in close to the least time the network allows.

use std::process::ExitCode;

use outpour_cli::args::Cli;

fn main() -> ExitCode {
    outpour_cli::start::<Cli>()
}
