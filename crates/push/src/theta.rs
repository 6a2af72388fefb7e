//! Which weight each flow gets: Algorithm 1 [PPUSH §III-C].

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::LinkId;

/// The weight of a flow without priority; below it a window of marked packets may take more than there is
/// [PPUSH, equation 21].
pub const THETA_MIN: f64 = 0.5;
/// A flow of the first task on a link gets no less [PPUSH, Algorithm 1, line 19].
const THETA_FIRST_MIN: f64 = 1.0;

/// The weights that one link can carry in sum, `R C / 2` [PPUSH, equation 20]: `rtt` is the round-trip time
/// under full load, `packets_per_second` the rate of the link. At least [`THETA_MIN`].
pub fn theta_max(rtt: Duration, packets_per_second: f64) -> f64 {
    let packets = rtt.as_secs_f64() * packets_per_second.max(0.0);
    (packets / 2.0).max(THETA_MIN)
}

/// A task, as far as its weights depend on it.
#[derive(Clone, Debug, PartialEq)]
pub struct Demand<'a> {
    /// How much it still has to move, in symbols.
    pub remaining: f64,
    /// How important it is: it counts as so many times smaller. 1 is usual; what is not above 0 counts as 1.
    pub priority: f64,
    /// The links that each of its flows goes over.
    pub paths: Vec<&'a [LinkId]>,
}

impl Demand<'_> {
    /// What tasks are sorted by, the smallest first.
    fn rank(&self) -> f64 {
        let is_weighted = self.priority > 0.0 && self.priority.is_finite();
        let priority = if is_weighted { self.priority } else { 1.0 };
        // What is not a number comes last, in `total_cmp` as well.
        self.remaining / priority
    }
}

/// The weight of each flow of each task, in the order of `tasks` and of their paths.
///
/// On each link the flows of the smallest task share what `theta_max` of the link leaves, and all others get
/// `theta_min`; of tasks alike the one named first comes first. A flow gets the least that any of its links
/// allows it, and one that goes over no link at all 1, as it has no one to share with. The sum over a link is at
/// most `theta_max`, unless the floors alone take more: `theta_min` of the others, 1 of the first task.
pub fn assign(
    tasks: &[Demand<'_>],
    theta_min: f64,
    theta_max: impl Fn(LinkId) -> f64,
) -> Vec<Vec<f64>> {
    debug_assert!(theta_min > 0.0 && theta_min.is_finite());
    let mut order: Vec<usize> = (0..tasks.len()).collect();
    order.sort_by(|a, b| tasks[*a].rank().total_cmp(&tasks[*b].rank()));

    debug_assert_eq!(order.len(), tasks.len());
    let mut thetas: Vec<Vec<f64>> = tasks.iter().map(|it| vec![0.0; it.paths.len()]).collect();
    let mut taken: BTreeSet<LinkId> = BTreeSet::new();
    // For each link, how many flows go over it and which of them come first there.
    let mut links: BTreeMap<LinkId, (usize, Vec<(usize, usize)>)> = BTreeMap::new();
    for &task in &order {
        let mut takes = BTreeSet::new();
        for (flow, path) in tasks[task].paths.iter().enumerate() {
            // A link named twice is one link.
            let path: BTreeSet<LinkId> = path.iter().copied().collect();
            let is_first = path.is_disjoint(&taken);
            thetas[task][flow] = match is_first {
                true if path.is_empty() => THETA_FIRST_MIN.max(theta_min),
                true => f64::INFINITY,
                false => theta_min,
            };
            for link in path {
                let (flows, first) = links.entry(link).or_default();
                *flows += 1;
                if is_first {
                    first.push((task, flow));
                    takes.insert(link);
                }
            }
        }
        taken.append(&mut takes);
    }
    for (link, (flows, first)) in &links {
        debug_assert!(first.len() <= *flows);
        debug_assert!(
            first.windows(2).all(|it| it[0].0 == it[1].0),
            "two tasks come first"
        );
        let others = (flows - first.len()) as f64;
        let share = (theta_max(*link) - theta_min * others) / first.len().max(1) as f64;
        for &(task, flow) in first {
            let theta = &mut thetas[task][flow];
            *theta = theta.min(share.max(THETA_FIRST_MIN));
        }
    }
    debug_assert!(
        thetas
            .iter()
            .flatten()
            .all(|it| it.is_finite() && *it > 0.0)
    );
    thetas
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use proptest::prelude::*;

    use super::*;

    const A: LinkId = LinkId(1);
    const B: LinkId = LinkId(2);
    const C: LinkId = LinkId(3);

    fn demand<'a>(remaining: f64, paths: &[&'a [LinkId]]) -> Demand<'a> {
        Demand {
            remaining,
            priority: 1.0,
            paths: paths.to_vec(),
        }
    }

    #[test]
    fn the_worked_example_comes_out() {
        // [PPUSH §V-A]
        for (flows, large) in [(10, 50.5), (9, 51.0)] {
            let tasks: Vec<_> = (0..flows)
                .map(|it| demand(100.0 - it as f64, &[&[A]]))
                .collect();
            let thetas = assign(&tasks, 0.5, |_| 55.0);
            assert_eq!(thetas[flows - 1], [large]);
            assert!(thetas[..flows - 1].iter().all(|it| it == &[0.5]));
        }
    }

    #[test]
    fn flows_of_the_smallest_task_share_a_link() {
        let tasks = [demand(9.0, &[&[A], &[A]]), demand(5.0, &[&[A], &[A], &[A]])];
        let thetas = assign(&tasks, 0.5, |_| 13.0);
        assert_eq!(thetas, [vec![0.5, 0.5], vec![4.0, 4.0, 4.0]]);
    }

    #[test]
    fn the_scarcest_link_of_a_path_decides() {
        // The first has two links to share, the second finds A taken, the third has C for itself.
        let tasks = [
            demand(1.0, &[&[A, B]]),
            demand(2.0, &[&[A, C]]),
            demand(3.0, &[&[C]]),
        ];
        let thetas = assign(&tasks, 0.5, |link| if link == B { 7.0 } else { 20.0 });
        // A leaves 19.5, B 7; C is nobody's before the third, which leaves the second its 0.5 there.
        assert_eq!(thetas, [vec![7.0], vec![0.5], vec![19.5]]);
    }

    #[test]
    fn links_are_taken_by_tasks_and_not_by_flows() {
        // The second flow of the first task meets a link that its own task took, and comes first there, too.
        let tasks = [demand(1.0, &[&[A, B], &[B]]), demand(2.0, &[&[B]])];
        let thetas = assign(&tasks, 0.5, |_| 10.5);
        assert_eq!(thetas, [vec![5.0, 5.0], vec![0.5]]);
    }

    #[test]
    fn the_first_task_never_gets_less_than_one() {
        let others: Vec<&[LinkId]> = vec![&[A]; 30];
        let tasks = [demand(1.0, &[&[A]]), demand(2.0, &others)];
        assert_eq!(assign(&tasks, 0.5, |_| 4.0)[0], [1.0]);
    }

    #[test]
    fn priority_makes_a_task_count_as_smaller() {
        let mut tasks = [demand(100.0, &[&[A]]), demand(60.0, &[&[A]])];
        assert_eq!(assign(&tasks, 0.5, |_| 10.0), [vec![0.5], vec![9.5]]);
        tasks[0].priority = 4.0;
        assert_eq!(assign(&tasks, 0.5, |_| 10.0), [vec![9.5], vec![0.5]]);
        tasks[0].priority = f64::NAN;
        assert_eq!(assign(&tasks, 0.5, |_| 10.0), [vec![0.5], vec![9.5]]);
    }

    #[test]
    fn a_link_carries_half_its_bandwidth_delay_product() {
        assert_eq!(theta_max(Duration::from_millis(20), 10_000.0), 100.0);
        assert_eq!(theta_max(Duration::ZERO, 10_000.0), THETA_MIN);
        assert_eq!(theta_max(Duration::from_secs(1), f64::NAN), THETA_MIN);
    }

    proptest! {
        #[test]
        fn no_link_gets_more_than_it_carries_unless_the_floors_do(
            tasks in prop::collection::vec(
                (0_u32..50, prop::collection::vec(prop::collection::vec(0_u32..6, 0..4), 0..4)), 0..12),
            max in 1.0..60.0_f64,
        ) {
            let paths: Vec<Vec<Vec<LinkId>>> = tasks.iter()
                .map(|(_, flows)| flows.iter().map(|it| it.iter().map(|l| LinkId(*l)).collect()).collect())
                .collect();
            let demands: Vec<_> = tasks.iter().zip(&paths).map(|((remaining, _), flows)| {
                demand(f64::from(*remaining), &flows.iter().map(Vec::as_slice).collect::<Vec<_>>())
            }).collect();
            let thetas = assign(&demands, THETA_MIN, |_| max);
            for link in (0..6).map(LinkId) {
                let (mut sum, mut floors) = (0.0, 0.0);
                let mut large = BTreeSet::new();
                for (task, flows) in paths.iter().enumerate() {
                    for (flow, path) in flows.iter().enumerate() {
                        if path.contains(&link) {
                            sum += thetas[task][flow];
                            floors += if thetas[task][flow] > THETA_MIN { 1.0 } else { THETA_MIN };
                            if thetas[task][flow] > THETA_MIN {
                                large.insert(task);
                            }
                        }
                    }
                }
                prop_assert!(sum <= max.max(floors) + 1e-9, "{link:?}: {sum} of {max}, floors {floors}");
                prop_assert!(large.len() <= 1, "two tasks come first on {link:?}");
            }
        }
    }
}
