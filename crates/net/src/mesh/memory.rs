//! A budget of bytes that waits for nobody to overdraw it.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// A number of bytes of which parts are taken and given back.
pub(crate) struct Memory {
    free: Arc<Semaphore>,
    total: u32,
}

impl Memory {
    pub(crate) fn new(total: usize) -> Self {
        let total = u32::try_from(total).unwrap_or(u32::MAX);
        Self {
            free: Arc::new(Semaphore::new(total as usize)),
            total,
        }
    }

    /// Takes `bytes` if they are free now. What is larger than all there is takes all there is.
    pub(crate) fn try_take(&self, bytes: u32) -> Option<OwnedSemaphorePermit> {
        self.free
            .clone()
            .try_acquire_many_owned(bytes.min(self.total))
            .ok()
    }

    /// As [`Self::try_take`], but leaves half of the budget to those who need it more.
    pub(crate) fn try_take_spare(&self, bytes: u32) -> Option<OwnedSemaphorePermit> {
        let spare = self
            .free
            .available_permits()
            .saturating_sub(self.total as usize / 2);
        if bytes as usize <= spare {
            self.try_take(bytes)
        } else {
            None
        }
    }

    /// Takes `bytes` once they are free, in the order of asking; `None` at the end of the mesh.
    pub(crate) async fn take(&self, bytes: u32) -> Option<OwnedSemaphorePermit> {
        self.free
            .clone()
            .acquire_many_owned(bytes.min(self.total))
            .await
            .ok()
    }

    /// Whether somebody who has taken so much may use `bytes`.
    pub(crate) fn suffices(&self, taken: &OwnedSemaphorePermit, bytes: u32) -> bool {
        taken.num_permits() >= bytes.min(self.total) as usize
    }

    /// Ends all waiting: nothing is to be had any more.
    pub(crate) fn close(&self) {
        self.free.close();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_budget_is_kept_and_one_giant_still_passes() {
        let memory = Memory::new(100);
        let first = memory.try_take(60);
        assert!(first.is_some());
        assert!(memory.try_take(41).is_none());
        assert!(memory.try_take(40).is_some());
        drop(first);
        let giant = memory.try_take(1_000_000);
        assert!(giant.is_some());
        assert!(memory.try_take(1).is_none());
        drop(giant);
        assert!(memory.try_take_spare(51).is_none());
        let spare = memory.try_take_spare(50);
        assert!(spare.is_some() && memory.try_take_spare(1).is_none());
        assert!(memory.try_take(50).is_some());
        memory.close();
        assert!(memory.try_take(1).is_none());
    }
}
