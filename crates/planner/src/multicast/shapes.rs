//! Trees whose shape is fixed: chain, binary, binomial [Burger §3.1.2, figure 3.1].
//!
//! Sites take their places in the order of the network, the first root first. Where that would use a
//! dead link, a site is moved to the place after; a site that cannot be placed at all is attached to
//! one that reaches it. Further roots have no place in such a shape.

use super::sites::{SiteTree, Sites};

/// Each site sends to the next.
pub(super) fn chain(sites: &Sites<'_>) -> SiteTree {
    shape(sites, |place| place - 1)
}

/// Each site sends to two.
pub(super) fn binary(sites: &Sites<'_>) -> SiteTree {
    shape(sites, |place| (place - 1) / 2)
}

/// In each round every site that has the data sends to one that has not.
pub(super) fn binomial(sites: &Sites<'_>) -> SiteTree {
    shape(sites, binomial_parent)
}

/// Place 2^k + j, with j below 2^k, gets its data in round k from place j.
pub(super) const fn binomial_parent(place: usize) -> usize {
    place - (1 << place.ilog2())
}

fn shape(sites: &Sites<'_>, parent: impl Fn(usize) -> usize) -> SiteTree {
    let count = sites.count();
    let mut placed = vec![sites.roots[0]];
    let mut waiting: Vec<usize> = (0..count).filter(|site| !sites.is_root(*site)).collect();
    let mut edges = Vec::new();
    while !waiting.is_empty() {
        let from = placed[parent(placed.len())];
        let reaches = |from: usize| move |to: &usize| sites.achievable(from, *to) > 0.0;
        let found = match waiting.iter().position(reaches(from)) {
            Some(index) => Some((from, index)),
            // The most recent ones first, as they have the fewest to send to.
            None => (placed.iter().rev().chain(&sites.roots[1..]))
                .find_map(|from| Some((*from, waiting.iter().position(reaches(*from))?))),
        };
        let Some((from, index)) = found else {
            break;
        };
        let to = waiting.remove(index);
        placed.push(to);
        edges.push((from, to));
    }
    SiteTree { rate: 1.0, edges }
}

#[cfg(test)]
mod tests {
    use super::binomial_parent;

    #[test]
    fn a_binomial_tree_doubles_in_each_round() {
        let parents: Vec<usize> = (1..8).map(binomial_parent).collect();
        assert_eq!(parents, [0, 0, 1, 0, 1, 2, 3]);
    }
}
