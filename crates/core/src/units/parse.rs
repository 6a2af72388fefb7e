//! Reading quantities: one splitter of number and unit for all of them.

#![cfg_attr(
    not(test),
    deny(
        clippy::unwrap_used,
        clippy::expect_used,
        clippy::indexing_slicing,
        clippy::arithmetic_side_effects
    )
)]

use std::str::FromStr;

use super::error::{Quantity, UnitError};
use super::{Bytes, Rate};
use crate::text::excerpt;

/// The largest rate that can be written, bytes per second; more is surely a slip.
const RATE_MAX: f64 = 1e18;

/// Digits of a number before it is called too large: 2^64 has 20, and a fraction adds some.
const DIGITS_MAX: usize = 36;

/// A unit's spelling and how many of the smallest unit it is.
pub(super) type Unit<T> = (&'static str, T);

/// The units of an amount, in bytes, smallest first.
pub(super) const SIZE_UNITS: &[Unit<u64>] = &[
    ("B", 1),
    ("kB", 1_000),
    ("KiB", 1 << 10),
    ("MB", 1_000_000),
    ("MiB", 1 << 20),
    ("GB", 1_000_000_000),
    ("GiB", 1 << 30),
    ("TB", 1_000_000_000_000),
    ("TiB", 1 << 40),
    ("PB", 1_000_000_000_000_000),
    ("PiB", 1 << 50),
];

/// The units of a rate; those that count bits are divided by eight when they are used.
pub(super) const RATE_UNITS: &[Unit<(f64, f64)>] = &[
    ("bit/s", (1.0, 8.0)),
    ("B/s", (1.0, 1.0)),
    ("kbit/s", (1e3, 8.0)),
    ("kB/s", (1e3, 1.0)),
    ("KiB/s", (1024.0, 1.0)),
    ("Mbit/s", (1e6, 8.0)),
    ("MB/s", (1e6, 1.0)),
    ("MiB/s", (1_048_576.0, 1.0)),
    ("Gbit/s", (1e9, 8.0)),
    ("GB/s", (1e9, 1.0)),
    ("GiB/s", (1_073_741_824.0, 1.0)),
    ("Tbit/s", (1e12, 8.0)),
    ("TB/s", (1e12, 1.0)),
    ("PB/s", (1e15, 1.0)),
];

impl FromStr for Bytes {
    type Err = UnitError;

    /// Reads an amount such as `600 MB`, `64KiB` or `1.5 GB`.
    fn from_str(text: &str) -> Result<Self, UnitError> {
        let quantity = Quantity::Size;
        let (number, unit) = split(quantity, text)?;
        let bytes = find(quantity, text, unit, SIZE_UNITS)?;
        match number.times(bytes) {
            Some(Scaled::Whole(bytes)) => Ok(Self(bytes)),
            Some(Scaled::Fraction) => Err(UnitError::fraction(quantity, text)),
            None => Err(UnitError::too_large(quantity, text, Self(u64::MAX))),
        }
    }
}

impl FromStr for Rate {
    type Err = UnitError;

    /// Reads a rate such as `10 MB/s`, `1.5 Gbit/s` or `unlimited`.
    fn from_str(text: &str) -> Result<Self, UnitError> {
        if text.trim() == "unlimited" {
            return Ok(Self::UNLIMITED);
        }
        let quantity = Quantity::Rate;
        let (number, unit) = split(quantity, text)?;
        let (times, bits) = find(quantity, text, unit, RATE_UNITS)?;
        let rate = number.as_f64() * times / bits;
        let max = Self(RATE_MAX);
        Self::from_bytes_per_s(rate)
            .filter(|rate| *rate <= max)
            .ok_or_else(|| UnitError::too_large(quantity, text, max))
    }
}

/// A decimal number as it was written: digits, perhaps a point and more digits.
#[derive(Clone, Copy)]
pub(super) struct Number<'a> {
    text: &'a str,
}

/// A number of units in terms of the smallest unit.
pub(super) enum Scaled {
    Whole(u64),
    Fraction,
}

impl Number<'_> {
    fn as_f64(self) -> f64 {
        // Digits and at most one point always parse; what is beyond range becomes infinite.
        self.text.parse().unwrap_or(f64::INFINITY)
    }

    /// The number times `unit`, exactly; `None` if it is beyond 64 bits.
    pub(super) fn times(self, unit: u64) -> Option<Scaled> {
        let (whole, decimals) = self.text.split_once('.').unwrap_or((self.text, ""));
        let decimals = decimals.trim_end_matches('0');
        if whole.len().saturating_add(decimals.len()) > DIGITS_MAX {
            return (whole.trim_start_matches('0').len() <= 20).then_some(Scaled::Fraction);
        }
        let whole: u64 = whole.parse().ok()?;
        let whole = whole.checked_mul(unit)?;
        if decimals.is_empty() {
            return Some(Scaled::Whole(whole));
        }
        // At most 36 digits: the power fits 128 bits. The product may not, and then it is no
        // whole number either: a unit has far fewer factors of ten than that many decimals.
        let power = 10_u128.checked_pow(decimals.len() as u32)?;
        let Some(part) = decimals
            .parse::<u128>()
            .ok()?
            .checked_mul(u128::from(unit))
            .filter(|part| part.is_multiple_of(power))
        else {
            return Some(Scaled::Fraction);
        };
        let part = u64::try_from(part.checked_div(power)?).ok()?;
        whole.checked_add(part).map(Scaled::Whole)
    }
}

/// Splits `text` into its number and its unit, which is not empty.
pub(super) fn split(quantity: Quantity, text: &str) -> Result<(Number<'_>, &str), UnitError> {
    let given = || excerpt(text).into_owned();
    let trimmed = text.trim();
    if trimmed.starts_with(['-', '\u{2212}']) {
        let text = given();
        return Err(UnitError::Negative { quantity, text });
    }
    let (number, unit) = number_at_start(trimmed).ok_or_else(|| UnitError::NoNumber {
        quantity,
        text: given(),
    })?;
    let unit = unit.trim_start();
    if unit.is_empty() {
        let text = excerpt(number.text).into_owned();
        return Err(UnitError::NoUnit { quantity, text });
    }
    Ok((number, unit))
}

/// The decimal number `text` begins with, and the rest; both sides of a point need digits.
pub(super) fn number_at_start(text: &str) -> Option<(Number<'_>, &str)> {
    let digits = |text: &str| {
        let end = text.find(|c: char| !c.is_ascii_digit());
        end.unwrap_or(text.len())
    };
    let mut end = digits(text);
    if end == 0 {
        return None;
    }
    if let Some(rest) = text[end..].strip_prefix('.') {
        match digits(rest) {
            0 => return None,
            decimals => end = end.saturating_add(decimals).saturating_add(1),
        }
    }
    let (number, rest) = text.split_at(end);
    Some((Number { text: number }, rest))
}

/// Looks `unit` up.
pub(super) fn find<T: Copy>(
    quantity: Quantity,
    text: &str,
    unit: &str,
    known: &[Unit<T>],
) -> Result<T, UnitError> {
    match known.iter().find(|(name, _)| *name == unit) {
        Some((_, value)) => Ok(*value),
        None => Err(UnitError::UnknownUnit {
            quantity,
            text: excerpt(text).into_owned(),
            unit: excerpt(unit).into_owned(),
            hint: hint(unit, known),
        }),
    }
}

fn hint<T>(unit: &str, known: &[Unit<T>]) -> String {
    let list = |names: &[&str], or: &str| {
        let quoted: Vec<_> = names.iter().map(|name| format!("`{name}`")).collect();
        match quoted.as_slice() {
            [most @ .., last] if !most.is_empty() => format!("{} {or} {last}", most.join(", ")),
            _ => quoted.concat(),
        }
    };
    let wanted = plain(unit);
    let close: Vec<_> = known
        .iter()
        .map(|(name, _)| *name)
        .filter(|name| plain(name) == wanted)
        .collect();
    if close.is_empty() {
        let all: Vec<_> = known.iter().map(|(name, _)| *name).collect();
        format!("expected one of {}", list(&all, "and"))
    } else {
        format!("write {}", list(&close, "or"))
    }
}

/// What is left of a unit when case and common habits of spelling are taken away. Case is where
/// bits and bytes differ, so `Mb/s` keeps its small b and comes out as bits.
fn plain(unit: &str) -> String {
    let per_second = ["bytes/s", "byte/s", "bits/s"]
        .iter()
        .find_map(|suffix| unit.strip_suffix(suffix).map(|prefix| (prefix, *suffix)));
    let spelled = match (per_second, unit.strip_suffix("ps")) {
        (Some((prefix, "bits/s")), _) => format!("{prefix}bit/s"),
        (Some((prefix, _)), _) => format!("{prefix}B/s"),
        (None, Some(stem)) if stem.ends_with(['b', 'B', 't']) => format!("{stem}/s"),
        _ => unit.to_owned(),
    };
    let bits = spelled
        .strip_suffix("b/s")
        .map_or_else(|| spelled.clone(), |prefix| format!("{prefix}bit/s"));
    match bits.as_str() {
        "sec" | "secs" | "second" | "seconds" => "s".to_owned(),
        "m" | "mins" | "minute" | "minutes" => "min".to_owned(),
        "hr" | "hour" | "hours" => "h".to_owned(),
        "bytes" | "byte" => "b".to_owned(),
        "K" | "M" | "G" | "T" | "k" | "Ki" | "Mi" | "Gi" | "Ti" => {
            format!("{}b", bits.to_lowercase())
        }
        other => other.to_lowercase(),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn size(text: &str) -> u64 {
        text.parse::<Bytes>().unwrap().0
    }

    fn rate(text: &str) -> f64 {
        text.parse::<Rate>().unwrap().bytes_per_s()
    }

    fn size_error(text: &str) -> String {
        text.parse::<Bytes>().unwrap_err().to_string()
    }

    fn rate_error(text: &str) -> String {
        text.parse::<Rate>().unwrap_err().to_string()
    }

    #[test]
    fn sizes_in_every_unit() {
        assert_eq!(size("600 MB"), 600_000_000);
        assert_eq!(size("10GB"), 10_000_000_000);
        assert_eq!(size("2 MiB"), 2 << 20);
        assert_eq!(size("64KiB"), 64 << 10);
        assert_eq!(size("0 B"), 0);
        assert_eq!(size("1.5 kB"), 1500);
        assert_eq!(size("1.5 KiB"), 1536);
        assert_eq!(size(" 1.50 TB "), 1_500_000_000_000);
        assert_eq!(size("18446744073709551615 B"), u64::MAX);
        assert_eq!(size("0.0009765625 KiB"), 1);
    }

    #[test]
    fn rates_in_bits_and_bytes() {
        assert_eq!(rate("10 MB/s"), 10e6);
        assert_eq!(rate("15 Mbit/s"), 1_875_000.0);
        assert_eq!(rate("1 Gbit/s"), 125e6);
        assert_eq!(rate("1.5kbit/s"), 187.5);
        assert_eq!(rate("1 KiB/s"), 1024.0);
        assert_eq!(rate("8 bit/s"), 1.0);
        assert_eq!(rate("0.8 MB/s"), 800_000.0);
        assert_eq!(rate("0 B/s"), 0.0);
        assert_eq!(rate("unlimited"), f64::INFINITY);
    }

    #[test]
    fn a_missing_unit_says_what_to_write() {
        assert_eq!(
            rate_error("200"),
            "rate `200` has no unit: write e.g. `200 Mbit/s` or `200 MB/s`"
        );
        assert_eq!(
            size_error("10 "),
            "size `10` has no unit: write e.g. `10 MB` or `10 MiB`"
        );
    }

    #[test]
    fn what_is_ambiguous_is_refused_with_the_likely_spelling() {
        for (given, meant) in [
            ("5 Mb/s", "write `Mbit/s`"),
            ("5 Mbps", "write `Mbit/s`"),
            ("5 mbit/s", "write `Mbit/s`"),
            ("5 MBps", "write `MB/s`"),
            ("5 Kbit/s", "write `kbit/s`"),
            ("5 Mbits/s", "write `Mbit/s`"),
            ("5 bytes/s", "write `B/s`"),
        ] {
            let said = rate_error(given);
            assert!(said.ends_with(meant), "{given}: {said}");
        }
        for (given, meant) in [
            ("5 KB", "write `kB`"),
            ("5 mb", "write `MB`"),
            ("5 M", "write `MB`"),
            ("5 Gi", "write `GiB`"),
            ("5 bytes", "write `B`"),
        ] {
            let said = size_error(given);
            assert!(said.ends_with(meant), "{given}: {said}");
        }
        assert_eq!(
            rate_error("5 parsecs"),
            "rate `5 parsecs`: unknown unit `parsecs`, expected one of `bit/s`, `B/s`, `kbit/s`, \
             `kB/s`, `KiB/s`, `Mbit/s`, `MB/s`, `MiB/s`, `Gbit/s`, `GB/s`, `GiB/s`, `Tbit/s`, `TB/s` \
             and `PB/s`"
        );
        assert!(rate_error("5 MB").contains("unknown unit `MB`"));
        assert!(size_error("5 MB/s").contains("unknown unit `MB/s`"));
    }

    #[test]
    fn what_is_no_number_is_refused() {
        for text in [
            "", "MB/s", "NaN MB/s", "inf", ".5 MB/s", "5. MB/s", "+5 MB/s", "五 MB/s",
        ] {
            let said = rate_error(text);
            assert!(
                said.contains("expected a number and a unit"),
                "{text}: {said}"
            );
        }
        assert_eq!(rate_error("-5 MB/s"), "rate `-5 MB/s` is negative");
        assert_eq!(size_error("-1 B"), "size `-1 B` is negative");
        for text in ["1e3 MB", "1,000 MB", "1_000 MB", "1.2.3 MB"] {
            assert!(size_error(text).contains("unknown unit"), "{text}");
        }
    }

    #[test]
    fn fractions_of_bytes_are_refused() {
        assert_eq!(
            size_error("0.5 B"),
            "size `0.5 B` is not a whole number of bytes"
        );
        assert!(size_error("0.1 KiB").contains("whole number"));
        assert!(size_error("1.0005 kB").contains("whole number"));
        assert!(size_error(&format!("0.{} PB", "3".repeat(60))).contains("whole number"));
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        assert_eq!(
            size_error("18446744073709551616 B"),
            "size `18446744073709551616 B` is too large: the most is 18400 PB"
        );
        assert!(size_error("20000 PB").contains("too large"));
        assert!(size_error(&format!("{} B", "9".repeat(400))).contains("too large"));
        assert!(rate_error(&format!("{} B/s", "9".repeat(400))).contains("too large"));
        assert!(rate_error("2000000 TB/s").contains("too large"));
        assert_eq!(rate("1000000 TB/s"), RATE_MAX);
    }

    #[test]
    fn errors_quote_safely_and_briefly() {
        let said = rate_error(&format!("5 \u{1b}[2J{}", "x".repeat(5000)));
        assert!(!said.contains('\u{1b}') && said.len() < 600, "{said}");
    }
}
