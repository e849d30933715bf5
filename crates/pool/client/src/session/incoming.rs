//! The handlers of the frames that a worker sends.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use penstock_link::LinkError;
use penstock_wire::Status;
use penstock_wire::calls::{Attached, Serve, Served, to_client};

use super::Session;

/// Handler of the frames of one session.
pub(super) struct Incoming<'a> {
    pub(super) session: &'a Arc<Session>,
}

impl Serve<to_client::Reply> for Incoming<'_> {
    fn serve(&mut self, call: &to_client::Reply, with: Attached<'_>) -> Served {
        let bytes = with.payload.read_all()?;
        if let Some(answer) = self.session.open.lock().requests.remove(&call.request.get()) {
            answer.set(Status(call.status.get()), bytes);
        }
        self.session.served();
        Ok(())
    }
}

impl Serve<to_client::EventDone> for Incoming<'_> {
    fn serve(&mut self, call: &to_client::EventDone, _: Attached<'_>) -> Served {
        let (target, event) = {
            let mut open = self.session.open.lock();
            (open.reads.remove(&call.event.get()), open.events.remove(&call.event.get()))
        };
        // Without the lock: an object that the target keeps alive may send something when it is
        // dropped.
        drop(target);
        if let Some(event) = event {
            event.end(Status(call.status.get()), call.times());
            self.session.served();
        }
        Ok(())
    }
}

impl Serve<to_client::ReadData> for Incoming<'_> {
    fn serve(&mut self, call: &to_client::ReadData, with: Attached<'_>) -> Served {
        // Locked before the target is taken out: a thread that loses the session after that waits
        // for the end of the copy.
        let landing = self.session.landing.lock();
        // Taken out while the bytes arrive, so that a long copy does not hold up senders.
        let target = self.session.open.lock().reads.remove(&call.event.get());
        let Some(mut target) = target else { return Ok(()) };
        let bytes = with.payload.left();
        let taken = target.take(call.offset.get(), with.payload);
        // Unlocked before the target may be dropped: an object that the target keeps alive may send
        // something.
        drop(landing);
        taken?;
        if let Some(tally) = self.session.tally() {
            tally.arrived(bytes);
        }
        let mut open = self.session.open.lock();
        if open.events.contains_key(&call.event.get()) {
            open.reads.insert(call.event.get(), target);
        }
        Ok(())
    }
}

impl Serve<to_client::Output> for Incoming<'_> {
    fn serve(&mut self, _: &to_client::Output, with: Attached<'_>) -> Served {
        penstock_process::stdout::print(&with.payload.read_all()?);
        Ok(())
    }
}

impl Serve<to_client::ContextError> for Incoming<'_> {
    fn serve(&mut self, call: &to_client::ContextError, with: Attached<'_>) -> Served {
        let text = String::from_utf8_lossy(&with.payload.read_all()?).into_owned();
        let (session, context) = (self.session.clone(), call.context);
        if context.is_none() {
            session.notices.show(&text);
            return Ok(());
        }
        crate::progress::call_back(Box::new(move || {
            if let Some(tell) = &*session.context_errors.lock() {
                tell(context, &text);
            }
        }));
        Ok(())
    }
}

impl Serve<to_client::Fault> for Incoming<'_> {
    fn serve(&mut self, call: &to_client::Fault, with: Attached<'_>) -> Served {
        let text = String::from_utf8_lossy(&with.payload.read_all()?).into_owned();
        self.session.fault.store(call.status.get(), Ordering::Release);
        self.session.lose(&LinkError::Fault(text));
        Ok(())
    }
}

impl Serve<to_client::MemGone> for Incoming<'_> {
    fn serve(&mut self, call: &to_client::MemGone, _: Attached<'_>) -> Served {
        if let Some(arena) = &self.session.arena {
            arena.gone(call.mem);
        }
        Ok(())
    }
}

impl Serve<to_client::PeerLost> for Incoming<'_> {
    fn serve(&mut self, call: &to_client::PeerLost, _: Attached<'_>) -> Served {
        if let Some(peers) = self.session.peers() {
            peers.lose(self.session.node(), call.peer);
        }
        Ok(())
    }
}

impl Serve<to_client::Beat> for Incoming<'_> {
    fn serve(&mut self, _: &to_client::Beat, _: Attached<'_>) -> Served {
        // The link has noted that bytes came.
        Ok(())
    }
}

impl Serve<to_client::QueueFailed> for Incoming<'_> {
    fn serve(&mut self, call: &to_client::QueueFailed, _: Attached<'_>) -> Served {
        self.session.queue_failed(call.queue, Status(call.status.get()));
        Ok(())
    }
}
