//! Sources that are lost, or lose the object, in the middle of a cast: each is named, and the hosts get
//! the object from the others.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use crate::harness::{Cast, Cluster, Report, system};
use crate::support::same;

/// Which hosts get the object, and which have it: the first of these says what it is.
const RECEIVERS: [usize; 2] = [0, 1];
const ORIGIN: usize = 2;
const HELPER: usize = 3;

/// What a notice about a source that was lost ends with.
const GOES_ON: &str = "; the cast continues without this host";

/// Four hosts, of which two have the object.
fn cluster() -> Cluster {
    let cluster = Cluster::new(4);
    for holder in [ORIGIN, HELPER] {
        let (from, to) = (cluster.source.to_str(), cluster.copy(holder));
        assert!(system("cp", &["-a", from.unwrap(), to.to_str().unwrap()]));
    }
    cluster
}

fn at(cluster: &Cluster, host: usize) -> String {
    format!("{}:{}", cluster.name(host), cluster.copy(host).display())
}

/// A cast from both that have it to both that do not.
fn begin(cluster: &Cluster, protocol: &str) -> Cast {
    let options = ["--protocol", protocol, "--limit", "14 MB/s"];
    let from = PathBuf::from(at(cluster, ORIGIN));
    let mut command = cluster.command_to(&from, RECEIVERS, "copy", &options);
    Cast::start(command.args(["--from", &at(cluster, HELPER)]))
}

fn large_files(dir: &Path) -> Vec<PathBuf> {
    let files = fs::read_dir(dir.join("large")).unwrap();
    files.map(|file| file.unwrap().path()).collect()
}

/// Something happens to what one source has, and every file of it is concerned, so that whatever is
/// asked of it next shows. The hosts get the object from the other.
fn one_loses_it(protocol: &str, victim: usize, lose: fn(&Path)) {
    let cluster = cluster();
    let mut cast = begin(&cluster, protocol);
    cluster.wait_for_share(&mut cast, RECEIVERS[0], 0.2);
    large_files(&cluster.copy(victim))
        .iter()
        .for_each(|file| lose(file));
    let report = Report::of(cast.end(), 0);
    report.assert_verified(&cluster, RECEIVERS);
    let notices: Vec<&str> = report.notices().collect();
    // It knows what happened before any host gets wrong bytes, so none is accused.
    let [notice] = notices[..] else {
        panic!("{notices:?}")
    };
    let about = format!(
        "{}: {}/large/",
        cluster.name(victim),
        cluster.copy(victim).display()
    );
    let why = format!(": the file changed after it was hashed{GOES_ON}");
    assert!(
        notice.starts_with(&about) && notice.ends_with(&why),
        "{notice}"
    );
}

#[test]
fn one_source_of_a_swarm_loses_its_files() {
    one_loses_it("swarm", HELPER, |file| fs::remove_file(file).unwrap());
}

#[test]
fn the_first_source_of_a_swarm_has_its_files_cut_short() {
    one_loses_it("swarm", ORIGIN, |file| {
        File::options()
            .write(true)
            .open(file)
            .unwrap()
            .set_len(9)
            .unwrap();
    });
}

#[test]
fn the_first_source_of_a_coded_gossip_has_its_files_overwritten() {
    one_loses_it("coded-gossip", ORIGIN, |file| {
        let bytes = vec![0x5a; 4 << 20];
        File::options()
            .write(true)
            .open(file)
            .unwrap()
            .write_all_at(&bytes, 0)
            .unwrap();
    });
}

fn one_dies(protocol: &str, victim: usize) {
    let mut cluster = cluster();
    let mut cast = begin(&cluster, protocol);
    cluster.wait_for_share(&mut cast, RECEIVERS[0], 0.2);
    cluster.kill(victim);
    let report = Report::of(cast.end(), 0);
    report.assert_verified(&cluster, RECEIVERS);
    let name = cluster.name(victim);
    let lost = format!("{name}: its agent ended before the cast did{GOES_ON}");
    let notices: Vec<&str> = report.notices().collect();
    assert!(notices.contains(&lost.as_str()), "{notices:?}");
}

#[test]
fn one_source_of_a_swarm_is_killed() {
    one_dies("swarm", HELPER);
}

#[test]
fn the_first_source_of_a_chain_is_killed() {
    one_dies("chain", ORIGIN);
}

#[test]
fn all_sources_lose_the_object_and_each_host_says_so() {
    let cluster = cluster();
    let mut cast = begin(&cluster, "swarm");
    cluster.wait_for_share(&mut cast, RECEIVERS[0], 0.1);
    for holder in [ORIGIN, HELPER] {
        for file in large_files(&cluster.copy(holder)) {
            File::options()
                .write(true)
                .open(file)
                .unwrap()
                .set_len(9)
                .unwrap();
        }
    }
    let report = Report::of(cast.end(), 1);
    let mut named: Vec<&str> = report.notices().collect();
    named.sort_unstable();
    assert_eq!(named.len(), 2, "{named:?}");
    for host in RECEIVERS {
        let error = report.error(host);
        assert!(
            error.contains("; the source is lost: ")
                && error.ends_with("the file changed after it was hashed; run the command again"),
            "{error}"
        );
        cluster.assert_nothing_half(host, &cluster.source);
    }
    // What is there is of use as soon as a host has the object again.
    let held = cluster.held(RECEIVERS[0]);
    let again = cluster
        .command_to(&cluster.source, RECEIVERS, "copy", &[])
        .output();
    assert!(again.unwrap().status.success());
    assert!(held > 0);
    RECEIVERS.iter().for_each(|host| cluster.assert_copy(*host));
}

/// What is only read is not claimed: a cast that writes there is not refused, and the one that
/// reads says what happened.
#[test]
fn another_cast_writes_over_a_source() {
    let cluster = cluster();
    let other = cluster.aside().join("other");
    assert!(system(
        "cp",
        &[
            "-a",
            cluster.source.to_str().unwrap(),
            other.to_str().unwrap()
        ]
    ));
    for file in large_files(&other) {
        fs::write(file, vec![7; 4 << 20]).unwrap();
    }
    let mut cast = begin(&cluster, "swarm");
    cluster.wait_for_share(&mut cast, RECEIVERS[0], 0.1);
    let second = Cast::start(&mut cluster.command_to(&other, [HELPER], "copy", &[]));
    Report::of(second.end(), 0);
    same(&other, &cluster.copy(HELPER));
    let report = Report::of(cast.end(), 0);
    report.assert_verified(&cluster, RECEIVERS);
    let about = format!(
        "{}: {}",
        cluster.name(HELPER),
        cluster.copy(HELPER).display()
    );
    let named = report.notices().all(|notice| notice.starts_with(&about));
    assert!(named, "{:?}", report.notices().collect::<Vec<_>>());
}
