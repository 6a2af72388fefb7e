//! Scripts change the network while a transfer runs.

use outpour_core::NodeId;
use outpour_core::network::Network;
use outpour_core::script::Script;
use outpour_sim::cast::{CastConfig, SimReport, simulate};

use super::{MIB, assert_within, cast};

/// 64 MiB over one link between two nodes, under a script.
fn over_one_link(script: &str) -> SimReport {
    let defined = format!(
        "defineCluster a A\ndefineCluster b B\nsetBandwidth A B 4 MB/s\nsetBandwidth B A 4 MB/s\n{script}"
    );
    let script = Script::parse(&defined, "test.script").unwrap();
    let network = script.network(None).unwrap();
    simulate(CastConfig {
        sources: vec![NodeId(0)],
        script: Some(script),
        ..cast(network, "direct", 64)
    })
    .unwrap()
}

#[test]
fn a_rate_that_drops_half_way_counts_from_then_on() {
    let size = 64.0 * MIB as f64;
    let report = over_one_link("sleep 10 s\nsetBandwidth A B 1 MB/s\n");
    assert_within(report.finish_s, 10.0 + (size - 40e6) / 1e6, 0.001);
}

#[test]
fn a_transfer_begins_when_the_script_hears_of_it() {
    let size = 64.0 * MIB as f64;
    let report = over_one_link("sleep 500 s\nhear start\nsleep 10 s\nsetBandwidth A B 1 MB/s\n");
    assert_within(report.finish_s, 10.0 + (size - 40e6) / 1e6, 0.001);
}

#[test]
fn a_script_that_never_ends_is_followed_as_long_as_the_transfer_lasts() {
    let size = 64.0 * MIB as f64;
    let turns = "forever\nsleep 1 s\nsetBandwidth A B 1 MB/s\nsleep 1 s\nsetBandwidth A B 4 MB/s\n";
    let report = over_one_link(turns);
    assert_within(report.finish_s, size / 2.5e6, 0.03);
}

#[test]
fn a_link_that_is_dead_for_a_while_delays_by_that_much() {
    let size = 64.0 * MIB as f64;
    let report =
        over_one_link("sleep 5 s\nsetBandwidth A B 0 B/s\nsleep 4 s\nsetBandwidth A B 4 MB/s\n");
    assert_within(report.finish_s, size / 4e6 + 4.0, 0.001);
}

#[test]
fn a_new_delay_holds_for_what_is_sent_after_it() {
    let size = 64.0 * MIB as f64;
    let report = over_one_link("sleep 1 s\nsetDelay .* .* 300 ms\n");
    assert_within(report.finish_s, size / 4e6 + 0.3, 0.001);
}

#[test]
fn a_script_may_limit_what_the_network_leaves_open() {
    let network = Network::from_toml("cluster = [{ name = \"n\", nodes = 2 }]", "n.toml").unwrap();
    let script = Script::parse("setAllCapacityOut 2 MB/s\n", "s").unwrap();
    let report = simulate(CastConfig {
        script: Some(script),
        ..cast(network, "direct", 64)
    })
    .unwrap();
    assert_within(report.finish_s, 64.0 * MIB as f64 / 2e6, 0.001);
}
