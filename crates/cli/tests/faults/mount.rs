//! File systems of a test's own.

use std::path::{Path, PathBuf};

use crate::harness::system;
use crate::support::skipped;

/// A file system in memory that is as large as it shall be; gone when dropped.
pub(crate) struct Mount {
    dir: tempfile::TempDir,
}

impl Mount {
    /// `None`, and a loud word, where nothing can be mounted.
    pub(crate) fn new(size: &str) -> Option<Self> {
        let mount = Self {
            dir: tempfile::tempdir().unwrap(),
        };
        let options = format!("size={size}");
        let path = mount.dir.path().to_str().unwrap();
        if system("mount", &["-t", "tmpfs", "-o", &options, "tmpfs", path]) {
            return Some(mount);
        }
        skipped("mounting a file system needs root; a fault of disks is not tested");
        None
    }

    /// A directory on it.
    pub(crate) fn root(&self) -> PathBuf {
        self.path().join("root")
    }

    pub(crate) fn path(&self) -> &Path {
        self.dir.path()
    }

    /// Mounts it anew with other options.
    pub(crate) fn change(&self, options: &str) {
        let options = format!("remount,{options}");
        let path = self.path().to_str().unwrap();
        assert!(system("mount", &["-o", &options, path]), "{options}");
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        system("umount", &["--lazy", self.path().to_str().unwrap()]);
    }
}
