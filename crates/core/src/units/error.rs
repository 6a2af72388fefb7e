//! What can be wrong with a quantity that a user typed.

use std::fmt;

use crate::text::excerpt;

/// What a text was read as.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Quantity {
    /// An amount of data.
    Size,
    /// An amount of data per second.
    Rate,
    /// A length of time.
    Duration,
}

impl Quantity {
    /// Two spellings of `number` that would have been understood.
    fn examples(self, number: &str) -> String {
        let (first, second) = match self {
            Self::Size => ("MB", "MiB"),
            Self::Rate => ("Mbit/s", "MB/s"),
            Self::Duration => ("ms", "s"),
        };
        format!("`{number} {first}` or `{number} {second}`")
    }
}

impl fmt::Display for Quantity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Size => "size",
            Self::Rate => "rate",
            Self::Duration => "duration",
        })
    }
}

/// Why a text is not the quantity it should be. Messages quote the text, made safe to print.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum UnitError {
    /// There is no number at the start.
    #[error("{quantity} `{text}`: expected a number and a unit such as {}", quantity.examples("10"))]
    NoNumber {
        /// What was expected.
        quantity: Quantity,
        /// What was given.
        text: String,
    },
    /// Quantities are never below zero.
    #[error("{quantity} `{text}` is negative")]
    Negative {
        /// What was expected.
        quantity: Quantity,
        /// What was given.
        text: String,
    },
    /// A number alone.
    #[error("{quantity} `{text}` has no unit: write e.g. {}", quantity.examples(text))]
    NoUnit {
        /// What was expected.
        quantity: Quantity,
        /// What was given.
        text: String,
    },
    /// An unknown unit, or an ambiguous one.
    #[error("{quantity} `{text}`: unknown unit `{unit}`, {hint}")]
    UnknownUnit {
        /// What was expected.
        quantity: Quantity,
        /// What was given.
        text: String,
        /// The part taken as the unit.
        unit: String,
        /// What was probably meant, or the units there are.
        hint: String,
    },
    /// An amount or a time that is not a whole number of its smallest unit.
    #[error("{quantity} `{text}` is not a whole number of {}", match quantity {
        Quantity::Duration => "nanoseconds",
        _ => "bytes",
    })]
    Fraction {
        /// What was expected.
        quantity: Quantity,
        /// What was given.
        text: String,
    },
    /// More than the type can hold.
    #[error("{quantity} `{text}` is too large: the most is {max}")]
    TooLarge {
        /// What was expected.
        quantity: Quantity,
        /// What was given.
        text: String,
        /// The largest value there is, for people.
        max: String,
    },
    /// Parts of a duration that do not go from larger to smaller units.
    #[error("duration `{text}`: write larger units first and each once, e.g. `2 min 30 s`")]
    PartsOutOfOrder {
        /// What was given.
        text: String,
    },
}

impl UnitError {
    /// A number from outside that no rate can have: negative or not a number.
    pub(super) fn not_a_rate(rate: f64) -> Self {
        let (quantity, text) = (Quantity::Rate, format!("{rate} B/s"));
        if rate.is_nan() {
            Self::NoNumber { quantity, text }
        } else {
            Self::Negative { quantity, text }
        }
    }

    pub(super) fn too_large(quantity: Quantity, text: &str, max: impl fmt::Display) -> Self {
        Self::TooLarge {
            quantity,
            text: excerpt(text).into_owned(),
            max: max.to_string(),
        }
    }

    pub(super) fn fraction(quantity: Quantity, text: &str) -> Self {
        Self::Fraction {
            quantity,
            text: excerpt(text).into_owned(),
        }
    }
}
