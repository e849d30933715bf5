//! Where clients with one-time keys connect: listeners that exist only while such a key is good.
//!
//! A bridge asks for a key on the Unix socket. The daemon then listens on a free TCP port of the
//! address at which the client has reached the SSH server. Only TLS is spoken there, with a key
//! pair that is made when the daemon first needs it and that no file has, and nobody is let in
//! without a one-time key. When the last key is used or has expired, the daemon stops to listen.
//!
//! If a client with a one-time key uses other nodes, too, their workers may connect here, with the
//! tickets of this client's worker. Then the daemon listens until that worker has ended.

use std::fmt;
use std::net::IpAddr;
use std::sync::{Arc, OnceLock, Weak};
use std::time::{Duration, Instant};

use penstock_link::{
    Accepted, Address, Encryption, Granted, Guest, Guests, LinkError, Listener, Pins, Trust,
    hear_ask, tell_grant,
};
use penstock_process::Lock;
use penstock_wire::hello::{TICKET_BYTES, Verdict};
use penstock_wire::limits::{HELLO_MS_MAX, INVITING_ADDRESSES_MAX};

use crate::daemon::Daemon;
use crate::door::Door;
use crate::doorstep::Entry;
use crate::invitations::Invitations;
use crate::message::Control;

/// Stands in an address between what a daemon connects to and the public key that it expects there.
/// No client understands such an address; a client only passes it from one worker to another.
pub(crate) const NODE_MARK: char = '#';

/// One-time keys, and where their clients connect.
#[derive(Default)]
pub(crate) struct Desk {
    open: Lock<Open>,
    encryption: OnceLock<Encryption>,
}

#[derive(Default)]
struct Open {
    invitations: Invitations,
    listening: Vec<Listening>,
    is_ended: bool,
}

/// A listener of the desk.
struct Listening {
    at: IpAddr,
    listener: Arc<Listener>,
    /// The control sockets of workers to which workers of other nodes may connect here.
    workers: Vec<Weak<Control>>,
}

impl Listening {
    fn is_held(&self) -> bool {
        self.workers.iter().any(|worker| worker.strong_count() > 0)
    }
}

/// Why there is no one-time key.
#[derive(Debug, thiserror::Error)]
enum NoKey {
    #[error("too many one-time keys are unused")]
    TooMany,
    #[error("it listens at too many addresses of this host")]
    TooManyAddresses,
    #[error("it ends")]
    Ending,
    #[error("its listener has no TCP port")]
    NoPort,
    #[error(transparent)]
    Link(#[from] LinkError),
    #[error("starting a thread: {0}")]
    Thread(std::io::Error),
}

/// The clients and workers that the desk lets in.
pub(crate) struct Expected<'a>(pub(crate) &'a Daemon);

impl fmt::Debug for Expected<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Expected(..)")
    }
}

impl Guests for Expected<'_> {
    fn redeem(&self, ticket: &[u8; TICKET_BYTES]) -> Option<Guest> {
        self.0.desk.open.lock().invitations.redeem(ticket, Instant::now())
    }

    fn awaits(&self, ticket: &[u8; TICKET_BYTES]) -> bool {
        self.0.workers().knows(ticket)
    }
}

impl Desk {
    fn encryption(&self) -> Result<&Encryption, LinkError> {
        if let Some(made) = self.encryption.get() {
            return Ok(made);
        }
        let made = Encryption::for_now(Pins::Never)?;
        Ok(self.encryption.get_or_init(|| made))
    }

    /// Returns how those are believed that connect to a listener of the desk.
    pub(crate) fn trust<'a>(&'a self, expected: &'a Expected<'_>) -> Result<Trust<'a>, LinkError> {
        Ok(Trust { pool: None, encryption: Some(self.encryption()?), guests: Some(expected) })
    }

    /// Returns whether a client may still come with a key.
    pub(crate) fn expects_guests(&self) -> bool {
        !self.open.lock().invitations.is_empty()
    }

    /// Returns when the daemon must look again even if nothing happens.
    pub(crate) fn next_look(&self) -> Option<Instant> {
        let open = self.open.lock();
        let next = open.invitations.next_look();
        // The last key was used: its listener is not needed any more.
        let is_late = next.is_none() && open.listening.iter().any(|it| !it.is_held());
        if is_late { Some(Instant::now()) } else { next }
    }

    /// Stops to listen where nobody can come any more.
    pub(crate) fn sweep(&self, now: Instant) {
        let mut open = self.open.lock();
        open.invitations.expire(now);
        if open.invitations.is_empty() {
            open.listening.retain_mut(|it| {
                it.workers.retain(|worker| worker.strong_count() > 0);
                if !it.is_held() {
                    it.listener.stop();
                }
                it.is_held()
            });
        }
    }

    /// Stops to listen for good.
    pub(crate) fn end(&self) {
        let mut open = self.open.lock();
        open.is_ended = true;
        open.listening.drain(..).for_each(|it| it.listener.stop());
    }
}

impl Daemon {
    /// Gives a bridge of the daemon's own user a one-time key for its client.
    pub(crate) fn tell_invitation(self: &Arc<Self>, accepted: Accepted) -> Result<(), LinkError> {
        // Only a Unix socket names the user. Other users of the daemon have no business with
        // bridges.
        let Some(user) = accepted.credentials.map(|it| it.uid).filter(|it| *it == self.user())
        else {
            return accepted.finish(Verdict::WrongUser).map(drop);
        };
        let deadline = Instant::now() + Duration::from_millis(HELLO_MS_MAX);
        let stream = accepted.finish(Verdict::Welcome)?;
        let address = hear_ask(&stream, deadline)?;
        let granted = self.invite(address, user);
        if let Err(why) = &granted {
            tracing::warn!(%why, "no one-time key for a bridge");
        }
        let told = tell_grant(&stream, granted.as_ref().ok(), deadline);
        // The thread that watches keys has one more to look at.
        self.wake();
        told
    }

    fn invite(self: &Arc<Self>, address: IpAddr, user: u32) -> Result<Granted, NoKey> {
        let node = self.desk.encryption()?.public()?;
        let guest = Guest::create(user)?;
        let mut open = self.desk.open.lock();
        let listener = self.listening_at(&mut open, address)?.listener.clone();
        let port = listener.address().port().ok_or(NoKey::NoPort)?;
        if !open.invitations.invite(guest.clone(), Instant::now()) {
            return Err(NoKey::TooMany);
        }
        Ok(Granted { guest, port, node })
    }

    /// Returns how workers of other nodes reach the worker of a client with a one-time key: the
    /// address, and the key that this daemon proves there. The daemon listens there as long as the
    /// worker lives. Returns `None` for any other client, and for one without other nodes.
    pub(crate) fn reach_for(
        self: &Arc<Self>,
        client: &Accepted,
        worker: &Arc<Control>,
    ) -> Option<String> {
        let at = client.guests_address().filter(|_| client.has_others)?;
        let node = self.desk.encryption().and_then(Encryption::public).ok()?;
        let mut open = self.desk.open.lock();
        let listening = self.listening_at(&mut open, at);
        let listening = listening.inspect_err(|why| {
            tracing::warn!(%why, "other nodes do not reach a worker directly");
        });
        let listening = listening.ok()?;
        listening.workers.retain(|worker| worker.strong_count() > 0);
        listening.workers.push(Arc::downgrade(worker));
        Some(format!("{}{NODE_MARK}{node}", listening.listener.address()))
    }

    /// Returns the listener at an address. Makes one if there is none.
    fn listening_at<'a>(
        self: &Arc<Self>,
        open: &'a mut Open,
        at: IpAddr,
    ) -> Result<&'a mut Listening, NoKey> {
        if open.is_ended {
            return Err(NoKey::Ending);
        }
        let known = open.listening.iter().position(|it| it.at == at);
        let index = match known {
            Some(index) => index,
            None if open.listening.len() >= INVITING_ADDRESSES_MAX => {
                return Err(NoKey::TooManyAddresses);
            }
            None => {
                let listener = self.listen_at(at)?;
                open.listening.push(Listening { at, listener, workers: Vec::new() });
                open.listening.len() - 1
            }
        };
        open.listening.get_mut(index).ok_or(NoKey::Ending)
    }

    /// Listens on a free port, and starts the thread that accepts connections there.
    fn listen_at(self: &Arc<Self>, address: IpAddr) -> Result<Arc<Listener>, NoKey> {
        let listener = Arc::new(Listener::bind(&Address::tcp(&address.to_string(), 0))?);
        let (daemon, entry) = (self.clone(), Entry::WithKey);
        let door = Door { daemon, listener: listener.clone(), region: None, entry };
        let started = penstock_process::start("desk", move || door.run());
        started.map_err(NoKey::Thread)?;
        tracing::info!(address = %listener.address(), "listening for clients with one-time keys");
        Ok(listener)
    }
}
