//! Hosts whose disks hang, and hosts that lie about theirs.

use super::tests::{coordinator, join, report};
use super::*;

/// The patience of these coordinators.
const PATIENCE: f64 = 60.0;

/// Hosts that have begun.
fn begun(hosts: u32) -> Coordinator {
    let mut c = coordinator(hosts as usize);
    for node in 0..=hosts {
        join(&mut c, 0.0, node);
    }
    c
}

fn says(c: &mut Coordinator, now: f64, node: u32, have_bytes: u64, waiting: bool, done: u64) {
    let progress = Report::Progress {
        have_bytes,
        received_bytes: have_bytes,
        disk: Disk { waiting, done },
    };
    report(c, now, node, progress);
}

fn complete(c: &mut Coordinator, now: f64, node: u32) {
    let received_bytes = 1000;
    report(c, now, node, Report::Complete { received_bytes });
}

fn error(c: &Coordinator, host: usize) -> &str {
    c.nodes()[host + 1].error.as_deref().unwrap_or_default()
}

/// Lets a host say the same twice a second until it is given up; returns when.
fn says_until_the_end(
    c: &mut Coordinator,
    from: f64,
    mut say: impl FnMut(&mut Coordinator, f64),
) -> f64 {
    let mut now = from;
    while !c.has_ended() {
        assert!(now < 1e6, "for ever");
        now += 0.5;
        say(c, now);
    }
    now
}

#[test]
fn signs_of_life_are_no_work_while_files_are_put_in_place() {
    let mut c = begun(2);
    for node in 1..=2 {
        report(&mut c, 1.0, node, Report::Prepared { have_bytes: 0 });
        report(&mut c, 10.0, node, Report::Finishing);
    }
    complete(&mut c, 12.0, 2);
    says(&mut c, 14.0, 1, 1000, true, 7);
    let end = says_until_the_end(&mut c, 14.0, |c, now| says(c, now, 1, 1000, true, 7));
    assert_eq!(end, 14.0 + PATIENCE);
    assert_eq!(
        error(&c, 0),
        "its disk has done nothing for 60 s while files are put in place"
    );
}

#[test]
fn signs_of_life_are_no_work_while_a_destination_is_looked_at() {
    let mut c = begun(1);
    report(&mut c, 1.0, 1, Report::Preparing);
    // Whatever it says: a host that prepares waits for its disk.
    let end = says_until_the_end(&mut c, 1.0, |c, now| says(c, now, 1, 0, false, 0));
    assert_eq!(end, 1.0 + PATIENCE);
    assert_eq!(
        error(&c, 0),
        "its disk has done nothing for 60 s while the destination is examined"
    );
}

#[test]
fn a_slow_disk_that_does_something_is_waited_for() {
    let mut c = begun(1);
    report(&mut c, 0.0, 1, Report::Preparing);
    for step in 1..=5_u32 {
        says(&mut c, f64::from(step) * 59.0, 1, 0, true, step.into());
    }
    report(&mut c, 300.0, 1, Report::Prepared { have_bytes: 0 });
    report(&mut c, 301.0, 1, Report::Finishing);
    for step in 1..=5_u32 {
        let now = 301.0 + f64::from(step) * 59.0;
        says(&mut c, now, 1, 1000, true, step.into());
    }
    complete(&mut c, 600.0, 1);
    assert_eq!(c.nodes()[1].state, HostState::Verified);
}

#[test]
fn a_hung_disk_is_waited_for_as_long_as_others_get_something_and_no_longer() {
    let mut c = begun(2);
    for node in 1..=2 {
        report(&mut c, 0.0, node, Report::Prepared { have_bytes: 0 });
    }
    report(&mut c, 1.0, 1, Report::Finishing);
    for step in 1..=9_u32 {
        let now = f64::from(step) * 50.0;
        says(&mut c, now, 1, 1000, true, 0);
        says(&mut c, now, 2, u64::from(step) * 100, false, step.into());
    }
    assert_eq!(c.nodes()[1].state, HostState::Finishing);
    says(&mut c, 460.0, 1, 1000, true, 0);
    complete(&mut c, 460.5, 2);
    assert!(c.has_ended(), "it had its time while the others had theirs");
    assert!(error(&c, 0).starts_with("its disk has done nothing for 459 s"));
}

#[test]
fn blocks_that_cannot_be_written_are_the_disks_fault() {
    let mut c = begun(2);
    for node in 1..=2 {
        report(&mut c, 0.0, node, Report::Prepared { have_bytes: 0 });
    }
    says(&mut c, 5.0, 1, 400, true, 4);
    complete(&mut c, 30.0, 2);
    let end = says_until_the_end(&mut c, 30.0, |c, now| says(c, now, 1, 400, true, 4));
    assert_eq!(end, 5.0 + PATIENCE);
    assert_eq!(
        error(&c, 0),
        "its disk has done nothing for 60 s while blocks are written; 600 B missing"
    );
}

#[test]
fn who_waits_for_blocks_is_not_blamed_for_its_disk() {
    let mut c = begun(1);
    report(&mut c, 0.0, 1, Report::Prepared { have_bytes: 0 });
    says(&mut c, 5.0, 1, 400, true, 4);
    let end = says_until_the_end(&mut c, 5.0, |c, now| says(c, now, 1, 400, false, 5));
    assert_eq!(end, 5.0 + PATIENCE);
    assert_eq!(error(&c, 0), "no block arrived for 60 s; 600 B missing");
}

#[test]
fn the_disk_of_the_source_is_named() {
    let mut c = begun(1);
    report(&mut c, 0.0, 1, Report::Prepared { have_bytes: 0 });
    says(&mut c, 2.0, 0, 1000, true, 3);
    says(&mut c, 3.0, 1, 400, false, 4);
    let end = says_until_the_end(&mut c, 3.0, |c, now| {
        says(c, now, 0, 1000, true, 3);
        says(c, now, 1, 400, false, 4);
    });
    assert!(end <= 3.0 + PATIENCE + 0.5);
    assert_eq!(
        error(&c, 0),
        "no block arrived for 60 s; 600 B missing; the source's disk has done nothing for 61 s"
    );
}

#[test]
fn work_that_cannot_be_is_not_believed() {
    for stage in [Report::Preparing, Report::Finishing] {
        let mut c = begun(1);
        report(&mut c, 0.0, 1, stage);
        let mut done = 0;
        let end = says_until_the_end(&mut c, 0.0, |c, now| {
            done += 1000;
            says(c, now, 1, 0, true, done);
        });
        assert!(end < 2.0 * PATIENCE, "{end}");
        assert!(
            error(&c, 0).starts_with("its disk claims more work than there is while "),
            "{}",
            error(&c, 0)
        );
    }
}

#[test]
fn work_without_end_is_not_waited_for() {
    for stage in [Report::Preparing, Report::Finishing] {
        let mut c = begun(1);
        report(&mut c, 0.0, 1, stage);
        let mut steps = 0;
        let end = says_until_the_end(&mut c, 0.0, |c, now| {
            steps += 1;
            // As slowly as patience bears.
            says(c, now, 1, 0, true, steps / 100);
        });
        assert!(end < 11.0 * PATIENCE, "{end}");
        assert!(error(&c, 0).starts_with("its disk has not finished after 600 s while "));
    }
}

#[test]
fn no_host_gets_nearer_to_its_end_for_ever() {
    let mut c = begun(2);
    report(&mut c, 0.0, 2, Report::Prepared { have_bytes: 0 });
    let mut have_bytes = 0;
    let end = says_until_the_end(&mut c, 0.0, |c, now| {
        have_bytes += 100;
        report(c, now, 1, Report::Preparing);
        report(c, now, 1, Report::Prepared { have_bytes: 0 });
        says(c, now, 1, have_bytes, false, have_bytes);
        says(c, now, 2, 0, false, 0);
    });
    assert!(end <= 2.0 * PATIENCE, "{end}");
}

#[test]
fn a_disk_that_is_full_whenever_files_are_put_in_place_is_not_waited_for() {
    let mut c = begun(2);
    for node in 1..=2 {
        report(&mut c, 1.0, node, Report::Prepared { have_bytes: 0 });
    }
    report(&mut c, 2.0, 2, Report::Finishing);
    complete(&mut c, 2.0, 2);
    let why = "/srv: the disk is full";
    let end = says_until_the_end(&mut c, 2.0, |c, now| {
        report(c, now, 1, Report::Finishing);
        says(c, now, 1, 1000, false, 3);
        let paused = Report::Paused {
            why: why.to_owned(),
            rereads: false,
        };
        report(c, now, 1, paused);
        report(c, now, 1, Report::Resumed { have_bytes: 1000 });
    });
    assert!(end <= 2.0 * PATIENCE, "{end}");
    assert_eq!(error(&c, 0), why);
}
