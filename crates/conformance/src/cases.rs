//! The cases, by what they are about.

mod blocks;
mod coding;
mod exclusion;
mod links;
mod rates;
mod timers;

use outpour_core::NodeId;

use crate::Case;
use crate::record::Heard;

pub(crate) const ALL: [&[Case]; 6] = [
    links::CASES,
    blocks::CASES,
    exclusion::CASES,
    timers::CASES,
    rates::CASES,
    coding::CASES,
];

/// So many messages back and forth take longer than anything else that is under way.
const ROUNDS: usize = 200;

const fn up(peer: u32) -> Heard {
    Heard::Up(NodeId(peer))
}

const fn down(peer: u32) -> Heard {
    Heard::Down(NodeId(peer))
}

const fn left(peer: u32) -> Heard {
    Heard::Left(NodeId(peer))
}

fn is_from(heard: &Heard, peer: u32) -> bool {
    matches!(heard, Heard::Message(from, _) if from.0 == peer)
}

fn is_text(heard: &Heard, text: &str) -> bool {
    matches!(heard, Heard::Message(_, body) if body == text.as_bytes())
}

/// Says what is wrong unless it is right.
fn ensure(right: bool, wrong: &str) -> Result<(), String> {
    if right {
        return Ok(());
    }
    Err(wrong.to_owned())
}
