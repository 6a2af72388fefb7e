//! Agents that run as a service, and who may command them.

use std::collections::VecDeque;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::sync::mpsc;
use std::time::Duration;

use socket2::{Domain, Socket, Type};

use crate::service::{Service, issue, trust};
use crate::sshd::host;
use crate::support::{call, outpour, run, same, tree};

fn cast(source: &Path, trust: &Path, destination: &str) -> crate::support::Ran {
    let words = ["--agents", "--json", "--quiet", "--trust"];
    run(outpour()
        .arg("cast")
        .arg(source)
        .arg(destination)
        .args(words)
        .arg(trust))
}

/// A connection from one of this machine's own addresses.
fn call_from(from: [u8; 4], port: u16) -> TcpStream {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    socket.bind(&SocketAddr::from((from, 0)).into()).unwrap();
    let agent = SocketAddr::from(([127, 0, 0, 1], port));
    socket.connect(&agent.into()).unwrap();
    socket.into()
}

#[test]
fn running_agents_serve_their_operator_beneath_their_roots() {
    let dir = tempfile::tempdir().unwrap();
    let source = tree(dir.path());
    let (trust, identity) = trust(dir.path(), "ours");
    let roots = [1, 2].map(|n| dir.path().join(format!("root{n}")));
    let agents = [0, 1].map(|n| Service::start(&identity, &roots[n]));
    let destinations = [0, 1].map(|n| {
        format!(
            "127.0.0.1:{}:{}",
            agents[n].port,
            roots[n].join("model").display()
        )
    });
    let report = run(outpour()
        .arg("cast")
        .arg(&source)
        .args(&destinations)
        .args(["--agents", "--json", "--quiet", "--trust"])
        .arg(&trust))
    .expect(0)
    .json();
    assert!(
        report["hosts"]
            .as_array()
            .unwrap()
            .iter()
            .all(|host| host["verified"] == true)
    );
    roots
        .iter()
        .for_each(|root| same(&source, &root.join("model")));

    for outside in ["elsewhere", "root1/../elsewhere"] {
        let destination = format!(
            "127.0.0.1:{}:{}",
            agents[0].port,
            dir.path().join(outside).display()
        );
        let ran = cast(&source, &trust, &destination).expect(1);
        let name = format!("127.0.0.1:{}", agents[0].port);
        let error = host(&ran.json(), &name)["error"]
            .as_str()
            .unwrap()
            .to_owned();
        assert!(error.contains("only beneath"), "{error}");
    }
    assert!(!dir.path().join("elsewhere").exists());
    // An agent outlives its casts.
    let again = format!(
        "127.0.0.1:{}:{}",
        agents[1].port,
        roots[1].join("again").display()
    );
    cast(&source, &trust, &again).expect(0);
    agents.into_iter().for_each(|agent| drop(agent.stop()));
}

#[test]
fn strangers_are_refused_on_both_sides() {
    let dir = tempfile::tempdir().unwrap();
    let source = tree(dir.path());
    let (ours, identity) = trust(dir.path(), "ours");
    let (theirs, their_identity) = trust(dir.path(), "theirs");
    let root = dir.path().join("root");
    let agent = Service::start(&identity, &root);
    let destination = format!("127.0.0.1:{}:{}", agent.port, root.join("x").display());
    let error = |ran: crate::support::Ran| ran.json()["hosts"][0]["error"].to_string();

    let refused = error(cast(&source, &theirs, &destination).expect(1));
    assert!(refused.contains("did not prove"), "{refused}");

    // An agent of theirs does not get our object, whatever address it has.
    let false_agent = Service::start(&their_identity, &root);
    let false_destination = format!(
        "127.0.0.1:{}:{}",
        false_agent.port,
        root.join("x").display()
    );
    let refused = error(cast(&source, &ours, &false_destination).expect(1));
    assert!(refused.contains("did not prove"), "{refused}");

    // Neither does an agent of ours that is another host.
    let other_identity = dir.path().join("other.pem");
    issue(&ours, "node7.example", &other_identity);
    let other = Service::start(&other_identity, &root);
    let other_destination = format!("127.0.0.1:{}:{}", other.port, root.join("x").display());
    let refused = error(cast(&source, &ours, &other_destination).expect(1));
    assert!(refused.contains("did not prove"), "{refused}");
    assert!(!root.join("x").exists());

    // A peer that talks nonsense is cut off, and the agent goes on.
    for nonsense in [
        &b"GET / HTTP/1.1\r\n\r\n"[..],
        &[0; 5000],
        &[22, 3, 1, 255, 255],
    ] {
        let mut stream = TcpStream::connect(("127.0.0.1", agent.port)).unwrap();
        stream
            .set_read_timeout(Some(Duration::from_secs(20)))
            .unwrap();
        stream.write_all(nonsense).unwrap();
        let _ = stream.shutdown(std::net::Shutdown::Write);
        let mut answer = Vec::new();
        let _ = stream.take(10_000).read_to_end(&mut answer);
        assert!(answer.len() < 1000);
    }
    cast(&source, &ours, &destination).expect(0);
    same(&source, &root.join("x"));
    assert_eq!(agent.stop(), "");
}

#[test]
fn a_crowd_that_never_proves_itself_keeps_nobody_out() {
    let dir = tempfile::tempdir().unwrap();
    let source = tree(dir.path());
    let (ours, identity) = trust(dir.path(), "ours");
    let root = dir.path().join("root");
    let agent = Service::start(&identity, &root);
    let mut crowd: Vec<_> = (0..400)
        .map(|_| TcpStream::connect(("127.0.0.1", agent.port)).unwrap())
        .collect();
    let destination = format!("127.0.0.1:{}:{}", agent.port, root.join("x").display());
    cast(&source, &ours, &destination).expect(0);
    same(&source, &root.join("x"));
    // The first of the crowd were turned out to make room for the others.
    crowd[0]
        .set_read_timeout(Some(Duration::from_secs(20)))
        .unwrap();
    match crowd[0].read(&mut [0; 1]) {
        Ok(read) => assert_eq!(read, 0),
        Err(error) => assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset),
    }
    let open = std::fs::read_dir(format!("/proc/{}/fd", agent.id()))
        .unwrap()
        .count();
    assert!(open < 200, "{open} descriptors");
}

#[test]
fn a_stranger_that_calls_again_and_again_closes_only_its_own_calls() {
    let dir = tempfile::tempdir().unwrap();
    let source = tree(dir.path());
    let (ours, identity) = trust(dir.path(), "ours");
    let root = dir.path().join("root");
    let agent = Service::start(&identity, &root);
    let mut calls: VecDeque<TcpStream> = VecDeque::new();
    let mut flood = |count| {
        for _ in 0..count {
            calls.push_back(call_from([127, 0, 0, 2], agent.port));
            if calls.len() > 300 {
                calls.pop_front();
            }
        }
    };
    // Calls from elsewhere keep no operator out ...
    flood(1000);
    let destination = format!("127.0.0.1:{}:{}", agent.port, root.join("x").display());
    cast(&source, &ours, &destination).expect(0);
    same(&source, &root.join("x"));
    // ... and do not close the connection of one that takes its time.
    let slow = call_from([127, 0, 0, 3], agent.port);
    flood(600);
    // Connections are accepted in their order: this one is answered, so all others were.
    let mut last = call_from([127, 0, 0, 4], agent.port);
    last.write_all(b"no TLS").unwrap();
    let _ = last.read(&mut [0; 100]);
    slow.set_nonblocking(true).unwrap();
    let open = (&slow).read(&mut [0; 1]).map_err(|error| error.kind());
    assert_eq!(open, Err(std::io::ErrorKind::WouldBlock));
    drop(calls);
    let said = agent.stop();
    let lines: Vec<&str> = said.lines().collect();
    let told = "too many connections that do not prove themselves: closed ";
    assert!(
        !lines.is_empty() && lines.iter().all(|line| line.contains(told)),
        "{said}"
    );
    assert!(
        lines.iter().all(|line| line.contains("127.0.0.2")),
        "{said}"
    );
}

#[test]
fn an_agent_that_closes_every_call_is_called_again_and_then_reported() {
    let dir = tempfile::tempdir().unwrap();
    let source = tree(dir.path());
    let (ours, _) = trust(dir.path(), "ours");
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let calls = std::thread::spawn(move || {
        // The first bytes are read, so that the end is one and no reset, and the other way round.
        for read in [true, false, true, false] {
            let (mut stream, _) = listener.accept().unwrap();
            if read {
                let _ = stream.read(&mut [0; 4096]);
            }
        }
    });
    let ran = cast(&source, &ours, &format!("127.0.0.1:{port}:/x")).expect(1);
    calls.join().unwrap();
    let error = ran.json()["hosts"][0]["error"].to_string();
    assert!(error.contains("closed 4 connections before"), "{error}");
    assert!(error.contains("too many connections"), "{error}");
}

#[test]
fn what_is_missing_for_agents_is_one_line() {
    let dir = tempfile::tempdir().unwrap();
    let source = tree(dir.path());
    let (trust, identity) = trust(dir.path(), "ours");
    let nobody = cast(&source, &trust, "127.0.0.1:9:/x").expect(1);
    assert_eq!(
        nobody.json()["hosts"][0]["error"],
        "connection refused (127.0.0.1:9); is `outpour agent` running there?"
    );
    let user = cast(&source, &trust, "ops@127.0.0.1:9:/x").expect(2);
    assert_eq!(
        user.err,
        "outpour: ops@127.0.0.1:9: a user applies to ssh only; an agent runs as its own user\n"
    );
    for arguments in [
        vec![
            "cast",
            source.to_str().unwrap(),
            "a:/x",
            "--agents",
            "--trust",
            "/nonexistent",
        ],
        vec!["trust", "init", "--trust", trust.to_str().unwrap()],
        vec![
            "trust",
            "issue",
            "a",
            "--output",
            "/nonexistent/a",
            "--trust",
            trust.to_str().unwrap(),
        ],
        vec!["agent", "--identity", "/nonexistent", "--root", "/tmp"],
        vec![
            "agent",
            "--identity",
            identity.to_str().unwrap(),
            "--root",
            "/nonexistent",
        ],
        vec![
            "agent",
            "--identity",
            identity.to_str().unwrap(),
            "--root",
            "/tmp",
            "--listen",
            "192.0.2.1:1",
        ],
    ] {
        let ran = call(&arguments).expect(1);
        assert_eq!(ran.err.lines().count(), 1, "{arguments:?} {ran:?}");
        assert!(ran.err.starts_with("outpour: "), "{ran:?}");
    }
}

#[test]
fn the_service_files_call_the_program_as_it_is() {
    for (unit, missing) in [
        ("outpour-agent.service", "/nonexistent/outpour/identity.pem"),
        ("outpour-renew.service", "/nonexistent/outpour/trust"),
    ] {
        let path = Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("../../contrib")
            .join(unit);
        let unit = std::fs::read_to_string(path).unwrap();
        let start = unit
            .lines()
            .find_map(|line| line.strip_prefix("ExecStart="))
            .unwrap();
        let words = start.split_whitespace().skip(1);
        // With files that are not there it gets as far as looking for them.
        let words = words
            .map(|word| word.replace("/srv/outpour", "/tmp"))
            .map(|word| word.replace("/var/lib", "/nonexistent"))
            .map(|word| word.replace("/etc", "/nonexistent"));
        let ran = call(words).expect(1);
        assert!(ran.err.contains(missing), "{ran:?}");
    }
}

/// A port that talks something else is told from one that says nothing.
#[test]
fn other_programs_and_silent_ones_are_named_as_what_they_are() {
    let dir = tempfile::tempdir().unwrap();
    let source = tree(dir.path());
    let (trust, _) = trust(dir.path(), "ours");
    for banner in [
        &b""[..],
        b"HTTP/1.1 400 Bad Request\r\n\r\n",
        b"SSH-2.0-x\r\n",
    ] {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let destination = format!("127.0.0.1:{port}:{}", dir.path().join("x").display());
        let (ended, end) = mpsc::channel::<()>();
        let error = std::thread::scope(|scope| {
            scope.spawn(move || {
                let (mut stream, _) = listener.accept().unwrap();
                stream.write_all(banner).unwrap();
                // Until the other end has its answer.
                let _ = end.recv();
            });
            let ran = cast(&source, &trust, &destination);
            drop(ended);
            ran.expect(1).json()["hosts"][0]["error"].to_string()
        });
        let expected = match banner {
            b"" => format!("no answer from the agent on port {port} within 10 s"),
            _ => format!("what answers on port {port} is not an outpour agent"),
        };
        assert!(error.contains(&expected), "{error}");
    }
}

/// What did not arrive is not so many times slower than the limit.
#[test]
fn a_cast_that_failed_has_a_limit_and_no_ratio() {
    let dir = tempfile::tempdir().unwrap();
    let source = tree(dir.path());
    let (trust, _) = trust(dir.path(), "ours");
    let gone = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = gone.local_addr().unwrap().port();
    drop(gone);
    let ran = run(outpour()
        .arg("cast")
        .arg(&source)
        .arg(format!(
            "127.0.0.1:{port}:{}",
            dir.path().join("x").display()
        ))
        .args([
            "--agents", "--json", "--quiet", "--limit", "1Gbit/s", "--trust",
        ])
        .arg(&trust));
    let report = ran.expect(1).json();
    assert!(report["limit_s"].is_number(), "{report}");
    assert!(report["ratio"].is_null(), "{report}");
}
