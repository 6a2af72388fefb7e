//! A node that sends wrong bytes, breaks the protocol or has left is cut off for good.

use super::{ROUNDS, down, ensure, is_from, left, up};
use crate::record::{Heard, Record};
use crate::script::Turn;
use crate::{Case, Part};

/// A source, a receiver, and a node that the receiver cuts off.
const WITH_LIAR: &[Part] = &[Part::Source, Part::Receiver, Part::Liar];

pub(super) const CASES: &[Case] = &[
    Case {
        name: "a node that sends a wrong block is cut off and named",
        parts: WITH_LIAR,
        coded: false,
        act: lie,
        check: |record| {
            let rejected = record.count(1, |heard| matches!(heard, Heard::Rejected(..)));
            ensure(rejected == 1, "the wrong block is rejected once")?;
            let arrived = record.count(1, |heard| matches!(heard, Heard::Arrived { .. }));
            ensure(arrived == 1, "only the right block arrives")?;
            ensure(record.accused(1, 2), "the coordinator is not told")?;
            ensure(record.accusations.len() == 1, "another node is accused")?;
            excluded(record)
        },
    },
    Case {
        name: "a node that is accused is cut off and named",
        parts: WITH_LIAR,
        coded: false,
        act: accuse,
        check: |record| {
            ensure(record.accused(1, 2), "the coordinator is not told")?;
            ensure(record.accusations.len() == 1, "another node is accused")?;
            excluded(record)
        },
    },
    Case {
        name: "a node that has left is cut off",
        parts: WITH_LIAR,
        coded: false,
        act: expel,
        check: |record| {
            ensure(record.accusations.is_empty(), "no node did anything wrong")?;
            excluded(record)?;
            record.first(0, &left(2)).map(drop)
        },
    },
];

/// Node 2 was up at node 1, has left, went down, and never came up again.
fn excluded(record: &Record) -> Result<(), String> {
    record.first(1, &left(2))?;
    let down_at = record.first(1, &down(2))?;
    ensure(record.first(1, &up(2))? < down_at, "it was up before")?;
    let ups = record.count(1, |heard| *heard == up(2));
    ensure(ups == 1, "it comes up again")
}

/// What all do once node 1 has cut node 2 off: both try to meet again, while the source talks to
/// node 1 for long enough that they could.
fn go_on(turn: &mut Turn<'_>, heard: &Heard) {
    match (turn.me, heard) {
        (1, Heard::Down(_)) => {
            turn.connect(2);
            turn.connect(0);
        }
        (2, Heard::Down(_)) => turn.connect(1),
        (1, Heard::Up(peer)) if peer.0 == 0 => turn.say(0, "go"),
        (0, Heard::Message(..)) => {
            turn.volley(1, usize::MAX);
        }
        (1, heard) if is_from(heard, 0) && turn.volley(0, ROUNDS) => turn.finish(),
        _ => {}
    }
}

fn lie(turn: &mut Turn<'_>, heard: &Heard) {
    match (turn.me, heard) {
        (1, Heard::Start) => turn.connect(2),
        (2, Heard::Up(_)) => turn.give(1, 5),
        (0, Heard::Up(_)) => turn.give(1, 5),
        _ => go_on(turn, heard),
    }
}

fn accuse(turn: &mut Turn<'_>, heard: &Heard) {
    match (turn.me, heard) {
        (1, Heard::Start) => turn.connect(2),
        (2, Heard::Up(_)) => turn.say(1, "nonsense"),
        (1, heard) if is_from(heard, 2) => turn.accuse(2),
        _ => go_on(turn, heard),
    }
}

fn expel(turn: &mut Turn<'_>, heard: &Heard) {
    match (turn.me, heard) {
        (1, Heard::Start) => turn.connect(2),
        (1, Heard::Up(peer)) if peer.0 == 2 => turn.expel(2),
        _ => go_on(turn, heard),
    }
}
