//! Buffers and sub-buffers: memory of one GPU at a fixed address.

use std::ffi::c_void;
use std::sync::{Arc, Mutex, PoisonError};

use penstock_cl_sys::{
    _cl_mem, CL_BUFFER_CREATE_TYPE_REGION, CL_INVALID_BUFFER_SIZE, CL_INVALID_HOST_PTR,
    CL_MEM_ALLOC_HOST_PTR, CL_MEM_COPY_HOST_PTR, CL_MEM_DEVICE_ADDRESS_EXT, CL_MEM_SIZE,
    CL_MEM_USE_HOST_PTR, cl_buffer_create_type, cl_buffer_region, cl_context, cl_int, cl_mem,
    cl_mem_flags, cl_mem_info,
};
use penstock_cuda_sys::driver::CUdeviceptr;
use penstock_wire::status::Status;

use super::answer::{Answer, Place};
use super::context::Context;
use super::device::Device;
use super::driver::check;
use super::mapped::{self, Mapped};
use super::module::{self, Module};
use super::object::{self, Address, Body, Object, Ref};
use super::parts::Layout;
use super::reaper::{self, Reaper, Remains};

pub(super) struct Memory {
    device: &'static Object<Device>,
    address: CUdeviceptr,
    size: usize,
    /// Owner of the memory; `None` if this buffer owns it.
    of: Option<Whole>,
    /// Destructor callbacks in the order of registration.
    destructors: Mutex<Vec<Destructor>>,
}

/// What owns a buffer's memory, kept so that the memory stays.
#[allow(dead_code, reason = "kept to be dropped")]
enum Whole {
    Buffer(Ref<Memory>),
    Variable(Arc<Module>),
    Mapped(Arc<Mapped>),
}

type Notify = unsafe extern "C" fn(cl_mem, *mut c_void);

struct Destructor {
    notify: Notify,
    data: Address<c_void>,
}

impl Body for Memory {
    type Raw = _cl_mem;
    const TAG: usize = 0x5043_4403;
    const WRONG: Status = Status::INVALID_MEM_OBJECT;
}

impl Memory {
    fn new(device: &'static Object<Device>, size: usize) -> Result<Self, Status> {
        device.enter()?;
        let address = reaper::with_memory(device, || {
            let mut address = 0;
            // SAFETY: the output location outlives the call.
            check(unsafe { (device.cuda().cuMemAlloc)(&mut address, size) }).map(|()| address)
        })?;
        Ok(Self { device, address, size, of: None, destructors: Mutex::default() })
    }

    /// Makes a buffer over mapped host memory or a module's variable.
    fn over(
        device: &'static Object<Device>,
        address: CUdeviceptr,
        size: usize,
    ) -> Result<Self, Status> {
        let on_host =
            usize::try_from(address).ok().and_then(|start| mapped::at(device, start, size));
        if let Some(mapped) = on_host {
            let (address, of) = (mapped.address(), Some(Whole::Mapped(mapped)));
            return Ok(Self { device, address, size, of, destructors: Mutex::default() });
        }
        let module = module::with_variable(address, size).ok_or(Status(CL_INVALID_HOST_PTR))?;
        if !std::ptr::eq(module.device(), device) {
            return Err(Status(CL_INVALID_HOST_PTR));
        }
        Ok(Self {
            device,
            address,
            size,
            of: Some(Whole::Variable(module)),
            destructors: Mutex::default(),
        })
    }

    /// Returns the layout of `size` bytes at `offset`, if they lie within the buffer.
    pub(super) fn range(&self, offset: usize, size: usize) -> Result<Layout, Status> {
        let end = offset.checked_add(size).filter(|_| size > 0).ok_or(Status::INVALID_VALUE)?;
        if end > self.size {
            return Err(Status::INVALID_VALUE);
        }
        Ok(Layout::linear(self.address + offset as u64, size))
    }

    /// Returns the layout of a box, if it lies within the buffer.
    pub(super) fn rect(
        &self,
        origin: [usize; 3],
        extent: [usize; 3],
        (row, slice): (usize, usize),
    ) -> Result<Layout, Status> {
        let bad = Status::INVALID_VALUE;
        if extent.contains(&0) {
            return Err(bad);
        }
        let row_pitch = if row == 0 { extent[0] } else { row };
        let rows = extent[1].checked_mul(row_pitch).ok_or(bad)?;
        let slice_pitch = if slice == 0 { rows } else { slice };
        if row_pitch < extent[0] || slice_pitch < rows || !slice_pitch.is_multiple_of(row_pitch) {
            return Err(bad);
        }
        let end = || {
            let slices = origin[2].checked_add(extent[2] - 1)?.checked_mul(slice_pitch)?;
            let rows = origin[1].checked_add(extent[1] - 1)?.checked_mul(row_pitch)?;
            slices.checked_add(rows)?.checked_add(origin[0].checked_add(extent[0])?)
        };
        if end().is_none_or(|end| end > self.size) {
            return Err(bad);
        }
        Ok(Layout::rect(self.address, origin, extent, (row_pitch, slice_pitch)))
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        let destructors =
            std::mem::take(self.destructors.get_mut().unwrap_or_else(PoisonError::into_inner));
        let tell = move || {
            // "The registered callback functions are called in the reverse order in which they were
            // registered."
            for Destructor { notify, data } in destructors.into_iter().rev() {
                // SAFETY: the caller of `clSetMemObjectDestructorCallback` passed the function with
                // its data; it is called once. The object is gone, so it has no handle.
                unsafe { notify(std::ptr::null_mut(), data.get()) };
            }
        };
        let remains = match self.of.take() {
            None => Remains::Memory(self.address, Box::new(tell)),
            Some(Whole::Mapped(mapped)) => Remains::Mapped(mapped, Box::new(tell)),
            Some(Whole::Buffer(_) | Whole::Variable(_)) => return tell(),
        };
        Reaper::take(self.device, remains);
    }
}

pub(super) unsafe extern "C" fn create(
    context: cl_context,
    flags: cl_mem_flags,
    size: usize,
    host: *mut c_void,
    code: *mut cl_int,
) -> cl_mem {
    let make = || {
        // SAFETY: the caller passes a live handle of this platform.
        let context = unsafe { object::get::<Context>(context) }?;
        if size == 0 {
            return Err(Status(CL_INVALID_BUFFER_SIZE));
        }
        // The pointer names memory that the GPU can already use, at its host or device address.
        if flags & CL_MEM_USE_HOST_PTR != 0 {
            let memory = Memory::over(context.device, host.addr() as u64, size)?;
            return Ok(object::give(Object::new(memory)));
        }
        if flags & (CL_MEM_ALLOC_HOST_PTR | CL_MEM_COPY_HOST_PTR) != 0 {
            return Err(Status(CL_INVALID_HOST_PTR));
        }
        Ok(object::give(Object::new(Memory::new(context.device, size)?)))
    };
    // SAFETY: the caller passes null or a writable location.
    unsafe { object::made(code, make) }
}

pub(super) unsafe extern "C" fn create_part(
    parent: cl_mem,
    _flags: cl_mem_flags,
    kind: cl_buffer_create_type,
    info: *const c_void,
    code: *mut cl_int,
) -> cl_mem {
    let make = || {
        // SAFETY: the caller passes a live handle of this platform.
        let parent = unsafe { object::share::<Memory>(parent) }?;
        if kind != CL_BUFFER_CREATE_TYPE_REGION || info.is_null() {
            return Err(Status::INVALID_VALUE);
        }
        // SAFETY: this kind comes with a region.
        let part = unsafe { info.cast::<cl_buffer_region>().read() };
        let range = parent.range(part.origin, part.size)?;
        let (device, address, size) = (parent.device, range.address, part.size);
        let of = Some(Whole::Buffer(parent));
        Ok(object::give(Object::new(Memory {
            device,
            address,
            size,
            of,
            destructors: Mutex::default(),
        })))
    };
    // SAFETY: the caller passes null or a writable location.
    unsafe { object::made(code, make) }
}

pub(super) unsafe extern "C" fn release(memory: cl_mem) -> cl_int {
    // SAFETY: the caller gives up its own reference.
    unsafe { object::release::<Memory>(memory) }
}

pub(super) unsafe extern "C" fn set_destructor(
    memory: cl_mem,
    notify: Option<Notify>,
    data: *mut c_void,
) -> cl_int {
    object::code(|| {
        // SAFETY: the caller passes a live handle of this platform.
        let memory = unsafe { object::get::<Memory>(memory) }?;
        let notify = notify.ok_or(Status::INVALID_VALUE)?;
        let mut destructors = memory.destructors.lock().unwrap_or_else(PoisonError::into_inner);
        destructors.push(Destructor { notify, data: Address::new(data) });
        Ok(())
    })
}

pub(super) unsafe extern "C" fn get_info(
    memory: cl_mem,
    name: cl_mem_info,
    size: usize,
    value: *mut c_void,
    true_size: *mut usize,
) -> cl_int {
    object::code(|| {
        // SAFETY: the caller passes a live handle of this platform.
        let memory = unsafe { object::get::<Memory>(memory) }?;
        let answer = match name {
            CL_MEM_SIZE => Answer::sizes(&[memory.size]),
            // One address per device of the context, which has one device.
            CL_MEM_DEVICE_ADDRESS_EXT => Answer::ulong(memory.address),
            _ => return Err(Status::INVALID_VALUE),
        };
        // SAFETY: the caller passes locations of the size that it names.
        unsafe { Place { size, value, true_size }.write(&answer) }
    })
}
