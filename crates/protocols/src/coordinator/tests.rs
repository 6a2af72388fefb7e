//! The coordinator against every way a cast can go.

use super::*;

fn at(seconds: f64) -> Time {
    Time::from_secs_f64(seconds)
}

fn contact(port: u16) -> Contact {
    Contact {
        addrs: vec![SocketAddr::from(([127, 0, 0, 1], port))],
        key: [port as u8; 32],
    }
}

pub(super) fn coordinator(hosts: usize) -> Coordinator {
    with_sources(1, hosts)
}

/// The sources are the first nodes.
fn with_sources(sources: usize, hosts: usize) -> Coordinator {
    let sources = (0..sources).map(|n| match n {
        0 => ("source".to_owned(), Role::Source),
        n => (format!("source{n}"), Role::Source),
    });
    let hosts = (1..=hosts).map(|n| (format!("host{n}"), Role::Receiver));
    let nodes = sources.chain(hosts);
    let nodes = nodes.map(|(name, role)| Participant { name, role });
    Coordinator::new(Config {
        epoch: 1,
        nodes: nodes.collect(),
        size_bytes: 1000,
        entries: 3,
        patience: Duration::from_secs(60),
    })
}

pub(super) fn join(c: &mut Coordinator, now: f64, node: u32) -> Vec<Output> {
    c.handle(
        at(now),
        Input::Joined {
            node: NodeId(node),
            contact: contact(node as u16),
        },
    )
}

pub(super) fn report(c: &mut Coordinator, now: f64, node: u32, report: Report) -> Vec<Output> {
    c.handle(
        at(now),
        Input::Report {
            node: NodeId(node),
            report,
        },
    )
}

fn orders(outputs: &[Output]) -> Vec<(u32, &Order)> {
    outputs
        .iter()
        .filter_map(|output| match output {
            Output::Order { to, given } => Some((to.0, &given.order)),
            _ => None,
        })
        .collect()
}

fn begun(outputs: &[Output]) -> Vec<u32> {
    orders(outputs)
        .into_iter()
        .filter(|(_, order)| matches!(order, Order::Begin { .. }))
        .map(|(to, _)| to)
        .collect()
}

#[test]
fn a_source_that_joins_when_all_is_over_is_sent_home() {
    for refused in [true, false] {
        let mut c = with_sources(2, 1);
        join(&mut c, 0.0, 0);
        assert_eq!(begun(&join(&mut c, 0.1, 2)), [0, 2]);
        let last = match refused {
            true => Report::Refused {
                error: "another cast".into(),
            },
            false => Report::Complete { received_bytes: 1 },
        };
        report(&mut c, 0.2, 2, last);
        assert!(c.has_ended());
        let outputs = join(&mut c, 0.3, 1);
        assert_eq!(orders(&outputs), [(1, &Order::Finish)], "{refused}");
    }
}

#[test]
fn what_a_host_reports_before_it_has_joined_counts_for_nothing() {
    let reports = [
        Report::Preparing,
        Report::Prepared { have_bytes: 1000 },
        Report::Finishing,
        Report::Complete { received_bytes: 1 },
        Report::Failed {
            error: "disk full".into(),
        },
    ];
    for said in reports {
        let mut c = coordinator(2);
        join(&mut c, 0.0, 0);
        join(&mut c, 0.1, 1);
        let outputs = report(&mut c, 0.2, 2, said.clone());
        assert!(orders(&outputs).is_empty() && !c.has_ended(), "{said:?}");
        assert_eq!(c.nodes()[2].state, HostState::Starting, "{said:?}");
        assert_eq!(begun(&join(&mut c, 0.3, 2)), [0, 1, 2], "{said:?}");
    }
}

#[test]
fn it_begins_when_all_have_answered_and_ends_when_all_are_verified() {
    let mut c = coordinator(2);
    assert_eq!(begun(&join(&mut c, 0.0, 0)), []);
    assert_eq!(begun(&join(&mut c, 0.1, 1)), []);
    assert_eq!(begun(&join(&mut c, 0.2, 2)), [0, 1, 2]);
    for node in 1..=2 {
        report(&mut c, 0.3, node, Report::Preparing);
        report(&mut c, 0.4, node, Report::Prepared { have_bytes: 100 });
        report(
            &mut c,
            0.9,
            node,
            Report::Progress {
                have_bytes: 600,
                received_bytes: 500,
                disk: Disk::default(),
            },
        );
        report(&mut c, 1.0, node, Report::Finishing);
        assert!(!c.has_ended());
        let outputs = report(
            &mut c,
            1.1,
            node,
            Report::Complete {
                received_bytes: 900,
            },
        );
        assert_eq!(outputs.contains(&Output::Ended), node == 2);
        if node == 2 {
            let finish = orders(&outputs);
            assert_eq!(finish.len(), 3);
            assert!(finish.iter().all(|(_, order)| **order == Order::Finish));
        }
    }
    assert!(
        c.nodes()[1..]
            .iter()
            .all(|host| host.state == HostState::Verified)
    );
    assert_eq!(c.nodes()[1].resumed_bytes, 100);
}

#[test]
fn a_slow_start_does_not_hold_the_others_and_joins_in() {
    let mut c = coordinator(3);
    join(&mut c, 0.0, 0);
    join(&mut c, 0.5, 1);
    join(&mut c, 1.0, 2);
    assert_eq!(begun(&c.handle(at(2.9), Input::Woken)), []);
    assert_eq!(begun(&c.handle(at(3.1), Input::Woken)), [0, 1, 2]);
    let outputs = join(&mut c, 9.0, 3);
    assert_eq!(begun(&outputs), [3]);
    let met: Vec<u32> = orders(&outputs)
        .into_iter()
        .filter(|(_, order)| {
            matches!(
                order,
                Order::Met {
                    node: NodeId(3),
                    ..
                }
            )
        })
        .map(|(to, _)| to)
        .collect();
    assert_eq!(met, [0, 1, 2]);
}

#[test]
fn a_lost_host_is_named_and_the_others_are_told() {
    let mut c = coordinator(2);
    (0..=2).for_each(|node| {
        join(&mut c, 0.0, node);
    });
    let lost = Input::Lost {
        node: NodeId(1),
        error: "connection refused".into(),
    };
    let outputs = c.handle(at(1.0), lost);
    let told: Vec<u32> = orders(&outputs)
        .into_iter()
        .filter(|(_, order)| matches!(order, Order::Left { node: NodeId(1) }))
        .map(|(to, _)| to)
        .collect();
    assert_eq!(told, [0, 2]);
    assert_eq!(c.nodes()[1].error.as_deref(), Some("connection refused"));
    assert!(!c.has_ended());
    report(
        &mut c,
        2.0,
        2,
        Report::Complete {
            received_bytes: 1000,
        },
    );
    assert!(c.has_ended());
}

#[test]
fn if_no_agent_starts_it_ends_without_beginning() {
    let mut c = coordinator(2);
    join(&mut c, 0.0, 0);
    for node in 1..=2 {
        c.handle(
            at(1.0),
            Input::Lost {
                node: NodeId(node),
                error: "no route".into(),
            },
        );
    }
    assert!(c.has_ended());
    assert_eq!(c.began_at(), None);
}

#[test]
fn silence_is_borne_while_others_progress_and_no_longer() {
    let mut c = coordinator(2);
    (0..=2).for_each(|node| {
        join(&mut c, 0.0, node);
    });
    for node in 1..=2 {
        report(&mut c, 0.0, node, Report::Prepared { have_bytes: 0 });
    }
    for step in 1..=10 {
        let have_bytes = step * 100 - 1;
        let progress = Report::Progress {
            have_bytes,
            received_bytes: have_bytes,
            disk: Disk::default(),
        };
        report(&mut c, step as f64 * 30.0, 1, progress);
    }
    assert_eq!(c.nodes()[2].state, HostState::Receiving);
    report(
        &mut c,
        301.0,
        1,
        Report::Complete {
            received_bytes: 1000,
        },
    );
    c.handle(at(360.0), Input::Woken);
    assert!(
        !c.has_ended(),
        "the one that stopped has its patience from the last progress on"
    );
    c.handle(at(361.5), Input::Woken);
    assert!(c.has_ended());
    let error = c.nodes()[2].error.as_deref().unwrap_or_default();
    assert!(error.contains("nothing heard"), "{error}");
}

#[test]
fn hosts_that_report_but_get_nothing_say_what_is_missing() {
    let mut c = coordinator(1);
    (0..=1).for_each(|node| {
        join(&mut c, 0.0, node);
    });
    report(&mut c, 0.0, 1, Report::Prepared { have_bytes: 400 });
    let lost = |c: &mut Coordinator| {
        let error = "read error".into();
        let node = NodeId(0);
        c.handle(at(1.0), Input::Lost { node, error })
    };
    let outputs = lost(&mut c);
    assert!(orders(&outputs).contains(&(0, &Order::Finish)));
    assert_eq!(
        notices(&outputs),
        [format!("source: read error{NO_SOURCE}")]
    );
    assert!(orders(&lost(&mut c)).is_empty(), "once is enough");
    for step in 2..=80 {
        let progress = Report::Progress {
            have_bytes: 400,
            received_bytes: 0,
            disk: Disk::default(),
        };
        report(&mut c, f64::from(step) / 2.0, 1, progress);
    }
    assert!(c.has_ended());
    let error = c.nodes()[1].error.clone().unwrap_or_default();
    assert_eq!(
        error,
        "600 B missing; the source is lost: read error; run the command again"
    );
}

#[test]
fn an_unreachable_peer_is_asked_to_dial_back() {
    let mut c = coordinator(2);
    (0..=2).for_each(|node| {
        join(&mut c, 0.0, node);
    });
    let outputs = report(
        &mut c,
        1.0,
        2,
        Report::Unreachable {
            peer: NodeId(0),
            error: "timed out".into(),
        },
    );
    assert!(orders(&outputs).contains(&(0, &Order::Dial { node: NodeId(2) })));
}

#[test]
fn complaints_without_end_are_passed_on_a_few_times() {
    let mut c = coordinator(2);
    (0..=2).for_each(|node| {
        join(&mut c, 0.0, node);
    });
    let mut notices = 0;
    for peer in [0, 1, 2, 7, u32::MAX] {
        for _ in 0..100 {
            let offence = "sent wrong bytes".to_owned();
            let peer = NodeId(peer);
            let outputs = report(&mut c, 1.0, 2, Report::Accuse { peer, offence });
            let is_notice = |output: &&Output| matches!(output, Output::Notice(_));
            notices += outputs.iter().filter(is_notice).count();
        }
    }
    assert_eq!(notices, 3 * NOTICES_MAX);
    notices = 0;
    for _ in 0..100 {
        let (peer, error) = (NodeId(1), "timed out".to_owned());
        let outputs = report(&mut c, 1.0, 0, Report::Unreachable { peer, error });
        assert!(orders(&outputs).contains(&(1, &Order::Dial { node: NodeId(0) })));
        let is_notice = |output: &&Output| matches!(output, Output::Notice(_));
        notices += outputs.iter().filter(is_notice).count();
    }
    assert_eq!(notices, NOTICES_MAX);
}

#[test]
fn what_a_verified_host_saw_of_others_still_counts_but_not_what_a_failed_one_did() {
    let mut c = coordinator(3);
    (0..=3).for_each(|node| drop(join(&mut c, 0.0, node)));
    let received_bytes = 0;
    report(&mut c, 1.0, 1, Report::Complete { received_bytes });
    let error = "no space left".to_owned();
    report(&mut c, 1.0, 2, Report::Failed { error });
    for (node, heard) in [(1, true), (2, false)] {
        let accusation = Report::Accuse {
            peer: NodeId(3),
            offence: "sent wrong bytes for block 7".into(),
        };
        let notice = format!("host3 sent wrong bytes for block 7 (reported by host{node})");
        let outputs = report(&mut c, 2.0, node, accusation);
        assert_eq!(outputs.contains(&Output::Notice(notice)), heard);
    }
}

#[test]
fn reports_after_the_verdict_change_nothing() {
    let mut c = coordinator(1);
    (0..=1).for_each(|node| {
        join(&mut c, 0.0, node);
    });
    c.cancel(at(1.0), "interrupted");
    report(&mut c, 2.0, 1, Report::Complete { received_bytes: 1 });
    assert_eq!(c.nodes()[1].state, HostState::Failed);
    assert_eq!(c.nodes()[1].error.as_deref(), Some("interrupted"));
}

fn held(len: u32, blocks: &[u32]) -> Report {
    let mut set = outpour_core::BlockSet::new(len);
    for block in blocks {
        set.insert(*block);
    }
    let mut lacks = outpour_core::BlockSet::full(len);
    lacks.subtract(&set);
    Report::Held {
        blocks: len,
        held: set.to_wire(),
        lacks: lacks.to_wire(),
    }
}

/// Two hosts that have begun and then lost the source at 10 s; asked what they hold.
fn orphans() -> Coordinator {
    let mut c = coordinator(2);
    c.config.size_bytes = 1 << 20;
    for node in 0..3 {
        join(&mut c, 0.0, node);
    }
    for node in 1..3 {
        report(&mut c, 1.0, node, Report::Prepared { have_bytes: 0 });
    }
    let error = "connection reset".to_owned();
    let node = NodeId(0);
    c.handle(at(10.0), Input::Lost { node, error });
    let outputs = c.handle(at(12.5), Input::Woken);
    let asked: Vec<u32> = orders(&outputs)
        .into_iter()
        .filter(|(_, order)| **order == Order::Census)
        .map(|(to, _)| to)
        .collect();
    assert_eq!(asked, [1, 2]);
    c
}

#[test]
fn what_no_host_has_any_more_is_said_without_waiting() {
    let mut c = orphans();
    report(&mut c, 12.6, 1, held(20, &[0, 1, 2, 3]));
    assert!(!c.has_ended());
    report(&mut c, 12.7, 2, held(20, &[3, 4, 9]));
    assert!(c.has_ended());
    for host in &c.nodes()[1..] {
        let error = host.error.as_deref().unwrap_or_default();
        let expected = "14 of 20 blocks are on no remaining host (5-8, 10-19); the source is \
                        lost: connection reset; run the command again";
        assert_eq!(error, expected);
    }
}

#[test]
fn hosts_that_have_everything_between_them_go_on() {
    let mut c = orphans();
    report(&mut c, 12.6, 1, held(4, &[0, 1]));
    report(&mut c, 12.7, 2, held(4, &[2, 3]));
    assert!(c.nodes()[1..].iter().all(|host| host.error.is_none()));
    // A claim that cannot be is none, and takes no memory.
    let mut c = orphans();
    report(&mut c, 12.6, 1, held(u32::MAX, &[]));
    report(&mut c, 12.7, 2, held(4, &[0, 1, 2, 3]));
    assert!(c.nodes()[1..].iter().all(|host| host.error.is_none()));
}

fn refuse(c: &mut Coordinator, now: f64, node: u32) -> Vec<Output> {
    let error = "/copy: taken".to_owned();
    let node = NodeId(node);
    c.handle(at(now), Input::Refused { node, error })
}

fn errors(c: &Coordinator) -> Vec<&str> {
    let errors = c.nodes()[1..].iter().map(|host| host.error.as_deref());
    errors.map(Option::unwrap_or_default).collect()
}

#[test]
fn one_refusal_before_the_start_refuses_all() {
    let mut c = coordinator(3);
    for node in [0, 1, 3] {
        join(&mut c, 0.1, node);
    }
    let out = refuse(&mut c, 0.2, 2);
    let finished: Vec<u32> = orders(&out)
        .iter()
        .filter(|(_, order)| **order == Order::Finish)
        .map(|(to, _)| *to)
        .collect();
    assert_eq!(finished, [1, 3, 0]);
    assert!(begun(&out).is_empty());
    assert!(c.has_ended());
    assert_eq!(c.refused(), Some(NodeId(2)));
    let others = "refused: host2: /copy: taken";
    assert_eq!(errors(&c), [others, "/copy: taken", others]);
}

#[test]
fn a_refused_cast_does_not_begin_for_who_has_everything() {
    let mut c = coordinator(2);
    join(&mut c, 0.1, 0);
    join(&mut c, 0.1, 1);
    let complete = Report::Complete { received_bytes: 0 };
    report(&mut c, 0.2, 1, complete);
    let out = refuse(&mut c, 0.3, 2);
    assert!(begun(&out).is_empty());
    assert!(c.has_ended());
    assert_eq!(c.nodes()[1].state, HostState::Verified);
    assert_eq!(c.refused(), Some(NodeId(2)));
}

#[test]
fn who_waits_for_another_cast_is_waited_for() {
    let mut c = coordinator(3);
    for node in [0, 1, 2] {
        join(&mut c, 0.1, node);
    }
    let node = NodeId(3);
    assert!(begun(&c.handle(at(0.2), Input::Waiting { node })).is_empty());
    for second in 1..15 {
        let out = c.handle(at(f64::from(second)), Input::Woken);
        assert!(begun(&out).is_empty(), "{second}");
    }
    assert_eq!(begun(&join(&mut c, 15.0, 3)), [0, 1, 2, 3]);
}

#[test]
fn who_comes_late_is_refused_alone() {
    let mut c = coordinator(3);
    for node in [0, 1, 2] {
        join(&mut c, 0.1, node);
    }
    assert_eq!(begun(&c.handle(at(10.0), Input::Woken)), [0, 1, 2]);
    refuse(&mut c, 11.0, 3);
    assert_eq!(errors(&c), ["", "", "/copy: taken"]);
    assert_eq!(c.refused(), None);
    // So is one that finds out once it has the manifest.
    let mut c = coordinator(3);
    for node in [0, 1, 2] {
        join(&mut c, 0.1, node);
    }
    c.handle(at(10.0), Input::Woken);
    join(&mut c, 11.0, 3);
    let error = || "/copy: taken".to_owned();
    report(&mut c, 12.0, 3, Report::Refused { error: error() });
    assert_eq!(errors(&c), ["", "", "/copy: taken"]);
}

#[test]
fn a_refusal_once_the_manifest_is_known_refuses_all_without_a_verdict() {
    let mut c = coordinator(3);
    for node in [0, 1, 2, 3] {
        join(&mut c, 0.1, node);
    }
    assert!(c.began_at().is_some());
    report(&mut c, 0.5, 1, Report::Complete { received_bytes: 0 });
    let error = "/copy: taken".to_owned();
    report(&mut c, 1.0, 2, Report::Refused { error });
    assert!(c.has_ended());
    assert_eq!(c.nodes()[1].state, HostState::Verified);
    let other = "refused: host2: /copy: taken";
    assert_eq!(errors(&c), ["", "/copy: taken", other]);
    // A host that has failed has nothing more to say.
    refuse(&mut c, 2.0, 3);
    assert_eq!(errors(&c), ["", "/copy: taken", other]);
}

/// What goes on without the last source.
const NO_SOURCE: &str =
    "; no source is left, so hosts finish only if together they have every block";

fn lose(c: &mut Coordinator, now: f64, node: u32, error: &str) -> Vec<Output> {
    let (node, error) = (NodeId(node), error.to_owned());
    c.handle(at(now), Input::Lost { node, error })
}

fn notices(outputs: &[Output]) -> Vec<&str> {
    let said = outputs.iter().filter_map(|output| match output {
        Output::Notice(notice) => Some(notice.as_str()),
        _ => None,
    });
    said.collect()
}

#[test]
fn one_source_is_enough_to_begin_and_a_late_one_joins_in() {
    let mut c = with_sources(2, 1);
    assert!(begun(&join(&mut c, 0.1, 2)).is_empty());
    assert_eq!(begun(&join(&mut c, 0.2, 1)), [1, 2]);
    let late = join(&mut c, 5.0, 0);
    assert_eq!(begun(&late), [0]);
    let met = |(_, order): &(u32, &Order)| {
        matches!(
            order,
            Order::Met {
                node: NodeId(0),
                ..
            }
        )
    };
    let met: Vec<u32> = orders(&late)
        .into_iter()
        .filter(met)
        .map(|it| it.0)
        .collect();
    assert_eq!(met, [1, 2]);
    assert_eq!(c.nodes()[0].state, HostState::Serving);
}

#[test]
fn a_source_that_is_lost_is_named_and_the_others_go_on() {
    let mut c = with_sources(2, 1);
    c.config.size_bytes = 1 << 20;
    for node in 0..3 {
        join(&mut c, 0.1, node);
    }
    report(&mut c, 0.5, 2, Report::Prepared { have_bytes: 0 });
    let outputs = lose(&mut c, 1.0, 0, "connection reset");
    let lost = "source: connection reset; the cast continues without this host";
    assert_eq!(notices(&outputs), [lost]);
    assert!(orders(&outputs).contains(&(2, &Order::Left { node: NodeId(0) })));
    // It says so until it is dismissed, and is named once.
    let error = "connection reset".to_owned();
    assert!(notices(&report(&mut c, 1.1, 0, Report::Failed { error })).is_empty());
    // As long as there is a source the hosts' blocks are not counted.
    c.handle(at(4.0), Input::Woken);
    assert!(c.nodes()[2].error.is_none());
    let outputs = lose(&mut c, 5.0, 1, "no route");
    assert_eq!(notices(&outputs), [format!("source1: no route{NO_SOURCE}")]);
    let outputs = c.handle(at(9.0), Input::Woken);
    assert!(orders(&outputs).contains(&(2, &Order::Census)));
    let outputs = report(&mut c, 9.1, 2, held(20, &[0]));
    assert!(outputs.contains(&Output::Ended));
    let error = c.nodes()[2].error.as_deref().unwrap_or_default();
    assert!(error.contains("the source is lost: no route"), "{error}");
}

#[test]
fn without_any_source_nothing_begins() {
    let mut c = with_sources(2, 2);
    join(&mut c, 0.1, 2);
    lose(&mut c, 0.2, 0, "holds another version");
    assert!(!c.has_ended());
    lose(&mut c, 0.3, 1, "connection refused");
    assert!(c.has_ended());
    let error = c.nodes()[3].error.as_deref();
    assert_eq!(error, Some("there is no source: connection refused"));
    assert_eq!(c.began_at(), None);
}

#[test]
fn a_source_that_was_not_ready_in_time_is_named() {
    let mut c = with_sources(2, 1);
    join(&mut c, 0.1, 0);
    join(&mut c, 0.1, 2);
    let received_bytes = 1000;
    let outputs = report(&mut c, 0.5, 2, Report::Complete { received_bytes });
    assert!(c.has_ended());
    let expected = "source1: the cast was over before it could serve";
    assert_eq!(notices(&outputs), [expected]);
}

#[test]
fn a_source_has_no_verdict_whatever_it_reports() {
    let mut c = with_sources(1, 1);
    join(&mut c, 0.1, 0);
    join(&mut c, 0.1, 1);
    let received_bytes = 1000;
    report(&mut c, 0.5, 0, Report::Finishing);
    report(&mut c, 0.6, 0, Report::Complete { received_bytes });
    let why = "full".to_owned();
    let rereads = true;
    report(&mut c, 0.7, 0, Report::Paused { why, rereads });
    assert_eq!(c.nodes()[0].state, HostState::Serving);
    assert!(!c.has_ended());
    report(&mut c, 0.8, 1, Report::Complete { received_bytes });
    assert!(c.has_ended());
}

#[test]
fn sources_alone_are_told_what_traffic_there_is_and_late_ones_too() {
    use outpour_core::network::ClusterId;
    let mut c = with_sources(2, 2);
    let measured = |mb: f64| {
        let rate = outpour_core::Rate::from_bytes_per_s(mb * 1e6).unwrap_or_default();
        let one = Traffic {
            from: ClusterId(0),
            to: ClusterId(1),
            rate,
            peak: rate,
        };
        vec![one]
    };
    let told = |outputs: &[Output]| -> Vec<(u32, usize)> {
        let traffic = |output: &Output| match output {
            Output::Order { to, given } => match &given.order {
                Order::Foreground { traffic } => Some((to.0, traffic.len())),
                _ => None,
            },
            _ => None,
        };
        outputs.iter().filter_map(traffic).collect()
    };
    join(&mut c, 0.0, 0);
    let early = c.handle(at(0.1), Input::Foreground(measured(1.0)));
    assert_eq!(told(&early), [], "nothing has begun");
    join(&mut c, 0.2, 2);
    assert_eq!(told(&join(&mut c, 0.3, 3)), [(0, 1)]);
    assert_eq!(told(&join(&mut c, 0.4, 1)), [(1, 1)], "a late source");
    let none = c.handle(at(0.5), Input::Foreground(Vec::new()));
    assert_eq!(told(&none), [(0, 0), (1, 0)], "it is over");
    // Where there never was any, nothing is said.
    let mut c = coordinator(1);
    join(&mut c, 0.0, 0);
    assert_eq!(told(&join(&mut c, 0.1, 1)), []);
    assert_eq!(told(&c.handle(at(0.2), Input::Foreground(Vec::new()))), []);
}
