//! Congestion control without I/O, for any sender that gets acknowledgements.
//!
//! A [`CongestionControl`] says how many packets may be in flight. It has no clock, timer or socket: the
//! sender tells it what was acknowledged, what was lost and when the timer ran out, each with the time
//! where it matters, and asks for [`CongestionControl::window`] before it sends. Algorithms swap behind
//! the trait; [`Algorithm`] makes one from options, which are checked.
//!
//! **What a sender owes.** Every transmission has a number, one more than the one before, also when its
//! content was sent before (as in QUIC, RFC 9002 §4.2). A packet is reported once: as acknowledged
//! ([`Ack`]), or as lost ([`Loss`]), or it was in flight at a timeout ([`Timeout`]). A packet is lost when
//! [`REORDERING_MAX`] packets sent after it have been acknowledged, or by any other rule of the sender.
//! A timeout means that nothing was acknowledged for so long that all in flight is taken for lost. Events
//! come in the order of their times. A sender that owes more gets a worse window, and never one that is
//! not a number: windows are from [`WINDOW_MIN`] to [`WINDOW_MAX`] packets whatever comes.
//!
//! | algorithm | grows by | at a mark | at a loss | at a timeout |
//! |---|---|---|---|---|
//! | [`Wfcc`] | 1/W per packet | `alpha / (2 theta)` less per packet | nothing | to 1 |
//! | [`Dctcp`] | as Reno | `1 - alpha/2`, once per window | half | to 1 |
//! | [`Reno`] | 1 per window | half, once per window | half | to 1 |
//! | [`Cubic`] | a cubic function of time | 0.7, once per window | 0.7 | to 1 |
//! | [`Dccp`] | as Reno, slow start half as fast | half, once per window | half | to 1 |

mod cubic;
mod dccp;
mod dctcp;
mod error;
mod reno;
mod round;
mod tcp;
mod wfcc;

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

pub use cubic::{Cubic, CubicOptions};
pub use dccp::{Dccp, DccpOptions};
pub use dctcp::{Dctcp, DctcpOptions};
pub use error::OptionError;
pub use reno::{Reno, RenoOptions};
pub use wfcc::{Wfcc, WfccOptions};

/// No window is smaller, in packets: a sender that may send nothing would never learn anything again.
pub const WINDOW_MIN: f64 = 1.0;
/// No window is larger, in packets.
pub const WINDOW_MAX: f64 = (1_u64 << 30) as f64;
/// How many packets sent after one have to be acknowledged for it to be taken for lost (RFC 9002 §6.1.1,
/// [PPUSH §III-B]).
pub const REORDERING_MAX: u64 = 3;

/// An acknowledgement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ack {
    /// When it came, after an origin of the sender's choice.
    pub now: Duration,
    /// How many packets it is the first to acknowledge.
    pub acked: u64,
    /// How many of these had a congestion mark (ECN-CE) when they arrived.
    pub marked: u64,
    /// The largest number among these packets.
    pub largest: u64,
    /// The number that the next transmission will have.
    pub next: u64,
    /// How many packets were in flight before it came.
    pub in_flight: u64,
    /// The round-trip time of the packet with the largest number, if it is known.
    pub rtt: Option<Duration>,
    /// Whether the sender had nothing to send although the window would have allowed it: a window that is
    /// not used says nothing about the network, so it does not grow (RFC 9002 §7.8).
    pub is_app_limited: bool,
}

/// Packets taken for lost together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Loss {
    /// When they were.
    pub now: Duration,
    /// How many they are.
    pub lost: u64,
    /// The largest number among them.
    pub largest: u64,
    /// The number that the next transmission will have.
    pub next: u64,
    /// How many packets were in flight, with these.
    pub in_flight: u64,
}

/// The timer ran out: everything in flight is taken for lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timeout {
    /// When it did.
    pub now: Duration,
    /// The number that the next transmission will have.
    pub next: u64,
    /// How many packets were in flight.
    pub in_flight: u64,
}

/// Decides how many packets of one sender may be in flight.
pub trait CongestionControl: fmt::Debug + Send {
    /// Hears of an acknowledgement.
    fn on_ack(&mut self, ack: &Ack);

    /// Hears of losses.
    fn on_loss(&mut self, loss: &Loss);

    /// Hears that the timer ran out.
    fn on_timeout(&mut self, timeout: &Timeout);

    /// How many packets may be in flight; the sender rounds down. From [`WINDOW_MIN`] to [`WINDOW_MAX`].
    fn window(&self) -> f64;

    /// Whether it still looks for the capacity of the network, growing with every packet.
    fn is_slow_start(&self) -> bool;

    /// The running average of the share of marked packets, from 0 to 1; none where there is no such.
    fn alpha(&self) -> Option<f64> {
        None
    }

    /// Its weight against other flows, if it has one.
    fn weighted(&mut self) -> Option<&mut dyn Weighted> {
        None
    }
}

/// A flow whose share of a bottleneck is in proportion to a weight.
pub trait Weighted {
    /// The weight.
    fn theta(&self) -> f64;

    /// Sets the weight, from the next acknowledgement on.
    ///
    /// # Errors
    /// If it is not a finite number above 0; the weight stays as it was.
    fn set_theta(&mut self, theta: f64) -> Result<(), OptionError>;
}

/// An algorithm and its options.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum Algorithm {
    /// Weighted fair congestion control.
    Wfcc(WfccOptions),
    /// Data Center TCP.
    Dctcp(DctcpOptions),
    /// TCP as it was before CUBIC.
    Reno(RenoOptions),
    /// TCP as it is by default today.
    Cubic(CubicOptions),
    /// TCP-like congestion control of DCCP.
    Dccp(DccpOptions),
}

impl Algorithm {
    /// What the algorithms are called.
    pub const NAMES: [&'static str; 5] = ["wfcc", "dctcp", "reno", "cubic", "dccp"];

    /// What it is called.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Wfcc(_) => "wfcc",
            Self::Dctcp(_) => "dctcp",
            Self::Reno(_) => "reno",
            Self::Cubic(_) => "cubic",
            Self::Dccp(_) => "dccp",
        }
    }

    /// Makes the congestion control of one flow.
    ///
    /// # Errors
    /// If an option is out of range; names it.
    pub fn build(&self) -> Result<Box<dyn CongestionControl>, OptionError> {
        Ok(match *self {
            Self::Wfcc(options) => Box::new(Wfcc::new(options)?),
            Self::Dctcp(options) => Box::new(Dctcp::new(options)?),
            Self::Reno(options) => Box::new(Reno::new(options)?),
            Self::Cubic(options) => Box::new(Cubic::new(options)?),
            Self::Dccp(options) => Box::new(Dccp::new(options)?),
        })
    }
}

impl FromStr for Algorithm {
    type Err = OptionError;

    /// The algorithm of that name with its default options.
    fn from_str(name: &str) -> Result<Self, OptionError> {
        Ok(match name {
            "wfcc" => Self::Wfcc(WfccOptions::default()),
            "dctcp" => Self::Dctcp(DctcpOptions::default()),
            "reno" => Self::Reno(RenoOptions::default()),
            "cubic" => Self::Cubic(CubicOptions::default()),
            "dccp" => Self::Dccp(DccpOptions::default()),
            _ => {
                let name = name.chars().take(40).flat_map(char::escape_debug).collect();
                return Err(OptionError::UnknownAlgorithm { name });
            }
        })
    }
}

/// A window within its bounds, whatever arithmetic made of it.
fn bounded(packets: f64) -> f64 {
    debug_assert!(!packets.is_nan(), "a window that is not a number");
    packets.clamp(WINDOW_MIN, WINDOW_MAX)
}

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn names_lead_to_their_algorithms() {
        for name in Algorithm::NAMES {
            assert_eq!(name.parse::<Algorithm>().unwrap().name(), name);
        }
        let error = "bb\x1br".parse::<Algorithm>().unwrap_err().to_string();
        assert_eq!(
            error,
            "there is no congestion control `bb\\u{1b}r`: expected wfcc, dctcp, reno, cubic, dccp"
        );
    }

    #[test]
    fn only_wfcc_has_a_weight_and_those_with_a_running_average_say_it() {
        for name in Algorithm::NAMES {
            let mut built = name.parse::<Algorithm>().unwrap().build().unwrap();
            assert_eq!(built.weighted().is_some(), name == "wfcc");
            let averages = ["wfcc", "dctcp"].contains(&name);
            assert_eq!(built.alpha().is_some(), averages, "{name}");
        }
    }
}
