//! Transfers of a memory object's content to another worker, to another platform of this worker, or
//! to the client.
//!
//! Both ends wait for their wait lists in software: a transfer has no place in the client's queues,
//! and in a queue of its own one transfer would wait for another.

use std::sync::Arc;

use penstock_device as device;
use penstock_device::{HomeBytes, Staged, Times, Want};
use penstock_link::Body;
use penstock_trial::{Defect, planted};
use penstock_wire::calls::{Attached, Serve, Served, to_client, to_peer, to_worker};
use penstock_wire::id::kind;
use penstock_wire::{FrameError, I32, Id, Payload, Status, U64, limits};

use crate::session::Session;
use crate::session::event::Event;
use crate::session::pieces::{Area, StagedBody, into_home};
use crate::session::shared_session::SharedSession;
use crate::session::transfer::{Content, IncomingTransfer, TransferKey, TransferTarget, copied};

impl SharedSession {
    /// Receives the content of a transfer from a peer.
    pub(super) fn transfer_came(
        self: &Arc<Self>,
        name: TransferKey,
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
            self.transfers.put_back(name, target);
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
    fn deliver(self: &Arc<Self>, name: TransferKey, content: Result<Content, Status>) {
        if let Some(whole) = self.transfers.update(name, |it| it.content = Some(content)) {
            self.store(whole);
        }
    }

    /// Writes complete content to its target.
    fn store(self: &Arc<Self>, whole: IncomingTransfer) {
        let (Some(target), Some(content)) = (whole.target, whole.content) else { return };
        let event = target.event.clone();
        let stored = content.and_then(|content| self.write_content(target, content));
        if let Err(status) = stored {
            self.end_event(&event, status, Times::default());
        }
    }

    pub(super) fn write_content(
        self: &Arc<Self>,
        target: TransferTarget,
        content: Content,
    ) -> Result<(), Status> {
        let TransferTarget { mem, area, event } = target;
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
    fn send_content(self: &Arc<Self>, departure: OutgoingTransfer, waited: Result<(), Status>) {
        penstock_trial::delay(penstock_trial::Place::TransferLeaves);
        let source = waited.and_then(|()| take_content(&departure.mem, &departure.area));
        let shared = self.clone();
        match source {
            Ok(SourceContent::Home(bytes)) => {
                departure.go(&shared, Ok(Content::Home(bytes)), Times::default())
            }
            Ok(SourceContent::Reading(reading)) => {
                reading.on_complete(Box::new(move |status, times, bytes| {
                    departure.go(&shared, status.ok().map(|()| Content::Staged(bytes)), times);
                }))
            }
            Err(status) => departure.go(&shared, Err(status), Times::default()),
        }
    }
}

/// A transfer from this worker.
struct OutgoingTransfer {
    mem: device::Mem,
    area: Area,
    event: Arc<Event>,
    transfer: Id<kind::Transfer>,
    peer: Id<kind::Peer>,
}

pub(super) enum SourceContent {
    Home(HomeBytes),
    Reading(device::Reading),
}

/// Takes the content of a source: its memory itself, or a read of it.
pub(super) fn take_content(mem: &device::Mem, area: &Area) -> Result<SourceContent, Status> {
    let home = area.linear().and_then(|offset| mem.home_bytes(offset, area.bytes));
    if let Some(bytes) = home {
        return Ok(SourceContent::Home(bytes));
    }
    let queue = mem.context().transfer_queue()?;
    let reading = area.read(&queue, mem, &area.whole(), &[])?;
    queue.flush()?;
    Ok(SourceContent::Reading(reading))
}

/// A body that ends the source's event when it is dropped: the source may then change again.
pub(super) struct SentContent {
    pub(super) content: Content,
    pub(super) shared: Arc<SharedSession>,
    pub(super) event: Arc<Event>,
}

impl AsRef<[u8]> for SentContent {
    fn as_ref(&self) -> &[u8] {
        self.content.as_ref()
    }
}

impl Drop for SentContent {
    fn drop(&mut self) {
        self.shared.end_event(&self.event, Status::OK, Times::default());
    }
}

impl OutgoingTransfer {
    fn go(self, shared: &Arc<SharedSession>, content: Result<Content, Status>, times: Times) {
        if self.transfer.is_none() {
            self.go_to_client(shared, content, times);
        } else if self.peer.is_none() {
            self.go_to_neighbour(shared, content, times);
        } else {
            self.go_to_peer(shared, content);
        }
    }

    /// Sends it like a read of the client.
    fn go_to_client(
        self,
        shared: &Arc<SharedSession>,
        content: Result<Content, Status>,
        times: Times,
    ) {
        let status = content.as_ref().err().copied().unwrap_or(Status::OK);
        if let Ok(content) = content {
            let call = to_client::ReadData { event: self.event.id(), offset: U64::ZERO };
            let body = match content {
                Content::Staged(bytes) => shared.content(StagedBody(bytes)),
                Content::Home(bytes) => shared.content(bytes),
            };
            shared.outbox.post(&call, &[], body);
        }
        shared.end_event(&self.event, status, times);
    }

    /// Passes it to another platform of this worker.
    fn go_to_neighbour(
        self,
        shared: &Arc<SharedSession>,
        content: Result<Content, Status>,
        times: Times,
    ) {
        let status = content.as_ref().err().copied().unwrap_or(Status::OK);
        let content = match content {
            // Copied unless it goes at once: the target may be late, and the source must be free to
            // change.
            Ok(Content::Home(bytes)) => {
                match shared.transfers.take_ready((self.transfer, Id::NONE)) {
                    Some(target) => {
                        let whole = IncomingTransfer {
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

    fn go_to_peer(self, shared: &Arc<SharedSession>, content: Result<Content, Status>) {
        let status = content.as_ref().err().copied().unwrap_or(Status::OK);
        if !shared.peers.has(self.peer) {
            return shared.end_event(&self.event, Status::NODE_LOST, Times::default());
        }
        let call = to_peer::TransferData { transfer: self.transfer, status: I32::new(status.0) };
        match content {
            Ok(content) => {
                let body = SentContent { content, shared: shared.clone(), event: self.event };
                let body = shared.content(body);
                shared.peers.post(self.peer, move |outbox| outbox.post(&call, &[], body));
            }
            Err(_) => {
                shared.peers.post(self.peer, move |outbox| outbox.post(&call, &[], Body::None));
                shared.end_event(&self.event, status, Times::default());
            }
        }
    }
}

impl Session {
    /// Makes the event of one end of a transfer.
    fn announce_transfer(&self, event: Id<kind::Event>) -> Result<Arc<Event>, FrameError> {
        self.shared.transfers.check_room()?;
        self.shared.events.announce(event)?.ok_or(FrameError::BadId("a transfer's event"))
    }

    /// Returns the memory object of one end of a transfer, and the checked part of the object that
    /// the transfer reads or fills.
    fn transfer_area(
        &self,
        mem: Id<kind::Mem>,
        offset: U64,
        size: U64,
    ) -> Result<(device::Mem, Area), Status> {
        let mem = self.objects.mems.get(mem)?;
        Ok((mem.clone(), Area::content(mem, offset.get(), size.get())?))
    }
}

impl Serve<to_worker::SendMem> for Session {
    fn serve(&mut self, call: &to_worker::SendMem, with: Attached<'_>) -> Served {
        let event = self.announce_transfer(call.event)?;
        let (transfer, peer) = (call.transfer, call.peer);
        let checked = self.transfer_area(call.mem, call.offset, call.size);
        let shared = self.shared.clone();
        match checked {
            Ok((mem, area)) => {
                let departure = OutgoingTransfer { mem, area, event, transfer, peer };
                let arrivals: Vec<_> =
                    with.waits.iter().filter_map(|id| self.shared.events.get(*id)).collect();
                let waits = if planted(Defect::OldRegion) { &[] } else { with.waits };
                let flight = self.shared.flights.transfer(with.waits.len());
                self.shared.events.when_all(waits, move |_| {
                    drop(flight);
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
    fn serve(&mut self, call: &to_worker::ReceiveMem, with: Attached<'_>) -> Served {
        let event = self.announce_transfer(call.event)?;
        event.set_arrival();
        let (transfer, peer) = (call.transfer, call.peer);
        let checked = self.transfer_area(call.mem, call.offset, call.size);
        let shared = self.shared.clone();
        let is_lost = || !peer.is_none() && !shared.peers.has(peer);
        let was_lost = planted(Defect::LostBefore).then(is_lost);
        match checked {
            Ok((mem, area)) => {
                let name = (transfer, peer);
                if planted(Defect::ArrivedEarly) {
                    shared.end_event(&event, Status::OK, Times::default());
                }
                let target = TransferTarget { mem, area, event };
                shared.transfers.update(name, |it| it.target = Some(target));
                // The peer may be lost before or after this; either this or `lose_peer` sees it.
                if was_lost.unwrap_or_else(is_lost) {
                    shared.lose_transfers(peer);
                }
                // Earlier commands on the target must have ended: all of it is overwritten.
                let flight = self.shared.flights.transfer(with.waits.len());
                self.shared.events.when_all(with.waits, move |_| {
                    drop(flight);
                    let whole = shared.transfers.set_ready(name);
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
