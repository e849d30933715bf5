//! The bytes of a handshake between two members: what each says of itself, and whether it takes the other.

use crate::error::Refusal;
use crate::layout::VERSION;

/// What a hello begins with.
const MAGIC: [u8; 8] = *b"GGASHELO";
/// What a verdict begins with.
const MAGIC_VERDICT: [u8; 8] = *b"GGASSAID";

/// Bytes of a hello.
pub const HELLO_BYTES: usize = 80;
/// Bytes of a verdict.
pub const VERDICT_BYTES: usize = 16;

/// A flag of [`Hello`]: the sender's memory comes beside it.
const FLAG_MEMORY: u32 = 1;
/// A flag of [`Hello`]: the sender can have its bytes carried by UCX.
const FLAG_UCX: u32 = 2;

/// What a member says of itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hello {
    /// Who says it.
    pub from: u32,
    /// To whom.
    pub to: u32,
    /// Whether the memory of its parts comes beside it.
    pub memory: bool,
    /// Whether its bytes can be carried by UCX. Known also to builds that can not, and then not asked for.
    pub ucx: bool,
    /// What it was told of the heap.
    pub plan: [u8; 32],
    /// The boot of its host.
    pub boot: [u8; 16],
}

impl Hello {
    /// As bytes.
    pub fn encode(&self) -> [u8; HELLO_BYTES] {
        let mut out = Vec::with_capacity(HELLO_BYTES);
        out.extend(MAGIC);
        out.extend(VERSION.to_le_bytes());
        out.extend(self.from.to_le_bytes());
        out.extend(self.to.to_le_bytes());
        let flag = |is_set, flag| if is_set { flag } else { 0 };
        out.extend((flag(self.memory, FLAG_MEMORY) | flag(self.ucx, FLAG_UCX)).to_le_bytes());
        out.extend(self.plan);
        out.extend(self.boot);
        out.resize(HELLO_BYTES, 0);
        let mut bytes = [0; HELLO_BYTES];
        bytes.copy_from_slice(&out);
        bytes
    }

    /// Of bytes that a peer sent.
    ///
    /// # Errors
    /// When they are none of this version.
    pub fn decode(bytes: &[u8; HELLO_BYTES]) -> Result<Self, Refusal> {
        let mut rest = Rest(bytes);
        if rest.take::<8>() != MAGIC {
            return Err(Refusal::NotGgas);
        }
        if rest.number() != VERSION {
            return Err(Refusal::Version);
        }
        let (from, to, flags) = (rest.number(), rest.number(), rest.number());
        if flags & !(FLAG_MEMORY | FLAG_UCX) != 0 {
            return Err(Refusal::NotGgas);
        }
        let (memory, ucx) = (flags & FLAG_MEMORY != 0, flags & FLAG_UCX != 0);
        Ok(Self { from, to, memory, ucx, plan: rest.take(), boot: rest.take() })
    }
}

/// A verdict as bytes.
pub fn encode_verdict(refusal: Option<Refusal>) -> [u8; VERDICT_BYTES] {
    let code: u32 = match refusal {
        None => 0,
        Some(Refusal::NotGgas) => 1,
        Some(Refusal::Version) => 2,
        Some(Refusal::Plan) => 3,
        Some(Refusal::Member) => 4,
        Some(Refusal::Memory) => 5,
        Some(Refusal::Unknown) => 6,
    };
    let mut bytes = [0; VERDICT_BYTES];
    bytes[..8].copy_from_slice(&MAGIC_VERDICT);
    bytes[8..12].copy_from_slice(&code.to_le_bytes());
    bytes
}

/// A verdict of bytes that a peer sent.
///
/// # Errors
/// The peer's, or that the bytes are no verdict.
pub fn decode_verdict(bytes: &[u8; VERDICT_BYTES]) -> Result<(), Refusal> {
    let mut rest = Rest(bytes);
    if rest.take::<8>() != MAGIC_VERDICT {
        return Err(Refusal::NotGgas);
    }
    Err(match rest.number() {
        0 => return Ok(()),
        1 => Refusal::NotGgas,
        2 => Refusal::Version,
        3 => Refusal::Plan,
        4 => Refusal::Member,
        5 => Refusal::Memory,
        _ => Refusal::Unknown,
    })
}

/// Bytes not yet read; zeros beyond the end.
pub(crate) struct Rest<'a>(pub(crate) &'a [u8]);

impl Rest<'_> {
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

#[cfg(test)]
mod tests {
    use super::*;

    const HELLO: Hello =
        Hello { from: 3, to: 9, memory: true, ucx: false, plan: [7; 32], boot: [5; 16] };

    #[test]
    fn a_hello_comes_back_as_it_was_said() {
        assert_eq!(Hello::decode(&HELLO.encode()), Ok(HELLO));
        let other = Hello { memory: false, ucx: true, ..HELLO };
        assert_eq!(Hello::decode(&other.encode()), Ok(other));
    }

    #[test]
    fn foreign_bytes_are_told_from_another_version() {
        let mut bytes = HELLO.encode();
        bytes[8] ^= 1;
        assert_eq!(Hello::decode(&bytes), Err(Refusal::Version));
        bytes[0] ^= 1;
        assert_eq!(Hello::decode(&bytes), Err(Refusal::NotGgas));
        let mut bytes = HELLO.encode();
        bytes[20] = 4;
        assert_eq!(Hello::decode(&bytes), Err(Refusal::NotGgas));
    }

    #[test]
    fn every_refusal_comes_back_as_it_was_said() {
        assert_eq!(decode_verdict(&encode_verdict(None)), Ok(()));
        for refusal in [
            Refusal::NotGgas,
            Refusal::Version,
            Refusal::Plan,
            Refusal::Member,
            Refusal::Memory,
            Refusal::Unknown,
        ] {
            assert_eq!(decode_verdict(&encode_verdict(Some(refusal))), Err(refusal));
        }
        assert_eq!(decode_verdict(&[0; VERDICT_BYTES]), Err(Refusal::NotGgas));
    }
}
