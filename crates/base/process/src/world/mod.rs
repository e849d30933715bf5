//! A world: threads of which one runs at a time, in an order that a seed determines, with a clock
//! that moves only when all threads wait.
//!
//! Only tests have this module, with the feature `world`. Each thread that a thread of the world
//! starts with `start` belongs to the world. Exactly one of them has the baton. A thread passes
//! through the [`Schedule`] whenever it takes a lock, waits, notifies, sleeps, or reads the clock,
//! and there the baton may go to another thread. A thread that must wait says for what, and perhaps
//! until when. If no thread can run, the clock jumps to the earliest of these times. If there is
//! none either, nobody can go on: the world ends with a [`Finding`] that names each
//! thread and what the thread waits for.
//!
//! * `schedule` decides which thread runs next. It has no thread, no lock and no clock.
//! * `turn` is how a thread reads the clock, sleeps, and starts threads.
//! * `lock` has [`crate::Lock`] and [`crate::Signal`] for threads of a world and for all others.
//! * This file passes the baton.
//!
//! A thread that can never run again stays where it is until the process ends, because it may hold
//! anything. The process of a simulation therefore runs one world.

pub(crate) mod lock;
mod schedule;
pub(crate) mod turn;

use std::any::Any;
use std::cell::RefCell;
use std::fmt;
use std::panic::{AssertUnwindSafe, Location, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::Thread;
use std::time::{Duration, Instant};

use schedule::{Schedule, ThreadId, Until};
pub use turn::{Spawned, spawn};

/// Why a world has ended although its program has not, or could not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Finding {
    /// No thread can run, and none waits for a time.
    Deadlock(String),
    /// A thread panicked.
    Panic(String),
    /// The threads have made more steps than the world allows.
    Endless(String),
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Deadlock(waits) => write!(f, "nobody can go on:\n{waits}"),
            Self::Panic(what) => write!(f, "a thread panicked: {what}"),
            Self::Endless(waits) => write!(f, "the threads come to no end:\n{waits}"),
        }
    }
}

/// How a world went.
#[derive(Debug)]
pub struct Outcome<T> {
    pub result: Result<T, Finding>,
    /// Threads that wait for ever after the program has ended.
    pub left: Vec<String>,
    /// Depends on each decision, and on all that [`note`] was told.
    pub digest: u64,
    pub steps: u64,
    /// Time that has passed in the world.
    pub passed: Duration,
}

/// What a world is made of.
#[derive(Clone, Copy, Debug)]
pub struct Rules {
    /// Most steps until the threads count as endless.
    pub steps_max: u64,
    /// Prints each change of the running thread to the standard error output.
    pub is_traced: bool,
}

/// The usual rules: no program of the tests makes a fifth of these steps.
impl Default for Rules {
    fn default() -> Self {
        Self { steps_max: 300_000, is_traced: false }
    }
}

struct World {
    state: Mutex<State>,
    /// The thread that has the baton.
    running: AtomicUsize,
    is_over: Condvar,
}

struct State {
    schedule: Schedule,
    /// The threads that have begun.
    threads: Vec<Option<Thread>>,
    base: Instant,
    rules: Rules,
    end: Option<(Option<Finding>, Vec<String>)>,
}

thread_local! {
    static MEMBER: RefCell<Option<(Arc<World>, ThreadId)>> = const { RefCell::new(None) };
}

/// Runs `program` as the first thread of a world, until no thread of the world can go on.
/// `numbers` gives the random numbers that decide.
pub fn run<T: Send + 'static>(
    rules: Rules,
    numbers: impl FnMut() -> u64 + Send + 'static,
    program: impl FnOnce() -> T + Send + 'static,
) -> Outcome<T> {
    let state = State {
        schedule: Schedule::new(Box::new(numbers)),
        threads: Vec::new(),
        base: Instant::now(),
        rules,
        end: None,
    };
    let (running, is_over) = (AtomicUsize::new(0), Condvar::new());
    let world = Arc::new(World { state: Mutex::new(state), running, is_over });
    let seat = Seat::of(&world, Location::caller());
    let result = Arc::new(Mutex::new(None));
    let told = result.clone();
    let work = move || {
        let value = program();
        *told.lock().unwrap_or_else(PoisonError::into_inner) = Some(value);
    };
    let first = std::thread::Builder::new().name("program".into());
    let started = first.spawn(move || seat.run(work));
    assert!(started.is_ok(), "the world has no thread: {started:?}");
    let mut state = world.state();
    let (finding, left) = loop {
        if let Some(end) = state.end.take() {
            break end;
        }
        state = world.is_over.wait(state).unwrap_or_else(PoisonError::into_inner);
    };
    let value = result.lock().unwrap_or_else(PoisonError::into_inner).take();
    let waits = || state.schedule.waits();
    let result = match (finding, value) {
        (Some(finding), _) => Err(finding),
        (None, Some(value)) => Ok(value),
        (None, None) => Err(Finding::Deadlock(waits())),
    };
    let Schedule { steps, now, .. } = state.schedule;
    Outcome { result, left, digest: state.schedule.digest(), steps, passed: now }
}

/// Adds bytes to the digest of the world.
pub fn note(bytes: &[u8]) {
    with_world(|world, _| world.state().schedule.note(bytes));
}

/// Waits until `ready` returns `true`, for at most until `deadline`. Returns `false` if the
/// deadline passed. Returns `None`, without waiting, in a thread of no world.
///
/// Any thread of the world may call `ready`, and it may do so while it decides: `ready` uses
/// nothing of this crate.
#[track_caller]
pub fn wait_until(
    deadline: Option<Instant>,
    mut ready: Box<dyn FnMut() -> bool + Send>,
) -> Option<bool> {
    let place = Location::caller();
    with_world(|world, me| {
        world.step(me, place);
        ready() || !world.block(me, Until::Ready(ready), deadline, place)
    })
}

/// Whether this thread belongs to a world.
#[must_use]
pub fn is_member() -> bool {
    with_world(|_, _| ()).is_some()
}

/// A number from the seed of the world, below `end`; 0 in a thread of no world.
#[must_use]
pub fn draw(end: u64) -> u64 {
    with_world(|world, _| world.state().schedule.draw(end)).unwrap_or(0)
}

/// Calls `act` if this thread belongs to a world.
fn with_world<T>(act: impl FnOnce(&Arc<World>, ThreadId) -> T) -> Option<T> {
    let member = MEMBER.try_with(|member| member.borrow().clone()).ok().flatten();
    member.map(|(world, me)| act(&world, me))
}

/// The place of a thread in a world, from before the thread starts until it ends.
struct Seat {
    world: Arc<World>,
    id: ThreadId,
    is_taken: bool,
}

impl Seat {
    fn of(world: &Arc<World>, place: &'static Location<'static>) -> Self {
        let mut state = world.state();
        let id = state.schedule.add(place);
        state.threads.push(None);
        drop(state);
        Self { world: world.clone(), id, is_taken: false }
    }

    /// Runs the work of this thread in the world.
    fn run<T>(mut self, work: impl FnOnce() -> T) -> T {
        self.is_taken = true;
        let (world, me) = (self.world.clone(), self.id);
        let this = std::thread::current();
        let mut state = world.state();
        state.schedule.name(me, this.name().unwrap_or("unnamed"));
        if let Some(slot) = state.threads.get_mut(me) {
            *slot = Some(this.clone());
        }
        drop(state);
        MEMBER.with_borrow_mut(|member| *member = Some((world.clone(), me)));
        world.await_baton(me);
        match catch_unwind(AssertUnwindSafe(work)) {
            Ok(result) => {
                MEMBER.with_borrow_mut(|member| *member = None);
                let mut state = world.state();
                state.schedule.end(me);
                world.pass(state, me);
                result
            }
            Err(panic) => {
                let why = format!("{}: {}", this.name().unwrap_or("unnamed"), said(&*panic));
                world.end_with(world.state(), Finding::Panic(why))
            }
        }
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        if !self.is_taken {
            self.world.state().schedule.end(self.id);
        }
    }
}

fn said(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("without a message")
}

impl World {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A point at which another thread may get the baton.
    fn step(&self, me: ThreadId, place: &'static Location<'static>) {
        let mut state = self.state();
        if state.schedule.steps >= state.rules.steps_max {
            let waits = state.schedule.waits();
            self.end_with(state, Finding::Endless(waits));
        }
        if state.schedule.step(me, place) {
            self.pass(state, me);
        }
    }

    /// Waits. Returns whether the deadline passed.
    fn block(
        &self,
        me: ThreadId,
        until: Until,
        deadline: Option<Instant>,
        place: &'static Location<'static>,
    ) -> bool {
        let mut state = self.state();
        let base = state.base;
        let deadline = deadline.map(|at| at.saturating_duration_since(base));
        state.schedule.block(me, until, deadline, place);
        self.pass(state, me);
        self.state().schedule.has_timed_out(me)
    }

    /// Passes the baton to the thread that is next, and returns when this thread is next again, or
    /// at once if this thread has ended.
    fn pass(&self, mut state: MutexGuard<'_, State>, me: ThreadId) {
        let has_ended = state.schedule.has_ended(me);
        let Some(next) = state.schedule.next() else {
            self.end(&mut state, None);
            drop(state);
            if has_ended {
                return;
            }
            stay();
        };
        if next != me && state.rules.is_traced {
            eprintln!("{:>12?} {}", state.schedule.now, state.schedule.wait_of(next));
        }
        let thread = state.threads.get(next).cloned().flatten().filter(|_| next != me);
        self.running.store(next, Ordering::Release);
        drop(state);
        if let Some(thread) = thread {
            thread.unpark();
        }
        if !has_ended {
            self.await_baton(me);
        }
    }

    fn await_baton(&self, me: ThreadId) {
        while self.running.load(Ordering::Acquire) != me {
            std::thread::park();
        }
    }

    fn end(&self, state: &mut State, finding: Option<Finding>) {
        let left = state.schedule.left();
        state.end.get_or_insert((finding, left));
        self.is_over.notify_all();
    }

    fn end_with(&self, mut state: MutexGuard<'_, State>, finding: Finding) -> ! {
        self.end(&mut state, Some(finding));
        drop(state);
        stay()
    }
}

/// Keeps a thread that can never run again.
fn stay() -> ! {
    loop {
        std::thread::park();
    }
}
