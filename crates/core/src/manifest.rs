//! What an object consists of, and how to tell that a block of it is right.
//!
//! A manifest is all that a receiver knows before the first block comes: the files, directories
//! and symlinks, and hashes enough to check every block alone. It may come from a stranger, so
//! [`Manifest::decode`] refuses whatever could do harm when written to a file system; the rest of
//! the program relies on that.
//!
//! Hashes are BLAKE3. Blocks of a large file are aligned subtrees of the file's own hash tree: the
//! manifest has the chaining value of each, and the hash of the file (what `b3sum` prints) follows
//! from them. Of a small file the manifest has that hash itself, and a block that small files
//! share is right if each of them is.

mod acl;
mod attributes;
mod builder;
mod error;
mod id;
mod layout;
mod path;
#[cfg(test)]
mod tests;
mod wire;

pub use acl::{Acl, AclEntry, AclTag};
pub use attributes::{
    ACCESS_ACL, Aspect, Attributes, BadAttributes, DEFAULT_ACL, OWNER_NAME_BYTES_MAX,
    OWNER_NAMES_MAX, SPECIAL_MASK, XATTR_BYTES_MAX, XATTR_BYTES_SUM_MAX, XATTR_VALUE_BYTES_MAX,
    XATTRS_MAX, Xattr, is_kept, is_owner_name,
};
pub use builder::{Builder, ENTRIES_MAX, MODE_MASK};
pub use error::ManifestError;
pub use id::{ObjectId, ParseObjectIdError};
pub use layout::{
    BLOCK_BYTES_MAX, BLOCK_BYTES_MIN, BLOCKS_MAX, BlockSize, Content, Entry, EntryId, Extent,
    Layout, PACK_FILES_MAX,
};
pub use path::{BadName, BadTarget, NAME_BYTES_MAX, PATH_BYTES_MAX, STATE_DIR, escape};
pub use wire::MANIFEST_BYTES_MAX;

use std::ops::Deref;
use std::sync::Arc;

use crate::{BlockId, Bytes};

/// Whether an object is a single file or a tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// One file, known by its name.
    File,
    /// A directory with what is in it. The directory itself has no name: it takes the one of the
    /// place it is put.
    Tree {
        /// Permission bits of the directory, at most 0777.
        mode: u16,
    },
}

/// The description of an object: its [`Layout`] (entries and blocks) and the hashes.
///
/// Clones share their memory.
#[derive(Clone, Debug)]
pub struct Manifest {
    layout: Arc<Layout>,
    hashes: Arc<[[u8; 32]]>,
    id: ObjectId,
}

impl Manifest {
    /// Joins a layout and the hashes of its blocks, numbered as [`Layout::hash_block`] gives them.
    ///
    /// # Errors
    /// If the hashes are too many or too few, or the manifest gets longer than
    /// [`MANIFEST_BYTES_MAX`].
    pub fn new(layout: Layout, hashes: Vec<[u8; 32]>) -> Result<Self, ManifestError> {
        if hashes.len() != layout.hashes() {
            return Err(ManifestError::HashCount {
                expected: layout.hashes() * 32,
                found: hashes.len() * 32,
            });
        }
        let encoded = wire::encode(&layout, &hashes);
        if encoded.len() > MANIFEST_BYTES_MAX {
            return Err(ManifestError::TooLong {
                bytes: encoded.len(),
                max: MANIFEST_BYTES_MAX,
            });
        }
        let id = ObjectId::of(&encoded);
        Ok(Self {
            layout: layout.into(),
            hashes: hashes.into(),
            id,
        })
    }

    /// How much memory [`Self::decode`] takes at most for these bytes, and what it makes of them holds, in
    /// bytes: it follows from how many entries they say that they have, and is read without reading those.
    pub fn memory(bytes: &[u8]) -> Bytes {
        Bytes(wire::memory(bytes) as u64)
    }

    /// Reads an encoded manifest from a source that is not trusted.
    ///
    /// # Errors
    /// If the bytes are not a manifest, or one that must not be followed; see [`ManifestError`].
    pub fn decode(bytes: &[u8]) -> Result<Self, ManifestError> {
        wire::decode(bytes)
    }

    /// The manifest as it is stored and sent; [`Self::decode`] reads it.
    pub fn encode(&self) -> Vec<u8> {
        wire::encode(&self.layout, &self.hashes)
    }

    /// The identity of the object.
    pub const fn id(&self) -> ObjectId {
        self.id
    }

    /// Whether `data` is what the block must be; false if there is no such block.
    pub fn verify(&self, block: BlockId, data: &[u8]) -> bool {
        let mut right = true;
        let hashed = self.layout.hash_block(block, data, |number, hash| {
            right &= self.hashes[number] == hash;
        });
        hashed && right
    }

    /// A digest of all that blocks consist of: names, sizes and contents of files, in blocks of this
    /// size; not their modes, times and attributes, nor how a single file is called. Objects of the same digest
    /// have the same blocks.
    pub fn content(&self) -> [u8; 32] {
        let mut hasher = blake3::Hasher::new();
        hasher.update(&self.block_bytes().to_le_bytes());
        let is_tree = matches!(self.kind(), Kind::Tree { .. });
        for (id, entry) in (0..).map(EntryId).zip(self.entries()) {
            let path = self.layout.path(id);
            if is_tree {
                hasher.update(&(path.len() as u64).to_le_bytes());
                hasher.update(&path);
            }
            match entry.content {
                Content::File { size, .. } => {
                    hasher.update(b"f").update(&size.0.to_le_bytes());
                    if let Some(hash) = self.file_hash(id) {
                        hasher.update(hash.as_bytes());
                    }
                }
                Content::Directory { .. } => {
                    hasher.update(b"d");
                }
                Content::Symlink { target } => {
                    let len = target.len() as u64;
                    hasher
                        .update(b"l")
                        .update(&len.to_le_bytes())
                        .update(target);
                }
                Content::Link { to } => {
                    hasher.update(b"h").update(&to.0.to_le_bytes());
                }
            }
        }
        *hasher.finalize().as_bytes()
    }

    /// The BLAKE3 hash of a file, as `b3sum` prints it; `None` for a directory or a symlink.
    ///
    /// # Panics
    /// If the object has no such entry.
    pub fn file_hash(&self, entry: EntryId) -> Option<blake3::Hash> {
        self.layout.merge(entry, &self.hashes)
    }
}

impl Deref for Manifest {
    type Target = Layout;

    fn deref(&self) -> &Layout {
        &self.layout
    }
}
