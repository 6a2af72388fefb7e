//! A node's children: what each of them has still to be sent.

use std::collections::{BTreeMap, BTreeSet};

use outpour_core::{BlockId, BlockSet, NodeId, Plan, Rate};

use super::pace::BURST;
use super::share::Share;
use crate::mend::Mender;
use crate::{Action, Actions, SEND_QUEUE_MAX};

/// Blocks in the driver's queue per child: enough to read ahead, few enough to change course.
pub(super) const QUEUE: u32 = 8;
const _: () = assert!(QUEUE as usize <= SEND_QUEUE_MAX);

/// All children, and the driver's queues.
#[derive(Debug)]
pub(super) struct Downlink {
    outlets: BTreeMap<NodeId, Outlet>,
    /// What those have or were sent that were children, and are still connected: it is on its way,
    /// whatever they say when they attach again.
    passed: BTreeMap<NodeId, BlockSet>,
    /// The children of each tree.
    listeners: Vec<Vec<NodeId>>,
    /// How many blocks are in the driver's queue to each member.
    queued: Vec<u32>,
}

/// A child.
#[derive(Debug)]
struct Outlet {
    trees: BTreeSet<u32>,
    /// Blocks to send: it lacks them and they may go.
    todo: BlockSet,
    /// Blocks it has or was sent.
    covered: BlockSet,
    /// Nothing to do comes before this block.
    first: BlockId,
    /// With more to do than this it is given nothing new by a root that paces.
    backlog_max: u32,
}

impl Downlink {
    pub(super) fn new(trees: usize, members: usize) -> Self {
        Self {
            outlets: BTreeMap::new(),
            passed: BTreeMap::new(),
            listeners: vec![Vec::new(); trees],
            queued: vec![0; members],
        }
    }

    /// What holds whenever children have come or gone.
    fn check(&self) {
        if !cfg!(debug_assertions) {
            return;
        }
        let listeners: usize = self.listeners.iter().map(Vec::len).sum();
        let trees: usize = self.outlets.values().map(|outlet| outlet.trees.len()).sum();
        debug_assert_eq!(
            listeners, trees,
            "a tree's children are not those that want it"
        );
        for (peer, outlet) in &self.outlets {
            let hears = |tree: &u32| self.listeners[*tree as usize].contains(peer);
            debug_assert!(outlet.trees.iter().all(hears));
            debug_assert!(!self.passed.contains_key(peer));
            debug_assert!(outlet.backlog_max >= QUEUE);
            outlet.check();
        }
    }

    /// Whether a peer is a child.
    pub(super) fn serves(&self, peer: NodeId) -> bool {
        self.outlets.contains_key(&peer)
    }

    /// Whether any child is served.
    pub(super) fn is_idle(&self) -> bool {
        self.outlets.is_empty()
    }

    /// A child wants these trees, and says what it has; `shown` is what it may be sent.
    #[expect(
        clippy::too_many_arguments,
        reason = "what a node knows, passed apart to be borrowed"
    )]
    pub(super) fn attach(
        &mut self,
        peer: NodeId,
        trees: &[u32],
        have: &BlockSet,
        shown: &BlockSet,
        share: &Share,
        plan: &Plan,
        block_bytes: u32,
    ) {
        let passed = self.passed.remove(&peer);
        let outlet = self.outlets.entry(peer).or_insert_with(|| Outlet {
            trees: BTreeSet::new(),
            todo: BlockSet::new(have.len()),
            covered: passed.unwrap_or_else(|| BlockSet::new(have.len())),
            first: 0,
            backlog_max: 0,
        });
        outlet.covered.union(have);
        outlet.todo.subtract(have);
        let mut is_new = vec![false; plan.trees.len()];
        for tree in trees {
            if outlet.trees.insert(*tree) {
                is_new[*tree as usize] = true;
                self.listeners[*tree as usize].push(peer);
            }
        }
        let burst = outlet.rate(plan).bytes_per_s() * BURST.as_secs_f64();
        outlet.backlog_max = QUEUE + (burst / f64::from(block_bytes)).min(1e9) as u32;
        for block in shown.iter() {
            if is_new[share.tree(block)] {
                outlet.add(block);
            }
        }
        self.check();
    }

    /// A child does not want these trees any more; all if none are named.
    pub(super) fn detach(&mut self, peer: NodeId, trees: Option<&[u32]>, share: &Share) {
        let Some(outlet) = self.outlets.get_mut(&peer) else {
            return;
        };
        let leaving: Vec<u32> = match trees {
            Some(trees) => trees
                .iter()
                .copied()
                .filter(|it| outlet.trees.contains(it))
                .collect(),
            None => outlet.trees.iter().copied().collect(),
        };
        for tree in &leaving {
            outlet.trees.remove(tree);
            self.listeners[*tree as usize].retain(|node| *node != peer);
        }
        if outlet.trees.is_empty() {
            if let Some(outlet) = self.outlets.remove(&peer) {
                self.passed.insert(peer, outlet.covered);
            }
            self.check();
            return;
        }
        let todo: Vec<BlockId> = outlet.todo.iter().collect();
        for block in todo {
            if !outlet.trees.contains(&(share.tree(block) as u32)) {
                outlet.todo.remove(block);
            }
        }
        self.check();
    }

    /// The connection is gone, and what was queued with it.
    pub(super) fn on_down(&mut self, peer: NodeId, share: &Share) {
        self.queued[peer.index()] = 0;
        self.detach(peer, None, share);
        self.passed.remove(&peer);
        debug_assert!(!self.outlets.contains_key(&peer));
        debug_assert!(!self.listeners.iter().any(|tree| tree.contains(&peer)));
    }

    /// A child got a block elsewhere.
    pub(super) fn skip(&mut self, peer: NodeId, block: BlockId) {
        if let Some(outlet) = self.outlets.get_mut(&peer) {
            outlet.covered.insert(block);
            outlet.todo.remove(block);
        }
    }

    /// The children of a tree that lack a block of it.
    pub(super) fn lacking(&self, tree: usize, block: BlockId) -> impl Iterator<Item = NodeId> + '_ {
        let lacks = move |peer: &NodeId| {
            self.outlets
                .get(peer)
                .is_some_and(|outlet| !outlet.covered.contains(block))
        };
        self.listeners[tree].iter().copied().filter(lacks)
    }

    /// Whether a tree has children, and all of them can take more.
    pub(super) fn is_open(&self, tree: usize) -> bool {
        let listeners = &self.listeners[tree];
        !listeners.is_empty() && listeners.iter().all(|peer| self.has_room(*peer))
    }

    fn has_room(&self, peer: NodeId) -> bool {
        self.outlets
            .get(&peer)
            .is_none_or(|outlet| outlet.todo.count() < outlet.backlog_max)
    }

    /// A block may go to all children that want it.
    pub(super) fn offer(
        &mut self,
        tree: usize,
        block: BlockId,
        mender: &mut Mender,
        have: &BlockSet,
        out: &mut Actions,
    ) {
        for index in 0..self.listeners[tree].len() {
            let peer = self.listeners[tree][index];
            if let Some(outlet) = self.outlets.get_mut(&peer) {
                outlet.add(block);
                self.pump(peer, mender, have, out);
            }
        }
    }

    /// Keeps the driver's queue for a peer filled.
    pub(super) fn pump(
        &mut self,
        peer: NodeId,
        mender: &mut Mender,
        have: &BlockSet,
        out: &mut Actions,
    ) {
        while self.queued[peer.index()] < QUEUE {
            let mut outlet = self.outlets.get_mut(&peer);
            let next = match mender.next_errand(peer) {
                Some(block) => Some(block),
                None => outlet.as_mut().and_then(|outlet| outlet.next()),
            };
            let Some(block) = next else { return };
            if let Some(outlet) = outlet {
                outlet.todo.remove(block);
                if !outlet.covered.insert(block) {
                    // On its way already.
                    continue;
                }
            }
            if have.contains(block) {
                self.queued[peer.index()] += 1;
                out.push(Action::SendBlock { to: peer, block });
            }
        }
    }

    /// A block has left the driver's queue; says which trees may go on if they were held up.
    pub(super) fn on_sent(&mut self, peer: NodeId) {
        let queued = &mut self.queued[peer.index()];
        *queued = queued.saturating_sub(1);
    }

    /// What the trees bring together in which a peer is served; zero for one that is served in none.
    pub(super) fn rate(&self, peer: NodeId, plan: &Plan) -> Rate {
        self.outlets
            .get(&peer)
            .map_or(Rate::ZERO, |outlet| outlet.rate(plan))
    }

    /// The trees of a child that can take more, for a root that paces.
    pub(super) fn trees_with_room(&self, peer: NodeId) -> impl Iterator<Item = usize> + '_ {
        let outlet = self.outlets.get(&peer).filter(|_| self.has_room(peer));
        outlet
            .into_iter()
            .flat_map(|outlet| outlet.trees.iter().map(|tree| *tree as usize))
    }

    /// Every child and how many blocks it is owed.
    pub(super) fn owed(&self) -> impl Iterator<Item = (NodeId, u32)> + '_ {
        let owed = |(peer, outlet): (&NodeId, &Outlet)| {
            (*peer, outlet.todo.count() + self.queued[peer.index()])
        };
        self.outlets.iter().map(owed)
    }
}

impl Outlet {
    /// What its trees bring together.
    fn rate(&self, plan: &Plan) -> Rate {
        let trees = self.trees.iter();
        trees.map(|tree| plan.trees[*tree as usize].rate).sum()
    }

    /// What holds between any two calls.
    fn check(&self) {
        debug_assert!(!self.todo.iter().any(|block| self.covered.contains(block)));
        debug_assert!(
            self.todo
                .next_present(0)
                .is_none_or(|block| block >= self.first)
        );
    }

    fn add(&mut self, block: BlockId) {
        if !self.covered.contains(block) {
            self.todo.insert(block);
            self.first = self.first.min(block);
        }
    }

    /// The lowest block: what is behind its tree's share is not overtaken by what is ahead.
    fn next(&mut self) -> Option<BlockId> {
        let block = self.todo.next_present(self.first)?;
        debug_assert!(!self.covered.contains(block), "{block} is on its way");
        debug_assert!(self.todo.next_present(0) == Some(block));
        self.first = block;
        Some(block)
    }
}
