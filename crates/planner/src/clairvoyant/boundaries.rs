//! What can have crossed boundaries around sites while the network changed.
//!
//! At the end of a situation, the sites within a boundary have at most what they had before and what crossed
//! the boundary meanwhile. The boundary may be narrower in the next situation, as some of these sites
//! have no more than all of them. It may not be wider, as the sites that it takes in may have received
//! more before. So the sites within the last boundary have at most what crossed all of them: a cut of the
//! network unrolled in time. The average network does not know when a link was fast.

use outpour_core::network::{ClusterId, Network, Resource};
use outpour_core::{Bytes, NodeId, Rate};

/// Up to so many sites without a source all boundaries are looked at, which are two to the power of that.
const SITES_MAX: usize = 10;

/// What each set of sites can have by now.
pub(super) struct Boundaries {
    /// The sites without a source. Bit `n` of a set stands for the `n`-th.
    sites: Vec<ClusterId>,
    /// The set of those with a receiver.
    wanting: usize,
    /// For each set, how many bytes its sites can have at most.
    inside: Vec<f64>,
}

impl Boundaries {
    /// At the beginning, when only sources have anything. `None` if too many sites are without one, or no
    /// receiver is in these.
    pub(super) fn new(network: &Network, sources: &[NodeId], receivers: &[NodeId]) -> Option<Self> {
        let has_any = |site: ClusterId, nodes: &[NodeId]| {
            // Others are refused by whoever asks for the limit.
            let mut known = nodes.iter().filter(|node| node.0 < network.node_count());
            known.any(|node| network.cluster_of(*node) == site)
        };
        let mut sites = all_of(network);
        sites.retain(|site| !has_any(*site, sources));
        if sites.is_empty() || sites.len() > SITES_MAX {
            return None;
        }
        let bits = sites.iter().enumerate();
        let wanting = bits.filter(|(_, site)| has_any(**site, receivers));
        let wanting = wanting.fold(0, |set, (bit, _)| set | 1 << bit);
        let inside = vec![0.0; 1 << sites.len()];
        (wanting != 0).then_some(Self {
            sites,
            wanting,
            inside,
        })
    }

    /// How many seconds a situation has to last until each site with a receiver can have `size` bytes;
    /// infinite if one never can.
    pub(super) fn waits(&self, network: &Network, size: Bytes) -> f64 {
        let rates = self.rates(network);
        let sets = self.inside.iter().zip(rates).enumerate();
        let wanting = sets.filter(|(set, _)| set & self.wanting != 0);
        let waits = wanting.map(|(_, (inside, rate))| {
            let lacks = size.as_f64() - inside;
            if lacks > 0.0 { lacks / rate } else { 0.0 }
        });
        waits.fold(0.0, f64::max)
    }

    /// A situation is over after so many seconds.
    pub(super) fn add(&mut self, network: &Network, seconds: f64) {
        if seconds <= 0.0 {
            return;
        }
        let rates = self.rates(network);
        for (inside, rate) in self.inside.iter_mut().zip(rates) {
            *inside += rate * seconds;
        }
        // A set has at most what each larger one has.
        for bit in 0..self.sites.len() {
            for set in (0..self.inside.len()).filter(|set| set & 1 << bit == 0) {
                self.inside[set] = self.inside[set].min(self.inside[set | 1 << bit]);
            }
        }
    }

    /// How much crosses the boundary around each set, at most, in bytes per second.
    fn rates(&self, network: &Network) -> Vec<f64> {
        let rate = |resource| network.capacity(resource);
        let ends = |site: ClusterId| {
            let nodes = || network.nodes_of(site);
            let out: Rate = nodes().map(|node| rate(Resource::NodeOut(node))).sum();
            let into: Rate = nodes().map(|node| rate(Resource::NodeIn(node))).sum();
            let out = out.min(rate(Resource::ClusterOut(site)));
            let into = into.min(rate(Resource::ClusterIn(site)));
            (out.bytes_per_s(), into.bytes_per_s())
        };
        let all = all_of(network);
        let ends: Vec<(f64, f64)> = all.iter().map(|site| ends(*site)).collect();
        let link = |from, to| rate(Resource::Link(from, to)).bytes_per_s();
        let crosses = |set: usize| {
            let bit = |site: &ClusterId| self.sites.iter().position(|other| other == site);
            let is_in = |site: &&ClusterId| bit(site).is_some_and(|bit| set & 1 << bit != 0);
            let (inner, outer): (Vec<ClusterId>, Vec<ClusterId>) = all.iter().partition(is_in);
            // Bounded by what each site outside sends, and by what each inside receives.
            let sent = outer.iter().map(|from| {
                let links: f64 = inner.iter().map(|to| link(*from, *to)).sum();
                links.min(ends[from.index()].0)
            });
            let received = inner.iter().map(|to| {
                let links: f64 = outer.iter().map(|from| link(*from, *to)).sum();
                links.min(ends[to.index()].1)
            });
            sent.sum::<f64>().min(received.sum())
        };
        (0..self.inside.len()).map(crosses).collect()
    }
}

fn all_of(network: &Network) -> Vec<ClusterId> {
    let count = network.clusters().len() as u32;
    (0..count).map(ClusterId).collect()
}
