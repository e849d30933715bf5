//! Which thread runs next: a state machine without threads, locks and clocks.

use std::fmt::Write as _;
use std::hash::{DefaultHasher, Hasher as _};
use std::panic::Location;
use std::time::Duration;

/// Number of a thread of the world, in the order in which they were started.
pub(super) type ThreadId = usize;

/// Time that a look at the clock takes.
pub(super) const TICK: Duration = Duration::from_micros(1);

/// A thread on a slow machine may find a time passed although others could have run before it. The
/// clock jumps over at most this time while threads can run: more than all intervals at which
/// Penstock gathers, naps and looks, and less than the shortest silence after which it gives up.
const JUMP_MAX: Duration = Duration::from_millis(20);

/// One in this number of decisions lets such a thread run.
const JUMPS: u64 = 32;

/// One in this number of steps passes the baton on; the seed chooses one. A small number finds
/// disorder between two neighbouring steps, and a large one lets a thread get far ahead.
const STEPS_PER_TURN: [u64; 4] = [2, 5, 16, 64];

/// After one in this number of steps a thread does not go on for a while, as if the system gave its
/// core to another program. The others then get far between two neighbouring steps of it.
const STEPS_PER_PAUSE: [u64; 3] = [16, 64, 256];

/// A pause lasts so long, or until the clock jumps over it.
const PAUSE: Duration = Duration::from_micros(200);

/// What a thread waits for.
pub(super) enum Until {
    /// The lock with this address is free.
    Lock(usize),
    /// The signal with this address was notified.
    Signal(usize),
    /// This returns `true`.
    Ready(Box<dyn FnMut() -> bool + Send>),
    /// Only a deadline ends this.
    Never,
}

struct Thread {
    name: String,
    place: &'static Location<'static>,
    /// `None` if it can run.
    until: Option<Until>,
    deadline: Option<Duration>,
    has_timed_out: bool,
    has_ended: bool,
}

/// Gives random numbers.
type Numbers = Box<dyn FnMut() -> u64 + Send>;

/// The threads of a world and its clock.
pub(super) struct Schedule {
    numbers: Numbers,
    steps_per_turn: u64,
    steps_per_pause: u64,
    threads: Vec<Thread>,
    pub(super) now: Duration,
    pub(super) steps: u64,
    digest: DefaultHasher,
}

impl Schedule {
    pub(super) fn new(numbers: Numbers) -> Self {
        let mut new = Self {
            numbers,
            steps_per_turn: 1,
            steps_per_pause: 1,
            threads: Vec::new(),
            now: Duration::ZERO,
            steps: 0,
            digest: DefaultHasher::new(),
        };
        new.steps_per_turn = new.one_of(STEPS_PER_TURN);
        new.steps_per_pause = new.one_of(STEPS_PER_PAUSE);
        new
    }

    fn one_of<const N: usize>(&mut self, numbers: [u64; N]) -> u64 {
        let choice = usize::try_from(self.draw(N as u64)).unwrap_or_default();
        numbers.get(choice).copied().unwrap_or(1)
    }

    /// Draws a number below `end`, or 0.
    pub(super) fn draw(&mut self, end: u64) -> u64 {
        (self.numbers)().checked_rem(end).unwrap_or(0)
    }

    pub(super) fn note(&mut self, bytes: &[u8]) {
        self.digest.write(bytes);
        self.digest.write_usize(bytes.len());
    }

    /// Returns a number that depends on all decisions and on all that was noted.
    pub(super) fn digest(&self) -> u64 {
        self.digest.finish()
    }

    pub(super) fn add(&mut self, place: &'static Location<'static>) -> ThreadId {
        let (name, until, deadline) = ("a new thread".to_owned(), None, None);
        let (has_timed_out, has_ended) = (false, false);
        self.threads.push(Thread { name, place, until, deadline, has_timed_out, has_ended });
        self.threads.len() - 1
    }

    pub(super) fn name(&mut self, thread: ThreadId, name: &str) {
        if let Some(thread) = self.threads.get_mut(thread) {
            name.clone_into(&mut thread.name);
        }
    }

    pub(super) fn end(&mut self, thread: ThreadId) {
        if let Some(thread) = self.threads.get_mut(thread) {
            thread.has_ended = true;
        }
    }

    pub(super) fn has_ended(&self, thread: ThreadId) -> bool {
        self.threads.get(thread).is_none_or(|thread| thread.has_ended)
    }

    pub(super) fn has_timed_out(&self, thread: ThreadId) -> bool {
        self.threads.get(thread).is_some_and(|thread| thread.has_timed_out)
    }

    /// Notes a step of the running thread. Returns whether another thread may run now.
    pub(super) fn step(&mut self, thread: ThreadId, place: &'static Location<'static>) -> bool {
        self.steps += 1;
        self.digest.write_usize(thread);
        if let Some(thread) = self.threads.get_mut(thread) {
            thread.place = place;
        }
        if self.draw(self.steps_per_pause) == 0 {
            self.block(thread, Until::Never, Some(self.now + PAUSE), place);
            return true;
        }
        self.draw(self.steps_per_turn) == 0
    }

    pub(super) fn block(
        &mut self,
        thread: ThreadId,
        until: Until,
        deadline: Option<Duration>,
        place: &'static Location<'static>,
    ) {
        if let Some(thread) = self.threads.get_mut(thread) {
            (thread.until, thread.deadline, thread.place) = (Some(until), deadline, place);
            thread.has_timed_out = false;
        }
    }

    /// The lock with this address is free.
    pub(super) fn free(&mut self, address: usize) {
        for thread in &mut self.threads {
            if matches!(thread.until, Some(Until::Lock(of)) if of == address) {
                thread.until = None;
            }
        }
    }

    /// Wakes one of the threads that wait for this signal, or all of them.
    pub(super) fn notify(&mut self, address: usize, all: bool) {
        let waits =
            |thread: &Thread| matches!(thread.until, Some(Until::Signal(of)) if of == address);
        let waiting = self.threads.iter().filter(|thread| waits(thread)).count();
        let chosen = if all { None } else { Some(self.draw(waiting as u64)) };
        let woken = (0..).zip(self.threads.iter_mut().filter(|thread| waits(thread)));
        for (number, thread) in woken {
            if chosen.is_none_or(|chosen| chosen == number) {
                thread.until = None;
            }
        }
    }

    /// Returns the thread that runs next, or `None` if nobody can go on.
    pub(super) fn next(&mut self) -> Option<ThreadId> {
        let jumps = self.draw(JUMPS) == 0;
        let count = self.threads.len();
        let start = usize::try_from(self.draw(count as u64)).unwrap_or_default();
        let limit = if jumps { self.now + JUMP_MAX } else { self.now };
        let mut order = (start..count).chain(0..start);
        let next = order.find(|id| self.threads.get_mut(*id).is_some_and(|it| it.can_run(limit)));
        let next = next.or_else(|| self.earliest())?;
        let thread = self.threads.get_mut(next)?;
        if thread.until.as_mut().is_some_and(|until| !until.is_over()) {
            // Only its deadline lets it run.
            self.now = self.now.max(thread.deadline?);
            thread.has_timed_out = true;
        }
        (thread.until, thread.deadline) = (None, None);
        self.digest.write_usize(next);
        Some(next)
    }

    /// Returns the thread with the earliest deadline.
    fn earliest(&self) -> Option<ThreadId> {
        let waiting = self.threads.iter().enumerate().filter(|(_, thread)| !thread.has_ended);
        let waiting = waiting.filter_map(|(id, thread)| Some((thread.deadline?, id)));
        waiting.min().map(|(_, id)| id)
    }

    /// Returns the names of the threads that have not ended.
    pub(super) fn left(&self) -> Vec<String> {
        let living = self.threads.iter().filter(|thread| !thread.has_ended);
        living.map(|thread| thread.name.clone()).collect()
    }

    /// Returns what the threads that have not ended wait for, one in each line.
    pub(super) fn waits(&self) -> String {
        let mut text = String::new();
        let living = self.threads.iter().enumerate().filter(|(_, thread)| !thread.has_ended);
        for (id, _) in living {
            _ = writeln!(text, "  {}", self.wait_of(id));
        }
        text
    }

    /// Returns what a thread does or waits for.
    pub(super) fn wait_of(&self, thread: ThreadId) -> String {
        let Some(thread) = self.threads.get(thread) else { return String::new() };
        let what = match thread.until {
            Some(Until::Lock(_)) => "waits for a lock",
            Some(Until::Signal(_)) => "waits for a signal",
            Some(Until::Ready(_)) => "waits for a descriptor",
            Some(Until::Never) => "sleeps",
            None => "can run",
        };
        format!("{} {what} at {}", thread.name, thread.place)
    }
}

impl Thread {
    /// Returns whether the thread can run when the clock is at `limit`.
    fn can_run(&mut self, limit: Duration) -> bool {
        let is_late = self.deadline.is_some_and(|deadline| deadline <= limit);
        !self.has_ended && (is_late || self.until.as_mut().is_none_or(Until::is_over))
    }
}

impl Until {
    fn is_over(&mut self) -> bool {
        match self {
            Self::Ready(ready) => ready(),
            Self::Lock(_) | Self::Signal(_) | Self::Never => false,
        }
    }
}
