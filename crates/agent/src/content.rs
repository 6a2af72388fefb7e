//! The two objects of a cast as the data plane reads and writes them: the encoded manifest, which
//! lives in memory, and the object itself, which lives in files.

use std::io;
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use outpour_core::manifest::{MANIFEST_BYTES_MAX, Manifest};
use outpour_core::{BlockId, BlockSet};
use outpour_net::{Accept, BlockIo};
use outpour_store::{Destination, Error, Source};
use outpour_terms::ManifestShape;

use crate::control::ManifestOffer;

/// Describes an encoded manifest to the `receivers` that are to get it.
pub(crate) fn offer(encoded: &[u8], receivers: usize) -> ManifestOffer {
    let shape = ManifestShape::of(encoded.len() as u64, receivers);
    ManifestOffer {
        len: encoded.len() as u32,
        block_bytes: shape.block_bytes,
        hashes: encoded
            .chunks(shape.block_bytes as usize)
            .map(|chunk| *blake3::hash(chunk).as_bytes())
            .collect(),
        id: *blake3::hash(encoded).as_bytes(),
        inline: shape.inline.then(|| encoded.to_vec()),
    }
}

/// The encoded manifest, whole or on its way.
pub(crate) struct Blob {
    offer: ManifestOffer,
    state: RwLock<(Vec<u8>, BlockSet)>,
}

impl Blob {
    /// All of it.
    pub(crate) fn whole(offer: ManifestOffer, encoded: Vec<u8>) -> Self {
        let have = BlockSet::full(offer.hashes.len() as u32);
        Self {
            offer,
            state: RwLock::new((encoded, have)),
        }
    }

    /// What came with the offer: all or nothing; `None` if the offer contradicts itself.
    pub(crate) fn offered(mut offer: ManifestOffer) -> Option<Self> {
        let inline = offer.inline.take();
        let sound = offer.block_bytes > 0
            && offer.len > 0
            && offer.len as usize <= MANIFEST_BYTES_MAX
            && offer.hashes.len() as u32 == offer.len.div_ceil(offer.block_bytes);
        if !sound {
            return None;
        }
        if let Some(encoded) = inline {
            let whole = encoded.len() == offer.len as usize
                && *blake3::hash(&encoded).as_bytes() == offer.id;
            return whole.then(|| Self::whole(offer, encoded));
        }
        let have = BlockSet::new(offer.hashes.len() as u32);
        let bytes = vec![0; offer.len as usize];
        Some(Self {
            offer,
            state: RwLock::new((bytes, have)),
        })
    }

    pub(crate) const fn block_bytes(&self) -> u32 {
        self.offer.block_bytes
    }

    pub(crate) fn have(&self) -> BlockSet {
        self.state
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .1
            .clone()
    }

    /// Reads the encoded manifest, once it is all here and is what was offered, if `room` has what its bytes
    /// take; what is wrong in one line.
    pub(crate) fn decode(
        &self,
        room: impl FnOnce(&[u8]) -> Result<(), String>,
    ) -> Result<Manifest, String> {
        let state = self.state.read().unwrap_or_else(PoisonError::into_inner);
        if !state.1.is_full() || *blake3::hash(&state.0).as_bytes() != self.offer.id {
            return Err(
                "the manifest is rejected: it differs from the one that was offered".to_owned(),
            );
        }
        room(&state.0)?;
        let decoded = Manifest::decode(&state.0);
        decoded.map_err(|error| format!("the manifest is rejected: {error}"))
    }

    fn range(&self, block: BlockId) -> Option<std::ops::Range<usize>> {
        let start = u64::from(block) * u64::from(self.offer.block_bytes);
        let end = (start + u64::from(self.offer.block_bytes)).min(u64::from(self.offer.len));
        (start < end).then_some(start as usize..end as usize)
    }
}

impl BlockIo for Blob {
    fn block_len(&self, block: BlockId) -> Option<u32> {
        self.range(block).map(|range| range.len() as u32)
    }

    fn has(&self, block: BlockId) -> bool {
        self.state
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .1
            .contains(block)
    }

    fn drops(&self, _: BlockId) -> bool {
        false
    }

    fn read(&self, block: BlockId, buf: &mut Vec<u8>) -> io::Result<()> {
        let range = self.range(block).ok_or(io::ErrorKind::InvalidInput)?;
        let state = self.state.read().unwrap_or_else(PoisonError::into_inner);
        buf.clear();
        buf.extend_from_slice(&state.0[range]);
        Ok(())
    }

    fn accept(&self, block: BlockId, data: &[u8]) -> Accept {
        let expected = self.offer.hashes.get(block as usize);
        let range = self.range(block).filter(|range| range.len() == data.len());
        let (Some(expected), Some(range)) = (expected, range) else {
            return Accept::Wrong;
        };
        if blake3::hash(data).as_bytes() != expected {
            return Accept::Wrong;
        }
        let mut state = self.state.write().unwrap_or_else(PoisonError::into_inner);
        if !state.1.insert(block) {
            return Accept::Duplicate;
        }
        state.0[range].copy_from_slice(data);
        Accept::Stored
    }
}

/// The object at its source: everything is there to read, nothing is to be written.
pub(crate) struct SourceIo {
    pub(crate) manifest: Arc<Manifest>,
    pub(crate) source: Source,
}

impl BlockIo for SourceIo {
    fn block_len(&self, block: BlockId) -> Option<u32> {
        (block < self.manifest.blocks()).then(|| self.manifest.block_len(block))
    }

    fn has(&self, block: BlockId) -> bool {
        block < self.manifest.blocks()
    }

    fn drops(&self, _: BlockId) -> bool {
        false
    }

    fn read(&self, block: BlockId, buf: &mut Vec<u8>) -> io::Result<()> {
        self.source.read(block, buf).map_err(io::Error::other)
    }

    fn accept(&self, block: BlockId, data: &[u8]) -> Accept {
        if self.manifest.verify(block, data) {
            Accept::Duplicate
        } else {
            Accept::Wrong
        }
    }
}

/// The object at a destination.
pub(crate) struct DestinationIo {
    manifest: Arc<Manifest>,
    destination: Arc<Destination>,
    have: Mutex<BlockSet>,
    /// What went wrong first since this was last asked.
    trouble: Mutex<Option<Error>>,
}

impl DestinationIo {
    pub(crate) fn new(manifest: Arc<Manifest>, destination: Arc<Destination>) -> Self {
        let have = Mutex::new(destination.have());
        Self {
            manifest,
            destination,
            have,
            trouble: Mutex::default(),
        }
    }

    pub(crate) fn destination(&self) -> &Arc<Destination> {
        &self.destination
    }

    /// Looks again at what is here.
    pub(crate) fn refresh(&self) {
        *self.have.lock().unwrap_or_else(PoisonError::into_inner) = self.destination.have();
    }

    /// What went wrong at the destination since this was last called.
    pub(crate) fn take_trouble(&self) -> Option<Error> {
        let mut trouble = self.trouble.lock().unwrap_or_else(PoisonError::into_inner);
        trouble.take()
    }

    fn note(&self, error: Error) -> String {
        let line = error.to_string();
        let mut trouble = self.trouble.lock().unwrap_or_else(PoisonError::into_inner);
        trouble.get_or_insert(error);
        line
    }

    pub(crate) fn have(&self) -> BlockSet {
        self.have
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }
}

impl BlockIo for DestinationIo {
    fn block_len(&self, block: BlockId) -> Option<u32> {
        (block < self.manifest.blocks()).then(|| self.manifest.block_len(block))
    }

    fn has(&self, block: BlockId) -> bool {
        self.have
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .contains(block)
    }

    fn drops(&self, _: BlockId) -> bool {
        false
    }

    fn read(&self, block: BlockId, buf: &mut Vec<u8>) -> io::Result<()> {
        let read = self.destination.read(block, buf);
        read.map_err(|error| io::Error::other(self.note(error)))
    }

    fn accept(&self, block: BlockId, data: &[u8]) -> Accept {
        if !self.manifest.verify(block, data) {
            return Accept::Wrong;
        }
        if self.has(block) {
            return Accept::Duplicate;
        }
        if let Err(error) = self.destination.write(block, data) {
            return Accept::Failed(self.note(error.into()));
        }
        let fresh = self
            .have
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .insert(block);
        if fresh {
            Accept::Stored
        } else {
            Accept::Duplicate
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_small_manifest_comes_with_its_offer_and_a_large_one_does_not() {
        let encoded = vec![7; 100_000];
        let few = Blob::offered(offer(&encoded, 10)).unwrap();
        let error = few.decode(|_| Ok(())).unwrap_err();
        assert!(!error.contains("differs"), "all of it is here: {error}");
        let full = few.decode(|_| Err("full".to_owned()));
        assert_eq!(full.unwrap_err(), "full");
        let many = Blob::offered(offer(&encoded, 11)).unwrap();
        let error = many.decode(|_| Ok(())).unwrap_err();
        assert!(error.contains("differs"), "{error}");
        assert_eq!(many.have().count(), 0);
    }

    #[test]
    fn wrong_bytes_are_wrong_though_the_right_ones_came_before() {
        let encoded = vec![7; 100_000];
        let blob = Blob::offered(offer(&encoded, 11)).unwrap();
        let len = blob.block_len(0).unwrap() as usize;
        assert_eq!(blob.accept(0, &encoded[..len]), Accept::Stored);
        assert!(blob.has(0) && !blob.drops(0));
        assert_eq!(blob.accept(0, &encoded[..len]), Accept::Duplicate);
        assert_eq!(blob.accept(0, &vec![8; len]), Accept::Wrong);
    }

    #[test]
    fn an_offer_that_contradicts_itself_is_refused() {
        let mut wrong = offer(&[7; 1000], 1);
        wrong.inline = Some(vec![8; 1000]);
        assert!(Blob::offered(wrong).is_none());
        let mut short = offer(&[7; 100_000], 11);
        short.hashes.pop();
        assert!(Blob::offered(short).is_none());
    }
}
