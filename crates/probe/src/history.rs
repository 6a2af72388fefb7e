//! What was measured before, in a file.
//!
//! One document with a series of times and values per figure, each of bounded length. The file is
//! replaced as a whole, so that a crash leaves the old one.

#![cfg_attr(
    not(test),
    deny(
        clippy::unwrap_used,
        clippy::expect_used,
        clippy::indexing_slicing,
        clippy::arithmetic_side_effects
    )
)]

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::forecast::{Forecast, forecast};

/// How many values of a figure are kept.
pub const VALUES_MAX: usize = 200;
/// How many figures a history may have.
pub const SERIES_MAX: usize = 100_000;
/// How large a history's file may be.
pub const FILE_BYTES_MAX: u64 = 256 << 20;

const VERSION: u32 = 1;

/// Why a history cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum HistoryError {
    /// It cannot be read or written.
    #[error("{file}: {error}")]
    Io {
        /// The file.
        file: PathBuf,
        /// Why.
        error: std::io::Error,
    },
    /// It is no history.
    #[error("{file}: not a history of measurements: {why}")]
    Nonsense {
        /// The file.
        file: PathBuf,
        /// What is wrong with it.
        why: String,
    },
}

/// See the module.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct History {
    version: u32,
    /// Unix time in seconds and value, oldest first.
    series: BTreeMap<String, Vec<(f64, f64)>>,
}

impl Default for History {
    fn default() -> Self {
        Self {
            version: VERSION,
            series: BTreeMap::new(),
        }
    }
}

impl History {
    /// Reads a history; an empty one if there is no file yet.
    ///
    /// # Errors
    /// If the file cannot be read, is too large, or something else.
    pub fn load(path: &Path) -> Result<Self, HistoryError> {
        let failed = |error| HistoryError::Io {
            file: path.to_owned(),
            error,
        };
        let nonsense = |why: String| HistoryError::Nonsense {
            file: path.to_owned(),
            why,
        };
        let file = match File::open(path) {
            Ok(file) => file,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                return Ok(Self::default());
            }
            Err(error) => return Err(failed(error)),
        };
        let mut text = Vec::new();
        file.take(FILE_BYTES_MAX + 1)
            .read_to_end(&mut text)
            .map_err(failed)?;
        if text.len() as u64 > FILE_BYTES_MAX {
            return Err(nonsense(format!(
                "larger than {} MiB",
                FILE_BYTES_MAX >> 20
            )));
        }
        Self::read(&text).map_err(nonsense)
    }

    /// Reads what a file says; an error is what is wrong with it.
    pub(crate) fn read(text: &[u8]) -> Result<Self, String> {
        let mut history: Self = serde_json::from_slice(text).map_err(|error| error.to_string())?;
        if history.version != VERSION {
            return Err(format!("of version {}", history.version));
        }
        if history.series.len() > SERIES_MAX {
            return Err(format!("more than {SERIES_MAX} figures"));
        }
        history.series.values_mut().for_each(shorten);
        Ok(history)
    }

    /// Adds a value; what does not fit any more is forgotten.
    pub fn add(&mut self, figure: &str, unix_s: f64, value: f64) {
        if !value.is_finite() {
            return;
        }
        if self.series.len() >= SERIES_MAX && !self.series.contains_key(figure) {
            return;
        }
        let values = self.series.entry(figure.to_owned()).or_default();
        values.push((unix_s, value));
        shorten(values);
    }

    /// All values of a figure, oldest first.
    pub fn values(&self, figure: &str) -> Vec<f64> {
        let values = self.series.get(figure);
        values.map_or_else(Vec::new, |values| values.iter().map(|(_, v)| *v).collect())
    }

    /// What a figure will be next time.
    pub fn forecast(&self, figure: &str) -> Option<Forecast> {
        forecast(&self.values(figure))
    }

    /// Replaces the file.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn save(&self, path: &Path) -> Result<(), HistoryError> {
        let failed = |error| HistoryError::Io {
            file: path.to_owned(),
            error,
        };
        let dir = match path.parent() {
            Some(dir) if !dir.as_os_str().is_empty() => dir,
            _ => Path::new("."),
        };
        let text = serde_json::to_vec(self).map_err(|error| failed(error.into()))?;
        let mut file = tempfile::NamedTempFile::new_in(dir).map_err(failed)?;
        file.write_all(&text).map_err(failed)?;
        file.as_file().sync_all().map_err(failed)?;
        file.persist(path).map_err(|error| failed(error.error))?;
        Ok(())
    }
}

fn shorten(values: &mut Vec<(f64, f64)>) {
    let excess = values.len().saturating_sub(VALUES_MAX);
    values.drain(..excess);
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_history_outlives_its_process_and_stays_short() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("history.json");
        let mut history = History::load(&path).unwrap();
        for n in 0..VALUES_MAX + 50 {
            history.add("a -> b rate", n as f64, 1e6 + n as f64);
        }
        history.add("a -> b rate", 1.0, f64::NAN);
        history.save(&path).unwrap();
        let again = History::load(&path).unwrap();
        assert_eq!(again, history);
        let values = again.values("a -> b rate");
        assert_eq!((values.len(), values[0]), (VALUES_MAX, 1e6 + 50.0));
        let next = again.forecast("a -> b rate").unwrap();
        assert!((next.value - 1e6).abs() < 1000.0, "{next:?}");
        assert_eq!(again.forecast("something else"), None);
    }

    #[test]
    fn what_is_no_history_is_refused_and_not_replaced() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("history.json");
        for text in ["", "{}", r#"{"version": 9, "series": {}}"#, "notes of mine"] {
            std::fs::write(&path, text).unwrap();
            let error = History::load(&path).unwrap_err().to_string();
            assert!(error.contains("not a history of measurements"), "{error}");
        }
    }
}
