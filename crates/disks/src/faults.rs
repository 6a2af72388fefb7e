//! What goes wrong with a disk, and how often.

use crate::simulated::dice::Dice;

macro_rules! faults {
    ($($name:ident = $text:literal,)*) => {
        /// What a disk does that no store can wish for.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Fault {
            $(#[doc = $text] $name,)*
        }

        impl Fault {
            /// All of them.
            pub const ALL: [Self; FAULTS] = [$(Self::$name,)*];

            /// What it is called in tables.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$name => $text,)* }
            }
        }

        const FAULTS: usize = [$($text,)*].len();
    };
}

faults! {
    Kill = "process killed",
    Cut = "power cut",
    LostPage = "page lost in a cut",
    TornPage = "page torn in a cut",
    LostChange = "name, size or mode lost in a cut",
    Stale = "page of stale data after a cut",
    Call = "call fails with EIO",
    Full = "call fails with ENOSPC",
    Interrupted = "call is interrupted",
    Short = "read or write is short",
    Sync = "sync fails once, its pages are dropped",
    SyncFull = "sync fails with ENOSPC, its pages are dropped",
    Background = "writing in the background fails",
    Lie = "sync says that it is done and is not",
    Rot = "bit flips on the medium",
    Misread = "read returns another bit once",
    Evicted = "page dropped from memory and read again",
    Between = "write or read during a sync",
}

/// How often each fault was met.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Met([u64; FAULTS]);

impl Met {
    /// How often one was.
    pub const fn of(&self, fault: Fault) -> u64 {
        self.0[fault as usize]
    }

    pub(crate) const fn note(&mut self, fault: Fault) {
        self.0[fault as usize] += 1;
    }

    /// Adds what another has met.
    pub fn add(&mut self, other: &Self) {
        for (all, more) in self.0.iter_mut().zip(other.0) {
            *all += more;
        }
    }

    /// How many there were of some.
    pub(crate) fn sum(&self, faults: &[Fault]) -> u64 {
        faults.iter().map(|fault| self.of(*fault)).sum()
    }

    /// Whether there were any of some.
    pub(crate) fn any(&self, faults: &[Fault]) -> bool {
        self.sum(faults) > 0
    }
}

/// Which faults strike: each once in so many calls where it can; zero is never.
#[derive(Clone, Debug, Default)]
pub(crate) struct Plan {
    rates: [u64; FAULTS],
    /// How many may strike yet that make a call fail or lie.
    pub(crate) budget: u64,
    /// From which call on none strikes any more.
    pub(crate) until: u64,
    /// How many crashes there are yet.
    pub(crate) crashes: u64,
}

impl Plan {
    pub(crate) const fn rate(&self, fault: Fault) -> u64 {
        self.rates[fault as usize]
    }

    const fn set(&mut self, fault: Fault, rate: u64) {
        self.rates[fault as usize] = rate;
    }

    /// What may happen to a healthy disk only.
    pub(crate) fn healthy(dice: &mut Dice) -> Self {
        let mut plan = Self {
            until: u64::MAX,
            ..Self::default()
        };
        if dice.once_in(2) {
            plan.set(Fault::Evicted, *dice.one(&[5, 50, 500]));
        }
        if dice.once_in(2) {
            plan.set(Fault::Between, *dice.one(&[2, 10]));
        }
        if dice.once_in(4) {
            plan.set(Fault::Short, *dice.one(&[5, 50]));
            plan.set(Fault::Interrupted, *dice.one(&[5, 50]));
        }
        plan
    }

    /// Draws what happens to a disk that is only read, and not by who writes to it as well.
    pub(crate) fn of_source(dice: &mut Dice) -> Self {
        let mut plan = Self::healthy(dice);
        if dice.once_in(4) {
            plan.budget = dice.between(1, 3);
            plan.set(Fault::Call, *dice.one(&[30, 100, 400]));
            plan.set(Fault::Misread, *dice.one(&[10, 40, 150]));
        }
        plan
    }

    /// Draws one of the sorts of trouble.
    pub(crate) fn draw(dice: &mut Dice) -> Self {
        let mut plan = Self::healthy(dice);
        let sort = dice.below(8);
        if sort > 0 {
            plan.budget = dice.between(1, 6);
            plan.until = dice.between(50, 2000);
            plan.crashes = dice.between(u64::from(sort < 3), 3);
        }
        let faults: &[Fault] = match sort {
            // None, or crashes alone.
            0..3 => &[],
            3 => &[Fault::Sync, Fault::SyncFull, Fault::Background],
            4 => &[Fault::Call, Fault::Full, Fault::Sync, Fault::SyncFull],
            5 => &[Fault::Lie],
            6 => &[Fault::Rot, Fault::Misread],
            _ => &[
                Fault::Call,
                Fault::Full,
                Fault::Sync,
                Fault::SyncFull,
                Fault::Background,
                Fault::Lie,
                Fault::Rot,
                Fault::Misread,
            ],
        };
        for fault in faults {
            if faults.len() == 1 || dice.once_in(2) {
                // There are fewer syncs than other calls.
                let rates: &[u64] = match fault {
                    Fault::Sync | Fault::SyncFull | Fault::Lie => &[1, 3, 10],
                    Fault::Misread => &[10, 40, 150],
                    _ => &[30, 100, 400],
                };
                plan.set(*fault, *dice.one(rates));
            }
        }
        if dice.once_in(3) {
            plan.set(Fault::Stale, 2);
        }
        plan
    }
}
