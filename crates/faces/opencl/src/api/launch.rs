//! Launching kernels.

use penstock_cl_sys::*;
use penstock_client::IndexSpace;

use super::waits::{hand_out, wait_list, want};
use crate::core::kernel::Kernel;
use crate::core::queue::Queue;
use crate::edge::{ClResult, Object, Ref, array, cl_entry, functions, require, store};

functions! {
    slots { clEnqueueNDRangeKernel, clEnqueueTask }
    named { clGetKernelSuggestedLocalWorkSizeKHR }
}

cl_entry! {
    fn clEnqueueNDRangeKernel(
        queue: cl_command_queue,
        kernel: cl_kernel,
        dims: cl_uint,
        offset: *const usize,
        global: *const usize,
        local: *const usize,
        wait_count: cl_uint,
        waits: *const cl_event,
        event: *mut cl_event,
    ) -> ClResult<()> {
        let queue = Queue::borrow_host(queue)?;
        let kernel = kernel_for(&queue, kernel)?;
        // SAFETY: the program passes `NULL` or arrays of `dims` elements.
        let space = unsafe { space(&queue, &kernel, dims, [offset, global, local]) }?;
        // SAFETY: the program passes `NULL` or `wait_count` events.
        let waits = unsafe { wait_list(&queue.context, wait_count, waits) }?;
        let enqueued = if space.is_empty() {
            queue.pool.pass(&waits, want(event))?
        } else {
            kernel.check_local_memory(&queue.device)?;
            queue.pool.remember(&kernel.pool);
            queue.pool.launch(&kernel.pool, space, &waits, want(event))?
        };
        // SAFETY: the program passes `NULL` or a place for an event.
        unsafe { hand_out(enqueued, CL_COMMAND_NDRANGE_KERNEL, &queue, event) };
        Ok(())
    }
    fn clEnqueueTask(
        queue: cl_command_queue,
        kernel: cl_kernel,
        wait_count: cl_uint,
        waits: *const cl_event,
        event: *mut cl_event,
    ) -> ClResult<()> {
        let queue = Queue::borrow_host(queue)?;
        let kernel = kernel_for(&queue, kernel)?;
        // "... equivalent to calling clEnqueueNDRangeKernel with work_dim set to 1,
        // global_work_offset set to NULL, global_work_size[0] set to 1, and local_work_size[0] set
        // to 1."
        let space = kernel.limits(&queue.device)?.space(1, None, Some(&[1]), Some(&[1]))?;
        kernel.check_local_memory(&queue.device)?;
        // SAFETY: the program passes `NULL` or `wait_count` events.
        let waits = unsafe { wait_list(&queue.context, wait_count, waits) }?;
        queue.pool.remember(&kernel.pool);
        let enqueued = queue.pool.launch(&kernel.pool, space, &waits, want(event))?;
        // SAFETY: the program passes `NULL` or a place for an event.
        unsafe { hand_out(enqueued, CL_COMMAND_TASK, &queue, event) };
        Ok(())
    }
    fn clGetKernelSuggestedLocalWorkSizeKHR(
        queue: cl_command_queue,
        kernel: cl_kernel,
        dims: cl_uint,
        offset: *const usize,
        global: *const usize,
        suggested: *mut usize,
    ) -> ClResult<()> {
        let queue = Queue::borrow_host(queue)?;
        let kernel = kernel_for(&queue, kernel)?;
        // SAFETY: the program passes `NULL` or arrays of `dims` elements.
        let space = unsafe { space(&queue, &kernel, dims, [offset, global, std::ptr::null()]) }?;
        // "CL_INVALID_GLOBAL_WORK_SIZE if global_work_size is NULL or if any of the values
        // specified in global_work_size are 0."
        require(!space.is_empty(), CL_INVALID_GLOBAL_WORK_SIZE)?;
        // "CL_INVALID_VALUE if suggested_local_work_size is NULL."
        require(!suggested.is_null(), CL_INVALID_VALUE)?;
        let local = match space.local {
            Some(required) => required,
            None => kernel.pool.suggested_local_size(&queue.pool, space)?,
        };
        for (axis, size) in local.iter().take(space.dims as usize).enumerate() {
            // SAFETY: there is room for one number per dimension.
            unsafe { store(suggested.add(axis), usize::try_from(*size).unwrap_or(usize::MAX)) };
        }
        Ok(())
    }
}

/// Returns the kernel of a command in `queue`, ready to run.
pub(super) fn kernel_for(queue: &Queue, raw: cl_kernel) -> ClResult<Ref<Kernel>> {
    let kernel = Kernel::borrow(raw)?;
    // "CL_INVALID_CONTEXT if context associated with command_queue and kernel are not the same"
    require(std::sync::Arc::ptr_eq(&kernel.program.context, &queue.context), CL_INVALID_CONTEXT)?;
    // "CL_INVALID_KERNEL_ARGS if all the kernel arguments have not been set for the kernel."
    require(kernel.pool.is_ready(), CL_INVALID_KERNEL_ARGS)?;
    kernel.check_alignment(&queue.device)?;
    Ok(kernel)
}

/// Reads and checks the index space of a launch.
///
/// # Safety
/// Each of `arrays` is `NULL` or points to `dims` numbers.
pub(super) unsafe fn space(
    queue: &Queue,
    kernel: &Kernel,
    dims: cl_uint,
    arrays: [*const usize; 3],
) -> ClResult<IndexSpace> {
    let limits = kernel.limits(&queue.device)?;
    // The arrays are not read if their length is invalid.
    require(dims >= 1 && dims <= limits.dims, CL_INVALID_WORK_DIMENSION)?;
    let read = |pointer: *const usize| {
        // SAFETY: guaranteed by the caller.
        (!pointer.is_null())
            .then(|| unsafe { array(pointer, dims as usize, CL_INVALID_VALUE) })
            .transpose()
    };
    let [offset, global, local] = arrays;
    limits.space(dims, read(offset)?, read(global)?, read(local)?)
}
