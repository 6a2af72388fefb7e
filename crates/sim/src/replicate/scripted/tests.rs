//! What happens while jobs run: networks that change, traffic that goes first, and faults.
#![allow(clippy::unwrap_used)]

use outpour_core::Separation;
use outpour_core::script::Script;

use super::super::tests::{run, scenario, servers};
use super::super::{Moment, ReplicateConfig, ReplicateError, ReplicateReport, System, replicate};

const LINKS: &str = "[[link]]\nfrom = \"*\"\nto = \"*\"\nrate = \"40 MB/s\"\n";
const ONE: &str = "[[job]]\nname = \"j\"\nsize = \"4 GB\"\nfrom = [\"a\"]\nsites = [\"b\"]\n";
const TWO: &str =
    "[[job]]\nname = \"j\"\nsize = \"8 GB\"\nfrom = [\"a\"]\nsites = [\"b\", \"c\"]\n";

fn with(script: &str, config: ReplicateConfig) -> ReplicateConfig {
    ReplicateConfig {
        script: Some(Script::parse(script, "day.script").unwrap()),
        ..config
    }
}

/// Two sites of four servers, joined at 40 MB/s.
fn joined(script: &str, percent: f64) -> ReplicateConfig {
    let network = servers("a", 4) + &servers("b", 4) + LINKS;
    with(script, scenario(&network, ONE, percent))
}

/// Three sites of four servers.
fn three(script: &str) -> ReplicateConfig {
    let network = servers("a", 4) + &servers("b", 4) + &servers("c", 4);
    with(script, scenario(&network, TWO, 100.0))
}

/// The same jobs under each system.
fn each(config: &ReplicateConfig) -> impl Iterator<Item = ReplicateConfig> + '_ {
    System::ALL.into_iter().map(|system| ReplicateConfig {
        system,
        ..config.clone()
    })
}

/// How many blocks arrived per second from one time to another.
fn blocks_per_s(moments: &[Moment], from: f64, until: f64) -> f64 {
    let within = moments.iter();
    let within = within.filter(|it| it.at_s > from + 1e-9 && it.at_s <= until + 1e-9);
    let (blocks, seconds) = within.fold((0, 0.0), |(blocks, seconds), it| {
        (blocks + it.blocks, seconds + it.seconds)
    });
    blocks as f64 / seconds
}

#[test]
fn a_script_that_changes_nothing_makes_no_difference() {
    let plain = ReplicateConfig {
        script: None,
        ..joined("", 80.0)
    };
    let (plain, mut scripted) = (run(plain), run(joined("sleep 1 s", 80.0)));
    scripted.moments.clear();
    assert_eq!(plain, scripted);
}

#[test]
fn every_system_feels_a_link_that_changes() {
    // 100 s at 40 MB/s; of 10 MB/s from 50 s on there are 200 s more.
    for config in each(&joined("sleep 50 s\nsetBandwidth a b 10 MB/s", 100.0)) {
        let report = run(config);
        assert!((249.0..266.0).contains(&report.finish_s), "{report:?}");
        assert!((report.limit_s - 100.0).abs() < 0.1, "the most there was");
    }
    // A link that is faster later: no method may seem to beat the limit.
    for config in each(&joined("sleep 20 s\nsetBandwidth a b 80 MB/s", 100.0)) {
        let report = run(config);
        assert!((60.0..70.0).contains(&report.finish_s), "{report:?}");
        assert!((report.limit_s - 50.0).abs() < 0.1, "{report:?}");
    }
}

#[test]
fn no_server_is_left_to_send_alone() {
    // Eight servers share a link that two could fill. What of it is in use counts from the cycle after a
    // step: 9 s at 16 MB/s and then 36; the same with two more steps.
    let network = servers("a", 8) + &servers("b", 8) + LINKS;
    let steps = "sleep 55 s\nsetForeground a b 20 MB/s\nsleep 40 s\nsetForeground a b 4 MB/s";
    for (script, least) in [
        ("setForeground a b 4 MB/s".to_owned(), 116.1),
        (format!("setForeground a b 8 MB/s\n{steps}"), 141.6),
    ] {
        let script = format!("setForeground a b 24 MB/s\nsleep 5 s\n{script}");
        let report = run(with(&script, scenario(&network, ONE, 100.0)));
        assert!(report.finish_s > least - 3.0, "{report:?}");
        assert!(report.finish_s < least + 3.0, "{report:?}");
    }
}

#[test]
fn a_slow_host_is_found_by_what_it_achieves() {
    let job = TWO.replace("8 GB", "4 GB");
    let network = servers("a", 4) + &servers("b", 4) + &servers("c", 4);
    let script = "sleep 10 s\nsetCapacityOut b0 1 MB/s\nsetCapacityIn b0 1 MB/s";
    let slow = run(with(script, scenario(&network, &job, 100.0)));
    let unhurt = run(scenario(&network, &job, 100.0));
    // A site with a quarter less, and what it takes to see that.
    let most = unhurt.finish_s * 4.0 / 3.0 + 6.0 * 3.0;
    let found = slow.finish_s;
    assert!(found < most, "{} {found}", unhurt.finish_s);
}

#[test]
fn links_that_are_cut_for_a_while_are_waited_for() {
    let script = "sleep 10 s\nsetBandwidth a b 0 B/s\nsleep 20 min\nsetBandwidth a b 40 MB/s";
    for config in each(&joined(script, 100.0)) {
        let report = run(config);
        assert!((1290.0..1320.0).contains(&report.finish_s), "{report:?}");
    }
    for config in each(&joined("sleep 10 s\nsetBandwidth a b 0 B/s", 100.0)) {
        let stuck = replicate(config, &mut || std::time::Duration::ZERO).unwrap_err();
        assert!(matches!(stuck, ReplicateError::Stuck { .. }), "{stuck}");
    }
}

fn under(script: &str, separation: Separation) -> ReplicateReport {
    let mut config = joined(script, 80.0);
    config.controller.separation = separation;
    run(config)
}

#[test]
fn bulk_gives_way_within_a_cycle() {
    let threshold = Separation::Threshold { percent: 80.0 };
    for separation in [threshold, Separation::Peak] {
        // At every phase of a cycle.
        for tenths in 0..31 {
            let at = 30.0 + f64::from(tenths) / 10.0;
            let script = format!("sleep {at} s\nsetForeground a b 10 MB/s");
            let report = under(&script, separation);
            let link = &report.links[0];
            assert_eq!(link.link, "a -> b");
            assert!(link.longest_above_s <= 3.0 + 1e-6, "{at}: {link:?}");
            assert!(link.cycles_above <= 1, "{at}: {link:?}");
            assert!(link.peak_share <= 1.0 + 1e-6, "{link:?}");
        }
    }
    let script = "sleep 31 s\nsetForeground a b 10 MB/s";
    let seen = under(script, threshold);
    assert_eq!(seen.links[0].cycles_above, 1, "it is seen");
    // Without a rule the link is full.
    let none = under(script, Separation::Threshold { percent: 100.0 });
    assert!(none.links[0].peak_share > 0.99, "{:?}", none.links);
}

#[test]
fn what_goes_first_is_left_to_it_by_every_system() {
    // 4 GB at 80 % of 40 MB/s less 12 MB/s: 200 s.
    for config in each(&joined("setForeground a b 12 MB/s", 80.0)) {
        let report = run(config);
        assert!((199.0..212.0).contains(&report.finish_s), "{report:?}");
    }
}

#[test]
fn a_lost_server_costs_a_cycle() {
    let report = run(three("sleep 30 s\nlose b1"));
    let before = blocks_per_s(&report.moments, 12.0, 30.0);
    let after = blocks_per_s(&report.moments, 33.0, 42.0);
    // One of eight that receive is gone.
    assert!(after > before * 0.85, "{before} {after}");
    // Its share of what its site had is fetched again.
    let whole = run(three("sleep 1 s"));
    assert!(report.finish_s > whole.finish_s, "{report:?}");
}

#[test]
fn a_server_that_is_back_has_what_it_had() {
    let gone = run(three("sleep 30 s\nlose b1"));
    let back = run(three("sleep 30 s\nlose b1\nsleep 12 s\nrestore b1"));
    let blinks = run(three("sleep 30 s\nlose b1\nrestore b1"));
    assert!(back.finish_s < gone.finish_s, "{back:?}\n{gone:?}");
    assert!(blinks.finish_s <= back.finish_s, "{blinks:?}");
    let received = |report: &ReplicateReport| report.sites[0].received_bytes;
    assert!(received(&back) <= received(&gone), "{back:?}");
}

#[test]
fn servers_help_themselves_while_the_controller_is_away() {
    let script = "sleep 30 s\nloseController\nsleep 30 s\nrestoreController";
    let report = run(three(script));
    let before = blocks_per_s(&report.moments, 12.0, 30.0);
    let alone = blocks_per_s(&report.moments, 30.0, 60.0);
    // What sites had to give each other is used up by then: that takes a cycle.
    let after = blocks_per_s(&report.moments, 63.0, 72.0);
    assert!(alone > before * 0.6, "{before} {alone}");
    assert!(after > before * 0.97, "{before} {after}");
    // Nothing is sent again: each site gets each block once, but for what is in transit.
    for site in &report.sites {
        assert!(site.received_bytes < 8_100_000_000, "{site:?}");
    }
    // Without any controller it goes on to the end.
    let never = run(three("sleep 30 s\nloseController"));
    assert!(never.finish_s < report.finish_s * 1.7, "{never:?}");
}

#[test]
fn nobody_exceeds_what_bulk_may_use_while_alone() {
    let script = "sleep 30 s\nsetForeground a b 10 MB/s\nsleep 10 s\nloseController\nsleep 20 s";
    let report = run(joined(script, 80.0));
    assert!(report.links[0].cycles_above <= 1, "{:?}", report.links);
}

#[test]
fn faults_are_for_the_controller_only() {
    let config = ReplicateConfig {
        system: System::Gingko,
        ..joined("sleep 1 s\nlose b1", 80.0)
    };
    let refused = replicate(config, &mut || std::time::Duration::ZERO).unwrap_err();
    let says = "day.script:2: `gingko` has no servers or controller to lose, only `central` has";
    assert_eq!(refused.to_string(), says);
    let unknown = joined("lose nobody", 80.0);
    let refused = replicate(unknown, &mut || std::time::Duration::ZERO).unwrap_err();
    assert_eq!(
        refused.to_string(),
        "day.script:1: no node matches `nobody`"
    );
}
