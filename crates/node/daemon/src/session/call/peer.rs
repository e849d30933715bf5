//! Links to the other workers of the same client, and the calls that come over them.

use std::sync::Arc;

use penstock_device::Times;
use penstock_link::{Body, LinkError, Outbox, OwnThread, Patience, Receiver, Sender, Side, Stream};
use penstock_wire::calls::{Attached, Serve, Served, to_client, to_peer, to_worker};
use penstock_wire::describe::PeerInvitation;
use penstock_wire::hello::TICKET_BYTES;
use penstock_wire::id::kind;
use penstock_wire::{FrameError, Id, Status, frame};

use crate::session::Session;
use crate::session::peer::Guest;
use crate::session::shared_session::SharedSession;

impl SharedSession {
    /// Notes that the daemon knows a ticket.
    pub fn admitted(&self, ticket: &[u8; TICKET_BYTES]) {
        if let Some(request) = self.peers.admission_request(ticket) {
            self.reply(request, &Ok(()));
        }
    }

    /// Gives up what waits for tickets that the daemon has not taken in time. A thread of its own
    /// ends the events behind them: that may enter a driver, and the caller's thread beats.
    pub(in crate::session) fn give_up_admissions(self: &Arc<Self>) {
        let late = self.peers.give_up_admissions();
        if late.is_empty() {
            return;
        }
        let shared = self.clone();
        let end = late.clone();
        let lose = move || end.into_iter().for_each(|it| shared.lose_admission(it));
        if let Err(error) = penstock_process::start("admissions", lose) {
            self.complain("what waits for the daemon finds no thread", &error);
            late.into_iter().for_each(|it| self.lose_admission(it));
        }
    }

    fn lose_admission(self: &Arc<Self>, (guest, request): (Guest, Id<kind::Request>)) {
        match guest {
            Guest::Peer(peer) => self.lose_peer(peer),
            Guest::Stranger(peer) => self.lose_stranger(peer),
            Guest::Member(..) => {}
        }
        self.reply::<()>(request, &Err(Status::NODE_LOST));
    }

    /// Links another worker that has come with a ticket.
    pub fn arrived(self: &Arc<Self>, ticket: &[u8; TICKET_BYTES], stream: Stream) {
        // A ticket is good once.
        let Some(guest) = self.peers.take_guest(ticket) else { return };
        let peer = match guest {
            Guest::Peer(peer) => peer,
            Guest::Member(heap, member) => return self.member_arrived(heap, member, stream),
            Guest::Stranger(peer) => return self.stranger_arrived(peer, stream),
        };
        // Messages for the peer may have waited. What sends them may end events, and so enter a
        // driver; the caller's thread beats.
        let shared = self.clone();
        let link = move || {
            let linked = penstock_link::establish(stream, 0, Side::Worker, to_peer::check);
            if let Err(error) = linked.and_then(|link| shared.link_peer(peer, link)) {
                shared.complain("a peer did not come", &error);
                shared.lose_peer(peer);
            }
        };
        if let Err(error) = penstock_process::start("arrival", link) {
            self.complain("a peer finds no thread", &error);
            self.lose_peer(peer);
        }
    }

    /// Starts to serve a peer whose link is established.
    pub(crate) fn link_peer(
        self: &Arc<Self>,
        peer: Id<kind::Peer>,
        (sender, receiver): (Sender, Receiver),
    ) -> Result<(), LinkError> {
        receiver.expect_beats();
        let outbox = Outbox::new(sender);
        let shared = self.clone();
        penstock_process::start("peer", move || shared.serve_peer(peer, receiver)).map_err(
            |source| LinkError::System { doing: "starting a thread for a peer", source },
        )?;
        self.peers.link(peer, &outbox);
        Ok(())
    }

    fn serve_peer(self: &Arc<Self>, peer: Id<kind::Peer>, mut receiver: Receiver) {
        let _own = OwnThread::begin();
        let mut from = FromPeer { shared: self, peer };
        let error = loop {
            let received = receiver.receive(Patience::Forever, &mut |frame, payload| {
                penstock_trial::delay(penstock_trial::Place::TransferArrives);
                self.note_moved(frame.header.payload.get());
                to_peer::dispatch(&mut from, frame, payload)
            });
            if let Err(error) = received {
                break error;
            }
        };
        match error {
            // It has most likely ended with the client; this session is about to end as well.
            LinkError::Closed => {}
            error => self.complain("a peer is lost", &error),
        }
        // Reported before the lost ends: a client that hears of those must not use this peer again.
        self.outbox.post(&to_client::PeerLost { peer }, &[], Body::None);
        self.lose_peer(peer);
    }

    fn lose_peer(self: &Arc<Self>, peer: Id<kind::Peer>) {
        self.peers.lose(peer);
        self.lose_transfers(peer);
        self.events.lose(peer);
    }

    /// Ends the transfers whose content a lost peer does not send any more.
    pub(super) fn lose_transfers(self: &Arc<Self>, peer: Id<kind::Peer>) {
        for target in self.transfers.lose(peer) {
            self.end_event(&target.event, Status::NODE_LOST, Times::default());
        }
    }

    /// Opens a link to the worker that an invitation names.
    fn open_peer(
        self: &Arc<Self>,
        peer: Id<kind::Peer>,
        invitation: &PeerInvitation,
    ) -> Result<(), LinkError> {
        let link = self.peers.reach(invitation, |stream| {
            penstock_link::establish(stream, 0, Side::Client, to_peer::check)
        })?;
        self.link_peer(peer, link)
    }
}

/// Serves the calls of another worker.
struct FromPeer<'a> {
    shared: &'a Arc<SharedSession>,
    peer: Id<kind::Peer>,
}

impl Serve<to_peer::Beat> for FromPeer<'_> {
    fn serve(&mut self, _: &to_peer::Beat, _: Attached<'_>) -> Served {
        // The link has noted that bytes came.
        Ok(())
    }
}

impl Serve<to_peer::PeerEvent> for FromPeer<'_> {
    fn serve(&mut self, call: &to_peer::PeerEvent, _: Attached<'_>) -> Served {
        self.shared.events.told_by(self.peer, call.event, Status(call.status.get()))
    }
}

impl Serve<to_peer::TransferData> for FromPeer<'_> {
    fn serve(&mut self, call: &to_peer::TransferData, with: Attached<'_>) -> Served {
        self.shared.transfer_came(
            (call.transfer, self.peer),
            Status(call.status.get()),
            with.payload,
        )
    }
}

impl Serve<to_worker::ConnectPeer> for Session {
    fn serve(&mut self, call: &to_worker::ConnectPeer, with: Attached<'_>) -> Served {
        let invitation: PeerInvitation = frame::decode("ConnectPeer", &with.payload.read_all()?)?;
        self.shared.peers.expect(call.peer)?;
        if !self.shared.peers.begin_connecting(call.peer) {
            // Otherwise a client could take all threads of its user with many calls.
            return Err(FrameError::BadId("a peer that is being reached"));
        }
        let (shared, request, peer) = (self.shared.clone(), call.request, call.peer);
        let connect = move || {
            let opened = shared.open_peer(peer, &invitation);
            shared.peers.end_connecting(peer);
            match opened {
                Ok(()) => shared.reply(request, &Ok(())),
                Err(error) => {
                    shared.complain("no link to a peer", &error);
                    shared.lose_peer(peer);
                    shared.reply::<()>(request, &Err(Status::NODE_LOST));
                }
            }
        };
        if penstock_process::start("connect", connect).is_err() {
            self.shared.peers.end_connecting(call.peer);
            self.shared.lose_peer(call.peer);
            self.shared.reply::<()>(call.request, &Err(Status::OUT_OF_RESOURCES));
        }
        Ok(())
    }
}

impl Serve<to_worker::AdmitPeer> for Session {
    fn serve(&mut self, call: &to_worker::AdmitPeer, with: Attached<'_>) -> Served {
        let ticket =
            with.payload.read_all()?.try_into().map_err(|_| FrameError::BadPayload("AdmitPeer"))?;
        self.shared.peers.expect(call.peer)?;
        if let Err(status) =
            self.shared.peers.admit(ticket, Guest::Peer(call.peer), call.request)?
        {
            self.shared.lose_peer(call.peer);
            self.shared.reply::<()>(call.request, &Err(status));
        }
        Ok(())
    }
}
