//! Locks that ignore poisoning: thin forms of the standard library's, with its guards.
//!
//! The standard library marks a lock as poisoned if a thread panics while it holds the guard, and
//! makes every later user of the lock decide what that means. Penstock decides it here, once: the
//! data is used as it is.
//!
//! A panic is a defect of Penstock. The function that catches the panic, at the edge of a library
//! or at the top of a thread, reports the defect as the error of one call. If the lock then refused
//! its data, each later call on the same object would fail, too. The calls that release the object
//! would be among them, so the program that loaded the library could not even end in order.
//!
//! The panic may have left the data between two steps of a change. In safe code each value is
//! still valid on its own, so at worst the state of one object is wrong. A section that keeps a
//! relation on which `unsafe` code relies therefore does everything that can panic before its first
//! change.

use std::fmt;
pub use std::sync::MutexGuard as Guard;
use std::sync::{Condvar, Mutex, PoisonError, TryLockError, WaitTimeoutResult};
use std::time::Duration;

/// A mutual-exclusion lock around a value.
#[derive(Default)]
pub struct Lock<T: ?Sized>(Mutex<T>);

impl<T> Lock<T> {
    #[inline]
    pub const fn new(value: T) -> Self {
        Self(Mutex::new(value))
    }

    #[inline]
    pub fn into_inner(self) -> T {
        self.0.into_inner().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T: ?Sized> Lock<T> {
    /// Waits until no other thread holds the lock, and takes it.
    #[inline]
    pub fn lock(&self) -> Guard<'_, T> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes the lock if no thread holds it.
    #[inline]
    pub fn try_lock(&self) -> Option<Guard<'_, T>> {
        match self.0.try_lock() {
            Ok(guard) => Some(guard),
            Err(TryLockError::Poisoned(guard)) => Some(guard.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    /// Returns the value without locking, because the caller has the only reference to the lock.
    #[inline]
    pub fn get_mut(&mut self) -> &mut T {
        self.0.get_mut().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T> From<T> for Lock<T> {
    fn from(value: T) -> Self {
        Self::new(value)
    }
}

impl<T: ?Sized + fmt::Debug> fmt::Debug for Lock<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = f.debug_tuple("Lock");
        match self.try_lock() {
            Some(guard) => text.field(&&*guard).finish(),
            None => text.field(&format_args!("<locked>")).finish(),
        }
    }
}

/// A condition variable: threads that hold a [`Lock`] wait for it, and another thread wakes them.
#[derive(Debug, Default)]
pub struct Signal(Condvar);

impl Signal {
    #[inline]
    pub const fn new() -> Self {
        Self(Condvar::new())
    }

    /// Releases the lock, waits for a notification, and takes the lock again. It can return without
    /// a notification, so the caller looks at its condition again.
    #[inline]
    pub fn wait<'a, T>(&self, guard: Guard<'a, T>) -> Guard<'a, T> {
        self.0.wait(guard).unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits as long as `condition` returns true.
    #[inline]
    pub fn wait_while<'a, T>(
        &self,
        guard: Guard<'a, T>,
        condition: impl FnMut(&mut T) -> bool,
    ) -> Guard<'a, T> {
        self.0.wait_while(guard, condition).unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for a notification, for at most `most`.
    #[inline]
    pub fn wait_timeout<'a, T>(
        &self,
        guard: Guard<'a, T>,
        most: Duration,
    ) -> (Guard<'a, T>, WaitTimeoutResult) {
        self.0.wait_timeout(guard, most).unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits as long as `condition` returns true, for at most `most`.
    #[inline]
    pub fn wait_timeout_while<'a, T>(
        &self,
        guard: Guard<'a, T>,
        most: Duration,
        condition: impl FnMut(&mut T) -> bool,
    ) -> (Guard<'a, T>, WaitTimeoutResult) {
        self.0.wait_timeout_while(guard, most, condition).unwrap_or_else(PoisonError::into_inner)
    }

    /// Wakes one of the threads that wait.
    #[inline]
    pub fn notify_one(&self) {
        self.0.notify_one();
    }

    /// Wakes all threads that wait.
    #[inline]
    pub fn notify_all(&self) {
        self.0.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::panic::{AssertUnwindSafe, catch_unwind};

    #[test]
    fn a_lock_gives_its_value_after_a_panic_in_its_section() {
        let mut lock = Lock::new(1);
        let panicked = catch_unwind(AssertUnwindSafe(|| {
            let mut guard = lock.lock();
            *guard = 2;
            panic!("the test panics while it holds the lock");
        }));
        assert!(panicked.is_err());
        assert_eq!(*lock.lock(), 2);
        assert_eq!(lock.try_lock().map(|guard| *guard), Some(2));
        assert_eq!(format!("{lock:?}"), "Lock(2)");
        assert_eq!(*lock.get_mut(), 2);
        assert_eq!(lock.into_inner(), 2);
    }

    #[test]
    fn a_lock_that_is_held_is_not_taken_twice() {
        let lock = Lock::new(());
        let guard = lock.lock();
        assert!(lock.try_lock().is_none());
        assert_eq!(format!("{lock:?}"), "Lock(<locked>)");
        drop(guard);
        assert!(lock.try_lock().is_some());
    }

    #[test]
    fn a_signal_wakes_the_threads_that_wait() {
        let (is_ready, changed) = (Lock::new(false), Signal::new());
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    assert!(*changed.wait_while(is_ready.lock(), |is_ready| !*is_ready));
                });
            }
            *is_ready.lock() = true;
            changed.notify_all();
        });
    }

    #[test]
    fn a_wait_with_a_limit_ends_without_a_notification() {
        let (value, changed) = (Lock::new(7), Signal::new());
        let most = Duration::from_millis(1);
        let (guard, waited) = changed.wait_timeout_while(value.lock(), most, |_| true);
        assert!(waited.timed_out());
        assert_eq!(*guard, 7);
    }
}
