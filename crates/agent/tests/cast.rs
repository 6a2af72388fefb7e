//! Whole casts with real sockets and real files; only the control channels are in memory.
#![allow(clippy::unwrap_used, missing_docs)]

use std::fs;
use std::net::{IpAddr, Ipv4Addr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use outpour_agent::cast::{CastRequest, HostSpec, run};
use outpour_agent::launch::{ControlStream, LaunchError, Launcher, Launching};
use outpour_agent::session::{SessionOptions, serve};
use outpour_agent::view::{CastReport, CastView, HostState};
use outpour_core::Rate;
use tokio::sync::watch;

const LOOPBACK: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

/// Runs every agent in this process, except those that shall not start.
struct InProcess {
    refuse: Vec<usize>,
    roots: Option<Vec<PathBuf>>,
}

impl Launcher for InProcess {
    fn launch(&self, host: usize) -> Launching {
        if self.refuse.contains(&host) {
            return Box::pin(async { Err(LaunchError("connection refused".into())) });
        }
        let roots = self.roots.clone();
        Box::pin(async move {
            let (near, far) = tokio::io::duplex(1 << 16);
            let (far_read, far_write) = tokio::io::split(far);
            let options = SessionOptions {
                roots,
                listen: LOOPBACK,
            };
            tokio::spawn(serve(far_read, far_write, options));
            let (reader, writer) = tokio::io::split(near);
            Ok(ControlStream {
                reader: Box::new(reader),
                writer: Box::new(writer),
                host_addrs: vec![LOOPBACK],
                seen_from: None,
                guard: Box::new(()),
            })
        })
    }
}

struct Scene {
    dir: tempfile::TempDir,
    hosts: usize,
}

impl Scene {
    fn new(hosts: usize) -> Self {
        Self {
            dir: tempfile::tempdir().unwrap(),
            hosts,
        }
    }

    fn source(&self) -> PathBuf {
        self.dir.path().join("source")
    }

    fn destination(&self, host: usize) -> PathBuf {
        self.dir.path().join(format!("host{host}/tree"))
    }

    fn request(&self, protocol: &str) -> CastRequest {
        let host = |host| HostSpec {
            name: format!("host{host}"),
            path: self.destination(host),
            cluster: None,
        };
        CastRequest {
            source: self.source(),
            hosts: (0..self.hosts).map(host).collect(),
            protocol: (protocol != "auto").then(|| protocol.to_owned()),
            limit: Rate::UNLIMITED,
            block_bytes: None,
            connections: None,
            seed: Some(1),
            patience: Duration::from_secs(20),
            listen: LOOPBACK,
        }
    }

    async fn cast(&self, protocol: &str, launcher: InProcess) -> CastReport {
        let view = CastView {
            phase: outpour_agent::view::Phase::Hashing,
            hashed_bytes: 0,
            size_bytes: 0,
            protocol: String::new(),
            why: String::new(),
            elapsed: Duration::ZERO,
            limit_s: None,
            hosts: Vec::new(),
            notices: Vec::new(),
        };
        let (view, _keep) = watch::channel(view);
        let (_cancel, cancelled) = watch::channel(false);
        run(self.request(protocol), Arc::new(launcher), view, cancelled)
            .await
            .unwrap()
    }
}

fn launcher() -> InProcess {
    InProcess {
        refuse: Vec::new(),
        roots: None,
    }
}

/// Bytes that repeat nowhere, from a seed.
fn noise(seed: u64, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    blake3::Hasher::new()
        .update(&seed.to_le_bytes())
        .finalize_xof()
        .fill(&mut bytes);
    bytes
}

fn make_tree(root: &Path) {
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

fn same(a: &Path, b: &Path) -> bool {
    std::process::Command::new("diff")
        .arg("-r")
        .args([a, b])
        .status()
        .unwrap()
        .success()
}

async fn casts_everywhere(protocol: &str) {
    let scene = Scene::new(5);
    make_tree(&scene.source());
    let report = scene.cast(protocol, launcher()).await;
    assert!(report.verified(), "{report:#?}");
    for host in 0..5 {
        assert!(same(&scene.source(), &scene.destination(host)));
        assert!(!scene.destination(host).join(".outpour").exists());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn direct_brings_a_tree_to_every_host() {
    casts_everywhere("direct").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn chain_brings_a_tree_to_every_host() {
    casts_everywhere("chain").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn swarm_brings_a_tree_to_every_host() {
    casts_everywhere("swarm").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_host_that_does_not_start_is_reported_and_the_others_are_served() {
    let scene = Scene::new(4);
    make_tree(&scene.source());
    let report = scene
        .cast(
            "auto",
            InProcess {
                refuse: vec![1],
                roots: None,
            },
        )
        .await;
    for (host, entry) in report.hosts.iter().enumerate() {
        assert_eq!(entry.verified, host != 1, "{entry:?}");
    }
    assert_eq!(report.hosts[1].state, HostState::Failed);
    assert_eq!(report.hosts[1].error.as_deref(), Some("connection refused"));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_there_is_not_sent_again() {
    let scene = Scene::new(2);
    make_tree(&scene.source());
    assert!(scene.cast("chain", launcher()).await.verified());
    let again = scene.cast("chain", launcher()).await;
    assert!(again.verified(), "{again:#?}");
    for host in &again.hosts {
        assert_eq!(host.received_bytes, 0, "{host:?}");
        assert_eq!(host.resumed_bytes, again.size_bytes, "{host:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn of_a_changed_file_only_the_changed_blocks_are_sent() {
    let scene = Scene::new(2);
    make_tree(&scene.source());
    assert!(scene.cast("swarm", launcher()).await.verified());
    let mut large = fs::read(scene.source().join("large")).unwrap();
    large[3_000_000] ^= 1;
    fs::write(scene.source().join("large"), large).unwrap();
    let again = scene.cast("swarm", launcher()).await;
    assert!(again.verified(), "{again:#?}");
    for (index, host) in again.hosts.iter().enumerate() {
        assert!(
            host.received_bytes > 0 && host.received_bytes < 100_000,
            "{host:?}"
        );
        assert!(same(&scene.source(), &scene.destination(index)));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_writes_only_beneath_its_roots() {
    let scene = Scene::new(1);
    make_tree(&scene.source());
    let roots = Some(vec![scene.dir.path().join("elsewhere")]);
    let report = scene
        .cast(
            "direct",
            InProcess {
                refuse: Vec::new(),
                roots,
            },
        )
        .await;
    let error = report.hosts[0].error.clone().unwrap_or_default();
    assert!(error.contains("writes only beneath"), "{error}");
    assert!(!scene.destination(0).exists());
}

#[tokio::test(flavor = "multi_thread")]
async fn an_empty_tree_and_an_empty_file_arrive() {
    let scene = Scene::new(2);
    fs::create_dir(scene.source()).unwrap();
    let report = scene.cast("swarm", launcher()).await;
    assert!(report.verified(), "{report:#?}");
    assert!(scene.destination(1).is_dir());

    let scene = Scene::new(2);
    fs::write(scene.source(), b"").unwrap();
    let report = scene.cast("chain", launcher()).await;
    assert!(report.verified(), "{report:#?}");
    assert_eq!(fs::read(scene.destination(0)).unwrap(), b"");
}
