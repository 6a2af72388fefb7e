//! Entering a running emulation, and the process all others inside live under.

use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command};

use outpour_system::emulation::{self as sys, Namespace};
use rustix::mount::{MountFlags, MountPropagationFlags, mount, mount_bind, mount_change};
use rustix::process::{Signal, WaitOptions, WaitStatus};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use crate::EmuError;
use crate::control::{Client, Entry};
use crate::nodes;

/// The exit code of a process that a signal ended, less the signal's number, as shells have it.
pub const SIGNALLED: i32 = 128;

/// How a command started in a node goes on.
#[derive(Debug)]
pub enum Started {
    /// As a process of its own, to be waited for: the caller came from outside.
    Child(Child),
    /// Not at all.
    Failed(io::Error),
}

/// Runs `command` in a node. If the caller is inside the emulation already, this does not return:
/// the calling process becomes the command. From outside it becomes the command's parent, as a
/// process cannot move among the emulation's processes itself.
///
/// It has to be called before the process has a second thread.
///
/// # Errors
/// If there is no emulation or no such node.
pub fn exec(node: &str, command: &[OsString]) -> Result<Started, EmuError> {
    let client = Client::find()?;
    let Entry {
        node, net, shared, ..
    } = client.enter(node)?;
    let Some((program, arguments)) = command.split_first() else {
        return Err(EmuError::Refused("there is no command to run".to_owned()));
    };
    let what = || EmuError::system(format!("enter node `{node}`"));
    let ours = File::open("/proc/self/ns/pid").map_err(EmuError::system("find its own place"))?;
    let inside = match &shared {
        Some((processes, _)) => are_same(&ours, processes).map_err(what())?,
        None => true,
    };
    let into = |fd, kind| move_into_link_name_space(fd, Some(kind)).map_err(io::Error::from);
    if let Some((processes, mounts)) = &shared
        && !inside
    {
        let here = std::env::current_dir();
        into(mounts.as_fd(), LinkNameSpaceType::Mount).map_err(what())?;
        into(processes.as_fd(), LinkNameSpaceType::ProcessID).map_err(what())?;
        // Entering mounts leads to their root; a directory that is not there leaves us at it.
        let _ = here.and_then(std::env::set_current_dir);
    }
    nodes::enter(net.as_fd()).map_err(what())?;
    take_name(&node);
    let mut command = Command::new(program);
    command
        .args(arguments)
        .env(crate::VARIABLE, client.dir())
        .env(crate::NODE_VARIABLE, &node);
    if inside {
        return Ok(Started::Failed(command.exec()));
    }
    let spawned = command.spawn();
    // Only children went among the processes inside; where they do, no thread can be started.
    into(ours.as_fd(), LinkNameSpaceType::ProcessID).map_err(what())?;
    Ok(spawned.map_or_else(Started::Failed, Started::Child))
}

/// Is the first process of an emulation: makes what all others inside share, runs `command` in
/// `node`, and returns its exit code. When it ends, the system ends every other process inside.
///
/// # Errors
/// If something cannot be made, or the command cannot be started.
pub fn init(node: &str, command: &[OsString]) -> Result<i32, EmuError> {
    // The end of the emulator ends this process, and with it all others inside.
    rustix::process::set_parent_process_death_signal(Some(Signal::KILL))
        .map_err(EmuError::system("end with the emulator"))?;
    let client = Client::find()?;
    let Entry {
        node, hosts, net, ..
    } = client.enter(node)?;
    let what = || EmuError::system(format!("enter node `{node}`"));
    sys::unshare(&[Namespace::Mount]).map_err(what())?;
    let apart = MountPropagationFlags::PRIVATE | MountPropagationFlags::REC;
    mount_change("/", apart).map_err(EmuError::system("keep mounts apart"))?;
    let proc = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
    mount("proc", "/proc", "proc", proc, None).map_err(EmuError::system("mount /proc"))?;
    mount_bind(&hosts, "/etc/hosts").map_err(EmuError::system("mount the names of the nodes"))?;
    nodes::enter(net.as_fd()).map_err(what())?;
    take_name(&node);
    client.ready()?;

    let Some((program, arguments)) = command.split_first() else {
        return Err(EmuError::Refused("there is no command to run".to_owned()));
    };
    let child = Command::new(program)
        .args(arguments)
        .env(crate::NODE_VARIABLE, &node)
        .spawn()
        .map_err(EmuError::system(format!("run {}", program.display())))?;
    reap(child.id()).map_err(EmuError::system("wait for the command"))
}

/// The exit code a shell would report.
fn code(status: WaitStatus) -> i32 {
    match (status.exit_status(), status.terminating_signal()) {
        (Some(code), _) => code,
        (None, Some(signal)) => SIGNALLED + signal,
        (None, None) => SIGNALLED,
    }
}

/// Waits for a child, and buries all others that come to the first process when their parents die.
fn reap(child: u32) -> io::Result<i32> {
    loop {
        match rustix::process::wait(WaitOptions::empty()) {
            Ok(Some((pid, status))) if pid.as_raw_pid().unsigned_abs() == child => {
                return Ok(code(status));
            }
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

/// Whether two descriptors are of one namespace.
fn are_same(one: impl AsFd, other: impl AsFd) -> io::Result<bool> {
    let (one, other) = (rustix::fs::fstat(one)?, rustix::fs::fstat(other)?);
    Ok((one.st_dev, one.st_ino) == (other.st_dev, other.st_ino))
}

/// Lets programs see the node's name as the host's; one that is too long stays out of sight.
fn take_name(node: &str) {
    if sys::unshare(&[Namespace::HostName]).is_ok() {
        let _ = rustix::system::sethostname(node.as_bytes());
    }
}
