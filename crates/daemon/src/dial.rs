//! The daemon's connections to other nodes, which it makes for its workers and hands to them.

use std::os::fd::AsFd as _;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use penstock_link::{Address, LinkError, Resolved, Stream};
use penstock_quota::User;
use penstock_wire::hello::{Role, TICKET_BYTES};
use penstock_wire::limits::HELLO_MS_MAX;

use crate::daemon::Daemon;
use crate::dials::{ADDRESS_BYTES_MAX, Wish};
use crate::message::{Control, ToWorker};

/// Stack of a connection's thread, in bytes: the handshake of TLS, for which rustls needs some
/// 64 KiB, and the system's search for the addresses of a name.
const DIAL_STACK_BYTES: usize = 512 << 10;

/// What a worker learns of a connection that failed. Whether a port is closed, filtered or open
/// must not be seen in the answer.
const NOBODY: &str = "no node of the pool answers there; the log of this node's daemon says why";

/// A connection that is being made, counted until it is dropped.
struct Dial {
    daemon: Arc<Daemon>,
    worker: u32,
    user: User,
    has_reached: bool,
}

impl Drop for Dial {
    fn drop(&mut self) {
        self.daemon.dials.lock().end(self.worker, &self.user, self.has_reached);
    }
}

/// Why there is no connection.
enum Failure {
    /// The worker is told this.
    Refused(String),
    /// Only the log says this.
    Failed(LinkError),
}

impl Daemon {
    /// Makes a connection for a worker, in a thread of its own.
    pub(crate) fn dial(self: &Arc<Self>, worker: u32, control: &Arc<Control>, wish: Wish) {
        let number = wish.number;
        let refused = |why: String| {
            // A worker that takes no messages is ending.
            _ = control.send(&ToWorker::Unreached { number, why }, None);
        };
        let Some(user) = self.workers().quota.ledger.user(worker).cloned() else {
            return refused("it has no client".to_owned());
        };
        if let Err(busy) = self.dials.lock().begin(worker, &user, Instant::now()) {
            return refused(busy.to_string());
        }
        let dial = Dial { daemon: self.clone(), worker, user, has_reached: false };
        let answered = control.clone();
        let run = move || dial.run(&answered, &wish);
        let builder = thread::Builder::new().name("dial".into()).stack_size(DIAL_STACK_BYTES);
        if let Err(error) = builder.spawn(run) {
            refused(format!("it finds no thread: {error}"));
        }
    }
}

impl Dial {
    /// Connects, and sends the answer. If the worker has ended, the connection ends here.
    fn run(mut self, control: &Control, wish: &Wish) {
        let reached = self.reach(&wish.address, &wish.ticket);
        self.has_reached = reached.is_ok();
        let (daemon, worker) = (self.daemon.clone(), self.worker);
        // The worker may ask again as soon as it has the answer.
        drop(self);
        let number = wish.number;
        let failure = match reached {
            Ok(stream) => match stream.note() {
                Ok(note) => {
                    let message = ToWorker::Connected { number, stream: note };
                    _ = control.send(&message, Some(stream.as_fd()));
                    return;
                }
                Err(error) => Failure::Failed(error),
            },
            Err(failure) => failure,
        };
        let why = match failure {
            Failure::Refused(why) => why,
            Failure::Failed(error) => {
                daemon.note_unreached(worker, &wish.address, &error);
                NOBODY.to_owned()
            }
        };
        _ = control.send(&ToWorker::Unreached { number, why }, None);
    }

    /// Connects to an address that a client has named, and says hello there.
    fn reach(&self, text: &str, ticket: &[u8; TICKET_BYTES]) -> Result<Stream, Failure> {
        if text.len() > ADDRESS_BYTES_MAX {
            return Err(Failure::Refused("the address is too long".to_owned()));
        }
        let address = Address::of_stranger(text);
        let address = address.map_err(|error| Failure::Refused(error.to_string()))?;
        let deadline = Instant::now() + Duration::from_millis(HELLO_MS_MAX);
        let places = address.resolve().map_err(Failure::Failed)?;
        let mut failure = Failure::Refused("only a user may name such an address".to_owned());
        for Resolved { address, destination } in places {
            if let Some(why) = self.daemon.permitted.refusal(&destination) {
                failure = Failure::Refused(why.to_owned());
                continue;
            }
            let keys = &self.daemon.keys;
            match penstock_link::open(&address, Role::Peer, Some(*ticket), keys, deadline) {
                Ok(opened) => return Ok(opened.stream),
                Err(error) => failure = Failure::Failed(error),
            }
        }
        Err(failure)
    }
}
