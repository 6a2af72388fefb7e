//! What is typed wrongly: one line each, exit code 2, and nothing done.

use crate::support::{call, outpour, run};

/// Runs the program, which must refuse with exit code 2 and one line, and returns the line.
#[track_caller]
fn refused(arguments: &[&str]) -> String {
    let ran = call(arguments).expect(2);
    assert_eq!(ran.out, "", "{ran:?}");
    let line = ran.err.strip_suffix('\n').unwrap();
    assert!(!line.contains('\n'), "{ran:?}");
    line.strip_prefix("outpour: ")
        .unwrap_or_else(|| panic!("{ran:?}"))
        .to_owned()
}

#[test]
fn each_misuse_of_cast_has_its_line() {
    let source = env!("CARGO_MANIFEST_DIR");
    let lines = [
        (
            vec!["cast"],
            "the following required arguments were not provided: <SOURCE>; try --help",
        ),
        (
            vec!["cast", source],
            "no destination: name one as [user@]host:/path, or use --hosts FILE:/path",
        ),
        (
            vec!["cast", "a:/x", "a:/y"],
            "`a` can be only one of source, relay and destination",
        ),
        (
            vec![
                "cast",
                source,
                "a:/x",
                "--from",
                "n[1-2]:/x",
                "--from",
                "a:/y",
            ],
            "`a` can be only one of source, relay and destination",
        ),
        (
            vec!["cast", source, "a:/x", "--from", "b"],
            "source `b`: expected [user@]host:/path, with an absolute path",
        ),
        (
            vec!["cast", source, "a:/x", "--limit", "200"],
            "invalid value '200' for '--limit <RATE>': rate `200` has no unit: write e.g. \
             `200 Mbit/s` or `200 MB/s`; try --help",
        ),
        (
            vec!["cast", source, "a:/x", "--limit", "0 B/s"],
            "invalid value '0 B/s' for '--limit <RATE>': at this rate nothing would ever arrive; \
             try --help",
        ),
        (
            vec!["cast", source, "a:/x", "--protocol", "fountain"],
            "invalid value 'fountain' for '--protocol <NAME>' [possible values: auto, direct, \
             chain, swarm, robber, adaptive, central, coded-gossip, tree, optimal]; try --help",
        ),
        (
            vec!["cast", source, "a:/x", "--block", "3 MB"],
            "invalid value '3 MB' for '--block <SIZE>': expected a power of two from 1 KiB to 16 \
             MiB; try --help",
        ),
        (
            vec!["cast", source, "a:/x", "--priority", "urgent"],
            "invalid value 'urgent' for '--priority <NAME>' [possible values: low, normal, high]; \
             try --help",
        ),
        (
            vec!["cast", source, "a:/x", "--connections", "6"],
            "invalid value '6' for '--connections <N>': 6 is not in 1..=5; try --help",
        ),
        (
            vec!["cast", source, "a"],
            "destination `a`: expected [user@]host:/path, with an absolute path",
        ),
        (
            vec!["cast", source, "n[1-3]:/x", "n2:/x/"],
            "`n2:/x/` is named twice",
        ),
        (
            vec![
                "cast", "n1:/x", "a:/y", "--from", "n2:/x", "--from", "n2:/x/",
            ],
            "`n2:/x/` is named twice",
        ),
        (
            vec!["cast", source, "n[1-3]:/x", "n2:/x/y"],
            "destination `n2:/x/y` is inside destination `n2:/x`",
        ),
        (
            vec!["cast", source, "a:/x", "--patience", "0s"],
            "invalid value '0s' for '--patience <TIME>': within no time every host would be given \
             up; try --help",
        ),
        (
            vec!["cast", source, "a:/x", "--relay", "b:/y", "-p", "robber"],
            "protocol `robber` takes no relays, because it sends every block to every node; these \
             take relays: `direct`, `chain`, `swarm`, `push`, `central`",
        ),
        (
            vec!["cast", source, "a;reboot:/x"],
            "destination `a;reboot:/x`: `a;reboot` has `;` in it; names are made of letters, \
             digits, `.`, `-` and `_`",
        ),
        (
            vec!["cast", source, "--", "-oProxyCommand=id:/x"],
            "destination `-oProxyCommand=id:/x`: `-oProxyCommand=id` cannot begin with `-`",
        ),
        (
            vec!["cast", source, "n[0-99999]:/x"],
            "destination `n[0-99999]:/x`: more than 10000 hosts",
        ),
        (
            vec!["cast", source, "n1:/srv/{name}/x"],
            "destination `n1:/srv/{name}/x`: `{name}` is not known; known is `{host}`, and \
             `{{name}}` means the text `{name}`",
        ),
        (
            vec!["cast", source, "--hosts", "hosts.txt"],
            "--hosts `hosts.txt`: expected FILE:/PATH, a hosts file and where the object is to be",
        ),
        (
            vec!["cast", source, "--hosts", "/nonexistent/hosts:/x"],
            "/nonexistent/hosts: cannot read the hosts file: No such file or directory (os error 2)",
        ),
        (
            vec!["cast", source, "a:/x", "--agents", "--ssh-option", "Port=1"],
            "the argument '--agents' cannot be used with '--ssh-option <OPTION>'; try --help",
        ),
        (
            vec!["frobnicate"],
            "unrecognized subcommand 'frobnicate'; try --help",
        ),
    ];
    for (arguments, line) in lines {
        assert_eq!(refused(&arguments), line, "{arguments:?}");
    }
}

#[test]
fn options_of_another_protocol_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let network = dir.path().join("net.toml");
    std::fs::write(&network, "cluster = [{ name = \"a\", nodes = 2 }]").unwrap();
    let network = network.to_str().unwrap();
    let cast = ["cast", env!("CARGO_MANIFEST_DIR"), "b:/x"].as_slice();
    let sim = ["sim", "cast", "--network", network, "--root", "a0"];
    let sim = [&sim[..], &["--size", "1MB"]].concat();
    for (options, line) in [
        (
            ["-p", "chain", "--batch-blocks", "20"],
            "protocol `chain` does not code: --batch-blocks has no effect on it",
        ),
        (
            ["-p", "swarm", "--encoders", "2"],
            "protocol `swarm` does not code: --encoders has no effect on it",
        ),
        (
            ["-p", "chain", "--schedule", "stream"],
            "--schedule is an option of protocol `coded-gossip`, not of `chain`",
        ),
        (
            ["-p", "random-block", "--slack", "2"],
            "--slack is an option of protocol `coded-gossip`, not of `random-block`",
        ),
        (
            ["-p", "coded-gossip", "--map-every", "2"],
            "--map-every is an option of protocol `random-block`, not of `coded-gossip`",
        ),
    ] {
        for command in [cast, &sim] {
            assert_eq!(refused(&[command, &options].concat()), line);
        }
    }
    let roots = [&sim[..], &["--root", "a1"]].concat();
    assert_eq!(
        refused(&roots),
        "--root: no node is left that is to get the object"
    );
    assert_eq!(
        refused(&["sim", "fuzz", "--seeds", "0"]),
        "invalid value '0' for '--seeds <N>': expected at least 1; try --help"
    );
}

#[test]
fn a_hosts_file_is_wrong_at_a_line() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("hosts.txt");
    let argument = format!("{}:/srv/x", file.display());
    for (text, line) in [
        (
            "node1\nnode2 cluser=a\n",
            "2: `cluser=a` is not known; expected `cluster=NAME` or `node=NAME` after the host",
        ),
        (
            "# all\n\nnode1:/x\n",
            "3: a path does not belong here; it is the same for all hosts of a file: --hosts \
             FILE:/PATH",
        ),
        ("node[1-\n", "1: a bracket is not closed"),
        ("-v\n", "1: `-v` cannot begin with `-`"),
    ] {
        std::fs::write(&file, text).unwrap();
        let refused = refused(&["cast", env!("CARGO_MANIFEST_DIR"), "--hosts", &argument]);
        assert_eq!(refused, format!("{}:{line}", file.display()));
    }
}

#[test]
fn a_missing_source_is_said_before_anybody_is_called() {
    let ran = call([
        "cast",
        "/nonexistent/model",
        "a:/x",
        "--ssh",
        "/nonexistent/ssh",
    ])
    .expect(1);
    assert_eq!(ran.out, "");
    assert_eq!(
        ran.err,
        "outpour: /nonexistent/model: cannot read the source: No such file or directory (os error \
         2)\n"
    );
    let ran = call(["cast", "/nonexistent/model", "a:/x", "--json"]).expect(1);
    let error = ran.json()["error"].as_str().unwrap().to_owned();
    assert_eq!(ran.err, format!("outpour: {error}\n"));
}

#[test]
fn an_agent_without_a_command_to_serve_fails_in_one_line() {
    refused(&["agent"]);
    refused(&["agent", "--stdio", "--root", "relative"]);
    let ran = run(outpour().args(["agent", "--stdio"])).expect(1);
    assert_eq!(ran.err.lines().count(), 1, "{ran:?}");
    assert!(ran.err.starts_with("outpour: "));
}

#[test]
fn who_lacks_an_identity_is_told_what_makes_one() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
    let (trust, out) = (at("trust"), at("out.pem"));
    let source = env!("CARGO_MANIFEST_DIR");
    let ran = call(["cast", source, "a:/x", "--agents", "--trust", &trust]).expect(1);
    let made = "no such file; `outpour trust init` makes it\n";
    assert_eq!(ran.err, format!("outpour: {trust}/operator.pem: {made}"));
    let ran = call(["trust", "issue", "a", "--output", &out, "--trust", &trust]).expect(1);
    assert_eq!(ran.err, format!("outpour: {trust}/operator-ca.pem: {made}"));
    std::fs::write(&out, "nothing of use\n").unwrap();
    let ran = call(["agent", "--identity", &out, "--root", source]).expect(1);
    assert_eq!(
        ran.err,
        format!(
            "outpour: cannot use the identity: {out} is not usable: it holds no private key; see \
             `outpour trust issue`\n"
        )
    );
    assert_eq!(
        call(["probe"]).expect(2).err,
        "outpour: no host: name them as [user@]host, or use --hosts FILE\n"
    );
}

#[test]
fn names_from_outside_cannot_write_to_the_terminal() {
    let ran = call(["cast", env!("CARGO_MANIFEST_DIR"), "a\u{1b}[2J\n:/x"]).expect(2);
    assert!(!ran.err.contains('\u{1b}'), "{ran:?}");
    assert_eq!(ran.err.lines().count(), 1);
    let ran = call(["cast", "/nonexistent/\u{1b}[2J", "a:/x"]).expect(1);
    assert!(!ran.err.contains('\u{1b}'), "{ran:?}");
}

/// Runs the program with its output on a file that takes none, and returns its code and what it said.
fn on_a_full_disk(arguments: &[&str]) -> (Option<i32>, String) {
    let full = std::fs::File::create("/dev/full").unwrap();
    let ran = outpour()
        .args(arguments)
        .stdout(full)
        .stderr(std::process::Stdio::piped())
        .output()
        .unwrap();
    (ran.status.code(), String::from_utf8(ran.stderr).unwrap())
}

#[test]
fn a_result_that_cannot_be_written_is_a_failure() {
    let said = "outpour: cannot write the result: No space left on device (os error 28)\n";
    for arguments in [
        &["protocols"][..],
        &["protocols", "--json"],
        &["--help"],
        &["sim", "flows", "--example"],
    ] {
        let (code, err) = on_a_full_disk(arguments);
        assert_eq!((code, err.as_str()), (Some(1), said), "{arguments:?}");
    }
}

#[test]
fn room_that_cannot_be_left_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &str| {
        let path = dir.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let source = file("source", "some bytes");
    let cluster = |name: &str| format!("[[cluster]]\nname = \"{name}\"\nnodes = 2\n");
    let network = file("net.toml", &(cluster("a") + &cluster("b")));
    let wrong = file("traffic", "a b 1 MB/s\na c 1 MB/s\n");
    let cast = |more: &[&str]| {
        let mut all = vec!["cast", source.as_str(), "b0:/x"];
        all.extend(more);
        let ran = call(&all);
        (ran.code, ran.err.trim_end().to_owned())
    };
    let in_network = ["--network", network.as_str(), "--root", "a0"];
    let with = |more: &[&str]| cast(&[&in_network, more].concat());
    for (found, code, says) in [
        (
            cast(&["--threshold", "80"]),
            1,
            "outpour: protocol `central` plans on a network: describe it, and name it with --network",
        ),
        (
            with(&["--threshold", "101"]),
            2,
            "outpour: invalid value '101' for '--threshold <PERCENT>': a threshold of 101 % is not \
             from 0 to 100 %; try --help",
        ),
        (
            with(&["--threshold", "most"]),
            2,
            "outpour: invalid value 'most' for '--threshold <PERCENT>': expected a number from 0 to \
             100; try --help",
        ),
        (
            with(&["--peak", "--protocol", "swarm"]),
            2,
            "outpour: protocol `swarm` leaves no room for other traffic: with --threshold or --peak \
             name `central`, or no protocol",
        ),
        (
            with(&["--traffic", &wrong]),
            2,
            "outpour: --traffic says what room to leave, and needs a rule: --threshold or --peak",
        ),
        (
            with(&["--peak", "--traffic", &wrong]),
            1,
            &format!("outpour: {wrong}:2: the network has no cluster `c`"),
        ),
        (
            with(&["--peak", "--traffic", "/nonexistent/traffic"]),
            1,
            "outpour: /nonexistent/traffic: cannot read the traffic: No such file or directory (os \
             error 2)",
        ),
    ] {
        assert_eq!(found, (Some(code), says.to_owned()));
    }
}
