//! Blocks are sent, and arrive.

use super::{down, ensure, is_text};
use crate::record::{Heard, Record};
use crate::script::Turn;
use crate::{BLOCKS, Case, Part};

const TWO: &[Part] = &[Part::Source, Part::Receiver];
const ALL: usize = BLOCKS as usize;

pub(super) const CASES: &[Case] = &[
    Case {
        name: "every block that is sent is answered once",
        parts: TWO,
        coded: false,
        act: give_all,
        check: |record| {
            let sent = record.count(0, |heard| matches!(heard, Heard::Sent(..)));
            ensure(sent == ALL, "a block is not said to be sent")
        },
    },
    Case {
        name: "a connection that goes down answers for the blocks that wait",
        parts: TWO,
        coded: false,
        act: cut_short,
        check: |record| record.first(0, &down(1)).map(drop),
    },
    Case {
        name: "a block that has arrived can be read back",
        parts: &[Part::Source, Part::Receiver, Part::Receiver],
        coded: false,
        act: relay,
        check: |record| arrived(record, 2, true, ALL),
    },
    Case {
        name: "a block that is here is not fresh",
        parts: TWO,
        coded: false,
        act: give_twice,
        check: |record| {
            arrived(record, 1, true, 1)?;
            arrived(record, 1, false, 2)
        },
    },
];

fn arrived(record: &Record, node: u32, as_fresh: bool, times: usize) -> Result<(), String> {
    let wanted =
        |heard: &Heard| matches!(heard, Heard::Arrived { fresh, .. } if *fresh == as_fresh);
    let count = record.count(node, wanted);
    let error = || format!("{count} blocks arrive at {node} with fresh = {as_fresh}");
    (count == times).then_some(()).ok_or_else(error)
}

fn give_all(turn: &mut Turn<'_>, heard: &Heard) {
    match (turn.me, heard) {
        (1, Heard::Start) => turn.connect(0),
        (0, Heard::Up(_)) => (0..BLOCKS).for_each(|block| turn.give(1, block)),
        (0, Heard::Sent(..)) if turn.count(|it| matches!(it, Heard::Sent(..))) == ALL => {
            turn.say(1, "sent");
        }
        (1, Heard::Message(..) | Heard::Arrived { .. }) => {
            let arrived = turn.count(|heard| matches!(heard, Heard::Arrived { .. }));
            if arrived == ALL && turn.count(|heard| is_text(heard, "sent")) == 1 {
                turn.finish();
            }
        }
        _ => {}
    }
}

/// The receiver hangs up on a full queue and calls again; nothing of the first call may count.
fn cut_short(turn: &mut Turn<'_>, heard: &Heard) {
    match (turn.me, heard) {
        (1, Heard::Start | Heard::Down(_)) => turn.connect(0),
        (0, Heard::Up(_)) if turn.ups(1) == 1 => {
            (0..BLOCKS).for_each(|block| turn.give(1, block));
        }
        (1, Heard::Arrived { .. }) if turn.ups(0) == 1 => turn.disconnect(0),
        (0, Heard::Up(_)) => turn.give(1, 0),
        (0, Heard::Sent(..)) if turn.ups(1) == 2 => turn.say(1, "sent"),
        (1, Heard::Message(..)) => turn.finish(),
        _ => {}
    }
}

fn relay(turn: &mut Turn<'_>, heard: &Heard) {
    match (turn.me, heard) {
        (1, Heard::Start) => turn.connect(2),
        (1, Heard::Up(peer)) if peer.0 == 2 => turn.connect(0),
        (0, Heard::Up(_)) => (0..BLOCKS).for_each(|block| turn.give(1, block)),
        (1, Heard::Arrived { block, .. }) => turn.give(2, *block),
        (2, Heard::Arrived { .. })
            if turn.count(|it| matches!(it, Heard::Arrived { .. })) == ALL =>
        {
            turn.finish();
        }
        _ => {}
    }
}

fn give_twice(turn: &mut Turn<'_>, heard: &Heard) {
    match (turn.me, heard) {
        (1, Heard::Start) => turn.connect(0),
        (0, Heard::Up(_)) => turn.give(1, 3),
        // One after the other: the second comes when the first is here.
        (1, Heard::Arrived { .. }) => {
            let times = turn.count(|heard| matches!(heard, Heard::Arrived { .. }));
            if times == 3 {
                turn.finish();
            } else {
                turn.say(0, format!("again {times}"));
            }
        }
        (0, Heard::Message(..)) => turn.give(1, 3),
        _ => {}
    }
}
