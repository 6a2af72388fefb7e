//! The arguments of `outpour sim shuffle`.

use std::path::PathBuf;
use std::time::Duration;

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use clap::{Args, ValueEnum, ValueHint};
use outpour_core::{Bytes, Rate};
use outpour_planner::shuffle::schedule::{Scheme, Waves};
use outpour_sim::shuffle::Overheads;

use super::Output;
use crate::values;

/// Simulate shuffles that share a cluster: where their reducers go, who goes first, how long each takes
///
/// The planner of `outpour plan shuffle` decides whenever a shuffle arrives or a reducer has all its data;
/// the network carries everything, and hosts limit what they send and receive.
#[derive(Debug, Args)]
#[command(after_help = super::EXIT_CODES, after_long_help = FILES)]
pub(crate) struct SimShuffleArgs {
    /// A trace of shuffles, in the format of the coflow benchmark
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    #[arg(conflicts_with = "jobs")]
    pub(crate) trace: Option<PathBuf>,

    /// Generated shuffles, a TOML file
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) jobs: Option<PathBuf>,

    /// Who decides; several, separated by commas, are compared
    #[arg(
        short,
        long,
        value_name = "NAME",
        default_value = "rpc",
        value_delimiter = ','
    )]
    #[arg(value_parser = schemes())]
    pub(crate) scheduler: Vec<Scheme>,

    /// By whose rules time passes; those of the public simulator need a trace, and varys or fair
    #[arg(long, value_name = "RULES", value_enum, default_value_t = Rules::Exact)]
    pub(crate) rules: Rules,

    /// How fast each rack of a trace sends and receives [default: 128 MiB/s, 1 Gbit/s of 2^30 bits]
    #[arg(long, value_name = "RATE", value_parser = finite, conflicts_with = "jobs")]
    pub(crate) port: Option<Rate>,

    /// Hosts that may run reducers; as many others have mappers
    #[arg(
        long,
        value_name = "N",
        default_value_t = 200,
        conflicts_with = "trace"
    )]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub(crate) hosts: u32,

    /// How fast hosts are, one of these each, drawn; with mappers as fast as the fastest
    #[arg(
        long,
        value_name = "RATES",
        default_value = "0.1,0.2,0.5,1,10,40 Gbit/s"
    )]
    #[arg(value_parser = nics, conflicts_with = "trace")]
    pub(crate) nics: Nics,

    /// Shuffles that arrive per second, independently of each other, such as `20/s` [default: all at once]
    #[arg(long, value_name = "RATE", value_parser = per_second, conflicts_with = "trace")]
    pub(crate) arrivals: Option<f64>,

    /// Simulate this often, with this seed and the next ones
    #[arg(long, value_name = "N", default_value_t = 1)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub(crate) trials: u32,

    /// Seed of everything drawn at random
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) seed: u64,

    /// Under rpc, shuffles that got nothing for this long come first
    #[arg(long, value_name = "TIME", default_value = "1000 s", value_parser = starvation)]
    pub(crate) starvation: Duration,

    /// How many reducers each host runs at a time at most [default: any number]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) per_host: Option<u32>,

    /// Under rpc, what happens to a shuffle with more reducers than hosts run at a time
    #[arg(long, value_name = "HOW", value_enum, default_value_t = WaveRule::Planned)]
    pub(crate) waves: WaveRule,

    /// Under rpc, shuffles that move less are not planned: their reducers go anywhere, and they come first
    #[arg(long, value_name = "SIZE", default_value = "0 B", value_parser = values::size)]
    pub(crate) background: Bytes,

    /// What a shuffle waits before its first byte, such as `1 s,0 s,1 ms,10 ms,1 ms`: for mappers, for
    /// sizes, for the decision, for reducers and for rates, in this order [default: nothing]
    #[arg(long, value_name = "TIMES", value_parser = overheads, default_value = "", hide_default_value = true)]
    pub(crate) overheads: Overheads,

    /// Number of trials simulated at a time; 0 for one per core
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub(crate) threads: usize,

    #[command(flatten)]
    pub(crate) output: Output,
}

/// By whose rules time passes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Rules {
    /// From event to event
    Exact,
    /// As the public coflow simulator: steps of 8 ms, arrivals every 10 s, rates found anew when a coflow
    /// is complete
    Coflowsim,
}

/// What happens to a shuffle with more reducers than hosts run at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum WaveRule {
    /// All are planned at once; those of one host run one after the other
    Planned,
    /// All but the last wave start wherever there is room, and only the last is planned
    Conserving,
    /// Each wave is planned as if it were a shuffle of its own
    Coflows,
}

impl WaveRule {
    /// As the planner has it.
    pub(crate) const fn waves(self) -> Waves {
        match self {
            Self::Planned => Waves::Planned,
            Self::Conserving => Waves::Conserving,
            Self::Coflows => Waves::Coflows,
        }
    }
}

/// How fast hosts may be.
#[derive(Clone, Debug)]
pub(crate) struct Nics(pub(crate) Vec<Rate>);

/// A rate that limits.
fn finite(text: &str) -> Result<Rate, String> {
    let rate = values::rate(text)?;
    match rate.bytes_per_s() <= RATE_MAX {
        true => Ok(rate),
        false => Err("without a limit there is nothing to schedule".to_owned()),
    }
}

/// Bytes per second at most.
const RATE_MAX: f64 = 1e15;

fn starvation(text: &str) -> Result<Duration, String> {
    let time = values::duration(text).map_err(|error| error.to_string())?;
    match time.is_zero() {
        true => Err("after no time at all every shuffle would come first".to_owned()),
        false => Ok(time),
    }
}

/// `0.1,1,10 Gbit/s`: numbers with one unit, or rates.
fn nics(text: &str) -> Result<Nics, String> {
    let parts: Vec<&str> = text.split(',').map(str::trim).collect();
    let unit = parts.last().map_or("", |last| {
        last.trim_start_matches(|it: char| it.is_ascii_digit() || it == '.')
    });
    let rate = |part: &&str| {
        let bare = part.chars().all(|it| it.is_ascii_digit() || it == '.');
        match bare {
            true => finite(&format!("{part}{unit}")),
            false => finite(part),
        }
    };
    parts.iter().map(rate).collect::<Result<_, _>>().map(Nics)
}

/// Five durations.
fn overheads(text: &str) -> Result<Overheads, String> {
    if text.is_empty() {
        return Ok(Overheads::default());
    }
    let each = text.split(',').map(|part| values::duration(part.trim()));
    let each: Result<Vec<Duration>, _> = each.collect();
    let each = each.map_err(|error| error.to_string())?;
    let [mappers, collect, solve, place, rates] = each[..] else {
        return Err(format!("it has {} durations; five are needed", each.len()));
    };
    Ok(Overheads {
        mappers_s: mappers.as_secs_f64(),
        collect_s: collect.as_secs_f64(),
        solve_s: solve.as_secs_f64(),
        place_s: place.as_secs_f64(),
        rates_s: rates.as_secs_f64(),
    })
}

/// `20/s`.
fn per_second(text: &str) -> Result<f64, String> {
    let number = text.trim().strip_suffix("/s").map(str::trim);
    let number = number.and_then(|number| number.parse::<f64>().ok());
    let number = number.filter(|number| (1e-6..=1e9).contains(number));
    number.ok_or_else(|| {
        "it is not a number of shuffles per second from 0.000001/s, such as `20/s`".to_owned()
    })
}

fn schemes() -> impl TypedValueParser<Value = Scheme> {
    let named = Scheme::ALL.map(|it| PossibleValue::new(it.name()).help(it.about()));
    PossibleValuesParser::new(named).try_map(|name| {
        let found = Scheme::ALL.into_iter().find(|it| it.name() == name);
        found.ok_or("there is no such scheduler")
    })
}

const FILES: &str = "\
A trace has the numbers of racks and of shuffles in its first line. Each next line is a shuffle:
its number, its arrival in ms, how many mappers, their racks, how many reducers, and for each its
rack and the mebibytes it fetches, `rack:megabytes`. Each mapper holds an equal part of every
reducer's data. Its racks are known to varys, aalo and fair; the others place reducers themselves.

A file of generated shuffles:

  count = 1000
  mappers = 200             # of each shuffle; default: --hosts
  reducers = 200            # likewise
  trace = \"trace.txt\"       # sizes are drawn from the distribution of those of a trace
  at_least = \"2.5 GiB\"      # that move at least so much; or instead of these two:
  # sizes = [\"3 GB\", \"40 GB\"]

Exit codes: 0 done; 1 failed, the message says why; 2 the command line is wrong.";
