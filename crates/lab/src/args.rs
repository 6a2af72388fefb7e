//! The command line as it is typed.

// The documentation of arguments is their help text, where brackets are no links.
#![allow(rustdoc::broken_intra_doc_links)]

pub(crate) mod bench;
pub(crate) mod gossip;
pub(crate) mod jobs;

use std::path::PathBuf;

use clap::{Parser, Subcommand, ValueHint};
use clap_complete::Shell;
use outpour_cli::CommandLine;
use outpour_cli::args::emulate::{EmulateArgs, ExecArgs};
use outpour_cli::args::trust::TrustCommand;
use outpour_cli::args::{AgentArgs, CastArgs, EXIT_CODES, Output};
use outpour_cli::out::Failure;

use crate::commands;

/// Outpour's experiments and their parts
#[derive(Debug, Parser)]
#[command(name = "outpour-lab", version, after_help = EXIT_CODES, max_term_width = 100)]
#[command(arg_required_else_help = true, propagate_version = true)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,

    /// Log to standard error; repeat for full detail
    ///
    /// The environment variable OUTPOUR_LOG overrides this with a filter such as `outpour_net=trace`.
    #[arg(short, long, global = true, action = clap::ArgAction::Count)]
    pub(crate) verbose: u8,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run experiments; write their plots and pages
    #[command(subcommand, arg_required_else_help = true)]
    Bench(bench::BenchCommand),
    /// Simulate models that are analysed on paper
    #[command(subcommand, arg_required_else_help = true)]
    Sim(SimCommand),
    Jobs(jobs::JobsArgs),
    /// Run an agent like `outpour agent`, which can be made to lie
    ///
    /// Inside an emulated network, OUTPOUR_WRONG_PACKETS=n4=0.05 makes the agent on node n4 send one in
    /// twenty of its coded packets with a wrong byte, and OUTPOUR_ROGUE=n4=flood makes it no agent at all, but
    /// one that does harm: flood, drip, mute, chatter, claim or hoard.
    Agent(AgentArgs),
    /// Like `outpour cast`, with the agent of this program
    #[command(hide = true)]
    Cast(Box<CastArgs>),
    /// Like `outpour emulate`
    #[command(hide = true)]
    Emulate(EmulateArgs),
    /// Like `outpour trust`
    #[command(hide = true, subcommand)]
    Trust(TrustCommand),
    /// Like `outpour exec`
    #[command(hide = true)]
    Exec(ExecArgs),
    /// Print shell completions
    Completions {
        /// The shell
        shell: Shell,
    },
    /// Print the manual page, or write one page per command
    Man {
        /// Write the pages to this directory instead
        #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
        output: Option<PathBuf>,
    },
}

#[derive(Debug, Subcommand)]
pub(crate) enum SimCommand {
    Gossip(gossip::SimGossipArgs),
}

impl CommandLine for Cli {
    fn verbose(&self) -> u8 {
        self.verbose
    }

    fn output(&self) -> Option<Output> {
        match &self.command {
            Command::Cast(args) => Some(args.output()),
            _ => None,
        }
    }

    fn run(self) -> Result<(), Failure> {
        commands::run(self.command)
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    #[test]
    fn the_definition_is_sound() {
        super::Cli::command().debug_assert();
    }
}
