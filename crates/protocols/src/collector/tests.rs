//! What is decided about a batch, with real coefficients and marks for payloads.
#![allow(clippy::unwrap_used)]

use outpour_coding::{self as coding, Span};
use proptest::prelude::*;

use super::*;

const SIZE: u16 = 4;

/// A payload is a number.
struct Numbers(Span, Vec<u32>);

impl Rows for Numbers {
    type Payload = u32;

    fn insert(&mut self, coefficients: &[u8], payload: impl FnOnce() -> u32) -> bool {
        let kept = self.0.insert(coefficients) == Ok(coding::Worth::Innovative);
        if kept {
            self.1.push(payload());
        }
        kept
    }

    fn rank(&self) -> usize {
        self.0.rank()
    }

    fn support(&self) -> Support {
        Support::from_words(self.0.support())
    }
}

fn open(here: &[usize]) -> Collector<Numbers> {
    let mut collector = Collector::new(SIZE);
    let rows = Numbers(Span::new(SIZE.into()).unwrap(), Vec::new());
    let blocks = here.iter().map(|place| (*place, 0));
    collector.open(rows, here.iter().copied().collect(), blocks);
    collector
}

const fn maker(node: u32, pure: bool) -> Maker {
    let node = NodeId(node);
    Maker { node, pure }
}

fn worth(taken: &Taken<Numbers>) -> Option<(Worth, u16)> {
    taken.told.map(|(worth, holding)| (worth, holding.rank))
}

/// Spoils a batch of which block 0 was here with packets of three peers.
fn spoiled() -> Collector<Numbers> {
    let mut collector = open(&[0]);
    collector.take_packet(maker(1, true), &[1, 1, 0, 0], || 1);
    collector.take_packet(maker(2, false), &[1, 1, 1, 0], || 2);
    let last = collector.take_packet(maker(3, true), &[1, 1, 1, 1], || 3);
    assert!(matches!(last.next, Next::Decode(_)));
    // One of three blocks was right.
    assert!(matches!(collector.settle([1], true), Next::Nothing));
    collector
}

#[test]
fn packets_count_until_the_rank_is_full() {
    let mut collector = open(&[]);
    let mut take = |coefficients: [u8; 4]| {
        let taken = collector.take_packet(maker(1, false), &coefficients, || 0);
        (worth(&taken), matches!(taken.next, Next::Decode(_)))
    };
    assert_eq!(take([0; 4]), (Some((Worth::Zero, 0)), false));
    assert_eq!(take([1, 2, 0, 0]), (Some((Worth::Innovative, 1)), false));
    assert_eq!(take([2, 4, 0, 0]), (Some((Worth::Dependent, 1)), false));
    assert_eq!(take([0, 2, 0, 0]), (Some((Worth::Innovative, 2)), false));
    assert_eq!(take([0, 0, 1, 0]), (Some((Worth::Innovative, 3)), false));
    assert_eq!(take([1, 1, 1, 1]), (Some((Worth::Innovative, 4)), true));
    // It is being decoded, which is begun once.
    assert_eq!(take([1, 0, 0, 0]), (Some((Worth::Dependent, 4)), false));
    assert!(matches!(collector.settle(0..4, false), Next::Whole(None)));
    let late = collector.take_packet(maker(1, false), &[1, 0, 0, 0], || 0);
    assert_eq!(worth(&late), None);
}

#[test]
fn blocks_count_as_packets_and_make_a_batch_whole() {
    let mut collector = open(&[]);
    assert_eq!(
        worth(&collector.take_block(2, || 0)),
        Some((Worth::Innovative, 1))
    );
    assert!(collector.is_stored());
    collector.take_packet(maker(1, false), &[0, 1, 0, 0], || 0);
    assert!(!collector.is_stored());
    assert_eq!(
        worth(&collector.take_block(1, || 0)),
        Some((Worth::Dependent, 2))
    );
    collector.take_block(0, || 0);
    let last = collector.take_block(3, || 0);
    assert!(last.told.is_none() && matches!(last.next, Next::Whole(None)));
    assert!(matches!(collector.basis(false), Basis::Whole));
}

#[test]
fn who_sent_wrong_pure_packets_is_convicted_once_and_nobody_else() {
    let mut collector = spoiled();
    // Packets are of no use any more, and blocks are not told of.
    assert_eq!(
        worth(&collector.take_packet(maker(4, true), &[0, 0, 1, 0], || 0)),
        None
    );
    assert!(matches!(collector.basis(false), Basis::Blocks(None)));
    assert_eq!(worth(&collector.take_block(2, || 0)), None);
    let Next::Whole(Some(evidence)) = collector.take_block(3, || 0).next else {
        panic!("its last block is here");
    };
    assert_eq!(evidence.pure().collect::<Vec<_>>(), [1, 3]);
    assert_eq!(evidence.rows().1, [0, 1, 2, 3]);
    assert_eq!(evidence.convict(|_| true), [NodeId(1), NodeId(3)]);
    assert_eq!(evidence.convict(|number| number == 2), []);
}

#[test]
fn blocks_that_come_while_a_spoiled_batch_is_decoded_count() {
    let mut collector = open(&[0, 1]);
    collector.take_packet(maker(1, true), &[1, 1, 1, 0], || 1);
    collector.take_packet(maker(1, true), &[1, 1, 1, 1], || 1);
    assert!(matches!(collector.take_block(2, || 0).next, Next::Nothing));
    assert!(matches!(collector.take_block(3, || 0).next, Next::Nothing));
    assert!(matches!(collector.settle([], true), Next::Whole(Some(_))));
}

#[test]
fn pure_packets_are_made_of_blocks_alone() {
    let mut collector = open(&[0]);
    assert!(matches!(collector.basis(true), Basis::Blocks(Some(_))));
    collector.take_packet(maker(1, false), &[1, 1, 0, 0], || 0);
    assert!(matches!(collector.basis(false), Basis::Packets(_)));
    // This block says nothing new, so it is not among the packets.
    collector.take_block(1, || 0);
    assert!(matches!(collector.basis(true), Basis::Blocks(None)));
}

proptest! {
    /// Whatever comes in whatever order: ranks rise by what packets were worth, decoding begins once
    /// and at full rank, and a batch becomes whole once.
    #[test]
    fn a_batch_is_decoded_and_becomes_whole_once(
        pieces in prop::collection::vec((any::<[u8; 4]>(), 0_usize..8), 0..60),
        spoils: bool,
        delay in 0_usize..4,
    ) {
        let (mut collector, mut rank) = (open(&[]), 0);
        let (mut decoding, mut whole) = (None, 0);
        let mut here = Support::EMPTY;
        for (coefficients, place) in pieces {
            // One of two pieces is a block, and each comes once.
            let before = here.len();
            if place < 4 {
                here.insert(place);
            }
            let taken = match place {
                0..4 if here.len() == before => continue,
                0..4 => collector.take_block(place, || 0),
                _ => collector.take_packet(maker(1, true), &coefficients, || 0),
            };
            if let Some((worth, holding)) = taken.told {
                rank += u16::from(worth == Worth::Innovative);
                prop_assert_eq!(holding.rank, rank);
                prop_assert_eq!(whole, 0);
            }
            match taken.next {
                Next::Nothing => {}
                Next::Whole(_) => whole += 1,
                Next::Decode(packets) => {
                    prop_assert!(decoding.is_none() && packets.rows().rank() == 4);
                    decoding = Some(delay);
                }
            }
            if let Some(left) = &mut decoding {
                if *left == 0 {
                    let fresh = if spoils { 0..0 } else { 0..4 };
                    whole += usize::from(matches!(collector.settle(fresh, spoils), Next::Whole(_)));
                }
                *left = left.checked_sub(1).unwrap_or(usize::MAX);
            }
            prop_assert!(whole <= 1);
            let settled = decoding.is_none_or(|left| left > 4);
            prop_assert!(here.len() < 4 || whole == 1 || !settled);
        }
    }
}
