//! `robber`: the nodes of each cluster fetch an object together, each as much as it can.
//!
//! As `mob`, but a node that has no more blocks to fetch takes half of what a random local peer has
//! left ([Burger §4.3.3]). So fast nodes fetch more than slow ones, and what a node fetches follows
//! the network as it changes.

use crate::Protocol;
use crate::registry::{Entry, NO_OPTIONS, PlanFrom, USUAL_BLOCKS};
use crate::team::{Kind, Team};

/// The registry's line.
pub const ENTRY: Entry = Entry {
    name: "robber",
    about: "each cluster fetches every block once; its nodes steal work from each other",
    baseline: false,
    plan: PlanFrom::Nowhere,
    selective: false,
    coding: None,
    block_size: USUAL_BLOCKS,
    takes: NO_OPTIONS,
    promise: crate::team::PROMISE,
    build: |setup, _| Box::new(Team::of_all(Kind::Robber, setup)) as Box<dyn Protocol>,
};
