//! Memory that a guest shares with its host: a region, which carries the frames and the buffers of
//! sessions beside a connection of any transport.
//!
//! On the host a region is a file in memory. The hypervisor shows it to one guest as the memory of
//! a PCI device (QEMU's `ivshmem-plain`). The daemon gives a part of the region to each session of
//! that guest. The connection then carries only wake-ups, and its hang-up ends the link. Decision
//! 46 has the reasons.
//!
//! ```text
//! worker                                   client
//! mark in the part
//! Offer { place, salt, proof }        ->   finds the device by the proof, locks the part,
//!                                          puts its mark into the part
//!                                     <-   Taking { outcome, mark, proof of the worker's mark }
//! compares the mark, clears the part
//! Agreed { outcome }                  ->   only after a part was taken
//! ```
//! The proofs are HMACs under the secret in the region's header. So no daemon can make a client use
//! a region of another one, and no client can use a region that it does not see. The marks are
//! fresh, so a copy of the region does not pass for the region.

mod bells;
mod guest;
pub(crate) mod host;
pub(crate) mod layout;
mod lock;
mod parts;

use std::io::IoSlice;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::atomic::{Ordering, fence};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use penstock_process::Lock;
use penstock_wire::U64;
use penstock_wire::hello::feature;
use penstock_wire::limits::HELLO_MS_MAX;
use rustix::mm::MapFlags;
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes};

use super::contract::{Connection, Credentials, Exposure, Rings, Side, Source, Transport};
use super::exact;
use super::rings::ring::{DATA_AT, Map};
use super::syscall::Readiness;
use crate::arena::Arena;
use crate::error::LinkError;
use crate::instance::End;
use crate::key::fill_random;
use crate::piece::{Held, Piece, Window};
use crate::standard::FIRST_OTHER;
use crate::wait::Policy;
use bells::{Bell, Bells, WritersBell};
use guest::Taken;
use host::{Region, WorkersPart};
pub use layout::MemoryUse;
use layout::WORKERS_MARK_AT;
use layout::{Agreed, CLIENTS_MARK_AT, Layout, Mark, Offer, PAGE_BYTES, Place, Taking};
use zeroize::Zeroizing;

/// What came of an offer; empty before both sides have agreed.
pub type Settled = Arc<OnceLock<MemoryUse>>;

/// Connection beside which there may be a region.
#[derive(Debug)]
struct Beside {
    over: Box<dyn Connection>,
    holder: Holder,
    /// Set once the bytes of the link move through the region.
    bells: OnceLock<Arc<Bells>>,
}

/// The process at this end of the connection, and what it needs for a region.
#[derive(Debug)]
enum Holder {
    /// A client, which looks for the region when a worker offers a part of one: at this path only,
    /// or among the devices of this machine.
    Client(Option<PathBuf>),
    /// The daemon, which accepted the connection at the address of the region's guest.
    Daemon(Arc<Region>),
    /// A worker, with its part if one was free.
    Worker { part: Lock<Option<Box<WorkersPart>>>, settled: Settled },
}

fn beside(over: Box<dyn Connection>, holder: Holder) -> Box<dyn Connection> {
    Box::new(Beside { over, holder, bells: OnceLock::new() })
}

/// Adds the client's side to a connection that shares no memory by itself.
pub(crate) fn for_client(over: Box<dyn Connection>) -> Box<dyn Connection> {
    if over.why_no_shared_memory().is_some() { beside(over, Holder::Client(None)) } else { over }
}

/// Like [`for_client`], for a client that looks at this file only.
pub(crate) fn for_client_at(over: Box<dyn Connection>, path: PathBuf) -> Box<dyn Connection> {
    beside(over, Holder::Client(Some(path)))
}

/// Adds the region of the guest at whose address the daemon accepted the connection.
pub(crate) fn for_daemon(over: Box<dyn Connection>, region: Arc<Region>) -> Box<dyn Connection> {
    beside(over, Holder::Daemon(region))
}

/// Adds the part that the daemon gave to the worker.
pub(crate) fn for_worker(
    over: Box<dyn Connection>,
    part: Option<WorkersPart>,
    settled: Settled,
) -> Box<dyn Connection> {
    beside(over, Holder::Worker { part: Lock::new(part.map(Box::new)), settled })
}

impl Beside {
    fn talk(&self) -> Talk<'_> {
        let deadline = Instant::now() + Duration::from_millis(HELLO_MS_MAX);
        Talk { over: &*self.over, deadline }
    }

    /// Returns the same connection with a descriptor of its own.
    fn copy(&self) -> Result<Box<dyn Connection>, LinkError> {
        let doing = "copying a descriptor";
        let socket = rustix::io::fcntl_dupfd_cloexec(&self.over, FIRST_OTHER);
        let socket = socket.map_err(LinkError::system(doing))?;
        let copy = self.over.transport().adopt(socket, &self.over.state()?);
        copy.map_err(LinkError::system(doing))
    }

    /// Takes the part that the worker offers, if the region is seen here.
    fn take(&self, path: Option<&Path>, features: u64) -> Result<Option<Rings>, LinkError> {
        let talk = self.talk();
        let offer: Offer = talk.hear()?;
        if !offer.is_of_this_protocol() {
            return Err(LinkError::Ring("the peer offered no part of a region"));
        }
        let Some(place) = offer.place() else { return Ok(None) };
        let with_arena = features & feature::SHARED_ARENA != 0;
        let taken = guest::find(&offer, path).and_then(|device| device.take(place));
        let taken = taken.and_then(|taken| taken_up(&taken, &offer, with_arena));
        let (mapped, taking) = match taken {
            Ok(taken) => taken,
            Err(why) => {
                talk.say(&Taking { outcome: U64::new(why as u64), ..Taking::new_zeroed() })?;
                return Ok(None);
            }
        };
        talk.say(&taking)?;
        let Agreed { outcome } = talk.hear()?;
        if outcome.get() != MemoryUse::Shared as u64 {
            return Ok(None);
        }
        let Mapped { to_worker, to_client, arena, bells, .. } = mapped;
        self.rings(to_worker, to_client, arena, bells).map(Some)
    }

    /// Offers a part to the client.
    fn offer(
        &self,
        part: Option<Box<WorkersPart>>,
    ) -> Result<(MemoryUse, Option<Rings>), LinkError> {
        let talk = self.talk();
        let prepared = match part {
            None => Err(MemoryUse::Full),
            Some(part) => match Mapped::new(&part.file, part.place, part.layout, true) {
                Ok(mapped) => Ok((part, mapped)),
                Err(_) => Err(MemoryUse::Lacking),
            },
        };
        let (part, mapped) = match prepared {
            Ok(prepared) => prepared,
            Err(why) => {
                talk.say(&Offer::none())?;
                return Ok((why, None));
            }
        };
        let mark = random()?;
        mapped.marks.write(WORKERS_MARK_AT, &mark);
        fence(Ordering::SeqCst);
        let offer = Offer::new(part.place, random()?, &part.key);
        talk.say(&offer)?;
        let taking: Taking = talk.hear()?;
        match MemoryUse::from_wire(taking.outcome.get()) {
            Some(MemoryUse::Shared) => {}
            declined => return Ok((declined.unwrap_or(MemoryUse::Foreign), None)),
        }
        fence(Ordering::SeqCst);
        let mut seen = Mark::default();
        mapped.marks.read(CLIENTS_MARK_AT, &mut seen);
        let is_same = seen == taking.mark && part.key.verify(&offer.seen(&mark), &taking.proof);
        let outcome = match is_same {
            false => MemoryUse::Foreign,
            true if part.clear().is_err() => MemoryUse::Lacking,
            true => MemoryUse::Shared,
        };
        talk.say(&Agreed { outcome: U64::new(outcome as u64) })?;
        if outcome != MemoryUse::Shared {
            return Ok((outcome, None));
        }
        let Mapped { to_worker, to_client, arena, bells, .. } = mapped;
        let rings = self.rings(to_client, to_worker, arena, bells)?;
        Ok((outcome, Some(rings)))
    }

    fn rings(
        &self,
        out: Arc<Map>,
        back: Arc<Map>,
        arena: Option<Arc<Arena>>,
        bells: Arc<Bells>,
    ) -> Result<Rings, LinkError> {
        let space = WritersBell { bells: bells.clone(), over: self.copy()? };
        // A link is made once of a connection.
        _ = self.bells.set(bells);
        let policy = Policy::ACROSS_MACHINES;
        Ok(Rings { out, back, space: Box::new(space), policy, arena })
    }
}

/// What one side has mapped of a part, and its doorbells.
struct Mapped {
    marks: Window,
    to_worker: Arc<Map>,
    to_client: Arc<Map>,
    arena: Option<Arc<Arena>>,
    bells: Arc<Bells>,
}

impl Mapped {
    fn new(
        held: &Arc<Held>,
        place: Place,
        layout: Layout,
        with_arena: bool,
    ) -> Result<Self, LinkError> {
        let piece = |at: usize, bytes: usize, flags: MapFlags| -> Result<Piece, LinkError> {
            let window = Window::map(held.as_fd(), place.offset + at as u64, bytes, flags)?;
            Ok(Piece { window, _held: held.clone() })
        };
        let ring = |at: usize| -> Result<Arc<Map>, LinkError> {
            let bytes = DATA_AT + layout.ring_bytes;
            Map::of_piece(piece(at, bytes, MapFlags::empty())?, layout.ring_bytes)
        };
        let arena = if with_arena {
            let piece = piece(layout.arena_at, layout.arena_bytes, MapFlags::NORESERVE)?;
            Some(Arc::new(Arena::of_piece(piece)))
        } else {
            None
        };
        Ok(Self {
            marks: Window::map(held.as_fd(), place.offset, PAGE_BYTES, MapFlags::empty())?,
            to_worker: ring(layout.to_worker_at)?,
            to_client: ring(layout.to_client_at)?,
            arena,
            bells: Arc::new(Bells::new()?),
        })
    }
}

/// Maps a part that this process has locked, and makes the answer to the worker.
fn taken_up(taken: &Taken, offer: &Offer, with_arena: bool) -> Result<(Mapped, Taking), MemoryUse> {
    let Taken { held, place, layout, key } = taken;
    let lacking = |_| MemoryUse::Lacking;
    let whole = place.offset + layout.to_worker_at as u64;
    let trial = Window::map(held.as_fd(), whole, layout.ring_bytes, MapFlags::empty());
    // The lock of a device's file is possible where mapping is not: a locked-down kernel.
    if guest::is_uncached(&trial.map_err(|_| MemoryUse::Denied)?) {
        return Err(MemoryUse::Uncached);
    }
    let mapped = Mapped::new(held, *place, *layout, with_arena);
    let mapped = mapped.map_err(lacking)?;
    let ours = random().map_err(lacking)?;
    mapped.marks.write(CLIENTS_MARK_AT, &ours);
    let mut theirs = Mark::default();
    mapped.marks.read(WORKERS_MARK_AT, &mut theirs);
    fence(Ordering::SeqCst);
    let outcome = U64::new(MemoryUse::Shared as u64);
    let proof = key.prove(&offer.seen(&theirs));
    Ok((mapped, Taking { outcome, mark: ours, proof }))
}

fn random() -> Result<Mark, LinkError> {
    let mut bytes = Mark::default();
    fill_random(&mut bytes)?;
    Ok(bytes)
}

/// Messages about a region, each of fixed size, before a deadline.
struct Talk<'a> {
    over: &'a dyn Connection,
    deadline: Instant,
}

impl Talk<'_> {
    fn say<T: IntoBytes + Immutable>(&self, message: &T) -> Result<(), LinkError> {
        exact::write_all_until(self.over, message.as_bytes(), self.deadline)
    }

    fn hear<T: FromBytes + IntoBytes>(&self) -> Result<T, LinkError> {
        let mut message = T::new_zeroed();
        exact::read_exact_until(self.over, message.as_mut_bytes(), self.deadline)?;
        Ok(message)
    }
}

impl AsFd for Beside {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.over.as_fd()
    }
}

impl Connection for Beside {
    fn transport(&self) -> &'static dyn Transport {
        self.over.transport()
    }

    fn peer(&self) -> String {
        self.over.peer()
    }

    fn source(&self) -> Source {
        self.over.source()
    }

    fn credentials(&self) -> std::io::Result<Option<Credentials>> {
        self.over.credentials()
    }

    fn ends(&self) -> Option<(End, End)> {
        self.over.ends()
    }

    fn exposure(&self) -> Exposure {
        self.over.exposure()
    }

    fn encryption(&self) -> Option<&'static str> {
        self.over.encryption()
    }

    fn passes_descriptors(&self) -> bool {
        self.over.passes_descriptors()
    }

    fn why_no_shared_memory(&self) -> Option<&'static str> {
        self.over.why_no_shared_memory()
    }

    fn features(&self) -> u64 {
        self.over.features() | feature::GUEST_MEMORY | feature::SHARED_ARENA
    }

    fn region(&self) -> Option<&Arc<Region>> {
        match &self.holder {
            Holder::Daemon(region) => Some(region),
            _ => None,
        }
    }

    fn share_memory(&self, features: u64, side: Side) -> Result<Option<Rings>, LinkError> {
        if features & feature::GUEST_MEMORY == 0 {
            return self.over.share_memory(features, side);
        }
        match &self.holder {
            Holder::Client(path) => self.take(path.as_deref(), features),
            Holder::Worker { part, settled } => {
                let part = part.lock().take();
                let (outcome, rings) = self.offer(part)?;
                _ = settled.set(outcome);
                Ok(rings)
            }
            Holder::Daemon(_) => Ok(None),
        }
    }

    fn state(&self) -> Result<Zeroizing<Vec<u8>>, LinkError> {
        self.over.state()
    }

    fn into_socket(self: Box<Self>) -> OwnedFd {
        self.over.into_socket()
    }

    fn send_now(&self, pieces: &[IoSlice<'_>]) -> Result<Option<usize>, LinkError> {
        match self.bells.get() {
            Some(bells) => bells.ring(&*self.over, Bell::Reader),
            None => self.over.send_now(pieces),
        }
    }

    fn recv_now(&self, into: &mut [u8]) -> Result<Option<usize>, LinkError> {
        match self.bells.get() {
            Some(bells) => bells.take(&*self.over, Bell::Reader),
            None => self.over.recv_now(into),
        }
    }

    fn wait(&self, what: Readiness, deadline: Option<Instant>) -> Result<bool, LinkError> {
        match (self.bells.get(), what) {
            (Some(bells), Readiness::Readable) => bells.wait(&*self.over, Bell::Reader, deadline),
            _ => self.over.wait(what, deadline),
        }
    }

    fn has_waiting(&self) -> bool {
        self.over.has_waiting()
    }

    fn has_hung_up(&self) -> bool {
        self.over.has_hung_up()
    }

    fn why_hung_up(&self) -> LinkError {
        self.over.why_hung_up()
    }

    fn vanished(&self) -> bool {
        self.over.vanished()
    }

    fn shutdown(&self) {
        self.over.shutdown();
    }
}

#[cfg(test)]
mod tests;
