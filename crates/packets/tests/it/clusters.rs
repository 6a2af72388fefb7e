//! A network of clusters, by its resources and as a topology: the same to packets.

use outpour_core::network::{Change, Network, Resource};
use outpour_packets::{Pipes, Sizes};
use proptest::prelude::*;

use super::*;

/// Queues without a stated limit hold as many bytes both ways: the most they ever do.
const LIMIT: Backlog = Backlog::Bytes(outpour_core::Bytes(64 << 20));
const SIZES: Sizes = Sizes { largest: 4 << 20 };

#[derive(Clone, Debug)]
struct Sent {
    after: u64,
    from: u32,
    to: u32,
    bytes: u32,
}

fn network() -> impl Strategy<Value = Network> {
    let rate = || prop_oneof![Just(""), Just("1 MB/s"), Just("3 MB/s")];
    let cluster = (
        1..4_u32,
        rate(),
        rate(),
        rate(),
        rate(),
        any::<bool>(),
        0..3_u32,
    );
    let link = (rate(), 0..3_u32, 0..3_u32);
    let clusters = prop::collection::vec(cluster, 1..4);
    (clusters, link, rate()).prop_map(|(clusters, (link_rate, delay, loss), limit)| {
        let mut text = String::new();
        let mut line = |key: &str, value: &str| {
            if !value.is_empty() {
                text.push_str(&format!("{key}\n").replace('$', value));
            }
        };
        line("limit='$'", limit);
        for (index, (nodes, out, into, local, access, interconnect, delay)) in
            clusters.into_iter().enumerate()
        {
            line("[[cluster]]\nname='$'", &format!("c{index}x"));
            line("nodes=$", &nodes.to_string());
            line("node_out='$'", out);
            line(
                "node_in='$'\nnode_queue='6 packets'\nnode_ecn='2 packets'",
                into,
            );
            line("local='$'", local);
            line("out='$'\nin='2 MB/s'", access);
            line("interconnect=$", &interconnect.to_string());
            line("local_delay='$ ms'", &delay.to_string());
        }
        line(
            "[[link]]\nfrom='*'\nto='*'\nqueue='8 packets'\necn='$ packets'",
            "3",
        );
        line("rate='$'", link_rate);
        line("delay='$ ms'", &delay.to_string());
        line("loss=0.$", &loss.to_string());
        Network::from_toml(&text, "net.toml").unwrap()
    })
}

fn sent() -> impl Strategy<Value = Vec<Sent>> {
    let one = (0..MS, any::<(u32, u32)>(), 40..1500_u32);
    let one = one.prop_map(|(after, (from, to), bytes)| Sent {
        after,
        from,
        to,
        bytes,
    });
    prop::collection::vec(one, 1..200)
}

/// What arrives when and where, marked how often.
type Trace = Vec<(u64, u32, u32, u32)>;

fn play(
    mut engine: Engine<Packet>,
    nodes: u32,
    sent: &[Sent],
    mut route: impl FnMut(&mut Engine<Packet>, NodeId, NodeId) -> RouteId,
) -> (Trace, outpour_packets::Counts) {
    let (mut out, mut now) = (Vec::new(), 0);
    for (id, packet) in (0..).zip(sent) {
        now += packet.after;
        let (from, to) = (NodeId(packet.from % nodes), NodeId(packet.to % nodes));
        let route = route(&mut engine, from, to);
        engine.advance(Time(now), &mut out);
        let load = Packet {
            bytes: packet.bytes,
            ..Packet::new(id)
        };
        engine.send(load, route, Time(now), &mut out);
    }
    engine.advance(Time::MAX, &mut out);
    let trace = out
        .iter()
        .map(|a| (a.at.0, a.load.id, a.load.bytes, a.load.marks));
    (trace.collect(), engine.counts())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]

    #[test]
    fn resources_and_wires_do_the_same_to_packets(
        network in network(),
        sent in sent(),
        seed: u64,
    ) {
        let nodes = network.node_count();
        let pipes = Pipes::new(network.clone(), SIZES);
        let by_resource = play(pipes.engine(seed), nodes, &sent, |_, from, to| pipes.route(from, to));
        let paths = Paths::new(Topology::from_network(&network).unwrap(), Metric::Hops);
        let profile = Profile::uniform(Discipline::drop_tail(LIMIT, None));
        let mut wiring = Wiring::new(paths, &profile).unwrap();
        let engine = wiring.engine(seed);
        let by_wire = play(engine, nodes, &sent, |engine, from, to| wiring.route(engine, from, to, 0));
        prop_assert_eq!(by_resource, by_wire);
    }
}

#[test]
fn a_nodes_receiving_port_marks_and_drops() {
    let text = "[[cluster]]\nname='a'\nnodes=9\nnode_in='1 MB/s'\nnode_queue='4 packets'\n\
                node_ecn='2 packets'\n";
    let network = Network::from_toml(text, "net.toml").unwrap();
    let mut pipes = Pipes::new(network, SIZES);
    let mut engine = pipes.engine(1);
    let mut out = Vec::new();
    let mut burst = |pipes: &Pipes, engine: &mut Engine<Packet>, at| {
        for id in 0..8 {
            let route = pipes.route(NodeId(id), NodeId(8));
            engine.send(Packet::new(id), route, at, &mut out);
        }
        engine.advance(Time::MAX, &mut out);
        let marks: Vec<_> = out.drain(..).map(|a| a.load.marks).collect();
        marks
    };
    assert_eq!(burst(&pipes, &mut engine, Time::ZERO), [0, 0, 0, 1, 1]);
    assert_eq!(engine.counts().dropped, 3);
    // A change of its rate leaves its queue as it is.
    let resource = Resource::NodeIn(NodeId(8));
    let rate = rate("2 MB/s");
    let at = Time(100 * MS);
    pipes.change(&Change::Capacity { resource, rate }, &mut engine, at);
    assert_eq!(burst(&pipes, &mut engine, at), [0, 0, 0, 1, 1]);
    let port = pipes.port(resource).unwrap();
    assert_eq!(engine.stats(port, at).busy_nanos, 5 * MS + 5 * MS / 2);
}
