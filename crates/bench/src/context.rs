//! What the rows share: the program under measurement, room, and baselines that serve several.

use std::cell::OnceCell;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, ensure};
use outpour_core::Bytes;

use crate::cleanup::Place;
use crate::rows::Together;

/// One run.
#[derive(Debug)]
pub(crate) struct Context {
    /// The program under measurement.
    pub(crate) outpour: PathBuf,
    base: PathBuf,
    /// Seconds of the plain copy at the rate of the mesh rows.
    pub(crate) plain_s: OnceCell<f64>,
    /// Processor seconds of the largest simulation.
    pub(crate) simulation_s: OnceCell<f64>,
    /// Two casts at once, and one as large as both.
    pub(crate) together: OnceCell<Together>,
}

impl Context {
    /// A run whose data lies beneath `base`.
    ///
    /// # Errors
    /// If there is no such directory.
    pub(crate) fn new(outpour: PathBuf, base: &Path) -> anyhow::Result<Self> {
        let absolute = |path: &Path| {
            std::fs::canonicalize(path).with_context(|| format!("{}", path.display()))
        };
        Ok(Self {
            outpour: absolute(&outpour)?,
            base: absolute(base)?,
            plain_s: OnceCell::new(),
            simulation_s: OnceCell::new(),
            together: OnceCell::new(),
        })
    }

    /// A directory for one row, gone with the value.
    ///
    /// # Errors
    /// If it cannot be made.
    pub(crate) fn place(&self) -> anyhow::Result<Place> {
        Place::new(&self.base)
    }

    /// Fails unless there are `needed` bytes on the disk.
    ///
    /// # Errors
    /// If there are fewer, saying what to do about it.
    pub(crate) fn room_for(&self, needed: Bytes) -> anyhow::Result<()> {
        let disk = rustix::fs::statvfs(&self.base)?;
        let free = Bytes(disk.f_bavail.saturating_mul(disk.f_frsize));
        ensure!(
            free >= needed,
            "{} has {free} free, this row needs {needed}; make room, or name another directory \
             with --dir",
            self.base.display()
        );
        Ok(())
    }
}
