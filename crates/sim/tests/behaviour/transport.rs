//! What TCP costs beside an ideal transport.

use outpour_core::NodeId;
use outpour_core::network::Network;
use outpour_sim::cast::{CastConfig, simulate, simulate_over, trace_over};
use outpour_sim::transport::{Tcp, Transport};

use super::cast;

const TCP: Transport = Transport::Tcp(Tcp { mtu: 1500 });
const JUMBO: Transport = Transport::Tcp(Tcp { mtu: 9000 });

/// Two clusters of some nodes, with a link of 10 MB/s and so many milliseconds.
fn pair(nodes: u32, delay_ms: u32) -> Network {
    let text = format!(
        r#"
        [[cluster]]
        name = "a"
        nodes = {nodes}
        node_out = "100 MB/s"
        node_in = "100 MB/s"

        [[cluster]]
        name = "b"
        nodes = {nodes}
        node_out = "100 MB/s"
        node_in = "100 MB/s"

        [[link]]
        from = "a"
        to = "b"
        rate = "10 MB/s"
        delay = "{delay_ms} ms"
        both = true
        "#
    );
    Network::from_toml(&text, "pair").unwrap()
}

fn seconds(transport: Transport, config: CastConfig) -> f64 {
    simulate_over(transport, config).unwrap().finish_s
}

#[test]
fn headers_cost_what_they_take_of_packets() {
    // 64 MB over a path without delay: no window, handshakes of a millisecond.
    let config = || cast(pair(1, 0), "direct", 64);
    let ideal = simulate(config()).unwrap().finish_s;
    let ratio = |transport| seconds(transport, config()) / ideal;
    // A block of 1 MiB: 52 of 1500 bytes, and 22 per 16 KiB with frames besides.
    let (small, large) = (ratio(TCP), ratio(JUMBO));
    assert!((1.036..1.041).contains(&small), "{small}");
    assert!((1.006..1.010).contains(&large), "{large}");
}

#[test]
fn a_connection_starts_slowly() {
    // 200 ms round trip, of which an ideal connection takes two, and a real one three.
    let config = || cast(pair(1, 100), "direct", 8);
    let ideal = simulate(config()).unwrap().finish_s;
    let real = seconds(TCP, config());
    // From 10 segments of 1448 bytes the window doubles until it holds 2 MB, which takes more
    // than seven round trips; what is lost until then is about one round trip less.
    let lost = real - ideal * 1.037;
    assert!((1.0..2.0).contains(&lost), "{lost} s more than {ideal} s");
}

#[test]
fn the_same_seed_gives_the_same_trace_over_tcp_too() {
    for protocol in ["robber", "bittorrent", "optimal", "swarm"] {
        let hash = || {
            let config = cast(pair(4, 10), protocol, 40);
            trace_over(JUMBO, config, None).unwrap().1
        };
        assert_eq!(hash(), hash(), "{protocol}");
    }
}

#[test]
fn every_protocol_ends_over_tcp_and_is_not_faster() {
    for entry in outpour_protocols::registry::ENTRIES {
        if matches!(entry.plan, outpour_protocols::registry::PlanFrom::User) {
            continue;
        }
        let config = || cast(pair(4, 20), entry.name, 48);
        let ideal = simulate(config()).unwrap().finish_s;
        let real = seconds(JUMBO, config());
        // Blocks come in another order, so luck may be better; no luck makes up for the overhead.
        // A gossip knows no clusters: it is faster where it sends less between them, and grants
        // that come later have it do so.
        let gossips = ["coded-gossip", "random-block"].contains(&entry.name);
        let least = if gossips { 0.5 } else { 0.95 };
        assert!(
            (least..2.5).contains(&(real / ideal)),
            "{}: {real} s of {ideal} s",
            entry.name
        );
    }
}

#[test]
fn a_gossip_in_one_cluster_is_not_faster_over_tcp() {
    let text =
        "[[cluster]]\nname = \"a\"\nnodes = 8\nnode_out = \"2 MB/s\"\nnode_in = \"2 MB/s\"\n";
    let network = Network::from_toml(text, "one").unwrap();
    for protocol in ["coded-gossip", "random-block"] {
        let config = |seed| {
            let mut config = cast(network.clone(), protocol, 32);
            config.asked.block_bytes = Some(64 << 10);
            config.asked.seed = Some(seed);
            config
        };
        // Blocks come in another order, so one run may be luckier.
        let ideal: f64 = (1..=8).map(|n| simulate(config(n)).unwrap().finish_s).sum();
        let real: f64 = (1..=8).map(|n| seconds(JUMBO, config(n))).sum();
        assert!(real > 0.99 * ideal, "{protocol}: {real} s of {ideal} s");
        assert!(real < 1.2 * ideal, "{protocol}: {real} s of {ideal} s");
    }
}

#[test]
fn a_large_manifest_is_cast_before_its_object() {
    // 16 receivers of 2500 blocks: 80 kB for each are more than the command sends by itself.
    let mut config = cast(pair(8, 10), "direct", 1);
    config.asked.block_bytes = Some(16 << 10);
    config.size = outpour_core::Bytes(2500 * (16 << 10));
    config.sources = vec![NodeId(0)];
    let mut fewer = config.clone();
    fewer.asked.block_bytes = Some(64 << 10);
    let (with, without) = (seconds(JUMBO, config), seconds(JUMBO, fewer));
    // 8 copies of the manifest go over the link.
    let least = 8.0 * 80_000.0 / 10e6;
    assert!(with > without + least, "{with} s and {without} s");
}
