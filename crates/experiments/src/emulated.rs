//! Real agents in the emulator.

use std::fmt;

use crate::report::Panel;
use crate::{ExperimentError, Options};

pub(crate) fn run(
    _options: &Options,
    _progress: &(dyn Fn(fmt::Arguments<'_>) + Sync),
) -> Result<Vec<Panel>, ExperimentError> {
    Err(ExperimentError::Setup(
        "the emulator is not there yet".to_owned(),
    ))
}
