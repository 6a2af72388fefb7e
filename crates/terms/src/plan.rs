//! The plan of a cast: made by the planner, or brought by the user, for protocols that execute one.

use outpour_core::{NodeId, Plan};
use outpour_planner::multicast::{self, Method};
use outpour_protocols::registry::{Entry, PlanFrom};
use outpour_protocols::{Member, tree};

use crate::auto::Paths;
use crate::error::{DecideError, TermsError};
use crate::placement::Placement;
use crate::{Asked, Facts};

/// How long an encoded plan may be.
pub const PLAN_BYTES_MAX: usize = 8 << 20;

/// Refuses a protocol for which there is no plan or a superfluous one, or no network to plan on.
///
/// # Errors
/// If it is so.
pub fn check_plan(entry: &Entry, has_plan: bool, has_network: bool) -> Result<(), DecideError> {
    let protocol = entry.name;
    match entry.plan {
        PlanFrom::Nowhere | PlanFrom::Method(_) | PlanFrom::Network { .. } if has_plan => {
            Err(DecideError::UnwantedPlan { protocol })
        }
        PlanFrom::Method(_) | PlanFrom::Network { .. } if !has_network => {
            Err(DecideError::NoNetwork { protocol })
        }
        PlanFrom::User if !has_plan => Err(DecideError::NoPlan { protocol }),
        _ => Ok(()),
    }
}

/// Refuses what a protocol cannot do that was named: take relays, or code.
///
/// # Errors
/// If it is asked to.
pub fn check_asked(asked: &Asked, has_relays: bool) -> Result<(), DecideError> {
    if let Some(rule) = asked.separation {
        rule.checked()?;
    }
    let planned = asked.plan.is_some().then_some(&tree::TREE);
    let Some(entry) = asked.protocol.or(planned) else {
        return Ok(());
    };
    let protocol = entry.name;
    if asked.separation.is_some() && !entry.separates() {
        return Err(DecideError::Separation { protocol });
    }
    if has_relays && !entry.selective {
        return Err(DecideError::Relays { protocol });
    }
    let coding = [
        ("--batch-blocks", asked.batch_blocks.is_some()),
        ("--encoders", asked.encoders != Asked::default().encoders),
    ];
    match coding.into_iter().find(|(_, given)| *given) {
        Some((option, _)) if entry.coding.is_none() => {
            Err(DecideError::Uncoded { protocol, option })
        }
        _ => Ok(()),
    }
}

/// The plan for a protocol, if it executes one, and something about it that a person should read.
pub(crate) fn make(
    entry: &Entry,
    facts: &Facts,
) -> Result<(Option<Plan>, Option<String>), DecideError> {
    let (plan, notice) = match (entry.plan, &facts.placement) {
        (PlanFrom::Network { first, .. }, Some(placement)) => {
            let plan = first.filter(|_| is_sure(entry, facts)).and_then(|method| {
                let (plan, fallback) = by_planner(placement, &facts.members, method).ok()?;
                fallback.is_none().then_some(plan)
            });
            let fits = |plan: &Plan| bytes(plan) <= PLAN_BYTES_MAX;
            let plan = plan.filter(|plan| fits(plan) && !plan.throughput().is_unlimited());
            return Ok((plan, None));
        }
        (PlanFrom::Nowhere | PlanFrom::Network { .. }, _) => return Ok((None, None)),
        (PlanFrom::Method(method), Some(placement)) => {
            by_planner(placement, &facts.members, method)?
        }
        (PlanFrom::Method(_), None) => {
            let protocol = entry.name;
            return Err(DecideError::NoNetwork { protocol });
        }
        (PlanFrom::User, _) => {
            let protocol = entry.name;
            let plan = facts.asked.plan.clone();
            (plan.ok_or(DecideError::NoPlan { protocol })?, None)
        }
    };
    check_agreed(entry, Some(&plan), &facts.members)?;
    let bytes = bytes(&plan);
    if bytes > PLAN_BYTES_MAX {
        return Err(DecideError::LargePlan {
            trees: plan.trees.len(),
            members: facts.members.len(),
            bytes,
        });
    }
    Ok((Some(plan), notice))
}

/// How long a plan is, encoded.
fn bytes(plan: &Plan) -> usize {
    postcard::to_stdvec(plan).map_or(usize::MAX, |bytes| bytes.len())
}

/// Whether a plan is likely to hold, so that a protocol which could do without begins with it: cards are the
/// limit, which do not change, no packets are lost, and all want everything.
fn is_sure(entry: &Entry, facts: &Facts) -> bool {
    let network = facts.placement.as_ref().map(Placement::network);
    let holds = |paths: Paths| paths.links.is_none() && !paths.lossy;
    let named = facts
        .asked
        .options
        .iter()
        .any(|(name, _)| *name == entry.name);
    // Who brings options may describe another network than that of the plan.
    // What moves by a plan leaves no room to others.
    !named
        && facts.asked.separation.is_none()
        && !facts.has_relays()
        && facts.receivers() > 1
        && network.map(Paths::of).is_some_and(holds)
}

fn by_planner(
    placement: &Placement,
    members: &[Member],
    method: &str,
) -> Result<(Plan, Option<String>), DecideError> {
    let method: Method = method.parse()?;
    let planned = multicast::plan(placement.network(), &placement.sources(members), method)?;
    Ok((placement.to_members(&planned.plan), planned.fallback))
}

/// Checks that a plan is one for this protocol and these members.
pub(crate) fn check_agreed(
    entry: &Entry,
    plan: Option<&Plan>,
    members: &[Member],
) -> Result<(), TermsError> {
    let (protocol, with) = (entry.name, plan.is_some());
    if with != entry.plan.is_made_before() && !(with && entry.plan.may_be_made_before()) {
        return Err(TermsError::Planned { protocol, with });
    }
    let Some(plan) = plan else {
        return Ok(());
    };
    plan.check(u32::try_from(members.len()).unwrap_or(u32::MAX))?;
    let is_source = |node: &NodeId| members.get(node.index()).is_some_and(|it| it.is_source());
    if let Some(root) = plan.roots.iter().find(|root| !is_source(root)) {
        return Err(TermsError::Root { root: *root });
    }
    let mut nodes = (0..members.len() as u32).map(NodeId);
    match nodes.find(|node| is_source(node) && !plan.roots.contains(node)) {
        Some(source_node) => Err(TermsError::NoRoot { source_node }),
        None => Ok(()),
    }
}

/// A plan on the wire; nodes share it in memory.
pub(crate) mod shared {
    use std::sync::Arc;

    use outpour_core::Plan;
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    pub(crate) fn serialize<S: Serializer>(
        plan: &Option<Arc<Plan>>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        plan.as_deref().serialize(serializer)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Option<Arc<Plan>>, D::Error> {
        let plan = Option::<Plan>::deserialize(deserializer)?;
        Ok(plan.map(Arc::new))
    }
}
