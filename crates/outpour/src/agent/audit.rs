//! The file of audits: a line of JSON for what operators ask of a service and what comes of it.
//!
//! A thread of its own writes it, so that neither a full disk nor one that hangs stops a cast. What
//! cannot be written is said, and how much of it there was stands in the file when it can be.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::{Duration, SystemTime};

use outpour_agent::session::Audited;
use outpour_net::trust::shown;
use serde::Serialize;
use tokio::sync::oneshot;

use super::event::Teller;
use super::{AgentError, ServiceEvent};

/// How many lines wait for the disk; of more, only the number is kept.
const LINES_MAX: usize = 1024;

/// How long the last lines are waited for when a service ends.
const LAST_WAIT: Duration = Duration::from_secs(2);

/// A line of the file.
#[derive(Serialize)]
struct Line<'a> {
    time: String,
    #[serde(flatten)]
    what: What<'a>,
}

#[derive(Serialize)]
#[serde(untagged)]
enum What<'a> {
    Audited(&'a Audited),
    Lost {
        /// How many lines are missing here.
        lost: u64,
    },
}

impl Line<'_> {
    fn text(what: What<'_>) -> String {
        let time = shown(SystemTime::now());
        // Plain data with text keys always serialises.
        let text = serde_json::to_string(&Line { time, what }).unwrap_or_default();
        debug_assert!(!text.contains('\n'), "a line is one");
        text + "\n"
    }
}

/// The end of the queue at which lines come in.
#[derive(Clone)]
pub(super) struct AuditFile {
    lines: SyncSender<String>,
    lost: Arc<AtomicU64>,
}

/// Tells when everything was written.
pub(super) struct Written(oneshot::Receiver<()>);

impl Written {
    /// Waits until every line is in the file whose sender is gone, but not for ever.
    pub(super) async fn wait(self) {
        let _ = tokio::time::timeout(LAST_WAIT, self.0).await;
    }
}

impl AuditFile {
    /// Opens a file to which lines are added; one that is made is for its owner's eyes only.
    pub(super) fn open(path: &Path, teller: Teller) -> Result<(Self, Written), AgentError> {
        let failed = |error| AgentError::Audit {
            path: path.to_owned(),
            error,
        };
        let file = Open::at(path).map_err(failed)?;
        let (sender, receiver) = sync_channel(LINES_MAX);
        let lost = Arc::<AtomicU64>::default();
        let (done, written) = oneshot::channel();
        let count = lost.clone();
        std::thread::Builder::new()
            .name("audit".to_owned())
            .spawn(move || {
                write_all(file, &receiver, &count, &teller);
                let _ = done.send(());
            })
            .map_err(failed)?;
        let lines = sender;
        Ok((Self { lines, lost }, Written(written)))
    }

    /// Writes something down soon; never waits.
    pub(super) fn note(&self, audited: &Audited) {
        let line = Line::text(What::Audited(audited));
        if self.lines.try_send(line).is_err() {
            self.lost.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// Writes lines until nobody has any more.
fn write_all(mut file: Open, lines: &Receiver<String>, lost: &AtomicU64, teller: &Teller) {
    let mut failing = false;
    for line in lines {
        let missing = lost.swap(0, Ordering::Relaxed);
        let before = match missing {
            0 => String::new(),
            lost => Line::text(What::Lost { lost }),
        };
        match file.add(&(before + &line)) {
            Ok(()) => failing = false,
            Err(error) => {
                lost.fetch_add(missing + 1, Ordering::Relaxed);
                if !std::mem::replace(&mut failing, true) {
                    let error = error.to_string();
                    teller.tell(ServiceEvent::NotAudited { error });
                }
            }
        }
    }
    // Nothing comes any more that would say so.
    let missing = lost.load(Ordering::Relaxed);
    if missing > 0 && file.add(&Line::text(What::Lost { lost: missing })).is_ok() {
        lost.fetch_sub(missing, Ordering::Relaxed);
    }
}

/// The file, open.
struct Open {
    path: PathBuf,
    file: File,
}

impl Open {
    fn at(path: &Path) -> io::Result<Self> {
        let mut options = OpenOptions::new();
        let file = options.append(true).create(true).mode(0o600).open(path)?;
        let path = path.to_owned();
        Ok(Self { path, file })
    }

    /// Adds lines: all of them, or nothing.
    fn add(&mut self, lines: &str) -> io::Result<()> {
        let mut metadata = self.file.metadata()?;
        // Whoever rotates logs moves the file away.
        let id = |metadata: &fs::Metadata| (metadata.dev(), metadata.ino());
        if fs::metadata(&self.path).map_or(true, |there| id(&there) != id(&metadata)) {
            *self = Self::at(&self.path)?;
            metadata = self.file.metadata()?;
        }
        let written = self.file.write_all(lines.as_bytes());
        if written.is_err() && metadata.is_file() {
            // Half a line would spoil the next one.
            self.file.set_len(metadata.len())?;
        }
        written
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::super::event::queue;
    use super::*;

    fn audited(path: &str) -> Audited {
        let text = format!(
            r#"{{"operator":"ana","serial":"4f","address":"10.0.0.1","task":"receive","object":"m",
            "id":"00","path":"{path}","verdict":"accepted","why":null}}"#
        );
        serde_json::from_str(&text).unwrap()
    }

    fn read_back(path: &Path) -> Vec<serde_json::Value> {
        let text = fs::read_to_string(path).unwrap();
        text.lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect()
    }

    #[tokio::test]
    async fn lines_are_added_to_the_file_that_has_the_name() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("audit.jsonl");
        let (teller, _told) = queue();
        for round in 1..=2 {
            let (file, written) = AuditFile::open(&path, teller.clone()).unwrap();
            file.note(&audited("/srv/x"));
            drop(file);
            written.wait().await;
            let lines = read_back(&path);
            assert_eq!(lines.len(), round);
            assert_eq!(lines[0]["path"], "/srv/x");
            assert!(lines[0]["time"].as_str().unwrap().ends_with('Z'));
        }
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
        // One that was moved away is made anew.
        let mut open = Open::at(&path).unwrap();
        let moved = dir.path().join("audit.jsonl.1");
        fs::rename(&path, &moved).unwrap();
        open.add("{}\n").unwrap();
        assert_eq!((read_back(&moved).len(), read_back(&path).len()), (2, 1));
    }

    #[tokio::test]
    async fn a_full_disk_is_said_once_and_stops_nobody() {
        let full = Path::new("/dev/full");
        let (teller, mut told) = queue();
        let (file, written) = AuditFile::open(full, teller).unwrap();
        (0..3).for_each(|_| file.note(&audited("/srv/x")));
        let lost = file.lost.clone();
        drop(file);
        written.wait().await;
        assert_eq!(lost.load(Ordering::Relaxed), 3);
        let Some(ServiceEvent::NotAudited { error }) = told.next().await else {
            panic!("it says so");
        };
        assert!(error.contains("No space left"), "{error}");
        assert_eq!(told.next().await, None);
    }

    #[test]
    fn what_was_lost_is_counted_in_the_file() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("audit.jsonl");
        let (teller, _told) = queue();
        let (sender, receiver) = sync_channel(LINES_MAX);
        let lost = Arc::new(AtomicU64::new(7));
        sender
            .send(Line::text(What::Audited(&audited("/srv/x"))))
            .unwrap();
        drop(sender);
        write_all(Open::at(&path).unwrap(), &receiver, &lost, &teller);
        let lines = read_back(&path);
        assert_eq!((lines.len(), &lines[0]["lost"]), (2, &7.into()));
        assert_eq!(lost.load(Ordering::Relaxed), 0);
        // Also if no line comes after it.
        let (sender, receiver) = sync_channel::<String>(LINES_MAX);
        drop(sender);
        lost.store(2, Ordering::Relaxed);
        write_all(Open::at(&path).unwrap(), &receiver, &lost, &teller);
        assert_eq!(read_back(&path)[2]["lost"], 2);
    }
}
