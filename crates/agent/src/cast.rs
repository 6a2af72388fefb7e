//! The command's end of a cast: source, coordinator and control channels.

mod attempt;
mod channel;
mod dry;
mod prepare;
mod request;

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use outpour_core::manifest::{Aspect, ObjectId};
use outpour_core::network::Network;
use outpour_core::{Bytes, NodeId, Priority, Traffic};
use outpour_net::{
    Connections, Endpoint, EndpointConfig, EndpointKey, SessionConfig, SessionId, SessionLimits,
};
use outpour_protocols::Role;
use outpour_protocols::coordinator::{
    CodingCounts, Config, Coordinator, Given, Host, HostState, Input, Output, Participant, Report,
    TransferName,
};
use outpour_terms::placement::Placement;
use outpour_terms::{DecideError, Decision, Terms, TermsError};
use tokio::sync::watch;

use crate::clock::Clock;
use crate::control::Described;
use crate::launch::Launcher;
use crate::mailbox;
use crate::view::{CastReport, CastView, CodingReport, HostReport, HostView, NotKept, Phase};
use attempt::{Calls, Hearing, Pauses};
use channel::Invitation;

pub(crate) use channel::{in_time, reachable};
pub use dry::dry_run;
pub use prepare::facts;
pub use request::{CastRequest, HERE, HostSpec, Origin};

/// How often the view is renewed.
const VIEW: Duration = Duration::from_millis(100);
/// How long agents have to leave once the cast is over, before their channels are cut.
const FAREWELL: Duration = Duration::from_secs(3);
/// A host that got nothing for so long gets nothing, whatever its rate was before.
const RATE_MAX: Duration = Duration::from_secs(10);
/// A process that has not looked at the clock for so long stood still: stopped, or on a closed laptop.
const STOOD_STILL: Duration = Duration::from_secs(2);

/// Why a cast could not even begin.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CastError {
    /// The source cannot be read.
    #[error(transparent)]
    Source(#[from] outpour_store::Error),
    /// There are no terms for what was asked for.
    #[error(transparent)]
    Decide(#[from] DecideError),
    /// The object cannot be coded so.
    #[error(transparent)]
    Terms(#[from] TermsError),
    /// The request makes no sense.
    #[error("{0}")]
    Request(String),
    /// The data plane could not be started.
    #[error("data plane: {0}")]
    Net(#[from] outpour_net::Error),
    /// The host that has the object cannot give it, and no other has it.
    #[error("{host}: {error}")]
    Origin {
        /// The host, as the user wrote it.
        host: String,
        /// Why, in one line.
        error: String,
    },
    /// None of several hosts that have the object can give it.
    #[error("no source can be read: {0}")]
    Sources(String),
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

/// Casts the object at `request.origin` to every host and returns when each has its verdict.
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
    check(&request)?;
    // Agents start while the source is being hashed.
    let mut calls = Calls::start(&launcher, &request);
    let prepared = tokio::select! {
        prepared = prepare::prepare(&request, &mut calls, &view, started) => prepared?,
        Ok(_) = cancel.wait_for(|cancelled| *cancelled) => return Err(CastError::Interrupted),
    };
    let why = prepared.decision.explain(&request.asked);
    let Decision { terms, notice, .. } = prepared.decision;
    let cast = Cast::new(&request, terms, why, prepared.object, started)?;
    let mut hosting = Hosting {
        cast,
        orders: BTreeMap::new(),
        view,
        notices: notice.into_iter().collect(),
        coding: BTreeMap::new(),
        not_kept: BTreeMap::new(),
        traffic: request.traffic.clone().zip(request.placement.clone()),
        wait: request.wait,
        busy: None,
        waited: Vec::new(),
        took: Duration::ZERO,
    };
    let mut source = prepared.source;
    let mut pauses = Pauses::default();
    loop {
        source = hosting
            .attempt(&request, calls, source, &mut cancel)
            .await?;
        if !hosting.is_busy() {
            return Ok(hosting.conclude());
        }
        tokio::select! {
            () = tokio::time::sleep(pauses.next()) => {}
            Ok(_) = cancel.wait_for(|cancelled| *cancelled) => return Err(CastError::Interrupted),
        }
        calls = Calls::start(&launcher, &request);
        let cast = &hosting.cast;
        let again = prepare::again(&request, &mut calls, cast, source, &hosting.view);
        source = tokio::select! {
            source = again => source?,
            Ok(_) = cancel.wait_for(|cancelled| *cancelled) => return Err(CastError::Interrupted),
        };
    }
}

/// Refuses requests that make no sense before any host is called.
fn check(request: &CastRequest) -> Result<(), CastError> {
    if request.hosts.is_empty() {
        return Err(CastError::Request("no destination".into()));
    }
    outpour_terms::check_asked(&request.asked, !request.relays.is_empty())?;
    if let Some(entry) = request.asked.protocol {
        let has_plan = request.asked.plan.is_some();
        outpour_terms::check_plan(entry, has_plan, request.placement.is_some())?;
    }
    if let Some(placement) = &request.placement {
        let reachable = placement.least_time(&request.members(), Bytes::ZERO);
        reachable.map_err(|error| CastError::Request(error.to_string()))?;
    }
    if request.signer.is_some() && matches!(request.origin, Origin::Host(_)) {
        // Whoever has that host would have its bytes signed.
        let why =
            "only an object of this host is signed, as nobody vouches for what another says it has";
        return Err(CastError::Request(why.to_owned()));
    }
    if let Origin::Here(sources) = &request.origin {
        for source in sources {
            std::fs::symlink_metadata(source).map_err(|error| {
                let path = source.display();
                CastError::Request(format!("{path}: {error}"))
            })?;
        }
    }
    Ok(())
}

/// What is fixed once the source is known.
struct Cast {
    object: Described,
    terms: Arc<Terms>,
    /// Why these, for people.
    why: String,
    limit_s: Option<f64>,
    started: Instant,
    coordinator: Coordinator,
    /// Random, and the same in all attempts.
    transfer: TransferName,
    /// Of the attempt; the first has 1.
    epoch: u64,
    /// Indexed by node.
    names: Vec<String>,
}

impl Cast {
    fn new(
        request: &CastRequest,
        terms: Terms,
        why: String,
        object: Described,
        started: Instant,
    ) -> Result<Self, CastError> {
        let coordinator = coordinator(request, &object, 0);
        let size = Bytes(object.size);
        let limit_s = match &request.placement {
            Some(placement) => (placement.clone())
                .leaving_room(request.asked.separation)
                .least_time(&terms.members, size)
                .ok()
                .filter(|s| *s > 0.0),
            None => least_time(&terms, size),
        };
        Ok(Self {
            object,
            terms: Arc::new(terms),
            why,
            limit_s,
            started,
            coordinator,
            transfer: SessionId::random()?.0,
            epoch: 0,
            names: request.names(),
        })
    }

    /// What is known of each host that is to get the object, and its name.
    fn hosts(&self) -> impl Iterator<Item = (&Host, &String)> {
        self.receivers().map(|(_, host, name)| (host, name))
    }

    fn receivers(&self) -> impl Iterator<Item = (NodeId, &Host, &String)> {
        let nodes = self.coordinator.nodes().iter().zip(&self.names);
        let nodes = (0..).map(NodeId).zip(nodes);
        let nodes = nodes.filter(|(_, (host, _))| host.role == Role::Receiver);
        nodes.map(|(node, (host, name))| (node, host, name))
    }

    fn invitation(&self, request: &CastRequest) -> Result<Invitation, CastError> {
        Ok(Invitation {
            cast: SessionId::random()?,
            transfer: self.transfer,
            epoch: self.epoch,
            priority: request.priority,
            first: request.first_agent(),
            hosts: request.agents().cloned().collect(),
            object: self.object.clone(),
            signature: request
                .signer
                .as_ref()
                .map(|signer| signer.sign(&self.object.manifest.id)),
            label: attempt::label(request, self.id()),
            look: None,
            verify_after: request.verify_after,
            patience: request.patience,
            terms: self.terms.clone(),
        })
    }

    fn id(&self) -> ObjectId {
        ObjectId(self.object.manifest.id)
    }
}

/// A data plane without limits that listens on an address; the port is the system's choice. Must be
/// called in a tokio runtime.
///
/// # Errors
/// If the address cannot be listened on.
pub(crate) fn endpoint(listen: IpAddr) -> Result<Endpoint, outpour_net::Error> {
    let key = EndpointKey::generate()?;
    Endpoint::start(EndpointConfig::new(key, SocketAddr::new(listen, 0)))
}

/// A node's part in a cast, on the data plane.
pub(crate) fn session_config(
    cast: SessionId,
    node: NodeId,
    priority: Priority,
    terms: &Terms,
) -> SessionConfig {
    let connections = terms.connections;
    SessionConfig {
        priority,
        limits: SessionLimits {
            outgoing: terms.limit,
            incoming: terms.limit,
        },
        connections: connections.map_or(Connections::Auto, Connections::Fixed),
        ..SessionConfig::new(cast, node)
    }
}

/// What decides about a cast, or about an attempt at one.
fn coordinator(request: &CastRequest, object: &Described, epoch: u64) -> Coordinator {
    let nodes = request.names().into_iter().zip(request.members());
    let nodes = nodes.map(|(name, member)| Participant {
        name,
        role: member.role,
    });
    Coordinator::new(Config {
        epoch,
        nodes: nodes.collect(),
        size_bytes: object.size,
        entries: object.entries,
        patience: request.patience,
    })
}

/// The least time in which an object of `size` gets to all receivers, if every node is limited.
fn least_time(terms: &Terms, size: Bytes) -> Option<f64> {
    if terms.limit.is_unlimited() {
        return None;
    }
    let nodes = u32::try_from(terms.members.len()).ok()?;
    let network = Network::uniform(nodes, terms.limit, terms.limit, Duration::ZERO).ok()?;
    Placement::whole(network)
        .least_time(&terms.members, size)
        .ok()
}

/// Waits for the next measurement of latency-sensitive traffic; what of it is between the members. If nobody
/// measures any more, what was said last holds. Cancel-safe.
async fn measured(
    traffic: &mut Option<(watch::Receiver<Vec<Traffic>>, Placement)>,
) -> Vec<Traffic> {
    if let Some((traffic, placement)) = traffic
        && traffic.changed().await.is_ok()
    {
        return placement.traffic(&traffic.borrow_and_update());
    }
    std::future::pending().await
}

/// The coordinator's host while the cast runs.
struct Hosting {
    cast: Cast,
    orders: BTreeMap<NodeId, mailbox::Sender<Given>>,
    view: watch::Sender<CastView>,
    notices: Vec<String>,
    /// What coding took at each node, as it said last.
    coding: BTreeMap<NodeId, CodingCounts>,
    /// What each host could not keep.
    not_kept: BTreeMap<NodeId, BTreeMap<Aspect, NotKept>>,
    /// What is measured of latency-sensitive traffic, and where the members are.
    traffic: Option<(watch::Receiver<Vec<Traffic>>, Placement)>,
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
        first: Input,
        begin: impl FnOnce(),
        mut hearing: Hearing,
        mut reports: mailbox::Receiver<Report>,
        cancel: &mut watch::Receiver<bool>,
    ) {
        let mut clock = Clock::start();
        let mut looked = Instant::now();
        let mut tick = tokio::time::interval(VIEW);
        tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let mut wake = clock.now();
        let mut outputs = self.cast.coordinator.handle(clock.now(), first);
        let (mut source_lives, mut begun, mut begin) = (true, false, Some(begin));
        if let Some((traffic, placement)) = &mut self.traffic {
            let now = placement.traffic(&traffic.borrow_and_update());
            let told = Input::Foreground(now);
            outputs.extend(self.cast.coordinator.handle(clock.now(), told));
        }
        loop {
            if self.cast.coordinator.began_at().is_some()
                && let Some(begin) = begin.take()
            {
                begin();
            }
            for output in outputs.drain(..) {
                match output {
                    Output::Order { to, given } => self.order(to, given),
                    Output::WakeAt(at) => wake = at,
                    // The next attempt meets with the same, as with a source that is out of reach.
                    Output::Notice(notice)
                        if self.cast.epoch > 1 && self.notices.contains(&notice) => {}
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
                Some(heard) = hearing.next() => {
                    self.coding.extend(heard.coding());
                    if let Some((node, not_kept)) = heard.not_kept() {
                        let known = self.not_kept.entry(node).or_default();
                        known.insert(not_kept.what, not_kept);
                    }
                    if self.gives_way(&heard) {
                        // A cast that holds some hosts and waits for others would keep other casts waiting.
                        outputs = self.cast.coordinator.cancel(clock.now(), "waiting");
                        continue;
                    }
                    heard.into_input()
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
                traffic = measured(&mut self.traffic) => Some(Input::Foreground(traffic)),
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

    fn order(&self, to: NodeId, given: Given) {
        if let Some(orders) = self.orders.get(&to) {
            orders.send(given);
        }
    }

    fn show(&self, clock: Clock) {
        let now = clock.now();
        let coordinator = &self.cast.coordinator;
        let began = coordinator.began_at();
        let hosts = self.cast.hosts().map(|(host, name)| {
            let idle = now.since(host.progressed);
            let is_fresh = idle < RATE_MAX;
            HostView {
                name: name.clone(),
                state: match host.state {
                    // It has looked at its destination; nothing is sent before the start.
                    HostState::Receiving if began.is_none() => HostState::Joined,
                    state => state,
                },
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
        } else if began.is_some() {
            Phase::Moving
        } else {
            Phase::Starting
        };
        self.view.send_replace(CastView {
            phase,
            hashed_bytes: self.cast.object.size,
            size_bytes: self.cast.object.size,
            protocol: self.cast.terms.protocol.entry().name.to_owned(),
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
        let last = self.cast.hosts().filter_map(|(host, _)| host.verdict_at);
        let last = last.max();
        let began = self.cast.coordinator.began_at();
        let transfer_s = began
            .zip(last)
            .map(|(began, last)| last.since(began).as_secs_f64());
        let hosts = self.cast.receivers().map(|(node, host, name)| {
            let not_kept = self.not_kept.get(&node).into_iter().flatten();
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
                not_kept: not_kept.map(|(_, it)| it.clone()).collect(),
                error: host.error.clone(),
            }
        });
        let hosts: Vec<HostReport> = hosts.collect();
        // What did not arrive everywhere took no time that a limit could be compared with.
        let arrived = hosts.iter().all(|host| host.verified);
        let limit_s = self.cast.limit_s;
        CastReport {
            protocol: self.cast.terms.protocol.entry().name.to_owned(),
            why: self.cast.why.clone(),
            object: self.cast.id().to_string(),
            size_bytes: self.cast.object.size,
            finish_s: elapsed,
            transfer_s,
            coding: self
                .cast
                .terms
                .coding
                .map(|coding| CodingReport::new(coding, self.coding.values())),
            limit_s,
            ratio: limit_s.filter(|_| arrived).map(|limit| elapsed / limit),
            hosts,
            notices: self.notices.clone(),
        }
    }
}
