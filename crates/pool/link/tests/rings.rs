//! Peers that offer invalid rings or corrupt them, and sleeping readers that must be woken.

mod common;

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::os::unix::net::UnixStream;
use std::thread;
use std::time::{Duration, Instant};

use common::{Random, Transport, anything, pair, soon};
use penstock_link::{
    LinkError, Patience, Policy, Received, Receiver, Sender, Side, Stream, establish,
};
use penstock_wire::calls::to_worker::{InitBuffer, Ping};
use penstock_wire::hello::feature;
use penstock_wire::{Id, U64};
use rustix::fs::{MemfdFlags, SealFlags};
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags};

const DATA_AT: u64 = 4096;
const TAIL_AT: u64 = 128;

fn memory(bytes: u64, seals: SealFlags) -> OwnedFd {
    let memory =
        rustix::fs::memfd_create("evil", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).unwrap();
    rustix::fs::ftruncate(&memory, bytes).unwrap();
    rustix::fs::fcntl_add_seals(&memory, seals).unwrap();
    memory
}

fn good() -> OwnedFd {
    memory(DATA_AT + (4 << 20), SealFlags::SHRINK | SealFlags::GROW)
}

/// Returns a worker's end to which the client offers `note` and `fds`.
fn offered(
    note: &[u8],
    fds: &[BorrowedFd<'_>],
) -> (Result<(Sender, Receiver), LinkError>, UnixStream) {
    let (ours, theirs) = UnixStream::pair().unwrap();
    let mut space = [std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(8))];
    let mut beside = SendAncillaryBuffer::new(&mut space);
    if !fds.is_empty() {
        assert!(beside.push(SendAncillaryMessage::ScmRights(fds)));
    }
    let notes = [std::io::IoSlice::new(note)];
    rustix::net::sendmsg(&ours, &notes, &mut beside, SendFlags::empty()).unwrap();
    let stream = Stream::from_fd(theirs.into()).unwrap();
    (establish(stream, feature::SHARED_RINGS, Side::Worker, anything), ours)
}

#[test]
fn offers_that_are_no_rings_are_refused() {
    let (doorbell, _other) = UnixStream::pair().unwrap();
    let ring = good();
    let small = memory(DATA_AT + 4096, SealFlags::SHRINK | SealFlags::GROW);
    let odd = memory(DATA_AT + (3 << 20), SealFlags::SHRINK | SealFlags::GROW);
    let huge = memory(DATA_AT + (1 << 40), SealFlags::SHRINK | SealFlags::GROW);
    let loose = memory(DATA_AT + (4 << 20), SealFlags::GROW);
    let file: OwnedFd = std::fs::File::open("/proc/self/exe").unwrap().into();
    let (ring, bell) = (ring.as_fd(), doorbell.as_fd());
    for bad in [&small, &odd, &huge, &loose, &file] {
        assert!(offered(b"RINGS  1", &[bad.as_fd(), ring, bell]).0.is_err());
        assert!(offered(b"RINGS  1", &[ring, bad.as_fd(), bell]).0.is_err());
    }
    assert!(offered(b"RINGS  1", &[ring, ring, ring]).0.is_err());
    assert!(offered(b"RINGS  1", &[ring, ring]).0.is_err());
    assert!(offered(b"RINGS  1", &[]).0.is_err());
    assert!(offered(b"rings  1", &[ring, ring, bell]).0.is_err());
    assert!(offered(b"RI", &[ring, ring, bell]).0.is_err());
    let (plain, _peer) = offered(b"NO RINGS", &[]);
    plain.unwrap();
}

#[test]
fn impossible_counts_end_the_session_only() {
    for tail in [u64::MAX, (4 << 20) + 1, 1 << 63] {
        let (doorbell, _other) = UnixStream::pair().unwrap();
        let (to_worker, to_client) = (good(), good());
        let fds = [to_worker.as_fd(), to_client.as_fd(), doorbell.as_fd()];
        let (link, _peer) = offered(b"RINGS  1", &fds);
        let (_sender, mut receiver) = link.unwrap();
        let file = std::fs::File::from(to_worker);
        file.write_all_at(&tail.to_le_bytes(), TAIL_AT).unwrap();
        let served = receiver.receive(Patience::Until(soon()), &mut |_, _| Ok(()));
        assert!(matches!(served, Err(LinkError::Ring(_))), "{served:?}");
    }
}

#[test]
fn a_peer_that_scribbles_everywhere_does_no_harm() {
    let mut random = Random::new(77);
    for _ in 0..300 {
        let (doorbell, _other) = UnixStream::pair().unwrap();
        let (to_worker, to_client) = (good(), good());
        let fds = [to_worker.as_fd(), to_client.as_fd(), doorbell.as_fd()];
        let (link, peer) = offered(b"RINGS  1", &fds);
        let (sender, mut receiver) = link.unwrap();
        let done = std::sync::atomic::AtomicBool::new(false);
        let seed = random.number();
        thread::scope(|scope| {
            let scribbles = scope.spawn(|| {
                let mut random = Random::new(seed);
                let files = [std::fs::File::from(to_worker), std::fs::File::from(to_client)];
                while !done.load(std::sync::atomic::Ordering::Relaxed) {
                    let word = match random.index(3) {
                        0 => random.number(),
                        _ => random.number() % (4 << 20),
                    };
                    let at = [0, TAIL_AT, 256, 384, DATA_AT, DATA_AT + 8][random.index(6)];
                    files[random.index(2)].write_all_at(&word.to_le_bytes(), at).unwrap();
                }
            });
            let until = Patience::Until(Instant::now() + Duration::from_millis(2));
            for _ in 0..50 {
                let mut read =
                    |_: &penstock_wire::Frame<'_>, payload: &mut dyn penstock_wire::Payload| {
                        let bytes =
                            usize::try_from(payload.left()).unwrap_or(usize::MAX).min(100_000);
                        if payload.left() > 1 << 20 {
                            return Err(penstock_wire::FrameError::Broken);
                        }
                        payload.read(&mut vec![0; bytes])
                    };
                let sent = sender.try_send(&Ping { request: Id::new(1) }, &[], &[]);
                // An invalid frame may announce bytes that never come; a hang-up ends the wait.
                let ends = scope.spawn(|| {
                    thread::sleep(Duration::from_millis(5));
                    let _ = peer.shutdown(std::net::Shutdown::Both);
                });
                let served = receiver.receive(until, &mut read);
                ends.join().unwrap();
                if served.is_err() || sent.is_err() {
                    break;
                }
            }
            done.store(true, std::sync::atomic::Ordering::Relaxed);
            scribbles.join().unwrap();
        });
    }
}

#[test]
fn one_who_sleeps_at_once_is_woken_every_time() {
    let ((client_out, mut client_in), (worker_out, mut worker_in)) = pair(Transport::Ring);
    client_in.set_policy(Policy::SLEEP);
    worker_in.set_policy(Policy::SLEEP);
    let rounds = 20_000;
    let receive = |receiver: &mut Receiver| {
        let served = receiver.receive(Patience::Until(soon()), &mut |_, _| Ok(()));
        assert_eq!(served.unwrap(), Received::Frame, "a wake-up was lost");
    };
    thread::scope(|scope| {
        scope.spawn(move || {
            for _ in 0..rounds {
                receive(&mut worker_in);
                worker_out.send(&Ping { request: Id::new(2) }, &[], &[]).unwrap();
            }
        });
        let call = InitBuffer { mem: Id::new(1), offset: U64::ZERO };
        for round in 0..rounds {
            client_out.send(&call, &[], &[0; 500][..round % 500]).unwrap();
            receive(&mut client_in);
        }
    });
}
