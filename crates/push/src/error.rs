//! What can be wrong with options.

/// Why a machine cannot be made, or an option not be set.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A number that the machine is not defined for.
    #[error("`{field}` is {value}: expected {expected}")]
    OutOfRange {
        /// The option, as its field is called.
        field: &'static str,
        /// What was given.
        value: f64,
        /// What it has to be.
        expected: &'static str,
    },
    /// An option of congestion control.
    #[error(transparent)]
    Congestion(#[from] outpour_congestion::OptionError),
}

impl Error {
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
