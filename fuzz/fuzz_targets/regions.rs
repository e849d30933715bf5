//! The memory that a guest shares with its host: any change of the messages about it, and any words
//! in it at any time. Neither side takes a part that the other one did not mean.
#![no_main]

use std::fs::{self, File};
use std::io::{Read, Write};
use std::net::Shutdown;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::{Duration, Instant};

use libfuzzer_sys::fuzz_target;
use penstock_link::{
    GuestMemory, LinkError, MemoryUse, Patience, Received, Receiver, Region, Sender, Settled, Side,
    Stream, WorkersPart, establish,
};
use penstock_wire::calls::{to_client, to_worker};
use penstock_wire::hello::feature;
use penstock_wire::{Call, Frame, Id, Payload};

const FEATURES: u64 = feature::GUEST_MEMORY | feature::SHARED_ARENA;

/// Sizes of the messages in bytes.
const OFFER: usize = 88;
const TAKING: usize = 72;
const AGREED: usize = 8;

/// Size of the region, which has one part.
const REGION_BYTES: u64 = 8 << 20;

/// Places in the part that mean something: the marks, and the words and first bytes of both rings,
/// of which the second one begins behind 1 MiB of data of the first one.
const PLACES: [u64; 14] = {
    let (first, second) = (4096, 8192 + (1 << 20));
    [
        0,
        128,
        first,
        first + 128,
        first + 256,
        first + 384,
        first + 4096,
        first + 4104,
        second,
        second + 128,
        second + 256,
        second + 384,
        second + 4096,
        second + 4104,
    ]
};

/// Time for frames after both sides have agreed.
const TALK: Duration = Duration::from_millis(3);

/// The region, and its file, which has no name any more.
struct Shared {
    region: Arc<Region>,
    file: File,
}

fn shared() -> &'static Shared {
    static SHARED: OnceLock<Shared> = OnceLock::new();
    SHARED.get_or_init(|| {
        let path = PathBuf::from(format!("/dev/shm/penstock-fuzz-{}", std::process::id()));
        let memory =
            GuestMemory { path: path.clone(), bytes: Some(REGION_BYTES), sessions: Some(1) };
        let region = Region::open(&memory).expect("a region");
        let file = File::options().read(true).write(true).open(&path).expect("its file");
        fs::remove_file(path).expect("it has a name");
        Shared { region, file }
    })
}

/// What the hostile side does.
struct Script<'a>(&'a [u8]);

impl Script<'_> {
    fn byte(&mut self) -> usize {
        let Some((first, rest)) = self.0.split_first() else { return 0 };
        self.0 = rest;
        usize::from(*first)
    }

    /// Changes some bytes. Returns whether the message is another one now.
    fn change(&mut self, message: &mut [u8]) -> bool {
        let before = message.to_vec();
        for _ in 0..self.byte() % 4 {
            let at = self.byte() % message.len();
            message[at] ^= self.byte() as u8;
        }
        message != before
    }

    /// Writes some words into the part.
    fn scribble(&mut self, part: u64) {
        for _ in 0..self.byte() % 4 {
            let at = match self.byte() {
                it if it < 200 => PLACES[it % PLACES.len()],
                it => (it as u64) << 12 | self.byte() as u64,
            };
            let (shift, low) = (self.byte() % 64, self.byte() as u64);
            let word = low.rotate_left(u32::try_from(shift).unwrap_or(0));
            let written = shared().file.write_all_at(&word.to_le_bytes(), part + at);
            written.expect("it lies in the part");
        }
    }
}

fuzz_target!(|bytes: &[u8]| {
    let mut script = Script(bytes);
    let shared = shared();
    let part = shared.region.take().expect("the part of the last run is free");
    let (offset, _) = part.place();
    let workers = WorkersPart::new(part.open().expect("a descriptor"), part.place());
    let settled = Settled::default();
    let (client, to_client) = UnixStream::pair().expect("a pair");
    let (worker, to_worker) = UnixStream::pair().expect("a pair");
    let stream = |socket: UnixStream| Stream::from_fd(OwnedFd::from(socket)).expect("a socket");
    let worker = stream(worker).with_part(workers.ok(), settled.clone());
    let seen = format!("/proc/self/fd/{}", shared.file.as_raw_fd());
    let client = stream(client).seeing(seen.into());
    thread::scope(|scope| {
        scope.spawn(|| {
            let link = establish(worker, FEATURES, Side::Worker, to_worker::check);
            talk(link, &to_client::Beat {});
        });
        scope.spawn(|| {
            let link = establish(client, FEATURES, Side::Client, to_client::check);
            talk(link, &to_worker::Ping { request: Id::new(1) });
        });
        if let Some(lied) = carry(&mut script, &to_worker, &to_client, offset) {
            pump(&mut script, &to_worker, &to_client, offset);
            assert!(!lied || settled.get() != Some(&MemoryUse::Shared), "a lie was believed");
        }
        _ = to_worker.shutdown(Shutdown::Both);
        _ = to_client.shutdown(Shutdown::Both);
    });
});

/// Carries the messages about the part, and changes them. Returns whether it has changed one that
/// the worker must not believe, or `None` if a side has ended the talk.
fn carry(
    script: &mut Script<'_>,
    mut worker: &UnixStream,
    mut client: &UnixStream,
    part: u64,
) -> Option<bool> {
    let mut offer = [0; OFFER];
    worker.read_exact(&mut offer).ok()?;
    script.scribble(part);
    let is_forged = script.change(&mut offer);
    client.write_all(&offer).ok()?;
    let mut taking = [0; TAKING];
    client.read_exact(&mut taking).ok()?;
    let is_taken = |taking: &[u8]| taking.starts_with(&(MemoryUse::Shared as u64).to_le_bytes());
    assert!(!is_forged || !is_taken(&taking), "a forged offer was taken");
    script.scribble(part);
    let lied = script.change(&mut taking);
    worker.write_all(&taking).ok()?;
    if is_taken(&taking) {
        let mut agreed = [0; AGREED];
        worker.read_exact(&mut agreed).ok()?;
        script.change(&mut agreed);
        client.write_all(&agreed).ok()?;
    }
    Some(lied)
}

/// Carries the doorbells, with some that nobody has rung, while words in the part change.
fn pump(script: &mut Script<'_>, worker: &UnixStream, client: &UnixStream, part: u64) {
    for socket in [worker, client] {
        socket.set_nonblocking(true).expect("a socket");
    }
    let end = Instant::now() + TALK;
    while Instant::now() < end {
        for (mut from, mut to) in [(worker, client), (client, worker)] {
            let mut bytes = [0; 64];
            match from.read(&mut bytes) {
                Ok(0) => return,
                Ok(count) => _ = to.write(&bytes[..count]),
                Err(_) => {}
            }
            if let it @ 1..=40 = script.byte() {
                _ = to.write(&[[b'R', b'W', it as u8][it % 3]]);
            }
        }
        script.scribble(part);
        thread::sleep(TALK / 16);
    }
}

/// Sends a frame, and receives what comes.
fn talk(link: Result<(Sender, Receiver), LinkError>, call: &impl Call) {
    let Ok((sender, mut receiver)) = link else { return };
    _ = sender.try_send(call, &[], &[]);
    _ = sender.flush_soon();
    let end = Instant::now() + TALK;
    let mut serve = |_: &Frame<'_>, payload: &mut dyn Payload| {
        let mut some = [0; 100];
        let count = usize::try_from(payload.left()).unwrap_or(100).min(100);
        payload.read(&mut some[..count])
    };
    while let Ok(Received::Frame) = receiver.receive(Patience::Until(end), &mut serve) {}
}
