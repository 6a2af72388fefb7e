//! Which plots an experiment's report makes.

use super::emulated::{
    BEST, DEFAULT, ONE, ONE_ENCODER, PLAIN, RANDOM, SLOWER, SMALL, THREE, TWO, TWO_ENCODERS,
    UNCODED,
};
use super::report::{GossipReport, Trial};
use super::{file_name, simulated};
use crate::draw::{Line, Plot, Ratios, Shape, Style};

/// The plots of a report that have anything to show.
pub(crate) fn of(report: &GossipReport) -> Vec<Plot> {
    let plots = match report.name.as_str() {
        "rounds" => rounds(report),
        "blocks" => blocks(report),
        "compare" => compare(report),
        "objects" => objects(report),
        _ => Vec::new(),
    };
    plots.into_iter().filter(Plot::shows_something).collect()
}

fn lines(
    name: &str,
    title: &str,
    [x, y]: [&'static str; 2],
    ratios: bool,
    lines: Vec<Line>,
) -> Plot {
    let lines = lines.into_iter().filter(|line| !line.points.is_empty());
    Plot {
        name: file_name(name),
        title: title.to_owned(),
        x,
        y,
        shape: Shape::Lines {
            lines: lines.collect(),
            ratios: Ratios::across(ratios),
        },
    }
}

/// A series as a line over what tells its trials apart.
fn line(
    report: &GossipReport,
    series: &str,
    label: impl Into<String>,
    value: impl Fn(&Trial) -> Option<f64>,
) -> Line {
    let point = |trial: &Trial| Some((trial.at?, value(trial)?));
    let mut points: Vec<(f64, f64)> = report.of(series).filter_map(point).collect();
    points.sort_by(|a, b| a.0.total_cmp(&b.0));
    Line {
        label: label.into(),
        points,
        style: Style::Points,
    }
}

fn bound(mut line: Line) -> Line {
    line.style = Style::Bound;
    line
}

fn rounds(report: &GossipReport) -> Vec<Plot> {
    let beyond = |name: &'static str| {
        move |trial: &Trial| Some(trial.value(name)? - trial.value("bound_rounds")?)
    };
    let allowed = |_: &Trial| Some(f64::from(outpour_sim::rounds::SLACK_ROUNDS));
    let mut all = vec![lines(
        "rounds",
        "Rounds beyond k + log2 n, k = 200",
        ["nodes", "rounds"],
        true,
        vec![
            line(
                report,
                simulated::CODED,
                "coded, mean",
                beyond("mean_rounds"),
            ),
            line(
                report,
                simulated::CODED,
                "coded, 95 % of the seeds",
                beyond("p95_rounds"),
            ),
            line(
                report,
                simulated::RANDOM,
                "random block, mean",
                beyond("mean_rounds"),
            ),
            bound(line(report, simulated::CODED, "allowed to coded", allowed)),
        ],
    )];
    for nodes in [100, 300] {
        let saved = |name: &str| {
            let series = format!("{nodes} nodes, {name}");
            line(report, &series, name, |trial| trial.value("saving_rounds"))
        };
        let [_, others @ ..] = simulated::ORDERS.map(|(name, _)| name);
        let mut saving: Vec<Line> = others.map(saved).into_iter().collect();
        let hindsight = format!("{nodes} nodes, hindsight");
        let promised = |trial: &Trial| trial.value("saving_bound_rounds");
        saving.push(bound(line(
            report,
            &hindsight,
            "at least, by Corollary 3, with hindsight",
            promised,
        )));
        all.push(lines(
            &format!("rounds-saved-{nodes}"),
            &format!("Rounds saved against sequential batches, {nodes} nodes"),
            ["batches of 40 blocks", "rounds"],
            false,
            saving,
        ));
    }
    all
}

fn blocks(report: &GossipReport) -> Vec<Plot> {
    let finish = |series| line(report, series, series, |trial| trial.finish_s);
    let mut all = vec![lines(
        "blocks",
        "Finish time of 100 MB over the number of blocks",
        ["blocks coded together; of random block: all", "seconds"],
        true,
        [ONE_ENCODER, TWO_ENCODERS, SMALL, SLOWER, UNCODED]
            .map(finish)
            .into_iter()
            .collect(),
    )];
    let encode = |series| {
        let label = format!("encode, {series}");
        line(report, series, label, |trial| {
            Some(trial.value("encode_s_per_packet")? * 1e3)
        })
    };
    // The last node gets as many packets as there are blocks in all.
    let transfer = |series| {
        let label = format!("transfer, {series}");
        line(report, series, label, |trial| {
            Some(trial.finish_s? / trial.at? * 1e3)
        })
    };
    all.push(lines(
        "blocks-times",
        "Encode and transfer time of a block, the file being one batch",
        ["blocks", "milliseconds"],
        true,
        vec![
            encode(ONE_ENCODER),
            encode(TWO_ENCODERS),
            encode(SLOWER),
            transfer(ONE_ENCODER),
            transfer(SLOWER),
        ],
    ));
    all
}

fn compare(report: &GossipReport) -> Vec<Plot> {
    let plain = report.one(PLAIN).and_then(|trial| trial.finish_s);
    let bars = report.trials.iter().filter_map(|trial| {
        let ratio = trial.finish_s? / plain?;
        Some((trial.series.clone(), ratio))
    });
    let bars = Plot {
        name: file_name("compare"),
        title: "Time over that of one plain TCP copy".to_owned(),
        x: "time / plain copy",
        y: "",
        shape: Shape::Bars(bars.collect()),
    };
    let busy = |name: &'static str| {
        move |series: &str| Line {
            label: series.to_owned(),
            points: curve(report.one(series), name, 100.0),
            style: Style::Plain,
        }
    };
    let series = [ONE, TWO, THREE, DEFAULT, BEST, RANDOM];
    let title = |who: &str| format!("Processor use of {who}, percent of a core");
    let axes = ["seconds", "percent"];
    vec![
        bars,
        lines(
            "compare-receivers",
            &title("the busiest receiver"),
            axes,
            false,
            series.map(busy("busiest receiver")).into_iter().collect(),
        ),
        lines(
            "compare-source",
            &title("the source"),
            axes,
            false,
            series.map(busy("source")).into_iter().collect(),
        ),
    ]
}

fn curve(trial: Option<&Trial>, name: &str, factor: f64) -> Vec<(f64, f64)> {
    let points = trial.and_then(|trial| trial.curves.get(name));
    let points = points.map(Vec::as_slice).unwrap_or_default().iter();
    points.map(|(at, value)| (*at, value * factor)).collect()
}

/// A curve as it is: it changes when it changes, and not gradually before.
fn stairs(points: Vec<(f64, f64)>) -> Vec<(f64, f64)> {
    let mut all: Vec<(f64, f64)> = Vec::with_capacity(2 * points.len());
    for (at, value) in points {
        all.extend(all.last().map(|(_, before)| (at, *before)));
        all.push((at, value));
    }
    all
}

fn objects(report: &GossipReport) -> Vec<Plot> {
    let series = report.series();
    let finish = |series: &&str| line(report, series, *series, |trial| trial.finish_s);
    let mut all = vec![lines(
        "objects",
        "Finish time of two and three objects",
        ["objects of 16 blocks", "seconds"],
        false,
        series.iter().map(finish).collect(),
    )];
    let two = |series: &str| report.of(series).find(|trial| trial.at == Some(2.0));
    let finished = |series: &&str| {
        [
            ("finished half", "one of the objects"),
            ("finished", "both"),
        ]
        .map(|(name, what)| Line {
            label: format!("{series}, {what}"),
            points: stairs(curve(two(series), name, 1.0)),
            style: Style::Plain,
        })
    };
    all.push(lines(
        "objects-finished",
        "Nodes that have finished one of two objects, and both",
        ["seconds", "nodes"],
        false,
        ["overlap-1", "overlap-2"]
            .iter()
            .flat_map(finished)
            .collect(),
    ));
    for series in ["overlap-1", "overlap-2"] {
        let Some(trial) = two(series) else { continue };
        let each = trial
            .curves
            .keys()
            .filter(|name| name.starts_with("received by "));
        let each = each.enumerate().map(|(index, name)| Line {
            label: if index == 0 {
                "each node".to_owned()
            } else {
                String::new()
            },
            points: curve(Some(trial), name, 1e-6),
            style: Style::Faint,
        });
        all.push(lines(
            &format!("objects-{series}"),
            &format!("What each node has received, {series}, two objects"),
            ["seconds", "MB"],
            false,
            each.collect(),
        ));
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stairs_stay_until_they_rise() {
        let stairs = stairs(vec![(0.0, 0.0), (2.0, 5.0)]);
        assert_eq!(stairs, [(0.0, 0.0), (2.0, 0.0), (2.0, 5.0)]);
    }
}
