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

use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::sync::atomic::{Ordering, fence};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use penstock_wire::U64;
use penstock_wire::hello::feature;
use penstock_wire::limits::HELLO_MS_MAX;
use rustix::mm::MapFlags;
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes};

use super::contract::{Bytes, Connection};
use super::exact;
use super::rings::Rings;
use super::rings::ring::{DATA_AT, Map};
use crate::arena::Arena;
use crate::error::LinkError;
use crate::key::fill_random;
use crate::piece::{Held, Piece, Window};
use crate::wait::Policy;
use bells::{Bell, Bells, Rung};
use guest::Taken;
use host::{Region, WorkersPart};
pub use layout::MemoryUse;
use layout::WORKERS_MARK_AT;
use layout::{Agreed, CLIENTS_MARK_AT, Layout, Mark, Offer, PAGE_BYTES, Place, Taking};

/// What came of an offer; empty before both sides have agreed.
pub type Settled = Arc<OnceLock<MemoryUse>>;

/// Features that a link gets by a region.
pub(crate) const FEATURES: u64 = feature::GUEST_MEMORY | feature::SHARED_ARENA;

/// The process at this end of the connection, and what it needs for a region.
#[derive(Debug)]
pub(crate) enum Holder {
    /// A client, which looks for the region when a worker offers a part of one: at this path only,
    /// or among the devices of this machine.
    Client(Option<PathBuf>),
    /// The daemon, which accepted the connection at the address of the region's guest.
    Daemon(Arc<Region>),
    /// A worker, with its part if one was free.
    Worker { part: Option<Box<WorkersPart>>, settled: Settled },
}

/// Agrees with the peer, which calls this too, on memory that carries the frames from now on. The
/// connection then carries only wake-ups.
///
/// # Errors
/// Fails if the peer hung up or its memory is not as agreed.
pub(crate) fn agree(
    connection: Connection,
    holder: Holder,
    features: u64,
) -> Result<(Connection, Option<Rings>), LinkError> {
    let deadline = Instant::now() + Duration::from_millis(HELLO_MS_MAX);
    let talk = Talk { over: &connection, deadline };
    let shared = match holder {
        Holder::Client(path) => talk.take(path.as_deref(), features)?,
        Holder::Worker { part, settled } => {
            let (outcome, shared) = talk.offer(part)?;
            _ = settled.set(outcome);
            shared
        }
        Holder::Daemon(_) => None,
    };
    let Some(Shared { out, back, arena, bells }) = shared else { return Ok((connection, None)) };
    let Connection { bytes, facts, liveness } = connection;
    let over: Arc<dyn Bytes> = bytes.into();
    let rung = |bell| Connection {
        bytes: Box::new(Rung { bells: bells.clone(), bell, over: over.clone() }),
        facts: facts.clone(),
        liveness: liveness.clone(),
    };
    let (space, policy) = (rung(Bell::Writer), Policy::ACROSS_MACHINES);
    Ok((rung(Bell::Reader), Some(Rings { out, back, space, policy, arena })))
}

/// Memory on which both sides have agreed, as this side sees it.
struct Shared {
    out: Arc<Map>,
    back: Arc<Map>,
    arena: Option<Arc<Arena>>,
    bells: Arc<Bells>,
}

impl Talk<'_> {
    /// Takes the part that the worker offers, if the region is seen here.
    fn take(&self, path: Option<&Path>, features: u64) -> Result<Option<Shared>, LinkError> {
        let offer: Offer = self.hear()?;
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
                self.say(&Taking { outcome: U64::new(why as u64), ..Taking::new_zeroed() })?;
                return Ok(None);
            }
        };
        self.say(&taking)?;
        let Agreed { outcome } = self.hear()?;
        if outcome.get() != MemoryUse::Shared as u64 {
            return Ok(None);
        }
        let Mapped { to_worker, to_client, arena, bells, .. } = mapped;
        Ok(Some(Shared { out: to_worker, back: to_client, arena, bells }))
    }

    /// Offers a part to the client.
    fn offer(
        &self,
        part: Option<Box<WorkersPart>>,
    ) -> Result<(MemoryUse, Option<Shared>), LinkError> {
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
                self.say(&Offer::none())?;
                return Ok((why, None));
            }
        };
        let mark = random()?;
        mapped.marks.write(WORKERS_MARK_AT, &mark);
        fence(Ordering::SeqCst);
        let offer = Offer::new(part.place, random()?, &part.key);
        self.say(&offer)?;
        let taking: Taking = self.hear()?;
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
        self.say(&Agreed { outcome: U64::new(outcome as u64) })?;
        if outcome != MemoryUse::Shared {
            return Ok((outcome, None));
        }
        let Mapped { to_worker, to_client, arena, bells, .. } = mapped;
        Ok((outcome, Some(Shared { out: to_client, back: to_worker, arena, bells })))
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
    over: &'a Connection,
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

#[cfg(test)]
mod tests;
