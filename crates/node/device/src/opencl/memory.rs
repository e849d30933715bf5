//! Buffers, sub-buffers and pipes. Images are in `image`.

use std::ffi::c_void;
use std::ptr::{null, null_mut};
use std::sync::Arc;

use penstock_cl_sys::{
    CL_BUFFER_CREATE_TYPE_REGION, CL_MEM_DEVICE_ADDRESS_EXT, CL_MEM_USE_HOST_PTR, CL_TRUE,
    cl_buffer_region, cl_command_queue, cl_int, cl_mem,
};
use penstock_wire::status::Status;

use super::api::{self, function};
use super::context::Context;
use super::owned::OwnedMem;
use super::watch::Inside;
use crate::account::Share;
use crate::driver;
use crate::driver::{Backing, MemDriver};

/// A memory object. Cheap to clone.
#[derive(Clone, Debug)]
pub(super) struct Mem(pub(super) Arc<Inner>);

#[derive(Debug)]
pub(super) struct Inner {
    raw: OwnedMem,
    // Dropped after the object.
    context: Context,
}

/// Returns the handle of a memory object.
pub(super) fn raw(mem: &driver::Mem) -> Result<cl_mem, Status> {
    Ok(mem.driver::<Mem>()?.raw())
}

impl Mem {
    pub(super) fn buffer(
        context: &Context,
        flags: u64,
        bytes: usize,
        backing: Backing,
    ) -> Result<Self, Status> {
        match backing {
            Backing::Device(share) => {
                let raw = create_buffer(context, flags, bytes, null_mut())?;
                keep_until_deleted(&raw, share)?;
                clear(context, &raw, bytes)?;
                Ok(Self::of(raw, context))
            }
            Backing::Home(mapping, share) => {
                let start = mapping.address().cast();
                let raw = create_buffer(context, flags | CL_MEM_USE_HOST_PTR, bytes, start)?;
                keep_until_deleted(&raw, (mapping, share))?;
                Ok(Self::of(raw, context))
            }
        }
    }

    pub(super) fn of(raw: OwnedMem, context: &Context) -> Self {
        Self(Arc::new(Inner { raw, context: context.clone() }))
    }

    /// `clCreatePipe`.
    pub(super) fn pipe(
        context: &Context,
        flags: u64,
        packet_size: u32,
        packets_max: u32,
    ) -> Result<Self, Status> {
        context.platform().needs(2, 0)?;
        let share = Share::take(u64::from(packet_size) * u64::from(packets_max))?;
        let create = function!(clCreatePipe)?;
        let mut code = 0;
        // SAFETY: the context lives; pipes have no properties.
        let raw =
            unsafe { create(context.raw(), flags, packet_size, packets_max, null(), &mut code) };
        let raw = OwnedMem::take(api::made(raw, code)?);
        keep_until_deleted(&raw, share)?;
        Ok(Self::of(raw, context))
    }

    pub(super) fn raw(&self) -> cl_mem {
        self.0.raw.raw()
    }

    pub(super) fn context(&self) -> &Context {
        &self.0.context
    }

    /// Runs a call that sets content, and waits for its effect.
    pub(super) fn set(
        &self,
        call: impl FnOnce(cl_command_queue, cl_mem) -> cl_int,
    ) -> Result<(), Status> {
        let queue = self.context().init_queue()?;
        let _inside = Inside::enter();
        api::check(call(queue.raw(), self.raw()))?;
        queue.finish()
    }
}

impl MemDriver for Mem {
    fn part(&self, flags: u64, offset: usize, bytes: usize) -> Result<Box<dyn MemDriver>, Status> {
        let create = function!(clCreateSubBuffer)?;
        let part = cl_buffer_region { origin: offset, size: bytes };
        let mut code = 0;
        // SAFETY: the parent lives, and `part` is what the create type asks for.
        let raw = unsafe {
            create(
                self.raw(),
                flags,
                CL_BUFFER_CREATE_TYPE_REGION,
                (&raw const part).cast::<c_void>(),
                &mut code,
            )
        };
        let raw = OwnedMem::take(api::made(raw, code)?);
        Ok(Box::new(Self::of(raw, self.context())))
    }

    fn init(&self, offset: usize, bytes: &[u8]) -> Result<(), Status> {
        let write = function!(clEnqueueWriteBuffer)?;
        let (from, length) = (bytes.as_ptr().cast(), bytes.len());
        self.set(|queue, mem| {
            // SAFETY: the call blocks, so `bytes` lives until it was copied; the range was checked.
            unsafe { write(queue, mem, CL_TRUE, offset, length, from, 0, null(), null_mut()) }
        })
    }

    fn init_image(
        &self,
        origin: [usize; 3],
        region: [usize; 3],
        bytes: &[u8],
    ) -> Result<(), Status> {
        self.write_whole(origin, region, bytes)
    }

    fn clear_image(&self, region: [usize; 3]) -> Result<(), Status> {
        self.fill_zero(region)
    }

    fn device_address(&self) -> Result<u64, Status> {
        let get = function!(clGetMemObjectInfo)?;
        // SAFETY: the object lives, and `number` passes a location of the given size.
        let address = api::number(|size, value, true_size| unsafe {
            get(self.raw(), CL_MEM_DEVICE_ADDRESS_EXT, size, value, true_size)
        });
        address.map_err(|_| Status::INVALID_OPERATION)
    }
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
    let queue = context.init_queue()?;
    // Drivers are slow with small patterns, so this takes the largest that divides the size.
    let zeros = [0_u8; 16];
    let pattern =
        [16, 8, 4, 2, 1].into_iter().find(|&pattern| bytes.is_multiple_of(pattern)).unwrap_or(1);
    let _inside = Inside::enter();
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
            null(),
            null_mut(),
        )
    })?;
    queue.finish()
}
