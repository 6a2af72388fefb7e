//! Routing: how much to send between whom, so that the most gets through in the cycle [BDS §4.4].
//!
//! Blocks between the same two units are merged, so a flow is an amount of bytes from one unit to
//! another and not a block. Two solvers share one interface: a linear program, which is exact, and
//! prices that rise with use, which are fast because a cycle begins with the prices of the last.

mod prices;
mod program;

use outpour_planner::flows::Flow;

pub(crate) use prices::Prices;
pub(crate) use program::Program;

/// What a row of the problem stands for, the same from cycle to cycle.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Row {
    /// What a unit sends.
    Out(u32),
    /// What a unit receives.
    In(u32),
    /// What passes between the members of a unit or of a site.
    Local(u32, u32),
    /// What a site sends to others.
    SiteOut(u32),
    /// What a site receives from others.
    SiteIn(u32),
    /// What passes from a site to another.
    Link(u32, u32),
    /// What a target needs this cycle.
    Need(u32),
    /// What a target lacks of some blocks; which, changes every cycle.
    Lack(u32, u32),
    /// What a unit should get of blocks that no target has.
    Spread(u32, u32),
    /// What the job may carry.
    Job,
}

/// Flows and the capacities that they share, in bytes of one cycle.
#[derive(Clone, Debug, Default)]
pub(crate) struct Problem {
    pub(crate) flows: Vec<Flow>,
    pub(crate) rows: Vec<Row>,
    /// Of each row; finite.
    pub(crate) capacities: Vec<f64>,
}

impl Problem {
    /// What some amounts are worth.
    pub(crate) fn worth(&self, amounts: &[f64]) -> f64 {
        debug_assert_eq!(self.flows.len(), amounts.len(), "an amount for each flow");
        let flows = self.flows.iter().zip(amounts);
        flows.map(|(flow, amount)| flow.worth * amount).sum()
    }

    /// Whether amounts fit every row, but for rounding.
    pub(crate) fn fits(&self, amounts: &[f64]) -> bool {
        debug_assert_eq!(self.rows.len(), self.capacities.len(), "each row has one");
        let mut sums = vec![0.0; self.capacities.len()];
        for (flow, amount) in self.flows.iter().zip(amounts) {
            if *amount < 0.0 || *amount > flow.most * (1.0 + 1e-6) {
                return false;
            }
            for row in &flow.rows {
                sums[*row as usize] += amount;
            }
        }
        let rows = sums.iter().zip(&self.capacities);
        rows.into_iter()
            .all(|(sum, most)| *sum <= most * (1.0 + 1e-6) + 1e-6)
    }
}

/// A way to solve the problem.
pub(crate) trait Router: std::fmt::Debug {
    /// The amount of each flow, in bytes; they fit the capacities.
    fn route(&mut self, problem: &Problem) -> Vec<f64>;
}

/// Up to so many flows a problem is solved exactly, which takes some milliseconds at most. Prices are close
/// to the best of all flows together, so that small ones, as those between sites beside those inside one, may be
/// far from it.
const EXACT_FLOWS_MAX: usize = 200;

/// Exact where that is soon done, by prices where it is not.
#[derive(Debug, Default)]
pub(crate) struct Mixed {
    program: Program,
    prices: Prices,
}

impl Router for Mixed {
    fn route(&mut self, problem: &Problem) -> Vec<f64> {
        match problem.flows.len() <= EXACT_FLOWS_MAX {
            true => self.program.route(problem),
            false => self.prices.route(problem),
        }
    }
}

#[cfg(test)]
mod tests;
