//! What an experiment found, as its JSON file holds it: plots and page follow from it alone.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::io;
use std::path::Path;

use serde::{Deserialize, Serialize};
use serde_json::ser::{CompactFormatter, Formatter, PrettyFormatter};

use crate::ExperimentError;
use outpour_sim::shuffle::confidence;

use crate::draw::{self, Line, Plot, Ratios, Shape, Style};

/// At how many places a distribution is noted.
pub(crate) const QUANTILES: usize = 50;

/// In how many points a curve is noted, at most.
const CURVE_POINTS_MAX: usize = 200;

/// How deep a report is on lines of its own; what is within is on one, as a figure or a curve.
const LINES_DEPTH: usize = 4;

/// What of an experiment is shown, and beside what.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Form {
    /// The bench that it belongs to.
    pub(crate) bench: &'static str,
    /// Its name on the command line.
    pub(crate) name: &'static str,
    /// One line for people.
    pub(crate) about: &'static str,
    /// What is set up.
    pub(crate) setup: &'static str,
    /// Where the paper has it, and what it finds there, in our words.
    pub(crate) paper: (&'static str, &'static str),
    /// Why ours is another, where it is.
    pub(crate) why: &'static str,
    /// What series are.
    pub(crate) series: &'static str,
    /// The figures that the table shows, and what the axis is.
    pub(crate) columns: &'static [&'static str],
    pub(crate) axis: &'static str,
    pub(crate) plots: &'static [PlotOf],
}

impl Form {
    /// What the files of the experiment are called.
    pub(crate) fn file(&self) -> String {
        format!("{}-{}", self.bench, self.name)
    }
}

/// Writes a report and its plots into a directory, which is made if it is missing.
///
/// # Errors
/// If they cannot be written.
pub(crate) fn save(
    report: &SweepReport,
    form: &Form,
    output: &Path,
) -> Result<(), ExperimentError> {
    std::fs::create_dir_all(output).map_err(|e| ExperimentError::file(output, &e))?;
    let text = json(report).map_err(|e| ExperimentError::file(output, &e))?;
    let write = |name: String, text: &str| {
        let path = output.join(name);
        std::fs::write(&path, text).map_err(|e| ExperimentError::file(&path, &e))
    };
    write(format!("{}.json", form.file()), &text)?;
    for plot in report.plots(form) {
        write(format!("{}.svg", plot.name), &draw::draw(&plot))?;
    }
    Ok(())
}

/// The page of a bench, all of whose experiments are sweeps: what stands above, then a section for each. Reads the
/// reports in `input`; plots are linked relative to the page as `plots`.
///
/// # Errors
/// If there is no report at all, or one cannot be read.
pub(crate) fn page(
    head: &str,
    forms: impl IntoIterator<Item = Form>,
    input: &Path,
    plots: &str,
) -> Result<String, ExperimentError> {
    let mut sections = String::new();
    let mut machines: Vec<String> = Vec::new();
    let mut bench = "";
    for form in forms {
        bench = form.bench;
        let path = input.join(format!("{}.json", form.file()));
        if path.exists() {
            let report = SweepReport::read(&path)?;
            sections.push_str(&section(&form, &report, plots));
            if !machines.contains(&report.machine) {
                machines.push(report.machine);
            }
        } else {
            sections.push_str(&unmeasured(form.name, form.about, form.paper, ""));
        }
    }
    if machines.is_empty() {
        let why = format!("no report here; make them with `outpour-lab bench {bench} all`");
        return Err(ExperimentError::file(input, &why));
    }
    let machines = machines.join("; ");
    let page = format!("{head}\nMachine: {machines}.\n\n{sections}");
    Ok(page.trim_end().to_owned() + "\n")
}

/// A report as JSON that can be read and compared line by line, without one for each number of a curve.
fn json(report: &SweepReport) -> Result<String, serde_json::Error> {
    let mut bytes = Vec::new();
    let lines = Lines {
        pretty: PrettyFormatter::new(),
        depth: 0,
    };
    report.serialize(&mut serde_json::Serializer::with_formatter(
        &mut bytes, lines,
    ))?;
    bytes.push(b'\n');
    String::from_utf8(bytes).map_err(serde::ser::Error::custom)
}

/// Writes what is nested deep in one line, and the rest as usual.
struct Lines {
    pretty: PrettyFormatter<'static>,
    depth: usize,
}

impl Lines {
    const fn is_deep(&self) -> bool {
        self.depth > LINES_DEPTH
    }
}

/// Each as usual, or without line breaks and indentation.
macro_rules! as_usual_or_in_a_line {
    ($($name:ident($($first:ident: bool)?), $by:expr;)*) => {$(
        fn $name<W: ?Sized + io::Write>(&mut self, to: &mut W $(, $first: bool)?) -> io::Result<()> {
            let opens: i8 = $by;
            self.depth += usize::from(opens > 0);
            let done = match self.is_deep() {
                true => CompactFormatter.$name(to $(, $first)?),
                false => self.pretty.$name(to $(, $first)?),
            };
            self.depth -= usize::from(opens < 0);
            done
        }
    )*};
}

impl Formatter for Lines {
    as_usual_or_in_a_line! {
        begin_array(), 1;
        end_array(), -1;
        begin_array_value(is_first: bool), 0;
        end_array_value(), 0;
        begin_object(), 1;
        end_object(), -1;
        begin_object_key(is_first: bool), 0;
        begin_object_value(), 0;
        end_object_value(), 0;
    }
}

/// The part of a page about an experiment.
pub(crate) fn section(form: &Form, report: &SweepReport, plots_at: &str) -> String {
    let Form {
        bench,
        name,
        about,
        setup,
        paper: (place, says),
        why,
        ..
    } = form;
    let mut text = format!(
        "## {name}: {about}\n\nPaper ({place}): {says}\n\nHere: {setup}\n\nWhy it differs: {why}\n\n"
    );
    for plot in report.plots(form) {
        let _ = writeln!(text, "![{}]({plots_at}/{}.svg)\n", plot.title, plot.name);
    }
    text.push_str(&report.table(form));
    for row in report.rows.iter().filter(|row| row.error.is_some()) {
        let _ = writeln!(text, "\n- failed: {}", row.in_words());
    }
    let short = match report.short {
        true => " --short",
        false => "",
    };
    let warned = match report.short {
        true => " **Made short: these figures prove nothing.**",
        false => "",
    };
    let _ = writeln!(
        text,
        "\n`outpour-lab bench {bench} {name} --seed {}{}{short}`, {}, {:.0} s.{warned}\n",
        report.seed, report.options, report.date, report.wall_s
    );
    text
}

/// The part of a page about an experiment that was not run.
pub(crate) fn unmeasured(
    name: &str,
    about: &str,
    (place, says): (&str, &str),
    why: &str,
) -> String {
    let why = if why.is_empty() {
        String::new()
    } else {
        format!(" {why}")
    };
    format!("## {name}: {about}\n\nPaper ({place}): {says}\n\nNot measured.{why}\n\n")
}

/// Values in order.
pub(crate) fn sorted(values: impl Iterator<Item = f64>) -> Vec<f64> {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    values
}

/// The value that so large a share of some sorted ones do not exceed.
pub(crate) fn quantile(sorted: &[f64], share: f64) -> f64 {
    let last = sorted.len().saturating_sub(1);
    let place = (share * last as f64).round() as usize;
    sorted.get(place.min(last)).copied().unwrap_or_default()
}

/// A distribution at equal steps: pairs of a value and the percentage that does not exceed it.
pub(crate) fn distribution(sorted: &[f64]) -> Vec<(f64, f64)> {
    let places = (0..=QUANTILES).map(|place| place as f64 / QUANTILES as f64);
    places
        .map(|share| (quantile(sorted, share), share * 100.0))
        .collect()
}

/// One experiment: systems in situations.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct SweepReport {
    /// Its name on the command line.
    pub name: String,
    /// What it is about.
    pub title: String,
    /// Whether it was made small to be quick; such figures prove nothing.
    pub short: bool,
    /// The first seed of what is random.
    pub seed: u64,
    /// Further options of the command, each with a space before it.
    #[serde(default)]
    pub options: String,
    /// When it was run.
    pub date: String,
    /// On what.
    pub machine: String,
    /// How long it took, in seconds.
    pub wall_s: f64,
    /// What was measured.
    pub rows: Vec<Row>,
}

/// One system in one situation.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Row {
    /// What it is compared as.
    pub series: String,
    /// Where it stands on the axis, if there is one.
    pub at: Option<f64>,
    /// What went wrong.
    pub error: Option<String>,
    /// Figures by name, with their unit in the name.
    pub figures: BTreeMap<String, Figure>,
    /// Distributions over servers: pairs of a value and the percentage that does not exceed it.
    pub curves: BTreeMap<String, Vec<(f64, f64)>>,
}

/// A figure over several seeds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Figure {
    /// Of all runs.
    pub mean: f64,
    /// The least.
    pub low: f64,
    /// The most.
    pub high: f64,
    /// How many runs there were.
    pub runs: u32,
    /// How far the mean may be from that of all seeds there are, with a probability of 95 %.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ci95: Option<f64>,
}

/// What the plot of an experiment shows.
#[derive(Clone, Copy, Debug)]
pub(crate) enum PlotOf {
    /// A figure over what is on the axis, a line for each series.
    Sweep(&'static str, &'static str),
    /// The same with equal ratios on both axes, for figures that are hundreds of times each other.
    Ratios(&'static str, &'static str),
    /// The same with equal steps on the axes.
    Series(&'static str, &'static str),
    /// A distribution over servers, a line for each series.
    Distribution(&'static str, &'static str),
    /// What happened over time, a line for each series; perhaps also a curve of the first, with its
    /// label. Names of a curve, and of the axes.
    Course(
        &'static str,
        &'static str,
        &'static str,
        Option<(&'static str, &'static str)>,
    ),
    /// A distribution of anything else, on an axis of equal steps or of equal ratios.
    Values {
        /// The name of the curves.
        curve: &'static str,
        /// What it is a percentage of.
        of: &'static str,
        /// What stands on the axis.
        x: &'static str,
        ratios: bool,
    },
    /// A figure for each row.
    Bars(&'static str, &'static str),
}

impl PlotOf {
    /// Whether it draws curves of that name.
    pub(crate) fn shows(&self, curve: &str) -> bool {
        match self {
            Self::Sweep(..) | Self::Ratios(..) | Self::Series(..) | Self::Bars(..) => false,
            Self::Distribution(name, _) | Self::Values { curve: name, .. } => *name == curve,
            Self::Course(name, _, _, besides) => {
                *name == curve || besides.is_some_and(|(name, _)| name == curve)
            }
        }
    }
}

/// A curve in no more points than a plot can show apart: the least and the largest of each piece of it, so that
/// a sawtooth keeps its height, with six digits each.
pub(crate) fn thinned(points: &[(f64, f64)]) -> Vec<(f64, f64)> {
    let piece = points.len().div_ceil(CURVE_POINTS_MAX / 2);
    let digits = |value: f64| format!("{value:.5e}").parse().unwrap_or(value);
    let rounded = |point: &(f64, f64)| (digits(point.0), digits(point.1));
    if points.len() <= CURVE_POINTS_MAX {
        return points.iter().map(rounded).collect();
    }
    let mut kept = Vec::with_capacity(CURVE_POINTS_MAX);
    for piece in points.chunks(piece) {
        let places = 0..piece.len();
        let value = |place: &usize| piece[*place].1;
        let least = places.clone().min_by(|a, b| value(a).total_cmp(&value(b)));
        let most = places.max_by(|a, b| value(a).total_cmp(&value(b)));
        let mut ends = [least, most].map(Option::unwrap_or_default);
        ends.sort_unstable();
        kept.push(rounded(&piece[ends[0]]));
        if ends[0] != ends[1] {
            kept.push(rounded(&piece[ends[1]]));
        }
    }
    kept
}

impl Figure {
    pub(crate) fn of(values: impl Iterator<Item = f64>) -> Self {
        let values: Vec<f64> = values.collect();
        let mut figure = Self {
            mean: 0.0,
            low: f64::INFINITY,
            high: f64::NEG_INFINITY,
            runs: 0,
            ci95: confidence(&values),
        };
        for value in values {
            figure.runs += 1;
            figure.mean += (value - figure.mean) / f64::from(figure.runs);
            figure.low = figure.low.min(value);
            figure.high = figure.high.max(value);
        }
        figure
    }

    /// The mean and how far it may be off, and the range, if there is one.
    pub(crate) fn in_words(&self) -> String {
        let shown = |value: f64| match value {
            value if value.abs() >= 100.0 => format!("{value:.0}"),
            value if value.abs() >= 1.0 => format!("{value:.2}"),
            value => format!("{value:.3}"),
        };
        match self.runs {
            0 => "-".to_owned(),
            1 => shown(self.mean),
            _ => {
                let within = self.ci95.map(|it| format!(" +- {}", shown(it)));
                format!(
                    "{}{} ({} to {})",
                    shown(self.mean),
                    within.unwrap_or_default(),
                    shown(self.low),
                    shown(self.high)
                )
            }
        }
    }
}

impl Row {
    pub(crate) fn new(series: &str, at: Option<f64>) -> Self {
        Self {
            series: series.to_owned(),
            at,
            ..Self::default()
        }
    }

    /// The mean of a figure.
    pub fn mean(&self, name: &str) -> Option<f64> {
        self.figures.get(name).map(|figure| figure.mean)
    }

    /// A row that failed.
    pub(crate) fn failed(series: &str, at: Option<f64>, error: String) -> Self {
        Self {
            error: Some(error),
            ..Self::new(series, at)
        }
    }

    fn label(&self) -> String {
        match self.at {
            Some(at) => format!("{} {at}", self.series),
            None => self.series.clone(),
        }
    }

    /// The row in a line, for people.
    pub(crate) fn in_words(&self) -> String {
        let found = match (&self.error, self.figures.get("ratio")) {
            (Some(error), _) => error.clone(),
            (None, Some(ratio)) => format!("{} x the limit", ratio.in_words()),
            (None, None) => "measured".to_owned(),
        };
        format!("{}: {found}", self.label())
    }
}

impl SweepReport {
    /// Reads a report.
    ///
    /// # Errors
    /// If there is none, or it is not one.
    pub fn read(path: &Path) -> Result<Self, ExperimentError> {
        let text = std::fs::read_to_string(path).map_err(|e| ExperimentError::file(path, &e))?;
        serde_json::from_str(&text).map_err(|e| ExperimentError::file(path, &e))
    }

    /// Whether every row came to an end.
    pub fn is_complete(&self) -> bool {
        self.rows.iter().all(|row| row.error.is_none())
    }

    /// The rows of a series.
    pub fn of<'a>(&'a self, series: &'a str) -> impl Iterator<Item = &'a Row> {
        self.rows.iter().filter(move |row| row.series == series)
    }

    /// The series in the order in which they first appear.
    pub fn series(&self) -> Vec<&str> {
        let mut all: Vec<&str> = Vec::new();
        for row in &self.rows {
            if !all.contains(&row.series.as_str()) {
                all.push(&row.series);
            }
        }
        all
    }

    /// The table of an experiment in Markdown.
    pub(crate) fn table(&self, form: &Form) -> String {
        let axis = self.rows.iter().any(|row| row.at.is_some());
        let mut head = vec![form.series];
        head.extend(axis.then_some(form.axis));
        head.extend(form.columns);
        let mut text = format!("| {} |\n|{}\n", head.join(" | "), "---|".repeat(head.len()));
        for row in &self.rows {
            let mut cells = vec![row.series.clone()];
            let at = row.at.map_or_else(|| "-".to_owned(), |at| at.to_string());
            cells.extend(axis.then_some(at));
            let figure = |name: &&str| match (&row.error, row.figures.get(*name)) {
                (Some(_), _) => "failed".to_owned(),
                (None, Some(figure)) => figure.in_words(),
                (None, None) => "-".to_owned(),
            };
            cells.extend(form.columns.iter().map(figure));
            let _ = writeln!(text, "| {} |", cells.join(" | "));
        }
        text
    }

    /// The table, for a terminal.
    pub(crate) fn for_people(&self, form: &Form) -> String {
        let mut text = format!("{}: {}\n\n{}", self.name, self.title, self.table(form));
        for row in self.rows.iter().filter(|row| row.error.is_some()) {
            let _ = writeln!(text, "{}", row.in_words());
        }
        let _ = write!(text, "\n{:.0} s", self.wall_s);
        text
    }

    /// The plots of an experiment that show something.
    pub(crate) fn plots(&self, form: &Form) -> Vec<Plot> {
        let all = form.plots.iter().map(|of| self.plot(form, *of));
        all.filter(Plot::shows_something).collect()
    }

    fn plot(&self, form: &Form, of: PlotOf) -> Plot {
        let lines = |points: &dyn Fn(&str) -> Vec<(f64, f64)>, style, ratios| Shape::Lines {
            lines: self
                .series()
                .into_iter()
                .map(|series| Line {
                    label: series.to_owned(),
                    points: points(series),
                    style,
                })
                // What stands for all places has none of its own.
                .filter(|line| !line.points.is_empty())
                .collect(),
            ratios,
        };
        let sweep = |series: &str, figure: &str| {
            let rows = self.rows.iter().filter(|row| row.series == series);
            rows.filter_map(|row| Some((row.at?, row.mean(figure)?)))
                .collect()
        };
        let curve = |series: &str, name: &str| {
            let mut rows = self.rows.iter().filter(|row| row.series == series);
            let curve = rows.find_map(|row| row.curves.get(name));
            let curve = curve.map(Vec::as_slice).unwrap_or_default();
            // The axis begins at zero, or a small difference would look large.
            let first = curve.first().map(|(value, _)| [(0.0, 0.0), (*value, 0.0)]);
            let first = first.into_iter().flatten();
            first.chain(curve.iter().copied()).collect()
        };
        let (part, x, y, shape) = match of {
            PlotOf::Sweep(figure, y) => {
                let shape = lines(
                    &|series| sweep(series, figure),
                    Style::Points,
                    Ratios::Across,
                );
                (figure, form.axis, y, shape)
            }
            PlotOf::Ratios(figure, y) => {
                let shape = lines(&|series| sweep(series, figure), Style::Points, Ratios::Both);
                (figure, form.axis, y, shape)
            }
            PlotOf::Series(figure, y) => {
                let shape = lines(
                    &|series| sweep(series, figure),
                    Style::Points,
                    Ratios::Neither,
                );
                (figure, form.axis, y, shape)
            }
            PlotOf::Distribution(name, x) => {
                let shape = lines(&|series| curve(series, name), Style::Plain, Ratios::Neither);
                (name, x, "percent of the servers", shape)
            }
            PlotOf::Course(name, x, y, besides) => {
                let course = |row: &Row, label: &str, name: &str| Line {
                    label: label.to_owned(),
                    points: row.curves.get(name).cloned().unwrap_or_default(),
                    style: Style::Plain,
                };
                let rows = self.rows.iter();
                let mut all: Vec<Line> = rows.map(|row| course(row, &row.series, name)).collect();
                let first = self.rows.first().zip(besides);
                all.extend(first.map(|(row, (name, label))| course(row, label, name)));
                // Not every row has this curve.
                all.retain(|line| !line.points.is_empty());
                let (lines, ratios) = (all, Ratios::Neither);
                (name, x, y, Shape::Lines { lines, ratios })
            }
            PlotOf::Values {
                curve,
                of,
                x,
                ratios,
            } => {
                let lines = self.rows.iter().map(|row| {
                    let mut points = row.curves.get(curve).cloned().unwrap_or_default();
                    // What is quoted has a few points, which are to be seen.
                    let style = match points.len() > QUANTILES {
                        true => Style::Plain,
                        false => Style::Points,
                    };
                    // An axis of equal steps begins at zero, or a small difference would look large.
                    let first = points.first().map(|(value, _)| *value);
                    if let Some(value) = first.filter(|_| style == Style::Plain && !ratios) {
                        points.splice(0..0, [(0.0, 0.0), (value, 0.0)]);
                    }
                    Line {
                        label: row.series.clone(),
                        points,
                        style,
                    }
                });
                // Some rows have no distribution of their own.
                let lines = lines.filter(|line| !line.points.is_empty()).collect();
                let ratios = Ratios::across(ratios);
                (curve, x, of, Shape::Lines { lines, ratios })
            }
            PlotOf::Bars(figure, x) => {
                let bars = self.rows.iter();
                let bars = bars.filter_map(|row| Some((row.label(), row.mean(figure)?)));
                (figure, x, "", Shape::Bars(bars.collect()))
            }
        };
        Plot {
            name: format!("{}-{}", form.file(), part.replace('_', "-")),
            title: self.title.clone(),
            x,
            y,
            shape,
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn a_thinned_curve_keeps_its_height() {
        let all: Vec<(f64, f64)> = (0..1234_u32)
            .map(|at| (f64::from(at) / 7.0, f64::from(at % 13)))
            .collect();
        let few = thinned(&all);
        assert!(few.len() <= CURVE_POINTS_MAX && few.len() > CURVE_POINTS_MAX / 2);
        assert!(few.is_sorted_by(|a, b| a.0 < b.0));
        for part in few.chunks(10) {
            let heights = || part.iter().map(|(_, y)| *y);
            assert!(heights().any(|it| it == 0.0) && heights().any(|it| it == 12.0));
        }
        assert_eq!(thinned(&few), few);
        assert_eq!(thinned(&all[..3])[1], (0.142857, 1.0));
        assert!(thinned(&[]).is_empty());
    }

    #[test]
    fn a_report_has_a_line_for_each_curve_and_is_read_again() {
        let points = (0..100).map(|at| (f64::from(at), 0.5));
        let mut row = Row::new("a \"name\"", Some(2.0));
        row.curves.insert("c".to_owned(), points.collect());
        let figure = Figure::of([1.0, 2.0].into_iter());
        row.figures.insert("f".to_owned(), figure);
        let report = SweepReport {
            rows: vec![row, Row::new("b", None)],
            ..SweepReport::default()
        };
        let text = json(&report).unwrap();
        assert!(text.lines().count() < 40, "{text}");
        let curve = text
            .lines()
            .find(|line| line.contains("\"c\": [[0.0,0.5],"));
        assert!(
            curve.is_some_and(|line| line.starts_with("        ")),
            "{text}"
        );
        assert_eq!(
            serde_json::from_str::<SweepReport>(&text).unwrap().rows,
            report.rows
        );
    }
}
