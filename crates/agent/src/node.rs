//! One node of a cast from its start to its end, on real sockets and files.
//!
//! What a node does when is decided by the state machine in [`outpour_protocols::node`]. This drives
//! it: it passes on inputs from the coordinator, the session, the clock and the disk, and carries out
//! its outputs.

mod coded;
#[cfg(test)]
mod conformance;

use std::sync::Arc;
use std::time::Duration;

use outpour_core::blocks::Want;
use outpour_core::manifest::Manifest;
use outpour_core::{BlockSet, NodeId, Time};
use outpour_net::{BlockIo, Events, KeyDigest, PacketNews, Session, SessionEvent};
use outpour_protocols::coordinator::{self, Given, Report};
use outpour_protocols::node::{
    BatchNews, Config, Input, Measures, Node as Machine, Object, Output, Transfer, Trouble,
};
use outpour_protocols::{Coded, Event};
use outpour_store::{Destination, Error, NotKept, Source, Work};
use outpour_terms::Terms;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use crate::budget::Memory;
use crate::clock::Clock;
use crate::content::{Blob, DestinationIo, SourceIo};
use crate::disk::{Disk, Watched};
use crate::mailbox;
use crate::session::needs;
use crate::wrap::Wrap;
use coded::CodedPart;

pub(crate) use outpour_protocols::node::Outcome;

/// How often a node gives a sign of life, and protocols hear what the peers achieve whose rates they
/// have set.
const REPORT: Duration = Duration::from_millis(500);

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
    /// Which blocks of the object it is to get.
    pub(crate) want: Want,
    pub(crate) terms: Arc<Terms>,
    pub(crate) manifest: Blob,
    /// Whether the manifest is cast before the object; otherwise every node has it already.
    pub(crate) fetches_manifest: bool,
    pub(crate) part: Part,
    /// What stands between the object and the data plane.
    pub(crate) wrap: Option<Wrap>,
    /// What it has of a service's memory.
    pub(crate) memory: Memory,
}

/// What came of work on the destination.
enum Done {
    Opened(Result<(Arc<Manifest>, Destination), String>),
    Placed(Result<(), Error>),
    Recovered(Result<(), Error>),
}

/// The object where it is.
#[derive(Clone)]
enum Place {
    Source(Arc<SourceIo>),
    Destination(Arc<DestinationIo>),
}

/// One node of a cast.
pub(crate) struct Node {
    machine: Machine,
    session: Session,
    reports: mailbox::Sender<Report>,
    clock: Clock,
    terms: Arc<Terms>,
    wrap: Option<Wrap>,
    manifest: Arc<Blob>,
    /// Opens the destination, until that is done.
    open: Option<Open>,
    object: Option<(Arc<Manifest>, Place)>,
    coded: Option<CodedPart>,
    work: Option<JoinHandle<Done>>,
    /// Counts what such work has done, and what it had when it began.
    counter: Arc<Work>,
    counted: u64,
    /// The disk beneath the object.
    disk: Arc<Disk>,
    hung: bool,
    /// What was last wrong with the destination, a full disk and all else, for the store to know
    /// what it recovers from.
    full: Option<Error>,
    failed: Option<Error>,
    memory: Memory,
    /// How the node's part ended, once it has.
    outcome: Option<Outcome>,
}

impl Node {
    pub(crate) fn new(
        config: NodeConfig,
        session: Session,
        reports: mailbox::Sender<Report>,
    ) -> Self {
        let (terms, manifest) = (config.terms, Arc::new(config.manifest));
        let (mut open, mut counter, mut object) = (None, Arc::default(), None);
        match config.part {
            Part::Receiver { open: it, work } => (open, counter) = (Some(it), work),
            Part::Source { manifest, source } => {
                let io = SourceIo {
                    manifest: manifest.clone(),
                    source,
                };
                object = Some((manifest, Place::Source(Arc::new(io))));
            }
        }
        let cast = config.fetches_manifest.then(|| &*manifest);
        let source = object.as_ref().map(|(manifest, _)| manifest);
        let machine = machine(config.me, config.want, &terms, cast, source);
        Self {
            machine,
            session,
            reports,
            clock: Clock::start(),
            terms,
            wrap: config.wrap,
            manifest,
            open,
            object,
            coded: None,
            work: None,
            counter,
            counted: 0,
            disk: Arc::default(),
            hung: false,
            full: None,
            failed: None,
            memory: config.memory,
            outcome: None,
        }
    }

    /// Plays the node's part until the coordinator ends it, or is lost and nothing moves any more.
    pub(crate) async fn run(
        mut self,
        mut orders: mpsc::Receiver<Given>,
        mut events: Events,
    ) -> Outcome {
        let (mut orphaned, mut ends) = (false, false);
        let mut beat = tokio::time::interval(REPORT);
        beat.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        self.tell(Input::Start);
        while self.outcome.is_none() && !ends {
            let wake = self.clock.instant(self.wake_at());
            tokio::select! {
                order = orders.recv(), if !orphaned => match order {
                    Some(Given { stamp, order }) => {
                        self.tell(Input::Order(Box::new(order)));
                        self.reports.send(Report::Acted(stamp));
                    }
                    None => {
                        orphaned = true;
                        self.tell(Input::Orphaned);
                    }
                },
                event = events.recv() => match event {
                    Some(event) => self.on_event(event),
                    None => ends = true,
                },
                () = tokio::time::sleep_until(wake) => {}
                done = async { self.work.as_mut().expect("guarded").await }, if self.work.is_some() => {
                    self.work = None;
                    match done {
                        Ok(done) => self.on_done(done),
                        Err(panic) => self.tell(Input::Broken(panic.to_string())),
                    }
                }
                _ = beat.tick() => {
                    self.tell(Input::Beat(&self.measures()));
                    self.tell_achieved();
                }
            }
            self.watch_disk();
            self.tell(Input::Woken);
        }
        self.leave().await
    }

    /// Ends what is under way.
    async fn leave(mut self) -> Outcome {
        let done = match self.work.take() {
            // Half-done work on the destination would outlive us; it is short or can be resumed.
            Some(work) => work.await.ok(),
            None => None,
        };
        self.session.shutdown().await;
        // No network thread lets go of the destination last: that waits for the disk.
        let rest = (done, self.object, self.open);
        let _ = tokio::task::spawn_blocking(move || drop(rest)).await;
        self.outcome.unwrap_or(Outcome::Finished)
    }

    /// How long the disk of a receiver may still take until it counts as hung; `None` if nothing
    /// waits for it.
    fn until_hung(&self) -> Option<Duration> {
        match &self.object {
            Some((_, Place::Destination(_))) => self.disk.until_hung(),
            _ => None,
        }
    }

    /// When to look at the machine's timers, and at the disk.
    fn wake_at(&self) -> Time {
        let now = self.clock.now();
        let later = now + REPORT;
        let wake = self.machine.wake_at().unwrap_or(later).min(later);
        match self.until_hung() {
            Some(left) if !left.is_zero() => wake.min(now + left),
            _ => wake,
        }
    }

    fn watch_disk(&mut self) {
        let hung = self.until_hung() == Some(Duration::ZERO);
        let changed = std::mem::replace(&mut self.hung, hung) != hung;
        // Said as long as it lasts: the node may only just have begun to wait for its disk.
        if changed || hung {
            self.tell(Input::Hung(hung));
        }
    }

    // ---- what happens

    /// Tells the machine what happened, and does what it wants.
    fn tell(&mut self, input: Input<'_>) {
        let mut outputs = Vec::new();
        self.machine.handle(self.clock.now(), input, &mut outputs);
        for output in outputs {
            self.perform(output);
        }
    }

    /// Says what peers achieve towards which a rate is set.
    fn tell_achieved(&mut self) {
        for peer in self.machine.limited() {
            let rate = self.session.achieved(peer).outgoing;
            self.tell(Input::Achieved(peer, rate));
        }
    }

    fn on_event(&mut self, event: SessionEvent) {
        let link = |this: &mut Self, transfer, event: Event<'_>| {
            if let Some(transfer) = transfer_of(transfer) {
                this.tell(Input::Link(transfer, event));
            }
        };
        match event {
            SessionEvent::PeerUp { transfer, peer } => link(self, transfer, Event::PeerUp(peer)),
            SessionEvent::PeerDown { transfer, peer } => {
                link(self, transfer, Event::PeerDown(peer))
            }
            SessionEvent::Message {
                transfer,
                from,
                body,
            } => link(self, transfer, Event::Message { from, body: &body }),
            SessionEvent::Arrived {
                transfer,
                from,
                block,
                fresh,
            } => link(self, transfer, Event::Arrived { from, block, fresh }),
            SessionEvent::Rejected {
                transfer,
                from,
                block,
            } => link(self, transfer, Event::Rejected { from, block }),
            SessionEvent::Sent {
                transfer,
                to,
                block,
            } => link(self, transfer, Event::Sent { to, block }),
            SessionEvent::PacketSent {
                transfer,
                to,
                batch,
            } => link(self, transfer, Event::Coded(Coded::Sent { to, batch })),
            SessionEvent::Coded {
                from, batch, news, ..
            } => self.on_news(from, batch, news),
            SessionEvent::RejectedPacket { from, batch, .. } => {
                let news = BatchNews::Impossible;
                self.tell(Input::Batch { from, batch, news });
            }
            SessionEvent::CutOff { peer, why } => {
                tracing::debug!(%peer, why, "cut off");
            }
            SessionEvent::Unreachable { peer, why } => self.tell(Input::Unreachable(peer, why)),
            SessionEvent::StoreFailed { error, .. } | SessionEvent::ReadFailed { error, .. } => {
                self.on_trouble(error);
            }
        }
    }

    fn on_news(&mut self, from: NodeId, batch: outpour_core::BatchId, news: PacketNews) {
        let news = match &news {
            PacketNews::Taken { worth, holding } => BatchNews::Taken(*worth, *holding),
            PacketNews::Dropped => BatchNews::Dropped,
            PacketNews::Whole { fresh, wrong } => BatchNews::Whole { fresh, wrong },
            PacketNews::Spoiled { fresh } => BatchNews::Spoiled { fresh },
            // The data plane has made a rejection of the one.
            PacketNews::Wrong => return,
            PacketNews::Failed(error) => return self.on_trouble(error.clone()),
        };
        self.tell(Input::Batch { from, batch, news });
    }

    /// A block could not be stored or read.
    fn on_trouble(&mut self, error: String) {
        let trouble = match &self.object {
            Some((_, Place::Destination(io))) => io.take_trouble(),
            _ => None,
        };
        let trouble = trouble.map(|error| self.note(error));
        self.tell(Input::Failed(error, trouble));
    }

    /// Keeps what is wrong with the destination.
    fn note(&mut self, error: Error) -> Trouble {
        let full = error.lacks_room();
        let trouble = Trouble {
            why: error.to_string(),
            full,
            passes: error.may_pass(),
        };
        let kept = if full {
            &mut self.full
        } else {
            &mut self.failed
        };
        *kept = Some(error);
        trouble
    }

    fn on_done(&mut self, done: Done) {
        match done {
            Done::Opened(Err(error)) => self.tell(Input::Opened(Err(error))),
            Done::Opened(Ok((manifest, destination))) => self.on_opened(manifest, destination),
            Done::Placed(placed) => {
                if placed.is_ok() {
                    self.report_not_kept();
                }
                let placed = placed.map_err(|error| self.note(error));
                self.tell(Input::Finished(placed, &self.measures()));
            }
            Done::Recovered(recovered) => {
                let here = self.object.as_ref().and_then(|(_, place)| match place {
                    Place::Destination(io) => Some(io.clone()),
                    Place::Source(_) => None,
                });
                let (Some(io), Ok(())) = (here, &recovered) else {
                    let error = recovered.map_err(|error| self.note(error));
                    let none = BlockSet::new(0);
                    return self.tell(Input::Recovered(error.map(|()| none)));
                };
                io.refresh();
                // What happened meanwhile is over.
                let _ = io.take_trouble();
                self.tell(Input::Recovered(Ok(io.have())));
            }
        }
    }

    /// Says what the destination could not keep, before it is said that it is complete.
    fn report_not_kept(&self) {
        let Some((_, Place::Destination(io))) = &self.object else {
            return;
        };
        for NotKept {
            what,
            entries,
            example,
        } in io.destination().not_kept()
        {
            self.reports.send(Report::NotKept {
                what,
                entries,
                example,
            });
        }
    }

    fn on_opened(&mut self, manifest: Arc<Manifest>, destination: Destination) {
        let batches = self.batches(&manifest);
        let io = DestinationIo::new(manifest.clone(), Arc::new(destination));
        let have = io.have();
        let opened = batches.map(|batches| Box::new(described(&manifest, have, batches)));
        self.object = Some((manifest, Place::Destination(Arc::new(io))));
        self.tell(Input::Opened(opened));
    }

    /// How the object's blocks are grouped, if it is coded; why it cannot be, in one line.
    fn batches(&self, manifest: &Manifest) -> Result<Option<outpour_core::Batches>, String> {
        let batches = self
            .terms
            .batches(manifest.blocks(), manifest.block_bytes());
        batches.map_err(|error| error.to_string())
    }

    // ---- what is to be done

    fn perform(&mut self, output: Output) {
        match output {
            Output::Connect(peer) => self.session.connect(peer),
            Output::Disconnect(peer) => self.session.disconnect(peer),
            Output::Remove(peer) => self.session.remove_member(peer),
            Output::Dial(peer) => self.session.dial_now(peer),
            Output::Meet(node, contact) => {
                let member = outpour_net::Member {
                    addrs: contact.addrs,
                    key: KeyDigest(contact.key),
                };
                self.session.set_member(node, member);
            }
            Output::Send(transfer, to, body) => self.session.send(transfer.number(), to, body),
            Output::SendBlock(transfer, to, block) => {
                self.session.send_block(transfer.number(), to, block);
            }
            Output::SendPacket { to, batch, pure } => {
                let transfer = Transfer::Object.number();
                self.session.send_packet(transfer, to, batch, pure);
            }
            Output::SetRate(peer, rate) => self.session.set_peer_rate(peer, rate),
            Output::Open(Transfer::Manifest) => {
                let (transfer, blob) = (Transfer::Manifest.number(), self.manifest.clone());
                self.session.open(transfer, blob);
            }
            Output::Open(Transfer::Object) => self.open_object(),
            Output::Close(transfer) => {
                if transfer == Transfer::Object {
                    self.coded = None;
                }
                self.session.close(transfer.number());
            }
            Output::OpenDestination => self.open_destination(),
            Output::Finish => self.work(|io, _| Done::Placed(io.destination().finish())),
            Output::Recover { rereads } => self.work(move |io, errors| {
                let error = if rereads { errors.1 } else { errors.0 };
                Done::Recovered(error.map_or(Ok(()), |error| io.destination().recover(&error)))
            }),
            Output::Report(report) => self.reports.send(*report),
            Output::End(outcome) => self.outcome = Some(outcome),
        }
    }

    /// Does work on the destination on a thread that may block.
    fn work(
        &mut self,
        work: impl FnOnce(&DestinationIo, (Option<Error>, Option<Error>)) -> Done + Send + 'static,
    ) {
        let Some((_, Place::Destination(io))) = &self.object else {
            return;
        };
        let (io, errors) = (io.clone(), (self.full.clone(), self.failed.clone()));
        self.counted = self.counter.done();
        self.work = Some(tokio::task::spawn_blocking(move || work(&io, errors)));
    }

    fn open_destination(&mut self) {
        let decoded = self
            .decode()
            .and_then(|manifest| self.batches(&manifest).map(|_| Arc::new(manifest)));
        match (decoded, self.open.take()) {
            (Ok(manifest), Some(open)) => {
                self.work = Some(tokio::task::spawn_blocking(move || {
                    let opened = open(manifest.clone());
                    Done::Opened(opened.map(|destination| (manifest, destination)))
                }));
            }
            (Err(error), _) => self.tell(Input::Opened(Err(error))),
            (Ok(_), None) => debug_assert!(false, "a destination is opened once"),
        }
    }

    /// Reads the manifest, if there is memory for it and for what it describes.
    fn decode(&mut self) -> Result<Manifest, String> {
        let (memory, manifest) = (&mut self.memory, &self.manifest);
        let (mut encoded, mut decoded) = (0, 0);
        let read = manifest.decode(|bytes| {
            encoded = bytes.len() as u64;
            decoded = Manifest::memory(bytes).0;
            let needs = needs::PART + encoded + decoded;
            memory.grow_to(needs).map_err(|error| error.to_string())
        })?;
        let needs = needs::known(&read, encoded, decoded, &self.terms);
        self.memory
            .grow_to(needs)
            .map_err(|error| error.to_string())?;
        self.memory.shrink_to(needs);
        Ok(read)
    }

    /// Makes the object known to the peers, coded if it is to be.
    fn open_object(&mut self) {
        let Some((manifest, place)) = &self.object else {
            return;
        };
        let (io, have): (Arc<dyn BlockIo>, _) = match place {
            Place::Source(io) => (io.clone(), BlockSet::full(manifest.blocks())),
            Place::Destination(io) => (io.clone(), io.have()),
        };
        let disk = self.disk.clone();
        let io: Arc<dyn BlockIo> = Arc::new(Watched { io, disk });
        match CodedPart::new(&self.terms, io, manifest, &have) {
            Ok((part, io)) => {
                let io = match &self.wrap {
                    Some(wrap) => wrap.around(io),
                    None => io,
                };
                self.session.open(Transfer::Object.number(), io);
                self.coded = part;
            }
            Err(error) => self.tell(Input::Broken(error)),
        }
    }

    // ---- what is measured

    fn measures(&self) -> Measures {
        let stats = self.session.stats();
        let coded = self.coded.as_ref();
        Measures {
            disk: self.disk(),
            coding: coded.map(|it| (stats.payload_in, it.counts(stats.packets_in))),
        }
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
}

/// What decides for a node under these terms, with the manifest that is cast, if it is, and that of
/// the object that it has, if it is a source.
fn machine(
    me: NodeId,
    want: Want,
    terms: &Arc<Terms>,
    cast: Option<&Blob>,
    source: Option<&Arc<Manifest>>,
) -> Machine {
    let agreed = terms.clone();
    let build = move |have, want, block_bytes, batches| {
        let setup = agreed.setup(me, have, want, block_bytes, batches);
        agreed.protocol.build(setup)
    };
    let object = source.map(|manifest| {
        // That its terms can be kept was found when they were made.
        let batches = terms.batches(manifest.blocks(), manifest.block_bytes());
        let have = BlockSet::full(manifest.blocks());
        described(manifest, have, batches.ok().flatten())
    });
    Machine::new(Config {
        me,
        members: terms.members.len() as u32,
        build: Box::new(build),
        manifest: cast.map(|blob| (blob.have(), blob.block_bytes())),
        object,
        want,
    })
}

fn transfer_of(number: u8) -> Option<Transfer> {
    let mut all = Transfer::ALL.into_iter();
    all.find(|transfer| transfer.number() == number)
}

/// An object with these blocks, as the machine sees it.
fn described(
    manifest: &Arc<Manifest>,
    have: BlockSet,
    batches: Option<outpour_core::Batches>,
) -> Object {
    let lens = manifest.clone();
    Object {
        have,
        block_bytes: manifest.block_bytes(),
        size_bytes: manifest.size().0,
        batches,
        block_len: Arc::new(move |block| lens.block_len(block)),
    }
}
