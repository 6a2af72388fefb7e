//! The most that given flows carry together within the capacities they share.
//!
//! A flow here is whatever uses several capacities at once: a path, a tree, a transfer between two
//! servers. A controller that decides every few seconds keeps an approximate method of its own and
//! holds it against this exact one.

use microlp::{ComparisonOp, LinearExpr, OptimizationDirection, Problem};

use crate::lp;

/// A flow: what a unit of it is worth, how much of it there can be at most, and which rows it uses,
/// each once.
#[derive(Clone, Debug, PartialEq)]
pub struct Flow {
    /// What a unit of it adds to the sum; above zero.
    pub worth: f64,
    /// The most of it; may be infinite if a row has an end.
    pub most: f64,
    /// The rows, by index, none twice.
    pub rows: Vec<u32>,
}

/// The amounts of flows with the greatest worth whose sums are within `capacities`, by a linear
/// program. Capacities may be infinite. `None` if the solver fails or nothing limits a flow.
///
/// ```
/// use outpour_planner::flows::{Flow, best_flows};
/// let flow = |rows: &[u32]| Flow { worth: 1.0, most: 3.0, rows: rows.to_vec() };
/// let amounts = best_flows(&[flow(&[0]), flow(&[0, 1]), flow(&[1])], &[4.0, 2.0]).unwrap();
/// assert!((amounts.iter().sum::<f64>() - 5.0).abs() < 1e-6);
/// ```
pub fn best_flows(flows: &[Flow], capacities: &[f64]) -> Option<Vec<f64>> {
    let alone = |flow: &Flow| {
        let rooms = flow.rows.iter().map(|row| capacities[*row as usize]);
        rooms.fold(flow.most, f64::min).max(0.0)
    };
    // The solver wants numbers near one.
    let unit = flows.iter().map(alone).fold(0.0, f64::max);
    if unit == 0.0 {
        return Some(vec![0.0; flows.len()]);
    }
    if !unit.is_finite() {
        return None;
    }
    let mut problem = Problem::new(OptimizationDirection::Maximize);
    let mut sums = vec![(0.0, LinearExpr::empty()); capacities.len()];
    let mut variables = Vec::with_capacity(flows.len());
    for flow in flows {
        let most = alone(flow) / unit;
        let variable = problem.add_var(flow.worth, (0.0, most));
        for row in &flow.rows {
            let (total, sum) = &mut sums[*row as usize];
            *total += most;
            sum.add(variable, 1.0);
        }
        variables.push(variable);
    }
    for ((total, sum), capacity) in sums.into_iter().zip(capacities) {
        // What all flows together cannot use up need not be looked at.
        if *capacity / unit < total {
            problem.add_constraint(sum, ComparisonOp::Le, capacity.max(0.0) / unit);
        }
    }
    let solution = lp::solve(&problem)?;
    let value = |variable| solution.var_value(variable).max(0.0) * unit;
    Some(variables.into_iter().map(value).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flow(worth: f64, most: f64, rows: &[u32]) -> Flow {
        let rows = rows.to_vec();
        Flow { worth, most, rows }
    }

    #[test]
    fn worth_decides_where_a_row_is_shared() {
        let flows = [flow(1.0, 1e9, &[0]), flow(2.0, 4e8, &[0])];
        let amounts = best_flows(&flows, &[1e9]).expect("it is solvable");
        assert!((amounts[0] - 6e8).abs() < 1.0 && (amounts[1] - 4e8).abs() < 1.0);
    }

    #[test]
    fn dead_rows_and_missing_limits_are_no_surprise() {
        assert_eq!(best_flows(&[flow(1.0, 5.0, &[0])], &[0.0]), Some(vec![0.0]));
        let endless = flow(1.0, f64::INFINITY, &[0]);
        assert_eq!(best_flows(&[endless], &[f64::INFINITY]), None);
        assert_eq!(best_flows(&[], &[]), Some(vec![]));
    }

    #[test]
    fn a_solver_that_fails_is_said_so() {
        let flows = [flow(1.0, 3.0, &[0]), flow(1.0, 3.0, &[0])];
        let (found, failed) = lp::failing::after(0, || best_flows(&flows, &[4.0]));
        assert!(failed && found.is_none());
    }
}
