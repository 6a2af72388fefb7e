//! Timers fire when they are due, and once.

use std::time::Duration;

use super::ensure;
use crate::record::{Heard, Record};
use crate::script::Turn;
use crate::{Case, Part};

pub(super) const CASES: &[Case] = &[Case {
    name: "a timer fires once, at the time that it was set to last",
    parts: &[Part::Source, Part::Receiver],
    coded: false,
    act: set,
    check: in_order,
}];

const fn ms(ms: u64) -> Option<Duration> {
    Some(Duration::from_millis(ms))
}

fn set(turn: &mut Turn<'_>, heard: &Heard) {
    match (turn.me, heard) {
        (1, Heard::Start) => {
            turn.timer(1, ms(250));
            turn.timer(2, ms(20));
            turn.timer(1, ms(40));
            turn.timer(2, ms(120));
            turn.timer(3, None);
            turn.timer(4, ms(400));
        }
        (1, Heard::Timer(4)) => turn.finish(),
        _ => {}
    }
}

fn in_order(record: &Record) -> Result<(), String> {
    let heard = record.heard(1).into_iter();
    let timers = heard.filter_map(|heard| match heard {
        Heard::Timer(timer) => Some(*timer),
        _ => None,
    });
    ensure(
        timers.eq([3, 1, 2, 4]),
        "the timers fire in another order, or not once each",
    )
}
