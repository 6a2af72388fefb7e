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
    let push = |theta, start, stop| Flow {
        theta: vec![(Time::ZERO, theta)],
        start: at(start),
        stop: Some(at(stop)),
        ..flow(Scheme::Push)
    };
    let flows = vec![push(1.0, 0.0, 8.0), push(4.0, 2.0, 6.0)];
    let mut setup = over(line(20e6 / 8.0 / 1210.0, MS / 10, 30, 100), flows, 8000 * MS);
    let run = setup.run().unwrap();
    eprintln!("{:#?} {:#?} {:?} {}", run.flows, run.phases, run.ports[0], run.hops);
    conserved(&run);
    for scheme in [Scheme::Dctcp, Scheme::Reno, Scheme::Cubic, Scheme::Dccp] {
        for n in [1, 2, 10, 40] {
            setup.flows = vec![flow(scheme); n];
            if scheme == Scheme::Reno { setup.lines[0].mark_packets = None; setup.lines[0].queue_packets=100 }
            else {setup.lines[0].mark_packets = Some(65); setup.lines[0].queue_packets=300; setup.lines[0].packets_per_s = 833_333.0; setup.lines[0].delay = MS/20; setup.duration = 500*MS; setup.sample = MS/10; }
            let run = setup.run().unwrap();
            conserved(&run);
            eprintln!("{scheme:?} {n} {:?}\n {:?} {:?}", run.flows[0], run.phases.last().unwrap().ports, run.ports[0]);
        }
    }
    let _: Option<Phase> = None;
}
