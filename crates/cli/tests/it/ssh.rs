//! Reaching hosts through a real `sshd`: the program is put there, checked, run, and ended.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use crate::sshd::{Sshd, error, host};
use crate::support::{call, run, same, tree};

/// The one file in the cache of the agents' program.
#[track_caller]
fn cached(sshd: &Sshd) -> PathBuf {
    let files: Vec<_> = fs::read_dir(sshd.cache())
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    assert_eq!(files.len(), 1, "{files:?}");
    files.into_iter().next().unwrap()
}

fn destination(name: &str, path: &Path) -> String {
    format!("{name}:{}", path.display())
}

#[test]
fn a_tree_reaches_three_hosts_and_nothing_is_left_running() {
    let Some(sshd) = Sshd::start() else { return };
    let dir = tempfile::tempdir().unwrap();
    let source = tree(dir.path());
    let copies = ["one", "two", "a path; with $(odd) 'signs'"].map(|name| dir.path().join(name));
    let destinations = (1..)
        .zip(&copies)
        .map(|(n, copy)| destination(&format!("node0{n}"), copy));
    let ran = run(sshd.cast().arg(&source).args(destinations).arg("--json")).expect(0);
    let report = ran.json();
    for copy in &copies {
        same(&source, copy);
    }
    assert!(["direct", "chain", "swarm"].contains(&report["protocol"].as_str().unwrap()));
    assert!(report["size_bytes"].as_u64().unwrap() > 3_000_000);
    assert!(report["finish_s"].as_f64().unwrap() > 0.0);
    for name in ["node01", "node02", "node03"] {
        let host = host(&report, name);
        assert_eq!(
            (&host["state"], &host["verified"]),
            (&"verified".into(), &true.into())
        );
        assert!(host["finish_s"].as_f64().unwrap() > 0.0 && host["error"].is_null());
    }
    assert!(sshd.agents().is_empty(), "{:?}", sshd.agents());
}

#[test]
fn the_program_is_copied_once_verified_and_replaced_when_damaged() {
    let Some(sshd) = Sshd::start() else { return };
    let dir = tempfile::tempdir().unwrap();
    let source = tree(dir.path());
    let cast = |name: &str| {
        let copy = dir.path().join(name);
        run(sshd.cast().arg(&source).arg(destination("node1", &copy))).expect(0);
        same(&source, &copy);
    };
    cast("first");
    let program = cached(&sshd);
    let ours = fs::read(env!("CARGO_BIN_EXE_outpour")).unwrap();
    assert!(
        fs::read(&program).unwrap() == ours,
        "the copy differs from the program"
    );
    assert_eq!(fs::metadata(&program).unwrap().mode() & 0o777, 0o700);
    let inode = fs::metadata(&program).unwrap().ino();

    cast("second");
    assert_eq!(
        fs::metadata(cached(&sshd)).unwrap().ino(),
        inode,
        "copied again"
    );

    fs::write(&program, b"#!/bin/sh\necho damaged\n").unwrap();
    cast("third");
    assert!(
        fs::read(cached(&sshd)).unwrap() == ours,
        "the damaged copy was not replaced"
    );
}

#[test]
fn parents_are_made_as_the_users_umask_says() {
    let Some(sshd) = Sshd::start() else { return };
    let dir = tempfile::tempdir().unwrap();
    let (file, tree) = (dir.path().join("file"), tree(dir.path()));
    fs::write(&file, "something").unwrap();
    let mode = |path: &Path| fs::metadata(path).unwrap().mode() & 0o7777;
    for (mask, expected) in [("022", 0o755), ("027", 0o750), ("002", 0o775)] {
        sshd.login_prints(&format!("umask {mask}"));
        let outer = dir.path().join(mask);
        for (source, copy) in [(&file, "a/b/copy"), (&tree, "c/d/copy")] {
            let copy = outer.join(copy);
            run(sshd.cast().arg(source).arg(destination("node1", &copy))).expect(0);
            // What the object brings along is as it was at the source.
            assert_eq!(mode(&copy), mode(source), "{}", copy.display());
        }
        for parent in ["", "a", "a/b", "c", "c/d"] {
            let parent = outer.join(parent);
            assert_eq!(mode(&parent), expected, "{}", parent.display());
        }
        // The program is the user's alone whatever the mask.
        assert_eq!(mode(&cached(&sshd)), 0o700);
        assert_eq!(mode(&sshd.cache()), 0o700);
    }
}

#[test]
fn what_login_files_print_does_not_matter() {
    let Some(sshd) = Sshd::start() else { return };
    sshd.login_prints("echo Welcome to node1; echo outpour-0 HAVE; printf no-newline");
    let dir = tempfile::tempdir().unwrap();
    let (source, copy) = (tree(dir.path()), dir.path().join("copy"));
    run(sshd.cast().arg(&source).arg(destination("node1", &copy))).expect(0);
    same(&source, &copy);
}

#[test]
fn a_host_that_cannot_be_reached_is_one_line_and_the_others_are_served() {
    let Some(sshd) = Sshd::start() else { return };
    let dir = tempfile::tempdir().unwrap();
    let (source, copy) = (tree(dir.path()), dir.path().join("copy"));
    let ran = run(sshd
        .cast()
        .arg(&source)
        .arg(destination("node1", &copy))
        // Nothing listens on the port of the discard service.
        .arg("127.0.0.1:9:/tmp/nowhere")
        .arg("no-such-host.invalid:/tmp/nowhere"))
    .expect(1);
    same(&source, &copy);
    let lines = [
        "outpour: 127.0.0.1:9: ssh: connection refused (port 9); is sshd running there?",
        "outpour: no-such-host.invalid: ssh: unknown host; check its name, or add it to \
         ~/.ssh/config",
    ];
    for line in lines {
        assert_eq!(
            ran.err.lines().filter(|one| *one == line).count(),
            1,
            "{ran:?}"
        );
    }
    assert!(
        ran.out
            .ends_with("\nnot done: 1 of 3 hosts have verified 3.08 MB\n"),
        "{ran:?}"
    );
    assert!(!ran.out.contains("done: all"));
}

#[test]
fn logins_that_are_refused_say_what_to_do() {
    let Some(sshd) = Sshd::start() else { return };
    let dir = tempfile::tempdir().unwrap();
    let source = tree(dir.path());
    let target = destination("node1", &dir.path().join("copy"));
    let cast = |option: &str| {
        let mut command = sshd.cast();
        command
            .arg(&source)
            .arg(&target)
            .args(["--json", "--quiet"]);
        if !option.is_empty() {
            command.args(["--ssh-option", option]);
        }
        run(&mut command).expect(1)
    };
    let key = format!("IdentityFile={}", sshd.strangers_key().display());
    // The configured key comes after the one of the option, so it has to be turned off as well.
    let mut command = sshd.cast();
    command
        .args(["-o", &key, "-o", "PubkeyAuthentication=no"])
        .arg(&source)
        .arg(&target);
    let ran = run(command.args(["--json", "--quiet"])).expect(1);
    assert_eq!(
        error(&ran),
        "ssh: permission denied; outpour cannot type a password: load a key with `ssh-add`, or \
         set IdentityFile in ~/.ssh/config"
    );
    assert_eq!(ran.err, format!("outpour: node1: {}\n", error(&ran)));
    assert!(error(&cast("Nonsense=1")).ends_with("check the options for ssh and ~/.ssh/config"));
    sshd.forget_host_key();
    assert_eq!(
        error(&cast("")),
        "ssh: host key verification failed; log in once with `ssh` to accept its key"
    );
}

#[test]
fn a_host_that_cannot_take_the_program_says_why() {
    let Some(sshd) = Sshd::start() else { return };
    let dir = tempfile::tempdir().unwrap();
    let source = tree(dir.path());
    let target = destination("node1", &dir.path().join("copy"));
    let cast = || {
        run(sshd
            .cast()
            .arg(&source)
            .arg(&target)
            .args(["--json", "--quiet"]))
        .expect(1)
    };
    fs::write(sshd.cache(), "in the way").unwrap();
    let line = error(&cast());
    assert!(
        line.starts_with(&format!("cannot write {}", sshd.cache().display())),
        "{line}"
    );
    sshd.login_prints("echo This account is closed; exit 1");
    assert_eq!(
        error(&cast()),
        "ssh: the login shell did not start outpour; it said: This account is closed"
    );
}

#[test]
fn a_cache_that_others_can_write_is_refused() {
    let Some(sshd) = Sshd::start() else { return };
    let dir = tempfile::tempdir().unwrap();
    let source = tree(dir.path());
    let cast = |code| {
        let target = destination("node1", &dir.path().join("copy"));
        run(sshd
            .cast()
            .arg(&source)
            .arg(target)
            .args(["--json", "--quiet"]))
        .expect(code)
    };
    fs::create_dir_all(sshd.cache()).unwrap();
    let cache = sshd.cache();
    let above = cache.parent().unwrap();
    let set =
        |dir: &Path, mode| fs::set_permissions(dir, fs::Permissions::from_mode(mode)).unwrap();
    let before = fs::metadata(above).unwrap().mode() & 0o7777;
    for (dir, mode) in [
        (cache.as_path(), 0o770),
        (cache.as_path(), 0o702),
        (above, 0o777),
    ] {
        set(&cache, 0o700);
        set(above, before);
        set(dir, mode);
        let line = error(&cast(1));
        let refused = line.starts_with(&format!("others can write {}", cache.display()));
        assert!(refused, "{mode:o}: {line}");
        assert_eq!(fs::read_dir(&cache).unwrap().count(), 0, "{mode:o}");
    }
    // Where others can write but not replace what is there, as in /tmp, it is as good as any.
    set(above, 0o1777);
    cast(0);
    set(above, before);
}

#[test]
fn a_missing_ssh_is_said() {
    let dir = tempfile::tempdir().unwrap();
    let source = tree(dir.path());
    let ran = call([
        "cast",
        source.to_str().unwrap(),
        "node1:/x",
        "--ssh",
        "/nonexistent/ssh",
        "--json",
        "--quiet",
    ])
    .expect(1);
    assert_eq!(
        error(&ran),
        "/nonexistent/ssh: not found; install the OpenSSH client, or name the program that is `ssh`"
    );
}

#[test]
fn a_port_in_the_destination_is_the_port_of_the_server() {
    let Some(sshd) = Sshd::start() else { return };
    let dir = tempfile::tempdir().unwrap();
    let (source, copy) = (tree(dir.path()), dir.path().join("copy"));
    let target = format!("nodeX:{}:{}", sshd.port(), copy.display());
    run(sshd.cast().args(["-o", "Port=9"]).arg(&source).arg(target)).expect(0);
    same(&source, &copy);
}
