//! All ports and the packets in them: what happens when.
//!
//! A packet passes the ports of its route one after the other. A port serves one packet at a time
//! at its rate. When a packet leaves a port is computed, not measured, and it enters the next port
//! at that very time, even if a caller that follows a real clock is late; so rates stay exact
//! however late the caller is. Nothing here reads a clock or a device.

use outpour_core::{Rate, Time};
use rand_core::SeedableRng;
use rand_pcg::Pcg64;

use crate::port::{Entry, Finished, Port};
use crate::setting::Setting;
use crate::stats::Stats;
use crate::timers::Timers;

/// Something that passes ports.
///
/// It is moved by value from queue to queue, so up to some 60 bytes are cheap and more should be
/// behind a handle. What it says of itself stays the same from when it is sent, but for what
/// [`trim`](Self::trim) changes.
pub trait Load {
    /// How many bytes it has on the wire, headers included.
    fn wire_bytes(&self) -> u32;

    /// How many packets it stands for.
    fn packets(&self) -> u32 {
        1
    }

    /// How much memory it holds, for [`Engine::held_bytes`]. Trimming does not change it.
    fn held_bytes(&self) -> u64 {
        0
    }

    /// In which of a port's queues it waits, the first being zero; the last one if there are fewer.
    fn class(&self) -> u8 {
        0
    }

    /// Marks congestion, if it may be marked; says whether it did.
    fn mark(&mut self) -> bool {
        false
    }

    /// Cuts its payload off, if it has one; says whether it did. Its bytes and its class are those
    /// of the header from then on.
    fn trim(&mut self) -> bool {
        false
    }
}

/// What became of packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Packets that were sent.
    pub entered: u64,
    /// Packets that arrived, trimmed ones included.
    pub delivered: u64,
    /// Bytes of the packets that arrived, headers included.
    pub delivered_bytes: u64,
    /// Packets that found no room in a queue.
    pub dropped: u64,
    /// Packets that were lost at random or on order.
    pub lost: u64,
    /// How often a packet was marked; each port may mark it.
    pub marked: u64,
    /// Packets whose payload was cut off.
    pub trimmed: u64,
}

/// A port of an [`Engine`]. Ids come from the engine itself; handing it one of another may panic.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PortId(pub u32);

/// A route of an [`Engine`]; they are numbered in the order in which they are added. Ids come from
/// the engine itself; handing it one of another may panic.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RouteId(pub u32);

/// A packet that has arrived.
#[derive(Debug)]
pub struct Arrival<P> {
    /// When.
    pub at: Time,
    /// On which route it came.
    pub route: RouteId,
    /// The packet.
    pub load: P,
}

/// A packet on its way.
pub(crate) struct Parcel<P> {
    pub(crate) load: P,
    /// Where in the list of all routes the port is that it enters next.
    next: u32,
}

/// What ends a route in the list of all routes; its number follows.
const END: u32 = u32::MAX;

/// What the timers of a port are for: the packet in service is done, or the first packet of the
/// delay line comes out.
const SERVED: u32 = 0;
const EMERGED: u32 = 1;
const TIMERS_PER_PORT: u32 = 2;

/// All ports of a network and the packets in them.
///
/// A driver calls [`send`](Self::send) when a packet is sent and [`advance`](Self::advance) or
/// [`run`](Self::run) as time goes on; [`next_event`](Self::next_event) says until when nothing
/// moves by itself. Before packets are sent or settings change at a time, everything before that
/// time should have happened; what has not is late and happens at that time. Time never goes back:
/// a call with a time before the last thing that happened means the time of that.
pub struct Engine<P> {
    ports: Vec<Port<P>>,
    timers: Timers,
    /// When the last thing happened, in nanoseconds.
    now: u64,
    /// The ports of all routes, each ended by [`END`] and the number of the route.
    steps: Vec<u32>,
    /// Where each route begins.
    starts: Vec<u32>,
    dice: Pcg64,
    counts: Counts,
    held_bytes: u64,
}

impl<P: Load> Engine<P> {
    /// Ports with these settings, in order, and no packet; `seed` decides on random losses.
    pub fn new(settings: impl IntoIterator<Item = Setting>, seed: u64) -> Self {
        let ports: Vec<_> = settings.into_iter().map(|s| Port::new(&s)).collect();
        Self {
            timers: Timers::new(ports.len() * TIMERS_PER_PORT as usize),
            ports,
            now: 0,
            steps: Vec::new(),
            starts: Vec::new(),
            dice: Pcg64::seed_from_u64(seed),
            counts: Counts::default(),
            held_bytes: 0,
        }
    }

    /// All ports, in the order of their settings.
    pub fn ports(&self) -> impl Iterator<Item = PortId> + use<P> {
        (0..self.ports.len() as u32).map(PortId)
    }

    /// Adds the way through these ports; without any, packets arrive when they are sent.
    pub fn add_route(&mut self, ports: &[PortId]) -> RouteId {
        let route = self.starts.len() as u32;
        self.starts.push(self.steps.len() as u32);
        for port in ports {
            assert!((port.0 as usize) < self.ports.len(), "no such port");
            self.steps.push(port.0);
        }
        self.steps.extend([END, route]);
        RouteId(route)
    }

    /// How much memory the packets on their way hold.
    pub fn held_bytes(&self) -> u64 {
        self.held_bytes
    }

    /// What became of packets so far.
    pub fn counts(&self) -> Counts {
        self.counts
    }

    /// What a port did up to `now`.
    pub fn stats(&self, port: PortId, now: Time) -> Stats {
        self.ports[port.0 as usize].stats(now.0.max(self.now))
    }

    /// All packets that are on their way at this moment, port by port.
    pub fn loads(&self) -> impl Iterator<Item = &P> {
        let parcels = self.ports.iter().flat_map(Port::parcels);
        parcels.map(|parcel| &parcel.load)
    }

    /// How many packets are on their way at this moment. Looks at each of them.
    pub fn inside(&self) -> u64 {
        self.loads().map(|load| u64::from(load.packets())).sum()
    }

    /// When the next packet moves; nothing is on its way if there is no such time.
    pub fn next_event(&self) -> Option<Time> {
        self.timers.first().map(|(time, _)| time)
    }

    /// Moves everything that moves up to and at `now`; what arrives goes to `out`, in order.
    pub fn advance(&mut self, now: Time, out: &mut Vec<Arrival<P>>) {
        while let Some((time, timer)) = self.timers.first()
            && time <= now
        {
            self.happen(time.0, timer, out);
        }
    }

    /// Moves everything that moves until something arrives, or up to and at `until` if nothing
    /// does. Everything of the time of an arrival happens; that time comes back, or else `until`.
    pub fn run(&mut self, until: Time, out: &mut Vec<Arrival<P>>) -> Time {
        let before = out.len();
        let mut last = until;
        while let Some((time, timer)) = self.timers.first()
            && time <= last
        {
            self.happen(time.0, timer, out);
            if out.len() > before {
                last = last.min(Time(self.now));
            }
        }
        last
    }

    /// A packet is sent. What is not held up anywhere arrives at once.
    pub fn send(&mut self, load: P, route: RouteId, now: Time, out: &mut Vec<Arrival<P>>) {
        self.counts.entered += u64::from(load.packets());
        self.held_bytes += load.held_bytes();
        let next = self.starts[route.0 as usize];
        let now = self.pass(now.0);
        self.proceed(Parcel { load, next }, now, out);
    }

    /// Changes a port from `now` on. A packet in service goes on at the new rate with what is left
    /// of it; packets that were served keep their delay, and none overtakes another of its class.
    /// Packets that wait stay, even if they are more than a new limit. The port keeps the number
    /// of its queues: further ones of the setting are ignored, missing ones stay as they are.
    pub fn set(&mut self, port: PortId, setting: &Setting, now: Time) {
        let now = self.pass(now.0);
        let next = self.ports[port.0 as usize].set(setting, now);
        self.reschedule(port, next);
    }

    /// Changes the rate of a port from `now` on, as [`Engine::set`] does.
    pub fn set_rate(&mut self, port: PortId, rate: Rate, now: Time) {
        let now = self.pass(now.0);
        let next = self.ports[port.0 as usize].set_rate(rate, now);
        self.reschedule(port, next);
    }

    /// The next packets that come to a port are lost, besides those lost at random: a burst of
    /// losses at the time of the call. Calls add up.
    pub fn lose_next(&mut self, port: PortId, packets: u64) {
        self.ports[port.0 as usize].lose_next(packets);
    }

    /// Lets time pass to `time`, if it is not that late already.
    fn pass(&mut self, time: u64) -> u64 {
        self.now = self.now.max(time);
        self.now
    }

    fn reschedule(&mut self, port: PortId, next: Option<Option<u64>>) {
        if let Some(next) = next {
            self.schedule(port.0, SERVED, next);
        }
    }

    fn happen(&mut self, time: u64, timer: u32, out: &mut Vec<Arrival<P>>) {
        let time = self.pass(time);
        let (index, what) = (timer / TIMERS_PER_PORT, timer % TIMERS_PER_PORT);
        let port = &mut self.ports[index as usize];
        let Finished { parcel, next } = match what {
            SERVED => port.finish(time),
            _ => port.emerge(),
        };
        self.schedule(index, what, next);
        match parcel {
            Some(parcel) if what == SERVED => self.leave(index, parcel, time, out),
            Some(parcel) => self.proceed(parcel, time, out),
            None => debug_assert!(false, "a timer of port {index} without a packet"),
        }
    }

    /// A packet goes on until it has to wait, is lost or arrives.
    fn proceed(&mut self, mut parcel: Parcel<P>, now: u64, out: &mut Vec<Arrival<P>>) {
        loop {
            let index = self.steps[parcel.next as usize];
            if index == END {
                return self.arrive(parcel, now, out);
            }
            parcel.next += 1;
            let packets = u64::from(parcel.load.packets());
            let held = parcel.load.held_bytes();
            match self.ports[index as usize].enter(parcel, now, &mut self.dice) {
                Entry::Passes(passed) => {
                    parcel = passed;
                    continue;
                }
                Entry::Served { until } => self.schedule(index, SERVED, until),
                Entry::Waits { marked, trimmed } => {
                    self.counts.marked += if marked { packets } else { 0 };
                    self.counts.trimmed += if trimmed { packets } else { 0 };
                }
                Entry::Delayed { emerges_at } => self.wake(index, emerges_at),
                Entry::Dropped => {
                    self.counts.dropped += packets;
                    self.held_bytes -= held;
                }
                Entry::Lost => {
                    self.counts.lost += packets;
                    self.held_bytes -= held;
                }
            }
            return;
        }
    }

    /// A served packet goes through the port's delay, if it has one.
    fn leave(&mut self, port: u32, parcel: Parcel<P>, now: u64, out: &mut Vec<Arrival<P>>) {
        match self.ports[port as usize].delay(parcel, now) {
            Entry::Delayed { emerges_at } => self.wake(port, emerges_at),
            Entry::Passes(parcel) => self.proceed(parcel, now, out),
            // A delay neither queues nor loses.
            Entry::Served { .. } | Entry::Waits { .. } | Entry::Dropped | Entry::Lost => {}
        }
    }

    fn arrive(&mut self, parcel: Parcel<P>, now: u64, out: &mut Vec<Arrival<P>>) {
        let Parcel { load, next } = parcel;
        self.counts.delivered += u64::from(load.packets());
        self.counts.delivered_bytes += u64::from(load.wire_bytes());
        self.held_bytes -= load.held_bytes();
        out.push(Arrival {
            at: Time(now),
            route: RouteId(self.steps[next as usize + 1]),
            load,
        });
    }

    /// The delay line of a port has its first packet, if there is a time.
    fn wake(&mut self, port: u32, emerges_at: Option<u64>) {
        if emerges_at.is_some() {
            self.schedule(port, EMERGED, emerges_at);
        }
    }

    fn schedule(&mut self, port: u32, what: u32, time: Option<u64>) {
        let timer = port * TIMERS_PER_PORT + what;
        match time {
            Some(time) => self.timers.set(timer, Time(time)),
            None => self.timers.clear(timer),
        }
    }
}
