//! `outpour agent`: one end of a control channel, or a service that accepts them.

use std::io::IsTerminal;
use std::path::Path;
use std::time::Duration;

use outpour::agent::{Agent, AgentError, Service, ServiceEvent, Wrap};
use outpour_core::Rate;
use outpour_core::text::{chain, escape};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::time::timeout;

use super::block_on;
use crate::args::agent::AgentArgs;
use crate::out::{self, Failure};

/// How long a service that is told to end may take to end in order.
const STOP_WAIT: Duration = Duration::from_secs(3);

/// Runs the command, with something between its objects and the data plane if that is given.
///
/// # Errors
/// If the command that started the agent breaks the channel, or the service cannot start.
pub fn run(args: AgentArgs, wrap: Option<Wrap>) -> Result<(), Failure> {
    let agent = args.roots.into_iter().fold(Agent::new(), Agent::root);
    let mut agent = agent
        .listen(args.listen)
        .memory(args.memory)
        .limit(args.limit.unwrap_or(Rate::UNLIMITED));
    if let Some(address) = args.data_listen {
        agent = agent.data_listen(address);
    }
    if let Some(wrap) = wrap {
        agent = agent.wrap(wrap);
    }
    if let Some(file) = args.audit {
        agent = agent.audit(file);
    }
    let keys = args.accept_signed_by.into_iter();
    agent = keys.fold(agent, Agent::accept_signed_by);
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
    // What comes of its casts is written down, unless a disk hangs.
    let _ = timeout(STOP_WAIT, service.stop()).await;
    Ok(())
}

/// Prints what operators ask for, what comes of it, and what goes wrong in a service.
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
