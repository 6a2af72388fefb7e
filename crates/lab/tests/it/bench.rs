//! `bench`: experiments leave files, and the pages are made of them.

use std::fs;
use std::path::Path;

use serde_json::Value;

use crate::support::{Ran, call, skipped, undisturbed};

#[test]
fn an_experiment_leaves_its_findings_and_the_page_shows_them() {
    let dir = tempfile::tempdir().unwrap();
    let output = dir.path().join("found");
    let page = dir.path().join("docs/grid.md");
    let (output, page) = (output.to_str().unwrap(), page.to_str().unwrap());
    let grid = |more: &[&str]| {
        let fixed = ["bench", "grid", "--output", output, "--page", page];
        fixed
            .iter()
            .chain(more)
            .map(ToString::to_string)
            .collect::<Vec<_>>()
    };
    let ran = call(grid(&["das2", "--short", "--only", "balanced", "--json"])).expect(0);
    let found = &ran.json()["experiments"][0];
    let panels = found["panels"].as_array().unwrap();
    assert_eq!((found["name"].as_str(), panels.len()), (Some("das2"), 2));
    for group in panels
        .iter()
        .flat_map(|panel| panel["groups"].as_array().unwrap())
    {
        let measured = &group["measurements"][0];
        assert_eq!(measured["method"], "balanced");
        let share = measured["of_optimum"].as_f64().unwrap();
        assert!((0.7..=1.0).contains(&share), "{group}");
        let crossings = measured["crossings"].as_f64().unwrap();
        assert!((crossings - 1.0).abs() < 1e-6, "{group}");
    }
    let again = call(grid(&["das2", "--short", "--only", "balanced", "--json"])).expect(0);
    assert_eq!(
        again.json()["experiments"][0]["panels"][0]["groups"][0]["optimum_bytes_per_s"],
        panels[0]["groups"][0]["optimum_bytes_per_s"]
    );

    let plot = fs::read_to_string(dir.path().join("found/das2-two.svg")).unwrap();
    assert!(plot.starts_with("<svg ") && plot.contains("Amsterdam to Leiden"));
    call(grid(&["page"])).expect(0);
    let text = fs::read_to_string(page).unwrap();
    assert!(
        text.contains("das2-two.svg") && text.contains("made short"),
        "{text}"
    );
    assert!(text.contains("62 MB/s"), "what the thesis found is quoted");
}

#[test]
fn the_papers_example_is_what_the_paper_says() {
    let dir = tempfile::tempdir().unwrap();
    let (output, page) = (dir.path().join("found"), dir.path().join("replicate.md"));
    let replicate = |names: &[&str]| {
        let fixed = ["bench", "replicate", "--output", output.to_str().unwrap()];
        let page = ["--page", page.to_str().unwrap()];
        let all = fixed.iter().chain(&page).chain(names);
        all.map(ToString::to_string).collect::<Vec<_>>()
    };
    let ran = call(replicate(&["figure1", "figure3", "page", "--json"])).expect(0);
    let found = ran.json();
    let figure = |experiment: usize, system: &str, name: &str| {
        let rows = found["experiments"][experiment]["rows"].as_array().unwrap();
        let row = rows.iter().find(|row| row["series"] == system).unwrap();
        row["figures"][name]["mean"].as_f64().unwrap()
    };
    let near = |found: f64, said: f64| assert!((found / said - 1.0).abs() < 0.01, "{found}");
    near(figure(0, "direct", "limit_s"), 1.5);
    near(figure(0, "direct", "finish_s"), 3.0);
    near(figure(1, "direct", "finish_s"), 18.0);
    near(figure(1, "chain", "finish_s"), 13.0);
    assert!(figure(0, "central", "finish_s") < 2.5, "{found}");
    assert!(figure(1, "central", "finish_s") < 10.0, "{found}");
    let text = fs::read_to_string(page).unwrap();
    assert!(text.contains("/replicate-figure1-finish-s.svg)"), "{text}");
    assert!(text.contains("## table3: ") && text.contains("Not measured."));
    // What the paper has between two experiments that are here.
    let places = ["## decisions: ", "## figure11b: ", "## figure11c: "].map(|it| text.find(it));
    assert!(places.is_sorted() && places[0].is_some(), "{text}");
    let plot = output.join("replicate-figure3-finish-s.svg");
    assert!(fs::read_to_string(plot).unwrap().starts_with("<svg "));
}

/// Jobs that are large enough to be drawn from, on four racks.
fn small_trace() -> String {
    let mut text = "4 12\n".to_owned();
    for job in 0..12 {
        let megabytes = 3000 + 500 * job;
        text.push_str(&format!(
            "{job} {} 2 0 1 2 2:{megabytes}.0 3:100.0\n",
            job * 1000
        ));
    }
    text
}

#[test]
fn shuffles_take_what_the_paper_says() {
    let dir = tempfile::tempdir().unwrap();
    let (output, page) = (dir.path().join("found"), dir.path().join("shuffle.md"));
    let trace = dir.path().join("trace.txt");
    fs::write(&trace, small_trace()).unwrap();
    let paths = [
        ("--output", &output),
        ("--page", &page),
        ("--trace", &trace),
    ];
    let paths = paths.map(|(name, path)| [name, path.to_str().unwrap()]);
    let args = ["bench", "shuffle", "all", "page", "--short", "--json"];
    let ran = call(args.iter().chain(paths.as_flattened())).expect(0);
    let found = ran.json();
    let mean = |name: &str, scheduler: &str, figure: &str| {
        let all = found["experiments"].as_array().unwrap();
        let experiment = all.iter().find(|it| it["name"] == name).unwrap();
        let rows = experiment["rows"].as_array().unwrap();
        let row = rows.iter().find(|row| row["series"] == scheduler).unwrap();
        row["figures"][figure]["mean"].as_f64().unwrap()
    };
    let near = |found: f64, said: f64| assert!((found / said - 1.0).abs() < 0.01, "{found}");
    near(
        mean("figure1", "best rates, other places", "average_cct_s"),
        3.0,
    );
    near(
        mean("figure1", "equal rates, best places", "average_cct_s"),
        3.0,
    );
    near(mean("figure1", "rpc", "average_cct_s"), 2.25);
    near(mean("figure1", "rpc-conserving", "second_s"), 3.5);
    near(mean("figure3", "waits for the first", "second_s"), 3.5);
    near(mean("figure3", "uses what is left", "second_s"), 2.5);
    near(mean("theorem6", "rounded", "over_best"), 1.5);
    near(mean("theorem6", "planner", "over_best"), 1.0);
    near(mean("tables", "rpc", "average_cct_s"), 12.90);
    near(mean("tables", "neat, as printed", "average_cct_s"), 15.48);
    near(
        mean("tables", "2dp, fetched before", "average_cct_s"),
        21.79,
    );
    near(
        mean("tables", "varys, one behind the other", "average_cct_s"),
        19.50,
    );
    near(mean("figure3", "keeps what is left", "second_s"), 3.0);
    near(mean("tables", "fair, as printed", "average_cct_s"), 22.94);
    let text = fs::read_to_string(&page).unwrap();
    for part in [
        "## figure1: ",
        "## width: ",
        "shuffle-trace-average-cct-s.svg)",
        "Made short",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    let plot = output.join("shuffle-tables-average-cct-s.svg");
    assert!(fs::read_to_string(plot).unwrap().starts_with("<svg "));
    let missing = dir.path().join("none.txt");
    let args = [
        "bench",
        "shuffle",
        "trace",
        "--trace",
        missing.to_str().unwrap(),
    ];
    let ran = call(args.iter().chain(&paths[0])).expect(1);
    assert!(ran.err.contains("none.txt: No such file"), "{}", ran.err);
}

#[test]
fn where_nothing_can_be_saved_nothing_is_measured() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("file");
    fs::write(&file, "").unwrap();
    let output = file.join("found");
    let output = output.to_str().unwrap();
    for group in [
        ["grid", "das2"],
        ["gossip", "rounds"],
        ["replicate", "figure3"],
        ["shuffle", "figure1"],
    ] {
        let [kind, name] = group;
        let ran = call(["bench", kind, name, "--short", "--output", output]).expect(1);
        let said = format!("outpour-lab: {output}: Not a directory (os error 20)\n");
        assert_eq!(ran.err, said, "before an experiment begins");
    }
}

#[test]
fn what_cannot_be_measured_is_said_at_the_end() {
    let dir = tempfile::tempdir().unwrap();
    let output = dir.path().to_str().unwrap();
    let table = dir.path().join("table.csv");
    fs::write(&table, "capacity,a,1,1\nlink,a\n").unwrap();
    let table = table.to_str().unwrap();
    let args = [
        "bench", "grid", "gridlab", "das2", "--short", "--only", "optimal",
    ];
    let ran = call(
        args.iter()
            .chain(&["--output", output, "--data", table, "-q"]),
    )
    .expect(1);
    assert!(ran.err.contains("table.csv:2: "), "{}", ran.err);
    assert!(
        ran.err
            .contains("not everything could be measured: gridlab"),
        "{}",
        ran.err
    );
    assert!(
        dir.path().join("das2.json").exists(),
        "the other one was measured"
    );
    assert_eq!(call(["bench", "grid", "nothing"]).expect(2).out, "");
    let empty = dir.path().join("empty");
    let page = ["bench", "grid", "page", "--output", empty.to_str().unwrap()];
    assert!(call(page).expect(1).err.contains("no report here"));
}

/// Jobs run alone or with others leave the same, and what they left is not done again.
#[test]
fn jobs_of_push_are_done_once_and_become_plots_and_a_page() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
    let push = |names: &[&str]| {
        let mut all = vec!["bench", "push", "--short"];
        all.extend(names);
        let mut all: Vec<String> = all.into_iter().map(str::to_owned).collect();
        for (option, name) in [
            ("--jobs", "jobs"),
            ("--output", "found"),
            ("--page", "push.md"),
        ] {
            all.extend([option.to_owned(), path(name)]);
        }
        all
    };
    let listed = call(push(&["jobs", "figure2", "figure14a"])).expect(0).out;
    let jobs: Vec<&str> = listed.lines().collect();
    assert_eq!(jobs[..2], ["figure2.packets", "figure2.fluid"]);
    assert!(
        jobs.contains(&"figure14a.from-one-packet.1000.2"),
        "{listed}"
    );
    call(push(&["--job", "figure2.fluid"])).expect(0);
    assert!(
        call(push(&["--job", "figure2.fluid"]))
            .expect(0)
            .err
            .contains("was done before")
    );
    let none = call(push(&["--job", "figure2.\u{1b}"])).expect(1).err;
    assert!(
        none.contains("there is no job") && !none.contains('\u{1b}'),
        "{none}"
    );

    let ran = call(push(&["figure2", "page", "--json"])).expect(0);
    assert!(
        ran.err.contains("figure2: 1 of 2 jobs were done before"),
        "{}",
        ran.err
    );
    let found = ran.json();
    let rows = found["experiments"][0]["rows"].as_array().unwrap();
    let off = rows[0]["figures"]["off_fluid"]["mean"].as_f64().unwrap();
    assert!(
        rows[0]["series"] == "flow 1, packets" && off < 10.0,
        "{off}"
    );
    let text = fs::read_to_string(path("push.md")).unwrap();
    assert!(text.contains("/push-figure2-goodput.svg)") && text.contains("Not measured."));
    let plot = fs::read_to_string(dir.path().join("found/push-figure2-alpha.svg")).unwrap();
    assert!(plot.starts_with("<svg "));

    // Sizes are asked for where there are tasks, and only there.
    let missing = call([
        "bench",
        "push",
        "figure10",
        "--jobs",
        &path("jobs"),
        "--sizes",
        "/none.cdf",
        "--output",
        &path("found"),
    ]);
    assert!(missing.expect(1).err.contains("/none.cdf"));
}

/// `bench gossip`, which leaves everything in a directory.
fn gossip(dir: &Path, more: &[&str]) -> Ran {
    let (output, page) = (dir.join("found"), dir.join("docs/gossip.md"));
    let fixed = ["bench", "gossip", "--short", "--json", "--output"].map(str::to_owned);
    let places = [output, page].map(|path| path.to_str().unwrap().to_owned());
    let [output, page] = places;
    let more = more.iter().map(ToString::to_string);
    let all = [output, "--page".to_owned(), page].into_iter().chain(more);
    call(fixed.into_iter().chain(all))
}

#[test]
fn gossip_is_held_against_what_is_required_of_it() {
    let dir = tempfile::tempdir().unwrap();
    let ran = gossip(dir.path(), &["gigabit", "page"]).expect(0);
    let found = ran.json();
    let found = found["experiments"].as_array().unwrap();
    assert_eq!(found.len(), 1);
    let [plain, coded] = &found[0]["trials"].as_array().unwrap()[..] else {
        panic!("{ran:?}");
    };
    let seconds = |trial: &Value| trial["finish_s"].as_f64().unwrap();
    // 50 MB at 1 Gbit/s take 0.4 s and what TCP takes of it.
    assert!((0.4..0.5).contains(&seconds(plain)), "{plain}");
    assert!(
        (1.0..2.0).contains(&(seconds(coded) / seconds(plain))),
        "{coded}"
    );
    let page = fs::read_to_string(dir.path().join("docs/gossip.md")).unwrap();
    for part in [
        "## Required and reached",
        "| 8 nodes, 1 Gbit/s, 1 GB: time / plain copy | at most 1.1 |",
        "Not measured",
        "Made short",
    ] {
        assert!(page.contains(part), "{part}: {page}");
    }
    let misuse = call(["bench", "gossip", "nothing"]).expect(2);
    assert!(misuse.err.contains("churn"), "{}", misuse.err);
}

#[test]
fn gossips_of_several_objects_are_measured_in_an_emulated_network() {
    if !rustix::process::geteuid().is_root() {
        return skipped("emulating networks needs root; gossip in one is not measured");
    }
    let _undisturbed = undisturbed();
    let dir = tempfile::tempdir().unwrap();
    let ran = gossip(dir.path(), &["objects", "-q"]);
    let found = ran.json();
    let trials = found["experiments"][0]["trials"].as_array().unwrap();
    assert_eq!(trials.len(), 4);
    let mut missed = false;
    for trial in trials {
        if let Some(error) = trial["error"].as_str() {
            assert!(error.starts_with("void"), "{trial}");
            skipped("this machine is too busy for an emulated network");
            missed = true;
            continue;
        }
        // 2 MiB at 15 Mbit/s.
        assert!(trial["finish_s"].as_f64().unwrap() > 1.1, "{trial}");
        assert_eq!(trial["values"]["batch_blocks"], 16.0);
        let finished = trial["curves"]["finished"].as_array().unwrap();
        assert_eq!(finished.last().unwrap()[1], 5.0, "{trial}");
    }
    assert_eq!(ran.code, Some(i32::from(missed)), "{ran:?}");
    assert!(dir.path().join("found/gossip-objects.json").exists());
}

/// A small cast may be over before a wrong packet proves anything; so many in a row are not.
const CASTS_MAX: u32 = 4;

#[test]
fn who_sends_wrong_packets_is_named_alone_in_an_emulated_network() {
    if !rustix::process::geteuid().is_root() {
        return skipped("emulating networks needs root; a liar in one is not looked at");
    }
    let _undisturbed = undisturbed();
    for seed in 1..=CASTS_MAX {
        let dir = tempfile::tempdir().unwrap();
        let seed = seed.to_string();
        let ran = gossip(dir.path(), &["liar", "page", "--seed", &seed]);
        let found = ran.json();
        let trials = found["experiments"][0]["trials"].as_array().unwrap();
        let is_void = |trial: &Value| {
            let error = trial["error"].as_str();
            error.is_some_and(|error| error.starts_with("void"))
        };
        if trials.iter().any(is_void) {
            return skipped("this machine is too busy for an emulated network");
        }
        ran.expect(0);
        for trial in trials {
            let values = &trial["values"];
            assert_eq!(values["wrongly_accused"], 0.0, "{trial}");
            assert_eq!(values["wrong_copies"], 0.0, "{trial}");
        }
        let page = fs::read_to_string(dir.path().join("docs/gossip.md")).unwrap();
        let right = "| others accused | at most 0 | 0.000 | yes |";
        assert!(page.contains(right), "{page}");
        assert_eq!(trials[1]["series"], "one of ten lies");
        if trials[1]["values"]["named_s"].as_f64().is_some() {
            return;
        }
    }
    panic!("nobody ever found out");
}
