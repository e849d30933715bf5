//! Grants to workers of other clients, claims of their grants, and the links between the two.
//! [`crate::session::grant`] says who may do what.

use std::sync::Arc;

use penstock_device as device;
use penstock_device::{Staged, Times};
use penstock_link::{Body, LinkError, Outbox, OwnThread, Patience, Receiver, Side, Stream};
use penstock_wire::calls::{Attached, Serve, Served, to_guest, to_host, to_worker};
use penstock_wire::describe::PeerInvitation;
use penstock_wire::hello::feature;
use penstock_wire::id::kind;
use penstock_wire::{Frame, FrameError, I32, Id, Payload, Status, U64, frame, limits};

use super::transfer::{SentContent, SourceContent, take_content};
use crate::session::Session;
use crate::session::event::Event;
use crate::session::grant::{Claim, Part, RefusedClaim};
use crate::session::peer::Guest;
use crate::session::pieces::{Area, into_home};
use crate::session::shared_session::SharedSession;
use crate::session::transfer::{Content, TransferKey, TransferTarget};

/// Features of links between workers of two clients. On one host, a ring in shared memory carries
/// the bytes. It has only what the link itself would have, so neither worker sees memory of the
/// other one.
const FEATURES: u64 = feature::SHARED_RINGS;

impl SharedSession {
    /// Serves a worker of another client that has come with a ticket, in a thread of its own: the
    /// caller's thread watches over this worker, and the stranger may keep it waiting.
    pub(super) fn stranger_arrived(self: &Arc<Self>, peer: Id<kind::Peer>, stream: Stream) {
        let shared = self.clone();
        let serve = move || match shared.admit_stranger(peer, stream) {
            Ok((outbox, receiver)) => {
                let mut from = FromGuest { shared: shared.clone(), peer, outbox };
                shared.serve_stranger(peer, receiver, &mut |frame, payload| {
                    to_host::dispatch(&mut from, frame, payload)
                });
            }
            Err(error) => {
                shared.complain("a worker of another client did not come", &error);
                shared.lose_stranger(peer);
            }
        };
        if let Err(error) = penstock_process::start("stranger", serve) {
            self.complain("a worker of another client finds no thread", &error);
            self.lose_stranger(peer);
        }
    }

    fn admit_stranger(
        &self,
        peer: Id<kind::Peer>,
        stream: Stream,
    ) -> Result<(Outbox, Receiver), LinkError> {
        let (sender, receiver) =
            penstock_link::establish(stream, FEATURES, Side::Worker, to_host::check)?;
        let outbox = Outbox::new(sender);
        receiver.expect_beats();
        self.grants.open(peer, outbox.clone(), Part::Host);
        Ok((outbox, receiver))
    }

    /// Opens a link to a worker of another client.
    fn open_stranger(
        &self,
        peer: Id<kind::Peer>,
        invitation: &PeerInvitation,
    ) -> Result<Receiver, LinkError> {
        let (sender, receiver) = self.peers.reach(invitation, |stream| {
            penstock_link::establish(stream, FEATURES, Side::Client, to_guest::check)
        })?;
        receiver.expect_beats();
        self.grants.open(peer, Outbox::new(sender), Part::Guest);
        Ok(receiver)
    }

    /// Serves a link until it ends.
    fn serve_stranger(
        self: &Arc<Self>,
        peer: Id<kind::Peer>,
        mut receiver: Receiver,
        serve: &mut dyn FnMut(&Frame<'_>, &mut dyn Payload) -> Served,
    ) {
        let _own = OwnThread::begin();
        let mut counted = |frame: &Frame<'_>, payload: &mut dyn Payload| {
            self.note_moved(frame.header.payload.get());
            serve(frame, payload)
        };
        let error = loop {
            if let Err(error) = receiver.receive(Patience::Forever, &mut counted) {
                break error;
            }
        };
        if !matches!(error, LinkError::Closed) {
            self.complain("the link to a worker of another client is lost", &error);
        }
        self.lose_stranger(peer);
    }

    /// Ends everything that waits for a lost peer.
    pub(super) fn lose_stranger(self: &Arc<Self>, peer: Id<kind::Peer>) {
        let abandoned = self.grants.lose(peer);
        for target in abandoned.targets {
            self.end_event(&target.event, Status::NODE_LOST, Times::default());
        }
        for claim in abandoned.claims {
            self.refuse_claim(&claim, Status::NODE_LOST);
        }
    }

    /// Ends a claim of which no byte is sent.
    fn refuse_claim(self: &Arc<Self>, claim: &Claim, status: Status) {
        self.end_event(&claim.event, status, Times::default());
        self.reply::<()>(claim.request, &Err(status));
    }

    /// Takes the bytes of a claimed grant.
    fn granted_came(
        self: &Arc<Self>,
        target: TransferTarget,
        payload: &mut dyn Payload,
    ) -> Result<(), FrameError> {
        if payload.left() != target.area.bytes {
            self.end_event(&target.event, Status::INVALID_VALUE, Times::default());
            return Err(FrameError::BadPayload("GrantData"));
        }
        if let Some(filled) = into_home(&target.mem, &target.area, payload) {
            let status = if filled.is_ok() { Status::OK } else { Status::NODE_LOST };
            self.end_event(&target.event, status, Times::default());
            return filled;
        }
        let event = target.event.clone();
        let stored = self.staged(payload).map(|staged| {
            staged.and_then(|bytes| self.write_content(target, Content::Staged(bytes)))
        });
        let status = match &stored {
            Ok(written) => written.err().unwrap_or(Status::OK),
            Err(_) => Status::NODE_LOST,
        };
        if status.is_error() {
            self.end_event(&event, status, Times::default());
        }
        stored.map(drop)
    }

    /// Reads a payload into memory that counts as staged.
    fn staged(&self, payload: &mut dyn Payload) -> Result<Result<Staged, Status>, FrameError> {
        let size = payload.left();
        self.wait_for_room(size)?;
        let room = usize::try_from(size).map_err(|_| Status::OUT_OF_HOST_MEMORY);
        match room.and_then(Staged::new) {
            Ok(mut bytes) => {
                payload.read(&mut bytes)?;
                Ok(Ok(bytes))
            }
            Err(status) => Ok(Err(status)),
        }
    }

    /// Sends the bytes of a claim that the peer has accepted.
    fn send_claimed(self: &Arc<Self>, key: TransferKey, claim: Claim) {
        let shared = self.clone();
        match take_content(&claim.mem, &claim.area) {
            Ok(SourceContent::Home(bytes)) => {
                shared.post_claimed(key, claim, Ok(Content::Home(bytes)));
            }
            Ok(SourceContent::Reading(reading)) => {
                reading.on_complete(Box::new(move |status, _, bytes| {
                    let content = status.ok().map(|()| Content::Staged(bytes));
                    shared.post_claimed(key, claim, content);
                }));
            }
            Err(status) => shared.post_claimed(key, claim, Err(status)),
        }
    }

    fn post_claimed(
        self: &Arc<Self>,
        (transfer, peer): TransferKey,
        claim: Claim,
        content: Result<Content, Status>,
    ) {
        let status = content.as_ref().err().copied().unwrap_or(Status::OK);
        let call = to_host::GrantData { transfer, status: I32::new(status.0) };
        let Some(outbox) = self.grants.outbox(peer) else {
            return self.end_event(&claim.event, Status::NODE_LOST, Times::default());
        };
        match content {
            Ok(content) => {
                let body = SentContent { content, shared: self.clone(), event: claim.event };
                outbox.post(&call, &[], self.content(body));
            }
            Err(status) => {
                outbox.post(&call, &[], Body::None);
                self.end_event(&claim.event, status, Times::default());
            }
        }
    }
}

/// Serves the calls of another client's worker that this session has admitted.
struct FromGuest {
    shared: Arc<SharedSession>,
    peer: Id<kind::Peer>,
    outbox: Outbox,
}

impl Serve<to_host::Beat> for FromGuest {
    fn serve(&mut self, _: &to_host::Beat, _: Attached<'_>) -> Served {
        Ok(())
    }
}

impl Serve<to_host::Claim> for FromGuest {
    fn serve(&mut self, call: &to_host::Claim, _: Attached<'_>) -> Served {
        if self.outbox.held_bytes() > limits::CLAIM_ANSWERS_BYTES_MAX {
            return Err(FrameError::Limit("CLAIM_ANSWERS_BYTES_MAX"));
        }
        let claimed = self.shared.grants.claim((call.transfer, self.peer), call.size.get());
        let status = I32::new(claimed.err().unwrap_or(Status::OK).0);
        let answer = to_guest::ClaimAnswered { transfer: call.transfer, status };
        self.outbox.post(&answer, &[], Body::None);
        Ok(())
    }
}

impl Serve<to_host::GrantData> for FromGuest {
    fn serve(&mut self, call: &to_host::GrantData, with: Attached<'_>) -> Served {
        penstock_trial::delay(penstock_trial::Place::TransferArrives);
        let target = self.shared.grants.take_claimed((call.transfer, self.peer));
        let target = target.ok_or(FrameError::BadId("a claimed grant"))?;
        let status = Status(call.status.get());
        if status.is_error() {
            self.shared.end_event(&target.event, status, Times::default());
            return Ok(());
        }
        self.shared.granted_came(target, with.payload)
    }
}

/// Serves the calls of another client's worker that has granted memory.
struct FromHost {
    shared: Arc<SharedSession>,
    peer: Id<kind::Peer>,
}

impl Serve<to_guest::Beat> for FromHost {
    fn serve(&mut self, _: &to_guest::Beat, _: Attached<'_>) -> Served {
        Ok(())
    }
}

impl Serve<to_guest::ClaimAnswered> for FromHost {
    fn serve(&mut self, call: &to_guest::ClaimAnswered, _: Attached<'_>) -> Served {
        let key = (call.transfer, self.peer);
        let claim = self.shared.grants.end_claim(key).ok_or(FrameError::BadId("a claim"))?;
        let status = Status(call.status.get());
        if status.is_error() {
            self.shared.refuse_claim(&claim, status);
        } else {
            self.shared.reply(claim.request, &Ok(()));
            self.shared.send_claimed(key, claim);
        }
        Ok(())
    }
}

impl Serve<to_worker::AdmitGuest> for Session {
    fn serve(&mut self, call: &to_worker::AdmitGuest, with: Attached<'_>) -> Served {
        let bytes = with.payload.read_all()?;
        let ticket = bytes.try_into().map_err(|_| FrameError::BadPayload("AdmitGuest"))?;
        if let Err(status) = self.shared.grants.expect(call.peer)? {
            self.shared.reply::<()>(call.request, &Err(status));
            return Ok(());
        }
        let guest = Guest::Stranger(call.peer);
        if let Err(status) = self.shared.peers.admit(ticket, guest, call.request)? {
            self.shared.lose_stranger(call.peer);
            self.shared.reply::<()>(call.request, &Err(status));
        }
        Ok(())
    }
}

impl Serve<to_worker::ConnectHost> for Session {
    fn serve(&mut self, call: &to_worker::ConnectHost, with: Attached<'_>) -> Served {
        let invitation: PeerInvitation = frame::decode("ConnectHost", &with.payload.read_all()?)?;
        if let Err(status) = self.shared.grants.expect(call.peer)? {
            self.shared.reply::<()>(call.request, &Err(status));
            return Ok(());
        }
        let (shared, request, peer) = (self.shared.clone(), call.request, call.peer);
        let serve = move || match shared.open_stranger(peer, &invitation) {
            Ok(receiver) => {
                shared.reply(request, &Ok(()));
                let mut from = FromHost { shared: shared.clone(), peer };
                shared.serve_stranger(peer, receiver, &mut |frame, payload| {
                    to_guest::dispatch(&mut from, frame, payload)
                });
            }
            Err(error) => {
                shared.complain("no link to a worker of another client", &error);
                shared.lose_stranger(peer);
                shared.reply::<()>(request, &Err(Status::NODE_LOST));
            }
        };
        if penstock_process::start("stranger", serve).is_err() {
            self.shared.lose_stranger(call.peer);
            self.shared.reply::<()>(call.request, &Err(Status::OUT_OF_RESOURCES));
        }
        Ok(())
    }
}

impl Session {
    /// Makes the event of one side of a grant.
    fn grant_event(&self, event: Id<kind::Event>) -> Result<Arc<Event>, FrameError> {
        self.shared.events.announce(event)?.ok_or(FrameError::BadId("a transfer's event"))
    }

    /// Checks a range of a buffer.
    fn granted_area(&self, mem: Id<kind::Mem>, offset: U64, size: U64) -> Result<Granted, Status> {
        let mem = self.objects.mems.get(mem)?;
        Ok(Granted { area: Area::bytes(mem, offset.get(), size.get())?, mem: mem.clone() })
    }
}

/// A checked range of a buffer.
struct Granted {
    mem: device::Mem,
    area: Area,
}

impl Serve<to_worker::GrantMem> for Session {
    fn serve(&mut self, call: &to_worker::GrantMem, _: Attached<'_>) -> Served {
        let event = self.grant_event(call.event)?;
        let granted = match self.granted_area(call.mem, call.offset, call.size) {
            Ok(Granted { mem, area }) => {
                let target = TransferTarget { mem, area, event: event.clone() };
                self.shared.grants.grant((call.transfer, call.peer), target)?
            }
            Err(status) => Err(status),
        };
        if let Err(status) = granted {
            self.shared.end_event(&event, status, Times::default());
        }
        self.shared.reply(call.request, &granted);
        Ok(())
    }
}

impl Serve<to_worker::RevokeGrant> for Session {
    fn serve(&mut self, call: &to_worker::RevokeGrant, _: Attached<'_>) -> Served {
        let revoked = self.shared.grants.revoke((call.transfer, call.peer));
        if let Some(target) = &revoked {
            self.shared.end_event(&target.event, Status::INVALID_OPERATION, Times::default());
        }
        self.shared.reply(call.request, &Ok(revoked.is_some()));
        Ok(())
    }
}

impl Serve<to_worker::ClaimGrant> for Session {
    fn serve(&mut self, call: &to_worker::ClaimGrant, _: Attached<'_>) -> Served {
        let event = self.grant_event(call.event)?;
        let range = self.granted_area(call.mem, call.offset, call.size);
        let Granted { mem, area } = match range {
            Ok(range) => range,
            Err(status) => {
                self.shared.end_event(&event, status, Times::default());
                self.shared.reply::<()>(call.request, &Err(status));
                return Ok(());
            }
        };
        let claim = Claim { mem, area, event, request: call.request };
        match self.shared.grants.begin_claim((call.transfer, call.peer), claim)? {
            Ok(outbox) => {
                let claim = to_host::Claim { transfer: call.transfer, size: call.size };
                outbox.post(&claim, &[], Body::None);
            }
            Err(RefusedClaim { claim, status }) => self.shared.refuse_claim(&claim, status),
        }
        Ok(())
    }
}
