//! Requests between a node and one peer, for protocols whose nodes ask for single blocks.

use outpour_core::BlockId;

use crate::SEND_QUEUE_MAX;

/// How many requests a node has outstanding per peer ([Burger §4.2.1], R).
pub(crate) const REQUESTS: usize = 5;
const _: () = assert!(REQUESTS <= SEND_QUEUE_MAX);

/// What a peer is accused of that goes beyond [`Requests::serve`].
pub(crate) const TOO_MANY: &str = "asked for more at once than it may";

/// The requests of both sides that are not answered yet.
#[derive(Debug)]
pub(crate) struct Requests {
    asked: Vec<BlockId>,
    /// Blocks for the peer that are with the driver.
    queued: usize,
}

impl Default for Requests {
    fn default() -> Self {
        Self {
            asked: Vec::with_capacity(REQUESTS),
            queued: 0,
        }
    }
}

impl Requests {
    /// Whether the peer may be asked for another block.
    pub(crate) const fn has_room(&self) -> bool {
        self.asked.len() < REQUESTS
    }

    /// The blocks that the peer was asked for.
    pub(crate) fn asked(&self) -> &[BlockId] {
        &self.asked
    }

    /// The peer is asked for a block.
    pub(crate) fn ask(&mut self, block: BlockId) {
        debug_assert!(self.has_room());
        debug_assert!(!self.asked.contains(&block), "{block} is asked for twice");
        self.asked.push(block);
    }

    /// A block came or was refused; says whether the peer was asked for it.
    pub(crate) fn answered(&mut self, block: BlockId) -> bool {
        let at = self.asked.iter().position(|asked| *asked == block);
        let was_asked = at.map(|at| self.asked.remove(at)).is_some();
        debug_assert!(self.has_room() || !was_asked);
        debug_assert!(!self.asked.contains(&block), "{block} is still asked for");
        was_asked
    }

    /// Makes room for a block in the driver's queue to the peer; says whether there is any.
    #[must_use]
    pub(crate) const fn serve(&mut self) -> bool {
        let room = self.queued < SEND_QUEUE_MAX;
        if room {
            self.queued += 1;
        }
        debug_assert!(self.queued <= SEND_QUEUE_MAX);
        room
    }

    /// A block has left the driver's queue to the peer.
    pub(crate) const fn sent(&mut self) {
        debug_assert!(self.queued > 0, "nothing was queued");
        self.queued = self.queued.saturating_sub(1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_peer_is_asked_for_so_many_blocks_and_answers_each_once() {
        let mut requests = Requests::default();
        for block in 0..REQUESTS as u32 {
            assert!(requests.has_room());
            requests.ask(block);
        }
        assert!(!requests.has_room());
        assert!(requests.answered(1));
        assert!(!requests.answered(1));
        assert!(requests.has_room());
        assert_eq!(requests.asked(), [0, 2, 3, 4]);
    }

    #[test]
    fn a_full_queue_serves_nobody_until_something_is_sent() {
        let mut requests = Requests::default();
        assert!((0..SEND_QUEUE_MAX).all(|_| requests.serve()));
        assert!(!requests.serve());
        requests.sent();
        assert!(requests.serve() && !requests.serve());
    }
}
