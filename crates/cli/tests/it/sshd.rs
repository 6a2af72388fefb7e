//! A real `sshd` on a loopback port, with keys and configuration of its own.

use std::fs;
use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use tempfile::TempDir;

use crate::support::{Ran, outpour, run, skipped};

/// How often another port is tried when another process took the one that was free.
const ATTEMPTS: usize = 5;

/// A running server; it ends when dropped.
pub(crate) struct Sshd {
    child: Child,
    port: u16,
    dir: TempDir,
}

impl Sshd {
    /// Starts a server; `None`, said loudly, where no `sshd` is installed.
    pub(crate) fn start() -> Option<Self> {
        let Some(program) = program() else {
            skipped("no sshd here; install openssh-server to run this test");
            return None;
        };
        // It wants this directory when it runs as root, and nothing but a start script makes it.
        if rustix::process::geteuid().is_root() {
            fs::create_dir_all("/run/sshd").unwrap();
        }
        let dir = tempfile::Builder::new()
            .prefix("outpour-sshd-")
            .tempdir()
            .unwrap();
        for key in ["host_key", "user_key", "stranger_key"] {
            let made = run(Command::new("ssh-keygen")
                .args(["-q", "-t", "ed25519", "-N", "", "-f"])
                .arg(dir.path().join(key)));
            assert_eq!(made.code, Some(0), "{made:?}");
        }
        fs::copy(
            dir.path().join("user_key.pub"),
            dir.path().join("authorized_keys"),
        )
        .unwrap();
        fs::create_dir(dir.path().join("cache")).unwrap();
        for _ in 0..ATTEMPTS {
            let port = free_port();
            if let Some(child) = listen(&program, dir.path(), port) {
                let sshd = Self { child, port, dir };
                sshd.configure_client();
                return Some(sshd);
            }
        }
        panic!("sshd does not start in {}", dir.path().display());
    }

    /// Where agents keep their copy of the program.
    pub(crate) fn cache(&self) -> PathBuf {
        self.dir.path().join("cache/outpour")
    }

    /// The port it listens on.
    pub(crate) const fn port(&self) -> u16 {
        self.port
    }

    /// A private key the server does not know.
    pub(crate) fn strangers_key(&self) -> PathBuf {
        self.dir.path().join("stranger_key")
    }

    /// An `ssh` that knows every name beginning with `node` as this server.
    pub(crate) fn client(&self) -> PathBuf {
        self.dir.path().join("ssh")
    }

    /// `outpour cast` through an `ssh` that knows every name beginning with `node` as this server.
    pub(crate) fn cast(&self) -> Command {
        let mut command = outpour();
        command.args(["cast", "--ssh"]).arg(self.client());
        command
    }

    /// Replaces what the login shell does before it runs a command.
    pub(crate) fn login_prints(&self, script: &str) {
        // A forced command stands for login files, which belong to the user who runs the test.
        let key = fs::read_to_string(self.dir.path().join("user_key.pub")).unwrap();
        let forced = format!("command=\"{script}; eval \\\"$SSH_ORIGINAL_COMMAND\\\"\" {key}");
        fs::write(self.dir.path().join("authorized_keys"), forced).unwrap();
    }

    /// The host key becomes another one than the client knows.
    pub(crate) fn forget_host_key(&self) {
        fs::write(self.dir.path().join("known_hosts"), "").unwrap();
    }

    /// Processes that were started from the agents' copy of the program and still run.
    pub(crate) fn agents(&self) -> Vec<u32> {
        let cache = self.cache();
        let mut agents: Vec<u32> = fs::read_dir("/proc")
            .unwrap()
            .flatten()
            .filter(|entry| {
                let program = fs::read_link(entry.path().join("exe"));
                program.is_ok_and(|program| program.starts_with(&cache))
            })
            .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
            .collect();
        agents.sort_unstable();
        agents
    }

    fn configure_client(&self) {
        let (dir, port) = (self.dir.path(), self.port);
        let key = fs::read_to_string(dir.join("host_key.pub")).unwrap();
        fs::write(dir.join("known_hosts"), format!("outpour-test {key}")).unwrap();
        let config = format!(
            "Host node*\n HostName 127.0.0.1\n Port {port}\n HostKeyAlias outpour-test\n \
             IdentityFile {0}/user_key\n IdentitiesOnly yes\n IdentityAgent none\n \
             UserKnownHostsFile {0}/known_hosts\n GlobalKnownHostsFile /dev/null\n \
             StrictHostKeyChecking yes\n",
            dir.display()
        );
        fs::write(dir.join("ssh_config"), config).unwrap();
        let wrapper = format!(
            "#!/bin/sh\nexec ssh -F '{}/ssh_config' \"$@\"\n",
            dir.display()
        );
        fs::write(dir.join("ssh"), wrapper).unwrap();
        fs::set_permissions(dir.join("ssh"), fs::Permissions::from_mode(0o755)).unwrap();
    }
}

impl Drop for Sshd {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn program() -> Option<PathBuf> {
    let places = ["/usr/sbin/sshd", "/usr/local/sbin/sshd", "/usr/bin/sshd"];
    places
        .into_iter()
        .map(PathBuf::from)
        .find(|path| path.exists())
}

fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap()
        .port()
}

/// Starts a server; `None` if it cannot have the port.
fn listen(program: &Path, dir: &Path, port: u16) -> Option<Child> {
    let config = format!(
        "Port {port}\nListenAddress 127.0.0.1\nHostKey {0}/host_key\nPidFile none\nUsePAM no\n\
         StrictModes no\nPasswordAuthentication no\nKbdInteractiveAuthentication no\n\
         AuthorizedKeysFile {0}/authorized_keys\nPermitRootLogin yes\nMaxStartups 100\n\
         SetEnv XDG_CACHE_HOME={0}/cache\nPrintMotd no\n",
        dir.display()
    );
    fs::write(dir.join("sshd_config"), config).unwrap();
    let mut child = Command::new(program)
        .args(["-D", "-e", "-f"])
        .arg(dir.join("sshd_config"))
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut errors = BufReader::new(child.stderr.take().unwrap())
        .lines()
        .map_while(Result::ok);
    if !errors.any(|line| line.starts_with("Server listening")) {
        child.wait().unwrap();
        return None;
    }
    // What it says has to be read, or it blocks.
    std::thread::spawn(move || errors.for_each(drop));
    Some(child)
}

/// The report of a cast about one host.
#[track_caller]
pub(crate) fn host<'a>(document: &'a serde_json::Value, name: &str) -> &'a serde_json::Value {
    let hosts = document["hosts"].as_array().unwrap();
    hosts
        .iter()
        .find(|host| host["host"] == name)
        .unwrap_or_else(|| panic!("{name}: {document}"))
}

/// The error of the only host of a cast.
#[track_caller]
pub(crate) fn error(ran: &Ran) -> String {
    ran.json()["hosts"][0]["error"]
        .as_str()
        .unwrap_or_else(|| panic!("{ran:?}"))
        .to_owned()
}
