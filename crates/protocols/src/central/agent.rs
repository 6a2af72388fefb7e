//! What a node does as it is told: its lanes, and its reports.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::Range;
use std::time::Duration;

use outpour_controller::Change;
use outpour_core::{BlockId, BlockSet, NodeId, Rate, Time};

use super::{Achieved, Cause, Message, Peer, Report};
use crate::peers::Peers;
use crate::{Action, Actions, Setup};

/// Blocks with the driver for one node: at least this many, so that it is never idle; as many as
/// leave within [`COVER`], and not more, for what is with the driver is sent whatever is ordered.
const WINDOW_MIN: usize = 2;
pub(super) const WINDOW_MAX: usize = 16;
const COVER: Duration = Duration::from_millis(100);
/// No lane is so slow that what is with the driver takes longer than this: it cannot be taken back, and
/// would otherwise be on its way for ever.
const BLOCK_WITHIN: Duration = Duration::from_secs(4);
/// How much faster a lane is that should have sent all by now.
const HASTE: f64 = 4.0;
/// What is new is reported together, after this long.
const REPORT_AFTER: Duration = Duration::from_millis(50);
/// What is achieved is told about twice a second; over a shorter time it says little.
const MEASURED_MIN: Duration = Duration::from_millis(300);
/// A node that does not come up within this time cannot be reached.
const REACH_WITHIN: Duration = Duration::from_secs(3);

/// What one node is sent.
#[derive(Debug)]
struct Lane {
    /// What is left, in order; blocks that are not here yet are passed over until they are.
    list: VecDeque<Range<BlockId>>,
    rate: Rate,
    /// How fast blocks leave at most.
    most: Rate,
    /// Whether there was a moment since it was last said what is achieved when nothing was on its way.
    idle: bool,
    /// Bytes that were to leave from then until the time of the second.
    owed: f64,
    counted: Time,
    /// When it was last said what is achieved, and whether anything was sent since.
    measured: Time,
    sent: bool,
    /// Since when the node is waited for.
    missed: Option<Time>,
}

/// See the module.
#[derive(Debug)]
pub(super) struct Agent {
    leader: Option<(NodeId, u64)>,
    /// Whether it has not said yet that it leads, and was reported to all the same.
    presumed: bool,
    /// Since when there is no leader that can be reached and has given an order.
    pub(super) lost: Option<Time>,
    /// When an order came last.
    heard: Time,
    /// The number of the last report to this leader.
    seq: u64,
    /// Whether the next report has to list everything.
    whole: bool,
    gained: Vec<BlockId>,
    achieved: BTreeMap<NodeId, Achieved>,
    severed: BTreeSet<NodeId>,
    reporting: bool,
    lanes: BTreeMap<NodeId, Lane>,
    members: usize,
    /// Bytes per second at which a block takes [`BLOCK_WITHIN`].
    pub(super) least: f64,
    /// Whether other traffic needs the room that orders leave, so that no lane is faster than its order allows.
    exact: bool,
    /// What each member is sent at most without an order; nothing if that has no limit.
    pub(super) shares: Vec<Rate>,
    /// The peers without a lane that are sent something all the same, and no more than that.
    pub(super) kept: BTreeSet<NodeId>,
}

/// Whether changes can be carried out at node `me`.
pub(super) fn are_sound(changes: &[Change], me: NodeId, members: u32, blocks: u32) -> bool {
    let within = |run: &Range<BlockId>| run.start <= run.end && run.end <= blocks;
    changes.iter().all(|change| {
        let to = change.to();
        let runs = match change {
            Change::Send { drop, add, .. } => drop.iter().chain(add).all(within),
            Change::End { .. } => true,
        };
        to != me && to.0 < members && runs
    })
}

impl Agent {
    pub(super) fn new(members: usize, block_bytes: u32, exact: bool) -> Self {
        let least = f64::from(block_bytes) / BLOCK_WITHIN.as_secs_f64();
        Self {
            leader: None,
            presumed: false,
            lost: None,
            heard: Time::ZERO,
            seq: 0,
            whole: true,
            gained: Vec::new(),
            achieved: BTreeMap::new(),
            severed: BTreeSet::new(),
            reporting: false,
            lanes: BTreeMap::new(),
            members,
            least,
            exact,
            shares: Vec::new(),
            kept: BTreeSet::new(),
        }
    }

    /// What holds between any two events.
    pub(super) fn check(&self, have: &BlockSet, setup: &Setup) {
        debug_assert!(!self.lanes.contains_key(&setup.me), "a lane to itself");
        debug_assert!(self.leader.is_some() || self.lost.is_some() || self.seq == 0);
        debug_assert!(self.gained.iter().all(|block| have.contains(*block)));
        debug_assert!(self.lanes.len() < self.members.max(1));
        let full = |run: &Range<BlockId>| !run.is_empty() && run.end <= have.len();
        debug_assert!(self.lanes.values().all(|lane| lane.list.iter().all(full)));
    }

    // ---- leaders

    pub(super) fn leader(&self) -> Option<NodeId> {
        self.leader.map(|(node, _)| node)
    }

    pub(super) fn obeys(&self, from: NodeId, epoch: u64) -> bool {
        self.leader == Some((from, epoch))
    }

    /// Listens to a leader from now on, and reports everything to it.
    pub(super) fn obey(&mut self, leader: NodeId, epoch: u64) {
        self.leader = Some((leader, epoch));
        self.presumed = false;
        self.seq = 0;
        self.whole = true;
    }

    /// As [`Self::obey`], before the leader has said that it leads.
    pub(super) fn presume(&mut self, leader: NodeId, epoch: u64) {
        debug_assert!(self.leader.is_none(), "there is one that said so");
        self.obey(leader, epoch);
        self.presumed = true;
    }

    /// A node says that it leads; whether that was presumed, and everything was reported to it.
    pub(super) fn was_presumed(&mut self, leader: NodeId, epoch: u64) -> bool {
        self.obeys(leader, epoch) && std::mem::take(&mut self.presumed)
    }

    /// The leader has given an order.
    pub(super) const fn hear(&mut self, now: Time) {
        self.heard = now;
        self.lost = None;
    }

    /// Takes a leader for lost that has not given an order for so long. It may only be slow: if it
    /// gives one, all is well again.
    pub(super) fn watch(&mut self, now: Time, patience: Duration) {
        if self.lost.is_none() && now.since(self.heard) >= patience {
            self.lost = Some(self.heard);
        }
    }

    /// The leader leads no more.
    pub(super) fn abandon(&mut self, now: Time) {
        self.leader = None;
        self.presumed = false;
        self.lost = self.lost.or(Some(now));
    }

    /// Tells one that leads in an old epoch which is the last.
    pub(super) fn tell_epoch(node: NodeId, epoch: u64, out: &mut Actions) {
        let report = Report {
            epoch,
            seq: 0,
            whole: false,
            gained: BlockSet::new(0).to_wire(),
            want: None,
            achieved: Vec::new(),
            severed: Vec::new(),
        };
        out.send(node, &Message::Report(report));
    }

    // ---- peers

    /// A peer is up: its lane's rate has to be set anew.
    pub(super) fn came(&mut self, node: NodeId, out: &mut Actions) {
        self.severed.remove(&node);
        if let Some(lane) = self.lanes.get_mut(&node) {
            lane.missed = None;
            lane.idle = true;
            let (to, rate) = (node, lane.most);
            out.push(Action::SetRate { to, rate });
        }
    }

    /// A peer is down.
    pub(super) fn went(&mut self, now: Time, node: NodeId) {
        if self.leader() == Some(node) {
            self.abandon(now);
        }
        self.achieved.remove(&node);
        self.kept.remove(&node);
        if let Some(lane) = self.lanes.get_mut(&node) {
            lane.missed = Some(now);
            // Nothing more will be measured.
            lane.sent = false;
        }
    }

    /// A node is out for good here, though perhaps not elsewhere: gives its lane up, if it has one.
    pub(super) fn give_up(&mut self, node: NodeId) {
        if self.lanes.remove(&node).is_some() {
            self.severed.insert(node);
        }
    }

    /// A node is wanted that is not up.
    pub(super) fn miss(&mut self, now: Time, node: NodeId) {
        if let Some(lane) = self.lanes.get_mut(&node) {
            lane.missed.get_or_insert(now);
        }
    }

    /// Gives up lanes to nodes that do not come up; whether there were any.
    pub(super) fn unreachable(&mut self, now: Time, is_up: impl Fn(NodeId) -> bool) -> bool {
        let missed = |(node, lane): (&NodeId, &Lane)| {
            let long = lane
                .missed
                .is_some_and(|since| now.since(since) >= REACH_WITHIN);
            (long && !is_up(*node)).then_some(*node)
        };
        let nodes: Vec<NodeId> = self.lanes.iter().filter_map(missed).collect();
        for node in &nodes {
            self.lanes.remove(node);
            self.severed.insert(*node);
        }
        !nodes.is_empty()
    }

    // ---- lanes

    pub(super) fn has_lanes(&self) -> bool {
        !self.lanes.is_empty()
    }

    pub(super) fn has_lane(&self, node: NodeId) -> bool {
        self.lanes.contains_key(&node)
    }

    /// The nodes in whose lanes a block is.
    pub(super) fn waiting_for(&self, block: BlockId) -> Vec<NodeId> {
        let waits = |lane: &Lane| lane.list.iter().any(|run| run.contains(&block));
        let lanes = self.lanes.iter().filter(|(_, lane)| waits(lane));
        lanes.map(|(node, _)| *node).collect()
    }

    /// Changes lanes; those that have something new.
    pub(super) fn order(
        &mut self,
        now: Time,
        whole: bool,
        changes: Vec<Change>,
        peers: &Peers<Peer>,
        out: &mut Actions,
    ) -> Vec<NodeId> {
        let before = match whole {
            true => std::mem::take(&mut self.lanes),
            false => BTreeMap::new(),
        };
        let mut touched = Vec::new();
        for change in changes {
            let to = change.to();
            match change {
                Change::Send {
                    rate,
                    most,
                    drop,
                    add,
                    ..
                } => {
                    self.kept.remove(&to);
                    let lane = self.lanes.entry(to).or_insert_with(|| Lane::new(now));
                    drop.iter().for_each(|run| strike(&mut lane.list, run));
                    lane.list
                        .extend(add.into_iter().filter(|run| !run.is_empty()));
                    let queued = peers.get(to).map_or(0, Peer::ordered).max(1);
                    let least = Rate::from_bytes_per_s(self.least * queued as f64);
                    let least = least.unwrap_or(Rate::UNLIMITED);
                    lane.count(now);
                    lane.rate = rate.max(least);
                    let rate = most.max(lane.rate);
                    let changed = std::mem::replace(&mut lane.most, rate) != rate;
                    if (changed || whole) && peers.contains(to) {
                        out.push(Action::SetRate { to, rate });
                    }
                    touched.push(to);
                }
                // It goes on until it is dry, and faster, as what it has is late.
                Change::End { done: true, .. } => {
                    if let Some(lane) = self.lanes.get_mut(&to) {
                        lane.count(now);
                        let haste = if self.exact { 1.0 } else { HASTE };
                        let rate = Rate::from_bytes_per_s(lane.rate.bytes_per_s() * haste);
                        lane.rate = rate.unwrap_or(Rate::UNLIMITED);
                        let rate = Rate::from_bytes_per_s(lane.most.bytes_per_s() * haste);
                        let rate = rate.unwrap_or(Rate::UNLIMITED);
                        lane.most = rate;
                        if peers.contains(to) {
                            out.push(Action::SetRate { to, rate });
                        }
                    }
                }
                Change::End { .. } => {
                    if self.lanes.remove(&to).is_some() {
                        self.is_over(to, peers, out);
                    }
                }
            }
        }
        for to in before.into_keys() {
            if !self.lanes.contains_key(&to) {
                self.is_over(to, peers, out);
            }
        }
        touched
    }

    /// Takes down lanes that have nothing to send any more.
    pub(super) fn take_down(&mut self, peers: &Peers<Peer>, out: &mut Actions) {
        let over = |(node, lane): (&NodeId, &Lane)| {
            let sends = peers.get(*node).is_some_and(|peer| peer.ordered() > 0);
            // What it achieved is to be said first, or lanes that are through early say nothing.
            (lane.list.is_empty() && !sends && !lane.sent).then_some(*node)
        };
        let over: Vec<NodeId> = self.lanes.iter().filter_map(over).collect();
        for to in over {
            self.lanes.remove(&to);
            self.is_over(to, peers, out);
        }
    }

    /// Hands the driver what is next for a peer that is up.
    pub(super) fn pump(
        &mut self,
        node: NodeId,
        peer: &mut Peer,
        have: &BlockSet,
        block_bytes: u32,
        out: &mut Actions,
    ) {
        let Some(lane) = self.lanes.get_mut(&node) else {
            return;
        };
        let covered = lane.rate.bytes_per_s() * COVER.as_secs_f64() / f64::from(block_bytes.max(1));
        // Saturates where there is no limit.
        let window = (covered.ceil() as usize).clamp(WINDOW_MIN, WINDOW_MAX);
        lane.idle |= peer.ordered() == 0;
        while peer.ordered() < window && peer.has_room() {
            let Some(block) = lane.next(have, &peer.given) else {
                return;
            };
            debug_assert!(have.contains(block) && !peer.given.contains(block));
            lane.sent = true;
            peer.given.insert(block);
            peer.queued.push_back((block, Cause::Order));
            out.push(Action::SendBlock { to: node, block });
        }
    }

    // ---- reports

    pub(super) fn gained(&mut self, block: BlockId) {
        if !self.whole {
            self.gained.push(block);
        }
    }

    /// What a peer achieves.
    pub(super) fn achieved(&mut self, now: Time, to: NodeId, rate: Rate, peer: Option<&Peer>) {
        let Some(lane) = self.lanes.get_mut(&to) else {
            return;
        };
        lane.idle |= peer.is_none_or(|peer| peer.ordered() == 0);
        lane.count(now);
        let seconds = now
            .since(std::mem::replace(&mut lane.measured, now))
            .as_secs_f64();
        let owed = std::mem::take(&mut lane.owed);
        let idle = std::mem::take(&mut lane.idle);
        lane.sent = peer.is_some_and(|peer| peer.ordered() > 0);
        let nothing = rate.is_zero() && idle;
        if !nothing && seconds >= MEASURED_MIN.as_secs_f64() {
            let ordered = Rate::from_bytes_per_s(owed / seconds);
            let ordered = ordered.filter(|_| !idle);
            self.achieved.insert(to, Achieved { to, rate, ordered });
        }
    }

    /// When to report, if something is new and no report is due yet.
    pub(super) fn report_at(&mut self, now: Time) -> Option<Time> {
        let news = self.whole
            || !self.gained.is_empty()
            || !self.achieved.is_empty()
            || !self.severed.is_empty();
        if !news || self.reporting {
            return None;
        }
        self.reporting = true;
        Some(now + REPORT_AFTER)
    }

    pub(super) const fn report_due(&mut self) {
        self.reporting = false;
    }

    /// What the leader is to know, of a node that has so much and wants so much.
    pub(super) fn report(&mut self, have: &BlockSet, want: &BlockSet) -> Report {
        let (_, epoch) = self.leader.unwrap_or((NodeId(0), 0));
        self.seq += 1;
        let whole = std::mem::take(&mut self.whole);
        let gained = std::mem::take(&mut self.gained);
        let gained = if whole {
            have.clone()
        } else {
            let mut set = BlockSet::new(have.len());
            gained.into_iter().for_each(|block| {
                set.insert(block);
            });
            set
        };
        Report {
            epoch,
            seq: self.seq,
            whole,
            gained: gained.to_wire(),
            want: (whole && !want.is_full()).then(|| want.to_wire()),
            achieved: std::mem::take(&mut self.achieved).into_values().collect(),
            severed: std::mem::take(&mut self.severed).into_iter().collect(),
        }
    }
}

impl Lane {
    const fn new(now: Time) -> Self {
        Self {
            list: VecDeque::new(),
            rate: Rate::ZERO,
            most: Rate::ZERO,
            // The second in which it begins does not count.
            idle: true,
            owed: 0.0,
            counted: now,
            measured: now,
            sent: false,
            missed: None,
        }
    }

    /// Counts what was to leave until now.
    fn count(&mut self, now: Time) {
        let seconds = now
            .since(std::mem::replace(&mut self.counted, now))
            .as_secs_f64();
        self.owed += self.rate.bytes_per_s() * seconds;
    }

    /// Takes the first block off the list that is here, and those that were given.
    fn next(&mut self, have: &BlockSet, given: &BlockSet) -> Option<BlockId> {
        let mut at = 0;
        while let Some(run) = self.list.get(at).cloned() {
            let here = have.next_present(run.start);
            let Some(block) = here.filter(|block| *block < run.end) else {
                at += 1;
                continue;
            };
            // What is not here keeps its place.
            let parts = [run.start..block, block + 1..run.end];
            let parts = parts.into_iter().filter(|part| !part.is_empty());
            self.list.remove(at);
            parts.rev().for_each(|part| self.list.insert(at, part));
            if !given.contains(block) {
                return Some(block);
            }
        }
        None
    }
}

/// Takes blocks off a list.
fn strike(list: &mut VecDeque<Range<BlockId>>, run: &Range<BlockId>) {
    let parts = list.iter().flat_map(|other| {
        let before = other.start..other.end.min(run.start);
        let after = other.start.max(run.end)..other.end;
        [before, after].into_iter().filter(|part| !part.is_empty())
    });
    *list = parts.collect();
}

#[cfg(test)]
mod tests {
    #![allow(clippy::single_range_in_vec_init)]

    use outpour_controller::JobId;

    use super::*;

    const TO: NodeId = NodeId(1);

    fn send(rate: f64, add: Range<BlockId>) -> Vec<Change> {
        vec![Change::Send {
            job: JobId(0),
            to: TO,
            rate: Rate::from_bytes_per_s(rate).unwrap_or_default(),
            most: Rate::from_bytes_per_s(2.0 * rate).unwrap_or_default(),
            drop: Vec::new(),
            add: vec![add],
        }]
    }

    #[test]
    fn a_lane_that_is_through_early_says_what_it_achieved() {
        let at = |ms: u64| Time(ms * 1_000_000);
        let (have, mut out) = (BlockSet::full(8), Actions::default());
        let mut agent = Agent::new(2, 1000, false);
        let mut peers = Peers::default();
        peers.insert(TO, Peer::new(8));
        let touched = agent.order(at(0), false, send(4000.0, 0..2), &peers, &mut out);
        assert_eq!(touched, [TO]);
        let peer = peers.get_mut(TO).expect("it is there");
        agent.pump(TO, peer, &have, 1000, &mut out);
        assert_eq!(peer.ordered(), 2, "both fit into the window");
        peer.queued.clear();
        agent.pump(TO, peer, &have, 1000, &mut out);
        agent.take_down(&peers, &mut out);
        assert!(agent.has_lane(TO), "it has still something to say");
        let rate = Rate::from_bytes_per_s(4000.0).unwrap_or_default();
        agent.achieved(at(500), TO, rate, peers.get(TO));
        let said = agent.achieved.get(&TO).expect("it is said");
        assert_eq!((said.rate, said.ordered), (rate, None), "it ran dry");
        agent.take_down(&peers, &mut out);
        assert!(!agent.has_lane(TO));
        // One whose node is down will never be measured.
        agent.order(at(600), false, send(4000.0, 2..4), &peers, &mut out);
        let peer = peers.get_mut(TO).expect("it is there");
        agent.pump(TO, peer, &have, 1000, &mut out);
        peers.remove(TO);
        agent.went(at(700), TO);
        agent.take_down(&peers, &mut out);
        assert!(!agent.has_lane(TO), "nothing is left to send");
    }
}
