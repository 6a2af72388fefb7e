//! How long identities hold, and how that ends: renewed in time, or revoked.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use outpour::agent::{CASTS_MAX, OPERATOR_CASTS_MAX};
use outpour_agent::control::{
    AgentSays, CommandSays, Greeting, ProbeAdmission, read_frame, write_frame,
};
use outpour_core::NodeId;
use outpour_net::trust::{Directory, Grant, Lifetime, Operator};
use serde_json::Value;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;

use crate::operators::{Scene, begin, end, error, wait_until};
use crate::service::Service;
use crate::support::{Ran, call, run, same};

/// So long at most an operator counts that was revoked.
const REVOKED_WITHIN: Duration = Duration::from_secs(60);

fn trust(scene: &Scene, words: &[&str]) -> Ran {
    let dir = ["--trust", scene.trust.to_str().unwrap()];
    call([&["trust"], words, &dir].concat())
}

fn list(scene: &Scene) -> Vec<Value> {
    let listed = trust(scene, &["list", "--json"]).expect(0).json();
    listed.as_array().unwrap().clone()
}

/// How many identities of a name are valid, and how many of them were revoked.
fn count(scene: &Scene, name: &str) -> (usize, usize) {
    let listed = list(scene);
    let named = || listed.iter().filter(|it| it["name"] == name);
    (
        named().count(),
        named().filter(|it| it["revoked"] == true).count(),
    )
}

#[test]
fn the_list_says_what_was_issued_for_what_and_until_when() {
    let scene = Scene::new(&[]);
    scene.operator(
        "ana",
        &["--root", "/srv/a", "--host", "gpu*", "--days", "1"],
    );
    let listed = list(&scene);
    let names: Vec<_> = listed.iter().map(|it| (&it["kind"], &it["name"])).collect();
    let expected = [
        ("operator", "ana"),
        ("operator", "operator"),
        ("agent", "127.0.0.1"),
    ];
    assert_eq!(names.len(), 3);
    for (listed, (kind, name)) in names.into_iter().zip(expected) {
        assert_eq!((listed.0, listed.1), (&kind.into(), &name.into()));
    }
    assert_eq!(listed[0]["roots"], serde_json::json!(["/srv/a"]));
    assert_eq!(listed[0]["hosts"], serde_json::json!(["gpu*"]));
    // A day is less than a month.
    let until = |it: &Value| it["valid_until"].as_str().unwrap().to_owned();
    assert!(until(&listed[0]) < until(&listed[1]), "{listed:?}");
    let text = trust(&scene, &["list"]).expect(0).out;
    let first = text.lines().next().unwrap();
    let serial = listed[0]["serial"].as_str().unwrap();
    let until = until(&listed[0]);
    assert_eq!(
        first,
        format!("operator ana {serial} until {until} root /srv/a host gpu*")
    );
    let nowhere = scene.path("nowhere");
    for wrong in [
        &["operator", "a b"][..],
        &["operator", "ana", "--root", "srv"],
        &["operator", "ana", "--host", "a b"],
        &["operator", "ana", "--days", "0"],
        &["issue", "ana", "--days", "731"],
    ] {
        let to = ["--output", nowhere.to_str().unwrap()];
        let ran = trust(&scene, &[wrong, &to].concat());
        assert!(ran.code == Some(1) || ran.code == Some(2), "{ran:?}");
        assert!(!nowhere.exists(), "{wrong:?}");
    }
    trust(&scene, &["revoke", "nobody"]).expect(1);
    trust(&scene, &["revoke", "operator", "--tell", "a b"]).expect(2);
    assert_eq!(
        count(&scene, "operator"),
        (1, 0),
        "nothing was revoked on the way"
    );
}

#[test]
fn agents_and_operators_are_renewed_while_they_run() {
    let scene = Scene::new(&[]);
    let place = scene.path("root/x");
    let before = fs::read(&scene.identity).unwrap();
    let host = format!("127.0.0.1:{}", scene.service.port);
    let renewed = trust(&scene, &["renew", &host]).expect(0);
    assert_eq!(
        renewed.out,
        format!("the operator: renewed\n{host}: renewed\n")
    );
    let after = fs::read(&scene.identity).unwrap();
    assert!(after != before && after.len() > 100);
    assert_eq!(
        (count(&scene, "127.0.0.1"), count(&scene, "operator")),
        ((2, 0), (2, 0))
    );
    run(&mut scene.cast(&scene.trust, &place)).expect(0);
    same(&scene.source, &place);
    // A cast renews nothing before its time.
    assert_eq!(fs::read(&scene.identity).unwrap(), after);
    let nobody = trust(&scene, &["renew", "127.0.0.1:9"]).expect(1);
    assert!(
        nobody.err.contains("127.0.0.1:9: connection refused"),
        "{nobody:?}"
    );
    // An operator without the authority casts, and renews nothing.
    let ana = scene.operator("ana", &[]);
    let words = ["trust", "renew", &host, "--trust", ana.to_str().unwrap()];
    let helpless = call(words).expect(1);
    assert!(helpless.err.contains("agent-ca.key"), "{helpless:?}");
    run(&mut scene.cast(&ana, &scene.path("root/y"))).expect(0);
    assert_eq!(fs::read(&scene.identity).unwrap(), after);
    scene.service.stop_all();
}

#[test]
fn renewing_an_operator_widens_nothing_that_was_not_asked_for() {
    let scene = Scene::new(&[]);
    let grant = |words: &[&str]| {
        scene.operator("ana", words);
        let listed = list(&scene);
        let newest = listed.iter().filter(|it| it["name"] == "ana");
        let newest = newest.max_by_key(|it| it["valid_until"].as_str().unwrap().to_owned());
        let newest = newest.unwrap();
        (newest["roots"].clone(), newest["hosts"].clone())
    };
    let (root, host) = (serde_json::json!(["/srv/a"]), serde_json::json!(["gpu*"]));
    // Each identity is valid for longer than the one before, which tells them apart.
    let first = grant(&["--root", "/srv/a", "--host", "gpu*", "--days", "1"]);
    assert_eq!(first, (root.clone(), host.clone()));
    assert_eq!(grant(&["--days", "2"]), (root.clone(), host.clone()));
    // The operator's own directory is no evidence of what it was granted.
    fs::remove_dir_all(scene.path("ana")).unwrap();
    assert_eq!(grant(&["--days", "3"]), (root.clone(), host.clone()));
    let moved = grant(&["--days", "4", "--root", "/srv/b"]);
    assert_eq!(moved, (serde_json::json!(["/srv/b"]), host.clone()));
    let lifted = grant(&["--days", "5", "--unrestricted", "--host", "gpu*"]);
    assert_ne!(lifted.0, root);
    assert!(lifted.0.as_array().is_none_or(Vec::is_empty), "{lifted:?}");
    assert_eq!(lifted.1, host);
}

/// An identity of a day, of which 17 hours have passed.
#[test]
fn what_is_due_is_renewed_by_the_next_cast() {
    let scene = Scene::new(&[]);
    let day = Lifetime::days(1).unwrap();
    let old = || Directory::at(&scene.trust).aged(Duration::from_secs(17 * 3600));
    let identity = scene.path("old.pem");
    old().issue("127.0.0.1", day, &identity).unwrap();
    let everything = Grant::default();
    old()
        .issue_operator("operator", &everything, day, &scene.trust)
        .unwrap();
    let ana = scene.path("ana");
    old().issue_operator("ana", &everything, day, &ana).unwrap();
    let files = [
        &identity,
        &scene.trust.join("operator.pem"),
        &ana.join("operator.pem"),
    ];
    let read = || files.map(|file| fs::read(file).unwrap());
    let root = scene.path("aged");
    let service = Service::start(&identity, &root);
    let cast = |operator: &Path, name: &str| {
        let to = format!("127.0.0.1:{}:{}", service.port, root.join(name).display());
        let mut command = crate::support::outpour();
        command.arg("cast").arg(&scene.source).arg(to);
        command
            .args(["--agents", "--json", "--quiet", "--trust"])
            .arg(operator);
        run(&mut command).expect(0);
        same(&scene.source, &root.join(name));
    };
    let first = read();
    // Without the authority nothing can be renewed, and the cast needs no renewal.
    cast(&ana, "x");
    assert!(read() == first);
    cast(&scene.trust, "y");
    let second = read();
    assert!(second[0] != first[0] && second[1] != first[1] && second[2] == first[2]);
    // With that it is not due any more.
    cast(&scene.trust, "z");
    assert!(read() == second);
    assert_eq!(service.stop(), "");
}

/// Revokes ana while she casts; `tell` says how the agent hears of it.
fn revoked_in_flight(tell: impl Fn(&Scene)) {
    let scene = Scene::new(&[]);
    let ana = scene.operator("ana", &["--root", scene.path("root").to_str().unwrap()]);
    let place = scene.path("root/x");
    let record = scene.path("record");
    let slow = ["--limit", "1 Mbit/s", "--block", "64KiB", "--progress"];
    let cast = begin(scene.cast(&ana, &place).args(slow).arg(&record));
    let moved = || {
        let record = fs::read_to_string(&record).unwrap_or_default();
        let last = record
            .lines()
            .rev()
            .find_map(|line| serde_json::from_str::<Value>(line).ok());
        last.and_then(|it| it["hosts"][0]["have_bytes"].as_u64())
    };
    wait_until("the first blocks", || {
        moved().is_some_and(|bytes| bytes >= 200_000)
    });
    tell(&scene);
    let told = Instant::now();
    let ended = end(cast).expect(1);
    assert!(told.elapsed() < REVOKED_WITHIN, "{:?}", told.elapsed());
    let report = ended.json();
    assert_eq!(report["hosts"][0]["verified"], false);
    assert!(
        error(&ended).contains("operator ana was revoked"),
        "{ended:?}"
    );
    assert!(
        !place.join("weights/big.bin").exists(),
        "nothing half has a name"
    );
    scene.expect_verdicts("ana", &["accepted", "failed"]);
    // It is refused from now on, and says so.
    let refused = error(&run(&mut scene.cast(&ana, &place)).expect(1));
    assert!(refused.starts_with("operator ana was revoked"), "{refused}");
    scene.expect_verdicts("ana", &["accepted", "failed", "refused"]);
    // What she had cast is there for whoever goes on.
    let resumed = run(scene.cast(&scene.trust, &place).args(&slow[2..4]))
        .expect(0)
        .json();
    assert!(
        resumed["hosts"][0]["resumed_bytes"].as_u64().unwrap() >= 64 << 10,
        "{resumed}"
    );
    same(&scene.source, &place);
    assert_eq!(count(&scene, "ana"), (1, 1));
    // The list outlives the agent.
    let root = scene.path("root");
    scene.service.stop_all();
    let again = Service::start(&scene.identity, &root);
    let to = format!("127.0.0.1:{}:{}", again.port, place.display());
    let mut command = crate::support::outpour();
    command.arg("cast").arg(&scene.source).arg(to);
    command
        .args(["--agents", "--json", "--quiet", "--trust"])
        .arg(&ana);
    let refused = error(&run(&mut command).expect(1));
    assert!(refused.starts_with("operator ana was revoked"), "{refused}");
}

#[test]
fn an_operator_that_is_revoked_ends_its_cast() {
    revoked_in_flight(|scene| {
        let host = format!("127.0.0.1:{}", scene.service.port);
        let said = trust(scene, &["revoke", "ana", "--tell", &host])
            .expect(0)
            .out;
        assert!(said.starts_with("operator ana ") && said.ends_with(&format!("{host}: told\n")));
    });
}

#[test]
fn a_list_of_revoked_operators_that_is_copied_ends_the_cast_too() {
    revoked_in_flight(|scene| {
        trust(scene, &["revoke", "ana", "--no-tell"]).expect(0);
        let list = scene.trust.join("operator-ca.crl");
        fs::copy(list, scene.identity.with_extension("pem.crl")).unwrap();
    });
}

/// One that has said nothing yet does not keep its place.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_operator_that_is_revoked_is_cut_off_wherever_it_is() {
    let scene = Scene::new(&[]);
    let ana = Operator::load(&scene.operator("ana", &[])).unwrap();
    let mut silent = greeted(&ana, &scene).await;
    let mut reading = greeted(&ana, &scene).await;
    let path = scene.path("root").to_str().unwrap().as_bytes().to_vec();
    write_frame(
        &mut reading,
        &CommandSays::Survey {
            path,
            archive: false,
        },
    )
    .await
    .unwrap();
    let said = answer(&mut reading).await;
    assert!(matches!(said, AgentSays::Surveyed { .. }), "{said:?}");
    let mut measuring = greeted(&ana, &scene).await;
    let probe = ProbeAdmission {
        cast: [1; 16],
        node: NodeId(0),
        members: 2,
        connections: None,
    };
    write_frame(&mut measuring, &CommandSays::Probe(Box::new(probe)))
        .await
        .unwrap();
    let said = answer(&mut measuring).await;
    assert!(matches!(said, AgentSays::Joined { .. }), "{said:?}");
    let host = format!("127.0.0.1:{}", scene.service.port);
    let revoked =
        tokio::task::block_in_place(|| trust(&scene, &["revoke", "ana", "--tell", &host]));
    revoked.expect(0);
    for stream in [&mut silent, &mut reading, &mut measuring] {
        let over = async { while read_frame::<AgentSays>(stream).await.is_ok() {} };
        let ended = tokio::time::timeout(REVOKED_WITHIN, over).await;
        assert!(ended.is_ok(), "it is connected still");
    }
    scene.expect_verdicts("ana", &["accepted", "accepted", "failed", "failed"]);
    for line in scene
        .audited(6)
        .iter()
        .filter(|it| it["verdict"] == "failed")
    {
        let why = line["why"].as_str().unwrap();
        assert!(why.starts_with("operator ana was revoked"), "{why}");
    }
}

/// How an operator is connected.
type ClientStream = Box<dyn Stream>;

trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Stream for T {}

/// A connection of an operator to a service that has been greeted.
async fn greeted(operator: &Operator, scene: &Scene) -> ClientStream {
    let port = scene.service.port;
    let stream = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
    let (mut stream, _) = operator.connect("127.0.0.1", stream).await.unwrap();
    let greeting: Greeting = read_frame(&mut stream).await.unwrap();
    greeting.check().unwrap();
    Box::new(stream)
}

/// What the agent says next but that it reads.
async fn answer(stream: &mut ClientStream) -> AgentSays {
    loop {
        match read_frame(stream).await.unwrap() {
            AgentSays::Hashing { .. } => {}
            said => return said,
        }
    }
}

/// An operator that fills all the places it can get keeps nobody from revoking it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_is_revoked_cannot_keep_the_agent_from_hearing_of_it() {
    let scene = Scene::new(&[]);
    let ana = Operator::load(&scene.operator("ana", &[])).unwrap();
    let survey = CommandSays::Survey {
        archive: false,
        path: scene.path("root").to_str().unwrap().as_bytes().to_vec(),
    };
    let mut calls = Vec::new();
    // First all casts that it may have, then all connections.
    for busy in 0..OPERATOR_CASTS_MAX + CASTS_MAX {
        let mut call = greeted(&ana, &scene).await;
        if busy < OPERATOR_CASTS_MAX {
            write_frame(&mut call, &survey).await.unwrap();
            let said = answer(&mut call).await;
            assert!(matches!(said, AgentSays::Surveyed { .. }), "{said:?}");
        }
        calls.push(call);
    }
    for first in [&survey, &CommandSays::Renew] {
        let mut refused = greeted(&ana, &scene).await;
        write_frame(&mut refused, first).await.unwrap();
        let AgentSays::Unable { error } = answer(&mut refused).await else {
            panic!("it is full");
        };
        assert!(
            error.starts_with("operator ana has 64 connections"),
            "{error}"
        );
    }
    let host = format!("127.0.0.1:{}", scene.service.port);
    tokio::task::block_in_place(|| {
        run(&mut scene.cast(&scene.trust, &scene.path("root/x"))).expect(0);
        trust(&scene, &["renew", &host]).expect(0);
        trust(&scene, &["revoke", "ana", "--tell", &host]).expect(0);
    });
    for call in &mut calls {
        let over = async { while read_frame::<AgentSays>(call).await.is_ok() {} };
        let ended = tokio::time::timeout(REVOKED_WITHIN, over).await;
        assert!(ended.is_ok(), "it is connected still");
    }
}

/// The most memory that a process has ever had, in bytes.
fn memory_of(process: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{process}/status")).unwrap();
    let line = status.lines().find(|line| line.starts_with("VmHWM:"));
    let number = line.unwrap().split_whitespace().nth(1).unwrap();
    1024 * number.parse::<u64>().unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_operator_that_is_turned_away_costs_little_memory_whatever_it_sends() {
    let scene = Scene::new(&[]);
    let dir = scene.operator("ana", &[]);
    let host = format!("127.0.0.1:{}", scene.service.port);
    let ana = Operator::load(&dir).unwrap();
    tokio::task::block_in_place(|| trust(&scene, &["revoke", "ana", "--tell", &host]).expect(0));
    let before = memory_of(scene.service.id());
    let part = CommandSays::Part(vec![0; 1 << 20]);
    let mut look = greeted(&ana, &scene).await;
    let first = CommandSays::Look {
        path: b"/x".to_vec(),
        manifest_bytes: 96 << 20,
        keeps: true,
        signature: None,
    };
    write_frame(&mut look, &first).await.unwrap();
    for _ in 0..96 {
        write_frame(&mut look, &part).await.unwrap();
    }
    let mut long = Vec::new();
    for _ in 0..4 {
        let mut call = greeted(&ana, &scene).await;
        let first = CommandSays::Part(vec![0; 15 << 20]);
        write_frame(&mut call, &first).await.unwrap();
        long.push(call);
    }
    for call in [&mut look].into_iter().chain(&mut long) {
        let AgentSays::Unable { error } = answer(call).await else {
            panic!("it was revoked");
        };
        assert!(error.starts_with("operator ana was revoked"), "{error}");
    }
    let more = memory_of(scene.service.id()) - before;
    assert!(more < 32 << 20, "{more} bytes");
    // All of it is written down.
    scene.expect_verdicts("ana", &["refused"; 5]);
}

/// How many bytes a process has read.
fn read_by(process: u32) -> u64 {
    let io = fs::read_to_string(format!("/proc/{process}/io")).unwrap();
    let line = io.lines().find_map(|line| line.strip_prefix("rchar: "));
    line.unwrap().parse().unwrap()
}

/// A file that takes many minutes to read.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_read_for_an_operator_that_has_gone() {
    let scene = Scene::new(&[]);
    let ana = Operator::load(&scene.operator("ana", &[])).unwrap();
    let file = scene.path("root/huge");
    fs::File::create(&file).unwrap().set_len(1 << 40).unwrap();
    let mut call = greeted(&ana, &scene).await;
    let path = file.to_str().unwrap().as_bytes().to_vec();
    write_frame(
        &mut call,
        &CommandSays::Survey {
            path,
            archive: false,
        },
    )
    .await
    .unwrap();
    let said = answer(&mut call).await;
    assert_eq!(said, AgentSays::Surveyed { size: 1 << 40 });
    let hash = CommandSays::Hash {
        block_bytes: 16 << 20,
        receivers: 1,
        manifest: false,
    };
    write_frame(&mut call, &hash).await.unwrap();
    let agent = scene.service.id();
    tokio::task::block_in_place(|| {
        wait_until("the first blocks", || read_by(agent) > 64 << 20);
        drop(call);
        scene.expect_verdicts("ana", &["accepted", "failed"]);
        // What goes on reading has read much more a second later.
        let mut last = (Instant::now(), read_by(agent));
        wait_until("the end of that", || {
            let read = read_by(agent);
            if read > last.1 + (1 << 20) {
                last = (Instant::now(), read);
            }
            last.0.elapsed() > Duration::from_secs(1)
        });
    });
}

/// An identity that expires a few seconds after its operator has called.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_connection_does_not_outlive_the_identity_it_began_with() {
    let scene = Scene::new(&[]);
    let day = Duration::from_secs(24 * 3600);
    let at = Directory::at(&scene.trust).aged(day - Duration::from_secs(4));
    let dir = scene.path("ana");
    at.issue_operator("ana", &Grant::default(), Lifetime::days(1).unwrap(), &dir)
        .unwrap();
    let ana = Operator::load(&dir).unwrap();
    let mut idle = greeted(&ana, &scene).await;
    tokio::task::block_in_place(|| {
        wait_until("its end", || Operator::load(&dir).is_err());
    });
    let path = scene.path("root").to_str().unwrap().as_bytes().to_vec();
    write_frame(
        &mut idle,
        &CommandSays::Survey {
            path,
            archive: false,
        },
    )
    .await
    .unwrap();
    let AgentSays::Unable { error } = answer(&mut idle).await else {
        panic!("it has expired");
    };
    assert!(
        error.starts_with("the identity of operator ana expired at"),
        "{error}"
    );
    scene.expect_verdicts("ana", &["refused"]);
    // What it had begun before can be revoked still.
    let host = format!("127.0.0.1:{}", scene.service.port);
    tokio::task::block_in_place(|| {
        trust(&scene, &["revoke", "ana", "--tell", &host]).expect(0);
    });
}

#[test]
fn a_host_that_is_revoked_gets_nothing() {
    let scene = Scene::new(&[]);
    let place = scene.path("root/x");
    trust(&scene, &["revoke", "127.0.0.1"]).expect(0);
    let refused = error(&run(&mut scene.cast(&scene.trust, &place)).expect(1));
    assert!(refused.contains("its identity was revoked"), "{refused}");
    assert!(!place.exists());
    // A new identity of the host counts.
    let identity = scene.path("new.pem");
    crate::service::issue(&scene.trust, "127.0.0.1", &identity);
    fs::rename(&identity, &scene.identity).unwrap();
    wait_until("the new identity", || {
        run(&mut scene.cast(&scene.trust, &place)).code == Some(0)
    });
    same(&scene.source, &place);
}
