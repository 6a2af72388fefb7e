//! A member that sends wrong bytes: it is cut off and named, and the others get right ones.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::liar::{self, Lies};
use crate::support::{Agent, InProcess, Scene, noise};

const HOSTS: usize = 4;
const ROGUE: usize = 0;
/// Others may have given all nodes everything before the rogue got a chance to lie; so many casts
/// in a row will not end like that.
const CASTS_MAX: usize = 10;

async fn is_cut_off_and_named(protocol: &str, lies: Lies) {
    for _ in 0..CASTS_MAX {
        if has_lied_and_was_named(protocol, lies).await {
            return;
        }
    }
    panic!("no node asked the rogue");
}

/// Casts once, with a rogue; false if no node asked it for anything.
async fn has_lied_and_was_named(protocol: &str, lies: Lies) -> bool {
    let scene = Scene::with_tree(HOSTS);
    std::fs::write(scene.source().join("more"), noise(1000, 3_000_000)).unwrap();
    let lied = Arc::new(AtomicU64::new(0));
    let count = lied.clone();
    let rogue = Agent::other(move |stream| liar::play(stream, lies, count.clone()));
    let mut request = scene.request(protocol);
    // Small blocks, so that each node has something that others lack; and where the manifest is to
    // be fetched, so many that it is.
    request.asked.block_bytes = Some(match lies {
        Lies::Object => 64 << 10,
        Lies::Manifest => 1 << 10,
    });
    let launcher = InProcess::new().with(ROGUE, rogue);
    let report = scene.cast_as(request, launcher).await;
    for host in (0..HOSTS).filter(|host| *host != ROGUE) {
        assert!(report.hosts[host].verified, "{report:#?}");
        scene.assert_copy(host);
    }
    let (accusations, others): (Vec<_>, Vec<_>) = report
        .notices
        .iter()
        .partition(|notice| notice.contains("wrong bytes"));
    let of_rogue = |notice: &&String| notice.starts_with("host0 sent wrong bytes for block ");
    assert!(accusations.iter().all(of_rogue), "{accusations:#?}");
    // Whatever else is worth a line is about the rogue, too.
    let about_rogue = |notice: &&String| notice.contains("host0");
    assert!(others.iter().all(about_rogue), "{others:#?}");
    let has_lied = lied.load(Ordering::Relaxed) > 0;
    assert_eq!(!accusations.is_empty(), has_lied, "{report:#?}");
    has_lied
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
