//! `sim flows`.

use std::fs::{self, File};
use std::path::Path;

use serde_json::Value;

use crate::support::{Ran, call, outpour, run};

#[track_caller]
fn flows(more: &[&str], code: i32) -> Ran {
    call(["sim", "flows"].iter().chain(more)).expect(code)
}

/// The example as a file.
fn example(dir: &Path) -> String {
    let path = dir.join("example.toml");
    fs::write(&path, flows(&["--example"], 0).out).unwrap();
    path.to_str().unwrap().to_owned()
}

fn number(value: &Value) -> f64 {
    value.as_f64().unwrap_or_else(|| panic!("{value}"))
}

#[test]
fn the_example_is_a_file_that_runs_and_two_flows_share_one_to_four() {
    let dir = tempfile::tempdir().unwrap();
    let path = example(dir.path());
    let found = flows(&[&path, "--json"], 0).json();
    let phases = found["phases"].as_array().unwrap();
    assert_eq!(phases.len(), 3);
    let both = &phases[1]["flows"];
    let goodput = |flow: usize| number(&both[flow]["goodput_packets_per_s"]);
    let ratio = goodput(1) / goodput(0);
    assert!((3.6..4.4).contains(&ratio), "{ratio}");
    assert_eq!(both[1]["theta"], 4.0);
    let flow = &found["flows"][1];
    assert_eq!(
        (&flow["scheme"], &flow["drops"]),
        (&"push".into(), &0.into())
    );
    assert_eq!((&flow["from_s"], &flow["to_s"]), (&2.0.into(), &6.0.into()));
    for key in ["mean_cwnd", "mean_alpha", "rtt_s"] {
        assert!(number(&flow[key]) > 0.0, "{key}");
    }
    let port = &found["ports"][0];
    assert_eq!((&port["from"], &port["to"]), (&"s".into(), &"r".into()));
    assert!((25.0..35.0).contains(&number(&port["mean_queue_packets"])));
    assert!(number(&port["used"]) > 0.99 && number(&port["marks"]) > 0.0);
    assert!(found.get("series").is_none());
    assert_eq!(
        found,
        flows(&[&path, "--json"], 0).json(),
        "it is not the same again"
    );
}

#[test]
fn a_scenario_may_come_through_a_pipe() {
    let dir = tempfile::tempdir().unwrap();
    let path = example(dir.path());
    let piped = |path: &str| {
        let mut command = outpour();
        command.args(["sim", "flows", "-"]);
        run(command.stdin(File::open(path).unwrap()))
    };
    assert_eq!(piped(&path).expect(0).out, flows(&[&path], 0).out);
    fs::write(&path, "duration = 8").unwrap();
    let ran = piped(&path).expect(1);
    assert!(ran.err.contains("standard input: "), "{ran:?}");
}

#[test]
fn people_read_tables_of_flows_ports_and_phases() {
    let dir = tempfile::tempdir().unwrap();
    let text = flows(&[&example(dir.path())], 0).out;
    let lines: Vec<&str> = text.lines().collect();
    assert!(lines[0].starts_with("FLOW  SCHEME  TIME"), "{text}");
    assert!(lines[2].starts_with("2     push    2 to 6 s"), "{text}");
    assert!(text.contains("\ns to r "), "{text}");
    assert!(text.contains("\n2 to 6 s"), "{text}");
    assert!(text.contains(" 0 dropped, "), "{text}");
}

#[test]
fn a_series_has_every_sample_and_a_drawing_four_panels() {
    let dir = tempfile::tempdir().unwrap();
    let (path, svg) = (example(dir.path()), dir.path().join("a.svg"));
    let options = [&path, "--json", "--series", "--svg", svg.to_str().unwrap()];
    let found = flows(&options, 0).json();
    let series = &found["series"];
    let length = |list: &Value| list.as_array().unwrap().len();
    // 8 s in steps of 20 ms.
    assert_eq!(length(&series["at_s"]), 400);
    for key in ["goodput_packets_per_s", "cwnd", "alpha", "rtt_s"] {
        assert_eq!(length(&series["flows"][1][key]), 400, "{key}");
    }
    assert_eq!(length(&series["ports"][0]["queue_packets"]), 400);
    // The second flow is active from 2 s to 6 s.
    let cwnd = |at: usize| number(&series["flows"][1]["cwnd"][at]);
    assert_eq!((cwnd(98), cwnd(301)), (0.0, 0.0));
    assert!(cwnd(102) > 0.0 && cwnd(298) > 0.0);
    let drawn = fs::read_to_string(&svg).unwrap();
    assert!(drawn.starts_with("<svg ") && drawn.ends_with("</svg>\n"));
    assert_eq!(drawn.matches("<polyline").count(), 7);
}

#[test]
fn what_is_wrong_is_said_in_a_line_that_names_it() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.toml");
    let name = path.to_str().unwrap();
    let text = flows(&["--example"], 0).out;
    for (from, to, why) in [
        (
            "theta = 4",
            "theta = 0",
            "a.toml: flow 2: `theta` is 0: expected a number above 0",
        ),
        ("ecn = 30", "ecn = 101", "a.toml: link 1: `ecn` is 101"),
        (
            "ecn = 30",
            "ecm = 30",
            "a.toml: line 17: unknown field `ecm`",
        ),
        (
            "start = \"2 s\"",
            "start = -2",
            "a.toml: flow 2: `start`: -2 s",
        ),
    ] {
        assert!(text.contains(from), "{from}");
        fs::write(&path, text.replace(from, to)).unwrap();
        let ran = flows(&[name], 1);
        assert!(ran.err.contains(why), "{}", ran.err);
        assert_eq!(ran.err.trim_end().lines().count(), 1, "{}", ran.err);
    }
    for (arguments, code, why) in [
        (&[][..], 2, "<FILE>"),
        (&["none.toml"], 1, "none.toml: cannot read the scenario"),
        (&[name, "--series"], 2, "--json"),
        (&[name, "--example"], 2, "--example"),
    ] {
        let ran = flows(arguments, code);
        assert!(ran.err.contains(why), "{}", ran.err);
    }
}
