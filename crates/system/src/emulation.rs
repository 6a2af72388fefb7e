//! What an emulated network is made of: namespaces, TUN devices and their addresses, priority.

use std::io;
use std::net::Ipv4Addr;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use rustix::fs::{Mode, OFlags};
use rustix::thread::UnshareFlags;

use crate::check;

/// Where TUN devices come from.
pub const TUN_PATH: &str = "/dev/net/tun";

/// The header the kernel puts before each packet of a device that may offload: `virtio_net_hdr`.
pub const OFFLOAD_HEADER_BYTES: usize = 10;

const OFFLOAD_CHECKSUM: libc::c_uint = 0x01;
const OFFLOAD_TCP4: libc::c_uint = 0x02;
const OFFLOAD_TCP6: libc::c_uint = 0x04;
const OFFLOAD_TCP_ECN: libc::c_uint = 0x08;
const OFFLOAD_UDP4: libc::c_uint = 0x20;
const OFFLOAD_UDP6: libc::c_uint = 0x40;

/// A namespace the calling thread can leave for a new one of its own.
#[derive(Clone, Copy, Debug)]
pub enum Namespace {
    /// Interfaces, addresses, routes, sockets.
    Net,
    /// Numbers of processes, from the next child on.
    Pid,
    /// Mounted file systems.
    Mount,
    /// The host's name.
    HostName,
}

/// Gives the calling thread new namespaces.
///
/// # Errors
/// What the system says, above all without the right to do this.
pub fn unshare(namespaces: &[Namespace]) -> io::Result<()> {
    let mut flags = UnshareFlags::empty();
    for namespace in namespaces {
        flags |= match namespace {
            Namespace::Net => UnshareFlags::NEWNET,
            Namespace::Pid => UnshareFlags::NEWPID,
            Namespace::Mount => UnshareFlags::NEWNS,
            Namespace::HostName => UnshareFlags::NEWUTS,
        };
    }
    // SAFETY: the one danger is `FILES`, which takes the thread's descriptors away from the
    // others; no variant above stands for it.
    #[allow(unsafe_code)]
    unsafe {
        rustix::thread::unshare_unsafe(flags)?;
    }
    Ok(())
}

/// Makes the calling thread preempt all ordinary ones.
///
/// # Errors
/// What the system says, above all without the right to do this.
pub fn take_priority(priority: i32) -> io::Result<()> {
    let parameters = libc::sched_param {
        sched_priority: priority,
    };
    // SAFETY: the pointer is to a live `sched_param`, which the call only reads.
    #[allow(unsafe_code)]
    let result = unsafe { libc::sched_setscheduler(0, libc::SCHED_FIFO, &raw const parameters) };
    check(result).map(drop)
}

/// Makes a TUN device of that name in the calling thread's network namespace, without waiting
/// reads, with headers for offloading. `segments` lets bundles of segments through whole.
///
/// # Errors
/// What the system says, above all without the right to do this.
pub fn open_tun(name: &str, segments: bool) -> io::Result<OwnedFd> {
    let flags = OFlags::RDWR | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let tun = rustix::fs::open(TUN_PATH, flags, Mode::empty())?;
    let mut request = request(name)?;
    let device = libc::IFF_TUN | libc::IFF_NO_PI | libc::IFF_VNET_HDR;
    request.ifr_ifru.ifru_flags = device as libc::c_short;
    control(&tun, libc::TUNSETIFF as libc::Ioctl, &request)?;

    let all = OFFLOAD_TCP4 | OFFLOAD_TCP6 | OFFLOAD_TCP_ECN | OFFLOAD_UDP4 | OFFLOAD_UDP6;
    let older = OFFLOAD_TCP4 | OFFLOAD_TCP6 | OFFLOAD_TCP_ECN;
    let wanted: &[libc::c_uint] = if segments { &[all, older] } else { &[0] };
    let mut result = Ok(());
    for offload in wanted {
        result = set_offload(&tun, OFFLOAD_CHECKSUM | offload);
        if result.is_ok() {
            break;
        }
    }
    result.map(|()| tun)
}

fn set_offload(tun: &OwnedFd, offload: libc::c_uint) -> io::Result<()> {
    let argument = libc::c_ulong::from(offload);
    // SAFETY: the descriptor is open, and this request takes its argument by value.
    #[allow(unsafe_code)]
    let result = unsafe { libc::ioctl(tun.as_raw_fd(), libc::TUNSETOFFLOAD as _, argument) };
    check(result).map(drop)
}

/// Gives an interface of the calling thread's network namespace an address and brings it up.
///
/// # Errors
/// What the system says, above all without the right to do this.
pub fn configure(
    name: &str,
    address: Ipv4Addr,
    prefix: u32,
    mtu: u32,
    queue: u32,
) -> io::Result<()> {
    let socket = socket()?;
    let mut request = request(name)?;
    request.ifr_ifru.ifru_mtu = libc::c_int::try_from(mtu).map_err(io::Error::other)?;
    control(&socket, libc::SIOCSIFMTU as libc::Ioctl, &request)?;
    request.ifr_ifru.ifru_metric = libc::c_int::try_from(queue).map_err(io::Error::other)?;
    control(&socket, libc::SIOCSIFTXQLEN as libc::Ioctl, &request)?;
    request.ifr_ifru.ifru_addr = socket_address(address);
    control(&socket, libc::SIOCSIFADDR as libc::Ioctl, &request)?;
    let mask = u32::MAX.checked_shl(32 - prefix).unwrap_or(0);
    request.ifr_ifru.ifru_netmask = socket_address(Ipv4Addr::from(mask));
    control(&socket, libc::SIOCSIFNETMASK as libc::Ioctl, &request)?;
    up(&socket, name)
}

/// Brings an interface of the calling thread's network namespace up.
///
/// # Errors
/// What the system says, above all without the right to do this.
pub fn bring_up(name: &str) -> io::Result<()> {
    up(&socket()?, name)
}

fn up(socket: &OwnedFd, name: &str) -> io::Result<()> {
    let mut request = request(name)?;
    request.ifr_ifru.ifru_flags = (libc::IFF_UP | libc::IFF_RUNNING) as libc::c_short;
    control(socket, libc::SIOCSIFFLAGS as libc::Ioctl, &request)
}

fn socket() -> io::Result<OwnedFd> {
    use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};
    let flags = SocketFlags::CLOEXEC;
    Ok(socket_with(
        AddressFamily::INET,
        SocketType::DGRAM,
        flags,
        None,
    )?)
}

/// A request about the interface of that name, all else zero.
fn request(name: &str) -> io::Result<libc::ifreq> {
    let mut bytes = [0; libc::IFNAMSIZ];
    // The last byte stays zero, as it ends the name.
    if name.is_empty() || name.len() >= bytes.len() {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    for (to, from) in bytes.iter_mut().zip(name.bytes()) {
        *to = from as libc::c_char;
    }
    Ok(libc::ifreq {
        ifr_name: bytes,
        // The largest of the variants, so that no byte of the union is left undefined.
        ifr_ifru: libc::__c_anonymous_ifr_ifru {
            ifru_map: libc::__c_anonymous_ifru_map {
                mem_start: 0,
                mem_end: 0,
                base_addr: 0,
                irq: 0,
                dma: 0,
                port: 0,
            },
        },
    })
}

/// An IPv4 address as interface requests carry it: family, port, address, zeros.
fn socket_address(address: Ipv4Addr) -> libc::sockaddr {
    let mut data = [0; 14];
    for (to, from) in data[2..6].iter_mut().zip(address.octets()) {
        *to = from as libc::c_char;
    }
    libc::sockaddr {
        sa_family: libc::AF_INET as libc::sa_family_t,
        sa_data: data,
    }
}

fn control(fd: impl AsFd, code: libc::Ioctl, request: &libc::ifreq) -> io::Result<()> {
    let mut request = *request;
    // SAFETY: the descriptor is open, and every code used in this module reads and writes at most
    // one `ifreq`, which lives until the call returns.
    #[allow(unsafe_code)]
    let result = unsafe { libc::ioctl(fd.as_fd().as_raw_fd(), code, &raw mut request) };
    check(result).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_do_not_fit_are_refused() {
        assert!(request("").is_err());
        assert!(request(&"x".repeat(16)).is_err());
        assert!(request(&"x".repeat(15)).is_ok());
    }
}
