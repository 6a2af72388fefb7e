//! The throughput of a transfer and what keeps it from being higher.

use std::collections::BTreeSet;

use outpour_core::Rate;
use outpour_core::network::ClusterId;

use super::ROUNDING;
use super::model::{Model, Shared};
use super::program::{self, Solution};

/// How many flows a program may have; a larger one is not solved, and simple bounds have to do.
const ARCS_MAX: usize = 2_500;

/// How many parts of a bottleneck are named.
const PARTS_NAMED_MAX: usize = 4;

/// The share of a bottleneck below which a part is not worth a word.
const SHARE_MIN: f64 = 0.01;

/// The most that all receivers together can get.
pub(super) struct Throughput {
    pub(super) rate: Rate,
    pub(super) bottleneck: String,
    pub(super) exact: bool,
}

impl Model<'_> {
    /// The largest rate at which all receivers can be served together.
    pub(super) fn throughput(&self) -> Throughput {
        if self.is_free() {
            return Throughput {
                rate: Rate::UNLIMITED,
                bottleneck: "nothing: the network has a path without a limit".to_owned(),
                exact: true,
            };
        }
        let (most, words) = self.simple_bound();
        let solution = (self.arcs.len() <= ARCS_MAX)
            .then(|| program::solve(self, most))
            .flatten();
        let Some(solution) = solution else {
            return Throughput {
                rate: rate(most),
                bottleneck: words,
                exact: false,
            };
        };
        // The simple bound is free of rounding, so where it is reached it is the better figure.
        let simple = solution.rate >= most * (1.0 - ROUNDING);
        Throughput {
            rate: rate(match simple {
                true => most,
                false => solution.rate * (1.0 + ROUNDING),
            }),
            bottleneck: match simple {
                true => words,
                false => self.describe_shares(&solution),
            },
            exact: solution.exact,
        }
    }

    /// The smallest of the bounds that are plain to see, in bytes per second and in words.
    fn simple_bound(&self) -> (f64, String) {
        let homes = self.homes();
        let mut receives = vec![false; self.groups.len()];
        for class in self.receivers() {
            receives[self.classes[class].group] = true;
        }
        let mut bounds = self.bounds_of_sources(&homes, &receives);
        for row in &self.rows {
            let times = match row.shared {
                // Behind an interconnect, a node's access link is not its only way in or out.
                Shared::NodeIn(class) if self.groups[self.classes[class].group].interconnect => {
                    continue;
                }
                Shared::NodeIn(class) | Shared::LimitIn(class) if self.classes[class].receives => {
                    f64::from(self.classes[class].nodes)
                }
                Shared::ClusterIn(group) if !homes.contains(&group) && receives[group] => 1.0,
                _ => continue,
            };
            bounds.push((row.capacity / times, self.describe(row.shared)));
        }
        let abroad = |group: &usize| !homes.contains(group) && receives[*group];
        for group in (0..self.groups.len()).filter(abroad) {
            bounds.extend(self.all_links_into(group));
        }
        bounds.push(self.all_senders());
        // Where anything limits at all, everything that does is a cut (see `is_free`).
        let sum = self.rows.iter().map(|row| row.capacity).sum();
        let words = match self.rows.as_slice() {
            [only] => self.describe(only.shared),
            _ => "everything in the network that has a limit".to_owned(),
        };
        bounds.push((sum, words));
        // Of equal ones the first: what one part has tells more than what all have together.
        let best = bounds.into_iter().min_by(|a, b| a.0.total_cmp(&b.0));
        best.unwrap_or((f64::INFINITY, String::new()))
    }

    /// What the sources send together, and what their clusters send to others, if any node there
    /// receives.
    fn bounds_of_sources(&self, homes: &BTreeSet<usize>, receives: &[bool]) -> Vec<(f64, String)> {
        let mut bounds = Vec::new();
        // Behind an interconnect, a node's access link is not its only way out.
        let roots =
            self.roots().map(
                |class| match self.groups[self.classes[class].group].interconnect {
                    true => Shared::LimitOut(class),
                    false => Shared::NodeOut(class),
                },
            );
        bounds.extend(self.sum_of(roots, "outgoing capacity of the sources together"));
        if (0..receives.len()).any(|group| receives[group] && !homes.contains(&group)) {
            let homes = homes.iter().map(|group| Shared::ClusterOut(*group));
            let words = "outgoing capacity of the sources' clusters together";
            bounds.extend(self.sum_of(homes, words));
        }
        bounds
    }

    /// What `parts` carry together; `None` if one has no limit.
    fn sum_of(&self, parts: impl Iterator<Item = Shared>, together: &str) -> Option<(f64, String)> {
        let mut sum = 0.0;
        let mut found = Vec::new();
        for part in parts {
            let row = self.rows.iter().find(|row| row.shared == part)?;
            sum += row.capacity;
            found.push(part);
        }
        match found.as_slice() {
            [] => None,
            [only] => Some((sum, self.describe(*only))),
            _ => Some((sum, together.to_owned())),
        }
    }

    /// Every receiver's copy has to be sent by some node.
    fn all_senders(&self) -> (f64, String) {
        let senders: Rate = (self.classes.iter().enumerate())
            .map(|(index, class)| self.sends(index) * class.nodes)
            .sum();
        let receivers: u32 = self
            .receivers()
            .map(|class| self.classes[class].nodes)
            .sum();
        let words = "outgoing capacity of all nodes together".to_owned();
        ((senders / receivers).bytes_per_s(), words)
    }

    /// What the links into one cluster of a group carry together; `None` if one has no limit.
    fn all_links_into(&self, group: usize) -> Option<(f64, String)> {
        let is_in = |class: usize| self.classes[class].group == group;
        let inner = self.groups[group].single;
        let mut from = vec![false; self.groups.len()];
        for arc in self.arcs.iter().filter(|arc| is_in(arc.to)) {
            from[self.classes[arc.from].group] |= inner || !is_in(arc.from);
        }
        let clusters = f64::from(self.groups[group].clusters);
        let mut links = Vec::new();
        let mut sum = 0.0;
        for row in &self.rows {
            match row.shared {
                Shared::Link(a, b) if b == group => from[a] = false,
                Shared::Local(a) if a == group && inner => from[a] = false,
                _ => continue,
            }
            sum += row.capacity / clusters;
            links.push(row.shared);
        }
        let words = match links.as_slice() {
            [only] => self.describe(*only),
            _ => format!("links into {}", self.describe_group(group)),
        };
        (!from.contains(&true)).then_some((sum, words))
    }

    /// The rows that make up a bottleneck, the weightiest first.
    fn describe_shares(&self, solution: &Solution) -> String {
        let shares = program::shares(self, solution).unwrap_or_default();
        let mut parts: Vec<(f64, Shared)> = (self.rows.iter().zip(&shares))
            .map(|(row, share)| (*share, row.shared))
            .filter(|(share, _)| *share >= SHARE_MIN)
            .collect();
        parts.sort_by(|a, b| b.0.total_cmp(&a.0));
        let mut words: Vec<String> = Vec::new();
        for (_, shared) in parts {
            let part = self.describe(shared);
            // Local links between several classes of one cluster read the same.
            if !words.contains(&part) {
                words.push(part);
            }
        }
        let more = words.len().saturating_sub(PARTS_NAMED_MAX);
        words.truncate(PARTS_NAMED_MAX);
        if more > 0 {
            words.push(format!("{more} more"));
        }
        match words.as_slice() {
            [] => "several capacities together".to_owned(),
            [only] => only.clone(),
            [most @ .., last] => format!("{} and {last}", most.join(", ")),
        }
    }

    fn describe(&self, shared: Shared) -> String {
        match shared {
            Shared::NodeOut(class) => {
                format!("outgoing capacity of {}", self.describe_class(class))
            }
            Shared::NodeIn(class) => {
                format!("incoming capacity of {}", self.describe_class(class))
            }
            Shared::LimitOut(class) => {
                format!("limit of what {} sends", self.describe_class(class))
            }
            Shared::LimitIn(class) => {
                format!("limit of what {} receives", self.describe_class(class))
            }
            Shared::ClusterOut(group) => {
                format!("outgoing capacity of {}", self.describe_group(group))
            }
            Shared::ClusterIn(group) => {
                format!("incoming capacity of {}", self.describe_group(group))
            }
            Shared::Link(from, to) => {
                let (a, b) = (&self.groups[from], &self.groups[to]);
                let name = |id: ClusterId| &self.network.clusters()[id.index()].name;
                let more = if a.clusters * b.clusters > 1 {
                    "links like "
                } else {
                    "link "
                };
                format!("{more}`{}` -> `{}`", name(a.cluster), name(b.cluster))
            }
            Shared::Local(group) => format!("links inside {}", self.describe_group(group)),
        }
    }

    fn describe_class(&self, index: usize) -> String {
        let class = &self.classes[index];
        let name = self.network.name(class.first);
        match (class.root, class.nodes) {
            (true, 1) => format!("the root `{name}`"),
            (true, count) => format!("{count} sources like `{name}`"),
            (false, 1) => format!("node `{name}`"),
            (false, count) if self.groups[class.group].single => {
                format!("{count} nodes like `{name}`")
            }
            (false, _) => format!("the nodes of {}", self.describe_group(class.group)),
        }
    }

    fn describe_group(&self, index: usize) -> String {
        let group = &self.groups[index];
        let name = &self.network.clusters()[group.cluster.index()].name;
        match group.clusters {
            1 => format!("cluster `{name}`"),
            count => format!("{count} clusters like `{name}`"),
        }
    }
}

fn rate(bytes_per_s: f64) -> Rate {
    Rate::from_bytes_per_s(bytes_per_s).unwrap_or(Rate::UNLIMITED)
}
