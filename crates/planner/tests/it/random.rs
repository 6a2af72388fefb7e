//! Small networks with all there is: dead and unlimited links, clusters of several nodes with and
//! without an interconnect, limits of hosts, nodes that differ from their cluster's others.

use outpour_core::Rate;
use outpour_core::network::{Cluster, LinkRule, Members, Network, NodeRule};
use proptest::prelude::*;

fn any_rate() -> impl Strategy<Value = Rate> {
    prop_oneof![
        2 => Just(Rate::UNLIMITED),
        1 => Just(Rate::ZERO),
        8 => (1..40_u32).prop_map(|mb| Rate::from_bytes_per_s(f64::from(mb) * 0.5e6).unwrap()),
    ]
}

fn any_cluster() -> impl Strategy<Value = Cluster> {
    let rates = [any_rate(), any_rate(), any_rate(), any_rate(), any_rate()];
    (1..4_u32, rates, prop::bool::weighted(0.3)).prop_map(
        |(nodes, [node_out, node_in, cluster_out, cluster_in, local], interconnect)| Cluster {
            node_out,
            node_in,
            cluster_out,
            cluster_in,
            local,
            interconnect,
            ..Cluster::new("", Members::Count(nodes))
        },
    )
}

prop_compose! {
    /// Some clusters, partly copies of one another, and sparse or no links.
    pub(crate) fn any_network()(
        kinds in prop::collection::vec(any_cluster(), 1..3),
        picks in prop::collection::vec(any::<prop::sample::Index>(), 1..5),
        links in prop::collection::vec(
            (any::<[prop::sample::Index; 2]>(), any_rate(), any::<bool>()), 0..5),
        all in prop::option::of(any_rate()),
        slow in prop::option::of((any::<prop::sample::Index>(), any_rate(), any_rate())),
        limit in prop::option::weighted(0.3, any_rate()),
    ) -> Network {
        let clusters: Vec<Cluster> = (picks.iter().enumerate())
            .map(|(i, pick)| Cluster { name: format!("c{i}-"), ..pick.get(&kinds).clone() })
            .collect();
        let mut rules = Vec::new();
        let rule = |from: &str, to: &str, rate, both| LinkRule {
            from: from.to_owned(),
            to: to.to_owned(),
            rate: Some(rate),
            both,
            ..LinkRule::default()
        };
        if let Some(rate) = all {
            rules.push(rule("*", "*", rate, false));
            for ([from, to], rate, both) in links {
                let (from, to) = (from.get(&clusters), to.get(&clusters));
                if from.name != to.name {
                    rules.push(rule(&from.name, &to.name, rate, both));
                }
            }
        }
        let slow = slow.map(|(cluster, out, into)| {
            let cluster = cluster.get(&clusters);
            let alone = matches!(cluster.members, Members::Count(1));
            NodeRule {
                name: format!("{}{}", cluster.name, if alone { "" } else { "0" }),
                out: Some(out),
                into: Some(into),
            }
        });
        let network = Network::with_nodes(clusters, slow.into_iter().collect(), rules).unwrap();
        network.limited(limit.unwrap_or(Rate::UNLIMITED))
    }
}
