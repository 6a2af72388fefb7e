//! Drawings of curves over time, one panel above the other.

use std::fmt::Write;

const WIDTH: f64 = 860.0;
const LEFT: f64 = 70.0;
const RIGHT: f64 = 130.0;
const TOP: f64 = 46.0;
const PANEL: f64 = 150.0;
const GAP: f64 = 46.0;
pub(crate) const INK: &str = "#222222";
const GRID: &str = "#dddddd";
/// Told apart by people who do not see all colours (Okabe and Ito).
const COLOURS: [&str; 7] = [
    "#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000",
];
/// How many curves of a kind are drawn; more would hide each other.
pub(crate) const CURVES_MAX: usize = 20;
/// A curve has at most so many points, two for each piece of time: the least and the largest value in it.
const POINTS_MAX: usize = 4000;
/// How many values an axis is labelled with.
const TICKS: usize = 4;

/// A curve: its colour, and points over time.
pub(crate) struct Curve {
    pub(crate) colour: &'static str,
    pub(crate) name: String,
    pub(crate) points: Vec<(f64, f64)>,
}

/// Curves over the same time.
pub(crate) struct Panel {
    pub(crate) title: &'static str,
    pub(crate) curves: Vec<Curve>,
    /// What is expected, dashed: from when to when, and which value.
    pub(crate) predicted: Vec<(f64, f64, f64)>,
}

/// The colour of a curve by its number.
pub(crate) fn colour(index: usize) -> &'static str {
    COLOURS[index % COLOURS.len()]
}

/// Draws panels over the time from 0 to `end_s` below a title, and a note below them if there is one. Both texts
/// are safe to be in XML.
pub(crate) fn draw(title: &str, panels: &[Panel], end_s: f64, note: Option<&str>) -> String {
    let height = TOP + panels.len() as f64 * (PANEL + GAP);
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{WIDTH}\" height=\"{height}\" \
         viewBox=\"0 0 {WIDTH} {height}\" font-family=\"sans-serif\" font-size=\"12\" fill=\"{INK}\">\
         <rect width=\"100%\" height=\"100%\" fill=\"white\"/>\
         <text x=\"{LEFT}\" y=\"20\" font-size=\"14\">{title}</text>"
    );
    for (index, panel) in panels.iter().enumerate() {
        let top = TOP + index as f64 * (PANEL + GAP);
        // Writing to a string cannot fail.
        let _ = panel.write(&mut out, top, end_s);
    }
    if let Some(note) = note {
        let y = height - 8.0;
        let _ = write!(out, "<text x=\"{LEFT}\" y=\"{y:.0}\">{note}</text>");
    }
    out.push_str("</svg>\n");
    out
}

/// The points of a curve: all, or of each piece of time the extremes, so that no swing is lost.
pub(crate) fn thinned(values: Vec<(f64, f64)>) -> Vec<(f64, f64)> {
    let piece = (2 * values.len()).div_ceil(POINTS_MAX);
    if piece <= 2 {
        return values;
    }
    let extremes = values.chunks(piece).flat_map(|piece| {
        let by_value = |a: &&(f64, f64), b: &&(f64, f64)| a.1.total_cmp(&b.1);
        let least = piece.iter().min_by(by_value);
        let most = piece.iter().max_by(by_value);
        let mut both: Vec<(f64, f64)> = least.into_iter().chain(most).copied().collect();
        both.sort_by(|a, b| a.0.total_cmp(&b.0));
        both
    });
    extremes.collect()
}

impl Panel {
    fn write(&self, out: &mut String, top: f64, end_s: f64) -> std::fmt::Result {
        let values = self.curves.iter().flat_map(|curve| &curve.points);
        let values = values.map(|(_, value)| *value);
        let predicted = self.predicted.iter().map(|(.., value)| *value);
        let most = round_up(values.chain(predicted).fold(0.0, f64::max));
        let x = |at_s: f64| LEFT + at_s / end_s * (WIDTH - LEFT - RIGHT);
        let y = |value: f64| top + PANEL * (1.0 - value / most);
        write!(
            out,
            "<text x=\"{LEFT}\" y=\"{:.0}\">{}</text>",
            top - 8.0,
            self.title
        )?;
        for tick in 0..=TICKS {
            let share = tick as f64 / TICKS as f64;
            let (value, at_s) = (short(most * share), short(end_s * share));
            let (x, y) = (x(end_s * share), y(most * share));
            write!(
                out,
                "<path d=\"M{LEFT} {0:.1}H{1:.1}\" stroke=\"{GRID}\"/>\
                 <text x=\"{2}\" y=\"{3:.1}\" text-anchor=\"end\">{value}</text>\
                 <text x=\"{4:.1}\" y=\"{5:.1}\" text-anchor=\"middle\">{at_s} s</text>",
                y,
                WIDTH - RIGHT,
                LEFT - 6.0,
                y + 4.0,
                x,
                top + PANEL + 16.0,
            )?;
        }
        for (index, curve) in self.curves.iter().enumerate() {
            let points = curve.points.iter();
            let points = points.map(|(at_s, value)| format!("{:.1},{:.1}", x(*at_s), y(*value)));
            write!(
                out,
                "<polyline fill=\"none\" stroke=\"{}\" stroke-width=\"1.2\" points=\"{}\"/>",
                curve.colour,
                points.collect::<Vec<_>>().join(" "),
            )?;
            // A legend as high as the panel has room for nine.
            if index < 9 {
                write!(
                    out,
                    "<text x=\"{:.0}\" y=\"{:.0}\" fill=\"{}\">{}</text>",
                    WIDTH - RIGHT + 10.0,
                    top + 12.0 + index as f64 * 16.0,
                    curve.colour,
                    curve.name,
                )?;
            }
        }
        for (from_s, to_s, value) in &self.predicted {
            write!(
                out,
                "<path d=\"M{:.1} {:.1}H{:.1}\" stroke=\"{INK}\" stroke-dasharray=\"5 4\"/>",
                x(*from_s),
                y(*value),
                x(*to_s),
            )?;
        }
        Ok(())
    }
}

/// A number with three decimals at most, or with a power of ten where that would say nothing.
pub(crate) fn short(value: f64) -> String {
    if value != 0.0 && !(1e-2..1e7).contains(&value) {
        return format!("{value:.2e}");
    }
    let text = format!("{value:.3}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// The next larger number that an axis ends well with.
fn round_up(value: f64) -> f64 {
    if !(value > 0.0 && value.is_finite()) {
        return 1.0;
    }
    let power = 10.0_f64.powf(value.log10().floor());
    let steps = [1.0, 1.2, 1.6, 2.0, 3.0, 4.0, 6.0, 8.0, 10.0];
    let step = steps.into_iter().find(|step| step * power >= value);
    step.unwrap_or(10.0) * power
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn axes_end_with_round_numbers_above() {
        for (value, end) in [
            (0.577, 0.6),
            (30.0, 30.0),
            (31.0, 40.0),
            (2066.0, 3000.0),
            (0.0, 1.0),
        ] {
            assert!((round_up(value) - end).abs() < 1e-9 * end, "{value}");
        }
    }

    #[test]
    fn numbers_are_short() {
        for (value, text) in [
            (0.0, "0"),
            (0.25, "0.25"),
            (2066.0, "2066"),
            (0.000_25, "2.50e-4"),
            (1e12, "1.00e12"),
        ] {
            assert_eq!(short(value), text);
        }
    }

    #[test]
    fn long_curves_keep_their_extremes() {
        let value = |at: usize| (at as f64, if at == 12_345 { 99.0 } else { 1.0 });
        let points = thinned((0..100_000).map(value).collect());
        assert!(points.len() <= POINTS_MAX + 2, "{}", points.len());
        assert!(points.contains(&(12_345.0, 99.0)));
    }
}
