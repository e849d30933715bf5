//! What an administrator may order: to end a session, and to take no new clients.
//!
//! Only the daemon's own user and root are administrators, and only the kernel's word counts, which
//! it gives on a Unix socket. A key of the pool, a one-time key and a guest's connection give
//! nobody this right, and neither does a user's number alone: a process that cannot signal the
//! daemon's workers, because it is in a container or is a confined worker, gives no orders.

use std::sync::Arc;
use std::time::{Duration, Instant};

use penstock_link::{Accepted, Credentials, LinkError, hear_order, tell_outcome};
use penstock_wire::administration::{Act, Outcome};
use penstock_wire::hello::Verdict;
use penstock_wire::limits::HELLO_MS_MAX;

use crate::daemon::Daemon;
use crate::refusals::Reason;

/// What the client of a session is told that an administrator ends.
const KILLED: &str = "an administrator of the node has ended this session (penstock kill)";

/// What new clients are told.
const DRAINED: &str = "an administrator drains this node (penstock drain): it takes no new \
                       clients, and the sessions that it has go on";

impl Daemon {
    /// Obeys a tool of an administrator.
    pub(crate) fn obey(self: &Arc<Self>, accepted: Accepted) -> Result<(), LinkError> {
        let asker = accepted.credentials.filter(|asker| self.may_signal(asker, &accepted));
        let Some(user) = administrator(asker, self.user()) else {
            return accepted.finish(Verdict::WrongUser).map(drop);
        };
        let deadline = Instant::now() + Duration::from_millis(HELLO_MS_MAX);
        let stream = accepted.finish(Verdict::Welcome)?;
        let outcome = match hear_order(&stream, deadline)? {
            Some(Act::Kill(worker)) => self.end_session(worker, user),
            Some(Act::Drain) => self.drain(true, user),
            Some(Act::Undrain) => self.drain(false, user),
            None => Outcome::UnknownAct,
        };
        tell_outcome(&stream, outcome, deadline)
    }

    /// Returns whether a process is neither in a container nor of a worker. In this order: a
    /// process that still runs in the end had its number all the time.
    fn may_signal(&self, asker: &Credentials, accepted: &Accepted) -> bool {
        let group = crate::sys::group_of(asker.pid);
        group.is_some_and(|group| !self.workers().has_group(group))
            && accepted.is_in_own_namespace()
    }

    fn end_session(&self, worker: u32, user: u32) -> Outcome {
        if !self.workers().end_session(worker, KILLED, Instant::now()) {
            return Outcome::NoSession;
        }
        tracing::info!(worker, user, "an administrator ends a session");
        // The daemon's own thread kills a worker that does not end.
        self.wake();
        Outcome::Done
    }

    fn drain(&self, drains: bool, user: u32) -> Outcome {
        self.workers().draining = drains;
        match drains {
            true => tracing::info!(user, "an administrator drains this daemon"),
            false => tracing::info!(user, "the daemon takes new clients again"),
        }
        // The daemon's own thread sends away those in line, and other threads those who only ask.
        self.wake();
        self.changed.notify_all();
        Outcome::Done
    }

    /// Refuses a client because the daemon is drained.
    pub(crate) fn refuse_drained(&self, client: Accepted) {
        self.note_refusal(client.peer(), Reason::Drained, &DRAINED);
        client.refuse_for(DRAINED);
    }
}

/// Returns the number of the user if it is an administrator of a daemon of the user `own`.
fn administrator(asker: Option<Credentials>, own: u32) -> Option<u32> {
    asker.map(|asker| asker.uid).filter(|user| *user == own || *user == 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_daemons_user_and_root_are_administrators() {
        let asker = |uid| Some(Credentials { uid, gid: 0, pid: 1 });
        assert_eq!(administrator(asker(1000), 1000), Some(1000));
        assert_eq!(administrator(asker(0), 1000), Some(0));
        assert_eq!(administrator(asker(0), 0), Some(0));
        // Another user who may use the daemon, also in a group of root.
        assert_eq!(administrator(asker(1001), 1000), None);
        assert_eq!(administrator(asker(1000), 0), None);
        // Over a network, or from a guest.
        assert_eq!(administrator(None, 1000), None);
        assert_eq!(administrator(None, 0), None);
    }
}
