//! Fingerprints of states.

use std::hash::{Hash, Hasher};

/// Makes the 64-bit fingerprints of states: two of two million states share one with probability
/// 1e-7. Without optimisation, the hasher of the standard library takes half of the search's time.
pub(super) struct Fingerprint(u64);

impl Fingerprint {
    pub(super) fn of(state: &impl Hash) -> u64 {
        let mut fingerprint = Self(0x9e37_79b9_7f4a_7c15);
        state.hash(&mut fingerprint);
        fingerprint.0
    }

    /// Each bit of both numbers has an effect on the upper half of the product. What differs stays
    /// different under equal values, because both steps can be undone.
    fn mix(&mut self, value: u64) {
        let product = (self.0 ^ value).wrapping_mul(0xd6e8_feb8_6659_fd93);
        self.0 = product ^ (product >> 32);
    }
}

impl Hasher for Fingerprint {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for part in bytes.chunks(8) {
            let mut value = [0; 8];
            value[..part.len()].copy_from_slice(part);
            self.mix(u64::from_le_bytes(value));
        }
    }

    fn write_u8(&mut self, value: u8) {
        self.mix(u64::from(value));
    }

    fn write_u64(&mut self, value: u64) {
        self.mix(value);
    }

    fn write_usize(&mut self, value: usize) {
        self.mix(value as u64);
    }
}
