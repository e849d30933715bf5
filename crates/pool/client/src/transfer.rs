//! Moves a memory object's content from one place to another, from worker to worker or, if the
//! workers have no link, through the client.

use std::sync::Arc;

use penstock_process::Lock;
use penstock_wire::calls::to_worker;
use penstock_wire::id::kind;
use penstock_wire::{Id, Status, U64};

use penstock_coherence::{Fetch, Source};
use penstock_trial::{Defect, planted};

use crate::context::Context;
use crate::error::{Error, Result};
use crate::event::{Event, wire_waits};
use crate::memory::{Memory, MemoryKind};
use crate::order::Transfer;
use crate::peer::peer_id;
use crate::queue::Range;
use crate::session::Session;
use crate::summary::Command;

/// Makes the events (departure and arrival) of a transfer between places. They are events of the
/// workers, or of the client if it relays.
pub(crate) fn events(context: &Context, fetch: &Fetch) -> (Event, Event) {
    let (departure, arrival) = (Id::new(fetch.departure.0), Id::new(fetch.arrival.0));
    let of_client = || (Event::of_client(departure), Event::of_client(arrival));
    let Source::Place(source) = fetch.source else { return of_client() };
    let places = context.places();
    match (places.get(source), places.get(fetch.target)) {
        (Some(from), Some(to)) if names(from.session(), to.session()).is_some() => (
            Event::of_command(from.session(), departure, true),
            Event::of_command(to.session(), arrival, true),
        ),
        _ => of_client(),
    }
}

/// Returns the names under which two workers know each other: that of the target at the source,
/// then that of the source at the target. Within one worker no names are needed.
fn names_of(from: &Session, to: &Session) -> (Id<kind::Peer>, Id<kind::Peer>) {
    if from.node() == to.node() { (Id::NONE, Id::NONE) } else { (peer_id(to), peer_id(from)) }
}

/// As [`names_of`]. Returns `None` if the workers have no link.
fn names(from: &Arc<Session>, to: &Arc<Session>) -> Option<(Id<kind::Peer>, Id<kind::Peer>)> {
    let are_linked = from.node() == to.node() || from.peer(to).and(to.peer(from)).is_some();
    are_linked.then(|| names_of(from, to))
}

/// Starts moving a part of the root of `object` from one place to another. Only buffers have parts;
/// other objects move whole.
pub(crate) fn start(object: &Arc<Memory>, transfer: &Transfer) -> Result<()> {
    let memory = object.root();
    let Fetch { start, end, target, .. } = transfer.fetch;
    let Source::Place(source) = transfer.fetch.source else {
        return memory.bring_initial(target, start, end);
    };
    let part = Range { offset: start, size: end - start };
    let places = memory.context().places();
    let (Some(from), Some(to)) = (places.get(source), places.get(target)) else {
        return Err(Error::ContentLost);
    };
    let (departure, arrival) = (&transfer.departure, &transfer.arrival);
    let is_relayed = departure.is_of_client();
    // The link may be lost since the events were made. The workers then end the transfer, because
    // the names say that it is one between them.
    let names = if planted(Defect::NamesLost) {
        names(from.session(), to.session()).unwrap_or((Id::NONE, Id::NONE))
    } else {
        names_of(from.session(), to.session())
    };
    let end = |session, place: usize, waits, event, other| End {
        session,
        mem: memory.id_at(place),
        waits,
        event,
        other,
    };
    let from = end(from.session(), source, &transfer.source_waits, departure, names.0);
    let to = end(to.session(), target, &transfer.target_waits, arrival, names.1);
    if is_relayed {
        relayed(object, part, &from, &to);
        Ok(())
    } else {
        direct((&from, part), (&to, part))
    }
}

impl Memory {
    /// Copies bytes of a buffer to a buffer of another context, from worker to worker, if both
    /// contexts have one place each. The copy starts now, in no queue's order, but after the
    /// blocking writes of both contexts that have returned. The returned event ends when the bytes
    /// have arrived. Returns `None` if the workers have no link, so that the caller must read and
    /// write instead.
    ///
    /// # Errors
    /// If a node is lost.
    pub fn copy_to(
        &self,
        offset: u64,
        target: &Self,
        target_offset: u64,
        size: u64,
    ) -> Result<Option<Event>> {
        let ([from], [to]) = (self.context().places(), target.context().places()) else {
            return Ok(None);
        };
        let (from, to) = (from.session(), to.session());
        if from.node() != to.node()
            && let Some(peers) = from.peers()
        {
            peers.link(&[from, to]);
        }
        let Some((receiver, sender)) = names(from, to) else { return Ok(None) };
        let departure = Event::of_command(from, crate::ids::next_id(), true);
        let arrival = Event::of_command(to, crate::ids::next_id(), true);
        let (source_waits, target_waits) =
            (self.context().unsettled(), target.context().unsettled());
        let from = End {
            session: from,
            mem: self.id_at(0),
            waits: &source_waits,
            event: &departure,
            other: receiver,
        };
        let to = End {
            session: to,
            mem: target.id_at(0),
            waits: &target_waits,
            event: &arrival,
            other: sender,
        };
        direct((&from, Range { offset, size }), (&to, Range { offset: target_offset, size }))?;
        Ok(Some(arrival))
    }
}

/// One side of a transfer.
struct End<'a> {
    session: &'a Arc<Session>,
    mem: Id<kind::Mem>,
    waits: &'a [Event],
    /// Ends with this side's part of the transfer.
    event: &'a Event,
    /// The name under which this side's worker knows that of the other side.
    other: Id<kind::Peer>,
}

fn direct((from, taken): (&End<'_>, Range), (to, given): (&End<'_>, Range)) -> Result<()> {
    let transfer = crate::ids::next_id();
    to.event.expect_at(to.session)?;
    let (mem, event, peer) = (to.mem, to.event.0.id, to.other);
    let (offset, size) = (U64::new(given.offset), U64::new(given.size));
    let receive = to_worker::ReceiveMem { mem, event, transfer, peer, offset, size };
    to.session.send(&receive, &wire_waits(to.waits, to.session), &[])?;

    from.event.expect_at(from.session)?;
    // Both workers may hold back commands that these events wait for.
    from.event.receive_past_reads();
    to.event.receive_past_reads();
    let (mem, event, peer) = (from.mem, from.event.0.id, from.other);
    let (offset, size) = (U64::new(taken.offset), U64::new(taken.size));
    let send = to_worker::SendMem { mem, event, transfer, peer, offset, size };
    // The source is sent only when the target can take it. Content that came too early would wait
    // in its worker's memory. With a gigabyte of such content that worker stops reading, and the
    // commands that make the targets ready may be behind it on the same link. Within one worker
    // source and target wait for each other anyway, and there the failure of a transfer to the
    // target is no reason to fail.
    let ready = if peer.is_none() { &[] } else { to.waits };
    let waits: Vec<Event> = from.waits.iter().chain(ready).cloned().collect();
    from.session.send(&send, &wire_waits(&waits, from.session), &[])?;
    if !peer.is_none() {
        count(from.session, taken);
    }
    // The target's worker waits for this one, and the program may not flush it again.
    from.session.flush()
}

/// Transfers through the client, in a separate thread. This is slow, but works if nodes do not
/// reach each other.
fn relayed(object: &Arc<Memory>, part: Range, from: &End<'_>, to: &End<'_>) {
    count(from.session, part);
    let job = Relay {
        _object: object.clone(),
        part,
        image: match object.root().kind() {
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
    let (departure, arrival) = (from.event.clone(), to.event.clone());
    let ends = [departure.clone(), arrival.clone()];
    let started = penstock_process::start("penstock-relay", move || {
        let status = job.run(&departure).err().map_or(Status::OK, |error| error.status());
        departure.set_status(status);
        arrival.set_status(status);
    });
    if started.is_err() {
        for event in ends {
            event.set_status(Status::OUT_OF_RESOURCES);
        }
    }
}

fn count(from: &Session, part: Range) {
    if let Some(tally) = from.tally() {
        tally.count(Command::Transfer, part.size);
    }
}

struct Relay {
    /// Keeps the object alive. If the program released it, the workers would release it before the
    /// bytes have arrived.
    _object: Arc<Memory>,
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
        let refused = |status| Error::Refused { node: "client".into(), status };
        let size =
            usize::try_from(self.part.size).map_err(|_| refused(Status::OUT_OF_HOST_MEMORY))?;
        settle(&self.source_waits);
        let bytes = Arc::new(Lock::new(vec![0; size]));
        let fetched = Event::of_command(&self.from, crate::ids::next_id(), true);
        fetched.expect_read_at(&self.from, Box::new(bytes.clone()))?;
        let (transfer, offset, size) =
            (Id::NONE, U64::new(self.part.offset), U64::new(self.part.size));
        // Without a transfer id the worker sends the content to the client, as for a read.
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
        let bytes = bytes.lock();
        let mem = self.target;
        match self.image {
            Some(region) => self.to.send(
                &to_worker::InitImage { mem, origin: [U64::ZERO; 3], region },
                &[],
                &bytes,
            ),
            None => self.to.send(&to_worker::InitBuffer { mem, offset }, &[], &bytes),
        }
    }
}

/// Waits until all events have ended, whether well or not.
fn settle(events: &[Event]) {
    for event in events {
        _ = event.wait();
    }
}
