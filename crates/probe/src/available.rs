//! Available bandwidth by self-induced congestion: streams of packets at a fixed rate are sent
//! faster or slower, by bisection, until the rate is found above which they queue up.
//!
//! A stream faster than the path makes each packet wait a little longer than the one before
//! [Burger §2.3.5]. One-way delays need no common clock for that: only whether they grow counts.

use std::time::Duration;

use outpour_core::Rate;

/// Shares of the tests that decide, as the authors of the method found them to.
const RISES: f64 = 0.66;
const RISES_NOT: f64 = 0.54;
const GAINS: f64 = 0.55;
const GAINS_NOT: f64 = 0.45;

/// A stream that lost more than this share of its packets was too fast.
const LOSS_MAX: f64 = 0.1;
/// Delays that grow by less than this share of the stream's time do not grow.
const GROWTH_MIN: f64 = 0.02;
/// Streams with fewer arrivals say nothing.
const ARRIVALS_MIN: usize = 16;
/// The search ends when it knows the rate to this share, or after so many streams.
const PRECISION: f64 = 0.05;
const STREAMS_MAX: u32 = 12;

/// What became of the delays of a stream's packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trend {
    /// They grew: the stream was faster than the path.
    Rising,
    /// They did not.
    Flat,
    /// Hard to say.
    Unclear,
}

/// Looks at the one-way delays of a stream's packets in the order they were sent.
///
/// Delays are cut into groups of which the median counts, so that a single packet that was held
/// up decides nothing. Then two tests vote: how many steps go up, and how much of all the
/// movement is gain.
pub fn trend(delays: &[f64]) -> Trend {
    if delays.len() < ARRIVALS_MIN {
        return Trend::Unclear;
    }
    let group = (delays.len() as f64).sqrt() as usize;
    let medians: Vec<f64> = delays.chunks_exact(group).map(median).collect();
    let steps: Vec<f64> = medians.windows(2).map(|pair| pair[1] - pair[0]).collect();
    let ups = steps.iter().filter(|step| **step > 0.0).count() as f64 / steps.len() as f64;
    let movement: f64 = steps.iter().map(|step| step.abs()).sum();
    let gain = if movement > 0.0 {
        steps.iter().sum::<f64>() / movement
    } else {
        0.0
    };
    let vote = |value: f64, yes: f64, no: f64| i32::from(value > yes) - i32::from(value < no);
    match vote(ups, RISES, RISES_NOT) + vote(gain, GAINS, GAINS_NOT) {
        1.. => Trend::Rising,
        0 => Trend::Unclear,
        _ => Trend::Flat,
    }
}

fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted[sorted.len() / 2]
}

/// A packet of a stream: its number, when it was sent and when it came, each by its own clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flight {
    /// By the sender's clock.
    pub sent: Duration,
    /// By the receiver's clock.
    pub came: Duration,
}

/// What a stream of `sent` packets shows, given those that came, in the order they were sent.
pub fn verdict(flights: &[Flight], sent: usize) -> Trend {
    let lost = sent.saturating_sub(flights.len()) as f64;
    if lost > LOSS_MAX * sent as f64 {
        return Trend::Rising;
    }
    let delay = |flight: &Flight| flight.came.as_secs_f64() - flight.sent.as_secs_f64();
    let delays: Vec<f64> = flights.iter().map(delay).collect();
    let (Some(first), Some(last)) = (flights.first(), flights.last()) else {
        return Trend::Unclear;
    };
    let quarter = delays.len().div_ceil(4);
    let (Some(begin), Some(end)) = (delays.get(..quarter), delays.get(delays.len() - quarter..))
    else {
        return Trend::Unclear;
    };
    // So much more than the path takes makes queues grow by that share of the stream's time; what
    // is less is a clock or a scheduler at work.
    let lasted = last.sent.saturating_sub(first.sent).as_secs_f64();
    if delays.len() >= ARRIVALS_MIN && median(end) - median(begin) < GROWTH_MIN * lasted {
        return Trend::Flat;
    }
    trend(&delays)
}

/// The search for the highest rate at which streams do not queue up.
#[derive(Clone, Debug)]
pub struct Search {
    /// No stream at this rate, in bytes per second, queued up.
    low: f64,
    /// Every stream at this rate did.
    high: f64,
    first: bool,
    streams: u32,
}

impl Search {
    /// A search up to `most`.
    pub const fn new(most: Rate) -> Self {
        Self {
            low: 0.0,
            high: most.bytes_per_s(),
            first: true,
            streams: 0,
        }
    }

    /// The rate of the next stream; `None` once the search is over.
    pub fn next_rate(&self) -> Option<Rate> {
        let close = self.high - self.low <= PRECISION * self.high;
        if close || self.streams >= STREAMS_MAX {
            return None;
        }
        let rate = if self.first {
            self.high
        } else {
            f64::midpoint(self.low, self.high)
        };
        Rate::from_bytes_per_s(rate)
    }

    /// Takes what the stream at [`Self::next_rate`] showed.
    pub fn tell(&mut self, trend: Trend) {
        let Some(rate) = self.next_rate() else {
            return;
        };
        self.streams += 1;
        match trend {
            // What is not clearly free is not promised.
            Trend::Rising | Trend::Unclear if !self.first => self.high = rate.bytes_per_s(),
            Trend::Rising | Trend::Unclear => {}
            Trend::Flat => self.low = rate.bytes_per_s(),
        }
        self.first = false;
    }

    /// The rate found; zero if even slow streams queued up.
    pub fn found(&self) -> Rate {
        Rate::from_bytes_per_s(self.low).unwrap_or(Rate::ZERO)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    /// Streams of 100 packets of 1400 bytes through a link with some jitter of the clock.
    fn stream(rate: f64, link: f64) -> Trend {
        let gap = 1400.0 / rate;
        let service = 1400.0 / link;
        let mut free = 0.0_f64;
        let mut flights = Vec::new();
        for n in 0..100_u32 {
            let sent = f64::from(n) * gap;
            free = free.max(sent) + service;
            let jitter = f64::from(n * 7919 % 31) * 1e-6;
            flights.push(Flight {
                sent: Duration::from_secs_f64(sent),
                came: Duration::from_secs_f64(5.0 + free + jitter),
            });
        }
        verdict(&flights, 100)
    }

    #[test]
    fn streams_faster_than_the_link_queue_up_and_others_do_not() {
        assert_eq!(stream(6e6, 5e6), Trend::Rising);
        assert_eq!(stream(4.5e6, 5e6), Trend::Flat);
        assert_eq!(trend(&[0.0; 10]), Trend::Unclear);
        assert_eq!(trend(&[0.1; 100]), Trend::Flat);
    }

    #[test]
    fn a_stream_that_loses_much_was_too_fast() {
        let flights = vec![
            Flight {
                sent: Duration::ZERO,
                came: Duration::ZERO
            };
            80
        ];
        assert_eq!(verdict(&flights, 100), Trend::Rising);
        assert_eq!(verdict(&flights, 82), Trend::Flat);
    }

    #[test]
    fn the_search_finds_what_is_free_on_a_link() {
        for link in [0.3e6, 1e6, 2.5e6, 9e6] {
            let mut search = Search::new(Rate::from_bytes_per_s(1e7).unwrap());
            let mut streams = 0;
            while let Some(rate) = search.next_rate() {
                search.tell(stream(rate.bytes_per_s(), link));
                streams += 1;
            }
            let found = search.found().bytes_per_s();
            assert!((found / link - 1.0).abs() < 0.1, "{link}: {found}");
            assert!(streams <= STREAMS_MAX, "{streams}");
        }
    }

    #[test]
    fn a_search_may_find_that_all_is_free_or_nothing() {
        let most = Rate::from_bytes_per_s(1e6).unwrap();
        let mut search = Search::new(most);
        search.tell(Trend::Flat);
        assert_eq!((search.next_rate(), search.found()), (None, most));
        let mut search = Search::new(most);
        while search.next_rate().is_some() {
            search.tell(Trend::Unclear);
        }
        assert_eq!(search.found(), Rate::ZERO);
    }
}
