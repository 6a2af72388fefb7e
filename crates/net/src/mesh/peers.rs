//! What this node knows about its peers, and which link to each it has.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use outpour_core::NodeId;
use tokio::sync::{Notify, mpsc, watch};
use tokio::time::timeout;

use super::establish::Conn;
use super::link::{Link, Origin};
use crate::TRANSFERS_MAX;
use crate::config::Member;
use crate::event::MeshEvent;
use crate::frame::Refusal;

/// Pauses between attempts to reach a peer, before jitter.
pub(crate) const BACKOFF_MIN: Duration = Duration::from_millis(250);
pub(crate) const BACKOFF_MAX: Duration = Duration::from_secs(5);
/// A link that lived shorter than this was no success: the pause goes on growing.
const SHORT_LIVED: Duration = Duration::from_secs(10);
/// At the start some nodes hear of their peers a little later than others: who calls them before
/// that and proves that it is of the cast is asked to wait, because a refusal would cost it a pause
/// of [`BACKOFF_MIN`] and both of them another handshake.
const MEMBER_PATIENCE: Duration = Duration::from_secs(1);

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
    /// The link whose `PeerUp` the user of the mesh has seen, by transfer; 0 for none.
    seen: [u64; TRANSFERS_MAX as usize],
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

impl Peers {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sets what is known about a peer. One that comes back with another certificate is another
    /// process: the old link ends.
    pub(crate) fn set_member(&self, node: NodeId, member: Member) {
        let mut state = self.lock();
        let peer = state.peers.entry(node).or_default();
        if peer.barred || peer.member.as_ref() == Some(&member) {
            return;
        }
        let changed = peer
            .member
            .as_ref()
            .is_some_and(|old| old.certificate != member.certificate);
        if changed && let Some(link) = &peer.link {
            link.close("the peer has a new certificate".into());
        }
        peer.member = Some(member);
        peer.backoff = BACKOFF_MIN;
        peer.news.notify_one();
        drop(state);
        self.met.send_replace(());
    }

    /// Ends all dealings with a peer for good.
    pub(crate) fn bar(&self, node: NodeId, why: &str) {
        let mut state = self.lock();
        let peer = state.peers.entry(node).or_default();
        peer.barred = true;
        peer.wanted = false;
        if let Some(link) = &peer.link {
            link.close(why.to_owned());
        }
        peer.news.notify_one();
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
        peer.start_dialling()
    }

    pub(crate) fn disconnect(&self, node: NodeId) {
        let mut state = self.lock();
        let Some(peer) = state.peers.get_mut(&node) else {
            return;
        };
        peer.wanted = false;
        if let Some(link) = &peer.link {
            link.close("disconnected".into());
        }
        peer.news.notify_one();
    }

    /// What a dialling task is to do next; after [`Target::None`] it must end.
    pub(crate) fn target(&self, node: NodeId) -> Target {
        let mut state = self.lock();
        let Some(peer) = state.peers.get_mut(&node) else {
            return Target::None;
        };
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

    /// Whether a peer may have a connection with this certificate.
    pub(crate) fn check(&self, node: NodeId, certificate: &[u8; 32]) -> Result<(), Refusal> {
        match self.lock().peers.get(&node) {
            Some(peer) => peer.check(certificate),
            None => Err(Refusal::NotMember),
        }
    }

    /// As [`Self::check`], but gives a node that is not known yet a moment to become a member.
    pub(crate) async fn check_in_time(
        &self,
        node: NodeId,
        certificate: &[u8; 32],
    ) -> Result<(), Refusal> {
        let mut met = self.met.subscribe();
        let known = async { while !self.knows(node) && met.changed().await.is_ok() {} };
        let _ = timeout(MEMBER_PATIENCE, known).await;
        self.check(node, certificate)
    }

    /// Whether it is decided if the node is a member.
    fn knows(&self, node: NodeId) -> bool {
        let state = self.lock();
        let peer = state.peers.get(&node);
        peer.is_some_and(|peer| peer.barred || peer.member.is_some())
    }

    /// Makes a new link to a peer, and says which link it takes the place of. If the decision is
    /// `ours`, a link to the same process of the peer that is still alive stays instead.
    pub(crate) fn admit(
        &self,
        origin: Origin,
        certificate: &[u8; 32],
        ours: bool,
        dialled: bool,
    ) -> Result<Admitted, Refusal> {
        let mut state = self.lock();
        let state = &mut *state;
        let peer = state
            .peers
            .get_mut(&origin.peer)
            .ok_or(Refusal::NotMember)?;
        peer.check(certificate)?;
        if dialled && !peer.wanted {
            return Err(Refusal::NoLink);
        }
        if let Some(old) = &peer.link
            && ours
            && !old.is_closing()
            && old.incarnation == origin.incarnation
        {
            return Err(Refusal::Busy);
        }
        state.last_serial += 1;
        let (link, extras) = Link::new(origin, state.last_serial);
        let previous = peer.link.replace(link.clone());
        if let Some(previous) = &previous {
            previous.close("replaced by a new link".into());
        }
        peer.news.notify_one();
        Ok(Admitted {
            link,
            extras,
            previous,
        })
    }

    /// The link that an extra connection says it belongs to.
    pub(crate) fn link_by_id(
        &self,
        node: NodeId,
        certificate: &[u8; 32],
        id: u64,
    ) -> Result<Arc<Link>, Refusal> {
        let state = self.lock();
        let peer = state.peers.get(&node).ok_or(Refusal::NotMember)?;
        peer.check(certificate)?;
        let link = peer
            .link
            .as_ref()
            .filter(|link| link.id == id && !link.is_closing());
        link.cloned().ok_or(Refusal::NoLink)
    }

    /// Forgets a link that has ended. Returns what a new dialling task is to wait for, if a link
    /// is still wanted.
    pub(crate) fn finish(&self, link: &Arc<Link>) -> Option<Arc<Notify>> {
        let mut state = self.lock();
        let peer = state.peers.get_mut(&link.peer)?;
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
        if peer.wanted && !peer.barred {
            peer.start_dialling()
        } else {
            None
        }
    }

    /// The link for a command of the mesh's user, if it is the one whose `PeerUp` the user saw.
    pub(crate) fn link_for(&self, node: NodeId, transfer: u8) -> Option<Arc<Link>> {
        let state = self.lock();
        let peer = state.peers.get(&node)?;
        let link = peer.link.as_ref()?;
        let seen = *peer.seen.get(usize::from(transfer))?;
        (seen == link.serial).then(|| link.clone())
    }

    /// Calls `act` for every link there is.
    pub(crate) fn each_link(&self, act: impl FnMut(&Arc<Link>)) {
        self.lock()
            .peers
            .values()
            .filter_map(|peer| peer.link.as_ref())
            .for_each(act);
    }

    /// Notes what the user of the mesh has seen.
    pub(crate) fn see(&self, event: &MeshEvent, serial: u64) {
        let (transfer, peer, serial) = match *event {
            MeshEvent::PeerUp { transfer, peer } => (transfer, peer, serial),
            MeshEvent::PeerDown { transfer, peer } => (transfer, peer, 0),
            _ => return,
        };
        if let Some(peer) = self.lock().peers.get_mut(&peer)
            && let Some(seen) = peer.seen.get_mut(usize::from(transfer))
        {
            *seen = serial;
        }
    }
}

/// A link that was just made.
pub(crate) struct Admitted {
    pub(crate) link: Arc<Link>,
    pub(crate) extras: mpsc::Receiver<Conn>,
    pub(crate) previous: Option<Arc<Link>>,
}

impl Peer {
    fn check(&self, certificate: &[u8; 32]) -> Result<(), Refusal> {
        if self.barred {
            return Err(Refusal::Barred);
        }
        // Both are public, so the comparison need not take constant time.
        match &self.member {
            Some(member) if member.certificate == *certificate => Ok(()),
            _ => Err(Refusal::NotMember),
        }
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
    async fn who_calls_before_it_is_known_waits_until_it_is() {
        let peers = Peers::default();
        let (node, certificate) = (NodeId(1), [7; 32]);
        let member = |certificate| Member {
            addrs: Vec::new(),
            certificate,
        };
        let meet = async {
            // The other future is polled first, so it waits by now.
            assert_eq!(peers.met.receiver_count(), 1);
            peers.set_member(NodeId(2), member([2; 32]));
            tokio::task::yield_now().await;
            peers.set_member(node, member(certificate));
        };
        let (checked, ()) = tokio::join!(biased; peers.check_in_time(node, &certificate), meet);
        assert_eq!(checked, Ok(()));
        assert_eq!(
            peers.check_in_time(node, &[8; 32]).await,
            Err(Refusal::NotMember),
            "known by another certificate"
        );
        peers.bar(NodeId(3), "it lied");
        let barred = peers.check_in_time(NodeId(3), &certificate).await;
        assert_eq!(barred, Err(Refusal::Barred));
    }

    /// A digest that differs from another in one bit of one byte, for every byte.
    fn almost(digest: [u8; 32]) -> impl Iterator<Item = [u8; 32]> {
        (0..32).map(move |byte| {
            let mut other = digest;
            other[byte] ^= 1 << (byte % 8);
            other
        })
    }

    #[test]
    fn every_byte_of_a_digest_counts() {
        let digest: [u8; 32] = std::array::from_fn(|byte| byte as u8 + 1);
        let member = |certificate| Member {
            addrs: Vec::new(),
            certificate,
        };
        let origin = || Origin {
            peer: NodeId(1),
            id: 7,
            incarnation: 1,
        };
        let peers = Peers::default();
        peers.set_member(NodeId(1), member(digest));
        peers.want(NodeId(1), false);
        let admit = |certificate: &[u8; 32], dialled| {
            let admitted = peers.admit(origin(), certificate, true, dialled);
            admitted.map(|admitted| admitted.link)
        };
        for other in almost(digest) {
            let refused = Err(Refusal::NotMember);
            assert_eq!(peers.check(NodeId(1), &other), refused, "{other:?}");
            for dialled in [false, true] {
                assert_eq!(admit(&other, dialled).map(drop), refused, "{other:?}");
            }
        }
        // Nor may it add a connection to the link that the right one has.
        assert!(admit(&digest, true).is_ok());
        let link_by_id = |certificate: &[u8; 32]| peers.link_by_id(NodeId(1), certificate, 7);
        assert!(link_by_id(&digest).is_ok());
        for other in almost(digest) {
            assert_eq!(link_by_id(&other).map(drop), Err(Refusal::NotMember));
        }
    }

    #[test]
    fn a_certificate_that_differs_in_one_byte_is_another_process() {
        let digest = [0x55; 32];
        for (number, other) in (1..).zip(almost(digest)) {
            let (peers, peer) = (Peers::default(), NodeId(number));
            let member = |certificate| Member {
                addrs: Vec::new(),
                certificate,
            };
            peers.set_member(peer, member(digest));
            let origin = Origin {
                peer,
                id: 7,
                incarnation: 1,
            };
            let admitted = peers.admit(origin, &digest, true, false);
            let link = admitted.map(|admitted| admitted.link);
            peers.set_member(peer, member(other));
            assert!(link.is_ok_and(|link| link.is_closing()), "{other:?}");
        }
    }
}
