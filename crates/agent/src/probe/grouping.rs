//! Clusters of hosts for which none was named: hosts as near to each other as on a local network.

use std::collections::VecDeque;
use std::time::Duration;

use outpour_core::NodeId;
use outpour_probe::fit::Site;

/// Hosts whose packets come back sooner share a cluster.
const NEAR: Duration = Duration::from_micros(3000);

/// Asks for round trips until every host has a cluster.
pub(super) struct Grouping {
    sites: Vec<Site>,
    /// Hosts without a cluster, and how many clusters they were compared with.
    open: VecDeque<(NodeId, String)>,
    compared: usize,
}

impl Grouping {
    /// Begins with hosts by name, and the clusters of those that have one.
    pub(super) fn new(hosts: Vec<(NodeId, String, Option<String>)>) -> Self {
        let mut sites: Vec<Site> = Vec::new();
        let mut open = VecDeque::new();
        for (node, name, cluster) in hosts {
            let Some(cluster) = cluster else {
                open.push_back((node, name));
                continue;
            };
            match sites.iter_mut().find(|site| site.name == cluster) {
                Some(site) => site.nodes.push(node),
                None => sites.push(Site {
                    name: cluster,
                    nodes: vec![node],
                }),
            }
        }
        Self {
            sites,
            open,
            compared: 0,
        }
    }

    /// The round trip that is needed next; `None` once all hosts have a cluster.
    pub(super) fn question(&mut self) -> Option<(NodeId, NodeId)> {
        loop {
            let (node, name) = self.open.front()?;
            if let Some(site) = self.sites.get(self.compared) {
                return Some((*node, site.nodes[0]));
            }
            // Near no other host: a cluster of its own.
            self.sites.push(Site {
                name: name.clone(),
                nodes: vec![*node],
            });
            self.open.pop_front();
            self.compared = 0;
        }
    }

    /// Takes the answer; `None` if there was none.
    pub(super) fn answer(&mut self, round_trip: Option<Duration>) {
        if round_trip.is_some_and(|time| time < NEAR) {
            if let (Some((node, _)), Some(site)) =
                (self.open.pop_front(), self.sites.get_mut(self.compared))
            {
                site.nodes.push(node);
            }
            self.compared = 0;
        } else {
            self.compared += 1;
        }
    }

    /// The clusters.
    pub(super) fn sites(self) -> Vec<Site> {
        self.sites
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_without_a_cluster_go_by_how_near_they_are() {
        let host = |node, cluster: Option<&str>| {
            (NodeId(node), format!("h{node}"), cluster.map(str::to_owned))
        };
        let hosts = vec![
            host(0, None),
            host(1, Some("far")),
            host(2, None),
            host(3, None),
            host(4, None),
        ];
        // 0 and 3 are in one place, 4 is where 1 is, 2 is alone and does not answer.
        let place = [0, 1, 2, 0, 1];
        let mut grouping = Grouping::new(hosts);
        while let Some((a, b)) = grouping.question() {
            let same = place[a.index()] == place[b.index()];
            let time = Duration::from_millis(if same { 1 } else { 20 });
            grouping.answer(Some(time).filter(|_| a != NodeId(2)));
        }
        let found: Vec<_> = grouping
            .sites()
            .into_iter()
            .map(|s| (s.name, s.nodes))
            .collect();
        let expected = [("far", vec![1, 4]), ("h0", vec![0, 3]), ("h2", vec![2])];
        let expected = expected.map(|(name, nodes)| {
            let nodes: Vec<NodeId> = nodes.into_iter().map(NodeId).collect();
            (name.to_owned(), nodes)
        });
        assert_eq!(found, expected);
    }
}
