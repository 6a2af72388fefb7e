//! Prices of rows, and the cheapest tree at them.

use super::super::sites::Sites;
use super::Column;
use super::arborescence::cheapest;

/// The packing problem in numbers near one: what the solver sees.
pub(super) struct Scaled<'s, 'n> {
    pub(super) sites: &'s Sites<'n>,
    /// What rates are measured in, bytes per second: no plan carries more.
    pub(super) unit: f64,
    /// The rows that can limit the rates at all, and what they carry in units.
    pub(super) rows: Vec<usize>,
    pub(super) capacities: Vec<f64>,
    /// The prices that show that no trees carry more than a unit.
    bound: Column,
    /// The index among `rows` of each row of the sites.
    index: Vec<Option<usize>>,
}

/// A tree and what it uses of the rows that count.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Priced {
    pub(super) edges: Vec<(usize, usize)>,
    pub(super) column: Column,
    /// What it costs at the prices it was found for.
    pub(super) cost: f64,
}

impl<'s, 'n> Scaled<'s, 'n> {
    /// `None` if nothing limits the rates, or nothing but one bound for all trees alike.
    pub(super) fn new(sites: &'s Sites<'n>) -> Option<Self> {
        let (unit, bound) = sites.bound();
        if !unit.is_finite() || unit <= 0.0 {
            return None;
        }
        // No tree uses a row more often than it has arcs that part different sites.
        let mut uses: Vec<f64> = sites.rows.iter().map(|row| row.constant).collect();
        let count = sites.count();
        let mut enters = vec![usize::MAX; sites.rows.len()];
        for to in 0..count {
            for rows in (0..count).map(|from| &sites.rows_of[from * count + to]) {
                for row in rows {
                    // Each site is entered once.
                    if enters[*row] != to {
                        enters[*row] = to;
                        uses[*row] += 1.0;
                    }
                }
            }
        }
        let binds = |row: &usize| uses[*row] > 0.0 && sites.rows[*row].capacity < uses[*row] * unit;
        let mut rows: Vec<usize> = (0..sites.rows.len()).filter(binds).collect();
        // The bound itself has to be among them, or the prices could not say so.
        let alike = |row: &usize| uses[*row] > 0.0 && !binds(row);
        let tight = (0..sites.rows.len())
            .filter(alike)
            .filter(|row| sites.rows[*row].capacity <= unit * uses[*row]);
        rows.extend(tight);
        // Dead links are in no tree.
        rows.retain(|row| sites.rows[*row].capacity > 0.0);
        let mut index = vec![None; sites.rows.len()];
        for (place, row) in rows.iter().enumerate() {
            index[*row] = Some(place);
        }
        Some(Self {
            sites,
            unit,
            capacities: rows
                .iter()
                .map(|row| sites.rows[*row].capacity / unit)
                .collect(),
            bound: bound
                .into_iter()
                .filter_map(|(row, price)| Some((index[row]?, price)))
                .collect(),
            rows,
            index,
        })
    }

    /// What a tree uses of the rows that count.
    pub(super) fn column(&self, edges: &[(usize, usize)]) -> Column {
        let column = self.sites.column(edges).into_iter();
        column
            .filter_map(|(row, uses)| Some((self.index[row]?, uses)))
            .collect()
    }

    /// The cheapest tree.
    pub(super) fn cheapest(&self, prices: &[f64]) -> Option<Priced> {
        let sites = self.sites;
        let price = |row: &usize| self.index[*row].map_or(0.0, |place| prices[place]);
        let mut cost = vec![f64::INFINITY; sites.rows_of.len()];
        for (arc, rows) in sites.rows_of.iter().enumerate() {
            if sites.achievable[arc] > 0.0 {
                cost[arc] = rows.iter().map(price).sum();
            }
        }
        let edges = cheapest(sites.count(), &sites.roots, &cost)?;
        let column = self.column(&edges);
        Some(Priced {
            cost: cost_of(&column, prices),
            edges,
            column,
        })
    }

    /// Prices at which no tree costs less than one and all capacities cost one.
    pub(super) fn bound(&self) -> Vec<f64> {
        let mut prices = vec![0.0; self.rows.len()];
        for (row, price) in &self.bound {
            prices[*row] = *price;
        }
        prices
    }

    /// What all capacities cost.
    pub(super) fn worth(&self, prices: &[f64]) -> f64 {
        self.capacities.iter().zip(prices).map(|(a, b)| a * b).sum()
    }
}

/// What a tree costs.
pub(super) fn cost_of(column: &Column, prices: &[f64]) -> f64 {
    column.iter().map(|(row, uses)| prices[*row] * uses).sum()
}
