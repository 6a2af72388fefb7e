//! The lowest tree: flat, or as flat as dead links allow [Burger §3.2.3, "semi-flat"].

use super::sites::{SiteTree, Sites};

/// How many attachments are tried for one throughput. Which of the lowest trees has the highest
/// throughput is a hard question; for more than a dozen sites with many dead links, the answer is
/// a good tree and not always the best.
const STEPS_MAX: usize = 20_000;

/// How much more than its capacity a row may carry, relative, due to rounding.
const ROUNDING: f64 = 1e-9;

/// The tree of the least height that avoids dead links, and of those one with the highest
/// throughput.
pub(super) fn tree(sites: &Sites<'_>) -> SiteTree {
    let levels = levels(sites);
    let height = levels.iter().copied().max().unwrap_or_default();
    let mut best = by_levels(sites, &levels);
    if height < 2 {
        return best;
    }
    let candidates = candidates(sites, sites.throughput(&best.edges));
    // The highest throughput for which a tree is found; what is below the first is known.
    let (mut low, mut high) = (0, candidates.len());
    while low < high {
        let middle = usize::midpoint(low, high);
        match Search::new(sites, height, candidates[middle]).run() {
            Some(edges) => {
                best = SiteTree { rate: 1.0, edges };
                low = middle + 1;
            }
            None => high = middle,
        }
    }
    best
}

/// How many links away from the nearest root each site is.
fn levels(sites: &Sites<'_>) -> Vec<usize> {
    let mut levels = vec![usize::MAX; sites.count()];
    for root in &sites.roots {
        levels[*root] = 0;
    }
    let mut queue = std::collections::VecDeque::from(sites.roots.clone());
    while let Some(from) = queue.pop_front() {
        for to in 0..sites.count() {
            if levels[to] == usize::MAX && sites.achievable(from, to) > 0.0 {
                levels[to] = levels[from] + 1;
                queue.push_back(to);
            }
        }
    }
    levels
}

/// Each site below one that is a link nearer to a root, with as few children as may be.
fn by_levels(sites: &Sites<'_>, levels: &[usize]) -> SiteTree {
    let mut order: Vec<usize> = (0..sites.count())
        .filter(|site| !sites.is_root(*site))
        .collect();
    order.sort_by_key(|site| levels[*site]);
    let mut children = vec![0_usize; sites.count()];
    let mut edges = Vec::new();
    for to in order {
        let parents = (0..sites.count())
            .filter(|from| levels[*from] < levels[to] && sites.achievable(*from, to) > 0.0);
        let spare = parents.min_by_key(|from| (children[*from], levels[*from]));
        if let Some(from) = spare {
            children[from] += 1;
            edges.push((from, to));
        }
    }
    SiteTree { rate: 1.0, edges }
}

/// The throughputs above `least` that some row could give to a tree, rising.
fn candidates(sites: &Sites<'_>, least: f64) -> Vec<f64> {
    let mut arcs = vec![0_usize; sites.rows.len()];
    for rows in &sites.rows_of {
        for row in rows {
            arcs[*row] += 1;
        }
    }
    let mut candidates: Vec<f64> = (sites.rows.iter().zip(&arcs))
        .flat_map(|(row, arcs)| {
            let uses = 0..=(*arcs).min(sites.count() - 1);
            uses.map(|uses| row.capacity / (row.constant + uses as f64))
        })
        .filter(|rate| rate.is_finite() && *rate > least * (1.0 + ROUNDING))
        .collect();
    candidates.sort_by(f64::total_cmp);
    candidates.dedup();
    candidates
}

/// A search for a tree of at most `height` on which every row carries `rate` times its use.
struct Search<'s, 'n> {
    sites: &'s Sites<'n>,
    height: usize,
    rate: f64,
    uses: Vec<f64>,
    level: Vec<Option<usize>>,
    edges: Vec<(usize, usize)>,
    steps: usize,
}

impl<'s, 'n> Search<'s, 'n> {
    fn new(sites: &'s Sites<'n>, height: usize, rate: f64) -> Self {
        let mut level = vec![None; sites.count()];
        for root in &sites.roots {
            level[*root] = Some(0);
        }
        Self {
            sites,
            height,
            rate,
            uses: sites.rows.iter().map(|row| row.constant).collect(),
            level,
            edges: Vec::new(),
            steps: STEPS_MAX,
        }
    }

    fn run(mut self) -> Option<Vec<(usize, usize)>> {
        let fits = (0..self.uses.len()).all(|row| self.fits(row));
        (fits && self.grow(0)).then_some(self.edges)
    }

    fn fits(&self, row: usize) -> bool {
        self.uses[row] * self.rate <= self.sites.rows[row].capacity * (1.0 + ROUNDING)
    }

    /// Puts sites below those of `level`, then goes on with the next.
    fn grow(&mut self, level: usize) -> bool {
        let mut waiting: Vec<usize> = (0..self.sites.count())
            .filter(|site| self.level[*site].is_none())
            .collect();
        if waiting.is_empty() {
            return true;
        }
        if level == self.height {
            return false;
        }
        // Those that the fewest reach have the least choice.
        let reach = |to: &usize| {
            let reaches = |from: &usize| self.sites.achievable(*from, *to) >= self.rate;
            (0..self.sites.count()).filter(reaches).count()
        };
        waiting.sort_by_key(reach);
        self.attach(level, &waiting)
    }

    fn attach(&mut self, level: usize, waiting: &[usize]) -> bool {
        let Some((to, rest)) = waiting.split_first() else {
            return self.grow(level + 1);
        };
        let count = self.sites.count();
        for from in 0..count {
            if self.level[from] != Some(level) || self.sites.achievable(from, *to) == 0.0 {
                continue;
            }
            if self.steps == 0 {
                return false;
            }
            self.steps -= 1;
            let rows = &self.sites.rows_of[from * count + to];
            for row in rows {
                self.uses[*row] += 1.0;
            }
            if rows.iter().all(|row| self.fits(*row)) {
                self.level[*to] = Some(level + 1);
                self.edges.push((from, *to));
                if self.attach(level, rest) {
                    return true;
                }
                self.edges.pop();
                self.level[*to] = None;
            }
            for row in rows {
                self.uses[*row] -= 1.0;
            }
        }
        level + 1 < self.height && self.attach(level, rest)
    }
}
