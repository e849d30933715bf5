//! `cl_penstock_global_buffer`: buffers with one part per device, which kernels of all the devices
//! reach. `include/CL/cl_ext_penstock.h` describes the functions.

use std::ffi::{c_char, c_void};
use std::sync::Arc;
use std::time::Duration;

use penstock_cl_sys::*;
use penstock_client::{Error, HEADER, Heap, HeapOptions, Memory};
use penstock_wire::describe::HeapPath;

use super::launch::{kernel_for, space};
use super::waits::{hand_out, wait_list};
use crate::core::context::Context;
use crate::core::device::Device;
use crate::core::memory::{Kind, Mem};
use crate::core::queue::Queue;
use crate::edge::{
    Answer, ClError, ClResult, Handle, Object, Ref, array, cl_entry, functions, properties,
    require, text,
};

functions! {
    named {
        clCreateGlobalBufferPENSTOCK, clEnqueueCollectiveNDRangeKernelPENSTOCK,
        clGetGlobalBufferInfoPENSTOCK, clAbortGlobalBufferPENSTOCK, clResetGlobalBufferPENSTOCK,
    }
}

const CL_GLOBAL_BUFFER_TIMEOUT_MS_PENSTOCK: cl_properties = 0x5053_0010;
const CL_GLOBAL_BUFFER_PATH_PENSTOCK: cl_properties = 0x5053_0011;

const CL_GLOBAL_BUFFER_NUM_PES_PENSTOCK: cl_uint = 0x5053_0020;
const CL_GLOBAL_BUFFER_DEVICES_PENSTOCK: cl_uint = 0x5053_0021;
const CL_GLOBAL_BUFFER_PATHS_PENSTOCK: cl_uint = 0x5053_0022;
const CL_GLOBAL_BUFFER_ABORTED_PENSTOCK: cl_uint = 0x5053_0023;
const CL_GLOBAL_BUFFER_REASON_PENSTOCK: cl_uint = 0x5053_0024;
const CL_GLOBAL_BUFFER_REFUSAL_PENSTOCK: cl_uint = 0x5053_0025;
const CL_GLOBAL_BUFFER_KERNEL_HEADER_PENSTOCK: cl_uint = 0x5053_0026;

const CL_GLOBAL_BUFFER_PATH_AUTO_PENSTOCK: cl_properties = 0;
const CL_GLOBAL_BUFFER_PATH_PROXY_PENSTOCK: cl_properties = 3;

cl_entry! {
    fn clCreateGlobalBufferPENSTOCK(
        context: cl_context,
        count: cl_uint,
        devices: *const cl_device_id,
        bytes: usize,
        list: *const cl_properties,
    ) -> ClResult<cl_mem> {
        let context = Context::borrow(context)?;
        require(devices.is_null() == (count == 0), CL_INVALID_VALUE)?;
        let devices = if devices.is_null() {
            // `NULL` stands for all devices of the context, in its order.
            context.devices.clone()
        } else {
            // SAFETY: `devices` points to `count` devices.
            Device::borrow_all(unsafe { array(devices, count as usize, CL_INVALID_VALUE) }?)?
        };
        require(devices.iter().all(|device| context.has(device)), CL_INVALID_DEVICE)?;
        // SAFETY: the program passes `NULL` or a list that ends with 0.
        let options = unsafe { options(list) }?;
        let pool: Vec<_> = devices.iter().map(|device| device.pool.clone()).collect();
        let heap = Heap::create(&context.pool, &pool, bytes as u64, options);
        let heap = heap.map_err(|error| told(&context, error))?;
        let stand_in = Memory::of_heap(&context.pool, CL_MEM_READ_WRITE, bytes as u64);
        let mem = Mem::new(stand_in, context.clone(), Kind::Heap(heap), CL_MEM_READ_WRITE, bytes);
        Ok(Handle::create(&*context, mem).raw())
    }
}

/// Reads the options of a heap.
///
/// # Safety
/// `list` is `NULL` or points to a property list.
unsafe fn options(list: *const cl_properties) -> ClResult<HeapOptions> {
    let mut options = HeapOptions::default();
    // SAFETY: guaranteed by the caller.
    for (name, value) in unsafe { properties(list, CL_INVALID_PROPERTY) }? {
        match (name, value) {
            (CL_GLOBAL_BUFFER_TIMEOUT_MS_PENSTOCK, ms) => {
                options.timeout = Duration::from_millis(ms)
            }
            (CL_GLOBAL_BUFFER_PATH_PENSTOCK, CL_GLOBAL_BUFFER_PATH_AUTO_PENSTOCK) => {
                options.force_proxy = Some(false);
            }
            (CL_GLOBAL_BUFFER_PATH_PENSTOCK, CL_GLOBAL_BUFFER_PATH_PROXY_PENSTOCK) => {
                options.force_proxy = Some(true);
            }
            _ => return Err(ClError(CL_INVALID_PROPERTY)),
        }
    }
    Ok(options)
}

/// Passes the sentence of a refusal to the context's `pfn_notify`, and returns its code.
fn told(context: &Context, error: Error) -> ClError {
    if matches!(error, Error::Heap { .. }) {
        context.tell(&error.to_string());
    }
    error.into()
}

/// Returns the heap of a handle.
fn heap(mem: &Mem) -> ClResult<&Arc<Heap>> {
    match &mem.kind {
        Kind::Heap(heap) => Ok(heap),
        _ => Err(ClError(CL_INVALID_MEM_OBJECT)),
    }
}

cl_entry! {
    fn clEnqueueCollectiveNDRangeKernelPENSTOCK(
        global_buffer: cl_mem,
        queue_count: cl_uint,
        queues: *const cl_command_queue,
        kernel: cl_kernel,
        dims: cl_uint,
        offset: *const usize,
        global: *const usize,
        local: *const usize,
        wait_count: cl_uint,
        waits: *const cl_event,
        events: *mut cl_event,
    ) -> ClResult<()> {
        let mem = Mem::borrow(global_buffer)?;
        let heap = heap(&mem)?;
        require(queue_count > 0, CL_INVALID_VALUE)?;
        // SAFETY: `queues` points to `queue_count` queues.
        let queues = unsafe { array(queues, queue_count as usize, CL_INVALID_VALUE) }?;
        let queues = queues.iter().map(|raw| Queue::borrow_host(*raw)).collect::<ClResult<Vec<_>>>()?;
        let mut checked = None;
        for queue in &queues {
            require(Arc::ptr_eq(&queue.context, &mem.context), CL_INVALID_CONTEXT)?;
            let kernel = kernel_for(queue, kernel)?;
            // SAFETY: the program passes `NULL` or arrays of `dims` elements.
            let space = unsafe { space(queue, &kernel, dims, [offset, global, local]) }?;
            checked = Some((kernel, space));
        }
        let (kernel, space) = checked.ok_or(ClError(CL_INVALID_VALUE))?;
        // SAFETY: the program passes `NULL` or `wait_count` events.
        let waits = unsafe { wait_list(&mem.context, wait_count, waits) }?;
        let pool: Vec<_> = queues.iter().map(|queue| &queue.pool).collect();
        let launched = heap.launch(&pool, &kernel.pool, space, &waits).map_err(|error| told(&mem.context, error))?;
        if !events.is_null() {
            for (at, (queue, event)) in queues.iter().zip(launched).enumerate() {
                // SAFETY: `events` has room for `queue_count` events.
                let place = unsafe { events.add(at) };
                // SAFETY: as above.
                unsafe { hand_out(Some(event), CL_COMMAND_NDRANGE_KERNEL, queue, place) };
            }
        }
        Ok(())
    }
    fn clGetGlobalBufferInfoPENSTOCK(
        global_buffer: cl_mem,
        name: cl_uint,
        size: usize,
        value: *mut c_void,
        size_ret: *mut usize,
    ) -> ClResult<()> {
        // SAFETY: the program passes `NULL` or places of sufficient size.
        let answer = unsafe { Answer::new(size, value, size_ret) };
        if name == CL_GLOBAL_BUFFER_KERNEL_HEADER_PENSTOCK {
            // This query needs no global buffer.
            return answer.text(HEADER);
        }
        let mem = Mem::borrow(global_buffer)?;
        let heap = heap(&mem)?;
        match name {
            CL_GLOBAL_BUFFER_NUM_PES_PENSTOCK => {
                answer.value(cl_uint::try_from(heap.devices().len()).unwrap_or(cl_uint::MAX))
            }
            CL_GLOBAL_BUFFER_DEVICES_PENSTOCK => answer.values(&devices(&mem, heap)),
            CL_GLOBAL_BUFFER_PATHS_PENSTOCK => {
                answer.values(&heap.paths().iter().flatten().map(|path| code(*path)).collect::<Vec<_>>())
            }
            CL_GLOBAL_BUFFER_ABORTED_PENSTOCK => answer.bool(heap.aborted().is_some()),
            CL_GLOBAL_BUFFER_REASON_PENSTOCK => answer.text(&heap.aborted().unwrap_or_default()),
            CL_GLOBAL_BUFFER_REFUSAL_PENSTOCK => answer.text(heap.refusal().as_deref().unwrap_or_default()),
            _ => Err(ClError(CL_INVALID_VALUE)),
        }
    }
    fn clAbortGlobalBufferPENSTOCK(global_buffer: cl_mem, reason: *const c_char) -> ClResult<()> {
        let mem = Mem::borrow(global_buffer)?;
        let heap = heap(&mem)?;
        let reason = if reason.is_null() {
            "the program aborted the global buffer".into()
        } else {
            // SAFETY: `reason` is a string.
            unsafe { text(reason, CL_INVALID_VALUE) }?.to_string_lossy()
        };
        Ok(heap.abort(&reason)?)
    }
    fn clResetGlobalBufferPENSTOCK(global_buffer: cl_mem) -> ClResult<()> {
        let mem = Mem::borrow(global_buffer)?;
        heap(&mem)?.reset().map_err(|error| told(&mem.context, error))
    }
}

/// Returns the constant `CL_GLOBAL_BUFFER_PATH_*_PENSTOCK` of a path.
const fn code(path: HeapPath) -> cl_uint {
    match path {
        HeapPath::Own => 1,
        HeapPath::Shared => 2,
        HeapPath::Proxy | HeapPath::ProxyUcx => 3,
    }
}

/// Returns the handles of a heap's devices in the order of its PEs.
fn devices(mem: &Mem, heap: &Heap) -> Vec<cl_device_id> {
    let of = |device: &Arc<penstock_client::Device>| {
        let known = |known: &&Ref<Device>| Arc::ptr_eq(&known.pool, device);
        mem.context.devices.iter().find(known).map_or(std::ptr::null_mut(), |known| known.raw())
    };
    heap.devices().map(of).collect()
}
