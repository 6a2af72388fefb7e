//! The rates of given trees that carry the most together.

use microlp::{ComparisonOp, LinearExpr, OptimizationDirection, Problem};

use crate::lp;

/// What a tree uses of which rows; rows by index, none twice.
pub(in crate::multicast) type Column = Vec<(usize, f64)>;

/// The rates of the columns with the largest sum within the capacities. `None` if the solver fails,
/// or if nothing limits the sum.
pub(in crate::multicast) fn rates(columns: &[Column], capacities: &[f64]) -> Option<Vec<f64>> {
    solve(columns, capacities, None)
}

/// Rates whose sum is nearly `least`, most of it on columns that carry much by themselves: fewer
/// trees for the same sum.
pub(super) fn thick_rates(columns: &[Column], capacities: &[f64], least: f64) -> Option<Vec<f64>> {
    solve(columns, capacities, Some(least))
}

/// By how much a sum may miss what it should be, relative.
const SLACK: f64 = 1e-9;

fn solve(columns: &[Column], capacities: &[f64], least: Option<f64>) -> Option<Vec<f64>> {
    // The most each column carries by itself; together they cannot carry more than all of that.
    let alone = |column: &Column| {
        let rates = column.iter().map(|(row, uses)| capacities[*row] / uses);
        rates.fold(f64::INFINITY, f64::min)
    };
    let most: f64 = columns.iter().map(alone).sum();
    let unit = columns.iter().map(alone).fold(0.0, f64::max);
    if !unit.is_finite() || unit <= 0.0 {
        return None;
    }

    let mut problem = Problem::new(OptimizationDirection::Maximize);
    let mut sums = vec![(0.0_f64, LinearExpr::empty()); capacities.len()];
    let mut total = LinearExpr::empty();
    let variables: Vec<_> = (columns.iter())
        .map(|column| {
            let alone = alone(column) / unit;
            let worth = if least.is_some() { alone } else { 1.0 };
            let variable = problem.add_var(worth, (0.0, alone));
            total.add(variable, 1.0);
            for (row, uses) in column {
                let (heaviest, sum) = &mut sums[*row];
                *heaviest = heaviest.max(*uses);
                sum.add(variable, *uses);
            }
            variable
        })
        .collect();
    for ((heaviest, sum), capacity) in sums.into_iter().zip(capacities) {
        // What could not be used up by all trees together need not be looked at.
        if heaviest > 0.0 && *capacity < most * heaviest {
            problem.add_constraint(sum, ComparisonOp::Le, capacity / unit);
        }
    }
    if let Some(least) = least {
        problem.add_constraint(total, ComparisonOp::Ge, least / unit * (1.0 - SLACK));
    }
    let solution = lp::solve(&problem)?;
    let value = |variable| solution.var_value(variable).max(0.0) * unit;
    Some(variables.into_iter().map(value).collect())
}
