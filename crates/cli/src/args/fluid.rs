//! The arguments of `outpour sim fluid`.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueHint};
use outpour_core::Bytes;

use outpour_sim::fluid::file::Capacity;

use super::Output;
use crate::values;

/// Compute how flows under weighted fair congestion control share a link
///
/// A fluid model, stepped by round trips, beside its closed forms. Without options it is the setting of
/// the paper on Parallel Push: theta 1 from 0 s to 8 s and theta 4 from 2 s to 6 s, on 20 Mbit/s.
#[derive(Debug, Args)]
#[command(after_help = super::EXIT_CODES, after_long_help = FILES)]
pub(crate) struct SimFluidArgs {
    /// A scenario, a TOML file, or `-` for standard input; options replace what it says
    #[arg(value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) scenario: Option<PathBuf>,

    /// Weights of flows, such as `1,4` [default: 1,4]
    #[arg(long, value_name = "NUMBERS", value_delimiter = ',', value_parser = number)]
    pub(crate) theta: Vec<f64>,

    /// When each flow starts, or one time for all, such as `0 s,2 s` [default: 0 s]
    #[arg(long, value_name = "TIMES", value_delimiter = ',', value_parser = values::duration)]
    #[arg(requires = "theta")]
    pub(crate) start: Vec<Duration>,

    /// When each flow stops, or one time for all, such as `8 s,6 s` [default: 8 s]
    #[arg(long, value_name = "TIMES", value_delimiter = ',', value_parser = values::duration)]
    #[arg(requires = "theta")]
    pub(crate) stop: Vec<Duration>,

    /// What the link carries, such as `2066 pps` or `20 Mbit/s` [default: 2066 pps]
    #[arg(long, value_name = "RATE", value_parser = capacity)]
    pub(crate) capacity: Option<Capacity>,

    /// The size of a packet, if the capacity is in bits or bytes [default: 1210 B]
    #[arg(long, value_name = "SIZE", value_parser = values::size)]
    pub(crate) packet: Option<Bytes>,

    /// Round-trip propagation [default: 0.1 ms]
    #[arg(long, value_name = "TIME", value_parser = values::duration)]
    pub(crate) delay: Option<Duration>,

    /// Packets are marked while more than so many are in the queue [default: 30]
    #[arg(long, value_name = "PACKETS", value_parser = number)]
    pub(crate) ecn: Option<f64>,

    /// How many packets fit into the queue [default: 100]
    #[arg(long, value_name = "PACKETS", value_parser = number)]
    pub(crate) queue: Option<f64>,

    /// Weight of a new window in the running average of marks, such as 1/16 [default: 1/16]
    #[arg(long, value_name = "NUMBER", value_parser = number)]
    pub(crate) g: Option<f64>,

    /// The window of each flow at its start [default: 1]
    #[arg(long, value_name = "PACKETS", value_parser = number)]
    pub(crate) initial_window: Option<f64>,

    /// Steps per average round trip; with more, means come nearer to the closed forms [default: 1]
    #[arg(long, value_name = "N")]
    pub(crate) steps_per_rtt: Option<u32>,

    /// Draw windows, goodputs, running averages and the queue over time
    #[arg(long, value_name = "FILE.svg", value_hint = ValueHint::FilePath)]
    pub(crate) svg: Option<PathBuf>,

    /// Add every step to the JSON
    #[arg(long, requires = "json")]
    pub(crate) series: bool,

    #[command(flatten)]
    pub(crate) output: Output,
}

/// What a link carries.
fn capacity(text: &str) -> Result<Capacity, String> {
    text.parse()
}

/// A number, or a fraction such as `1/16`. Whether it is in range depends on what it is.
fn number(text: &str) -> Result<f64, String> {
    let text = text.trim();
    let parsed = match text.split_once('/') {
        None => text.parse::<f64>().ok(),
        Some((over, under)) => match (over.trim().parse::<f64>(), under.trim().parse::<f64>()) {
            (Ok(over), Ok(under)) => Some(over / under),
            _ => None,
        },
    };
    parsed.ok_or_else(|| "it is not a number, such as 4, 0.5 or 1/16".to_owned())
}

const FILES: &str = "\
A scenario has any of these; what it leaves out is as without options:

  capacity = \"20 Mbit/s\"    # or \"2066 pps\"
  packet = \"1210 B\"
  delay = \"0.1 ms\"          # round-trip propagation
  ecn = 30                  # packets are marked while more than so many are in the queue
  queue = 100               # packets that fit into it
  g = 0.0625                # weight of a new window in the running average of marks
  initial-window = 1        # packets
  steps-per-rtt = 1

  [[flow]]
  theta = 1
  start = \"0 s\"             # the default
  stop = \"8 s\"

With --json, `flows` has for each flow its number `flow`, `theta`, `goodput_packets_per_s`,
`mean_cwnd` (packets) and `mean_alpha`; `mean_queue_packets` is beside it, and `predicted` has the
closed forms: `alpha`, `queue_packets`, `cwnd_sum`, `cwnds` and `goodputs_packets_per_s` in the
order of `flows`, `theta_sum_max`, the most that weights may add up to, and
`is_within_theta_sum_max`. All are means over the second half of the time, `from_s` to `to_s`, in
which most flows are active at once; `phases` has the same of every time between two starts or
stops. `series`, with --series, has lists of equal length: `at_s`, `queue_packets`, and in `flows`
of each `cwnd`, `alpha` and `goodput_packets_per_s`.

Exit codes: 0 done; 1 failed, the message says why; 2 the command line is wrong.";
