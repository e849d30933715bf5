//! Links over every transport, for tests.
#![allow(dead_code, unused_imports, reason = "not every test uses every part")]

use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;

use penstock_link::{Address, Listener, Receiver, Sender, Side, Stream, establish};
pub use penstock_trial::{Random, deadline as soon, in_time, patience, wait_for};
use penstock_wire::hello::feature;
use penstock_wire::{FrameError, Header};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transport {
    Ring,
    Unix,
    Tcp,
}

pub const ALL: [Transport; 3] = [Transport::Ring, Transport::Unix, Transport::Tcp];

pub type End = (Sender, Receiver);
pub type Check = fn(&Header) -> Result<(), FrameError>;

/// Accepts any header, because these tests send arbitrary frames.
pub fn anything(_: &Header) -> Result<(), FrameError> {
    Ok(())
}

pub fn sockets(transport: Transport) -> (Stream, Stream) {
    match transport {
        Transport::Ring | Transport::Unix => {
            let (one, two) = UnixStream::pair().unwrap();
            (
                Stream::from_fd(OwnedFd::from(one)).unwrap(),
                Stream::from_fd(OwnedFd::from(two)).unwrap(),
            )
        }
        Transport::Tcp => {
            let listener = Listener::bind(&"tcp:127.0.0.1:0".parse::<Address>().unwrap()).unwrap();
            let one = Stream::connect(&listener.address(), soon()).unwrap();
            (one, listener.accept().unwrap())
        }
    }
}

/// Returns a client's end and a worker's end.
pub fn pair(transport: Transport) -> (End, End) {
    let features = if transport == Transport::Ring { feature::SHARED_RINGS } else { 0 };
    let (one, two) = sockets(transport);
    let client = establish(one, features, Side::Client, anything).unwrap();
    let worker = establish(two, features, Side::Worker, anything).unwrap();
    (client, worker)
}

/// Returns bytes that depend on the seed and on their place.
pub fn pattern(seed: u64, bytes: usize) -> Vec<u8> {
    Random::new(seed).bytes(bytes)
}
