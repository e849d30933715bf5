//! SSH: `ssh:[USER@]HOST[:PORT]`. The node needs SSH and an installed Penstock, and nothing else.
//!
//! Connecting starts the user's own `ssh`, so host keys, agents, jump hosts and `~/.ssh/config`
//! apply. On the node it runs `penstock bridge`, which finds or starts the daemon of that user,
//! connects to its Unix socket, and copies bytes both ways. So the daemon sees a process of its own
//! user, and neither side needs the pool's key: SSH has authenticated both.
//!
//! A session asks the bridge for more ([`Reach::connect`]): an address, the public
//! key of the daemon, and a one-time key, with which it connects directly (`direct.rs`). Everything
//! else is short and goes through SSH.
//!
//! Each connection is one `ssh` with a login of its own, unless processes share one
//! ([`share_in`]). SSH encrypts all bytes, in one thread of each side.
//!
//! A program that links this library never asks its user anything: `ssh` runs with `BatchMode`. A
//! tool with a terminal may [`let_ssh_ask`]. It then asks for one node after another, and only for
//! those that want to know something.

mod banner;
pub(crate) mod bridge;
mod command;
mod connection;
mod process;
mod reason;

use std::ffi::OsString;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::OnceLock;
use std::thread;
use std::time::{Duration, Instant};

use penstock_process::variable::SSH_DIRECT;
use penstock_process::{Lock, log, variable};
use penstock_wire::invitation::Detour;

use super::contract::{
    Bound, Completion, Connected, Connection, Destination, Endpoint, Purpose, Reach, Transport,
};
use crate::invitation::Offer;
pub(crate) use banner::line as greeting;
use command::{Asking, Login, Program};
use connection::{LoggedIn, Wait};
use process::Running;
#[cfg(not(test))]
use process::start as start_ssh;
use reason::End;
#[cfg(test)]
use tests::start as start_ssh;

pub(super) static TRANSPORT: Transport = Transport {
    scheme: "ssh",
    form: "ssh:HOST",
    name: "SSH",
    needs_key: false,
    // All bytes take a longer way than over any other transport.
    rank: 20,
    families: &[],
    read,
    adopt,
    brought: connection::brought,
};

/// Longest time until the bridge answers: that of a login, for which a server allows 120 s by
/// default but which takes a fraction of it without questions, and that of a daemon that must
/// start, for which the bridge allows 20 s.
const BRIDGE_MAX: Duration = Duration::from_secs(60);

/// As [`BRIDGE_MAX`], if a person types a password. A server ends a login after 120 s by default
/// (`LoginGraceTime`).
const PERSON_MAX: Duration = Duration::from_secs(150);

/// Pauses in milliseconds before further logins, if a server hangs up because too many logins have
/// begun (`MaxStartups`: ten by default). The processes of a parallel program begin together, and a
/// login takes 0.3 s.
const CROWD_PAUSES_MS: [u64; 4] = [200, 400, 800, 1_600];

/// Whether this process may let `ssh` ask the person at the terminal.
static MAY_ASK: AtomicBool = AtomicBool::new(false);

/// Held while `ssh` may ask: two questions at the same time cannot be told apart.
static QUESTION: Lock<()> = Lock::new(());

/// Directory of the connections that this process shares with the programs that it starts.
static SHARED: OnceLock<PathBuf> = OnceLock::new();

/// Lets `ssh` ask the person at the terminal for passwords and about unknown host keys, where it
/// must. Without this call, such a node is an error. Only for programs that are Penstock's own.
pub fn let_ssh_ask() {
    MAY_ASK.store(true, Ordering::Relaxed);
}

/// Has all further logins of this process leave a connection in `folder`, over which later ones go
/// without a login. Only this user must be able to write to the folder. Programs that this process
/// starts use them, too, if their variable [`variable::SSH_SHARED`] names the folder. The caller
/// must call [`end_shared`] at the end.
pub fn share_in(folder: &Path) {
    // Only the first folder counts.
    _ = SHARED.set(folder.to_owned());
}

/// Ends the connections that processes share in a folder.
pub fn end_shared(folder: &Path) {
    let Ok(program) = Program::configured() else { return };
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        if entry.file_name().as_encoded_bytes().starts_with(command::SHARED_PREFIX.as_bytes()) {
            // A connection that has ended already needs no end.
            let ended = process::start(&program.end_shared(&entry.path()));
            _ = ended.map(|running| connection::wait_for_end(&running.socket));
        }
    }
}

/// Returns whether a bridge has greeted in these bytes, which may have come in two pieces. For
/// tests of the decoder.
pub fn has_greeted(first: &[u8], second: &[u8]) -> bool {
    let mut listening = banner::Listening::default();
    match listening.hear(first) {
        Ok(None) => matches!(listening.hear(second), Ok(Some(_))),
        Ok(Some(_)) => true,
        Err(_) => false,
    }
}

fn read(text: &str, completion: &Completion<'_>) -> Result<Endpoint, String> {
    if completion.purpose == Purpose::Listen {
        return Err("nobody listens at an address of SSH; programs start what they need there by \
                    themselves"
            .to_owned());
    }
    let login = Login::read(text)?;
    Ok(Endpoint {
        transport: &TRANSPORT,
        text: login.text().into(),
        host: Some(login.host.clone()),
        port: None,
        is_local: false,
        logs_in: true,
        reach: Box::new(Bridge(login)),
    })
}

/// A worker never gets such a connection: it gets the one that the bridge made.
fn adopt(_socket: OwnedFd, _note: &[u8]) -> io::Result<Connection> {
    Err(io::ErrorKind::Unsupported.into())
}

/// The bridge to which a login leads.
#[derive(Debug)]
struct Bridge(Login);

impl Reach for Bridge {
    fn connect(&self, for_session: bool, deadline: Instant) -> io::Result<Connected> {
        let wants_direct = for_session && direct_allowed().map_err(io::Error::other)?;
        let (logged_in, offer) = self.log_in(wants_direct, deadline)?;
        let (detour, invitation) = match offer {
            Offer::NotAsked if for_session && !wants_direct => (Detour::ForbiddenByClient, None),
            Offer::NotAsked => (Detour::NotTried, None),
            Offer::Forbidden => (Detour::ForbiddenByNode, None),
            Offer::Unavailable => (Detour::NoInvitation, None),
            Offer::Invitation(invitation) => (Detour::NotTried, Some(invitation)),
        };
        Ok((logged_in.connection(detour), invitation))
    }

    fn resolve(&self) -> io::Result<Vec<(Destination, Endpoint)>> {
        Ok(Vec::new())
    }

    fn listen(&self, _mode: u32) -> io::Result<Bound> {
        Err(io::ErrorKind::Unsupported.into())
    }

    /// Only the user who wrote the address may log in there.
    fn advertised(&self, _host: &str) -> Option<Endpoint> {
        None
    }
}

/// Returns whether sessions may connect directly, as the variable says on this host.
///
/// # Errors
/// Returns a message if the variable has another value. A typing error must not open a port.
pub fn direct_allowed() -> Result<bool, String> {
    let wrong = |value: OsString| {
        format!("variable {}: `{}` is not auto or never", SSH_DIRECT.name, value.display())
    };
    match SSH_DIRECT.value() {
        None => Ok(true),
        Some(value) if value == "auto" => Ok(true),
        Some(value) if value == "never" => Ok(false),
        Some(value) => Err(wrong(value)),
    }
}

impl Bridge {
    /// Logs in and returns the connection to the bridge, and what the bridge offers besides.
    fn log_in(
        &self,
        wants_direct: bool,
        deadline: Instant,
    ) -> io::Result<(LoggedIn, Offer)> {
        let mut pauses = CROWD_PAUSES_MS.into_iter();
        let failure = loop {
            let failure = match self.attempt(Asking::Nobody, wants_direct, deadline) {
                Ok(made) => return Ok(made),
                Err(failure) => failure,
            };
            match pauses.next().filter(|_| failure.is_crowd) {
                Some(pause_ms) => thread::sleep(different_pause(pause_ms)),
                None => break failure,
            }
        };
        if !(failure.needs_person && MAY_ASK.load(Ordering::Relaxed)) {
            return Err(failure.into());
        }
        let _question = QUESTION.lock();
        Ok(self.attempt(Asking::Person, wants_direct, deadline)?)
    }
}

/// Why no bridge answers.
struct NoBridge {
    /// What happened, and what to do.
    why: String,
    /// Whether a person at a terminal could help.
    needs_person: bool,
    /// Whether the server takes no more logins at this moment.
    is_crowd: bool,
    /// Whether the next login fails as well until a person has changed something.
    is_lasting: bool,
}

impl From<NoBridge> for io::Error {
    fn from(NoBridge { why, is_lasting, .. }: NoBridge) -> Self {
        let kind =
            if is_lasting { io::ErrorKind::PermissionDenied } else { io::ErrorKind::Other };
        Self::new(kind, why)
    }
}

impl From<String> for NoBridge {
    fn from(why: String) -> Self {
        Self { why, needs_person: false, is_crowd: false, is_lasting: false }
    }
}

/// Returns a pause between one and two times this long, another one in each process.
fn different_pause(pause_ms: u64) -> Duration {
    let share = u64::from(std::process::id() % 64);
    Duration::from_millis(pause_ms + pause_ms * share / 64)
}

impl Bridge {
    fn attempt(
        &self,
        asking: Asking,
        wants_direct: bool,
        deadline: Instant,
    ) -> Result<(LoggedIn, Offer), NoBridge> {
        let login = &self.0;
        let program = Program::configured()?;
        let folder = SHARED.get().cloned().or_else(|| variable::SSH_SHARED.path());
        // A process that outlives `penstock run` finds no folder any more.
        let shared = folder.filter(|folder| folder.is_dir());
        let shared = shared.and_then(|folder| program.shared(login, &folder));
        let max = if asking == Asking::Person { PERSON_MAX } else { BRIDGE_MAX };
        let deadline = deadline.max(Instant::now() + max);
        log!(Debug, "starting {} for {}", program.name(), login.text());
        let running = start_ssh(&program.command(login, asking, wants_direct, shared.as_deref()));
        let Running { socket, messages } = running.map_err(|error| error.to_string())?;
        let mut listening = banner::Listening::default();
        let mut wait = Wait::new(&socket, deadline);
        loop {
            let Some(bytes) = wait.more() else {
                let end = End::read(&messages.text());
                let why = end.before_bridge(login, listening.noise());
                let (needs_person, is_crowd) = (end.needs_person(), end.is_crowd());
                let is_lasting = end.is_lasting();
                return Err(NoBridge { why, needs_person, is_crowd, is_lasting });
            };
            match listening.hear(bytes) {
                Ok(None) => {}
                Ok(Some(greeting)) => {
                    let logged_in = LoggedIn {
                        socket,
                        messages,
                        login: login.text(),
                        user: greeting.user,
                    };
                    return Ok((logged_in, greeting.offer));
                }
                Err(wrong) => return Err(wrong.explain(login, listening.noise()).into()),
            }
        }
    }
}

#[cfg(test)]
pub(super) mod tests;
