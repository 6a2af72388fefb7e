//! One line every few seconds, for logs and pipes.

use outpour::{Phase, Progress};
use outpour_core::units::format_duration;
use outpour_core::{Bytes, Rate};

use super::{Sums, elapsed, percent, slow, states};

/// Where a cast stands, in one line.
pub(super) fn line(now: &Progress) -> String {
    let time = format_duration(elapsed(now));
    match now.phase {
        Phase::Hashing => format!("{time}: hashing, {} read", Bytes(now.hashed_bytes)),
        Phase::Starting => format!("{time}: starting agents: {}", states(now)),
        Phase::Moving | Phase::Done => {
            let sums = Sums::of(now);
            let rate = Rate::from_bytes_per_s(sums.rate_bytes_per_s).unwrap_or_default();
            let slow = match slow(now).len() {
                0 => String::new(),
                count => format!(", {count} slow"),
            };
            format!(
                "{time}: {} %, {rate}, {}{slow}",
                percent(sums.have_bytes, sums.want_bytes).min(99),
                states(now),
            )
        }
    }
}
