//! The near end of `bootstrap.sh`: puts the agent's program on a host through one connection.
//!
//! The two sides take turns, so a tool on the host that reads ahead finds nothing to swallow: the
//! script goes over, the host answers `HAVE` or `NEED`, on `NEED` the program goes over and
//! `READY` comes back, and from then on the connection is the agent's control channel.

use std::net::IpAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use outpour_core::text::escape;
use ring::rand::SecureRandom;
use tokio::io::{AsyncBufRead, AsyncBufReadExt, AsyncWrite, AsyncWriteExt};
use tokio::time::timeout;

/// How long a host may take to answer, from the start of its login to a line of the script.
const ANSWER_WAIT: Duration = Duration::from_secs(60);

/// How much of what login files print is read over in the search for an answer.
const NOISE_BYTES_MAX: usize = 64 << 10;

/// How long a line of the script may be.
const LINE_BYTES_MAX: usize = 4096;

/// How much of the program is sent between two looks at the clock.
const CHUNK_BYTES: usize = 256 << 10;

const SCRIPT: &str = include_str!("bootstrap.sh");

/// The agent's program as hosts get it.
#[derive(Clone)]
pub(super) struct Program {
    bytes: Arc<Vec<u8>>,
    digest: Arc<str>,
}

impl Program {
    /// Reads the program's file.
    ///
    /// # Errors
    /// If it cannot be read.
    pub(super) fn read(path: &Path) -> std::io::Result<Self> {
        std::fs::read(path).map(Self::new)
    }

    fn new(bytes: Vec<u8>) -> Self {
        let digest = ring::digest::digest(&ring::digest::SHA256, &bytes);
        Self {
            bytes: Arc::new(bytes),
            digest: hex(digest.as_ref()).into(),
        }
    }

    /// The script with what it has to know, under a name for its lines that noise cannot guess.
    fn script(&self, nonce: &str) -> String {
        format!(
            "nonce={nonce} version={} digest={} size={} system='{}'\n{SCRIPT}",
            env!("CARGO_PKG_VERSION"),
            self.digest,
            self.bytes.len(),
            system(),
        )
    }
}

/// The command for the host's login shell, whichever shell that is: read the script, run it.
pub(super) fn command(script_bytes: usize) -> String {
    format!("exec sh -c 'eval \"$(head -c {script_bytes})\"'")
}

/// Operating system and architecture this program runs on, as `uname -sm` prints them.
fn system() -> String {
    format!("Linux {}", std::env::consts::ARCH)
}

/// What a host's answer says about the connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Reached {
    /// The host's address that was connected to.
    pub(super) host: Option<IpAddr>,
    /// This end's address as the host sees it.
    pub(super) here: Option<IpAddr>,
}

/// Why no agent came to be.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Fault {
    /// The script itself says why, or the host is of the wrong kind.
    Told(String),
    /// The connection ended or stayed silent; the output instead of an answer.
    Silent { noise: String, late: bool },
}

/// One bootstrap: the script to send and the nonce its answers carry.
pub(super) struct Bootstrap {
    program: Program,
    nonce: String,
    script: String,
}

impl Bootstrap {
    /// Prepares the bootstrap of one host.
    pub(super) fn new(program: Program) -> Self {
        let mut nonce = [0; 8];
        // Without randomness the nonce is all zeros, which only a host that mocks itself prints.
        let _ = ring::rand::SystemRandom::new().fill(&mut nonce);
        let nonce = hex(&nonce);
        let script = program.script(&nonce);
        Self {
            program,
            nonce,
            script,
        }
    }

    /// What the host's login shell is to run.
    pub(super) fn command(&self) -> String {
        command(self.script.len())
    }

    /// Talks to the script until it has become the agent.
    ///
    /// # Errors
    /// If the host refuses, says nothing in time, or ends the connection.
    pub(super) async fn run(
        &self,
        reader: &mut (impl AsyncBufRead + Unpin),
        writer: &mut (impl AsyncWrite + Unpin),
    ) -> Result<Reached, Fault> {
        let mut noise = Noise::default();
        // A failed write means that the host hung up; what it said last says why.
        let _ = self.send(writer, self.script.as_bytes()).await;
        let mut answer = self.answer(reader, &mut noise).await?;
        if answer.word == "NEED" {
            let _ = self.send(writer, &self.program.bytes).await;
            answer = self.answer(reader, &mut noise).await?;
        }
        match answer.word.as_str() {
            "HAVE" | "READY" => Ok(answer.reached()),
            "FAIL" => Err(Fault::Told(escape(&answer.rest).to_string())),
            word => Err(Fault::Told(format!("unexpected answer `{}`", escape(word)))),
        }
    }

    async fn send(&self, writer: &mut (impl AsyncWrite + Unpin), bytes: &[u8]) -> Result<(), ()> {
        for chunk in bytes.chunks(CHUNK_BYTES) {
            match timeout(ANSWER_WAIT, writer.write_all(chunk)).await {
                Ok(Ok(())) => {}
                _ => return Err(()),
            }
        }
        match timeout(ANSWER_WAIT, writer.flush()).await {
            Ok(Ok(())) => Ok(()),
            _ => Err(()),
        }
    }

    /// Reads lines up to the next one that carries the nonce, and checks the host's kind.
    async fn answer(
        &self,
        reader: &mut (impl AsyncBufRead + Unpin),
        noise: &mut Noise,
    ) -> Result<Answer, Fault> {
        let search = async {
            loop {
                let line = line(reader, noise).await?;
                let words = line.strip_prefix("outpour-");
                if let Some(words) = words.and_then(|rest| rest.strip_prefix(&self.nonce)) {
                    return Some(Answer::new(words));
                }
                noise.last = line;
            }
        };
        match timeout(ANSWER_WAIT, search).await {
            Ok(Some(answer)) if answer.system != system() => Err(Fault::Told(format!(
                "the host runs {}, this outpour is for {}",
                escape(&answer.system),
                system()
            ))),
            Ok(Some(answer)) => Ok(answer),
            Ok(None) => Err(Fault::Silent {
                noise: std::mem::take(&mut noise.last),
                late: false,
            }),
            Err(_) => Err(Fault::Silent {
                noise: std::mem::take(&mut noise.last),
                late: true,
            }),
        }
    }
}

/// What came before an answer.
#[derive(Default)]
struct Noise {
    bytes: usize,
    last: String,
}

/// Reads one line; `None` at the end of the stream, or of the patience with noise.
async fn line(reader: &mut (impl AsyncBufRead + Unpin), noise: &mut Noise) -> Option<String> {
    let mut line = Vec::new();
    loop {
        let buffer = reader
            .fill_buf()
            .await
            .ok()
            .filter(|buffer| !buffer.is_empty());
        let Some(buffer) = buffer else {
            let unended = String::from_utf8_lossy(&line).trim().to_owned();
            if !unended.is_empty() {
                noise.last = unended;
            }
            return None;
        };
        let end = buffer.iter().position(|byte| *byte == b'\n');
        let used = end.map_or(buffer.len(), |end| end + 1);
        let room = LINE_BYTES_MAX.saturating_sub(line.len());
        line.extend(buffer.iter().take(used.min(room)));
        reader.consume(used);
        noise.bytes += used;
        if noise.bytes > NOISE_BYTES_MAX {
            return None;
        }
        if end.is_some() {
            return Some(String::from_utf8_lossy(&line).trim().to_owned());
        }
    }
}

/// A line of the script: its word, the host's kind, and what follows.
struct Answer {
    word: String,
    system: String,
    rest: String,
}

impl Answer {
    fn new(line: &str) -> Self {
        let mut words = line.trim_start().splitn(4, ' ');
        let mut next = || words.next().unwrap_or_default().to_owned();
        let (word, name, machine, rest) = (next(), next(), next(), next());
        Self {
            word,
            system: format!("{name} {machine}"),
            rest,
        }
    }

    /// Reads `SSH_CONNECTION`: client address and port, server address and port.
    fn reached(&self) -> Reached {
        let words: Vec<_> = self.rest.split_ascii_whitespace().collect();
        let address = |index: usize| {
            let address: IpAddr = words.get(index)?.parse().ok()?;
            Some(address.to_canonical())
        };
        Reached {
            host: address(2),
            here: address(0),
        }
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::process::Stdio;

    use tokio::io::{AsyncReadExt, BufReader};
    use tokio::process::Command;

    use super::*;

    /// Runs the script in a real `sh` under `env`, with `program` as the program to put there.
    async fn bootstrap(
        program: &Program,
        env: &[(&str, &str)],
        before: &str,
    ) -> Result<(Reached, String), Fault> {
        let bootstrap = Bootstrap::new(program.clone());
        let mut child = Command::new("sh")
            .arg("-c")
            .arg(format!("{before}{}", bootstrap.command()))
            .env_remove("SSH_CONNECTION")
            .envs(env.iter().copied())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut reader = BufReader::new(child.stdout.take().unwrap());
        let mut writer = child.stdin.take().unwrap();
        let reached = bootstrap.run(&mut reader, &mut writer).await?;
        drop(writer);
        let mut rest = String::new();
        reader.read_to_string(&mut rest).await.unwrap();
        Ok((reached, rest))
    }

    /// A program that says how it was called, long enough to need several reads.
    fn program() -> Program {
        let padding = "#".repeat(300_000);
        Program::new(format!("#!/bin/sh\necho \"agent: $*\"; cat\nexit\n{padding}\n").into())
    }

    fn cached(home: &Path) -> Vec<std::path::PathBuf> {
        let mut found: Vec<_> = std::fs::read_dir(home.join("outpour"))
            .unwrap()
            .map(|entry| entry.unwrap().path())
            .collect();
        found.sort();
        found
    }

    #[tokio::test]
    async fn the_program_is_copied_once_and_a_damaged_copy_is_replaced() {
        let home = tempfile::tempdir().unwrap();
        let env = [
            ("XDG_CACHE_HOME", home.path().to_str().unwrap()),
            ("SSH_CONNECTION", "192.0.2.7 50000 ::ffff:192.0.2.9 22"),
        ];
        let program = program();
        let first = bootstrap(&program, &env, "").await.unwrap();
        let reached = Reached {
            host: Some("192.0.2.9".parse().unwrap()),
            here: Some("192.0.2.7".parse().unwrap()),
        };
        assert_eq!(first, (reached, "agent: agent --stdio\n".to_owned()));
        let files = cached(home.path());
        assert_eq!(files.len(), 1, "{files:?}");
        let name = files[0].file_name().unwrap().to_str().unwrap();
        assert_eq!(
            name,
            format!(
                "outpour-{}-{}",
                env!("CARGO_PKG_VERSION"),
                &program.digest[..16]
            )
        );

        let inode = |path: &Path| {
            use std::os::unix::fs::MetadataExt;
            std::fs::metadata(path).unwrap().ino()
        };
        let before = inode(&files[0]);
        bootstrap(&program, &env, "").await.unwrap();
        assert_eq!(inode(&files[0]), before, "copied although it was there");

        std::fs::write(&files[0], "#!/bin/sh\necho evil\n").unwrap();
        let again = bootstrap(&program, &env, "").await.unwrap();
        assert_eq!(again.1, "agent: agent --stdio\n");
        assert_eq!(std::fs::read(&files[0]).unwrap(), *program.bytes);
        assert_eq!(cached(home.path()), files);
    }

    #[tokio::test]
    async fn noise_before_the_answer_is_read_over_up_to_a_bound() {
        let home = tempfile::tempdir().unwrap();
        let env = [("XDG_CACHE_HOME", home.path().to_str().unwrap())];
        let program = program();
        let noisy = "printf 'Welcome!\\noutpour-0 HAVE Linux\\nno newline'; ";
        assert_eq!(
            bootstrap(&program, &env, noisy).await.unwrap().1,
            "agent: agent --stdio\n"
        );
        let short = format!("head -c {} /dev/zero; ", NOISE_BYTES_MAX - 4096);
        assert!(bootstrap(&program, &env, &short).await.is_ok());
        let flood = format!("head -c {} /dev/zero; ", NOISE_BYTES_MAX + 1);
        assert!(matches!(
            bootstrap(&program, &env, &flood).await,
            Err(Fault::Silent { late: false, .. })
        ));
        let gone = bootstrap(&program, &env, "echo 'account locked'; exit 1; ").await;
        let noise = "account locked".to_owned();
        assert_eq!(gone, Err(Fault::Silent { noise, late: false }));
    }

    #[tokio::test]
    async fn a_host_that_cannot_hold_or_run_the_program_says_so() {
        let home = tempfile::tempdir().unwrap();
        let blocked = home.path().join("file");
        std::fs::write(&blocked, "").unwrap();
        let env = [("XDG_CACHE_HOME", blocked.to_str().unwrap())];
        let told = |result: Result<_, Fault>| match result {
            Err(Fault::Told(line)) => line,
            other => panic!("{other:?}"),
        };
        let line = told(bootstrap(&program(), &env, "").await);
        assert!(
            line.starts_with(&format!("cannot write {}/outpour", blocked.display())),
            "{line}"
        );

        let env = [("XDG_CACHE_HOME", home.path().to_str().unwrap())];
        let line = told(bootstrap(&Program::new(b"\0garbage".to_vec()), &env, "").await);
        assert!(line.starts_with("cannot run "), "{line}");

        let bin = home.path().join("bin");
        std::fs::create_dir(&bin).unwrap();
        for tool in ["sh", "uname", "head", "cut", "mkdir"] {
            let found = ["/bin", "/usr/bin"].map(|dir| Path::new(dir).join(tool));
            let found = found.iter().find(|path| path.exists()).unwrap();
            std::os::unix::fs::symlink(found, bin.join(tool)).unwrap();
        }
        let env = [env[0], ("PATH", bin.to_str().unwrap())];
        let line = told(bootstrap(&program(), &env, "").await);
        assert!(
            line.starts_with("needs sha256sum, shasum or openssl"),
            "{line}"
        );

        let uname = bin.join("uname");
        std::fs::remove_file(&uname).unwrap();
        std::fs::write(&uname, "#!/bin/sh\necho Plan9\n").unwrap();
        std::fs::set_permissions(&uname, std::os::unix::fs::PermissionsExt::from_mode(0o755))
            .unwrap();
        let line = told(bootstrap(&program(), &env, "").await);
        assert_eq!(
            line,
            format!(
                "the host runs Plan9 Plan9, this outpour is for {}",
                system()
            )
        );
    }
}
