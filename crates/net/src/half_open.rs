//! Connections that have not authenticated yet, and which of them makes room for another.
//!
//! A stranger costs nothing to call, so a listener holds only so many connections whose other ends have
//! proved nothing. When there are more, some have to go: if that were the oldest, a stranger that calls
//! two thousand times a second would close every handshake that takes longer than a tenth of a second,
//! which is what one over a wide area takes. So a source address has a quota, and what exceeds it only
//! closes connections of the same address; a crowd of many addresses loses random ones, those first that
//! have most; and whoever is known by address is not closed for strangers at all.

use std::net::{IpAddr, Ipv6Addr};
use std::time::{Duration, Instant};

use crate::identity::fill_random;

/// What part of all places an address of a stranger may have.
const QUOTA: usize = 8;
/// News come this far apart.
const NEWS_EVERY: Duration = Duration::from_secs(10);

/// The connections of a listener that have not authenticated; `T` is what ends one.
#[derive(Debug)]
pub struct HalfOpen<T> {
    max: usize,
    strangers: Vec<Waiting<T>>,
    known: Vec<Waiting<T>>,
    closed: u64,
    last_from: Option<IpAddr>,
    said: Option<Instant>,
}

#[derive(Debug)]
struct Waiting<T> {
    from: IpAddr,
    source: IpAddr,
    end: T,
}

/// Connections that were closed to make room for others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Crowded {
    /// How many, since it was said last.
    pub closed: u64,
    /// From where the last of them came.
    pub last_from: IpAddr,
}

impl<T> HalfOpen<T> {
    /// Room for `max` connections of strangers and as many of those that are known, but not less than
    /// eight each.
    pub fn new(max: usize) -> Self {
        Self {
            max: max.max(QUOTA),
            strangers: Vec::new(),
            known: Vec::new(),
            closed: 0,
            last_from: None,
            said: None,
        }
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.strangers.len() + self.known.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Forgets those that have ended.
    pub fn retain(&mut self, mut lives: impl FnMut(&T) -> bool) {
        self.strangers.retain(|it| lives(&it.end));
        self.known.retain(|it| lives(&it.end));
    }

    /// A connection from `from` came, which is known or not. What comes back is to be ended.
    #[must_use]
    pub fn add(&mut self, from: IpAddr, known: bool, end: T) -> Option<T> {
        let from = from.to_canonical();
        let source = source(from);
        let (all, quota) = match known {
            true => (&mut self.known, self.max),
            false => (&mut self.strangers, self.max / QUOTA),
        };
        let full = all.len() >= self.max;
        let own = all.iter().filter(|it| it.source == source).count();
        let crowding = match (own >= quota, full) {
            (true, _) => Some(source),
            (false, true) => most(all),
            (false, false) => None,
        };
        let victim = crowding.and_then(|crowding| random_of(all, crowding));
        let victim = victim.map(|victim| all.swap_remove(victim));
        all.push(Waiting { from, source, end });
        debug_assert!(all.len() <= self.max);
        let victim = victim?;
        self.closed += 1;
        self.last_from = Some(victim.from);
        Some(victim.end)
    }

    /// What is to be told of those that were closed, every ten seconds at most.
    pub fn news(&mut self, now: Instant) -> Option<Crowded> {
        let last_from = self.last_from.filter(|_| self.closed > 0)?;
        let early = |said| now.saturating_duration_since(said) < NEWS_EVERY;
        if self.said.is_some_and(early) {
            return None;
        }
        self.said = Some(now);
        let closed = std::mem::take(&mut self.closed);
        Some(Crowded { closed, last_from })
    }
}

/// What counts as one source: who has one address of IPv6 has all of its network of 64 bits.
fn source(from: IpAddr) -> IpAddr {
    match from {
        IpAddr::V4(_) => from,
        IpAddr::V6(it) => Ipv6Addr::from_bits(it.to_bits() & !u128::from(u64::MAX)).into(),
    }
}

/// The source that has most; a random one of these.
fn most<T>(all: &[Waiting<T>]) -> Option<IpAddr> {
    let mut sources: Vec<IpAddr> = all.iter().map(|it| it.source).collect();
    sources.sort_unstable();
    let groups: Vec<&[IpAddr]> = sources.chunk_by(|a, b| a == b).collect();
    let most = groups.iter().map(|group| group.len()).max()?;
    let having = groups.iter().filter(|group| group.len() == most);
    let having: Vec<IpAddr> = having.map(|group| group[0]).collect();
    Some(having[random(having.len())])
}

/// A random one of a source.
fn random_of<T>(all: &[Waiting<T>], source: IpAddr) -> Option<usize> {
    let of = all.iter().enumerate().filter(|(_, it)| it.source == source);
    let of: Vec<usize> = of.map(|(index, _)| index).collect();
    (!of.is_empty()).then(|| of[random(of.len())])
}

/// Below `count`, which is not zero.
fn random(count: usize) -> usize {
    debug_assert!(count > 0);
    let mut bytes = [0; 8];
    // Without randomness the first goes, and a listener goes on.
    let _ = fill_random(&mut bytes);
    (u64::from_le_bytes(bytes) % count as u64) as usize
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::collections::BTreeSet;

    use super::*;

    const MAX: usize = 64;

    fn at(last: u32) -> IpAddr {
        std::net::Ipv4Addr::from_bits(0x0a00_0000 + last).into()
    }

    /// Who is still there: connections are numbered, those of floods from 1000.
    struct Listener {
        half_open: HalfOpen<u32>,
        live: BTreeSet<u32>,
        next: u32,
    }

    impl Listener {
        fn new() -> Self {
            Self {
                half_open: HalfOpen::new(MAX),
                live: BTreeSet::new(),
                next: 1000,
            }
        }

        fn comes(&mut self, number: u32, from: IpAddr, known: bool) {
            self.live.insert(number);
            if let Some(ended) = self.half_open.add(from, known, number) {
                assert!(self.live.remove(&ended), "{ended} was ended twice");
            }
            assert_eq!(self.half_open.len(), self.live.len());
            assert!(self.live.len() <= 2 * MAX);
        }

        fn flood(&mut self, from: impl Fn(u32) -> IpAddr, connections: u32) {
            for it in 0..connections {
                self.comes(self.next, from(it), false);
                self.next += 1;
            }
        }
    }

    #[test]
    fn one_address_closes_only_its_own() {
        let mut listener = Listener::new();
        // As many others as there is room for beside a stranger's quota, each twice.
        let others = (MAX - MAX / QUOTA) as u32;
        (0..others).for_each(|it| listener.comes(it, at(it / 2), false));
        listener.flood(|_| at(999), 5_000);
        assert!((0..others).all(|it| listener.live.contains(&it)));
        assert_eq!(listener.live.len(), MAX);
        // And the last one of an address finds a place.
        assert!(listener.live.contains(&(1000 + 4_999)));
    }

    #[test]
    fn a_network_of_ipv6_is_one_source_and_a_mapped_address_is_that_of_ipv4() {
        let six = |last: u32| -> IpAddr {
            Ipv6Addr::from_bits((0x2001 << 112) + u128::from(last)).into()
        };
        let mapped = std::net::Ipv4Addr::from_bits(0x0a00_0001).to_ipv6_mapped();
        let mut listener = Listener::new();
        listener.comes(1, at(1), false);
        listener.comes(2, Ipv6Addr::from_bits(0x2002 << 112).into(), false);
        listener.flood(six, 2_000);
        assert!(listener.live.contains(&1) && listener.live.contains(&2));
        assert_eq!(listener.live.len(), 2 + MAX / QUOTA);
        // Its own address in another notation shares its quota.
        (10..10 + MAX as u32).for_each(|it| listener.comes(it, mapped.into(), false));
        assert_eq!(listener.live.len(), 2 * (MAX / QUOTA) + 1);
    }

    #[test]
    fn of_many_addresses_those_with_most_lose_random_ones() {
        let survived = |each: u32| {
            let mut listener = Listener::new();
            listener.comes(1, at(1), false);
            listener.flood(|it| at(100 + it / each), 200);
            listener.live.contains(&1)
        };
        // Crowds whose members have several connections never close one that is alone.
        assert!((0..50).all(|_| survived(4)));
        // Among equals chance decides: the oldest goes no earlier than others, and 0.12 of 1000 stay.
        let stayed = (0..1000).filter(|_| survived(1)).count();
        assert!((60..200).contains(&stayed), "{stayed}");
    }

    #[test]
    fn who_is_known_is_not_closed_for_strangers() {
        let mut listener = Listener::new();
        (0..MAX as u32).for_each(|it| listener.comes(it, at(it % 3), true));
        listener.flood(at, 2_000);
        assert!((0..MAX as u32).all(|it| listener.live.contains(&it)));
        // Nor from the same address, as long as that is not known as theirs.
        listener.flood(|_| at(0), 2_000);
        assert!((0..MAX as u32).all(|it| listener.live.contains(&it)));
        // But there is a bound for them as well.
        (0..MAX as u32).for_each(|it| listener.comes(500 + it, at(7), true));
        assert_eq!(listener.half_open.known.len(), MAX);
    }

    #[test]
    fn who_is_done_makes_room() {
        let mut half_open = HalfOpen::new(MAX);
        for round in 0..10 {
            for it in 0..MAX as u32 {
                assert_eq!(half_open.add(at(it), false, round), None);
            }
            half_open.retain(|_| false);
            assert!(half_open.is_empty());
        }
    }

    #[test]
    fn what_is_closed_is_told_now_and_then() {
        let mut half_open = HalfOpen::new(MAX);
        let start = Instant::now();
        let after = |seconds| start + Duration::from_secs(seconds);
        assert_eq!(half_open.news(after(0)), None);
        let flood = |half_open: &mut HalfOpen<usize>, connections: usize| {
            (0..connections).for_each(|it| _ = half_open.add(at(3), false, it));
        };
        flood(&mut half_open, MAX / QUOTA + 1);
        let said = |closed| {
            let last_from = at(3);
            Some(Crowded { closed, last_from })
        };
        assert_eq!(half_open.news(after(0)), said(1));
        flood(&mut half_open, 20);
        assert_eq!(half_open.news(after(9)), None);
        flood(&mut half_open, 1);
        assert_eq!(half_open.news(after(10)), said(21));
        assert_eq!(half_open.news(after(30)), None);
    }
}
