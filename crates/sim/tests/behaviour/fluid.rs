//! Flows as a fluid against the closed forms [PPUSH §IV].

use outpour_sim::fluid::{Fluid, FluidFlow, Phase, equilibrium, phases};

#[track_caller]
fn near(what: &str, found: f64, expected: f64, share: f64) {
    assert!(
        (found - expected).abs() <= share * expected.abs(),
        "{what}: {found} instead of {expected}"
    );
}

fn run(fluid: &Fluid) -> Vec<Phase> {
    phases(fluid, &fluid.run().unwrap())
}

/// Flows that are active all the time, for so many round trips.
fn together(thetas: &[f64], rtts: f64, fluid: Fluid) -> Fluid {
    let stop_s = rtts * fluid.rtt_s();
    let flow = |theta: &f64| FluidFlow::new(*theta, 0.0, stop_s);
    Fluid {
        flows: thetas.iter().map(flow).collect(),
        ..fluid
    }
}

#[test]
fn the_closed_forms_give_the_papers_numbers() {
    let fluid = Fluid {
        delay_s: 0.0,
        ..Fluid::default()
    };
    let (alone, both) = (equilibrium(&fluid, &[0]), equilibrium(&fluid, &[0, 1]));
    near("alone", alone.alpha, 0.258, 0.002);
    near("both", both.alpha, 0.577, 0.001);
    assert_eq!(
        (alone.cwnds.as_slice(), both.cwnds.as_slice()),
        (&[30.0][..], &[6.0, 24.0][..])
    );
    near(
        "goodput",
        both.goodputs_packets_per_s[1],
        2066.0 * 0.8,
        1e-9,
    );
    assert_eq!((both.queue_packets, both.theta_sum_max), (30.0, 15.0));
    assert!(both.is_within_theta_sum_max);
    let fluid = together(&[8.0, 7.1], 1.0, fluid);
    assert!(!equilibrium(&fluid, &[0, 1]).is_within_theta_sum_max);
}

#[test]
fn two_flows_of_the_paper_settle_where_it_says() {
    for steps_per_rtt in [1, 16] {
        let found = run(&Fluid {
            steps_per_rtt,
            ..Fluid::default()
        });
        let times: Vec<_> = found.iter().map(|it| (it.from_s, it.to_s)).collect();
        assert_eq!(times, [(0.0, 2.0), (2.0, 6.0), (6.0, 8.0)]);
        for phase in &found {
            let (alpha, ratio) = match phase.flows.len() {
                1 => (0.258, None),
                _ => (0.577, Some(4.0)),
            };
            for flow in &phase.flows {
                near("alpha", flow.mean_alpha, alpha, 0.1);
            }
            if let Some(ratio) = ratio {
                let goodput = |flow: usize| phase.flows[flow].goodput_packets_per_s;
                near("goodputs", goodput(1) / goodput(0), ratio, 0.05);
            }
            let all: f64 = phase.flows.iter().map(|it| it.goodput_packets_per_s).sum();
            near("all", all, 2066.0, 0.05);
            let sum: f64 = phase.flows.iter().map(|it| it.mean_cwnd).sum();
            near("windows", sum, 30.0, 0.1);
            near("queue", phase.mean_queue_packets, 30.0, 0.1);
        }
    }
}

/// Numbers from 0 to 1, the same every time.
struct Draws(u64);

impl Draws {
    fn unit(&mut self) -> f64 {
        let next = self.0.wrapping_mul(6_364_136_223_846_793_005);
        self.0 = next.wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 11) as f64 / (1_u64 << 53) as f64
    }

    fn between(&mut self, least: f64, most: f64) -> f64 {
        least + (most - least) * self.unit()
    }
}

/// Parameters within the bound of equation 20, with `packets_per_flow` packets of Cd + K for each flow at least.
fn drawn(draws: &mut Draws, packets_per_flow: f64) -> Fluid {
    let mark_packets = draws.between(25.0, 120.0);
    let capacity = 10.0_f64.powf(draws.between(3.0, 6.0));
    let fluid = Fluid {
        capacity_packets_per_s: capacity,
        delay_s: draws.unit() * mark_packets / capacity,
        mark_packets,
        queue_packets_max: 5.0 * mark_packets,
        ..Fluid::default()
    };
    let all = capacity * fluid.rtt_s();
    let flows = (draws.between(1.0, 1.0 + all / packets_per_flow) as usize).clamp(1, 8);
    let weights: Vec<f64> = (0..flows).map(|_| draws.between(1.0, 8.0)).collect();
    let sum: f64 = weights.iter().sum();
    let theta_sum = draws.between(0.1, 0.9) * all / 2.0;
    let thetas: Vec<f64> = weights
        .iter()
        .map(|it| (it / sum * theta_sum).max(0.5))
        .collect();
    together(&thetas, 3000.0, fluid)
}

#[test]
fn means_of_drawn_parameters_are_within_a_tenth_of_the_closed_forms() {
    let mut draws = Draws(1);
    for case in 0..20 {
        let fluid = drawn(&mut draws, 20.0);
        for steps_per_rtt in [1, 8] {
            let fluid = Fluid {
                steps_per_rtt,
                ..fluid.clone()
            };
            let found = run(&fluid);
            let [phase] = &found[..] else {
                panic!("{found:?}");
            };
            let expected = &phase.predicted;
            let what = |what| format!("{what} of case {case}: {fluid:?}");
            assert!(expected.is_within_theta_sum_max);
            let sum: f64 = phase.flows.iter().map(|it| it.mean_cwnd).sum();
            near(&what("windows"), sum, expected.cwnd_sum, 0.1);
            // The queue is what windows exceed Cd by, so it is off by as many packets.
            let off = phase.mean_queue_packets - expected.queue_packets;
            assert!(off.abs() <= 0.1 * expected.cwnd_sum, "{}", what("queue"));
            for (flow, index) in phase.flows.iter().zip(0..) {
                near(&what("alpha"), flow.mean_alpha, expected.alpha, 0.1);
                near(&what("window"), flow.mean_cwnd, expected.cwnds[index], 0.1);
                let goodput = expected.goodputs_packets_per_s[index];
                near(&what("goodput"), flow.goodput_packets_per_s, goodput, 0.1);
            }
        }
    }
}

#[test]
fn many_flows_exceed_the_closed_forms_by_their_growth_in_a_round_trip() {
    // Six flows on 24 packets: far fewer than 20 packets each.
    let of = |steps_per_rtt| {
        let fluid = Fluid {
            mark_packets: 24.0,
            delay_s: 0.0,
            steps_per_rtt,
            ..Fluid::default()
        };
        let found = run(&together(&[1.0; 6], 3000.0, fluid));
        found[0].mean_queue_packets - 24.0
    };
    let (coarse, fine) = (of(1), of(16));
    assert!((3.0..9.0).contains(&coarse), "{coarse}");
    assert!(
        fine < 0.75 * coarse && fine > 0.25 * coarse,
        "{fine} of {coarse}"
    );
}

#[test]
fn beyond_the_bound_of_weights_marks_do_not_hold_the_queue() {
    // Twice as much as equation 20 allows: every packet is marked, and the queue is longer.
    let fluid = together(&[10.0, 20.0], 2000.0, Fluid::default());
    let found = run(&fluid);
    assert!(!found[0].predicted.is_within_theta_sum_max);
    assert!(found[0].flows[0].mean_alpha > 0.95);
    assert!(found[0].mean_queue_packets > 50.0, "{found:?}");
}

#[test]
fn values_stay_within_their_bounds_whatever_is_drawn() {
    let mut draws = Draws(99);
    for case in 0..200 {
        let mark_packets = draws.between(1.0, 50.0);
        let fluid = Fluid {
            capacity_packets_per_s: 10.0_f64.powf(draws.between(0.0, 7.0)),
            delay_s: if case % 3 == 0 {
                0.0
            } else {
                draws.between(0.0, 0.5)
            },
            mark_packets,
            queue_packets_max: mark_packets + draws.between(1.0, 100.0),
            g: draws.between(1e-3, 1.0),
            initial_window: draws.between(1.0, 500.0),
            steps_per_rtt: draws.between(1.0, 9.0) as u32,
            ..Fluid::default()
        };
        let flows = 1 + case % 7;
        let thetas: Vec<f64> = (0..flows)
            .map(|_| 10.0_f64.powf(draws.between(-3.0, 3.0)))
            .collect();
        let fluid = together(&thetas, 200.0, fluid);
        for sample in fluid.run().unwrap() {
            assert!((0.0..=fluid.queue_packets_max).contains(&sample.queue_packets));
            let mut all = 0.0;
            for flow in &sample.flows {
                assert!(flow.window.is_finite() && flow.window >= 1.0, "{fluid:?}");
                assert!((0.0..=1.0).contains(&flow.alpha), "{fluid:?}");
                all += flow.goodput_packets_per_s;
            }
            assert!(
                all <= fluid.capacity_packets_per_s * (1.0 + 1e-9),
                "{fluid:?}"
            );
        }
    }
}

#[test]
fn what_cannot_be_computed_is_refused_by_name() {
    type Spoil = fn(&mut Fluid);
    let cases: [(Spoil, &str); 12] = [
        (|it| it.capacity_packets_per_s = 0.0, "`capacity` is 0"),
        (
            |it| it.capacity_packets_per_s = f64::NAN,
            "`capacity` is NaN",
        ),
        (|it| it.delay_s = -1.0, "`delay` is -1"),
        (|it| it.mark_packets = 0.0, "`ecn` is 0"),
        (
            |it| it.queue_packets_max = 30.0,
            "`queue` is 30: expected more than the 30",
        ),
        (
            |it| it.g = 1.5,
            "`g` is 1.5: expected a number above 0, at most 1",
        ),
        (|it| it.initial_window = 0.5, "`initial-window` is 0.5"),
        (|it| it.steps_per_rtt = 0, "`steps-per-rtt` is 0"),
        (|it| it.flows.clear(), "there are 0 flows"),
        (|it| it.flows[1].theta = 0.0, "flow 2: `theta` is 0"),
        (
            |it| it.flows[0].stop_s = 0.0,
            "flow 1: `stop` is 0: expected a time after 0 s",
        ),
        (|it| it.flows[0].stop_s = 1e8, "end earlier"),
    ];
    for (spoil, message) in cases {
        let mut fluid = Fluid::default();
        assert_eq!(fluid.check(), Ok(()));
        spoil(&mut fluid);
        let said = fluid.run().unwrap_err().to_string();
        assert!(said.contains(message), "{said}");
    }
}

#[test]
fn a_window_grows_by_two_bdp_per_round_trip_at_most() {
    // Without propagation and with an empty queue a round trip takes no time, and growth has no other end.
    for steps_per_rtt in [1, 4] {
        let fluid = Fluid {
            delay_s: 0.0,
            steps_per_rtt,
            ..Fluid::default()
        };
        let samples = fluid.run().unwrap();
        let grown = samples[1].flows[0].window - 1.0;
        assert_eq!(grown, 60.0 / f64::from(steps_per_rtt));
    }
}

#[test]
fn what_comes_in_goes_out_or_waits() {
    let fluid = Fluid {
        delay_s: 0.01,
        queue_packets_max: 1e6,
        initial_window: 200.0,
        ..Fluid::default()
    };
    let samples = fluid.run().unwrap();
    let mut drained = 0;
    for pair in samples.windows(2) {
        let [now, next] = pair else { unreachable!() };
        let rtt_s = fluid.delay_s + now.queue_packets / fluid.capacity_packets_per_s;
        let came: f64 = now.flows.iter().map(|it| it.window / rtt_s).sum();
        let went: f64 = now.flows.iter().map(|it| it.goodput_packets_per_s).sum();
        let waits = now.queue_packets + (came - went) * fluid.step_s();
        assert!(
            (next.queue_packets - waits).abs() < 1e-6,
            "{now:?}, {next:?}"
        );
        drained += usize::from(next.queue_packets == 0.0 && now.queue_packets > 0.0);
    }
    assert!(drained > 0, "the queue was never drained within a step");
}

#[test]
fn a_time_without_flows_empties_the_queue() {
    let flow = |start_s, stop_s| FluidFlow::new(1.0, start_s, stop_s);
    let fluid = Fluid {
        delay_s: 0.0,
        flows: vec![flow(0.0, 1.0), flow(2.0, 3.0)],
        ..Fluid::default()
    };
    let samples = fluid.run().unwrap();
    let quiet = samples.iter().filter(|it| (1.2..2.0).contains(&it.at_s));
    assert!(quiet.clone().count() > 10);
    for sample in quiet {
        assert_eq!(sample.queue_packets, 0.0);
        assert!(
            sample
                .flows
                .iter()
                .all(|it| it.window == 0.0 && it.goodput_packets_per_s == 0.0)
        );
    }
    let found = phases(&fluid, &samples);
    assert_eq!(found.len(), 2, "{found:?}");
    assert_eq!(found[1].flows[0].flow, 2);
    near("window", found[1].flows[0].mean_cwnd, 30.0, 0.12);
}

/// A flow of weight 4 that its own link holds to a quarter leaves the rest to one of weight 1
/// [PPUSH §IV-B, figure 3].
#[test]
fn a_flow_that_its_own_link_holds_up_leaves_the_rest_to_the_others() {
    let mut fluid = together(&[1.0, 4.0], 2000.0, Fluid::default());
    let own = fluid.capacity_packets_per_s / 4.0;
    fluid.flows[1].own_packets_per_s = Some(own);
    let phase = &run(&fluid)[0];
    let goodput = |flow: usize| phase.flows[flow].goodput_packets_per_s;
    near("held up", goodput(1), own, 0.02);
    near(
        "both",
        goodput(0) + goodput(1),
        fluid.capacity_packets_per_s,
        0.02,
    );
    near("queue", phase.mean_queue_packets, 30.0, 0.1);
    fluid.flows[1].own_packets_per_s = Some(0.0);
    let refused = fluid.check().unwrap_err().to_string();
    assert!(refused.contains("flow 2: `own` is 0"), "{refused}");
}
