//! Packing trees into capacities: the linear programs behind `balanced` and `optimal`.
//!
//! A tree uses each [`Row`](super::sites::Row) by the number of its arcs in it. The most that trees
//! can carry together is a linear program with a variable for every tree there is; its dual prices
//! the rows such that no tree costs less than one, and asks for the cheapest capacities. [Burger
//! §3.2.1] takes the first for infeasible, as there are n^(n-2) trees. But few of them matter, and
//! the cheapest tree at any prices is easily found (Chu-Liu and Edmonds): that is enough to find
//! the trees that matter, to know the best prices, and to prove both right by each other.
//!
//! The search has up to three stages. Prices that rise with use (Garg and Könemann) find many good
//! trees quickly; a program over these trees finds their best rates, and mostly that is all there
//! is. Where it is not, a program over the prices asks for further trees until it is.

mod approximate;
mod arborescence;
mod dual;
mod master;
mod optimal;
mod prices;

pub(super) use master::{Column, rates};
pub(super) use optimal::optimal;

use super::sites::{SiteTree, Sites};

/// A rate below this share of all is due to rounding.
const RATE_MIN: f64 = 1e-9;

/// The best rates of `trees` [Burger §3.2.1]; those that get none are left out. `None` if the
/// solver fails.
pub(super) fn balance(sites: &Sites<'_>, trees: &[SiteTree]) -> Option<Vec<SiteTree>> {
    let columns: Vec<_> = trees.iter().map(|tree| sites.column(&tree.edges)).collect();
    if columns.iter().all(Vec::is_empty) {
        // Nothing limits any tree.
        return Some(trees[..1.min(trees.len())].to_vec());
    }
    let capacities: Vec<f64> = sites.rows.iter().map(|row| row.capacity).collect();
    let rates = rates(&columns, &capacities)?;
    let total: f64 = rates.iter().sum();
    let rated = trees
        .iter()
        .zip(rates)
        .filter(|(_, rate)| *rate > total * RATE_MIN);
    let rated = rated.map(|(tree, rate)| SiteTree {
        rate,
        edges: tree.edges.clone(),
    });
    Some(rated.collect())
}
