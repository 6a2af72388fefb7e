//! What kills, power cuts and failing system calls leave behind, tried on real casts by the hundred.
//!
//! A program that `cargo test` leaves alone: it takes an hour and needs root. `make test-crash` runs it;
//! the tests of faults run a few rounds of each sort. Without options it does all that
//! docs/testing.md gives results of:
//!
//! ```text
//! cargo test -p outpour-cli --test crash -- [--cuts N] [--kills N] [--injections N]
//!     [--seed N] [--jobs N] [--dir DIR] [--json FILE]
//! ```
//!
//! `--dir` is where images and trees are made. A seed repeats what is drawn, though not to the
//! microsecond when it strikes.
#![allow(clippy::unwrap_used)]

#[allow(dead_code)]
#[path = "../faults/harness.rs"]
mod harness;
// The same modules are part of the tests of faults, beside which they lie then.
#[allow(dead_code)]
#[path = "rounds.rs"]
mod rounds;
#[path = "../it/service.rs"]
mod service;
#[allow(dead_code)]
#[path = "../it/support.rs"]
mod support;

use std::path::PathBuf;
use std::process::{Command, ExitCode};

use rounds::Plan;

/// Set for the process that does the work, in a world of its own.
const INSIDE: &str = "OUTPOUR_CRASH_INSIDE";

/// What is needed beyond a kernel with loop devices, and the Debian package that has it.
const TOOLS: [(&str, &str); 7] = [
    ("mkfs.ext4", "e2fsprogs"),
    ("strace", "strace"),
    ("mount", "mount"),
    ("umount", "mount"),
    ("unshare", "util-linux"),
    ("setpriv", "util-linux"),
    ("perl", "perl-base"),
];

fn main() -> ExitCode {
    let plan = match plan(std::env::args().skip(1)) {
        Ok(plan) => plan,
        Err(wrong) => return fail(2, &wrong),
    };
    if !rustix::process::geteuid().is_root() {
        return fail(
            1,
            "it mounts file systems and cuts them off, which only root may: run it as root",
        );
    }
    for (tool, package) in TOOLS {
        if !is_installed(tool) {
            let wrong = format!(
                "{tool} is missing: install the package {package}, or run scripts/setup crash"
            );
            return fail(1, &wrong);
        }
    }
    if std::env::var_os(INSIDE).is_none() {
        return confined();
    }
    match rounds::run(&plan) {
        0 => ExitCode::SUCCESS,
        violations => fail(
            1,
            &format!("{violations} rounds broke a promise, see above"),
        ),
    }
}

fn fail(code: u8, wrong: &str) -> ExitCode {
    eprintln!("crash: {wrong}");
    ExitCode::from(code)
}

fn is_installed(tool: &str) -> bool {
    let path = std::env::var("PATH").unwrap_or_default();
    let mut dirs = path.split(':').chain(["/usr/sbin", "/sbin"]);
    dirs.any(|dir| PathBuf::from(dir).join(tool).is_file())
}

/// Runs this program again with processes and mounts of its own, which end with it however it ends: the
/// kernel then unmounts images and frees their loop devices.
fn confined() -> ExitCode {
    let status = Command::new("setpriv")
        .args([
            "--pdeathsig",
            "KILL",
            "unshare",
            "--mount",
            "--pid",
            "--fork",
        ])
        .args(["--kill-child", "--mount-proc"])
        .arg(std::env::current_exe().unwrap())
        .args(std::env::args_os().skip(1))
        .env(INSIDE, "1")
        .status();
    match status {
        Ok(status) => ExitCode::from(status.code().map_or(1, |code| code as u8)),
        Err(error) => fail(1, &format!("cannot run setpriv: {error}")),
    }
}

fn plan(mut arguments: impl Iterator<Item = String>) -> Result<Plan, String> {
    let mut plan = Plan::default();
    while let Some(option) = arguments.next() {
        let value = arguments.next().ok_or(format!("{option} has no value"))?;
        let number = || {
            let number = value.parse::<u64>();
            number.map_err(|_| format!("{option}: {value:?} is no number"))
        };
        match option.as_str() {
            "--cuts" => plan.cuts = number()?,
            "--kills" => plan.kills = number()?,
            "--injections" => plan.injections = number()?,
            "--seed" => plan.seed = number()?,
            "--jobs" => plan.jobs = number()?.max(1),
            "--dir" => plan.dir = value.into(),
            "--json" => plan.json = Some(value.into()),
            _ => return Err(format!("there is no option {option}")),
        }
    }
    Ok(plan)
}
