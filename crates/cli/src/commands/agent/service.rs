//! The agent as a service: takes control connections of operators it trusts.
//!
//! Whoever connects costs a bounded amount until it has proved to be an operator: so many
//! handshakes at a time, each with a deadline. When there are more, the oldest has to go: one that
//! means it is done in no time, and a crowd that never means to finish keeps nobody out.

use std::collections::VecDeque;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use outpour::agent::everywhere;
use outpour_agent::session::{self, SessionOptions};
use outpour_core::Rate;
use outpour_core::text::{chain, escape};
use outpour_net::trust::Agent;
use rustix::net::sockopt::set_tcp_user_timeout;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::Semaphore;
use tokio::task::AbortHandle;
use tokio::time::timeout;

use crate::out::{self, Failure};

/// How many connections may be proving themselves at a time.
const HANDSHAKES_MAX: usize = 128;

/// How many casts an agent takes part in at a time; more are turned away.
const CASTS_MAX: usize = 64;

/// How long a connection may take to prove itself.
const HANDSHAKE_WAIT: Duration = Duration::from_secs(10);

/// An operator whose machine is gone without a word is known to be gone after this: its agent says
/// something twice a second, and nothing of that is acknowledged.
const GONE: Duration = Duration::from_secs(30);

/// How long to wait when no connection can be accepted, for lack of descriptors perhaps.
const PAUSE: Duration = Duration::from_millis(200);

/// What every connection needs.
struct Service {
    agent: Agent,
    options: SessionOptions,
    casts: Semaphore,
}

/// Serves until a signal ends it.
///
/// # Errors
/// If the identity cannot be read or the address is taken.
pub(super) async fn run(
    listen: SocketAddr,
    identity: &Path,
    limit: Rate,
    options: SessionOptions,
) -> Result<(), Failure> {
    let agent = Agent::load(identity).map_err(|error| {
        let why = chain(&error);
        Failure::Failed(format!(
            "cannot use the identity: {why}; see `outpour trust issue`"
        ))
    })?;
    let listener = bind(listen).await?;
    let service = Arc::new(Service {
        agent,
        options: super::with_endpoint(limit, options)?,
        casts: Semaphore::new(CASTS_MAX),
    });
    let mut signals = Signals::new()?;
    if let Ok(address) = listener.local_addr() {
        out::complain(format!("listening on {address}"));
    }
    tokio::select! {
        () = accept(listener, service) => Ok(()),
        () = signals.next() => Ok(()),
    }
}

async fn bind(listen: SocketAddr) -> Result<TcpListener, Failure> {
    match TcpListener::bind(listen).await {
        Ok(listener) => Ok(listener),
        // Where there is no IPv6, every address means every IPv4 address.
        Err(_) if listen.is_ipv6() && listen.ip().is_unspecified() && !has_ipv6() => {
            let four = SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), listen.port());
            TcpListener::bind(four)
                .await
                .map_err(|error| unbound(four, &error))
        }
        Err(error) => Err(unbound(listen, &error)),
    }
}

fn has_ipv6() -> bool {
    everywhere().is_ipv6()
}

fn unbound(address: SocketAddr, error: &std::io::Error) -> Failure {
    Failure::Failed(format!("cannot listen on {address}: {error}"))
}

async fn accept(listener: TcpListener, service: Arc<Service>) {
    let mut handshakes: VecDeque<AbortHandle> = VecDeque::with_capacity(HANDSHAKES_MAX);
    loop {
        let (stream, peer) = match listener.accept().await {
            Ok((stream, peer)) => (stream, peer.ip().to_canonical()),
            Err(error) => {
                out::complain(format!("cannot accept a connection: {error}"));
                tokio::time::sleep(PAUSE).await;
                continue;
            }
        };
        handshakes.retain(|handshake| !handshake.is_finished());
        if handshakes.len() >= HANDSHAKES_MAX
            && let Some(oldest) = handshakes.pop_front()
        {
            oldest.abort();
        }
        let handshake = tokio::spawn(Arc::clone(&service).admit(stream, peer));
        handshakes.push_back(handshake.abort_handle());
    }
}

impl Service {
    /// Lets an operator in, and nobody else.
    async fn admit(self: Arc<Self>, stream: TcpStream, peer: IpAddr) {
        let _ = stream.set_nodelay(true);
        let _ = set_tcp_user_timeout(&stream, GONE.as_millis() as u32);
        match timeout(HANDSHAKE_WAIT, self.agent.accept(stream)).await {
            Ok(Ok(stream)) => {
                tokio::spawn(self.serve(stream, peer));
            }
            Ok(Err(error)) => tracing::debug!(%peer, %error, "refused"),
            Err(_) => tracing::debug!(%peer, "refused: it did not prove itself in time"),
        }
    }

    /// Takes part in an operator's cast.
    async fn serve<S>(self: Arc<Self>, stream: S, peer: IpAddr)
    where
        S: AsyncRead + AsyncWrite + Send + 'static,
    {
        let (reader, writer) = tokio::io::split(stream);
        let Ok(_cast) = self.casts.try_acquire() else {
            let why =
                format!("this host takes part in {CASTS_MAX} casts already, the most it does");
            out::complain(format!(
                "{peer}: turned away, {CASTS_MAX} casts are going on"
            ));
            if let Err(error) = session::turn_away(reader, writer, why).await {
                tracing::debug!(%peer, %error, "it did not hear why it was turned away");
            }
            return;
        };
        match session::serve(reader, writer, self.options.clone()).await {
            Ok(()) => tracing::debug!(%peer, "the cast is over"),
            Err(error) => {
                let error = chain(&error);
                out::complain(format!("cast from {peer}: {}", escape(&error)));
            }
        }
    }
}

/// The signals that end a service.
struct Signals {
    interrupt: tokio::signal::unix::Signal,
    terminate: tokio::signal::unix::Signal,
}

impl Signals {
    fn new() -> Result<Self, Failure> {
        let handler = |kind| {
            signal(kind).map_err(|error| Failure::Failed(format!("no signal handlers: {error}")))
        };
        Ok(Self {
            interrupt: handler(SignalKind::interrupt())?,
            terminate: handler(SignalKind::terminate())?,
        })
    }

    async fn next(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
        }
    }
}
