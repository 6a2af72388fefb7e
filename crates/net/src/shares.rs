//! A rate that several sessions share by weight, as a value: told the time, it says which request may
//! pass.
//!
//! Requests are served in the order of their start tags (start-time fair queueing, Goyal, Vin and
//! Cheng 1996), so sessions that have something to pass get the rate in the ratio of their weights,
//! and what one does not use the others get. Of a single session the requests pass in the order in
//! which they came, as through a [`crate::bucket::Bucket`].

use outpour_core::{Priority, Rate, Time};
use std::collections::BTreeMap;

use crate::bucket::{LATE_MAX, burst, cost, rescale};

/// The requests of sessions for a rate; a ticket says whose a request is.
pub(crate) struct Shares<T> {
    rate: Rate,
    /// When all that was granted has passed.
    clear: Time,
    /// The start tag of the request that was served last.
    tag: u64,
    flows: BTreeMap<u64, Flow>,
    /// By start tag and order of arrival.
    waiting: BTreeMap<(u64, u64), Request<T>>,
    last: u64,
}

/// A session's part. Tags count bytes times [`Priority::WEIGHT_MAX`] over the weight.
struct Flow {
    weight: u32,
    /// When its last request will have been served, as a tag.
    finish: u64,
}

struct Request<T> {
    flow: u64,
    bytes: usize,
    /// Since when its owner has had something to pass without a break.
    since: Time,
    ticket: T,
}

impl<T> Shares<T> {
    pub(crate) fn new(rate: Rate) -> Self {
        Self {
            rate,
            clear: Time::ZERO,
            tag: 0,
            flows: BTreeMap::new(),
            waiting: BTreeMap::new(),
            last: 0,
        }
    }

    pub(crate) const fn rate(&self) -> Rate {
        self.rate
    }

    /// Changes the rate from `now` on. What was granted and has not passed does so at the new one.
    pub(crate) fn set_rate(&mut self, now: Time, rate: Rate) {
        self.clear = rescale(self.clear, now, self.rate, rate);
        self.rate = rate;
    }

    /// Adds a session, or gives it another weight.
    pub(crate) fn set_flow(&mut self, flow: u64, weight: u32) {
        debug_assert!(weight > 0);
        debug_assert!(
            Priority::WEIGHT_MAX.is_multiple_of(weight),
            "tags count in whole units"
        );
        let finish = self.tag;
        let flow = self.flows.entry(flow).or_insert(Flow { weight, finish });
        flow.weight = weight;
    }

    /// The greatest weight of a session.
    pub(crate) fn heaviest(&self) -> u32 {
        self.flows
            .values()
            .map(|flow| flow.weight)
            .max()
            .unwrap_or(0)
    }

    /// Forgets a session and what it asked for.
    pub(crate) fn remove_flow(&mut self, flow: u64) {
        self.flows.remove(&flow);
        self.waiting.retain(|_, request| request.flow != flow);
    }

    /// Asks whether `bytes` of a session may pass, which has had something to pass without a break
    /// `since` then. Gives the ticket back if they may at once, and keeps it otherwise.
    pub(crate) fn ask(
        &mut self,
        now: Time,
        since: Time,
        flow: u64,
        bytes: usize,
        ticket: T,
    ) -> Option<T> {
        if self.rate.is_unlimited() {
            return Some(ticket);
        }
        debug_assert!(since <= now, "it had something to pass in the future");
        debug_assert!(bytes > 0);
        let tag = self.tag_for(now, since, flow, bytes);
        if self.waiting.is_empty() && self.start(now, since) <= now {
            self.pass(now, since, tag, bytes);
            return Some(ticket);
        }
        self.last += 1;
        let request = Request {
            flow,
            bytes,
            since,
            ticket,
        };
        let same = self.waiting.insert((tag, self.last), request);
        debug_assert!(same.is_none(), "two requests have one number");
        None
    }

    /// Counts `bytes` that pass without having asked.
    pub(crate) fn charge(&mut self, now: Time, since: Time, flow: u64, bytes: usize) {
        if !self.rate.is_unlimited() {
            self.tag_for(now, since, flow, bytes);
            self.clear = self.start(now, since) + cost(self.rate, bytes as f64);
        }
    }

    /// The tickets of the requests that may pass now, and when the next may.
    pub(crate) fn grant(
        &mut self,
        now: Time,
        is_alive: impl Fn(&T) -> bool,
    ) -> (Vec<T>, Option<Time>) {
        let mut granted = Vec::new();
        while let Some(first) = self.waiting.first_entry() {
            let tag = first.key().0;
            let (since, bytes) = (first.get().since, first.get().bytes);
            let start = match is_alive(&first.get().ticket) {
                true if self.rate.is_unlimited() => now,
                true => self.start(now, since),
                false => {
                    self.waiting.pop_first();
                    continue;
                }
            };
            if start > now {
                debug_assert!(!self.rate.is_unlimited());
                return (granted, Some(start));
            }
            if let Some((_, request)) = self.waiting.pop_first() {
                self.pass(now, since, tag, bytes);
                granted.push(request.ticket);
            }
        }
        (granted, None)
    }

    /// When the next bytes may pass.
    fn start(&self, now: Time, since: Time) -> Time {
        let earliest = since.max(now - LATE_MAX).min(now - burst(self.rate));
        let start = self.clear.max(earliest);
        debug_assert!(now.since(start) <= LATE_MAX.max(burst(self.rate)));
        start
    }

    fn pass(&mut self, now: Time, since: Time, tag: u64, bytes: usize) {
        debug_assert!(self.rate.is_unlimited() || self.start(now, since) <= now);
        self.tag = self.tag.max(tag);
        self.clear = self.start(now, since) + cost(self.rate, bytes as f64);
    }

    /// The start tag of a request. A session that always had something to pass, and did not come
    /// to ask in time, is ahead of the others by what it missed, up to a bound; one that had not
    /// begins where the others are.
    fn tag_for(&mut self, now: Time, since: Time, flow: u64, bytes: usize) -> u64 {
        debug_assert!(!self.rate.is_unlimited(), "no session waits for a turn");
        let Some(flow) = self.flows.get_mut(&flow) else {
            return self.tag;
        };
        let unit = u64::from(Priority::WEIGHT_MAX / flow.weight.max(1));
        let missed = now.since(since).min(LATE_MAX).as_secs_f64() * self.rate.bytes_per_s();
        let missed = (missed as u64).saturating_mul(unit);
        let tag = flow.finish.max(self.tag.saturating_sub(missed));
        flow.finish = tag.saturating_add(bytes as u64 * unit);
        tag
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::time::Duration;

    use super::*;

    const PORTION: usize = 8000;
    const MS: Duration = Duration::from_millis(1);

    /// A session that asks again so long after it was served, and what it got.
    struct Asker {
        pause: Duration,
        next: Option<Time>,
        got: usize,
    }

    /// Runs sessions with these weights and pauses for so long; what each got.
    fn run(
        shares: &mut Shares<usize>,
        from: Time,
        time: Duration,
        askers: &[(u32, Duration)],
    ) -> Vec<usize> {
        let mut all = Vec::new();
        for (flow, (weight, pause)) in askers.iter().enumerate() {
            shares.set_flow(flow as u64, *weight);
            let (pause, next) = (*pause, Some(from));
            all.push(Asker {
                pause,
                next,
                got: 0,
            });
        }
        let mut now = from;
        while now < from + time {
            for (number, asker) in all.iter_mut().enumerate() {
                while asker.next.is_some_and(|at| at <= now) {
                    asker.next = None;
                    let passed = shares.ask(now, from, number as u64, PORTION, number);
                    if passed.is_some() {
                        asker.got += PORTION;
                        asker.next = Some(now + asker.pause);
                    }
                }
            }
            let (granted, _) = shares.grant(now, |_| true);
            for number in granted {
                all[number].got += PORTION;
                all[number].next = Some(now + all[number].pause);
            }
            now += MS / 4;
        }
        all.iter().map(|asker| asker.got).collect()
    }

    #[test]
    fn the_rate_is_shared_by_weight_and_used_up() {
        let rate = Rate::from_bytes_per_s(8e6).unwrap();
        for pause in [MS / 4, MS] {
            let mut shares = Shares::new(rate);
            let weights = [(1, pause), (4, pause), (16, pause)];
            let got = run(&mut shares, Time(10_000_000_000), 20_000 * MS, &weights);
            let all: usize = got.iter().sum();
            assert!((0.99..1.03).contains(&(all as f64 / 160e6)), "{got:?}");
            for (got, weight) in got.iter().zip([1.0, 4.0, 16.0]) {
                let share = *got as f64 / all as f64 / (weight / 21.0);
                assert!((0.95..1.05).contains(&share), "{got:?}");
            }
        }
    }

    #[test]
    fn what_one_does_not_use_the_others_get() {
        let rate = Rate::from_bytes_per_s(8e6).unwrap();
        let mut shares = Shares::new(rate);
        // The heavy one asks for a tenth of the rate only.
        let askers = [(1, MS / 4), (16, 10 * MS)];
        let got = run(&mut shares, Time(10_000_000_000), 10_000 * MS, &askers);
        assert!((7.5e6..8.2e6).contains(&(got[1] as f64)), "{got:?}");
        assert!(got[0] > 70_000_000, "{got:?}");
        // One that comes later has no claim to what the others had before.
        let got = run(
            &mut shares,
            Time(21_000_000_000),
            1000 * MS,
            &[(4, MS), (4, MS), (4, MS)],
        );
        assert!(got[2] < 3_000_000, "{got:?}");
        shares.remove_flow(0);
        assert!(
            shares.ask(Time(22_100_000_000), Time(0), 1, 1, 9).is_none()
                || shares.waiting.is_empty()
        );
    }

    #[test]
    fn a_rate_that_is_changed_holds_at_once() {
        let rate = |mbyte: f64| Rate::from_bytes_per_s(mbyte * 1e6).unwrap();
        let mut shares = Shares::new(rate(1.0));
        let mut from = Time(10_000_000_000);
        let mut first = true;
        for mbyte in [1.0, 10.0, 0.5, 4.0] {
            shares.set_rate(from, rate(mbyte));
            if !first {
                // The first tenth of a second may hold what was granted before.
                run(&mut shares, from, 100 * MS, &[(4, MS / 4)]);
                from += 100 * MS;
            }
            first = false;
            let got = run(&mut shares, from, 1000 * MS, &[(4, MS / 4)]);
            let share = got[0] as f64 / (mbyte * 1e6);
            assert!((0.95..1.06).contains(&share), "{share} of {mbyte} MB/s");
            from += 1000 * MS;
        }
        // From nothing, too: what waits for ever is let through.
        shares.set_rate(from, Rate::ZERO);
        run(&mut shares, from, 10 * MS, &[(4, MS)]);
        shares.set_rate(from + 10 * MS, Rate::UNLIMITED);
        assert!(!shares.grant(from + 10 * MS, |_| true).0.is_empty());
    }

    #[test]
    fn a_rate_beyond_all_numbers_is_no_harm() {
        let mut shares = Shares::new(Rate::from_bytes_per_s(1e300).unwrap());
        shares.set_flow(1, 1);
        let now = Time(10_000_000_000);
        assert_eq!(shares.ask(now, now - 100 * MS, 1, 1000, 9), Some(9));
    }

    #[test]
    fn a_request_that_nobody_waits_for_takes_nothing() {
        let mut shares = Shares::new(Rate::from_bytes_per_s(1e6).unwrap());
        shares.set_flow(1, 4);
        let now = Time(10_000_000_000);
        shares.charge(now, now, 1, 1_000_000);
        for ticket in 0..10 {
            assert!(shares.ask(now, now, 1, 1_000_000, ticket).is_none());
        }
        let (granted, next) = shares.grant(now + 1000 * MS, |ticket| *ticket == 9);
        assert_eq!((granted, next), (vec![9], None));
    }
}
