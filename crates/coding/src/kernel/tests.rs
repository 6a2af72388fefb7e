//! Every kernel computes the product, whatever its shape.

#![allow(clippy::unwrap_used)]

use proptest::prelude::*;
use rand_core::{RngCore as _, SeedableRng as _};
use rand_pcg::Pcg64Mcg;

use super::*;
use crate::gf256;

/// The product by its definition.
fn expected(outputs: &[Vec<u8>], sources: &[&[u8]], matrix: Matrix<'_>) -> Vec<Vec<u8>> {
    let mut all = outputs.to_vec();
    for (row, output) in all.iter_mut().enumerate() {
        for (column, byte) in output.iter_mut().enumerate() {
            for (source, &coefficient) in sources.iter().zip(matrix.row(row)) {
                let value = source.get(column).copied().unwrap_or_default();
                *byte ^= gf256::mul(value, coefficient);
            }
        }
    }
    all
}

/// Bytes that look random, always the same.
fn bytes(seed: u64, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    Pcg64Mcg::seed_from_u64(seed).fill_bytes(&mut bytes);
    bytes
}

fn check(kernel: Kernel, outputs: &[Vec<u8>], sources: &[&[u8]], matrix: Matrix<'_>) {
    let mut found = outputs.to_vec();
    let mut views: Vec<&mut [u8]> = found.iter_mut().map(|output| &mut output[..]).collect();
    kernel.multiply_accumulate(&mut views, sources, matrix);
    assert!(
        found == expected(outputs, sources, matrix),
        "{kernel:?} adds wrongly"
    );

    let zeros: Vec<Vec<u8>> = outputs.iter().map(|output| vec![0; output.len()]).collect();
    let expected = expected(&zeros, sources, matrix);
    let mut found = outputs.to_vec();
    let mut views: Vec<&mut [u8]> = found.iter_mut().map(|output| &mut output[..]).collect();
    kernel.multiply(&mut views, sources, matrix);
    assert!(found == expected, "{kernel:?} sets wrongly");

    let mut found = outputs.to_vec();
    let mut views: Vec<&mut [u8]> = found.iter_mut().map(|output| &mut output[..]).collect();
    kernel.multiply_threaded(3, &mut views, sources, matrix);
    assert!(found == expected, "{kernel:?} sets wrongly in threads");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 3 } else { 200 }))]

    /// Any shape, any lengths, any alignment.
    #[test]
    fn all_kernels_compute_the_product(
        source_lens in prop::collection::vec(0usize..400, 0..24),
        output_lens in prop::collection::vec(0usize..400, 0..11),
        even in prop::option::of(0usize..3000),
        skew in 0usize..64,
        sparse: bool,
        seed: u64,
    ) {
        let len = |len: usize| even.unwrap_or(len);
        let stores: Vec<_> = source_lens
            .iter()
            .enumerate()
            .map(|(at, &l)| bytes(seed ^ at as u64, len(l) + skew))
            .collect();
        let sources: Vec<&[u8]> = stores.iter().map(|store| &store[skew..]).collect();
        let outputs: Vec<_> = output_lens
            .iter()
            .enumerate()
            .map(|(at, &l)| bytes(seed ^ (at as u64) << 32, len(l)))
            .collect();
        let mut data = bytes(!seed, sources.len() * outputs.len());
        if sparse {
            data.iter_mut().skip(1).step_by(2).for_each(|c| *c = 0);
            data.iter_mut().step_by(6).for_each(|c| *c = 1);
        }
        let matrix = Matrix::strided(&data, outputs.len(), sources.len(), sources.len());
        for kernel in Kernel::available() {
            check(kernel, &outputs, &sources, matrix);
        }
    }
}

#[test]
fn large_products_are_right_in_every_kernel() {
    for (sources, outputs, len) in [
        (256, 256, 200),
        (300, 5, 130),
        (40, 7, 9000),
        (3, 4, 70_001),
    ] {
        let stores: Vec<_> = (0..sources).map(|at| bytes(at as u64, len)).collect();
        let views: Vec<&[u8]> = stores.iter().map(|store| &store[..]).collect();
        let data = bytes(7, sources * outputs);
        let outputs: Vec<_> = (0..outputs)
            .map(|at| bytes(at as u64 + 1000, len))
            .collect();
        for kernel in Kernel::available() {
            check(
                kernel,
                &outputs,
                &views,
                Matrix::new(&data, sources).unwrap(),
            );
        }
    }
}

/// The product as school teaches it: all of it first, then what is left after division by the polynomial.
fn polynomial(a: u8, b: u8) -> u8 {
    let bits = |byte: u8| (0..8).filter(move |bit| byte >> bit & 1 == 1);
    let mut product = 0_u16;
    for (i, j) in bits(a).flat_map(|i| bits(b).map(move |j| (i, j))) {
        product ^= 1 << (i + j);
    }
    for degree in (8..15).rev() {
        if product >> degree & 1 == 1 {
            product ^= 0x11b << (degree - 8);
        }
    }
    product as u8
}

/// All 65,536, alone and in the middle of others, so that whole vectors and what is left at their end come to each.
#[test]
fn every_product_of_two_bytes_is_right_in_every_kernel() {
    let all: Vec<u8> = (0..=255).collect();
    let matrix = Matrix::new(&all, 1).unwrap();
    for lead in [0, 1, 37, 64] {
        let source: Vec<u8> = (0..lead).chain(0..=255).collect();
        for kernel in Kernel::available() {
            let mut outputs = vec![vec![0xee; source.len()]; 256];
            let mut views: Vec<&mut [u8]> = outputs.iter_mut().map(|it| &mut it[..]).collect();
            kernel.multiply(&mut views, &[&source], matrix);
            for (a, output) in all.iter().zip(&outputs) {
                let right = source.iter().map(|b| polynomial(*a, *b));
                assert!(
                    output.iter().copied().eq(right),
                    "{kernel:?}: {a} after {lead}"
                );
            }
        }
    }
    for kernel in Kernel::available() {
        for (a, b) in all.iter().flat_map(|a| all.iter().map(move |b| (*a, *b))) {
            let mut output = [0xee];
            let matrix = Matrix::new(std::slice::from_ref(&a), 1).unwrap();
            kernel.multiply(&mut [&mut output], &[&[b]], matrix);
            assert_eq!(output, [polynomial(a, b)], "{kernel:?}: {a} * {b}");
        }
    }
}

#[test]
fn outputs_next_to_a_result_are_left_alone() {
    let source = bytes(1, 1000);
    for kernel in Kernel::available() {
        for len in [1, 63, 64, 65, 127, 128, 129, 999] {
            let mut room = vec![0xee; len + 128];
            let coefficient = Matrix::new(&[3], 1).unwrap();
            kernel.multiply(&mut [&mut room[64..64 + len]], &[&source], coefficient);
            assert!(
                room[..64]
                    .iter()
                    .chain(&room[64 + len..])
                    .all(|&byte| byte == 0xee)
            );
        }
    }
}

#[test]
fn a_matrix_has_whole_rows() {
    assert!(Matrix::new(&[0; 6], 4).is_err());
    assert!(Matrix::new(&[0; 6], 0).is_err());
    let matrix = Matrix::new(&[1, 2, 3, 4, 5, 6], 3).unwrap();
    assert_eq!((matrix.rows(), matrix.columns()), (2, 3));
    assert_eq!(matrix.row(1), [4, 5, 6]);
}

#[test]
fn the_best_kernel_is_among_those_available() {
    assert!(Kernel::available().contains(&Kernel::best()));
    assert_eq!(Kernel::available()[0], Kernel::portable());
}
