//! Amounts close to the best, by prices that rise with use (Garg and Könemann), where each flow is
//! taken while it costs little more than the cheapest (Fleischer) [BDS §4.4].
//!
//! The prices are a proof, too: no amounts are worth more than all capacities cost, at prices where
//! a flow costs at least what it is worth. So the search ends as soon as what was found is close
//! enough to that, which it often is at once with the prices of the cycle before.

use std::collections::BTreeMap;

use super::{Problem, Router, Row};

/// How close to the bound is close enough, relative.
const GAP: f64 = 0.005;
/// How much a price rises when a flow fills its row, relative; halved now and then.
const STEP: f64 = 0.2;
const STEP_MIN: f64 = 0.01;
/// After how many sweeps over the flows the step is halved.
const SWEEPS_PER_STEP: u32 = 24;
/// A bound on the work: sweeps over all flows.
const SWEEPS_MAX: u32 = 240;
/// What a price is at least, relative to that of a row that is priced by its capacity alone: rows
/// that were free in the last cycle are not free for ever.
const FLOOR: f64 = 1e-4;

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Prices {
    /// The best prices of the last cycle, of rows that stand for the same thing in each.
    last: BTreeMap<Row, f64>,
}

/// The state of a search.
struct Search<'a> {
    problem: &'a Problem,
    /// Per row, then per flow for what there is of it at most.
    prices: Vec<f64>,
    loads: Vec<f64>,
    amounts: Vec<f64>,
    /// Flows that can carry anything.
    live: Vec<usize>,
}

impl<'a> Search<'a> {
    fn new(problem: &'a Problem, last: &BTreeMap<Row, f64>) -> Self {
        let rows = problem.capacities.len();
        let capacities = problem.capacities.iter().copied();
        let mosts = problem.flows.iter().map(|flow| flow.most);
        // What carries nothing is in no flow that is looked at, and what has no end costs nothing.
        let price = |most: f64| if most > 0.0 { 1.0 / most } else { 0.0 };
        let mut prices: Vec<f64> = capacities.chain(mosts).map(price).collect();
        if !last.is_empty() {
            for (row, price) in problem.rows.iter().zip(&mut prices) {
                let floor = *price * FLOOR;
                *price = last.get(row).copied().unwrap_or(0.0).max(floor);
            }
            prices[rows..].iter_mut().for_each(|price| *price *= FLOOR);
        }
        let able = |index: &usize| {
            let flow = &problem.flows[*index];
            let open = |row: &u32| problem.capacities[*row as usize] > 0.0;
            flow.most > 0.0 && flow.rows.iter().all(open)
        };
        Self {
            loads: vec![0.0; prices.len()],
            amounts: vec![0.0; problem.flows.len()],
            live: (0..problem.flows.len()).filter(able).collect(),
            prices,
            problem,
        }
    }

    /// What a unit of worth costs by a flow.
    fn cost(&self, index: usize) -> f64 {
        let flow = &self.problem.flows[index];
        let rows = flow.rows.iter().map(|row| self.prices[*row as usize]);
        let own = self.prices[self.problem.capacities.len() + index];
        (rows.sum::<f64>() + own) / flow.worth
    }

    fn cheapest(&self) -> f64 {
        let costs = self.live.iter().map(|index| self.cost(*index));
        costs.fold(f64::INFINITY, f64::min)
    }

    /// No amounts are worth more than this.
    fn bound(&self, cheapest: f64) -> f64 {
        let rows = self.problem.capacities.iter().zip(&self.prices);
        let rows = rows.map(|(most, price)| most * price).sum::<f64>();
        let own = |index: &usize| {
            let price = self.prices[self.problem.capacities.len() + index];
            let most = self.problem.flows[*index].most;
            if most.is_finite() { most * price } else { 0.0 }
        };
        (rows + self.live.iter().map(own).sum::<f64>()) / cheapest
    }

    /// Takes every flow while it costs little more than the cheapest did.
    fn sweep(&mut self, cheapest: f64, step: f64) {
        let rows = self.problem.capacities.len();
        let enough = cheapest * (1.0 + step);
        for place in 0..self.live.len() {
            let index = self.live[place];
            let flow = &self.problem.flows[index];
            let most = flow
                .rows
                .iter()
                .map(|row| self.problem.capacities[*row as usize]);
            let amount = most.fold(flow.most, f64::min);
            debug_assert!(amount > 0.0 && amount.is_finite(), "live flows have an end");
            debug_assert!(self.cost(index) > 0.0, "a flow that has an end has a price");
            while self.cost(index) <= enough {
                self.amounts[index] += amount;
                for row in &flow.rows {
                    let row = *row as usize;
                    let share = amount / self.problem.capacities[row];
                    self.loads[row] += share;
                    self.prices[row] *= 1.0 + step * share;
                }
                let own = rows + index;
                self.loads[own] += amount / flow.most;
                self.prices[own] *= 1.0 + step * amount / flow.most;
            }
        }
        // Only proportions count; keep the numbers in range.
        let highest = self.prices.iter().copied().fold(0.0, f64::max);
        if highest > 1e100 {
            self.prices.iter_mut().for_each(|price| *price /= highest);
        }
    }

    /// The amounts scaled to fit, with what still fits added, the cheapest first.
    fn fitted(&self) -> Vec<f64> {
        let fullest = self.loads.iter().copied().fold(0.0, f64::max);
        let mut rooms = self.problem.capacities.clone();
        let mut amounts = vec![0.0; self.amounts.len()];
        let take = |amounts: &mut Vec<f64>, rooms: &mut Vec<f64>, index: usize, amount: f64| {
            amounts[index] += amount;
            for row in &self.problem.flows[index].rows {
                let room = &mut rooms[*row as usize];
                *room = (*room - amount).max(0.0);
            }
        };
        if fullest > 0.0 {
            for index in &self.live {
                take(
                    &mut amounts,
                    &mut rooms,
                    *index,
                    self.amounts[*index] / fullest,
                );
            }
        }
        let mut order: Vec<(f64, usize)> = self
            .live
            .iter()
            .map(|index| (self.cost(*index), *index))
            .collect();
        order.sort_unstable_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
        for (_, index) in order {
            let flow = &self.problem.flows[index];
            let fits = flow.rows.iter().map(|row| rooms[*row as usize]);
            let more = fits.fold(flow.most - amounts[index], f64::min);
            if more > 0.0 {
                take(&mut amounts, &mut rooms, index, more);
            }
        }
        amounts
    }
}

impl Router for Prices {
    fn route(&mut self, problem: &Problem) -> Vec<f64> {
        let mut search = Search::new(problem, &self.last);
        if search.live.is_empty() {
            return search.amounts;
        }
        let mut best = search.fitted();
        let mut worth = problem.worth(&best);
        let mut bound = f64::INFINITY;
        let mut step = STEP;
        let mut kept = search.prices.clone();
        for sweep in 0..SWEEPS_MAX {
            let cheapest = search.cheapest();
            let here = search.bound(cheapest);
            if here < bound {
                bound = here;
                kept.clone_from(&search.prices);
                kept.iter_mut().for_each(|price| *price /= cheapest);
            }
            if worth >= bound * (1.0 - GAP) {
                break;
            }
            if sweep % SWEEPS_PER_STEP == SWEEPS_PER_STEP - 1 {
                step = (step / 2.0).max(STEP_MIN);
            }
            search.sweep(cheapest, step);
            // Fitting takes as long as a sweep: seldom while nothing is expected of it.
            if sweep < 4 || sweep % 4 == 3 {
                let fitted = search.fitted();
                let value = problem.worth(&fitted);
                if value > worth {
                    (best, worth) = (fitted, value);
                }
            }
        }
        debug_assert!(problem.fits(&best), "no row is overdrawn");
        debug_assert!(worth <= bound * (1.0 + 1e-6), "the prices prove a bound");
        let lasting = |(row, _): &(&Row, &f64)| !matches!(row, Row::Lack(..));
        let prices = problem.rows.iter().zip(&kept).filter(lasting);
        self.last = prices.map(|(row, price)| (*row, *price)).collect();
        best
    }
}
