//! What cannot be simulated is refused with a reason; what breaks a contract is found.

use outpour_core::network::Network;
use outpour_core::plan::{Plan, Tree};
use outpour_core::script::Script;
use outpour_core::{BlockSet, Bytes, NodeId, Time};
use outpour_protocols::promise::Promise;
use outpour_protocols::registry::{self, Entry};
use outpour_protocols::{
    Action, Actions, Event, MESSAGE_BYTES_MAX, Protocol, SEND_QUEUE_MAX, Setup,
};
use outpour_sim::cast::{CastConfig, CastError, simulate};
use outpour_sim::object::Object;
use outpour_sim::world::{Scenario, World};

use super::{MIB, asked, cast, star, terms};

#[test]
fn nonsense_is_refused_with_a_reason() {
    let refused = |config: CastConfig| simulate(config).unwrap_err().to_string();
    let message = refused(CastConfig {
        asked: asked("chain", 0),
        ..cast(star(3), "chain", 1)
    });
    assert!(message.contains("cannot be cut into blocks"), "{message}");
    let message = refused(CastConfig {
        sources: vec![NodeId(9)],
        ..cast(star(3), "chain", 1)
    });
    assert!(message.contains("not in the network"), "{message}");
    let one_way = r#"
        cluster = [{ name = "A", nodes = 1 }, { name = "B", nodes = 1 }]
        link = [{ from = "A", to = "B", rate = "1 MB/s" }]
    "#;
    let network = Network::from_toml(one_way, "one.toml").unwrap();
    let error = simulate(cast(network, "chain", 1)).unwrap_err();
    assert!(matches!(error, CastError::OneWay { .. }), "{error}");
}

#[test]
fn plans_and_scripts_that_do_not_fit_are_refused() {
    let refused = |config: CastConfig| simulate(config).unwrap_err().to_string();
    assert_eq!(
        refused(cast(star(3), "tree", 1)),
        "protocol `tree` executes a plan: name the file that `outpour plan multicast --output` \
         writes with --plan"
    );
    let plan = |root: u32, edges: &[(u32, u32)]| Plan {
        roots: vec![NodeId(root)],
        trees: vec![Tree {
            rate: "1 MB/s".parse().unwrap(),
            edges: edges
                .iter()
                .map(|(a, b)| (NodeId(*a), NodeId(*b)))
                .collect(),
        }],
    };
    let with = |protocol: &str, plan: Plan| {
        let mut config = cast(star(3), protocol, 1);
        config.asked.plan = Some(plan);
        config
    };
    assert_eq!(
        refused(with("swarm", plan(0, &[(0, 1), (1, 2)]))),
        "protocol `swarm` does not execute a plan from a file; `tree` does"
    );
    let message = refused(with("tree", plan(0, &[(0, 1)])));
    assert!(
        message.contains("tree 0 does not reach node n2"),
        "{message}"
    );
    assert_eq!(
        refused(with("tree", plan(1, &[(1, 0), (1, 2)]))),
        "the plan begins at node n1, which is no source"
    );
    let message = refused(CastConfig {
        believed: Some(star(4)),
        ..cast(star(3), "balanced", 1)
    });
    assert!(message.contains("differs in its nodes"), "{message}");
    let script = Script::parse("sleep 1 s\nsetBandwidth x y 1 MB/s\n", "slow.script").unwrap();
    let message = refused(CastConfig {
        script: Some(script),
        ..cast(star(3), "chain", 1)
    });
    assert!(message.starts_with("slow.script:2: "), "{message}");
}

#[test]
fn auto_chooses_a_protocol() {
    assert_eq!(
        simulate(cast(star(2), "auto", 10)).unwrap().protocol,
        "direct"
    );
    assert_eq!(
        simulate(cast(star(9), "auto", 800)).unwrap().protocol,
        "chain"
    );
    assert_eq!(
        simulate(cast(star(9), "auto", 20)).unwrap().protocol,
        "swarm"
    );
}

/// Does one wrong thing as soon as a peer is up.
struct Rogue(fn(NodeId, &mut Actions));

impl Protocol for Rogue {
    fn handle(&mut self, _: Time, event: Event<'_>, out: &mut Actions) {
        match event {
            Event::Start => out.push(Action::Connect(NodeId(1))),
            Event::PeerUp(peer) => (self.0)(peer, out),
            _ => {}
        }
    }
}

struct Idle;

impl Protocol for Idle {
    fn handle(&mut self, _: Time, _: Event<'_>, _: &mut Actions) {}
}

macro_rules! rogue {
    ($act:expr) => {{
        static ENTRY: Entry = Entry {
            name: "rogue",
            about: "breaks the contract",
            baseline: true,
            plan: registry::PlanFrom::Nowhere,
            selective: false,
            coding: None,
            block_size: registry::USUAL_BLOCKS,
            takes: registry::NO_OPTIONS,
            promise: Promise::NEVER,
            build: |setup: Setup, _| match setup.me {
                NodeId(0) => Box::new(Rogue($act)) as Box<dyn Protocol>,
                _ => Box::new(Idle),
            },
        };
        violations(&ENTRY)
    }};
}

/// What is found wrong with a protocol in a world of two nodes and 100 blocks.
fn violations(protocol: &'static Entry) -> Vec<String> {
    let object = Object::new(Bytes(100 * MIB), Bytes(MIB), 1).unwrap();
    let mut have = vec![BlockSet::full(100), BlockSet::new(100)];
    have[0].remove(99);
    let mut world = World::new(Scenario {
        network: star(2),
        terms: terms(protocol.by_default(), 2, 1),
        have,
        want: Vec::new(),
        starts: Vec::new(),
        batches: None,
        object,
        timeline: None,
        orders: Vec::new(),
        faults: Vec::new(),
        patience: None,
        checked: true,
        sink: None,
    });
    while world.step(Time::from_secs_f64(60.0)) {}
    world
        .audit()
        .violations()
        .iter()
        .map(|violation| violation.what.clone())
        .collect()
}

fn send(to: NodeId, block: u32, out: &mut Actions) {
    out.push(Action::SendBlock { to, block });
}

#[test]
fn broken_contracts_are_found() {
    let lacking = rogue!(|peer, out| send(peer, 99, out));
    assert_eq!(lacking, ["sends block 99, which it lacks"]);
    let flood = rogue!(|peer, out| (0..=SEND_QUEUE_MAX as u32).for_each(|b| send(peer, b, out)));
    assert_eq!(flood, ["more than 64 blocks to n1"]);
    let long = rogue!(|to, out| out.push(Action::Send {
        to,
        body: vec![0; MESSAGE_BYTES_MAX + 1]
    }));
    assert_eq!(
        long,
        [format!("a message of {} bytes", MESSAGE_BYTES_MAX + 1)]
    );
    let stranger = rogue!(|_, out| out.push(Action::Connect(NodeId(2))));
    assert_eq!(stranger, ["names n2 as a peer"]);
    let slander = rogue!(|peer, out| out.push(Action::Accuse {
        peer,
        offence: "was seen dancing"
    }));
    assert_eq!(slander, ["accuses n1: it was seen dancing"]);
}

#[test]
fn kept_contracts_are_left_alone() {
    let full = rogue!(|peer, out| (0..SEND_QUEUE_MAX as u32).for_each(|b| send(peer, b, out)));
    assert!(full.is_empty(), "{full:?}");
    let longest = rogue!(|to, out| out.push(Action::Send {
        to,
        body: vec![0; MESSAGE_BYTES_MAX]
    }));
    assert!(longest.is_empty(), "{longest:?}");
}
