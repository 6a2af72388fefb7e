//! The event queue: virtual time with a fixed order among events of the same instant.
//!
//! A radix heap. Events are put into buckets by the highest bit in which their time differs from
//! the present, so an event moves down at most 64 times and pushing costs no comparison. Virtual
//! time never goes back, which is all a radix heap asks for. Events of the same instant come out
//! in the order they went in: a bucket keeps its order, and is only emptied into empty ones below.

use std::collections::VecDeque;

use outpour_core::Time;

/// One bucket per bit of a time in nanoseconds.
const BUCKETS: usize = u64::BITS as usize;

/// Events in the order of their times, those of one instant in the order they were pushed.
#[derive(Debug)]
pub struct Queue<E> {
    /// Events at `base`.
    due: VecDeque<E>,
    /// Bucket `b` has the events whose time differs from `base` in bit `b` and in none above.
    buckets: Vec<Vec<(u64, E)>>,
    /// The earliest time in each bucket.
    earliest: [u64; BUCKETS],
    /// Bit `b` is set if bucket `b` has events.
    filled: u64,
    base: u64,
    len: usize,
}

impl<E> Default for Queue<E> {
    fn default() -> Self {
        Self {
            due: VecDeque::new(),
            buckets: (0..BUCKETS).map(|_| Vec::new()).collect(),
            earliest: [u64::MAX; BUCKETS],
            filled: 0,
            base: 0,
            len: 0,
        }
    }
}

impl<E> Queue<E> {
    /// How many events wait.
    pub const fn len(&self) -> usize {
        self.len
    }

    /// Whether no event waits.
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Adds an event at a time that is not before that of the last event taken out; an earlier
    /// one counts as that time.
    pub fn push(&mut self, at: Time, event: E) {
        self.len += 1;
        let at = at.0.max(self.base);
        if at == self.base {
            self.due.push_back(event);
        } else {
            self.put(at, event);
        }
    }

    fn put(&mut self, at: u64, event: E) {
        let bucket = (at ^ self.base).ilog2() as usize;
        self.filled |= 1 << bucket;
        self.earliest[bucket] = self.earliest[bucket].min(at);
        self.buckets[bucket].push((at, event));
    }

    /// When the next event is due.
    pub fn next_time(&self) -> Option<Time> {
        if !self.due.is_empty() {
            return Some(Time(self.base));
        }
        (self.filled != 0).then(|| Time(self.earliest[self.filled.trailing_zeros() as usize]))
    }

    /// Takes the next event out.
    pub fn pop(&mut self) -> Option<(Time, E)> {
        if self.due.is_empty() {
            self.advance();
        }
        let event = self.due.pop_front()?;
        self.len -= 1;
        Some((Time(self.base), event))
    }

    /// Makes the earliest time the base and spreads its bucket over the ones below.
    fn advance(&mut self) {
        if self.filled == 0 {
            return;
        }
        let bucket = self.filled.trailing_zeros() as usize;
        self.base = self.earliest[bucket];
        self.filled &= !(1 << bucket);
        self.earliest[bucket] = u64::MAX;
        // Taken out and put back to keep its memory.
        let mut events = std::mem::take(&mut self.buckets[bucket]);
        for (at, event) in events.drain(..) {
            if at == self.base {
                self.due.push_back(event);
            } else {
                self.put(at, event);
            }
        }
        self.buckets[bucket] = events;
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::collections::BTreeMap;

    use super::*;
    use crate::dice::Dice;

    #[test]
    fn order_is_that_of_a_sorted_map_with_queues() {
        let mut dice = Dice::new(7);
        let mut queue = Queue::default();
        let mut model: BTreeMap<u64, VecDeque<u32>> = BTreeMap::new();
        let mut now = 0;
        for id in 0..20_000 {
            if dice.chance(0.55) {
                let spread = 1 << dice.below(40);
                let at = now + dice.below(spread);
                queue.push(Time(at), id);
                model.entry(at).or_default().push_back(id);
            } else if let Some(mut entry) = model.first_entry() {
                assert_eq!(queue.next_time(), Some(Time(*entry.key())));
                now = *entry.key();
                let expected = entry.get_mut().pop_front().unwrap();
                if entry.get().is_empty() {
                    entry.remove();
                }
                assert_eq!(queue.pop(), Some((Time(now), expected)));
            }
        }
        assert_eq!(
            queue.len(),
            model.values().map(VecDeque::len).sum::<usize>()
        );
    }

    #[test]
    fn the_past_counts_as_now() {
        let mut queue = Queue::default();
        queue.push(Time(10), 'a');
        assert_eq!(queue.pop(), Some((Time(10), 'a')));
        queue.push(Time(3), 'b');
        assert_eq!(queue.pop(), Some((Time(10), 'b')));
        assert_eq!(queue.pop(), None);
        assert!(queue.is_empty());
    }
}
