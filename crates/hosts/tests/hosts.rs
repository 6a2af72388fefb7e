//! Whole hosts in simulated casts: whatever disks, machines and the network do, nothing wrong is kept, served or said.

use std::collections::BTreeSet;

use outpour_disks::simulated::Fault;
use outpour_hosts::{Case, fuzz, play};
use outpour_protocols::registry::ENTRIES;

/// How many seeds are played here; many more are by the example of the same name.
const SEEDS: u64 = 600;
/// How many of them are played twice.
const TWICE: u64 = 50;

#[test]
fn no_seed_breaks_a_promise_and_everything_that_may_happen_does() {
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let report = fuzz(0..SEEDS, None, threads);
    assert!(report.failures.is_empty(), "{report}");
    assert_eq!(report.seeds, SEEDS);
    // Nothing goes on during a sync: a cast comes to its disk one call after the other.
    let unmet = Fault::ALL
        .iter()
        .filter(|fault| **fault != Fault::Between && report.sum.met.of(**fault) == 0);
    assert_eq!(unmet.count(), 0, "{report}");
    assert!(report.sum.faults.iter().all(|times| *times > 0), "{report}");
    let sum = &report.sum;
    let happened = [
        sum.verified,
        sum.failed,
        sum.stopped,
        sum.recovered,
        sum.unread,
    ];
    assert!(happened.iter().all(|times| *times > 0), "{report}");
    let played: BTreeSet<_> = report.protocols.keys().copied().collect();
    let all: BTreeSet<_> = ENTRIES.iter().map(|entry| entry.name).collect();
    assert_eq!(played, all);
}

/// Seeds that broke a promise once.
const BROKE: [u64; 1] = [
    // The time of a symlink that was there before did not outlast a power cut.
    181_181,
];

#[test]
fn seeds_that_broke_a_promise_break_none() {
    for seed in BROKE {
        let report = fuzz(seed..seed + 1, None, 1);
        assert!(report.failures.is_empty(), "{report}");
    }
}

#[test]
fn a_seed_goes_the_same_way_each_time() {
    let case = |seed| Case {
        seed,
        protocol: None,
        loud: false,
    };
    let mut events = BTreeSet::new();
    for seed in 0..TWICE {
        let once = play(&case(seed));
        assert_eq!(once, play(&case(seed)), "seed {seed}");
        events.insert(once.map(|outcome| (outcome.events, outcome.calls)));
    }
    assert!(events.len() as u64 > TWICE * 9 / 10, "most seeds differ");
}
