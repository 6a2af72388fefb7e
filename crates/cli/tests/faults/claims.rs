//! Two casts to one destination: one runs, and the other is refused on all hosts or waits.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::harness::{Cast, Cluster, Report, wait_for, wait_until};
use crate::support::{Ran, same};

/// A tree with the names and the sizes of the source's small files, and other bytes.
fn other_tree(cluster: &Cluster, name: &str, byte: u8) -> PathBuf {
    let tree = cluster.aside().join(name);
    fs::create_dir_all(tree.join("small")).unwrap();
    for n in 0..40 {
        let bytes = vec![byte; 1 + n * 97];
        fs::write(tree.join(format!("small/{n}")), bytes).unwrap();
    }
    tree
}

fn big_file(cluster: &Cluster, name: &str, byte: u8, mib: usize) -> PathBuf {
    let file = cluster.aside().join(name);
    fs::write(&file, vec![byte; mib << 20]).unwrap();
    file
}

/// A cast of the source that has begun to move.
fn first(cluster: &Cluster, protocol: &str) -> Cast {
    let mut cast = cluster.begin(protocol, &[]);
    cluster.wait_for_share(&mut cast, 0, 0.1);
    cast
}

/// The same, but it takes longer than the agents of another cast wait for its end.
fn long_first(cluster: &Cluster, hosts: impl IntoIterator<Item = usize>) -> Cast {
    let long = ["--protocol", "swarm", "--limit", "3 MB/s"];
    let hosts: Vec<usize> = hosts.into_iter().collect();
    let mut command = cluster.command_to(&cluster.source, hosts.clone(), "copy", &long);
    let mut cast = Cast::start(&mut command);
    cluster.wait_for_share(&mut cast, hosts[0], 0.05);
    cast
}

/// Asserts that a cast to some hosts is refused on all of them for the sake of one called `first`.
#[track_caller]
fn assert_refused(command: &mut Command, first: &str) -> Report {
    assert_was_refused(Cast::start(command).end(), first)
}

/// The same, of one that has ended.
#[track_caller]
fn assert_was_refused(ran: Ran, first: &str) -> Report {
    let report = Report::of(ran, 1);
    let errors = report.errors();
    for error in &errors {
        assert!(error.contains(&format!("the cast of {first} (")), "{error}");
        assert!(error.contains("is writing "), "{error}");
        assert!(
            error.ends_with("; wait until it is over, or use --wait"),
            "{error}"
        );
    }
    let own = errors
        .iter()
        .filter(|error| !error.starts_with("refused: "));
    assert_eq!(own.count(), 1, "{errors:?}");
    report
}

#[track_caller]
fn names(dir: &Path) -> Vec<String> {
    let entries = fs::read_dir(dir).unwrap();
    let name = |entry: std::io::Result<fs::DirEntry>| {
        entry.unwrap().file_name().to_string_lossy().into_owned()
    };
    entries.map(name).collect()
}

#[test]
fn a_second_object_is_refused_while_the_first_moves() {
    let cluster = Cluster::new(3);
    let other = other_tree(&cluster, "other", 7);
    let mut cast = long_first(&cluster, cluster.hosts());
    let report = assert_refused(
        &mut cluster.command_to(&other, cluster.hosts(), "copy", &[]),
        "source",
    );
    assert_eq!(report.errors().len(), 3);
    let notices: Vec<_> = report.notices().collect();
    assert_eq!(
        notices.len(),
        1,
        "said once, before it is refused: {notices:?}"
    );
    assert!(
        notices[0].contains(" waits: the cast of source (") && notices[0].contains("is writing "),
        "{notices:?}"
    );
    cast.assert_runs();
    Report::of(cast.end(), 0).assert_verified(&cluster, cluster.hosts());
    // Now the place is free.
    let again = cluster
        .command_to(&other, cluster.hosts(), "copy", &[])
        .output();
    assert!(again.unwrap().status.success());
    for host in cluster.hosts() {
        same(&other.join("small"), &cluster.copy(host).join("small"));
    }
}

#[test]
fn of_two_files_that_start_together_no_mix_is_made() {
    let cluster = Cluster::new(6);
    let sources = [1, 2].map(|byte| big_file(&cluster, &format!("image{byte}"), byte, 12));
    // Each takes longer than the agents of the other wait.
    let limit = ["--limit", "10 Mbit/s"];
    let casts = sources.each_ref().map(|source| {
        let mut command = cluster.command_to(source, cluster.hosts(), "image", &limit);
        Cast::start(&mut command)
    });
    let codes = casts.map(|cast| cast.end().code);
    assert!(
        codes.contains(&Some(0)) || codes == [Some(1); 2],
        "{codes:?}"
    );
    assert_ne!(codes, [Some(0); 2]);
    let winner = codes.iter().position(|code| *code == Some(0));
    for host in cluster.hosts() {
        let copy = fs::read(cluster.root(host).join("image")).ok();
        let right = winner.map(|winner| fs::read(&sources[winner]).unwrap());
        assert!(copy == right, "host {host}, {codes:?}");
    }
}

#[test]
fn a_tree_in_another_is_refused_in_both_orders() {
    let cluster = Cluster::new(2);
    let inner = cluster.aside().join("inner");
    fs::create_dir(&inner).unwrap();
    fs::write(inner.join("big"), vec![1; 24 << 20]).unwrap();
    let limit = ["--limit", "1500 kB/s"];

    let mut outer = long_first(&cluster, cluster.hosts());
    let places = ["copy/large", "copy/not/there"];
    let casts = places.map(|place| {
        let mut command = cluster.command_to(&inner, [0], place, &[]);
        Cast::start(&mut command)
    });
    for ran in casts.map(Cast::end) {
        outer.assert_runs();
        assert_eq!(ran.code, Some(1), "{ran:?}; first: {}", outer.said());
        assert_was_refused(ran, "source");
    }
    Report::of(outer.end(), 0).assert_verified(&cluster, cluster.hosts());
    assert!(!cluster.copy(0).join("not").exists());

    let mut to_inner = cluster.command_to(&inner, [0], "copy/large", &limit);
    let mut within = Cast::start(&mut to_inner);
    let state = cluster.copy(0).join("large/.outpour");
    wait_until("the inner cast's state", || {
        within.assert_runs();
        names_of_states(&state) > 0
    });
    assert_refused(&mut cluster.command(&[]), "inner");
    within.assert_runs();
    assert_eq!(within.end().code, Some(0));
    let copy = cluster.copy(0).join("large/big");
    assert!(fs::read(copy).unwrap() == fs::read(inner.join("big")).unwrap());
}

/// How many transfers have a state there.
fn names_of_states(dir: &Path) -> usize {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    entries.filter(|entry| entry.path().is_dir()).count()
}

#[test]
fn two_files_go_side_by_side_into_one_directory() {
    let cluster = Cluster::new(2);
    let (one, two) = (
        big_file(&cluster, "one", 1, 16),
        big_file(&cluster, "two", 2, 16),
    );
    let limit = ["--limit", "8 MB/s"];
    for host in cluster.hosts() {
        fs::create_dir(cluster.copy(host)).unwrap();
    }
    let cast = |source: &Path| {
        Cast::start(&mut cluster.command_to(source, cluster.hosts(), "copy", &limit))
    };
    let (mut first, mut second) = (cast(&one), cast(&two));
    wait_until("both at work", || {
        first.assert_runs();
        second.assert_runs();
        names_of_states(&cluster.copy(0).join(".outpour")) == 2
    });
    assert_eq!(first.end().code, Some(0));
    assert_eq!(second.end().code, Some(0));
    for host in cluster.hosts() {
        let copy = cluster.copy(host);
        assert!(fs::read(copy.join("one")).unwrap() == fs::read(&one).unwrap());
        assert!(fs::read(copy.join("two")).unwrap() == fs::read(&two).unwrap());
        assert_eq!(names(&copy).len(), 2);
    }
}

#[test]
fn a_refusal_on_one_host_is_one_on_all_and_leaves_nothing() {
    const HELD: usize = 1;
    let cluster = Cluster::new(3);
    let other = other_tree(&cluster, "other", 7);
    let mut first = long_first(&cluster, [HELD]);
    let mut second = cluster.command_to(&other, cluster.hosts(), "copy", &[]);
    let report = assert_refused(&mut second, "source");
    for free in cluster.others(HELD) {
        let expected = format!("refused: {}: ", cluster.name(HELD));
        assert!(report.error(free).starts_with(&expected));
        assert_eq!(report.number(free, "received_bytes"), 0);
        wait_until("nothing left", || names(cluster.root(free)).is_empty());
    }
    first.assert_runs();
    Report::of(first.end(), 0);
    cluster.assert_copy(HELD);
}

#[test]
fn who_waits_gets_its_turn() {
    let cluster = Cluster::new(3);
    let other = other_tree(&cluster, "other", 7);
    let mut cast = first(&cluster, "swarm");
    let mut waiting =
        Cast::start(&mut cluster.command_to(&other, cluster.hosts(), "copy", &["--wait"]));
    wait_for("word of it", || {
        let said = waiting.said();
        let line = said.lines().find(|line| line.contains("waiting for "));
        line.map(|line| assert!(line.contains("the cast of source ("), "{line}"))
    });
    cast.assert_runs();
    waiting.assert_runs();
    Report::of(cast.end(), 0);
    let report = Report::of(waiting.end(), 0);
    assert_eq!(report.notices().count(), 1, "said once");
    for host in cluster.hosts() {
        same(&other.join("small"), &cluster.copy(host).join("small"));
        same(
            &cluster.source.join("large"),
            &cluster.copy(host).join("large"),
        );
    }
    cluster.wait_for_peace();
}

#[test]
fn who_waits_can_be_interrupted() {
    let cluster = Cluster::new(2);
    let other = other_tree(&cluster, "other", 7);
    let cast = first(&cluster, "swarm");
    let waiting =
        Cast::start(&mut cluster.command_to(&other, cluster.hosts(), "copy", &["--wait"]));
    wait_until("word of it", || waiting.said().contains("waiting for "));
    waiting.signal("INT");
    assert_eq!(waiting.end().code, Some(1));
    Report::of(cast.end(), 0).assert_verified(&cluster, cluster.hosts());
}

/// While a third cast holds one host, two come to all of them at once. If they kept what they got
/// meanwhile, each would soon have hosts for which the other one waits.
#[test]
fn two_that_wait_for_each_other_finish_both() {
    let cluster = Cluster::new(6);
    let trees = [1, 2].map(|byte| other_tree(&cluster, &format!("tree{byte}"), byte));
    for round in 0..2 {
        let held = big_file(&cluster, &format!("held{round}"), 9, 16);
        fs::create_dir_all(cluster.copy(0)).unwrap();
        let limit = ["--limit", "8 MB/s"];
        let third = Cast::start(&mut cluster.command_to(&held, [0], "copy/", &limit));
        let state = cluster.copy(0).join(".outpour");
        wait_until("the third at work", || names_of_states(&state) > 0);
        let casts = trees.each_ref().map(|tree| {
            let mut command = cluster.command_to(tree, cluster.hosts(), "copy", &["--wait"]);
            Cast::start(&mut command)
        });
        assert_eq!(third.end().code, Some(0));
        for cast in casts {
            Report::of(cast.end(), 0);
        }
        let last = fs::read(cluster.copy(0).join("small/1")).unwrap()[0];
        let last = trees[usize::from(last) - 1].join("small");
        for host in cluster.hosts() {
            same(&last, &cluster.copy(host).join("small"));
        }
    }
}

#[test]
fn what_a_killed_command_held_is_soon_free() {
    let cluster = Cluster::new(3);
    let other = other_tree(&cluster, "other", 7);
    let cast = first(&cluster, "chain");
    cast.signal("KILL");
    assert_eq!(cast.end().code, None);
    let next = cluster
        .command_to(&other, cluster.hosts(), "copy", &["--wait"])
        .output();
    assert!(next.unwrap().status.success());
    for host in cluster.hosts() {
        same(&other.join("small"), &cluster.copy(host).join("small"));
    }
    // The same command need not be told to wait.
    let cast = first(&cluster, "chain");
    cast.signal("KILL");
    assert_eq!(cast.end().code, None);
    let same_again = Report::of(cluster.begin("chain", &[]).end(), 0);
    same_again.assert_verified(&cluster, cluster.hosts());
}
