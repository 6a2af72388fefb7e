//! Agents that run on their hosts as a service, called over TCP and TLS.
//!
//! Both sides authenticate: the host as the one named, this end as an operator that the host
//! trusts.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use outpour_agent::launch::{ControlStream, LaunchError, Launcher, Launching};
use outpour_core::text::escape;
use outpour_net::trust::{Certified, Operator, is_no_tls};
use tokio::net::TcpStream;
use tokio::sync::Semaphore;
use tokio::time::{sleep, timeout};

use super::keep;
use super::resolve::resolve;
use super::{LAUNCHES_MAX, ReachError, shown};
use crate::hosts::Destination;

/// The port of agents that run as a service.
pub const AGENT_PORT: u16 = 7741;

/// How long one address may take to answer.
const CONNECT_WAIT: Duration = Duration::from_secs(10);

/// How long the agent and this end may take to authenticate.
const HANDSHAKE_WAIT: Duration = Duration::from_secs(10);

/// An agent with too many connections that prove nothing closes some of them. A call that was closed is
/// repeated; this many are made in all.
const CALLS: u32 = 4;
/// The pause before the second call; each further one is longer by as much.
const CALL_AGAIN: Duration = Duration::from_millis(250);

/// Calls agents that run as a service.
pub(super) struct ServiceLauncher {
    hosts: Arc<[Destination]>,
    operator: Operator,
    permits: Arc<Semaphore>,
}

impl ServiceLauncher {
    /// A launcher for the hosts of a cast, with the identity in the directory `trust`.
    ///
    /// # Errors
    /// If a destination names a user, or there is no usable identity.
    pub(super) fn new(hosts: &[Destination], trust: Option<&Path>) -> Result<Self, ReachError> {
        if let Some(host) = hosts.iter().find(|host| host.user.is_some()) {
            let host = host.name.clone();
            return Err(ReachError::User { host });
        }
        let dir = trust_dir(trust)?;
        Ok(Self {
            hosts: hosts.into(),
            operator: Operator::load(&dir).map_err(|error| unusable(&dir, error))?,
            permits: Arc::new(Semaphore::new(LAUNCHES_MAX)),
        })
    }
}

impl Launcher for ServiceLauncher {
    fn launch(&self, host: usize) -> Launching {
        let destination = self.hosts.get(host).cloned();
        let (operator, permits) = (self.operator.clone(), Arc::clone(&self.permits));
        Box::pin(async move {
            let _permit = permits.acquire().await;
            match destination {
                Some(destination) => called(&destination, &operator).await.map_err(LaunchError),
                None => Err(LaunchError(format!("there is no host {host}"))),
            }
        })
    }
}

/// Why what is in a trust directory cannot be used; says how it is made where it is not there.
pub fn unusable(dir: &Path, error: outpour_net::Error) -> ReachError {
    match error {
        outpour_net::Error::File { path, error }
            if error.kind() == io::ErrorKind::NotFound && path.starts_with(dir) =>
        {
            let file = shown(&path);
            ReachError::NoTrust { file }
        }
        error => ReachError::Trust(error),
    }
}

/// The trust directory that was named, or the user's own: `outpour/trust` where the user's
/// configuration is.
///
/// # Errors
/// If none was named and the user has no home.
pub fn trust_dir(named: Option<&Path>) -> Result<PathBuf, ReachError> {
    if let Some(named) = named {
        return Ok(named.to_owned());
    }
    let variable = |name| std::env::var_os(name).filter(|value| !value.is_empty());
    let config = variable("XDG_CONFIG_HOME").map(PathBuf::from);
    let home = || variable("HOME").map(|home| PathBuf::from(home).join(".config"));
    let config = config.or_else(home).ok_or(ReachError::NoHome)?;
    Ok(config.join("outpour/trust"))
}

/// Calls an agent for a cast. If its certificate is due, and this operator can renew it, that comes
/// first.
async fn called(host: &Destination, operator: &Operator) -> Result<ControlStream, String> {
    let (stream, agent) = call(host, operator).await?;
    if !operator.renews() || !agent.is_due(SystemTime::now()) {
        return Ok(stream);
    }
    // As long as the certificate is valid, the cast does not depend on it.
    if let Err(error) = keep::renew_over(stream, operator, agent).await {
        tracing::warn!(host = host.name, error, "its identity is not renewed");
    }
    Ok(call(host, operator).await?.0)
}

/// Calls an agent, and returns what its certificate says, too.
pub(super) async fn call(
    host: &Destination,
    operator: &Operator,
) -> Result<(ControlStream, Certified), String> {
    let port = host.port.unwrap_or(AGENT_PORT);
    let addresses = resolve(&host.host).await?;
    let mut calls = 1;
    loop {
        match call_once(host, operator, &addresses, port).await {
            Err(Unproved::Closed) if calls < CALLS => {
                sleep(CALL_AGAIN * calls).await;
                calls += 1;
            }
            Err(Unproved::Closed) => return Err(crowded(port)),
            Err(Unproved::Else(why)) => return Err(why),
            Ok(called) => return Ok(called),
        }
    }
}

/// Why there is no connection with an agent.
enum Unproved {
    /// It was closed before either end had proved itself.
    Closed,
    /// Anything else.
    Else(String),
}

async fn call_once(
    host: &Destination,
    operator: &Operator,
    addresses: &[IpAddr],
    port: u16,
) -> Result<(ControlStream, Certified), Unproved> {
    let stream = connect(addresses, port).await.map_err(Unproved::Else)?;
    let ends = stream
        .peer_addr()
        .and_then(|peer| Ok((peer.ip(), stream.local_addr()?.ip())));
    let (peer, own) = ends.map_err(|_| Unproved::Closed)?;
    let secured = timeout(HANDSHAKE_WAIT, operator.connect(&host.host, stream)).await;
    let (stream, agent) = match secured {
        Ok(Ok(secured)) => secured,
        Ok(Err(error)) if is_closed(&error) => return Err(Unproved::Closed),
        Ok(Err(error)) => return Err(Unproved::Else(unproved(port, &error))),
        Err(_) => return Err(Unproved::Else(silent(port))),
    };
    let (reader, writer) = tokio::io::split(stream);
    let stream = ControlStream {
        reader: Box::new(reader),
        writer: Box::new(writer),
        host_addrs: vec![peer.to_canonical()],
        seen_from: Some(own.to_canonical()),
        guard: Box::new(()),
    };
    Ok((stream, agent))
}

/// Whether a connection ended without a word, as those do that an agent closes to make room.
fn is_closed(error: &io::Error) -> bool {
    use io::ErrorKind::{BrokenPipe, ConnectionReset, UnexpectedEof};
    matches!(error.kind(), BrokenPipe | ConnectionReset | UnexpectedEof)
}

/// Connects to the first address that answers.
async fn connect(addresses: &[IpAddr], port: u16) -> Result<TcpStream, String> {
    let mut last = "unknown host; check its name".to_owned();
    for address in addresses {
        let error = match timeout(CONNECT_WAIT, TcpStream::connect((*address, port))).await {
            Ok(Ok(stream)) => {
                // Orders are small and wait for nothing; without this they are only slower.
                let _ = stream.set_nodelay(true);
                return Ok(stream);
            }
            Ok(Err(error)) => Some(error),
            Err(_) => None,
        };
        last = unanswered(SocketAddr::new(*address, port), error.as_ref());
    }
    Err(last)
}

fn unanswered(address: SocketAddr, error: Option<&io::Error>) -> String {
    match error {
        Some(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
            format!("connection refused ({address}); is `outpour agent` running there?")
        }
        Some(error) => format!("cannot connect to {address}: {error}"),
        None => format!("no answer ({address}); is the host up, and reachable from here?"),
    }
}

/// A connection that the system took and nobody answers: a host that is slow, or a process that was
/// stopped.
fn silent(port: u16) -> String {
    format!(
        "no answer from the agent on port {port} within {} s; is its host overloaded or stopped?",
        HANDSHAKE_WAIT.as_secs()
    )
}

/// Connections were closed one after the other before anybody had proved anything.
fn crowded(port: u16) -> String {
    format!(
        "what answers on port {port} closed {CALLS} connections before either end had proved itself; does its \
         log speak of too many connections?"
    )
}

/// Why agent and operator do not trust each other, if it is an agent at all.
fn unproved(port: u16, error: &io::Error) -> String {
    if is_no_tls(error) {
        return format!("what answers on port {port} is not an outpour agent");
    }
    let why = error.to_string();
    let why = escape(&why);
    format!(
        "the agent on port {port} did not prove that it is this host: {why}; was its identity \
         issued with this trust directory?"
    )
}
