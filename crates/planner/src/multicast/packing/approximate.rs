//! Trees and prices close to the best, without a linear program: the method of Garg and Könemann.
//!
//! The cheapest tree gets as much rate as its tightest row takes, and the prices of its rows rise
//! by a power of the share it used up. The trees found this way and the best prices on the way are
//! good from both sides.

use super::prices::{Priced, Scaled};

/// How the search ended.
pub(super) struct Approximate {
    /// Every different tree that was found, and its rate before all are scaled to fit.
    pub(super) trees: Vec<(Priced, f64)>,
    /// The best prices: no trees carry more than `upper`.
    pub(super) prices: Vec<f64>,
    pub(super) upper: f64,
}

/// Searches with step `epsilon` until the rates are within `gap` of the bound, relative, or `steps`
/// trees were priced.
pub(super) fn approximate(
    scaled: &Scaled<'_, '_>,
    epsilon: f64,
    gap: f64,
    steps: usize,
) -> Option<Approximate> {
    let capacities = &scaled.capacities;
    let mut prices: Vec<f64> = capacities.iter().map(|capacity| 1.0 / capacity).collect();
    let mut loads = vec![0.0; capacities.len()];
    let mut found = std::collections::BTreeMap::new();
    let mut trees: Vec<(Priced, f64)> = Vec::new();
    let mut total = 0.0;
    let mut best = (f64::INFINITY, Vec::new());
    for step in 0..steps {
        let tree = scaled.cheapest(&prices)?;
        let upper = scaled.worth(&prices) / tree.cost;
        if upper < best.0 {
            let cost = tree.cost;
            best = (upper, prices.iter().map(|price| price / cost).collect());
        }
        let rooms = tree
            .column
            .iter()
            .map(|(row, uses)| capacities[*row] / uses);
        let rate = rooms.fold(f64::INFINITY, f64::min);
        for (row, uses) in &tree.column {
            let share = rate * uses / capacities[*row];
            loads[*row] += share;
            prices[*row] *= 1.0 + epsilon * share;
        }
        total += rate;
        let index = *found.entry(tree.edges.clone()).or_insert_with(|| {
            trees.push((tree, 0.0));
            trees.len() - 1
        });
        trees[index].1 += rate;
        let fullest = loads.iter().copied().fold(0.0, f64::max);
        if total / fullest >= best.0 * (1.0 - gap) {
            break;
        }
        // Only proportions count; keep the numbers in range.
        if step % 256 == 255 {
            let largest = prices.iter().copied().fold(0.0, f64::max);
            for price in &mut prices {
                *price /= largest;
            }
        }
    }
    Some(Approximate {
        trees,
        prices: best.1,
        upper: best.0,
    })
}
