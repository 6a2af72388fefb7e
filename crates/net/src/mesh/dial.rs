//! Reaching peers: every address is given a chance, and attempts go on with growing pauses.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use outpour_core::NodeId;
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};

use super::establish::{Failure, Reached, reach};
use super::link::Link;
use super::peers::{BACKOFF_MAX, Target};
use super::{HANDSHAKE_MAX, Shared, UNREACHABLE_EVERY};
use crate::config::{CONNECTIONS_MAX, Connections};
use crate::event::MeshEvent;
use crate::frame::{Purpose, Refusal};

/// Of two nodes that are told to connect to each other at the same moment the one with the higher
/// number lets the other go first, to save a connection that would be refused.
const YIELD: Duration = Duration::from_millis(50);
/// While one address of a peer does not answer, the next one is tried after this.
const STAGGER: Duration = Duration::from_millis(250);
/// How long one address may take.
const CONNECT_MAX: Duration = Duration::from_secs(5);
/// Failures are reported once there were this many, or they have gone on for this long.
const FAILURES_MIN: u32 = 2;
const FAILING_MIN: Duration = Duration::from_secs(2);
/// How many addresses of a peer are tried.
const ADDRS_MAX: usize = 16;
/// Extra connections wait this long: handshakes would slow down the first blocks of all, and a link
/// that lives no longer does not need them.
const EXTRA_AFTER: Duration = Duration::from_millis(300);
/// A node with many links opens one connection more for each of these in a round trip.
const TRIP_PER_CONNECTION: Duration = Duration::from_millis(25);
/// How often an extra connection is tried; the link works without it.
const EXTRA_ATTEMPTS: u32 = 3;

/// Dials a peer until there is a link, or none is wanted any more.
pub(crate) async fn run(shared: Arc<Shared>, peer: NodeId, news: Arc<Notify>) {
    let start = Instant::now();
    let mut failures = 0;
    let mut reported: Option<Instant> = None;
    if shared.identity.node() > peer {
        pause(YIELD, &news).await;
    }
    loop {
        let member = match shared.peers.target(peer) {
            Target::None => return,
            Target::Unknown => {
                news.notified().await;
                continue;
            }
            Target::Dial(member) => member,
        };
        let Err(Missed { why, early }) = attempt(&shared, peer, &member.addrs).await else {
            continue;
        };
        tracing::debug!(%peer, why, "dialling failed");
        failures += u32::from(!early);
        let due = reported.is_none_or(|at| at.elapsed() >= UNREACHABLE_EVERY);
        if due && (failures >= FAILURES_MIN || start.elapsed() >= FAILING_MIN) && !why.is_empty() {
            reported = Some(Instant::now());
            shared.emit(0, MeshEvent::Unreachable { peer, why }).await;
        }
        pause(shared.jitter(shared.peers.next_backoff(peer)), &news).await;
    }
}

/// As [`run`], after a pause: the link that was there has just broken.
pub(crate) async fn redial(shared: Arc<Shared>, peer: NodeId, news: Arc<Notify>) {
    pause(shared.jitter(shared.peers.next_backoff(peer)), &news).await;
    run(shared, peer, news).await;
}

async fn pause(time: Duration, news: &Notify) {
    let _ = timeout(time, news.notified()).await;
}

/// An attempt that came to nothing.
struct Missed {
    /// What happened at each address; empty if there is nothing to report, because the peer only
    /// was quicker.
    why: String,
    /// Whether the peer may just not have been told of us yet.
    early: bool,
}

impl From<String> for Missed {
    fn from(why: String) -> Self {
        Self { why, early: false }
    }
}

/// Tries every address once.
async fn attempt(shared: &Arc<Shared>, peer: NodeId, addrs: &[SocketAddr]) -> Result<(), Missed> {
    let reached = race(shared, peer, addrs).await?;
    let linked = timeout(HANDSHAKE_MAX, async {
        reached
            .greet(shared, peer, Purpose::Link)
            .await?
            .into_link(shared)
            .await
    });
    match linked.await {
        Ok(Ok(())) => Ok(()),
        Ok(Err(Failure::Refused(Refusal::Busy | Refusal::NoLink))) => Err(String::new().into()),
        Ok(Err(error)) => Err(Missed {
            early: matches!(error, Failure::Refused(Refusal::NotMember)),
            why: error.to_string(),
        }),
        Err(_) => {
            let why = "connected, but the greeting was not answered in time";
            Err(why.to_owned().into())
        }
    }
}

/// Dials the addresses one after the other without waiting for slow ones; the first at which the
/// peer proves who it is wins.
async fn race(shared: &Arc<Shared>, peer: NodeId, addrs: &[SocketAddr]) -> Result<Reached, String> {
    let mut left = addrs.iter().copied().take(ADDRS_MAX);
    let mut running = JoinSet::new();
    let mut failures: Vec<String> = Vec::new();
    let mut next = left.next();
    loop {
        if let Some(addr) = next.take() {
            let (shared, alive) = (shared.clone(), shared.alive());
            running.spawn(async move {
                let reached = timeout(CONNECT_MAX, reach(&shared, peer, addr)).await;
                drop((shared, alive));
                reached
                    .map_err(|_| format!("{addr}: no answer"))
                    .and_then(|reached| reached.map_err(|error| format!("{addr}: {error}")))
            });
        }
        tokio::select! {
            ended = running.join_next() => match ended {
                Some(Ok(Ok(reached))) => return Ok(reached),
                Some(Ok(Err(why))) => {
                    failures.push(why);
                    next = left.next();
                }
                Some(Err(panic)) => failures.push(panic.to_string()),
                None => return Err(failures.join("; ")),
            },
            () = sleep(STAGGER), if left.len() > 0 => next = left.next(),
        }
    }
}

/// Where to and how far.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Way {
    pub(crate) addr: SocketAddr,
    pub(crate) round_trip: Duration,
}

/// Opens one more connection for the blocks of a link, the `index`-th, unless it would only crowd
/// others out of the queues on the way: the links of this node fill its paths together, and on a
/// path that is not long a connection comes up to its rate soon. The link does without if it fails.
pub(crate) async fn extra(shared: Arc<Shared>, link: Arc<Link>, way: Way, index: u8) {
    sleep(EXTRA_AFTER).await;
    let index = u32::from(index);
    let together = index as usize * shared.links() >= usize::from(CONNECTIONS_MAX);
    let soon = TRIP_PER_CONNECTION * index >= way.round_trip;
    if shared.connections == Connections::Auto && together && soon {
        return;
    }
    let addr = way.addr;
    for _ in 0..EXTRA_ATTEMPTS {
        if link.is_closing() {
            return;
        }
        let attached = timeout(CONNECT_MAX + HANDSHAKE_MAX, async {
            let reached = reach(&shared, link.peer, addr).await?;
            let purpose = Purpose::Extra(link.id);
            reached
                .greet(&shared, link.peer, purpose)
                .await?
                .attach(&shared, &link)
                .await
        });
        match attached.await {
            Ok(Ok(())) => return,
            result if link.is_closing() => {
                drop(result);
                return;
            }
            Ok(Err(error)) => tracing::debug!(peer = %link.peer, %error, "no extra connection"),
            Err(_) => tracing::debug!(peer = %link.peer, "no extra connection: timeout"),
        }
        sleep(shared.jitter(BACKOFF_MAX / 10)).await;
    }
}
