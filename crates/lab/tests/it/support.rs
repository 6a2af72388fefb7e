//! Running the program and looking at what it did.

use std::ffi::OsStr;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};

use serde_json::Value;

/// How a run ended.
#[derive(Debug)]
pub(crate) struct Ran {
    pub(crate) code: Option<i32>,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl Ran {
    fn new(output: Output) -> Self {
        Self {
            code: output.status.code(),
            out: String::from_utf8_lossy(&output.stdout).into_owned(),
            err: String::from_utf8_lossy(&output.stderr).into_owned(),
        }
    }

    /// The one JSON document on standard output.
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.out).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    /// Checks the exit code; everything that was printed explains a wrong one.
    #[track_caller]
    pub(crate) fn expect(self, code: i32) -> Self {
        assert_eq!(self.code, Some(code), "{self:?}");
        self
    }
}

/// Runs the program with `arguments` to its end, with nothing of the user's environment that changes
/// what it prints.
pub(crate) fn call<S: AsRef<OsStr>>(arguments: impl IntoIterator<Item = S>) -> Ran {
    call_with(arguments, &[])
}

/// The same, with these variables in its environment.
pub(crate) fn call_with<S: AsRef<OsStr>>(
    arguments: impl IntoIterator<Item = S>,
    variables: &[(&str, &str)],
) -> Ran {
    let mut command = Command::new(env!("CARGO_BIN_EXE_outpour-lab"));
    for name in ["COLUMNS", "OUTPOUR_LOG", "NO_COLOR", "CLICOLOR_FORCE"] {
        command.env_remove(name);
    }
    let variables = variables.iter().copied();
    command.args(arguments).envs(variables).stdin(Stdio::null());
    Ran::new(command.output().unwrap())
}

/// Says that a test is skipped, past what the test runner keeps to itself.
pub(crate) fn skipped(why: &str) {
    let line = format!("\n*** SKIPPED: {why}\n");
    let _ = std::io::stderr().write_all(line.as_bytes());
}

/// Compares `text` with a file under `snapshots`; OUTPOUR_BLESS=1 writes the file instead.
#[track_caller]
pub(crate) fn snapshot(name: &str, text: &str) {
    let snapshots = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/snapshots");
    let path = snapshots.join(name);
    if std::env::var_os("OUTPOUR_BLESS").is_some() {
        std::fs::write(&path, text).unwrap();
    }
    let expected = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        text == expected,
        "{name} has changed; OUTPOUR_BLESS=1 accepts this:\n{text}\nwas:\n{expected}"
    );
}

/// Held by a test that measures in an emulated network: each would disturb the other.
pub(crate) fn undisturbed() -> MutexGuard<'static, ()> {
    static MEASURING: Mutex<()> = Mutex::new(());
    // A test that failed has ended all the same.
    MEASURING.lock().unwrap_or_else(PoisonError::into_inner)
}
