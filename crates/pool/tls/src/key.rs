//! Public keys of nodes and clients.

use std::fmt;
use std::str::FromStr;

use aws_lc_rs::digest::{SHA256, digest};

use crate::text::{from_base64, spoken, to_base64};

/// Number of bytes of an Ed25519 public key.
pub const PUBLIC_KEY_BYTES: usize = 32;

/// Text before the base64 of a key. It tells a public key from the pool's key, which is secret.
const PREFIX: &str = "ed25519:";

/// What stands before the key in a SubjectPublicKeyInfo (RFC 8410, 4): a sequence, the algorithm
/// 1.3.101.112, and a string of bits.
const SPKI_PREFIX: [u8; 12] = [0x30, 0x2a, 0x30, 5, 6, 3, 0x2b, 0x65, 0x70, 3, 0x21, 0];

/// Number of characters of a fingerprint without its hyphens. 20 characters are 100 bits, so that
/// nobody finds another key with the same fingerprint.
const FINGERPRINT_CHARACTERS: usize = 20;

/// Ed25519 public key of a node or client, which proves the private key in each handshake.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PublicKey([u8; PUBLIC_KEY_BYTES]);

impl PublicKey {
    pub const fn from_bytes(bytes: [u8; PUBLIC_KEY_BYTES]) -> Self {
        Self(bytes)
    }

    pub const fn as_bytes(&self) -> &[u8; PUBLIC_KEY_BYTES] {
        &self.0
    }

    /// Returns the key in the form in which TLS carries it (RFC 7250, 3).
    pub fn to_spki(&self) -> Vec<u8> {
        [&SPKI_PREFIX[..], &self.0].concat()
    }

    /// Reads a key in the form in which TLS carries it. Returns `None` if it is not Ed25519.
    pub fn from_spki(bytes: &[u8]) -> Option<Self> {
        bytes.strip_prefix(&SPKI_PREFIX)?.try_into().ok().map(Self)
    }

    /// Returns a short text for people, who compare it with the one that the other side shows.
    pub fn fingerprint(&self) -> String {
        spoken(digest(&SHA256, &self.0).as_ref(), FINGERPRINT_CHARACTERS)
    }
}

impl fmt::Display for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{PREFIX}{}", to_base64(&self.0))
    }
}

impl fmt::Debug for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Why a text is not a public key.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum KeyError {
    #[error("a public key begins with `{PREFIX}`")]
    Prefix,
    #[error("`{PREFIX}` must be followed by 43 letters, digits, `-` and `_`")]
    Digits,
}

impl FromStr for PublicKey {
    type Err = KeyError;

    fn from_str(text: &str) -> Result<Self, KeyError> {
        let digits = text.strip_prefix(PREFIX).ok_or(KeyError::Prefix)?;
        let bytes = from_base64(digits).ok_or(KeyError::Digits)?;
        bytes.try_into().map(Self).map_err(|_| KeyError::Digits)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_survives_its_text_and_its_form_in_tls() {
        let key = PublicKey::from_bytes(std::array::from_fn(|at| u8::try_from(at * 5).unwrap()));
        let text = key.to_string();
        assert_eq!(text, "ed25519:AAUKDxQZHiMoLTI3PEFGS1BVWl9kaW5zeH2Ch4yRlps");
        assert_eq!(text.parse(), Ok(key));
        assert_eq!(PublicKey::from_spki(&key.to_spki()), Some(key));
        assert_eq!(key.to_spki().len(), 44);
        assert_eq!(key.fingerprint().len(), 24);
        let other = PublicKey::from_bytes([1; 32]);
        assert_ne!(key.fingerprint(), other.fingerprint());
    }

    #[test]
    fn what_is_no_key_is_refused_with_a_reason() {
        let hexadecimal = "ab".repeat(32);
        assert_eq!(hexadecimal.parse::<PublicKey>(), Err(KeyError::Prefix));
        for digits in ["", "AAAA", &"A".repeat(42), &"A".repeat(44), &"B".repeat(43)] {
            let text = format!("{PREFIX}{digits}");
            assert_eq!(text.parse::<PublicKey>(), Err(KeyError::Digits), "{text}");
        }
        let mut spki = PublicKey::from_bytes([3; 32]).to_spki();
        spki[8] ^= 1;
        assert_eq!(PublicKey::from_spki(&spki), None);
        assert_eq!(PublicKey::from_spki(&spki[..43]), None);
    }
}
