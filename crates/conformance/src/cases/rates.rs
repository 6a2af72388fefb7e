//! Rates are kept, and it is said what they come to.

use std::time::Duration;

use outpour_core::{Rate, Time};
use outpour_protocols::Action;

use super::{ROUNDS, ensure, is_text};
use crate::record::{Heard, Record, What};
use crate::script::Turn;
use crate::{BLOCK_BYTES, BLOCKS, Case, Part};

const TWO: &[Part] = &[Part::Source, Part::Receiver];
const ALL: usize = BLOCKS as usize;
/// At the slow rate all blocks take so long.
const ALL_SLOWLY: Duration = Duration::from_secs(2);
/// By then it would have been said twice what a peer achieves.
const TOLD_TWICE: Duration = Duration::from_millis(2500);

pub(super) const CASES: &[Case] = &[
    Case {
        name: "a rate of nothing holds blocks back and lets messages pass, until it is set anew",
        parts: TWO,
        coded: false,
        act: hold_back,
        check: none_before_it_is_lifted,
    },
    Case {
        name: "blocks leave no faster than the rate, and it is said what it comes to",
        parts: TWO,
        coded: false,
        act: give_slowly,
        check: as_slow_as_it_was_set,
    },
    Case {
        name: "a rate holds for blocks that were queued before it was set",
        parts: TWO,
        coded: false,
        act: give_then_slow,
        check: as_slow_as_it_was_set,
    },
    Case {
        name: "packets leave no faster than the rate",
        parts: TWO,
        coded: true,
        act: code_slowly,
        check: packets_as_slow,
    },
    Case {
        name: "a connection begins without a rate, whatever the one before had",
        parts: TWO,
        coded: false,
        act: call_again,
        check: |record| {
            let arrived = record.count(1, |heard| matches!(heard, Heard::Arrived { .. }));
            ensure(arrived == 1, "the block did not come once")
        },
    },
    Case {
        name: "nothing is said of a peer whose rate was taken away",
        parts: TWO,
        coded: false,
        act: take_away,
        check: |record| {
            let told = record.count(0, |heard| matches!(heard, Heard::Achieved(..)));
            ensure(told == 0, "it is said what a peer without a rate achieves")
        },
    },
];

fn slow() -> Rate {
    let bytes = f64::from(BLOCKS * BLOCK_BYTES);
    Rate::from_bytes_per_s(bytes / ALL_SLOWLY.as_secs_f64()).unwrap_or_default()
}

fn has_all(turn: &Turn<'_>) -> bool {
    turn.count(|heard| matches!(heard, Heard::Arrived { .. })) == ALL
}

/// What would come at once is looked for after many messages.
fn hold_back(turn: &mut Turn<'_>, heard: &Heard) {
    match (turn.me, heard) {
        (1, Heard::Start) => turn.connect(0),
        (0, Heard::Up(_)) => {
            turn.pace(1, Rate::ZERO);
            (0..BLOCKS).for_each(|block| turn.give(1, block));
            turn.volley(1, ROUNDS);
        }
        (0, Heard::Message(..)) if turn.volley(1, ROUNDS) => turn.pace(1, Rate::UNLIMITED),
        (1, Heard::Message(..)) => {
            turn.volley(0, ROUNDS + 1);
        }
        (1, Heard::Arrived { .. }) if has_all(turn) => turn.finish(),
        _ => {}
    }
}

fn none_before_it_is_lifted(record: &Record) -> Result<(), String> {
    let place = |wanted: &dyn Fn(&What) -> bool| {
        let mut lines = record.lines.iter();
        lines.position(|line| wanted(&line.what))
    };
    let lifted = place(
        &|what| matches!(what, What::Did(Action::SetRate { rate, .. }) if rate.is_unlimited()),
    );
    let arrived = place(&|what| matches!(what, What::Heard(Heard::Arrived { .. })));
    ensure(
        lifted.is_some() && lifted < arrived,
        "a block comes before the rate is lifted",
    )
}

fn give_slowly(turn: &mut Turn<'_>, heard: &Heard) {
    match (turn.me, heard) {
        (1, Heard::Start) => turn.connect(0),
        (0, Heard::Up(_)) => {
            turn.pace(1, slow());
            (0..BLOCKS).for_each(|block| turn.give(1, block));
        }
        (0, Heard::Achieved(_, rate)) if !rate.is_zero() => turn.say(1, "achieved"),
        (1, Heard::Arrived { .. } | Heard::Message(..))
            if has_all(turn) && turn.count(|heard| is_text(heard, "achieved")) > 0 =>
        {
            turn.finish();
        }
        _ => {}
    }
}

/// A driver may send a little ahead and make up for what was late: not half of it.
fn as_slow_as_it_was_set(record: &Record) -> Result<(), String> {
    let is_set = |what: &What| matches!(what, What::Did(Action::SetRate { .. }));
    let is_sent = |what: &What| matches!(what, What::Heard(Heard::Sent(..)));
    let mut lines = record.lines.iter().filter(|line| line.node.0 == 0);
    let begun = lines.clone().find(|line| is_set(&line.what));
    let ended = lines.rfind(|line| is_sent(&line.what));
    let at = |line: Option<&crate::Line>| line.map_or(Time::ZERO, |line| line.at);
    let took = at(ended).since(at(begun));
    ensure(took >= ALL_SLOWLY / 2, "blocks leave faster than the rate")?;
    let most = slow().bytes_per_s() * 2.0;
    let too_much =
        |heard: &Heard| matches!(heard, Heard::Achieved(_, rate) if rate.bytes_per_s() > most);
    ensure(
        record.count(0, too_much) == 0,
        "more is said to be achieved than the rate",
    )
}

fn call_again(turn: &mut Turn<'_>, heard: &Heard) {
    match (turn.me, heard) {
        (1, Heard::Start | Heard::Down(_)) => turn.connect(0),
        (0, Heard::Up(_)) if turn.ups(1) == 1 => {
            turn.pace(1, Rate::ZERO);
            turn.say(1, "held");
        }
        (1, Heard::Message(..)) => turn.disconnect(0),
        (0, Heard::Up(_)) => turn.give(1, 0),
        (1, Heard::Arrived { .. }) => turn.finish(),
        _ => {}
    }
}

fn take_away(turn: &mut Turn<'_>, heard: &Heard) {
    match (turn.me, heard) {
        (1, Heard::Start) => turn.connect(0),
        (0, Heard::Up(_)) => {
            turn.pace(1, slow());
            turn.pace(1, Rate::UNLIMITED);
            turn.timer(1, Some(TOLD_TWICE));
        }
        (0, Heard::Timer(_)) => turn.finish(),
        _ => {}
    }
}

fn give_then_slow(turn: &mut Turn<'_>, heard: &Heard) {
    match (turn.me, heard) {
        (1, Heard::Start) => turn.connect(0),
        (0, Heard::Up(_)) => {
            (0..BLOCKS).for_each(|block| turn.give(1, block));
            turn.pace(1, slow());
        }
        (1, Heard::Arrived { .. }) if has_all(turn) => turn.finish(),
        _ => {}
    }
}

fn code_slowly(turn: &mut Turn<'_>, heard: &Heard) {
    match (turn.me, heard) {
        (1, Heard::Start) => turn.connect(0),
        (0, Heard::Up(_)) => {
            turn.pace(1, slow());
            (0..BLOCKS).for_each(|n| turn.code(1, n % 4, true));
        }
        (0, Heard::PacketSent(..)) => {
            let sent = turn.count(|heard| matches!(heard, Heard::PacketSent(..)));
            if sent == ALL {
                turn.finish();
            }
        }
        _ => {}
    }
}

fn packets_as_slow(record: &Record) -> Result<(), String> {
    let is_set = |what: &What| matches!(what, What::Did(Action::SetRate { .. }));
    let is_sent = |what: &What| matches!(what, What::Heard(Heard::PacketSent(..)));
    let mut lines = record.lines.iter().filter(|line| line.node.0 == 0);
    let begun = lines.clone().find(|line| is_set(&line.what));
    let ended = lines.rfind(|line| is_sent(&line.what));
    let at = |line: Option<&crate::Line>| line.map_or(Time::ZERO, |line| line.at);
    let took = at(ended).since(at(begun));
    ensure(took >= ALL_SLOWLY / 2, "packets leave faster than the rate")
}
