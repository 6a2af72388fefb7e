//! One node of a cast from its start to its end: fetches the manifest, prepares the destination,
//! takes part in the transfer, and puts the files in place.
//!
//! Both objects, the manifest and the one it describes, are moved by the same protocol code, so
//! the manifest of a large tree does not pass through one host's link once per node either. A
//! small one is here before the start, and the destination is looked at while others still join.

mod coded;
#[cfg(test)]
mod conformance;
mod recovery;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use outpour_core::manifest::Manifest;
use outpour_core::{BlockId, BlockSet, NodeId, Time};
use outpour_net::{BlockIo, Events, Mesh, MeshEvent};
use outpour_protocols::coordinator::{self, Contact, Order, Report};
use outpour_protocols::{Coded, Event};
use outpour_store::{Destination, Source, Work};
use outpour_terms::Terms;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use crate::content::{Blob, DestinationIo, SourceIo};
use crate::disk::{Disk, Watched};
use crate::engine::{Clock, Engine};
use crate::wrap::Wrap;
use coded::CodedPart;
use recovery::Paused;

/// The transfers of a cast on the data plane.
const MANIFEST: u8 = 0;
const OBJECT: u8 = 1;
/// How often a node gives a sign of life.
const REPORT: Duration = Duration::from_millis(500);
/// A node that lost its coordinator stays as long as blocks come or go at least this often.
const ORPHAN_PATIENCE: Duration = Duration::from_secs(3);
/// Whom a block was sent to so lately counts on more.
const SERVED: Duration = Duration::from_secs(5);

/// Opens the destination once the manifest is known; runs on a blocking thread.
pub(crate) type Open = Box<dyn FnOnce(Arc<Manifest>) -> Result<Destination, String> + Send>;

/// What a node brings to a cast.
pub(crate) enum Part {
    /// It has the object.
    Source {
        manifest: Arc<Manifest>,
        source: Source,
    },
    /// It wants the object.
    Receiver {
        open: Open,
        /// Counts what is done to files while the destination is opened and finished.
        work: Arc<Work>,
    },
}

/// What a node knows before the start.
pub(crate) struct NodeConfig {
    pub(crate) me: NodeId,
    pub(crate) terms: Arc<Terms>,
    pub(crate) manifest: Blob,
    /// Whether the manifest is cast before the object; otherwise every node has it already.
    pub(crate) fetches_manifest: bool,
    pub(crate) part: Part,
    /// What stands between the object and the data plane.
    pub(crate) wrap: Option<Wrap>,
}

/// How a node's part ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// The coordinator ended the cast.
    Finished,
    /// The coordinator was lost; this is what is here of how many blocks.
    Orphaned {
        /// Verified blocks.
        have: u32,
        /// Blocks of the object, zero if the manifest did not come.
        blocks: u32,
    },
}

enum Done {
    Opened(Result<(Arc<Manifest>, Destination), String>),
    Placed(Result<(), outpour_store::Error>),
    Recovered(Result<(), outpour_store::Error>),
    /// The work on the destination panicked.
    Broken(String),
}

/// Where the object is at this node.
enum Stage {
    /// A receiver without the manifest.
    Waiting(Open),
    /// The destination is being looked at.
    Opening,
    /// The transfer is on, or over while the files are put in place.
    Moving(Arc<DestinationIo>),
    /// Something is wrong with the destination that may pass.
    Paused(Paused),
    /// A source, or a node that has failed and only waits for its dismissal.
    Settled,
}

/// One node of a cast.
pub(crate) struct Node {
    config: Setting,
    mesh: Mesh,
    reports: mpsc::Sender<Report>,
    clock: Clock,
    manifest: Arc<Blob>,
    stage: Stage,
    engines: [Option<Engine>; 2],
    left: BlockSet,
    work: Option<JoinHandle<Done>>,
    /// Counts what such work has done, and what it had when it began.
    counter: Arc<Work>,
    counted: u64,
    /// The disk beneath the object.
    disk: Arc<Disk>,
    /// Kept to the end, so that no network thread lets go of it last: that waits for the disk.
    destination: Option<Arc<Destination>>,
    have: BlockSet,
    lens: Option<Arc<Manifest>>,
    have_bytes: u64,
    received_bytes: u64,
    coded: Option<CodedPart>,
    /// The last word of this node, said again at every beat in case the channel was full.
    verdict: Option<Report>,
    /// When a block last came or went.
    moved: Time,
    /// When each peer was last sent something.
    served: BTreeMap<NodeId, Time>,
    /// Whether those it served were parted from because the disk hangs.
    stepped_aside: bool,
    orphaned: bool,
    /// Whether the coordinator has given the start.
    begun: bool,
    /// How often the node took a pause.
    pauses: u32,
    /// How often the destination was recovered from more than a full disk.
    recoveries: u32,
}

/// The parts of the configuration that stay.
struct Setting {
    me: NodeId,
    terms: Arc<Terms>,
    fetches_manifest: bool,
    wrap: Option<Wrap>,
}

impl Node {
    pub(crate) fn new(config: NodeConfig, mesh: Mesh, reports: mpsc::Sender<Report>) -> Self {
        let clock = Clock::start();
        let members = config.terms.members.len() as u32;
        let setting = Setting {
            me: config.me,
            terms: config.terms,
            fetches_manifest: config.fetches_manifest,
            wrap: config.wrap,
        };
        let mut node = Self {
            config: setting,
            mesh,
            reports,
            clock,
            manifest: Arc::new(config.manifest),
            stage: Stage::Settled,
            engines: [None, None],
            left: BlockSet::new(members),
            work: None,
            counter: Arc::default(),
            counted: 0,
            disk: Arc::default(),
            destination: None,
            have: BlockSet::new(0),
            lens: None,
            have_bytes: 0,
            received_bytes: 0,
            coded: None,
            verdict: None,
            moved: clock.now(),
            served: BTreeMap::new(),
            stepped_aside: false,
            orphaned: false,
            begun: false,
            pauses: 0,
            recoveries: 0,
        };
        match config.part {
            Part::Receiver { open, work } => {
                node.stage = Stage::Waiting(open);
                node.counter = work;
            }
            Part::Source { manifest, source } => {
                node.have = BlockSet::full(manifest.blocks());
                node.have_bytes = manifest.size().0;
                let io = SourceIo {
                    manifest: manifest.clone(),
                    source,
                };
                node.open_object(Arc::new(io), &manifest);
                node.lens = Some(manifest);
            }
        }
        if node.config.fetches_manifest {
            node.mesh.open(MANIFEST, node.manifest.clone());
        }
        node
    }

    /// Plays the node's part until the coordinator ends it, or is lost and nothing moves any more.
    pub(crate) async fn run(
        mut self,
        mut orders: mpsc::Receiver<Order>,
        mut events: Events,
    ) -> Outcome {
        self.advance(MANIFEST);
        let mut beat = tokio::time::interval(REPORT);
        beat.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let outcome = loop {
            let wake = self.clock.instant(self.next_timer());
            tokio::select! {
                order = orders.recv(), if !self.orphaned => match order {
                    Some(Order::Finish) => break Outcome::Finished,
                    Some(order) => self.on_order(order),
                    None => {
                        self.orphaned = true;
                        self.moved = self.clock.now();
                    }
                },
                event = events.recv() => match event {
                    Some(event) => self.on_event(event),
                    None => break Outcome::Finished,
                },
                () = tokio::time::sleep_until(wake) => {}
                done = async { self.work.as_mut().expect("guarded").await }, if self.work.is_some() => {
                    self.work = None;
                    self.on_done(done.unwrap_or_else(|panic| Done::Broken(panic.to_string())));
                }
                _ = beat.tick() => self.beat(),
            }
            self.fire();
            self.pass_on_accusations();
            self.open_again();
            let idle = self.clock.now().since(self.moved);
            if self.orphaned && self.work.is_none() && idle >= ORPHAN_PATIENCE {
                let (have, blocks) = (self.have.count(), self.have.len());
                break Outcome::Orphaned { have, blocks };
            }
        };
        let done = match self.work.take() {
            // Half-done work on the destination would outlive us; it is short or can be resumed.
            Some(work) => work.await.ok(),
            None => None,
        };
        self.mesh.shutdown().await;
        let rest = (done, self.stage, self.destination);
        let _ = tokio::task::spawn_blocking(move || drop(rest)).await;
        outcome
    }

    /// How long the disk of a receiver may still take until it counts as hung; `None` if nothing
    /// waits for it. Who waits for a source has nobody to turn to.
    fn until_hung(&self) -> Option<Duration> {
        let receives = matches!(self.stage, Stage::Moving(_));
        receives.then(|| self.disk.until_hung()).flatten()
    }

    /// When to look at the protocols' timers, and at the disk.
    fn next_timer(&self) -> Time {
        let timers = self.engines.iter().flatten().filter_map(Engine::next_timer);
        let later = self.clock.now() + REPORT;
        let next = timers.min().unwrap_or(later);
        match self.until_hung() {
            None => next,
            // Due ones wait until the disk is back.
            Some(Duration::ZERO) => later,
            Some(left) => next.min(self.clock.now() + left),
        }
    }

    /// Fires what is due, unless the disk hangs: then the node has nothing to give, can take
    /// nothing, and is silent towards its peers as if it had stopped.
    fn fire(&mut self) {
        if self.until_hung() == Some(Duration::ZERO) {
            return self.step_aside();
        }
        self.stepped_aside = false;
        for engine in self.engines.iter_mut().flatten() {
            engine.fire(&self.mesh);
        }
    }

    /// Lets those go who may wait for what the disk does not give; once while it hangs.
    fn step_aside(&mut self) {
        if std::mem::replace(&mut self.stepped_aside, true) {
            return;
        }
        let now = self.clock.now();
        for (peer, at) in std::mem::take(&mut self.served) {
            if now.since(at) < SERVED {
                self.mesh.disconnect(peer);
            }
        }
    }

    fn report(&self, report: Report) {
        // The channel is bounded; if its end does not keep up, later reports say the same.
        let _ = self.reports.try_send(report);
    }

    // ---- orders

    fn on_order(&mut self, order: Order) {
        match order {
            Order::Begin { contacts } => {
                contacts
                    .into_iter()
                    .for_each(|(node, contact)| self.meet(node, contact));
                self.begun = true;
                if self.config.fetches_manifest {
                    let have = self.manifest.have();
                    self.start(MANIFEST, have, self.manifest.block_bytes());
                }
                self.start_object();
            }
            Order::Met { node, contact } => self.meet(node, contact),
            Order::Left { node } => self.part_from(node),
            Order::Census => self.report(Report::Held {
                blocks: self.have.len(),
                held: self.have.to_wire(),
            }),
            Order::Dial { node } => self.mesh.dial_now(node),
            Order::Finish => {}
        }
    }

    /// A member is out for good, whoever says so: in every transfer, and in those yet to start.
    fn part_from(&mut self, node: NodeId) {
        if node.0 < self.left.len() && self.left.insert(node.0) {
            self.mesh.remove_member(node);
            self.each_engine(Event::Left(node));
        }
    }

    fn meet(&self, node: NodeId, contact: Contact) {
        if node != self.config.me && node.index() < self.config.terms.members.len() {
            let member = outpour_net::Member {
                addrs: contact.addrs,
                certificate: contact.certificate,
            };
            self.mesh.set_member(node, member);
        }
    }

    /// Starts the object's transfer once the start is given and the manifest is known.
    fn start_object(&mut self) {
        if self.begun
            && let Some(manifest) = self.lens.clone()
        {
            self.start(OBJECT, self.have.clone(), manifest.block_bytes());
        }
    }

    fn start(&mut self, transfer: u8, have: BlockSet, block_bytes: u32) {
        let slot = usize::from(transfer);
        if self.engines[slot].is_some() || self.verdict_is_failure() {
            return;
        }
        let (terms, batches) = (&self.config.terms, self.batches(transfer));
        let setup = terms.setup(self.config.me, have, block_bytes, batches);
        let protocol = terms.protocol.build(setup);
        let mut engine = Engine::new(transfer, protocol, self.clock);
        engine.handle(&self.mesh, Event::Start);
        for node in self.left.iter() {
            engine.handle(&self.mesh, Event::Left(NodeId(node)));
        }
        self.engines[slot] = Some(engine);
    }

    const fn verdict_is_failure(&self) -> bool {
        matches!(self.verdict, Some(Report::Failed { .. }))
    }

    fn each_engine(&mut self, event: Event<'_>) {
        for engine in self.engines.iter_mut().flatten() {
            engine.handle(&self.mesh, event);
        }
    }

    fn pass_on_accusations(&mut self) {
        let accusations: Vec<_> = self
            .engines
            .iter_mut()
            .flatten()
            .flat_map(Engine::accusations)
            .collect();
        for (peer, offence) in accusations {
            self.part_from(peer);
            self.report(Report::Accuse {
                peer,
                offence: offence.to_owned(),
            });
        }
    }

    /// Opens links again that one transfer closed and another wants.
    fn open_again(&mut self) {
        let closed: Vec<NodeId> = (self.engines.iter_mut().flatten())
            .flat_map(Engine::closed)
            .collect();
        for peer in closed {
            if self.engines.iter().flatten().any(|it| it.wants(peer)) {
                self.mesh.connect(peer);
            }
        }
    }

    // ---- the data plane

    fn on_event(&mut self, event: MeshEvent) {
        match event {
            MeshEvent::PeerUp { transfer, peer } => self.pass(transfer, Event::PeerUp(peer)),
            MeshEvent::PeerDown { transfer, peer } => self.pass(transfer, Event::PeerDown(peer)),
            MeshEvent::Message {
                transfer,
                from,
                body,
            } => {
                if let Some(coded) = self.coded.as_mut().filter(|_| transfer == OBJECT) {
                    coded.note_message(body.len());
                }
                self.pass(transfer, Event::Message { from, body: &body });
            }
            MeshEvent::Arrived {
                transfer,
                from,
                block,
                fresh,
            } => {
                self.on_arrival(transfer, block, fresh);
                self.pass(transfer, Event::Arrived { from, block, fresh });
                if fresh {
                    self.advance(transfer);
                }
            }
            MeshEvent::Rejected {
                transfer,
                from,
                block,
            } => {
                let offence = format!("sent wrong bytes for block {block}");
                self.reject(transfer, from, block, offence);
            }
            MeshEvent::Coded {
                transfer,
                from,
                batch,
                news,
            } => self.on_coded(transfer, from, batch, news),
            MeshEvent::RejectedPacket {
                transfer,
                from,
                batch,
            } => {
                let offence = format!("sent what cannot be a packet of batch {batch}");
                let block = self.first_block(transfer, batch);
                self.reject(transfer, from, block, offence);
            }
            MeshEvent::PacketSent {
                transfer,
                to,
                batch,
            } => {
                self.note_sent(to);
                self.pass(transfer, Event::Coded(Coded::Sent { to, batch }));
            }
            MeshEvent::Sent {
                transfer,
                to,
                block,
            } => {
                self.note_sent(to);
                self.pass(transfer, Event::Sent { to, block });
            }
            MeshEvent::Unreachable { peer, why } => {
                self.report(Report::Unreachable { peer, error: why });
            }
            MeshEvent::StoreFailed { error, .. } | MeshEvent::ReadFailed { error, .. } => {
                self.on_trouble(error);
            }
        }
    }

    fn note_sent(&mut self, to: NodeId) {
        self.moved = self.clock.now();
        self.served.insert(to, self.moved);
    }

    /// A peer sent wrong bytes, and the data plane has cut it off.
    fn reject(&mut self, transfer: u8, from: NodeId, block: BlockId, offence: String) {
        self.pass(transfer, Event::Rejected { from, block });
        self.part_from(from);
        self.report(Report::Accuse {
            peer: from,
            offence,
        });
    }

    fn pass(&mut self, transfer: u8, event: Event<'_>) {
        if let Some(Some(engine)) = self.engines.get_mut(usize::from(transfer)) {
            engine.handle(&self.mesh, event);
        }
    }

    fn on_arrival(&mut self, transfer: u8, block: u32, fresh: bool) {
        self.moved = self.clock.now();
        if transfer != OBJECT {
            return;
        }
        let len = self
            .lens
            .as_ref()
            .map_or(0, |manifest| u64::from(manifest.block_len(block)));
        self.received_bytes += len;
        if fresh && self.have.insert(block) {
            self.have_bytes += len;
        }
    }

    /// Makes the object known to the peers, coded if it is to be.
    fn open_object(&mut self, io: Arc<dyn BlockIo>, manifest: &Manifest) {
        let disk = self.disk.clone();
        let io: Arc<dyn BlockIo> = Arc::new(Watched { io, disk });
        match CodedPart::new(&self.config.terms, io, manifest, &self.have) {
            Ok((part, io)) => {
                let io = match &self.config.wrap {
                    Some(wrap) => wrap.around(io),
                    None => io,
                };
                self.mesh.open(OBJECT, io);
                self.coded = part;
            }
            Err(error) => self.fail(error),
        }
    }

    // ---- stages

    /// Goes on to the next stage if a transfer has become complete.
    fn advance(&mut self, transfer: u8) {
        if transfer == MANIFEST {
            if let Some(encoded) = self.manifest.bytes() {
                self.open_destination(&encoded);
            }
        } else if self.have.is_full() {
            self.place();
        }
    }

    fn open_destination(&mut self, encoded: &[u8]) {
        if !matches!(self.stage, Stage::Waiting(_)) {
            return;
        }
        let Stage::Waiting(open) = std::mem::replace(&mut self.stage, Stage::Opening) else {
            return;
        };
        self.report(Report::Preparing);
        match Manifest::decode(encoded) {
            Err(error) => self.fail(format!("the manifest is refused: {error}")),
            Ok(manifest) => {
                let (blocks, block_bytes) = (manifest.blocks(), manifest.block_bytes());
                if let Err(error) = self.config.terms.batches(blocks, block_bytes) {
                    return self.fail(error.to_string());
                }
                let manifest = Arc::new(manifest);
                self.work = Some(tokio::task::spawn_blocking(move || {
                    let opened = open(manifest.clone());
                    Done::Opened(opened.map(|destination| (manifest, destination)))
                }));
            }
        }
    }

    fn on_done(&mut self, done: Done) {
        match done {
            Done::Opened(Err(error)) | Done::Broken(error) => self.fail(error),
            Done::Placed(Err(error)) => self.pause_or_fail(error),
            Done::Recovered(recovered) => self.on_recovered(recovered),
            Done::Opened(Ok((manifest, destination))) => {
                let destination = Arc::new(destination);
                let io = Arc::new(DestinationIo::new(manifest.clone(), destination));
                self.take_stock(&io, &manifest);
                self.report(Report::Prepared {
                    have_bytes: self.have_bytes,
                });
                self.destination = Some(io.destination().clone());
                self.stage = Stage::Moving(io.clone());
                self.open_object(io, &manifest);
                self.lens = Some(manifest);
                self.start_object();
                self.advance(OBJECT);
            }
            Done::Placed(Ok(())) => {
                self.conclude(Report::Complete {
                    received_bytes: self.received_bytes(),
                });
            }
        }
    }

    /// Notes what is here.
    fn take_stock(&mut self, io: &DestinationIo, manifest: &Manifest) {
        self.have = io.have();
        let lens = self.have.iter();
        let lens = lens.map(|block| u64::from(manifest.block_len(block)));
        self.have_bytes = lens.sum();
    }

    /// Everything is verified: puts the files in place.
    fn place(&mut self) {
        if let Stage::Moving(io) = &self.stage
            && self.work.is_none()
            && self.verdict.is_none()
        {
            let destination = io.destination().clone();
            self.report(Report::Finishing);
            self.counted = self.counter.done();
            self.work = Some(tokio::task::spawn_blocking(move || {
                Done::Placed(destination.finish())
            }));
        }
    }

    fn fail(&mut self, error: String) {
        self.stage = Stage::Settled;
        self.engines = [None, None];
        self.conclude(Report::Failed { error });
    }

    fn conclude(&mut self, verdict: Report) {
        self.report_coding();
        self.report(verdict.clone());
        self.verdict = Some(verdict);
    }

    /// What the disk does for the stage the node is in.
    fn disk(&self) -> coordinator::Disk {
        if self.work.is_none() {
            return self.disk.report();
        }
        // What is read for others meanwhile is not what this node waits for.
        coordinator::Disk {
            waiting: true,
            done: self.counter.done().saturating_sub(self.counted),
        }
    }

    fn beat(&mut self) {
        self.retry();
        let have_bytes = self.have_bytes + self.pending_bytes();
        let received_bytes = self.received_bytes();
        self.report_coding();
        let progress = Report::Progress {
            have_bytes,
            received_bytes,
            disk: self.disk(),
        };
        self.report(self.verdict.clone().unwrap_or(progress));
    }
}
