//! Packing trees into capacities: the linear programs behind `balanced` and `optimal`.
//!
//! A tree uses each [`Row`](super::sites::Row) by the number of its arcs in it. The most that trees
//! can carry together is a linear program with a variable for every tree there is; its dual prices
//! the rows such that no tree costs less than one, and asks for the cheapest capacities.

mod master;

pub(super) use master::Column;

use super::sites::{SiteTree, Sites};

/// A rate below this share of all is due to rounding.
const RATE_MIN: f64 = 1e-9;

/// The best rates of `trees` [Burger §3.2.1]; those that get none are left out. `None` if the
/// solver fails.
pub(super) fn balance(sites: &Sites<'_>, trees: &[SiteTree]) -> Option<Vec<SiteTree>> {
    let columns: Vec<_> = trees.iter().map(|tree| sites.column(&tree.edges)).collect();
    let capacities: Vec<f64> = sites.rows.iter().map(|row| row.capacity).collect();
    let rates = master::rates(&columns, &capacities)?;
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
