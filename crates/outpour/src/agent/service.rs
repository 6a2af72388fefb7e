//! The agent as a service: takes control connections of operators it trusts.
//!
//! A caller costs a bounded amount until it has proved to be an operator: so many handshakes at a
//! time, each with a deadline. When there are more, the address with the most loses one: a crowd at one
//! address keeps out no operator at another, however long its handshake takes.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use outpour_agent::session::{self, SessionOptions};
use outpour_core::text::chain;
use outpour_net::trust::Agent as Identity;
use outpour_net::{Crowded, Endpoint, HalfOpen, SESSIONS_MAX};
use rustix::net::sockopt::set_tcp_user_timeout;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::task::{AbortHandle, JoinHandle, JoinSet};
use tokio::time::timeout;

use super::event::{Teller, Told, queue};
use super::{AgentError, ServiceEvent, everywhere};

/// How many casts a service takes part in at a time; more are turned away. Each has a session.
pub const CASTS_MAX: usize = SESSIONS_MAX;

/// How many connections may be proving themselves at a time.
const HANDSHAKES_MAX: usize = 256;

/// How many operators are told at a time why they are turned away; more are cut off.
const FAREWELLS_MAX: usize = 64;

/// How long a connection may take to prove itself.
const HANDSHAKE_WAIT: Duration = Duration::from_secs(10);

/// An operator whose machine is gone without a word is known to be gone after this: its agent says
/// something twice a second, and nothing of that is acknowledged.
const GONE: Duration = Duration::from_secs(30);

/// How long to wait when no connection can be accepted, for lack of descriptors perhaps.
const PAUSE: Duration = Duration::from_millis(200);

/// A service that runs, on the tokio runtime in which it was started. Dropping it ends it, and its
/// part in all casts; hosts keep what they have for the next attempt.
pub struct Service {
    address: SocketAddr,
    endpoint: Endpoint,
    told: Told,
    task: JoinHandle<()>,
}

impl fmt::Debug for Service {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Service")
            .field("address", &self.address)
            .field("endpoint", &self.endpoint)
            .finish_non_exhaustive()
    }
}

impl Service {
    /// Listens, and serves from now on.
    pub(super) async fn start(
        listen: SocketAddr,
        identity: Identity,
        options: SessionOptions,
        endpoint: Endpoint,
    ) -> Result<Self, AgentError> {
        let listener = bind(listen).await?;
        let unknown = |error| AgentError::Listen {
            address: listen,
            error,
        };
        let address = listener.local_addr().map_err(unknown)?;
        let (teller, told) = queue();
        let serving = Arc::new(Serving {
            identity,
            options,
            casts: Semaphore::new(CASTS_MAX),
            farewells: Semaphore::new(FAREWELLS_MAX),
            teller,
        });
        Ok(Self {
            address,
            endpoint,
            told,
            task: tokio::spawn(accept(listener, serving)),
        })
    }

    /// The address on which operators call.
    pub fn local_addr(&self) -> SocketAddr {
        self.address
    }

    /// What happens next, from the start of the service on. It may be given up waiting for, and
    /// nothing is lost.
    pub async fn next(&mut self) -> ServiceEvent {
        match self.told.next().await {
            Some(event) => event,
            // It serves, and has something to tell, as long as it is not dropped.
            None => std::future::pending().await,
        }
    }

    /// Ends the service and its part in all casts, and waits until its tasks, threads and sockets are
    /// gone. A disk that hangs delays that; a program that cannot wait drops the service.
    pub async fn stop(mut self) {
        self.task.abort();
        // All casts end with it.
        let _ = (&mut self.task).await;
        self.endpoint.clone().shutdown().await;
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn bind(listen: SocketAddr) -> Result<TcpListener, AgentError> {
    let unbound = |address| move |error| AgentError::Listen { address, error };
    match TcpListener::bind(listen).await {
        Ok(listener) => Ok(listener),
        // Where there is no IPv6, every address means every IPv4 address.
        Err(_) if listen.ip() == IpAddr::V6(Ipv6Addr::UNSPECIFIED) && everywhere().is_ipv4() => {
            let four = SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), listen.port());
            TcpListener::bind(four).await.map_err(unbound(four))
        }
        Err(error) => Err(unbound(listen)(error)),
    }
}

/// What every connection needs.
struct Serving {
    identity: Identity,
    options: SessionOptions,
    casts: Semaphore,
    farewells: Semaphore,
    teller: Teller,
}

/// Accepts connections and serves those of operators, until it is dropped: then all of them end.
async fn accept(listener: TcpListener, serving: Arc<Serving>) {
    let mut served = JoinSet::new();
    let mut proving = JoinSet::new();
    let mut handshakes = HalfOpen::new(HANDSHAKES_MAX);
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            Some(proved) = proving.join_next() => {
                if let Ok(Some((stream, peer))) = proved {
                    served.spawn(Arc::clone(&serving).serve(stream, peer));
                }
                continue;
            }
            Some(_) = served.join_next() => continue,
        };
        let (stream, peer) = match accepted {
            Ok((stream, peer)) => (stream, peer.ip().to_canonical()),
            Err(error) => {
                let error = error.to_string();
                serving.teller.tell(ServiceEvent::NotAccepted { error });
                tokio::time::sleep(PAUSE).await;
                continue;
            }
        };
        handshakes.retain(|handshake: &AbortHandle| !handshake.is_finished());
        let handshake = proving.spawn(Arc::clone(&serving).admit(stream, peer));
        if let Some(crowding) = handshakes.add(peer, false, handshake) {
            crowding.abort();
        }
        if let Some(Crowded { closed, last_from }) = handshakes.news(Instant::now()) {
            let event = ServiceEvent::Crowded { closed, last_from };
            serving.teller.tell(event);
        }
    }
}

impl Serving {
    /// Lets operators in, and no other callers.
    async fn admit(
        self: Arc<Self>,
        stream: TcpStream,
        peer: IpAddr,
    ) -> Option<(impl AsyncRead + AsyncWrite + Send + 'static, IpAddr)> {
        let _ = stream.set_nodelay(true);
        let _ = set_tcp_user_timeout(&stream, GONE.as_millis() as u32);
        match timeout(HANDSHAKE_WAIT, self.identity.accept(stream)).await {
            Ok(Ok(stream)) => return Some((stream, peer)),
            Ok(Err(error)) => tracing::debug!(%peer, %error, "refused"),
            Err(_) => tracing::debug!(%peer, "refused: it did not prove itself in time"),
        }
        None
    }

    /// Takes part in an operator's cast.
    async fn serve<S>(self: Arc<Self>, stream: S, peer: IpAddr)
    where
        S: AsyncRead + AsyncWrite + Send + 'static,
    {
        let (reader, writer) = tokio::io::split(stream);
        let Ok(_cast) = self.casts.try_acquire() else {
            return self.turn_away(reader, writer, peer).await;
        };
        self.teller.tell(ServiceEvent::Began { peer });
        let served = session::serve(reader, writer, self.options.clone()).await;
        let error = served.err().map(|error| chain(&error));
        self.teller.tell(ServiceEvent::Ended { peer, error });
    }

    /// Says why it takes part in nothing more.
    async fn turn_away<R, W>(&self, reader: R, writer: W, peer: IpAddr)
    where
        R: AsyncRead + Send + Unpin,
        W: AsyncWrite + Send + Unpin,
    {
        let casts = CASTS_MAX;
        self.teller.tell(ServiceEvent::TurnedAway { peer, casts });
        let Ok(_farewell) = self.farewells.try_acquire() else {
            return;
        };
        let why = format!(
            "this host takes part in {casts} casts already, which is the most; try again later"
        );
        if let Err(error) = session::turn_away(reader, writer, why).await {
            tracing::debug!(%peer, %error, "it did not hear why it was turned away");
        }
    }
}
