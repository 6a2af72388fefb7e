//! Compares files on disk with what a manifest says they are.

use std::ops::Range;

use outpour_core::BlockId;
use outpour_core::manifest::{EntryId, Manifest};
use rustix::io::Errno;

use crate::fs::AsFd;
use crate::sys;

/// Hands `right` every one of some blocks of a large file that `file` has in its place, with its
/// bytes.
pub(crate) fn large<E: From<Errno>>(
    manifest: &Manifest,
    file: impl AsFd,
    blocks: Range<BlockId>,
    buf: &mut Vec<u8>,
    mut right: impl FnMut(BlockId, u64, &[u8]) -> Result<(), E>,
) -> Result<(), E> {
    let file_of = |block| manifest.extents(block).next().map(|extent| extent.file);
    debug_assert!(blocks.end <= manifest.blocks());
    debug_assert!(
        blocks.is_empty() || file_of(blocks.start) == file_of(blocks.end - 1),
        "blocks of several files"
    );
    for block in blocks {
        let Some(extent) = manifest.extents(block).next() else {
            continue;
        };
        debug_assert!(!manifest.is_pack(block));
        debug_assert_eq!(extent.len, manifest.block_len(block));
        sys::resize(buf, extent.len as usize);
        let read = sys::pread(&file, buf, extent.offset)?;
        if read == buf.len() && manifest.verify(block, buf) {
            right(block, extent.offset, buf)?;
        }
    }
    Ok(())
}

/// Whether `file`, which has the right size, is a small file of the object.
pub(crate) fn small(
    manifest: &Manifest,
    entry: EntryId,
    size: u64,
    file: impl AsFd,
    buf: &mut Vec<u8>,
) -> Result<bool, Errno> {
    debug_assert!(manifest.is_file(entry));
    debug_assert!(
        size <= u64::from(manifest.block_bytes()),
        "too large for a buffer"
    );
    debug_assert!(manifest.blocks_of(entry).len() < 2);
    sys::resize(buf, size as usize);
    let read = sys::pread(&file, buf, 0)?;
    Ok(read == buf.len() && manifest.file_hash(entry) == Some(blake3::hash(buf)))
}
