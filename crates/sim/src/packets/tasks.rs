//! Tasks, packet by packet: hosts fetch objects, each from several sources at once [PPUSH §V-B].
//!
//! [`Setting`] says what the network is and which [`Scheme`] moves objects over it, [`Workload`] which
//! tasks there are and when; [`Setting::play`] plays tasks and says how long each took. One instance is
//! a function of its setting, its tasks and a seed, and nothing is shared between two: so sweeps are
//! lists of jobs of [`Setting::instance`] that may run anywhere, in any order.
//!
//! | scheme | who sends what | bandwidth |
//! |---|---|---|
//! | `push-a-b` | the machines of [`outpour_push`], the controller among them; a = 1: rateless symbols from all sources, a = 0: an equal share from each | weighted fair; b = 1: weights of Algorithm 1, b = 0: 1 each |
//! | `dctcp`, `reno` | an equal share from each source over [`tcp`](super::tcp) | as the congestion control has it |
//! | `dccp` | likewise over [`dccp`](super::dccp); what was lost is replaced | likewise |
//! | `scdp` | coded symbols from all sources over [`scdp`](super::scdp), sprayed over all shortest ways | receivers pull at the rate of their links; priorities sink with age |
//!
//! Messages to and from the controller pass outside of the network and take
//! [`Setting::control_delay`] each: they are a few for every task and some in a second for each that is
//! under way. They arrive always, and in order. The other schemes have no controller; their sources start as late
//! as if there were one: after two of these delays, or, with SCDP, whose requests pass the network, when the request
//! has come to the source if that is later.
//!
//! How flows start and how windows become whole packets is the schemes' own and explains part of what one
//! takes longer than another, the more the shorter tasks are:
//!
//! | scheme | window at the start, packets per source | growth at the start | a window that is no whole number |
//! |---|---|---|---|
//! | `push-a-b` | 1 | one packet per round trip; doubles with [`Setting::has_slow_start`] | is rounded up as often as its part says |
//! | `dctcp`, `reno` | 10 | doubles per round trip | is cut off |
//! | `dccp` | 4 | doubles per round trip | is cut off |
//! | `scdp` | what a round trip carries from the farthest source | none; so much stays on its way | is rounded once |
//!
//! [`Setting::initial_window`] replaces the first for all; that of SCDP never grows, so a small one holds it back
//! until the end. Timeouts are at first [`Setting::rto_initial`],
//! then those of RFC 6298 between [`Setting::rto_min`] and [`Setting::rto_max`], with all schemes but SCDP. That has no
//! timer for packets, as ports tell of what they cut: its sessions start again after a silence of ten times
//! `rto_min`, which comes up only if a source dies or a link loses packets. The first timeout of
//! a flow of Parallel Push makes it send two packets beyond its window; only the second brings the window down.

mod play;
mod push;
mod scdp;
pub mod sizes;
mod streams;
pub mod svg;
pub mod workload;

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use outpour_congestion::OptionError;
use outpour_core::network::Link;
use outpour_core::text::excerpt;
use outpour_core::topology::{Metric, Topology, TopologyError, packets_per_s};
use outpour_core::{NodeId, Time};
use outpour_packets::{SettingError, WiringError};
use rand_core::RngCore;
use serde::Serialize;

use super::RtoBounds;

pub use sizes::{Sizes, SizesError};
pub use workload::{Sources, Workload};

/// How many hosts there may be.
pub const HOSTS_MAX: u32 = 4096;
/// How many tasks there may be.
pub const TASKS_MAX: u32 = 65_536;
/// How many sources a task may have.
pub const FANOUT_MAX: u32 = 64;
/// How many packets may wait in a queue, at most.
pub const QUEUE_MAX: u32 = 1_000_000;

/// How objects are moved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scheme {
    /// Parallel Push.
    Push {
        /// Whether sources send as many coded symbols as they can, instead of an equal share.
        is_rateless: bool,
        /// Whether the smallest task has the largest weight, instead of all having 1.
        is_prioritized: bool,
    },
    /// TCP with [`outpour_congestion::Dctcp`], an equal share from each source.
    Dctcp,
    /// DCCP with [`outpour_congestion::Dccp`], an equal share from each source.
    Dccp,
    /// TCP with [`outpour_congestion::Reno`], an equal share from each source.
    Reno,
    /// Symbols that the receiver asks for one by one, see [`scdp`](super::scdp).
    Scdp,
}

impl Scheme {
    /// All there are, those of table II in its order [PPUSH §V-B].
    pub const ALL: [Self; 8] = [
        Self::push(false, false),
        Self::push(false, true),
        Self::push(true, false),
        Self::push(true, true),
        Self::Dctcp,
        Self::Dccp,
        Self::Reno,
        Self::Scdp,
    ];

    const fn push(is_rateless: bool, is_prioritized: bool) -> Self {
        Self::Push {
            is_rateless,
            is_prioritized,
        }
    }

    /// What it is called.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Push {
                is_rateless: false,
                is_prioritized: false,
            } => "push-0-0",
            Self::Push {
                is_rateless: false,
                is_prioritized: true,
            } => "push-0-1",
            Self::Push {
                is_rateless: true,
                is_prioritized: false,
            } => "push-1-0",
            Self::Push {
                is_rateless: true,
                is_prioritized: true,
            } => "push-1-1",
            Self::Dctcp => "dctcp",
            Self::Dccp => "dccp",
            Self::Reno => "reno",
            Self::Scdp => "scdp",
        }
    }

    /// What it does, in a few words.
    pub const fn about(self) -> &'static str {
        match self {
            Self::Push {
                is_rateless: false,
                is_prioritized: false,
            } => "Parallel Push, equal shares and equal weights",
            Self::Push {
                is_rateless: false,
                is_prioritized: true,
            } => "Parallel Push, equal shares, the smallest task first",
            Self::Push {
                is_rateless: true,
                is_prioritized: false,
            } => "Parallel Push, rateless symbols and equal weights",
            Self::Push {
                is_rateless: true,
                is_prioritized: true,
            } => "Parallel Push, rateless symbols, the smallest task first",
            Self::Dctcp => "TCP with DCTCP, equal shares",
            Self::Dccp => "DCCP with TCP-like congestion control, equal shares",
            Self::Reno => "TCP with Reno, equal shares",
            Self::Scdp => {
                "SCDP: the receiver pulls symbols, full ports trim, priorities sink with age"
            }
        }
    }
}

impl fmt::Display for Scheme {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A shape of hosts and switches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// `obs:HOSTS`: hosts on One Big Switch.
    OneBigSwitch {
        /// How many.
        hosts: u32,
    },
    /// `leaf-spine:LEAVESxHOSTSxSPINES`: so many leaves with so many hosts each.
    LeafSpine {
        /// How many leaves.
        leaves: u32,
        /// How many hosts each has.
        hosts: u32,
        /// How many spines.
        spines: u32,
    },
    /// `fat-tree:K`: a fat tree of switches with K ports.
    FatTree {
        /// K.
        ports: u32,
    },
}

/// How shapes are written.
pub const SHAPES: &str =
    "obs:HOSTS, leaf-spine:LEAVESxHOSTSxSPINES (hosts of each leaf) or fat-tree:K";

impl FromStr for Shape {
    type Err = TasksError;

    fn from_str(text: &str) -> Result<Self, TasksError> {
        let none = || TasksError::Shape {
            found: text.to_owned(),
        };
        let (kind, rest) = text.split_once(':').ok_or_else(none)?;
        let numbers: Option<Vec<u32>> = rest.split('x').map(|it| it.trim().parse().ok()).collect();
        match (kind, numbers.as_deref()) {
            ("obs", Some(&[hosts])) => Ok(Self::OneBigSwitch { hosts }),
            ("leaf-spine", Some(&[leaves, hosts, spines])) => Ok(Self::LeafSpine {
                leaves,
                hosts,
                spines,
            }),
            ("fat-tree", Some(&[ports])) => Ok(Self::FatTree { ports }),
            _ => Err(none()),
        }
    }
}

impl Shape {
    /// How many consecutive hosts are in one pod, or on one leaf or switch.
    pub fn group(self) -> u32 {
        match self {
            Self::OneBigSwitch { hosts } | Self::LeafSpine { hosts, .. } => hosts,
            Self::FatTree { ports } => ports * ports / 4,
        }
    }

    /// Hosts and switches of this shape over such links.
    ///
    /// # Errors
    /// If there can be no such shape, or no such links.
    pub fn topology(self, links: &Links) -> Result<Topology, TasksError> {
        let edge = links.link(links.packets_per_s)?;
        let fabric = links.link(links.fabric_packets_per_s)?;
        Ok(match self {
            Self::OneBigSwitch { hosts } => Topology::one_big_switch(hosts, edge)?,
            Self::LeafSpine {
                leaves,
                hosts,
                spines,
            } => Topology::leaf_spine(leaves, hosts, spines, edge, fabric)?,
            Self::FatTree { ports } => Topology::fat_tree(ports, edge, fabric)?,
        })
    }
}

/// The links of a shape, in either direction.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Links {
    /// How many data packets a link of a host carries in a second.
    pub packets_per_s: f64,
    /// How many one between switches carries.
    pub fabric_packets_per_s: f64,
    /// How long a packet is on each.
    pub delay: Duration,
    /// The size of a data packet, headers included.
    pub packet_bytes: u32,
}

impl Links {
    /// A link that carries so many data packets in a second.
    ///
    /// # Errors
    /// If that is not a number from 1 to 10^9.
    pub fn link(&self, packets: f64) -> Result<Link, TasksError> {
        let rate = packets_per_s(packets, self.packet_bytes);
        let rate = rate.filter(|_| (1.0..=1e9).contains(&packets));
        let rate = rate.ok_or_else(|| TasksError::Range {
            key: "packets_per_s",
            found: packets.to_string(),
            expected: "1 to 10^9",
        })?;
        Ok(Link {
            rate,
            delay: self.delay,
            ..Link::OPEN
        })
    }
}

/// A host fetches an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Task {
    /// When it asks.
    pub at: Time,
    /// How large the object is.
    pub packets: u64,
    /// Who asks.
    pub device: NodeId,
    /// Who has the object. The controller of Parallel Push draws its sources from these; for the other
    /// schemes the first ones are the sources.
    pub holders: Vec<NodeId>,
}

/// A network, and how objects are moved over it.
#[derive(Clone, Debug, PartialEq)]
pub struct Setting {
    /// Hosts, switches and links; rates are those of packets of `packet_bytes`.
    pub topology: Topology,
    /// Which ways are short.
    pub metric: Metric,
    /// How objects are moved.
    pub scheme: Scheme,
    /// How many sources a task has, at most.
    pub fanout: u32,
    /// How many packets wait at a port before more are dropped, where links do not say.
    pub queue_packets: u32,
    /// A packet that finds so many waiting gets a congestion mark, where links do not say.
    pub mark_packets: u32,
    /// The size of a data packet, headers included.
    pub packet_bytes: u32,
    /// The size of an acknowledgement, headers included.
    pub ack_bytes: u32,
    /// How long a message to or from the controller takes.
    pub control_delay: Duration,
    /// No retransmission timeout is shorter, with any scheme.
    pub rto_min: Duration,
    /// The retransmission timeout before the first sample, with any scheme; `rto_min` if that is longer.
    pub rto_initial: Duration,
    /// No retransmission timeout is longer, with any scheme; `rto_min` if that is longer.
    pub rto_max: Duration,
    /// With how many packets sources of Parallel Push probe before they take a window for lost; the paper knows of none.
    pub probes: u32,
    /// The window of each source at the start, packets, with any scheme; that of the scheme if not said.
    pub initial_window: Option<f64>,
    /// Whether sources of Parallel Push begin with a slow start, as those of the baselines do; the paper
    /// does not say so.
    pub has_slow_start: bool,
    /// How many symbols a block has, under Parallel Push and SCDP.
    pub block_symbols: u32,
    /// At which numbers of symbols a session of SCDP sinks to the next priority.
    pub scdp_thresholds: [u64; 4],
    /// How often receivers of Parallel Push say how far they are, and the controller looks at that.
    pub progress_interval: Duration,
    /// Which hosts die when: they neither send nor hear anything from then on.
    pub deaths: Vec<(Time, NodeId)>,
    /// A task that is not complete so long after the last one began never will be.
    pub give_up_after: Duration,
}

/// The size of a data packet if nothing else is said: one of 1460 bytes with headers of IP and TCP.
pub const PACKET_BYTES: u32 = 1500;
/// The size of an acknowledgement if nothing else is said: headers of IP and TCP.
pub const ACK_BYTES: u32 = 40;

impl Setting {
    /// The paper's setting, as far as it says: fan-out 3, queues of 100 packets that mark from 30 on
    /// [PPUSH §V].
    pub fn new(topology: Topology, scheme: Scheme) -> Self {
        Self {
            topology,
            metric: Metric::Hops,
            scheme,
            fanout: 3,
            queue_packets: 100,
            mark_packets: 30,
            packet_bytes: PACKET_BYTES,
            ack_bytes: ACK_BYTES,
            control_delay: Duration::from_micros(40),
            rto_min: Duration::from_millis(10),
            rto_initial: Duration::from_millis(100),
            rto_max: Duration::from_millis(250),
            probes: outpour_push::SenderTimers::default().probes,
            initial_window: None,
            has_slow_start: false,
            block_symbols: 1024,
            scdp_thresholds: super::scdp::THRESHOLDS,
            progress_interval: Duration::from_millis(2),
            deaths: Vec::new(),
            give_up_after: Duration::from_secs(1000),
        }
    }

    /// The bounds of all retransmission timeouts.
    fn rto(&self) -> RtoBounds {
        RtoBounds {
            initial: self.rto_initial.max(self.rto_min),
            min: self.rto_min,
            max: self.rto_max.max(self.rto_min),
        }
    }

    /// Draws the tasks of a workload and plays them; the same for the same seed. All schemes get the
    /// same tasks.
    ///
    /// # Errors
    /// If something is out of range; names it.
    pub fn instance(&self, workload: &Workload, seed: u64) -> Result<Instance, TasksError> {
        let tasks = workload.draw(self, seed)?;
        self.play(&tasks, seed)
    }
}

/// What an instance has shown.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Instance {
    /// What everything was drawn from.
    pub seed: u64,
    /// Mean of how long tasks took that were completed, seconds; NaN if none was.
    pub average_tct_s: f64,
    /// The same, over what these tasks would take on average if each had the slowest link on its way to
    /// itself [PPUSH §V-B]. Tasks that were not completed are in neither mean: then it says nothing of the
    /// scheme as a whole.
    pub normalized_average_tct: f64,
    /// How long each task took, seconds, in their order; none if it was never complete.
    pub tcts_s: Vec<Option<f64>>,
    /// Why tasks were not completed.
    pub failures: Vec<Failure>,
    /// How large objects were on average, packets.
    pub mean_packets: f64,
    /// How often a retransmission timer ran out.
    pub timeouts: u64,
    /// For each source of each task, which share of its packets it delivered, those left out that came twice
    /// or too late.
    pub shares: Vec<f64>,
    /// How many packets were sent, acknowledgements included and messages of the controller left out.
    pub packets: u64,
    /// How many found no room in a queue.
    pub drops: u64,
    /// How often a packet was marked.
    pub marks: u64,
    /// How many lost their payload.
    pub trimmed: u64,
    /// How many ports packets passed in all.
    pub packet_hops: u64,
    /// From the first task until the last was complete, seconds.
    pub makespan_s: f64,
    /// The share of all time, which ends soon after that, for which the port that was busiest sent.
    pub busiest_port: f64,
}

/// A task that was not completed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Failure {
    /// Which, from 0.
    pub task: usize,
    /// Why.
    pub why: String,
}

/// What cannot be about tasks and their network.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum TasksError {
    /// Something out of range.
    #[error("`{key}` is {found}: expected {expected}")]
    Range {
        /// What it is called.
        key: &'static str,
        /// What it is.
        found: String,
        /// What it may be.
        expected: &'static str,
    },
    /// Marks that would never be made.
    #[error("`mark` is {mark}: a queue of {queue} packets never holds more than that")]
    Mark {
        /// The threshold.
        mark: u32,
        /// The limit.
        queue: u32,
    },
    /// More sources than there can be.
    #[error("`{key}` is {found}: only {most} {of}")]
    TooMany {
        /// What it is called.
        key: &'static str,
        /// What it is.
        found: u32,
        /// How many there are.
        most: u32,
        /// Of what.
        of: &'static str,
    },
    /// A task that cannot be.
    #[error("task {task}: {problem}")]
    Task {
        /// Which, from 0.
        task: usize,
        /// What is wrong with it.
        problem: &'static str,
    },
    /// A shape that there is not.
    #[error("there is no topology `{}`: expected {SHAPES}", excerpt(found))]
    Shape {
        /// What was given.
        found: String,
    },
    /// A way with nothing that limits it.
    #[error(
        "no link on the way from `{}` to `{}` has a rate: load and times would mean nothing",
        excerpt(from),
        excerpt(to)
    )]
    Unlimited {
        /// The host that sends.
        from: String,
        /// The host that receives.
        to: String,
    },
    /// Hosts and links that cannot be.
    #[error(transparent)]
    Topology(#[from] TopologyError),
    /// A port that cannot be.
    #[error(transparent)]
    Wiring(#[from] WiringError),
    /// Queues that cannot be.
    #[error(transparent)]
    Queues(SettingError),
    /// Congestion control that cannot be.
    #[error(transparent)]
    Congestion(#[from] OptionError),
    /// A machine of Parallel Push that cannot be.
    #[error(transparent)]
    Push(#[from] outpour_push::Error),
}

/// A number from 0 up to 1, without 1.
fn uniform(dice: &mut impl RngCore) -> f64 {
    (dice.next_u64() >> 11) as f64 / (1_u64 << 53) as f64
}
