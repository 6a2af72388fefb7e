//! Trees found by searching the links: the maximum bottleneck tree and those of FPFR.

use super::sites::{SiteTree, Sites};

/// How many trees FPFR finds at most; each uses up a link, so that only a network with more links
/// than this has more.
const TREES_MAX: usize = 10_000;

/// What is left of a link when its rest is due to rounding, relative.
const ROUNDING: f64 = 1e-9;

/// Grows a tree from the roots by the fastest link that leaves it [Burger §3.1.2, after Prim]. Of
/// equally fast ones, by that of the site with the fewest children so far.
pub(super) fn max_bottleneck(sites: &Sites<'_>) -> SiteTree {
    let count = sites.count();
    let mut children = vec![0; count];
    let mut inside = sites.roots.clone();
    let mut outside: Vec<usize> = (0..count).filter(|site| !sites.is_root(*site)).collect();
    let mut edges = Vec::new();
    while !outside.is_empty() {
        let arcs = (inside.iter())
            .flat_map(|from| outside.iter().map(move |to| (*from, *to)))
            .filter(|(from, to)| sites.achievable(*from, *to) > 0.0);
        let best = arcs.reduce(|best, arc| {
            let (a, b) = (
                sites.achievable(best.0, best.1),
                sites.achievable(arc.0, arc.1),
            );
            if b > a || (b == a && children[arc.0] < children[best.0]) {
                arc
            } else {
                best
            }
        });
        let Some((from, to)) = best else {
            break;
        };
        children[from] += 1;
        inside.push(to);
        outside.retain(|site| *site != to);
        edges.push((from, to));
    }
    SiteTree { rate: 1.0, edges }
}

/// The trees of Fast Parallel File Replication [Burger §3.1.2]: found by depth-first search, each
/// reserves its bottleneck on all of its links, until the rest does not reach all nodes.
pub(super) fn fpfr(sites: &Sites<'_>) -> Vec<SiteTree> {
    peel(sites, |left| depth_first(sites, left, 0))
}

/// Other trees that use up the links, found in other orders: thick trees to choose from. The larger
/// `variant`, the more different they are.
pub(super) fn fpfr_variant(sites: &Sites<'_>, variant: usize) -> Vec<SiteTree> {
    peel(sites, |left| depth_first(sites, left, variant))
}

/// Takes trees off the links until there are no more.
fn peel(
    sites: &Sites<'_>,
    mut next: impl FnMut(&[f64]) -> Option<Vec<(usize, usize)>>,
) -> Vec<SiteTree> {
    let mut left = sites.achievable.clone();
    let mut trees = Vec::new();
    while trees.len() < TREES_MAX {
        let Some(edges) = next(&left) else {
            break;
        };
        let arcs = edges.iter().map(|(from, to)| from * sites.count() + to);
        let rate = arcs
            .clone()
            .map(|arc| left[arc])
            .fold(f64::INFINITY, f64::min);
        if rate.is_infinite() {
            // Nothing is ever used up: this tree carries all there is.
            return vec![SiteTree { rate: 1.0, edges }];
        }
        for arc in arcs {
            left[arc] -= rate;
            if left[arc] <= sites.achievable[arc] * ROUNDING {
                left[arc] = 0.0;
            }
        }
        trees.push(SiteTree { rate, edges });
    }
    trees
}

/// A tree over the links that have something `left`, each site trying the fastest of its own
/// first; of equal ones, the next `skip` sites after itself come last. `None` if some site is not
/// reached.
fn depth_first(sites: &Sites<'_>, left: &[f64], skip: usize) -> Option<Vec<(usize, usize)>> {
    let count = sites.count();
    let by_rate = |from: usize| {
        let mut next: Vec<usize> = (0..count)
            .filter(|to| left[from * count + to] > 0.0)
            .collect();
        // Taken from the end: the fastest last, and of equal ones the first.
        if skip > 0 {
            next.sort_by_key(|to| (to + count - (from + skip) % count) % count);
        }
        next.reverse();
        next.sort_by(|a, b| left[from * count + a].total_cmp(&left[from * count + b]));
        next
    };
    let mut reached = vec![false; count];
    let mut edges = Vec::new();
    for root in &sites.roots {
        reached[*root] = true;
    }
    // The first root is searched first and reaches what it can; the others get the rest.
    let mut path: Vec<_> = sites
        .roots
        .iter()
        .rev()
        .map(|root| (*root, by_rate(*root)))
        .collect();
    while let Some((from, next)) = path.last_mut() {
        let from = *from;
        match next.pop() {
            Some(to) if !reached[to] => {
                reached[to] = true;
                edges.push((from, to));
                path.push((to, by_rate(to)));
            }
            Some(_) => {}
            None => {
                path.pop();
            }
        }
    }
    (edges.len() + sites.roots.len() == count).then_some(edges)
}
