//! Buffers and pipes, and what all memory objects have in common.

use std::ffi::c_void;

use penstock_cl_sys::*;
use penstock_client::Memory;

use crate::core::context::Context;
use crate::core::memory::{self, Kind, Mem};
use crate::core::shadow::host_bytes;
use crate::core::svm;
use crate::edge::{Answer, ClError, ClResult, Handle, Object, Ref, cl_entry, functions, require};

functions! {
    slots {
        clCreateBuffer, clCreateBufferWithProperties, clCreateSubBuffer, clCreatePipe,
        clRetainMemObject, clReleaseMemObject, clGetMemObjectInfo, clGetPipeInfo,
        clSetMemObjectDestructorCallback,
    }
}

cl_entry! {
    fn clCreateBuffer(context: cl_context, flags: cl_mem_flags, size: usize, host_ptr: *mut c_void) -> ClResult<cl_mem> {
        let context = Context::borrow(context)?;
        // SAFETY: "The size of the buffer that host_ptr points to must be greater than or equal to
        // size bytes."
        unsafe { create_buffer(&context, Vec::new(), flags, size, host_ptr) }
    }
}
cl_entry! {
    fn clCreateBufferWithProperties(
        context: cl_context,
        properties: *const cl_mem_properties,
        flags: cl_mem_flags,
        size: usize,
        host_ptr: *mut c_void,
    ) -> ClResult<cl_mem> {
        let context = Context::borrow(context)?;
        // SAFETY: the program passes `NULL` or a list that ends with 0.
        let properties = unsafe { no_properties(properties) }?;
        // SAFETY: as for `clCreateBuffer`.
        unsafe { create_buffer(&context, properties, flags, size, host_ptr) }
    }
}

/// Reads a property list as `CL_MEM_PROPERTIES` returns it. OpenCL 3.0 defines no property for it.
///
/// # Safety
/// `list` is `NULL` or points to a list that ends with 0.
pub(super) unsafe fn no_properties(
    list: *const cl_mem_properties,
) -> ClResult<Vec<cl_mem_properties>> {
    if list.is_null() {
        return Ok(Vec::new());
    }
    // SAFETY: the list has at least its end.
    let first = unsafe { list.read_unaligned() };
    // "CL_INVALID_PROPERTY if a property name in properties is not a supported property name"
    require(first == 0, CL_INVALID_PROPERTY)?;
    Ok(vec![0])
}

/// Creates a buffer.
///
/// # Safety
/// `host_ptr` is `NULL` or points to `size` bytes, which stay valid as long as the buffer if the
/// flags require it.
unsafe fn create_buffer(
    context: &Ref<Context>,
    properties: Vec<cl_mem_properties>,
    flags: cl_mem_flags,
    size: usize,
    host_ptr: *mut c_void,
) -> ClResult<cl_mem> {
    let flags = memory::check_flags(flags)?;
    // "CL_INVALID_BUFFER_SIZE if size is 0 or if size is greater than CL_DEVICE_MAX_MEM_ALLOC_SIZE
    // for all devices in context."
    let largest =
        context.devices.iter().map(|device| device.number(CL_DEVICE_MAX_MEM_ALLOC_SIZE)).max();
    require(
        size > 0 && largest.is_none_or(|largest| size as u64 <= largest),
        CL_INVALID_BUFFER_SIZE,
    )?;
    memory::check_host_ptr(flags, !host_ptr.is_null())?;
    let uses = flags & CL_MEM_USE_HOST_PTR != 0;
    let mut svm = None;
    let pool = if host_ptr.is_null() {
        Memory::buffer(&context.pool, memory::pool_flags(flags), size as u64, None)?
    } else if uses && let Some(area) = context.svm.at(host_ptr.addr()) {
        // "CL_INVALID_BUFFER_SIZE ... if host_ptr is a pointer allocated by clSVMAlloc and size is
        // greater than the size with which clSVMAlloc was called."
        require(svm::find(context, host_ptr.addr(), size).is_some(), CL_INVALID_BUFFER_SIZE)?;
        // "... the buffer object ... uses the memory at host_ptr as its storage".
        let origin = (host_ptr.addr() - area.address()) as u64;
        svm = Some(area.clone());
        Memory::sub_buffer(&area.pool, memory::pool_flags(flags), origin, size as u64)?
    } else {
        // SAFETY: guaranteed by the caller.
        let bytes = unsafe { host_bytes(host_ptr, size) }?;
        Memory::buffer(&context.pool, memory::pool_flags(flags), size as u64, Some(bytes))?
    };
    // A program that was told that memory is unified would not notice that this buffer's memory is
    // not.
    let is_told = || context.devices.iter().any(|it| it.number(CL_DEVICE_HOST_UNIFIED_MEMORY) != 0);
    require(
        uses || pool.shared_pointer().is_some() || !is_told(),
        CL_MEM_OBJECT_ALLOCATION_FAILURE,
    )?;
    let mut mem = Mem::new(pool, context.clone(), Kind::Buffer, flags, size);
    mem.properties = properties;
    mem.host_ptr = if uses { host_ptr.expose_provenance() } else { 0 };
    mem.svm = svm;
    Ok(Handle::create(&**context, mem).raw())
}

cl_entry! {
    fn clCreateSubBuffer(
        buffer: cl_mem,
        flags: cl_mem_flags,
        create_type: cl_buffer_create_type,
        create_info: *const c_void,
    ) -> ClResult<cl_mem> {
        let buffer = Mem::borrow(buffer)?;
        // A heap has no sub-buffers: kernels reach all of it.
        require(!matches!(buffer.kind, Kind::Heap(_)), CL_INVALID_OPERATION)?;
        // "CL_INVALID_MEM_OBJECT if buffer is not a valid buffer object or is a sub-buffer object."
        require(matches!(buffer.kind, Kind::Buffer) && buffer.parent.is_none(), CL_INVALID_MEM_OBJECT)?;
        let flags = memory::inherit_flags(flags, buffer.flags)?;
        // "CL_INVALID_VALUE if value specified in buffer_create_type is not valid", "... if
        // buffer_create_info is NULL."
        require(create_type == CL_BUFFER_CREATE_TYPE_REGION && !create_info.is_null(), CL_INVALID_VALUE)?;
        // SAFETY: with this type "buffer_create_info is a pointer to a cl_buffer_region structure".
        let region = unsafe { create_info.cast::<cl_buffer_region>().read_unaligned() };
        // "CL_INVALID_BUFFER_SIZE if the size field of the cl_buffer_region structure is 0."
        require(region.size > 0, CL_INVALID_BUFFER_SIZE)?;
        // "CL_INVALID_VALUE if the region specified by the cl_buffer_region structure ... is out of
        // bounds in buffer."
        buffer.range(region.origin, region.size)?;
        // "CL_MISALIGNED_SUB_BUFFER_OFFSET if there are no devices in context associated with
        // buffer for which the origin field ... is aligned to the CL_DEVICE_MEM_BASE_ADDR_ALIGN
        // value" (in bits).
        let aligned = |align: u64| align < 8 || (region.origin as u64).is_multiple_of(align / 8);
        let fits = buffer.context.devices.iter().any(|device| aligned(device.number(CL_DEVICE_MEM_BASE_ADDR_ALIGN)));
        require(fits, CL_MISALIGNED_SUB_BUFFER_OFFSET)?;
        let size = region.size as u64;
        let pool = match &buffer.svm {
            // For the pool this buffer is a sub-buffer of the allocation; these cannot nest.
            Some(area) => {
                let origin = (buffer.host_ptr - area.address() + region.origin) as u64;
                Memory::sub_buffer(&area.pool, memory::pool_flags(flags), origin, size)?
            }
            None => Memory::sub_buffer(&buffer.pool, memory::pool_flags(flags), region.origin as u64, size)?,
        };
        let mut mem = Mem::new(pool, buffer.context.clone(), Kind::Buffer, flags, region.size);
        mem.origin = region.origin;
        mem.host_ptr = if buffer.host_ptr == 0 { 0 } else { buffer.host_ptr + region.origin };
        mem.parent = Some(buffer.clone());
        Ok(Handle::create(&*buffer, mem).raw())
    }
}
cl_entry! {
    fn clCreatePipe(
        context: cl_context,
        flags: cl_mem_flags,
        packet_size: cl_uint,
        packets_max: cl_uint,
        properties: *const cl_pipe_properties,
    ) -> ClResult<cl_mem> {
        let context = Context::borrow(context)?;
        // "CL_INVALID_OPERATION if no devices in context support pipes."
        require(context.devices.iter().any(|device| pipe_support(device)), CL_INVALID_OPERATION)?;
        // "CL_INVALID_VALUE if values specified in flags are not as defined above": "Only
        // CL_MEM_READ_WRITE and CL_MEM_HOST_NO_ACCESS can be specified when creating a pipe
        // object."
        require(flags & !(CL_MEM_READ_WRITE | CL_MEM_HOST_NO_ACCESS) == 0, CL_INVALID_VALUE)?;
        // "CL_INVALID_VALUE if properties is not NULL."
        require(properties.is_null(), CL_INVALID_VALUE)?;
        // "CL_INVALID_PIPE_SIZE if pipe_packet_size is 0 or the pipe_packet_size exceeds
        // CL_DEVICE_PIPE_MAX_PACKET_SIZE value ... for all devices in context or if
        // pipe_max_packets is 0."
        let largest = context.devices.iter().map(|device| device.number(CL_DEVICE_PIPE_MAX_PACKET_SIZE)).max();
        let fits = packet_size > 0 && packets_max > 0 && u64::from(packet_size) <= largest.unwrap_or(0);
        require(fits, CL_INVALID_PIPE_SIZE)?;
        let flags = flags | CL_MEM_READ_WRITE | CL_MEM_HOST_NO_ACCESS;
        let pool = Memory::pipe(&context.pool, memory::pool_flags(flags), packet_size, packets_max)?;
        let size = usize::try_from(pool.size()).map_err(|_| ClError(CL_INVALID_PIPE_SIZE))?;
        let mem = Mem::new(pool, context.clone(), Kind::Pipe { packet_size, packets_max }, flags, size);
        Ok(Handle::create(&*context, mem).raw())
    }
}

fn pipe_support(device: &crate::core::device::Device) -> bool {
    // Every device of OpenCL 2.x had pipes, but no such query.
    match device.answer(CL_DEVICE_PIPE_SUPPORT) {
        Some(_) => device.number(CL_DEVICE_PIPE_SUPPORT) != 0,
        None => device.number(CL_DEVICE_MAX_PIPE_ARGS) > 0,
    }
}

cl_entry! {
    fn clRetainMemObject(memory: cl_mem) -> ClResult<()> {
        Mem::retain(memory)
    }
    fn clReleaseMemObject(memory: cl_mem) -> ClResult<()> {
        Mem::release(memory)
    }
    fn clGetMemObjectInfo(
        memory: cl_mem,
        name: cl_mem_info,
        size: usize,
        value: *mut c_void,
        size_ret: *mut usize,
    ) -> ClResult<()> {
        let mem = Mem::borrow(memory)?;
        // SAFETY: the program passes `NULL` or places of sufficient size.
        let answer = unsafe { Answer::new(size, value, size_ret) };
        match name {
            CL_MEM_TYPE => answer.value(mem.object_type()),
            CL_MEM_FLAGS => answer.value(mem.flags),
            CL_MEM_SIZE => answer.value(mem.size),
            CL_MEM_HOST_PTR => answer.value(mem.host_ptr),
            CL_MEM_MAP_COUNT => answer.value(cl_uint::try_from(mem.maps().count()).unwrap_or(cl_uint::MAX)),
            CL_MEM_REFERENCE_COUNT => answer.value(mem.references()),
            CL_MEM_CONTEXT => answer.value(mem.context.raw()),
            CL_MEM_ASSOCIATED_MEMOBJECT => {
                answer.value(mem.parent.as_ref().map_or(std::ptr::null_mut(), |parent| parent.raw()))
            }
            CL_MEM_OFFSET => answer.value(mem.origin),
            CL_MEM_USES_SVM_POINTER => answer.bool(mem.uses_svm()),
            CL_MEM_PROPERTIES => answer.values(&mem.properties),
            // "CL_INVALID_VALUE if param_name is not valid"
            _ => Err(ClError(CL_INVALID_VALUE)),
        }
    }
    fn clGetPipeInfo(
        pipe: cl_mem,
        name: cl_pipe_info,
        size: usize,
        value: *mut c_void,
        size_ret: *mut usize,
    ) -> ClResult<()> {
        let pipe = Mem::borrow(pipe)?;
        // "CL_INVALID_MEM_OBJECT if pipe is a not a valid pipe object."
        let Kind::Pipe { packet_size, packets_max } = &pipe.kind else { return Err(ClError(CL_INVALID_MEM_OBJECT)) };
        // SAFETY: the program passes `NULL` or places of sufficient size.
        let answer = unsafe { Answer::new(size, value, size_ret) };
        match name {
            CL_PIPE_PACKET_SIZE => answer.value(*packet_size),
            CL_PIPE_MAX_PACKETS => answer.value(*packets_max),
            // "If no properties were given, 0 is returned as the size."
            CL_PIPE_PROPERTIES => answer.values::<cl_pipe_properties>(&[]),
            _ => Err(ClError(CL_INVALID_VALUE)),
        }
    }
    fn clSetMemObjectDestructorCallback(
        memory: cl_mem,
        callback: Option<unsafe extern "C" fn(cl_mem, *mut c_void)>,
        user_data: *mut c_void,
    ) -> ClResult<()> {
        let mem = Mem::borrow(memory)?;
        // "CL_INVALID_VALUE if pfn_notify is NULL."
        let callback = callback.ok_or(ClError(CL_INVALID_VALUE))?;
        let (raw, user_data) = (memory.expose_provenance(), user_data.expose_provenance());
        mem.on_destruction(Box::new(move || {
            let raw = std::ptr::with_exposed_provenance_mut(raw);
            // SAFETY: calls the program's own function with its own data; as with every driver, the
            // handle is no longer valid.
            unsafe { callback(raw, std::ptr::with_exposed_provenance_mut(user_data)) };
        }));
        Ok(())
    }
}
