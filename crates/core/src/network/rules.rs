//! A network as it is described, and how names and globs become ids and links.

use std::collections::BTreeMap;
use std::time::Duration;

use super::backlog::Backlog;
use super::error::{NetworkError, Place, Problem};
use super::glob;
use super::{
    CLUSTERS_MAX, ClusterId, LINK_MATCHES_MAX, LINK_RULES_MAX, NAME_BYTES_MAX, NODE_MATCHES_MAX,
    NODE_RULES_MAX, NODES_MAX, Network,
};
use crate::text::escape;
use crate::{NodeId, Rate};

/// How many of the known nodes an error carries.
const NODES_NAMED_MAX: usize = 32;

/// The nodes of a cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Members {
    /// That many, named after the cluster: NAME0, NAME1, ...; a single one is called NAME.
    Count(u32),
    /// These.
    Names(Vec<String>),
}

impl Members {
    /// How many nodes these are.
    pub fn len(&self) -> usize {
        match self {
            Self::Count(count) => *count as usize,
            Self::Names(names) => names.len(),
        }
    }

    /// Whether there are none, which no network accepts.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// A cluster: nodes with equal capacities that share a local network and an access link.
#[derive(Clone, Debug, PartialEq)]
pub struct Cluster {
    /// Its name.
    pub name: String,
    /// Its nodes.
    pub members: Members,
    /// What every node sends at most, inside the cluster and outside together.
    pub node_out: Rate,
    /// What every node receives at most.
    pub node_in: Rate,
    /// What the nodes together send to other clusters at most; `out` in TOML.
    pub cluster_out: Rate,
    /// What the nodes together receive from other clusters at most; `in` in TOML.
    pub cluster_in: Rate,
    /// What passes at most from any node to any other of the cluster.
    pub local: Rate,
    /// How long it takes from any node to any other of the cluster, one way.
    pub local_delay: Duration,
    /// How much waits where each node receives (`node_in`) before more is dropped, if the
    /// description says.
    pub node_queue: Option<Backlog>,
    /// From how much waiting there on the congestion mark is set, if it is.
    pub node_ecn: Option<Backlog>,
    /// Whether the nodes have a network among themselves besides the one to other clusters: then
    /// what they send each other passes local links only, and `node_out` and `node_in` are for
    /// other clusters.
    pub interconnect: bool,
}

impl Cluster {
    /// A cluster without limits or delay.
    pub fn new(name: impl Into<String>, members: Members) -> Self {
        Self {
            name: name.into(),
            members,
            node_out: Rate::UNLIMITED,
            node_in: Rate::UNLIMITED,
            cluster_out: Rate::UNLIMITED,
            cluster_in: Rate::UNLIMITED,
            local: Rate::UNLIMITED,
            local_delay: Duration::ZERO,
            node_queue: None,
            node_ecn: None,
            interconnect: false,
        }
    }
}

/// What a description says about the links between some clusters; what it leaves open stays as
/// earlier rules set it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LinkRule {
    /// Name or glob of the clusters that send.
    pub from: String,
    /// Name or glob of the clusters that receive.
    pub to: String,
    /// Whether the rule is for the way back as well.
    pub both: bool,
    /// What passes at most, for each ordered pair of clusters.
    pub rate: Option<Rate>,
    /// How long it takes, one way.
    pub delay: Option<Duration>,
    /// How much waits before more is dropped.
    pub queue: Option<Backlog>,
    /// From how much waiting on the congestion mark is set.
    pub ecn: Option<Backlog>,
    /// Which share of packets is lost.
    pub loss: Option<f64>,
    /// How many packets are lost in a row on average; 1 if each is lost for itself.
    pub burst: Option<f64>,
}

/// What a description says about the capacity of some nodes, over what their clusters say.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct NodeRule {
    /// Name or glob of the nodes.
    pub name: String,
    /// What each sends at most.
    pub out: Option<Rate>,
    /// What each receives at most; `in` in TOML.
    pub into: Option<Rate>,
}

/// A link from one cluster to another.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Link {
    /// What passes at most; zero if the link is dead.
    pub rate: Rate,
    /// How long it takes, one way.
    pub delay: Duration,
    /// How much waits before more is dropped, if the description says.
    pub queue: Option<Backlog>,
    /// From how much waiting on the congestion mark is set, if it is.
    pub ecn: Option<Backlog>,
    /// Which share of packets is lost; below one.
    pub loss: f64,
    /// How many packets are lost in a row on average; 1 if each is lost for itself.
    pub burst: f64,
}

impl Link {
    /// No limit, no delay.
    pub const OPEN: Self = Self {
        rate: Rate::UNLIMITED,
        delay: Duration::ZERO,
        queue: None,
        ecn: None,
        loss: 0.0,
        burst: 1.0,
    };

    /// Nothing passes.
    pub const DEAD: Self = Self {
        rate: Rate::ZERO,
        ..Self::OPEN
    };

    fn changed_by(self, rule: &LinkRule) -> Self {
        Self {
            rate: rule.rate.unwrap_or(self.rate),
            delay: rule.delay.unwrap_or(self.delay),
            queue: rule.queue.or(self.queue),
            ecn: rule.ecn.or(self.ecn),
            loss: rule.loss.unwrap_or(self.loss),
            burst: rule.burst.unwrap_or(self.burst),
        }
    }
}

/// Checks everything and builds the network.
pub(super) fn resolve(
    clusters: Vec<Cluster>,
    node_rules: Vec<NodeRule>,
    rules: Vec<LinkRule>,
) -> Result<Network, NetworkError> {
    check_clusters(&clusters)?;
    let mut network = Network {
        limit: Rate::UNLIMITED,
        node_rules,
        node_out: Vec::new(),
        node_in: Vec::new(),
        own_links: false,
        amended: BTreeMap::new(),
        first: Vec::with_capacity(clusters.len() + 1),
        cluster_of: Vec::new(),
        names: Vec::new(),
        ids: BTreeMap::new(),
        links: Vec::new(),
        link_of: Vec::new(),
        clusters,
        rules,
    };
    name_nodes(&mut network)?;
    rate_nodes(&mut network)?;
    join_clusters(&mut network)?;
    Ok(network)
}

fn error<T>(place: Place, problem: Problem) -> Result<T, NetworkError> {
    Err(NetworkError::new(place, problem))
}

fn check_clusters(clusters: &[Cluster]) -> Result<(), NetworkError> {
    if clusters.is_empty() {
        return error(Place::Network, Problem::NoClusters);
    }
    if clusters.len() > CLUSTERS_MAX {
        let (what, max) = ("clusters", CLUSTERS_MAX);
        return error(Place::Network, Problem::TooMany { what, max });
    }
    let mut seen = BTreeMap::new();
    let mut nodes = 0_usize;
    for (index, cluster) in clusters.iter().enumerate() {
        let place = |key| Place::Cluster { index, key };
        let name = cluster.name.clone();
        if !is_name(&name) {
            return error(place("name"), Problem::BadName { name });
        }
        if seen.insert(&cluster.name, index).is_some() {
            return error(place("name"), Problem::DuplicateCluster { name });
        }
        let key = match cluster.members {
            Members::Count(_) => "nodes",
            Members::Names(_) => "members",
        };
        if cluster.members.is_empty() {
            return error(place(key), Problem::NoNodes { cluster: name });
        }
        let (queue, ecn) = (cluster.node_queue, cluster.node_ecn);
        if let Some(problem) = queue_fault(queue, ecn) {
            let key = match ecn {
                Some(ecn) if ecn.is_empty() || !queue.is_some_and(|it| it.is_empty()) => "node_ecn",
                _ => "node_queue",
            };
            return error(place(key), problem);
        }
        nodes += cluster.members.len();
        if nodes > NODES_MAX {
            let (what, max) = ("nodes in the network", NODES_MAX);
            return error(place(key), Problem::TooMany { what, max });
        }
    }
    Ok(())
}

fn is_name(name: &str) -> bool {
    (1..=NAME_BYTES_MAX).contains(&name.len())
        && !name.contains(|c: char| c == '*' || c.is_whitespace())
        && escape(name) == name
}

fn name_nodes(network: &mut Network) -> Result<(), NetworkError> {
    for (index, cluster) in network.clusters.iter().enumerate() {
        network.first.push(network.names.len() as u32);
        let names: Vec<String> = match &cluster.members {
            Members::Count(1) => vec![cluster.name.clone()],
            Members::Count(count) => (0..*count)
                .map(|number| format!("{}{number}", cluster.name))
                .collect(),
            Members::Names(names) => names.clone(),
        };
        let place = || Place::Cluster {
            index,
            key: match cluster.members {
                Members::Count(_) => "name",
                Members::Names(_) => "members",
            },
        };
        for name in names {
            if !is_name(&name) {
                return error(place(), Problem::BadName { name });
            }
            let id = NodeId(network.names.len() as u32);
            if let Some(other) = network.ids.insert(name.clone(), id) {
                let cluster = network.cluster_of[other.index()];
                let cluster = network.clusters[cluster.index()].name.clone();
                return error(place(), Problem::DuplicateNode { name, cluster });
            }
            network.cluster_of.push(ClusterId(index as u32));
            network.names.push(name);
        }
    }
    network.first.push(network.names.len() as u32);
    // Where a node is asked for, a cluster's name means its first node: no other may have it.
    for (index, cluster) in network.clusters.iter().enumerate() {
        let first = NodeId(network.first[index]);
        if let Some(node) = network.ids.get(&cluster.name).filter(|id| **id != first) {
            let place = Place::Cluster {
                index: network.cluster_of[node.index()].index(),
                key: "members",
            };
            let name = cluster.name.clone();
            return error(place, Problem::NodeNamedLikeCluster { name });
        }
    }
    Ok(())
}

/// Gives each node its cluster's capacity, then what the rules say of it.
fn rate_nodes(network: &mut Network) -> Result<(), NetworkError> {
    for cluster in &network.clusters {
        for _ in 0..cluster.members.len() {
            network.node_out.push(cluster.node_out);
            network.node_in.push(cluster.node_in);
        }
    }
    if network.node_rules.len() > NODE_RULES_MAX {
        let (what, max) = ("nodes listed", NODE_RULES_MAX);
        return error(Place::Network, Problem::TooMany { what, max });
    }
    let mut matches_left = NODE_MATCHES_MAX;
    for (index, rule) in network.node_rules.iter().enumerate() {
        let place = Place::Node { index, key: "name" };
        let found: Vec<NodeId> = if rule.name.contains('*') {
            let Some(left) = matches_left.checked_sub(network.names.len()) else {
                let (what, max) = ("names compared with globs of nodes", NODE_MATCHES_MAX);
                return error(place, Problem::TooMany { what, max });
            };
            matches_left = left;
            let named = network.ids.iter();
            named
                .filter(|(name, _)| glob::matches(&rule.name, name))
                .map(|(_, id)| *id)
                .collect()
        } else {
            network.node(&rule.name).into_iter().collect()
        };
        if found.is_empty() {
            let pattern = rule.name.clone();
            let known = network.names.iter().take(NODES_NAMED_MAX).cloned();
            let known = known.collect();
            return error(place, Problem::UnknownNode { pattern, known });
        }
        for node in found {
            let (out, into) = (
                &mut network.node_out[node.index()],
                &mut network.node_in[node.index()],
            );
            *out = rule.out.unwrap_or(*out);
            *into = rule.into.unwrap_or(*into);
        }
    }
    Ok(())
}

fn join_clusters(network: &mut Network) -> Result<(), NetworkError> {
    if network.rules.is_empty() {
        return Ok(());
    }
    if network.rules.len() > LINK_RULES_MAX {
        let (what, max) = ("links", LINK_RULES_MAX);
        return error(Place::Network, Problem::TooMany { what, max });
    }
    let clusters = &network.clusters;
    let index_of: BTreeMap<&str, usize> = (clusters.iter().enumerate())
        .map(|(index, cluster)| (cluster.name.as_str(), index))
        .collect();
    // Equal links are kept once: a pair holds only an index. The first two are the start of a
    // pair no rule names and of one that is named for the first time.
    let mut links = vec![Link::DEAD, Link::OPEN];
    let mut link_of = vec![0_u32; clusters.len() * clusters.len()];
    let mut matches_left = LINK_MATCHES_MAX;
    for (index, rule) in network.rules.iter().enumerate() {
        let pairs = matched_pairs(clusters, &index_of, index, rule, &mut matches_left)?;
        let mut changed = BTreeMap::new();
        for (from, to) in pairs {
            let link = &mut link_of[from * clusters.len() + to];
            let old = (*link).max(1);
            *link = *changed.entry(old).or_insert_with(|| {
                links.push(links[old as usize].changed_by(rule));
                links.len() as u32 - 1
            });
        }
        for link in changed.values() {
            check_link(index, rule, &links[*link as usize])?;
        }
    }
    network.links = links;
    network.link_of = link_of;
    Ok(())
}

/// The ordered pairs of different clusters a rule is about; some may come twice.
fn matched_pairs(
    clusters: &[Cluster],
    index_of: &BTreeMap<&str, usize>,
    index: usize,
    rule: &LinkRule,
    matches_left: &mut usize,
) -> Result<Vec<(usize, usize)>, NetworkError> {
    let find = |pattern: &str, key| {
        let found: Vec<_> = if pattern.contains('*') {
            (0..clusters.len())
                .filter(|at| glob::matches(pattern, &clusters[*at].name))
                .collect()
        } else {
            index_of.get(pattern).copied().into_iter().collect()
        };
        if found.is_empty() {
            let problem = Problem::UnknownCluster {
                pattern: pattern.to_owned(),
                known: clusters.iter().map(|c| c.name.clone()).collect(),
            };
            return error(Place::Link { index, key }, problem);
        }
        Ok(found)
    };
    let (from, to) = (find(&rule.from, "from")?, find(&rule.to, "to")?);
    if rule.from == rule.to && !rule.from.contains('*') {
        let place = Place::Link { index, key: "to" };
        let cluster = rule.to.clone();
        return error(place, Problem::SelfLink { cluster });
    }
    let ways = if rule.both { 2 } else { 1 };
    let Some(left) = matches_left.checked_sub(from.len() * to.len() * ways) else {
        let (what, max) = ("pairs of clusters matched by links", LINK_MATCHES_MAX);
        let place = Place::Link { index, key: "from" };
        return error(place, Problem::TooMany { what, max });
    };
    *matches_left = left;
    let there = (from.iter()).flat_map(|a| to.iter().filter(move |b| a != *b).map(|b| (*a, *b)));
    let mut pairs: Vec<_> = there.collect();
    if rule.both {
        pairs.extend_from_within(..);
        let half = pairs.len() / 2;
        pairs[half..]
            .iter_mut()
            .for_each(|(a, b)| std::mem::swap(a, b));
    }
    Ok(pairs)
}

/// Checks what became of a link, as the parts may come from different rules.
fn check_link(index: usize, rule: &LinkRule, link: &Link) -> Result<(), NetworkError> {
    let Some((key, problem)) = link_fault(link) else {
        return Ok(());
    };
    // A threshold that an earlier rule set is not what this one got wrong.
    let key = match key {
        "ecn" if rule.ecn.is_none() => "queue",
        key => key,
    };
    error(Place::Link { index, key }, problem)
}

/// What is wrong with a link, and which key says so.
pub(crate) fn link_fault(link: &Link) -> Option<(&'static str, Problem)> {
    if !(0.0..1.0).contains(&link.loss) {
        return Some(("loss", Problem::BadLoss { found: link.loss }));
    }
    if !link.burst.is_finite() || link.burst < 1.0 || !burst_fits(link.loss, link.burst) {
        let (loss, burst) = (link.loss, link.burst);
        return Some(("burst", Problem::BadBurst { loss, burst }));
    }
    let key = if link.ecn.is_some() { "ecn" } else { "queue" };
    queue_fault(link.queue, link.ecn).map(|problem| (key, problem))
}

fn queue_fault(queue: Option<Backlog>, ecn: Option<Backlog>) -> Option<Problem> {
    let empty = [queue, ecn].iter().flatten().any(|limit| limit.is_empty());
    let above = queue
        .zip(ecn)
        .is_some_and(|(queue, ecn)| ecn.exceeds(queue));
    (empty || above).then_some(Problem::BadQueue { queue, ecn })
}

/// Whether packets can be lost `burst` in a row on average and yet only a share of `loss` in all:
/// between two runs of losses at least one packet passes.
pub(crate) fn burst_fits(loss: f64, burst: f64) -> bool {
    burst <= 1.0 || loss <= burst / (burst + 1.0)
}
