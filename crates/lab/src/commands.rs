//! One file per command: from what was typed to what is meant, done, and printed.

mod bench;
mod gossip;
mod jobs;

use outpour_cli::commands::{agent, cast, emulate, generate, trust};
use outpour_cli::out::Failure;

use crate::args::bench::BenchCommand;
use crate::args::{Cli, Command, SimCommand};
use crate::{foreground, liar, rogue, stranger};

/// Runs a command.
///
/// # Errors
/// If the command line turns out to be wrong, or the command fails.
pub(crate) fn run(command: Command) -> Result<(), Failure> {
    match command {
        Command::Bench(BenchCommand::Grid(args)) => bench::grid(&args),
        Command::Bench(BenchCommand::Gossip(args)) => bench::gossip(&args),
        Command::Bench(BenchCommand::Replicate(args)) => bench::replicate(&args),
        Command::Bench(BenchCommand::Shuffle(args)) => bench::shuffle(&args),
        Command::Bench(BenchCommand::Push(args)) => bench::push(&args),
        Command::Bench(BenchCommand::Tracker) => bench::tracker(),
        Command::Sim(SimCommand::Gossip(args)) => gossip::run(&args),
        Command::Jobs(args) => jobs::run(&args),
        Command::Agent(args) => match rogue::asked_for()? {
            Some(attack) => rogue::run(attack),
            None => agent::run(args, liar::asked_for()?),
        },
        Command::Bench(BenchCommand::Stranger) => stranger::run(),
        Command::Bench(BenchCommand::Foreground(args)) => foreground::run(&args),
        Command::Bench(BenchCommand::Trust(args)) => bench::trust(&args),
        Command::Cast(args) => cast::run(*args),
        Command::Emulate(args) => emulate::run(&args),
        Command::Trust(command) => trust::run(command),
        Command::Exec(args) => emulate::exec(&args),
        Command::Completions { shell } => {
            generate::completions::<Cli>(shell);
            Ok(())
        }
        Command::Man { output } => generate::man::<Cli>(output.as_deref()),
    }
}
