//! What a cast would come to: its terms, what each host lacks and whether it can take that, the least
//! time. Nothing is moved, and nothing is changed at any host.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

use outpour_core::NodeId;
use outpour_protocols::Role;
use tokio::sync::watch;

use super::attempt::Calls;
use super::channel::{Answer, Invitation};
use super::{Cast, CastError, CastRequest, check, prepare};
use crate::launch::Launcher;
use crate::view::{CastView, DryRelay, DryRun, DrySource, HostLook, Phase};

/// Asks every host of a cast what it has of the object, and whether it could take the rest.
///
/// # Errors
/// If the source cannot be read or the request makes no sense; what is wrong with single hosts is in
/// the result.
pub async fn dry_run(
    request: CastRequest,
    launcher: Arc<dyn Launcher>,
    view: watch::Sender<CastView>,
    mut cancel: watch::Receiver<bool>,
) -> Result<DryRun, CastError> {
    let looking = ask(&request, launcher, &view);
    tokio::select! {
        looked = looking => looked,
        Ok(_) = cancel.wait_for(|cancelled| *cancelled) => Err(CastError::Interrupted),
    }
}

async fn ask(
    request: &CastRequest,
    launcher: Arc<dyn Launcher>,
    view: &watch::Sender<CastView>,
) -> Result<DryRun, CastError> {
    check(request)?;
    let started = Instant::now();
    let mut calls = Calls::start(&launcher, request);
    calls.wants_manifest = true;
    let prepared = prepare::prepare(request, &mut calls, view, started).await?;
    let encoded = match (&prepared.source, prepared.encoded) {
        (Some(source), _) => source.manifest().encode(),
        (None, encoded) => encoded,
    };
    let why = prepared.decision.explain(&request.asked);
    let cast = Cast::new(
        request,
        prepared.decision.terms,
        why,
        prepared.object,
        started,
    )?;
    view.send_modify(|view| view.phase = Phase::Starting);
    let members = request.members();
    let mut answers: BTreeMap<NodeId, Answer> = BTreeMap::new();
    let agents = members.len() - request.first_agent() as usize;
    calls.invite(Invitation {
        look: Some(Arc::new(encoded)),
        ..cast.invitation(request)?
    });
    while answers.len() < agents {
        let Some(heard) = calls.hearing.next().await else {
            break;
        };
        answers.extend(heard.into_answer());
    }
    calls.end().await;
    Ok(conclude(&cast, request, &answers))
}

fn conclude(cast: &Cast, request: &CastRequest, answers: &BTreeMap<NodeId, Answer>) -> DryRun {
    let size = cast.object.size;
    let (mut sources, mut relays, mut hosts) = (Vec::new(), Vec::new(), Vec::new());
    let nodes = (0..)
        .map(NodeId)
        .zip(cast.names.iter().zip(request.members()));
    for (node, (name, member)) in nodes {
        let here = node.0 < request.first_agent();
        let answer = answers.get(&node);
        let (have, error) = match answer {
            Some(Answer::Has(bytes, unable)) => (Some(*bytes), unable.clone()),
            Some(Answer::Lost(error)) => (None, Some(error.clone())),
            None if here => (Some(size), None),
            None => (None, Some("it did not answer".to_owned())),
        };
        match member.role {
            Role::Source => sources.push(DrySource {
                source: name.clone(),
                error,
            }),
            Role::Receiver => hosts.push(HostLook {
                host: name.clone(),
                have_bytes: have,
                lacks_bytes: have.map(|have| size.saturating_sub(have)),
                error,
            }),
            Role::Relay => relays.push(DryRelay {
                relay: name.clone(),
                error,
            }),
        }
    }
    DryRun {
        protocol: cast.terms.protocol.entry().name.to_owned(),
        why: cast.why.clone(),
        object: cast.id().to_string(),
        size_bytes: size,
        blocks: cast.object.blocks,
        block_bytes: cast.terms.block_bytes,
        limit_s: cast.limit_s,
        sources,
        relays,
        hosts,
    }
}
