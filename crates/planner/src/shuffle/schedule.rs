//! Many coflows at once: which goes first, where its reducers start, and how fast its flows are.
//!
//! A [`Scheduler`] is asked whenever a coflow arrives or something ends. It starts reducers, which
//! stay where they are from then on, and gives each of them a rate; the flows of a reducer share its
//! rate in proportion to their sizes and so end together. [`Rpc`] decides on both together
//! [RPC algorithm 1]; the others are what it is compared with: [`Placed`] places every reducer when
//! its coflow arrives and schedules with [`Discipline`].

mod fair;
mod host_set;
mod monitor;
mod place_one;
mod placed;
mod room;
mod rpc;
mod running;
#[cfg(test)]
mod tests;

pub use place_one::Placing;
pub use placed::{Discipline, Placed};
pub use room::Room;
pub use rpc::{Rpc, RpcOptions};
pub use running::Running;

use super::Hosts;

/// What happens to a coflow with more reducers than hosts may run at once [RPC §IV-D].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Waves {
    /// All reducers are planned, several for each place on a host, which run one after the other.
    #[default]
    Planned,
    /// As many as hosts may run are a wave, the largest first. All but the last wave start wherever there is
    /// room; only the last is planned.
    Conserving,
    /// Each wave is planned as if it were all of the coflow, once all reducers of the wave before have started.
    Coflows,
}

/// How many reducers each host may start besides those that run.
fn free_slots(hosts: &Hosts, running: &[Running]) -> Vec<u32> {
    let mut slots = hosts.slots.clone();
    for coflow in running.iter().filter(|it| !it.moves_mappers) {
        for (_, host) in coflow.fetching() {
            slots[host] = slots[host].saturating_sub(1);
        }
    }
    slots
}

/// How fast a reducer fetches.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Grant {
    /// Index of its coflow among those under way.
    pub coflow: usize,
    /// Which reducer; it has started.
    pub reducer: usize,
    /// Bytes per second, over all its flows.
    pub bytes_per_s: f64,
}

impl Grant {
    /// Makes one of all grants to a reducer, in order.
    fn merge(grants: &mut Vec<Self>) {
        grants.sort_by_key(|grant| (grant.coflow, grant.reducer));
        grants.dedup_by(|next, first| {
            let is_same = (next.coflow, next.reducer) == (first.coflow, first.reducer);
            if is_same {
                first.bytes_per_s += next.bytes_per_s;
            }
            is_same
        });
    }
}

/// What a scheduler decided.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Decision {
    /// Reducers that are not here fetch nothing.
    pub grants: Vec<Grant>,
    /// It wants to decide anew at this time, seconds, if nothing happens before.
    pub again_s: Option<f64>,
    /// It wants to decide anew when so many reducers have all their data, not at each of them.
    pub ends: usize,
}

/// What has happened since the last decision.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct News {
    /// A coflow has arrived or is complete, and not only a reducer.
    pub coflows: bool,
}

/// Decides for all coflows under way. The same decisions follow from the same calls.
pub trait Scheduler {
    /// A coflow has arrived; it is the last of those under way. If another has to be complete before
    /// it begins, returns that; it counts as part of this one.
    fn arrive(&mut self, _now_s: f64, _hosts: &Hosts, _running: &mut [Running]) -> Option<Running> {
        None
    }

    /// Decides at a time, in seconds. Coflows are in the order of arrival. If a reducer finds all its data on the
    /// host where it starts, it has ended then, and its host has room for another: so decide again at once.
    fn decide(
        &mut self,
        now_s: f64,
        hosts: &Hosts,
        running: &mut [Running],
        news: News,
    ) -> Decision;
}

/// A scheduler by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scheme {
    /// Placement and scheduling together, [`Rpc`].
    Rpc,
    /// The same, and no host stays idle [RPC figure 8].
    RpcConserving,
    /// Scheduling alone.
    Varys,
    /// Placement one after the other, then scheduling.
    Neat,
    /// Placement of mappers, too.
    TwoD,
    /// Scheduling without known sizes.
    Aalo,
    /// Fair sharing.
    Fair,
    /// Reducers anywhere, even where it is known where they were, and fair sharing.
    Random,
}

impl Scheme {
    /// Every scheme.
    pub const ALL: [Self; 8] = [
        Self::Rpc,
        Self::RpcConserving,
        Self::Varys,
        Self::Neat,
        Self::TwoD,
        Self::Aalo,
        Self::Fair,
        Self::Random,
    ];

    /// Its name in commands and reports.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Rpc => "rpc",
            Self::RpcConserving => "rpc-conserving",
            Self::Varys => "varys",
            Self::Neat => "neat",
            Self::TwoD => "2dp",
            Self::Aalo => "aalo",
            Self::Fair => "fair",
            Self::Random => "random",
        }
    }

    /// What it does, in a line.
    pub const fn about(self) -> &'static str {
        match self {
            Self::Rpc => "place reducers and schedule coflows together, the shortest first",
            Self::RpcConserving => "the same, and start reducers on every host that would be idle",
            Self::Varys => {
                "keep or draw places; the smallest bottleneck first, the rest backfilled"
            }
            Self::Neat => "place reducers one by one where they delay least; the shortest first",
            Self::TwoD => "also move mappers, whose data is fetched first",
            Self::Aalo => "keep or draw places; those that have sent least first",
            Self::Fair => "keep or draw places; all flows share alike",
            Self::Random => "draw places; all flows share alike",
        }
    }

    /// A scheduler; `seed` draws places. Where reducers were is kept by [`Self::Varys`], [`Self::Aalo`] and
    /// [`Self::Fair`], as far as it is known.
    pub fn scheduler(self, options: RpcOptions) -> Box<dyn Scheduler> {
        let seed = options.seed;
        let kept = Placing::Recorded(seed);
        let placed = |placing, discipline| Box::new(Placed::new(placing, discipline)) as Box<_>;
        match self {
            Self::Rpc => Box::new(Rpc::new(options)),
            Self::RpcConserving => Box::new(Rpc::new(RpcOptions {
                work_conserving: true,
                ..options
            })),
            Self::Varys => placed(kept, Discipline::SmallestBottleneck),
            Self::Neat => placed(Placing::Neat, Discipline::SmallestBottleneck),
            Self::TwoD => placed(Placing::TwoD, Discipline::SmallestBottleneck),
            Self::Aalo => placed(kept, Discipline::LeastSent),
            Self::Fair => placed(kept, Discipline::Fair),
            Self::Random => placed(Placing::Random(seed), Discipline::Fair),
        }
    }
}
