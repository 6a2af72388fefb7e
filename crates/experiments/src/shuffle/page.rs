//! The page that shows the paper's findings beside ours, written from the reports alone.

use std::path::Path;

use super::{ENTRIES, Entry};
use crate::ExperimentError;
use crate::sweep;

/// What stands above the results.
const HEAD: &str = "\
# Shuffles

What [RPC] found and what this project measures, experiment by experiment. All of it is simulated: the planner behind \
`outpour plan shuffle` places reducers and shares bandwidth, and the network carries what hosts can send and receive. \
Schedulers are compared on the same shuffles. The flows of a reducer share its rate in proportion to what they carry and end \
together, under every scheduler: that is good for fair sharing, whose small flows would wait for nobody.

This page is written by `outpour-lab bench shuffle page` from the JSON files that the commands below leave; nothing in \
it is written by hand but what is quoted from the paper, and why ours differs.
";

/// Reads the reports in `input` and writes the page, whose plots are linked relative to it as
/// `plots`.
///
/// # Errors
/// If there is no report at all, or one cannot be read.
pub fn write(input: &Path, plots: &str) -> Result<String, ExperimentError> {
    sweep::page(HEAD, ENTRIES.iter().map(Entry::form), input, plots)
}
