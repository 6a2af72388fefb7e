//! `plan multicast`.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::support::{Ran, call};

/// Two ways from A to C, and a slow one to D.
const NETWORK: &str = "\
[[cluster]]
name = \"A\"
nodes = 2

[[cluster]]
name = \"B\"
nodes = 2

[[cluster]]
name = \"C\"
nodes = 1
in = \"15 MB/s\"

[[link]]
from = \"*\"
to = \"*\"
rate = \"10 MB/s\"
";

fn file(dir: &tempfile::TempDir, name: &str, text: &str) -> PathBuf {
    let path = dir.path().join(name);
    fs::write(&path, text).unwrap();
    path
}

#[track_caller]
fn plan(network: &Path, more: &[&str], code: i32) -> Ran {
    let base = ["plan", "multicast", "--network", network.to_str().unwrap()];
    call(base.iter().chain(more)).expect(code)
}

#[track_caller]
fn refused(network: &Path, more: &[&str], code: i32) -> String {
    let ran = plan(network, more, code);
    assert_eq!(ran.out, "", "{ran:?}");
    let line = ran.err.strip_suffix('\n').unwrap();
    assert!(!line.contains('\n'), "{ran:?}");
    line.strip_prefix("outpour: ").unwrap().to_owned()
}

/// The sum of the rates of a plan's trees, each of which reaches all nodes.
fn rates(plan: &Value, nodes: usize) -> f64 {
    let trees = plan["trees"].as_array().unwrap().iter();
    let rate = |tree: &Value| {
        assert_eq!(tree["edges"].as_array().unwrap().len(), nodes - 1);
        tree["rate_bytes_per_s"].as_f64().unwrap()
    };
    trees.map(rate).sum()
}

#[test]
fn a_plan_has_the_agreed_keys() {
    let dir = tempfile::tempdir().unwrap();
    let network = file(&dir, "net.toml", NETWORK);
    for (method, expected) in [
        ("chain", 10e6),
        ("fpfr", 15e6),
        ("balanced", 15e6),
        ("optimal", 15e6),
    ] {
        let ran = plan(&network, &["--root", "A", "--method", method, "--json"], 0);
        let plan = ran.json();
        assert_eq!(plan["method"], method);
        assert_eq!(plan["roots"], serde_json::json!(["A0"]));
        let throughput = plan["throughput_bytes_per_s"].as_f64().unwrap();
        assert!((throughput / expected - 1.0).abs() < 1e-5, "{plan}");
        assert!((rates(&plan, 5) / throughput - 1.0).abs() < 1e-9, "{plan}");
        assert!((plan["optimum_bytes_per_s"].as_f64().unwrap() / 15e6 - 1.0).abs() < 1e-5);
        assert!(plan["solve_s"].as_f64().unwrap() >= 0.0);
    }
    let ran = plan(&network, &["--root", "A", "--method", "all", "--json"], 0);
    assert_eq!(ran.json()["plans"].as_array().unwrap().len(), 9);
}

#[test]
fn people_see_trees_rates_and_what_is_used_up() {
    let dir = tempfile::tempdir().unwrap();
    let network = file(&dir, "net.toml", NETWORK);
    let ran = plan(&network, &["--root", "A1", "--method", "chain"], 0);
    let lines: Vec<&str> = ran.out.lines().collect();
    assert_eq!(lines[..2], ["RATE     TREE", "10 MB/s  A > B > C"]);
    assert_eq!(lines[3], "used up: link `A` -> `B`, link `B` -> `C`");
    let last = lines[5];
    assert!(
        last.starts_with(
            "chain from A1: 10 MB/s, 33.3 % below the optimum of 15 MB/s; 2 trees over 5 nodes"
        ),
        "{last}"
    );
    let ran = plan(
        &network,
        &["--root", "A", "--method", "all", "--size", "150 MB"],
        0,
    );
    assert!(
        ran.out
            .starts_with("METHOD          THROUGHPUT  OF OPTIMUM  TREES  TIME\n")
    );
    assert!(
        ran.out.contains("\noptimal         15 MB/s     100.0 %"),
        "{}",
        ran.out
    );
    assert!(
        ran.out.ends_with("150 MB takes at least 10 s\n"),
        "{}",
        ran.out
    );
}

#[test]
fn a_plan_can_be_written_drawn_and_executed() {
    let dir = tempfile::tempdir().unwrap();
    let network = file(&dir, "net.toml", NETWORK);
    let (json, svg) = (dir.path().join("plan.json"), dir.path().join("plan.svg"));
    let (json, svg) = (json.to_str().unwrap(), svg.to_str().unwrap());
    let files = ["--output", json, "--svg", svg, "--quiet"];
    let ran = plan(&network, &[&["--root", "A"][..], &files].concat(), 0);
    assert_eq!((ran.out.as_str(), ran.err.as_str()), ("", ""));

    let drawing = fs::read_to_string(svg).unwrap();
    assert!(drawing.starts_with("<svg ") && drawing.ends_with("</svg>\n"));
    assert!(drawing.contains("optimal from A0: 15 MB/s") && drawing.contains("in used up"));

    let network = network.to_str().unwrap();
    let base = [
        "sim",
        "cast",
        "--network",
        network,
        "--root",
        "A",
        "--size",
        "300 MB",
        "--json",
    ];
    let with_plan = ["--protocol", "tree", "--plan", json];
    let report = call(base.iter().chain(&with_plan)).expect(0).json();
    // 300 MB at 15 MB/s.
    let finish = report["finish_s"].as_f64().unwrap();
    assert!((20.0..22.0).contains(&finish), "{report}");
}

#[test]
fn a_script_says_for_which_network_and_how_long_it_takes() {
    let dir = tempfile::tempdir().unwrap();
    let script = "\
defineCluster a A
defineCluster b B
setDelay .* .* 0 ms
setBandwidth A B 10 MB/s
setBandwidth B A 10 MB/s
hear start
sleep 5 sec
setBandwidth A B 1 MB/s
";
    let path = file(&dir, "slower.script", script);
    let path = path.to_str().unwrap();
    let words = [
        "plan",
        "multicast",
        "--script",
        path,
        "--root",
        "a",
        "--size",
        "60 MB",
        "--json",
    ];
    let plan = call(words).expect(0).json();
    assert_eq!(plan["throughput_bytes_per_s"], 10e6);
    for key in ["clairvoyant_s", "limit_s"] {
        assert!((plan[key].as_f64().unwrap() - 15.0).abs() < 1e-3, "{plan}");
    }

    // What comes after a word that is never said never happens.
    file(
        &dir,
        "slower.script",
        &script.replace("sleep 5 sec", "hear go"),
    );
    let plan = call(words).expect(0);
    assert!((plan.json()["limit_s"].as_f64().unwrap() - 6.0).abs() < 1e-3);
    assert_eq!(
        plan.err,
        "outpour: the script still waits for `go`, which was never sent: transfers send `start` \
         and `reset`\n"
    );
}

#[test]
fn each_wrong_input_has_its_line() {
    let dir = tempfile::tempdir().unwrap();
    let network = file(&dir, "net.toml", NETWORK);
    assert_eq!(
        refused(&network, &["--root", "X"], 2),
        "--root X: no such node; there are A0, A1, B0, B1, C"
    );
    assert!(
        refused(&network, &["--root", "A", "--method", "tree"], 2).contains("invalid value 'tree'")
    );
    assert_eq!(
        refused(
            &network,
            &["--root", "A", "--method", "all", "--svg", "x.svg"],
            2
        ),
        "--svg applies to one plan: choose it with --method"
    );
    let missing = dir.path().join("missing.toml");
    assert!(
        refused(&missing, &["--root", "A"], 1).contains("missing.toml: cannot read the network")
    );
    let nowhere = dir.path().join("no/such/dir/plan.svg");
    let line = refused(
        &network,
        &["--root", "A", "--svg", nowhere.to_str().unwrap()],
        1,
    );
    assert!(line.contains("plan.svg: cannot write: "), "{line}");

    // One direction only: C reaches no node, and no node reaches A.
    let one_way = NETWORK.replace("from = \"*\"\nto = \"*\"", "from = \"A\"\nto = \"[BC]\"");
    let one_way = one_way.replace("[BC]", "B") + "[[link]]\nfrom = \"B\"\nto = \"C\"\n";
    let one_way = file(&dir, "one-way.toml", &one_way);
    plan(&one_way, &["--root", "A"], 0);
    assert_eq!(
        refused(&one_way, &["--root", "C"], 1),
        "no path from `C` to `A0`: every path has a link or a node of rate 0"
    );
    let dead = file(&dir, "dead.toml", &NETWORK.replace("10 MB/s", "0 B/s"));
    assert_eq!(
        refused(&dead, &["--root", "A"], 1),
        "no path from `A0` to `B0`: every path has a link or a node of rate 0"
    );
    // Without any capacity there is nothing to divide: one tree, without a rate.
    let free = NETWORK
        .split("[[link]]")
        .next()
        .unwrap()
        .replace("in = \"15 MB/s\"\n", "");
    let free = file(&dir, "free.toml", &free);
    let ran = plan(&free, &["--root", "A", "--json"], 0).json();
    assert_eq!(ran["throughput_bytes_per_s"], Value::Null);
    assert_eq!(ran["trees"].as_array().unwrap().len(), 1);
}
