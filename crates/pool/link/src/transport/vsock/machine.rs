//! Machines at the other end of vsock, and who asks them for a sign of life.
//!
//! A process may ask by itself. A worker makes no connections, so its daemon asks for it: the
//! daemon begins the connection and passes the socket on. The worker reads the answer from the
//! socket.

use std::io::IoSlice;
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use penstock_process::Lock;
use rustix::io::Errno;
use rustix::net::sockopt;
use serde::{Deserialize, Serialize};

use super::super::contract::Source;
use super::super::socket_file;
use super::super::syscall::{self, Readiness, wait_fd};
use super::monitor;
use super::place::{self, Place};
use super::vigil::ANSWER_MAX;
pub use super::vigil::Answer;

/// Port that no program uses: the highest one.
const PORT_OF_NOBODY: u32 = u32::MAX - 1;

/// Longest wait for the daemon that asks. What is left of [`ANSWER_MAX`] belongs to the machine.
const DAEMON_MAX: Duration = Duration::from_secs(1);

/// A machine at the other end of a connection over vsock.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Machine {
    /// Machine that the kernel knows by this number.
    Number(u32),
    /// Guest behind a monitor whose socket has this path.
    Behind(PathBuf),
}

/// Asks machines in place of this process.
pub trait Asker: Send + Sync {
    /// Has somebody ask this machine. Must not wait.
    fn ask(&self, machine: &Machine, asking: &Arc<Asking>);
}

/// A question that another process asks.
#[derive(Debug)]
pub struct Asking {
    since: Instant,
    begun: Lock<Option<Result<OwnedFd, Answer>>>,
}

impl Asking {
    fn new() -> Self {
        Self { since: Instant::now(), begun: Lock::new(None) }
    }

    /// Notes the socket on which the answer comes, or why nobody could ask.
    pub fn begun(&self, socket: Result<OwnedFd, Answer>) {
        self.begun.lock().get_or_insert(socket);
    }
}

static ASKER: OnceLock<Box<dyn Asker>> = OnceLock::new();

/// Has this process ask no machine itself from now on. Only the first call has an effect.
pub fn let_ask(asker: Box<dyn Asker>) {
    // The asker of an earlier call stays.
    _ = ASKER.set(asker);
}

impl Machine {
    /// Returns the machine from which a connection comes, if it comes over vsock.
    #[must_use]
    pub fn of(source: &Source) -> Option<Self> {
        match source {
            Source::Machine(number) => Some(Self::Number(*number)),
            Source::Guest(path) => Some(Self::Behind(path.clone())),
            _ => None,
        }
    }

    /// Begins to ask the machine, without waiting. Returns the socket on which the answer comes.
    ///
    /// # Errors
    /// Fails with what the failure says about the machine.
    pub fn ask(&self) -> Result<OwnedFd, Answer> {
        match self {
            Self::Number(cid) => {
                let nobody = Place { cid: *cid, port: PORT_OF_NOBODY };
                place::begin_to_connect(nobody, ANSWER_MAX).map_err(Answer::of)
            }
            Self::Behind(path) => {
                // A monitor that accepts nothing now is no answer of the guest.
                let socket =
                    socket_file::connect(path, Instant::now()).map_err(|_| Answer::Unclear)?;
                let request = monitor::request(PORT_OF_NOBODY);
                match syscall::send_now(socket.as_fd(), &[IoSlice::new(request.as_bytes())]) {
                    Ok(Some(sent)) if sent == request.len() => Ok(socket),
                    _ => Err(Answer::Unclear),
                }
            }
        }
    }

    /// Returns what has come on the socket of a question, or `None` if the machine may still
    /// answer.
    fn answer(&self, socket: &OwnedFd) -> Option<Answer> {
        let now = Some(Instant::now());
        match self {
            Self::Number(_) => {
                if matches!(wait_fd(socket.as_fd(), Readiness::Writable, now), Ok(false)) {
                    return None;
                }
                Some(match sockopt::socket_error(socket) {
                    Ok(Ok(())) => Answer::Lives,
                    Ok(Err(error)) => Answer::of(error),
                    Err(_) => Answer::Unclear,
                })
            }
            // The monitor hangs up if the guest refuses the connection, and writes a line if a
            // program there accepts it.
            Self::Behind(_) => {
                let ready = wait_fd(socket.as_fd(), Readiness::Readable, now);
                matches!(ready, Ok(true)).then_some(Answer::Lives)
            }
        }
    }
}

impl Answer {
    /// Returns the meaning of a connection that failed with this error.
    fn of(error: Errno) -> Self {
        match error {
            Errno::CONNRESET | Errno::CONNREFUSED => Self::Lives,
            Errno::TIMEDOUT => Self::Silent,
            Errno::NODEV | Errno::HOSTUNREACH | Errno::NETUNREACH | Errno::NETDOWN => Self::Gone,
            _ => Self::Unclear,
        }
    }
}

/// A question that is open.
#[derive(Debug)]
pub(super) enum Question {
    Own(OwnedFd),
    Elsewhere(Arc<Asking>),
}

impl Question {
    /// Asks the machine, or has somebody ask it.
    pub(super) fn put(machine: &Machine) -> Result<Self, Answer> {
        let Some(asker) = ASKER.get() else {
            return machine.ask().map(Self::Own);
        };
        let asking = Arc::new(Asking::new());
        asker.ask(machine, &asking);
        Ok(Self::Elsewhere(asking))
    }

    /// Returns `None` if the machine may still answer.
    pub(super) fn answer(&self, machine: &Machine) -> Option<Answer> {
        let asking = match self {
            Self::Own(socket) => return machine.answer(socket),
            Self::Elsewhere(asking) => asking,
        };
        match &*asking.begun.lock() {
            Some(Ok(socket)) => machine.answer(socket),
            Some(Err(answer)) => Some(*answer),
            // A daemon that is busy says nothing about the machine.
            None => (asking.since.elapsed() >= DAEMON_MAX).then_some(Answer::Unclear),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;

    use super::*;

    #[test]
    fn what_another_process_asks_is_answered_on_its_socket() {
        let path = std::env::temp_dir().join(format!("penstock-asked-{}", std::process::id()));
        _ = std::fs::remove_file(&path);
        let monitor = UnixListener::bind(&path).unwrap();
        let machine = Machine::Behind(path.clone());
        let asking = Arc::new(Asking::new());
        let question = Question::Elsewhere(asking.clone());
        assert_eq!(question.answer(&machine), None);
        asking.begun(machine.ask());
        assert_eq!(question.answer(&machine), None);
        // The monitor hangs up when the guest has refused.
        drop(monitor.accept().unwrap());
        assert_eq!(question.answer(&machine), Some(Answer::Lives));
        // Only the first one counts.
        asking.begun(Err(Answer::Gone));
        assert_eq!(question.answer(&machine), Some(Answer::Lives));
        drop(monitor);
        std::fs::remove_file(&path).unwrap();
        assert_eq!(machine.ask().unwrap_err(), Answer::Unclear);
    }

    #[test]
    fn a_daemon_that_does_not_ask_says_nothing_about_the_machine() {
        let since = Instant::now().checked_sub(DAEMON_MAX).unwrap();
        let question = |begun| Question::Elsewhere(Arc::new(Asking { since, begun }));
        let machine = Machine::Number(7);
        assert_eq!(question(Lock::new(None)).answer(&machine), Some(Answer::Unclear));
        let gone = Lock::new(Some(Err(Answer::Gone)));
        assert_eq!(question(gone).answer(&machine), Some(Answer::Gone));
    }

    #[test]
    fn only_vsock_leads_to_machines() {
        assert_eq!(Machine::of(&Source::Machine(5)), Some(Machine::Number(5)));
        assert_eq!(Machine::of(&Source::Guest("/g".into())), Some(Machine::Behind("/g".into())));
        assert_eq!(Machine::of(&Source::User(5)), None);
    }
}
