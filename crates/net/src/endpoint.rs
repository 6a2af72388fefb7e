//! What a host has of the data plane once, whatever it takes part in: a port, a key, threads, memory,
//! limits, and the connections to other hosts.

mod buffers;
mod dial;
mod establish;
mod limiter;
mod listen;
mod memory;
mod portion;
mod reader;
mod stream;
mod transport;
mod trunk;
mod workers;
mod writer;

use std::collections::BTreeMap;
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use outpour_core::{Bytes, NodeId, Rate};
use rustls::ServerConfig;
use socket2::{Domain, Protocol, SockRef, Socket, Type};
use tokio::net::TcpListener;
use tokio::sync::{mpsc, watch};

use self::buffers::{Cache, Pool};
pub(crate) use self::dial::{Unreached, gave_way, reach};
use self::limiter::HostLimits;
pub(crate) use self::limiter::SharedBucket;
use self::memory::Budget;
pub(crate) use self::memory::{Account, Hold, Pressure};
pub(crate) use self::reader::Arriving;
pub(crate) use self::trunk::Trunk;
pub(crate) use self::workers::CrewHandle;
use self::workers::Workers;
use crate::config::{EndpointConfig, Limits, MEMORY_MIN, SessionConfig};
use crate::error::Error;
use crate::event::Events;
use crate::identity::{EndpointKey, KeyDigest, SessionId, fill_random};
use crate::session::{MEMBER_PATIENCE, Session, Shared, Standing};
use crate::{LinkError, MESSAGE_BYTES_MAX, SESSIONS_MAX};

/// How long a connection has to authenticate.
const HANDSHAKE_MAX: Duration = Duration::from_secs(5);
/// Messages that were received and wait for the users of sessions may take this much.
const MESSAGES_IN_BYTES_MAX: usize = 16 << 20;
/// Connections that may wait to be accepted.
const BACKLOG: i32 = 1024;

const _: () = assert!(MESSAGE_BYTES_MAX <= MESSAGES_IN_BYTES_MAX);
// A peer that calls a little early is heard before its time to authenticate is over.
const _: () = assert!(MEMBER_PATIENCE.as_millis() < HANDSHAKE_MAX.as_millis());

/// What an endpoint has in use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Sessions.
    pub sessions: usize,
    /// Links of all sessions.
    pub links: usize,
    /// Connections that carry them.
    pub connections: u64,
    /// Memory for blocks and messages under way, and for blocks that are kept.
    pub memory: Bytes,
}

/// A host's data plane. Clones are the same endpoint; it ends when the last one and all sessions are
/// dropped.
#[derive(Clone)]
pub struct Endpoint {
    keep: Arc<Keep>,
}

/// Ends the endpoint when dropped.
pub(crate) struct Keep {
    core: Arc<Core>,
    addr: SocketAddr,
    ended: tokio::sync::Mutex<mpsc::Receiver<()>>,
}

impl Drop for Keep {
    fn drop(&mut self) {
        self.core.end();
    }
}

impl fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Endpoint")
            .field("addr", &self.keep.addr)
            .field("key", &self.key())
            .finish_non_exhaustive()
    }
}

impl Endpoint {
    /// Listens and begins to serve. Must be called in a tokio runtime.
    ///
    /// # Errors
    /// If the address cannot be listened on, or threads cannot be started.
    pub fn start(config: EndpointConfig) -> Result<Self, Error> {
        let failed = |error| Error::Listen {
            addr: config.listen,
            error,
        };
        let limits = HostLimits::new(config.limits);
        let listener = listen(config.listen, config.limits).map_err(failed)?;
        let addr = listener.local_addr().map_err(failed)?;
        let threads = std::thread::available_parallelism()
            .map_or(2, usize::from)
            .clamp(2, 8);
        let workers = Workers::start(threads).map_err(failed)?;
        let memory = config.memory.0.max(MEMORY_MIN) as usize;
        let (alive, ended) = mpsc::channel(1);
        let core = Arc::new(Core {
            answering: config.key.answering()?,
            key: config.key,
            limits,
            sessions: Mutex::default(),
            trunks: Mutex::default(),
            met: watch::Sender::new(()),
            serial: AtomicU64::new(0),
            links: AtomicUsize::new(0),
            receive_memory: Budget::new(memory / 2),
            send_memory: Budget::new(memory / 4),
            message_memory: Budget::new(MESSAGES_IN_BYTES_MAX),
            cache: Cache::new(memory / 4),
            pool: Arc::default(),
            workers,
            stats: Counters::default(),
            stop: watch::Sender::new(false),
            alive: Mutex::new(Some(alive)),
        });
        core.spawn(listen::run(core.clone(), listener));
        let pacing = core.clone();
        core.spawn(async move { pacing.limits.outgoing.pace().await });
        let pacing = core.clone();
        core.spawn(async move { pacing.limits.incoming.pace().await });
        let keep = Keep {
            core,
            addr,
            ended: tokio::sync::Mutex::new(ended),
        };
        Ok(Self {
            keep: Arc::new(keep),
        })
    }

    /// Where this endpoint listens.
    pub fn local_addr(&self) -> SocketAddr {
        self.keep.addr
    }

    /// The digest of its key, by which peers are to know it.
    pub fn key(&self) -> KeyDigest {
        self.keep.core.key.digest()
    }

    /// Begins a member's part in a session. Must be called in a tokio runtime.
    ///
    /// # Errors
    /// [`Error::Full`] if there are [`SESSIONS_MAX`] already, [`Error::Taken`] if that member of that
    /// session is here already, [`Error::Ended`] after [`Self::shutdown`].
    pub fn session(&self, config: &SessionConfig) -> Result<(Session, Events), Error> {
        Session::start(self.keep.core.clone(), self.keep.clone(), config)
    }

    /// Changes how fast data may move over all sessions, from now on and without reconnecting.
    pub fn set_limits(&self, limits: Limits) {
        self.keep.core.limits.set(limits);
    }

    /// What is in use now.
    pub fn usage(&self) -> Usage {
        let core = &self.keep.core;
        let held = [
            core.receive_memory.used(),
            core.send_memory.used(),
            core.message_memory.used(),
            core.cache.held(),
        ];
        Usage {
            sessions: core.sessions().by_member.len(),
            links: core.links.load(Ordering::Relaxed),
            connections: core.stats.connections.load(Ordering::Relaxed),
            memory: Bytes(held.iter().sum::<usize>() as u64),
        }
    }

    /// Ends all sessions, closes everything and waits until no task, thread or socket is left.
    pub async fn shutdown(self) {
        let core = &self.keep.core;
        core.end();
        // Every task holds a sender; nothing is ever sent.
        let _ = self.keep.ended.lock().await.recv().await;
        let core = core.clone();
        let _ = tokio::task::spawn_blocking(move || core.workers.join()).await;
    }
}

fn listen(addr: SocketAddr, limits: Limits) -> std::io::Result<TcpListener> {
    let socket = Socket::new(Domain::for_address(addr), Type::STREAM, Some(Protocol::TCP))?;
    socket.set_reuse_address(true)?;
    socket.set_nonblocking(true)?;
    let incoming = limits.incoming.min(limits.per_connection);
    limiter::shape_early(SockRef::from(&socket), incoming);
    socket.bind(&addr.into())?;
    socket.listen(BACKLOG)?;
    TcpListener::from_std(socket.into())
}

#[derive(Default)]
pub(crate) struct Counters {
    connections: AtomicU64,
}

/// Which end of which trunk. An endpoint may call itself, for two members of a session that are on
/// one host; then it has both ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct TrunkKey {
    /// Of the peer's key.
    pub(crate) digest: KeyDigest,
    /// Whether this is the end that was called by this very endpoint.
    pub(crate) called_by_self: bool,
}

/// What is kept for the trunks to a peer.
#[derive(Default)]
struct Slot {
    trunk: Option<Arc<Trunk>>,
    /// Held by the task that dials.
    dialling: Arc<tokio::sync::Mutex<()>>,
}

#[derive(Default)]
struct Sessions {
    by_member: BTreeMap<(SessionId, NodeId), Arc<Shared>>,
    closed: bool,
}

impl Sessions {
    fn check(&self) {
        debug_assert!(self.by_member.len() <= SESSIONS_MAX);
        debug_assert!(
            !self.closed || self.by_member.is_empty(),
            "a session outlives its endpoint"
        );
        debug_assert!(
            self.by_member
                .iter()
                .all(|(member, session)| *member == (session.id, session.node)),
            "a session is kept under another's name"
        );
    }
}

/// What all tasks of an endpoint share.
pub(crate) struct Core {
    key: EndpointKey,
    answering: Arc<ServerConfig>,
    pub(crate) limits: HostLimits,
    sessions: Mutex<Sessions>,
    trunks: Mutex<BTreeMap<TrunkKey, Slot>>,
    /// Told whenever a node becomes a member of a session.
    met: watch::Sender<()>,
    serial: AtomicU64,
    pub(crate) links: AtomicUsize,
    pub(crate) receive_memory: Arc<Budget>,
    pub(crate) send_memory: Arc<Budget>,
    pub(crate) message_memory: Arc<Budget>,
    pub(crate) cache: Cache,
    pool: Arc<Pool>,
    pub(crate) workers: Workers,
    stats: Counters,
    stop: watch::Sender<bool>,
    /// Held by every task, so that the end of the last one is noticed.
    alive: Mutex<Option<mpsc::Sender<()>>>,
}

impl Core {
    pub(crate) fn next_serial(&self) -> u64 {
        self.serial.fetch_add(1, Ordering::Relaxed) + 1
    }

    fn random(&self) -> u64 {
        let mut bytes = [0; 8];
        // Ids of trunks need not be secret, only new; zeros would make one attempt fail.
        let _ = fill_random(&mut bytes);
        u64::from_le_bytes(bytes)
    }

    /// Between half of `time` and all of it.
    pub(crate) fn jitter(&self, time: Duration) -> Duration {
        let share = self.random() as f64 / u64::MAX as f64;
        let pause = time.mul_f64(0.5 + share / 2.0);
        debug_assert!(pause >= time / 2);
        debug_assert!(pause <= time);
        pause
    }

    // ---- tasks

    /// Starts a task that ends with the endpoint wherever it is.
    fn spawn(self: &Arc<Self>, task: impl Future<Output = ()> + Send + 'static) {
        let core = self.clone();
        self.spawn_to_end(async move {
            tokio::select! {
                () = task => {}
                () = core.stopped() => {}
            }
        });
    }

    /// Starts a task that sees to its own end when the endpoint ends.
    fn spawn_to_end(&self, task: impl Future<Output = ()> + Send + 'static) {
        if let Some(alive) = self.alive() {
            tokio::spawn(async move {
                task.await;
                drop(alive);
            });
        }
    }

    /// To be held by whatever the end of the endpoint is to wait for; `None` if it has ended.
    fn alive(&self) -> Option<mpsc::Sender<()>> {
        self.alive
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    async fn stopped(&self) {
        let _ = self.stop.subscribe().wait_for(|stop| *stop).await;
    }

    fn end(&self) {
        self.alive
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        let sessions = {
            let mut sessions = self.sessions();
            sessions.closed = true;
            let ended = std::mem::take(&mut sessions.by_member);
            sessions.check();
            ended
        };
        for session in sessions.into_values() {
            session.end();
        }
        self.stop.send_replace(true);
        self.workers.close();
    }

    // ---- sessions

    fn sessions(&self) -> MutexGuard<'_, Sessions> {
        self.sessions.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn add_session(&self, session: &Arc<Shared>) -> Result<(), Error> {
        let mut sessions = self.sessions();
        let member = (session.id, session.node);
        if sessions.closed {
            return Err(Error::Ended);
        }
        if sessions.by_member.contains_key(&member) {
            return Err(Error::Taken { node: session.node });
        }
        if sessions.by_member.len() >= SESSIONS_MAX {
            return Err(Error::Full { max: SESSIONS_MAX });
        }
        sessions.by_member.insert(member, session.clone());
        sessions.check();
        Ok(())
    }

    /// Forgets a session that has ended, and the trunks that no session needs any more.
    pub(crate) fn remove_session(&self, session: &Shared) {
        let member = (session.id, session.node);
        let mut sessions = self.sessions();
        let found = sessions.by_member.get(&member);
        if found.is_some_and(|found| found.serial == session.serial) {
            sessions.by_member.remove(&member);
        }
        sessions.check();
        drop(sessions);
        self.limits.outgoing.remove_flow(session.serial);
        self.limits.incoming.remove_flow(session.serial);
        self.cache.forget(session.serial);
        let trunks: Vec<_> = self.live_trunks();
        for trunk in trunks {
            if self.standing(trunk.key.digest) == Standing::Stranger {
                trunk.close(LinkError::Parted("no session needs the trunk"));
            }
        }
    }

    fn session(&self, id: SessionId, node: NodeId) -> Option<Arc<Shared>> {
        self.sessions().by_member.get(&(id, node)).cloned()
    }

    /// A node became a member of a session.
    pub(crate) fn note_member(&self) {
        self.met.send_replace(());
    }

    /// The most that the holder of a key is in any session.
    fn standing(&self, key: KeyDigest) -> Standing {
        let sessions = self.sessions();
        let standings = sessions.by_member.values().map(|it| it.peers.standing(key));
        standings.max().unwrap_or(Standing::Stranger)
    }

    /// Whether a member of a session has this address.
    fn has_member_at(&self, host: IpAddr) -> bool {
        let host = host.to_canonical();
        let sessions = self.sessions();
        let mut all = sessions.by_member.values();
        all.any(|session| session.peers.has_member_at(host))
    }

    /// As [`Self::standing`], but gives one that is not known yet a moment to become a member.
    async fn standing_in_time(&self, key: KeyDigest) -> Standing {
        let mut met = self.met.subscribe();
        let known = async {
            while self.standing(key) == Standing::Stranger && met.changed().await.is_ok() {}
        };
        let _ = tokio::time::timeout(MEMBER_PATIENCE, known).await;
        self.standing(key)
    }

    /// Whether several sessions may have to do with the holder of a key.
    fn is_shared(&self, key: KeyDigest) -> bool {
        let sessions = self.sessions();
        if sessions.by_member.len() < 2 {
            return false;
        }
        let members = sessions
            .by_member
            .values()
            .filter(|session| session.peers.standing(key) >= Standing::Member);
        members.take(2).count() > 1
    }

    // ---- trunks

    fn trunks(&self) -> MutexGuard<'_, BTreeMap<TrunkKey, Slot>> {
        self.trunks.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn live_trunks(&self) -> Vec<Arc<Trunk>> {
        self.trunks()
            .values()
            .filter_map(|slot| slot.trunk.clone())
            .collect()
    }

    /// The trunk to the holder of a key, if there is one that is not closing.
    fn live_trunk(&self, key: TrunkKey) -> Option<Arc<Trunk>> {
        let trunk = self.trunks().get(&key)?.trunk.clone()?;
        debug_assert_eq!(trunk.key, key, "a trunk to another host");
        (!trunk.is_closing()).then_some(trunk)
    }

    /// A trunk has ended.
    fn forget_trunk(&self, trunk: &Arc<Trunk>) {
        debug_assert!(trunk.is_closing(), "it could be found again");
        let mut trunks = self.trunks();
        let Some(slot) = trunks.get_mut(&trunk.key) else {
            return;
        };
        let current = slot.trunk.as_ref();
        if current.is_some_and(|current| Arc::ptr_eq(current, trunk)) {
            slot.trunk = None;
        }
        if slot.trunk.is_none() && Arc::strong_count(&slot.dialling) == 1 {
            trunks.remove(&trunk.key);
        }
    }

    /// What one connection of a trunk may move out and in, with these sessions on it.
    fn rates(&self, sessions: impl Iterator<Item = (Rate, Rate)>) -> (Rate, Rate) {
        let add = |a: Rate, b: Rate| {
            Rate::from_bytes_per_s(a.bytes_per_s() + b.bytes_per_s()).unwrap_or(Rate::UNLIMITED)
        };
        let sum = sessions.reduce(|a, b| (add(a.0, b.0), add(a.1, b.1)));
        let (outgoing, incoming) = sum.unwrap_or((Rate::UNLIMITED, Rate::UNLIMITED));
        self.limits.of_connection(outgoing, incoming)
    }
}
