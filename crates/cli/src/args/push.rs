//! The arguments of `outpour sim push`.

use std::path::PathBuf;
use std::time::Duration;

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use clap::{Args, ValueHint};
use outpour_sim::packets::tasks::{SHAPES, Scheme, Shape, Sizes, Sources, sizes, workload};

use super::Output;
use crate::values;

/// Play tasks that fetch objects from several sources at once, packet by packet
///
/// Every task is moved by machines as they really are: the sources, receivers and controller of Parallel
/// Push, or flows of TCP or DCCP with an equal share from each source. All schemes get the same tasks.
#[derive(Debug, Args)]
#[command(after_help = super::EXIT_CODES, after_long_help = FILES)]
pub(crate) struct SimPushArgs {
    /// Hosts and switches: obs:HOSTS (One Big Switch), leaf-spine:LEAVESxHOSTSxSPINES, fat-tree:K, a table of
    /// links between sites (FILE.csv), or a network (FILE.toml)
    #[arg(long, value_name = "TOPOLOGY", default_value = "obs:100", value_parser = topology)]
    pub(crate) topology: TopologyArg,

    /// Who has the objects: N hosts that have all of them, `per-pod` for one such of each pod of a fat tree, or
    /// `any` for other hosts each time [default: 10, or per-pod with a fat tree]
    #[arg(long, value_name = "N|per-pod|any", value_parser = sources)]
    pub(crate) sources: Option<SourcesArg>,

    /// How many sources push for one task
    #[arg(long, value_name = "N", default_value_t = 3)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=64))]
    pub(crate) fanout: u32,

    /// The mean load of the link with the most, as a share of its rate; tasks arrive independently of each other
    #[arg(long, value_name = "SHARE", default_value = "0.9", value_parser = load)]
    pub(crate) load: f64,

    /// How large objects are: `fixed:N` packets each, or drawn from a table with a size in packets and a
    /// cumulative probability in each line
    #[arg(long, value_name = "FILE.cdf|fixed:N", value_parser = sizes_arg)]
    pub(crate) sizes: SizesArg,

    /// What the sizes of a table are moved to, linearly: `paper` for 2048 to 204800 packets, LOW:HIGH, or `none`
    #[arg(long, value_name = "paper|none|LOW:HIGH", default_value = "paper", value_parser = scale)]
    pub(crate) scale: Scale,

    /// Multiply all sizes
    #[arg(long, value_name = "FACTOR", default_value = "1", value_parser = factor)]
    pub(crate) size_factor: f64,

    /// How objects are moved; several, separated by commas or given again, are compared
    #[arg(
        short,
        long,
        value_name = "NAME",
        default_value = "push-1-1",
        value_delimiter = ','
    )]
    #[arg(value_parser = schemes())]
    pub(crate) scheme: Vec<Scheme>,

    /// How many tasks an instance has
    #[arg(long, value_name = "N", default_value_t = 200)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=65_536))]
    pub(crate) tasks: u32,

    /// Simulate this often, with this seed and the next ones
    #[arg(long, value_name = "N", default_value_t = 20)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub(crate) instances: u32,

    /// Seed of everything drawn at random
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) seed: u64,

    /// How many packets a link of a host carries in a second, or one of a table [default: 200000]
    #[arg(long, value_name = "PACKETS", value_parser = packets_per_s)]
    pub(crate) link_rate: Option<f64>,

    /// How many packets a link between switches carries in a second [default: as a link of a host; of a
    /// leaf-spine four times as many]
    #[arg(long, value_name = "PACKETS", value_parser = packets_per_s)]
    pub(crate) fabric_rate: Option<f64>,

    /// How long a packet is on each link; a table says it itself
    #[arg(long, value_name = "TIME", default_value = "20 us", value_parser = values::duration)]
    pub(crate) delay: Duration,

    /// How many packets wait at a port before more are dropped
    #[arg(long, value_name = "PACKETS", default_value_t = 100)]
    pub(crate) queue: u32,

    /// A packet that finds so many waiting gets a congestion mark
    #[arg(long, value_name = "PACKETS", default_value_t = 30)]
    pub(crate) mark: u32,

    /// No retransmission timeout is shorter
    #[arg(long, value_name = "TIME", default_value = "10 ms", value_parser = values::patience)]
    pub(crate) rto_min: Duration,

    /// The retransmission timeout before the first sample; --rto-min if that is longer
    #[arg(long, value_name = "TIME", default_value = "100 ms", value_parser = values::patience)]
    pub(crate) rto_initial: Duration,

    /// No retransmission timeout is longer; --rto-min if that is longer
    #[arg(long, value_name = "TIME", default_value = "250 ms", value_parser = values::patience)]
    pub(crate) rto_max: Duration,

    /// The window of each source at the start [default: that of the scheme: 1 for push, 10 for dctcp and reno, 4
    /// for dccp, what a round trip carries for scdp]
    #[arg(long, value_name = "PACKETS", value_parser = window)]
    pub(crate) initial_window: Option<f64>,

    /// Let sources of Parallel Push begin with a slow start, as those of TCP and DCCP do
    #[arg(long)]
    pub(crate) slow_start: bool,

    /// How long a message to or from the controller takes
    #[arg(long, value_name = "TIME", default_value = "40 us", value_parser = values::duration)]
    pub(crate) control_delay: Duration,

    /// How many symbols a block has, under Parallel Push and SCDP
    #[arg(long, value_name = "N", default_value_t = 1024)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=56_403))]
    pub(crate) block: u32,

    /// Number of instances simulated at a time; 0 for one per core
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub(crate) threads: usize,

    /// Draw the mean times of all instances of each scheme
    #[arg(long, value_name = "FILE.svg", value_hint = ValueHint::FilePath)]
    pub(crate) svg: Option<PathBuf>,

    #[command(flatten)]
    pub(crate) output: Output,
}

/// Where hosts and switches come from.
#[derive(Clone, Debug)]
pub(crate) enum TopologyArg {
    Shape(Shape),
    Csv(PathBuf),
    Toml(PathBuf),
}

/// Who has the objects.
#[derive(Clone, Copy, Debug)]
pub(crate) enum SourcesArg {
    Known(Sources),
    PerPod,
}

/// Where sizes come from.
#[derive(Clone, Debug)]
pub(crate) enum SizesArg {
    Fixed(Sizes),
    Table(PathBuf),
}

/// What sizes are moved to.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Scale {
    None,
    To(f64, f64),
}

fn topology(text: &str) -> Result<TopologyArg, String> {
    match text.rsplit_once('.').map(|(_, end)| end) {
        Some("csv") => Ok(TopologyArg::Csv(text.into())),
        Some("toml") => Ok(TopologyArg::Toml(text.into())),
        _ => match text.parse() {
            Ok(shape) => Ok(TopologyArg::Shape(shape)),
            Err(_) => Err(format!(
                "expected {SHAPES}, or a file that ends in .csv or .toml"
            )),
        },
    }
}

fn sources(text: &str) -> Result<SourcesArg, String> {
    match text {
        "any" => Ok(SourcesArg::Known(Sources::Any)),
        "per-pod" => Ok(SourcesArg::PerPod),
        _ => match text.parse() {
            Ok(count) if count > 0 => Ok(SourcesArg::Known(Sources::Pool(count))),
            _ => Err("expected a number from 1, `per-pod` or `any`".to_owned()),
        },
    }
}

fn sizes_arg(text: &str) -> Result<SizesArg, String> {
    let Some(packets) = text.strip_prefix("fixed:") else {
        return Ok(SizesArg::Table(text.into()));
    };
    let fixed = packets.parse().ok().and_then(Sizes::fixed);
    let fixed = fixed.ok_or("expected from 1 to 1000000000 packets, such as `fixed:2048`")?;
    Ok(SizesArg::Fixed(fixed))
}

fn scale(text: &str) -> Result<Scale, String> {
    match text {
        "none" => Ok(Scale::None),
        "paper" => Ok(Scale::To(sizes::PAPER_RANGE.0, sizes::PAPER_RANGE.1)),
        _ => {
            let ends = text.split_once(':');
            let ends = ends.and_then(|(low, high)| Some((low.parse().ok()?, high.parse().ok()?)));
            let is_fine = |(low, high): &(f64, f64)| *low >= 1.0 && high >= low && *high <= 1e9;
            let (low, high) = ends.filter(is_fine).ok_or(
                "expected `paper`, `none`, or the least and the largest size in packets, such as `20:2000`",
            )?;
            Ok(Scale::To(low, high))
        }
    }
}

/// A number within bounds, of which NaN is none.
fn number(text: &str, low: f64, high: f64, expected: &str) -> Result<f64, String> {
    let number = text.trim().parse().ok();
    let number = number.filter(|it: &f64| (low..=high).contains(it));
    number.ok_or_else(|| format!("expected {expected}"))
}

fn load(text: &str) -> Result<f64, String> {
    number(
        text,
        workload::LOAD_MIN,
        workload::LOAD_MAX,
        "a share of a link's rate from 0.01 to 100, such as `0.9`",
    )
}

fn factor(text: &str) -> Result<f64, String> {
    number(text, 1e-6, 1e6, "a number from 0.000001 to 1000000")
}

fn packets_per_s(text: &str) -> Result<f64, String> {
    number(text, 1.0, 1e9, "packets per second, from 1 to 1e9")
}

fn window(text: &str) -> Result<f64, String> {
    number(text, 1.0, 1e6, "packets, from 1 to 1000000")
}

fn schemes() -> impl TypedValueParser<Value = Scheme> {
    let named = Scheme::ALL.map(|it| PossibleValue::new(it.name()).help(it.about()));
    PossibleValuesParser::new(named).try_map(|name| {
        let found = Scheme::ALL.into_iter().find(|it| it.name() == name);
        found.ok_or("there is no such scheme")
    })
}

const FILES: &str = "\
A table of sizes has in each line a size in packets and the probability that an object is no larger;
both grow, the last probability is 1, and sizes between two lines are equally likely. Lines that
begin with # are comments. A table of links between sites begins with site_a,site_b,delay_ms.

With --json, each scheme has `average_tct_s` (the mean time a task takes, over all tasks and
instances), `average_ci95_s` (how far it may be off), `normalized_average_tct` (over the mean time of
the same objects, each with a host's link to itself), `normalized_ci95`, `factor` (the time of the first scheme
over its own, the mean over instances; missing if a task of either was never complete),
`factor_ci95`, `timeouts` (of retransmission timers, in an instance), `drops` and `trimmed` (packets that
lost all or their payload, in an instance), `unfinished` (tasks that were never complete; they are in
no mean), `packet_hops`,
`packet_hops_per_s` (per second of a processor), and `instances`, each with its `seed`, the same
values, `tcts_s` of all tasks, `failures`, `shares` (what part of its task each source delivered),
`packets`, `drops`, `marks`, `trimmed`, `makespan_s` and `busiest_port`. Several schemes are in `schemes`.

Exit codes: 0 done; 1 failed, the message says why; 2 the command line is wrong.";
