//! A reader of numbers that a peer sent.

/// Bytes not yet read; zeros beyond the end.
pub(crate) struct ByteReader<'a>(pub(crate) &'a [u8]);

impl ByteReader<'_> {
    pub(crate) fn take<const N: usize>(&mut self) -> [u8; N] {
        let mut out = [0; N];
        for (to, from) in out.iter_mut().zip(self.0) {
            *to = *from;
        }
        self.0 = self.0.get(N..).unwrap_or_default();
        out
    }

    pub(crate) fn number(&mut self) -> u32 {
        u32::from_le_bytes(self.take())
    }

    pub(crate) fn long(&mut self) -> u64 {
        u64::from_le_bytes(self.take())
    }
}
