//! The arguments of `outpour-lab jobs`.

use std::path::PathBuf;

use clap::{Args, ValueHint};
use outpour_cli::args::EXIT_CODES;
use outpour_experiments::replicate::workload::{DAYS, TRANSFERS};

/// Write a file of jobs such as come to a provider of online services in a week
///
/// Nine of ten jobs go to at least 60 % of the sites and seven to more than 80 %; nine have more than
/// 50 GB and six more than 1 TB. `outpour sim replicate --jobs` reads the file.
#[derive(Debug, Args)]
#[command(after_help = EXIT_CODES)]
pub(crate) struct JobsArgs {
    /// The network, a TOML file of clusters and links; clusters are sites
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) network: PathBuf,

    /// Number of jobs
    #[arg(long, value_name = "N", default_value_t = TRANSFERS)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub(crate) count: u32,

    /// Number of days within which they start
    #[arg(long, value_name = "N", default_value_t = DAYS)]
    pub(crate) days: f64,

    /// Multiply sizes by this
    #[arg(long, value_name = "FACTOR", default_value_t = 1.0)]
    pub(crate) scale: f64,

    /// Seed of all random choices
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) seed: u64,

    /// Write to this file instead of standard output
    #[arg(short, long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) output: Option<PathBuf>,
}
