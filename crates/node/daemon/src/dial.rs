//! The daemon's connections to other nodes, which it makes for its workers and hands to them.

use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use penstock_link::{
    Address, Answer, Encryption, LinkError, Machine, Opened, Pins, Resolved, Trust,
};
use penstock_quota::User;
use penstock_wire::hello::{Role, TICKET_BYTES};
use penstock_wire::limits::HELLO_MS_MAX;

use crate::daemon::Daemon;
use crate::desk::NODE_MARK;
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
    /// Begins to ask a machine for a sign of life, for a worker. Does not wait: the worker reads
    /// the answer from the socket.
    pub(crate) fn ask(&self, worker: u32, control: &Control, number: u64, machine: &Machine) {
        let may = {
            let mut workers = self.workers();
            let asks = workers.asks_of(worker);
            asks.is_some_and(|asks| asks.may_ask(machine, Instant::now()))
        };
        let begun = if may { machine.ask() } else { Err(Answer::Unclear) };
        let message = ToWorker::Asked { number, answer: begun.as_ref().err().copied() };
        // A worker that does not listen does not hear the answer.
        _ = control.send(&message, begun.as_ref().ok().map(OwnedFd::as_fd));
    }
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
        if let Err(error) = penstock_process::start_with_stack("dial", DIAL_STACK_BYTES, run) {
            refused(format!("it finds no thread: {error}"));
        }
    }
}

impl Dial {
    /// Connects, and sends the answer. If the worker has ended, the connection ends here.
    fn run(mut self, control: &Control, wish: &Wish) {
        let reached = self.reach(&wish.address, &wish.ticket);
        self.has_reached = reached.is_ok();
        let reached = reached.and_then(|opened| self.check_node(opened));
        let (daemon, worker) = (self.daemon.clone(), self.worker);
        // The worker may ask again as soon as it has the answer.
        drop(self);
        let number = wish.number;
        let failure = match reached {
            Ok(Opened { stream, node, .. }) => match stream.note() {
                Ok(note) => {
                    daemon.workers().learn_machine(worker, &stream);
                    let key = node.map(|node| *node.as_bytes());
                    let message = ToWorker::Connected { number, node: key, stream: note.into() };
                    _ = control.send(&message, Some(stream.as_fd()));
                    daemon.end_if_revoked(node);
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

    /// Lets no worker have a link to a node whose key was revoked, or to too many nodes.
    fn check_node(&self, opened: Opened) -> Result<Opened, Failure> {
        if let (Some(encryption), Some(node)) = (&self.daemon.keys.encryption, &opened.node)
            && encryption.is_revoked(node).map_err(Failure::Failed)?
        {
            return Err(Failure::Refused("the key of that node was revoked here".to_owned()));
        }
        if !self.daemon.note_node(self.worker, opened.node) {
            return Err(Failure::Refused("this session has had too many other nodes".to_owned()));
        }
        Ok(opened)
    }

    /// Whether the daemon's own user asks.
    fn is_own(&self) -> bool {
        self.user == User::Number(self.daemon.user())
    }

    /// Splits an address that ends with the public key of a daemon. The pool's key proves nothing
    /// there: the client vouches for the daemon, which it has reached by SSH. So only a client of
    /// this daemon's own user may name such an address. That user can connect anywhere from here.
    fn expected<'a>(&self, text: &'a str) -> Result<(&'a str, Option<Encryption>), Failure> {
        let marked = text.rsplit_once(NODE_MARK);
        let marked = marked.and_then(|(address, key)| Some((address, key.parse().ok()?)));
        let Some((address, key)) = marked else { return Ok((text, None)) };
        if !self.is_own() {
            let why = "only the daemon's own user may name the key of a node";
            return Err(Failure::Refused(why.to_owned()));
        }
        let encryption = Encryption::for_now(Pins::Key(key)).map_err(Failure::Failed)?;
        Ok((address, Some(encryption)))
    }

    /// Connects to an address that a client has named, and says hello there.
    fn reach(&self, text: &str, ticket: &[u8; TICKET_BYTES]) -> Result<Opened, Failure> {
        if text.len() > ADDRESS_BYTES_MAX {
            return Err(Failure::Refused("the address is too long".to_owned()));
        }
        let (text, node) = self.expected(text)?;
        let address = Address::of_stranger(text);
        let address = address.map_err(|error| Failure::Refused(error.to_string()))?;
        let deadline = Instant::now() + Duration::from_millis(HELLO_MS_MAX);
        let places = address.resolve().map_err(Failure::Failed)?;
        let mut failure = Failure::Refused("only a user may name such an address".to_owned());
        for Resolved { address, destination } in places {
            if let Some(why) = self.daemon.permitted.refusal(&destination, self.is_own()) {
                failure = Failure::Refused(why.to_owned());
                continue;
            }
            let trust = match &node {
                None => Trust::from(&self.daemon.keys),
                encryption => Trust { pool: None, encryption: encryption.as_ref(), guests: None },
            };
            match penstock_link::open(&address, Role::Peer, Some(*ticket), trust, deadline) {
                // No list has the key that a daemon has made for such links.
                Ok(opened) if node.is_some() => return Ok(Opened { node: None, ..opened }),
                Ok(opened) => return Ok(opened),
                Err(error) => failure = Failure::Failed(error),
            }
        }
        Err(failure)
    }
}
