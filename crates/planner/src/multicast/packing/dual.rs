//! The exact prices: a linear program that gets a row for every tree that is found to be too cheap.

use microlp::{ComparisonOp, OptimizationDirection, Problem, Solution, Variable};

use crate::lp;

use super::prices::{Priced, Scaled, cost_of};

/// How much cheaper than one a tree may be at the end, which is also how far from the bound the
/// trees may be.
const GAP: f64 = 1e-7;

/// How far from the best prices known towards those of the program new trees are looked for. In
/// between they cut off more than at the program's own prices, which jump about.
const STEP: f64 = 0.5;

/// The prices of a problem and the trees that prove them the best.
pub(super) struct Exact {
    /// No trees carry more than this.
    pub(super) upper: f64,
    /// The prices that say so: no tree costs less than one, and all capacities cost that.
    pub(super) prices: Vec<f64>,
}

/// Adds to `trees` until they carry all there is, at most `rounds` times; starts from prices that
/// are close to the best.
pub(super) fn solve(
    scaled: &Scaled<'_, '_>,
    trees: &mut Vec<Priced>,
    prices: Vec<f64>,
    rounds: usize,
) -> Option<Exact> {
    let mut problem = Problem::new(OptimizationDirection::Minimize);
    // A tree uses a row wholly or not at all, so none needs to cost more than one.
    let variables: Vec<Variable> = (scaled.capacities.iter())
        .map(|capacity| problem.add_var(*capacity, (0.0, 1.0)))
        .collect();
    let row = |tree: &Priced| -> Vec<(Variable, f64)> {
        let terms = tree.column.iter();
        terms.map(|(row, uses)| (variables[*row], *uses)).collect()
    };
    for tree in trees.iter() {
        problem.add_constraint(row(tree), ComparisonOp::Ge, 1.0);
    }
    let mut solution: Solution = lp::solve(&problem)?;
    let mut exact = Exact {
        upper: f64::INFINITY,
        prices,
    };
    let tree = scaled.cheapest(&exact.prices)?;
    exact.price(scaled, &exact.prices.clone(), &tree);
    for _ in 0..rounds {
        // What the trees carry that there are so far.
        if solution.objective() >= exact.upper * (1.0 - GAP) {
            break;
        }
        let found: Vec<f64> = variables
            .iter()
            .map(|v| solution.var_value(*v).max(0.0))
            .collect();
        let between: Vec<f64> = (exact.prices.iter().zip(&found))
            .map(|(best, found)| best + STEP * (found - best))
            .collect();
        let mut added = 0;
        for prices in [between, found.clone()] {
            let tree = scaled.cheapest(&prices)?;
            exact.price(scaled, &prices, &tree);
            if cost_of(&tree.column, &found) < 1.0 - GAP {
                solution = (solution
                    .add_constraint(row(&tree), ComparisonOp::Ge, 1.0)
                    .ok()?)
                .into_solution()
                .ok()?;
                trees.push(tree);
                added += 1;
            }
        }
        if added == 0 {
            break;
        }
    }
    Some(exact)
}

impl Exact {
    /// Takes `prices`, at which `tree` is the cheapest, if their bound is lower.
    fn price(&mut self, scaled: &Scaled<'_, '_>, prices: &[f64], tree: &Priced) {
        let upper = scaled.worth(prices) / tree.cost;
        if upper < self.upper {
            self.upper = upper;
            self.prices = prices.iter().map(|price| price / tree.cost).collect();
        }
    }
}
