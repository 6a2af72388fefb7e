//! `plan shuffle`.

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
    let dir = tempfile::tempdir().unwrap();
    let network = file(&dir, "net.toml", network);
    file(&dir, "wrong.csv", "host,x,y\na,1 MB\n");
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
        "job.toml: mapper 2: there is no host z"
    );
    assert_eq!(
        change("host = \"b\"", "host = \"a\""),
        "job.toml: mapper 2: a is there twice"
    );
    assert_eq!(
        change("\"100 MB\", \"0 B\"", "\"100 MB\""),
        "job.toml: mapper 2: `sends` has 1 sizes, that of mapper 1 has 2"
    );
    assert_eq!(
        change("\"50 MB\"", "\"0 B\""),
        "job.toml: no mapper holds anything for reducer y"
    );
    assert_eq!(
        change("\"x\", \"y\"", "\"x\""),
        "job.toml: `reducers` names 1, and mappers hold something for 2"
    );
    assert_eq!(
        change("\"x\", \"y\"", "\"x\", \"x\""),
        "job.toml: two reducers are called x"
    );
    assert_eq!(
        change("hosts = [", "per_host = 0\nhosts = ["),
        "job.toml: 2 reducers have to be placed, and hosts may run 0"
    );
    assert_eq!(
        change("hosts = [", "matrix = \"wrong.csv\"\nhosts = ["),
        "job.toml: either `matrix` or `[[mapper]]` says what mappers hold, not both"
    );
    assert_eq!(
        refused("matrix = \"wrong.csv\"", NETWORK),
        "wrong.csv: line 2: it has 1 sizes, and the first line names 2 reducers"
    );
    assert!(change("\"50 MB\"", "\"-5 MB\"").starts_with("job.toml: mapper 1: `sends`: "));
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
