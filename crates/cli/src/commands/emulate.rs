//! `outpour emulate`, `outpour exec`, `outpour tell`: real programs in an emulated network.

use std::ffi::OsStr;
use std::fs;
use std::io;
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::time::Duration;

use outpour_core::NodeId;
use outpour_core::text::escape;
use outpour_emu::{
    Client, Config, EmuError, Emulation, EmulationReport, Mode, Running, SIGNALLED, Started, Told,
};
use rustix::process::Pid;

use super::sim;
use crate::args::emulate::{EmulateArgs, EmulateMode, ExecArgs, TellArgs};
use crate::emulation;
use crate::out::{self, Failure};
use crate::signals::Ends;

/// How long a command may take to end after a signal that asks it to.
const GRACE: Duration = Duration::from_secs(5);

/// Runs a command in an emulated network.
///
/// # Errors
/// If the network or script is wrong, the emulation cannot be made, or the command fails.
pub fn run(args: &EmulateArgs) -> Result<(), Failure> {
    let (config, node) = config(args)?;
    let program = std::env::current_exe()
        .map_err(|error| Failure::Failed(format!("cannot find this program: {error}")))?;
    let init = [program.into_os_string(), "exec".into(), "--init".into()];
    let (code, report) = super::block_on(async {
        // From here on it ends in order, however early it is to end.
        let ends = Ends::listen()?;
        let say = |word: &str| out::complain(format_args!("the script says {}", escape(word)));
        let emulation = Emulation::start(config, say).map_err(|error| fail(&error))?;
        let running = emulation.run(node, &init, &args.command);
        let code = attended(running.map_err(|error| fail(&error))?, ends).await?;
        let report = emulation.finish().map_err(|error| fail(&error))?;
        Ok((code, report))
    })?;
    tell_how_it_went(args, &report)?;
    match code {
        0 if report.void && args.strict => Err(Failure::Reported),
        0 => Ok(()),
        code => Err(Failure::Code(code)),
    }
}

/// Runs a command on a node, or the first process of an emulation.
///
/// # Errors
/// If there is no such node, or the command fails.
pub fn exec(args: &ExecArgs) -> Result<(), Failure> {
    if args.init {
        return match outpour_emu::init(&args.node, &args.command).map_err(|error| fail(&error))? {
            0 => Ok(()),
            code => Err(Failure::Code(shell_code(code))),
        };
    }
    let name = args.command.first().cloned().unwrap_or_default();
    let cannot = |error: io::Error| {
        let name = escape(&name.to_string_lossy()).into_owned();
        out::complain(format_args!("cannot run {name}: {error}"));
        // As shells have it.
        Failure::Code(if error.kind() == io::ErrorKind::NotFound {
            127
        } else {
            126
        })
    };
    match outpour_emu::exec(&args.node, &args.command).map_err(|error| fail(&error))? {
        Started::Failed(error) => Err(cannot(error)),
        Started::Child(mut child) => {
            let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
            let status = forwarded(pid, move || child.wait())?;
            match code(status) {
                0 => Ok(()),
                code => Err(Failure::Code(code)),
            }
        }
    }
}

/// Says a word to the script.
///
/// # Errors
/// If there is no emulation, or its script does not hear the word.
pub(super) fn tell(args: &TellArgs) -> Result<(), Failure> {
    let client = Client::find().map_err(|error| fail(&error))?;
    let patience = args.wait.unwrap_or_default();
    let told = client
        .tell(&args.word, patience)
        .map_err(|error| fail(&error))?;
    let word = escape(&args.word);
    match told {
        Told::Heard => Ok(()),
        Told::Remembered if args.wait.is_none() => Ok(()),
        Told::Remembered => Err(Failure::Failed(format!(
            "the script did not hear `{word}` in time"
        ))),
        Told::Ignored => Err(Failure::Failed(format!(
            "nothing waits for `{word}`: the script has no `hear {word}`, or is over"
        ))),
    }
}

/// What the arguments mean.
fn config(args: &EmulateArgs) -> Result<(Config, NodeId), Failure> {
    let script = args.script.as_deref().map(sim::script).transpose()?;
    let described = args.network.as_deref().map(sim::network).transpose()?;
    let network = match (&script, described) {
        (Some(script), described) => script
            .network(described.as_ref())
            .map_err(|error| Failure::from_error(&error))?,
        (None, Some(described)) => described,
        (None, None) => return Err(Failure::Usage("--network or --script is needed".to_owned())),
    };
    let node = match &args.node {
        None => NodeId(0),
        Some(name) => sim::node(&network, "--node", name)?,
    };
    let mode = match args.mode {
        EmulateMode::Packet => Mode::Packet,
        EmulateMode::Bulk => Mode::Bulk,
    };
    let config = Config {
        network,
        script,
        mode,
        mtu: args.mtu.unwrap_or_else(|| mode.usual_mtu()),
        seed: args.seed,
        sample: args.sample,
    };
    Ok((config, node))
}

/// Waits for the command, and ends it if this process is told to end. Returns its exit code.
async fn attended(running: Running, mut ends: Ends) -> Result<u8, Failure> {
    let killer = running.killer();
    let mut waiting = tokio::task::spawn_blocking(move || running.wait());
    let end = tokio::select! {
        done = &mut waiting => return ended(done).map(code),
        end = ends.next() => end,
    };
    out::complain("interrupted; ending the command");
    // What a terminal sends, it sends to the command as well. One that has not begun yet has
    // nothing to tidy up.
    if !end.by_process || killer.signal(end.signal) {
        let patience = GRACE.as_secs();
        let why = tokio::select! {
            done = &mut waiting => return ended(done).map(code),
            () = tokio::time::sleep(GRACE) => format!("it did not end within {patience} s"),
            _ = ends.next() => "interrupted again".to_owned(),
        };
        out::complain(format_args!("{why}; killing the command"));
    }
    killer.kill();
    ended(waiting.await)?;
    Ok(shell_code(SIGNALLED + end.signal.as_raw()))
}

/// Waits for a command, and hands it the signals that this process alone gets.
fn forwarded(
    pid: Option<Pid>,
    wait: impl FnOnce() -> io::Result<ExitStatus> + Send + 'static,
) -> Result<ExitStatus, Failure> {
    super::block_on(async move {
        let mut ends = Ends::listen()?;
        let mut waiting = tokio::task::spawn_blocking(wait);
        loop {
            let end = tokio::select! {
                done = &mut waiting => return ended(done),
                end = ends.next() => end,
            };
            if let Some(pid) = pid
                && end.by_process
            {
                // One that is gone already needs no signal.
                let _ = rustix::process::kill_process(pid, end.signal);
            }
        }
    })
}

fn ended(
    done: Result<io::Result<ExitStatus>, tokio::task::JoinError>,
) -> Result<ExitStatus, Failure> {
    let done = done.map_err(io::Error::other).flatten();
    done.map_err(|error| Failure::Failed(format!("cannot wait for the command: {error}")))
}

/// The exit code a shell would report.
fn code(status: ExitStatus) -> u8 {
    let signalled = || SIGNALLED + status.signal().unwrap_or(0);
    shell_code(status.code().unwrap_or_else(signalled))
}

fn shell_code(code: i32) -> u8 {
    u8::try_from(code).unwrap_or(u8::MAX)
}

/// Says what is worth knowing about the emulation; the output belongs to the command.
fn tell_how_it_went(args: &EmulateArgs, report: &EmulationReport) -> Result<(), Failure> {
    if let Some(path) = &args.report {
        let written = serde_json::to_string_pretty(report)
            .map_err(io::Error::other)
            .and_then(|text| fs::write(path, text + "\n"));
        let shown = escape(&path.display().to_string()).into_owned();
        written.map_err(|error| Failure::Failed(format!("cannot write {shown}: {error}")))?;
    }
    if let Some(word) = &report.unheard {
        let tell = format!("`outpour tell {}`", escape(word));
        out::complain(sim::still_waits(word, &tell));
    }
    if args.summary {
        let late = &report.lateness;
        out::complain(format_args!(
            "{} packets sent, {} received, {} dropped, {} lost, {} marked; late by {:.3} ms \
             (median), {:.3} ms (99 %), {:.1} ms (worst); {:.2} s of processor time",
            report.sent_packets,
            report.received_packets,
            report.dropped_packets,
            report.lost_packets,
            report.marked_packets,
            late.median_s * 1e3,
            late.p99_s * 1e3,
            late.worst_s * 1e3,
            report.cpu_s
        ));
    }
    if !report.priority {
        out::complain("the emulator got no real-time priority: other load makes packets late");
    }
    for reason in &report.reasons {
        out::complain(format_args!(
            "this run is VOID, the machine was too slow: {reason}"
        ));
    }
    Ok(())
}

fn fail(error: &EmuError) -> Failure {
    match error {
        // Where there is no socket, or no process listens to it any more.
        EmuError::NotRunning { source, .. }
            if matches!(
                source.kind(),
                io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused
            ) =>
        {
            Failure::Failed(nowhere(emulation::state().as_deref()))
        }
        error => Failure::from_error(error),
    }
}

/// What to do where no emulation runs; `named` is what the environment says of one.
fn nowhere(named: Option<&OsStr>) -> String {
    match named {
        Some(dir) => format!(
            "the emulation that {} names ({}) does not run any more; unset it, or run this inside \
             of another: `outpour emulate --network FILE -- COMMAND`",
            emulation::STATE,
            escape(&dir.to_string_lossy())
        ),
        None => "no emulated network runs on this machine; start one, and run this inside of it: \
                 `outpour emulate --network FILE -- COMMAND`"
            .to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exit_codes_are_those_of_shells() {
        assert_eq!(code(ExitStatus::from_raw(3 << 8)), 3);
        assert_eq!(code(ExitStatus::from_raw(9)), 137);
    }

    #[test]
    fn who_finds_no_emulation_is_told_how_to_start_one() {
        let gone = |kind: io::ErrorKind| {
            fail(&EmuError::NotRunning {
                path: "/run/x".into(),
                source: kind.into(),
            })
        };
        let Failure::Failed(line) = gone(io::ErrorKind::NotFound) else {
            panic!("another kind of failure");
        };
        assert!(line.contains("`outpour emulate --network FILE -- COMMAND`"));
        assert!(!line.contains("entity"), "{line}");
        // A user without permission is told that instead.
        assert!(matches!(
            gone(io::ErrorKind::PermissionDenied),
            Failure::Failed(line) if line.contains("permission denied")
        ));
        assert!(nowhere(Some(OsStr::new("/gone"))).contains("OUTPOUR_EMULATION names (/gone)"));
    }

    #[test]
    fn errors_keep_to_one_line() {
        let error = EmuError::NotRoot;
        assert!(matches!(fail(&error), Failure::Failed(line) if !line.contains('\n')));
    }
}
