//! A link to a peer: what is queued for it, what both sides are ready for, and the task that
//! watches over it from the first to the last event.

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use outpour_core::NodeId;
use tokio::sync::{Notify, watch};

use super::Shared;
use super::peers::{MEMBER_PATIENCE, Peering};
use crate::endpoint::{Arriving, Trunk};
use crate::event::SessionEvent;
use crate::frame::{Frame, Piece};
use crate::{BlockIo, LinkError, MESSAGE_BYTES_MAX, TRANSFERS_MAX};

/// Messages that wait for a peer may take this much; a peer that lets more pile up is cut off.
const MESSAGES_BYTES_MAX: usize = 8 << 20;
/// What a waiting message costs beyond its length.
const MESSAGE_COST: usize = 64;
/// Blocks and packets that may wait for a peer: what the protocols of all transfers may have unanswered.
const PIECES_MAX: usize = 64 * TRANSFERS_MAX as usize;
/// How long the peer has to answer that it takes part in the session.
const ANSWER_MAX: Duration = Duration::from_secs(5);

// Transfers are bits of a byte.
const _: () = assert!(TRANSFERS_MAX as u32 <= u8::BITS);
const _: () = assert!(MESSAGE_BYTES_MAX + MESSAGE_COST <= MESSAGES_BYTES_MAX);
// A peer that takes its time to learn that we are a member answers in time all the same.
const _: () = assert!(MEMBER_PATIENCE.as_millis() < ANSWER_MAX.as_millis());

/// Why the peer is asked to pause.
pub(crate) mod hold {
    /// There is little memory left for the session.
    pub(crate) const MEMORY: u8 = 1;
    /// More has come than the session's limit lets in.
    pub(crate) const RATE: u8 = 2;
}

/// One generation of the link to a peer.
pub(crate) struct Link {
    pub(crate) session: Arc<Shared>,
    pub(crate) peer: NodeId,
    /// By what this node knows it; never reused in the session.
    pub(crate) serial: u64,
    pub(crate) trunk: Arc<Trunk>,
    /// Our channel of the trunk.
    pub(crate) channel: u16,
    pub(crate) since: Instant,
    /// What outlives the link: the peer's limit, and what passed.
    pub(crate) peering: Arc<Peering>,
    /// Whether the peer has opened its channel, too.
    joined: watch::Sender<bool>,
    outbox: Mutex<Outbox>,
    ready: Mutex<Ready>,
    up: watch::Sender<u8>,
    io: [OnceLock<Arc<dyn BlockIo>>; TRANSFERS_MAX as usize],
    /// Blocks and packets of which a part is here, by connection; `None` once the link is closing.
    arriving: Mutex<Option<BTreeMap<usize, Arriving>>>,
    /// The peer has no room for more blocks and packets.
    held_off: AtomicBool,
    /// Why the peer was told that there is none here.
    holding: AtomicU8,
    closing: watch::Sender<Option<LinkError>>,
    /// What the peer did was reported already.
    accused: AtomicBool,
    /// Whether the last event but the end was reported.
    ended: Mutex<bool>,
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

impl Outbox {
    fn check(&self) {
        debug_assert_eq!(self.messages.is_empty(), self.message_bytes == 0);
        debug_assert!(self.message_bytes >= self.messages.len() * MESSAGE_COST);
    }
}

/// Which transfers each side has said to be ready for, and which of those of both are known or being
/// reported to be up, as bits.
#[derive(Default)]
struct Ready {
    ours: u8,
    theirs: u8,
    told: u8,
}

impl Ready {
    /// Transfers that both are ready for and that nobody reports yet.
    const fn due(&self) -> u8 {
        self.ours & self.theirs & !self.told
    }

    /// Whether a transfer is to be reported, by the one who asks.
    fn claim(&mut self, transfer: u8) -> bool {
        let bit = self.due() & 1 << transfer;
        self.told |= bit;
        bit != 0
    }
}

/// What a link is made of.
pub(crate) struct Origin {
    pub(crate) session: Arc<Shared>,
    pub(crate) peer: NodeId,
    pub(crate) trunk: Arc<Trunk>,
    pub(crate) channel: u16,
    pub(crate) peering: Arc<Peering>,
    /// Whether the peer has opened its channel.
    pub(crate) joined: bool,
}

impl Link {
    pub(crate) fn new(origin: Origin, serial: u64) -> Arc<Self> {
        let Origin {
            session,
            peer,
            trunk,
            channel,
            peering,
            joined,
        } = origin;
        Arc::new(Self {
            session,
            peer,
            serial,
            trunk,
            channel,
            since: Instant::now(),
            peering,
            joined: watch::Sender::new(joined),
            outbox: Mutex::default(),
            ready: Mutex::default(),
            up: watch::Sender::new(0),
            io: Default::default(),
            arriving: Mutex::new(Some(BTreeMap::new())),
            held_off: AtomicBool::new(false),
            holding: AtomicU8::new(0),
            closing: watch::Sender::new(None),
            accused: AtomicBool::new(false),
            ended: Mutex::new(false),
            finished: watch::Sender::new(false),
            jobs: AtomicUsize::new(0),
            idle: Notify::new(),
        })
    }

    // ---- what waits to be sent

    pub(crate) fn push_message(&self, transfer: u8, body: Vec<u8>) {
        debug_assert!(self.is_up(transfer), "the user was not told of this link");
        debug_assert!(body.len() <= MESSAGE_BYTES_MAX);
        let mut outbox = self.outbox();
        outbox.message_bytes += body.len() + MESSAGE_COST;
        let overflow = outbox.message_bytes > MESSAGES_BYTES_MAX;
        outbox.messages.push_back((transfer, body));
        outbox.check();
        drop(outbox);
        if overflow {
            let why = "more messages wait for the peer than it takes";
            self.close(LinkError::Network(why.into()));
        }
        self.trunk.wake();
    }

    pub(crate) fn pop_message(&self) -> Option<(u8, Vec<u8>)> {
        let mut outbox = self.outbox();
        let message = outbox.messages.pop_front()?;
        outbox.message_bytes -= message.1.len() + MESSAGE_COST;
        outbox.check();
        Some(message)
    }

    pub(crate) fn push_piece(&self, transfer: u8, piece: Piece) {
        debug_assert!(self.is_up(transfer), "the user was not told of this link");
        let mut outbox = self.outbox();
        outbox.pieces.push_back((transfer, piece));
        let overflow = outbox.pieces.len() > PIECES_MAX;
        drop(outbox);
        if overflow {
            let why = "more blocks and packets wait for the peer than a protocol may queue";
            self.close(LinkError::Local(why.into()));
        }
        self.trunk.wake_all();
    }

    /// Takes the first waiting block or packet if `fits` says so.
    pub(crate) fn pop_piece<T>(
        &self,
        fits: impl FnOnce(u8, Piece) -> Option<T>,
    ) -> Option<(u8, Piece, T)> {
        let mut outbox = self.outbox();
        let &(transfer, piece) = outbox.pieces.front()?;
        let fit = fits(transfer, piece)?;
        outbox.pieces.pop_front();
        Some((transfer, piece, fit))
    }

    pub(crate) fn first_piece(&self) -> Option<(u8, Piece)> {
        self.outbox().pieces.front().copied()
    }

    fn outbox(&self) -> MutexGuard<'_, Outbox> {
        self.outbox.lock().unwrap_or_else(PoisonError::into_inner)
    }

    // ---- what both sides are ready for

    /// The peer has opened its channel.
    pub(crate) fn join(&self) {
        self.joined.send_replace(true);
    }

    pub(crate) fn has_joined(&self) -> bool {
        *self.joined.borrow()
    }

    /// Whether both sides have opened their channels and none has closed it.
    pub(crate) fn is_open(&self) -> bool {
        self.has_joined() && !self.is_closing()
    }

    /// Waits until the peer has joined.
    ///
    /// # Errors
    /// Why the link came to nothing.
    pub(crate) async fn answered(&self) -> Result<(), LinkError> {
        let mut joined = self.joined.subscribe();
        tokio::select! {
            why = self.closed() => Err(why),
            _ = joined.wait_for(|joined| *joined) => Ok(()),
        }
    }

    /// Notes that we are ready for a transfer and are about to say so.
    pub(crate) fn announce(&self, transfer: u8, io: Arc<dyn BlockIo>) {
        if let Some(slot) = self.io.get(usize::from(transfer)) {
            let _ = slot.set(io);
        }
        let mut ready = self.ready();
        debug_assert!(self.io(transfer).is_some());
        debug_assert_eq!(ready.ours & 1 << transfer, 0, "it is said once");
        ready.ours |= 1 << transfer;
    }

    /// A transfer that both sides are ready for and that is to be reported, by the one who asks.
    pub(crate) fn next_due(&self) -> Option<u8> {
        let mut ready = self.ready();
        let transfer = ready.due().trailing_zeros() as u8;
        (transfer < TRANSFERS_MAX && ready.claim(transfer)).then_some(transfer)
    }

    /// Which transfers we have announced, as bits.
    pub(crate) fn announced(&self) -> u8 {
        self.ready().ours
    }

    /// Notes what the peer was ready for before its channel was answered, as bits.
    pub(crate) fn peers_ready(&self, transfers: u8) {
        let mut ready = self.ready();
        debug_assert_eq!(ready.theirs, 0, "its channel is answered once");
        ready.theirs = transfers;
    }

    /// Notes that the peer is ready; whether the caller has to report that the transfer is up, `None`
    /// if the peer says it twice.
    pub(crate) fn peer_ready(&self, transfer: u8) -> Option<bool> {
        debug_assert!(transfer < TRANSFERS_MAX, "no frame says so");
        let mut ready = self.ready();
        let bit = 1 << transfer;
        if ready.theirs & bit != 0 {
            return None;
        }
        ready.theirs |= bit;
        Some(ready.claim(transfer))
    }

    fn ready(&self) -> MutexGuard<'_, Ready> {
        self.ready.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn set_up(&self, transfer: u8) {
        debug_assert!(!self.is_up(transfer), "it is reported once");
        debug_assert!(self.ready().ours & 1 << transfer != 0);
        debug_assert!(self.ready().theirs & 1 << transfer != 0);
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

    // ---- arrivals

    /// Takes what a connection has of a block or packet.
    pub(crate) fn take_arriving(&self, connection: usize) -> Option<Arriving> {
        self.arriving().as_mut()?.remove(&connection)
    }

    /// Puts it back until more comes; once the link is closing it is dropped.
    pub(crate) fn put_arriving(&self, connection: usize, arriving: Arriving) {
        let mut all = self.arriving();
        let dropped = match all.as_mut() {
            Some(all) => {
                debug_assert!(
                    !all.contains_key(&connection),
                    "a connection has two pieces of a channel"
                );
                all.insert(connection, arriving)
            }
            None => Some(arriving),
        };
        drop(all);
        drop(dropped);
    }

    fn arriving(&self) -> MutexGuard<'_, Option<BTreeMap<usize, Arriving>>> {
        self.arriving.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The peer asks us to begin no more blocks and packets, or allows it again.
    pub(crate) fn set_held_off(&self, held_off: bool) {
        self.held_off.store(held_off, Ordering::Relaxed);
        self.trunk.wake_all();
    }

    pub(crate) fn is_held_off(&self) -> bool {
        self.held_off.load(Ordering::Relaxed)
    }

    /// Asks the peer to begin no more blocks and packets; whether it was not for this reason yet.
    pub(crate) fn hold(&self, why: u8) -> bool {
        debug_assert!(why == hold::MEMORY || why == hold::RATE);
        let before = self.holding.fetch_or(why, Ordering::SeqCst);
        if before == 0 {
            let channel = self.channel;
            self.trunk.say(Frame::Pause { channel });
        }
        before & why == 0
    }

    /// Allows the peer to go on, if there is no other reason why not.
    pub(crate) fn release(&self, why: u8) {
        debug_assert!(why == hold::MEMORY || why == hold::RATE);
        let before = self.holding.fetch_and(!why, Ordering::SeqCst);
        if before == why {
            let channel = self.channel;
            self.trunk.say(Frame::Resume { channel });
        }
    }

    // ---- the end

    /// Begins to close the link; the first reason given counts.
    pub(crate) fn close(&self, why: LinkError) {
        self.closing.send_if_modified(|closing| {
            let first = closing.is_none();
            if first {
                *closing = Some(why);
            }
            first
        });
    }

    /// Closes the link, and cuts off a peer that broke the rules.
    pub(crate) fn fail(&self, why: LinkError) {
        if let LinkError::Peer(_) = why {
            self.session.peers.bar(self.peer, &why);
        }
        self.close(why);
    }

    /// Closes the link because of something that was reported.
    pub(super) fn accuse(&self, why: LinkError) {
        self.accused.store(true, Ordering::Relaxed);
        self.fail(why);
    }

    pub(crate) fn is_closing(&self) -> bool {
        self.closing.borrow().is_some()
    }

    /// Waits until the link is to close; says why.
    pub(crate) async fn closed(&self) -> LinkError {
        let mut closing = self.closing.subscribe();
        let why = closing.wait_for(Option::is_some).await;
        let why = why.ok().and_then(|why| why.clone());
        why.unwrap_or(LinkError::Parted("the link is gone"))
    }

    /// Waits until the last event of the link was reported.
    pub(crate) async fn finished(&self) {
        let _ = self
            .finished
            .subscribe()
            .wait_for(|finished| *finished)
            .await;
    }

    /// Calls `report` unless the link has ended; nothing of it is reported after its end.
    pub(super) fn while_it_lasts(&self, report: impl FnOnce()) {
        let ended = self.ended.lock().unwrap_or_else(PoisonError::into_inner);
        if !*ended {
            report();
        }
    }

    /// Waits for the blocks that are being verified or stored, and lets no more begin.
    async fn end(&self) {
        loop {
            while self.jobs.load(Ordering::SeqCst) > 0 {
                self.idle.notified().await;
            }
            let mut ended = self.ended.lock().unwrap_or_else(PoisonError::into_inner);
            if self.jobs.load(Ordering::SeqCst) == 0 {
                debug_assert!(self.is_closing());
                debug_assert!(!*ended, "a link ends once");
                *ended = true;
                return;
            }
        }
    }
}

/// A block of a link that is being verified or stored: the link's end waits for it.
pub(crate) struct InFlight(Arc<Link>);

impl InFlight {
    /// `None` once the link has ended.
    pub(crate) fn new(link: Arc<Link>) -> Option<Self> {
        let ended = link.ended.lock().unwrap_or_else(PoisonError::into_inner);
        if *ended {
            return None;
        }
        link.jobs.fetch_add(1, Ordering::SeqCst);
        drop(ended);
        Some(Self(link))
    }

    pub(crate) fn link(&self) -> &Link {
        &self.0
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        let before = self.0.jobs.fetch_sub(1, Ordering::SeqCst);
        debug_assert!(before > 0);
        if before == 1 {
            self.0.idle.notify_one();
        }
    }
}

/// Runs a link from its first event to its last.
pub(crate) async fn run(link: Arc<Link>) {
    let session = link.session.clone();
    let lasting = async {
        match tokio::time::timeout(ANSWER_MAX, link.answered()).await {
            Ok(Ok(())) => link.closed().await,
            Ok(Err(why)) => why,
            Err(_) => LinkError::Network("the peer did not answer in time".into()),
        }
    };
    let why = tokio::select! {
        () = session.stopped() => LinkError::Parted("the session ends"),
        why = lasting => why,
    };
    link.close(why.clone());
    link.trunk.leave(link.channel);
    let partial = link.arriving().take();
    drop(partial);
    link.end().await;
    tracing::debug!(peer = %link.peer, link = link.serial, %why, "link down");
    let peer = link.peer;
    let accused = link.accused.load(Ordering::Relaxed);
    if let (LinkError::Peer(why), false) = (&why, accused) {
        let why = why.clone();
        let event = SessionEvent::CutOff { peer, why };
        session.emit(link.serial, event).await;
    }
    for transfer in (0..TRANSFERS_MAX).filter(|transfer| link.is_up(*transfer)) {
        let event = SessionEvent::PeerDown { transfer, peer };
        session.emit(link.serial, event).await;
    }
    debug_assert_eq!(link.jobs.load(Ordering::SeqCst), 0, "the end did not wait");
    debug_assert!(link.arriving().is_none());
    *link.outbox() = Outbox::default();
    session.end_link(&link);
    link.finished.send_replace(true);
}
