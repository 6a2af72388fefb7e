//! Prints what the longest messages of a hostile member cost a node, by protocol:
//! `cargo run --release -p outpour-protocols --example heaviest`.
//!
//! Every message is as long as a message may be, and of one of these shapes: lists of the same number, of
//! growing numbers, of pairs, and sets in pieces, behind every tag that a protocol may have.

#![allow(clippy::unwrap_used)]

use std::time::Duration;

use outpour_core::manifest::BLOCKS_MAX;
use outpour_core::{Batches, BlockSet, MESSAGE_BYTES_MAX, NodeId, Time};
use outpour_protocols::registry::{ENTRIES, Entry};
use outpour_protocols::{Actions, Event, Member, Protocol, Role, Setup};

/// Beyond the tags of all messages.
const TAGS: u8 = 16;

fn node(entry: &'static Entry) -> Box<dyn Protocol> {
    let member = |(node, cluster)| Member {
        cluster,
        role: Role::source_if(node == 5),
    };
    let mut have = BlockSet::new(BLOCKS_MAX);
    (0..BLOCKS_MAX).step_by(3).for_each(|block| {
        have.insert(block);
    });
    entry.by_default().build(Setup {
        me: NodeId(1),
        members: (0..).zip([0, 0, 1, 1, 2, 2]).map(member).collect(),
        block_bytes: 16 << 10,
        want: BlockSet::full(BLOCKS_MAX),
        have,
        seed: 3,
        plan: None,
        batches: entry.coding.map(|_| Batches::new(BLOCKS_MAX, 64).unwrap()),
    })
}

/// Processor time of this program so far; what else runs on the machine does not count.
fn cpu() -> Duration {
    let stat = std::fs::read_to_string("/proc/self/schedstat").unwrap();
    let nanoseconds = stat.split_whitespace().next().unwrap().parse().unwrap();
    Duration::from_nanos(nanoseconds)
}

fn varint(mut number: u32, out: &mut Vec<u8>) {
    while number >= 0x80 {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

/// A list of numbers, as many as fit.
fn list(of: impl Fn(u32) -> u32, numbers_each: u32) -> Vec<u8> {
    let mut items = Vec::new();
    let mut count = 0;
    while items.len() + 5 * numbers_each as usize + 16 < MESSAGE_BYTES_MAX {
        (0..numbers_each).for_each(|at| varint(of(count * numbers_each + at), &mut items));
        count += 1;
    }
    let mut body = Vec::new();
    varint(count, &mut body);
    body.extend(items);
    body
}

/// Bitmaps of which every second bit is set.
fn bitmaps(count: usize) -> Vec<u8> {
    let bytes = BLOCKS_MAX / 8;
    let mut body = Vec::new();
    for _ in 0..count {
        body.push(1);
        varint(bytes, &mut body);
        body.extend((0..bytes).map(|_| 0x55));
    }
    body
}

/// Runs, as many as a set may have.
fn runs(count: usize) -> Vec<u8> {
    let mut body = Vec::new();
    for _ in 0..count {
        body.push(0);
        varint(BLOCKS_MAX / 16, &mut body);
        (0..BLOCKS_MAX / 16).for_each(|_| body.extend([1, 1]));
    }
    body
}

fn main() {
    let shapes: Vec<(&str, Vec<u8>)> = vec![
        ("one block again and again", list(|_| 7, 1)),
        ("all blocks", list(|at| at, 1)),
        ("every third block", list(|at| 3 * at, 1)),
        ("pairs", list(|at| at % 2 + 1, 2)),
        ("pairs far apart", list(|at| at / 2 * 8 % BLOCKS_MAX, 2)),
        ("triples", list(|at| at / 3, 3)),
        ("one set", bitmaps(1)),
        ("two sets", bitmaps(2)),
        ("three sets", bitmaps(3)),
        ("runs, three times", runs(3)),
    ];
    let only: Vec<String> = std::env::args().skip(1).collect();
    let asked = |entry: &&Entry| only.is_empty() || only.iter().any(|name| name == entry.name);
    let none_before = |entry: &&Entry| !entry.plan.is_made_before();
    for entry in ENTRIES.iter().filter(none_before).filter(asked) {
        // First of the kind, then again.
        let mut worst = [(Duration::ZERO, 0, "", 0); 2];
        for tag in 0..TAGS {
            for (name, shape) in &shapes {
                for from in [NodeId(0), NodeId(3)] {
                    let mut node = node(entry);
                    let mut actions = Actions::default();
                    node.handle(Time::ZERO, Event::Start, &mut actions);
                    node.handle(Time::ZERO, Event::PeerUp(from), &mut actions);
                    actions.drain().for_each(drop);
                    let mut body = vec![tag];
                    body.extend(shape);
                    body.truncate(MESSAGE_BYTES_MAX);
                    for round in 0..2 {
                        let start = cpu();
                        let event = Event::Message { from, body: &body };
                        node.handle(Time::from_secs_f64(f64::from(round)), event, &mut actions);
                        let took = cpu() - start;
                        let worst = &mut worst[round as usize];
                        *worst = (*worst).max((took, tag, name, actions.drain().count()));
                    }
                }
            }
        }
        for (round, (took, tag, shape, actions)) in ["first", "again"].iter().zip(worst) {
            let ms = took.as_secs_f64() * 1e3;
            println!(
                "{:14} {round} {ms:8.1} ms: tag {tag}, {shape}; {actions} actions",
                entry.name
            );
        }
    }
}
