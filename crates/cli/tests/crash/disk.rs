//! A disk of its own whose power can be cut.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;

use outpour_system::emulation::{Namespace, unshare};

use crate::harness::{system, wait_until};

/// How ext4 writes data in relation to its journal.
pub(crate) const MODES: [&str; 3] = ["ordered", "journal", "writeback"];

/// What becomes of the file system's journal when the power is cut, as the ioctl's flags number it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Power {
    /// Everything is written first, as if the disk just went away.
    After = 0,
    /// What is in the journal in memory is written first.
    WithLog = 1,
    /// Nothing is written any more.
    Now = 2,
}

/// A file with an ext4 in it, mounted for the calling thread and the processes that it starts; unmounted
/// when dropped, though the file stays.
pub(crate) struct Disk {
    image: PathBuf,
    at: PathBuf,
    mode: &'static str,
}

impl Disk {
    /// `None` where nothing can be mounted.
    pub(crate) fn new(dir: &Path, bytes: u64, mode: &'static str) -> Option<Self> {
        // Whoever makes a mount namespace gets a copy of all that is mounted in his own. There the file
        // system would live on when it is unmounted here, cut off, and be what is mounted again.
        unshare(&[Namespace::Mount]).ok()?;
        if !system("mount", &["--make-rprivate", "/"]) {
            return None;
        }
        let disk = Self {
            image: dir.join("image"),
            at: dir.join("disk"),
            mode,
        };
        fs::create_dir_all(&disk.at).unwrap();
        let _ = fs::remove_file(&disk.image);
        File::create(&disk.image).unwrap().set_len(bytes).unwrap();
        let made = system("mkfs.ext4", &["-q", "-F", "-b", "4096", text(&disk.image)]);
        (made && disk.mount()).then_some(disk)
    }

    fn mount(&self) -> bool {
        let options = format!("loop,data={}", self.mode);
        system(
            "mount",
            &["-o", &options, text(&self.image), text(&self.at)],
        )
    }

    /// Where an agent may write.
    pub(crate) fn root(&self) -> PathBuf {
        self.at.join("root")
    }

    /// Makes everything last that has been written so far.
    pub(crate) fn settle(&self) {
        assert!(system("sync", &["-f", text(&self.at)]));
    }

    /// No call on this file system gets anything to the disk from now on, or from it.
    #[track_caller]
    pub(crate) fn cut(&self, power: Power) {
        // EXT4_IOC_SHUTDOWN, _IOR('X', 125, __u32).
        const SHUTDOWN: &str = "open(my $f, '<', $ARGV[0]) or die qq($!\\n);\
            my $how = pack('L', $ARGV[1]); ioctl($f, 0x8004587D, $how) or die qq($!\\n)";
        let how = (power as u32).to_string();
        let done = Command::new("perl")
            .args(["-e", SHUTDOWN, text(&self.at), &how])
            .output();
        let done = done.unwrap();
        let said = String::from_utf8_lossy(&done.stderr);
        assert!(done.status.success(), "the power cannot be cut: {said}");
    }

    /// Power is back: what was in memory is gone, and the journal is replayed.
    #[track_caller]
    pub(crate) fn restart(&self) {
        wait_until("processes that use the disk to be gone", || self.unmount());
        assert!(self.mount(), "the disk cannot be mounted any more");
    }

    fn unmount(&self) -> bool {
        system("umount", &[text(&self.at)])
    }

    /// Removes it.
    pub(crate) fn remove(self) {
        wait_until("processes that use the disk to be gone", || self.unmount());
        fs::remove_file(&self.image).unwrap();
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        // It may be gone already, or an agent may still use it for a moment.
        if fs::exists(&self.image).unwrap_or(true) {
            system("umount", &["--lazy", text(&self.at)]);
        }
    }
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}
