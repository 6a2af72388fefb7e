//! What callers and strangers may hand in, and what they are told.

use outpour_coding::{BLOCKS_MAX, Batch, Counts, Encoder, Error, Matrix, Progressive, Span, Worth};

#[test]
fn batches_have_1_to_256_blocks() {
    for blocks in [0, 257, usize::MAX] {
        let refused = Error::Blocks { blocks };
        assert_eq!(Span::new(blocks).err(), Some(refused));
        assert_eq!(Batch::<Vec<u8>>::new(blocks, 10).err(), Some(refused));
        assert_eq!(Progressive::<Vec<u8>>::new(blocks, 10).err(), Some(refused));
    }
    for blocks in [1, BLOCKS_MAX] {
        assert!(Span::new(blocks).is_ok() && Batch::<Vec<u8>>::new(blocks, usize::MAX).is_ok());
    }
    let block: &[u8] = &[1];
    assert!(Encoder::new(&[]).is_err());
    assert!(Encoder::new(&[block; 257]).is_err());
    assert!(Encoder::new(&[block; 256]).is_ok());
    let message = Error::Blocks { blocks: 257 }.to_string();
    assert_eq!(message, "a batch of 257 blocks: expected 1 to 256");
}

#[test]
fn only_the_last_block_may_be_shorter() {
    assert!(Encoder::new(&[&[1, 2], &[3]]).is_ok());
    assert!(Encoder::new(&[&[1, 2], &[]]).is_ok());
    for blocks in [[&[1, 2][..], &[3], &[4, 5]], [&[1], &[2], &[3, 4]]] {
        assert!(matches!(
            Encoder::new(&blocks),
            Err(Error::BlockLength { .. })
        ));
    }
}

#[test]
fn vectors_and_payloads_have_the_right_length() {
    let blocks: [&[u8]; 2] = [&[1, 2, 3], &[4, 5, 6]];
    let encoder = Encoder::new(&blocks).unwrap();
    let vector = |found, expected| Err(Error::VectorLength { found, expected });
    let block = |found, expected| Err(Error::BlockLength { found, expected });
    assert_eq!(encoder.encode(&[1], &mut [0; 3]), vector(1, 2));
    assert_eq!(encoder.encode(&[1, 2, 3], &mut [0; 3]), vector(3, 2));
    assert_eq!(encoder.encode(&[1, 2], &mut [0; 4]), block(4, 3));
    let index = Err(Error::BlockIndex {
        block: 2,
        blocks: 2,
    });
    assert_eq!(encoder.systematic(2, &mut [0; 2], &mut [0; 3]), index);
    assert_eq!(
        encoder.systematic(1, &mut [0; 3], &mut [0; 3]),
        vector(3, 2)
    );
    assert_eq!(encoder.systematic(1, &mut [0; 2], &mut [0; 2]), block(2, 3));
    let matrix = Matrix::new(&[1, 2, 3, 4], 2).unwrap();
    let buffers = Err(Error::Buffers {
        found: 1,
        expected: 2,
    });
    assert_eq!(encoder.encode_several(matrix, &mut [&mut [0; 3]]), buffers);

    let mut batch = Batch::new(2, 3).unwrap();
    assert_eq!(batch.insert(&[1], vec![0; 3]).map(drop), vector(1, 2));
    assert_eq!(batch.insert(&[1, 2], vec![0; 2]).map(drop), block(2, 3));
    assert_eq!(batch.is_innovative(&[]).map(drop), vector(0, 2));
    assert_eq!(batch.counts(), Counts::default());
    batch.insert(&[1, 2], vec![0; 3]).unwrap();
    assert_eq!(
        batch.recode(&[1, 2], &mut [0; 2], &mut [0; 3]),
        vector(2, 1)
    );
    assert_eq!(batch.recode(&[1], &mut [0; 1], &mut [0; 3]), vector(1, 2));
    assert_eq!(batch.recode(&[1], &mut [0; 2], &mut [0; 4]), block(4, 3));

    let mut progressive = Progressive::new(2, 3).unwrap();
    assert_eq!(
        progressive.insert(&[1; 3], vec![0; 3]).map(drop),
        vector(3, 2)
    );
    assert_eq!(
        progressive.insert(&[1; 2], vec![0; 4]).map(drop),
        block(4, 3)
    );

    let mut span = Span::new(2).unwrap();
    assert_eq!(span.insert(&[1]).map(drop), vector(1, 2));
    assert_eq!(span.combine(&[1], &mut [0; 2]), vector(1, 0));
    assert_eq!(span.combine(&[], &mut [0; 3]), vector(3, 2));
    let other = Span::full(3).unwrap();
    assert_eq!(span.offers(&other).map(drop), vector(2, 3));
    assert_eq!(other.offers(&span).map(drop), vector(3, 2));
    assert!(Span::from_rows(3, [&[1, 2][..]]).is_err());
}

#[test]
fn nothing_is_decoded_too_early_or_beside_its_buffers() {
    let mut batch = Batch::new(2, 3).unwrap();
    batch.insert(&[1, 1], vec![5; 3]).unwrap();
    let (mut a, mut b) = ([0; 3], [0; 3]);
    let rank = Err(Error::Rank { missing: 1 });
    assert_eq!(batch.decode_into(&mut [&mut a, &mut b]), rank);
    assert_eq!(batch.decode_some(1, [(0, &mut a[..])]), rank);
    batch.insert(&[1, 2], vec![7; 3]).unwrap();
    let buffers = Err(Error::Buffers {
        found: 1,
        expected: 2,
    });
    assert_eq!(batch.decode_into(&mut [&mut a]), buffers);
    let block = Err(Error::BlockLength {
        found: 4,
        expected: 3,
    });
    assert_eq!(batch.decode_into(&mut [&mut a, &mut [0; 4]]), block);
    let index = Err(Error::BlockIndex {
        block: 2,
        blocks: 2,
    });
    assert_eq!(batch.decode_some(1, [(2, &mut a[..])]), index);
    assert_eq!(a, [0; 3], "a refusal changes nothing");
    assert_eq!(
        Progressive::<Vec<u8>>::new(2, 3).unwrap().into_blocks(),
        Err(Error::Rank { missing: 2 })
    );
}

/// However many packets come, a batch keeps one for each block and counts the rest.
#[test]
fn useless_packets_are_counted_and_not_kept() {
    let mut batch = Batch::new(3, 4).unwrap();
    let mut span = Span::new(3).unwrap();
    let mut progressive = Progressive::new(3, 4).unwrap();
    let mut insert = |vector: &[u8; 3]| {
        let worth = batch.insert(vector, vec![0; 4]).unwrap();
        assert_eq!(span.insert(vector), Ok(worth));
        assert_eq!(progressive.insert(vector, vec![0; 4]), Ok(worth));
        worth
    };
    assert_eq!(insert(&[0, 0, 0]), Worth::Zero);
    assert_eq!(insert(&[0, 2, 0]), Worth::Innovative);
    // Sparse vectors, where elimination on the diagonal alone goes wrong.
    assert_eq!(insert(&[0, 1, 0]), Worth::Dependent);
    assert_eq!(insert(&[0, 2, 0]), Worth::Dependent);
    assert_eq!(insert(&[1, 2, 3]), Worth::Innovative);
    assert_eq!(insert(&[1, 0, 3]), Worth::Dependent);
    assert_eq!(insert(&[0, 0, 9]), Worth::Innovative);
    for _ in 0..1000 {
        assert_eq!(insert(&[1, 2, 4]), Worth::Dependent);
        assert_eq!(insert(&[0, 0, 0]), Worth::Zero);
    }
    let counts = Counts {
        innovative: 3,
        dependent: 1003,
        zero: 1001,
    };
    assert_eq!(
        (batch.counts(), span.counts(), progressive.counts()),
        (counts, counts, counts)
    );
    assert_eq!((batch.packets().len(), span.rows().len()), (3, 3));
    assert_eq!(batch.is_innovative(&[1, 2, 4]), Ok(false));
}
