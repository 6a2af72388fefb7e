//! `auto`: choosing a protocol when the user named none, and saying why.

use crate::registry::{self, Entry};

/// What is known before a cast begins.
#[derive(Clone, Copy, Debug)]
pub struct Situation {
    /// How many nodes are to receive.
    pub receivers: usize,
    /// How many blocks the object has.
    pub blocks: u32,
    /// Whether every node was given the same limit.
    pub same_limit: bool,
    /// How many clusters the nodes are in, the source's included.
    pub clusters: usize,
    /// Whether the capacities of the network are known, so that a plan can be made.
    pub network: bool,
}

/// A protocol and the reason for it, as shown to the user.
#[derive(Clone, Debug)]
pub struct Choice {
    /// The protocol.
    pub entry: &'static Entry,
    /// Why, in one clause.
    pub why: String,
}

/// A line of so few nodes is not worth a mesh, whatever their rates.
const SHORT_LINE: usize = 3;
/// A chain takes one block time per hop longer than one copy; with this many blocks per hop that
/// is at most 2 %.
const BLOCKS_PER_HOP: u32 = 50;

/// Chooses the protocol that comes closest to the limit in this situation.
pub fn choose(situation: Situation) -> Choice {
    let Situation {
        receivers,
        blocks,
        same_limit,
        clusters,
        network,
    } = situation;
    if receivers > 1
        && clusters > 1
        && let Some(choice) = between_clusters(clusters, network)
    {
        return choice;
    }
    let long_enough = u64::from(blocks) >= receivers as u64 * u64::from(BLOCKS_PER_HOP);
    let (entry, why) = if receivers <= 1 {
        (&crate::direct::ENTRY, "one receiver needs no relay".into())
    } else if (receivers <= SHORT_LINE || same_limit) && long_enough {
        let hop_cost = 100.0 * receivers as f64 / f64::from(blocks);
        let alike = if same_limit {
            "all nodes have the same limit"
        } else {
            "few receivers"
        };
        (
            &crate::chain::ENTRY,
            format!("{alike}, and {receivers} hops add only {hop_cost:.1} %"),
        )
    } else if same_limit || receivers <= SHORT_LINE {
        let why = format!("{blocks} blocks are too few to fill a line of {receivers} hops");
        (&crate::swarm::ENTRY, why)
    } else {
        let why = "the nodes' rates may differ, and in a mesh a slow one holds up nobody".into();
        (&crate::swarm::ENTRY, why)
    };
    Choice { entry, why }
}

/// Chooses between clusters, where what passes twice costs most.
fn between_clusters(clusters: usize, network: bool) -> Option<Choice> {
    let (name, why) = if network {
        let why = format!("the network of the {clusters} clusters is known, so trees can fill it");
        ("optimal", why)
    } else {
        let why =
            format!("{clusters} clusters, each of which needs a block only once from outside");
        ("robber", why)
    };
    registry::find(name).map(|entry| Choice { entry, why })
}

/// The protocol called `name`, or a line saying which there are.
pub fn by_name(name: &str) -> Result<&'static Entry, String> {
    registry::find(name).ok_or_else(|| {
        let names: Vec<&str> = registry::ENTRIES.iter().map(|entry| entry.name).collect();
        format!(
            "there is no protocol `{name}`; there are {} and auto",
            names.join(", ")
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chosen(receivers: usize, blocks: u32, same_limit: bool) -> &'static str {
        choose(Situation {
            receivers,
            blocks,
            same_limit,
            clusters: 1,
            network: false,
        })
        .entry
        .name
    }

    #[test]
    fn the_choice_follows_what_is_known() {
        assert_eq!(chosen(1, 1000, false), "direct");
        assert_eq!(chosen(19, 1526, true), "chain");
        assert_eq!(chosen(19, 1526, false), "swarm");
        assert_eq!(chosen(3, 1526, false), "chain");
        assert_eq!(chosen(500, 1526, true), "swarm");
        assert_eq!(chosen(2, 3, true), "swarm");
    }

    #[test]
    fn an_unknown_name_lists_the_known_ones() {
        assert!(by_name("swarm").is_ok());
        let error = by_name("warp").err().unwrap_or_default();
        assert!(
            error.contains("`warp`") && error.contains("chain"),
            "{error}"
        );
    }
}
