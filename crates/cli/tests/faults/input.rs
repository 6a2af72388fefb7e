//! Bad input: one clear line each, and the others are served where that makes sense.

use std::fs::{self, File, FileTimes};
use std::os::unix::fs::FileExt;

use crate::harness::{Cast, Cluster, Report, system};

#[test]
fn a_file_where_the_tree_belongs_stays_and_is_named() {
    let cluster = Cluster::new(3);
    fs::write(cluster.copy(1), "mine").unwrap();
    let report = Report::of(cluster.begin("chain", &[]).end(), 1);
    report.assert_verified(&cluster, cluster.others(1));
    let expected = format!(
        "{}: a file where a directory belongs",
        cluster.copy(1).display()
    );
    assert_eq!(report.error(1), expected);
    assert_eq!(fs::read_to_string(cluster.copy(1)).unwrap(), "mine");
}

#[test]
fn a_directory_where_a_file_belongs_stays_and_is_named() {
    let cluster = Cluster::new(2);
    let taken = cluster.copy(1).join("large/03");
    fs::create_dir_all(taken.join("mine")).unwrap();
    let report = Report::of(cluster.begin("swarm", &[]).end(), 1);
    report.assert_verified(&cluster, [0]);
    let expected = format!("{}: a directory where a file belongs", taken.display());
    assert_eq!(report.error(1), expected);
    assert!(taken.join("mine").is_dir());
}

#[test]
fn an_agent_that_is_not_there_is_named() {
    let mut cluster = Cluster::new(3);
    cluster.kill(2);
    let mut command = cluster.command(&["nowhere.invalid:/srv/copy"]);
    let report = Report::of(Cast::start(&mut command).end(), 1);
    report.assert_verified(&cluster, [0, 1]);
    assert_eq!(
        report.error(2),
        format!(
            "connection refused ({}); is `outpour agent` running there?",
            cluster.name(2)
        )
    );
    let error = report.error(3);
    assert!(error.contains("unknown host"), "{error}");
}

#[test]
fn a_source_that_is_missing_disturbs_nobody() {
    let cluster = Cluster::new(1);
    fs::remove_dir_all(&cluster.source).unwrap();
    let ran = Cast::start(&mut cluster.command(&[])).end().expect(1);
    let line = format!(
        "{}: cannot read the source: No such file or directory (os error 2)",
        cluster.source.display()
    );
    assert_eq!(ran.err, format!("outpour: {line}"));
    assert_eq!(ran.json()["error"], line);
    assert!(!cluster.copy(0).exists());
}

/// Changes one file of the source in the middle of a cast, as `change` does.
fn source_changes_meanwhile(protocol: &str, change: fn(&File, u64)) {
    let cluster = Cluster::new(2);
    let before = cluster.aside().join("before");
    let copied = system("cp", &["-a", path(&cluster.source), path(&before)]);
    assert!(copied);
    let mut cast = cluster.begin(protocol, &["--patience", "3 s"]);
    cluster.wait_for_share(&mut cast, 0, 0.3);
    let changed = cluster.source.join("large/11");
    let file = File::options().write(true).open(&changed).unwrap();
    // A file of the end, and the end of the file: a chain has not come so far.
    change(&file, 4_000_000);
    drop(file);
    let first = Report::of(cast.end(), 1);
    let line = format!(
        "{}: the file changed after it was hashed",
        changed.display()
    );
    let notice = format!(
        "the source: {line}; no source is left, so hosts finish only if together they have every block"
    );
    // So no host is accused of anything.
    assert_eq!(first.notices().collect::<Vec<_>>(), [notice]);
    for host in cluster.hosts() {
        let error = first.error(host);
        let cause = format!("; the source is lost: {line}; run the command again");
        assert!(error.ends_with(&cause), "{error}");
        let missing = [" MB missing; ", " of 385 blocks are on no remaining host ("];
        assert!(missing.iter().any(|word| error.contains(word)), "{error}");
        cluster.assert_nothing_half(host, &before);
        assert!(!cluster.copy(host).join("large/11").exists());
    }

    let second = Report::of(cluster.begin(protocol, &[]).end(), 0);
    second.assert_verified(&cluster, cluster.hosts());
    for host in cluster.hosts() {
        assert!(second.number(host, "resumed_bytes") > 0);
    }
}

#[test]
fn a_source_that_changes_meanwhile_is_named_and_nothing_of_it_is_mixed() {
    source_changes_meanwhile("chain", |file, at| file.write_all_at(b"?", at).unwrap());
}

/// What `touch -r` hides from a program that looks at sizes and times alone.
fn overwrite_and_hide(file: &File, at: u64) {
    let before = file.metadata().unwrap();
    // Over the end of one block and the beginning of the next.
    file.write_all_at(&vec![0x5a; 150_000], at).unwrap();
    let times = FileTimes::new().set_modified(before.modified().unwrap());
    file.set_times(times).unwrap();
    let after = file.metadata().unwrap();
    assert_eq!(after.len(), before.len());
    assert_eq!(after.modified().unwrap(), before.modified().unwrap());
}

#[test]
fn a_source_overwritten_under_its_old_time_is_named_too() {
    source_changes_meanwhile("chain", overwrite_and_hide);
}

#[test]
fn a_source_of_a_coded_gossip_overwritten_under_its_old_time_is_named_too() {
    source_changes_meanwhile("coded-gossip", overwrite_and_hide);
}

fn path(path: &std::path::Path) -> &str {
    path.to_str().unwrap()
}
