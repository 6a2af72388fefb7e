//! The receiving half of a connection: from frames to messages, blocks and packets of sessions.
//!
//! Data of one session must not hold up the others. A session that breaks a rule loses its
//! link, and the rest of what it sent is skipped. Where a session has no memory or room left, the
//! connection waits, as nothing else can hold back the peer; but where other sessions share it,
//! the peer is asked to pause before that, and a session that makes no progress even so
//! loses its link.

#![cfg_attr(
    not(test),
    deny(
        clippy::unwrap_used,
        clippy::expect_used,
        clippy::indexing_slicing,
        clippy::arithmetic_side_effects
    )
)]

mod accept;

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::sync::{Notify, watch};
use tokio::time::{Instant, sleep, sleep_until};

use super::Core;
use super::buffers::Buffer;
use super::limiter::{Ticket, portion};
use super::stream::{StreamSource, wire_len};
use super::transport::{FrameSource, Part, Received};
use super::trunk::{Channel, Trunk};
use crate::bucket::Bucket;
use crate::config::TRUNK_MAX;
use crate::event::{Rooms, SessionEvent};
use crate::frame::{Frame, JOIN_BYTES, Join, Piece, Refusal};
use crate::session::{Held, InFlight, Link, Waited, hold};
use crate::{BlockIo, LinkError, MESSAGE_BYTES_MAX, NEWS_MAX, PacketNews};

/// How much is read from the socket at a time, at first and when it keeps coming.
const READ_BYTES_MIN: usize = 16 << 10;
const READ_BYTES_MAX: usize = 256 << 10;
/// How often it is looked for what comes too slowly.
const OVERDUE_EVERY: Duration = Duration::from_secs(1);
/// So long may one session hold up others that share its connections.
const HELD_UP_MAX: Duration = Duration::from_secs(1);
/// A session that has got so much more than its limit lets in has its peer pause.
const AHEAD_MAX: Duration = Duration::from_millis(20);

const _: () = assert!(READ_BYTES_MIN <= READ_BYTES_MAX);

pub(crate) struct Reader<S = StreamSource> {
    core: Arc<Core>,
    trunk: Arc<Trunk>,
    source: S,
    /// Which connection of the trunk this is; the first, 0, carries everything but fragments.
    number: usize,
    read_bytes: usize,
    expect: Expect,
    /// What came since the last look at the limits, in bytes on the wire by session.
    came: Vec<(Arc<Link>, usize)>,
    received: usize,
    connection: Bucket,
    wake: Arc<Notify>,
    changes: watch::Receiver<u64>,
    /// Since when there was always something to receive.
    busy: Option<outpour_core::Time>,
    /// How long the peer has let it wait.
    waited: Arc<Waited>,
    /// When it was looked last for what comes too slowly.
    looked: Instant,
}

/// What the next bytes of payload are.
enum Expect {
    Nothing,
    /// Of no interest.
    Skip,
    Join {
        channel: u16,
        body: Vec<u8>,
    },
    Message {
        link: Arc<Link>,
        transfer: u8,
        body: Vec<u8>,
        len: usize,
        memory: Held,
    },
    Fragment {
        link: Arc<Link>,
        arriving: Arriving,
        left: usize,
    },
}

/// A block or packet of which a part is here.
pub(crate) struct Arriving {
    transfer: u8,
    piece: Piece,
    len: u32,
    got: u32,
    /// Where it goes; `None` if it is of no use.
    sink: Option<(Buffer, Held)>,
}

impl Arriving {
    fn check(&self) {
        debug_assert!(self.got <= self.len, "more than there is of it");
        if let Some((buffer, _)) = &self.sink {
            debug_assert_eq!(buffer.bytes.len(), self.got as usize);
        }
    }
}

impl<S: FrameSource> Reader<S> {
    pub(crate) fn new(core: Arc<Core>, trunk: Arc<Trunk>, source: S, number: usize) -> Self {
        debug_assert!(number < usize::from(TRUNK_MAX));
        let connection = Bucket::new(core.limits.get().per_connection);
        let changes = core.limits.changes();
        Self {
            core,
            trunk,
            source,
            number,
            read_bytes: READ_BYTES_MIN,
            expect: Expect::Nothing,
            came: Vec::new(),
            received: 0,
            connection,
            wake: Arc::default(),
            changes,
            busy: None,
            waited: Arc::default(),
            looked: Instant::now(),
        }
    }

    /// Receives until something fails; says what.
    pub(crate) async fn run(mut self) -> LinkError {
        loop {
            if let Err(why) = self.step().await {
                return why;
            }
        }
    }

    async fn step(&mut self) -> Result<(), LinkError> {
        match self.source.next()? {
            None => return self.receive().await,
            Some(Part::Frame(frame)) => {
                debug_assert!(
                    matches!(self.expect, Expect::Nothing | Expect::Skip),
                    "a frame begins in the middle of another"
                );
                self.expect = self.on_frame(frame).await?;
            }
            Some(Part::Payload(bytes)) => match &mut self.expect {
                Expect::Nothing => debug_assert!(false, "payload of a frame that has none"),
                Expect::Skip => {}
                Expect::Join { body, .. } => {
                    body.extend_from_slice(bytes);
                    debug_assert!(body.len() <= JOIN_BYTES);
                }
                Expect::Message {
                    body, len, memory, ..
                } => {
                    body.extend_from_slice(bytes);
                    memory.moved(bytes.len());
                    debug_assert!(body.len() <= *len);
                }
                Expect::Fragment { arriving, left, .. } => {
                    debug_assert!(bytes.len() <= *left);
                    if let Some((buffer, memory)) = &mut arriving.sink {
                        buffer.bytes.extend_from_slice(bytes);
                        memory.moved(bytes.len());
                    }
                    *left = left.saturating_sub(bytes.len());
                }
            },
        }
        self.advance().await
    }

    /// Goes on to the next thing if the one at hand is complete.
    async fn advance(&mut self) -> Result<(), LinkError> {
        let complete = match &self.expect {
            Expect::Nothing | Expect::Skip => false,
            Expect::Join { body, .. } => body.len() == JOIN_BYTES,
            Expect::Message { body, len, .. } => body.len() == *len,
            Expect::Fragment { left, .. } => *left == 0,
        };
        if !complete {
            return Ok(());
        }
        match std::mem::replace(&mut self.expect, Expect::Nothing) {
            Expect::Nothing | Expect::Skip => Ok(()),
            Expect::Join { channel, body } => self.on_join(channel, &body),
            Expect::Message {
                link,
                transfer,
                body,
                memory,
                ..
            } => {
                self.deliver(&link, transfer, body, memory).await;
                Ok(())
            }
            Expect::Fragment { link, arriving, .. } => {
                self.on_fragment(&link, arriving).await;
                Ok(())
            }
        }
    }

    // ---- frames

    /// What follows a frame.
    async fn on_frame(&mut self, frame: Frame) -> Result<Expect, LinkError> {
        if let Frame::Fragment { channel, .. } = frame {
            return match self.link(channel)? {
                Some(link) => Ok(self.on_piece(link, frame).await),
                None => Ok(Expect::Skip),
            };
        }
        if self.number > 0 && frame != Frame::Alive {
            return Err(misplaced());
        }
        match frame {
            Frame::Alive => {}
            Frame::Join { channel } if self.trunk.heard(channel) => {
                let body = Vec::with_capacity(JOIN_BYTES);
                return Ok(Expect::Join { channel, body });
            }
            Frame::Decline { channel, why } => {
                if let Some(link) = self.trunk.ours(channel) {
                    link.close(LinkError::Refused(why));
                }
            }
            Frame::Leave { channel } => {
                if let Some(link) = self.trunk.unbind(channel) {
                    link.close(LinkError::Parted("the peer parted"));
                }
            }
            Frame::Pause { channel } | Frame::Resume { channel } => {
                if let Some(link) = self.link(channel)? {
                    link.set_held_off(matches!(frame, Frame::Pause { .. }));
                }
            }
            Frame::Ready { channel, transfer } => {
                if !self.trunk.ready_early(channel, transfer)
                    && let Some(link) = self.link(channel)?
                {
                    self.on_ready(&link, transfer).await;
                }
            }
            Frame::Message {
                channel,
                transfer,
                len,
            } => {
                return match self.link(channel)? {
                    Some(link) => Ok(self.on_message(link, transfer, len).await),
                    None => Ok(Expect::Skip),
                };
            }
            _ => return Err(misplaced()),
        }
        Ok(Expect::Nothing)
    }

    /// The link of a peer's channel; `None` if it was closed, and its frames are skipped.
    fn link(&self, channel: u16) -> Result<Option<Arc<Link>>, LinkError> {
        match self.trunk.channel(channel) {
            Channel::Open(link) if link.is_open() => {
                debug_assert!(Arc::ptr_eq(&link.trunk, &self.trunk));
                Ok(Some(link))
            }
            Channel::Open(_) | Channel::Closed => Ok(None),
            Channel::Unknown => {
                let why = "it used a channel that it has not opened";
                Err(LinkError::Peer(why.into()))
            }
        }
    }

    fn on_join(&self, channel: u16, body: &[u8]) -> Result<(), LinkError> {
        let join = body.first_chunk().map(Join::decode).ok_or_else(misplaced)?;
        let session = self.core.session(join.session, join.to);
        let why = match (session, self.trunk.answer()) {
            (Some(session), Some(permit)) => {
                session.answer(self.trunk.clone(), join, channel, permit);
                return Ok(());
            }
            (Some(_), None) => Refusal::Busy,
            (None, _) => Refusal::NotMember,
        };
        self.trunk.decline(channel, why);
        Ok(())
    }

    async fn on_ready(&mut self, link: &Arc<Link>, transfer: u8) {
        match link.peer_ready(transfer) {
            None => breach(link, "it opened a transfer twice"),
            Some(false) => {}
            Some(true) => {
                if let Some(room) = self.patiently(link, link.session.room()).await {
                    link.session.report_up(link, room, transfer);
                }
            }
        }
    }

    async fn on_message(&mut self, link: Arc<Link>, transfer: u8, len: u32) -> Expect {
        debug_assert!(len as usize <= MESSAGE_BYTES_MAX, "no frame says so");
        self.note(&link, len);
        if !link.is_up(transfer) {
            breach(&link, "it sent a message of a transfer that is not open");
            return Expect::Skip;
        }
        let clock = self.core.limits.clock;
        let due = link.peering.charge_message(clock.now(), len);
        if due > clock.now() {
            let pacing = sleep_until(clock.instant(due));
            if self.patiently(&link, pacing).await.is_none() {
                return Expect::Skip;
            }
        }
        let taken = self.patiently(&link, link.session.message_memory.take(&link, len));
        let Some(Some(mut memory)) = taken.await else {
            return Expect::Skip;
        };
        memory.begin(&self.waited);
        let body = Vec::with_capacity(len as usize);
        if len == 0 {
            self.deliver(&link, transfer, body, memory).await;
            return Expect::Nothing;
        }
        Expect::Message {
            link,
            transfer,
            body,
            len: len as usize,
            memory,
        }
    }

    async fn deliver(&self, link: &Arc<Link>, transfer: u8, body: Vec<u8>, memory: Held) {
        debug_assert_eq!(self.number, 0, "messages come over the first connection");
        debug_assert!(link.is_up(transfer));
        let session = &link.session;
        let memory = memory.complete();
        let Some(room) = self.patiently(link, session.room()).await else {
            return;
        };
        let room = room.with(memory);
        let event = SessionEvent::Message {
            transfer,
            from: link.peer,
            body,
        };
        session.report(link, room, event);
    }

    // ---- blocks and packets

    async fn on_piece(&mut self, link: Arc<Link>, frame: Frame) -> Expect {
        let Frame::Fragment {
            transfer,
            piece,
            offset,
            len,
            ..
        } = frame
        else {
            return Expect::Skip;
        };
        self.note(&link, len);
        let arriving = match link.take_arriving(self.number) {
            None if offset == 0 => self.begin(&link, transfer, piece).await,
            Some(arriving)
                if arriving.transfer == transfer
                    && arriving.piece == piece
                    && arriving.got == offset =>
            {
                Some(arriving)
            }
            _ => {
                breach(&link, "it sent parts of blocks out of order");
                None
            }
        };
        let Some(mut arriving) = arriving else {
            return Expect::Skip;
        };
        arriving.check();
        let got = arriving.got.checked_add(len);
        let Some(got) = got.filter(|got| *got <= arriving.len) else {
            self.reject(&link, transfer, piece).await;
            return Expect::Skip;
        };
        arriving.got = got;
        let left = len as usize;
        Expect::Fragment {
            link,
            arriving,
            left,
        }
    }

    /// Makes room for a block or packet; this is where a slow disk holds back the peer. `None` if it
    /// is to be skipped, as its link ends.
    async fn begin(&self, link: &Arc<Link>, transfer: u8, piece: Piece) -> Option<Arriving> {
        if !link.is_up(transfer) {
            if self.number == 0 {
                breach(link, "it sent a block of a transfer that is not open");
                return None;
            }
            self.patiently(link, link.wait_up(transfer)).await?;
        }
        debug_assert!(link.is_up(transfer));
        let io = link.io(transfer)?;
        let Some(len) = link.piece_len(transfer, piece) else {
            self.reject(link, transfer, piece).await;
            return None;
        };
        let useless = match piece {
            Piece::Block(block) => io.drops(block),
            Piece::Packet { batch, .. } => io.packets().is_none_or(|packets| !packets.wants(batch)),
        };
        let sink = if useless {
            None
        } else {
            let session = &link.session;
            let taking = session.incoming_memory.take(link, len);
            let mut memory = self.patiently(link, taking).await??;
            memory.begin(&self.waited);
            if self.core.is_shared(self.trunk.key.digest) {
                session.pause_early(link);
            }
            Some((self.core.pool.take(len as usize), memory))
        };
        Some(Arriving {
            transfer,
            piece,
            len,
            got: 0,
            sink,
        })
    }

    /// A fragment is complete; hands the block or packet over if it was the last.
    async fn on_fragment(&mut self, link: &Arc<Link>, arriving: Arriving) {
        arriving.check();
        debug_assert!(arriving.got > 0);
        if arriving.got < arriving.len {
            link.put_arriving(self.number, arriving);
            return;
        }
        let session = &link.session;
        let (stats, len) = (&session.stats, arriving.len);
        stats
            .payload_in
            .fetch_add(u64::from(len), Ordering::Relaxed);
        link.peering
            .note_received(self.core.limits.clock.now(), len as usize);
        if let Piece::Packet { .. } = arriving.piece {
            stats.packets_in.fetch_add(1, Ordering::Relaxed);
        }
        let Some(io) = link.io(arriving.transfer).cloned() else {
            return;
        };
        let news = if io.packets().is_some() {
            1 + NEWS_MAX
        } else {
            1
        };
        if let Some(rooms) = self.patiently(link, session.rooms(news)).await {
            self.hand_over(link, arriving, io, rooms);
        }
    }

    /// Has a whole block or packet verified and stored, if it is of any use.
    fn hand_over(&self, link: &Arc<Link>, arriving: Arriving, io: Arc<dyn BlockIo>, rooms: Rooms) {
        debug_assert_eq!(arriving.got, arriving.len, "it is not all here");
        let Arriving {
            transfer,
            piece,
            len,
            sink,
            ..
        } = arriving;
        let Some((buffer, memory)) = sink else {
            return Self::drop_useless(link, transfer, piece, len, rooms);
        };
        let complete = accept::Complete {
            transfer,
            buffer,
            rooms,
        };
        let memory = memory.complete();
        let core = self.core.clone();
        let Some(flight) = InFlight::new(link.clone()) else {
            return;
        };
        link.session.crew.submit(move || {
            complete.accept(piece, &core, &flight, &*io);
            drop(memory);
            flight.link().session.resume();
            drop(flight);
        });
    }

    /// Reports a block or packet that was of no use before it came.
    fn drop_useless(link: &Link, transfer: u8, piece: Piece, len: u32, mut rooms: Rooms) {
        let duplicate = &link.session.stats.duplicate;
        duplicate.fetch_add(u64::from(len), Ordering::Relaxed);
        let from = link.peer;
        let event = match piece {
            Piece::Block(block) => SessionEvent::Arrived {
                transfer,
                from,
                block,
                fresh: false,
            },
            Piece::Packet { batch, .. } => SessionEvent::Coded {
                transfer,
                from,
                batch,
                news: PacketNews::Dropped,
            },
        };
        link.session.report(link, rooms.split(), event);
    }

    /// The peer sent what cannot be a block or packet of the object.
    async fn reject(&self, link: &Arc<Link>, transfer: u8, piece: Piece) {
        if let Some(room) = self.patiently(link, link.session.room()).await {
            link.session.reject(link, transfer, piece, room);
        }
    }

    /// Waits for something of a session; `None` if its link ends first, or does because the other
    /// sessions on this connection have waited with it for too long.
    async fn patiently<T>(&self, link: &Arc<Link>, wait: impl Future<Output = T>) -> Option<T> {
        let crowded = async {
            loop {
                sleep(HELD_UP_MAX).await;
                if self.core.is_shared(self.trunk.key.digest) {
                    return;
                }
            }
        };
        tokio::select! {
            biased;
            got = wait => Some(got),
            _ = link.closed() => None,
            () = crowded => {
                let why = "this node takes its data too slowly, and other sessions wait";
                link.close(LinkError::Local(why.into()));
                None
            }
        }
    }

    // ---- limits

    /// Counts what arrived for a link.
    fn note(&mut self, link: &Arc<Link>, payload: u32) {
        let bytes = wire_len(payload as usize);
        let wire = &link.session.stats.wire_in;
        wire.fetch_add(bytes as u64, Ordering::Relaxed);
        match self
            .came
            .iter_mut()
            .find(|(known, _)| Arc::ptr_eq(known, link))
        {
            Some((_, sum)) => *sum = sum.saturating_add(bytes),
            None => self.came.push((link.clone(), bytes)),
        }
    }

    async fn receive(&mut self) -> Result<(), LinkError> {
        self.pay().await;
        let limits = self.core.limits.get();
        let rate = limits.incoming.min(limits.per_connection);
        let rates = self
            .came
            .iter()
            .map(|(link, _)| link.session.incoming.rate());
        let rate = rates.fold(rate, outpour_core::Rate::min);
        self.came.clear();
        let most = portion(rate, self.read_bytes);
        let Some(received) = self.hear(most).await else {
            return Ok(());
        };
        let Received { bytes, waited } = received?;
        if waited {
            self.busy = None;
        }
        debug_assert_eq!(self.received, 0, "what came before was never paid for");
        debug_assert!(bytes > 0, "an end is no success");
        self.received = bytes;
        if bytes >= most {
            self.read_bytes = self.read_bytes.saturating_mul(2).min(READ_BYTES_MAX);
        }
        Ok(())
    }

    /// Receives something; `None` if the link it would be for ends first, so that what a peer drips does
    /// not hold memory any more.
    async fn hear(&mut self, most: usize) -> Option<Result<Received, LinkError>> {
        let now = Instant::now();
        let link = match &self.expect {
            Expect::Message { link, .. } | Expect::Fragment { link, .. } => Some(link.clone()),
            Expect::Nothing | Expect::Skip | Expect::Join { .. } => None,
        };
        if now.duration_since(self.looked) >= OVERDUE_EVERY {
            self.looked = now;
            for link in self.trunk.links() {
                link.session.incoming_memory.give_up_overdue();
                link.session.message_memory.give_up_overdue();
            }
        }
        self.waited.begin(now);
        let received = match link {
            None => Some(self.source.receive(most).await),
            Some(link) => tokio::select! {
                biased;
                received = self.source.receive(most) => Some(received),
                _ = link.closed() => None,
            },
        };
        self.waited.end(Instant::now());
        if received.is_none() {
            self.expect = Expect::Skip;
        }
        received
    }

    /// Waits until what was received is paid for: by this connection, by its sessions, and by the
    /// host, where the session counts that got most of it.
    async fn pay(&mut self) {
        let bytes = std::mem::take(&mut self.received);
        if bytes == 0 {
            return;
        }
        let clock = self.core.limits.clock;
        let now = clock.now();
        let since = *self.busy.get_or_insert(now);
        if self.changes.has_changed().unwrap_or(false) {
            self.changes.mark_unchanged();
            let rate = self.core.limits.get().per_connection;
            self.connection.set_rate(now, rate);
        }
        let mut paid = self.connection.charge(now, since, bytes);
        let mut most: Option<(u64, usize)> = None;
        for (link, bytes) in &self.came {
            let session = &link.session;
            if most.is_none_or(|(_, most)| *bytes > most) {
                most = Some((session.serial, *bytes));
            }
            let at = session.incoming.lock().charge(now, since, *bytes);
            if at <= now {
                continue;
            }
            if self.core.is_shared(self.trunk.key.digest) {
                // The others do not wait for what this one may not have yet.
                if at.since(now) > AHEAD_MAX && link.hold(hold::RATE) {
                    link.session.spawn_release(link.clone(), clock.instant(at));
                }
            } else {
                paid = paid.max(at);
            }
        }
        let session = most.map_or(0, |(session, _)| session);
        let ticket = self
            .core
            .limits
            .incoming
            .ask(since, session, bytes, &self.wake);
        if paid > now {
            tokio::select! {
                () = sleep_until(clock.instant(paid)) => {}
                _ = self.changes.changed() => self.note_change(),
            }
        }
        if let Some(ticket) = ticket {
            self.turn(&ticket).await;
        }
    }

    fn note_change(&mut self) {
        let rate = self.core.limits.get().per_connection;
        self.connection.set_rate(self.core.limits.clock.now(), rate);
    }

    async fn turn(&self, ticket: &Ticket) {
        while !ticket.is_granted() {
            self.wake.notified().await;
        }
    }
}

/// The peer broke a rule of one session.
fn breach(link: &Link, why: &str) {
    link.fail(LinkError::Peer(why.into()));
}

fn misplaced() -> LinkError {
    LinkError::Peer("it sent an unexpected frame".into())
}
