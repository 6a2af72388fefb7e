//! Casts of what other hosts have, and from several sources.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use outpour_agent::cast::{CastRequest, HostSpec, Origin, dry_run, run};
use outpour_agent::control::{AgentSays, CommandSays, Greeting, read_frame, write_frame};
use outpour_agent::view::{CastReport, Phase};
use outpour_core::Rate;

use tokio::sync::watch;

use super::support::{Agent, InProcess, Scene, first_view, noise};

/// A host that has the object there.
fn holder(name: &str, path: &Path) -> HostSpec {
    HostSpec {
        name: name.to_owned(),
        path: path.to_path_buf(),
        cluster: None,
    }
}

/// A cast from a host that is not the command's.
fn elsewhere(scene: &Scene, protocol: &str) -> CastRequest {
    CastRequest {
        origin: Origin::Host(holder("origin", &scene.source())),
        ..scene.request(protocol)
    }
}

/// Slow enough that every source is read before the end.
fn slowly(mut request: CastRequest) -> CastRequest {
    request.asked.limit = "2 MB/s".parse().unwrap();
    request
}

/// A copy of the source with all that a manifest says of it.
fn copy(scene: &Scene, name: &str) -> PathBuf {
    let to = scene.dir.path().join(name);
    let mut command = Command::new("cp");
    command.arg("-a").args([&scene.source(), &to]);
    assert!(command.status().unwrap().success());
    to
}

#[track_caller]
fn all_verified(scene: &Scene, hosts: usize, report: &CastReport) {
    assert!(report.verified(), "{report:?}");
    (0..hosts).for_each(|host| scene.assert_copy(host));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_another_host_has_is_cast_by_every_protocol() {
    for protocol in ["direct", "chain", "swarm", "robber", "coded-gossip", "auto"] {
        let scene = Scene::with_tree(3);
        let report = scene
            .cast_as(elsewhere(&scene, protocol), InProcess::new())
            .await;
        all_verified(&scene, 3, &report);
        assert!(
            report.notices.is_empty(),
            "{protocol}: {:?}",
            report.notices
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_single_file_keeps_the_name_that_its_source_has() {
    let scene = Scene::new(2);
    let file = scene.dir.path().join("image.bin");
    fs::write(&file, noise(3, 3_000_000)).unwrap();
    let mut request = elsewhere(&scene, "auto");
    request.origin = Origin::Host(holder("origin", &file));
    for host in 0..2 {
        fs::create_dir_all(scene.destination(host)).unwrap();
    }
    let report = scene.cast_as(request, InProcess::new()).await;
    assert!(report.verified(), "{report:?}");
    for host in 0..2 {
        let copy = scene.destination(host).join("image.bin");
        assert_eq!(fs::read(copy).unwrap(), fs::read(&file).unwrap());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn all_that_have_it_serve_it_and_one_with_another_version_is_left_out() {
    let scene = Scene::with_tree(2);
    let (same, other) = (copy(&scene, "same"), copy(&scene, "other"));
    fs::write(other.join("small/7"), b"another version").unwrap();
    let mut request = slowly(scene.request("swarm"));
    request.holders = vec![holder("same", &same), holder("other", &other)];
    let report = scene.cast_as(request, InProcess::new()).await;
    all_verified(&scene, 2, &report);
    let expected = "other: has another version of the object and is left out";
    assert_eq!(report.notices, [expected]);
}

#[tokio::test(flavor = "multi_thread")]
async fn other_times_and_modes_make_no_other_version() {
    let scene = Scene::with_tree(1);
    let same = copy(&scene, "same");
    let touched = Command::new("touch").arg(same.join("large")).status();
    assert!(touched.unwrap().success());
    let mut request = slowly(scene.request("swarm"));
    request.holders = vec![holder("same", &same)];
    let report = scene.cast_as(request, InProcess::new()).await;
    all_verified(&scene, 1, &report);
    assert!(report.notices.is_empty(), "{:?}", report.notices);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_origin_that_cannot_be_read_ends_the_cast_with_its_reason() {
    let scene = Scene::with_tree(1);
    let mut request = elsewhere(&scene, "auto");
    request.origin = Origin::Host(holder("origin", &scene.dir.path().join("nowhere")));
    let error = scene.try_cast(request, InProcess::new()).await.unwrap_err();
    let error = error.to_string();
    assert!(
        error.starts_with("origin: ") && error.contains("nowhere"),
        "{error}"
    );
    let refused = InProcess::new().with(0, Agent::Refused);
    let request = elsewhere(&scene, "auto");
    let error = scene.try_cast(request, refused).await.unwrap_err();
    assert_eq!(error.to_string(), "origin: connection refused");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_further_source_that_cannot_be_reached_is_done_without() {
    let scene = Scene::with_tree(1);
    let mut request = slowly(scene.request("swarm"));
    request.holders = vec![holder("gone", &scene.source())];
    let launcher = InProcess::new().with(0, Agent::Refused);
    let report = scene.cast_as(request, launcher).await;
    all_verified(&scene, 1, &report);
    assert_eq!(report.notices, ["gone: connection refused"]);
}

/// The object is on two hosts that are not the command's; the first is called `origin`.
fn on_two(scene: &Scene, protocol: &str) -> CastRequest {
    CastRequest {
        holders: vec![holder("second", &scene.source())],
        ..elsewhere(scene, protocol)
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_next_source_stands_in_for_a_first_that_cannot_be_reached() {
    for protocol in ["direct", "chain", "swarm", "robber", "coded-gossip", "auto"] {
        let scene = Scene::with_tree(2);
        let launcher = InProcess::new().with(0, Agent::Refused);
        let report = scene.cast_as(on_two(&scene, protocol), launcher).await;
        all_verified(&scene, 2, &report);
        assert_eq!(report.notices, ["origin: connection refused"], "{protocol}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_next_source_stands_in_for_a_first_that_lacks_the_object() {
    let scene = Scene::with_tree(2);
    let nowhere = scene.dir.path().join("nowhere");
    let mut request = on_two(&scene, "swarm");
    request.origin = Origin::Host(holder("origin", &nowhere));
    let report = scene.cast_as(request, InProcess::new()).await;
    all_verified(&scene, 2, &report);
    let [notice] = report.notices.as_slice() else {
        panic!("{:?}", report.notices);
    };
    assert!(
        notice.starts_with("origin: ") && notice.contains("nowhere"),
        "{notice}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn the_next_source_stands_in_for_a_first_that_is_lost_while_it_reads() {
    let scene = Scene::with_tree(2);
    // By then the others read in blocks for an object of that size.
    let dies = Agent::other(|mut stream| async move {
        write_frame(&mut stream, &Greeting::new([1; 32]))
            .await
            .unwrap();
        let said = read_frame(&mut stream).await.unwrap();
        assert!(matches!(said, CommandSays::Survey { .. }));
        let size = 10_000_000_000;
        write_frame(&mut stream, &AgentSays::Surveyed { size })
            .await
            .unwrap();
        let said = read_frame(&mut stream).await.unwrap();
        assert!(matches!(said, CommandSays::Hash { .. }));
    });
    let report = scene
        .cast_as(on_two(&scene, "swarm"), InProcess::new().with(0, dies))
        .await;
    all_verified(&scene, 2, &report);
    assert_eq!(report.notices.len(), 1, "{:?}", report.notices);
    assert!(
        report.notices[0].starts_with("origin: its agent ended"),
        "{:?}",
        report.notices
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn who_waits_needs_no_first_source_in_any_attempt() {
    let scene = Scene::with_tree(1);
    let (view, mut seen) = watch::channel(first_view());
    let (_cancel, cancelled) = watch::channel(false);
    let earlier = slowly(scene.request("swarm"));
    let earlier = tokio::spawn(run(earlier, Arc::new(InProcess::new()), view, cancelled));
    let moves = seen.wait_for(|view| view.phase == Phase::Moving).await;
    drop(moves.unwrap());
    let mut request = on_two(&scene, "swarm");
    request.wait = true;
    let launcher = InProcess::new().with(0, Agent::Refused);
    let report = scene.cast_as(request, launcher).await;
    assert!(earlier.await.unwrap().unwrap().verified());
    all_verified(&scene, 1, &report);
    // The host has all from the earlier cast, and may be done before the second source has joined.
    let mut notices = report.notices;
    notices.retain(|line| line != "second: the cast was over before it could serve");
    notices.sort_unstable();
    let [refused, waits] = notices.as_slice() else {
        panic!("{notices:?}");
    };
    assert!(waits.starts_with("waiting for host0: "), "{waits}");
    assert_eq!(refused, "origin: connection refused");
}

#[tokio::test(flavor = "multi_thread")]
async fn if_no_source_can_be_read_each_is_named() {
    let scene = Scene::with_tree(1);
    let launcher = InProcess::new()
        .with(0, Agent::Refused)
        .with(1, Agent::Refused);
    let error = scene.try_cast(on_two(&scene, "auto"), launcher).await;
    assert_eq!(
        error.unwrap_err().to_string(),
        "no source can be read: origin: connection refused; second: connection refused"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dry_run_needs_no_first_source_either() {
    let scene = Scene::with_tree(1);
    let launcher = Arc::new(InProcess::new().with(0, Agent::Refused));
    let (view, _keep) = watch::channel(first_view());
    let (_cancel, cancelled) = watch::channel(false);
    let looked = dry_run(on_two(&scene, "auto"), launcher, view, cancelled);
    let looked = looked.await.unwrap();
    let errors = looked.sources.iter().map(|source| source.error.as_deref());
    assert_eq!(
        errors.collect::<Vec<_>>(),
        [Some("connection refused"), None]
    );
    assert_eq!(looked.hosts[0].lacks_bytes, Some(looked.size_bytes));
    assert!(looked.all_answered() && looked.size_bytes > 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_reads_no_source_outside_its_roots() {
    let scene = Scene::with_tree(1);
    fs::create_dir(scene.dir.path().join("allowed")).unwrap();
    let launcher = InProcess::new().beneath(scene.dir.path().join("allowed"));
    let error = scene.try_cast(elsewhere(&scene, "auto"), launcher).await;
    let error = error.unwrap_err().to_string();
    assert!(
        error.contains("outside") || error.contains("beneath"),
        "{error}"
    );
    // Nor through a link.
    let link = scene.dir.path().join("allowed/link");
    std::os::unix::fs::symlink(scene.source(), &link).unwrap();
    let mut request = elsewhere(&scene, "auto");
    request.origin = Origin::Host(holder("origin", &link));
    let launcher = InProcess::new().beneath(scene.dir.path().join("allowed"));
    let error = scene.try_cast(request, launcher).await.unwrap_err();
    assert!(error.to_string().contains("symlink"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_lies_beneath_its_roots_is_read() {
    let scene = Scene::with_tree(2);
    let launcher = InProcess::new().beneath(scene.dir.path().to_path_buf());
    let report = scene.cast_as(elsewhere(&scene, "chain"), launcher).await;
    all_verified(&scene, 2, &report);
}

/// How many times the object a host received, on average.
fn received(report: &CastReport) -> f64 {
    let bytes: u64 = report.hosts.iter().map(|host| host.received_bytes).sum();
    bytes as f64 / report.size_bytes as f64 / report.hosts.len() as f64
}

#[tokio::test(flavor = "multi_thread")]
async fn what_two_sources_have_comes_once() {
    for (hosts, megabytes, refused, most) in [
        (1, 3, false, 1.02),
        (1, 20, false, 1.02),
        (1, 3, true, 1.0),
        (2, 20, true, 1.03),
        (3, 20, false, 1.025),
    ] {
        let times = times_received(hosts, megabytes, refused).await;
        assert!(times <= most, "{hosts} hosts, {megabytes} MB: {times}");
    }
}

/// Casts from two sources, the second of which may be out of reach, and says how many times the
/// object a host received.
async fn times_received(hosts: usize, megabytes: usize, refused: bool) -> f64 {
    let scene = Scene::new(hosts);
    let file = scene.source();
    fs::write(&file, noise(4, megabytes * 1_000_000)).unwrap();
    let mut request = scene.request("swarm");
    request.holders = vec![holder("too", &file)];
    // The rate, and not the machine, is what delays depend on.
    request.asked.limit = Rate::from_bytes_per_s(10e6).unwrap();
    let mut launcher = InProcess::new();
    if refused {
        launcher = launcher.with(0, Agent::Refused);
    }
    let report = scene.cast_as(request, launcher).await;
    assert!(report.verified(), "{report:?}");
    received(&report)
}
