//! Values of arguments: quantities with units, and what they must be.

use std::time::Duration;

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use outpour::{NetError, PublicKey};
use outpour_core::manifest::{BLOCK_BYTES_MAX, BLOCK_BYTES_MIN};
use outpour_core::units::{UnitError, parse_duration};
use outpour_core::{Bytes, Priority, Rate, Separation};
use outpour_protocols::gossip::Schedule;

/// A size such as `10 GB`.
pub(crate) fn size(text: &str) -> Result<Bytes, UnitError> {
    text.parse()
}

/// Memory for casts; with less, blocks of the usual sizes do not fit.
pub(crate) fn memory(text: &str) -> Result<Bytes, String> {
    const LEAST: Bytes = Bytes(64 << 20);
    let memory: Bytes = text.parse().map_err(|error: UnitError| error.to_string())?;
    if memory < LEAST {
        return Err(format!("expected at least {LEAST:#}"));
    }
    Ok(memory)
}

/// A duration such as `30 s`.
pub(crate) fn duration(text: &str) -> Result<Duration, UnitError> {
    parse_duration(text)
}

/// How long something is waited for.
pub(crate) fn patience(text: &str) -> Result<Duration, String> {
    let patience = duration(text).map_err(|error| error.to_string())?;
    if patience.is_zero() {
        return Err("within no time every host would be given up".to_owned());
    }
    Ok(patience)
}

/// A share of links, in percent.
pub(crate) fn threshold(text: &str) -> Result<Separation, String> {
    let number = text.trim().trim_end_matches('%').trim_end();
    let percent: f64 = number
        .parse()
        .map_err(|_| "expected a number from 0 to 100".to_owned())?;
    Separation::threshold(percent).map_err(|error| error.to_string())
}

/// How many things there are, of which there has to be one.
pub(crate) fn count(text: &str) -> Result<u64, String> {
    match text.parse() {
        Ok(0) => Err("expected at least 1".to_owned()),
        Ok(count) => Ok(count),
        Err(error) => Err(error.to_string()),
    }
}

/// A rate at which something moves.
pub(crate) fn rate(text: &str) -> Result<Rate, String> {
    let rate: Rate = text.parse().map_err(|error: UnitError| error.to_string())?;
    if rate.is_zero() {
        return Err("at this rate nothing would ever arrive".to_owned());
    }
    Ok(rate)
}

/// The public key of somebody who signs objects.
pub(crate) fn public_key(text: &str) -> Result<PublicKey, String> {
    let wrong = |_| "expected 64 hexadecimal digits, as `outpour trust signer` prints them";
    text.parse()
        .map_err(|error: NetError| wrong(error).to_owned())
}

/// The order in which a gossip moves batches.
pub(crate) fn schedule() -> impl TypedValueParser<Value = Schedule> {
    let name = |schedule: Schedule| {
        PossibleValue::new(schedule.name()).help(match schedule {
            Schedule::Sequential => "a batch begins when all nodes have the one before",
            Schedule::Overlap1 => {
                "a node that has a batch continues with the next; earlier ones take precedence"
            }
            Schedule::Overlap2 => "the next batch begins early and takes precedence for a while",
            Schedule::Stream => "a source sends every block once, batch after batch",
        })
    };
    let found = |text: String| {
        let mut all = Schedule::ALL.into_iter();
        all.find(|schedule| schedule.name() == text)
            .ok_or("there is no such schedule")
    };
    PossibleValuesParser::new(Schedule::ALL.map(name)).try_map(found)
}

/// A cast's share where a host takes part in several.
pub(crate) fn priority() -> impl TypedValueParser<Value = Priority> {
    let names = Priority::ALL.map(Priority::name);
    PossibleValuesParser::new(names).try_map(|name| name.parse::<Priority>())
}

/// The size of a block.
pub(crate) fn block(text: &str) -> Result<u32, String> {
    let size: Bytes = text.parse().map_err(|error: UnitError| error.to_string())?;
    u32::try_from(size.0)
        .ok()
        .filter(|size| size.is_power_of_two())
        .filter(|size| (BLOCK_BYTES_MIN..=BLOCK_BYTES_MAX).contains(size))
        .ok_or_else(|| {
            let (min, max) = (Bytes(BLOCK_BYTES_MIN.into()), Bytes(BLOCK_BYTES_MAX.into()));
            format!("expected a power of two from {min:#} to {max:#}")
        })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn blocks_are_powers_of_two_within_bounds() {
        assert_eq!(block("1 MiB"), Ok(1 << 20));
        assert_eq!(block("1 KiB"), Ok(BLOCK_BYTES_MIN));
        assert_eq!(block("16 MiB"), Ok(BLOCK_BYTES_MAX));
        for text in ["1 MB", "512 B", "32 MiB", "0 B", "8 GiB", "4096"] {
            assert!(block(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_rate_needs_a_unit_and_moves_something() {
        assert_eq!(rate("200 Mbit/s").unwrap().bytes_per_s(), 25e6);
        assert!(rate("200").unwrap_err().contains("unit"));
        assert!(rate("0 MB/s").is_err());
    }
}
