//! `sim push`.

use std::fs;

use crate::support::{Ran, call};

#[track_caller]
fn push(more: &[&str], code: i32) -> Ran {
    call(["sim", "push"].iter().chain(more)).expect(code)
}

const SMALL: [&str; 8] = [
    "--topology",
    "obs:12",
    "--sources",
    "4",
    "--tasks",
    "6",
    "--instances",
    "2",
];

#[test]
fn schemes_are_compared_over_the_same_tasks_whatever_the_threads() {
    let dir = tempfile::tempdir().unwrap();
    let table = dir.path().join("sizes.cdf");
    fs::write(&table, "10 0\n20 0.5\n100 1\n").unwrap();
    let svg = dir.path().join("times.svg");
    let run = |threads: &str| {
        let mut args = SMALL.to_vec();
        args.extend(["--sizes", table.to_str().unwrap(), "--scale", "20:400"]);
        args.extend(["--scheme", "push-1-1,dctcp", "--scheme", "scdp", "--json"]);
        args.extend(["--threads", threads, "--svg", svg.to_str().unwrap()]);
        push(&args, 0).json()
    };
    let (one, two) = (run("1"), run("2"));
    let schemes = one["schemes"].as_array().unwrap();
    assert_eq!(schemes.len(), 3);
    for (scheme, again) in schemes.iter().zip(two["schemes"].as_array().unwrap()) {
        assert_eq!(scheme["instances"], again["instances"]);
        assert_eq!(scheme["unfinished"], 0);
        let normalized = scheme["normalized_average_tct"].as_f64().unwrap();
        assert!((1.0..10.0).contains(&normalized), "{normalized}");
        assert!(scheme["packet_hops_per_s"].as_f64().unwrap() > 0.0);
        for figure in ["factor", "factor_ci95"] {
            let value = scheme[figure].as_f64().unwrap();
            assert!(value.is_finite() && value >= 0.0, "{figure}: {value}");
        }
        let sizes = |it: &serde_json::Value| it["instances"][0]["mean_packets"].clone();
        assert_eq!(sizes(scheme), sizes(&schemes[0]));
    }
    assert_eq!(schemes[0]["factor"], 1.0);
    assert_eq!(schemes[0]["trimmed"], 0.0);
    let drawn = fs::read_to_string(svg).unwrap();
    assert_eq!(drawn.matches("<circle").count(), 6);
}

#[test]
fn a_load_of_more_than_links_carry_is_said_and_simulated() {
    let mut args = SMALL.to_vec();
    args.extend(["--sizes", "fixed:50", "--load", "1.5"]);
    let ran = push(&args, 0);
    assert!(ran.err.contains("the load is 1.5"), "{ran:?}");
    assert!(ran.out.contains("push-1-1"), "{ran:?}");
}

/// Two clusters between which nothing passes.
const DEAD: &str = r#"
[[cluster]]
name = "a"
members = ["a1", "a2"]
node_out = "1 Gbit/s"
[[cluster]]
name = "b"
members = ["b1", "b2"]
[[link]]
from = "a"
to = "b"
rate = "0 bit/s"
"#;

#[test]
fn what_cannot_be_is_refused_in_a_line() {
    let dir = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &str| {
        let path = dir.path().join(name);
        fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let zero = file("zero.cdf", "6 0\n0 1\n");
    let unknown = file("unknown.csv", "site_a,site_b,delay_ms\n0,1,1\n0,x,2\n");
    let apart = file("apart.csv", "site_a,site_b,delay_ms\n0,1,1\n2,3,2\n");
    let dead = file("dead.toml", DEAD);
    for (args, code, said) in [
        (&["--sizes", &zero][..], 1, "zero.cdf:2: expected a size"),
        (
            &["--sizes", "fixed:9", "--topology", &unknown],
            1,
            "unknown.csv:3: `site_b`",
        ),
        (
            &["--sizes", "fixed:9", "--topology", &apart],
            1,
            "apart.csv:3: no way leads from site 0 to sites 2 and 3",
        ),
        (
            &["--sizes", "fixed:9", "--topology", &dead],
            1,
            "dead.toml: no way leads from `a1` to `b1`",
        ),
        (&["--sizes", "fixed:0"], 2, "--sizes"),
        (&["--sizes", "fixed:9", "--fanout", "0"], 2, "--fanout"),
        (
            &["--sizes", "fixed:9", "--fanout", "11"],
            1,
            "only 10 sources",
        ),
        (
            &["--sizes", "fixed:9", "--sources", "100"],
            1,
            "`sources` is 100",
        ),
        (&["--sizes", "fixed:9", "--load", "NaN"], 2, "--load"),
        (&["--sizes", "fixed:9", "--load", "0.009"], 2, "0.01 to 100"),
        (&["--sizes", "fixed:9", "--mark", "101"], 1, "`mark`"),
        (&["--sizes", "fixed:9", "--sources", "per-pod"], 2, "pods"),
        (&["--sizes", "fixed:9", "--topology", "ring:3"], 2, "obs:"),
    ] {
        let ran = push(args, code);
        assert!(ran.err.contains(said), "{args:?}: {ran:?}");
        assert_eq!(ran.err.trim_end().lines().count(), 1, "{ran:?}");
    }
}
