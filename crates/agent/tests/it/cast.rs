//! Casts in which all nodes do what they should.

use std::fs;
use std::sync::Arc;
use std::time::{Duration, Instant};

use outpour_agent::cast::dry_run;
use outpour_agent::view::HostState;
use tokio::sync::watch;

use crate::support::{Agent, InProcess, Scene, first_view};

async fn casts_everywhere(protocol: &str) {
    let scene = Scene::with_tree(5);
    let report = scene.cast(protocol, InProcess::new()).await;
    assert!(report.verified(), "{report:#?}");
    for host in 0..5 {
        scene.assert_copy(host);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn direct_brings_a_tree_to_every_host() {
    casts_everywhere("direct").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn chain_brings_a_tree_to_every_host() {
    casts_everywhere("chain").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn swarm_brings_a_tree_to_every_host() {
    casts_everywhere("swarm").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_host_that_does_not_start_is_reported_and_the_others_are_served() {
    let scene = Scene::with_tree(4);
    let report = scene
        .cast("auto", InProcess::new().with(1, Agent::Refused))
        .await;
    for (host, entry) in report.hosts.iter().enumerate() {
        assert_eq!(entry.verified, host != 1, "{entry:?}");
    }
    assert_eq!(report.hosts[1].state, HostState::Failed);
    assert_eq!(report.hosts[1].error.as_deref(), Some("connection refused"));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_there_is_not_sent_again() {
    let scene = Scene::with_tree(2);
    assert!(scene.cast("chain", InProcess::new()).await.verified());
    let again = scene.cast("chain", InProcess::new()).await;
    assert!(again.verified(), "{again:#?}");
    for host in &again.hosts {
        assert_eq!(host.received_bytes, 0, "{host:?}");
        assert_eq!(host.resumed_bytes, again.size_bytes, "{host:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn of_a_changed_file_only_the_changed_blocks_are_sent() {
    let scene = Scene::with_tree(2);
    assert!(scene.cast("swarm", InProcess::new()).await.verified());
    let mut large = fs::read(scene.source().join("large")).unwrap();
    large[3_000_000] ^= 1;
    fs::write(scene.source().join("large"), large).unwrap();
    let again = scene.cast("swarm", InProcess::new()).await;
    assert!(again.verified(), "{again:#?}");
    for (index, host) in again.hosts.iter().enumerate() {
        assert!(
            host.received_bytes > 0 && host.received_bytes < 100_000,
            "{host:?}"
        );
        scene.assert_copy(index);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_writes_only_beneath_its_roots() {
    let scene = Scene::with_tree(1);
    let elsewhere = scene.dir.path().join("elsewhere");
    fs::create_dir(&elsewhere).unwrap();
    let report = scene
        .cast("direct", InProcess::new().beneath(elsewhere))
        .await;
    let error = report.hosts[0].error.clone().unwrap_or_default();
    assert!(error.contains("writes only beneath"), "{error}");
    assert!(!scene.destination(0).exists());
}

#[tokio::test(flavor = "multi_thread")]
async fn an_empty_tree_and_an_empty_file_arrive() {
    let scene = Scene::new(2);
    fs::create_dir(scene.source()).unwrap();
    let report = scene.cast("swarm", InProcess::new()).await;
    assert!(report.verified(), "{report:#?}");
    assert!(scene.destination(1).is_dir());

    let scene = Scene::new(2);
    fs::write(scene.source(), b"").unwrap();
    let report = scene.cast("chain", InProcess::new()).await;
    assert!(report.verified(), "{report:#?}");
    assert_eq!(fs::read(scene.destination(0)).unwrap(), b"");
}

#[tokio::test(flavor = "multi_thread")]
async fn two_names_of_one_place_fail_at_once_with_both_names() {
    let scene = Scene::with_tree(2);
    let (real, alias) = (scene.destination(0), scene.dir.path().join("host1"));
    fs::create_dir_all(real.parent().unwrap()).unwrap();
    std::os::unix::fs::symlink(real.parent().unwrap(), &alias).unwrap();
    let mut request = scene.request("swarm");
    // It would wait for the end of another cast.
    request.wait = true;
    let begun = Instant::now();
    let report = scene.cast_as(request, InProcess::new()).await;
    assert!(begun.elapsed() < Duration::from_secs(5));
    let (first, second) = match report.hosts[0].verified {
        true => (0, 1),
        false => (1, 0),
    };
    assert!(report.hosts[first].verified, "{report:#?}");
    assert!(report.notices.is_empty(), "{:?}", report.notices);
    let error = report.hosts[second].error.clone().unwrap_or_default();
    let path = |host| scene.destination(host).display().to_string();
    assert_eq!(
        error,
        format!(
            "{}: leads to the same place as {} of host{first}; name each place once",
            path(second),
            path(first)
        )
    );
    scene.assert_copy(first);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dry_run_names_hosts_on_which_the_cast_would_fail() {
    let scene = Scene::with_tree(2);
    // A file is where a directory has to be made.
    fs::write(scene.destination(1).parent().unwrap(), b"").unwrap();
    let request = scene.request("auto");
    let (view, _keep) = watch::channel(first_view());
    let (_cancel, cancelled) = watch::channel(false);
    let launcher = Arc::new(InProcess::new());
    let looked = dry_run(request.clone(), launcher, view, cancelled).await;
    let looked = looked.unwrap();
    assert!(!looked.all_answered());
    assert_eq!(looked.hosts[0].error, None);
    let error = looked.hosts[1].error.clone().unwrap_or_default();
    assert!(
        error.contains("a file where a directory belongs"),
        "{error}"
    );
    assert!(!scene.destination(0).parent().unwrap().exists());
    // A relay needs a place, too.
    let mut request = request;
    request.relays = request.hosts.split_off(1);
    let (view, _keep) = watch::channel(first_view());
    let (_cancel, cancelled) = watch::channel(false);
    let launcher = Arc::new(InProcess::new());
    let looked = dry_run(request, launcher, view, cancelled).await.unwrap();
    assert_eq!(looked.relays[0].error.as_deref(), Some(error.as_str()));
    assert!(looked.all_answered());
}
