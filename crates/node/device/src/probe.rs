//! Tests what drivers do not report: whether a device works on this process's own memory.

use penstock_cl_sys::CL_MEM_READ_WRITE;
use penstock_wire::status::Status;

use crate::driver::{Context, Device, Mem, Queue, Want};
use crate::home::Mapping;

/// Size of the tested buffer: one page, the smallest home memory.
const BYTES: usize = 4096;
/// What the device writes.
const PATTERN: [u8; 4] = [0xA5, 0x5A, 0x5A, 0xA5];

/// Tests whether a device shares host memory. `CL_MEM_USE_HOST_PTR` does not tell: a driver may
/// keep a copy that it updates when the buffer is mapped. So both directions are tested without a
/// map.
pub(crate) fn shares_host_memory(device: &Device) -> bool {
    tried(device).unwrap_or(false)
}

fn tried(device: &Device) -> Result<bool, Status> {
    let context = Context::new(device.platform(), std::slice::from_ref(device), Box::new(|_| ()))?;
    let queue = Queue::new(&context, device, 0, 0)?;
    let bytes = BYTES as u64;
    let mem = Mem::over(&context, CL_MEM_READ_WRITE, bytes, Mapping::zeroed(BYTES)?, None)?;
    let home = mem.home().ok_or(Status::OUT_OF_HOST_MEMORY)?;

    // What the device writes must be visible here without a map.
    queue.fill(&mem, &PATTERN, 0, bytes, &[], Want::Nothing)?;
    queue.finish()?;
    let mut seen = vec![0; BYTES];
    home.read(0, &mut seen)?;
    if seen.chunks(PATTERN.len()).any(|word| word != PATTERN) {
        return Ok(false);
    }
    // What is written here must be visible to the device without an unmap.
    let expected: Vec<u8> = (0..BYTES).map(|index| index.to_le_bytes()[0]).collect();
    home.write(0, &expected)?;
    let read = queue.read(&mem, 0, bytes, &[])?;
    queue.finish()?;
    Ok(*read.wait()? == *expected)
}
