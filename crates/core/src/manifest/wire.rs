//! The encoded manifest: signature, format, header, entries, hashes.
//!
//! Header and entries are `postcard` values one after the other, the hashes follow as they are.
//! What is decoded is hostile until checked: memory grows only with bytes that are really there,
//! and there is one encoding of a manifest only, so that decoding and encoding again gives the
//! same object.

#![cfg_attr(
    not(test),
    deny(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing)
)]

use serde::{Deserialize, Serialize};

use super::builder::Builder;
use super::error::ManifestError;
use super::layout::{BlockSize, EntryId, Layout};
use super::{Content, Kind, Manifest, ObjectId};
use crate::Bytes;

/// The longest encoded manifest that is accepted, in bytes: some four million small files.
pub const MANIFEST_BYTES_MAX: usize = 256 << 20;

const SIGNATURE: &[u8; 8] = b"outpour\0";
const FORMAT: u8 = 1;

/// No entry is shorter: four numbers, and a name of one byte with its length.
const ENTRY_BYTES_MIN: usize = 6;

const HASH_BYTES: usize = 32;

#[derive(Serialize, Deserialize)]
struct WireHeader {
    kind: WireKind,
    /// Logarithm of the block size, so that it cannot be anything but a power of two.
    block_log2: u8,
    entries: u32,
}

#[derive(Serialize, Deserialize)]
enum WireKind {
    File,
    Tree { mode: u16 },
}

#[derive(Serialize, Deserialize)]
struct WireEntry<'a> {
    /// How many directories end before this entry.
    leave: u16,
    name: &'a [u8],
    mtime_ns: i64,
    #[serde(borrow)]
    content: WireContent<'a>,
}

#[derive(Serialize, Deserialize)]
enum WireContent<'a> {
    File { mode: u16, size: u64 },
    Directory { mode: u16 },
    Symlink { target: &'a [u8] },
}

pub(super) fn encode(layout: &Layout, hashes: &[[u8; HASH_BYTES]]) -> Vec<u8> {
    let count = layout.entries().len();
    let mut out = Vec::with_capacity(64 + count * 48 + size_of_val(hashes));
    out.extend_from_slice(SIGNATURE);
    out.push(FORMAT);
    let header = WireHeader {
        kind: match layout.kind() {
            Kind::File => WireKind::File,
            Kind::Tree { mode } => WireKind::Tree { mode },
        },
        block_log2: layout.block_bytes().ilog2() as u8,
        entries: count as u32,
    };
    append(&mut out, &header);
    let mut open: Vec<EntryId> = Vec::new();
    for entry in layout.entries() {
        let mut leave = 0;
        while open.last().copied() != entry.parent {
            open.pop();
            leave += 1;
        }
        let content = match entry.content {
            Content::File { mode, size } => WireContent::File { mode, size: size.0 },
            Content::Directory { mode } => WireContent::Directory { mode },
            Content::Symlink { target } => WireContent::Symlink { target },
        };
        if matches!(content, WireContent::Directory { .. }) {
            open.push(entry.id);
        }
        let wire = WireEntry {
            leave,
            name: entry.name,
            mtime_ns: entry.mtime_ns,
            content,
        };
        append(&mut out, &wire);
    }
    out.extend_from_slice(hashes.as_flattened());
    out
}

#[allow(clippy::expect_used, reason = "what is encoded is ours")]
fn append(out: &mut Vec<u8>, value: &impl Serialize) {
    *out = postcard::to_extend(value, std::mem::take(out)).expect("encoding into memory");
}

pub(super) fn decode(bytes: &[u8]) -> Result<Manifest, ManifestError> {
    if bytes.len() > MANIFEST_BYTES_MAX {
        return Err(ManifestError::TooLong {
            bytes: bytes.len(),
            max: MANIFEST_BYTES_MAX,
        });
    }
    let rest = bytes
        .strip_prefix(SIGNATURE)
        .ok_or(ManifestError::Signature)?;
    let (found, mut rest) = rest.split_first().ok_or(ManifestError::Signature)?;
    if *found != FORMAT {
        return Err(ManifestError::Version {
            found: *found,
            expected: FORMAT,
        });
    }
    let mut scratch = Vec::new();
    let header: WireHeader = take(&mut rest, &mut scratch)?;
    let mut builder = Builder::new(match header.kind {
        WireKind::File => Kind::File,
        WireKind::Tree { mode } => Kind::Tree { mode },
    })?;
    builder.reserve((header.entries as usize).min(rest.len() / ENTRY_BYTES_MIN));
    for _ in 0..header.entries {
        let wire: WireEntry<'_> = take(&mut rest, &mut scratch)?;
        for _ in 0..wire.leave {
            builder.leave()?;
        }
        let content = match wire.content {
            WireContent::File { mode, size } => Content::File {
                mode,
                size: Bytes(size),
            },
            WireContent::Directory { mode } => Content::Directory { mode },
            WireContent::Symlink { target } => Content::Symlink { target },
        };
        builder.add(wire.name, wire.mtime_ns, content)?;
    }
    // A shift too far gives 0, which is no block size.
    let block_bytes = 1_u32.checked_shl(header.block_log2.into());
    let layout = builder.finish(BlockSize::Given(block_bytes.unwrap_or(0)))?;
    let (hashes, odd) = rest.as_chunks::<HASH_BYTES>();
    if hashes.len() != layout.hashes() || !odd.is_empty() {
        return Err(ManifestError::HashCount {
            expected: layout.hashes() * HASH_BYTES,
            found: rest.len(),
        });
    }
    Ok(Manifest {
        layout: layout.into(),
        hashes: hashes.into(),
        id: ObjectId::of(bytes),
    })
}

/// Takes one value off the front of `rest`; only its one proper encoding is accepted.
fn take<'a, T>(rest: &mut &'a [u8], scratch: &mut Vec<u8>) -> Result<T, ManifestError>
where
    T: Serialize + Deserialize<'a>,
{
    let (value, after) = postcard::take_from_bytes::<T>(rest).map_err(|_| {
        let what = "it is truncated or holds an invalid value";
        ManifestError::Malformed { what }
    })?;
    let (taken, _) = rest.split_at(rest.len() - after.len());
    scratch.clear();
    append(scratch, &value);
    if scratch != taken {
        let what = "a number that is not in its shortest form";
        return Err(ManifestError::Malformed { what });
    }
    *rest = after;
    Ok(value)
}
