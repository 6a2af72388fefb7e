//! A cast: what goes where and how, and following it while it runs.

use std::ffi::OsStr;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use outpour_agent::cast::{self, CastError, CastRequest, HostSpec, Origin};
use outpour_agent::view::{CastReport, CastView, DryRun};
use outpour_core::network::Network;
use outpour_core::text::chain;
use outpour_core::{Bytes, Priority, Rate, Separation, Traffic};
use outpour_net::trust::Signer;
use outpour_protocols::registry;
use outpour_terms::placement::Placement;
use outpour_terms::{Asked, Facts, check_asked, check_plan};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::event::{self, Ending, Events};
use crate::hosts::{Destination, Destinations, HostsError, refuse_both, refuse_nested};
use crate::launch::{Reach, Reaper};
use crate::place::{Here, Nodes};
use crate::{Error, agent, place};

/// Give up on a stalled host this long after all others stop making progress.
const PATIENCE: Duration = Duration::from_secs(60);

/// A cast to be: what goes where, and how.
///
/// A wrong argument is reported when the cast is started. All that its options take is exported here:
///
/// ```
/// use outpour::{Asked, Bytes, Cast, EncodedOptions, Entry, NodeId, Plan, Priority, Rate, Tree};
///
/// let tree = Tree { rate: "2 MB/s".parse::<Rate>()?, edges: vec![(NodeId(0), NodeId(1))] };
/// let asked = Asked {
///     protocol: None::<&'static Entry>,
///     options: Vec::<(&str, EncodedOptions)>::new(),
///     plan: Some(Plan { roots: vec![NodeId(0)], trees: vec![tree] }),
///     block_bytes: Some("256 KiB".parse::<Bytes>()?.0 as u32),
///     ..Asked::default()
/// };
/// let cast = Cast::new("./model").to("node1:/srv/model");
/// let cast = cast.asked(asked).priority(Priority::Low);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Cast {
    /// What is cast of this host; several make one tree.
    sources: Vec<PathBuf>,
    /// The other hosts that have the object. If none is here, the first says what it is.
    holders: Destinations,
    /// Hosts that pass on what they get.
    relays: Destinations,
    destinations: Destinations,
    /// The first thing that was wrong.
    fault: Option<Error>,
    reach: Reach,
    asked: Asked,
    network: Option<Network>,
    root: Option<String>,
    own_name: Option<String>,
    plan: Option<PathBuf>,
    traffic: Option<watch::Receiver<Vec<Traffic>>>,
    who: Option<String>,
    wait: bool,
    archive: bool,
    verify_after: bool,
    patience: Duration,
    listen: Option<IpAddr>,
    priority: Priority,
    signer: Option<Signer>,
}

impl Cast {
    /// A cast of a file or a directory tree of this host, without destinations yet.
    pub fn new(source: impl Into<PathBuf>) -> Self {
        Self::with(vec![source.into()])
    }

    /// A cast of an object on another host, `[user@]host[:port]:/path`, without destinations yet. This
    /// host moves nothing then. The first host of a range that can be read defines the object; the others
    /// are further sources if they have the same.
    pub fn of(holder: impl AsRef<OsStr>) -> Self {
        Self::with(Vec::new()).also_from(holder)
    }

    fn with(sources: Vec<PathBuf>) -> Self {
        Self {
            sources,
            holders: Destinations::default(),
            relays: Destinations::default(),
            destinations: Destinations::default(),
            fault: None,
            reach: Reach::default(),
            asked: Asked::default(),
            network: None,
            root: None,
            own_name: None,
            plan: None,
            traffic: None,
            who: None,
            wait: false,
            archive: false,
            verify_after: false,
            patience: PATIENCE,
            listen: None,
            priority: Priority::default(),
            signer: None,
        }
    }

    /// Adds another file or directory of this host. Several sources make one tree, in which each keeps
    /// its name: a destination is then the directory that they go into.
    #[must_use]
    pub fn also(mut self, source: impl Into<PathBuf>) -> Self {
        self.sources.push(source.into());
        self
    }

    /// Adds the source `[user@]host[:port]:/path`, which has to have the same object: a host with
    /// another version is named in a notice and left out.
    #[must_use]
    pub fn also_from(mut self, holder: impl AsRef<OsStr>) -> Self {
        let added = self.holders.add(holder.as_ref());
        self.note(added.map_err(|error| match error {
            HostsError::Destination { text, fault } => HostsError::Source { text, fault },
            error => error,
        }))
    }

    /// Adds the relay `[user@]host[:port]:/path`: a host that forwards blocks. It stores them below the
    /// path meanwhile, and keeps none of them.
    #[must_use]
    pub fn through(mut self, relay: impl AsRef<OsStr>) -> Self {
        let added = self.relays.add(relay.as_ref());
        self.note(added.map_err(|error| match error {
            HostsError::Destination { text, fault } => HostsError::Relay { text, fault },
            error => error,
        }))
    }

    /// Adds the destination `[user@]host[:port]:/path`; ranges such as `node[01-19]` name several hosts, and
    /// `{host}` in the path stands for the host's name.
    ///
    /// A directory is cast to the path itself. A file is too, unless the path is a directory there
    /// or ends in a slash: then it goes inside.
    #[must_use]
    pub fn to(mut self, destination: impl AsRef<OsStr>) -> Self {
        let added = self.destinations.add(destination.as_ref());
        self.note(added)
    }

    /// Adds these destinations.
    #[must_use]
    pub fn to_all(mut self, destinations: impl IntoIterator<Item = Destination>) -> Self {
        let added = self.destinations.extend(destinations);
        self.note(added)
    }

    /// Adds a path on every host of a hosts file, as [`Destinations::add_file`] reads it.
    #[must_use]
    pub fn to_hosts_in(mut self, file: impl AsRef<Path>, path: impl AsRef<Path>) -> Self {
        let added = self.destinations.add_file(file.as_ref(), path.as_ref());
        self.note(added)
    }

    /// Reaches the hosts in this way, instead of through `ssh` with the program `outpour`.
    #[must_use]
    pub fn reach(self, reach: Reach) -> Self {
        Self { reach, ..self }
    }

    /// Moves the object in this way; replaces all earlier options of the transfer.
    #[must_use]
    pub fn asked(self, asked: Asked) -> Self {
        Self { asked, ..self }
    }

    /// Uses this protocol, one that `outpour protocols` lists, instead of choosing one.
    #[must_use]
    pub fn protocol(mut self, name: &str) -> Self {
        match registry::by_name(name) {
            Ok(entry) => {
                self.asked.protocol = Some(entry);
                self
            }
            Err(error) => self.note(Err(Error::Protocol(error))),
        }
    }

    /// Limits every node, the source too, in each direction.
    #[must_use]
    pub fn limit(mut self, limit: Rate) -> Self {
        self.asked.limit = limit;
        self
    }

    /// Uses this seed for random choices, instead of one drawn anew.
    #[must_use]
    pub fn seed(mut self, seed: u64) -> Self {
        self.asked.seed = Some(seed);
        self
    }

    /// Describes the network between the hosts, which are its nodes; protocols that plan require it.
    #[must_use]
    pub fn network(self, network: Network) -> Self {
        let network = Some(network);
        Self { network, ..self }
    }

    /// Leaves room for latency-sensitive traffic on the links between clusters, by this rule, and takes what
    /// was measured of it from here as it changes; clusters are those of the described network. On links that
    /// are not named there is none.
    #[must_use]
    pub fn separate(mut self, rule: Separation, traffic: watch::Receiver<Vec<Traffic>>) -> Self {
        self.asked.separation = Some(rule);
        self.traffic = Some(traffic);
        self
    }

    /// The node of the network that stands for the source, instead of the node of its name.
    #[must_use]
    pub fn root(self, node: impl Into<String>) -> Self {
        let root = Some(node.into());
        Self { root, ..self }
    }

    /// The name of this host, instead of the system's name for it.
    #[must_use]
    pub fn own_name(self, name: impl Into<String>) -> Self {
        let own_name = Some(name.into());
        Self { own_name, ..self }
    }

    /// Executes the plan of a file, as printed by `outpour plan multicast --json`.
    #[must_use]
    pub fn plan(self, file: impl Into<PathBuf>) -> Self {
        let plan = Some(file.into());
        Self { plan, ..self }
    }

    /// The name by which other casts know this one when it keeps them out of a destination, instead of
    /// the user and the host.
    #[must_use]
    pub fn who(self, who: impl Into<String>) -> Self {
        let who = Some(who.into());
        Self { who, ..self }
    }

    /// The cast's share of rates and memory on hosts that take part in several casts.
    #[must_use]
    pub fn priority(self, priority: Priority) -> Self {
        Self { priority, ..self }
    }

    /// Signs the object's manifest with this key, for hosts that take part only in casts of what it has
    /// signed. The first source has to be on this host.
    #[must_use]
    pub fn sign(self, signer: Signer) -> Self {
        let signer = Some(signer);
        Self { signer, ..self }
    }

    /// Whether to wait until other casts to the same destinations are over, instead of being refused.
    #[must_use]
    pub fn wait(self, wait: bool) -> Self {
        Self { wait, ..self }
    }

    /// Whether owners, attributes, hard links and holes are kept, where a destination can.
    #[must_use]
    pub fn archive(self, archive: bool) -> Self {
        Self { archive, ..self }
    }

    /// Whether everything is read back from the disks before a host is verified.
    #[must_use]
    pub fn verify_after(self, verify_after: bool) -> Self {
        Self {
            verify_after,
            ..self
        }
    }

    /// Gives up on a stalled host this long after all others stop making progress, and on a disk that
    /// does nothing for as long, instead of 60 s.
    #[must_use]
    pub fn patience(self, patience: Duration) -> Self {
        Self { patience, ..self }
    }

    /// The address on which the source's data plane listens, instead of all.
    #[must_use]
    pub fn listen(self, address: IpAddr) -> Self {
        let listen = Some(address);
        Self { listen, ..self }
    }

    fn note(mut self, added: Result<(), impl Into<Error>>) -> Self {
        if let Err(error) = added {
            self.fault.get_or_insert_with(|| error.into());
        }
        self
    }

    /// The facts from which the terms of this cast would be decided, for an object of this size. For
    /// tests that compare them with those of a simulation.
    ///
    /// # Errors
    /// If the options contradict each other or the hosts.
    #[doc(hidden)]
    pub fn facts(&self, size: Bytes, seed: u64) -> Result<Facts, Error> {
        let nodes = self.nodes()?;
        Ok(cast::facts(&self.request(&nodes)?, size, seed))
    }

    /// Casts, and returns when every host has its verdict and every child process has ended.
    ///
    /// Dropping the future interrupts the cast.
    ///
    /// # Errors
    /// If the cast does not take place; failures of single hosts are in the report.
    ///
    /// # Panics
    /// Outside of a tokio runtime.
    pub async fn run(self) -> Result<CastReport, Error> {
        self.start()?.finish().await
    }

    /// Returns the protocol, the least time and what each host lacks. It moves nothing, and changes
    /// nothing on any host.
    ///
    /// # Errors
    /// If the source cannot be read or the options contradict each other; failures of single hosts are
    /// in the result.
    pub async fn dry_run(mut self) -> Result<DryRun, Error> {
        let (request, nodes) = self.checked()?;
        let reaper = Reaper::default();
        let launcher = self.reach.launcher(&nodes.all, &reaper)?;
        let (view, _seen) = watch::channel(first_view(&request));
        let (_interrupt, interrupted) = watch::channel(false);
        let looked = cast::dry_run(request, launcher, view, interrupted).await;
        reaper.settle().await;
        Ok(looked?)
    }

    /// Starts the cast, which goes on in the background.
    ///
    /// # Errors
    /// If the options contradict each other, the source is missing, or the hosts cannot be reached in
    /// that way at all.
    ///
    /// # Panics
    /// Outside of a tokio runtime.
    pub fn start(mut self) -> Result<Running, Error> {
        let (request, nodes) = self.checked()?;
        let reaper = Reaper::default();
        let launcher = self.reach.launcher(&nodes.all, &reaper)?;
        let (view, seen) = watch::channel(first_view(&request));
        let (interrupt, interrupted) = watch::channel(false);
        let (ends, ending) = watch::channel(None);
        let task = tokio::spawn(async move {
            let ended = cast::run(request, launcher, view, interrupted).await;
            ends.send_replace(Some(match &ended {
                Ok(report) => Ok(report.clone()),
                Err(error) => Err(chain(error)),
            }));
            reaper.settle().await;
            ended
        });
        Ok(Running {
            task,
            view: seen,
            ending,
            interrupter: Interrupter(interrupt),
        })
    }

    /// Whether the first source is on this host.
    const fn is_here(&self) -> bool {
        !self.sources.is_empty()
    }

    /// What was asked for, unless something about it is wrong.
    fn checked(&mut self) -> Result<(CastRequest, Agents), Error> {
        if let Some(fault) = self.fault.take() {
            return Err(fault);
        }
        let nodes = self.nodes()?;
        for path in &self.sources {
            std::fs::metadata(path).map_err(|error| Error::Source {
                path: path.clone(),
                error,
            })?;
        }
        if !self.is_file() {
            refuse_nested(nodes.receivers())?;
        }
        Ok((self.request(&nodes)?, nodes))
    }

    /// Whether a single file is cast, as far as this host knows: it may go into a directory and into
    /// one inside of that.
    fn is_file(&self) -> bool {
        matches!(self.sources.as_slice(), [one] if !one.is_dir())
    }

    /// The hosts with an agent.
    fn nodes(&self) -> Result<Agents, Error> {
        let mut all = self.holders.clone().finish_any()?;
        let hosts = self.destinations.clone().finish()?;
        let relays = self.relays.clone().finish_any()?;
        let holders = all.len();
        all.extend(relays.iter().cloned());
        refuse_both(&all, &hosts)?;
        refuse_both(&all[..holders], &relays)?;
        all.extend(hosts);
        Ok(Agents {
            all,
            holders,
            relays: relays.len(),
        })
    }

    /// What is asked of the coordinator's host.
    fn request(&self, agents: &Agents) -> Result<CastRequest, Error> {
        if let Some(entry) = self.asked.protocol {
            check_plan(entry, self.plan.is_some(), self.network.is_some())?;
        }
        let nodes = self.network.as_ref().map(|network| {
            let own_name = self.own_name.clone().or_else(place::host_name);
            let here = Here {
                root: self.root.as_deref(),
                own_name: own_name.as_deref(),
            };
            place::nodes(network, self.is_here().then_some(here), &agents.all)
        });
        let nodes = nodes.transpose()?;
        let placed = self.network.as_ref().zip(nodes.as_deref());
        let placement =
            placed.map(|(network, nodes)| Placement::new(network, nodes, self.asked.limit));
        let plan = self.plan.as_deref();
        let plan = plan
            .map(|path| {
                let here = self.is_here();
                let nodes = Nodes {
                    network: placed,
                    here,
                    hosts: &agents.all,
                    sources: u32::from(here) + agents.holders as u32,
                };
                place::plan(path, nodes)
            })
            .transpose()?;
        let asked = Asked {
            plan,
            ..self.asked.clone()
        };
        check_asked(&asked, agents.relays > 0)?;
        let (holders, others) = agents.all.split_at(agents.holders);
        let (relays, hosts) = others.split_at(agents.relays);
        let mut holders = holders.iter().map(spec);
        let origin = match self.is_here() {
            true => Origin::Here(self.sources.clone()),
            false => Origin::Host(holders.next().ok_or(HostsError::Nobody)?),
        };
        Ok(CastRequest {
            placement: placement.transpose()?,
            origin,
            holders: holders.collect(),
            relays: relays.iter().map(spec).collect(),
            hosts: hosts.iter().map(spec).collect(),
            asked,
            traffic: self.traffic.clone(),
            who: self.who.clone().unwrap_or_else(who),
            wait: self.wait,
            archive: self.archive,
            verify_after: self.verify_after,
            patience: self.patience,
            listen: self.listen.unwrap_or_else(agent::everywhere),
            priority: self.priority,
            signer: self.signer.clone(),
        })
    }
}

/// The hosts of a cast with an agent: those that have the object, then relays, then those that are to
/// get it.
struct Agents {
    all: Vec<Destination>,
    holders: usize,
    relays: usize,
}

impl Agents {
    /// Those that are to get the object.
    fn receivers(&self) -> &[Destination] {
        &self.all[self.holders + self.relays..]
    }
}

fn spec(host: &Destination) -> HostSpec {
    HostSpec {
        name: host.name.clone(),
        path: host.path.clone(),
        cluster: host.cluster.clone(),
    }
}

fn first_view(request: &CastRequest) -> CastView {
    event::first_view(request.hosts.iter().map(|host| host.name.clone()))
}

/// The caster's name for others: `ana@build1`.
fn who() -> String {
    let user = ["USER", "LOGNAME"].iter().find_map(std::env::var_os);
    let user = user.map(|user| user.to_string_lossy().into_owned());
    let user = user.filter(|user| !user.is_empty());
    let user = user.unwrap_or_else(|| format!("user {}", rustix::process::getuid()));
    let host = rustix::system::uname();
    format!("{user}@{}", host.nodename().to_string_lossy())
}

/// A cast that was started. When it is dropped the cast is interrupted, and ends in the background.
#[derive(Debug)]
pub struct Running {
    task: JoinHandle<Result<CastReport, CastError>>,
    view: watch::Receiver<CastView>,
    ending: watch::Receiver<Option<Ending>>,
    interrupter: Interrupter,
}

impl Running {
    /// The events of the cast from now on; several followers are possible.
    pub fn events(&self) -> Events {
        Events::new(self.view.clone(), self.ending.clone())
    }

    /// A handle that interrupts the cast.
    pub fn interrupter(&self) -> Interrupter {
        self.interrupter.clone()
    }

    /// Waits until every host has its verdict and every child process has ended.
    ///
    /// # Errors
    /// If the cast did not take place; failures of single hosts are in the report.
    pub async fn finish(mut self) -> Result<CastReport, Error> {
        match (&mut self.task).await {
            Ok(ended) => Ok(ended?),
            Err(error) => match error.try_into_panic() {
                Ok(panic) => std::panic::resume_unwind(panic),
                Err(_) => Err(Error::Stopped),
            },
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.interrupter.interrupt();
    }
}

/// Interrupts a cast, from any task or thread.
#[derive(Clone, Debug)]
pub struct Interrupter(watch::Sender<bool>);

impl Interrupter {
    /// Dismisses the agents at once; hosts keep what they have, and the same cast continues from there.
    pub fn interrupt(&self) {
        self.0.send_replace(true);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use crate::{HostsError, PlaceError};

    fn fails(cast: Cast) -> Error {
        cast.start().unwrap_err()
    }

    #[test]
    fn what_is_wrong_is_said_before_anything_is_started() {
        let source = env!("CARGO_MANIFEST_DIR");
        let nobody = fails(Cast::new(source));
        assert!(matches!(nobody, Error::Hosts(HostsError::Nobody)));
        let shape = fails(Cast::new(source).to("a").to("b;c:/x"));
        assert!(
            shape.to_string().starts_with("destination `a`: "),
            "{shape}"
        );
        let gone = fails(Cast::new("/nonexistent/\u{1b}").to("a:/x"));
        assert!(matches!(&gone, Error::Source { .. }));
        assert!(!gone.to_string().contains('\u{1b}'), "{gone}");
        let nested = fails(Cast::new(source).to("u@a:/x/y/z").to("b:/x").to("a:/x"));
        assert_eq!(
            nested.to_string(),
            "destination `u@a:/x/y/z` is inside destination `u@a:/x`"
        );
        let protocol = fails(Cast::new(source).to("a:/x").protocol("fountain"));
        assert!(matches!(protocol, Error::Protocol(_)));
        let plan = fails(Cast::new(source).to("a:/x").protocol("tree"));
        assert!(matches!(plan, Error::Plan(_)));
        let relay = Cast::new(source).to("a:/x").through("b:/y");
        assert!(matches!(fails(relay.protocol("robber")), Error::Plan(_)));
        let network = Network::from_toml("cluster = [{ name = \"a\", nodes = 2 }]", "x").unwrap();
        let cast = Cast::new(source).to("b:/x").network(network).root("a0");
        assert!(matches!(
            fails(cast),
            Error::Place(PlaceError::Unknown { .. })
        ));
        let reach = Reach::Local {
            agent: "no-such-agent-of-anybody".into(),
        };
        let reach = fails(Cast::new(source).to("a:/x").reach(reach));
        assert!(matches!(reach, Error::Reach(_)), "{reach}");
    }
}
