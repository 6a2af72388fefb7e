//! What can be wrong with an option.

/// Why an algorithm cannot be made, or a parameter not be set.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum OptionError {
    /// A number that the algorithm is not defined for.
    #[error("`{field}` is {value}: expected {expected}")]
    OutOfRange {
        /// The option, as its field is called.
        field: &'static str,
        /// What was given.
        value: f64,
        /// What it has to be.
        expected: &'static str,
    },
    /// There is no algorithm of that name.
    #[error("there is no congestion control `{name}`: expected {}", crate::Algorithm::NAMES.join(", "))]
    UnknownAlgorithm {
        /// What was given, its control characters escaped and at most 40 characters of it.
        name: String,
    },
}

impl OptionError {
    /// Makes sure that `value` is in range; NaN never is.
    pub(crate) fn check(
        field: &'static str,
        value: f64,
        is_in_range: bool,
        expected: &'static str,
    ) -> Result<(), Self> {
        match is_in_range {
            true => Ok(()),
            false => Err(Self::OutOfRange {
                field,
                value,
                expected,
            }),
        }
    }
}

/// Checks a number that has to be above 0, such as a weight.
pub(crate) fn positive(field: &'static str, value: f64) -> Result<(), OptionError> {
    let is_in_range = value > 0.0 && value.is_finite();
    OptionError::check(field, value, is_in_range, "a finite number above 0")
}

/// Checks a number that is a share, with or without nothing.
pub(crate) fn share(field: &'static str, value: f64) -> Result<(), OptionError> {
    let is_in_range = (0.0..=1.0).contains(&value);
    OptionError::check(field, value, is_in_range, "a number from 0 to 1")
}

/// Checks the gain of a running average.
pub(crate) fn gain(field: &'static str, value: f64) -> Result<(), OptionError> {
    let is_in_range = value > 0.0 && value <= 1.0;
    OptionError::check(field, value, is_in_range, "a number above 0 and at most 1")
}

/// Checks a window.
pub(crate) fn window(field: &'static str, packets: f64) -> Result<(), OptionError> {
    let is_in_range = (crate::WINDOW_MIN..=crate::WINDOW_MAX).contains(&packets);
    OptionError::check(
        field,
        packets,
        is_in_range,
        "a number of packets from 1 to 2^30",
    )
}
