//! What the examples do, done: casts with agents that are processes of this very test, and a service
//! in this process.
#![allow(clippy::unwrap_used)]

use std::fs;
use std::io::{self, Write};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use outpour::agent::{Agent, Service, ServiceEvent};
use outpour::{Cast, Event, HostState, Phase, Rate, Reach, Running, agent};
use outpour_net::trust;
use tokio::sync::watch;

#[allow(dead_code)]
#[path = "../examples/events.rs"]
mod events;
#[allow(dead_code)]
#[path = "../examples/progress.rs"]
mod progress;
#[allow(dead_code)]
#[path = "../examples/service.rs"]
mod service;

/// How long something that has to happen may take.
const DEADLINE: Duration = Duration::from_secs(60);

fn main() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    if let Some(invocation) = agent::invoked(std::env::args_os().skip(1)) {
        runtime.block_on(invocation.serve()).unwrap();
        return runtime.shutdown_background();
    }
    let all = async {
        a_cast_is_followed_as_it_goes().await;
        every_event_is_a_line_and_the_last_is_the_report().await;
        a_host_without_an_agent_fails_alone().await;
        what_is_dropped_is_interrupted_and_goes_on_later().await;
        a_service_tells_what_happens_in_it().await;
        a_service_that_stops_leaves_nothing_behind_and_goes_on_later().await;
    };
    let ended = runtime.block_on(async { tokio::time::timeout(DEADLINE, all).await });
    ended.expect("the casts end in time");
}

/// A directory with a source, and room for copies.
struct Place(tempfile::TempDir);

impl Place {
    fn new(bytes: usize) -> Self {
        let place = tempfile::tempdir().unwrap();
        let source = place.path().join("source");
        fs::create_dir_all(source.join("deep")).unwrap();
        let noise = (0..bytes as u64).map(|n| (n.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8);
        fs::write(source.join("large"), noise.collect::<Vec<u8>>()).unwrap();
        fs::write(source.join("deep/small"), "x").unwrap();
        Self(place)
    }

    fn source(&self) -> PathBuf {
        self.0.path().join("source")
    }

    fn copy(&self, n: usize) -> PathBuf {
        self.0.path().join(format!("copy{n}"))
    }

    #[track_caller]
    fn assert_copy(&self, n: usize) {
        for file in ["large", "deep/small"] {
            let copy = fs::read(self.copy(n).join(file)).unwrap();
            assert!(
                copy == fs::read(self.source().join(file)).unwrap(),
                "{n}: {file}"
            );
        }
    }
}

fn local() -> Reach {
    Reach::Local { agent: own() }
}

fn own() -> PathBuf {
    std::env::current_exe().unwrap()
}

async fn a_cast_is_followed_as_it_goes() {
    let place = Place::new(3_000_000);
    let copies: Vec<PathBuf> = (0..3).map(|n| place.copy(n)).collect();
    let mut out = Vec::new();
    let report = progress::cast(&place.source(), &copies, own(), &mut out).await;
    assert!(report.unwrap().verified());
    (0..3).for_each(|n| place.assert_copy(n));
    let said = String::from_utf8(out).unwrap();
    for part in [
        "reading the source",
        "9000003 of 9000003 bytes are there",
        "copy0: verified 3000001 bytes",
        "copy2: verified 3000001 bytes",
    ] {
        assert!(said.contains(part), "{part}: {said}");
    }
}

async fn every_event_is_a_line_and_the_last_is_the_report() {
    let place = Place::new(1_000_000);
    let to = |n: usize| format!("n{n}:{}", place.copy(n).display());
    let cast = Cast::new(place.source()).to(to(0)).to(to(1));
    let cast = cast.reach(local()).protocol("chain").seed(1);
    let mut out = Vec::new();
    let report = events::follow(cast, &mut out).await.unwrap();
    assert_eq!(report.protocol, "chain");
    let text = String::from_utf8(out).unwrap();
    let mut lines: Vec<&str> = text.lines().collect();
    let done = serde_json::to_string(&Event::Done(report)).unwrap();
    assert_eq!(lines.pop(), Some(done.as_str()));
    let last = lines.last().map(|line| serde_json::from_str(line).unwrap());
    let Some(Event::Progress(last)) = last else {
        panic!("{text}");
    };
    assert_eq!(last.phase, Phase::Done);
    assert!(
        last.hosts
            .iter()
            .all(|host| host.state == HostState::Verified)
    );
}

async fn a_host_without_an_agent_fails_alone() {
    let place = Place::new(10_000);
    let nobody = Reach::Local {
        agent: Path::new("/nonexistent/agent").to_owned(),
    };
    let cast = Cast::new(place.source()).to(format!("a:{}", place.copy(0).display()));
    let report = cast.reach(nobody).run().await.unwrap();
    assert!(!report.verified());
    let error = report.hosts[0].error.as_deref().unwrap();
    assert!(
        error.contains("/nonexistent/agent: cannot start an agent"),
        "{error}"
    );
}

/// At this rate nothing is over at once.
fn slow() -> Rate {
    Rate::from_bytes_per_s(2e6).unwrap()
}

/// Waits until the first host has something.
async fn wait_for_bytes(running: &Running) {
    let mut events = running.events();
    loop {
        match events.next().await {
            Some(Event::Progress(now)) if now.hosts[0].have_bytes == 0 => {}
            Some(Event::Progress(_)) => return,
            other => panic!("{other:?}"),
        }
    }
}

async fn what_is_dropped_is_interrupted_and_goes_on_later() {
    let place = Place::new(8_000_000);
    let cast = || {
        let cast = Cast::new(place.source()).to(format!("a:{}", place.copy(0).display()));
        cast.reach(local()).wait(true)
    };
    let running = cast().limit(slow()).start().unwrap();
    let mut events = running.events();
    wait_for_bytes(&running).await;
    drop(running);
    let ended = loop {
        match events.next().await {
            Some(Event::Progress(_)) => {}
            other => break other,
        }
    };
    let Some(Event::Done(report)) = ended else {
        panic!("{ended:?}");
    };
    let error = report.hosts[0].error.as_deref().unwrap();
    assert!(error.starts_with("interrupted"), "{error}");
    let again = cast().run().await.unwrap();
    assert!(
        again.verified() && again.hosts[0].resumed_bytes > 0,
        "{again:?}"
    );
    place.assert_copy(0);
}

/// A service on loopback, and what its operator needs.
struct Served {
    /// What agents keep for themselves is not beneath their roots.
    _keys: tempfile::TempDir,
    place: Place,
    trust: PathBuf,
    identity: PathBuf,
}

impl Served {
    fn new(bytes: usize) -> Self {
        let place = Place::new(bytes);
        let keys = tempfile::tempdir().unwrap();
        let (trust, identity) = (keys.path().join("trust"), keys.path().join("identity"));
        let authority = trust::Directory::at(&trust);
        authority.init().unwrap();
        let usual = trust::Lifetime::default();
        authority.issue("127.0.0.1", usual, &identity).unwrap();
        Self {
            _keys: keys,
            place,
            trust,
            identity,
        }
    }

    async fn start(&self, port: u16) -> Service {
        let agent = Agent::new()
            .root(self.place.0.path())
            .listen(SocketAddr::from((Ipv4Addr::LOCALHOST, port)))
            .data_listen(Ipv4Addr::LOCALHOST.into());
        agent.start(&self.identity).await.unwrap()
    }

    /// A cast to one place of the service on that port.
    fn cast(&self, port: u16) -> Cast {
        let to = format!("127.0.0.1:{port}:{}", self.place.copy(0).display());
        let trust = Some(self.trust.clone());
        Cast::new(self.place.source())
            .to(to)
            .reach(Reach::Services { trust })
    }
}

/// Text that another task reads as it grows.
struct Shared(watch::Sender<String>);

impl Write for Shared {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let more = str::from_utf8(bytes).unwrap();
        self.0.send_modify(|text| text.push_str(more));
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

async fn a_service_tells_what_happens_in_it() {
    let served = Served::new(100_000);
    let service = served.start(0).await;
    let port = service.local_addr().port();
    let (out, mut text) = watch::channel(String::new());
    let over = async {
        let report = served.cast(port).run().await.unwrap();
        assert!(report.verified(), "{report:?}");
        let ended = r#"{"event":"ended""#;
        text.wait_for(|text| text.contains(ended)).await.unwrap();
    };
    service::follow(service, over, &mut Shared(out))
        .await
        .unwrap();
    served.place.assert_copy(0);
    let text = text.borrow();
    let [began, accepted, verified, ended] = text.lines().collect::<Vec<_>>()[..] else {
        panic!("{}", *text);
    };
    let operator = r#""peer":"127.0.0.1","operator":"operator""#;
    assert_eq!(began, format!(r#"{{"event":"began",{operator}}}"#));
    assert_eq!(
        ended,
        format!(r#"{{"event":"ended",{operator},"error":null}}"#)
    );
    for (line, verdict) in [(accepted, "accepted"), (verified, "verified")] {
        let event = serde_json::from_str(line).unwrap();
        let ServiceEvent::Audited(audited) = event else {
            panic!("{line}");
        };
        let said = serde_json::to_value(&audited).unwrap();
        assert_eq!(
            (&said["operator"], &said["verdict"]),
            (&"operator".into(), &verdict.into())
        );
    }
}

async fn a_service_that_stops_leaves_nothing_behind_and_goes_on_later() {
    let served = Served::new(8_000_000);
    let service = served.start(0).await;
    let port = service.local_addr().port();
    let running = served.cast(port).limit(slow()).start().unwrap();
    wait_for_bytes(&running).await;
    service.stop().await;
    let report = running.finish().await.unwrap();
    let error = report.hosts[0].error.as_deref().unwrap();
    assert!(error.starts_with("its agent ended"), "{error}");
    // The port is free, and so is the destination.
    let mut service = served.start(port).await;
    let again = served.cast(port).run().await.unwrap();
    assert!(
        again.verified() && again.hosts[0].resumed_bytes > 0,
        "{again:?}"
    );
    served.place.assert_copy(0);
    let peer = Ipv4Addr::LOCALHOST.into();
    let operator = "operator".to_owned();
    assert_eq!(service.next().await, ServiceEvent::Began { peer, operator });
}
