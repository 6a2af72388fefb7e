//! `outpour emulate`, `exec` and `tell`: programs in emulated networks. Needs root.

use std::fs;
use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use tempfile::TempDir;

use crate::support::{Ran, call, outpour, run, signal, skipped};

const NETWORK: &str = "\
[[cluster]]
name = \"A\"
nodes = 2
[[cluster]]
name = \"B\"
nodes = 1
[[link]]
from = \"*\"
to = \"*\"
rate = \"10 MB/s\"
delay = \"5 ms\"
";

/// How long anything here may take.
const PATIENCE: Duration = Duration::from_secs(20);

/// How long a command has to end when it is asked to.
const GRACE: Duration = Duration::from_secs(5);

struct Bed {
    dir: TempDir,
}

impl Bed {
    /// Nothing without root.
    fn new() -> Option<Self> {
        if !rustix::process::geteuid().is_root() {
            skipped("emulating networks needs root; outpour emulate is not tested");
            return None;
        }
        let bed = Self {
            dir: tempfile::tempdir().unwrap(),
        };
        bed.write("net.toml", NETWORK);
        Some(bed)
    }

    fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.dir.path().join(name);
        fs::write(&path, text).unwrap();
        path
    }

    /// `outpour emulate` of the network with these options, about to run `sh -c script`.
    fn emulate(&self, options: &[&str], script: &str) -> Command {
        let mut command = outpour();
        command
            .args(["emulate", "--network"])
            .arg(self.dir.path().join("net.toml"))
            .args(options)
            .args(["--", "sh", "-c", script])
            .env("OUTPOUR", env!("CARGO_BIN_EXE_outpour"));
        command
    }

    fn run(&self, options: &[&str], script: &str) -> Ran {
        run(&mut self.emulate(options, script))
    }

    /// Starts an emulation that waits inside, and returns when it does.
    fn start(&self, options: &[&str], script: &str) -> (Child, PathBuf) {
        let ready = self.dir.path().join("ready");
        let _ = fs::remove_file(&ready);
        let script = format!("echo $OUTPOUR_EMULATION > ready.new; mv ready.new ready; {script}");
        let mut command = self.emulate(options, &script);
        command
            .current_dir(self.dir.path())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let child = command.spawn().unwrap();
        until("the emulation runs", || ready.exists());
        let dir = fs::read_to_string(&ready).unwrap();
        (child, PathBuf::from(dir.trim()))
    }
}

#[track_caller]
fn until(what: &str, mut done: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !done() {
        assert!(Instant::now() < deadline, "waited too long until {what}");
        std::thread::yield_now();
    }
}

/// Whether any process was started with this argument.
fn runs(argument: &str) -> bool {
    let processes = fs::read_dir("/proc").unwrap().flatten();
    let mut lines = processes.filter_map(|entry| fs::read(entry.path().join("cmdline")).ok());
    lines.any(|line| {
        line.split(|byte| *byte == 0)
            .any(|word| word == argument.as_bytes())
    })
}

#[test]
fn a_command_runs_in_a_node_and_reaches_others_by_name() {
    let Some(bed) = Bed::new() else { return };
    let script = "echo $OUTPOUR_NODE; cat /proc/sys/kernel/hostname; getent hosts B | cut -d' ' -f1
        echo in | $OUTPOUR exec B sh -c 'echo $OUTPOUR_NODE; cat; echo err >&2; exit 7'; echo $?
        $OUTPOUR exec A -- sh -c 'echo $OUTPOUR_NODE'
        $OUTPOUR exec X true; echo $?; $OUTPOUR exec B /no/such; echo $?; exit 3";
    let ran = bed.run(&["--node", "A1"], script).expect(3);
    assert_eq!(ran.out, "A1\nA1\n10.2.0.1\nB\nin\n7\nA0\n1\n127\n");
    let said: Vec<_> = ran.err.lines().collect();
    assert_eq!(said[0], "err");
    assert_eq!(said[1], "outpour: no node `X`; there are A0, A1, B");
    assert!(
        said[2].starts_with("outpour: cannot run /no/such: "),
        "{ran:?}"
    );
}

#[test]
fn commands_come_in_from_outside_and_end_with_the_emulation() {
    let Some(bed) = Bed::new() else { return };
    let (mut emulation, dir) = bed.start(&[], "sleep 600");
    let exec = |script: &str| {
        let mut command = outpour();
        command.env("OUTPOUR_EMULATION", &dir);
        command
            .args(["exec", "B", "sh", "-c", script])
            .stdin(Stdio::piped());
        command
    };
    let ran = run(&mut exec("pwd; cat /proc/sys/kernel/hostname; exit 5")).expect(5);
    let here = std::env::current_dir().unwrap();
    assert_eq!(ran.out, format!("{}\nB\n", here.display()));
    // Not of the group that is asked to end.
    let mut left = exec("sleep 918273").process_group(0).spawn().unwrap();
    until("the command runs", || runs("918273"));
    signal(emulation.id(), "TERM");
    assert_eq!(emulation.wait().unwrap().code(), Some(143));
    assert_eq!(left.wait().unwrap().code(), Some(137));
    until("what ran inside is gone", || !runs("918273"));
    assert!(!dir.exists());
}

/// Waits for the end of an emulation and of what ran in it; returns what it said.
#[track_caller]
fn ended(mut emulation: Child, dir: &Path, code: i32, argument: &str) -> String {
    let mut said = String::new();
    let mut stderr = emulation.stderr.take().unwrap();
    stderr.read_to_string(&mut said).unwrap();
    assert_eq!(emulation.wait().unwrap().code(), Some(code), "{said}");
    assert!(!dir.exists());
    until("what ran inside is gone", || !runs(argument));
    said
}

#[test]
fn an_interrupt_ends_the_command_and_the_emulation() {
    let Some(bed) = Bed::new() else { return };
    for (name, script, code) in [
        // The shell waits for what it runs, so both have to be told.
        ("INT", "sleep 564738; exit 1", 130),
        ("TERM", "exec sleep 564738", 143),
        // In a group of its own.
        ("INT", "exec setsid sleep 564738", 130),
        // How a command ends that tidies up is its own affair.
        ("INT", "trap 'exit 7' INT; sleep 564738", 7),
    ] {
        let (emulation, dir) = bed.start(&[], script);
        until("the command runs", || runs("564738"));
        signal(emulation.id(), name);
        let signalled = Instant::now();
        let said = ended(emulation, &dir, code, "564738");
        assert!(signalled.elapsed() < GRACE, "{script}: {said}");
        assert!(
            said.starts_with("outpour: interrupted; ending the command\n"),
            "{script}: {said}"
        );
        assert!(!said.contains("killing"), "{script}: {said}");
    }
}

#[test]
fn a_command_that_ignores_interrupts_is_killed() {
    let Some(bed) = Bed::new() else { return };
    let script = "trap '' INT TERM; sleep 647382";
    let (emulation, dir) = bed.start(&[], script);
    until("the command runs", || runs("647382"));
    signal(emulation.id(), "INT");
    let said = ended(emulation, &dir, 130, "647382");
    assert!(
        said.contains("outpour: it did not end within 5 s; killing the command\n"),
        "{said}"
    );

    // At once if somebody insists.
    let (mut emulation, dir) = bed.start(&[], script);
    until("the command runs", || runs("647382"));
    let began = Instant::now();
    until("the emulation ends", || {
        let over = emulation.try_wait().unwrap().is_some();
        if !over {
            signal(emulation.id(), "TERM");
        }
        over
    });
    let said = ended(emulation, &dir, 143, "647382");
    assert!(began.elapsed() < GRACE, "{said}");
    assert!(
        said.contains("outpour: interrupted again; killing the command\n"),
        "{said}"
    );
}

#[test]
fn who_is_to_outlive_a_terminal_ignores_its_end() {
    let Some(bed) = Bed::new() else { return };
    let emulate = bed.emulate(&[], "sleep 756483");
    let mut command = Command::new("sh");
    command
        .args(["-c", "trap '' HUP; exec \"$@\"", "sh"])
        .arg(emulate.get_program())
        .args(emulate.get_args());
    let mut emulation = command.spawn().unwrap();
    until("the command runs", || runs("756483"));
    signal(emulation.id(), "HUP");
    signal(emulation.id(), "INT");
    assert_eq!(emulation.wait().unwrap().code(), Some(130));
}

#[test]
fn a_killed_emulator_leaves_nothing_that_lasts() {
    let Some(bed) = Bed::new() else { return };
    let script = "$OUTPOUR exec B sleep 192837 & sleep 192838";
    let (mut emulation, dir) = bed.start(&[], script);
    until("both commands run", || runs("192837") && runs("192838"));
    signal(emulation.id(), "KILL");
    emulation.wait().unwrap();
    until("what ran inside is gone", || {
        !runs("192837") && !runs("192838")
    });
    // Only its directory is left, until the next one starts, be it that of another test.
    let found = run(outpour()
        .args(["exec", "B", "true"])
        .env("OUTPOUR_EMULATION", &dir))
    .expect(1);
    let says = |words: &str| found.err.contains(words);
    assert!(
        says("does not run any more") || says("no emulation runs at"),
        "{found:?}"
    );
    bed.run(&[], "true").expect(0);
    assert!(!dir.exists());
}

#[test]
fn scripts_hear_what_is_told() {
    let Some(bed) = Bed::new() else { return };
    let script = bed.write("s.txt", "hear go\ntell gone\nhear on\n");
    let script = script.to_str().unwrap();
    let told = "$OUTPOUR tell nonsense; $OUTPOUR tell go --wait '5 s' && echo heard";
    let ran = bed.run(&["--script", script], told).expect(0);
    assert_eq!(ran.out, "heard\n");
    let said: Vec<_> = ran.err.lines().collect();
    assert!(
        said[0].starts_with("outpour: nothing waits for `nonsense`: "),
        "{ran:?}"
    );
    assert_eq!(said[1], "outpour: the script says gone");
    assert!(
        said.iter()
            .any(|line| line.starts_with("outpour: the script still waits for `on`, ")),
        "{ran:?}"
    );
    // Clusters may come from the script alone.
    let own = bed.write("own.txt", "defineCluster x y C\ndefineCluster z D\n");
    let mut alone = outpour();
    alone
        .args(["emulate", "--script"])
        .arg(own)
        .args(["--", "getent", "hosts", "z"]);
    assert!(run(&mut alone).expect(0).out.starts_with("10.2.0.1 "));
}

#[test]
fn reports_say_what_was_moved() {
    let Some(bed) = Bed::new() else { return };
    let path = bed.dir.path().join("report.json");
    let options = ["--report", path.to_str().unwrap(), "--summary"];
    let ran = bed.run(&options, "exit 0").expect(0);
    assert!(ran.err.contains("packets sent, "), "{ran:?}");
    let report: serde_json::Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
    assert_eq!(report["received_packets"], 0);
    assert_eq!(report["void"], false);
    assert!(report["lateness"]["p99_s"].is_number());
}

#[test]
fn what_is_wrong_is_said_in_one_line() {
    let dir = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| {
        let path = dir.path().join(name);
        fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let network = write("net.toml", NETWORK);
    let many = write("many.toml", "[[cluster]]\nname='A'\nnodes=300\n");
    let script = write("s.txt", "sleep 1 s\nsetDelay A X 1 ms\n");
    let forever = write("f.txt", "forever\nsetDelay A B 1 ms\n");
    for (arguments, code, said) in [
        (
            vec!["--network", &network, "--node", "X"],
            2,
            "--node X: no such node; there are A0, A1, B",
        ),
        (
            vec!["--network", &network, "--script", &script],
            1,
            ":2: no cluster matches `X`",
        ),
        (
            vec!["--network", &network, "--script", &forever],
            1,
            ":1: `forever` repeats without",
        ),
        (
            vec!["--network", &many],
            1,
            "the network has 300 nodes; an emulation has at most 256",
        ),
        (
            vec!["--network", "/no/such"],
            1,
            "/no/such: cannot read the network",
        ),
        (vec![], 2, "--network"),
    ] {
        let ran = call([&["emulate"], &*arguments, &["--", "true"]].concat()).expect(code);
        assert!(ran.err.contains(said), "{ran:?}");
        assert_eq!(ran.err.lines().count(), 1, "{ran:?}");
    }
    assert!(
        call(["emulate", "--network", &network])
            .expect(2)
            .err
            .contains("COMMAND")
    );
    let gone = dir.path().join("gone");
    let ran = run(outpour().args(["tell", "x"]).env("OUTPOUR_EMULATION", gone)).expect(1);
    assert!(ran.err.contains("does not run any more"), "{ran:?}");
}

#[test]
fn without_root_there_is_one_clear_message() {
    let dir = tempfile::tempdir().unwrap();
    fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let program = dir.path().join("outpour");
    fs::copy(env!("CARGO_BIN_EXE_outpour"), &program).unwrap();
    let network = dir.path().join("net.toml");
    fs::write(&network, NETWORK).unwrap();
    let ran = run(&mut as_nobody(&program, &network)).expect(1);
    assert_eq!(
        ran.err,
        "outpour: emulating a network needs root: it makes network namespaces and TUN devices\n"
    );
}

/// `outpour emulate` by a user who is not root.
fn as_nobody(program: &Path, network: &Path) -> Command {
    let mut command = if rustix::process::geteuid().is_root() {
        let mut command = Command::new("setpriv");
        command
            .args(["--reuid=65534", "--regid=65534", "--clear-groups"])
            .arg(program);
        command
    } else {
        Command::new(program)
    };
    command
        .args(["emulate", "--network"])
        .arg(network)
        .args(["--", "true"]);
    command
}
