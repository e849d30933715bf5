//! Moving a memory object's content from one place to another: from worker to worker, or, where they have no link,
//! through the client.

use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use penstock_wire::calls::to_worker;
use penstock_wire::id::kind;
use penstock_wire::{Id, Status, U64};

use crate::command::wire_waits;
use crate::error::Result;
use crate::event::Event;
use crate::memory::{Memory, MemoryKind};
use crate::queue::Range;
use crate::session::Session;

/// A transfer that has been started.
pub(crate) struct Moved {
    /// Ends when the source may change again.
    pub(crate) departure: Event,
    /// Ends when the content has arrived.
    pub(crate) arrival: Event,
}

/// Starts moving a part of `memory` (of anything but a buffer, all of it) from one place to another, after what each of
/// them waits for.
pub(crate) fn start(
    memory: &Memory,
    part: Range,
    (source, source_waits): (usize, &[Event]),
    (target, target_waits): (usize, &[Event]),
) -> Result<Moved> {
    let places = memory.context().places();
    let (Some(from), Some(to)) = (places.get(source), places.get(target)) else {
        return Ok(Moved {
            departure: Event::ended(Status::INVALID_CONTEXT),
            arrival: Event::ended(Status::INVALID_CONTEXT),
        });
    };
    let same_node = from.session().node() == to.session().node();
    let peers = if same_node {
        Some((Id::NONE, Id::NONE))
    } else {
        from.session().peer(to.session()).zip(to.session().peer(from.session()))
    };
    let (receiver, sender) = peers.unwrap_or((Id::NONE, Id::NONE));
    let from =
        End { session: from.session(), mem: memory.id_at(source), waits: source_waits, other: receiver };
    let to = End { session: to.session(), mem: memory.id_at(target), waits: target_waits, other: sender };
    match peers {
        Some(_) => direct((&from, part), (&to, part)),
        None => Ok(relayed(memory, part, &from, &to)),
    }
}

impl Memory {
    /// Copies bytes of a buffer to another one of another context, from worker to worker, where both contexts have one place: now, not in
    /// the order of any queue. The event ends when they are there. None: the workers have no link, so whoever needs the copy has to read
    /// and to write.
    ///
    /// # Errors
    /// When a node is lost.
    pub fn copy_to(
        &self,
        offset: u64,
        target: &Self,
        target_offset: u64,
        size: u64,
    ) -> Result<Option<Event>> {
        let ([from], [to]) = (self.context().places(), target.context().places()) else { return Ok(None) };
        let (from, to) = (from.session(), to.session());
        let (receiver, sender) = if from.node() == to.node() {
            (Id::NONE, Id::NONE)
        } else {
            if let Some(peers) = from.peers() {
                peers.link(&[from, to]);
            }
            match from.peer(to).zip(to.peer(from)) {
                Some(names) => names,
                None => return Ok(None),
            }
        };
        let from = End { session: from, mem: self.id_at(0), waits: &[], other: receiver };
        let to = End { session: to, mem: target.id_at(0), waits: &[], other: sender };
        let from = (&from, Range { offset, size });
        let to = (&to, Range { offset: target_offset, size });
        Ok(Some(direct(from, to)?.arrival))
    }
}

/// One side of a transfer.
struct End<'a> {
    session: &'a Arc<Session>,
    mem: Id<kind::Mem>,
    waits: &'a [Event],
    /// The other side's name on this one.
    other: Id<kind::Peer>,
}

fn direct((from, taken): (&End<'_>, Range), (to, given): (&End<'_>, Range)) -> Result<Moved> {
    let transfer = crate::next_id();
    let arrival = Event::of_command(to.session, None);
    to.session.expect(&arrival)?;
    let (mem, event, peer) = (to.mem, arrival.0.id, to.other);
    let (offset, size) = (U64::new(given.offset), U64::new(given.size));
    let receive = to_worker::ReceiveMem { mem, event, transfer, peer, offset, size };
    to.session.send(&receive, &wire_waits(to.waits, to.session), &[])?;

    let departure = Event::of_command(from.session, None);
    from.session.expect(&departure)?;
    let (mem, event, peer) = (from.mem, departure.0.id, from.other);
    let (offset, size) = (U64::new(taken.offset), U64::new(taken.size));
    let send = to_worker::SendMem { mem, event, transfer, peer, offset, size };
    // Not before the target can take it. Content that came too early would wait in its worker's memory; with a gigabyte of it
    // that worker stops reading, and what makes the targets ready may be behind it on the same link.
    // (Within one worker they wait for each other anyway; and there a transfer to the target that failed is no reason to fail.)
    let ready = if peer.is_none() { &[] } else { to.waits };
    let waits: Vec<Event> = from.waits.iter().chain(ready).cloned().collect();
    from.session.send(&send, &wire_waits(&waits, from.session), &[])?;
    // The target's worker waits for this one, and nobody may flush it again.
    from.session.flush()?;
    Ok(Moved { departure, arrival })
}

/// Through the client, by a thread of its own: slow, but it works where nodes do not reach each other.
fn relayed(memory: &Memory, part: Range, from: &End<'_>, to: &End<'_>) -> Moved {
    let moved = Moved { departure: Event::user(), arrival: Event::user() };
    let job = Relay {
        part,
        image: match memory.kind() {
            MemoryKind::Image(shape) => Some(shape.extent.map(|extent| U64::new(extent.max(1)))),
            _ => None,
        },
        from: from.session.clone(),
        source: from.mem,
        source_waits: from.waits.to_vec(),
        to: to.session.clone(),
        target: to.mem,
        target_waits: to.waits.to_vec(),
    };
    let (departure, arrival) = (moved.departure.clone(), moved.arrival.clone());
    let spawned = thread::Builder::new().name("penstock-relay".into()).spawn(move || {
        let status = job.run(&departure).err().map_or(Status::OK, |error| error.status());
        departure.set_status(status);
        arrival.set_status(status);
    });
    if spawned.is_err() {
        moved.departure.set_status(Status::OUT_OF_RESOURCES);
        moved.arrival.set_status(Status::OUT_OF_RESOURCES);
    }
    moved
}

struct Relay {
    part: Range,
    image: Option<[U64; 3]>,
    from: Arc<Session>,
    source: Id<kind::Mem>,
    source_waits: Vec<Event>,
    to: Arc<Session>,
    target: Id<kind::Mem>,
    target_waits: Vec<Event>,
}

impl Relay {
    fn run(&self, departure: &Event) -> Result<()> {
        let refused = |status| crate::Error::Refused { node: "client".into(), status };
        let size = usize::try_from(self.part.size).map_err(|_| refused(Status::OUT_OF_HOST_MEMORY))?;
        settle(&self.source_waits);
        let bytes = Arc::new(Mutex::new(vec![0; size]));
        let fetched = Event::of_command(&self.from, None);
        self.from.expect_read(&fetched, Box::new(bytes.clone()))?;
        let (transfer, offset, size) = (Id::NONE, U64::new(self.part.offset), U64::new(self.part.size));
        // Without a transfer the content comes to the client, as a read's does.
        let call = to_worker::SendMem {
            mem: self.source,
            event: fetched.0.id,
            transfer,
            peer: Id::NONE,
            offset,
            size,
        };
        self.from.send(&call, &[], &[])?;
        fetched.wait().ok().map_err(refused)?;
        departure.set_status(Status::OK);
        settle(&self.target_waits);
        let bytes = bytes.lock().unwrap_or_else(PoisonError::into_inner);
        let mem = self.target;
        match self.image {
            Some(region) => {
                self.to.send(&to_worker::InitImage { mem, origin: [U64::ZERO; 3], region }, &[], &bytes)
            }
            None => self.to.send(&to_worker::InitBuffer { mem, offset }, &[], &bytes),
        }
    }
}

/// Waits until all have ended; how does not matter.
fn settle(events: &[Event]) {
    for event in events {
        _ = event.wait();
    }
}
