//! How a cast goes as lines of JSON, for programs that follow or plot it.

use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use outpour_agent::view::{CastView, HostState, Phase};
use outpour_core::text::escape;
use serde::Serialize;
use tokio::sync::watch;

use crate::out::{self, Failure};

/// Writes down what changes in a cast.
#[derive(Debug)]
pub(crate) struct Record {
    file: File,
    path: PathBuf,
}

/// The cast at one time.
#[derive(Serialize)]
struct Line<'a> {
    elapsed_s: f64,
    phase: Phase,
    size_bytes: u64,
    hosts: Vec<Host<'a>>,
    notices: &'a [String],
}

/// A host at that time.
#[derive(Debug, PartialEq, Eq, Serialize)]
struct Host<'a> {
    host: &'a str,
    state: HostState,
    have_bytes: u64,
    received_bytes: u64,
}

impl Record {
    /// A record in that file, of which nothing is kept.
    ///
    /// # Errors
    /// If it cannot be written.
    pub(crate) fn create(path: &Path) -> Result<Self, Failure> {
        let file = File::create(path).map_err(|error| Failure::Failed(unwritable(path, &error)))?;
        let path = path.to_owned();
        Ok(Self { file, path })
    }

    /// Writes a line whenever something has changed, until the view's sender is gone.
    pub(crate) async fn run(mut self, mut view: watch::Receiver<CastView>) {
        let mut last = None;
        loop {
            let now = view.borrow_and_update().clone();
            if last.as_ref().is_none_or(|last| differs(last, &now)) {
                let known = last.as_ref().map_or(0, |last| last.notices.len());
                if let Err(error) = self.write(&now, known) {
                    // The cast itself is no worse for it.
                    return out::complain(unwritable(&self.path, &error));
                }
                last = Some(now);
            }
            if view.changed().await.is_err() {
                return;
            }
        }
    }

    /// Writes the view as a line; so many of its notices stand in earlier ones.
    fn write(&mut self, view: &CastView, known: usize) -> io::Result<()> {
        let line = Line {
            elapsed_s: view.elapsed.as_secs_f64(),
            phase: view.phase,
            size_bytes: view.size_bytes,
            hosts: hosts(view).collect(),
            notices: view.notices.get(known..).unwrap_or_default(),
        };
        let mut text = serde_json::to_vec(&line)?;
        text.push(b'\n');
        // At once and whole: somebody may be reading.
        self.file.write_all(&text)
    }
}

fn unwritable(path: &Path, error: &io::Error) -> String {
    let path = path.display().to_string();
    format!("{}: cannot write: {error}", escape(&path))
}

fn hosts(view: &CastView) -> impl Iterator<Item = Host<'_>> {
    view.hosts.iter().map(|host| Host {
        host: &host.name,
        state: host.state,
        have_bytes: host.have_bytes,
        received_bytes: host.received_bytes,
    })
}

fn differs(one: &CastView, other: &CastView) -> bool {
    one.phase != other.phase
        || one.notices.len() != other.notices.len()
        || !hosts(one).eq(hosts(other))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::time::Duration;

    use super::*;

    #[tokio::test]
    async fn a_line_is_written_for_whatever_is_new() {
        let view = |at: u64, notices: &[&str]| CastView {
            phase: Phase::Moving,
            hashed_bytes: 7,
            size_bytes: 7,
            protocol: "swarm".to_owned(),
            why: String::new(),
            elapsed: Duration::from_secs(at),
            limit_s: None,
            hosts: Vec::new(),
            notices: notices.iter().map(ToString::to_string).collect(),
        };
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("record");
        let (sender, receiver) = watch::channel(view(1, &["a"]));
        let running = tokio::spawn(Record::create(&path).unwrap().run(receiver));
        let wait = async |count: usize| {
            let written = async {
                while std::fs::read_to_string(&path).unwrap().lines().count() < count {
                    tokio::task::yield_now().await;
                }
            };
            let waited = tokio::time::timeout(Duration::from_secs(10), written).await;
            waited.expect("a line for what is new");
        };
        wait(1).await;
        sender.send_replace(view(2, &["a", "b"]));
        wait(2).await;
        drop(sender);
        running.await.unwrap();
        let said = std::fs::read_to_string(&path).unwrap();
        let said: Vec<serde_json::Value> = said
            .lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect();
        let told: Vec<_> = said.iter().map(|line| &line["notices"]).collect();
        assert_eq!(told, [&serde_json::json!(["a"]), &serde_json::json!(["b"])]);
    }
}
