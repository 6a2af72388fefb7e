//! Reaching the endpoint of a peer: the trunk that is there is used, or every address is given a
//! chance.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use outpour_core::Rate;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use super::establish::{self, Reached};
use super::trunk::Trunk;
use super::{Core, HANDSHAKE_MAX, TrunkKey};
use crate::LinkError;
use crate::config::{CONNECTIONS_MAX, Connections, Member, TRUNK_MAX};
use crate::frame::{Purpose, Refusal};
use crate::identity::KeyDigest;
use crate::session::{BACKOFF_MAX, Shared};

/// While one address of a peer does not answer, the next one is tried after this.
const STAGGER: Duration = Duration::from_millis(250);
/// How long one address may take.
const CONNECT_MAX: Duration = Duration::from_secs(5);
/// How many addresses of a peer are tried.
const ADDRS_MAX: usize = 16;
/// A path whose round trip is shorter than this is filled by one connection.
const SHORT_PATH: Duration = Duration::from_millis(5);
/// Extra connections wait this long: handshakes would slow down the first blocks of all, and a trunk
/// that lives no longer does not need them.
const EXTRA_AFTER: Duration = Duration::from_millis(300);
/// A host with many links opens one connection more for each of these in a round trip.
const TRIP_PER_CONNECTION: Duration = Duration::from_millis(25);
/// How often an extra connection is tried; the trunk works without it.
const EXTRA_ATTEMPTS: u32 = 3;

/// Why a peer was not reached.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Unreached {
    #[error("{0}")]
    Addresses(String),
    #[error("{0}")]
    Refused(Refusal),
    #[error("{0}")]
    Link(LinkError),
}

impl Unreached {
    /// Whether the peer may just not have been told of us yet.
    pub(crate) const fn is_early(&self) -> bool {
        matches!(self, Self::Refused(Refusal::NotMember))
    }

    /// Whether there is nothing to report, because the peer only was quicker.
    pub(crate) const fn is_quiet(&self) -> bool {
        matches!(self, Self::Refused(Refusal::Busy | Refusal::NoTrunk))
    }
}

/// Where to and how far.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Way {
    pub(crate) addr: SocketAddr,
    pub(crate) round_trip: Duration,
}

/// The trunk to a member of a session: the one that is there, or a new one.
pub(crate) async fn reach(session: &Arc<Shared>, member: &Member) -> Result<Arc<Trunk>, Unreached> {
    debug_assert!(!member.addrs.is_empty(), "its address is not known");
    let core = &session.core;
    let key = TrunkKey {
        digest: member.key,
        called_by_self: false,
    };
    let found = |trunk: Arc<Trunk>| {
        grow(core, &trunk, session.connections());
        trunk
    };
    if let Some(trunk) = core.live_trunk(key) {
        return Ok(found(trunk));
    }
    let dialling = core.trunks().entry(key).or_default().dialling.clone();
    let _turn = dialling.lock().await;
    if let Some(trunk) = core.live_trunk(key) {
        return Ok(found(trunk));
    }
    let (_, incoming) = core.rates(std::iter::once(session.rates()));
    let reached = race(core, member, incoming)
        .await
        .map_err(Unreached::Addresses)?;
    match reached.into_trunk(core).await {
        Ok(trunk) => {
            debug_assert_eq!(trunk.key, key, "another host than was dialled");
            Ok(found(trunk))
        }
        // The peer dialled, too, and its connection is the trunk.
        Err(refusal) => match core.live_trunk(key) {
            Some(trunk) if refusal == Refusal::Busy => Ok(found(trunk)),
            _ => Err(Unreached::Refused(refusal)),
        },
    }
}

/// Whether the peer has not taken a trunk that was dialled here, and another one is there: it dialled,
/// too, and its connection was taken.
pub(crate) fn gave_way(core: &Core, trunk: &Arc<Trunk>) -> bool {
    let other = core.live_trunk(trunk.key);
    !trunk.is_taken() && other.is_some_and(|other| !Arc::ptr_eq(&other, trunk))
}

/// Dials the addresses one after the other without waiting for slow ones; the first at which the
/// peer authenticates wins.
async fn race(core: &Arc<Core>, member: &Member, incoming: Rate) -> Result<Reached, String> {
    let mut left = member.addrs.iter().copied().take(ADDRS_MAX);
    let mut running = JoinSet::new();
    let mut failures: Vec<String> = Vec::new();
    let mut next = left.next();
    loop {
        if let Some(addr) = next.take() {
            let dialled = dial(core.clone(), member.key, addr, incoming);
            running.spawn(dialled);
        }
        debug_assert!(running.len() + failures.len() <= ADDRS_MAX);
        tokio::select! {
            ended = running.join_next() => match ended {
                Some(Ok(Ok(reached))) => return Ok(reached),
                Some(Ok(Err(why))) => {
                    failures.push(why);
                    next = left.next();
                }
                Some(Err(panic)) => failures.push(panic.to_string()),
                None => {
                    debug_assert!(!failures.is_empty(), "given up for no reason");
                    return Err(failures.join("; "));
                }
            },
            () = sleep(STAGGER), if left.len() > 0 => next = left.next(),
        }
    }
}

async fn dial(
    core: Arc<Core>,
    key: KeyDigest,
    addr: SocketAddr,
    incoming: Rate,
) -> Result<Reached, String> {
    let alive = core.alive();
    let reached = timeout(CONNECT_MAX, establish::reach(&core, key, addr, incoming)).await;
    drop(alive);
    let reached = reached.map_err(|_| format!("{addr}: no answer"))?;
    reached.map_err(|error| format!("{addr}: {error}"))
}

/// Opens as many connections as a session wants on a trunk that was dialled here, and one more for
/// messages if these are several.
fn grow(core: &Arc<Core>, trunk: &Arc<Trunk>, wanted: Connections) {
    let Some(way) = trunk.way() else { return };
    let count = match wanted {
        Connections::Auto if way.round_trip < SHORT_PATH => 1,
        Connections::Auto => CONNECTIONS_MAX,
        Connections::Fixed(count) => count.clamp(1, CONNECTIONS_MAX),
    };
    let all = if count > 1 { count + 1 } else { 1 };
    for number in trunk.grow(all) {
        let useful = wanted == Connections::Auto;
        core.spawn(extra(core.clone(), trunk.clone(), way, number, useful));
    }
}

/// Opens one more connection for the blocks of a trunk, the `number`-th; `if_useful`, not where it
/// would only crowd others out of the queues on the way: the links of this host fill its paths
/// together, and on a path that is not long a connection comes up to its rate soon. The trunk does
/// without if it fails.
async fn extra(core: Arc<Core>, trunk: Arc<Trunk>, way: Way, number: u8, if_useful: bool) {
    debug_assert!(number > 0, "the first connection made the trunk");
    debug_assert!(number < TRUNK_MAX);
    debug_assert!(!trunk.key.called_by_self, "the other end was dialled");
    sleep(EXTRA_AFTER).await;
    if trunk.taken().await.is_err() {
        return;
    }
    let Some(id) = trunk.id() else { return };
    // The first and second come together: blocks leave the first connection to messages only where
    // there are several others.
    let others = u32::from(number - 1).max(1);
    let links = core.links.load(std::sync::atomic::Ordering::Relaxed);
    let together = others as usize * links >= usize::from(CONNECTIONS_MAX);
    let soon = TRIP_PER_CONNECTION * others >= way.round_trip;
    if if_useful && together && soon {
        return;
    }
    let rates = trunk.links().into_iter().map(|link| link.session.rates());
    let (_, incoming) = core.rates(rates);
    for _ in 0..EXTRA_ATTEMPTS {
        let attached = timeout(CONNECT_MAX + HANDSHAKE_MAX, async {
            let reached = establish::reach(&core, trunk.key.digest, way.addr, incoming);
            let greeted = reached.await?.greet(Purpose::Extra(id)).await?;
            greeted.attach(&trunk).await
        });
        tokio::select! {
            _ = trunk.closed() => return,
            attached = attached => match attached {
                Ok(Ok(())) => return,
                Ok(Err(error)) => tracing::debug!(peer = %trunk.key.digest, %error, "no extra connection"),
                Err(_) => tracing::debug!(peer = %trunk.key.digest, "no extra connection: timeout"),
            },
        }
        sleep(core.jitter(BACKOFF_MAX / 10)).await;
    }
}
