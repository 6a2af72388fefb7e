//! Emulated networks on one machine: a network namespace per node, joined by links that keep the
//! rates, delays, queues, marks and losses of a network description.
//!
//! Real programs run in the namespaces, and real packets leave them through TUN devices. One
//! thread of the emulator moves them along the resources of their path, at times computed in
//! virtual time, so that the result does not depend on a queueing discipline the system may lack.
//! A script changes the network while it runs.
//!
//! Two modes: packet by packet, where queues, marks and losses act on single packets; and bulk,
//! where they act on bundles of up to 64 KiB that TCP hands over whole, at a fraction of the cost.
//! A rate counts IP packets with their headers, in bulk mode those the bundles stand for.
//!
//! Everything ends with the emulator: its namespaces and devices exist only as its open
//! descriptors, and its processes under a first one that dies with it.

mod address;
mod control;
mod director;
mod engine;
mod error;
mod inside;
mod lateness;
mod mover;
mod nodes;
mod packet;
mod state;
mod sys;

use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use outpour_core::script::{Script, ScriptError};
use outpour_core::{Network, NodeId};
use serde::Serialize;

use address::Addresses;
pub use address::{CLUSTERS_MAX, NODES_MAX};
pub use control::Client;
use control::{Answer, Request};
use director::Director;
pub use director::Told;
use engine::{Engine, Sizes};
pub use error::EmuError;
pub use inside::{SIGNALLED, Started, exec, init};
pub use lateness::{MEDIAN_MAX, P99_MAX, Verdict, WORST_MAX};
use mover::Mover;
use state::State;
pub use state::{NODE_VARIABLE, VARIABLE};

/// How many nodes a message names.
const NODES_NAMED_MAX: usize = 10;

/// How many callers are answered at the same time.
const CALLERS_MAX: usize = 256;

/// What queues, marks and losses act on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Single packets.
    Packet,
    /// Bundles of up to 64 KiB.
    Bulk,
}

impl Mode {
    /// The largest packet unless something else is asked for: that of the internet packet by
    /// packet, that of fast local networks in bulk.
    pub const fn usual_mtu(self) -> u32 {
        match self {
            Self::Packet => 1500,
            Self::Bulk => 9000,
        }
    }

    /// How long packets are collected under load: the price is as much lateness.
    const fn pause(self) -> Duration {
        match self {
            Self::Packet => Duration::from_micros(200),
            Self::Bulk => Duration::from_micros(500),
        }
    }
}

/// What to emulate.
#[derive(Clone, Debug)]
pub struct Config {
    /// The network at the start.
    pub network: Network,
    /// What changes it.
    pub script: Option<Script>,
    /// What queues, marks and losses act on.
    pub mode: Mode,
    /// The largest packet, bytes with its IP header.
    pub mtu: u32,
    /// Seed of random losses.
    pub seed: u64,
}

/// What an emulation did, and whether it was up to it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Report {
    /// Whether the machine was too slow for the run to mean anything.
    pub void: bool,
    /// Why, in words.
    pub reasons: Vec<String>,
    /// How late packets were handed over.
    pub lateness: Verdict,
    /// Packets that were sent.
    pub sent_packets: u64,
    /// Packets that were received.
    pub received_packets: u64,
    /// Bytes of the packets that were received, headers included.
    pub received_bytes: u64,
    /// Packets that found a queue full.
    pub dropped_packets: u64,
    /// Packets lost at random.
    pub lost_packets: u64,
    /// Packets marked for congestion.
    pub marked_packets: u64,
    /// Packets to nowhere.
    pub astray_packets: u64,
    /// Packets for which the machine had no room.
    pub overflowed_packets: u64,
    /// Processor time spent moving packets, seconds.
    pub cpu_s: f64,
    /// Whether the emulator ran before ordinary processes.
    pub priority: bool,
    /// The word the script waits for at the end although nobody ever said it.
    pub unheard: Option<String>,
}

/// A running emulation.
pub struct Emulation {
    inner: Arc<Inner>,
    mover: Mover,
}

struct Inner {
    network: Network,
    addresses: Addresses,
    namespaces: Vec<OwnedFd>,
    director: Director,
    state: State,
    hosts: PathBuf,
    first: Mutex<First>,
}

/// The first process inside.
#[derive(Default)]
struct First {
    pid: Option<u32>,
    /// Its namespaces of processes and of mounts, once it has made them.
    shared: Option<(OwnedFd, OwnedFd)>,
}

impl Emulation {
    /// Makes the nodes, joins them and starts the script. First removes what emulations left that
    /// were killed. `say` is handed what the script tells.
    ///
    /// # Errors
    /// Without root, with too many nodes, or if the system refuses something.
    pub fn start(config: Config, say: impl Fn(&str) + Send + 'static) -> Result<Self, EmuError> {
        let Config {
            network,
            script,
            mode,
            mtu,
            seed,
        } = config;
        let addresses = Addresses::new(&network)?;
        let player = (script.as_ref().map(|script| script.player(&network)))
            .transpose()
            .map_err(|error: ScriptError| EmuError::Refused(error.to_string()))?;
        let segments = mode == Mode::Bulk;
        let nodes = nodes::make(network.node_count() as u16, &addresses, mtu, segments)?;
        let state = State::make()?;
        let hosts = state.write("hosts", &hosts(&network, &addresses))?;
        let (devices, namespaces) = nodes
            .into_iter()
            .map(|node| (node.tun, node.namespace))
            .unzip();
        let largest = match mode {
            Mode::Packet => mtu,
            Mode::Bulk => mtu.max(9000),
        };
        let engine = Engine::new(network.clone(), Sizes { largest }, seed);
        let mover = Mover::start(engine, devices, addresses.clone(), mode.pause())?;
        let director = Director::start(
            network.clone(),
            script.as_ref(),
            player,
            mover.handle(),
            say,
        )?;
        let listener = control::listen(state.dir())?;
        let inner = Arc::new(Inner {
            network,
            addresses,
            namespaces,
            director,
            state,
            hosts,
            first: Mutex::default(),
        });
        let weak = Arc::downgrade(&inner);
        thread::Builder::new()
            .name("control".to_owned())
            .spawn(move || {
                answer_callers(&listener, &move || weak.upgrade());
            })
            .map_err(EmuError::system("start a thread"))?;
        Ok(Self { inner, mover })
    }

    /// The network at the start.
    pub fn network(&self) -> &Network {
        &self.inner.network
    }

    /// The directory by which others find the emulation; see [`VARIABLE`].
    pub fn dir(&self) -> &Path {
        self.inner.state.dir()
    }

    /// The address of a node.
    pub fn address(&self, node: NodeId) -> std::net::Ipv4Addr {
        self.inner.addresses.of(node.0 as u16)
    }

    /// Says a word to the script.
    pub fn tell(&self, word: &str, patience: Duration) -> Told {
        self.inner.director.tell(word, patience)
    }

    /// The word the script waits for at the moment.
    pub fn waits_for(&self) -> Option<String> {
        self.inner.director.waiting_for()
    }

    /// Runs `task` on a new thread inside a node: sockets it opens belong to the node.
    ///
    /// # Errors
    /// If no thread can be started; the task's own result comes from the thread.
    pub fn run_inside<T: Send + 'static>(
        &self,
        node: NodeId,
        task: impl FnOnce() -> T + Send + 'static,
    ) -> Result<thread::JoinHandle<io::Result<T>>, EmuError> {
        nodes::run_inside(self.inner.namespaces[node.index()].as_fd(), task)
    }

    /// Runs `command` in a node with all it starts, and ends what is left when it is done.
    ///
    /// `init` is the program that becomes the first process inside, with its arguments: it has to
    /// call [`init`] with the node and the command that follow them.
    ///
    /// # Errors
    /// If the first process cannot be started.
    pub fn run(
        &self,
        node: NodeId,
        init: &[OsString],
        command: &[OsString],
    ) -> Result<Running, EmuError> {
        let (program, arguments) = init.split_first().ok_or_else(no_program)?;
        let mut first = Command::new(program);
        first
            .args(arguments)
            .arg(self.inner.network.name(node))
            .args(command)
            .env(VARIABLE, self.dir());
        let inner = Arc::clone(&self.inner);
        let (tell, started) = std::sync::mpsc::sync_channel(1);
        // The first process ends when the thread does that made it, which therefore waits for it.
        let thread = thread::Builder::new()
            .name("parent".to_owned())
            .spawn(move || {
                let spawned = sys::unshare(&[sys::Namespace::Pid]).and_then(|()| first.spawn());
                let mut child = match spawned {
                    Ok(child) => child,
                    Err(error) => {
                        let kind = error.kind();
                        let _ = tell.send(Err(error));
                        return Err(kind.into());
                    }
                };
                let pid = child.id();
                inner.first().pid = Some(pid);
                // Without it the system still ends the process with the emulator.
                let _ = inner.state.remember_init(pid);
                let _ = tell.send(Ok(pid));
                child.wait()
            });
        let thread = thread.map_err(EmuError::system("start a thread"))?;
        let pid = started.recv().map_err(io::Error::other).flatten();
        let pid = pid.map_err(EmuError::system("start the first process"))?;
        Ok(Running { thread, pid })
    }

    /// Ends the emulation and says what it did.
    ///
    /// # Errors
    /// If packets could no longer be moved.
    pub fn finish(self) -> Result<Report, EmuError> {
        let unheard = self.inner.director.unheard();
        self.inner.director.stop();
        let moved = self.mover.stop()?;
        let mut reasons = Vec::new();
        if moved.lateness.too_late {
            let ms = |seconds: f64| seconds * 1e3;
            reasons.push(format!(
                "packets were late by {:.2} ms (median), {:.2} ms (99 %), {:.1} ms (worst); \
                 at most {:?}, {:?} and {:?} are sound",
                ms(moved.lateness.median_s),
                ms(moved.lateness.p99_s),
                ms(moved.lateness.worst_s),
                MEDIAN_MAX,
                P99_MAX,
                WORST_MAX
            ));
        }
        if moved.overflowed > 0 {
            reasons.push(format!(
                "{} packets found no room in memory",
                moved.overflowed
            ));
        }
        let counts = moved.counts;
        Ok(Report {
            void: !reasons.is_empty(),
            reasons,
            lateness: moved.lateness,
            sent_packets: counts.entered,
            received_packets: counts.delivered,
            received_bytes: counts.delivered_bytes,
            dropped_packets: counts.dropped,
            lost_packets: counts.lost,
            marked_packets: counts.marked,
            astray_packets: moved.astray,
            overflowed_packets: moved.overflowed,
            cpu_s: moved.cpu_s,
            priority: moved.priority,
            unheard,
        })
    }
}

fn no_program() -> EmuError {
    EmuError::Refused("there is no program for the first process".to_owned())
}

/// A command running in an emulation.
pub struct Running {
    thread: thread::JoinHandle<io::Result<ExitStatus>>,
    pid: u32,
}

impl Running {
    /// Something that ends it from elsewhere, with everything it started.
    pub fn killer(&self) -> Killer {
        Killer { pid: self.pid }
    }

    /// Waits for its end. Every other process inside has ended by then, too.
    ///
    /// # Errors
    /// If the system refuses.
    pub fn wait(self) -> io::Result<ExitStatus> {
        let panicked = |_| Err(io::Error::other("its thread panicked"));
        self.thread.join().unwrap_or_else(panicked)
    }
}

/// Ends a running command.
#[derive(Clone, Copy, Debug)]
pub struct Killer {
    pid: u32,
}

impl Killer {
    /// Ends the command and everything it started, at once.
    pub fn kill(self) {
        let pid = i32::try_from(self.pid)
            .ok()
            .and_then(rustix::process::Pid::from_raw);
        if let Some(pid) = pid {
            // One that is gone already is as good.
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
        }
    }
}

/// Answers callers until the emulation is over.
fn answer_callers(
    listener: &UnixListener,
    emulation: &(impl Fn() -> Option<Arc<Inner>> + Clone + Send + 'static),
) {
    let callers = Arc::new(());
    for stream in listener.incoming() {
        let Ok(stream) = stream else { continue };
        let Some(inner) = emulation() else { return };
        if Arc::strong_count(&callers) > CALLERS_MAX {
            continue;
        }
        let counted = Arc::clone(&callers);
        // A caller that cannot be answered sees its connection end.
        let _ = thread::Builder::new()
            .name("caller".to_owned())
            .spawn(move || {
                let _ = inner.serve(&stream);
                drop(counted);
            });
    }
}

impl Inner {
    fn first(&self) -> std::sync::MutexGuard<'_, First> {
        self.first.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn serve(&self, stream: &UnixStream) -> io::Result<()> {
        let first = self.first();
        let shared: Vec<OwnedFd> = match &first.shared {
            Some((processes, mounts)) => {
                vec![processes.try_clone()?, mounts.try_clone()?]
            }
            None => Vec::new(),
        };
        drop(first);
        control::serve(stream, |request| match request {
            Request::Enter { node } => match self.network.node(&node) {
                Some(id) => {
                    let net = self.namespaces[id.index()].as_fd();
                    let shared = shared.iter().map(AsFd::as_fd);
                    let answer = Answer::Entry {
                        node: self.network.name(id).to_owned(),
                        hosts: self.hosts.clone(),
                    };
                    (answer, std::iter::once(net).chain(shared).collect())
                }
                None => (
                    Answer::Refused(unknown_node(&self.network, &node).to_string()),
                    Vec::new(),
                ),
            },
            Request::Ready => match self.open_first() {
                Ok(()) => (Answer::Done, Vec::new()),
                Err(error) => (Answer::Refused(error.to_string()), Vec::new()),
            },
            Request::Tell { word, wait_ms } => {
                let told = self.director.tell(&word, Duration::from_millis(wait_ms));
                let answer = match told {
                    Told::Heard => Answer::Heard,
                    Told::Remembered => Answer::Remembered,
                    Told::Ignored => Answer::Ignored,
                };
                (answer, Vec::new())
            }
            Request::Network => (Answer::Network(self.director.network_now()), Vec::new()),
        })
    }

    /// Keeps the namespaces the first process has made, for others to enter.
    fn open_first(&self) -> io::Result<()> {
        let mut first = self.first();
        let pid = first.pid.ok_or(io::ErrorKind::NotFound)?;
        let open = |kind| File::open(format!("/proc/{pid}/ns/{kind}")).map(OwnedFd::from);
        first.shared = Some((open("pid")?, open("mnt")?));
        Ok(())
    }
}

/// Says which nodes there are instead.
pub fn unknown_node(network: &Network, name: &str) -> EmuError {
    let mut known: Vec<_> = (network.nodes().take(NODES_NAMED_MAX))
        .map(|node| network.name(node))
        .collect();
    if network.node_count() as usize > NODES_NAMED_MAX {
        known.push("...");
    }
    EmuError::UnknownNode {
        name: name.to_owned(),
        known: known.join(", "),
    }
}

/// The names of the nodes and of the loopback, as `/etc/hosts` has them.
fn hosts(network: &Network, addresses: &Addresses) -> String {
    let mut text = "127.0.0.1 localhost\n::1 localhost ip6-localhost ip6-loopback\n".to_owned();
    for node in network.nodes() {
        let name = network.name(node);
        // Such a name would begin a comment.
        if name.contains('#') {
            continue;
        }
        let cluster = network.cluster_of(node);
        let first = network.nodes_of(cluster).next() == Some(node);
        let of_cluster = &network.clusters()[cluster.index()].name;
        let alias = if first && of_cluster != name && !of_cluster.contains('#') {
            format!(" {of_cluster}")
        } else {
            String::new()
        };
        text.push_str(&format!("{} {name}{alias}\n", addresses.of(node.0 as u16)));
    }
    text
}
