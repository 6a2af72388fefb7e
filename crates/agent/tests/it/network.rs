//! Casts on a described network: protocols that plan, and those that go by clusters.

use outpour_agent::cast::{CastRequest, run};
use outpour_core::network::Network;
use outpour_core::plan::Tree;
use outpour_core::{NodeId, Plan, Rate};
use outpour_terms::placement::Placement;
use tokio::sync::watch;

use crate::support::{Agent, InProcess, NETWORK, Scene, first_view};

/// The source at a1; hosts across the clusters, in no order.
const AT: [&str; 6] = ["a1", "c1", "b0", "a0", "c0", "b1"];

fn request(scene: &Scene, protocol: &str) -> CastRequest {
    scene.request_at(protocol, &AT)
}

async fn reaches_all_clusters(protocol: &str) {
    let scene = Scene::with_tree(AT.len() - 1);
    let report = scene
        .cast_as(request(&scene, protocol), InProcess::new())
        .await;
    assert!(report.verified(), "{report:#?}");
    (0..AT.len() - 1).for_each(|host| scene.assert_copy(host));
    assert_eq!(
        report.protocol,
        if protocol == "auto" {
            "optimal"
        } else {
            protocol
        }
    );
    // Both other clusters get it at 40 MB/s: from a, and half of it from each other.
    let limit = report.size_bytes as f64 / 40e6;
    let found = report.limit_s.unwrap();
    assert!((found / limit - 1.0).abs() < 0.05, "{found} {limit}");
    assert_eq!(report.ratio, Some(report.finish_s / found));
    assert!(report.transfer_s.unwrap() <= report.finish_s);
}

#[tokio::test(flavor = "multi_thread")]
async fn mob_over_real_agents() {
    reaches_all_clusters("mob").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn robber_over_real_agents() {
    reaches_all_clusters("robber").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn central_over_real_agents() {
    reaches_all_clusters("central").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn balanced_over_real_agents() {
    reaches_all_clusters("balanced").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_known_network_is_planned_for() {
    reaches_all_clusters("auto").await;
}

/// The source to the first host, and from each to the next.
fn line(hosts: u32) -> Plan {
    Plan {
        roots: vec![NodeId(0)],
        trees: vec![Tree {
            rate: Rate::from_bytes_per_s(1e7).unwrap(),
            edges: (0..hosts).map(|n| (NodeId(n), NodeId(n + 1))).collect(),
        }],
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_plan_of_the_users_is_executed_without_a_network() {
    let scene = Scene::with_tree(3);
    let mut request = scene.request("auto");
    request.asked.plan = Some(line(3));
    let report = scene.cast_as(request, InProcess::new()).await;
    assert!(report.verified(), "{report:#?}");
    assert_eq!(
        (report.protocol.as_str(), report.why.as_str()),
        ("tree", "there is a plan")
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_host_that_is_not_there_holds_up_nobody() {
    for protocol in ["mob", "robber", "central", "balanced", "optimal"] {
        let scene = Scene::with_tree(AT.len() - 1);
        let launcher = InProcess::new().with(1, Agent::Refused);
        let report = scene.cast_as(request(&scene, protocol), launcher).await;
        for (host, report) in report.hosts.iter().enumerate() {
            assert_eq!(report.verified, host != 1, "{protocol}: {report:#?}");
        }
    }
}

/// What is said about a request that makes no sense.
async fn refusal(request: CastRequest) -> String {
    let (view, _keep) = watch::channel(first_view());
    let (_cancel, cancelled) = watch::channel(false);
    let launcher = std::sync::Arc::new(InProcess::new());
    let refused = run(request, launcher, view, cancelled).await;
    refused.unwrap_err().to_string()
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_planned_is_said_before_anything_starts() {
    let scene = Scene::with_tree(2);
    let line_of = |hosts| Some(line(hosts));
    let told = refusal(scene.request("balanced")).await;
    assert!(told.contains("--network"), "{told}");
    let told = refusal(scene.request("central")).await;
    assert!(told.contains("--network"), "{told}");
    let told = refusal(scene.request("tree")).await;
    assert!(told.contains("--plan"), "{told}");
    let mut with_plan = scene.request("swarm");
    with_plan.asked.plan = line_of(2);
    let told = refusal(with_plan).await;
    assert!(told.contains("`swarm` does not execute a plan"), "{told}");
    let mut wrong = scene.request("tree");
    wrong.asked.plan = line_of(1);
    let told = refusal(wrong).await;
    assert!(told.contains("does not reach node n2"), "{told}");

    let dead = NETWORK.replace("20 MB/s", "0 MB/s");
    let network = Network::from_toml(&dead, "net.toml").unwrap();
    let at = [NodeId(0), NodeId(1), NodeId(3)];
    let mut cut_off = scene.request("robber");
    cut_off.placement = Some(Placement::new(&network, &at, Rate::UNLIMITED).unwrap());
    let told = refusal(cut_off).await;
    assert!(told.contains("no path from `a0` to `b0`"), "{told}");
}
