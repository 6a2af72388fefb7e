//! The cheapest tree from the roots to every other site: Chu-Liu and Edmonds, on a matrix of costs.
//!
//! The matrix is shrunk in place as cycles are contracted, so that each site is merged once and all
//! of it takes time in the square of the number of sites.

/// The tree of the least cost over `count` sites, one forest if there are several roots; `cost[from * count + to]`, infinite where there is
/// no way. Parent and child, a parent's own edge first. `None` if some site cannot be reached.
pub(super) fn cheapest(count: usize, roots: &[usize], cost: &[f64]) -> Option<Vec<(usize, usize)>> {
    let mut search = Search::new(count, roots, cost);
    for site in 0..count {
        search.grow(site)?;
    }
    Some(search.unfold())
}

/// A vertex: a site, or the cycle that has taken the place of its members.
struct Vertex {
    /// The arc between sites by which it is entered.
    entered: Option<(usize, usize)>,
    /// The cycle it is a member of.
    within: Option<usize>,
}

struct Search {
    count: usize,
    roots: Vec<usize>,
    /// What is left of the costs between slots: those of the sites at first, then of what holds
    /// them; a contracted cycle keeps one of its slots.
    cost: Vec<f64>,
    /// The arc between sites that each cost between slots belongs to.
    arc: Vec<(u32, u32)>,
    /// The vertex in each slot, and whether the slot is still in use.
    holds: Vec<usize>,
    open: Vec<usize>,
    /// The slot each site is in.
    slot: Vec<usize>,
    vertices: Vec<Vertex>,
    /// Slots whose vertex is joined to a root already, and those on the path that is growing.
    joined: Vec<bool>,
    on_path: Vec<bool>,
}

impl Search {
    fn new(count: usize, roots: &[usize], cost: &[f64]) -> Self {
        let arcs = (0..count).flat_map(|from| (0..count).map(move |to| (from as u32, to as u32)));
        let vertex = |_| Vertex {
            entered: None,
            within: None,
        };
        let mut joined = vec![false; count];
        for root in roots {
            joined[*root] = true;
        }
        Self {
            count,
            roots: roots.to_vec(),
            cost: cost.to_vec(),
            arc: arcs.collect(),
            holds: (0..count).collect(),
            open: (0..count).collect(),
            slot: (0..count).collect(),
            vertices: (0..count).map(vertex).collect(),
            joined,
            on_path: vec![false; count],
        }
    }

    /// Follows the cheapest arcs backwards from `site` until a root is reached, contracting what
    /// turns out to be a cycle.
    fn grow(&mut self, site: usize) -> Option<()> {
        let mut path = vec![self.slot[site]];
        while let Some(&at) = path.last() {
            if self.joined[at] {
                break;
            }
            self.on_path[at] = true;
            let from = self.enter(at)?;
            if self.joined[from] {
                break;
            }
            if self.on_path[from] {
                let start = path.iter().position(|slot| *slot == from)?;
                let cycle = path.split_off(start);
                self.contract(&cycle);
                path.push(cycle[0]);
            } else {
                path.push(from);
            }
        }
        for slot in path {
            self.joined[slot] = true;
        }
        Some(())
    }

    /// Chooses the cheapest arc into a slot and takes its cost off all arcs that go there.
    fn enter(&mut self, to: usize) -> Option<usize> {
        let count = self.count;
        let others = self.open.iter().copied().filter(|from| *from != to);
        let from = others.min_by(|a, b| {
            let (a, b) = (self.cost[a * count + to], self.cost[b * count + to]);
            a.total_cmp(&b)
        })?;
        let least = self.cost[from * count + to];
        if least.is_infinite() {
            return None;
        }
        for other in &self.open {
            self.cost[other * count + to] -= least;
        }
        let (a, b) = self.arc[from * count + to];
        self.vertices[self.holds[to]].entered = Some((a as usize, b as usize));
        Some(from)
    }

    /// Puts one vertex in the place of a cycle, into the first of its slots.
    fn contract(&mut self, cycle: &[usize]) {
        let count = self.count;
        let new = self.vertices.len();
        self.vertices.push(Vertex {
            entered: None,
            within: None,
        });
        for slot in cycle {
            self.vertices[self.holds[*slot]].within = Some(new);
            self.on_path[*slot] = false;
        }
        let keep = cycle[0];
        let merged = &cycle[1..];
        self.open.retain(|slot| !merged.contains(slot));
        for slot in merged {
            for other in self.open.iter().filter(|other| **other != keep) {
                for (kept, old) in [
                    (other * count + keep, other * count + slot),
                    (keep * count + other, slot * count + other),
                ] {
                    if self.cost[old] < self.cost[kept] {
                        self.cost[kept] = self.cost[old];
                        self.arc[kept] = self.arc[old];
                    }
                }
            }
        }
        for slot in &mut self.slot {
            if merged.contains(slot) {
                *slot = keep;
            }
        }
        self.holds[keep] = new;
    }

    /// Opens the cycles again, the last first: the arc into a cycle enters one of its members,
    /// which gives up its own.
    fn unfold(mut self) -> Vec<(usize, usize)> {
        for cycle in (self.count..self.vertices.len()).rev() {
            let Some(arc) = self.vertices[cycle].entered else {
                continue;
            };
            let mut member = arc.1;
            while let Some(within) = self.vertices[member]
                .within
                .filter(|within| *within != cycle)
            {
                member = within;
            }
            self.vertices[member].entered = Some(arc);
        }
        let mut children = vec![Vec::new(); self.count];
        for (site, vertex) in self.vertices[..self.count].iter().enumerate() {
            if let Some((from, _)) = vertex.entered.filter(|_| !self.roots.contains(&site)) {
                children[from].push(site);
            }
        }
        let mut edges = Vec::with_capacity(self.count);
        let mut queue = self.roots.clone();
        while let Some(from) = queue.pop() {
            for to in &children[from] {
                edges.push((from, *to));
                queue.push(*to);
            }
        }
        edges
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    /// All ways to give every site but the first `roots` a parent.
    fn brute(count: usize, roots: usize, cost: &[f64]) -> f64 {
        let mut best = f64::INFINITY;
        let ways = count.pow((count - roots) as u32);
        for way in 0..ways {
            let mut rest = way;
            let parents: Vec<usize> = (roots..count)
                .map(|_| {
                    let parent = rest % count;
                    rest /= count;
                    parent
                })
                .collect();
            let reaches = (roots..count).all(|mut site| {
                (0..count).any(|_| {
                    if site >= roots {
                        site = parents[site - roots];
                    }
                    site < roots
                })
            });
            if reaches {
                let arcs = parents
                    .iter()
                    .zip(roots..)
                    .map(|(from, to)| cost[from * count + to]);
                best = best.min(arcs.sum());
            }
        }
        best
    }

    #[test]
    fn no_tree_is_cheaper() {
        let mut state = 7_u32;
        let mut random = || {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            state >> 24
        };
        for round in 0..2000 {
            let count = 2 + round % 5;
            let cost: Vec<f64> = (0..count * count)
                .map(|_| match random() % 8 {
                    0 => f64::INFINITY,
                    _ => f64::from(random() % 20),
                })
                .collect();
            let roots: Vec<usize> = (0..1 + round / 5 % 2).collect();
            let expected = brute(count, roots.len(), &cost);
            match cheapest(count, &roots, &cost) {
                None => assert!(expected.is_infinite()),
                Some(edges) => {
                    let found: f64 = edges.iter().map(|(a, b)| cost[a * count + b]).sum();
                    assert_eq!(found, expected);
                    assert_eq!(edges.len(), count - roots.len());
                }
            }
        }
    }
}
