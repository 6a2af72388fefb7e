//! What the fuzz target found worth keeping, replayed and turned.

use std::fs;
use std::path::Path;

use rand_core::{RngCore as _, SeedableRng as _};
use rand_pcg::Pcg64Mcg;

#[path = "../../../../fuzz/raptor.rs"]
mod raptor;

#[test]
fn the_corpus_of_symbols_is_borne_as_it_is_and_turned() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/raptor_symbols");
    let mut files: Vec<_> = fs::read_dir(root)
        .unwrap()
        .map(|it| it.unwrap().path())
        .collect();
    files.sort();
    assert!(files.len() >= 6, "{} files", files.len());
    let mut random = Pcg64Mcg::seed_from_u64(1);
    for file in files {
        let bytes = fs::read(file).unwrap();
        raptor::symbols(&bytes);
        for _ in 0..50 {
            let mut bytes = bytes.clone();
            for _ in 0..random.next_u32() % 6 {
                if !bytes.is_empty() {
                    let at = random.next_u32() as usize % bytes.len();
                    bytes[at] = random.next_u32() as u8;
                }
            }
            raptor::symbols(&bytes);
        }
    }
}
