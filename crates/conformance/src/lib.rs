//! Holds drivers of the protocols against what the contract in `outpour-protocols` says that
//! drivers owe.
//!
//! A [`Case`] is a few nodes whose protocols follow a script, and what must have happened to them
//! in the end. [`run`] has a [`Driver`] play every case. All that the nodes' protocols are told, and
//! all that they want done, is on a [`Record`], whose audit checks what must hold in
//! every case. The simulator and the agent each have a driver among their tests, so that the same
//! cases hold for virtual time and for real sockets.

mod audit;
mod cases;
mod play;
mod record;
mod script;

use outpour_core::NodeId;

pub use play::{Play, Wish};
pub use record::{Heard, Line, Record, What};
pub use script::Turn;

/// What a node is in a case.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// It has the object.
    Source,
    /// It has nothing of it.
    Receiver,
    /// It has another object of the same shape: whatever it sends is wrong.
    Liar,
}

impl Part {
    /// Whether the node says that it has the whole object.
    pub const fn has_all(self) -> bool {
        matches!(self, Self::Source | Self::Liar)
    }
}

/// How many blocks the object of every case has.
pub const BLOCKS: u32 = 16;
/// How many bytes each of them has.
pub const BLOCK_BYTES: u32 = 16 << 10;
/// How many blocks a batch has where the object is coded.
pub const BATCH_BLOCKS: u16 = 4;

/// One line of the contract as a scene in which it matters.
#[derive(Debug)]
pub struct Case {
    /// What is held against the driver, as one would name a test.
    pub name: &'static str,
    /// The nodes, in the order of their numbers.
    pub parts: &'static [Part],
    /// Whether the object is coded.
    pub coded: bool,
    /// What a node's protocol does about what it is told.
    act: fn(&mut Turn<'_>, &Heard),
    /// What must have come of it, beyond what holds in every case.
    check: fn(&Record) -> Result<(), String>,
}

/// One node told the coordinator that a peer broke the protocol or sent wrong bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Accusation {
    /// Which node says so.
    pub by: NodeId,
    /// Of which node.
    pub peer: NodeId,
}

/// A driver that is tested.
pub trait Driver {
    /// Has the nodes of a case play it, with [`Play::protocol`] as their protocol, until
    /// [`Play::is_over`], and grants what the script [wishes](Play::next_wish) for meanwhile. Returns what
    /// the coordinator was told, or would have been.
    ///
    /// # Errors
    /// If the play does not come to its end in reasonable time, or cannot be played.
    fn drive(&self, play: &Play) -> Result<Vec<Accusation>, String>;
}

/// Every case.
pub fn cases() -> impl Iterator<Item = &'static Case> {
    cases::ALL.iter().copied().flatten()
}

/// Has a driver play every case; says what it owes and does not keep, one line for each case.
pub fn run(driver: &dyn Driver) -> Vec<String> {
    cases()
        .filter_map(|case| {
            let failed = |error| format!("{}: {error}", case.name);
            play(driver, case).err().map(failed)
        })
        .collect()
}

fn play(driver: &dyn Driver, case: &'static Case) -> Result<(), String> {
    let play = Play::new(case);
    let driven = driver.drive(&play);
    let mut record = play.end();
    let shown = |error: String| format!("{error}\n{record}", record = play.end());
    record.accusations = driven.map_err(&shown)?;
    record.audit().map_err(&shown)?;
    (case.check)(&record).map_err(shown)
}
