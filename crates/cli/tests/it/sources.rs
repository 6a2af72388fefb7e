//! Casts of what other hosts have, and from several sources, over real `sshd` and services.

use std::path::Path;
use std::process::Command;

use crate::service::{Service, trust};
use crate::sshd::{Sshd, host};
use crate::support::{outpour, run, same, skipped, tree};

fn at(host: &str, path: &Path) -> String {
    format!("{host}:{}", path.display())
}

/// A copy of a tree with all that a manifest says of it.
fn copy(tree: &Path, to: &Path) {
    let mut command = Command::new("cp");
    command.arg("-a").args([tree, to]);
    assert!(command.status().unwrap().success());
}

#[test]
fn what_a_host_has_reaches_others_over_ssh() {
    let Some(sshd) = Sshd::start() else { return };
    let dir = tempfile::tempdir().unwrap();
    let source = tree(dir.path());
    let copies = ["one", "two"].map(|name| dir.path().join(name));
    let destinations = (2..)
        .zip(&copies)
        .map(|(n, copy)| at(&format!("node0{n}"), copy));
    let mut command = sshd.cast();
    command.arg(at("node01", &source)).args(destinations);
    let report = run(command.arg("--json")).expect(0).json();
    for copy in &copies {
        same(&source, copy);
    }
    assert_eq!(report["hosts"].as_array().unwrap().len(), 2);
    assert_eq!(host(&report, "node02")["verified"], true);
    assert!(sshd.agents().is_empty(), "{:?}", sshd.agents());
}

#[test]
fn a_dry_run_fails_where_the_cast_would_fail() {
    let Some(sshd) = Sshd::start() else { return };
    let dir = tempfile::tempdir().unwrap();
    let source = tree(dir.path());
    let (fine, file) = (dir.path().join("fine"), dir.path().join("file"));
    std::fs::write(&file, "").unwrap();
    let expected = format!("{}: a file where a directory belongs", file.display());
    for quiet in [false, true] {
        let mut command = sshd.cast();
        command.arg(&source).arg("--dry-run");
        command.args([at("node02", &fine), at("node03", &file.join("x"))]);
        let ran = run(command.args(quiet.then_some("--quiet"))).expect(1);
        let said = if quiet { &ran.err } else { &ran.out };
        let line = said.lines().find(|line| line.contains("node03"));
        assert!(
            line.is_some_and(|line| line.ends_with(&expected)),
            "{ran:?}"
        );
        assert!(!fine.exists());
    }
}

/// Nothing calls the command, and it calls nothing but `sshd` and writes less than the object.
#[test]
fn nothing_of_an_object_elsewhere_passes_through_the_commands_host() {
    const BYTES: u64 = 8 << 20;
    let Some(sshd) = Sshd::start() else { return };
    let dir = tempfile::tempdir().unwrap();
    let calls = dir.path().join("calls");
    let mut probe = Command::new("strace");
    probe.args(["-qqq", "-o", "/dev/null", "true"]);
    if !probe.status().is_ok_and(|status| status.success()) {
        skipped("strace does not work here; what passes through a host is not tested");
        return;
    }
    let object = dir.path().join("object");
    let noise: Vec<u8> = (0..BYTES / 8).flat_map(|n| (n * n).to_le_bytes()).collect();
    std::fs::write(&object, noise).unwrap();
    let to = |name: &str| at("node02", &dir.path().join(name));
    // Now the hosts have the program.
    run(sshd.cast().arg(at("node01", &object)).arg(to("first"))).expect(0);

    let plain = sshd.cast();
    let mut traced = Command::new("sh");
    traced.args([
        "-c",
        r#""$@" && cat /proc/$$/io"#,
        "sh",
        "strace",
        "-f",
        "-qqq",
    ]);
    traced
        .args(["-e", "trace=accept,accept4,connect", "-o"])
        .arg(&calls);
    traced.arg(plain.get_program()).args(plain.get_args());
    for (name, value) in plain.get_envs() {
        traced.env(name, value.unwrap_or_default());
    }
    traced
        .arg(at("node01", &object))
        .arg(to("second"))
        .arg("-q");
    let ran = run(&mut traced).expect(0);
    same(&object, &dir.path().join("second"));

    let calls = std::fs::read_to_string(calls).unwrap();
    let ours = format!("htons({})", sshd.port());
    assert!(calls.contains(&ours), "{calls}");
    for call in calls.lines().filter(|line| !line.contains("AF_UNIX")) {
        assert!(call.contains(&ours) || !call.contains("AF_INET"), "{call}");
    }
    let written = ran
        .out
        .lines()
        .find_map(|line| line.strip_prefix("wchar: "));
    let written: u64 = written.unwrap().trim().parse().unwrap();
    assert!(
        written > 0 && written < BYTES / 4,
        "{written} bytes were written"
    );
}

#[test]
fn hosts_with_the_same_help_and_one_with_another_version_is_named() {
    let Some(sshd) = Sshd::start() else { return };
    let dir = tempfile::tempdir().unwrap();
    let source = tree(dir.path());
    let [good, other, to] = ["good", "other", "copy"].map(|name| dir.path().join(name));
    copy(&source, &good);
    copy(&source, &other);
    std::fs::write(other.join("new"), b"since then").unwrap();
    let mut command = sshd.cast();
    command.arg(&source).arg(at("node03", &to));
    command.args([
        "--from",
        &at("node01", &good),
        "--from",
        &at("node02", &other),
    ]);
    // Not over before the others are read.
    command.args(["--limit", "1 MB/s"]);
    let ran = run(command.arg("--json")).expect(0);
    same(&source, &to);
    let notices = ran.json()["notices"].to_string();
    let expected = "node02: has another version of the object and is left out";
    assert_eq!(notices, format!("[\"{expected}\"]"));
    assert!(ran.err.contains(expected), "{}", ran.err);
}

#[test]
fn services_serve_what_lies_beneath_their_roots() {
    let dir = tempfile::tempdir().unwrap();
    let (trust, identity) = trust(dir.path(), "ours");
    let roots = ["a", "b"].map(|name| dir.path().join(name));
    let agents = roots.each_ref().map(|root| Service::start(&identity, root));
    let source = tree(dir.path());
    copy(&source, &roots[0].join("model"));
    let on = |agent: usize, path: &Path| at(&format!("127.0.0.1:{}", agents[agent].port), path);
    let cast = |from: String| {
        let mut command = outpour();
        command.args(["cast", &from, &on(1, &roots[1].join("model"))]);
        run(command.args(["--agents", "--trust"]).arg(&trust))
    };
    cast(on(0, &roots[0].join("model"))).expect(0);
    same(&source, &roots[1].join("model"));
    let ran = cast(on(0, &source)).expect(1);
    assert!(
        ran.err.contains("reads and writes only beneath"),
        "{}",
        ran.err
    );
}

#[test]
fn several_sources_go_into_one_directory() {
    let Some(sshd) = Sshd::start() else { return };
    let dir = tempfile::tempdir().unwrap();
    let logs = tree(dir.path());
    let files = ["a.bin", "b.bin"].map(|name| {
        let path = dir.path().join(name);
        std::fs::write(&path, name.repeat(100_000)).unwrap();
        path
    });
    let to = dir.path().join("in");
    std::fs::create_dir(&to).unwrap();
    std::fs::write(to.join("mine"), "stays").unwrap();
    let mut command = sshd.cast();
    command.args(&files).arg(&logs).arg(at("node01", &to));
    run(command.arg("--json")).expect(0);
    for (file, name) in files.iter().zip(["a.bin", "b.bin"]) {
        assert_eq!(
            std::fs::read(file).unwrap(),
            std::fs::read(to.join(name)).unwrap()
        );
    }
    same(&logs, &to.join(logs.file_name().unwrap()));
    assert_eq!(std::fs::read(to.join("mine")).unwrap(), b"stays");
    // Two of one name would be one file.
    let mut command = sshd.cast();
    command
        .arg(&files[0])
        .arg(to.join("a.bin"))
        .arg(at("node01", &to));
    let ran = run(&mut command).expect(1);
    assert!(
        ran.err
            .contains("in/a.bin: another source has the same name, `a.bin`"),
        "{}",
        ran.err
    );
}

#[test]
fn a_dry_run_says_what_hosts_lack_and_changes_nothing() {
    let Some(sshd) = Sshd::start() else { return };
    let dir = tempfile::tempdir().unwrap();
    let source = tree(dir.path());
    let [has, lacks] = ["has", "lacks"].map(|name| dir.path().join(name));
    copy(&source, &has);
    for from in [source.display().to_string(), at("node01", &source)] {
        let mut command = sshd.cast();
        command
            .arg(&from)
            .args([at("node02", &has), at("node03", &lacks)]);
        command.args(["--dry-run", "--limit", "1 MB/s", "--json"]);
        let report = run(&mut command).expect(0).json();
        let size = report["size_bytes"].as_u64().unwrap();
        assert_eq!(host(&report, "node02")["lacks_bytes"], 0);
        assert_eq!(host(&report, "node03")["lacks_bytes"], size);
        let limit = report["limit_s"].as_f64().unwrap();
        assert!((limit - size as f64 / 1e6).abs() < 0.01 * limit, "{report}");
        assert_eq!(report["sources"].as_array().unwrap().len(), 1);
        assert!(!lacks.exists() && !has.join(".outpour").exists());
    }
    let mut command = sshd.cast();
    command
        .arg(&source)
        .args([at("node02", &has), "--dry-run".to_owned()]);
    let ran = run(&mut command).expect(0);
    assert!(ran.out.contains("the source  3."), "{}", ran.out);
    assert!(
        ran.out.contains("direct: one receiver needs no relay"),
        "{}",
        ran.out
    );
    assert!(sshd.agents().is_empty(), "{:?}", sshd.agents());
}
