//! The arguments of `outpour bench`.

use std::path::PathBuf;

use clap::builder::{PossibleValue, PossibleValuesParser};
use clap::{Args, Subcommand, ValueHint};
use outpour_experiments::{ENTRIES, methods};

use super::{EXIT_CODES, Output};

/// All experiments, and the page of them.
pub(crate) const ALL: &str = "all";
/// The page alone.
pub(crate) const PAGE: &str = "page";

#[derive(Debug, Subcommand)]
pub(crate) enum BenchCommand {
    Grid(BenchGridArgs),
}

/// Measure how data gets from cluster to cluster, by every method there is
///
/// Repeats the experiments of the thesis that Balanced Multicasting, MOB and Robber come from, and
/// compares every method with the optimum. Each experiment leaves a JSON file and its plots.
#[derive(Debug, Args)]
#[command(after_help = EXIT_CODES)]
pub(crate) struct BenchGridArgs {
    /// Which experiments, or the page
    #[arg(required = true, value_name = "EXPERIMENT", value_parser = experiments())]
    pub(crate) names: Vec<String>,

    /// Make everything small: to see that it works, not to prove anything
    #[arg(long)]
    pub(crate) short: bool,

    /// Seed of everything drawn at random
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) seed: u64,

    /// Where the JSON files and plots go
    #[arg(long, value_name = "DIR", default_value = "experiments", value_hint = ValueHint::DirPath)]
    pub(crate) output: PathBuf,

    /// Only these methods, separated by commas
    #[arg(long, value_name = "METHOD", value_delimiter = ',')]
    #[arg(value_parser = PossibleValuesParser::new(methods()))]
    pub(crate) only: Vec<String>,

    /// Another table of capacities for `gridlab`, in MB/s
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) data: Option<PathBuf>,

    /// How many simulations run at a time; 0 for one per core
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub(crate) threads: usize,

    /// Where `page` writes
    #[arg(long, value_name = "FILE", default_value = "docs/experiments/grid.md")]
    #[arg(value_hint = ValueHint::FilePath)]
    pub(crate) page: PathBuf,

    #[command(flatten)]
    pub(crate) show: Output,
}

/// The experiments by name, each with its line in the help.
fn experiments() -> PossibleValuesParser {
    let named = ENTRIES
        .iter()
        .map(|entry| PossibleValue::new(entry.name).help(entry.about));
    let more = [
        PossibleValue::new(ALL).help("all of them; what fails is reported at the end"),
        PossibleValue::new(PAGE).help("write the page that compares their findings"),
    ];
    PossibleValuesParser::new(named.chain(more))
}
