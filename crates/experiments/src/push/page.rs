//! The page that shows the paper's findings beside ours, written from the reports alone.

use std::path::Path;

use super::{ENTRIES, Entry};
use crate::ExperimentError;
use crate::sweep;

/// What stands above the results.
const HEAD: &str = "\
# Parallel push

What [PPUSH] found and what this project measures, figure by figure. All of it is simulated packet by packet, with the \
sender, receiver and congestion control that run on hosts; TCP and DCCP, which they are compared with, live in the \
simulator. Drawn moments and sizes are the same for every scheme. Figures over several seeds are means with \
their 95 % confidence interval and the range.

Each experiment consists of independent jobs. `outpour-lab bench push jobs` prints their names, \
`outpour-lab bench push --job NAME` runs one; `contrib/` has scripts for Slurm and Dask. What was done before with the same \
settings by the same program is not done again. The seconds below are those of all jobs in sum. The paper has 200 tasks in 20 instances, and 50 instances of `figure14b`: where a command has \
`--tasks`, `--instances` or `--size-factor`, less was run to save time, and without these options it runs as much as the paper did. \
An instance has the same tasks under every scheme, so factors are taken instance by instance; there is none where a task never ended.

This page is written by `outpour-lab bench push page` from the JSON files that the commands below leave; nothing in \
it is written by hand but what is quoted from the paper, what is set up, and why ours differs.
";

/// Reads the reports in `input` and writes the page, whose plots are linked relative to it as
/// `plots`.
///
/// # Errors
/// If there is no report at all, or one cannot be read.
pub fn write(input: &Path, plots: &str) -> Result<String, ExperimentError> {
    sweep::page(HEAD, ENTRIES.iter().map(Entry::form), input, plots)
}
