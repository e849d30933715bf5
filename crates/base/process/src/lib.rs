//! What every part of Penstock needs from the process that it runs in: locks that ignore poisoning,
//! the table and the reader of environment variables, the search of `PATH`, messages of libraries,
//! and C's standard output, for the text that kernels print.
//!
//! Penstock's libraries are loaded into other people's programs, so this crate starts no threads
//! and depends only on `libc`.

pub mod lock;
pub mod log;
pub mod notice;
pub mod privilege;
pub mod search;
pub mod signals;
pub mod stdout;
pub mod variable;

pub use lock::{Lock, SharedLock, Signal};
