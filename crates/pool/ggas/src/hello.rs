//! The bytes of a handshake between two members: what each says about itself, and its verdict.

use crate::bytes::ByteReader;
use crate::error::Refusal;
use crate::layout::VERSION;

/// Start of every hello.
const MAGIC: [u8; 8] = *b"GGASHELO";
/// Start of every verdict.
const MAGIC_VERDICT: [u8; 8] = *b"GGASSAID";

/// Size of a hello in bytes.
pub const HELLO_BYTES: usize = 80;
/// Size of a verdict in bytes.
pub const VERDICT_BYTES: usize = 16;

/// Flag of [`Hello`]: the sender's memory accompanies it.
const FLAG_MEMORY: u32 = 1;
/// Flag of [`Hello`]: UCX can carry the sender's bytes.
const FLAG_UCX: u32 = 2;

/// What a member says about itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hello {
    pub from: u32,
    pub to: u32,
    /// Whether the memory of its parts accompanies the hello.
    pub memory: bool,
    /// Whether UCX can carry its bytes. Builds without UCX know the flag, but do not use it.
    pub ucx: bool,
    /// Digest of its plan.
    pub plan: [u8; 32],
    /// Boot id of its host.
    pub boot: [u8; 16],
}

impl Hello {
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

    /// Decodes bytes that a peer sent.
    ///
    /// # Errors
    /// Fails if the bytes are no hello of this version.
    pub fn decode(bytes: &[u8; HELLO_BYTES]) -> Result<Self, Refusal> {
        let mut rest = ByteReader(bytes);
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

/// Encodes a verdict; `None` means acceptance.
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

/// Decodes a verdict that a peer sent.
///
/// # Errors
/// The peer's refusal, or [`Refusal::NotGgas`] if the bytes are no verdict.
pub fn decode_verdict(bytes: &[u8; VERDICT_BYTES]) -> Result<(), Refusal> {
    let mut rest = ByteReader(bytes);
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
