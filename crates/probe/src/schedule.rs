//! Whose turn it is: measurements that may share a link never run together.
//!
//! Nodes of a cluster form a clique with one token: the node that holds it measures to the others,
//! then passes it on. Clusters share nothing inside, so their tokens go round at the same time. When all
//! are done, one node of each cluster stands for it in a clique of representatives, whose token
//! goes round in turn; what a representative finds out holds for its cluster [Burger §2.4.3].
//!
//! No clock and no sockets: the schedule says what may run now and is told what has ended.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use outpour_core::NodeId;

/// How many pairs of nodes measure a link between two clusters together.
pub const PAIRS_MAX: usize = 4;
/// How many peers a node sends to or receives from to find out what it can do in all.
pub const PEERS_MAX: usize = 4;
/// How many flows measure the access link of a cluster together.
pub const FLOWS_MAX: usize = 64;
/// How many nodes of a cluster are looked at one by one; the others are taken to be alike.
pub const NODES_MAX: usize = 16;

/// A flow from one node to another.
pub type Flow = (NodeId, NodeId);

/// What the rate of several flows together is a measure of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Of {
    /// The path from one node to another.
    Path(NodeId, NodeId),
    /// The link from one cluster to another.
    Link(u32, u32),
    /// What a node sends to others of its cluster.
    NodeOut(NodeId),
    /// What a node receives from others of its cluster.
    NodeIn(NodeId),
    /// What a node sends to other clusters.
    NodeAbroad(NodeId),
    /// What a node receives from other clusters.
    NodeFromAbroad(NodeId),
    /// What the nodes of a cluster send to other clusters.
    ClusterOut(u32),
    /// What they receive from other clusters.
    ClusterIn(u32),
}

/// One measurement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Measurement {
    /// How long a packet takes there and back.
    RoundTrip(NodeId, NodeId),
    /// What all flows at once achieve.
    Rate {
        /// What that is a measure of.
        of: Of,
        /// The flows.
        flows: Vec<Flow>,
    },
    /// How packets are spread on the way: capacity and available bandwidth.
    Packets(NodeId, NodeId),
    /// The routers on the way.
    Hops(NodeId, NodeId),
}

impl Measurement {
    /// Every node that takes part.
    pub fn nodes(&self) -> BTreeSet<NodeId> {
        match self {
            Self::RoundTrip(a, b) | Self::Packets(a, b) | Self::Hops(a, b) => [*a, *b].into(),
            Self::Rate { flows, .. } => flows.iter().flat_map(|(a, b)| [*a, *b]).collect(),
        }
    }
}

/// What is to be measured besides round trips and rates.
#[derive(Clone, Copy, Debug)]
pub struct Wanted {
    /// Capacity and available bandwidth between representatives.
    pub packets: bool,
    /// Routes between representatives.
    pub hops: bool,
}

/// Names a measurement that runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Ticket(u32);

/// A clique: what its token's way round brings, in order.
#[derive(Debug)]
struct Clique {
    queue: VecDeque<Measurement>,
    running: Option<Ticket>,
}

/// See the module.
#[derive(Debug)]
pub struct Schedule {
    /// The clusters' cliques; then that of the representatives, which waits for them.
    clusters: Vec<Clique>,
    abroad: Clique,
    /// Which cluster every node is in.
    cluster_of: BTreeMap<NodeId, usize>,
    lost: BTreeSet<NodeId>,
    cut: Cut,
    next: u32,
}

/// Where no way leads.
#[derive(Debug, Default)]
struct Cut {
    nodes: BTreeSet<Flow>,
    clusters: BTreeSet<(usize, usize)>,
}

impl Schedule {
    /// A schedule for the nodes of each cluster, none of them empty.
    pub fn new(clusters: &[Vec<NodeId>], wanted: Wanted) -> Self {
        let clique = |queue: Vec<Measurement>| Clique {
            queue: queue.into(),
            running: None,
        };
        let numbered = clusters.iter().enumerate();
        Self {
            clusters: clusters.iter().map(|nodes| clique(inside(nodes))).collect(),
            abroad: clique(between(clusters, wanted)),
            cluster_of: numbered
                .flat_map(|(cluster, nodes)| nodes.iter().map(move |node| (*node, cluster)))
                .collect(),
            lost: BTreeSet::new(),
            cut: Cut::default(),
            next: 0,
        }
    }

    /// How many measurements are left, those that run not counted.
    pub fn left(&self) -> usize {
        let queues = self.clusters.iter().chain([&self.abroad]);
        queues.map(|clique| clique.queue.len()).sum()
    }

    /// A measurement that may begin now; `None` if all tokens are held or nothing is left.
    pub fn begin(&mut self) -> Option<(Ticket, Measurement)> {
        self.drop_lost();
        let inside = self
            .clusters
            .iter()
            .any(|clique| clique.running.is_some() || !clique.queue.is_empty());
        let mut free = self.clusters.iter_mut().filter(|c| c.running.is_none());
        let clique = match free.find(|clique| !clique.queue.is_empty()) {
            Some(clique) => clique,
            None if !inside && self.abroad.running.is_none() => &mut self.abroad,
            None => return None,
        };
        let measurement = clique.queue.pop_front()?;
        let ticket = Ticket(self.next);
        self.next += 1;
        clique.running = Some(ticket);
        Some((ticket, measurement))
    }

    /// A measurement has ended: its token goes on.
    pub fn done(&mut self, ticket: Ticket) {
        let cliques = self.clusters.iter_mut().chain([&mut self.abroad]);
        for clique in cliques {
            clique.running = clique.running.filter(|running| *running != ticket);
        }
    }

    /// A node takes no part any more: what needs it is left out.
    pub fn lose(&mut self, node: NodeId) {
        self.lost.insert(node);
    }

    /// No way leads from a node to another: what needs it is left out, and what needs one between
    /// the same clusters.
    pub fn cut(&mut self, from: NodeId, to: NodeId) {
        self.cut.nodes.insert((from, to));
        let clusters = (self.cluster_of.get(&from), self.cluster_of.get(&to));
        if let (Some(a), Some(b)) = clusters
            && a != b
        {
            self.cut.clusters.insert((*a, *b));
        }
    }

    /// Whether nothing runs and nothing is left.
    pub fn is_over(&mut self) -> bool {
        self.drop_lost();
        let mut cliques = self.clusters.iter().chain([&self.abroad]);
        cliques.all(|clique| clique.running.is_none() && clique.queue.is_empty())
    }

    fn drop_lost(&mut self) {
        let (lost, cut, cluster_of) = (&self.lost, &self.cut, &self.cluster_of);
        let is_open = |(a, b): &Flow| {
            let clusters = cluster_of.get(a).zip(cluster_of.get(b));
            let is_cut = clusters.is_some_and(|(a, b)| cut.clusters.contains(&(*a, *b)));
            !lost.contains(a) && !lost.contains(b) && !cut.nodes.contains(&(*a, *b)) && !is_cut
        };
        for clique in self.clusters.iter_mut().chain([&mut self.abroad]) {
            clique.queue.retain_mut(|measurement| match measurement {
                Measurement::Rate { flows, .. } => {
                    // The flows that are left may still fill what they are to measure.
                    flows.retain(is_open);
                    !flows.is_empty()
                }
                Measurement::RoundTrip(a, b)
                | Measurement::Packets(a, b)
                | Measurement::Hops(a, b) => is_open(&(*a, *b)),
            });
        }
    }
}

/// The way of the token through a cluster.
fn inside(nodes: &[NodeId]) -> Vec<Measurement> {
    let mut all = Vec::new();
    let looked_at = &nodes[..nodes.len().min(NODES_MAX)];
    for (at, holder) in looked_at.iter().enumerate() {
        let after = |step: usize| nodes[(at + step) % nodes.len()];
        if nodes.len() > 1 {
            if at == 0 || nodes.len() > 2 {
                all.push(Measurement::RoundTrip(*holder, after(1)));
            }
            all.push(path(*holder, after(1)));
        }
        if nodes.len() > 2 {
            let peers: Vec<NodeId> = (1..nodes.len()).take(PEERS_MAX).map(after).collect();
            all.push(Measurement::Rate {
                of: Of::NodeOut(*holder),
                flows: peers.iter().map(|peer| (*holder, *peer)).collect(),
            });
            all.push(Measurement::Rate {
                of: Of::NodeIn(*holder),
                flows: peers.iter().map(|peer| (*peer, *holder)).collect(),
            });
        }
    }
    all
}

fn path(from: NodeId, to: NodeId) -> Measurement {
    Measurement::Rate {
        of: Of::Path(from, to),
        flows: vec![(from, to)],
    }
}

/// The way of the token through the representatives.
fn between(clusters: &[Vec<NodeId>], wanted: Wanted) -> Vec<Measurement> {
    let mut all = Vec::new();
    for (a, from) in clusters.iter().enumerate() {
        for (b, to) in clusters.iter().enumerate().filter(|(b, _)| *b != a) {
            let pair = (from[0], to[0]);
            if a < b {
                all.push(Measurement::RoundTrip(pair.0, pair.1));
            }
            all.push(path(pair.0, pair.1));
            let pairs = from.len().max(to.len()).min(PAIRS_MAX);
            if pairs > 1 {
                let flows = (0..pairs).map(|n| (from[n % from.len()], to[n % to.len()]));
                all.push(Measurement::Rate {
                    of: Of::Link(a as u32, b as u32),
                    flows: flows.collect(),
                });
            }
            if wanted.packets {
                all.push(Measurement::Packets(pair.0, pair.1));
            }
            if wanted.hops {
                all.push(Measurement::Hops(pair.0, pair.1));
            }
        }
        // With one other cluster, its link is all there is to see.
        if clusters.len() > 2 {
            all.extend(access(clusters, a));
        }
    }
    all
}

/// What a cluster, and its representative alone, can do with all others together.
fn access(clusters: &[Vec<NodeId>], a: usize) -> Vec<Measurement> {
    let own = &clusters[a];
    let others: Vec<&Vec<NodeId>> = clusters
        .iter()
        .enumerate()
        .filter(|(b, _)| *b != a)
        .map(|(_, nodes)| nodes)
        .collect();
    let mut flows: Vec<Flow> = Vec::new();
    for (n, node) in own.iter().enumerate() {
        flows.extend(others.iter().map(|other| (*node, other[n % other.len()])));
    }
    // Where there are too many, every cluster and as many nodes as possible keep some.
    let step = flows.len().div_ceil(FLOWS_MAX).max(1);
    let flows: Vec<Flow> = flows.into_iter().step_by(step).collect();
    let alone = others.iter().map(|other| (own[0], other[0]));
    let alone: Vec<Flow> = alone.take(FLOWS_MAX).collect();
    let back = |flows: &[Flow]| flows.iter().map(|(a, b)| (*b, *a)).collect::<Vec<_>>();
    let rate = |of: Of, flows: Vec<Flow>| Measurement::Rate { of, flows };
    let mut all = Vec::new();
    if own.len() > 1 {
        all.push(rate(Of::NodeFromAbroad(own[0]), back(&alone)));
        all.push(rate(Of::NodeAbroad(own[0]), alone));
    }
    let cluster = a as u32;
    all.push(rate(Of::ClusterIn(cluster), back(&flows)));
    all.push(rate(Of::ClusterOut(cluster), flows));
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: Wanted = Wanted {
        packets: true,
        hops: true,
    };

    fn grid(sizes: &[u32]) -> Vec<Vec<NodeId>> {
        let mut next = 0;
        let mut cluster = |size: u32| {
            next += size;
            (next - size..next).map(NodeId).collect()
        };
        sizes.iter().map(|size| cluster(*size)).collect()
    }

    /// Runs a schedule, several measurements at a time wherever it allows that.
    fn run(clusters: &[Vec<NodeId>], lost: Option<NodeId>) -> Vec<Measurement> {
        let mut schedule = Schedule::new(clusters, ALL);
        let cluster_of = |node: &NodeId| clusters.iter().position(|nodes| nodes.contains(node));
        let mut running: VecDeque<(Ticket, Measurement)> = VecDeque::new();
        let mut ended = Vec::new();
        loop {
            while let Some((ticket, measurement)) = schedule.begin() {
                let spans = |m: &Measurement| {
                    let all: BTreeSet<_> = m.nodes().iter().map(cluster_of).collect();
                    all
                };
                for (_, other) in &running {
                    let shared = spans(other).intersection(&spans(&measurement)).count();
                    assert_eq!(shared, 0, "{other:?} and {measurement:?} share a link");
                    assert_eq!(spans(other).len(), 1, "{other:?} is not alone");
                }
                running.push_back((ticket, measurement));
            }
            // The one that began last ends first, so that tokens overtake each other.
            let Some((ticket, measurement)) = running.pop_back() else {
                break;
            };
            schedule.done(ticket);
            ended.push(measurement);
            if let Some(node) = lost
                && ended.len() == 5
            {
                schedule.lose(node);
            }
        }
        assert!(schedule.is_over());
        assert_eq!(schedule.left(), 0);
        ended
    }

    #[test]
    fn no_two_measurements_share_a_link_and_all_are_made() {
        for sizes in [&[1, 1][..], &[4, 4, 4], &[1, 2, 3, 20], &[5], &[1]] {
            let clusters = grid(sizes);
            let expected = Schedule::new(&clusters, ALL).left();
            let ended = run(&clusters, None);
            assert_eq!(ended.len(), expected, "{sizes:?}");
            for (a, b) in (0..sizes.len()).flat_map(|a| (0..sizes.len()).map(move |b| (a, b))) {
                let (from, to) = (clusters[a][0], clusters[b][0]);
                let made = ended.contains(&path(from, to)) && a != b;
                assert_eq!(made, a != b, "{sizes:?}: {from} to {to}");
            }
        }
    }

    #[test]
    fn what_needs_a_lost_node_is_left_out() {
        let clusters = grid(&[3, 3, 3]);
        let lost = clusters[1][0];
        let ended = run(&clusters, Some(lost));
        // What ran when it was lost is not called back.
        let late = ended[5..]
            .iter()
            .filter(|made| made.nodes().contains(&lost));
        assert!(late.count() <= 1);
        let link = |made: &&Measurement| {
            matches!(
                made,
                Measurement::Rate {
                    of: Of::Link(0, 1),
                    ..
                }
            )
        };
        let Some(Measurement::Rate { flows, .. }) = ended.iter().find(link) else {
            panic!("the other pairs measure the link");
        };
        assert_eq!(flows.len(), 2);
    }

    #[test]
    fn where_no_way_leads_nothing_more_is_tried() {
        let clusters = grid(&[3, 3, 3]);
        let (a, b) = (clusters[0][0], clusters[1][0]);
        let mut schedule = Schedule::new(&clusters, ALL);
        schedule.cut(a, b);
        let crosses = |(from, to): &Flow| clusters[0].contains(from) && clusters[1].contains(to);
        let mut back = 0;
        while let Some((ticket, measurement)) = schedule.begin() {
            let flows = match &measurement {
                Measurement::Rate { flows, .. } => flows.clone(),
                Measurement::RoundTrip(a, b)
                | Measurement::Packets(a, b)
                | Measurement::Hops(a, b) => vec![(*a, *b)],
            };
            assert!(!flows.iter().any(crosses), "{measurement:?}");
            back += flows
                .iter()
                .filter(|(from, to)| crosses(&(*to, *from)))
                .count();
            schedule.done(ticket);
        }
        assert!(back > 0, "the other way may be open");
    }

    #[test]
    fn flows_that_measure_an_access_link_are_bounded() {
        let clusters = grid(&[30; 10]);
        for made in run(&clusters, None) {
            if let Measurement::Rate { flows, .. } = made {
                assert!(!flows.is_empty() && flows.len() <= FLOWS_MAX);
            }
        }
    }
}
