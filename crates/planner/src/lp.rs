//! The one way to the solver of linear programs.
//!
//! The solver fails on some problems that are hard for floating point, and its caller has to
//! have another answer then. Tests make it fail here, at any call.

use microlp::{Problem, Solution};

/// The best solution. `None` if the solver fails.
pub(crate) fn solve(problem: &Problem) -> Option<Solution> {
    #[cfg(test)]
    if failing::is_due() {
        return None;
    }
    problem.solve().ok()?.into_solution().ok()
}

#[cfg(test)]
pub(crate) mod failing {
    use std::cell::Cell;

    thread_local! {
        /// How many more problems of this thread are solved before the solver fails for good.
        static LEFT: Cell<u32> = const { Cell::new(u32::MAX) };
        static FAILED: Cell<bool> = const { Cell::new(false) };
    }

    /// Runs `task` with a solver that fails from the call after so many on; also says whether it
    /// came to that.
    pub(crate) fn after<T>(calls: u32, task: impl FnOnce() -> T) -> (T, bool) {
        LEFT.set(calls);
        FAILED.set(false);
        let done = task();
        LEFT.set(u32::MAX);
        (done, FAILED.get())
    }

    /// Counts a call.
    pub(super) fn is_due() -> bool {
        let left = LEFT.get();
        LEFT.set(left.saturating_sub(1));
        FAILED.set(FAILED.get() || left == 0);
        left == 0
    }
}
