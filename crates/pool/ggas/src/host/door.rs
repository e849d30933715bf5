//! The side of a meeting that lets members in.

use std::sync::Arc;
use std::sync::mpsc::Sender;
use std::time::{Duration, Instant};

use penstock_link::{Key, Stream, accept_hello};
use penstock_wire::hello::{Role, TICKET_BYTES, Verdict};

/// Longest time for the hello of a connection. A member says its hello at once; this bounds
/// strangers.
const HELLO_MAX: Duration = Duration::from_secs(2);

/// What the threads that hear connections share.
pub(super) struct Door {
    pub(super) key: Key,
    pub(super) tickets: Vec<(u32, [u8; TICKET_BYTES])>,
    pub(super) deadline: Instant,
}

/// A member that has come.
pub(super) struct Guest {
    pub(super) member: u32,
    pub(super) stream: Stream,
}

impl Door {
    /// Hears a connection in a thread, which sends the result within [`HELLO_MAX`], so that no
    /// stranger delays a member. The result of a stranger is `None`. Returns `false` if the thread
    /// cannot be started.
    pub(super) fn hear(self: &Arc<Self>, stream: Stream, results: &Sender<Option<Guest>>) -> bool {
        let (door, results) = (Arc::clone(self), results.clone());
        let hear = move || {
            // Sending fails only when all members have come and nobody listens.
            _ = results.send(door.let_in(stream));
        };
        penstock_process::start("heap-hello", hear).is_ok()
    }

    /// Lets the peer in if it is a missing member. Strangers, which may connect to any port, are
    /// refused silently.
    fn let_in(&self, stream: Stream) -> Option<Guest> {
        let own = rustix::process::getuid().as_raw();
        let deadline = (Instant::now() + HELLO_MAX).min(self.deadline);
        let accepted =
            accept_hello(stream, Some(&self.key), &|who| who.uid == own, deadline).ok()?;
        let member =
            self.tickets.iter().find(|(_, ticket)| *ticket == accepted.ticket).map(|it| it.0);
        let verdict = match (member, accepted.role) {
            (Some(_), Role::Peer) => Verdict::Welcome,
            _ => Verdict::WrongTicket,
        };
        let stream = accepted.finish(verdict).ok()?;
        member.map(|member| Guest { member, stream })
    }
}
