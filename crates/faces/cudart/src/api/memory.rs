//! Device memory, host memory, and queries about pointers.

use std::ffi::{c_int, c_uint, c_void};

use penstock_cuda_sys::driver::{
    CU_MEMORYTYPE_DEVICE, CU_MEMORYTYPE_HOST, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL,
    CU_POINTER_ATTRIBUTE_DEVICE_POINTER, CU_POINTER_ATTRIBUTE_HOST_POINTER,
    CU_POINTER_ATTRIBUTE_IS_MANAGED, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, CUdeviceptr,
};
use penstock_cuda_sys::runtime::{
    Extent, INVALID_DEVICE, POINTER_RESERVED_13, PitchedPtr, PointerAttributes,
    PointerAttributes13, memory_type,
};
use penstock_cuda_sys::runtime_codes as code;

use crate::core::context::{Current, current};
use crate::core::copy::device_pointer;
use crate::edge::{RtError, RtResult, entry, major, on_stream};

/// Size of a kernel's widest element, for which rows are aligned.
const PITCH_ELEMENT_BYTES: c_uint = 16;

/// Converts a device address to a pointer of the program.
fn pointer(address: CUdeviceptr) -> *mut c_void {
    // The pointer is never dereferenced here. All supported systems have 64-bit addresses.
    std::ptr::without_provenance_mut(usize::try_from(address).unwrap_or(0))
}

fn allocate(current: Current, bytes: usize) -> RtResult<*mut c_void> {
    if bytes == 0 {
        return Ok(std::ptr::null_mut());
    }
    let mut address = 0;
    // SAFETY: the pointer is valid for a write of the answer.
    unsafe { current.driver.cuMemAlloc_v2(&raw mut address, bytes) }?;
    Ok(pointer(address))
}

/// Allocates rows. Returns the memory and the number of bytes from one row to the next.
fn allocate_rows(current: Current, width: usize, height: usize) -> RtResult<(*mut c_void, usize)> {
    if width == 0 || height == 0 {
        return Ok((std::ptr::null_mut(), 0));
    }
    let (mut address, mut pitch) = (0, 0);
    // SAFETY: the pointers are valid for writes of the answers.
    unsafe {
        let element = PITCH_ELEMENT_BYTES;
        current.driver.cuMemAllocPitch_v2(&raw mut address, &raw mut pitch, width, height, element)
    }?;
    Ok((pointer(address), pitch))
}

entry! {
    /// Allocates device memory. Zero bytes yield a null pointer.
    fn cudaMalloc(memory: *mut *mut c_void, bytes: usize) {
        let current = current()?;
        if memory.is_null() {
            return Err(RtError::INVALID_VALUE);
        }
        memory.write(allocate(current, bytes)?);
        Ok(())
    }
    /// Allocates rows of memory with a pitch that suits the device.
    fn cudaMallocPitch(memory: *mut *mut c_void, pitch: *mut usize, width: usize, height: usize) {
        let current = current()?;
        if memory.is_null() || pitch.is_null() {
            return Err(RtError::INVALID_VALUE);
        }
        let (rows, bytes) = allocate_rows(current, width, height)?;
        memory.write(rows);
        pitch.write(bytes);
        Ok(())
    }
    /// Allocates slices of rows.
    fn cudaMalloc3D(memory: *mut PitchedPtr, extent: Extent) {
        let current = current()?;
        if memory.is_null() {
            return Err(RtError::INVALID_VALUE);
        }
        let height = extent.height.checked_mul(extent.depth).ok_or(RtError(code::MEMORY_ALLOCATION))?;
        let (ptr, pitch) = allocate_rows(current, extent.width, height)?;
        memory.write(PitchedPtr { ptr, pitch, xsize: extent.width, ysize: extent.height });
        Ok(())
    }
    /// Frees memory. A null pointer is ignored.
    fn cudaFree(memory: *mut c_void) {
        let current = current()?;
        if memory.is_null() {
            return Ok(());
        }
        current.driver.cuMemFree_v2(device_pointer(memory))
    }
    /// Allocates memory that host and device share, if the driver has it.
    fn cudaMallocManaged(memory: *mut *mut c_void, bytes: usize, flags: c_uint) {
        let current = current()?;
        if memory.is_null() || bytes == 0 {
            return Err(RtError::INVALID_VALUE);
        }
        let mut address = 0;
        current.driver.cuMemAllocManaged(&raw mut address, bytes, flags)?;
        memory.write(pointer(address));
        Ok(())
    }
    /// Allocates pinned host memory.
    fn cudaMallocHost(memory: *mut *mut c_void, bytes: usize) {
        host_allocate(memory, bytes, 0)
    }
    /// Allocates pinned host memory.
    fn cudaHostAlloc(memory: *mut *mut c_void, bytes: usize, flags: c_uint) {
        host_allocate(memory, bytes, flags)
    }
    fn cudaFreeHost(memory: *mut c_void) {
        let current = current()?;
        if memory.is_null() {
            return Ok(());
        }
        current.driver.cuMemFreeHost(memory)
    }
    /// Pins memory of the program.
    fn cudaHostRegister(memory: *mut c_void, bytes: usize, flags: c_uint) {
        current()?.driver.cuMemHostRegister_v2(memory, bytes, flags)
    }
    /// Ends what `cudaHostRegister` did.
    fn cudaHostUnregister(memory: *mut c_void) {
        current()?.driver.cuMemHostUnregister(memory)
    }
    /// Returns the device address of pinned host memory.
    fn cudaHostGetDevicePointer(device: *mut *mut c_void, memory: *mut c_void, flags: c_uint) {
        let current = current()?;
        if device.is_null() {
            return Err(RtError::INVALID_VALUE);
        }
        let mut address = 0;
        current.driver.cuMemHostGetDevicePointer_v2(&raw mut address, memory, flags)?;
        device.write(pointer(address));
        Ok(())
    }
    /// Returns the flags with which host memory was allocated.
    fn cudaHostGetFlags(flags: *mut c_uint, memory: *mut c_void) {
        let current = current()?;
        if flags.is_null() {
            return Err(RtError::INVALID_VALUE);
        }
        current.driver.cuMemHostGetFlags(flags, memory)
    }
    /// Returns the kind, the device and the addresses of a pointer.
    fn cudaPointerGetAttributes(attributes: *mut c_void, memory: *const c_void) {
        let current = current()?;
        if attributes.is_null() {
            return Err(RtError::INVALID_VALUE);
        }
        let common = describe(current, memory);
        if major() > 12 {
            let whole = PointerAttributes13 { common, reserved: [0; POINTER_RESERVED_13] };
            attributes.cast::<PointerAttributes13>().write_unaligned(whole);
        } else {
            attributes.cast::<PointerAttributes>().write_unaligned(common);
        }
        Ok(())
    }
}

/// # Safety
/// `memory` is null or valid for a write.
unsafe fn host_allocate(memory: *mut *mut c_void, bytes: usize, flags: c_uint) -> RtResult {
    let current = current()?;
    if memory.is_null() {
        return Err(RtError::INVALID_VALUE);
    }
    let mut made = std::ptr::null_mut();
    if bytes > 0 {
        // SAFETY: the pointer is valid for a write of the answer.
        unsafe { current.driver.cuMemHostAlloc(&raw mut made, bytes, flags) }?;
    }
    // SAFETY: the caller upholds the contract of this function.
    unsafe { memory.write(made) };
    Ok(())
}

/// Describes a pointer. Memory that the driver does not know is unregistered host memory.
fn describe(current: Current, memory: *const c_void) -> PointerAttributes {
    let attribute = |attribute, value: *mut c_void| {
        // SAFETY: each `value` below is valid for a write of its attribute's size.
        unsafe { current.driver.cuPointerGetAttribute(value, attribute, device_pointer(memory)) }
    };
    let unknown = PointerAttributes {
        kind: memory_type::UNREGISTERED,
        device: INVALID_DEVICE,
        device_pointer: std::ptr::null_mut(),
        host_pointer: memory.cast_mut(),
    };
    let (mut kind, mut managed, mut device) = (0_u32, 0_u32, 0_i32);
    if attribute(CU_POINTER_ATTRIBUTE_MEMORY_TYPE, (&raw mut kind).cast()).is_err() {
        return unknown;
    }
    // Some drivers write only one byte of the answer. The other bytes stay zero.
    let is_managed = attribute(CU_POINTER_ATTRIBUTE_IS_MANAGED, (&raw mut managed).cast()).is_ok()
        && managed != 0;
    if attribute(CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, (&raw mut device).cast()).is_err() {
        device = 0;
    }
    let mut for_kernels: CUdeviceptr = 0;
    _ = attribute(CU_POINTER_ATTRIBUTE_DEVICE_POINTER, (&raw mut for_kernels).cast());
    let mut for_program: *mut c_void = std::ptr::null_mut();
    if attribute(CU_POINTER_ATTRIBUTE_HOST_POINTER, (&raw mut for_program).cast()).is_err() {
        for_program = std::ptr::null_mut();
    }
    let kind: c_int = match kind {
        _ if is_managed => memory_type::MANAGED,
        CU_MEMORYTYPE_HOST => memory_type::HOST,
        CU_MEMORYTYPE_DEVICE => memory_type::DEVICE,
        _ => return unknown,
    };
    PointerAttributes {
        kind,
        device,
        device_pointer: pointer(for_kernels),
        host_pointer: for_program,
    }
}

on_stream! {
    /// Allocates memory in the order of a stream, or at once if the driver cannot do that.
    fn cudaMallocAsync, cudaMallocAsync_ptsz(memory: *mut *mut c_void, bytes: usize; stream) {
        let current = current()?;
        if memory.is_null() {
            return Err(RtError::INVALID_VALUE);
        }
        if bytes == 0 || !current.driver.has_stream_order() {
            memory.write(allocate(current, bytes)?);
            return Ok(());
        }
        let mut address = 0;
        let made = match current.driver.cuMemAllocAsync(&raw mut address, bytes, stream) {
            Err(RtError(code::NOT_SUPPORTED)) => allocate(current, bytes)?,
            other => other.map(|()| pointer(address))?,
        };
        memory.write(made);
        Ok(())
    }
    /// Frees memory in the order of a stream, or waits for the stream if the driver cannot do that.
    fn cudaFreeAsync, cudaFreeAsync_ptsz(memory: *mut c_void; stream) {
        let current = current()?;
        if memory.is_null() {
            return Ok(());
        }
        let queued = match current.driver.has_stream_order() {
            true => current.driver.cuMemFreeAsync(device_pointer(memory), stream),
            false => Err(RtError(code::NOT_SUPPORTED)),
        };
        match queued {
            Err(RtError(code::NOT_SUPPORTED)) => {
                current.driver.cuStreamSynchronize(stream)?;
                current.driver.cuMemFree_v2(device_pointer(memory))
            }
            other => other,
        }
    }
}
