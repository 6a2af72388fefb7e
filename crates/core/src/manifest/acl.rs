//! POSIX access control lists, as Linux keeps them in extended attributes: a version, and entries of
//! a tag, permissions and a number, in a fixed order of tags.

#![cfg_attr(
    not(test),
    deny(
        clippy::unwrap_used,
        clippy::expect_used,
        clippy::indexing_slicing,
        clippy::arithmetic_side_effects
    )
)]

const VERSION: [u8; 4] = 2_u32.to_le_bytes();

/// Bytes of an entry: tag, permissions, number.
const ENTRY_BYTES: usize = 8;

/// Whom an entry is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum AclTag {
    /// The owner.
    Owner,
    /// A user, by number.
    User(u32),
    /// The group of the file.
    OwnGroup,
    /// A group, by number.
    Group(u32),
    /// The most that users by number and all groups may do.
    Mask,
    /// Everybody else.
    Other,
}

/// An entry of a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AclEntry {
    /// Whom it is about.
    pub tag: AclTag,
    /// What they may do: read 4, write 2, enter or execute 1.
    pub allowed: u16,
}

/// A list that the kernel would take.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Acl(Vec<AclEntry>);

impl Acl {
    /// Reads the value of an attribute; `None` if it is no valid list.
    pub fn decode(value: &[u8]) -> Option<Self> {
        let (entries, odd) = value.strip_prefix(&VERSION)?.as_chunks::<ENTRY_BYTES>();
        if !odd.is_empty() {
            return None;
        }
        let entries: Option<Vec<AclEntry>> = entries.iter().map(entry).collect();
        let acl = Self(entries?);
        acl.is_valid().then_some(acl)
    }

    /// The value of an attribute with this list.
    pub fn encode(&self) -> Vec<u8> {
        let mut value = VERSION.to_vec();
        for entry in &self.0 {
            let (tag, id) = wire(entry.tag);
            value.extend(tag.to_le_bytes());
            value.extend(entry.allowed.to_le_bytes());
            value.extend(id.to_le_bytes());
        }
        value
    }

    /// The entries, in their order.
    pub fn entries(&self) -> &[AclEntry] {
        &self.0
    }

    /// The same list for other numbers: each user and group as the functions say.
    #[must_use]
    pub fn renumbered(mut self, user: impl Fn(u32) -> u32, group: impl Fn(u32) -> u32) -> Self {
        for entry in &mut self.0 {
            entry.tag = match entry.tag {
                AclTag::User(id) => AclTag::User(user(id)),
                AclTag::Group(id) => AclTag::Group(group(id)),
                tag => tag,
            };
        }
        // The kernel keeps the order it is given; a list that is read back is compared with this one.
        self.0.sort_by_key(|entry| entry.tag.order());
        self
    }

    /// The same list for a file of a mode: what the mode says of the owner, of the mask (or of the group,
    /// if there is none) and of the others is what the list says. In a file system both always agree.
    #[must_use]
    pub fn with_mode(mut self, mode: u16) -> Self {
        let masked = self.0.iter().any(|entry| entry.tag == AclTag::Mask);
        for entry in &mut self.0 {
            match entry.tag {
                AclTag::Owner => entry.allowed = mode >> 6 & 7,
                AclTag::Mask => entry.allowed = mode >> 3 & 7,
                AclTag::OwnGroup if !masked => entry.allowed = mode >> 3 & 7,
                AclTag::Other => entry.allowed = mode & 7,
                _ => {}
            }
        }
        self
    }

    /// Owner, group and others once each, a mask if there are numbers, all in the order of tags.
    fn is_valid(&self) -> bool {
        let rank = |entry: &AclEntry| entry.tag.order().0;
        let count = |tag| self.0.iter().filter(|entry| entry.tag == tag).count();
        let once = |tag| count(tag) == 1;
        let numbered = |entry: &AclEntry| matches!(entry.tag, AclTag::User(_) | AclTag::Group(_));
        let masks = count(AclTag::Mask);
        once(AclTag::Owner)
            && once(AclTag::OwnGroup)
            && once(AclTag::Other)
            && (masks == 1 || (masks == 0 && !self.0.iter().any(numbered)))
            && self.0.is_sorted_by_key(rank)
    }
}

impl AclTag {
    /// Where it is in a list; entries of one sort by number.
    const fn order(self) -> (u8, u32) {
        match self {
            Self::Owner => (0, 0),
            Self::User(id) => (1, id),
            Self::OwnGroup => (2, 0),
            Self::Group(id) => (3, id),
            Self::Mask => (4, 0),
            Self::Other => (5, 0),
        }
    }
}

fn entry(bytes: &[u8; ENTRY_BYTES]) -> Option<AclEntry> {
    let [t0, t1, p0, p1, id @ ..] = *bytes;
    let id = u32::from_le_bytes(id);
    let tag = match u16::from_le_bytes([t0, t1]) {
        0x01 => AclTag::Owner,
        0x02 if id != u32::MAX => AclTag::User(id),
        0x04 => AclTag::OwnGroup,
        0x08 if id != u32::MAX => AclTag::Group(id),
        0x10 => AclTag::Mask,
        0x20 => AclTag::Other,
        _ => return None,
    };
    let allowed = u16::from_le_bytes([p0, p1]);
    (allowed <= 7).then_some(AclEntry { tag, allowed })
}

/// The tag and the number of an entry; where there is none, that of nobody.
const fn wire(tag: AclTag) -> (u16, u32) {
    match tag {
        AclTag::Owner => (0x01, u32::MAX),
        AclTag::User(id) => (0x02, id),
        AclTag::OwnGroup => (0x04, u32::MAX),
        AclTag::Group(id) => (0x08, id),
        AclTag::Mask => (0x10, u32::MAX),
        AclTag::Other => (0x20, u32::MAX),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn value(entries: &[(u16, u16, u32)]) -> Vec<u8> {
        let mut value = VERSION.to_vec();
        for (tag, allowed, id) in entries {
            value.extend(tag.to_le_bytes());
            value.extend(allowed.to_le_bytes());
            value.extend(id.to_le_bytes());
        }
        value
    }

    const NONE: u32 = u32::MAX;
    const LIST: [(u16, u16, u32); 7] = [
        (1, 6, NONE),
        (2, 7, 1000),
        (2, 4, 1001),
        (4, 4, NONE),
        (8, 5, 50),
        (0x10, 7, NONE),
        (0x20, 0, NONE),
    ];

    #[test]
    fn a_list_comes_back_as_it_was() {
        let acl = Acl::decode(&value(&LIST)).unwrap();
        assert_eq!(acl.entries().len(), LIST.len());
        assert_eq!(acl.encode(), value(&LIST));
    }

    #[test]
    fn what_the_kernel_would_refuse_is_no_list() {
        let mut bad = vec![
            vec![],
            VERSION.to_vec(),
            value(&LIST)[..value(&LIST).len() - 1].to_vec(),
            [&1_u32.to_le_bytes()[..], &value(&LIST)[4..]].concat(),
        ];
        // Each of these is needed, but the numbers are not.
        for missing in [0, 3, 5, 6] {
            let mut list = LIST.to_vec();
            list.remove(missing);
            bad.push(value(&list));
        }
        for (at, other) in [
            (0, (1, 8, NONE)),
            (1, (2, 7, NONE)),
            (4, (8, 5, NONE)),
            (1, (3, 7, 1000)),
            (1, (0x20, 7, NONE)),
            (6, (0x20, 0xffff, NONE)),
        ] {
            let mut list = LIST;
            list[at] = other;
            bad.push(value(&list));
        }
        let mut order = LIST;
        order.swap(3, 4);
        bad.push(value(&order));
        let mut twice = LIST.to_vec();
        twice.insert(0, LIST[0]);
        bad.push(value(&twice));
        for value in bad {
            assert_eq!(Acl::decode(&value), None, "{value:?}");
        }
        let plain = value(&[LIST[0], LIST[3], LIST[6]]);
        assert!(Acl::decode(&plain).is_some());
    }

    #[test]
    fn numbers_and_modes_are_put_in_their_places() {
        let acl = Acl::decode(&value(&LIST)).unwrap();
        let other = acl.clone().renumbered(|id| 3000 - id, |id| id + 1);
        let expected = [
            LIST[0],
            (2, 4, 1999),
            (2, 7, 2000),
            LIST[3],
            (8, 5, 51),
            LIST[5],
            LIST[6],
        ];
        assert_eq!(other.encode(), value(&expected));
        // With a mask, the group bits of the mode are the mask.
        let moded = acl.with_mode(0o421);
        let mut expected = LIST;
        (expected[0].1, expected[5].1, expected[6].1) = (4, 2, 1);
        assert_eq!(moded.encode(), value(&expected));
        let plain = Acl::decode(&value(&[LIST[0], LIST[3], LIST[6]])).unwrap();
        let expected = value(&[(1, 4, NONE), (4, 2, NONE), (0x20, 1, NONE)]);
        assert_eq!(plain.with_mode(0o421).encode(), expected);
    }
}
