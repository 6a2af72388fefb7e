//! `sim fluid`.

use std::fs;

use serde_json::Value;

use crate::support::{Ran, call};

#[track_caller]
fn fluid(more: &[&str], code: i32) -> Ran {
    call(["sim", "fluid"].iter().chain(more)).expect(code)
}

fn number(value: &Value) -> f64 {
    value.as_f64().unwrap_or_else(|| panic!("{value}"))
}

#[track_caller]
fn near(found: &Value, expected: f64, share: f64) {
    let found = number(found);
    assert!(
        (found - expected).abs() <= share * expected,
        "{found} instead of {expected}"
    );
}

#[test]
fn by_default_two_flows_share_a_link_one_to_four() {
    let found = fluid(&["--json"], 0).json();
    let flows = &found["flows"];
    assert_eq!(
        (&flows[0]["theta"], &flows[1]["theta"]),
        (&1.0.into(), &4.0.into())
    );
    assert_eq!(
        (&found["from_s"], &found["to_s"]),
        (&2.0.into(), &6.0.into())
    );
    let goodput = |flow: usize| number(&flows[flow]["goodput_packets_per_s"]);
    let ratio = goodput(1) / goodput(0);
    assert!((ratio - 4.0).abs() < 0.2, "{ratio}");
    near(&flows[0]["mean_alpha"], 0.577, 0.1);
    near(&flows[1]["mean_cwnd"], 24.0, 0.1);
    near(&found["mean_queue_packets"], 30.0, 0.1);
    let predicted = &found["predicted"];
    near(&predicted["alpha"], 0.577, 0.01);
    near(&predicted["cwnds"][0], 6.0, 0.01);
    near(&predicted["goodputs_packets_per_s"][1], 1652.8, 0.01);
    assert_eq!(predicted["is_within_theta_sum_max"], true);
    let phases = found["phases"].as_array().unwrap();
    assert_eq!(phases.len(), 3);
    near(&phases[0]["flows"][0]["mean_alpha"], 0.258, 0.1);
    near(
        &phases[2]["flows"][0]["goodput_packets_per_s"],
        2066.0,
        0.05,
    );
    assert!(found.get("series").is_none());
}

#[test]
fn people_read_a_table_of_times_and_flows() {
    let text = fluid(&[], 0).out;
    let lines: Vec<&str> = text.lines().collect();
    assert!(
        lines[0].starts_with("TIME        THETA  GOODPUT   EXPECTED"),
        "{text}"
    );
    assert!(lines[1].starts_with("0 s to 2 s  1 "), "{text}");
    assert!(lines[3].trim_start().starts_with("4 "), "{text}");
    assert!(text.contains("steps of a round trip of 14.6 ms"), "{text}");
    let text = fluid(&["--theta", "10,20"], 0).out;
    assert!(
        text.contains("add up to more than 15.103 from 0 s on"),
        "{text}"
    );
}

#[test]
fn a_series_has_every_step_and_a_drawing_has_four_panels() {
    let dir = tempfile::tempdir().unwrap();
    let svg = dir.path().join("a.svg");
    let options = [
        "--theta",
        "2",
        "--stop",
        "1 s",
        "--steps-per-rtt",
        "2",
        "--svg",
    ];
    let options: Vec<&str> = options.into_iter().chain([svg.to_str().unwrap()]).collect();
    let found = fluid(&[&options[..], &["--json", "--series"]].concat(), 0).json();
    let series = &found["series"];
    let length = |list: &Value| list.as_array().unwrap().len();
    // Half of 0.1 ms and 30 packets at 2066 per second.
    let steps = (1.0 / ((0.0001 + 30.0 / 2066.0) / 2.0_f64)).ceil() as usize;
    assert_eq!(length(&series["at_s"]), steps);
    assert_eq!(length(&series["flows"][0]["cwnd"]), steps);
    assert_eq!(
        (&series["flows"][0]["cwnd"][0], &series["queue_packets"][0]),
        (&1.0.into(), &0.0.into())
    );
    let drawn = fs::read_to_string(&svg).unwrap();
    assert!(drawn.starts_with("<svg ") && drawn.ends_with("</svg>\n"));
    assert_eq!(drawn.matches("<polyline").count(), 4);
    for title in [
        "window, packets",
        "goodput, packets/s",
        "alpha,",
        "queue, packets",
    ] {
        assert!(drawn.contains(title), "{title}");
    }
    // The directory is not there.
    let nowhere = dir.path().join("none/a.svg");
    let ran = fluid(&["--svg", nowhere.to_str().unwrap()], 1);
    assert!(ran.err.contains("cannot write"), "{}", ran.err);
}

#[test]
fn a_file_says_the_same_as_options_and_options_replace_it() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.toml");
    let text = "capacity = \"10 Mbit/s\"\npacket = \"1000 B\"\ndelay = \"2 ms\"\necn = 40\nqueue = 90\ng = 0.125\n\
                initial-window = 3\nsteps-per-rtt = 2\n\
                [[flow]]\ntheta = 1\nstop = \"5 s\"\n[[flow]]\ntheta = 2\nstart = \"1 s\"\nstop = \"4 s\"\n";
    fs::write(&path, text).unwrap();
    let path = path.to_str().unwrap();
    let link = [
        "--capacity",
        "1250 pps",
        "--delay",
        "2 ms",
        "--ecn",
        "40",
        "--queue",
        "90",
        "--g",
        "1/8",
        "--initial-window",
        "3",
        "--steps-per-rtt",
        "2",
    ];
    let flows = [
        "--theta", "1,2", "--start", "0s,1s", "--stop", "5s,4s", "--json", "--series",
    ];
    let typed = fluid(&[&link[..], &flows[..]].concat(), 0).json();
    let read = fluid(&[path, "--json", "--series"], 0).json();
    assert_eq!(typed, read);
    let replaced = fluid(&[path, "--theta", "3", "--json"], 0).json();
    assert_eq!(replaced["flows"].as_array().unwrap().len(), 1);
    assert_eq!(replaced["to_s"], 8.0);
    near(&replaced["predicted"]["cwnd_sum"], 42.5, 1e-9);
    let replaced = fluid(&[path, "--delay", "0 s", "--json"], 0).json();
    near(&replaced["predicted"]["cwnd_sum"], 40.0, 1e-9);
}

#[test]
fn what_is_wrong_is_said_in_a_line_that_names_it() {
    let wrong: &[(&[&str], &str)] = &[
        (
            &["--theta", "0"],
            "flow 1: `theta` is 0: expected a number above 0",
        ),
        (&["--theta", "1,NaN"], "flow 2: `theta` is NaN"),
        (&["--theta", "x"], "'--theta <NUMBERS>': it is not a number"),
        (
            &["--theta", "1", "--stop", "0 s"],
            "flow 1: `stop` is 0: expected a time after 0 s",
        ),
        (
            &["--theta", "1,2,3", "--start", "0 s,1 s"],
            "--start has 2 times and --theta 3 weights",
        ),
        (&["--start", "1 s"], "--theta <NUMBERS>"),
        (&["--capacity", "2066"], "rate `2066` has no unit"),
        (
            &["--capacity", "2066 pps", "--packet", "1500 B"],
            "packet: its size makes no difference",
        ),
        (
            &["--packet", "1500 B"],
            "packet: its size makes no difference",
        ),
        (&["--capacity", "0 pps"], "`capacity` is 0"),
        (&["--ecn", "0"], "`ecn` is 0: expected a number from 1"),
        (
            &["--queue", "30"],
            "`queue` is 30: expected more than the 30",
        ),
        (&["--g", "1/0"], "`g` is inf"),
        (
            &["--g", "2"],
            "`g` is 2: expected a number above 0, at most 1",
        ),
        (&["--initial-window", "0"], "`initial-window` is 0"),
        (&["--steps-per-rtt", "0"], "`steps-per-rtt` is 0"),
        (
            &["--theta", "1", "--stop", "365 d", "--steps-per-rtt", "100"],
            "end earlier",
        ),
        (&["--series"], "--json"),
    ];
    for (options, message) in wrong {
        let ran = fluid(options, 2);
        assert!(ran.err.contains(message), "{options:?}: {}", ran.err);
        assert_eq!(ran.out, "");
        if message.starts_with(['f', '`', '-']) && !message.contains('<') && *message != "--json" {
            assert_eq!(ran.err.trim_end().lines().count(), 1, "{}", ran.err);
        }
    }
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.toml");
    for (text, message) in [
        ("width = 1\n", "a.toml: line 1: unknown field `width`"),
        (
            "ecn = 200\n",
            "a.toml: `queue` is 100: expected more than the 200",
        ),
        (
            "[[flow]]\ntheta = -1\nstop = \"1 s\"\n",
            "a.toml: flow 1: `theta` is -1",
        ),
        (
            "[[flow]]\ntheta = 1\nstop = \"1\"\n",
            "a.toml: flow 1: `stop`: duration `1` has no unit",
        ),
    ] {
        fs::write(&path, text).unwrap();
        let ran = fluid(&[path.to_str().unwrap()], 1);
        assert!(ran.err.contains(message), "{text}: {}", ran.err);
        assert_eq!(ran.err.trim_end().lines().count(), 1, "{}", ran.err);
    }
    // A fault of an option is none of the file.
    fs::write(&path, "packet = \"1000 B\"\ncapacity = \"20 Mbit/s\"\n").unwrap();
    let file = path.to_str().unwrap();
    let ran = fluid(&[file, "--g", "5"], 2);
    assert!(
        ran.err.contains("`g` is 5") && !ran.err.contains("a.toml"),
        "{}",
        ran.err
    );
    // The size of packets holds for another capacity, too.
    let found = fluid(
        &[file, "--capacity", "8 Mbit/s", "--theta", "1", "--json"],
        0,
    )
    .json();
    let goodput = found["flows"][0]["goodput_packets_per_s"].as_f64().unwrap();
    assert!((goodput - 1000.0).abs() < 20.0, "{goodput}");
    let ran = fluid(&["/none/there.toml"], 1);
    assert!(ran.err.contains("cannot read the scenario"), "{}", ran.err);
}

#[test]
fn of_times_with_as_many_flows_the_first_counts() {
    let options = [
        "--theta", "1,2", "--start", "0 s,2 s", "--stop", "1 s,3 s", "--json",
    ];
    let found = fluid(&options, 0).json();
    assert_eq!(
        (&found["from_s"], &found["to_s"]),
        (&0.0.into(), &1.0.into())
    );
    assert_eq!(found["flows"][0]["flow"], 1);
    let phases = found["phases"].as_array().unwrap();
    assert_eq!(
        (phases.len(), &phases[1]["flows"][0]["flow"]),
        (2, &2.into())
    );
}

#[test]
fn a_time_shorter_than_a_round_trip_says_nothing() {
    let options = ["--theta", "1", "--stop", "1 s", "--delay", "100 s"];
    let ran = fluid(&options, 1);
    assert!(
        ran.err.contains("no flow is active for as long as a step"),
        "{}",
        ran.err
    );
}
