//! Power cuts: an agent takes an object on a disk of its own, which is cut off at a moment drawn by the
//! seed. What is there afterwards is right, what was called verified is there, and no more is fetched
//! again than what came in the last seconds.

use std::path::Path;
use std::time::{Duration, Instant};

use super::disk::{Disk, MODES, Power};
use super::draw::Draw;
use super::injections::Tracer;
use super::objects::Object;
use super::report::Row;
use super::site::{Meter, Said, Site};
use crate::harness::DEADLINE;
use crate::support::signal;

/// What may be fetched again: what came in so much time before the cut,
pub(crate) const LOST_AFTER: Duration = Duration::from_secs(2);
/// and what was on its way then, blocks that were not whole and what the journal takes among that.
const IN_FLIGHT: u64 = 1 << 20;

const PROTOCOLS: [&str; 3] = ["direct", "chain", "swarm"];
const LOOK_EVERY: Duration = Duration::from_millis(4);

/// What is cast, how fast, and on how large a disk.
pub(crate) struct Case {
    object: Object,
    limits: &'static [&'static str],
    disk: u64,
    /// How many of all cuts.
    weight: usize,
    /// After which share of it the power is cut at the earliest, if it is cut before the end.
    from: f64,
    /// In one of how many syncs are slow.
    slow: usize,
}

/// The cases of a whole run.
pub(crate) fn cases(dir: &Path) -> Vec<Case> {
    let case = |object, limits, disk, weight| Case {
        object,
        limits,
        disk,
        weight,
        from: 0.0,
        slow: 5,
    };
    vec![
        case(
            Object::small(dir, 2500),
            &["4 MB/s", "8 MB/s", "1 GB/s"],
            128 << 20,
            3,
        ),
        case(
            Object::large(dir, "large", 96 << 20),
            &["25 MB/s", "50 MB/s"],
            256 << 20,
            3,
        ),
        case(
            Object::update(dir, 6, 16 << 20),
            &["15 MB/s", "30 MB/s"],
            384 << 20,
            3,
        ),
        case(
            Object::large(dir, "huge", 320 << 20),
            &["80 MB/s", "1 GB/s"],
            448 << 20,
            1,
        ),
    ]
}

/// Small ones, for the tests of faults.
pub(crate) fn short_cases(dir: &Path) -> Vec<Case> {
    let object = Object::update(dir, 3, 4 << 20);
    vec![Case {
        object,
        // Longer than what may be lost.
        limits: &["3 MB/s"],
        disk: 96 << 20,
        weight: 1,
        from: 0.8,
        slow: 2,
    }]
}

/// When the power is cut.
#[derive(Clone, Copy, Debug)]
enum When {
    /// So long after so much was written.
    Written(u64, Duration),
    /// So long after the command ended.
    Ended(Duration),
}

/// One cut; `None` where nothing can be mounted.
pub(crate) fn cut(site: &mut Site, cases: &[Case], seed: u64, round: u64) -> Option<Row> {
    let mut draw = Draw::new(seed, round);
    let mode = MODES[round as usize % MODES.len()];
    let weights = cases
        .iter()
        .enumerate()
        .flat_map(|(n, case)| vec![n; case.weight]);
    let case = &cases[*draw.one(&weights.collect::<Vec<_>>())];
    let limit = *draw.one(case.limits);
    let power = *draw.one(&[
        Power::Now,
        Power::Now,
        Power::Now,
        Power::WithLog,
        Power::After,
    ]);
    let protocol = *draw.one(&PROTOCOLS);
    let disk = Disk::new(site.path(), case.disk, mode)?;
    let object = &case.object;
    site.add(disk.root());
    let before = object.put_old(&site.copy(0));
    disk.settle();

    let when = draw_when(&mut draw, case);
    let at_once = draw.below(2) == 0;
    let slow = draw_slow(&mut draw, case);
    let traced = slow.as_ref().map(|spec| {
        let log = site.path().join("trace");
        Tracer::attach(site.id(0), spec, &log).expect("there is strace")
    });
    let options = [
        "--protocol",
        protocol,
        "--limit",
        limit,
        "--patience",
        "10 s",
    ];
    let mut cast = site.begin(&object.new, &options);
    let mut meter = Meter::new(site.id(0));
    wait_for(when, &mut meter, || cast.runs());
    // Either all stops at once, or calls fail for a moment before it does.
    if at_once {
        signal(site.id(0), "STOP");
    }
    disk.cut(power);
    meter.look();
    if !at_once {
        let until = Instant::now() + Duration::from_millis(60).mul_f64(draw.share());
        while Instant::now() < until {
            std::thread::yield_now();
        }
    }
    site.kill(0);
    drop(traced);
    let first = Said::of(cast.end());
    first.assert_clear();
    disk.restart();
    let copy = site.copy(0);
    let new = object.assert_nothing_half(&copy, before, "after the cut");
    if first.is_verified(0) {
        object.assert_whole(&copy, "verified before the cut");
    }

    site.restart(0);
    let again = Said::of(site.begin(&object.new, &["--protocol", protocol]).end());
    again.assert_clear();
    again.assert_success();
    object.assert_whole(&copy, "verified after the cut");
    assert!(!copy.join(".outpour").exists(), "state is left behind");
    site.stop();

    let row = Row {
        sort: format!(
            "data={mode}{}",
            if slow.is_some() { ", slow syncs" } else { "" }
        ),
        object: object.name,
        about: format!("{protocol} {limit} {power:?} {when:?} {slow:?}, {new} files in place"),
        verified: first.is_verified(0),
        ..lost(object, &meter, &again)
    };
    disk.remove();
    Some(row)
}

/// Now and then each sync takes long, as on a disk that others use: as `strace --inject` says it.
fn draw_slow(draw: &mut Draw, case: &Case) -> Option<String> {
    const CALLS: &str = "fdatasync,fsync,syncfs";
    let delay = Duration::from_millis(300 + draw.below(1500) as u64);
    (draw.below(case.slow) == 0).then(|| format!("{CALLS}:delay_enter={}", delay.as_micros()))
}

fn draw_when(draw: &mut Draw, case: &Case) -> When {
    let size = case.object.size;
    let delay = Duration::from_millis(250).mul_f64(draw.share());
    match draw.below(8) {
        0 => When::Ended(delay / 4),
        // While it is made to last and put in place.
        1 => When::Written(size - size / 50, 2 * delay),
        _ => {
            let share = case.from + (1.0 - case.from) * draw.share();
            When::Written((size as f64 * share) as u64, delay)
        }
    }
}

/// Waits for a moment, taking samples.
fn wait_for(when: When, meter: &mut Meter, mut runs: impl FnMut() -> bool) {
    let begun = Instant::now();
    let mut due = None;
    loop {
        assert!(begun.elapsed() < DEADLINE, "not reached: {when:?}");
        let written = meter.look();
        let has_ended = due.is_none() && !runs();
        let delay = match when {
            When::Written(bytes, delay) => (written >= bytes || has_ended).then_some(delay),
            When::Ended(delay) => has_ended.then_some(delay),
        };
        if let Some(delay) = delay {
            due.get_or_insert_with(|| Instant::now() + delay);
        }
        if due.is_some_and(|due| due <= Instant::now()) {
            return;
        }
        std::thread::sleep(LOOK_EVERY);
    }
}

/// What had been there and was not any more, and whether that is too much.
fn lost(object: &Object, meter: &Meter, again: &Said) -> Row {
    let resumed = again.number(0, "resumed_bytes");
    let held = meter.last().max(object.copied);
    let lost = held.min(object.size).saturating_sub(resumed);
    let recent = held - meter.before(LOST_AFTER).max(object.copied).min(held);
    let age = meter.age_of(resumed);
    assert!(
        lost <= recent + IN_FLIGHT,
        "{lost} bytes of {held} were fetched again, which are {:.2} s of the transfer; in {} s came {recent}",
        age.as_secs_f64(),
        LOST_AFTER.as_secs()
    );
    let received = again.number(0, "received_bytes");
    assert!(
        received <= object.size - resumed + (4 << 20),
        "{received} bytes came although {resumed} of {} were there",
        object.size
    );
    Row {
        held,
        lost,
        lost_s: if lost == 0 { 0.0 } else { age.as_secs_f64() },
        ..Row::default()
    }
}
