//! Random numbers for the planner. The runner draws none.

/// A generator of 64-bit numbers (SplitMix64). A seed gives the same numbers on every machine.
#[derive(Clone, Debug)]
pub struct Random {
    state: u64,
}

impl Random {
    pub fn new(seed: u64) -> Self {
        let mut random = Self { state: seed ^ 0x6A09_E667_F3BC_C909 };
        // Without this, neighbouring seeds would give similar first numbers.
        random.number();
        random
    }

    pub fn number(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.state;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    /// Returns a 32-bit number other than zero.
    pub fn word(&mut self) -> u32 {
        (self.number() >> 32) as u32 | 1
    }

    /// Returns a number below `bound`, which must not be zero.
    pub fn below(&mut self, bound: usize) -> usize {
        usize::try_from(self.number() % bound as u64).unwrap_or(0)
    }

    /// Returns a number from `low` to `high`, both included.
    pub fn between(&mut self, low: usize, high: usize) -> usize {
        low + self.below(high - low + 1)
    }

    /// Returns `true` with a probability of `percent` per cent.
    pub fn chance(&mut self, percent: usize) -> bool {
        self.below(100) < percent
    }

    /// Returns a random element of `all`, or `None` if it is empty.
    pub fn pick<T: Clone>(&mut self, all: &[T]) -> Option<T> {
        if all.is_empty() { None } else { Some(all[self.below(all.len())].clone()) }
    }
}

/// Returns word `index` of the data that `seed` names. The kernels and the printed C files compute
/// the same function.
pub fn pattern(seed: u32, index: usize) -> u32 {
    // No object has so many words that their indices need more bits.
    let index = u32::try_from(index).unwrap_or(u32::MAX);
    let mut x = seed ^ index.wrapping_mul(0x9E37_79B9);
    x = (x ^ (x >> 16)).wrapping_mul(0x85EB_CA6B);
    x ^ (x >> 13)
}
