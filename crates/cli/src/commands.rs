//! One file per command: from what was typed to what is meant, done, and printed.

pub mod agent;
#[cfg(test)]
mod alike;
pub mod cast;
mod demo;
pub mod emulate;
mod flows;
mod fluid;
pub mod generate;
mod hash;
mod plan;
mod probe;
mod protocols;
mod push;
mod replicate;
mod shuffle;
mod sim;
mod traffic;
pub mod trust;
mod verify;

use std::future::Future;

use crate::args::plan::PlanCommand;
use crate::args::{Cli, Command, SimCommand};
use crate::out::Failure;

pub use sim::network;

/// Runs a command.
///
/// # Errors
/// If the command line turns out to be wrong, or the command fails.
pub(crate) fn run(command: Command) -> Result<(), Failure> {
    match command {
        Command::Cast(args) => cast::run(*args),
        Command::Plan(PlanCommand::Multicast(args)) => plan::multicast(&args),
        Command::Plan(PlanCommand::Replicate(args)) => replicate::plan(&args),
        Command::Plan(PlanCommand::Shuffle(args)) => shuffle::run(&args),
        Command::Sim(SimCommand::Cast(args)) => sim::cast(&args),
        Command::Sim(SimCommand::Replicate(args)) => replicate::run(&args),
        Command::Sim(SimCommand::Shuffle(args)) => shuffle::simulate::run(&args),
        Command::Sim(SimCommand::Fluid(args)) => fluid::run(&args),
        Command::Sim(SimCommand::Flows(args)) => flows::run(&args),
        Command::Sim(SimCommand::Push(args)) => push::run(&args),
        Command::Sim(SimCommand::Fuzz(args)) => sim::fuzz(&args),
        Command::Probe(args) => probe::run(&args),
        Command::Hash(args) => hash::run(&args),
        Command::Verify(args) => verify::run(&args),
        Command::Protocols(args) => {
            protocols::run(&args);
            Ok(())
        }
        Command::Agent(args) => agent::run(args, None),
        Command::Demo(args) => demo::run(&args),
        Command::Emulate(args) => emulate::run(&args),
        Command::Exec(args) => emulate::exec(&args),
        Command::Tell(args) => emulate::tell(&args),
        Command::Trust(command) => trust::run(command),
        Command::Completions { shell } => {
            generate::completions::<Cli>(shell);
            Ok(())
        }
        Command::Man { output } => generate::man::<Cli>(output.as_deref()),
    }
}

/// Runs `task` on a runtime of its own and leaves behind what still blocks when it is done, such
/// as a read of standard input.
fn block_on<T>(task: impl Future<Output = Result<T, Failure>>) -> Result<T, Failure> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .map_err(|error| Failure::Failed(format!("cannot start threads: {error}")))?;
    let done = runtime.block_on(task);
    runtime.shutdown_background();
    done
}
