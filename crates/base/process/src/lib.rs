//! What every part of Penstock needs from the process that it runs in: locks that ignore poisoning,
//! the start of threads, the table and the reader of environment variables, the search of `PATH`,
//! messages of libraries, the end of the process, the host's free memory, and C's standard output,
//! for the text that kernels print. The feature `world` makes tests of several threads run them in
//! a world without a clock.
//!
//! Penstock's libraries are loaded into other people's programs, so this crate starts only threads
//! that a caller wants, and depends only on `libc`.

pub mod exit;
pub mod host;
pub mod lock;
pub mod log;
pub mod notice;
pub mod privilege;
pub mod search;
mod shared_lock;
pub mod signals;
pub mod stdout;
mod threads;
#[cfg(not(feature = "world"))]
mod turn;
pub mod variable;
#[cfg(feature = "world")]
pub mod world;

#[cfg(not(feature = "world"))]
pub use lock::{Guard, Lock, Signal};
pub use shared_lock::SharedLock;
pub use threads::{at_once, is_own, start, start_scoped, start_with_stack};
#[cfg(not(feature = "world"))]
pub use turn::{now, sleep};
#[cfg(feature = "world")]
pub use world::{
    lock::{Guard, Lock, Signal},
    turn::{now, sleep},
};

/// Returns the time that has passed since `then`.
#[inline]
#[must_use]
#[cfg_attr(feature = "world", track_caller)]
pub fn since(then: std::time::Instant) -> std::time::Duration {
    now().saturating_duration_since(then)
}
