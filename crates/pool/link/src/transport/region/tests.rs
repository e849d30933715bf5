use std::fs::{self, File, Permissions};
use std::os::fd::{AsFd, IntoRawFd as _, OwnedFd};
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::{Duration, Instant};

use penstock_trial::{Random, wait_for};
use penstock_wire::calls::to_worker;
use penstock_wire::hello::feature;
use penstock_wire::{FrameError, Header as FrameHeader, Id, U64};
use zerocopy::{FromZeros, IntoBytes};

use super::host::{GuestMemory, Part, Region, WorkersPart};
use super::layout::{Agreed, Layout, Offer, PAGE_BYTES, Place, Taking};
use super::{MemoryUse, Settled};
use crate::error::LinkError;
use crate::establish::establish;
use crate::key::Key;
use crate::receiver::Receiver;
use crate::sender::Sender;
use crate::stream::Stream;
use crate::transport::contract::Side;
use crate::transport::tcp;
use crate::transport::tests::Way;
use crate::wait::Patience;

const FEATURES: u64 = feature::GUEST_MEMORY | feature::SHARED_ARENA;
const MIB: u64 = 1 << 20;

type Link = (Sender, Receiver);

crate::transport::tests::links_over!(Way {
    addresses: tcp::tests::addresses,
    features: FEATURES,
    beside: with_a_new_region,
    is_encrypted: false,
});

/// Puts a region of one part beside a connection. The file has no name any more when this function
/// returns, so tests leave none behind, also if they are killed.
fn with_a_new_region(client: Stream, worker: Stream) -> (Stream, Stream) {
    let shared = Shared::new("suite", 1);
    let part = shared.region.take().unwrap();
    let mine = shared.workers_part(&part);
    // The worker's process would keep it; here it lives as long as the tests.
    std::mem::forget(part);
    let file = File::options().read(true).write(true).open(&shared.file.path).unwrap();
    // The client opens the file after this function, by a descriptor that stays open.
    let client = client.seeing(format!("/proc/self/fd/{}", file.into_raw_fd()).into());
    (client, worker.with_part(Some(mine), Settled::default()))
}

/// File in memory that is removed with this value.
struct TestFile {
    path: PathBuf,
}

impl TestFile {
    fn new(name: &str) -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("penstock-{name}-{}-{number}", std::process::id());
        Self { path: Path::new("/dev/shm").join(name) }
    }

    fn memory(&self, bytes: Option<u64>, sessions: Option<usize>) -> GuestMemory {
        GuestMemory { path: self.path.clone(), bytes, sessions }
    }

    /// Returns why the file cannot be a region.
    fn refusal(&self, bytes: Option<u64>, sessions: Option<usize>) -> String {
        Region::open(&self.memory(bytes, sessions)).unwrap_err().to_string()
    }
}

impl Drop for TestFile {
    fn drop(&mut self) {
        _ = fs::remove_file(&self.path);
    }
}

struct Shared {
    region: Arc<Region>,
    file: TestFile,
}

impl Shared {
    fn new(name: &str, sessions: usize) -> Self {
        let file = TestFile::new(name);
        let bytes = (sessions as u64 * 8 * MIB).next_power_of_two();
        let region = Region::open(&file.memory(Some(bytes), Some(sessions))).unwrap();
        Self { region, file }
    }

    /// A process that another test forks has a copy of the worker's file, with its lock, until it
    /// ends or runs a program.
    fn workers_part(&self, part: &Part) -> WorkersPart {
        let mut made = None;
        wait_for("a part without a worker", || {
            made = WorkersPart::new(part.open().unwrap(), part.place()).ok();
            made.is_some()
        });
        made.unwrap()
    }

    /// Establishes a link whose client looks for the region at `path`.
    fn link(&self, part: Option<&Part>, path: &Path) -> (MemoryUse, Link, Link) {
        let (client, worker) = pair();
        let settled = Settled::default();
        let part = part.map(|part| self.workers_part(part));
        let worker = worker.with_part(part, settled.clone());
        let client = client.seeing(path.to_owned());
        let (client, worker) = establish_both(client, worker);
        (*settled.get().unwrap(), client.unwrap(), worker.unwrap())
    }
}

fn pair() -> (Stream, Stream) {
    let (one, other) = UnixStream::pair().unwrap();
    (Stream::from_fd(one.into()).unwrap(), Stream::from_fd(other.into()).unwrap())
}

type Established = Result<Link, LinkError>;

fn establish_both(client: Stream, worker: Stream) -> (Established, Established) {
    thread::scope(|scope| {
        let client = scope.spawn(|| establish(client, FEATURES, Side::Client, anything));
        let worker = establish(worker, FEATURES, Side::Worker, anything);
        (client.join().unwrap(), worker)
    })
}

fn anything(_: &FrameHeader) -> Result<(), FrameError> {
    Ok(())
}

fn soon() -> Patience {
    Patience::Until(penstock_trial::deadline())
}

/// Sends a payload twice.
fn check_works(out: &Link, back: &mut Link) {
    let bytes: Vec<u8> = (0..100_000_u32).map(|number| number.to_le_bytes()[1]).collect();
    for _ in 0..2 {
        let call = to_worker::InitBuffer { mem: Id::new(7), offset: U64::new(0) };
        out.0.send(&call, &[], &bytes).unwrap();
        out.0.flush().unwrap();
        let mut got = vec![0; bytes.len()];
        back.1.receive(soon(), &mut |_, payload| payload.read(&mut got)).unwrap();
        assert_eq!(got, bytes);
    }
}

fn check_both_ways(client: &mut Link, worker: &mut Link) {
    check_works(client, worker);
    check_works(worker, client);
}

#[test]
fn a_link_moves_into_a_part_and_its_arena_is_one_memory() {
    let shared = Shared::new("use", 2);
    let part = shared.region.take().unwrap();
    let (outcome, mut client, mut worker) = shared.link(Some(&part), &shared.file.path);
    assert_eq!(outcome, MemoryUse::Shared);
    check_both_ways(&mut client, &mut worker);
    let (ours, theirs) = (client.0.arena().unwrap(), worker.0.arena().unwrap());
    assert_eq!(ours.bytes(), theirs.bytes());
    assert!(ours.write(4096, b"water"));
    let mut bytes = [0; 5];
    assert!(theirs.read(4096, &mut bytes));
    assert_eq!(&bytes, b"water");
    ours.discard(4096, 4096);
    assert!(theirs.read(4096, &mut bytes));
    assert_eq!(bytes, [0; 5]);
}

#[test]
fn a_client_that_sees_no_region_stays_on_the_connection() {
    let shared = Shared::new("ours", 1);
    let other = Shared::new("other", 1);
    let part = shared.region.take().unwrap();
    let empty = TestFile::new("empty");
    fs::write(&empty.path, []).unwrap();
    // A copy has the header and its secret, but is not the same memory.
    let copy = TestFile::new("copy");
    fs::copy(&shared.file.path, &copy.path).unwrap();
    for (path, expected) in [
        (Path::new("/dev/shm/penstock-absent"), MemoryUse::Absent),
        (&empty.path, MemoryUse::Foreign),
        (Path::new("/dev/null"), MemoryUse::Foreign),
        (&other.file.path, MemoryUse::Foreign),
        (&copy.path, MemoryUse::Foreign),
    ] {
        let (outcome, mut client, mut worker) = shared.link(Some(&part), path);
        assert_eq!(outcome, expected, "{}", path.display());
        assert!(client.0.arena().is_none() && worker.0.arena().is_none());
        check_both_ways(&mut client, &mut worker);
    }
}

#[test]
fn a_file_that_the_program_may_not_open_is_named_as_that() {
    let shared = Shared::new("denied", 1);
    let part = shared.region.take().unwrap();
    // Not even root may open this file for writing.
    let path = Path::new("/sys/kernel/fscaps");
    let (outcome, mut client, mut worker) = shared.link(Some(&part), path);
    assert_eq!(outcome, MemoryUse::Denied);
    check_both_ways(&mut client, &mut worker);
}

#[test]
fn a_session_beyond_the_parts_stays_on_the_connection() {
    let shared = Shared::new("full", 1);
    let part = shared.region.take().unwrap();
    assert_eq!((shared.region.take().is_none(), shared.region.taken()), (true, 1));
    let (outcome, mut client, mut worker) = shared.link(None, &shared.file.path);
    assert_eq!(outcome, MemoryUse::Full);
    check_both_ways(&mut client, &mut worker);
    drop(part);
    assert!(shared.region.take().is_some());
}

#[test]
fn a_part_is_clear_when_it_is_used_again() {
    let shared = Shared::new("clear", 1);
    let part = shared.region.take().unwrap();
    let (_, mut client, mut worker) = shared.link(Some(&part), &shared.file.path);
    check_both_ways(&mut client, &mut worker);
    let arena = client.0.arena().unwrap();
    let bytes = arena.bytes();
    assert!(arena.write(0, &vec![7; bytes]));
    drop((client, worker, part));
    let part = shared.region.take().unwrap();
    let (outcome, mut client, mut worker) = shared.link(Some(&part), &shared.file.path);
    assert_eq!(outcome, MemoryUse::Shared);
    let mut seen = vec![1; bytes];
    assert!(client.0.arena().unwrap().read(0, &mut seen));
    assert!(seen.iter().all(|&byte| byte == 0), "the bytes of the first session are still there");
    check_both_ways(&mut client, &mut worker);
}

#[test]
fn a_part_that_a_program_still_has_mapped_is_not_used_again() {
    let shared = Shared::new("held", 1);
    let part = shared.region.take().unwrap();
    let (_, client, worker) = shared.link(Some(&part), &shared.file.path);
    // The program keeps a pointer into a buffer, also after the end of the link.
    let arena = client.0.arena().unwrap().clone();
    drop((client, worker));
    assert!(arena.write(0, b"late"));
    let (outcome, mut client, mut worker) = shared.link(Some(&part), &shared.file.path);
    assert_eq!(outcome, MemoryUse::Held);
    check_both_ways(&mut client, &mut worker);
    drop(arena);
    let (outcome, ..) = shared.link(Some(&part), &shared.file.path);
    assert_eq!(outcome, MemoryUse::Shared);
}

#[test]
fn a_daemon_that_starts_anew_takes_the_file_over() {
    let Shared { region, file } = Shared::new("anew", 1);
    let memory = file.memory(None, Some(1));
    let used = Region::open(&memory).unwrap_err().to_string();
    assert!(used.contains("another daemon uses it"), "{used}");
    let path = file.path.clone();
    let of_first = File::open(&path).unwrap();
    drop(region);
    let shared = Shared { region: Region::open(&memory).unwrap(), file };
    let part = shared.region.take().unwrap();
    let (outcome, ..) = shared.link(Some(&part), &path);
    assert_eq!(outcome, MemoryUse::Shared);
    // The guest has the file open already, so it must still be the same.
    let ino = |file: &File| std::os::unix::fs::MetadataExt::ino(&file.metadata().unwrap());
    assert_eq!(ino(&of_first), ino(&File::open(&path).unwrap()));
}

#[test]
fn a_file_that_cannot_be_a_region_is_refused() {
    let file = TestFile::new("bad");
    let refusal = |bytes, sessions| file.refusal(bytes, sessions);
    assert!(refusal(Some(3 * MIB), None).contains("no power of two"));
    for bytes in [1, 2048, 4096, 16 * MIB] {
        assert!(refusal(Some(bytes), Some(5)).contains("allow fewer sessions"), "{bytes}");
        assert_eq!(fs::metadata(&file.path).unwrap().len(), 0, "a refused size was kept");
    }
    File::options().write(true).open(&file.path).unwrap().set_len(16 * MIB).unwrap();
    assert!(refusal(Some(32 * MIB), None).contains("it has 16777216 bytes already"));
    assert!(refusal(None, Some(0)).contains("is not from 1 to"));
    fs::set_permissions(&file.path, Permissions::from_mode(0o666)).unwrap();
    assert!(refusal(None, Some(1)).contains("chmod o="));
    fs::remove_file(&file.path).unwrap();
    fs::create_dir(&file.path).unwrap();
    assert!(refusal(None, None).contains("Is a directory"));
    fs::remove_dir(&file.path).unwrap();
    std::os::unix::fs::symlink("/dev/null", &file.path).unwrap();
    assert!(refusal(None, None).contains("symbolic links"));
    let null = GuestMemory { path: "/dev/null".into(), bytes: None, sessions: None };
    assert!(Region::open(&null).unwrap_err().to_string().contains("is not a regular file"));
}

/// Talks as a worker or as a client that does what it likes.
struct Liar(Stream);

impl Liar {
    fn say(&self, message: &[u8]) {
        _ = self.0.write_all_until(message, penstock_trial::deadline());
    }

    fn hear<T: FromZeros + zerocopy::FromBytes + IntoBytes>(&self) -> T {
        let mut message = T::new_zeroed();
        let deadline = penstock_trial::deadline();
        self.0.read_exact_until(message.as_mut_bytes(), deadline).unwrap();
        message
    }
}

fn workers_end(shared: &Shared, part: &Part) -> (Liar, Stream, Settled) {
    let (liar, worker) = pair();
    let settled = Settled::default();
    let worker = worker.with_part(Some(shared.workers_part(part)), settled.clone());
    (Liar(liar), worker, settled)
}

#[test]
fn a_client_that_lies_about_the_memory_gets_none() {
    let shared = Shared::new("liar", 1);
    let part = shared.region.take().unwrap();
    let blank = Taking::new_zeroed();
    let claims = [
        blank,
        Taking { mark: [1; 32], ..blank },
        Taking { outcome: U64::new(MemoryUse::ALL.len() as u64), ..blank },
        Taking { outcome: U64::new(u64::MAX), ..blank },
    ];
    for claim in claims {
        let (liar, worker, settled) = workers_end(&shared, &part);
        thread::scope(|scope| {
            let worker = scope.spawn(|| establish(worker, FEATURES, Side::Worker, anything));
            let _: Offer = liar.hear();
            liar.say(claim.as_bytes());
            let (sender, _receiver) = worker.join().unwrap().unwrap();
            assert!(sender.arena().is_none());
        });
        assert_eq!(settled.get(), Some(&MemoryUse::Foreign));
        if claim.outcome == U64::ZERO {
            let agreed: Agreed = liar.hear();
            assert_eq!(agreed.outcome.get(), MemoryUse::Foreign as u64);
        }
    }
}

#[test]
fn a_client_that_hangs_up_while_it_is_asked_ends_only_its_link() {
    let shared = Shared::new("gone", 1);
    let part = shared.region.take().unwrap();
    let (liar, worker, _) = workers_end(&shared, &part);
    drop(liar);
    let linked = establish(worker, FEATURES, Side::Worker, anything);
    assert!(matches!(linked, Err(LinkError::Closed)), "{linked:?}");
}

/// Returns what a client does with an offer.
fn offered(path: &Path, offer: &[u8]) -> (Established, Option<Taking>) {
    let (client, liar) = pair();
    let (client, liar) = (client.seeing(path.to_owned()), Liar(liar));
    thread::scope(|scope| {
        let linked = scope.spawn(|| establish(client, FEATURES, Side::Client, anything));
        liar.say(offer);
        let mut taking = Taking::new_zeroed();
        let deadline = penstock_trial::deadline();
        let heard = liar.0.read_exact_until(taking.as_mut_bytes(), deadline);
        drop(liar);
        (linked.join().unwrap(), heard.is_ok().then_some(taking))
    })
}

#[test]
fn a_daemon_that_does_not_see_the_region_cannot_make_a_client_use_it() {
    let shared = Shared::new("thief", 1);
    let part = shared.region.take().unwrap();
    let (offset, bytes) = part.place();
    let before = fs::read(&shared.file.path).unwrap();
    let place = Place { offset, bytes };
    let wrong = Key::from_bytes(&[0; 32]);
    let (linked, taking) =
        offered(&shared.file.path, Offer::new(place, [0; 32], &wrong).as_bytes());
    assert!(linked.is_ok());
    assert_eq!(taking.unwrap().outcome.get(), MemoryUse::Foreign as u64);
    let (linked, _) = offered(&shared.file.path, &[0x55; size_of::<Offer>()]);
    assert!(matches!(linked, Err(LinkError::Ring(_))), "{linked:?}");
    assert!(before == fs::read(&shared.file.path).unwrap(), "the client wrote into the region");
}

#[test]
fn a_place_outside_the_region_is_refused_even_if_it_is_proved() {
    let shared = Shared::new("outside", 1);
    let part = shared.region.take().unwrap();
    let (offset, bytes) = part.place();
    let key = shared.workers_part(&part).key;
    for place in [
        Place { offset: 0, bytes },
        Place { offset: offset + 1, bytes },
        Place { offset, bytes: bytes + PAGE_BYTES as u64 },
        Place { offset, bytes: 4096 },
        Place { offset, bytes: bytes - 1 },
        Place { offset: u64::MAX - 4095, bytes },
        Place { offset, bytes: u64::MAX - 4095 },
    ] {
        let (linked, taking) =
            offered(&shared.file.path, Offer::new(place, [9; 32], &key).as_bytes());
        assert!(linked.is_ok());
        assert_eq!(taking.unwrap().outcome.get(), MemoryUse::Foreign as u64, "{place:?}");
    }
}

#[test]
fn a_guest_that_scribbles_into_its_part_ends_only_its_link() {
    let shared = Shared::new("scribble", 1);
    let part = shared.region.take().unwrap();
    let (offset, bytes) = part.place();
    let layout = Layout::of(usize::try_from(bytes).unwrap()).unwrap();
    let mut random = Random::new(5);
    for _ in 0..100 {
        let (outcome, client, mut worker) = shared.link(Some(&part), &shared.file.path);
        assert_eq!(outcome, MemoryUse::Shared);
        let (done, seed) = (AtomicBool::new(false), random.number());
        thread::scope(|scope| {
            scope.spawn(|| {
                let mut random = Random::new(seed);
                let file = File::options().write(true).open(&shared.file.path).unwrap();
                while !done.load(Ordering::Relaxed) {
                    let word = match random.index(3) {
                        0 => random.number(),
                        _ => random.number() % (2 * layout.ring_bytes as u64),
                    };
                    let ring = [layout.to_worker_at, layout.to_client_at][random.index(2)];
                    let at = [0, 128, 256, 384, 4096, 4104][random.index(6)];
                    let at = offset + (ring + at) as u64;
                    file.write_all_at(&word.to_le_bytes(), at).unwrap();
                }
            });
            // A payload that never comes is awaited until the client hangs up.
            scope.spawn(|| {
                thread::sleep(Duration::from_millis(5));
                client.0.close();
            });
            loop {
                let received = worker.1.receive(soon(), &mut |_, payload| {
                    let bytes = usize::try_from(payload.left()).unwrap_or(usize::MAX);
                    payload.read(&mut vec![0; bytes.min(100_000)])
                });
                if received.is_err() {
                    break;
                }
                if worker.0.send(&to_worker::Ping { request: Id::new(1) }, &[], &[]).is_err() {
                    break;
                }
            }
            done.store(true, Ordering::Relaxed);
        });
        drop((client, worker));
    }
}

#[test]
fn a_doorbell_that_does_not_exist_ends_the_link() {
    let shared = Shared::new("junk", 1);
    let part = shared.region.take().unwrap();
    let (liar, worker, _) = workers_end(&shared, &part);
    let copy: OwnedFd = liar.0.as_fd().try_clone_to_owned().unwrap();
    let client = liar.0.seeing(shared.file.path.clone());
    let (client, worker) = establish_both(client, worker);
    let (_client, (_out, mut receiver)) = (client.unwrap(), worker.unwrap());
    rustix::io::write(&copy, b"R\0").unwrap();
    let received = receiver.receive(soon(), &mut |_, _| Ok(()));
    assert!(matches!(received, Err(LinkError::Ring(_))), "{received:?}");
}

#[test]
fn a_wake_up_for_the_other_thread_is_passed_on() {
    use super::bells::{Bell, Bells};
    let (ours, theirs) = pair();
    let (ours, bells) = (ours.into_connection(), Bells::new().unwrap());
    let rings = Bells::new().unwrap();
    let theirs = theirs.into_connection();
    let soon = Some(penstock_trial::deadline());
    let now = || Some(Instant::now());
    for (taker, other) in [(Bell::Reader, Bell::Writer), (Bell::Writer, Bell::Reader)] {
        rings.ring(&*theirs.bytes, other).unwrap();
        assert!(bells.wait(&*ours.bytes, taker, soon).unwrap(), "the byte was not seen");
        assert_eq!(bells.take(&*ours.bytes, taker).unwrap(), None);
        // The byte has left the connection, and the other thread still gets it.
        assert!(!bells.wait(&*ours.bytes, taker, now()).unwrap());
        assert!(bells.wait(&*ours.bytes, other, soon).unwrap(), "the wake-up was lost");
        assert_eq!(bells.take(&*ours.bytes, other).unwrap(), Some(1));
        assert_eq!(bells.take(&*ours.bytes, other).unwrap(), None);
    }
    theirs.bytes.shutdown();
    for bell in [Bell::Reader, Bell::Writer] {
        assert!(bells.wait(&*ours.bytes, bell, soon).unwrap());
        assert!(matches!(bells.take(&*ours.bytes, bell), Err(LinkError::Closed)));
    }
}

#[test]
fn a_client_without_the_daemons_region_hears_no_offer() {
    let (client, worker) = pair();
    let settled: Settled = Arc::new(OnceLock::new());
    let client = client.seeing("/dev/shm/penstock-absent".into());
    let features = client.features() & worker.features();
    assert_eq!(features & feature::GUEST_MEMORY, 0);
    let worker = worker.with_part(None, settled.clone());
    let (mut client, mut worker) = thread::scope(|scope| {
        let client = scope.spawn(|| establish(client, feature::PEERS, Side::Client, anything));
        let worker = establish(worker, feature::PEERS, Side::Worker, anything).unwrap();
        (client.join().unwrap().unwrap(), worker)
    });
    check_both_ways(&mut client, &mut worker);
    assert!(settled.get().is_none());
}
