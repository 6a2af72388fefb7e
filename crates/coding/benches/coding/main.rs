//! Measures coding against the crates `rlnc` and `reed-solomon-simd`, as ratios in one run.
//!
//! The two sides of a row take turns, and the ratio is the median of those of each turn, so that
//! whatever else the machine does touches both alike. Where time that passes is measured, it does
//! not: a measurement that needs both cores waits for them. There turns are many and short, and the
//! best of each side are compared.

mod data;
mod report;
mod rows;

use std::time::{Duration, Instant};

use outpour_coding::Kernel;
use rustix::time::{ClockId, clock_gettime};

use crate::report::{Args, Machine, Report, Row};

/// One comparison: the same work done by two sides.
pub(crate) struct Pair<'a> {
    pub(crate) name: &'static str,
    pub(crate) what: String,
    /// Bytes of one side's run by which its speed is stated, and whose.
    pub(crate) bytes: usize,
    pub(crate) baseline: &'static str,
    /// The ratio of speeds to reach.
    pub(crate) required: Option<f64>,
    pub(crate) clock: Clock,
    pub(crate) theirs: Box<dyn FnMut() + 'a>,
    pub(crate) ours: Box<dyn FnMut() + 'a>,
}

/// By what a pair is timed.
#[derive(Clone, Copy)]
pub(crate) enum Clock {
    /// The processor's time in this thread: other processes count for nothing.
    Thread,
    /// Time that passes: the only one that shows what further threads are good for.
    Wall,
}

impl Clock {
    /// Seconds for one of `runs` runs.
    fn time(self, side: &mut dyn FnMut(), runs: u32) -> f64 {
        let (wall, thread) = (Instant::now(), thread_time());
        for _ in 0..runs {
            side();
        }
        let taken = match self {
            Self::Thread => thread_time() - thread,
            Self::Wall => wall.elapsed(),
        };
        taken.as_secs_f64() / f64::from(runs)
    }
}

fn thread_time() -> Duration {
    let now = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(now.tv_sec.unsigned_abs(), now.tv_nsec as u32)
}

/// How long a side runs in each turn at least, where its processor time counts.
const TURN: Duration = Duration::from_millis(60);
/// As many short turns instead of one, where time that passes counts.
const SHORT_TURNS: usize = 24;

fn main() {
    let args = match Args::read(std::env::args().skip(1)) {
        Ok(args) => args,
        Err(message) => {
            eprintln!("coding: {message}");
            std::process::exit(2);
        }
    };
    let mut report = Report {
        machine: Machine::here(args.kernel),
        rows: Vec::new(),
    };
    eprintln!("{}", report.machine);
    rows::all(args.kernel, &|name| args.wants(name), &mut |pair| {
        let row = measure(pair, args.turns);
        eprintln!("{row}");
        report.rows.push(row);
    });
    let written = report.write(&args);
    if let Err(error) = &written {
        eprintln!("coding: {error}");
    }
    let reached = report.rows.iter().all(Row::reached);
    std::process::exit(i32::from(written.is_err() || !reached));
}

/// Lets both sides of a pair take turns.
fn measure(mut pair: Pair<'_>, turns: usize) -> Row {
    let theirs_runs = runs_per_turn(pair.clock, &mut pair.theirs);
    let ours_runs = runs_per_turn(pair.clock, &mut pair.ours);
    let (mut theirs, mut ours, mut ratios) = (Vec::new(), Vec::new(), Vec::new());
    let turns = match pair.clock {
        Clock::Thread => turns,
        Clock::Wall => turns * SHORT_TURNS,
    };
    for _ in 0..turns {
        let their_time = pair.clock.time(&mut pair.theirs, theirs_runs);
        let our_time = pair.clock.time(&mut pair.ours, ours_runs);
        theirs.push(pair.bytes as f64 / their_time);
        ours.push(pair.bytes as f64 / our_time);
        ratios.push(their_time / our_time);
    }
    let (ratio_min, ratio_max) = (least(&ratios), most(&ratios));
    let (baseline_bytes_per_s, ours_bytes_per_s, ratio) = match pair.clock {
        Clock::Thread => (median(&mut theirs), median(&mut ours), median(&mut ratios)),
        Clock::Wall => (most(&theirs), most(&ours), most(&ours) / most(&theirs)),
    };
    Row {
        name: pair.name.to_owned(),
        what: pair.what,
        baseline: pair.baseline.to_owned(),
        baseline_bytes_per_s,
        ours_bytes_per_s,
        ratio_min,
        ratio_max,
        ratio,
        required: pair.required,
    }
}

/// How often a side has to run to fill a turn; it is warm afterwards.
fn runs_per_turn(clock: Clock, side: &mut dyn FnMut()) -> u32 {
    side();
    if matches!(clock, Clock::Wall) {
        return 1;
    }
    let once = clock.time(side, 1).max(1e-9);
    (TURN.as_secs_f64() / once).ceil().clamp(1.0, 1e6) as u32
}

fn least(values: &[f64]) -> f64 {
    values.iter().copied().fold(f64::INFINITY, f64::min)
}

fn most(values: &[f64]) -> f64 {
    values.iter().copied().fold(0.0, f64::max)
}

fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// The kernel of a name.
pub(crate) fn kernel(name: &str) -> Option<Kernel> {
    let mut all = Kernel::available().into_iter();
    all.find(|kernel| kernel.name() == name)
}
