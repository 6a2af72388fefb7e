//! Manifests round trip, and hostile ones are refused.
#![allow(clippy::unwrap_used)]

use super::*;
use crate::Bytes;

const FILE: Content<'_> = Content::File {
    mode: 0o644,
    size: Bytes(0),
};
const DIRECTORY: Content<'_> = Content::Directory { mode: 0o755 };

fn file(size: u64) -> Content<'static> {
    Content::File {
        mode: 0o644,
        size: Bytes(size),
    }
}

fn tree() -> Builder {
    Builder::new(Kind::Tree { mode: 0o755 }).unwrap()
}

/// The bytes of a file, different for every file.
fn bytes_of(entry: EntryId, size: u64) -> Vec<u8> {
    let mut bytes = vec![0; size as usize];
    blake3::Hasher::new()
        .update(&entry.0.to_le_bytes())
        .finalize_xof()
        .fill(&mut bytes);
    bytes
}

fn contents(layout: &Layout) -> Vec<Vec<u8>> {
    let size = |content| match content {
        Content::File { size, .. } => size.0,
        _ => 0,
    };
    layout
        .entries()
        .map(|entry| bytes_of(entry.id, size(entry.content)))
        .collect()
}

fn block_of(layout: &Layout, contents: &[Vec<u8>], block: BlockId) -> Vec<u8> {
    let mut data = Vec::new();
    for extent in layout.extents(block) {
        let start = extent.offset as usize;
        data.extend(&contents[extent.file.index()][start..start + extent.len as usize]);
    }
    data
}

fn hashed(layout: Layout, contents: &[Vec<u8>]) -> Manifest {
    let mut hashes = vec![[0; 32]; layout.hashes()];
    for block in 0..layout.blocks() {
        let data = block_of(&layout, contents, block);
        assert!(layout.hash_block(block, &data, |number, hash| hashes[number] = hash));
    }
    Manifest::new(layout, hashes).unwrap()
}

/// Every sort of entry, with sizes on both sides of every border.
fn sample() -> (Manifest, Vec<Vec<u8>>) {
    let mut builder = tree();
    builder.add(b"a", -1, file(1024)).unwrap();
    builder.add(b"b", 1, file(1025)).unwrap();
    builder.add(b"d", 2, DIRECTORY).unwrap();
    builder.add(b"\xff\xfe", 3, file(5 * 1024)).unwrap();
    builder.leave().unwrap();
    builder.add(b"d-", 4, file(1)).unwrap();
    builder.add(b"e", 5, DIRECTORY).unwrap();
    builder.add(b"e", 6, DIRECTORY).unwrap();
    builder
        .add(b"l", 7, Content::Symlink { target: b"../../a" })
        .unwrap();
    builder.add(b"m", 8, file(11 * 1024 - 1)).unwrap();
    builder.leave().unwrap();
    builder.add(b"z", 9, FILE).unwrap();
    builder.leave().unwrap();
    builder.add(b"f", i64::MAX, file(1023)).unwrap();
    builder.add(b"g", i64::MIN, file(1)).unwrap();
    let layout = builder.finish(BlockSize::Given(1024)).unwrap();
    let contents = contents(&layout);
    (hashed(layout, &contents), contents)
}

#[test]
fn small_files_come_first_and_share_blocks() {
    let (manifest, _) = sample();
    // a | d- f | g; then b: 2 blocks, d/\xff\xfe: 5, e/e/m: 11.
    assert_eq!(manifest.blocks(), 3 + 2 + 5 + 11);
    assert_eq!(manifest.files(), 8);
    assert_eq!(
        manifest.size(),
        Bytes(1024 + 1025 + 5120 + 1 + 11263 + 1023 + 1)
    );
    let lens: Vec<u32> = (0..=21).map(|b| manifest.block_len(b)).collect();
    assert_eq!(lens[..3], [1024, 1024, 1]);
    assert_eq!(lens[3..5], [1024, 1]);
    assert_eq!(lens[10..21], [[1024; 10].as_slice(), &[1023]].concat());
    assert_eq!(lens[21..], [0]);
    assert!(manifest.is_pack(0) && manifest.is_pack(2) && !manifest.is_pack(3));
    assert_eq!(manifest.extents(21).count(), 0);
    let shared: Vec<_> = manifest.extents(1).collect();
    assert_eq!(manifest.path(shared[0].file), b"d-");
    assert_eq!(manifest.path(shared[1].file), b"f");
    for entry in manifest.entries() {
        for block in manifest.blocks_of(entry.id) {
            assert!(
                manifest
                    .extents(block)
                    .any(|extent| extent.file == entry.id)
            );
        }
        let covered: u64 = manifest
            .blocks_of(entry.id)
            .flat_map(|block| manifest.extents(block))
            .filter(|extent| extent.file == entry.id)
            .map(|extent| u64::from(extent.len))
            .sum();
        let Content::File { size, .. } = entry.content else {
            assert_eq!(covered, 0);
            continue;
        };
        assert_eq!(covered, size.0);
    }
}

#[test]
fn hash_of_a_file_is_its_plain_blake3_hash() {
    let mut builder = tree();
    for blocks in 0..40_u64 {
        for (tail, sort) in [(0, b"a"), (1, b"b"), (1023, b"c")] {
            let name = format!("{blocks:03}{}", sort[0]);
            builder
                .add(name.as_bytes(), 0, file(blocks * 1024 + tail))
                .unwrap();
        }
    }
    let layout = builder.finish(BlockSize::Given(1024)).unwrap();
    let contents = contents(&layout);
    let manifest = hashed(layout, &contents);
    for entry in manifest.entries() {
        let expected = blake3::hash(&contents[entry.id.index()]);
        assert_eq!(manifest.file_hash(entry.id), Some(expected), "{entry:?}");
    }
}

#[test]
fn only_the_right_bytes_verify() {
    let (manifest, contents) = sample();
    for block in 0..manifest.blocks() {
        let mut data = block_of(&manifest, &contents, block);
        assert!(manifest.verify(block, &data));
        assert!(!manifest.verify(block, &data[1..]));
        for at in [0, data.len() / 2, data.len() - 1] {
            data[at] ^= 1;
            assert!(!manifest.verify(block, &data), "block {block} byte {at}");
            data[at] ^= 1;
        }
        let next = (block + 1) % manifest.blocks();
        assert!(!manifest.verify(next, &data));
    }
    assert!(!manifest.verify(manifest.blocks(), b""));
    assert!(!manifest.verify(u32::MAX, b""));
}

#[test]
fn hashes_of_nothing_but_zeros_are_hashes_like_others() {
    let (right, contents) = sample();
    let layout = || Manifest::decode(&right.encode()).unwrap().layout;
    let layout = || Arc::into_inner(layout()).unwrap();
    let zeros = Manifest::new(layout(), vec![[0; 32]; right.hashes()]).unwrap();
    assert_ne!(zeros.id(), right.id());
    for manifest in [&zeros, &Manifest::decode(&zeros.encode()).unwrap()] {
        for block in 0..manifest.blocks() {
            let mut data = block_of(manifest, &contents, block);
            assert!(right.verify(block, &data) && !manifest.verify(block, &data));
            for byte in [0, 0xff] {
                data.fill(byte);
                assert!(!manifest.verify(block, &data), "block {block} of {byte}");
            }
        }
        for entry in manifest.entries() {
            let Content::File { size, .. } = entry.content else {
                continue;
            };
            let content = blake3::hash(&contents[entry.id.index()]);
            let same = manifest.file_hash(entry.id) == Some(content);
            // That of an empty file follows from its size.
            assert_eq!(same, size.0 == 0, "{}", manifest.path_shown(entry.id));
        }
    }
    // One of many is enough.
    for number in 0..right.hashes() {
        let mut hashes = right.hashes.to_vec();
        hashes[number] = [0; 32];
        let manifest = Manifest::new(layout(), hashes).unwrap();
        let wrong = (0..manifest.blocks())
            .filter(|block| !manifest.verify(*block, &block_of(&manifest, &contents, *block)));
        assert_eq!(wrong.count(), 1, "hash {number}");
    }
}

#[test]
fn encoding_round_trips_to_the_same_object() {
    let (manifest, _) = sample();
    let encoded = manifest.encode();
    let again = Manifest::decode(&encoded).unwrap();
    assert_eq!(again.id(), manifest.id());
    assert_eq!(again.id(), ObjectId::of(&encoded));
    assert_eq!(again.encode(), encoded);
    assert!(again.entries().eq(manifest.entries()));
    let link = again.entries().find(|entry| entry.name == b"l").unwrap();
    assert_eq!(link.content, Content::Symlink { target: b"../../a" });
    assert_eq!(again.path(link.id), b"e/e/l");
    let odd = again
        .entries()
        .find(|entry| entry.name == b"\xff\xfe")
        .unwrap();
    assert_eq!(again.path_shown(odd.id), "d/\\xff\\xfe");
}

#[test]
fn empty_objects_have_no_blocks() {
    let manifest = Manifest::new(tree().finish(BlockSize::Usual).unwrap(), vec![]).unwrap();
    assert_eq!(manifest.blocks(), 0);
    assert_eq!(
        Manifest::decode(&manifest.encode()).unwrap().id(),
        manifest.id()
    );

    let mut builder = Builder::new(Kind::File).unwrap();
    builder.add(b"empty", 0, FILE).unwrap();
    let manifest = Manifest::new(builder.finish(BlockSize::Usual).unwrap(), vec![]).unwrap();
    assert_eq!((manifest.blocks(), manifest.files()), (0, 1));
    assert_eq!(manifest.file_hash(EntryId(0)), Some(blake3::hash(b"")));
}

#[test]
fn truncated_or_extended_manifests_are_refused() {
    let (manifest, _) = sample();
    let mut encoded = manifest.encode();
    for len in 0..encoded.len() {
        assert!(Manifest::decode(&encoded[..len]).is_err(), "{len} bytes");
    }
    encoded.push(0);
    assert!(matches!(
        Manifest::decode(&encoded),
        Err(ManifestError::HashCount { .. })
    ));
}

#[test]
fn foreign_bytes_and_formats_are_named() {
    let (manifest, _) = sample();
    let mut encoded = manifest.encode();
    assert_eq!(
        Manifest::decode(b"#!/bin/sh").unwrap_err(),
        ManifestError::Signature
    );
    encoded[8] = 3;
    assert_eq!(
        Manifest::decode(&encoded).unwrap_err(),
        ManifestError::Version {
            found: 3,
            expected: 2
        }
    );
}

#[test]
fn a_longer_form_of_a_number_is_refused() {
    let mut encoded = tree()
        .finish(BlockSize::Given(1024))
        .map(|l| Manifest::new(l, vec![]))
        .unwrap()
        .unwrap()
        .encode();
    // Kind tree, mode 0755 in two bytes, 2^10, no entries, no attributes.
    assert_eq!(encoded[9..], [1, 0xed, 0x03, 10, 0, 0]);
    encoded.truncate(13);
    encoded.extend([0x80, 0, 0]);
    assert!(matches!(
        Manifest::decode(&encoded),
        Err(ManifestError::Malformed { .. })
    ));
}

#[test]
fn a_claim_of_many_entries_allocates_nothing() {
    // Kind tree, mode 0, 2^10, u32::MAX entries, none of them there, no attributes.
    let encoded = [
        b"outpour\0\x02\x01\x00\x0a".as_slice(),
        &[0xff, 0xff, 0xff, 0xff, 0x0f, 0],
    ]
    .concat();
    assert!(matches!(
        Manifest::decode(&encoded),
        Err(ManifestError::Malformed { .. })
    ));
}

#[test]
fn entries_that_must_not_exist_are_refused() {
    let refused = |name: &[u8], content| tree().add(name, 0, content).unwrap_err().to_string();
    assert_eq!(refused(b"", FILE), "\"\": an empty name");
    assert!(refused(b"..", DIRECTORY).contains("not allowed"));
    assert!(refused(b".outpour", DIRECTORY).contains("reserved"));
    assert!(refused(b"/etc", FILE).contains("slash"));
    let setuid = Content::File {
        mode: 0o4755,
        size: Bytes(1),
    };
    assert_eq!(
        refused(b"su", setuid),
        "\"su\": mode 4755 has bits outside 0777"
    );
    let sticky = Content::Directory { mode: 0o1777 };
    assert!(refused(b"tmp", sticky).contains("1777"));
    let out = Content::Symlink { target: b"../x" };
    assert_eq!(
        refused(b"l", out),
        "\"l\" is a symlink to \"../x\": the target is outside the tree"
    );
    assert!(refused(b"big", file(i64::MAX as u64 + 1)).contains("too many"));
    assert!(Builder::new(Kind::Tree { mode: 0o2755 }).is_err());
}

#[test]
fn names_below_directories_are_refused_like_those_at_the_top() {
    const DOTS: BadName = BadName::Dots;
    for depth in 0..4 {
        let prefix = "d/".repeat(depth);
        let inside = || {
            let mut builder = tree();
            for _ in 0..depth {
                builder.add(b"d", 0, DIRECTORY).unwrap();
            }
            builder
        };
        for (name, problem) in [
            (&b".."[..], DOTS),
            (b".", DOTS),
            (b"", BadName::Empty),
            (b"/", BadName::Slash),
            (b"../x", BadName::Slash),
            (b"x/..", BadName::Slash),
            (b"\0", BadName::Control),
            (b"..\0", BadName::Control),
            (b".outpour", BadName::Reserved),
        ] {
            let path = format!("{prefix}{}", escape(name));
            let refused = ManifestError::Name { path, problem };
            let link = Content::Symlink { target: b"x" };
            for content in [FILE, DIRECTORY, link] {
                assert_eq!(inside().add(name, 0, content), Err(refused.clone()));
                // The same from a program that does not use a builder.
                let mut builder = inside();
                builder.add(b"<here>", 0, content).unwrap();
                let layout = builder.finish(BlockSize::Given(1024)).unwrap();
                let encoded = Manifest::new(layout, vec![]).unwrap().encode();
                let named = |name: &[u8]| [&[name.len() as u8], name].concat();
                let (honest, forged) = (named(b"<here>"), named(name));
                let windows = encoded.windows(honest.len());
                let at = windows.into_iter().position(|part| part == honest).unwrap();
                let mut bytes = encoded.clone();
                bytes.splice(at..at + honest.len(), forged);
                assert_eq!(Manifest::decode(&bytes).unwrap_err(), refused);
            }
        }
    }
}

#[test]
fn order_excludes_duplicates_and_conflicts() {
    let mut builder = tree();
    builder.add(b"b", 0, FILE).unwrap();
    let duplicate = ManifestError::Duplicate { path: "b".into() };
    assert_eq!(builder.add(b"b", 0, FILE), Err(duplicate.clone()));
    assert_eq!(builder.add(b"b", 0, DIRECTORY), Err(duplicate));
    let order = ManifestError::Order { path: "a".into() };
    assert_eq!(builder.add(b"a", 0, FILE), Err(order));
    // After a file there is no directory to leave or to be in.
    assert!(matches!(
        builder.leave(),
        Err(ManifestError::Malformed { .. })
    ));
    builder.add(b"c", 0, DIRECTORY).unwrap();
    builder.add(b"a", 0, FILE).unwrap();
    let inside = ManifestError::Duplicate { path: "c/a".into() };
    assert_eq!(builder.add(b"a", 0, FILE), Err(inside));
    builder.leave().unwrap();
    builder.add(b"c-", 0, FILE).unwrap();
}

#[test]
fn limits_hold_on_both_sides() {
    let mut builder = tree();
    builder.add(b"a", 0, file(i64::MAX as u64 - 1)).unwrap();
    builder.add(b"b", 0, file(1)).unwrap();
    assert!(matches!(
        builder.add(b"c", 0, file(1)),
        Err(ManifestError::Size { .. })
    ));

    let blocks = |size| {
        let mut builder = tree();
        builder.add(b"a", 0, file(size)).unwrap();
        builder
            .finish(BlockSize::Given(1024))
            .map(|layout| layout.blocks())
    };
    assert_eq!(blocks(u64::from(BLOCKS_MAX) * 1024), Ok(BLOCKS_MAX));
    assert!(matches!(
        blocks(u64::from(BLOCKS_MAX) * 1024 + 1),
        Err(ManifestError::TooManyBlocks { .. })
    ));
    for wrong in [0, 512, 1023, 1025, BLOCK_BYTES_MAX * 2] {
        assert!(tree().finish(BlockSize::Given(wrong)).is_err(), "{wrong}");
    }
    assert!(tree().finish(BlockSize::Given(BLOCK_BYTES_MAX)).is_ok());

    // 15 names of 255 with their slashes are 3840 bytes; 255 more just fit.
    let mut builder = tree();
    for _ in 0..15 {
        builder.add(&[b'd'; 255], 0, DIRECTORY).unwrap();
    }
    builder.add(&[b'f'; 255], 0, FILE).unwrap();
    builder.add(b"g", 0, DIRECTORY).unwrap();
    let long = [b'h'; 253];
    builder.add(&long, 0, FILE).unwrap();
    assert!(matches!(
        builder.add(&[b'i'; 254], 0, FILE),
        Err(ManifestError::Name {
            problem: BadName::PathTooLong,
            ..
        })
    ));
}

#[test]
fn a_block_is_shared_by_a_bounded_number_of_files() {
    let mut builder = tree();
    for index in 0..PACK_FILES_MAX + 1 {
        builder
            .add(format!("{index:05}").as_bytes(), 0, file(1))
            .unwrap();
    }
    let layout = builder.finish(BlockSize::Given(1 << 20)).unwrap();
    assert_eq!(layout.blocks(), 2);
    assert_eq!(layout.extents(0).count(), PACK_FILES_MAX as usize);
    assert_eq!(layout.extents(1).count(), 1);
    let last = layout.entries().next_back().unwrap().id;
    assert_eq!(layout.blocks_of(last), 1..2);
}

#[test]
fn a_file_object_is_one_file() {
    let one = |content| {
        let mut builder = Builder::new(Kind::File).unwrap();
        builder.add(b"a", 0, content)?;
        builder.finish(BlockSize::Usual).map(|_| ())
    };
    assert_eq!(one(FILE), Ok(()));
    assert_eq!(one(DIRECTORY), Err(ManifestError::NotOneFile));
    assert!(one(Content::Symlink { target: b"b" }).is_err());
    let none = Builder::new(Kind::File).unwrap();
    assert_eq!(
        none.finish(BlockSize::Usual).unwrap_err(),
        ManifestError::NotOneFile
    );
}

#[test]
fn default_blocks_are_many_enough_to_pipeline_and_few_enough_to_keep() {
    let bytes = |size| BlockSize::Usual.bytes(Bytes(size));
    assert_eq!(bytes(0), 16 << 10);
    assert_eq!(bytes(100_000_000), 64 << 10);
    assert_eq!(bytes(4 << 30), 512 << 10);
    assert_eq!(bytes(16 << 30), 1 << 20);
    assert_eq!(bytes(1 << 40), 4 << 20);
    assert_eq!(bytes(u64::MAX), 4 << 20);
    for log2 in 26..=34 {
        let size = 1_u64 << log2;
        let blocks = size / u64::from(bytes(size));
        assert!((1024..=16384).contains(&blocks), "{size}: {blocks}");
    }
}

#[test]
fn an_entry_takes_32_bytes() {
    assert_eq!(size_of::<layout::Slot>(), 32);
}

#[test]
fn small_blocks_are_the_usual_ones_of_small_objects_and_never_too_many() {
    let small = |size| BlockSize::AtMost(64 << 10).bytes(Bytes(size));
    let usual = |size| BlockSize::Usual.bytes(Bytes(size));
    for size in [0, 1000, 100_000_000, 1 << 27] {
        assert_eq!(small(size), usual(size), "{size}");
    }
    assert_eq!(small(1 << 30), 64 << 10);
    assert_eq!(small(64 << 30), 64 << 10);
    assert_eq!(small((64 << 30) + 1), 128 << 10);
    assert_eq!(small(1 << 40), 1 << 20);
    assert_eq!(small(u64::MAX), usual(u64::MAX));
    let larger = |size| BlockSize::AtMost(256 << 10).bytes(Bytes(size));
    assert_eq!(
        (larger(100_000_000), larger(4 << 30)),
        (64 << 10, 256 << 10)
    );
    for log2 in 0..=42 {
        let size = 1_u64 << log2;
        assert!(small(size) <= usual(size), "{size}");
        assert!(size.div_ceil(u64::from(small(size))) <= 1 << 20, "{size}");
    }
}
