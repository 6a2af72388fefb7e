//! A running emulation: its parts put together, and what callers ask of it.

use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use outpour_core::script::ScriptError;
use outpour_core::{Network, NodeId};
use outpour_system::emulation as sys;

use crate::address::Addresses;
use crate::control::{self, Answer, Request};
use crate::director::{Director, Told};
use crate::engine::{Engine, Sizes};
use crate::mover::Mover;
use crate::report::EmulationReport;
use crate::running::Running;
use crate::samples::Samples;
use crate::state::{State, VARIABLE};
use crate::{Config, EmuError, Mode, nodes, unknown_node};

/// How many callers are answered at the same time.
const CALLERS_MAX: usize = 256;

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
            sample,
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
        let samples = sample.map(|every| Samples::new(&network, every));
        let mover = Mover::start(engine, devices, addresses.clone(), mode.pause(), samples)?;
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
    /// call [`crate::init`] with the node and the command that follow them.
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
                // Held until its number is known: the process itself asks for what goes by it.
                let mut known = inner.first();
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
                known.pid = Some(pid);
                drop(known);
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
    pub fn finish(self) -> Result<EmulationReport, EmuError> {
        let unheard = self.inner.director.unheard();
        self.inner.director.stop();
        let moved = self.mover.stop()?;
        Ok(EmulationReport::new(&moved, unheard))
    }
}

fn no_program() -> EmuError {
    EmuError::Refused("there is no program for the first process".to_owned())
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
