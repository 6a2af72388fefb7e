//! What is done before anything can move: the source is looked at, the terms are decided on, and
//! the source is hashed.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use outpour_core::manifest::{BlockSize, Manifest};
use outpour_core::{Bytes, Rate};
use outpour_net::CastId;
use outpour_protocols::Member;
use outpour_store::{BuildOptions, Source, Survey};
use outpour_terms::{Decision, Facts, may_code};
use tokio::sync::watch;

use super::{CastError, CastRequest, VIEW};
use crate::coded::speed;
use crate::view::{CastView, Phase};

/// Everything about a cast that can be known before its agents are there.
pub(super) struct Prepared {
    pub(super) decision: Decision,
    pub(super) manifest: Manifest,
    pub(super) source: Source,
}

/// Looks at the source, decides, and hashes.
pub(super) async fn prepare(
    request: &CastRequest,
    view: &watch::Sender<CastView>,
    started: Instant,
) -> Result<Prepared, CastError> {
    let asked = request.clone();
    let seed = u64::from_le_bytes(*CastId::random()?.0.first_chunk().unwrap_or(&[0; 8]));
    let work = move |hashed: &AtomicU64| {
        let survey = Survey::of(&asked.source)?;
        let decision = outpour_terms::decide(&facts(&asked, survey.size(), seed))?;
        let (manifest, source) = hash(survey, decision.terms.block_bytes, hashed)?;
        let terms = &decision.terms;
        // By the blocks that there are: a tree may have more than its size says.
        terms.batches(manifest.blocks(), manifest.block_bytes())?;
        Ok(Prepared {
            decision,
            manifest,
            source,
        })
    };
    watched(request, view, started, work).await
}

/// Hashes the source once more.
pub(super) async fn again(
    request: &CastRequest,
    block_bytes: u32,
    view: &watch::Sender<CastView>,
    started: Instant,
) -> Result<Source, CastError> {
    let path = request.source.clone();
    let work = move |hashed: &AtomicU64| {
        let (_, source) = hash(Survey::of(path)?, block_bytes, hashed)?;
        Ok(source)
    };
    watched(request, view, started, work).await
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
        members: members(request),
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

/// The members of a cast, node 0 is the source; in clusters as the network has it, or as the user
/// said.
pub(super) fn members(request: &CastRequest) -> Vec<Member> {
    let clusters = match &request.placement {
        Some(placement) => placement.clusters(),
        None => named_clusters(request),
    };
    let member = |(node, cluster)| Member {
        cluster,
        source: node == 0,
    };
    clusters.into_iter().enumerate().map(member).collect()
}

fn named_clusters(request: &CastRequest) -> Vec<u32> {
    let mut names: Vec<&str> = Vec::new();
    let mut clusters = vec![0];
    for host in &request.hosts {
        clusters.push(host.cluster.as_deref().map_or(0, |name| {
            let known = names.iter().position(|other| *other == name);
            known.unwrap_or_else(|| {
                names.push(name);
                names.len() - 1
            }) as u32
                + 1
        }));
    }
    clusters
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
                    let path = request.source.clone();
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
