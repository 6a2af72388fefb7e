//! What a session knows about its peers, and which link to each it has.

use std::collections::{BTreeSet, HashMap};
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use outpour_core::{NodeId, Rate, Time};
use tokio::sync::{Notify, watch};
use tokio::time::timeout;

use super::Shared;
use super::holders::Penalty;
use super::link::{Link, Origin};
use crate::config::Member;
use crate::endpoint::{SharedBucket, Trunk};
use crate::event::SessionEvent;
use crate::frame::{Join, Refusal};
use crate::identity::KeyDigest;
use crate::meter::Meter;
use crate::{LinkError, MESSAGE_BYTES_MAX, TRANSFERS_MAX};

/// Pauses between attempts to reach a peer, before jitter.
const BACKOFF_MIN: Duration = Duration::from_millis(250);
pub(crate) const BACKOFF_MAX: Duration = Duration::from_secs(5);
/// A link that lived shorter than this was no success: the pause goes on growing.
const SHORT_LIVED: Duration = Duration::from_secs(10);
/// At the start some nodes hear of their peers a little later than others: a peer that calls before
/// that and proves its key is asked to wait, because a refusal would cost it a pause of
/// [`BACKOFF_MIN`] and both of them another handshake.
pub(crate) const MEMBER_PATIENCE: Duration = Duration::from_secs(1);

const _: () = assert!(BACKOFF_MIN.as_millis() < BACKOFF_MAX.as_millis());

/// What a peer's messages may come at in the long run, and at once, in bytes: more than any protocol
/// needs, and no more than takes a part of a processor.
const MESSAGE_RATE: f64 = (2 << 20) as f64;
const MESSAGE_BURST: f64 = (16 << 20) as f64;
/// What a message counts beyond its length.
const MESSAGE_COST: u32 = 64;

const _: () = assert!(MESSAGE_BYTES_MAX as f64 * 2.0 < MESSAGE_BURST);

/// All peers. The lock is held for moments only, never while waiting.
#[derive(Default)]
pub(crate) struct Peers {
    state: Mutex<State>,
    /// Told whenever a node becomes a member.
    met: watch::Sender<()>,
}

#[derive(Default)]
struct State {
    peers: HashMap<NodeId, Peer>,
    /// Members by their keys: several may be on one host.
    keys: HashMap<KeyDigest, BTreeSet<NodeId>>,
    /// How many members have which address.
    hosts: HashMap<IpAddr, usize>,
    /// How many channels of a peer wait for an answer.
    answering: HashMap<NodeId, usize>,
    last_serial: u64,
}

/// A node as another one knows it.
#[derive(Default)]
struct Peer {
    member: Option<Member>,
    /// Removed or banned: nothing makes it a member again.
    barred: bool,
    /// A link is asked for.
    wanted: bool,
    /// A task is dialling.
    dialling: bool,
    backoff: Duration,
    /// Tells the dialling task that something changed.
    news: Arc<Notify>,
    link: Option<Arc<Link>>,
    /// The link whose `PeerUp` the user of the session has seen, by transfer; 0 for none.
    seen: [u64; TRANSFERS_MAX as usize],
    peering: Arc<Peering>,
}

/// What is kept of a peer from link to link.
pub(crate) struct Peering {
    /// Its limit, out of this node.
    pub(crate) outgoing: Arc<SharedBucket>,
    /// For holding memory that others waited for.
    pub(crate) penalty: Penalty,
    /// When its messages are paid for.
    messages: Mutex<Time>,
    sent: Mutex<Meter>,
    received: Mutex<Meter>,
}

impl Default for Peering {
    fn default() -> Self {
        Self {
            outgoing: SharedBucket::new(Rate::UNLIMITED),
            penalty: Penalty::default(),
            messages: Mutex::new(Time::ZERO),
            sent: Mutex::default(),
            received: Mutex::default(),
        }
    }
}

impl Peering {
    /// Counts a message that comes; when it may, so that no peer keeps this node busy with what it says.
    pub(crate) fn charge_message(&self, now: Time, bytes: u32) -> Time {
        let cost = Duration::from_secs_f64(f64::from(bytes + MESSAGE_COST) / MESSAGE_RATE);
        let mut paid = self.messages.lock().unwrap_or_else(PoisonError::into_inner);
        *paid = (*paid).max(now) + cost;
        let burst = Duration::from_secs_f64(MESSAGE_BURST / MESSAGE_RATE);
        let ahead = paid.since(now);
        now + ahead.saturating_sub(burst)
    }

    pub(crate) fn note_sent(&self, now: Time, bytes: usize) {
        self.sent
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .add(now, bytes);
    }

    pub(crate) fn note_received(&self, now: Time, bytes: usize) {
        self.received
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .add(now, bytes);
    }

    pub(crate) fn achieved(&self, now: Time) -> Achieved {
        let rate = |meter: &Mutex<Meter>| {
            meter
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .rate(now)
        };
        Achieved {
            outgoing: rate(&self.sent),
            incoming: rate(&self.received),
        }
    }
}

/// What passed between this node and a peer in the last half second.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Achieved {
    /// Payload of blocks and packets that this node sent.
    pub outgoing: Rate,
    /// Payload of blocks and packets that it received.
    pub incoming: Rate,
}

/// Whether a dialling task has something to do.
pub(crate) enum Target {
    /// Dial this member.
    Dial(Member),
    /// Nothing is known about where it is; wait for news.
    Unknown,
    /// Up, not wanted any more, or barred: the task ends.
    None,
}

/// The hosts of a member's addresses, each once.
fn hosts_of(member: &Member) -> BTreeSet<IpAddr> {
    let hosts = member.addrs.iter().map(|addr| addr.ip().to_canonical());
    hosts.collect()
}

/// One member less has this address.
fn leave(hosts: &mut HashMap<IpAddr, usize>, host: IpAddr) {
    match hosts.get_mut(&host) {
        Some(members) if *members > 1 => *members -= 1,
        _ => {
            let known = hosts.remove(&host);
            debug_assert!(known.is_some(), "its address was not kept");
        }
    }
}

impl Peers {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sets what is known about a peer. One that comes back with another key is another
    /// process: the old link ends.
    pub(crate) fn set_member(&self, node: NodeId, member: Member) {
        let mut state = self.lock();
        let State {
            peers, keys, hosts, ..
        } = &mut *state;
        let peer = peers.entry(node).or_default();
        if peer.barred || peer.member.as_ref() == Some(&member) {
            return;
        }
        for host in peer.member.iter().flat_map(hosts_of) {
            leave(hosts, host);
        }
        for host in hosts_of(&member) {
            *hosts.entry(host).or_default() += 1;
        }
        if let Some(old) = &peer.member
            && let Some(nodes) = keys.get_mut(&old.key)
        {
            let known = nodes.remove(&node);
            debug_assert!(known, "its key was not kept");
        }
        keys.entry(member.key).or_default().insert(node);
        let changed = peer
            .member
            .as_ref()
            .is_some_and(|old| old.key != member.key);
        if changed && let Some(link) = &peer.link {
            link.close(LinkError::Parted("the peer has a new key"));
        }
        peer.member = Some(member);
        peer.backoff = BACKOFF_MIN;
        peer.news.notify_one();
        peer.check();
        drop(state);
        self.met.send_replace(());
    }

    /// Ends all dealings with a peer for good.
    pub(crate) fn bar(&self, node: NodeId, why: &LinkError) {
        let mut state = self.lock();
        let State { peers, hosts, .. } = &mut *state;
        let peer = peers.entry(node).or_default();
        if !peer.barred {
            for host in peer.member.iter().flat_map(hosts_of) {
                leave(hosts, host);
            }
        }
        peer.barred = true;
        peer.wanted = false;
        if let Some(link) = &peer.link {
            link.close(why.clone());
        }
        peer.news.notify_one();
        peer.check();
    }

    /// Asks for a link. Returns what a new dialling task is to wait for, if one must be started.
    pub(crate) fn want(&self, node: NodeId, at_once: bool) -> Option<Arc<Notify>> {
        let mut state = self.lock();
        let peer = state.peers.entry(node).or_default();
        if peer.barred {
            return None;
        }
        peer.wanted = true;
        if at_once {
            peer.backoff = BACKOFF_MIN;
            peer.news.notify_one();
        }
        peer.check();
        peer.start_dialling()
    }

    pub(crate) fn disconnect(&self, node: NodeId) {
        let mut state = self.lock();
        let Some(peer) = state.peers.get_mut(&node) else {
            return;
        };
        peer.wanted = false;
        if let Some(link) = &peer.link {
            link.close(LinkError::Parted("disconnected"));
        }
        peer.news.notify_one();
    }

    /// What a dialling task is to do next; after [`Target::None`] it must end.
    pub(crate) fn target(&self, node: NodeId) -> Target {
        let mut state = self.lock();
        let Some(peer) = state.peers.get_mut(&node) else {
            return Target::None;
        };
        debug_assert!(peer.dialling, "only the task that dials may ask");
        if !peer.wanted || peer.barred || peer.link.is_some() {
            peer.dialling = false;
            return Target::None;
        }
        match &peer.member {
            Some(member) if !member.addrs.is_empty() => Target::Dial(member.clone()),
            _ => Target::Unknown,
        }
    }

    /// The pause before the next attempt; each is twice the one before, up to a limit.
    pub(crate) fn next_backoff(&self, node: NodeId) -> Duration {
        let mut state = self.lock();
        let Some(peer) = state.peers.get_mut(&node) else {
            return BACKOFF_MAX;
        };
        let pause = peer.backoff.clamp(BACKOFF_MIN, BACKOFF_MAX);
        peer.backoff = (2 * pause).min(BACKOFF_MAX);
        pause
    }

    /// Whether a member has this address; one that is barred has none.
    pub(crate) fn has_member_at(&self, host: IpAddr) -> bool {
        self.lock().hosts.contains_key(&host)
    }

    /// Waits a moment for it to be decided whether the node is a member.
    pub(crate) async fn meet(&self, node: NodeId) {
        let mut met = self.met.subscribe();
        let known = async { while !self.knows(node) && met.changed().await.is_ok() {} };
        let _ = timeout(MEMBER_PATIENCE, known).await;
    }

    /// Whether it is decided if the node is a member.
    fn knows(&self, node: NodeId) -> bool {
        let state = self.lock();
        let peer = state.peers.get(&node);
        peer.is_some_and(|peer| peer.barred || peer.member.is_some())
    }

    /// What the endpoint that holds a key is in this session.
    pub(crate) fn standing(&self, key: KeyDigest) -> Standing {
        let state = self.lock();
        let nodes = state.keys.get(&key).into_iter().flatten();
        let nodes = nodes.filter_map(|node| state.peers.get(node));
        nodes.fold(Standing::Stranger, |standing, peer| {
            standing.max(match peer {
                Peer { barred: true, .. } => Standing::Barred,
                Peer { wanted: true, .. } => Standing::Wanted,
                _ => Standing::Member,
            })
        })
    }

    /// Answers a peer that has opened a channel to this session, or tells why not. `theirs` is its
    /// channel.
    pub(crate) fn admit(
        &self,
        session: &Arc<Shared>,
        trunk: &Arc<Trunk>,
        join: Join,
        theirs: u16,
    ) -> Admitted {
        let mut state = self.lock();
        let state = &mut *state;
        let Some(peer) = state.peers.get_mut(&join.from) else {
            return Admitted::Not(Refusal::NotMember);
        };
        if let Err(refusal) = peer.admits(trunk.key.digest) {
            return Admitted::Not(refusal);
        }
        if let Some(old) = &peer.link {
            let same = Arc::ptr_eq(&old.trunk, trunk);
            if same && !old.has_joined() && !old.is_closing() {
                if !trunk.bind(theirs, old.channel) {
                    return Admitted::Not(Refusal::NoTrunk);
                }
                debug_assert!(old.has_joined());
                trunk.wake_all();
                return Admitted::Joined;
            }
            // A host that calls itself has two trunks. An end that has called already stays with it, and of
            // two that call each other one gives way.
            let stays = old.has_joined() || join.from > join.to;
            if !same && !old.is_closing() && !old.trunk.is_closing() && stays {
                return Admitted::Not(Refusal::Busy);
            }
            old.close(LinkError::Network("replaced by a new link".into()));
            return Admitted::After(old.clone());
        }
        match peer.open(
            &mut state.last_serial,
            session,
            trunk,
            join.from,
            Some(theirs),
        ) {
            Some(link) => Admitted::Linked(link),
            None => Admitted::Not(Refusal::NoTrunk),
        }
    }

    /// A channel of a peer is to be answered. Until it is, none is opened to that peer: what it says
    /// once it sees ours must find its channel bound.
    pub(crate) fn begin_answer(self: &Arc<Self>, node: NodeId) -> Answering {
        *self.lock().answering.entry(node).or_default() += 1;
        Answering {
            peers: self.clone(),
            node,
        }
    }

    /// Opens a channel to a peer that is wanted; `None` if it is not any more, has a link, or is
    /// about to get one.
    pub(crate) fn call(
        &self,
        session: &Arc<Shared>,
        trunk: &Arc<Trunk>,
        node: NodeId,
    ) -> Option<Arc<Link>> {
        let mut state = self.lock();
        let state = &mut *state;
        if state.answering.contains_key(&node) {
            return None;
        }
        let peer = state.peers.get_mut(&node)?;
        peer.admits(trunk.key.digest).ok()?;
        if !peer.wanted || peer.link.is_some() {
            return None;
        }
        peer.open(&mut state.last_serial, session, trunk, node, None)
    }

    /// Forgets a link that has ended. Returns what a new dialling task is to wait for, if a link
    /// is still wanted.
    pub(crate) fn finish(&self, link: &Arc<Link>) -> Option<Arc<Notify>> {
        debug_assert!(link.is_closing());
        let mut state = self.lock();
        let peer = state.peers.get_mut(&link.peer)?;
        debug_assert!(
            peer.link
                .as_ref()
                .is_some_and(|it| it.serial == link.serial),
            "another link began before this one had ended"
        );
        if link.since.elapsed() >= SHORT_LIVED {
            peer.backoff = BACKOFF_MIN;
        }
        if peer
            .link
            .as_ref()
            .is_some_and(|current| current.serial == link.serial)
        {
            peer.link = None;
        }
        peer.check();
        if peer.wanted && !peer.barred {
            peer.start_dialling()
        } else {
            None
        }
    }

    /// The link for a command of the session's user, if it is the one whose `PeerUp` the user saw.
    pub(crate) fn link_for(&self, node: NodeId, transfer: u8) -> Option<Arc<Link>> {
        let state = self.lock();
        let peer = state.peers.get(&node)?;
        let link = peer.link.as_ref()?;
        let seen = *peer.seen.get(usize::from(transfer))?;
        (seen == link.serial).then(|| link.clone())
    }

    /// What is kept of a peer; of one that is not known yet, from now on.
    pub(crate) fn peering(&self, node: NodeId) -> Arc<Peering> {
        self.lock().peers.entry(node).or_default().peering.clone()
    }

    /// Calls `act` for every link there is.
    pub(crate) fn each_link(&self, act: impl FnMut(&Arc<Link>)) {
        self.lock()
            .peers
            .values()
            .filter_map(|peer| peer.link.as_ref())
            .for_each(act);
    }

    /// Notes what the user of the session has seen.
    pub(crate) fn see(&self, event: &SessionEvent, serial: u64) {
        let (transfer, peer, before, after) = match *event {
            SessionEvent::PeerUp { transfer, peer } => (transfer, peer, 0, serial),
            SessionEvent::PeerDown { transfer, peer } => (transfer, peer, serial, 0),
            _ => return,
        };
        debug_assert_ne!(before, after, "no link has the number 0");
        if let Some(peer) = self.lock().peers.get_mut(&peer)
            && let Some(seen) = peer.seen.get_mut(usize::from(transfer))
        {
            debug_assert_eq!(*seen, before, "links come and go one after another");
            *seen = after;
        }
    }
}

/// What an endpoint is in a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Standing {
    /// No member has its key.
    Stranger,
    /// The member that has was removed or banned.
    Barred,
    /// It is a member.
    Member,
    /// It is, and a link to it is asked for.
    Wanted,
}

/// Held while a channel of a peer waits for its answer.
pub(crate) struct Answering {
    peers: Arc<Peers>,
    node: NodeId,
}

impl Drop for Answering {
    fn drop(&mut self) {
        let mut state = self.peers.lock();
        debug_assert!(state.answering.contains_key(&self.node));
        if let Some(count) = state.answering.get_mut(&self.node) {
            debug_assert!(*count > 0);
            *count -= 1;
            if *count == 0 {
                state.answering.remove(&self.node);
            }
        }
    }
}

/// What became of a peer's channel.
pub(crate) enum Admitted {
    /// It answers the channel that we had opened.
    Joined,
    /// It was answered by this new link.
    Linked(Arc<Link>),
    /// It can be answered once this link has ended.
    After(Arc<Link>),
    /// It is declined.
    Not(Refusal),
}

impl Peer {
    fn check(&self) {
        debug_assert!(!self.barred || !self.wanted, "it would be dialled for ever");
        debug_assert!(self.backoff <= BACKOFF_MAX);
        if let Some(link) = &self.link {
            debug_assert!(!self.barred || link.is_closing(), "it is still heard");
            debug_assert!(self.seen.iter().all(|seen| *seen <= link.serial));
            debug_assert!(self.member.is_some());
        }
    }

    fn admits(&self, key: KeyDigest) -> Result<(), Refusal> {
        if self.barred {
            return Err(Refusal::Barred);
        }
        // Both are public, so the comparison need not take constant time.
        match &self.member {
            Some(member) if member.key == key => Ok(()),
            _ => Err(Refusal::NotMember),
        }
    }

    /// Makes a link with a channel of ours.
    fn open(
        &mut self,
        last_serial: &mut u64,
        session: &Arc<Shared>,
        trunk: &Arc<Trunk>,
        peer: NodeId,
        theirs: Option<u16>,
    ) -> Option<Arc<Link>> {
        debug_assert!(self.link.is_none(), "there is one link at a time");
        debug_assert!(!self.barred);
        debug_assert!(self.member.is_some());
        *last_serial += 1;
        let join = Join {
            session: session.id,
            from: session.node,
            to: peer,
        };
        let link = trunk.open(join, theirs, |channel| {
            let origin = Origin {
                session: session.clone(),
                peer,
                trunk: trunk.clone(),
                channel,
                peering: self.peering.clone(),
                joined: theirs.is_some(),
            };
            Link::new(origin, *last_serial)
        })?;
        self.link = Some(link.clone());
        self.news.notify_one();
        self.check();
        Some(link)
    }

    fn start_dialling(&mut self) -> Option<Arc<Notify>> {
        if self.dialling || self.link.is_some() {
            return None;
        }
        self.dialling = true;
        Some(self.news.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn who_calls_before_it_is_known_is_waited_for() {
        let peers = Peers::default();
        let member = |key| Member {
            addrs: Vec::new(),
            key: KeyDigest([key; 32]),
        };
        let meet = async {
            // The other future is polled first, so it waits by now.
            assert_eq!(peers.met.receiver_count(), 1);
            peers.set_member(NodeId(2), member(2));
            tokio::task::yield_now().await;
            assert_eq!(peers.standing(KeyDigest([7; 32])), Standing::Stranger);
            peers.set_member(NodeId(1), member(7));
        };
        tokio::join!(biased; peers.meet(NodeId(1)), meet);
        assert_eq!(peers.standing(KeyDigest([7; 32])), Standing::Member);
        peers.bar(NodeId(1), &LinkError::Parted("it lied"));
        assert_eq!(peers.standing(KeyDigest([7; 32])), Standing::Barred);
    }

    #[test]
    fn an_address_is_known_as_long_as_a_member_has_it() {
        let host = |last| IpAddr::from([10, 0, 0, last]);
        let member = |key, hosts: &[IpAddr]| Member {
            addrs: hosts.iter().map(|host| (*host, 7000).into()).collect(),
            key: KeyDigest([key; 32]),
        };
        let peers = Peers::default();
        let known = |peers: &Peers| {
            let all = (1..=4).filter(|it| peers.has_member_at(host(*it)));
            all.collect::<Vec<u8>>()
        };
        // Twice the same host is one.
        peers.set_member(NodeId(1), member(1, &[host(1), host(1), host(2)]));
        peers.set_member(NodeId(2), member(2, &[host(2)]));
        assert_eq!(known(&peers), [1, 2]);
        // A member moves; the other is still at the second.
        peers.set_member(NodeId(1), member(1, &[host(3)]));
        assert_eq!(known(&peers), [2, 3]);
        let barred = LinkError::Parted("it lied");
        peers.bar(NodeId(2), &barred);
        peers.bar(NodeId(2), &barred);
        peers.set_member(NodeId(2), member(2, &[host(4)]));
        assert_eq!(known(&peers), [3]);
    }

    #[test]
    fn every_byte_of_a_key_counts() {
        let key: [u8; 32] = std::array::from_fn(|byte| byte as u8 + 1);
        let peers = Peers::default();
        let addrs = Vec::new();
        let member = Member {
            addrs,
            key: KeyDigest(key),
        };
        peers.set_member(NodeId(1), member.clone());
        assert!(peers.want(NodeId(1), false).is_some());
        assert_eq!(peers.standing(KeyDigest(key)), Standing::Wanted);
        let peer = Peer {
            member: Some(member),
            ..Peer::default()
        };
        assert_eq!(peer.admits(KeyDigest(key)), Ok(()));
        for byte in 0..32 {
            let mut other = key;
            other[byte] ^= 1 << (byte % 8);
            let other = KeyDigest(other);
            assert_eq!(peers.standing(other), Standing::Stranger, "{other:?}");
            assert_eq!(peer.admits(other), Err(Refusal::NotMember), "{other:?}");
        }
    }

    #[test]
    fn messages_come_at_once_up_to_a_bound_and_then_at_a_rate() {
        let peering = Peering::default();
        let now = Time::from_secs_f64(100.0);
        let message = MESSAGE_BYTES_MAX as u32;
        let free = (MESSAGE_BURST / f64::from(message + MESSAGE_COST)) as u32;
        for _ in 0..free {
            assert_eq!(
                peering.charge_message(now, message),
                now,
                "it is within the burst"
            );
        }
        let mut due = now;
        for _ in 0..10 {
            due = peering.charge_message(now, message);
        }
        let seconds = due.since(now).as_secs_f64();
        let least = f64::from(message) * 9.0 / MESSAGE_RATE;
        assert!(seconds > least && seconds < least + 3.0, "{seconds}");
        // Empty ones are not free: a hundred thousand of them take seconds.
        let peering = Peering::default();
        let dues = (0..1_000_000).map(|_| peering.charge_message(now, 0));
        let last = dues.last().unwrap_or(now).since(now).as_secs_f64();
        assert!(last > 20.0, "{last}");
        // What has been paid for meanwhile is forgotten.
        let later = now + Duration::from_secs(3600);
        assert_eq!(peering.charge_message(later, message), later);
    }
}
