//! Transfers of a memory object's content to another worker, to another platform of this worker, or
//! to the client.
//!
//! Both ends wait for their wait lists in software: a transfer has no place in the client's queues,
//! and in a queue of its own one transfer would wait for another.

use std::sync::Arc;

use penstock_device as device;
use penstock_device::{HomeBytes, Staged, Times, Want};
use penstock_link::Body;
use penstock_process::Lock;
use penstock_trial::{Defect, planted};
use penstock_wire::calls::{Serve, to_client, to_peer, to_worker};
use penstock_wire::id::kind;
use penstock_wire::{FrameError, I32, Id, Payload, Status, U64, limits};
use rustc_hash::FxHashMap;

use super::event::Event;
use super::pieces::Area;
use super::read::Piece;
use super::write::into_home;
use super::{Session, Shared};

/// Key of a transfer to this worker: its id, and the peer that sends the content (none for another
/// platform of this worker). Content from another peer under the same id belongs to another
/// transfer, even if it comes before the client names the target.
pub(super) type Source = (Id<kind::Transfer>, Id<kind::Peer>);

/// Transfers to this worker.
#[derive(Default)]
pub(crate) struct Transfers {
    table: Lock<FxHashMap<Source, Incoming>>,
}

/// A transfer of which only one end is known.
#[derive(Default)]
struct Incoming {
    /// Target of the content, once known.
    target: Option<Target>,
    /// Whether the target's wait list has ended.
    ready: bool,
    /// Content that came before it could be used.
    content: Option<Result<Content, Status>>,
}

struct Target {
    mem: device::Mem,
    area: Area,
    event: Arc<Event>,
}

/// Content of a memory object, on its way.
enum Content {
    Staged(Staged),
    /// The source's own memory, in this process.
    Home(HomeBytes),
}

impl Content {
    fn len(&self) -> usize {
        match self {
            Self::Staged(bytes) => bytes.len(),
            Self::Home(bytes) => bytes.len(),
        }
    }
}

impl AsRef<[u8]> for Content {
    fn as_ref(&self) -> &[u8] {
        match self {
            Self::Staged(bytes) => bytes,
            Self::Home(bytes) => bytes.as_ref(),
        }
    }
}

impl Transfers {
    /// Fails the transfers that a lost peer would have sent. Also drops the content that came from
    /// this peer before the client named the target: such a target fails when the client names it.
    pub(crate) fn lose(&self, shared: &Arc<Shared>, peer: Id<kind::Peer>) {
        let lost: Vec<Incoming> = {
            let mut table = self.table.lock();
            let goes = |it: &Incoming| it.content.is_none() || it.target.is_none();
            let of_peer = table.iter().filter(|((_, from), it)| *from == peer && goes(it));
            let names: Vec<_> = of_peer.map(|(name, _)| *name).collect();
            names.iter().filter_map(|name| table.remove(name)).collect()
        };
        for target in lost.into_iter().filter_map(|it| it.target) {
            shared.end_event(&target.event, Status::NODE_LOST, Times::default());
        }
    }

    /// Fails if there is no room for one more transfer.
    fn check_room(&self) -> Result<(), FrameError> {
        if self.table.lock().len() >= limits::OBJECTS_PER_SESSION_MAX {
            return Err(FrameError::Limit("OBJECTS_PER_SESSION_MAX"));
        }
        Ok(())
    }

    /// Returns the number of staged bytes that wait for their targets.
    pub(crate) fn waiting_bytes(&self) -> u64 {
        let staged = |incoming: &Incoming| match &incoming.content {
            Some(Ok(Content::Staged(bytes))) => bytes.len() as u64,
            _ => 0,
        };
        self.table.lock().values().map(staged).sum()
    }

    /// Copies a source's content for a target that is not ready. Fails instead of waiting for room.
    fn keep(&self, bytes: &HomeBytes) -> Result<Staged, Status> {
        if self.waiting_bytes().saturating_add(bytes.len() as u64) > limits::STAGED_BYTES_MAX {
            return Err(Status::OUT_OF_RESOURCES);
        }
        copied(bytes)
    }

    /// Changes a transfer's entry; removes and returns it if nothing is missing.
    fn update(&self, name: Source, change: impl FnOnce(&mut Incoming)) -> Option<Incoming> {
        let mut table = self.table.lock();
        let incoming = table.entry(name).or_default();
        change(incoming);
        let whole = incoming.target.is_some() && incoming.ready && incoming.content.is_some();
        if whole { table.remove(&name) } else { None }
    }

    /// Removes and returns the target of a transfer whose bytes can go there at once.
    fn take_ready(&self, name: Source) -> Option<Target> {
        let mut table = self.table.lock();
        let ready = table.get(&name).is_some_and(|it| it.ready && it.target.is_some());
        if ready { table.remove(&name).and_then(|it| it.target) } else { None }
    }
}

impl Shared {
    /// Receives the content of a transfer from a peer.
    pub(super) fn transfer_came(
        self: &Arc<Self>,
        name: Source,
        status: Status,
        payload: &mut dyn Payload,
    ) -> Result<(), FrameError> {
        if status.is_error() {
            self.transfers.check_room()?;
            self.deliver(name, Err(status));
            return Ok(());
        }
        if let Some(target) = self.transfers.take_ready(name) {
            if payload.left() != target.area.bytes {
                self.end_event(&target.event, Status::INVALID_VALUE, Times::default());
                return Ok(());
            }
            if let Some(filled) = into_home(&target.mem, &target.area, payload) {
                let status = if filled.is_ok() { Status::OK } else { Status::NODE_LOST };
                self.end_event(&target.event, status, Times::default());
                return filled;
            }
            let whole = Incoming { target: Some(target), ready: true, content: None };
            self.transfers.table.lock().insert(name, whole);
        }
        self.transfers.check_room()?;
        // Staged for later use. Unannounced content must not take unlimited memory.
        let size = payload.left();
        if size > limits::STAGED_BYTES_MAX {
            self.deliver(name, Err(Status::OUT_OF_RESOURCES));
            return Ok(());
        }
        self.wait_for_transfer_room(size)?;
        let staged =
            usize::try_from(size).map_err(|_| Status::OUT_OF_HOST_MEMORY).and_then(Staged::new);
        match staged {
            Ok(mut bytes) => {
                payload.read(&mut bytes)?;
                self.deliver(name, Ok(Content::Staged(bytes)));
            }
            Err(status) => self.deliver(name, Err(status)),
        }
        Ok(())
    }

    /// Notes that the content of a transfer is here.
    fn deliver(self: &Arc<Self>, name: Source, content: Result<Content, Status>) {
        if let Some(whole) = self.transfers.update(name, |it| it.content = Some(content)) {
            self.store(whole);
        }
    }

    /// Writes complete content to its target.
    fn store(self: &Arc<Self>, whole: Incoming) {
        let (Some(target), Some(content)) = (whole.target, whole.content) else { return };
        let event = target.event.clone();
        let stored = content.and_then(|content| self.write_content(target, content));
        if let Err(status) = stored {
            self.end_event(&event, status, Times::default());
        }
    }

    fn write_content(self: &Arc<Self>, target: Target, content: Content) -> Result<(), Status> {
        let Target { mem, area, event } = target;
        if content.len() as u64 != area.bytes {
            return Err(Status::INVALID_VALUE);
        }
        if let (Some(home), Some(offset)) = (mem.home(), area.linear()) {
            match &content {
                Content::Staged(bytes) => home.write(offset, bytes)?,
                Content::Home(bytes) => home.copy(offset, bytes)?,
            }
            self.end_event(&event, Status::OK, Times::default());
            return Ok(());
        }
        let staged = match content {
            Content::Staged(staged) => staged,
            Content::Home(bytes) => copied(&bytes)?,
        };
        let queue = mem.context().transfer_queue()?;
        let written = area.write(&queue, &mem, &area.whole(), staged, &[], Want::Event)?;
        let written = written.ok_or(Status::OUT_OF_RESOURCES)?;
        let shared = self.clone();
        written.on_complete(Box::new(move |status, times| shared.end_event(&event, status, times)));
        queue.flush()
    }

    /// Sends a transfer whose source's wait list has ended.
    fn send_content(self: &Arc<Self>, departure: Departure, waited: Result<(), Status>) {
        penstock_trial::delay(penstock_trial::Place::TransferLeaves);
        let source = waited.and_then(|()| departure.take());
        let shared = self.clone();
        match source {
            Ok(Taken::Home(bytes)) => {
                departure.go(&shared, Ok(Content::Home(bytes)), Times::default())
            }
            Ok(Taken::Reading(reading)) => {
                reading.on_complete(Box::new(move |status, times, bytes| {
                    departure.go(&shared, status.ok().map(|()| Content::Staged(bytes)), times);
                }))
            }
            Err(status) => departure.go(&shared, Err(status), Times::default()),
        }
    }
}

/// A transfer from this worker.
struct Departure {
    mem: device::Mem,
    area: Area,
    event: Arc<Event>,
    transfer: Id<kind::Transfer>,
    peer: Id<kind::Peer>,
}

enum Taken {
    Home(HomeBytes),
    Reading(device::Reading),
}

/// A body that ends the source's event when it is dropped: the source may then change again.
struct Departing {
    content: Content,
    shared: Arc<Shared>,
    event: Arc<Event>,
}

impl AsRef<[u8]> for Departing {
    fn as_ref(&self) -> &[u8] {
        self.content.as_ref()
    }
}

impl Drop for Departing {
    fn drop(&mut self) {
        self.shared.end_event(&self.event, Status::OK, Times::default());
    }
}

impl Departure {
    /// Takes the source's content: its memory itself, or a read of it.
    fn take(&self) -> Result<Taken, Status> {
        let home =
            self.area.linear().and_then(|offset| self.mem.home_bytes(offset, self.area.bytes));
        if let Some(bytes) = home {
            return Ok(Taken::Home(bytes));
        }
        let queue = self.mem.context().transfer_queue()?;
        let reading = self.area.read(&queue, &self.mem, &self.area.whole(), &[])?;
        queue.flush()?;
        Ok(Taken::Reading(reading))
    }

    fn go(self, shared: &Arc<Shared>, content: Result<Content, Status>, times: Times) {
        if self.transfer.is_none() {
            self.go_to_client(shared, content, times);
        } else if self.peer.is_none() {
            self.go_to_neighbour(shared, content, times);
        } else {
            self.go_to_peer(shared, content);
        }
    }

    /// Sends it like a read of the client.
    fn go_to_client(self, shared: &Arc<Shared>, content: Result<Content, Status>, times: Times) {
        let status = content.as_ref().err().copied().unwrap_or(Status::OK);
        if let Ok(content) = content {
            let call = to_client::ReadData { event: self.event.id(), offset: U64::ZERO };
            let body: Box<dyn AsRef<[u8]> + Send> = match content {
                Content::Staged(bytes) => Box::new(Piece(bytes)),
                Content::Home(bytes) => Box::new(bytes),
            };
            shared.outbox.post(&call, &[], Body::Shared(body));
        }
        shared.end_event(&self.event, status, times);
    }

    /// Passes it to another platform of this worker.
    fn go_to_neighbour(self, shared: &Arc<Shared>, content: Result<Content, Status>, times: Times) {
        let status = content.as_ref().err().copied().unwrap_or(Status::OK);
        let content = match content {
            // Copied unless it goes at once: the target may be late, and the source must be free to
            // change.
            Ok(Content::Home(bytes)) => {
                match shared.transfers.take_ready((self.transfer, Id::NONE)) {
                    Some(target) => {
                        let whole = Incoming {
                            target: Some(target),
                            ready: true,
                            content: Some(Ok(Content::Home(bytes))),
                        };
                        shared.store(whole);
                        return shared.end_event(&self.event, status, times);
                    }
                    None => shared.transfers.keep(&bytes).map(Content::Staged),
                }
            }
            other => other,
        };
        shared.deliver((self.transfer, Id::NONE), content);
        shared.end_event(&self.event, status, times);
    }

    fn go_to_peer(self, shared: &Arc<Shared>, content: Result<Content, Status>) {
        let status = content.as_ref().err().copied().unwrap_or(Status::OK);
        if !shared.peers.has(self.peer) {
            return shared.end_event(&self.event, Status::NODE_LOST, Times::default());
        }
        let call = to_peer::TransferData { transfer: self.transfer, status: I32::new(status.0) };
        match content {
            Ok(content) => {
                let body = Departing { content, shared: shared.clone(), event: self.event };
                shared.peers.post(self.peer, move |outbox| {
                    outbox.post(&call, &[], Body::Shared(Box::new(body)))
                });
            }
            Err(_) => {
                shared.peers.post(self.peer, move |outbox| outbox.post(&call, &[], Body::None));
                shared.end_event(&self.event, status, Times::default());
            }
        }
    }
}

fn copied(bytes: &HomeBytes) -> Result<Staged, Status> {
    let mut staged = Staged::new(bytes.len())?;
    bytes.read(&mut staged)?;
    Ok(staged)
}

impl Serve<to_worker::SendMem> for Session {
    fn serve(
        &mut self,
        call: &to_worker::SendMem,
        waits: &[Id<kind::Event>],
        _: &mut dyn Payload,
    ) -> Result<(), FrameError> {
        self.shared.transfers.check_room()?;
        let event = self
            .shared
            .events
            .announce(call.event)?
            .ok_or(FrameError::BadId("a transfer's event"))?;
        let (transfer, peer) = (call.transfer, call.peer);
        let checked = self.objects.mems.get(call.mem).and_then(|mem| {
            Ok((mem.clone(), Area::content(mem, call.offset.get(), call.size.get())?))
        });
        let shared = self.shared.clone();
        match checked {
            Ok((mem, area)) => {
                let departure = Departure { mem, area, event, transfer, peer };
                let arrivals: Vec<_> =
                    waits.iter().filter_map(|id| self.shared.events.get(*id)).collect();
                let waits = if planted(Defect::OldRegion) { &[] } else { waits };
                self.shared.events.when_all(waits, move |_| {
                    // A failed command leaves some content; a failed transfer leaves none.
                    let failed = arrivals.iter().any(|event| event.is_failed_arrival());
                    let waited = if failed { Err(Status::WAIT_LIST_FAILED) } else { Ok(()) };
                    shared.send_content(departure, waited);
                });
            }
            Err(status) => {
                // The other end must not wait for content that does not come.
                if peer.is_none() && !transfer.is_none() {
                    shared.deliver((transfer, Id::NONE), Err(status));
                } else {
                    let call = to_peer::TransferData { transfer, status: I32::new(status.0) };
                    shared.peers.post(peer, move |outbox| outbox.post(&call, &[], Body::None));
                }
                shared.end_event(&event, status, Times::default());
            }
        }
        Ok(())
    }
}

impl Serve<to_worker::ReceiveMem> for Session {
    fn serve(
        &mut self,
        call: &to_worker::ReceiveMem,
        waits: &[Id<kind::Event>],
        _: &mut dyn Payload,
    ) -> Result<(), FrameError> {
        self.shared.transfers.check_room()?;
        let event = self
            .shared
            .events
            .announce(call.event)?
            .ok_or(FrameError::BadId("a transfer's event"))?;
        event.set_arrival();
        let (transfer, peer) = (call.transfer, call.peer);
        let checked = self.objects.mems.get(call.mem).and_then(|mem| {
            Ok((mem.clone(), Area::content(mem, call.offset.get(), call.size.get())?))
        });
        let shared = self.shared.clone();
        let gone = !peer.is_none() && !shared.peers.has(peer);
        match checked {
            Ok(_) if gone => shared.end_event(&event, Status::NODE_LOST, Times::default()),
            Ok((mem, area)) => {
                let name = (transfer, peer);
                if planted(Defect::ArrivedEarly) {
                    shared.end_event(&event, Status::OK, Times::default());
                }
                let target = Target { mem, area, event };
                shared.transfers.update(name, |it| it.target = Some(target));
                // Earlier commands on the target must have ended: all of it is overwritten.
                self.shared.events.when_all(waits, move |_| {
                    let whole = shared.transfers.update(name, |it| it.ready = true);
                    if let Some(whole) = whole {
                        shared.store(whole);
                    }
                });
            }
            Err(status) => shared.end_event(&event, status, Times::default()),
        }
        Ok(())
    }
}
