//! A few random runs on every change; many more by command.

use outpour_protocols::registry::{ENTRIES, find};
use outpour_sim::fault::FaultKind;
use outpour_sim::fuzz::{Case, FAULTS_MAX, FuzzConfig, fuzz, run};

#[test]
fn random_runs_of_every_protocol_go_well() {
    for entry in ENTRIES {
        let config = FuzzConfig {
            first: 1,
            seeds: 400,
            threads: 0,
            protocol: Some(entry),
        };
        let report = fuzz(config);
        assert!(report.failures.is_empty(), "{:#?}", report.failures);
        assert_eq!((report.seeds, report.protocols[entry.name]), (400, 400));
    }
}

#[test]
fn random_runs_meet_every_kind_of_fault_often() {
    let config = FuzzConfig {
        first: 1 << 40,
        seeds: 600,
        threads: 1,
        protocol: None,
    };
    let report = fuzz(config);
    assert!(report.failures.is_empty(), "{:#?}", report.failures);
    for kind in FaultKind::NAMES {
        assert!(
            report.faults[kind] >= 30,
            "{kind}: {} of 600",
            report.faults[kind]
        );
    }
    assert!(report.faults_met.len() > FAULTS_MAX as usize);
    assert!(report.attended > 100, "{} of 600", report.attended);
    assert!(report.data_lost > 0 && report.protocols.len() == ENTRIES.len());
}

/// Seeds that failed once, with what was wrong.
#[test]
fn seeds_that_failed_stay_mended() {
    let seeds = [
        (
            "swarm",
            1936,
            "what a lost neighbour owed was never asked of others",
        ),
        (
            "direct",
            740,
            "a child that came back had more than its share queued",
        ),
        (
            "direct",
            1335,
            "blocks that took more than ten seconds were given up again and again",
        ),
        (
            "chain",
            9004,
            "nodes attached to each other in a ring waited too patiently",
        ),
        (
            "chain",
            39161,
            "a ring of nodes closed again whenever it broke",
        ),
        (
            "chain",
            8905,
            "a ring was broken only to be closed by redirections",
        ),
        (
            "balanced",
            888,
            "the root let nothing go until somebody had been held up",
        ),
        (
            "adaptive",
            1252,
            "copies were handed on to nodes that had everything",
        ),
        (
            "adaptive",
            27028,
            "a node that had been stopped took its own sleep for slow blocks",
        ),
        ("coded-gossip", 32010, "mended before it was noted down"),
        (
            "coded-gossip",
            30292,
            "whom two accused was not served where nobody else wanted anything",
        ),
        (
            "coded-gossip",
            104_379,
            "a liar was owed what those had who found it out only then",
        ),
        (
            "coded-gossip",
            100_423,
            "slow cores had no time to code for whom a crash left with nothing",
        ),
        (
            "tree",
            171_562,
            "a tree without anybody above was waited for like a slow one",
        ),
        (
            "binary",
            449_525,
            "a tree without anybody above was waited for like a slow one",
        ),
        (
            "swarm",
            57_383,
            "who had cancelled was told for long that it was not forgotten",
        ),
    ];
    for (protocol, seed, once) in seeds {
        let result = run(&Case::draw(seed, find(protocol)));
        assert!(result.is_ok(), "{protocol} {seed} ({once}): {result:?}");
    }
}
