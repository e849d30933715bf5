//! The definition of a program: a list of operations that is complete before the first of them
//! runs.
//!
//! The order of the list is one valid order of execution. A host that performs the operations one
//! after the other, and lets each command end as soon as it can, never waits for an operation later
//! in the list. The threads of a program perform their own operations in this order, and otherwise
//! run freely against each other.

use serde::{Deserialize, Serialize};

/// A position in host memory: in an array of the program, or in a mapped region.
#[derive(Clone, Copy, Debug, Serialize, Deserialize, PartialEq, Eq)]
pub struct Ptr {
    /// Number of the area. The first areas are the program's arrays.
    pub area: usize,
    /// Bytes from the start of the area.
    pub offset: usize,
}

/// A program and its configuration.
#[derive(Clone, Debug, Serialize, Deserialize, PartialEq)]
pub struct Program {
    pub seed: u64,
    /// Number of host threads.
    pub threads: usize,
    /// The devices of each context, as indices into the platform's devices.
    pub contexts: Vec<Vec<usize>>,
    /// Length in bytes of each array of host memory.
    pub arrays: Vec<usize>,
    /// Whether the program relies on the write having ended when a blocking call returns. The
    /// specification only promises that the host memory can be used again.
    pub writes_end: bool,
    pub ops: Vec<Op>,
}

/// One operation of one host thread.
#[derive(Clone, Debug, Serialize, Deserialize, PartialEq)]
pub struct Op<A = Act> {
    /// The thread that performs it.
    pub thread: usize,
    /// Microseconds that the thread rests before the operation.
    pub delay_us: u32,
    pub act: A,
}

/// How a buffer uses host memory.
#[derive(Clone, Copy, Debug, Serialize, Deserialize, PartialEq, Eq)]
pub enum Style {
    Plain,
    /// With the flag `CL_MEM_ALLOC_HOST_PTR`.
    Alloc,
    /// With the flag `CL_MEM_COPY_HOST_PTR`.
    Copy,
    /// With the flag `CL_MEM_USE_HOST_PTR`.
    Use,
}

/// What an operation does. The fields `queue`, `mem`, `event` and so on are numbers that the
/// program gives its objects.
#[derive(Clone, Debug, Serialize, Deserialize, PartialEq)]
pub enum Act {
    /// Lets one other thread pass its `Await` with the same number.
    Signal {
        id: usize,
    },
    /// Waits for the `Signal` with the same number.
    Await {
        id: usize,
    },
    NewQueue {
        queue: usize,
        context: usize,
        device: usize,
        out_of_order: bool,
        profiling: bool,
    },
    DropQueue {
        queue: usize,
    },
    NewBuffer {
        mem: usize,
        context: usize,
        size: usize,
        style: Style,
        init: Option<Ptr>,
    },
    /// A sub-buffer of the buffer `parent`.
    NewSub {
        mem: usize,
        parent: usize,
        origin: usize,
        size: usize,
    },
    /// A two-dimensional image with four bytes per pixel.
    NewImage {
        mem: usize,
        context: usize,
        width: usize,
        height: usize,
        init: Option<Ptr>,
    },
    /// A one-dimensional image over the first bytes of the buffer `parent`, with four bytes per
    /// pixel.
    NewView {
        mem: usize,
        parent: usize,
        pixels: usize,
    },
    /// Coarse-grained shared virtual memory.
    NewSvm {
        mem: usize,
        context: usize,
        size: usize,
    },
    DropMem {
        mem: usize,
    },
    /// A user event. `fails` says that it will be set to an error.
    NewGate {
        event: usize,
        context: usize,
        fails: bool,
    },
    SetGate {
        event: usize,
        status: i32,
    },
    DropEvent {
        event: usize,
    },
    /// The host stores the pattern of `seed`.
    Store {
        to: Ptr,
        len: usize,
        seed: u32,
    },
    /// The host compares memory with the model.
    Check {
        at: Ptr,
        len: usize,
    },
    Flush {
        queue: usize,
    },
    Finish {
        queue: usize,
    },
    Wait {
        events: Vec<usize>,
    },
    /// Registers a callback for the end of `event`. The callback sets the user event `sets`, if
    /// there is one.
    Callback {
        event: usize,
        callback: usize,
        sets: Option<usize>,
    },
    /// Waits until the callback has run.
    AwaitCallback {
        callback: usize,
    },
    /// Reads the four times of an event that has ended.
    Times {
        event: usize,
    },
    /// Reads the status of an event that has ended.
    Status {
        event: usize,
    },
    Enqueue {
        queue: usize,
        cmd: Cmd,
        wait: Vec<usize>,
        event: Option<usize>,
        blocking: bool,
    },
    /// A launch that asks for more local memory than the device has. It reads the first word of
    /// `source` and would write the word `seed` to `scratch`.
    TooBig {
        queue: usize,
        source: usize,
        scratch: usize,
        seed: u32,
    },
    /// A blocking read of what `TooBig` would have written. It succeeds only if the launch has run.
    ReadTooBig {
        queue: usize,
        scratch: usize,
        seed: u32,
        to: Ptr,
    },
}

/// Kernels. All of them work on words of four bytes.
#[derive(Clone, Copy, Debug, Serialize, Deserialize, PartialEq, Eq, Hash)]
pub enum Kernel {
    /// `a[i] = pattern(seed, i)`.
    Put,
    /// As `Put`, but the first work-item computes for some time first.
    Slow,
    /// As `Put`, through a cast of a pointer to const.
    Cast,
    /// `a[i] = f(a[i], b[i], seed)`; `b` is a pointer to const.
    Mix,
    /// As `Mix`, but `b` is not a pointer to const.
    MixPlain,
}

impl Kernel {
    /// Whether the kernel has the argument `b`.
    pub fn has_source(self) -> bool {
        matches!(self, Self::Mix | Self::MixPlain)
    }
}

/// Two-dimensional regions of a buffer and of host memory or another buffer, in bytes.
#[derive(Clone, Copy, Debug, Serialize, Deserialize, PartialEq, Eq)]
pub struct Rect {
    pub width: usize,
    pub height: usize,
    /// Offset of the first row in the buffer.
    pub mem_offset: usize,
    /// Bytes from one row to the next in the buffer.
    pub mem_pitch: usize,
    /// Bytes from one row to the next on the other side.
    pub other_pitch: usize,
}

impl Rect {
    /// Number of bytes from the first to the last byte on the buffer's side.
    pub fn mem_span(&self) -> usize {
        self.mem_pitch * (self.height - 1) + self.width
    }

    /// Number of bytes from the first to the last byte on the other side.
    pub fn other_span(&self) -> usize {
        self.other_pitch * (self.height - 1) + self.width
    }
}

#[derive(Clone, Copy, Debug, Serialize, Deserialize, PartialEq, Eq)]
pub enum MapMode {
    /// With the flag `CL_MAP_READ`.
    Read,
    /// With the flag `CL_MAP_WRITE`.
    Write,
    /// With the flags `CL_MAP_READ | CL_MAP_WRITE`.
    Both,
    /// With the flag `CL_MAP_WRITE_INVALIDATE_REGION`.
    Invalidate,
}

impl MapMode {
    /// Whether the program may write to the region.
    pub fn writes(self) -> bool {
        self != Self::Read
    }
}

/// One side of a copy in shared virtual memory.
#[derive(Clone, Copy, Debug, Serialize, Deserialize, PartialEq, Eq)]
pub enum SvmEnd {
    Svm { mem: usize, offset: usize },
    Host(Ptr),
}

#[derive(Clone, Debug, Serialize, Deserialize, PartialEq)]
pub enum Cmd {
    Read {
        mem: usize,
        offset: usize,
        len: usize,
        to: Ptr,
    },
    Write {
        mem: usize,
        offset: usize,
        len: usize,
        from: Ptr,
    },
    ReadRect {
        mem: usize,
        rect: Rect,
        to: Ptr,
    },
    WriteRect {
        mem: usize,
        rect: Rect,
        from: Ptr,
    },
    Copy {
        from: usize,
        from_offset: usize,
        to: usize,
        to_offset: usize,
        len: usize,
    },
    CopyRect {
        from: usize,
        to: usize,
        to_offset: usize,
        rect: Rect,
    },
    Fill {
        mem: usize,
        offset: usize,
        len: usize,
        word: u32,
    },
    /// `a_offset`, `b_offset` and `count` are in words.
    Launch {
        kernel: Kernel,
        a: usize,
        a_offset: usize,
        b: Option<usize>,
        b_offset: usize,
        count: usize,
        seed: u32,
        spin: u32,
    },
    /// Waits for the wait list, or for all earlier commands if there is none.
    Marker,
    /// As `Marker`, and all later commands wait for it.
    Barrier,
    Migrate {
        mems: Vec<usize>,
        to_host: bool,
        undefined: bool,
    },
    Map {
        mem: usize,
        offset: usize,
        len: usize,
        mode: MapMode,
        area: usize,
    },
    Unmap {
        area: usize,
    },
    /// Reads a whole image.
    ReadImage {
        mem: usize,
        to: Ptr,
    },
    /// Writes a whole image.
    WriteImage {
        mem: usize,
        from: Ptr,
    },
    /// Fills a whole image.
    FillImage {
        mem: usize,
        word: u32,
    },
    /// Copies a whole image.
    ImageToBuffer {
        image: usize,
        mem: usize,
        offset: usize,
    },
    /// Copies to a whole image.
    BufferToImage {
        mem: usize,
        offset: usize,
        image: usize,
    },
    SvmCopy {
        to: SvmEnd,
        from: SvmEnd,
        len: usize,
    },
    SvmFill {
        mem: usize,
        offset: usize,
        len: usize,
        word: u32,
    },
    /// Fills a whole buffer that several threads fill and read through one in-order queue without
    /// further order.
    HotFill {
        mem: usize,
        word: u32,
    },
    /// Reads the whole buffer of a `HotFill`. All its words must be equal, and the word must be one
    /// that can be there.
    HotRead {
        mem: usize,
        to: Ptr,
    },
}

/// A device of a platform, and its abilities.
#[derive(Clone, Debug, Serialize, Deserialize, PartialEq, Eq)]
pub struct Device {
    /// The name that the driver gives the device.
    pub name: String,
    /// Whether it has images with the format that the programs use.
    pub images: bool,
    /// Whether it has coarse-grained shared virtual memory.
    pub svm: bool,
    /// Whether its queues may be out of order.
    pub out_of_order: bool,
    /// Size of the local memory in bytes.
    pub local_bytes: u64,
    /// Alignment of the offsets of sub-buffers in bytes.
    pub align_bytes: usize,
    /// Largest width of a one-dimensional image over a buffer, in pixels; 0 without images.
    pub view_pixels_max: usize,
}

/// The platform that the programs run on.
#[derive(Clone, Debug, Serialize, Deserialize, PartialEq, Eq)]
pub struct Platform<D = Device> {
    /// The name that the driver gives the platform.
    pub name: String,
    pub version: String,
    pub devices: Vec<D>,
}
