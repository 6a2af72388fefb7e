//! The two solvers against each other.

use super::*;

/// Random numbers, the same in every run.
struct Draw(u64);

impl Draw {
    fn below(&mut self, n: u64) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (self.0 >> 33) % n
    }

    fn amount(&mut self) -> f64 {
        [0.5e6, 1e6, 3e6, 20e6, 100e6][self.below(5) as usize] * (1 + self.below(9)) as f64
    }
}

/// Units that send to each other through access links and links between sites of two.
fn network(draw: &mut Draw, units: u32) -> Problem {
    let mut problem = Problem::default();
    let mut row = |row: Row, most: f64| {
        problem.rows.push(row);
        problem.capacities.push(most);
        problem.rows.len() as u32 - 1
    };
    let outs: Vec<u32> = (0..units)
        .map(|unit| row(Row::Out(unit), draw.amount()))
        .collect();
    let ins: Vec<u32> = (0..units)
        .map(|unit| row(Row::In(unit), draw.amount()))
        .collect();
    let needs: Vec<u32> = (0..units)
        .map(|unit| row(Row::Need(unit), draw.amount()))
        .collect();
    let sites = units / 2;
    let links: Vec<u32> = (0..sites * sites)
        .map(|pair| {
            let dead = draw.below(5) == 0;
            row(
                Row::Link(pair / sites, pair % sites),
                if dead { 0.0 } else { draw.amount() },
            )
        })
        .collect();
    for (from, to) in (0..units).flat_map(|from| (0..units).map(move |to| (from, to))) {
        if from == to || draw.below(3) == 0 {
            continue;
        }
        let mut rows = vec![outs[from as usize], ins[to as usize], needs[to as usize]];
        if from / 2 != to / 2 {
            rows.push(links[(from / 2 * sites + to / 2) as usize]);
        }
        let worth = 1.0 + 0.02 * draw.below(2) as f64;
        problem.flows.push(Flow {
            worth,
            most: draw.amount(),
            rows,
        });
    }
    problem
}

#[test]
fn prices_reach_what_the_program_does() {
    let mut draw = Draw(1);
    for case in 0..40 {
        let problem = network(&mut draw, 4 + 2 * (case % 8));
        let exact = Program::default().route(&problem);
        let near = Prices::default().route(&problem);
        assert!(problem.fits(&exact) && problem.fits(&near));
        let (exact, near) = (problem.worth(&exact), problem.worth(&near));
        assert!(near >= 0.98 * exact, "case {case}: {near} of {exact}");
        assert!(
            near <= exact * (1.0 + 1e-6),
            "case {case}: the program is exact"
        );
    }
}

#[test]
fn a_warm_start_follows_changes() {
    let mut draw = Draw(2);
    let mut problem = network(&mut draw, 12);
    let mut warm = Prices::default();
    for step in 0..30 {
        let near = warm.route(&problem);
        let exact = Program::default().route(&problem);
        let (near, exact) = (problem.worth(&near), problem.worth(&exact));
        assert!(near >= 0.98 * exact, "step {step}: {near} of {exact}");
        // Some capacities change, some vanish, some come back.
        for _ in 0..3 {
            let row = draw.below(problem.capacities.len() as u64) as usize;
            let most = if draw.below(4) == 0 {
                0.0
            } else {
                draw.amount()
            };
            problem.capacities[row] = most;
        }
    }
}

#[test]
fn nothing_at_all_is_routed_where_nothing_fits() {
    for problem in [
        Problem::default(),
        Problem {
            flows: vec![Flow {
                worth: 1.0,
                most: 5.0,
                rows: vec![0],
            }],
            rows: vec![Row::Job],
            capacities: vec![0.0],
        },
    ] {
        let none = vec![0.0; problem.flows.len()];
        assert_eq!(Prices::default().route(&problem), none);
        assert_eq!(Program::default().route(&problem), none);
    }
}

#[test]
fn a_small_flow_beside_a_large_one_is_not_lost() {
    // A flow that is nearly all there is, and two that share a row and of which one is worth more.
    let flow = |worth: f64, most: f64, rows: &[u32]| Flow {
        worth,
        most,
        rows: rows.to_vec(),
    };
    let problem = Problem {
        flows: vec![
            flow(1.0, 1e9, &[0]),
            flow(1.0, 2e6, &[1, 2]),
            flow(1.1, 2e6, &[1]),
        ],
        rows: vec![Row::Local(0, 0), Row::Out(0), Row::In(1)],
        capacities: vec![1e9, 2e6, 2e6],
    };
    let amounts = Mixed::default().route(&problem);
    assert!(amounts[2] > 1.99e6, "{amounts:?}");
}
