//! Agents started through the system's `ssh`, so that the user's configuration, keys and jump
//! hosts apply: one connection per host, which first carries this program there if it lacks it.

use std::ffi::{OsStr, OsString};
use std::io;
use std::net::IpAddr;
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use outpour_agent::launch::{ControlStream, LaunchError, Launcher, Launching};
use tokio::io::BufReader;
use tokio::process::Command;
use tokio::sync::Semaphore;

use super::bootstrap::{Bootstrap, Fault, Program};
use super::explain::explain;
use super::tail::Tail;
use super::{LAUNCHES_MAX, Reaper, Ssh};
use crate::hosts::Destination;

/// How long `ssh` may take to end and to say why once its connection is useless.
const LAST_WORDS: Duration = Duration::from_secs(2);

/// Defaults of ours; options of the user's come before them, and for `ssh` the first counts.
const OPTIONS: [&str; 9] = [
    // There is no user to answer a question.
    "BatchMode=yes",
    "ConnectTimeout=15",
    "LogLevel=ERROR",
    // What the user's configuration sets up for a login is not wanted here.
    "ClearAllForwardings=yes",
    "PermitLocalCommand=no",
    "RemoteCommand=none",
    "RequestTTY=no",
    // A master left in the background would outlive the cast.
    "ControlMaster=no",
    "EscapeChar=none",
];

/// Starts agents through `ssh`.
pub(super) struct SshLauncher {
    hosts: Arc<[Destination]>,
    options: Arc<Ssh>,
    program: Program,
    permits: Arc<Semaphore>,
    reaper: Reaper,
}

impl SshLauncher {
    /// A launcher for the hosts of a cast, which copies this program to them.
    pub(super) fn new(hosts: &[Destination], ssh: Ssh, program: Program, reaper: Reaper) -> Self {
        Self {
            hosts: hosts.into(),
            options: Arc::new(ssh),
            program,
            permits: Arc::new(Semaphore::new(LAUNCHES_MAX)),
            reaper,
        }
    }
}

impl Launcher for SshLauncher {
    fn launch(&self, host: usize) -> Launching {
        let destination = self.hosts.get(host).cloned();
        let (options, program) = (Arc::clone(&self.options), self.program.clone());
        let (permits, reaper) = (Arc::clone(&self.permits), self.reaper.clone());
        Box::pin(async move {
            let _permit = permits.acquire().await;
            match destination {
                Some(destination) => start(&destination, &options, program, &reaper).await,
                None => Err(LaunchError(format!("there is no host {host}"))),
            }
        })
    }
}

async fn start(
    host: &Destination,
    options: &Ssh,
    program: Program,
    reaper: &Reaper,
) -> Result<ControlStream, LaunchError> {
    let bootstrap = Bootstrap::new(program);
    let mut child = Command::new(&options.program)
        .args(arguments(host, &options.options, &bootstrap.command()))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        // Its own group: Ctrl-C is for this process, which then ends it in order.
        .process_group(0)
        .kill_on_drop(true)
        .spawn()
        .map_err(|error| unstartable(&options.program, &error))?;
    let (Some(mut writer), Some(reader), Some(errors)) =
        (child.stdin.take(), child.stdout.take(), child.stderr.take())
    else {
        return Err(LaunchError("ssh: started without pipes".to_owned()));
    };
    let mut child = reaper.guard(child);
    let mut tail = Tail::follow(errors);
    let mut reader = BufReader::new(reader);
    match bootstrap.run(&mut reader, &mut writer).await {
        Ok(reached) => {
            let mut host_addrs: Vec<IpAddr> = reached.host.into_iter().collect();
            // Behind a jump host both may be good: the address as typed, and as the last hop had it.
            if let Ok(typed) = host.host.parse::<IpAddr>()
                && !host_addrs.contains(&typed)
            {
                host_addrs.push(typed);
            }
            Ok(ControlStream {
                reader: Box::new(reader),
                writer: Box::new(writer),
                host_addrs,
                seen_from: reached.here,
                guard: Box::new(child),
            })
        }
        Err(Fault::Told(line)) => Err(LaunchError(line)),
        Err(Fault::Silent { noise, late }) => {
            drop(writer);
            let status = if late {
                None
            } else {
                child.status(LAST_WORDS).await
            };
            let said = tail.finish(LAST_WORDS).await;
            Err(LaunchError(explain(&said, &noise, status)))
        }
    }
}

/// The arguments of `ssh`; the host follows `--`, so it is never taken for an option.
fn arguments(host: &Destination, options: &[OsString], command: &str) -> Vec<OsString> {
    let mut arguments: Vec<OsString> = ["-T", "-a", "-x"].map(Into::into).into();
    // What the destination itself says comes before any option, for the first counts.
    if let Some(port) = host.port {
        arguments.extend(["-p".into(), port.to_string().into()]);
    }
    let ours = OPTIONS.iter().map(OsStr::new);
    for option in options.iter().map(OsString::as_os_str).chain(ours) {
        arguments.extend(["-o".into(), option.to_owned()]);
    }
    let target = match &host.user {
        Some(user) => format!("{user}@{}", host.host),
        None => host.host.clone(),
    };
    arguments.extend(["--".into(), target.into(), command.into()]);
    arguments
}

fn unstartable(program: &OsStr, error: &io::Error) -> LaunchError {
    let name = program.to_string_lossy();
    let name = outpour_core::text::escape(&name);
    LaunchError(match error.kind() {
        io::ErrorKind::NotFound => {
            format!(
                "{name}: not found; install the OpenSSH client, or name the program that is `ssh`"
            )
        }
        _ => format!("{name}: cannot start: {error}"),
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn the_users_options_come_first_and_the_host_after_the_dashes() {
        let mut hosts = crate::hosts::Destinations::default();
        hosts.add(OsStr::new("ops@[::1]:2222:/x y")).unwrap();
        let hosts = hosts.finish().unwrap();
        let arguments = arguments(&hosts[0], &["ConnectTimeout=60".into()], "run");
        let text: Vec<_> = arguments.iter().map(|one| one.to_str().unwrap()).collect();
        assert_eq!(
            text[..7],
            ["-T", "-a", "-x", "-p", "2222", "-o", "ConnectTimeout=60"]
        );
        assert_eq!(text[text.len() - 3..], ["--", "ops@::1", "run"]);
        let place = |what| text.iter().position(|one| *one == what).unwrap();
        assert!(place("ConnectTimeout=60") < place("ConnectTimeout=15"));
        // The path stays between the agents; no shell ever sees it.
        assert!(text.iter().all(|one| !one.contains("x y")));
    }
}
