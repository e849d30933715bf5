//! Kernels and their three arguments: parameters, dynamic shared memory, heap.

use std::sync::{Arc, Weak};

use penstock_cl_sys::*;
use penstock_cuda_sys::driver::{
    CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES, CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK,
    CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES,
};
use penstock_process::{Guard, Lock};
use penstock_wire::IndexSpace;
use penstock_wire::cuda::{
    ARG_HEAP, ARG_PARAMS, ARG_SHARED, Attributes, FunctionDescription, KERNEL_ATTRIBUTES_MAX,
    RESIDENT_THREADS_MAX,
};
use penstock_wire::describe::{ArgDescription, Info, KernelDescription, find};
use penstock_wire::limits;
use penstock_wire::status::Status;

use super::command::{Kept, Launch};
use super::memory::{Memory, memory};
use super::module::{Function, Module};
use crate::answer::{sizes, ulong};
use crate::driver::{Arg, Device, KernelDriver};

/// Most threads of a block if the caller names no local size; most kernels do well with it.
const BLOCK_THREADS: u64 = 256;
/// Number of arguments of every kernel.
const ARGS: usize = ARG_HEAP as usize + 1;

pub(super) struct Kernel {
    function: Arc<Function>,
    args: Lock<Args>,
}

#[derive(Clone, Default)]
struct Args {
    /// `None` before it is set.
    params: Option<Vec<u8>>,
    shared: u32,
    /// View of a symmetric heap. Weak: "clSetKernelArg does not update the reference count".
    heap: Option<Weak<Memory>>,
}

impl Kernel {
    pub(super) fn new(module: &Arc<Module>, name: &str) -> Result<Self, Status> {
        let found = Function::new(module, name);
        let function = Arc::new(found.map_err(|_| Status::INVALID_KERNEL_NAME)?);
        Ok(Self { function, args: Lock::default() })
    }

    fn args(&self) -> Guard<'_, Args> {
        self.args.lock()
    }

    /// Makes a launch with the current arguments.
    pub(super) fn launch(&self, space: &IndexSpace) -> Result<Launch, Status> {
        let (grid, block) = shape(space)?;
        let args = self.args();
        let missing = Status::INVALID_KERNEL_ARGS;
        // "CL_OUT_OF_RESOURCES if there is a failure to queue the execution instance of kernel ...
        // because of insufficient resources".
        if args.shared as usize > self.function.module().device().shared_bytes() {
            return Err(Status::OUT_OF_RESOURCES);
        }
        let params = match (&args.params, self.function.params_bytes()) {
            (Some(params), _) => params.clone(),
            (None, Some(0) | None) => Vec::new(),
            (None, Some(_)) => return Err(missing),
        };
        let heap: Kept = match &args.heap {
            Some(heap) => Some(heap.upgrade().ok_or(missing)?),
            None => None,
        };
        let (function, shared) = (self.function.clone(), args.shared);
        Ok(Launch { function, grid, block, shared, params, heap })
    }

    /// Returns the answers of `clGetKernelWorkGroupInfo`.
    fn work_group(&self) -> Info {
        let size = |attribute| {
            let value = self.function.attribute(attribute).ok()?;
            Some(u64::try_from(value).unwrap_or(0))
        };
        let threads = size(CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK)
            .map(|threads| sizes(&[usize::try_from(threads).unwrap_or(0)]));
        let shared = u64::from(self.args().shared);
        let local = size(CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES).map(|own| ulong(own + shared));
        let answers = [
            (CL_KERNEL_WORK_GROUP_SIZE, threads),
            (CL_KERNEL_COMPILE_WORK_GROUP_SIZE, Some(sizes(&[0; 3]))),
            (CL_KERNEL_LOCAL_MEM_SIZE, local),
            (
                CL_KERNEL_PREFERRED_WORK_GROUP_SIZE_MULTIPLE,
                Some(sizes(&[self.function.module().device().warp()])),
            ),
            (CL_KERNEL_PRIVATE_MEM_SIZE, size(CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES).map(ulong)),
        ];
        answers.into_iter().filter_map(|(name, bytes)| Some((name, bytes?))).collect()
    }

    /// Describes the kernel, for the devices with these indices in the node.
    pub(super) fn describe(&self, name: String, devices: &[(u32, Device)]) -> KernelDescription {
        let arg = |address, type_name: &str, name: &str| ArgDescription {
            address,
            access: CL_KERNEL_ARG_ACCESS_NONE,
            type_qualifier: CL_KERNEL_ARG_TYPE_NONE,
            type_name: type_name.to_owned(),
            name: name.to_owned(),
        };
        // In the order of ARG_PARAMS, ARG_SHARED and ARG_HEAP.
        let args: [ArgDescription; ARGS] = [
            arg(CL_KERNEL_ARG_ADDRESS_PRIVATE, "params", "params"),
            arg(CL_KERNEL_ARG_ADDRESS_LOCAL, "uchar*", "shared"),
            arg(CL_KERNEL_ARG_ADDRESS_GLOBAL, "uchar*", "heap"),
        ];
        let attribute = |number| self.function.attribute(number).ok();
        KernelDescription {
            name,
            attributes: String::new(),
            args: args.to_vec(),
            arg_info: true,
            work_group: devices.iter().map(|(index, _)| (*index, self.work_group())).collect(),
            function: Some(FunctionDescription {
                attributes: Attributes::ask(KERNEL_ATTRIBUTES_MAX, attribute),
                params: self.function.params().map(<[_]>::to_vec),
            }),
        }
    }
}

impl KernelDriver for Kernel {
    fn duplicate(&self) -> Result<Box<dyn KernelDriver>, Status> {
        let args = Lock::new(self.args().clone());
        Ok(Box::new(Self { function: self.function.clone(), args }))
    }

    fn set(&self, index: u32, arg: Arg<'_>) -> Result<(), Status> {
        let wrong_size = Status::INVALID_ARG_SIZE;
        let mut args = self.args();
        match (index, arg) {
            (ARG_PARAMS, Arg::Bytes(bytes)) => {
                // "CL_INVALID_ARG_SIZE if arg_size does not match the size of the data type". Bytes
                // behind the last parameter do no harm and are dropped.
                let known = self.function.params_bytes().unwrap_or(bytes.len());
                let given = bytes.get(..known).filter(|_| !bytes.is_empty()).ok_or(wrong_size)?;
                if given.len() as u64 > limits::ARGS_BYTES_MAX {
                    return Err(wrong_size);
                }
                let params = args.params.get_or_insert_default();
                params.clear();
                params.extend_from_slice(given);
            }
            (ARG_SHARED, Arg::Local(bytes)) => {
                args.shared = u32::try_from(bytes).map_err(|_| wrong_size)?;
            }
            (ARG_HEAP, Arg::Mem(view)) => {
                args.heap = view.map(memory).transpose()?.map(Arc::downgrade);
            }
            (ARG_PARAMS..=ARG_HEAP, _) => return Err(Status::INVALID_ARG_VALUE),
            _ => return Err(Status::INVALID_ARG_INDEX),
        }
        Ok(())
    }

    fn arg_count(&self) -> usize {
        ARGS
    }

    fn work_group_info(&self, _device: &Device, name: u32) -> Result<Vec<u8>, Status> {
        find(&self.work_group(), name).map(<[u8]>::to_vec).ok_or(Status::INVALID_VALUE)
    }

    fn resident_groups(&self, work_items: u32) -> Result<u64, Status> {
        if work_items >= RESIDENT_THREADS_MAX {
            return Err(Status::INVALID_VALUE);
        }
        let shared = self.args().shared;
        self.function.resident_blocks(work_items, shared)
    }
}

/// Returns grid and block of an index space: one block per work-group.
fn shape(space: &IndexSpace) -> Result<([u32; 3], [u32; 3]), Status> {
    if space.offset != [0; 3] {
        return Err(Status::INVALID_GLOBAL_OFFSET);
    }
    let global = space.global;
    let local = space.local.unwrap_or_else(|| [largest_divisor(global[0]), 1, 1]);
    let (mut grid, mut block) = ([1; 3], [1; 3]);
    for index in 0..3 {
        let (Some(&global), Some(&local)) = (global.get(index), local.get(index)) else { continue };
        if local == 0 || !global.is_multiple_of(local) {
            return Err(Status::INVALID_WORK_GROUP_SIZE);
        }
        let narrow =
            |size: u64, wrong| u32::try_from(size).ok().filter(|&size| size > 0).ok_or(wrong);
        if let (Some(grid), Some(block)) = (grid.get_mut(index), block.get_mut(index)) {
            *grid = narrow(global / local, Status::INVALID_GLOBAL_WORK_SIZE)?;
            *block = narrow(local, Status::INVALID_WORK_GROUP_SIZE)?;
        }
    }
    Ok((grid, block))
}

/// Returns the largest block size up to [`BLOCK_THREADS`] that divides the number of work-items.
fn largest_divisor(global: u64) -> u64 {
    (1..=BLOCK_THREADS).rev().find(|&size| global.is_multiple_of(size)).unwrap_or(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_become_grids_of_blocks() {
        let shape = |dims, offset, global, local| {
            shape(&IndexSpace { dims, offset, global, local }.checked().unwrap())
        };
        assert_eq!(shape(2, [0; 3], [64, 8, 1], Some([16, 4, 1])), Ok(([4, 2, 1], [16, 4, 1])));
        assert_eq!(shape(1, [0; 3], [1000, 1, 1], None), Ok(([4, 1, 1], [250, 1, 1])));
        let uneven = shape(1, [0; 3], [10, 1, 1], Some([4, 1, 1]));
        assert_eq!(uneven, Err(Status::INVALID_WORK_GROUP_SIZE));
        let moved = shape(1, [1, 0, 0], [4, 1, 1], None);
        assert_eq!(moved, Err(Status::INVALID_GLOBAL_OFFSET));
        let large = shape(1, [0; 3], [1 << 40, 1, 1], Some([1; 3]));
        assert_eq!(large, Err(Status::INVALID_GLOBAL_WORK_SIZE));
    }
}
