//! Links over every transport, for tests.
#![allow(dead_code, reason = "not every test uses every part")]

use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use penstock_link::{Address, Listener, Receiver, Sender, Side, Stream, establish};
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

/// Longer than any operation here takes on a busy machine.
pub const PATIENCE: Duration = Duration::from_secs(60);

pub fn soon() -> Instant {
    Instant::now() + PATIENCE
}

/// Time that a busy machine may add to any time. A defect waits for ever or for [`PATIENCE`].
pub const ALLOWANCE: Duration = Duration::from_secs(15);

/// Asserts that `took` returns less than `limit` in one of three runs. A busy machine can be late
/// once; three times in a row is a defect.
pub fn in_time(what: &str, limit: Duration, mut took: impl FnMut() -> Duration) {
    let mut late = Vec::new();
    while late.len() < 3 {
        match took() {
            in_time if in_time < limit => return,
            more => late.push(more),
        }
    }
    panic!("{what}: three times not within {limit:?}: {late:?}");
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

/// Pseudorandom numbers that are the same on every run.
pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        // splitmix64
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub fn below(&mut self, bound: usize) -> usize {
        usize::try_from(self.next() % bound as u64).unwrap()
    }
}

/// Returns bytes that depend on the seed and on their place.
pub fn pattern(seed: u64, bytes: usize) -> Vec<u8> {
    let mut random = Random(seed);
    let mut out = Vec::with_capacity(bytes + 8);
    while out.len() < bytes {
        out.extend_from_slice(&random.next().to_le_bytes());
    }
    out.truncate(bytes);
    out
}
