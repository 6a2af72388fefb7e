//! The agent as a service: takes control connections of operators it trusts.
//!
//! A caller costs a bounded amount until it has proved to be an operator: so many handshakes at a
//! time, each with a deadline. When there are more, the address with the most loses one: a crowd at one
//! address keeps out no operator at another, however long its handshake takes.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use outpour_agent::session::{self, Audit, Caller, Places, SessionError, SessionOptions};
pub use outpour_agent::session::{CASTS_MAX, OPERATOR_CASTS_MAX};
use outpour_core::text::chain;
use outpour_net::trust::{self, Agent as Identity};
use outpour_net::{Crowded, Endpoint, HalfOpen};
use rustix::net::sockopt::set_tcp_user_timeout;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{AbortHandle, JoinHandle, JoinSet};
use tokio::time::timeout;

use super::audit::{AuditFile, Written};
use super::event::{Teller, Told, queue};
use super::{AgentError, ServiceEvent, everywhere};

/// How many connections may be proving themselves at a time.
const HANDSHAKES_MAX: usize = 256;

/// How long a connection may take to prove itself.
const HANDSHAKE_WAIT: Duration = Duration::from_secs(10);

/// An operator whose machine is gone without a word is known to be gone after this: its agent says
/// something twice a second, and nothing of that is acknowledged.
const GONE: Duration = Duration::from_secs(30);

/// How often the files are looked at that others may replace: the identity, and the list of revoked
/// operators. With what follows it bounds how long an operator counts that was revoked.
const REREAD: Duration = Duration::from_secs(5);

/// How long to wait when no connection can be accepted, for lack of descriptors perhaps.
const PAUSE: Duration = Duration::from_millis(200);

/// A service that runs, on the tokio runtime in which it was started. Dropping it ends it, and its
/// part in all casts; hosts keep what they have for the next attempt.
pub struct Service {
    address: SocketAddr,
    endpoint: Endpoint,
    told: Told,
    teller: Teller,
    task: JoinHandle<()>,
    /// Says when the file of audits is complete, if there is one.
    written: Option<Written>,
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
        places: Places,
        audit: Option<&Path>,
    ) -> Result<Self, AgentError> {
        let listener = bind(listen).await?;
        let unknown = |error| AgentError::Listen {
            address: listen,
            error,
        };
        let address = listener.local_addr().map_err(unknown)?;
        let (teller, told) = queue();
        let file = audit.map(|path| AuditFile::open(path, teller.clone()));
        let (file, written) = file.transpose()?.unzip();
        let keeping = keep(identity.clone(), teller.clone());
        let tell = teller.clone();
        let serving = Arc::new(Serving {
            identity,
            options,
            audit: audit_to(file, teller.clone()),
            places: Arc::new(places),
            teller,
        });
        Ok(Self {
            address,
            endpoint,
            told,
            teller: tell,
            task: tokio::spawn(async move {
                tokio::select! {
                    () = accept(listener, serving) => {}
                    () = keeping => {}
                }
            }),
            written,
        })
    }

    /// Lets the program know of something.
    pub(super) fn tell(&self, event: ServiceEvent) {
        self.teller.tell(event);
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
        if let Some(written) = self.written.take() {
            written.wait().await;
        }
    }
}

/// Where what is audited goes: to the file, if there is one, and to the program.
fn audit_to(file: Option<AuditFile>, teller: Teller) -> Audit {
    Arc::new(move |audited| {
        if let Some(file) = &file {
            file.note(&audited);
        }
        teller.tell(ServiceEvent::Audited(audited));
    })
}

/// Reads again what others may have replaced, as long as it is polled. What is wrong is said once.
async fn keep(identity: Identity, teller: Teller) {
    let mut said = None;
    loop {
        tokio::time::sleep(REREAD).await;
        let identity = identity.clone();
        let error = session::apart(move || identity.refresh()).await.err();
        if let Some(error) = error.clone().filter(|_| error != said) {
            teller.tell(ServiceEvent::NotRead { error });
        }
        said = error;
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
    audit: Audit,
    places: Arc<Places>,
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
                if let Ok(Some((stream, caller))) = proved {
                    served.spawn(Arc::clone(&serving).serve(stream, caller));
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
    ) -> Option<(impl AsyncRead + AsyncWrite + Send + 'static, Caller)> {
        let _ = stream.set_nodelay(true);
        let _ = set_tcp_user_timeout(&stream, GONE.as_millis() as u32);
        match timeout(HANDSHAKE_WAIT, self.identity.accept(stream)).await {
            Ok(Ok((stream, operator))) => return Some((stream, self.caller(operator, peer))),
            Ok(Err(error)) => tracing::debug!(%peer, %error, "refused"),
            Err(_) => tracing::debug!(%peer, "refused: it did not prove itself in time"),
        }
        None
    }

    fn caller(&self, operator: trust::Caller, address: IpAddr) -> Caller {
        Caller {
            operator,
            address,
            identity: self.identity.clone(),
            revoked: self.identity.revoked(),
            audit: self.audit.clone(),
            places: self.places.clone(),
            place: None,
        }
    }

    /// Does what an operator asks for.
    async fn serve<S>(self: Arc<Self>, stream: S, caller: Caller)
    where
        S: AsyncRead + AsyncWrite + Send + 'static,
    {
        let (reader, writer) = tokio::io::split(stream);
        if let Some(why) = self.refuses(&caller) {
            if let Err(error) = session::turn_away(reader, writer, why, &caller).await {
                let peer = caller.address;
                tracing::debug!(%peer, %error, "it did not hear why it was turned away");
            }
            return;
        }
        let (peer, operator) = (caller.address, caller.operator.name.clone());
        let opening = session::open(reader, writer, self.options_for(caller.clone()));
        let opened = tokio::select! {
            opened = opening => opened,
            why = caller.until_cut_off() => Err(SessionError::Revoked(why)),
        };
        let opened = match opened {
            Ok(opened) => opened,
            Err(SessionError::TurnedAway(why)) => {
                return self.teller.tell(ServiceEvent::TurnedAway { peer, why });
            }
            Err(error) => {
                tracing::debug!(%peer, %error, "it did not say what it wants");
                return;
            }
        };
        self.teller.tell(ServiceEvent::Began {
            peer,
            operator: operator.clone(),
        });
        let error = opened.serve().await.err().map(|error| chain(&error));
        self.teller.tell(ServiceEvent::Ended {
            peer,
            operator,
            error,
        });
    }

    /// What an operator may use of this host.
    fn options_for(&self, caller: Caller) -> SessionOptions {
        let mut options = self.options.clone();
        let operator = &caller.operator;
        debug_assert!(options.roots.is_some(), "a service is confined");
        if let (Some(roots), Some(granted)) = (&options.roots, operator.grant.roots()) {
            let who = format!("operator {}", operator.name);
            options.roots = Some(Arc::new(roots.granted_to(&who, granted)));
        }
        options.caller = Some(caller);
        options
    }

    /// Why nothing is done for an operator; `None` if something is.
    fn refuses(&self, caller: &Caller) -> Option<String> {
        if let Some(why) = caller.no_longer() {
            return Some(why);
        }
        let (operator, host) = (&caller.operator, self.identity.host());
        if operator.grant.allows_host(&host) {
            return None;
        }
        let name = &operator.name;
        let hosts = operator.grant.hosts().join(", ");
        Some(format!(
            "operator {name} may use only hosts {hosts}; this one is {host}"
        ))
    }
}
