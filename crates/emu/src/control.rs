//! How processes find into a running emulation: a socket in its directory.
//!
//! A request is one line of JSON, and so is its answer. To enter a node one needs descriptors of
//! its namespaces; they are sent with the answer, so that neither process numbers nor mounts of the
//! caller matter.

#![cfg_attr(
    not(test),
    deny(
        clippy::unwrap_used,
        clippy::expect_used,
        clippy::indexing_slicing,
        clippy::arithmetic_side_effects
    )
)]

use std::io::{self, BufRead, BufReader, IoSlice, IoSliceMut, Read, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};
use serde::{Deserialize, Serialize};

use crate::director::Told;
use crate::{EmuError, state};

const SOCKET: &str = "control";

/// How long a line may be; an answer holds a network description.
const LINE_BYTES_MAX: u64 = 64 << 20;

/// How many descriptors come with one answer at most.
const DESCRIPTORS_MAX: usize = 3;

/// How long the other side may take to say its line.
const PATIENCE: Duration = Duration::from_secs(10);

/// What is asked for.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) enum Request {
    /// The namespaces of a node.
    Enter { node: String },
    /// The first process has made its mounts: from now on others share them.
    Ready,
    /// Says a word, and waits up to so many milliseconds for it to be heard.
    Tell { word: String, wait_ms: u64 },
    /// The network as it is now.
    Network,
}

/// What is answered.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) enum Answer {
    /// The node's whole name. The descriptors are its network namespace and, once the first
    /// process is ready, that one's namespaces of processes and mounts.
    Entry {
        node: String,
        hosts: PathBuf,
    },
    Done,
    Heard,
    Remembered,
    Ignored,
    Network(String),
    Refused(String),
}

/// What a node consists of, for a process that enters it.
#[derive(Debug)]
pub(crate) struct Entry {
    pub(crate) node: String,
    pub(crate) hosts: PathBuf,
    pub(crate) net: OwnedFd,
    /// The namespaces of processes and of mounts.
    pub(crate) shared: Option<(OwnedFd, OwnedFd)>,
}

pub(crate) fn listen(dir: &Path) -> Result<UnixListener, EmuError> {
    let path = dir.join(SOCKET);
    UnixListener::bind(&path).map_err(EmuError::system(format!("listen at {}", path.display())))
}

/// Answers one caller.
pub(crate) fn serve<'f>(
    stream: &UnixStream,
    answer: impl FnOnce(Request) -> (Answer, Vec<BorrowedFd<'f>>),
) -> io::Result<()> {
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    let request = serde_json::from_str(&read_line(stream)?)?;
    let (answer, descriptors) = answer(request);
    let mut line = serde_json::to_string(&answer)?;
    line.push('\n');
    send(stream, line.as_bytes(), &descriptors)
}

fn send(stream: &UnixStream, mut bytes: &[u8], descriptors: &[BorrowedFd<'_>]) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_MAX))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    if !descriptors.is_empty() {
        ancillary.push(SendAncillaryMessage::ScmRights(descriptors));
    }
    let flags = SendFlags::NOSIGNAL;
    let sent = sendmsg(stream, &[IoSlice::new(bytes)], &mut ancillary, flags)?;
    bytes = bytes.get(sent..).unwrap_or(&[]);
    (&mut &*stream).write_all(bytes)
}

fn read_line(stream: &UnixStream) -> io::Result<String> {
    let mut line = String::new();
    BufReader::new(stream.take(LINE_BYTES_MAX)).read_line(&mut line)?;
    if line.is_empty() {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    Ok(line)
}

/// A client of a running emulation.
///
/// ```no_run
/// use std::time::Duration;
/// let emulation = outpour_emu::Client::find()?;
/// emulation.tell("start", Duration::ZERO)?;
/// # Ok::<(), outpour_emu::EmuError>(())
/// ```
#[derive(Clone, Debug)]
pub struct Client {
    dir: PathBuf,
}

impl Client {
    /// The emulation this process is in or, if it is in none, the only one of this machine.
    ///
    /// # Errors
    /// If there is none, or several and the environment names none.
    pub fn find() -> Result<Self, EmuError> {
        Ok(Self {
            dir: state::find()?,
        })
    }

    /// The emulation this process is in, by the environment.
    pub fn inside() -> Option<Self> {
        let dir = std::env::var_os(state::VARIABLE)?.into();
        Some(Self { dir })
    }

    /// Its directory, as the environment names it.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Says `word` to the script; waits at most `patience` until the script hears it.
    ///
    /// # Errors
    /// If there is no emulation any more.
    pub fn tell(&self, word: &str, patience: Duration) -> Result<Told, EmuError> {
        let request = Request::Tell {
            word: word.to_owned(),
            wait_ms: patience.as_millis().try_into().unwrap_or(u64::MAX),
        };
        match self.ask(&request, patience)?.0 {
            Answer::Heard => Ok(Told::Heard),
            Answer::Remembered => Ok(Told::Remembered),
            Answer::Ignored => Ok(Told::Ignored),
            other => Err(unexpected(other)),
        }
    }

    /// The network as the script has made it by now, in TOML.
    ///
    /// # Errors
    /// If there is no emulation any more.
    pub fn network(&self) -> Result<String, EmuError> {
        match self.ask(&Request::Network, Duration::ZERO)?.0 {
            Answer::Network(text) => Ok(text),
            other => Err(unexpected(other)),
        }
    }

    pub(crate) fn enter(&self, node: &str) -> Result<Entry, EmuError> {
        let node = node.to_owned();
        let (answer, descriptors) = self.ask(&Request::Enter { node }, Duration::ZERO)?;
        let mut descriptors = descriptors.into_iter();
        match (answer, descriptors.next()) {
            (Answer::Entry { node, hosts }, Some(net)) => Ok(Entry {
                node,
                hosts,
                net,
                shared: descriptors.next().zip(descriptors.next()),
            }),
            (answer, _) => Err(unexpected(answer)),
        }
    }

    pub(crate) fn ready(&self) -> Result<(), EmuError> {
        match self.ask(&Request::Ready, Duration::ZERO)?.0 {
            Answer::Done => Ok(()),
            other => Err(unexpected(other)),
        }
    }

    fn ask(&self, request: &Request, wait: Duration) -> Result<(Answer, Vec<OwnedFd>), EmuError> {
        let path = self.dir.clone();
        let gone = |source| EmuError::NotRunning { path, source };
        let stream = UnixStream::connect(self.dir.join(SOCKET)).map_err(gone)?;
        self.converse(&stream, request, wait)
            .map_err(EmuError::system("speak with the emulator"))
    }

    fn converse(
        &self,
        stream: &UnixStream,
        request: &Request,
        wait: Duration,
    ) -> io::Result<(Answer, Vec<OwnedFd>)> {
        stream.set_write_timeout(Some(PATIENCE))?;
        // Longer waits than a day are as good as none without an end.
        let wait = wait.min(Duration::from_secs(86_400));
        stream.set_read_timeout(Some(PATIENCE.saturating_add(wait)))?;
        let mut line = serde_json::to_string(request)?;
        line.push('\n');
        (&mut &*stream).write_all(line.as_bytes())?;

        let mut first = [0; 4096];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_MAX))];
        let mut ancillary = RecvAncillaryBuffer::new(&mut space);
        let flags = RecvFlags::CMSG_CLOEXEC;
        let buffers = &mut [IoSliceMut::new(&mut first)];
        let received = recvmsg(stream.as_fd(), buffers, &mut ancillary, flags)?;
        let mut descriptors = Vec::new();
        for message in ancillary.drain() {
            if let RecvAncillaryMessage::ScmRights(rights) = message {
                descriptors.extend(rights);
            }
        }
        let mut text = first.to_vec();
        text.truncate(received.bytes);
        stream.take(LINE_BYTES_MAX).read_to_end(&mut text)?;
        Ok((serde_json::from_slice(&text)?, descriptors))
    }
}

fn unexpected(answer: Answer) -> EmuError {
    match answer {
        Answer::Refused(why) => EmuError::Refused(why),
        other => EmuError::Refused(format!("the emulator answered {other:?}")),
    }
}
