//! Which symbol is next.

use std::collections::VecDeque;

use crate::{AHEAD_MAX, Ack, Assignment, Error, Layout, SEATS_MAX, SYMBOL_NUMBERS};

/// A symbol of an object.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) block: u32,
    pub(super) symbol: u32,
}

/// A symbol to send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Next {
    pub(super) place: Place,
    /// Whether it was sent before.
    pub(super) is_repeat: bool,
}

/// What a flow still has to send.
#[derive(Debug)]
pub(super) enum Work {
    Rateless(Rateless),
    Share(Share),
}

impl Work {
    pub(super) fn new(seat: u32, layout: Layout, assignment: Assignment) -> Result<Self, Error> {
        match assignment {
            Assignment::Rateless { seats, sources } => {
                let is_fine = (1..=SEATS_MAX).contains(&seats);
                Error::check("seats", seats.into(), is_fine, "1 to 256")?;
                Error::check(
                    "seat",
                    seat.into(),
                    seat < seats,
                    "below the number of seats",
                )?;
                let is_fine = (1..=seats).contains(&sources);
                Error::check(
                    "sources",
                    sources.into(),
                    is_fine,
                    "1 to the number of seats",
                )?;
                Ok(Self::Rateless(Rateless {
                    layout,
                    seat,
                    seats,
                    sources,
                    floor: 0,
                    open: VecDeque::new(),
                    hint: None,
                    exhausted: None,
                }))
            }
            Assignment::Share { first, count } => {
                let end = first
                    .checked_add(count)
                    .filter(|it| *it <= layout.symbols());
                let is_fine = count > 0 && end.is_some();
                Error::check(
                    "count",
                    count as f64,
                    is_fine,
                    "symbols that the object has",
                )?;
                Ok(Self::Share(Share {
                    layout,
                    next: first,
                    end: first + count,
                    missing: count,
                    lost: VecDeque::new(),
                    floor: 0,
                }))
            }
        }
    }

    /// The first block that is not decoded, as far as it was told.
    pub(super) fn floor(&self) -> u32 {
        match self {
            Self::Rateless(it) => it.floor,
            Self::Share(it) => it.floor,
        }
    }

    /// Whether there is nothing left to do for the receiver.
    pub(super) fn is_done(&self) -> bool {
        match self {
            Self::Rateless(it) => it.floor == it.layout.blocks(),
            Self::Share(it) => it.missing == 0 || it.floor == it.layout.blocks(),
        }
    }

    /// The symbol to send next, if any should be sent now; counts as sent.
    pub(super) fn next(&mut self) -> Option<Next> {
        match self {
            Self::Rateless(it) => it.next(),
            Self::Share(it) => it.next(),
        }
    }

    /// The block of which every symbol was sent although more are needed, if there is one.
    pub(super) fn exhausted(&self) -> Option<u32> {
        match self {
            Self::Rateless(it) => it.exhausted,
            Self::Share(_) => None,
        }
    }

    /// A packet in flight was acknowledged.
    pub(super) fn on_acked(&mut self, place: Place) {
        match self {
            Self::Rateless(it) => it.land(place.block),
            Self::Share(it) => {
                debug_assert!(it.missing > 0, "more arrived than the share has");
                it.missing -= 1;
            }
        }
    }

    /// A packet in flight was taken for lost.
    pub(super) fn on_lost(&mut self, place: Place) {
        match self {
            Self::Rateless(it) => it.land(place.block),
            Self::Share(it) => it.lost.push_back(place),
        }
    }

    /// The receiver says how far it is. The caller has checked that it speaks of blocks that there are.
    pub(super) fn on_told(&mut self, ack: &Ack) {
        match self {
            Self::Rateless(it) => it.on_told(ack),
            Self::Share(it) => it.on_told(ack),
        }
    }

    /// How many packets in flight carry symbols that may still be needed; for checks.
    pub(super) fn in_flight(&self) -> u32 {
        match self {
            Self::Rateless(it) => it.open.iter().map(|it| it.in_flight).sum(),
            Self::Share(_) => 0,
        }
    }
}

/// Coded symbols, new ones for ever.
#[derive(Debug)]
pub(super) struct Rateless {
    layout: Layout,
    seat: u32,
    seats: u32,
    sources: u32,
    /// The first block that is not decoded.
    floor: u32,
    /// It and those after it that were begun.
    open: VecDeque<Open>,
    /// How much is needed of a block that was not begun when it was told: block, symbols, and the packet
    /// number that it was told for.
    hint: Option<(u32, u32, u64)>,
    exhausted: Option<u32>,
}

/// A block that was begun.
#[derive(Debug)]
struct Open {
    /// How many symbols the receiver needs from this sender, as last told.
    needed: u32,
    /// The packet number that it was told for; what was told for an earlier one is out of date.
    told: u64,
    in_flight: u32,
    /// The symbol to send next.
    symbol: u32,
}

impl Rateless {
    /// The first block that more is needed of than is on its way: a sender moves on to a later block while
    /// more packets of this one are in flight than the receiver needs from it [PPUSH §III-A].
    fn next(&mut self) -> Option<Next> {
        for (index, open) in self.open.iter_mut().enumerate() {
            if open.needed > 0 && open.in_flight <= open.needed {
                let block = self.floor + index as u32;
                if open.symbol >= SYMBOL_NUMBERS {
                    self.exhausted = Some(block);
                    return None;
                }
                return Some(open.send(block, self.seats));
            }
        }
        let block = self.floor + self.open.len() as u32;
        if block >= self.layout.blocks() || self.open.len() >= AHEAD_MAX as usize {
            return None;
        }
        let symbols = self.layout.symbols_of(block);
        debug_assert!(symbols > 0, "a block without symbols");
        let all = (symbols + 2).div_ceil(self.sources);
        let (needed, told) = match self.hint {
            Some((of, needed, told)) if of == block => (needed, told),
            _ => (all, 0),
        };
        let mut open = Open {
            needed,
            told,
            in_flight: 0,
            symbol: self.seat,
        };
        if needed == 0 {
            // Others have sent it whole, though not yet those before it.
            self.open.push_back(open);
            return self.next();
        }
        let next = open.send(block, self.seats);
        self.open.push_back(open);
        Some(next)
    }

    fn land(&mut self, block: u32) {
        // Packets of blocks that are decoded land unseen.
        debug_assert!(self.floor <= self.layout.blocks());
        let index = block.checked_sub(self.floor);
        if let Some(open) = index.and_then(|it| self.open.get_mut(it as usize)) {
            debug_assert!(open.in_flight > 0, "a packet landed twice");
            open.in_flight -= 1;
        }
    }

    fn on_told(&mut self, ack: &Ack) {
        debug_assert!(ack.block < self.layout.blocks() && ack.floor <= self.layout.blocks());
        while self.floor < ack.floor {
            self.floor += 1;
            if self.open.pop_front().is_none() {
                // Blocks that others have sent whole.
                self.floor = ack.floor;
            }
        }
        debug_assert!(
            self.floor >= ack.floor,
            "blocks that are decoded are still open"
        );
        self.set_needed(ack.block, ack.needed, ack.number);
        if let Some(next) = ack
            .block
            .checked_add(1)
            .filter(|it| *it < self.layout.blocks())
        {
            self.set_needed(next, ack.needed_next, ack.number);
        }
    }

    /// The receiver needs so much of a block, as told for a packet number.
    fn set_needed(&mut self, block: u32, needed: u32, told: u64) {
        let Some(index) = block.checked_sub(self.floor) else {
            return;
        };
        // Who says it needs more than the block has would have us send for ever without acknowledgement.
        let needed = needed.min(self.layout.symbols_of(block) + 2);
        match self.open.get_mut(index as usize) {
            // What is decoded stays so, whatever comes late.
            Some(open) if told >= open.told && open.needed > 0 => {
                open.told = told;
                open.needed = needed;
            }
            Some(_) => {}
            None if self.hint.is_none_or(|it| told >= it.2) => {
                self.hint = Some((block, needed, told));
            }
            None => {}
        }
    }
}

impl Open {
    fn send(&mut self, block: u32, seats: u32) -> Next {
        let symbol = self.symbol;
        debug_assert!(symbol < SYMBOL_NUMBERS);
        debug_assert!(seats > 0, "the same symbol for ever");
        self.symbol += seats;
        self.in_flight += 1;
        Next {
            place: Place { block, symbol },
            is_repeat: false,
        }
    }
}

/// A range of source symbols, each until it is acknowledged.
#[derive(Debug)]
pub(super) struct Share {
    layout: Layout,
    /// The first that was never sent.
    next: u64,
    end: u64,
    /// How many are not acknowledged.
    missing: u64,
    /// To be sent again. Never longer than the flight was: what was lost goes before what is new.
    lost: VecDeque<Place>,
    floor: u32,
}

impl Share {
    fn next(&mut self) -> Option<Next> {
        debug_assert!(self.lost.len() <= crate::FLIGHT_MAX as usize);
        // What was lost of a block that is decoded, as the packet was only late, is not missing.
        while let Some(place) = self.lost.pop_front() {
            if place.block >= self.floor {
                return Some(Next {
                    place,
                    is_repeat: true,
                });
            }
            self.missing -= 1;
        }
        if self.next >= self.end {
            return None;
        }
        debug_assert!(self.missing > 0, "a share that is there is sent");
        let (block, symbol) = self.layout.place(self.next);
        self.next += 1;
        Some(Next {
            place: Place { block, symbol },
            is_repeat: false,
        })
    }

    /// The receiver says how far it is. Another flow may have delivered some of the share before this one began.
    fn on_told(&mut self, ack: &Ack) {
        self.floor = self.floor.max(ack.floor);
        let size = u64::from(self.layout.block_symbols());
        self.skip_to(u64::from(self.floor) * size);
        let mut block = ack.block;
        for needed in [ack.needed, ack.needed_next] {
            let is_next = u64::from(block) == self.next / size;
            if needed == 0 && is_next {
                self.skip_to((u64::from(block) + 1) * size);
            }
            block = block.saturating_add(1);
        }
    }

    /// What was not sent yet of the symbols before `to` is there already.
    fn skip_to(&mut self, to: u64) {
        let to = to.min(self.end);
        if let Some(count) = to.checked_sub(self.next) {
            debug_assert!(count <= self.missing, "more is there than was missing");
            self.next = to;
            self.missing -= count;
        }
    }
}
