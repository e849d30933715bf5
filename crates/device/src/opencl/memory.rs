//! Buffers, sub-buffers, pipes and shared virtual memory. Images are in `image`.

use std::ffi::c_void;
use std::ptr::NonNull;
use std::sync::Arc;

use penstock_cl_sys::{
    CL_BUFFER_CREATE_TYPE_REGION, CL_DEVICE_SVM_CAPABILITIES, CL_MEM_DEVICE_ADDRESS_EXT,
    CL_MEM_KERNEL_READ_AND_WRITE, CL_MEM_READ_ONLY, CL_MEM_READ_WRITE, CL_MEM_USE_HOST_PTR,
    CL_MEM_WRITE_ONLY, CL_TRUE, cl_buffer_region, cl_mem,
};
use penstock_wire::status::Status;

use super::account::Share;
use super::api::{self, function, owned};
use super::context::Context;
use super::device::Device;
use super::home::{Home, HomeBytes, HostMemory, Mapping};
use super::image::Shape;
use super::region;
use crate::cuda::Mapped;

owned!(
    /// One reference to a `cl_mem`.
    OwnedMem(cl_mem),
    clReleaseMemObject
);

const INVALID_BUFFER_SIZE: Status = Status(penstock_cl_sys::CL_INVALID_BUFFER_SIZE);

/// Flags about kernels' accesses, the only ones that reach the driver. The client has checked the
/// host's accesses, and the worker needs all of them; it also decides where host memory is.
pub(super) const KERNEL_FLAGS: u64 =
    CL_MEM_READ_WRITE | CL_MEM_READ_ONLY | CL_MEM_WRITE_ONLY | CL_MEM_KERNEL_READ_AND_WRITE;

/// Size of a page; home memory consists of pages.
const PAGE_BYTES: usize = 4096;

/// A buffer, sub-buffer, image, pipe or SVM allocation. Cheap to clone. The driver's object lives
/// until the last clone is dropped and all commands that use it have ended.
#[derive(Clone, Debug)]
pub struct Mem(pub(super) Arc<Inner>);

#[derive(Debug)]
pub(super) struct Inner {
    raw: OwnedMem,
    context: Context,
    kind: Kind,
    size: u64,
    /// Home memory of the object itself or, for a sub-buffer, of its parent.
    home: Option<HomeOf>,
    /// The object that this one was made from, kept for its home memory.
    _parent: Option<Mem>,
}

#[derive(Debug)]
pub(super) enum Kind {
    Buffer,
    Image(Shape),
    Pipe,
}

/// Location of home memory. It is unmapped when the driver has deleted the object, not before.
#[derive(Debug, Clone, Copy)]
struct HomeOf {
    start: NonNull<u8>,
    mapped: usize,
    offset: usize,
}

// SAFETY: this is only the address of a mapping, which any thread may use.
unsafe impl Send for HomeOf {}
// SAFETY: as above.
unsafe impl Sync for HomeOf {}

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
            let alignment =
                context.devices().iter().map(|device| device.limits().alignment).max().unwrap_or(0);
            if alignment == 0 || mapping.address().addr() % alignment == 0 {
                return Self::over(context, flags, size, (mapping, Some(share)));
            }
        }
        let raw = create_buffer(context, flags, bytes, std::ptr::null_mut())?;
        keep_until_deleted(&raw, share)?;
        let mem = Self::of(raw, context, Kind::Buffer, size);
        clear(context, &mem.0.raw, bytes)?;
        Ok(mem)
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
        if context.platform().is_cuda() {
            return Self::mapped(context, flags, size, memory);
        }
        let mapping = Mapping::lent(memory);
        let alignment = context
            .devices()
            .iter()
            .map(|device| device.limits().alignment)
            .max()
            .unwrap_or(1)
            .max(1);
        if !context.shares_host_memory()
            || mapping.bytes() < bytes
            || !mapping.address().addr().is_multiple_of(alignment)
        {
            return Err(Status::INVALID_OPERATION);
        }
        Self::over(context, flags & KERNEL_FLAGS, size, (mapping, None))
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
        if context.platform().is_cuda() {
            return Self::variable(context, flags, size, address);
        }
        // A device without SVM may work on this memory, but its kernels may see other addresses.
        let can =
            |device: &Device| device.number::<u64>(CL_DEVICE_SVM_CAPABILITIES).unwrap_or(0) != 0;
        context.platform().needs(2, 0)?;
        if !context.shares_host_memory() || !context.devices().iter().all(can) {
            return Err(Status::INVALID_OPERATION);
        }
        let bytes = check_size(context, size)?;
        let address = api::size(address)?;
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
        Self::over(context, flags & KERNEL_FLAGS, size, (mapping, Some(share)))
    }

    /// On CUDA's platform: wraps a variable of a module in a buffer.
    fn variable(context: &Context, flags: u64, size: u64, address: u64) -> Result<Self, Status> {
        let place = std::ptr::without_provenance_mut(api::size(address)?);
        let flags = flags & KERNEL_FLAGS | CL_MEM_USE_HOST_PTR;
        let raw = create_buffer(context, flags, api::size(size)?, place)?;
        Ok(Self::of(raw, context, Kind::Buffer, size))
    }

    /// As [`Mem::buffer_in`], on CUDA's platform: a buffer at the GPU's addresses for the memory.
    fn mapped(
        context: &Context,
        flags: u64,
        size: u64,
        memory: Box<dyn HostMemory>,
    ) -> Result<Self, Status> {
        let (start, bytes) = memory.range();
        if api::size(size)? > bytes {
            return Err(Status::INVALID_OPERATION);
        }
        // SAFETY: the context is of CUDA's platform, and lives.
        let mapped = unsafe { Mapped::new(context.raw(), memory) }?;
        let flags = flags & KERNEL_FLAGS | CL_MEM_USE_HOST_PTR;
        let raw = create_buffer(context, flags, api::size(size)?, start.as_ptr().cast())?;
        // The buffer holds the mapping now, and frees it when the device has finished with it.
        drop(mapped);
        Ok(Self::of(raw, context, Kind::Buffer, size))
    }

    /// Makes a buffer whose content is in a mapping.
    fn over(
        context: &Context,
        flags: u64,
        size: u64,
        (mapping, share): (Mapping, Option<Share>),
    ) -> Result<Self, Status> {
        let bytes = api::size(size)?;
        let start = NonNull::new(mapping.address()).ok_or(Status::OUT_OF_HOST_MEMORY)?;
        let home = HomeOf { start, mapped: mapping.bytes(), offset: 0 };
        let raw =
            create_buffer(context, flags | CL_MEM_USE_HOST_PTR, bytes, mapping.address().cast())?;
        keep_until_deleted(&raw, (mapping, share))?;
        let (kind, context) = (Kind::Buffer, context.clone());
        Ok(Self(Arc::new(Inner { raw, context, kind, size, home: Some(home), _parent: None })))
    }

    fn of(raw: OwnedMem, context: &Context, kind: Kind, size: u64) -> Self {
        Self(Arc::new(Inner {
            raw,
            context: context.clone(),
            kind,
            size,
            home: None,
            _parent: None,
        }))
    }

    pub(super) fn of_image(
        raw: OwnedMem,
        context: &Context,
        shape: Shape,
        size: u64,
        parent: Option<&Self>,
    ) -> Self {
        let (kind, context, _parent) = (Kind::Image(shape), context.clone(), parent.cloned());
        Self(Arc::new(Inner { raw, context, kind, size, home: None, _parent }))
    }

    /// `clCreateSubBuffer`.
    ///
    /// # Errors
    /// The driver's error; `CL_INVALID_VALUE` if it is outside of its parent.
    pub fn sub_buffer(parent: &Self, flags: u64, origin: u64, size: u64) -> Result<Self, Status> {
        parent.expect_buffer()?;
        if size == 0 {
            return Err(INVALID_BUFFER_SIZE);
        }
        let (offset, bytes) = region::range(parent.size(), origin, size)?;
        let create = function!(clCreateSubBuffer)?;
        let part = cl_buffer_region { origin: offset, size: bytes };
        let mut code = 0;
        // SAFETY: the parent lives, and `part` is what the create type asks for.
        let raw = unsafe {
            create(
                parent.raw(),
                flags & KERNEL_FLAGS,
                CL_BUFFER_CREATE_TYPE_REGION,
                (&raw const part).cast::<c_void>(),
                &mut code,
            )
        };
        let raw = OwnedMem::take(api::made(raw, code)?);
        // "buffer must be ... and cannot be a sub-buffer object", so the parent's offset is 0.
        let home = parent.0.home.map(|home| HomeOf { offset: home.offset + offset, ..home });
        let context = parent.context().clone();
        Ok(Self(Arc::new(Inner {
            raw,
            context,
            kind: Kind::Buffer,
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
        context.platform().needs(2, 0)?;
        let size = u64::from(packet_size) * u64::from(packets_max);
        let share = Share::take(size)?;
        let create = function!(clCreatePipe)?;
        let mut code = 0;
        // SAFETY: the context lives; pipes have no properties.
        let raw = unsafe {
            create(
                context.raw(),
                flags & KERNEL_FLAGS,
                packet_size,
                packets_max,
                std::ptr::null(),
                &mut code,
            )
        };
        let raw = OwnedMem::take(api::made(raw, code)?);
        keep_until_deleted(&raw, share)?;
        Ok(Self::of(raw, context, Kind::Pipe, size))
    }

    /// Sets a buffer's content from `offset`. Blocks until it is set, but not for pending commands.
    ///
    /// # Errors
    /// The driver's error; `CL_INVALID_VALUE` if the range is out of bounds.
    pub fn init(&self, offset: u64, bytes: &[u8]) -> Result<(), Status> {
        self.expect_buffer()?;
        let (place, length) = region::range(self.size(), offset, bytes.len() as u64)?;
        if let Some(home) = self.home() {
            return home.write(offset, bytes);
        }
        let write = function!(clEnqueueWriteBuffer)?;
        let queue = self.context().init_queue()?;
        let _inside = super::watch::Inside::enter();
        // SAFETY: the call blocks, so `bytes` lives until it was copied; the range was checked.
        api::check(unsafe {
            write(
                queue.raw(),
                self.raw(),
                CL_TRUE,
                place,
                length,
                bytes.as_ptr().cast(),
                0,
                std::ptr::null(),
                std::ptr::null_mut(),
            )
        })?;
        queue.finish()
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
        let get = function!(clGetMemObjectInfo)?;
        // SAFETY: the object lives, and `number` passes a location of the given size.
        let address = api::number(|size, value, true_size| unsafe {
            get(self.raw(), CL_MEM_DEVICE_ADDRESS_EXT, size, value, true_size)
        });
        address.map_err(|_| Status::INVALID_OPERATION)
    }

    pub fn context(&self) -> &Context {
        &self.0.context
    }

    pub fn is_image(&self) -> bool {
        matches!(self.0.kind, Kind::Image(_))
    }

    /// Returns the memory itself, if kernels and worker share it.
    pub fn home(&self) -> Option<Home<'_>> {
        let home = self.0.home?;
        Home::part(home.start, home.mapped, home.offset, api::size(self.size()).ok()?)
    }

    /// Returns bytes of the home memory that keep the buffer alive; `None` without such bytes.
    pub fn home_bytes(&self, offset: u64, size: u64) -> Option<HomeBytes> {
        HomeBytes::of(self, offset, size)
    }

    pub(super) fn raw(&self) -> cl_mem {
        self.0.raw.raw()
    }

    pub(super) fn kind(&self) -> &Kind {
        &self.0.kind
    }

    pub(super) fn expect_buffer(&self) -> Result<(), Status> {
        if matches!(self.0.kind, Kind::Buffer) { Ok(()) } else { Err(Status::INVALID_MEM_OBJECT) }
    }
}

/// Checks the size of a buffer; at least one device of the context must support it.
fn check_size(context: &Context, size: u64) -> Result<usize, Status> {
    // "CL_INVALID_BUFFER_SIZE if size is 0 or if size is greater than CL_DEVICE_MAX_MEM_ALLOC_SIZE
    // for all devices in context."
    let most = context.devices().iter().map(|device| device.limits().allocation).max().unwrap_or(0);
    if size == 0 || size > most {
        return Err(INVALID_BUFFER_SIZE);
    }
    api::size(size).map_err(|_| INVALID_BUFFER_SIZE)
}

fn create_buffer(
    context: &Context,
    flags: u64,
    bytes: usize,
    host: *mut c_void,
) -> Result<OwnedMem, Status> {
    let create = function!(clCreateBuffer)?;
    let mut code = 0;
    // SAFETY: the context lives; `host` is null or has `bytes` bytes, see `keep_until_deleted`.
    let raw = unsafe { create(context.raw(), flags, bytes, host, &mut code) };
    api::made(raw, code).map(OwnedMem::take)
}

/// Keeps a value (home memory, share of the session) until the driver has deleted a memory object.
pub(super) fn keep_until_deleted<T: Send + 'static>(mem: &OwnedMem, kept: T) -> Result<(), Status> {
    let set = function!(clSetMemObjectDestructorCallback)?;
    let data = Box::into_raw(Box::new(kept));
    // SAFETY: `deleted` takes the box, of this type, and is called at most once. If setting the
    // callback fails, the box leaks: the driver might still use the pages.
    api::check(unsafe { set(mem.raw(), Some(deleted::<T>), data.cast()) })
}

/// "called when the memory object is deleted": no pointer to the home memory is left then.
unsafe extern "C" fn deleted<T>(_mem: cl_mem, data: *mut c_void) {
    // SAFETY: the data is the box that `keep_until_deleted` made, and the driver calls once.
    drop(unsafe { Box::from_raw(data.cast::<T>()) });
}

/// Fills a buffer with zeros: a client must not see what another one left in device memory.
fn clear(context: &Context, mem: &OwnedMem, bytes: usize) -> Result<(), Status> {
    let fill = function!(clEnqueueFillBuffer)?;
    let finish = function!(clFinish)?;
    let queue = context.init_queue()?;
    // Drivers are slow with small patterns, so this takes the largest that divides the size.
    let zeros = [0_u8; 16];
    let pattern =
        [16, 8, 4, 2, 1].into_iter().find(|&pattern| bytes.is_multiple_of(pattern)).unwrap_or(1);
    let _inside = super::watch::Inside::enter();
    // SAFETY: the call copies the pattern; the range is the whole buffer.
    api::check(unsafe {
        fill(
            queue.raw(),
            mem.raw(),
            zeros.as_ptr().cast(),
            pattern,
            0,
            bytes,
            0,
            std::ptr::null(),
            std::ptr::null_mut(),
        )
    })?;
    // SAFETY: the queue lives.
    api::check(unsafe { finish(queue.raw()) })
}
