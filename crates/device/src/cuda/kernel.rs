//! Kernels and their three arguments: parameters, dynamic shared memory, heap.

use std::ffi::{CStr, c_char, c_void};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use penstock_cl_sys::*;
use penstock_cuda_sys::driver::{
    CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES, CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK,
    CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES,
};
use penstock_wire::cuda::{
    ARG_HEAP, ARG_PARAMS, ARG_SHARED, KERNEL_ATTRIBUTE, KERNEL_ATTRIBUTES_MAX, KERNEL_PARAMS,
    KERNEL_RESIDENT, KERNEL_RESIDENT_THREADS_MAX,
};
use penstock_wire::limits;
use penstock_wire::status::Status;

use super::answer::{Answer, Place};
use super::command::Launch;
use super::device;
use super::memory::Memory;
use super::module::Function;
use super::object::{self, Body, Object};
use super::program::Program;

/// Size of a warp if the driver does not report it.
pub(super) const WARP_MIN: usize = 32;
/// Most threads of a block if the caller names no local size; most kernels do well with it.
const BLOCK_THREADS: usize = 256;

pub(super) struct Kernel {
    name: String,
    function: Arc<Function>,
    args: Mutex<Args>,
}

#[derive(Clone, Default)]
struct Args {
    /// `None` before it is set.
    params: Option<Vec<u8>>,
    shared: u32,
    /// View of a symmetric heap. Weak: "clSetKernelArg does not update the reference count".
    heap: Option<Weak<Object<Memory>>>,
}

impl Body for Kernel {
    type Raw = _cl_kernel;
    const TAG: usize = 0x5043_4405;
    const WRONG: Status = Status::INVALID_KERNEL;
}

impl Kernel {
    fn args(&self) -> MutexGuard<'_, Args> {
        self.args.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes a launch with the current arguments.
    pub(super) fn launch(
        &self,
        dims: usize,
        offset: Option<[usize; 3]>,
        global: [usize; 3],
        local: Option<[usize; 3]>,
    ) -> Result<Launch, Status> {
        let (grid, block) = shape(dims, offset, global, local)?;
        let args = self.args();
        let params = match (&args.params, self.function.params_bytes()) {
            (Some(params), _) => params.clone(),
            (None, Some(0) | None) => Vec::new(),
            (None, Some(_)) => return Err(Status(CL_INVALID_KERNEL_ARGS)),
        };
        let gone = Status::INVALID_MEM_OBJECT;
        let heap = args.heap.as_ref().map(|heap| heap.upgrade().ok_or(gone)).transpose()?;
        let (function, shared) = (self.function.clone(), args.shared);
        Ok(Launch { function, grid, block, shared, params, heap })
    }

    fn set(&self, index: u32, size: usize, value: Option<&[u8]>) -> Result<(), Status> {
        let mut args = self.args();
        match (index, value) {
            (ARG_PARAMS, Some(bytes)) => {
                // "CL_INVALID_ARG_SIZE if arg_size does not match the size of the data type". Bytes
                // behind the last parameter do no harm and are dropped.
                let known = self.function.params_bytes().unwrap_or(bytes.len());
                let bytes = bytes.get(..known).ok_or(Status(CL_INVALID_ARG_SIZE))?;
                if bytes.len() as u64 > limits::ARGS_BYTES_MAX {
                    return Err(Status(CL_INVALID_ARG_SIZE));
                }
                match &mut args.params {
                    Some(known) => {
                        known.clear();
                        known.extend_from_slice(bytes);
                    }
                    none => *none = Some(bytes.to_vec()),
                }
            }
            (ARG_SHARED, None) => {
                args.shared = u32::try_from(size).map_err(|_| Status(CL_INVALID_ARG_SIZE))?;
            }
            (ARG_HEAP, Some(bytes)) => {
                let bytes = bytes.try_into().map_err(|_| Status(CL_INVALID_ARG_SIZE))?;
                let view =
                    std::ptr::with_exposed_provenance_mut::<_cl_mem>(usize::from_ne_bytes(bytes));
                args.heap = if view.is_null() {
                    None
                } else {
                    // SAFETY: the caller passes a live handle of this platform.
                    Some(Arc::downgrade(&unsafe { object::share(view) }?))
                };
            }
            (ARG_PARAMS | ARG_SHARED | ARG_HEAP, _) => return Err(Status(CL_INVALID_ARG_VALUE)),
            _ => return Err(Status(CL_INVALID_ARG_INDEX)),
        }
        Ok(())
    }

    fn work_group_answer(&self, name: u32) -> Result<Answer, Status> {
        let size = |attribute| {
            let value = self.function.attribute(attribute)?;
            Ok::<u64, Status>(u64::try_from(value).unwrap_or(0))
        };
        Ok(match name {
            CL_KERNEL_WORK_GROUP_SIZE => {
                let threads = size(CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK)?;
                Answer::sizes(&[usize::try_from(threads).unwrap_or(0)])
            }
            CL_KERNEL_COMPILE_WORK_GROUP_SIZE => Answer::sizes(&[0; 3]),
            CL_KERNEL_LOCAL_MEM_SIZE => {
                let own = size(CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES)?;
                Answer::ulong(own + u64::from(self.args().shared))
            }
            CL_KERNEL_PREFERRED_WORK_GROUP_SIZE_MULTIPLE => {
                Answer::sizes(&[device::preferred_multiple(self.function.module().device())])
            }
            CL_KERNEL_PRIVATE_MEM_SIZE => Answer::ulong(size(CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES)?),
            KERNEL_PARAMS => {
                let params = self.function.params().ok_or(Status::INVALID_VALUE)?;
                let words = params.iter().flat_map(|&(offset, size)| [offset as u64, size as u64]);
                Answer::bytes(words.flat_map(u64::to_le_bytes).collect())
            }
            _ if (KERNEL_RESIDENT..KERNEL_RESIDENT + KERNEL_RESIDENT_THREADS_MAX)
                .contains(&name) =>
            {
                let shared = self.args().shared;
                Answer::ulong(self.function.resident_blocks(name - KERNEL_RESIDENT, shared)?)
            }
            _ => {
                let attribute = name.checked_sub(KERNEL_ATTRIBUTE).ok_or(Status::INVALID_VALUE)?;
                if attribute >= KERNEL_ATTRIBUTES_MAX {
                    return Err(Status::INVALID_VALUE);
                }
                Answer::int(self.function.attribute(attribute)?)
            }
        })
    }
}

/// Returns grid and block of a range: one block per work-group.
fn shape(
    dims: usize,
    offset: Option<[usize; 3]>,
    global: [usize; 3],
    local: Option<[usize; 3]>,
) -> Result<([u32; 3], [u32; 3]), Status> {
    if !(1..=3).contains(&dims) {
        return Err(Status(CL_INVALID_WORK_DIMENSION));
    }
    if offset.is_some_and(|offset| offset != [0; 3]) {
        return Err(Status(CL_INVALID_GLOBAL_OFFSET));
    }
    let local = local.unwrap_or_else(|| [largest_divisor(global[0]), 1, 1]);
    let (mut grid, mut block) = ([1; 3], [1; 3]);
    for index in 0..3 {
        let (Some(&global), Some(&local)) = (global.get(index), local.get(index)) else { continue };
        if local == 0 || !global.is_multiple_of(local) {
            return Err(Status(CL_INVALID_WORK_GROUP_SIZE));
        }
        let narrow = |size: usize, wrong| {
            u32::try_from(size).ok().filter(|&size| size > 0).ok_or(Status(wrong))
        };
        if let (Some(grid), Some(block)) = (grid.get_mut(index), block.get_mut(index)) {
            *grid = narrow(global / local, CL_INVALID_GLOBAL_WORK_SIZE)?;
            *block = narrow(local, CL_INVALID_WORK_GROUP_SIZE)?;
        }
    }
    Ok((grid, block))
}

/// Returns the largest block size up to [`BLOCK_THREADS`] that divides the range.
fn largest_divisor(global: usize) -> usize {
    (1..=BLOCK_THREADS).rev().find(|&size| global.is_multiple_of(size)).unwrap_or(1)
}

pub(super) unsafe extern "C" fn create(
    program: cl_program,
    name: *const c_char,
    code: *mut cl_int,
) -> cl_kernel {
    let make = || {
        // SAFETY: the caller passes a live handle of this platform.
        let program = unsafe { object::get::<Program>(program) }?;
        if name.is_null() {
            return Err(Status::INVALID_VALUE);
        }
        // SAFETY: the name ends with a NUL.
        let name =
            unsafe { CStr::from_ptr(name) }.to_str().map_err(|_| Status(CL_INVALID_KERNEL_NAME))?;
        let function =
            Function::new(&program.module()?, name).map_err(|_| Status(CL_INVALID_KERNEL_NAME))?;
        let (name, function) = (name.to_owned(), Arc::new(function));
        Ok(object::give(Object::new(Kernel { name, function, args: Mutex::default() })))
    };
    // SAFETY: the caller passes null or a writable location.
    unsafe { object::made(code, make) }
}

pub(super) unsafe extern "C" fn duplicate(kernel: cl_kernel, code: *mut cl_int) -> cl_kernel {
    let make = || {
        // SAFETY: the caller passes a live handle of this platform.
        let kernel = unsafe { object::get::<Kernel>(kernel) }?;
        let (name, function) = (kernel.name.clone(), kernel.function.clone());
        let args = Mutex::new(kernel.args().clone());
        Ok(object::give(Object::new(Kernel { name, function, args })))
    };
    // SAFETY: the caller passes null or a writable location.
    unsafe { object::made(code, make) }
}

pub(super) unsafe extern "C" fn release(kernel: cl_kernel) -> cl_int {
    // SAFETY: the caller gives up its own reference.
    unsafe { object::release::<Kernel>(kernel) }
}

pub(super) unsafe extern "C" fn set_arg(
    kernel: cl_kernel,
    index: cl_uint,
    size: usize,
    value: *const c_void,
) -> cl_int {
    object::code(|| {
        // SAFETY: the caller passes a live handle of this platform.
        let kernel = unsafe { object::get::<Kernel>(kernel) }?;
        // SAFETY: the value has `size` bytes.
        let bytes =
            (!value.is_null()).then(|| unsafe { std::slice::from_raw_parts(value.cast(), size) });
        kernel.set(index, size, bytes)
    })
}

pub(super) unsafe extern "C" fn get_info(
    kernel: cl_kernel,
    name: cl_kernel_info,
    size: usize,
    value: *mut c_void,
    true_size: *mut usize,
) -> cl_int {
    object::code(|| {
        // SAFETY: the caller passes a live handle of this platform.
        let kernel = unsafe { object::get::<Kernel>(kernel) }?;
        let answer = match name {
            CL_KERNEL_FUNCTION_NAME => Answer::text(&kernel.name),
            CL_KERNEL_NUM_ARGS => Answer::uint(ARG_HEAP + 1),
            CL_KERNEL_ATTRIBUTES => Answer::text(""),
            _ => return Err(Status::INVALID_VALUE),
        };
        // SAFETY: the caller passes locations of the size that it names.
        unsafe { Place { size, value, true_size }.write(&answer) }
    })
}

pub(super) unsafe extern "C" fn get_arg_info(
    kernel: cl_kernel,
    index: cl_uint,
    name: cl_kernel_arg_info,
    size: usize,
    value: *mut c_void,
    true_size: *mut usize,
) -> cl_int {
    object::code(|| {
        // SAFETY: the caller passes a live handle of this platform.
        unsafe { object::get::<Kernel>(kernel) }?;
        let (space, type_name, arg_name) = match index {
            ARG_PARAMS => (CL_KERNEL_ARG_ADDRESS_PRIVATE, "params", "params"),
            ARG_SHARED => (CL_KERNEL_ARG_ADDRESS_LOCAL, "uchar*", "shared"),
            ARG_HEAP => (CL_KERNEL_ARG_ADDRESS_GLOBAL, "uchar*", "heap"),
            _ => return Err(Status(CL_INVALID_ARG_INDEX)),
        };
        let answer = match name {
            CL_KERNEL_ARG_ADDRESS_QUALIFIER => Answer::uint(space),
            CL_KERNEL_ARG_ACCESS_QUALIFIER => Answer::uint(CL_KERNEL_ARG_ACCESS_NONE),
            CL_KERNEL_ARG_TYPE_QUALIFIER => Answer::ulong(CL_KERNEL_ARG_TYPE_NONE),
            CL_KERNEL_ARG_TYPE_NAME => Answer::text(type_name),
            CL_KERNEL_ARG_NAME => Answer::text(arg_name),
            _ => return Err(Status::INVALID_VALUE),
        };
        // SAFETY: the caller passes locations of the size that it names.
        unsafe { Place { size, value, true_size }.write(&answer) }
    })
}

pub(super) unsafe extern "C" fn get_work_group_info(
    kernel: cl_kernel,
    _device: cl_device_id,
    name: cl_kernel_work_group_info,
    size: usize,
    value: *mut c_void,
    true_size: *mut usize,
) -> cl_int {
    object::code(|| {
        // SAFETY: the caller passes a live handle of this platform.
        let kernel = unsafe { object::get::<Kernel>(kernel) }?;
        // SAFETY: the caller passes locations of the size that it names.
        unsafe { Place { size, value, true_size }.write(&kernel.work_group_answer(name)?) }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_become_grids_of_blocks() {
        assert_eq!(shape(2, None, [64, 8, 1], Some([16, 4, 1])), Ok(([4, 2, 1], [16, 4, 1])));
        assert_eq!(shape(1, Some([0; 3]), [1000, 1, 1], None), Ok(([4, 1, 1], [250, 1, 1])));
        let code = |status: Result<_, Status>| status.unwrap_err().0;
        assert_eq!(code(shape(1, None, [10, 1, 1], Some([4, 1, 1]))), CL_INVALID_WORK_GROUP_SIZE);
        assert_eq!(code(shape(1, None, [4, 1, 1], Some([0, 1, 1]))), CL_INVALID_WORK_GROUP_SIZE);
        assert_eq!(code(shape(1, Some([1, 0, 0]), [4, 1, 1], None)), CL_INVALID_GLOBAL_OFFSET);
        assert_eq!(code(shape(0, None, [1; 3], None)), CL_INVALID_WORK_DIMENSION);
        assert_eq!(
            code(shape(1, None, [1 << 40, 1, 1], Some([1; 3]))),
            CL_INVALID_GLOBAL_WORK_SIZE
        );
    }
}
