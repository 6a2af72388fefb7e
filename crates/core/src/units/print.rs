//! Printing quantities: short for people by default, exact with `{:#}`.

use std::fmt;

use super::parse::{RATE_UNITS, SIZE_UNITS};
use super::{Bytes, Rate};

/// The units people are shown, largest first.
const SHOWN: &[(&str, f64)] = &[
    ("PB", 1e15),
    ("TB", 1e12),
    ("GB", 1e9),
    ("MB", 1e6),
    ("kB", 1e3),
];

/// `600 MB` for people; with `#` the shortest text that means exactly this many bytes.
impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !f.alternate() {
            return f.pad(&short(self.as_f64()));
        }
        let largest = SIZE_UNITS.iter().rev();
        let (unit, bytes) = largest
            .filter(|(_, bytes)| self.0.is_multiple_of(*bytes) && self.0 >= *bytes)
            .min_by_key(|(_, bytes)| self.0 / bytes)
            .unwrap_or(&("B", 1));
        f.pad(&format!("{} {unit}", self.0 / bytes))
    }
}

/// `1.88 MB/s` or `unlimited` for people; with `#` the shortest text that means exactly this rate.
impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_unlimited() {
            f.pad("unlimited")
        } else if f.alternate() {
            f.pad(&exact(*self))
        } else {
            f.pad(&format!("{}/s", short(self.bytes_per_s())))
        }
    }
}

/// Three significant digits and the largest unit that leaves at least one before the point.
fn short(bytes: f64) -> String {
    let rounded = |value: f64| three_digits(value).parse().unwrap_or(value);
    // What rounds up to 1000 of a unit is shown as 1 of the next.
    let (unit, times) = SHOWN
        .iter()
        .find(|(_, times)| rounded(bytes / times) >= 1.0)
        .unwrap_or(&("B", 1.0));
    format!("{} {unit}", three_digits(bytes / times))
}

/// `value` with three significant digits, without zeros that say nothing.
pub(super) fn three_digits(value: f64) -> String {
    if value <= 0.0 {
        return "0".to_owned();
    }
    let digits_before = value.log10().floor() as i32 + 1;
    let power = 10_f64.powi(digits_before - 3);
    let value = (value / power).round() * power;
    let decimals = usize::try_from(3 - digits_before).unwrap_or(0);
    let text = format!("{value:.decimals$}");
    if text.contains('.') {
        text.trim_end_matches('0').trim_end_matches('.').to_owned()
    } else {
        text
    }
}

fn exact(rate: Rate) -> String {
    // `B/s` always works: a float prints as the shortest decimal that reads back as itself.
    RATE_UNITS
        .iter()
        .rev()
        .map(|(unit, (times, bits))| format!("{} {unit}", rate.bytes_per_s() * bits / times))
        .filter(|text| text.parse() == Ok(rate))
        .min_by_key(String::len)
        .unwrap_or_else(|| format!("{} B/s", rate.bytes_per_s()))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use proptest::prelude::*;

    use super::*;

    fn rate(bytes_per_s: f64) -> Rate {
        Rate::from_bytes_per_s(bytes_per_s).unwrap()
    }

    #[test]
    fn people_read_three_digits() {
        for (bytes, text) in [
            (0, "0 B"),
            (1, "1 B"),
            (999, "999 B"),
            (1000, "1 kB"),
            (1024, "1.02 kB"),
            (999_499, "999 kB"),
            (999_500, "1 MB"),
            (600_000_000, "600 MB"),
            (12_345_678, "12.3 MB"),
            (10_000_000_000, "10 GB"),
            (u64::MAX, "18400 PB"),
        ] {
            assert_eq!(Bytes(bytes).to_string(), text);
        }
        assert_eq!(rate(0.0).to_string(), "0 B/s");
        assert_eq!(rate(0.01234).to_string(), "0.0123 B/s");
        assert_eq!(rate(1_875_000.0).to_string(), "1.88 MB/s");
        assert_eq!(Rate::UNLIMITED.to_string(), "unlimited");
    }

    #[test]
    fn exact_text_is_short() {
        assert_eq!(format!("{:#}", Bytes(600_000_000)), "600 MB");
        assert_eq!(format!("{:#}", Bytes(2 << 20)), "2 MiB");
        assert_eq!(format!("{:#}", Bytes(1_048_577)), "1048577 B");
        assert_eq!(format!("{:#}", Bytes(0)), "0 B");
        assert_eq!(format!("{:#}", rate(1_875_000.0)), "15 Mbit/s");
        assert_eq!(format!("{:#}", rate(125e6)), "1 Gbit/s");
        assert_eq!(format!("{:#}", rate(800_000.0)), "0.8 MB/s");
        assert_eq!(format!("{:#}", Rate::UNLIMITED), "unlimited");
    }

    #[test]
    fn columns_line_up() {
        assert_eq!(
            format!("{:>8}|{:<8}", Bytes(1000), rate(1.0)),
            "    1 kB|1 B/s   "
        );
    }

    proptest! {
        #[test]
        fn exact_sizes_parse_back(bytes: u64) {
            prop_assert_eq!(format!("{:#}", Bytes(bytes)).parse(), Ok(Bytes(bytes)));
        }

        #[test]
        fn sizes_for_people_parse_back_nearly(bytes in 0..u64::MAX / 2, shift in 0_u32..64) {
            let bytes = bytes >> shift;
            let back: Bytes = Bytes(bytes).to_string().parse().unwrap();
            prop_assert!(back.0.abs_diff(bytes) as f64 <= 0.005 * bytes as f64);
        }

        #[test]
        fn exact_rates_parse_back(bytes_per_s in 0.0..1e18, power in 0..30) {
            let rate = rate(bytes_per_s / 10_f64.powi(power));
            prop_assert_eq!(format!("{rate:#}").parse(), Ok(rate));
        }

        #[test]
        fn rates_for_people_parse_back_nearly(bytes_per_s in 0.0..9e17, power in 0..30) {
            let rate = rate(bytes_per_s / 10_f64.powi(power));
            let back: Rate = rate.to_string().parse().unwrap();
            let gap = (back.bytes_per_s() - rate.bytes_per_s()).abs();
            prop_assert!(gap <= 0.005 * rate.bytes_per_s(), "{rate} {back}");
        }

        #[test]
        fn no_text_makes_the_parsers_panic(text in "[0-9.]{0,40}[ -~]{0,8}.{0,8}") {
            let _ = text.parse::<Bytes>();
            let _ = text.parse::<Rate>();
        }
    }
}
