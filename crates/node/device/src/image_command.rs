//! The commands on images, and their checks.

use penstock_wire::status::Status;

use crate::command::{Command, Source};
use crate::driver::{Mem, Queue, Want};
use crate::event::{Event, Reading};
use crate::region;
use crate::staging::Staged;

/// A command that uses an image.
pub(crate) enum ImageCommand<'a> {
    Write { mem: &'a Mem, at: Place, bytes: Staged },
    Copy { source: &'a Mem, from: Place, target: &'a Mem, to: [usize; 3] },
    ToBuffer { source: &'a Mem, from: Place, target: &'a Mem, to: usize },
    OfBuffer { source: &'a Mem, from: usize, target: &'a Mem, to: Place },
    Fill { mem: &'a Mem, colour: [u32; 4], at: Place },
}

/// A region that lies within an image.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place {
    pub(crate) origin: [usize; 3],
    pub(crate) region: [usize; 3],
}

impl Queue {
    /// Returns the place of a region in an image of the queue's context, and its size in bytes.
    fn place(&self, mem: &Mem, origin: [u64; 3], region: [u64; 3]) -> Result<(Place, u64), Status> {
        self.expect_same_context(&[mem])?;
        let bytes = mem.region_bytes(origin, region)?;
        let place = Place { origin: region::triple(origin)?, region: region::extent(region)? };
        Ok((place, bytes))
    }

    /// Returns the offset of a range in a buffer of the queue's context.
    fn offset(&self, mem: &Mem, offset: u64, bytes: u64) -> Result<usize, Status> {
        mem.expect_buffer()?;
        self.expect_same_context(&[mem])?;
        region::range(mem.size(), offset, bytes).map(|(offset, _)| offset)
    }

    /// `clEnqueueWriteImage` of rows and slices without gaps.
    ///
    /// # Errors
    /// The driver's error; `CL_INVALID_VALUE` if the region is out of bounds or has another size
    /// than `bytes`.
    pub fn write_image(
        &self,
        mem: &Mem,
        origin: [u64; 3],
        region: [u64; 3],
        bytes: Staged,
        waits: &[&Event],
        want: Want,
    ) -> Result<Option<Event>, Status> {
        let (at, size) = self.place(mem, origin, region)?;
        if size != bytes.len() as u64 {
            return Err(Status::INVALID_VALUE);
        }
        self.enqueue(Command::Image(ImageCommand::Write { mem, at, bytes }), waits, want)
    }

    /// `clEnqueueReadImage` into rows and slices without gaps.
    ///
    /// # Errors
    /// The driver's error; `CL_INVALID_VALUE` if the region is out of bounds.
    pub fn read_image(
        &self,
        mem: &Mem,
        origin: [u64; 3],
        region: [u64; 3],
        waits: &[&Event],
    ) -> Result<Reading, Status> {
        let (at, bytes) = self.place(mem, origin, region)?;
        self.enqueue_read(&Source::Image { mem, at }, bytes, waits)
    }

    /// `clEnqueueCopyImage`.
    ///
    /// # Errors
    /// The driver's error; `CL_INVALID_VALUE` if a region is out of bounds;
    /// `CL_IMAGE_FORMAT_MISMATCH`.
    #[allow(clippy::too_many_arguments, reason = "they are those of the OpenCL call")]
    pub fn copy_image(
        &self,
        source: &Mem,
        source_origin: [u64; 3],
        target: &Mem,
        target_origin: [u64; 3],
        region: [u64; 3],
        waits: &[&Event],
        want: Want,
    ) -> Result<Option<Event>, Status> {
        let (from, bytes) = self.place(source, source_origin, region)?;
        let (to, same) = self.place(target, target_origin, region)?;
        // "CL_IMAGE_FORMAT_MISMATCH if src_image and dst_image do not use the same image format."
        if bytes != same {
            return Err(Status::IMAGE_FORMAT_MISMATCH);
        }
        let command = ImageCommand::Copy { source, from, target, to: to.origin };
        self.enqueue(Command::Image(command), waits, want)
    }

    /// `clEnqueueCopyImageToBuffer`.
    ///
    /// # Errors
    /// The driver's error; `CL_INVALID_VALUE` if region or range are out of bounds.
    #[allow(clippy::too_many_arguments, reason = "they are those of the OpenCL call")]
    pub fn copy_image_to_buffer(
        &self,
        source: &Mem,
        origin: [u64; 3],
        region: [u64; 3],
        target: &Mem,
        offset: u64,
        waits: &[&Event],
        want: Want,
    ) -> Result<Option<Event>, Status> {
        let (from, bytes) = self.place(source, origin, region)?;
        let to = self.offset(target, offset, bytes)?;
        let command = ImageCommand::ToBuffer { source, from, target, to };
        self.enqueue(Command::Image(command), waits, want)
    }

    /// `clEnqueueCopyBufferToImage`.
    ///
    /// # Errors
    /// The driver's error; `CL_INVALID_VALUE` if region or range are out of bounds.
    #[allow(clippy::too_many_arguments, reason = "they are those of the OpenCL call")]
    pub fn copy_buffer_to_image(
        &self,
        source: &Mem,
        offset: u64,
        target: &Mem,
        origin: [u64; 3],
        region: [u64; 3],
        waits: &[&Event],
        want: Want,
    ) -> Result<Option<Event>, Status> {
        let (to, bytes) = self.place(target, origin, region)?;
        let from = self.offset(source, offset, bytes)?;
        let command = ImageCommand::OfBuffer { source, from, target, to };
        self.enqueue(Command::Image(command), waits, want)
    }

    /// `clEnqueueFillImage`; the format defines the meaning of the colour's four words.
    ///
    /// # Errors
    /// The driver's error; `CL_INVALID_VALUE` if the region is out of bounds.
    pub fn fill_image(
        &self,
        mem: &Mem,
        colour: &[u8; 16],
        origin: [u64; 3],
        region: [u64; 3],
        waits: &[&Event],
        want: Want,
    ) -> Result<Option<Event>, Status> {
        let (at, _) = self.place(mem, origin, region)?;
        // Aligned words, because drivers read them as words.
        let words: [u32; 4] = std::array::from_fn(|index| {
            colour.as_chunks().0.get(index).map_or(0, |&word| u32::from_ne_bytes(word))
        });
        let command = ImageCommand::Fill { mem, colour: words, at };
        self.enqueue(Command::Image(command), waits, want)
    }
}
