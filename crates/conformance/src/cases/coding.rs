//! Packets of coded transfers.

use outpour_core::{Support, Worth};

use super::{ROUNDS, down, ensure, is_from, is_text, left};
use crate::record::{Heard, Record};
use crate::script::Turn;
use crate::{BATCH_BLOCKS, Case, Part};

const TWO: &[Part] = &[Part::Source, Part::Receiver];
const WITH_LIAR: &[Part] = &[Part::Source, Part::Receiver, Part::Liar];
/// The batch of every case.
const BATCH: u32 = 2;
/// More packets than the batch has blocks: enough, even if some are not innovative.
const PACKETS: u16 = BATCH_BLOCKS + 4;

pub(super) const CASES: &[Case] = &[
    Case {
        name: "packets are counted until the batch is decoded",
        parts: TWO,
        coded: true,
        act: send_packets,
        check: counted,
    },
    Case {
        name: "every packet that is sent is answered once",
        parts: TWO,
        coded: true,
        act: send_packets,
        check: |record| {
            let sent = record.count(0, |heard| matches!(heard, Heard::PacketSent(..)));
            ensure(
                sent == usize::from(PACKETS),
                "a packet is not said to be sent",
            )
        },
    },
    Case {
        name: "a fresh block of a batch is a packet, too",
        parts: TWO,
        coded: true,
        act: block_first,
        check: block_counts,
    },
    Case {
        name: "packets are made of packets",
        parts: &[Part::Source, Part::Receiver, Part::Receiver],
        coded: true,
        act: recode,
        check: recoded,
    },
    Case {
        name: "the sender of wrong pure packets is found out when the batch is whole",
        parts: WITH_LIAR,
        coded: true,
        act: |turn, heard| spoil(turn, heard, true),
        check: convicted,
    },
    Case {
        name: "a node that passes on wrong packets is not convicted",
        parts: &[Part::Source, Part::Receiver, Part::Liar, Part::Receiver],
        coded: true,
        act: pass_on,
        check: |record| {
            record.first(3, &Heard::Spoiled(BATCH))?;
            record.first(3, &Heard::Decoded(BATCH))?;
            let rejected = record.count(3, |heard| matches!(heard, Heard::Rejected(..)));
            ensure(rejected == 0, "the node that passed it on is rejected")?;
            ensure(record.accusations.is_empty(), "a node is accused")
        },
    },
    Case {
        name: "a connection that goes down answers for the packets that wait",
        parts: TWO,
        coded: true,
        act: cut_short,
        check: |record| record.first(0, &down(1)).map(drop),
    },
    Case {
        name: "wrong packets that are not pure prove nothing",
        parts: WITH_LIAR,
        coded: true,
        act: |turn, heard| spoil(turn, heard, false),
        check: |record| {
            spoiled(record)?;
            let rejected = record.count(1, |heard| matches!(heard, Heard::Rejected(..)));
            ensure(rejected == 0, "a node is rejected")?;
            ensure(record.accusations.is_empty(), "a node is accused")
        },
    },
];

fn send_packets(turn: &mut Turn<'_>, heard: &Heard) {
    match (turn.me, heard) {
        (1, Heard::Start) => turn.connect(0),
        (0, Heard::Up(_)) => (0..PACKETS).for_each(|_| turn.code(1, BATCH, true)),
        (0, Heard::PacketSent(..)) => {
            let sent = turn.count(|heard| matches!(heard, Heard::PacketSent(..)));
            if sent == usize::from(PACKETS) {
                turn.say(1, "sent");
            }
        }
        (1, Heard::Message(..) | Heard::Decoded(_)) => finish_decoded(turn),
        _ => {}
    }
}

fn finish_decoded(turn: &Turn<'_>) {
    let decoded = turn.count(|heard| *heard == Heard::Decoded(BATCH));
    if decoded == 1 && turn.count(|heard| is_text(heard, "sent")) == 1 {
        turn.finish();
    }
}

/// The blocks of the batch.
fn blocks() -> std::ops::Range<u32> {
    let size = u32::from(BATCH_BLOCKS);
    BATCH * size..(BATCH + 1) * size
}

/// Innovative packets raise the rank, by one and nothing else does.
fn ranks_rise(record: &Record, node: u32) -> Result<u16, String> {
    let mut rank = 0;
    for heard in record.heard(node) {
        let Heard::Packet { worth, holding, .. } = heard else {
            continue;
        };
        let more = u16::from(*worth == Worth::Innovative);
        ensure(
            holding.rank == rank + more,
            "the rank is not what packets were worth",
        )?;
        ensure(
            holding.support.len() >= holding.rank,
            "more dimensions than blocks",
        )?;
        rank = holding.rank;
    }
    Ok(rank)
}

fn counted(record: &Record) -> Result<(), String> {
    let rank = ranks_rise(record, 1)?;
    ensure(rank == BATCH_BLOCKS, "the rank is not full")?;
    let heard = record.heard(1);
    let at = record.first(1, &Heard::Decoded(BATCH))?;
    let arrived = |heard: &&Heard| match heard {
        Heard::Arrived { block, fresh, .. } => *fresh && blocks().contains(block),
        _ => false,
    };
    let lacked = usize::from(BATCH_BLOCKS);
    let before = heard.get(at.saturating_sub(lacked)..at).unwrap_or_default();
    ensure(
        before.iter().filter(|heard| arrived(heard)).count() == lacked,
        "the blocks do not arrive just before the batch is decoded",
    )
}

fn block_first(turn: &mut Turn<'_>, heard: &Heard) {
    match (turn.me, heard) {
        (1, Heard::Start) => turn.connect(0),
        (0, Heard::Up(_)) => turn.give(1, blocks().start + 1),
        (1, Heard::Packet { .. }) if turn.count(|it| matches!(it, Heard::Packet { .. })) == 1 => {
            turn.say(0, "go");
        }
        (0, Heard::Message(..)) => {
            (0..PACKETS).for_each(|_| turn.code(1, BATCH, true));
            turn.say(1, "sent");
        }
        (1, Heard::Message(..) | Heard::Decoded(_)) => finish_decoded(turn),
        _ => {}
    }
}

fn block_counts(record: &Record) -> Result<(), String> {
    let heard = record.heard(1);
    let arrived = heard
        .iter()
        .position(|heard| matches!(heard, Heard::Arrived { .. }));
    let packet = heard
        .iter()
        .position(|heard| matches!(heard, Heard::Packet { .. }));
    ensure(
        arrived.is_some() && packet == arrived.map(|at| at + 1),
        "the packet does not follow the block",
    )?;
    let first = packet.and_then(|at| heard.get(at));
    let Some(Heard::Packet { worth, holding, .. }) = first else {
        return Err("no packet".to_owned());
    };
    let block: Support = [1].into_iter().collect();
    ensure(
        *worth == Worth::Innovative && holding.rank == 1 && holding.support == block,
        "the block does not count for one dimension",
    )?;
    ranks_rise(record, 1).map(drop)
}

/// The receiver has two packets, and makes more of them for the other receiver than they are worth.
fn recode(turn: &mut Turn<'_>, heard: &Heard) {
    match (turn.me, heard) {
        (1, Heard::Start) => turn.connect(2),
        (1, Heard::Up(peer)) if peer.0 == 2 => turn.connect(0),
        (0, Heard::Up(_)) => (0..2).for_each(|_| turn.code(1, BATCH, true)),
        (1, Heard::Packet { .. }) if turn.count(|it| matches!(it, Heard::Packet { .. })) == 2 => {
            (0..PACKETS).for_each(|_| turn.code(2, BATCH, false));
        }
        (2, Heard::Packet { .. }) => {
            let packets = turn.count(|heard| matches!(heard, Heard::Packet { .. }));
            if packets == usize::from(PACKETS) {
                turn.finish();
            }
        }
        _ => {}
    }
}

fn recoded(record: &Record) -> Result<(), String> {
    let (relay, end) = (ranks_rise(record, 1)?, ranks_rise(record, 2)?);
    ensure(relay <= 2, "two packets are worth more than two")?;
    ensure(
        end > 0 && end <= relay,
        "more comes out of a relay than went in",
    )
}

/// A liar's packets come first and count; the rest comes from the source, as packets, and as blocks
/// once the batch is spoiled.
fn spoil(turn: &mut Turn<'_>, heard: &Heard, pure: bool) {
    match (turn.me, heard) {
        (1, Heard::Start) => turn.connect(2),
        (2, Heard::Up(_)) => (0..2).for_each(|_| turn.code(1, BATCH, pure)),
        (1, Heard::Packet { .. }) if turn.count(|it| matches!(it, Heard::Packet { .. })) == 2 => {
            turn.connect(0);
        }
        (0, Heard::Up(_)) => (0..PACKETS).for_each(|_| turn.code(1, BATCH, true)),
        (1, Heard::Spoiled(_)) => turn.say(0, "blocks"),
        (0, heard) if is_text(heard, "blocks") => blocks().for_each(|block| turn.give(1, block)),
        (1, Heard::Decoded(_)) => turn.say(0, "go"),
        (0, Heard::Message(..)) => {
            turn.volley(1, usize::MAX);
        }
        (1, heard) if is_from(heard, 0) && turn.volley(0, ROUNDS) => turn.finish(),
        _ => {}
    }
}

/// The batch was spoiled once, and is whole in the end.
fn spoiled(record: &Record) -> Result<usize, String> {
    let spoiled = record.first(1, &Heard::Spoiled(BATCH))?;
    let decoded = record.first(1, &Heard::Decoded(BATCH))?;
    ensure(spoiled < decoded, "the batch is whole before it is spoiled")?;
    let blocks = record.count(1, |heard| {
        matches!(heard, Heard::Arrived { fresh: true, .. })
    });
    ensure(blocks == usize::from(BATCH_BLOCKS), "blocks are missing")?;
    Ok(decoded)
}

fn convicted(record: &Record) -> Result<(), String> {
    let decoded = spoiled(record)?;
    let heard = record.heard(1);
    let rejected = heard
        .iter()
        .position(|it| matches!(it, Heard::Rejected(from, _) if from.0 == 2));
    ensure(
        rejected.is_some_and(|at| at > decoded),
        "the liar is not rejected when the batch is whole",
    )?;
    record.first(1, &down(2))?;
    record.first(1, &left(2))?;
    ensure(record.accused(1, 2), "the coordinator is not told")?;
    ensure(record.accusations.len() == 1, "another node is accused")
}

fn cut_short(turn: &mut Turn<'_>, heard: &Heard) {
    match (turn.me, heard) {
        (1, Heard::Start | Heard::Down(_)) => turn.connect(0),
        (0, Heard::Up(_)) if turn.ups(1) == 1 => {
            (0..32).for_each(|n| turn.code(1, n % 4, true));
        }
        (1, Heard::Packet { .. }) if turn.ups(0) == 1 => turn.disconnect(0),
        (0, Heard::Up(_)) => turn.code(1, 0, true),
        (0, Heard::PacketSent(..)) if turn.ups(1) == 2 => turn.say(1, "sent"),
        (1, Heard::Message(..)) => turn.finish(),
        _ => {}
    }
}

fn pass_on(turn: &mut Turn<'_>, heard: &Heard) {
    match (turn.me, heard) {
        (1, Heard::Start) => turn.connect(3),
        (1, Heard::Up(peer)) if peer.0 == 3 => turn.connect(2),
        (2, Heard::Up(_)) => (0..2).for_each(|_| turn.code(1, BATCH, true)),
        (1, Heard::Packet { .. }) if turn.count(|it| matches!(it, Heard::Packet { .. })) == 2 => {
            (0..2).for_each(|_| turn.code(3, BATCH, false));
        }
        (3, Heard::Packet { .. }) if turn.count(|it| matches!(it, Heard::Packet { .. })) == 2 => {
            turn.connect(0);
        }
        (0, Heard::Up(_)) => (0..PACKETS).for_each(|_| turn.code(3, BATCH, true)),
        (3, Heard::Spoiled(_)) => turn.say(0, "blocks"),
        (0, heard) if is_text(heard, "blocks") => blocks().for_each(|block| turn.give(3, block)),
        (3, Heard::Decoded(_)) => turn.say(0, "go"),
        (0, Heard::Message(..)) => {
            turn.volley(3, usize::MAX);
        }
        (3, heard) if is_from(heard, 0) && turn.volley(0, ROUNDS) => turn.finish(),
        _ => {}
    }
}
