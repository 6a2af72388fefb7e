//! The plan of a cast: made by the planner, or brought by the user, for protocols that execute one.

use std::sync::Arc;

use outpour_core::{NodeId, Plan};
use outpour_planner::multicast::{self, Method};
use outpour_protocols::registry::{Entry, PlanFrom};

use super::{CastError, CastRequest};
use crate::control::PLAN_BYTES_MAX;
use crate::placement::Placement;

/// What a protocol is given to execute.
#[derive(Default)]
pub(super) struct Planned {
    pub(super) plan: Option<Arc<Plan>>,
    /// Something about the plan that a person should read.
    pub(super) notice: Option<String>,
}

/// Refuses a protocol that the request does not have the plan for, before anything is started.
pub(super) fn check(entry: &Entry, request: &CastRequest) -> Result<(), CastError> {
    let name = entry.name;
    let line = match entry.plan {
        PlanFrom::Nowhere | PlanFrom::Method(_) if request.plan.is_some() => {
            format!("protocol `{name}` does not execute a plan from a file; `tree` does")
        }
        PlanFrom::Method(_) if request.placement.is_none() => {
            format!("protocol `{name}` plans on a network: describe it, and name it with --network")
        }
        PlanFrom::User if request.plan.is_none() => {
            format!("protocol `{name}` executes a plan: name the file with --plan")
        }
        _ => return Ok(()),
    };
    Err(CastError::Request(line))
}

/// Makes the plan; takes as long as the planner does.
pub(super) async fn make(
    entry: &'static Entry,
    request: &CastRequest,
) -> Result<Planned, CastError> {
    let (plan, notice) = match (entry.plan, &request.placement) {
        (PlanFrom::User, _) => (request.plan.clone(), None),
        (PlanFrom::Method(method), Some(placement)) => {
            let placement = placement.clone();
            let planning = tokio::task::spawn_blocking(move || by_planner(&placement, method));
            let planned = planning.await.map_err(|panic| panic.to_string());
            let (plan, notice) = planned.flatten().map_err(CastError::Request)?;
            (Some(plan), notice)
        }
        _ => (None, None),
    };
    let Some(plan) = plan else {
        return check(entry, request).map(|()| Planned::default());
    };
    fits(&plan, request.hosts.len() + 1).map_err(CastError::Request)?;
    let plan = Some(Arc::new(plan));
    Ok(Planned { plan, notice })
}

fn by_planner(placement: &Placement, method: &str) -> Result<(Plan, Option<String>), String> {
    let method: Method = method.parse().map_err(|error| format!("{error}"))?;
    let planned = multicast::plan(placement.network(), placement.root(), method)
        .map_err(|error| error.to_string())?;
    Ok((placement.to_members(&planned.plan), planned.fallback))
}

/// Checks what the agents will check, to say it once and here.
fn fits(plan: &Plan, members: usize) -> Result<(), String> {
    let nodes = u32::try_from(members).unwrap_or(u32::MAX);
    plan.check(nodes)
        .map_err(|error| format!("the plan cannot be executed: {error}"))?;
    if plan.root != NodeId(0) {
        return Err("the plan does not begin at the source".to_owned());
    }
    let bytes = postcard::to_stdvec(plan).map_or(usize::MAX, |bytes| bytes.len());
    if bytes > PLAN_BYTES_MAX {
        let trees = plan.trees.len();
        return Err(format!(
            "the plan of {trees} trees over {members} nodes takes {bytes} bytes; an agent accepts \
             {PLAN_BYTES_MAX}"
        ));
    }
    Ok(())
}
