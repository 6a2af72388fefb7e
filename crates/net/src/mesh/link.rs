//! A link to a peer: what is queued for it, what both sides are ready for, and the task that
//! keeps its connections together from the first to the last event.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Instant;

use outpour_core::NodeId;
use tokio::sync::{Notify, mpsc, watch};
use tokio::task::JoinSet;

use super::Shared;
use super::dial::{self, Way};
use super::establish::Conn;
use super::reader::Reader;
use super::writer::Writer;
use crate::config::CONNECTIONS_MAX;
use crate::event::MeshEvent;
use crate::frame::{Frame, Piece};
use crate::{BlockIo, TRANSFERS_MAX};

/// Messages that wait for a peer may take this much; a peer that lets more pile up is cut off.
const MESSAGES_BYTES_MAX: usize = 8 << 20;
/// What a waiting message costs beyond its length.
const MESSAGE_COST: usize = 64;
/// Blocks and packets that may wait for a peer: what the protocols of all transfers may have unanswered.
const PIECES_MAX: usize = 64 * TRANSFERS_MAX as usize;

/// One generation of the connection to a peer.
pub(crate) struct Link {
    pub(crate) peer: NodeId,
    /// By what both sides know the link.
    pub(crate) id: u64,
    /// By what this node knows it; never reused.
    pub(crate) serial: u64,
    /// The peer's process.
    pub(crate) incarnation: u64,
    pub(crate) since: Instant,
    /// Wakes the first connection: a message waits, or a transfer was opened.
    pub(crate) wake: Notify,
    /// Wakes one of the connections: a block or packet waits.
    pub(crate) wake_pieces: Notify,
    /// The first connection is to say something, whether there is anything to say or not.
    pub(crate) probing: AtomicBool,
    outbox: Mutex<Outbox>,
    ready: Mutex<Ready>,
    up: watch::Sender<u8>,
    io: [OnceLock<Arc<dyn BlockIo>>; TRANSFERS_MAX as usize],
    attach: mpsc::Sender<Conn>,
    closing: watch::Sender<Option<String>>,
    finished: watch::Sender<bool>,
    jobs: AtomicUsize,
    idle: Notify,
}

#[derive(Default)]
struct Outbox {
    messages: VecDeque<(u8, Vec<u8>)>,
    message_bytes: usize,
    pieces: VecDeque<(u8, Piece)>,
}

/// Which transfers each side has said to be ready for, as bits.
#[derive(Default)]
struct Ready {
    ours: u8,
    theirs: u8,
}

/// Where a link came from.
pub(crate) struct Origin {
    pub(crate) peer: NodeId,
    pub(crate) id: u64,
    pub(crate) incarnation: u64,
}

impl Link {
    pub(crate) fn new(origin: Origin, serial: u64) -> (Arc<Self>, mpsc::Receiver<Conn>) {
        let (attach, extras) = mpsc::channel(usize::from(CONNECTIONS_MAX) - 1);
        let link = Self {
            peer: origin.peer,
            id: origin.id,
            serial,
            incarnation: origin.incarnation,
            since: Instant::now(),
            wake: Notify::new(),
            wake_pieces: Notify::new(),
            probing: AtomicBool::new(false),
            outbox: Mutex::default(),
            ready: Mutex::default(),
            up: watch::Sender::new(0),
            io: Default::default(),
            attach,
            closing: watch::Sender::new(None),
            finished: watch::Sender::new(false),
            jobs: AtomicUsize::new(0),
            idle: Notify::new(),
        };
        (Arc::new(link), extras)
    }

    // ---- what waits to be sent

    pub(crate) fn push_message(&self, transfer: u8, body: Vec<u8>) {
        let mut outbox = self.outbox.lock().unwrap_or_else(PoisonError::into_inner);
        outbox.message_bytes += body.len() + MESSAGE_COST;
        let overflow = outbox.message_bytes > MESSAGES_BYTES_MAX;
        outbox.messages.push_back((transfer, body));
        drop(outbox);
        if overflow {
            self.close("more messages wait for the peer than it takes".into());
        }
        self.wake.notify_one();
    }

    pub(crate) fn pop_message(&self) -> Option<(u8, Vec<u8>)> {
        let mut outbox = self.outbox.lock().unwrap_or_else(PoisonError::into_inner);
        let message = outbox.messages.pop_front()?;
        outbox.message_bytes -= message.1.len() + MESSAGE_COST;
        Some(message)
    }

    pub(crate) fn push_piece(&self, transfer: u8, piece: Piece) {
        let mut outbox = self.outbox.lock().unwrap_or_else(PoisonError::into_inner);
        outbox.pieces.push_back((transfer, piece));
        let overflow = outbox.pieces.len() > PIECES_MAX;
        drop(outbox);
        if overflow {
            self.close(
                "more blocks and packets wait for the peer than a protocol may queue".into(),
            );
        }
        self.wake_pieces.notify_one();
    }

    /// Takes the first waiting block or packet if `fits` says so.
    pub(crate) fn pop_piece<T>(
        &self,
        fits: impl FnOnce(u8, Piece) -> Option<T>,
    ) -> Option<(u8, Piece, T)> {
        let mut outbox = self.outbox.lock().unwrap_or_else(PoisonError::into_inner);
        let &(transfer, piece) = outbox.pieces.front()?;
        let fit = fits(transfer, piece)?;
        outbox.pieces.pop_front();
        Some((transfer, piece, fit))
    }

    pub(crate) fn first_piece(&self) -> Option<(u8, Piece)> {
        let outbox = self.outbox.lock().unwrap_or_else(PoisonError::into_inner);
        outbox.pieces.front().copied()
    }

    /// Has a sign of life sent, so that a link that is dead without knowing it breaks.
    pub(crate) fn probe(&self) {
        self.probing.store(true, Ordering::Relaxed);
        self.wake.notify_one();
    }

    // ---- what both sides are ready for

    /// Notes that we are ready for a transfer and are about to say so; whether the peer is.
    pub(crate) fn announce(&self, transfer: u8, io: Arc<dyn BlockIo>) -> bool {
        if let Some(slot) = self.io.get(usize::from(transfer)) {
            let _ = slot.set(io);
        }
        let mut ready = self.ready.lock().unwrap_or_else(PoisonError::into_inner);
        ready.ours |= 1 << transfer;
        ready.theirs & 1 << transfer != 0
    }

    /// Which transfers we have announced, as bits.
    pub(crate) fn announced(&self) -> u8 {
        self.ready
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .ours
    }

    /// Notes that the peer is ready; whether we have announced the transfer too, `None` if the
    /// peer says it twice.
    pub(crate) fn peer_ready(&self, transfer: u8) -> Option<bool> {
        let mut ready = self.ready.lock().unwrap_or_else(PoisonError::into_inner);
        let bit = 1 << transfer;
        if ready.theirs & bit != 0 {
            return None;
        }
        ready.theirs |= bit;
        Some(ready.ours & bit != 0)
    }

    pub(crate) fn set_up(&self, transfer: u8) {
        self.up.send_modify(|up| *up |= 1 << transfer);
    }

    pub(crate) fn is_up(&self, transfer: u8) -> bool {
        *self.up.borrow() & 1 << transfer != 0
    }

    /// Waits until a transfer is up; for connections that may run ahead of the first one.
    pub(crate) async fn wait_up(&self, transfer: u8) {
        // The sender is part of the link, so this cannot fail while the link is borrowed.
        let _ = self
            .up
            .subscribe()
            .wait_for(|up| up & 1 << transfer != 0)
            .await;
    }

    pub(crate) fn io(&self, transfer: u8) -> Option<&Arc<dyn BlockIo>> {
        self.io.get(usize::from(transfer))?.get()
    }

    /// How long a block or packet is; `None` if the transfer has no such thing.
    pub(crate) fn piece_len(&self, transfer: u8, piece: Piece) -> Option<u32> {
        let io = self.io(transfer)?;
        match piece {
            Piece::Block(block) => io.block_len(block),
            Piece::Packet { batch, .. } => io.packets()?.packet_len(batch),
        }
    }

    // ---- beginning and end

    /// Adds a connection for blocks; false if there are enough.
    pub(crate) fn attach(&self, conn: Conn) -> bool {
        self.attach.try_send(conn).is_ok()
    }

    /// Begins to close the link; the first reason given counts.
    pub(crate) fn close(&self, why: String) {
        self.closing.send_if_modified(|closing| {
            let first = closing.is_none();
            if first {
                *closing = Some(why);
            }
            first
        });
    }

    pub(crate) fn is_closing(&self) -> bool {
        self.closing.borrow().is_some()
    }

    async fn closed(&self) -> String {
        let mut closing = self.closing.subscribe();
        let why = closing.wait_for(Option::is_some).await;
        why.ok().and_then(|why| why.clone()).unwrap_or_default()
    }

    /// Waits until the last event of the link was reported.
    pub(crate) async fn finished(&self) {
        let _ = self
            .finished
            .subscribe()
            .wait_for(|finished| *finished)
            .await;
    }

    async fn jobs_done(&self) {
        while self.jobs.load(Ordering::SeqCst) > 0 {
            self.idle.notified().await;
        }
    }
}

/// A block of a link that is being verified or stored: the link's end waits for it.
pub(crate) struct InFlight(Arc<Link>);

impl InFlight {
    pub(crate) fn new(link: Arc<Link>) -> Self {
        link.jobs.fetch_add(1, Ordering::SeqCst);
        Self(link)
    }

    pub(crate) fn link(&self) -> &Link {
        &self.0
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        if self.0.jobs.fetch_sub(1, Ordering::SeqCst) == 1 {
            self.0.idle.notify_one();
        }
    }
}

/// How a new link begins.
pub(crate) struct Start {
    pub(crate) link: Arc<Link>,
    pub(crate) conn: Conn,
    pub(crate) extras: mpsc::Receiver<Conn>,
    /// The link it takes the place of, whose events come first.
    pub(crate) previous: Option<Arc<Link>>,
    /// What the peer waits for, if the decision was ours.
    pub(crate) welcome: Option<Frame>,
    /// If we dialled: where, and how many more connections to open there.
    pub(crate) more: Option<(Way, u8)>,
}

/// Runs a link from its first event to its last.
pub(crate) async fn run(shared: Arc<Shared>, start: Start) {
    let Start {
        link,
        conn,
        mut extras,
        previous,
        welcome,
        more,
    } = start;
    if let Some(previous) = previous {
        previous.finished().await;
    }
    let mut halves = JoinSet::new();
    spawn_halves(&mut halves, &shared, &link, conn, true, welcome);
    if let Some((way, count)) = more {
        (1..=count).for_each(|index| {
            shared.spawn(dial::extra(shared.clone(), link.clone(), way, index));
        });
    }
    let mut connections = 1;
    let why = loop {
        tokio::select! {
            why = link.closed() => break why,
            () = shared.stopped() => break "this node ends".into(),
            Some(conn) = extras.recv() => {
                if connections < u64::from(CONNECTIONS_MAX) {
                    connections += 1;
                    spawn_halves(&mut halves, &shared, &link, conn, false, None);
                }
            }
            Some(ended) = halves.join_next() => {
                break ended.unwrap_or_else(|panic| panic.to_string());
            }
        }
    };
    link.close(why);
    halves.shutdown().await;
    shared
        .stats
        .connections
        .fetch_sub(connections, Ordering::Relaxed);
    link.jobs_done().await;
    tracing::debug!(peer = %link.peer, link = link.serial, why = ?link.closing.borrow(), "link down");
    for transfer in (0..TRANSFERS_MAX).filter(|transfer| link.is_up(*transfer)) {
        shared
            .emit(
                link.serial,
                MeshEvent::PeerDown {
                    transfer,
                    peer: link.peer,
                },
            )
            .await;
    }
    shared.finish(&link);
    link.finished.send_replace(true);
}

fn spawn_halves(
    halves: &mut JoinSet<String>,
    shared: &Arc<Shared>,
    link: &Arc<Link>,
    conn: Conn,
    first: bool,
    welcome: Option<Frame>,
) {
    shared.stats.connections.fetch_add(1, Ordering::Relaxed);
    let Conn {
        stream,
        sealer,
        inbound,
    } = conn;
    let (read, write) = stream.into_split();
    let reader = Reader::new(shared.clone(), link.clone(), read, inbound, first);
    let writer = Writer::new(shared.clone(), link.clone(), write, sealer, first, welcome);
    halves.spawn(reader.run());
    halves.spawn(writer.run());
}
