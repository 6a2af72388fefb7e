//! An emulated network that stays up while things happen in it.
//!
//! `outpour emulate` ends with its command. Here that command only waits for the end of its input,
//! and everything else is started on the nodes through `outpour exec`: so a cast may be killed and
//! what it leaves behind can be watched.

use std::ffi::OsStr;
use std::path::PathBuf;
use std::process::{ChildStdin, Command, Stdio};
use std::time::{Duration, Instant};

use crate::ExperimentError;
use crate::lab::{Lab, Running, read};

/// What processes inside know their emulation by, and their node: variables of the environment.
pub(crate) const EMULATION: &str = "OUTPOUR_EMULATION";
pub(crate) const NODE: &str = "OUTPOUR_NODE";
/// How long an emulation may take to come up, and to go down.
const TURN_MAX: Duration = Duration::from_secs(60);
/// How often it is looked whether it is up.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// How the emulator treats packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// One by one, of 1500 bytes.
    Packet,
    /// In bundles of up to 64 KiB, of 9000 bytes: cheaper.
    Bulk,
}

impl Mode {
    /// Its name on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Packet => "packet",
            Self::Bulk => "bulk",
        }
    }
}

/// See the module.
pub(crate) struct Stage<'a> {
    lab: &'a Lab,
    emulation: Running,
    /// The emulation lasts until this is dropped.
    input: Option<ChildStdin>,
    name: String,
    report: PathBuf,
}

impl<'a> Stage<'a> {
    /// Builds a network, as `outpour emulate --network` takes it.
    pub(crate) fn open(lab: &'a Lab, network: &str, mode: Mode) -> Result<Self, ExperimentError> {
        Self::open_with(lab, network, mode, &[])
    }

    /// The same, with further options of `outpour emulate`.
    pub(crate) fn open_with(
        lab: &'a Lab,
        network: &str,
        mode: Mode,
        options: &[&str],
    ) -> Result<Self, ExperimentError> {
        let file = lab.write("network.toml", network.as_bytes())?;
        let report = lab.path("emulation.json");
        // What an earlier one said is no answer.
        let _ = std::fs::remove_file(&report);
        let mut command = Command::new(lab.program());
        command
            .args(["emulate", "--mode", mode.name(), "--network"])
            .arg(file)
            .arg("--report")
            .arg(&report)
            .args(options)
            .args(["--", "sh", "-c", "echo \"$OUTPOUR_EMULATION\"; exec cat"])
            .stdin(Stdio::piped());
        let mut emulation = lab.start(command, "emulation")?;
        let input = emulation.stdin();
        let begun = Instant::now();
        let name = loop {
            let said = emulation.printed()?;
            if let Some(name) = said.strip_suffix('\n') {
                break name.to_owned();
            }
            if emulation.ended()?.is_some() {
                emulation.said()?;
            }
            if begun.elapsed() > TURN_MAX {
                let why = "the emulated network does not come up";
                return Err(ExperimentError::Setup(why.to_owned()));
            }
            std::thread::sleep(LOOK_EVERY);
        };
        Ok(Self {
            lab,
            emulation,
            input,
            name,
            report,
        })
    }

    /// What the processes inside know the emulation by.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// A command that runs on a node.
    pub(crate) fn command(&self, node: &str, program: impl AsRef<OsStr>) -> Command {
        let mut command = Command::new(self.lab.program());
        command
            .env(EMULATION, &self.name)
            // Twenty processes share the machine: with a thread each for the network they are
            // switched less often. Outpour's runtime takes the number from here.
            .env("TOKIO_WORKER_THREADS", "1")
            .args(["exec", node])
            .arg(program)
            .stdin(Stdio::null());
        command
    }

    /// Takes the network away, and every process in it; returns what the emulator says of itself.
    pub(crate) fn close(mut self) -> Result<Option<String>, ExperimentError> {
        self.end()?;
        Ok(read(&self.report).ok())
    }

    fn end(&mut self) -> Result<(), ExperimentError> {
        drop(self.input.take());
        self.emulation.wait(TURN_MAX, |_| Ok(())).map(|_| ())
    }
}

impl Drop for Stage<'_> {
    /// An emulator that ends by itself leaves nothing behind; one that is killed does.
    fn drop(&mut self) {
        let _ = self.end();
    }
}
