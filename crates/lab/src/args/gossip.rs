//! The arguments of `outpour-lab sim gossip`.

use clap::{Args, ValueEnum};
use outpour_cli::args::{EXIT_CODES, Output};

/// Simulate gossip in rounds, as it is analysed on paper
///
/// Each round draws a random permutation of the nodes, and every node sends one block to its successor.
/// Coded blocks have real coefficients over GF(2^8).
#[derive(Debug, Args)]
#[command(after_help = EXIT_CODES)]
pub(crate) struct SimGossipArgs {
    /// Number of nodes, including the source
    #[arg(long, value_name = "N", default_value_t = 20)]
    pub(crate) nodes: u32,

    /// Number of blocks per batch
    #[arg(long, value_name = "K", default_value_t = 200)]
    pub(crate) blocks: u16,

    /// Number of batches
    #[arg(long, value_name = "M", default_value_t = 1)]
    pub(crate) batches: u32,

    /// The content of messages
    #[arg(long, value_name = "NAME", value_enum, default_value_t = SimScheme::Rlnc)]
    pub(crate) scheme: SimScheme,

    /// Overlap of batches: 0 none, 1 the earliest first, 2 the next one first for a while, 3 the same
    /// at the moment that is best in hindsight
    #[arg(long, value_name = "N", default_value_t = 0)]
    #[arg(value_parser = clap::value_parser!(u8).range(0..=3))]
    pub(crate) overlap: u8,

    /// With overlap 2, rounds before the next batch begins, beyond the number of blocks per batch
    #[arg(long, value_name = "C", default_value_t = 1)]
    pub(crate) slack: u32,

    /// Number of seeds
    #[arg(long, value_name = "N", default_value_t = 20)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub(crate) seeds: u32,

    /// The first seed
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) seed: u64,

    #[command(flatten)]
    pub(crate) output: Output,
}

/// What is sent in a gossip in rounds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum SimScheme {
    /// Random linear combinations
    Rlnc,
    /// Random blocks that the receiver lacks
    RandomBlock,
}
