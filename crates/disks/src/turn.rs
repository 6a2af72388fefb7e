//! What the threads that sync would do, one turn at a time.

use super::Destination;

impl Destination {
    /// Takes the turn of a thread that syncs: as much as it does before it waits.
    pub fn take_turn(&self) {
        let running = self.running();
        let inner = running.inner();
        let mut progress = inner.progress();
        if progress.stop {
            return;
        }
        if inner.due(&progress) == Some(std::time::Duration::ZERO) {
            drop(progress);
            inner.sync_if_due();
            return;
        }
        // It is tried again in the next turn.
        let _ = inner.log(&mut progress);
        drop(progress);
        inner.look_after_leases();
    }
}
