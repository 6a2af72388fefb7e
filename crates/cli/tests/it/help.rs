//! Help, completions and the manual.

use std::io::Read;
use std::process::Stdio;

use crate::support::{call, outpour, snapshot};

const COMMANDS: [&[&str]; 31] = [
    &[],
    &["cast"],
    &["plan"],
    &["plan", "multicast"],
    &["plan", "replicate"],
    &["plan", "shuffle"],
    &["sim"],
    &["sim", "cast"],
    &["sim", "replicate"],
    &["sim", "shuffle"],
    &["sim", "fluid"],
    &["sim", "flows"],
    &["sim", "push"],
    &["sim", "fuzz"],
    &["probe"],
    &["hash"],
    &["verify"],
    &["protocols"],
    &["agent"],
    &["demo"],
    &["emulate"],
    &["exec"],
    &["tell"],
    &["trust"],
    &["trust", "init"],
    &["trust", "issue"],
    &["trust", "operator"],
    &["trust", "renew"],
    &["trust", "list"],
    &["trust", "revoke"],
    &["trust", "signer"],
];

#[test]
fn every_command_has_help_on_standard_output() {
    for command in COMMANDS {
        let ran = call(command.iter().copied().chain(["--help"])).expect(0);
        assert_eq!(ran.err, "");
        let name = [&["outpour"], command].concat().join("-");
        snapshot(&format!("{name}.txt"), &ran.out);
        assert!(
            ran.out.lines().all(|line| line.chars().count() <= 100),
            "{name}"
        );
        let short = call(command.iter().copied().chain(["-h"])).expect(0);
        assert!(short.out.len() <= ran.out.len());
    }
}

#[test]
fn nothing_typed_is_a_question_for_help() {
    let ran = call([] as [&str; 0]).expect(2);
    assert_eq!(ran.out, "");
    assert!(ran.err.contains("Usage: outpour"));
}

#[test]
fn the_version_is_one_line() {
    let version = format!("outpour {}\n", env!("CARGO_PKG_VERSION"));
    assert_eq!(call(["--version"]).expect(0).out, version);
}

#[test]
fn completions_exist_for_the_usual_shells() {
    for (shell, sign) in [
        ("bash", "_outpour()"),
        ("zsh", "#compdef outpour"),
        ("fish", "complete"),
    ] {
        assert!(call(["completions", shell]).expect(0).out.contains(sign));
    }
    call(["completions", "cmd.exe"]).expect(2);
}

#[test]
fn the_manual_has_a_page_per_command() {
    let dir = tempfile::tempdir().unwrap();
    call(["man", "--output", dir.path().to_str().unwrap()]).expect(0);
    for command in COMMANDS {
        let name = [&["outpour"], command].concat().join("-");
        let page = std::fs::read_to_string(dir.path().join(format!("{name}.1"))).unwrap();
        assert!(page.contains(&format!(".TH {name}")), "{name}");
    }
    assert!(call(["man"]).expect(0).out.contains(".TH outpour-verify"));
    let file = dir.path().join("file");
    std::fs::write(&file, "").unwrap();
    let ran = call(["man", "--output", file.join("x").to_str().unwrap()]).expect(1);
    assert!(ran.err.contains("cannot write"), "{ran:?}");
}

#[test]
fn a_reader_that_stops_reading_is_no_failure() {
    let mut child = outpour()
        .arg("man")
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut first = [0; 10];
    child
        .stdout
        .as_mut()
        .unwrap()
        .read_exact(&mut first)
        .unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(0));
    assert_eq!(String::from_utf8_lossy(&output.stderr), "");
}
