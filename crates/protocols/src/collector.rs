//! What a driver of a coded transfer keeps of a batch that is not whole, and what follows from it.
//!
//! A [`Collector`] decides which packets are of use, when a batch can be decoded, what is left to
//! do when it was decoded to wrong bytes, which senders are convicted for that, and what packets may
//! be made of. A [`Window`] bounds how many batches are collected at once. Both know coefficients and
//! no payload: what a driver has beside the coefficients it keeps in its [`Rows`], the agent bytes,
//! the simulator a mark. Neither waits or reads; a driver that shares them between threads locks them.

mod window;

use std::sync::Arc;

use outpour_core::{Holding, NodeId, Support, Worth};

pub use window::Window;

/// Independent packets of one batch: their coefficients, and what a driver has beside them.
pub trait Rows {
    /// What a packet has beside its coefficients.
    type Payload;

    /// Keeps a packet if its coefficients are independent of those kept, and says whether they are;
    /// what is beside them is made only then.
    fn insert(&mut self, coefficients: &[u8], payload: impl FnOnce() -> Self::Payload) -> bool;

    /// How many packets are kept.
    fn rank(&self) -> usize;

    /// The blocks that occur in any of them.
    fn support(&self) -> Support;
}

/// The maker of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Maker {
    /// The peer that sent it.
    pub node: NodeId,
    /// Whether it said that it made it of verified blocks alone.
    pub pure: bool,
}

/// The packets kept of a batch, each with its maker; a verified block is a packet without a
/// maker.
#[derive(Debug)]
pub struct Packets<R> {
    rows: R,
    makers: Vec<Option<Maker>>,
}

/// What is here of one batch.
#[derive(Debug)]
pub struct Collector<R> {
    /// How many blocks the batch has.
    size: u16,
    /// Its blocks that are verified and stored, by their places, once it is open.
    here: Support,
    state: State<R>,
}

#[derive(Debug)]
enum State<R> {
    /// Nothing was looked at yet.
    New,
    /// Packets are collected.
    Open(Packets<R>),
    /// It is being decoded.
    Decoding(Arc<Packets<R>>),
    /// It was decoded to something else than it should have been: blocks are collected, and the
    /// packets are kept as evidence.
    Spoiled(Arc<Packets<R>>),
    /// It is whole: a late packet changes nothing.
    Whole,
}

/// What came of a packet or a block.
#[derive(Debug)]
pub struct Taken<R> {
    /// What it was worth, and what is here of the batch now; `None` if that does not matter.
    pub told: Option<(Worth, Holding)>,
    /// What is to be done.
    pub next: Next<R>,
}

/// What is to be done about a batch.
#[derive(Debug)]
pub enum Next<R> {
    /// Nothing.
    Nothing,
    /// All of it can be decoded; [`Collector::settle`] is to be told the result.
    Decode(Arc<Packets<R>>),
    /// All its blocks are here. These packets, if any, are to be compared with them, and those
    /// [convicted](Packets::convict) whose packets are wrong.
    Whole(Option<Arc<Packets<R>>>),
}

/// What packets can be made of.
#[derive(Debug)]
pub enum Basis<'a, R> {
    /// All blocks of the batch.
    Whole,
    /// Packets.
    Packets(&'a Packets<R>),
    /// The verified blocks; if given, all of them are among these packets, those without a maker.
    Blocks(Option<&'a Packets<R>>),
}

impl<R: Rows> Collector<R> {
    /// A batch of so many blocks, of which nothing was looked at yet.
    pub const fn new(size: u16) -> Self {
        let (here, state) = (Support::EMPTY, State::New);
        Self { size, here, state }
    }

    /// Whether it has to be [opened](Self::open) before anything can be taken.
    pub const fn is_new(&self) -> bool {
        matches!(self.state, State::New)
    }

    /// Begins with the verified blocks that are `here`; what is beside the coefficients of those
    /// that can be read comes with their places. A block that is about to be
    /// [taken](Self::take_block) is not among them.
    pub fn open(
        &mut self,
        rows: R,
        here: Support,
        blocks: impl IntoIterator<Item = (usize, R::Payload)>,
    ) {
        debug_assert!(self.is_new());
        debug_assert_eq!(rows.rank(), 0);
        debug_assert!(rows.support().is_empty());
        let makers = Vec::new();
        let mut packets = Packets { rows, makers };
        for (place, payload) in blocks {
            debug_assert!(
                Support::from_iter([place]).is_subset(here),
                "{place} is not here"
            );
            let kept = packets.add_block(self.size, place, || payload);
            debug_assert!(kept, "{place} came twice");
        }
        self.here = here;
        self.state = State::Open(packets);
        self.check();
    }

    /// What holds between any two calls.
    fn check(&self) {
        debug_assert!(self.here.is_subset(Support::first(self.size)));
        match &self.state {
            State::New => debug_assert!(self.here.is_empty()),
            State::Open(packets) => {
                debug_assert!(packets.rows.rank() <= usize::from(self.size));
                debug_assert!(packets.blocks() <= usize::from(self.here.len()));
            }
            State::Decoding(packets) => {
                debug_assert_eq!(packets.rows.rank(), usize::from(self.size));
            }
            State::Spoiled(packets) => {
                debug_assert_eq!(packets.rows.rank(), usize::from(self.size));
                debug_assert!(
                    self.here.len() < self.size,
                    "it is whole and not said to be"
                );
            }
            State::Whole => {}
        }
    }

    /// Takes a packet that a peer made. It is of no use if nothing is told.
    pub fn take_packet(
        &mut self,
        maker: Maker,
        coefficients: &[u8],
        payload: impl FnOnce() -> R::Payload,
    ) -> Taken<R> {
        debug_assert!(!self.is_new());
        debug_assert_eq!(coefficients.len(), usize::from(self.size));
        let useless = if coefficients.iter().all(|coefficient| *coefficient == 0) {
            Worth::Zero
        } else {
            Worth::Dependent
        };
        match &mut self.state {
            State::New | State::Spoiled(_) | State::Whole => Taken::nothing(),
            // Its rank is full.
            State::Decoding(packets) => Taken {
                told: Some((useless, packets.holding())),
                next: Next::Nothing,
            },
            State::Open(packets) => {
                let worth = match packets.add(coefficients, Some(maker), payload) {
                    true => Worth::Innovative,
                    false => useless,
                };
                debug_assert!(worth != Worth::Innovative || useless != Worth::Zero);
                let told = Some((worth, packets.holding()));
                let next = self.after_growth();
                self.check();
                Taken { told, next }
            }
        }
    }

    /// Takes a verified block that was just stored, by its place.
    pub fn take_block(&mut self, place: usize, payload: impl FnOnce() -> R::Payload) -> Taken<R> {
        debug_assert!(!self.is_new());
        debug_assert!(place < usize::from(self.size));
        self.here.insert(place);
        // Decoding finds that it is here.
        if matches!(self.state, State::Decoding(_) | State::Whole) {
            return Taken::nothing();
        }
        if self.here.len() == self.size {
            let evidence = match std::mem::replace(&mut self.state, State::Whole) {
                State::Spoiled(packets) => Some(packets),
                _ => None,
            };
            let next = Next::Whole(evidence);
            return Taken { told: None, next };
        }
        let State::Open(packets) = &mut self.state else {
            return Taken::nothing();
        };
        let worth = match packets.add_block(self.size, place, payload) {
            true => Worth::Innovative,
            false => Worth::Dependent,
        };
        let told = Some((worth, packets.holding()));
        let next = self.after_growth();
        self.check();
        Taken { told, next }
    }

    fn after_growth(&mut self) -> Next<R> {
        match std::mem::replace(&mut self.state, State::Whole) {
            State::Open(packets) if packets.rows.rank() == usize::from(self.size) => {
                let packets = Arc::new(packets);
                self.state = State::Decoding(packets.clone());
                Next::Decode(packets)
            }
            state => {
                self.state = state;
                Next::Nothing
            }
        }
    }

    /// Takes note that the batch was decoded, and which blocks came to be here by that; whether any
    /// of those that lacked was not what the manifest says.
    pub fn settle(&mut self, fresh: impl IntoIterator<Item = usize>, spoiled: bool) -> Next<R> {
        let State::Decoding(packets) = std::mem::replace(&mut self.state, State::Whole) else {
            debug_assert!(false, "a batch is settled that is not being decoded");
            return Next::Nothing;
        };
        for place in fresh {
            debug_assert!(place < usize::from(self.size));
            self.here.insert(place);
        }
        if spoiled && self.here.len() < self.size {
            self.state = State::Spoiled(packets);
            self.check();
            return Next::Nothing;
        }
        Next::Whole(spoiled.then_some(packets))
    }

    /// What packets can be made of now, pure ones or any.
    pub fn basis(&self, pure: bool) -> Basis<'_, R> {
        match &self.state {
            State::Whole => Basis::Whole,
            State::Open(packets) if !pure => Basis::Packets(packets),
            State::Decoding(packets) if !pure => Basis::Packets(packets),
            State::Open(packets) => {
                // One that said nothing new when it came is not among them.
                let all = packets.blocks() == usize::from(self.here.len());
                Basis::Blocks(all.then_some(packets))
            }
            State::New | State::Decoding(_) | State::Spoiled(_) => Basis::Blocks(None),
        }
    }

    /// Whether all that is here of the batch is stored as blocks, so that nothing is lost with this.
    pub fn is_stored(&self) -> bool {
        match &self.state {
            State::New | State::Whole => true,
            State::Open(packets) => packets.makers.iter().all(Option::is_none),
            State::Decoding(_) | State::Spoiled(_) => false,
        }
    }
}

impl<R> Taken<R> {
    const fn nothing() -> Self {
        let (told, next) = (None, Next::Nothing);
        Self { told, next }
    }
}

/// What verified blocks alone amount to, by their places in the batch.
pub fn holding_of(blocks: Support) -> Holding {
    Holding {
        rank: blocks.len(),
        support: blocks,
    }
}

impl<R: Rows> Packets<R> {
    /// The packets.
    pub const fn rows(&self) -> &R {
        &self.rows
    }

    /// The maker of each packet, in the order in which they were kept.
    pub fn makers(&self) -> impl Iterator<Item = Option<Maker>> {
        self.makers.iter().copied()
    }

    /// What they amount to.
    pub fn holding(&self) -> Holding {
        let holding = Holding {
            rank: self.rows.rank() as u16,
            support: self.rows.support(),
        };
        debug_assert!(holding.rank <= holding.support.len());
        holding
    }

    /// The packets that peers said to be pure, by their numbers in the order in which they were
    /// kept: those that prove something about their makers.
    pub fn pure(&self) -> impl Iterator<Item = usize> {
        let pure = |maker: &Option<Maker>| maker.is_some_and(|maker| maker.pure);
        (0..)
            .zip(&self.makers)
            .filter(move |(_, it)| pure(it))
            .map(|(number, _)| number)
    }

    /// The senders to be cut off, once the blocks are known, if these packets are not what they should
    /// be: each once, and none for a packet that is not pure.
    pub fn convict(&self, wrong: impl Fn(usize) -> bool) -> Vec<NodeId> {
        let mut convicted = Vec::new();
        for number in self.pure().filter(|number| wrong(*number)) {
            if let Some(Some(maker)) = self.makers.get(number)
                && !convicted.contains(&maker.node)
            {
                convicted.push(maker.node);
            }
        }
        convicted
    }

    /// How many of them are blocks.
    fn blocks(&self) -> usize {
        self.makers.iter().filter(|maker| maker.is_none()).count()
    }

    /// Keeps a packet if it is innovative; whether it is.
    fn add(
        &mut self,
        coefficients: &[u8],
        maker: Option<Maker>,
        payload: impl FnOnce() -> R::Payload,
    ) -> bool {
        let kept = self.rows.insert(coefficients, payload);
        if kept {
            self.makers.push(maker);
        }
        debug_assert_eq!(self.rows.rank(), self.makers.len());
        debug_assert!(self.makers.len() <= coefficients.len());
        kept
    }

    fn add_block(&mut self, size: u16, place: usize, payload: impl FnOnce() -> R::Payload) -> bool {
        debug_assert!(place < usize::from(size));
        let mut unit = vec![0; usize::from(size)];
        if let Some(one) = unit.get_mut(place) {
            *one = 1;
        }
        self.add(&unit, None, payload)
    }
}

#[cfg(test)]
mod tests;
