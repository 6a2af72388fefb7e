//! The linear program: the largest rate with which flow crosses every boundary.

use microlp::{ComparisonOp, LinearExpr, OptimizationDirection, Problem, Variable};

use crate::lp;

use super::ROUNDING;
use super::cuts::{self, Cut};
use super::model::Model;

/// How often boundaries are added before the program is left as it is, which is a bound as well.
const ROUNDS_MAX: usize = 200;

/// A rate below this share of the unit is solved again in a smaller unit, as the solver's
/// tolerances are absolute.
const RATE_MIN: f64 = 0.01;

/// What a flow at its highest is worth next to the rate at its highest, while cuts are looked for.
const FLOW_WORTH: f64 = 1e-3;

/// What is left of the unit when the rate is too small to be told from zero.
const SHRINK_MIN: f64 = 1e-5;

/// The most that all receivers together can get.
pub(super) struct Solution {
    /// Bytes per second.
    pub(super) rate: f64,
    /// Whether every boundary was seen to.
    pub(super) exact: bool,
    cuts: Vec<Cut>,
    unit: f64,
}

/// Solves the program of `model`, whose rate is known not to exceed `most`, bytes per second.
///
/// `None` if the solver fails, which it does on some problems that are hard for floating point.
pub(super) fn solve(model: &Model<'_>, most: f64) -> Option<Solution> {
    let mut cuts = cuts::first(model);
    let mut unit = most;
    // Most flows do not bind the rate, and the solver leaves them at zero: no end of cuts. So a
    // flow is worth a little by itself until the cuts hold, and nothing from then on.
    let mut worth = FLOW_WORTH;
    for round in 1..=ROUNDS_MAX {
        let (rate, flows) = best_rate(model, &cuts, unit, worth)?;
        if rate < RATE_MIN && worth == 0.0 {
            unit *= (2.0 * rate).max(SHRINK_MIN);
            worth = FLOW_WORTH;
            continue;
        }
        let violated = cuts::violated(model, &flows, rate);
        let exact = violated.is_empty();
        if exact && worth > 0.0 && rate < 1.0 - ROUNDING {
            worth = 0.0;
            continue;
        }
        cuts.extend(violated);
        // What is not the largest rate is no bound: the last round has to be without worth.
        if exact || (round == ROUNDS_MAX && worth == 0.0) {
            let rate = rate * unit;
            return Some(Solution {
                rate,
                exact,
                cuts,
                unit,
            });
        }
        if round + 2 >= ROUNDS_MAX {
            worth = 0.0;
        }
    }
    None
}

/// The rows that can bind at all, with capacities in `unit`. More than the rate from one node to
/// another is of no use across any boundary, so a row binds only below that for all its pairs.
fn rows<'m>(model: &'m Model<'_>, unit: f64) -> impl Iterator<Item = (usize, f64, &'m [usize])> {
    let pairs = |arc: &usize| model.pairs(model.arcs[*arc].from, model.arcs[*arc].to);
    let rows = model.rows.iter().enumerate();
    rows.map(move |(index, row)| (index, row.capacity / unit, &row.arcs[..]))
        .filter(move |(_, capacity, arcs)| *capacity < arcs.iter().map(pairs).sum())
}

/// How much a flow per receiving node weighs in a row, where the heaviest weighs one.
fn weights(model: &Model<'_>, arcs: &[usize]) -> (f64, impl Iterator<Item = (usize, f64)>) {
    let nodes = |arc: &usize| f64::from(model.classes[model.arcs[*arc].to].nodes);
    let heaviest = arcs.iter().map(nodes).fold(1.0, f64::max);
    let weights: Vec<_> = arcs
        .iter()
        .map(|arc| (*arc, nodes(arc) / heaviest))
        .collect();
    (heaviest, weights.into_iter())
}

/// The largest rate, in `unit`, under the cuts known so far, and the flows per receiving node,
/// each of them `worth` that much at its highest.
fn best_rate(model: &Model<'_>, cuts: &[Cut], unit: f64, worth: f64) -> Option<(f64, Vec<f64>)> {
    let mut problem = Problem::new(OptimizationDirection::Maximize);
    let rate = problem.add_var(1.0, (0.0, 1.0));
    let flows: Vec<Variable> = (model.arcs.iter())
        .map(|arc| {
            // More than the rate from one node to another is of no use (see `rows`).
            let to = f64::from(model.classes[arc.to].nodes);
            let most = model.pairs(arc.from, arc.to) / to;
            problem.add_var(worth / most, (0.0, most))
        })
        .collect();
    for (_, capacity, arcs) in rows(model, unit) {
        let (heaviest, weights) = weights(model, arcs);
        let sum: LinearExpr = weights.map(|(arc, weight)| (flows[arc], weight)).collect();
        problem.add_constraint(sum, ComparisonOp::Le, capacity / heaviest);
    }
    for cut in cuts {
        let mut sum: LinearExpr = (cut.terms.iter())
            .map(|(arc, weight)| (flows[*arc], *weight))
            .collect();
        sum.add(rate, -1.0);
        problem.add_constraint(sum, ComparisonOp::Ge, 0.0);
    }
    let solution = lp::solve(&problem)?;
    let flows = flows.iter().map(|flow| solution.var_value(*flow)).collect();
    Some((solution.var_value(rate), flows))
}

/// The share of each row of the model in what keeps the rate of `solution` down; together about
/// one. This is the dual program: it prices the rows so that every way across the boundaries costs
/// at least what it is worth there.
pub(super) fn shares(model: &Model<'_>, solution: &Solution) -> Option<Vec<f64>> {
    let mut problem = Problem::new(OptimizationDirection::Minimize);
    let price = (0.0, f64::INFINITY);
    let mut balance = vec![LinearExpr::empty(); model.arcs.len()];
    let mut prices = Vec::new();
    for (row, capacity, arcs) in rows(model, solution.unit) {
        let (heaviest, weights) = weights(model, arcs);
        let capacity = capacity / heaviest;
        let variable = problem.add_var(capacity, price);
        prices.push((row, variable, capacity));
        for (arc, weight) in weights {
            balance[arc].add(variable, weight);
        }
    }
    let mut all_worth = LinearExpr::empty();
    for cut in &solution.cuts {
        let worth = problem.add_var(0.0, price);
        all_worth.add(worth, 1.0);
        for (arc, weight) in &cut.terms {
            balance[*arc].add(worth, -weight);
        }
    }
    for sum in balance {
        problem.add_constraint(sum, ComparisonOp::Ge, 0.0);
    }
    problem.add_constraint(all_worth, ComparisonOp::Ge, 1.0);
    let solved = lp::solve(&problem)?;
    let total = solved.objective();
    let mut shares = vec![0.0; model.rows.len()];
    for (row, variable, capacity) in prices {
        shares[row] = solved.var_value(variable) * capacity / total;
    }
    Some(shares)
}
