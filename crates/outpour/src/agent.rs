//! Taking part in casts: the other end of what [`crate::launch`] starts or calls.
//!
//! A program that casts may be its own agent. It asks first whether it was called as one:
//!
//! ```no_run
//! # async fn start() -> Result<(), Box<dyn std::error::Error>> {
//! if let Some(invocation) = outpour::agent::invoked(std::env::args_os().skip(1)) {
//!     return Ok(invocation.serve().await?);
//! }
//! let agent = std::env::current_exe()?;
//! let cast = outpour::Cast::new("./model").reach(outpour::Reach::Local { agent });
//! # Ok(())
//! # }
//! ```
//!
//! It may also serve the casts of operators it trusts, as long as it runs:
//!
//! ```no_run
//! # async fn start() -> Result<(), Box<dyn std::error::Error>> {
//! let agent = outpour::agent::Agent::new().root("/srv/outpour");
//! let mut service = agent.start("/etc/outpour/agent.pem").await?;
//! println!("listening on {}", service.local_addr());
//! loop {
//!     println!("{}", service.next().await);
//! }
//! # }
//! ```

mod audit;
mod error;
mod event;
mod memory;
mod service;

use std::ffi::OsString;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use outpour_agent::Epochs;
pub use outpour_agent::Wrap;
use outpour_agent::session::{self, Places, SessionOptions};
pub use outpour_agent::session::{Audited, SessionError, Task, Verdict};
use outpour_core::{Bytes, Rate};
use outpour_net::trust::{Agent as Identity, PublicKey, list_of};
use outpour_net::{Endpoint, EndpointConfig, EndpointKey};
use outpour_store::Roots;

pub use self::error::AgentError;
pub use self::event::{EVENTS_MAX, ServiceEvent};
pub use self::memory::{MEMORY, OTHER_MEMORY};
pub use self::service::{CASTS_MAX, OPERATOR_CASTS_MAX, Service};
use crate::launch::AGENT_PORT;

/// An agent to be: what it may touch and use on this host.
#[derive(Clone, Debug)]
pub struct Agent {
    roots: Vec<PathBuf>,
    limit: Rate,
    memory: Option<Bytes>,
    listen: Option<SocketAddr>,
    data_listen: Option<IpAddr>,
    wrap: Option<Wrap>,
    signers: Vec<PublicKey>,
    audit: Option<PathBuf>,
}

impl Default for Agent {
    fn default() -> Self {
        Self::new()
    }
}

impl Agent {
    /// An agent without limits, which file permissions alone confine.
    pub const fn new() -> Self {
        Self {
            roots: Vec::new(),
            limit: Rate::UNLIMITED,
            memory: None,
            listen: None,
            data_listen: None,
            wrap: None,
            signers: Vec::new(),
            audit: None,
        }
    }

    /// Lets it read and write beneath this directory, an absolute path; may be called several times.
    ///
    /// With one such directory nothing outside of them is touched, and no symlink beneath them is
    /// followed. They are opened when the agent starts.
    #[must_use]
    pub fn root(mut self, directory: impl Into<PathBuf>) -> Self {
        self.roots.push(directory.into());
        self
    }

    /// Limits this host in each direction, over all casts.
    #[must_use]
    pub fn limit(self, limit: Rate) -> Self {
        Self { limit, ..self }
    }

    /// Memory for all casts, instead of [`MEMORY`]; less than 12 MiB counts as 12 MiB. A third is for blocks
    /// under way and blocks kept for reuse, the rest for what grows with casts of a service: manifests, what is
    /// known of entries and blocks, packets of coded casts. A cast that finds no room there is refused. What the
    /// program takes besides is [`OTHER_MEMORY`] at most.
    #[must_use]
    pub fn memory(self, memory: Bytes) -> Self {
        let memory = Some(memory);
        Self { memory, ..self }
    }

    /// The address on which operators call a service, instead of port [`AGENT_PORT`] of all; port 0
    /// is one of the system's choice.
    #[must_use]
    pub fn listen(self, address: SocketAddr) -> Self {
        let listen = Some(address);
        Self { listen, ..self }
    }

    /// The address on which blocks are received, instead of all; the port is the system's choice.
    #[must_use]
    pub fn data_listen(self, address: IpAddr) -> Self {
        let data_listen = Some(address);
        Self {
            data_listen,
            ..self
        }
    }

    /// Puts this between the data plane and each object.
    #[must_use]
    pub fn wrap(self, wrap: Wrap) -> Self {
        let wrap = Some(wrap);
        Self { wrap, ..self }
    }

    /// Takes part only in casts of objects that the holder of this key has signed; may be called
    /// several times, for the holder of any of them.
    #[must_use]
    pub fn accept_signed_by(mut self, key: PublicKey) -> Self {
        self.signers.push(key);
        self
    }

    /// Has a service add a line of JSON to this file for everything that an operator asks for, and one
    /// for what comes of it. They are events as well: see [`ServiceEvent::Audited`].
    #[must_use]
    pub fn audit(self, file: impl Into<PathBuf>) -> Self {
        let audit = Some(file.into());
        Self { audit, ..self }
    }

    /// Takes part in the one cast that is spoken of on standard input and output, until it is over.
    ///
    /// A thread of the runtime may still wait for more input then;
    /// [`tokio::runtime::Runtime::shutdown_background`] does not wait for that.
    ///
    /// # Errors
    /// If a root cannot be opened, the channel or the data plane fails, or the command goes away
    /// before the end.
    ///
    /// # Panics
    /// Outside of a tokio runtime.
    pub async fn serve_stdio(self) -> Result<(), AgentError> {
        let (options, _) = self.options()?;
        Ok(session::serve(tokio::io::stdin(), tokio::io::stdout(), options).await?)
    }

    /// Starts a service for the operators that this identity trusts, a file written by `outpour trust
    /// issue`.
    ///
    /// # Errors
    /// If the agent has no root or one that cannot be opened, the identity or the file of audits cannot
    /// be used or lies beneath a root, or an address cannot be listened on.
    ///
    /// # Panics
    /// Outside of a tokio runtime.
    pub async fn start(self, identity: impl AsRef<Path>) -> Result<Service, AgentError> {
        if self.roots.is_empty() {
            return Err(AgentError::NoRoot);
        }
        let file = identity.as_ref();
        let own = [
            Some(file.to_owned()),
            Some(list_of(file)),
            self.audit.clone(),
        ];
        for path in own.iter().flatten() {
            unexposed(path, &self.roots)?;
        }
        let identity = Identity::load(file).map_err(AgentError::Identity)?;
        let listen = self.listen;
        let listen = listen.unwrap_or_else(|| SocketAddr::from(([0; 16], AGENT_PORT)));
        // Of one cast no other command can speak to it, but a service may come back to a deposed
        // command.
        let epochs = Epochs::beneath(&self.roots[0])?;
        let audit = self.audit.clone();
        let memory = self.memory.unwrap_or(MEMORY);
        let (mut options, endpoint) = self.options()?;
        options.epochs = Arc::new(epochs);
        let places = Places::new(memory::of_casts(memory));
        let service = Service::start(
            listen,
            identity,
            options,
            endpoint,
            places,
            audit.as_deref(),
        );
        let service = service.await?;
        if let Some(limit) = memory::too_little(memory) {
            service.tell(ServiceEvent::LittleMemory { limit, memory });
        }
        Ok(service)
    }

    /// What each cast is served with: the open roots, and a data plane for all of them.
    fn options(self) -> Result<(SessionOptions, Endpoint), AgentError> {
        let roots = match self.roots.as_slice() {
            [] => None,
            roots => Some(Arc::new(open(roots)?)),
        };
        let listen = self.data_listen.unwrap_or_else(everywhere);
        let mut config = EndpointConfig::new(EndpointKey::generate()?, SocketAddr::new(listen, 0));
        config.limits.outgoing = self.limit;
        config.limits.incoming = self.limit;
        config.memory = memory::of_blocks(self.memory.unwrap_or(MEMORY));
        let endpoint = Endpoint::start(config)?;
        let options = SessionOptions {
            roots,
            endpoint: Some(endpoint.clone()),
            listen,
            wrap: self.wrap,
            epochs: Arc::default(),
            signers: self.signers.into(),
            caller: None,
        };
        Ok((options, endpoint))
    }
}

/// Checks that a file, be it there or not, lies beneath no root, neither by its name nor by where that leads.
fn unexposed(path: &Path, roots: &[PathBuf]) -> Result<(), AgentError> {
    let resolved = |path: &Path| {
        let whole = path.canonicalize();
        whole.or_else(|_| {
            let path = std::path::absolute(path)?;
            let dir = path.parent().unwrap_or(&path).canonicalize()?;
            Ok::<_, std::io::Error>(dir.join(path.file_name().unwrap_or_default()))
        })
    };
    // What has the name can be replaced as well as what it leads to.
    let named = path.parent().filter(|dir| !dir.as_os_str().is_empty());
    let named = named.unwrap_or_else(|| Path::new(".")).canonicalize();
    let named = named.map(|dir| dir.join(path.file_name().unwrap_or_default()));
    for root in roots {
        // What is not there yet is said by whoever opens it.
        let Ok(real) = root.canonicalize() else {
            continue;
        };
        let within = |path: &PathBuf| path.starts_with(&real);
        if resolved(path).is_ok_and(|it| within(&it)) || named.as_ref().is_ok_and(within) {
            let (path, root) = (path.to_owned(), root.clone());
            return Err(AgentError::Exposed { path, root });
        }
    }
    Ok(())
}

fn open(roots: &[PathBuf]) -> Result<Roots, AgentError> {
    for root in roots {
        if !root.is_absolute() {
            return Err(AgentError::RelativeRoot { root: root.clone() });
        }
        if !root.is_dir() {
            return Err(AgentError::MissingRoot { root: root.clone() });
        }
    }
    Ok(Roots::open(roots)?)
}

/// How a program was called as an agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Invocation(Asked);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Asked {
    /// Whether it runs at all.
    Version,
    /// To take part in a cast.
    Stdio { data_listen: Option<IpAddr> },
}

/// How the agent's program was called, if these arguments, the program's name left out, are those
/// of an agent: `agent --stdio`, perhaps with `--data-listen ADDRESS`, or `agent --version`.
pub fn invoked(arguments: impl IntoIterator<Item = OsString>) -> Option<Invocation> {
    let arguments: Vec<OsString> = arguments.into_iter().take(ARGUMENTS_MAX + 1).collect();
    let words: Option<Vec<&str>> = arguments.iter().map(|word| word.to_str()).collect();
    Some(Invocation(match words?[..] {
        ["agent", "--version"] => Asked::Version,
        ["agent", "--stdio"] => Asked::Stdio { data_listen: None },
        ["agent", "--stdio", "--data-listen", address] => Asked::Stdio {
            data_listen: Some(address.parse().ok()?),
        },
        _ => return None,
    }))
}

/// How many arguments an agent has at most.
const ARGUMENTS_MAX: usize = 4;

impl Invocation {
    /// Does what was asked for; file permissions alone confine what is written and read. See
    /// [`Agent::serve_stdio`].
    ///
    /// # Errors
    /// If the channel or the data plane fails, or the command goes away before the end.
    pub async fn serve(self) -> Result<(), AgentError> {
        match self.0 {
            // That it ends well is the answer.
            Asked::Version => Ok(()),
            Asked::Stdio { data_listen } => {
                let agent = Agent {
                    data_listen,
                    ..Agent::new()
                };
                agent.serve_stdio().await
            }
        }
    }
}

/// The address that means every address of this host, both families where there are two.
pub fn everywhere() -> IpAddr {
    let six = IpAddr::V6(Ipv6Addr::UNSPECIFIED);
    match TcpListener::bind(SocketAddr::new(six, 0)) {
        Ok(_) => six,
        Err(_) => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn an_agent_is_called_as_launchers_call_it() {
        let called = |words: &[&str]| invoked(words.iter().map(OsString::from));
        assert!(called(&["agent", "--stdio"]).is_some());
        assert!(called(&["agent", "--version"]).is_some());
        let data_listen = Some(IpAddr::V4(Ipv4Addr::LOCALHOST));
        let local = called(&["agent", "--stdio", "--data-listen", "127.0.0.1"]);
        assert_eq!(local, Some(Invocation(Asked::Stdio { data_listen })));
        for other in [
            &[][..],
            &["agent"],
            &["--stdio", "agent"],
            &["agent", "--stdio", "more"],
            &["agent", "--stdio", "--data-listen", "nowhere"],
            &["agent", "--stdio", "--data-listen", "127.0.0.1", "more"],
        ] {
            assert_eq!(called(other), None, "{other:?}");
        }
    }

    #[tokio::test]
    async fn an_agent_that_cannot_start_says_why() {
        let dir = tempfile::tempdir().unwrap();
        let identity = dir.path().join("identity");
        let why = async |agent: Agent| {
            let error = agent.start(&identity).await.unwrap_err();
            outpour_core::text::chain(&error)
        };
        let root = dir.path().join("root");
        std::fs::create_dir(&root).unwrap();
        let confined = || Agent::new().root(&root);
        let nowhere = why(Agent::new()).await;
        assert_eq!(
            nowhere,
            "a service needs a root, a directory beneath which it may read and write"
        );
        let unknown = why(confined()).await;
        assert!(
            unknown.starts_with("cannot use the identity: ") && unknown.contains("No such file"),
            "{unknown}"
        );
        let trust = dir.path().join("trust");
        let trust = outpour_net::trust::Directory::at(trust);
        trust.init().unwrap();
        let usual = outpour_net::trust::Lifetime::default();
        trust.issue("127.0.0.1", usual, &identity).unwrap();
        for exposed in [
            confined().audit(root.join("audit.jsonl")),
            confined().root(dir.path()),
        ] {
            let exposed = why(exposed).await;
            assert!(exposed.contains("where operators may write"), "{exposed}");
        }
        // Neither a link beneath a root nor one that leads there is a way around that.
        for (link, to) in [
            (root.join("agent.pem"), dir.path().join("identity")),
            (dir.path().join("link.pem"), root.join("real.pem")),
        ] {
            std::fs::copy(dir.path().join("identity"), root.join("real.pem")).unwrap();
            std::os::unix::fs::symlink(to, &link).unwrap();
            let error = confined().start(&link).await.unwrap_err();
            assert!(matches!(error, AgentError::Exposed { .. }), "{error}");
        }
        let list = list_of(&identity);
        std::os::unix::fs::symlink(root.join("list"), &list).unwrap();
        std::fs::write(root.join("list"), "").unwrap();
        assert!(why(confined()).await.contains("where operators may write"));
        std::fs::remove_file(&list).unwrap();
        let relative = why(Agent::new().root("srv")).await;
        assert_eq!(relative, "srv: expected an absolute path");
        let missing = why(Agent::new().root("/nonexistent/\u{1b}")).await;
        assert_eq!(missing, r"/nonexistent/\u{1b}: there is no such directory");
        let foreign = SocketAddr::from(([192, 0, 2, 1], 1));
        let foreign = why(confined().listen(foreign)).await;
        assert!(
            foreign.starts_with("cannot listen on 192.0.2.1:1: "),
            "{foreign}"
        );
    }
}
