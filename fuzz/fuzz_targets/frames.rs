//! Any bytes as a frame of any direction: refused or served, never more.
#![no_main]

use libfuzzer_sys::fuzz_target;
use penstock_wire::calls::{
    Attached, Serve, Served, to_client, to_guest, to_host, to_peer, to_worker,
};
use penstock_wire::{Call, Frame, Header};
use zerocopy::FromBytes;

struct Sink;

impl<C: Call> Serve<C> for Sink {
    fn serve(&mut self, _: &C, with: Attached<'_>) -> Served {
        if with.payload.left() < 1 << 20 {
            with.payload.read_all()?;
        }
        Ok(())
    }
}

fuzz_target!(|bytes: &[u8]| {
    let Ok((header, rest)) = Header::read_from_prefix(bytes) else { return };
    let (body, mut payload) = rest.split_at(usize::from(header.body.get()).min(rest.len()));
    let frame = Frame { header, body, waits: &[] };
    _ = to_worker::dispatch(&mut Sink, &frame, &mut payload);
    _ = to_client::dispatch(&mut Sink, &frame, &mut payload);
    _ = to_peer::dispatch(&mut Sink, &frame, &mut payload);
    _ = to_host::dispatch(&mut Sink, &frame, &mut payload);
    _ = to_guest::dispatch(&mut Sink, &frame, &mut payload);
});
