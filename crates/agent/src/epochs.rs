//! The highest epoch in which a coordinator spoke of each transfer, kept across restarts: an agent
//! that comes back must not obey one that was deposed while it was away.

use std::collections::VecDeque;
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use outpour_core::manifest::STATE_DIR;
use outpour_protocols::coordinator::{Refusal, TransferName};

/// How many transfers are remembered; of more, those that were heard of last.
pub const TRANSFERS_MAX: usize = 1024;
/// Nothing has to be remembered of a transfer whose first coordinator speaks.
const FIRST: u64 = 1;
/// First line of the file.
const HEAD: &str = "outpour epochs 1";
/// A line has a name, a blank, a number and an end.
const LINE_BYTES_MAX: usize = 2 * size_of::<TransferName>() + 1 + 20 + 1;
const FILE_BYTES_MAX: usize = HEAD.len() + 1 + TRANSFERS_MAX * LINE_BYTES_MAX;

/// Why what is to be remembered is not.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EpochsError {
    /// The file cannot be read or written.
    #[error("{}: {error}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// Why.
        error: io::Error,
    },
    /// The file is not one of epochs.
    #[error(
        "{}: line {line} is no epoch of a transfer; if no command waits for this host, remove \
         the file", path.display()
    )]
    Nonsense {
        /// The file.
        path: PathBuf,
        /// The first line that makes no sense.
        line: usize,
    },
    /// Another coordinator has taken over.
    #[error(transparent)]
    Refused(#[from] Refusal),
}

/// See the module.
#[derive(Debug, Default)]
pub struct Epochs {
    /// Where they are kept; nowhere for an agent of one cast, which no other coordinator can reach.
    file: Option<PathBuf>,
    /// Transfers with later coordinators than the first, the one heard of last at the end.
    known: Mutex<VecDeque<(TransferName, u64)>>,
}

impl Epochs {
    /// What an agent remembers that keeps its state beneath this directory.
    ///
    /// # Errors
    /// If there is something that cannot be read.
    pub fn beneath(root: &Path) -> Result<Self, EpochsError> {
        let path = root.join(STATE_DIR).join("epochs");
        let io = |error| EpochsError::Io {
            path: path.clone(),
            error,
        };
        let mut text = Vec::new();
        match File::open(&path) {
            Ok(file) => {
                let most = FILE_BYTES_MAX as u64 + 1;
                file.take(most).read_to_end(&mut text).map_err(io)?;
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Ok(Self {
                    file: Some(path),
                    known: Mutex::default(),
                });
            }
            Err(error) => return Err(io(error)),
        }
        match parse(&text) {
            Ok(known) => Ok(Self {
                file: Some(path),
                known: Mutex::new(known),
            }),
            Err(line) => Err(EpochsError::Nonsense { path, line }),
        }
    }

    fn known(&self) -> MutexGuard<'_, VecDeque<(TransferName, u64)>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// As [`raise`](Self::raise), on a thread that may block.
    pub(crate) async fn raised(
        self: Arc<Self>,
        transfer: TransferName,
        epoch: u64,
    ) -> Result<(), EpochsError> {
        if self.file.is_none() || epoch == FIRST && self.known().is_empty() {
            return self.raise(transfer, epoch);
        }
        let raised = tokio::task::spawn_blocking(move || self.raise(transfer, epoch));
        raised.await.unwrap_or_else(|panic| {
            Err(EpochsError::Io {
                path: PathBuf::new(),
                error: io::Error::other(panic),
            })
        })
    }

    /// Takes note that a coordinator of this epoch speaks of a transfer. It lasts when this returns.
    ///
    /// # Errors
    /// If a later one has spoken, or it cannot be written down.
    pub fn raise(&self, transfer: TransferName, epoch: u64) -> Result<(), EpochsError> {
        let mut known = self.known();
        let place = known.iter().position(|(name, _)| *name == transfer);
        let highest = place.map_or(FIRST, |place| known[place].1);
        if epoch < highest {
            return Err(Refusal::Epoch { epoch, highest }.into());
        }
        if epoch == highest {
            return Ok(());
        }
        let mut next = known.clone();
        if let Some(place) = place {
            next.remove(place);
        }
        while next.len() >= TRANSFERS_MAX {
            next.pop_front();
        }
        next.push_back((transfer, epoch));
        if let Some(path) = &self.file {
            write(path, &next).map_err(|error| EpochsError::Io {
                path: path.clone(),
                error,
            })?;
        }
        *known = next;
        Ok(())
    }
}

fn parse(text: &[u8]) -> Result<VecDeque<(TransferName, u64)>, usize> {
    let text = std::str::from_utf8(text).map_err(|_| 1_usize)?;
    let mut lines = text.lines().zip(1_usize..);
    if lines.next().map(|(head, _)| head) != Some(HEAD) {
        return Err(1);
    }
    let mut known = VecDeque::new();
    for (line, number) in lines {
        let entry = entry(line).filter(|_| known.len() < TRANSFERS_MAX);
        known.push_back(entry.ok_or(number)?);
    }
    Ok(known)
}

fn entry(line: &str) -> Option<(TransferName, u64)> {
    let (name, epoch) = line.split_once(' ')?;
    let name = u128::from_str_radix(name, 16)
        .ok()
        .filter(|_| name.len() == 32)?;
    Some((name.to_be_bytes(), epoch.parse().ok()?))
}

/// Reads arbitrary bytes as a file of epochs, which reads back as it is written; for tests.
pub(crate) fn fuzz(bytes: &[u8]) {
    match parse(bytes) {
        Ok(known) => {
            assert!(known.len() <= TRANSFERS_MAX);
            assert_eq!(parse(print(&known).as_bytes()), Ok(known));
        }
        Err(line) => assert!((1..=bytes.len() + 1).contains(&line)),
    }
}

fn print(known: &VecDeque<(TransferName, u64)>) -> String {
    let mut text = format!("{HEAD}\n");
    for (name, epoch) in known {
        text += &format!("{:032x} {epoch}\n", u128::from_be_bytes(*name));
    }
    debug_assert!(text.len() <= FILE_BYTES_MAX);
    text
}

/// Replaces the file, so that a power cut leaves the old or the new one.
fn write(path: &Path, known: &VecDeque<(TransferName, u64)>) -> io::Result<()> {
    let text = print(known);
    let dir = path.parent().ok_or(io::ErrorKind::InvalidInput)?;
    match fs::DirBuilder::new().mode(0o700).create(dir) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
        _ => {}
    }
    if !fs::symlink_metadata(dir)?.is_dir() {
        return Err(io::ErrorKind::NotADirectory.into());
    }
    let new = path.with_extension("new");
    match fs::remove_file(&new) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut options = File::options();
    let mut file = options
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(&new)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()?;
    fs::rename(&new, path)?;
    File::open(dir)?.sync_all()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn name(number: usize) -> TransferName {
        (number as u128).to_be_bytes()
    }

    fn highest(result: Result<(), EpochsError>) -> Option<u64> {
        match result {
            Err(EpochsError::Refused(Refusal::Epoch { highest, .. })) => Some(highest),
            Ok(()) => None,
            Err(error) => panic!("{error}"),
        }
    }

    #[test]
    fn a_restart_forgets_no_epoch() {
        let dir = tempfile::tempdir().unwrap();
        let epochs = Epochs::beneath(dir.path()).unwrap();
        epochs.raise(name(1), 1).unwrap();
        assert!(!dir.path().join(STATE_DIR).exists(), "nothing to remember");
        epochs.raise(name(1), 5).unwrap();
        epochs.raise(name(2), 2).unwrap();
        drop(epochs);
        let epochs = Epochs::beneath(dir.path()).unwrap();
        assert_eq!(highest(epochs.raise(name(1), 4)), Some(5));
        assert_eq!(highest(epochs.raise(name(1), 5)), None);
        assert_eq!(highest(epochs.raise(name(2), 1)), Some(2));
        assert_eq!(highest(epochs.raise(name(3), 1)), None);
    }

    #[test]
    fn so_many_transfers_are_remembered_and_those_heard_of_last() {
        let dir = tempfile::tempdir().unwrap();
        let epochs = Epochs::beneath(dir.path()).unwrap();
        (0..TRANSFERS_MAX).for_each(|number| epochs.raise(name(number), 2).unwrap());
        epochs.raise(name(0), 3).unwrap();
        epochs.raise(name(TRANSFERS_MAX), 2).unwrap();
        let epochs = Epochs::beneath(dir.path()).unwrap();
        assert_eq!(highest(epochs.raise(name(0), 2)), Some(3));
        assert_eq!(highest(epochs.raise(name(1), 1)), None, "the oldest");
        assert_eq!(highest(epochs.raise(name(2), 1)), Some(2));
    }

    #[test]
    fn a_file_of_something_else_is_refused_with_its_line() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join(STATE_DIR)).unwrap();
        let file = dir.path().join(STATE_DIR).join("epochs");
        let good = format!("{HEAD}\n{:032x} 7\n", 1);
        for (text, line) in [
            ("nonsense".to_owned(), 1),
            (format!("{good}{:031x} 7\n", 2), 3),
            (format!("{good}{:032x} -7\n", 2), 3),
            (good.repeat(2), 3),
            ("x".repeat(2 * FILE_BYTES_MAX), 1),
        ] {
            fs::write(&file, text).unwrap();
            let error = Epochs::beneath(dir.path()).unwrap_err().to_string();
            assert!(
                error.contains(&format!("epochs: line {line} is no")),
                "{error}"
            );
        }
        fs::write(&file, good).unwrap();
        let epochs = Epochs::beneath(dir.path()).unwrap();
        assert_eq!(highest(epochs.raise(name(1), 1)), Some(7));
    }
}
