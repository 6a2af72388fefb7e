//! A scenario as a TOML file.

use std::str::FromStr;

use outpour_core::text::escape;
use outpour_core::units::parse_duration;
use outpour_core::{Bytes, Rate};
use serde::Deserialize;

use super::FluidFlow;

/// How long a file may be, in bytes.
pub const TEXT_BYTES_MAX: usize = 1 << 20;
/// The size of a packet on the link if none is given, as in [PPUSH §IV-B].
pub const PACKET_BYTES: u64 = 1210;

/// What a file says; what it leaves out stays as it is by default.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct FluidFile {
    /// What the link carries.
    pub capacity: Option<Capacity>,
    /// The size of a packet.
    pub packet: Option<Bytes>,
    /// Round-trip propagation, seconds.
    pub delay_s: Option<f64>,
    /// Packets get a mark while more than so many are in the queue.
    pub mark_packets: Option<f64>,
    /// How many packets fit into the queue.
    pub queue_packets_max: Option<f64>,
    /// The gain of the running averages.
    pub g: Option<f64>,
    /// The window of each flow at its start, packets.
    pub initial_window: Option<f64>,
    /// Steps per average round trip.
    pub steps_per_rtt: Option<u32>,
    /// The flows; none if the file has none.
    pub flows: Vec<FluidFlow>,
}

/// What a link carries.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Capacity {
    /// Packets per second.
    Packets(f64),
    /// Bytes per second, of packets of any size.
    Rate(Rate),
}

/// What is wrong with a file; names the file, and the line or the key.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct FileError(String);

/// The file as it is written.
#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct Raw {
    capacity: Option<String>,
    packet: Option<String>,
    delay: Option<String>,
    ecn: Option<f64>,
    queue: Option<f64>,
    g: Option<f64>,
    initial_window: Option<f64>,
    steps_per_rtt: Option<u32>,
    #[serde(default)]
    flow: Vec<RawFlow>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawFlow {
    theta: f64,
    start: Option<String>,
    stop: String,
}

impl FluidFile {
    /// Reads a file; `file` is its name in messages.
    ///
    /// # Errors
    /// If it is no TOML, a key is unknown, or a quantity is none. Whether numbers are in range is for
    /// [`super::Fluid::check`] to say.
    pub fn parse(text: &str, file: &str) -> Result<Self, FileError> {
        let file = escape(file);
        let fail = |why: String| FileError(format!("{file}: {why}"));
        let raw: Result<Raw, _> = toml_edit::de::from_str(text);
        let raw = raw.map_err(|error| {
            let line = error.span().map(|at| {
                let before = text.get(..at.start).unwrap_or_default();
                format!("line {}: ", 1 + before.matches('\n').count())
            });
            let why = escape(&error.message().replace('\n', "; ")).into_owned();
            fail(line.unwrap_or_default() + &why)
        })?;
        let seconds = |key: String, text: &str| {
            let time = parse_duration(text).map_err(|why| fail(format!("{key}: {why}")))?;
            Ok(time.as_secs_f64())
        };
        let packet = raw.packet.as_deref().map(str::parse).transpose();
        let capacity = raw.capacity.as_deref().map(str::parse).transpose();
        let delay = raw.delay.as_deref();
        let flow = |(index, flow): (usize, &RawFlow)| {
            let key = |key: &str| format!("flow {}: `{key}`", index + 1);
            let start_s = match &flow.start {
                Some(start) => seconds(key("start"), start)?,
                None => 0.0,
            };
            let stop_s = seconds(key("stop"), &flow.stop)?;
            Ok(FluidFlow::new(flow.theta, start_s, stop_s))
        };
        Ok(Self {
            packet: packet.map_err(|why| fail(format!("`packet`: {why}")))?,
            capacity: capacity.map_err(|why| fail(format!("`capacity`: {why}")))?,
            delay_s: delay
                .map(|it| seconds("`delay`".to_owned(), it))
                .transpose()?,
            mark_packets: raw.ecn,
            queue_packets_max: raw.queue,
            g: raw.g,
            initial_window: raw.initial_window,
            steps_per_rtt: raw.steps_per_rtt,
            flows: raw
                .flow
                .iter()
                .enumerate()
                .map(flow)
                .collect::<Result<_, _>>()?,
        })
    }
}

impl FromStr for Capacity {
    type Err = String;

    /// `2066 pps`, or a rate such as `20 Mbit/s`.
    fn from_str(text: &str) -> Result<Self, String> {
        let packets = text.trim().strip_suffix("pps").map(str::trim);
        if let Some(packets) = packets {
            let number = packets.parse::<f64>().ok();
            let number = number.filter(|it| it.is_finite() && *it >= 0.0);
            return number.map(Self::Packets).ok_or_else(|| {
                let text = escape(text);
                format!("`{text}` is no number of packets per second, such as `2066 pps`")
            });
        }
        let rate: Rate = text
            .parse()
            .map_err(|why| format!("{why}; or packets per second, such as `2066 pps`"))?;
        match rate.bytes_per_s().is_finite() {
            true => Ok(Self::Rate(rate)),
            false => Err("without a limit there is no bottleneck".to_owned()),
        }
    }
}

impl Capacity {
    /// Packets per second, of packets of that size, by default of [`PACKET_BYTES`].
    ///
    /// # Errors
    /// If a packet has no bytes, or its size makes no difference.
    pub fn packets_per_s(self, packet: Option<Bytes>) -> Result<f64, String> {
        match (self, packet) {
            (Self::Packets(_), Some(_)) => {
                Err("its size makes no difference where the capacity is in packets".to_owned())
            }
            (Self::Packets(packets), None) => Ok(packets),
            (Self::Rate(_), Some(Bytes::ZERO)) => Err("a packet has at least 1 B".to_owned()),
            (Self::Rate(rate), packet) => {
                Ok(rate.bytes_per_s() / packet.unwrap_or(Bytes(PACKET_BYTES)).as_f64())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn a_capacity_is_packets_or_a_rate() {
        let capacity = |text: &str, packet| text.parse::<Capacity>()?.packets_per_s(packet);
        assert_eq!(capacity("2066 pps", None), Ok(2066.0));
        assert_eq!(capacity("1e6pps", None), Ok(1e6));
        assert!(capacity("-1 pps", None).is_err() && capacity("inf pps", None).is_err());
        let rate = capacity("20 Mbit/s", None).unwrap();
        assert_eq!(rate.floor(), 2066.0);
        assert_eq!(capacity("12 kB/s", Some(Bytes(1000))), Ok(12.0));
        for (text, packet, why) in [
            ("pps", None, "is no number of packets"),
            ("inf pps", None, "is no number of packets"),
            ("2066", None, "has no unit"),
            ("unlimited", None, "no bottleneck"),
            ("1 MB/s", Some(Bytes(0)), "at least 1 B"),
            ("2066 pps", Some(Bytes(1500)), "makes no difference"),
        ] {
            let said = capacity(text, packet).unwrap_err();
            assert!(said.contains(why), "{text}: {said}");
        }
    }

    #[test]
    fn a_file_says_what_differs() {
        let text = "capacity = \"20 Mbit/s\"\npacket = \"1000 B\"\nsteps-per-rtt = 4\n\
                    [[flow]]\ntheta = 2\nstop = \"3 s\"\n[[flow]]\ntheta = 0.5\nstart = \"1 s\"\nstop = \"2 s\"\n";
        let file = FluidFile::parse(text, "f").unwrap();
        let packets = file.capacity.unwrap().packets_per_s(file.packet);
        assert_eq!(packets, Ok(2500.0));
        assert_eq!((file.steps_per_rtt, file.delay_s), (Some(4), None));
        let flow = FluidFlow::new;
        assert_eq!(file.flows, [flow(2.0, 0.0, 3.0), flow(0.5, 1.0, 2.0)]);
    }

    #[test]
    fn what_is_wrong_is_said() {
        for (text, why) in [
            ("width = 1\n", "f: line 1: unknown field `width`"),
            ("delay = \"1 parsec\"\n", "f: `delay`: duration `1 parsec`"),
            ("delay = 3\n", "f: line 1: invalid type"),
            ("packet = \"10\"\n", "f: `packet`: size `10` has no unit"),
            ("capacity = \"3\"\n", "f: `capacity`: rate `3` has no unit"),
            ("[[flow]]\ntheta = 1\n", "missing field `stop`"),
            (
                "[[flow]]\ntheta = 1\nstart = \"x\"\nstop = \"1 s\"\n",
                "f: flow 1: `start`: duration `x`",
            ),
        ] {
            let said = FluidFile::parse(text, "f").unwrap_err().to_string();
            assert!(said.contains(why), "{text}: {said}");
        }
    }
}
