//! Connections come and go, and messages with them.

use super::{ROUNDS, down, ensure, is_from, is_text, up};
use crate::record::{Heard, Record};
use crate::script::Turn;
use crate::{BLOCKS, Case, Part};

const TWO: &[Part] = &[Part::Source, Part::Receiver];
const THREE: &[Part] = &[Part::Source, Part::Receiver, Part::Receiver];
/// Messages of the first case.
const MESSAGES: usize = 300;

pub(super) const CASES: &[Case] = &[
    Case {
        name: "messages arrive in order and once",
        parts: TWO,
        coded: false,
        act: speak,
        check: heard_all,
    },
    Case {
        name: "a connection that the other side opened comes up, too",
        parts: TWO,
        coded: false,
        act: greet,
        check: |record| {
            record.first(0, &up(1))?;
            record.first(1, &up(0)).map(drop)
        },
    },
    Case {
        name: "after a disconnect the peer goes down once, and may call again",
        parts: TWO,
        coded: false,
        act: hang_up,
        check: nothing_old,
    },
    Case {
        name: "a disconnect forgets a connection that was asked for",
        parts: THREE,
        coded: false,
        act: change_of_mind,
        check: |record| {
            let met =
                record.count(1, |heard| *heard == up(0)) + record.count(0, |heard| *heard == up(1));
            ensure(
                met == 0,
                "a connection comes up that is not wanted any more",
            )
        },
    },
    Case {
        name: "a disconnect of a peer that is not up is not answered",
        parts: THREE,
        coded: false,
        act: hang_up_twice,
        check: |record| {
            let downs = record.count(1, |heard| matches!(heard, Heard::Down(_)));
            ensure(downs == 1, "one peer was up once before the end")
        },
    },
    Case {
        name: "a connection can be asked for as soon as it was closed",
        parts: TWO,
        coded: false,
        act: redial,
        check: |record| {
            let downs = record.count(1, |heard| *heard == down(0));
            ensure(downs == 1, "the connection that was closed goes down")
        },
    },
    Case {
        name: "both sides may disconnect at once",
        parts: TWO,
        coded: false,
        act: part,
        // That each goes down once is for the audit to say.
        check: |record| record.first(1, &down(0)).map(drop),
    },
];

fn speak(turn: &mut Turn<'_>, heard: &Heard) {
    match (turn.me, heard) {
        (1, Heard::Start) => turn.connect(0),
        (1, Heard::Up(_)) => {
            for number in 0..MESSAGES {
                let mut body = (number as u32).to_le_bytes().to_vec();
                body.resize(4 + number * 37 % 5000, 7);
                turn.say(0, body);
            }
        }
        (0, Heard::Message(..)) if turn.count(|heard| is_from(heard, 1)) == MESSAGES => {
            turn.say(1, "all");
        }
        (1, heard) if is_text(heard, "all") => turn.finish(),
        _ => {}
    }
}

fn heard_all(record: &Record) -> Result<(), String> {
    let heard = record.count(0, |heard| is_from(heard, 1));
    ensure(heard == MESSAGES, "messages are missing")
}

fn greet(turn: &mut Turn<'_>, heard: &Heard) {
    match (turn.me, heard) {
        (1, Heard::Start) => turn.connect(0),
        (0, Heard::Up(_)) => turn.say(1, "welcome"),
        (1, Heard::Message(..)) => turn.finish(),
        _ => {}
    }
}

/// The receiver hangs up on the source in the middle of blocks and words; the source calls again.
fn hang_up(turn: &mut Turn<'_>, heard: &Heard) {
    match (turn.me, heard) {
        (1, Heard::Start) => turn.connect(0),
        (0, Heard::Up(_)) if turn.ups(1) == 1 => {
            for block in 0..BLOCKS {
                turn.give(1, block);
                turn.say(1, format!("old {block}"));
            }
        }
        // Once: the next connection may be there before the end of this one is told.
        (1, Heard::Arrived { .. }) if turn.ups(0) == 1 => {
            let arrived = turn.count(|heard| matches!(heard, Heard::Arrived { .. }));
            if arrived == 1 {
                turn.disconnect(0);
            }
        }
        (0, Heard::Down(_)) => turn.connect(1),
        (0, Heard::Up(_)) => {
            turn.say(1, "new");
            turn.give(1, BLOCKS - 1);
        }
        (1, Heard::Arrived { .. }) => turn.say(0, "thanks"),
        (0, heard) if is_text(heard, "thanks") => turn.finish(),
        _ => {}
    }
}

fn nothing_old(record: &Record) -> Result<(), String> {
    let heard = record.heard(1);
    let downs = heard.iter().filter(|heard| ***heard == down(0)).count();
    ensure(downs == 1, "one connection went down")?;
    let at = record.first(1, &down(0))?;
    let old = |heard: &&&Heard| match heard {
        Heard::Message(_, body) => body.starts_with(b"old"),
        Heard::Arrived { block, .. } => *block != BLOCKS - 1,
        _ => false,
    };
    let after = heard.get(at..).unwrap_or_default();
    ensure(
        after.iter().filter(old).count() == 0,
        "what was sent before comes after the connection went down",
    )
}

fn change_of_mind(turn: &mut Turn<'_>, heard: &Heard) {
    match (turn.me, heard) {
        (1, Heard::Start) => {
            turn.connect(0);
            turn.disconnect(0);
            turn.connect(2);
        }
        (1, Heard::Up(peer)) if peer.0 == 2 => turn.say(2, "go"),
        (2, Heard::Message(..)) => {
            turn.volley(1, usize::MAX);
        }
        (1, Heard::Message(..)) if turn.volley(2, ROUNDS) => turn.finish(),
        _ => {}
    }
}

fn hang_up_twice(turn: &mut Turn<'_>, heard: &Heard) {
    match (turn.me, heard) {
        (1, Heard::Start) => turn.connect(2),
        (2, Heard::Up(_)) if turn.ups(1) == 1 => turn.say(1, "hello"),
        (1, heard) if is_text(heard, "hello") => {
            turn.disconnect(0);
            turn.disconnect(2);
            turn.disconnect(2);
        }
        (2, Heard::Down(_)) => turn.connect(1),
        (1, Heard::Up(_)) if turn.ups(2) == 2 => turn.say(2, "again"),
        (2, Heard::Message(..)) => {
            turn.volley(1, usize::MAX);
        }
        (1, Heard::Message(..)) if turn.volley(2, ROUNDS) => turn.finish(),
        _ => {}
    }
}

fn redial(turn: &mut Turn<'_>, heard: &Heard) {
    match (turn.me, heard) {
        (1, Heard::Start) => turn.connect(0),
        (1, Heard::Up(_)) if turn.ups(0) == 1 => {
            turn.disconnect(0);
            turn.connect(0);
        }
        (1, Heard::Up(_)) => turn.say(0, "again"),
        (0, Heard::Message(..)) => turn.finish(),
        _ => {}
    }
}

fn part(turn: &mut Turn<'_>, heard: &Heard) {
    let other = 1 - turn.me;
    match (turn.me, heard) {
        (1, Heard::Start) => turn.connect(0),
        (_, Heard::Up(_)) if turn.ups(other) == 1 => turn.say(other, "go"),
        (_, heard) if is_text(heard, "go") => turn.disconnect(other),
        (1, Heard::Down(_)) => turn.connect(0),
        (1, Heard::Up(_)) => turn.say(0, "again"),
        (0, heard) if is_text(heard, "again") => turn.finish(),
        _ => {}
    }
}
