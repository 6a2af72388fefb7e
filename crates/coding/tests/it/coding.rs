//! Batches from end to end.

use outpour_coding::{Batch, Encoder, Kernel, Matrix, Progressive, Span, Worth, draw_coefficients};
use rand_core::RngCore as _;

use crate::{bytes, dice};

/// Blocks of `len` bytes, the last one shorter by `short`.
fn blocks(data: &[u8], len: usize) -> Vec<&[u8]> {
    data.chunks(len).collect()
}

fn decoded(batch: &Batch<Vec<u8>>, threads: usize, lens: &[usize]) -> Vec<Vec<u8>> {
    let mut outputs: Vec<Vec<u8>> = lens.iter().map(|&len| vec![0xee; len]).collect();
    let mut views: Vec<&mut [u8]> = outputs.iter_mut().map(|output| &mut output[..]).collect();
    batch.decode_threaded(threads, &mut views).unwrap();
    outputs
}

/// Every number of blocks, with a last block of any length, by every kernel.
#[test]
fn whatever_was_encoded_is_decoded() {
    for k in [1, 2, 3, 5, 17, 64, 255, 256] {
        for (len, last) in [(1, 1), (64, 64), (100, 37), (193, 0), (2000, 1999)] {
            let last = last.max(usize::from(k == 1));
            let data = bytes(k as u64, (k - 1) * len + last);
            let mut views = blocks(&data, len);
            if last == 0 {
                views.push(&[]);
            }
            let lens: Vec<usize> = views.iter().map(|view| view.len()).collect();
            let encoder = Encoder::new(&views).unwrap();
            for kernel in Kernel::available() {
                if kernel == Kernel::portable() && k * len > 40_000 {
                    continue;
                }
                let encoder = encoder.with_kernel(kernel);
                let block_len = encoder.block_len();
                let mut batch = Batch::new(k, block_len).unwrap().with_kernel(kernel);
                let mut dice = dice(5);
                while !batch.is_full() {
                    let (mut vector, mut payload) = (vec![0; k], vec![0; block_len]);
                    draw_coefficients(&mut dice, &mut vector);
                    encoder.encode(&vector, &mut payload).unwrap();
                    batch.insert(&vector, payload).unwrap();
                }
                let found = decoded(&batch, 1, &lens);
                assert!(
                    found.iter().zip(&views).all(|(a, b)| a == b),
                    "{k} {len} {kernel:?}"
                );
                assert!(found == decoded(&batch, 2, &lens));
            }
        }
    }
}

#[test]
fn packets_made_together_are_those_made_alone() {
    let data = bytes(1, 40_000);
    let views = blocks(&data, 3001);
    let encoder = Encoder::new(&views).unwrap();
    let (k, len) = (encoder.blocks(), encoder.block_len());
    for count in 1..10 {
        let coefficients = bytes(count as u64, k * count);
        let matrix = Matrix::new(&coefficients, k).unwrap();
        let mut together = vec![0; count * len];
        let mut packets: Vec<&mut [u8]> = together.chunks_mut(len).collect();
        encoder.encode_several(matrix, &mut packets).unwrap();
        let mut threaded = vec![0; count * len];
        let mut packets: Vec<&mut [u8]> = threaded.chunks_mut(len).collect();
        encoder.encode_threaded(4, matrix, &mut packets).unwrap();
        assert!(together == threaded);
        for (row, packet) in together.chunks(len).enumerate() {
            let mut alone = vec![0; len];
            encoder.encode(matrix.row(row), &mut alone).unwrap();
            assert!(alone == packet);
        }
    }
}

/// A packet passes through nodes that never have everything.
#[test]
fn packets_recoded_over_many_hops_are_decoded() {
    const HOPS: usize = 6;
    let (k, len) = (24, 333);
    let data = bytes(2, k * len - 100);
    let views = blocks(&data, len);
    let source = Encoder::new(&views).unwrap();
    let mut dice = dice(6);
    let mut hops: Vec<_> = (0..HOPS).map(|_| Batch::new(k, len).unwrap()).collect();
    let mut receiver = Progressive::new(k, len).unwrap();
    let mut rounds = 0;
    while !receiver.is_full() {
        rounds += 1;
        assert!(rounds < 3 * k, "recoding loses what is new");
        let (mut vector, mut payload) = (vec![0; k], vec![0; len]);
        draw_coefficients(&mut dice, &mut vector);
        source.encode(&vector, &mut payload).unwrap();
        for hop in &mut hops {
            hop.insert(&vector, payload.clone()).unwrap();
            let mut weights = vec![0; hop.rank()];
            draw_coefficients(&mut dice, &mut weights);
            hop.recode(&weights, &mut vector, &mut payload).unwrap();
        }
        receiver.insert(&vector, payload.clone()).unwrap();
        // A node that decodes on arrival can pass packets on as well.
        let mut weights = vec![0; receiver.rank()];
        draw_coefficients(&mut dice, &mut weights);
        receiver
            .recode(&weights, &mut vector, &mut payload)
            .unwrap();
        let mut direct = vec![0; len];
        source.encode(&vector, &mut direct).unwrap();
        assert!(payload == direct);
    }
    let found = receiver.into_blocks().unwrap().concat();
    assert!(found[..data.len()] == data);
    assert!(found[data.len()..].iter().all(|&byte| byte == 0));
}

/// Systematic packets first, then coded ones for what was lost.
#[test]
fn blocks_that_arrived_as_themselves_are_known_at_once() {
    let (k, len) = (20, 128);
    let data = bytes(3, k * len);
    let views = blocks(&data, len);
    let source = Encoder::new(&views).unwrap();
    let lost = [0, 7, 19];
    let mut batch = Batch::new(k, len).unwrap();
    let mut progressive = Progressive::new(k, len).unwrap();
    let mut span = Span::new(k).unwrap();
    let (mut vector, mut payload) = (vec![0; k], vec![0; len]);
    for block in (0..k).filter(|block| !lost.contains(block)) {
        source.systematic(block, &mut vector, &mut payload).unwrap();
        assert_eq!(
            batch.insert(&vector, payload.clone()),
            Ok(Worth::Innovative)
        );
        progressive.insert(&vector, payload.clone()).unwrap();
        span.insert(&vector).unwrap();
        assert!(batch.knows(block) && span.knows(block));
        assert_eq!(progressive.block(block), Some(views[block]));
    }
    assert!(
        lost.iter()
            .all(|&block| !batch.knows(block) && !span.knows(block))
    );
    assert_eq!(batch.missing(), lost.len());

    // What is known can be written before the rest is.
    let mut early = vec![0; len];
    batch.decode_some(1, [(5, &mut early[..])]).unwrap();
    assert_eq!(early, views[5]);
    assert!(batch.decode_some(1, [(7, &mut early[..])]).is_err());

    let mut dice = dice(7);
    while !batch.is_full() {
        draw_coefficients(&mut dice, &mut vector);
        source.encode(&vector, &mut payload).unwrap();
        batch.insert(&vector, payload.clone()).unwrap();
    }
    let found = decoded(&batch, 1, &vec![len; k]);
    assert!(found.iter().zip(&views).all(|(a, b)| a == b));
}

/// The order of arrival decides nothing: a coded packet may come before the block itself.
#[test]
fn blocks_may_come_after_combinations_of_them() {
    let (k, len) = (6, 10);
    let data = bytes(4, k * len);
    let views = blocks(&data, len);
    let source = Encoder::new(&views).unwrap();
    let mut batch = Batch::new(k, len).unwrap();
    let (mut vector, mut payload) = (vec![0; k], vec![0; len]);
    for vector in [[1, 2, 3, 0, 0, 9], [0, 0, 1, 1, 1, 1], [5, 4, 3, 2, 1, 1]] {
        source.encode(&vector, &mut payload).unwrap();
        assert_eq!(
            batch.insert(&vector, payload.clone()),
            Ok(Worth::Innovative)
        );
    }
    for block in [5, 0, 3] {
        source.systematic(block, &mut vector, &mut payload).unwrap();
        assert_eq!(
            batch.insert(&vector, payload.clone()),
            Ok(Worth::Innovative)
        );
    }
    let found = decoded(&batch, 1, &[len; 6]);
    assert!(found.iter().zip(&views).all(|(a, b)| a == b));
}

/// Packets are kept as they came, so that each can be checked against the decoded blocks.
#[test]
fn a_wrong_packet_can_be_told_from_the_others() {
    let (k, len) = (8, 50);
    let data = bytes(5, k * len);
    let views = blocks(&data, len);
    let source = Encoder::new(&views).unwrap();
    let mut batch = Batch::new(k, len).unwrap();
    let mut dice = dice(8);
    while !batch.is_full() {
        let (mut vector, mut payload) = (vec![0; k], vec![0; len]);
        draw_coefficients(&mut dice, &mut vector);
        source.encode(&vector, &mut payload).unwrap();
        payload[9] ^= u8::from(batch.rank() == 3);
        batch.insert(&vector, payload).unwrap();
    }
    let found = decoded(&batch, 1, &[len; 8]);
    assert!(found.iter().zip(&views).any(|(a, b)| a != b));
    let wrong: Vec<usize> = batch
        .packets()
        .enumerate()
        .filter(|(_, (vector, payload))| {
            let mut right = vec![0; len];
            source.encode(vector, &mut right).unwrap();
            right != **payload
        })
        .map(|(at, _)| at)
        .collect();
    assert_eq!(wrong, [3]);
}

#[test]
fn several_packets_are_recoded_at_once() {
    let (k, len) = (9, 70);
    let data = bytes(6, k * len);
    let views = blocks(&data, len);
    let source = Encoder::new(&views).unwrap();
    let mut batch = Batch::new(k, len).unwrap();
    let mut dice = dice(9);
    for _ in 0..5 {
        let (mut vector, mut payload) = (vec![0; k], vec![0; len]);
        draw_coefficients(&mut dice, &mut vector);
        source.encode(&vector, &mut payload).unwrap();
        batch.insert(&vector, payload).unwrap();
    }
    let mut weights = vec![0; 4 * batch.rank()];
    dice.fill_bytes(&mut weights);
    let (mut vectors, mut payloads) = (vec![0; 4 * k], vec![0; 4 * len]);
    let matrix = Matrix::new(&weights, batch.rank()).unwrap();
    let mut vector_views: Vec<&mut [u8]> = vectors.chunks_mut(k).collect();
    let mut payload_views: Vec<&mut [u8]> = payloads.chunks_mut(len).collect();
    batch
        .recode_several(matrix, &mut vector_views, &mut payload_views)
        .unwrap();
    for (vector, payload) in vectors.chunks(k).zip(payloads.chunks(len)) {
        let mut right = vec![0; len];
        source.encode(vector, &mut right).unwrap();
        assert!(right == payload);
        assert_eq!(batch.is_innovative(vector), Ok(false));
    }
}
