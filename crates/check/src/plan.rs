//! What a program is: a list of operations that is complete before the first of them runs.
//!
//! The order of the list is one valid order of execution: a host that performs the operations one after the other, and lets
//! each command end as soon as it can, never waits for something that stands later in the list. The threads of a program
//! perform their own operations in this order and run freely against each other otherwise.

use serde::{Deserialize, Serialize};

/// A place in host memory: an array of the program, or a mapped region.
#[derive(Clone, Copy, Debug, Serialize, Deserialize, PartialEq, Eq)]
pub struct Ptr {
    /// Which area. The first ones are the program's arrays.
    pub area: usize,
    /// Bytes from its start.
    pub offset: usize,
}

/// A program and its configuration.
#[derive(Clone, Debug, Serialize, Deserialize, PartialEq)]
pub struct Program {
    /// The seed that it was made from.
    pub seed: u64,
    /// How many host threads it has.
    pub threads: usize,
    /// The devices of each context, as numbers of the platform's devices.
    pub contexts: Vec<Vec<usize>>,
    /// The bytes of each array of host memory.
    pub arrays: Vec<usize>,
    /// The program relies on the end of a write when the blocking call returns. The specification only promises that the
    /// host's memory can be used again.
    pub writes_end: bool,
    /// What is done.
    pub ops: Vec<Op>,
}

/// One operation of one host thread.
#[derive(Clone, Debug, Serialize, Deserialize, PartialEq)]
pub struct Op<A = Act> {
    /// Who does it.
    pub thread: usize,
    /// How long that thread rests before it, in microseconds.
    pub delay_us: u32,
    /// What is done.
    pub act: A,
}

/// What a buffer has to do with host memory.
#[derive(Clone, Copy, Debug, Serialize, Deserialize, PartialEq, Eq)]
pub enum Style {
    /// No flag.
    Plain,
    /// `CL_MEM_ALLOC_HOST_PTR`.
    Alloc,
    /// `CL_MEM_COPY_HOST_PTR`.
    Copy,
    /// `CL_MEM_USE_HOST_PTR`.
    Use,
}

/// What an operation does. The fields `queue`, `mem`, `event` and so on are numbers that the program gives its objects.
#[derive(Clone, Debug, Serialize, Deserialize, PartialEq)]
#[allow(missing_docs, reason = "the fields are the arguments of the call that the variant names")]
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
    /// A one-dimensional image with four bytes per pixel over the first bytes of the buffer `parent`.
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
    /// The host looks at memory and compares it with the model.
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
    /// Registers a callback for the end of `event`. It sets the user event `sets`, if that is given.
    Callback {
        event: usize,
        callback: usize,
        sets: Option<usize>,
    },
    /// Waits until the callback has run.
    AwaitCallback {
        callback: usize,
    },
    /// Asks for the four times of an event that has ended.
    Times {
        event: usize,
    },
    /// Asks for the status of an event that has ended.
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
    /// A launch that asks for more local memory than the device has. It reads the first word of `source` and would write the
    /// word `seed` to `scratch`.
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

/// Which kernel is launched. All work on words.
#[derive(Clone, Copy, Debug, Serialize, Deserialize, PartialEq, Eq, Hash)]
pub enum Kernel {
    /// `a[i] = pattern(seed, i)`.
    Put,
    /// As `Put`, but the first work-item computes for some time before.
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

/// Two-dimensional pieces of a buffer and of host memory or of another buffer, in bytes.
#[derive(Clone, Copy, Debug, Serialize, Deserialize, PartialEq, Eq)]
pub struct Rect {
    /// Bytes of a row.
    pub width: usize,
    /// Number of rows.
    pub height: usize,
    /// Offset of the first row in the buffer.
    pub mem_offset: usize,
    /// Bytes from row to row in the buffer.
    pub mem_pitch: usize,
    /// Bytes from row to row on the other side.
    pub other_pitch: usize,
}

impl Rect {
    /// How many bytes lie between the first and the last byte on the buffer's side.
    pub fn mem_span(&self) -> usize {
        self.mem_pitch * (self.height - 1) + self.width
    }

    /// The same on the other side.
    pub fn other_span(&self) -> usize {
        self.other_pitch * (self.height - 1) + self.width
    }
}

/// How a region is mapped.
#[derive(Clone, Copy, Debug, Serialize, Deserialize, PartialEq, Eq)]
pub enum MapMode {
    /// `CL_MAP_READ`.
    Read,
    /// `CL_MAP_WRITE`.
    Write,
    /// `CL_MAP_READ | CL_MAP_WRITE`.
    Both,
    /// `CL_MAP_WRITE_INVALIDATE_REGION`.
    Invalidate,
}

impl MapMode {
    /// Whether the program may write to the region.
    pub fn writes(self) -> bool {
        self != Self::Read
    }
}

/// One end of a copy in shared virtual memory.
#[derive(Clone, Copy, Debug, Serialize, Deserialize, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names say it")]
pub enum SvmEnd {
    /// Shared virtual memory.
    Svm { mem: usize, offset: usize },
    /// Host memory.
    Host(Ptr),
}

/// A command of a queue.
#[derive(Clone, Debug, Serialize, Deserialize, PartialEq)]
#[allow(missing_docs, reason = "the fields are the arguments of the call that the variant names")]
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
    /// Waits for the wait list, or without one for all commands before.
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
    /// All of an image.
    ReadImage {
        mem: usize,
        to: Ptr,
    },
    /// All of an image.
    WriteImage {
        mem: usize,
        from: Ptr,
    },
    /// All of an image.
    FillImage {
        mem: usize,
        word: u32,
    },
    /// All of an image.
    ImageToBuffer {
        image: usize,
        mem: usize,
        offset: usize,
    },
    /// All of an image.
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
    /// Fills all of a buffer that several threads fill and read through one in-order queue without further order.
    HotFill {
        mem: usize,
        word: u32,
    },
    /// Reads all of such a buffer. All its words must be equal, and one of those that can be there.
    HotRead {
        mem: usize,
        to: Ptr,
    },
}

/// What a platform's device can do.
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
    /// Bytes of local memory.
    pub local_bytes: u64,
    /// Offsets of sub-buffers are multiples of this many bytes.
    pub align_bytes: usize,
    /// The widest one-dimensional image over a buffer, in pixels; 0 without images.
    pub view_pixels_max: usize,
}

/// What the programs run on.
#[derive(Clone, Debug, Serialize, Deserialize, PartialEq, Eq)]
pub struct Platform<D = Device> {
    /// The name that the driver gives the platform.
    pub name: String,
    /// Its version.
    pub version: String,
    /// Its devices.
    pub devices: Vec<D>,
}
