//! A trunk: the connections between two endpoints, and the links of all sessions that they carry.

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore, mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until};

use super::dial::Way;
use super::establish::{self, Opening};
use super::reader::Reader;
use super::stream::Conn;
use super::transport::FrameSink;
use super::writer::Writer;
use super::{Core, TrunkKey};
use crate::config::TRUNK_MAX;
use crate::frame::{Frame, Join, Refusal};
use crate::session::Link;
use crate::{LinkError, SESSIONS_MAX, TRANSFERS_MAX};

/// Frames about channels that may wait for a peer; one that lets more pile up does not read.
const CONTROL_MAX: usize = 4096;
/// Channels of a peer that may wait for an answer; those beyond are declined.
const ANSWERS_MAX: usize = 2 * SESSIONS_MAX;
/// A trunk without links is closed after this: sessions that make a link anew find it there.
const IDLE_MAX: Duration = Duration::from_secs(2);

// All but the first come through a queue.
const _: () = assert!(TRUNK_MAX > 1);

/// One generation of the connections to a peer.
pub(crate) struct Trunk {
    pub(crate) key: TrunkKey,
    /// By what both sides know it; not known before the side that decides has said it.
    id: OnceLock<u64>,
    /// Whether it is certain that the peer takes the connection for the trunk.
    taken: watch::Sender<bool>,
    /// By what this endpoint knows it; never reused.
    pub(crate) serial: u64,
    /// Wakes the connections, the first of which carries everything but blocks and packets, and
    /// these, too, while it is the only one.
    wakes: [Arc<Notify>; TRUNK_MAX as usize],
    connections: AtomicUsize,
    /// The first connection is to say something, whether there is anything to say or not.
    pub(crate) probing: AtomicBool,
    channels: Mutex<Channels>,
    answers: Arc<Semaphore>,
    /// Counts changes of the links.
    version: AtomicU64,
    attach: mpsc::Sender<Conn>,
    closing: watch::Sender<Option<LinkError>>,
    /// Where it was dialled.
    way: Option<Way>,
    /// How many connections were dialled.
    grown: AtomicU8,
}

#[derive(Default)]
struct Channels {
    /// Frames about channels, in the order in which they happened.
    control: VecDeque<(Frame, Option<Join>)>,
    /// Links by our channel.
    ours: BTreeMap<u16, Arc<Link>>,
    /// Our channels by the peer's.
    theirs: BTreeMap<u16, u16>,
    /// Channels of the peer that were not answered yet, and which transfers it is ready for on each,
    /// as bits.
    pending: BTreeMap<u16, u8>,
    /// The channel that was opened last by us, and by the peer.
    last: u16,
    heard: u16,
    /// When the last link went.
    idle_since: Option<Instant>,
    closed: bool,
}

impl Channels {
    fn check(&self) {
        debug_assert!(self.theirs.keys().all(|theirs| *theirs <= self.heard));
        debug_assert!(
            self.theirs.keys().all(|it| !self.pending.contains_key(it)),
            "a channel is answered and waits for an answer"
        );
        if self.closed {
            debug_assert!(self.ours.is_empty());
            return;
        }
        debug_assert_eq!(self.ours.is_empty(), self.idle_since.is_some());
        debug_assert!(
            self.theirs
                .values()
                .all(|ours| self.ours.contains_key(ours)),
            "a channel leads to none of ours"
        );
        debug_assert!(self.theirs.len() <= self.ours.len());
        debug_assert!(self.ours.keys().all(|ours| *ours <= self.last));
        debug_assert!(!self.ours.contains_key(&0), "that is the connection");
    }
}

/// What a channel of the peer leads to.
pub(crate) enum Channel {
    Open(Arc<Link>),
    /// It was closed by one of us, or not answered by us; its frames are skipped.
    Closed,
    /// The peer has not opened it.
    Unknown,
}

impl Trunk {
    pub(crate) fn new(
        key: TrunkKey,
        id: Option<u64>,
        serial: u64,
        way: Option<Way>,
    ) -> (Arc<Self>, mpsc::Receiver<Conn>) {
        debug_assert!(way.is_none() || !key.called_by_self, "it was called");
        let (attach, extras) = mpsc::channel(usize::from(TRUNK_MAX) - 1);
        let channels = Channels {
            idle_since: Some(Instant::now()),
            ..Channels::default()
        };
        let trunk = Self {
            key,
            id: id.map_or_else(OnceLock::new, OnceLock::from),
            // Who was called has been heard.
            taken: watch::Sender::new(way.is_none()),
            serial,
            wakes: Default::default(),
            connections: AtomicUsize::new(0),
            probing: AtomicBool::new(false),
            channels: Mutex::new(channels),
            answers: Arc::new(Semaphore::new(ANSWERS_MAX)),
            version: AtomicU64::new(0),
            attach,
            closing: watch::Sender::new(None),
            way,
            grown: AtomicU8::new(1),
        };
        (Arc::new(trunk), extras)
    }

    fn lock(&self) -> MutexGuard<'_, Channels> {
        self.channels.lock().unwrap_or_else(PoisonError::into_inner)
    }

    // ---- what the peer makes of it

    /// By what both sides know it, once that is known.
    pub(crate) fn id(&self) -> Option<u64> {
        self.id.get().copied()
    }

    /// The peer takes the connection for the trunk, which it calls by this name if it is the one
    /// that decides.
    pub(crate) fn take(&self, name: Option<u64>) {
        debug_assert!(!self.is_taken(), "it is taken once");
        debug_assert_eq!(name.is_none(), self.id().is_some(), "one side names it");
        if let Some(id) = name {
            let _ = self.id.set(id);
        }
        self.taken.send_replace(true);
    }

    pub(crate) fn is_taken(&self) -> bool {
        *self.taken.borrow()
    }

    /// Waits until the peer has taken it.
    ///
    /// # Errors
    /// Why that will not happen.
    pub(crate) async fn taken(&self) -> Result<(), LinkError> {
        let mut taken = self.taken.subscribe();
        tokio::select! {
            why = self.closed() => Err(why),
            _ = taken.wait_for(|taken| *taken) => Ok(()),
        }
    }

    // ---- waking connections

    /// Wakes the first connection: there is something to say.
    pub(crate) fn wake(&self) {
        self.wakes[0].notify_one();
    }

    /// Wakes every connection: a block or packet waits.
    pub(crate) fn wake_all(&self) {
        let connections = self.connections.load(Ordering::Relaxed);
        for wake in self.wakes.iter().take(connections) {
            wake.notify_one();
        }
    }

    pub(crate) fn wake_of(&self, connection: usize) -> Arc<Notify> {
        debug_assert!(connection < self.wakes.len());
        self.wakes[connection.min(self.wakes.len() - 1)].clone()
    }

    /// Has a sign of life sent, so that a trunk that is dead without knowing it breaks.
    pub(crate) fn probe(&self) {
        self.probing.store(true, Ordering::Relaxed);
        self.wake();
    }

    // ---- channels

    /// Opens a channel for a link that `make` makes with its number; `None` if the trunk is closing
    /// or has no numbers left. `theirs` is the channel of the peer that this one answers; `None`
    /// comes, too, if the peer has closed it.
    pub(crate) fn open(
        &self,
        join: Join,
        theirs: Option<u16>,
        make: impl FnOnce(u16) -> Arc<Link>,
    ) -> Option<Arc<Link>> {
        let mut channels = self.lock();
        let early = match theirs {
            Some(theirs) => channels.pending.remove(&theirs)?,
            None => 0,
        };
        if channels.closed {
            return None;
        }
        let Some(channel) = channels.last.checked_add(1) else {
            drop(channels);
            self.close(LinkError::Network("its channels are used up".into()));
            return None;
        };
        channels.last = channel;
        let link = make(channel);
        debug_assert_eq!(link.channel, channel);
        link.peers_ready(early);
        let same = channels.ours.insert(channel, link.clone());
        debug_assert!(same.is_none(), "a channel is opened once");
        channels.idle_since = None;
        if let Some(theirs) = theirs {
            let same = channels.theirs.insert(theirs, channel);
            debug_assert!(same.is_none(), "a channel is answered once");
        }
        channels
            .control
            .push_back((Frame::Join { channel }, Some(join)));
        channels.check();
        drop(channels);
        self.version.fetch_add(1, Ordering::Release);
        self.wake();
        Some(link)
    }

    /// Notes that the peer has opened a channel; false if it is not the next one.
    pub(crate) fn heard(&self, theirs: u16) -> bool {
        let mut channels = self.lock();
        let next = channels.heard.checked_add(1) == Some(theirs);
        if next {
            channels.heard = theirs;
            let before = channels.pending.insert(theirs, 0);
            debug_assert!(before.is_none(), "a channel is opened once");
            channels.check();
        }
        next
    }

    /// Notes that the peer is ready for a transfer on a channel that waits for an answer; false if it
    /// does not wait.
    pub(crate) fn ready_early(&self, theirs: u16, transfer: u8) -> bool {
        debug_assert!(transfer < TRANSFERS_MAX, "no frame says so");
        let mut channels = self.lock();
        let early = channels.pending.get_mut(&theirs);
        early.map(|early| *early |= 1 << transfer).is_some()
    }

    /// Says why a channel of the peer is not answered.
    pub(crate) fn decline(&self, theirs: u16, why: Refusal) {
        let mut channels = self.lock();
        debug_assert!(theirs <= channels.heard);
        debug_assert!(
            !channels.theirs.contains_key(&theirs),
            "it was answered already"
        );
        channels.pending.remove(&theirs);
        drop(channels);
        let channel = theirs;
        self.say(Frame::Decline { channel, why });
    }

    /// The right to have one of the peer's channels answered, if not too many wait already.
    pub(crate) fn answer(&self) -> Option<OwnedSemaphorePermit> {
        self.answers.clone().try_acquire_owned().ok()
    }

    /// Binds a channel of the peer to one of ours that waits for it; false if one is closed.
    pub(crate) fn bind(&self, theirs: u16, ours: u16) -> bool {
        let mut channels = self.lock();
        let early = channels.pending.remove(&theirs);
        let (Some(early), Some(link)) = (early, channels.ours.get(&ours).cloned()) else {
            return false;
        };
        debug_assert!(
            channels.theirs.values().all(|bound| *bound != ours),
            "two channels of the peer lead to one of ours"
        );
        channels.theirs.insert(theirs, ours);
        channels.check();
        // What comes next on the channel finds it open.
        link.peers_ready(early);
        link.join();
        true
    }

    /// What a channel of the peer leads to.
    pub(crate) fn channel(&self, theirs: u16) -> Channel {
        let channels = self.lock();
        let ours = channels.theirs.get(&theirs);
        match ours.and_then(|ours| channels.ours.get(ours)) {
            Some(link) => Channel::Open(link.clone()),
            None if theirs <= channels.heard => Channel::Closed,
            None => Channel::Unknown,
        }
    }

    /// The link of one of our channels.
    pub(crate) fn ours(&self, channel: u16) -> Option<Arc<Link>> {
        self.lock().ours.get(&channel).cloned()
    }

    /// The peer has closed its channel.
    pub(crate) fn unbind(&self, theirs: u16) -> Option<Arc<Link>> {
        let mut channels = self.lock();
        channels.pending.remove(&theirs);
        let ours = channels.theirs.remove(&theirs)?;
        channels.check();
        channels.ours.get(&ours).cloned()
    }

    /// Closes one of our channels and tells the peer.
    pub(crate) fn leave(&self, channel: u16) {
        let mut channels = self.lock();
        if channels.ours.remove(&channel).is_some() {
            channels.control.push_back((Frame::Leave { channel }, None));
            channels.theirs.retain(|_, ours| *ours != channel);
        }
        if channels.ours.is_empty() {
            channels.idle_since = Some(Instant::now());
        }
        channels.check();
        drop(channels);
        self.version.fetch_add(1, Ordering::Release);
        // Every connection may hold memory for it.
        self.wake_all();
    }

    /// Has something said about a channel.
    pub(crate) fn say(&self, frame: Frame) {
        let mut channels = self.lock();
        channels.control.push_back((frame, None));
        let overflow = channels.control.len() > CONTROL_MAX;
        drop(channels);
        if overflow {
            let why = "too many frames about channels wait for it";
            self.close(LinkError::Peer(why.into()));
        }
        self.wake();
    }

    pub(crate) fn next_control(&self) -> Option<(Frame, Option<Join>)> {
        self.lock().control.pop_front()
    }

    /// The links, if they are others than at this version.
    pub(crate) fn links_since(&self, version: &mut u64) -> Option<Vec<Arc<Link>>> {
        let now = self.version.load(Ordering::Acquire);
        if *version == now {
            return None;
        }
        debug_assert!(*version == u64::MAX || *version < now);
        *version = now;
        Some(self.links())
    }

    pub(crate) fn links(&self) -> Vec<Arc<Link>> {
        self.lock().ours.values().cloned().collect()
    }

    // ---- connections

    /// Adds a connection for blocks; false if there are enough.
    pub(crate) fn attach(&self, conn: Conn) -> bool {
        self.attach.try_send(conn).is_ok()
    }

    /// How many connections there are.
    pub(crate) fn connections(&self) -> usize {
        self.connections.load(Ordering::Relaxed)
    }

    /// Whether a connection takes further blocks and packets. One that also carries messages would
    /// have these wait behind what is in its queues, which takes seconds on a link that became slow.
    pub(crate) fn carries_blocks(&self, number: usize) -> bool {
        number > 0 || self.connections() == 1
    }

    /// Where it was dialled; `None` if the peer dialled.
    pub(crate) const fn way(&self) -> Option<Way> {
        self.way
    }

    /// The numbers of the connections to open so that there are `count` that were dialled.
    pub(crate) fn grow(&self, count: u8) -> std::ops::Range<u8> {
        debug_assert!(count <= TRUNK_MAX);
        let first = self.grown.fetch_max(count, Ordering::Relaxed);
        debug_assert!(first > 0, "the first made the trunk");
        first..count
    }

    // ---- the end

    /// Begins to close the trunk; the first reason given counts.
    pub(crate) fn close(&self, why: LinkError) {
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

    /// Waits until the trunk is to close; says why.
    pub(crate) async fn closed(&self) -> LinkError {
        let mut closing = self.closing.subscribe();
        let why = closing.wait_for(Option::is_some).await;
        let why = why.ok().and_then(|why| why.clone());
        why.unwrap_or(LinkError::Parted("the trunk is gone"))
    }

    /// When the trunk is to be closed unless a link comes.
    fn idle_until(&self) -> Option<Instant> {
        Some(self.lock().idle_since? + IDLE_MAX)
    }
}

/// Runs a trunk until it ends.
pub(crate) async fn run(
    core: Arc<Core>,
    trunk: Arc<Trunk>,
    conn: Conn,
    mut extras: mpsc::Receiver<Conn>,
    opening: Opening,
) {
    debug_assert_eq!(trunk.connections(), 0, "a trunk runs once");
    let mut halves = JoinSet::new();
    spawn_halves(&mut halves, &core, &trunk, conn, opening).await;
    let mut look = Instant::now() + IDLE_MAX;
    let why = loop {
        tokio::select! {
            why = trunk.closed() => break why,
            () = core.stopped() => break LinkError::Parted("this endpoint ends"),
            Some(conn) = extras.recv() => {
                if trunk.connections() < usize::from(TRUNK_MAX) {
                    spawn_halves(&mut halves, &core, &trunk, conn, Opening::Done).await;
                }
            }
            Some(ended) = halves.join_next() => {
                break ended.unwrap_or_else(|panic| LinkError::Local(panic.to_string()));
            }
            () = sleep_until(look) => {
                let now = Instant::now();
                match trunk.idle_until() {
                    Some(until) if until <= now => break LinkError::Parted("nothing needs the trunk"),
                    until => look = until.unwrap_or(now + IDLE_MAX),
                }
            }
        }
    };
    tracing::debug!(peer = %trunk.key.digest, trunk = trunk.serial, %why, "trunk down");
    trunk.close(why.clone());
    core.forget_trunk(&trunk);
    halves.shutdown().await;
    let connections = trunk.connections() as u64;
    let all = core
        .stats
        .connections
        .fetch_sub(connections, Ordering::Relaxed);
    debug_assert!(connections > 0);
    debug_assert!(connections <= all);
    let links = {
        let mut channels = trunk.lock();
        debug_assert!(!channels.closed);
        channels.closed = true;
        let links = std::mem::take(&mut channels.ours);
        channels.check();
        links
    };
    for link in links.into_values() {
        link.fail(why.clone());
    }
}

async fn spawn_halves(
    halves: &mut JoinSet<LinkError>,
    core: &Arc<Core>,
    trunk: &Arc<Trunk>,
    conn: Conn,
    opening: Opening,
) {
    core.stats.connections.fetch_add(1, Ordering::Relaxed);
    let number = trunk.connections.fetch_add(1, Ordering::Relaxed);
    debug_assert!(number < usize::from(TRUNK_MAX));
    let (mut source, mut sink) = conn.split();
    // Sealing a few bytes into memory cannot fail before a key is used up.
    let _ = opening.say(trunk, &mut sink);
    if sink.gathered() > 0 {
        // A peer of another version is to hear ours, whatever it says first; the socket has room. If it
        // is broken, both halves find out.
        let _ = sink.flush().await;
    }
    let writer = Writer::new(core.clone(), trunk.clone(), sink, number);
    halves.spawn(writer.run());
    let (core, trunk) = (core.clone(), trunk.clone());
    halves.spawn(async move {
        if let Err(why) = establish::answered(&trunk, &mut source, opening).await {
            return why;
        }
        Reader::new(core, trunk, source, number).run().await
    });
}
