//! The highest epoch in which a coordinator spoke of each transfer, kept across restarts: an agent
//! that comes back must not obey one that was deposed while it was away.
//!
//! A transfer is one operator's: another that learns its random name, as every member does, can neither
//! depose its coordinators nor have them forgotten.

#![cfg_attr(
    not(test),
    deny(
        clippy::unwrap_used,
        clippy::expect_used,
        clippy::indexing_slicing,
        clippy::arithmetic_side_effects
    )
)]

use std::collections::{BTreeMap, VecDeque};
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use outpour_core::manifest::STATE_DIR;
use outpour_net::trust::OPERATOR_BYTES_MAX;
use outpour_protocols::coordinator::{Refusal, TransferName};

/// How many transfers are remembered; of more, the operator that has most loses its oldest.
pub const TRANSFERS_MAX: usize = 1024;
/// Nothing has to be remembered of a transfer whose first coordinator speaks.
const FIRST: u64 = 1;
/// First line of the file.
const HEAD: &str = "outpour epochs 1";
/// A line has a name, a number, an operator, blanks between them, and an end.
const LINE_BYTES_MAX: usize = 2 * size_of::<TransferName>() + 1 + 20 + 1 + OPERATOR_BYTES_MAX + 1;
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
    /// Transfers with later coordinators than the first, the latest at the end.
    known: Mutex<VecDeque<Known>>,
}

/// A transfer with later coordinators than the first.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Known {
    transfer: TransferName,
    epoch: u64,
    /// Empty if it is not known, which an earlier release did not write down.
    operator: String,
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
                let most = FILE_BYTES_MAX.saturating_add(1) as u64;
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

    fn known(&self) -> MutexGuard<'_, VecDeque<Known>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// As [`raise`](Self::raise), on a thread that may block.
    pub(crate) async fn raised(
        self: Arc<Self>,
        operator: &str,
        transfer: TransferName,
        epoch: u64,
    ) -> Result<(), EpochsError> {
        if self.file.is_none() || epoch == FIRST && self.known().is_empty() {
            return self.raise(operator, transfer, epoch);
        }
        let operator = operator.to_owned();
        let raised = tokio::task::spawn_blocking(move || self.raise(&operator, transfer, epoch));
        raised.await.unwrap_or_else(|panic| {
            Err(EpochsError::Io {
                path: PathBuf::new(),
                error: io::Error::other(panic),
            })
        })
    }

    /// Takes note that an operator's coordinator of this epoch speaks of a transfer. It lasts when this
    /// returns.
    ///
    /// # Errors
    /// If a later one has spoken, or it cannot be written down.
    pub fn raise(
        &self,
        operator: &str,
        transfer: TransferName,
        epoch: u64,
    ) -> Result<(), EpochsError> {
        let mut known = self.known();
        let is_theirs = |known: &Known| known.operator == operator || known.operator.is_empty();
        let is_it = |known: &Known| known.transfer == transfer && is_theirs(known);
        let highest = known.iter().filter(|known| is_it(known));
        let highest = highest.map(|known| known.epoch).max().unwrap_or(FIRST);
        if epoch < highest {
            return Err(Refusal::Epoch { epoch, highest }.into());
        }
        if epoch == highest {
            return Ok(());
        }
        let mut next = known.clone();
        next.retain(|known| !is_it(known));
        next.push_back(Known {
            transfer,
            epoch,
            operator: operator.to_owned(),
        });
        while next.len() > TRANSFERS_MAX {
            forget_one(&mut next);
        }
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

/// Forgets the oldest of the operator that has most; of several, of the one that has the oldest.
fn forget_one(known: &mut VecDeque<Known>) {
    let mut counts = BTreeMap::<&str, usize>::new();
    for known in &*known {
        let count = counts.entry(&known.operator).or_default();
        *count = count.saturating_add(1);
    }
    let most = counts.values().max().copied();
    let oldest = known
        .iter()
        .position(|known| counts.get(&*known.operator).copied() == most);
    if let Some(oldest) = oldest {
        known.remove(oldest);
    }
}

fn parse(text: &[u8]) -> Result<VecDeque<Known>, usize> {
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

fn entry(line: &str) -> Option<Known> {
    let (name, rest) = line.split_once(' ')?;
    let (epoch, operator) = match rest.split_once(' ') {
        Some((_, "")) => return None,
        Some(both) => both,
        None => (rest, ""),
    };
    if operator.len() > OPERATOR_BYTES_MAX || operator.contains(char::is_whitespace) {
        return None;
    }
    let name = u128::from_str_radix(name, 16)
        .ok()
        .filter(|_| name.len() == 32)?;
    Some(Known {
        transfer: name.to_be_bytes(),
        epoch: epoch.parse().ok()?,
        operator: operator.to_owned(),
    })
}

/// Reads arbitrary bytes as a file of epochs, which reads back as it is written; for tests.
pub(crate) fn fuzz(bytes: &[u8]) {
    match parse(bytes) {
        Ok(known) => {
            assert!(known.len() <= TRANSFERS_MAX);
            assert_eq!(parse(print(&known).as_bytes()), Ok(known));
        }
        Err(line) => assert!((1..=bytes.len().saturating_add(1)).contains(&line)),
    }
}

fn print(known: &VecDeque<Known>) -> String {
    let mut text = format!("{HEAD}\n");
    for known in known {
        let name = u128::from_be_bytes(known.transfer);
        let line = format!("{name:032x} {} {}", known.epoch, known.operator);
        text += line.trim_end();
        text.push('\n');
    }
    debug_assert!(text.len() <= FILE_BYTES_MAX);
    text
}

/// Replaces the file, so that a power cut leaves the old or the new one.
fn write(path: &Path, known: &VecDeque<Known>) -> io::Result<()> {
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
        epochs.raise("ana", name(1), 1).unwrap();
        assert!(!dir.path().join(STATE_DIR).exists(), "nothing to remember");
        epochs.raise("ana", name(1), 5).unwrap();
        epochs.raise("ana", name(2), 2).unwrap();
        drop(epochs);
        let epochs = Epochs::beneath(dir.path()).unwrap();
        assert_eq!(highest(epochs.raise("ana", name(1), 4)), Some(5));
        assert_eq!(highest(epochs.raise("ana", name(1), 5)), None);
        assert_eq!(highest(epochs.raise("ana", name(2), 1)), Some(2));
        assert_eq!(highest(epochs.raise("ana", name(3), 1)), None);
    }

    #[test]
    fn so_many_transfers_are_remembered_and_those_heard_of_last() {
        let dir = tempfile::tempdir().unwrap();
        let epochs = Epochs::beneath(dir.path()).unwrap();
        (0..TRANSFERS_MAX).for_each(|number| epochs.raise("ana", name(number), 2).unwrap());
        epochs.raise("ana", name(0), 3).unwrap();
        epochs.raise("ana", name(TRANSFERS_MAX), 2).unwrap();
        let epochs = Epochs::beneath(dir.path()).unwrap();
        assert_eq!(highest(epochs.raise("ana", name(0), 2)), Some(3));
        assert_eq!(highest(epochs.raise("ana", name(1), 1)), None, "the oldest");
        assert_eq!(highest(epochs.raise("ana", name(2), 1)), Some(2));
    }

    #[test]
    fn no_operator_touches_what_is_remembered_of_anothers_transfers() {
        let dir = tempfile::tempdir().unwrap();
        let epochs = Epochs::beneath(dir.path()).unwrap();
        epochs.raise("ana", name(1), 2).unwrap();
        epochs.raise("bob", name(1), u64::MAX).unwrap();
        let epochs = Epochs::beneath(dir.path()).unwrap();
        assert_eq!(highest(epochs.raise("ana", name(1), 1)), Some(2));
        assert_eq!(highest(epochs.raise("bob", name(1), 2)), Some(u64::MAX));
        // The rest is not written down each time.
        let known = Mutex::new(epochs.known().clone());
        let epochs = Epochs { file: None, known };
        for number in 2..2 * TRANSFERS_MAX {
            epochs.raise("bob", name(number), 3).unwrap();
        }
        assert_eq!(epochs.known().len(), TRANSFERS_MAX);
        assert_eq!(highest(epochs.raise("ana", name(1), 1)), Some(2));
        assert_eq!(highest(epochs.raise("ana", name(1), 2)), None);
    }

    #[test]
    fn a_file_of_an_earlier_release_counts_for_all() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join(STATE_DIR)).unwrap();
        let file = dir.path().join(STATE_DIR).join("epochs");
        fs::write(&file, format!("{HEAD}\n{:032x} 7\n", 1)).unwrap();
        let epochs = Epochs::beneath(dir.path()).unwrap();
        assert_eq!(highest(epochs.raise("ana", name(1), 6)), Some(7));
        epochs.raise("ana", name(1), 8).unwrap();
        let text = fs::read_to_string(&file).unwrap();
        assert_eq!(text, format!("{HEAD}\n{:032x} 8 ana\n", 1));
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
            (format!("{good}{:032x} 7 \n", 2), 3),
            (format!("{good}{:032x} 7 a b\n", 2), 3),
            (format!("{good}{:032x} 7 {}\n", 2, "a".repeat(65)), 3),
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
        assert_eq!(highest(epochs.raise("ana", name(1), 1)), Some(7));
    }
}
