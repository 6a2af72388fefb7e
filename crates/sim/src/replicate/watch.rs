//! What links between sites carry while there is latency-sensitive traffic on them, and how much
//! arrives: over time, and in a line for each link.

use std::collections::BTreeMap;

use outpour_core::network::{ClusterId, Network};
use outpour_core::{Separation, Time};
use serde::Serialize;

/// Sums of rates are compared with limits up to this relative error of arithmetic.
const TOLERANCE: f64 = 1e-6;

/// A pair of sites, the sending one first.
pub(super) type Sites = (ClusterId, ClusterId);

/// One link that had latency-sensitive traffic.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct LinkReport {
    /// The sending site and the receiving one.
    pub link: String,
    /// The largest share of the link that bulk and latency-sensitive traffic used together.
    pub peak_share: f64,
    /// In how many cycles bulk was above what the rule allows beside the traffic there was.
    pub cycles_above: u64,
    /// For how long it was at most, at a stretch.
    pub longest_above_s: f64,
}

/// What a link carried for a while, in bytes per second.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LinkUse {
    /// What it could.
    pub capacity: f64,
    /// Latency-sensitive traffic.
    pub foreground: f64,
    /// Blocks.
    pub bulk: f64,
}

/// A while of a simulation with a script.
#[derive(Clone, Debug, PartialEq)]
pub struct Moment {
    /// When it ended, in seconds.
    pub at_s: f64,
    /// How long it took.
    pub seconds: f64,
    /// How many blocks arrived.
    pub blocks: u64,
    /// What links carried that have latency-sensitive traffic, by name.
    pub links: BTreeMap<String, LinkUse>,
}

#[derive(Debug, Default)]
struct Link {
    /// What there is now, and the most there ever was.
    rate: f64,
    peak: f64,
    peak_share: f64,
    cycles_above: u64,
    last_above: Option<u64>,
    above_s: f64,
    longest_above_s: f64,
}

#[derive(Debug, Default)]
pub(super) struct Watch {
    links: BTreeMap<Sites, Link>,
    pub(super) moments: Vec<Moment>,
    /// The number of the running cycle.
    pub(super) cycle: u64,
}

impl Watch {
    /// There is so much latency-sensitive traffic on a link from now on.
    pub(super) fn foreground(&mut self, sites: Sites, rate: f64) {
        let link = self.links.entry(sites).or_default();
        link.rate = rate;
        link.peak = rate.max(link.peak);
    }

    /// What was measured last of each link: the rate now, and the most ever.
    pub(super) fn measured(&self) -> impl Iterator<Item = (Sites, f64, f64)> + '_ {
        let links = self.links.iter();
        links.map(|(sites, link)| (*sites, link.rate, link.peak))
    }

    /// Notes what was carried until `at`, for so many seconds; `bulk` is by link.
    pub(super) fn note(
        &mut self,
        at: Time,
        seconds: f64,
        blocks: u64,
        bulk: &BTreeMap<Sites, f64>,
        network: &Network,
        rule: Separation,
    ) {
        let mut uses = BTreeMap::new();
        for (sites, link) in &mut self.links {
            let capacity = network.link(sites.0, sites.1).rate.bytes_per_s();
            let bulk = bulk.get(sites).copied().unwrap_or_default();
            let foreground = link.rate.min(capacity);
            debug_assert!(
                foreground + bulk <= capacity * (1.0 + TOLERANCE) + 1.0,
                "a link carries what it can"
            );
            if capacity > 0.0 {
                let share = (foreground + bulk) / capacity;
                link.peak_share = share.max(link.peak_share);
            }
            let allowed = match rule {
                Separation::Threshold { percent } => capacity * percent / 100.0 - link.rate,
                Separation::Peak => capacity - link.peak,
            };
            if bulk > allowed.max(0.0) * (1.0 + TOLERANCE) + 1.0 {
                link.above_s += seconds;
                link.longest_above_s = link.above_s.max(link.longest_above_s);
                if link.last_above != Some(self.cycle) {
                    link.last_above = Some(self.cycle);
                    link.cycles_above += 1;
                }
            } else {
                link.above_s = 0.0;
            }
            let carried = LinkUse {
                capacity,
                foreground,
                bulk,
            };
            uses.insert(name(network, *sites), carried);
        }
        self.moments.push(Moment {
            at_s: at.as_secs_f64(),
            seconds,
            blocks,
            links: uses,
        });
    }

    pub(super) fn report(&self, network: &Network) -> Vec<LinkReport> {
        let report = |(sites, link): (&Sites, &Link)| LinkReport {
            link: name(network, *sites),
            peak_share: link.peak_share,
            cycles_above: link.cycles_above,
            longest_above_s: link.longest_above_s,
        };
        self.links.iter().map(report).collect()
    }
}

fn name(network: &Network, (from, to): Sites) -> String {
    let name = |site: ClusterId| &network.clusters()[site.index()].name;
    format!("{} -> {}", name(from), name(to))
}
