//! `sim cast` and `sim fuzz`.

use std::fs;
use std::path::PathBuf;

use crate::support::{Ran, call};

const NETWORK: &str = "\
[[cluster]]
name = \"A\"
nodes = 4
node_out = \"100 MB/s\"
node_in = \"100 MB/s\"
out = \"50 MB/s\"
in = \"50 MB/s\"

[[cluster]]
name = \"B\"
nodes = 3
node_out = \"100 MB/s\"
node_in = \"100 MB/s\"

[[link]]
from = \"A\"
to = \"B\"
rate = \"20 MB/s\"
delay = \"5 ms\"
both = true
";

fn network(dir: &tempfile::TempDir) -> PathBuf {
    let path = dir.path().join("net.toml");
    fs::write(&path, NETWORK).unwrap();
    path
}

fn cast(network: &str, more: &[&str]) -> Vec<String> {
    let base = [
        "sim",
        "cast",
        "--network",
        network,
        "--root",
        "A",
        "--size",
        "200 MB",
    ];
    base.iter()
        .chain(more)
        .map(|word| (*word).to_owned())
        .collect()
}

#[test]
fn a_simulated_cast_reports_the_agreed_keys() {
    let dir = tempfile::tempdir().unwrap();
    let network = network(&dir);
    let network = network.to_str().unwrap();
    for protocol in [
        "direct", "chain", "swarm", "robber", "adaptive", "central", "balanced", "auto",
    ] {
        let words = cast(
            network,
            &["--protocol", protocol, "--block", "1 MiB", "--json"],
        );
        let report = call(&words).expect(0).json();
        // One copy has to cross the link between the clusters.
        assert!(
            (report["limit_s"].as_f64().unwrap() - 10.0).abs() < 0.1,
            "{report}"
        );
        let (finish, ratio) = (
            report["finish_s"].as_f64().unwrap(),
            report["ratio"].as_f64().unwrap(),
        );
        assert!(
            ratio >= 1.0 && (finish / 10.0 - ratio).abs() < 0.1 * ratio,
            "{report}"
        );
        let nodes = report["nodes"].as_array().unwrap();
        assert_eq!(nodes.len(), 6);
        assert_eq!(nodes[0]["node"], "A1");
        assert!(
            nodes
                .iter()
                .all(|node| node["finish_s"].as_f64().unwrap() <= finish)
        );
        assert!(report["wan_bytes"].as_u64().unwrap() >= 200_000_000);
        let ran = report["protocol"].as_str().unwrap();
        // The link between the clusters is the limit, and it might change.
        assert_eq!(
            ran,
            if protocol == "auto" {
                "central"
            } else {
                protocol
            }
        );
        assert!(report["wan_repeats"].is_u64() && report.get("clairvoyant_s").is_none());
        assert_eq!(
            call(&words).expect(0).json(),
            report,
            "the same seed, another result"
        );
    }
    let ran = call(cast(network, &["--protocol", "chain"])).expect(0);
    assert!(ran.out.starts_with("NODE  TIME\nA1    "), "{ran:?}");
    assert!(ran.out.contains("200 MB by chain in "), "{ran:?}");
}

#[test]
fn a_network_without_capacities_sets_no_limit() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("free.toml");
    fs::write(&path, "[[cluster]]\nname = \"a\"\nnodes = 3\n").unwrap();
    let network = path.to_str().unwrap();
    let words = [
        "sim",
        "cast",
        "--network",
        network,
        "--root",
        "a1",
        "--size",
        "1 MB",
    ];
    let ran = call(words).expect(0);
    assert!(
        ran.out.contains(", which no rate of the network limits; "),
        "{}",
        ran.out
    );
    let report = call(words.iter().chain(&["--json"])).expect(0).json();
    assert_eq!(report["limit_s"], 0.0, "{report}");
}

#[test]
fn a_script_defines_and_changes_the_network() {
    let dir = tempfile::tempdir().unwrap();
    let script = dir.path().join("drop.script");
    let text = "defineCluster a A\ndefineCluster b B\nsetBandwidth .* .* 10 MB/s\n\
                hear start\nsleep 5 sec\nsetBandwidth .* .* 5 MB/s\n";
    fs::write(&script, text).unwrap();
    let words = |more: &[&'static str]| {
        let script = script.to_str().unwrap().to_owned();
        let words = ["sim", "cast", "--root", "a", "--size", "100 MB", "--script"];
        let words = words.into_iter().map(str::to_owned).chain([script]);
        words
            .chain(more.iter().map(|word| (*word).to_owned()))
            .collect::<Vec<_>>()
    };
    let report = call(words(&["--protocol", "direct", "--json"]))
        .expect(0)
        .json();
    for key in ["finish_s", "limit_s", "clairvoyant_s"] {
        let seconds = report[key].as_f64().unwrap();
        assert!((seconds - 15.0).abs() < 0.1, "{key}: {report}");
    }
    let shown = call(words(&["--protocol", "direct"])).expect(0);
    assert!(
        shown
            .out
            .contains("knowing the script in advance, it takes 15"),
        "{shown:?}"
    );

    // A command that waits for a word in vain is told, as by `outpour emulate`.
    let vain = "outpour: the script still waits for `go`, which was never sent: transfers send \
                `start` and `reset`\n";
    fs::write(&script, text.replace("sleep 5 sec", "sleep 5 sec\nhear go")).unwrap();
    let waits = call(words(&["--protocol", "direct", "--json"])).expect(0);
    assert_eq!(waits.err, vain);
    assert!((waits.json()["finish_s"].as_f64().unwrap() - 10.0).abs() < 0.1);
    let dead = text.replace("10 MB/s", "0 MB/s");
    fs::write(&script, dead.replace("sleep 5 sec", "sleep 5 sec\nhear go")).unwrap();
    let stuck = call(words(&["--protocol", "direct"])).expect(1);
    assert!(stuck.err.starts_with(vain), "{stuck:?}");
    assert_eq!(stuck.err.lines().count(), 2, "{stuck:?}");

    let queues = dir.path().join("queues.toml");
    let cluster = "[[cluster]]\nname = 'q'\nnodes = 2\nnode_in = '10 MB/s'\n";
    for (more, says) in [
        ("", ""),
        (
            "node_ecn = '5 packets'\n",
            "outpour: `node_queue` and `node_ecn` count in emulations only, not here\n",
        ),
    ] {
        fs::write(&queues, format!("{cluster}{more}")).unwrap();
        let queues = queues.to_str().unwrap();
        let words = [
            "sim",
            "cast",
            "--root",
            "q0",
            "--size",
            "1 MB",
            "--network",
            queues,
        ];
        assert_eq!(call(words).expect(0).err, says);
    }

    fs::write(&script, "sleep 1 s\nsetBandwidth x y 1 MB/s\n").unwrap();
    let alone = call(words(&[])).expect(1);
    assert!(
        alone.err.contains("the script defines no cluster"),
        "{alone:?}"
    );
    let network = network(&dir).to_str().unwrap().to_owned();
    let words = [
        "sim",
        "cast",
        "--root",
        "A",
        "--size",
        "1 MB",
        "--network",
        &network,
    ];
    let unknown = call(
        words
            .into_iter()
            .chain(["--script", script.to_str().unwrap()]),
    )
    .expect(1);
    assert!(
        unknown
            .err
            .contains("drop.script:2: no cluster matches `x`"),
        "{unknown:?}"
    );
}

#[test]
fn a_plan_is_executed_or_refused() {
    let dir = tempfile::tempdir().unwrap();
    let network = network(&dir);
    let network = network.to_str().unwrap();
    let file = dir.path().join("plan.json");
    let plan = file.to_str().unwrap();
    let nodes = ["A0", "A1", "A2", "A3", "B0", "B1", "B2"];
    let edges: Vec<_> = nodes.windows(2).collect();
    let tree = serde_json::json!({ "rate_bytes_per_s": 20e6, "edges": edges });
    fs::write(&file, serde_json::json!({ "trees": [tree] }).to_string()).unwrap();
    let more = [
        "--protocol",
        "tree",
        "--plan",
        plan,
        "--block",
        "1 MiB",
        "--json",
    ];
    let report = call(cast(network, &more)).expect(0).json();
    assert!(report["ratio"].as_f64().unwrap() < 1.1, "{report}");
    assert_eq!(report["wan_bytes"], 200_000_000);

    let without = call(cast(network, &["--protocol", "tree"])).expect(2);
    assert_eq!(
        without.err,
        "outpour: protocol `tree` executes a plan: name the file that `outpour plan multicast \
         --output` writes with --plan\n"
    );
    let unwanted = call(cast(network, &["--protocol", "chain", "--plan", plan])).expect(2);
    assert!(
        unwanted.err.contains("does not execute a plan"),
        "{unwanted:?}"
    );
}

#[test]
fn what_is_wrong_with_a_simulation_is_one_line() {
    let dir = tempfile::tempdir().unwrap();
    let path = network(&dir);
    let network = path.to_str().unwrap();
    let unknown = call([
        "sim",
        "cast",
        "--network",
        network,
        "--root",
        "C",
        "--size",
        "1 GB",
    ])
    .expect(2);
    assert_eq!(
        unknown.err,
        "outpour: --root C: no such node; there are A0, A1, A2, A3, B0, B1, B2\n"
    );
    let bare = call([
        "sim",
        "cast",
        "--network",
        network,
        "--root",
        "A",
        "--size",
        "1000",
    ])
    .expect(2);
    assert!(bare.err.contains("has no unit"), "{bare:?}");
    let missing = call(cast("/nonexistent/net.toml", &[])).expect(1);
    assert!(
        missing
            .err
            .starts_with("outpour: /nonexistent/net.toml: cannot read the network: ")
    );

    fs::write(&path, NETWORK.replace("\"20 MB/s\"", "20")).unwrap();
    let line = call(cast(network, &["--json"])).expect(1);
    assert_eq!(line.err.lines().count(), 1, "{line:?}");
    assert!(
        line.err.starts_with(&format!("outpour: {network}:18:")),
        "{line:?}"
    );
    assert!(line.err.contains("rate"));
    assert!(line.json()["error"].as_str().unwrap().contains("rate"));
}

#[test]
fn random_cases_are_clean_and_repeat() {
    let words = ["sim", "fuzz", "--seeds", "60", "--seed", "1000", "--json"];
    let mut report = call(words).expect(0).json();
    assert_eq!(report["seeds"], 60);
    assert_eq!(report["failures"].as_array().unwrap().len(), 0);
    let runs = report["protocols"].as_object().unwrap();
    assert_eq!(
        runs.values()
            .map(|runs| runs.as_u64().unwrap())
            .sum::<u64>(),
        60
    );
    let mut again = call(words.into_iter().chain(["--threads", "1"]))
        .expect(0)
        .json();
    for report in [&mut report, &mut again] {
        report["took_s"] = 0.into();
    }
    assert_eq!(report, again, "the same seeds, another result");
    let ran = call(["sim", "fuzz", "--seeds", "3"]).expect(0);
    assert!(ran.out.contains("0 of 3 seeds failed"), "{ran:?}");
}

const JOBS: &str = "\
[[job]]
name = \"model\"
size = \"400 MB\"
from = [\"A\"]
sites = [\"B\"]

[[job]]
size = \"20 MB\"
from = [\"B\"]
nodes = [\"A1\"]
start = \"10 s\"
deadline = \"1 min\"
";

fn replicate(dir: &tempfile::TempDir, jobs: &str, more: &[&str]) -> Ran {
    let network = network(dir);
    let path = dir.path().join("jobs.toml");
    fs::write(&path, jobs).unwrap();
    let (network, path) = (network.to_str().unwrap(), path.to_str().unwrap());
    let base = ["sim", "replicate", "--network", network, "--jobs", path];
    call(base.iter().chain(more).copied())
}

#[test]
fn simulated_replication_reports_jobs_sites_and_decisions() {
    let dir = tempfile::tempdir().unwrap();
    let ran = replicate(&dir, JOBS, &["--json"]).expect(0);
    let report = ran.json();
    let number = |path: &str| report.pointer(path).unwrap().as_f64().unwrap();
    // 16 of the 20 MB/s are for bulk.
    assert!((number("/limit_s") - 25.0).abs() < 0.1, "{report}");
    let ratio = number("/ratio");
    assert!((1.0..1.1).contains(&ratio), "{report}");
    assert!((ratio - number("/finish_s") / number("/limit_s")).abs() < 1e-9);
    assert!(number("/decision_s/median") > 0.0);
    assert!(number("/decision_s/max") >= number("/decision_s/median"));
    assert_eq!(report["jobs"][0]["name"], "model");
    assert_eq!(report["jobs"][1]["in_time"], true);
    assert!(number("/jobs/1/finish_s") >= 11.2, "{report}");
    assert_eq!(report["sites"][1]["site"], "B");
    assert_eq!(report["sites"][1]["wan_bytes"], 400_000_000);
    assert_eq!(report["system"], "central");
    // A baseline has the same limit and decides nothing.
    let direct = replicate(&dir, JOBS, &["--json", "--system", "direct"]).expect(0);
    let direct = direct.json();
    assert_eq!(
        (&direct["system"], &direct["cycles"]),
        (&"direct".into(), &0.into())
    );
    assert_eq!(direct["limit_s"], report["limit_s"]);
    let shown = replicate(&dir, JOBS, &["--system", "chain"]).expect(0).out;
    assert!(shown.contains("all complete by chain after"), "{shown}");
    assert!(!shown.contains("decisions"), "{shown}");
    let shown = replicate(&dir, JOBS, &["--threshold", "100"]).expect(0);
    assert!(
        shown.out.contains("x the limit of 20 s"),
        "the whole link: {}",
        shown.out
    );
}

#[test]
fn replication_follows_a_script() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("day.script");
    let script = path.to_str().unwrap();
    fs::write(
        &path,
        "sleep 5 s\nsetForeground A B 10 MB/s\nlose B1\nsleep 5 s\nrestore B1\n",
    )
    .unwrap();
    let report = replicate(&dir, JOBS, &["--json", "--script", script]).expect(0);
    let report = report.json();
    let link = &report["links"][0];
    assert_eq!(link["link"], "A -> B");
    assert!(link["cycles_above"].as_u64().unwrap() <= 1, "{link}");
    // 6 of 20 MB/s are left for bulk.
    assert!(report["finish_s"].as_f64().unwrap() > 50.0, "{report}");
    let shown = replicate(&dir, JOBS, &["--script", script]).expect(0).out;
    assert!(shown.contains("CYCLES ABOVE"), "{shown}");
    // Only the controller's servers can be lost, and other worlds know nothing of it.
    let chain = replicate(&dir, JOBS, &["--system", "chain", "--script", script]);
    let says = "day.script:3: `chain` has no servers or controller to lose";
    assert!(chain.expect(1).err.contains(says));
    let network = network(&dir);
    let network = network.to_str().unwrap();
    let cast = [
        "sim",
        "cast",
        "--network",
        network,
        "--root",
        "A1",
        "--size",
        "1 MB",
        "--script",
        script,
    ];
    let says = "day.script:3: `lose` is for `outpour sim replicate` alone";
    let cast = call(cast).expect(1);
    assert!(cast.err.contains(says), "{}", cast.err);
}

#[test]
fn replication_is_planned_without_a_simulation() {
    let dir = tempfile::tempdir().unwrap();
    let (network, jobs) = (network(&dir), dir.path().join("jobs.toml"));
    fs::write(&jobs, JOBS).unwrap();
    let (network, jobs) = (network.to_str().unwrap(), jobs.to_str().unwrap());
    let base = ["plan", "replicate", "--network", network, "--jobs", jobs];
    let plan = call(base.iter().chain(&["--json"]).copied()).expect(0);
    let plan = plan.json();
    let number = |path: &str| plan.pointer(path).unwrap().as_f64().unwrap();
    assert!((number("/limit_s") - 25.0).abs() < 0.1, "{plan}");
    assert!((number("/jobs/0/limit_s") - 25.0).abs() < 0.1, "{plan}");
    // The second job begins later. 16 MB/s of bulk for three seconds.
    assert!((number("/planned_bytes") - 48e6).abs() < 1e6, "{plan}");
    assert_eq!(plan["flows"].as_array().unwrap().len(), 1, "{plan}");
    assert!((number("/flows/0/rate_bytes_per_s") - 16e6).abs() < 1e5);
    assert_eq!(plan["subtasks"][0]["job"], "model");
    let run = &plan["subtasks"][0]["runs"][0];
    assert!(run[0].as_u64() < run[1].as_u64(), "{plan}");
    let shown = call(base).expect(0).out;
    assert!(shown.contains("the first 3 s move 48 MB"), "{shown}");
    assert!(shown.ends_with("all jobs take at least 25 s\n"), "{shown}");
}

#[test]
fn one_of_equal_shards_is_simulated_on_request() {
    let dir = tempfile::tempdir().unwrap();
    let (net, jobs) = (dir.path().join("net.toml"), dir.path().join("jobs.toml"));
    let even = NETWORK.replace("nodes = 3", "nodes = 4");
    fs::write(&net, even).unwrap();
    let first = JOBS.split("\n\n").next().unwrap();
    fs::write(&jobs, first).unwrap();
    let base = ["sim", "replicate", "--network", net.to_str().unwrap()];
    let with = ["--jobs", jobs.to_str().unwrap()];
    let base = base.into_iter().chain(with);
    let all = call(base.clone().chain(["--json"])).expect(0).json();
    let shard = base.clone().chain(["--shards", "2"]);
    let one = call(shard.clone().chain(["--json"])).expect(0).json();
    assert_eq!(
        (all["shards"].as_u64(), one["shards"].as_u64()),
        (Some(1), Some(2))
    );
    assert_eq!(all["limit_s"], one["limit_s"]);
    let bytes = |report: &serde_json::Value| report["sites"][0]["received_bytes"].as_u64().unwrap();
    assert_eq!(bytes(&all), 2 * bytes(&one));
    let shown = call(shard).expect(0).out;
    assert!(
        shown.contains("\none of 2 shards: all complete by central after "),
        "{shown}"
    );
}

#[test]
fn a_job_that_is_refused_leaves_the_others_alone() {
    let dir = tempfile::tempdir().unwrap();
    let unknown = JOBS.replace("\"B\"]\n\n", "\"C\"]\n\n");
    let lost = JOBS.replace("from = [\"A\"]", "from = [\"A9\"]");
    let robber = &["--system", "robber"][..];
    for (jobs, more, left, says) in [
        (
            unknown.as_str(),
            &[][..],
            "job 2",
            "model: `sites`: there is no site `C`; the sites are A, B",
        ),
        (&lost, &[], "job 2", "there is no node or site `A9`"),
        (
            JOBS,
            robber,
            "model",
            "job 2: `robber` does not move it: `sim cast --protocol robber`",
        ),
    ] {
        let shown = replicate(&dir, jobs, more).expect(1);
        assert!(shown.out.contains("all complete by"), "{}", shown.out);
        assert!(shown.err.contains(says), "{}, not {says}", shown.err);
        assert_eq!(shown.err.lines().count(), 1, "{}", shown.err);
        let json = [more, &["--json"]].concat();
        let report = replicate(&dir, jobs, &json).expect(1).json();
        let names = report["jobs"].as_array().unwrap();
        assert_eq!((names.len(), &names[0]["name"]), (1, &left.into()));
        let refused = report["refused"][0].as_str().unwrap();
        assert!(refused.contains(says), "{refused}");
    }
    let report = replicate(&dir, JOBS, &["--json"]).expect(0).json();
    assert_eq!(report["refused"], serde_json::json!([]));
}

#[test]
fn what_is_wrong_with_jobs_is_one_line() {
    let dir = tempfile::tempdir().unwrap();
    for (jobs, more, code, says) in [
        (JOBS, &["--cycle", "0 s"][..], 2, "a cycle of 0 s is not"),
        (JOBS, &["--threshold", "101"], 2, "a threshold of 101 %"),
        (JOBS, &["--peak", "--threshold", "50"], 2, "cannot be used"),
        (
            JOBS,
            &["--system", "scp"],
            2,
            "central, gingko, bullet, akamai",
        ),
        (JOBS, &["--threshold", "0"], 1, "model is stuck after 3"),
        (JOBS, &["--shards", "0"], 2, "0 is not in 1.."),
        (
            JOBS,
            &["--shards", "2", "--script", "x"],
            2,
            "cannot be used",
        ),
        (
            JOBS,
            &["--shards", "5"],
            1,
            "do not divide into 5 equal shards",
        ),
        ("", &[], 1, "jobs.toml: there is no job"),
        ("job = 3\n", &[], 1, "jobs.toml: line 1: "),
    ] {
        let ran = replicate(&dir, jobs, more).expect(code);
        assert_eq!(ran.out, "");
        assert!(ran.err.contains(says), "{}, not {says}", ran.err);
        assert!(code == 2 || ran.err.lines().count() == 1, "{}", ran.err);
    }
}
