//! Draws the mean times of instances, scheme by scheme.

use std::fmt::Write;

use crate::chart::{INK, colour};

const WIDTH: f64 = 860.0;
const LEFT: f64 = 90.0;
const RIGHT: f64 = 30.0;
const TOP: f64 = 46.0;
const ROW: f64 = 36.0;
const BOTTOM: f64 = 40.0;
const TICKS: usize = 8;

/// A scheme's name, and of each instance the normalized mean time.
pub type Row<'a> = (&'a str, Vec<f64>);

/// A row for each scheme: a dot for each instance, and a line at their mean.
pub fn draw(rows: &[Row<'_>]) -> String {
    let values = rows.iter().flat_map(|(_, values)| values);
    let most = values
        .copied()
        .filter(|it| it.is_finite())
        .fold(1.0, f64::max);
    // To the next half, so that labels are short.
    let most = (most * 2.0 + 0.1).ceil() / 2.0;
    let height = TOP + rows.len() as f64 * ROW + BOTTOM;
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{WIDTH}\" height=\"{height}\" \
         viewBox=\"0 0 {WIDTH} {height}\" font-family=\"sans-serif\" font-size=\"12\" fill=\"{INK}\">\
         <rect width=\"100%\" height=\"100%\" fill=\"white\"/>\
         <text x=\"{LEFT}\" y=\"20\" font-size=\"14\">mean time of tasks, over that of an object of \
         mean size alone on a link</text>"
    );
    let x = |value: f64| LEFT + value / most * (WIDTH - LEFT - RIGHT);
    let end = TOP + rows.len() as f64 * ROW;
    for tick in 0..=TICKS {
        let value = most * tick as f64 / TICKS as f64;
        // Writing to a string cannot fail.
        let _ = write!(
            out,
            "<path d=\"M{0:.1} {TOP}V{end}\" stroke=\"#dddddd\"/>\
             <text x=\"{0:.1}\" y=\"{1:.1}\" text-anchor=\"middle\">{value:.2}</text>",
            x(value),
            end + 18.0
        );
    }
    for (index, (name, values)) in rows.iter().enumerate() {
        let y = TOP + (index as f64 + 0.5) * ROW;
        let _ = write!(
            out,
            "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{name}</text>",
            LEFT - 8.0,
            y + 4.0
        );
        let values: Vec<f64> = values.iter().copied().filter(|it| it.is_finite()).collect();
        for value in &values {
            let _ = write!(
                out,
                "<circle cx=\"{:.1}\" cy=\"{y:.1}\" r=\"3\" fill=\"{}\" fill-opacity=\"0.5\"/>",
                x(*value),
                colour(index)
            );
        }
        if !values.is_empty() {
            let mean = values.iter().sum::<f64>() / values.len() as f64;
            let _ = write!(
                out,
                "<path d=\"M{0:.1} {1:.1}V{2:.1}\" stroke=\"{3}\" stroke-width=\"3\"/>\
                 <text x=\"{0:.1}\" y=\"{4:.1}\" text-anchor=\"middle\">{mean:.2}</text>",
                x(mean),
                y - 8.0,
                y + 8.0,
                colour(index),
                y - 10.0
            );
        }
    }
    out.push_str("</svg>\n");
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_instance_has_a_dot_and_every_scheme_a_row() {
        let rows = [("a", vec![1.0, 2.0, f64::NAN]), ("b", vec![1.2])];
        let drawn = draw(&rows);
        assert_eq!(drawn.matches("<circle").count(), 3);
        assert!(drawn.contains(">a</text>") && drawn.contains(">b</text>"));
        assert!(!drawn.contains("NaN"), "{drawn}");
        assert!(draw(&[]).ends_with("</svg>\n"));
    }
}
