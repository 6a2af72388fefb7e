//! A network packet by packet, in virtual time.
//!
//! An [`Engine`] holds ports and the packets in them. A [port](Setting) serves the packets that
//! wait in its queues at its rate and hands them on after its delay; a route is the ports that a
//! packet passes one after the other, as many as there are. What a packet carries is up to the
//! caller ([`Load`]): the emulator moves real bytes, a simulator of senders and receivers moves
//! numbers. Two builders know which ports there are: [`Pipes`] for a network of clusters as
//! planning, simulation and emulation describe it, and [`Wiring`] for a
//! [topology](outpour_core::topology) of hosts and switches.
//!
//! Everything is a function of what the caller does and of one seed: there is no clock, no thread
//! and no other randomness, and equal calls give equal traces. What happens at one time happens in
//! the order in which it was scheduled.
//!
//! ```
//! use outpour_core::{Time, network::Backlog};
//! use outpour_packets::{Discipline, Engine, Load, Setting};
//!
//! struct Datagram(u32);
//! impl Load for Datagram {
//!     fn wire_bytes(&self) -> u32 {
//!         self.0
//!     }
//! }
//!
//! let discipline = Discipline::drop_tail(Backlog::Packets(100), None);
//! let port = Setting::new("1 MB/s".parse().unwrap(), discipline);
//! let mut engine = Engine::new([port], 7);
//! let port = engine.ports().next().unwrap();
//! let route = engine.add_route(&[port]);
//! let mut arrivals = Vec::new();
//! engine.send(Datagram(1000), route, Time::ZERO, &mut arrivals);
//! engine.send(Datagram(1000), route, Time::ZERO, &mut arrivals);
//! engine.advance(Time::MAX, &mut arrivals);
//! let times: Vec<_> = arrivals.iter().map(|arrival| arrival.at.0).collect();
//! assert_eq!(times, [1_000_000, 2_000_000]);
//! ```

mod class;
mod engine;
mod loss;
mod pipes;
mod port;
mod setting;
mod stats;
mod timers;
mod wiring;

pub use engine::{Arrival, Counts, Engine, Load, PortId, RouteId};
pub use loss::Loss;
pub use pipes::{Pipes, Sizes};
pub use setting::{CLASSES_MAX, Discipline, Order, Queue, Setting, SettingError, WEIGHT_MAX};
pub use stats::Stats;
pub use timers::Timers;
pub use wiring::{Profile, Wiring, WiringError};
