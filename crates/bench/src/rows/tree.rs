//! Many small files beside `rsync`, which neither encrypts nor syncs.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::ensure;

use crate::cleanup::Place;
use crate::context::Context;
use crate::data::{self, median};
use crate::fleet::{self, Fleet, Report};
use crate::process::Process;
use crate::result::Measured;

const FILES: usize = 100_000;

/// Both programs in turn; the medians count.
const ROUNDS: usize = 3;

const PATIENCE: Duration = Duration::from_secs(900);

/// How long the daemon may take to listen.
const SOON: Duration = Duration::from_secs(10);

pub(super) fn run(context: &Context) -> anyhow::Result<Measured> {
    let place = context.place()?;
    let source = place.path().join("tree");
    let size = data::small_files(&source, FILES)?;
    let daemon = Daemon::start(&place)?;
    let fleet = Fleet::start(context, place.path(), 1)?;

    let (mut theirs_s, mut ours_s, mut cpu_s) = (vec![], vec![], vec![]);
    let mut command = String::new();
    // The first round is not counted: the first to read the tree would find it out of the cache.
    // All copies stay until the end: ext4 without a journal is slow to create files where many
    // were removed in the last minutes.
    for round in 0..=ROUNDS {
        data::sync();
        let leaf = format!("copy{round}");
        let theirs = daemon.copy(&source, &leaf)?;
        data::same_tree(&source, &daemon.root.join(&leaf))?;

        data::sync();
        let agent_s = fleet.cpu_s()?;
        let ours = fleet.cast(&source, &leaf, &[])?.wait(PATIENCE)?;
        let agent_s = fleet.cpu_s()? - agent_s;
        Report::of_complete(&ours)?;
        for agent in &fleet.agents {
            let copy = agent.root.join(&leaf);
            data::same_tree(&source, &copy)?;
        }
        eprintln!(
            "  rsync {:.2} s, cast {:.2} s{}",
            theirs,
            ours.wall_s,
            if round == 0 { "; not counted" } else { "" }
        );
        if round > 0 {
            theirs_s.push(theirs);
            ours_s.push(ours.wall_s);
            cpu_s.push(ours.cpu_s + agent_s);
        }
        command = ours.command;
    }
    let (theirs_s, ours_s) = (median(theirs_s), median(ours_s));
    Ok(Measured {
        baseline: format!("{theirs_s:.2} s"),
        ours: format!("{ours_s:.2} s"),
        ratio: ours_s / theirs_s,
        detail: format!(
            "{size} in {FILES} files; medians of {ROUNDS}; {:.1} s of processor time on both sides",
            median(cpu_s)
        ),
        command,
    })
}

/// An rsync daemon with a configuration of its own.
#[derive(Debug)]
struct Daemon {
    _process: Process,
    place: PathBuf,
    root: PathBuf,
    port: u16,
}

impl Daemon {
    fn start(place: &Place) -> anyhow::Result<Self> {
        let place = place.path().to_owned();
        let root = place.join("rsync");
        std::fs::create_dir(&root)?;
        let config = place.join("rsyncd.conf");
        // As root, a daemon writes as nobody unless told otherwise.
        let (user, group) = (rustix::process::getuid(), rustix::process::getgid());
        let text = format!(
            "use chroot = no\nuid = {}\ngid = {}\n[bench]\npath = {}\nread only = no\n",
            user.as_raw(),
            group.as_raw(),
            root.display()
        );
        std::fs::write(&config, text)?;
        let port = fleet::free_port()?;
        let args = [
            "--daemon".to_owned(),
            "--no-detach".to_owned(),
            "--address=127.0.0.1".to_owned(),
            format!("--port={port}"),
            format!("--config={}", config.display()),
        ];
        let process = Process::start(Path::new("rsync"), &args, &place, "rsyncd")?;
        let started = Instant::now();
        while std::net::TcpStream::connect(("127.0.0.1", port)).is_err() {
            let waiting = started.elapsed() < SOON && !process.has_ended()?;
            ensure!(
                waiting,
                "`{}` takes no calls: {}",
                process.command,
                process.complaint()
            );
            std::thread::sleep(Duration::from_millis(10));
        }
        Ok(Self {
            _process: process,
            place,
            root,
            port,
        })
    }

    /// Copies a tree to a directory of the daemon; returns the seconds it took.
    fn copy(&self, source: &Path, leaf: &str) -> anyhow::Result<f64> {
        let args = [
            "-a".to_owned(),
            format!("{}/", source.display()),
            format!("rsync://127.0.0.1:{}/bench/{leaf}/", self.port),
        ];
        let process = Process::start(Path::new("rsync"), &args, &self.place, "rsync")?;
        Ok(process.wait(PATIENCE)?.success()?.wall_s)
    }
}
