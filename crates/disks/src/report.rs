//! Many seeds at a time, and a table of what they met.

use std::fmt;
use std::ops::Range;
use std::sync::Mutex;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicU64, Ordering};

use super::cast::{Case, play};
use super::faults::{Fault, Met};

/// How many failures are reported; finding that many ends the search.
const FAILURES_MAX: usize = 10;
/// How many seeds a thread takes at a time.
const LOT: u64 = 64;

/// What many seeds met.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// How many were played.
    pub seeds: u64,
    /// How many calls their stores made.
    pub calls: u64,
    /// Which faults they met, and how often.
    pub met: Met,
    /// In how many seeds each fault was met, as in [`Fault::ALL`].
    pub seeds_with: Vec<u64>,
    /// The first seeds that broke a promise, and which.
    pub failures: Vec<(u64, String)>,
}

impl fmt::Display for Report {
    /// A table as in Markdown.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "| fault | times | seeds |\n|---|---|---|")?;
        for (fault, seeds) in Fault::ALL.iter().zip(&self.seeds_with) {
            writeln!(
                f,
                "| {} | {} | {seeds} |",
                fault.name(),
                self.met.of(*fault)
            )?;
        }
        let (seeds, calls) = (self.seeds, self.calls);
        writeln!(
            f,
            "\n{seeds} seeds, {calls} calls, {} failures",
            self.failures.len()
        )?;
        for (seed, failure) in &self.failures {
            writeln!(f, "seed {seed}: {failure}")?;
        }
        Ok(())
    }
}

/// Plays many seeds on so many threads. What is found does not depend on their number, but for how much is played
/// beyond the first failures.
pub fn fuzz(seeds: Range<u64>, threads: usize) -> Report {
    let next = AtomicU64::new(seeds.start);
    let all = Mutex::new(Report {
        seeds_with: vec![0; Fault::ALL.len()],
        ..Report::default()
    });
    let run = || {
        loop {
            let first = next.fetch_add(LOT, Ordering::Relaxed);
            if first >= seeds.end {
                return;
            }
            let mut own = Report {
                seeds_with: vec![0; Fault::ALL.len()],
                ..Report::default()
            };
            for seed in first..(first + LOT).min(seeds.end) {
                own.play(seed);
            }
            let mut all = all.lock().unwrap_or_else(PoisonError::into_inner);
            all.add(own);
            if all.failures.len() >= FAILURES_MAX {
                next.store(seeds.end, Ordering::Relaxed);
            }
        }
    };
    std::thread::scope(|scope| {
        for _ in 1..threads {
            scope.spawn(run);
        }
        run();
    });
    let mut all = all.into_inner().unwrap_or_else(PoisonError::into_inner);
    all.failures.sort();
    all
}

impl Report {
    fn play(&mut self, seed: u64) {
        self.seeds += 1;
        match play(&Case::of(seed)) {
            Ok(outcome) => {
                self.calls += outcome.calls;
                self.met.add(&outcome.met);
                for (fault, seeds) in Fault::ALL.iter().zip(&mut self.seeds_with) {
                    *seeds += u64::from(outcome.met.of(*fault) > 0);
                }
            }
            Err(failure) => self.failures.push((seed, failure)),
        }
    }

    fn add(&mut self, other: Self) {
        self.seeds += other.seeds;
        self.calls += other.calls;
        self.met.add(&other.met);
        for (all, more) in self.seeds_with.iter_mut().zip(other.seeds_with) {
            *all += more;
        }
        self.failures.extend(other.failures);
    }
}
