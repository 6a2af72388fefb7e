//! `outpour agent`: one end of a control channel, or a service that accepts them.

use std::io::IsTerminal;

use outpour_agent::session::{self, SessionOptions};
use outpour_core::text::escape;

use super::{block_on, everywhere};
use crate::args::AgentArgs;
use crate::out::Failure;

/// Runs the command.
///
/// # Errors
/// If the command that started the agent breaks the channel, or the service cannot start.
pub(super) fn run(args: AgentArgs) -> Result<(), Failure> {
    if let Some(root) = args.roots.iter().find(|root| !root.is_absolute()) {
        let root = root.display().to_string();
        return Err(Failure::Usage(format!(
            "--root {}: expected an absolute path",
            escape(&root)
        )));
    }
    let options = SessionOptions {
        roots: (!args.roots.is_empty()).then(|| args.roots.clone()),
        listen: args.data_listen.unwrap_or_else(everywhere),
    };
    if std::io::stdin().is_terminal() {
        let line = "agent --stdio speaks with `outpour cast`, not with people";
        return Err(Failure::Usage(line.to_owned()));
    }
    block_on(async {
        session::serve(tokio::io::stdin(), tokio::io::stdout(), options)
            .await
            .map_err(|error| Failure::from_error(&error))
    })
}
