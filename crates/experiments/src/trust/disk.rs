//! One disk of ten that is far too slow: what it costs the other nine.
//!
//! Each write of that host's agent takes as long as a disk would take for a block that is a hundred times
//! slower than the host's network, and so does each sync. It is compared with the time of the same nine
//! in the same cast while the disk is like the others. A disk that hangs altogether is measured by
//! `make bench`, on one of its own.

use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use outpour_core::manifest::BlockSize;

use super::members::{BAD, NETWORK, RATE, Times, middle, object, order, protocols};
use super::report::Row;
use super::site::Site;
use super::{Context, Found};
use crate::ExperimentError;
use crate::gossip::need;
use crate::lab::Lab;

type Outcome<T> = Result<T, ExperimentError>;

/// How many times slower the disk is than the network.
const SLOWER: f64 = 100.0;
/// The calls that are slow.
const CALLS: &str = "pwrite64,pwritev,pwritev2,fsync,fdatasync,syncfs,sync_file_range";
/// How much longer the others may take.
const LONGER_MAX: f64 = 0.05;
const START_MAX: Duration = Duration::from_secs(20);
const LOOK_EVERY: Duration = Duration::from_millis(5);

pub(super) fn run(context: &Context<'_>) -> Outcome<Found> {
    let options = context.options;
    need("strace", "strace")?;
    let lab = Lab::new(&options.program, "outpour-trust-")?;
    let (source, size) = object(&lab, options)?;
    let block = BlockSize::Usual.bytes(size);
    let bench = Bench {
        context,
        source,
        delay: Duration::from_secs_f64(f64::from(block) / (RATE / SLOWER)),
    };
    let mut found = Found::default();
    found.notes.push(format!(
        "{size} to ten hosts at 20 Mbit/s; each write and sync of {BAD} takes {:.2} s; medians of {}",
        bench.delay.as_secs_f64(),
        options.rounds()
    ));
    for protocol in protocols(options) {
        let site = Site::open(&lab, NETWORK)?;
        let (mut sound, mut slow) = (Times::new(), Times::new());
        for round in 0..options.rounds() {
            sound.push(bench.cast(&site, protocol, round, false));
            slow.push(bench.cast(&site, protocol, round, true));
        }
        if let Some(void) = site.close()? {
            found.notes.push(format!("{protocol}: {void}"));
        }
        let row = match (middle(sound), middle(slow)) {
            (Ok(without), Ok(with)) => Row::longer(protocol, without, with, LONGER_MAX),
            (Err(error), _) | (_, Err(error)) => Row::failed(protocol, &error),
        };
        (context.progress)(format_args!("{}", row.in_words()));
        found.rows.push(row);
    }
    Ok(found)
}

struct Bench<'a> {
    context: &'a Context<'a>,
    source: PathBuf,
    /// How long a write takes.
    delay: Duration,
}

impl Bench<'_> {
    fn cast(&self, site: &Site<'_>, protocol: &str, round: u64, slow: bool) -> Outcome<f64> {
        let seed = self.context.options.seed + round;
        let order = order(site, &self.source, protocol, seed);
        // Let go of as soon as the others have everything.
        let mut brake = None;
        let begun = Instant::now();
        let taken = site.watch(&order, Some(BAD), move |_| {
            if slow && brake.is_none() {
                brake = self.brake(site)?;
                if begun.elapsed() > START_MAX {
                    let why = "the agent whose disk is slow does not start";
                    return Err(ExperimentError::Setup(why.to_owned()));
                }
            }
            Ok(())
        });
        let how = if slow { "slow" } else { "sound" };
        let shown = match &taken {
            Ok(seconds) => format!("{seconds:.2} s"),
            Err(error) => error.to_string(),
        };
        (self.context.progress)(format_args!("  {protocol}, {how}: {shown}"));
        taken
    }

    /// Makes the disk of the agent slow, if that has started.
    fn brake(&self, site: &Site<'_>) -> Outcome<Option<Brake>> {
        let Some(agent) = site.process("agent", BAD) else {
            return Ok(None);
        };
        let delay = format!("inject={CALLS}:delay_exit={}", self.delay.as_micros());
        let mut command = Command::new("strace");
        command.args([
            "-f",
            "-qqq",
            "-o",
            "/dev/null",
            "-e",
            &format!("trace={CALLS}"),
        ]);
        command.args(["-e", &delay, "-p", &agent.pid.to_string()]);
        command.stdin(Stdio::null()).stderr(Stdio::null());
        let started = command.spawn();
        let failed = |e: std::io::Error| ExperimentError::Setup(format!("strace: {e}"));
        let brake = Brake(started.map_err(failed)?);
        let begun = Instant::now();
        let status = format!("/proc/{}/status", agent.pid);
        let traced = || {
            let status = std::fs::read_to_string(&status).unwrap_or_default();
            !status.contains("TracerPid:\t0\n")
        };
        while !traced() && begun.elapsed() < START_MAX {
            std::thread::sleep(LOOK_EVERY);
        }
        Ok(Some(brake))
    }
}

/// A disk that is slow until this is dropped.
struct Brake(Child);

impl Drop for Brake {
    fn drop(&mut self) {
        // Its end lets every thread go on.
        let _ = self.0.kill().and_then(|()| self.0.wait());
    }
}
