//! The agent's end of a control channel: one destination of one cast.

mod audit;
mod farewell;
pub(crate) mod hold;
mod keep;
mod look;
pub(crate) mod needs;
mod places;
mod seat;

pub use audit::{Audit, Audited, Caller, Task, Verdict};
pub use farewell::turn_away;
pub use keep::apart;
pub use places::{CASTS_MAX, MEMORY, OPERATOR_CASTS_MAX, Place, Places};

use audit::Entry;
use hold::hold;
pub(crate) use seat::between;

use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use outpour_core::blocks::Want;
use outpour_core::manifest::Manifest;
use outpour_net::trust::PublicKey;
use outpour_net::{Endpoint, SessionId};
use outpour_protocols::Role;
use outpour_protocols::coordinator::{Given, Obedience, Order, Report, Stamp, TransferName};
use outpour_store::{Claim, DestinationOptions, Keep, Roots, Work};
use outpour_terms::TermsError;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::bounds::ADDRESSES_MAX;
use crate::budget::{Memory, NoRoom};
use crate::cast::session_config;
use crate::content::Blob;
use crate::control::{
    Admission, AgentSays, CommandSays, ControlError, FRAME_BYTES_MAX, Greeting, read_body,
    read_frame, read_len, write_frame,
};
use crate::epochs::Epochs;
use crate::mailbox::{self, mailbox};
use crate::node::{Node, NodeConfig, Outcome, Part};
use crate::probe;
use crate::wrap::Wrap;

/// Why an agent parts that hears something else than its admission.
const EARLY: &str = "the command gave an order before admission";
/// Why a source that asks for signatures takes no part.
const OTHER: &str = "what is here is not the object that was signed";
/// Orders under way between the control channel and the node.
pub(crate) const CHANNEL: usize = 1024;
/// For so long a command may say nothing that was let in by a service and has still to say what it wants.
/// It says several times in that time that it is there.
const SILENCE_MAX: Duration = Duration::from_secs(30);
/// What the host's owner allows an agent.
#[derive(Clone, Debug)]
pub struct SessionOptions {
    /// Destinations must lie beneath one of these; `None` leaves it to the file permissions.
    pub roots: Option<Arc<Roots>>,
    /// The host's data plane, if others use it, too; `None` for one of its own.
    pub endpoint: Option<Endpoint>,
    /// The address on which one of its own listens; the port is the system's choice.
    pub listen: IpAddr,
    /// What stands between the data plane and the objects; `None` for nothing.
    pub wrap: Option<Wrap>,
    /// What the host remembers of coordinators.
    pub epochs: Arc<Epochs>,
    /// Only objects that one of these has signed are taken part in; with none, all are.
    pub signers: Arc<[PublicKey]>,
    /// The operator at the other end; `None` for an agent that the other end has started.
    pub caller: Option<Caller>,
}

impl SessionOptions {
    /// The place of what is done, for work that may outlast it.
    fn place(&self) -> Option<Arc<Place>> {
        self.caller.as_ref().and_then(|caller| caller.place.clone())
    }
}

/// Why an agent's part ended without being done.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SessionError {
    /// The control channel failed.
    #[error(transparent)]
    Control(#[from] ControlError),
    /// The data plane could not be started.
    #[error("data plane: {0}")]
    Net(#[from] outpour_net::Error),
    /// The command asked for something impossible.
    #[error("{0}")]
    Admission(String),
    /// Its terms cannot be kept.
    #[error(transparent)]
    Terms(#[from] TermsError),
    /// The command went away before the end.
    #[error(
        "the command that started this cast went away; {have} of {blocks} blocks are here and \
         kept for the next attempt"
    )]
    Orphaned {
        /// Verified blocks.
        have: u32,
        /// Blocks of the object; zero if the manifest had not come.
        blocks: u32,
    },
    /// Nothing is done for the operator, which was told so.
    #[error("{0}")]
    TurnedAway(String),
    /// The operator was revoked meanwhile.
    #[error("{0}; what is here is kept for the next attempt")]
    Revoked(String),
}

/// Serves one control channel until the cast is over.
///
/// # Errors
/// If the channel or the data plane fails, or the command goes away before the end.
pub async fn serve<R, W>(reader: R, writer: W, options: SessionOptions) -> Result<(), SessionError>
where
    R: AsyncRead + Send + Unpin + 'static,
    W: AsyncWrite + Send + Unpin + 'static,
{
    open(reader, writer, options).await?.serve().await
}

/// A control channel whose command has said what it is for, and has a place.
pub struct Opened<R, W> {
    first: CommandSays,
    entry: Entry,
    endpoint: Endpoint,
    options: SessionOptions,
    reader: R,
    writer: W,
    _memory: Memory,
}

/// Greets the command and hears what it wants. An operator that cannot have it is told why.
///
/// # Errors
/// If the channel or the data plane fails, the command says nothing, or it was told that nothing is done
/// for it.
pub async fn open<R, W>(
    mut reader: R,
    mut writer: W,
    mut options: SessionOptions,
) -> Result<Opened<R, W>, SessionError>
where
    R: AsyncRead + Send + Unpin + 'static,
    W: AsyncWrite + Send + Unpin + 'static,
{
    let endpoint = match &options.endpoint {
        Some(endpoint) => endpoint.clone(),
        None => crate::cast::endpoint(options.listen)?,
    };
    let waits = options.caller.as_ref().map(|caller| {
        let operator = &caller.operator.name;
        (caller.places.wait(operator), caller)
    });
    let waits = match waits {
        Some((Err(full), caller)) => {
            let why = full.to_string();
            turn_away(reader, writer, why.clone(), caller).await?;
            return Err(SessionError::TurnedAway(why));
        }
        Some((Ok(place), _)) => Some(place),
        None => None,
    };
    write_frame(&mut writer, &Greeting::new(endpoint.key().0)).await?;
    let (first, memory) = said(&mut reader, options.caller.as_ref()).await?;
    let entry = Entry::of(options.caller.as_ref());
    entry.ask(&first);
    if let Some(caller) = &mut options.caller {
        let place = match caller.no_longer() {
            Some(why) => Err(why),
            None => {
                let place = caller.places.enter(&caller.operator.name, &first);
                place.map_err(|full| full.to_string())
            }
        };
        match place {
            Ok(place) => caller.place = Some(Arc::new(place)),
            Err(why) => {
                farewell::refuse(&first, &entry, why.clone(), &mut reader, &mut writer).await?;
                return Err(SessionError::TurnedAway(why));
            }
        }
    }
    drop(waits);
    Ok(Opened {
        first,
        entry,
        endpoint,
        options,
        reader,
        writer,
        _memory: memory,
    })
}

impl<R, W> Opened<R, W>
where
    R: AsyncRead + Send + Unpin + 'static,
    W: AsyncWrite + Send + Unpin + 'static,
{
    /// Does what the command wants, until that is over.
    ///
    /// # Errors
    /// As [`serve`].
    pub async fn serve(self) -> Result<(), SessionError> {
        let (entry, caller) = (self.entry.clone(), self.options.caller.clone());
        tokio::select! {
            served = self.serve_all() => served,
            why = cut_off(caller.as_ref()) => {
                entry.refuse(&why);
                Err(SessionError::Revoked(why))
            }
        }
    }

    async fn serve_all(self) -> Result<(), SessionError> {
        let Self {
            first,
            entry,
            endpoint,
            options,
            mut reader,
            mut writer,
            _memory,
        } = self;
        let mut held = None;
        let mut _more = Memory::default();
        let admission = match first {
            CommandSays::Admit(admission) => admission,
            CommandSays::Probe(admission) => {
                entry.accept();
                let measured = probe::agent::measure(reader, writer, *admission, &endpoint).await;
                return concluded(&entry, measured);
            }
            CommandSays::Look {
                path,
                manifest_bytes,
                keeps,
                signature,
            } => {
                let asked = look::Asked {
                    path,
                    manifest_bytes,
                    keeps,
                    signature,
                };
                let looked = look::look(asked, &options, &entry, &mut reader, &mut writer).await;
                return concluded(&entry, looked);
            }
            CommandSays::Survey { path, archive } => {
                let holding =
                    hold(&path, archive, &options, &entry, &mut reader, &mut writer).await;
                held = match holding {
                    Ok(Some(held)) => Some(held),
                    ended => return concluded(&entry, ended.map(drop)),
                };
                let heard = match said(&mut reader, options.caller.as_ref()).await {
                    Ok(heard) => heard,
                    Err(error) => return concluded(&entry, Err(error)),
                };
                _more = heard.1;
                match heard.0 {
                    CommandSays::Admit(admission) => admission,
                    CommandSays::Dismiss => return concluded(&entry, Ok(())),
                    _ => return Err(SessionError::Admission(EARLY.into())),
                }
            }
            CommandSays::Renew => {
                let renewed = keep::renew(&options, &entry, &mut reader, &mut writer).await;
                return concluded(&entry, renewed);
            }
            CommandSays::Revoked { list } => {
                let noted = keep::note_revoked(&options, &entry, list, &mut writer).await;
                return concluded(&entry, noted);
            }
            _ => return Err(SessionError::Admission(EARLY.into())),
        };
        let taken = take_part(*admission, held, endpoint, options, &entry, reader, writer).await;
        concluded(&entry, taken)
    }
}

/// Comes about when an operator was revoked and has had the time to leave; says why.
async fn cut_off(caller: Option<&Caller>) -> String {
    match caller {
        Some(caller) => caller.until_cut_off().await,
        None => std::future::pending().await,
    }
}

/// What the command says next but that it is there still, and the memory that it takes. A service does not
/// wait for a command that is silent.
///
/// # Errors
/// If the channel breaks, or there is no memory, or the command is silent.
async fn said(
    reader: &mut (impl AsyncRead + Unpin),
    caller: Option<&Caller>,
) -> Result<(CommandSays, Memory), SessionError> {
    let Some(caller) = caller else {
        loop {
            match read_frame(reader).await? {
                CommandSays::Waits => {}
                said => return Ok((said, Memory::default())),
            }
        }
    };
    let silent = |_| SessionError::Admission("the command was silent for too long".to_owned());
    loop {
        let len = timeout(SILENCE_MAX, read_len(reader, FRAME_BYTES_MAX)).await;
        let len = len.map_err(silent)??;
        let memory = caller.places.frame(&caller.operator.name, len).await;
        let memory = memory.map_err(|full| SessionError::Admission(full.to_string()))?;
        let said = timeout(SILENCE_MAX, read_body(reader, len)).await;
        match said.map_err(silent)?? {
            CommandSays::Waits => {}
            said => return Ok((said, memory)),
        }
    }
}

/// Writes down how a task ended, if nothing else was said of that.
fn concluded(entry: &Entry, ended: Result<(), SessionError>) -> Result<(), SessionError> {
    match &ended {
        Ok(()) => entry.end(),
        Err(error) => entry.refuse(&error.to_string()),
    }
    ended
}

/// Takes part in a cast until it is over, with the object if this host is to be a source.
async fn take_part<R, W>(
    admission: Admission,
    held: Option<hold::Held>,
    endpoint: Endpoint,
    options: SessionOptions,
    entry: &Entry,
    reader: R,
    mut writer: W,
) -> Result<(), SessionError>
where
    R: AsyncRead + Send + Unpin + 'static,
    W: AsyncWrite + Send + Unpin + 'static,
{
    entry.admit(&admission);
    // It may have taken long to read what is to be cast.
    if let Some(why) = options.caller.as_ref().and_then(Caller::no_longer) {
        return unable(entry, why, &mut writer).await;
    }
    admission.terms.check(admission.node)?;
    let member = admission.terms.members[admission.node.index()];
    if (member.role == Role::Relay) != (admission.want == Want::Nothing) {
        let error = "admitted as a relay that wants something, or as a host that wants nothing";
        return Err(SessionError::Admission(error.into()));
    }
    if member.is_source() != held.is_some() {
        let error = "admitted as a source without having read one, or the other way round";
        return Err(SessionError::Admission(error.into()));
    }
    let id = &admission.manifest.id;
    let other = |held: &hold::Held| held.manifest.id().0 != *id;
    if !options.signers.is_empty() && held.as_ref().is_some_and(other) {
        return unable(entry, OTHER.to_owned(), &mut writer).await;
    }
    let signature = admission.signature.as_deref();
    if let Some(error) = unsigned(&options.signers, &admission.manifest.id, signature) {
        return unable(entry, error, &mut writer).await;
    }
    let (transfer, epoch) = (admission.transfer, admission.epoch);
    let operator = options.caller.as_ref();
    let operator = operator
        .map(|caller| caller.operator.name.clone())
        .unwrap_or_default();
    let epochs = options.epochs.clone();
    if let Err(error) = epochs.raised(&operator, transfer, epoch).await {
        return unable(entry, error.to_string(), &mut writer).await;
    }
    let mut held = held;
    let memory = match room(&admission, held.as_mut(), options.caller.as_ref()).await {
        Ok(memory) => memory,
        Err(full) => return unable(entry, full.to_string(), &mut writer).await,
    };
    let (order_tx, mut order_rx) = mpsc::channel::<Given>(CHANNEL);
    let revoked = Arc::<OnceLock<String>>::default();
    // Ends with this function, whichever way that goes.
    let mut hearing = JoinSet::new();
    let (caller, why) = (options.caller.clone(), revoked.clone());
    let hear = hear(
        reader,
        order_tx.clone(),
        (operator, transfer, epoch),
        options.epochs.clone(),
    );
    hearing.spawn(async move {
        let until_revoked = async {
            match &caller {
                Some(caller) => caller.until_revoked().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = hear => {}
            farewell = until_revoked => {
                let _ = why.set(farewell);
                let _ = order_tx.send(last(epoch)).await;
            }
        }
    });
    let refused = Arc::new(AtomicBool::new(false));
    let part = match held {
        Some(held) => Part::Source {
            manifest: Arc::new(held.manifest),
            source: held.source,
        },
        None => {
            let claim = seat::take(&admission, &options, entry, &mut writer, &mut order_rx);
            let Some(claim) = claim.await? else {
                return left(&revoked);
            };
            receiver(&admission, claim, refused.clone())
        }
    };
    let cast = SessionId(admission.cast);
    let config = session_config(cast, admission.node, admission.priority, &admission.terms);
    let (session, events) = match endpoint.session(&config) {
        Ok(session) => session,
        Err(error) => return unable(entry, error.to_string(), &mut writer).await,
    };
    let addrs = own_addrs(endpoint.local_addr());
    write_frame(&mut writer, &AgentSays::Joined { addrs }).await?;

    let config = configure(admission, options, part, memory)?;
    entry.accept();
    let (report_tx, report_rx) = mailbox();
    let speaker = Speaker {
        entry: entry.clone(),
        refused,
        revoked: revoked.clone(),
    };
    let speaking = tokio::spawn(speaker.speak(writer, report_rx));
    let outcome = Node::new(config, session, report_tx)
        .run(order_rx, events)
        .await;
    hearing.abort_all();
    // The command may have stopped listening without closing the channel.
    let _ = timeout(Duration::from_secs(1), speaking).await;
    match outcome {
        Outcome::Finished => left(&revoked),
        Outcome::Orphaned { have, blocks } if blocks > 0 && have == blocks => Ok(()),
        Outcome::Orphaned { have, blocks } => Err(SessionError::Orphaned { have, blocks }),
    }
}

/// Memory for a part, of which a source has some already; waits for it for a while.
///
/// # Errors
/// If there is no room.
async fn room(
    admission: &Admission,
    held: Option<&mut hold::Held>,
    caller: Option<&Caller>,
) -> Result<Memory, NoRoom> {
    if let Some(held) = held {
        let needs = needs::of_source(&admission.terms, &held.manifest);
        held.memory.grow_by(needs)?;
        return Ok(std::mem::take(&mut held.memory));
    }
    match caller {
        Some(caller) => caller.memory(needs::admitted(admission)).await,
        None => Ok(Memory::default()),
    }
}

/// Passes on the orders of the coordinators that this agent obeys, until the channel ends.
async fn hear(
    mut reader: impl AsyncRead + Unpin,
    orders: mpsc::Sender<Given>,
    (operator, transfer, epoch): (String, TransferName, u64),
    epochs: Arc<Epochs>,
) {
    let mut obedience = Obedience::new(transfer, epoch);
    while let Ok(said) = read_frame(&mut reader).await {
        let given = match said {
            CommandSays::Order { transfer, given } => {
                let stamp = given.stamp;
                if let Err(error) = obedience.admit(transfer, stamp) {
                    tracing::warn!(%error, "an order is refused");
                    continue;
                }
                // Another session of this host may have heard of a later coordinator.
                let raised = epochs.clone().raised(&operator, transfer, stamp.epoch);
                if let Err(error) = raised.await {
                    tracing::warn!(%error, "an order is refused");
                    continue;
                }
                given
            }
            CommandSays::Dismiss => last(epoch),
            _ => break,
        };
        if orders.send(given).await.is_err() {
            break;
        }
    }
}

/// The order after which there is none.
const fn last(epoch: u64) -> Given {
    Given {
        stamp: Stamp::last(epoch),
        order: Order::Finish,
    }
}

/// How a part ends that was told to leave: well, unless it was because the operator was revoked.
fn left(revoked: &OnceLock<String>) -> Result<(), SessionError> {
    match revoked.get() {
        Some(why) => Err(SessionError::Revoked(why.clone())),
        None => Ok(()),
    }
}

/// Why a manifest is not one that somebody signed whose signature counts; `None` if it is, or if none
/// is asked for.
fn unsigned(
    signers: &[PublicKey],
    manifest: &[u8; 32],
    signature: Option<&[u8]>,
) -> Option<String> {
    const ONLY: &str = "this host takes only objects that its owner's signers have signed";
    match signature {
        _ if signers.is_empty() => None,
        None => Some(format!("{ONLY}, and this one is not signed")),
        Some(signature) => {
            let signed = |signer: &PublicKey| signer.has_signed(manifest, signature);
            let why = "; this signature is another's, or of another object";
            (!signers.iter().any(signed)).then(|| format!("{ONLY}{why}"))
        }
    }
}

/// Says why this host takes no part.
async fn unable(
    entry: &Entry,
    error: String,
    writer: &mut (impl AsyncWrite + Unpin),
) -> Result<(), SessionError> {
    entry.refuse(&error);
    Ok(write_frame(writer, &AgentSays::Unable { error }).await?)
}

/// Says at the control channel what a node has to report.
struct Speaker {
    entry: Entry,
    /// Whether the destination was refused: then that is why the node has failed.
    refused: Arc<AtomicBool>,
    /// Why the operator does not count any more.
    revoked: Arc<OnceLock<String>>,
}

impl Speaker {
    async fn speak(
        self,
        mut writer: impl AsyncWrite + Unpin,
        mut reports: mailbox::Receiver<Report>,
    ) {
        let (mut heard, mut complete) = (true, false);
        while let Some(report) = reports.recv().await {
            let report = match report {
                Report::Failed { error } if self.refused.load(Ordering::Relaxed) => {
                    Report::Refused { error }
                }
                report => report,
            };
            self.entry.report(&report);
            complete |= matches!(report, Report::Complete { .. });
            let says = AgentSays::Report(report);
            // What comes of the part is written down though the command has gone.
            heard = heard && write_frame(&mut writer, &says).await.is_ok();
        }
        if let Some(why) = self.revoked.get().filter(|_| !complete) {
            let error = why.clone();
            let says = AgentSays::Report(Report::Failed { error });
            // The command may have gone.
            let _ = write_frame(&mut writer, &says).await;
        }
    }
}

/// The part of an agent that is to get the object, in a destination that it has claimed.
fn receiver(admission: &Admission, claim: Claim, refused: Arc<AtomicBool>) -> Part {
    let work = Arc::new(Work::default());
    let settings = DestinationOptions {
        work: work.clone(),
        verify_after: admission.verify_after,
        keep: match admission.want {
            Want::All => Keep::Files,
            Want::Blocks(_) => Keep::Blocks,
            Want::Nothing => Keep::Nothing,
        },
        ..DestinationOptions::default()
    };
    let open = move |manifest: Arc<Manifest>| {
        let opened = seat::open(claim, manifest, settings);
        opened.map_err(|error| {
            refused.store(error.is_locked(), Ordering::Relaxed);
            error.to_string()
        })
    };
    Part::Receiver {
        open: Box::new(open),
        work,
    }
}

fn configure(
    admission: Admission,
    options: SessionOptions,
    part: Part,
    memory: Memory,
) -> Result<NodeConfig, SessionError> {
    let nonsense = || SessionError::Admission("the offered manifest contradicts itself".into());
    // It is cast unless every agent gets it with its admission; sources take part in that.
    let fetches_manifest = admission.manifest.inline.is_none();
    let manifest = match &part {
        Part::Source { manifest, .. } if manifest.id().0 == admission.manifest.id => {
            Blob::whole(admission.manifest, manifest.encode())
        }
        _ => Blob::offered(admission.manifest).ok_or_else(nonsense)?,
    };
    Ok(NodeConfig {
        me: admission.node,
        want: admission.want,
        fetches_manifest,
        terms: Arc::new(admission.terms),
        manifest,
        part,
        wrap: options.wrap,
        memory,
    })
}

/// The addresses under which a data plane that listens on `local` may be reached, best first.
pub(crate) fn own_addrs(local: SocketAddr) -> Vec<SocketAddr> {
    if !local.ip().is_unspecified() {
        return vec![local];
    }
    let mut ips: Vec<IpAddr> = if_addrs::get_if_addrs()
        .unwrap_or_default()
        .into_iter()
        .map(|interface| interface.ip())
        // Link-local addresses mean nothing without their interface.
        .filter(|ip| !matches!(ip, IpAddr::V6(v6) if v6.is_unicast_link_local()))
        .filter(|ip| local.is_ipv6() || ip.is_ipv4())
        .collect();
    // Loopback last: right for a cast within one host, refused at once elsewhere.
    ips.sort_by_key(IpAddr::is_loopback);
    ips.into_iter()
        .take(ADDRESSES_MAX)
        .map(|ip| SocketAddr::new(ip, local.port()))
        .collect()
}
