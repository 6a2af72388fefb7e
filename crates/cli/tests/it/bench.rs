//! `bench grid`: experiments leave files, and the page is made of them.

use std::fs;

use crate::support::call;

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
