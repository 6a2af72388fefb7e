//! The control channel to one host: launch, admission, then orders one way and reports the other.

use std::any::Any;
use std::future::Future;
use std::net::{IpAddr, SocketAddr};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use outpour_core::blocks::Want;
use outpour_core::manifest::MANIFEST_BYTES_MAX;
use outpour_core::text::escape;
use outpour_core::{NodeId, Priority};
use outpour_net::SessionId;
use outpour_protocols::Role;
use outpour_protocols::coordinator::{
    self, CodingCounts, Contact, Given, Input, Report, TransferName,
};
use outpour_terms::Terms;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::{mpsc, watch};

use super::attempt::Said;
use super::request::HostSpec;
use crate::bounds::hear;
use crate::control::{
    Admission, AgentSays, CommandSays, ControlError, Described, Greeting, PART_BYTES, read_frame,
    write_frame,
};
use crate::launch::{ControlStream, LaunchError};
use crate::mailbox;
use crate::view::NotKept;

/// How long an agent that runs has to greet, and then to join.
const ANSWER_MAX: Duration = Duration::from_secs(20);
/// How often an agent hears that the command is there still while it prepares.
const PRESENCE: Duration = Duration::from_secs(5);
/// What to do about a receiver's agent that was lost.
const AGAIN: &str = "; the same command continues where it stopped";

/// What every host of a cast is told.
pub(super) struct Invitation {
    pub(super) cast: SessionId,
    pub(super) transfer: TransferName,
    pub(super) epoch: u64,
    pub(super) priority: Priority,
    /// The node of the first agent, which is that of the first host.
    pub(super) first: u32,
    pub(super) hosts: Vec<HostSpec>,
    pub(super) object: Described,
    /// A signature of the manifest's id.
    pub(super) signature: Option<Vec<u8>>,
    pub(super) label: String,
    /// The manifest, if hosts are only to say what they have.
    pub(super) look: Option<Arc<Vec<u8>>>,
    pub(super) verify_after: bool,
    pub(super) patience: Duration,
    pub(super) terms: Arc<Terms>,
}

impl Invitation {
    fn admit(&self, node: NodeId) -> Admission {
        let path = &self.hosts[(node.0 - self.first) as usize].path;
        Admission {
            cast: self.cast.0,
            transfer: self.transfer,
            epoch: self.epoch,
            node,
            priority: self.priority,
            path: path.as_os_str().as_bytes().to_vec(),
            file_name: self.object.file_name.clone(),
            label: self.label.clone(),
            verify_after: self.verify_after,
            want: match self.terms.members[node.index()].role {
                Role::Relay => Want::Nothing,
                Role::Source | Role::Receiver => Want::All,
            },
            terms: Terms::clone(&self.terms),
            manifest: self.object.manifest.clone(),
            signature: self.signature.clone(),
        }
    }

    /// Why a node cannot have its destination if that overlaps with another node's.
    fn twins(&self, node: NodeId, other: NodeId, relation: &str) -> String {
        let host = |node: NodeId| self.hosts.get(node.0.checked_sub(self.first)? as usize);
        let path = |host: &HostSpec| escape(&host.path.to_string_lossy()).into_owned();
        let own = host(node).map(path).unwrap_or_default();
        let other = match host(other) {
            Some(other) => format!("{} of {}", path(other), other.name),
            None => "another destination of this cast".to_owned(),
        };
        format!("{own}: {} {other}; name each place once", escape(relation))
    }

    /// Why a host cannot be a source that has this; nothing if it can.
    fn rejects(&self, held: &Described) -> Option<&'static str> {
        let ours = &self.object;
        if held.content != ours.content {
            return Some("has another version of the object and is left out");
        }
        // A manifest that is cast has to be the same at all sources.
        let differs = held.manifest.id != ours.manifest.id && ours.manifest.inline.is_none();
        differs.then_some("has files with other modes, times or attributes and is left out")
    }
}

/// How those that have the object are to read it.
#[derive(Clone, Copy, Debug)]
pub(super) struct HashOrder {
    block_bytes: u32,
    receivers: u32,
    /// Whether its manifest is wanted, too: of all of them, as the first may be lost on the way.
    manifest: bool,
}

impl HashOrder {
    pub(super) fn of(terms: &Terms, manifest: bool) -> Self {
        Self {
            manifest,
            block_bytes: terms.block_bytes,
            receivers: terms.receivers() as u32,
        }
    }
}

/// What a host answers that was asked what it has.
pub(super) enum Answer {
    /// So many bytes of the object, and why the rest could not be put there.
    Has(u64, Option<String>),
    /// It cannot say, and why.
    Lost(String),
}

/// What came from a host.
pub(super) struct Heard {
    node: NodeId,
    what: What,
}

enum What {
    Surveyed(u64),
    Hashing(u64),
    Hashed(Box<Described>, Vec<u8>),
    /// A host has so many bytes of the object; why it could not take the rest.
    Looked(u64, Option<String>),
    Joined(Contact),
    /// For the end of another cast, which it names.
    Waiting(String),
    Claiming,
    Refused(String),
    Report(Report),
    Lost(String),
}

impl From<String> for What {
    fn from(error: String) -> Self {
        Self::Lost(error)
    }
}

impl Heard {
    /// What coding took at a host, if that is what it says.
    pub(super) const fn coding(&self) -> Option<(NodeId, CodingCounts)> {
        match self.what {
            What::Report(Report::Coding(counts)) => Some((self.node, counts)),
            _ => None,
        }
    }

    /// What a host could not keep, if that is what it says.
    pub(super) fn not_kept(&self) -> Option<(NodeId, NotKept)> {
        match &self.what {
            What::Report(Report::NotKept {
                what,
                entries,
                example,
            }) => {
                let not_kept = NotKept {
                    what: *what,
                    entries: *entries,
                    example: example.clone(),
                };
                Some((self.node, not_kept))
            }
            _ => None,
        }
    }

    /// For the end of which cast a host waits, if that is what it says.
    pub(super) fn waiting(&self) -> Option<(NodeId, &str)> {
        match &self.what {
            What::Waiting(by) => Some((self.node, by)),
            _ => None,
        }
    }

    /// What a source says before it is admitted; or what it is if it is nothing of that.
    pub(super) fn of_source(self) -> Result<(NodeId, Said), Self> {
        let said = match self.what {
            What::Surveyed(size) => Said::Surveyed(size),
            What::Hashing(bytes) => Said::Hashing(bytes),
            What::Hashed(object, manifest) => Said::Hashed(object, manifest),
            _ => return Err(self),
        };
        Ok((self.node, said))
    }

    /// Which host was lost and why, if that is what it says.
    pub(super) fn lost(&self) -> Option<(NodeId, &str)> {
        match &self.what {
            What::Lost(error) => Some((self.node, error)),
            _ => None,
        }
    }

    /// What a host answers that was asked what it has.
    pub(super) fn into_answer(self) -> Option<(NodeId, Answer)> {
        let answer = match self.what {
            What::Looked(bytes, unable) => Answer::Has(bytes, unable),
            What::Lost(error) => Answer::Lost(error),
            _ => return None,
        };
        Some((self.node, answer))
    }

    /// What it means to the coordinator, if anything.
    pub(super) fn into_input(self) -> Option<Input> {
        let node = self.node;
        Some(match self.what {
            What::Surveyed(_) | What::Hashing(_) | What::Hashed(..) | What::Looked(..) => {
                return None;
            }
            What::Joined(contact) => Input::Joined { node, contact },
            What::Waiting(_) => Input::Waiting { node },
            What::Claiming => Input::Claiming { node },
            What::Refused(error) => Input::Refused { node, error },
            What::Report(report) => Input::Report { node, report },
            What::Lost(error) => Input::Lost { node, error },
        })
    }
}

/// The channel to one host.
pub(super) struct Channel {
    pub(super) node: NodeId,
    pub(super) role: Role,
    /// Where the host has the object, if it is a source.
    pub(super) holds: Option<PathBuf>,
    /// Whether it is to say what its files have beside names, contents, modes and times.
    pub(super) archive: bool,
    /// Whether what it says while it reads the object is of use: where the object is here, it is not.
    pub(super) tells: bool,
    pub(super) hash: watch::Receiver<Option<HashOrder>>,
    pub(super) patience: Duration,
    pub(super) invitation: watch::Receiver<Option<Arc<Invitation>>>,
    pub(super) heard: mpsc::Sender<Heard>,
    pub(super) orders: mailbox::Receiver<Given>,
}

/// An agent that runs and has greeted.
struct Called {
    stream: ControlStream,
    greeting: Greeting,
    /// What it has, if it is a source.
    held: Option<Described>,
}

struct Open {
    /// Of which transfer orders are.
    transfer: TransferName,
    reader: Box<dyn AsyncRead + Send + Unpin>,
    writer: Box<dyn AsyncWrite + Send + Unpin>,
    guard: Box<dyn Any + Send>,
}

impl Channel {
    /// Runs the channel from launch to end; how it ended is the last thing heard.
    pub(super) async fn run(
        mut self,
        launch: impl Future<Output = Result<ControlStream, LaunchError>>,
    ) {
        // Only a receiver has something that could be continued.
        let again = match self.role {
            Role::Receiver => AGAIN,
            Role::Source | Role::Relay => "",
        };
        let over = over(self.invitation.clone());
        let called = tokio::select! {
            called = self.call(launch) => called,
            () = over => return,
        };
        let look = self
            .invitation
            .borrow()
            .as_ref()
            .and_then(|it| it.look.clone());
        let opened = match (called, look) {
            (Ok(called), Some(manifest)) => {
                let looked = self.look(called, &manifest).await;
                return self.say(looked.unwrap_or_else(|last| last)).await;
            }
            (Ok(called), None) => self.admit(called).await,
            (Err(last), _) => Err(last),
        };
        let last = match opened {
            Ok(open) => What::Lost(match self.talk(open).await {
                ControlError::Closed => format!("its agent ended before the cast did{again}"),
                ControlError::Io(error) => {
                    format!("the connection to its agent broke: {error}{again}")
                }
                error => error.to_string(),
            }),
            Err(last) => last,
        };
        self.say(last).await;
    }

    async fn say(&self, what: What) {
        let _ = self
            .heard
            .send(Heard {
                node: self.node,
                what,
            })
            .await;
    }

    async fn tell(&self, what: What) {
        if self.tells {
            self.say(what).await;
        }
    }

    /// Launches the agent and waits until there is a cast to admit it to.
    async fn call(
        &mut self,
        launch: impl Future<Output = Result<ControlStream, LaunchError>>,
    ) -> Result<Called, What> {
        let mut stream = launch.await.map_err(|error| error.to_string())?;
        let greeting: Greeting =
            in_time(read_frame(&mut stream.reader))
                .await
                .map_err(|error| match error {
                    NoAnswer::Control(ControlError::Nonsense(_)) => {
                        ControlError::NotOutpour.to_string()
                    }
                    other => other.to_string(),
                })?;
        greeting.check().map_err(|error| error.to_string())?;
        let held = match self.holds.take() {
            Some(path) => Some(self.read(&mut stream, &path).await?),
            None => None,
        };
        let invited = async { self.invitation.wait_for(Option::is_some).await.is_ok() };
        match waiting(&mut stream, invited).await? {
            true => Ok(Called {
                stream,
                greeting,
                held,
            }),
            false => Err("interrupted".to_owned().into()),
        }
    }

    /// Has the agent look at the object and read it.
    async fn read(&mut self, stream: &mut ControlStream, path: &Path) -> Result<Described, What> {
        let path = path.as_os_str().as_bytes().to_vec();
        let said = in_time(write_frame(
            &mut stream.writer,
            &CommandSays::Survey {
                path,
                archive: self.archive,
            },
        ))
        .await;
        said.map_err(|error| error.to_string())?;
        let (mut surveyed, mut read, mut since) = (false, 0, Instant::now());
        loop {
            let said = in_time(hear(&mut stream.reader)).await;
            match said.map_err(|error| error.to_string())? {
                AgentSays::Surveyed { size } if !surveyed => {
                    surveyed = true;
                    self.tell(What::Surveyed(size)).await;
                    self.order_hash(stream).await?;
                    since = Instant::now();
                }
                AgentSays::Hashing { bytes } => {
                    // Until the first byte a tree is walked, and nothing says how far that is.
                    if bytes == 0 || bytes > read {
                        (read, since) = (bytes, Instant::now());
                    }
                    if since.elapsed() >= self.patience {
                        return Err(hung(self.patience).into());
                    }
                    self.tell(What::Hashing(bytes)).await;
                }
                AgentSays::Hashed(object) if surveyed => {
                    let manifest = self.manifest(stream, &object).await?;
                    self.tell(What::Hashed(object.clone(), manifest)).await;
                    return Ok(*object);
                }
                AgentSays::Unable { error } => return Err(What::Lost(error)),
                _ => return Err(ControlError::NotOutpour.to_string().into()),
            }
        }
    }

    async fn order_hash(&mut self, stream: &mut ControlStream) -> Result<(), What> {
        let ordered = async {
            let order = self.hash.wait_for(Option::is_some).await;
            order.ok().and_then(|order| *order)
        };
        let order = waiting(stream, ordered).await?;
        let HashOrder {
            block_bytes,
            receivers,
            manifest,
        } = order.ok_or_else(|| "interrupted".to_owned())?;
        let says = CommandSays::Hash {
            block_bytes,
            receivers,
            manifest,
        };
        let said = in_time(write_frame(&mut stream.writer, &says)).await;
        said.map_err(|error| What::Lost(error.to_string()))
    }

    /// The manifest that a source sends after its description, if it was asked for.
    async fn manifest(
        &self,
        stream: &mut ControlStream,
        object: &Described,
    ) -> Result<Vec<u8>, What> {
        let wanted = self.hash.borrow().is_some_and(|order| order.manifest);
        let len = match wanted {
            true => (object.manifest.len as usize).min(MANIFEST_BYTES_MAX),
            false => 0,
        };
        let mut encoded = Vec::new();
        while encoded.len() < len {
            let said = in_time(hear(&mut stream.reader)).await;
            match said.map_err(|error| error.to_string())? {
                AgentSays::Part(part) if !part.is_empty() => encoded.extend(part),
                _ => return Err(ControlError::NotOutpour.to_string().into()),
            }
        }
        Ok(encoded)
    }

    /// Asks a host what it has of the object; of a source that was said already.
    async fn look(&self, called: Called, manifest: &[u8]) -> Result<What, What> {
        let invitation = self.invitation.borrow().clone();
        let invitation = invitation.ok_or_else(|| "interrupted".to_owned())?;
        let Called {
            mut stream, held, ..
        } = called;
        if let Some(held) = held {
            let says = CommandSays::Dismiss;
            let _ = in_time(write_frame(&mut stream.writer, &says)).await;
            return Ok(match invitation.rejects(&held) {
                Some(why) => What::Lost(why.to_owned()),
                None => What::Looked(held.size, None),
            });
        }
        let path = &invitation.hosts[(self.node.0 - invitation.first) as usize].path;
        let first = CommandSays::Look {
            path: path.as_os_str().as_bytes().to_vec(),
            manifest_bytes: manifest.len() as u32,
            keeps: self.role != Role::Relay,
            signature: invitation.signature.clone(),
        };
        let parts = manifest.chunks(PART_BYTES).map(<[u8]>::to_vec);
        for says in std::iter::once(first).chain(parts.map(CommandSays::Part)) {
            let said = in_time(write_frame(&mut stream.writer, &says)).await;
            said.map_err(|error| error.to_string())?;
        }
        let (mut read, mut since) = (0, Instant::now());
        loop {
            let said = in_time(hear(&mut stream.reader)).await;
            match said.map_err(|error| error.to_string())? {
                AgentSays::Hashing { bytes } => {
                    if bytes > read {
                        (read, since) = (bytes, Instant::now());
                    }
                    if since.elapsed() >= self.patience {
                        return Err(hung(self.patience).into());
                    }
                }
                AgentSays::Looked { have_bytes, unable } => {
                    return Ok(What::Looked(have_bytes, unable));
                }
                AgentSays::Unable { error } => return Err(What::Lost(error)),
                _ => return Err(ControlError::NotOutpour.to_string().into()),
            }
        }
    }

    /// Admits the agent to the cast, and waits until it has joined.
    async fn admit(&self, called: Called) -> Result<Open, What> {
        let ControlStream {
            mut reader,
            mut writer,
            host_addrs,
            guard,
            ..
        } = called.stream;
        let invitation = self.invitation.borrow().clone();
        let invitation = invitation.ok_or_else(|| "interrupted".to_owned())?;
        let held = called.held.as_ref();
        if let Some(why) = held.and_then(|held| invitation.rejects(held)) {
            return Err(What::Lost(why.to_owned()));
        }
        let says = CommandSays::Admit(Box::new(invitation.admit(self.node)));
        let said = in_time(write_frame(&mut writer, &says)).await;
        said.map_err(|error| error.to_string())?;
        let addrs = tokio::select! {
            joined = self.joined(&mut reader, &invitation) => joined?,
            () = over(self.invitation.clone()) => {
                // It may hold its destination, for which others wait: being told that it is not wanted any
                // more ends that sooner than silence does.
                let says = CommandSays::Dismiss;
                let _ = in_time(write_frame(&mut writer, &says)).await;
                return Err("interrupted".to_owned().into());
            }
        };
        let contact = Contact {
            addrs: reachable(&host_addrs, addrs),
            key: called.greeting.key,
        };
        self.say(What::Joined(contact)).await;
        Ok(Open {
            transfer: invitation.transfer,
            reader,
            writer,
            guard,
        })
    }

    /// What an agent answers to its admission.
    async fn joined(
        &self,
        reader: &mut (impl AsyncRead + Send + Unpin),
        invitation: &Invitation,
    ) -> Result<Vec<SocketAddr>, What> {
        let patience = invitation.patience;
        let mut said = in_time(hear(reader)).await;
        // Each is said once.
        let (mut waited, mut claimed) = (false, false);
        loop {
            match said.map_err(|error| error.to_string())? {
                AgentSays::Waiting { by } if !waited => {
                    waited = true;
                    self.say(What::Waiting(by)).await;
                    said = in_time(hear(reader)).await;
                }
                AgentSays::Claiming if !claimed => {
                    claimed = true;
                    self.say(What::Claiming).await;
                    let decided = tokio::time::timeout(patience, hear(reader));
                    let hung = |_| coordinator::claiming(patience);
                    said = decided.await.map_err(hung)?.map_err(NoAnswer::from);
                }
                AgentSays::Joined { addrs } => return Ok(addrs),
                AgentSays::Twin { node, relation } => {
                    return Err(What::Lost(invitation.twins(self.node, node, &relation)));
                }
                AgentSays::Refused { error } => return Err(What::Refused(error)),
                AgentSays::Unable { error } => return Err(What::Lost(error)),
                _ => return Err(ControlError::NotOutpour.to_string().into()),
            }
        }
    }

    /// Passes orders and reports on until the channel ends.
    async fn talk(&mut self, open: Open) -> ControlError {
        let Open {
            transfer,
            mut reader,
            mut writer,
            guard,
        } = open;
        let (heard, node) = (self.heard.clone(), self.node);
        let mut hearing = tokio::spawn(async move {
            loop {
                match hear(&mut reader).await {
                    Ok(AgentSays::Report(report)) => {
                        let _ = heard
                            .send(Heard {
                                node,
                                what: What::Report(report),
                            })
                            .await;
                    }
                    Ok(_) => break ControlError::NotOutpour,
                    Err(error) => break error,
                }
            }
        });
        loop {
            tokio::select! {
                given = self.orders.recv() => {
                    let Some(given) = given else { break };
                    let says = CommandSays::Order { transfer, given };
                    if write_frame(&mut writer, &says).await.is_err() {
                        break;
                    }
                }
                ended = &mut hearing => {
                    drop(guard);
                    return ended.unwrap_or(ControlError::Closed);
                }
            }
        }
        // No more orders: the agent leaves by itself, and what it says last is still heard.
        drop(writer);
        let ended = hearing.await.unwrap_or(ControlError::Closed);
        drop(guard);
        ended
    }
}

/// Why a source is given up whose disk has given nothing for so long.
fn hung(patience: Duration) -> String {
    let patience = patience.as_secs();
    format!("its disk has done nothing for {patience} s while the source is read")
}

/// Comes about when the cast is over.
async fn over(mut invitation: watch::Receiver<Option<Arc<Invitation>>>) {
    while invitation.changed().await.is_ok() {}
}

/// Why an agent that was to say something did not.
#[derive(Debug, thiserror::Error)]
pub(crate) enum NoAnswer {
    #[error("no message from its agent for {} s", ANSWER_MAX.as_secs())]
    Silence,
    #[error("its agent ended before it took part; its log on that host may say why")]
    Ended,
    #[error(transparent)]
    Control(ControlError),
}

/// Waits for what the command prepares, and says to an agent meanwhile that it is there still.
async fn waiting<T>(
    stream: &mut ControlStream,
    prepared: impl Future<Output = T>,
) -> Result<T, What> {
    let mut prepared = std::pin::pin!(prepared);
    loop {
        if let Ok(prepared) = tokio::time::timeout(PRESENCE, &mut prepared).await {
            return Ok(prepared);
        }
        let said = in_time(write_frame(&mut stream.writer, &CommandSays::Waits)).await;
        if let Err(error) = said {
            // It may have said before why it has gone.
            return Err(match in_time(hear(&mut stream.reader)).await {
                Ok(AgentSays::Unable { error }) => error.into(),
                _ => error.to_string().into(),
            });
        }
    }
}

/// Waits for what an agent has no reason to take long for.
pub(crate) async fn in_time<T>(
    said: impl Future<Output = Result<T, ControlError>>,
) -> Result<T, NoAnswer> {
    match tokio::time::timeout(ANSWER_MAX, said).await {
        Err(_) => Err(NoAnswer::Silence),
        Ok(said) => said.map_err(NoAnswer::from),
    }
}

impl From<ControlError> for NoAnswer {
    fn from(error: ControlError) -> Self {
        match error {
            ControlError::Closed | ControlError::Io(_) => Self::Ended,
            error => Self::Control(error),
        }
    }
}

/// Where peers should try to reach a host: first as the command reached it, with the port its
/// data plane listens on.
pub(crate) fn reachable(host_addrs: &[IpAddr], reported: Vec<SocketAddr>) -> Vec<SocketAddr> {
    // An agent that listens on one address only says so by reporting just that.
    let mut addrs: Vec<SocketAddr> = match reported.as_slice() {
        [first, _, ..] => host_addrs
            .iter()
            .map(|ip| SocketAddr::new(*ip, first.port()))
            .collect(),
        _ => Vec::new(),
    };
    for addr in reported {
        if !addrs.contains(&addr) {
            addrs.push(addr);
        }
    }
    addrs
}
