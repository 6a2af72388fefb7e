//! Keeping links to the peers that are wanted: attempts go on with growing pauses.

use std::sync::Arc;
use std::time::Duration;

use outpour_core::NodeId;
use tokio::sync::Notify;
use tokio::time::{Instant, timeout};

use super::Shared;
use super::peers::Target;
use crate::endpoint::{self, Unreached};
use crate::event::SessionEvent;
use crate::frame::Refusal;
use crate::{LinkError, Member, UNREACHABLE_EVERY};

/// Of two nodes that are told to connect to each other at the same moment the one with the higher
/// number lets the other go first, to save a connection that would be refused. Within a site that is
/// long enough for a handshake; to wait for one over a wide area costs more than the connection.
const YIELD: Duration = Duration::from_millis(5);
/// Failures are reported once there were this many, or they have gone on for this long.
const FAILURES_MIN: u32 = 2;
const FAILING_MIN: Duration = Duration::from_secs(2);

const _: () = assert!(FAILING_MIN.as_millis() < UNREACHABLE_EVERY.as_millis());

/// Calls a peer until there is a link, or none is wanted any more.
pub(super) async fn run(session: Arc<Shared>, peer: NodeId, news: Arc<Notify>) {
    debug_assert_ne!(peer, session.node, "no node calls itself");
    let start = Instant::now();
    let mut failures = 0;
    let mut reported: Option<Instant> = None;
    if session.node > peer {
        pause(YIELD, &news).await;
    }
    loop {
        let member = match session.peers.target(peer) {
            Target::None => return,
            Target::Unknown => {
                news.notified().await;
                continue;
            }
            Target::Dial(member) => member,
        };
        let Err(missed) = attempt(&session, peer, &member).await else {
            continue;
        };
        let why = missed.to_string();
        tracing::debug!(%peer, why, "calling failed");
        failures += u32::from(!missed.is_early());
        let due = reported.is_none_or(|at| at.elapsed() >= UNREACHABLE_EVERY);
        let lasting = failures >= FAILURES_MIN || start.elapsed() >= FAILING_MIN;
        if due && lasting && !missed.is_quiet() {
            reported = Some(Instant::now());
            session
                .emit(0, SessionEvent::Unreachable { peer, why })
                .await;
        }
        let backoff = session.peers.next_backoff(peer);
        pause(session.core.jitter(backoff), &news).await;
    }
}

/// As [`run`], after a pause: the link that was there has just broken.
pub(super) async fn redial(session: Arc<Shared>, peer: NodeId, news: Arc<Notify>) {
    let backoff = session.peers.next_backoff(peer);
    pause(session.core.jitter(backoff), &news).await;
    run(session, peer, news).await;
}

async fn pause(time: Duration, news: &Notify) {
    let _ = timeout(time, news.notified()).await;
}

/// Makes a link, over the trunk that is there or a new one.
async fn attempt(session: &Arc<Shared>, peer: NodeId, member: &Member) -> Result<(), Unreached> {
    let mut trunk = endpoint::reach(session, member).await?;
    let mut called = session.call(&trunk, peer).await;
    if called.is_err() && endpoint::gave_way(&session.core, &trunk) {
        trunk = endpoint::reach(session, member).await?;
        called = session.call(&trunk, peer).await;
    }
    match called {
        Ok(()) => Ok(()),
        Err(LinkError::Refused(refusal)) => {
            if refusal == Refusal::Busy {
                // If the link that the peer has is dead, this makes it known soon.
                trunk.probe();
            }
            Err(Unreached::Refused(refusal))
        }
        Err(error) => Err(Unreached::Link(error)),
    }
}
