//! How long the controller's loop takes: from the reports of agents over its decision to the orders.
//!
//! The ways are those of a network with measured distances, and the times of the controller are
//! measured on this machine, cycle by cycle, while a job is simulated. The rest is put together here:
//! at a moment all agents report; the controller takes note of each report as it comes, decides when it
//! has the last, and sends each agent its order. Messages take the time of their way: they are a few
//! packets.

use std::fmt::Write;

use outpour_core::network::{ClusterId, Network};
use outpour_sim::replicate::{ControlTime, System, replicate};

use super::cases::{config, names, sites, to_all};
use super::{BenchReplicateOptions, Entry, Rows, drawn, quantile, sorted};
use crate::sweep::{Figure, PlotOf, Row, distribution};
use crate::{ExperimentError, machine};

/// What the paper says of its loops: so many percent of them take less than so many milliseconds.
const PAPER: (f64, f64) = (200.0, 80.0);
/// Servers in each site of the backbone, and what is moved: 3 x 10^5 blocks, as many as the paper says
/// there are at a time.
const SERVERS: u32 = 40;
const GB: f64 = 600.0;

pub(super) const LOOPS: Entry = Entry {
    name: "figure11c",
    about: "from an agent's report over the decision to its order",
    setup: "the backbone of `figure4` with the delays of its routes, 40 servers at 20 MB/s in each of its \
            18 sites; one job of 3 x 10^5 blocks of 2 MB to all of them, until it is complete. The ways are \
            the network's, what the controller does is measured, on one core, nothing beside it: \
            `heeding_ms` is for taking note of all reports of a cycle, `deciding_ms` for its decision, each \
            the mean over cycles with the least and the most. All agents report at the same moment, and the \
            controller waits for the last. `in_time_percent` of the orders are there when their cycle \
            begins: decisions are made a tenth of a cycle before, 300 ms. Once with the controller in the \
            site that is nearest to all, once in the one that is farthest.",
    paper: (
        "§6.3.1, figure 11c",
        "Over 80 % of the loops take less than 200 ms. The ways alone take 25 ms on average.",
    ),
    why: "From the site that is nearest to all, it is as the paper says, though the ways of this backbone, which \
          spans three continents, are longer, and each report waits for that of the farthest site; the paper \
          does not say what it waited for. From the farthest site, the ways are most of the loop. \
          Connections are open and without loss here, and agents answer at once.",
    columns: &[
        "below_200_ms_percent",
        "median_ms",
        "p90_ms",
        "way_ms",
        "heeding_ms",
        "deciding_ms",
        "in_time_percent",
    ],
    axis: "",
    plots: &[PlotOf::Values {
        curve: "loops",
        of: "percent of the loops",
        x: "ms, at most",
        ratios: false,
    }],
    timed: true,
    rows: Rows::Drawn(rows),
};

fn rows(options: &BenchReplicateOptions) -> Result<Vec<Row>, ExperimentError> {
    let delays = drawn::backbone()?.delays_ms();
    let (servers, gb) = if options.short {
        (2, 8.0)
    } else {
        (SERVERS, GB)
    };
    let text = sites(delays.len(), servers, 20) + &joined(&delays);
    let jobs = to_all(delays.len(), gb, "2 MB");
    let config = config(&text, &jobs, System::Central)?;
    let (network, cycle_ms) = (
        config.network.clone(),
        config.controller.cycle.as_secs_f64() * 1e3,
    );
    let begun = machine::now();
    let report = replicate(config, &mut || begun.elapsed());
    let report = report.map_err(|error| ExperimentError::Setup(error.to_string()))?;
    let mut paper = Row::new("paper", None);
    let figure = Figure::of(std::iter::once(PAPER.1));
    paper
        .figures
        .insert("below_200_ms_percent".to_owned(), figure);
    paper.curves.insert("loops".to_owned(), vec![PAPER]);
    let mut places: Vec<(f64, Vec<f64>)> = (0..delays.len())
        .map(|place| ways_ms(&network, ClusterId(place as u32)))
        .map(|ways| (ways.iter().sum::<f64>() / ways.len() as f64, ways))
        .collect();
    places.sort_by(|a, b| a.0.total_cmp(&b.0));
    let ends = ["nearest", "farthest"]
        .into_iter()
        .zip([places.first(), places.last()]);
    let mut rows = vec![paper];
    for (series, place) in ends {
        let (_, ways) = place.ok_or_else(|| ExperimentError::Setup("no sites".to_owned()))?;
        rows.push(row(series, ways, &report.control, cycle_ms));
    }
    Ok(rows)
}

/// Links between all sites that have nothing but a delay.
fn joined(delays_ms: &[Vec<f64>]) -> String {
    let mut text = String::new();
    for (from, row) in names(delays_ms.len()).zip(delays_ms) {
        for (to, delay) in names(row.len()).zip(row).filter(|(to, _)| *to != from) {
            let _ = write!(
                text,
                "[[link]]\nfrom = \"{from}\"\nto = \"{to}\"\ndelay = \"{delay:.3} ms\"\n"
            );
        }
    }
    text
}

/// How long a message takes between a site and each.
fn ways_ms(network: &Network, from: ClusterId) -> Vec<f64> {
    let all = (0..network.clusters().len() as u32).map(ClusterId);
    let way = |to: ClusterId| match to == from {
        true => 0.0,
        false => network.link(from, to).delay.as_secs_f64() * 1e3,
    };
    all.map(way).collect()
}

/// The loops with a controller from which the way to the agents of each site takes so long.
fn row(series: &str, ways_ms: &[f64], control: &[ControlTime], cycle_ms: f64) -> Row {
    let each = control.iter().map(|cycle| loops_ms(ways_ms, cycle));
    let loops = sorted(each.flatten());
    let orders = control.iter().flat_map(|cycle| {
        let decided = cycle.deciding_s * 1e3;
        ways_ms.iter().map(move |way| decided + way)
    });
    let orders = sorted(orders);
    let mut row = Row::new(series, None);
    let below = |values: &[f64], most: f64| {
        let count = values.iter().filter(|value| **value < most).count();
        100.0 * count as f64 / values.len().max(1) as f64
    };
    let one = |value: f64| Figure::of(std::iter::once(value));
    let times = |of: fn(&ControlTime) -> f64| Figure::of(control.iter().map(|it| of(it) * 1e3));
    let mean = ways_ms.iter().sum::<f64>() / ways_ms.len().max(1) as f64;
    row.figures.extend(
        [
            ("below_200_ms_percent", one(below(&loops, PAPER.0))),
            ("median_ms", one(quantile(&loops, 0.5))),
            ("p90_ms", one(quantile(&loops, 0.9))),
            ("way_ms", one(mean)),
            ("heeding_ms", times(|it| it.heeding_s)),
            ("deciding_ms", times(|it| it.deciding_s)),
            ("in_time_percent", one(below(&orders, cycle_ms / 10.0))),
        ]
        .map(|(name, figure)| (name.to_owned(), figure)),
    );
    row.curves.insert("loops".to_owned(), distribution(&loops));
    row
}

/// How long the loop takes for the agents of each site in one cycle.
fn loops_ms(ways_ms: &[f64], cycle: &ControlTime) -> Vec<f64> {
    // All sites have as many agents, and a report costs as much as any other.
    let heeding = cycle.heeding_s * 1e3 / ways_ms.len().max(1) as f64;
    let mut at = 0.0;
    for arrival in sorted(ways_ms.iter().copied()) {
        at = f64::max(at, arrival) + heeding;
    }
    let decided = at + cycle.deciding_s * 1e3;
    ways_ms.iter().map(|way| decided + way).collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn control(heeding_ms: f64, deciding_ms: f64) -> ControlTime {
        ControlTime {
            heeding_s: heeding_ms / 1e3,
            deciding_s: deciding_ms / 1e3,
        }
    }

    fn near(found: &[f64], expected: &[f64]) {
        let same = |(a, b): (&f64, &f64)| (a - b).abs() < 1e-9;
        let all = found.iter().zip(expected).all(same);
        assert!(found.len() == expected.len() && all, "{found:?}");
    }

    #[test]
    fn a_loop_waits_for_the_last_report() {
        // The last comes after 30 ms and takes 2 more; the decision is there after 42.
        let found = loops_ms(&[0.0, 30.0, 10.0], &control(6.0, 10.0));
        near(&found, &[42.0, 72.0, 52.0]);
        // Reports that come together are taken one after the other.
        let found = loops_ms(&[1.0, 1.0, 1.0, 1.0], &control(40.0, 5.0));
        near(&found, &[47.0; 4]);
    }

    #[test]
    fn shares_are_of_all_loops_and_orders() {
        let all = [control(0.0, 50.0), control(0.0, 350.0)];
        let row = row("x", &[0.0, 100.0], &all, 3000.0);
        let of = |name: &str| row.mean(name).unwrap();
        // 150 and 250 ms in the first cycle, 450 and 550 in the second.
        assert_eq!(of("below_200_ms_percent"), 25.0);
        assert_eq!(of("way_ms"), 50.0);
        assert_eq!(of("deciding_ms"), 200.0);
        // Orders are on their way for 50, 150, 350 and 450 ms from the decision's beginning on.
        assert_eq!(of("in_time_percent"), 50.0);
        assert!((row.curves["loops"].last().unwrap().0 - 550.0).abs() < 1e-9);
    }

    #[test]
    fn ways_are_those_of_the_backbone() {
        let options = BenchReplicateOptions {
            seed: 1,
            short: true,
            threads: 1,
            program: std::path::PathBuf::new(),
        };
        let rows = rows(&options).unwrap();
        let [paper, nearest, farthest] = &rows[..] else {
            panic!("{rows:?}");
        };
        assert_eq!(paper.mean("below_200_ms_percent"), Some(80.0));
        let of = |row: &Row, name: &str| row.mean(name).unwrap();
        assert!(of(nearest, "way_ms") + 10.0 < of(farthest, "way_ms"));
        for row in [nearest, farthest] {
            // There and back, and the last report comes from farther than the average.
            assert!(of(row, "median_ms") > 2.0 * of(row, "way_ms"), "{row:?}");
            assert!(of(row, "p90_ms") >= of(row, "median_ms"));
        }
    }
}
