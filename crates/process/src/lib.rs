//! What every part of Penstock needs from the process that it runs in: locks, and C's standard
//! output.
//!
//! Penstock's libraries are loaded into other people's programs, so this crate starts no threads
//! and depends only on `libc`.

pub mod lock;
pub mod stdout;

pub use lock::{Lock, SharedLock, Signal};
