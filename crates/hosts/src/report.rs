//! Many seeds at a time, and tables of what they met.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::Range;
use std::sync::Mutex;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicU64, Ordering};

use outpour_disks::simulated::Fault;
use outpour_protocols::registry::Entry;
use outpour_sim::fault::FaultKind;

use crate::run::{Case, Outcome, play};

/// How many failures are reported; finding that many ends the search.
const FAILURES_MAX: usize = 10;
/// How many seeds a thread takes at a time.
const LOT: u64 = 16;

/// What many seeds met.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// How many were played.
    pub seeds: u64,
    /// All of them together.
    pub sum: Outcome,
    /// How many played which protocol.
    pub protocols: BTreeMap<&'static str, u64>,
    /// In how many seeds each fault of disks was met, as in [`Fault::ALL`].
    pub seeds_with: [u64; Fault::ALL.len()],
    /// In how many seeds each fault of hosts and of the network, as in [`FaultKind::NAMES`].
    pub seeds_with_faults: [u64; FaultKind::NAMES.len()],
    /// The first seeds that broke a promise, and which.
    pub failures: Vec<(u64, String)>,
}

impl Report {
    fn add(&mut self, seed: u64, played: Result<Outcome, String>) {
        self.seeds += 1;
        let outcome = match played {
            Ok(outcome) => outcome,
            Err(broken) => return self.failures.push((seed, broken)),
        };
        *self.protocols.entry(outcome.protocol).or_default() += 1;
        for (seeds, fault) in self.seeds_with.iter_mut().zip(Fault::ALL) {
            *seeds += u64::from(outcome.met.of(fault) > 0);
        }
        for (seeds, count) in self.seeds_with_faults.iter_mut().zip(outcome.faults) {
            *seeds += u64::from(count > 0);
        }
        self.sum.add(&outcome);
    }
}

impl fmt::Display for Report {
    /// Tables as in Markdown.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sum = &self.sum;
        writeln!(f, "| fault | times | seeds |\n|---|---|---|")?;
        let disks = Fault::ALL.iter().zip(self.seeds_with);
        for (fault, seeds) in disks {
            let times = sum.met.of(*fault);
            writeln!(f, "| {} | {times} | {seeds} |", fault.name())?;
        }
        let others = FaultKind::NAMES.iter().zip(sum.faults);
        for ((name, times), seeds) in others.zip(self.seeds_with_faults) {
            writeln!(f, "| of the network: {name} | {times} | {seeds} |")?;
        }
        writeln!(f, "\n{:?}", self.protocols)?;
        let Outcome {
            casts,
            unread,
            verified,
            failed,
            stopped,
            recovered,
            events,
            calls,
            ..
        } = sum;
        writeln!(
            f,
            "{} seeds, {casts} casts ({unread} without a source), {events} events, {calls} calls; {verified} hosts \
             verified, {failed} failed, {stopped} machines stopped, {recovered} recoveries; {} failures",
            self.seeds,
            self.failures.len()
        )?;
        for (seed, failure) in &self.failures {
            writeln!(f, "seed {seed}: {failure}")?;
        }
        Ok(())
    }
}

/// Plays many seeds on so many threads, of one protocol or of all in turn.
pub fn fuzz(seeds: Range<u64>, protocol: Option<&'static Entry>, threads: usize) -> Report {
    let next = AtomicU64::new(seeds.start);
    let all = Mutex::new(Report::default());
    let locked = || all.lock().unwrap_or_else(PoisonError::into_inner);
    let run = || {
        loop {
            let first = next.fetch_add(LOT, Ordering::Relaxed);
            if first >= seeds.end || locked().failures.len() >= FAILURES_MAX {
                return;
            }
            for seed in first..(first + LOT).min(seeds.end) {
                let played = play(&Case {
                    seed,
                    protocol,
                    loud: false,
                });
                locked().add(seed, played);
            }
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(run);
        }
    });
    let mut report = all.into_inner().unwrap_or_else(PoisonError::into_inner);
    report.failures.sort_unstable();
    report.failures.truncate(FAILURES_MAX);
    report
}
