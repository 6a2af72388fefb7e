//! What an operator does for services besides casts: new certificates, and who was revoked.

use std::path::Path;
use std::sync::Arc;

use outpour_agent::control::{
    AgentSays, CommandSays, ControlError, Greeting, read_frame, write_frame,
};
use outpour_agent::launch::ControlStream;
use outpour_core::text::escape;
use outpour_net::trust::{Certified, Operator, Revoked};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::{Duration, timeout};

use super::service::{call, unusable};
use super::{LAUNCHES_MAX, ReachError};
use crate::hosts::Destination;

/// How long an agent may take for each answer.
const ANSWER_WAIT: Duration = Duration::from_secs(20);

/// What is to be done for services.
#[derive(Clone, Debug)]
pub struct Keep {
    /// Whether they get new certificates.
    pub renew: bool,
    /// The list of revoked operators that they are to take note of.
    pub revoked: Option<Revoked>,
}

/// Does it for the services on these hosts, as the operator in the directory `trust`. Returns what
/// went wrong with each, in one line, or nothing; in the order of the hosts.
///
/// # Errors
/// If there is no usable identity, or a host names a user.
pub async fn keep(
    trust: &Path,
    hosts: Vec<Destination>,
    what: Keep,
) -> Result<Vec<(String, Result<(), String>)>, ReachError> {
    if let Some(host) = hosts.iter().find(|host| host.user.is_some()) {
        let host = host.name.clone();
        return Err(ReachError::User { host });
    }
    let operator = Operator::load(trust).map_err(|error| unusable(trust, error))?;
    let (what, permits) = (Arc::new(what), Arc::new(Semaphore::new(LAUNCHES_MAX)));
    let mut kept: Vec<(String, Result<(), String>)> = hosts
        .iter()
        .map(|host| (host.name.clone(), Err("it was not called".to_owned())))
        .collect();
    let mut calls = JoinSet::new();
    for (number, host) in hosts.into_iter().enumerate() {
        let (operator, what, permits) = (operator.clone(), what.clone(), permits.clone());
        calls.spawn(async move {
            let _permit = permits.acquire().await;
            (number, keep_one(&host, &operator, &what).await)
        });
    }
    while let Some(called) = calls.join_next().await {
        if let Ok((number, result)) = called {
            kept[number].1 = result;
        }
    }
    Ok(kept)
}

async fn keep_one(host: &Destination, operator: &Operator, what: &Keep) -> Result<(), String> {
    if let Some(list) = &what.revoked {
        let (stream, _) = call(host, operator).await?;
        tell_over(stream, list).await?;
    }
    if what.renew {
        let (stream, agent) = call(host, operator).await?;
        renew_over(stream, operator, agent).await?;
    }
    Ok(())
}

/// Renews the certificate that an agent has shown.
pub(super) async fn renew_over(
    mut stream: ControlStream,
    operator: &Operator,
    agent: Certified,
) -> Result<(), String> {
    match ask(&mut stream, &CommandSays::Renew).await? {
        AgentSays::Request { request } => {
            let operator = operator.clone();
            let signed = tokio::task::spawn_blocking(move || operator.renew(&agent, &request));
            let signed = signed.await.map_err(|panic| panic.to_string())?;
            let certificate = signed.map_err(|error| error.to_string())?;
            let says = CommandSays::Certificate { certificate };
            match answer(&mut stream, &says).await? {
                AgentSays::Renewed => Ok(()),
                other => Err(refusal(other)),
            }
        }
        other => Err(refusal(other)),
    }
}

/// Tells an agent which operators were revoked.
///
/// # Errors
/// If the list, or a later one, does not hold there.
async fn tell_over(mut stream: ControlStream, list: &Revoked) -> Result<(), String> {
    let (number, list) = (list.number(), list.der().to_vec());
    match ask(&mut stream, &CommandSays::Revoked { list }).await? {
        AgentSays::Noted { number: held } if held >= number => Ok(()),
        AgentSays::Noted { number: held } => Err(format!(
            "list {number} of revoked operators does not hold there, but list {held}"
        )),
        other => Err(refusal(other)),
    }
}

/// Says the first thing to an agent, and returns its answer.
async fn ask(stream: &mut ControlStream, says: &CommandSays) -> Result<AgentSays, String> {
    let greeting: Greeting = in_time(read_frame(&mut stream.reader)).await?;
    greeting.check().map_err(|error| error.to_string())?;
    answer(stream, says).await
}

async fn answer(stream: &mut ControlStream, says: &CommandSays) -> Result<AgentSays, String> {
    in_time(write_frame(&mut stream.writer, says)).await?;
    in_time(read_frame(&mut stream.reader)).await
}

async fn in_time<T>(said: impl Future<Output = Result<T, ControlError>>) -> Result<T, String> {
    match timeout(ANSWER_WAIT, said).await {
        Ok(said) => said.map_err(|error| error.to_string()),
        Err(_) => Err(format!(
            "no answer from its agent for {} s",
            ANSWER_WAIT.as_secs()
        )),
    }
}

fn refusal(said: AgentSays) -> String {
    match said {
        AgentSays::Unable { error } => escape(&error).into_owned(),
        _ => ControlError::NotOutpour.to_string(),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use outpour_net::trust::Directory;

    use super::*;

    /// What comes of telling an agent that answers that this list holds.
    async fn told(list: &Revoked, number: u64) -> Result<(), String> {
        let (near, far) = tokio::io::duplex(1 << 16);
        let (reader, writer) = tokio::io::split(near);
        let stream = ControlStream {
            reader: Box::new(reader),
            writer: Box::new(writer),
            host_addrs: Vec::new(),
            seen_from: None,
            guard: Box::new(()),
        };
        let (mut reader, mut writer) = tokio::io::split(far);
        let agent = async {
            write_frame(&mut writer, &Greeting::new([0; 32]))
                .await
                .unwrap();
            read_frame::<CommandSays>(&mut reader).await.unwrap();
            write_frame(&mut writer, &AgentSays::Noted { number })
                .await
                .unwrap();
        };
        let (told, ()) = tokio::join!(tell_over(stream, list), agent);
        told
    }

    #[tokio::test]
    async fn an_agent_that_holds_an_older_list_was_not_told() {
        let dir = tempfile::tempdir().unwrap();
        let trust = Directory::at(dir.path());
        trust.init().unwrap();
        let list = trust.revoke("operator").unwrap().for_agents.unwrap();
        assert_eq!(told(&list, 1).await, Ok(()));
        assert_eq!(told(&list, 2).await, Ok(()));
        assert!(
            told(&list, 0)
                .await
                .unwrap_err()
                .contains("does not hold there")
        );
    }
}
