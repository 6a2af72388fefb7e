//! The events of a cast as lines of JSON, for programs that follow or plot it.

use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use outpour::{Event, Events};
use outpour_core::text;
use outpour_core::text::escape;

use crate::out::{self, Failure};

/// Writes down what changes in a cast.
#[derive(Debug)]
pub(crate) struct Record {
    file: File,
    path: PathBuf,
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

    /// Writes a line for whatever is new, until the last event.
    pub(crate) async fn run(mut self, mut events: Events) {
        let mut last = None;
        while let Some(event) = events.next().await {
            if let (Event::Progress(now), Some(before)) = (&event, &last)
                && !now.is_news(before)
            {
                continue;
            }
            if let Err(error) = self.write(&event) {
                // The cast itself is no worse for it.
                return out::complain(unwritable(&self.path, &error));
            }
            if let Event::Progress(now) = event {
                last = Some(now);
            }
        }
    }

    /// Writes that the cast did not take place.
    pub(crate) fn fail(mut self, error: &outpour::Error) {
        let error = text::chain(error);
        if let Err(error) = self.write(&Event::Failed { error }) {
            out::complain(unwritable(&self.path, &error));
        }
    }

    fn write(&mut self, event: &Event) -> io::Result<()> {
        let mut text = serde_json::to_vec(event)?;
        text.push(b'\n');
        // At once and whole: another process may be reading.
        self.file.write_all(&text)
    }
}

fn unwritable(path: &Path, error: &io::Error) -> String {
    let path = path.display().to_string();
    format!("{}: cannot write: {error}", escape(&path))
}
