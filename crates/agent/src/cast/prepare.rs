//! What is done before anything can move: the source is looked at, the terms are decided on, and
//! the source is hashed.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use outpour_core::manifest::{BlockSize, Manifest};
use outpour_core::{Bytes, Rate};
use outpour_net::SessionId;
use outpour_store::{Attributes, BuildOptions, Source, Survey};
use outpour_terms::{Decision, Facts, TermsError, may_code};
use tokio::sync::watch;

use super::attempt::{Calls, Said};
use super::channel::HashOrder;
use super::{Cast, CastError, CastRequest, Origin, VIEW};
use crate::coded::speed;
use crate::control::Described;
use crate::session::hold::describe;
use crate::view::{CastView, Phase};

/// Everything about a cast that can be known before its agents are there.
pub(super) struct Prepared {
    pub(super) decision: Decision,
    pub(super) object: Described,
    /// The object, if it is here.
    pub(super) source: Option<Source>,
    /// Its manifest, if the object is elsewhere and that was asked for.
    pub(super) encoded: Vec<u8>,
}

/// Looks at the source, decides, and has it read by all that have it.
pub(super) async fn prepare(
    request: &CastRequest,
    calls: &mut Calls,
    view: &watch::Sender<CastView>,
    started: Instant,
) -> Result<Prepared, CastError> {
    let seed = u64::from_le_bytes(*SessionId::random()?.0.first_chunk().unwrap_or(&[0; 8]));
    let Origin::Here(paths) = &request.origin else {
        return elsewhere(request, calls, seed, view, started).await;
    };
    let (asked, paths, order) = (request.clone(), paths.clone(), calls.hash.clone());
    let work = move |hashed: &AtomicU64| {
        let survey = survey(&paths, asked.archive)?;
        let decision = outpour_terms::decide(&facts(&asked, survey.size(), seed))?;
        let terms = &decision.terms;
        order.send_replace(Some(HashOrder::of(terms, false)));
        let (manifest, source) = hash(survey, terms.block_bytes, hashed)?;
        let object = describe(&manifest, &manifest.encode(), terms.receivers());
        check_batches(&decision, &object)?;
        Ok(Prepared {
            decision,
            object,
            source: Some(source),
            encoded: Vec::new(),
        })
    };
    watched(request, view, started, work).await
}

/// Has the source read once more, if it was given away or is elsewhere.
pub(super) async fn again(
    request: &CastRequest,
    calls: &mut Calls,
    cast: &Cast,
    source: Option<Source>,
    view: &watch::Sender<CastView>,
) -> Result<Option<Source>, CastError> {
    let order = HashOrder::of(&cast.terms, calls.wants_manifest);
    calls.hash.send_replace(Some(order));
    let paths = match (&request.origin, source) {
        (Origin::Host(_), _) => return unchanged(request, calls, cast).await.map(|()| None),
        (Origin::Here(_), Some(source)) => return Ok(Some(source)),
        (Origin::Here(paths), None) => paths.clone(),
    };
    let (block_bytes, archive) = (cast.terms.block_bytes, request.archive);
    let work = move |hashed: &AtomicU64| {
        let (_, source) = hash(survey(&paths, archive)?, block_bytes, hashed)?;
        Ok(Some(source))
    };
    watched(request, view, cast.started, work).await
}

/// Waits until some source on another host has read what is cast.
async fn unchanged(request: &CastRequest, calls: &mut Calls, cast: &Cast) -> Result<(), CastError> {
    let mut lost: Vec<Option<String>> = vec![None; request.sources()];
    while lost.iter().any(Option::is_none) {
        let (node, said) = calls.source(lost.len()).await?;
        lost[node.index()] = match said {
            Said::Hashed(object, _) if object.content == cast.object.content => return Ok(()),
            Said::Hashed(..) => Some("the source has changed".to_owned()),
            Said::Lost(error) => Some(error),
            Said::Surveyed(_) | Said::Hashing(_) => continue,
        };
    }
    Err(unreadable(request, lost.into_iter().flatten()))
}

/// Why there is nothing to cast: of every source what is wrong with it.
fn unreadable(request: &CastRequest, errors: impl Iterator<Item = String>) -> CastError {
    let mut all: Vec<(String, String)> = request.names().into_iter().zip(errors).collect();
    match all.pop() {
        Some((host, error)) if all.is_empty() => CastError::Origin { host, error },
        last => {
            all.extend(last);
            let all = all
                .into_iter()
                .map(|(host, error)| format!("{host}: {error}"));
            CastError::Sources(all.collect::<Vec<_>>().join("; "))
        }
    }
}

/// What is known of a source on another host before the cast begins.
#[derive(Default)]
struct Candidate {
    size: Option<u64>,
    hashed: u64,
    /// What it has, with its manifest if that was asked for.
    object: Option<(Box<Described>, Vec<u8>)>,
    /// Why it is left out.
    lost: Option<String>,
}

impl Candidate {
    fn note(&mut self, said: Said) {
        match said {
            Said::Surveyed(size) => self.size = Some(size),
            Said::Hashing(bytes) => self.hashed = bytes,
            Said::Hashed(object, manifest) => self.object = Some((object, manifest)),
            Said::Lost(error) => self.lost = Some(error),
        }
    }
}

/// The same where the object is on other hosts. The first of them that can be read says what it is.
async fn elsewhere(
    request: &CastRequest,
    calls: &mut Calls,
    seed: u64,
    view: &watch::Sender<CastView>,
    started: Instant,
) -> Result<Prepared, CastError> {
    let mut all = Vec::new();
    all.resize_with(request.sources(), Candidate::default);
    let mut decided: Option<(u64, Decision)> = None;
    loop {
        let Some(first) = all.iter_mut().find(|source| source.lost.is_none()) else {
            let errors = all.into_iter().filter_map(|source| source.lost);
            return Err(unreadable(request, errors));
        };
        let size = first.size;
        let of = decided.as_ref().map(|(size, _)| *size);
        if let Some(size) = size.filter(|size| of != Some(*size)) {
            let mut asked = request.clone();
            // Blocks stay as they are: the others have begun to read.
            let earlier = decided.as_ref().map(|(_, it)| it.terms.block_bytes);
            asked.asked.block_bytes = earlier.or(asked.asked.block_bytes);
            // To plan takes a while.
            let deciding = tokio::task::spawn_blocking(move || {
                outpour_terms::decide(&facts(&asked, Bytes(size), seed))
            });
            let deciding = deciding.await;
            let decision = deciding.map_err(|panic| CastError::Request(panic.to_string()))??;
            if earlier.is_none() {
                let order = HashOrder::of(&decision.terms, calls.wants_manifest);
                calls.hash.send_replace(Some(order));
            }
            decided = Some((size, decision));
        } else if let (Some((object, encoded)), Some((_, decision))) =
            (first.object.take(), &decided)
        {
            check_batches(decision, &object)?;
            return Ok(Prepared {
                decision: decision.clone(),
                object: *object,
                source: None,
                encoded,
            });
        } else {
            if size.is_some() {
                let bytes = first.hashed;
                view.send_modify(|view| {
                    view.phase = Phase::Hashing;
                    view.hashed_bytes = bytes;
                    view.elapsed = started.elapsed();
                });
            }
            let (node, said) = calls.source(request.sources()).await?;
            all[node.index()].note(said);
        }
    }
}

/// Refuses batches that would take too much, by the blocks that there are: a tree may have more than
/// its size says.
fn check_batches(decision: &Decision, object: &Described) -> Result<(), TermsError> {
    let terms = &decision.terms;
    terms.batches(object.blocks, terms.block_bytes).map(drop)
}

/// What is at a source; several make one tree.
fn survey(paths: &[PathBuf], archive: bool) -> Result<Survey, outpour_store::Error> {
    let keep = Attributes::if_archive(archive);
    match paths {
        [path] => Survey::of(path, keep),
        paths => Survey::of_several(paths, keep),
    }
}

fn hash(
    survey: Survey,
    block_bytes: u32,
    hashed: &AtomicU64,
) -> Result<(Manifest, Source), CastError> {
    let options = BuildOptions {
        block: BlockSize::Given(block_bytes),
        ..BuildOptions::default()
    };
    let count = |bytes| {
        hashed.fetch_add(bytes, Ordering::Relaxed);
    };
    Ok(survey.hash(&options, &count)?)
}

/// What is known of a cast of so many bytes; `seed` was drawn at random.
pub fn facts(request: &CastRequest, size: Bytes, seed: u64) -> Facts {
    let mut facts = Facts {
        size,
        members: request.members(),
        placement: request.placement.clone(),
        coding_speed: Rate::UNLIMITED,
        seed,
        asked: request.asked.clone(),
    };
    // The processor is looked at only if that matters.
    if may_code(request.asked.protocol) && !facts.fastest().is_unlimited() {
        facts.coding_speed = speed::rate();
    }
    facts
}

/// Does work on the source that says how many bytes it has hashed, and says so in the view.
async fn watched<T: Send + 'static>(
    request: &CastRequest,
    view: &watch::Sender<CastView>,
    started: Instant,
    work: impl FnOnce(&AtomicU64) -> Result<T, CastError> + Send + 'static,
) -> Result<T, CastError> {
    let hashed = Arc::new(AtomicU64::new(0));
    let counter = hashed.clone();
    let mut done = tokio::task::spawn_blocking(move || work(&counter));
    let mut tick = tokio::time::interval(VIEW);
    // Turns are counted, so that a time in which the command itself stood still does not count.
    tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let (mut before, mut idle) = (0, Duration::ZERO);
    loop {
        tokio::select! {
            done = &mut done => {
                return done.map_err(|panic| CastError::Request(panic.to_string()))?;
            }
            _ = tick.tick() => {
                let bytes = hashed.load(Ordering::Relaxed);
                // Until the first byte a tree is walked, and nothing says how far that is.
                idle = if bytes == 0 || bytes > before { Duration::ZERO } else { idle + VIEW };
                before = bytes;
                if idle >= request.patience {
                    let path = match &request.origin {
                        Origin::Here(paths) => paths.first(),
                        Origin::Host(host) => Some(&host.path),
                    };
                    let path = path.cloned().unwrap_or_default();
                    return Err(CastError::Hung { path, idle });
                }
                view.send_modify(|view| {
                    view.phase = Phase::Hashing;
                    view.hashed_bytes = bytes;
                    view.elapsed = started.elapsed();
                });
            }
        }
    }
}
