//! `mob`: the nodes of each cluster fetch equal shares of an object and exchange them.
//!
//! The module `team` says how. A node fetches the blocks of its share ([Burger §4.3.1], eq. 4.7)
//! from nodes of the same rank in other clusters. All nodes of a cluster fetch as much,
//! so the slowest of them holds up the others; `robber` mends that.

use crate::Protocol;
use crate::registry::{Entry, NO_OPTIONS, PlanFrom, USUAL_BLOCKS};
use crate::team::{Kind, Team};

/// The registry's line.
pub const ENTRY: Entry = Entry {
    name: "mob",
    about: "each cluster fetches every block once; its nodes take equal shares",
    baseline: true,
    plan: PlanFrom::Nowhere,
    selective: false,
    coding: None,
    block_size: USUAL_BLOCKS,
    takes: NO_OPTIONS,
    promise: crate::team::PROMISE,
    build: |setup, _| Box::new(Team::of_all(Kind::Mob, setup)) as Box<dyn Protocol>,
};
