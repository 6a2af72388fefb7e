//! Systems without a central decision, as baselines: what servers ask for and send on their own.
//!
//! An object is divided into *pieces*, runs of blocks that are requested as a whole and never cross
//! the boundary between what two servers are to get. Each server asks over its *links*, one piece at
//! a time over each; pieces that are in transit share the network max-min fairly, as connections of
//! TCP in steady state do. Which links a server has and which piece it asks for next is up to the
//! system, see [`tree`] and [`mesh`]. All of them may use the share of links that the central
//! controller may use, so that like is compared with like. As there, requests and the start of
//! connections take no time, and there is no propagation delay and no loss.

mod mesh;
mod peers;
#[cfg(test)]
mod tests;
mod tree;

use std::collections::BTreeMap;
use std::time::Duration;

use outpour_controller::{Job, NamedJob, Runs};
use outpour_core::network::{Change, ClusterId, Network, Resource};
use outpour_core::{NodeId, Rate, Separation, Time};

use super::day::Day;
use super::fallback::bulk_may_use;
use super::report::{Outcome, ServerReport};
use super::servers::Received;
use super::{ReplicateConfig, ReplicateError, System};
use crate::dice::Dice;
use crate::flow::{FlowId, Flows, ResourceId};
use peers::Group;

/// Into how many pieces the share of a server is divided, unless its blocks are larger.
const PIECES: u32 = 200;
/// How often nothing may move from one turn to the next before the simulation gives up.
const IDLE_TURNS_MAX: u32 = 100;
/// How often a script may change something with nothing moved before the simulation gives up.
const IDLE_CHANGES_MAX: u32 = 100_000;

/// A server's part in a job.
#[derive(Debug)]
struct Peer {
    node: NodeId,
    /// The place of its job in the file.
    job: usize,
    /// The pieces it is to get, as the job was divided.
    share: std::ops::Range<u32>,
    /// The pieces it has.
    has: Runs,
    /// The pieces it is to get and asks nobody for at the moment, in order.
    todo: Vec<u32>,
    /// Links over which it asks, and over which it is asked.
    asks: Vec<usize>,
    asked: Vec<usize>,
    /// When it got the last piece.
    last: Time,
}

/// Where one server may ask another of the same job.
#[derive(Debug)]
struct Link {
    from: usize,
    to: usize,
    flow: FlowId,
    /// The piece that is in transit.
    piece: Option<u32>,
    /// Whether it is used for further pieces.
    open: bool,
    /// How many pieces came over it.
    came: u32,
}

/// A job that has begun, or is to.
#[derive(Debug)]
struct Moved {
    job: Job,
    /// The blocks of each piece.
    pieces: Vec<std::ops::Range<u32>>,
    /// The servers of each site, or each server alone, that get a copy together.
    groups: Vec<Group>,
    peers: std::ops::Range<usize>,
    /// For each piece, who is to get it or has it from the start.
    parts: Vec<Vec<usize>>,
    /// How many pieces are still to come, over all servers.
    left: u64,
}

/// All servers, and what they have.
struct World {
    network: Network,
    flows: Flows,
    resources: BTreeMap<Resource, ResourceId>,
    /// What all transfers of a job together carry.
    limits: Vec<Option<ResourceId>>,
    /// What bulk may use of links and of hosts.
    separation: Separation,
    host_limit: Rate,
    /// Latency-sensitive traffic on links, bytes per second; it goes first.
    foreground: BTreeMap<(ClusterId, ClusterId), f64>,
    /// Whether what carries nothing may carry something later.
    changes: bool,
    peers: Vec<Peer>,
    links: Vec<Link>,
    known: BTreeMap<(usize, usize), usize>,
    /// The link of each flow.
    link_of: Vec<usize>,
    jobs: Vec<Moved>,
    received: BTreeMap<ClusterId, Received>,
    dice: Dice,
    now: Time,
}

/// How a system's servers behave.
trait Overlay {
    /// A job begins: opens the first links.
    fn begin(&mut self, world: &mut World, job: usize);

    /// Which of the pieces to do the server at the end of an idle link asks for, as a place in
    /// [`Peer::todo`].
    fn pick(&mut self, world: &mut World, link: usize) -> Option<usize>;

    /// How often [`Overlay::turn`] is called.
    fn period(&self) -> Option<Duration> {
        None
    }

    /// Time for servers to look for others.
    fn turn(&mut self, world: &mut World) {
        let _ = world;
    }

    /// A server has nothing to do any more, and others may have.
    fn rests(&mut self, world: &mut World, peer: usize) {
        let _ = (world, peer);
    }
}

/// Simulates the jobs under a system without a controller.
///
/// # Errors
/// If a job is one that the system does not move, or nothing moves any more.
/// Also the network with each capacity at its most.
pub(super) fn run(config: &ReplicateConfig) -> Result<(Outcome, Network), ReplicateError> {
    let (mut day, network) = Day::new(config)?;
    let mut world = World::new(config, network, day.is_scripted())?;
    let mut overlay: Box<dyn Overlay> = match config.system {
        System::Direct => Box::new(tree::Tree::direct()),
        System::Chain => Box::new(tree::Tree::chain()),
        System::Akamai => Box::new(tree::Tree::reflectors()),
        System::Gingko => Box::<mesh::Gingko>::default(),
        System::Bullet => Box::<mesh::Bullet>::default(),
        System::Central | System::Robber => Box::<mesh::Robber>::default(),
    };
    let mut starts: Vec<usize> = (0..world.jobs.len()).collect();
    starts.sort_by_key(|job| std::cmp::Reverse(world.jobs[*job].job.start));
    let mut turn = overlay.period().map(|period| Time::ZERO + period);
    // How often in a row nothing was in transit when it was time to look for others.
    let mut idle = 0;
    // How often in a row something changed and nothing arrived.
    let mut changed = 0;
    loop {
        while let Some(changes) = day.take(world.now) {
            changes.iter().for_each(|change| world.change(change));
            changed += 1;
            idle = 0;
        }
        while let Some(job) = starts.pop_if(|job| world.jobs[*job].job.start <= world.now) {
            overlay.begin(&mut world, job);
            world.feed_all(overlay.as_mut(), job);
            idle = 0;
        }
        world.flows.settle(world.now);
        let begins = starts.last().map(|job| world.jobs[*job].job.start);
        let through = world.flows.next_time();
        if through.is_none() && begins.is_none() && world.is_complete() {
            return Ok((world.outcome(), day.into_most()));
        }
        let turns = turn.filter(|_| idle <= IDLE_TURNS_MAX);
        let changes = day.next_at().filter(|_| changed <= IDLE_CHANGES_MAX);
        let all = [begins, through, turns, changes];
        let Some(next) = all.into_iter().flatten().min() else {
            return Err(world.stuck(config));
        };
        // A turn that was left out while nothing moved is late.
        world.now = next.max(world.now);
        if through == Some(next) {
            changed = 0;
        }
        world.arrivals(overlay.as_mut());
        if turns == Some(next) {
            idle = if through.is_none() { idle + 1 } else { 0 };
            overlay.turn(&mut world);
            for job in 0..world.jobs.len() {
                world.feed_all(overlay.as_mut(), job);
            }
            turn = overlay.period().map(|period| world.now + period);
        }
    }
}

/// Whether a system without a controller moves a job.
///
/// # Errors
/// If it does not: why.
pub(super) fn check(named: &NamedJob, system: System) -> Result<(), ReplicateError> {
    let blocks = peers::blocks(&named.job, system);
    blocks
        .map(|_| ())
        .map_err(|why| refused(named, system, why))
}

fn refused(named: &NamedJob, system: System, why: &'static str) -> ReplicateError {
    let name = named.name.clone();
    ReplicateError::System { name, system, why }
}

impl World {
    fn new(
        config: &ReplicateConfig,
        network: Network,
        changes: bool,
    ) -> Result<Self, ReplicateError> {
        let mut world = Self {
            network,
            flows: Flows::default(),
            resources: BTreeMap::new(),
            limits: Vec::new(),
            separation: config.controller.separation,
            host_limit: config.controller.host_limit,
            foreground: BTreeMap::new(),
            changes,
            peers: Vec::new(),
            links: Vec::new(),
            known: BTreeMap::new(),
            link_of: Vec::new(),
            jobs: Vec::new(),
            received: BTreeMap::new(),
            dice: Dice::new(config.seed),
            now: Time::ZERO,
        };
        for named in &config.jobs {
            let added = world.add_job(&named.job, config.system);
            added.map_err(|why| refused(named, config.system, why))?;
        }
        Ok(world)
    }

    /// What a resource carries, bytes per second.
    fn capacity(&self, resource: Resource) -> f64 {
        let foreground = match resource {
            Resource::Link(from, to) => self.foreground.get(&(from, to)).copied(),
            _ => None,
        };
        let (rule, host) = (self.separation, self.host_limit);
        bulk_may_use(
            &self.network,
            rule,
            host,
            resource,
            foreground.unwrap_or(0.0),
        )
    }

    /// Something changes in the network, or in what uses it besides.
    fn change(&mut self, change: &Change) {
        self.network.apply(change);
        let touched = match *change {
            Change::Foreground { from, to, rate } => {
                self.foreground.insert((from, to), rate.bytes_per_s());
                Resource::Link(from, to)
            }
            Change::Capacity { resource, .. } => resource,
            _ => return,
        };
        let of = |resource: &Resource| match (touched, *resource) {
            // The links inside a site change together.
            (Resource::Link(a, b), Resource::Local(node, _)) if a == b => {
                self.network.cluster_of(node) == a
            }
            (touched, resource) => touched == resource,
        };
        let all: Vec<Resource> = self.resources.keys().filter(|it| of(it)).copied().collect();
        for resource in all {
            let capacity = self.capacity(resource);
            self.flows.set_capacity(self.resources[&resource], capacity);
        }
    }

    fn resource(&mut self, resource: Resource) -> ResourceId {
        if let Some(id) = self.resources.get(&resource) {
            return *id;
        }
        let id = self.flows.add_resource(self.capacity(resource));
        self.resources.insert(resource, id);
        id
    }

    /// Has a server ask another from now on, if anything gets through between them.
    fn open(&mut self, from: usize, to: usize) -> Option<usize> {
        debug_assert!(from != to, "nobody asks itself");
        if let Some(link) = self.known.get(&(from, to)) {
            self.links[*link].open = true;
            return Some(*link);
        }
        let (sender, receiver) = (self.peers[from].node, self.peers[to].node);
        let path = self.network.path(sender, receiver);
        let through = path.resources();
        let carries = |resource: &Resource| self.capacity(*resource) > 0.0;
        if !self.changes && !through.iter().all(carries) {
            return None;
        }
        let mut hops: Vec<ResourceId> = Vec::with_capacity(through.len() + 1);
        for resource in through {
            hops.push(self.resource(*resource));
        }
        hops.extend(self.limits[self.peers[from].job]);
        let flow = self.flows.add_flow(&hops);
        let link = self.links.len();
        debug_assert_eq!(flow.0 as usize, self.link_of.len(), "flows count from zero");
        self.link_of.push(link);
        self.links.push(Link {
            from,
            to,
            flow,
            piece: None,
            open: true,
            came: 0,
        });
        self.peers[to].asks.push(link);
        self.peers[from].asked.push(link);
        self.known.insert((from, to), link);
        Some(link)
    }

    /// Has a link carry nothing after what is in transit.
    fn close(&mut self, link: usize) {
        self.links[link].open = false;
    }

    /// How many links a server asks over.
    fn degree(&self, peer: usize) -> usize {
        let asks = self.peers[peer].asks.iter();
        asks.filter(|link| self.links[**link].open).count()
    }

    /// The pieces that a server could ask another for, as places in its list.
    fn useful(&self, link: usize) -> impl Iterator<Item = usize> + '_ {
        let Link { from, to, .. } = self.links[link];
        let has = &self.peers[from].has;
        let todo = self.peers[to].todo.iter().enumerate();
        todo.filter(|(_, piece)| has.contains(**piece))
            .map(|(place, _)| place)
    }

    /// One of the pieces that a server could ask for over a link, each with the same chance.
    fn any_useful(&mut self, link: usize) -> Option<usize> {
        let count = self.useful(link).count() as u64;
        let chosen = (count > 0).then(|| self.dice.below(count) as usize)?;
        self.useful(link).nth(chosen)
    }

    /// Has an idle link carry the next piece.
    fn feed(&mut self, overlay: &mut dyn Overlay, link: usize) {
        let Link {
            to, piece, open, ..
        } = self.links[link];
        if piece.is_some() || !open || self.peers[to].todo.is_empty() {
            return;
        }
        let Some(place) = overlay.pick(self, link) else {
            return;
        };
        let piece = self.peers[to].todo.remove(place);
        let from = self.links[link].from;
        debug_assert!(self.peers[from].has.contains(piece), "it has what it sends");
        debug_assert!(!self.peers[to].has.contains(piece), "nothing comes twice");
        self.links[link].piece = Some(piece);
        let bytes = self.bytes(self.peers[to].job, piece);
        let flow = self.links[link].flow;
        self.flows.load(self.now, flow, bytes);
    }

    fn feed_all(&mut self, overlay: &mut dyn Overlay, job: usize) {
        for peer in self.jobs[job].peers.clone() {
            self.feed_peer(overlay, peer);
        }
    }

    fn feed_peer(&mut self, overlay: &mut dyn Overlay, peer: usize) {
        for place in 0..self.peers[peer].asks.len() {
            let link = self.peers[peer].asks[place];
            self.feed(overlay, link);
        }
    }

    fn bytes(&self, job: usize, piece: u32) -> u32 {
        let Moved { job, pieces, .. } = &self.jobs[job];
        let blocks = &pieces[piece as usize];
        let bytes = u64::from(blocks.end - blocks.start) * job.block.0;
        u32::try_from(bytes).expect("pieces are as long as a flow may be")
    }

    /// What is through at this instant.
    fn arrivals(&mut self, overlay: &mut dyn Overlay) {
        while self.flows.next_time().is_some_and(|time| time <= self.now) {
            let Some((_, flow)) = self.flows.pop() else {
                break;
            };
            self.arrived(overlay, self.link_of[flow.0 as usize]);
        }
    }

    fn arrived(&mut self, overlay: &mut dyn Overlay, link: usize) {
        let Link { from, to, .. } = self.links[link];
        let piece = self.links[link].piece.take();
        let piece = piece.expect("what is through was sent");
        self.links[link].came += 1;
        let job = self.peers[to].job;
        let bytes = u64::from(self.bytes(job, piece));
        let here = self.network.cluster_of(self.peers[to].node);
        let there = self.network.cluster_of(self.peers[from].node);
        let received = self.received.entry(here).or_default();
        received.all += bytes;
        received.wan += if here == there { 0 } else { bytes };
        let peer = &mut self.peers[to];
        peer.has.insert(piece..piece + 1);
        peer.last = self.now;
        let left = &mut self.jobs[job].left;
        debug_assert!(*left > 0, "it was still to come");
        *left -= 1;
        self.feed(overlay, link);
        for place in 0..self.peers[to].asked.len() {
            let next = self.peers[to].asked[place];
            self.feed(overlay, next);
        }
        if self.peers[to].todo.is_empty() {
            overlay.rests(self, to);
            self.feed_peer(overlay, to);
        }
    }

    fn is_complete(&self) -> bool {
        self.jobs.iter().all(|job| job.left == 0)
    }

    fn stuck(&self, config: &ReplicateConfig) -> ReplicateError {
        let first = self.jobs.iter().position(|job| job.left > 0);
        ReplicateError::Stuck {
            name: first.map_or_else(String::new, |place| config.jobs[place].name.clone()),
            seconds: self.now.as_secs_f64(),
        }
    }

    fn outcome(self) -> Outcome {
        let jobs = self.jobs.iter().enumerate();
        let mut outcome = Outcome {
            finishes: jobs.map(|(place, it)| (place, it.job.start)).collect(),
            received: self.received,
            ..Outcome::default()
        };
        for peer in self.peers.iter().filter(|peer| !peer.share.is_empty()) {
            let finish = outcome.finishes.entry(peer.job).or_default();
            *finish = peer.last.max(*finish);
            let site = self.network.cluster_of(peer.node);
            outcome.sites.push((site, peer.last));
            let came = peer.asks.iter().map(|link| &self.links[*link]);
            let all: u32 = came.clone().map(|link| link.came).sum();
            let origin = came.filter(|link| self.peers[link.from].share.is_empty());
            let origin: u32 = origin.map(|link| link.came).sum();
            outcome.servers.push(ServerReport {
                finish_s: peer.last.as_secs_f64(),
                origin: f64::from(origin) / f64::from(all.max(1)),
            });
        }
        outcome
    }
}
