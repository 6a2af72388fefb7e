//! What can have crossed the boundaries between sites while the network changed.
//!
//! By the end of a situation, those inside a boundary around some sites can have no more than before,
//! and what the boundary let in meanwhile. A boundary may be drawn closer from one situation to the
//! next: what is in fewer sites is no more than what was in all of them. It may not be drawn wider, as
//! what is outside may have been sent ahead. So no more can be in the sites of the last boundary than all
//! together let in: a cut of the network unrolled in time, which the average network knows nothing of.

use outpour_core::network::{ClusterId, Network, Resource};
use outpour_core::{Bytes, NodeId, Rate};

/// With more sites than this without a source there would be too many boundaries.
const SITES_MAX: usize = 10;

/// The least that can be inside each boundary, at most.
pub(super) struct Boundaries {
    /// The sites that may be inside: those without a source.
    sites: Vec<ClusterId>,
    /// Which of them have receivers, as bits.
    wanting: usize,
    /// For each set of sites, as bits: bytes that can be in it, by the boundaries until now.
    inside: Vec<f64>,
}

impl Boundaries {
    /// Around the sites of `receivers`; `None` if these are too many, or with the sources.
    pub(super) fn new(network: &Network, sources: &[NodeId], receivers: &[NodeId]) -> Option<Self> {
        let known = |node: &&NodeId| node.0 < network.node_count();
        let home = |nodes: &[NodeId], site: ClusterId| {
            let mut nodes = nodes.iter().filter(known);
            nodes.any(|node| network.cluster_of(*node) == site)
        };
        let all = (0..network.clusters().len() as u32).map(ClusterId);
        let sites: Vec<ClusterId> = all.filter(|site| !home(sources, *site)).collect();
        if sites.is_empty() || sites.len() > SITES_MAX {
            return None;
        }
        let bits = sites.iter().enumerate();
        let wanting = bits.filter(|(_, site)| home(receivers, **site));
        let wanting = wanting.fold(0, |set, (bit, _)| set | 1 << bit);
        let inside = vec![0.0; 1 << sites.len()];
        (wanting != 0).then_some(Self {
            sites,
            wanting,
            inside,
        })
    }

    /// How many seconds a situation has to last until `size` bytes can be with each receiver; without
    /// end if they never can.
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
        // From now on a boundary may be what is left of a wider one.
        for bit in 0..self.sites.len() {
            for set in (0..self.inside.len()).filter(|set| set & 1 << bit == 0) {
                self.inside[set] = self.inside[set].min(self.inside[set | 1 << bit]);
            }
        }
    }

    /// What each boundary lets in, at most, in bytes per second.
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
        let all: Vec<ClusterId> = (0..network.clusters().len() as u32)
            .map(ClusterId)
            .collect();
        let ends: Vec<(f64, f64)> = all.iter().map(|site| ends(*site)).collect();
        let link = |from, to| rate(Resource::Link(from, to)).bytes_per_s();
        let within = |set: usize| {
            let bit = |site: &ClusterId| self.sites.iter().position(|other| other == site);
            let is_in = |site: &&ClusterId| bit(site).is_some_and(|bit| set & 1 << bit != 0);
            let (inner, outer): (Vec<ClusterId>, Vec<ClusterId>) = all.iter().partition(is_in);
            // By what each site outside sends in all, or each inside gets.
            let sent = outer.iter().map(|from| {
                let links: f64 = inner.iter().map(|to| link(*from, *to)).sum();
                links.min(ends[from.index()].0)
            });
            let got = inner.iter().map(|to| {
                let links: f64 = outer.iter().map(|from| link(*from, *to)).sum();
                links.min(ends[to.index()].1)
            });
            sent.sum::<f64>().min(got.sum())
        };
        (0..self.inside.len()).map(within).collect()
    }
}
