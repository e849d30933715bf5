//! Checks that the table is consistent and that it refuses malformed frames.

use std::collections::HashSet;

use proptest::prelude::*;
use zerocopy::{FromBytes, IntoBytes};

use super::*;
use crate::IndexSpace;

/// Counts the calls and payload bytes that reach a handler.
#[derive(Default)]
struct Counter {
    served: usize,
    taken: u64,
}

impl<C: Call> Serve<C> for Counter {
    fn serve(&mut self, call: &C, with: Attached<'_>) -> Served {
        // The body has its size in the table.
        assert_eq!(call.as_bytes().len(), size_of::<C>());
        self.served += 1;
        self.taken += with.payload.read_all()?.len() as u64;
        Ok(())
    }
}

fn tables() -> impl Iterator<Item = (u16, &'static str, usize, PayloadRule)> {
    [to_worker::TABLE, to_client::TABLE, to_peer::TABLE, to_host::TABLE, to_guest::TABLE]
        .into_iter()
        .flatten()
        .copied()
}

#[test]
fn opcodes_are_unique_and_bodies_within_the_limit() {
    let mut seen = HashSet::new();
    for (opcode, name, body, _) in tables() {
        assert!(seen.insert(opcode), "{name} has an opcode that another call has");
        assert!(body <= limits::BODY_BYTES_MAX, "{name} has a body of {body} bytes");
    }
    assert!(seen.len() > 50);
}

fn header(opcode: u16, body: usize, payload: u64) -> Header {
    Header {
        opcode: opcode.into(),
        body: u16::try_from(body).unwrap().into(),
        waits: 0.into(),
        reserved: 0.into(),
        payload: payload.into(),
    }
}

fn dispatch_any(
    header: Header,
    body: &[u8],
    mut payload: &[u8],
) -> (Result<(), FrameError>, usize) {
    let mut counter = Counter::default();
    let frame = Frame { header, body, waits: &[] };
    let result = match header.opcode.get() {
        0x8000..0x9000 => to_client::dispatch(&mut counter, &frame, &mut payload),
        0x9000..0xa000 => to_peer::dispatch(&mut counter, &frame, &mut payload),
        0xa000..0xb000 => to_host::dispatch(&mut counter, &frame, &mut payload),
        0xb000.. => to_guest::dispatch(&mut counter, &frame, &mut payload),
        _ => to_worker::dispatch(&mut counter, &frame, &mut payload),
    };
    (result, counter.served)
}

#[test]
fn every_call_reaches_its_handler() {
    for (opcode, name, body, _) in tables() {
        let (result, served) = dispatch_any(header(opcode, body, 0), &vec![0; body], &[]);
        assert_eq!((result, served), (Ok(()), 1), "{name}");
    }
}

#[test]
fn a_wrong_body_or_payload_is_refused() {
    for (opcode, name, body, rule) in tables() {
        let (result, served) = dispatch_any(header(opcode, body + 1, 0), &vec![0; body + 1], &[]);
        assert!(matches!(result, Err(FrameError::WrongBody { .. })), "{name}");
        assert_eq!(served, 0);
        let over = header(opcode, body, rule.bytes_max() + 1);
        let (result, served) = dispatch_any(over, &vec![0; body], &[]);
        assert!(matches!(result, Err(FrameError::PayloadTooLarge { .. })), "{name}");
        assert_eq!(served, 0);
    }
}

#[test]
fn an_unknown_opcode_is_refused() {
    let known: HashSet<u16> = tables().map(|(opcode, ..)| opcode).collect();
    for opcode in (0..=u16::MAX).filter(|opcode| !known.contains(opcode)) {
        let (result, _) = dispatch_any(header(opcode, 0, 0), &[], &[]);
        assert_eq!(result, Err(FrameError::UnknownOpcode(opcode)));
    }
}

#[test]
fn a_call_survives_the_wire() {
    let call = to_worker::LaunchKernel {
        queue: Id::new(1),
        kernel: Id::new(2),
        event: Id::new(3),
        space: IndexSpace {
            dims: 2,
            offset: [1, 2, 0],
            global: [64, 64, 1],
            local: Some([8, 8, 1]),
        }
        .into(),
    };
    let header = to_worker::LaunchKernel::header(3, 17).unwrap();
    assert_eq!(Header::read_from_bytes(header.as_bytes()).unwrap(), header);
    assert_eq!(usize::from(header.body.get()), call.as_bytes().len());
    assert_eq!(to_worker::LaunchKernel::read_from_bytes(call.as_bytes()).unwrap(), call);
    assert_eq!(to_worker::check(&header), Ok(()));
}

#[test]
fn limits_are_enforced_by_the_sender() {
    let waits = to_worker::Marker::header(limits::WAITS_MAX + 1, 0);
    assert!(matches!(waits, Err(FrameError::TooManyWaits { .. })));
    let payload = to_worker::Marker::header(0, 1);
    assert!(matches!(payload, Err(FrameError::PayloadTooLarge { .. })));
}

proptest! {
    /// Any header with any body is either refused or served, without a panic.
    #[test]
    fn any_frame_is_safe(header: [u8; 16], body in prop::collection::vec(any::<u8>(), 0..600), payload: Vec<u8>) {
        let header = Header::read_from_bytes(&header).unwrap();
        let (result, served) = dispatch_any(header, &body, &payload);
        prop_assert!(served == 0 || usize::from(header.body.get()) == body.len() || result.is_err());
    }
}
