//! Two objects at once to the same agents, and one object as large as both: what sharing a host's
//! data plane costs in time and memory.

use std::path::Path;
use std::time::{Duration, Instant};

use outpour_core::{Bytes, Rate};

use crate::context::Context;
use crate::data;
use crate::fleet::{Fleet, Report};
use crate::plain;
use crate::result::Measured;

const AGENTS: usize = 7;

/// Of each of the two objects.
const SIZE: Bytes = Bytes(128 << 20);

/// What every agent is limited to in each direction, over all casts.
const RATE: &str = "100 Mbit/s";

/// What a run took.
#[derive(Debug)]
pub(crate) struct Taken {
    seconds: f64,
    /// Peak memory of all agents together.
    peak: Bytes,
    command: String,
}

/// Both runs: one object as large as two, and two at once.
#[derive(Debug)]
pub(crate) struct Together {
    one: Taken,
    two: Taken,
}

pub(super) fn time(context: &Context) -> anyhow::Result<Measured> {
    let Together { one, two } = together(context)?;
    Ok(Measured {
        baseline: format!("{:.2} s", one.seconds),
        ours: format!("{:.2} s", two.seconds),
        ratio: two.seconds / one.seconds,
        detail: format!("{AGENTS} agents, each limited to {RATE} over both casts"),
        command: two.command.clone(),
    })
}

pub(super) fn memory(context: &Context) -> anyhow::Result<Measured> {
    let Together { one, two } = together(context)?;
    let mebibytes = |bytes: Bytes| bytes.as_f64() / f64::from(1 << 20);
    Ok(Measured {
        baseline: format!("{:.0} MiB", mebibytes(one.peak)),
        ours: format!("{:.0} MiB", mebibytes(two.peak)),
        ratio: two.peak.as_f64() / one.peak.as_f64(),
        detail: format!("peak resident memory of {AGENTS} agents together"),
        command: two.command.clone(),
    })
}

/// Both runs, made once for both rows.
fn together(context: &Context) -> anyhow::Result<&Together> {
    if let Some(together) = context.together.get() {
        return Ok(together);
    }
    let one = run(context, &[Bytes(2 * SIZE.0)])?;
    let two = run(context, &[SIZE, SIZE])?;
    Ok(context.together.get_or_init(|| Together { one, two }))
}

/// Casts objects of these sizes at once to new agents.
fn run(context: &Context, sizes: &[Bytes]) -> anyhow::Result<Taken> {
    let place = context.place()?;
    let source = |number: usize| place.path().join(format!("file{number}"));
    for (number, size) in sizes.iter().enumerate() {
        data::file(&source(number), *size)?;
        data::warm(&source(number))?;
    }
    let fleet = Fleet::start_with(context, place.path(), AGENTS, &["--limit", RATE])?;
    let started = Instant::now();
    let mut casts = Vec::new();
    for number in 0..sizes.len() {
        let leaf = format!("copy{number}");
        casts.push(fleet.cast(&source(number), &leaf, &["--protocol", "chain"])?);
    }
    let mut command = String::new();
    for cast in casts {
        let ended = cast.wait(patience(sizes)?)?;
        Report::of_complete(&ended)?;
        command = ended.command;
    }
    let seconds = started.elapsed().as_secs_f64();
    for number in 0..sizes.len() {
        check(&fleet, &source(number), &format!("copy{number}"))?;
    }
    let mut peak = 0;
    for agent in &fleet.agents {
        peak += agent.process.peak()?.0;
    }
    Ok(Taken {
        seconds,
        peak: Bytes(peak),
        command,
    })
}

/// Fails unless all copies hash to what the source hashes to.
fn check(fleet: &Fleet, source: &Path, leaf: &str) -> anyhow::Result<()> {
    let expected = data::hash(source)?;
    for agent in &fleet.agents {
        let copy = agent.root.join(leaf);
        let found = data::hash(&copy)?;
        anyhow::ensure!(found == expected, "{}: wrong bytes", copy.display());
    }
    Ok(())
}

fn patience(sizes: &[Bytes]) -> anyhow::Result<Duration> {
    let all = sizes.iter().map(|size| size.0).sum();
    let rate: Rate = RATE.parse()?;
    Ok(plain::patience(Bytes(all), rate))
}
