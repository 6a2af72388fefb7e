//! Agents whose command is gone: they finish what they can among themselves, or leave.

use std::sync::Arc;
use std::time::{Duration, Instant};

use outpour_agent::cast::{CastRequest, run};
use outpour_agent::session::SessionError;
use outpour_agent::view::CastView;
use outpour_core::Rate;
use tokio::runtime::Runtime;
use tokio::sync::{mpsc, watch};

use crate::support::{DEADLINE, Ended, InProcess, Scene, first_view};

/// An agent with nothing to get and nothing to give leaves within so long.
const LEAVES: Duration = Duration::from_secs(10);

/// A cast that can be ended as kill -9 ends a process: with all its tasks and sockets, and
/// without a word.
struct Command {
    runtime: Runtime,
    view: watch::Receiver<CastView>,
    _cancel: watch::Sender<bool>,
}

impl Command {
    fn start(request: CastRequest, launcher: InProcess) -> Self {
        let runtime = Runtime::new().unwrap();
        let (view, seen) = watch::channel(first_view());
        let (cancel, cancelled) = watch::channel(false);
        runtime.spawn(async move {
            let ended = run(request, Arc::new(launcher), view, cancelled).await;
            panic!("ended before it was killed: {ended:#?}");
        });
        Self {
            runtime,
            view: seen,
            _cancel: cancel,
        }
    }

    /// Kills the command once a host has at least `bytes`.
    async fn kill_when(mut self, host: usize, bytes: u64) {
        let there = |view: &CastView| {
            let host = view.hosts.get(host);
            host.is_some_and(|host| host.have_bytes - host.resumed_bytes >= bytes)
        };
        let seen = self.view.wait_for(there);
        let seen = tokio::time::timeout(DEADLINE, seen).await;
        seen.expect("blocks move").unwrap();
        self.runtime.shutdown_background();
    }
}

async fn ends(count: usize, mut ended: mpsc::UnboundedReceiver<Ended>) -> Vec<Ended> {
    let mut all = Vec::new();
    while all.len() < count {
        let next = tokio::time::timeout(DEADLINE, ended.recv()).await;
        all.push(next.expect("every agent leaves").unwrap());
    }
    all.sort_by_key(|(host, _)| *host);
    all
}

fn slow(mut request: CastRequest) -> CastRequest {
    request.asked.limit = Rate::from_bytes_per_s(1.5e6).unwrap();
    request.asked.block_bytes = Some(64 << 10);
    request
}

async fn finish_among_themselves(protocol: &str) {
    let scene = Scene::with_tree(2);
    let mut only = scene.request(protocol);
    only.hosts.truncate(1);
    let report = scene.cast_as(only, InProcess::new()).await;
    assert!(report.verified(), "{report:#?}");
    // Now one host has it all, the other nothing, and the command dies.
    let (launcher, ended) = InProcess::watched();
    let command = Command::start(slow(scene.request(protocol)), launcher);
    command.kill_when(1, 500_000).await;
    assert!(!scene.destination(1).join("large").exists());
    for (host, end) in ends(2, ended).await {
        assert!(end.is_ok(), "host{host}: {end:?}");
        scene.assert_copy(host);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn orphans_of_a_chain_finish_if_they_have_it_all_between_them() {
    finish_among_themselves("chain").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn orphans_of_a_swarm_finish_if_they_have_it_all_between_them() {
    finish_among_themselves("swarm").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn orphans_of_a_coded_gossip_finish_if_they_have_it_all_between_them() {
    finish_among_themselves("coded-gossip").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn orphans_of_a_block_gossip_finish_if_they_have_it_all_between_them() {
    finish_among_themselves("random-block").await;
}

/// No node has any batch, and together they have all of each: a node with packets only has to be
/// able to pass them on.
#[tokio::test(flavor = "multi_thread")]
async fn orphans_finish_if_their_packets_have_full_rank_together() {
    const HOSTS: usize = 3;
    const PART: usize = 128 << 10;
    let scene = Scene::with_tree(HOSTS);
    let request = || {
        let mut request = slow(scene.request("coded-gossip"));
        request.asked.block_bytes = Some(32 << 10);
        request.asked.batch_blocks = Some(12);
        request
    };
    let report = scene.cast_as(request(), InProcess::new()).await;
    assert!(report.verified(), "{report:#?}");
    // Every third part of the large file is gone at each host, but at another one each.
    for host in 0..HOSTS {
        let copy = scene.destination(host).join("large");
        let mut bytes = std::fs::read(&copy).unwrap();
        for part in bytes.chunks_mut(PART).skip(host).step_by(HOSTS) {
            part.fill(0);
        }
        std::fs::write(&copy, bytes).unwrap();
    }
    let (launcher, ended) = InProcess::watched();
    let command = Command::start(request(), launcher);
    command.kill_when(1, 100_000).await;
    for (host, end) in ends(HOSTS, ended).await {
        assert!(end.is_ok(), "host{host}: {end:?}");
        scene.assert_copy(host);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn orphans_that_lack_something_leave_soon_and_keep_what_they_have() {
    let scene = Scene::with_tree(3);
    let (launcher, ended) = InProcess::watched();
    let command = Command::start(slow(scene.request("swarm")), launcher);
    command.kill_when(2, 300_000).await;
    let killed = Instant::now();
    for (host, end) in ends(3, ended).await {
        let Err(SessionError::Orphaned { have, blocks }) = end else {
            panic!("host{host}: {end:?}");
        };
        assert!(0 < have && have < blocks, "host{host}: {have} of {blocks}");
        let line = SessionError::Orphaned { have, blocks }.to_string();
        let expected = format!(
            "the command that started this cast went away; {have} of {blocks} blocks are here and \
             kept for the next attempt"
        );
        assert_eq!(line, expected);
    }
    assert!(killed.elapsed() < LEAVES, "{:?}", killed.elapsed());
    let again = scene
        .cast_as(slow(scene.request("swarm")), InProcess::new())
        .await;
    assert!(again.verified(), "{again:#?}");
    for (host, report) in again.hosts.iter().enumerate() {
        assert!(report.resumed_bytes > 0, "{report:?}");
        scene.assert_copy(host);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn orphans_without_the_manifest_leave_soon() {
    let scene = Scene::with_tree(1);
    let (launcher, ended) = InProcess::watched();
    let command = Command::start(slow(scene.request("chain")), launcher);
    // Admitted at the earliest when the source has been hashed; then at once.
    command.kill_when(0, 0).await;
    let killed = Instant::now();
    let ended = ends(1, ended).await;
    assert!(ended[0].1.is_err(), "{ended:?}");
    assert!(killed.elapsed() < LEAVES, "{:?}", killed.elapsed());
    scene.cast("chain", InProcess::new()).await;
    scene.assert_copy(0);
}
