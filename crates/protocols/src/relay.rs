//! Pushing along a tree that mends itself: what `direct` and `chain` have in common.
//!
//! Each node attaches to one parent, saying what it needs; the parent sends that, in order,
//! as it gets it, within a window of unacknowledged blocks. Parents tell their children every quarter of a
//! second that they are alive and whether there is more to come. A child that hears nothing, or gets
//! nothing although there is something to get, suspects its parent and tries the next candidate.
//!
//! A node needs what it wants, and what its children need: so a relay, which wants nothing, has a
//! parent as long as it has a child that lacks something.
//!
//! A parent with all the children its [`Shape`] allows passes a newcomer on to its child, so that
//! a late node walks down to a node with an idle outgoing rate.

mod check;
mod child;
#[cfg(test)]
mod tests;
mod watch;

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use outpour_core::blocks::WireBlocks;
use outpour_core::{BlockId, BlockSet, NodeId, Time};
use serde::{Deserialize, Serialize};

use child::{Child, complement};

use crate::promise::{Promise, Supply};
use crate::{Action, Actions, Event, Protocol, SEND_QUEUE_MAX, Setup, TimerId};

/// How often a parent says that it is alive, and all nodes look at their clocks.
const TICK: Duration = Duration::from_millis(250);
/// A node that wakes up this much too late did not run, as its disk hung perhaps, and blames no parent.
const LATE: Duration = Duration::from_millis(500);
/// A parent that says nothing for this long is bypassed ...
const SILENCE_MAX: Duration = Duration::from_secs(2);
/// ... and after this long if it never said anything: it answers an attachment at once.
const ANSWER_MAX: Duration = Duration::from_secs(1);
// A word that is late is not taken for silence.
const _: () = assert!(ANSWER_MAX.as_nanos() > 2 * TICK.as_nanos());
const _: () = assert!(ANSWER_MAX.as_nanos() < SILENCE_MAX.as_nanos());
/// How long a candidate has to come up before the next one is tried.
const CONNECT_MAX: Duration = Duration::from_secs(3);
/// A parent that waits itself is left alone longer: what holds it up may mend further up.
const WAIT_MAX: Duration = Duration::from_secs(30);
/// A parent that has more than we and gives nothing for the [first patience](crate::patience) is bypassed,
/// later if blocks are known to take longer. It doubles each time it was in vain, this often at most.
const DRIED_MAX: u32 = 8;
/// A parent that should come after us and has no way to a node with all blocks itself is left
/// after this long: in a ring of nodes attached to each other there is at least one such.
const STRAY_MAX: Duration = Duration::from_secs(2);
/// What a node without such a way says for its hops.
const STRAY: u32 = u32::MAX;
/// How long a parent that failed is not tried again while there are others.
const SUSPECT: Duration = Duration::from_secs(10);
/// Blocks in the driver's queue per child: enough to read ahead, few enough to change course.
const QUEUE: u32 = 8;
const _: () = assert!(QUEUE as usize <= SEND_QUEUE_MAX);
/// Bounds of the window of unacknowledged blocks; between them it is what the child took in
/// [`WINDOW_TIME`].
const WINDOW_MIN: u32 = 2 * QUEUE;
const WINDOW_MAX: u32 = 1 << 16;
const WINDOW_TIME: Duration = Duration::from_secs(1);
const _: () = assert!(WINDOW_MIN < WINDOW_MAX);
/// After this many redirections in a row a node insists on being taken.
const REDIRECTS_MAX: u32 = 1000;

/// A node that turns to another parent and back has a window of both on its way.
pub(crate) const PROMISE: Promise = Promise {
    supply: Supply::Relayed,
    ..Promise::per_turn(2 * WINDOW_MIN, 0)
};

const TICKER: TimerId = TimerId(0);

/// The tree as one node sees it.
#[derive(Clone, Debug)]
pub(crate) struct Shape {
    /// The nodes to attach to, best first.
    pub(crate) parents: Vec<NodeId>,
    /// How many of these come before us in the tree; the others are for when those are gone.
    pub(crate) before: usize,
    /// The nodes to call besides, because they will want to attach.
    pub(crate) neighbours: Vec<NodeId>,
    /// How many live, incomplete children a node serves at once.
    pub(crate) children_max: usize,
}

#[derive(Serialize, Deserialize)]
enum Message {
    /// Child to parent: send me all but the blocks in `spare`. `failed` is the parent it comes from,
    /// if that one failed; `insist` asks to be taken even by a parent that is busy.
    Attach {
        spare: WireBlocks,
        failed: Option<NodeId>,
        insist: bool,
    },
    /// Child to parent: from now on, all but these.
    Change { spare: WireBlocks },
    /// Child to parent: send me nothing more.
    Detach,
    /// Child to parent: blocks received since the attachment.
    Ack { received: u32 },
    /// Parent to child: alive, with or without more for the child, this many hops from a node that
    /// has all, and in need of blocks for others through these `above` it, itself among them.
    Alive {
        more: bool,
        hops: u32,
        above: WireBlocks,
    },
    /// Parent to child: not me, try this one.
    Redirect { to: NodeId },
}

/// The node this one receives from.
#[derive(Clone, Copy, Debug)]
enum Upstream {
    None,
    Connecting {
        peer: NodeId,
        since: Time,
    },
    Attached {
        peer: NodeId,
        heard: Time,
        progress: Time,
        /// It has answered.
        answered: bool,
        /// It has something for us.
        more: bool,
        hops: u32,
        received: u32,
        acked: u32,
    },
}

/// One node of a tree push.
#[derive(Debug)]
pub(crate) struct Relay {
    me: NodeId,
    shape: Shape,
    have: BlockSet,
    want: BlockSet,
    /// What is wanted here or needed by a child, and not here.
    lacking: BlockSet,
    /// The nodes through which blocks needed here for others come, this node among them. A node that wants
    /// everything needs no more for others.
    above: BlockSet,
    /// It is attached to itself, through others.
    in_ring: bool,
    /// When a parent was last looked for.
    sought: Time,
    up: Vec<bool>,
    gone: Vec<bool>,
    suspects: BTreeMap<NodeId, Time>,
    upstream: Upstream,
    /// The parent that failed last, told to the next one so that it does not send us back.
    failed: Option<NodeId>,
    redirects: u32,
    /// Seconds between blocks, smoothed; zero until two have come.
    block_gap: f64,
    /// How long a parent may give nothing before it is known what blocks take.
    patience: Duration,
    /// How many parents in a row gave nothing for too long.
    dried: u32,
    children: BTreeMap<NodeId, Child>,
    /// Blocks in the driver's queue to each member; a child that detaches still gets its own.
    queued: Vec<VecDeque<BlockId>>,
    attachments: u64,
    ticking: bool,
    /// When the next tick is due, or the last one was.
    due: Time,
}

impl Relay {
    pub(crate) fn new(setup: Setup, shape: Shape) -> Self {
        let members = setup.members.len();
        shape.check(setup.me, members);
        let mut lacking = setup.want.clone();
        lacking.subtract(&setup.have);
        Self {
            me: setup.me,
            shape,
            have: setup.have,
            want: setup.want,
            lacking,
            above: BlockSet::new(members as u32),
            in_ring: false,
            sought: Time::ZERO,
            up: vec![false; members],
            gone: vec![false; members],
            suspects: BTreeMap::new(),
            upstream: Upstream::None,
            failed: None,
            redirects: 0,
            block_gap: 0.0,
            patience: crate::patience::at_first(setup.block_bytes),
            dried: 0,
            children: BTreeMap::new(),
            queued: vec![VecDeque::new(); members],
            attachments: 0,
            ticking: false,
            due: Time::ZERO,
        }
    }

    fn is_member(&self, node: NodeId) -> bool {
        node != self.me && node.index() < self.up.len()
    }

    // ---- towards the parent

    /// Goes to the best candidate that is not under suspicion, or else to the one whose suspicion
    /// ends first.
    fn seek(&mut self, now: Time, out: &mut Actions) {
        self.upstream = Upstream::None;
        self.in_ring = false;
        if self.lacking.is_empty() {
            return;
        }
        self.sought = now;
        self.suspects.retain(|_, until| *until > now);
        let suspects = &self.suspects;
        let best = self
            .shape
            .parents
            .iter()
            .filter(|node| !self.gone[node.index()])
            .min_by_key(|node| suspects.get(node).copied().unwrap_or(Time::ZERO));
        if let Some(peer) = best.copied() {
            self.go_to(peer, now, out);
        }
    }

    /// Whether another node than this can be the parent.
    fn has_choice(&self, peer: NodeId) -> bool {
        let mut parents = self.shape.parents.iter();
        parents.any(|node| *node != peer && !self.gone[node.index()])
    }

    fn go_to(&mut self, peer: NodeId, now: Time, out: &mut Actions) {
        debug_assert!(self.is_member(peer));
        debug_assert!(!self.gone[peer.index()], "{peer} is gone");
        self.upstream = Upstream::Connecting { peer, since: now };
        if self.up[peer.index()] {
            self.attach(peer, now, out);
        } else {
            out.push(Action::Connect(peer));
        }
        self.tick_on(now, out);
    }

    fn attach(&mut self, peer: NodeId, now: Time, out: &mut Actions) {
        debug_assert!(!self.lacking.is_empty(), "there is nothing to attach for");
        debug_assert!(self.up[peer.index()]);
        let insist = self.redirects >= REDIRECTS_MAX.min(2 * self.up.len() as u32);
        let spare = complement(&self.lacking).to_wire();
        out.send(
            peer,
            &Message::Attach {
                spare,
                failed: self.failed,
                insist,
            },
        );
        self.rise(None);
        self.upstream = Upstream::Attached {
            peer,
            heard: now,
            progress: now,
            answered: false,
            more: false,
            hops: 0,
            received: 0,
            acked: 0,
        };
    }

    /// How many hops blocks come to get here, by what the parent says.
    ///
    /// Where nodes are attached to each other in a ring the number grows with every word; beyond
    /// the number of members there is no way, and [`STRAY`] it is.
    fn hops(&self) -> u32 {
        match self.upstream {
            _ if self.have.is_full() => 0,
            Upstream::Attached { hops, .. } if (hops as usize) < self.up.len() => hops + 1,
            _ => STRAY,
        }
    }

    /// The current parent will not do: suspect it and look for another.
    fn leave(&mut self, now: Time, out: &mut Actions) {
        let (Upstream::Connecting { peer, .. } | Upstream::Attached { peer, .. }) = self.upstream
        else {
            return;
        };
        if self.up[peer.index()] {
            out.send(peer, &Message::Detach);
        }
        self.suspects.insert(peer, now + SUSPECT);
        self.failed = Some(peer);
        self.redirects = 0;
        self.seek(now, out);
    }

    fn on_block(
        &mut self,
        now: Time,
        from: NodeId,
        block: BlockId,
        fresh: bool,
        out: &mut Actions,
    ) {
        if let Upstream::Attached {
            peer,
            heard,
            progress,
            answered,
            received,
            acked,
            ..
        } = &mut self.upstream
            && *peer == from
        {
            *answered = true;
            let gap = now.since(*progress).as_secs_f64();
            if *received > 0 {
                let weight = if self.block_gap == 0.0 { 1.0 } else { 0.1 };
                self.block_gap += weight * (gap - self.block_gap);
                self.dried = 0;
            }
            *heard = now;
            *progress = now;
            *received += 1;
            self.redirects = 0;
            self.failed = None;
            if *received - *acked >= QUEUE / 4 || self.lacking.count() <= 1 {
                *acked = *received;
                out.send(
                    from,
                    &Message::Ack {
                        received: *received,
                    },
                );
            }
        }
        if let Upstream::Attached { peer, .. } = self.upstream
            && peer != from
        {
            // While what another sent is stored, what this parent sends may wait for that.
            self.excuse(now);
        }
        if !fresh || !self.have.insert(block) {
            return;
        }
        self.lacking.remove(block);
        let children: Vec<NodeId> = self.children.keys().copied().collect();
        for node in children {
            if let Some(child) = self.children.get_mut(&node)
                && !child.covered.contains(block)
            {
                child.todo.insert(block);
                self.pump(node, out);
            }
        }
        self.detach_if_done(out);
    }

    /// Leaves the parent once nothing is needed of it.
    fn detach_if_done(&mut self, out: &mut Actions) {
        if self.lacking.is_empty() {
            if let Upstream::Attached { peer, .. } = self.upstream {
                out.send(peer, &Message::Detach);
            }
            self.upstream = Upstream::None;
            self.in_ring = false;
        }
    }

    /// Notes the nodes above this one, as its parent says.
    fn rise(&mut self, parents: Option<BlockSet>) {
        let none = || BlockSet::new(self.above.len());
        if self.want.is_full() {
            return;
        }
        let mut above = parents.unwrap_or_else(none);
        self.in_ring = above.contains(self.me.0);
        above.insert(self.me.0);
        self.above = above;
    }

    /// What children need has changed, and with it perhaps what this node needs for them.
    ///
    /// Nodes may be attached to each other in a ring for a while. Then each needs what it wants
    /// itself and no more: else each would need for the other what no node wants any more.
    fn reckon(&mut self, now: Time, out: &mut Actions) {
        if self.want.is_full() {
            return;
        }
        let mut lacking = self.want.clone();
        if !self.in_ring {
            for child in self.children.values() {
                lacking.union(&child.needs);
            }
        }
        lacking.subtract(&self.have);
        let changed = lacking != self.lacking;
        self.lacking = lacking;
        if self.lacking.is_empty() && self.in_ring {
            // What those behind it need comes from elsewhere, if it does.
            self.leave(now, out);
        }
        self.detach_if_done(out);
        match self.upstream {
            Upstream::Attached { peer, .. } if changed => {
                let spare = complement(&self.lacking).to_wire();
                out.send(peer, &Message::Change { spare });
            }
            // Not at every word, as the ways may be in vain.
            Upstream::None if now.since(self.sought) >= TICK => self.seek(now, out),
            _ => {}
        }
    }

    // ---- towards the children

    fn on_attach(
        &mut self,
        now: Time,
        from: NodeId,
        spare: &WireBlocks,
        failed: Option<NodeId>,
        insist: bool,
        out: &mut Actions,
    ) {
        let Some(mut covered) = self.read(from, spare, out) else {
            return;
        };
        let needs = complement(&covered);
        let busy = self
            .children
            .iter()
            .filter(|(node, child)| **node != from && child.is_live(now) && Some(**node) != failed);
        if busy.clone().count() >= self.shape.children_max && !insist {
            let newest = busy
                .max_by_key(|(_, child)| child.rank)
                .map(|(node, _)| *node);
            if let Some(to) = newest {
                out.send(from, &Message::Redirect { to });
                return;
            }
        }
        self.attachments += 1;
        // What an earlier attachment queued is on its way and need not be sent again.
        let queued = &self.queued[from.index()];
        queued.iter().for_each(|block| {
            covered.insert(*block);
        });
        let mut todo = self.have.clone();
        todo.subtract(&covered);
        let child = Child {
            todo,
            covered,
            needs,
            cursor: 0,
            sent: queued.len() as u32,
            acked: 0,
            window: WINDOW_MIN,
            heard: now,
            measured: (now, 0),
            rank: self.attachments,
            history: VecDeque::new(),
        };
        child.check_todo(&self.have);
        debug_assert!(self.children.values().all(|it| it.rank < child.rank));
        let more = child.has_more();
        self.children.insert(from, child);
        self.say_alive(from, more, out);
        self.pump(from, out);
        self.reckon(now, out);
        self.tick_on(now, out);
    }

    /// A child needs something else than it said before.
    fn on_change(&mut self, now: Time, from: NodeId, spare: &WireBlocks, out: &mut Actions) {
        let Some(spare) = self.read(from, spare, out) else {
            return;
        };
        let Some(child) = self.children.get_mut(&from) else {
            return;
        };
        let needs = complement(&spare);
        let mut fresh = needs.clone();
        fresh.subtract(&child.needs);
        for block in &self.queued[from.index()] {
            fresh.remove(*block);
        }
        child.covered.subtract(&fresh);
        child.covered.union(&spare);
        fresh.intersect(&self.have);
        child.todo.subtract(&spare);
        child.todo.union(&fresh);
        child.needs = needs;
        child.check_todo(&self.have);
        self.pump(from, out);
        self.reckon(now, out);
        self.tick_on(now, out);
    }

    /// The blocks that a child does not need; it is accused if there are no such.
    fn read(&self, child: NodeId, spare: &WireBlocks, out: &mut Actions) -> Option<BlockSet> {
        let read = BlockSet::from_wire(spare, self.have.len());
        if read.is_none() {
            let offence = "named blocks the object lacks";
            out.push(Action::Accuse {
                peer: child,
                offence,
            });
        }
        read
    }

    fn say_alive(&self, child: NodeId, more: bool, out: &mut Actions) {
        let (hops, above) = (self.hops(), self.above.to_wire());
        out.send(child, &Message::Alive { more, hops, above });
    }

    /// Keeps the driver's queue for a child filled within its window.
    fn pump(&mut self, node: NodeId, out: &mut Actions) {
        let Some(child) = self.children.get_mut(&node) else {
            return;
        };
        let queued = &mut self.queued[node.index()];
        child.check();
        debug_assert!(child.todo.count() <= self.have.count());
        while queued.len() < QUEUE as usize && child.sent - child.acked < child.window {
            let next = child
                .todo
                .next_present(child.cursor)
                .or_else(|| child.todo.next_present(0));
            let Some(block) = next else { return };
            debug_assert!(self.have.contains(block), "block {block} is not here");
            child.todo.remove(block);
            let fresh = child.covered.insert(block);
            debug_assert!(fresh, "block {block} is sent twice");
            child.cursor = block + 1;
            queued.push_back(block);
            child.sent += 1;
            out.push(Action::SendBlock { to: node, block });
        }
        debug_assert!(queued.len() <= QUEUE as usize);
    }

    fn on_ack(&mut self, now: Time, from: NodeId, received: u32, out: &mut Actions) {
        let Some(child) = self.children.get_mut(&from) else {
            return;
        };
        child.heard = now;
        // Blocks of an earlier attachment may be counted too; more than was sent it cannot have.
        let received = received.min(child.sent);
        if received <= child.acked {
            return;
        }
        child.acked = received;
        let (since, then) = child.measured;
        let took = now.since(since);
        if took >= WINDOW_TIME / 8 || received - then >= child.window {
            let rate = f64::from(received - then) / took.as_secs_f64().max(1e-6);
            let fit = (rate * WINDOW_TIME.as_secs_f64()) as u32;
            child.window = fit.clamp(WINDOW_MIN, WINDOW_MAX);
            child.measured = (now, received);
        }
        self.pump(from, out);
    }

    fn drop_child(&mut self, now: Time, node: NodeId, out: &mut Actions) {
        if self.children.remove(&node).is_some() {
            self.reckon(now, out);
        }
    }

    // ---- clocks and messages

    fn tick_on(&mut self, now: Time, out: &mut Actions) {
        if !self.ticking {
            self.ticking = true;
            self.due = now + TICK;
            out.push(Action::SetTimer {
                timer: TICKER,
                at: self.due,
            });
        }
    }

    fn on_tick(&mut self, now: Time, out: &mut Actions) {
        self.ticking = false;
        if now.since(self.due) > LATE {
            self.excuse(now);
        }
        self.children.retain(|_, child| !child.is_served());
        self.reckon(now, out);
        self.watch_children(now, out);
        if !self.lacking.is_empty() {
            if let Upstream::Attached {
                peer,
                received,
                acked,
                ..
            } = &mut self.upstream
            {
                *acked = *received;
                out.send(
                    *peer,
                    &Message::Ack {
                        received: *received,
                    },
                );
            }
            self.watch_parent(now, out);
        }
        if !self.lacking.is_empty() || !self.children.is_empty() {
            self.tick_on(now, out);
        }
    }

    fn on_message(&mut self, now: Time, from: NodeId, body: &[u8], out: &mut Actions) {
        let Ok(message) = postcard::from_bytes(body) else {
            out.push(Action::Accuse {
                peer: from,
                offence: "sent an invalid message",
            });
            return;
        };
        match message {
            Message::Attach {
                spare,
                failed,
                insist,
            } => {
                self.on_attach(now, from, &spare, failed, insist, out);
            }
            Message::Change { spare } => self.on_change(now, from, &spare, out),
            Message::Detach => self.drop_child(now, from, out),
            Message::Ack { received } => self.on_ack(now, from, received, out),
            Message::Alive { more, hops, above } => {
                self.on_alive(now, from, (more, hops), &above, out);
            }
            Message::Redirect { to } => {
                if matches!(self.upstream, Upstream::Attached { peer, .. } if peer == from) {
                    self.on_redirect(now, from, to, out);
                }
            }
        }
    }

    fn on_alive(
        &mut self,
        now: Time,
        from: NodeId,
        (there_is_more, their_hops): (bool, u32),
        above: &WireBlocks,
        out: &mut Actions,
    ) {
        let Upstream::Attached {
            peer,
            heard,
            answered,
            more,
            hops,
            ..
        } = &mut self.upstream
        else {
            return;
        };
        if *peer != from {
            return;
        }
        (*heard, *answered) = (now, true);
        (*more, *hops) = (there_is_more, their_hops);
        let Some(above) = BlockSet::from_wire(above, self.up.len() as u32) else {
            let offence = "named nodes that are no members";
            out.push(Action::Accuse {
                peer: from,
                offence,
            });
            return;
        };
        let was_in_ring = self.in_ring;
        self.rise(Some(above));
        if self.in_ring != was_in_ring {
            self.reckon(now, out);
        }
    }

    fn on_redirect(&mut self, now: Time, from: NodeId, to: NodeId, out: &mut Actions) {
        let usable = self.is_member(to) && !self.gone[to.index()] && to != from;
        if !usable || self.suspects.get(&to).is_some_and(|until| *until > now) {
            // It does not know yet what we know; ask again and insist.
            self.redirects = u32::MAX;
            self.attach(from, now, out);
            return;
        }
        out.send(from, &Message::Detach);
        self.redirects = self.redirects.saturating_add(1);
        self.go_to(to, now, out);
    }

    fn on_down(&mut self, now: Time, peer: NodeId, out: &mut Actions) {
        self.up[peer.index()] = false;
        self.queued[peer.index()].clear();
        let was_child = self.children.remove(&peer).is_some();
        if matches!(self.upstream, Upstream::Attached { peer: p, .. } if p == peer) {
            self.leave(now, out);
        }
        if was_child {
            self.reckon(now, out);
        }
    }
}

impl Protocol for Relay {
    fn is_depended_on_by(&self, peer: NodeId) -> bool {
        self.children.contains_key(&peer)
    }

    fn handle(&mut self, now: Time, event: Event<'_>, out: &mut Actions) {
        match event {
            Event::Coded(_) | Event::Achieved { .. } | Event::Foreground(_) => {}
            Event::Start => {
                for node in &self.shape.neighbours {
                    out.push(Action::Connect(*node));
                }
                self.seek(now, out);
            }
            Event::PeerUp(peer) => {
                self.up[peer.index()] = true;
                if matches!(self.upstream, Upstream::Connecting { peer: p, .. } if p == peer) {
                    self.attach(peer, now, out);
                }
            }
            Event::PeerDown(peer) => self.on_down(now, peer, out),
            Event::Left(node) => {
                self.gone[node.index()] = true;
                self.on_down(now, node, out);
                if matches!(self.upstream, Upstream::Connecting { peer, .. } if peer == node) {
                    self.leave(now, out);
                }
            }
            Event::Message { from, body } => self.on_message(now, from, body, out),
            Event::Arrived { from, block, fresh } => self.on_block(now, from, block, fresh, out),
            Event::Rejected { from, .. } => {
                self.gone[from.index()] = true;
            }
            Event::Sent { to, .. } => {
                let sent = self.queued[to.index()].pop_front();
                debug_assert!(
                    sent.is_some() || self.gone[to.index()],
                    "{to} was sent what was not queued"
                );
                self.pump(to, out);
            }
            Event::Timer(_) => self.on_tick(now, out),
        }
        self.check(now);
    }
}
