//! How much a connection hands to the kernel at a time.

use std::time::Duration;

/// A record's worth: less costs room for headers.
const BYTES_MIN: usize = 16 << 10;
const BYTES_MAX: usize = 256 << 10;
/// A write shall take no longer than this, for a message waits for all that was written before it;
/// and if it takes much less, larger writes save processor time.
const WRITE_MAX: Duration = Duration::from_millis(10);
const WRITE_MIN: Duration = Duration::from_micros(2500);

// What was just doubled is not halved for it.
const _: () = assert!(2 * WRITE_MIN.as_micros() <= WRITE_MAX.as_micros());
const _: () = assert!(BYTES_MIN < BYTES_MAX);
// Doubled and halved, it comes by the same sizes.
const _: () = assert!((BYTES_MAX / BYTES_MIN).is_power_of_two());
const _: () = assert!(BYTES_MAX.is_multiple_of(BYTES_MIN));

/// How much a connection writes at a time; as much as its path takes in a few milliseconds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Portion(usize);

impl Portion {
    /// Small at first; it grows fast.
    pub(crate) const fn start() -> Self {
        Self(BYTES_MIN)
    }

    /// Bytes of a write.
    pub(crate) const fn bytes(self) -> usize {
        self.0
    }

    /// Bytes that may lie unsent in the socket before more is written: what is sent while the
    /// next portion is sealed.
    pub(crate) const fn unsent(self) -> u32 {
        (self.0 / 2) as u32
    }

    /// A write of `bytes` took so long; says whether the portion is another now.
    pub(crate) fn wrote(&mut self, bytes: usize, took: Duration) -> bool {
        let before = self.0;
        if took > WRITE_MAX {
            self.0 = (self.0 / 2).max(BYTES_MIN);
        } else if took < WRITE_MIN && bytes >= self.0 {
            self.0 = (self.0 * 2).min(BYTES_MAX);
        }
        debug_assert!(self.0 >= BYTES_MIN);
        debug_assert!(self.0 <= BYTES_MAX);
        self.0 != before
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn what_a_path_takes_in_a_few_milliseconds_is_written_at_a_time() {
        let at_rate = |mut portion: Portion, bytes_per_s: f64| {
            for _ in 0..20 {
                let bytes = portion.bytes();
                let took = Duration::from_secs_f64(bytes as f64 / bytes_per_s);
                portion.wrote(bytes, took);
            }
            portion
        };
        let slow = at_rate(Portion::start(), 1.875e6);
        assert_eq!(slow.bytes(), 16 << 10);
        let fast = at_rate(slow, 1.25e9);
        assert_eq!(fast.bytes(), 256 << 10);
        assert_eq!(at_rate(fast, 1.25e7).bytes(), 64 << 10);
    }

    #[test]
    fn a_small_write_says_nothing_about_larger_ones() {
        let mut portion = Portion::start();
        assert!(!portion.wrote(100, Duration::ZERO));
        assert!(!portion.wrote(100, 5 * MS));
        assert_eq!(portion.bytes(), BYTES_MIN);
    }
}
