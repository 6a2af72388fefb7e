//! Input for `outpour-core`: manifests, sets of blocks, plans, and what people write.

use std::time::Duration;

use outpour_core::blocks::WireBlocks;
use outpour_core::manifest::{Acl, Content, Manifest};
use outpour_core::network::{Backlog, Link, Network, PATH_MAX};
use outpour_core::script::Script;
use outpour_core::topology::Topology;
use outpour_core::units::{format_duration, format_duration_exact, parse_duration};
use outpour_core::{BlockSet, Bytes, NodeId, Plan, Priority, Rate};

use crate::input::Input;
use crate::text;

/// An access control list as a file system has it: what is let through is written as it is read.
pub(crate) fn access_list(bytes: &[u8]) {
    let Some(acl) = Acl::decode(bytes) else {
        return;
    };
    // Numbers of entries that have none are passed over.
    let once = acl.encode();
    assert_eq!(once.len(), bytes.len());
    assert_eq!(Acl::decode(&once).map(|acl| acl.encode()), Some(once));
    let other = acl.renumbered(|id| id, |id| id).with_mode(0o640);
    let again = Acl::decode(&other.encode()).expect("it differs by its mode");
    assert_eq!(again.encode(), other.encode());
}

/// A manifest that is let through has one encoding, and everything it claims can be asked for.
pub(crate) fn manifest(bytes: &[u8]) {
    let Ok(manifest) = Manifest::decode(bytes) else {
        return;
    };
    assert_eq!(manifest.encode(), bytes);
    for entry in manifest.entries() {
        let _ = manifest.path_shown(entry.id);
        let _ = manifest.file_hash(entry.id);
        let attributes = manifest.attributes(entry.id);
        let owned = !matches!(entry.content, Content::Link { .. });
        assert_eq!(attributes.is_some(), manifest.is_archive() && owned);
        assert!(manifest.stored_bytes(entry.id) <= manifest.size().0);
        let lists = attributes.iter().flat_map(|it| &it.xattrs);
        for list in lists.filter(|xattr| xattr.is_acl()) {
            let acl = Acl::decode(&list.value).expect("a list that was checked");
            let other = acl.renumbered(|id| id ^ 1, |id| id ^ 1).with_mode(0o640);
            // A number that means nobody is not let through.
            let _ = Acl::decode(&other.encode());
        }
    }
    let blocks = manifest.blocks();
    for block in (0..blocks.min(100)).chain(blocks.saturating_sub(100)..blocks) {
        let extents = manifest.extents(block);
        let len: u64 = extents.map(|extent| u64::from(extent.len)).sum();
        assert_eq!(len, u64::from(manifest.block_len(block)));
        assert!(!manifest.verify(block, b""));
    }
}

/// A set of blocks that came over the network is what a list of flags says, comes back as it was, and is
/// what a plain set would be after some changes.
pub(crate) fn block_sets(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    // On either side of a word, of two words, and anywhere.
    let len = match input.byte() {
        byte @ 0..=7 => 60 + u32::from(byte),
        byte @ 8..=15 => 124 + u32::from(byte - 8),
        _ => u32::from(input.short()),
    };
    let Some(wire) = input.value::<WireBlocks>() else {
        return;
    };
    let Some(mut set) = BlockSet::from_wire(&wire, len) else {
        return;
    };
    let mut plain: Vec<bool> = (0..len).map(|block| set.contains(block)).collect();
    agree(&set, &plain);
    let again = postcard::to_stdvec(&set.to_wire()).expect("plain data encodes");
    let again: WireBlocks = postcard::from_bytes(&again).expect("what was encoded");
    assert_eq!(BlockSet::from_wire(&again, len).as_ref(), Some(&set));
    for _ in 0..64 {
        if input.is_empty() || len == 0 {
            break;
        }
        let (add, at) = (input.byte() < 128, u32::from(input.short()) % len);
        let end = (at + u32::from(input.byte())).min(len);
        match add {
            true => set.insert_range(at..end),
            false => set.remove_range(at..end),
        }
        plain[at as usize..end as usize].fill(add);
        assert_eq!(set.contains_range(at..end), add || at == end);
    }
    agree(&set, &plain);
}

fn agree(set: &BlockSet, plain: &[bool]) {
    assert_eq!(set.len() as usize, plain.len());
    let members = (0..).zip(plain).filter(|(_, there)| **there);
    let members: Vec<u32> = members.map(|(block, _)| block).collect();
    assert_eq!(set.count() as usize, members.len());
    assert!(set.iter().eq(members));
    let mut at = 0;
    for run in set.ranges() {
        assert!(run.start < run.end && (run.start > at || at == 0));
        assert!(set.contains_range(run.clone()));
        at = run.end;
    }
    assert!(at <= set.len());
}

/// A plan that passes the check has trees that span all nodes from its roots.
pub(crate) fn plan(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let nodes = u32::from(input.byte());
    let Ok(plan) = postcard::from_bytes::<Plan>(input.rest()) else {
        return;
    };
    let again = postcard::to_stdvec(&plan).expect("plain data encodes");
    assert_eq!(postcard::from_bytes::<Plan>(&again).as_ref(), Ok(&plan));
    if plan.check(nodes).is_err() {
        return;
    }
    assert!(!plan.roots.is_empty() && !plan.trees.is_empty());
    for tree in &plan.trees {
        assert!(!tree.rate.is_zero());
        assert_eq!(tree.edges.len() + plan.roots.len(), nodes as usize);
        for node in (0..nodes).map(NodeId) {
            let parents = tree.edges.iter().filter(|(_, to)| *to == node).count();
            assert_eq!(parents, usize::from(!plan.roots.contains(&node)));
        }
    }
    let _ = plan.throughput();
}

/// What is a quantity in any unit prints as one that means the same.
pub(crate) fn units(bytes: &[u8]) {
    let Some(text) = text(bytes) else {
        return;
    };
    if let Ok(bytes) = text.parse::<Bytes>() {
        assert_eq!(format!("{bytes:#}").parse(), Ok(bytes));
        about(&bytes.to_string(), bytes.as_f64(), |text| {
            text.parse::<Bytes>().map(Bytes::as_f64).ok()
        });
    }
    if let Ok(rate) = text.parse::<Rate>() {
        assert_eq!(format!("{rate:#}").parse(), Ok(rate));
        if !rate.is_unlimited() {
            about(&rate.to_string(), rate.bytes_per_s(), |text| {
                text.parse::<Rate>().map(Rate::bytes_per_s).ok()
            });
        }
    }
    if let Ok(time) = parse_duration(text) {
        assert_eq!(parse_duration(&format_duration_exact(time)), Ok(time));
        about(&format_duration(time), time.as_secs_f64(), |text| {
            parse_duration(text)
                .as_ref()
                .map(Duration::as_secs_f64)
                .ok()
        });
    }
    if let Ok(backlog) = text.parse::<Backlog>() {
        assert_eq!(backlog.to_string().parse(), Ok(backlog));
    }
    if let Ok(priority) = text.parse::<Priority>() {
        assert_eq!(priority.name().parse(), Ok(priority));
    }
}

/// What people are shown is off by half an hour in a day at most; it need not be a whole number of the smallest unit.
fn about(shown: &str, right: f64, read: impl Fn(&str) -> Option<f64>) {
    if let Some(value) = read(shown) {
        assert!(
            (value - right).abs() <= right * 0.021,
            "{shown} is not {right}"
        );
    }
}

/// A network that is let through comes back as it was from its own description.
pub(crate) fn network(bytes: &[u8]) {
    let Some(Ok(network)) = text(bytes).map(|text| Network::from_toml(text, "fuzz.toml")) else {
        return;
    };
    let again = Network::from_toml(&network.to_toml(), "again.toml");
    assert_eq!(again.as_ref(), Ok(&network), "{}", network.to_toml());
    let count = network.node_count();
    assert!(count > 0);
    for (from, to) in [(0, 0), (0, count - 1), (count - 1, 0)] {
        let path = network.path(NodeId(from), NodeId(to));
        assert!(path.resources().len() <= PATH_MAX);
        assert_eq!(from == to, path.resources().is_empty());
    }
}

/// A script that is let through makes a network, or says why not, and its changes come in order.
pub(crate) fn script(bytes: &[u8]) {
    let Some(Ok(script)) = text(bytes).map(|text| Script::parse(text, "fuzz.script")) else {
        return;
    };
    let base = Network::from_toml(BASE, "base.toml").expect("a small network");
    for base in [Some(&base), None] {
        let Ok(network) = script.network(base) else {
            continue;
        };
        let _ = script.player(&network);
        if network.node_count() < 100 {
            let _ = script.timeline(&network);
        }
    }
    let _ = script.loses();
    assert!(script.words().all(|word| script.hears(word)));
}

pub(crate) const BASE: &str = "[[cluster]]\nname = \"a\"\nnodes = 4\nnode_in = \"1 Gbit/s\"\nnode_out = \
     \"1 Gbit/s\"\n[[cluster]]\nname = \"b\"\nnodes = 4\nnode_in = \"1 Gbit/s\"\n";

/// A table that is let through is a topology whose hosts reach each other.
pub(crate) fn topology(bytes: &[u8]) {
    let Some(text) = text(bytes) else {
        return;
    };
    let Ok(topology) = Topology::from_csv(text, "fuzz.csv", Link::OPEN, Link::OPEN) else {
        return;
    };
    assert!(topology.host_count() > 1);
    assert_eq!(topology.vertex_count(), 2 * topology.host_count());
    for wire in topology.wires() {
        assert!(wire.from != wire.to);
        assert!(wire.from.0 < topology.vertex_count() && wire.to.0 < topology.vertex_count());
    }
}
