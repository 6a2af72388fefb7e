//! The library as other programs use it, with agents of the real program: this test is none, and
//! nothing takes it for one.

use std::future::Future;
use std::path::Path;
use std::time::Duration;

use outpour::{Cast, CastReport, Event, Reach, Ssh};

use crate::service::{Service, trust};
use crate::sshd::Sshd;
use crate::support::{same, tree};

/// What the example does that casts through services.
#[allow(dead_code)]
#[path = "../../../outpour/examples/events.rs"]
mod events;

/// How long a cast may take.
const DEADLINE: Duration = Duration::from_secs(60);

fn complete<T>(task: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let task = async { tokio::time::timeout(DEADLINE, task).await };
    runtime.block_on(task).expect("the cast ends in time")
}

#[track_caller]
fn assert_copies(report: &CastReport, source: &Path, copies: &[&Path]) {
    assert!(report.verified(), "{report:#?}");
    assert_eq!(report.hosts.len(), copies.len());
    copies.iter().for_each(|copy| same(source, copy));
}

#[test]
fn a_program_casts_over_ssh_with_the_agent_that_it_names() {
    let Some(sshd) = Sshd::start() else { return };
    let dir = tempfile::tempdir().unwrap();
    let source = tree(dir.path());
    let copy = |n: usize| dir.path().join(format!("copy{n}"));
    let ssh = Ssh {
        program: sshd.client().into(),
        ..Ssh::new(env!("CARGO_BIN_EXE_outpour"))
    };
    let cast = Cast::new(&source)
        .to(format!("node1:{}", copy(1).display()))
        .to(format!("node2:{}", copy(2).display()))
        .reach(Reach::Ssh(ssh));
    let report = complete(cast.run()).unwrap();
    assert_copies(&report, &source, &[&copy(1), &copy(2)]);
    assert!(sshd.agents().is_empty(), "{:?}", sshd.agents());
}

#[test]
fn a_program_casts_through_services_and_writes_events() {
    let dir = tempfile::tempdir().unwrap();
    let source = tree(dir.path());
    let (trust, identity) = trust(dir.path(), "ours");
    let root = dir.path().join("root");
    let service = Service::start(&identity, &root);
    let copy = root.join("copy");
    let reach = Reach::Services { trust: Some(trust) };
    let cast = Cast::new(&source)
        .to(format!("127.0.0.1:{}:{}", service.port, copy.display()))
        .reach(reach);
    let mut out = Vec::new();
    let report = complete(events::follow(cast, &mut out)).unwrap();
    assert_copies(&report, &source, &[&copy]);
    let text = String::from_utf8(out).unwrap();
    let last = text.lines().last().unwrap();
    assert_eq!(last, serde_json::to_string(&Event::Done(report)).unwrap());
}
