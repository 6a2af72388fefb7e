//! Casts that are interrupted, refused, or meet what is there already.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use outpour::{CastReport, Event};

use crate::sshd::{Sshd, host};
use crate::support::{run, same, signal, tree};

/// How long something that has to happen may take.
const PATIENCE: Duration = Duration::from_secs(30);

/// A place with a source and room for copies.
struct Place {
    dir: tempfile::TempDir,
    source: PathBuf,
}

impl Place {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let source = tree(dir.path());
        Self { dir, source }
    }

    fn copy(&self, n: usize) -> PathBuf {
        self.dir.path().join(format!("copy{n}"))
    }

    /// `node1:/.../copy1` and so on.
    fn destinations(&self, count: usize) -> Vec<String> {
        (1..=count)
            .map(|n| format!("node{n}:{}", self.copy(n).display()))
            .collect()
    }
}

/// Starts a cast so slow that it can be disturbed, and waits until blocks move.
fn disturbable(sshd: &Sshd, place: &Place, count: usize, more: &[&str]) -> Child {
    let mut child = sshd
        .cast()
        .arg(&place.source)
        .args(place.destinations(count))
        .args(["--limit", "500 kB/s", "--block", "64 KiB"])
        .args(more)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut errors = BufReader::new(child.stderr.take().unwrap());
    let mut line = String::new();
    while !line.contains(" %, ") {
        line.clear();
        assert_ne!(
            errors.read_line(&mut line).unwrap(),
            0,
            "it ended before anything moved"
        );
    }
    // What else it says is of no use, but has to be read.
    std::thread::spawn(move || errors.lines().map_while(Result::ok).for_each(drop));
    child
}

/// Waits until `done` holds, looking now and then.
#[track_caller]
fn wait_until(what: &str, done: impl Fn() -> bool) {
    let start = Instant::now();
    while !done() {
        assert!(start.elapsed() < PATIENCE, "{what} did not happen");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// No file of the copy is visible with other bytes than the source has.
#[track_caller]
fn nothing_half(source: &Path, copy: &Path) {
    let big = copy.join("weights/big.bin");
    if big.exists() {
        assert!(fs::read(&big).unwrap() == fs::read(source.join("weights/big.bin")).unwrap());
    }
}

#[test]
fn an_interrupted_cast_leaves_nothing_running_and_continues() {
    let Some(sshd) = Sshd::start() else { return };
    let place = Place::new();
    let child = disturbable(&sshd, &place, 2, &["--json"]);
    assert_eq!(sshd.agents().len(), 2);
    signal(child.id(), "INT");
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(host(&report, "node1")["state"], "failed");
    assert!(sshd.agents().is_empty(), "{:?}", sshd.agents());
    nothing_half(&place.source, &place.copy(1));

    let again = run(sshd
        .cast()
        .arg(&place.source)
        .args(place.destinations(2))
        .args(["--json", "--block", "64 KiB"]))
    .expect(0);
    for n in [1, 2] {
        same(&place.source, &place.copy(n));
        assert_eq!(host(&again.json(), &format!("node{n}"))["verified"], true);
    }
}

#[test]
fn progress_is_events_and_the_last_has_what_json_prints() {
    let Some(sshd) = Sshd::start() else { return };
    let place = Place::new();
    let progress = place.dir.path().join("progress");
    let events = || -> Vec<Event> {
        let text = fs::read_to_string(&progress).unwrap();
        let events = text.lines().map(serde_json::from_str);
        events.collect::<Result<_, _>>().unwrap()
    };
    let ran = run(sshd
        .cast()
        .arg(&place.source)
        .args(place.destinations(2))
        .args(["--json", "--progress"])
        .arg(&progress))
    .expect(0);
    let mut told = events();
    let report: CastReport = serde_json::from_value(ran.json()).unwrap();
    assert_eq!(told.pop(), Some(Event::Done(report)));
    let is_news = |pair: &[Event]| match pair {
        [Event::Progress(before), Event::Progress(now)] => now.is_news(before),
        _ => false,
    };
    assert!(told.len() > 2 && told.windows(2).all(is_news), "{told:#?}");

    let ran = run(sshd
        .cast()
        .args(["/nonexistent", "node1:/x", "--progress"])
        .arg(&progress))
    .expect(1);
    let [Event::Failed { error }] = &events()[..] else {
        panic!("{ran:?}");
    };
    assert_eq!(ran.err, format!("outpour: {error}\n"));
}

#[test]
fn agents_of_a_killed_command_end_by_themselves() {
    let Some(sshd) = Sshd::start() else { return };
    let place = Place::new();
    let mut child = disturbable(&sshd, &place, 2, &[]);
    signal(child.id(), "KILL");
    child.wait().unwrap();
    wait_until("the end of the agents", || sshd.agents().is_empty());
    nothing_half(&place.source, &place.copy(2));
    run(sshd
        .cast()
        .arg(&place.source)
        .args(place.destinations(2))
        .args(["--block", "64 KiB"]))
    .expect(0);
    same(&place.source, &place.copy(1));
    same(&place.source, &place.copy(2));
}

#[test]
fn a_killed_agent_is_named_and_the_others_finish() {
    let Some(sshd) = Sshd::start() else { return };
    for protocol in ["chain", "swarm"] {
        let place = Place::new();
        let child = disturbable(&sshd, &place, 3, &["--json", "--protocol", protocol]);
        let agents = sshd.agents();
        assert_eq!(agents.len(), 3);
        signal(agents[0], "KILL");
        let output = child.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(1), "{protocol}");
        let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        let hosts = report["hosts"].as_array().unwrap();
        let failed: Vec<_> = hosts
            .iter()
            .filter(|host| host["verified"] == false)
            .collect();
        assert_eq!(failed.len(), 1, "{protocol}: {report}");
        assert!(failed[0]["error"].is_string());
        for n in 1..=3 {
            if hosts[n - 1]["verified"] == true {
                same(&place.source, &place.copy(n));
            } else {
                nothing_half(&place.source, &place.copy(n));
            }
        }
        run(sshd
            .cast()
            .arg(&place.source)
            .args(place.destinations(3))
            .args(["--block", "64 KiB"]))
        .expect(0);
        (1..=3).for_each(|n| same(&place.source, &place.copy(n)));
        assert!(sshd.agents().is_empty());
    }
}

#[test]
fn an_unwritable_destination_is_named_and_the_others_are_served() {
    let Some(sshd) = Sshd::start() else { return };
    let place = Place::new();
    let ran = run(sshd
        .cast()
        .arg(&place.source)
        .args(place.destinations(1))
        .arg("node9:/proc/outpour-cannot-be-here")
        .args(["--json", "--quiet"]))
    .expect(1);
    let report = ran.json();
    assert_eq!(host(&report, "node1")["verified"], true);
    let error = host(&report, "node9")["error"].as_str().unwrap().to_owned();
    assert!(error.contains("/proc"), "{error}");
    assert_eq!(ran.err, format!("outpour: node9: {error}\n"));
    same(&place.source, &place.copy(1));
}

#[test]
fn what_is_there_already_is_verified_and_only_changes_move() {
    let Some(sshd) = Sshd::start() else { return };
    let place = Place::new();
    let cast = || {
        let ran = run(sshd
            .cast()
            .arg(&place.source)
            .args(place.destinations(1))
            .args(["--json", "--quiet", "--block", "64 KiB"]))
        .expect(0);
        assert_eq!(ran.err, "");
        same(&place.source, &place.copy(1));
        let report = ran.json();
        let host = host(&report, "node1").clone();
        (
            host["resumed_bytes"].as_u64().unwrap(),
            host["received_bytes"].as_u64().unwrap(),
        )
    };
    let (resumed, received) = cast();
    assert!(resumed == 0 && received > 3_000_000, "{resumed} {received}");
    let (resumed, received) = cast();
    assert!(resumed > 3_000_000 && received == 0, "{resumed} {received}");
    let big = place.source.join("weights/big.bin");
    let mut bytes = fs::read(&big).unwrap();
    bytes[1_500_000] ^= 1;
    fs::write(&big, bytes).unwrap();
    let (resumed, received) = cast();
    assert!(
        resumed > 2_800_000 && received < 200_000,
        "{resumed} {received}"
    );
}

#[test]
fn a_file_is_cast_like_a_tree() {
    let Some(sshd) = Sshd::start() else { return };
    let place = Place::new();
    let file = place.source.join("weights/big.bin");
    let ran = run(sshd
        .cast()
        .arg(&file)
        .args(place.destinations(2))
        .arg("--quiet"))
    .expect(0);
    assert_eq!((ran.out.as_str(), ran.err.as_str()), ("", ""));
    for n in [1, 2] {
        assert!(fs::read(place.copy(n)).unwrap() == fs::read(&file).unwrap());
    }
    let inside = format!("node3:{}/", place.copy(3).display());
    run(sshd.cast().arg(&file).arg(inside).arg("--quiet")).expect(0);
    assert!(fs::read(place.copy(3).join("big.bin")).unwrap() == fs::read(&file).unwrap());
}

#[test]
fn an_object_of_nothing_is_cast_too() {
    let Some(sshd) = Sshd::start() else { return };
    let place = Place::new();
    let empty = place.dir.path().join("empty source");
    fs::create_dir(&empty).unwrap();
    let ran = run(sshd
        .cast()
        .arg(&empty)
        .args(place.destinations(2))
        .arg("--json"))
    .expect(0);
    assert_eq!(ran.json()["size_bytes"], 0);
    same(&empty, &place.copy(1));
}

#[test]
fn hosts_come_from_a_file_with_clusters() {
    let Some(sshd) = Sshd::start() else { return };
    let place = Place::new();
    let hosts = place.dir.path().join("hosts.txt");
    fs::write(&hosts, "# all\nnode1 cluster=a\n").unwrap();
    let argument = format!("{}:{}", hosts.display(), place.copy(1).display());
    let ran = run(sshd
        .cast()
        .arg(&place.source)
        .args(["--hosts", &argument, "--json"]))
    .expect(0);
    assert_eq!(host(&ran.json(), "node1")["verified"], true);
    same(&place.source, &place.copy(1));
    fs::write(&hosts, "node1 cluster=a\nnowhere.invalid cluster=b\n").unwrap();
    let ran = run(sshd
        .cast()
        .arg(&place.source)
        .args(["--hosts", &argument, "--json"]))
    .expect(1);
    assert!(
        host(&ran.json(), "nowhere.invalid")["error"]
            .as_str()
            .unwrap()
            .contains("unknown host")
    );
    assert_eq!(host(&ran.json(), "node1")["verified"], true);
}
