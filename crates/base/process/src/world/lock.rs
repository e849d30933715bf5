//! Locks and signals for threads of a world: those of the module `lock`, which other builds have,
//! and how a thread of a world waits for them.

use std::fmt;
use std::ops::{Deref, DerefMut};
use std::panic::Location;
use std::time::{Duration, Instant};

use super::schedule::Until;
use super::with_world;
use crate::lock as plain;

/// A mutual-exclusion lock around a value.
#[derive(Default)]
pub struct Lock<T: ?Sized>(plain::Lock<T>);

/// A lock that this thread holds.
pub struct Guard<'a, T: ?Sized> {
    lock: &'a Lock<T>,
    /// `None` only while a signal is waited for, and when the guard is dropped.
    inside: Option<plain::Guard<'a, T>>,
}

impl<T> Lock<T> {
    pub const fn new(value: T) -> Self {
        Self(plain::Lock::new(value))
    }

    pub fn into_inner(self) -> T {
        self.0.into_inner()
    }
}

impl<T: ?Sized> Lock<T> {
    /// Waits until no other thread holds the lock, and takes it.
    #[track_caller]
    pub fn lock(&self) -> Guard<'_, T> {
        let place = Location::caller();
        with_world(|world, me| world.step(me, place));
        self.take(place)
    }

    fn take(&self, place: &'static Location<'static>) -> Guard<'_, T> {
        loop {
            if let Some(guard) = self.try_take() {
                return guard;
            }
            let until = Until::Lock(self.address());
            let waited = with_world(|world, me| world.block(me, until, None, place));
            if waited.is_none() {
                return Guard { lock: self, inside: Some(self.0.lock()) };
            }
        }
    }

    /// Takes the lock if no thread holds it.
    #[track_caller]
    pub fn try_lock(&self) -> Option<Guard<'_, T>> {
        let place = Location::caller();
        with_world(|world, me| world.step(me, place));
        self.try_take()
    }

    fn try_take(&self) -> Option<Guard<'_, T>> {
        self.0.try_lock().map(|inside| Guard { lock: self, inside: Some(inside) })
    }

    /// Returns the value without locking, because the caller has the only reference to the lock.
    pub fn get_mut(&mut self) -> &mut T {
        self.0.get_mut()
    }

    /// Tells locks from each other, and decides nothing.
    fn address(&self) -> usize {
        (&raw const self.0).addr()
    }
}

impl<T> From<T> for Lock<T> {
    fn from(value: T) -> Self {
        Self::new(value)
    }
}

impl<T: ?Sized + fmt::Debug> fmt::Debug for Lock<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, f)
    }
}

impl<T: ?Sized> Deref for Guard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        match &self.inside {
            Some(inside) => inside,
            None => unreachable!("a guard that is used holds its lock"),
        }
    }
}

impl<T: ?Sized> DerefMut for Guard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        match &mut self.inside {
            Some(inside) => inside,
            None => unreachable!("a guard that is used holds its lock"),
        }
    }
}

impl<T: ?Sized> Drop for Guard<'_, T> {
    fn drop(&mut self) {
        if self.inside.take().is_some() {
            let address = self.lock.address();
            with_world(|world, _| world.state().schedule.free(address));
        }
    }
}

impl<T: ?Sized + fmt::Debug> fmt::Debug for Guard<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&**self, f)
    }
}

/// A condition variable: threads that hold a [`Lock`] wait for it, and another thread wakes them.
#[derive(Debug, Default)]
pub struct Signal(plain::Signal);

/// How a wait with a limit ended.
#[derive(Clone, Copy, Debug)]
pub struct Waited(bool);

impl Waited {
    /// Returns whether the time passed.
    #[must_use]
    pub fn timed_out(&self) -> bool {
        self.0
    }
}

impl Signal {
    pub const fn new() -> Self {
        Self(plain::Signal::new())
    }

    /// Releases the lock, waits for a notification, and takes the lock again. It can return without
    /// a notification, so the caller looks at its condition again.
    #[track_caller]
    pub fn wait<'a, T>(&self, guard: Guard<'a, T>) -> Guard<'a, T> {
        self.wait_at(guard, None, Location::caller()).0
    }

    /// Waits as long as `condition` returns true.
    #[track_caller]
    pub fn wait_while<'a, T>(
        &self,
        mut guard: Guard<'a, T>,
        mut condition: impl FnMut(&mut T) -> bool,
    ) -> Guard<'a, T> {
        while condition(&mut guard) {
            guard = self.wait(guard);
        }
        guard
    }

    /// Waits for a notification, for at most `most`.
    #[track_caller]
    pub fn wait_timeout<'a, T>(
        &self,
        guard: Guard<'a, T>,
        most: Duration,
    ) -> (Guard<'a, T>, Waited) {
        self.wait_at(guard, Some(most), Location::caller())
    }

    /// Waits as long as `condition` returns true, for at most `most`.
    #[track_caller]
    pub fn wait_timeout_while<'a, T>(
        &self,
        mut guard: Guard<'a, T>,
        most: Duration,
        mut condition: impl FnMut(&mut T) -> bool,
    ) -> (Guard<'a, T>, Waited) {
        let deadline = present() + most;
        while condition(&mut guard) {
            let left = deadline.saturating_duration_since(present());
            if left.is_zero() {
                return (guard, Waited(true));
            }
            (guard, _) = self.wait_timeout(guard, left);
        }
        (guard, Waited(false))
    }

    fn wait_at<'a, T>(
        &self,
        mut guard: Guard<'a, T>,
        most: Option<Duration>,
        place: &'static Location<'static>,
    ) -> (Guard<'a, T>, Waited) {
        let lock = guard.lock;
        let mut inside = guard.inside.take();
        let address = (&raw const self.0).addr();
        let waited = with_world(|world, me| {
            // No other thread runs between the release and the wait.
            drop(inside.take());
            world.state().schedule.free(lock.address());
            world.block(me, Until::Signal(address), most.map(|most| present() + most), place)
        });
        if let Some(timed_out) = waited {
            return (lock.take(place), Waited(timed_out));
        }
        let Some(held) = inside else { unreachable!("a guard that is given holds its lock") };
        let (held, timed_out) = match most {
            None => (self.0.wait(held), false),
            Some(most) => {
                let (held, waited) = self.0.wait_timeout(held, most);
                (held, waited.timed_out())
            }
        };
        (Guard { lock, inside: Some(held) }, Waited(timed_out))
    }

    /// Wakes one of the threads that wait.
    #[track_caller]
    pub fn notify_one(&self) {
        self.notify(false, Location::caller());
        self.0.notify_one();
    }

    /// Wakes all threads that wait.
    #[track_caller]
    pub fn notify_all(&self) {
        self.notify(true, Location::caller());
        self.0.notify_all();
    }

    fn notify(&self, all: bool, place: &'static Location<'static>) {
        let address = (&raw const self.0).addr();
        with_world(|world, me| {
            world.step(me, place);
            world.state().schedule.notify(address, all);
        });
    }
}

/// Returns the present time without a step.
fn present() -> Instant {
    let now = with_world(|world, _| {
        let state = world.state();
        state.base + state.schedule.now
    });
    now.unwrap_or_else(Instant::now)
}
