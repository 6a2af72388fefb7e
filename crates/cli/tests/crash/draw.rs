//! What is drawn by a seed.

/// xorshift: what is drawn can be drawn again.
pub(crate) struct Draw(u64);

impl Draw {
    /// For one round of a run.
    pub(crate) fn new(seed: u64, round: u64) -> Self {
        // Neighbouring rounds have nothing in common.
        let mut mixed = seed ^ round.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        let mut draw = Self((mixed ^ (mixed >> 31)) | 1);
        draw.below(2);
        draw
    }

    pub(crate) fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) as usize % bound
    }

    /// From 0 to 1.
    pub(crate) fn share(&mut self) -> f64 {
        self.below(1 << 20) as f64 / f64::from(1 << 20)
    }

    pub(crate) fn one<'a, T>(&mut self, of: &'a [T]) -> &'a T {
        &of[self.below(of.len())]
    }
}
