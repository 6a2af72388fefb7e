//! Where the reducers of a shuffle go, and how fast each of its flows is sent [RPC §IV].
//!
//! Mappers hold data for reducers, and all flows between them are one *coflow*: it is complete when
//! the last of them is. Hosts limit what they send and what they receive; the network between them
//! carries everything. So a placement of reducers decides what each host receives, and with it how
//! long the coflow takes.
//!
//! The best placement is hard to find, a placement within twice the best is not. The *relaxed*
//! problem lets a reducer be split over hosts. As a reducer that receives `r` takes `r / b` of the
//! time of a host of bandwidth `b`, hosts are machines of different speeds, and a reducer that is
//! large may go to the fast ones only: both are sorted once, and reducers fill hosts one after the
//! other. Then each split reducer is placed whole [RPC algorithm 2]. What list scheduling finds is
//! taken where that is better.

mod coflow;
pub mod file;
mod greedy;
mod relaxed;
mod rounding;
pub mod schedule;
pub mod svg;

use std::fmt;

pub use coflow::Coflow;
use coflow::{Held, Reducer};
pub use relaxed::{Relaxed, Share, relax};
pub use rounding::round;

/// A host by its index in [`Hosts`].
pub type HostId = usize;

/// So many hosts are too many: numbers of mappers are checked before there are hosts.
pub const HOSTS_MAX: usize = 1 << 20;

/// What hosts send and receive for the coflow at most, and which may run its reducers.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Hosts {
    /// Bytes per second that each host sends at most; finite.
    pub out: Vec<f64>,
    /// Bytes per second that each host receives at most; finite. As many as in `out`.
    pub into: Vec<f64>,
    /// How many reducers each host may run. As many as in `out`.
    pub slots: Vec<u32>,
}

/// What one mapper has for one reducer.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Flow {
    /// Where the mapper ran.
    pub mapper: HostId,
    /// What it holds for the reducer; finite.
    pub bytes: f64,
}

/// How long the parts of a coflow take, seconds.
struct Times {
    /// The slowest mapper, to send.
    sending: f64,
    /// Each host, to receive.
    receiving: Vec<f64>,
}

impl Times {
    /// The whole coflow.
    fn slowest(&self) -> f64 {
        self.receiving.iter().copied().fold(self.sending, f64::max)
    }
}

/// How long bytes take; none if they are but an error of arithmetic in numbers as large as `of`.
fn time(bytes: f64, of: f64, rate: f64) -> f64 {
    match bytes > of * 1e-12 {
        true => bytes / rate,
        false => 0.0,
    }
}

fn is_amount(amount: f64) -> bool {
    amount >= 0.0 && amount.is_finite()
}

/// Where all reducers go and how long their flows take.
#[derive(Clone, Debug, PartialEq)]
pub struct Placement {
    /// The host of each reducer.
    pub hosts: Vec<HostId>,
    /// How long the flows of each reducer take, seconds: those of one host end together.
    pub reducer_s: Vec<f64>,
    /// How long the coflow takes, seconds.
    pub seconds: f64,
    /// No placement takes less, seconds.
    pub lower_bound_s: f64,
}

impl Placement {
    /// The rate of a flow of a reducer, bytes per second; zero for what is on its host already.
    ///
    /// # Panics
    /// If there is no such reducer.
    pub fn rate(&self, reducer: usize, flow: &Flow) -> f64 {
        let seconds = self.reducer_s[reducer];
        match flow.mapper == self.hosts[reducer] || flow.bytes == 0.0 || seconds == 0.0 {
            true => 0.0,
            false => flow.bytes / seconds,
        }
    }

    /// By how much it may be longer than the best; 1 if it takes no time, none if no bound is known.
    pub fn factor(&self) -> Option<f64> {
        match self.seconds > 0.0 {
            true => Some(self.seconds / self.lower_bound_s).filter(|factor| factor.is_finite()),
            false => Some(1.0),
        }
    }
}

/// Why there is no placement.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum ShuffleError {
    /// Lists about hosts, or about reducers, are not equally long.
    Lengths,
    /// A rate is negative or not finite.
    Rate {
        /// Of which host.
        host: HostId,
    },
    /// A flow is negative or not finite.
    Flow {
        /// Of which reducer.
        reducer: usize,
        /// From which host.
        mapper: HostId,
    },
    /// What mappers hold in relation to each other is nothing, or too much to add up.
    Weights,
    /// A host that does not exist.
    NoHost {
        /// Of which reducer.
        reducer: usize,
        /// What it names.
        host: HostId,
    },
    /// More reducers than all hosts may run.
    Slots {
        /// How many reducers have to be placed.
        reducers: usize,
        /// How many may run.
        slots: u64,
    },
    /// More reducers have started on a host than it may run.
    Started {
        /// Which host.
        host: HostId,
    },
    /// A mapper that has something for others sends nothing.
    SendsNothing {
        /// Which host.
        host: HostId,
    },
    /// The reducer can be nowhere: no host that may run it receives anything.
    ReceivesNothing {
        /// Which reducer.
        reducer: usize,
    },
}

impl fmt::Display for ShuffleError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Lengths => write!(
                f,
                "each host needs a rate in, a rate out and a limit of reducers, and each reducer a place or none"
            ),
            Self::Rate { host } => write!(f, "a rate of host {host} is negative or not finite"),
            Self::Flow { reducer, mapper } => write!(
                f,
                "what host {mapper} holds for reducer {reducer} is negative or not finite"
            ),
            Self::Weights => write!(
                f,
                "the weights of all mappers together are zero, or too much to add up"
            ),
            Self::NoHost { reducer, host } => {
                write!(f, "reducer {reducer}: there is no host {host}")
            }
            Self::Slots { reducers: 1, slots } => {
                write!(f, "1 reducer has to be placed, and hosts may run {slots}")
            }
            Self::Slots { reducers, slots } => write!(
                f,
                "{reducers} reducers have to be placed, and hosts may run {slots}"
            ),
            Self::Started { host } => write!(
                f,
                "more reducers have started on host {host} than it may run"
            ),
            Self::SendsNothing { host } => write!(
                f,
                "host {host} holds data for reducers and sends nothing: the coflow never ends"
            ),
            Self::ReceivesNothing { reducer } => write!(
                f,
                "reducer {reducer} can be nowhere: no host that may run it receives anything"
            ),
        }
    }
}

impl std::error::Error for ShuffleError {}

/// Places the reducers of a coflow that has the hosts for itself, and sets the rates of its flows
/// [RPC algorithm 3]. `started` names the hosts of reducers that have started, which stay [RPC §IV-D];
/// it may be empty. Takes O((N + M) log (N + M)) for N reducers and M hosts if no host's limit of
/// reducers binds.
///
/// The time is at most twice the least where reducers hold no data themselves and limits of
/// reducers do not bind.
///
/// # Errors
/// If numbers are out of range, or some reducer can be nowhere.
///
/// ```
/// use outpour_planner::shuffle::{Coflow, Flow, Hosts, place};
/// // One mapper with 1, 1.5 and 2 Gbit for three reducers, and hosts of 2, 1 and 1 Gbit/s [RPC figure 1].
/// let hosts = Hosts {
///     out: vec![10e9, 0.0, 0.0, 0.0],
///     into: vec![0.0, 2e9, 1e9, 1e9],
///     slots: vec![0, 1, 1, 1],
/// };
/// let reducer = |bits| vec![Flow { mapper: 0, bytes: bits }];
/// let coflow = Coflow::new(vec![reducer(1e9), reducer(1.5e9), reducer(2e9)])?;
/// let placement = place(&coflow, &hosts, &[])?;
/// assert_eq!(placement.hosts[2], 1);
/// assert_eq!(placement.seconds, 1.5);
/// # Ok::<(), outpour_planner::shuffle::ShuffleError>(())
/// ```
pub fn place(
    coflow: &Coflow,
    hosts: &Hosts,
    started: &[Option<HostId>],
) -> Result<Placement, ShuffleError> {
    let none = vec![
        None;
        if started.is_empty() {
            coflow.reducers()
        } else {
            0
        }
    ];
    let started = if started.is_empty() {
        &none[..]
    } else {
        started
    };
    check(coflow, hosts, started)?;
    let mut best: Option<(Times, Vec<HostId>)> = None;
    let mut consider = |fixed: &[Option<HostId>]| {
        let rounded = rounded(coflow, hosts, fixed);
        let listed = greedy::list(coflow, hosts, fixed);
        for found in rounded.into_iter().chain(listed) {
            let times = coflow.times(hosts, &found);
            let is_better = |best: &(Times, _)| times.slowest() < best.0.slowest();
            if best.as_ref().is_none_or(is_better) {
                best = Some((times, found));
            }
        }
    };
    consider(started);
    let local = with_data(coflow, hosts, started);
    if local != started {
        consider(&local);
    }
    let found = best.filter(|(times, _)| times.slowest().is_finite());
    let (times, places) = found.ok_or_else(|| never(coflow, hosts, started))?;
    let seconds = times.slowest();
    let of = |host: &HostId| times.sending.max(times.receiving[*host]);
    Ok(Placement {
        reducer_s: places.iter().map(of).collect(),
        hosts: places,
        seconds,
        lower_bound_s: lower_bound(coflow, hosts, started).min(seconds),
    })
}

/// No placement takes less than this, seconds. In time `T` a host sends `T` times its rate out; reducers that
/// run on it receive `T` times its rate in, and so save no more than a known share of that. And each reducer
/// has to fetch what is not on the host where most of its data is, which is the relaxed problem.
fn lower_bound(coflow: &Coflow, hosts: &Hosts, started: &[Option<HostId>]) -> f64 {
    let open = open(&hosts.slots);
    let may_save = |host: usize| hosts.slots[host] > 0;
    let sent = coflow.holds.iter().enumerate().map(|(host, held)| {
        let saved = match may_save(host) {
            true if held.saves.is_infinite() => f64::INFINITY,
            true => held.saves * hosts.into[host],
            false => 0.0,
        };
        time(held.bytes, 0.0, hosts.out[host] + saved)
    });
    let sent = sent.fold(0.0, f64::max);
    let any_local =
        (0..coflow.holds.len()).any(|host| may_save(host) && coflow.holds[host].bytes > 0.0);
    let mut loads = vec![0.0; hosts.into.len()];
    let mut wants = Vec::with_capacity(coflow.reducers());
    for (index, (reducer, started)) in coflow.reducers.iter().zip(started).enumerate() {
        let local = reducer.largest.filter(|_| any_local);
        match started {
            Some(host) => loads[*host] += coflow.fetches(index, *host),
            None => wants.push((reducer.bytes - local.map_or(0.0, |flow| flow.bytes)).max(0.0)),
        }
    }
    let relaxed = relax(&wants, &hosts.into, &open, &loads);
    sent.max(relaxed.map_or(f64::INFINITY, |relaxed| relaxed.scale))
}

/// The hosts that may run another reducer.
fn open(left: &[u32]) -> Vec<HostId> {
    (0..left.len()).filter(|host| left[*host] > 0).collect()
}

/// The hosts of reducers that have started, and of those that have more than half of their data on one
/// host that may run more [RPC §IV-D].
fn with_data(coflow: &Coflow, hosts: &Hosts, started: &[Option<HostId>]) -> Vec<Option<HostId>> {
    let mut left = slots_left(hosts, started);
    let mut place = |(reducer, started): (&Reducer, &Option<HostId>)| {
        let largest = reducer.largest.filter(|_| started.is_none());
        let Some(flow) = largest.filter(|flow| flow.bytes > reducer.bytes / 2.0) else {
            return *started;
        };
        let slots = &mut left[flow.mapper];
        *slots = slots.checked_sub(1)?;
        Some(flow.mapper)
    };
    coflow
        .reducers
        .iter()
        .zip(started)
        .map(&mut place)
        .collect()
}

fn slots_left(hosts: &Hosts, fixed: &[Option<HostId>]) -> Vec<u32> {
    let mut left = hosts.slots.clone();
    for host in fixed.iter().flatten() {
        left[*host] = left[*host].saturating_sub(1);
    }
    left
}

/// What hosts fetch for the reducers that are fixed there, bytes.
fn loads_of(coflow: &Coflow, hosts: &Hosts, fixed: &[Option<HostId>]) -> Vec<f64> {
    let mut loads = vec![0.0; hosts.into.len()];
    for (reducer, place) in fixed.iter().enumerate() {
        if let Some(host) = *place {
            loads[host] += coflow.fetches(reducer, host);
        }
    }
    loads
}

/// Rounds the relaxed problem, again and again without the hosts that have as many reducers as they
/// may run [RPC §IV-D]. `None` if a reducer finds no host.
fn rounded(coflow: &Coflow, hosts: &Hosts, fixed: &[Option<HostId>]) -> Option<Vec<HostId>> {
    let mut places = fixed.to_vec();
    let mut left = slots_left(hosts, fixed);
    let mut loads = loads_of(coflow, hosts, fixed);
    loop {
        let free: Vec<usize> = (0..places.len())
            .filter(|it| places[*it].is_none())
            .collect();
        if free.is_empty() {
            return places.into_iter().collect();
        }
        let size = |reducer: usize| coflow.reducers[reducer].bytes;
        let wants: Vec<f64> = free.iter().map(|reducer| size(*reducer)).collect();
        let relaxed = relax(&wants, &hosts.into, &open(&left), &loads)?;
        let chosen = round(free.len(), &relaxed.shares);
        let mut on: Vec<Vec<usize>> = vec![Vec::new(); left.len()];
        for (reducer, host) in free.iter().zip(&chosen) {
            on[*host].push(*reducer);
        }
        let is_full = |host: &HostId| on[*host].len() > left[*host] as usize;
        let full: Vec<HostId> = (0..left.len()).filter(is_full).collect();
        if full.is_empty() {
            for (reducer, host) in free.iter().zip(&chosen) {
                places[*reducer] = Some(*host);
            }
        }
        for host in full {
            // The largest stay: the host was chosen for being fast.
            on[host].sort_by(|a, b| size(*b).total_cmp(&size(*a)));
            for reducer in on[host].drain(..left[host] as usize) {
                places[reducer] = Some(host);
                loads[host] += coflow.fetches(reducer, host);
            }
            left[host] = 0;
        }
    }
}

fn check(coflow: &Coflow, hosts: &Hosts, started: &[Option<HostId>]) -> Result<(), ShuffleError> {
    let count = hosts.out.len();
    if hosts.into.len() != count || hosts.slots.len() != count || started.len() != coflow.reducers()
    {
        return Err(ShuffleError::Lengths);
    }
    for (host, (out, into)) in hosts.out.iter().zip(&hosts.into).enumerate() {
        if !is_amount(*out) || !is_amount(*into) {
            return Err(ShuffleError::Rate { host });
        }
    }
    if coflow.holds.len() > count {
        let beyond = |flow: Flow| flow.mapper >= count;
        let mut reducers = 0..coflow.reducers();
        let reducer = reducers.find(|reducer| coflow.flows(*reducer).any(beyond));
        let reducer = reducer.unwrap_or(0);
        let host = coflow.holds.len() - 1;
        return Err(ShuffleError::NoHost { reducer, host });
    }
    let mut running = vec![0_u32; count];
    for (reducer, host) in started.iter().enumerate() {
        let Some(host) = *host else {
            continue;
        };
        let Some(running) = running.get_mut(host) else {
            return Err(ShuffleError::NoHost { reducer, host });
        };
        *running += 1;
        if *running > hosts.slots[host] {
            return Err(ShuffleError::Started { host });
        }
    }
    let slots = hosts.slots.iter().map(|slots| u64::from(*slots)).sum();
    let reducers = coflow.reducers();
    if reducers as u64 > slots {
        return Err(ShuffleError::Slots { reducers, slots });
    }
    Ok(())
}

/// Why a coflow never ends, wherever its reducers are.
fn never(coflow: &Coflow, hosts: &Hosts, started: &[Option<HostId>]) -> ShuffleError {
    let holds = coflow.holds.iter().zip(&hosts.out);
    let silent = |(held, rate): (&Held, &f64)| held.bytes > 0.0 && *rate == 0.0;
    if let Some(host) = holds.map(silent).position(|is_silent| is_silent) {
        return ShuffleError::SendsNothing { host };
    }
    let stuck = |host: &Option<HostId>| host.is_some_and(|host| hosts.into[host] == 0.0);
    let reducer = started.iter().position(stuck).unwrap_or(0);
    ShuffleError::ReceivesNothing { reducer }
}
