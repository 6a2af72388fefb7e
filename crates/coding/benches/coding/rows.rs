//! What is compared with what.

use std::hint::black_box;

use outpour_coding::{Batch, Encoder, Kernel, Matrix, Progressive, Span};
use rand_core::RngCore as _;
use reed_solomon_simd::{ReedSolomonDecoder, ReedSolomonEncoder};
use rlnc::full::{Decoder as TheirDecoder, Encoder as TheirEncoder};

use crate::data::{Data, dice, rows};
use crate::{Clock, Pair};

const MIB: usize = 1 << 20;
/// The shapes that count: blocks, and bytes of each.
const SHAPES: [(usize, usize); 3] = [(16, 2 * MIB), (32, MIB), (128, 64 << 10)];

/// Prepares each comparison that is wanted, by its name, and hands it over to be measured.
pub(crate) fn all(
    kernel: Kernel,
    wanted: &dyn Fn(&str) -> bool,
    measure: &mut dyn FnMut(Pair<'_>),
) {
    let large = (32, MIB);
    if wanted("encode-one") {
        encode_one(kernel, large, Some(1.8), measure);
    }
    if wanted("encode-read") {
        encode_read(kernel, large, measure);
    }
    for (shape, required) in SHAPES.into_iter().zip([2.5, 2.8, 1.4]) {
        if wanted("encode-four") {
            encode_four(kernel, shape, required, measure);
        }
    }
    for (shape, required) in SHAPES.into_iter().zip([5.0, 3.5, 1.6]) {
        if wanted("decode") {
            decode_batch(kernel, shape, required, measure);
        }
    }
    for shape in SHAPES {
        if wanted("decode-progressive") {
            decode_progressive(kernel, shape, measure);
        }
    }
    for shape in SHAPES {
        if wanted("decode-quarter") {
            decode_quarter(kernel, shape, measure);
        }
    }
    if wanted("threads") {
        threads(kernel, large, measure);
    }
    for shape in [large, (128, 64 << 10)] {
        if wanted("reed-solomon") {
            reed_solomon(kernel, shape, measure);
        }
    }
    if wanted("kernels") {
        instructions(kernel, large, measure);
    }
    if wanted("vectors") {
        vectors(measure);
    }
}

fn shown((k, len): (usize, usize)) -> String {
    match len {
        MIB.. => format!("{k} x {} MiB", len / MIB),
        _ => format!("{k} x {} KiB", len >> 10),
    }
}

fn encode_one(
    kernel: Kernel,
    shape: (usize, usize),
    required: Option<f64>,
    measure: &mut dyn FnMut(Pair<'_>),
) {
    let mut data = Data::new(shape.0, shape.1);
    let theirs = their_encoder(&data);
    let mut packet = vec![0; theirs.get_full_coded_piece_byte_len()];
    let (blocks, mut results) = data.split();
    let encoder = ours(&blocks, kernel);
    let coefficients = rows(shape.0, 1);
    measure(Pair {
        name: "encode-one",
        what: format!("encode, one packet at a time, {}", shown(shape)),
        bytes: shape.0 * shape.1,
        baseline: "rlnc",
        required,
        clock: Clock::Thread,
        theirs: Box::new(move || {
            theirs
                .code_with_buf(&mut dice(), &mut packet)
                .expect("sizes fit");
        }),
        ours: Box::new(move || {
            encoder
                .encode(&coefficients, results[0])
                .expect("sizes fit");
        }),
    });
}

/// How near encoding is to what no code can pass: the blocks have to be read once.
fn encode_read(kernel: Kernel, shape: (usize, usize), measure: &mut dyn FnMut(Pair<'_>)) {
    let mut data = Data::new(shape.0, shape.1);
    let (blocks, mut results) = data.split();
    let encoder = ours(&blocks, kernel);
    let coefficients = rows(shape.0, 1);
    measure(Pair {
        name: "encode-read",
        what: format!("encode, one packet at a time, {}", shown(shape)),
        bytes: shape.0 * shape.1,
        baseline: "reading the blocks",
        required: None,
        clock: Clock::Thread,
        theirs: Box::new(|| read(&blocks)),
        ours: Box::new(move || {
            encoder
                .encode(&coefficients, results[0])
                .expect("sizes fit");
        }),
    });
}

fn read(blocks: &[&[u8]]) {
    for block in blocks {
        black_box(parity(block));
    }
}

/// The exclusive or of all words.
fn parity(block: &[u8]) -> [u8; 64] {
    let mut sum = [0; 64];
    for line in block.chunks_exact(64) {
        for (sum, byte) in sum.iter_mut().zip(line) {
            *sum ^= byte;
        }
    }
    sum
}

fn encode_four(
    kernel: Kernel,
    shape: (usize, usize),
    required: f64,
    measure: &mut dyn FnMut(Pair<'_>),
) {
    let mut data = Data::new(shape.0, shape.1);
    let theirs = their_encoder(&data);
    let mut packet = vec![0; theirs.get_full_coded_piece_byte_len()];
    let (blocks, mut results) = data.split();
    let encoder = ours(&blocks, kernel);
    let coefficients = rows(shape.0, 4);
    measure(Pair {
        name: "encode-four",
        what: format!("encode, four packets at a time, {}", shown(shape)),
        bytes: 4 * shape.0 * shape.1,
        baseline: "rlnc",
        required: Some(required),
        clock: Clock::Thread,
        theirs: Box::new(move || {
            for _ in 0..4 {
                theirs
                    .code_with_buf(&mut dice(), &mut packet)
                    .expect("sizes fit");
            }
        }),
        ours: Box::new(move || {
            let matrix = Matrix::new(&coefficients, shape.0).expect("whole rows");
            encoder
                .encode_several(matrix, &mut results[..4])
                .expect("sizes fit");
        }),
    });
}

/// Packets as `rlnc` makes them, which both sides decode.
fn packets(data: &Data) -> Vec<Vec<u8>> {
    let encoder = their_encoder(data);
    let mut dice = dice();
    (0..data.k + 8).map(|_| encoder.code(&mut dice)).collect()
}

fn their_decode(packets: &[Vec<u8>], k: usize, len: usize) {
    let mut decoder = TheirDecoder::new(len, k).expect("sizes fit");
    for packet in packets {
        if decoder.is_already_decoded() {
            break;
        }
        let _ = decoder.decode(packet);
    }
    black_box(decoder.get_decoded_data().expect("all packets are there"));
}

fn decode_batch(
    kernel: Kernel,
    shape: (usize, usize),
    required: f64,
    measure: &mut dyn FnMut(Pair<'_>),
) {
    let (k, len) = shape;
    let mut data = Data::new(k, len);
    let packets = packets(&data);
    let (blocks, mut results) = data.split();
    our_decode(kernel, 1, &packets, k, len, &mut results);
    assert!(
        results.iter().zip(&blocks).all(|(a, b)| a == b),
        "decoded wrongly"
    );
    measure(Pair {
        name: "decode",
        what: format!("decode at the end, {}", shown(shape)),
        bytes: k * len,
        baseline: "rlnc",
        required: Some(required),
        clock: Clock::Thread,
        theirs: Box::new(|| their_decode(&packets, k, len)),
        ours: Box::new(|| our_decode(kernel, 1, &packets, k, len, &mut results)),
    });
}

fn our_decode(
    kernel: Kernel,
    threads: usize,
    packets: &[Vec<u8>],
    k: usize,
    len: usize,
    results: &mut [&mut [u8]],
) {
    let mut batch = Batch::new(k, len).expect("sizes fit").with_kernel(kernel);
    for packet in packets {
        if batch.is_full() {
            break;
        }
        let (coefficients, payload) = packet.split_at(k);
        batch.insert(coefficients, payload).expect("sizes fit");
    }
    batch
        .decode_threaded(threads, results)
        .expect("all packets are there");
}

fn decode_progressive(kernel: Kernel, shape: (usize, usize), measure: &mut dyn FnMut(Pair<'_>)) {
    let (k, len) = shape;
    let data = Data::new(k, len);
    let packets = packets(&data);
    let mut buffers: Vec<Vec<u8>> = packets.iter().map(|packet| packet[k..].to_vec()).collect();
    measure(Pair {
        name: "decode-progressive",
        what: format!("decode on arrival, {}", shown(shape)),
        bytes: k * len,
        baseline: "rlnc",
        required: None,
        clock: Clock::Thread,
        theirs: Box::new(|| their_decode(&packets, k, len)),
        ours: Box::new(|| {
            let mut blocks = Progressive::new(k, len)
                .expect("sizes fit")
                .with_kernel(kernel);
            for (packet, buffer) in packets.iter().zip(&mut buffers) {
                if blocks.is_full() {
                    break;
                }
                let (coefficients, payload) = packet.split_at(k);
                buffer.copy_from_slice(payload);
                blocks
                    .insert(coefficients, &mut buffer[..])
                    .expect("sizes fit");
            }
            assert!(blocks.is_full());
        }),
    });
}

/// A quarter of the blocks did not arrive as themselves.
fn decode_quarter(kernel: Kernel, shape: (usize, usize), measure: &mut dyn FnMut(Pair<'_>)) {
    let (k, len) = shape;
    let mut data = Data::new(k, len);
    let packets = packets(&data);
    let copy = Data::new(k, len);
    let mixed: Vec<Vec<u8>> = copy
        .blocks()
        .into_iter()
        .enumerate()
        .map(|(block, payload)| {
            if block % 4 == 0 {
                return packets[block].clone();
            }
            let mut packet = vec![0; k];
            packet[block] = 1;
            packet.extend_from_slice(payload);
            packet
        })
        .chain(packets[k..].iter().cloned())
        .collect();
    let (_, mut results) = data.split();
    let mut more = vec![0; k * len];
    let mut others: Vec<&mut [u8]> = more.chunks_mut(len).collect();
    measure(Pair {
        name: "decode-quarter",
        what: format!(
            "decode with a quarter of the blocks missing, {}",
            shown(shape)
        ),
        bytes: k * len,
        baseline: "all missing",
        required: None,
        clock: Clock::Thread,
        theirs: Box::new(|| our_decode(kernel, 1, &packets, k, len, &mut others)),
        ours: Box::new(|| our_decode(kernel, 1, &mixed, k, len, &mut results)),
    });
}

fn threads(kernel: Kernel, shape: (usize, usize), measure: &mut dyn FnMut(Pair<'_>)) {
    let (k, len) = shape;
    let data = Data::new(k, len);
    let packets = packets(&data);
    let blocks = data.blocks();
    let (mut one, mut two) = (vec![0; k * len], vec![0; k * len]);
    measure(Pair {
        name: "threads",
        what: format!("read the blocks by two threads, {}", shown(shape)),
        bytes: k * len,
        baseline: "one thread",
        required: None,
        clock: Clock::Wall,
        theirs: Box::new(|| read(&blocks)),
        ours: Box::new(|| {
            let (first, second) = blocks.split_at(k / 2);
            std::thread::scope(|scope| {
                scope.spawn(|| read(first));
                read(second);
            });
        }),
    });
    for (count, in_words) in [(4, "four packets"), (16, "sixteen packets")] {
        let coefficients = rows(k, count);
        let matrix = Matrix::new(&coefficients, k).expect("whole rows");
        let encoder = ours(&blocks, kernel);
        let mut one: Vec<&mut [u8]> = one.chunks_mut(len).take(count).collect();
        let mut two: Vec<&mut [u8]> = two.chunks_mut(len).take(count).collect();
        measure(Pair {
            name: "threads",
            what: format!("encode by two threads, {in_words}, {}", shown(shape)),
            bytes: count * k * len,
            baseline: "one thread",
            required: Some(1.8),
            clock: Clock::Wall,
            theirs: Box::new(|| {
                encoder
                    .encode_threaded(1, matrix, &mut one)
                    .expect("sizes fit");
            }),
            ours: Box::new(|| {
                encoder
                    .encode_threaded(2, matrix, &mut two)
                    .expect("sizes fit");
            }),
        });
    }
    let mut one: Vec<&mut [u8]> = one.chunks_mut(len).collect();
    let mut two: Vec<&mut [u8]> = two.chunks_mut(len).collect();
    measure(Pair {
        name: "threads",
        what: format!("decode by two threads, {}", shown(shape)),
        bytes: k * len,
        baseline: "one thread",
        required: Some(1.8),
        clock: Clock::Wall,
        theirs: Box::new(|| our_decode(kernel, 1, &packets, k, len, &mut one)),
        ours: Box::new(|| our_decode(kernel, 2, &packets, k, len, &mut two)),
    });
}

/// As many packets as blocks, and blocks of packets only: what both codes can do.
fn reed_solomon(kernel: Kernel, shape: (usize, usize), measure: &mut dyn FnMut(Pair<'_>)) {
    let (k, len) = shape;
    let mut data = Data::new(k, len);
    let packets = packets(&data);
    let mut encoder = ReedSolomonEncoder::new(k, k, len).expect("sizes fit");
    let blocks = data.blocks();
    let mut parity: Vec<Vec<u8>> = Vec::new();
    for block in &blocks {
        encoder.add_original_shard(block).expect("sizes fit");
    }
    let encoded = encoder.encode().expect("all blocks are there");
    parity.extend(encoded.recovery_iter().map(<[u8]>::to_vec));
    drop(encoded);
    let mut decoder = ReedSolomonDecoder::new(k, k, len).expect("sizes fit");
    let (blocks, mut results) = data.split();
    let coefficients = rows(k, k);
    let matrix = Matrix::new(&coefficients, k).expect("whole rows");
    measure(Pair {
        name: "reed-solomon",
        what: format!("encode as many packets as blocks, {}", shown(shape)),
        bytes: k * len,
        baseline: "reed-solomon-simd",
        required: None,
        clock: Clock::Thread,
        theirs: Box::new(|| {
            for block in &blocks {
                encoder.add_original_shard(block).expect("sizes fit");
            }
            let encoded = encoder.encode().expect("all blocks are there");
            black_box(encoded.recovery_iter().count());
        }),
        ours: Box::new(|| {
            let encoder = ours(&blocks, kernel);
            encoder
                .encode_several(matrix, &mut results)
                .expect("sizes fit");
        }),
    });
    measure(Pair {
        name: "reed-solomon",
        what: format!("decode with all blocks missing, {}", shown(shape)),
        bytes: k * len,
        baseline: "reed-solomon-simd",
        required: None,
        clock: Clock::Thread,
        theirs: Box::new(|| {
            for (at, shard) in parity.iter().enumerate() {
                decoder.add_recovery_shard(at, shard).expect("sizes fit");
            }
            let decoded = decoder.decode().expect("enough is there");
            black_box(decoded.restored_original_iter().count());
        }),
        ours: Box::new(|| our_decode(kernel, 1, &packets, k, len, &mut results)),
    });
}

/// The kernels beside each other.
fn instructions(kernel: Kernel, shape: (usize, usize), measure: &mut dyn FnMut(Pair<'_>)) {
    for slower in Kernel::available()
        .into_iter()
        .filter(|&slower| slower != kernel)
    {
        let mut data = Data::new(shape.0, shape.1);
        let (blocks, mut results) = data.split();
        let (mut ones, mut twos) = (Vec::new(), Vec::new());
        for (at, result) in results.iter_mut().take(8).enumerate() {
            if at < 4 { &mut ones } else { &mut twos }.push(&mut **result);
        }
        let coefficients = rows(shape.0, 4);
        let matrix = Matrix::new(&coefficients, shape.0).expect("whole rows");
        measure(Pair {
            name: "kernels",
            what: format!("four packets, {}, {}", shown(shape), kernel.name()),
            bytes: 4 * shape.0 * shape.1,
            baseline: slower.name(),
            required: None,
            clock: Clock::Thread,
            theirs: Box::new(|| slower.multiply(&mut ones, &blocks, matrix)),
            ours: Box::new(|| kernel.multiply(&mut twos, &blocks, matrix)),
        });
    }
}

/// What a simulated node does for each packet, beside what a copy of its vectors would take.
fn vectors(measure: &mut dyn FnMut(Pair<'_>)) {
    const K: usize = 200;
    let all = rows(K, K);
    let mut copy = vec![0; K * K];
    let mut weights = vec![0; K];
    dice().fill_bytes(&mut weights);
    measure(Pair {
        name: "vectors",
        what: format!("{K} vectors of {K} coefficients inserted, and as many recoded"),
        bytes: K * K,
        baseline: "copying each row once a vector",
        required: None,
        clock: Clock::Thread,
        theirs: Box::new(|| {
            for _ in 0..2 * K {
                copy.copy_from_slice(black_box(&all));
            }
        }),
        ours: Box::new(|| {
            let mut span = Span::new(K).expect("few enough");
            let mut packet = [0; K];
            for row in all.chunks(K) {
                span.insert(row).expect("sizes fit");
                span.combine(&weights[..span.rank()], &mut packet)
                    .expect("sizes fit");
            }
            black_box(packet);
        }),
    });
}

fn their_encoder(data: &Data) -> TheirEncoder {
    TheirEncoder::new(data.for_rlnc(), data.k).expect("sizes fit")
}

fn ours<'a>(blocks: &'a [&'a [u8]], kernel: Kernel) -> Encoder<'a> {
    Encoder::new(blocks).expect("sizes fit").with_kernel(kernel)
}
