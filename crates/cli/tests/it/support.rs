//! Running the program and looking at what it did.

use std::ffi::OsStr;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};

use serde_json::Value;

/// The program, with nothing of the user's environment that changes what it prints.
pub(crate) fn outpour() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_outpour"));
    for name in ["COLUMNS", "OUTPOUR_LOG", "NO_COLOR", "CLICOLOR_FORCE"] {
        command.env_remove(name);
    }
    command.stdin(Stdio::null());
    command
}

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

/// Runs a command to its end.
pub(crate) fn run(command: &mut Command) -> Ran {
    Ran::new(command.output().unwrap())
}

/// Runs the program with `arguments` to its end.
pub(crate) fn call<S: AsRef<OsStr>>(arguments: impl IntoIterator<Item = S>) -> Ran {
    run(outpour().args(arguments))
}

/// Says that a test is skipped, past what the test runner keeps to itself.
pub(crate) fn skipped(why: &str) {
    let line = format!("\n*** SKIPPED: {why}\n");
    let _ = std::io::stderr().write_all(line.as_bytes());
}

/// Sends a process a signal by its name: `INT`, `KILL`, `STOP`.
#[track_caller]
pub(crate) fn signal(id: u32, name: &str) {
    let sent = run(Command::new("kill").args([format!("-{name}"), id.to_string()]));
    assert_eq!(sent.code, Some(0), "{sent:?}");
}

/// Compares `text` with a file under `snapshots`; OUTPOUR_BLESS=1 writes the file instead.
#[track_caller]
pub(crate) fn snapshot(name: &str, text: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/it/snapshots")
        .join(name);
    if std::env::var_os("OUTPOUR_BLESS").is_some() {
        std::fs::write(&path, text).unwrap();
    }
    let expected = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        text == expected,
        "{name} has changed; OUTPOUR_BLESS=1 accepts this:\n{text}\nwas:\n{expected}"
    );
}

/// A small tree with what a tree may hold.
pub(crate) fn tree(root: &Path) -> PathBuf {
    let path = root.join("model");
    std::fs::create_dir_all(path.join("weights/deep")).unwrap();
    std::fs::create_dir(path.join("empty")).unwrap();
    let noise = |length: usize, seed: u8| {
        let mut state = u32::from(seed) + 1;
        let step = |_| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 24) as u8
        };
        (0..length).map(step).collect::<Vec<u8>>()
    };
    std::fs::write(path.join("weights/big.bin"), noise(3_000_001, 1)).unwrap();
    for n in 0..40 {
        let small = path.join(format!("weights/deep/{n}"));
        std::fs::write(small, noise(usize::from(n) * 97, n)).unwrap();
    }
    std::fs::write(path.join("a name with spaces; and $(more)"), "x").unwrap();
    std::os::unix::fs::symlink("weights/big.bin", path.join("link")).unwrap();
    path
}

/// Asserts that two trees are the same, as `diff -r` sees it.
#[track_caller]
pub(crate) fn same(a: &Path, b: &Path) {
    let diff = run(Command::new("diff")
        .args(["-r", "--no-dereference"])
        .arg(a)
        .arg(b));
    assert_eq!(diff.code, Some(0), "{diff:?}");
}

/// Held by a test that measures in an emulated network, or loads the machine with one: each would
/// disturb the other.
pub(crate) fn undisturbed() -> MutexGuard<'static, ()> {
    static MEASURING: Mutex<()> = Mutex::new(());
    // A test that failed has ended all the same.
    MEASURING.lock().unwrap_or_else(PoisonError::into_inner)
}
