//! Flows packet by packet, against what their papers say of them.

use std::time::Duration;

use outpour_core::Time;
use outpour_sim::packets::flows::{Flow, Flows, Line, Phase, Run, Scheme};

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

#[test]
fn explore() {
    for (k, jitter) in [
        (30, 0),
        (30, 1),
        (30, 4),
        (60, 0),
        (60, 1),
        (60, 4),
        (100, 1),
        (100, 4),
    ] {
        for seed in [0, 1, 2] {
            if jitter == 0 && seed > 0 {
                continue;
            }
            let push = |theta| Flow {
                theta: vec![(Time::ZERO, theta)],
                ..flow(Scheme::Push)
            };
            let flows = vec![push(1.0), push(4.0)];
            let mut setup = over(
                line(20e6 / 8.0 / 1210.0, MS / 10, k, 400),
                flows,
                200_000 * MS,
            );
            setup.jitter = jitter * MS / 2;
            setup.seed = seed;
            let run = setup.run().unwrap();
            let p = &run.phases[0];
            let (a, b) = (&p.flows[0].means, &p.flows[1].means);
            eprintln!(
                "{jitter} {k}: goodput {} window {} {} ratio {} alpha {:?} {:?} queue {:?}",
                b.goodput_packets_per_s / a.goodput_packets_per_s,
                a.mean_cwnd,
                b.mean_cwnd,
                b.mean_cwnd / a.mean_cwnd,
                a.mean_alpha,
                b.mean_alpha,
                p.ports[0].mean_queue_packets
            );
            conserved(&run);
        }
    }
    let burst = |scheme| {
        let mut l = line(1e6, MS / 25, 30, 100);
        l.lose = vec![(at(0.05), 100)];
        let mut s = over(l, vec![flow(scheme)], 100 * MS);
        s.sample = MS / 20;
        let run = s.run().unwrap();
        conserved(&run);
        eprintln!("burst {scheme:?} {:?}", run.flows);
        let w: Vec<_> = run
            .samples
            .iter()
            .filter(|s| s.at_s > 0.0495 && s.at_s < 0.053)
            .map(|s| s.flows[0].cwnd.round())
            .collect();
        eprintln!("{w:?}");
    };
    burst(Scheme::Push);
    burst(Scheme::Dctcp);
    let halved = |scheme| {
        let mut l = line(1e5, MS / 4, 30, 200);
        l.rates = vec![(at(0.4), 5e4), (at(0.8), 1e5)];
        let run = over(l, vec![flow(scheme)], 1200 * MS).run().unwrap();
        conserved(&run);
        eprintln!("halved {scheme:?} {:?}", run.phases);
    };
    halved(Scheme::Push);
    halved(Scheme::Dctcp);
    let _: Option<Phase> = None;
    near("x", 1.0, 1.0, 0.1);
}
