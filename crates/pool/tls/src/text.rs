//! Bytes as text.

/// Alphabet of base64 for keys in files and on command lines (RFC 4648, 5): no character has a
/// meaning to a shell or in a path.
const URL: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

/// Alphabet of base64 in PEM (RFC 4648, 4).
const PEM: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/// Alphabet of fingerprints: letters and digits that nobody mistakes for each other when they are
/// read aloud. `i`, `l`, `o` and `u` are missing.
const SPOKEN: &[u8; 32] = b"0123456789abcdefghjkmnpqrstvwxyz";

/// Returns base64 without padding, in the alphabet for URLs.
pub(crate) fn to_base64(bytes: &[u8]) -> String {
    base64(bytes, URL)
}

/// Returns base64 with padding, as PEM has it.
pub(crate) fn to_pem_base64(bytes: &[u8]) -> String {
    let mut text = base64(bytes, PEM);
    while !text.len().is_multiple_of(4) {
        text.push('=');
    }
    text
}

/// Reads base64 without padding, in the alphabet for URLs. Returns `None` if the text has another
/// character, or is not what [`to_base64`] makes of the bytes.
pub(crate) fn from_base64(text: &str) -> Option<Vec<u8>> {
    decode(text.as_bytes(), URL)
}

/// Reads base64 with padding.
pub(crate) fn from_pem_base64(text: &str) -> Option<Vec<u8>> {
    if !text.len().is_multiple_of(4) {
        return None;
    }
    let bare = text.strip_suffix("==").or_else(|| text.strip_suffix('=')).unwrap_or(text);
    decode(bare.as_bytes(), PEM)
}

/// Returns the first `count` groups of five bits, in groups of four characters.
pub(crate) fn spoken(bytes: &[u8], count: usize) -> String {
    let mut text = String::new();
    for at in 0..count {
        if at > 0 && at % 4 == 0 {
            text.push('-');
        }
        let bit = at * 5;
        let byte = |at: usize| u16::from(bytes.get(at).copied().unwrap_or(0));
        let pair = byte(bit / 8) << 8 | byte(bit / 8 + 1);
        let value = usize::from(pair >> (11 - bit % 8)) & 31;
        text.push(char::from(SPOKEN.get(value).copied().unwrap_or(b'?')));
    }
    text
}

fn base64(bytes: &[u8], alphabet: &[u8; 64]) -> String {
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for group in bytes.chunks(3) {
        let bits = group.iter().fold(0_usize, |bits, &byte| bits << 8 | usize::from(byte));
        let bits = bits << (8 * (3 - group.len()));
        for place in 0..=group.len() {
            let value = bits >> (18 - 6 * place) & 63;
            text.push(char::from(alphabet.get(value).copied().unwrap_or(b'?')));
        }
    }
    text
}

fn decode(text: &[u8], alphabet: &[u8; 64]) -> Option<Vec<u8>> {
    let mut bytes = Vec::with_capacity(text.len() / 4 * 3 + 2);
    for group in text.chunks(4) {
        let mut bits = 0_u32;
        for character in group {
            let value = alphabet.iter().position(|known| known == character)?;
            bits = bits << 6 | u32::try_from(value).ok()?;
        }
        let kept = match group.len() {
            4 => 3,
            3 => 2,
            2 => 1,
            _ => return None,
        };
        let bits = bits << (6 * (4 - group.len()));
        let [_, all @ ..] = bits.to_be_bytes();
        let (some, none) = all.split_at_checked(kept)?;
        // Two texts for one key would let a list have it twice.
        if none.iter().any(|&byte| byte != 0) {
            return None;
        }
        bytes.extend_from_slice(some);
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn known_texts() {
        assert_eq!(to_base64(b"any carnal pleas"), "YW55IGNhcm5hbCBwbGVhcw");
        assert_eq!(to_pem_base64(b"any carnal pleas"), "YW55IGNhcm5hbCBwbGVhcw==");
        assert_eq!(to_base64(&[0xfb, 0xff]), "-_8");
        assert_eq!(from_pem_base64("+/8=").unwrap(), [0xfb, 0xff]);
        assert_eq!(spoken(&[0xff, 0, 0, 0, 0x1f], 8), "zw00-000z");
    }

    #[test]
    fn what_is_not_canonical_is_refused() {
        for text in ["A", "AB", "-_9", "-_8=", "- 8", "AAAAA"] {
            assert_eq!(from_base64(text), None, "{text}");
        }
        assert_eq!(from_pem_base64("YW55IGNhcm5hbCBwbGVhcw"), None);
    }

    proptest! {
        #[test]
        fn bytes_survive_a_round_trip(bytes: Vec<u8>) {
            prop_assert_eq!(&from_base64(&to_base64(&bytes)).unwrap(), &bytes);
            prop_assert_eq!(&from_pem_base64(&to_pem_base64(&bytes)).unwrap(), &bytes);
        }

        #[test]
        fn a_text_is_read_in_one_form_only(text in "[A-Za-z0-9_-]{0,50}") {
            if let Some(bytes) = from_base64(&text) {
                prop_assert_eq!(to_base64(&bytes), text);
            }
        }
    }
}
