//! How bulk transfers leave room for latency-sensitive traffic on the links between clusters, and what was
//! measured of that traffic.

use std::collections::BTreeMap;
use std::fmt;
use std::num::NonZeroUsize;

use serde::{Deserialize, Serialize};

use crate::network::{Change, ClusterId, Network, Resource};
use crate::text::excerpt;
use crate::units::UnitError;
use crate::{Rate, Time};

/// How bulk transfers leave room for latency-sensitive traffic on the links between sites.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub enum Separation {
    /// Bulk and what was last measured of latency-sensitive traffic together fill at most this share
    /// of a link, in percent [BDS §5.2].
    Threshold {
        /// From 0 to 100; the paper uses 80.
        percent: f64,
    },
    /// Bulk gets what the historical peak of latency-sensitive traffic leaves of a link [BDS §6.2].
    Peak,
}

impl Default for Separation {
    fn default() -> Self {
        Self::Threshold { percent: 80.0 }
    }
}

/// A threshold that is no share of a link.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
#[error("a threshold of {found} % is not from 0 to 100 %")]
pub struct ThresholdError {
    /// What was set.
    pub found: f64,
}

impl Separation {
    /// The rule with a threshold.
    ///
    /// # Errors
    /// If the threshold is not from 0 to 100 %.
    pub fn threshold(percent: f64) -> Result<Self, ThresholdError> {
        Self::Threshold { percent }.checked()
    }

    /// The rule itself, if it can be kept.
    ///
    /// # Errors
    /// If the threshold is not from 0 to 100 %.
    pub fn checked(self) -> Result<Self, ThresholdError> {
        match self {
            Self::Threshold { percent } if !(0.0..=100.0).contains(&percent) => {
                Err(ThresholdError { found: percent })
            }
            rule => Ok(rule),
        }
    }

    /// What bulk may use of a link that carries `capacity`, with so much latency-sensitive traffic now and
    /// at the most there ever was.
    #[must_use]
    pub fn leaves(self, capacity: Rate, now: Rate, peak: Rate) -> Rate {
        if capacity.is_unlimited() {
            return capacity;
        }
        let all = capacity.bytes_per_s();
        let left = match self {
            Self::Threshold { percent } => all * (percent / 100.0) - now.bytes_per_s(),
            Self::Peak => all - peak.bytes_per_s(),
        };
        debug_assert!(left <= all, "nothing is gained by measuring");
        Rate::from_bytes_per_s(left.max(0.0)).unwrap_or(Rate::ZERO)
    }
}

/// Latency-sensitive traffic from one cluster to another, as it was measured last.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Traffic {
    /// The cluster that sends.
    pub from: ClusterId,
    /// The cluster that receives.
    pub to: ClusterId,
    /// How much there is now.
    pub rate: Rate,
    /// The most that there ever was, if more is known than was told before.
    pub peak: Rate,
}

/// Of so many links at most traffic is told.
pub const TRAFFIC_LINKS_MAX: usize = 4096;

/// What is wrong with a file of traffic, and where.
#[derive(Clone, Debug, PartialEq)]
pub struct TrafficError {
    file: String,
    line: NonZeroUsize,
    problem: TrafficProblem,
}

#[derive(Clone, Debug, PartialEq)]
enum TrafficProblem {
    Form(String),
    Cluster(String),
    Inside(String),
    Rate(UnitError),
    Peak,
    Endless,
    Twice(String, String),
    Many,
}

impl fmt::Display for TrafficError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: ", self.file, self.line)?;
        match &self.problem {
            TrafficProblem::Form(found) => write!(
                f,
                "expected `CLUSTER CLUSTER RATE`, as in `ams nyc 3 MB/s` or `ams nyc 3 MB/s, peak 9 MB/s`, \
                 found `{}`",
                excerpt(found)
            ),
            TrafficProblem::Cluster(name) => {
                write!(f, "the network has no cluster `{}`", excerpt(name))
            }
            TrafficProblem::Inside(name) => write!(
                f,
                "the traffic is from `{}` to itself: only links between clusters are shared with bulk",
                excerpt(name)
            ),
            TrafficProblem::Rate(error) => write!(f, "{error}"),
            TrafficProblem::Peak => write!(f, "the peak is below the rate"),
            TrafficProblem::Endless => write!(f, "traffic has a rate, and `unlimited` is none"),
            TrafficProblem::Twice(from, to) => write!(
                f,
                "the traffic from `{}` to `{}` is here for the second time",
                excerpt(from),
                excerpt(to)
            ),
            TrafficProblem::Many => {
                write!(f, "traffic of more than {TRAFFIC_LINKS_MAX} links")
            }
        }
    }
}

impl std::error::Error for TrafficError {}

impl Traffic {
    /// Reads a file of traffic, one link a line: `FROM TO RATE` or `FROM TO RATE, peak RATE`, with clusters of
    /// the network. `#` begins a comment. Links that are not named have no such traffic.
    ///
    /// ```
    /// use outpour_core::{Network, separation::Traffic};
    /// let text = "[[cluster]]\nname = \"ams\"\nnodes = 1\n[[cluster]]\nname = \"nyc\"\nnodes = 1\n";
    /// let network = Network::from_toml(text, "net.toml")?;
    /// let all = Traffic::read("ams nyc 3 MB/s, peak 9 MB/s  # since Monday\n", "traffic", &network)?;
    /// assert_eq!(all[0].rate, "3 MB/s".parse()?);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// Names the line, what was found there and what was expected.
    pub fn read(text: &str, file: &str, network: &Network) -> Result<Vec<Self>, TrafficError> {
        let mut all: Vec<Self> = Vec::new();
        for (line, text) in (1..).filter_map(NonZeroUsize::new).zip(text.lines()) {
            let text = text.split('#').next().unwrap_or_default().trim();
            if text.is_empty() {
                continue;
            }
            let fail = |problem| TrafficError {
                file: file.to_owned(),
                line,
                problem,
            };
            let one = Self::read_line(text, network).map_err(fail)?;
            if all.iter().any(|it| (it.from, it.to) == (one.from, one.to)) {
                let name = |id: ClusterId| network.clusters()[id.index()].name.clone();
                return Err(fail(TrafficProblem::Twice(name(one.from), name(one.to))));
            }
            if all.len() == TRAFFIC_LINKS_MAX {
                return Err(fail(TrafficProblem::Many));
            }
            all.push(one);
        }
        Ok(all)
    }

    fn read_line(text: &str, network: &Network) -> Result<Self, TrafficProblem> {
        let form = || TrafficProblem::Form(text.to_owned());
        let (from, rest) = text.split_once(char::is_whitespace).ok_or_else(form)?;
        let (to, rest) = rest
            .trim_start()
            .split_once(char::is_whitespace)
            .ok_or_else(form)?;
        let cluster = |name: &str| {
            let at = network.clusters().iter().position(|it| it.name == name);
            let at = at.ok_or_else(|| TrafficProblem::Cluster(name.to_owned()))?;
            Ok(ClusterId(at as u32))
        };
        let rate = |text: &str| {
            let rate: Rate = text.trim().parse().map_err(TrafficProblem::Rate)?;
            match rate.is_unlimited() {
                true => Err(TrafficProblem::Endless),
                false => Ok(rate),
            }
        };
        let (now, peak) = match rest.split_once(',') {
            None => (rate(rest)?, None),
            Some((now, peak)) => {
                let peak = peak.trim_start().strip_prefix("peak").ok_or_else(form)?;
                (rate(now)?, Some(rate(peak)?))
            }
        };
        let one = Self {
            from: cluster(from)?,
            to: cluster(to)?,
            rate: now,
            peak: peak.unwrap_or(now),
        };
        match one.peak < one.rate {
            _ if one.from == one.to => Err(TrafficProblem::Inside(from.to_owned())),
            true => Err(TrafficProblem::Peak),
            false => Ok(one),
        }
    }

    /// Whether it can be traffic of a network with so many clusters.
    pub fn is_sound(&self, clusters: usize) -> bool {
        let within = |id: ClusterId| id.index() < clusters;
        let finite = !self.rate.is_unlimited() && !self.peak.is_unlimited();
        within(self.from) && within(self.to) && self.from != self.to && finite
    }
}

/// What bulk may use of a network over time, as changes of that network.
#[derive(Clone, Debug)]
pub struct Left<I> {
    network: Network,
    rule: Option<Separation>,
    /// The traffic of each link, and the most there was.
    traffic: BTreeMap<(ClusterId, ClusterId), (Rate, Rate)>,
    changes: I,
}

/// What bulk may use of a network before there is other traffic, and what becomes of that over time. Without a
/// rule other traffic goes first, and bulk has the rest.
pub fn left<I>(network: &Network, rule: Option<Separation>, changes: I) -> (Network, Left<I>)
where
    I: Iterator<Item = (Time, Vec<Change>)>,
{
    let left = Left {
        network: network.clone(),
        rule,
        traffic: BTreeMap::new(),
        changes,
    };
    let mut used = network.clone();
    let clusters = || (0..network.clusters().len() as u32).map(ClusterId);
    for (from, to) in clusters().flat_map(|from| clusters().map(move |to| (from, to))) {
        if let Some(rate) = (from != to).then(|| left.of(from, to)).flatten() {
            let resource = Resource::Link(from, to);
            used.apply(&Change::Capacity { resource, rate });
        }
    }
    for cluster in clusters() {
        for resource in [Resource::ClusterOut(cluster), Resource::ClusterIn(cluster)] {
            let rate = left
                .rule()
                .leaves(network.capacity(resource), Rate::ZERO, Rate::ZERO);
            if rule.is_some() {
                used.apply(&Change::Capacity { resource, rate });
            }
        }
    }
    (used, left)
}

impl<I> Left<I> {
    fn rule(&self) -> Separation {
        self.rule
            .unwrap_or(Separation::Threshold { percent: 100.0 })
    }

    /// What is left of a link, if that is less than all of it.
    fn of(&self, from: ClusterId, to: ClusterId) -> Option<Rate> {
        let all = self.network.capacity(Resource::Link(from, to));
        let none = (Rate::ZERO, Rate::ZERO);
        let (now, peak) = self.traffic.get(&(from, to)).copied().unwrap_or(none);
        let left = self.rule().leaves(all, now, peak);
        (left != all).then_some(left)
    }

    fn change(&mut self, change: Change) -> Change {
        self.network.apply(&change);
        let (from, to) = match change {
            Change::Foreground { from, to, rate } => {
                let traffic = self.traffic.entry((from, to)).or_default();
                *traffic = (rate, traffic.1.max(rate));
                (from, to)
            }
            Change::Capacity { resource, rate } => match resource {
                Resource::Link(from, to) if from != to => (from, to),
                Resource::ClusterOut(_) | Resource::ClusterIn(_) => {
                    let rate = self.rule().leaves(rate, Rate::ZERO, Rate::ZERO);
                    return Change::Capacity { resource, rate };
                }
                _ => return change,
            },
            _ => return change,
        };
        let resource = Resource::Link(from, to);
        let all = self.network.capacity(resource);
        let rate = self.of(from, to).unwrap_or(all);
        Change::Capacity { resource, rate }
    }
}

impl<I: Iterator<Item = (Time, Vec<Change>)>> Iterator for Left<I> {
    type Item = (Time, Vec<Change>);

    fn next(&mut self) -> Option<Self::Item> {
        let (at, changes) = self.changes.next()?;
        let changes = changes.into_iter().map(|change| self.change(change));
        Some((at, changes.collect()))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn network() -> Network {
        let cluster = |name: &str| format!("[[cluster]]\nname = \"{name}\"\nnodes = 1\n");
        Network::from_toml(&(cluster("ams") + &cluster("nyc")), "net.toml").unwrap()
    }

    #[test]
    fn a_rule_leaves_what_it_says() {
        let mb = |rate: f64| Rate::from_bytes_per_s(rate * 1e6).unwrap();
        let left = |rule: Separation, now: f64, peak: f64| {
            (rule.leaves(mb(15.0), mb(now), mb(peak)).bytes_per_s() / 1e6).round()
        };
        let threshold = Separation::threshold(80.0).unwrap();
        assert_eq!(left(threshold, 0.0, 0.0), 12.0);
        assert_eq!(left(threshold, 5.0, 6.0), 7.0);
        assert_eq!(left(threshold, 50.0, 60.0), 0.0);
        assert_eq!(left(Separation::Peak, 5.0, 6.0), 9.0);
        let open = Rate::UNLIMITED;
        assert_eq!(threshold.leaves(open, mb(3.0), mb(3.0)), open);
        for percent in [-0.1, 100.1, f64::NAN] {
            assert!(Separation::threshold(percent).is_err(), "{percent}");
        }
    }

    #[test]
    fn what_is_left_of_a_network_follows_its_changes() {
        let link = "[[link]]\nfrom = \"*\"\nto = \"*\"\nrate = \"10 MB/s\"\n";
        let cluster = |name: &str| format!("[[cluster]]\nname = \"{name}\"\nnodes = 1\n");
        let text = cluster("ams") + &cluster("nyc") + link;
        let network = Network::from_toml(&text, "net.toml").unwrap();
        let mb = |rate: f64| Rate::from_bytes_per_s(rate * 1e6).unwrap();
        let (from, to) = (ClusterId(0), ClusterId(1));
        let resource = Resource::Link(from, to);
        let rate = |rate| Change::Foreground {
            from,
            to,
            rate: mb(rate),
        };
        let halved = Change::Capacity {
            resource,
            rate: mb(5.0),
        };
        let changes = vec![
            (Time(1), vec![rate(3.0)]),
            (Time(2), vec![halved]),
            (Time(3), vec![rate(1.0)]),
        ];
        for (rule, expected) in [
            (None, [10.0, 7.0, 2.0, 4.0]),
            (Some(Separation::default()), [8.0, 5.0, 1.0, 3.0]),
            (Some(Separation::Peak), [10.0, 7.0, 2.0, 2.0]),
        ] {
            let (mut now, left) = left(&network, rule, changes.clone().into_iter());
            let mut seen = vec![now.capacity(resource)];
            for (_, changes) in left {
                changes.iter().for_each(|change| now.apply(change));
                seen.push(now.capacity(resource));
            }
            let seen: Vec<f64> = seen.iter().map(|rate| rate.bytes_per_s() / 1e6).collect();
            assert!(
                seen.iter().zip(expected).all(|(a, b)| (a - b).abs() < 1e-9),
                "{rule:?}: {seen:?}"
            );
        }
    }

    #[test]
    fn a_file_names_links_rates_and_peaks() {
        let text = "# by the monitor\n\nams nyc 3 MB/s\nnyc  ams 8 Mbit/s, peak 2 MB/s # night\n";
        let all = Traffic::read(text, "t", &network()).unwrap();
        let said = |it: &Traffic| {
            (
                it.from.0,
                it.to.0,
                it.rate.bytes_per_s(),
                it.peak.bytes_per_s(),
            )
        };
        let said: Vec<_> = all.iter().map(said).collect();
        assert_eq!(said, [(0, 1, 3e6, 3e6), (1, 0, 1e6, 2e6)]);
        assert!(all.iter().all(|it| it.is_sound(2) && !it.is_sound(1)));
    }

    #[test]
    fn a_wrong_file_says_where_and_what() {
        for (text, says) in [
            ("ams", "t:1: expected `CLUSTER CLUSTER RATE`"),
            ("\nams nyc", "t:2: expected `CLUSTER CLUSTER RATE`"),
            (
                "ams nyc 3 MB/s, top 4 MB/s",
                "t:1: expected `CLUSTER CLUSTER RATE`",
            ),
            ("ams tok 3 MB/s", "t:1: the network has no cluster `tok`"),
            ("ams ams 3 MB/s", "t:1: the traffic is from `ams` to itself"),
            ("ams nyc 3", "t:1: rate `3` has no unit"),
            (
                "ams nyc 3 MB/s, peak 2 MB/s",
                "t:1: the peak is below the rate",
            ),
            ("ams nyc unlimited", "t:1: traffic has a rate"),
            (
                "ams nyc 3 MB/s\nams nyc 3 MB/s",
                "t:2: the traffic from `ams` to `nyc`",
            ),
        ] {
            let error = Traffic::read(text, "t", &network())
                .unwrap_err()
                .to_string();
            assert!(error.starts_with(says), "{error}");
        }
    }
}
