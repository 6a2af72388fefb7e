//! The exact amounts, by a linear program.

use outpour_planner::flows::best_flows;

use super::{Prices, Problem, Router};

/// Exact; where the solver fails, prices stand in.
#[derive(Debug, Default)]
pub(crate) struct Program {
    spare: Prices,
}

impl Router for Program {
    fn route(&mut self, problem: &Problem) -> Vec<f64> {
        let best = best_flows(&problem.flows, &problem.capacities);
        let mut amounts = best.unwrap_or_else(|| self.spare.route(problem));
        // The solver is right up to rounding; rows must not be overdrawn even by that.
        let mut over = vec![0.0; problem.capacities.len()];
        for (flow, amount) in problem.flows.iter().zip(&amounts) {
            flow.rows
                .iter()
                .for_each(|row| over[*row as usize] += amount);
        }
        for (sum, most) in over.iter_mut().zip(&problem.capacities) {
            *sum = if *sum > *most { most / *sum } else { 1.0 };
        }
        for (flow, amount) in problem.flows.iter().zip(&mut amounts) {
            let fit = flow.rows.iter().map(|row| over[*row as usize]);
            *amount = (*amount * fit.fold(1.0, f64::min)).min(flow.most);
        }
        debug_assert!(problem.fits(&amounts), "no row is overdrawn");
        amounts
    }
}
