//! `plan shuffle` and `sim shuffle`.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::support::{Ran, call};

/// Mappers on three hosts; two of the others receive half as fast as the third.
const NETWORK: &str = "\
[[cluster]]
name = \"hosts\"
members = [\"a\", \"b\", \"c\", \"d\", \"e\", \"f\"]
node_out = \"100 MB/s\"
node_in = \"100 MB/s\"

[[node]]
name = \"d\"
in = \"50 MB/s\"

[[node]]
name = \"e\"
in = \"50 MB/s\"
";

const JOB: &str = "\
hosts = [\"d\", \"e\", \"f\"]
reducers = [\"x\", \"y\"]

[[mapper]]
host = \"a\"
sends = [\"100 MB\", \"50 MB\"]

[[mapper]]
host = \"b\"
sends = [\"100 MB\", \"0 B\"]
";

fn file(dir: &tempfile::TempDir, name: &str, text: &str) -> PathBuf {
    let path = dir.path().join(name);
    fs::write(&path, text).unwrap();
    path
}

#[track_caller]
fn plan(job: &Path, network: &Path, more: &[&str], code: i32) -> Ran {
    let (job, network) = (job.to_str().unwrap(), network.to_str().unwrap());
    let base = ["plan", "shuffle", job, "--network", network];
    call(base.iter().chain(more)).expect(code)
}

#[test]
fn reducers_are_placed_and_flows_have_rates() {
    let dir = tempfile::tempdir().unwrap();
    let network = file(&dir, "net.toml", NETWORK);
    let job = file(&dir, "job.toml", JOB);
    let ran = plan(&job, &network, &["--json"], 0);
    let plan_of: Value = serde_json::from_str(&ran.out).unwrap();
    // 200 MB go to the fast host, 50 MB to one of the others: two seconds, as fast as it can be.
    let placed = &plan_of["placements"];
    assert_eq!(
        (&placed[0]["reducer"], &placed[0]["host"]),
        (&"x".into(), &"f".into())
    );
    assert_ne!(placed[1]["host"], "f");
    assert_eq!(plan_of["cct_s"], 2.0);
    let flows = plan_of["flows"].as_array().unwrap();
    assert_eq!(flows.len(), 3, "nothing is held for y on b");
    let rates: f64 = flows
        .iter()
        .filter(|flow| flow["host"] == "f")
        .map(|flow| flow["rate_bytes_per_s"].as_f64().unwrap())
        .sum();
    assert_eq!(rates, 100e6);
    assert!(plan_of["lower_bound_s"].as_f64().unwrap() <= 2.0);
    assert!(plan_of["factor"].as_f64().unwrap() <= 2.0);
    assert!(plan_of["solve_s"].as_f64().unwrap() >= 0.0);
    let text = plan(&job, &network, &[], 0).out;
    assert!(text.contains("x        f     200 MB"), "{text}");
    assert!(text.contains("the shuffle of 250 MB takes 2 s"), "{text}");
}

#[test]
fn a_matrix_says_the_same() {
    let dir = tempfile::tempdir().unwrap();
    let network = file(&dir, "net.toml", NETWORK);
    file(
        &dir,
        "sizes.csv",
        "host,x,y\na,100 MB,50 MB\n\nb,100 MB,0 B\n",
    );
    let job = "hosts = [\"d\", \"e\", \"f\"]\nmatrix = \"sizes.csv\"\nper_host = 1\n\
               [started]\nx = \"d\"\n[limits]\ne = 0\n";
    let job = file(&dir, "job.toml", job);
    let ran = plan(&job, &network, &["--json"], 0);
    let plan_of: Value = serde_json::from_str(&ran.out).unwrap();
    assert_eq!(
        plan_of["placements"][0]["host"], "d",
        "it has started there"
    );
    assert_eq!(plan_of["placements"][1]["host"], "f", "no other may run it");
    assert_eq!(plan_of["cct_s"], 4.0);
}

#[test]
fn data_that_is_in_place_takes_no_time() {
    let dir = tempfile::tempdir().unwrap();
    let network = file(&dir, "net.toml", NETWORK);
    let job = "[[mapper]]\nhost = \"a\"\nsends = [\"1 GB\"]\n";
    let job = file(&dir, "job.toml", job);
    let text = plan(&job, &network, &[], 0).out;
    assert!(
        text.contains("the shuffle of 1 GB takes 0 s, at most 1.00"),
        "{text}"
    );
}

#[track_caller]
fn refused(job: &str, network: &str) -> String {
    refused_with(job, network, "host,x,y\na,1 MB\n")
}

#[track_caller]
fn refused_with(job: &str, network: &str, matrix: &str) -> String {
    let dir = tempfile::tempdir().unwrap();
    let network = file(&dir, "net.toml", network);
    file(&dir, "wrong.csv", matrix);
    let job = file(&dir, "job.toml", job);
    let ran = plan(&job, &network, &[], 1);
    assert_eq!(ran.out, "", "{ran:?}");
    let line = ran.err.strip_suffix('\n').unwrap();
    assert!(!line.contains('\n'), "one line: {line}");
    let line = line.strip_prefix("outpour: ").unwrap();
    let place = format!("{}/", dir.path().display());
    line.replace(&place, "")
}

#[test]
fn what_cannot_be_is_said_in_one_line() {
    let change = |from: &str, to: &str| {
        assert!(JOB.contains(from));
        refused(&JOB.replacen(from, to, 1), NETWORK)
    };
    assert_eq!(
        change("host = \"b\"", "host = \"z\""),
        "job.toml: line 9: mapper 2: there is no host z"
    );
    assert_eq!(
        change("host = \"b\"", "host = \"a\""),
        "job.toml: line 9: mapper 2: a is there twice"
    );
    assert_eq!(
        change("\"100 MB\", \"0 B\"", "\"100 MB\""),
        "job.toml: line 10: mapper 2: `sends`: the number of sizes is 1, that of mapper 1 is 2"
    );
    assert_eq!(
        change("\"50 MB\"", "\"0 B\""),
        "job.toml: no mapper holds anything for reducer y"
    );
    assert_eq!(
        change("\"x\", \"y\"", "\"x\""),
        "job.toml: line 2: `reducers` names 1, and mappers hold something for 2"
    );
    assert_eq!(
        change("\"x\", \"y\"", "\"x\", \"x\""),
        "job.toml: line 2: two reducers are called x"
    );
    assert_eq!(
        change("hosts = [", "per_host = 0\nhosts = ["),
        "job.toml: 2 reducers have to be placed, and hosts may run 0, as `hosts`, `per_host` and `[limits]` say"
    );
    assert_eq!(
        change("hosts = [", "matrix = \"wrong.csv\"\nhosts = ["),
        "job.toml: line 1: either `matrix` or `[[mapper]]` says what mappers hold, not both"
    );
    assert_eq!(
        refused("matrix = \"wrong.csv\"", NETWORK),
        "wrong.csv: line 2: the number of sizes is 1, that of reducers in the first line is 2"
    );
    for (matrix, why) in [
        ("host,x,y\n", "wrong.csv: it has no mapper"),
        ("host\na\n", "wrong.csv: line 1: it names no reducer"),
        (
            "host,,y\na,1 MB,2 MB\n",
            "wrong.csv: line 1: reducer 1 has no name",
        ),
        (
            "host,x\na,1 MB\nz,1 MB\n",
            "wrong.csv: line 3: there is no host z",
        ),
        (
            "host,x\na,1 MB\na,1 MB\n",
            "wrong.csv: line 3: a is there twice",
        ),
        (
            "host,x,x\na,1 MB,1 MB\n",
            "wrong.csv: two reducers are called x",
        ),
    ] {
        assert_eq!(refused_with("matrix = \"wrong.csv\"", NETWORK, matrix), why);
    }
    assert!(change("\"50 MB\"", "\"-5 MB\"").starts_with("job.toml: line 6: mapper 1: `sends`: "));
    assert_eq!(
        change("\"e\", \"f\"", "\"e\", \"z\""),
        "job.toml: line 1: `hosts`: there is no host z"
    );
    let more = |text: &str| refused(&format!("{JOB}{text}"), NETWORK);
    assert_eq!(
        more("[limits]\nd = 1\nz = 1\n"),
        "job.toml: line 13: `limits`: there is no host z"
    );
    assert_eq!(
        more("[started]\ny = \"d\"\nx = \"z\"\n"),
        "job.toml: line 13: `started`: there is no host z"
    );
    assert_eq!(
        more("[started]\nz = \"d\"\n"),
        "job.toml: line 12: `started`: there is no reducer z"
    );
    assert_eq!(
        more("[started]\nx = \"d\"\n[limits]\nd = 0\n"),
        "job.toml: `started`: more reducers have started on d than it may run"
    );
    assert!(change("hosts = [", "hots = [").starts_with("job.toml: line 1: unknown field"));
    assert_eq!(
        refused(
            JOB,
            &NETWORK.replace("node_out = \"100 MB/s\"", "node_out = \"0 B/s\"")
        ),
        "job.toml: a holds data for reducers and sends nothing: the coflow never ends"
    );
    let joined = NETWORK.to_owned()
        + "[[cluster]]\nname = \"far\"\nnodes = 1\n[[link]]\nfrom = \"*\"\nto = \"*\"\nrate = \"1 MB/s\"\n";
    let why = refused(JOB, &joined);
    assert!(
        why.contains("as if only hosts' own rates were limits"),
        "{why}"
    );
}

#[test]
fn schedulers_are_compared_and_the_plan_is_drawn() {
    let dir = tempfile::tempdir().unwrap();
    let network = file(&dir, "net.toml", NETWORK);
    let job = file(&dir, "job.toml", JOB);
    let svg = dir.path().join("plan.svg");
    let more = ["--compare", "--svg", svg.to_str().unwrap(), "--json"];
    let ran = plan(&job, &network, &more, 0);
    let plan_of: Value = serde_json::from_str(&ran.out).unwrap();
    let compared = plan_of["compared"].as_array().unwrap();
    assert_eq!(compared.len(), 8);
    assert_eq!(compared[0]["scheduler"], "rpc");
    assert_eq!(compared[0]["cct_s"], 2.0);
    for other in compared {
        assert!(other["factor"].as_f64().unwrap() >= 1.0, "{other}");
    }
    let drawn = fs::read_to_string(svg).unwrap();
    assert!(
        drawn.starts_with("<svg") && drawn.contains("f: x"),
        "{drawn}"
    );
    // The fast host receives as much as it can.
    assert!(drawn.contains("#d62728"), "{drawn}");
    let text = plan(&job, &network, &["--compare"], 0).out;
    assert!(
        text.contains("SCHEDULER") && text.contains("varys"),
        "{text}"
    );
    // Limits and what has started hold for all: 50 MB fit beside 200 MB nowhere, and x stays on a slow host.
    let limited = format!("per_host = 1\n{JOB}\n[started]\nx = \"d\"\n");
    let limited = file(&dir, "limited.toml", &limited);
    let ran = plan(&limited, &network, &["--compare", "--json"], 0);
    let plan_of: Value = serde_json::from_str(&ran.out).unwrap();
    for other in plan_of["compared"].as_array().unwrap() {
        let seconds = other["cct_s"].as_f64().unwrap();
        // Aalo does not know what to hold back, and 2D-Placement moves data first.
        assert!((4.0 - 1e-9..6.0).contains(&seconds), "{other}");
    }
    // What cannot be written is said.
    let nowhere = dir.path().join("no/plan.svg");
    let ran = plan(&job, &network, &["--svg", nowhere.to_str().unwrap()], 1);
    assert!(ran.err.contains("cannot write"), "{}", ran.err);
}

/// Two racks with mappers, two with reducers; the second coflow is the smaller one.
const TRACE: &str = "4 2\n1 0 2 0 1 2 2:256.0 3:256.0\n2 0 1 0 1 2:128.0\n";

#[track_caller]
fn simulated(more: &[&str], code: i32) -> Ran {
    call(["sim", "shuffle"].iter().chain(more)).expect(code)
}

#[test]
fn a_trace_is_played_by_every_scheduler() {
    let dir = tempfile::tempdir().unwrap();
    let trace = file(&dir, "trace.txt", TRACE);
    let trace = trace.to_str().unwrap();
    for name in [
        "rpc",
        "rpc-conserving",
        "varys",
        "neat",
        "2dp",
        "aalo",
        "fair",
        "random",
    ] {
        let ran = simulated(&["--trace", trace, "--scheduler", name, "--json"], 0);
        let found: Value = serde_json::from_str(&ran.out).unwrap();
        let ccts = found["ccts_s"].as_array().unwrap();
        assert_eq!(ccts.len(), 2, "{found}");
        // At 128 MiB/s neither can be sooner than that.
        assert!(ccts[0].as_f64().unwrap() > 1.99, "{found}");
        assert!(ccts[1].as_f64().unwrap() > 0.99, "{found}");
        let sum: f64 = ccts.iter().map(|cct| cct.as_f64().unwrap()).sum();
        let average = found["average_cct_s"].as_f64().unwrap();
        assert!((average - sum / 2.0).abs() < 1e-9, "{found}");
        assert!(found["makespan_s"].as_f64().unwrap() >= ccts[0].as_f64().unwrap() - 1e-9);
    }
    // The small one first: 1 s, and the large one as long after it as rack 2 receives.
    let ran = simulated(&["--trace", trace, "--scheduler", "varys", "--json"], 0);
    let found: Value = serde_json::from_str(&ran.out).unwrap();
    assert_eq!(found["ccts_s"], serde_json::json!([3.0, 1.0]));
    // In steps of the public simulator the same, in its seconds.
    let rules = [
        "--trace",
        trace,
        "--scheduler",
        "varys",
        "--rules",
        "coflowsim",
        "--json",
    ];
    let found: Value = serde_json::from_str(&simulated(&rules, 0).out).unwrap();
    assert_eq!(found["ccts_s"], serde_json::json!([3.0, 1.0]));
    // What comes before the first byte is part of the time.
    let slow = ["--overheads", "1 s,0 s,1 ms,0 s,0 s", "--json"];
    let args: Vec<&str> = ["--trace", trace].iter().chain(&slow).copied().collect();
    let found: Value = serde_json::from_str(&simulated(&args, 0).out).unwrap();
    assert_eq!(found["ccts_s"][1], 2.001);
    let text = simulated(&["--trace", trace, "--scheduler", "rpc,fair"], 0).out;
    assert!(
        text.contains("rpc") && text.contains("fair") && text.contains("2 shuffles"),
        "{text}"
    );
}

#[test]
fn generated_shuffles_are_the_same_for_the_same_seed() {
    let dir = tempfile::tempdir().unwrap();
    let jobs = file(
        &dir,
        "jobs.toml",
        "count = 20\nsizes = [\"1 GB\", \"30 GB\"]\n",
    );
    let base = [
        "--jobs",
        jobs.to_str().unwrap(),
        "--hosts",
        "10",
        "--nics",
        "1,10 Gbit/s",
    ];
    let run = |more: &[&str]| -> Value {
        let args: Vec<&str> = base.iter().chain(more).copied().collect();
        serde_json::from_str(&simulated(&args, 0).out).unwrap()
    };
    let found = run(&["--arrivals", "5/s", "--trials", "3", "--json"]);
    assert_eq!(found["ccts_s"].as_array().unwrap().len(), 60);
    assert!(found["average_ci95_s"].as_f64().unwrap() > 0.0);
    let again = run(&[
        "--arrivals",
        "5/s",
        "--trials",
        "3",
        "--threads",
        "1",
        "--json",
    ]);
    assert_eq!(found["ccts_s"], again["ccts_s"]);
    let other = run(&[
        "--arrivals",
        "5/s",
        "--trials",
        "3",
        "--seed",
        "9",
        "--json",
    ]);
    assert_ne!(found["ccts_s"], other["ccts_s"]);
}

#[test]
fn what_is_wrong_with_a_trace_or_jobs_is_said() {
    let dir = tempfile::tempdir().unwrap();
    let cases: &[(&str, &str)] = &[
        ("", "it is empty"),
        (
            "x 1\n",
            "line 1: the number of racks: `x` is not a number from 0 to 65536",
        ),
        (
            "4\n",
            "line 1: it ends where the number of coflows should be",
        ),
        (
            "4 2\n1 0 1 0 1 2:1\n",
            "line 1: the number of coflows should be 2, and is 1",
        ),
        (
            "4 1\n1 0 1 0 1 2:1\n2 0 1 0 1 2:1\n",
            "line 3: the first line says that there are 1",
        ),
        (
            "4 1\n1 0 1 4 1 2:1\n",
            "line 2: the rack of mapper 1: there is no rack `4`; they are 0 to 3",
        ),
        ("4 1\n1 0 1 0 1 2:-1\n", "`-1` is not a number of megabytes"),
        (
            "4 1\n1 0 1 0 1 2:1e300\n",
            "`1e300` is not a number of megabytes",
        ),
        (
            "4 1\n1 0 1 0 1 2:NaN\n",
            "`NaN` is not a number of megabytes",
        ),
        ("4 1\n1 0 1 0 1 2\n", "`2` is not like 12:3.5"),
        ("4 1\n1 0 1 0 0\n", "line 2: it has no reducer"),
        ("4 1\n1 0 0 1 2:1\n", "line 2: it has no mapper"),
        ("4 1\n1 0 9 0 1 2:1\n", "line 2: the rack of mapper 3"),
        ("4 1\n1 0 1 0 1 2:1 7\n", "line 2: `7` is too much"),
        (
            "4 1\n1 -5 1 0 1 2:1\n",
            "line 2: the time of its arrival, in ms: `-5`",
        ),
    ];
    for (text, message) in cases {
        let trace = file(&dir, "trace.txt", text);
        let ran = simulated(&["--trace", trace.to_str().unwrap()], 1);
        assert!(ran.err.contains(message), "{text}: {}", ran.err);
    }
    let cases: &[(&str, &str)] = &[
        ("", "line 1: missing field `count`"),
        ("count = 1\n", "jobs.toml: either `sizes` or `trace`"),
        (
            "count = 0\nsizes = [\"1 GB\"]\n",
            "line 1: `count` is not from 1",
        ),
        (
            "count = 1\nsizes = [\n\"1 GB\",\n\"1 XB\"]\n",
            "line 4: `sizes`: size `1 XB`",
        ),
        (
            "count = 1\nsizes = [\"0 B\"]\n",
            "line 2: no job moves anything",
        ),
        (
            "count = 1\nsizes = [\"1 B\"]\nat_least = \"1 B\"\n",
            "line 3: `at_least` goes with `trace`",
        ),
        (
            "count = 1\nsizes = [\"1 B\"]\nmappers = 500\n",
            "line 3: `mappers` is 500",
        ),
        (
            "count = 1\ntrace = \"none.txt\"\n",
            "none.txt: cannot read the trace",
        ),
        ("count = 1\nwidth = 3\n", "line 2: unknown field `width`"),
    ];
    for (text, message) in cases {
        let jobs = file(&dir, "jobs.toml", text);
        let ran = simulated(&["--jobs", jobs.to_str().unwrap()], 1);
        assert!(ran.err.contains(message), "{text}: {}", ran.err);
    }
    let trace = file(&dir, "trace.txt", TRACE);
    let trace = trace.to_str().unwrap();
    let wrong: &[(&[&str], &str)] = &[
        (&["--scheduler", "best"], "possible values"),
        (&["--hosts", "3"], "cannot be used with"),
        (&["--rules", "coflowsim"], "plays traces, by varys or fair"),
        (&["--port", "0 bit/s"], "nothing would ever arrive"),
        (&["--per-host", "many"], "it is not a whole number"),
        (&["--per-host", "0"], "0 is not in 1.."),
        (&["--seed", "99999999999999999999"], "it is too large"),
        (&["--trials", ""], "it is empty"),
        (&["--waves", "two"], "possible values"),
        (
            &["--waves", "coflows", "--scheduler", "neat"],
            "only rpc and rpc-conserving plan waves",
        ),
        (
            &["--overheads", "1 s,2 s"],
            "it has 2 durations; five are needed",
        ),
    ];
    for (args, message) in wrong {
        let args: Vec<&str> = ["--trace", trace].iter().chain(*args).copied().collect();
        let ran = simulated(&args, 2);
        assert!(ran.err.contains(message), "{args:?}: {}", ran.err);
    }
    assert!(
        simulated(&[], 2)
            .err
            .contains("--trace or --jobs is needed")
    );
}

#[test]
fn hosts_that_run_few_reducers_make_shuffles_go_in_waves() {
    let dir = tempfile::tempdir().unwrap();
    let jobs = "count = 3\nsizes = [\"1 GB\"]\nreducers = 20\nmappers = 4\n";
    let jobs = file(&dir, "jobs.toml", jobs);
    let times = |more: &[&str]| {
        let base = ["--jobs", jobs.to_str().unwrap(), "--hosts", "4", "--json"];
        let nics = ["--nics", "1,10 Gbit/s", "--seed", "3"];
        let args: Vec<&str> = base.iter().chain(&nics).chain(more).copied().collect();
        let ran = simulated(&args, 0);
        let found: Value = serde_json::from_str(&ran.out).unwrap();
        found["average_cct_s"].as_f64().unwrap()
    };
    let (free, planned) = (times(&[]), times(&["--per-host", "1"]));
    // All reducers of a host share what it receives, at once or one after the other.
    assert!(
        planned >= free * (1.0 - 1e-9) && planned < free * 1.5,
        "{planned} {free}"
    );
    let conserving = times(&["--per-host", "1", "--waves", "conserving"]);
    let coflows = times(&["--per-host", "1", "--waves", "coflows"]);
    assert!(
        conserving > planned && coflows > planned,
        "{conserving} {coflows}"
    );
}
