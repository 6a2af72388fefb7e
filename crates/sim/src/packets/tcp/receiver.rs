//! What has arrived, in order and beyond.

use super::Segment;

/// How many blocks an acknowledgement has room for besides a timestamp (RFC 2018 §3).
pub const BLOCKS: usize = 3;

/// Acknowledges all packets before `next`, and blocks beyond.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ack {
    /// The first sequence that has not arrived.
    pub next: u64,
    /// Blocks from and up to so many packets behind `next`; an empty one is none. The first has the
    /// packet that brought this about, the others are those that changed last (RFC 2018 §4).
    blocks: [(u32, u32); BLOCKS],
    /// Whether the packet that brought this about had a congestion mark.
    pub is_marked: bool,
}

impl Ack {
    /// Sequences from and up to, without the latter, that have arrived beyond `next`.
    pub fn blocks(&self) -> impl Iterator<Item = (u64, u64)> + use<> {
        let next = self.next;
        let blocks = self.blocks.into_iter().filter(|(from, to)| from < to);
        blocks.map(move |(from, to)| (next + u64::from(from), next + u64::from(to)))
    }
}

/// The receiver of a flow.
#[derive(Clone, Debug, Default)]
pub struct Receiver {
    next: u64,
    /// Blocks beyond, that which changed last first; no two touch.
    held: Vec<(u64, u64)>,
    received: u64,
    repeated: u64,
}

impl Receiver {
    /// How many different packets have arrived.
    pub fn received(&self) -> u64 {
        self.received
    }

    /// How many packets have arrived that had before.
    pub fn repeated(&self) -> u64 {
        self.repeated
    }

    /// A packet arrives; what to answer.
    pub fn handle_segment(&mut self, segment: Segment, is_marked: bool) -> Ack {
        let sequence = segment.sequence;
        let is_held = |(from, to): &(u64, u64)| (*from..*to).contains(&sequence);
        if sequence < self.next || self.held.iter().any(is_held) {
            self.repeated += 1;
        } else {
            self.received += 1;
            self.take(sequence);
        }
        let mut ack = Ack {
            next: self.next,
            is_marked,
            ..Ack::default()
        };
        for (block, (from, to)) in ack.blocks.iter_mut().zip(&self.held) {
            debug_assert!(*from > self.next, "what comes next was held back");
            let behind = |it: u64| u32::try_from(it - self.next).unwrap_or(u32::MAX);
            *block = (behind(*from), behind(*to));
        }
        ack
    }

    fn take(&mut self, sequence: u64) {
        let (mut from, mut to) = (sequence, sequence + 1);
        if let Some(at) = self.held.iter().position(|it| it.1 == from) {
            from = self.held.remove(at).0;
        }
        if let Some(at) = self.held.iter().position(|it| it.0 == to) {
            to = self.held.remove(at).1;
        }
        if from == self.next {
            self.next = to;
        } else {
            self.held.insert(0, (from, to));
        }
    }
}
