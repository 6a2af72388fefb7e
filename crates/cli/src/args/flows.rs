//! The arguments of `outpour sim flows`.

use std::path::PathBuf;

use clap::{Args, ValueHint};

use super::Output;

/// Play flows over given links, packet by packet
///
/// Every flow is a sender and a receiver as they really are: those of Parallel Push, TCP with DCTCP, Reno or
/// CUBIC, or DCCP. Links have rates, delays, queues, congestion marks and losses, and may change.
#[derive(Debug, Args)]
#[command(after_help = super::EXIT_CODES, after_long_help = FILES)]
pub(crate) struct SimFlowsArgs {
    /// Links and flows, a TOML file; `-` reads standard input
    #[arg(value_name = "FILE", value_hint = ValueHint::FilePath, required_unless_present = "example")]
    pub(crate) scenario: Option<PathBuf>,

    /// Print a file with all there is to say, two flows of Parallel Push, and do nothing else
    #[arg(long, exclusive = true)]
    pub(crate) example: bool,

    /// Draw goodputs, windows, running averages of marks and queues over time
    #[arg(long, value_name = "FILE.svg", value_hint = ValueHint::FilePath)]
    pub(crate) svg: Option<PathBuf>,

    /// Add samples over time to the JSON
    #[arg(long, requires = "json")]
    pub(crate) series: bool,

    #[command(flatten)]
    pub(crate) output: Output,
}

const FILES: &str = "\
`outpour sim flows --example` prints a file with all there is to say; `outpour sim flows --example |
outpour sim flows -` plays it.

With --json, `flows` has for each flow `goodput_packets_per_s`, `mean_cwnd` (packets) and `mean_alpha`
(the running average of the share of marked packets, if it has one), all means of the time from
`from_s` to `to_s` in which it is active; `sent`, `received`, `marked`, `drops`, `inside` (packets with
data), `taken_for_lost`, `timeouts` and `rtt_s`. `ports` has for each direction of a link
`mean_queue_packets`, `max_queue_packets`, `used` (share of the time), `packets`, `marks` and `drops`.
`phases` has the means of the second half of every time in which nothing was changed. `packets` counts
all, acknowledgements included. `series`, with --series, has lists of equal length: `at_s`, for each
flow `goodput_packets_per_s`, `cwnd`, `alpha` and `rtt_s`, and for each port `queue_packets`.

Exit codes: 0 done; 1 failed, the message says why; 2 the command line is wrong.";
