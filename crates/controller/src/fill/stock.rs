//! Which blocks relays get for the sake of others.

use super::{Filler, Move, destination};
use crate::blocks::Runs;

/// Blocks with the same holders that relays may be brought for a target.
#[derive(Clone, Copy)]
pub(crate) struct StockClass {
    pub(crate) class: u32,
    /// Where those are noted that are on their way to the only member of the target that lacks them.
    pub(crate) only: Option<usize>,
    /// Whether more than one member lacks them, of all targets.
    pub(crate) several: bool,
}

impl Filler<'_> {
    /// Brings a relay blocks of these classes, in order, at most `most` bytes: first those that no other
    /// relay is about to get, then those that several members lack. How much of which class.
    pub(crate) fn stock(
        &mut self,
        classes: &[StockClass],
        relay: u32,
        most: f64,
        stocked: &mut Runs,
    ) -> Vec<(u32, f64)> {
        let mut brought = Vec::new();
        let left = self.stock_classes(classes.iter(), (relay, most), stocked, &mut brought);
        let several = classes.iter().filter(|it| it.several);
        let mut none = Runs::default();
        self.stock_classes(several, (relay, left), &mut none, &mut brought);
        none.iter().for_each(|run| stocked.insert(run));
        brought
    }

    /// The same without what is `stocked`; what of `most` is left.
    fn stock_classes<'a>(
        &mut self,
        classes: impl Iterator<Item = &'a StockClass>,
        (relay, most): (u32, f64),
        stocked: &mut Runs,
        brought: &mut Vec<(u32, f64)>,
    ) -> f64 {
        let partition = self.partition;
        let shape = partition.shape();
        debug_assert!(shape.relays[relay as usize], "others are served as targets");
        let node = shape.members[relay as usize];
        let mut left = most;
        let least = self.least(true);
        for class in classes {
            if left < least {
                break;
            }
            let holders = partition.holders(class.class);
            if holders.contains(relay) || !shape.may_relay(relay, holders) {
                continue;
            }
            let able = |from: &u32| {
                let source = shape.members[*from as usize];
                shape.gives[*from as usize]
                    && !shape.relays[*from as usize]
                    && !(self.severed)(*from, relay)
                    && self.room.left(source, node) >= least
            };
            let Some(from) = holders.iter().find(able) else {
                continue;
            };
            let bytes = self.stock_class(*class, (from, relay), left, stocked);
            left -= bytes;
            if bytes > 0.0 {
                brought.push((class.class, bytes));
            }
        }
        left
    }

    /// Brings a relay blocks of a class: those last that targets are about to get, and none that the only
    /// member of the target which lacks it is about to get.
    fn stock_class(
        &mut self,
        StockClass { class, only, .. }: StockClass,
        (from, relay): (u32, u32),
        most: f64,
        stocked: &mut Runs,
    ) -> f64 {
        let shape = self.partition.shape();
        let (a, b) = (shape.members[from as usize], shape.members[relay as usize]);
        let place = destination(shape, relay);
        debug_assert!(from != relay, "nobody sends to oneself");
        let mut given = 0.0;
        let mut at = 0;
        while let Some(run) = self.partition.next_run(class, at) {
            at = run.end;
            let mut first = run.start;
            while let Some(free) = self.coming[place].next_absent(first, run.end) {
                first = free.end;
                let Some(free) = stocked.next_absent(free.start, free.end) else {
                    continue;
                };
                first = free.end;
                let only = only.map(|only| &self.coming[only]);
                let free = match only {
                    Some(only) => only.next_absent(free.start, free.end),
                    None => Some(free),
                };
                let Some(free) = free else { continue };
                first = free.end;
                let left = self.room.left(a, b).min(most - given).min(self.job);
                let Some((count, bytes)) = self.portion(free.end - free.start, left, true) else {
                    return given;
                };
                // From the end, as targets are served from the beginning.
                let run = free.end - count..free.end;
                debug_assert!(run.start >= free.start, "no more is brought than is free");
                debug_assert!(given + bytes <= most * 1.001 + 1.0, "it wants no more");
                self.room.take(a, b, bytes);
                self.job -= bytes;
                self.coming[place].insert(run.clone());
                stocked.insert(run.clone());
                given += bytes;
                self.moves.push(Move {
                    from,
                    to: relay,
                    run,
                    bytes,
                });
            }
        }
        given
    }
}
