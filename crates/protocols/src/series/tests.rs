//! Consecutive multicasts among a few members, message by message.

#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::time::Duration;

use super::*;
use crate::registry::find;

const BLOCKS: u32 = 60;
const MESSAGE: Duration = Duration::from_millis(5);
const BLOCK: Duration = Duration::from_millis(2);

enum Due {
    Up(NodeId),
    Message(NodeId, Vec<u8>),
    Arrived(NodeId, u32, BlockId),
    Sent(NodeId, u32, BlockId),
    Timer(SeriesTimer),
}

/// Series joined by connections on which messages take 5 ms and blocks 2 ms more.
struct Lab {
    now: Time,
    series: Vec<Series>,
    have: Vec<Vec<BlockSet>>,
    queue: BTreeMap<(Time, u64), (usize, Due)>,
    count: u64,
    up: Vec<Vec<bool>>,
    arrivals: Vec<Vec<u32>>,
    received: Vec<u32>,
    flushed: Vec<u32>,
}

impl Lab {
    fn new(protocol: &str, clusters: &[u32]) -> Self {
        let entry = find(protocol).unwrap();
        let nodes = clusters.len();
        let series =
            |me: usize| Series::new(entry.by_default(), NodeId(me as u32), clusters.to_vec(), 7);
        Self {
            now: Time::ZERO,
            series: (0..nodes).map(series).collect(),
            have: vec![Vec::new(); nodes],
            queue: BTreeMap::new(),
            count: 0,
            up: vec![vec![false; nodes]; nodes],
            arrivals: vec![Vec::new(); nodes],
            received: vec![0; nodes],
            flushed: vec![0; nodes],
        }
    }

    fn later(&mut self, wait: Duration, node: NodeId, due: Due) {
        self.count += 1;
        self.queue
            .insert((self.now + wait, self.count), (node.index(), due));
    }

    fn begin(&mut self, node: usize, have: BlockSet, roots: &[u32]) {
        self.have[node].push(have.clone());
        self.arrivals[node].push(0);
        let multicast = Multicast {
            have,
            roots: roots.iter().map(|root| NodeId(*root)).collect(),
            block_bytes: 1024,
            plan: None,
        };
        let mut out = Vec::new();
        self.series[node]
            .begin(self.now, multicast, &mut out)
            .unwrap();
        self.perform(node, out);
    }

    fn handle(&mut self, node: usize, signal: Signal<'_>) {
        let mut out = Vec::new();
        self.series[node].handle(self.now, signal, &mut out);
        self.perform(node, out);
    }

    fn perform(&mut self, node: usize, out: Vec<Effect>) {
        let me = NodeId(node as u32);
        for effect in out {
            match effect {
                Effect::Connect(peer) => {
                    if !std::mem::replace(&mut self.up[node][peer.index()], true) {
                        self.up[peer.index()][node] = true;
                        self.later(MESSAGE, me, Due::Up(peer));
                        self.later(MESSAGE, peer, Due::Up(me));
                    }
                }
                Effect::Send { to, body } => self.later(MESSAGE, to, Due::Message(me, body)),
                Effect::SendBlock {
                    to,
                    operation,
                    block,
                } => {
                    assert!(self.have[node][operation as usize].contains(block));
                    self.later(BLOCK, me, Due::Sent(to, operation, block));
                    self.later(MESSAGE + BLOCK, to, Due::Arrived(me, operation, block));
                }
                Effect::SetTimer { timer, at } => {
                    self.later(at.since(self.now), me, Due::Timer(timer));
                }
                Effect::Received { operation } => {
                    assert_eq!(operation, self.received[node]);
                    self.received[node] += 1;
                }
                Effect::Flushed { operation } => {
                    assert_eq!(operation, self.flushed[node]);
                    self.flushed[node] += 1;
                }
                Effect::Disconnect(_) | Effect::Accuse { .. } | Effect::SetRate { .. } => {
                    panic!("{effect:?}")
                }
            }
        }
    }

    /// Lets things happen until nothing is left, or `stop` says so.
    fn run(&mut self, stop: impl Fn(&Self) -> bool) {
        while !stop(self) {
            let Some(((at, _), (node, due))) = self.queue.pop_first() else {
                return;
            };
            assert!(at < Time::from_secs_f64(60.0), "no end");
            self.now = at;
            match due {
                Due::Up(peer) => self.handle(node, Signal::PeerUp(peer)),
                Due::Message(from, body) => {
                    let body = body.as_slice();
                    self.handle(node, Signal::Message { from, body });
                }
                Due::Arrived(from, operation, block) => {
                    let fresh = self.have[node][operation as usize].insert(block);
                    self.arrivals[node][operation as usize] += 1;
                    let signal = Signal::Arrived {
                        from,
                        operation,
                        block,
                        fresh,
                    };
                    self.handle(node, signal);
                }
                Due::Sent(to, operation, block) => {
                    let signal = Signal::Sent {
                        to,
                        operation,
                        block,
                    };
                    self.handle(node, signal);
                }
                Due::Timer(timer) => self.handle(node, Signal::Timer(timer)),
            }
        }
    }
}

fn possession(node: usize, root: usize) -> BlockSet {
    if node == root {
        BlockSet::full(BLOCKS)
    } else {
        BlockSet::new(BLOCKS)
    }
}

/// Two multicasts with different roots; each node begins the second when it has the first.
#[test]
fn each_node_goes_on_when_it_has_everything() {
    for protocol in ["robber", "mob", "swarm"] {
        let mut lab = Lab::new(protocol, &[0, 0, 0, 1, 1, 1, 2]);
        for node in 0..7 {
            lab.begin(node, possession(node, 0), &[0]);
        }
        for node in 0..7 {
            lab.run(|lab| lab.received[node] == 1);
            assert_eq!(lab.received[node], 1, "{protocol}");
            lab.begin(node, possession(node, 4), &[4]);
        }
        lab.run(|_| false);
        assert_eq!(lab.received, [2; 7], "{protocol}");
        assert_eq!(lab.flushed, [2; 7], "{protocol}");
        for node in 0..7 {
            assert!(lab.have[node].iter().all(BlockSet::is_full));
        }
    }
}

/// Five operations with one root, two, and stripes, begun as early as each node may.
#[test]
fn roots_and_stripes_may_change_from_one_operation_to_the_next() {
    let stripe = |node: usize| {
        let mut have = BlockSet::new(BLOCKS);
        (0..BLOCKS)
            .filter(|block| *block as usize % 6 == node)
            .for_each(|block| {
                have.insert(block);
            });
        have
    };
    let have = |operation: u32, node: usize| match operation {
        0 => (possession(node, 5), vec![5]),
        1 if node == 1 || node == 4 => (BlockSet::full(BLOCKS), vec![1, 4]),
        1 => (BlockSet::new(BLOCKS), vec![1, 4]),
        2 | 3 => (stripe(node), vec![]),
        _ => (possession(node, 2), vec![2]),
    };
    let mut lab = Lab::new("robber", &[0, 0, 0, 1, 1, 1]);
    loop {
        let mut begun = false;
        for node in 0..6 {
            let next = lab.series[node].begun();
            if next < 5 && lab.received[node] == next {
                let (have, roots) = have(next, node);
                lab.begin(node, have, &roots);
                begun = true;
            }
        }
        let before = lab.received.clone();
        lab.run(|lab| lab.received != before);
        if !begun && lab.queue.is_empty() {
            break;
        }
    }
    assert_eq!(lab.received, [5; 6]);
    assert_eq!(lab.flushed, [5; 6]);
    for node in 0..6 {
        let sent_twice = lab.arrivals[node].iter().zip([60, 60, 50, 50, 60]);
        assert!(
            sent_twice.clone().all(|(got, most)| *got <= most),
            "{:?}",
            lab.arrivals[node]
        );
    }
}

#[test]
fn what_is_said_of_operations_to_come_is_kept_and_bounded() {
    let entry = find("robber").unwrap();
    let mut series = Series::new(entry.by_default(), NodeId(0), vec![0, 0], 1);
    let mut out = Vec::new();
    series.handle(Time::ZERO, Signal::PeerUp(NodeId(1)), &mut out);
    let frame = |operation, body: &[u8]| crate::encode(&Frame::Inner { operation, body });
    let mut hear = |body: &[u8]| {
        let mut out = Vec::new();
        let from = NodeId(1);
        series.handle(Time::ZERO, Signal::Message { from, body }, &mut out);
        out
    };
    assert_eq!(hear(&frame(0, &[8])), []);
    assert_eq!(hear(&frame(AHEAD_MAX - 1, &[8])), []);
    let accused = |out: Vec<Effect>| matches!(out[..], [Effect::Accuse { .. }]);
    assert!(accused(hear(&frame(AHEAD_MAX, &[8]))));
    assert!(accused(hear(&frame(u32::MAX, &[8]))));
    assert!(accused(hear(&[9, 9, 9])));
    let long = vec![0; crate::MESSAGE_BYTES_MAX / 2];
    let kept = (0..100).take_while(|_| !accused(hear(&frame(1, &long))));
    assert_eq!(
        kept.count(),
        2 * KEPT_BYTES_MAX / crate::MESSAGE_BYTES_MAX - 1
    );
    let mut flood = (0..=KEPT_MAX).map(|_| hear(&frame(0, &[8])));
    assert!(flood.any(accused));
}

#[test]
fn operations_begin_in_order() {
    let entry = find("mob").unwrap();
    let mut series = Series::new(entry.by_default(), NodeId(0), vec![0, 1], 1);
    let multicast = |have| Multicast {
        have,
        roots: vec![],
        block_bytes: 1,
        plan: None,
    };
    let mut out = Vec::new();
    let full = || multicast(BlockSet::full(3));
    for number in 0..AHEAD_MAX {
        assert_eq!(series.begin(Time::ZERO, full(), &mut out), Ok(number));
        assert!(out.contains(&Effect::Received { operation: number }));
    }
    let error = series.begin(Time::ZERO, full(), &mut out).unwrap_err();
    assert_eq!(error, BeginError::TooFarAhead { oldest: 0 });
    series.handle(Time::ZERO, Signal::Left(NodeId(1)), &mut out);
    let last = AHEAD_MAX - 1;
    assert!(out.contains(&Effect::Flushed { operation: last }));
    let empty = multicast(BlockSet::new(3));
    assert_eq!(series.begin(Time::ZERO, empty, &mut out), Ok(AHEAD_MAX));
    let error = series.begin(Time::ZERO, full(), &mut out).unwrap_err();
    assert!(matches!(error, BeginError::Unfinished { missing: 3, .. }));
}

/// Sets a rate as soon as a peer is up, and says so when it hears what that came to.
struct Pacer;

impl Protocol for Pacer {
    fn handle(&mut self, _: Time, event: Event<'_>, out: &mut Actions) {
        match event {
            Event::PeerUp(to) => out.push(Action::SetRate {
                to,
                rate: Rate::ZERO,
            }),
            Event::Achieved { to, .. } => out.send(to, &()),
            _ => {}
        }
    }
}

#[test]
fn operations_share_the_rate_of_a_link() {
    static PACER: crate::registry::Entry = crate::registry::Entry {
        name: "pacer",
        about: "sets a rate",
        baseline: true,
        plan: crate::registry::PlanFrom::Nowhere,
        selective: false,
        coding: None,
        block_size: crate::registry::USUAL_BLOCKS,
        takes: crate::registry::NO_OPTIONS,
        promise: crate::promise::Promise::NEVER,
        build: |_, _| Box::new(Pacer) as Box<dyn Protocol>,
    };
    let (now, to) = (Time::ZERO, NodeId(1));
    let mut series = Series::new(PACER.by_default(), NodeId(0), vec![0, 0], 7);
    let multicast = || Multicast {
        have: BlockSet::full(BLOCKS),
        roots: vec![NodeId(0)],
        block_bytes: 1024,
        plan: None,
    };
    let rates = |out: Vec<Effect>| {
        let rate = |effect| match effect {
            Effect::SetRate { to, rate } => Some((to, rate)),
            _ => None,
        };
        out.into_iter().filter_map(rate).collect::<Vec<_>>()
    };
    let mut out = Vec::new();
    series.begin(now, multicast(), &mut out).unwrap();
    series.handle(now, Signal::PeerUp(to), &mut out);
    assert_eq!(rates(out), [(to, Rate::ZERO)]);
    let mut out = Vec::new();
    series.begin(now, multicast(), &mut out).unwrap();
    assert_eq!(rates(out), [], "it is the rate of the link already");
    assert_eq!(series.limited(), [to]);
    let (rate, mut out) = (Rate::ZERO, Vec::new());
    series.handle(now, Signal::Achieved { to, rate }, &mut out);
    assert_eq!(out.len(), 2, "{out:?}");
    let mut out = Vec::new();
    series.handle(now, Signal::PeerDown(to), &mut out);
    assert_eq!(rates(out), [(to, Rate::UNLIMITED)]);
    assert_eq!(series.limited(), []);
}
