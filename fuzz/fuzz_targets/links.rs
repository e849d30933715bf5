//! Any bytes on a socket: as a hello, and as frames after one.
#![no_main]

use std::io::Write;
use std::net::Shutdown;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use libfuzzer_sys::fuzz_target;
use penstock_link::{Patience, Received, Side, Stream, accept_hello, establish};
use penstock_wire::calls::to_worker;

/// What a socket buffer holds at least: more would block, because nobody reads at the same time.
const BYTES_MAX: usize = 64 << 10;

fuzz_target!(|bytes: &[u8]| {
    let Some(bytes) = bytes.get(..bytes.len().min(BYTES_MAX)) else { return };
    let deadline = Instant::now() + Duration::from_secs(1);
    let (stream, _peer) = fed(bytes);
    _ = accept_hello(stream, None, &|_| true, deadline);

    let (stream, _peer) = fed(bytes);
    let Ok((_sender, mut receiver)) = establish(stream, 0, Side::Worker, to_worker::check) else { return };
    let mut serve = |_: &penstock_wire::Frame<'_>, payload: &mut dyn penstock_wire::Payload| {
        let mut some = [0; 100];
        let count = usize::try_from(payload.left()).unwrap_or(100).min(100);
        payload.read(some.get_mut(..count).unwrap_or_default())
    };
    while let Ok(Received::Frame) = receiver.receive(Patience::Until(deadline), &mut serve) {}
});

fn fed(bytes: &[u8]) -> (Stream, UnixStream) {
    let (near, mut far) = UnixStream::pair().expect("a socket pair");
    far.write_all(bytes).expect("it fits the socket's buffer");
    far.shutdown(Shutdown::Write).expect("it is connected");
    (Stream::from_fd(OwnedFd::from(near)).expect("it is a socket"), far)
}
