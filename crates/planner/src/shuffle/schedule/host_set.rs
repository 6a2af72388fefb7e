//! Sets of hosts, a bit each: most coflows have nothing to do where there is room, and that is seen at once.

use super::super::HostId;

#[derive(Clone, Debug, Default)]
pub(super) struct HostSet(Vec<u64>);

impl HostSet {
    /// Says whether it was not there.
    pub(super) fn insert(&mut self, host: HostId) -> bool {
        let (word, bit) = (host / 64, 1 << (host % 64));
        if self.0.len() <= word {
            self.0.resize(word + 1, 0);
        }
        let is_new = self.0[word] & bit == 0;
        self.0[word] |= bit;
        is_new
    }

    pub(super) fn remove(&mut self, host: HostId) {
        if let Some(word) = self.0.get_mut(host / 64) {
            *word &= !(1 << (host % 64));
        }
    }

    /// The hosts, in order.
    pub(super) fn iter(&self) -> impl Iterator<Item = HostId> + '_ {
        self.0.iter().enumerate().flat_map(|(word, bits)| {
            let rest = std::iter::successors(Some(*bits), |bits| Some(bits & bits.wrapping_sub(1)));
            let rest = rest.take_while(|bits| *bits != 0);
            rest.map(move |bits| word * 64 + bits.trailing_zeros() as usize)
        })
    }

    /// Takes in all hosts of the other.
    pub(super) fn extend(&mut self, other: &Self) {
        if self.0.len() < other.0.len() {
            self.0.resize(other.0.len(), 0);
        }
        for (word, more) in self.0.iter_mut().zip(&other.0) {
            *word |= more;
        }
    }

    /// How many hosts are in both.
    pub(super) fn shared(&self, other: &Self) -> u32 {
        let words = self.0.iter().zip(&other.0);
        words.map(|(a, b)| (a & b).count_ones()).sum()
    }

    /// Whether any host is in both.
    pub(super) fn meets(&self, other: &Self) -> bool {
        let mut words = self.0.iter().zip(&other.0);
        words.any(|(a, b)| a & b != 0)
    }

    /// Whether all of these are in the other.
    pub(super) fn is_within(&self, other: &Self) -> bool {
        let other = other.0.iter().copied().chain(std::iter::repeat(0));
        let mut words = self.0.iter().zip(other);
        words.all(|(a, b)| a & !b == 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(hosts: &[HostId]) -> HostSet {
        let mut set = HostSet::default();
        for host in hosts {
            set.insert(*host);
        }
        set
    }

    #[test]
    fn sets_of_any_length_are_compared() {
        let (few, many) = (set(&[3, 64]), set(&[3, 64, 500]));
        assert_eq!(many.iter().collect::<Vec<_>>(), [3, 64, 500]);
        assert!(few.is_within(&many) && !many.is_within(&few));
        assert!(few.meets(&many) && many.meets(&few));
        assert!(!set(&[500]).meets(&few) && !few.meets(&set(&[2, 65])));
        assert_eq!((few.shared(&many), set(&[2, 500]).shared(&many)), (2, 1));
        let mut both = few.clone();
        both.extend(&set(&[4, 500]));
        assert_eq!(both.iter().collect::<Vec<_>>(), [3, 4, 64, 500]);
        both.extend(&HostSet::default());
        assert_eq!(both.iter().count(), 4);
        let mut gone = many.clone();
        gone.remove(500);
        gone.remove(9999);
        assert!(gone.is_within(&few) && HostSet::default().is_within(&few));
        assert!(!HostSet::default().meets(&few));
    }
}
