//! The network in virtual time, as the thread that moves packets drives it: nodes by number, times
//! in nanoseconds of its own clock.
//!
//! What happens to packets is decided by [`outpour_packets`]. It reads no clock, so rates stay
//! exact however late the machine is, and lateness only shows where packets are handed over.

use outpour_core::network::{Change, ClusterId, Network, Resource};
use outpour_core::{NodeId, Time};
use outpour_packets as packets;
pub(crate) use outpour_packets::{Counts, Load, Sizes};

/// A packet that has arrived.
pub(crate) struct Arrival<P> {
    /// When, in nanoseconds.
    pub(crate) at: u64,
    pub(crate) to: u16,
    pub(crate) load: P,
}

/// The resources of a network and the packets in them.
pub(crate) struct Engine<P> {
    pipes: packets::Pipes,
    engine: packets::Engine<P>,
    /// What has arrived and is not handed on yet.
    arrived: Vec<packets::Arrival<P>>,
}

impl<P: Load> Engine<P> {
    pub(crate) fn new(network: Network, sizes: Sizes, seed: u64) -> Self {
        let pipes = packets::Pipes::new(network, sizes);
        Self {
            engine: pipes.engine(seed),
            pipes,
            arrived: Vec::new(),
        }
    }

    /// How much memory the packets on their way hold.
    pub(crate) fn held_bytes(&self) -> u64 {
        self.engine.held_bytes()
    }

    pub(crate) fn counts(&self) -> Counts {
        self.engine.counts()
    }

    /// How many bytes have left the queue of a link by now. All earlier times have to be over.
    pub(crate) fn carried(&self, from: ClusterId, to: ClusterId, now: u64) -> u64 {
        let port = self.pipes.port(Resource::Link(from, to));
        port.map_or(0, |port| self.engine.stats(port, Time(now)).bytes)
    }

    /// When the next packet moves; nothing is on its way if there is no such time.
    pub(crate) fn next_event(&self) -> Option<u64> {
        self.engine.next_event().map(|time| time.0)
    }

    /// Moves everything that moves up to `now`; what arrives goes to `out`, in order.
    pub(crate) fn advance(&mut self, now: u64, out: &mut Vec<Arrival<P>>) {
        self.engine.advance(Time(now), &mut self.arrived);
        self.hand_on(out);
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
        let route = (self.pipes).route(NodeId(from.into()), NodeId(to.into()));
        (self.engine).send(load, route, Time(now), &mut self.arrived);
        self.hand_on(out);
    }

    /// Changes the network. All earlier times have to be over.
    pub(crate) fn change(&mut self, change: &Change, now: u64) {
        self.pipes.change(change, &mut self.engine, Time(now));
    }

    fn hand_on(&mut self, out: &mut Vec<Arrival<P>>) {
        let arrived = self.arrived.drain(..).map(|arrival| Arrival {
            at: arrival.at.0,
            to: self.pipes.ends(arrival.route).1.0 as u16,
            load: arrival.load,
        });
        out.extend(arrived);
    }
}

#[cfg(test)]
mod tests;
