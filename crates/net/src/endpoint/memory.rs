//! A budget of bytes that several sessions share and cannot overdraw.
//!
//! What a session may hold follows from what the others leave: of that, the share w / (w + 1) for a
//! weight w (the dynamic thresholds of switches with shared memory, Choudhury and Hahne 1998). So
//! sessions that all want more hold memory in the ratio of their weights, one that is alone has
//! nearly all, and something is always left for one that comes. A session that holds nothing may
//! take one piece whatever the others hold, so that no session waits for another one's disk.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use outpour_core::Priority;
use tokio::sync::{Notify, oneshot};

/// A number of bytes of which parts are taken and given back.
pub(crate) struct Budget(Mutex<State>);

struct State {
    total: usize,
    used: usize,
    last: u64,
    shares: BTreeMap<u64, Share>,
}

struct Share {
    weight: u32,
    used: usize,
    closed: bool,
    waiting: VecDeque<Waiter>,
}

/// A request that waits for memory.
struct Waiter {
    bytes: usize,
    account: Arc<Account>,
    tell: oneshot::Sender<Hold>,
    wake: Option<Arc<Notify>>,
}

impl Budget {
    pub(crate) fn new(total: usize) -> Arc<Self> {
        Arc::new(Self(Mutex::new(State {
            total,
            used: 0,
            last: 0,
            shares: BTreeMap::new(),
        })))
    }

    /// A share in the budget, until it is let go of.
    pub(crate) fn share(self: &Arc<Self>, weight: u32) -> Arc<Account> {
        debug_assert!(weight > 0);
        let mut state = self.lock();
        state.last += 1;
        let id = state.last;
        let share = Share {
            weight,
            used: 0,
            closed: false,
            waiting: VecDeque::new(),
        };
        let same = state.shares.insert(id, share);
        debug_assert!(same.is_none(), "two shares have one number");
        Arc::new(Account {
            budget: self.clone(),
            id,
        })
    }

    /// Bytes that are held.
    pub(crate) fn used(&self) -> usize {
        self.lock().used
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn check(&self) {
        let all = || self.shares.values();
        debug_assert_eq!(self.used, all().map(|share| share.used).sum::<usize>());
        debug_assert!(
            all().all(|share| !share.closed || share.waiting.is_empty()),
            "a wait for a share that is closed never ends"
        );
        debug_assert!(all().all(|share| share.weight > 0));
    }

    /// How much a share may hold while the others hold what they do.
    fn limit(&self, share: &Share) -> usize {
        let left = self.total.saturating_sub(self.used - share.used) as u64;
        let weight = u64::from(share.weight);
        (left * weight / (weight + 1)) as usize
    }

    /// Whether a share may take so much more.
    fn fits(&self, share: &Share, bytes: usize) -> bool {
        share.used == 0 || share.used + bytes <= self.limit(share)
    }

    fn take(&mut self, id: u64, bytes: usize) {
        debug_assert!(bytes <= self.total);
        debug_assert!(self.shares.contains_key(&id), "whose would it be?");
        self.used += bytes;
        if let Some(share) = self.shares.get_mut(&id) {
            debug_assert!(!share.closed);
            share.used += bytes;
        }
        self.check();
    }

    /// Takes what fits now for waiting requests: first for sessions that hold least for their weight.
    fn serve(&mut self) -> Vec<Waiter> {
        let mut served = Vec::new();
        loop {
            let waiting = self.shares.iter().filter(|(_, share)| {
                let next = share.waiting.front();
                next.is_some_and(|waiter| self.fits(share, waiter.bytes))
            });
            let poorest = waiting.min_by_key(|(_, share)| {
                share.used as u64 * u64::from(Priority::WEIGHT_MAX) / u64::from(share.weight)
            });
            let Some(id) = poorest.map(|(id, _)| *id) else {
                return served;
            };
            let next = self.shares.get_mut(&id);
            let Some(waiter) = next.and_then(|share| share.waiting.pop_front()) else {
                return served;
            };
            debug_assert_eq!(waiter.account.id, id);
            if !waiter.tell.is_closed() {
                self.take(id, waiter.bytes);
                served.push(waiter);
            }
        }
    }
}

/// A session's share in a budget.
pub(crate) struct Account {
    budget: Arc<Budget>,
    id: u64,
}

impl Account {
    /// Takes `bytes` if they may be taken now. What is larger than all there is takes all there is.
    pub(crate) fn try_take(self: &Arc<Self>, bytes: u32) -> Option<Hold> {
        self.try_take_if(bytes, State::fits)
    }

    /// As [`Self::try_take`], but leaves half of what may be held to requests that need it more.
    pub(crate) fn try_take_spare(self: &Arc<Self>, bytes: u32) -> Option<Hold> {
        self.try_take_if(bytes, |state, share, bytes| {
            share.used + bytes <= state.limit(share) / 2
        })
    }

    fn try_take_if(
        self: &Arc<Self>,
        bytes: u32,
        fits: impl FnOnce(&State, &Share, usize) -> bool,
    ) -> Option<Hold> {
        let mut state = self.budget.lock();
        let bytes = state.total.min(bytes as usize);
        let share = state.shares.get(&self.id)?;
        if share.closed || !share.waiting.is_empty() || !fits(&state, share, bytes) {
            return None;
        }
        state.take(self.id, bytes);
        Some(self.hold(bytes))
    }

    /// Takes `bytes` once they may be taken, in the order of asking; `None` once it is closed.
    pub(crate) async fn take(self: &Arc<Self>, bytes: u32) -> Option<Hold> {
        if let Some(hold) = self.try_take(bytes) {
            return Some(hold);
        }
        self.ask(bytes, None).await.ok()
    }

    /// Asks for `bytes`; `wake` is told when they are here. What comes is an error once the share
    /// is closed.
    pub(crate) fn ask(
        self: &Arc<Self>,
        bytes: u32,
        wake: Option<Arc<Notify>>,
    ) -> oneshot::Receiver<Hold> {
        let (tell, hold) = oneshot::channel();
        let mut state = self.budget.lock();
        let bytes = state.total.min(bytes as usize);
        if let Some(share) = state.shares.get_mut(&self.id)
            && !share.closed
        {
            share.waiting.push_back(Waiter {
                bytes,
                account: self.clone(),
                tell,
                wake,
            });
        }
        drop(state);
        // It may be here already.
        self.serve();
        hold
    }

    /// Whether what was taken is enough for `bytes`.
    pub(crate) fn suffices(&self, hold: &Hold, bytes: u32) -> bool {
        hold.bytes >= self.budget.lock().total.min(bytes as usize)
    }

    /// How much is held, and may be while the others hold what they do.
    pub(crate) fn used_and_limit(&self) -> (usize, usize) {
        let state = self.budget.lock();
        let share = state.shares.get(&self.id);
        share.map_or((0, 0), |share| (share.used, state.limit(share)))
    }

    /// Whether more than half, or even more than a quarter, of what may be held is held.
    pub(crate) fn pressure(&self) -> Pressure {
        let state = self.budget.lock();
        let Some(share) = state.shares.get(&self.id) else {
            return Pressure::Low;
        };
        match state.limit(share) {
            limit if share.used > limit / 2 => Pressure::High,
            limit if share.used > limit / 4 => Pressure::Some,
            _ => Pressure::Low,
        }
    }

    /// Gives the share another weight.
    pub(crate) fn set_weight(&self, weight: u32) {
        debug_assert!(weight > 0);
        if let Some(share) = self.budget.lock().shares.get_mut(&self.id) {
            share.weight = weight;
        }
        self.serve();
    }

    /// Ends all waiting: nothing is to be had any more.
    pub(crate) fn close(&self) {
        let waiting = self.budget.lock().shares.get_mut(&self.id).map(|share| {
            share.closed = true;
            std::mem::take(&mut share.waiting)
        });
        drop(waiting);
    }

    fn hold(self: &Arc<Self>, bytes: usize) -> Hold {
        Hold {
            account: self.clone(),
            bytes,
        }
    }

    fn serve(&self) {
        let served = self.budget.lock().serve();
        for waiter in served {
            let hold = waiter.account.hold(waiter.bytes);
            let _ = waiter.tell.send(hold);
            if let Some(wake) = waiter.wake {
                wake.notify_one();
            }
        }
    }
}

impl Drop for Account {
    fn drop(&mut self) {
        let share = self.budget.lock().shares.remove(&self.id);
        debug_assert!(share.is_some(), "a share is let go of once");
        if let Some(share) = share {
            debug_assert_eq!(share.used, 0, "its memory is not given back");
            debug_assert!(share.waiting.is_empty());
        }
    }
}

/// How much of what a session may hold it holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pressure {
    /// A quarter at most.
    Low,
    /// More than a quarter.
    Some,
    /// More than half.
    High,
}

/// Bytes that were taken; given back when dropped.
pub(crate) struct Hold {
    account: Arc<Account>,
    bytes: usize,
}

impl Drop for Hold {
    fn drop(&mut self) {
        let mut state = self.account.budget.lock();
        state.used -= self.bytes;
        if let Some(share) = state.shares.get_mut(&self.account.id) {
            share.used -= self.bytes;
        }
        state.check();
        drop(state);
        self.account.serve();
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    /// Takes pieces of one byte until there are no more.
    fn fill(account: &Arc<Account>) -> Vec<Hold> {
        std::iter::from_fn(|| account.try_take(1)).collect()
    }

    #[test]
    fn who_is_alone_has_nearly_all_and_those_who_compete_what_they_weigh() {
        let budget = Budget::new(2100);
        let low = budget.share(Priority::Low.weight());
        let alone = fill(&low);
        assert_eq!(alone.len(), 1050);
        // A later session finds something, and as memory is given back it is shared.
        let shares = [low, budget.share(4), budget.share(16)];
        let mut holds = [alone, fill(&shares[1]), fill(&shares[2])];
        assert!(holds.iter().all(|held| held.len() > 100));
        for _ in 0..5000 {
            for (share, held) in shares.iter().zip(&mut holds) {
                held.pop();
                held.extend(share.try_take(1));
                held.extend(share.try_take(1));
            }
        }
        let held = holds.each_ref().map(Vec::len);
        for (held, right) in held.into_iter().zip([95_usize, 382, 1527]) {
            assert!(held.abs_diff(right) <= 10, "{held} instead of {right}");
        }
        drop(holds);
        assert_eq!(budget.used(), 0);
    }

    #[test]
    fn a_giant_passes_alone_and_a_spare_piece_leaves_half() {
        let budget = Budget::new(1000);
        let (one, other) = (budget.share(4), budget.share(4));
        let giant = one.try_take(1_000_000);
        assert!(giant.is_some() && one.try_take(1).is_none());
        // A giant of another session does not prevent one piece.
        let piece = other.try_take(300);
        assert!(piece.is_some() && other.try_take(1).is_none());
        drop((giant, piece));
        assert!(one.try_take_spare(401).is_none());
        let spare = one.try_take_spare(400);
        assert!(spare.is_some() && one.try_take_spare(1).is_none());
        assert!(one.try_take(400).is_some());
        assert_eq!(one.pressure(), Pressure::Some);
        one.close();
        assert!(one.try_take(1).is_none());
    }

    #[tokio::test]
    async fn who_waits_is_served_in_order_and_a_session_that_ends_gives_everything_back() {
        let budget = Budget::new(1000);
        let share = budget.share(4);
        let first = share.try_take(800).unwrap();
        let order = async {
            let large = share.take(700).await;
            // The small one came later, and there was room for it only now.
            large.unwrap()
        };
        let later = async {
            let hold = share.take(100).await;
            hold.unwrap()
        };
        let release = async { drop(first) };
        let (large, small, ()) = tokio::join!(biased; order, later, release);
        assert_eq!(budget.used(), 800);
        let closed = async {
            tokio::task::yield_now().await;
            share.close();
        };
        let (waited, ()) = tokio::join!(biased; share.take(500), closed);
        assert!(waited.is_none());
        drop((large, small, share));
        assert_eq!(budget.used(), 0);
        assert!(budget.lock().shares.is_empty());
    }
}
