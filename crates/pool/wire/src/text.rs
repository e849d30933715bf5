//! Strings of programs that travel as text although they may be any bytes.
//!
//! OpenCL's options of a build are bytes: a folder's name may be Latin-1. The protocol has them as
//! text. So a byte that belongs to no character of UTF-8 travels as a character of its own, from
//! `FIRST` on, which Unicode leaves to private use. Such a character in the program's own text is
//! taken apart in the same way. So every string of bytes is one text, and comes back as it was.

/// The character for byte 0x80, the smallest one that is not ASCII.
const FIRST: u32 = 0xf780;
const BYTE: u32 = 0x80;
const COUNT: u32 = 0x80;

/// Returns the text for these bytes.
#[must_use]
pub fn of_bytes(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len());
    let stand_in = |byte: &u8| char::from_u32(u32::from(*byte) - BYTE + FIRST).unwrap_or_default();
    for chunk in bytes.utf8_chunks() {
        for letter in chunk.valid().chars() {
            if byte_of(letter).is_some() {
                let mut own = [0; 4];
                text.extend(letter.encode_utf8(&mut own).as_bytes().iter().map(stand_in));
            } else {
                text.push(letter);
            }
        }
        // Bytes of ASCII are always valid.
        text.extend(chunk.invalid().iter().map(stand_in));
    }
    text
}

/// Returns the bytes that a text stands for.
#[must_use]
pub fn to_bytes(text: &str) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(text.len());
    for letter in text.chars() {
        match byte_of(letter) {
            Some(byte) => bytes.push(byte),
            None => bytes.extend_from_slice(letter.encode_utf8(&mut [0; 4]).as_bytes()),
        }
    }
    bytes
}

fn byte_of(letter: char) -> Option<u8> {
    let number = u32::from(letter).checked_sub(FIRST).filter(|number| *number < COUNT)?;
    u8::try_from(number + BYTE).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_bytes_come_back() {
        let all: Vec<u8> = (0..=u8::MAX).collect();
        let own = "-I /home/J\u{fc}rgen \u{f780}\u{f7ff}\u{f77f}\u{f800} \u{1f600}";
        for bytes in [&all[..], own.as_bytes(), b"-I /J\xfcrgen", b"\xef\x9e", b"\xff\xff", b""] {
            let text = of_bytes(bytes);
            assert_eq!(to_bytes(&text), bytes, "{text}");
        }
    }

    #[test]
    fn usual_text_stays_as_it_is() {
        let text = "-cl-std=CL1.2 -DNAME=\"J\u{fc}rgen\"";
        assert_eq!(
            (of_bytes(text.as_bytes()).as_str(), to_bytes(text).as_slice()),
            (text, text.as_bytes())
        );
    }
}
