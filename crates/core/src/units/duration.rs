//! Lengths of time: [`std::time::Duration`] is the type, its text form is ours.

#![cfg_attr(
    not(test),
    deny(
        clippy::unwrap_used,
        clippy::expect_used,
        clippy::indexing_slicing,
        clippy::arithmetic_side_effects
    )
)]

use std::time::Duration;

use super::error::{Quantity, UnitError};
use super::parse::{Scaled, Unit, find, number_at_start, split};
use super::print::three_digits;
use crate::text::excerpt;

/// The units of time, in nanoseconds, smallest first.
const TIME_UNITS: &[Unit<u64>] = &[
    ("ns", 1),
    ("us", 1_000),
    ("ms", 1_000_000),
    ("s", 1_000_000_000),
    ("min", 60_000_000_000),
    ("h", 3_600_000_000_000),
    ("d", 86_400_000_000_000),
];

/// From here on people read two units, below it a decimal fraction of one.
const TWO_UNITS_FROM: f64 = 99.95;

/// Reads a duration: `10 ms`, `1.5 s`, `2 min 30 s`. At most some 584 years.
///
/// # Errors
/// If the text is no number with a unit, negative, not a whole number of nanoseconds or too large.
///
/// ```
/// use std::time::Duration;
/// use outpour_core::units::parse_duration;
/// assert_eq!(parse_duration("10 ms"), Ok(Duration::from_millis(10)));
/// assert_eq!(parse_duration("2 min 30 s"), Ok(Duration::from_secs(150)));
/// assert!(parse_duration("10").is_err());
/// ```
pub fn parse_duration(text: &str) -> Result<Duration, UnitError> {
    let quantity = Quantity::Duration;
    let mut rest = text.trim();
    let mut total = Some(0_u64);
    let mut smallest = u64::MAX;
    while !rest.is_empty() || smallest == u64::MAX {
        let (number, tail) = split(quantity, rest)?;
        let end = tail.find(|c: char| c.is_ascii_digit() || c.is_whitespace());
        let (unit, tail) = tail.split_at(end.unwrap_or(tail.len()));
        let tail = tail.trim_start();
        // Only another part may follow; anything else belongs to a unit that does not exist.
        let unit = match number_at_start(tail) {
            None if !tail.is_empty() => rest.trim_start_matches(|c: char| !c.is_alphabetic()),
            _ => unit,
        };
        let nanos = find(quantity, text, unit, TIME_UNITS)?;
        if nanos >= smallest {
            let text = excerpt(text).into_owned();
            return Err(UnitError::PartsOutOfOrder { text });
        }
        total = match (number.times(nanos), total) {
            (Some(Scaled::Fraction), _) => return Err(UnitError::fraction(quantity, text)),
            (Some(Scaled::Whole(part)), Some(total)) => total.checked_add(part),
            _ => None,
        };
        smallest = nanos;
        rest = tail;
    }
    total
        .map(Duration::from_nanos)
        .ok_or_else(|| UnitError::too_large(quantity, text, "213503 d"))
}

/// `time` for people: `12.3 ms`, `1.5 s`, `2 min 5 s`, `3 h 20 min`.
pub fn format_duration(time: Duration) -> String {
    let seconds = time.as_secs_f64();
    if seconds >= TWO_UNITS_FROM {
        return two_units(time);
    }
    for (unit, times) in [("s", 1.0), ("ms", 1e3), ("us", 1e6)] {
        // What rounds up to 1000 of a unit is shown as 1 of the next.
        if seconds * times >= 0.9995 {
            return format!("{} {unit}", three_digits(seconds * times));
        }
    }
    format!("{} ns", time.as_nanos())
}

/// The shortest text in one unit that means exactly `time`, to the nanosecond.
///
/// Times beyond 584 years, which no text can say, come out as that.
pub fn format_duration_exact(time: Duration) -> String {
    let nanos = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
    let (unit, times) = TIME_UNITS
        .iter()
        .rev()
        .find(|(_, times)| nanos >= *times && nanos.is_multiple_of(*times))
        .unwrap_or(&("ns", 1));
    match nanos {
        0 => "0 s".to_owned(),
        _ => format!("{} {unit}", nanos.checked_div(*times).unwrap_or(nanos)),
    }
}

#[allow(
    clippy::arithmetic_side_effects,
    reason = "by numbers that stand here and are not zero"
)]
fn two_units(time: Duration) -> String {
    let half = u64::from(time.subsec_millis() >= 500);
    let seconds = time.as_secs().saturating_add(half);
    let (large, small) = match seconds {
        ..3_600 => (("min", 60), ("s", 1)),
        3_600..86_400 => (("h", 3_600), ("min", 60)),
        _ => (("d", 86_400), ("h", 3_600)),
    };
    // Rounding may fill the larger unit, so it comes before the split.
    let smalls = seconds.saturating_add(small.1 / 2) / small.1;
    let per_large = large.1 / small.1;
    match smalls % per_large {
        0 => format!("{} {}", smalls / per_large, large.0),
        rest => format!("{} {} {rest} {}", smalls / per_large, large.0, small.0),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use proptest::prelude::*;

    use super::*;

    fn error(text: &str) -> String {
        parse_duration(text).unwrap_err().to_string()
    }

    #[test]
    fn one_unit_or_several() {
        for (text, nanos) in [
            ("10 ms", 10_000_000),
            ("1.5 s", 1_500_000_000),
            ("2 min", 120_000_000_000),
            ("250us", 250_000),
            ("0 s", 0),
            ("1h30min", 5_400_000_000_000),
            ("1 min 0.5 s", 60_500_000_000),
            ("0.000000001 s", 1),
        ] {
            assert_eq!(
                parse_duration(text),
                Ok(Duration::from_nanos(nanos)),
                "{text}"
            );
        }
    }

    #[test]
    fn what_is_wrong_is_said() {
        assert_eq!(
            error("10"),
            "duration `10` has no unit: write e.g. `10 ms` or `10 s`"
        );
        assert!(error("").contains("expected a number and a unit"));
        assert!(error("2 min 30").contains("`30` has no unit"));
        assert!(error("30 sec").contains("unknown unit `sec`, write `s`"));
        assert!(error("5 m").contains("write `min`"));
        assert!(error("5 ms x").contains("unknown unit `ms x`"));
        assert!(error("0.5 ns").contains("whole number of nanoseconds"));
        assert!(error("-1 s").contains("negative"));
        assert!(error("5 s 2 min").contains("larger units first"));
        assert!(error("5 s 5 s").contains("each once"));
        assert_eq!(
            error("300000 d"),
            "duration `300000 d` is too large: the most is 213503 d"
        );
    }

    #[test]
    fn people_read_two_units_at_most() {
        for (seconds, text) in [
            (0.0, "0 ns"),
            (1.5, "1.5 s"),
            (0.012_34, "12.3 ms"),
            (0.999_9, "1 s"),
            (99.94, "99.9 s"),
            (99.96, "1 min 40 s"),
            (125.0, "2 min 5 s"),
            (3_599.6, "1 h"),
            (12_000.0, "3 h 20 min"),
            (86_399.0, "24 h"),
            (200_000.0, "2 d 8 h"),
        ] {
            assert_eq!(format_duration(Duration::from_secs_f64(seconds)), text);
        }
        assert_eq!(format_duration(Duration::from_nanos(999)), "999 ns");
    }

    proptest! {
        #[test]
        fn exact_durations_parse_back(nanos: u64, shift in 0..64) {
            let time = Duration::from_nanos(nanos >> shift);
            prop_assert_eq!(parse_duration(&format_duration_exact(time)), Ok(time));
        }

        #[test]
        fn durations_for_people_parse_back_nearly(nanos in 0..u64::MAX / 2, shift in 0..64) {
            let time = Duration::from_nanos(nanos >> shift);
            let back = parse_duration(&format_duration(time)).unwrap();
            prop_assert!(back.abs_diff(time).as_secs_f64() <= 0.022 * time.as_secs_f64());
        }

        #[test]
        fn no_text_makes_the_parser_panic(text in "([0-9.]{0,12} ?[a-zäs]{0,3} ?){0,4}.{0,4}") {
            let _ = parse_duration(&text);
        }
    }
}
