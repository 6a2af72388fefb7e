//! One line every few seconds, for logs and pipes.

use outpour_agent::view::{CastView, Phase};
use outpour_core::units::format_duration;
use outpour_core::{Bytes, Rate};

use super::{Sums, percent, slow, states};

/// Where a cast stands, in one line.
pub(super) fn line(view: &CastView) -> String {
    let elapsed = format_duration(view.elapsed);
    match view.phase {
        Phase::Hashing => format!("{elapsed}: hashing, {} read", Bytes(view.hashed_bytes)),
        Phase::Starting => format!("{elapsed}: starting agents: {}", states(view)),
        Phase::Moving | Phase::Done => {
            let sums = Sums::of(view);
            let rate = Rate::from_bytes_per_s(sums.rate_bytes_per_s).unwrap_or_default();
            let slow = match slow(view).len() {
                0 => String::new(),
                count => format!(", {count} slow"),
            };
            format!(
                "{elapsed}: {} %, {rate}, {}{slow}",
                percent(sums.have_bytes, sums.want_bytes).min(99),
                states(view),
            )
        }
    }
}
