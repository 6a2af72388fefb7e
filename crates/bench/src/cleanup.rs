//! Leaves nothing behind: no process, no disk, no data, however the run ends short of SIGKILL.

use std::ffi::OsStr;
use std::fs::File;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::sync::{Mutex, MutexGuard, PoisonError};

use anyhow::{Context as _, ensure};
use outpour_core::Bytes;
use rustix::process::{Pid, Signal, kill_process};
use tokio::signal::unix::{SignalKind, signal};

use crate::process::typed;

/// The exit code of a program ended by Ctrl-C, as shells have it.
const EXIT_INTERRUPTED: i32 = 130;

/// What must go when the run ends.
#[derive(Debug)]
struct Mess {
    processes: Vec<Pid>,
    /// Where disks are mounted.
    disks: Vec<PathBuf>,
    places: Vec<PathBuf>,
}

static MESS: Mutex<Mess> = Mutex::new(Mess {
    processes: Vec::new(),
    disks: Vec::new(),
    places: Vec::new(),
});

fn mess() -> MutexGuard<'static, Mess> {
    // A panic elsewhere must not keep the rest from being cleaned up.
    MESS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Cleans up when a signal asks this program to end.
///
/// # Errors
/// If no thread or no signal handler can be had.
pub(crate) fn install() -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_io()
        .build()
        .context("cannot wait for signals")?;
    let kinds = [
        SignalKind::interrupt(),
        SignalKind::terminate(),
        SignalKind::hangup(),
    ];
    let [interrupt, terminate, hangup] = {
        let _inside = runtime.enter();
        kinds.map(signal)
    };
    let (mut interrupt, mut terminate, mut hangup) = (interrupt?, terminate?, hangup?);
    let wait = move || {
        runtime.block_on(async {
            tokio::select! {
                _ = interrupt.recv() => {}
                _ = terminate.recv() => {}
                _ = hangup.recv() => {}
            }
        });
        // Held to the end, so that nothing new is started.
        let mess = mess();
        eprintln!("outpour-bench: interrupted; cleaning up");
        sweep(&mess);
        std::process::exit(EXIT_INTERRUPTED);
    };
    std::thread::Builder::new()
        .name("signals".to_owned())
        .spawn(wait)
        .context("cannot start a thread")?;
    Ok(())
}

fn sweep(mess: &Mess) {
    for pid in &mess.processes {
        let _ = kill_process(*pid, Signal::KILL);
    }
    for disk in &mess.disks {
        // Whether or not it hangs; before that is over nobody who waits for it can end.
        let _ = system("fsfreeze", &["--unfreeze".as_ref(), disk.as_os_str()]);
        let _ = unmount(disk);
    }
    for place in &mess.places {
        // A process that is just dying may still create a file; a second look finds it.
        for _ in 0..2 {
            let _ = std::fs::remove_dir_all(place);
        }
    }
}

/// Starts a process that ends with this program.
///
/// # Errors
/// If it cannot be started.
pub(crate) fn spawn(command: &mut Command) -> std::io::Result<(Child, Pid)> {
    let mut mess = mess();
    let child = command.spawn()?;
    let pid = Pid::from_child(&child);
    mess.processes.push(pid);
    Ok((child, pid))
}

/// Notes that a process has ended; before it is reaped, while its number is surely its own.
pub(crate) fn ended(pid: Pid) {
    mess().processes.retain(|known| *known != pid);
}

/// A directory that is removed with this program.
#[derive(Debug)]
pub(crate) struct Place {
    path: PathBuf,
}

impl Place {
    /// A new directory beneath `base`.
    ///
    /// # Errors
    /// If it cannot be made.
    pub(crate) fn new(base: &Path) -> anyhow::Result<Self> {
        let mut mess = mess();
        let path = tempfile::Builder::new()
            .prefix("outpour-bench-")
            .tempdir_in(base)
            .with_context(|| format!("{}: no directory can be made here", base.display()))?
            .keep();
        mess.places.push(path.clone());
        Ok(Self { path })
    }

    /// Where it is.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if let Err(error) = std::fs::remove_dir_all(&self.path) {
            eprintln!("{}: cannot remove: {error}", self.path.display());
        }
        mess().places.retain(|known| *known != self.path);
    }
}

/// An ext4 in an image, mounted until this is dropped; by then nobody may need it.
#[derive(Debug)]
pub(crate) struct Disk<'a> {
    at: PathBuf,
    /// Holds the image.
    _place: &'a Place,
}

impl<'a> Disk<'a> {
    /// A new one of that size, mounted at `at` in `place`, a directory that it makes.
    ///
    /// # Errors
    /// If it cannot be made or mounted, as by others than root.
    pub(crate) fn new(place: &'a Place, at: &Path, size: Bytes) -> anyhow::Result<Self> {
        let image = at.with_extension("image");
        File::create_new(&image)
            .and_then(|file| file.set_len(size.0))
            .with_context(|| image.display().to_string())?;
        let image = image.as_os_str();
        system("mkfs.ext4", &["-q".as_ref(), image])?;
        std::fs::create_dir(at).with_context(|| at.display().to_string())?;
        let mut mess = mess();
        let options = ["-t", "ext4", "-o", "loop"].map(OsStr::new);
        system("mount", &[&options, &[image, at.as_os_str()][..]].concat())?;
        mess.disks.push(at.to_owned());
        Ok(Self {
            at: at.to_owned(),
            _place: place,
        })
    }

    /// Has it hang: whoever writes or syncs waits in the kernel, and no signal ends that.
    ///
    /// # Errors
    /// If the system refuses.
    pub(crate) fn freeze(&self) -> anyhow::Result<Frozen<'_>> {
        // Locked, so that no disk is left that was about to hang when all were to go.
        let _mess = mess();
        system("fsfreeze", &["--freeze".as_ref(), self.at.as_os_str()])?;
        Ok(Frozen(self))
    }
}

impl Drop for Disk<'_> {
    fn drop(&mut self) {
        let mut mess = mess();
        if let Err(error) = unmount(&self.at) {
            eprintln!("{}: {error:#}", self.at.display());
        }
        mess.disks.retain(|known| *known != self.at);
    }
}

/// A disk that hangs until this is dropped; that has to be before those who wait for it are ended.
#[derive(Debug)]
pub(crate) struct Frozen<'a>(&'a Disk<'a>);

impl Drop for Frozen<'_> {
    fn drop(&mut self) {
        let _mess = mess();
        let at = &self.0.at;
        if let Err(error) = system("fsfreeze", &["--unfreeze".as_ref(), at.as_os_str()]) {
            eprintln!("{}: still hangs: {error:#}", at.display());
        }
    }
}

/// Takes a disk away, for those who still use it when the last of them ends.
fn unmount(at: &Path) -> anyhow::Result<()> {
    system("umount", &["--lazy".as_ref(), at.as_os_str()])
}

/// Runs a command of the system's; Ctrl-C does not reach it.
fn system(program: &str, args: &[&OsStr]) -> anyhow::Result<()> {
    let mut command = Command::new(program);
    let output = command.args(args).process_group(0).output();
    let output = output.with_context(|| format!("{program}: cannot be started"))?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(
        output.status.success(),
        "`{}`: {}: {}",
        typed(program.as_ref(), args),
        output.status,
        said.trim()
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    /// `None`, and a loud word, where nothing can be mounted.
    fn disk<'a>(place: &'a Place, at: &Path) -> Option<Disk<'a>> {
        if !rustix::process::geteuid().is_root() {
            eprintln!("SKIPPED: mounting a disk needs root; disks that hang are not tested");
            return None;
        }
        let disk = Disk::new(place, at, Bytes(16 << 20));
        disk.inspect_err(|error| eprintln!("SKIPPED: {error:#}; disks that hang are not tested"))
            .ok()
    }

    fn is_mounted(at: &Path) -> bool {
        let mounts = std::fs::read_to_string("/proc/self/mounts").unwrap();
        mounts.contains(at.to_str().unwrap())
    }

    #[test]
    fn a_disk_that_hung_works_again_and_goes() {
        let base = tempfile::tempdir().unwrap();
        let place = Place::new(base.path()).unwrap();
        let at = place.path().join("disk");
        let Some(disk) = disk(&place, &at) else {
            return;
        };
        assert!(is_mounted(&at));
        let frozen = disk.freeze().unwrap();
        // It hangs already.
        disk.freeze().unwrap_err();
        drop(frozen);
        std::fs::write(at.join("file"), "late").unwrap();
        drop(disk);
        assert!(!is_mounted(&at));
        drop(place);
        assert_eq!(std::fs::read_dir(base.path()).unwrap().count(), 0);
    }

    #[test]
    fn an_interrupt_leaves_neither_a_disk_nor_who_waits_for_it() {
        let base = tempfile::tempdir().unwrap();
        let place = Place::new(base.path()).unwrap();
        let at = place.path().join("disk");
        let Some(disk) = disk(&place, &at) else {
            return;
        };
        let frozen = disk.freeze().unwrap();
        let mut command = Command::new("/bin/sh");
        command.args(["-c", "echo late >file; exec sleep 600"]);
        let (mut child, pid) = spawn(command.current_dir(&at)).unwrap();
        let mess = Mess {
            processes: vec![pid],
            disks: vec![at.clone()],
            places: vec![place.path().to_owned()],
        };
        sweep(&mess);
        assert!(!child.wait().unwrap().success());
        ended(pid);
        assert!(!is_mounted(&at));
        assert_eq!(std::fs::read_dir(base.path()).unwrap().count(), 0);
        // As after an interrupt, nobody else cleans up.
        std::mem::forget(frozen);
        std::mem::forget(disk);
        std::mem::forget(place);
    }
}
