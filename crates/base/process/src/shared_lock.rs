//! A lock for readers and writers that ignores poisoning, for the reason that `lock.rs` gives.

use std::fmt;
use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard, TryLockError};

/// A lock that either many readers hold at a time, or one writer.
#[derive(Default)]
pub struct SharedLock<T: ?Sized>(RwLock<T>);

impl<T> SharedLock<T> {
    #[inline]
    pub const fn new(value: T) -> Self {
        Self(RwLock::new(value))
    }

    #[inline]
    pub fn into_inner(self) -> T {
        self.0.into_inner().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T: ?Sized> SharedLock<T> {
    /// Waits until no thread writes, and takes the lock for reading.
    #[inline]
    pub fn read(&self) -> RwLockReadGuard<'_, T> {
        self.0.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes the lock for reading, unless a thread writes or wants to.
    pub fn try_read(&self) -> Option<RwLockReadGuard<'_, T>> {
        match self.0.try_read() {
            Ok(guard) => Some(guard),
            Err(TryLockError::Poisoned(guard)) => Some(guard.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    /// Waits until no thread reads or writes, and takes the lock for writing.
    #[inline]
    pub fn write(&self) -> RwLockWriteGuard<'_, T> {
        self.0.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the value without locking, because the caller has the only reference to the lock.
    #[inline]
    pub fn get_mut(&mut self) -> &mut T {
        self.0.get_mut().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T: ?Sized + fmt::Debug> fmt::Debug for SharedLock<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // A poisoned lock shows its value, as `read` returns it.
        match self.0.try_read() {
            Ok(guard) => f.debug_tuple("SharedLock").field(&&*guard).finish(),
            Err(TryLockError::Poisoned(guard)) => {
                f.debug_tuple("SharedLock").field(&&*guard.into_inner()).finish()
            }
            Err(TryLockError::WouldBlock) => {
                f.debug_tuple("SharedLock").field(&format_args!("<locked>")).finish()
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::panic::{AssertUnwindSafe, catch_unwind};

    #[test]
    fn a_shared_lock_gives_its_value_after_a_panic_in_its_section() {
        let mut lock = SharedLock::new(1);
        let panicked = catch_unwind(AssertUnwindSafe(|| {
            let mut guard = lock.write();
            *guard = 2;
            panic!("the test panics while it holds the lock");
        }));
        assert!(panicked.is_err());
        assert_eq!(*lock.read(), 2);
        assert_eq!(*lock.write(), 2);
        assert_eq!(format!("{lock:?}"), "SharedLock(2)");
        assert_eq!(*lock.get_mut(), 2);
        assert_eq!(lock.into_inner(), 2);
    }
}
