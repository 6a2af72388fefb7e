//! Jobs under the controller, from the file to the report.
#![allow(clippy::unwrap_used)]

use outpour_controller::read_jobs;
use outpour_core::Separation;

use super::*;

/// Servers of 20 MB/s each way, as in the experiments of [BDS §6.2].
pub(super) fn servers(site: &str, nodes: u32) -> String {
    format!(
        "[[cluster]]\nname = \"{site}\"\nnodes = {nodes}\nnode_out = \"20 MB/s\"\nnode_in = \"20 MB/s\"\n"
    )
}

pub(super) fn scenario(network: &str, jobs: &str, percent: f64) -> ReplicateConfig {
    let network = Network::from_toml(network, "net.toml").unwrap();
    let jobs = read_jobs(jobs, "jobs.toml", &network).unwrap().jobs;
    let controller = Config {
        separation: Separation::Threshold { percent },
        ..Config::default()
    };
    ReplicateConfig {
        network,
        jobs,
        controller,
        system: System::Central,
        seed: 1,
        script: None,
        shards: 1,
    }
}

/// A clock of which every look takes a millisecond.
fn ticks() -> impl FnMut() -> Duration {
    let mut now = Duration::ZERO;
    move || {
        now += Duration::from_millis(1);
        now
    }
}

pub(super) fn run(config: ReplicateConfig) -> ReplicateReport {
    replicate(config, &mut ticks()).unwrap()
}

#[test]
fn two_sites_are_joined_at_the_rate_of_their_servers() {
    let network = servers("a", 4) + &servers("b", 4);
    let job = "[[job]]\nname = \"j\"\nsize = \"8 GB\"\nfrom = [\"a\"]\nsites = [\"b\"]\n";
    let report = run(scenario(&network, job, 100.0));
    assert!((report.limit_s - 100.0).abs() < 0.01, "{report:?}");
    assert!((1.0..1.02).contains(&report.ratio), "{report:?}");
    let site = &report.sites[0];
    assert_eq!((site.site.as_str(), site.wan_bytes), ("b", 8_000_000_000));
    assert_eq!(report.decision_s.median, 1e-3);
}

#[test]
fn sites_pass_on_what_they_get() {
    let network = servers("a", 4) + &servers("b", 4) + &servers("c", 4) + &servers("d", 4);
    let job = "[[job]]\nsize = \"8 GB\"\nfrom = [\"a\"]\nsites = [\"b\", \"c\", \"d\"]\n";
    let report = run(scenario(&network, job, 100.0));
    // Three copies, of which the source sends about one. Until what it sends first is passed on, and
    // at the end, a cycle of 3 s is not used fully.
    let last = report.limit_s + 3.0 * 3.0;
    assert!(report.finish_s <= last, "{report:?}");
}

/// What enters a site of relays is spread over them, as the first ones could not send it all in time.
#[test]
fn relays_of_a_site_get_as_much_each() {
    let link = "[[link]]\nfrom = \"*\"\nto = \"*\"\nrate = \"100 MB/s\"\n";
    let network = ["a", "b", "c", "d"].map(|site| servers(site, 20)).concat() + link;
    let job =
        "[[job]]\nsize = \"20 GB\"\nfrom = [\"a\"]\nsites = [\"b\", \"c\"]\nrelays = [\"d\"]\n";
    let report = run(scenario(&network, job, 100.0));
    assert!((report.limit_s - 2e4 / 300.0).abs() < 0.01, "{report:?}");
    assert!(report.ratio < 1.1, "{report:?}");
}

/// What jobs share is in the limit of them together: what leaves the only site that has several objects, and
/// what enters one over the links to it.
#[test]
fn jobs_that_share_links_are_held_against_what_they_share() {
    let link = "[[link]]\nfrom = \"*\"\nto = \"*\"\nrate = \"10 MB/s\"\n";
    let network = servers("a", 6) + &servers("b", 6) + &servers("c", 6) + link;
    let job = |from: &str, to: &str| {
        format!("[[job]]\nsize = \"1 GB\"\nfrom = [\"{from}\"]\nsites = [\"{to}\"]\n")
    };
    for (jobs, limit) in [
        // Each alone 100 s.
        (vec![job("a", "b"), job("b", "a")], 100.0),
        // Two links lead there, and away.
        (vec![job("a", "c"), job("b", "c")], 100.0),
        (vec![job("a", "c"), job("b", "c"), job("a", "c")], 150.0),
        (vec![job("a", "b"), job("a", "c"), job("a", "b")], 150.0),
    ] {
        let report = run(scenario(&network, &jobs.concat(), 100.0));
        assert!((report.limit_s - limit).abs() < 0.01, "{report:?}");
    }
    let two = servers("a", 6) + &servers("b", 6) + link;
    let report = run(scenario(&two, &job("a", "b").repeat(2), 100.0));
    assert!((report.limit_s - 200.0).abs() < 0.01, "{report:?}");
    assert!(report.ratio < 1.02, "{report:?}");
    let access = two.replace("nodes = 6\n", "nodes = 6\nout = \"4 MB/s\"\n");
    let report = run(scenario(&access, &job("a", "b").repeat(2), 100.0));
    assert!((report.limit_s - 500.0).abs() < 0.01, "{report:?}");
}

/// A site that only passes blocks on helps as much as its links carry, and one that may not is not in
/// the limit.
#[test]
fn relays_carry_what_their_links_do() {
    let link = "[[link]]\nfrom = \"*\"\nto = \"*\"\nrate = \"30 MB/s\"\n";
    let sites = |nodes| {
        ["a", "b", "c", "d"]
            .map(|site| servers(site, nodes))
            .concat()
            + link
    };
    let (few, many) = (sites(6), sites(20).replace("20 MB/s", "200 MB/s"));
    let job = "[[job]]\nsize = \"6 GB\"\nfrom = [\"a\"]\nsites = [\"b\"]\n";
    let limit = |network: &str, relays: &str| {
        let job = format!("{job}relays = {relays}\n");
        let report = run(scenario(network, &job, 100.0));
        // Until what a relay gets first is passed on, and at the end, a cycle is not used fully.
        assert!(report.finish_s <= report.limit_s + 2.0 * 3.0, "{report:?}");
        report.limit_s
    };
    let close = |found: f64, limit: f64| assert!((found - limit).abs() < 0.01, "{found} s");
    for network in [&few, &many] {
        close(limit(network, "[]"), 200.0);
        close(limit(network, "[\"c\"]"), 100.0);
        close(limit(network, "[\"c\", \"d\"]"), 6e3 / 90.0);
    }
}

#[test]
fn links_keep_room_for_others() {
    let link = "[[link]]\nfrom = \"*\"\nto = \"*\"\nrate = \"10 MB/s\"\n";
    let network = servers("a", 2) + &servers("b", 2) + link;
    let job = "[[job]]\nsize = \"800 MB\"\nfrom = [\"a\"]\nsites = [\"b\"]\n";
    let report = run(scenario(&network, job, 80.0));
    assert!((report.limit_s - 100.0).abs() < 0.01, "{report:?}");
    assert!((1.0..1.02).contains(&report.ratio), "{report:?}");
}

#[test]
fn jobs_begin_when_they_are_to() {
    let network = servers("a", 4) + &servers("b", 4);
    let jobs = "[[job]]\nname = \"late\"\nsize = \"800 MB\"\nfrom = [\"a\"]\nsites = [\"b\"]\n\
        start = \"10 min\"\n\
        [[job]]\nname = \"first\"\nsize = \"800 MB\"\nfrom = [\"a\"]\nnodes = [\"b\"]\n\
        deadline = \"20 s\"\n";
    let report = run(scenario(&network, jobs, 100.0));
    let [late, first] = &report.jobs[..] else {
        panic!("{report:?}");
    };
    assert_eq!((late.name.as_str(), first.name.as_str()), ("late", "first"));
    assert!(
        late.finish_s >= 610.0 && late.finish_s < 616.0,
        "{report:?}"
    );
    assert!(first.finish_s < 60.0, "{report:?}");
    // Each of four servers gets all: 40 s at least.
    assert_eq!(first.in_time, Some(false));
    assert!((first.limit_s - 40.0).abs() < 0.01, "{report:?}");
    assert!(report.notices[0].starts_with("first cannot meet its deadline"));
    assert!(report.finish_s >= report.limit_s, "{report:?}");
}

#[test]
fn the_same_is_the_same_again() {
    let network = servers("a", 3) + &servers("b", 5) + &servers("c", 2);
    let jobs = "[[job]]\nsize = \"1 GB\"\nfrom = [\"a\"]\nsites = [\"b\", \"c\"]\n\
        [[job]]\nsize = \"0.5 GB\"\nfrom = [\"b1\"]\nnodes = [\"c\"]\nrelays = [\"a\"]\n";
    let once = run(scenario(&network, jobs, 80.0));
    assert_eq!(once, run(scenario(&network, jobs, 80.0)));
}

#[test]
fn a_job_that_is_refused_is_named() {
    let network = servers("a", 1) + &servers("b", 1) + "[[link]]\nfrom = \"b\"\nto = \"a\"\n";
    let job = "[[job]]\nname = \"logs\"\nsize = \"1 MB\"\nfrom = [\"a\"]\nsites = [\"b\"]\n";
    let refused = replicate(scenario(&network, job, 80.0), &mut ticks());
    let said = refused.unwrap_err().to_string();
    assert!(said.starts_with("logs: no path from"), "{said}");
    // Others go on without it.
    let back = "[[job]]\nname = \"back\"\nsize = \"1 MB\"\nfrom = [\"b\"]\nsites = [\"a\"]\n";
    let mut both = scenario(&network, &format!("{job}{back}"), 80.0);
    let refused = refuse(&mut both).unwrap();
    assert_eq!(refused.len(), 1);
    assert_eq!(refused[0].to_string(), said);
    assert_eq!(both.jobs.len(), 1);
    assert_eq!(replicate(both, &mut ticks()).unwrap().jobs[0].name, "back");
    let mut alone = scenario(&network, job, 80.0);
    assert_eq!(refuse(&mut alone).unwrap_err().to_string(), said);
}

#[test]
fn servers_slow_down_where_orders_are_too_much() {
    use outpour_controller::{Change, Destinations, Job, Order, Stamp};
    use outpour_core::{Bytes, Rate};
    let network = Network::from_toml(&servers("a", 3), "net.toml").unwrap();
    let mut servers = Servers::new(network, &Config::default());
    let to = Destinations::Nodes([1, 2].map(NodeId).to_vec());
    let job = Job::new(Bytes(100_000_000), Bytes(1_000_000), [NodeId(0)], to);
    servers.add(JobId(0), &job);
    let all = 0..100;
    let send = |to| Change::Send {
        job: JobId(0),
        to: NodeId(to),
        rate: Rate::from_bytes_per_s(20e6).unwrap(),
        most: Rate::from_bytes_per_s(20e6).unwrap(),
        drop: Vec::new(),
        add: Vec::from([all.clone()]),
    };
    servers.obey(&[Order {
        to: NodeId(0),
        stamp: Stamp::default(),
        whole: false,
        changes: vec![send(1), send(2)],
    }]);
    let at = |seconds: f64| Time::from_secs_f64(seconds);
    // Twice the rate of the source was ordered: each gets half.
    assert_eq!(servers.advance(at(0.0), at(5.05)), 100);
    assert_eq!(servers.lacking(JobId(0)), 100);
    assert_eq!(servers.advance(at(5.05), at(11.0)), 100);
    assert_eq!(servers.lacking(JobId(0)), 0);
    assert_eq!(servers.finish(JobId(0)), at(10.0));
    assert_eq!(servers.advance(at(11.0), at(12.0)), 0);
}

/// Jobs between four sites, one every so many seconds.
fn replay(count: u32, every_s: u32) -> ReplicateConfig {
    let sites = ["a", "b", "c", "d"];
    let network = sites.map(|site| servers(site, 2)).concat();
    let job = |number: u32| {
        let from = sites[number as usize % 4];
        let others = sites.iter().filter(|site| **site != from);
        let to: Vec<String> = others.map(|site| format!("\"{site}\"")).collect();
        // The last comes first in the file.
        let start = (count - 1 - number) * every_s;
        format!(
            "[[job]]\nname = \"j{number}\"\nsize = \"200 MB\"\nfrom = [\"{from}\"]\n\
             sites = [{}]\nstart = \"{start} s\"\n",
            to.join(", ")
        )
    };
    let jobs: String = (0..count).map(job).collect();
    scenario(&network, &jobs, 100.0)
}

#[test]
fn hundreds_of_jobs_each_have_a_result() {
    let report = run(replay(200, 40));
    assert_eq!(report.jobs.len(), 200);
    for (number, job) in report.jobs.iter().enumerate() {
        assert_eq!(job.name, format!("j{number}"));
        assert_eq!(job.start_s, f64::from(199 - number as u32) * 40.0);
        // 5 s at least, and cycles of 3 s in which parts are passed on.
        let took = job.finish_s - job.start_s;
        assert!((5.0..40.0).contains(&took), "{job:?}");
        assert!((job.ratio - took / job.limit_s).abs() < 1e-9, "{job:?}");
    }
    let received: u64 = report.sites.iter().map(|site| site.wan_bytes).sum();
    assert_eq!(received, 200 * 3 * 200_000_000);
    assert_eq!(report.servers.len(), 8, "one for each server");
    assert!(
        report
            .servers
            .iter()
            .all(|it| (0.0..=1.0).contains(&it.origin))
    );
}

#[test]
fn jobs_that_start_at_the_same_time_all_end() {
    let report = run(replay(12, 0));
    assert_eq!(report.jobs.len(), 12);
    assert!(
        report
            .jobs
            .iter()
            .all(|job| job.start_s == 0.0 && job.finish_s > 5.0)
    );
    assert!(report.finish_s >= report.limit_s, "{report:?}");
}

#[test]
fn nothing_is_kept_of_jobs_that_are_complete() {
    let mut run = Run::new(replay(60, 40)).unwrap();
    let mut clock = ticks();
    let mut most = 0;
    while run.cycle(&mut clock).unwrap() {
        most = most.max(run.servers.jobs_kept()).max(run.submitted.len());
    }
    assert!(most <= 3, "{most} jobs at a time");
    assert_eq!(run.servers.jobs_kept(), 0);
    assert_eq!(run.finishes.len(), 60);
}
