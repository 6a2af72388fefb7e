//! Memory of a service for what grows with the casts it takes part in, beside the buffers of its data
//! plane: manifests, what is known of their entries and blocks, packets of coded casts, long messages of
//! operators.
//!
//! What is about to take memory asks here first, and gives it back when it ends. An operator has at most
//! three quarters of it. Who finds no room waits a while; who needs less than there is passes those that
//! need more, so one that asks for much keeps nobody waiting but itself.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use outpour_core::Bytes;
use tokio::sync::Notify;
use tokio::time::timeout;

/// How long memory is waited for. The command gives up later than that.
const PATIENCE: Duration = Duration::from_secs(10);

/// Bytes of which parts are held, by operator.
#[derive(Debug)]
pub(crate) struct Budget {
    total: u64,
    held: Mutex<BTreeMap<String, u64>>,
    freed: Notify,
    patience: Duration,
}

impl Budget {
    /// So many bytes.
    pub(crate) fn new(total: Bytes) -> Arc<Self> {
        Self::with_patience(total, PATIENCE)
    }

    pub(crate) fn with_patience(total: Bytes, patience: Duration) -> Arc<Self> {
        Arc::new(Self {
            total: total.0,
            held: Mutex::default(),
            freed: Notify::new(),
            patience,
        })
    }

    /// How much an operator may hold at most.
    const fn each(&self) -> u64 {
        self.total / 4 * 3
    }

    fn held(&self) -> MutexGuard<'_, BTreeMap<String, u64>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Bytes for an operator; waits for them for a while.
    ///
    /// # Errors
    /// If there is no room, or never will be.
    pub(crate) async fn take(
        self: &Arc<Self>,
        operator: &str,
        bytes: u64,
    ) -> Result<Memory, NoRoom> {
        let mut memory = self.open(operator);
        let grown = async {
            loop {
                let freed = self.freed.notified();
                let mut freed = std::pin::pin!(freed);
                // What is given back from now on is not missed.
                freed.as_mut().enable();
                match memory.grow_to(bytes) {
                    Err(NoRoom::Now { .. }) => freed.await,
                    done => return done,
                }
            }
        };
        if let Ok(done) = timeout(self.patience, grown).await {
            return done.map(|()| memory);
        }
        memory.grow_to(bytes).map(|()| memory)
    }

    /// An account of an operator, with nothing in it.
    fn open(self: &Arc<Self>, operator: &str) -> Memory {
        Memory(Some(Account {
            budget: self.clone(),
            operator: operator.to_owned(),
            bytes: 0,
        }))
    }

    /// Takes more, if there is room.
    fn add(&self, operator: &str, had: u64, bytes: u64) -> Result<(), NoRoom> {
        let most = self.each();
        if bytes > most {
            let (needs, most) = (shown(bytes), shown(most));
            return Err(NoRoom::Ever { needs, most });
        }
        let mut held = self.held();
        let own = held.get(operator).copied().unwrap_or_default();
        let all: u64 = held.values().sum();
        debug_assert!(own >= had && all <= self.total);
        let more = bytes.saturating_sub(had);
        if own + more > most || all + more > self.total {
            let (needs, total) = (shown(bytes), shown(self.total));
            return Err(NoRoom::Now { needs, total });
        }
        *held.entry(operator.to_owned()).or_default() += more;
        Ok(())
    }

    fn give_back(&self, operator: &str, bytes: u64) {
        if bytes == 0 {
            return;
        }
        let mut held = self.held();
        let left = held.get(operator).copied().unwrap_or_default();
        debug_assert!(left >= bytes, "what is given back was taken");
        match left.saturating_sub(bytes) {
            0 => drop(held.remove(operator)),
            left => drop(held.insert(operator.to_owned(), left)),
        }
        drop(held);
        self.freed.notify_waiters();
    }

    #[cfg(test)]
    pub(crate) fn all_held(&self) -> u64 {
        self.held().values().sum()
    }
}

/// As people read it: in whole mebibytes, rounded up.
const fn shown(bytes: u64) -> Bytes {
    Bytes(bytes.div_ceil(1 << 20) << 20)
}

/// Memory that is given back when this is dropped. One without an account is of an agent that was started
/// for one cast, whose memory is its user's: it may have any amount.
#[derive(Debug, Default)]
pub(crate) struct Memory(Option<Account>);

#[derive(Debug)]
struct Account {
    budget: Arc<Budget>,
    operator: String,
    bytes: u64,
}

impl Memory {
    /// Has at least so many bytes from now on. It does not wait.
    ///
    /// # Errors
    /// If there is no room; what it had it has still.
    pub(crate) fn grow_to(&mut self, bytes: u64) -> Result<(), NoRoom> {
        if let Some(account) = self.0.as_mut().filter(|it| it.bytes < bytes) {
            let Account {
                budget, operator, ..
            } = account;
            budget.add(operator, account.bytes, bytes)?;
            account.bytes = bytes;
        }
        Ok(())
    }

    /// Has so many bytes more from now on.
    ///
    /// # Errors
    /// As [`Self::grow_to`].
    pub(crate) fn grow_by(&mut self, bytes: u64) -> Result<(), NoRoom> {
        let had = self.0.as_ref().map_or(0, |account| account.bytes);
        self.grow_to(had.saturating_add(bytes))
    }

    /// Has at most so many bytes from now on.
    pub(crate) fn shrink_to(&mut self, bytes: u64) {
        if let Some(account) = self.0.as_mut().filter(|it| it.bytes > bytes) {
            let more = account.bytes - bytes;
            account.bytes = bytes;
            account.budget.give_back(&account.operator, more);
        }
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        self.shrink_to(0);
    }
}

/// There is no room.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum NoRoom {
    /// At the moment.
    #[error(
        "this host has no memory for that: it takes {needs:#}, and other casts have too much of the {total:#} for \
         all casts; try again later"
    )]
    Now {
        /// How much would be held.
        needs: Bytes,
        /// How much there is for all.
        total: Bytes,
    },
    /// At no time.
    #[error(
        "this host has no memory for that: it takes {needs:#}, and one operator's casts may have {most:#}; its agent \
         needs more --memory"
    )]
    Ever {
        /// How much would be held.
        needs: Bytes,
        /// How much an operator may hold.
        most: Bytes,
    },
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn budget(total: u64, patience: Duration) -> Arc<Budget> {
        Budget::with_patience(Bytes(total), patience)
    }

    #[tokio::test]
    async fn no_operator_has_all_and_what_is_dropped_is_given_back() {
        let budget = budget(1000, Duration::ZERO);
        let ana = budget.take("ana", 700).await.unwrap();
        let refused = budget.take("ana", 51).await.unwrap_err();
        assert!(matches!(refused, NoRoom::Now { .. }), "{refused}");
        let more = budget.take("ana", 50).await.unwrap();
        let bob = budget.take("bob", 250).await.unwrap();
        assert!(budget.take("eve", 1).await.is_err());
        drop((ana, more));
        assert!(budget.take("eve", 750).await.is_ok());
        let never = budget.take("eve", 751).await.unwrap_err();
        assert!(never.to_string().contains("needs more --memory"), "{never}");
        drop(bob);
        assert_eq!(budget.all_held(), 0);
        assert!(budget.held().is_empty(), "no name is kept for ever");
    }

    #[tokio::test]
    async fn who_waits_for_much_keeps_nobody_waiting_who_needs_little() {
        let budget = budget(1000, Duration::from_secs(60));
        let first = budget.take("ana", 600).await.unwrap();
        let large = async { budget.take("bob", 700).await.unwrap() };
        let small = async {
            // The large one waits already.
            tokio::task::yield_now().await;
            let small = budget.take("eve", 300).await.unwrap();
            drop((small, first));
        };
        let (large, ()) = tokio::join!(biased; large, small);
        assert_eq!(budget.all_held(), 700);
        drop(large);
    }

    #[tokio::test]
    async fn memory_grows_if_there_is_room_and_keeps_what_it_had_if_not() {
        let budget = budget(1000, Duration::ZERO);
        let mut memory = budget.take("ana", 100).await.unwrap();
        memory.grow_to(300).unwrap();
        memory.grow_to(200).unwrap();
        assert_eq!(budget.all_held(), 300);
        let other = budget.take("bob", 600).await.unwrap();
        assert!(memory.grow_to(401).is_err());
        assert_eq!(budget.all_held(), 900);
        memory.shrink_to(50);
        drop(other);
        assert_eq!(budget.all_held(), 50);
        // One's own agent asks nobody.
        Memory::default().grow_to(u64::MAX).unwrap();
    }
}
