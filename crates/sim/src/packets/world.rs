//! Machines at the ends of ways through ports.

use outpour_core::{Rate, Time};
use outpour_packets::{Arrival, Engine, Load, PortId, RouteId, Stats, Timers};

/// An endpoint of a [`World`]: its index in the list of endpoints.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EndpointId(pub u32);

/// A way of a [`World`]: its index in the list of ways.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WayId(pub u32);

/// From somewhere to an endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Way {
    /// Which ports packets pass.
    pub route: RouteId,
    /// Who gets them.
    pub to: EndpointId,
}

/// A packet that an endpoint sends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outgoing<M> {
    /// Where to.
    pub way: WayId,
    /// What it has on the wire, headers included.
    pub bytes: u32,
    /// Which queue it waits in, from zero.
    pub class: u8,
    /// Whether ports may mark it instead of dropping it (ECN-capable, RFC 3168 §5).
    pub is_markable: bool,
    /// What is left of it, bytes, if a port cuts its payload off; 0 if it has none that could be. What is
    /// left waits in the first queue.
    pub trimmed_bytes: u32,
    /// What it says.
    pub message: M,
}

/// A packet that comes to an endpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Incoming<M> {
    /// Which way it took.
    pub way: WayId,
    /// Whether a port marked it (ECN-CE).
    pub is_marked: bool,
    /// Whether a port cut its payload off.
    pub is_trimmed: bool,
    /// What it says.
    pub message: M,
}

/// A machine without I/O at the end of ways.
///
/// The world calls `handle_*` with what arrives and the time, which never goes back; then
/// `poll_send` until it returns nothing; then it waits for the next packet or for the time of
/// `wake_at`, at which it calls `handle_wake`. A machine that answers every packet with another
/// over ways that take no time stands still in time; so ways need a rate or a delay somewhere.
pub trait Endpoint {
    /// What packets say. It is moved by value: see [`Load`] on sizes.
    type Message;

    /// A packet arrives.
    fn handle_packet(&mut self, now: Time, packet: Incoming<Self::Message>);

    /// The time of [`Endpoint::wake_at`] has come.
    fn handle_wake(&mut self, now: Time);

    /// When to wake it although nothing has arrived.
    fn wake_at(&self) -> Option<Time>;

    /// What to send now; called until it returns nothing.
    fn poll_send(&mut self, now: Time) -> Option<Outgoing<Self::Message>>;
}

/// What is in the ports.
#[derive(Clone, Debug)]
pub struct Packet<M> {
    message: M,
    way: WayId,
    bytes: u32,
    class: u8,
    is_markable: bool,
    is_marked: bool,
    trimmed_bytes: u32,
    is_trimmed: bool,
}

impl<M> Packet<M> {
    /// Which way it takes.
    pub fn way(&self) -> WayId {
        self.way
    }

    /// What it says.
    pub fn message(&self) -> &M {
        &self.message
    }
}

impl<M> Load for Packet<M> {
    fn wire_bytes(&self) -> u32 {
        self.bytes
    }

    fn class(&self) -> u8 {
        self.class
    }

    fn mark(&mut self) -> bool {
        self.is_marked |= self.is_markable;
        self.is_markable
    }

    fn trim(&mut self) -> bool {
        if self.trimmed_bytes == 0 || self.is_trimmed {
            return false;
        }
        (self.bytes, self.class) = (self.trimmed_bytes, 0);
        self.is_trimmed = true;
        true
    }
}

/// What became of the packets of a way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WayCounts {
    /// Packets that were sent.
    pub sent: u64,
    /// Packets that arrived.
    pub received: u64,
    /// Packets that arrived with a mark.
    pub marked: u64,
}

/// Machines, the ways between them and the packets on these.
pub struct World<E: Endpoint> {
    engine: Engine<Packet<E::Message>>,
    endpoints: Vec<E>,
    ways: Vec<Way>,
    counts: Vec<WayCounts>,
    timers: Timers,
    /// When the timer of each endpoint runs out, which may be before its machine wants to be woken:
    /// most are put off with every packet, and looking again once is cheaper than setting each time.
    alarms: Vec<Time>,
    now: Time,
    arrivals: Vec<Arrival<Packet<E::Message>>>,
    /// Those that are being handed out, kept for its memory.
    batch: Vec<Arrival<Packet<E::Message>>>,
}

impl<E: Endpoint> World<E> {
    /// Machines at the ends of ways over the routes of an engine; nothing has been sent.
    ///
    /// # Panics
    /// If a way leads to an endpoint that is not there.
    pub fn new(engine: Engine<Packet<E::Message>>, ways: Vec<Way>, endpoints: Vec<E>) -> Self {
        let is_there = |way: &Way| (way.to.0 as usize) < endpoints.len();
        assert!(ways.iter().all(is_there), "a way leads to no endpoint");
        let mut world = Self {
            engine,
            counts: vec![WayCounts::default(); ways.len()],
            ways,
            timers: Timers::new(endpoints.len()),
            alarms: vec![Time::MAX; endpoints.len()],
            endpoints,
            now: Time::ZERO,
            arrivals: Vec::new(),
            batch: Vec::new(),
        };
        for index in 0..world.endpoints.len() {
            world.settle(index);
        }
        world.hand_out();
        world
    }

    /// The time up to which everything has happened.
    pub fn now(&self) -> Time {
        self.now
    }

    /// The ports and the packets in them.
    pub fn engine(&self) -> &Engine<Packet<E::Message>> {
        &self.engine
    }

    /// The machines, indexed by [`EndpointId`].
    pub fn endpoints(&self) -> &[E] {
        &self.endpoints
    }

    /// What became of the packets of a way.
    pub fn counts(&self, way: WayId) -> WayCounts {
        self.counts[way.0 as usize]
    }

    /// How many packets of each way are in the ports. Looks at all packets.
    pub fn inside(&self) -> Vec<u64> {
        let mut inside = vec![0; self.ways.len()];
        for packet in self.engine.loads() {
            inside[packet.way.0 as usize] += 1;
        }
        inside
    }

    /// What a port did so far.
    pub fn stats(&self, port: PortId) -> Stats {
        self.engine.stats(port, self.now)
    }

    /// Changes the rate of a port from now on.
    pub fn set_rate(&mut self, port: PortId, rate: Rate) {
        self.engine.set_rate(port, rate, self.now);
    }

    /// The next packets that come to a port are lost.
    pub fn lose_next(&mut self, port: PortId, packets: u64) {
        self.engine.lose_next(port, packets);
    }

    /// Tells a machine something from outside, now, and sends what it sends then.
    pub fn command<T>(&mut self, endpoint: EndpointId, tell: impl FnOnce(&mut E, Time) -> T) -> T {
        let index = endpoint.0 as usize;
        let said = tell(&mut self.endpoints[index], self.now);
        self.settle(index);
        self.hand_out();
        said
    }

    /// Lets everything happen up to and at `until`.
    pub fn run(&mut self, until: Time) {
        loop {
            let alarm = self.timers.first();
            let limit = alarm.map_or(until, |(at, _)| at.min(until));
            debug_assert!(limit >= self.now || alarm.is_none(), "an alarm was missed");
            let reached = self.engine.run(limit, &mut self.arrivals);
            self.now = self.now.max(reached);
            if !self.arrivals.is_empty() {
                // What arrives at the very time of an alarm comes before it.
                self.hand_out();
                continue;
            }
            match alarm {
                Some((at, endpoint)) if at <= self.now && at <= until => {
                    self.wake(endpoint as usize);
                    self.hand_out();
                }
                _ => return,
            }
        }
    }

    /// Hands out what has arrived, and what arrives at once of what is sent then.
    fn hand_out(&mut self) {
        while !self.arrivals.is_empty() {
            std::mem::swap(&mut self.arrivals, &mut self.batch);
            let mut batch = std::mem::take(&mut self.batch);
            for Arrival { load, .. } in batch.drain(..) {
                let way = load.way;
                let counts = &mut self.counts[way.0 as usize];
                counts.received += 1;
                counts.marked += u64::from(load.is_marked);
                debug_assert!(counts.received <= counts.sent, "a packet came twice");
                let index = self.ways[way.0 as usize].to.0 as usize;
                let packet = Incoming {
                    way,
                    is_marked: load.is_marked,
                    is_trimmed: load.is_trimmed,
                    message: load.message,
                };
                self.endpoints[index].handle_packet(self.now, packet);
                self.settle(index);
            }
            self.batch = batch;
        }
    }

    fn wake(&mut self, index: usize) {
        let due = self.endpoints[index].wake_at();
        if due.is_some_and(|at| at <= self.now) {
            self.endpoints[index].handle_wake(self.now);
        }
        self.timers.clear(index as u32);
        self.alarms[index] = Time::MAX;
        self.settle(index);
    }

    /// Sends what an endpoint has to send, and sees when to wake it.
    fn settle(&mut self, index: usize) {
        while let Some(sent) = self.endpoints[index].poll_send(self.now) {
            let way = sent.way.0 as usize;
            self.counts[way].sent += 1;
            let packet = Packet {
                message: sent.message,
                way: sent.way,
                bytes: sent.bytes,
                class: sent.class,
                is_markable: sent.is_markable,
                is_marked: false,
                trimmed_bytes: sent.trimmed_bytes,
                is_trimmed: false,
            };
            let route = self.ways[way].route;
            (self.engine).send(packet, route, self.now, &mut self.arrivals);
        }
        if let Some(at) = self.endpoints[index].wake_at() {
            let at = at.max(self.now);
            if at < self.alarms[index] {
                self.alarms[index] = at;
                self.timers.set(index as u32, at);
            }
        }
    }
}
