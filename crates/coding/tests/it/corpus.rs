//! What the fuzz targets found worth keeping, replayed.

use std::fs;
use std::path::Path;

#[path = "../../../../fuzz/coding.rs"]
mod coding;

fn replay(target: &str, run: impl Fn(&[u8])) {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus");
    let mut count = 0;
    for file in fs::read_dir(root.join(target)).unwrap() {
        run(&fs::read(file.unwrap().path()).unwrap());
        count += 1;
    }
    assert!(count >= 10, "{count} files");
}

#[test]
fn the_corpus_of_packets_is_read_as_it_was_written() {
    replay("coding_packet", coding::packet);
}

#[test]
fn the_corpus_of_histories_keeps_every_promise() {
    replay("coding_state", coding::state);
}
