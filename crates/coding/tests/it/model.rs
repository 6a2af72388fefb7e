//! Random histories, beside elimination as textbooks have it.

use outpour_coding::{Batch, Progressive, Span, Worth, gf256};
use proptest::prelude::*;

/// Vectors in echelon form, one element after the other.
#[derive(Default)]
struct Textbook {
    rows: Vec<Vec<u8>>,
}

impl Textbook {
    fn insert(&mut self, vector: &[u8]) -> bool {
        let mut vector = vector.to_vec();
        for row in &self.rows {
            let lead = row.iter().position(|&c| c != 0).unwrap();
            let factor = gf256::mul(vector[lead], gf256::inv(row[lead]).unwrap());
            for (a, &b) in vector.iter_mut().zip(row) {
                *a ^= gf256::mul(b, factor);
            }
        }
        let new = vector.iter().any(|&c| c != 0);
        if new {
            self.rows.push(vector);
        }
        new
    }
}

/// Vectors of few values, so that ranks of all sizes and zero vectors come up.
fn vectors() -> impl Strategy<Value = (usize, Vec<Vec<u8>>)> {
    (1usize..12).prop_flat_map(|k| {
        let coefficient = prop_oneof![4 => Just(0u8), 2 => Just(1u8), 1 => any::<u8>()];
        let vector = prop::collection::vec(coefficient, k);
        (Just(k), prop::collection::vec(vector, 0..30))
    })
}

proptest! {
    #[test]
    fn ranks_and_verdicts_are_those_of_elimination((k, vectors) in vectors()) {
        let mut textbook = Textbook::default();
        let mut span = Span::new(k).unwrap();
        let mut batch = Batch::new(k, k).unwrap();
        let mut progressive = Progressive::new(k, k).unwrap();
        for vector in &vectors {
            let innovative = span.is_innovative(vector).unwrap();
            prop_assert_eq!(batch.is_innovative(vector).unwrap(), innovative);
            let expected = if textbook.insert(vector) {
                Worth::Innovative
            } else if vector.iter().all(|&c| c == 0) {
                Worth::Zero
            } else {
                Worth::Dependent
            };
            prop_assert_eq!(innovative, expected == Worth::Innovative);
            prop_assert_eq!(span.insert(vector).unwrap(), expected);
            // With unit vectors for blocks a packet's payload is its vector.
            prop_assert_eq!(batch.insert(vector, vector.clone()).unwrap(), expected);
            prop_assert_eq!(progressive.insert(vector, vector.clone()).unwrap(), expected);
            prop_assert_eq!(span.rank(), textbook.rows.len());
            prop_assert!(!span.is_innovative(vector).unwrap());

            for block in 0..k {
                let mut unit = vec![0; k];
                unit[block] = 1;
                // A block is known exactly if it is a combination of what came.
                let known = !span.is_innovative(&unit).unwrap();
                prop_assert_eq!(span.knows(block), known);
                prop_assert_eq!(batch.knows(block), known);
                prop_assert_eq!(progressive.block(block), known.then_some(&unit[..]));
                let mut found = vec![0; k];
                let decoded = batch.decode_some(1, [(block, &mut found[..])]);
                prop_assert_eq!(decoded.is_ok(), known);
                if known {
                    prop_assert_eq!(found, unit);
                }
            }
        }
        // A span is what its rows span, and offers nothing to itself.
        let copy = Span::from_rows(k, span.rows()).unwrap();
        prop_assert_eq!(copy.rank(), span.rank());
        prop_assert!(!copy.offers(&span).unwrap() && !span.offers(&copy).unwrap());
        let full = Span::full(k).unwrap();
        prop_assert_eq!(full.offers(&span).unwrap(), !span.is_full());
        prop_assert!(!span.offers(&full).unwrap());
    }

    #[test]
    fn what_is_recoded_is_in_the_span((k, vectors) in vectors(), seed: u64) {
        let mut span = Span::new(k).unwrap();
        for vector in &vectors {
            span.insert(vector).unwrap();
        }
        let weights = crate::bytes(seed, span.rank());
        let mut recoded = vec![0; k];
        span.combine(&weights, &mut recoded).unwrap();
        prop_assert!(!span.is_innovative(&recoded).unwrap());
        let mut expected = vec![0; k];
        for (row, &weight) in span.rows().zip(&weights) {
            for (a, &b) in expected.iter_mut().zip(row) {
                *a ^= gf256::mul(b, weight);
            }
        }
        prop_assert_eq!(recoded, expected);
    }
}
