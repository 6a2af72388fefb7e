//! The memory of one agent: thirty-two casts at once get through within what its unit gives it, whatever
//! another operator announces, and a cast that is too large is told so in a line.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use outpour::agent::{MEMORY, OTHER_MEMORY};
use outpour_agent::control::{AgentSays, CommandSays, Greeting, read_frame, write_frame};
use outpour_core::manifest::MANIFEST_BYTES_MAX;
use outpour_net::trust::Operator;
use tokio::io::AsyncRead;
use tokio::net::TcpStream;
use tokio::runtime::Runtime;

use crate::harness::Cast;
use crate::service::{Service, trust};
use crate::support::{outpour, run, same};

const CASTS: usize = 32;
const PROTOCOLS: [&str; 3] = ["swarm", "chain", "coded-gossip"];
/// Sizes of files, and numbers of small files of trees.
const SIZES: [usize; 4] = [1, 70_000, 3_000_000, 12_000_000];
const FILES: [usize; 2] = [300, 4_000];

/// What a process has had in memory at most, in bytes.
fn peak(process: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{process}/status")).unwrap();
    let mut lines = status.lines();
    let line = lines.find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    let kib: u64 = line.trim().strip_suffix(" kB").unwrap().parse().unwrap();
    kib << 10
}

fn sources(place: &Path) -> Vec<PathBuf> {
    let mut sources = Vec::new();
    for size in SIZES {
        let file = place.join(format!("file-{size}"));
        let bytes: Vec<u8> = (0..size).map(|at| (at * 31 / 7 + at / 251) as u8).collect();
        fs::write(&file, bytes).unwrap();
        sources.push(file);
    }
    for files in FILES {
        let tree = place.join(format!("tree-{files}"));
        fs::create_dir(&tree).unwrap();
        for file in 0..files {
            fs::write(tree.join(format!("{file:06}")), file.to_string()).unwrap();
        }
        sources.push(tree);
    }
    sources
}

/// An operator that announces manifests and sends nothing of them, as long as this is kept.
struct Announcer {
    runtime: Runtime,
    calls: Vec<Box<dyn AsyncRead + Send + Unpin>>,
}

impl Announcer {
    /// Announces so many of so many bytes each to what listens on a port.
    fn announce(identity: &Path, port: u16, count: usize, bytes: usize) -> Self {
        let operator = Operator::load(identity).unwrap();
        let runtime = Runtime::new().unwrap();
        let mut calls: Vec<Box<dyn AsyncRead + Send + Unpin>> = Vec::new();
        runtime.block_on(async {
            for _ in 0..count {
                let stream = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
                let (mut call, _) = operator.connect("127.0.0.1", stream).await.unwrap();
                read_frame::<Greeting>(&mut call).await.unwrap();
                let look = CommandSays::Look {
                    path: b"/nowhere".to_vec(),
                    manifest_bytes: bytes as u32,
                    keeps: true,
                    signature: None,
                };
                write_frame(&mut call, &look).await.unwrap();
                calls.push(Box::new(call));
            }
        });
        Self { runtime, calls }
    }
}

impl Drop for Announcer {
    fn drop(&mut self) {
        let _inside = self.runtime.enter();
        self.calls.clear();
    }
}

fn cast(trust: &Path, source: &Path, at: String, protocol: &str) -> Command {
    let mut command = outpour();
    command.arg("cast").arg(source).arg(at);
    command.args([
        "--agents",
        "--json",
        "--quiet",
        "--protocol",
        protocol,
        "--trust",
    ]);
    command.arg(trust);
    command
}

#[test]
fn thirty_two_casts_at_once_keep_within_the_memory_of_the_unit() {
    let dir = tempfile::tempdir().unwrap();
    let (trust, identity) = trust(dir.path(), "trust");
    let eve = dir.path().join("eve");
    let root = dir.path().join("root");
    let granted = ["--root", root.to_str().unwrap(), "--host", "127.0.0.1"];
    let made = [
        "trust",
        "operator",
        "eve",
        "--trust",
        trust.to_str().unwrap(),
    ];
    run(outpour().args(made).arg("--output").arg(&eve).args(granted)).expect(0);
    let service = Service::start(&identity, &root);
    let sources = sources(dir.path());
    // As many as may wait of those that fit, and the longest there may be.
    let _large = Announcer::announce(&eve, service.port, 8, 90 << 20);
    let _longest = Announcer::announce(&eve, service.port, 8, MANIFEST_BYTES_MAX);
    let casts: Vec<(Cast, usize, PathBuf)> = (0..CASTS)
        .map(|number| {
            let source = number % sources.len();
            let copy = root.join(format!("copy-{number}"));
            let at = format!("127.0.0.1:{}:{}", service.port, copy.display());
            let protocol = PROTOCOLS[number % PROTOCOLS.len()];
            let cast = cast(&trust, &sources[source], at, protocol);
            (Cast::start(&mut { cast }), source, copy)
        })
        .collect();
    for (cast, source, copy) in casts {
        cast.end().expect(0);
        same(&sources[source], &copy);
    }
    let (peak, most) = (peak(service.id()), MEMORY.0 + OTHER_MEMORY.0);
    eprintln!("at most {} MiB", peak >> 20);
    assert!(peak <= most, "{peak} bytes, and the unit gives {most}");
}

/// A message of a call that is waited for.
async fn hear(call: &mut (impl AsyncRead + Unpin)) -> AgentSays {
    loop {
        match read_frame(call).await.unwrap() {
            AgentSays::Hashing { .. } | AgentSays::Claiming => {}
            said => return said,
        }
    }
}

#[test]
fn what_takes_more_than_there_is_is_refused_in_a_line() {
    let dir = tempfile::tempdir().unwrap();
    let (trust, identity) = trust(dir.path(), "trust");
    let root = dir.path().join("root");
    let service = Service::run(&[], &["--memory", "64 MiB"], 0, &identity, &root);
    let operator = Operator::load(&trust).unwrap();
    let runtime = Runtime::new().unwrap();
    let said = runtime.block_on(async {
        let stream = TcpStream::connect(("127.0.0.1", service.port))
            .await
            .unwrap();
        let (mut call, _) = operator.connect("127.0.0.1", stream).await.unwrap();
        read_frame::<Greeting>(&mut call).await.unwrap();
        let look = CommandSays::Look {
            path: b"/nowhere".to_vec(),
            manifest_bytes: 40 << 20,
            keeps: true,
            signature: None,
        };
        write_frame(&mut call, &look).await.unwrap();
        for _ in 0..40 {
            write_frame(&mut call, &CommandSays::Part(vec![0; 1 << 20]))
                .await
                .unwrap();
        }
        hear(&mut call).await
    });
    let AgentSays::Unable { error } = said else {
        panic!("{said:?}");
    };
    assert_eq!(
        error,
        "this host has no memory for that: it takes 41 MiB, and one operator's casts may have 32 MiB; its \
         agent needs more --memory"
    );
    // And nobody else is the worse for it.
    let source = dir.path().join("file");
    fs::write(&source, "small").unwrap();
    let copy = root.join("copy");
    let at = format!("127.0.0.1:{}:{}", service.port, copy.display());
    Cast::start(&mut cast(&trust, &source, at, "swarm"))
        .end()
        .expect(0);
    same(&source, &copy);
}
