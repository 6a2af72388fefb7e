//! Whether keys are in memory still that are not used any more.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;

use super::*;

/// How much is looked at at a time, with what overlaps, bytes.
const PIECE: usize = 1 << 16;

/// The half of a key that is looked for. Memory that was given back loses its first 16 bytes to the allocator.
type Half = [u8; 16];

/// A key of which the second half is this, turned so that it is nowhere as it is.
const TURNED: Half = *b"\x9b\x02\xc1\x57closed again";
const MASK: u8 = 0xa7;

/// Hands over a key, and leaves none behind on the heap.
fn secrets() -> ConnectionTrafficSecrets {
    let mut key = [0x11; 32];
    for (byte, turned) in key[16..].iter_mut().zip(TURNED) {
        *byte = turned ^ MASK;
    }
    ConnectionTrafficSecrets::Aes256Gcm {
        key: rustls::crypto::cipher::AeadKey::from(key),
        iv: rustls::crypto::cipher::Iv::new([3; 12]),
    }
}

struct Next;

impl Rekey for Next {
    fn next_tx(&mut self) -> Secrets {
        Ok(ConnectionTrafficSecrets::Aes256Gcm {
            key: rustls::crypto::cipher::AeadKey::from([5; 32]),
            iv: rustls::crypto::cipher::Iv::new([6; 12]),
        })
    }
    fn next_rx(&mut self) -> Secrets {
        self.next_tx()
    }
}

/// How often the key is in the memory of this process, except on this thread's stack, on which it was made.
fn found() -> usize {
    let mut piece = [0; PIECE];
    let here = (&raw const piece) as u64;
    let memory = File::open("/proc/self/mem").unwrap();
    let mut count = 0;
    for line in fs::read_to_string("/proc/self/maps").unwrap().lines() {
        let mut words = line.split(' ');
        let (from, to) = words.next().unwrap().split_once('-').unwrap();
        let [from, to] = [from, to].map(|number| u64::from_str_radix(number, 16).unwrap());
        if !words.next().unwrap().starts_with("rw") || (from..to).contains(&here) {
            continue;
        }
        let mut at = from;
        while at < to {
            let len = PIECE.min((to - at) as usize);
            // What another thread has unmapped meanwhile holds nothing.
            let read = memory.read_at(&mut piece[..len], at).unwrap_or(0);
            count += piece[..read].windows(16).filter(|half| is_it(half)).count();
            at += (PIECE - 15) as u64;
        }
    }
    count
}

fn is_it(half: &[u8]) -> bool {
    half.iter()
        .zip(TURNED)
        .all(|(byte, turned)| byte ^ MASK == turned)
}

#[test]
fn no_key_outlives_its_use() {
    let mut sealer = Box::new(Sealer::new(0, &secrets(), Keys::new(Next)).unwrap());
    let opener = Box::new(Opener::new(0, &secrets(), Keys::new(Next)).unwrap());
    assert!(found() >= 2, "it would be found");
    drop(opener);
    sealer.rekey_every(1);
    let mut out = Vec::new();
    sealer.seal(b"with the first", &mut out).unwrap();
    assert!(found() >= 1, "it would be found");
    sealer.seal(b"with the second", &mut out).unwrap();
    assert_eq!(found(), 0);
}
