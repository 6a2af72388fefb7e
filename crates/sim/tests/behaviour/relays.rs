//! Nodes that want some blocks, or none and pass on what others want.

use outpour_core::blocks::{Want, WireBlocks};
use outpour_core::network::{ClusterId, Network};
use outpour_core::{BlockSet, NodeId, Time};
use outpour_protocols::registry::{Configured, PlanFrom};
use outpour_protocols::{Member, Role};
use outpour_sim::cast::{CastConfig, SimReport, simulate};
use outpour_sim::fault::{Fault, FaultKind};
use outpour_sim::object::Object;
use outpour_sim::world::{Scenario, World};
use outpour_terms::Terms;

use super::{MIB, by_name, cast, star};

const SELECTIVE: [&str; 4] = ["direct", "chain", "swarm", "central"];

/// Two sites with a slow link between them, and a third on the way round.
fn roundabout() -> Network {
    let text = r#"
        [[cluster]]
        name = "from"
        members = ["source"]
        node_out = "10 MB/s"

        [[cluster]]
        name = "to"
        members = ["receiver"]
        node_in = "10 MB/s"

        [[cluster]]
        name = "via"
        members = ["relay"]

        [[link]]
        from = "*"
        to = "*"
        rate = "20 MB/s"
        delay = "5 ms"

        [[link]]
        from = "from"
        to = "to"
        both = true
        rate = "1 MB/s"
    "#;
    Network::from_toml(text, "drawn").unwrap()
}

fn by_way_of_a_relay(protocol: &str) -> SimReport {
    let network = roundabout();
    let config = CastConfig {
        relays: vec![network.node("relay").unwrap()],
        sources: vec![network.node("source").unwrap()],
        ..cast(network, protocol, 400)
    };
    simulate(config).unwrap()
}

#[test]
fn a_relay_is_a_way_round_a_slow_link() {
    let least = 400.0 * MIB as f64 / 10e6;
    for protocol in ["swarm", "auto", "central"] {
        let report = by_way_of_a_relay(protocol);
        assert_eq!(report.nodes.len(), 1, "{protocol}");
        assert!(
            (0.99..1.01).contains(&(report.limit_s / least)),
            "{}",
            report.limit_s
        );
        assert!(report.ratio < 1.2, "{protocol}: {}", report.ratio);
    }
    // Nodes that can ask only the source make do with the slow link.
    assert!(by_way_of_a_relay("direct").ratio > 9.0);
}

/// What the source's own site still lacks does not keep relays from what another site lacks, and each of
/// two relays brings other blocks.
#[test]
fn relays_between_sites_carry_what_their_links_do() {
    let site = |name: &str, nodes: u32| {
        format!(
            "[[cluster]]\nname = \"{name}\"\nnodes = {nodes}\nnode_out = \"120 MB/s\"\nnode_in = \"120 MB/s\"\n"
        )
    };
    let link = "[[link]]\nfrom = \"*\"\nto = \"*\"\nrate = \"20 MB/s\"\ndelay = \"20 ms\"\n";
    let text = site("a", 4) + &site("b", 4) + &site("c", 2) + &site("d", 2) + link;
    let network = Network::from_toml(&text, "drawn").unwrap();
    let named = |names: &[&str]| {
        names
            .iter()
            .map(|name| network.node(name).unwrap())
            .collect()
    };
    let seconds = |protocol: &str| {
        let config = CastConfig {
            relays: named(&["c0", "c1", "d0", "d1"]),
            sources: named(&["a0"]),
            ..cast(network.clone(), protocol, 600)
        };
        let report = simulate(config).unwrap();
        assert!((10.4..10.6).contains(&report.limit_s), "{}", report.limit_s);
        (report.protocol, report.ratio)
    };
    let (_, ratio) = seconds("central");
    assert!(ratio < 1.2, "{ratio} of the limit");
    // So `auto` chooses it; in a swarm blocks pass these links again and again.
    assert_eq!(seconds("auto").0, "central");
    assert!(seconds("swarm").1 > 1.5);
}

#[test]
fn protocols_that_bring_everybody_everything_take_no_relays() {
    let config = CastConfig {
        relays: vec![NodeId(3)],
        ..cast(star(4), "mob", 40)
    };
    let error = simulate(config).unwrap_err().to_string();
    assert!(
        error.starts_with(
            "protocol `mob` takes no relays, because it sends every block to every node"
        ),
        "{error}"
    );
}

/// Plays until all have what they want, and some time more.
fn play(protocol: &str, roles: &[Role], want: Vec<Want>) -> World {
    let network = star(roles.len() as u32);
    play_in(
        network,
        by_name(protocol).unwrap().by_default(),
        roles,
        want,
    )
}

fn play_in(network: Network, protocol: Configured, roles: &[Role], want: Vec<Want>) -> World {
    let name = protocol.entry().name;
    let blocks = 100;
    let member = |(node, role): (NodeId, &Role)| Member {
        cluster: network.cluster_of(node).0,
        role: *role,
    };
    let have = |role: &Role| match role {
        Role::Source => BlockSet::full(blocks),
        _ => BlockSet::new(blocks),
    };
    let terms = Terms::new(
        protocol,
        network.nodes().zip(roles).map(member).collect(),
        1,
    );
    let mut world = World::new(Scenario {
        network,
        terms,
        have: roles.iter().map(have).collect(),
        want,
        starts: Vec::new(),
        object: Object::new(
            outpour_core::Bytes(u64::from(blocks) * MIB),
            outpour_core::Bytes(MIB),
            1,
        )
        .unwrap(),
        batches: None,
        faults: Vec::new(),
        timeline: None,
        orders: Vec::new(),
        patience: None,
        checked: true,
        sink: None,
    });
    while world.step(Time::from_secs_f64(60.0)) {}
    assert!(world.is_complete(), "{name}");
    assert_eq!(world.audit().violations(), [], "{name}");
    world
}

/// What a node has.
fn runs(world: &World, node: u32) -> String {
    let ranges = world.have(NodeId(node)).ranges();
    let words: Vec<String> = ranges.map(|range| format!("{range:?}")).collect();
    words.join(" ")
}

fn run(first: u32, len: u32) -> Want {
    Want::Blocks(WireBlocks::Runs(vec![(first, len)]))
}

#[test]
fn nodes_get_what_they_want_and_no_more() {
    use Role::{Receiver, Relay, Source};
    // Nobody leads where no network is described: nodes help themselves.
    for protocol in ["direct", "swarm", "central"] {
        let want = vec![Want::All, run(0, 30), run(20, 30), Want::Nothing];
        let world = play(protocol, &[Source, Receiver, Receiver, Relay], want);
        let got = |node| runs(&world, node);
        assert_eq!(got(1), "0..30", "{protocol}");
        assert_eq!(got(2), "20..50", "{protocol}");
        // What no node wants stays where it is.
        assert!(
            world.have(NodeId(3)).next_present(50).is_none(),
            "{protocol}"
        );
    }
    // In a line each also has what those behind it want.
    let want = vec![Want::All, Want::Nothing, run(0, 30), run(90, 10)];
    let world = play("chain", &[Source, Relay, Receiver, Receiver], want);
    for node in [1, 2] {
        assert_eq!(runs(&world, node), "0..30 90..100", "node {node}");
    }
    assert_eq!(runs(&world, 3), "90..100");
}

#[test]
fn a_leader_brings_each_site_one_copy_of_what_is_wanted_there() {
    for rate in [6, 7, 8, 9] {
        for delay in [5, 10, 20] {
            one_copy(rate, delay);
        }
    }
}

/// A link of so many MB/s and ms, over which a lane takes a cycle for a block or two.
fn one_copy(rate: u32, delay: u32) {
    use Role::{Receiver, Relay, Source};
    let text = format!(
        r#"
        [[cluster]]
        name = "from"
        nodes = 1
        node_out = "10 MB/s"

        [[cluster]]
        name = "to"
        nodes = 4
        node_out = "10 MB/s"
        node_in = "10 MB/s"

        [[link]]
        from = "*"
        to = "*"
        rate = "{rate} MB/s"
        delay = "{delay} ms"
    "#
    );
    let network = Network::from_toml(&text, "described").unwrap();
    let entry = by_name("central").unwrap();
    let PlanFrom::Network { describe, .. } = entry.plan else {
        panic!("it plans from the network");
    };
    let nodes: Vec<NodeId> = network.nodes().collect();
    let protocol = entry.with(describe(&network, &nodes, None)).unwrap();
    let roles = [Source, Receiver, Receiver, Relay, Receiver];
    let want = vec![
        Want::All,
        run(0, 50),
        run(30, 40),
        Want::Nothing,
        run(0, 50),
    ];
    let world = play_in(network, protocol, &roles, want);
    let got = |node| runs(&world, node);
    assert_eq!(
        [1, 2, 4].map(got),
        ["0..50", "30..70", "0..50"].map(String::from)
    );
    let entries = world.entries(ClusterId(1));
    let (wanted, others) = entries.split_at(70);
    let entered: u32 = wanted.iter().map(|count| u32::from(*count)).sum();
    assert!(
        entered <= 72,
        "{entered} blocks for 70 at {rate} MB/s, {delay} ms"
    );
    assert!(others.iter().all(|count| *count == 0), "nobody wants these");
    // The relay took its part of them.
    assert!(world.have(NodeId(3)).count() >= 10);
}

#[test]
fn relays_are_silent_when_nobody_wants_anything() {
    use Role::{Relay, Source};
    for protocol in SELECTIVE {
        let want = vec![Want::All, Want::Nothing, Want::Nothing];
        let world = play(protocol, &[Source, Relay, Relay], want);
        assert_eq!(world.totals().blocks_sent, 0, "{protocol}");
        let last = world.totals().last_action;
        assert!(last < Time::from_secs_f64(20.0), "{protocol} at {last}");
    }
}

#[test]
fn a_relay_fetches_for_a_node_that_reaches_nobody_else() {
    for protocol in ["swarm", "central"] {
        let (one, other) = (NodeId(0), NodeId(2));
        let cut = Fault {
            at: Time::ZERO,
            lasts: None,
            kind: FaultKind::Partition { one, other },
        };
        let config = CastConfig {
            relays: vec![NodeId(1)],
            faults: vec![cut],
            ..cast(star(3), protocol, 40)
        };
        let report = simulate(config).unwrap();
        assert_eq!(report.nodes.len(), 1, "{protocol}");
        assert!(report.nodes[0].finish_s.is_some(), "{protocol}");
    }
}
