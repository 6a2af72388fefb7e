//! Blocks that lie in holes: they are zeros, so nobody has to send them.

use std::collections::BTreeMap;
use std::sync::Mutex;

use outpour_core::BlockId;
use outpour_core::manifest::EntryId;
use rustix::fs::OFlags;

use super::{Resume, Share, lock, size_of};
use crate::destination::{Keep, Whereabouts};
use crate::error::Error;
use crate::{sys, work};

/// So many bytes of an object at most are compared with zeros: a manifest that claims more would keep
/// processors busy for hours.
const TRIED_BYTES_MAX: u64 = 1 << 40;

impl Resume<'_> {
    /// Counts the blocks of zeros of large files with holes as staged, each after it was compared with the
    /// manifest.
    pub(super) fn settle_holes(&self) -> Result<(), Error> {
        if self.options.keep != Keep::Files {
            return Ok(());
        }
        let mut left = TRIED_BYTES_MAX;
        let mut shares: Vec<Share> = Vec::new();
        for entry in self.manifest.entries() {
            let (blocks, size) = (self.manifest.blocks_of(entry.id), size_of(&entry));
            let wanted = blocks.len() > 1
                && self.manifest.is_sparse(entry.id)
                && self.get(entry.id) != Whereabouts::Placed;
            if !wanted || size > left {
                continue;
            }
            left -= size;
            let staged = lock(&self.staged).clone();
            let missing = blocks.filter(|block| !staged.contains(*block)).collect();
            shares.extend(self.shares(entry.id, missing));
        }
        let found: Mutex<BTreeMap<EntryId, Vec<BlockId>>> = Mutex::default();
        work::spread(self.options.threads, &shares, |share, buf| {
            for block in share.blocks.clone() {
                let len = self.manifest.block_len(block);
                buf.clear();
                buf.resize(len as usize, 0);
                if self.manifest.verify(block, buf) {
                    lock(&found).entry(share.file).or_default().push(block);
                }
                self.options.work.add(len.into());
            }
            Ok::<_, Error>(())
        })?;
        let found = found.into_inner();
        let found = found.unwrap_or_else(std::sync::PoisonError::into_inner);
        for (file, blocks) in found {
            self.stage_holes(file, &blocks)?;
        }
        Ok(())
    }

    /// Makes blocks of a staged file holes, whatever is there.
    fn stage_holes(&self, file: EntryId, blocks: &[BlockId]) -> Result<(), Error> {
        let size = size_of(&self.manifest.entry(file));
        if self.get(file) == Whereabouts::Absent {
            self.make_staged(file, size)?;
            self.set(file, Whereabouts::Staged);
        }
        let path = || self.place.path_of(self.manifest, file);
        let staged = self.state.staging().open(file, OFlags::RDWR);
        let staged = staged.map_err(Error::at(path, "open the file"))?;
        let mut zeros = Vec::new();
        for block in blocks {
            for extent in self.manifest.extents(*block) {
                debug_assert_eq!(extent.file, file, "a block of small files");
                zeros.clear();
                zeros.resize(extent.len as usize, 0);
                sys::pwrite_sparse(&staged, &zeros, extent.offset)
                    .map_err(Error::at(path, "write the file"))?;
            }
            lock(&self.staged).insert(*block);
        }
        Ok(())
    }
}
