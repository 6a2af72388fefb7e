//! The plan that a simulated cast executes.

use std::sync::Arc;

use outpour_core::Plan;
use outpour_core::network::{ClusterId, Network};
use outpour_planner::multicast::{self, Method};
use outpour_protocols::registry::{Entry, PlanFrom};

use super::{CastConfig, CastError};

/// The plan for the protocol, checked; `at_start` is the network when the cast begins.
pub(super) fn plan(
    config: &CastConfig,
    at_start: &Network,
    protocol: &'static Entry,
) -> Result<Option<Arc<Plan>>, CastError> {
    let believed = config.believed.as_ref().unwrap_or(at_start);
    check_same_nodes(at_start, believed)?;
    let plan = match (protocol.plan, &config.plan) {
        (PlanFrom::Nowhere, None) => return Ok(None),
        (PlanFrom::Nowhere | PlanFrom::Method(_), Some(_)) => {
            let protocol = protocol.name;
            return Err(CastError::UnwantedPlan { protocol });
        }
        (PlanFrom::Method(method), None) => by_method(config, believed, method)?,
        (PlanFrom::User, None) => {
            let protocol = protocol.name;
            return Err(CastError::NoPlan { protocol });
        }
        (PlanFrom::User, Some(plan)) => plan.clone(),
    };
    plan.check(at_start.node_count())?;
    if plan.root != config.root {
        let (planned, root) = (at_start.name(plan.root), at_start.name(config.root));
        let (planned, root) = (planned.to_owned(), root.to_owned());
        return Err(CastError::OtherRoot { planned, root });
    }
    Ok(Some(Arc::new(plan)))
}

fn by_method(config: &CastConfig, believed: &Network, method: &str) -> Result<Plan, CastError> {
    let method: Method = method.parse().map_err(CastError::Method)?;
    Ok(multicast::plan(believed, config.root, method)?.plan)
}

/// Who plans on another network has to mean the same nodes by the same numbers.
fn check_same_nodes(network: &Network, believed: &Network) -> Result<(), CastError> {
    let names = |network: &Network, cluster: usize| -> Vec<String> {
        let nodes = network.nodes_of(ClusterId(cluster as u32));
        nodes.map(|node| network.name(node).to_owned()).collect()
    };
    let (here, there) = (network.clusters(), believed.clusters());
    if here.len() != there.len() {
        let (here, there) = (here.len(), there.len());
        return Err(CastError::OtherNetwork(format!(
            "{there} clusters instead of {here}"
        )));
    }
    for (index, (one, other)) in here.iter().zip(there).enumerate() {
        if one.name != other.name || names(network, index) != names(believed, index) {
            let (one, other) = (&one.name, &other.name);
            let what =
                format!("cluster {index} is `{one}` here and `{other}` there, or its nodes differ");
            return Err(CastError::OtherNetwork(what));
        }
    }
    Ok(())
}
