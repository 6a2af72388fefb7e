//! Collects the entries of an object and refuses those that must not exist.

use super::attributes::{Archiver, Attributes, BadAttributes, name as note_name};
use super::error::ManifestError;
use super::layout::{BlockSize, Layout, NONE, Slot, Tag, path_of};
use super::path::{BadName, BadTarget, PATH_BYTES_MAX, check_name, check_target, escape};
use super::{Content, Kind};
use crate::Bytes;

/// How many entries an object may have.
pub const ENTRIES_MAX: u32 = 1 << 25;

/// The permission bits that are carried over.
pub const MODE_MASK: u16 = 0o777;

/// Collects entries in path order: within a directory by name, byte by byte, and what is in a
/// directory right after it.
///
/// That an entry can only be added to a directory that was added before makes a path beneath a
/// file or a symlink impossible; that names must grow makes duplicates impossible.
#[derive(Debug)]
pub struct Builder {
    kind: Kind,
    slots: Vec<Slot>,
    names: Vec<u8>,
    size: u64,
    /// The directory entries are added to, and those it is in.
    levels: Vec<Level>,
    /// Attributes of entries, if they are to be kept.
    archiver: Option<Archiver>,
}

#[derive(Debug)]
struct Level {
    dir: u32,
    last: u32,
    path_len: usize,
}

impl Builder {
    /// An object without entries.
    ///
    /// # Errors
    /// If the mode of the tree's root has bits outside [`MODE_MASK`].
    pub fn new(kind: Kind) -> Result<Self, ManifestError> {
        if let Kind::Tree { mode } = kind
            && mode & !MODE_MASK != 0
        {
            let path = ".".to_owned();
            return Err(ManifestError::Mode { path, mode });
        }
        Ok(Self {
            kind,
            slots: Vec::new(),
            names: Vec::new(),
            size: 0,
            levels: vec![Level {
                dir: NONE,
                last: NONE,
                path_len: 0,
            }],
            archiver: None,
        })
    }

    /// From now on entries have attributes; `root` are those of the tree's root, if it has any.
    ///
    /// # Errors
    /// If there are entries already, or attributes that the root cannot have.
    pub fn archive(&mut self, root: Option<&Attributes>) -> Result<(), ManifestError> {
        let refuse = |problem| ManifestError::Attributes {
            path: ".".to_owned(),
            problem,
        };
        if !self.slots.is_empty() || (root.is_some() && self.kind == Kind::File) {
            return Err(refuse(BadAttributes::Missing));
        }
        let mut archiver = Archiver::default();
        if let Some(root) = root {
            root.check(None).map_err(refuse)?;
            archiver.archive.root = Some(root.clone().into());
        }
        self.archiver = Some(archiver);
        Ok(())
    }

    /// Says how a user of the source is called, where attributes are kept.
    ///
    /// # Errors
    /// If no user can be called so, or too many are.
    pub fn name_user(&mut self, id: u32, name: &[u8]) -> Result<(), ManifestError> {
        self.name_owner(id, name, true)
    }

    /// The same of a group.
    ///
    /// # Errors
    /// As [`Self::name_user`].
    pub fn name_group(&mut self, id: u32, name: &[u8]) -> Result<(), ManifestError> {
        self.name_owner(id, name, false)
    }

    fn name_owner(&mut self, id: u32, name: &[u8], user: bool) -> Result<(), ManifestError> {
        let Some(archiver) = &mut self.archiver else {
            return Ok(());
        };
        let names = match user {
            true => &mut archiver.archive.users,
            false => &mut archiver.archive.groups,
        };
        note_name(names, id, name).map_err(|problem| ManifestError::Attributes {
            path: ".".to_owned(),
            problem,
        })
    }

    /// How many distinct sets of attributes there are.
    pub(super) fn distinct(&self) -> usize {
        self.archiver.as_ref().map_or(0, Archiver::distinct)
    }

    /// The set of attributes of that number.
    pub(super) fn set(&self, set: u32) -> Option<std::sync::Arc<Attributes>> {
        let archive = &self.archiver.as_ref()?.archive;
        archive.sets.get(set as usize).cloned()
    }

    /// How much memory the entries take, in bytes.
    pub fn memory(&self) -> Bytes {
        let slots = self.slots.capacity() * size_of::<Slot>();
        let kept = self.archiver.as_ref().map_or(0, Archiver::memory);
        Bytes((slots + self.names.capacity() + kept) as u64)
    }

    pub(super) fn reserve(&mut self, entries: usize) {
        self.slots.reserve_exact(entries);
    }

    /// Adds an entry; what is added after a directory is in it, until [`Self::leave`]. Where attributes
    /// are kept, this is for hard links alone.
    ///
    /// # Errors
    /// If the entry is one that must not exist, or is out of order.
    pub fn add(
        &mut self,
        name: &[u8],
        mtime_ns: i64,
        content: Content<'_>,
    ) -> Result<(), ManifestError> {
        self.add_with(name, mtime_ns, content, None)
    }

    /// Adds an entry with its attributes, after [`Self::archive`].
    ///
    /// # Errors
    /// As [`Self::add`], and if the entry cannot have these attributes.
    pub fn add_with(
        &mut self,
        name: &[u8],
        mtime_ns: i64,
        content: Content<'_>,
        attributes: Option<&Attributes>,
    ) -> Result<(), ManifestError> {
        let entry = self.slots.len() as u32;
        let target_len = match content {
            Content::Symlink { target } => target.len(),
            _ => 0,
        };
        if entry == ENTRIES_MAX || self.names.len() + name.len() + target_len > NONE as usize {
            return Err(ManifestError::TooManyEntries { max: ENTRIES_MAX });
        }
        let path_len = self.check_place(name)?;
        let (tag, mode, payload) = self.check_content(name, mtime_ns, content)?;
        self.check_attributes(name, content, attributes)?;
        let slot = Slot {
            mtime_ns,
            payload,
            parent: self.level().dir,
            name: self.names.len() as u32,
            rank: NONE,
            mode,
            // At most `NAME_BYTES_MAX`, as `check_place` saw.
            name_len: name.len() as u8,
            tag,
        };
        self.names.extend_from_slice(name);
        if let Content::Symlink { target } = content {
            self.names.extend_from_slice(target);
        }
        self.slots.push(slot);
        if let Some(level) = self.levels.last_mut() {
            level.last = entry;
        }
        if tag == Tag::Directory {
            self.levels.push(Level {
                dir: entry,
                last: NONE,
                path_len,
            });
        }
        Ok(())
    }

    /// Ends the directory that was added last and not left yet.
    ///
    /// # Errors
    /// If there is none.
    pub fn leave(&mut self) -> Result<(), ManifestError> {
        if self.levels.len() == 1 {
            let what = "more directories end than have begun";
            return Err(ManifestError::Malformed { what });
        }
        self.levels.pop();
        Ok(())
    }

    /// Bytes of all files so far.
    pub const fn size(&self) -> Bytes {
        Bytes(self.size)
    }

    /// The layout of the object, in blocks of that size.
    ///
    /// # Errors
    /// If the block size is out of bounds, the blocks are too many, or a file object is not one
    /// file.
    pub fn finish(self, block: BlockSize) -> Result<Layout, ManifestError> {
        if self.kind == Kind::File && !matches!(&self.slots[..], [slot] if slot.tag == Tag::File) {
            return Err(ManifestError::NotOneFile);
        }
        let block_bytes = block.bytes(Bytes(self.size));
        let mut names = self.names;
        names.shrink_to_fit();
        let archive = self.archiver.map(|archiver| Box::new(archiver.archive));
        debug_assert!(
            archive
                .as_ref()
                .is_none_or(|archive| archive.of.len() == self.slots.len())
        );
        Layout::new(self.kind, block_bytes, self.slots, names, archive)
    }

    fn level(&self) -> &Level {
        self.levels.last().expect("the root is never left")
    }

    /// Whether an entry of this name may come next; returns the length of its path.
    fn check_place(&self, name: &[u8]) -> Result<usize, ManifestError> {
        let refuse = |problem| ManifestError::Name {
            path: self.shown(name),
            problem,
        };
        check_name(name).map_err(refuse)?;
        let level = self.level();
        let separator = usize::from(level.path_len > 0);
        let path_len = level.path_len + separator + name.len();
        if path_len > PATH_BYTES_MAX {
            return Err(refuse(BadName::PathTooLong));
        }
        if let Some(last) = self.slots.get(level.last as usize) {
            match last.name_in(&self.names).cmp(name) {
                std::cmp::Ordering::Less => {}
                std::cmp::Ordering::Equal => {
                    let path = self.shown(name);
                    return Err(ManifestError::Duplicate { path });
                }
                std::cmp::Ordering::Greater => {
                    let path = self.shown(name);
                    return Err(ManifestError::Order { path });
                }
            }
        }
        Ok(path_len)
    }

    fn check_content(
        &mut self,
        name: &[u8],
        mtime_ns: i64,
        content: Content<'_>,
    ) -> Result<(Tag, u16, u64), ManifestError> {
        let (tag, mode, payload) = match content {
            Content::File { mode, size } => (Tag::File, mode, size.0),
            Content::Directory { mode } => (Tag::Directory, mode, 0),
            Content::Symlink { target } => {
                let problem = match self.kind {
                    Kind::File => Err(BadTarget::Alone),
                    Kind::Tree { .. } => check_target(target, self.levels.len() - 1),
                };
                problem.map_err(|problem| ManifestError::Symlink {
                    path: self.shown(name),
                    target: escape(target),
                    problem,
                })?;
                let target = self.names.len() + name.len();
                (Tag::Symlink, 0, target as u64)
            }
            Content::Link { to } => {
                let file = self.slots.get(to.index());
                if !file.is_some_and(|it| it.tag == Tag::File && it.mtime_ns == mtime_ns) {
                    let path = self.shown(name);
                    return Err(ManifestError::Link { path });
                }
                (Tag::Link, 0, to.0.into())
            }
        };
        if mode & !MODE_MASK != 0 {
            let path = self.shown(name);
            return Err(ManifestError::Mode { path, mode });
        }
        if tag == Tag::File {
            // What a file system can address; the same bound keeps the sum from overflowing.
            let sum = self.size.checked_add(payload);
            self.size = sum.filter(|sum| *sum <= i64::MAX as u64).ok_or_else(|| {
                let path = self.shown(name);
                ManifestError::Size {
                    path,
                    bytes: payload,
                }
            })?;
        }
        Ok((tag, mode, payload))
    }

    /// Notes the attributes of the next entry. Hard links are known with attributes alone, and have those
    /// of their files.
    fn check_attributes(
        &mut self,
        name: &[u8],
        content: Content<'_>,
        attributes: Option<&Attributes>,
    ) -> Result<(), ManifestError> {
        let is_link = matches!(content, Content::Link { .. });
        let noted = match (&mut self.archiver, attributes) {
            (None, None) if !is_link => return Ok(()),
            (Some(archiver), None) if is_link => archiver.push(None),
            (Some(archiver), Some(attributes)) if !is_link => attributes
                .check(Some(content))
                .and_then(|()| archiver.push(Some(attributes))),
            _ => Err(BadAttributes::Missing),
        };
        noted.map_err(|problem| ManifestError::Attributes {
            path: self.shown(name),
            problem,
        })
    }

    /// The path that `name` would have, for a message.
    fn shown(&self, name: &[u8]) -> String {
        let mut path = path_of(&self.slots, &self.names, self.level().dir);
        if !path.is_empty() {
            path.push(b'/');
        }
        path.extend_from_slice(name);
        escape(&path)
    }
}
