//! Systems in which receivers choose whom to ask, and for what.

use std::collections::BTreeMap;
use std::time::Duration;

use super::{Link, Overlay, World};

/// How Baidu's earlier system is described [BDS §2.3]: receivers choose their senders among the
/// servers they know of, which are few of those there are. Pieces are asked for in random order,
/// since in order all would ask for the same.
pub(super) struct Gingko {
    /// How many servers each knows of besides the sources.
    view: u64,
    /// How many a server asks at a time.
    parallel: usize,
    /// How often it learns of others.
    refresh: Duration,
}

impl Default for Gingko {
    fn default() -> Self {
        Self {
            view: 4,
            parallel: 3,
            refresh: Duration::from_secs(30),
        }
    }
}

impl Gingko {
    fn look_around(&self, world: &mut World, peer: usize) {
        for place in 0..world.peers[peer].asks.len() {
            let link = world.peers[peer].asks[place];
            world.close(link);
        }
        let mut view = Vec::new();
        let about = candidates(world, peer);
        let (mut known, sources): (Vec<usize>, Vec<usize>) = about
            .into_iter()
            .partition(|it| !world.peers[*it].share.is_empty());
        for _ in 0..self.view.min(known.len() as u64) {
            let chosen = world.dice.below(known.len() as u64) as usize;
            view.push(known.swap_remove(chosen));
        }
        // Whoever has nothing to give is of no use; sources are asked if too few others are.
        view.retain(|other| has_for(world, *other, peer));
        if let Some(source) = pick_any(world, &sources) {
            view.push(source);
        }
        for other in view.into_iter().take(self.parallel) {
            world.open(other, peer);
        }
    }
}

impl Overlay for Gingko {
    fn begin(&mut self, world: &mut World, job: usize) {
        for peer in world.jobs[job].peers.clone() {
            if !world.peers[peer].todo.is_empty() {
                self.look_around(world, peer);
            }
        }
    }

    fn pick(&mut self, world: &mut World, link: usize) -> Option<usize> {
        world.any_useful(link)
    }

    fn period(&self) -> Option<Duration> {
        Some(self.refresh)
    }

    fn turn(&mut self, world: &mut World) {
        for peer in begun(world) {
            self.look_around(world, peer);
        }
    }
}

/// A tree and a mesh over it [Kostić, Rodriguez, Albrecht, Vahdat: Bullet, SOSP 2003]: parents give
/// different pieces to different children, and each server finds others to ask among random ones
/// that it hears of every few seconds, those first that have the least in common with it.
pub(super) struct Bullet {
    /// How many children a server of the tree has at most.
    children: usize,
    /// How many senders a server has besides its parent, and how many receivers.
    peers: usize,
    /// Of how many random servers it hears at a time.
    subset: u64,
    /// How often.
    epoch: Duration,
    /// After how many epochs it gives up the sender of which it got least.
    patience: u64,
    epochs: u64,
    /// How many pieces came over each link until the last look.
    came: BTreeMap<usize, u32>,
    /// Links of the tree.
    tree: Vec<bool>,
    /// How often a parent gave a piece.
    given: BTreeMap<(usize, u32), u32>,
}

impl Default for Bullet {
    fn default() -> Self {
        Self {
            children: 4,
            peers: 10,
            subset: 10,
            epoch: Duration::from_secs(5),
            patience: 4,
            epochs: 0,
            came: BTreeMap::new(),
            tree: Vec::new(),
            given: BTreeMap::new(),
        }
    }
}

impl Bullet {
    /// Joins a server to those of the parent's group that have or get what it is to get.
    fn plant(&mut self, world: &mut World, job: usize) {
        let groups = world.jobs[job].groups.clone();
        let sources = groups.iter().take_while(|group| group.source).count();
        // One tree for each place in a site, so that not one site bears the load of all.
        let places = groups.iter().map(|group| group.peers.len()).max();
        for place in 0..places.unwrap_or(0) {
            let mut order: Vec<usize> = (sources..groups.len()).collect();
            for left in (1..order.len()).rev() {
                order.swap(left, world.dice.below(left as u64 + 1) as usize);
            }
            for (turn, group) in order.iter().enumerate() {
                let peer = groups[*group].peers.start + place;
                if peer >= groups[*group].peers.end {
                    continue;
                }
                let parents: Vec<usize> = match turn / self.children {
                    0 => (0..sources).collect(),
                    above => vec![order[above - 1]],
                };
                for parent in parents {
                    for sender in world.partners(&groups[parent], peer) {
                        if let Some(link) = world.open(sender, peer) {
                            self.tree.resize(self.tree.len().max(link + 1), false);
                            self.tree[link] = true;
                        }
                    }
                }
            }
        }
    }

    fn is_of_tree(&self, link: usize) -> bool {
        self.tree.get(link).copied().unwrap_or(false)
    }

    /// The links over which a server asks others than its parents.
    fn mesh(&self, world: &World, peer: usize) -> Vec<usize> {
        let asks = world.peers[peer].asks.iter().copied();
        asks.filter(|link| world.links[*link].open && !self.is_of_tree(*link))
            .collect()
    }

    fn receivers(&self, world: &World, peer: usize) -> usize {
        let asked = world.peers[peer].asked.iter();
        asked
            .filter(|link| world.links[**link].open && !self.is_of_tree(**link))
            .count()
    }

    /// Gives up the sender of which least came, where a server has as many as it may.
    fn drop_worst(&mut self, world: &mut World, peer: usize) {
        let mesh = self.mesh(world, peer);
        let gained = |link: &usize| {
            let before = self.came.get(link).copied().unwrap_or(0);
            world.links[*link].came - before
        };
        let worst = mesh.iter().min_by_key(|link| gained(link)).copied();
        if mesh.len() >= self.peers
            && let Some(worst) = worst
        {
            world.close(worst);
        }
        for link in mesh {
            self.came.insert(link, world.links[link].came);
        }
    }

    /// Asks one more server, if it hears of one that has something.
    fn add_sender(&self, world: &mut World, peer: usize) {
        if self.mesh(world, peer).len() >= self.peers {
            return;
        }
        let mut heard = candidates(world, peer);
        let mut best: Option<(usize, usize)> = None;
        for _ in 0..self.subset.min(heard.len() as u64) {
            let chosen = world.dice.below(heard.len() as u64) as usize;
            let other = heard.swap_remove(chosen);
            let known = world.known.get(&(other, peer));
            let asked = known.is_some_and(|link| world.links[*link].open);
            if asked || self.receivers(world, other) >= self.peers {
                continue;
            }
            let has = &world.peers[other].has;
            let new = world.peers[peer].todo.iter();
            let new = new.filter(|piece| has.contains(**piece)).count();
            if new > 0 && best.is_none_or(|(_, most)| new > most) {
                best = Some((other, new));
            }
        }
        if let Some((other, _)) = best {
            world.open(other, peer);
        }
    }
}

impl Overlay for Bullet {
    fn begin(&mut self, world: &mut World, job: usize) {
        self.plant(world, job);
    }

    fn pick(&mut self, world: &mut World, link: usize) -> Option<usize> {
        if !self.is_of_tree(link) {
            return world.any_useful(link);
        }
        let Link { from, to, .. } = world.links[link];
        let given = |place: &usize| {
            let piece = world.peers[to].todo[*place];
            self.given.get(&(from, piece)).copied().unwrap_or(0)
        };
        let least = world.useful(link).map(|place| given(&place)).min()?;
        let alike: Vec<usize> = world
            .useful(link)
            .filter(|place| given(place) == least)
            .collect();
        let place = alike[world.dice.below(alike.len() as u64) as usize];
        let piece = world.peers[to].todo[place];
        *self.given.entry((from, piece)).or_insert(0) += 1;
        Some(place)
    }

    fn period(&self) -> Option<Duration> {
        Some(self.epoch)
    }

    fn turn(&mut self, world: &mut World) {
        self.epochs += 1;
        for peer in begun(world) {
            if self.epochs.is_multiple_of(self.patience) {
                self.drop_worst(world, peer);
            }
            self.add_sender(world, peer);
        }
    }
}

/// Robber between sites [Burger §4.3.3]: each server fetches its share from random servers that
/// have it, and when it is done takes over half of what a random one of its site still lacks.
pub(super) struct Robber {
    /// How many a server asks at a time.
    parallel: usize,
    refresh: Duration,
}

impl Default for Robber {
    fn default() -> Self {
        Self {
            parallel: 5,
            refresh: Duration::from_secs(5),
        }
    }
}

impl Robber {
    fn look_around(&self, world: &mut World, peer: usize) {
        for place in 0..world.peers[peer].asks.len() {
            let link = world.peers[peer].asks[place];
            if world.links[link].open && world.useful(link).next().is_none() {
                world.close(link);
            }
        }
        let mut about = candidates(world, peer);
        about.retain(|other| has_for(world, *other, peer));
        while world.degree(peer) < self.parallel && !about.is_empty() {
            let chosen = world.dice.below(about.len() as u64) as usize;
            world.open(about.swap_remove(chosen), peer);
        }
    }

    /// Takes over half of what a random server of the same site has still to ask for.
    fn rob(&self, world: &mut World, peer: usize) -> bool {
        let job = world.peers[peer].job;
        let groups = &world.jobs[job].groups;
        let group = groups.iter().find(|group| group.peers.contains(&peer));
        let mates = group.map_or(0..0, |group| group.peers.clone());
        let mut victims: Vec<usize> = mates
            .filter(|mate| world.peers[*mate].todo.len() > 1)
            .collect();
        victims.retain(|mate| *mate != peer);
        let Some(victim) = pick_any(world, &victims) else {
            return false;
        };
        let todo = &mut world.peers[victim].todo;
        let loot = todo.split_off(todo.len().div_ceil(2));
        world.peers[peer].todo = loot;
        true
    }
}

impl Overlay for Robber {
    fn begin(&mut self, world: &mut World, job: usize) {
        for peer in world.jobs[job].peers.clone() {
            self.look_around(world, peer);
        }
    }

    fn pick(&mut self, world: &mut World, link: usize) -> Option<usize> {
        world.any_useful(link)
    }

    fn period(&self) -> Option<Duration> {
        Some(self.refresh)
    }

    fn turn(&mut self, world: &mut World) {
        for peer in begun(world) {
            self.look_around(world, peer);
        }
    }

    fn rests(&mut self, world: &mut World, peer: usize) {
        if self.rob(world, peer) {
            self.look_around(world, peer);
        }
    }
}

/// The servers that have or are to get something that a server still lacks.
fn candidates(world: &World, peer: usize) -> Vec<usize> {
    let parts = &world.jobs[world.peers[peer].job].parts;
    let lacks = world.peers[peer].todo.iter();
    let mut all: Vec<usize> = lacks
        .flat_map(|piece| parts[*piece as usize].iter().copied())
        .collect();
    all.sort_unstable();
    all.dedup();
    all.retain(|other| *other != peer);
    all
}

/// Whether a server has something that another lacks.
fn has_for(world: &World, other: usize, peer: usize) -> bool {
    let has = &world.peers[other].has;
    let mut lacks = world.peers[peer].todo.iter();
    lacks.any(|piece| has.contains(*piece))
}

/// One of several, each with the same chance.
fn pick_any(world: &mut World, of: &[usize]) -> Option<usize> {
    let count = of.len() as u64;
    (count > 0).then(|| of[world.dice.below(count) as usize])
}

/// Receivers of jobs that have begun and are not complete that still have something to ask for.
fn begun(world: &World) -> Vec<usize> {
    let now = world.now;
    let jobs = world
        .jobs
        .iter()
        .filter(|it| it.job.start <= now && it.left > 0);
    let peers = jobs.flat_map(|it| it.peers.clone());
    peers
        .filter(|peer| !world.peers[*peer].todo.is_empty())
        .collect()
}
