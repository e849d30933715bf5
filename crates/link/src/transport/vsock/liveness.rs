//! Finds out whether the other end of a connection still lives: does what [`vigil`](super::vigil)
//! decides.
//!
//! vsock has no acknowledgements and no keep-alive. If a guest hangs or is paused, the kernel says
//! nothing about it, and neither does a monitor. So after some time of silence this side begins
//! another connection to the same machine, to a port on which nobody listens, and waits for the
//! refusal. With the kernel's vsock it also pokes the connection itself: see [`Buffers::poke`]. A
//! machine that was started anew resets the connection. Behind a monitor, the beats of a worker do
//! the same.

use std::io::IoSlice;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use penstock_process::Lock;
use rustix::io::Errno;
use rustix::net::sockopt;

use super::super::syscall::{self, Readiness, wait_fd};
use super::super::unix;
use super::monitor;
use super::place::{self, Buffers, Place};
use super::vigil::{ANSWER_MAX, Answer, Signs, Vigil};

/// Port that no program uses: the highest one.
const PORT_OF_NOBODY: u32 = u32::MAX - 1;

#[derive(Debug)]
pub(super) struct Liveness {
    machine: Machine,
    /// Whether bytes have come since the last look.
    heard: AtomicBool,
    watch: Lock<Watch>,
}

/// Machine at the other end, and how this side reaches it.
#[derive(Debug)]
enum Machine {
    Kernel(Place),
    /// Has the path of the monitor's socket.
    Monitor(PathBuf),
}

#[derive(Debug)]
struct Watch {
    vigil: Vigil,
    question: Option<Question>,
    /// `None` behind a monitor.
    buffers: Option<Buffers>,
}

/// Connection to the port of nobody.
#[derive(Debug)]
enum Question {
    Kernel(OwnedFd),
    Monitor(OwnedFd),
}

impl Liveness {
    /// Watches over a connection of the kernel's vsock.
    pub(super) fn of_kernel(there: Place, buffers: Buffers) -> Self {
        Self::new(Machine::Kernel(there), Some(buffers))
    }

    /// Watches over a connection to the guest behind a monitor.
    pub(super) fn of_monitor(path: PathBuf) -> Self {
        Self::new(Machine::Monitor(path), None)
    }

    fn new(machine: Machine, buffers: Option<Buffers>) -> Self {
        let vigil = Vigil::new(Instant::now(), buffers.is_some());
        let watch = Lock::new(Watch { vigil, question: None, buffers });
        Self { machine, heard: AtomicBool::new(false), watch }
    }

    /// Notes that bytes have come.
    pub(super) fn hear(&self) {
        self.heard.store(true, Ordering::Relaxed);
    }

    /// Notes that the other end sends beats, and counts as gone after `silence_max` without any
    /// bytes.
    pub(super) fn expect_beats(&self, silence_max: Duration) {
        self.watch.lock().vigil.expect_beats(Instant::now(), silence_max);
    }

    /// Returns whether the other end is known to have vanished. Does not block. Callers ask again
    /// and again while they wait.
    pub(super) fn is_lost(&self, connection: BorrowedFd<'_>) -> bool {
        let mut watch = self.watch.lock();
        let watch = &mut *watch;
        // Bytes that no thread of this side has taken yet are a beat as well.
        let heard = self.heard.swap(false, Ordering::Relaxed)
            || watch.vigil.judges_beats() && is_readable(connection);
        let answer = watch.question.as_ref().and_then(Question::answer);
        let deeds = watch.vigil.look(Instant::now(), Signs { heard, answer });
        if !watch.vigil.is_asking() {
            watch.question = None;
        }
        if deeds.poke && let Some(buffers) = &mut watch.buffers {
            buffers.poke(connection);
        }
        if deeds.ask {
            match self.machine.ask() {
                Ok(question) => watch.question = Some(question),
                Err(why) => return watch.vigil.could_not_ask(why, Instant::now()),
            }
        }
        deeds.is_lost
    }
}

fn is_readable(connection: BorrowedFd<'_>) -> bool {
    matches!(wait_fd(connection, Readiness::Readable, Some(Instant::now())), Ok(true))
}

impl Machine {
    /// Begins a connection to the port of nobody.
    fn ask(&self) -> Result<Question, Answer> {
        match self {
            Self::Kernel(there) => {
                let nobody = Place { port: PORT_OF_NOBODY, ..*there };
                place::begin_to_connect(nobody, ANSWER_MAX)
                    .map(Question::Kernel)
                    .map_err(Answer::of)
            }
            Self::Monitor(path) => {
                // A monitor that accepts nothing now is no answer of the guest.
                let socket =
                    unix::connect_to(path, Instant::now()).map_err(|_| Answer::Unclear)?;
                let request = monitor::request(PORT_OF_NOBODY);
                match syscall::send_now(socket.as_fd(), &[IoSlice::new(request.as_bytes())]) {
                    Ok(Some(sent)) if sent == request.len() => Ok(Question::Monitor(socket)),
                    _ => Err(Answer::Unclear),
                }
            }
        }
    }
}

impl Question {
    /// Returns `None` if the machine may still answer.
    fn answer(&self) -> Option<Answer> {
        match self {
            Self::Kernel(socket) => {
                let now = Some(Instant::now());
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
            Self::Monitor(socket) => is_readable(socket.as_fd()).then_some(Answer::Lives),
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
