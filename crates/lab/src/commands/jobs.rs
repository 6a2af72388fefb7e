//! `outpour-lab jobs`: a file of jobs for the simulator.

use outpour_cli::commands::network;
use outpour_cli::out::{self, Failure};
use outpour_core::text::escape;
use outpour_experiments::replicate::workload::{Workload, WorkloadError};

use crate::args::jobs::JobsArgs;

/// Draws jobs and writes them.
///
/// # Errors
/// If the network cannot be read, a value is out of range, or the file cannot be written.
pub(super) fn run(args: &JobsArgs) -> Result<(), Failure> {
    let network = network(&args.network)?;
    let workload = Workload {
        seed: args.seed,
        count: args.count,
        days: args.days,
        scale: args.scale,
    };
    let text = workload.file(&network).map_err(|error| match error {
        WorkloadError::Number(_) => Failure::Usage(format!("`--days`, `--scale`: {error}")),
        error => {
            let file = args.network.display().to_string();
            Failure::Failed(format!("{}: {error}", escape(&file)))
        }
    })?;
    let Some(path) = &args.output else {
        out::result(text.trim_end());
        return Ok(());
    };
    std::fs::write(path, text).map_err(|error| {
        let file = path.display().to_string();
        Failure::Failed(format!("{}: cannot write the jobs: {error}", escape(&file)))
    })
}
