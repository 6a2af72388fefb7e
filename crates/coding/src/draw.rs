//! Random coefficients.

use rand_core::RngCore;

/// Fills `coefficients` at random, but not with zeros only: such a packet would say nothing.
///
/// The same generator in the same state draws the same, on every processor.
///
/// ```
/// use rand_core::SeedableRng as _;
///
/// let mut dice = rand_pcg::Pcg64Mcg::seed_from_u64(7);
/// let mut coefficients = [0; 16];
/// outpour_coding::draw_coefficients(&mut dice, &mut coefficients);
/// assert_ne!(coefficients, [0; 16]);
/// ```
pub fn draw_coefficients(dice: &mut impl RngCore, coefficients: &mut [u8]) {
    dice.fill_bytes(coefficients);
    if coefficients.iter().all(|&coefficient| coefficient == 0)
        && let Some(first) = coefficients.first_mut()
    {
        *first = 1;
    }
}

#[cfg(test)]
mod tests {
    use rand_core::SeedableRng as _;
    use rand_pcg::Pcg64Mcg;

    use super::*;

    #[test]
    fn a_vector_is_never_zero_and_depends_on_the_seed_alone() {
        let (mut a, mut b) = (Pcg64Mcg::seed_from_u64(1), Pcg64Mcg::seed_from_u64(1));
        let mut ones = 0;
        for _ in 0..10_000 {
            let (mut x, mut y) = ([0], [0]);
            draw_coefficients(&mut a, &mut x);
            draw_coefficients(&mut b, &mut y);
            assert_eq!(x, y);
            assert_ne!(x, [0]);
            ones += usize::from(x == [1]);
        }
        assert!((20..200).contains(&ones), "{ones} of 10000");
        draw_coefficients(&mut a, &mut []);
    }
}
