//! Hosts that pass blocks on and keep nothing, over real services.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use tempfile::TempDir;

use crate::service::{Service, trust};
use crate::support::{outpour, run, same, signal, tree};

/// Nothing takes so long.
const PATIENCE: Duration = Duration::from_secs(60);

/// A relay, and two hosts that are to get something.
struct Scene {
    dir: TempDir,
    trust: PathBuf,
    services: Vec<Service>,
}

impl Scene {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let (trust, identity) = trust(dir.path(), "ours");
        let start = |name: &str| Service::start(&identity, &dir.path().join(name));
        let services = ["relay", "one", "two"].map(start).into();
        Self {
            dir,
            trust,
            services,
        }
    }

    fn at(&self, service: usize, place: &Path) -> String {
        format!(
            "127.0.0.1:{}:{}",
            self.services[service].port,
            place.display()
        )
    }

    fn scratch(&self) -> PathBuf {
        self.dir.path().join("relay/scratch")
    }

    fn copies(&self) -> [PathBuf; 2] {
        ["one", "two"].map(|name| self.dir.path().join(name).join("copy"))
    }

    fn cast(&self, source: &Path, protocol: &str) -> Command {
        let [one, two] = self.copies();
        let mut command = outpour();
        command.arg("cast").arg(source);
        command.args([self.at(1, &one), self.at(2, &two)]);
        command.args(["--relay", &self.at(0, &self.scratch())]);
        command.args(["--agents", "--protocol", protocol, "--json", "--trust"]);
        command.arg(&self.trust);
        command
    }

    /// Whether the relay holds bytes of blocks.
    fn relays(&self) -> bool {
        fn bytes(dir: &Path) -> u64 {
            let entries = fs::read_dir(dir).into_iter().flatten().flatten();
            let sizes = entries.map(|entry| match entry.file_type() {
                Ok(kind) if kind.is_dir() => bytes(&entry.path()),
                _ => {
                    use std::os::unix::fs::MetadataExt;
                    entry.metadata().map_or(0, |it| it.blocks() * 512)
                }
            });
            sizes.sum()
        }
        bytes(&self.scratch()) > 1 << 20
    }
}

#[test]
fn a_relay_keeps_nothing_and_is_no_destination() {
    let scene = Scene::new();
    let source = tree(scene.dir.path());
    for protocol in ["chain", "swarm", "direct", "auto"] {
        let report = run(&mut scene.cast(&source, protocol)).expect(0).json();
        for copy in scene.copies() {
            same(&source, &copy);
            fs::remove_dir_all(copy).unwrap();
        }
        assert_eq!(report["hosts"].as_array().unwrap().len(), 2, "{report}");
        assert_eq!(report["notices"].as_array().unwrap().len(), 0, "{report}");
        assert!(!scene.scratch().exists(), "{protocol}");
    }
}

#[test]
fn a_relay_serves_hosts_under_a_leader() {
    let scene = Scene::new();
    let source = tree(scene.dir.path());
    let cluster = |name| format!("[[cluster]]\nname = \"{name}\"\nnodes = 1\n");
    let clusters = ["source", "127.0.0.1", "b", "c"].map(cluster).concat();
    let links = "[[link]]\nfrom = \"*\"\nto = \"*\"\nrate = \"40 MB/s\"\n";
    let network = scene.dir.path().join("net.toml");
    fs::write(&network, clusters + links).unwrap();
    let mut command = outpour();
    command.arg("cast").arg(&source);
    // The relay is the node of its own name.
    command.args(["--relay", &scene.at(0, &scene.scratch())]);
    for (service, copy) in [1, 2].into_iter().zip(scene.copies()) {
        let file = scene.dir.path().join(format!("hosts{service}"));
        let node = ["b", "c"][service - 1];
        let line = format!("127.0.0.1:{} node={node}\n", scene.services[service].port);
        fs::write(&file, line).unwrap();
        command.args(["--hosts", &format!("{}:{}", file.display(), copy.display())]);
    }
    command.args(["--agents", "--protocol", "central", "--json", "--trust"]);
    command.arg(&scene.trust);
    command
        .args(["--root", "source", "--network"])
        .arg(&network);
    let report = run(&mut command).expect(0).json();
    for copy in scene.copies() {
        same(&source, &copy);
    }
    assert_eq!(report["hosts"].as_array().unwrap().len(), 2, "{report}");
    assert_eq!(report["notices"].as_array().unwrap().len(), 0, "{report}");
    assert!(!scene.scratch().exists(), "the relay keeps nothing");
}

#[test]
fn a_dry_run_says_which_relays_there_are() {
    let scene = Scene::new();
    let source = tree(scene.dir.path());
    let mut command = scene.cast(&source, "chain");
    command.args(["--relay", "127.0.0.1:1:/x", "--dry-run"]);
    let report = run(&mut command).expect(0).json();
    let relay = scene.at(0, &scene.scratch());
    let (relay, _) = relay.split_once(":/").unwrap();
    assert_eq!(report["relays"][0]["relay"], relay);
    assert!(report["relays"][0]["error"].is_null(), "{report}");
    assert_eq!(report["relays"][1]["relay"], "127.0.0.1:1");
    let error = report["relays"][1]["error"].as_str().unwrap();
    assert!(error.contains("refused"), "{report}");
    assert_eq!(report["hosts"].as_array().unwrap().len(), 2);
    assert!(!scene.scratch().exists());
    let for_people = command.get_args().filter(|word| *word != "--json");
    let ran = run(outpour().args(for_people)).expect(0);
    let row = |name: &str| ran.out.lines().find(|line| line.starts_with(name)).unwrap();
    assert!(row(relay).ends_with("a relay"), "{}", ran.out);
    assert!(row("127.0.0.1:1 ").ends_with(error), "{}", ran.out);
}

#[test]
fn blocks_go_through_a_relay_and_around_it_once_it_is_lost() {
    let scene = Scene::new();
    let source = scene.dir.path().join("large");
    let bytes: Vec<u8> = (0..6_000_000_u32).flat_map(u32::to_le_bytes).collect();
    fs::write(&source, bytes).unwrap();
    let mut command = scene.cast(&source, "chain");
    command.args(["--limit", "4 MB/s"]);
    let cast = command
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let since = Instant::now();
    while !scene.relays() {
        assert!(since.elapsed() < PATIENCE, "the relay holds nothing");
        std::thread::sleep(Duration::from_millis(20));
    }
    signal(scene.services[0].id(), "KILL");
    let ended = cast.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&ended.stderr);
    assert_eq!(ended.status.code(), Some(0), "{said}");
    for copy in scene.copies() {
        assert_eq!(fs::read(&source).unwrap(), fs::read(copy).unwrap());
    }
    let relay = scene.at(0, &scene.scratch());
    let (relay, _) = relay.split_once(":/").unwrap();
    let lost = format!(
        "{relay}: its agent ended before the cast did; the cast continues without this host"
    );
    assert!(said.contains(&lost), "{said}");
}

#[test]
fn what_relays_cannot_do_is_said() {
    let scene = Scene::new();
    let source = tree(scene.dir.path());
    let refused = |command: &mut Command, expected: &str| {
        let ran = run(command);
        assert_eq!(ran.code, Some(2), "{}", ran.err);
        assert!(ran.err.contains(expected), "{}", ran.err);
        assert!(scene.copies().iter().all(|copy| !copy.exists()));
    };
    refused(
        &mut scene.cast(&source, "robber"),
        "protocol `robber` takes no relays, because it sends every block to every node; these \
         take relays: `direct`, `chain`, `swarm`, `push`, `central`",
    );
    let [one, _] = scene.copies();
    refused(
        scene
            .cast(&source, "chain")
            .args(["--relay", &scene.at(1, &one)]),
        "can be only one of source, relay and destination",
    );
    refused(
        scene.cast(&source, "chain").args(["--relay", "nowhere"]),
        "relay `nowhere`: expected [user@]host:/path",
    );
}
