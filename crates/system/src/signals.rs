//! Where signals come from.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Notes whether signals came from processes. The others came from the kernel, as a terminal's
/// interrupt does, which every process of the group in its foreground gets.
#[derive(Clone, Debug)]
pub struct Origin {
    from_process: Arc<AtomicBool>,
}

impl Origin {
    /// Notes it for these signals from now on. They no longer do what they do by default.
    ///
    /// # Errors
    /// If one of them cannot be caught.
    pub fn note(signals: &[i32]) -> io::Result<Self> {
        let from_process = Arc::new(AtomicBool::new(false));
        for signal in signals {
            let noted = Arc::clone(&from_process);
            let action = move |info: &libc::siginfo_t| {
                // The codes of the kernel are above zero, those of `kill` and its kin are not.
                if info.si_code <= 0 {
                    noted.store(true, Ordering::Relaxed);
                }
            };
            // SAFETY: all the action does is to read plain data and store to an atomic, which may
            // be done at any time and does not panic.
            #[allow(unsafe_code)]
            unsafe {
                signal_hook_registry::register_sigaction(*signal, action)?;
            }
        }
        Ok(Self { from_process })
    }

    /// Whether a process sent one of the signals since this was last asked.
    pub fn take(&self) -> bool {
        self.from_process.swap(false, Ordering::Relaxed)
    }
}
