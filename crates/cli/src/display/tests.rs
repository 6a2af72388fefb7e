//! What the display says, without a terminal.
#![allow(clippy::unwrap_used)]

use super::*;

fn host(name: &str, state: HostState, have_bytes: u64) -> HostProgress {
    HostProgress {
        host: name.to_owned(),
        state,
        have_bytes,
        resumed_bytes: 0,
        received_bytes: 0,
        rate_bytes_per_s: 25e6,
        idle_s: 0.0,
        error: None,
    }
}

fn view(hosts: Vec<HostProgress>) -> Progress {
    Progress {
        phase: Phase::Moving,
        hashed_bytes: 1_000_000_000,
        size_bytes: 1_000_000_000,
        protocol: "swarm".to_owned(),
        elapsed_s: 20.0,
        limit_s: Some(40.0),
        hosts,
        notices: Vec::new(),
    }
}

fn failed(name: &str, error: &str) -> HostProgress {
    let mut host = host(name, HostState::Failed, 0);
    host.error = Some(error.to_owned());
    host.rate_bytes_per_s = 0.0;
    host
}

#[test]
fn a_few_hosts_have_a_line_each() {
    let mut stalled = host("node02", HostState::Receiving, 500_000_000);
    stalled.rate_bytes_per_s = 0.0;
    stalled.idle_s = 7.0;
    let view = view(vec![
        host("node01", HostState::Receiving, 500_000_000),
        stalled,
        failed("n3", "ssh: connection refused (port 22)"),
        host("node04", HostState::Finishing, 1_000_000_000),
    ]);
    let picture = live::picture(&view, 80, 24);
    assert_eq!(
        picture,
        [
            "swarm ██████████████████████████▋               66 %  2 GB of 3 GB  50 MB/s",
            "20 s, about 20 s left; the limit allows 40 s (1.00 x)",
            "4 hosts: 2 receiving, 1 finishing, 1 failed",
            "  node01  receiving  50 %  25 MB/s",
            "  node02  receiving  50 %  0 B/s, nothing for 7 s",
            "  n3      failed: ssh: connection refused (port 22)",
            "  node04  finishing",
        ]
    );
}

#[test]
fn hundreds_of_hosts_are_cells_and_only_trouble_has_lines() {
    let mut hosts: Vec<_> = (0..300)
        .map(|n| host(&format!("node{n:03}"), HostState::Receiving, n * 3_000_000))
        .collect();
    hosts[290] = failed("node290", "disk full");
    hosts[291].state = HostState::Verified;
    let view = view(hosts);
    let picture = live::picture(&view, 80, 24);
    assert!(picture.len() < 24, "{picture:#?}");
    assert_eq!(picture[2], "300 hosts: 298 receiving, 1 verified, 1 failed");
    assert!(picture[3].starts_with("  ···") && picture[3].contains('▁'));
    assert!(picture[6].contains("x█"));
    assert_eq!(picture[7], "  node290  failed: disk full");
    assert_eq!(picture[8], "  node000  receiving   0 %  25 MB/s");
    assert_eq!(
        picture.last().unwrap(),
        "and 61 more that are slow or failed"
    );
}

#[test]
fn a_picture_fits_any_screen() {
    for count in [0_usize, 1, 3, 16, 17, 400, 10_000] {
        let hosts = (0..count)
            .map(|n| match n % 3 {
                0 => failed(
                    &format!("node{n}"),
                    "no\u{1b}[2J \u{4e2d}\u{6587} ".repeat(30).trim(),
                ),
                1 => host(&format!("node{n}"), HostState::Receiving, n as u64),
                _ => host(&"long".repeat(60), HostState::Verified, 1_000_000_000),
            })
            .collect();
        let mut view = view(hosts);
        for phase in [Phase::Hashing, Phase::Starting, Phase::Moving, Phase::Done] {
            view.phase = phase;
            for (width, height) in [(80, 24), (1, 1), (2, 3), (20, 5), (300, 100), (0, 0)] {
                let picture = live::picture(&view, width, height);
                assert!(
                    picture.len() <= height,
                    "{count} hosts on {width} x {height}"
                );
                for line in picture {
                    assert!(line.chars().count() <= width);
                    assert!(!line.contains('\u{1b}'));
                }
            }
        }
    }
}

#[test]
fn full_is_only_what_every_host_has_verified() {
    let all = |state| {
        view(vec![
            host("a", state, 1_000_000_000),
            host("b", state, 1_000_000_000),
        ])
    };
    for state in [HostState::Receiving, HostState::Finishing] {
        assert!(live::picture(&all(state), 80, 24)[0].contains(" 99 %"));
        assert!(plain::line(&all(state)).contains(" 99 %"));
    }
    assert!(live::picture(&all(HostState::Verified), 80, 24)[0].contains("100 %"));
    let text = live::picture(&all(HostState::Verified), 80, 24).join("\n");
    assert!(!text.contains("done"));
}

#[test]
fn plain_lines_say_where_a_cast_stands() {
    let mut view = view(vec![
        host("a", HostState::Receiving, 900_000_000),
        host("b", HostState::Receiving, 900_000_000),
        host("c", HostState::Receiving, 100_000_000),
    ]);
    assert_eq!(
        plain::line(&view),
        "20 s: 63 %, 75 MB/s, 3 receiving, 1 slow"
    );
    view.phase = Phase::Hashing;
    assert_eq!(plain::line(&view), "20 s: hashing, 1 GB read");
    view.phase = Phase::Starting;
    view.hosts[0].state = HostState::Starting;
    assert_eq!(
        plain::line(&view),
        "20 s: starting agents: 1 starting, 2 receiving"
    );
}

#[test]
fn an_object_of_no_bytes_divides_nothing() {
    let mut view = view(vec![host("a", HostState::Receiving, 0)]);
    view.size_bytes = 0;
    view.limit_s = Some(0.0);
    view.hosts[0].rate_bytes_per_s = 0.0;
    assert!(live::picture(&view, 80, 24)[0].contains("0 %"));
    assert!(plain::line(&view).contains("0 B/s"));
}

#[test]
fn each_failure_is_said_once() {
    let mut display = Display {
        style: Style::Plain,
        said: Vec::new(),
        drawn: 0,
    };
    let mut view = view(vec![
        failed("a", "disk full"),
        host("b", HostState::Receiving, 0),
    ]);
    view.notices.push("b sent wrong bytes".to_owned());
    assert_eq!(
        display.news(&view),
        ["outpour: a: disk full", "outpour: b sent wrong bytes"]
    );
    view.notices.clear();
    assert!(display.news(&view).is_empty());
    view.hosts[1] = failed("b", "evil\nline");
    assert_eq!(display.news(&view), ["outpour: b: evil\\nline"]);
}
