//! The receiving side: whose offer to take up, for which batch, and what becomes of it.

use std::time::Duration;

use outpour_core::{BatchId, BlockId, BlockSet, Holding, NodeId, Support, Time, Worth};
use rand_core::RngCore;

use super::message::{Message, Piece};
use super::neighbour::{Granted, Neighbour, Offered, Standing};
use super::send::{smooth, smooth_gap};
use super::starve::STARVE_GAPS;
use super::{Gossip, LIVE_MAX};
use crate::{Action, Actions};

/// How many pieces a neighbour sends one after the other, as long as they are of use. Changing
/// partners takes a few messages, and time in which a place is empty.
const LEASE: u32 = 8;
/// Pieces on their way from one neighbour: the next is granted while one is coming.
pub(super) const AHEAD_MAX: usize = 2;
/// How long the place of a neighbour is kept that is to offer again.
const RENEWAL: Duration = Duration::from_millis(100);
/// Pieces one neighbour may owe, late ones included.
pub(super) const OWED_MAX: usize = 16;
const _: () = assert!(OWED_MAX >= AHEAD_MAX);
/// How many batches are looked through for one that an offer adds to.
const SCAN_MAX: usize = 2 * LIVE_MAX;
/// How long a piece may take as long as it is not known how long they take, and after that: at
/// least so long, and so many times the usual.
const PATIENCE: Duration = Duration::from_secs(10);
const PATIENCE_MIN: Duration = Duration::from_secs(1);
const PATIENCE_TIMES: f64 = 6.0;
/// A node with little to do may have this part of the places beyond all.
const SPARE_SHARE: usize = 2;
/// What a neighbour was found to have nothing new of is asked for again if nothing comes for so
/// long, and twice as long the next time, so many times.
const DOUBT: Duration = Duration::from_secs(1);
const DOUBTS_MAX: u32 = 6;
/// Packets that were not requested may come from a neighbour when grants are forgotten; more do not.
const UNASKED_MAX: u32 = 64;
/// A packet of a neighbour that says to have more of a batch than is here adds nothing in one of
/// 256 cases. There may be so many more, and such a share of those that add something.
const DEPENDENT_MAX: u32 = 16;
const DEPENDENT_SHARE: u32 = 16;

/// A node that has this part of a batch less than is here and coming is asked for another batch.
const DOUBTFUL_SHARE: u16 = 8;

/// When wrong packets are about, a packet is requested only from a node that has so many times more
/// blocks than packets it gave: a node that has few gives blocks that these packets would make worthless.
const PACKET_NEWS: u16 = 4;

/// What to make of an offer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Choice {
    /// Ask for this, of which the neighbour has so much.
    Take(Piece, Holding),
    /// It may be of use later.
    Later,
    /// There is nothing new in it.
    Never,
}

impl Gossip {
    pub(super) fn on_offer(
        &mut self,
        now: Time,
        from: NodeId,
        standing: Standing,
        queued: u8,
        out: &mut Actions,
    ) {
        let batches = self.hold.batches;
        let Some(peer) = self.neighbours.get_mut(from) else {
            return;
        };
        for part in &standing.parts {
            part.verified(batches.range(part.batch)).for_each(|block| {
                peer.blocks.insert(block);
            });
        }
        peer.renews = None;
        peer.granted.iter_mut().for_each(|grant| grant.more = false);
        let owes = peer.granted.len().saturating_sub(usize::from(queued));
        peer.granted
            .iter_mut()
            .take(owes)
            .for_each(|grant| grant.left = true);
        peer.standing = Some(standing);
        self.take_leads(now, out);
        if self
            .neighbours
            .get(from)
            .is_none_or(|peer| peer.standing.is_none())
        {
            return;
        }
        let choice = self.take_up(now, from, out);
        if matches!(choice, Choice::Take(..)) {
            return;
        }
        let idle = choice == Choice::Never && self.placed() < self.places();
        if let Some(peer) = self.neighbours.get_mut(from) {
            // The answer comes with the next piece.
            if choice == Choice::Later && peer.coming() >= AHEAD_MAX {
                return;
            }
            peer.lease = 0;
            if idle {
                peer.standing = None;
            }
        }
        out.send(from, &Message::Busy { idle });
        self.take_offers(now, out);
    }

    /// Makes use of the offers that stand, while there is room.
    pub(super) fn take_offers(&mut self, now: Time, out: &mut Actions) {
        if self.hold.is_full() {
            return;
        }
        let stands = |(node, peer): (NodeId, &Neighbour)| {
            let standing = peer.standing.as_ref()?;
            Some((standing.is_spare(now), standing.turn, node))
        };
        // What is taken here stands no more: to answer it again would say that it is of no use.
        self.take_leads(now, out);
        let mut standing: Vec<_> = self.neighbours.iter().filter_map(stands).collect();
        // A node with little to do comes first; the last to offer is the most likely to have room still.
        standing.sort_unstable();
        for (spare, _, node) in standing.into_iter().rev() {
            if self.placed() >= self.places_for(spare) && !self.is_partner_of(node) {
                continue;
            }
            if self.take_up(now, node, out) == Choice::Never {
                if let Some(peer) = self.neighbours.get_mut(node) {
                    peer.standing = None;
                }
                out.send(node, &Message::Busy { idle: true });
            }
        }
    }

    /// What a source gives away is nowhere else: it comes before places that are kept.
    fn take_leads(&mut self, now: Time, out: &mut Actions) {
        let leads = self.neighbours.pick(|peer| {
            let standing = peer.standing.as_ref();
            standing.is_some_and(|it| it.lead.is_some_and(|lead| lead.fresh.is_some()))
        });
        for node in leads {
            let kept = |peer: &Neighbour| peer.coming() == 0 && peer.renews.is_some();
            let kept = self.neighbours.iter().filter(|(_, peer)| kept(peer));
            if self.placed() - kept.count() >= self.places() {
                break;
            }
            let ahead = self.neighbours.get(node).map_or(0, Neighbour::coming);
            if ahead < AHEAD_MAX {
                self.take(now, node, out);
            }
        }
    }

    fn places(&self) -> usize {
        self.cover(self.gap)
    }

    /// A neighbour with little else to do has room beyond that.
    fn places_for(&self, spare: bool) -> usize {
        let places = self.places();
        if spare {
            places + places / SPARE_SHARE
        } else {
            places
        }
    }

    /// A node that has this one among its partners has a place at any time.
    fn is_partner_of(&self, node: NodeId) -> bool {
        self.topology.is_partner_of(node, self.partner_count())
    }

    /// How many neighbours have a place.
    fn placed(&self) -> usize {
        let placed = |(_, peer): &(NodeId, &Neighbour)| peer.is_placed();
        self.neighbours.iter().filter(placed).count()
    }

    /// Asks for something that a neighbour offers, if it is of use and there is room.
    fn take_up(&mut self, now: Time, from: NodeId, out: &mut Actions) -> Choice {
        let Some(peer) = self.neighbours.get(from) else {
            return Choice::Never;
        };
        let spare = (peer.standing.as_ref()).is_some_and(|it| it.is_spare(now));
        let placed = peer.is_placed() || self.placed() < self.places_for(spare);
        let room = placed || self.is_partner_of(from);
        if peer.coming() >= AHEAD_MAX || !room {
            return Choice::Later;
        }
        self.take(now, from, out)
    }

    fn take(&mut self, now: Time, from: NodeId, out: &mut Actions) -> Choice {
        if self.hold.is_full() {
            return Choice::Never;
        }
        self.mind_candidates(now, from);
        let choice = self.choose(now, from);
        let partner = self.is_partner_of(from);
        let Choice::Take(piece, theirs) = choice else {
            return choice;
        };
        let Some(peer) = self.neighbours.get_mut(from) else {
            return Choice::Never;
        };
        // A source gives what is new to one after the other.
        let leads = peer.standing.as_ref().is_some_and(|it| it.lead.is_some());
        peer.lease = if leads { LEASE } else { peer.lease + 1 };
        let more = partner || peer.lease < LEASE;
        if !more {
            peer.lease = 0;
        }
        debug_assert!(peer.granted.len() < OWED_MAX);
        debug_assert!(peer.coming() < AHEAD_MAX);
        peer.standing = None;
        peer.block_next = matches!(piece, Piece::Packet { .. });
        peer.granted.push_back(Granted {
            piece,
            at: now,
            theirs,
            more,
            left: false,
            late: false,
        });
        if let Piece::Block(block) = piece {
            debug_assert!(!self.hold.have.contains(block));
            let first = self.asked.insert(block);
            debug_assert!(first, "{block} was asked for");
        }
        let batch = piece.batch(self.hold.batches);
        let live = self.hold.live_mut(batch, now);
        live.coming.push(theirs.support);
        live.packets = true;
        out.send(from, &Message::Grant { piece, more });
        self.tick_on(now, out);
        choice
    }

    /// What to ask of a neighbour.
    fn choose(&mut self, now: Time, from: NodeId) -> Choice {
        if !self.coded {
            return self.choose_any(from);
        }
        let Some(peer) = self.neighbours.get(from) else {
            return Choice::Never;
        };
        let Some(standing) = &peer.standing else {
            return Choice::Never;
        };
        if peer.granted.len() >= OWED_MAX {
            return Choice::Later;
        }
        let fresh = standing.lead.and_then(|lead| lead.fresh);
        let mut choice = Choice::Never;
        let mut doubtful = None;
        for batch in self.candidates() {
            let found = match self.adds(peer, standing, batch) {
                // Of a source that seeds: what no node has yet comes first, unless no other node
                // gives the other.
                Choice::Take(..) if fresh.is_some_and(|fresh| fresh != batch) => {
                    if !self.starves(now, batch) {
                        choice = Choice::Later;
                        continue;
                    }
                    self.adds(peer, standing, batch)
                }
                found => found,
            };
            match found {
                Choice::Take(_, theirs) if fresh.is_none() && self.is_doubtful(batch, theirs) => {
                    doubtful = doubtful.or(Some(found));
                }
                Choice::Take(..) => return found,
                Choice::Later => choice = Choice::Later,
                Choice::Never => {}
            }
        }
        let unfed = fresh.and_then(|fresh| self.choose_unfed(now, from, fresh));
        doubtful.or(unfed).unwrap_or(choice)
    }

    /// Whether a node with so much of a batch may well have nothing else than what is here and coming.
    /// A peer that has more than that certainly has, and so has one with what is made of other
    /// blocks.
    fn is_doubtful(&self, batch: BatchId, theirs: Holding) -> bool {
        let Some(live) = self.hold.live.get(&batch) else {
            return false;
        };
        let margin = (self.hold.batches.rank_of(batch) / DOUBTFUL_SHARE).max(1);
        theirs.rank + margin <= live.hoped() && theirs.support.is_subset(live.known())
    }

    /// The batches to look at, in order: the preferred one, and the earliest of those that there
    /// is room for.
    pub(super) fn candidates(&self) -> impl Iterator<Item = BatchId> + use<> {
        let whole = &self.hold.whole;
        let first = whole.next_absent(0);
        let live = |batch: BatchId| {
            let live = self.hold.live.get(&batch);
            live.is_some_and(|live| live.packets)
        };
        let mut room = LIVE_MAX.saturating_sub(self.hold.in_memory() + 1);
        let preferred = self.prefer.filter(|batch| !whole.contains(*batch));
        let mut list: Vec<BatchId> = preferred.into_iter().collect();
        let mut next = first;
        while let Some(batch) = next.filter(|_| list.len() < SCAN_MAX) {
            if Some(batch) == first || live(batch) {
                list.push(batch);
            } else if room > 0 {
                room -= 1;
                list.push(batch);
            } else if self.hold.live.range(batch..).next().is_none() {
                break;
            }
            next = whole.next_absent(batch + 1);
        }
        debug_assert!(list.len() <= SCAN_MAX);
        debug_assert!(!list.iter().any(|batch| whole.contains(*batch)));
        list.into_iter()
    }

    /// What to ask of a batch, if the neighbour has anything that adds to what is here and on its
    /// way.
    pub(super) fn adds(&self, peer: &Neighbour, standing: &Standing, batch: BatchId) -> Choice {
        let full = self.hold.batches.rank_of(batch);
        let until = standing.lead.map_or(u32::MAX, |lead| lead.until);
        debug_assert!(!self.hold.whole.contains(batch), "nothing adds to it");
        if batch >= until {
            return Choice::Never;
        }
        let live = self.hold.live.get(&batch);
        if self.careful {
            let spoiled = live.is_some_and(|live| live.spoiled);
            let fresh = standing.lead.is_some_and(|lead| lead.fresh == Some(batch));
            let choice = self.adds_verified(peer, batch, fresh);
            if choice != Choice::Never || spoiled || !self.desperate {
                return choice;
            }
        }
        let part = standing.parts.iter().find(|part| part.batch == batch);
        let theirs = match part {
            _ if peer.whole.contains(batch) => Holding {
                rank: full,
                support: Support::first(full),
            },
            Some(part) => part.holding(full).unwrap_or_default(),
            None => return Choice::Never,
        };
        debug_assert!(theirs.rank <= full);
        debug_assert!(theirs.rank <= theirs.support.len());
        let doubt = live.map_or(0, |live| live.doubt);
        let here = self.hold.holding(batch);
        let gave = peer.gave.get(&batch).copied().unwrap_or_default();
        // Of other blocks there is something new in it, for certain.
        let other = !theirs.support.is_subset(here.support);
        let no_news = theirs.rank <= gave.barren.max(doubt) && !other;
        let all = here.support.union(theirs.support);
        if theirs.rank <= gave.innovative || no_news || here.rank >= all.len() {
            return Choice::Never;
        }
        let of_it = |grant: &&Granted| !grant.late && grant.piece.batch(self.hold.batches) == batch;
        let owed = peer.granted.iter().filter(of_it).count() as u16;
        let room = live.is_none_or(|live| live.has_room_for(theirs.support));
        if theirs.rank <= gave.innovative + owed || !room {
            return Choice::Later;
        }
        let pure = false;
        Choice::Take(Piece::Packet { batch, pure }, theirs)
    }

    /// What to ask of a batch when wrong packets are about: in turn a block, which is verified when
    /// it comes, and a pure packet, which convicts its sender if it is wrong.
    fn adds_verified(&self, peer: &Neighbour, batch: BatchId, fresh: bool) -> Choice {
        let range = self.hold.batches.range(batch);
        let full = range.len() as u16;
        let live = self.hold.live.get(&batch);
        let spoiled = live.is_some_and(|live| live.spoiled);
        if !spoiled && live.is_some_and(|live| live.hoped() >= full) {
            return Choice::Later;
        }
        let pure = true;
        let packet = Piece::Packet { batch, pure };
        // A source knows which block no node was given.
        if fresh && !spoiled {
            let (rank, support) = (full, Support::first(full));
            return Choice::Take(packet, Holding { rank, support });
        }
        let whole = peer.whole.contains(batch);
        let there = |block: &BlockId| whole || peer.blocks.contains(*block);
        let lacked = |block: &BlockId| there(block) && !self.hold.have.contains(*block);
        let open = |block: &BlockId| lacked(block) && !self.asked.contains(*block);
        let places = range.clone().enumerate();
        let support: Support = places
            .filter(|(_, block)| there(block))
            .map(|(place, _)| place)
            .collect();
        let rank = support.len();
        let theirs = Holding { rank, support };
        let news = range.clone().filter(open).count() as u16;
        let gave = peer.gave.get(&batch).copied().unwrap_or_default();
        let owed = peer.granted.iter().filter(|it| it.piece == packet).count() as u16;
        let known = if spoiled { 0 } else { gave.pure + owed };
        if news <= known {
            // A node that has all of it offers it no other time; one that has not gets more.
            let wait = whole && range.clone().any(|block| lacked(&block));
            return if wait { Choice::Later } else { Choice::Never };
        }
        let many = news >= PACKET_NEWS * (known + 1);
        if !spoiled && many && !peer.block_next && theirs.rank > gave.barren {
            return Choice::Take(packet, theirs);
        }
        // Nodes that miss the same begin elsewhere, so that each can give to others soon.
        let skip = (self.turn as usize).wrapping_mul(31) % range.len().max(1);
        let found = range.clone().skip(skip).find(open);
        let found = found.or_else(|| range.clone().find(open));
        found.map_or(Choice::Never, |block| {
            Choice::Take(Piece::Block(block), theirs)
        })
    }

    /// Without coding: any block that the neighbour has and that is neither here nor asked for.
    fn choose_any(&mut self, from: NodeId) -> Choice {
        let Some(peer) = self.neighbours.get(from) else {
            return Choice::Never;
        };
        if peer.granted.len() >= OWED_MAX {
            return Choice::Later;
        }
        let mut open = peer.whole.clone();
        open.subtract(&self.hold.have);
        open.subtract(&self.asked);
        let start = (self.random.next_u64() % u64::from(open.len().max(1))) as BlockId;
        open.next_present(start)
            .or_else(|| open.next_present(0))
            .map_or(Choice::Later, |block| {
                Choice::Take(Piece::Block(block), Holding::default())
            })
    }

    /// Something of a batch came from a neighbour, or will not come: it is not waited for any
    /// more. Says what it was.
    pub(super) fn settle(
        &mut self,
        now: Time,
        from: NodeId,
        batch: BatchId,
        block: Option<BlockId>,
    ) -> Option<Granted> {
        let batches = self.hold.batches;
        let peer = self.neighbours.get_mut(from)?;
        let exact = |grant: &Granted| block.is_some_and(|block| grant.piece == Piece::Block(block));
        let of_it = |grant: &Granted| grant.piece.batch(batches) == batch;
        let mut grants = peer.granted.iter();
        let at = grants
            .position(exact)
            .or_else(|| peer.granted.iter().position(of_it))?;
        let grant = peer.granted.remove(at)?;
        if grant.more && !grant.left && !grant.late {
            peer.renews = Some(now);
        }
        self.let_go(grant);
        Some(grant)
    }

    /// A grant counts no more. One that is late did not before: another neighbour may have been
    /// asked for the same since.
    fn let_go(&mut self, grant: Granted) {
        if grant.late {
            return;
        }
        if let Piece::Block(block) = grant.piece {
            self.asked.remove(block);
        }
        let batches = self.hold.batches;
        let batch = grant.piece.batch(batches);
        if let Some(live) = self.hold.live.get_mut(&batch) {
            let mut coming = live.coming.iter();
            debug_assert!(live.coming.contains(&grant.theirs.support));
            if let Some(at) = coming.position(|one| *one == grant.theirs.support) {
                live.coming.swap_remove(at);
            }
        }
    }

    /// A grant was fulfilled.
    fn clock(&mut self, now: Time, grant: Granted) {
        let latency = now.since(grant.at).as_secs_f64();
        smooth(&mut self.latency, latency);
        let share = self.placed().max(1) as f64;
        let last = self.came.replace(now);
        smooth_gap(&mut self.gap, last, now, latency / share);
    }

    pub(super) fn on_decline(&mut self, now: Time, from: NodeId, piece: Piece, out: &mut Actions) {
        if let Some(peer) = self.neighbours.get_mut(from)
            && let Some(at) = peer.granted.iter().position(|grant| grant.piece == piece)
            && let Some(grant) = peer.granted.remove(at)
        {
            self.let_go(grant);
        }
        self.take_offers(now, out);
    }

    /// A block came and was verified, or was made of packets that came.
    pub(super) fn on_block(
        &mut self,
        now: Time,
        from: NodeId,
        block: BlockId,
        fresh: bool,
        out: &mut Actions,
    ) {
        let batch = self.hold.batches.batch_of(block);
        let grant = self.settle(now, from, batch, Some(block));
        if let Some(grant) = grant {
            self.clock(now, grant);
        }
        let pulled =
            self.mend(|mender, around, wrap| mender.on_arrived(now, block, around, wrap, out));
        if fresh && grant.is_some() && !pulled {
            self.mender.rest();
        }
        if fresh {
            self.gained = now;
            let decoded = self.is_decoding(batch);
            let whole = self.hold.take(now, block);
            if whole {
                self.on_whole(batch, out);
            } else if self.coded
                && !decoded
                && let Some(live) = self.hold.live.get_mut(&batch)
            {
                live.doubt = 0;
                live.echoes.push(from);
            }
        }
        self.take_offers(now, out);
        self.pump(now, out);
    }

    /// Whether the blocks of a batch come out of packets now.
    fn is_decoding(&self, batch: BatchId) -> bool {
        let live = self.hold.live.get(&batch);
        live.is_some_and(|live| {
            !live.spoiled && live.holding.rank >= self.hold.batches.rank_of(batch)
        })
    }

    fn on_whole(&mut self, batch: BatchId, out: &mut Actions) {
        let batches = self.hold.batches;
        for (_, peer) in self.neighbours.iter_mut() {
            peer.gave.remove(&batch);
            peer.granted
                .retain(|grant| grant.piece.batch(batches) != batch);
        }
        debug_assert!(!self.hold.live.contains_key(&batch));
        debug_assert!(!self.news.contains(&batch));
        self.news.push(batch);
        let every = if self.coded {
            1
        } else {
            self.options.map_every
        };
        if self.news.len() >= every as usize || self.hold.is_full() {
            self.announce(out);
        }
        self.on_progress();
    }

    /// A piece of a batch came that is not whole yet.
    pub(super) fn on_packet(
        &mut self,
        now: Time,
        from: NodeId,
        batch: BatchId,
        worth: Worth,
        holding: Holding,
        out: &mut Actions,
    ) {
        if !self.coded || self.hold.whole.contains(batch) {
            return;
        }
        let echo = self.hold.live.get_mut(&batch).and_then(|live| {
            let at = live.echoes.iter().position(|node| *node == from)?;
            Some(live.echoes.swap_remove(at))
        });
        let grant = match echo {
            Some(_) => None,
            None => self.settle(now, from, batch, None),
        };
        if let Some(grant) = grant {
            self.clock(now, grant);
        }
        let source = self.sources[from.index()];
        let live = self.hold.live_mut(batch, now);
        live.packets = true;
        live.holding.support = live.holding.support.union(holding.support);
        if holding.rank > live.holding.rank {
            live.holding.rank = holding.rank;
            live.grew = now;
            live.doubt = 0;
            if !source {
                (live.fed, self.fed) = (now, now);
            }
            if grant.is_some() {
                self.mender.rest();
            }
            self.hold.gains += 1;
            self.gained = now;
        }
        self.hold.check(batch);
        let offence = self.judge(from, batch, worth, grant, echo.is_some());
        if let Some(offence) = offence {
            self.accuse(from, offence, out);
        }
        self.take_offers(now, out);
        self.pump(now, out);
    }

    /// Counts what a packet was worth; says what is wrong with its sender, if something is.
    fn judge(
        &mut self,
        from: NodeId,
        batch: BatchId,
        worth: Worth,
        grant: Option<Granted>,
        echo: bool,
    ) -> Option<&'static str> {
        let full = self.hold.batches.rank_of(batch);
        let peer = self.neighbours.get_mut(from)?;
        if grant.is_none() && !echo {
            peer.unasked += 1;
            if peer.unasked > UNASKED_MAX {
                return Some("sent packets that were not requested");
            }
        }
        match worth {
            Worth::Zero => return Some("sent an empty packet"),
            Worth::Innovative => {
                peer.innovative += 1;
                let gave = peer.gave.entry(batch).or_default();
                gave.innovative += 1;
                debug_assert!(gave.innovative <= full);
                gave.pure += u16::from(self.careful && !echo);
            }
            Worth::Dependent => {
                // Of a whole batch hardly any packet is dependent, and the next will not be.
                let theirs = grant.map(|grant| grant.theirs).unwrap_or_default();
                let here = self.hold.holding(batch);
                let other = !theirs.support.is_subset(here.support);
                peer.dependent += u32::from(theirs.rank > here.rank || other);
                if theirs.rank < full {
                    peer.gave.entry(batch).or_default().barren = theirs.rank;
                    if let Some(live) = self.hold.live.get_mut(&batch) {
                        live.doubt = live.doubt.max(theirs.rank);
                    }
                }
                let most = DEPENDENT_MAX + peer.innovative / DEPENDENT_SHARE;
                if peer.dependent > most {
                    return Some("sent too many packets that add nothing new");
                }
            }
        }
        None
    }

    /// A batch was decoded to something wrong: its packets are as good as lost.
    pub(super) fn on_spoiled(&mut self, now: Time, batch: BatchId, out: &mut Actions) {
        if self.hold.whole.contains(batch) {
            return;
        }
        self.hold.live_mut(batch, now).spoiled = true;
        self.desperate = false;
        self.be_careful(now, out);
        self.take_offers(now, out);
    }

    /// Wrong packets are about, and passed on by nodes that do not know it. From now on only what
    /// is made of verified blocks is asked for, here and at all neighbours.
    pub(super) fn be_careful(&mut self, now: Time, out: &mut Actions) {
        if !self.coded || std::mem::replace(&mut self.careful, true) {
            return;
        }
        self.gained = self.gained.max(now);
        self.forget_doubts();
        // What stands does not say which blocks there are; these offers are made again.
        for (_, peer) in self.neighbours.iter_mut() {
            peer.standing = None;
        }
        let all = self.neighbours.pick(|_| true);
        out.send_all(all, &Message::Careful);
    }

    fn forget_doubts(&mut self) {
        self.hold.live.values_mut().for_each(|live| live.doubt = 0);
        self.neighbours
            .iter_mut()
            .flat_map(|(_, peer)| peer.gave.values_mut())
            .for_each(|gave| gave.barren = 0);
    }

    // ---- clocks

    /// Gives up on grants that take too long, and looks at what does not move.
    pub(super) fn watch(&mut self, now: Time, out: &mut Actions) {
        let patience = if self.latency == 0.0 {
            PATIENCE
        } else {
            PATIENCE_MIN.max(Duration::from_secs_f64(PATIENCE_TIMES * self.latency))
        };
        let mut late = Vec::new();
        for (_, peer) in self.neighbours.iter_mut() {
            peer.renews = peer.renews.filter(|at| now.since(*at) < RENEWAL);
            for grant in &mut peer.granted {
                if !grant.late && now.since(grant.at) >= patience {
                    late.push(*grant);
                    grant.late = true;
                }
            }
        }
        late.into_iter().for_each(|grant| self.let_go(grant));
        if self.gained > self.doubted {
            self.doubts = 0;
        }
        let patience = DOUBT.max(Duration::from_secs_f64(STARVE_GAPS * self.usual_gap()));
        if now.since(self.gained.max(self.doubted)) >= patience * (1 << self.doubts) {
            // One packet in 256 is dependent by chance; but it gets ever less likely that it was.
            self.doubted = now;
            debug_assert!(self.doubts <= DOUBTS_MAX);
            self.doubts = (self.doubts + 1).min(DOUBTS_MAX);
            self.forget_doubts();
        }
        self.take_offers(now, out);
        self.repair(now, out);
    }

    /// What did not come for long and is not on its way is looked for everywhere.
    fn repair(&mut self, now: Time, out: &mut Actions) {
        let patience = super::MEND_AFTER.max(Duration::from_secs_f64(
            2.0 * STARVE_GAPS * self.usual_gap(),
        ));
        let idle = self.placed() == 0 && now.since(self.gained) >= patience;
        let missed = idle.then(|| self.missed());
        let missed = missed.filter(|missed| !missed.is_empty());
        self.desperate |= self.careful && idle;
        self.mend(|mender, around, wrap| mender.on_tick(now, missed, around, wrap, out));
    }

    /// What is not here and does not come out of packets that are here, which may take long.
    fn missed(&self) -> BlockSet {
        let mut missed = BlockSet::full(self.hold.have.len());
        missed.subtract(&self.hold.have);
        let decoding = |batch: &BatchId| self.is_decoding(*batch);
        for batch in self.hold.live.keys().copied().filter(decoding) {
            let range = self.hold.batches.range(batch);
            range.for_each(|block| {
                missed.remove(block);
            });
        }
        debug_assert!(missed.count() <= self.hold.have.missing());
        missed
    }

    /// Forgets what a neighbour was asked for, and what it was sent.
    pub(super) fn forget(&mut self, peer: Neighbour) {
        peer.granted
            .into_iter()
            .for_each(|grant| self.let_go(grant));
        if peer.offered != Offered::Not {
            self.turn += 1;
        }
    }

    pub(super) fn accuse(&mut self, peer: NodeId, offence: &'static str, out: &mut Actions) {
        self.gone[peer.index()] = true;
        out.push(Action::Accuse { peer, offence });
    }
}
