//! The crate `rlnc` codes over the same field: what one side makes, the other reads, byte for
//! byte. Dense vectors only; with sparse ones that crate counts ranks wrongly.

use outpour_coding::{Batch, Encoder, Progressive, draw_coefficients};
use rlnc::full::{Decoder, Encoder as TheirEncoder};

use crate::{bytes, dice};

/// The byte that marks the end of data there; zeros fill up the last piece after it.
const END: u8 = 0x81;

#[test]
fn packets_of_theirs_are_decoded() {
    for (k, len) in [(1, 64), (2, 1), (7, 1000), (32, 513), (200, 96), (256, 65)] {
        let data = bytes(k as u64, k * len - 1);
        let encoder = TheirEncoder::new(data.clone(), k).unwrap();
        assert_eq!(encoder.get_piece_byte_len(), len);
        let mut dice = dice(3);
        let mut batch = Batch::new(k, len).unwrap();
        let mut progressive = Progressive::new(k, len).unwrap();
        while !batch.is_full() {
            let packet = encoder.code(&mut dice);
            let (coefficients, payload) = packet.split_at(k);
            let one = batch.insert(coefficients, payload.to_vec()).unwrap();
            let other = progressive.insert(coefficients, payload.to_vec()).unwrap();
            assert_eq!(one, other);
        }
        let mut decoded = vec![0; k * len];
        let mut blocks: Vec<&mut [u8]> = decoded.chunks_mut(len).collect();
        batch.decode_into(&mut blocks).unwrap();
        assert!(decoded[..k * len - 1] == data && decoded[k * len - 1] == END);
        assert!(progressive.into_blocks().unwrap().concat() == decoded);
    }
}

#[test]
fn packets_of_ours_are_decoded() {
    for (k, len) in [(3, 50), (16, 1000), (100, 129)] {
        let mut data = bytes(k as u64, k * len - 1);
        data.push(END);
        let blocks: Vec<&[u8]> = data.chunks(len).collect();
        let encoder = Encoder::new(&blocks).unwrap();
        let mut theirs = Decoder::new(len, k).unwrap();
        let mut ours = Batch::new(k, len).unwrap();
        let mut dice = dice(4);
        while !theirs.is_already_decoded() {
            let mut packet = vec![0; k + len];
            let (coefficients, payload) = packet.split_at_mut(k);
            draw_coefficients(&mut dice, coefficients);
            encoder.encode(coefficients, payload).unwrap();
            ours.insert(coefficients, payload.to_vec()).unwrap();
            // Of dependent packets it makes errors.
            let _ = theirs.decode(&packet);
            assert_eq!(theirs.get_useful_piece_count(), ours.rank());
        }
        assert!(theirs.get_decoded_data().unwrap() == data[..k * len - 1]);
    }
}
