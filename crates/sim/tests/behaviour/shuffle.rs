//! Shuffles that share a cluster: the paper's examples, bounds, and what may never happen.

use outpour_planner::shuffle::schedule::{
    Discipline, Placed, Placing, Rpc, RpcOptions, Scheme, Waves,
};
use outpour_planner::shuffle::{Coflow, Flow, HostId, Hosts};
use outpour_sim::shuffle::benchmark::Trace;
use outpour_sim::shuffle::{Arrival, Overheads, ShuffleReport, simulate, stepped};
use proptest::prelude::*;

/// Bytes per second that a link of 1 Gbit/s carries of a file, as in the paper's testbed.
const PAYLOAD: f64 = 930e6 / 8.0;
const MB: f64 = 1e6;

/// A coflow of one flow for each reducer: from a mapper, so many bytes.
fn flows(flows: &[(HostId, f64)]) -> Coflow {
    let flow = |(mapper, bytes): &(HostId, f64)| {
        vec![Flow {
            mapper: *mapper,
            bytes: *bytes,
        }]
    };
    Coflow::new(flows.iter().map(flow).collect()).unwrap()
}

fn together(coflows: Vec<Coflow>) -> Vec<Arrival> {
    let arrivals = coflows.into_iter().map(|it| Arrival::new(0.0, it));
    arrivals.collect()
}

fn by(hosts: &Hosts, arrivals: Vec<Arrival>, scheme: Scheme) -> ShuffleReport {
    let mut scheduler = scheme.scheduler(RpcOptions::default());
    let none = Overheads::default();
    simulate(hosts, arrivals, &mut *scheduler, &none, |_| {}).unwrap()
}

/// With reducers on these hosts.
fn on(hosts: &Hosts, arrivals: &[Arrival], places: &[&[HostId]], how: Discipline) -> Vec<f64> {
    let arrivals = arrivals.iter().cloned().zip(places);
    let arrivals = arrivals.map(|(arrival, places)| Arrival {
        recorded: places.to_vec(),
        ..arrival
    });
    let mut scheduler = Placed::new(Placing::Recorded(1), how);
    let none = Overheads::default();
    let report = simulate(hosts, arrivals, &mut scheduler, &none, |_| {});
    report.unwrap().ccts_s
}

fn near(found: &[f64], wanted: &[f64], within: f64) {
    assert_eq!(found.len(), wanted.len());
    for (one, other) in found.iter().zip(wanted) {
        assert!(
            (one / other - 1.0).abs() <= within,
            "{found:?} is not {wanted:?}"
        );
    }
}

/// Host 0 holds all, hosts 1 to 3 receive 2, 1 and 1 Gbit/s [RPC figure 1].
fn figure_1() -> (Hosts, Vec<Arrival>) {
    let gbit = 1e9 / 8.0;
    let hosts = Hosts {
        out: vec![10.0 * gbit, 0.0, 0.0, 0.0],
        into: vec![0.0, 2.0 * gbit, gbit, gbit],
        slots: vec![0, 9, 9, 9],
    };
    let coflow = |sizes: [f64; 3]| flows(&sizes.map(|size| (0, size * gbit)));
    let coflows = vec![coflow([1.0, 1.5, 2.0]), coflow([1.5, 2.0, 2.0])];
    (hosts, together(coflows))
}

#[test]
fn places_and_rates_together_take_2_25_s_on_average() {
    let (hosts, arrivals) = figure_1();
    let report = by(&hosts, arrivals, Scheme::Rpc);
    near(&report.ccts_s, &[1.5, 3.0], 1e-9);
}

#[test]
fn starting_reducers_wherever_there_is_room_is_later() {
    let (hosts, arrivals) = figure_1();
    let report = by(&hosts, arrivals, Scheme::RpcConserving);
    near(&report.ccts_s, &[1.5, 3.5], 1e-9);
}

#[test]
fn good_rates_on_bad_places_and_equal_rates_on_good_ones_take_3_s_on_average() {
    let (hosts, arrivals) = figure_1();
    let bad: [&[HostId]; 2] = [&[1, 1, 2], &[1, 3, 2]];
    let found = on(&hosts, &arrivals, &bad, Discipline::SmallestBottleneck);
    near(&found, &[2.0, 4.0], 1e-9);
    let good: [&[HostId]; 2] = [&[2, 3, 1], &[2, 1, 1]];
    let found = on(&hosts, &arrivals, &good, Discipline::Fair);
    near(&found, &[3.0, 3.0], 1e-9);
}

/// Mappers A, B and C are hosts 0 to 2, D, E and F are 3 to 5 [RPC table I].
fn testbed() -> (Hosts, Vec<Arrival>) {
    let into = [1.0, 1.0, 1.0, 0.5, 0.5, 1.0];
    let hosts = Hosts {
        out: vec![PAYLOAD; 6],
        into: into.map(|gbit| gbit * PAYLOAD).to_vec(),
        slots: vec![0, 0, 0, 9, 9, 9],
    };
    let (a, b, c) = (0, 1, 2);
    let coflows = vec![
        flows(&[(a, 200.0 * MB), (b, 500.0 * MB)]),
        flows(&[(a, 500.0 * MB), (c, 1000.0 * MB)]),
        flows(&[(b, 1000.0 * MB), (c, 1000.0 * MB)]),
    ];
    (hosts, together(coflows))
}

#[test]
fn the_testbed_takes_as_long_as_it_took() {
    let (hosts, arrivals) = testbed();
    let report = by(&hosts, arrivals.clone(), Scheme::Rpc);
    near(&report.ccts_s, &[4.30, 12.90, 21.51], 0.01);
    near(&[report.average_cct_s], &[12.90], 0.01);
    let (d, e, f) = (3, 4, 5);
    // Where NEAT put its reducers in the paper; what it prints for the last coflow is the other way round.
    let places: [&[HostId]; 3] = [&[d, e], &[d, f], &[e, f]];
    let found = on(&hosts, &arrivals, &places, Discipline::SmallestBottleneck);
    near(&found, &[8.60, 12.04, 25.80], 0.01);
    // And the baseline.
    let places: [&[HostId]; 3] = [&[f, d], &[e, e], &[f, d]];
    let found = on(&hosts, &arrivals, &places, Discipline::Fair);
    near(&found, &[17.20, 25.80, 25.81], 0.01);
}

/// A mapper and a host for reducers, 100 bytes per second each.
fn pair() -> Hosts {
    Hosts {
        out: vec![100.0, 100.0],
        into: vec![0.0, 100.0],
        slots: vec![0, 9],
    }
}

#[test]
fn a_coflow_that_waits_for_too_long_comes_first() {
    // One that takes all of a second arrives every second: the large one gets nothing until they end.
    let small = (0..100).map(|at| Arrival::new(f64::from(at), flows(&[(0, 100.0)])));
    let large = Arrival::new(0.0, flows(&[(0, 300.0)]));
    let all: Vec<Arrival> = std::iter::once(large).chain(small).collect();
    let took = |starvation_s: f64| {
        let mut scheduler = Rpc::new(RpcOptions {
            starvation_s,
            ..RpcOptions::default()
        });
        let none = Overheads::default();
        let report = simulate(&pair(), all.clone(), &mut scheduler, &none, |_| {});
        report.unwrap().ccts_s[0]
    };
    near(&[took(1e3), took(10.0)], &[103.0, 13.0], 1e-6);
}

#[test]
fn weights_and_deadlines_come_before_size() {
    let (short, long) = (flows(&[(0, 100.0)]), flows(&[(0, 300.0)]));
    let arrivals = vec![Arrival::new(0.0, short), Arrival::new(0.0, long)];
    let run = |arrivals: Vec<Arrival>| by(&pair(), arrivals, Scheme::Rpc).ccts_s;
    near(&run(arrivals.clone()), &[1.0, 4.0], 1e-9);
    let mut heavy = arrivals.clone();
    heavy[1].weight = 8.0;
    near(&run(heavy), &[4.0, 3.0], 1e-9);
    let mut urgent = arrivals.clone();
    urgent[1].deadline_s = Some(3.5);
    near(&run(urgent), &[4.0, 3.0], 1e-9);
    let mut in_vain = arrivals;
    in_vain[1].deadline_s = Some(2.5);
    near(&run(in_vain), &[1.0, 4.0], 1e-9);
}

#[test]
fn overheads_come_before_the_first_byte() {
    let (hosts, arrivals) = testbed();
    let overheads = Overheads {
        mappers_s: 1.0,
        collect_s: 0.1,
        solve_s: 0.2,
        place_s: 0.3,
        rates_s: 0.4,
    };
    let mut scheduler = Rpc::new(RpcOptions::default());
    let report = simulate(&hosts, arrivals, &mut scheduler, &overheads, |_| {}).unwrap();
    near(&report.ccts_s, &[6.30, 14.90, 23.51], 0.01);
}

#[test]
fn small_coflows_that_are_not_planned_come_first() {
    let (short, long) = (flows(&[(0, 100.0)]), flows(&[(0, 300.0)]));
    // The short one arrives in the middle and takes all until it is complete.
    let arrivals = vec![Arrival::new(0.0, long), Arrival::new(1.0, short)];
    let mut scheduler = Rpc::new(RpcOptions {
        background_bytes: 200.0,
        ..RpcOptions::default()
    });
    let none = Overheads::default();
    let report = simulate(&pair(), arrivals, &mut scheduler, &none, |_| {}).unwrap();
    near(&report.ccts_s, &[4.0, 1.0], 1e-9);
}

#[test]
fn slots_make_reducers_wait() {
    // Each mapper sends half of what the host receives: both at once would take 2 s.
    let hosts = |slots| Hosts {
        out: vec![50.0, 50.0, 0.0],
        into: vec![0.0, 0.0, 100.0],
        slots: vec![0, 0, slots],
    };
    let arrivals = together(vec![flows(&[(0, 100.0), (1, 100.0)])]);
    let many = by(&hosts(2), arrivals.clone(), Scheme::Rpc);
    near(&many.ccts_s, &[2.0], 1e-9);
    // With room for one the planner says that two reducers cannot be placed at all: two coflows can.
    let arrivals = together(vec![flows(&[(0, 100.0)]), flows(&[(1, 100.0)])]);
    let one = by(&hosts(1), arrivals.clone(), Scheme::Rpc);
    near(&one.ccts_s, &[2.0, 4.0], 1e-9);
    let both = by(&hosts(2), arrivals, Scheme::Rpc);
    near(&both.ccts_s, &[2.0, 2.0], 1e-9);
}

#[test]
fn the_shortest_comes_first() {
    // The largest arrives first; one after the other they take 1 s, 2 s, ... each.
    let sizes = (1..=8)
        .rev()
        .map(|size| flows(&[(0, f64::from(size) * 100.0)]));
    let report = by(&pair(), together(sizes.collect()), Scheme::Rpc);
    let wanted = [36.0, 28.0, 21.0, 15.0, 10.0, 6.0, 3.0, 1.0];
    near(&report.ccts_s, &wanted, 1e-9);
}

#[test]
fn what_never_ends_is_named() {
    let hosts = Hosts {
        out: vec![0.0, 1.0],
        ..pair()
    };
    for scheme in Scheme::ALL {
        let mut scheduler = scheme.scheduler(RpcOptions::default());
        let arrivals = together(vec![flows(&[(0, 1.0)])]);
        let none = Overheads::default();
        let stuck = simulate(&hosts, arrivals, &mut *scheduler, &none, |_| {});
        let named = stuck.map_err(|stuck| stuck.coflows);
        assert_eq!(named, Err(vec![0]), "{}", scheme.name());
    }
}

#[test]
fn the_public_simulator_counts_in_steps() {
    let played = |text: &str, rule| {
        let trace = Trace::parse(text, "trace").unwrap();
        let report = stepped::simulate(&trace, rule, stepped::PORT_BITS_PER_S, |_| {}).unwrap();
        let steps = report.ccts_s.iter().map(|cct| cct * 1024.0 / 8.0);
        steps.collect::<Vec<f64>>()
    };
    let first = stepped::Rule::SmallestBottleneck;
    // A mebibyte takes a step, and each mapper sends at least one.
    assert_eq!(played("3 1\n1 0 1 0 1 2:1.0\n", first), [1.0]);
    assert_eq!(played("3 1\n1 0 2 0 1 1 2:1.0\n", first), [2.0]);
    assert_eq!(played("3 1\n1 0 2 0 1 1 2:3.0\n", first), [4.0]);
    // One that comes at 10,241 ms is admitted at 10,240, one that comes before at the beginning.
    let text = "3 3\n1 0 1 0 1 2:8.0\n2 10240 1 0 1 2:2.0\n3 10241 1 0 1 2:1.0\n";
    assert_eq!(played(text, first), [10.0, 2.0, 1.0]);
    // Equal shares: the first has as much as the second until that is complete.
    assert_eq!(played(text, stepped::Rule::Fair), [10.0, 4.0, 1.0]);
}

#[test]
fn steps_that_never_end_are_refused() {
    let trace = Trace::parse("3 1\n1 0 1 0 1 2:1.0\n", "trace").unwrap();
    let slow = stepped::simulate(&trace, stepped::Rule::Fair, 1e-4, |_| {});
    assert!(
        matches!(slow, Err(stepped::Unplayable::Steps(_))),
        "{slow:?}"
    );
    let trace = Trace::parse("3 1\n1 0 1 0 1 2:1e12\n", "trace").unwrap();
    let port = stepped::PORT_BITS_PER_S;
    let large = stepped::simulate(&trace, stepped::Rule::SmallestBottleneck, port, |_| {});
    assert!(
        matches!(large, Err(stepped::Unplayable::Steps(_))),
        "{large:?}"
    );
}

#[test]
fn coflows_that_end_together_or_move_nothing_have_their_times() {
    // The second ends some microseconds after the first.
    let text = "2 2\n1 0 1 0 1 0:1000000\n2 0 1 1 1 1:1000000.0005\n";
    let nothing = "2 2\n1 0 1 0 1 1:0\n2 0 1 0 1 1:128\n";
    for scheme in Scheme::ALL {
        for (text, least) in [(text, 7812.4), (nothing, 0.0)] {
            let trace = Trace::parse(text, "trace").unwrap();
            let arrivals = trace.arrivals().into_iter().map(|(_, arrival)| arrival);
            let hosts = trace.hosts(128.0 * 1_048_576.0);
            let report = by(&hosts, arrivals.collect(), scheme);
            let shortest = report.ccts_s.iter().copied().fold(f64::INFINITY, f64::min);
            assert!(shortest >= least, "{}: {:?}", scheme.name(), report.ccts_s);
        }
    }
}

#[test]
fn queues_of_coflows_that_have_sent_more_come_later() {
    // The first, which arrives late, has sent 10 MiB after 1 s: then the second, new, comes first.
    let mib = 1_048_576.0;
    let hosts = Hosts {
        out: vec![10.0 * mib, 10.0 * mib],
        into: vec![0.0, 10.0 * mib],
        slots: vec![0, 9],
    };
    let coflow = || flows(&[(0, 20.0 * mib)]);
    let arrivals = vec![Arrival::new(100.0, coflow()), Arrival::new(100.5, coflow())];
    let report = by(&hosts, arrivals, Scheme::Aalo);
    // The second sends its first 10 MiB from 1 s to 2 s; then the first is the first again.
    near(&report.ccts_s, &[3.0, 3.5], 1e-6);
}

/// Coflows of one to three reducers; mappers may be where reducers may run.
/// A fast host and a slow one, each of which runs one reducer at a time, and a mapper.
fn one_at_a_time() -> Hosts {
    Hosts {
        out: vec![1000.0, 0.0, 0.0],
        into: vec![0.0, 100.0, 10.0],
        slots: vec![0, 1, 1],
    }
}

fn in_waves(waves: Waves, arrivals: Vec<Arrival>) -> Vec<f64> {
    let mut scheduler = Rpc::new(RpcOptions {
        waves,
        ..RpcOptions::default()
    });
    let none = Overheads::default();
    let hosts = one_at_a_time();
    simulate(&hosts, arrivals, &mut scheduler, &none, |_| {})
        .unwrap()
        .ccts_s
}

#[test]
fn a_coflow_with_more_reducers_than_hosts_run_goes_in_waves() {
    let four = || together(vec![flows(&[(0, 100.0); 4])]);
    // All four on the fast host, one after the other; the slow one takes ten seconds for one.
    near(&in_waves(Waves::Planned, four()), &[4.0], 1e-9);
    // The first wave takes both hosts; as a coflow, it had better wait for the fast one.
    near(&in_waves(Waves::Conserving, four()), &[10.0], 1e-9);
    near(&in_waves(Waves::Coflows, four()), &[4.0], 1e-9);
    // The first wave is the two large ones; of the last, only the last reducer is planned.
    let three = || together(vec![flows(&[(0, 200.0), (0, 40.0), (0, 30.0)])]);
    near(&in_waves(Waves::Conserving, three()), &[4.0], 1e-9);
    near(&in_waves(Waves::Coflows, three()), &[2.7], 1e-9);
    near(&in_waves(Waves::Planned, three()), &[2.7], 1e-9);
    // Many waves, in each of which the slow host ends last.
    for waves in [Waves::Planned, Waves::Conserving, Waves::Coflows] {
        let sizes: Vec<(HostId, f64)> = (1..=20).map(|size| (0, f64::from(size))).collect();
        let ccts = in_waves(waves, together(vec![flows(&sizes)]));
        assert!(
            ccts[0] >= 210.0 / 110.0 && ccts[0] <= 4.5,
            "{waves:?}: {ccts:?}"
        );
    }
}

#[test]
fn reducers_that_end_where_they_start_make_room_at_once() {
    // The only host that runs reducers, one at a time, holds what the first three want.
    let hosts = Hosts {
        out: vec![100.0, 100.0],
        into: vec![0.0, 10.0],
        slots: vec![0, 1],
    };
    for scheme in Scheme::ALL {
        let sizes = [(1, 50.0), (1, 40.0), (1, 30.0), (0, 20.0)];
        let report = by(&hosts, together(vec![flows(&sizes)]), scheme);
        // 2D-Placement moves the data away first.
        let takes = if scheme == Scheme::TwoD { 20.0 } else { 2.0 };
        assert!(report.ccts_s[0] <= takes, "{}: {report:?}", scheme.name());
    }
}

#[test]
fn every_scheduler_waits_for_hosts_that_run_so_many_reducers() {
    for scheme in Scheme::ALL {
        let arrivals = together(vec![flows(&[(0, 100.0); 3]), flows(&[(0, 50.0); 2])]);
        // How many reducers hosts run is checked at every decision.
        let report = by(&one_at_a_time(), arrivals, scheme);
        let least = 400.0 / 110.0;
        assert!(
            report.makespan_s >= least && report.makespan_s <= 40.0 + 1e-9,
            "{}: {report:?}",
            scheme.name()
        );
    }
}

#[test]
fn reducers_that_have_started_stay_under_every_scheduler() {
    for scheme in Scheme::ALL {
        let arrival = Arrival {
            started: vec![Some(2), None],
            ..Arrival::new(0.0, flows(&[(0, 100.0), (0, 10.0)]))
        };
        let hosts = Hosts {
            slots: vec![0, 9, 9],
            ..one_at_a_time()
        };
        let report = by(&hosts, vec![arrival], scheme);
        // On the slow host 100 bytes take ten seconds, and eleven with the other reducer.
        let times = [10.0, 11.0];
        let is_one = times.iter().any(|it| (report.ccts_s[0] - it).abs() < 1e-9);
        assert!(is_one, "{}: {report:?}", scheme.name());
    }
}

#[test]
fn a_coflow_that_gets_nothing_does_not_keep_others_in_their_queue() {
    let mib = 1024.0 * 1024.0;
    let hosts = Hosts {
        out: vec![100.0 * mib, 0.0, 0.0, 0.0],
        into: vec![0.0, 10.0 * mib, 10.0 * mib, 10.0 * mib],
        slots: vec![0, 9, 9, 9],
    };
    let arrivals = together(vec![flows(&[(0, 50.0 * mib)]), flows(&[(0, 50.0 * mib)])]);
    // After 10 MiB the first comes behind the second, until that has sent as much.
    let ccts = on(&hosts, &arrivals, &[&[1], &[1]], Discipline::LeastSent);
    near(&ccts, &[6.0, 10.0], 1e-9);
    // Where there is room at its host, and none at its mapper.
    let hosts = Hosts {
        out: vec![10.0 * mib, 0.0, 0.0, 0.0],
        ..hosts
    };
    let ccts = on(&hosts, &arrivals, &[&[1], &[2]], Discipline::LeastSent);
    near(&ccts, &[6.0, 10.0], 1e-9);
}

#[test]
fn a_wave_that_is_a_coflow_is_as_short_as_the_wave() {
    let mut hosts = one_at_a_time();
    hosts.slots[2] = 0;
    let coflows = vec![flows(&[(0, 10.0); 5]), flows(&[(0, 20.0)])];
    let by = |waves| {
        let mut scheduler = Rpc::new(RpcOptions {
            waves,
            ..RpcOptions::default()
        });
        let none = Overheads::default();
        let arrivals = together(coflows.clone());
        simulate(&hosts, arrivals, &mut scheduler, &none, |_| {})
            .unwrap()
            .ccts_s
    };
    near(&by(Waves::Planned), &[0.7, 0.2], 1e-9);
    near(&by(Waves::Coflows), &[0.5, 0.7], 1e-9);
}

fn some_coflows() -> impl Strategy<Value = Vec<Arrival>> {
    let flow = (0_usize..6, 1_u32..1000);
    let reducer = proptest::collection::vec(flow, 1..4);
    let coflow = (0_u32..50, proptest::collection::vec(reducer, 1..4));
    proptest::collection::vec(coflow, 1..12).prop_map(|mut coflows| {
        coflows.sort_by_key(|(at, _)| *at);
        let flow = |(mapper, bytes): (usize, u32)| Flow {
            mapper,
            bytes: f64::from(bytes),
        };
        let arrival = |(at, reducers): (u32, Vec<Vec<(usize, u32)>>)| {
            let reducers = reducers.into_iter();
            let reducers = reducers.map(|flows| flows.into_iter().map(flow).collect());
            Arrival::new(f64::from(at), Coflow::new(reducers.collect()).unwrap())
        };
        coflows.into_iter().map(arrival).collect()
    })
}

proptest! {
    /// Every coflow ends under every scheduler, none before all it fetches can be there, and no host ever
    /// sends or receives more than it may, which the simulator asserts. The same again is the same.
    #[test]
    fn every_coflow_ends(
        arrivals in some_coflows(),
        rates in proptest::collection::vec(1_u32..50, 12),
        slots in proptest::collection::vec(1_u32..4, 3),
    ) {
        let rate = |index: usize| f64::from(rates[index]);
        let hosts = Hosts {
            out: (0..6).map(rate).collect(),
            into: (6..12).map(rate).collect(),
            // Three stand for any number.
            slots: (0..6)
                .map(|host: usize| match host.checked_sub(3).map(|host| slots[host]) {
                    None => 0,
                    Some(3) => u32::MAX,
                    Some(few) => few,
                })
                .collect(),
        };
        for waves in [Waves::Conserving, Waves::Coflows] {
            let mut scheduler = Rpc::new(RpcOptions { waves, ..RpcOptions::default() });
            let none = Overheads::default();
            let report = simulate(&hosts, arrivals.clone(), &mut scheduler, &none, |_| {});
            prop_assert!(report.is_ok_and(|report| report.ccts_s.len() == arrivals.len()));
        }
        let received: f64 = hosts.into[3..].iter().sum();
        for scheme in Scheme::ALL {
            let report = by(&hosts, arrivals.clone(), scheme);
            prop_assert_eq!(report.ccts_s.len(), arrivals.len());
            let last = arrivals.iter().zip(&report.ccts_s).map(|(arrival, cct)| arrival.at_s + cct);
            let last = last.fold(0.0, f64::max) - arrivals[0].at_s;
            prop_assert!((report.makespan_s - last).abs() < 1e-6, "{}", scheme.name());
            for (cct, arrival) in report.ccts_s.iter().zip(&arrivals) {
                // What is on hosts without reducers is sent for sure.
                let flows = (0..arrival.coflow.reducers()).flat_map(|it| arrival.coflow.flows(it));
                let remote = flows.filter(|flow| flow.mapper < 3);
                let sent: f64 = remote.map(|flow| flow.bytes).sum();
                let moves = scheme == Scheme::TwoD;
                prop_assert!(moves || *cct >= sent / received * (1.0 - 1e-6), "{}", scheme.name());
            }
            prop_assert_eq!(&by(&hosts, arrivals.clone(), scheme), &report);
        }
    }

    /// Nobody waits for much longer than the guard says and all that comes first takes.
    #[test]
    fn nobody_starves(arrivals in some_coflows(), starvation in 1_u32..20) {
        let hosts = Hosts {
            out: vec![50.0; 6],
            into: vec![50.0; 6],
            slots: vec![0, 0, 0, 9, 9, 9],
        };
        let starvation_s = f64::from(starvation);
        let mut scheduler = Rpc::new(RpcOptions {
            starvation_s,
            ..RpcOptions::default()
        });
        let none = Overheads::default();
        let report = simulate(&hosts, arrivals.clone(), &mut scheduler, &none, |_| {}).unwrap();
        // At worst all others starve, too, and before that each of its bytes waited as long.
        let all: f64 = arrivals.iter().map(|arrival| arrival.coflow.bytes()).sum();
        let most = starvation_s + 2.0 * all / 50.0;
        for cct in &report.ccts_s {
            prop_assert!(*cct <= most + 1e-6, "{cct} of {most}");
        }
    }
}
