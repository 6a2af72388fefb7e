//! Casts by gossip: coded in batches, and block by block.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use outpour_agent::Wrap;
use outpour_agent::cast::CastRequest;
use outpour_agent::view::CastReport;
use outpour_core::Rate;
use outpour_protocols::gossip::{self, Schedule};

use crate::liar::{self, Lies};
use crate::spoiler::Spoiler;
use crate::support::{Agent, InProcess, Scene, noise};

const HOSTS: usize = 4;

/// Small blocks and batches, so that there is something to pass on.
fn request(scene: &Scene, protocol: &str) -> CastRequest {
    let mut request = scene.request(protocol);
    request.asked.block_bytes = Some(32 << 10);
    request.asked.batch_blocks = Some(12);
    request
}

fn assert_copies(scene: &Scene, report: &CastReport) {
    assert!(report.verified(), "{report:#?}");
    assert_eq!(report.notices, [""; 0], "{report:#?}");
    (0..report.hosts.len()).for_each(|host| scene.assert_copy(host));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tree_reaches_everybody_in_packets() {
    let scene = Scene::with_tree(HOSTS);
    let request = request(&scene, "coded-gossip");
    let report = scene.cast_as(request, InProcess::new()).await;
    assert_copies(&scene, &report);
    let coding = report.coding.as_ref().unwrap();
    assert_eq!((coding.batch_blocks, coding.encoders), (12, 1));
    assert!(coding.packets > 0 && coding.zero == 0, "{coding:?}");
    assert!(coding.encode_s > 0.0 && coding.decode_s > 0.0, "{coding:?}");
    let received: u64 = report.hosts.iter().map(|host| host.received_bytes).sum();
    assert!(received >= HOSTS as u64 * report.size_bytes, "{report:#?}");
    assert!(coding.overhead_bytes > 12 * coding.packets, "{coding:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn every_schedule_and_any_batch_will_do() {
    for (schedule, batch_blocks, encoders) in [
        (Schedule::Sequential, 5, 2),
        (Schedule::Overlap1, 64, 1),
        (Schedule::Overlap2, 3, 3),
        (Schedule::Stream, 1, 1),
        (Schedule::Stream, 256, 2),
    ] {
        let scene = Scene::with_tree(2);
        let mut request = request(&scene, "coded-gossip");
        request.asked.block_bytes = Some(128 << 10);
        request.asked.options = gossip::asked(&gossip::GossipOptions {
            schedule,
            ..gossip::GossipOptions::default()
        });
        request.asked.batch_blocks = Some(batch_blocks);
        request.asked.encoders = encoders;
        let report = scene.cast_as(request, InProcess::new()).await;
        assert_copies(&scene, &report);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn without_coding_blocks_are_passed_on() {
    let scene = Scene::with_tree(HOSTS);
    let mut request = request(&scene, "random-block");
    request.asked.batch_blocks = None;
    request.asked.options = gossip::asked(&gossip::GossipOptions {
        map_every: 3,
        ..gossip::GossipOptions::default()
    });
    let report = scene.cast_as(request, InProcess::new()).await;
    assert_copies(&scene, &report);
    assert!(report.coding.is_none());
}

#[tokio::test(flavor = "multi_thread")]
async fn the_size_of_batches_is_chosen_and_explained() {
    let scene = Scene::with_tree(2);
    let mut request = scene.request("coded-gossip");
    request.asked.limit = Rate::from_bytes_per_s(50e6).unwrap();
    let report = scene.cast_as(request, InProcess::new()).await;
    assert_copies(&scene, &report);
    assert!(
        report.why.contains("are coded together; above k* = "),
        "{}",
        report.why
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn what_changed_alone_is_sent_again() {
    let scene = Scene::with_tree(HOSTS);
    let first = scene.cast_as(request(&scene, "coded-gossip"), InProcess::new());
    assert_copies(&scene, &first.await);
    let large = scene.source().join("large");
    let mut bytes = std::fs::read(&large).unwrap();
    bytes[1_000_000..1_400_000].copy_from_slice(&noise(77, 400_000));
    std::fs::write(&large, bytes).unwrap();
    // One host has lost more than the others.
    let lost = scene.destination(2).join("large");
    std::fs::write(&lost, &std::fs::read(&lost).unwrap()[..2_000_000]).unwrap();
    let second = scene.cast_as(request(&scene, "coded-gossip"), InProcess::new());
    let second = second.await;
    assert_copies(&scene, &second);
    let resumed = |host: usize| second.hosts[host].resumed_bytes;
    assert!(resumed(0) > second.size_bytes - 600_000, "{second:#?}");
    assert!(resumed(2) < resumed(0) - 2_500_000, "{second:#?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn who_sends_wrong_packets_is_cut_off_and_named_alone() {
    const ROGUE: usize = 1;
    let scene = Scene::with_tree(HOSTS);
    let lied = Arc::new(AtomicU64::new(0));
    let count = lied.clone();
    let rogue = Agent::other(move |stream| liar::play(stream, Lies::Object, count.clone()));
    let mut request = request(&scene, "coded-gossip");
    // Slow enough for the others to need what the rogue offers.
    request.asked.limit = Rate::from_bytes_per_s(3e6).unwrap();
    request.patience = Duration::from_secs(10);
    let launcher = InProcess::new().with(ROGUE, rogue);
    let report = scene.cast_as(request, launcher).await;
    assert!(
        lied.load(Ordering::Relaxed) > 0,
        "no node asked the rogue: {report:#?}"
    );
    for host in (0..HOSTS).filter(|host| *host != ROGUE) {
        assert!(report.hosts[host].verified, "{report:#?}");
        scene.assert_copy(host);
    }
    let accusations = report
        .notices
        .iter()
        .filter(|notice| notice.contains("wrong"));
    assert!(accusations.count() > 0, "{:#?}", report.notices);
    let rest = report.notices.iter();
    let mut rest = rest.filter(|notice| !notice.contains("host1"));
    assert_eq!(rest.next(), None, "{:#?}", report.notices);
}

/// A small cast may be over before a wrong packet proves anything; so many in a row are not.
const CASTS_MAX: usize = 10;

#[tokio::test(flavor = "multi_thread")]
async fn who_passes_on_some_wrong_packets_is_named_alone() {
    for _ in 0..CASTS_MAX {
        if was_named_for_some_wrong_packets().await {
            return;
        }
    }
    panic!("no node ever found out");
}

/// Casts once with an agent that is honest in three packets of four; false if no node was accused.
async fn was_named_for_some_wrong_packets() -> bool {
    const NINE: usize = 9;
    const ROGUE: usize = 3;
    let scene = Scene::with_tree(NINE);
    let mut request = request(&scene, "coded-gossip");
    // Slow enough for each node to need what all the others offer.
    request.asked.limit = Rate::from_bytes_per_s(3e6).unwrap();
    let wrap = Wrap::new(|object| Arc::new(Spoiler::new(object, 4)));
    let launcher = InProcess::new().with(ROGUE, Agent::Wrapped(wrap));
    let report = scene.cast_as(request, launcher).await;
    for host in (0..NINE).filter(|host| *host != ROGUE) {
        assert!(report.hosts[host].verified, "{report:#?}");
        scene.assert_copy(host);
    }
    let accuses = |notice: &&String| notice.contains(" (reported by host");
    let accusations: Vec<_> = report.notices.iter().filter(accuses).collect();
    for notice in &accusations {
        let of_rogue = "host3 sent wrong packets of batch ";
        assert!(notice.starts_with(of_rogue), "{:#?}", report.notices);
    }
    !accusations.is_empty()
}
