//! Experiments that look at jobs and networks, and move nothing.

use outpour_core::Bytes;
use outpour_core::network::{ClusterId, Network, Resource};

use super::workload::{self, Workload};
use super::{BenchReplicateOptions, SEEDS, SEEDS_SHORT};
use crate::ExperimentError;
use crate::dice::Dice;
use crate::setting::Gridlab;
use crate::sweep::{Figure, Row};
use crate::sweep::{distribution, sorted};

/// The links of a backbone, for want of others with the delays that decide on routes.
const BACKBONE: &str = include_str!("../../data/b4-2018.csv");
/// Sites of the paper's provider, "30+" [BDS §2.1].
const SITES: u32 = 30;
/// Bandwidths that differ by less are the same.
const SAME: f64 = 1e-9;
/// How many neighbours a random site has at least.
const NEIGHBOURS: usize = 3;
/// What a link of a random network carries, Gbit/s.
const CAPACITIES: [f64; 3] = [10.0, 40.0, 100.0];
/// The least share of a link that other traffic leaves.
const LEFT_MIN: f64 = 0.1;

fn seeds(options: &BenchReplicateOptions) -> std::ops::Range<u64> {
    let count = if options.short { SEEDS_SHORT } else { SEEDS };
    options.seed..options.seed.saturating_add(count)
}

/// The paper's reading beside what is drawn: the percentage of destination sites.
pub(super) fn destinations(options: &BenchReplicateOptions) -> Result<Vec<Row>, ExperimentError> {
    let (least, most) = ("at_least_60_percent", "over_80_percent");
    let paper = quoted(
        [(least, 90.0), (most, 70.0)],
        ("sites", workload::SITES, 100.0),
    );
    let drawn = week(options, "sites", |it| {
        100.0 * it.to.len() as f64 / f64::from(SITES)
    })?;
    let figures = [
        (least, drawn.figure(|share| share >= 60.0 - SAME)),
        (most, drawn.figure(|share| share > 80.0 + SAME)),
    ];
    Ok(vec![paper, drawn.row(figures)])
}

/// The paper's reading beside what is drawn: sizes in GB.
pub(super) fn sizes(options: &BenchReplicateOptions) -> Result<Vec<Row>, ExperimentError> {
    let (small, large) = ("over_50_gb_percent", "over_1_tb_percent");
    let paper = quoted(
        [(small, 90.0), (large, 60.0)],
        ("sizes", workload::SIZES, 1e-9),
    );
    let drawn = week(options, "sizes", |it| it.size.as_f64() / 1e9)?;
    let figures = [
        (small, drawn.figure(|gb| gb > 50.0)),
        (large, drawn.figure(|gb| gb > 1000.0)),
    ];
    Ok(vec![paper, drawn.row(figures)])
}

/// What the paper says of a distribution: two figures and the points between the ends, which are ours.
fn quoted(figures: [(&str, f64); 2], (curve, points, unit): (&str, [(f64, f64); 4], f64)) -> Row {
    let mut row = Row::new("paper", None);
    for (name, value) in figures {
        let figure = Figure::of(std::iter::once(value));
        row.figures.insert(name.to_owned(), figure);
    }
    let inner = points[1..3].iter();
    let points = inner.map(|(share, value)| (value * unit, share * 100.0));
    row.curves.insert(curve.to_owned(), points.collect());
    row
}

/// A value of each transfer of some weeks.
struct Weeks {
    curve: &'static str,
    each: Vec<Vec<f64>>,
}

fn week(
    options: &BenchReplicateOptions,
    curve: &'static str,
    of: impl Fn(&workload::Transfer) -> f64,
) -> Result<Weeks, ExperimentError> {
    let one = |seed| {
        let drawn = Workload {
            seed,
            ..Workload::default()
        };
        let transfers = drawn.draw(SITES);
        let transfers = transfers.map_err(|error| ExperimentError::Setup(error.to_string()))?;
        Ok(sorted(transfers.iter().map(&of)))
    };
    let each: Result<Vec<Vec<f64>>, ExperimentError> = seeds(options).map(one).collect();
    Ok(Weeks { curve, each: each? })
}

impl Weeks {
    /// The percentage of the transfers of each week of which this is true.
    fn figure(&self, is: impl Fn(f64) -> bool) -> Figure {
        Figure::of(self.each.iter().map(|week| percentage(week, &is)))
    }

    fn row(&self, figures: [(&str, Figure); 2]) -> Row {
        let mut row = Row::new("drawn", None);
        for (name, figure) in figures {
            row.figures.insert(name.to_owned(), figure);
        }
        let first = self.each.first().map(Vec::as_slice).unwrap_or_default();
        row.curves
            .insert(self.curve.to_owned(), distribution(first));
        row
    }
}

fn percentage(values: &[f64], is: impl Fn(f64) -> bool) -> f64 {
    let count = values.iter().filter(|value| is(**value)).count();
    100.0 * count as f64 / values.len().max(1) as f64
}

/// BW(A to C) over BW(A to b to C), over three kinds of networks.
pub(super) fn paths(options: &BenchReplicateOptions) -> Result<Vec<Row>, ExperimentError> {
    let grid = Gridlab::read(None)?;
    let root = grid.sites().next().unwrap_or_default().to_owned();
    let grid = grid.setting(&root, Bytes(1))?;
    let grid = ratios(&table(grid.asked.as_ref().unwrap_or(&grid.network)));
    let backbone = backbone()?;
    let each = |links: &dyn Fn(&mut Dice) -> Routes| -> Vec<Vec<f64>> {
        let one = |seed| ratios(&links(&mut Dice::new(seed)).bandwidths());
        seeds(options).map(one).collect()
    };
    let row = |series: &str, networks: Vec<Vec<f64>>| {
        let mut row = Row::new(series, None);
        let share =
            |is: &dyn Fn(f64) -> bool| Figure::of(networks.iter().map(|all| percentage(all, is)));
        let differ = share(&|ratio| (ratio - 1.0).abs() > SAME);
        row.figures.insert("different_percent".to_owned(), differ);
        let faster = share(&|ratio| ratio < 1.0 - SAME);
        row.figures
            .insert("faster_over_b_percent".to_owned(), faster);
        let first = networks.first().map(Vec::as_slice).unwrap_or_default();
        row.curves.insert("ratios".to_owned(), distribution(first));
        row
    };
    Ok(vec![
        row("GridLab", vec![grid]),
        row("backbone", each(&|dice| loaded(&backbone, dice))),
        row("random", each(&|dice| random(dice))),
    ])
}

/// Bandwidths from each site to each other, none from a site to itself.
type Bandwidths = Vec<Vec<f64>>;

/// The ratios of all A, C and b in ascending order, where both ways carry anything.
fn ratios(bandwidths: &Bandwidths) -> Vec<f64> {
    let mut all = Vec::new();
    let sites = 0..bandwidths.len();
    for a in sites.clone() {
        for c in sites.clone().filter(|c| *c != a) {
            for b in sites.clone().filter(|b| *b != a && *b != c) {
                let (direct, over) = (bandwidths[a][c], bandwidths[a][b].min(bandwidths[b][c]));
                if direct > 0.0 && over > 0.0 {
                    all.push(direct / over);
                }
            }
        }
    }
    sorted(all.into_iter())
}

/// What the servers of a network with one server in each site get between them.
fn table(network: &Network) -> Bandwidths {
    let sites = || (0..network.clusters().len() as u32).map(ClusterId);
    let between = |from: ClusterId, to: ClusterId| {
        let ends = network
            .nodes_of(from)
            .next()
            .zip(network.nodes_of(to).next());
        let Some((out, into)) = ends.filter(|_| from != to) else {
            return 0.0;
        };
        let path = network.path(out, into);
        let capacity = |resource: &Resource| network.capacity(*resource).bytes_per_s();
        let least = path.resources().iter().map(capacity);
        least.fold(f64::INFINITY, f64::min)
    };
    sites()
        .map(|from| sites().map(|to| between(from, to)).collect())
        .collect()
}

/// A link between two sites, both ways.
#[derive(Clone, Copy, Debug)]
struct Link {
    ends: (usize, usize),
    /// What routes are chosen by.
    delay: f64,
    /// What other traffic leaves each way, in any unit.
    left: (f64, f64),
}

/// Sites joined by links that several routes share.
pub(super) struct Routes {
    sites: usize,
    links: Vec<Link>,
}

/// The links of the backbone, all alike.
pub(super) fn backbone() -> Result<Routes, ExperimentError> {
    let mut links = Vec::new();
    let mut sites = 0;
    for line in BACKBONE.lines().filter(|line| !line.starts_with('#')) {
        let cells: Vec<&str> = line.split(',').collect();
        let link = match cells.as_slice() {
            [a, b, delay] => a.parse().ok().zip(b.parse().ok()).zip(delay.parse().ok()),
            _ => None,
        };
        let wrong = || ExperimentError::Setup(format!("b4-2018.csv: `{line}` is not a link"));
        let (ends, delay): ((usize, usize), f64) = link.ok_or_else(wrong)?;
        sites = sites.max(ends.0 + 1).max(ends.1 + 1);
        let left = (1.0, 1.0);
        links.push(Link { ends, delay, left });
    }
    Ok(Routes { sites, links })
}

/// The same links with other traffic on them.
fn loaded(routes: &Routes, dice: &mut Dice) -> Routes {
    let links = routes.links.iter().map(|link| Link {
        left: (left(dice), left(dice)),
        ..*link
    });
    Routes {
        sites: routes.sites,
        links: links.collect(),
    }
}

/// Which share of a link other traffic leaves.
fn left(dice: &mut Dice) -> f64 {
    LEFT_MIN + (1.0 - LEFT_MIN) * dice.share()
}

/// Sites at random places of a square, each joined to the nearest before it and to its nearest.
fn random(dice: &mut Dice) -> Routes {
    let places: Vec<(f64, f64)> = (0..SITES).map(|_| (dice.share(), dice.share())).collect();
    let far = |a: usize, b: usize| {
        let (from, to) = (places[a], places[b]);
        (from.0 - to.0).hypot(from.1 - to.1)
    };
    let mut pairs = std::collections::BTreeSet::new();
    for a in 0..places.len() {
        let mut others: Vec<usize> = (0..places.len()).filter(|b| *b != a).collect();
        others.sort_by(|b, c| far(a, *b).total_cmp(&far(a, *c)));
        // With one link to a site before it, every site is reached.
        let before = others.iter().find(|b| **b < a);
        let near = others.iter().take(NEIGHBOURS).chain(before);
        pairs.extend(near.map(|b| (a.min(*b), a.max(*b))));
    }
    let links = pairs.into_iter().map(|ends| {
        let kind = (dice.next() % CAPACITIES.len() as u64) as usize;
        let capacity = CAPACITIES[kind];
        Link {
            ends,
            delay: far(ends.0, ends.1),
            left: (capacity * left(dice), capacity * left(dice)),
        }
    });
    Routes {
        sites: places.len(),
        links: links.collect(),
    }
}

impl Routes {
    /// What one transfer at a time gets on the routes of least delay, as wide areas route.
    fn bandwidths(&self) -> Bandwidths {
        (0..self.sites).map(|from| self.from(from).1).collect()
    }

    /// How long those routes are, one way, if links have their delays in milliseconds.
    pub(super) fn delays_ms(&self) -> Vec<Vec<f64>> {
        (0..self.sites).map(|from| self.from(from).0).collect()
    }

    /// Of the route from one site to each other, the delay and what it carries.
    fn from(&self, from: usize) -> (Vec<f64>, Vec<f64>) {
        let mut delays = vec![f64::INFINITY; self.sites];
        let mut rates = vec![0.0; self.sites];
        (delays[from], rates[from]) = (0.0, f64::INFINITY);
        // A route has at most so many links; each round settles those that have one more.
        for _ in 1..self.sites {
            for link in &self.links {
                let (a, b) = link.ends;
                for (near, next, left) in [(a, b, link.left.0), (b, a, link.left.1)] {
                    if delays[near] + link.delay < delays[next] {
                        delays[next] = delays[near] + link.delay;
                        rates[next] = f64::min(rates[near], left);
                    }
                }
            }
        }
        rates[from] = 0.0;
        (delays, rates)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    const OPTIONS: BenchReplicateOptions = BenchReplicateOptions {
        seed: 1,
        short: true,
        threads: 1,
        program: std::path::PathBuf::new(),
    };

    #[test]
    fn what_is_drawn_is_near_what_the_paper_says() {
        for rows in [destinations(&OPTIONS).unwrap(), sizes(&OPTIONS).unwrap()] {
            let [paper, drawn] = &rows[..] else {
                panic!("{rows:?}");
            };
            for (name, said) in &paper.figures {
                let found = drawn.mean(name).unwrap();
                assert!((found - said.mean).abs() < 4.0, "{name}: {found}");
            }
        }
    }

    #[test]
    fn ratios_compare_a_way_with_those_over_others() {
        // From 0 over 1 to 2: 3, directly 2; back over 1: 4, directly nothing.
        let bandwidths = vec![
            vec![0.0, 6.0, 2.0],
            vec![5.0, 0.0, 3.0],
            vec![0.0, 4.0, 0.0],
        ];
        // 0-2 over 1: 2/3. 1-2 over 0: 3/2. 0-1 over 2: 6/2. Of the others one way carries nothing.
        let found = ratios(&bandwidths);
        assert_eq!(found, [2.0 / 3.0, 3.0 / 2.0, 3.0]);
    }

    #[test]
    fn routes_take_the_least_delay_and_the_least_rate_on_it() {
        let link = |ends, delay, left| Link { ends, delay, left };
        let routes = Routes {
            sites: 3,
            links: vec![
                link((1, 2), 1.0, (7.0, 8.0)),
                link((0, 2), 5.0, (9.0, 9.0)),
                link((0, 1), 1.0, (3.0, 4.0)),
            ],
        };
        let expected = [[0.0, 3.0, 3.0], [4.0, 0.0, 7.0], [4.0, 8.0, 0.0]];
        assert_eq!(routes.bandwidths(), expected.map(Vec::from));
        let expected = [[0.0, 1.0, 2.0], [1.0, 0.0, 1.0], [2.0, 1.0, 0.0]];
        assert_eq!(routes.delays_ms(), expected.map(Vec::from));
    }

    #[test]
    fn every_site_of_every_network_is_reached() {
        let backbone = backbone().unwrap();
        assert_eq!((backbone.sites, backbone.links.len()), (18, 40));
        for seed in 1..=20 {
            let mut dice = Dice::new(seed);
            for routes in [loaded(&backbone, &mut dice), random(&mut dice)] {
                for (from, row) in routes.bandwidths().iter().enumerate() {
                    let dead = row.iter().filter(|rate| **rate <= 0.0).count();
                    assert_eq!((dead, row[from]), (1, 0.0));
                }
            }
        }
    }
}
