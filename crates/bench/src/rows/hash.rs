//! Hashing for the manifest beside `b3sum`, which computes the same hash and nothing else.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use outpour_core::Bytes;

use crate::context::Context;
use crate::data::{self, median};
use crate::process::{Process, typed};
use crate::result::Measured;

const SIZE: Bytes = Bytes(4 << 30);

/// Both programs in turn; the medians count.
const ROUNDS: usize = 5;

/// The two cores both programs are held to.
const CORES: [&str; 2] = ["-c", "0,1"];

const PATIENCE: Duration = Duration::from_secs(600);

pub(super) fn run(context: &Context) -> anyhow::Result<Measured> {
    let place = context.place()?;
    let file = place.path().join("file");
    data::file(&file, SIZE)?;
    data::warm(&file)?;
    let shown = file.display().to_string();
    let ours = context.outpour.display().to_string();
    let run = |words: &[&str]| -> anyhow::Result<_> {
        let words = [&CORES, words].concat();
        Process::start(Path::new("taskset"), &words, place.path(), "hash")?
            .wait(PATIENCE)?
            .success()
    };
    let (mut theirs_s, mut ours_s) = (vec![], vec![]);
    for _ in 0..ROUNDS {
        let theirs = run(&["b3sum", "--num-threads", "2", &shown])?;
        let ours = run(&[&ours, "hash", &shown])?;
        let hash = theirs.stdout.split_whitespace().next();
        let hash = hash.context("b3sum printed nothing")?;
        ensure!(
            ours.stdout.contains(hash),
            "`outpour hash` printed another hash than b3sum: {} instead of {}",
            ours.stdout.trim(),
            theirs.stdout.trim()
        );
        eprintln!(
            "  b3sum {:.2} s, outpour {:.2} s",
            theirs.wall_s, ours.wall_s
        );
        theirs_s.push(theirs.wall_s);
        ours_s.push(ours.wall_s);
    }
    let (theirs_s, ours_s) = (median(theirs_s), median(ours_s));
    let rate = |seconds: f64| format!("{:.2} GB/s", SIZE.as_f64() / 1e9 / seconds);
    Ok(Measured {
        baseline: rate(theirs_s),
        ours: rate(ours_s),
        ratio: theirs_s / ours_s,
        detail: format!("b3sum {theirs_s:.2} s, outpour {ours_s:.2} s, the same hash"),
        command: typed(
            Path::new("taskset"),
            &[&CORES[..], &["outpour", "hash", "file"]].concat(),
        ),
    })
}
