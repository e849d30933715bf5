//! Finds out whether the machine at the other end still lives.
//!
//! vsock has no acknowledgements and no keep-alive. If a guest hangs or is paused, or if the
//! process behind its vsock device dies, the kernel says nothing about it. So after some time of
//! silence this side does two things:
//!
//! * It begins another connection to the same machine, to a port on which nobody listens. A living
//!   machine refuses it at once, even if the programs there are busy or stopped. The machine has
//!   vanished if no answer comes in time.
//! * It pokes the connection itself: see [`Buffers::poke`]. A machine that was started anew resets
//!   the connection.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use penstock_process::Lock;
use rustix::io::Errno;
use rustix::net::sockopt;

use super::super::syscall::{Readiness, wait_fd};
use super::place::{self, Buffers, Place};

/// Silence after which the other machine is asked for a sign of life.
const QUIET_MAX: Duration = Duration::from_secs(3);

/// Time that the other machine has for its answer. TCP, too, gives an idle peer 3 s. With the
/// silence before it and the interval between two looks, a loss is known after at most 7 s.
const ANSWER_MAX: Duration = Duration::from_secs(3);

/// Port that no program uses: the highest one.
const PORT_OF_NOBODY: u32 = u32::MAX - 1;

#[derive(Debug)]
pub(super) struct Liveness {
    /// The machine, and the port of nobody.
    place: Place,
    /// Whether bytes have come since the last look.
    heard: AtomicBool,
    watch: Lock<Watch>,
    ask: Ask,
}

/// Begins a connection to a place, which the kernel gives up after a time. Tests use another one.
type Ask = fn(Place, Duration) -> rustix::io::Result<OwnedFd>;

#[derive(Debug)]
struct Watch {
    quiet_since: Instant,
    question: Option<Question>,
    buffers: Buffers,
}

/// Connection to the port of nobody.
#[derive(Debug)]
struct Question {
    socket: OwnedFd,
    asked: Instant,
}

impl Liveness {
    pub(super) fn new(there: Place, buffers: Buffers) -> Self {
        let watch = Watch { quiet_since: Instant::now(), question: None, buffers };
        Self {
            place: Place { port: PORT_OF_NOBODY, ..there },
            heard: AtomicBool::new(false),
            watch: Lock::new(watch),
            ask: place::begin_to_connect,
        }
    }

    /// Notes that bytes have come.
    pub(super) fn hear(&self) {
        self.heard.store(true, Ordering::Relaxed);
    }

    /// Returns whether the machine is known to have vanished. Does not block. Callers ask again
    /// and again while they wait.
    pub(super) fn is_lost(&self, connection: BorrowedFd<'_>) -> bool {
        self.is_lost_at(Instant::now(), connection)
    }

    fn is_lost_at(&self, now: Instant, connection: BorrowedFd<'_>) -> bool {
        let mut watch = self.watch.lock();
        if self.heard.swap(false, Ordering::Relaxed) {
            watch.quiet_since = now;
            watch.question = None;
            return false;
        }
        let answer = match &watch.question {
            Some(question) => question.answer(now),
            None if now.duration_since(watch.quiet_since) < QUIET_MAX => return false,
            None => {
                watch.buffers.poke(connection);
                match (self.ask)(self.place, ANSWER_MAX) {
                    Ok(socket) => {
                        watch.question = Some(Question { socket, asked: now });
                        return false;
                    }
                    Err(error) => Some(is_sign_of_life(error)),
                }
            }
        };
        match answer {
            None => false,
            Some(lives) => {
                watch.quiet_since = now;
                watch.question = None;
                !lives
            }
        }
    }
}

impl Question {
    /// Returns whether the machine lives, or `None` if it may still answer.
    fn answer(&self, now: Instant) -> Option<bool> {
        let answered = wait_fd(self.socket.as_fd(), Readiness::Writable, Some(now));
        if matches!(answered, Ok(false)) {
            return (now.duration_since(self.asked) >= ANSWER_MAX).then_some(false);
        }
        Some(match sockopt::socket_error(&self.socket) {
            Ok(Err(error)) => is_sign_of_life(error),
            _ => true,
        })
    }
}

/// Returns whether a connection that failed with this error shows that the machine lives. An error
/// of this machine, for example a lack of descriptors, says nothing about the other one.
fn is_sign_of_life(error: Errno) -> bool {
    !matches!(
        error,
        Errno::TIMEDOUT | Errno::NODEV | Errno::HOSTUNREACH | Errno::NETUNREACH | Errno::NETDOWN
    )
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;
    use std::os::unix::net::UnixStream;

    use super::*;

    #[test]
    fn only_a_machine_that_gives_no_answer_is_lost() {
        for error in [Errno::CONNRESET, Errno::CONNREFUSED, Errno::MFILE, Errno::NOMEM] {
            assert!(is_sign_of_life(error), "{error}");
        }
        for error in [Errno::TIMEDOUT, Errno::NODEV] {
            assert!(!is_sign_of_life(error), "{error}");
        }
    }

    /// Returns a socket without room, as one has that waits for an answer.
    fn unanswered(place: Place, patience: Duration) -> rustix::io::Result<OwnedFd> {
        assert_eq!((place, patience), (Place { cid: 9, port: PORT_OF_NOBODY }, ANSWER_MAX));
        let (mut one, other) = UnixStream::pair().unwrap();
        std::mem::forget(other);
        one.set_nonblocking(true).unwrap();
        while one.write(&[0; 4096]).is_ok() {}
        Ok(one.into())
    }

    fn refused(_: Place, _: Duration) -> rustix::io::Result<OwnedFd> {
        Err(Errno::CONNRESET)
    }

    fn without_device(_: Place, _: Duration) -> rustix::io::Result<OwnedFd> {
        Err(Errno::NODEV)
    }

    /// Returns whether the machine is lost at each of these times, in milliseconds since the
    /// connection was made. The bytes of the peer come before the times in `heard`.
    fn losses(ask: Ask, times: &[u64], heard: &[u64]) -> Vec<bool> {
        let (connection, _other) = UnixStream::pair().unwrap();
        let there = Place { cid: 9, port: 7367 };
        let liveness = Liveness { ask, ..Liveness::new(there, Buffers::for_test()) };
        let start = liveness.watch.lock().quiet_since;
        let look = |&ms: &u64| {
            if heard.contains(&ms) {
                liveness.hear();
            }
            liveness.is_lost_at(start + Duration::from_millis(ms), connection.as_fd())
        };
        times.iter().map(look).collect()
    }

    #[test]
    fn silence_and_no_answer_are_a_loss_after_a_time() {
        let times = [0, 2_999, 3_000, 4_000, 5_999, 6_000];
        assert_eq!(losses(unanswered, &times, &[]), [false, false, false, false, false, true]);
        assert_eq!(losses(without_device, &times[..3], &[]), [false, false, true]);
    }

    #[test]
    fn bytes_and_refusals_are_signs_of_life() {
        let times = [3_000, 5_999, 6_000, 8_998, 8_999, 11_998, 11_999];
        let heard = losses(unanswered, &times, &[5_999]);
        assert_eq!(heard, [false, false, false, false, false, false, true]);
        assert_eq!(losses(refused, &times, &[]), [false; 7]);
    }
}
