//! The network in virtual time: queues that packets pass, and when each leaves which.
//!
//! A packet passes the resources of its path one after the other [Burger §2.5, figure 2.9]. Each
//! resource with a limit is a pipe: a first-in first-out queue that serves one packet at a time at
//! its rate. When a packet leaves a pipe is computed, not measured, and it enters the next pipe at
//! that very time, even if the machine is late; so rates stay exact however late the machine is,
//! and lateness only shows where packets are handed over. Nothing here reads a clock or a device.

mod loss;
mod pipe;
mod plumbing;

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use outpour_core::network::{Change, Network};
use rand_core::SeedableRng;
use rand_pcg::Pcg64;

use self::pipe::{Entry, Pipe};
use self::plumbing::Plumbing;
pub(crate) use self::plumbing::Sizes;

/// Something that passes pipes.
pub(crate) trait Load {
    /// How many bytes it has on the wire, headers included.
    fn wire_bytes(&self) -> u32;
    /// How many packets it stands for.
    fn packets(&self) -> u32;
    /// How much memory it holds.
    fn held_bytes(&self) -> u64;
    /// Marks congestion, if it may be marked; says whether it did.
    fn mark(&mut self) -> bool;
}

/// What became of packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    pub(crate) entered: u64,
    pub(crate) delivered: u64,
    pub(crate) delivered_bytes: u64,
    pub(crate) dropped: u64,
    pub(crate) lost: u64,
    pub(crate) marked: u64,
}

/// A packet that has arrived.
pub(crate) struct Arrival<P> {
    /// When, in nanoseconds.
    pub(crate) at: u64,
    pub(crate) to: u16,
    pub(crate) load: P,
}

/// A packet on its way.
struct Parcel<P> {
    load: P,
    from: u16,
    to: u16,
    /// How many resources of its path it has entered.
    stage: u8,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum What {
    /// The packet in service leaves the pipe, if the pipe was not changed since.
    Served { generation: u32 },
    /// The first packet of the pipe's delay line comes out.
    Emerged,
}

type Event = Reverse<(u64, u64, u32, What)>;

/// All pipes of a network and the packets in them.
pub(crate) struct Engine<P> {
    plumbing: Plumbing,
    pipes: Vec<Pipe<P>>,
    events: BinaryHeap<Event>,
    sequence: u64,
    dice: Pcg64,
    counts: Counts,
    held_bytes: u64,
}

impl<P: Load> Engine<P> {
    pub(crate) fn new(network: Network, sizes: Sizes, seed: u64) -> Self {
        let plumbing = Plumbing::new(network, sizes);
        let pipes = (plumbing.settings()).map(Pipe::new).collect();
        Self {
            plumbing,
            pipes,
            events: BinaryHeap::new(),
            sequence: 0,
            dice: Pcg64::seed_from_u64(seed),
            counts: Counts::default(),
            held_bytes: 0,
        }
    }

    /// How much memory the packets on their way hold.
    pub(crate) fn held_bytes(&self) -> u64 {
        self.held_bytes
    }

    pub(crate) fn counts(&self) -> Counts {
        self.counts
    }

    /// When the next packet moves; nothing is on its way if there is no such time.
    pub(crate) fn next_event(&self) -> Option<u64> {
        self.events.peek().map(|Reverse((time, ..))| *time)
    }

    /// Moves everything that moves up to `now`; what arrives goes to `out`, in order.
    pub(crate) fn advance(&mut self, now: u64, out: &mut Vec<Arrival<P>>) {
        while let Some(Reverse((time, _, pipe, what))) = self.events.peek().copied() {
            if time > now {
                break;
            }
            self.events.pop();
            let index = pipe as usize;
            match what {
                What::Served { generation } if self.pipes[index].generation() == generation => {
                    let (parcel, next) = self.pipes[index].finish(time);
                    self.schedule_service(pipe, next);
                    if let Some(parcel) = parcel {
                        self.leave(pipe, parcel, time, out);
                    }
                }
                What::Served { .. } => {}
                What::Emerged => {
                    let (parcel, next) = self.pipes[index].emerge();
                    if let Some(next) = next {
                        self.schedule(next, pipe, What::Emerged);
                    }
                    if let Some(parcel) = parcel {
                        self.proceed(parcel, time, out);
                    }
                }
            }
        }
    }

    /// A packet is sent. All earlier times have to be over: see [`Engine::advance`].
    pub(crate) fn send(
        &mut self,
        load: P,
        from: u16,
        to: u16,
        now: u64,
        out: &mut Vec<Arrival<P>>,
    ) {
        self.counts.entered += u64::from(load.packets());
        self.held_bytes += load.held_bytes();
        let stage = 0;
        let parcel = Parcel {
            load,
            from,
            to,
            stage,
        };
        self.proceed(parcel, now, out);
    }

    /// Changes the network. All earlier times have to be over.
    pub(crate) fn change(&mut self, change: &Change, now: u64) {
        for (pipe, setting) in self.plumbing.change(change) {
            let next = self.pipes[pipe as usize].set(setting, now);
            self.schedule_service(pipe, next);
        }
    }

    /// A packet goes on until it has to wait, is lost or arrives.
    fn proceed(&mut self, mut parcel: Parcel<P>, now: u64, out: &mut Vec<Arrival<P>>) {
        while let Some(index) = self.plumbing.pipe(parcel.from, parcel.to, parcel.stage) {
            parcel.stage += 1;
            let packets = u64::from(parcel.load.packets());
            let held = parcel.load.held_bytes();
            match self.pipes[index as usize].enter(parcel, now, &mut self.dice) {
                Entry::Passes(passed) => parcel = passed,
                Entry::Waits { marked, served_at } => {
                    if marked {
                        self.counts.marked += packets;
                    }
                    self.schedule_service(index, served_at);
                    return;
                }
                Entry::Delayed { emerges_at } => {
                    if let Some(time) = emerges_at {
                        self.schedule(time, index, What::Emerged);
                    }
                    return;
                }
                Entry::Dropped => {
                    self.counts.dropped += packets;
                    self.held_bytes -= held;
                    return;
                }
                Entry::Lost => {
                    self.counts.lost += packets;
                    self.held_bytes -= held;
                    return;
                }
            }
        }
        self.counts.delivered += u64::from(parcel.load.packets());
        self.counts.delivered_bytes += u64::from(parcel.load.wire_bytes());
        self.held_bytes -= parcel.load.held_bytes();
        out.push(Arrival {
            at: now,
            to: parcel.to,
            load: parcel.load,
        });
    }

    /// A served packet goes through the pipe's delay, if it has one.
    fn leave(&mut self, pipe: u32, parcel: Parcel<P>, now: u64, out: &mut Vec<Arrival<P>>) {
        match self.pipes[pipe as usize].delay(parcel, now) {
            Entry::Delayed { emerges_at } => {
                if let Some(time) = emerges_at {
                    self.schedule(time, pipe, What::Emerged);
                }
            }
            Entry::Passes(parcel) => self.proceed(parcel, now, out),
            // A delay neither queues nor loses.
            Entry::Waits { .. } | Entry::Dropped | Entry::Lost => {}
        }
    }

    fn schedule_service(&mut self, pipe: u32, served_at: Option<u64>) {
        if let Some(time) = served_at {
            let generation = self.pipes[pipe as usize].generation();
            self.schedule(time, pipe, What::Served { generation });
        }
    }

    fn schedule(&mut self, time: u64, pipe: u32, what: What) {
        self.sequence += 1;
        self.events.push(Reverse((time, self.sequence, pipe, what)));
    }
}

#[cfg(test)]
mod tests;
