//! What carries blocks and messages from node to node: nothing but the network's rates and delays,
//! or TCP with TLS as the data plane uses them.
//!
//! An ideal transport is what limits and plans speak of. Real agents get less out of the same
//! network, and [`Tcp`] says how much less, from what TCP is and not from measurements:
//!
//! - Every byte of a block travels in frames, records and segments with their headers, and
//!   acknowledgements, messages and their headers take room on the way they go.
//! - A connection takes three round trips until protocols can use it: TCP, TLS, greeting.
//! - It may have a *window* of data on its way. That begins with `FIRST_SEGMENTS` or
//!   what the peer has room for, doubles in each round trip in which it was used up until the queue
//!   on its way runs over, and grows by a segment each after that. What the path does not take makes it shrink to what the path and its
//!   queue hold. A connection that was idle gives its window up by half for each timeout.
//! - When that doubling ends because the queue ran over, nothing reaches the application until
//!   what was lost has been sent again, a round trip later, though the path is busy meanwhile.
//! - What a node says to a peer comes after what it was sending it: behind blocks that lie in the
//!   queues of the network or, where one connection carries both, in the sender's socket.
//!
//! Left out is what is different each time: all other losses and how long it takes to mend them.

use std::time::Duration;

/// What carries blocks and messages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Transport {
    /// Flows have their share at once and no overhead.
    #[default]
    Ideal,
    /// TCP and TLS.
    Tcp(Tcp),
}

impl Transport {
    /// TCP, if that is it.
    pub(crate) const fn tcp(self) -> Option<Tcp> {
        match self {
            Self::Ideal => None,
            Self::Tcp(tcp) => Some(tcp),
        }
    }
}

/// TCP over paths with packets of a certain size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tcp {
    /// The largest IP packet, in bytes.
    pub mtu: u32,
}

impl Default for Tcp {
    /// Over Ethernet.
    fn default() -> Self {
        Self { mtu: 1500 }
    }
}

/// Headers of a segment: IPv4, TCP, timestamps.
const SEGMENT_HEADERS: f64 = 20.0 + 20.0 + 12.0;
/// An acknowledgement stands for this many segments (RFC 1122, 4.2.3.2).
const SEGMENTS_PER_ACK: f64 = 2.0;
/// Segments a connection may send before the first is acknowledged (RFC 6928), ...
const FIRST_SEGMENTS: f64 = 10.0;
/// ... but not more than the peer said it has room for before it has seen any, which Linux counts
/// in segments that Ethernet carries, and rounds up to whole ones.
const FIRST_ROOM: f64 = 20.0 * 1460.0;
/// Where a window ends that shrinks: with one segment less the next loss is found by timeout.
const LEAST_SEGMENTS: f64 = 4.0;
/// Least time until a segment that is not acknowledged is sent again, beyond the round trip.
const TIMEOUT_MIN: Duration = Duration::from_millis(200);
/// A connection is ready after this many round trips: TCP, TLS 1.3, greeting.
const SET_UP_TRIPS: u32 = 3;

// As in the data plane, which is not known here.
const FRAME_HEADER: u32 = 16;
const FRAGMENT_MAX: u32 = 64 << 10;
const RECORD_OVERHEAD: u32 = 22;
const RECORD_MAX: u32 = 16 << 10;
/// What is written to a socket at a time takes so long, within bounds; half as much again may lie
/// there that is not yet in the network. What is behind it messages overtake.
const WRITE_S: f64 = 0.01;
const WRITE_BYTES: (f64, f64) = ((16 << 10) as f64, (256 << 10) as f64);
const UNSENT_WRITES: f64 = 1.5;

impl Tcp {
    /// Bytes that a connection may send before the first are acknowledged.
    fn first_window(self) -> f64 {
        let segment = self.segment();
        let room = (FIRST_ROOM / segment).ceil() * segment;
        (FIRST_SEGMENTS * segment).min(room)
    }

    /// Payload of a segment.
    fn segment(self) -> f64 {
        (f64::from(self.mtu) - SEGMENT_HEADERS).max(1.0)
    }

    /// How many bytes of IP packets a block of so many bytes takes.
    pub(crate) fn wire_bytes(self, block: u32) -> f64 {
        let frames = block.div_ceil(FRAGMENT_MAX);
        let records = frames + block.div_ceil(RECORD_MAX);
        let stream = f64::from(block)
            + f64::from(frames * FRAME_HEADER)
            + f64::from(records * RECORD_OVERHEAD);
        // Segments are shared by what follows one another.
        stream * (1.0 + SEGMENT_HEADERS / self.segment())
    }

    /// What a message takes, which goes in a segment of its own if there is time.
    pub(crate) fn message_bytes(self, message: usize) -> f64 {
        SEGMENT_HEADERS + f64::from(FRAME_HEADER + 2 * RECORD_OVERHEAD) + message as f64
    }

    /// What the acknowledgements of so many bytes take, on their way back.
    pub(crate) fn ack_bytes(self, wire: f64) -> f64 {
        wire / f64::from(self.mtu) / SEGMENTS_PER_ACK * SEGMENT_HEADERS
    }

    /// How long until a connection can be used.
    pub(crate) fn set_up(round_trip: Duration) -> Duration {
        round_trip * SET_UP_TRIPS
    }

    /// How long a message waits behind blocks of `backlog` bytes in all for the same peer, which
    /// move over so many connections at `rate` through queues that hold what comes in `queue`.
    pub(crate) fn behind(backlog: f64, connections: u8, rate: f64, queue: Duration) -> Duration {
        if backlog <= 0.0 || rate <= 0.0 {
            return Duration::ZERO;
        }
        // Where blocks have several connections, messages have their own.
        let unsent = match connections {
            0 | 1 => UNSENT_WRITES * (rate * WRITE_S).clamp(WRITE_BYTES.0, WRITE_BYTES.1),
            _ => 0.0,
        };
        let ahead = backlog.min(rate * queue.as_secs_f64() + unsent);
        Duration::try_from_secs_f64(ahead / rate).unwrap_or(Duration::ZERO)
    }
}

/// How much the connections between two nodes may have on their way in one direction, together.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Window {
    tcp: Tcp,
    connections: f64,
    bytes: f64,
    /// Doubles, rather than growing by a segment.
    starting: bool,
}

/// A window that was used for so much of it was used up.
const USED_UP: f64 = 0.99;

impl Window {
    pub(crate) fn new(tcp: Tcp, connections: u8) -> Self {
        let connections = f64::from(connections.max(1));
        Self {
            tcp,
            connections,
            bytes: connections * tcp.first_window(),
            starting: true,
        }
    }

    /// The most that passes, bytes per second.
    pub(crate) fn rate(&self, round_trip: Duration) -> f64 {
        // A window counts payload, rates count packets.
        let wire = self.bytes * (1.0 + SEGMENT_HEADERS / self.tcp.segment());
        wire / round_trip.max(Duration::from_millis(1)).as_secs_f64()
    }

    /// A round trip is over in which data flowed at `rate`, bytes per second, while so many bytes
    /// wait to be sent. Says how long it takes to send again what was lost, if the start is over
    /// because the queue ran over.
    pub(crate) fn turn(
        &mut self,
        rate: f64,
        round_trip: Duration,
        queue: Duration,
        waiting: f64,
    ) -> Option<Duration> {
        if rate >= self.rate(round_trip) * USED_UP {
            let segments = self.connections * self.tcp.segment();
            self.bytes += if self.starting { self.bytes } else { segments };
            return None;
        }
        let least = self.connections * LEAST_SEGMENTS * self.tcp.segment();
        let held = (rate * (round_trip + queue).as_secs_f64()).max(least);
        let excess = self.bytes - held;
        if excess <= 0.0 {
            return None;
        }
        self.bytes = held;
        let ran_over = std::mem::take(&mut self.starting) && waiting > excess;
        ran_over.then_some(round_trip + queue)
    }

    /// Data is to flow again after `idle`.
    pub(crate) fn resume(&mut self, idle: Duration, round_trip: Duration) {
        let timeout = round_trip + TIMEOUT_MIN;
        let first = self.connections * self.tcp.first_window();
        let mut left = idle;
        while left > timeout && self.bytes > first {
            self.bytes = (self.bytes / 2.0).max(first);
            left -= timeout;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn headers_of_small_packets_take_their_share() {
        let block = 32 << 10;
        let ethernet = Tcp::default().wire_bytes(block) / f64::from(block);
        assert!((1.037..1.040).contains(&ethernet), "{ethernet}");
        let jumbo = Tcp { mtu: 9000 }.wire_bytes(block) / f64::from(block);
        assert!((1.007..1.009).contains(&jumbo), "{jumbo}");
        let acks = Tcp::default().ack_bytes(1e6) / 1e6;
        assert!((0.017..0.018).contains(&acks), "{acks}");
    }

    #[test]
    fn windows_double_until_the_queue_runs_over_and_grow_slowly_then() {
        let (trip, queue) = (20 * MS, 45 * MS);
        let mut window = Window::new(Tcp { mtu: 9000 }, 1);
        let first = window.rate(trip);
        assert!((first - 4.0 * 9000.0 / 0.02).abs() < 1.0, "{first}");
        assert_eq!(window.turn(first, trip, queue, 1e6), None);
        assert_eq!(window.turn(2.0 * first, trip, queue, 1e6), None);
        assert!((window.rate(trip) - 4.0 * first).abs() < 1.0);
        // The path takes less: the window is what path and queue hold, 65 ms of it, and what was
        // sent beyond that was lost.
        let repair = window.turn(1e6, trip, queue, 1e6);
        assert_eq!(repair, Some(trip + queue));
        let held = window.bytes;
        assert!((held - 65_000.0).abs() < 1.0, "{held}");
        assert_eq!(window.turn(window.rate(trip), trip, queue, 1e6), None);
        assert!((window.bytes - held - 8948.0).abs() < 1.0);
        assert_eq!(window.turn(1e6, trip, queue, 1e6), None);
    }

    #[test]
    fn a_start_loses_nothing_if_there_is_less_to_send_than_the_queue_takes() {
        let (trip, queue) = (20 * MS, 45 * MS);
        let mut window = Window::new(Tcp { mtu: 9000 }, 1);
        (0..2).for_each(|_| assert_eq!(window.turn(1e9, trip, queue, 0.0), None));
        let excess = window.bytes - 65_000.0;
        assert!(excess > 0.0);
        assert_eq!(window.turn(1e6, trip, queue, excess - 1.0), None);
    }

    #[test]
    fn a_peer_has_room_for_little_before_it_has_seen_data() {
        let ethernet = Tcp::default();
        assert!((ethernet.first_window() - 10.0 * 1448.0).abs() < 1.0);
        let jumbo = Tcp { mtu: 9000 };
        assert!((jumbo.first_window() - 4.0 * 8948.0).abs() < 1.0);
    }

    #[test]
    fn several_connections_have_as_many_windows() {
        let jumbo = Tcp { mtu: 9000 };
        let (one, three) = (Window::new(jumbo, 1), Window::new(jumbo, 3));
        assert!((three.bytes - 3.0 * one.bytes).abs() < 1.0);
        let grown = |mut window: Window| {
            // The path holds 65 ms of 1 MB/s, however many share it; then it takes more again.
            window.turn(1e6, 20 * MS, 45 * MS, 1e6);
            window.starting = false;
            let held = window.bytes;
            window.turn(f64::INFINITY, 20 * MS, 45 * MS, 1e6);
            window.bytes - held
        };
        assert!((grown(three) - 3.0 * grown(one)).abs() < 1.0);
    }

    #[test]
    fn idle_connections_begin_anew() {
        let mut window = Window::new(Tcp { mtu: 9000 }, 1);
        let first = window.bytes;
        (0..5).for_each(|_| assert_eq!(window.turn(f64::INFINITY, MS, MS, 0.0), None));
        window.resume(100 * MS, 20 * MS);
        assert!(
            (window.bytes - 32.0 * first).abs() < 1.0,
            "too short a pause"
        );
        window.resume(500 * MS, 20 * MS);
        assert!((window.bytes - 8.0 * first).abs() < 1.0);
        window.resume(60_000 * MS, 20 * MS);
        assert!((window.bytes - first).abs() < 1.0);
    }

    #[test]
    fn messages_wait_behind_what_the_network_took_in() {
        // 64 KiB at 1 MB/s, all of it in the queue or the socket.
        let few = Tcp::behind(50_000.0, 1, 1e6, 45 * MS);
        assert_eq!(few.as_millis(), 50);
        let many = Tcp::behind(1e6, 1, 1e6, 45 * MS);
        assert_eq!(many.as_millis(), 45 + 24);
        let fast = Tcp::behind(1e7, 1, 1e7, 45 * MS);
        assert_eq!(fast.as_millis(), 45 + 15);
        assert_eq!(Tcp::behind(0.0, 1, 1e6, 45 * MS), Duration::ZERO);
        // A connection of its own passes the socket, but not the queue.
        let several = Tcp::behind(1e6, 2, 1e6, 45 * MS);
        assert_eq!(several.as_millis(), 45);
    }
}
