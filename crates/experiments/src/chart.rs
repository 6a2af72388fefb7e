//! Plots of panels as SVG: bars side by side, or lines where sizes double.
//!
//! Small enough to be drawn by hand, which leaves the drawing in our control: the optimum is a
//! line across its group, what a plan or a simulation promised a mark on the bar.

use std::fmt::Write;

use crate::method;
use crate::report::{Group, Measurement, Panel};

const HEIGHT: f64 = 430.0;
const LEFT: f64 = 64.0;
const RIGHT: f64 = 20.0;
const TOP: f64 = 66.0;
const BOTTOM: f64 = 62.0;
const BAR: f64 = 16.0;
const GAP: f64 = 22.0;
const WIDTH_MIN: f64 = 560.0;
/// Width of a character of the legend, roughly.
const LETTER: f64 = 6.6;
const INK: &str = "#222222";
const GRID: &str = "#dddddd";

/// Draws a panel.
pub fn draw(panel: &Panel) -> String {
    let methods = panel.methods();
    let group = methods.len() as f64 * BAR + GAP;
    let label = panel.groups.iter().map(|g| g.label.chars().count()).max();
    let group = group.max(label.unwrap_or_default() as f64 * LETTER + 8.0);
    let legend = legend_width(panel, &methods);
    let width = (LEFT + RIGHT + group * panel.groups.len() as f64)
        .max(LEFT + RIGHT + legend)
        .max(WIDTH_MIN);
    let mut drawing = Drawing {
        svg: String::new(),
        width,
        slot: (width - LEFT - RIGHT) / panel.groups.len().max(1) as f64,
        scale: Scale::of(panel),
    };
    drawing.frame(panel);
    drawing.legend(panel, &methods);
    if panel.logarithmic {
        drawing.lines(panel, &methods);
    } else {
        drawing.bars(panel, &methods);
    }
    drawing.svg.push_str("</svg>\n");
    drawing.svg
}

/// From MB/s to a height.
struct Scale {
    low: f64,
    high: f64,
    logarithmic: bool,
    ticks: Vec<f64>,
}

impl Scale {
    fn of(panel: &Panel) -> Self {
        let rates = |group: &Group| {
            let each = group.measurements.iter();
            let each = each.flat_map(|m| [m.bytes_per_s, m.expected_bytes_per_s]);
            each.chain([group.optimum_bytes_per_s, group.clairvoyant_bytes_per_s])
                .flatten()
                .collect::<Vec<_>>()
        };
        let rates = panel
            .groups
            .iter()
            .flat_map(rates)
            .filter(|rate| rate.is_finite());
        let rates: Vec<f64> = rates.map(|rate| rate / 1e6).collect();
        let highest = rates.iter().copied().fold(0.0, f64::max);
        if panel.logarithmic {
            let lowest = rates.iter().copied().filter(|rate| *rate > 0.0);
            let low = lowest.fold(highest.max(1e-3), f64::min).log10().floor();
            let high = highest.max(1e-2).log10().ceil().max(low + 1.0);
            let ticks = (low as i32..=high as i32).map(|power| 10_f64.powi(power));
            return Self {
                low,
                high,
                logarithmic: true,
                ticks: ticks.collect(),
            };
        }
        let step = step(highest);
        let count = (highest * 1.02 / step).ceil().max(1.0);
        Self {
            low: 0.0,
            high: step * count,
            logarithmic: false,
            ticks: (0..=count as i32).map(|i| f64::from(i) * step).collect(),
        }
    }

    fn y(&self, mb: f64) -> f64 {
        let value = match self.logarithmic {
            true => mb.max(1e-9).log10(),
            false => mb,
        };
        let share = (value - self.low) / (self.high - self.low);
        HEIGHT - BOTTOM - share.clamp(0.0, 1.0) * (HEIGHT - TOP - BOTTOM)
    }
}

/// A round distance between ticks that makes four to eight of them.
pub(crate) fn step(highest: f64) -> f64 {
    let raw = (highest / 6.0).max(1e-6);
    let power = 10_f64.powf(raw.log10().floor());
    let round = [1.0, 2.0, 2.5, 5.0, 10.0].map(|factor| factor * power);
    round.into_iter().find(|step| *step >= raw).unwrap_or(raw)
}

struct Drawing {
    svg: String,
    width: f64,
    slot: f64,
    scale: Scale,
}

impl Drawing {
    fn put(&mut self, piece: std::fmt::Arguments<'_>) {
        // Writing into a string cannot fail.
        let _ = writeln!(self.svg, "{piece}");
    }

    fn text(&mut self, x: f64, y: f64, anchor: &str, text: &str) {
        let text = escaped(text);
        self.put(format_args!(
            r#"<text x="{x:.1}" y="{y:.1}" text-anchor="{anchor}">{text}</text>"#
        ));
    }

    fn line(&mut self, from: (f64, f64), to: (f64, f64), style: &str) {
        let ((x1, y1), (x2, y2)) = (from, to);
        self.put(format_args!(
            r#"<line x1="{x1:.1}" y1="{y1:.1}" x2="{x2:.1}" y2="{y2:.1}" {style}/>"#
        ));
    }

    fn frame(&mut self, panel: &Panel) {
        let width = self.width;
        self.put(format_args!(
            r##"<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0} {HEIGHT:.0}" width="{width:.0}" height="{HEIGHT:.0}" font-family="sans-serif" font-size="12" fill="{INK}">
<rect width="{width:.0}" height="{HEIGHT:.0}" fill="#ffffff"/>
<text x="{:.1}" y="20" text-anchor="middle" font-size="14" font-weight="bold">{}</text>"##,
            width / 2.0,
            escaped(&panel.title)
        ));
        for tick in self.scale.ticks.clone() {
            let y = self.scale.y(tick);
            let (left, right) = ((LEFT, y), (width - RIGHT, y));
            self.line(left, right, &format!(r#"stroke="{GRID}""#));
            self.text(LEFT - 6.0, y + 4.0, "end", &number(tick));
        }
        let (top, bottom) = ((LEFT, TOP), (LEFT, HEIGHT - BOTTOM));
        let ink = format!(r#"stroke="{INK}""#);
        self.line(top, bottom, &ink);
        self.line(bottom, (width - RIGHT, HEIGHT - BOTTOM), &ink);
        let middle = (TOP + HEIGHT - BOTTOM) / 2.0;
        self.put(format_args!(
            r#"<text transform="translate(16 {middle:.1}) rotate(-90)" text-anchor="middle">throughput (MB/s)</text>"#
        ));
        self.text(
            (LEFT + width - RIGHT) / 2.0,
            HEIGHT - 14.0,
            "middle",
            &panel.axis,
        );
        for (index, group) in panel.groups.iter().enumerate() {
            let x = self.center(index);
            self.text(x, HEIGHT - BOTTOM + 18.0, "middle", &group.label);
        }
    }

    fn center(&self, index: usize) -> f64 {
        (index as f64 + 0.5).mul_add(self.slot, LEFT)
    }

    fn legend(&mut self, panel: &Panel, methods: &[&str]) {
        let mut x = LEFT;
        let y = 42.0;
        for method in methods {
            let color = method::color(method);
            self.put(format_args!(
                r#"<rect x="{x:.1}" y="{:.1}" width="11" height="11" fill="{color}"/>"#,
                y - 10.0
            ));
            let label = method::label(method);
            self.text(x + 15.0, y, "start", label);
            x += 15.0 + entry_width(label);
        }
        for (_, style, label) in bounds(panel) {
            self.line((x, y - 4.0), (x + 22.0, y - 4.0), style);
            self.text(x + 26.0, y, "start", label);
            x += 26.0 + entry_width(label);
        }
        if let Some(expected) = &panel.expected {
            self.line((x, y - 4.0), (x + 12.0, y - 4.0), EXPECTED);
            self.text(x + 16.0, y, "start", expected);
        }
    }

    fn bars(&mut self, panel: &Panel, methods: &[&str]) {
        let base = self.scale.y(0.0);
        for (index, group) in panel.groups.iter().enumerate() {
            let all = BAR * methods.len() as f64;
            let left = self.center(index) - all / 2.0;
            for (place, method) in methods.iter().enumerate() {
                let x = (place as f64).mul_add(BAR, left);
                if let Some(measurement) = group.of(method) {
                    self.bar(x, base, measurement);
                }
            }
            for (bound, style, _) in bounds(panel) {
                if let Some(rate) = bound(group).filter(|rate| rate.is_finite()) {
                    let y = self.scale.y(rate / 1e6);
                    self.line((left - 4.0, y), (left + all + 4.0, y), style);
                }
            }
        }
    }

    fn bar(&mut self, x: f64, base: f64, measurement: &Measurement) {
        let color = method::color(&measurement.method);
        match measurement.bytes_per_s {
            Some(rate) => {
                let y = self.scale.y(rate / 1e6);
                self.put(format_args!(
                    r#"<rect x="{:.1}" y="{y:.1}" width="{:.1}" height="{:.1}" fill="{color}"/>"#,
                    x + 1.0,
                    BAR - 2.0,
                    base - y
                ));
            }
            None => self.text(x + BAR / 2.0, base - 4.0, "middle", "\u{d7}"),
        }
        if let Some(expected) = measurement.expected_bytes_per_s {
            let y = self.scale.y(expected / 1e6);
            self.line((x, y), (x + BAR, y), EXPECTED);
        }
    }

    fn lines(&mut self, panel: &Panel, methods: &[&str]) {
        for method in methods {
            let rates = panel
                .groups
                .iter()
                .map(|group| group.of(method)?.bytes_per_s);
            let rates: Vec<Option<f64>> = rates.collect();
            let style = format!(r#"stroke="{}" stroke-width="2""#, method::color(method));
            self.polyline(&rates, &style);
            for (index, rate) in rates.iter().enumerate() {
                if let Some(rate) = rate {
                    let (x, y) = (self.center(index), self.scale.y(rate / 1e6));
                    let color = method::color(method);
                    self.put(format_args!(
                        r#"<circle cx="{x:.1}" cy="{y:.1}" r="3.5" fill="{color}"/>"#
                    ));
                }
            }
        }
        for (bound, style, _) in bounds(panel) {
            let rates: Vec<_> = panel.groups.iter().map(bound).collect();
            self.polyline(&rates, style);
        }
    }

    fn polyline(&mut self, rates: &[Option<f64>], style: &str) {
        let mut points = String::new();
        for (index, rate) in rates.iter().enumerate() {
            if let Some(rate) = rate {
                let (x, y) = (self.center(index), self.scale.y(rate / 1e6));
                let _ = write!(points, "{x:.1},{y:.1} ");
            }
        }
        self.put(format_args!(
            r#"<polyline points="{}" fill="none" {style}/>"#,
            points.trim_end()
        ));
    }
}

/// A line across a group, how it is drawn and what it is called.
type Bound = (fn(&Group) -> Option<f64>, &'static str, &'static str);

const BOUNDS: [Bound; 2] = [
    (
        |group| group.optimum_bytes_per_s,
        r##"stroke="#222222" stroke-width="1.5" stroke-dasharray="5 3""##,
        "optimum",
    ),
    (
        |group| group.clairvoyant_bytes_per_s,
        r##"stroke="#222222" stroke-width="1.5" stroke-dasharray="1.5 3""##,
        "clairvoyant",
    ),
];

/// The lines that a panel has.
fn bounds(panel: &Panel) -> impl Iterator<Item = Bound> + use<> {
    let there = |bound: &Bound| panel.groups.iter().any(|group| bound.0(group).is_some());
    let there: Vec<Bound> = BOUNDS.into_iter().filter(there).collect();
    there.into_iter()
}

const EXPECTED: &str = r##"stroke="#d1006c" stroke-width="2.5""##;

fn entry_width(label: &str) -> f64 {
    (label.chars().count() as f64).mul_add(LETTER, 14.0)
}

fn legend_width(panel: &Panel, methods: &[&str]) -> f64 {
    let methods = methods
        .iter()
        .map(|method| 15.0 + entry_width(method::label(method)));
    let bounds = bounds(panel).map(|(_, _, label)| 26.0 + entry_width(label));
    let expected = panel.expected.iter().map(|label| 16.0 + entry_width(label));
    methods.chain(bounds).chain(expected).sum()
}

pub(crate) fn number(value: f64) -> String {
    let text = format!("{value:.4}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

pub(crate) fn escaped(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn panel(logarithmic: bool, rates: &[f64]) -> Panel {
        let group = |rate: &f64| Group {
            label: "<1>".to_owned(),
            size_bytes: 1,
            optimum_bytes_per_s: Some(16e6),
            clairvoyant_bytes_per_s: None,
            measurements: vec![
                Measurement {
                    bytes_per_s: Some(*rate),
                    error: None,
                    ..Measurement::failed("robber", String::new())
                },
                Measurement::failed("mob", "stuck".to_owned()),
            ],
        };
        Panel {
            name: "p".to_owned(),
            title: "a & b".to_owned(),
            axis: "x".to_owned(),
            logarithmic,
            expected: None,
            groups: rates.iter().map(group).collect(),
        }
    }

    /// Heights of the bars that are no part of the legend or the background.
    fn heights(svg: &str) -> Vec<f64> {
        let bars = svg.lines().filter(|line| line.starts_with(r#"<rect x="#));
        let height = |line: &str| {
            line.split("height=\"")
                .nth(1)?
                .split('"')
                .next()?
                .parse()
                .ok()
        };
        bars.filter_map(height)
            .filter(|height| *height != 11.0)
            .collect()
    }

    #[test]
    fn bars_are_as_high_as_their_rates() {
        let svg = draw(&panel(false, &[4e6, 8e6]));
        let heights = heights(&svg);
        assert_eq!(heights.len(), 2);
        assert!((heights[1] / heights[0] - 2.0).abs() < 0.01, "{heights:?}");
        assert!(svg.contains("a &amp; b") && svg.contains("&lt;1&gt;"));
        assert!(svg.contains('\u{d7}'), "a method that failed is marked");
    }

    #[test]
    fn lines_have_a_point_per_group() {
        let svg = draw(&panel(true, &[1e4, 1e5, 1e6]));
        assert_eq!(svg.matches("<circle").count(), 3);
    }

    #[test]
    fn ticks_are_round_and_reach_past_the_highest() {
        for highest in [0.7, 1.18, 16.0, 121.0] {
            let scale = Scale::of(&panel(false, &[highest * 1e6]));
            assert!(scale.high >= highest && scale.ticks.len() <= 11);
        }
    }
}
