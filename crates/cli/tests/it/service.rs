//! Agents that run as a service, as processes of their own.

use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, Command, Stdio};

use crate::support::{call, outpour, signal};

/// A running agent; it ends when dropped.
pub(crate) struct Service {
    pub(crate) port: u16,
    child: Child,
    errors: BufReader<ChildStderr>,
}

impl Service {
    /// Starts an agent for the directory `root` on a port of the system's choice.
    pub(crate) fn start(identity: &Path, root: &Path) -> Self {
        Self::start_on(0, identity, root)
    }

    /// Starts an agent on a port that is known to be free.
    pub(crate) fn start_on(port: u16, identity: &Path, root: &Path) -> Self {
        Self::run_by(&[], port, identity, root)
    }

    /// The same as a child of another program, if one is named, whose process becomes the agent's.
    pub(crate) fn run_by(program: &[&str], port: u16, identity: &Path, root: &Path) -> Self {
        Self::run(program, &[], port, identity, root)
    }

    /// The same with further arguments.
    pub(crate) fn run(
        program: &[&str],
        more: &[&str],
        port: u16,
        identity: &Path,
        root: &Path,
    ) -> Self {
        std::fs::create_dir_all(root).unwrap();
        let mut command = outpour();
        if let [name, arguments @ ..] = program {
            command = Command::new(name);
            command.args(arguments).arg(outpour().get_program());
        }
        let mut child = command
            .args(["agent", "--listen", &format!("127.0.0.1:{port}")])
            .args(["--data-listen", "127.0.0.1", "--identity"])
            .arg(identity)
            .arg("--root")
            .arg(root)
            .args(more)
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut errors = BufReader::new(child.stderr.take().unwrap());
        let mut line = String::new();
        errors.read_line(&mut line).unwrap();
        let port = line
            .trim()
            .rsplit_once(':')
            .and_then(|(_, port)| port.parse().ok());
        let port = port.unwrap_or_else(|| panic!("the agent says {line:?}"));
        Self {
            port,
            child,
            errors,
        }
    }

    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Ends the agent in order and returns what went wrong by its own account.
    pub(crate) fn stop(self) -> String {
        let (mut wrong, audited) = (String::new(), "outpour: audit: ");
        for line in self
            .stop_all()
            .lines()
            .filter(|line| !line.starts_with(audited))
        {
            wrong += &format!("{line}\n");
        }
        wrong
    }

    /// Ends the agent in order and returns all that it said.
    pub(crate) fn stop_all(mut self) -> String {
        signal(self.id(), "TERM");
        assert_eq!(self.child.wait().unwrap().code(), Some(0));
        let mut said = String::new();
        self.errors.read_to_string(&mut said).unwrap();
        said
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Makes a trust directory and the identity of the agent on 127.0.0.1.
pub(crate) fn trust(place: &Path, name: &str) -> (PathBuf, PathBuf) {
    let (dir, identity) = (place.join(name), place.join(format!("{name}-agent.pem")));
    call(["trust", "init", "--trust", dir.to_str().unwrap()]).expect(0);
    issue(&dir, "127.0.0.1", &identity);
    (dir, identity)
}

/// Makes the identity of the agent on `host`.
pub(crate) fn issue(trust: &Path, host: &str, identity: &Path) {
    let (trust, identity) = (trust.to_str().unwrap(), identity.to_str().unwrap());
    call([
        "trust", "issue", host, "--output", identity, "--trust", trust,
    ])
    .expect(0);
}
