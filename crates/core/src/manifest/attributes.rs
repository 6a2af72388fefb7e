//! What a manifest may say of an entry beside its mode and time: with `--archive` it does.
//!
//! What would give away privileges has no place here: no setuid, no setgid but on directories, no
//! attributes of the name spaces `security` and `trusted`. Most entries of a tree have the same
//! attributes as others, so each distinct set is there once.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::acl::Acl;
use super::layout::{Content, EntryId, NONE};

/// How many extended attributes an entry may have.
pub const XATTRS_MAX: usize = 256;

/// How long the value of one may be, in bytes: Linux takes no more.
pub const XATTR_VALUE_BYTES_MAX: usize = 64 << 10;

/// How long the names and values of all that an entry has may be in sum, in bytes.
pub const XATTR_BYTES_MAX: usize = 128 << 10;

/// The same of all distinct sets of attributes of an object.
pub const XATTR_BYTES_SUM_MAX: usize = 64 << 20;

/// How many users, and how many groups, may be called by name.
pub const OWNER_NAMES_MAX: usize = 1 << 16;

/// How long such a name may be, in bytes.
pub const OWNER_NAME_BYTES_MAX: usize = 255;

/// The bits beyond permissions that a directory may have: setgid and sticky.
pub const SPECIAL_MASK: u16 = 0o3000;

/// The attribute with the access control list of an entry.
pub const ACCESS_ACL: &[u8] = b"system.posix_acl_access";
/// The attribute with the list that entries in a directory inherit.
pub const DEFAULT_ACL: &[u8] = b"system.posix_acl_default";

/// With what the names of other attributes begin.
const USER: &[u8] = b"user.";
/// The longest name of an attribute, in bytes.
const XATTR_NAME_BYTES_MAX: usize = 255;

/// What is kept of an entry beside its mode and time.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Attributes {
    /// Number of its owner at the source.
    pub owner: u32,
    /// Number of its group at the source.
    pub group: u32,
    /// Of a directory: setgid and sticky, [`SPECIAL_MASK`].
    pub special: u16,
    /// Of a file with holes: how many of its bytes are in none, fewer than its size.
    pub data_bytes: Option<u64>,
    /// Extended attributes in the order of their names: those of users, and access control lists.
    pub xattrs: Vec<Xattr>,
}

/// An extended attribute.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Xattr {
    /// Its name with its name space.
    pub name: Vec<u8>,
    /// Its value.
    pub value: Vec<u8>,
}

/// What is wrong with attributes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BadAttributes {
    /// The number that means none.
    #[error("an owner or group that no file can have")]
    Owner,
    /// A name that no user or group has.
    #[error("a name that no user or group can have")]
    OwnerName,
    /// Setuid, or setgid or sticky on something else than a directory.
    #[error("bits beyond permissions that are never carried over")]
    Special,
    /// Holes in what is no file, or more data than the file is long.
    #[error("holes that it cannot have")]
    Holes,
    /// An attribute that is never carried over, or not of such an entry.
    #[error("an extended attribute that is never carried over")]
    Name,
    /// One name twice, or out of order.
    #[error("extended attributes that are not in the order of their names")]
    Order,
    /// An access control list that the kernel would not take.
    #[error("an invalid access control list")]
    Acl,
    /// Too many or too long.
    #[error(
        "too many or too long extended attributes: at most {XATTRS_MAX} with \
         {XATTR_BYTES_MAX} bytes are carried over"
    )]
    TooMany,
    /// None where others have some, or some where none can be.
    #[error("an entry without attributes among others that have some, or the other way round")]
    Missing,
}

/// What `--archive` keeps of entries where the destination can.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Aspect {
    /// The owner.
    Owner,
    /// The group.
    Group,
    /// Permission bits.
    Mode,
    /// The modification time.
    Time,
    /// Setgid and sticky of a directory.
    SpecialBits,
    /// Access control lists.
    AccessLists,
    /// Extended attributes of users.
    ExtendedAttributes,
    /// That several names are one file.
    HardLinks,
    /// The holes of a file.
    Holes,
}

impl std::fmt::Display for Aspect {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Owner => "the owner",
            Self::Group => "the group",
            Self::Mode => "the mode",
            Self::Time => "the time",
            Self::SpecialBits => "setgid or sticky",
            Self::AccessLists => "access control lists",
            Self::ExtendedAttributes => "extended attributes",
            Self::HardLinks => "hard links",
            Self::Holes => "holes",
        })
    }
}

/// Whether an extended attribute of this name is carried over, of a directory or of a file.
pub fn is_kept(name: &[u8], directory: bool) -> bool {
    match name {
        ACCESS_ACL => true,
        DEFAULT_ACL => directory,
        name => {
            name.len() > USER.len()
                && name.len() <= XATTR_NAME_BYTES_MAX
                && name.starts_with(USER)
                && !name.contains(&0)
        }
    }
}

/// Whether a user or group can be called so.
pub fn is_owner_name(name: &[u8]) -> bool {
    let odd = |byte: &u8| byte.is_ascii_control() || matches!(byte, b':' | b'/' | b',');
    (1..=OWNER_NAME_BYTES_MAX).contains(&name.len()) && !name.iter().any(odd)
}

impl Attributes {
    /// Checks them as those of an entry, or of the root of a tree if there is no `content`.
    pub(super) fn check(&self, content: Option<Content<'_>>) -> Result<(), BadAttributes> {
        if self.owner == u32::MAX || self.group == u32::MAX {
            return Err(BadAttributes::Owner);
        }
        let directory = matches!(content, None | Some(Content::Directory { .. }));
        if self.special & !SPECIAL_MASK != 0 || (self.special != 0 && !directory) {
            return Err(BadAttributes::Special);
        }
        let holes = match (self.data_bytes, content) {
            (None, _) => true,
            (Some(data), Some(Content::File { size, .. })) => data < size.0,
            (Some(_), _) => false,
        };
        if !holes {
            return Err(BadAttributes::Holes);
        }
        if self.xattrs.len() > XATTRS_MAX || self.xattr_bytes() > XATTR_BYTES_MAX {
            return Err(BadAttributes::TooMany);
        }
        if !self.xattrs.is_sorted_by(|a, b| a.name < b.name) {
            return Err(BadAttributes::Order);
        }
        let none = matches!(
            content,
            Some(Content::Symlink { .. } | Content::Link { .. })
        );
        self.xattrs.iter().try_for_each(|xattr| {
            if none || !is_kept(&xattr.name, directory) {
                return Err(BadAttributes::Name);
            }
            if xattr.value.len() > XATTR_VALUE_BYTES_MAX {
                return Err(BadAttributes::TooMany);
            }
            match Acl::decode(&xattr.value) {
                None if xattr.is_acl() => Err(BadAttributes::Acl),
                _ => Ok(()),
            }
        })
    }

    /// How long all names and values are.
    pub(super) fn xattr_bytes(&self) -> usize {
        let len = |xattr: &Xattr| xattr.name.len().saturating_add(xattr.value.len());
        self.xattrs.iter().map(len).fold(0, usize::saturating_add)
    }
}

impl Xattr {
    /// Whether it is an access control list.
    pub fn is_acl(&self) -> bool {
        self.name == ACCESS_ACL || self.name == DEFAULT_ACL
    }
}

/// The attributes of an object's entries.
#[derive(Clone, Debug, Default)]
pub(super) struct Archive {
    pub(super) users: BTreeMap<u32, Vec<u8>>,
    pub(super) groups: BTreeMap<u32, Vec<u8>>,
    /// Of the tree's root, if there are any.
    pub(super) root: Option<Arc<Attributes>>,
    /// Distinct ones, in the order of their first use.
    pub(super) sets: Vec<Arc<Attributes>>,
    /// Which each entry has; [`NONE`] of a hard link.
    pub(super) of: Vec<u32>,
}

impl Archive {
    pub(super) fn of(&self, entry: EntryId) -> Option<&Attributes> {
        let set = *self.of.get(entry.index())?;
        self.sets.get(set as usize).map(Arc::as_ref)
    }
}

/// Collects the attributes of entries.
#[derive(Debug, Default)]
pub(super) struct Archiver {
    pub(super) archive: Archive,
    known: BTreeMap<Arc<Attributes>, u32>,
    bytes: usize,
}

impl Archiver {
    /// Notes the attributes of the next entry, which were checked; a hard link has none of its own.
    pub(super) fn push(&mut self, attributes: Option<&Attributes>) -> Result<(), BadAttributes> {
        let Some(attributes) = attributes else {
            self.archive.of.push(NONE);
            return Ok(());
        };
        if let Some(set) = self.known.get(attributes) {
            self.archive.of.push(*set);
            return Ok(());
        }
        self.bytes = self.bytes.saturating_add(attributes.xattr_bytes());
        if self.bytes > XATTR_BYTES_SUM_MAX {
            return Err(BadAttributes::TooMany);
        }
        let set = self.archive.sets.len() as u32;
        let shared = Arc::new(attributes.clone());
        self.archive.sets.push(shared.clone());
        self.known.insert(shared, set);
        self.archive.of.push(set);
        Ok(())
    }

    /// How many distinct ones there are.
    pub(super) fn distinct(&self) -> usize {
        self.archive.sets.len()
    }

    /// How much memory they take, in bytes, about.
    pub(super) fn memory(&self) -> usize {
        let sets = self.archive.sets.len() * (size_of::<Attributes>() + 64);
        self.archive.of.capacity() * 4 + sets + 2 * self.bytes
    }
}

/// Notes how a user or a group is called; the first name counts.
pub(super) fn name(
    names: &mut BTreeMap<u32, Vec<u8>>,
    id: u32,
    name: &[u8],
) -> Result<(), BadAttributes> {
    if id == u32::MAX || !is_owner_name(name) || names.len() >= OWNER_NAMES_MAX {
        return Err(BadAttributes::OwnerName);
    }
    names.entry(id).or_insert_with(|| name.to_vec());
    Ok(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::super::{BlockSize, Builder, Kind, Manifest, ManifestError};
    use super::*;
    use crate::Bytes;

    const DIRECTORY: Content<'_> = Content::Directory { mode: 0o755 };
    const ACL: [(u8, u8); 3] = [(1, 6), (4, 4), (0x20, 0)];

    fn file(size: u64) -> Content<'static> {
        Content::File {
            mode: 0o644,
            size: Bytes(size),
        }
    }

    fn acl(entries: &[(u8, u8)]) -> Vec<u8> {
        let mut value = vec![2, 0, 0, 0];
        for (tag, allowed) in entries {
            value.extend([*tag, 0, *allowed, 0, 0xff, 0xff, 0xff, 0xff]);
        }
        value
    }

    fn with(xattrs: &[(&[u8], &[u8])]) -> Attributes {
        let xattr = |(name, value): &(&[u8], &[u8])| Xattr {
            name: name.to_vec(),
            value: value.to_vec(),
        };
        Attributes {
            xattrs: xattrs.iter().map(xattr).collect(),
            ..Attributes::default()
        }
    }

    fn archive() -> Builder {
        let mut builder = Builder::new(Kind::Tree { mode: 0o755 }).unwrap();
        builder.archive(Some(&Attributes::default())).unwrap();
        builder
    }

    fn problem(content: Content<'_>, attributes: &Attributes) -> Option<BadAttributes> {
        match archive().add_with(b"x", 0, content, Some(attributes)) {
            Ok(()) => None,
            Err(ManifestError::Attributes { problem, .. }) => Some(problem),
            Err(error) => panic!("{error}"),
        }
    }

    fn manifest(builder: Builder) -> Manifest {
        let layout = builder.finish(BlockSize::Given(1024)).unwrap();
        let hashes = vec![[7; 32]; layout.hashes()];
        Manifest::new(layout, hashes).unwrap()
    }

    #[test]
    fn what_gives_away_privileges_is_refused() {
        for name in [
            &b"security.capability"[..],
            b"trusted.overlay.opaque",
            b"system.nfs4_acl",
            b"user.",
            b"user.a\0b",
            b"",
            &[&b"user."[..], &[b'a'; 251]].concat(),
        ] {
            let problem = problem(file(1), &with(&[(name, b"")]));
            assert_eq!(problem, Some(BadAttributes::Name), "{name:?}");
        }
        for (content, special) in [
            (file(1), 0o2000),
            (file(1), 0o1000),
            (file(1), 0o4000),
            (DIRECTORY, 0o4000),
            (DIRECTORY, 0o755),
            (Content::Symlink { target: b"y" }, 0o2000),
        ] {
            let attributes = Attributes {
                special,
                ..Attributes::default()
            };
            let problem = problem(content, &attributes);
            assert_eq!(problem, Some(BadAttributes::Special), "{special:o}");
        }
        let setgid = Attributes {
            special: SPECIAL_MASK,
            ..Attributes::default()
        };
        assert_eq!(problem(DIRECTORY, &setgid), None);
    }

    #[test]
    fn attributes_belong_to_what_can_have_them() {
        let valid = acl(&ACL);
        for (content, name, value, expected) in [
            (file(1), ACCESS_ACL, &valid, None),
            (DIRECTORY, ACCESS_ACL, &valid, None),
            (DIRECTORY, DEFAULT_ACL, &valid, None),
            (file(1), DEFAULT_ACL, &valid, Some(BadAttributes::Name)),
            (
                Content::Symlink { target: b"y" },
                b"user.a",
                &valid,
                Some(BadAttributes::Name),
            ),
            (
                file(1),
                ACCESS_ACL,
                &acl(&ACL[..2]),
                Some(BadAttributes::Acl),
            ),
            (file(1), b"user.a", &acl(&ACL[..2]), None),
        ] {
            assert_eq!(problem(content, &with(&[(name, value)])), expected);
        }
        let holes = |data_bytes| Attributes {
            data_bytes: Some(data_bytes),
            ..Attributes::default()
        };
        assert_eq!(problem(file(9), &holes(8)), None);
        assert_eq!(problem(file(9), &holes(9)), Some(BadAttributes::Holes));
        assert_eq!(problem(DIRECTORY, &holes(0)), Some(BadAttributes::Holes));
        let nobody = Attributes {
            group: u32::MAX,
            ..Attributes::default()
        };
        assert_eq!(problem(file(1), &nobody), Some(BadAttributes::Owner));
    }

    #[test]
    fn attributes_are_bounded() {
        let names: Vec<Vec<u8>> = (0..=XATTRS_MAX)
            .map(|nth| format!("user.{nth:04}").into_bytes())
            .collect();
        let many: Vec<(&[u8], &[u8])> = names.iter().map(|name| (&name[..], &b""[..])).collect();
        assert_eq!(problem(file(1), &with(&many[1..])), None);
        let too_many = Some(BadAttributes::TooMany);
        assert_eq!(problem(file(1), &with(&many)), too_many);
        let long = vec![0; XATTR_VALUE_BYTES_MAX + 1];
        assert_eq!(problem(file(1), &with(&[(b"user.a", &long[1..])])), None);
        assert_eq!(problem(file(1), &with(&[(b"user.a", &long)])), too_many);
        let three: [(&[u8], &[u8]); 3] = [
            (b"user.a", &long[..XATTR_BYTES_MAX / 2 - 6]),
            (b"user.b", &long[..XATTR_BYTES_MAX / 2 - 6]),
            (b"user.c", b""),
        ];
        assert_eq!(problem(file(1), &with(&three[..2])), None);
        assert_eq!(problem(file(1), &with(&three)), too_many);
        let order = Some(BadAttributes::Order);
        assert_eq!(problem(file(1), &with(&[many[1], many[0]])), order);
        assert_eq!(problem(file(1), &with(&[many[0], many[0]])), order);

        let mut archiver = Archiver::default();
        let value = vec![0; XATTR_VALUE_BYTES_MAX];
        let distinct = |nth: u32| Attributes {
            owner: nth,
            ..with(&[(b"user.a", &value)])
        };
        let fit = (XATTR_BYTES_SUM_MAX / (value.len() + 6)) as u32;
        for nth in 0..fit {
            archiver.push(Some(&distinct(nth))).unwrap();
        }
        // The same again costs nothing.
        archiver.push(Some(&distinct(0))).unwrap();
        let error = archiver.push(Some(&distinct(fit))).unwrap_err();
        assert_eq!(error, BadAttributes::TooMany);
    }

    #[test]
    fn a_link_leads_to_an_earlier_file_and_has_no_blocks() {
        let mut builder = archive();
        let own = Attributes::default();
        builder.add_with(b"a", 5, file(3000), Some(&own)).unwrap();
        builder.add_with(b"d", 5, DIRECTORY, Some(&own)).unwrap();
        for (to, time) in [(1, 5), (2, 5), (9, 5), (0, 6)] {
            let to = EntryId(to);
            let error = builder.add(b"l", time, Content::Link { to }).unwrap_err();
            assert!(matches!(error, ManifestError::Link { .. }), "{error}");
        }
        let to = EntryId(0);
        builder.add(b"l", 5, Content::Link { to }).unwrap();
        builder.leave().unwrap();
        let linked = manifest(builder);
        let link = EntryId(2);
        assert_eq!(linked.entry(link).content, Content::Link { to });
        assert_eq!(linked.size(), Bytes(3000));
        assert_eq!(linked.files(), 1);
        assert!(linked.blocks_of(link).is_empty() && !linked.is_file(link));
        assert_eq!(linked.attributes(link), None);
        assert_eq!(linked.file_hash(link), None);

        // Two names of one file are other blocks than two files, and so is a link to another file.
        let with_link = |to: Option<u32>| {
            let mut builder = archive();
            builder.add_with(b"a", 5, file(0), Some(&own)).unwrap();
            builder.add_with(b"b", 5, file(0), Some(&own)).unwrap();
            let link = |to| Content::Link { to: EntryId(to) };
            let content = to.map_or_else(|| file(0), link);
            let attributes = Some(&own).filter(|_| to.is_none());
            builder.add_with(b"c", 5, content, attributes).unwrap();
            manifest(builder).content()
        };
        let contents = [with_link(None), with_link(Some(0)), with_link(Some(1))];
        assert!(contents[0] != contents[1] && contents[1] != contents[2]);

        let mut plain = Builder::new(Kind::Tree { mode: 0o755 }).unwrap();
        plain.add(b"a", 5, file(0)).unwrap();
        let error = plain.add(b"l", 5, Content::Link { to }).unwrap_err();
        assert!(matches!(error, ManifestError::Attributes { .. }), "{error}");
    }

    #[test]
    fn all_entries_have_attributes_or_none_has() {
        let own = Attributes::default();
        let missing = |added: Result<(), ManifestError>| {
            let missing = BadAttributes::Missing;
            matches!(added, Err(ManifestError::Attributes { problem, .. }) if problem == missing)
        };
        assert!(missing(archive().add(b"a", 0, file(1))));
        let mut plain = Builder::new(Kind::Tree { mode: 0o755 }).unwrap();
        assert!(missing(plain.add_with(b"a", 0, file(1), Some(&own))));
        plain.add(b"a", 0, file(1)).unwrap();
        assert!(missing(plain.archive(None)));
        let mut one = Builder::new(Kind::File).unwrap();
        assert!(missing(one.archive(Some(&own))));
        let mut linked = archive();
        linked.add_with(b"a", 0, file(1), Some(&own)).unwrap();
        let link = Content::Link { to: EntryId(0) };
        assert!(missing(linked.add_with(b"b", 0, link, Some(&own))));
    }

    #[test]
    fn without_attributes_a_manifest_is_no_longer_than_its_flag() {
        let mut plain = Builder::new(Kind::Tree { mode: 0o755 }).unwrap();
        plain.add(b"a", 0, file(0)).unwrap();
        let mut kept = archive();
        let own = Attributes::default();
        kept.add_with(b"a", 0, file(0), Some(&own)).unwrap();
        kept.add_with(b"b", 0, file(0), Some(&own)).unwrap();
        let (plain, kept) = (manifest(plain), manifest(kept));
        // Signature, format; kind, mode, block size, entries, flag; the entry.
        assert_eq!(plain.encode().len(), 9 + 1 + 2 + 1 + 1 + 1 + 8);
        assert!(!plain.is_archive() && plain.attributes(EntryId(0)).is_none());
        // Names and root; each entry with its attributes, in full and by number.
        let extra = 3 + 5 + (1 + 5) + 8 + 2;
        assert_eq!(kept.encode().len(), plain.encode().len() + extra);
        assert_eq!(kept.attributes(EntryId(1)), Some(&own));
    }

    #[test]
    fn one_object_has_one_encoding() {
        let mut builder = archive();
        let own = Attributes::default();
        builder.name_user(1, b"ana").unwrap();
        builder.name_user(2, b"bob").unwrap();
        builder.add_with(b"a", 0, file(0), Some(&own)).unwrap();
        builder.add_with(b"b", 0, file(0), Some(&own)).unwrap();
        let encoded = manifest(builder).encode();
        assert_eq!(Manifest::decode(&encoded).unwrap().encode(), encoded);
        let replaced = |from: &[u8], to: &[u8]| {
            let at = encoded.windows(from.len()).position(|it| it == from);
            let at = at.unwrap();
            let bytes = [&encoded[..at], to, &encoded[at + from.len()..]].concat();
            Manifest::decode(&bytes).unwrap_err()
        };
        let malformed = |error| matches!(error, ManifestError::Malformed { .. });
        // What occurred before is given in full, and what did not by a number.
        let same = [1, b'b', 0, 0, 0xa4, 3, 0, 0, 0];
        assert!(malformed(replaced(
            &same,
            &[1, b'b', 0, 0, 0xa4, 3, 0, 1, 0, 0, 0, 0, 0]
        )));
        assert!(malformed(replaced(
            &same,
            &[1, b'b', 0, 0, 0xa4, 3, 0, 0, 1]
        )));
        // Names by number, each once.
        let names = b"\x01\x03ana\x02\x03bob";
        assert!(malformed(replaced(names, b"\x02\x03bob\x01\x03ana")));
        assert!(malformed(replaced(names, b"\x01\x03ana\x01\x03bob")));
        assert!(matches!(
            replaced(names, b"\x01\x03a:a\x02\x03bob"),
            ManifestError::Attributes { .. }
        ));
    }
}
