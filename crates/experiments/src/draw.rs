//! Plots as SVG: lines over a number, or bars beside their names.

use std::fmt::Write;

use crate::chart::{escaped, number, step};

const WIDTH: f64 = 720.0;
const HEIGHT: f64 = 430.0;
const LEFT: f64 = 64.0;
const RIGHT: f64 = 20.0;
const TOP: f64 = 40.0;
const BOTTOM: f64 = 56.0;
/// Height of a bar with the space below it, and of a line of the legend.
const BAR: f64 = 26.0;
const ROW: f64 = 17.0;
/// Where bars begin.
const NAMES: f64 = 250.0;
const INK: &str = "#222222";
const GRID: &str = "#dddddd";
const COLORS: [&str; 12] = [
    "#2f6db5", "#c0392b", "#2e9e5b", "#f2a93b", "#8a6fb3", "#5fb6c9", "#7a5230", "#9aa0a6",
    "#d1006c", "#a3b81f", "#1c2f5c", "#e58c8c",
];

/// A plot.
pub(crate) struct Plot {
    /// Of its file, without the ending.
    pub(crate) name: String,
    pub(crate) title: String,
    /// What stands on the axes.
    pub(crate) x: &'static str,
    pub(crate) y: &'static str,
    pub(crate) shape: Shape,
}

pub(crate) enum Shape {
    /// Lines over a number.
    Lines { lines: Vec<Line>, ratios: Ratios },
    /// Bars by name, and what their values are relative to.
    Bars(Vec<(String, f64)>),
}

/// Which axes have equal ratios instead of equal steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ratios {
    Neither,
    Across,
    Both,
}

impl Ratios {
    /// On the horizontal axis, or on none.
    pub(crate) const fn across(ratios: bool) -> Self {
        if ratios { Self::Across } else { Self::Neither }
    }
}

pub(crate) struct Line {
    pub(crate) label: String,
    pub(crate) points: Vec<(f64, f64)>,
    pub(crate) style: Style,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Style {
    /// Measured at these points.
    Points,
    /// Sampled so often that points would hide the line.
    Plain,
    /// Not measured: a bound.
    Bound,
    /// One of many of a kind, of which one label is enough.
    Faint,
}

impl Line {
    /// Whether it says something about single places, and not of all time.
    pub(crate) fn has_points(&self) -> bool {
        matches!(self.style, Style::Points | Style::Bound)
    }
}

impl Plot {
    pub(crate) fn shows_something(&self) -> bool {
        match &self.shape {
            Shape::Bars(bars) => !bars.is_empty(),
            Shape::Lines { lines, .. } => lines.iter().any(|line| !line.points.is_empty()),
        }
    }
}

/// Draws a plot.
pub(crate) fn draw(plot: &Plot) -> String {
    match &plot.shape {
        Shape::Lines { lines, ratios } => draw_lines(plot, lines, *ratios),
        Shape::Bars(bars) => draw_bars(plot, bars),
    }
}

fn open(title: &str, height: f64) -> String {
    format!(
        r##"<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH:.0} {height:.0}" width="{WIDTH:.0}" height="{height:.0}" font-family="sans-serif" font-size="12" fill="{INK}">
<rect width="{WIDTH:.0}" height="{height:.0}" fill="#ffffff"/>
<text x="{:.1}" y="22" text-anchor="middle" font-size="14" font-weight="bold">{}</text>
"##,
        WIDTH / 2.0,
        escaped(title)
    )
}

fn text(svg: &mut String, (x, y): (f64, f64), anchor: &str, text: &str) {
    let text = escaped(text);
    let _ = writeln!(
        svg,
        r#"<text x="{x:.1}" y="{y:.1}" text-anchor="{anchor}">{text}</text>"#
    );
}

fn stroke(svg: &mut String, (x1, y1): (f64, f64), (x2, y2): (f64, f64), color: &str) {
    let _ = writeln!(
        svg,
        r#"<line x1="{x1:.1}" y1="{y1:.1}" x2="{x2:.1}" y2="{y2:.1}" stroke="{color}"/>"#
    );
}

/// From values to places on an axis.
struct Axis {
    low: f64,
    high: f64,
    ratios: bool,
    from: f64,
    to: f64,
}

impl Axis {
    fn at(&self, value: f64) -> f64 {
        let place = |value: f64| {
            if self.ratios {
                value.max(1e-9).ln()
            } else {
                value
            }
        };
        let (low, high) = (place(self.low), place(self.high));
        let share = if high > low {
            (place(value) - low) / (high - low)
        } else {
            0.5
        };
        share.mul_add(self.to - self.from, self.from)
    }
}

fn draw_lines(plot: &Plot, lines: &[Line], ratios: Ratios) -> String {
    let labelled: Vec<(usize, &Line)> = lines
        .iter()
        .enumerate()
        .filter(|(_, line)| !line.label.is_empty())
        .collect();
    let bottom = TOP + labelled.len() as f64 * ROW;
    let height = HEIGHT + labelled.len() as f64 * ROW;
    let all = || lines.iter().flat_map(|line| &line.points);
    let margin = if lines.iter().all(Line::has_points) {
        20.0
    } else {
        0.0
    };
    let x = Axis {
        low: all().map(|(x, _)| *x).fold(f64::INFINITY, f64::min),
        high: all().map(|(x, _)| *x).fold(0.0, f64::max),
        ratios: ratios != Ratios::Neither,
        from: LEFT + margin,
        to: WIDTH - RIGHT - margin,
    };
    let mut y = Axis {
        low: 0.0,
        high: 0.0,
        ratios: ratios == Ratios::Both,
        from: height - BOTTOM,
        to: bottom,
    };
    let ticks = y_ticks(&mut y, plot.y, lines);
    let mut svg = open(&plot.title, height);
    for value in ticks {
        let place = y.at(value);
        stroke(&mut svg, (LEFT, place), (WIDTH - RIGHT, place), GRID);
        text(&mut svg, (LEFT - 6.0, place + 4.0), "end", &number(value));
    }
    for value in x_ticks(&x, lines) {
        let place = x.at(value);
        stroke(
            &mut svg,
            (place, height - BOTTOM),
            (place, height - BOTTOM + 5.0),
            INK,
        );
        text(
            &mut svg,
            (place, height - BOTTOM + 19.0),
            "middle",
            &number(value),
        );
    }
    stroke(&mut svg, (LEFT, bottom), (LEFT, height - BOTTOM), INK);
    stroke(
        &mut svg,
        (LEFT, height - BOTTOM),
        (WIDTH - RIGHT, height - BOTTOM),
        INK,
    );
    text(
        &mut svg,
        ((LEFT + WIDTH) / 2.0, height - 12.0),
        "middle",
        plot.x,
    );
    let middle = (bottom + height - BOTTOM) / 2.0;
    let _ = writeln!(
        svg,
        r#"<text transform="translate(16 {middle:.1}) rotate(-90)" text-anchor="middle">{}</text>"#,
        escaped(plot.y)
    );
    for (index, line) in lines.iter().enumerate() {
        // Those without a label go with the one before.
        let with = labelled.iter().rposition(|(at, _)| *at <= index);
        draw_line(&mut svg, line, color(with.unwrap_or(0)), &x, &y);
    }
    for (row, (_, line)) in labelled.iter().enumerate() {
        let at = TOP + row as f64 * ROW;
        let key = Line {
            label: String::new(),
            points: vec![(0.0, 0.0), (1.0, 0.0)],
            style: line.style,
        };
        let x = Axis {
            low: 0.0,
            high: 1.0,
            ratios: false,
            from: LEFT + 4.0,
            to: LEFT + 32.0,
        };
        let y = Axis {
            low: 0.0,
            high: 0.0,
            ratios: false,
            from: at,
            to: at,
        };
        draw_line(&mut svg, &key, color(row), &x, &y);
        text(&mut svg, (LEFT + 40.0, at + 4.0), "start", &line.label);
    }
    svg.push_str("</svg>\n");
    svg
}

fn color(index: usize) -> &'static str {
    COLORS[index % COLORS.len()]
}

/// Where the horizontal axis has ticks: wherever something was measured, if that is in few places; at
/// powers of ten, if ratios have two of them at least.
fn x_ticks(axis: &Axis, lines: &[Line]) -> Vec<f64> {
    let few = if axis.ratios { 10 } else { 14 };
    let mut places: Vec<f64> = lines
        .iter()
        .flat_map(|line| &line.points)
        .map(|(x, _)| *x)
        .collect();
    places.sort_by(f64::total_cmp);
    places.dedup();
    if places.len() <= few && lines.iter().all(Line::has_points) {
        return places;
    }
    if axis.ratios && axis.low > 0.0 {
        let powers = axis.low.log10().ceil() as i32..=axis.high.log10().floor() as i32;
        let powers: Vec<f64> = powers.map(|power| 10_f64.powi(power)).collect();
        if powers.len() > 1 {
            return powers;
        }
    }
    // From 0 on, unless there is something below.
    let step = step(axis.high - axis.low.min(0.0));
    let ticks = (axis.low / step).ceil() as i32..=(axis.high / step).floor() as i32;
    ticks.map(|tick| f64::from(tick) * step).collect()
}

/// Where the vertical axis has ticks, and where it ends: at powers of ten if it has equal ratios.
fn y_ticks(axis: &mut Axis, label: &str, lines: &[Line]) -> Vec<f64> {
    let all = || lines.iter().flat_map(|line| &line.points).map(|(_, y)| *y);
    let highest = all().fold(0.0, f64::max).max(1e-6);
    let least = all()
        .filter(|value| *value > 0.0)
        .fold(highest, f64::min)
        .max(1e-6);
    if axis.ratios {
        let low = least.log10().floor() as i32;
        let powers = low..=(highest.log10().ceil() as i32).max(low + 1);
        let ticks: Vec<f64> = powers.map(|power| 10_f64.powi(power)).collect();
        axis.low = ticks.first().copied().unwrap_or(least);
        axis.high = ticks.last().copied().unwrap_or(highest);
        return ticks;
    }
    let tick = step(highest);
    let count = match label.starts_with("percent of ") && (highest - 100.0).abs() < 1e-6 {
        // More than all there is.
        true => (highest / tick).round(),
        false => (highest * 1.02 / tick).ceil(),
    };
    axis.high = count * tick;
    (0..=count as u32)
        .map(|index| f64::from(index) * tick)
        .collect()
}

fn draw_line(svg: &mut String, line: &Line, color: &str, x: &Axis, y: &Axis) {
    let mut places = String::new();
    for (at, value) in &line.points {
        let _ = write!(places, "{:.1},{:.1} ", x.at(*at), y.at(*value));
    }
    let look = match line.style {
        Style::Points | Style::Plain => r#"stroke-width="2""#,
        Style::Bound => r#"stroke-width="1.5" stroke-dasharray="5 3""#,
        Style::Faint => r#"stroke-width="0.8" stroke-opacity="0.7""#,
    };
    let _ = writeln!(
        svg,
        r#"<polyline points="{}" fill="none" stroke="{color}" {look}/>"#,
        places.trim_end()
    );
    if line.style == Style::Points {
        for (at, value) in &line.points {
            let (x, y) = (x.at(*at), y.at(*value));
            let _ = writeln!(
                svg,
                r#"<circle cx="{x:.1}" cy="{y:.1}" r="3.5" fill="{color}"/>"#
            );
        }
    }
}

fn draw_bars(plot: &Plot, bars: &[(String, f64)]) -> String {
    let height = TOP + bars.len() as f64 * BAR + BOTTOM;
    let highest = bars.iter().map(|(_, value)| *value).fold(1e-6, f64::max);
    let tick = step(highest);
    let count = (highest * 1.1 / tick).ceil();
    let x = Axis {
        low: 0.0,
        high: count * tick,
        ratios: false,
        from: NAMES,
        to: WIDTH - RIGHT,
    };
    let mut svg = open(&plot.title, height);
    let base = height - BOTTOM + 6.0;
    for index in 0..=count as u32 {
        let value = f64::from(index) * tick;
        stroke(&mut svg, (x.at(value), TOP), (x.at(value), base), GRID);
        text(
            &mut svg,
            (x.at(value), base + 16.0),
            "middle",
            &number(value),
        );
    }
    for (row, (name, value)) in bars.iter().enumerate() {
        let y = (row as f64).mul_add(BAR, TOP);
        text(&mut svg, (NAMES - 8.0, y + 14.0), "end", name);
        let _ = writeln!(
            svg,
            r#"<rect x="{NAMES:.1}" y="{y:.1}" width="{:.1}" height="{:.1}" fill="{}"/>"#,
            x.at(*value) - NAMES,
            BAR - 7.0,
            COLORS[0]
        );
        let label = format!("{value:.2}");
        text(&mut svg, (x.at(*value) + 5.0, y + 14.0), "start", &label);
    }
    text(
        &mut svg,
        ((NAMES + WIDTH) / 2.0, height - 12.0),
        "middle",
        plot.x,
    );
    svg.push_str("</svg>\n");
    svg
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plot(shape: Shape) -> Plot {
        Plot {
            name: "p".to_owned(),
            title: "a & b".to_owned(),
            x: "k",
            y: "s",
            shape,
        }
    }

    #[test]
    fn lines_have_a_point_wherever_something_was_measured() {
        let line = |label: &str, style| Line {
            label: label.to_owned(),
            points: vec![(1.0, 2.0), (2.0, 1.0), (4.0, 3.0)],
            style,
        };
        let lines = vec![line("<one>", Style::Points), line("bound", Style::Bound)];
        let svg = draw(&plot(Shape::Lines {
            lines,
            ratios: Ratios::Across,
        }));
        // Two of them are the legend's.
        assert_eq!(svg.matches("<circle").count(), 5);
        assert!(svg.contains("a &amp; b") && svg.contains("&lt;one&gt;"));
        assert!(svg.contains("stroke-dasharray"));
    }

    #[test]
    fn axes_are_divided_on_both_sides_of_zero() {
        let lines = [Line {
            label: String::new(),
            points: vec![(-48.0, 0.0), (96.0, 1.0)],
            style: Style::Plain,
        }];
        let axis = |low| Axis {
            low,
            high: 96.0,
            ratios: false,
            from: 0.0,
            to: 1.0,
        };
        assert_eq!(
            x_ticks(&axis(-48.0), &lines),
            [-25.0, 0.0, 25.0, 50.0, 75.0]
        );
        assert_eq!(x_ticks(&axis(30.0), &lines), [40.0, 60.0, 80.0]);
    }

    #[test]
    fn bars_are_as_long_as_their_values() {
        let bars = vec![("a".to_owned(), 1.0), ("b".to_owned(), 2.0)];
        let svg = draw(&plot(Shape::Bars(bars)));
        let width = |line: &str| -> Option<f64> {
            let rest = line.strip_prefix("<rect x=")?;
            rest.split("width=\"")
                .nth(1)?
                .split('"')
                .next()?
                .parse()
                .ok()
        };
        let widths: Vec<f64> = svg.lines().filter_map(width).collect();
        assert_eq!(widths.len(), 2);
        assert!((widths[1] / widths[0] - 2.0).abs() < 0.01, "{widths:?}");
    }

    #[test]
    fn nothing_is_more_than_all() {
        let ends = |y, most| {
            let line = Line {
                label: String::new(),
                points: vec![(0.0, 0.0), (1.0, most)],
                style: Style::Plain,
            };
            let lines = vec![line];
            let shape = Shape::Lines {
                lines,
                ratios: Ratios::Neither,
            };
            let svg = draw(&Plot { y, ..plot(shape) });
            [100, 120].map(|tick| svg.contains(&format!(">{tick}</text>")))
        };
        assert_eq!(ends("percent of the servers", 100.0), [true, false]);
        assert_eq!(ends("percent of the link", 101.0), [true, true]);
        assert_eq!(ends("seconds", 100.0), [true, true]);
    }

    #[test]
    fn ratios_over_powers_of_ten_have_ticks_there() {
        let axis = Axis {
            low: 0.02,
            high: 99.0,
            ratios: true,
            from: 0.0,
            to: 1.0,
        };
        let points = (1..100).map(|x| (f64::from(x), 1.0)).collect();
        let line = Line {
            label: String::new(),
            points,
            style: Style::Plain,
        };
        assert_eq!(x_ticks(&axis, &[line]), [0.1, 1.0, 10.0]);
    }

    #[test]
    fn ticks_are_on_the_axis() {
        let axis = Axis {
            low: 3.0,
            high: 20.0,
            ratios: false,
            from: 0.0,
            to: 1.0,
        };
        let line = |count: u32| Line {
            label: String::new(),
            points: (3..3 + count).map(|x| (f64::from(x), 1.0)).collect(),
            style: Style::Points,
        };
        assert_eq!(x_ticks(&axis, &[line(18)]), [5.0, 10.0, 15.0, 20.0]);
        // Few places have a tick each.
        assert_eq!(x_ticks(&axis, &[line(14)]).len(), 14);
    }

    #[test]
    fn nothing_measured_is_an_empty_plot() {
        for shape in [
            Shape::Bars(Vec::new()),
            Shape::Lines {
                lines: Vec::new(),
                ratios: Ratios::Neither,
            },
        ] {
            assert!(draw(&plot(shape)).ends_with("</svg>\n"));
        }
    }
}
