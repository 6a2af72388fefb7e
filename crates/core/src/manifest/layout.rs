//! Where the bytes of an object's files lie in its blocks.
//!
//! The layout follows from the entries alone, so it is never transmitted. Files that fit into a
//! block come first, whole and in path order, packed into shared blocks: a file that does not fit
//! opens the next block, and so does one that would be number [`PACK_FILES_MAX`]` + 1`. The larger
//! ones follow, in path order: each starts at a block of its own and its last block may be short.
//! Empty files have no block.
//!
//! Syncing many small files takes longer than syncing as many bytes of a large one. Where blocks
//! come in order, that is done while the large ones are still on their way.

use std::collections::BTreeMap;
use std::ops::Range;

use blake3::hazmat::HasherExt;

use super::attributes::{Archive, Attributes};
use super::error::ManifestError;
use super::{Kind, path};
use crate::{BlockId, Bytes};

/// The smallest block size, in bytes.
pub const BLOCK_BYTES_MIN: u32 = 1 << 10;

/// The largest block size, in bytes.
pub const BLOCK_BYTES_MAX: u32 = 16 << 20;

/// How many blocks an object may have.
pub const BLOCKS_MAX: u32 = 1 << 23;

/// How many files may share a block, so that storing one block is never a long job.
pub const PACK_FILES_MAX: u32 = 1024;

/// Where blocks are to be small, they are larger if there would be more than this.
const SMALL_BLOCKS_MAX: u64 = 1 << 20;

/// How large the blocks of an object are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BlockSize {
    /// So many bytes: a power of two.
    Given(u32),
    /// Eight times the square root of the object's size, rounded down to a power of two, from
    /// 16 KiB to 4 MiB.
    ///
    /// With the square root, blocks grow in size and number alike: 100 MB make 1,526 blocks of
    /// 64 KiB (so that a pipeline over 20 hops is full after 1.3 % of the time), 16 GiB make 16,384
    /// of 1 MiB.
    Usual,
    /// The same, but at most so many bytes, a power of two, or a 1,048,576th of what is very large:
    /// for users that put a bounded number of bytes into a group and need many blocks of each. With at
    /// most 64 KiB the manifest gets as large as a 2048th of the object.
    AtMost(u32),
}

impl BlockSize {
    /// In bytes, for an object of that size.
    pub fn bytes(self, size: Bytes) -> u32 {
        let usual = 1 << ((size.0.max(1).ilog2() + 6) / 2).clamp(14, 22);
        match self {
            Self::Given(bytes) => bytes,
            Self::Usual => usual,
            Self::AtMost(most) => {
                let fewest = size
                    .0
                    .div_ceil(SMALL_BLOCKS_MAX)
                    .checked_next_power_of_two();
                let least = fewest.and_then(|bytes| u32::try_from(bytes).ok());
                usual.min(least.unwrap_or(u32::MAX).max(most))
            }
        }
    }
}

/// An entry of an object, by its index in path order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EntryId(pub u32);

impl EntryId {
    /// The index of the entry among all entries.
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

/// An entry of an object: a file, a directory or a symlink.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry<'a> {
    /// Its index.
    pub id: EntryId,
    /// The directory it is in; `None` at the top.
    pub parent: Option<EntryId>,
    /// Its name in that directory.
    pub name: &'a [u8],
    /// Modification time in nanoseconds since 1970.
    pub mtime_ns: i64,
    /// What it is.
    pub content: Content<'a>,
}

/// What an entry is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Content<'a> {
    /// A regular file.
    File {
        /// Permission bits, at most 0777.
        mode: u16,
        /// Its size.
        size: Bytes,
    },
    /// A directory; its entries follow it.
    Directory {
        /// Permission bits, at most 0777.
        mode: u16,
    },
    /// A symlink.
    Symlink {
        /// Where it points: relative, and inside the tree.
        target: &'a [u8],
    },
    /// A further name of a file: a hard link. It has no bytes of its own.
    Link {
        /// The file, an earlier entry.
        to: EntryId,
    },
}

/// A part of a block: consecutive bytes of one file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// Which file.
    pub file: EntryId,
    /// Where in the file, in bytes.
    pub offset: u64,
    /// How many bytes.
    pub len: u32,
}

pub(super) const NONE: u32 = u32::MAX;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Tag {
    File,
    Directory,
    Symlink,
    Link,
}

/// An entry in memory: 32 bytes, whatever it is.
#[derive(Clone, Copy, Debug)]
pub(super) struct Slot {
    pub(super) mtime_ns: i64,
    /// A file's size; where a symlink's target begins in `names`; the file of a hard link.
    pub(super) payload: u64,
    pub(super) parent: u32,
    /// Where its name begins in `names`; a symlink's target ends where the next name begins.
    pub(super) name: u32,
    /// A file's index among those of its sort (packed or large).
    pub(super) rank: u32,
    pub(super) mode: u16,
    pub(super) name_len: u8,
    pub(super) tag: Tag,
}

#[derive(Clone, Copy, Debug)]
struct Large {
    entry: u32,
    first_block: BlockId,
}

#[derive(Clone, Copy, Debug)]
struct Pack {
    /// Index of its first file in `packed`.
    first: u32,
    len: u32,
}

/// The entries of an object and the layout of its blocks; a [`Manifest`](super::Manifest) without
/// the hashes.
#[derive(Clone, Debug)]
pub struct Layout {
    kind: Kind,
    block_bytes: u32,
    size: u64,
    files: u32,
    slots: Vec<Slot>,
    /// Names and targets of all entries, one after the other.
    names: Vec<u8>,
    large: Vec<Large>,
    large_blocks: u32,
    packs: Vec<Pack>,
    /// The entries of the packed files.
    packed: Vec<u32>,
    archive: Option<Box<Archive>>,
}

impl Layout {
    pub(super) fn new(
        kind: Kind,
        block_bytes: u32,
        mut slots: Vec<Slot>,
        names: Vec<u8>,
        archive: Option<Box<Archive>>,
    ) -> Result<Self, ManifestError> {
        if !block_bytes.is_power_of_two()
            || !(BLOCK_BYTES_MIN..=BLOCK_BYTES_MAX).contains(&block_bytes)
        {
            return Err(ManifestError::BlockBytes {
                bytes: block_bytes.into(),
                min: BLOCK_BYTES_MIN,
                max: BLOCK_BYTES_MAX,
            });
        }
        let too_many = ManifestError::TooManyBlocks {
            max: BLOCKS_MAX,
            block_bytes,
        };
        let (mut size, mut files, mut large_blocks) = (0, 0, 0_u64);
        let (mut large, mut packs, mut packed) = (Vec::new(), Vec::<Pack>::new(), Vec::new());
        for (entry, slot) in slots.iter_mut().enumerate() {
            if slot.tag != Tag::File {
                continue;
            }
            let entry = entry as u32;
            files += 1;
            size += slot.payload;
            if slot.payload > u64::from(block_bytes) {
                slot.rank = large.len() as u32;
                large.push(Large {
                    entry,
                    first_block: large_blocks as u32,
                });
                large_blocks += slot.payload.div_ceil(block_bytes.into());
                if large_blocks > u64::from(BLOCKS_MAX) {
                    return Err(too_many);
                }
            } else if slot.payload > 0 {
                let len = slot.payload as u32;
                slot.rank = packed.len() as u32;
                match packs.last_mut() {
                    Some(pack)
                        if pack.len + len <= block_bytes
                            && slot.rank - pack.first < PACK_FILES_MAX =>
                    {
                        pack.len += len;
                    }
                    _ => packs.push(Pack {
                        first: slot.rank,
                        len,
                    }),
                }
                packed.push(entry);
            }
        }
        if large_blocks + packs.len() as u64 > u64::from(BLOCKS_MAX) {
            return Err(too_many);
        }
        slots.shrink_to_fit();
        packed.shrink_to_fit();
        Ok(Self {
            kind,
            block_bytes,
            size,
            files,
            slots,
            names,
            large,
            large_blocks: large_blocks as u32,
            packs,
            packed,
            archive,
        })
    }

    /// Whether the object is a file or a tree.
    pub const fn kind(&self) -> Kind {
        self.kind
    }

    /// The size of a full block, in bytes.
    pub const fn block_bytes(&self) -> u32 {
        self.block_bytes
    }

    /// The size of all files together.
    pub const fn size(&self) -> Bytes {
        Bytes(self.size)
    }

    /// How many files the object has.
    pub const fn files(&self) -> u32 {
        self.files
    }

    /// How many blocks the object has.
    pub fn blocks(&self) -> u32 {
        self.large_blocks + self.packs.len() as u32
    }

    /// The length of a block in bytes; zero if there is no such block.
    pub fn block_len(&self, block: BlockId) -> u32 {
        match self.place(block) {
            Some(Place::Large(extent)) => extent.len,
            Some(Place::Pack(_, len)) => len,
            None => 0,
        }
    }

    /// The parts of a block in the order of its bytes; none if there is no such block.
    pub fn extents(&self, block: BlockId) -> impl Iterator<Item = Extent> + '_ {
        let (large, packed) = match self.place(block) {
            Some(Place::Large(extent)) => (Some(extent), 0..0),
            Some(Place::Pack(members, _)) => (None, members),
            None => (None, 0..0),
        };
        let packed = self.packed[packed].iter().map(|entry| Extent {
            file: EntryId(*entry),
            offset: 0,
            len: self.slots[*entry as usize].payload as u32,
        });
        large.into_iter().chain(packed)
    }

    /// Whether a block is shared by small files (even if by one only) and not a part of a larger
    /// one.
    pub fn is_pack(&self, block: BlockId) -> bool {
        (block as usize) < self.packs.len()
    }

    /// The blocks a file lies in; none for an empty file, a directory and a symlink.
    ///
    /// # Panics
    /// If the object has no such entry.
    pub fn blocks_of(&self, entry: EntryId) -> Range<BlockId> {
        let slot = &self.slots[entry.index()];
        if slot.tag != Tag::File || slot.payload == 0 {
            0..0
        } else if slot.payload > u64::from(self.block_bytes) {
            let first = self.packs.len() as u32 + self.large[slot.rank as usize].first_block;
            first..first + slot.payload.div_ceil(self.block_bytes.into()) as u32
        } else {
            let after = self.packs.partition_point(|pack| pack.first <= slot.rank) as u32;
            after - 1..after
        }
    }

    /// The entries in path order: every directory is followed by what is in it.
    pub fn entries(&self) -> impl DoubleEndedIterator<Item = Entry<'_>> + ExactSizeIterator {
        (0..self.slots.len()).map(|index| self.entry(EntryId(index as u32)))
    }

    /// One entry.
    ///
    /// # Panics
    /// If the object has no such entry.
    pub fn entry(&self, id: EntryId) -> Entry<'_> {
        let slot = &self.slots[id.index()];
        Entry {
            id,
            parent: (slot.parent != NONE).then_some(EntryId(slot.parent)),
            name: slot.name_in(&self.names),
            mtime_ns: slot.mtime_ns,
            content: match slot.tag {
                Tag::File => Content::File {
                    mode: slot.mode,
                    size: Bytes(slot.payload),
                },
                Tag::Directory => Content::Directory { mode: slot.mode },
                Tag::Symlink => {
                    let end = self
                        .slots
                        .get(id.index() + 1)
                        .map(|next| next.name as usize);
                    let end = end.unwrap_or(self.names.len());
                    Content::Symlink {
                        target: &self.names[slot.payload as usize..end],
                    }
                }
                Tag::Link => Content::Link {
                    to: EntryId(slot.payload as u32),
                },
            },
        }
    }

    /// Whether an entry is a regular file.
    ///
    /// # Panics
    /// If the object has no such entry.
    pub fn is_file(&self, id: EntryId) -> bool {
        self.slots[id.index()].tag == Tag::File
    }

    /// Whether owners and further attributes of entries are known, as `--archive` has it.
    pub const fn is_archive(&self) -> bool {
        self.archive.is_some()
    }

    /// What is kept of an entry beside its mode and time, if that is. A hard link has what its file
    /// has.
    pub fn attributes(&self, id: EntryId) -> Option<&Attributes> {
        self.archive.as_ref()?.of(id)
    }

    /// The same of the root of a tree.
    pub fn root_attributes(&self) -> Option<&Attributes> {
        self.archive.as_ref()?.root.as_deref()
    }

    /// Numbers and names of users at the source, as far as they are known.
    pub fn user_names(&self) -> impl Iterator<Item = (u32, &[u8])> {
        let archive = self.archive.iter();
        archive.flat_map(|archive| names(&archive.users))
    }

    /// The same of groups.
    pub fn group_names(&self) -> impl Iterator<Item = (u32, &[u8])> {
        let archive = self.archive.iter();
        archive.flat_map(|archive| names(&archive.groups))
    }

    /// Whether a file has holes.
    pub fn is_sparse(&self, id: EntryId) -> bool {
        self.attributes(id)
            .is_some_and(|attributes| attributes.data_bytes.is_some())
    }

    /// How many bytes of an entry have to be stored: of a file with holes, those that are in none.
    pub fn stored_bytes(&self, id: EntryId) -> u64 {
        match self.entry(id).content {
            Content::File { size, .. } => {
                let attributes = self.attributes(id);
                attributes.and_then(|it| it.data_bytes).unwrap_or(size.0)
            }
            _ => 0,
        }
    }

    pub(super) fn archive(&self) -> Option<&Archive> {
        self.archive.as_deref()
    }

    /// The path of an entry from the root of the tree, its names joined by slashes.
    ///
    /// # Panics
    /// If the object has no such entry.
    pub fn path(&self, id: EntryId) -> Vec<u8> {
        path_of(&self.slots, &self.names, id.0)
    }

    /// The path of an entry as people may see it.
    ///
    /// # Panics
    /// If the object has no such entry.
    pub fn path_shown(&self, id: EntryId) -> String {
        path::escape(&self.path(id))
    }

    /// How many hashes the object needs: one per block of a large file, one per packed file.
    pub fn hashes(&self) -> usize {
        self.large_blocks as usize + self.packed.len()
    }

    /// Hashes what is in a block and hands `each` the number of every hash and the hash, in order
    /// of number: the chaining value of the block's subtree for a part of a large file, the hash
    /// of every file for a shared block.
    ///
    /// Returns false, having called nothing, if there is no such block or `data` is not as long as
    /// the block.
    pub fn hash_block(
        &self,
        block: BlockId,
        data: &[u8],
        mut each: impl FnMut(usize, [u8; 32]),
    ) -> bool {
        match self.place(block) {
            Some(Place::Large(extent)) if extent.len as usize == data.len() => {
                let hash = blake3::Hasher::new()
                    .set_input_offset(extent.offset)
                    .update(data)
                    .finalize_non_root();
                each(block as usize - self.packs.len(), hash);
                true
            }
            Some(Place::Pack(members, len)) if len as usize == data.len() => {
                let mut rest = data;
                for rank in members {
                    let len = self.slots[self.packed[rank] as usize].payload as usize;
                    let (file, after) = rest.split_at(len);
                    each(self.packed_hash(rank), *blake3::hash(file).as_bytes());
                    rest = after;
                }
                true
            }
            _ => false,
        }
    }

    /// The hash of a file, from the hashes of the object's parts; `None` for what is no file.
    pub(super) fn merge(&self, entry: EntryId, hashes: &[[u8; 32]]) -> Option<blake3::Hash> {
        let slot = &self.slots[entry.index()];
        if slot.tag != Tag::File {
            None
        } else if slot.payload == 0 {
            Some(blake3::hash(b""))
        } else if slot.payload > u64::from(self.block_bytes) {
            let blocks = self.blocks_of(entry);
            let packs = self.packs.len();
            let parts = &hashes[blocks.start as usize - packs..blocks.end as usize - packs];
            let (left, right) = halves(parts);
            let mode = blake3::hazmat::Mode::Hash;
            Some(blake3::hazmat::merge_subtrees_root(&left, &right, mode))
        } else {
            Some(hashes[self.packed_hash(slot.rank as usize)].into())
        }
    }

    /// Number of the hash of a packed file.
    const fn packed_hash(&self, rank: usize) -> usize {
        self.large_blocks as usize + rank
    }

    fn place(&self, block: BlockId) -> Option<Place> {
        let index = block as usize;
        if let Some(pack) = self.packs.get(index) {
            let next = self.packs.get(index + 1);
            let end = next.map_or(self.packed.len(), |next| next.first as usize);
            return Some(Place::Pack(pack.first as usize..end, pack.len));
        }
        let nth = block - self.packs.len() as u32;
        if nth >= self.large_blocks {
            return None;
        }
        let after = self.large.partition_point(|large| large.first_block <= nth);
        let large = self.large[after - 1];
        let size = self.slots[large.entry as usize].payload;
        let offset = u64::from(nth - large.first_block) * u64::from(self.block_bytes);
        Some(Place::Large(Extent {
            file: EntryId(large.entry),
            offset,
            len: (size - offset).min(self.block_bytes.into()) as u32,
        }))
    }
}

/// What a block consists of.
enum Place {
    /// A part of a large file.
    Large(Extent),
    /// Packed files by rank, and their length in sum.
    Pack(Range<usize>, u32),
}

impl Slot {
    pub(super) fn name_in<'a>(&self, names: &'a [u8]) -> &'a [u8] {
        let start = self.name as usize;
        &names[start..start + usize::from(self.name_len)]
    }
}

fn names(names: &BTreeMap<u32, Vec<u8>>) -> impl Iterator<Item = (u32, &[u8])> {
    names.iter().map(|(id, name)| (*id, name.as_slice()))
}

pub(super) fn path_of(slots: &[Slot], names: &[u8], mut entry: u32) -> Vec<u8> {
    let mut parts = Vec::new();
    while entry != NONE {
        let slot = &slots[entry as usize];
        parts.push(slot.name_in(names));
        entry = slot.parent;
    }
    parts.reverse();
    parts.join(&b'/')
}

/// The chaining values of the two halves of a tree of at least two blocks. As blocks are aligned
/// subtrees, the left half has the largest power of two of them that leaves one for the right.
fn halves(parts: &[[u8; 32]]) -> ([u8; 32], [u8; 32]) {
    let (left, right) = parts.split_at(parts.len().next_power_of_two() / 2);
    (subtree(left), subtree(right))
}

fn subtree(parts: &[[u8; 32]]) -> [u8; 32] {
    if let [part] = parts {
        return *part;
    }
    let (left, right) = halves(parts);
    blake3::hazmat::merge_subtrees_non_root(&left, &right, blake3::hazmat::Mode::Hash)
}
