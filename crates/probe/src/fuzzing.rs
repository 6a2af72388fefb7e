//! What is done with arbitrary bytes as what nodes tell each other and what files say, to find out whether it
//! is borne; for tests.

use std::time::Duration;

use outpour_core::{NodeId, Rate};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::fit::{Findings, Site, network};
use crate::history::{History, VALUES_MAX};
use crate::message::{Message, ProbeOrder, ProbeReport};
use crate::schedule::Of;
use crate::train::{HEADER_BYTES, Header};

/// Packets of UDP, and what nodes, agents and the command say to each other.
pub fn packets(bytes: &[u8]) {
    let [op, body @ ..] = bytes else {
        return;
    };
    match op % 4 {
        0 => {
            if let Some(header) = Header::decode(body) {
                let again = header.encode(body.len());
                assert_eq!(again[..HEADER_BYTES], body[..HEADER_BYTES]);
                assert_eq!(again.len(), body.len());
                assert_eq!(Header::decode(&again), Some(header));
            }
        }
        1 => message::<Message>(body),
        2 => message::<ProbeOrder>(body),
        _ => message::<ProbeReport>(body),
    }
}

/// What routers say of packets that came too far.
pub fn routes(bytes: &[u8]) {
    crate::hops::fuzz(bytes);
}

/// By its bytes, as a number that is none is not equal to itself.
fn message<T: DeserializeOwned + Serialize>(body: &[u8]) {
    let Ok(message) = postcard::from_bytes::<T>(body) else {
        return;
    };
    let once = postcard::to_stdvec(&message);
    let back = once
        .clone()
        .and_then(|bytes| postcard::from_bytes::<T>(&bytes));
    assert_eq!(back.and_then(|back| postcard::to_stdvec(&back)), once);
}

/// A file of earlier measurements: what is let through is bounded and can be asked for a forecast.
pub fn history(bytes: &[u8]) {
    let Ok(mut history) = History::read(bytes) else {
        return;
    };
    history.add("a -> b rate", 1.0, 1e6);
    let values = history.values("a -> b rate");
    assert!(values.len() <= VALUES_MAX && values.last() == Some(&1e6));
    let _ = history.forecast("a -> b rate");
}

/// Whatever was measured, it makes a network of these nodes.
pub fn fit(bytes: &[u8]) {
    let mut rest = bytes;
    let mut findings = Findings::default();
    while let [what, a, b, value @ ..] = rest {
        let number = value
            .first_chunk::<8>()
            .map_or(0.0, |it| f64::from_le_bytes(*it));
        rest = value.get(8..).unwrap_or(&[]);
        let (node, other) = (NodeId(u32::from(a % 5)), NodeId(u32::from(b % 5)));
        let (cluster, next) = (u32::from(a % 2), u32::from(b % 2));
        let of = match what % 9 {
            0 => Of::Path(node, other),
            1 => Of::Link(cluster, next),
            2 => Of::NodeOut(node),
            3 => Of::NodeIn(node),
            4 => Of::NodeAbroad(node),
            5 => Of::NodeFromAbroad(node),
            6 => Of::ClusterOut(cluster),
            7 => Of::ClusterIn(cluster),
            _ => {
                let nanos = number.to_bits();
                let time = Duration::from_nanos(nanos);
                findings.round_trips.insert((node, other), time);
                continue;
            }
        };
        if let Some(rate) = Rate::from_bytes_per_s(number) {
            findings.rates.insert(of, rate);
        }
    }
    let site = |name: &str, nodes: &[u32]| Site {
        name: name.to_owned(),
        nodes: nodes.iter().map(|node| NodeId(*node)).collect(),
    };
    let names: Vec<String> = (0..5).map(|node| format!("host{node}")).collect();
    let sites = [site("a", &[0, 1, 2]), site("b", &[3, 4])];
    match network(&sites, &names, &findings) {
        Ok(network) => assert_eq!(network.node_count(), 5),
        Err(error) => assert!(!error.to_string().is_empty()),
    }
}
