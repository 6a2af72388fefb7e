//! Plays a node's part on the real data plane with the real protocols, but with contents and words
//! of a test's own.

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use outpour_core::{BatchId, Batches, BlockId, BlockSet, NodeId, Time};
use outpour_net::{
    Accept, BlockIo, Encoded, Endpoint, EndpointConfig, EndpointKey, Events, KeyDigest, Packet,
    PacketIo, Session, SessionConfig, SessionEvent, SessionId, Tell,
};
use outpour_protocols::Role;
use outpour_protocols::coordinator::Contact;
use outpour_protocols::{
    Action, Actions, Coded, Event, Member, Protocol, Setup, TimerId, registry,
};

use crate::support::{LOOPBACK, noise};

pub(crate) const MANIFEST: u8 = 0;
pub(crate) const OBJECT: u8 = 1;

/// An object kept as it comes; or, if it is lied about, wrong bytes of the right length for all of
/// it from the start.
pub(crate) struct Kept {
    lens: Vec<u32>,
    blocks: Mutex<(BlockSet, BTreeMap<BlockId, Vec<u8>>)>,
    lied: Option<Arc<AtomicU64>>,
    /// How its blocks are grouped, if packets are lied about, too.
    batches: Option<Batches>,
}

impl Kept {
    pub(crate) fn new(lens: impl Iterator<Item = u32>, lied: Option<Arc<AtomicU64>>) -> Arc<Self> {
        let lens: Vec<u32> = lens.collect();
        let have = match lied {
            Some(_) => BlockSet::full(lens.len() as u32),
            None => BlockSet::new(lens.len() as u32),
        };
        Arc::new(Self {
            lens,
            blocks: Mutex::new((have, BTreeMap::new())),
            lied,
            batches: None,
        })
    }

    /// The same, with packets; they are as wrong as the blocks.
    pub(crate) fn coded(self: Arc<Self>, batches: Batches) -> Arc<Self> {
        let kept = Arc::into_inner(self).unwrap();
        let batches = Some(batches);
        Arc::new(Self { batches, ..kept })
    }

    pub(crate) fn have(&self) -> BlockSet {
        self.blocks.lock().unwrap().0.clone()
    }

    /// An object that is here, in blocks of `block` bytes.
    pub(crate) fn whole(bytes: &[u8], block: usize) -> Arc<Self> {
        let kept = Self::new(bytes.chunks(block).map(|chunk| chunk.len() as u32), None);
        for (number, chunk) in (0..).zip(bytes.chunks(block)) {
            kept.accept(number, chunk);
        }
        kept
    }

    /// The whole object, once every block has come.
    pub(crate) fn bytes(&self) -> Option<Vec<u8>> {
        let blocks = self.blocks.lock().unwrap();
        let whole = blocks.1.len() == self.lens.len();
        whole.then(|| blocks.1.values().flatten().copied().collect())
    }
}

impl BlockIo for Kept {
    fn block_len(&self, block: BlockId) -> Option<u32> {
        self.lens.get(block as usize).copied()
    }

    fn has(&self, block: BlockId) -> bool {
        self.blocks.lock().unwrap().0.contains(block)
    }

    fn read(&self, block: BlockId, buf: &mut Vec<u8>) -> io::Result<()> {
        buf.clear();
        if let Some(lied) = &self.lied {
            buf.resize(self.lens[block as usize] as usize, 0xa5);
            lied.fetch_add(1, Ordering::Relaxed);
        } else {
            buf.extend(&self.blocks.lock().unwrap().1[&block]);
        }
        Ok(())
    }

    fn accept(&self, block: BlockId, data: &[u8]) -> Accept {
        let mut blocks = self.blocks.lock().unwrap();
        blocks.1.insert(block, data.to_vec());
        if blocks.0.insert(block) {
            Accept::Stored
        } else {
            Accept::Duplicate
        }
    }

    fn packets(&self) -> Option<&dyn PacketIo> {
        self.batches.is_some().then_some(self as &dyn PacketIo)
    }
}

impl PacketIo for Kept {
    fn packet_len(&self, batch: BatchId) -> Option<u32> {
        let range = self.batches?.range(batch);
        let blocks = range.len() as u32;
        let longest = range.filter_map(|block| self.block_len(block)).max()?;
        Some(blocks + longest)
    }

    fn wants(&self, _: BatchId) -> bool {
        false
    }

    fn encode(&self, batch: BatchId, _: bool, mut buf: Vec<u8>, done: Encoded) {
        let number = self.lied.as_ref().unwrap().fetch_add(1, Ordering::Relaxed);
        let len = self.packet_len(batch).unwrap() as usize;
        buf.extend(noise(number, len));
        done(Ok(buf));
    }

    fn take(&self, _: NodeId, _: Packet<'_>, _: &mut Tell<'_>) {}

    fn note_block(&self, _: NodeId, _: BlockId, _: &[u8], _: &mut Tell<'_>) {}
}

/// The real protocol of one transfer.
struct Part {
    transfer: u8,
    protocol: Box<dyn Protocol>,
    timers: BTreeMap<TimerId, Time>,
}

impl Part {
    fn handle(&mut self, session: &Session, now: Time, event: Event<'_>) {
        let mut actions = Actions::default();
        self.protocol.handle(now, event, &mut actions);
        for action in actions.drain() {
            match action {
                Action::Connect(peer) => session.connect(peer),
                Action::Disconnect(peer) => session.disconnect(peer),
                Action::Send { to, body } => session.send(self.transfer, to, body),
                Action::SendPacket { to, batch, pure } => {
                    session.send_packet(self.transfer, to, batch, pure);
                }
                Action::SendBlock { to, block } => session.send_block(self.transfer, to, block),
                Action::SetRate { to, rate } => session.set_peer_rate(to, rate),
                Action::SetTimer { timer, at } => {
                    self.timers.insert(timer, at);
                }
                Action::Accuse { .. } => {}
            }
        }
    }
}

/// A data plane of a test's own.
pub(crate) fn endpoint() -> Endpoint {
    let key = EndpointKey::generate().unwrap();
    Endpoint::start(EndpointConfig::new(key, SocketAddr::new(LOOPBACK, 0))).unwrap()
}

/// A node without coordinator's orders or stages: transfers begin when the test says so.
pub(crate) struct Player {
    pub(crate) session: Session,
    endpoint: Endpoint,
    me: NodeId,
    protocol: String,
    members: Vec<Member>,
    origin: Instant,
    parts: Vec<Part>,
}

impl Player {
    /// A node of a cast with so many members that uses this protocol.
    pub(crate) fn start(
        me: NodeId,
        cast: SessionId,
        endpoint: Endpoint,
        protocol: &str,
        members: usize,
    ) -> (Self, Events) {
        let (session, events) = endpoint.session(&SessionConfig::new(cast, me)).unwrap();
        let member = |node| Member {
            cluster: 0,
            role: Role::source_if(node == 0),
        };
        let player = Self {
            session,
            endpoint,
            me,
            protocol: protocol.to_owned(),
            members: (0..members).map(member).collect(),
            origin: Instant::now(),
            parts: Vec::new(),
        };
        (player, events)
    }

    /// How others reach and know this node.
    pub(crate) fn contact(&self) -> Contact {
        Contact {
            addrs: vec![self.endpoint.local_addr()],
            key: self.endpoint.key().0,
        }
    }

    fn now(&self) -> Time {
        Time::ZERO + self.origin.elapsed()
    }

    pub(crate) fn meet(&self, node: NodeId, contact: Contact) {
        if node != self.me {
            let member = outpour_net::Member {
                addrs: contact.addrs,
                key: KeyDigest(contact.key),
            };
            self.session.set_member(node, member);
        }
    }

    /// Whether a transfer has begun.
    pub(crate) fn has_begun(&self, transfer: u8) -> bool {
        self.parts.iter().any(|part| part.transfer == transfer)
    }

    pub(crate) fn begin(
        &mut self,
        transfer: u8,
        block_bytes: u32,
        have: BlockSet,
        batches: Option<Batches>,
    ) {
        let setup = Setup {
            me: self.me,
            members: self.members.clone(),
            block_bytes,
            want: BlockSet::full(have.len()),
            have,
            seed: 1,
            plan: None,
            batches,
        };
        let entry = registry::find(&self.protocol).unwrap();
        let mut part = Part {
            transfer,
            protocol: entry.by_default().build(setup),
            timers: BTreeMap::new(),
        };
        part.handle(&self.session, self.now(), Event::Start);
        self.parts.push(part);
    }

    fn pass(&mut self, transfer: u8, event: Event<'_>) {
        let now = self.now();
        let mut parts = self.parts.iter_mut();
        if let Some(part) = parts.find(|part| part.transfer == transfer) {
            part.handle(&self.session, now, event);
        }
    }

    pub(crate) fn on_event(&mut self, event: SessionEvent) {
        match event {
            SessionEvent::PeerUp { transfer, peer } => self.pass(transfer, Event::PeerUp(peer)),
            SessionEvent::PeerDown { transfer, peer } => self.pass(transfer, Event::PeerDown(peer)),
            SessionEvent::Message {
                transfer,
                from,
                body,
            } => self.pass(transfer, Event::Message { from, body: &body }),
            SessionEvent::Arrived {
                transfer,
                from,
                block,
                fresh,
            } => self.pass(transfer, Event::Arrived { from, block, fresh }),
            SessionEvent::Sent {
                transfer,
                to,
                block,
            } => self.pass(transfer, Event::Sent { to, block }),
            SessionEvent::PacketSent {
                transfer,
                to,
                batch,
            } => self.pass(transfer, Event::Coded(Coded::Sent { to, batch })),
            _ => {}
        }
    }

    /// How long until a timer is due.
    pub(crate) fn rest(&self) -> Duration {
        let timers = self.parts.iter().flat_map(|part| part.timers.values());
        let next = timers.min().map(|at| at.since(self.now()));
        next.unwrap_or(Duration::from_secs(1))
    }

    /// Fires the timers that are due.
    pub(crate) fn fire(&mut self) {
        let now = self.now();
        for part in &mut self.parts {
            let due = part.timers.iter().filter(|(_, at)| **at <= now);
            let due: Vec<TimerId> = due.map(|(timer, _)| *timer).collect();
            for timer in due {
                part.timers.remove(&timer);
                part.handle(&self.session, now, Event::Timer(timer));
            }
        }
    }
}
