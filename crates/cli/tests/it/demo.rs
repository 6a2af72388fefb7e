//! `demo`: the whole of it on one machine.

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

use crate::support::{outpour, run};

#[test]
fn the_short_demonstration_verifies_every_protocol_and_cleans_up() {
    let dir = tempfile::tempdir().unwrap();
    let ran = run(outpour()
        .args(["demo", "--short", "--json"])
        .env("TMPDIR", dir.path()))
    .expect(0);
    let document = ran.json();
    assert_eq!(document["agents"], 4);
    assert!(document["size_bytes"].as_u64().unwrap() > 8_000_000);
    let runs = document["runs"].as_array().unwrap();
    let protocols: Vec<_> = runs
        .iter()
        .map(|run| run["protocol"].as_str().unwrap())
        .collect();
    assert_eq!(protocols, ["direct", "chain", "swarm", "robber"]);
    for run in runs {
        assert_eq!(run["verified"], true, "{run}");
        // Nothing is faster than its limit, or the limit was not kept.
        assert!(run["ratio"].as_f64().unwrap() >= 0.95, "{run}");
    }
    // One sender serves four receivers: four copies leave it, however well it does.
    assert!(runs[0]["ratio"].as_f64().unwrap() >= 3.8, "{}", runs[0]);
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
}

#[test]
fn the_table_is_for_people() {
    let ran = run(outpour().args(["demo", "--short", "--limit", "1 Gbit/s"])).expect(0);
    let head = ran.out.lines().next().unwrap();
    assert_eq!(
        head.split_whitespace().collect::<Vec<_>>(),
        ["PROTOCOL", "TIME", "LIMIT", "RATIO", "VERIFIED"]
    );
    let rows: Vec<_> = ran.out.lines().skip(1).take(4).collect();
    assert!(rows.iter().all(|row| row.ends_with("yes")), "{ran:?}");
}

#[test]
fn an_interrupted_demonstration_cleans_up() {
    let dir = tempfile::tempdir().unwrap();
    let mut child = outpour()
        .args(["demo", "--limit", "1 MB/s"])
        .env("TMPDIR", dir.path())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stderr.take().unwrap())
        .lines()
        .map_while(Result::ok);
    assert!(
        lines.any(|line| line.contains(" %, ")),
        "it ended before anything moved"
    );
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1);
    run(Command::new("kill").args(["-INT", &child.id().to_string()])).expect(0);
    let rest: Vec<_> = lines.collect();
    assert_eq!(child.wait().unwrap().code(), Some(1), "{rest:?}");
    assert_eq!(rest.last().unwrap(), "outpour: interrupted");
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
}
