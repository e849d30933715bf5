//! What members of a heap send each other: handshake and frames. Whatever comes, nothing outside of the parts is touched.
#![no_main]

use libfuzzer_sys::fuzz_target;
use penstock_ggas::frame::{FRAME_BYTES, Frame};
use penstock_ggas::hello::{Hello, decode_verdict};
use penstock_ggas::proxy::Listener;

/// The user's bytes of a part, and all of it.
const BYTES: u64 = 4096;
const PART_BYTES: u64 = penstock_ggas::layout::FLAGS_BYTES as u64 + BYTES;

/// A frame that may well be right: random bytes hardly ever are one. Numbers are taken from both ends of their range and beyond.
/// Kind, PE, place, length, place of a signal, and signal.
type FrameParts = (u8, u8, u16, u16, u16, u64);

fn frame(&(kind, pe, at, length, signal_at, signal): &FrameParts) -> Frame {
    let near = |number: u16| match number % 4 {
        0 => u64::from(number) % 64 * 8,
        1 => PART_BYTES - u64::from(number) % 64 * 8,
        2 => u64::from(number),
        _ => u64::MAX - u64::from(number) / 4,
    };
    match kind % 8 {
        0 => Frame::Flush { mark: signal },
        1 => Frame::Done { mark: signal },
        2 => Frame::Abort { generation: signal, is_final: pe % 2 == 1, length: u64::from(length) % 600 },
        3 => Frame::Put { pe, at: near(at), length: near(length), signal_at: near(signal_at), signal },
        _ => {
            let length = u64::from(length) % 300;
            Frame::Put { pe: pe % 4, at: near(at), length, signal_at: near(signal_at), signal }
        }
    }
}

/// Bytes in two pieces.
fn hear(bytes: &[u8], cut: usize) {
    let Ok(mut listener) = Listener::new(BYTES) else { return };
    let (first, rest) = bytes.split_at(cut % (bytes.len() + 1));
    if listener.hear(first).is_ok() {
        _ = listener.hear(rest);
    }
}

fuzz_target!(|input: (usize, Vec<FrameParts>, &[u8])| {
    let (cut, frames, bytes) = input;
    if let Some(hello) = bytes.first_chunk()
        && let Ok(hello) = Hello::decode(hello)
    {
        assert_eq!(Hello::decode(&hello.encode()), Ok(hello));
    }
    if let Some(verdict) = bytes.first_chunk() {
        _ = decode_verdict(verdict);
    }
    if let Some(header) = bytes.first_chunk::<FRAME_BYTES>()
        && let Ok(frame) = Frame::decode(header)
    {
        assert_eq!(Frame::decode(&frame.encode()), Ok(frame));
    }
    hear(bytes, cut);
    let mut sent = Vec::new();
    for frame in frames.iter().map(frame) {
        sent.extend_from_slice(&frame.encode());
        if let Frame::Put { length, .. } | Frame::Abort { length, .. } = frame {
            let length = usize::try_from(length.min(600)).unwrap_or_default();
            sent.extend(bytes.iter().copied().chain(std::iter::repeat(7)).take(length));
        }
    }
    hear(&sent, cut);
});
