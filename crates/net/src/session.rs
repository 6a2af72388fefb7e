//! One cast, or whatever else a group does together, as one of its members sees it: its peers, the
//! links to them, and what moves over these.

mod dial;
mod holders;
mod link;
mod peers;

use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use outpour_core::{BatchId, BlockId, NodeId, Priority, Rate};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, watch};

pub(crate) use self::holders::{Asked, Held, Holders, Waited};
pub(crate) use self::link::{InFlight, Link, hold};
pub use self::peers::Achieved;
pub(crate) use self::peers::{Admitted, BACKOFF_MAX, MEMBER_PATIENCE, Peers, Standing};
use crate::config::{Connections, Member, SessionConfig, SessionLimits};
use crate::endpoint::{Core, CrewHandle, Keep, Pressure, SharedBucket, Trunk};
use crate::error::Error;
use crate::event::{Events, Note, Room, Rooms, SessionEvent};
use crate::frame::{Join, Piece, Refusal};
use crate::identity::SessionId;
use crate::{BlockIo, LinkError, MESSAGE_BYTES_MAX, NEWS_MAX, TRANSFERS_MAX};

/// Events that wait for the user of a session.
const EVENTS_MAX: usize = 1024;

// A request for room for a piece and all its news is granted some time.
const _: () = assert!(NEWS_MAX < EVENTS_MAX);
const _: () = assert!(Priority::WEIGHT_MAX <= u8::MAX as u32);

/// Counters of a session since its start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Payload of blocks and packets received, in bytes.
    pub payload_in: u64,
    /// Payload of blocks and packets sent, in bytes.
    pub payload_out: u64,
    /// About what was received on the wire, with the overhead of TLS and frames, in bytes.
    pub wire_in: u64,
    /// About what was sent on the wire, with the overhead of TLS and frames, in bytes.
    pub wire_out: u64,
    /// Payload of blocks and packets received that were of no use any more, in bytes.
    pub duplicate: u64,
    /// Blocks that were not what the manifest says.
    pub rejected_blocks: u64,
    /// Packets that could not be any.
    pub rejected_packets: u64,
    /// Packets sent.
    pub packets_out: u64,
    /// Packets received.
    pub packets_in: u64,
    /// Connections that carry links of the session now, of which other sessions may have links, too.
    pub connections: u64,
}

#[derive(Default)]
pub(crate) struct Counters {
    pub(crate) payload_in: AtomicU64,
    pub(crate) payload_out: AtomicU64,
    pub(crate) wire_in: AtomicU64,
    pub(crate) wire_out: AtomicU64,
    pub(crate) duplicate: AtomicU64,
    pub(crate) rejected_blocks: AtomicU64,
    pub(crate) rejected_packets: AtomicU64,
    pub(crate) packets_out: AtomicU64,
    pub(crate) packets_in: AtomicU64,
}

/// A member's part in a session of an [`crate::Endpoint`].
///
/// It ends when it is dropped, and leaves nothing in others.
pub struct Session {
    shared: Arc<Shared>,
    ended: mpsc::Receiver<()>,
    _endpoint: Arc<Keep>,
}

impl Session {
    pub(crate) fn start(
        core: Arc<Core>,
        endpoint: Arc<Keep>,
        config: &SessionConfig,
    ) -> Result<(Self, Events), Error> {
        let (events, notes) = mpsc::unbounded_channel();
        let (alive, ended) = mpsc::channel(1);
        let peers = Arc::new(Peers::default());
        let weight = config.priority.weight();
        let serial = core.next_serial();
        let shared = Arc::new(Shared {
            serial,
            id: config.id,
            node: config.node,
            connections: config.connections,
            peers: peers.clone(),
            io: Mutex::default(),
            opened: AtomicU8::new(0),
            links: AtomicUsize::new(0),
            incoming_memory: Holders::new(core.receive_memory.share(weight)),
            outgoing_memory: Holders::new(core.send_memory.share(weight)),
            message_memory: Holders::new(core.message_memory.share(weight)),
            crew: core.workers.crew(weight),
            weight: AtomicU8::new(weight as u8),
            outgoing: SharedBucket::new(config.limits.outgoing),
            incoming: SharedBucket::new(config.limits.incoming),
            paused: Mutex::default(),
            has_paused: AtomicBool::new(false),
            stats: Counters::default(),
            events,
            room: Arc::new(Semaphore::new(EVENTS_MAX)),
            stop: watch::Sender::new(false),
            alive: Mutex::new(Some(alive)),
            core,
        });
        shared.core.add_session(&shared)?;
        shared.share_rates(weight);
        let session = Self {
            shared,
            ended,
            _endpoint: endpoint,
        };
        Ok((session, Events { notes, peers }))
    }

    /// Which session this is.
    pub fn id(&self) -> SessionId {
        self.shared.id
    }

    /// Which member this is.
    pub fn node(&self) -> NodeId {
        self.shared.node
    }

    /// Makes a node a member, or changes where and by what it is known.
    pub fn set_member(&self, node: NodeId, member: Member) {
        self.shared.peers.set_member(node, member);
        self.shared.core.note_member();
    }

    /// A node is out of the session for good: its link is closed and it is refused from now on.
    pub fn remove_member(&self, node: NodeId) {
        let why = LinkError::Parted("removed from the session");
        self.shared.peers.bar(node, &why);
    }

    /// This node is ready for a transfer; every peer is told. A transfer that is open stays as it is
    /// until it is [closed](Self::close).
    ///
    /// # Panics
    /// If `transfer` is not below [`TRANSFERS_MAX`].
    pub fn open(&self, transfer: u8, io: Arc<dyn BlockIo>) {
        assert!(
            transfer < TRANSFERS_MAX,
            "transfer {transfer} of {TRANSFERS_MAX}"
        );
        let shared = &self.shared;
        let mut slots = shared.io.lock().unwrap_or_else(PoisonError::into_inner);
        slots[usize::from(transfer)].get_or_insert(io);
        drop(slots);
        shared.opened.fetch_or(1 << transfer, Ordering::SeqCst);
        shared.peers.each_link(|link| link.trunk.wake());
    }

    /// This node takes no part in a transfer any more, until it is opened again. The session's links end, and
    /// begin anew where they are wanted, so every peer learns of it.
    pub fn close(&self, transfer: u8) {
        let shared = &self.shared;
        shared.opened.fetch_and(!(1 << transfer), Ordering::SeqCst);
        let mut slots = shared.io.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(slot) = slots.get_mut(usize::from(transfer)) {
            *slot = None;
        }
        drop(slots);
        let why = LinkError::Parted("a transfer is closed");
        shared.peers.each_link(|link| link.close(why.clone()));
    }

    /// Keeps a link to a peer from now on: dials, and dials again when it breaks, until the peer
    /// is disconnected or removed.
    pub fn connect(&self, node: NodeId) {
        self.shared.want(node, false);
    }

    /// As [`Self::connect`], and tries at once: for a peer that is known not to reach this node.
    pub fn dial_now(&self, node: NodeId) {
        self.shared.want(node, true);
    }

    /// Closes the link to a peer and stops connecting; `PeerDown` follows where it was up. The
    /// peer may connect again.
    pub fn disconnect(&self, node: NodeId) {
        self.shared.peers.disconnect(node);
    }

    /// Sends a message to a peer that is up; to one that is not it is dropped.
    ///
    /// # Panics
    /// If the message is longer than [`MESSAGE_BYTES_MAX`].
    pub fn send(&self, transfer: u8, to: NodeId, body: Vec<u8>) {
        assert!(
            body.len() <= MESSAGE_BYTES_MAX,
            "message of {} bytes",
            body.len()
        );
        if let Some(link) = self.shared.peers.link_for(to, transfer) {
            link.push_message(transfer, body);
        }
    }

    /// Queues a block for a peer that is up; for one that is not it is dropped.
    pub fn send_block(&self, transfer: u8, to: NodeId, block: BlockId) {
        if let Some(link) = self.shared.peers.link_for(to, transfer) {
            link.push_piece(transfer, Piece::Block(block));
        }
    }

    /// Queues a packet for a peer that is up; for one that is not it is dropped. It is made when
    /// its turn comes, of verified blocks alone if it is to be pure.
    pub fn send_packet(&self, transfer: u8, to: NodeId, batch: BatchId, pure: bool) {
        if let Some(link) = self.shared.peers.link_for(to, transfer) {
            link.push_piece(transfer, Piece::Packet { batch, pure });
        }
    }

    /// Changes how fast the session's data may move, from now on and without reconnecting.
    pub fn set_limits(&self, limits: SessionLimits) {
        let shared = &self.shared;
        let now = shared.core.limits.clock.now();
        shared.outgoing.lock().set_rate(now, limits.outgoing);
        shared.incoming.lock().set_rate(now, limits.incoming);
        shared.core.limits.note_change();
    }

    /// Changes the session's share of what the endpoint's sessions compete for, from now on.
    pub fn set_priority(&self, priority: Priority) {
        let (shared, weight) = (&self.shared, priority.weight());
        shared.weight.store(weight as u8, Ordering::Relaxed);
        for memory in [
            &shared.incoming_memory,
            &shared.outgoing_memory,
            &shared.message_memory,
        ] {
            memory.memory().set_weight(weight);
        }
        shared.crew.set_weight(weight);
        shared.share_rates(weight);
    }

    /// Limits what this node sends to a peer, on the wire, from now on and without reconnecting.
    pub fn set_peer_rate(&self, node: NodeId, rate: Rate) {
        let shared = &self.shared;
        let now = shared.core.limits.clock.now();
        let peering = shared.peers.peering(node);
        peering.outgoing.lock().set_rate(now, rate);
        shared.core.limits.note_change();
    }

    /// What passed between this node and a peer in the last half second.
    pub fn achieved(&self, node: NodeId) -> Achieved {
        let now = self.shared.core.limits.clock.now();
        self.shared.peers.peering(node).achieved(now)
    }

    /// Counters since the start.
    pub fn stats(&self) -> Stats {
        let stats = &self.shared.stats;
        let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let mut trunks: Vec<Arc<Trunk>> = Vec::new();
        self.shared.peers.each_link(|link| {
            let known = trunks.iter().any(|trunk| Arc::ptr_eq(trunk, &link.trunk));
            if !known && !link.is_closing() {
                trunks.push(link.trunk.clone());
            }
        });
        Stats {
            payload_in: get(&stats.payload_in),
            payload_out: get(&stats.payload_out),
            wire_in: get(&stats.wire_in),
            wire_out: get(&stats.wire_out),
            duplicate: get(&stats.duplicate),
            rejected_blocks: get(&stats.rejected_blocks),
            rejected_packets: get(&stats.rejected_packets),
            packets_out: get(&stats.packets_out),
            packets_in: get(&stats.packets_in),
            connections: trunks.iter().map(|trunk| trunk.connections() as u64).sum(),
        }
    }

    /// Closes everything of the session and waits until nothing of it is left. Events that were not
    /// taken yet can still be taken.
    pub async fn shutdown(mut self) {
        self.shared.end();
        // Every task holds a sender; nothing is ever sent.
        let _ = self.ended.recv().await;
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        self.shared.end();
    }
}

/// What all tasks of a session share.
pub(crate) struct Shared {
    pub(crate) core: Arc<Core>,
    /// By what the endpoint knows it; never reused.
    pub(crate) serial: u64,
    pub(crate) id: SessionId,
    pub(crate) node: NodeId,
    connections: Connections,
    pub(crate) peers: Arc<Peers>,
    io: Mutex<[Option<Arc<dyn BlockIo>>; TRANSFERS_MAX as usize]>,
    /// Which transfers are open, as bits.
    opened: AtomicU8,
    links: AtomicUsize,
    pub(crate) incoming_memory: Arc<Holders>,
    pub(crate) outgoing_memory: Arc<Holders>,
    pub(crate) message_memory: Arc<Holders>,
    pub(crate) crew: CrewHandle,
    weight: AtomicU8,
    pub(crate) outgoing: Arc<SharedBucket>,
    pub(crate) incoming: Arc<SharedBucket>,
    /// Links whose peers were asked to pause for lack of memory.
    paused: Mutex<Vec<Weak<Link>>>,
    has_paused: AtomicBool,
    pub(crate) stats: Counters,
    events: mpsc::UnboundedSender<Note>,
    /// Bounds what waits in `events`.
    room: Arc<Semaphore>,
    stop: watch::Sender<bool>,
    /// Held by every task, so that the end of the last one is noticed.
    alive: Mutex<Option<mpsc::Sender<()>>>,
}

impl Shared {
    pub(crate) fn weight(&self) -> u32 {
        u32::from(self.weight.load(Ordering::Relaxed))
    }

    fn share_rates(&self, weight: u32) {
        let core = &self.core;
        core.limits.outgoing.set_flow(self.serial, weight);
        core.limits.incoming.set_flow(self.serial, weight);
        core.cache.set_weight(self.serial, weight);
    }

    // ---- tasks

    /// Starts a task that ends with the session wherever it is.
    fn spawn(self: &Arc<Self>, task: impl Future<Output = ()> + Send + 'static) {
        let shared = self.clone();
        self.spawn_to_end(async move {
            tokio::select! {
                () = task => {}
                () = shared.stopped() => {}
            }
        });
    }

    /// Starts a task that sees to its own end when the session ends.
    fn spawn_to_end(&self, task: impl Future<Output = ()> + Send + 'static) {
        if let Some(alive) = self.alive() {
            tokio::spawn(async move {
                task.await;
                drop(alive);
            });
        }
    }

    /// To be held by whatever the end of the session is to wait for; `None` if it has ended.
    pub(crate) fn alive(&self) -> Option<mpsc::Sender<()>> {
        self.alive
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    pub(crate) async fn stopped(&self) {
        let _ = self.stop.subscribe().wait_for(|stop| *stop).await;
    }

    /// Ends everything: no task waits any more, and all memory is given back.
    pub(crate) fn end(&self) {
        self.alive
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        self.stop.send_replace(true);
        self.room.close();
        self.incoming_memory.memory().close();
        self.outgoing_memory.memory().close();
        self.message_memory.memory().close();
        self.crew.close();
        self.core.remove_session(self);
    }

    // ---- events

    /// Waits for room for an event; at the end of the session it is given at once and in vain.
    pub(crate) async fn room(&self) -> Room {
        self.rooms(1).await.split()
    }

    /// As [`Self::room`], for so many events.
    pub(crate) async fn rooms(&self, count: usize) -> Rooms {
        debug_assert!(count > 0);
        debug_assert!(count <= EVENTS_MAX, "there is never room for so many");
        let rooms = self.room.clone().acquire_many_owned(count as u32);
        Rooms(rooms.await.ok())
    }

    pub(crate) async fn emit(&self, link: u64, event: SessionEvent) {
        let room = self.room().await;
        self.emit_in(room, link, event);
    }

    fn emit_in(&self, room: Room, link: u64, event: SessionEvent) {
        debug_assert_eq!(
            link == 0,
            matches!(event, SessionEvent::Unreachable { .. }),
            "all other events are about a link"
        );
        // Without room the session is at its end, and the event does not matter.
        if room.is_some() {
            let _ = self.events.send(Note {
                event,
                link,
                _room: room,
            });
        }
    }

    /// Reports something about a link, unless it has ended.
    pub(crate) fn report(&self, link: &Link, room: Room, event: SessionEvent) {
        link.while_it_lasts(|| self.emit_in(room, link.serial, event));
    }

    /// Reports that a transfer is up on a link; from then on its end will be reported too.
    pub(crate) fn report_up(&self, link: &Link, room: Room, transfer: u8) {
        let peer = link.peer;
        link.while_it_lasts(|| {
            link.set_up(transfer);
            self.emit_in(room, link.serial, SessionEvent::PeerUp { transfer, peer });
        });
    }

    /// Cuts off a peer that sent what is not a block of the object, or cannot be a packet of it.
    pub(crate) fn reject(&self, link: &Link, transfer: u8, piece: Piece, room: Room) {
        let from = link.peer;
        let (counter, event) = match piece {
            Piece::Block(block) => (
                &self.stats.rejected_blocks,
                SessionEvent::Rejected {
                    transfer,
                    from,
                    block,
                },
            ),
            Piece::Packet { batch, .. } => (
                &self.stats.rejected_packets,
                SessionEvent::RejectedPacket {
                    transfer,
                    from,
                    batch,
                },
            ),
        };
        counter.fetch_add(1, Ordering::Relaxed);
        self.report(link, room, event);
        link.accuse(LinkError::Peer(format!("it sent wrong bytes for {piece}")));
    }

    // ---- memory

    /// Asks a peer that shares its trunk with other sessions to pause before this one has no memory
    /// left, when the others would have to wait with it.
    pub(crate) fn pause_early(&self, link: &Arc<Link>) {
        if self.incoming_memory.memory().pressure() == Pressure::High && link.hold(hold::MEMORY) {
            let mut paused = self.paused.lock().unwrap_or_else(PoisonError::into_inner);
            paused.push(Arc::downgrade(link));
            self.has_paused.store(true, Ordering::SeqCst);
        }
    }

    /// Memory was given back: peers that were asked to pause may continue once there is enough.
    pub(crate) fn resume(&self) {
        if !self.has_paused.load(Ordering::SeqCst)
            || self.incoming_memory.memory().pressure() != Pressure::Low
        {
            return;
        }
        let mut paused = self.paused.lock().unwrap_or_else(PoisonError::into_inner);
        self.has_paused.store(false, Ordering::SeqCst);
        let links = std::mem::take(&mut *paused);
        drop(paused);
        for link in links.iter().filter_map(Weak::upgrade) {
            link.release(hold::MEMORY);
        }
    }

    /// What came beyond the session's limit is paid for by then, and a peer may go on.
    pub(crate) fn spawn_release(self: &Arc<Self>, link: Arc<Link>, at: tokio::time::Instant) {
        let mut changes = self.core.limits.changes();
        self.spawn(async move {
            tokio::select! {
                () = tokio::time::sleep_until(at) => {}
                // It is another time then, which the next look at the limit finds.
                _ = changes.changed() => {}
            }
            link.release(hold::RATE);
        });
    }

    // ---- transfers and links

    /// The open transfers among those that a link has not announced.
    pub(crate) fn opened_since(&self, announced: u8) -> Vec<(u8, Arc<dyn BlockIo>)> {
        let news = self.opened.load(Ordering::SeqCst) & !announced;
        if news == 0 {
            return Vec::new();
        }
        let slots = self.io.lock().unwrap_or_else(PoisonError::into_inner);
        let wanted = (0..TRANSFERS_MAX).filter(|transfer| news & 1 << transfer != 0);
        wanted
            .filter_map(|t| Some((t, slots.get(usize::from(t))?.clone()?)))
            .collect()
    }

    fn want(self: &Arc<Self>, node: NodeId, at_once: bool) {
        if node != self.node
            && let Some(news) = self.peers.want(node, at_once)
        {
            self.spawn(dial::run(self.clone(), node, news));
        }
    }

    /// A peer has opened a channel to this session: answers it, now or when it is decided whether
    /// the peer is a member, or declines.
    pub(crate) fn answer(
        self: Arc<Self>,
        trunk: Arc<Trunk>,
        join: Join,
        theirs: u16,
        permit: OwnedSemaphorePermit,
    ) {
        debug_assert_eq!(join.session, self.id);
        debug_assert_eq!(join.to, self.node);
        let answering = self.peers.begin_answer(join.from);
        match self.peers.admit(&self, &trunk, join, theirs) {
            // What follows on the channel may be here already.
            Admitted::Joined => {}
            Admitted::Linked(link) => self.start_link(link),
            Admitted::After(_) | Admitted::Not(Refusal::NotMember) => {
                self.clone().spawn(async move {
                    self.answer_in_time(trunk, join, theirs).await;
                    drop((answering, permit));
                });
            }
            Admitted::Not(why) => trunk.decline(theirs, why),
        }
    }

    async fn answer_in_time(self: &Arc<Self>, trunk: Arc<Trunk>, join: Join, theirs: u16) {
        self.peers.meet(join.from).await;
        let why = loop {
            match self.peers.admit(self, &trunk, join, theirs) {
                Admitted::Joined => return,
                Admitted::Linked(link) => return self.start_link(link),
                Admitted::After(old) => old.finished().await,
                Admitted::Not(why) => break why,
            }
        };
        trunk.decline(theirs, why);
    }

    /// Opens a channel to a peer over a trunk and waits for its answer.
    async fn call(self: &Arc<Self>, trunk: &Arc<Trunk>, node: NodeId) -> Result<(), LinkError> {
        debug_assert_ne!(node, self.node, "no node calls itself");
        let Some(link) = self.peers.call(self, trunk, node) else {
            return Err(LinkError::Refused(Refusal::NoTrunk));
        };
        self.start_link(link.clone());
        let answered = link.answered().await;
        if answered.is_err() {
            // The peer counts as linked until then.
            link.finished().await;
        }
        answered
    }

    fn start_link(self: &Arc<Self>, link: Arc<Link>) {
        debug_assert!(Arc::ptr_eq(&link.session, self));
        self.links.fetch_add(1, Ordering::Relaxed);
        self.core.links.fetch_add(1, Ordering::Relaxed);
        // A session that ends has its links end first, whenever they came.
        let alive = self.alive();
        tokio::spawn(async move {
            link::run(link).await;
            drop(alive);
        });
    }

    /// A link has reported its last event.
    fn end_link(self: &Arc<Self>, link: &Arc<Link>) {
        let own = self.links.fetch_sub(1, Ordering::Relaxed);
        let all = self.core.links.fetch_sub(1, Ordering::Relaxed);
        debug_assert!(own > 0, "a link ended that had not begun");
        debug_assert!(all > 0, "a link ended that had not begun");
        // What it held of memory was given back.
        self.resume();
        if let Some(news) = self.peers.finish(link) {
            self.spawn(dial::redial(self.clone(), link.peer, news));
        }
    }

    /// Whether blocks are worth keeping: there is more than one peer that may want them.
    pub(crate) fn many_links(&self) -> bool {
        self.links.load(Ordering::Relaxed) > 1
    }

    /// What the session's data may move at in both directions.
    pub(crate) fn rates(&self) -> (Rate, Rate) {
        (self.outgoing.rate(), self.incoming.rate())
    }

    pub(crate) const fn connections(&self) -> Connections {
        self.connections
    }
}
