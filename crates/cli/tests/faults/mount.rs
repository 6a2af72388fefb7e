//! File systems of a test's own.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use rustix::fs::{Advice, fadvise};

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

/// A file system on a disk of its own; both are gone when dropped.
pub(crate) struct Disk {
    dir: tempfile::TempDir,
}

impl Disk {
    /// `None`, and a loud word, where nothing can be mounted.
    pub(crate) fn new(bytes: u64) -> Option<Self> {
        let disk = Self {
            dir: tempfile::tempdir().unwrap(),
        };
        let image = disk.dir.path().join("image");
        File::create(&image).unwrap().set_len(bytes).unwrap();
        fs::create_dir_all(disk.copy()).unwrap();
        let (image, copy) = (image.to_str().unwrap(), disk.copy());
        if system("mkfs.ext4", &["-q", image])
            && system("mount", &["-o", "loop", image, copy.to_str().unwrap()])
        {
            fs::remove_dir(copy.join("lost+found")).unwrap();
            return Some(disk);
        }
        skipped("mounting a disk needs root and loop devices; disks that hang are not tested");
        None
    }

    /// A directory beside it, for a host to work in.
    pub(crate) fn root(&self) -> PathBuf {
        self.dir.path().join("root")
    }

    /// Where it is mounted: the host's copy.
    pub(crate) fn copy(&self) -> PathBuf {
        self.root().join("copy")
    }

    /// Flips a bit of a file behind the back of the file system, which then has to ask the disk.
    pub(crate) fn rot(&self, file: &Path, at: u64) {
        let open = File::open(file).unwrap();
        open.sync_all().unwrap();
        let mut sought = [0; 64];
        open.read_exact_at(&mut sought, at).unwrap();
        let image = self.dir.path().join("image");
        let image = File::options().read(true).write(true).open(image).unwrap();
        let mut found = [0; 64];
        // Of the smallest blocks that the file system has.
        let mut places = (0..image.metadata().unwrap().len()).step_by(1024);
        let place =
            places.find(|place| image.read_exact_at(&mut found, *place).is_ok() && found == sought);
        image
            .write_all_at(&[sought[0] ^ 1], place.unwrap())
            .unwrap();
        fadvise(&open, 0, None, Advice::DontNeed).unwrap();
    }

    /// Has it hang: a process that writes or syncs waits in the kernel, and no signal ends that.
    pub(crate) fn freeze(&self) -> Frozen<'_> {
        let copy = self.copy();
        assert!(system("fsfreeze", &["--freeze", copy.to_str().unwrap()]));
        Frozen(self)
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        system("umount", &["--lazy", self.copy().to_str().unwrap()]);
    }
}

/// A disk that hangs until this is dropped; that has to be before those that wait for it are ended.
pub(crate) struct Frozen<'a>(&'a Disk);

impl Drop for Frozen<'_> {
    fn drop(&mut self) {
        system("fsfreeze", &["--unfreeze", self.0.copy().to_str().unwrap()]);
    }
}
