//! The field GF(2^8): addition is exclusive or, multiplication is that of polynomials modulo
//! [`POLYNOMIAL`].
//!
//! Nothing here is fast; the [kernel](crate::kernel) multiplies long vectors and is tested against
//! this module. Everything is derived from the polynomial by the compiler.

/// `x^8 + x^4 + x^3 + x + 1`, the polynomial of the Rijndael field.
pub const POLYNOMIAL: u16 = 0x11b;

/// All products of one factor, in the two shapes in which processors look them up.
#[derive(Clone, Copy, Debug)]
#[repr(C, align(32))]
pub(crate) struct Factor {
    /// Products with `0x00..=0x0f`.
    pub(crate) low: [u8; 16],
    /// Products with `0x00, 0x10, .., 0xf0`.
    pub(crate) high: [u8; 16],
}

impl Factor {
    pub(crate) const ZERO: Self = Self {
        low: [0; 16],
        high: [0; 16],
    };

    /// The product of the factor and `value`.
    pub(crate) const fn times(&self, value: u8) -> u8 {
        self.low[(value & 15) as usize] ^ self.high[(value >> 4) as usize]
    }
}

/// By factor.
pub(crate) static FACTORS: [Factor; 256] = factors();

/// By factor: multiplication as an 8 x 8 matrix of bits, as `gf2p8affineqb` takes it.
#[cfg_attr(not(any(target_arch = "x86_64", test)), expect(dead_code))]
pub(crate) static MATRICES: [u64; 256] = matrices();

static INVERSES: [u8; 256] = inverses();

/// The product of two elements.
#[must_use]
pub fn mul(a: u8, b: u8) -> u8 {
    FACTORS[usize::from(a)].times(b)
}

/// The element whose product with `a` is 1; none for 0.
#[must_use]
pub fn inv(a: u8) -> Option<u8> {
    (a != 0).then(|| INVERSES[usize::from(a)])
}

/// Multiplication as it is defined: shift, add, reduce.
const fn product(a: u8, b: u8) -> u8 {
    let mut sum = 0u16;
    let mut bit = 0;
    while bit < 8 {
        if b >> bit & 1 == 1 {
            sum ^= (a as u16) << bit;
        }
        bit += 1;
    }
    let mut degree = 14;
    while degree >= 8 {
        if sum >> degree & 1 == 1 {
            sum ^= POLYNOMIAL << (degree - 8);
        }
        degree -= 1;
    }
    sum as u8
}

const fn factors() -> [Factor; 256] {
    let mut all = [Factor::ZERO; 256];
    let mut a = 0;
    while a < 256 {
        let mut nibble = 0;
        while nibble < 16 {
            all[a].low[nibble] = product(a as u8, nibble as u8);
            all[a].high[nibble] = product(a as u8, (nibble as u8) << 4);
            nibble += 1;
        }
        a += 1;
    }
    all
}

/// Bit `i` of a product is the parity of the input masked by byte `7 - i` of the matrix.
const fn matrices() -> [u64; 256] {
    let mut all = [0u64; 256];
    let mut a = 0;
    while a < 256 {
        let mut column = 0;
        while column < 8 {
            let image = product(a as u8, 1 << column);
            let mut row = 0;
            while row < 8 {
                if image >> row & 1 == 1 {
                    all[a] |= 1 << ((7 - row) * 8 + column);
                }
                row += 1;
            }
            column += 1;
        }
        a += 1;
    }
    all
}

const fn inverses() -> [u8; 256] {
    let mut all = [0u8; 256];
    let mut a = 1;
    while a < 256 {
        // a^254 is the inverse, since a^255 is 1.
        let mut power = 1;
        let mut count = 0;
        while count < 254 {
            power = product(power, a as u8);
            count += 1;
        }
        all[a] = power;
        a += 1;
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_field_is_the_one_that_was_published() {
        // FIPS 197, section 4.2.
        assert_eq!(mul(0x57, 0x83), 0xc1);
        assert_eq!(mul(0x57, 0x13), 0xfe);
        assert_eq!(inv(0x53), Some(0xca));
    }

    #[test]
    fn tables_agree_with_the_definition() {
        for a in 0..=255 {
            for b in 0..=255 {
                assert_eq!(mul(a, b), product(a, b), "{a} * {b}");
            }
        }
    }

    #[test]
    fn every_element_but_zero_has_an_inverse() {
        assert_eq!(inv(0), None);
        for a in 1..=255 {
            assert_eq!(inv(a).map(|inverse| mul(a, inverse)), Some(1), "{a}");
        }
    }

    #[test]
    fn multiplication_is_a_field_operation() {
        for a in 0..=255 {
            for b in (0..=255).step_by(7) {
                assert_eq!(mul(a, b), mul(b, a));
                for c in (0..=255).step_by(11) {
                    assert_eq!(mul(a, mul(b, c)), mul(mul(a, b), c));
                    assert_eq!(mul(a, b ^ c), mul(a, b) ^ mul(a, c));
                }
            }
        }
    }

    /// What the instruction `gf2p8affineqb` does to one byte, from its description.
    fn affine(matrix: u64, value: u8) -> u8 {
        (0..8).fold(0, |result, bit| {
            let row = (matrix >> ((7 - bit) * 8)) as u8;
            result | (((row & value).count_ones() as u8 & 1) << bit)
        })
    }

    #[test]
    fn matrices_multiply() {
        for a in 0..=255 {
            for b in 0..=255 {
                assert_eq!(affine(MATRICES[usize::from(a)], b), mul(a, b), "{a} * {b}");
            }
        }
    }
}
