//! A few rounds of what `make test-crash` plays by the hundred.

use std::time::{SystemTime, UNIX_EPOCH};

use crate::rounds::site::Site;
use crate::rounds::{cuts, injections, kills};
use crate::support::skipped;

/// Others in each run.
fn seed() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    eprintln!("seed {}", now.as_secs());
    now.as_secs()
}

#[test]
fn power_cuts_in_each_mode_of_ext4() {
    let dir = tempfile::tempdir().unwrap();
    let cases = cuts::short_cases(dir.path());
    let (mut site, seed) = (Site::new(dir.path()), seed());
    for round in 0..3 {
        let Some(row) = cuts::cut(&mut site, &cases, seed, round) else {
            return skipped("a disk whose power is cut needs root, mkfs.ext4 and loop devices");
        };
        eprintln!("{row:?}");
    }
}

#[test]
fn kills_at_random_moments() {
    let dir = tempfile::tempdir().unwrap();
    let object = kills::object(dir.path());
    for row in kills::kill(&mut Site::new(dir.path()), &object, seed(), 0) {
        eprintln!("{row:?}");
    }
}

#[test]
fn calls_that_fail_or_lie() {
    let dir = tempfile::tempdir().unwrap();
    let object = injections::object(dir.path());
    let (mut site, seed) = (Site::new(dir.path()), seed());
    for round in 0..4 {
        match injections::inject(&mut site, &object, seed, round) {
            Some(row) => eprintln!("{row:?}"),
            None => return,
        }
    }
}
