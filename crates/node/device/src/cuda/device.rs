//! GPUs: their contexts and what the driver reports of them.

use std::cell::Cell;
use std::ffi::{c_char, c_int, c_uint};
use std::sync::OnceLock;

use penstock_cuda_sys::driver::*;
use penstock_process::{Guard, Lock};
use penstock_wire::status::Status;

use super::address::Address;
use super::driver::{Cuda, check, text};
use super::reaper::Reaper;
use super::slot::Slots;

/// A GPU. It is never freed.
pub(super) struct Device {
    cuda: &'static Cuda,
    ordinal: CUdevice,
    /// Primary context, made at the first use and kept: the process serves one client.
    primary: OnceLock<Result<Address<CUctx_st>, Status>>,
    /// Answers that each buffer or launch needs.
    shared_bytes: OnceLock<usize>,
    memory_bytes: OnceLock<u64>,
    /// CUDA events to be reused, without and with times.
    events: [Lock<Vec<Address<CUevent_st>>>; 2],
    slots: Slots,
    reaper: Reaper,
    /// Whether several devices stand for this GPU.
    is_shared: bool,
}

/// Size of a warp if the driver does not report it.
const WARP_MIN: usize = 32;
/// Bound for names and bus ids, which are far shorter.
const TEXT_BYTES: usize = 256;

/// All devices, once the platform has been found.
static ALL: OnceLock<Vec<&'static Device>> = OnceLock::new();

/// Makes the devices of the process, which are never freed.
pub(super) fn set_all(devices: Vec<Device>) -> &'static [&'static Device] {
    ALL.get_or_init(|| devices.into_iter().map(|device| &*Box::leak(Box::new(device))).collect())
}

/// Returns the devices if the platform has been found.
pub(super) fn all() -> &'static [&'static Device] {
    ALL.get().map_or(&[], Vec::as_slice)
}

thread_local! {
    /// The context that is current on this thread. Each launch asks for it, and only
    /// [`Device::enter`] changes it: a session has commands for CUDA or for OpenCL, not for both.
    static CURRENT: Cell<CUcontext> = const { Cell::new(std::ptr::null_mut()) };
}

impl Device {
    pub(super) fn new(cuda: &'static Cuda, ordinal: CUdevice, is_shared: bool) -> Self {
        Self {
            cuda,
            ordinal,
            primary: OnceLock::new(),
            shared_bytes: OnceLock::new(),
            memory_bytes: OnceLock::new(),
            events: Default::default(),
            slots: Slots::default(),
            reaper: Reaper::default(),
            is_shared,
        }
    }

    pub(super) fn cuda(&self) -> &'static Cuda {
        self.cuda
    }

    /// Whether another device stands for the same GPU.
    pub(super) fn is_shared(&self) -> bool {
        self.is_shared
    }

    pub(super) fn slots(&'static self) -> &'static Slots {
        &self.slots
    }

    pub(super) fn reaper(&self) -> &Reaper {
        &self.reaper
    }

    /// Makes the device's context current on this thread, as nearly all functions of CUDA need.
    pub(super) fn enter(&self) -> Result<(), Status> {
        let context = *self.primary.get_or_init(|| {
            let mut context: CUcontext = std::ptr::null_mut();
            // SAFETY: `context` outlives the call.
            check(unsafe { (self.cuda.cuDevicePrimaryCtxRetain)(&mut context, self.ordinal) })?;
            Ok(Address::new(context))
        });
        let context = context?.get();
        if CURRENT.get() == context {
            return Ok(());
        }
        // SAFETY: the context is never released.
        check(unsafe { (self.cuda.cuCtxSetCurrent)(context) })?;
        CURRENT.set(context);
        Ok(())
    }

    /// Whether its context has been made.
    pub(super) fn is_used(&self) -> bool {
        matches!(self.primary.get(), Some(Ok(_)))
    }

    pub(super) fn spare_events(&self, timed: bool) -> Guard<'_, Vec<Address<CUevent_st>>> {
        let [plain, with_times] = &self.events;
        (if timed { with_times } else { plain }).lock()
    }

    /// Returns the value of `cuDeviceGetAttribute`.
    pub(super) fn attribute(&self, attribute: c_uint) -> Result<c_int, Status> {
        let mut value = 0;
        // SAFETY: `value` outlives the call.
        check(unsafe { (self.cuda.cuDeviceGetAttribute)(&mut value, attribute, self.ordinal) })?;
        Ok(value)
    }

    /// Returns an attribute that is a size or count, or 0 if the driver does not know it.
    pub(super) fn number(&self, attribute: c_uint) -> usize {
        self.attribute(attribute).ok().and_then(|value| usize::try_from(value).ok()).unwrap_or(0)
    }

    pub(super) fn small(&self, attribute: c_uint) -> u32 {
        u32::try_from(self.number(attribute)).unwrap_or(u32::MAX)
    }

    /// Returns the most bytes of shared memory that a block can opt in to.
    pub(super) fn shared_bytes(&self) -> usize {
        *self.shared_bytes.get_or_init(|| {
            let asked = self.number(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN);
            asked.max(self.number(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK))
        })
    }

    pub(super) fn memory_bytes(&self) -> u64 {
        *self.memory_bytes.get_or_init(|| {
            let mut bytes = 0;
            // SAFETY: `bytes` outlives the call.
            match check(unsafe { (self.cuda.cuDeviceTotalMem)(&mut bytes, self.ordinal) }) {
                Ok(()) => bytes as u64,
                Err(_) => 0,
            }
        })
    }

    pub(super) fn block_sizes(&self) -> [usize; 3] {
        [
            CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X,
            CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Y,
            CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z,
        ]
        .map(|attribute| self.number(attribute))
    }

    fn text(
        &self,
        function: unsafe extern "C" fn(*mut c_char, c_int, CUdevice) -> CUresult,
    ) -> Result<String, Status> {
        let mut bytes = [0_u8; TEXT_BYTES];
        // The last byte stays 0 whatever the driver does.
        let room = c_int::try_from(TEXT_BYTES - 1).unwrap_or(0);
        // SAFETY: the array has one byte more than the driver is told.
        check(unsafe { function(bytes.as_mut_ptr().cast(), room, self.ordinal) })?;
        Ok(text(&bytes))
    }

    /// Returns the driver's name of the GPU.
    pub(super) fn model(&self) -> Result<String, Status> {
        self.text(self.cuda.cuDeviceGetName)
    }

    pub(super) fn pci_bus_id(&self) -> Result<String, Status> {
        self.text(self.cuda.cuDeviceGetPCIBusId)
    }

    pub(super) fn uuid(&self) -> Result<[u8; 16], Status> {
        let get = self.cuda.cuDeviceGetUuid_v2.or(self.cuda.cuDeviceGetUuid);
        let get = get.ok_or(Status::INVALID_VALUE)?;
        let mut uuid = CUuuid { bytes: [0; 16] };
        // SAFETY: `uuid` outlives the call.
        check(unsafe { get(&mut uuid, self.ordinal) })?;
        Ok(uuid.bytes)
    }

    /// Returns the warp size: the multiple that OpenCL prefers for the size of a work-group.
    pub(super) fn warp(&self) -> usize {
        self.number(CU_DEVICE_ATTRIBUTE_WARP_SIZE).max(WARP_MIN)
    }
}

impl std::fmt::Debug for Device {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Device").field("ordinal", &self.ordinal).finish_non_exhaustive()
    }
}
