//! The interface that a program needs from an OpenCL implementation. `cl` implements it with a real
//! driver, `fake` in memory for tests.

use std::sync::Arc;

use crate::plan::{Kernel, MapMode, Rect};

/// An object of the implementation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Handle(pub usize);

/// A position in an area of host memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct At {
    pub area: Handle,
    pub offset: usize,
}

/// Kind and size of an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    Plane { width: usize, height: usize },
    View { pixels: usize, buffer: Handle },
}

/// How a buffer is created.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    Plain,
    Alloc,
    Copy(At),
    Use(At),
}

/// One side of a copy in shared virtual memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    Svm { mem: Handle, offset: usize },
    Host(At),
}

/// A kernel argument: a buffer, or shared virtual memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Argument {
    pub mem: Handle,
    pub svm: bool,
    /// Offset in words of four bytes.
    pub offset: usize,
}

/// A command with its handles.
#[derive(Clone, Debug)]
pub enum Call {
    Read {
        mem: Handle,
        offset: usize,
        len: usize,
        to: At,
    },
    Write {
        mem: Handle,
        offset: usize,
        len: usize,
        from: At,
    },
    ReadRect {
        mem: Handle,
        rect: Rect,
        to: At,
    },
    WriteRect {
        mem: Handle,
        rect: Rect,
        from: At,
    },
    Copy {
        from: Handle,
        from_offset: usize,
        to: Handle,
        to_offset: usize,
        len: usize,
    },
    CopyRect {
        from: Handle,
        to: Handle,
        to_offset: usize,
        rect: Rect,
    },
    Fill {
        mem: Handle,
        offset: usize,
        len: usize,
        word: u32,
    },
    Launch {
        /// Each kernel object belongs to one thread, because two threads must not set its arguments
        /// at the same time.
        thread: usize,
        kernel: Kernel,
        a: Argument,
        b: Option<Argument>,
        count: usize,
        seed: u32,
        spin: u32,
    },
    TooBig {
        thread: usize,
        source: Handle,
        scratch: Handle,
        seed: u32,
        local_bytes: u64,
    },
    Marker,
    Barrier,
    Migrate {
        mems: Vec<Handle>,
        to_host: bool,
        undefined: bool,
    },
    Map {
        mem: Handle,
        svm: bool,
        offset: usize,
        len: usize,
        mode: MapMode,
    },
    Unmap {
        mem: Handle,
        svm: bool,
        area: Handle,
    },
    ReadImage {
        mem: Handle,
        width: usize,
        height: usize,
        to: At,
    },
    WriteImage {
        mem: Handle,
        width: usize,
        height: usize,
        from: At,
    },
    FillImage {
        mem: Handle,
        width: usize,
        height: usize,
        word: u32,
    },
    ImageToBuffer {
        image: Handle,
        width: usize,
        height: usize,
        mem: Handle,
        offset: usize,
    },
    BufferToImage {
        mem: Handle,
        offset: usize,
        image: Handle,
        width: usize,
        height: usize,
    },
    SvmCopy {
        to: End,
        from: End,
        len: usize,
    },
    SvmFill {
        mem: Handle,
        offset: usize,
        len: usize,
        word: u32,
    },
}

/// Result of enqueueing a command.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Enqueued {
    pub event: Option<Handle>,
    /// The area that a map command returned.
    pub area: Option<Handle>,
}

/// Callback for the end of an event. It receives the event's status.
pub type Ended = Arc<dyn Fn(i32) + Send + Sync>;

/// Sets a user event to a status.
pub type Setter = Arc<dyn Fn(Handle, i32) + Send + Sync>;

/// An OpenCL implementation. Several threads may call all functions. Errors are OpenCL's codes.
pub trait Backend: Sync {
    fn new_context(&self, devices: &[usize]) -> Result<Handle, i32>;
    fn new_queue(
        &self,
        context: Handle,
        device: usize,
        out_of_order: bool,
        profiling: bool,
    ) -> Result<Handle, i32>;
    fn new_buffer(&self, context: Handle, size: usize, origin: Origin) -> Result<Handle, i32>;
    fn new_sub(&self, parent: Handle, origin: usize, size: usize) -> Result<Handle, i32>;
    fn new_image(&self, context: Handle, shape: Shape, init: Option<At>) -> Result<Handle, i32>;
    fn new_svm(&self, context: Handle, size: usize) -> Result<Handle, i32>;
    fn new_gate(&self, context: Handle) -> Result<Handle, i32>;
    fn drop_queue(&self, queue: Handle) -> i32;
    fn drop_mem(&self, mem: Handle, svm: Option<Handle>) -> i32;
    fn drop_event(&self, event: Handle) -> i32;
    fn set_gate(&self, event: Handle, status: i32) -> i32;
    fn enqueue(
        &self,
        queue: Handle,
        call: &Call,
        wait: &[Handle],
        wants_event: bool,
        blocking: bool,
    ) -> Result<Enqueued, i32>;
    fn flush(&self, queue: Handle) -> i32;
    fn finish(&self, queue: Handle) -> i32;
    fn wait(&self, events: &[Handle]) -> i32;
    fn status(&self, event: Handle) -> Result<i32, i32>;
    /// Times at which the command was queued, submitted, started and ended.
    fn times(&self, event: Handle) -> Result<[u64; 4], i32>;
    fn on_end(&self, event: Handle, ended: Ended) -> i32;
    /// Returns the function with which a callback sets a user event.
    fn setter(&self) -> Setter;
    /// Called when a program has failed and nothing waits any more. The process of a real
    /// implementation ends then.
    fn abandon(&self) {}
    /// Creates an array of zeros.
    fn new_area(&self, len: usize) -> Handle;
    /// Frees an array after the program has ended.
    fn drop_area(&self, area: Handle);
    fn load(&self, at: At, len: usize) -> Vec<u8>;
    fn store(&self, at: At, bytes: &[u8]);
}
