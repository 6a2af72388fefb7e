//! What links and flows may be.

use std::collections::BTreeSet;
use std::fmt::Display;
use std::time::Duration;

use outpour_core::Time;
use outpour_core::topology::DELAY_MAX;

use super::{
    CHANGES_MAX, FLOWS_MAX, Flow, Flows, FlowsError, LINK_PACKETS_MAX, LINKS_MAX, Line, QUEUE_MAX,
    Scheme, VALUES_MAX,
};

/// Of what something is wrong, with a colon behind.
struct Of(String);

impl Of {
    fn range(
        &self,
        key: &'static str,
        is_fine: bool,
        found: impl Display,
        expected: impl Display,
    ) -> Result<(), FlowsError> {
        if is_fine {
            return Ok(());
        }
        Err(FlowsError::Range {
            what: self.0.clone(),
            key,
            found: found.to_string(),
            expected: expected.to_string(),
        })
    }
}

fn seconds(time: Time) -> String {
    format!("{} s", time.as_secs_f64())
}

impl Flows {
    /// Checks everything that does not depend on how nodes are joined.
    pub(super) fn check(&self) -> Result<(), FlowsError> {
        let all = Of(String::new());
        let (links, flows) = (self.lines.len(), self.flows.len());
        let is_fine = (1..=LINKS_MAX).contains(&links);
        all.range("link", is_fine, links, format!("1 to {LINKS_MAX} of them"))?;
        let is_fine = (1..=FLOWS_MAX).contains(&flows);
        all.range("flow", is_fine, flows, format!("1 to {FLOWS_MAX} of them"))?;
        for (key, bytes) in [("packet", self.packet_bytes), ("ack", self.ack_bytes)] {
            let is_fine = (1..=65_535).contains(&bytes);
            all.range(key, is_fine, format!("{bytes} B"), "1 B to 65535 B")?;
        }
        let duration = self.duration.as_secs_f64();
        let is_fine = !self.duration.is_zero() && self.duration <= Duration::from_secs(86_400);
        let found = format!("{duration} s");
        all.range("duration", is_fine, found, "more than 0 s, at most a day")?;
        let is_fine = self.jitter <= Duration::from_secs(1);
        let found = format!("{} s", self.jitter.as_secs_f64());
        all.range("jitter", is_fine, found, "at most 1 s")?;
        self.check_changes(&all)?;
        for (index, line) in self.lines.iter().enumerate() {
            self.check_line(line, &Of(format!("link {}: ", index + 1)))?;
        }
        for (index, flow) in self.flows.iter().enumerate() {
            self.check_flow(flow, &Of(format!("flow {}: ", index + 1)))?;
        }
        self.check_pairs()
    }

    fn end(&self) -> Time {
        Time::ZERO + self.duration
    }

    fn check_changes(&self, all: &Of) -> Result<(), FlowsError> {
        let of_line = |it: &Line| it.rates.len() + it.lose.len();
        let of_lines: usize = self.lines.iter().map(of_line).sum();
        let of_flows: usize = self.flows.iter().map(|it| it.theta.len()).sum();
        let changes = of_lines + of_flows;
        let expected = format!("at most {CHANGES_MAX} changes in all");
        let is_fine = changes <= CHANGES_MAX;
        all.range("rates", is_fine, format!("one of {changes}"), expected)?;
        // Everything is looked at twice between two changes.
        let times = 2 * self.boundaries().len();
        let samples = self.duration.as_secs_f64() / self.sample.as_secs_f64();
        let values =
            (samples + times as f64) * (self.flows.len() + 2 * self.lines.len() + 1) as f64;
        let is_fine = !self.sample.is_zero() && values <= VALUES_MAX;
        let found = format!("{} s", self.sample.as_secs_f64());
        let expected =
            format!("more than 0 s, and at most {VALUES_MAX} values of flows and links in all");
        all.range("sample", is_fine, found, expected)
    }

    fn check_line(&self, line: &Line, of: &Of) -> Result<(), FlowsError> {
        let (inside, carried) = LINK_PACKETS_MAX;
        let rates = std::iter::once(("rate", &line.packets_per_s))
            .chain(line.rates.iter().map(|(_, rate)| ("rates", rate)));
        for (key, rate) in rates {
            // A link may be down for a while, but has to be one at first.
            let is_fine = rate.is_finite() && (*rate > 0.0 || key == "rates" && *rate >= 0.0);
            of.range(key, is_fine, format!("{rate} pps"), "more than 0 pps")?;
            let is_fine = rate * self.duration.as_secs_f64() <= carried;
            let expected = format!("less: it would carry more than {carried} packets");
            of.range(key, is_fine, format!("{rate} pps"), expected)?;
            let is_fine = rate * line.delay.as_secs_f64() <= inside;
            let expected = format!("less: more than {inside} packets would be on their way");
            let found = format!("{} s", line.delay.as_secs_f64());
            of.range("delay", is_fine, found, expected)?;
        }
        let is_fine = line.delay <= DELAY_MAX;
        let found = format!("{} s", line.delay.as_secs_f64());
        of.range("delay", is_fine, found, "at most an hour")?;
        let queue = line.queue_packets;
        let is_fine = (1..=QUEUE_MAX).contains(&queue);
        of.range("queue", is_fine, queue, format!("1 to {QUEUE_MAX} packets"))?;
        if let Some(mark) = line.mark_packets {
            let is_fine = (1..=queue).contains(&mark);
            let expected = format!("1 packet to the {queue} of `queue`");
            of.range("ecn", is_fine, mark, expected)?;
        }
        let is_fine = (0.0..1.0).contains(&line.loss);
        of.range("loss", is_fine, line.loss, "0 to less than 1")?;
        let is_fine = line.burst.is_finite() && line.burst >= 1.0;
        of.range("burst", is_fine, line.burst, "1 or more packets")?;
        self.check_times(of, "rates", line.rates.iter().map(|it| it.0))?;
        self.check_times(of, "lose", line.lose.iter().map(|it| it.0))
    }

    /// Times of changes come in order, within the run.
    fn check_times(
        &self,
        of: &Of,
        key: &'static str,
        times: impl Iterator<Item = Time>,
    ) -> Result<(), FlowsError> {
        let mut last = Time::ZERO;
        for time in times {
            let is_fine = time >= last && time < self.end();
            let expected = format!(
                "times in order, before the end at {} s",
                self.duration.as_secs_f64()
            );
            of.range(key, is_fine, format!("at {}", seconds(time)), expected)?;
            last = time;
        }
        Ok(())
    }

    fn check_flow(&self, flow: &Flow, of: &Of) -> Result<(), FlowsError> {
        let is_fine = flow.from != flow.to;
        of.range("to", is_fine, "the node of `from`", "another")?;
        let end = format!(
            "before the end of the run at {} s",
            self.duration.as_secs_f64()
        );
        of.range("start", flow.start < self.end(), seconds(flow.start), end)?;
        if let Some(stop) = flow.stop {
            let expected = format!("after the start at {}", seconds(flow.start));
            of.range("stop", stop > flow.start, seconds(stop), expected)?;
        }
        let packets = flow.packets.unwrap_or(1);
        let is_fine = (1..=1 << 40).contains(&packets);
        of.range("packets", is_fine, packets, "1 to 2^40")?;
        if flow.scheme.is_weighted() {
            for (_, theta) in &flow.theta {
                let is_fine = theta.is_finite() && *theta > 0.0;
                of.range("theta", is_fine, theta, "a number above 0")?;
            }
            self.check_times(of, "theta", flow.theta.iter().map(|it| it.0))?;
            if let Some((first, _)) = flow.theta.first() {
                let is_fine = *first == Time::ZERO;
                let found = format!("first said at {}", seconds(*first));
                of.range("theta", is_fine, found, "the first at 0 s")?;
            }
        } else {
            let expected = format!("none: {} has no weights", flow.scheme.name());
            of.range("theta", flow.theta.is_empty(), "given", expected)?;
        }
        if let Some(window) = flow.initial_window {
            let is_fine = (1.0..=1e6).contains(&window);
            of.range("initial-window", is_fine, window, "1 to 1000000 packets")?;
        }
        if let Some(g) = flow.g {
            let is_fine = g > 0.0 && g <= 1.0;
            of.range("g", is_fine, g, "a number above 0, at most 1")?;
        }
        if let Some(min) = flow.window_min {
            let is_fine = (1.0..=1e6).contains(&min);
            of.range("window-min", is_fine, min, "1 to 1000000 packets")?;
        }
        for (key, is_given) in [
            ("window-min", flow.window_min.is_some()),
            ("grows-when-marked", flow.grows_when_marked),
            ("parts", flow.has_parts),
        ] {
            let is_fine = !is_given || flow.scheme == Scheme::Dctcp;
            let expected = format!("none: {} is not dctcp", flow.scheme.name());
            of.range(key, is_fine, "given", expected)?;
        }
        if let Some(min) = flow.rto_min {
            let is_fine = !min.is_zero() && min <= Duration::from_secs(60);
            let found = format!("{} s", min.as_secs_f64());
            of.range("rto-min", is_fine, found, "more than 0 s, at most 60 s")?;
        }
        Ok(())
    }

    /// At most one link leads from one node to another.
    fn check_pairs(&self) -> Result<(), FlowsError> {
        let mut pairs = BTreeSet::new();
        for (index, line) in self.lines.iter().enumerate() {
            let of = Of(format!("link {}: ", index + 1));
            of.range("to", line.from != line.to, "the node of `from`", "another")?;
            let there = Some((&line.from, &line.to));
            let back = line.is_both.then_some((&line.to, &line.from));
            for pair in there.into_iter().chain(back) {
                if !pairs.insert(pair) {
                    return Err(FlowsError::Twice {
                        link: index + 1,
                        from: pair.0.clone(),
                        to: pair.1.clone(),
                    });
                }
            }
        }
        Ok(())
    }
}
