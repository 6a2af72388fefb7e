//! The encoded manifest: signature, format, header, names of owners, entries, hashes.
//!
//! All but the hashes are `postcard` values one after the other; the hashes follow as they are. If the
//! header says that attributes are kept, the names of owners and the attributes of the root follow it,
//! and each entry but a hard link is followed by its attributes: in full where they occur for the first
//! time, by their number from then on.
//! What is decoded is hostile until checked: memory grows only with bytes that are really there,
//! and there is one encoding of a manifest only, so that decoding and encoding again gives the
//! same object.

#![cfg_attr(
    not(test),
    deny(
        clippy::unwrap_used,
        clippy::expect_used,
        clippy::indexing_slicing,
        clippy::arithmetic_side_effects
    )
)]

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::attributes::XATTR_BYTES_SUM_MAX;
use super::builder::Builder;
use super::error::ManifestError;
use super::layout::{BlockSize, EntryId, Layout};
use super::path::{NAME_BYTES_MAX, PATH_BYTES_MAX};
use super::{
    Attributes, BadAttributes, Content, Kind, Manifest, OWNER_NAMES_MAX, ObjectId, XATTRS_MAX,
    Xattr,
};
use crate::Bytes;

/// The longest encoded manifest that is accepted, in bytes: some four million small files.
pub const MANIFEST_BYTES_MAX: usize = 256 << 20;

const SIGNATURE: &[u8; 8] = b"outpour\0";
const FORMAT: u8 = 2;

/// No entry is shorter: four numbers, and a name of one byte with its length.
const ENTRY_BYTES_MIN: usize = 6;

const HASH_BYTES: usize = 32;

#[derive(Serialize, Deserialize)]
struct WireHeader {
    kind: WireKind,
    /// Logarithm of the block size, so that it cannot be anything but a power of two.
    block_log2: u8,
    entries: u32,
    /// Whether attributes are kept.
    archive: bool,
}

/// What follows the header if attributes are kept, before the names.
#[derive(Serialize, Deserialize)]
struct WireArchive {
    users: u32,
    groups: u32,
    /// Whether the attributes of the root follow the names.
    root: bool,
}

#[derive(Serialize, Deserialize)]
struct WireName<'a> {
    id: u32,
    name: &'a [u8],
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
    Link { to: u32 },
}

#[derive(Serialize, Deserialize)]
enum WireAttributes {
    /// As those that were the first, second, ... to be new.
    Same(u32),
    New(WireSet),
}

#[derive(Serialize, Deserialize)]
struct WireSet {
    owner: u32,
    group: u32,
    special: u16,
    data_bytes: Option<u64>,
    /// How many extended attributes follow.
    xattrs: u16,
}

#[derive(Serialize, Deserialize)]
struct WireXattr<'a> {
    name: &'a [u8],
    value: &'a [u8],
}

pub(super) fn encode(layout: &Layout, hashes: &[[u8; HASH_BYTES]]) -> Vec<u8> {
    let count = layout.entries().len();
    let capacity = count.saturating_mul(48).saturating_add(size_of_val(hashes));
    let mut out = Vec::with_capacity(capacity);
    out.extend_from_slice(SIGNATURE);
    out.push(FORMAT);
    let header = WireHeader {
        kind: match layout.kind() {
            Kind::File => WireKind::File,
            Kind::Tree { mode } => WireKind::Tree { mode },
        },
        block_log2: layout.block_bytes().ilog2() as u8,
        entries: count as u32,
        archive: layout.is_archive(),
    };
    append(&mut out, &header);
    encode_archive(layout, &mut out);
    let mut distinct = 0;
    let mut open: Vec<EntryId> = Vec::new();
    for entry in layout.entries() {
        let mut leave = 0_u16;
        while open.last().copied() != entry.parent {
            open.pop();
            leave = leave.saturating_add(1);
        }
        let content = match entry.content {
            Content::File { mode, size } => WireContent::File { mode, size: size.0 },
            Content::Directory { mode } => WireContent::Directory { mode },
            Content::Symlink { target } => WireContent::Symlink { target },
            Content::Link { to } => WireContent::Link { to: to.0 },
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
        encode_attributes(layout, entry.id, &mut distinct, &mut out);
    }
    out.extend_from_slice(hashes.as_flattened());
    out
}

fn encode_archive(layout: &Layout, out: &mut Vec<u8>) {
    let Some(archive) = layout.archive() else {
        return;
    };
    let sizes = WireArchive {
        users: archive.users.len() as u32,
        groups: archive.groups.len() as u32,
        root: archive.root.is_some(),
    };
    append(out, &sizes);
    for (id, name) in layout.user_names().chain(layout.group_names()) {
        append(out, &WireName { id, name });
    }
    if let Some(root) = &archive.root {
        encode_set(root, out);
    }
}

/// Encodes the attributes of an entry, before which there were so many distinct ones.
fn encode_attributes(layout: &Layout, entry: EntryId, distinct: &mut u32, out: &mut Vec<u8>) {
    let archive = layout.archive();
    let set = archive.and_then(|archive| archive.of.get(entry.index()));
    let (Some(set), Some(attributes)) = (set, layout.attributes(entry)) else {
        return;
    };
    if *set < *distinct {
        return append(out, &WireAttributes::Same(*set));
    }
    // No more than there are entries.
    *distinct = distinct.saturating_add(1);
    let set = WireSet::of(attributes);
    append(out, &WireAttributes::New(set));
    encode_xattrs(attributes, out);
}

fn encode_set(attributes: &Attributes, out: &mut Vec<u8>) {
    append(out, &WireSet::of(attributes));
    encode_xattrs(attributes, out);
}

fn encode_xattrs(attributes: &Attributes, out: &mut Vec<u8>) {
    for Xattr { name, value } in &attributes.xattrs {
        append(out, &WireXattr { name, value });
    }
}

impl WireSet {
    fn of(attributes: &Attributes) -> Self {
        Self {
            owner: attributes.owner,
            group: attributes.group,
            special: attributes.special,
            data_bytes: attributes.data_bytes,
            xattrs: attributes.xattrs.len() as u16,
        }
    }
}

#[allow(clippy::expect_used, reason = "what is encoded is ours")]
fn append(out: &mut Vec<u8>, value: &impl Serialize) {
    *out = postcard::to_extend(value, std::mem::take(out)).expect("encoding into memory");
}

/// What an entry takes in memory besides its name while a manifest is read, at most: its slot, its place
/// among files of its sort and a pack of its own, in lists that grow by doubling.
const ENTRY_MEMORY: usize = 32 + 8 + 16 + 16;

/// What the attributes of an entry take besides: which they are, in a list that grows by doubling, and, if no
/// other entry has the same, themselves, shared, in such a list and in the nodes of a tree.
const ATTRIBUTES_MEMORY: usize = 2 * 4 + size_of::<Attributes>() + 16 + 2 * 8 + 2 * 24;

/// What an extended attribute takes for each byte of its encoding, at most: two lists of their own for a
/// name that is not shorter than `user.` and one more.
const XATTR_MEMORY: usize = 8;

/// What the name of an owner takes besides itself.
const OWNER_MEMORY: usize = 2 * 32 + NAME_BYTES_MAX;

/// The longest name and the longest target of an entry.
const ENTRY_TEXT_MAX: usize = NAME_BYTES_MAX + PATH_BYTES_MAX;

/// How long signature and format are.
const HEAD: usize = SIGNATURE.len() + 1;

pub(super) fn memory(bytes: &[u8]) -> usize {
    let mut rest = bytes.get(HEAD..).unwrap_or_default();
    let header = take::<WireHeader>(&mut rest, &mut Vec::new());
    let (entries, archive) = header.map_or((0, false), |header| {
        (header.entries as usize, header.archive)
    });
    let entries = entries.min(rest.len() / ENTRY_BYTES_MIN);
    let kept = match archive {
        true => {
            let owners = (2 * OWNER_NAMES_MAX).min(bytes.len());
            let xattrs = XATTR_BYTES_SUM_MAX.min(bytes.len());
            sum([
                entries.saturating_mul(ATTRIBUTES_MEMORY),
                owners.saturating_mul(OWNER_MEMORY),
                xattrs.saturating_mul(XATTR_MEMORY),
            ])
        }
        false => 0,
    };
    let text = entries.saturating_mul(ENTRY_TEXT_MAX).min(bytes.len());
    // Names, in a list that grows by doubling, and hashes are no longer than their encoding.
    sum([
        entries.saturating_mul(ENTRY_MEMORY),
        bytes.len(),
        text,
        kept,
    ])
}

/// What is more than any memory has is too much as well.
fn sum<const N: usize>(parts: [usize; N]) -> usize {
    parts.into_iter().fold(0, usize::saturating_add)
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
    if header.archive {
        decode_archive(&mut builder, &mut rest, &mut scratch)?;
    }
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
            WireContent::Link { to } => Content::Link { to: EntryId(to) },
        };
        let attributes = match wire.content {
            WireContent::Link { .. } => None,
            _ if header.archive => Some(take_attributes(&builder, &mut rest, &mut scratch)?),
            _ => None,
        };
        let (distinct, new) = (builder.distinct(), attributes.as_ref().map(|it| it.1));
        let attributes = attributes.as_ref().map(|(attributes, _)| &**attributes);
        builder.add_with(wire.name, wire.mtime_ns, content, attributes)?;
        if new.is_some_and(|new| new != (builder.distinct() > distinct)) {
            let what = "attributes that occurred before are given in full";
            return Err(ManifestError::Malformed { what });
        }
    }
    // A shift too far gives 0, which is no block size.
    let block_bytes = 1_u32.checked_shl(header.block_log2.into());
    let layout = builder.finish(BlockSize::Given(block_bytes.unwrap_or(0)))?;
    let (hashes, odd) = rest.as_chunks::<HASH_BYTES>();
    if hashes.len() != layout.hashes() || !odd.is_empty() {
        return Err(ManifestError::HashCount {
            expected: layout.hashes().saturating_mul(HASH_BYTES),
            found: rest.len(),
        });
    }
    Ok(Manifest {
        layout: layout.into(),
        hashes: hashes.into(),
        id: ObjectId::of(bytes),
    })
}

/// Takes the names of owners and the attributes of the root.
fn decode_archive<'a>(
    builder: &mut Builder,
    rest: &mut &'a [u8],
    scratch: &mut Vec<u8>,
) -> Result<(), ManifestError> {
    let sizes: WireArchive = take(rest, scratch)?;
    let names = |rest: &mut &'a [u8], scratch: &mut Vec<u8>, count: u32| {
        if count as usize > OWNER_NAMES_MAX {
            return Err(ManifestError::Attributes {
                path: ".".to_owned(),
                problem: BadAttributes::OwnerName,
            });
        }
        let mut names: Vec<(u32, &'a [u8])> = Vec::new();
        for _ in 0..count {
            let WireName { id, name } = take(rest, scratch)?;
            if names.last().is_some_and(|(last, _)| *last >= id) {
                let what = "names of owners that are not in the order of their numbers";
                return Err(ManifestError::Malformed { what });
            }
            names.push((id, name));
        }
        Ok(names)
    };
    let users = names(rest, scratch, sizes.users)?;
    let groups = names(rest, scratch, sizes.groups)?;
    let root = match sizes.root {
        true => {
            let set = take(rest, scratch)?;
            Some(take_xattrs(set, rest, scratch)?)
        }
        false => None,
    };
    builder.archive(root.as_ref())?;
    for (id, name) in users {
        builder.name_user(id, name)?;
    }
    for (id, name) in groups {
        builder.name_group(id, name)?;
    }
    Ok(())
}

/// Takes the attributes of an entry, and says whether they are to be new.
fn take_attributes(
    builder: &Builder,
    rest: &mut &[u8],
    scratch: &mut Vec<u8>,
) -> Result<(Arc<Attributes>, bool), ManifestError> {
    match take(rest, scratch)? {
        WireAttributes::Same(set) => {
            let what = "attributes that were not there before";
            let known = builder.set(set);
            Ok((known.ok_or(ManifestError::Malformed { what })?, false))
        }
        WireAttributes::New(set) => Ok((take_xattrs(set, rest, scratch)?.into(), true)),
    }
}

fn take_xattrs(
    set: WireSet,
    rest: &mut &[u8],
    scratch: &mut Vec<u8>,
) -> Result<Attributes, ManifestError> {
    if usize::from(set.xattrs) > XATTRS_MAX {
        return Err(ManifestError::Attributes {
            path: ".".to_owned(),
            problem: BadAttributes::TooMany,
        });
    }
    let mut xattrs = Vec::new();
    for _ in 0..set.xattrs {
        let WireXattr { name, value } = take(rest, scratch)?;
        xattrs.push(Xattr {
            name: name.to_vec(),
            value: value.to_vec(),
        });
    }
    Ok(Attributes {
        owner: set.owner,
        group: set.group,
        special: set.special,
        data_bytes: set.data_bytes,
        xattrs,
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
    let (taken, _) = rest.split_at(rest.len().saturating_sub(after.len()));
    scratch.clear();
    append(scratch, &value);
    if scratch != taken {
        let what = "a number that is not in its shortest form";
        return Err(ManifestError::Malformed { what });
    }
    *rest = after;
    Ok(value)
}
