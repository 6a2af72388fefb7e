//! The links of one node to its peers.

mod buffers;
mod dial;
mod establish;
mod limiter;
mod link;
mod listen;
mod memory;
mod peers;
mod portion;
mod reader;
mod workers;
mod writer;

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU8, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use outpour_core::{BatchId, BlockId, NodeId};
use ring::rand::{SecureRandom, SystemRandom};
use socket2::{Domain, Protocol, SockRef, Socket, Type};
use tokio::net::TcpListener;
use tokio::sync::{Semaphore, mpsc, watch};

use self::buffers::{Cache, Pool};
use self::limiter::NodeLimits;
use self::link::Link;
use self::memory::Memory;
pub(crate) use self::peers::Peers;
use self::workers::Workers;
use crate::config::{Connections, MEMORY_MIN, Member, MeshConfig};
use crate::error::Error;
use crate::event::{Events, MeshEvent, Note, Room, Rooms};
use crate::frame::{Hello, Piece, Purpose};
use crate::identity::NodeIdentity;
use crate::{BlockIo, MESSAGE_BYTES_MAX, TRANSFERS_MAX};

/// How often a peer that cannot be reached is reported.
pub const UNREACHABLE_EVERY: Duration = Duration::from_secs(10);
/// How long a connection has to prove who it is.
const HANDSHAKE_MAX: Duration = Duration::from_secs(5);
/// Events that wait for the user of the mesh.
const EVENTS_MAX: usize = 1024;
/// Messages that were received and wait for the user may take this much.
const MESSAGES_IN_BYTES_MAX: usize = 16 << 20;
/// Connections that may wait to be accepted.
const BACKLOG: i32 = 1024;

/// Counters of a mesh since its start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Payload of blocks and packets received, in bytes.
    pub payload_in: u64,
    /// Payload of blocks and packets sent, in bytes.
    pub payload_out: u64,
    /// All that was read from sockets after the greeting, in bytes.
    pub wire_in: u64,
    /// All that was written to sockets after the greeting, in bytes.
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
    /// Connections that belong to links now.
    pub connections: u64,
}

#[derive(Default)]
struct Counters {
    payload_in: AtomicU64,
    payload_out: AtomicU64,
    wire_in: AtomicU64,
    wire_out: AtomicU64,
    duplicate: AtomicU64,
    rejected_blocks: AtomicU64,
    rejected_packets: AtomicU64,
    packets_out: AtomicU64,
    packets_in: AtomicU64,
    connections: AtomicU64,
}

/// The data plane of one node in one cast.
pub struct Mesh {
    shared: Arc<Shared>,
    addr: SocketAddr,
    ended: mpsc::Receiver<()>,
}

impl Mesh {
    /// Listens and begins to serve. Must be called in a tokio runtime.
    ///
    /// # Errors
    /// If the address cannot be listened on, or threads cannot be started.
    pub fn start(config: MeshConfig) -> Result<(Self, Events), Error> {
        let failed = |error| Error::Listen {
            addr: config.listen,
            error,
        };
        let limits = NodeLimits::new(config.limits);
        let listener = listen(config.listen, &limits).map_err(failed)?;
        let addr = listener.local_addr().map_err(failed)?;
        let threads = std::thread::available_parallelism()
            .map_or(2, usize::from)
            .clamp(2, 8);
        let workers = Workers::start(threads).map_err(failed)?;
        let memory = config.memory.0.max(MEMORY_MIN) as usize;
        let (events, notes) = mpsc::unbounded_channel();
        let (alive, ended) = mpsc::channel(1);
        let mut incarnation = [0; 8];
        SystemRandom::new()
            .fill(&mut incarnation)
            .map_err(|_| failed(std::io::Error::other("no randomness from the system")))?;
        let peers = Arc::new(Peers::default());
        let shared = Arc::new(Shared {
            identity: config.identity,
            connections: config.connections,
            limits,
            incarnation: u64::from_le_bytes(incarnation),
            peers: peers.clone(),
            io: Mutex::default(),
            opened: AtomicU8::new(0),
            links: AtomicUsize::new(0),
            receive_memory: Memory::new(memory / 2),
            send_memory: Memory::new(memory / 4),
            message_memory: Memory::new(MESSAGES_IN_BYTES_MAX),
            cache: Cache::new(memory / 4),
            pool: Arc::default(),
            workers,
            stats: Counters::default(),
            events,
            room: Arc::new(Semaphore::new(EVENTS_MAX)),
            stop: watch::Sender::new(false),
            alive: Mutex::new(Some(alive)),
        });
        shared.spawn(listen::run(shared.clone(), listener));
        Ok((
            Self {
                shared,
                addr,
                ended,
            },
            Events { notes, peers },
        ))
    }

    /// Where this node listens.
    pub const fn local_addr(&self) -> SocketAddr {
        self.addr
    }

    /// Makes a node a member, or changes where and by what it is known.
    pub fn set_member(&self, node: NodeId, member: Member) {
        self.shared.peers.set_member(node, member);
    }

    /// A node is out of the cast for good: its link is closed and it is refused from now on.
    pub fn remove_member(&self, node: NodeId) {
        self.shared.peers.bar(node, "removed from the cast");
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
        shared.peers.each_link(|link| link.wake.notify_one());
    }

    /// This node takes no part in a transfer any more, until it is opened again. All links end, and
    /// begin anew where they are wanted, so every peer learns of it.
    pub fn close(&self, transfer: u8) {
        let shared = &self.shared;
        shared.opened.fetch_and(!(1 << transfer), Ordering::SeqCst);
        let mut slots = shared.io.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(slot) = slots.get_mut(usize::from(transfer)) {
            *slot = None;
        }
        drop(slots);
        let why = || format!("transfer {transfer} is closed");
        shared.peers.each_link(|link| link.close(why()));
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

    /// Counters since the start.
    pub fn stats(&self) -> Stats {
        let stats = &self.shared.stats;
        let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
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
            connections: get(&stats.connections),
        }
    }

    /// Closes everything and waits until no task, thread or socket is left. Events that were not
    /// taken yet can still be taken.
    pub async fn shutdown(mut self) {
        self.shared.end();
        // Every task holds a sender; nothing is ever sent.
        let _ = self.ended.recv().await;
        let shared = self.shared.clone();
        let _ = tokio::task::spawn_blocking(move || shared.workers.join()).await;
    }
}

impl Drop for Mesh {
    fn drop(&mut self) {
        self.shared.end();
    }
}

fn listen(addr: SocketAddr, limits: &NodeLimits) -> std::io::Result<TcpListener> {
    let socket = Socket::new(Domain::for_address(addr), Type::STREAM, Some(Protocol::TCP))?;
    socket.set_reuse_address(true)?;
    socket.set_nonblocking(true)?;
    limits.shape_early(SockRef::from(&socket));
    socket.bind(&addr.into())?;
    socket.listen(BACKLOG)?;
    TcpListener::from_std(socket.into())
}

/// What all tasks of a mesh share.
pub(crate) struct Shared {
    identity: NodeIdentity,
    connections: Connections,
    limits: NodeLimits,
    incarnation: u64,
    peers: Arc<Peers>,
    io: Mutex<[Option<Arc<dyn BlockIo>>; TRANSFERS_MAX as usize]>,
    /// Which transfers are open, as bits.
    opened: AtomicU8,
    links: AtomicUsize,
    receive_memory: Memory,
    send_memory: Memory,
    message_memory: Memory,
    cache: Cache,
    pool: Arc<Pool>,
    workers: Workers,
    stats: Counters,
    events: mpsc::UnboundedSender<Note>,
    /// Bounds what waits in `events`.
    room: Arc<Semaphore>,
    stop: watch::Sender<bool>,
    /// Held by every task, so that the end of the last one is noticed.
    alive: Mutex<Option<mpsc::Sender<()>>>,
}

impl Shared {
    fn hello(&self, purpose: Purpose) -> Hello {
        Hello {
            purpose,
            node: self.identity.node(),
            cast: self.identity.cast(),
            incarnation: self.incarnation,
        }
    }

    fn random(&self) -> u64 {
        let mut bytes = [0; 8];
        // Ids of links need not be secret, only new; zeros would make one attempt fail.
        let _ = SystemRandom::new().fill(&mut bytes);
        u64::from_le_bytes(bytes)
    }

    /// Between half of `time` and all of it.
    fn jitter(&self, time: Duration) -> Duration {
        let share = self.random() as f64 / u64::MAX as f64;
        time.mul_f64(0.5 + share / 2.0)
    }

    // ---- tasks

    /// Starts a task that ends with the mesh wherever it is.
    fn spawn(self: &Arc<Self>, task: impl Future<Output = ()> + Send + 'static) {
        let shared = self.clone();
        self.spawn_to_end(async move {
            tokio::select! {
                () = task => {}
                () = shared.stopped() => {}
            }
        });
    }

    /// Starts a task that sees to its own end when the mesh ends.
    fn spawn_to_end(&self, task: impl Future<Output = ()> + Send + 'static) {
        if let Some(alive) = self.alive() {
            tokio::spawn(async move {
                task.await;
                drop(alive);
            });
        }
    }

    /// To be held by whatever the end of the mesh is to wait for; `None` if it has ended.
    fn alive(&self) -> Option<mpsc::Sender<()>> {
        self.alive
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    async fn stopped(&self) {
        let _ = self.stop.subscribe().wait_for(|stop| *stop).await;
    }

    /// Makes everything end: nobody waits for anything any more.
    fn end(&self) {
        self.alive
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        self.stop.send_replace(true);
        self.room.close();
        self.receive_memory.close();
        self.send_memory.close();
        self.message_memory.close();
        self.workers.close();
    }

    // ---- events

    /// Waits for room for an event; at the end of the mesh it is given at once and in vain.
    async fn room(&self) -> Room {
        self.rooms(1).await.split()
    }

    /// As [`Self::room`], for so many events.
    async fn rooms(&self, count: usize) -> Rooms {
        let rooms = self.room.clone().acquire_many_owned(count as u32);
        Rooms(rooms.await.ok())
    }

    async fn emit(&self, link: u64, event: MeshEvent) {
        let room = self.room().await;
        self.emit_in(room, link, event);
    }

    fn emit_in(&self, room: Room, link: u64, event: MeshEvent) {
        // Without room the mesh is at its end, and nobody has to hear.
        if room._event.is_some() {
            let _ = self.events.send(Note {
                event,
                link,
                _room: room,
            });
        }
    }

    /// Reports that a transfer is up on a link; from then on its end will be reported too.
    async fn emit_up(&self, link: &Link, transfer: u8) {
        let room = self.room().await;
        link.set_up(transfer);
        self.emit_in(
            room,
            link.serial,
            MeshEvent::PeerUp {
                transfer,
                peer: link.peer,
            },
        );
    }

    /// Cuts off a peer that sent what is not a block of the object, or cannot be a packet of it;
    /// returns why, for its link.
    fn reject(&self, link: &Link, transfer: u8, piece: Piece, room: Room) -> String {
        let why = format!("the peer sent wrong bytes for {piece}");
        let from = link.peer;
        let (counter, event) = match piece {
            Piece::Block(block) => (
                &self.stats.rejected_blocks,
                MeshEvent::Rejected {
                    transfer,
                    from,
                    block,
                },
            ),
            Piece::Packet { batch, .. } => (
                &self.stats.rejected_packets,
                MeshEvent::RejectedPacket {
                    transfer,
                    from,
                    batch,
                },
            ),
        };
        counter.fetch_add(1, Ordering::Relaxed);
        self.emit_in(room, link.serial, event);
        self.peers.bar(link.peer, &why);
        link.close(why.clone());
        why
    }

    // ---- transfers and links

    /// The open transfers among those whose bits are set.
    fn opened(&self, bits: u8) -> Vec<(u8, Arc<dyn BlockIo>)> {
        let slots = self.io.lock().unwrap_or_else(PoisonError::into_inner);
        let wanted = (0..TRANSFERS_MAX).filter(|transfer| bits & 1 << transfer != 0);
        wanted
            .filter_map(|t| Some((t, slots.get(usize::from(t))?.clone()?)))
            .collect()
    }

    fn want(self: &Arc<Self>, node: NodeId, at_once: bool) {
        if node != self.identity.node()
            && let Some(news) = self.peers.want(node, at_once)
        {
            self.spawn(dial::run(self.clone(), node, news));
        }
    }

    /// How many links there are.
    fn links(&self) -> usize {
        self.links.load(Ordering::Relaxed)
    }

    fn begin_link(&self) {
        self.links.fetch_add(1, Ordering::Relaxed);
    }

    /// A link has reported its last event.
    fn finish(self: &Arc<Self>, link: &Arc<Link>) {
        self.links.fetch_sub(1, Ordering::Relaxed);
        if let Some(news) = self.peers.finish(link) {
            self.spawn(dial::redial(self.clone(), link.peer, news));
        }
    }

    /// Whether blocks are worth keeping: there is more than one peer that may want them.
    fn many_links(&self) -> bool {
        self.links() > 1
    }

    /// Has something sent on the link to a peer, so that a dead one breaks.
    fn probe(&self, node: NodeId) {
        self.peers.each_link(|link| {
            if link.peer == node {
                link.probe();
            }
        });
    }
}
