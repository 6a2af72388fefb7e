//! A source that describes the object rightly and then sends other bytes. Each agent is a service, a
//! process of this very test.
#![allow(clippy::unwrap_used)]

use std::fs;
use std::io::{self, BufRead, BufReader};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use outpour::agent::{Agent, Wrap};
use outpour::{Cast, CastReport, Reach};
use outpour_core::{BatchId, BlockId, NodeId};
use outpour_net::{Accept, BlockIo, Encoded, Packet, PacketIo, Tell, trust};

/// How long something that has to happen may take.
const DEADLINE: Duration = Duration::from_secs(120);

/// By this argument the test is an agent that serves beneath a directory, honest or not.
const SERVE: &str = "serve";
const HONEST: &str = "honest";
const LIAR: &str = "liar";

fn main() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let words: Vec<String> = std::env::args().skip(1).collect();
    if let [word, root, identity, nature] = &words[..]
        && word == SERVE
    {
        return runtime.block_on(serve(Path::new(root), Path::new(identity), nature == LIAR));
    }
    let all = async {
        the_first_of_two_sources_lies("swarm").await;
        the_first_of_two_sources_lies("coded-gossip").await;
        // It is the one next to the receivers.
        the_second_of_two_sources_lies("chain").await;
    };
    let ended = runtime.block_on(async { tokio::time::timeout(DEADLINE, all).await });
    ended.expect("the casts end in time");
}

/// Runs a service and prints its address, until the process is killed.
async fn serve(root: &Path, identity: &Path, lies: bool) {
    let mut agent = Agent::new()
        .root(root)
        .listen(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)))
        .data_listen(Ipv4Addr::LOCALHOST.into());
    if lies {
        agent = agent.wrap(Wrap::new(|object| Arc::new(Liar(object))));
    }
    let mut service = agent.start(identity).await.unwrap();
    println!("{}", service.local_addr());
    loop {
        service.next().await;
    }
}

/// An object of which every byte that leaves is right, but for the first of each block or packet.
struct Liar(Arc<dyn BlockIo>);

impl BlockIo for Liar {
    fn block_len(&self, block: BlockId) -> Option<u32> {
        self.0.block_len(block)
    }

    fn has(&self, block: BlockId) -> bool {
        self.0.has(block)
    }

    fn drops(&self, block: BlockId) -> bool {
        self.0.drops(block)
    }

    fn read(&self, block: BlockId, buf: &mut Vec<u8>) -> io::Result<()> {
        self.0.read(block, buf)?;
        spoil(buf);
        Ok(())
    }

    fn accept(&self, block: BlockId, data: &[u8]) -> Accept {
        self.0.accept(block, data)
    }

    fn packets(&self) -> Option<&dyn PacketIo> {
        self.0.packets().map(|_| self as &dyn PacketIo)
    }
}

impl PacketIo for Liar {
    fn packet_len(&self, batch: BatchId) -> Option<u32> {
        self.0.packets()?.packet_len(batch)
    }

    fn wants(&self, batch: BatchId) -> bool {
        self.0.packets().is_some_and(|packets| packets.wants(batch))
    }

    fn encode(&self, batch: BatchId, pure: bool, buf: Vec<u8>, done: Encoded) {
        let done: Encoded = Box::new(move |made| {
            done(made.map(|mut packet| {
                spoil(&mut packet);
                packet
            }));
        });
        self.0.packets().unwrap().encode(batch, pure, buf, done);
    }

    fn take(&self, from: NodeId, packet: Packet<'_>, tell: &mut Tell<'_>) {
        self.0.packets().unwrap().take(from, packet, tell);
    }

    fn note_block(&self, from: NodeId, block: BlockId, data: &[u8], tell: &mut Tell<'_>) {
        let packets = self.0.packets().unwrap();
        packets.note_block(from, block, data, tell);
    }
}

fn spoil(bytes: &mut [u8]) {
    if let Some(first) = bytes.first_mut() {
        *first ^= 0x55;
    }
}

/// A host whose agent is a process; it ends with this.
struct Host {
    agent: Child,
    name: String,
    root: PathBuf,
}

impl Host {
    /// Starts an agent; `nature` says whether it lies.
    fn start(root: PathBuf, identity: &Path, nature: &str) -> Self {
        fs::create_dir(&root).unwrap();
        let mut agent = Command::new(std::env::current_exe().unwrap())
            .arg(SERVE)
            .args([root.as_path(), identity])
            .arg(nature)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        let mut out = BufReader::new(agent.stdout.take().unwrap());
        out.read_line(&mut line).unwrap();
        let name = line.trim().to_owned();
        Self { agent, name, root }
    }

    fn file(&self) -> PathBuf {
        self.root.join("model")
    }

    /// The object here, as a source or a destination.
    fn at(&self) -> String {
        format!("{}:{}", self.name, self.file().display())
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        let _ = self.agent.kill();
        let _ = self.agent.wait();
    }
}

/// Two hosts that have an object, of which one lies about it, and two that are to get it.
struct Scene {
    liar: Host,
    honest: Host,
    receivers: [Host; 2],
    object: Vec<u8>,
    trust: PathBuf,
    _place: tempfile::TempDir,
}

impl Scene {
    fn new() -> Self {
        let place = tempfile::tempdir().unwrap();
        let at = |name: &str| place.path().join(name);
        let (trust, identity) = (at("trust"), at("identity"));
        let authority = trust::Directory::at(&trust);
        authority.init().unwrap();
        let usual = trust::Lifetime::default();
        authority.issue("127.0.0.1", usual, &identity).unwrap();
        let start = |name: &str, nature: &str| Host::start(at(name), &identity, nature);
        let noise = (0..4_000_000_u64).map(|n| (n.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8);
        let scene = Self {
            liar: start("a", LIAR),
            honest: start("b", HONEST),
            receivers: [start("c", HONEST), start("d", HONEST)],
            object: noise.collect(),
            trust,
            _place: place,
        };
        for holder in [&scene.liar, &scene.honest] {
            fs::write(holder.file(), &scene.object).unwrap();
        }
        scene
    }

    /// Casts what the first has and the second has, too.
    async fn cast(&self, protocol: &str, first: &Host, second: &Host) -> CastReport {
        let cast = Cast::of(first.at()).also_from(second.at());
        let [one, other] = &self.receivers;
        let trust = Some(self.trust.clone());
        // Slow enough that both are read before the end.
        let cast = cast.to(one.at()).to(other.at()).protocol(protocol);
        let cast = cast.limit("2 MB/s".parse().unwrap());
        cast.reach(Reach::Services { trust }).run().await.unwrap()
    }

    /// Asserts that all have the right bytes, and that the liar alone is named, by its name.
    #[track_caller]
    fn assert_found_out(&self, report: &CastReport) {
        assert!(report.verified(), "{report:#?}");
        for host in &self.receivers {
            assert!(fs::read(host.file()).unwrap() == self.object, "{report:#?}");
        }
        let (lies, others): (Vec<&String>, Vec<&String>) = report
            .notices
            .iter()
            .partition(|notice| notice.contains(" sent "));
        let accusation = format!("{} sent wrong ", self.liar.name);
        assert!(!lies.is_empty(), "{report:#?}");
        assert!(
            lies.iter().all(|notice| notice.starts_with(&accusation)),
            "{lies:#?}"
        );
        let about_liar = |notice: &&String| notice.contains(&self.liar.name);
        assert!(others.iter().all(about_liar), "{others:#?}");
    }
}

async fn the_first_of_two_sources_lies(protocol: &str) {
    let scene = Scene::new();
    let report = scene.cast(protocol, &scene.liar, &scene.honest).await;
    scene.assert_found_out(&report);
}

async fn the_second_of_two_sources_lies(protocol: &str) {
    let scene = Scene::new();
    let report = scene.cast(protocol, &scene.honest, &scene.liar).await;
    scene.assert_found_out(&report);
}
