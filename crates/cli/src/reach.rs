//! How the agents of hosts are reached: what was typed, and where this process runs.

use std::path::PathBuf;

use outpour::{Reach, ReachError, Ssh};

use crate::args;
use crate::emulation;
use crate::out::Failure;

/// The file of the running program. The link works when the file was replaced or removed.
const RUNNING: &str = "/proc/self/exe";

/// As asked for, and by `outpour exec` inside an emulation; agents are of this program.
///
/// # Errors
/// If this program does not know where it is.
pub(crate) fn asked(reach: &args::Reach) -> Result<Reach, Failure> {
    if reach.agents {
        let trust = reach.trust.dir.clone();
        return Ok(Reach::Services { trust });
    }
    if emulation::state().is_some() {
        // A node has a /proc of its own.
        let agent = std::env::current_exe()
            .map_err(|error| Failure::Failed(format!("cannot find this program: {error}")))?;
        return Ok(Reach::Emulated { agent });
    }
    Ok(Reach::Ssh(Ssh {
        program: reach.ssh.clone(),
        options: reach.ssh_option.clone(),
        ..Ssh::new(RUNNING)
    }))
}

/// Agents of this program as processes on this machine.
pub(crate) fn local() -> Reach {
    Reach::Local {
        agent: PathBuf::from(RUNNING),
    }
}

impl From<ReachError> for Failure {
    fn from(error: ReachError) -> Self {
        match error {
            ReachError::User { .. } => Self::Usage(error.to_string()),
            ReachError::NoHome => {
                Self::Usage("HOME is not set; name the directory with --trust".to_owned())
            }
            error => Self::from_error(&error),
        }
    }
}
