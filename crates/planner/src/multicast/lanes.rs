//! From trees between sites to trees between nodes.
//!
//! A tree between sites becomes one or several lanes. In each site, one member gets the lane's data
//! from the other site and forwards it to its peers along a chain, and one member per edge sends it
//! on to the next site. Every site takes in the same rate altogether, the sum of all trees; each of
//! its members is given a share of that, at most what its access link carries, and lanes end where
//! a share is used up. As shares are handed out in the same way everywhere, they end together where
//! sites are alike, and there are few lanes. The sender is the member with the least load for its
//! capacity; a lane is divided only where no member could send all of it.

use outpour_core::network::Resource;
use outpour_core::plan::Tree;
use outpour_core::{NodeId, Rate};

use super::shapes::binomial_parent;
use super::sites::{SiteTree, Sites};

/// Over how many members of a site its data comes in, if it has so many: enough that no single
/// connection has to be as fast as the site. Shares that are small enough for the members' access
/// links come in addition.
const MEMBERS_WANTED: usize = 8;

/// How many turns members take that cannot all do the same: the more, the closer each comes to what
/// it can.
const TURNS_WANTED: usize = 32;

/// How many lanes there are at most; the last of a tree then takes all that is left of it.
const LANES_MAX: usize = 16_384;

/// What is left of a rate when the rest is due to rounding, relative to the sum of all.
const ROUNDING: f64 = 1e-9;

/// A tree over all nodes.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Lane {
    /// The tree between sites that it is a part of.
    pub(super) of: usize,
    pub(super) tree: Tree,
}

/// Lays lanes for `trees` at their rates. Where the rates exceed what members carry, so will the
/// lanes, as evenly as may be.
pub(super) fn lay(sites: &Sites<'_>, trees: &[SiteTree]) -> Vec<Lane> {
    // A tree by itself is laid for what it carries; of several, the proportions count.
    let single = trees.len() == 1;
    let rate = |tree: &SiteTree| match (single, sites.throughput(&tree.edges)) {
        (true, rate) if rate.is_finite() => rate,
        _ => tree.rate,
    };
    let fit = if single { 1.0 } else { sites.fit(trees) };
    let total: f64 = trees.iter().map(|tree| rate(tree) * fit).sum();
    let mut state = State::new(sites, total);
    // Where sites are single nodes there is no member to share the work with.
    let alone = sites.members.iter().all(|nodes| nodes.len() == 1);
    let mut lanes = Vec::new();
    for (of, tree) in trees.iter().enumerate() {
        let mut left = rate(tree) * fit;
        while left > total * ROUNDING {
            let whole = alone || lanes.len() + 1 >= LANES_MAX;
            let (rate, edges) = state.lane(tree, left, whole);
            left -= rate;
            // A sliver would be a tree with no block to carry.
            let rate = if left > total * ROUNDING {
                rate
            } else {
                rate + left
            };
            lanes.push(Lane {
                of,
                tree: Tree {
                    rate: Rate::from_bytes_per_s(rate).unwrap_or(Rate::ZERO),
                    edges,
                },
            });
        }
    }
    lanes
}

/// One tree through the first member of each site, binomial inside [Burger §3.1.2, MagPIe].
pub(super) fn gateways(sites: &Sites<'_>, trees: &[SiteTree]) -> Vec<Lane> {
    let gateway = |site: usize| sites.members[site][sites.holders(site).next().unwrap_or_default()];
    let inside = |site: usize, edges: &mut Vec<_>| {
        let mut order = vec![gateway(site)];
        let lacks = |node: &&NodeId| **node != gateway(site) && !sites.sources.contains(node);
        order.extend(sites.members[site].iter().filter(lacks));
        edges.extend((1..order.len()).map(|place| (order[binomial_parent(place)], order[place])));
    };
    let lanes = trees.iter().enumerate().map(|(of, tree)| {
        let mut edges = Vec::new();
        sites
            .roots
            .iter()
            .for_each(|root| inside(*root, &mut edges));
        for (from, to) in &tree.edges {
            edges.push((gateway(*from), gateway(*to)));
            inside(*to, &mut edges);
        }
        Lane {
            of,
            tree: Tree {
                rate: Rate::from_bytes_per_s(tree.rate).unwrap_or(Rate::ZERO),
                edges,
            },
        }
    });
    lanes.collect()
}

/// What the members of all sites have been given to do so far.
struct State<'s, 'n> {
    sites: &'s Sites<'n>,
    /// What each member of each site may still take in from other sites.
    shares: Vec<Vec<f64>>,
    /// What each member of each site sends so far, and what it sends at most.
    sends: Vec<Vec<f64>>,
    out: Vec<Vec<f64>>,
    /// How many lanes each member of each site handed on first, over an interconnect.
    begun: Vec<Vec<usize>>,
    /// The most that one lane carries.
    rate_max: f64,
}

/// The part of each member in one lane; members by their index in their site.
struct Roles {
    /// The member of each site that has the data first.
    entry: Vec<usize>,
    /// The member that sends along each edge of the tree.
    senders: Vec<usize>,
    /// The rate at which each of them can.
    room: f64,
}

impl<'s, 'n> State<'s, 'n> {
    fn new(sites: &'s Sites<'n>, total: f64) -> Self {
        let network = sites.network;
        let capacities = |of: fn(NodeId) -> Resource| -> Vec<Vec<f64>> {
            let site = |nodes: &Vec<NodeId>| {
                let each = nodes.iter().map(|node| network.capacity(of(*node)));
                each.map(Rate::bytes_per_s).collect()
            };
            sites.members.iter().map(site).collect()
        };
        let out = capacities(Resource::NodeOut);
        let into = capacities(Resource::NodeIn);
        let shares = (0..sites.count()).map(|site| {
            // A member forwards what it takes in: to its peers over an interconnect, or else over
            // its own access link.
            shares(
                if sites.interconnect(site) {
                    &into[site]
                } else {
                    &out[site]
                },
                total,
            )
        });
        // Members that cannot all do the same take turns at what they can do.
        let uneven = (0..sites.count()).any(|site| {
            !sites.interconnect(site) && out[site].iter().any(|rate| *rate != out[site][0])
        });
        Self {
            sites,
            shares: shares.collect(),
            sends: out.iter().map(|site| vec![0.0; site.len()]).collect(),
            begun: out.iter().map(|site| vec![0; site.len()]).collect(),
            out,
            rate_max: if uneven {
                total / TURNS_WANTED as f64
            } else {
                f64::INFINITY
            },
        }
    }

    /// The next lane of `tree`, at most at the rate `most`; at all of it if it has to be `whole`.
    fn lane(&mut self, tree: &SiteTree, most: f64, whole: bool) -> (f64, Vec<(NodeId, NodeId)>) {
        let sites = self.sites;
        let mut entry = vec![0; sites.count()];
        for root in &sites.roots {
            let (sends, out) = (&self.sends[*root], &self.out[*root]);
            let spare = |member: &usize| out[*member] - sends[*member];
            // The first of equal ones.
            let holders =
                sites
                    .holders(*root)
                    .reduce(|best, next| match spare(&next) > spare(&best) {
                        true => next,
                        false => best,
                    });
            entry[*root] = holders.unwrap_or_default();
        }
        let mut rate = most.min(self.rate_max);
        for (_, to) in &tree.edges {
            entry[*to] = largest(&self.shares[*to]);
            rate = rate.min(self.shares[*to][entry[*to]]);
        }
        if whole || rate <= most * ROUNDING {
            rate = most;
        }
        let mut roles = self.roles(tree, entry, rate);
        // Each round finds a rate that one more edge has a sender for.
        for _ in 0..tree.edges.len() {
            if whole || roles.room >= rate || roles.room <= most * ROUNDING {
                break;
            }
            rate = roles.room;
            roles = self.roles(tree, roles.entry, rate);
        }
        (rate, self.connect(tree, &roles, rate))
    }

    /// Finds a sender for each edge of `tree`: the one loaded least when it sends `rate` more, or
    /// has the most to spare if that is too much for each of them.
    fn roles(&self, tree: &SiteTree, entry: Vec<usize>, rate: f64) -> Roles {
        let sites = self.sites;
        let mut sends = self.sends.clone();
        let mut senders = Vec::with_capacity(tree.edges.len());
        let mut room = f64::INFINITY;
        for (from, _) in &tree.edges {
            let (sends, out) = (&mut sends[*from], &self.out[*from]);
            let count = out.len();
            let load = |member: usize| match out[member] {
                0.0 => f64::INFINITY,
                out => (sends[member] + rate) / out,
            };
            // Behind an interconnect the member that has the data is the nearest; without one it
            // has to forward, and the end of the chain has not.
            let distance = |member: usize| {
                let after = (member + count - entry[*from]) % count;
                if sites.interconnect(*from) {
                    after
                } else {
                    (count - after) % count
                }
            };
            let order = |a: &usize, b: &usize| {
                (load(*a).total_cmp(&load(*b)))
                    .then(sends[*a].total_cmp(&sends[*b]))
                    .then(distance(*a).cmp(&distance(*b)))
            };
            let least = (0..count).min_by(order).unwrap_or_default();
            let sender = if load(least) <= 1.0 + ROUNDING {
                least
            } else {
                let spare = |member: usize| out[member] - sends[member];
                let most = (0..count).max_by(|a, b| spare(*a).total_cmp(&spare(*b)));
                let most = most.unwrap_or_default();
                room = room.min(spare(most));
                most
            };
            sends[sender] += rate;
            senders.push(sender);
        }
        Roles {
            entry,
            senders,
            room,
        }
    }

    /// The edges of a lane; its members have been given that to do.
    fn connect(&mut self, tree: &SiteTree, roles: &Roles, rate: f64) -> Vec<(NodeId, NodeId)> {
        let sites = self.sites;
        for ((from, to), sender) in tree.edges.iter().zip(&roles.senders) {
            self.sends[*from][*sender] += rate;
            let share = &mut self.shares[*to][roles.entry[*to]];
            *share = (*share - rate).max(0.0);
        }
        let mut edges = Vec::with_capacity(sites.network.node_count() as usize);
        for root in &sites.roots {
            self.hand_on(*root, roles, rate, &mut edges);
        }
        for ((from, to), sender) in tree.edges.iter().zip(&roles.senders) {
            let entry = roles.entry[*to];
            edges.push((sites.members[*from][*sender], sites.members[*to][entry]));
            self.hand_on(*to, roles, rate, &mut edges);
        }
        edges
    }

    /// From the member of `site` that has the data to all others that have not.
    fn hand_on(
        &mut self,
        site: usize,
        roles: &Roles,
        rate: f64,
        edges: &mut Vec<(NodeId, NodeId)>,
    ) {
        let nodes = &self.sites.members[site];
        let (count, entry) = (nodes.len(), roles.entry[site]);
        let mut placed: Vec<usize> = self.sites.holders(site).filter(|it| *it != entry).collect();
        placed.push(entry);
        let mut chain: Vec<usize> = (1..count).map(|after| (entry + after) % count).collect();
        chain.retain(|member| !placed.contains(member));
        if self.sites.interconnect(site) {
            let mut from = entry;
            let lane = self.begun[site][entry];
            self.begun[site][entry] += 1;
            for to in to_and_fro(entry, lane, count).filter(|to| chain.contains(to)) {
                edges.push((nodes[from], nodes[to]));
                from = to;
            }
            return;
        }
        let (sends, out) = (&mut self.sends[site], &self.out[site]);
        let spare = |sends: &[f64], member: usize| out[member] - sends[member];
        // The member with the least to spare comes last and need not forward.
        chain.sort_by(|a, b| spare(sends, *b).total_cmp(&spare(sends, *a)));
        for to in chain {
            let last = *placed.last().unwrap_or(&entry);
            let from = if spare(sends, last) >= rate * (1.0 - ROUNDING) {
                last
            } else {
                let more = |a: &&usize, b: &&usize| spare(sends, **a).total_cmp(&spare(sends, **b));
                // The first of equal ones, which is nearest to where the data comes from.
                *placed.iter().rev().max_by(more).unwrap_or(&entry)
            };
            sends[from] += rate;
            edges.push((nodes[from], nodes[to]));
            placed.push(to);
        }
    }
}

/// The order in which a lane passes `count` members of a site: from `entry`, and for its lane of
/// number `lane` along other pairs than its lanes before. To and fro, chains from different members
/// share no pair or hardly one either, so that local links add up.
fn to_and_fro(entry: usize, lane: usize, count: usize) -> impl Iterator<Item = usize> {
    let others = count.saturating_sub(1);
    (0..others).map(move |place| {
        let away = place.div_ceil(2);
        let away = if place % 2 == 1 { others - away } else { away };
        (entry + 1 + (lane + away) % others) % count
    })
}

/// Divides `total` among members that carry `limits` at most: evenly among as many as are wanted
/// and as it takes, the ones that carry most.
fn shares(limits: &[f64], total: f64) -> Vec<f64> {
    let mut order: Vec<usize> = (0..limits.len()).collect();
    order.sort_by(|a, b| limits[*b].total_cmp(&limits[*a]));
    let mut chosen = MEMBERS_WANTED.min(limits.len());
    let sum = |chosen: usize| order[..chosen].iter().map(|i| limits[*i]).sum::<f64>();
    while chosen < limits.len() && sum(chosen) < total * (1.0 - ROUNDING) {
        chosen += 1;
    }
    let stretch = (total / sum(chosen)).max(1.0);
    let mut shares = vec![0.0; limits.len()];
    let mut left = total;
    // The least first: what they cannot carry the others have to.
    for (index, member) in order[..chosen].iter().enumerate().rev() {
        let even = left / (index + 1) as f64;
        shares[*member] = even.min(limits[*member] * stretch);
        left -= shares[*member];
    }
    shares
}

/// The index of the largest; the first of equal ones.
fn largest(values: &[f64]) -> usize {
    let indices = (0..values.len()).rev();
    indices
        .max_by(|a, b| values[*a].total_cmp(&values[*b]))
        .unwrap_or_default()
}
