//! A manifest that is let through has one encoding, and everything it claims can be asked for.
#![no_main]

use outpour_core::manifest::Manifest;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let Ok(manifest) = Manifest::decode(bytes) else {
        return;
    };
    assert_eq!(manifest.encode(), bytes);
    for entry in manifest.entries() {
        let _ = manifest.path_shown(entry.id);
        let _ = manifest.file_hash(entry.id);
    }
    let blocks = manifest.blocks();
    for block in (0..blocks.min(100)).chain(blocks.saturating_sub(100)..blocks) {
        let len: u64 = manifest
            .extents(block)
            .map(|extent| u64::from(extent.len))
            .sum();
        assert_eq!(len, u64::from(manifest.block_len(block)));
        assert!(!manifest.verify(block, b""));
    }
});
