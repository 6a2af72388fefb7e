//! Random runs: each seed draws a network, a protocol, sizes and faults, and all must go well.
//!
//! A run has three phases. In the first, faults strike; nothing may be broken, but nothing need
//! get done. In the second they are over, and every live node has to get every block that can
//! still reach it, within [`deadline`]; if a coordinator attends, it has to end the cast and give
//! every host the verdict it deserves. In the third nothing is left to do, and the protocols have
//! to fall silent.
//!
//! Nodes may be told meanwhile to send some peer no faster than so much, and a second transfer may run
//! among the same hosts: then each has to keep all this, only later by what the other moves.

mod beside;
mod case;
mod loss;
mod promise;
mod rates;
mod stage;

use std::collections::BTreeMap;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use outpour_core::blocks::Want;
use outpour_core::{NodeId, Time};
use outpour_protocols::promise::Supply;
use outpour_protocols::registry::Entry;
use serde::Serialize;

pub use case::{BLOCKS_MAX, Case, FAULTS_MAX};
pub use loss::{Loss, RATE_FACTOR, TURN_SLACK};
use stage::{Stage, Watcher};

use crate::check;
use crate::fault::{Fault, FaultKind};
use crate::world::{KEEP_ALIVE, LEFT_AFTER, World};

/// After the faults, a transfer may take this many times what coding the object for every node and
/// sending it there takes, one after the other and at the lowest rate ...
pub const DEADLINE_FACTOR: u32 = 2;
/// ... and this long besides, for timeouts to run out and connections to come back.
pub const DEADLINE_SLACK: Duration = Duration::from_secs(120);
/// How long after everything is done protocols may still have something to say.
pub const GRACE: Duration = Duration::from_secs(15);
/// How long they are then watched.
const WATCH: Duration = Duration::from_secs(60);
/// How many events a run may take: one that takes more goes round in circles.
pub const EVENTS_MAX: u64 = 3_000_000;
/// How many failures are reported; finding that many ends the search.
const FAILURES_MAX: usize = 10;
/// So many seeds are run before it is looked whether that is so: with any number of threads the
/// same seeds are run and the same failures found.
const LOT: u64 = 4096;

/// What to run.
#[derive(Clone, Copy, Debug)]
pub struct FuzzConfig {
    /// The first seed.
    pub first: u64,
    /// How many seeds.
    pub seeds: u64,
    /// How many threads; zero for one per core.
    pub threads: usize,
    /// The protocol; all in turn, drawn from the seed, if there is none.
    pub protocol: Option<&'static Entry>,
}

/// What came of it.
#[derive(Clone, Debug, Default, Serialize)]
pub struct FuzzReport {
    /// How many seeds were run.
    pub seeds: u64,
    /// Wall time in seconds.
    pub took_s: f64,
    /// How many events all runs took together.
    pub events: u64,
    /// How many runs each protocol had.
    pub protocols: BTreeMap<&'static str, u64>,
    /// How many runs a coordinator attended.
    pub attended: u64,
    /// How many runs had several sources.
    pub sources: u64,
    /// How many runs had a node that does not want everything.
    pub wants: u64,
    /// How many runs had rates towards peers that change.
    pub rates: u64,
    /// How many runs had two transfers at once.
    pub two: u64,
    /// How many runs met each kind of fault while something was left to do.
    pub faults: BTreeMap<&'static str, u64>,
    /// How many runs had at least this many of them: none, one, ...
    pub faults_met: Vec<u64>,
    /// How many runs lost a node for good when it had so much, and another one was behind.
    pub losses: u64,
    /// How many runs lost blocks for good, so that not all could be completed.
    pub data_lost: u64,
    /// The most blocks any node got twice.
    pub duplicates_most: u32,
    /// The failures with the lowest seeds.
    pub failures: Vec<Failure>,
}

/// A seed that failed.
#[derive(Clone, Debug, Serialize)]
pub struct Failure {
    /// The seed.
    pub seed: u64,
    /// The protocol that was run.
    pub protocol: &'static str,
    /// What went wrong.
    pub what: String,
    /// The command that repeats it.
    pub command: String,
}

/// What one run met with.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Met {
    /// Events it took.
    pub events: u64,
    /// Faults by kind, as in [`FaultKind::NAMES`].
    pub faults: [u32; FaultKind::NAMES.len()],
    /// Whether some block was lost for good.
    pub data_lost: bool,
    /// The most blocks any node got twice.
    pub duplicates: u32,
    /// How many blocks entered a cluster again.
    pub repeats: u64,
}

/// Runs the seeds on several threads.
#[expect(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "how long the fuzzing took is told to people and decides nothing"
)]
pub fn fuzz(config: FuzzConfig) -> FuzzReport {
    let started = std::time::Instant::now();
    let cores = || std::thread::available_parallelism().map_or(1, usize::from);
    let threads = if config.threads == 0 {
        cores()
    } else {
        config.threads
    };
    let mut report = FuzzReport::default();
    let mut start = 0;
    while start < config.seeds && report.failures.len() < FAILURES_MAX {
        let end = config.seeds.min(start.saturating_add(LOT));
        report = fuzz_lot(config, threads, start..end, report);
        start = end;
    }
    let first = |failure: &Failure| failure.seed.wrapping_sub(config.first);
    report.failures.sort_by_key(first);
    report.failures.truncate(FAILURES_MAX);
    report.took_s = started.elapsed().as_secs_f64();
    report
}

/// Runs some of the seeds, counted from the first, and adds what came of it to a report.
fn fuzz_lot(config: FuzzConfig, threads: usize, lot: Range<u64>, report: FuzzReport) -> FuzzReport {
    let next = AtomicU64::new(lot.start);
    let report = Mutex::new(report);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                loop {
                    let index = next.fetch_add(1, Ordering::Relaxed);
                    if index >= lot.end {
                        break;
                    }
                    let case = Case::draw(config.first.wrapping_add(index), config.protocol);
                    let result = run(&case);
                    // A thread that panics has not got the lock: runs are caught.
                    let Ok(mut report) = report.lock() else { break };
                    report.add(&case, result);
                }
            });
        }
    });
    report
        .into_inner()
        .unwrap_or_else(|poisoned| poisoned.into_inner())
}

impl FuzzReport {
    fn add(&mut self, case: &Case, result: Result<Met, String>) {
        self.seeds += 1;
        *self.protocols.entry(case.protocol.name).or_default() += 1;
        self.attended += u64::from(case.attended);
        self.sources += u64::from(case.sources.iter().filter(|it| **it).count() > 1);
        self.wants += u64::from(case.want.iter().any(|want| *want != Want::All));
        self.rates += u64::from(!case.orders.is_empty());
        self.two += u64::from(case.beside.is_some());
        self.losses += u64::from(case.loss.is_some());
        match result {
            Ok(met) => {
                self.events += met.events;
                for (name, count) in FaultKind::NAMES.into_iter().zip(met.faults) {
                    *self.faults.entry(name).or_default() += u64::from(count > 0);
                }
                let faults = met.faults.iter().sum::<u32>() as usize;
                self.faults_met
                    .resize(self.faults_met.len().max(faults + 1), 0);
                self.faults_met[..=faults]
                    .iter_mut()
                    .for_each(|runs| *runs += 1);
                self.data_lost += u64::from(met.data_lost);
                self.duplicates_most = self.duplicates_most.max(met.duplicates);
            }
            Err(what) => self.failures.push(Failure {
                seed: case.seed,
                protocol: case.protocol.name,
                what,
                command: format!("outpour sim fuzz --seed {} --seeds 1", case.seed),
            }),
        }
    }
}

/// Runs one case, panics included.
///
/// # Errors
/// Says what went wrong first.
pub fn run(case: &Case) -> Result<Met, String> {
    let caught = catch_unwind(AssertUnwindSafe(|| {
        let world = &mut case.unhashed();
        let Some(other) = case.turned() else {
            return play(world, case);
        };
        let (met, other) = play_both(world, case, &other)?;
        let events = met.events.max(other.events);
        Ok(Met { events, ..met })
    }));
    caught.unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().map(String::as_str);
        let text = text.or_else(|| panic.downcast_ref::<&str>().copied());
        Err(format!("panic: {}", text.unwrap_or("of unknown kind")))
    })
}

/// When the faults of a case are over and noticed.
pub fn calm(case: &Case) -> Time {
    let over = |fault: &Fault| fault.end().unwrap_or(fault.at + KEEP_ALIVE + LEFT_AFTER);
    let starts = case.starts.iter().copied().chain([case.ordered()]);
    let shares = case.shares.iter().map(|(at, _)| *at);
    let beside = case.beside.as_deref().map(calm);
    let faults = case.faults.iter().map(over);
    let all = faults.chain(starts).chain(shares).chain(beside);
    all.max().unwrap_or(Time::ZERO)
}

/// Lets the faults strike; says when they are over, and when everything has to be done.
async fn disturb(watcher: &Watcher<'_, '_>, case: &Case) -> Result<(Time, Time), String> {
    let calm = calm(case);
    let Some(loss) = &case.loss else {
        play_until(watcher, calm).await?;
        return Ok((calm, calm + deadline(case)));
    };
    let latest = calm + deadline(case);
    while watcher.world().have(loss.node).count() < loss.blocks && watcher.step(latest).await {
        budget(watcher)?;
    }
    let lost = watcher.now();
    watcher.strike(Fault {
        at: lost,
        lasts: None,
        kind: loss.kind.clone(),
    });
    let noticed = loss::noticed(case, lost);
    play_until(watcher, noticed).await?;
    let missing = loss::missing(&watcher.world(), case.network.node_count());
    Ok((noticed, noticed + case.survivors_need(missing)))
}

async fn play_until(watcher: &Watcher<'_, '_>, until: Time) -> Result<(), String> {
    while watcher.step(until).await {
        budget(watcher)?;
    }
    Ok(())
}

/// How long after the faults everything has to be done.
pub fn deadline(case: &Case) -> Duration {
    case.serial() * DEADLINE_FACTOR + DEADLINE_SLACK
}

/// Plays a case in a world made of it, and checks everything.
///
/// # Errors
/// Says what went wrong first.
pub fn play(world: &mut World, case: &Case) -> Result<Met, String> {
    Stage::new(world).judge(async |watcher| judge(watcher, case).await)
}

/// Plays two transfers at once, in the world of a case that has two, and checks everything of both;
/// `other` is the [turned](Case::turned) case. What either met is what [`play`] says of it.
///
/// # Errors
/// Says what went wrong first in the one, or else in the other.
pub fn play_both(world: &mut World, case: &Case, other: &Case) -> Result<(Met, Met), String> {
    let name = other.protocol.name;
    Stage::new(world).judge_both(
        async |watcher| judge(watcher, case).await,
        async |watcher| {
            let met = judge(watcher, other).await;
            met.map_err(|what| format!("the other, {name}: {what}"))
        },
    )
}

/// Watches a case being played, and checks everything.
async fn judge(watcher: &Watcher<'_, '_>, case: &Case) -> Result<Met, String> {
    let nodes = case.network.node_count();
    let (calm, deadline) = disturb(watcher, case).await?;
    watcher.contracts()?;
    let supply = case.protocol.promise.supply;
    let owed = || check::due(&watcher.world(), &case.sources, supply);
    let mut due = owed();
    let live: Vec<bool> = (0..nodes)
        .map(|node| watcher.world().is_live(NodeId(node)))
        .collect();
    let mut left = check::unserved(&watcher.world(), &due).len();
    let mut sent = 0;
    while left > 0 && watcher.step(deadline).await {
        budget(watcher)?;
        let now_sent = watcher.world().totals().blocks_sent;
        if now_sent != sent {
            sent = now_sent;
            left = check::unserved(&watcher.world(), &due).len();
        }
    }
    // A node that lied before may be found out by those that have what it lacks as late as now.
    for (due, now) in due.iter_mut().zip(owed()) {
        let mut refused = due.clone();
        refused.subtract(&now);
        due.subtract(&refused);
    }
    if let Some((node, missing)) = check::unserved(&watcher.world(), &due).first() {
        let ways = if watcher.now() < deadline {
            "nothing left to happen"
        } else {
            "too late"
        };
        let late = format!("{ways} at {}, faults over at {calm}", watcher.now());
        return Err(format!("node {} lacks {missing} blocks: {late}", node.0));
    }
    if case.attended {
        attend(watcher, case, deadline + case.patience()).await?;
        check::verdicts(&watcher.world(), &case.sources, &due, &live)?;
    }
    // More than is due may get through; and what is queued already cannot be taken back.
    let end = watcher.now() + DEADLINE_SLACK;
    let sent = end + self::deadline(case);
    while (!watcher.world().is_complete() && watcher.step(end).await)
        || (watcher.is_sending() && watcher.step(sent).await)
    {
        budget(watcher)?;
    }
    let complete = watcher.world().is_complete();
    let done = watcher.now();
    while watcher.step(done + WATCH).await {
        budget(watcher)?;
    }
    let world = &*watcher.world();
    if complete {
        check::silence(world, done, GRACE)?;
    }
    watcher.contracts()?;
    check::contents(world, nodes)?;
    if case.protocol.selective {
        check::selection(world, &case.have, supply == Supply::Relayed)?;
    }
    promise::kept(world, case)?;
    let ids = || (0..nodes).map(NodeId);
    Ok(Met {
        events: watcher.events(),
        faults: world.totals().faults,
        data_lost: ids().any(|node| world.is_live(node) && !world.has_all(node)),
        duplicates: ids().map(|node| world.duplicates(node)).max().unwrap_or(0),
        repeats: world.totals().wan_repeats,
    })
}

/// Lets the coordinator come to its end.
async fn attend(watcher: &Watcher<'_, '_>, case: &Case, deadline: Time) -> Result<(), String> {
    while !watcher.world().has_ended() {
        if !watcher.step(deadline).await {
            let patience = case.patience();
            return Err(format!(
                "no end by {deadline}, with a patience of {patience:?}"
            ));
        }
        budget(watcher)?;
    }
    Ok(())
}

fn budget(watcher: &Watcher<'_, '_>) -> Result<(), String> {
    if watcher.events() >= EVENTS_MAX {
        return Err(format!(
            "{EVENTS_MAX} events until {}: no end in sight",
            watcher.now()
        ));
    }
    Ok(())
}
