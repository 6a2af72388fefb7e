//! Memory of a node must not grow with the object: one that is large in both ways.

use std::time::Duration;

use anyhow::Context as _;
use outpour_core::Bytes;

use crate::context::Context;
use crate::data;
use crate::fleet::{Fleet, Report};
use crate::result::Measured;

/// The large file; its zeros take no room at the source, but every block is hashed, sent,
/// verified and written.
const LARGE: Bytes = Bytes(10 << 30);

const SMALL_FILES: usize = 200_000;

const LIMIT: Bytes = Bytes(256 << 20);

const PATIENCE: Duration = Duration::from_secs(1800);

pub(super) fn run(context: &Context) -> anyhow::Result<Measured> {
    let place = context.place()?;
    let source = place.path().join("tree");
    data::small_files(&source, SMALL_FILES)?;
    data::sparse(&source.join("large"), LARGE)?;
    let fleet = Fleet::start(context, place.path(), 1)?;
    let ended = fleet.cast(&source, "copy", &[])?.wait(PATIENCE)?;
    let report = Report::of_complete(&ended)?;
    let agent = fleet.agents.first().context("there is no agent")?;
    let peak = agent.process.peak()?;
    data::same_tree(&source, &agent.root.join("copy"))?;
    let mebibytes = |bytes: Bytes| bytes.as_f64() / f64::from(1 << 20);
    Ok(Measured {
        baseline: format!("{:.0} MiB", mebibytes(LIMIT)),
        ours: format!("{:.0} MiB", mebibytes(peak)),
        ratio: peak.as_f64() / LIMIT.as_f64(),
        detail: format!(
            "{} received in {:.1} s; the command, which is the source, peaked at {:.0} MiB",
            Bytes(report.size_bytes),
            ended.wall_s,
            mebibytes(ended.peak)
        ),
        command: ended.command,
    })
}
