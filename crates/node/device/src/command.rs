//! The commands that drivers perform, and the checks of those that use buffers. The commands that
//! use images are in `image_command`.

use penstock_wire::library::LibraryCall;
use penstock_wire::status::Status;
use penstock_wire::{IndexSpace, limits};

use crate::driver::{Kernel, Mem, Queue, Want};
use crate::event::{Event, Reading};
use crate::image_command::{ImageCommand, Place};
use crate::library::LibraryOperand;
use crate::region::{self, Placed, Rect};
use crate::staging::Staged;

/// A command that moves no bytes between host and device by itself, or that has its bytes. All
/// ranges and regions lie within their objects, which belong to the queue's context. The index
/// space of a launch has passed [`IndexSpace::checked`].
pub(crate) enum Command<'a> {
    Marker,
    Barrier,
    Migrate {
        mems: &'a [&'a Mem],
        flags: u64,
    },
    Launch {
        kernel: &'a Kernel,
        space: &'a IndexSpace,
    },
    Write {
        mem: &'a Mem,
        offset: usize,
        bytes: Staged,
    },
    WriteRect {
        mem: &'a Mem,
        at: Placed,
        region: [usize; 3],
        bytes: Staged,
    },
    Copy {
        source: &'a Mem,
        from: usize,
        target: &'a Mem,
        to: usize,
        bytes: usize,
    },
    CopyRect {
        source: &'a Mem,
        from: Placed,
        target: &'a Mem,
        to: Placed,
        region: [usize; 3],
    },
    Fill {
        mem: &'a Mem,
        pattern: &'a [u8],
        offset: usize,
        bytes: usize,
    },
    /// A call of a library that works in the device's own order. The operands have the bytes that
    /// the call touches.
    Library {
        call: &'a LibraryCall,
        operands: &'a [LibraryOperand<'a>],
    },
    Image(ImageCommand<'a>),
    /// Runs on the host, on a thread of the driver. The driver drops the task if it never runs.
    Task(Task),
}

/// Work for the host in the turn of a command.
pub(crate) type Task = Box<dyn FnOnce() + Send>;

/// What a read reads. All of it lies within the object.
pub(crate) enum Source<'a> {
    Buffer { mem: &'a Mem, offset: usize },
    Rect { mem: &'a Mem, at: Placed, region: [usize; 3] },
    Image { mem: &'a Mem, at: Place },
}

impl Queue {
    /// Returns offset and length of a range in a buffer of the queue's context.
    fn range(&self, mem: &Mem, offset: u64, size: u64) -> Result<(usize, usize), Status> {
        mem.expect_buffer()?;
        self.expect_same_context(&[mem])?;
        region::range(mem.size(), offset, size)
    }

    /// Returns the place of a rectangle in a buffer of the queue's context.
    fn rect(&self, mem: &Mem, rect: &Rect, region: [u64; 3]) -> Result<Placed, Status> {
        mem.expect_buffer()?;
        self.expect_same_context(&[mem])?;
        region::rect(mem.size(), rect, region)
    }

    /// Enqueues `clEnqueueWriteBuffer`. The command keeps the bytes until the device has them.
    ///
    /// # Errors
    /// Returns the driver's error, or `CL_INVALID_VALUE` if the range is out of bounds. Returns
    /// `CL_INVALID_MEM_OBJECT` if `mem` is not a buffer, and `CL_INVALID_CONTEXT` if `mem` is of
    /// another context than the queue.
    pub fn write(
        &self,
        mem: &Mem,
        offset: u64,
        bytes: Staged,
        waits: &[&Event],
        want: Want,
    ) -> Result<Option<Event>, Status> {
        let (offset, _) = self.range(mem, offset, bytes.len() as u64)?;
        self.enqueue(Command::Write { mem, offset, bytes }, waits, want)
    }

    /// `clEnqueueReadBuffer`.
    ///
    /// # Errors
    /// The driver's error; `CL_INVALID_VALUE` if the range is out of bounds.
    pub fn read(
        &self,
        mem: &Mem,
        offset: u64,
        size: u64,
        waits: &[&Event],
    ) -> Result<Reading, Status> {
        let (offset, _) = self.range(mem, offset, size)?;
        self.enqueue_read(&Source::Buffer { mem, offset }, size, waits)
    }

    /// `clEnqueueWriteBufferRect` of a region without gaps.
    ///
    /// # Errors
    /// The driver's error; `CL_INVALID_VALUE` if the region is out of bounds or has another size
    /// than `bytes`.
    pub fn write_rect(
        &self,
        mem: &Mem,
        rect: &Rect,
        region: [u64; 3],
        bytes: Staged,
        waits: &[&Event],
        want: Want,
    ) -> Result<Option<Event>, Status> {
        let at = self.rect(mem, rect, region)?;
        if region::bytes(region, 1)? != bytes.len() as u64 {
            return Err(Status::INVALID_VALUE);
        }
        let region = region::extent(region)?;
        self.enqueue(Command::WriteRect { mem, at, region, bytes }, waits, want)
    }

    /// `clEnqueueReadBufferRect` into a region without gaps.
    ///
    /// # Errors
    /// The driver's error; `CL_INVALID_VALUE` if the region is out of bounds.
    pub fn read_rect(
        &self,
        mem: &Mem,
        rect: &Rect,
        region: [u64; 3],
        waits: &[&Event],
    ) -> Result<Reading, Status> {
        let at = self.rect(mem, rect, region)?;
        let bytes = region::bytes(region, 1)?;
        let region = region::extent(region)?;
        self.enqueue_read(&Source::Rect { mem, at, region }, bytes, waits)
    }

    /// `clEnqueueCopyBuffer`.
    ///
    /// # Errors
    /// The driver's error; `CL_INVALID_VALUE` if a range is out of bounds.
    #[allow(clippy::too_many_arguments, reason = "they are those of the OpenCL call")]
    pub fn copy(
        &self,
        source: &Mem,
        source_offset: u64,
        target: &Mem,
        target_offset: u64,
        size: u64,
        waits: &[&Event],
        want: Want,
    ) -> Result<Option<Event>, Status> {
        let (from, bytes) = self.range(source, source_offset, size)?;
        let (to, _) = self.range(target, target_offset, size)?;
        self.enqueue(Command::Copy { source, from, target, to, bytes }, waits, want)
    }

    /// `clEnqueueCopyBufferRect`.
    ///
    /// # Errors
    /// The driver's error; `CL_INVALID_VALUE` if a region is out of bounds.
    #[allow(clippy::too_many_arguments, reason = "they are those of the OpenCL call")]
    pub fn copy_rect(
        &self,
        source: &Mem,
        from: &Rect,
        target: &Mem,
        to: &Rect,
        region: [u64; 3],
        waits: &[&Event],
        want: Want,
    ) -> Result<Option<Event>, Status> {
        let from = self.rect(source, from, region)?;
        let to = self.rect(target, to, region)?;
        let region = region::extent(region)?;
        self.enqueue(Command::CopyRect { source, from, target, to, region }, waits, want)
    }

    /// `clEnqueueFillBuffer`.
    ///
    /// # Errors
    /// The driver's error; `CL_INVALID_VALUE` if the range is out of bounds or not a multiple of
    /// the pattern.
    pub fn fill(
        &self,
        mem: &Mem,
        pattern: &[u8],
        offset: u64,
        size: u64,
        waits: &[&Event],
        want: Want,
    ) -> Result<Option<Event>, Status> {
        let (offset, bytes) = self.range(mem, offset, size)?;
        // "pattern_size must be one of { 1, 2, 4, 8, 16, 32, 64, 128 }"; "CL_INVALID_VALUE if
        // offset and size are not a multiple of pattern_size."
        let step = pattern.len();
        let fits = step.is_power_of_two() && step <= limits::PATTERN_BYTES_MAX;
        if !fits || !offset.is_multiple_of(step) || !bytes.is_multiple_of(step) {
            return Err(Status::INVALID_VALUE);
        }
        self.enqueue(Command::Fill { mem, pattern, offset, bytes }, waits, want)
    }
}
