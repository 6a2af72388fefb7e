//! Systems without a controller, where it is known what they take.
#![allow(clippy::unwrap_used)]

use super::super::tests::{run, scenario, servers};
use super::super::{ReplicateConfig, ReplicateError, System, replicate};

const TO_ALL: &str =
    "[[job]]\nname = \"j\"\nsize = \"4 GB\"\nfrom = [\"a\"]\nsites = [\"b\", \"c\", \"d\"]\n";

/// Systems that choose at random.
const MESHES: [System; 3] = [System::Gingko, System::Bullet, System::Robber];

fn by(system: System, network: &str, jobs: &str) -> ReplicateConfig {
    ReplicateConfig {
        system,
        ..scenario(network, jobs, 100.0)
    }
}

fn four_sites() -> String {
    ["a", "b", "c", "d"].map(|site| servers(site, 2)).concat()
}

#[test]
fn fixed_ways_take_what_can_be_worked_out() {
    // 4 GB over two servers of 20 MB/s: 100 s for one copy. Pieces are a two hundredth of a share.
    let piece = 0.5;
    for (system, seconds, hops) in [
        (System::Direct, 300.0, 1.0),
        (System::Chain, 100.0, 3.0),
        // One reflector that serves two others, or two between which the source divides itself.
        (System::Akamai, 200.0, 2.0),
    ] {
        let report = run(by(system, &four_sites(), TO_ALL));
        assert!((report.limit_s - 100.0).abs() < 0.1, "{report:?}");
        let found = report.finish_s;
        let most = (seconds + hops * 3.0 * piece) * 1.02;
        assert!((seconds * 0.999..most).contains(&found), "{report:?}");
        assert_eq!(report.cycles, 0, "nothing decides");
    }
}

#[test]
fn each_site_gets_each_block_once() {
    let unequal = servers("a", 3) + &servers("b", 5) + &servers("c", 2) + &servers("d", 1);
    for network in [four_sites(), unequal] {
        for system in System::ALL {
            let report = run(by(system, &network, TO_ALL));
            assert!(report.ratio >= 1.0 - 1e-6, "{report:?}");
            let each = report.sites.iter().map(|site| site.wan_bytes);
            assert_eq!(each.collect::<Vec<_>>(), [4_000_000_000; 3], "{report:?}");
        }
    }
}

#[test]
fn meshes_pass_on_what_they_get() {
    for system in MESHES {
        let config = by(system, &four_sites(), TO_ALL);
        let report = run(config.clone());
        let direct = run(by(System::Direct, &four_sites(), TO_ALL));
        assert!(report.finish_s < 0.8 * direct.finish_s, "{report:?}");
        assert!(report.servers.iter().all(|server| server.origin < 1.0));
        assert_eq!(report, run(config.clone()), "the same seed");
        let other = ReplicateConfig { seed: 2, ..config };
        assert_ne!(report.servers, run(other).servers, "{system}: another");
    }
}

#[test]
fn nodes_get_whole_copies() {
    let network = servers("a", 1) + &servers("b", 3);
    let job = "[[job]]\nname = \"j\"\nsize = \"200 MB\"\nfrom = [\"a\"]\nnodes = [\"b\"]\n";
    for system in System::ALL {
        let config = by(system, &network, job);
        if system == System::Robber {
            let refused = replicate(config, &mut || std::time::Duration::ZERO);
            let refused = refused.unwrap_err();
            assert!(
                matches!(refused, ReplicateError::System { .. }),
                "{refused}"
            );
            continue;
        }
        let report = run(config);
        assert_eq!(report.sites[0].received_bytes, 600_000_000, "{report:?}");
        assert!(report.finish_s >= 10.0, "{report:?}");
        assert_eq!(report.servers.len(), 3);
    }
}

#[test]
fn reflectors_are_those_that_send_most() {
    let fast = servers("d", 2).replace("node_out = \"20", "node_out = \"200");
    let network = servers("a", 2) + &servers("b", 2) + &servers("c", 2) + &fast;
    let report = run(by(System::Akamai, &network, TO_ALL));
    // `d` alone has all at the rate of the source, and both others as fast.
    assert!(report.ratio < 1.1, "{report:?}");
    assert!(report.servers.iter().filter(|it| it.origin > 0.0).count() == 2);
}

#[test]
fn limits_and_starts_are_heeded() {
    let job = "[[job]]\nname = \"j\"\nsize = \"100 MB\"\nfrom = [\"a\"]\nsites = [\"b\"]\n\
        start = \"30 s\"\nlimit = \"10 MB/s\"\n";
    for system in System::ALL {
        let report = run(by(system, &four_sites(), job));
        assert!((40.0..43.5).contains(&report.finish_s), "{report:?}");
    }
}

#[test]
fn links_that_carry_nothing_are_not_used() {
    let cut = "[[link]]\nfrom = \"*\"\nto = \"*\"\nrate = \"1 GB/s\"\n\
        [[link]]\nfrom = \"b\"\nto = \"c\"\nrate = \"0 B/s\"\n";
    let network = four_sites() + cut;
    for system in [
        System::Direct,
        System::Gingko,
        System::Bullet,
        System::Robber,
    ] {
        let report = run(by(system, &network, TO_ALL));
        assert!(report.finish_s < 306.0, "{report:?}");
    }
    // A chain has no other way.
    let chain = by(System::Chain, &network, TO_ALL);
    let stuck = replicate(chain, &mut || std::time::Duration::ZERO).unwrap_err();
    assert!(matches!(stuck, ReplicateError::Stuck { .. }), "{stuck}");
}
