//! `tree` and its kin: pushing along the weighted trees of a plan, all at once [Burger §3.2].
//!
//! The blocks are dealt out to the trees in proportion to their rates, and each travels in its
//! tree: the root lets a tree have its next block when that is due at the tree's rate
//! (`pace`), every other node hands a block on as soon as it has come. Children attach to their
//! parents and say what they have, so what a child has already is not sent again.
//!
//! How the root lets blocks go is the method's (`Pushing`). Where the plan has rates, `balanced`,
//! `optimal` and `tree`, they are kept exactly, as in the thesis: flows of unequal trees would
//! share a link equally otherwise. The other methods push as fast as each tree takes it.
//!
//! A node whose parent fails takes the tree from the nearest ancestor that answers (`uplink`);
//! what no ancestor has any more is pulled from a node that has it (`mend`). Either way it
//! goes on to the children, so one orphan mends everything below it.

mod downlink;
mod pace;
mod share;
#[cfg(test)]
mod tests;
mod uplink;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use outpour_core::blocks::WireBlocks;
use outpour_core::plan::Tree;
use outpour_core::{BlockId, BlockSet, NodeId, Plan, Rate, Time};
use serde::{Deserialize, Serialize};

use crate::mend::{self, Around, MendMessage, Mender};
use crate::promise::Promise;
use crate::registry::{Entry, NO_OPTIONS, PlanFrom, USUAL_BLOCKS};
use crate::{Action, Actions, Event, Protocol, Setup, TimerId};
use downlink::Downlink;
use pace::Pacer;
use share::Share;
use uplink::{State, Uplink};

/// How often a server says that it is alive, and all nodes look at their clocks.
const TICK: Duration = Duration::from_millis(250);
/// A node that wakes up this much too late did not run, and blames no peer for having been silent.
const LATE: Duration = Duration::from_secs(1);

/// Where cards are used up, nodes keep to rates between clusters of several nodes if every tree has so many times
/// the blocks that are on its longest way: in thinner and deeper ones it is better to have blocks there soon.
const FILLED_FROM: f64 = 20.0;
/// So much more than planned they may send there: over real connections something is lost now and then.
const HASTE: f64 = 1.02;

const TICKER: TimerId = TimerId(0);
const PACE: TimerId = TimerId(1);

/// How the root lets the blocks of each tree go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Pushing {
    /// At the plan's rates.
    Shaped,
    /// Likewise, and cards are what is used up: lanes that lost time to others cannot make up for it.
    ShapedByCards,
    /// As fast as each tree takes them.
    Free,
}

macro_rules! entry {
    ($(#[$doc:meta])* $constant:ident, $name:literal, $about:literal, $baseline:expr, $plan:expr,
     $pushing:expr) => {
        $(#[$doc])*
        pub const $constant: Entry = Entry {
            name: $name,
            about: $about,
            baseline: $baseline,
            plan: $plan,
            selective: false,
            coding: None,
            block_size: USUAL_BLOCKS,
            takes: NO_OPTIONS,
            promise: PROMISE,
            build: |setup, _| Box::new(TreePush::new(setup, $pushing)) as Box<dyn Protocol>,
        };
    };
}

entry!(
    /// The registry's line: trees from the user.
    TREE, "tree", "blocks are pushed along the trees of a given plan, at its rates",
    false, PlanFrom::User, Pushing::Shaped
);
entry!(
    /// The registry's line: trees of Balanced Multicasting.
    BALANCED, "balanced", "blocks are pushed along several trees that share local capacities",
    true, PlanFrom::Method("balanced"), Pushing::Shaped
);
entry!(
    /// The registry's line: an exact packing of trees.
    OPTIMAL, "optimal", "blocks are pushed along the trees with the highest total rate",
    false, PlanFrom::Method("optimal"), Pushing::Shaped
);
entry!(
    /// The registry's line: trees of the fast parallel file replication heuristic.
    FPFR, "fpfr", "blocks are pushed along trees found by depth-first search",
    true, PlanFrom::Method("fpfr"), Pushing::Free
);
entry!(
    /// The registry's line: one tree of the widest links.
    MAX_BOTTLENECK, "max-bottleneck", "blocks are pushed along the one tree whose slowest link is fastest",
    true, PlanFrom::Method("max-bottleneck"), Pushing::Free
);
entry!(
    /// The registry's line: one binomial tree.
    BINOMIAL, "binomial", "blocks are pushed along one binomial tree",
    true, PlanFrom::Method("binomial"), Pushing::Free
);
entry!(
    /// The registry's line: one binary tree.
    BINARY, "binary", "blocks are pushed along one binary tree",
    true, PlanFrom::Method("binary"), Pushing::Free
);
entry!(
    /// The registry's line: MagPIe's tree.
    MAGPIE, "magpie", "the root sends to each cluster, a binomial tree spreads it there",
    true, PlanFrom::Method("magpie"), Pushing::Free
);

/// A node that turns to another server and back has what both had queued for it.
const PROMISE: Promise = Promise::per_turn(2 * downlink::QUEUE, mend::OWED_MAX as u32);

#[derive(Serialize, Deserialize)]
enum Message {
    /// Child to server: send me the blocks of these trees as you get them; I have these.
    Attach { trees: Vec<u32>, have: WireBlocks },
    /// Child to server: send me no more of these trees; of none, if none are named.
    Detach { trees: Option<Vec<u32>> },
    /// Child to server: I got this block elsewhere.
    Skip { block: BlockId },
    /// Server to child: alive, with so many blocks to send to you.
    Alive { owed: u32 },
    /// Between any two.
    Mend(MendMessage),
}

/// One node of a push along trees.
#[derive(Debug)]
struct TreePush {
    me: NodeId,
    plan: Arc<Plan>,
    share: Share,
    block_bytes: u32,
    have: BlockSet,
    up: Vec<bool>,
    gone: Vec<bool>,
    uplink: Uplink,
    downlink: Downlink,
    mender: Mender,
    pushing: Pushing,
    /// Whether all nodes keep to the rates of the trees, and not only the root: where no cluster has
    /// several nodes among others, whose lanes share links in passing and are deep.
    keeps_rates: bool,
    /// Whether they keep to them towards other clusters elsewhere, but for [`HASTE`].
    keeps_abroad: bool,
    /// Which nodes are in other clusters.
    abroad: Vec<bool>,
    /// To which peers a rate is kept.
    shaped: Vec<bool>,
    /// At a root that paces, with the blocks it has let go.
    pacer: Option<(Pacer, BlockSet)>,
    /// Those to call at the start, because they will want to attach.
    children: Vec<NodeId>,
    /// When the next tick is due, if one is.
    ticking: Option<Time>,
}

/// A node's part in the plan of its setup, at the plan's rates, for a protocol that begins with one where cards
/// are the limit.
pub(crate) fn part(setup: Setup) -> Box<dyn Protocol> {
    debug_assert!(setup.plan.is_some(), "there is a plan");
    Box::new(TreePush::new(setup, Pushing::ShapedByCards))
}

/// What each tree of a plan brings to every node, in blocks per second, and after how many seconds at the
/// latest its first block is everywhere if each edge passes it on at the tree's rate.
pub(crate) fn flows(plan: &Plan, block_bytes: u32) -> Vec<(f64, f64)> {
    let limited = plan.trees.iter().filter(|tree| !tree.rate.is_unlimited());
    let flow = |tree: &Tree| {
        let rate = tree.rate.bytes_per_s() / f64::from(block_bytes.max(1));
        (rate, share::depth(tree) as f64 / rate)
    };
    limited.map(flow).collect()
}

impl TreePush {
    fn new(setup: Setup, pushing: Pushing) -> Self {
        let blocks = setup.have.len();
        // A driver that gives no plan gets the least there is: what the source has, to all nodes.
        let plan = setup.plan.clone().unwrap_or_else(|| Arc::new(flat(&setup)));
        debug_assert!(!plan.trees.is_empty());
        debug_assert!(!plan.roots.is_empty());
        let clusters: BTreeSet<u32> = setup.members.iter().map(|it| it.cluster).collect();
        let over_nodes = clusters.len() == 1 || clusters.len() == setup.members.len();
        let keeps_rates = pushing != Pushing::Free && over_nodes;
        let cluster = |node: NodeId| setup.members.get(node.index()).map(|it| it.cluster);
        let abroad_hops = |tree: &Tree| share::longest(tree, |a, b| cluster(a) != cluster(b));
        // At most so many blocks may be on the longest way of a tree, of those it has.
        let fills = |tree: &Tree| {
            let part = tree.rate.bytes_per_s() / plan.throughput().bytes_per_s();
            abroad_hops(tree) as f64 <= f64::from(blocks) * part / FILLED_FROM
        };
        let keeps_abroad = pushing == Pushing::ShapedByCards && plan.trees.iter().all(fills);
        let share = Share::new(&plan, blocks, |tree| match (keeps_rates, keeps_abroad) {
            (true, _) => share::depth(tree),
            (false, true) => abroad_hops(tree),
            (false, false) => 1,
        });
        let home = setup.members[setup.me.index()].cluster;
        let members = setup.members.len();
        let mut is_child = vec![false; members];
        let edges = plan.trees.iter().flat_map(|tree| &tree.edges);
        edges
            .filter(|(from, _)| *from == setup.me)
            .for_each(|(_, to)| is_child[to.index()] = true);
        debug_assert!(!is_child[setup.me.index()], "a node is no child of its own");
        let children = (0..)
            .map(NodeId)
            .zip(is_child)
            .filter(|(_, is)| *is)
            .map(|(node, _)| node);
        Self {
            me: setup.me,
            uplink: Uplink::new(setup.me, &plan, &share, &setup.have, setup.block_bytes),
            downlink: Downlink::new(plan.trees.len(), members),
            mender: Mender::new(setup.me, blocks),
            pushing,
            keeps_rates,
            keeps_abroad,
            abroad: setup.members.iter().map(|it| it.cluster != home).collect(),
            shaped: vec![false; members],
            pacer: None,
            children: children.collect(),
            ticking: None,
            block_bytes: setup.block_bytes,
            up: vec![false; members],
            gone: vec![false; members],
            have: setup.have,
            share,
            plan,
        }
    }

    fn start(&mut self, now: Time, out: &mut Actions) {
        if self.plan.roots.contains(&self.me)
            && self.have.is_full()
            && self.pushing != Pushing::Free
        {
            let pacer = Pacer::new(&self.plan, &self.share, self.block_bytes, now);
            self.pacer = Some((pacer, BlockSet::new(self.have.len())));
            self.pace(now, out);
        }
        self.children
            .iter()
            .for_each(|child| out.push(Action::Connect(*child)));
        if !self.have.is_full() {
            let (uplink, plan, state) = self.split();
            uplink.start(now, plan, state, out);
            self.tick_on(now, out);
        }
    }

    /// What holds after every event.
    fn check(&self, now: Time) {
        debug_assert!(!self.up[self.me.index()]);
        debug_assert!(
            self.have.is_full() || self.ticking.is_some(),
            "it would wait for ever"
        );
        if let Some((_, released)) = &self.pacer {
            debug_assert!(
                self.have.is_full(),
                "a node that lacks something does not pace"
            );
            debug_assert!(self.pushing != Pushing::Free);
            debug_assert!(released.count() <= self.have.count());
        }
        let state = State {
            up: &self.up,
            gone: &self.gone,
            have: &self.have,
        };
        self.uplink.check(now, state);
    }

    fn split(&mut self) -> (&mut Uplink, &Plan, State<'_>) {
        let state = State {
            up: &self.up,
            gone: &self.gone,
            have: &self.have,
        };
        (&mut self.uplink, &self.plan, state)
    }

    /// Calls `work` with the mender and what it needs.
    fn mend<T>(
        &mut self,
        work: impl FnOnce(&mut Mender, Around<'_>, &mut mend::Wrap<'_>) -> T,
    ) -> T {
        let around = Around {
            up: &self.up,
            gone: &self.gone,
            have: &self.have,
            gap: self.uplink.gap(),
        };
        let mut wrap = |to, message, out: &mut Actions| out.send(to, &Message::Mend(message));
        work(&mut self.mender, around, &mut wrap)
    }

    // ---- blocks

    fn on_block(
        &mut self,
        now: Time,
        from: NodeId,
        block: BlockId,
        fresh: bool,
        out: &mut Actions,
    ) {
        debug_assert!(block < self.have.len());
        let fresh = fresh && self.have.insert(block);
        let tree = self.share.tree(block);
        self.uplink.on_block(now, from, (tree, block), fresh, out);
        if !fresh {
            return;
        }
        self.downlink.skip(from, block);
        self.mend(|mender, around, wrap| mender.on_arrived(now, block, around, wrap, out));
        self.downlink
            .offer(tree, block, &mut self.mender, &self.have, out);
        if self.have.is_full() {
            self.uplink.finish(out);
        }
    }

    fn pump(&mut self, peer: NodeId, out: &mut Actions) {
        self.downlink.pump(peer, &mut self.mender, &self.have, out);
    }

    /// Lets go what is due.
    fn pace(&mut self, now: Time, out: &mut Actions) {
        let Some((pacer, released)) = &mut self.pacer else {
            return;
        };
        while let Some(tree) = pacer.take_due(now) {
            if !self.downlink.is_open(tree) {
                pacer.park(tree);
                continue;
            }
            while let Some(block) = pacer.next_block(tree) {
                debug_assert_eq!(self.share.tree(block), tree);
                let first = released.insert(block);
                debug_assert!(first, "{block} is let go once");
                if self.downlink.lacking(tree, block).next().is_some() {
                    self.downlink
                        .offer(tree, block, &mut self.mender, &self.have, out);
                    pacer.advance(tree, now);
                    break;
                }
                pacer.skip(tree);
            }
        }
        if let Some(at) = pacer.wake(now) {
            out.push(Action::SetTimer { timer: PACE, at });
        }
    }

    /// Sends to a child no faster than its trees bring. In bursts, a slow tree would take the room of
    /// a fast one, which has no rate to make up for that.
    fn shape(&mut self, child: NodeId, out: &mut Actions) {
        let at = child.index();
        if !self.up[at] {
            self.shaped[at] = false;
            return;
        }
        let planned = self.downlink.rate(child, &self.plan);
        let is_kept = self.keeps_rates || self.keeps_abroad && self.abroad[at];
        let keeps = is_kept && planned != Rate::ZERO;
        let was_kept = std::mem::replace(&mut self.shaped[at], keeps);
        if keeps || was_kept {
            let rate = match (keeps, self.keeps_rates) {
                (false, _) => Rate::UNLIMITED,
                (true, true) => planned,
                (true, false) => {
                    Rate::from_bytes_per_s(planned.bytes_per_s() * HASTE).unwrap_or(Rate::UNLIMITED)
                }
            };
            out.push(Action::SetRate { to: child, rate });
        }
    }

    /// The peer can take more than before.
    fn unpark(&mut self, now: Time, peer: NodeId, out: &mut Actions) {
        let Some((pacer, _)) = &mut self.pacer else {
            return;
        };
        let mut any = false;
        for tree in self.downlink.trees_with_room(peer) {
            any |= pacer.unpark(tree);
        }
        if any {
            self.pace(now, out);
        }
    }

    // ---- words

    fn on_message(&mut self, now: Time, from: NodeId, body: &[u8], out: &mut Actions) {
        let said = match postcard::from_bytes(body) {
            Ok(message) => self.hear(now, from, message, out),
            Err(_) => Err("sent an invalid message"),
        };
        if let Err(offence) = said {
            out.push(Action::Accuse {
                peer: from,
                offence,
            });
        }
    }

    fn hear(
        &mut self,
        now: Time,
        from: NodeId,
        message: Message,
        out: &mut Actions,
    ) -> Result<(), &'static str> {
        match message {
            Message::Attach { trees, have } => {
                let have = BlockSet::from_wire(&have, self.have.len())
                    .ok_or("named blocks the object lacks")?;
                if trees
                    .iter()
                    .any(|tree| *tree as usize >= self.plan.trees.len())
                {
                    return Err("named a tree the plan lacks");
                }
                let shown = self
                    .pacer
                    .as_ref()
                    .map_or(&self.have, |(_, released)| released);
                let (share, plan) = (&self.share, &self.plan);
                self.downlink
                    .attach(from, &trees, &have, shown, share, plan, self.block_bytes);
                self.shape(from, out);
                self.pump(from, out);
                self.unpark(now, from, out);
                self.tick_on(now, out);
            }
            Message::Detach { trees } => {
                self.downlink.detach(from, trees.as_deref(), &self.share);
                self.shape(from, out);
                self.unpark(now, from, out);
            }
            Message::Skip { block } => {
                if block >= self.have.len() {
                    return Err("named a block the object lacks");
                }
                self.downlink.skip(from, block);
            }
            Message::Alive { owed } => self.uplink.on_alive(now, from, owed),
            Message::Mend(message) => {
                self.mend(|mender, around, wrap| {
                    mender.on_message(now, from, message, around, wrap, out)
                })?;
                self.pump(from, out);
            }
        }
        Ok(())
    }

    fn on_down(&mut self, now: Time, peer: NodeId, out: &mut Actions) {
        self.up[peer.index()] = false;
        self.mender.on_down(peer);
        self.downlink.on_down(peer, &self.share);
        if !self.have.is_full() {
            let (uplink, plan, state) = self.split();
            uplink.on_down(now, peer, plan, state, out);
        }
        self.release_parked(now, out);
    }

    /// A node is not waited for any more: trees that waited for all may continue.
    fn release_parked(&mut self, now: Time, out: &mut Actions) {
        if let Some((pacer, _)) = &mut self.pacer {
            (0..self.plan.trees.len()).for_each(|tree| {
                pacer.unpark(tree);
            });
            self.pace(now, out);
        }
    }

    // ---- clocks

    fn tick_on(&mut self, now: Time, out: &mut Actions) {
        if self.ticking.is_none() {
            self.ticking = Some(now + TICK);
            out.push(Action::SetTimer {
                timer: TICKER,
                at: now + TICK,
            });
        }
    }

    fn on_tick(&mut self, now: Time, out: &mut Actions) {
        let due = self.ticking.take();
        for (peer, owed) in self.downlink.owed() {
            out.send(peer, &Message::Alive { owed });
        }
        if !self.have.is_full() {
            let late = due.map_or(Duration::ZERO, |due| now.since(due));
            if late > LATE {
                self.uplink.excuse(now, late);
            }
            let (uplink, plan, state) = self.split();
            uplink.on_tick(now, plan, state, out);
            let missed = self.missed(now);
            if missed.is_none() {
                self.mender.rest();
            }
            self.mend(|mender, around, wrap| mender.on_tick(now, missed, around, wrap, out));
        }
        if !self.have.is_full() || !self.downlink.is_idle() {
            self.tick_on(now, out);
        }
    }

    /// The blocks of trees that bring nothing any more.
    fn missed(&self, now: Time) -> Option<BlockSet> {
        let stalled = self.uplink.stalled(now)?;
        debug_assert_eq!(stalled.len(), self.plan.trees.len());
        debug_assert!(!self.have.is_full(), "nothing is missed");
        let mut missed = BlockSet::new(self.have.len());
        let mut next = self.have.next_absent(0);
        while let Some(block) = next {
            if stalled[self.share.tree(block)] {
                missed.insert(block);
            }
            next = self.have.next_absent(block + 1);
        }
        Some(missed)
    }
}

/// One tree in which the first source sends to all that are none.
fn flat(setup: &Setup) -> Plan {
    let nodes = || (0..).map(NodeId).zip(&setup.members);
    let sources = nodes().filter(|(_, member)| member.is_source());
    let mut roots: Vec<NodeId> = sources.map(|(node, _)| node).collect();
    let root = roots.first().copied().unwrap_or(NodeId(0));
    let others: Vec<NodeId> = nodes()
        .map(|(node, _)| node)
        .filter(|node| *node != root && !roots.contains(node))
        .collect();
    if roots.is_empty() {
        roots.push(root);
    }
    Plan {
        roots,
        trees: vec![Tree {
            rate: Rate::UNLIMITED,
            edges: others.into_iter().map(|node| (root, node)).collect(),
        }],
    }
}

impl Protocol for TreePush {
    fn is_depended_on_by(&self, peer: NodeId) -> bool {
        self.downlink.serves(peer)
    }

    fn handle(&mut self, now: Time, event: Event<'_>, out: &mut Actions) {
        match event {
            Event::Coded(_) | Event::Achieved { .. } | Event::Foreground(_) => {}
            Event::Start => self.start(now, out),
            Event::PeerUp(peer) => {
                self.up[peer.index()] = true;
                if !self.have.is_full() {
                    let (uplink, _, state) = self.split();
                    uplink.on_up(now, peer, state, out);
                    self.mend(|mender, _, wrap| mender.on_up(peer, wrap, out));
                }
            }
            Event::PeerDown(peer) => self.on_down(now, peer, out),
            Event::Left(node) => {
                self.gone[node.index()] = true;
                self.on_down(now, node, out);
            }
            Event::Message { from, body } => self.on_message(now, from, body, out),
            Event::Arrived { from, block, fresh } => self.on_block(now, from, block, fresh, out),
            Event::Rejected { from, .. } => self.gone[from.index()] = true,
            Event::Sent { to, .. } => {
                self.downlink.on_sent(to);
                self.pump(to, out);
                self.unpark(now, to, out);
            }
            Event::Timer(PACE) => self.pace(now, out),
            Event::Timer(_) => self.on_tick(now, out),
        }
        self.check(now);
    }
}
