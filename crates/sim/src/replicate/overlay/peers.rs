//! Who has a part in a job, and how its blocks are divided.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use outpour_controller::{Destinations, Job, Runs};
use outpour_core::network::ClusterId;
use outpour_core::{NodeId, Time};

use super::{Moved, PIECES, Peer, System, World};

/// Servers that hold one copy together: those of a site, or one alone.
#[derive(Clone, Debug)]
pub(super) struct Group {
    pub(super) peers: Range<usize>,
    /// Whether they have it from the start.
    pub(super) source: bool,
}

/// How many blocks a job has, if it is one that the system moves; otherwise why not.
pub(super) fn blocks(job: &Job, system: System) -> Result<u32, &'static str> {
    let blocks = job.block_count().filter(|count| *count > 0);
    let blocks = blocks.ok_or("the object has no blocks, or too many")?;
    if job.block.0 > u64::from(u32::MAX) {
        return Err("its blocks are larger than 4 GiB");
    }
    if system == System::Robber && matches!(job.destinations, Destinations::Nodes(_)) {
        return Err("`sim cast --protocol robber` answers that for `nodes`");
    }
    Ok(blocks)
}

impl World {
    /// Adds a job; its servers do nothing yet.
    ///
    /// # Errors
    /// Why the system does not move it.
    pub(super) fn add_job(&mut self, job: &Job, system: System) -> Result<(), &'static str> {
        let blocks = blocks(job, system)?;
        let place = self.jobs.len();
        let shares = self.shares(job, blocks);
        let pieces = pieces(job, blocks, &shares);
        let first = self.peers.len();
        let mut groups = Vec::new();
        self.sources(job, place, &pieces, &mut groups);
        for group in &shares {
            let begins = self.peers.len();
            for (node, run) in group {
                let share = within(&pieces, run);
                self.peers.push(Peer {
                    node: *node,
                    job: place,
                    todo: share.clone().collect(),
                    share,
                    has: Runs::default(),
                    asks: Vec::new(),
                    asked: Vec::new(),
                    last: Time::ZERO,
                });
            }
            let peers = begins..self.peers.len();
            groups.push(Group {
                peers,
                source: false,
            });
        }
        let peers = first..self.peers.len();
        let mut parts = vec![Vec::new(); pieces.len()];
        let mut left = 0;
        for peer in peers.clone() {
            let Peer { share, has, .. } = &self.peers[peer];
            left += share.len() as u64;
            for piece in share.clone().chain(has.iter().flatten()) {
                parts[piece as usize].push(peer);
            }
        }
        let limit = (!job.limit.is_unlimited()).then(|| job.limit.bytes_per_s());
        self.limits
            .push(limit.map(|limit| self.flows.add_resource(limit)));
        self.jobs.push(Moved {
            job: job.clone(),
            pieces,
            groups,
            peers,
            parts,
            left,
        });
        Ok(())
    }

    /// Which server of each group is to get which blocks: the servers of a site share them evenly.
    fn shares(&self, job: &Job, blocks: u32) -> Vec<Vec<(NodeId, Range<u32>)>> {
        let sources: BTreeSet<NodeId> = job.sources.iter().map(|source| source.node).collect();
        match &job.destinations {
            Destinations::Nodes(nodes) => {
                let wanting: BTreeSet<NodeId> = nodes.iter().copied().collect();
                let lacking = wanting.into_iter().filter(|node| !sources.contains(node));
                lacking.map(|node| vec![(node, 0..blocks)]).collect()
            }
            Destinations::Sites(sites) => {
                let had: BTreeSet<ClusterId> = sources
                    .iter()
                    .map(|node| self.network.cluster_of(*node))
                    .collect();
                let wanting: BTreeSet<ClusterId> = sites.iter().copied().collect();
                let lacking = wanting.into_iter().filter(|site| !had.contains(site));
                let share = |site| {
                    let nodes: Vec<NodeId> = self.network.nodes_of(site).collect();
                    let count = nodes.len() as u64;
                    let cut = |place: u64| (place * u64::from(blocks) / count) as u32;
                    let run = |place: usize| cut(place as u64)..cut(place as u64 + 1);
                    let shares = nodes.iter().enumerate();
                    shares.map(|(place, node)| (*node, run(place))).collect()
                };
                lacking.map(share).collect()
            }
        }
    }

    /// Those that have blocks from the start, one group for each site.
    fn sources(&mut self, job: &Job, place: usize, pieces: &[Range<u32>], groups: &mut Vec<Group>) {
        let mut by_site: BTreeMap<ClusterId, Vec<Peer>> = BTreeMap::new();
        for source in &job.sources {
            let mut has = Runs::default();
            for run in &source.blocks {
                has.insert(within(pieces, run));
            }
            let site = self.network.cluster_of(source.node);
            by_site.entry(site).or_default().push(Peer {
                node: source.node,
                job: place,
                share: 0..0,
                has,
                todo: Vec::new(),
                asks: Vec::new(),
                asked: Vec::new(),
                last: Time::ZERO,
            });
        }
        for peers in by_site.into_values() {
            let begins = self.peers.len();
            self.peers.extend(peers);
            let peers = begins..self.peers.len();
            groups.push(Group {
                peers,
                source: true,
            });
        }
    }

    /// The servers of a group that have, or are to get, something of a server's share.
    pub(super) fn partners(&self, group: &Group, of: usize) -> Vec<usize> {
        let Peer { share, .. } = &self.peers[of];
        let meets = |peer: &usize| {
            let Peer {
                share: theirs, has, ..
            } = &self.peers[*peer];
            let both = share.start.max(theirs.start) < share.end.min(theirs.end);
            both || has.next_present(share.start, share.end).is_some()
        };
        group.peers.clone().filter(meets).collect()
    }
}

/// The blocks of each piece: no piece crosses the boundary between what two servers have or are to
/// get, and each share has about [`PIECES`] of them.
fn pieces(job: &Job, blocks: u32, shares: &[Vec<(NodeId, Range<u32>)>]) -> Vec<Range<u32>> {
    let mut cuts: BTreeSet<u32> = [0, blocks].into();
    let wanted = shares.iter().flatten().map(|(_, run)| run);
    let had = job.sources.iter().flat_map(|source| &source.blocks);
    for run in wanted.clone().chain(had) {
        cuts.extend([run.start, run.end]);
    }
    let longest = wanted.map(|run| run.end - run.start).max().unwrap_or(1);
    let most = (u64::from(u32::MAX) / job.block.0).max(1) as u32;
    let length = longest.div_ceil(PIECES).clamp(1, most);
    let cuts: Vec<u32> = cuts.into_iter().collect();
    let mut pieces = Vec::new();
    for pair in cuts.windows(2) {
        let mut at = pair[0];
        while at < pair[1] {
            let end = pair[1].min(at + length);
            pieces.push(at..end);
            at = end;
        }
    }
    debug_assert_eq!(pieces.last().map(|piece| piece.end), Some(blocks));
    pieces
}

/// The pieces of a run of blocks that begins and ends where pieces do.
fn within(pieces: &[Range<u32>], run: &Range<u32>) -> Range<u32> {
    let place = |block: u32| pieces.partition_point(|piece| piece.start < block) as u32;
    place(run.start)..place(run.end)
}
