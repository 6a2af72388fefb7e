//! Which members of a job hold some blocks: a short list, or a bit for each member.

use std::sync::Arc;

/// A set of members of one job, by index. Equal sets are equal values: which of the two forms a set
/// has follows from its size alone. Copies share their memory.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Holders {
    /// The members in order.
    Few(Arc<[u32]>),
    /// A bit for each.
    Many(Arc<[u64]>),
}

/// How many members a list may have before bits take less memory.
const fn few_max(members: u32) -> usize {
    2 * members.div_ceil(u64::BITS) as usize
}

impl Holders {
    /// Nobody.
    pub(crate) fn none() -> Self {
        Self::Few(Arc::from([]))
    }

    /// How many they are.
    #[cfg(test)]
    pub(crate) fn count(&self) -> u32 {
        match self {
            Self::Few(list) => list.len() as u32,
            Self::Many(bits) => bits.iter().map(|word| word.count_ones()).sum(),
        }
    }

    /// A number that depends on who they are alone.
    pub(crate) fn hash(&self) -> u64 {
        const ODD: u64 = 0x9e37_79b9_7f4a_7c15;
        let mix = |hash: u64, word: u64| (hash ^ word).wrapping_mul(ODD).rotate_left(29);
        match self {
            Self::Few(list) => list.iter().fold(0, |hash, it| mix(hash, u64::from(*it))),
            Self::Many(bits) => bits.iter().fold(1, |hash, it| mix(hash, *it)),
        }
    }

    /// Whether a member is one of them.
    pub(crate) fn contains(&self, member: u32) -> bool {
        match self {
            Self::Few(list) => list.binary_search(&member).is_ok(),
            Self::Many(bits) => {
                let word = bits.get((member / u64::BITS) as usize);
                word.is_some_and(|word| word >> (member % u64::BITS) & 1 == 1)
            }
        }
    }

    /// Those from `first` up to `end`, in order.
    pub(crate) fn within(&self, first: u32, end: u32) -> Within<'_> {
        match self {
            Self::Few(list) => {
                let skip = list.partition_point(|member| *member < first);
                Within::Few(list[skip..].iter(), end)
            }
            Self::Many(bits) => Within::Many {
                bits,
                next: first,
                end,
            },
        }
    }

    /// All of them, in order.
    pub(crate) fn iter(&self) -> Within<'_> {
        self.within(0, u32::MAX)
    }

    /// The same with one more; `members` is how many the job has.
    pub(crate) fn with(&self, member: u32, members: u32) -> Self {
        debug_assert!(member < members, "members have numbers below their count");
        let list = self.iter().filter(|other| *other != member);
        let mut list: Vec<u32> = list.collect();
        let place = list.partition_point(|other| *other < member);
        list.insert(place, member);
        Self::of(list, members)
    }

    /// The same with one less.
    pub(crate) fn without(&self, member: u32, members: u32) -> Self {
        let list = self.iter().filter(|other| *other != member);
        Self::of(list.collect(), members)
    }

    /// The form that fits a sorted list.
    pub(crate) fn of(list: Vec<u32>, members: u32) -> Self {
        debug_assert!(list.is_sorted_by(|a, b| a < b), "in order, none twice");
        if list.len() <= few_max(members) {
            return Self::Few(list.into());
        }
        let mut bits = vec![0_u64; members.div_ceil(u64::BITS) as usize];
        for member in list {
            bits[(member / u64::BITS) as usize] |= 1 << (member % u64::BITS);
        }
        Self::Many(bits.into())
    }
}

/// Members in order.
pub(crate) enum Within<'a> {
    Few(std::slice::Iter<'a, u32>, u32),
    Many {
        bits: &'a [u64],
        next: u32,
        end: u32,
    },
}

impl Iterator for Within<'_> {
    type Item = u32;

    fn next(&mut self) -> Option<u32> {
        match self {
            Self::Few(list, end) => list.next().copied().filter(|member| member < end),
            Self::Many { bits, next, end } => {
                let mut index = (*next / u64::BITS) as usize;
                let mut word = *bits.get(index)? >> (*next % u64::BITS) << (*next % u64::BITS);
                while word == 0 {
                    index += 1;
                    word = *bits.get(index)?;
                }
                let member = index as u32 * u64::BITS + word.trailing_zeros();
                *next = member + 1;
                (member < *end).then_some(member)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_forms_are_one_set() {
        let members = 130;
        let mut holders = Holders::none();
        let mut plain = std::collections::BTreeSet::new();
        for step in 0..400_u32 {
            let member = step * 37 % members;
            if step % 3 == 0 {
                holders = holders.without(member, members);
                plain.remove(&member);
            } else {
                holders = holders.with(member, members);
                plain.insert(member);
            }
            assert_eq!(holders.count() as usize, plain.len());
            assert!(holders.iter().eq(plain.iter().copied()));
            assert!(holders.within(60, 70).eq(plain.range(60..70).copied()));
            assert_eq!(holders.contains(member), plain.contains(&member));
            let again = Holders::of(plain.iter().copied().collect(), members);
            assert_eq!(holders, again, "equal sets are equal values");
        }
        assert!(!holders.contains(4000));
    }
}
