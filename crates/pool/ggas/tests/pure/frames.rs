//! Bytes of peers: valid bytes arrive however they are cut, invalid bytes are refused.

use penstock_ggas::frame::{AbortNote, Frame};
use penstock_ggas::hello::{HELLO_BYTES, Hello, VERDICT_BYTES, decode_verdict};
use penstock_ggas::layout::{FLAGS_BYTES, NO_SIGNAL};
use penstock_ggas::proxy::{Listener, PeerMessage};
use proptest::prelude::*;

/// Number of user bytes of a part in these tests.
const BYTES: u64 = 20_000;
const PART: u64 = FLAGS_BYTES as u64 + BYTES;

#[derive(Clone, Debug)]
enum One {
    Put { pe: u8, at: u64, bytes: Vec<u8>, signal: Option<(u64, u64)> },
    Flush(u64),
    Done(u64),
    Abort(u64, bool, String),
}

impl One {
    fn encode(&self) -> Vec<u8> {
        let (frame, body) = match self {
            Self::Put { pe, at, bytes, signal } => {
                let (signal_at, signal) = signal.unwrap_or((NO_SIGNAL, 0));
                (
                    Frame::Put { pe: *pe, at: *at, length: bytes.len() as u64, signal_at, signal },
                    bytes.clone(),
                )
            }
            Self::Flush(mark) => (Frame::Flush { mark: *mark }, Vec::new()),
            Self::Done(mark) => (Frame::Done { mark: *mark }, Vec::new()),
            Self::Abort(generation, is_final, text) => Frame::abort(*generation, *is_final, text),
        };
        [frame.encode().as_slice(), &body].concat()
    }
}

fn one() -> impl Strategy<Value = One> {
    let put = (
        prop_oneof![Just(0_u8), Just(2)],
        0..PART - 17_000,
        proptest::collection::vec(any::<u8>(), 0..50),
        0..17_000_usize,
        proptest::option::of((0..PART / 8, any::<u64>())),
    );
    prop_oneof![
        6 => put.prop_map(|(pe, at, mut bytes, more, signal)| {
            // Some payloads exceed what is received at once.
            if more % 7 == 0 {
                bytes.resize(more, 0xA5);
            }
            let signal = signal.map(|(word, value)| (word * 8, value)).filter(|(at, _)| at + 8 <= PART);
            One::Put { pe, at, bytes, signal }
        }),
        1 => any::<u64>().prop_map(One::Flush),
        1 => any::<u64>().prop_map(One::Done),
        1 => (any::<u64>(), any::<bool>(), "[a-z ]{0,80}").prop_map(|(number, is_final, text)| One::Abort(number, is_final, text)),
    ]
}

/// Returns the content of the parts and the messages after these frames.
fn model(all: &[One]) -> ([Vec<u8>; 2], Vec<PeerMessage>) {
    let mut parts = [(); 2].map(|()| vec![0; usize::try_from(PART).unwrap()]);
    let mut said = Vec::new();
    for one in all {
        match one {
            One::Put { pe, at, bytes, signal } => {
                let part = &mut parts[usize::from(*pe / 2)];
                let at = usize::try_from(*at).unwrap();
                part[at..at + bytes.len()].copy_from_slice(bytes);
                if let Some((at, value)) = signal {
                    let at = usize::try_from(*at).unwrap();
                    part[at..at + 8].copy_from_slice(&value.to_ne_bytes());
                }
            }
            One::Flush(mark) => said.push(PeerMessage::Flush(*mark)),
            One::Done(mark) => said.push(PeerMessage::Done(*mark)),
            One::Abort(generation, is_final, reason) => {
                said.push(PeerMessage::Abort(AbortNote {
                    generation: *generation,
                    is_final: *is_final,
                    reason: reason.clone(),
                }));
            }
        }
    }
    (parts, said)
}

proptest! {
    #[test]
    fn frames_arrive_however_they_are_cut(
        all in proptest::collection::vec(one(), 0..12),
        cuts in proptest::collection::vec(1..9_000_usize, 1..8),
    ) {
        let bytes: Vec<u8> = all.iter().flat_map(One::encode).collect();
        let mut listener = Listener::new(BYTES).unwrap();
        let (mut rest, mut said, mut cuts) = (bytes.as_slice(), Vec::new(), cuts.into_iter().cycle());
        while !rest.is_empty() {
            let (now, later) = rest.split_at(rest.len().min(cuts.next().unwrap()));
            said.extend(listener.hear(now).unwrap());
            rest = later;
        }
        let (parts, expected) = model(&all);
        prop_assert_eq!(said, expected);
        prop_assert!(listener.part(0).unwrap() == parts[0]);
        prop_assert!(listener.part(2).unwrap() == parts[1]);
    }

    #[test]
    fn any_bytes_are_survived(bytes in proptest::collection::vec(any::<u8>(), 0..2_000), whole in any::<bool>()) {
        let mut listener = Listener::new(BYTES).unwrap();
        // Random bytes behind a valid frame get further.
        let start = if whole { One::Flush(1).encode() } else { Vec::new() };
        _ = listener.hear(&[start, bytes.clone()].concat());
        if let Some(hello) = bytes.first_chunk::<HELLO_BYTES>() {
            _ = Hello::decode(hello);
        }
        if let Some(verdict) = bytes.first_chunk::<VERDICT_BYTES>() {
            _ = decode_verdict(verdict);
        }
    }

    #[test]
    fn puts_outside_are_refused_and_change_nothing(
        pe in 0..64_u8, at in any::<u64>(), length in any::<u64>(), signal_at in any::<u64>(),
    ) {
        let ends = at.checked_add(length).is_some_and(|end| end <= PART);
        let signals = signal_at == NO_SIGNAL
            || signal_at.is_multiple_of(8) && signal_at.checked_add(8).is_some_and(|end| end <= PART);
        prop_assume!(!(matches!(pe, 0 | 2) && ends && signals));
        let mut listener = Listener::new(BYTES).unwrap();
        let mut bytes = Frame::Put { pe, at, length, signal_at, signal: 1 }.encode().to_vec();
        bytes.extend([0xFF; 100]);
        prop_assert!(listener.hear(&bytes).is_err());
        prop_assert!(listener.part(0).unwrap().iter().chain(&listener.part(2).unwrap()).all(|&byte| byte == 0));
    }
}

#[test]
fn a_put_to_a_pe_of_another_member_is_refused() {
    let mut listener = Listener::new(BYTES).unwrap();
    let put = Frame::Put { pe: 1, at: 0, length: 0, signal_at: NO_SIGNAL, signal: 0 };
    assert!(listener.hear(&put.encode()).is_err());
}
