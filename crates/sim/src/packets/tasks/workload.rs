//! Which tasks there are, and when.

use std::collections::BTreeMap;

use outpour_core::topology::{Paths, WireId};
use outpour_core::{NodeId, Time};
use rand_core::{RngCore, SeedableRng as _};
use rand_pcg::Pcg64Mcg;

use super::play::range;
use super::{HOSTS_MAX, Setting, Sizes, TASKS_MAX, Task, TasksError, uniform};

/// Who has the objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sources {
    /// So many hosts, drawn once for an instance, have all objects; the others fetch them.
    Pool(u32),
    /// One host out of each so many consecutive ones, such as those of a pod; the others fetch.
    OnePer(u32),
    /// For each task other hosts, drawn anew; any host fetches.
    Any,
}

/// With a lower load nearly all of the time would pass between tasks.
pub const LOAD_MIN: f64 = 0.01;
/// No load is higher.
pub const LOAD_MAX: f64 = 100.0;

/// What is drawn each from a generator of its own.
const POOL: u64 = 1;
const ARRIVALS: u64 = 2;
const SIZES: u64 = 3;
const DEVICES: u64 = 4;
const HOLDERS: u64 = 5;

/// Tasks that arrive independently of each other.
#[derive(Clone, Debug, PartialEq)]
pub struct Workload {
    /// Who has the objects.
    pub sources: Sources,
    /// The mean load of the wire with the most, as a share of its rate. How much passes each wire follows
    /// from who fetches from whom how often, with all ways equally likely; acknowledgements, symbols more than
    /// an object has, and repetitions are left out. The paper says "the load on bottleneck links"; with a
    /// pool of few sources these are the links by which they send.
    pub load: f64,
    /// How large objects are.
    pub sizes: Sizes,
    /// How many tasks there are.
    pub tasks: u32,
}

impl Workload {
    /// Draws tasks in the order of their arrival, the first at 0 s; the same for the same seed, whatever the
    /// scheme.
    ///
    /// Arrivals, sizes, devices, the pool and sources are drawn apart. So of two workloads that differ in one
    /// of these, the others are the same, and with a smaller fan-out or pool sources are some of those
    /// that they are with a larger one.
    ///
    /// # Errors
    /// If something is out of range, and if there are fewer sources than a task is to have.
    pub fn draw(&self, setting: &Setting, seed: u64) -> Result<Vec<Task>, TasksError> {
        self.check(setting)?;
        let pool = self.pool(setting, &mut dice(seed, POOL));
        let mean_s = self.sizes.mean() / self.packets_per_s(setting, &pool)?;
        let others: Vec<NodeId> = match self.sources {
            Sources::Any => pool.clone(),
            _ => {
                let hosts = setting.topology.hosts();
                hosts.filter(|host| !pool.contains(host)).collect()
            }
        };
        let [mut arrivals, mut sizes, mut devices, mut holders] =
            [ARRIVALS, SIZES, DEVICES, HOLDERS].map(|it| dice(seed, it));
        let mut at_s = 0.0;
        let tasks = (0..self.tasks).map(|_| {
            let at = Time::from_secs_f64(at_s);
            // The logarithm of 1 is no wait at all, that of 0 never comes up.
            at_s -= mean_s * (1.0 - uniform(&mut arrivals)).ln();
            let device = others[below(&mut devices, others.len())];
            let packets = self.sizes.draw(&mut sizes);
            let from: Vec<NodeId> = pool.iter().copied().filter(|it| *it != device).collect();
            Task {
                at,
                packets,
                device,
                holders: drawn(
                    &mut dice(holders.next_u64(), HOLDERS),
                    from,
                    setting.fanout as usize,
                ),
            }
        });
        Ok(tasks.collect())
    }

    fn check(&self, setting: &Setting) -> Result<(), TasksError> {
        let is_fine = (LOAD_MIN..=LOAD_MAX).contains(&self.load);
        range("load", &self.load, is_fine, "a number from 0.01 to 100")?;
        let is_fine = (1..=TASKS_MAX).contains(&self.tasks);
        range("tasks", &self.tasks, is_fine, "1 to 65536")?;
        let hosts = setting.topology.host_count();
        range(
            "hosts",
            &hosts,
            (2..=HOSTS_MAX).contains(&hosts),
            "2 to 4096",
        )?;
        let (key, sources, of) = match self.sources {
            Sources::Pool(sources) => {
                range("sources", &sources, sources > 0, "at least 1")?;
                if sources >= hosts {
                    return Err(TasksError::TooMany {
                        key: "sources",
                        found: sources,
                        most: hosts - 1,
                        of: "of the hosts can have all objects, as another has to fetch them",
                    });
                }
                ("fanout", sources, "sources have each object")
            }
            Sources::OnePer(group) => {
                range("sources", &group, group > 1, "one out of at least 2 hosts")?;
                ("fanout", hosts.div_ceil(group), "sources have each object")
            }
            Sources::Any => ("fanout", hosts - 1, "other hosts may be sources"),
        };
        match setting.fanout > sources {
            true => Err(TasksError::TooMany {
                key,
                found: setting.fanout,
                most: sources,
                of,
            }),
            false => Ok(()),
        }
    }

    fn pool(&self, setting: &Setting, dice: &mut Pcg64Mcg) -> Vec<NodeId> {
        let hosts: Vec<NodeId> = setting.topology.hosts().collect();
        match self.sources {
            Sources::Any => hosts,
            Sources::Pool(sources) => drawn(dice, hosts, sources as usize),
            Sources::OnePer(group) => {
                let groups = hosts.chunks(group as usize);
                groups.map(|it| it[below(dice, it.len())]).collect()
            }
        }
    }

    /// How many packets of objects may arrive in a second so that the load is as it should.
    fn packets_per_s(&self, setting: &Setting, pool: &[NodeId]) -> Result<f64, TasksError> {
        let topology = &setting.topology;
        let mut paths = Paths::new(topology.clone(), setting.metric);
        let fetch = |host: &NodeId| self.sources == Sources::Any || !pool.contains(host);
        let devices: Vec<NodeId> = topology.hosts().filter(fetch).collect();
        let mut passed: BTreeMap<WireId, f64> = BTreeMap::new();
        for device in &devices {
            let from = pool.iter().filter(|it| *it != device);
            let part = 1.0 / devices.len() as f64 / from.clone().count() as f64;
            for (wire, amount) in paths.spread(*device, from.map(|it| (*it, part))) {
                *passed.entry(wire).or_insert(0.0) += amount;
            }
        }
        let bytes = f64::from(setting.packet_bytes);
        let most = passed.into_iter().map(|(wire, part)| {
            let rate = topology.wire(wire).link.rate.bytes_per_s();
            part * bytes / rate
        });
        let seconds = most.fold(0.0, f64::max);
        if seconds <= 0.0 {
            let name = |host: NodeId| topology.name(host.into()).to_owned();
            return Err(TasksError::Unlimited {
                from: name(pool[0]),
                to: name(devices[0]),
            });
        }
        Ok(self.load / seconds)
    }
}

/// The generator of one of these things: seeds that follow each other share none.
fn dice(seed: u64, of: u64) -> Pcg64Mcg {
    const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;
    Pcg64Mcg::seed_from_u64(seed.wrapping_add(of.wrapping_mul(GOLDEN)))
}

/// So many of a list, in random order; of fewer, the first of these.
fn drawn<T>(dice: &mut Pcg64Mcg, mut from: Vec<T>, count: usize) -> Vec<T> {
    let count = count.min(from.len());
    for place in 0..count {
        let other = place + below(dice, from.len() - place);
        from.swap(place, other);
    }
    from.truncate(count);
    from
}

/// A number below another; lists here are far too short for its bias to show.
fn below(dice: &mut impl RngCore, end: usize) -> usize {
    debug_assert!(end > 0, "nothing to draw from");
    (dice.next_u64() % end as u64) as usize
}
