//! What a planner believes the network to be, if that is not what it is.

use outpour_core::network::{ClusterId, Network};

use super::CastError;

/// A plan on another network has to mean the same nodes by the same numbers.
pub(super) fn check(network: &Network, believed: &Network) -> Result<(), CastError> {
    if std::ptr::eq(network, believed) {
        return Ok(());
    }
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
