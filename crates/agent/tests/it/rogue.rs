//! A member that sends wrong bytes: it is cut off and named, and the others get right ones.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::liar::{self, Lies};
use crate::support::{Agent, InProcess, Scene, noise};

const HOSTS: usize = 4;
const ROGUE: usize = 0;

async fn is_cut_off_and_named(protocol: &str, lies: Lies) {
    let scene = Scene::with_tree(HOSTS);
    std::fs::write(scene.source().join("more"), noise(1000, 3_000_000)).unwrap();
    let lied = Arc::new(AtomicU64::new(0));
    let count = lied.clone();
    let rogue = Agent::other(move |stream| liar::play(stream, lies, count.clone()));
    let mut request = scene.request(protocol);
    // Small blocks, so that everybody has something that others lack; and where the manifest is to
    // be fetched, so many that it is.
    request.block_bytes = Some(match lies {
        Lies::Object => 64 << 10,
        Lies::Manifest => 1 << 10,
    });
    request.patience = Duration::from_secs(5);
    let launcher = InProcess::new().with(ROGUE, rogue);
    let report = scene.cast_as(request, launcher).await;
    assert!(
        lied.load(Ordering::Relaxed) > 0,
        "nobody asked the rogue: {report:#?}"
    );
    for host in (0..HOSTS).filter(|host| *host != ROGUE) {
        assert!(report.hosts[host].verified, "{report:#?}");
        scene.assert_copy(host);
    }
    let accusations = || {
        let notices = report.notices.iter();
        notices.filter(|notice| notice.contains("wrong bytes"))
    };
    assert!(accusations().count() > 0, "{:#?}", report.notices);
    assert!(
        accusations().all(|notice| notice.starts_with("host0 sent wrong bytes for block ")),
        "{:#?}",
        report.notices
    );
    // Whatever else is worth a line is about the rogue, too.
    let rest = report.notices.iter();
    let mut rest = rest.filter(|notice| !notice.contains("host0"));
    assert_eq!(rest.next(), None, "{:#?}", report.notices);
}

#[tokio::test(flavor = "multi_thread")]
async fn wrong_bytes_are_detected_in_a_chain() {
    is_cut_off_and_named("chain", Lies::Object).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn wrong_bytes_are_detected_in_a_swarm() {
    is_cut_off_and_named("swarm", Lies::Object).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn wrong_bytes_of_the_manifest_are_detected_in_a_chain() {
    is_cut_off_and_named("chain", Lies::Manifest).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn wrong_bytes_of_the_manifest_are_detected_in_a_swarm() {
    is_cut_off_and_named("swarm", Lies::Manifest).await;
}
