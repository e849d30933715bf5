//! Finds out whether the machine at the other end still lives.
//!
//! vsock has no acknowledgements and no keep-alive. If a guest hangs or is paused, the kernel says
//! nothing about it. So after some time of silence this side does two things:
//!
//! * It begins another connection to the same machine, to a port on which nobody listens. A living
//!   machine refuses it at once, even if the programs there are busy or stopped. The machine has
//!   vanished if no answer comes in time.
//! * It pokes the connection itself: see [`Buffers::poke`]. A machine that was started anew resets
//!   the connection.
//!
//! Some monitors never refuse a connection, for example `vhost-device-vsock` 0.3.0. So the first
//! question comes early, while the machine is known to live. If the machine leaves this question
//! unanswered, its silence means nothing, and no question follows.

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
/// silence before it and the interval between two looks, a loss is known after at most 8 s.
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
    refusals: Refusals,
    buffers: Buffers,
}

/// Whether the machine refuses connections to the port of nobody.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Refusals {
    NotAsked,
    Come,
    NeverCome,
}

/// Connection to the port of nobody.
#[derive(Debug)]
struct Question {
    socket: OwnedFd,
    asked: Instant,
}

/// Answer to a question.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Answer {
    /// The machine has refused or accepted the connection.
    Lives,
    /// Nothing came in time.
    Silent,
    /// This machine's kernel knows that the other one is gone.
    Gone,
    /// This machine could not ask, for example because it lacks descriptors.
    Unclear,
}

impl Liveness {
    pub(super) fn new(there: Place, buffers: Buffers) -> Self {
        let watch = Watch {
            quiet_since: Instant::now(),
            question: None,
            refusals: Refusals::NotAsked,
            buffers,
        };
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
        }
        let is_quiet = now.duration_since(watch.quiet_since) >= QUIET_MAX;
        if let Some(question) = &watch.question {
            let Some(answer) = question.answer(now) else { return false };
            let has_spoken = watch.quiet_since > question.asked;
            watch.question = None;
            return watch.take(answer, has_spoken, now);
        }
        if is_quiet {
            watch.buffers.poke(connection);
            // The next poke comes after the same time.
            watch.quiet_since = now;
        }
        let asks = match watch.refusals {
            Refusals::NotAsked => true,
            Refusals::Come => is_quiet,
            Refusals::NeverCome => false,
        };
        if !asks {
            return false;
        }
        match (self.ask)(self.place, ANSWER_MAX) {
            Ok(socket) => {
                watch.question = Some(Question { socket, asked: now });
                false
            }
            Err(error) => watch.take(Answer::of(error), false, now),
        }
    }
}

impl Watch {
    /// Takes an answer. Returns whether the machine is lost. `has_spoken` says that bytes came
    /// after the question.
    fn take(&mut self, answer: Answer, has_spoken: bool, now: Instant) -> bool {
        match answer {
            Answer::Gone => return true,
            Answer::Silent if self.refusals == Refusals::Come => return !has_spoken,
            Answer::Silent => self.refusals = Refusals::NeverCome,
            Answer::Lives => {
                self.refusals = Refusals::Come;
                self.quiet_since = now;
            }
            Answer::Unclear => {}
        }
        false
    }
}

impl Question {
    /// Returns `None` if the machine may still answer.
    fn answer(&self, now: Instant) -> Option<Answer> {
        let answered = wait_fd(self.socket.as_fd(), Readiness::Writable, Some(now));
        if matches!(answered, Ok(false)) {
            return (now.duration_since(self.asked) >= ANSWER_MAX).then_some(Answer::Silent);
        }
        Some(match sockopt::socket_error(&self.socket) {
            Ok(Ok(())) => Answer::Lives,
            Ok(Err(error)) => Answer::of(error),
            Err(_) => Answer::Unclear,
        })
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

#[cfg(test)]
mod tests {
    use std::io::Write as _;
    use std::os::unix::net::UnixStream;

    use super::*;

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
    /// connection was made. The machine refuses connections if it is asked before `silent_from`.
    /// Bytes of the peer come before the times in `heard`.
    fn losses(later: Ask, silent_from: u64, times: &[u64], heard: &[u64]) -> Vec<bool> {
        let (connection, _other) = UnixStream::pair().unwrap();
        let there = Place { cid: 9, port: 7367 };
        let mut liveness = Liveness::new(there, Buffers::for_test());
        let start = liveness.watch.lock().quiet_since;
        let mut look = |&ms: &u64| {
            liveness.ask = if ms < silent_from { refused } else { later };
            if heard.contains(&ms) {
                liveness.hear();
            }
            liveness.is_lost_at(start + Duration::from_millis(ms), connection.as_fd())
        };
        times.iter().map(&mut look).collect()
    }

    #[test]
    fn silence_and_no_answer_are_a_loss_after_a_time() {
        let times = [1_000, 3_999, 4_000, 6_999, 7_000];
        assert_eq!(losses(unanswered, 2_000, &times, &[]), [false, false, false, false, true]);
        assert_eq!(losses(without_device, 2_000, &times[..3], &[]), [false, false, true]);
    }

    #[test]
    fn bytes_and_refusals_are_signs_of_life() {
        let times = [1_000, 4_000, 6_999, 7_000, 9_998, 9_999, 12_998, 12_999];
        let heard = losses(unanswered, 2_000, &times, &[6_999]);
        assert_eq!(heard, [false, false, false, false, false, false, false, true]);
        assert_eq!(losses(refused, 0, &times, &[]), [false; 8]);
    }

    #[test]
    fn the_silence_of_a_machine_that_never_answers_means_nothing() {
        let times: Vec<u64> = (1..60).map(|second| second * 1_000).collect();
        assert!(losses(unanswered, 0, &times, &[]).iter().all(|lost| !lost));
    }

    #[test]
    fn a_lack_on_this_side_says_nothing_about_the_machine() {
        let lacking: Ask = |_, _| Err(Errno::MFILE);
        assert_eq!(losses(lacking, 2_000, &[1_000, 4_000, 8_000, 12_000], &[]), [false; 4]);
    }
}
