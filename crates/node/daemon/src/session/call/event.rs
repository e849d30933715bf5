//! Events: what the client tells about ends elsewhere, and what it asks to tell a peer.

use penstock_link::Body;
use penstock_wire::calls::{Attached, Serve, Served, to_peer, to_worker};
use penstock_wire::{FrameError, I32, Id, Status};

use crate::session::Session;

impl Serve<to_worker::ReleaseEvents> for Session {
    fn serve(&mut self, _: &to_worker::ReleaseEvents, with: Attached<'_>) -> Served {
        let bytes = with.payload.read_all()?;
        let (ids, []) = bytes.as_chunks::<8>() else {
            return Err(FrameError::BadPayload("ReleaseEvents"));
        };
        for id in ids {
            self.shared.events.release(Id::new(u64::from_le_bytes(*id)));
        }
        Ok(())
    }
}

impl Serve<to_worker::ExpectEvent> for Session {
    fn serve(&mut self, call: &to_worker::ExpectEvent, _: Attached<'_>) -> Served {
        let (shared, peer) = (&self.shared, call.peer);
        let event = shared.events.expect(call.event, peer)?;
        // The peer may be lost before or after this was noted; either this or `lose` sees it.
        if !peer.is_none() && !shared.peers.has(peer) && event.ended().is_none() {
            shared.events.resolve(call.event, Status::NODE_LOST)?;
        }
        Ok(())
    }
}

impl Serve<to_worker::ResolveEvent> for Session {
    fn serve(&mut self, call: &to_worker::ResolveEvent, _: Attached<'_>) -> Served {
        self.shared.events.resolve(call.event, Status(call.status.get()))
    }
}

impl Serve<to_worker::TellPeer> for Session {
    fn serve(&mut self, call: &to_worker::TellPeer, _: Attached<'_>) -> Served {
        let (shared, peer, event) = (self.shared.clone(), call.peer, call.event);
        let tell = move |status: Status| {
            shared.peers.post(peer, move |outbox| {
                let call = to_peer::PeerEvent { event, status: I32::new(status.0.min(0)) };
                outbox.post(&call, &[], Body::None);
            });
        };
        match self.shared.events.get(event) {
            Some(event) => event.follow(tell),
            None => tell(Status::INVALID_EVENT),
        }
        Ok(())
    }
}
