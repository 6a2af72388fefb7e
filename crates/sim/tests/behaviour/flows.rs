//! Flows packet by packet, against what their papers say of them.

use std::time::Duration;

use outpour_core::Time;
use outpour_sim::packets::flows::{Flow, Flows, Line, Run, Scheme};

const MS: Duration = Duration::from_millis(1);

fn at(seconds: f64) -> Time {
    Time::from_secs_f64(seconds)
}

/// Flows over one bottleneck.
fn over(line: Line, flows: Vec<Flow>, duration: Duration) -> Flows {
    Flows::new(vec![line], flows, duration)
}

fn line(packets_per_s: f64, rtt: Duration, mark: u32, queue: u32) -> Line {
    Line {
        delay: rtt / 2,
        mark_packets: Some(mark),
        ..Line::new("a", "b", packets_per_s, queue)
    }
}

fn flow(scheme: Scheme) -> Flow {
    Flow::new("a", "b", scheme)
}

#[track_caller]
fn near(what: &str, found: f64, expected: f64, share: f64) {
    assert!(
        (found - expected).abs() <= share * expected.abs(),
        "{what}: {found} instead of {expected}"
    );
}

/// That nothing came from nowhere and nothing went there.
#[track_caller]
fn conserved(run: &Run) {
    let all = run.packets;
    assert_eq!(all.sent, all.received + all.dropped + all.inside, "{all:?}");
    let drops: u64 = run.ports.iter().map(|port| port.drops).sum();
    let marks: u64 = run.ports.iter().map(|port| port.marks).sum();
    assert_eq!((drops, marks), (all.dropped, all.marks));
    for flow in &run.flows {
        assert_eq!(flow.sent, flow.received + flow.drops + flow.inside);
    }
}

fn theta(theta: f64) -> Flow {
    Flow {
        theta: vec![(Time::ZERO, theta)],
        ..flow(Scheme::Push)
    }
}

/// Two flows of theta 1 and 4 over 20 Mbit/s [PPUSH §IV-B], for a while.
fn one_to_four(mark: u32, jitter: Duration, seed: u64) -> Run {
    let line = line(20e6 / 8.0 / 1210.0, MS / 10, mark, 400);
    let mut flows = over(line, vec![theta(1.0), theta(4.0)], 200_000 * MS);
    (flows.jitter, flows.seed) = (jitter, seed);
    let run = flows.run().unwrap();
    conserved(&run);
    run
}

/// Windows, averages of marks and queue are those of equations (12) and (17) to (19).
#[test]
fn windows_of_two_flows_are_as_their_weights() {
    let run = one_to_four(30, Duration::ZERO, 0);
    let phase = &run.phases[0];
    let [a, b] = [0, 1].map(|flow| phase.flows[flow].means.clone());
    near("windows", b.mean_cwnd / a.mean_cwnd, 4.0, 0.05);
    near("sum of windows", a.mean_cwnd + b.mean_cwnd, 30.2, 0.1);
    let expected = (2.0 * 5.0 / 30.2_f64).sqrt();
    near("alpha", a.mean_alpha.unwrap(), expected, 0.1);
    near("alpha", b.mean_alpha.unwrap(), expected, 0.1);
    near("queue", phase.ports[0].mean_queue_packets, 30.0, 0.1);
    assert!(phase.ports[0].used >= 0.95, "{}", phase.ports[0].used);
    // What is in flight is a whole number, and as much as the window on average.
    let goodputs = b.goodput_packets_per_s / a.goodput_packets_per_s;
    near("goodputs", goodputs, 4.0, 0.05);
    assert_eq!((run.flows[0].drops, run.flows[0].timeouts), (0, 0));
}

#[test]
fn goodputs_of_two_flows_are_as_their_weights_in_a_longer_queue() {
    let expected = (2.0 * 5.0 / 100.2_f64).sqrt();
    let seeds = 0..6_u32;
    let mut ratio = 0.0;
    for seed in seeds.clone() {
        let run = one_to_four(100, MS / 2, seed.into());
        let phase = &run.phases[0];
        let goodput = |flow: usize| phase.flows[flow].means.goodput_packets_per_s;
        near("all", goodput(0) + goodput(1), 20e6 / 8.0 / 1210.0, 0.01);
        near("queue", phase.ports[0].mean_queue_packets, 100.0, 0.1);
        let alpha = phase.flows[1].means.mean_alpha.unwrap();
        near("alpha", alpha, expected, 0.1);
        ratio += goodput(1) / goodput(0) / f64::from(seeds.end);
    }
    // Which packet is marked is drawn, so that of one run is only about that.
    near("goodputs", ratio, 4.0, 0.05);
}

/// Equations (12) and (17) to (19), and (20) by what lies beyond it: thetas that add up to more than half of Cd + K have
/// marks on all packets, and windows of twice their thetas [PPUSH §IV-A].
#[test]
fn means_of_drawn_parameters_are_those_of_the_equations() {
    let mut state = 7_u64;
    let mut between = |low: f64, high: f64| {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (high - low).mul_add((state >> 33) as f64 / (1_u64 << 31) as f64, low)
    };
    for draw in 0..20 {
        let (rate, mark) = (1e5, between(60.0, 100.0).floor());
        let way = between(0.0, 60.0);
        let count = between(2.0, 4.0).floor() as usize;
        let thetas: Vec<f64> = (0..count).map(|_| between(1.0, 5.0)).collect();
        let (sum, full) = (thetas.iter().sum::<f64>(), way + mark);
        let rtt = Duration::from_secs_f64(way / rate);
        let run = |times: f64| {
            let flows = thetas.iter().map(|it| theta(times * it)).collect();
            let duration = Duration::from_secs_f64(1200.0 * full / rate);
            let mut setup = over(line(rate, rtt, mark as u32, 1000), flows, duration);
            (setup.jitter, setup.seed) = (MS / 100, draw);
            let run = setup.run().unwrap();
            conserved(&run);
            run
        };
        let phase = run(1.0).phases[0].clone();
        let windows: Vec<f64> = phase.flows.iter().map(|it| it.means.mean_cwnd).collect();
        near("windows", windows.iter().sum(), full, 0.1);
        near("queue", phase.ports[0].mean_queue_packets, mark, 0.1);
        for (flow, weight) in phase.flows.iter().zip(&thetas) {
            near("window", flow.means.mean_cwnd, weight / sum * full, 0.1);
            let alpha = flow.means.mean_alpha.unwrap();
            near("alpha", alpha, (2.0 * sum / full).sqrt(), 0.1);
        }
        // Half as much again as the bound.
        let beyond = run(1.5 * full / 2.0 / sum).phases[0].clone();
        near(
            "marks",
            beyond.flows[0].means.mean_alpha.unwrap(),
            1.0,
            0.01,
        );
        let queue = beyond.ports[0].mean_queue_packets;
        near("queue beyond", queue, 1.5 * full - way, 0.1);
    }
}

/// The sawtooth of DCTCP [Alizadeh et al. 2010, §3.3]: N flows with windows up to W* = (C RTT + K) / N
/// mark a share of alpha = sqrt(2 / W*), the queue reaches K + N and swings by sqrt(2 N (C RTT + K)) / 2.
#[test]
fn dctcp_swings_as_its_paper_says() {
    let (rate, rtt, mark) = (1e6, MS, 200_u32);
    assert!(f64::from(mark) > rate * rtt.as_secs_f64() / 7.0);
    for count in [2, 5, 10, 20, 40] {
        let flows = vec![flow(Scheme::Dctcp); count];
        let mut setup = over(line(rate, rtt, mark, 4000), flows, 400 * MS);
        setup.sample = MS / 20;
        let run = setup.run().unwrap();
        conserved(&run);
        let n = count as f64;
        let full = rate * rtt.as_secs_f64() + f64::from(mark);
        let phase = &run.phases[0];
        let alphas = phase.flows.iter().map(|it| it.means.mean_alpha.unwrap());
        let alpha = alphas.sum::<f64>() / n;
        let swing = (2.0 * n * full).sqrt() / 2.0;
        let most = f64::from(mark) + n;
        let queue = phase.ports[0].mean_queue_packets;
        let late = run
            .samples
            .iter()
            .filter(|it| it.at_s > 0.2)
            .map(|it| it.queues[0]);
        let (least_seen, most_seen) = (late.clone().min(), late.max());
        let (least_seen, most_seen) = (least_seen.unwrap() as f64, most_seen.unwrap() as f64);
        // With few flows the packet by which windows overshoot before the mark is back counts for more.
        let share = if count == 2 { 0.25 } else { 0.15 };
        near("alpha", alpha, (2.0 * n / full).sqrt(), share);
        near("mean queue", queue, most - swing / 2.0, 0.05);
        near("longest queue", most_seen, most, 0.02);
        near("swing", most_seen - least_seen, swing, 0.2);
        assert_eq!(run.packets.dropped, 0);
        assert!(
            phase.ports[0].used > 0.999,
            "{count} flows leave the link idle"
        );
    }
}

/// TCP with the whole queue to fill: sawtooth between all the way and half of it [RFC 5681].
#[test]
fn reno_fills_the_queue_and_halves() {
    let mut line = line(833_333.0, MS / 10, 100, 100);
    line.mark_packets = None;
    let mut setup = over(line, vec![flow(Scheme::Reno)], 500 * MS);
    setup.sample = MS / 10;
    let run = setup.run().unwrap();
    conserved(&run);
    let (flow, port) = (&run.flows[0], &run.ports[0]);
    assert_eq!((port.max_queue_packets, flow.timeouts), (100, 0));
    assert_eq!((flow.drops, flow.taken_for_lost), (flow.drops, flow.drops));
    assert!(flow.drops > 3 && port.used > 0.99);
    // 83 packets on their way, 100 in the queue, one being sent.
    let most = 83.3 + 101.0;
    let settled = run.samples.iter().filter(|it| it.at_s > 0.1);
    let windows: Vec<f64> = settled.map(|it| it.flows[0].cwnd).collect();
    let least = windows.iter().copied().fold(f64::MAX, f64::min);
    let largest = windows.iter().copied().fold(0.0, f64::max);
    near("largest window", largest, most, 0.05);
    near("least window", least, most / 2.0, 0.05);
    near(
        "mean window",
        run.phases[0].flows[0].means.mean_cwnd,
        most * 0.75,
        0.05,
    );
}

/// The least window in the time before and after packets are lost in a row, at 10^6 packets per second
/// and 40 us one way [PPUSH §V-A].
fn burst(scheme: Scheme, lost: u64, seed: u64) -> (f64, f64, Run) {
    let mut line = line(1e6, MS * 2 / 25, 30, 100);
    line.lose = vec![(at(0.05), lost)];
    let mut setup = over(line, vec![flow(scheme)], 100 * MS);
    (setup.sample, setup.seed) = (MS / 50, seed);
    let run = setup.run().unwrap();
    conserved(&run);
    let least = |from: f64, to: f64| {
        let around = run.samples.iter();
        let around = around.filter(|it| (from..to).contains(&it.at_s));
        around.map(|it| it.flows[0].cwnd).fold(f64::MAX, f64::min)
    };
    (least(0.03, 0.05), least(0.05, 0.1), run)
}

#[test]
fn a_burst_of_losses_hardly_moves_push_and_halves_dctcp() {
    let seeds = 0..8_u32;
    let mut kept = 0.0;
    for seed in seeds.clone() {
        let (before, after, run) = burst(Scheme::Push, 100, seed.into());
        let mean = run.phases[0].flows[0].means.mean_cwnd;
        near("sum of windows", mean, 110.0, 0.05);
        // What takes the place of so many comes at once, and may find the queue full.
        assert!((100..=102).contains(&run.flows[0].drops));
        assert_eq!(run.flows[0].timeouts, 0);
        kept += after / before / f64::from(seeds.end);
    }
    // Where in its sawtooth the burst finds a window is drawn.
    near("push", kept, 1.0, 0.02);
    let (before, after, run) = burst(Scheme::Dctcp, 100, 0);
    assert!(after < 0.55 * before, "{after} of {before}");
    assert!(run.flows[0].drops >= 100, "{}", run.flows[0].drops);
    // What is longer than the window silences it, and only the timer is left.
    let (_, after, run) = burst(Scheme::Push, 140, 0);
    assert_eq!((after, run.flows[0].timeouts), (1.0, 1));
}

#[test]
fn flows_adapt_when_the_bandwidth_is_halved_and_doubled() {
    for scheme in [Scheme::Push, Scheme::Dctcp] {
        let mut line = line(1e5, MS / 4, 30, 200);
        line.rates = vec![(at(0.4), 5e4), (at(0.8), 1e5)];
        let run = over(line, vec![flow(scheme); 2], 1200 * MS).run().unwrap();
        conserved(&run);
        assert_eq!(run.phases.len(), 3);
        for (phase, (rate, way)) in run
            .phases
            .iter()
            .zip([(1e5, 25.0), (5e4, 12.5), (1e5, 25.0)])
        {
            let goodputs = phase.flows.iter().map(|it| it.means.goodput_packets_per_s);
            near("goodput", goodputs.sum(), rate, 0.01);
            let windows = phase.flows.iter().map(|it| it.means.mean_cwnd);
            near("windows", windows.sum(), way + 30.0, 0.1);
            near("queue", phase.ports[0].mean_queue_packets, 30.0, 0.1);
        }
        assert_eq!(run.packets.dropped, 0);
    }
}

#[test]
fn a_switch_of_theta_moves_bandwidth() {
    let mut changing = theta(4.0);
    changing.theta.push((at(2.0), 0.5));
    let flows = vec![theta(2.0), changing];
    let run = over(line(20_000.0, MS / 10, 60, 200), flows, 4000 * MS)
        .run()
        .unwrap();
    conserved(&run);
    let windows = |phase: usize| {
        let flows = &run.phases[phase].flows;
        flows[1].means.mean_cwnd / flows[0].means.mean_cwnd
    };
    assert_eq!(run.phases[1].flows[1].theta, Some(0.5));
    near("before", windows(0), 2.0, 0.2);
    near("after", windows(1), 0.25, 0.2);
}

/// Two pairs of hosts over a link between two nodes, in which one has a flow of its own against the
/// others' acknowledgements.
fn dumbbell(seed: u64) -> Flows {
    let edge = |from: &str, to: &str| Line::new(from, to, 50_000.0, 100);
    let middle = Line {
        delay: MS,
        mark_packets: Some(20),
        loss: 0.01,
        burst: 2.0,
        ..Line::new("x", "y", 10_000.0, 50)
    };
    let lines = vec![
        edge("a", "x"),
        edge("b", "x"),
        middle,
        edge("y", "c"),
        edge("y", "d"),
    ];
    let mut flows: Vec<Flow> = Scheme::ALL
        .into_iter()
        .map(|scheme| Flow::new("a", "c", scheme))
        .collect();
    flows.push(Flow::new("y", "b", Scheme::Cubic));
    let bounded = |scheme| Flow {
        packets: Some(500),
        start: at(0.1),
        ..Flow::new("b", "d", scheme)
    };
    flows.extend(Scheme::ALL.map(bounded));
    let mut setup = Flows::new(lines, flows, 3000 * MS);
    setup.seed = seed;
    setup.jitter = MS / 10;
    setup
}

#[test]
fn equal_seeds_give_equal_runs_and_others_others() {
    let run = dumbbell(1).run().unwrap();
    conserved(&run);
    assert!(run.packets.dropped > 100);
    assert_eq!(run, dumbbell(1).run().unwrap());
    assert_ne!(run.packets, dumbbell(2).run().unwrap().packets);
}

#[test]
fn flows_that_have_an_end_end_in_spite_of_losses() {
    let run = dumbbell(3).run().unwrap();
    for flow in &run.flows[6..] {
        let arrived = flow.means.goodput_packets_per_s * (flow.to_s - flow.from_s);
        assert!(flow.is_done, "{flow:?}");
        // DCCP repeats nothing; Push sends a little more than there is.
        match flow.scheme {
            "dccp" => assert!((400.0..500.0).contains(&arrived), "{flow:?}"),
            "push" => assert!((500.0..600.0).contains(&arrived), "{flow:?}"),
            _ => near("arrived", arrived, 500.0, 1e-9),
        }
    }
    for flow in &run.flows[..6] {
        assert!(
            !flow.is_done && flow.means.goodput_packets_per_s > 50.0,
            "{flow:?}"
        );
    }
}
