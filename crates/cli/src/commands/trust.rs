//! `outpour trust`: the identities of operators and of agents that run as a service.

use outpour::launch::{trust_dir, unusable};
use outpour_core::text::escape;
use outpour_net::trust;

use crate::args::TrustCommand;
use crate::out::{self, Failure};

/// Runs the command.
///
/// # Errors
/// If the files cannot be made, or are there already.
pub(super) fn run(command: TrustCommand) -> Result<(), Failure> {
    match command {
        TrustCommand::Init { trust } => {
            let dir = trust_dir(trust.dir.as_deref())?;
            trust::init(&dir).map_err(|error| Failure::from_error(&error))?;
            let dir = dir.display().to_string();
            out::result(format!("{}: an authority and an operator", escape(&dir)));
        }
        TrustCommand::Issue {
            host,
            output,
            trust,
        } => {
            let dir = trust_dir(trust.dir.as_deref())?;
            let issued = trust::issue(&dir, &host, &output);
            issued.map_err(|error| unusable(&dir, error))?;
            let file = output.display().to_string();
            out::result(format!("{}: the agent on {}", escape(&file), escape(&host)));
        }
    }
    Ok(())
}
