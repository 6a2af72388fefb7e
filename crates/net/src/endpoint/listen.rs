//! Accepting connections from strangers, at a cost so small that they do no harm.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::net::TcpListener;
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::{sleep, timeout};

use super::{Core, HANDSHAKE_MAX, establish};
use crate::{Crowded, HalfOpen};

/// Connections of strangers that have not authenticated, and as many of those that call from addresses of
/// members.
pub(crate) const HALF_OPEN_MAX: usize = 256;
/// Pause when the system has no descriptor or memory for another connection.
const EXHAUSTED: Duration = Duration::from_millis(100);

/// Accepts connections for as long as the endpoint runs.
pub(crate) async fn run(core: Arc<Core>, listener: TcpListener) {
    let mut handshakes = JoinSet::new();
    let mut half_open = HalfOpen::new(HALF_OPEN_MAX);
    loop {
        tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((stream, addr)) => {
                    half_open.retain(|handshake: &AbortHandle| !handshake.is_finished());
                    let (core, alive) = (core.clone(), core.alive());
                    let is_member = core.has_member_at(addr.ip());
                    let handshake = handshakes.spawn(async move {
                        match timeout(HANDSHAKE_MAX, establish::accept(&core, stream)).await {
                            Ok(Ok(())) => {}
                            Ok(Err(error)) => tracing::debug!(%addr, %error, "refused"),
                            Err(_) => tracing::debug!(%addr, "did not authenticate in time"),
                        }
                        drop((core, alive));
                    });
                    if let Some(closed) = half_open.add(addr.ip(), is_member, handshake) {
                        closed.abort();
                    }
                    if let Some(Crowded { closed, last_from }) = half_open.news(Instant::now()) {
                        tracing::warn!(closed, %last_from, "too many connections that do not authenticate; closed some");
                    }
                }
                Err(error) => {
                    tracing::debug!(%error, "cannot accept connections");
                    sleep(EXHAUSTED).await;
                }
            },
            Some(_) = handshakes.join_next() => {}
        }
    }
}
