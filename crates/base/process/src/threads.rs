//! How threads start. A rule of `tools/policy` refuses other starts, except in tests.

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
    Builder::new().name(name.into()).spawn(member(work))
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
    Builder::new().name(name.into()).stack_size(stack_bytes).spawn(member(work))
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
    Builder::new().name(name.into()).spawn_scoped(scope, work)
}

/// Calls `work` for each item in a thread of its own, and returns the results when all threads have
/// ended. The result is `None` if the thread panicked, or if the system cannot start it. The
/// threads belong to no world.
pub fn at_once<I: Send, T: Send>(
    name: &str,
    items: impl IntoIterator<Item = I>,
    work: impl Fn(I) -> T + Sync,
) -> Vec<Option<T>> {
    thread::scope(|scope| {
        let work = &work;
        let start = |item| start_scoped(scope, name, move || work(item));
        let threads: Vec<_> = items.into_iter().map(start).collect();
        threads.into_iter().map(|thread| thread.ok()?.join().ok()).collect()
    })
}
