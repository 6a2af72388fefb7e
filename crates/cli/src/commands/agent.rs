//! `outpour agent`: one end of a control channel, or a service that accepts them.

use std::io::IsTerminal;
use std::path::Path;

use outpour::agent::{Agent, AgentError, Service, ServiceEvent, Wrap};
use outpour_core::Rate;
use outpour_core::text::{chain, escape};
use tokio::signal::unix::{Signal, SignalKind, signal};

use super::block_on;
use crate::args::AgentArgs;
use crate::out::{self, Failure};

/// Runs the command, with something between its objects and the data plane if that is given.
///
/// # Errors
/// If the command that started the agent breaks the channel, or the service cannot start.
pub fn run(args: AgentArgs, wrap: Option<Wrap>) -> Result<(), Failure> {
    let agent = args.roots.into_iter().fold(Agent::new(), Agent::root);
    let mut agent = agent
        .listen(args.listen)
        .limit(args.limit.unwrap_or(Rate::UNLIMITED));
    if let Some(address) = args.data_listen {
        agent = agent.data_listen(address);
    }
    if let Some(wrap) = wrap {
        agent = agent.wrap(wrap);
    }
    match args.identity {
        Some(identity) => block_on(service(agent, &identity)),
        None => block_on(stdio(agent)),
    }
}

/// Serves the one cast that is spoken of on standard input and output.
async fn stdio(agent: Agent) -> Result<(), Failure> {
    if std::io::stdin().is_terminal() {
        let line = "agent --stdio speaks with `outpour cast`, not with people";
        return Err(Failure::Usage(line.to_owned()));
    }
    Ok(agent.serve_stdio().await?)
}

/// Serves the casts of operators until a signal ends it.
async fn service(agent: Agent, identity: &Path) -> Result<(), Failure> {
    let mut service = agent.start(identity).await?;
    let mut signals = Signals::new()?;
    out::complain(format!("listening on {}", service.local_addr()));
    tokio::select! {
        () = complain(&mut service) => {}
        () = signals.next() => {}
    }
    Ok(())
}

/// Prints what goes wrong in a service.
async fn complain(service: &mut Service) {
    loop {
        match service.next().await {
            ServiceEvent::Began { .. } | ServiceEvent::Ended { error: None, .. } => {}
            event => out::complain(escape(&event.to_string())),
        }
    }
}

impl From<AgentError> for Failure {
    fn from(error: AgentError) -> Self {
        match error {
            AgentError::RelativeRoot { .. } => Self::Usage(format!("--root {error}")),
            AgentError::MissingRoot { .. } | AgentError::Root(_) => {
                Self::Failed(format!("--root {error}"))
            }
            AgentError::Identity(_) => {
                Self::Failed(format!("{}; see `outpour trust issue`", chain(&error)))
            }
            error => Self::from_error(&error),
        }
    }
}

/// The signals that end a service.
struct Signals {
    interrupt: Signal,
    terminate: Signal,
}

impl Signals {
    fn new() -> Result<Self, Failure> {
        let handler = |kind| {
            signal(kind).map_err(|error| {
                Failure::Failed(format!("cannot install signal handlers: {error}"))
            })
        };
        Ok(Self {
            interrupt: handler(SignalKind::interrupt())?,
            terminate: handler(SignalKind::terminate())?,
        })
    }

    async fn next(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
        }
    }
}
