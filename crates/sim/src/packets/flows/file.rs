//! Flows and links as a TOML file.

use std::fmt::Display;
use std::time::Duration;

use outpour_core::text::{escape, excerpt};
use outpour_core::units::parse_duration;
use outpour_core::{Bytes, Time};
use serde::Deserialize;

use super::{ACK_BYTES, Flow, Flows, Line, PACKET_BYTES, Scheme};
use crate::fluid::file::Capacity;

/// How long a file may be, in bytes.
pub const TEXT_BYTES_MAX: usize = 1 << 20;

/// How many packets wait at a link if nothing is said.
const QUEUE_PACKETS: u32 = 100;

/// What [`parse`] can read, as an example with all there is to say: two flows of [PPUSH §IV-B].
pub const EXAMPLE: &str = include_str!("example.toml");

/// What is wrong with a file; names the file, and the line or the key.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct FileError(String);

/// A number of seconds, or a text such as `20 ms`.
#[derive(Clone, Debug, Deserialize)]
#[serde(untagged)]
enum RawTime {
    Seconds(f64),
    Text(String),
}

/// One weight, or weights and from when on they hold.
#[derive(Clone, Debug, Deserialize)]
#[serde(untagged)]
enum RawTheta {
    Always(f64),
    Changing(Vec<(RawTime, f64)>),
}

/// One burst of losses, or several.
#[derive(Clone, Debug, Deserialize)]
#[serde(untagged)]
enum RawLose {
    One(RawBurst),
    Several(Vec<RawBurst>),
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct RawBurst {
    at: RawTime,
    packets: u64,
}

/// The file as it is written.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Raw {
    duration: RawTime,
    packet: Option<String>,
    ack: Option<String>,
    sample: Option<RawTime>,
    jitter: Option<RawTime>,
    #[serde(default)]
    seed: u64,
    #[serde(default)]
    link: Vec<RawLink>,
    #[serde(default)]
    flow: Vec<RawFlow>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawLink {
    from: String,
    to: String,
    rate: String,
    delay: Option<RawTime>,
    queue: Option<u32>,
    ecn: Option<u32>,
    #[serde(default)]
    loss: f64,
    burst: Option<f64>,
    #[serde(default)]
    rates: Vec<(RawTime, String)>,
    lose: Option<RawLose>,
    both: Option<bool>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct RawFlow {
    from: String,
    to: String,
    scheme: String,
    theta: Option<RawTheta>,
    start: Option<RawTime>,
    stop: Option<RawTime>,
    packets: Option<u64>,
    initial_window: Option<f64>,
    g: Option<f64>,
    window_min: Option<f64>,
    #[serde(default)]
    grows_when_marked: bool,
    #[serde(default)]
    parts: bool,
    rto_min: Option<RawTime>,
}

/// Reads a file; `file` is its name in messages.
///
/// # Errors
/// If it is no TOML, a key is unknown, or a quantity is none. Whether numbers are in range is for
/// [`Flows::run`] to say.
pub fn parse(text: &str, file: &str) -> Result<Flows, FileError> {
    let file = escape(file);
    let raw: Result<Raw, _> = toml_edit::de::from_str(text);
    let raw = raw.map_err(|error| {
        let line = error.span().map(|at| {
            let before = text.get(..at.start).unwrap_or_default();
            format!("line {}: ", 1 + before.matches('\n').count())
        });
        let why = escape(&error.message().replace('\n', "; ")).into_owned();
        FileError(format!("{file}: {}{why}", line.unwrap_or_default()))
    })?;
    mean(&raw).map_err(|why| FileError(format!("{file}: {why}")))
}

/// What is written as it is meant; an error names the key.
fn mean(raw: &Raw) -> Result<Flows, String> {
    let packet_bytes = size("packet", raw.packet.as_deref(), PACKET_BYTES)?;
    let duration = time("`duration`", &raw.duration)?;
    let links = raw.link.iter().enumerate();
    let flows = raw.flow.iter().enumerate();
    let usual = Flows::new(
        links
            .map(|(index, link)| line(index, link, packet_bytes))
            .collect::<Result<_, _>>()?,
        flows
            .map(|(index, it)| flow(index, it))
            .collect::<Result<_, _>>()?,
        duration,
    );
    Ok(Flows {
        packet_bytes,
        ack_bytes: size("ack", raw.ack.as_deref(), ACK_BYTES)?,
        sample: match &raw.sample {
            Some(sample) => time("`sample`", sample)?,
            None => usual.sample,
        },
        jitter: match &raw.jitter {
            Some(jitter) => time("`jitter`", jitter)?,
            None => usual.jitter,
        },
        seed: raw.seed,
        ..usual
    })
}

fn line(index: usize, raw: &RawLink, packet_bytes: u32) -> Result<Line, String> {
    let of = |key: &str| format!("link {}: `{key}`", index + 1);
    let rate = |key: &str, text: &str| {
        let packets = |rate: Capacity| match rate {
            Capacity::Packets(packets) => Ok(packets),
            rate => rate.packets_per_s(Some(Bytes(packet_bytes.into()))),
        };
        let rate = text.parse().and_then(packets);
        rate.map_err(|why| format!("{}: {why}", of(key)))
    };
    let change = |(at, text): &(RawTime, String)| {
        Ok::<_, String>((instant(&of("rates"), at)?, rate("rates", text)?))
    };
    let bursts: &[RawBurst] = match &raw.lose {
        None => &[],
        Some(RawLose::One(burst)) => std::slice::from_ref(burst),
        Some(RawLose::Several(bursts)) => bursts,
    };
    let burst = |burst: &RawBurst| {
        let at = instant(&of("lose"), &burst.at)?;
        Ok::<_, String>((at, burst.packets))
    };
    let usual = Line::new(
        &raw.from,
        &raw.to,
        rate("rate", &raw.rate)?,
        raw.queue.unwrap_or(QUEUE_PACKETS),
    );
    Ok(Line {
        delay: match &raw.delay {
            Some(delay) => time(&of("delay"), delay)?,
            None => usual.delay,
        },
        mark_packets: raw.ecn,
        loss: raw.loss,
        burst: raw.burst.unwrap_or(usual.burst),
        rates: raw.rates.iter().map(change).collect::<Result<_, _>>()?,
        lose: bursts.iter().map(burst).collect::<Result<_, _>>()?,
        is_both: raw.both.unwrap_or(usual.is_both),
        ..usual
    })
}

fn flow(index: usize, raw: &RawFlow) -> Result<Flow, String> {
    let of = |key: &str| format!("flow {}: `{key}`", index + 1);
    let scheme = Scheme::ALL.into_iter().find(|it| it.name() == raw.scheme);
    let scheme = scheme.ok_or_else(|| {
        let names = Scheme::ALL.map(Scheme::name).join(", ");
        let found = excerpt(&raw.scheme);
        format!("{}: expected {names}, found `{found}`", of("scheme"))
    })?;
    let usual = Flow::new(&raw.from, &raw.to, scheme);
    let when = |key: &str, it: &Option<RawTime>| {
        let it = it.as_ref().map(|it| instant(&of(key), it));
        it.transpose()
    };
    let theta = match &raw.theta {
        None => Vec::new(),
        Some(RawTheta::Always(theta)) => vec![(Time::ZERO, *theta)],
        Some(RawTheta::Changing(all)) => all
            .iter()
            .map(|(at, theta)| Ok((instant(&of("theta"), at)?, *theta)))
            .collect::<Result<_, String>>()?,
    };
    let rto_min = raw.rto_min.as_ref();
    Ok(Flow {
        theta,
        start: when("start", &raw.start)?.unwrap_or(usual.start),
        stop: when("stop", &raw.stop)?,
        packets: raw.packets,
        initial_window: raw.initial_window,
        g: raw.g,
        window_min: raw.window_min,
        grows_when_marked: raw.grows_when_marked,
        has_parts: raw.parts,
        rto_min: rto_min.map(|it| time(&of("rto-min"), it)).transpose()?,
        ..usual
    })
}

fn size(key: &str, text: Option<&str>, usual: u32) -> Result<u32, String> {
    let Some(text) = text else {
        return Ok(usual);
    };
    let bytes: Bytes = (text.parse()).map_err(|why| format!("`{key}`: {why}"))?;
    // What does not fit is refused as out of range, as is nothing.
    Ok(u32::try_from(bytes.0).unwrap_or(u32::MAX))
}

fn time(what: &str, raw: &RawTime) -> Result<Duration, String> {
    let fail = |why: &dyn Display| format!("{what}: {why}");
    match raw {
        RawTime::Text(text) => parse_duration(text).map_err(|why| fail(&why)),
        RawTime::Seconds(seconds) => Duration::try_from_secs_f64(*seconds)
            .map_err(|_| fail(&format!("{seconds} s: expected a time from 0 s on"))),
    }
}

fn instant(what: &str, raw: &RawTime) -> Result<Time, String> {
    Ok(Time::ZERO + time(what, raw)?)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    const LINK: &str = "[[link]]\nfrom = \"a\"\nto = \"b\"\nrate = \"1000 pps\"\n";
    const FLOW: &str = "[[flow]]\nfrom = \"a\"\nto = \"b\"\nscheme = \"push\"\n";

    /// A file, or what is wrong with it or with what it says.
    fn run(text: &str) -> Result<Flows, String> {
        let flows = parse(text, "f").map_err(|error| error.to_string())?;
        match flows.run() {
            Ok(_) => Ok(flows),
            Err(error) => Err(error.to_string()),
        }
    }

    #[test]
    fn a_file_says_what_differs() {
        let text = "duration = \"1 s\"\npacket = \"1000 B\"\nsample = 0.1\nseed = 7\n\
             [[link]]\nfrom = \"a\"\nto = \"b\"\nrate = \"8 Mbit/s\"\ndelay = \"1 ms\"\nqueue = 50\necn = 20\n\
             loss = 0.01\nrates = [[\"0.2 s\", \"500 pps\"]]\nlose = { at = 0.05, packets = 100 }\n\
             [[flow]]\nfrom = \"a\"\nto = \"b\"\nscheme = \"push\"\ntheta = [[0.0, 51], [0.5, 0.5]]\n\
             start = 0.1\nstop = \"0.9 s\"\npackets = 10\ninitial-window = 4\nrto-min = \"20 ms\"\n";
        let flows = run(text).unwrap();
        let line = &flows.lines[0];
        let ms = |ms: u64| Time(ms * 1_000_000);
        assert_eq!(
            (flows.packet_bytes, flows.ack_bytes, flows.seed),
            (1000, 40, 7)
        );
        assert_eq!((line.packets_per_s, line.queue_packets), (1000.0, 50));
        assert_eq!(
            (line.mark_packets, line.loss, line.is_both),
            (Some(20), 0.01, true)
        );
        assert_eq!(line.rates, [(ms(200), 500.0)]);
        assert_eq!(line.lose, [(ms(50), 100)]);
        let flow = &flows.flows[0];
        assert_eq!(flow.theta, [(Time::ZERO, 51.0), (ms(500), 0.5)]);
        assert_eq!((flow.start, flow.stop), (ms(100), Some(ms(900))));
        assert_eq!((flow.packets, flow.initial_window), (Some(10), Some(4.0)));
        assert_eq!(flow.rto_min, Some(Duration::from_millis(20)));
    }

    #[test]
    fn the_example_is_one() {
        let flows = run(EXAMPLE).unwrap();
        assert_eq!(flows.flows.len(), 2);
        assert_eq!(flows.flows[1].theta, [(Time::ZERO, 4.0)]);
        assert_eq!(flows.lines[0].packets_per_s.floor(), 2066.0);
    }

    #[test]
    fn what_is_wrong_is_said_in_a_line() {
        let with = |before: &str, link: &str, flow: &str| {
            format!("duration = \"1 s\"\n{before}{LINK}{link}{FLOW}{flow}")
        };
        assert!(run(&with("", "", "")).is_ok());
        for (before, link, flow, why) in [
            ("width = 1\n", "", "", "f: line 2: unknown field `width`"),
            ("sample = \"x\"\n", "", "", "f: `sample`: duration `x`"),
            (
                "sample = 0\n",
                "",
                "",
                "`sample` is 0 s: expected more than 0 s",
            ),
            (
                "jitter = 2\n",
                "",
                "",
                "`jitter` is 2 s: expected at most 1 s",
            ),
            (
                "sample = 1e-7\n",
                "",
                "",
                "values of flows and links in all",
            ),
            (
                "packet = \"70 kB\"\n",
                "",
                "",
                "`packet` is 70000 B: expected 1 B to",
            ),
            (
                "",
                "queue = 10\necn = 11\n",
                "",
                "link 1: `ecn` is 11: expected 1 packet to the 10",
            ),
            ("", "queue = 0\n", "", "link 1: `queue` is 0"),
            ("", "queue = -1\n", "", "f: line 6: invalid value"),
            (
                "",
                "loss = 1.0\n",
                "",
                "link 1: `loss` is 1: expected 0 to less than 1",
            ),
            ("", "burst = 0.5\n", "", "link 1: `burst` is 0.5"),
            (
                "",
                "delay = -1.0\n",
                "",
                "f: link 1: `delay`: -1 s: expected a time from 0 s on",
            ),
            (
                "",
                "delay = \"-1 s\"\n",
                "",
                "f: link 1: `delay`: duration `-1 s`",
            ),
            (
                "",
                "delay = \"3000 s\"\n",
                "",
                "packets would be on their way",
            ),
            (
                "",
                "rates = [[2.0, \"1 pps\"]]\n",
                "",
                "link 1: `rates` is at 2 s: expected",
            ),
            (
                "",
                "rates = [[0.5, \"-1 pps\"]]\n",
                "",
                "link 1: `rates`: `-1 pps` is no number of packets",
            ),
            ("", "lose = { at = 0.1 }\n", "", "f: line 6: "),
            ("", "both = false\n", "", "no way leads from `b` to `a`"),
            (
                "",
                "both = false\n[[link]]\nfrom = \"b\"\nto = \"c\"\nrate = \"1 pps\"\n\
                  [[link]]\nfrom = \"c\"\nto = \"a\"\nrate = \"1 pps\"\n",
                "",
                "flow 1: acknowledgements have no way back",
            ),
            (
                "",
                "[[link]]\nfrom = \"b\"\nto = \"a\"\nrate = \"1 pps\"\n",
                "",
                "link 2: there is another link from `b` to `a`",
            ),
            (
                "",
                "[[link]]\nfrom = \"c\"\nto = \"c\"\nrate = \"1 pps\"\n",
                "",
                "link 2: `to` is the node",
            ),
            (
                "",
                "[[link]]\nfrom = \"c\"\nto = \"d\"\nrate = \"1 pps\"\n",
                "[[flow]]\nfrom = \"a\"\nto = \"c\"\nscheme = \"reno\"\n",
                "no way leads from `a` to `c`",
            ),
            (
                "",
                "",
                "theta = 0\n",
                "flow 1: `theta` is 0: expected a number above 0",
            ),
            ("", "", "theta = nan\n", "flow 1: `theta` is NaN"),
            (
                "",
                "",
                "theta = [[0.5, 1.0]]\n",
                "flow 1: `theta` is first said at 0.5 s",
            ),
            (
                "",
                "",
                "theta = [[0, 1], [0.5, 2], [0.2, 1]]\n",
                "flow 1: `theta` is at 0.2 s: expected times",
            ),
            (
                "",
                "",
                "start = 1.0\n",
                "flow 1: `start` is 1 s: expected before the end",
            ),
            ("", "", "start = -1\n", "f: flow 1: `start`: -1 s"),
            (
                "",
                "",
                "start = 0.5\nstop = 0.5\n",
                "flow 1: `stop` is 0.5 s: expected after the start",
            ),
            ("", "", "packets = 0\n", "flow 1: `packets` is 0"),
            (
                "",
                "",
                "initial-window = 0.5\n",
                "flow 1: `initial-window` is 0.5",
            ),
            ("", "", "g = 2\n", "flow 1: `g` is 2"),
            (
                "",
                "",
                "grows-when-marked = true\n",
                "flow 1: `grows-when-marked` is given: expected none: push is not dctcp",
            ),
            (
                "",
                "",
                "[[flow]]\nfrom = \"a\"\nto = \"b\"\nscheme = \"dctcp\"\nwindow-min = 0.5\n",
                "flow 2: `window-min` is 0.5: expected 1 to",
            ),
            ("", "", "rto-min = 0\n", "flow 1: `rto-min` is 0 s"),
            (
                "",
                "",
                "[[flow]]\nfrom = \"a\"\nto = \"x\"\nscheme = \"reno\"\n",
                "flow 2: `to`: there is no link to a node `x`",
            ),
            (
                "",
                "",
                "[[flow]]\nfrom = \"a\"\nto = \"a\"\nscheme = \"reno\"\n",
                "flow 2: `to` is the node of `from`",
            ),
            (
                "",
                "",
                "[[flow]]\nfrom = \"a\"\nto = \"b\"\nscheme = \"reno\"\ntheta = 1\n",
                "expected none: reno has no weights",
            ),
            (
                "",
                "",
                "[[flow]]\nfrom = \"a\"\nto = \"b\"\nscheme = \"ren\\u001b\"\n",
                "f: flow 2: `scheme`: expected push, dctcp, reno, cubic, dccp, found `ren",
            ),
        ] {
            let said = run(&with(before, link, flow)).unwrap_err();
            assert!(said.contains(why), "{before}{link}{flow}: {said}");
            assert!(!said.contains('\n') && !said.contains('\u{1b}'), "{said}");
        }
        for (text, why) in [
            ("", "f: line 1: missing field `duration`"),
            ("duration = 1\n", "`link` is 0: expected 1 to 1000 of them"),
            ("duration = 0\n", "`link` is 0"),
            (
                "duration = 1\n[[link]]\nfrom = \"a\"\nto = \"b\"\nrate = \"3\"\n",
                "f: link 1: `rate`: rate `3` has no unit",
            ),
        ] {
            let said = run(text).unwrap_err();
            assert!(said.contains(why), "{text}: {said}");
        }
    }
}
