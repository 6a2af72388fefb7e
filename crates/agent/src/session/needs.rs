//! What a part in a cast takes of memory, beside the buffers of the data plane.

use outpour_core::BlockId;
use outpour_core::manifest::Manifest;
use outpour_terms::Terms;

use crate::control::Admission;

/// A part that moves nothing: its session, tasks, threads and channels.
pub(crate) const PART: u64 = 1 << 20;
/// What the store and the node keep of an entry: its identity on the disk, and lists of what is done with it.
const ENTRY: u64 = 48;
/// What they keep of a block, sets apart: where it is, and lists of what is to be synced and asked for.
const BLOCK: u64 = 20;
/// How many sets of all blocks a node keeps for itself, and for how many peers at most.
const SETS: u64 = 8;
const PEERS_MAX: u64 = 64;
/// Buffers that a coded part keeps for reuse, at most.
const FREE_BUFFERS: u64 = 32 << 20;

/// For a part that was admitted, as far as it is known before the manifest is: that itself, twice while
/// it is not decoded, and packets.
pub(super) fn admitted(admission: &Admission) -> u64 {
    let offer = &admission.manifest;
    let manifest = match &offer.inline {
        Some(encoded) => Manifest::memory(encoded).0,
        None => u64::from(offer.len),
    };
    PART + u64::from(offer.len) + manifest + packets(&admission.terms, None)
}

/// For a part of a source that was admitted, beside what it has read.
pub(super) fn of_source(terms: &Terms, held: &Manifest) -> u64 {
    PART + packets(terms, Some((held.blocks(), held.size().0)))
}

/// For reading a manifest that is here.
pub(super) fn reading(encoded: &[u8]) -> u64 {
    encoded.len() as u64 + Manifest::memory(encoded).0
}

/// For the rest of a part, once its manifest has been decoded from so many bytes.
pub(crate) fn known(manifest: &Manifest, encoded: u64, decoded: u64, terms: &Terms) -> u64 {
    let blocks = u64::from(manifest.blocks());
    let peers = (terms.members.len() as u64).min(PEERS_MAX);
    let sets = blocks / 8 * (SETS + peers);
    let entries = manifest.entries().len() as u64 * ENTRY;
    let packets = packets(terms, Some((manifest.blocks(), manifest.size().0)));
    PART + encoded + decoded + entries + blocks * BLOCK + sets + packets
}

/// Packets of batches under way, and buffers kept for reuse, of an object of so many blocks and bytes.
fn packets(terms: &Terms, object: Option<(BlockId, u64)>) -> u64 {
    let Some(coding) = terms.coding else {
        return 0;
    };
    let (blocks, bytes) = object.unwrap_or((BlockId::MAX, u64::MAX));
    let kept = coding.memory(terms.protocol.entry(), blocks, terms.block_bytes);
    // No object takes more of either than it is long.
    kept.min(bytes) + FREE_BUFFERS.min(bytes)
}
