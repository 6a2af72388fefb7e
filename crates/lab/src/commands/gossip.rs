//! `outpour-lab sim gossip`: the analysis of coded gossip, played.

use std::fmt::Write as _;

use outpour_cli::out::{self, Failure};
use outpour_sim::rounds::{BatchOrder, Config, RoundsReport, SLACK_ROUNDS, Scheme};

use crate::args::gossip::{SimGossipArgs, SimScheme};

/// Plays a gossip in rounds.
///
/// # Errors
/// If it makes no sense or does not end.
pub(super) fn run(args: &SimGossipArgs) -> Result<(), Failure> {
    let config = Config {
        nodes: args.nodes,
        blocks: args.blocks,
        batches: args.batches,
        scheme: match args.scheme {
            SimScheme::Rlnc => Scheme::Rlnc,
            SimScheme::RandomBlock => Scheme::RandomBlock,
        },
        order: match args.overlap {
            0 => BatchOrder::Sequential,
            1 => BatchOrder::Overlap1,
            2 => BatchOrder::Overlap2,
            _ => BatchOrder::Hindsight,
        },
        slack: args.slack,
        seeds: args.seeds,
        seed: args.seed,
    };
    let report =
        outpour_sim::rounds::run(config).map_err(|error| Failure::Usage(error.to_string()))?;
    if args.output.json {
        out::json(&report);
    } else if !args.output.quiet {
        out::result(for_people(&report));
    }
    Ok(())
}

fn for_people(report: &RoundsReport) -> String {
    let rounds = &report.rounds;
    let mut text = format!(
        "{} nodes, {} x {} blocks: {:.1} rounds on average, {} to {}, 95 % within {}\n\
         no schedule takes less than {}; {:.0} % of {} seeds took at most {SLACK_ROUNDS} more",
        report.nodes,
        report.batches,
        report.blocks,
        rounds.mean,
        rounds.min,
        rounds.max,
        rounds.p95,
        report.bound_rounds,
        100.0 * report.within_slack,
        report.seeds.len(),
    );
    if report.batches > 1 && report.order != BatchOrder::Sequential {
        let _ = write!(
            text,
            "\n{:.1} rounds less than one batch after the other",
            report.saving_rounds
        );
    }
    if report.batches > 1 && report.order == BatchOrder::Hindsight {
        let _ = write!(
            text,
            ", where the analysis promises {:.1} at least",
            report.saving_bound_rounds
        );
    }
    text
}
