//! Manifests from strangers: whatever they say, decoding answers, and what it lets through is safe.
#![allow(clippy::unwrap_used)]

use std::path::Path;

use outpour_core::Bytes;
use outpour_core::manifest::{
    ACCESS_ACL, Acl, Attributes, BlockSize, Builder, Content, DEFAULT_ACL, EntryId, Kind, Layout,
    MODE_MASK, Manifest, SPECIAL_MASK, XATTR_BYTES_MAX, Xattr,
};
use proptest::collection::vec;
use proptest::prelude::*;

/// What must hold for every manifest that is let through. Also what the fuzz target checks.
fn check(bytes: &[u8]) -> bool {
    let Ok(manifest) = Manifest::decode(bytes) else {
        return false;
    };
    assert_eq!(manifest.encode(), bytes, "one object has one encoding");
    let mut size = 0;
    let mut paths = std::collections::BTreeSet::new();
    for entry in manifest.entries() {
        let path = manifest.path(entry.id);
        assert!(path.len() <= 4095);
        let sound = |part: &[u8]| {
            !matches!(part, b"" | b"." | b".." | b".outpour")
                && part.len() <= 255
                && !part.iter().any(u8::is_ascii_control)
        };
        assert!(path.split(|byte| *byte == b'/').all(sound), "{path:?}");
        if let Some(parent) = entry.parent {
            let parent = manifest.entry(parent);
            assert!(matches!(parent.content, Content::Directory { .. }));
        }
        match entry.content {
            Content::File { mode, size: bytes } => {
                size += bytes.0;
                assert_eq!(mode & !MODE_MASK, 0);
                assert!(manifest.file_hash(entry.id).is_some());
            }
            Content::Directory { mode } => assert_eq!(mode & !MODE_MASK, 0),
            Content::Symlink { target } => {
                let depth = path.iter().filter(|byte| **byte == b'/').count();
                let up = target
                    .split(|byte| *byte == b'/')
                    .filter(|part| *part == b"..");
                assert!(up.count() <= depth && !target.starts_with(b"/"));
            }
            Content::Link { to } => {
                assert!(to < entry.id && manifest.is_file(to));
                assert!(manifest.blocks_of(entry.id).is_empty());
                assert_eq!(entry.mtime_ns, manifest.entry(to).mtime_ns);
            }
        }
        let attributes = manifest.attributes(entry.id);
        assert_eq!(
            attributes.is_some(),
            manifest.is_archive() && !matches!(entry.content, Content::Link { .. })
        );
        if let Some(attributes) = attributes {
            harmless(attributes, entry.content);
        }
        assert!(paths.insert(path));
    }
    assert_eq!(manifest.size(), Bytes(size));
    // A claim of very large files is cheap; do not walk all of their blocks.
    let blocks = manifest.blocks();
    for block in (0..blocks.min(100)).chain(blocks.saturating_sub(100)..blocks) {
        let len: u64 = manifest
            .extents(block)
            .map(|extent| u64::from(extent.len))
            .sum();
        assert_eq!(len, u64::from(manifest.block_len(block)));
        assert!((1..=manifest.block_bytes()).contains(&manifest.block_len(block)));
        for extent in manifest.extents(block) {
            assert!(manifest.blocks_of(extent.file).contains(&block));
        }
    }
    true
}

/// What may be set where a manifest says so: nothing that gives away privileges.
fn harmless(attributes: &Attributes, content: Content<'_>) {
    let directory = matches!(content, Content::Directory { .. });
    assert_eq!(attributes.special & !SPECIAL_MASK, 0);
    assert!(directory || attributes.special == 0);
    assert!(attributes.owner != u32::MAX && attributes.group != u32::MAX);
    if let Some(data) = attributes.data_bytes {
        assert!(matches!(content, Content::File { size, .. } if data < size.0));
    }
    let mut bytes = 0;
    for Xattr { name, value } in &attributes.xattrs {
        bytes += name.len() + value.len();
        if name.starts_with(b"user.") {
            continue;
        }
        assert!(name == ACCESS_ACL || (directory && name == DEFAULT_ACL));
        assert!(Acl::decode(value).is_some());
    }
    assert!(bytes <= XATTR_BYTES_MAX);
    assert!(attributes.xattrs.is_sorted_by(|a, b| a.name < b.name));
}

#[derive(Clone, Debug)]
enum Step {
    Link(usize),
    File(u64),
    Directory,
    Symlink(usize),
    Leave,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        4 => prop_oneof![0..10_u64, 900..1200_u64, 0..20_000_u64].prop_map(Step::File),
        2 => Just(Step::Directory),
        1 => (0..4_usize).prop_map(Step::Symlink),
        1 => (0..40_usize).prop_map(Step::Link),
        2 => Just(Step::Leave),
    ];
    vec(step, 0..40)
}

/// Attributes of an entry, of which there are a few different ones.
fn attributes(index: usize, content: Content<'_>) -> Attributes {
    let xattr = |name: &[u8], value: &[u8]| Xattr {
        name: name.to_vec(),
        value: value.to_vec(),
    };
    let mut attributes = Attributes {
        owner: index as u32 % 3,
        group: 1000,
        ..Attributes::default()
    };
    match content {
        Content::Directory { .. } => {
            attributes.special = 0o2000;
            attributes.xattrs = vec![xattr(DEFAULT_ACL, ACL), xattr(b"user.a", b"")];
        }
        Content::File { size, .. } if index.is_multiple_of(2) => {
            attributes.data_bytes = size.0.checked_sub(1);
            attributes.xattrs = vec![xattr(ACCESS_ACL, ACL), xattr(b"user.b", &[7; 300])];
        }
        _ => {}
    }
    attributes
}

/// The owner, the group and the others may read.
const ACL: &[u8] = b"\x02\0\0\0\x01\0\x04\0\xff\xff\xff\xff\x04\0\x04\0\xff\xff\xff\xff\x20\0\x04\0\xff\xff\xff\xff";

fn layout(steps: &[Step], archive: bool) -> Layout {
    let mut builder = Builder::new(Kind::Tree { mode: 0o750 }).unwrap();
    if archive {
        let root = Content::Directory { mode: 0o755 };
        builder.archive(Some(&attributes(0, root))).unwrap();
        builder.name_user(1, b"ana").unwrap();
        builder.name_group(1000, b"staff").unwrap();
    }
    let mut files = Vec::new();
    let mut count = 0;
    let mut depth = 0;
    for (index, step) in steps.iter().enumerate() {
        let name = format!("{index:03}");
        let mode = 0o644;
        let target = format!(
            "{}x",
            "../".repeat(if let Step::Symlink(up) = step { *up } else { 0 })
        );
        let content = match step {
            Step::File(size) => Content::File {
                mode,
                size: Bytes(*size),
            },
            Step::Directory => Content::Directory { mode: 0o755 },
            Step::Symlink(up) if *up <= depth => Content::Symlink {
                target: target.as_bytes(),
            },
            Step::Symlink(_) => continue,
            Step::Link(nth) if archive && !files.is_empty() => {
                let (to, time) = files[nth % files.len()];
                let content = Content::Link { to };
                builder.add(name.as_bytes(), time, content).unwrap();
                count += 1;
                continue;
            }
            Step::Link(_) => continue,
            Step::Leave if depth > 0 => {
                depth -= 1;
                builder.leave().unwrap();
                continue;
            }
            Step::Leave => continue,
        };
        depth += usize::from(matches!(step, Step::Directory));
        let time = -(index as i64);
        let kept = archive.then(|| attributes(index, content));
        builder
            .add_with(name.as_bytes(), time, content, kept.as_ref())
            .unwrap();
        if matches!(content, Content::File { .. }) {
            files.push((EntryId(count), time));
        }
        count += 1;
    }
    builder.finish(BlockSize::Given(1024)).unwrap()
}

fn manifest(steps: &[Step], archive: bool) -> Manifest {
    let layout = layout(steps, archive);
    let hashes = (0..layout.hashes())
        .map(|number| [number as u8; 32])
        .collect();
    Manifest::new(layout, hashes).unwrap()
}

#[derive(Clone, Debug)]
enum Mutation {
    Set(usize, u8),
    Flip(usize, u8),
    Insert(usize, u8),
    Remove(usize, usize),
    Repeat(usize, usize),
}

fn mutations() -> impl Strategy<Value = Vec<Mutation>> {
    let at = any::<usize>();
    // Bytes that mean something: dots, slashes, ends of numbers.
    let byte = prop_oneof![
        any::<u8>(),
        prop::sample::select(&b"./\0\x01\x7f\x80\xff"[..])
    ];
    let mutation = prop_oneof![
        (at, byte.clone()).prop_map(|(at, byte)| Mutation::Set(at, byte)),
        (at, 0..8_u8).prop_map(|(at, bit)| Mutation::Flip(at, bit)),
        (at, byte).prop_map(|(at, byte)| Mutation::Insert(at, byte)),
        (at, 1..40_usize).prop_map(|(at, len)| Mutation::Remove(at, len)),
        (at, 1..40_usize).prop_map(|(at, len)| Mutation::Repeat(at, len)),
    ];
    vec(mutation, 1..6)
}

fn mutate(bytes: &mut Vec<u8>, mutation: &Mutation) {
    let len = bytes.len();
    if len == 0 {
        return;
    }
    match *mutation {
        Mutation::Set(at, byte) => bytes[at % len] = byte,
        Mutation::Flip(at, bit) => bytes[at % len] ^= 1 << bit,
        Mutation::Insert(at, byte) => bytes.insert(at % len, byte),
        Mutation::Remove(at, count) => drop(bytes.drain(at % len..(at % len + count).min(len))),
        Mutation::Repeat(at, count) => {
            let part = bytes[at % len..(at % len + count).min(len)].to_vec();
            let at = at % len;
            bytes.splice(at..at, part);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn what_we_encode_is_let_through(steps in steps(), archive: bool) {
        let manifest = manifest(&steps, archive);
        prop_assert!(check(&manifest.encode()));
        let again = Manifest::decode(&manifest.encode()).unwrap();
        prop_assert!(again.entries().eq(manifest.entries()));
        prop_assert_eq!(again.id(), manifest.id());
        prop_assert_eq!(again.content(), manifest.content());
        prop_assert_eq!(again.root_attributes(), manifest.root_attributes());
        prop_assert!(again.user_names().eq(manifest.user_names()));
        prop_assert!(again.group_names().eq(manifest.group_names()));
        for entry in manifest.entries() {
            prop_assert_eq!(again.attributes(entry.id), manifest.attributes(entry.id));
        }
    }

    #[test]
    fn mutated_manifests_do_no_harm(
        steps in steps(),
        archive: bool,
        mutations in mutations(),
    ) {
        let mut bytes = manifest(&steps, archive).encode();
        for mutation in &mutations {
            mutate(&mut bytes, mutation);
        }
        check(&bytes);
    }

    #[test]
    fn noise_behind_the_signature_does_no_harm(noise in vec(any::<u8>(), 0..300)) {
        check(&[b"outpour\0\x02", &noise[..]].concat());
    }

    #[test]
    fn every_byte_of_an_object_is_in_exactly_one_block(steps in steps(), archive: bool) {
        let layout = layout(&steps, archive);
        let mut covered = vec![0_u64; layout.entries().len()];
        for block in 0..layout.blocks() {
            for extent in layout.extents(block) {
                // Parts of a file come in order and leave no gap.
                prop_assert_eq!(covered[extent.file.index()], extent.offset);
                covered[extent.file.index()] += u64::from(extent.len);
            }
        }
        for (index, entry) in layout.entries().enumerate() {
            prop_assert_eq!(entry.id, EntryId(index as u32));
            let size = match entry.content {
                Content::File { size, .. } => size.0,
                _ => 0,
            };
            prop_assert_eq!(covered[index], size);
        }
    }
}

/// The corpus of the fuzz target: files named `good_*` must be let through, the others refused.
#[test]
fn the_corpus_is_answered_as_it_should_be() {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/manifest_decode");
    let mut seen = 0;
    for entry in std::fs::read_dir(corpus).unwrap() {
        let path = entry.unwrap().path();
        let good = path
            .file_name()
            .unwrap()
            .to_str()
            .unwrap()
            .starts_with("good_");
        assert_eq!(
            check(&std::fs::read(&path).unwrap()),
            good,
            "{}",
            path.display()
        );
        seen += 1;
    }
    assert!(seen >= 16, "{seen}");
}
