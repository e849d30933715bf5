use penstock_cl_sys::CL_FALSE;
use penstock_wire::status::Status;

use super::api::function;
use super::event::Event;
use super::memory::Mem;
use super::queue::{Queue, Want};
use super::region;
use super::transfer::Reading;
use crate::staging::Staged;

const IMAGE_FORMAT_MISMATCH: Status = Status(penstock_cl_sys::CL_IMAGE_FORMAT_MISMATCH);

impl Queue {
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
        let write = function!(clEnqueueWriteImage)?;
        self.expect_same_context(&[mem])?;
        if mem.region_bytes(origin, region)? != bytes.len() as u64 {
            return Err(Status::INVALID_VALUE);
        }
        let (origin, size) = (region::triple(origin)?, region::extent(region)?);
        self.give(bytes, waits, want, |start, number, list, event| {
            // SAFETY: queue and image live; the region lies within the image, and `start` has its
            // size.
            unsafe {
                write(
                    self.raw(),
                    mem.raw(),
                    CL_FALSE,
                    origin.as_ptr(),
                    size.as_ptr(),
                    0,
                    0,
                    start,
                    number,
                    list,
                    event,
                )
            }
        })
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
        let read = function!(clEnqueueReadImage)?;
        self.expect_same_context(&[mem])?;
        let bytes = mem.region_bytes(origin, region)?;
        let (origin, size) = (region::triple(origin)?, region::extent(region)?);
        self.take(bytes, waits, |start, number, list, event| {
            // SAFETY: queue and image live; the region lies within the image, and `start` has its
            // size.
            unsafe {
                read(
                    self.raw(),
                    mem.raw(),
                    CL_FALSE,
                    origin.as_ptr(),
                    size.as_ptr(),
                    0,
                    0,
                    start,
                    number,
                    list,
                    event,
                )
            }
        })
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
        let copy = function!(clEnqueueCopyImage)?;
        self.expect_same_context(&[source, target])?;
        // "CL_IMAGE_FORMAT_MISMATCH if src_image and dst_image do not use the same image format."
        if source.region_bytes(source_origin, region)?
            != target.region_bytes(target_origin, region)?
        {
            return Err(IMAGE_FORMAT_MISMATCH);
        }
        let (from, to) = (region::triple(source_origin)?, region::triple(target_origin)?);
        let size = region::extent(region)?;
        self.enqueue(waits, want, |number, list, event| {
            // SAFETY: queue and images live; both regions lie within; elements have the same size.
            unsafe {
                copy(
                    self.raw(),
                    source.raw(),
                    target.raw(),
                    from.as_ptr(),
                    to.as_ptr(),
                    size.as_ptr(),
                    number,
                    list,
                    event,
                )
            }
        })
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
        let copy = function!(clEnqueueCopyImageToBuffer)?;
        target.expect_buffer()?;
        self.expect_same_context(&[source, target])?;
        let (to, _) = region::range(target.size(), offset, source.region_bytes(origin, region)?)?;
        let (from, size) = (region::triple(origin)?, region::extent(region)?);
        self.enqueue(waits, want, |number, list, event| {
            // SAFETY: queue, image and buffer live; region and range lie within them.
            unsafe {
                copy(
                    self.raw(),
                    source.raw(),
                    target.raw(),
                    from.as_ptr(),
                    size.as_ptr(),
                    to,
                    number,
                    list,
                    event,
                )
            }
        })
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
        let copy = function!(clEnqueueCopyBufferToImage)?;
        source.expect_buffer()?;
        self.expect_same_context(&[source, target])?;
        let (from, _) = region::range(source.size(), offset, target.region_bytes(origin, region)?)?;
        let (to, size) = (region::triple(origin)?, region::extent(region)?);
        self.enqueue(waits, want, |number, list, event| {
            // SAFETY: queue, image and buffer live; region and range lie within them.
            unsafe {
                copy(
                    self.raw(),
                    source.raw(),
                    target.raw(),
                    from,
                    to.as_ptr(),
                    size.as_ptr(),
                    number,
                    list,
                    event,
                )
            }
        })
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
        let fill = function!(clEnqueueFillImage)?;
        self.expect_same_context(&[mem])?;
        mem.region_bytes(origin, region)?;
        let (at, size) = (region::triple(origin)?, region::extent(region)?);
        // Aligned words, because drivers read them as words.
        let words: [u32; 4] = std::array::from_fn(|index| {
            colour.as_chunks().0.get(index).map_or(0, |&word| u32::from_ne_bytes(word))
        });
        self.enqueue(waits, want, |number, list, event| {
            // SAFETY: queue and image live; the region lies within the image; the colour has the
            // four words of any format.
            unsafe {
                fill(
                    self.raw(),
                    mem.raw(),
                    words.as_ptr().cast(),
                    at.as_ptr(),
                    size.as_ptr(),
                    number,
                    list,
                    event,
                )
            }
        })
    }
}
