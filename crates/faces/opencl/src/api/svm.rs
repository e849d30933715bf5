//! Shared virtual memory.

use std::ffi::c_void;
use std::ptr::{null_mut, with_exposed_provenance_mut};
use std::sync::Arc;

use penstock_cl_sys::*;

use super::buffer::{check_pattern, check_read};
use super::map::check_map_flags;
use super::waits::{hand_out, wait_list, want, want_turn};
use crate::core::context::Context;
use crate::core::queue::Queue;
use crate::core::svm;
use crate::edge::{ClError, ClResult, Object, array, cl_entry, functions, require};

functions! {
    slots {
        clSVMAlloc, clSVMFree, clEnqueueSVMFree, clEnqueueSVMMemcpy, clEnqueueSVMMemFill,
        clEnqueueSVMMap, clEnqueueSVMUnmap, clEnqueueSVMMigrateMem,
    }
}

cl_entry! {
    fn clSVMAlloc(context: cl_context, flags: cl_svm_mem_flags, size: usize, alignment: cl_uint) -> *mut c_void, or null_mut(); {
        alloc(context, flags, size, alignment).map_or(null_mut(), with_exposed_provenance_mut)
    }
}

fn alloc(
    context: cl_context,
    flags: cl_svm_mem_flags,
    size: usize,
    alignment: cl_uint,
) -> Option<usize> {
    const KERNEL: cl_svm_mem_flags = CL_MEM_READ_WRITE | CL_MEM_WRITE_ONLY | CL_MEM_READ_ONLY;
    // "clSVMAlloc will fail if: context is not a valid context, or no devices in context support
    // SVM."
    let context = Context::borrow(context).ok()?;
    // "flags does not contain CL_MEM_SVM_FINE_GRAIN_BUFFER but does contain CL_MEM_SVM_ATOMICS", or
    // "contains CL_MEM_SVM_FINE_GRAIN_BUFFER and ... at least one device in context does not
    // support these"; devices of a pool never do.
    if flags & !KERNEL != 0 || (flags & KERNEL).count_ones() > 1 {
        return None;
    }
    // "size is 0 or > CL_DEVICE_MAX_MEM_ALLOC_SIZE value for any device in context."
    let most =
        context.devices.iter().map(|device| device.number(CL_DEVICE_MAX_MEM_ALLOC_SIZE)).min()?;
    if size == 0 || size as u64 > most {
        return None;
    }
    // "alignment is not a power of two or the OpenCL implementation cannot support the specified
    // alignment for at least one device in context." 0 stands for "the largest data type supported
    // by the OpenCL implementation", a long16.
    let alignment = if alignment == 0 { 128 } else { alignment };
    if !alignment.is_power_of_two() || alignment > 4096 {
        return None;
    }
    svm::allocate(&context, size, alignment)
}

cl_entry! {
    fn clSVMFree(context: cl_context, pointer: *mut c_void) -> (), or (); {
        // "If svm_pointer is NULL" or no allocation of this context, nothing happens.
        if let Ok(context) = Context::borrow(context) {
            drop(context.svm.remove(pointer.addr()));
        }
    }
}

type FreeCallback = unsafe extern "C" fn(cl_command_queue, cl_uint, *mut *mut c_void, *mut c_void);

cl_entry! {
    fn clEnqueueSVMFree(
        queue: cl_command_queue,
        count: cl_uint,
        pointers: *mut *mut c_void,
        callback: Option<FreeCallback>,
        user_data: *mut c_void,
        wait_count: cl_uint,
        waits: *const cl_event,
        event: *mut cl_event,
    ) -> ClResult<()> {
        let raw = queue.expose_provenance();
        let queue = Queue::borrow_host(queue)?;
        check_svm(&queue)?;
        // "CL_INVALID_VALUE if num_svm_pointers is 0 and svm_pointers is non-NULL, or if
        // svm_pointers is NULL and num_svm_pointers is not 0."
        require((count == 0) == pointers.is_null(), CL_INVALID_VALUE)?;
        // SAFETY: "svm_pointers is a list of pointers" with `count` elements.
        let pointers = unsafe { array(pointers, count as usize, CL_INVALID_VALUE) }?;
        let pointers: Vec<usize> = pointers.iter().map(|pointer| pointer.expose_provenance()).collect();
        // SAFETY: the program passes `NULL` or `wait_count` events.
        let waits = unsafe { wait_list(&queue.context, wait_count, waits) }?;
        let (context, user_data) = (queue.context.clone(), user_data.expose_provenance());
        let enqueued = svm::after(&queue, (None, None), &waits, move || match callback {
            // "If pfn_free_func is NULL, all SVM pointers specified in svm_pointers are freed".
            None => pointers.iter().for_each(|pointer| drop(context.svm.remove(*pointer))),
            Some(callback) => {
                let mut pointers: Vec<*mut c_void> =
                    pointers.iter().map(|pointer| with_exposed_provenance_mut(*pointer)).collect();
                let (queue, user_data) = (with_exposed_provenance_mut(raw), with_exposed_provenance_mut(user_data));
                // SAFETY: calls the program's own function with its own data, and our own list.
                unsafe { callback(queue, count, pointers.as_mut_ptr(), user_data) };
            }
        })?;
        // SAFETY: the program passes `NULL` or a place for an event.
        unsafe { hand_out(enqueued, CL_COMMAND_SVM_FREE, &queue, event) };
        Ok(())
    }
    fn clEnqueueSVMMemcpy(
        queue: cl_command_queue,
        blocking: cl_bool,
        target: *mut c_void,
        source: *const c_void,
        size: usize,
        wait_count: cl_uint,
        waits: *const cl_event,
        event: *mut cl_event,
    ) -> ClResult<()> {
        let queue = Queue::borrow_host(queue)?;
        check_svm(&queue)?;
        // "CL_INVALID_VALUE if dst_ptr or src_ptr is NULL."
        require(!target.is_null() && !source.is_null(), CL_INVALID_VALUE)?;
        require(isize::try_from(size).is_ok(), CL_INVALID_VALUE)?;
        // "CL_MEM_COPY_OVERLAP if the values specified for dst_ptr, src_ptr and size result in an
        // overlapping copy."
        require(target.addr().abs_diff(source.addr()) >= size, CL_MEM_COPY_OVERLAP)?;
        // SAFETY: the program passes `NULL` or `wait_count` events.
        let waits = unsafe { wait_list(&queue.context, wait_count, waits) }?;
        let enqueued = if size == 0 {
            queue.pool.pass(&waits, want_turn(blocking, event))?
        } else {
            let wanted = if blocking == CL_FALSE { want(event) } else { penstock_client::Want::Event };
            // SAFETY: "dst_ptr ... src_ptr": memory of `size` bytes each, shared or the program's
            // own.
            unsafe { svm::copy(&queue, target.cast(), source.cast(), size, &waits, wanted) }?
        };
        // "the copy ... is blocking: clEnqueueSVMMemcpy does not return until the buffer data has
        // been copied into memory pointed to by dst_ptr."
        check_read(&queue, blocking, enqueued.as_ref())?;
        // SAFETY: the program passes `NULL` or a place for an event.
        unsafe { hand_out(enqueued, CL_COMMAND_SVM_MEMCPY, &queue, event) };
        Ok(())
    }
    fn clEnqueueSVMMemFill(
        queue: cl_command_queue,
        pointer: *mut c_void,
        pattern: *const c_void,
        pattern_size: usize,
        size: usize,
        wait_count: cl_uint,
        waits: *const cl_event,
        event: *mut cl_event,
    ) -> ClResult<()> {
        let queue = Queue::borrow_host(queue)?;
        check_svm(&queue)?;
        // "CL_INVALID_VALUE if svm_ptr is NULL.", "if svm_ptr is not aligned to pattern_size
        // bytes."
        require(!pointer.is_null(), CL_INVALID_VALUE)?;
        check_pattern(pattern_size, pointer.addr(), size)?;
        // SAFETY: "pattern is a pointer to the data pattern of size pattern_size in bytes."
        let pattern = unsafe { array(pattern.cast::<u8>(), pattern_size, CL_INVALID_VALUE) }?;
        // SAFETY: the program passes `NULL` or `wait_count` events.
        let waits = unsafe { wait_list(&queue.context, wait_count, waits) }?;
        let enqueued = svm::fill(&queue, (pointer.addr(), size), pattern, &waits, want(event))?;
        // SAFETY: the program passes `NULL` or a place for an event.
        unsafe { hand_out(enqueued, CL_COMMAND_SVM_MEMFILL, &queue, event) };
        Ok(())
    }
    fn clEnqueueSVMMap(
        queue: cl_command_queue,
        blocking: cl_bool,
        flags: cl_map_flags,
        pointer: *mut c_void,
        size: usize,
        wait_count: cl_uint,
        waits: *const cl_event,
        event: *mut cl_event,
    ) -> ClResult<()> {
        let queue = Queue::borrow_host(queue)?;
        check_svm(&queue)?;
        // "CL_INVALID_VALUE if svm_ptr is NULL.", "if size is 0 or if values specified in map_flags
        // are not valid."
        require(!pointer.is_null() && size > 0, CL_INVALID_VALUE)?;
        check_map_flags(flags)?;
        let area = queue.context.svm.at(pointer.addr()).ok_or(ClError(CL_INVALID_VALUE))?;
        // SAFETY: the program passes `NULL` or `wait_count` events.
        let waits = unsafe { wait_list(&queue.context, wait_count, waits) }?;
        let mapped = svm::map(&queue, &area, (pointer.addr(), size), flags, &waits)?;
        let checked = check_read(&queue, blocking, Some(&mapped));
        checked.inspect_err(|_| svm::forget(&area, pointer.addr()))?;
        // SAFETY: the program passes `NULL` or a place for an event.
        unsafe { hand_out(Some(mapped), CL_COMMAND_SVM_MAP, &queue, event) };
        Ok(())
    }
    fn clEnqueueSVMUnmap(
        queue: cl_command_queue,
        pointer: *mut c_void,
        wait_count: cl_uint,
        waits: *const cl_event,
        event: *mut cl_event,
    ) -> ClResult<()> {
        let queue = Queue::borrow_host(queue)?;
        check_svm(&queue)?;
        // "CL_INVALID_VALUE if svm_ptr is NULL."
        require(!pointer.is_null(), CL_INVALID_VALUE)?;
        let area = queue.context.svm.at(pointer.addr()).ok_or(ClError(CL_INVALID_VALUE))?;
        // SAFETY: the program passes `NULL` or `wait_count` events.
        let waits = unsafe { wait_list(&queue.context, wait_count, waits) }?;
        let enqueued = svm::unmap(&queue, &area, pointer.addr(), &waits, want(event))?;
        // SAFETY: the program passes `NULL` or a place for an event.
        unsafe { hand_out(enqueued, CL_COMMAND_SVM_UNMAP, &queue, event) };
        Ok(())
    }
    fn clEnqueueSVMMigrateMem(
        queue: cl_command_queue,
        count: cl_uint,
        pointers: *mut *const c_void,
        sizes: *const usize,
        flags: cl_mem_migration_flags,
        wait_count: cl_uint,
        waits: *const cl_event,
        event: *mut cl_event,
    ) -> ClResult<()> {
        let queue = Queue::borrow_host(queue)?;
        check_svm(&queue)?;
        // "CL_INVALID_VALUE if num_svm_pointers is zero or svm_pointers is NULL."
        require(count > 0 && !pointers.is_null(), CL_INVALID_VALUE)?;
        require(flags & !(CL_MIGRATE_MEM_OBJECT_HOST | CL_MIGRATE_MEM_OBJECT_CONTENT_UNDEFINED) == 0, CL_INVALID_VALUE)?;
        // SAFETY: "svm_pointers is a pointer to an array of pointers" with `count` elements.
        let pointers = unsafe { array(pointers, count as usize, CL_INVALID_VALUE) }?;
        // "If sizes is NULL then every allocation containing the pointers need to be migrated.
        // Also, if sizes[i] is zero, then the entire allocation containing svm_pointer[i] is
        // migrated."
        // SAFETY: the program passes `NULL` or `count` sizes.
        let sizes = if sizes.is_null() { &[][..] } else { unsafe { array(sizes, count as usize, CL_INVALID_VALUE) }? };
        let mut objects = Vec::with_capacity(pointers.len());
        for (index, pointer) in pointers.iter().enumerate() {
            // "CL_INVALID_VALUE if sizes[i] is non-zero range [svm_pointers[i],
            // svm_pointers[i]+sizes[i]) is not contained within an existing clSVMAlloc allocation."
            let size = sizes.get(index).copied().unwrap_or(0);
            let area = svm::find(&queue.context, pointer.addr(), size).ok_or(ClError(CL_INVALID_VALUE))?;
            if !objects.iter().any(|known| Arc::ptr_eq(known, &area.pool)) {
                objects.push(area.pool.clone());
            }
        }
        // SAFETY: the program passes `NULL` or `wait_count` events.
        let waits = unsafe { wait_list(&queue.context, wait_count, waits) }?;
        let enqueued = queue.pool.migrate(&objects, flags, &waits, want(event))?;
        // SAFETY: the program passes `NULL` or a place for an event.
        unsafe { hand_out(enqueued, CL_COMMAND_SVM_MIGRATE_MEM, &queue, event) };
        Ok(())
    }
}

fn check_svm(queue: &Queue) -> ClResult {
    // "CL_INVALID_OPERATION if the device associated with command queue does not support SVM."
    require(queue.device.number(CL_DEVICE_SVM_CAPABILITIES) != 0, CL_INVALID_OPERATION)
}
