//! Clusters and sources that are lost in the middle, under every protocol that goes by the network:
//! the rest finish if they have it all between them, and else are told what is missing.

use std::fs::File;
use std::future::Future;
use std::path::Path;
use std::sync::Arc;
use std::time::SystemTime;

use outpour_agent::cast::{CastRequest, run};
use outpour_agent::launch::{Launcher, Launching};
use outpour_agent::view::CastReport;
use outpour_core::plan::Tree;
use outpour_core::{NodeId, Plan, Rate};
use tokio::runtime::Runtime;
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::support::{DEADLINE, InProcess, Scene, first_view};

const PROTOCOLS: [&str; 7] = [
    "balanced", "optimal", "tree", "adaptive", "central", "mob", "robber",
];

/// The source, then hosts 0 to 4.
const AT: [&str; 6] = ["a0", "a1", "b0", "b1", "c0", "c1"];
const HOSTS: usize = AT.len() - 1;
const CLUSTER_B: [usize; 2] = [1, 2];
/// In a cluster that is not lost.
const WITNESS: usize = 4;

/// A plan as a user may write it: cluster c gets all of it through cluster b alone.
fn through_b() -> Plan {
    let tree = |edges: [(u32, u32); HOSTS]| Tree {
        rate: Rate::from_bytes_per_s(1e7).unwrap(),
        edges: edges.map(|(from, to)| (NodeId(from), NodeId(to))).into(),
    };
    Plan {
        roots: vec![NodeId(0)],
        trees: vec![
            tree([(0, 1), (0, 2), (2, 3), (2, 4), (4, 5)]),
            tree([(0, 1), (1, 3), (3, 2), (3, 5), (5, 4)]),
        ],
    }
}

/// A cast in which every node is limited to `rate`, in bytes per second.
fn request(scene: &Scene, protocol: &str, rate: f64) -> CastRequest {
    let mut request = scene.request_at(protocol, &AT);
    request.asked.limit = Rate::from_bytes_per_s(rate).unwrap();
    request.asked.plan = (protocol == "tree").then(through_b);
    request
}

/// Casts, and strikes once a host has got something.
async fn cast(
    request: CastRequest,
    launcher: impl Launcher + 'static,
    host: usize,
    strike: impl FnOnce(),
) -> CastReport {
    let (view, mut seen) = watch::channel(first_view());
    let (_cancel, cancelled) = watch::channel(false);
    let cast = tokio::spawn(run(request, Arc::new(launcher), view, cancelled));
    let moves = seen.wait_for(|view| {
        let host = view.hosts.get(host);
        host.is_some_and(|host| host.have_bytes > host.resumed_bytes)
    });
    let seen = tokio::time::timeout(DEADLINE, moves).await;
    let seen = seen.expect("blocks move").is_ok();
    strike();
    let ended = tokio::time::timeout(DEADLINE, cast).await;
    let ended = ended.expect("the cast ends in time").unwrap();
    assert!(seen, "the cast ended before blocks moved: {ended:#?}");
    ended.unwrap()
}

/// Runs a test under all protocols at once, for it mostly waits.
async fn each_protocol<F>(test: impl Fn(&'static str) -> F)
where
    F: Future<Output = ()> + Send + 'static,
{
    let mut tests = JoinSet::new();
    for protocol in PROTOCOLS {
        tests.spawn(test(protocol));
    }
    while let Some(ended) = tests.join_next().await {
        ended.unwrap();
    }
}

/// Agents of which some run where they can be killed all at once, without a word.
struct Doomed {
    some: InProcess,
    others: InProcess,
}

impl Launcher for Doomed {
    fn launch(&self, host: usize) -> Launching {
        let agents = if CLUSTER_B.contains(&host) {
            &self.some
        } else {
            &self.others
        };
        agents.launch(host)
    }
}

async fn a_cluster_dies(protocol: &'static str) {
    let scene = Scene::with_tree(HOSTS);
    let doomed = Runtime::new().unwrap();
    let entered = doomed.enter();
    let some = InProcess::new();
    drop(entered);
    let others = InProcess::new();
    let request = request(&scene, protocol, 4e6);
    let kill = || doomed.shutdown_background();
    let report = cast(request, Doomed { some, others }, CLUSTER_B[0], kill).await;
    for (host, said) in report.hosts.iter().enumerate() {
        let lost = CLUSTER_B.contains(&host);
        assert_eq!(said.verified, !lost, "{protocol}: {report:#?}");
        if lost {
            let error = said.error.clone().unwrap_or_default();
            assert!(
                error.starts_with("its agent ended before"),
                "{protocol}: {error}"
            );
        } else {
            scene.assert_copy(host);
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_others_finish_without_a_cluster() {
    each_protocol(a_cluster_dies).await;
}

/// Makes every file of a tree look changed, so that its source reads no more from it.
fn touch(dir: &Path) {
    for entry in std::fs::read_dir(dir).unwrap() {
        let entry = entry.unwrap();
        let kind = entry.file_type().unwrap();
        if kind.is_dir() {
            touch(&entry.path());
        } else if kind.is_file() {
            let file = File::options().write(true).open(entry.path()).unwrap();
            file.set_modified(SystemTime::UNIX_EPOCH).unwrap();
        }
    }
}

async fn the_source_dies(protocol: &'static str, one_has_it_all: bool) {
    let scene = Scene::with_tree(HOSTS);
    if one_has_it_all {
        let mut before = scene.request("direct");
        before.hosts = vec![before.hosts.swap_remove(WITNESS - 1)];
        let report = scene.cast_as(before, InProcess::new()).await;
        assert!(report.verified(), "{report:#?}");
    }
    let strike = || touch(&scene.source());
    // Where something is to be missing, the source must not be done before the strike.
    let rate = if one_has_it_all { 4e6 } else { 1e6 };
    let request = request(&scene, protocol, rate);
    let report = cast(request, InProcess::new(), WITNESS, strike).await;
    for (host, said) in report.hosts.iter().enumerate() {
        assert_eq!(said.verified, one_has_it_all, "{protocol}: {report:#?}");
        if one_has_it_all {
            scene.assert_copy(host);
            continue;
        }
        let error = said.error.clone().unwrap_or_default();
        let says = |words: &str| error.contains(words);
        let missing = says("blocks are on no remaining host") || says(" missing; ");
        let why = says("; the source is lost: ") && says("changed after it was hashed");
        assert!(missing && why, "{protocol}: {error}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn without_the_source_the_others_finish_if_they_have_it_all() {
    each_protocol(|protocol| the_source_dies(protocol, true)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn without_the_source_it_is_said_what_is_missing() {
    each_protocol(|protocol| the_source_dies(protocol, false)).await;
}
