//! `outpour agent`: one end of a control channel, or a service that accepts them.

mod service;

use std::io::IsTerminal;
use std::sync::Arc;

use outpour::agent::{SessionOptions, everywhere, serve_stdio};
use outpour_agent::Wrap;
use outpour_agent::cast::endpoint;
use outpour_core::Rate;
use outpour_core::text::escape;
use outpour_store::Roots;

use super::block_on;
use crate::args::AgentArgs;
use crate::out::Failure;

/// Runs the command, with something between its objects and the data plane if that is given.
///
/// # Errors
/// If the command that started the agent breaks the channel, or the service cannot start.
pub fn run(args: AgentArgs, wrap: Option<Wrap>) -> Result<(), Failure> {
    for root in &args.roots {
        let fail = |what| {
            let root = root.display().to_string();
            format!("--root {}: {what}", escape(&root))
        };
        if !root.is_absolute() {
            return Err(Failure::Usage(fail("expected an absolute path")));
        }
        if !root.is_dir() {
            return Err(Failure::Failed(fail("there is no such directory")));
        }
    }
    let roots = (!args.roots.is_empty()).then(|| Roots::open(&args.roots));
    let roots = roots
        .transpose()
        .map_err(|error| Failure::Failed(format!("--root {error}")))?;
    let options = SessionOptions {
        roots: roots.map(Arc::new),
        endpoint: None,
        listen: args.data_listen.unwrap_or_else(everywhere),
        wrap,
    };
    let limit = args.limit.unwrap_or(Rate::UNLIMITED);
    match args.identity {
        Some(identity) => block_on(service::run(args.listen, &identity, limit, options)),
        None => block_on(stdio(limit, options)),
    }
}

/// The same with the host's data plane, for all casts, limited in each direction.
///
/// # Errors
/// If there is no port to listen on.
fn with_endpoint(limit: Rate, options: SessionOptions) -> Result<SessionOptions, Failure> {
    let started = endpoint(options.listen, limit);
    let endpoint = started.map_err(|error| Failure::from_error(&error))?;
    Ok(SessionOptions {
        endpoint: Some(endpoint),
        ..options
    })
}

/// Serves the one cast that is spoken of on standard input and output.
async fn stdio(limit: Rate, options: SessionOptions) -> Result<(), Failure> {
    if std::io::stdin().is_terminal() {
        let line = "agent --stdio speaks with `outpour cast`, not with people";
        return Err(Failure::Usage(line.to_owned()));
    }
    let served = serve_stdio(with_endpoint(limit, options)?).await;
    served.map_err(|error| Failure::from_error(&error))
}
