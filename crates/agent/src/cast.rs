//! The command's end of a cast: source, coordinator and control channels.

mod attempt;
mod channel;
mod planned;

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use outpour_core::manifest::{BLOCKS_MAX, BlockSize, Manifest};
use outpour_core::network::Network;
use outpour_core::{Bytes, NodeId, Plan, Rate};
use outpour_net::{
    CastAuthority, CastId, Connections, Events, Limits, Mesh, MeshConfig, NodeIdentity, NodeKey,
};
use outpour_protocols::auto::{self, Paths, Situation};
use outpour_protocols::batching::Batching;
use outpour_protocols::coordinator::{
    CodingCounts, Config, Coordinator, HostState, Input, Order, Output, Report,
};
use outpour_protocols::gossip;
use outpour_protocols::registry::Entry;
use outpour_store::{BuildOptions, Shape, Source};
use tokio::sync::{mpsc, watch};

use crate::coded::{self, Coding, speed};
use crate::content;
use crate::control::ManifestOffer;
use crate::engine::Clock;
use crate::launch::Launcher;
use crate::placement::Placement;
use crate::view::{CastReport, CastView, CodingReport, HostReport, HostView, Phase};
use attempt::{Calls, Pauses};
use channel::{Heard, Terms};
use planned::Planned;

pub(crate) use channel::{in_time, reachable};

/// How often the view is renewed.
const VIEW: Duration = Duration::from_millis(100);
/// How long agents have to leave once the cast is over, before their channels are cut.
const FAREWELL: Duration = Duration::from_secs(3);
/// A host that got nothing for so long gets nothing, whatever its rate was before.
const RATE_MAX: Duration = Duration::from_secs(10);
/// Who has not looked at the clock for so long stood still: stopped, or on a closed laptop.
const STOOD_STILL: Duration = Duration::from_secs(2);

/// One destination of a cast.
#[derive(Clone, Debug)]
pub struct HostSpec {
    /// As the user wrote it; used in every message.
    pub name: String,
    /// Where the object is to be.
    pub path: PathBuf,
    /// The cluster the host is in, if the user said so; hosts without one are in the source's.
    pub cluster: Option<String>,
}

/// Why a cast goes by a protocol that the user named.
pub const ASKED_FOR: &str = "asked for";

/// What the user asked for.
#[derive(Clone, Debug)]
pub struct CastRequest {
    /// File or directory to cast.
    pub source: PathBuf,
    /// Where to.
    pub hosts: Vec<HostSpec>,
    /// Name of a protocol; `None` lets Outpour choose.
    pub protocol: Option<String>,
    /// Where the source and the hosts are in a described network, if one was described: then it
    /// says which clusters they are in.
    pub placement: Option<Placement>,
    /// A plan for the source, node 0, and the hosts, to be executed by a protocol that takes one.
    pub plan: Option<Plan>,
    /// Limit of every node, the source too, in each direction.
    pub limit: Rate,
    /// Whether hosts are expected to fail or to come and go; matters if Outpour chooses.
    pub unreliable: bool,
    /// Block size; `None` goes by the size of the object.
    pub block_bytes: Option<u32>,
    /// How a gossip moves batches, or blocks.
    pub gossip: gossip::Options,
    /// How many blocks are coded together; `None` goes by their size and the limit.
    pub batch_blocks: Option<u16>,
    /// How many threads of a node make packets.
    pub encoders: u8,
    /// Connections per pair of nodes; `None` goes by the path's delay.
    pub connections: Option<u8>,
    /// Seed of the protocols' random choices; `None` draws one.
    pub seed: Option<u64>,
    /// Who casts, as those shall read it whom the cast keeps out of a destination.
    pub who: String,
    /// Whether to wait for the end of other casts to the same destinations.
    pub wait: bool,
    /// Whether hosts read everything back from their disks before they are verified.
    pub verify_after: bool,
    /// How long a host that is silent or gets nothing is waited for once no other gets anything,
    /// and how long a disk may do nothing.
    pub patience: Duration,
    /// The address on which the source's data plane listens.
    pub listen: IpAddr,
}

/// Why a cast could not even begin.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CastError {
    /// The source cannot be read.
    #[error(transparent)]
    Source(#[from] outpour_store::Error),
    /// The request makes no sense.
    #[error("{0}")]
    Request(String),
    /// The data plane could not be started.
    #[error("data plane: {0}")]
    Net(#[from] outpour_net::Error),
    /// The source's disk hangs.
    #[error("{}: its disk has done nothing for {} s while the source is read", path.display(), idle.as_secs())]
    Hung {
        /// The source.
        path: PathBuf,
        /// For how long nothing came.
        idle: Duration,
    },
    /// The user interrupted it while the source was being read.
    #[error("interrupted")]
    Interrupted,
}

/// Casts `request.source` to every host and returns when each has its verdict.
///
/// `view` is renewed several times a second. When `cancel` turns true, hosts without a verdict
/// fail as interrupted and keep what they have for the next attempt.
///
/// # Errors
/// If the source cannot be read or the request makes no sense; what befalls single hosts is in
/// the report.
pub async fn run(
    request: CastRequest,
    launcher: Arc<dyn Launcher>,
    view: watch::Sender<CastView>,
    mut cancel: watch::Receiver<bool>,
) -> Result<CastReport, CastError> {
    let started = Instant::now();
    if request.hosts.is_empty() {
        return Err(CastError::Request("no destination".into()));
    }
    if let Some(name) = &request.protocol {
        planned::check(auto::by_name(name).map_err(CastError::Request)?, &request)?;
    }
    if let Some(placement) = &request.placement {
        let reachable = placement.least_time(Bytes::ZERO);
        reachable.map_err(|error| CastError::Request(error.to_string()))?;
    }
    if let Err(error) = std::fs::symlink_metadata(&request.source) {
        let path = request.source.display();
        return Err(CastError::Request(format!("{path}: {error}")));
    }
    // Agents start while the source is being hashed.
    let mut calls = Calls::start(&launcher, request.hosts.len());
    let (manifest, source) = tokio::select! {
        built = hash(&request, &view, started) => built?,
        Ok(_) = cancel.wait_for(|cancelled| *cancelled) => return Err(CastError::Interrupted),
    };
    let cast = Cast::new(&request, manifest, started)?;
    let planned = tokio::select! {
        planned = planned::make(cast.protocol, &request) => planned?,
        Ok(_) = cancel.wait_for(|cancelled| *cancelled) => return Err(CastError::Interrupted),
    };
    let mut hosting = Hosting {
        cast,
        orders: BTreeMap::new(),
        view,
        notices: planned.notice.iter().cloned().collect(),
        coding: BTreeMap::new(),
        wait: request.wait,
        busy: None,
        waited: Vec::new(),
        took: Duration::ZERO,
    };
    let mut source = Some(source);
    let mut pauses = Pauses::default();
    loop {
        // It was given away if the last attempt got so far as to move something.
        let object = match source.take() {
            Some(source) => source,
            None => tokio::select! {
                built = hash(&request, &hosting.view, started) => built?.1,
                Ok(_) = cancel.wait_for(|cancelled| *cancelled) => return Err(CastError::Interrupted),
            },
        };
        source = hosting
            .attempt(&request, &planned, calls, object, &mut cancel)
            .await?;
        if !hosting.is_busy() {
            return Ok(hosting.conclude());
        }
        tokio::select! {
            () = tokio::time::sleep(pauses.next()) => {}
            Ok(_) = cancel.wait_for(|cancelled| *cancelled) => return Err(CastError::Interrupted),
        }
        calls = Calls::start(&launcher, request.hosts.len());
    }
}

async fn hash(
    request: &CastRequest,
    view: &watch::Sender<CastView>,
    started: Instant,
) -> Result<(Manifest, Source), CastError> {
    let hashed = Arc::new(AtomicU64::new(0));
    let (path, counter) = (request.source.clone(), hashed.clone());
    let options = BuildOptions {
        block: block_size(request)?,
        ..BuildOptions::default()
    };
    let mut build = tokio::task::spawn_blocking(move || {
        outpour_store::build(&path, &options, &|bytes| {
            counter.fetch_add(bytes, Ordering::Relaxed);
        })
    });
    let mut tick = tokio::time::interval(VIEW);
    // Turns are counted, so that a time in which the command itself stood still does not count.
    tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let (mut before, mut idle) = (0, Duration::ZERO);
    loop {
        tokio::select! {
            built = &mut build => {
                return Ok(built.map_err(|panic| CastError::Request(panic.to_string()))??);
            }
            _ = tick.tick() => {
                let bytes = hashed.load(Ordering::Relaxed);
                // Until the first byte a tree is walked, and nothing says how far that is.
                idle = if bytes == 0 || bytes > before { Duration::ZERO } else { idle + VIEW };
                before = bytes;
                if idle >= request.patience {
                    let path = request.source.clone();
                    return Err(CastError::Hung { path, idle });
                }
                view.send_modify(|view| {
                    view.phase = Phase::Hashing;
                    view.hashed_bytes = bytes;
                    view.elapsed = started.elapsed();
                });
            }
        }
    }
}

/// What is fixed once the source is known.
struct Cast {
    manifest: Arc<Manifest>,
    encoded: Vec<u8>,
    offer: ManifestOffer,
    protocol: &'static Entry,
    coding: Option<Coding>,
    why: String,
    limit_s: Option<f64>,
    started: Instant,
    coordinator: Coordinator,
    names: Vec<String>,
}

impl Cast {
    fn new(request: &CastRequest, manifest: Manifest, started: Instant) -> Result<Self, CastError> {
        let receivers = request.hosts.len();
        let batching = batching(request, manifest.block_bytes());
        let (protocol, mut why) = choose(request, manifest.blocks(), batching)?;
        let coding = coded::is_coded(protocol)
            .then(|| choose_coding(request, &manifest, batching, &mut why))
            .transpose()?;
        let encoded = manifest.encode();
        let names: Vec<String> = request.hosts.iter().map(|host| host.name.clone()).collect();
        let coordinator = coordinator(request, &manifest);
        let size = manifest.size();
        let limit_s = match &request.placement {
            Some(placement) => placement.least_time(size).ok().filter(|s| *s > 0.0),
            None => least_time(receivers, request.limit, size),
        };
        Ok(Self {
            offer: content::offer(&encoded, receivers),
            manifest: Arc::new(manifest),
            encoded,
            protocol,
            coding,
            why,
            limit_s,
            started,
            coordinator,
            names,
        })
    }

    fn terms(&self, request: &CastRequest, planned: &Planned) -> Result<Terms, CastError> {
        let authority = CastAuthority::new()?;
        let key = NodeKey::generate()?;
        let certificate = authority.issue(NodeId(0), &key.public_key())?;
        let cast = authority.cast();
        let source =
            NodeIdentity::new(&key, cast, NodeId(0), &certificate, authority.certificate())?;
        Ok(Terms {
            source,
            authority,
            paths: request.hosts.iter().map(|host| host.path.clone()).collect(),
            file_name: match Shape::of(&self.manifest) {
                Shape::Tree => None,
                Shape::File(name) => Some(name),
            },
            label: attempt::label(request, self.manifest.id()),
            verify_after: request.verify_after,
            patience: request.patience,
            limit: request.limit,
            connections: request.connections,
            protocol: self.protocol.name.to_owned(),
            seed: match request.seed {
                Some(seed) => seed,
                None => u64::from_le_bytes(*CastId::random()?.0.first_chunk().unwrap_or(&[0; 8])),
            },
            clusters: clusters(request),
            plan: planned.plan.clone(),
            gossip: request.gossip,
            coding: self.coding,
            offer: self.offer.clone(),
        })
    }

    fn start_mesh(
        &self,
        request: &CastRequest,
        terms: &Terms,
    ) -> Result<(Mesh, Events), CastError> {
        let config = MeshConfig {
            limits: Limits {
                outgoing: request.limit,
                incoming: request.limit,
                ..Limits::default()
            },
            connections: request
                .connections
                .map_or(Connections::Auto, Connections::Fixed),
            ..MeshConfig::new(terms.source.clone(), SocketAddr::new(request.listen, 0))
        };
        Ok(Mesh::start(config)?)
    }
}

/// What decides about a cast, or about an attempt at one.
fn coordinator(request: &CastRequest, manifest: &Manifest) -> Coordinator {
    let hosts = request.hosts.iter().map(|host| host.name.clone());
    Coordinator::new(Config {
        names: std::iter::once("the source".to_owned())
            .chain(hosts)
            .collect(),
        size_bytes: manifest.size().0,
        entries: manifest.entries().len() as u64,
        patience: request.patience,
    })
}

/// The protocol for a cast, and why it is that one.
fn choose(
    request: &CastRequest,
    blocks: u32,
    batching: Batching,
) -> Result<(&'static Entry, String), CastError> {
    let (name, why) = match (&request.protocol, &request.plan) {
        (Some(name), _) => (name.as_str(), ASKED_FOR),
        (None, Some(_)) => ("tree", "there is a plan"),
        (None, None) => {
            let mut distinct = clusters(request);
            distinct.sort_unstable();
            distinct.dedup();
            let network = request.placement.as_ref().map(Placement::network);
            let choice = auto::choose(Situation {
                receivers: request.hosts.len(),
                blocks,
                clusters: distinct.len(),
                network: network.is_some(),
                paths: network.map_or_else(|| Paths::limited(request.limit), Paths::of),
                unreliable: request.unreliable,
                batching,
            });
            return Ok((choice.entry, choice.why));
        }
    };
    let entry = auto::by_name(name).map_err(CastError::Request)?;
    planned::check(entry, request)?;
    Ok((entry, why.to_owned()))
}

/// How large the blocks are: as the user says, or as suits the protocol. Where it makes a difference
/// the object is so large that `auto` chooses by everything else.
fn block_size(request: &CastRequest) -> Result<BlockSize, CastError> {
    if let Some(bytes) = request.block_bytes {
        return Ok(BlockSize::Given(bytes));
    }
    let receivers = request.hosts.len();
    let large = gossip::block_size(&gossip::CODED, receivers).bytes(Bytes(u32::MAX.into()));
    let (protocol, _) = choose(request, BLOCKS_MAX, batching(request, large))?;
    Ok(gossip::block_size(protocol, receivers))
}

/// How many blocks are coded together, if any: as the user says, or as many as processors keep up
/// with.
fn batching(request: &CastRequest, block_bytes: u32) -> Batching {
    let network = request.placement.as_ref().map(Placement::network);
    let matters = |name: &String| name == gossip::CODED.name;
    let rate = if request.protocol.as_ref().is_none_or(matters) {
        network.map_or(request.limit, auto::fastest)
    } else {
        Rate::UNLIMITED
    };
    let mut batching = speed::batching(block_bytes, rate);
    if let Some(blocks) = request.batch_blocks {
        batching.blocks = blocks;
    }
    batching
}

/// How the object is coded.
fn choose_coding(
    request: &CastRequest,
    manifest: &Manifest,
    batching: Batching,
    why: &mut String,
) -> Result<Coding, CastError> {
    let block_bytes = manifest.block_bytes();
    if request.batch_blocks.is_none() {
        *why = format!("{why}; {batching}");
    }
    let coding = Coding {
        batch_blocks: batching.blocks,
        encoders: request.encoders,
    };
    let batches = coding.batches(manifest.blocks(), block_bytes);
    batches.map_err(CastError::Request).map(|_| coding)
}

/// The cluster of every node of a cast: as the network has it, or as the user said.
fn clusters(request: &CastRequest) -> Vec<u32> {
    if let Some(placement) = &request.placement {
        return placement.clusters();
    }
    let mut names: Vec<&str> = Vec::new();
    let mut clusters = vec![0];
    for host in &request.hosts {
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

/// The least time in which `receivers` nodes can get `size`, if every node is limited to `limit`.
fn least_time(receivers: usize, limit: Rate, size: Bytes) -> Option<f64> {
    if limit.is_unlimited() {
        return None;
    }
    let nodes = u32::try_from(receivers + 1).ok()?;
    let network = Network::uniform(nodes, limit, limit, Duration::ZERO).ok()?;
    outpour_planner::limit(&network, NodeId(0), size)
        .ok()
        .map(|limit| limit.seconds)
}

/// The coordinator's host while the cast runs.
struct Hosting {
    cast: Cast,
    orders: BTreeMap<NodeId, mpsc::Sender<Order>>,
    view: watch::Sender<CastView>,
    notices: Vec<String>,
    /// What coding took at each node, as it said last.
    coding: BTreeMap<NodeId, CodingCounts>,
    /// Whether the end of other casts is waited for.
    wait: bool,
    /// Which host is held by which other cast, if that ended the attempt.
    busy: Option<(NodeId, String)>,
    /// For which other casts it was said that they are waited for.
    waited: Vec<String>,
    /// Time from the command's start to the last verdict.
    took: Duration,
}

impl Hosting {
    /// Runs the cast until every host has its verdict; calls `begin` before the first order to move
    /// something goes out.
    async fn run(
        &mut self,
        joined: Input,
        begin: impl FnOnce(),
        mut heard: mpsc::Receiver<Heard>,
        mut reports: mpsc::Receiver<Report>,
        cancel: &mut watch::Receiver<bool>,
    ) {
        let mut clock = Clock::start();
        let mut looked = Instant::now();
        let mut tick = tokio::time::interval(VIEW);
        tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let mut wake = clock.now();
        let mut outputs = self.cast.coordinator.handle(clock.now(), joined);
        let (mut source_lives, mut begun, mut begin) = (true, false, Some(begin));
        loop {
            if self.cast.coordinator.began_at().is_some()
                && let Some(begin) = begin.take()
            {
                begin();
            }
            for output in outputs.drain(..) {
                match output {
                    Output::Order { to, order } => self.order(to, order),
                    Output::WakeAt(at) => wake = at,
                    Output::Notice(notice) => self.notices.push(notice),
                    Output::Ended => {}
                }
            }
            if self.cast.coordinator.has_ended() {
                if !self.is_attempt() {
                    self.show(clock);
                }
                return;
            }
            if !begun && self.cast.coordinator.began_at().is_some() {
                begun = true;
                self.show(clock);
            }
            let input = tokio::select! {
                Some(heard) = heard.recv() => {
                    self.coding.extend(heard.coding());
                    if self.gives_way(&heard) {
                        // Who holds some hosts and waits for others would keep others waiting.
                        outputs = self.cast.coordinator.cancel(clock.now(), "waiting");
                        continue;
                    }
                    Some(heard.into_input())
                }
                report = reports.recv(), if source_lives => match report {
                    Some(report) => {
                        if let Report::Coding(counts) = report {
                            self.coding.insert(NodeId(0), counts);
                        }
                        Some(Input::Report { node: NodeId(0), report })
                    }
                    None => {
                        source_lives = false;
                        Some(Input::Lost { node: NodeId(0), error: "it stopped".into() })
                    }
                },
                () = tokio::time::sleep_until(clock.instant(wake)) => Some(Input::Woken),
                _ = tick.tick() => {
                    self.show(clock);
                    None
                }
                Ok(_) = cancel.wait_for(|cancelled| *cancelled) => {
                    let error = "interrupted; what it has is kept for the next attempt";
                    outputs = self.cast.coordinator.cancel(clock.now(), error);
                    continue;
                }
            };
            let pause = looked.elapsed();
            looked += pause;
            if pause >= STOOD_STILL {
                // All but what a turn takes, so that it never goes back.
                clock.skip(pause - VIEW);
            }
            if let Some(input) = input {
                outputs = self.cast.coordinator.handle(clock.now(), input);
            }
        }
    }

    fn order(&self, to: NodeId, order: Order) {
        if let Some(orders) = self.orders.get(&to)
            && orders.try_send(order).is_err()
        {
            tracing::debug!(%to, "an order found no room or nobody to take it");
        }
    }

    fn show(&self, clock: Clock) {
        let now = clock.now();
        let coordinator = &self.cast.coordinator;
        let hosts = coordinator
            .hosts()
            .iter()
            .zip(&self.cast.names)
            .map(|(host, name)| {
                let idle = now.since(host.progressed);
                let is_fresh = idle < RATE_MAX;
                HostView {
                    name: name.clone(),
                    state: host.state,
                    have_bytes: host.have_bytes,
                    resumed_bytes: host.resumed_bytes,
                    received_bytes: host.received_bytes,
                    rate_bytes_per_s: if is_fresh { host.rate_bytes_per_s } else { 0.0 },
                    idle,
                    error: host.error.clone(),
                }
            });
        let phase = if coordinator.has_ended() {
            Phase::Done
        } else if coordinator.began_at().is_some() {
            Phase::Moving
        } else {
            Phase::Starting
        };
        self.view.send_replace(CastView {
            phase,
            hashed_bytes: self.cast.manifest.size().0,
            size_bytes: self.cast.manifest.size().0,
            protocol: self.cast.protocol.name.to_owned(),
            why: self.cast.why.clone(),
            elapsed: self.cast.started.elapsed(),
            limit_s: self.cast.limit_s,
            hosts: hosts.collect(),
            notices: self.notices.clone(),
        });
    }

    /// The final report; the coordinator's times count from a little after the command's start.
    fn conclude(&self) -> CastReport {
        let elapsed = self.took.as_secs_f64();
        let last = self
            .cast
            .coordinator
            .hosts()
            .iter()
            .filter_map(|host| host.verdict_at)
            .max();
        let began = self.cast.coordinator.began_at();
        let transfer_s = began
            .zip(last)
            .map(|(began, last)| last.since(began).as_secs_f64());
        let hosts = self.cast.coordinator.hosts().iter().zip(&self.cast.names);
        let hosts = hosts.map(|(host, name)| {
            let verified = host.state == HostState::Verified;
            let before_last = last.zip(host.verdict_at).map(|(last, at)| last.since(at));
            let finish_s = before_last.map(|gap| elapsed - gap.as_secs_f64());
            HostReport {
                host: name.clone(),
                state: host.state,
                finish_s: finish_s.filter(|_| verified),
                verified,
                resumed_bytes: host.resumed_bytes,
                received_bytes: host.received_bytes,
                error: host.error.clone(),
            }
        });
        CastReport {
            protocol: self.cast.protocol.name.to_owned(),
            why: self.cast.why.clone(),
            object: self.cast.manifest.id().to_string(),
            size_bytes: self.cast.manifest.size().0,
            finish_s: elapsed,
            transfer_s,
            coding: self
                .cast
                .coding
                .map(|coding| CodingReport::new(coding, self.coding.values())),
            limit_s: self.cast.limit_s,
            ratio: self.cast.limit_s.map(|limit| elapsed / limit),
            hosts: hosts.collect(),
            notices: self.notices.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::net::Ipv4Addr;

    use super::*;

    #[test]
    fn blocks_are_small_where_they_will_be_coded() {
        let host = |name: u8| HostSpec {
            name: name.to_string(),
            path: PathBuf::from("/copy"),
            cluster: None,
        };
        let request = |protocol: Option<&str>, unreliable: bool| CastRequest {
            source: PathBuf::from("/source"),
            hosts: (0..8).map(host).collect(),
            protocol: protocol.map(str::to_owned),
            placement: None,
            plan: None,
            limit: Rate::from_bytes_per_s(1e6).unwrap(),
            unreliable,
            block_bytes: None,
            gossip: gossip::Options::default(),
            batch_blocks: None,
            encoders: 1,
            connections: None,
            seed: None,
            who: "ana@build1".to_owned(),
            wait: false,
            verify_after: false,
            patience: Duration::from_secs(1),
            listen: Ipv4Addr::LOCALHOST.into(),
        };
        let size = |request: CastRequest| block_size(&request).unwrap();
        let small = BlockSize::AtMost(128 << 10);
        assert_eq!(size(request(Some("coded-gossip"), false)), small);
        assert_eq!(size(request(Some("random-block"), false)), BlockSize::Usual);
        assert_eq!(size(request(None, false)), BlockSize::Usual);
        assert_eq!(size(request(None, true)), small);
        let given = CastRequest {
            block_bytes: Some(1 << 20),
            ..request(None, true)
        };
        assert_eq!(size(given), BlockSize::Given(1 << 20));
        assert!(block_size(&request(Some("nothing"), false)).is_err());
    }
}
