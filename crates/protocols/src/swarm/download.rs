//! The receiving side: what to request from which peer, and when to give up on an answer.

use std::collections::BTreeMap;
use std::time::Duration;

use outpour_core::{BlockId, BlockSet, NodeId, Time};

use super::neighbour::{Asked, Neighbour, Neighbours, Wanted};
use super::{Kind, Message};
use crate::Actions;
use crate::push::PUSHERS;

/// Requests under way in all: at least this many, so that chance does not leave the incoming rate
/// idle; fewer than the slots of a sender would leave those idle as well.
pub(super) const WINDOW_MIN: usize = 20;
/// Blocks asked for a second time at once.
pub(super) const AGAIN_MAX: usize = 6;
const WINDOW_MAX: usize = 4096;
/// Requests under way at one neighbour.
pub(super) const PER_NEIGHBOUR_MAX: usize = 256;
/// Beyond twice the best delay seen, requests under way cover this many seconds.
pub(super) const WINDOW_SLACK_S: f64 = 0.1;
/// Blocks asked of a seeding source: at least this many.
const CREDIT_MIN: u32 = 2;
pub(super) const CREDIT_MAX: u32 = 256;
const _: () = assert!(CREDIT_MIN > 0);
const _: () = assert!(CREDIT_MIN <= CREDIT_MAX);
const _: () = assert!(WINDOW_MIN < WINDOW_MAX);
// What is asked for a second time leaves room for what is not asked for at all.
const _: () = assert!(AGAIN_MAX < WINDOW_MIN);
const _: () = assert!(AGAIN_MAX <= PER_NEIGHBOUR_MAX);
/// A neighbour with requests that says nothing for this long loses them.
const SILENCE_MAX: Duration = Duration::from_secs(2);
/// A neighbour that talks but does not deliver loses its requests after this long, or four times
/// its usual delay if that is longer.
const LATE: Duration = Duration::from_secs(2);
/// The same before any delay is known.
const LATE_AT_FIRST: Duration = Duration::from_secs(10);
/// How long a neighbour that lost its requests gets no new ones, unless it delivers; twice as long each
/// time, this often at most.
const SNUB: Duration = Duration::from_secs(5);
pub(super) const VAIN_MAX: u32 = 6;
/// A neighbour that delivers may have so many requests, however slow it is.
pub(super) const PACED_MIN: usize = 4;
/// Of what is asked of a neighbour of which nothing ever came, so much counts among the requests under way,
/// and it is asked for no more while there are others: whoever says that it has everything and sends nothing
/// takes no request from those that would answer it.
pub(super) const UNPROVEN_MAX: usize = 8;
const _: () = assert!(UNPROVEN_MAX <= WINDOW_MIN / 2);
/// Sources hear what others give, so they end seeding within this time of each other.
const ENDS_WITHIN: Duration = Duration::from_millis(250);
/// How many of the candidates are looked at to find a rare one.
const LOOK: usize = 48;

/// The receiving side of one node.
pub(super) struct Downloads {
    /// Blocks requested from any peer.
    requested: BlockSet,
    /// Blocks requested from two neighbours at once.
    twice: BTreeMap<BlockId, ()>,
    /// Requests came to nothing: neighbours that had nothing to ask for may have now.
    freed: bool,
    /// No neighbour has anything to ask for, until one says that it has more: need not be looked for.
    exhausted: bool,
    /// How many neighbours have each block.
    availability: Vec<u16>,
    /// Requests under way.
    under_way: usize,
    /// Neighbours that are seeding sources.
    seeding: u32,
    /// Seconds between arrivals, smoothed; zero until known.
    gap: f64,
    last_arrival: Option<Time>,
    /// So many neighbours that have everything are asked at a time.
    askable: usize,
    /// Shortest time from request to arrival seen, in seconds, if any was.
    best_latency: Option<f64>,
}

impl Downloads {
    pub(super) fn new(blocks: u32, kind: Kind) -> Self {
        Self {
            requested: BlockSet::new(blocks),
            twice: BTreeMap::new(),
            freed: false,
            exhausted: false,
            availability: vec![0; blocks as usize],
            under_way: 0,
            seeding: 0,
            gap: 0.0,
            last_arrival: None,
            askable: match kind {
                Kind::Swarm => usize::MAX,
                Kind::Push => PUSHERS,
            },
            best_latency: None,
        }
    }

    /// What holds between any two events; `have` is what is here.
    pub(super) fn check(&self, have: &BlockSet, neighbours: &Neighbours) {
        let asked: usize = neighbours.iter().map(|(_, peer)| peer.asked.len()).sum();
        debug_assert_eq!(self.under_way, asked);
        debug_assert_eq!(
            self.under_way,
            self.requested.count() as usize + self.twice.len(),
            "each block is asked for once or twice"
        );
        debug_assert!(self.twice.len() <= AGAIN_MAX);
        debug_assert!(
            self.twice
                .keys()
                .all(|block| self.requested.contains(*block)),
            "asked for a second time and not for a first"
        );
        debug_assert!(
            self.requested.count() <= have.missing(),
            "what is here is asked for"
        );
        let seeding = neighbours.iter().filter(|(_, peer)| peer.seeding);
        debug_assert_eq!(self.seeding as usize, seeding.count());
        debug_assert!(
            !self.exhausted || neighbours.iter().all(|(_, peer)| peer.dull || peer.seeding),
            "one that may have something is not looked at"
        );
        debug_assert!(self.gap >= 0.0);
        debug_assert!(self.best_latency.is_none_or(|best| best >= 0.0));
    }

    /// Seconds between arrivals.
    pub(super) const fn block_gap(&self) -> f64 {
        self.gap
    }

    // ---- what neighbours say they have

    /// How many neighbours have each block.
    pub(super) fn holders(&self) -> &[u16] {
        &self.availability
    }

    /// There is one more neighbour.
    pub(super) const fn welcome(&mut self) {
        self.exhausted = false;
    }

    pub(super) fn bitfield(
        &mut self,
        now: Time,
        peer: &mut Neighbour,
        theirs: BlockSet,
        want: Wanted,
        seeding: bool,
    ) {
        self.count(&peer.theirs, -1);
        self.count(&theirs, 1);
        peer.set(theirs, want);
        peer.dull = false;
        self.exhausted = false;
        if peer.seeding && !seeding {
            // Credit it still owes comes as unrequested blocks or not at all.
            peer.credit = 0;
            peer.ended = Some(now);
        }
        self.seeding = self.seeding + u32::from(seeding) - u32::from(peer.seeding);
        peer.seeding = seeding;
    }

    pub(super) fn have(&mut self, peer: &mut Neighbour, blocks: &[BlockId]) {
        for block in blocks {
            if peer.got(*block) {
                self.availability[*block as usize] += 1;
                peer.dull = false;
                self.exhausted = false;
            }
        }
    }

    /// A source that ends seeding says what it gave and is on its way.
    pub(super) fn given(
        &mut self,
        now: Time,
        from: NodeId,
        blocks: impl Iterator<Item = BlockId>,
        neighbours: &mut Neighbours,
        out: &mut Actions,
    ) {
        for block in blocks {
            // It was not asked for more.
            let owes =
                |peer: &mut Neighbour| peer.credit > 0 && peer.asked.len() < PER_NEIGHBOUR_MAX;
            if !neighbours.get_mut(from).is_some_and(owes) {
                return;
            }
            if self.requested.contains(block) {
                self.cancel_elsewhere(block, neighbours, out);
            }
            debug_assert!(!self.requested.contains(block), "it was cancelled");
            if let Some(peer) = neighbours.get_mut(from) {
                let (since, given) = (now, true);
                peer.credit -= 1;
                peer.asked.push_back(Asked {
                    block,
                    since,
                    given,
                });
                self.requested.insert(block);
                self.under_way += 1;
            }
        }
    }

    fn count(&mut self, theirs: &BlockSet, by: i16) {
        debug_assert!(
            by > 0
                || theirs
                    .iter()
                    .all(|block| self.availability[block as usize] > 0),
            "a neighbour's blocks were not counted"
        );
        if theirs.is_full() {
            // The common case of a complete neighbour needs no bit by bit.
            self.availability
                .iter_mut()
                .for_each(|n| *n = n.wrapping_add_signed(by));
        } else {
            for block in theirs.iter() {
                let n = &mut self.availability[block as usize];
                *n = n.wrapping_add_signed(by);
            }
        }
    }

    // ---- requests that come to nothing

    /// Takes back everything asked of a neighbour that went away.
    pub(super) fn forget(&mut self, peer: &mut Neighbour) {
        let theirs = std::mem::replace(&mut peer.theirs, BlockSet::new(0));
        self.count(&theirs, -1);
        self.seeding -= u32::from(peer.seeding);
        self.take_back(peer);
    }

    fn take_back(&mut self, peer: &mut Neighbour) -> Vec<BlockId> {
        let blocks: Vec<BlockId> = peer.asked.drain(..).map(|it| it.block).collect();
        for block in &blocks {
            self.release(*block);
        }
        self.freed |= !blocks.is_empty();
        peer.credit = 0;
        blocks
    }

    fn release(&mut self, block: BlockId) {
        debug_assert!(self.requested.contains(block), "{block} was not asked for");
        self.under_way -= 1;
        if self.twice.remove(&block).is_none() {
            self.requested.remove(block);
        }
    }

    pub(super) fn refused(&mut self, peer: &mut Neighbour, blocks: &[BlockId]) {
        for block in blocks {
            if let Some(at) = peer.asked.iter().position(|it| it.block == *block) {
                peer.asked.remove(at);
                self.release(*block);
                self.freed = true;
                if peer.lost(*block) {
                    self.availability[*block as usize] -= 1;
                }
            }
        }
    }

    /// Takes requests from neighbours that are silent or late.
    pub(super) fn watch(&mut self, now: Time, neighbours: &mut Neighbours, out: &mut Actions) {
        // So many requests are answered in so much time.
        let all = (self.gap > 0.0).then_some(self.gap * WINDOW_MIN as f64);
        let usual = all.map(|all| all.max(self.best_latency.unwrap_or(0.0)));
        for (node, peer) in neighbours.iter_mut() {
            let Some(since) = oldest(peer) else { continue };
            // What one takes is known from itself, or else from the others.
            let usual = if peer.latency > 0.0 {
                Some(peer.latency)
            } else {
                usual
            };
            let late = usual.map_or(LATE_AT_FIRST, |usual| {
                LATE.max(Duration::from_secs_f64(4.0 * usual))
            });
            let waited = now.since(since.max(peer.delivered));
            if now.since(peer.heard.max(since)) >= SILENCE_MAX || waited >= late {
                let blocks = self.take_back(peer);
                if !blocks.is_empty() {
                    out.send(node, &Message::Cancel { blocks });
                }
                peer.snubbed_until = Some(now + SNUB * (1 << peer.vain));
                peer.vain = (peer.vain + 1).min(VAIN_MAX);
            }
        }
    }

    // ---- arrivals

    pub(super) fn arrived(
        &mut self,
        now: Time,
        from: NodeId,
        block: BlockId,
        neighbours: &mut Neighbours,
        out: &mut Actions,
    ) {
        if let Some(last) = self.last_arrival.replace(now) {
            smooth(&mut self.gap, now.since(last).as_secs_f64().min(1.0), 0.05);
        }
        if let Some(peer) = neighbours.get_mut(from) {
            peer.heard = now;
            peer.snubbed_until = None;
            peer.vain = peer.vain.saturating_sub(1);
            if let Some(at) = peer.asked.iter().position(|it| it.block == block) {
                if let Some(Asked { since, .. }) = peer.asked.remove(at).filter(|it| !it.given) {
                    let latency = now.since(since).as_secs_f64();
                    smooth(&mut peer.latency, latency, 0.2);
                    let idle_until = peer.delivered.max(since);
                    smooth(&mut peer.pace, now.since(idle_until).as_secs_f64(), 0.2);
                    peer.came = peer.came.saturating_add(1);
                    if peer.best == 0.0 || latency < peer.best {
                        peer.best = latency;
                    }
                    self.best_latency =
                        Some(self.best_latency.map_or(latency, |best| best.min(latency)));
                }
                self.release(block);
            } else if peer.credit > 0 {
                peer.credit -= 1;
                smooth(&mut peer.gap, now.since(peer.delivered).as_secs_f64(), 0.2);
            }
            peer.delivered = now;
        }
        if self.requested.contains(block) {
            self.cancel_elsewhere(block, neighbours, out);
        }
        debug_assert!(!self.requested.contains(block), "{block} is here");
        debug_assert!(!self.twice.contains_key(&block));
    }

    fn cancel_elsewhere(&mut self, block: BlockId, neighbours: &mut Neighbours, out: &mut Actions) {
        for (node, peer) in neighbours.iter_mut() {
            if let Some(at) = peer.asked.iter().position(|it| it.block == block) {
                peer.asked.remove(at);
                self.release(block);
                out.send(
                    node,
                    &Message::Cancel {
                        blocks: vec![block],
                    },
                );
            }
        }
    }

    /// This node has everything: what is still under way is not wanted.
    pub(super) fn finish(&mut self, neighbours: &mut Neighbours, out: &mut Actions) {
        for (node, peer) in neighbours.iter_mut() {
            let blocks = self.take_back(peer);
            if !blocks.is_empty() {
                out.send(node, &Message::Cancel { blocks });
            }
        }
        debug_assert!(self.requested.is_empty(), "something is still asked for");
        debug_assert_eq!(self.under_way, 0);
    }

    // ---- asking

    /// Asks for as much of what is lacking as rate and delay call for.
    pub(super) fn fill(
        &mut self,
        now: Time,
        lacking: &BlockSet,
        neighbours: &mut Neighbours,
        random: u64,
        out: &mut Actions,
    ) {
        if std::mem::take(&mut self.freed) {
            neighbours
                .iter_mut()
                .for_each(|(_, peer)| peer.dull = false);
            self.exhausted = false;
        }
        if self.seeding > 0 {
            self.ask_sources(now, neighbours, out);
        }
        let doubtful = neighbours.iter().map(|(_, peer)| peer.doubtful());
        let window = self.window() + doubtful.sum::<usize>();
        if self.under_way >= window {
            return;
        }
        let mut asked = Vec::new();
        let mut random = random;
        while self.under_way < window && !self.exhausted {
            random = random
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            let pivot = NodeId((random >> 33) as u32 % (neighbours.len().max(1) as u32 * 2));
            let Some((node, peer)) = self.best(now, neighbours, pivot) else {
                break;
            };
            match self.pick(lacking, &peer.theirs, random >> 16) {
                Some(block) => {
                    let fresh = self.requested.insert(block);
                    debug_assert!(fresh, "block {block} is asked for twice");
                    self.request(now, node, peer, block, &mut asked);
                }
                None => peer.dull = true,
            }
        }
        if self.under_way < window && self.requested.count() >= lacking.count() {
            self.ask_again(now, neighbours, &mut asked);
        }
        asked.sort_unstable_by_key(|(node, _)| *node);
        for (node, blocks) in asked {
            if let Some(peer) = neighbours.get_mut(node) {
                peer.spoken = now;
            }
            out.send(node, &Message::Request { blocks });
        }
    }

    fn request(
        &mut self,
        now: Time,
        node: NodeId,
        peer: &mut Neighbour,
        block: BlockId,
        asked: &mut Vec<(NodeId, Vec<BlockId>)>,
    ) {
        debug_assert!(peer.theirs.contains(block), "{node} does not have {block}");
        debug_assert!(
            peer.asked.iter().all(|it| it.block != block),
            "{node} is asked for {block} twice"
        );
        let (since, given) = (now, false);
        peer.asked.push_back(Asked {
            block,
            since,
            given,
        });
        self.under_way += 1;
        // Mostly there is one block to ask for, of one neighbour.
        match asked.iter_mut().find(|(other, _)| *other == node) {
            Some((_, blocks)) => blocks.push(block),
            None => asked.push((node, vec![block])),
        }
    }

    /// How many requests are to be under way: enough for the rate over the delay.
    fn window(&self) -> usize {
        let (true, Some(best)) = (self.gap > 0.0, self.best_latency) else {
            return WINDOW_MIN;
        };
        let cover = 2.0 * best + WINDOW_SLACK_S;
        ((cover / self.gap) as usize).clamp(WINDOW_MIN, WINDOW_MAX)
    }

    /// The neighbour from which an answer is soonest expected; `pivot` breaks ties. Notes if there is
    /// none that may have something.
    fn best<'a>(
        &mut self,
        now: Time,
        neighbours: &'a mut Neighbours,
        pivot: NodeId,
    ) -> Option<(NodeId, &'a mut Neighbour)> {
        let unknown = self.best_latency.unwrap_or(0.01);
        let expect = |peer: &Neighbour| {
            let latency = if peer.latency > 0.0 {
                peer.latency
            } else {
                unknown
            };
            latency * (peer.asked.len() + 1) as f64
        };
        let is_free = self.askable == usize::MAX || {
            let is_asked = |peer: &Neighbour| !peer.asked.is_empty() && peer.theirs.is_full();
            let asked = neighbours.iter().filter(|(_, peer)| is_asked(peer));
            asked.count() < self.askable
        };
        let is_only = neighbours
            .iter()
            .filter(|(_, peer)| !peer.is_snubbed(now))
            .count()
            < 2;
        let allowance = |peer: &Neighbour| match is_only {
            true => PER_NEIGHBOUR_MAX,
            false => peer.allowance(),
        };
        let may = |peer: &Neighbour| {
            (is_free || !peer.theirs.is_full() || !peer.asked.is_empty())
                && !self.is_early(now, peer)
                && peer.asked.len() < allowance(peer)
                && !peer.is_snubbed(now)
        };
        let mut exhausted = true;
        let best = neighbours
            .iter()
            .filter(|(_, peer)| !peer.dull && !peer.seeding)
            .inspect(|_| exhausted = false)
            .filter(|(_, peer)| may(peer))
            .map(|(node, peer)| (expect(peer), node < pivot, node))
            .min_by(|(x, after_x, a), (y, after_y, b)| {
                x.total_cmp(y).then_with(|| (after_x, a).cmp(&(after_y, b)))
            });
        self.exhausted = exhausted;
        let (_, _, node) = best?;
        neighbours.get_mut(node).map(|peer| (node, peer))
    }

    /// Whether it is too early to request from a source that has just ended seeding: others are
    /// about to end it, too, and to say what is on its way.
    fn is_early(&self, now: Time, peer: &Neighbour) -> bool {
        let just = |ended: Time| now.since(ended) < ENDS_WITHIN;
        self.seeding > 0 && peer.ended.is_some_and(just)
    }

    /// A rare one among the lacking blocks that a neighbour has and that are not asked for.
    fn pick(&self, lacking: &BlockSet, theirs: &BlockSet, random: u64) -> Option<BlockId> {
        let words = theirs.words();
        // Late in a transfer there are many words to look at for each request: where they can be
        // had at once, how a set is kept is looked at once.
        match [theirs, lacking, &self.requested].map(BlockSet::as_words) {
            [Some(theirs), Some(lacking), Some(asked)] => {
                // Of one length, which is looked at once.
                let [theirs, lacking, asked] = [theirs, lacking, asked].map(|set| &set[..words]);
                self.rare(words, random, |at| theirs[at] & lacking[at] & !asked[at])
            }
            _ => self.rare(words, random, |at| {
                theirs.word(at) & lacking.word(at) & !self.requested.word(at)
            }),
        }
    }

    /// A rare one among the blocks that `word` gives, of which not all are looked at.
    fn rare(&self, words: usize, random: u64, word: impl Fn(usize) -> u64) -> Option<BlockId> {
        let start = (random as usize) % words.max(1);
        // Start inside the word, too, or low blocks of it would always win.
        let turn = (random >> 32) as u32 % 64;
        let mut best: Option<(u16, BlockId)> = None;
        let mut seen = 0;
        'looking: for part in [start..words, 0..start] {
            for index in part {
                let mut word = word(index).rotate_right(turn);
                while word != 0 {
                    let bit = (word.trailing_zeros() + turn) % 64;
                    word &= word - 1;
                    let block = index as u32 * 64 + bit;
                    let rarity = self.availability[block as usize];
                    if best.is_none_or(|(least, _)| rarity < least) {
                        best = Some((rarity, block));
                    }
                    seen += 1;
                }
                if seen >= LOOK {
                    break 'looking;
                }
            }
        }
        debug_assert!(best.is_none_or(|(rarity, _)| rarity > 0), "no node has it");
        best.map(|(_, block)| block)
    }

    /// Everything missing is asked for: asks for what is late a second time.
    fn ask_again(
        &mut self,
        now: Time,
        neighbours: &mut Neighbours,
        asked: &mut Vec<(NodeId, Vec<BlockId>)>,
    ) {
        let late: Vec<(BlockId, NodeId)> = neighbours
            .iter()
            .flat_map(|(node, peer)| {
                let usual = Duration::from_secs_f64(
                    1.5 * peer.latency.max(self.best_latency.unwrap_or(0.0)),
                );
                peer.asked
                    .iter()
                    .filter(move |it| now.since(it.since) > usual)
                    .map(move |it| (it.block, node))
            })
            .filter(|(block, _)| !self.twice.contains_key(block))
            .take(AGAIN_MAX.saturating_sub(self.twice.len()))
            .collect();
        for (block, holder) in late {
            let other = neighbours
                .iter_mut()
                .filter(|(node, peer)| {
                    *node != holder
                        && peer.theirs.contains(block)
                        && !peer.is_snubbed(now)
                        && !self.is_early(now, peer)
                })
                .min_by_key(|(_, peer)| (peer.vain, !peer.has_delivered(), peer.asked.len()));
            if let Some((node, peer)) = other
                && peer.asked.len() < AGAIN_MAX
                && self.twice.insert(block, ()).is_none()
            {
                self.request(now, node, peer, block, asked);
            }
        }
    }

    /// Keeps blocks coming from seeding sources.
    fn ask_sources(&self, now: Time, neighbours: &mut Neighbours, out: &mut Actions) {
        for (node, peer) in neighbours.iter_mut() {
            if !peer.seeding || peer.is_snubbed(now) {
                continue;
            }
            let cover = if peer.gap > 0.0 {
                ((2.0 * self.best_latency.map_or(1.0, |best| best.min(1.0)) + WINDOW_SLACK_S)
                    / peer.gap) as u32
            } else {
                0
            };
            let credit = cover.clamp(CREDIT_MIN, CREDIT_MAX);
            // Asking one by one would double the messages; ask when half is used up.
            if peer.credit <= credit / 2 {
                if peer.credit == 0 {
                    peer.delivered = now;
                }
                peer.spoken = now;
                out.send(
                    node,
                    &Message::Ask {
                        blocks: credit - peer.credit,
                    },
                );
                peer.credit = credit;
            }
        }
    }
}

/// Since when a neighbour owes something.
fn oldest(peer: &Neighbour) -> Option<Time> {
    let asked = peer.asked.front().map(|it| it.since);
    let credit = (peer.credit > 0).then_some(peer.delivered);
    asked.into_iter().chain(credit).min()
}

fn smooth(value: &mut f64, sample: f64, weight: f64) {
    debug_assert!(sample.is_finite());
    debug_assert!(sample >= 0.0);
    let weight = if *value == 0.0 { 1.0 } else { weight };
    *value += weight * (sample - *value);
}
