//! Tests what drivers do not report: whether a device works on this process's own memory, and
//! whether kernels have argument descriptions without an option for that.

use std::ffi::c_void;
use std::sync::{Mutex, PoisonError};

use penstock_cl_sys::{
    CL_DEVICE_HOST_UNIFIED_MEMORY, CL_DEVICE_TYPE, CL_DEVICE_TYPE_CPU, CL_MEM_READ_WRITE,
    CL_MEM_USE_HOST_PTR, CL_TRUE,
};
use penstock_wire::status::Status;

use super::api::{self, function};
use super::context::Context;
use super::device::Device;
use super::home::Mapping;
use super::memory::OwnedMem;
use super::program::Program;
use super::queue::Queue;

/// Size of the tested buffer: one page, the smallest home memory.
const BYTES: usize = 4096;

/// Tests whether a device shares host memory. `CL_MEM_USE_HOST_PTR` does not tell: a driver may
/// keep a copy that it updates when the buffer is mapped. So both directions are tested without a
/// map.
pub(super) fn shares_host_memory(device: &Device) -> bool {
    let unified = device.number::<u32>(CL_DEVICE_HOST_UNIFIED_MEMORY).unwrap_or(0) != 0;
    let is_cpu = device.number::<u64>(CL_DEVICE_TYPE).unwrap_or(0) & CL_DEVICE_TYPE_CPU != 0;
    (unified || is_cpu) && tried(device).unwrap_or(false)
}

fn tried(device: &Device) -> Result<bool, Status> {
    let context = Context::new(device.platform(), std::slice::from_ref(device), Box::new(|_| ()))?;
    let queue = Queue::new(&context, device, 0, 0)?;
    let mapping = Mapping::zeroed(BYTES)?;
    let mem = mem_over(&context, &mapping)?;

    // What the device writes must be visible here without a map.
    fill(&queue, &mem, 0xA5A5_5A5A)?;
    queue.finish()?;
    let mut seen = vec![0; BYTES];
    mapping.read(0, &mut seen);
    if seen.chunks(4).any(|word| word != 0xA5A5_5A5A_u32.to_ne_bytes()) {
        return Ok(false);
    }
    // What is written here must be visible to the device without an unmap.
    let expected: Vec<u8> = (0..BYTES).map(|index| index.to_le_bytes()[0]).collect();
    mapping.write(0, &expected);
    let mut read = vec![0; BYTES];
    read_blocking(&queue, &mem, &mut read)?;
    queue.finish()?;
    // The mapping must outlive the driver's object.
    drop(mem);
    Ok(read == expected)
}

/// Tests, once per device, whether kernels have argument descriptions that the options (empty or
/// null) do not ask for. PoCL 3.1 shows them with null options, Intel's runtime always, NVIDIA's
/// never.
pub(super) fn shows_arg_info(context: &Context, device: &Device, with_options: bool) -> bool {
    static KNOWN: Mutex<Vec<((usize, bool), bool)>> = Mutex::new(Vec::new());
    let key = (device.raw().addr(), with_options);
    // Held during the test, so that other threads do not repeat it.
    let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some((_, shows)) = known.iter().find(|(tried, _)| *tried == key) {
        return *shows;
    }
    // If the driver does not compile this kernel, there are no descriptions.
    let shows = Program::try_arg_info(context, device, with_options).unwrap_or(false);
    known.push((key, shows));
    shows
}

fn mem_over(context: &Context, mapping: &Mapping) -> Result<OwnedMem, Status> {
    let create = function!(clCreateBuffer)?;
    let mut code = 0;
    // SAFETY: the mapping has the bytes and is dropped after the object and its commands.
    let handle = unsafe {
        create(
            context.raw(),
            CL_MEM_READ_WRITE | CL_MEM_USE_HOST_PTR,
            BYTES,
            mapping.address().cast::<c_void>(),
            &mut code,
        )
    };
    api::made(handle, code).map(OwnedMem::take)
}

fn fill(queue: &Queue, mem: &OwnedMem, pattern: u32) -> Result<(), Status> {
    let fill = function!(clEnqueueFillBuffer)?;
    // SAFETY: the call copies the pattern; the range is the whole buffer.
    api::check(unsafe {
        fill(
            queue.raw(),
            mem.raw(),
            (&raw const pattern).cast(),
            size_of::<u32>(),
            0,
            BYTES,
            0,
            std::ptr::null(),
            std::ptr::null_mut(),
        )
    })
}

fn read_blocking(queue: &Queue, mem: &OwnedMem, into: &mut [u8]) -> Result<(), Status> {
    let read = function!(clEnqueueReadBuffer)?;
    // SAFETY: the call blocks, so `into` lives until the bytes are there.
    api::check(unsafe {
        read(
            queue.raw(),
            mem.raw(),
            CL_TRUE,
            0,
            into.len(),
            into.as_mut_ptr().cast(),
            0,
            std::ptr::null(),
            std::ptr::null_mut(),
        )
    })
}
