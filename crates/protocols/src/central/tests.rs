//! Whom a node obeys, and what it tells a leader.

#![allow(clippy::unwrap_used, clippy::single_range_in_vec_init)]

use std::ops::Range;
use std::sync::Arc;

use outpour_controller::JobId;
use outpour_core::Rate;
use outpour_core::plan::{Plan, Tree};

use super::*;
use crate::Member;

/// Two sources, and two receivers of which one is the node in question.
const SOURCES: [NodeId; 2] = [NodeId(0), NodeId(3)];
const ME: NodeId = NodeId(1);
const OTHER: NodeId = NodeId(2);
const BLOCKS: u32 = 8;

/// The node, which has half of the blocks.
struct Bed {
    node: Central,
    now: Time,
    /// What it did at the start.
    started: Vec<Action>,
}

impl Bed {
    /// These are up and have been heard.
    fn new(up: &[NodeId]) -> Self {
        Self::of(BlockSet::full(BLOCKS), None, up)
    }

    /// The same under a rule, in a network of a site for each, joined at 1.2 MB/s.
    fn separated(rule: Separation) -> Self {
        let site = |name| format!("[[cluster]]\nname = \"{name}\"\nnodes = 1\n");
        let sites = ["a", "b", "c", "d"].map(site).concat();
        let link = "[[link]]\nfrom = \"*\"\nto = \"*\"\nrate = \"1200 kB/s\"\n";
        let options = CentralOptions {
            network: sites + link,
            nodes: (0..4).map(NodeId).collect(),
            cycle_ms: 0,
            separation: Some(rule),
        };
        assert!(options.is_sound());
        Self::with(options, BlockSet::full(BLOCKS), None, &[])
    }

    /// Up to a plan in which it passes on to the other receiver what comes from the first source.
    fn planned(up: &[NodeId]) -> Self {
        let tree = Tree {
            rate: Rate::from_bytes_per_s(1e6).unwrap(),
            edges: vec![(SOURCES[0], ME), (ME, OTHER)],
        };
        let plan = Plan {
            roots: SOURCES.to_vec(),
            trees: vec![tree],
        };
        Self::of(BlockSet::full(BLOCKS), Some(plan), up)
    }

    /// The same of a node that wants these blocks: none if it is a relay.
    fn of(want: BlockSet, plan: Option<Plan>, up: &[NodeId]) -> Self {
        Self::with(CentralOptions::default(), want, plan, up)
    }

    fn with(options: CentralOptions, want: BlockSet, plan: Option<Plan>, up: &[NodeId]) -> Self {
        let member = |node| Member {
            cluster: node,
            role: Role::source_if(SOURCES.contains(&NodeId(node))),
        };
        let mut have = BlockSet::new(BLOCKS);
        have.insert_range(0..BLOCKS / 2);
        let setup = Setup {
            me: ME,
            members: (0..4).map(member).collect(),
            block_bytes: 1024,
            have,
            want,
            seed: 1,
            plan: plan.map(Arc::new),
            batches: None,
        };
        let mut bed = Self {
            node: Central::new(setup, options),
            now: Time::ZERO,
            started: Vec::new(),
        };
        bed.started = bed.happens(Event::Start);
        for node in up {
            bed.happens(Event::PeerUp(*node));
            bed.hears(*node, &Message::Hello);
        }
        bed
    }

    fn happens(&mut self, event: Event<'_>) -> Vec<Action> {
        let mut out = Actions::default();
        self.node.handle(self.now, event, &mut out);
        out.drain().collect()
    }

    fn hears(&mut self, from: NodeId, message: &Message) -> Vec<Action> {
        let body = postcard::to_stdvec(message).unwrap();
        self.happens(Event::Message { from, body: &body })
    }
}

/// An order to send blocks to a node.
fn order(epoch: u64, to: NodeId, add: Range<BlockId>) -> Message {
    let send = Change::Send {
        job: JobId(0),
        to,
        rate: Rate::UNLIMITED,
        most: Rate::UNLIMITED,
        drop: Vec::new(),
        add: vec![add],
    };
    Message::Order {
        epoch,
        whole: false,
        changes: vec![send],
    }
}

fn sends(actions: &[Action]) -> Vec<BlockId> {
    let block = |action: &Action| match action {
        Action::SendBlock { block, .. } => Some(*block),
        _ => None,
    };
    actions.iter().filter_map(block).collect()
}

fn accused(actions: &[Action]) -> Vec<NodeId> {
    let peer = |action: &Action| match action {
        Action::Accuse { peer, .. } => Some(*peer),
        _ => None,
    };
    actions.iter().filter_map(peer).collect()
}

/// The reports among what a node says to another.
fn reports(actions: &[Action], leader: NodeId) -> Vec<Report> {
    let report = |action: &Action| match action {
        Action::Send { to, body } if *to == leader => match postcard::from_bytes(body) {
            Ok(Message::Report(report)) => Some(report),
            _ => None,
        },
        _ => None,
    };
    actions.iter().filter_map(report).collect()
}

#[test]
fn only_the_leader_gives_orders_and_only_in_its_epoch() {
    let mut bed = Bed::new(&[SOURCES[0], OTHER, SOURCES[1]]);
    bed.hears(SOURCES[0], &Message::Lead { epoch: 1 });
    for (from, epoch) in [(SOURCES[1], 1), (OTHER, 1), (SOURCES[0], 2)] {
        let actions = bed.hears(from, &order(epoch, OTHER, 0..2));
        assert_eq!(sends(&actions), [], "{from} in epoch {epoch}");
    }
    let actions = bed.hears(SOURCES[0], &order(1, OTHER, 0..2));
    assert_eq!(sends(&actions), [0, 1]);
}

#[test]
fn a_leader_of_an_old_epoch_is_told_and_not_obeyed() {
    let mut bed = Bed::new(&[SOURCES[0], OTHER, SOURCES[1]]);
    bed.hears(SOURCES[1], &Message::Lead { epoch: 4 });
    let actions = bed.hears(SOURCES[0], &Message::Lead { epoch: 1 });
    let told = reports(&actions, SOURCES[0]);
    let epochs: Vec<u64> = told.iter().map(|report| report.epoch).collect();
    assert_eq!(epochs, [4], "it should know that it is not the last");
    let actions = bed.hears(SOURCES[0], &order(1, OTHER, 0..2));
    assert_eq!(sends(&actions), []);
    let actions = bed.hears(SOURCES[1], &order(4, OTHER, 0..2));
    assert_eq!(sends(&actions), [0, 1]);
}

#[test]
fn who_is_no_source_cannot_lead() {
    let mut bed = Bed::new(&[SOURCES[0], OTHER]);
    let actions = bed.hears(OTHER, &Message::Lead { epoch: 1 });
    assert_eq!(accused(&actions), [OTHER]);
    assert_eq!(sends(&bed.hears(OTHER, &order(1, SOURCES[0], 0..2))), []);
}

#[test]
fn impossible_orders_are_accused() {
    let wrong = [
        order(1, ME, 0..2),
        order(1, NodeId(4), 0..2),
        order(1, OTHER, 0..BLOCKS + 1),
    ];
    for order in wrong {
        let mut bed = Bed::new(&[SOURCES[0], OTHER]);
        bed.hears(SOURCES[0], &Message::Lead { epoch: 1 });
        let actions = bed.hears(SOURCES[0], &order);
        assert_eq!(accused(&actions), [SOURCES[0]], "{order:?}");
        assert_eq!(sends(&actions), []);
    }
}

#[test]
fn the_leader_hears_of_nodes_that_cannot_be_reached() {
    let mut bed = Bed::new(&[SOURCES[0]]);
    bed.hears(SOURCES[0], &Message::Lead { epoch: 1 });
    bed.hears(SOURCES[0], &order(1, OTHER, 0..2));
    let calls = |action: &Action| matches!(action, Action::Connect(node) if *node == OTHER);
    assert!(bed.started.iter().any(calls), "it is called first");
    let mut said = Vec::new();
    for _ in 0..10 {
        bed.now += TICK;
        let mut actions = bed.happens(Event::Timer(TICKER));
        actions.extend(bed.happens(Event::Timer(REPORTER)));
        let severed = reports(&actions, SOURCES[0]).into_iter();
        said.extend(severed.flat_map(|report| report.severed));
    }
    assert_eq!(said, [OTHER], "once");
}

#[test]
fn the_first_receivers_of_sites_call_each_other_at_the_start() {
    // Sites of two: a source and a receiver, and twice two receivers.
    let called = |me: u32| -> Vec<NodeId> {
        let member = |node: u32| Member {
            cluster: node / 2,
            role: Role::source_if(node == 0),
        };
        let setup = Setup {
            me: NodeId(me),
            members: (0..6).map(member).collect(),
            block_bytes: 1024,
            have: BlockSet::new(BLOCKS),
            want: BlockSet::full(BLOCKS),
            seed: 1,
            plan: None,
            batches: None,
        };
        let mut node = Central::new(setup, CentralOptions::default());
        let mut out = Actions::default();
        node.handle(Time::ZERO, Event::Start, &mut out);
        let called = out.drain().filter_map(|action| match action {
            Action::Connect(to) => Some(to),
            _ => None,
        });
        called.collect()
    };
    let abroad = |me: u32| -> Vec<u32> {
        let others = called(me).into_iter().map(|node| node.0);
        others
            .filter(|node| *node != 0 && node / 2 != me / 2)
            .collect()
    };
    assert_eq!(abroad(1), [2, 4]);
    assert_eq!(abroad(2), [4]);
    assert_eq!(abroad(3), []);
    assert_eq!(abroad(4), [], "it is called by the others");
}

#[test]
fn an_order_ends_the_need_of_a_receiver_and_not_that_of_a_relay() {
    for (want, stays) in [
        (BlockSet::full(BLOCKS), false),
        (BlockSet::new(BLOCKS), true),
    ] {
        let mut bed = Bed::of(want, None, &[SOURCES[0], OTHER]);
        bed.hears(SOURCES[0], &Message::Lead { epoch: 1 });
        bed.node.need(bed.now, &mut Actions::default());
        assert!(bed.node.robs());
        bed.hears(SOURCES[0], &order(1, OTHER, 0..2));
        assert_eq!(bed.node.robs(), stays, "a relay fetches for others");
    }
}

#[test]
fn a_node_reports_to_the_first_source_before_it_is_told_that_it_leads() {
    let mut bed = Bed::new(&[]);
    let whole = |actions: &[Action], leader| -> Vec<(u64, u64)> {
        let reports = reports(actions, leader).into_iter();
        let whole = reports.filter(|report| report.whole);
        whole.map(|report| (report.epoch, report.seq)).collect()
    };
    let meets = |bed: &mut Bed, node| bed.happens(Event::PeerUp(node));
    assert_eq!(whole(&meets(&mut bed, SOURCES[1]), SOURCES[1]), []);
    assert_eq!(whole(&meets(&mut bed, OTHER), OTHER), []);
    let first = SOURCES[0];
    assert_eq!(whole(&meets(&mut bed, first), first), [(1, 1)]);
    // Told so, it has said everything; asked once more, it says everything again.
    let lead = Message::Lead { epoch: 1 };
    assert_eq!(whole(&bed.hears(first, &lead), first), []);
    assert_eq!(sends(&bed.hears(first, &order(1, OTHER, 0..2))), []);
    assert_eq!(whole(&bed.hears(first, &lead), first), [(1, 1)]);
    // It obeys another leader, and presumes nothing any more.
    let later = Message::Lead { epoch: 2 };
    assert_eq!(whole(&bed.hears(SOURCES[1], &later), SOURCES[1]), [(2, 1)]);
    bed.happens(Event::PeerDown(first));
    assert_eq!(whole(&meets(&mut bed, first), first), []);
}

/// Whether a node is told that there is no plan any more.
fn ends(actions: &[Action], node: NodeId) -> bool {
    let ends = |action: &Action| match action {
        Action::Send { to, body } if *to == node => {
            matches!(postcard::from_bytes(body), Ok(Message::Unplanned))
        }
        _ => false,
    };
    actions.iter().any(ends)
}

#[test]
fn a_plan_that_ends_for_one_ends_for_all() {
    let up = [SOURCES[0], OTHER];
    let mut bed = Bed::planned(&up);
    assert!(bed.node.planned.is_some());
    let actions = bed.hears(OTHER, &Message::Unplanned);
    assert!(bed.node.planned.is_none());
    for node in up {
        assert!(ends(&actions, node), "{node} is not told");
    }
    // Nobody hears it twice; who comes later hears it, too.
    assert!(!ends(&bed.hears(SOURCES[0], &Message::Unplanned), OTHER));
    let actions = bed.happens(Event::PeerUp(SOURCES[1]));
    assert!(ends(&actions, SOURCES[1]));
    // What is ordered is sent from now on.
    bed.hears(SOURCES[0], &Message::Lead { epoch: 1 });
    let actions = bed.hears(SOURCES[0], &order(1, OTHER, 0..2));
    assert_eq!(sends(&actions), [0, 1]);
}

#[test]
fn without_a_leader_a_plan_goes_on_as_long_as_it_brings_blocks() {
    let ended = |blocks: u64| {
        let mut bed = Bed::planned(&[OTHER]);
        let mut halves = 1..20;
        halves.find(|half| {
            bed.now = Time(half * 500_000_000);
            // One a second.
            if half % 2 == 0 && half / 2 <= blocks {
                let block = BLOCKS / 2 + (half / 2) as u32 - 1;
                let (from, fresh) = (SOURCES[0], true);
                bed.happens(Event::Arrived { from, block, fresh });
            }
            ends(&bed.happens(Event::Timer(TICKER)), OTHER)
        })
    };
    assert_eq!(ended(0), Some(6), "three seconds without anything");
    assert_eq!(ended(2), Some(10), "three seconds after the last block");
    assert_eq!(ended(4), None, "it has everything");
}

/// The last rate that is set towards a node, kB/s.
fn rate_to(node: NodeId, actions: &[Action]) -> Option<f64> {
    let rate = |action: &Action| match action {
        Action::SetRate { to, rate } if *to == node => Some((rate.bytes_per_s() / 1e3).round()),
        _ => None,
    };
    actions.iter().rev().find_map(rate)
}

#[test]
fn what_moves_without_an_order_leaves_room_as_well() {
    let mut bed = Bed::separated(Separation::default());
    let met = bed.happens(Event::PeerUp(OTHER));
    assert_eq!(rate_to(OTHER, &met), None, "it is sent nothing");
    bed.happens(Event::PeerUp(SOURCES[0]));
    bed.hears(OTHER, &Message::Hello);
    let measured = |kb: f64| Message::Traffic {
        traffic: vec![Traffic {
            from: outpour_core::network::ClusterId(ME.0),
            to: outpour_core::network::ClusterId(OTHER.0),
            rate: Rate::from_bytes_per_s(kb * 1e3).unwrap(),
            peak: Rate::from_bytes_per_s(kb * 1e3).unwrap(),
        }],
    };
    // A lane is as fast as it was ordered to be, also when it is late.
    bed.hears(SOURCES[0], &Message::Hello);
    bed.hears(SOURCES[0], &Message::Lead { epoch: 1 });
    let send = |rate: f64| Change::Send {
        job: JobId(0),
        to: OTHER,
        rate: Rate::from_bytes_per_s(rate * 1e3).unwrap(),
        most: Rate::from_bytes_per_s(rate * 1e3).unwrap(),
        drop: Vec::new(),
        add: vec![0..2],
    };
    let end = |done| Change::End {
        job: JobId(0),
        to: OTHER,
        done,
    };
    let ordered = |changes| Message::Order {
        epoch: 1,
        whole: false,
        changes,
    };
    let lane = bed.hears(SOURCES[0], &ordered(vec![send(300.0)]));
    assert_eq!(rate_to(OTHER, &lane), Some(300.0));
    let late = bed.hears(SOURCES[0], &ordered(vec![end(true)]));
    assert_eq!(rate_to(OTHER, &late), Some(300.0));
    assert_eq!(
        rate_to(OTHER, &bed.hears(SOURCES[0], &measured(560.0))),
        None
    );
    // It is over, but what is with the driver still leaves: 80 % of the link less what was measured, and a
    // twentieth of that for headers.
    let over = bed.hears(SOURCES[0], &ordered(vec![end(false)]));
    assert_eq!(rate_to(OTHER, &over), Some(380.0));
    let told = bed.hears(SOURCES[0], &measured(460.0));
    assert_eq!(rate_to(OTHER, &told), Some(475.0));
    let sent = |block| Event::Sent { to: OTHER, block };
    assert_eq!(rate_to(OTHER, &bed.happens(sent(0))), None);
    // What else goes to that peer must not keep to that.
    let last = bed.happens(sent(1));
    assert_eq!(rate_to(OTHER, &last), Some(f64::INFINITY));
    let told = bed.hears(SOURCES[0], &measured(560.0));
    assert_eq!(rate_to(OTHER, &told), None);
    // Only sources know what was measured.
    let lied = bed.hears(OTHER, &measured(0.0));
    assert_eq!(accused(&lied), [OTHER]);
    assert_eq!(rate_to(OTHER, &lied), None);
}

#[test]
fn a_rule_for_other_members_is_no_harm() {
    let options = CentralOptions {
        nodes: (0..2).map(NodeId).collect(),
        ..Bed::separated(Separation::default()).node.options
    };
    let mut bed = Bed::with(options, BlockSet::full(BLOCKS), None, &SOURCES);
    let none = Message::Traffic {
        traffic: Vec::new(),
    };
    assert_eq!(accused(&bed.hears(SOURCES[0], &none)), []);
}

#[test]
fn without_a_rule_nobody_is_told_of_traffic() {
    let mut bed = Bed::new(&SOURCES);
    let none = Message::Traffic {
        traffic: Vec::new(),
    };
    assert_eq!(accused(&bed.hears(SOURCES[0], &none)), [SOURCES[0]]);
    assert_eq!(bed.happens(Event::Foreground(&[])), []);
}
