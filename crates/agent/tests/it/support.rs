//! A source, hosts, and what answers on their control channels.

use std::fs;
use std::future::Future;
use std::net::{IpAddr, Ipv4Addr};
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use outpour_agent::Wrap;
use outpour_agent::cast::{CastError, CastRequest, HostSpec, Origin, run};
use outpour_agent::control::CommandSays;
use outpour_agent::launch::{ControlStream, LaunchError, Launcher, Launching};
use outpour_agent::session::{SessionError, SessionOptions, serve};
use outpour_agent::view::{CastReport, CastView, Phase};
use outpour_core::network::Network;
use outpour_core::{Priority, Rate};
use outpour_protocols::coordinator::{Given, Order, Stamp};
use outpour_protocols::registry::by_name;
use outpour_protocols::{Member, Role};
use outpour_store::Roots;
use outpour_terms::Asked;
use outpour_terms::placement::Placement;
use tokio::io::DuplexStream;
use tokio::runtime::Handle;
use tokio::sync::{mpsc, watch};

pub(crate) const LOOPBACK: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

/// How long something that has to happen may take.
pub(crate) const DEADLINE: Duration = Duration::from_secs(60);

/// Three clusters with links of one kind between them.
pub(crate) const NETWORK: &str = r#"
    [[cluster]]
    name = "a"
    nodes = 3
    [[cluster]]
    name = "b"
    nodes = 2
    [[cluster]]
    name = "c"
    nodes = 2
    [[link]]
    from = "*"
    to = "*"
    rate = "20 MB/s"
    delay = "2 ms"
"#;

/// Plays a part at the far end of a control channel.
pub(crate) type Player =
    Arc<dyn Fn(DuplexStream) -> Pin<Box<dyn Future<Output = ()> + Send>> + Send + Sync>;

/// What answers on the control channel of a host.
#[derive(Clone)]
pub(crate) enum Agent {
    /// The agent that ships.
    Real,
    /// The same, with something between its objects and the data plane.
    Wrapped(Wrap),
    /// Nothing: it cannot be started.
    Refused,
    /// Something else.
    Other(Player),
}

impl Agent {
    pub(crate) fn other<F>(play: impl Fn(DuplexStream) -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = ()> + Send + 'static,
    {
        Self::Other(Arc::new(move |stream| Box::pin(play(stream))))
    }
}

/// How the part of a host's agent ended.
pub(crate) type Ended = (usize, Result<(), SessionError>);

/// Runs every agent in this process, on the runtime where this was made.
pub(crate) struct InProcess {
    agents: Vec<Agent>,
    roots: Option<Arc<Roots>>,
    home: Handle,
    ended: mpsc::UnboundedSender<Ended>,
}

impl InProcess {
    /// Agents as they ship.
    pub(crate) fn new() -> Self {
        Self::watched().0
    }

    /// Agents as they ship, and how each of them ends.
    pub(crate) fn watched() -> (Self, mpsc::UnboundedReceiver<Ended>) {
        let (ended, ends) = mpsc::unbounded_channel();
        let launcher = Self {
            agents: Vec::new(),
            roots: None,
            home: Handle::current(),
            ended,
        };
        (launcher, ends)
    }

    /// The same, but for what answers on one host.
    pub(crate) fn with(mut self, host: usize, agent: Agent) -> Self {
        let len = self.agents.len().max(host + 1);
        self.agents.resize(len, Agent::Real);
        self.agents[host] = agent;
        self
    }

    /// The same, but agents write only beneath this directory.
    pub(crate) fn beneath(mut self, root: PathBuf) -> Self {
        self.roots = Some(Arc::new(Roots::open(&[root]).unwrap()));
        self
    }

    fn start(&self, host: usize, far: DuplexStream) -> Result<(), LaunchError> {
        match self.agents.get(host).unwrap_or(&Agent::Real) {
            Agent::Refused => return Err(LaunchError("connection refused".into())),
            Agent::Other(play) => {
                self.home.spawn(play(far));
            }
            agent @ (Agent::Real | Agent::Wrapped(_)) => {
                let (reader, writer) = tokio::io::split(far);
                let options = SessionOptions {
                    roots: self.roots.clone(),
                    endpoint: None,
                    listen: LOOPBACK,
                    wrap: match agent {
                        Agent::Wrapped(wrap) => Some(wrap.clone()),
                        _ => None,
                    },
                    epochs: Arc::default(),
                    signers: Arc::default(),
                    caller: None,
                };
                let ended = self.ended.clone();
                self.home.spawn(async move {
                    let _ = ended.send((host, serve(reader, writer, options).await));
                });
            }
        }
        Ok(())
    }
}

impl Launcher for InProcess {
    fn launch(&self, host: usize) -> Launching {
        let (near, far) = tokio::io::duplex(1 << 16);
        let started = self.start(host, far);
        let (reader, writer) = tokio::io::split(near);
        Box::pin(async move {
            started.map(|()| ControlStream {
                reader: Box::new(reader),
                writer: Box::new(writer),
                host_addrs: vec![LOOPBACK],
                seen_from: None,
                guard: Box::new(()),
            })
        })
    }
}

/// A source and the places of its copies.
pub(crate) struct Scene {
    pub(crate) dir: tempfile::TempDir,
    hosts: usize,
}

impl Scene {
    /// Without a source.
    pub(crate) fn new(hosts: usize) -> Self {
        Self {
            dir: tempfile::tempdir().unwrap(),
            hosts,
        }
    }

    /// With a tree as source.
    pub(crate) fn with_tree(hosts: usize) -> Self {
        let scene = Self::new(hosts);
        make_tree(&scene.source());
        scene
    }

    pub(crate) fn source(&self) -> PathBuf {
        self.dir.path().join("source")
    }

    pub(crate) fn destination(&self, host: usize) -> PathBuf {
        self.dir.path().join(format!("host{host}/tree"))
    }

    pub(crate) fn request(&self, protocol: &str) -> CastRequest {
        let host = |host| HostSpec {
            name: format!("host{host}"),
            path: self.destination(host),
            cluster: None,
        };
        CastRequest {
            origin: Origin::Here(vec![self.source()]),
            holders: Vec::new(),
            relays: Vec::new(),
            hosts: (0..self.hosts).map(host).collect(),
            asked: Asked {
                protocol: (protocol != "auto").then(|| by_name(protocol).unwrap()),
                seed: Some(1),
                ..Asked::default()
            },
            placement: None,
            who: "ana@build1".to_owned(),
            wait: false,
            archive: false,
            verify_after: false,
            patience: Duration::from_secs(20),
            listen: LOOPBACK,
            priority: Priority::default(),
            signer: None,
            traffic: None,
        }
    }

    /// The same in clusters: the source and the hosts are these nodes of [`NETWORK`].
    pub(crate) fn request_at(&self, protocol: &str, nodes: &[&str]) -> CastRequest {
        let network = Network::from_toml(NETWORK, "net.toml").unwrap();
        let at: Vec<_> = (nodes.iter().map(|name| network.node(name).unwrap())).collect();
        let mut request = self.request(protocol);
        request.placement = Some(Placement::new(&network, &at, Rate::UNLIMITED).unwrap());
        request.asked.block_bytes = Some(64 << 10);
        request
    }

    pub(crate) async fn cast(&self, protocol: &str, launcher: InProcess) -> CastReport {
        self.cast_as(self.request(protocol), launcher).await
    }

    pub(crate) async fn cast_as(&self, request: CastRequest, launcher: InProcess) -> CastReport {
        self.try_cast(request, launcher).await.unwrap()
    }

    pub(crate) async fn try_cast(
        &self,
        request: CastRequest,
        launcher: InProcess,
    ) -> Result<CastReport, CastError> {
        let (view, _keep) = watch::channel(first_view());
        let (_cancel, cancelled) = watch::channel(false);
        let cast = run(request, Arc::new(launcher), view, cancelled);
        tokio::time::timeout(DEADLINE, cast)
            .await
            .expect("the cast ends in time")
    }

    /// Asserts that a host has a true copy and nothing besides.
    #[track_caller]
    pub(crate) fn assert_copy(&self, host: usize) {
        let copy = self.destination(host);
        assert!(same(&self.source(), &copy), "the copy of host{host}");
        assert!(!copy.join(".outpour").exists(), "host{host}");
    }
}

pub(crate) fn first_view() -> CastView {
    CastView {
        phase: Phase::Hashing,
        hashed_bytes: 0,
        size_bytes: 0,
        protocol: String::new(),
        why: String::new(),
        elapsed: Duration::ZERO,
        limit_s: None,
        hosts: Vec::new(),
        notices: Vec::new(),
    }
}

/// Bytes that repeat nowhere, from a seed.
pub(crate) fn noise(seed: u64, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    blake3::Hasher::new()
        .update(&seed.to_le_bytes())
        .finalize_xof()
        .fill(&mut bytes);
    bytes
}

pub(crate) fn make_tree(root: &Path) {
    fs::create_dir_all(root.join("empty/inner")).unwrap();
    fs::create_dir_all(root.join("small")).unwrap();
    fs::write(root.join("large"), noise(0, 5_000_001)).unwrap();
    fs::write(root.join("nothing"), b"").unwrap();
    for n in 0..300 {
        fs::write(
            root.join(format!("small/{n}")),
            noise(n, 1 + n as usize * 37),
        )
        .unwrap();
    }
    std::os::unix::fs::symlink("small/7", root.join("link")).unwrap();
}

/// Whether two trees are the same, as `diff -r` sees it.
pub(crate) fn same(a: &Path, b: &Path) -> bool {
    std::process::Command::new("diff")
        .args(["-r", "--no-dereference"])
        .args([a, b])
        .status()
        .unwrap()
        .success()
}

/// The name of a transfer.
pub(crate) const TRANSFER: [u8; 16] = [9; 16];

/// The order of this number, of the transfer's first coordinator.
pub(crate) fn order(seq: u64, order: Order) -> CommandSays {
    let stamp = Stamp { epoch: 1, seq };
    CommandSays::Order {
        transfer: TRANSFER,
        given: Given { stamp, order },
    }
}

/// Members in one cluster, the first of which has the object.
pub(crate) fn members(count: usize) -> Vec<Member> {
    let member = |node| Member {
        cluster: 0,
        role: Role::source_if(node == 0),
    };
    (0..count).map(member).collect()
}
