//! What a node does when peers are lost or nothing comes any more.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use outpour_core::{BlockSet, NodeId, Time};
use rand_core::RngCore;

use super::{Kind, Message, Peer, Team};
use crate::{Action, Actions};

/// A node that waits for no block and got none for so long does something about it.
const PATIENCE: Duration = Duration::from_secs(3);
/// Patience grows each time nothing came of it, up to this.
const PATIENCE_MAX: Duration = Duration::from_secs(12);
/// A peer that was asked for blocks and sends none is hung up on, if these are to be had elsewhere, after so
/// many times what peers take for one, or after the [first patience](crate::patience) if that is longer; it
/// gets twice as long each time, for it may just be slow.
const LATE_WAITS: f64 = 8.0;
/// A peer in another cluster that delivered before has at least so long, whatever others take: the link to it may
/// have become slow, and what is on its way would be lost.
const LATE_ABROAD: Duration = Duration::from_secs(10);
/// A mate that is up says what it desires within this time.
const SPEAKS_WITHIN: Duration = Duration::from_millis(1500);
const LATE_AFTER_MAX: Duration = Duration::from_secs(160);
/// So many times as long it is asked for nothing then.
const SHUNNED_FOR: u32 = 3;
/// How many more nodes are then called, at home and abroad.
const CALLS_HOME: usize = 1;
const CALLS_ABROAD: usize = 3;

/// Where a node is with its troubles.
#[derive(Debug)]
pub(super) struct Repair {
    /// When the last fresh block came, or when something was last done about it.
    since: Time,
    patience: Duration,
    /// The node that was told of the last alarm, or called for it, and was not heard since.
    called: BTreeSet<NodeId>,
    /// Nodes that were not heard after an alarm.
    deaf: BTreeSet<NodeId>,
    /// Peers that held back what they were asked for.
    late: BTreeMap<NodeId, Late>,
    /// How long a peer has for a block before it is known what blocks take.
    at_first: Duration,
    /// Seconds in which a peer that owes blocks delivers one, smoothed; zero until known: abroad, and at home.
    wait: [f64; 2],
    /// Mates that held back what they were asked for, or never spoke: what they say that they have or do
    /// counts for nothing until they deliver.
    distrusted: BTreeSet<NodeId>,
    /// Somebody has to see to the work of one of them. A moment later, when what it was asked for is open again.
    to_alarm: bool,
}

/// A peer that held back what it was asked for.
#[derive(Debug)]
struct Late {
    /// How long it has the next time.
    patience: Duration,
    /// Until when it is asked for nothing.
    until: Time,
}

impl Repair {
    pub(super) fn new(block_bytes: u32) -> Self {
        Self {
            since: Time::ZERO,
            patience: PATIENCE,
            called: BTreeSet::new(),
            deaf: BTreeSet::new(),
            late: BTreeMap::new(),
            at_first: crate::patience::at_first(block_bytes),
            wait: [0.0; 2],
            distrusted: BTreeSet::new(),
            to_alarm: false,
        }
    }

    /// What a mate says counts for nothing.
    pub(super) fn distrusts(&self, node: NodeId) -> bool {
        self.distrusted.contains(&node)
    }

    /// It has delivered.
    pub(super) fn redeem(&mut self, node: NodeId) {
        self.distrusted.remove(&node);
    }

    /// A peer that owed blocks delivered one after this long.
    pub(super) fn note_wait(&mut self, local: bool, wait: Duration) {
        let usual = &mut self.wait[usize::from(local)];
        let weight = if *usual == 0.0 { 1.0 } else { 0.1 };
        *usual += weight * (wait.as_secs_f64() - *usual);
    }

    /// How long a peer has for what it owes.
    fn patience_with(&self, node: NodeId, peer: &Peer) -> Duration {
        let usual = Duration::from_secs_f64(LATE_WAITS * self.wait[usize::from(peer.local)]);
        let least = match !peer.local && peer.delivered {
            true => LATE_ABROAD,
            false => self.at_first,
        };
        let patience = least.max(usual);
        let late = self.late.get(&node);
        late.map_or(patience, |late| late.patience.max(patience))
    }

    /// All is well.
    pub(super) const fn restart(&mut self, now: Time) {
        self.since = now;
        self.patience = PATIENCE;
    }

    /// Whether a peer is asked for nothing, as of the last look at the time.
    pub(super) fn shuns(&self, node: NodeId) -> bool {
        let late = self.late.get(&node);
        late.is_some_and(|late| late.until > Time::ZERO)
    }

    /// Whether there are peers that may be asked again: while others deliver there is no need.
    fn pardon(&mut self, now: Time) -> bool {
        let mut any = false;
        if now.since(self.since) < PATIENCE {
            return any;
        }
        for late in self.late.values_mut() {
            if late.until > Time::ZERO && late.until <= now {
                (late.until, any) = (Time::ZERO, true);
            }
        }
        any
    }

    /// A node of the cluster shows that it is there.
    pub(super) fn heard(&mut self, node: NodeId) {
        self.called.remove(&node);
        self.deaf.remove(&node);
    }
}

impl Team {
    /// What holds of troubles after every event.
    pub(super) fn check_repair(&self, now: Time) {
        let repair = &self.repair;
        debug_assert!(repair.since <= now);
        debug_assert!(repair.patience >= PATIENCE);
        debug_assert!(repair.patience <= PATIENCE_MAX);
        debug_assert!(repair.called.is_disjoint(&repair.deaf));
        debug_assert!(!repair.called.contains(&self.me));
        debug_assert!(!repair.deaf.contains(&self.me));
    }

    /// Calls another node in place of one that is lost.
    pub(super) fn replace(&mut self, lost: NodeId, out: &mut Actions) {
        debug_assert!(self.gone[lost.index()]);
        let cluster = self.clusters.cluster(lost);
        let nodes = &self.clusters.list[cluster];
        let rank = self.clusters.rank(lost);
        // The next in rank, so that peers that lost the same node agree on another.
        let next = (1..nodes.len())
            .map(|step| nodes[(rank + step) % nodes.len()])
            .find(|node| self.is_stranger(*node));
        if let Some(node) = next {
            self.befriend(node, out);
        }
    }

    /// Whether a node could be called and was not.
    fn is_stranger(&self, node: NodeId) -> bool {
        let known =
            self.called[node.index()] || self.peers.get(node).is_some_and(|peer| peer.greeted);
        node != self.me && !self.gone[node.index()] && !known
    }

    fn call_strangers(&mut self, at_home: bool, count: usize, out: &mut Actions) -> usize {
        let all = (0..self.gone.len() as u32).map(NodeId);
        let mut strangers: Vec<NodeId> = all
            .filter(|node| self.clusters.are_mates(self.me, *node) == at_home)
            .filter(|node| self.is_stranger(*node))
            .collect();
        let count = count.min(strangers.len());
        for _ in 0..count {
            let index = self.random.next_u32() as usize % strangers.len();
            let node = strangers.swap_remove(index);
            self.befriend(node, out);
        }
        count
    }

    /// Makes a node a peer, whether it is up already or not.
    fn befriend(&mut self, node: NodeId, out: &mut Actions) {
        debug_assert!(node != self.me);
        debug_assert!(!self.gone[node.index()], "no node can call {node}");
        if self.peers.get(node).is_some_and(|peer| !peer.greeted) {
            self.called[node.index()] = true;
            self.greet(node, out);
        } else if !self.called[node.index()] {
            self.call(node, out);
        }
    }

    /// A node of the cluster has left: the first of the others sees to its work.
    pub(super) fn mate_lost(&mut self, now: Time, out: &mut Actions) {
        debug_assert!(!self.gone[self.me.index()]);
        if self.kind == Kind::Mates {
            return;
        }
        let mates = self.clusters.mates(self.me);
        if mates.iter().find(|mate| !self.gone[mate.index()]) == Some(&self.me) {
            self.take_census(now, out);
        }
    }

    /// Tells the first of the cluster that can be reached that something is amiss.
    ///
    /// A node that is not connected is called and has until the next time to come up. Until then no
    /// node behind it is told, or several would take a census: so each is taken for deaf only once
    /// it was told something itself, or called in vain.
    fn raise_alarm(&mut self, now: Time, out: &mut Actions) {
        let unheard = std::mem::take(&mut self.repair.called);
        self.repair.deaf.extend(unheard);
        let mates: Vec<NodeId> = self.clusters.mates(self.me).to_vec();
        for mate in mates {
            if mate == self.me {
                if self.repair.called.is_empty() {
                    self.take_census(now, out);
                }
                return;
            }
            let out_of_play = self.gone[mate.index()] || self.repair.distrusts(mate);
            if out_of_play || self.repair.deaf.contains(&mate) {
                continue;
            }
            self.befriend(mate, out);
            if !self.peers.contains(mate) {
                self.repair.called.insert(mate);
                continue;
            }
            if self.repair.called.is_empty() {
                self.repair.called.insert(mate);
                out.send(mate, &Message::Alarm);
            }
            return;
        }
    }

    /// Sees to it that blocks come again if none do.
    pub(super) fn mend(&mut self, now: Time, out: &mut Actions) {
        if std::mem::take(&mut self.repair.to_alarm) {
            self.raise_alarm(now, out);
        }
        if self.repair.pardon(now) {
            self.fill_all(out);
        }
        let waits = self
            .peers
            .iter()
            .any(|(_, peer)| !peer.requests.asked().is_empty());
        self.watch_mates(now);
        if waits {
            return self.hang_up(now, out);
        }
        if now.since(self.repair.since) < self.repair.patience {
            return;
        }
        self.repair.since = now;
        self.repair.patience = (self.repair.patience * 2).min(PATIENCE_MAX);
        let home = self.call_strangers(true, CALLS_HOME, out);
        if self.kind == Kind::Mates {
            return;
        }
        let abroad = self.call_strangers(false, CALLS_ABROAD, out);
        let has_work = !self.interest.gold().is_empty();
        let fends = self.fend_for_itself(home + abroad == 0);
        if !self.interest.gold().is_empty() {
            self.desire_all(out);
        }
        if home + abroad == 0 {
            self.send_out(out);
        }
        if fends {
            self.fill_all(out);
        }
        if self.loner {
            return;
        }
        if has_work && home + abroad == 0 {
            self.hand_over(out);
        }
        if self.kind == Kind::Robber {
            let mates = self.peers.iter_mut().filter(|(_, peer)| peer.local);
            mates.for_each(|(_, peer)| peer.works = peer.greeted && !peer.done && !peer.loner);
        }
        self.raise_alarm(now, out);
    }

    /// Parts from a peer that talks and holds back blocks that others have. What it was asked for is then asked
    /// of these, and cannot come twice, as the connection is gone.
    fn hang_up(&mut self, now: Time, out: &mut Actions) {
        let repair = &self.repair;
        let have = |block: u32, but: NodeId| {
            let mut others = self.peers.iter();
            others.any(|(node, it)| node != but && !repair.shuns(node) && it.theirs.contains(block))
        };
        let is_late = |node: NodeId, it: &Peer| {
            let waits = !it.requests.asked().is_empty();
            waits && now.since(it.waited_for) >= repair.patience_with(node, it)
        };
        let holds_back = self.peers.iter().filter(|(node, it)| {
            let mut asked = it.requests.asked().iter();
            // What a mate has need not be in the cluster: then it can be fetched.
            let abroad = it.local && self.kind != Kind::Mates;
            is_late(*node, it) && (abroad || asked.any(|block| have(*block, *node)))
        });
        // One at a time: if it was not what is wrong, no others lose what is on its way.
        let late = holds_back.map(|(node, it)| (repair.patience_with(node, it), node));
        let Some((patience, node)) = late.min() else {
            return;
        };
        let late = Late {
            patience: (patience * 2).min(LATE_AFTER_MAX),
            until: now + patience * SHUNNED_FOR,
        };
        self.repair.since = now;
        self.repair.late.insert(node, late);
        out.push(Action::Disconnect(node));
        self.distrust(node);
    }

    /// Mates that were greeted and never say a word do not do their part.
    fn watch_mates(&mut self, now: Time) {
        let is_mute = |peer: &Peer| {
            peer.local && peer.greeted && !peer.spoke && now.since(peer.since) >= SPEAKS_WITHIN
        };
        let mute = self
            .peers
            .iter()
            .filter(|(_, peer)| is_mute(peer) && !peer.done);
        let mute: Vec<NodeId> = mute.map(|(node, _)| node).collect();
        for node in mute {
            self.distrust(node);
        }
    }

    /// What a mate was to fetch is seen to by others, as if it had left.
    fn distrust(&mut self, node: NodeId) {
        let is_mate = self.clusters.are_mates(self.me, node);
        if !is_mate || self.kind == Kind::Mates || !self.repair.distrusted.insert(node) {
            return;
        }
        self.repair.to_alarm = true;
    }

    /// This node knows all nodes and none has what it is to fetch: perhaps another can.
    fn hand_over(&mut self, out: &mut Actions) {
        let mates = self
            .peers
            .pick(|peer| peer.local && peer.greeted && !peer.done && !peer.loner);
        if mates.is_empty() {
            return;
        }
        let to = mates[self.random.next_u32() as usize % mates.len()];
        let mut given = BlockSet::new(self.have.len());
        while !self.interest.gold().is_empty() {
            given.union(&self.interest.devalue_first_half());
        }
        debug_assert!(!given.is_empty(), "there was no work to hand over");
        self.give(to, &given, out);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::time::Duration;

    use outpour_core::{BlockSet, NodeId, Time};

    use super::*;
    use crate::registry::find;
    use crate::{Event, Member, Role, Setup, TimerId};

    const BLOCKS: u32 = 20;
    const HONEST: NodeId = NodeId(0);
    const MUTE: NodeId = NodeId(2);

    /// A node whose peers both say that they have everything, and of which one sends nothing; when it had
    /// everything, whom it parted from, and which blocks came twice.
    fn play(protocol: &str, clusters: [u32; 3]) -> (Option<Time>, Vec<NodeId>) {
        let member = |(node, cluster)| Member {
            cluster,
            role: Role::source_if(node != 1),
        };
        let mut node = find(protocol).unwrap().by_default().build(Setup {
            me: NodeId(1),
            members: (0..3).zip(clusters).map(member).collect(),
            block_bytes: 1024,
            have: BlockSet::new(BLOCKS),
            want: BlockSet::full(BLOCKS),
            seed: 1,
            plan: None,
            batches: None,
        });
        let lacks = BlockSet::new(BLOCKS).to_wire();
        let done = crate::encode(&Message::Done { lacks });
        let mut up = [false; 3];
        let mut have = BlockSet::new(BLOCKS);
        let (mut parted, mut timers) = (Vec::new(), BTreeMap::<TimerId, Time>::new());
        let (mut now, mut out) = (Time::ZERO, Actions::default());
        node.handle(now, Event::Start, &mut out);
        loop {
            let actions: Vec<Action> = out.drain().collect();
            for action in &actions {
                match *action {
                    Action::Connect(peer) if !up[peer.index()] => {
                        up[peer.index()] = true;
                        node.handle(now, Event::PeerUp(peer), &mut out);
                        let (from, body) = (peer, &done[..]);
                        node.handle(now, Event::Message { from, body }, &mut out);
                    }
                    Action::Disconnect(peer) => {
                        parted.push(peer);
                        up[peer.index()] = false;
                        node.handle(now, Event::PeerDown(peer), &mut out);
                    }
                    Action::Send { to, ref body } if to == HONEST => {
                        if let Ok(Message::Request { block }) = postcard::from_bytes(body) {
                            let fresh = have.insert(block);
                            assert!(fresh, "block {block} came twice");
                            let from = to;
                            let event = Event::Arrived { from, block, fresh };
                            node.handle(now, event, &mut out);
                        }
                    }
                    Action::SetTimer { timer, at } => {
                        timers.insert(timer, at);
                    }
                    _ => {}
                }
            }
            if have.is_full() {
                return (Some(now), parted);
            }
            if !actions.is_empty() {
                continue;
            }
            let next = timers.iter().min_by_key(|(_, at)| **at);
            let Some((&timer, &at)) = next.filter(|(_, at)| at.as_secs_f64() < 60.0) else {
                return (None, parted);
            };
            timers.remove(&timer);
            now = now.max(at);
            node.handle(now, Event::Timer(timer), &mut out);
        }
    }

    #[test]
    fn a_peer_that_talks_and_sends_nothing_is_parted_from_and_others_are_asked() {
        for protocol in ["mob", "robber"] {
            for clusters in [[0, 0, 0], [0, 1, 2]] {
                let (finished, parted) = play(protocol, clusters);
                let finished = finished.map(Time::as_secs_f64);
                let in_time = finished.is_some_and(|at| at < 3.0);
                assert!(in_time, "{protocol} {clusters:?}: {finished:?}");
                assert_eq!(parted, [MUTE], "{protocol} {clusters:?}");
            }
        }
    }

    #[test]
    fn who_was_late_has_more_time_the_next_time() {
        let mut repair = Repair::new(1024);
        let mut peer = Peer::new(Time::ZERO, false, false, BLOCKS);
        let patience = repair.patience_with(MUTE, &peer);
        let late = Late {
            patience: patience * 2,
            until: Time::ZERO + Duration::from_secs(30),
        };
        repair.late.insert(MUTE, late);
        assert!(repair.shuns(MUTE) && !repair.shuns(HONEST));
        assert!(!repair.pardon(Time::ZERO + Duration::from_secs(29)));
        assert!(repair.pardon(Time::ZERO + Duration::from_secs(30)));
        assert!(!repair.shuns(MUTE) && repair.patience_with(MUTE, &peer) == patience * 2);
        assert_eq!(repair.patience_with(HONEST, &peer), patience);
        // The link to one that delivered may have become slow.
        peer.delivered = true;
        assert!(repair.patience_with(HONEST, &peer) >= patience * 8);
        peer.local = true;
        assert_eq!(repair.patience_with(HONEST, &peer), patience);
    }
}
