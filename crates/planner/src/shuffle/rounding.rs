//! Placing split reducers whole [RPC algorithm 2].

use std::collections::BTreeMap;

use super::{HostId, Share};

/// Places each reducer on one of the hosts that serve a share of it, such that no host gets more than
/// one reducer that was split: so the slowest host takes at most twice as long as in the relaxed
/// problem. Shares are those of a solution with no more of them than reducers and hosts in any
/// connected part, as [`super::relax`] finds; of others, some host may get several.
///
/// # Panics
/// In debug builds, if a reducer has no share.
pub fn round(reducers: usize, shares: &[Share]) -> Vec<HostId> {
    let mut graph = Graph::new(reducers, shares);
    graph.place_whole();
    // Each part is a tree or has one circle. First come the circles, which leave trees.
    graph.place_circles();
    let roots: Vec<usize> = (0..reducers)
        .filter(|reducer| !graph.taken(*reducer).is_empty())
        .collect();
    for reducer in roots.into_iter().chain(0..reducers) {
        graph.place_tree(reducer);
    }
    let placed = graph
        .places
        .into_iter()
        .enumerate()
        .map(|(reducer, place)| {
            debug_assert!(place.is_some(), "reducer {reducer} has a share");
            place.unwrap_or_default()
        });
    placed.collect()
}

/// Reducers and hosts, joined where a host serves a share of a reducer.
struct Graph {
    /// Of each reducer, the hosts and what they serve.
    hosts: Vec<Vec<(HostId, f64)>>,
    /// Of each host, the reducers that are split and not placed.
    reducers: BTreeMap<HostId, Vec<usize>>,
    places: Vec<Option<HostId>>,
}

impl Graph {
    fn new(count: usize, shares: &[Share]) -> Self {
        let mut hosts: Vec<Vec<(HostId, f64)>> = vec![Vec::new(); count];
        for share in shares {
            match hosts[share.reducer]
                .iter_mut()
                .find(|(host, _)| *host == share.host)
            {
                Some((_, amount)) => *amount += share.amount,
                None => hosts[share.reducer].push((share.host, share.amount)),
            }
        }
        Self {
            hosts,
            reducers: BTreeMap::new(),
            places: vec![None; count],
        }
    }

    /// Reducers with one host go there.
    fn place_whole(&mut self) {
        for (reducer, hosts) in self.hosts.iter().enumerate() {
            if let [(host, _)] = hosts[..] {
                self.places[reducer] = Some(host);
                continue;
            }
            for (host, _) in hosts {
                self.reducers.entry(*host).or_default().push(reducer);
            }
        }
    }

    /// Takes away what hangs on a circle until only circles are left, and places each of their
    /// reducers on the next host.
    fn place_circles(&mut self) {
        let mut degree: BTreeMap<HostId, usize> = BTreeMap::new();
        for (host, reducers) in &self.reducers {
            degree.insert(*host, reducers.len());
        }
        let mut left: Vec<usize> = self.hosts.iter().map(Vec::len).collect();
        let mut gone = vec![false; self.hosts.len()];
        let mut leaves: Vec<HostId> = degree
            .iter()
            .filter(|(_, count)| **count == 1)
            .map(|(host, _)| *host)
            .collect();
        let mut closed: BTreeMap<HostId, bool> = BTreeMap::new();
        while let Some(leaf) = leaves.pop() {
            closed.insert(leaf, true);
            let at = self.reducers[&leaf].iter().copied();
            for reducer in at.filter(|reducer| !gone[*reducer]).collect::<Vec<_>>() {
                left[reducer] -= 1;
                if left[reducer] > 1 {
                    continue;
                }
                gone[reducer] = true;
                for (host, _) in &self.hosts[reducer] {
                    if let Some(count) = degree.get_mut(host).filter(|count| **count > 0) {
                        *count -= 1;
                        if *count == 1 && !closed.contains_key(host) {
                            leaves.push(*host);
                        }
                    }
                }
            }
        }
        let is_open = |host: HostId| !closed.contains_key(&host);
        for first in 0..self.hosts.len() {
            let mut reducer = first;
            let mut came: Option<HostId> = None;
            while !gone[reducer] && self.places[reducer].is_none() && left[reducer] > 1 {
                let next = self.hosts[reducer]
                    .iter()
                    .map(|(host, _)| *host)
                    .find(|host| is_open(*host) && Some(*host) != came);
                let Some(host) = next else {
                    break;
                };
                self.places[reducer] = Some(host);
                came = Some(host);
                let others = self.reducers[&host].iter().copied();
                let other = others
                    .filter(|other| *other != reducer && !gone[*other])
                    .find(|other| self.places[*other].is_none());
                let Some(other) = other else {
                    break;
                };
                reducer = other;
            }
        }
    }

    /// The hosts of a split reducer that is not placed which a reducer of a circle has taken: parents of
    /// what hangs on the circle.
    fn taken(&self, reducer: usize) -> Vec<HostId> {
        if self.places[reducer].is_some() {
            return Vec::new();
        }
        let is_taken = |host: &HostId| {
            let at = self.reducers.get(host).into_iter().flatten();
            let mut places = at.map(|other| self.places[*other]);
            places.any(|place| place == Some(*host))
        };
        let hosts = self.hosts[reducer].iter().map(|(host, _)| *host);
        hosts.filter(is_taken).collect()
    }

    /// Places the reducers of a tree from this one down, each on the child that serves most of it.
    fn place_tree(&mut self, root: usize) {
        if self.places[root].is_some() {
            return;
        }
        let mut work = vec![(root, self.taken(root))];
        while let Some((reducer, parents)) = work.pop() {
            if self.places[reducer].is_some() {
                continue;
            }
            let children = self.hosts[reducer].iter();
            let children = children.filter(|(host, _)| !parents.contains(host));
            let most = children
                .clone()
                .max_by(|a, b| a.1.total_cmp(&b.1).then(b.0.cmp(&a.0)));
            let place = most.or_else(|| self.hosts[reducer].first());
            self.places[reducer] = place.map(|(host, _)| *host);
            for (host, _) in children.clone() {
                for other in &self.reducers[host] {
                    if self.places[*other].is_none() {
                        work.push((*other, vec![*host]));
                    }
                }
            }
        }
    }
}
