//! The best rates of the best trees.

use std::collections::BTreeSet;

use outpour_core::Rate;

use super::RATE_MIN;
use super::approximate::{Approximate, approximate};
use super::dual;
use super::master::{rates, thick_rates};
use super::prices::{Priced, Scaled};
use crate::multicast::search;
use crate::multicast::sites::{SiteTree, Sites};

/// Trees that carry this share of the bound are the best, rounding aside.
const EXACT: f64 = 1.0 - 1e-6;

/// Up to how many sites the best trees are sought to the end. Beyond that, trees within
/// [`GAP`] will do.
const SITES_EXACT_MAX: usize = 40;

/// How far from the bound the trees between many sites may stay, relative.
const GAP: f64 = 0.005;

/// By how much prices rise with use. Larger steps find good trees sooner, smaller ones better
/// bounds.
const EPSILON: f64 = 0.2;

/// How many trees are priced in the first stage; with each further one twice as many.
const STEPS: usize = 1_000;

/// How many stages there are for many sites.
const STAGES_MAX: usize = 6;

/// How many trees of a stage a program has at most, the ones with the highest rates.
const COLUMNS_MAX: usize = 1_500;

/// How often the program over the prices asks for further trees at most; the same for many sites,
/// where each time takes longer.
const ROUNDS_MAX: usize = 5_000;
const ROUNDS_MANY_MAX: usize = 50;

/// In how many orders depth-first search looks for thick trees, and up to how many sites.
const VARIANTS: usize = 4;
const SITES_VARIED_MAX: usize = 20;

/// Up to how many trees in use it pays to look for thicker ones.
const THICK_MAX: usize = 80;

/// How often trees are left out to see whether the others carry as much.
const PRUNINGS_MAX: usize = 16;

/// Trees, and what proves them good.
pub(in crate::multicast) struct Best {
    pub(in crate::multicast) trees: Vec<SiteTree>,
    /// No trees between the sites carry more.
    pub(in crate::multicast) upper: Rate,
    /// Whether the trees carry that.
    pub(in crate::multicast) exact: bool,
}

/// The trees between `sites` that carry the most. `None` if the solver fails.
pub(in crate::multicast) fn optimal(sites: &Sites<'_>) -> Option<Best> {
    let Some(scaled) = Scaled::new(sites) else {
        // Nothing that is known of the sites limits a tree.
        return Some(Best {
            trees: vec![search::max_bottleneck(sites)],
            upper: Rate::UNLIMITED,
            exact: false,
        });
    };
    let priced = |edges: Vec<(usize, usize)>| Priced {
        column: scaled.column(&edges),
        edges,
        cost: 0.0,
    };
    let mut thick = BTreeSet::new();
    let variants = if sites.count() <= SITES_VARIED_MAX {
        VARIANTS
    } else {
        1
    };
    for variant in 0..variants {
        thick.extend(
            search::fpfr_variant(sites, variant)
                .into_iter()
                .map(|tree| tree.edges),
        );
    }
    let thick: Vec<Priced> = thick.into_iter().take(COLUMNS_MAX).map(priced).collect();
    let mut packing = Packing::new(&scaled, thick.clone());
    packing.search()?;
    packing.prune()?;
    // Trees that depth-first search finds are few; where they carry as much, they are preferred.
    let mut simple = Packing::new(&scaled, thick);
    simple.solve()?;
    if simple.lower >= packing.lower * EXACT {
        simple.prune()?;
        if simple.pool.len() < packing.pool.len() {
            (simple.upper, simple.prices) = (packing.upper, packing.prices);
            packing = simple;
        }
    }
    let upper = packing.upper * scaled.unit;
    Some(Best {
        upper: Rate::from_bytes_per_s(upper).unwrap_or(Rate::UNLIMITED),
        exact: packing.is_exact(),
        trees: packing.trees(),
    })
}

/// Trees and rates on their way to the best, in the units of `scaled`.
struct Packing<'p, 's, 'n> {
    scaled: &'p Scaled<'s, 'n>,
    pool: Vec<Priced>,
    /// The rates of the trees in the pool.
    rates: Vec<f64>,
    lower: f64,
    upper: f64,
    /// The prices that say so: no tree costs less than one, and all capacities cost that.
    prices: Vec<f64>,
}

impl<'p, 's, 'n> Packing<'p, 's, 'n> {
    fn new(scaled: &'p Scaled<'s, 'n>, pool: Vec<Priced>) -> Self {
        Self {
            scaled,
            rates: vec![0.0; pool.len()],
            pool,
            lower: 0.0,
            upper: 1.0,
            prices: scaled.bound(),
        }
    }

    fn is_exact(&self) -> bool {
        self.lower >= self.upper * EXACT
    }

    fn search(&mut self) -> Option<()> {
        let few = self.scaled.sites.count() <= SITES_EXACT_MAX;
        let (stages, rounds) = if few {
            (1, ROUNDS_MAX)
        } else {
            (STAGES_MAX, ROUNDS_MANY_MAX)
        };
        for stage in 0..stages {
            let found = approximate(self.scaled, EPSILON, GAP, STEPS << stage)?;
            self.take(found)?;
            if !self.is_exact() {
                self.refine(rounds)?;
            }
            if self.lower >= self.upper * (1.0 - GAP) {
                break;
            }
        }
        Some(())
    }

    /// Asks the program over the prices for further trees, and for prices that prove them.
    fn refine(&mut self, rounds: usize) -> Option<()> {
        let mut trees = self.used();
        let exact = dual::solve(self.scaled, &mut trees, self.prices.clone(), rounds)?;
        self.pool = trees;
        self.solve()?;
        if exact.upper < self.upper {
            (self.upper, self.prices) = (exact.upper, exact.prices);
        }
        Some(())
    }

    /// Adds what a stage found and solves for the best rates.
    fn take(&mut self, found: Approximate) -> Option<()> {
        if found.upper < self.upper {
            (self.upper, self.prices) = (found.upper, found.prices);
        }
        let mut trees = found.trees;
        trees.sort_by(|a, b| b.1.total_cmp(&a.1));
        trees.truncate(COLUMNS_MAX);
        let mut pool = if self.lower > 0.0 {
            self.used()
        } else {
            std::mem::take(&mut self.pool)
        };
        let old = pool.len();
        for (tree, _) in trees {
            if pool[..old].iter().all(|known| known.edges != tree.edges) {
                pool.push(tree);
            }
        }
        self.pool = pool;
        self.solve()
    }

    /// The best rates of the pool.
    fn solve(&mut self) -> Option<()> {
        let columns: Vec<_> = self.pool.iter().map(|tree| tree.column.clone()).collect();
        self.rates = rates(&columns, &self.scaled.capacities)?;
        self.lower = self.rates.iter().sum();
        Some(())
    }

    /// The trees that have a rate.
    fn used(&self) -> Vec<Priced> {
        let trees = self.pool.iter().zip(&self.rates);
        let used = trees.filter(|(_, rate)| **rate > self.lower * RATE_MIN);
        used.map(|(tree, _)| tree.clone()).collect()
    }

    /// Finds fewer trees that carry the same.
    fn prune(&mut self) -> Option<()> {
        let capacities = &self.scaled.capacities;
        let lower = self.lower;
        let is_used = |rate: &f64| *rate > lower * RATE_MIN;
        let enough = |rates: &[f64]| rates.iter().sum::<f64>() >= lower * (1.0 - RATE_MIN * 10.0);
        let mut used = self.used();
        if used.len() <= THICK_MAX {
            let columns: Vec<_> = self.pool.iter().map(|tree| tree.column.clone()).collect();
            let fewer = |rates: &[f64]| rates.iter().filter(|r| is_used(r)).count() <= used.len();
            let thick = thick_rates(&columns, capacities, lower)
                .filter(|rates| enough(rates) && fewer(rates));
            if let Some(thick) = thick {
                self.rates = thick;
                used = self.used();
            }
        }
        let mut rates: Vec<f64> = self.rates.iter().copied().filter(is_used).collect();
        let mut leave_out = used.len() / 2;
        for _ in 0..PRUNINGS_MAX {
            if leave_out == 0 {
                break;
            }
            // The thinnest first.
            let mut order: Vec<usize> = (0..used.len()).collect();
            order.sort_by(|a, b| rates[*b].total_cmp(&rates[*a]));
            order.truncate(used.len() - leave_out);
            let columns: Vec<_> = order
                .iter()
                .map(|index| used[*index].column.clone())
                .collect();
            match super::rates(&columns, capacities).filter(|rates| enough(rates)) {
                Some(fewer) => {
                    let kept = order
                        .into_iter()
                        .zip(fewer)
                        .filter(|(_, rate)| is_used(rate));
                    (used, rates) = kept
                        .map(|(index, rate)| (used[index].clone(), rate))
                        .unzip();
                    leave_out = leave_out.min(used.len() / 2);
                }
                None => leave_out /= 2,
            }
        }
        (self.pool, self.rates) = (used, rates);
        self.lower = self.rates.iter().sum();
        Some(())
    }

    /// The trees in use, in bytes per second, the thickest first.
    fn trees(self) -> Vec<SiteTree> {
        let unit = self.scaled.unit;
        let mut trees: Vec<SiteTree> = (self.pool.into_iter().zip(self.rates))
            .map(|(tree, rate)| SiteTree {
                rate: rate * unit,
                edges: tree.edges,
            })
            .collect();
        trees.sort_by(|a, b| b.rate.total_cmp(&a.rate));
        trees
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::fmt::Write;

    use outpour_core::NodeId;
    use outpour_core::network::Network;

    use super::super::prices::cost_of;
    use super::*;

    /// All trees over `count` sites from the first, as the parents of the others.
    fn all_trees(count: usize) -> Vec<Vec<(usize, usize)>> {
        let mut trees = Vec::new();
        for way in 0..count.pow(count as u32 - 1) {
            let parent = |site: usize| way / count.pow(site as u32 - 1) % count;
            let mut edges = Vec::new();
            let mut reached = vec![0];
            let mut at = 0;
            while let Some(from) = reached.get(at).copied() {
                at += 1;
                for to in (1..count).filter(|to| parent(*to) == from && *to != from) {
                    edges.push((from, to));
                    reached.push(to);
                }
            }
            if edges.len() + 1 == count {
                trees.push(edges);
            }
        }
        trees
    }

    /// Hosts with any capacities, a few of them unlimited, and links, some of them dead.
    fn hosts(count: usize, random: &mut impl FnMut() -> u32) -> Network {
        let mut text = String::new();
        let mut rate = |dead| match random() % 12 {
            0 if dead => "0 B/s".to_owned(),
            1 => "unlimited".to_owned(),
            n => format!("{} MB/s", (n + 1) * (1 + random() % 9)),
        };
        for host in 0..count {
            let (out, into) = (rate(false), rate(false));
            writeln!(
                text,
                "[[cluster]]\nname='h{host}'\nnodes=1\nout='{out}'\nin='{into}'"
            )
            .unwrap();
        }
        for (a, b) in (0..count).flat_map(|a| (0..count).map(move |b| (a, b))) {
            // A ring that is never dead reaches all nodes.
            let rate = rate((a + 1) % count != b);
            if a != b {
                writeln!(text, "[[link]]\nfrom='h{a}'\nto='h{b}'\nrate='{rate}'").unwrap();
            }
        }
        Network::from_toml(&text, "random").unwrap()
    }

    /// The optimum over all trees there are, and the prices that prove that there is no better.
    #[test]
    fn no_trees_carry_more_and_prices_prove_it() {
        let mut state = 1_u32;
        let mut random = || {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            state >> 16
        };
        let mut tried = 0;
        for round in 0..120 {
            let count = 2 + round % 5;
            let network = hosts(count, &mut random);
            let sites = Sites::new(&network, &[NodeId(0)]);
            let Some(scaled) = Scaled::new(&sites) else {
                continue;
            };
            tried += 1;
            let mut packing = Packing::new(&scaled, Vec::new());
            packing.search().unwrap();
            packing.prune().unwrap();
            assert!(packing.is_exact());

            let possible =
                |edges: &Vec<_>| edges.iter().all(|(a, b)| sites.achievable(*a, *b) > 0.0);
            let trees = all_trees(count).into_iter().filter(possible);
            let columns: Vec<_> = trees.map(|edges| scaled.column(&edges)).collect();
            let all: f64 = rates(&columns, &scaled.capacities).unwrap().iter().sum();
            assert!(
                (packing.lower / all - 1.0).abs() < 1e-6,
                "{} of {all}",
                packing.lower
            );

            assert!(packing.prices.iter().all(|price| *price >= 0.0));
            assert!((scaled.worth(&packing.prices) / all - 1.0).abs() < 1e-6);
            for column in &columns {
                assert!(cost_of(column, &packing.prices) > 1.0 - 1e-6);
            }
        }
        assert!(tried > 80);
    }
}
