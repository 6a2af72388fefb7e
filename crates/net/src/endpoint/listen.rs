//! Accepting connections from strangers, at a cost so small that they do no harm.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::TcpListener;
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::{sleep, timeout};

use super::{Core, HANDSHAKE_MAX, establish};

/// Connections that have not authenticated: beyond this the oldest is closed, so that a flood hurts
/// itself more than a peer, whose handshake takes milliseconds.
pub(crate) const HALF_OPEN_MAX: usize = 64;
/// Pause when the system has no descriptor or memory for another connection.
const EXHAUSTED: Duration = Duration::from_millis(100);

/// Accepts connections for as long as the endpoint runs.
pub(crate) async fn run(core: Arc<Core>, listener: TcpListener) {
    let mut handshakes = JoinSet::new();
    let mut order: VecDeque<AbortHandle> = VecDeque::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((stream, addr)) => {
                    order.retain(|handshake| !handshake.is_finished());
                    if order.len() >= HALF_OPEN_MAX && let Some(oldest) = order.pop_front() {
                        oldest.abort();
                    }
                    debug_assert!(order.len() < HALF_OPEN_MAX);
                    let (core, alive) = (core.clone(), core.alive());
                    order.push_back(handshakes.spawn(async move {
                        match timeout(HANDSHAKE_MAX, establish::accept(&core, stream)).await {
                            Ok(Ok(())) => {}
                            Ok(Err(error)) => tracing::debug!(%addr, %error, "refused"),
                            Err(_) => tracing::debug!(%addr, "did not authenticate in time"),
                        }
                        drop((core, alive));
                    }));
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
