//! Peers as every node draws them, against the rules of the thesis.

#![allow(clippy::unwrap_used)]

use super::*;

fn members(sizes: &[usize]) -> Vec<Member> {
    let of = |(cluster, size): (usize, &usize)| {
        let member = Member {
            cluster: 7 * cluster as u32,
            role: crate::Role::Receiver,
        };
        std::iter::repeat_n(member, *size)
    };
    sizes.iter().enumerate().flat_map(of).collect()
}

fn all_links(kind: Kind, sizes: &[usize], blocks: u32, seed: u64) -> (Clusters, Vec<Links>) {
    let clusters = Clusters::new(&members(sizes));
    let nodes = sizes.iter().sum::<usize>() as u32;
    let of = |me| links(kind, &clusters, blocks, seed, NodeId(me));
    let list = (0..nodes).map(of).collect();
    (clusters, list)
}

#[test]
fn shares_are_equal_and_cover_everything() {
    // Eq. 4.7 for 10 blocks: floor(r 10 / 4).
    let shares: Vec<_> = (0..4).map(|rank| share(rank, 4, 10)).collect();
    assert_eq!(shares, [0..2, 2..5, 5..7, 7..10]);
    for (nodes, blocks) in [(1, 0), (1, 9), (7, 3), (16, 19_200), (33, 4_000_000_000)] {
        assert_eq!(share(0, nodes, blocks).start, 0);
        assert_eq!(share(nodes - 1, nodes, blocks).end, blocks);
        let sizes = (0..nodes).map(|rank| share(rank, nodes, blocks).len());
        let (least, most) = (sizes.clone().min().unwrap(), sizes.max().unwrap());
        assert!(most - least <= 1);
    }
    for block in 0..10 {
        let rank = fetcher(block, 4, 10);
        assert!(share(rank, 4, 10).contains(&block));
    }
}

#[test]
fn foreign_peers_have_the_same_rank() {
    // Eq. 4.6: the rank modulo the size of the other cluster.
    let (clusters, links) = all_links(Kind::Robber, &[4, 2, 3], 100, 1);
    for (me, links) in links.iter().enumerate() {
        let me = NodeId(me as u32);
        let foreign = links
            .calls
            .iter()
            .filter(|to| !clusters.are_mates(me, **to));
        let mut found = 0;
        for to in foreign {
            let size = clusters.mates(*to).len();
            assert_eq!(clusters.rank(*to), clusters.rank(me) % size);
            found += 1;
        }
        assert_eq!(found, 2, "one in each of the other clusters");
    }
}

#[test]
fn there_are_as_many_foreign_peers_as_clusters_call_for() {
    // Eq. 4.10: min(5, T - 1) if clusters are equal, else max(5, 2 ln T), and never more than T - 1.
    let foreign = |sizes: &[usize]| Clusters::new(&members(sizes)).foreign();
    assert_eq!(foreign(&[3]), 0);
    assert_eq!(foreign(&[3, 3, 3]), 2);
    assert_eq!(foreign(&[2; 40]), 5);
    let uneven = |count: usize| {
        let mut sizes = vec![2; count];
        sizes[0] = 3;
        foreign(&sizes)
    };
    assert_eq!(uneven(4), 3);
    assert_eq!(uneven(12), 5);
    assert_eq!(uneven(13), 6);
    assert_eq!(uneven(200), 11);
}

#[test]
fn both_ends_know_of_every_link() {
    for sizes in [vec![40], vec![16, 4, 12, 5], vec![1; 30], vec![1]] {
        for kind in [Kind::Mob, Kind::Robber] {
            let (_, links) = all_links(kind, &sizes, 1000, 9);
            for (me, own) in links.iter().enumerate() {
                let me = NodeId(me as u32);
                assert!(!own.calls.contains(&me) && !own.called_by.contains(&me));
                for to in &own.calls {
                    let theirs = &links[to.index()];
                    assert!(theirs.called_by.contains(&me) || theirs.calls.contains(&me));
                }
                for from in &own.called_by {
                    assert!(links[from.index()].calls.contains(&me));
                }
            }
        }
    }
}

#[test]
fn local_peers_are_five_others_and_connected() {
    let nodes: Vec<NodeId> = (0..60).map(NodeId).collect();
    for seed in 0..20 {
        let calls = random_graph(&nodes, LOCAL, seed);
        for node in &nodes {
            let own = calls.iter().filter(|(from, _)| from == node);
            let to: BTreeSet<NodeId> = own.map(|(_, to)| *to).collect();
            assert_eq!(to.len(), LOCAL);
            assert!(!to.contains(node));
        }
    }
    // With one call each, most graphs fall apart; the one that is returned does not.
    for seed in 0..20 {
        let calls = random_graph(&nodes[..8], 1, seed);
        let edges = calls.iter().map(|(from, to)| (from.index(), to.index()));
        assert!(is_connected(8, edges));
    }
}

/// Draws in vain happen, and are made up for.
#[test]
fn peers_are_drawn_until_every_block_reaches_everybody() {
    for sizes in [vec![3; 12], [vec![1; 20], vec![2, 3, 7]].concat()] {
        let clusters = Clusters::new(&members(&sizes));
        let blocks = 500;
        let mut in_vain = 0;
        for seed in 0..60 {
            let calls = draw_foreign(Kind::Mob, &clusters, blocks, seed);
            assert!(reaches_everybody(Kind::Mob, &clusters, blocks, &calls));
            // What the first draw alone would have been.
            let mut random = Pcg64Mcg::seed_from_u64(seed ^ u64::from(u32::MAX) << 32);
            let first = draw_once(&clusters, 1, &mut random);
            in_vain += u32::from(!reaches_everybody(Kind::Mob, &clusters, blocks, &first));
        }
        assert!(in_vain > 0, "the test tests nothing");
    }
}

#[test]
fn strong_connection_is_what_it_is_called() {
    let graph = |edges: &[(usize, usize)], count: usize| {
        let mut lists = vec![Vec::new(); count];
        edges.iter().for_each(|(from, to)| lists[*from].push(*to));
        is_strongly_connected(&lists)
    };
    assert!(graph(&[], 1));
    assert!(!graph(&[], 2));
    assert!(graph(&[(0, 1), (1, 2), (2, 0)], 3));
    assert!(!graph(&[(0, 1), (1, 2), (0, 2)], 3));
    assert!(!graph(&[(0, 1), (1, 0), (1, 2), (2, 3), (3, 2)], 4));
    assert!(graph(&[(0, 1), (1, 0), (1, 2), (2, 3), (3, 2), (3, 0)], 4));
    assert!(!graph(&[(1, 0), (2, 0), (1, 2), (2, 1)], 3));
    // Against reaching everything from everywhere, on random graphs.
    let mut random = Pcg64Mcg::seed_from_u64(5);
    let mut found = [0; 2];
    for _ in 0..500 {
        let count = 2 + random.next_u64() as usize % 5;
        let edges: Vec<(usize, usize)> = (0..count * 2)
            .map(|_| {
                (
                    random.next_u64() as usize % count,
                    random.next_u64() as usize % count,
                )
            })
            .collect();
        let reaches_all = |from: usize| {
            let mut seen = BTreeSet::from([from]);
            for _ in 0..count {
                let next = edges
                    .iter()
                    .filter(|(a, _)| seen.contains(a))
                    .map(|(_, b)| *b);
                seen = next.chain(seen.iter().copied()).collect();
            }
            seen.len() == count
        };
        let expected = (0..count).all(reaches_all);
        assert_eq!(graph(&edges, count), expected, "{edges:?}");
        found[usize::from(expected)] += 1;
    }
    assert!(found.into_iter().all(|n| n > 50), "{found:?}");
}

#[test]
fn very_many_clusters_of_different_sizes_do_not_draw_for_ever() {
    let sizes: Vec<usize> = (0..100).map(|cluster| 1 + cluster % 4).collect();
    let (_, links) = all_links(Kind::Mob, &sizes[..60], 5000, 3);
    assert!(links.iter().all(|links| links.calls.len() >= 9));
}
