//! Systems in which every site gets all from fixed others, in order.

use super::peers::Group;
use super::{Overlay, World};
use outpour_core::network::Resource;

/// From which group each group gets its copy, by its place among the groups of a job; sources come
/// first and get nothing.
type Parents = Vec<Vec<usize>>;

/// Each group gets its pieces in order from its parents.
pub(super) struct Tree {
    shape: fn(&World, &[Group]) -> Parents,
}

impl Tree {
    /// Everybody gets everything from the sources.
    pub(super) fn direct() -> Self {
        let shape = |_: &World, groups: &[Group]| {
            let sources = sources(groups);
            let receives = |group: &Group| {
                if group.source {
                    Vec::new()
                } else {
                    sources.clone()
                }
            };
            groups.iter().map(receives).collect()
        };
        Self { shape }
    }

    /// Each destination gets everything from the one before it in the order of the network, the
    /// first from the sources.
    pub(super) fn chain() -> Self {
        let shape = |_: &World, groups: &[Group]| {
            let sources = sources(groups);
            let before = |(place, group): (usize, &Group)| match group.source {
                true => Vec::new(),
                false if place == sources.len() => sources.clone(),
                false => vec![place - 1],
            };
            groups.iter().enumerate().map(before).collect()
        };
        Self { shape }
    }

    /// Three layers, as Akamai delivers live streams [Andreev, Maggs, Meyerson, Sitaraman: Designing
    /// overlay multicast networks for streaming, SPAA 2003]: sources send to *reflectors*, and those
    /// to all other destinations. Reflectors are the destinations that can send most. How many there
    /// are, and which serves whom, is what lets the slowest receive the fastest.
    pub(super) fn reflectors() -> Self {
        let shape = |world: &World, groups: &[Group]| {
            let first = sources(groups).len();
            let mut able: Vec<usize> = (first..groups.len()).collect();
            let sends = |place: &usize| world.out_of(&groups[*place]);
            able.sort_by(|a, b| sends(b).total_cmp(&sends(a)));
            let tried = (1..=able.len()).map(|count| {
                let (reflectors, sinks) = able.split_at(count);
                serve(world, groups, reflectors, sinks)
            });
            let best = tried.max_by(|a, b| a.0.total_cmp(&b.0));
            best.map_or_else(Vec::new, |(_, parents)| parents)
        };
        Self { shape }
    }
}

fn sources(groups: &[Group]) -> Vec<usize> {
    let count = groups.iter().take_while(|group| group.source).count();
    (0..count).collect()
}

/// Assigns each sink to the reflector that can give it most; the rate of the slowest, and the
/// parents.
fn serve(world: &World, groups: &[Group], reflectors: &[usize], sinks: &[usize]) -> (f64, Parents) {
    let sources = sources(groups);
    let mut parents: Parents = vec![Vec::new(); groups.len()];
    let from_sources: f64 = sources.iter().map(|it| world.out_of(&groups[*it])).sum();
    let mut slowest = f64::INFINITY;
    for reflector in reflectors {
        parents[*reflector].clone_from(&sources);
        let ways = sources
            .iter()
            .map(|source| world.between(&groups[*source], &groups[*reflector]));
        let rate = ways
            .sum::<f64>()
            .min(from_sources / reflectors.len() as f64);
        slowest = slowest.min(rate.min(world.into(&groups[*reflector])));
    }
    let mut children = vec![0_u32; groups.len()];
    for sink in sinks {
        let gives = |reflector: &usize| {
            let each = world.out_of(&groups[*reflector]) / f64::from(children[*reflector] + 1);
            each.min(world.between(&groups[*reflector], &groups[*sink]))
        };
        let best = reflectors
            .iter()
            .max_by(|a, b| gives(a).total_cmp(&gives(b)));
        let best = *best.expect("there is at least one reflector");
        slowest = slowest.min(gives(&best)).min(world.into(&groups[*sink]));
        children[best] += 1;
        parents[*sink] = vec![best];
    }
    (slowest, parents)
}

impl World {
    /// What a group can send, bytes per second.
    fn out_of(&self, group: &Group) -> f64 {
        let nodes = group.peers.clone().map(|peer| self.peers[peer].node);
        let site = self.network.cluster_of(self.peers[group.peers.start].node);
        let all: f64 = nodes
            .map(|node| self.capacity(Resource::NodeOut(node)))
            .sum();
        all.min(self.capacity(Resource::ClusterOut(site)))
    }

    /// What a group can receive, bytes per second.
    fn into(&self, group: &Group) -> f64 {
        let nodes = group.peers.clone().map(|peer| self.peers[peer].node);
        let site = self.network.cluster_of(self.peers[group.peers.start].node);
        let all: f64 = nodes
            .map(|node| self.capacity(Resource::NodeIn(node)))
            .sum();
        all.min(self.capacity(Resource::ClusterIn(site)))
    }

    /// What the link between two groups carries, bytes per second.
    fn between(&self, from: &Group, to: &Group) -> f64 {
        let site = |group: &Group| self.network.cluster_of(self.peers[group.peers.start].node);
        match (site(from), site(to)) {
            (a, b) if a == b => f64::INFINITY,
            (a, b) => self.capacity(Resource::Link(a, b)),
        }
    }
}

impl Overlay for Tree {
    fn begin(&mut self, world: &mut World, job: usize) {
        let groups = world.jobs[job].groups.clone();
        let parents = (self.shape)(world, &groups);
        for (group, parents) in groups.iter().zip(&parents) {
            debug_assert!(group.source == parents.is_empty(), "sources need nothing");
            for peer in group.peers.clone() {
                for parent in parents {
                    for sender in world.partners(&groups[*parent], peer) {
                        world.open(sender, peer);
                    }
                }
            }
        }
    }

    fn pick(&mut self, world: &mut World, link: usize) -> Option<usize> {
        // In order: a receiver of a stream does not ask for what comes later.
        world.useful(link).next()
    }
}
