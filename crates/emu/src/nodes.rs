//! The nodes: a network namespace each, with one TUN device in it.
//!
//! Nothing but open descriptors keeps a namespace and its device alive. When the emulator ends,
//! however it ends, the system takes both away.

use std::fs::File;
use std::io;
use std::net::Ipv4Addr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::thread;

use outpour_system::emulation::{self as sys, Namespace};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use crate::EmuError;
use crate::address::{Addresses, PREFIX};

/// The name of the device inside every namespace.
const DEVICE: &str = "out0";

/// How many packets wait in a device while the emulator is late; it never drops any on purpose.
const DEVICE_QUEUE: u32 = 4096;

/// A node of the emulation.
pub(crate) struct Node {
    /// Its end of the network.
    pub(crate) tun: OwnedFd,
    /// Its network namespace.
    pub(crate) namespace: OwnedFd,
}

/// Makes a namespace and a device for each of `count` nodes.
pub(crate) fn make(
    count: u16,
    addresses: &Addresses,
    mtu: u32,
    segments: bool,
) -> Result<Vec<Node>, EmuError> {
    if !rustix::process::geteuid().is_root() {
        return Err(EmuError::NotRoot);
    }
    let path = sys::TUN_PATH;
    File::open(path).map_err(|source| EmuError::NoTun { path, source })?;
    (0..count)
        .map(|node| {
            let address = addresses.of(node);
            in_new_thread(move || make_one(address, mtu, segments))
        })
        .collect()
}

/// Runs `task` on a thread of its own, whose namespaces no other thread has to live in.
fn in_new_thread<T: Send + 'static>(
    task: impl FnOnce() -> Result<T, EmuError> + Send + 'static,
) -> Result<T, EmuError> {
    let thread = thread::Builder::new().name("namespace".to_owned());
    let running = thread
        .spawn(task)
        .map_err(EmuError::system("start a thread"))?;
    let panicked = || EmuError::system("make a namespace")(io::Error::other("its thread panicked"));
    running.join().unwrap_or_else(|_| Err(panicked()))
}

fn make_one(address: Ipv4Addr, mtu: u32, segments: bool) -> Result<Node, EmuError> {
    sys::unshare(&[Namespace::Net]).map_err(|error| match error.kind() {
        io::ErrorKind::PermissionDenied => EmuError::NotRoot,
        _ => EmuError::system("make a network namespace")(error),
    })?;
    // Nothing speaks IPv6 in here; without it the devices stay silent until a program sends. Where
    // the system has no IPv6 there is nothing to turn off.
    for of in ["all", "default"] {
        let _ = std::fs::write(format!("/proc/sys/net/ipv6/conf/{of}/disable_ipv6"), "1");
    }
    // What most hosts run, so that a result does not depend on the setting of this machine. A
    // kernel without it keeps its own.
    let _ = std::fs::write("/proc/sys/net/ipv4/tcp_congestion_control", "cubic");
    let tun = sys::open_tun(DEVICE, segments).map_err(EmuError::system("make a TUN device"))?;
    sys::bring_up("lo").map_err(EmuError::system("bring up the loopback of a node"))?;
    sys::configure(DEVICE, address, PREFIX, mtu, DEVICE_QUEUE).map_err(EmuError::system(
        format!("give a node the address {address}"),
    ))?;
    let namespace = File::open("/proc/thread-self/ns/net")
        .map_err(EmuError::system("open a network namespace"))?;
    Ok(Node {
        tun,
        namespace: namespace.into(),
    })
}

/// Runs `task` on a new thread inside a node's network namespace: sockets it opens belong to the
/// node, wherever they are used later.
pub(crate) fn run_inside<T: Send + 'static>(
    namespace: BorrowedFd<'_>,
    task: impl FnOnce() -> T + Send + 'static,
) -> Result<thread::JoinHandle<io::Result<T>>, EmuError> {
    let namespace = (namespace.try_clone_to_owned())
        .map_err(EmuError::system("enter the namespace of a node"))?;
    thread::Builder::new()
        .spawn(move || enter(namespace.as_fd()).map(|()| task()))
        .map_err(EmuError::system("start a thread"))
}

/// Moves the calling thread into a network namespace.
pub(crate) fn enter(namespace: BorrowedFd<'_>) -> io::Result<()> {
    Ok(move_into_link_name_space(
        namespace,
        Some(LinkNameSpaceType::Network),
    )?)
}
