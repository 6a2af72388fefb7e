//! The networks of the experiments, as descriptions and scripts that users could have written.

mod clusters;
mod gridlab;

use outpour_core::network::Network;
use outpour_core::script::Script;
use outpour_core::{Bytes, NodeId};

use crate::ExperimentError;

pub(crate) use clusters::{
    Das2, Scenario, Shares, Sizes, cards, continents, das2, four_clusters, four_das2, mixed_cards,
};
pub(crate) use gridlab::Gridlab;

/// Where one multicast takes place.
#[derive(Clone, Debug)]
pub(crate) struct Setting {
    /// The network when the multicast begins.
    pub(crate) network: Network,
    /// What planners take the network for, if they are wrong.
    pub(crate) believed: Option<Network>,
    /// The network for methods that need connections of both directions, if it differs.
    pub(crate) asked: Option<Network>,
    /// How the network changes.
    pub(crate) script: Option<Script>,
    /// The text of the script.
    pub(crate) text: Option<String>,
    /// Which node has the data.
    pub(crate) root: NodeId,
    /// How much.
    pub(crate) size: Bytes,
}

impl Setting {
    /// A multicast in a network described as `outpour cast --network` takes it.
    pub(crate) fn new(toml: &str, root: &str, size: Bytes) -> Result<Self, ExperimentError> {
        let network = Network::from_toml(toml, "network")?;
        let root = network
            .node(root)
            .ok_or_else(|| ExperimentError::Setup(format!("no node `{root}`")))?;
        Ok(Self {
            network,
            believed: None,
            asked: None,
            script: None,
            text: None,
            root,
            size,
        })
    }

    /// The same with a script, in the language of [Burger figure 4.15].
    pub(crate) fn changing(mut self, text: String) -> Result<Self, ExperimentError> {
        let script = Script::parse(&text, "script")?;
        self.network = script.network(Some(&self.network))?;
        self.script = Some(script);
        self.text = Some(text);
        Ok(self)
    }
}
