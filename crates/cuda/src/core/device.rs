//! Devices: their properties, their memory, and their primary contexts.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};

use penstock_cuda_sys::driver::{CUDA_ERROR_INVALID_CONTEXT, CUDA_ERROR_INVALID_VALUE, CUdevice};

use super::arena::Space;
use super::context::Context;
use super::fault::{self, Check};
use super::native;
use super::program::Programs;
use crate::edge::CuResult;

mod cl {
    pub(super) const MAX_COMPUTE_UNITS: u32 = 0x1002;
    pub(super) const MAX_WORK_GROUP_SIZE: u32 = 0x1004;
    pub(super) const MAX_WORK_ITEM_SIZES: u32 = 0x1005;
    pub(super) const MAX_CLOCK_FREQUENCY: u32 = 0x100c;
    pub(super) const MAX_MEM_ALLOC_SIZE: u32 = 0x1010;
    pub(super) const GLOBAL_MEM_CACHE_SIZE: u32 = 0x101e;
    pub(super) const GLOBAL_MEM_SIZE: u32 = 0x101f;
    pub(super) const LOCAL_MEM_SIZE: u32 = 0x1023;
    pub(super) const ERROR_CORRECTION_SUPPORT: u32 = 0x1024;
    pub(super) const NAME: u32 = 0x102b;
    pub(super) const EXTENSIONS: u32 = 0x1030;
    pub(super) const SINGLE_FP_CONFIG: u32 = 0x101b;
    pub(super) const DOUBLE_FP_CONFIG: u32 = 0x1032;
}

/// What a device reports of itself, as far as CUDA asks.
#[derive(Clone, Debug)]
pub(crate) struct Facts {
    pub(crate) name: String,
    pub(crate) compute_units: u32,
    pub(crate) threads_max: u32,
    pub(crate) block_max: [u32; 3],
    pub(crate) clock_khz: u32,
    pub(crate) shared_bytes: u32,
    pub(crate) cache_bytes: u64,
    pub(crate) corrects_errors: bool,
    pub(crate) fp64: bool,
    pub(crate) fp16: bool,
    /// Whether single-precision division and square root can be correctly rounded.
    pub(crate) exact_division: bool,
    pub(crate) int64_atomics: bool,
    /// PCI domain, bus and device.
    pub(crate) pci: [u32; 3],
    pub(crate) uuid: [u8; 16],
}

pub(crate) struct Device {
    pub(crate) ordinal: usize,
    /// The device as the pool knows it.
    pub(crate) pool: Arc<penstock_client::Device>,
    /// Context of the pool in which its memory, queues and programs are made.
    pub(crate) context: Arc<penstock_client::Context>,
    pub(crate) facts: Facts,
    pub(crate) space: Space,
    pub(crate) programs: Programs,
    /// Whether its node drives the device through CUDA's own driver.
    pub(crate) is_native: bool,
    /// Contexts that exist now.
    contexts: Mutex<Vec<Weak<Context>>>,
    primary: Mutex<Primary>,
    check: OnceLock<Option<Check>>,
}

/// The context that the runtime interface and most programs use.
#[derive(Default)]
struct Primary {
    context: Option<Arc<Context>>,
    retained: u32,
    flags: u32,
}

fn narrow(wide: u64) -> u32 {
    u32::try_from(wide).unwrap_or(u32::MAX)
}

/// Maximum number of threads of a block on every NVIDIA device. Programs and compilers rely on it.
const THREADS_MAX: u32 = 1024;

/// Maximum number of threads of a block in its third dimension on every NVIDIA device.
const BLOCK_Z_MAX: u32 = 64;

/// Bit of OpenCL's `CL_FP_CORRECTLY_ROUNDED_DIVIDE_SQRT`.
const CORRECTLY_ROUNDED: u64 = 1 << 7;

/// Shared memory that the translated code keeps for the exchange between threads of a warp, in
/// bytes: 16 for each thread of the largest block.
const EXCHANGE_BYTES: u32 = 16 * THREADS_MAX;

impl Facts {
    fn of(device: &penstock_client::Device) -> Self {
        let sizes = device.info(cl::MAX_WORK_ITEM_SIZES).unwrap_or_default().as_chunks::<8>().0;
        let size =
            |axis: usize| sizes.get(axis).map_or(1, |bytes| narrow(u64::from_ne_bytes(*bytes)));
        let extensions = device.text(cl::EXTENSIONS);
        let has = |name: &str| extensions.split(' ').any(|word| word == name);
        let threads_max = narrow(device.number(cl::MAX_WORK_GROUP_SIZE)).min(THREADS_MAX);
        let mut facts = Self {
            name: device.text(cl::NAME),
            compute_units: narrow(device.number(cl::MAX_COMPUTE_UNITS)).max(1),
            threads_max,
            block_max: [
                size(0).min(threads_max),
                size(1).min(threads_max),
                size(2).min(threads_max).min(BLOCK_Z_MAX),
            ],
            clock_khz: narrow(device.number(cl::MAX_CLOCK_FREQUENCY)).saturating_mul(1000),
            shared_bytes: narrow(device.number(cl::LOCAL_MEM_SIZE)).saturating_sub(EXCHANGE_BYTES),
            cache_bytes: device.number(cl::GLOBAL_MEM_CACHE_SIZE),
            corrects_errors: device.number(cl::ERROR_CORRECTION_SUPPORT) != 0,
            fp64: device.number(cl::DOUBLE_FP_CONFIG) != 0 || has("cl_khr_fp64"),
            fp16: has("cl_khr_fp16"),
            exact_division: device.number(cl::SINGLE_FP_CONFIG) & CORRECTLY_ROUNDED != 0,
            int64_atomics: has("cl_khr_int64_base_atomics") && has("cl_khr_int64_extended_atomics"),
            pci: device.pci(),
            uuid: device.uuid(),
        };
        native::correct(&mut facts, device);
        facts
    }
}

impl Device {
    /// `neighbours`: number of devices in its context, which share the memory of the context.
    pub(crate) fn new(
        ordinal: usize,
        pool: Arc<penstock_client::Device>,
        context: Arc<penstock_client::Context>,
        neighbours: usize,
    ) -> Self {
        let lazy = pool.shares_host_memory();
        // Check mode has one bitmap, and it covers one arena.
        let is_single = fault::is_checking();
        let is_native = pool.is_cuda();
        let total = pool.number(cl::GLOBAL_MEM_SIZE);
        let share = if lazy { total / (neighbours.max(1) as u64) } else { total };
        let largest = pool.number(cl::MAX_MEM_ALLOC_SIZE);
        Self {
            facts: Facts::of(&pool),
            space: Space::new(&context, ordinal, (lazy, is_single), (largest, share))
                .with_native(is_native),
            is_native,
            ordinal,
            pool,
            context,
            programs: Programs::default(),
            contexts: Mutex::default(),
            primary: Mutex::default(),
            check: OnceLock::new(),
        }
    }

    pub(super) fn check_cell(&self) -> &OnceLock<Option<Check>> {
        &self.check
    }

    pub(crate) fn number(&self) -> CUdevice {
        CUdevice::try_from(self.ordinal).unwrap_or(CUdevice::MAX)
    }

    pub(crate) fn contexts(&self) -> Vec<Arc<Context>> {
        let contexts = self.contexts.lock().unwrap_or_else(PoisonError::into_inner);
        contexts.iter().filter_map(Weak::upgrade).collect()
    }

    /// Adds a new context to the list.
    pub(super) fn add(&self, context: &Arc<Context>) {
        self.contexts.lock().unwrap_or_else(PoisonError::into_inner).push(Arc::downgrade(context));
    }

    /// Removes a context that has ended from the list.
    pub(super) fn remove(&self, context: &Context) {
        let mut contexts = self.contexts.lock().unwrap_or_else(PoisonError::into_inner);
        contexts.retain(|known| !std::ptr::eq(known.as_ptr(), context));
    }

    /// Returns events for all unfinished commands on the device, in all contexts.
    pub(crate) fn busy(&self) -> Vec<penstock_client::Event> {
        self.contexts().iter().flat_map(|context| context.busy()).collect()
    }

    fn primary(&self) -> MutexGuard<'_, Primary> {
        self.primary.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn retain_primary(self: &Arc<Self>) -> CuResult<Arc<Context>> {
        let mut primary = self.primary();
        let context = match &primary.context {
            Some(context) => context.clone(),
            None => {
                let context = Context::new(self, primary.flags, true)?;
                primary.context.insert(context).clone()
            }
        };
        primary.retained += 1;
        Ok(context)
    }

    /// Returns the primary context, if it exists now.
    pub(crate) fn primary_if_there(&self) -> Option<Arc<Context>> {
        self.primary().context.clone()
    }

    pub(crate) fn release_primary(&self) -> CuResult {
        let mut primary = self.primary();
        primary.retained = primary.retained.checked_sub(1).ok_or(CUDA_ERROR_INVALID_CONTEXT)?;
        let last = if primary.retained == 0 { primary.context.take() } else { None };
        drop(primary);
        last.map_or(Ok(()), |context| context.destroy())
    }

    pub(crate) fn reset_primary(&self) -> CuResult {
        let context = self.primary().context.take();
        context.map_or(Ok(()), |context| context.destroy())
    }

    /// Implements `cuDevicePrimaryCtxGetState`: returns its flags, and whether it exists.
    pub(crate) fn primary_state(&self) -> (u32, bool) {
        let primary = self.primary();
        (primary.flags, primary.context.is_some())
    }

    pub(crate) fn set_primary_flags(&self, flags: u32) -> CuResult {
        use penstock_cuda_sys::driver::CU_CTX_FLAGS_MASK;
        if flags & !CU_CTX_FLAGS_MASK != 0 {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        let mut primary = self.primary();
        primary.flags = flags;
        if let Some(context) = &primary.context {
            context.set_flags(flags);
        }
        Ok(())
    }
}

impl fmt::Debug for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Device")
            .field("ordinal", &self.ordinal)
            .field("pool", &self.pool)
            .finish_non_exhaustive()
    }
}
