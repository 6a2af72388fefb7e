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
                if let Err(error) = self.write(&now) {
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

    fn write(&mut self, view: &CastView) -> io::Result<()> {
        let line = Line {
            elapsed_s: view.elapsed.as_secs_f64(),
            phase: view.phase,
            size_bytes: view.size_bytes,
            hosts: hosts(view).collect(),
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
    one.phase != other.phase || !hosts(one).eq(hosts(other))
}
