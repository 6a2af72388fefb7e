//! Where the hosts of a cast are in a described network, and plans from files for them.

#![cfg_attr(
    not(test),
    deny(
        clippy::unwrap_used,
        clippy::expect_used,
        clippy::indexing_slicing,
        clippy::arithmetic_side_effects
    )
)]

use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::io::Read;
use std::net::IpAddr;
use std::path::Path;

use outpour_core::network::Network;
use outpour_core::plan::Tree;
use outpour_core::text::{escape, excerpt};
use outpour_core::{NodeId, Plan, Rate};
use serde::Deserialize;

use crate::hosts::Destination;

/// How large a plan's file may be.
const PLAN_BYTES_MAX: u64 = 64 << 20;

/// How many node names a message lists.
const NAMES_MAX: usize = 8;

/// Why hosts and a described network, or a plan, do not go together.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PlaceError {
    /// The node that was named as the source's is not there.
    #[error("{name}: no such node; there are {nodes}")]
    Root {
        /// What was named.
        name: String,
        /// The first nodes that there are.
        nodes: String,
    },
    /// No node was named as the source's, and none is called like this host.
    #[error("{name} is not a node of the network, which has {nodes}; say which one the source is")]
    Own {
        /// What this host is called.
        name: String,
        /// The first nodes that there are.
        nodes: String,
    },
    /// The node that a hosts file names is not there.
    #[error("{host}: node={name}: no such node; there are {nodes}")]
    Node {
        /// The host.
        host: String,
        /// What was named.
        name: String,
        /// The first nodes that there are.
        nodes: String,
    },
    /// A host is no node.
    #[error(
        "{host} is not a node of the network, which has {nodes}; say which it is in a hosts file: \
         `{host} node=NAME`"
    )]
    Unknown {
        /// The host.
        host: String,
        /// The first nodes that there are.
        nodes: String,
    },
    /// Two are the same node.
    #[error("{host} is node {node} of the network, and so is {other}")]
    Twice {
        /// The host.
        host: String,
        /// The node.
        node: String,
        /// The other host, or the source.
        other: String,
    },
    /// A plan's file cannot be read, is no plan, or is one for other nodes.
    #[error("{file}: {why}")]
    Plan {
        /// The file.
        file: String,
        /// What is wrong with it.
        why: String,
    },
}

/// The host that a command runs on.
#[derive(Clone, Copy, Debug)]
pub struct Here<'a> {
    /// The node that it is, if that was said.
    pub root: Option<&'a str>,
    /// What it is called; else it is the node called like that.
    pub own_name: Option<&'a str>,
}

/// Finds the nodes of hosts, after that of the source if that is `here`.
///
/// A host is the node that a hosts file names, or that is called like it or like the first part of
/// its name.
///
/// # Errors
/// If a host is no node, two are the same, or nothing says which node the source is.
pub fn nodes<'h>(
    network: &Network,
    here: Option<Here<'_>>,
    hosts: impl IntoIterator<Item = &'h Destination>,
) -> Result<Vec<NodeId>, PlaceError> {
    let (mut taken, mut all) = (HashMap::new(), Vec::new());
    if let Some(Here { root, own_name }) = here {
        let root = match root {
            Some(name) => network.node(name).ok_or_else(|| PlaceError::Root {
                name: escape(name).into_owned(),
                nodes: names(network),
            })?,
            None => own_node(network, own_name)?,
        };
        taken.insert(root, "the source".to_owned());
        all.push(root);
    }
    for host in hosts {
        let node = node_of(network, host)?;
        if let Some(other) = taken.insert(node, host.name.clone()) {
            return Err(PlaceError::Twice {
                host: escape(&host.name).into_owned(),
                node: escape(network.name(node)).into_owned(),
                other,
            });
        }
        all.push(node);
    }
    Ok(all)
}

/// The node that is called like a host, or like the first part of its name.
fn node_of(network: &Network, host: &Destination) -> Result<NodeId, PlaceError> {
    if let Some(name) = &host.node {
        return network.node(name).ok_or_else(|| PlaceError::Node {
            host: escape(&host.name).into_owned(),
            name: escape(name).into_owned(),
            nodes: names(network),
        });
    }
    by_host_name(network, &host.host).ok_or_else(|| PlaceError::Unknown {
        host: escape(&host.name).into_owned(),
        nodes: names(network),
    })
}

fn by_host_name(network: &Network, host: &str) -> Option<NodeId> {
    let short = || {
        let is_address = host.parse::<IpAddr>().is_ok();
        let short = host.split('.').next().filter(|_| !is_address);
        network.node(short?)
    };
    network.node(host).or_else(short)
}

/// The node that this host is.
fn own_node(network: &Network, own_name: Option<&str>) -> Result<NodeId, PlaceError> {
    let found = own_name.and_then(|name| by_host_name(network, name));
    found.ok_or_else(|| PlaceError::Own {
        name: own_name.map_or_else(|| "this host".to_owned(), |name| escape(name).into_owned()),
        nodes: names(network),
    })
}

/// What this host is called; nothing if it has no name.
pub fn host_name() -> Option<String> {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").ok()?;
    Some(name.trim().to_owned()).filter(|name| !name.is_empty())
}

/// The first names of a network's nodes.
fn names(network: &Network) -> String {
    let names: Vec<_> = network.nodes().take(NAMES_MAX).collect();
    let names: Vec<_> = names.iter().map(|node| network.name(*node)).collect();
    let more = if network.node_count() as usize > NAMES_MAX {
        ", ..."
    } else {
        ""
    };
    format!("{}{more}", escape(&names.join(", ")))
}

/// A plan as `outpour plan multicast --json` prints it; what else it says is not needed.
#[derive(Deserialize)]
struct PlanFile {
    trees: Vec<TreeFile>,
}

#[derive(Deserialize)]
struct TreeFile {
    /// Null if nothing limits it; to leave it out is an error.
    #[serde(deserialize_with = "Option::deserialize")]
    rate_bytes_per_s: Option<f64>,
    edges: Vec<(String, String)>,
}

/// The nodes of a cast, sources first, for a plan.
#[derive(Clone, Copy, Debug)]
pub struct Nodes<'a> {
    /// A network that was described, and the nodes in it.
    pub network: Option<(&'a Network, &'a [NodeId])>,
    /// Whether the first source is on the command's host.
    pub here: bool,
    /// All other nodes.
    pub hosts: &'a [Destination],
    /// How many of all are sources.
    pub sources: u32,
}

/// Reads a plan for the nodes of a cast.
///
/// Without a network a node is called as its host; a source on the command's host is where a tree
/// begins that does not begin at another host.
///
/// # Errors
/// If the file cannot be read, is no plan, or is one for other nodes.
pub fn plan(path: &Path, nodes: Nodes<'_>) -> Result<Plan, PlaceError> {
    let (file, wrong) = plan_file(path)?;
    let members = match nodes.network {
        Some((network, nodes)) => members_by_node(network, nodes),
        None => members_by_host(&file, &nodes),
    };
    let sources: Vec<NodeId> = (0..nodes.sources).map(NodeId).collect();
    named_plan(&file, &sources, &members, &wrong)
}

/// Reads a plan for all nodes of a network.
///
/// # Errors
/// If the file cannot be read, is no plan, or is one for other nodes.
pub fn plan_of_network(
    path: &Path,
    network: &Network,
    roots: &[NodeId],
) -> Result<Plan, PlaceError> {
    let (file, wrong) = plan_file(path)?;
    let nodes: Vec<NodeId> = network.nodes().collect();
    named_plan(&file, roots, &members_by_node(network, &nodes), &wrong)
}

/// Reads the file of a plan; returns also what says that something is wrong with it.
fn plan_file(path: &Path) -> Result<(PlanFile, impl Fn(String) -> PlaceError + use<>), PlaceError> {
    let file = escape(&path.display().to_string()).into_owned();
    let wrong = move |why: String| PlaceError::Plan {
        file: file.clone(),
        why,
    };
    let text = text(path).map_err(|why| wrong(format!("cannot read the plan: {why}")))?;
    let plan = read_plan(&text).map_err(&wrong)?;
    Ok((plan, wrong))
}

/// Reads the text of a plan; an error is what is wrong with it.
fn read_plan(text: &str) -> Result<PlanFile, String> {
    serde_json::from_str(text).map_err(|error| {
        format!("not a plan: {error}; expected the output of `outpour plan multicast --json`")
    })
}

/// Reads arbitrary text as a plan for nodes of a network, which spans them if it is let through; for tests.
pub(crate) fn fuzz(text: &str) {
    let Ok(file) = read_plan(text) else {
        return;
    };
    let names = ["a0", "a1", "a2", "b0"];
    let members: BTreeMap<String, NodeId> = (names.map(str::to_owned).into_iter())
        .zip((0..).map(NodeId))
        .collect();
    let wrong = |why: String| PlaceError::Plan {
        file: "plan.json".to_owned(),
        why,
    };
    match named_plan(&file, &[NodeId(0)], &members, &wrong) {
        Ok(plan) => assert_eq!(plan.check(names.len() as u32), Ok(())),
        Err(error) => assert!(!error.to_string().contains(char::is_control)),
    }
}

/// The plan of a file, its names resolved.
fn named_plan(
    file: &PlanFile,
    roots: &[NodeId],
    members: &BTreeMap<String, NodeId>,
    wrong: &impl Fn(String) -> PlaceError,
) -> Result<Plan, PlaceError> {
    let member = |name: &str| {
        members.get(name).copied().ok_or_else(|| {
            let name = excerpt(name);
            wrong(format!(
                "the plan has node `{name}`, which is not in the cast"
            ))
        })
    };
    let mut trees = Vec::with_capacity(file.trees.len());
    for tree in &file.trees {
        let rate = match tree.rate_bytes_per_s {
            None => Rate::UNLIMITED,
            Some(rate) => Rate::from_bytes_per_s(rate)
                .ok_or_else(|| wrong(format!("{rate} is not a rate")))?,
        };
        let edges: Result<Vec<_>, PlaceError> = tree
            .edges
            .iter()
            .map(|(from, to)| Ok((member(from)?, member(to)?)))
            .collect();
        let edges = edges?;
        trees.push(Tree { rate, edges });
    }
    let plan = Plan {
        roots: roots.to_vec(),
        trees,
    };
    let count = members
        .values()
        .map(|node| node.0.saturating_add(1))
        .max()
        .unwrap_or(0);
    plan.check(count)
        .map_err(|error| wrong(named(&error.to_string(), members)))?;
    Ok(plan)
}

/// The message, and which members its numbers are.
fn named(message: &str, members: &BTreeMap<String, NodeId>) -> String {
    let mut list: Vec<_> = members.iter().collect();
    list.sort_by_key(|(_, node)| node.0);
    let list = list.iter().take(NAMES_MAX);
    let list: Vec<_> = list
        .map(|(name, node)| format!("{node} is {name}"))
        .collect();
    format!("{message}; {}", escape(&list.join(", ")))
}

fn members_by_node(network: &Network, nodes: &[NodeId]) -> BTreeMap<String, NodeId> {
    let named = |(member, node): (u32, &NodeId)| (network.name(*node).to_owned(), NodeId(member));
    (0..).zip(nodes).map(named).collect()
}

fn members_by_host(file: &PlanFile, nodes: &Nodes<'_>) -> BTreeMap<String, NodeId> {
    let mut members = BTreeMap::new();
    let named = |name: &str| {
        let mut hosts = nodes.hosts.iter();
        hosts.any(|host| host.host == name || host.name == name)
    };
    // Trees may begin at sources on other hosts, too; these have names.
    let mut roots = file.trees.iter().filter_map(|tree| tree.edges.first());
    if let Some((root, _)) = roots.find(|(root, _)| nodes.here && !named(root)) {
        members.insert(root.clone(), NodeId(0));
    }
    for (member, host) in (u32::from(nodes.here)..).zip(nodes.hosts) {
        members.insert(host.host.clone(), NodeId(member));
        members.insert(host.name.clone(), NodeId(member));
    }
    members
}

fn text(path: &Path) -> Result<String, String> {
    let mut text = String::new();
    File::open(path)
        .and_then(|file| file.take(PLAN_BYTES_MAX + 1).read_to_string(&mut text))
        .map_err(|error| error.to_string())?;
    if text.len() as u64 > PLAN_BYTES_MAX {
        return Err(format!("it is larger than {} MiB", PLAN_BYTES_MAX >> 20));
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use outpour_protocols::{Member, Role};
    use outpour_terms::placement::Placement;

    use super::*;
    use crate::hosts::Destinations;

    const NETWORK: &str = r#"
        [[cluster]]
        name = "a"
        nodes = 3
        [[cluster]]
        name = "b"
        nodes = 2
        [[cluster]]
        name = "c"
        nodes = 1
        [[link]]
        from = "*"
        to = "*"
        rate = "10 MB/s"
    "#;

    fn network() -> Network {
        Network::from_toml(NETWORK, "net.toml").unwrap()
    }

    fn hosts(all: &[&str]) -> Vec<Destination> {
        let mut found = Destinations::default();
        for text in all {
            found.add(text.as_ref()).unwrap();
        }
        found.finish().unwrap()
    }

    fn place(
        network: &Network,
        root: Option<&str>,
        hosts: &[Destination],
    ) -> Result<Placement, PlaceError> {
        let nodes = nodes(network, here(root, None), hosts)?;
        Ok(Placement::new(network, &nodes, Rate::UNLIMITED).unwrap())
    }

    fn here<'a>(root: Option<&'a str>, own_name: Option<&'a str>) -> Option<Here<'a>> {
        Some(Here { root, own_name })
    }

    #[track_caller]
    fn refused(result: Result<impl Sized, PlaceError>, words: &str) {
        match result {
            Err(error) => assert!(error.to_string().contains(words), "{error}"),
            Ok(_) => panic!("expected: {words}"),
        }
    }

    #[test]
    fn hosts_are_nodes_of_the_same_name() {
        let network = network();
        let hosts = hosts(&["b1.site.org:/x", "ops@a2:/x"]);
        let placement = place(&network, Some("a0"), &hosts).unwrap();
        assert_eq!(placement.clusters(), [0, 1, 0]);
        let small = placement.network();
        assert_eq!(small.node_count(), 3);
        let member = |source| Member {
            cluster: 0,
            role: Role::source_if(source),
        };
        let members = [true, false, false].map(member);
        let sources = placement.sources(&members);
        assert_eq!(small.name(sources[0]), "a0");
        // One link of 10 MB/s into cluster b; its node and cluster are not limited.
        let time = placement
            .least_time(&members, outpour_core::Bytes(50_000_000))
            .unwrap();
        assert!((time - 5.0).abs() < 0.01, "{time}");
    }

    #[test]
    fn every_place_has_to_be_known_and_free() {
        let network = network();
        let place = |root, all: &[&str]| place(&network, root, &hosts(all));
        refused(
            place(Some("z"), &["a1:/x"]),
            "z: no such node; there are a0, a1",
        );
        refused(
            place(Some("a0"), &["q:/x"]),
            "q is not a node of the network, which has a0",
        );
        refused(
            place(Some("a0"), &["a0:/x"]),
            "a0 is node a0 of the network, and so is the source",
        );
        refused(place(Some("a0"), &["a1:/x", "a1:/y"]), "and so is a1:/x");
        refused(
            place(None, &["a1:/x"]),
            "this host is not a node of the network, which has a0",
        );
    }

    #[test]
    fn the_source_is_the_node_of_its_name() {
        let network = network();
        let all = nodes(
            &network,
            here(None, Some("b1.site.org")),
            &hosts(&["a0:/x"]),
        )
        .unwrap();
        let names: Vec<_> = all.iter().map(|node| network.name(*node)).collect();
        assert_eq!(names, ["b1", "a0"]);
    }

    #[test]
    fn a_plan_from_a_file_is_for_the_members() {
        let network = network();
        let hosts = hosts(&["b0:/x", "c:/x"]);
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("plan.json");
        let read = |text: &str| {
            std::fs::write(&path, text).unwrap();
            let nodes = nodes(&network, here(Some("a0"), None), &hosts).unwrap();
            let nodes = Nodes {
                network: Some((&network, &nodes)),
                here: true,
                hosts: &hosts,
                sources: 1,
            };
            plan(&path, nodes)
        };
        let text = r#"{"method": "x", "trees": [
            {"rate_bytes_per_s": 5e6, "edges": [["a0", "c"], ["c", "b0"]]}]}"#;
        let plan = read(text).unwrap();
        let edges = vec![(NodeId(0), NodeId(2)), (NodeId(2), NodeId(1))];
        assert_eq!(plan.trees[0].edges, edges);
        refused(
            read(&text.replace("\"b0\"", "\"b1\"")),
            "node `b1`, which is not in the cast",
        );
        refused(read(&text.replace("5e6", "-1")), "-1 is not a rate");
        let unlimited = read(&text.replace("5e6", "null")).unwrap();
        assert_eq!(unlimited.trees[0].rate, Rate::UNLIMITED);
        let without = text.replace("\"rate_bytes_per_s\": 5e6, ", "");
        refused(read(&without), "missing field `rate_bytes_per_s`");
        refused(read("[]"), "not a plan");
        let short = r#"{"trees": [{"rate_bytes_per_s": 1, "edges": [["a0", "c"]]}]}"#;
        refused(
            read(short),
            "does not reach node n1; n0 is a0, n1 is b0, n2 is c",
        );
    }

    #[test]
    fn the_first_tree_of_a_plan_may_begin_at_another_source() {
        let hosts = hosts(&["b:/x", "c:/x"]);
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("plan.json");
        let text = r#"{"trees": [
            {"rate_bytes_per_s": 1e6, "edges": [["b", "c"]]},
            {"rate_bytes_per_s": 2e6, "edges": [["a", "c"]]}]}"#;
        std::fs::write(&path, text).unwrap();
        let nodes = Nodes {
            network: None,
            here: true,
            hosts: &hosts,
            sources: 2,
        };
        let plan = plan(&path, nodes).unwrap();
        let edges: Vec<_> = plan.trees.iter().map(|tree| tree.edges[0]).collect();
        assert_eq!(
            edges,
            [(NodeId(1), NodeId(2)), (NodeId(0), NodeId(2))],
            "b is the second source, and a this host"
        );
    }
}
