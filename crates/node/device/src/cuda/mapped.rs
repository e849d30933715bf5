//! Memory of this process, shared with others, that a GPU accesses by itself: the views of
//! symmetric heaps, which its kernels load from and store into, and the pinned memory of programs,
//! which it copies. The driver pins the pages and gives the GPU addresses for them.

use std::ffi::c_void;
use std::mem::ManuallyDrop;

use penstock_cuda_sys::driver::{
    CU_DEVICE_ATTRIBUTE_CAN_MAP_HOST_MEMORY, CU_DEVICE_ATTRIBUTE_HOST_REGISTER_SUPPORTED,
    CU_DEVICE_ATTRIBUTE_INTEGRATED, CU_MEMHOSTALLOC_DEVICEMAP, CU_MEMHOSTALLOC_PORTABLE,
    CUdeviceptr,
};
use penstock_wire::status::Status;

use super::device::Device;
use super::driver::check;
use crate::home::HostMemory;

/// Lent memory that a GPU can use. All kernels that use it must have ended before it is dropped.
pub(super) struct Mapped {
    device: &'static Device,
    /// Start of the memory on the GPU. If the GPU only copies it, it may have no other address than
    /// in this process.
    address: CUdeviceptr,
    /// Address of a byte on the GPU less its address in this process.
    distance: u64,
    /// Starts of the registered pieces.
    registered: Vec<usize>,
    /// Given back after the pages are unpinned.
    memory: ManuallyDrop<Box<dyn HostMemory>>,
}

impl Mapped {
    /// Registers all pieces of the memory for the device, and maps them if kernels use the memory.
    ///
    /// # Errors
    /// `CL_INVALID_OPERATION` if kernels use the memory and the driver cannot map it, or if the
    /// pieces have other distances on the GPU than on the host; the driver's errors.
    pub(super) fn new(
        device: &'static Device,
        memory: Box<dyn HostMemory>,
    ) -> Result<Self, Status> {
        let maps = memory.is_for_kernels();
        if maps && !can_map(device) {
            return Err(Status::INVALID_OPERATION);
        }
        device.enter()?;
        let (start, bytes) = memory.range();
        let start = start.as_ptr().expose_provenance();
        let registered = Vec::new();
        let memory = ManuallyDrop::new(memory);
        let mut mapped = Self { device, address: 0, distance: 0, registered, memory };
        let mut distance = None;
        for piece in mapped.memory.pieces() {
            let at = start.checked_add(piece.start).ok_or(Status::INVALID_VALUE)?;
            if piece.end > bytes || piece.is_empty() {
                return Err(Status::INVALID_VALUE);
            }
            register(device, at, piece.len(), maps)?;
            mapped.registered.push(at);
            // Copies need no address of the GPU's own.
            let address = if maps { address_of(device, at)? } else { at as u64 };
            // Kernels compute the address of one piece from that of another.
            let far = address.wrapping_sub(at as u64);
            if *distance.get_or_insert(far) != far {
                return Err(Status::INVALID_OPERATION);
            }
        }
        mapped.distance = distance.ok_or(Status::INVALID_VALUE)?;
        mapped.address = (start as u64).wrapping_add(mapped.distance);
        Ok(mapped)
    }

    pub(super) fn address(&self) -> CUdeviceptr {
        self.address
    }

    pub(super) fn distance(&self) -> u64 {
        self.distance
    }
}

/// Returns whether the driver can map memory that other processes share. Integrated GPUs are left
/// out: they do not always see the host's memory as the host does.
fn can_map(device: &Device) -> bool {
    let is = |attribute| device.attribute(attribute).is_ok_and(|value| value != 0);
    is(CU_DEVICE_ATTRIBUTE_CAN_MAP_HOST_MEMORY)
        && is(CU_DEVICE_ATTRIBUTE_HOST_REGISTER_SUPPORTED)
        && !is(CU_DEVICE_ATTRIBUTE_INTEGRATED)
}

/// Registers a piece, which gets an address on the GPU if `maps`. The device's context is current.
fn register(device: &Device, at: usize, bytes: usize, maps: bool) -> Result<(), Status> {
    let start = std::ptr::with_exposed_provenance_mut::<c_void>(at);
    let flags = CU_MEMHOSTALLOC_PORTABLE | if maps { CU_MEMHOSTALLOC_DEVICEMAP } else { 0 };
    // SAFETY: the memory is lent, and so the piece mapped, until the piece has been unregistered.
    check(unsafe { (device.cuda().cuMemHostRegister)(start, bytes, flags) })
}

/// Returns the address of a registered piece on the GPU. The device's context is current.
fn address_of(device: &Device, at: usize) -> Result<CUdeviceptr, Status> {
    let ask = device.cuda().cuMemHostGetDevicePointer.ok_or(Status::INVALID_OPERATION)?;
    let mut address = 0;
    // SAFETY: the piece was registered; `address` outlives the call.
    check(unsafe { ask(&mut address, std::ptr::with_exposed_provenance_mut(at), 0) })?;
    Ok(address)
}

fn unregister(device: &Device, at: usize) -> Result<(), Status> {
    let start = std::ptr::with_exposed_provenance_mut::<c_void>(at);
    // SAFETY: the piece was registered. If this fails, the memory is never given back.
    check(unsafe { (device.cuda().cuMemHostUnregister)(start) })
}

impl Drop for Mapped {
    fn drop(&mut self) {
        let entered = self.device.enter();
        let is_pinned = |&&at: &&usize| entered.and_then(|()| unregister(self.device, at)).is_err();
        let pinned = self.registered.iter().filter(is_pinned).count();
        // Pages that stay pinned may still be the GPU's, and nobody could register them again. So
        // their memory stays lent until this process ends, and its owner uses it for nothing else.
        if pinned == 0 {
            // SAFETY: dropped once, here, and not used again.
            unsafe { ManuallyDrop::drop(&mut self.memory) };
        }
    }
}
