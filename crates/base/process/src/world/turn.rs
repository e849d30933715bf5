//! What a thread asks of time and of the other threads of the process.

use std::panic::Location;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::lock::{Lock, Signal};
use super::schedule::{TICK, Until};
use super::{Seat, with_world};
use crate::threads::start;

/// Returns the present time.
#[must_use]
#[track_caller]
pub fn now() -> Instant {
    let place = Location::caller();
    let now = with_world(|world, me| {
        world.step(me, place);
        let mut state = world.state();
        // A thread that looks at the clock again and again sees it move.
        state.schedule.now += TICK;
        state.base + state.schedule.now
    });
    now.unwrap_or_else(Instant::now)
}

/// Sleeps for `time`.
#[track_caller]
pub fn sleep(time: Duration) {
    let place = Location::caller();
    let slept = with_world(|world, me| {
        let state = world.state();
        let until = state.base + state.schedule.now + time;
        drop(state);
        world.block(me, Until::Never, Some(until), place);
    });
    if slept.is_none() {
        std::thread::sleep(time);
    }
}

/// Returns the work of a thread that is about to start. It belongs to the world of this thread.
#[track_caller]
pub(crate) fn member<T, W: FnOnce() -> T + Send>(work: W) -> impl FnOnce() -> T + Send + use<T, W> {
    let place = Location::caller();
    let seat = with_world(|world, _| Seat::of(world, place));
    move || match seat {
        Some(seat) => seat.run(work),
        None => work(),
    }
}

/// A thread of a program in a world.
#[derive(Debug)]
pub struct Spawned<T>(Arc<(Lock<Option<T>>, Signal)>);

/// Starts a thread of a program.
///
/// # Panics
/// If the system gives no thread.
#[track_caller]
pub fn spawn<T: Send + 'static>(
    name: &str,
    work: impl FnOnce() -> T + Send + 'static,
) -> Spawned<T> {
    let result = Arc::new((Lock::new(None), Signal::new()));
    let told = result.clone();
    let started = start(name, move || {
        let value = work();
        *told.0.lock() = Some(value);
        told.1.notify_all();
    });
    assert!(started.is_ok(), "no thread for {name}: {started:?}");
    Spawned(result)
}

impl<T> Spawned<T> {
    /// Waits for the end of the thread.
    #[track_caller]
    pub fn join(self) -> T {
        let (value, ended) = &*self.0;
        let mut value = value.lock();
        loop {
            if let Some(value) = value.take() {
                return value;
            }
            value = ended.wait(value);
        }
    }
}
