//! The command's end of measuring a network: reaches the agents, gives each its turn, and makes a
//! network of what they found.

pub(crate) mod agent;
mod grouping;
mod member;
mod report;

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use outpour_core::network::NetworkError;
use outpour_core::{NodeId, Rate};
use outpour_net::SessionId;
use outpour_probe::fit::{Findings, Site};
use outpour_probe::message::{Contact, Outcome, Packets, ProbeOrder, Task};
use outpour_probe::schedule::{Flow, Measurement, Of, Schedule, Ticket, Wanted};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;

use crate::launch::Launcher;
use crate::session::CHANNEL;

use self::grouping::Grouping;
use self::member::{Heard, Terms, What};
pub use self::report::{HopLinkReport, NodeReport, PathReport, ProbeReport, RateReport};

/// How many hosts are measured at most; the work grows with the square of the clusters.
pub const NODES_MAX: usize = 1_000;
/// A rate is measured for at least so many round trips, or connections have hardly found it.
const ROUND_TRIPS_MIN: u32 = 40;
/// No rate is measured longer than this for the sake of long round trips.
const TIME_MAX: Duration = Duration::from_secs(10);
/// How much longer than asked for a measurement may take.
const ANSWER_MAX: Duration = Duration::from_secs(90);

/// A host to be measured.
#[derive(Clone, Debug)]
pub struct ProbeHost {
    /// What it is called in the network.
    pub name: String,
    /// The cluster it is in; hosts without one are grouped by how near they are.
    pub cluster: Option<String>,
}

/// What the user asked for.
#[derive(Clone, Debug)]
pub struct ProbeRequest {
    /// This host, if it is to be measured, too.
    pub own: Option<ProbeHost>,
    /// The hosts, in the launcher's order.
    pub hosts: Vec<ProbeHost>,
    /// How long each rate is measured.
    pub time: Duration,
    /// What is to be measured besides.
    pub wanted: Wanted,
    /// Connections per pair of nodes; `None` goes by the path's delay.
    pub connections: Option<u8>,
    /// The address on which this host's part listens.
    pub listen: IpAddr,
}

/// How far it is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// Measurements that have ended.
    pub done: usize,
    /// All of them, as far as known.
    pub all: usize,
    /// What is going on, in words.
    pub now: String,
}

/// Why there is no result.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ProbeError {
    /// The request makes no sense.
    #[error("{0}")]
    Request(String),
    /// No identities could be made.
    #[error("data plane: {0}")]
    Net(#[from] outpour_net::Error),
    /// What was found makes no network.
    #[error("the measurements describe no valid network: {0}")]
    Network(#[from] NetworkError),
    /// The user interrupted it.
    #[error("interrupted")]
    Interrupted,
}

/// Measures the network between the hosts of the request.
///
/// # Errors
/// If fewer than two hosts can be reached, names are given twice, or it is interrupted. What
/// befalls single hosts and measurements is in the report.
pub async fn run(
    request: ProbeRequest,
    launcher: Arc<dyn Launcher>,
    progress: watch::Sender<Progress>,
    mut cancel: watch::Receiver<bool>,
) -> Result<ProbeReport, ProbeError> {
    check(&request)?;
    let mut probe = Probe::start(request, launcher, progress)?;
    tokio::select! {
        report = probe.run() => report,
        Ok(_) = cancel.wait_for(|cancelled| *cancelled) => Err(ProbeError::Interrupted),
    }
}

fn check(request: &ProbeRequest) -> Result<(), ProbeError> {
    let count = request.hosts.len() + usize::from(request.own.is_some());
    if count < 2 {
        let line = "nothing to measure: name two hosts, or one besides this host";
        return Err(ProbeError::Request(line.to_owned()));
    }
    if count > NODES_MAX {
        let line = format!("{count} hosts; at most {NODES_MAX} are measured at a time");
        return Err(ProbeError::Request(line));
    }
    let mut seen = BTreeSet::new();
    let all = request.own.iter().chain(&request.hosts);
    for host in all {
        if !seen.insert(&host.name) {
            let line = format!("two hosts are called `{}`", host.name);
            return Err(ProbeError::Request(line));
        }
    }
    Ok(())
}

/// A measurement that runs.
struct Running {
    ticket: Option<Ticket>,
    measurement: Measurement,
    /// What the senders are to do once all of them are connected.
    then: Vec<(NodeId, Task)>,
    /// Orders that are not answered yet, and the nodes that have to answer them.
    open: BTreeMap<u32, NodeId>,
    /// Bytes per second of the flows so far.
    rate: f64,
    errors: Vec<String>,
}

struct Probe {
    request: ProbeRequest,
    progress: watch::Sender<Progress>,
    hosts: Vec<ProbeHost>,
    orders: Vec<mpsc::Sender<ProbeOrder>>,
    heard: mpsc::Receiver<Heard>,
    members: JoinSet<()>,
    lost: BTreeMap<NodeId, String>,
    /// Pairs of nodes that could not be connected, in the direction in which it was tried.
    cut: BTreeSet<Flow>,
    /// Nodes that were connected to any other.
    reached: BTreeSet<NodeId>,
    running: Vec<Running>,
    next_order: u32,
    done: usize,
    // ---- what was found
    findings: Findings,
    round_trips: BTreeMap<(NodeId, NodeId), (outpour_probe::estimate::RoundTrip, bool)>,
    packets: BTreeMap<(NodeId, NodeId), Packets>,
    hops: BTreeMap<(NodeId, NodeId), Vec<Option<IpAddr>>>,
    failures: Vec<(Measurement, String)>,
}

impl Probe {
    fn start(
        request: ProbeRequest,
        launcher: Arc<dyn Launcher>,
        progress: watch::Sender<Progress>,
    ) -> Result<Self, ProbeError> {
        let all: Vec<ProbeHost> = request.own.iter().chain(&request.hosts).cloned().collect();
        let terms = Arc::new(Terms {
            group: SessionId::random()?,
            members: all.len(),
            connections: request.connections,
        });
        let (heard_tx, heard) = mpsc::channel(CHANNEL);
        let mut members = JoinSet::new();
        let mut orders = Vec::new();
        let own = usize::from(request.own.is_some());
        for index in 0..all.len() {
            let (order_tx, order_rx) = mpsc::channel(CHANNEL);
            orders.push(order_tx);
            let member = member::Member {
                node: NodeId(index as u32),
                terms: terms.clone(),
                heard: heard_tx.clone(),
                orders: order_rx,
            };
            let (launcher, listen) = (launcher.clone(), request.listen);
            members.spawn(member.run(async move {
                match index.checked_sub(own) {
                    Some(host) => launcher.launch(host).await,
                    None => Ok(agent::here(listen)),
                }
            }));
        }
        Ok(Self {
            request,
            progress,
            hosts: all,
            orders,
            heard,
            members,
            lost: BTreeMap::new(),
            cut: BTreeSet::new(),
            reached: BTreeSet::new(),
            running: Vec::new(),
            next_order: 0,
            done: 0,
            findings: Findings::default(),
            round_trips: BTreeMap::new(),
            packets: BTreeMap::new(),
            hops: BTreeMap::new(),
            failures: Vec::new(),
        })
    }

    async fn run(&mut self) -> Result<ProbeReport, ProbeError> {
        self.say(0, "reaching the hosts");
        let contacts = self.gather().await;
        if contacts.len() < 2 {
            let whys = self.lost.iter().map(|(node, why)| {
                let name = &self.hosts[node.index()].name;
                format!("{name}: {why}")
            });
            let whys: Vec<String> = whys.collect();
            let line = format!("fewer than two hosts take part; {}", whys.join("; "));
            return Err(ProbeError::Request(line));
        }
        for order in &self.orders {
            let contacts = contacts.clone();
            let _ = order.try_send(ProbeOrder::Begin { contacts });
        }
        let sites = self.group(&contacts).await;
        let clusters: Vec<Vec<NodeId>> = sites.iter().map(|site| site.nodes.clone()).collect();
        let mut schedule = Schedule::new(&clusters, self.request.wanted);
        self.leave_out(&mut schedule);
        self.measure(&mut schedule).await;
        for order in &self.orders {
            let _ = order.try_send(ProbeOrder::Finish);
        }
        let farewell = async { while self.members.join_next().await.is_some() {} };
        let _ = tokio::time::timeout(Duration::from_secs(3), farewell).await;
        self.report(sites)
    }

    fn say(&self, left: usize, now: &str) {
        let (done, all) = (self.done, self.done + left);
        let now = now.to_owned();
        self.progress.send_replace(Progress { done, all, now });
    }

    /// Waits until every host has joined or failed to.
    async fn gather(&mut self) -> Vec<(NodeId, Contact)> {
        let mut contacts: BTreeMap<NodeId, Contact> = BTreeMap::new();
        while contacts.len() + self.lost.len() < self.hosts.len() {
            let Some(Heard { node, what }) = self.heard.recv().await else {
                break;
            };
            match what {
                What::Joined(contact) => {
                    contacts.insert(node, contact);
                }
                What::Lost(error) => {
                    contacts.remove(&node);
                    self.lost.insert(node, error);
                }
                What::Report(_) => {}
            }
        }
        contacts.into_iter().collect()
    }

    /// Finds the cluster of every host that takes part.
    async fn group(&mut self, contacts: &[(NodeId, Contact)]) -> Vec<Site> {
        let nodes = contacts.iter().map(|(node, _)| {
            let host = &self.hosts[node.index()];
            (*node, host.name.clone(), host.cluster.clone())
        });
        let mut grouping = Grouping::new(nodes.collect());
        while let Some((a, b)) = grouping.question() {
            if self.lost.contains_key(&a) || self.lost.contains_key(&b) {
                grouping.answer(None);
                continue;
            }
            self.say(1, "grouping hosts by round-trip time");
            let known = self.findings.round_trips.len();
            self.begin(None, Measurement::RoundTrip(a, b));
            while !self.running.is_empty() {
                self.hear().await;
            }
            let near = self.findings.round_trips.get(&(a, b)).copied();
            grouping.answer(near.filter(|_| self.findings.round_trips.len() > known));
        }
        grouping.sites()
    }

    async fn measure(&mut self, schedule: &mut Schedule) {
        while !schedule.is_over() {
            while let Some((ticket, measurement)) = schedule.begin() {
                let now = self.describe(&measurement);
                self.begin(Some(ticket), measurement);
                self.say(schedule.left() + self.running.len(), &now);
            }
            for ticket in self.hear().await {
                schedule.done(ticket);
            }
            self.leave_out(schedule);
        }
    }

    /// Leaves out what would be tried in vain.
    fn leave_out(&self, schedule: &mut Schedule) {
        for node in self.lost.keys() {
            schedule.lose(*node);
        }
        for (from, to) in &self.cut {
            schedule.cut(*from, *to);
        }
    }

    fn name(&self, node: NodeId) -> &str {
        self.hosts.get(node.index()).map_or("?", |host| &host.name)
    }

    fn describe(&self, measurement: &Measurement) -> String {
        match measurement {
            Measurement::RoundTrip(a, b) | Measurement::Packets(a, b) | Measurement::Hops(a, b) => {
                format!("{} to {}", self.name(*a), self.name(*b))
            }
            Measurement::Rate { flows, .. } => match flows.as_slice() {
                [(a, b)] => format!("{} to {}", self.name(*a), self.name(*b)),
                [(a, _), ..] => format!("{} flows, {} among them", flows.len(), self.name(*a)),
                [] => String::new(),
            },
        }
    }

    /// Gives the orders of a measurement.
    fn begin(&mut self, ticket: Option<Ticket>, measurement: Measurement) {
        let mut then = Vec::new();
        let tasks: Vec<(NodeId, Task)> = match &measurement {
            Measurement::RoundTrip(a, b) => vec![(*a, Task::RoundTrip { to: *b })],
            Measurement::Packets(a, b) => vec![(*a, Task::Packets { to: *b })],
            Measurement::Hops(a, b) => vec![(*a, Task::Hops { to: *b })],
            Measurement::Rate { flows, .. } => {
                let mut senders: BTreeMap<NodeId, Vec<NodeId>> = BTreeMap::new();
                for (from, to) in flows {
                    senders.entry(*from).or_default().push(*to);
                }
                let time = self.time_for(flows);
                let connect = |(from, to): (&NodeId, &Vec<NodeId>)| {
                    let to = to.clone();
                    (*from, Task::Connect { to })
                };
                let connect = senders.iter().map(connect).collect();
                let rate = |(from, to)| (from, Task::Rate { to, time });
                then = senders.into_iter().map(rate).collect();
                connect
            }
        };
        let mut running = Running {
            ticket,
            measurement,
            then,
            open: BTreeMap::new(),
            rate: 0.0,
            errors: Vec::new(),
        };
        self.give(&mut running, tasks);
        self.running.push(running);
    }

    /// How long these flows are measured.
    fn time_for(&self, flows: &[Flow]) -> Duration {
        let known = |(a, b): &Flow| {
            let there = self.findings.round_trips.get(&(*a, *b));
            there.or_else(|| self.findings.round_trips.get(&(*b, *a)))
        };
        let longest = flows.iter().filter_map(known).max();
        let least = longest.copied().unwrap_or_default() * ROUND_TRIPS_MIN;
        self.request.time.max(least.min(TIME_MAX))
    }

    /// Gives orders that belong to one measurement.
    fn give(&mut self, running: &mut Running, tasks: Vec<(NodeId, Task)>) {
        for (node, task) in tasks {
            let id = self.next_order;
            self.next_order += 1;
            let order = self.orders.get(node.index());
            let given = order.map(|order| order.try_send(ProbeOrder::Run { id, task }).is_ok());
            if given == Some(true) {
                running.open.insert(id, node);
            } else {
                running.errors.push(format!("{} is gone", self.name(node)));
            }
        }
    }

    /// Takes what is heard next; returns the tickets of measurements that ended.
    async fn hear(&mut self) -> Vec<Ticket> {
        let patience = self.request.time + ANSWER_MAX;
        match tokio::time::timeout(patience, self.heard.recv()).await {
            Ok(Some(Heard { node, what })) => match what {
                What::Report(report) => {
                    for running in &mut self.running {
                        if running.open.get(&report.id) == Some(&node) {
                            running.open.remove(&report.id);
                            running.take(
                                report.outcome,
                                &mut Found {
                                    round_trips: &mut self.round_trips,
                                    packets: &mut self.packets,
                                    hops: &mut self.hops,
                                },
                            );
                            break;
                        }
                    }
                }
                What::Lost(error) => {
                    for running in &mut self.running {
                        let before = running.open.len();
                        running.open.retain(|_, by| *by != node);
                        if running.open.len() < before {
                            running.errors.push(error.clone());
                        }
                    }
                    self.lost.insert(node, error);
                }
                What::Joined(_) => {}
            },
            // Nothing at all: a node that owes an answer does not give one any more.
            _ => {
                for running in &mut self.running {
                    for (_, node) in std::mem::take(&mut running.open) {
                        let line = format!("no answer for {} s", patience.as_secs());
                        running.errors.push(line.clone());
                        self.lost.insert(node, line);
                    }
                }
            }
        }
        self.conclude()
    }

    /// Writes down what ended measurements found.
    fn conclude(&mut self) -> Vec<Ticket> {
        let mut running = std::mem::take(&mut self.running);
        for one in &mut running {
            if one.open.is_empty() && one.errors.is_empty() {
                let then = std::mem::take(&mut one.then);
                self.give(one, then);
            }
        }
        let (ended, running): (Vec<_>, Vec<_>) =
            running.into_iter().partition(|one| one.open.is_empty());
        self.running = running;
        let mut tickets = Vec::new();
        for one in ended {
            self.done += 1;
            tickets.extend(one.ticket);
            self.learn_ways(&one);
            match &one.measurement {
                Measurement::RoundTrip(a, b) => {
                    if let Some((times, _)) = self.round_trips.get(&(*a, *b)) {
                        self.findings.round_trips.insert((*a, *b), times.least);
                    }
                }
                // Several flows of which one failed say nothing about what they share.
                Measurement::Rate { of, .. } if one.errors.is_empty() => {
                    if let Some(rate) = Rate::from_bytes_per_s(one.rate) {
                        self.findings.rates.insert(*of, rate);
                    }
                }
                _ => {}
            }
            if let Some(error) = one.errors.into_iter().next() {
                self.failures.push((one.measurement, error));
            }
        }
        tickets
    }
}

impl Probe {
    /// Notes which nodes can reach each other. One that was tried twice in vain, and with a node that
    /// others do reach, is out of it.
    fn learn_ways(&mut self, ended: &Running) {
        let flow = match &ended.measurement {
            Measurement::RoundTrip(a, b) => (*a, *b),
            Measurement::Rate { flows, .. } => match flows.as_slice() {
                [flow] => *flow,
                _ => return,
            },
            Measurement::Packets(..) | Measurement::Hops(..) => return,
        };
        // A node that left says nothing about paths.
        if self.lost.contains_key(&flow.0) || self.lost.contains_key(&flow.1) {
            return;
        }
        let Some(error) = ended.errors.first() else {
            self.reached.extend([flow.0, flow.1]);
            return;
        };
        // A rate whose senders were connected failed for another reason.
        let is_rate = matches!(ended.measurement, Measurement::Rate { .. });
        if is_rate && ended.then.is_empty() {
            return;
        }
        self.cut.insert(flow);
        for (node, other) in [flow, (flow.1, flow.0)] {
            let tried = self.cut.iter().filter(|(a, b)| *a == node || *b == node);
            if tried.count() > 1 && !self.reached.contains(&node) && self.reached.contains(&other) {
                let line = format!("no path leads to it, or from it: {error}");
                self.lost.entry(node).or_insert(line);
            }
        }
    }
}

/// Where single outcomes go.
struct Found<'a> {
    round_trips: &'a mut BTreeMap<(NodeId, NodeId), (outpour_probe::estimate::RoundTrip, bool)>,
    packets: &'a mut BTreeMap<(NodeId, NodeId), Packets>,
    hops: &'a mut BTreeMap<(NodeId, NodeId), Vec<Option<IpAddr>>>,
}

impl Running {
    fn take(&mut self, outcome: Result<Outcome, String>, found: &mut Found<'_>) {
        match (&self.measurement, outcome) {
            (_, Err(error)) => self.errors.push(error),
            (Measurement::Rate { .. }, Ok(Outcome::Connected)) => {}
            (Measurement::RoundTrip(a, b), Ok(Outcome::RoundTrip { times, udp })) => {
                found.round_trips.insert((*a, *b), (times, udp));
            }
            (Measurement::Packets(a, b), Ok(Outcome::Packets(packets))) => {
                found.packets.insert((*a, *b), packets);
            }
            (Measurement::Hops(a, b), Ok(Outcome::Hops { hops })) => {
                found.hops.insert((*a, *b), hops);
            }
            (Measurement::Rate { .. }, Ok(Outcome::Rate { peers })) => {
                for (_, rate) in peers {
                    match rate {
                        Ok(rate) if rate.is_finite() && rate >= 0.0 => self.rate += rate,
                        Ok(_) => self.errors.push("it reports an invalid rate".to_owned()),
                        Err(error) => self.errors.push(error),
                    }
                }
            }
            _ => self.errors.push("it gave an unexpected answer".to_owned()),
        }
    }
}

/// Which single path a measure of a rate is of.
const fn path_of(of: Of) -> Option<(NodeId, NodeId)> {
    match of {
        Of::Path(a, b) => Some((a, b)),
        _ => None,
    }
}
