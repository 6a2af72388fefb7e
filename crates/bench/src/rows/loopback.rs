//! One sender, one receiver, nothing limited: what encryption and verification cost.

use std::path::Path;

use anyhow::ensure;
use outpour_core::{Bytes, Rate};

use crate::context::Context;
use crate::data::{self, median};
use crate::fleet::{Fleet, Report};
use crate::plain;
use crate::process::Process;
use crate::result::Measured;

const SIZE: Bytes = Bytes(4 << 30);

/// Copies and casts in turn; the medians count.
const ROUNDS: usize = 5;

pub(super) fn run(context: &Context) -> anyhow::Result<Measured> {
    let place = context.place()?;
    let source = place.path().join("file");
    let copy = place.path().join("plain");
    data::file(&source, SIZE)?;
    let expected = data::hash(&source)?;
    let fleet = Fleet::start(context, place.path(), 1)?;
    let patience = plain::patience(SIZE, Rate::UNLIMITED);

    let (mut plain_s, mut synced_s, mut ours_s, mut cpu_s) = (vec![], vec![], vec![], vec![]);
    let (mut hash_s, mut command) = (vec![], String::new());
    for round in 0..ROUNDS {
        ready(&source, &copy)?;
        let plain = plain::copy(&source, &copy, Rate::UNLIMITED)?;
        std::fs::remove_file(&copy)?;

        ready(&source, &copy)?;
        let leaf = format!("copy{round}");
        let agents_s = fleet.cpu_s()?;
        let ended = fleet.cast(&source, &leaf, &[])?.wait(patience)?;
        let agents_s = fleet.cpu_s()? - agents_s;
        Report::of_complete(&ended)?;
        for agent in &fleet.agents {
            let cast = agent.root.join(&leaf);
            ensure!(
                data::hash(&cast)? == expected,
                "{}: wrong bytes",
                cast.display()
            );
            std::fs::remove_file(&cast)?;
        }

        data::warm(&source)?;
        let shown = source.display().to_string();
        let hash = Process::start(&context.outpour, &["hash", &shown], place.path(), "hash")?;
        let hash = hash.wait(patience)?.success()?;
        eprintln!(
            "  plain {:.2} s (and {:.2} s to sync), cast {:.2} s, hash alone {:.2} s",
            plain.seconds, plain.sync_s, ended.wall_s, hash.wall_s
        );
        plain_s.push(plain.seconds);
        synced_s.push(plain.seconds + plain.sync_s);
        ours_s.push(ended.wall_s);
        cpu_s.push(ended.cpu_s + agents_s);
        hash_s.push(hash.wall_s);
        command = ended.command;
    }
    let (plain_s, ours_s, hash_s) = (median(plain_s), median(ours_s), median(hash_s));
    let rate = |seconds: f64| SIZE.as_f64() / 1e6 / seconds;
    Ok(Measured {
        baseline: format!("{:.0} MB/s", rate(plain_s)),
        ours: format!("{:.0} MB/s", rate(ours_s)),
        ratio: plain_s / ours_s,
        detail: format!(
            "plain {plain_s:.2} s, or {:.2} s until it is on the disk; cast {ours_s:.2} s, which \
             syncs, with {:.1} s of processor time on both sides; hashing the source alone takes \
             {hash_s:.2} s, the rest moves {:.0} MB/s",
            median(synced_s),
            median(cpu_s),
            rate((ours_s - hash_s).max(f64::MIN_POSITIVE)),
        ),
        command,
    })
}

/// Brings the machine into the same state before each measurement: the source in the page cache,
/// nothing to be written, and as much memory just freed as the copy will need. A virtual machine
/// gets memory from its host when it is first used, many times slower than afterwards, and gives
/// back what was free for a while.
fn ready(source: &Path, spare: &Path) -> anyhow::Result<()> {
    data::warm(source)?;
    data::sync();
    data::zeros(spare, SIZE)?;
    Ok(std::fs::remove_file(spare)?)
}
