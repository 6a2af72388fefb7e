//! Replays what the fuzzer has found worth keeping.

use std::fs;
use std::path::Path;

#[test]
fn the_corpus_of_frames_is_parsed_without_a_panic() {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/net_frames");
    let mut files = 0;
    for file in fs::read_dir(corpus).unwrap() {
        outpour_net::frame::fuzz(&fs::read(file.unwrap().path()).unwrap());
        files += 1;
    }
    assert!(files >= 11, "{files} files");
}
