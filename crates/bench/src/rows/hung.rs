//! Nodes on one machine, one of them on a disk that hangs on the way: what it costs the others, and
//! whether the command ends although an agent waits in the kernel.

use std::path::Path;

use anyhow::ensure;
use outpour_core::Bytes;
use outpour_core::units::parse_duration;

use super::mesh::{Mesh, Survived, measured};
use crate::cleanup::Disk;
use crate::context::Context;
use crate::data::{self, median};
use crate::fleet::{self, Fleet, Host};
use crate::result::Measured;

/// The nodes of these rows.
const MESH: Mesh = Mesh {
    agents: 10,
    size: Bytes(60_000_000),
    rate: "50 Mbit/s",
    patience: "6 s",
};

/// Of the agent in the middle.
const DISK: Bytes = Bytes(256 << 20);

/// Casts without and with a fault in turn; the medians count.
const ROUNDS: usize = 3;

/// How much longer than its patience a command may run after a disk hung: the coordinator looks at its
/// clock now and then, and the other agents leave.
const LEAVING_S: f64 = 2.0;

/// What counts of all rounds.
#[derive(Debug, Default)]
struct Rounds {
    /// When the last of the others had all while no disk hung.
    sound_s: Vec<f64>,
    /// The same with one that did.
    hung_s: Vec<f64>,
    /// From then to the end of the command.
    after_s: Vec<f64>,
    hosts: Vec<Host>,
    command: String,
}

pub(super) fn chain(context: &Context) -> anyhow::Result<Measured> {
    one_hung(context, "chain")
}

pub(super) fn swarm(context: &Context) -> anyhow::Result<Measured> {
    one_hung(context, "swarm")
}

/// One agent's disk hangs at half time, until the command has ended.
fn one_hung(context: &Context, protocol: &str) -> anyhow::Result<Measured> {
    ensure!(
        rustix::process::geteuid().is_root(),
        "having a disk hang needs root; run this row as root"
    );
    let longest_s = parse_duration(MESH.patience)?.as_secs_f64() + LEAVING_S;
    let mut rounds = Rounds::default();
    // The first round is not counted.
    for round in 0..=ROUNDS {
        let sound = on_a_disk(context, |fleet, source, _| {
            let (report, _) = MESH.cast(fleet, source, &MESH.patient(protocol))?;
            Ok(MESH.last_s(&report.hosts))
        })?;
        let hung = on_a_disk(context, |fleet, source, disk| {
            MESH.cast_losing_one(fleet, source, protocol, sound / 2.0, |_| disk.freeze())
        })?;
        eprintln!(
            "  sound {sound:.2} s, hung {:.2} s, the end {:.2} s after the disk hung{}",
            hung.last_s,
            hung.after_s,
            if round == 0 { "; not counted" } else { "" }
        );
        ensure!(
            hung.after_s <= longest_s,
            "`{}` ended {:.2} s after a disk hung, not within {longest_s} s",
            hung.ended.command,
            hung.after_s
        );
        if round > 0 {
            rounds.add(sound, hung);
        }
    }
    Ok(rounds.measured())
}

impl Rounds {
    fn add(&mut self, sound_s: f64, hung: Survived) {
        self.sound_s.push(sound_s);
        self.hung_s.push(hung.last_s);
        self.after_s.push(hung.after_s);
        self.hosts.extend(hung.hosts);
        self.command = hung.ended.command;
    }

    fn measured(self) -> Measured {
        let rounds = self.sound_s.len();
        let (sound_s, hung_s) = (median(self.sound_s), median(self.hung_s));
        let longest_s = self.after_s.iter().copied().fold(0.0, f64::max);
        let detail = format!(
            "medians of {rounds}; hung after {:.1} s; the command ended {:.2} s after that, at most \
             {longest_s:.2} s, and had a patience of {}; {}",
            sound_s / 2.0,
            median(self.after_s),
            MESH.patience,
            MESH.received(&self.hosts),
        );
        measured(hung_s, sound_s, detail, self.command)
    }
}

/// Has new agents, the one in the middle on a disk of its own, and a source for `run`.
fn on_a_disk<T>(
    context: &Context,
    run: impl FnOnce(&Fleet, &Path, &Disk<'_>) -> anyhow::Result<T>,
) -> anyhow::Result<T> {
    let place = context.place()?;
    let source = place.path().join("file");
    data::file(&source, MESH.size)?;
    let at = fleet::root(place.path(), MESH.middle());
    let disk = Disk::new(&place, &at, DISK)?;
    // Ended before the disk is taken from them.
    let fleet = Fleet::start(context, place.path(), MESH.agents)?;
    data::sync();
    run(&fleet, &source, &disk)
}

#[cfg(test)]
mod tests {
    use std::process::ExitStatus;

    use super::*;
    use crate::process::Ended;

    /// A host that has all since then, or never.
    fn host(finish_s: Option<f64>) -> Host {
        Host {
            host: "a".to_owned(),
            finish_s,
            verified: finish_s.is_some(),
            received_bytes: finish_s.map_or(17, |_| MESH.size.0),
            error: None,
        }
    }

    #[test]
    fn medians_count_and_the_longest_end_is_told() {
        let mut rounds = Rounds::default();
        for (sound_s, last_s, after_s) in [(10.0, 10.2, 9.0), (12.0, 13.0, 9.5), (9.0, 9.1, 9.25)] {
            let ended = Ended {
                status: ExitStatus::default(),
                wall_s: 0.0,
                cpu_s: 0.0,
                peak: Bytes::ZERO,
                stdout: String::new(),
                stderr: String::new(),
                command: "outpour cast".to_owned(),
            };
            let hosts = vec![host(Some(1.0)), host(None)];
            let hung = Survived {
                last_s,
                after_s,
                hosts,
                ended,
            };
            rounds.add(sound_s, hung);
        }
        let row = rounds.measured();
        assert_eq!((&*row.ours, &*row.baseline), ("10.20 s", "10.00 s"));
        assert!((row.ratio - 1.02).abs() < 1e-9, "{}", row.ratio);
        assert_eq!(
            row.detail,
            "medians of 3; hung after 5.0 s; the command ended 9.25 s after that, at most 9.50 s, and \
             had a patience of 6 s; 1.00 times the object was received per host"
        );
    }

    #[test]
    fn the_one_that_hangs_does_not_count_among_the_others() {
        let mut hosts: Vec<Host> = (0..MESH.agents).map(|_| host(Some(2.0))).collect();
        hosts[MESH.middle()] = host(Some(7.0));
        assert_eq!(MESH.last_s(&hosts), 2.0);
        hosts[MESH.middle() + 1] = host(Some(3.0));
        assert_eq!(MESH.last_s(&hosts), 3.0);
    }
}
