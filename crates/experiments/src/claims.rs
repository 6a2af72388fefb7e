//! What the thesis claims in numbers or comparisons, and the same worked out from our reports.

use std::collections::BTreeMap;

use crate::report::{GridReport, Group, Panel};

/// The reports by experiment.
pub(crate) struct Found<'a>(pub(crate) &'a BTreeMap<&'a str, GridReport>);

/// A claim of the thesis and how to see what we have instead.
pub(crate) struct Claim {
    /// The experiment.
    pub(crate) name: &'static str,
    /// What the thesis says.
    pub(crate) theirs: &'static str,
    /// What we measured, if it was measured.
    pub(crate) ours: fn(&Found<'_>) -> Option<String>,
}

const fn claim(
    name: &'static str,
    theirs: &'static str,
    ours: fn(&Found<'_>) -> Option<String>,
) -> Claim {
    Claim { name, theirs, ours }
}

const CHANGING: [&str; 3] = ["fast -> slow", "slow -> fast", "mayhem"];
const STATIC: [&str; 2] = ["fast links", "slow links"];

pub(crate) const CLAIMS: &[Claim] = &[
    claim(
        "gridlab",
        "Balanced beats semi-flat, max-bottleneck and FPFR trees at every root",
        |found| found.wins("gridlab", "balanced", &["direct", "max-bottleneck", "fpfr"]),
    ),
    claim("gridlab", "FPFR is at times below a single tree", |found| {
        let better =
            ["direct", "max-bottleneck"].map(|tree| found.wins("gridlab", tree, &["fpfr"]));
        let [flat, bottleneck] = better;
        Some(format!(
            "semi-flat beats it at {}, max-bottleneck at {}",
            flat?, bottleneck?
        ))
    }),
    claim(
        "gridlab",
        "the optimum of one root takes 20 minutes",
        |found| {
            let panel = found.panel("gridlab")?;
            let times = panel.groups.iter().filter_map(|group| group.of("optimal"));
            let slowest = times.map(|m| m.wall_s).fold(0.0, f64::max);
            Some(format!("planned and simulated in {slowest:.2} s at most"))
        },
    ),
    claim("das2", "11.2 MB/s with one node per cluster", |found| {
        found.mb("das2-two", "1", "balanced")
    }),
    claim(
        "das2",
        "62 MB/s between two clusters with six nodes",
        |found| found.mb("das2-two", "6", "balanced"),
    ),
    claim(
        "das2",
        "57 MB/s over three clusters with six nodes",
        |found| found.mb("das2-three", "6", "balanced"),
    ),
    claim("case1", "BitTorrent is always the slowest", |found| {
        let all = ["mob", "robber", "balanced"].map(|m| found.wins("case1", m, &["bittorrent"]));
        let [mob, robber, balanced] = all;
        Some(format!(
            "MOB beats it in {}, Robber in {}, Balanced in {}",
            mob?, robber?, balanced?
        ))
    }),
    claim("case1", "static: MOB and Robber like Balanced", |found| {
        found.against("case1", &STATIC, "balanced")
    }),
    claim(
        "case1",
        "dynamic: MOB and Robber better than Balanced",
        |found| found.against("case1", &CHANGING, "balanced"),
    ),
    claim(
        "case1",
        "`slow -> fast`: Balanced stays at its throughput with slow links",
        |found| {
            let share = found.share("case1", "balanced", ("slow -> fast", "slow links"))?;
            Some(format!("{share:.2} of it"))
        },
    ),
    claim(
        "case1",
        "`mayhem`: Balanced keeps 29 % of its throughput with fast links, MOB and Robber 52 %",
        |found| {
            let keeps = ["balanced", "mob", "robber"]
                .map(|method| found.share("case1", method, ("mayhem", "fast links")));
            let [balanced, mob, robber] = keeps;
            Some(format!(
                "Balanced {:.0} %, MOB {:.0} %, Robber {:.0} %",
                100.0 * balanced?,
                100.0 * mob?,
                100.0 * robber?
            ))
        },
    ),
    claim("case2", "static: MOB and Robber like Balanced", |found| {
        found.against("case2", &STATIC, "balanced")
    }),
    claim(
        "case2",
        "dynamic: MOB and Robber better than Balanced",
        |found| found.against("case2", &CHANGING, "balanced"),
    ),
    claim(
        "case3",
        "equal clusters lose on average 11 % (BitTorrent), 2 % (MOB), 1 % (Robber), 7 % (Balanced)",
        |found| found.losses("case1", "case3-equal"),
    ),
    claim(
        "case3",
        "unequal ones up to 40 %, 9 %, 8 %, 12 %",
        |found| found.losses("case2", "case3-unequal"),
    ),
    claim(
        "case4",
        "with more clusters MOB, Robber and Balanced get faster, BitTorrent does not",
        |found| found.growth("case4", "16", "4"),
    ),
    claim("case4", "Robber pulls away from MOB", |found| {
        let times = ["4", "16"].map(|group| found.times("case4", group, "robber", "mob"));
        let [few, many] = times;
        Some(format!(
            "{:.2} times as fast with 4 clusters, {:.2} with 16",
            few?, many?
        ))
    }),
    claim(
        "case4",
        "wrong measurements: Balanced plummets, MOB and Robber adapt",
        |found| {
            let share = |method| {
                let panel = |name| found.rate(name, "16", method);
                Some(panel("case4-wrong")? / panel("case4")?)
            };
            Some(format!(
                "with 16 clusters Balanced keeps {:.2}, MOB {:.2}, Robber {:.2} of its throughput",
                share("balanced")?,
                share("mob")?,
                share("robber")?
            ))
        },
    ),
    claim(
        "case5",
        "20 ms round trip: MOB and Robber overtake MagPIe near 512 KB",
        |found| found.crossover("case5-20ms"),
    ),
    claim("case5", "100 ms round trip: near 4 MB", |found| {
        found.crossover("case5-100ms")
    }),
    claim(
        "case5",
        "MagPIe stays below 3 MB/s, MOB and Robber reach 13 MB/s with 128 MB",
        |found| {
            let mb = |method| found.mb("case5-20ms", "128M", method);
            let [magpie, mob, robber] = ["magpie", "mob", "robber"].map(mb);
            Some(format!(
                "MagPIe {}, MOB {}, Robber {}",
                magpie?, mob?, robber?
            ))
        },
    ),
    claim("case6", "Balanced reaches 26 MB/s, MOB 29 MB/s", |found| {
        Some(format!(
            "Balanced {}, MOB {}",
            found.most("case6", "balanced")?,
            found.most("case6", "mob")?
        ))
    }),
    claim(
        "case7",
        "MOB, Robber and Balanced come near 120 MB/s with 16 nodes",
        |found| {
            let mb = |method| found.mb("case7-four", "16", method);
            let [mob, robber, balanced] = ["mob", "robber", "balanced"].map(mb);
            Some(format!(
                "four clusters: MOB {}, Robber {}, Balanced {}",
                mob?, robber?, balanced?
            ))
        },
    ),
    claim(
        "case7",
        "BitTorrent falls off as nodes are added",
        |found| {
            let measured = |group| found.group("case7-four", group)?.of("bittorrent");
            let share = |group| measured(group)?.of_optimum;
            Some(format!(
                "{:.2} of the optimum with 2 nodes, {:.2} with 16",
                share("2")?,
                share("16")?
            ))
        },
    ),
    claim(
        "case8",
        "MOB is held to N x 10 Mbit/s, 20 MB/s with 16 nodes",
        |found| found.mb("case8-two", "16", "mob"),
    ),
    claim("case8", "Robber and Balanced use the fast cards", |found| {
        let times = |plot, method| found.times(plot, "16", method, "mob");
        Some(format!(
            "with 16 nodes Robber is {:.1} (two clusters) and {:.1} times (four) as fast as MOB, \
             Balanced {:.1} and {:.1}",
            times("case8-two", "robber")?,
            times("case8-four", "robber")?,
            times("case8-two", "balanced")?,
            times("case8-four", "balanced")?
        ))
    }),
    claim(
        "case8",
        "BitTorrent falls to 10 Mbit/s (1.25 MB/s) between four clusters",
        |found| found.mb("case8-four", "16", "bittorrent"),
    ),
];

impl Found<'_> {
    fn panel(&self, plot: &str) -> Option<&Panel> {
        self.0
            .values()
            .flat_map(|report| &report.panels)
            .find(|panel| panel.name == plot)
    }

    fn group(&self, plot: &str, group: &str) -> Option<&Group> {
        self.panel(plot)?
            .groups
            .iter()
            .find(|other| other.label == group)
    }

    fn rate(&self, plot: &str, group: &str, method: &str) -> Option<f64> {
        self.group(plot, group)?.of(method)?.bytes_per_s
    }

    fn mb(&self, plot: &str, group: &str, method: &str) -> Option<String> {
        Some(format!("{:.1} MB/s", self.rate(plot, group, method)? / 1e6))
    }

    /// The highest throughput of a method in a plot.
    fn most(&self, plot: &str, method: &str) -> Option<String> {
        let rates = self
            .panel(plot)?
            .groups
            .iter()
            .filter_map(|group| group.of(method)?.bytes_per_s);
        let most = rates.fold(0.0, f64::max);
        (most > 0.0).then(|| format!("{:.1} MB/s", most / 1e6))
    }

    /// One method's throughput over another's.
    fn times(&self, plot: &str, group: &str, method: &str, other: &str) -> Option<f64> {
        Some(self.rate(plot, group, method)? / self.rate(plot, group, other)?)
    }

    /// A method's throughput in one group over that in another.
    fn share(&self, plot: &str, method: &str, groups: (&str, &str)) -> Option<f64> {
        Some(self.rate(plot, groups.0, method)? / self.rate(plot, groups.1, method)?)
    }

    /// In how many groups a method is faster than all the others.
    fn wins(&self, plot: &str, method: &str, others: &[&str]) -> Option<String> {
        let groups = &self.panel(plot)?.groups;
        let wins = |group: &&Group| {
            let rate = |name| group.of(name).and_then(|m| m.bytes_per_s).unwrap_or(0.0);
            others.iter().all(|other| rate(method) > rate(other))
        };
        let count = groups.iter().filter(wins).count();
        Some(format!("{count} of {}", groups.len()))
    }

    /// MOB and Robber over another method, group by group.
    fn against(&self, plot: &str, groups: &[&str], other: &str) -> Option<String> {
        let list = |method| {
            let each = groups
                .iter()
                .map(|group| Some(format!("{:.2}", self.times(plot, group, method, other)?)));
            Some(each.collect::<Option<Vec<_>>>()?.join(", "))
        };
        Some(format!(
            "over Balanced in {}: MOB {}; Robber {}",
            groups.join(", "),
            list("mob")?,
            list("robber")?
        ))
    }

    /// How much slower methods are in one plot than in another, on average over the groups.
    fn losses(&self, from: &str, to: &str) -> Option<String> {
        let loss = |method: &str| {
            let groups = &self.panel(from)?.groups;
            let each = groups.iter().map(|group| {
                let label = &group.label;
                Some(1.0 - self.rate(to, label, method)? / self.rate(from, label, method)?)
            });
            let each = each.collect::<Option<Vec<f64>>>()?;
            let most = each.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            let mean = each.iter().sum::<f64>() / each.len() as f64;
            Some(format!(
                "{:.0} % (at most {:.0} %)",
                100.0 * mean,
                100.0 * most
            ))
        };
        Some(format!(
            "BitTorrent {}, MOB {}, Robber {}, Balanced {}",
            loss("bittorrent")?,
            loss("mob")?,
            loss("robber")?,
            loss("balanced")?
        ))
    }

    /// How many times as fast methods get from one group to another.
    fn growth(&self, plot: &str, to: &str, from: &str) -> Option<String> {
        let growth = |method| self.share(plot, method, (to, from));
        Some(format!(
            "from {from} to {to}: MOB {:.1}, Robber {:.1}, Balanced {:.1}, BitTorrent {:.1} times \
             as fast",
            growth("mob")?,
            growth("robber")?,
            growth("balanced")?,
            growth("bittorrent")?
        ))
    }

    /// From which group on MOB and Robber are faster than MagPIe, and what they are at the first.
    fn crossover(&self, plot: &str) -> Option<String> {
        let panel = self.panel(plot)?;
        let from = |method: &str| {
            let slower = |group: &Group| {
                let rate = |name: &str| group.of(name).and_then(|m| m.bytes_per_s).unwrap_or(0.0);
                rate(method) <= rate("magpie")
            };
            let last = panel.groups.iter().rposition(slower);
            let first = panel.groups.get(last.map_or(0, |last| last + 1));
            first.map_or_else(
                || "never".to_owned(),
                |group| format!("from {}", group.label),
            )
        };
        let smallest = &panel.groups.first()?.label;
        let least = |method| self.times(plot, smallest, method, "magpie");
        Some(format!(
            "MOB {}, Robber {}; at {smallest} they reach {:.2} and {:.2} of MagPIe",
            from("mob"),
            from("robber"),
            least("mob")?,
            least("robber")?
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_claim_is_about_an_experiment_and_says_nothing_without_it() {
        let none = BTreeMap::new();
        for claim in CLAIMS {
            assert!(crate::find(claim.name).is_some(), "{}", claim.name);
            assert_eq!((claim.ours)(&Found(&none)), None, "{}", claim.theirs);
        }
    }
}
