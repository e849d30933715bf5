//! Buffers, sub-buffers, pipes and shared virtual memory. Images are in `image`.

use std::ptr::NonNull;
use std::sync::Arc;

use penstock_cl_sys::{
    CL_MEM_KERNEL_READ_AND_WRITE, CL_MEM_READ_ONLY, CL_MEM_READ_WRITE, CL_MEM_WRITE_ONLY,
};
use penstock_wire::status::Status;

use crate::account::Share;
use crate::driver::{Backing, Context, HomeOf, Mem, MemDriver, MemKind, MemParts};
use crate::home::{Home, HostMemory, Mapping};
use crate::region;

/// Flags about kernels' accesses, the only ones that reach the driver. The client has checked the
/// host's accesses, and the worker needs all of them; it also decides where host memory is.
pub(crate) const KERNEL_FLAGS: u64 =
    CL_MEM_READ_WRITE | CL_MEM_READ_ONLY | CL_MEM_WRITE_ONLY | CL_MEM_KERNEL_READ_AND_WRITE;

/// Size of a page; home memory consists of pages.
const PAGE_BYTES: usize = 4096;

impl Mem {
    /// `clCreateBuffer`; the content is zero. Only the flags about kernels matter.
    ///
    /// # Errors
    /// The driver's error; `CL_INVALID_BUFFER_SIZE` for 0 or more than the devices can allocate.
    pub fn buffer(context: &Context, flags: u64, size: u64) -> Result<Self, Status> {
        let bytes = check_size(context, size)?;
        let share = Share::take(size)?;
        let flags = flags & KERNEL_FLAGS;
        if context.shares_host_memory() {
            let mapping = Mapping::zeroed(bytes.next_multiple_of(PAGE_BYTES))?;
            if mapping.address().addr().is_multiple_of(alignment(context)) {
                return Self::over(context, flags, size, mapping, Some(share));
            }
        }
        let driver = context.0.driver.buffer(flags, bytes, Backing::Device(share))?;
        Ok(Self::of(driver, context, MemKind::Buffer, size))
    }

    /// `clCreateBuffer` in lent memory, which keeps its content and is given back after the last
    /// use.
    ///
    /// # Errors
    /// `CL_INVALID_OPERATION` if the devices cannot work on this memory or at this address; the
    /// driver's error.
    pub fn buffer_in(
        context: &Context,
        flags: u64,
        size: u64,
        memory: Box<dyn HostMemory>,
    ) -> Result<Self, Status> {
        let bytes = check_size(context, size)?;
        if memory.range().1 < bytes {
            return Err(Status::INVALID_OPERATION);
        }
        if !context.shares_host_memory() {
            let driver = context.0.driver.mapped(bytes, memory)?;
            return Ok(Self::of(driver, context, MemKind::Buffer, size));
        }
        let mapping = Mapping::lent(memory);
        if !mapping.address().addr().is_multiple_of(alignment(context)) {
            return Err(Status::INVALID_OPERATION);
        }
        Self::over(context, flags & KERNEL_FLAGS, size, mapping, None)
    }

    /// `clSVMAlloc` at exactly this address, where the client has its own memory. The result is a
    /// buffer.
    ///
    /// # Errors
    /// `CL_INVALID_OPERATION` if the devices do not work on this process's memory;
    /// `CL_MEM_OBJECT_ALLOCATION_FAILURE` if the address is taken.
    pub fn svm(
        context: &Context,
        flags: u64,
        size: u64,
        alignment: u32,
        address: u64,
    ) -> Result<Self, Status> {
        // A device without SVM may work on this memory, but its kernels may see other addresses.
        let have_svm = context.devices().iter().all(|device| device.0.driver.has_svm());
        if !have_svm || !context.shares_host_memory() {
            return Err(Status::INVALID_OPERATION);
        }
        let bytes = check_size(context, size)?;
        let address = region::narrow(address)?;
        // "alignment must be a power of two"; page-aligned memory suits all of OpenCL's types.
        let alignment = usize::try_from(alignment.max(1)).map_err(|_| Status::INVALID_VALUE)?;
        if address == 0
            || address % PAGE_BYTES != 0
            || !alignment.is_power_of_two()
            || address % alignment != 0
        {
            return Err(Status::INVALID_VALUE);
        }
        let share = Share::take(size)?;
        let mapping = Mapping::zeroed_at(address, bytes.next_multiple_of(PAGE_BYTES))?;
        Self::over(context, flags & KERNEL_FLAGS, size, mapping, Some(share))
    }

    /// Makes a buffer of `size` bytes of a variable of a CUDA module, which start at `address`.
    ///
    /// # Errors
    /// `CL_INVALID_BUFFER_SIZE` for no bytes; `CL_INVALID_OPERATION` if the devices have no such
    /// variables; `CL_INVALID_HOST_PTR` if no known variable contains the bytes.
    pub fn variable(context: &Context, address: u64, size: u64) -> Result<Self, Status> {
        if size == 0 {
            return Err(Status::INVALID_BUFFER_SIZE);
        }
        let driver = context.0.driver.variable(address, region::narrow(size)?)?;
        Ok(Self::of(driver, context, MemKind::Buffer, size))
    }

    /// Makes a buffer whose content is in a mapping.
    pub(crate) fn over(
        context: &Context,
        flags: u64,
        size: u64,
        mapping: Mapping,
        share: Option<Share>,
    ) -> Result<Self, Status> {
        let start = NonNull::new(mapping.address()).ok_or(Status::OUT_OF_HOST_MEMORY)?;
        let home = HomeOf { start, mapped: mapping.bytes(), offset: 0 };
        let backing = Backing::Home(mapping, share);
        let driver = context.0.driver.buffer(flags, region::narrow(size)?, backing)?;
        let (kind, context) = (MemKind::Buffer, context.clone());
        Ok(Self(Arc::new(MemParts {
            driver,
            context,
            kind,
            size,
            home: Some(home),
            _parent: None,
        })))
    }

    fn of(driver: Box<dyn MemDriver>, context: &Context, kind: MemKind, size: u64) -> Self {
        let context = context.clone();
        Self(Arc::new(MemParts { driver, context, kind, size, home: None, _parent: None }))
    }

    /// `clCreateSubBuffer`.
    ///
    /// # Errors
    /// The driver's error; `CL_INVALID_VALUE` if it is outside of its parent.
    pub fn sub_buffer(parent: &Self, flags: u64, origin: u64, size: u64) -> Result<Self, Status> {
        parent.expect_buffer()?;
        if size == 0 {
            return Err(Status::INVALID_BUFFER_SIZE);
        }
        let (offset, bytes) = region::range(parent.size(), origin, size)?;
        let driver = parent.0.driver.part(flags & KERNEL_FLAGS, offset, bytes)?;
        // "buffer must be ... and cannot be a sub-buffer object", so the parent's offset is 0.
        let home = parent.0.home.map(|home| HomeOf { offset: home.offset + offset, ..home });
        Ok(Self(Arc::new(MemParts {
            driver,
            context: parent.context().clone(),
            kind: MemKind::Buffer,
            size,
            home,
            _parent: Some(parent.clone()),
        })))
    }

    /// `clCreatePipe`.
    ///
    /// # Errors
    /// The driver's error.
    pub fn pipe(
        context: &Context,
        flags: u64,
        packet_size: u32,
        packets_max: u32,
    ) -> Result<Self, Status> {
        let size = u64::from(packet_size) * u64::from(packets_max);
        let driver = context.0.driver.pipe(flags & KERNEL_FLAGS, packet_size, packets_max)?;
        Ok(Self::of(driver, context, MemKind::Pipe, size))
    }

    /// Sets a buffer's content from `offset`. Blocks until the content is set, but does not wait
    /// for pending commands.
    ///
    /// # Errors
    /// The driver's error; `CL_INVALID_VALUE` if the range is out of bounds.
    pub fn init(&self, offset: u64, bytes: &[u8]) -> Result<(), Status> {
        self.expect_buffer()?;
        let (place, _) = region::range(self.size(), offset, bytes.len() as u64)?;
        match self.home() {
            Some(home) => home.write(offset, bytes),
            None => self.0.driver.init(place, bytes),
        }
    }

    /// Size in bytes of a buffer, or of an image's content without gaps.
    pub fn size(&self) -> u64 {
        self.0.size
    }

    /// Returns the address of the first byte for kernels. It does not change.
    ///
    /// # Errors
    /// `CL_INVALID_OPERATION` if the driver reports no address, or one for each of several devices.
    pub fn device_address(&self) -> Result<u64, Status> {
        self.0.driver.device_address()
    }

    pub fn context(&self) -> &Context {
        &self.0.context
    }

    pub fn is_image(&self) -> bool {
        matches!(self.0.kind, MemKind::Image(_))
    }

    /// Returns the memory itself, if kernels and worker share it.
    pub fn home(&self) -> Option<Home<'_>> {
        let home = self.0.home?;
        Home::part(home.start, home.mapped, home.offset, region::narrow(self.size()).ok()?)
    }

    /// Returns bytes of the home memory that keep the buffer alive; `None` without such bytes.
    pub fn home_bytes(&self, offset: u64, size: u64) -> Option<HomeBytes> {
        HomeBytes::of(self, offset, size)
    }

    pub(crate) fn expect_buffer(&self) -> Result<(), Status> {
        if matches!(self.0.kind, MemKind::Buffer) {
            Ok(())
        } else {
            Err(Status::INVALID_MEM_OBJECT)
        }
    }
}

/// Returns the alignment in bytes that all devices of the context need.
fn alignment(context: &Context) -> usize {
    let devices = context.devices().iter();
    devices.map(|device| device.0.driver.limits().alignment).max().unwrap_or(1).max(1)
}

/// Checks the size of a buffer; at least one device of the context must support it.
fn check_size(context: &Context, size: u64) -> Result<usize, Status> {
    // "CL_INVALID_BUFFER_SIZE if size is 0 or if size is greater than CL_DEVICE_MAX_MEM_ALLOC_SIZE
    // for all devices in context."
    let devices = context.devices().iter();
    let most = devices.map(|device| device.0.driver.limits().allocation).max().unwrap_or(0);
    if size == 0 || size > most {
        return Err(Status::INVALID_BUFFER_SIZE);
    }
    region::narrow(size).map_err(|_| Status::INVALID_BUFFER_SIZE)
}

/// Bytes of a buffer's home memory that are on their way. They keep the buffer alive.
#[derive(Debug)]
pub struct HomeBytes {
    mem: Mem,
    offset: u64,
    length: usize,
}

impl HomeBytes {
    /// Returns `None` if the buffer has no home memory or the bytes are out of bounds.
    fn of(mem: &Mem, offset: u64, size: u64) -> Option<Self> {
        let length = usize::try_from(size).ok()?;
        mem.home()?.place(offset, length).ok()?;
        Some(Self { mem: mem.clone(), offset, length })
    }

    #[allow(clippy::len_without_is_empty, reason = "a size to compare; nobody asks for nothing")]
    pub fn len(&self) -> usize {
        self.length
    }

    /// Copies the bytes out.
    ///
    /// # Errors
    /// `CL_INVALID_VALUE` if `into` has another length.
    pub fn read(&self, into: &mut [u8]) -> Result<(), Status> {
        let from =
            self.place().filter(|_| into.len() == self.length).ok_or(Status::INVALID_VALUE)?;
        // SAFETY: the range was checked, `self` keeps the buffer, and `into` is elsewhere.
        unsafe { std::ptr::copy(from, into.as_mut_ptr(), into.len()) }
        Ok(())
    }

    fn place(&self) -> Option<*mut u8> {
        self.mem.home()?.place(self.offset, self.length).ok()
    }
}

impl AsRef<[u8]> for HomeBytes {
    fn as_ref(&self) -> &[u8] {
        let Some(place) = self.place() else { return &[] };
        // SAFETY: the range was checked, and stays mapped while `self` keeps the buffer. A kernel
        // that writes there meanwhile, which OpenCL leaves undefined, only makes them other plain
        // bytes.
        unsafe { std::slice::from_raw_parts(place, self.length) }
    }
}

impl Home<'_> {
    /// Copies another buffer's bytes to `offset`. The ranges may overlap: the client places
    /// buffers.
    ///
    /// # Errors
    /// `CL_INVALID_VALUE` if they are out of bounds.
    pub fn copy(&self, offset: u64, bytes: &HomeBytes) -> Result<(), Status> {
        let place = self.place(offset, bytes.length)?;
        let from = bytes.place().ok_or(Status::INVALID_VALUE)?;
        // SAFETY: both ranges were checked, and their buffers are kept; `copy` allows overlap.
        unsafe { std::ptr::copy(from, place, bytes.length) }
        Ok(())
    }
}
