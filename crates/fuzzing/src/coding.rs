//! Input for `outpour-coding`.

use outpour_coding::{Batch, Encoder, Packet, Progressive, Span, Worth};

/// A packet that is let through has one encoding.
pub(crate) fn packet(bytes: &[u8]) {
    let Ok(packet) = Packet::decode(bytes) else {
        return;
    };
    assert_eq!(packet.encoded_len(), bytes.len());
    let mut again = Vec::new();
    packet
        .encode(&mut again)
        .expect("it has 1 to 256 coefficients");
    assert_eq!(again, bytes);
}

/// A history of packets: a number of blocks, a length, then vectors with payloads that are right
/// for them. Span, batch and progressive decoder have to agree, and what they decode to be right.
pub(crate) fn state(bytes: &[u8]) {
    let [blocks, len, rest @ ..] = bytes else {
        return;
    };
    let (k, len) = (usize::from(*blocks) + 1, usize::from(*len));
    let data: Vec<u8> = (0..k * len)
        .map(|at| (at * at + 3 * at + k) as u8)
        .collect();
    let views: Vec<&[u8]> = (0..k).map(|block| &data[block * len..][..len]).collect();
    let source = Encoder::new(&views).expect("1 to 256 blocks of one length");
    let mut span = Span::new(k).expect("1 to 256 blocks");
    let mut batch = Batch::new(k, len).expect("1 to 256 blocks");
    let mut progressive = Progressive::new(k, len).expect("1 to 256 blocks");
    for chunk in rest.chunks(k) {
        if chunk.len() < k {
            assert!(span.insert(chunk).is_err() && span.is_innovative(chunk).is_err());
            assert!(batch.insert(chunk, vec![0; len]).is_err());
            assert!(progressive.insert(chunk, vec![0; len]).is_err());
            break;
        }
        let rank = span.rank();
        let mut payload = vec![0; len];
        source.encode(chunk, &mut payload).expect("sizes fit");
        let innovative = span.is_innovative(chunk).expect("sizes fit");
        let worth = span.insert(chunk).expect("sizes fit");
        assert_eq!(innovative, worth == Worth::Innovative);
        assert_eq!(span.rank(), rank + usize::from(innovative));
        assert_eq!(batch.insert(chunk, payload.clone()), Ok(worth));
        assert_eq!(progressive.insert(chunk, payload), Ok(worth));
    }
    assert_eq!((span.rank(), span.counts()), (batch.rank(), batch.counts()));
    assert_eq!(batch.counts(), progressive.counts());
    for (block, right) in views.iter().enumerate() {
        let mut found = vec![0; len];
        let decoded = batch.decode_some(1, [(block, &mut found[..])]).is_ok();
        assert_eq!(decoded, span.knows(block));
        assert!(!decoded || found == *right);
        assert_eq!(progressive.block(block), decoded.then_some(*right));
    }
    let weights: Vec<u8> = (0..batch.rank()).map(|at| (at * 7 + 1) as u8).collect();
    let (mut vector, mut payload, mut right) = (vec![0; k], vec![0; len], vec![0; len]);
    batch
        .recode(&weights, &mut vector, &mut payload)
        .expect("sizes fit");
    source.encode(&vector, &mut right).expect("sizes fit");
    assert_eq!(payload, right);
}
