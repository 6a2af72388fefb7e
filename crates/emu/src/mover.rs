//! The thread that moves packets: from devices into the network in virtual time, and out again.
//!
//! It sleeps until a device has something to say or the next packet is due, and then does all
//! there is to do at once: many packets per waking is what makes a core carry a whole network.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};
use std::{io, thread};

use outpour_core::network::Change;
use outpour_system::emulation as sys;
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, epoll, eventfd, poll};
use rustix::io::Errno;
use rustix::time::ClockId;

use crate::EmuError;
use crate::address::Addresses;
use crate::engine::{Arrival, Counts, Engine};
use crate::lateness::{Lateness, Verdict};
use crate::packet::Packet;
use crate::samples::{Carried, Samples};

/// Above all ordinary threads, below those of the kernel that are more urgent still.
const PRIORITY: i32 = 50;

/// How many packets are read from one device before the others have their turn.
const BATCH: usize = 64;

/// The largest read: an offloading header and 64 KiB.
const LARGE_BYTES: usize = sys::OFFLOAD_HEADER_BYTES + (64 << 10);

/// A packet up to this length moves to a small buffer.
const SMALL_BYTES: usize = 2048;

/// How many free buffers of each kind are kept.
const SMALL_FREE_MAX: usize = 8192;
const LARGE_FREE_MAX: usize = 1024;

/// How many bytes of packets may be on their way. Queues keep to their limits, so only delays of
/// links without a rate come near it.
const HELD_BYTES_MAX: u64 = 1 << 30;

/// What stands for the waker among the devices.
const WAKER: u64 = u64::MAX;

/// What the thread did.
#[derive(Clone, Debug)]
pub(crate) struct Moved {
    pub(crate) counts: Counts,
    pub(crate) lateness: Verdict,
    /// Packets for which there was no memory, or no room in the receiving device.
    pub(crate) overflowed: u64,
    /// Packets that are not for any node.
    pub(crate) astray: u64,
    pub(crate) cpu_s: f64,
    /// What links carried, if that was asked for.
    pub(crate) carried: Option<Carried>,
    /// Whether the thread runs before ordinary ones.
    pub(crate) priority: bool,
}

/// The running thread.
pub(crate) struct Mover {
    thread: thread::JoinHandle<io::Result<Moved>>,
    handle: Handle,
}

/// What others say to the thread.
#[derive(Clone)]
pub(crate) struct Handle {
    changes: Sender<Change>,
    waker: Arc<OwnedFd>,
    over: Arc<AtomicBool>,
}

impl Handle {
    /// Changes the network as soon as the thread wakes, which this makes it do.
    pub(crate) fn change(&self, changes: impl IntoIterator<Item = Change>) {
        for change in changes {
            // A thread that is gone has no network to change.
            let _ = self.changes.send(change);
        }
        self.wake();
    }

    fn wake(&self) {
        // A counter that is full has woken the thread already.
        let _ = rustix::io::write(&*self.waker, &1_u64.to_ne_bytes());
    }
}

impl Mover {
    /// Starts moving packets between devices, in the order of the nodes.
    ///
    /// One waking comes `pause` after the one before at the earliest. Under load this collects
    /// packets for a waking, which halves the cost of each; a packet that comes now and then still
    /// finds the thread ready at once.
    pub(crate) fn start(
        engine: Engine<Packet>,
        devices: Vec<OwnedFd>,
        addresses: Addresses,
        pause: Duration,
        samples: Option<Samples>,
    ) -> Result<Self, EmuError> {
        let waker = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
            .map_err(EmuError::system("make a waker"))?;
        let (changes, inbox) = channel();
        let handle = Handle {
            changes,
            waker: Arc::new(waker),
            over: Arc::default(),
        };
        let poll = watch(&devices, &handle.waker).map_err(EmuError::system("watch devices"))?;
        let (waker, over) = (Arc::clone(&handle.waker), Arc::clone(&handle.over));
        let work = move || {
            let work = Work {
                engine,
                devices,
                addresses,
                pause,
                samples,
                poll,
                inbox,
                waker,
                over,
                started: Instant::now(),
                arrivals: Vec::new(),
                small: Vec::new(),
                large: Vec::new(),
                lateness: Lateness::new(),
                overflowed: 0,
                astray: 0,
            };
            work.run()
        };
        let thread = thread::Builder::new().name("mover".to_owned()).spawn(work);
        let thread = thread.map_err(EmuError::system("start a thread"))?;
        Ok(Self { thread, handle })
    }

    pub(crate) fn handle(&self) -> Handle {
        self.handle.clone()
    }

    /// Ends the thread and says what it did.
    pub(crate) fn stop(self) -> Result<Moved, EmuError> {
        self.handle.over.store(true, Ordering::Relaxed);
        self.handle.wake();
        let panicked = |_| Err(io::Error::other("its thread panicked"));
        let moved = self.thread.join().unwrap_or_else(panicked);
        moved.map_err(EmuError::system("move packets"))
    }
}

fn watch(devices: &[OwnedFd], waker: &OwnedFd) -> io::Result<OwnedFd> {
    let poll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
    let flags = epoll::EventFlags::IN;
    for (node, device) in devices.iter().enumerate() {
        epoll::add(&poll, device, epoll::EventData::new_u64(node as u64), flags)?;
    }
    epoll::add(&poll, waker, epoll::EventData::new_u64(WAKER), flags)?;
    Ok(poll)
}

struct Work {
    engine: Engine<Packet>,
    devices: Vec<OwnedFd>,
    addresses: Addresses,
    pause: Duration,
    samples: Option<Samples>,
    poll: OwnedFd,
    inbox: Receiver<Change>,
    waker: Arc<OwnedFd>,
    over: Arc<AtomicBool>,
    started: Instant,
    arrivals: Vec<Arrival<Packet>>,
    small: Vec<Vec<u8>>,
    large: Vec<Vec<u8>>,
    lateness: Lateness,
    overflowed: u64,
    astray: u64,
}

impl Work {
    fn run(mut self) -> io::Result<Moved> {
        let priority = sys::take_priority(PRIORITY).is_ok();
        let mut ready = Vec::with_capacity(self.devices.len() + 1);
        let mut woken = Instant::now();
        while !self.over.load(Ordering::Relaxed) {
            let now = self.now();
            self.advance(now);
            let due = self.engine.next_event();
            thread::sleep(self.pause.saturating_sub(woken.elapsed()));
            self.sleep()?;
            if let Some(due) = due {
                let late = self.now().saturating_sub(due);
                self.lateness.add_waking(woken.elapsed(), late);
            }
            woken = Instant::now();
            ready.clear();
            let spare = rustix::buffer::spare_capacity(&mut ready);
            match epoll::wait(&self.poll, spare, Some(&Timespec::default())) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
            for event in &ready {
                match event.data.u64() {
                    WAKER => self.take_changes(),
                    node => self.read(node as usize)?,
                }
            }
        }
        let cpu = rustix::time::clock_gettime(ClockId::ThreadCPUTime);
        Ok(Moved {
            carried: self.samples.map(Samples::finish),
            counts: self.engine.counts(),
            lateness: self.lateness.verdict(),
            overflowed: self.overflowed,
            astray: self.astray,
            cpu_s: cpu.tv_sec as f64 + cpu.tv_nsec as f64 / 1e9,
            priority,
        })
    }

    fn now(&self) -> u64 {
        self.started.elapsed().as_nanos() as u64
    }

    /// Sleeps until a device has something or the next packet is due.
    fn sleep(&self) -> io::Result<()> {
        let due = self.engine.next_event();
        let wait = due.map(|time| {
            let nanos = time.saturating_sub(self.now());
            Timespec {
                tv_sec: (nanos / 1_000_000_000) as i64,
                tv_nsec: (nanos % 1_000_000_000) as _,
            }
        });
        // Waiting for the set itself counts in nanoseconds; `epoll_wait` would in milliseconds.
        let set = &mut [PollFd::new(&self.poll, PollFlags::IN)];
        match poll(set, wait.as_ref()) {
            Ok(_) | Err(Errno::INTR) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    fn take_changes(&mut self) {
        let mut count = [0; 8];
        // Only the waking counts, not how often it was asked for.
        let _ = rustix::io::read(&*self.waker, &mut count);
        let now = self.now();
        self.advance(now);
        while let Ok(change) = self.inbox.try_recv() {
            self.engine.change(&change, now);
        }
    }

    /// Lets virtual time catch up with `now` and hands over what arrives.
    fn advance(&mut self, now: u64) {
        while let Some(samples) = &mut self.samples
            && samples.next() <= now
        {
            let at = samples.next();
            self.engine.advance(at, &mut self.arrivals);
            samples.take(|from, to| self.engine.carried(from, to, at));
        }
        self.engine.advance(now, &mut self.arrivals);
        self.hand_over();
    }

    /// Takes in what a node sends.
    fn read(&mut self, node: usize) -> io::Result<()> {
        for _ in 0..BATCH {
            let mut buffer = (self.large.pop()).unwrap_or_else(|| vec![0; LARGE_BYTES]);
            let len = match rustix::io::read(&self.devices[node], &mut buffer[..]) {
                Ok(len) => len,
                Err(error) => {
                    keep(&mut self.large, LARGE_FREE_MAX, buffer);
                    return match error {
                        Errno::AGAIN | Errno::INTR => Ok(()),
                        error => Err(error.into()),
                    };
                }
            };
            let buffer = self.fit(buffer, len);
            self.take_in(node, buffer, len);
        }
        Ok(())
    }

    /// Moves a short packet to a small buffer, as large ones are dear.
    fn fit(&mut self, buffer: Vec<u8>, len: usize) -> Vec<u8> {
        if len > SMALL_BYTES {
            return buffer;
        }
        let mut small = (self.small.pop()).unwrap_or_else(|| vec![0; SMALL_BYTES]);
        small[..len].copy_from_slice(&buffer[..len]);
        keep(&mut self.large, LARGE_FREE_MAX, buffer);
        small
    }

    fn take_in(&mut self, node: usize, buffer: Vec<u8>, len: usize) {
        let size = buffer.len();
        let packet = match Packet::new(buffer, len) {
            Ok(packet) => packet,
            Err(buffer) => {
                self.astray += 1;
                return self.free(buffer);
            }
        };
        let Some(to) = self.addresses.node(packet.destination()) else {
            self.astray += 1;
            return self.free(packet.into_buffer());
        };
        let now = self.now();
        self.advance(now);
        if self.engine.held_bytes() + size as u64 > HELD_BYTES_MAX {
            self.overflowed += 1;
            return self.free(packet.into_buffer());
        }
        self.engine
            .send(packet, node as u16, to, now, &mut self.arrivals);
        self.hand_over();
    }

    fn hand_over(&mut self) {
        let mut arrivals = std::mem::take(&mut self.arrivals);
        for Arrival { at, to, load } in arrivals.drain(..) {
            let device = &self.devices[usize::from(to)];
            match rustix::io::write(device, load.bytes()) {
                Ok(_) => self.lateness.add(self.now().saturating_sub(at)),
                // The receiving system has no memory, or the device was taken down.
                Err(_) => self.overflowed += 1,
            }
            self.free(load.into_buffer());
        }
        self.arrivals = arrivals;
    }

    fn free(&mut self, buffer: Vec<u8>) {
        if buffer.len() == LARGE_BYTES {
            keep(&mut self.large, LARGE_FREE_MAX, buffer);
        } else {
            keep(&mut self.small, SMALL_FREE_MAX, buffer);
        }
    }
}

fn keep(free: &mut Vec<Vec<u8>>, max: usize, buffer: Vec<u8>) {
    if free.len() < max {
        free.push(buffer);
    }
}
