//! `bench trust`: what is measured is measured, and what may not happen does not. How long anything takes
//! is not looked at here.

use serde_json::Value;

use crate::support::{call, skipped, undisturbed};

/// What an experiment in short form finds; `None`, and a loud word, without root.
fn measured(arguments: &[&str]) -> Option<Vec<Value>> {
    if !rustix::process::geteuid().is_root() {
        skipped("emulating networks needs root; what harms casts is not measured");
        return None;
    }
    let _undisturbed = undisturbed();
    let dir = tempfile::tempdir().unwrap();
    let output = dir.path().to_str().unwrap();
    let fixed = [
        "bench", "trust", "--short", "--json", "--quiet", "--output", output,
    ];
    let ran = call(fixed.iter().chain(arguments)).expect(0);
    let file = dir.path().join(format!("trust-{}.json", arguments[0]));
    assert!(file.exists(), "{ran:?}");
    let rows = ran.json()["experiments"][0]["rows"].as_array().cloned();
    let rows = rows.filter(|rows| !rows.is_empty());
    Some(rows.unwrap_or_else(|| panic!("nothing was measured: {ran:?}")))
}

#[track_caller]
fn row<'a>(rows: &'a [Value], what: &str) -> &'a Value {
    let found = rows.iter().find(|row| row["what"] == what);
    found.unwrap_or_else(|| panic!("no `{what}`: {rows:#?}"))
}

#[test]
fn who_has_a_right_to_gets_in_through_a_flood() {
    let Some(rows) = measured(&["flood"]) else {
        return;
    };
    for what in [
        "new agents 50 ms away that got in",
        "operators 50 ms away that got in",
        "memory of an agent",
        "memory of the command",
    ] {
        assert_eq!(row(&rows, what)["held"], true, "{rows:#?}");
    }
}

#[test]
fn a_rogue_keeps_nobody_from_the_object_whatever_it_does() {
    let Some(rows) = measured(&["rogue", "--only", "swarm"]) else {
        return;
    };
    assert_eq!(rows.len(), 6);
    // Each time stands for nine hosts that have all of the object.
    assert!(rows.iter().all(|row| row["error"].is_null()), "{rows:#?}");
}

#[test]
fn a_disk_that_is_far_too_slow_keeps_nobody_else_from_the_object() {
    let Some(rows) = measured(&["disk", "--only", "swarm"]) else {
        return;
    };
    assert!(rows.iter().all(|row| row["error"].is_null()), "{rows:#?}");
}

#[test]
fn thirty_two_casts_at_once_arrive() {
    let Some(rows) = measured(&["crowd"]) else {
        return;
    };
    assert!(rows.iter().all(|row| row["held"] == true), "{rows:#?}");
}

#[test]
fn days_of_faults_leave_nothing_behind() {
    let Some(rows) = measured(&["soak", "--soak", "12 s"]) else {
        return;
    };
    for what in ["files left over", "casts without a fault that went wrong"] {
        assert_eq!(row(&rows, what)["held"], true, "{rows:#?}");
    }
}
