//! The interface that a CUDA program needs from an implementation. `driver` implements it with a
//! real driver, `fake` in memory for tests.

use std::sync::Arc;

pub use crate::backend::{At, Handle};
use crate::cuda::plan::{Context, Kernel, Rows};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    Host(At),
    Device { mem: Handle, offset: usize },
}

/// A stream of the context that the call names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Stream {
    Legacy,
    PerThread,
    Made(Handle),
}

/// A host function of the program.
pub type Function = Arc<dyn Fn() + Send + Sync>;

/// One side of a copy between contexts.
#[derive(Clone, Copy, Debug)]
pub struct PeerSide {
    pub context: Handle,
    pub mem: Handle,
    pub offset: usize,
}

/// A command with its handles.
#[derive(Clone)]
pub enum Command {
    Copy {
        to: Place,
        from: Place,
        len: usize,
    },
    Copy2D {
        to: Place,
        from: Place,
        rows: Rows,
    },
    Peer {
        to: PeerSide,
        from: PeerSide,
        len: usize,
    },
    Fill {
        mem: Handle,
        offset: usize,
        len: usize,
        unit: usize,
        value: u32,
    },
    Fill2D {
        mem: Handle,
        offset: usize,
        rows: Rows,
        value: u32,
    },
    Launch {
        kernel: Kernel,
        /// Memory and its offset in bytes.
        a: (Handle, usize),
        b: Option<(Handle, usize)>,
        count: usize,
        seed: u32,
        spin: u32,
    },
    Function(Function),
}

impl std::fmt::Debug for Command {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Command").finish_non_exhaustive()
    }
}

/// Where a call comes from: the current context and the host thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Caller {
    pub context: Handle,
    pub thread: usize,
}

/// Host memory, as functions of the program access it.
pub trait Memory: Send + Sync {
    fn load(&self, at: At, len: usize) -> Vec<u8>;
    fn store(&self, at: At, bytes: &[u8]);
}

/// A CUDA implementation. Several threads may call all functions. Errors are CUDA's codes.
pub trait Backend: Sync {
    /// Opens a context, or returns it if it is open.
    fn context(&self, context: Context) -> Result<Handle, i32>;
    /// Creates an array of zeros.
    fn new_area(&self, context: Handle, len: usize, pinned: bool) -> Result<Handle, i32>;
    fn drop_area(&self, context: Handle, area: Handle) -> i32;
    fn register(&self, by: Caller, area: Handle) -> i32;
    fn unregister(&self, by: Caller, area: Handle) -> i32;
    fn memory(&self) -> Arc<dyn Memory>;
    fn new_stream(&self, by: Caller, blocking: bool) -> Result<Handle, i32>;
    fn drop_stream(&self, by: Caller, stream: Handle) -> i32;
    fn new_event(&self, by: Caller, timing: bool) -> Result<Handle, i32>;
    fn drop_event(&self, by: Caller, event: Handle) -> i32;
    fn alloc(&self, by: Caller, size: usize) -> Result<Handle, i32>;
    fn free(&self, by: Caller, mem: Handle) -> i32;
    fn alloc_async(&self, by: Caller, stream: Stream, size: usize) -> Result<Handle, i32>;
    fn free_async(&self, by: Caller, stream: Stream, mem: Handle) -> i32;
    fn record(&self, by: Caller, event: Handle, stream: Stream) -> i32;
    fn stream_wait(&self, by: Caller, stream: Stream, event: Handle) -> i32;
    fn event_sync(&self, by: Caller, event: Handle) -> i32;
    fn event_query(&self, by: Caller, event: Handle) -> i32;
    fn stream_sync(&self, by: Caller, stream: Stream) -> i32;
    fn stream_query(&self, by: Caller, stream: Stream) -> i32;
    fn context_sync(&self, by: Caller) -> i32;
    /// Enqueues a command. Without a stream, uses the synchronous form of the call.
    fn enqueue(&self, by: Caller, stream: Option<Stream>, command: &Command) -> i32;
    /// Captures commands of two branches. The second branch begins before the first command that
    /// belongs to it.
    fn new_graph(&self, by: Caller, parts: &[(bool, Command)]) -> Result<Handle, i32>;
    fn drop_graph(&self, by: Caller, graph: Handle) -> i32;
    fn launch(&self, by: Caller, graph: Handle, stream: Stream) -> i32;
    /// Called when a program has failed and nothing waits any more. The process of a real
    /// implementation ends then.
    fn abandon(&self) {}
}
