//! What the fuzz target found worth keeping, replayed; and that what it is handed leads somewhere.

use std::fs;
use std::path::Path;

use outpour_push::wire::{self, Message};
use rand_core::{RngCore as _, SeedableRng as _};
use rand_pcg::Pcg64Mcg;

#[path = "../../../../fuzz/push.rs"]
mod push;

fn corpus() -> Vec<Vec<u8>> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/push_messages");
    let mut files: Vec<_> = fs::read_dir(root)
        .unwrap()
        .map(|it| it.unwrap().path())
        .collect();
    files.sort();
    files.iter().map(|it| fs::read(it).unwrap()).collect()
}

#[test]
fn the_corpus_of_messages_is_borne() {
    let files = corpus();
    assert!(files.len() >= 10, "{} files", files.len());
    files.iter().for_each(|it| push::messages(it));
    // All kinds of messages are among them.
    let mut kinds = [false; 7];
    for file in &files {
        let mut rest = &file[..];
        while let [len, more @ ..] = rest {
            let (one, after) = more.split_at(usize::from(*len).min(more.len()));
            rest = after;
            if let Ok((message, _)) = wire::decode(one) {
                kinds[match message {
                    Message::Data(_) => 0,
                    Message::Ack(_) => 1,
                    Message::Fin(_) => 2,
                    Message::FinAck(_) => 3,
                    Message::ToController(_) => 4,
                    Message::ToReceiver(_) => 5,
                    Message::ToSource(_) => 6,
                }] = true;
            }
        }
    }
    assert_eq!(kinds, [true; 7]);
}

#[test]
fn what_is_turned_in_the_corpus_is_borne() {
    let files = corpus();
    let mut random = Pcg64Mcg::seed_from_u64(1);
    for _ in 0..20_000 {
        let mut bytes = Vec::new();
        for _ in 0..1 + random.next_u32() % 3 {
            bytes.extend(&files[random.next_u32() as usize % files.len()]);
        }
        for _ in 0..random.next_u32() % 6 {
            if !bytes.is_empty() {
                let at = random.next_u32() as usize % bytes.len();
                bytes[at] = random.next_u32() as u8;
            }
        }
        push::messages(&bytes);
    }
}
