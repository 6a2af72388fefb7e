//! Where the object goes: the agent's claim to it, and what it does while another cast holds it.

use std::ffi::OsStr;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use outpour_core::NodeId;
use outpour_core::blocks::Want;
use outpour_core::manifest::{Manifest, ObjectId};
use outpour_protocols::coordinator::Given;
use outpour_store::{Claim, Destination, DestinationOptions, Error, Intent, Party, Roots, Shape};
use tokio::io::AsyncWrite;
use tokio::sync::mpsc;

use super::audit::Entry;
use super::{SessionError, SessionOptions, unable};
use crate::control::{Admission, AgentSays, write_frame};

/// How long the end of another cast is waited for. It is not long, as others wait with us.
const PATIENCE: Duration = Duration::from_secs(5);
/// The same for one of the same object: it may be an agent that was left alone by a command that
/// died, and the same command continues.
const OWN_PATIENCE: Duration = Duration::from_secs(15);
/// So much longer at most some casts wait than others. Of two that hold a part of the hosts each,
/// one is refused first, and the other gets what that one held.
const PATIENCE_SPREAD: Duration = Duration::from_secs(2);
/// A destination is claimed within this time, unless its disk is slow or hangs.
const CLAIM_USUAL: Duration = Duration::from_secs(1);
/// A holder that has not named itself after this time does not do so.
const NAMED_AFTER: Duration = Duration::from_millis(500);
/// A lock has no event to wait for. Pauses differ, so that two that met do not meet again.
const PAUSE_MIN: Duration = Duration::from_millis(100);
const PAUSE_MAX: Duration = Duration::from_millis(300);

/// What a claim takes, as often as it is tried.
#[derive(Clone)]
struct Request {
    path: PathBuf,
    roots: Option<Arc<Roots>>,
    intent: Intent,
    /// The manifest, if it came with the admission.
    manifest: Option<Arc<Manifest>>,
}

impl Request {
    fn new(admission: &Admission, options: &SessionOptions) -> Self {
        let inline = admission.manifest.inline.as_deref();
        // What is wrong with it is said when the object is put there.
        let manifest = inline.and_then(|encoded| Manifest::decode(encoded).ok());
        let mut path = PathBuf::from(OsStr::from_bytes(&admission.path));
        if admission.want == Want::Nothing {
            // A relay's is a directory, whatever the object is.
            path.push("");
        }
        Self {
            path,
            roots: options.roots.clone(),
            intent: Intent {
                object: ObjectId(admission.manifest.id),
                shape: match &admission.file_name {
                    Some(name) => Shape::File(name.clone()),
                    None => Shape::Tree,
                },
                label: admission.label.clone(),
                party: Some(Party {
                    cast: admission.cast,
                    node: admission.node.0,
                }),
            },
            manifest: manifest.map(Arc::new),
        }
    }

    fn claim(self) -> Result<Claim, Error> {
        let mut claim = Claim::take(&self.path, self.roots.as_deref(), self.intent)?;
        if let Some(manifest) = &self.manifest {
            claim.survey(manifest)?;
        }
        Ok(claim)
    }
}

/// Takes the destination of an admission; says so at once, and waits a while, if another cast holds
/// it. `None` if it cannot be had, which was said too, or if the command does not want it any more.
///
/// # Errors
/// If the control channel breaks.
pub(super) async fn take(
    admission: &Admission,
    options: &SessionOptions,
    entry: &Entry,
    writer: &mut (impl AsyncWrite + Unpin),
    orders: &mut mpsc::Receiver<Given>,
) -> Result<Option<Claim>, SessionError> {
    let request = Request::new(admission, options);
    let since = Instant::now();
    let spread = PATIENCE_SPREAD.mul_f64(f64::from(admission.cast[0]) / 256.0);
    let (mut told, mut slow) = (false, false);
    loop {
        let (attempt, place) = (request.clone(), options.place());
        // The disk may be busy with it longer than anybody waits.
        let mut claim = tokio::task::spawn_blocking(move || {
            let _place = place;
            attempt.claim()
        });
        let claimed = match tokio::time::timeout(CLAIM_USUAL, &mut claim).await {
            Ok(claimed) => claimed,
            Err(_) => {
                if !slow {
                    slow = true;
                    write_frame(writer, &AgentSays::Claiming).await?;
                }
                tokio::select! {
                    claimed = claim => claimed,
                    // Nothing can be ordered yet, but that it is over.
                    _ = orders.recv() => return Ok(None),
                }
            }
        };
        let error = match claimed {
            Ok(Ok(claim)) => return Ok(Some(claim)),
            Ok(Err(error)) => error,
            Err(panic) => return Err(SessionError::Admission(panic.to_string())),
        };
        if let Error::Twin { at, node, .. } = &error {
            entry.refuse(&error.to_string());
            let (node, relation) = (NodeId(*node), at.relation().to_owned());
            write_frame(writer, &AgentSays::Twin { node, relation }).await?;
            return Ok(None);
        }
        let Some(by) = error.conflict() else {
            unable(entry, error.to_string(), writer).await?;
            return Ok(None);
        };
        if since.elapsed() >= patience(&error, request.intent.object) + spread {
            let error = error.to_string();
            entry.refuse(&error);
            write_frame(writer, &AgentSays::Refused { error }).await?;
            return Ok(None);
        }
        // One that has just taken its lock is about to say which cast it is, perhaps this one.
        let named = error.locked_by().is_some_and(|by| by.object.is_some());
        if !told && (named || since.elapsed() >= NAMED_AFTER) {
            told = true;
            write_frame(writer, &AgentSays::Waiting { by }).await?;
        }
        tokio::select! {
            () = tokio::time::sleep(pause()) => {}
            // Nothing can be ordered yet, but that it is over.
            _ = orders.recv() => return Ok(None),
        }
    }
}

/// Prepares a destination for its object, waiting a while for the end of a cast to a part of it.
pub(super) fn open(
    mut claim: Claim,
    manifest: Arc<Manifest>,
    options: DestinationOptions,
) -> Result<Destination, Error> {
    let since = Instant::now();
    loop {
        match claim.survey(&manifest) {
            Err(error)
                if error.is_locked() && since.elapsed() < patience(&error, manifest.id()) =>
            {
                // The disk answers.
                options.work.add(1);
                std::thread::sleep(pause());
            }
            Err(error) => return Err(error),
            Ok(()) => return claim.open(manifest, options),
        }
    }
}

fn patience(error: &Error, object: ObjectId) -> Duration {
    let own = error
        .locked_by()
        .is_some_and(|by| by.object == Some(object));
    if own { OWN_PATIENCE } else { PATIENCE }
}

fn pause() -> Duration {
    between(PAUSE_MIN, PAUSE_MAX)
}

/// A time between two, at random.
pub(crate) fn between(least: Duration, most: Duration) -> Duration {
    // The standard library's seeds are as random as this has to be.
    let drawn = RandomState::new().build_hasher().finish() as f64 / u64::MAX as f64;
    least + most.saturating_sub(least).mul_f64(drawn.clamp(0.0, 1.0))
}
