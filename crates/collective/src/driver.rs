//! The task behind a group: drives its series on the session, and answers the calls.

use std::sync::Arc;
use std::time::{Duration, Instant};

use outpour_core::{NodeId, Time};
use outpour_net::{Events, MESSAGE_BYTES_MAX, Session, SessionEvent};
use outpour_protocols::rates::Rates;
use outpour_protocols::robber;
use outpour_protocols::series::{BeginError, Effect, Multicast, Series, Signal};
use tokio::sync::{mpsc, oneshot};

use crate::GroupError;
use crate::store::{Store, Stores, cut, is_sound};
use crate::track::{Blocks, Track};
use crate::wire::{Note, Stripe};

/// The only transfer of the session.
const TRANSFER: u8 = 0;
/// Seed of the choice of peers; the same on all members.
const SEED: u64 = 1;
/// How long the driver sleeps if nothing is due.
const IDLE: Duration = Duration::from_secs(1);
/// How often it is told what peers achieve towards which a rate is set.
const ACHIEVED: Duration = Duration::from_millis(500);
/// How many flushed operations keep their blocks, for requests that are still under way.
const LINGER: u32 = 2;

const LEFT: &str = "it has left the group";

/// What is given in an operation, and by which member.
pub(crate) enum Gift {
    /// All members give; this is what this member does.
    All(Vec<u8>),
    /// One gives.
    One { root: NodeId, data: Option<Vec<u8>> },
}

/// What every owner gave.
pub(crate) type Given = Vec<(NodeId, Vec<u8>)>;

/// What a group asks its driver for.
pub(crate) enum Command {
    Give {
        gift: Gift,
        answer: oneshot::Sender<Result<Given, GroupError>>,
    },
    Leave {
        answer: oneshot::Sender<Result<(), GroupError>>,
    },
}

/// What a driver is made of.
pub(crate) struct DriverConfig {
    pub(crate) me: NodeId,
    /// The cluster of each member, numbered from 0.
    pub(crate) clusters: Vec<u32>,
    pub(crate) patience: Duration,
    pub(crate) session: Session,
    /// Answered when all members are connected.
    pub(crate) ready: oneshot::Sender<Result<(), GroupError>>,
}

/// What is known of a member.
#[derive(Clone, Debug, Default)]
struct Peer {
    up: bool,
    /// Since when it has been unreachable.
    down_since: Option<Instant>,
    /// It said that it leaves.
    bye: bool,
    /// What attempts to reach it come to.
    why: Option<String>,
}

/// One track's part in the call under way.
struct Part {
    track: u16,
    operation: u32,
    owners: Vec<NodeId>,
    /// What this member gives, until the operation begins.
    blocks: Option<Blocks>,
    begun: bool,
    received: bool,
}

/// The call under way.
struct Call {
    parts: Vec<Part>,
    answer: oneshot::Sender<Result<Given, GroupError>>,
}

pub(crate) struct Driver {
    me: NodeId,
    clusters: Vec<u32>,
    patience: Duration,
    session: Session,
    stores: Arc<Stores>,
    tracks: Vec<Track>,
    /// What the tracks want of rates: they share links, so the lowest applies.
    rates: Rates,
    /// When the tracks are next told what their rates achieve.
    achieved_at: Instant,
    peers: Vec<Peer>,
    origin: Instant,
    ready: Option<oneshot::Sender<Result<(), GroupError>>>,
    call: Option<Call>,
    leaving: Option<oneshot::Sender<Result<(), GroupError>>>,
    said_bye: bool,
    failed: Option<GroupError>,
    effects: Vec<(usize, Effect)>,
    /// An operation was flushed, so another may begin.
    caught_up: bool,
}

impl Driver {
    pub(crate) fn new(config: DriverConfig) -> Self {
        let clusters = config.clusters;
        // A track per cluster, and one for multicasts from single members.
        let count = clusters.iter().max().map_or(0, |most| most + 1) + 1;
        let track = |number: u32| {
            let seed = SEED + u64::from(number);
            Track::new(Series::new(
                robber::ENTRY.by_default(),
                config.me,
                clusters.clone(),
                seed,
            ))
        };
        let tracks: Vec<Track> = (0..count).map(track).collect();
        let stores = Arc::new(Stores::new(tracks.len()));
        config.session.open(TRANSFER, stores.clone());
        let origin = Instant::now();
        let mut peers = vec![Peer::default(); clusters.len()];
        for (node, peer) in (0..).map(NodeId).zip(&mut peers) {
            if node != config.me {
                peer.down_since = Some(origin);
            }
            // One of the two dials.
            if node < config.me {
                config.session.connect(node);
            }
        }
        Self {
            me: config.me,
            clusters,
            patience: config.patience,
            session: config.session,
            stores,
            tracks,
            rates: Rates::default(),
            achieved_at: origin + ACHIEVED,
            peers,
            origin,
            ready: Some(config.ready),
            call: None,
            leaving: None,
            said_bye: false,
            failed: None,
            effects: Vec::new(),
            caught_up: false,
        }
    }

    /// Serves until the group is left or let go of.
    pub(crate) async fn run(mut self, mut orders: mpsc::Receiver<Command>, mut events: Events) {
        self.look_around();
        loop {
            let wake = tokio::time::Instant::from_std(self.next_wake());
            tokio::select! {
                order = orders.recv(), if self.leaving.is_none() => match order {
                    Some(Command::Give { gift, answer }) => self.give(gift, answer),
                    Some(Command::Leave { answer }) => self.leaving = Some(answer),
                    // The group was dropped: the program wants nothing here any more.
                    None => break,
                },
                event = events.recv() => match event {
                    Some(event) => self.on_event(event),
                    None => break,
                },
                () = tokio::time::sleep_until(wake) => {}
            }
            self.fire();
            self.tell_achieved();
            self.look_around();
            if self.has_left() {
                break;
            }
        }
        if let Some(answer) = self.leaving.take() {
            let _ = answer.send(self.failed.take().map_or(Ok(()), Err));
        }
        self.session.shutdown().await;
    }

    // ---- time

    fn now(&self) -> Time {
        Time::ZERO + self.origin.elapsed()
    }

    fn next_wake(&self) -> Instant {
        let timers = self.tracks.iter().filter_map(Track::next_timer);
        let timers = timers.map(|at| self.origin + at.since(Time::ZERO));
        let losses = self.peers.iter().filter_map(|peer| peer.down_since);
        let losses = losses.map(|since| since + self.patience);
        let limited = !self.rates.limited().is_empty();
        let idle = Instant::now() + IDLE;
        timers
            .chain(losses)
            .chain(limited.then_some(self.achieved_at))
            .fold(idle, Instant::min)
            .max(Instant::now())
    }

    fn fire(&mut self) {
        let now = self.now();
        for track in 0..self.tracks.len() {
            while let Some(timer) = self.tracks[track].due(now) {
                self.signal(track, Signal::Timer(timer));
            }
        }
    }

    /// Says twice a second what peers achieve towards which a rate is set.
    fn tell_achieved(&mut self) {
        let now = Instant::now();
        if now < self.achieved_at {
            return;
        }
        self.achieved_at = now + ACHIEVED;
        for to in self.rates.limited() {
            let rate = self.session.achieved(to).outgoing;
            for track in self.rates.owners(to) {
                self.signal(track as usize, Signal::Achieved { to, rate });
            }
        }
    }

    // ---- members

    /// Sees which members are there, which have been away for too long, and whether this one may
    /// leave.
    fn look_around(&mut self) {
        let others = self.clusters.len() - 1;
        if self.ready.is_some() && self.peers.iter().filter(|peer| peer.up).count() == others {
            self.answer_ready(Ok(()));
        }
        let away = |peer: &Peer| {
            peer.down_since
                .is_some_and(|at| at.elapsed() >= self.patience)
        };
        let lost = self.peers.iter().position(away);
        if let Some(rank) = lost
            && self.failed.is_none()
            && !self.said_bye
            && (self.ready.is_some() || !self.peers[rank].bye)
        {
            let why = match &self.peers[rank].why {
                Some(why) => format!("unreachable for {:.0?}: {why}", self.patience),
                None => format!("unreachable for {:.0?}", self.patience),
            };
            self.fail(rank as u32, why);
        }
        if self.leaving.is_some() && !self.said_bye && self.tracks.iter().all(Track::is_flushed) {
            self.said_bye = true;
            self.tell_all(&Note::Bye);
        }
    }

    /// Whether this member is gone: all members have everything, and know it.
    fn has_left(&self) -> bool {
        let parted =
            |(index, peer): (usize, &Peer)| index == self.me.index() || peer.bye || !peer.up;
        self.leaving.is_some()
            && (self.failed.is_some() || self.said_bye && self.peers.iter().enumerate().all(parted))
    }

    fn answer_ready(&mut self, answer: Result<(), GroupError>) {
        if let Some(ready) = self.ready.take() {
            let _ = ready.send(answer);
        }
    }

    fn fail(&mut self, rank: u32, why: String) {
        let error = match self.ready.is_some() {
            true => GroupError::Incomplete {
                seconds: self.patience.as_secs_f64(),
                missing: format!("member {rank} is {why}"),
            },
            false => GroupError::Lost { rank, why },
        };
        self.answer_ready(Err(error.clone()));
        if let Some(call) = self.call.take() {
            let _ = call.answer.send(Err(error.clone()));
        }
        self.failed.get_or_insert(error);
    }

    // ---- the session

    fn on_event(&mut self, event: SessionEvent) {
        match event {
            SessionEvent::PeerUp { peer, .. } => self.on_up(peer),
            SessionEvent::PeerDown { peer, .. } => {
                let known = &mut self.peers[peer.index()];
                known.up = false;
                known.down_since = Some(Instant::now());
                self.signal_all(Signal::PeerDown(peer));
            }
            SessionEvent::Message { from, body, .. } => self.on_note(from, &body),
            SessionEvent::Arrived {
                from, block, fresh, ..
            } => {
                if let Some((track, operation, block)) = self.stores.place_of(block) {
                    let signal = Signal::Arrived {
                        from,
                        operation,
                        block,
                        fresh,
                    };
                    self.signal(usize::from(track), signal);
                }
            }
            SessionEvent::Sent { to, block, .. } => {
                if let Some((track, operation, block)) = self.stores.place_of(block) {
                    let signal = Signal::Sent {
                        to,
                        operation,
                        block,
                    };
                    self.signal(usize::from(track), signal);
                }
            }
            SessionEvent::Rejected { from, .. } => {
                self.fail(from.0, "it sent wrong bytes for a block".to_owned());
            }
            SessionEvent::RejectedPacket { from, .. } => {
                self.fail(
                    from.0,
                    "it sent packets, though nothing is coded".to_owned(),
                );
            }
            // Nothing is coded.
            // Its link goes down, which says the rest.
            SessionEvent::CutOff { .. }
            | SessionEvent::Coded { .. }
            | SessionEvent::PacketSent { .. } => {}
            SessionEvent::Unreachable { peer, why } => self.peers[peer.index()].why = Some(why),
            SessionEvent::StoreFailed { error, .. } => self.fail(self.me.0, error),
            // A member asked for what no member needs any more; its link comes back.
            SessionEvent::ReadFailed { .. } => {}
        }
    }

    fn on_up(&mut self, peer: NodeId) {
        let known = &mut self.peers[peer.index()];
        known.up = true;
        known.down_since = None;
        known.why = None;
        // What was said on an earlier link may not have come.
        for index in 0..self.tracks.len() {
            let told: Vec<_> = self.tracks[index].told().cloned().collect();
            for (operation, stripe) in told {
                let track = index as u16;
                self.tell(
                    peer,
                    &Note::Owns {
                        track,
                        operation,
                        stripe,
                    },
                );
            }
        }
        if self.said_bye {
            self.tell(peer, &Note::Bye);
        }
        self.signal_all(Signal::PeerUp(peer));
    }

    fn on_note(&mut self, from: NodeId, body: &[u8]) {
        match postcard::from_bytes(body) {
            Ok(Note::Says { track, body }) if usize::from(track) < self.tracks.len() => {
                self.signal(usize::from(track), Signal::Message { from, body });
            }
            Ok(Note::Owns {
                track,
                operation,
                stripe,
            }) if self.may_own(track, from) && is_sound(&stripe) => {
                let track = &mut self.tracks[usize::from(track)];
                if !track.announce(operation, from, stripe) {
                    self.fail(from.0, "it refers to operations too far ahead".to_owned());
                }
                self.begin();
            }
            Ok(Note::Bye) => {
                self.peers[from.index()].bye = true;
                // It would not say so if it took part in the call under way.
                if self.call.is_some() {
                    self.fail(from.0, LEFT.to_owned());
                }
            }
            _ => self.fail(from.0, "it sent an invalid message".to_owned()),
        }
    }

    /// Whether a member can own anything in a track's operations.
    fn may_own(&self, track: u16, node: NodeId) -> bool {
        let track = usize::from(track);
        track < self.tracks.len()
            && (track + 1 == self.tracks.len() || self.clusters[node.index()] as usize == track)
    }

    fn tell(&self, to: NodeId, note: &Note<'_>) {
        // Plain data encodes; a message that is too long would bring the session down.
        if let Ok(body) = postcard::to_stdvec(note)
            && body.len() <= MESSAGE_BYTES_MAX
        {
            self.session.send(TRANSFER, to, body);
        }
    }

    fn tell_all(&self, note: &Note<'_>) {
        for (node, peer) in (0..).map(NodeId).zip(&self.peers) {
            if peer.up {
                self.tell(node, note);
            }
        }
    }

    // ---- calls

    fn give(&mut self, gift: Gift, answer: oneshot::Sender<Result<Given, GroupError>>) {
        if let Some(error) = &self.failed {
            let _ = answer.send(Err(error.clone()));
            return;
        }
        if let Some(rank) = self.peers.iter().position(|peer| peer.bye) {
            self.fail(rank as u32, LEFT.to_owned());
            return self.give(gift, answer);
        }
        let last = self.tracks.len() - 1;
        let parts = match gift {
            Gift::One { root, data } => vec![self.part(last, vec![root], data)],
            Gift::All(data) => {
                let mine = self.clusters[self.me.index()] as usize;
                let mut data = Some(data);
                let each = (0..last).map(|track| {
                    let owners = self.nodes_of(track as u32);
                    let data = if track == mine { data.take() } else { None };
                    (track, owners, data)
                });
                let each: Vec<_> = each.collect();
                let part = |(track, owners, data)| self.part(track, owners, data);
                each.into_iter().map(part).collect()
            }
        };
        self.call = Some(Call { parts, answer });
        self.begin();
    }

    fn nodes_of(&self, cluster: u32) -> Vec<NodeId> {
        let nodes = (0..).map(NodeId).zip(&self.clusters);
        nodes
            .filter(|(_, of)| **of == cluster)
            .map(|(node, _)| node)
            .collect()
    }

    /// A track's part in a call; the others are told what this member gives in it.
    fn part(&mut self, track: usize, owners: Vec<NodeId>, data: Option<Vec<u8>>) -> Part {
        let operation = self.tracks[track].series.begun();
        let number = track as u16;
        let blocks = data.map(|data| {
            let (stripe, blocks) = cut(&data);
            self.tracks[track].tell(operation, self.me, stripe.clone());
            self.tell_all(&Note::Owns {
                track: number,
                operation,
                stripe,
            });
            blocks
        });
        Part {
            track: number,
            operation,
            owners,
            blocks,
            begun: false,
            received: false,
        }
    }

    /// Begins what can begin of the call under way.
    fn begin(&mut self) {
        self.begin_parts();
        self.perform_all();
    }

    fn begin_parts(&mut self) {
        let Some(mut call) = self.call.take() else {
            return;
        };
        let mut trouble = None;
        for part in call.parts.iter_mut().filter(|part| !part.begun) {
            let track = &self.tracks[usize::from(part.track)];
            if let Some(stripes) = track.complete(part.operation, &part.owners)
                && let Err(error) = self.begin_part(part, stripes)
            {
                trouble = Some(error);
            }
        }
        self.call = Some(call);
        if let Some(why) = trouble {
            self.fail(self.me.0, why);
        }
    }

    fn begin_part(
        &mut self,
        part: &mut Part,
        stripes: Vec<(NodeId, Stripe)>,
    ) -> Result<(), String> {
        let index = usize::from(part.track);
        // Blocks can be asked for as soon as the series has begun, so they are there before.
        if self.stores.store(part.track, part.operation).is_none() {
            let store = Store::new(stripes).ok_or("one operation has too many blocks")?;
            self.stores.put(part.track, part.operation, Arc::new(store));
        }
        let store = self
            .stores
            .store(part.track, part.operation)
            .ok_or("a store is gone")?;
        store.fill(self.me, part.blocks.take().unwrap_or_default());
        let roots = match part.owners.as_slice() {
            [root] => vec![*root],
            _ => Vec::new(),
        };
        let multicast = Multicast {
            have: store.have(),
            roots,
            block_bytes: store.block_bytes(),
            plan: None,
        };
        let now = self.now();
        let mut out = Vec::new();
        let begun = self.tracks[index].series.begin(now, multicast, &mut out);
        self.effects
            .extend(out.into_iter().map(|effect| (index, effect)));
        match begun {
            Ok(_) => {
                part.begun = true;
                self.tracks[index].forget_announced(part.operation);
                Ok(())
            }
            // It begins when others have caught up.
            Err(BeginError::TooFarAhead { .. }) => Ok(()),
            Err(error) => Err(error.to_string()),
        }
    }

    /// Answers the call under way if all of it is here.
    fn finish(&mut self) {
        let done = |call: &Call| call.parts.iter().all(|part| part.received);
        let Some(call) = self.call.take_if(|call| done(call)) else {
            return;
        };
        let parts = call
            .parts
            .iter()
            .map(|part| self.stores.store(part.track, part.operation)?.collect());
        let given: Option<Vec<Given>> = parts.collect();
        let given = given.map(|given| given.into_iter().flatten().collect());
        let _ = call.answer.send(given.ok_or(GroupError::Ended));
    }

    // ---- series

    fn signal(&mut self, track: usize, signal: Signal<'_>) {
        self.pass(track, signal);
        self.perform_all();
    }

    fn signal_all(&mut self, signal: Signal<'_>) {
        (0..self.tracks.len()).for_each(|track| self.pass(track, signal));
        self.perform_all();
    }

    fn pass(&mut self, track: usize, signal: Signal<'_>) {
        let now = self.now();
        let mut out = Vec::new();
        self.tracks[track].series.handle(now, signal, &mut out);
        self.effects
            .extend(out.into_iter().map(|effect| (track, effect)));
    }

    fn perform_all(&mut self) {
        while !self.effects.is_empty() || self.caught_up {
            if std::mem::take(&mut self.caught_up) {
                self.begin_parts();
            }
            for (track, effect) in std::mem::take(&mut self.effects) {
                self.perform(track, effect);
            }
        }
    }

    fn perform(&mut self, index: usize, effect: Effect) {
        let track = index as u16;
        match effect {
            // All members are connected with each other.
            Effect::Connect(_) | Effect::Disconnect(_) => {}
            Effect::Send { to, body } => self.tell(to, &Note::Says { track, body: &body }),
            Effect::SendBlock {
                to,
                operation,
                block,
            } => {
                if let Some(block) = self.stores.on_session(track, operation, block) {
                    self.session.send_block(TRANSFER, to, block);
                }
            }
            Effect::SetRate { to, rate } => {
                if let Some(rate) = self.rates.set(track.into(), to, rate) {
                    self.session.set_peer_rate(to, rate);
                }
            }
            Effect::SetTimer { timer, at } => self.tracks[index].set_timer(timer, at),
            Effect::Accuse { peer, offence } => {
                self.session.remove_member(peer);
                self.fail(peer.0, format!("it {offence}"));
            }
            Effect::Received { operation } => {
                let parts = self.call.iter_mut().flat_map(|call| &mut call.parts);
                for part in parts.filter(|p| p.track == track && p.operation == operation) {
                    part.received = true;
                }
                self.finish();
            }
            Effect::Flushed { operation } => {
                self.tracks[index].flush(operation);
                if let Some(old) = operation.checked_sub(LINGER) {
                    self.stores.drop_until(track, old);
                }
                self.caught_up = true;
            }
        }
    }
}
