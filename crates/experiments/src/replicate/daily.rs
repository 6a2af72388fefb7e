//! One application that has something to replicate every day [BDS §6.1.2, figure 9c].

use std::fmt::Write;

use outpour_sim::replicate::System;

use super::cases::{each, names, sites, to_all};
use super::{Case, Entry, Rows};
use crate::ExperimentError;
use crate::dice::Dice;
use crate::sweep::{Figure, PlotOf, Row};

/// Days, and sites with so many servers each.
const DAYS: u32 = 14;
const SITES: usize = 11;
const SERVERS: u32 = 10;
/// What a day's data have at least and at most, drawn evenly in its logarithm, GB.
const GB: (f64, f64) = (50.0, 500.0);
/// What a link between two sites carries, MB/s, and which share of it other traffic leaves at least.
const LINK: f64 = 40.0;
const LEFT_MIN: f64 = 0.1;
/// What a system's times are over the controller's.
const OVER: &str = "over_central";
const MEAN: &str = "server_mean_s";

pub(super) const DAILY: Entry = Entry {
    name: "figure9c",
    about: "mean time of a server, day by day",
    setup: "one application that brings data from one site to ten others every day, 10 servers each at 20 \
            MB/s, blocks of 2 MB. For each of 14 days its size is drawn, from 50 to 500 GB, evenly in its \
            logarithm, and what other traffic leaves of each link between two sites, from a tenth of 40 MB/s \
            to all; both systems get the same. `over_central` is the mean time of a server over that under \
            the controller; in the last line over all days, with the least and the most of a day.",
    paper: (
        "§6.1.2, figure 9c",
        "In one application, chosen at random, Gingko takes 4 times as long as the controller, consistently.",
    ),
    why: "The paper ran both in turn on its own network, beside whatever else used it, and does not say how \
          much data the application has. Here Gingko's receivers ask for pieces in random order and share \
          links without loss, as for `servers`, where no link is slow; what is left is what partial views \
          cost.",
    columns: &[MEAN, "server_deviation_s", OVER],
    axis: "day",
    plots: &[PlotOf::Series(MEAN, "seconds, mean over servers")],
    timed: false,
    rows: Rows::Summed(cases, over_central),
};

fn cases(short: bool) -> Result<Vec<Case>, ExperimentError> {
    let days = if short { 2 } else { DAYS };
    let mut cases = Vec::new();
    for day in 1..=days {
        let mut dice = Dice::new(u64::from(day));
        let (least, most) = GB;
        let gb = least * (most / least).powf(dice.share());
        let gb = if short { gb / 25.0 } else { gb };
        let network = sites(SITES, if short { 2 } else { SERVERS }, 20) + &links(&mut dice);
        let jobs = to_all(SITES, gb.round(), "2 MB");
        let systems = [System::Central, System::Gingko];
        cases.extend(each(&network, &jobs, Some(f64::from(day)), &systems)?);
    }
    Ok(cases)
}

/// What other traffic leaves of the links of a day.
fn links(dice: &mut Dice) -> String {
    let mut text = String::new();
    for from in names(SITES) {
        for to in names(SITES).filter(|to| *to != from) {
            let rate = LINK * (LEFT_MIN + (1.0 - LEFT_MIN) * dice.share());
            let _ = write!(
                text,
                "[[link]]\nfrom = \"{from}\"\nto = \"{to}\"\nrate = \"{rate:.3} MB/s\"\n"
            );
        }
    }
    text
}

/// Notes for each row of another system how long it takes over the controller that day, and adds a row
/// for all days.
fn over_central(rows: &mut Vec<Row>) {
    let central: Vec<(Option<f64>, f64)> = rows
        .iter()
        .filter(|row| row.series == System::Central.name())
        .filter_map(|row| Some((row.at, row.mean(MEAN)?)))
        .collect();
    let mut all = Vec::new();
    for row in rows
        .iter_mut()
        .filter(|row| row.series != System::Central.name())
    {
        let same = central.iter().find(|(at, _)| *at == row.at);
        let (Some((_, least)), Some(mean)) = (same, row.figures.get(MEAN).copied()) else {
            continue;
        };
        let over = Figure {
            mean: mean.mean / least,
            low: mean.low / least,
            high: mean.high / least,
            ci95: mean.ci95.map(|within| within / least),
            ..mean
        };
        all.push(over.mean);
        row.figures.insert(OVER.to_owned(), over);
    }
    if !all.is_empty() {
        let mut row = Row::new("gingko, all days", None);
        let over = Figure::of(all.into_iter());
        row.figures.insert(OVER.to_owned(), over);
        rows.push(row);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::super::BenchReplicateOptions;
    use super::*;

    #[test]
    fn days_differ_and_systems_get_the_same() {
        let cases = cases(false).unwrap();
        assert_eq!(cases.len(), 2 * DAYS as usize);
        for day in cases.chunks(2) {
            let [central, gingko] = day else {
                panic!("two systems a day");
            };
            assert_eq!(central.at, gingko.at);
            assert_eq!(central.config.jobs, gingko.config.jobs);
            assert_eq!(central.config.network, gingko.config.network);
        }
        let sizes = cases.iter().step_by(2).map(|it| it.config.jobs[0].job.size);
        let sizes: std::collections::BTreeSet<_> = sizes.collect();
        assert_eq!(sizes.len(), DAYS as usize);
        let (least, most) = (sizes.first().unwrap().0, sizes.last().unwrap().0);
        assert!(least >= 50_000_000_000 && most <= 500_000_000_000);
        assert!(most > 4 * least, "{least} to {most}");
    }

    #[test]
    fn every_day_is_compared_and_all_days_are() {
        let row = |series: &str, at, (mean, low, high, runs)| {
            let mut row = Row::new(series, Some(at));
            let figure = Figure {
                mean,
                low,
                high,
                runs,
                ci95: None,
            };
            row.figures.insert(MEAN.to_owned(), figure);
            row
        };
        let mut rows = vec![
            row("central", 1.0, (10.0, 10.0, 10.0, 1)),
            row("gingko", 1.0, (20.0, 15.0, 30.0, 3)),
            row("central", 2.0, (5.0, 5.0, 5.0, 1)),
            row("gingko", 2.0, (20.0, 20.0, 20.0, 3)),
        ];
        over_central(&mut rows);
        let over = |place: usize| rows[place].figures.get(OVER).copied();
        let figure = |mean, low, high, runs| Figure {
            mean,
            low,
            high,
            runs,
            ci95: None,
        };
        assert_eq!(over(0), None);
        assert_eq!(over(1), Some(figure(2.0, 1.5, 3.0, 3)));
        assert_eq!(over(3), Some(figure(4.0, 4.0, 4.0, 3)));
        // Two days say little: their mean may be off by Student's t of one degree of freedom.
        let days = Figure {
            ci95: Some(12.706),
            ..figure(3.0, 2.0, 4.0, 2)
        };
        assert_eq!(over(4), Some(days));
        assert_eq!((rows.len(), rows[4].at), (5, None));
    }

    #[test]
    fn the_controller_is_faster_every_day() {
        let options = BenchReplicateOptions {
            seed: 1,
            short: true,
            threads: 0,
            program: std::path::PathBuf::new(),
        };
        let rows = DAILY.run(&options, &|_| ()).unwrap().rows;
        let over = rows.last().and_then(|row| row.figures.get(OVER)).unwrap();
        assert_eq!(over.runs, 2);
        assert!(over.low > 1.0, "{rows:?}");
    }
}
