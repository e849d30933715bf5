//! What members of a heap send each other: handshake and frames. Whatever comes, nothing outside of the parts is touched.
#![no_main]

use libfuzzer_sys::fuzz_target;
use penstock_ggas::hello::{Hello, decode_verdict};
use penstock_ggas::proxy::Listener;

fuzz_target!(|input: (usize, &[u8])| {
    let (cut, bytes) = input;
    if let Some(hello) = bytes.first_chunk() {
        if let Ok(hello) = Hello::decode(hello) {
            assert_eq!(Hello::decode(&hello.encode()), Ok(hello));
        }
    }
    if let Some(verdict) = bytes.first_chunk() {
        _ = decode_verdict(verdict);
    }
    let Ok(mut listener) = Listener::new(4096) else { return };
    let (first, rest) = bytes.split_at(cut % (bytes.len() + 1));
    if listener.hear(first).is_ok() {
        _ = listener.hear(rest);
    }
});
