//! One shard in place of all.
//!
//! Where the servers of each site are alike and jobs go from whole sites to whole sites, the servers can be
//! divided into shards: each has its part of every site's servers, of what these share, and of the
//! blocks. What one of them takes, all take, as far as servers of different shards would not have
//! helped each other. So a world is simulated that is too large as a whole.

use outpour_controller::{Destinations, Job, NamedJob, Source};
use outpour_core::network::{
    Cluster, ClusterId, LinkRule, Members, Network, NetworkError, Resource,
};
use outpour_core::{Bytes, NodeId, Rate};

use super::ReplicateConfig;

/// Why a world has no shards that are alike.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum ShardError {
    /// Servers that do not divide evenly.
    #[error("site `{site}` has {servers} servers, which do not divide into {shards} equal shards")]
    Uneven {
        /// The name of the site.
        site: String,
        /// How many it has.
        servers: usize,
        /// Into how many shards.
        shards: u32,
    },
    /// A server that is not like the others of its site.
    #[error(
        "`{server}` is not as fast as the other servers of `{site}`, so no shard stands for all"
    )]
    Unlike {
        /// The name of the site.
        site: String,
        /// The name of the server.
        server: String,
    },
    /// A job that is not one of whole sites.
    #[error("{job}: {why}, so no shard stands for all")]
    Job {
        /// The name of the job.
        job: String,
        /// What is in the way.
        why: &'static str,
    },
    /// The names of servers are too long to be listed.
    #[error(transparent)]
    Network(#[from] NetworkError),
    /// A script, which names servers and rates of the whole.
    #[error("a script describes all servers, and one shard does not have them")]
    Script,
}

impl ReplicateConfig {
    /// The world of one of so many shards: that part of each site's servers, of links and limits that
    /// servers share, and of each job's blocks. What is reported is of that shard.
    ///
    /// # Errors
    /// If the servers of a site are not alike or do not divide into so many, or a job or a script
    /// makes a difference between them.
    pub fn shard(self, shards: u32) -> Result<Self, ShardError> {
        if shards <= 1 {
            return Ok(self);
        }
        if self.script.is_some() {
            return Err(ShardError::Script);
        }
        let network = one_of(&self.network, shards)?;
        let jobs = self.jobs.iter().map(|named| {
            let job = part_of(&self.network, &network, &named.job, shards);
            let refused = |why| ShardError::Job {
                job: named.name.clone(),
                why,
            };
            let name = named.name.clone();
            job.map(|job| NamedJob { name, job }).map_err(refused)
        });
        Ok(Self {
            jobs: jobs.collect::<Result<_, _>>()?,
            network,
            shards,
            ..self
        })
    }
}

/// What is left of a rate that shards share.
fn part(rate: Rate, shards: u32) -> Rate {
    match rate.is_unlimited() {
        true => rate,
        false => Rate::from_bytes_per_s(rate.bytes_per_s() / f64::from(shards)).unwrap_or(rate),
    }
}

fn one_of(network: &Network, shards: u32) -> Result<Network, ShardError> {
    let mut sites = Vec::with_capacity(network.clusters().len());
    for (index, site) in network.clusters().iter().enumerate() {
        sites.push(site_of(network, ClusterId(index as u32), site, shards)?);
    }
    let rule = |rule: &LinkRule| LinkRule {
        rate: rule.rate.map(|rate| part(rate, shards)),
        ..rule.clone()
    };
    let rules = network.rules().iter().map(rule).collect();
    Ok(Network::new(sites, rules)?.limited(network.limit()))
}

/// The first servers of a site, with their part of its access link.
fn site_of(
    network: &Network,
    id: ClusterId,
    site: &Cluster,
    shards: u32,
) -> Result<Cluster, ShardError> {
    let servers: Vec<NodeId> = network.nodes_of(id).collect();
    if !servers.len().is_multiple_of(shards as usize) {
        return Err(ShardError::Uneven {
            site: site.name.clone(),
            servers: servers.len(),
            shards,
        });
    }
    let ends = |node: &NodeId| {
        let ends = [Resource::NodeOut(*node), Resource::NodeIn(*node)];
        ends.map(|end| network.capacity(end))
    };
    let [node_out, node_in] = ends(&servers[0]);
    if let Some(unlike) = servers.iter().find(|it| ends(it) != [node_out, node_in]) {
        return Err(ShardError::Unlike {
            site: site.name.clone(),
            server: network.name(*unlike).to_owned(),
        });
    }
    let kept = servers.iter().take(servers.len() / shards as usize);
    let names = kept.map(|server| network.name(*server).to_owned());
    Ok(Cluster {
        members: Members::Names(names.collect()),
        node_out,
        node_in,
        cluster_out: part(site.cluster_out, shards),
        cluster_in: part(site.cluster_in, shards),
        ..site.clone()
    })
}

/// A shard's part of a job.
fn part_of(network: &Network, one: &Network, job: &Job, shards: u32) -> Result<Job, &'static str> {
    if matches!(job.destinations, Destinations::Nodes(_)) {
        return Err("it goes to single nodes");
    }
    let blocks = job.block_count().unwrap_or_default();
    if blocks < shards {
        return Err("it has fewer blocks than there are shards");
    }
    let mut part_of_it = Job {
        size: Bytes(job.size.0.div_ceil(u64::from(shards))),
        limit: part(job.limit, shards),
        sources: Vec::new(),
        relays: Vec::new(),
        ..job.clone()
    };
    let fewer = part_of_it.block_count().unwrap_or_default();
    for index in 0..network.clusters().len() {
        let site = ClusterId(index as u32);
        let relays = job.relays.iter();
        let relays = relays.filter(|relay| network.cluster_of(**relay) == site);
        match relays.count() {
            0 => {}
            count if count == network.nodes_of(site).count() => {
                part_of_it.relays.extend(one.nodes_of(site));
            }
            _ => return Err("its relays are not whole sites"),
        }
        let kept = one.nodes_of(site).collect();
        part_of_it
            .sources
            .extend(sources(network, job, site, kept, fewer)?);
    }
    Ok(part_of_it)
}

/// The sources among the servers of a site that are kept, of a job with `fewer` blocks.
fn sources(
    network: &Network,
    job: &Job,
    site: ClusterId,
    kept: Vec<NodeId>,
    fewer: u32,
) -> Result<Vec<Source>, &'static str> {
    let here = job.sources.iter();
    let here = here.filter(|source| network.cluster_of(source.node) == site);
    let has = here.map(|source| {
        let runs = source.blocks.iter();
        runs.map(|run| run.end - run.start).sum()
    });
    let has: Vec<u32> = has.collect();
    if has.is_empty() {
        return Ok(Vec::new());
    }
    let servers = network.nodes_of(site).count();
    let blocks = job.block_count().unwrap_or_default();
    let even = blocks / servers as u32;
    let unequal = "servers of a site that it comes from have unequal parts of it";
    if has.len() != servers {
        Err(unequal)
    } else if has.iter().all(|has| *has == blocks) {
        let all = 0..fewer;
        let whole = |node| Source {
            node,
            blocks: vec![all.clone()],
        };
        Ok(kept.into_iter().map(whole).collect())
    } else if has.iter().all(|has| (even..=even + 1).contains(has)) {
        Ok(Source::striped(kept, fewer))
    } else {
        Err(unequal)
    }
}

#[cfg(test)]
mod tests;
