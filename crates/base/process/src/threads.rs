//! How threads start. A rule of `tools/policy` refuses other starts, except in tests and
//! examples.

use std::cell::Cell;
use std::io;
use std::thread::{self, Builder, JoinHandle, Scope, ScopedJoinHandle};

#[cfg(not(feature = "world"))]
use crate::turn::member;
#[cfg(feature = "world")]
use crate::world::turn::member;

/// Starts a thread. The thread belongs to the world of the thread that calls.
///
/// # Errors
/// Fails if the system cannot start another thread.
#[cfg_attr(feature = "world", track_caller)]
pub fn start<T: Send + 'static>(
    name: impl Into<String>,
    work: impl FnOnce() -> T + Send + 'static,
) -> io::Result<JoinHandle<T>> {
    Builder::new().name(name.into()).spawn(member(own(work)))
}

/// Like [`start`], for a thread with a stack of `stack_bytes`.
///
/// # Errors
/// Fails if the system cannot start another thread.
#[cfg_attr(feature = "world", track_caller)]
pub fn start_with_stack<T: Send + 'static>(
    name: impl Into<String>,
    stack_bytes: usize,
    work: impl FnOnce() -> T + Send + 'static,
) -> io::Result<JoinHandle<T>> {
    Builder::new().name(name.into()).stack_size(stack_bytes).spawn(member(own(work)))
}

/// Starts a thread that ends before `scope` does. The thread belongs to no world, because the
/// system waits for it at the end of the scope.
///
/// # Errors
/// Fails if the system cannot start another thread.
pub fn start_scoped<'scope, T: Send + 'scope>(
    scope: &'scope Scope<'scope, '_>,
    name: impl Into<String>,
    work: impl FnOnce() -> T + Send + 'scope,
) -> io::Result<ScopedJoinHandle<'scope, T>> {
    Builder::new().name(name.into()).spawn_scoped(scope, own(work))
}

/// Calls `work` for each item in a thread of its own, and returns the results in the order of the
/// items when all threads have ended. A result is an error if the system could not start the
/// thread, or if the thread panicked. The threads belong to no world.
pub fn at_once<I: Send, T: Send>(
    name: &str,
    items: impl IntoIterator<Item = I>,
    work: impl Fn(I) -> T + Sync,
) -> Vec<io::Result<T>> {
    thread::scope(|scope| {
        let work = &work;
        let start = |item| start_scoped(scope, name, move || work(item));
        let threads: Vec<_> = items.into_iter().map(start).collect();
        let panicked = |_| io::Error::other(format!("the thread {name} panicked"));
        threads.into_iter().map(|thread| thread?.join().map_err(panicked)).collect()
    })
}

thread_local! {
    static IS_OWN: Cell<bool> = const { Cell::new(false) };
}

/// Returns whether a function of this module has started this thread. In a library, all other
/// threads are the program's.
#[must_use]
pub fn is_own() -> bool {
    IS_OWN.get()
}

fn own<T>(work: impl FnOnce() -> T) -> impl FnOnce() -> T {
    move || {
        IS_OWN.set(true);
        work()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_knows_who_has_started_it() {
        assert!(!is_own());
        assert!(start("test-own", is_own).unwrap().join().unwrap());
        assert!(!thread::spawn(is_own).join().unwrap());
    }

    #[test]
    fn results_have_the_order_of_the_items_and_tell_of_panics() {
        let work = |item: u32| {
            assert_ne!(item, 2);
            (item, thread::current().name().map(str::to_owned))
        };
        let named = |item| (item, Some("test-at-once".to_owned()));
        let results = at_once("test-at-once", 1..=3, work);
        let told = |it: io::Result<_>| it.map_err(|error| error.to_string());
        let results: Vec<_> = results.into_iter().map(told).collect();
        let panicked = "the thread test-at-once panicked".to_owned();
        assert_eq!(results, [Ok(named(1)), Err(panicked), Ok(named(3))]);
    }
}
