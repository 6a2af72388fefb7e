//! When a job can be complete at the earliest.

use std::collections::BTreeMap;

use outpour_core::Time;
use outpour_core::network::{ClusterId, Resource};

use crate::controller::Controller;
use crate::room::residual;
use crate::task::Task;

/// What the members of a job in a site have and can do together.
#[derive(Default)]
struct Site {
    wants: bool,
    blocks: u64,
    /// Bytes per second.
    out: f64,
    into: f64,
}

/// How long bytes take at a rate, seconds.
fn time(bytes: f64, rate: f64) -> f64 {
    debug_assert!(bytes >= 0.0 && rate >= 0.0, "neither is a debt");
    if bytes > 0.0 { bytes / rate } else { 0.0 }
}

impl Controller {
    /// If a job cannot meet its deadline, when it can end at the earliest: a bound by what each
    /// target can receive. `all` counts nodes that are not there yet as well, and what links carry from
    /// the job's other sites.
    pub(crate) fn late(&self, task: &Task, from: Time, all: bool) -> Option<Time> {
        let deadline = task.job.deadline?;
        let shape = task.partition.shape();
        let rate = |resource| residual(&self.network, &self.config, &self.foreground, resource);
        let mut seconds: f64 = 0.0;
        for (index, target) in shape.targets.iter().enumerate() {
            let members = target.members.clone();
            let able = members.filter(|member| {
                let member = *member as usize;
                shape.target_of[member].is_some() && (all || shape.takes[member])
            });
            let able: Vec<u32> = able.collect();
            let into = |member: &u32| rate(Resource::NodeIn(shape.members[*member as usize]));
            if target.each {
                for member in &able {
                    let lacks = u64::from(task.blocks) - task.partition.held(*member);
                    seconds = seconds.max(time(lacks as f64 * task.block(), into(member)));
                }
            } else {
                let lacks = match all {
                    true => {
                        let members = target.members.clone();
                        let had: u64 = members.map(|member| task.partition.held(member)).sum();
                        u64::from(task.blocks).saturating_sub(had)
                    }
                    false => task.partition.lacking(index as u32),
                };
                let rate = able.iter().map(into).sum();
                seconds = seconds.max(time(lacks as f64 * task.block(), rate));
            }
        }
        // Links may be slow for a moment only, so they count as they are at the beginning.
        if all {
            seconds = seconds.max(self.seconds_to_enter(task));
        }
        debug_assert!(!seconds.is_nan(), "nothing is divided by nothing");
        let earliest = match std::time::Duration::try_from_secs_f64(seconds) {
            Ok(time) => from + time,
            Err(_) => Time::MAX,
        };
        (earliest > deadline).then_some(earliest)
    }

    /// How long what no member of a site has takes to enter it from the job's other sites, at least.
    fn seconds_to_enter(&self, task: &Task) -> f64 {
        let shape = task.partition.shape();
        let rate = |resource| residual(&self.network, &self.config, &self.foreground, resource);
        let mut sites: BTreeMap<ClusterId, Site> = BTreeMap::new();
        for (place, node) in shape.members.iter().enumerate() {
            let site = sites.entry(self.network.cluster_of(*node)).or_default();
            site.wants |= shape.target_of[place].is_some();
            site.blocks += task.partition.held(place as u32);
            site.out += rate(Resource::NodeOut(*node));
            site.into += rate(Resource::NodeIn(*node));
        }
        let enter = |(id, site): (&ClusterId, &Site)| {
            let lacks = u64::from(task.blocks).saturating_sub(site.blocks) as f64 * task.block();
            let others = sites.iter().filter(|(other, _)| *other != id);
            let from = |(other, from): (&ClusterId, &Site)| {
                let access = rate(Resource::ClusterOut(*other)).min(from.out);
                rate(Resource::Link(*other, *id)).min(access)
            };
            let links = others.map(from).sum::<f64>();
            let access = rate(Resource::ClusterIn(*id)).min(site.into);
            time(lacks, links.min(access))
        };
        let wanting = sites.iter().filter(|(_, site)| site.wants);
        wanting.map(enter).fold(0.0, f64::max)
    }
}
