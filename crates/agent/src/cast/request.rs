//! What a cast was asked for, and which node each of its hosts is: sources first, then relays.

use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use outpour_core::{Priority, Traffic};
use outpour_net::trust::Signer;
use outpour_protocols::{Member, Role};
use outpour_terms::Asked;
use outpour_terms::placement::Placement;
use tokio::sync::watch;

/// What messages call the source that is on the command's own host.
pub const HERE: &str = "the source";

/// One host of a cast.
#[derive(Clone, Debug)]
pub struct HostSpec {
    /// As the user wrote it; used in every message.
    pub name: String,
    /// Where the object is or is to be.
    pub path: PathBuf,
    /// The cluster the host is in, if the user said so; hosts without one are in that of the first
    /// source.
    pub cluster: Option<String>,
}

/// Where the object of a cast is.
#[derive(Clone, Debug)]
pub enum Origin {
    /// A file or directory of this host; several make one tree, each under its own name.
    Here(Vec<PathBuf>),
    /// On another host: then this one is no node and moves nothing.
    Host(HostSpec),
}

/// What the user asked for.
#[derive(Clone, Debug)]
pub struct CastRequest {
    /// The first source: it says what the object is, unless it is on another host and cannot be read.
    /// Then the next one does.
    pub origin: Origin,
    /// Further hosts that have the object. One that has something else is left out.
    pub holders: Vec<HostSpec>,
    /// Hosts that pass on what they get and keep nothing of it; their paths say where they hold it
    /// meanwhile.
    pub relays: Vec<HostSpec>,
    /// Where to.
    pub hosts: Vec<HostSpec>,
    /// How it is to be moved.
    pub asked: Asked,
    /// Where the sources and the hosts are in a described network, if one was described: then it
    /// says which clusters they are in.
    pub placement: Option<Placement>,
    /// What is measured of latency-sensitive traffic between clusters of the described network, as it
    /// changes.
    pub traffic: Option<watch::Receiver<Vec<Traffic>>>,
    /// The caster's name, for casts that this one keeps out of a destination.
    pub who: String,
    /// Whether to wait for the end of other casts to the same destinations.
    pub wait: bool,
    /// Whether owners, attributes, hard links and holes are kept where a destination can.
    pub archive: bool,
    /// Whether hosts read everything back from their disks before they are verified.
    pub verify_after: bool,
    /// Give up on a stalled host this long after all others stop making progress, and on a disk that
    /// does nothing for as long.
    pub patience: Duration,
    /// The address on which the data plane of a source on this host listens.
    pub listen: IpAddr,
    /// The cast's share of what the casts of a host compete for.
    pub priority: Priority,
    /// Vouches for the object, for hosts that ask for that.
    pub signer: Option<Signer>,
}

impl CastRequest {
    /// All hosts with an agent: sources, relays, and then those that are to get the object. Their
    /// launcher knows them by their index in this list.
    pub fn agents(&self) -> impl Iterator<Item = &HostSpec> {
        let origin = match &self.origin {
            Origin::Here(_) => None,
            Origin::Host(host) => Some(host),
        };
        let sources = origin.into_iter().chain(&self.holders);
        sources.chain(&self.relays).chain(&self.hosts)
    }

    /// How many sources there are; they are the first nodes.
    pub(super) const fn sources(&self) -> usize {
        1 + self.holders.len()
    }

    /// The node of the first agent: node 0 is the origin, be it here or elsewhere.
    pub(super) const fn first_agent(&self) -> u32 {
        match self.origin {
            Origin::Here(_) => 1,
            Origin::Host(_) => 0,
        }
    }

    /// What messages call each node.
    pub(super) fn names(&self) -> Vec<String> {
        let here = (self.first_agent() == 1).then(|| HERE.to_owned());
        let agents = self.agents().map(|host| host.name.clone());
        here.into_iter().chain(agents).collect()
    }

    /// The members of the cast, in clusters as the network has it, or as the user said.
    pub(super) fn members(&self) -> Vec<Member> {
        let clusters = match &self.placement {
            Some(placement) => placement.clusters(),
            None => self.named_clusters(),
        };
        let sources = self.sources();
        let relays = sources + self.relays.len();
        let member = |(node, cluster)| Member {
            cluster,
            role: match node {
                node if node < sources => Role::Source,
                node if node < relays => Role::Relay,
                _ => Role::Receiver,
            },
        };
        clusters.into_iter().enumerate().map(member).collect()
    }

    fn named_clusters(&self) -> Vec<u32> {
        let mut names: Vec<&str> = Vec::new();
        let mut clusters = vec![0; self.first_agent() as usize];
        for host in self.agents() {
            clusters.push(host.cluster.as_deref().map_or(0, |name| {
                let known = names.iter().position(|other| *other == name);
                known.unwrap_or_else(|| {
                    names.push(name);
                    names.len() - 1
                }) as u32
                    + 1
            }));
        }
        clusters
    }
}
