//! Any bytes as what comes through SSH until a bridge has greeted, in two pieces: no panic, and a
//! greeting is found wherever the bytes are cut.
#![no_main]

use libfuzzer_sys::fuzz_target;
use penstock_link::has_greeted;

fuzz_target!(|input: &[u8]| {
    let Some((share, bytes)) = input.split_first() else { return };
    // A seed is easier to write without control characters.
    let bytes: Vec<u8> =
        bytes.iter().map(|byte| if *byte == b'!' { b'\x1e' } else { *byte }).collect();
    let (first, second) = bytes.split_at(bytes.len() * usize::from(*share) / 256);
    let is_found = has_greeted(&bytes, b"");
    assert!(!is_found || has_greeted(first, second));
});
