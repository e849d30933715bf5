//! GPUs and their properties.

use std::ffi::{c_char, c_int, c_uint};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use penstock_cl_sys::*;
use penstock_cuda_sys::driver::*;
use penstock_wire::cuda as numbers;
use penstock_wire::status::Status;

use super::answer::{Answer, Place};
use super::driver::{Cuda, check};
use super::object::{self, Address, Body, Object};
use super::pinned::Slots;
use super::platform::{self, Platform};
use super::reaper::Reaper;
use super::{clock, kernel};

/// A GPU. Its object is never freed.
pub(super) struct Device {
    cuda: &'static Cuda,
    ordinal: CUdevice,
    /// Primary context, made at the first use and kept: the process serves one client.
    primary: OnceLock<Result<Address<CUctx_st>, Status>>,
    /// CUDA events to be reused, without and with times.
    events: [Mutex<Vec<Address<CUevent_st>>>; 2],
    slots: Slots,
    reaper: Reaper,
    /// Whether several devices stand for this GPU.
    is_shared: bool,
}

impl Body for Device {
    type Raw = _cl_device_id;
    const TAG: usize = 0x5043_4401;
    const WRONG: Status = Status::INVALID_DEVICE;
}

/// NVIDIA's PCI vendor id.
const VENDOR_ID: u32 = 0x10DE;
/// `cuMemAlloc` aligns to 256 bytes. This is OpenCL's minimum of 128 bytes, in bits: a smaller
/// alignment lets sub-buffers start at more offsets.
const ALIGNMENT_BITS: u32 = 1024;
/// Bytes of a kernel's packed parameters on all GPUs. Newer GPUs and drivers allow 32,764 bytes.
const PARAMETER_BYTES: usize = 4096;
/// Size of a line of the second-level cache.
const CACHE_LINE_BYTES: u32 = 128;
/// Resolution of the times of CUDA's events: about half a microsecond.
const TIMER_NS: usize = 500;
/// IEEE 754 with denormals and all rounding modes.
const FULL_FLOAT: u64 = CL_FP_DENORM
    | CL_FP_INF_NAN
    | CL_FP_ROUND_TO_NEAREST
    | CL_FP_ROUND_TO_ZERO
    | CL_FP_ROUND_TO_INF
    | CL_FP_FMA;
/// Bound for names and bus ids, which are far shorter.
const TEXT_BYTES: usize = 256;

impl Device {
    pub(super) fn new(cuda: &'static Cuda, ordinal: CUdevice, is_shared: bool) -> Self {
        Self {
            cuda,
            ordinal,
            primary: OnceLock::new(),
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

    pub(super) fn slots(&self) -> &Slots {
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
        // SAFETY: the context is never released.
        check(unsafe { (self.cuda.cuCtxSetCurrent)(context?.get()) })
    }

    /// Whether its context has been made.
    pub(super) fn is_used(&self) -> bool {
        matches!(self.primary.get(), Some(Ok(_)))
    }

    pub(super) fn spare_events(&self, timed: bool) -> MutexGuard<'_, Vec<Address<CUevent_st>>> {
        let [plain, with_times] = &self.events;
        (if timed { with_times } else { plain }).lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the value of `cuDeviceGetAttribute`.
    pub(super) fn attribute(&self, attribute: c_uint) -> Result<c_int, Status> {
        let mut value = 0;
        // SAFETY: `value` outlives the call.
        check(unsafe { (self.cuda.cuDeviceGetAttribute)(&mut value, attribute, self.ordinal) })?;
        Ok(value)
    }

    /// Returns an attribute that is a size or count, or 0 if the driver does not know it.
    fn number(&self, attribute: c_uint) -> usize {
        self.attribute(attribute).ok().and_then(|value| usize::try_from(value).ok()).unwrap_or(0)
    }

    fn small(&self, attribute: c_uint) -> u32 {
        u32::try_from(self.number(attribute)).unwrap_or(u32::MAX)
    }

    /// Returns the most bytes of shared memory that a block can opt in to.
    pub(super) fn shared_bytes(&self) -> usize {
        let asked = self.number(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN);
        asked.max(self.number(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK))
    }

    pub(super) fn memory_bytes(&self) -> u64 {
        let mut bytes = 0;
        // SAFETY: `bytes` outlives the call.
        match check(unsafe { (self.cuda.cuDeviceTotalMem)(&mut bytes, self.ordinal) }) {
            Ok(()) => bytes as u64,
            Err(_) => 0,
        }
    }

    fn block_sizes(&self) -> [usize; 3] {
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
        let end = bytes.iter().position(|&byte| byte == 0).unwrap_or(0);
        Ok(String::from_utf8_lossy(bytes.get(..end).unwrap_or_default()).into_owned())
    }

    fn uuid(&self) -> Result<Vec<u8>, Status> {
        let get = self.cuda.cuDeviceGetUuid_v2.or(self.cuda.cuDeviceGetUuid);
        let get = get.ok_or(Status::INVALID_VALUE)?;
        let mut uuid = CUuuid { bytes: [0; 16] };
        // SAFETY: `uuid` outlives the call.
        check(unsafe { get(&mut uuid, self.ordinal) })?;
        Ok(uuid.bytes.to_vec())
    }

    fn answer(&self, name: u32) -> Result<Answer, Status> {
        let own = self.cuda_answer(name);
        if own.is_ok() {
            return own;
        }
        self.text_answer(name).or_else(|_| self.size_answer(name)).or_else(|_| fixed_answer(name))
    }

    /// Answers the queries of Penstock's CUDA library.
    fn cuda_answer(&self, name: u32) -> Result<Answer, Status> {
        match name {
            numbers::DEVICE_DRIVER_VERSION => Ok(Answer::int(platform::driver_version(self.cuda))),
            numbers::DEVICE_UUID | CL_DEVICE_UUID_KHR => self.uuid().map(Answer::bytes),
            numbers::DEVICE_PCI_BUS_ID => {
                self.text(self.cuda.cuDeviceGetPCIBusId).map(|text| Answer::text(&text))
            }
            _ => {
                let attribute =
                    name.checked_sub(numbers::DEVICE_ATTRIBUTE).ok_or(Status::INVALID_VALUE)?;
                if attribute >= numbers::DEVICE_ATTRIBUTES_MAX {
                    return Err(Status::INVALID_VALUE);
                }
                self.attribute(attribute).map(Answer::int)
            }
        }
    }

    fn text_answer(&self, name: u32) -> Result<Answer, Status> {
        let text = match name {
            CL_DEVICE_NAME => self.text(self.cuda.cuDeviceGetName)?,
            CL_DEVICE_VENDOR => "NVIDIA Corporation".to_owned(),
            CL_DRIVER_VERSION => platform::version_text(self.cuda),
            CL_DEVICE_VERSION => platform::opencl_version(self.cuda),
            CL_DEVICE_PROFILE => "FULL_PROFILE".to_owned(),
            CL_DEVICE_OPENCL_C_VERSION => "OpenCL C 1.2".to_owned(),
            CL_DEVICE_EXTENSIONS | CL_DEVICE_BUILT_IN_KERNELS => String::new(),
            _ => return Err(Status::INVALID_VALUE),
        };
        Ok(Answer::text(&text))
    }

    /// Answers the queries that depend on the GPU.
    fn size_answer(&self, name: u32) -> Result<Answer, Status> {
        Ok(match name {
            CL_DEVICE_MAX_COMPUTE_UNITS => {
                Answer::uint(self.small(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT))
            }
            CL_DEVICE_MAX_WORK_GROUP_SIZE => {
                Answer::sizes(&[self.number(CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK)])
            }
            CL_DEVICE_MAX_WORK_ITEM_SIZES => Answer::sizes(&self.block_sizes()),
            // The driver reports kHz.
            CL_DEVICE_MAX_CLOCK_FREQUENCY => {
                Answer::uint(self.small(CU_DEVICE_ATTRIBUTE_CLOCK_RATE) / 1000)
            }
            CL_DEVICE_MAX_MEM_ALLOC_SIZE | CL_DEVICE_GLOBAL_MEM_SIZE => {
                Answer::ulong(self.memory_bytes())
            }
            CL_DEVICE_GLOBAL_MEM_CACHE_SIZE => {
                Answer::ulong(self.number(CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE) as u64)
            }
            CL_DEVICE_MAX_CONSTANT_BUFFER_SIZE => {
                Answer::ulong(self.number(CU_DEVICE_ATTRIBUTE_TOTAL_CONSTANT_MEMORY) as u64)
            }
            CL_DEVICE_LOCAL_MEM_SIZE => Answer::ulong(self.shared_bytes() as u64),
            CL_DEVICE_ERROR_CORRECTION_SUPPORT => {
                Answer::yes(self.number(CU_DEVICE_ATTRIBUTE_ECC_ENABLED) != 0)
            }
            CL_DEVICE_PREFERRED_WORK_GROUP_SIZE_MULTIPLE => {
                Answer::sizes(&[self.number(CU_DEVICE_ATTRIBUTE_WARP_SIZE)])
            }
            CL_DEVICE_COMPUTE_CAPABILITY_MAJOR_NV => {
                Answer::uint(self.small(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR))
            }
            CL_DEVICE_COMPUTE_CAPABILITY_MINOR_NV => {
                Answer::uint(self.small(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR))
            }
            CL_DEVICE_REGISTERS_PER_BLOCK_NV => {
                Answer::uint(self.small(CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_BLOCK))
            }
            CL_DEVICE_WARP_SIZE_NV => Answer::uint(self.small(CU_DEVICE_ATTRIBUTE_WARP_SIZE)),
            CL_DEVICE_KERNEL_EXEC_TIMEOUT_NV => {
                Answer::yes(self.number(CU_DEVICE_ATTRIBUTE_KERNEL_EXEC_TIMEOUT) != 0)
            }
            CL_DEVICE_INTEGRATED_MEMORY_NV => {
                Answer::yes(self.number(CU_DEVICE_ATTRIBUTE_INTEGRATED) != 0)
            }
            CL_DEVICE_ATTRIBUTE_ASYNC_ENGINE_COUNT_NV => {
                Answer::uint(self.small(CU_DEVICE_ATTRIBUTE_ASYNC_ENGINE_COUNT))
            }
            CL_DEVICE_PCI_BUS_ID_NV => Answer::uint(self.small(CU_DEVICE_ATTRIBUTE_PCI_BUS_ID)),
            CL_DEVICE_PCI_SLOT_ID_NV => Answer::uint(self.small(CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID)),
            CL_DEVICE_PCI_DOMAIN_ID_NV => {
                Answer::uint(self.small(CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID))
            }
            _ => return Err(Status::INVALID_VALUE),
        })
    }
}

/// Answers the queries that have the same value for all GPUs.
fn fixed_answer(name: u32) -> Result<Answer, Status> {
    Ok(match name {
        // There is no OpenCL C: "a custom device does not support programs written in OpenCL C". So
        // a program that asks for all devices does not get one that cannot run its kernels.
        CL_DEVICE_TYPE => Answer::ulong(CL_DEVICE_TYPE_CUSTOM),
        CL_DEVICE_VENDOR_ID => Answer::uint(VENDOR_ID),
        CL_DEVICE_MAX_WORK_ITEM_DIMENSIONS => Answer::uint(3),
        CL_DEVICE_ADDRESS_BITS => Answer::uint(u64::BITS),
        CL_DEVICE_MAX_PARAMETER_SIZE => Answer::sizes(&[PARAMETER_BYTES]),
        CL_DEVICE_MEM_BASE_ADDR_ALIGN => Answer::uint(ALIGNMENT_BITS),
        CL_DEVICE_MIN_DATA_TYPE_ALIGN_SIZE => Answer::uint(ALIGNMENT_BITS / u8::BITS),
        CL_DEVICE_GLOBAL_MEM_CACHELINE_SIZE => Answer::uint(CACHE_LINE_BYTES),
        CL_DEVICE_GLOBAL_MEM_CACHE_TYPE => Answer::uint(CL_READ_WRITE_CACHE),
        CL_DEVICE_LOCAL_MEM_TYPE => Answer::uint(CL_LOCAL),
        CL_DEVICE_PROFILING_TIMER_RESOLUTION => Answer::sizes(&[TIMER_NS]),
        CL_DEVICE_SINGLE_FP_CONFIG => {
            Answer::ulong(FULL_FLOAT | CL_FP_CORRECTLY_ROUNDED_DIVIDE_SQRT)
        }
        CL_DEVICE_DOUBLE_FP_CONFIG => Answer::ulong(FULL_FLOAT),
        CL_DEVICE_EXECUTION_CAPABILITIES => Answer::ulong(CL_EXEC_KERNEL),
        CL_DEVICE_QUEUE_PROPERTIES => Answer::ulong(CL_QUEUE_PROFILING_ENABLE),
        CL_DEVICE_ENDIAN_LITTLE
        | CL_DEVICE_AVAILABLE
        | CL_DEVICE_PREFERRED_INTEROP_USER_SYNC
        | CL_DEVICE_GPU_OVERLAP_NV => Answer::yes(true),
        CL_DEVICE_COMPILER_AVAILABLE
        | CL_DEVICE_LINKER_AVAILABLE
        | CL_DEVICE_HOST_UNIFIED_MEMORY
        | CL_DEVICE_IMAGE_SUPPORT => Answer::yes(false),
        CL_DEVICE_PLATFORM => {
            Answer::pointer(platform::platform().unwrap_or(std::ptr::null_mut()).cast_const())
        }
        CL_DEVICE_PARENT_DEVICE => Answer::pointer(std::ptr::null::<_cl_device_id>()),
        CL_DEVICE_REFERENCE_COUNT
        | CL_DEVICE_PREFERRED_VECTOR_WIDTH_CHAR
        | CL_DEVICE_PREFERRED_VECTOR_WIDTH_SHORT
        | CL_DEVICE_PREFERRED_VECTOR_WIDTH_INT
        | CL_DEVICE_PREFERRED_VECTOR_WIDTH_LONG
        | CL_DEVICE_PREFERRED_VECTOR_WIDTH_FLOAT
        | CL_DEVICE_PREFERRED_VECTOR_WIDTH_DOUBLE
        | CL_DEVICE_PREFERRED_VECTOR_WIDTH_HALF
        | CL_DEVICE_NATIVE_VECTOR_WIDTH_CHAR
        | CL_DEVICE_NATIVE_VECTOR_WIDTH_SHORT
        | CL_DEVICE_NATIVE_VECTOR_WIDTH_INT
        | CL_DEVICE_NATIVE_VECTOR_WIDTH_LONG
        | CL_DEVICE_NATIVE_VECTOR_WIDTH_FLOAT
        | CL_DEVICE_NATIVE_VECTOR_WIDTH_DOUBLE
        | CL_DEVICE_NATIVE_VECTOR_WIDTH_HALF => Answer::uint(1),
        CL_DEVICE_MAX_READ_IMAGE_ARGS
        | CL_DEVICE_MAX_WRITE_IMAGE_ARGS
        | CL_DEVICE_MAX_SAMPLERS
        | CL_DEVICE_MAX_CONSTANT_ARGS
        | CL_DEVICE_PARTITION_MAX_SUB_DEVICES
        | CL_DEVICE_MAX_PIPE_ARGS => Answer::uint(0),
        CL_DEVICE_IMAGE2D_MAX_WIDTH
        | CL_DEVICE_IMAGE2D_MAX_HEIGHT
        | CL_DEVICE_IMAGE3D_MAX_WIDTH
        | CL_DEVICE_IMAGE3D_MAX_HEIGHT
        | CL_DEVICE_IMAGE3D_MAX_DEPTH
        | CL_DEVICE_IMAGE_MAX_BUFFER_SIZE
        | CL_DEVICE_IMAGE_MAX_ARRAY_SIZE
        | CL_DEVICE_PRINTF_BUFFER_SIZE => Answer::sizes(&[0]),
        CL_DEVICE_SVM_CAPABILITIES | CL_DEVICE_PARTITION_AFFINITY_DOMAIN => Answer::ulong(0),
        CL_DEVICE_PARTITION_PROPERTIES => Answer::sizes(&[0]),
        CL_DEVICE_PARTITION_TYPE => Answer::bytes(Vec::new()),
        _ => return Err(Status::INVALID_VALUE),
    })
}

pub(super) unsafe extern "C" fn get_ids(
    platform: cl_platform_id,
    device_type: cl_device_type,
    count: cl_uint,
    list: *mut cl_device_id,
    number: *mut cl_uint,
) -> cl_int {
    object::code(|| {
        // SAFETY: the caller passes a live handle of this platform.
        let platform = unsafe { object::get::<Platform>(platform) }?;
        // The worker asks, and wants all devices; programs get their answers from the face.
        let wanted = device_type == CL_DEVICE_TYPE_ALL || device_type & CL_DEVICE_TYPE_CUSTOM != 0;
        let devices = if wanted { platform.devices() } else { &[] };
        if devices.is_empty() {
            return Err(Status(CL_DEVICE_NOT_FOUND));
        }
        if !list.is_null() {
            for (index, device) in devices.iter().enumerate().take(count as usize) {
                // SAFETY: the caller's list has `count` entries.
                unsafe { list.add(index).write(device.handle()) };
            }
        }
        if !number.is_null() {
            // SAFETY: not null, so the caller made it writable.
            unsafe { number.write(u32::try_from(devices.len()).unwrap_or(0)) };
        }
        Ok(())
    })
}

pub(super) unsafe extern "C" fn get_info(
    device: cl_device_id,
    name: cl_device_info,
    size: usize,
    value: *mut std::ffi::c_void,
    true_size: *mut usize,
) -> cl_int {
    object::code(|| {
        // SAFETY: the caller passes a live handle of this platform.
        let device: &Object<Device> = unsafe { object::get(device) }?;
        // SAFETY: the caller's places, with the size that the caller names.
        unsafe { Place { size, value, true_size }.write(&device.answer(name)?) }
    })
}

/// Checks the handle only: devices are not counted.
pub(super) unsafe extern "C" fn release(device: cl_device_id) -> cl_int {
    // SAFETY: the caller passes a live handle of this platform.
    object::code(|| unsafe { object::get::<Device>(device) }.map(|_| ()))
}

pub(super) unsafe extern "C" fn timers(
    device: cl_device_id,
    device_time: *mut cl_ulong,
    host_time: *mut cl_ulong,
) -> cl_int {
    object::code(|| {
        // SAFETY: the caller passes a live handle of this platform.
        unsafe { object::get::<Device>(device) }?;
        if device_time.is_null() || host_time.is_null() {
            return Err(Status::INVALID_VALUE);
        }
        // The times of events are on the host's clock, see `clock`.
        let now = clock::now();
        // SAFETY: not null, so the caller made it writable.
        unsafe { device_time.write(now) };
        // SAFETY: as above.
        unsafe { host_time.write(now) };
        Ok(())
    })
}

/// Returns the warp size: the multiple that OpenCL prefers for the size of a work-group.
pub(super) fn preferred_multiple(device: &Device) -> usize {
    device.number(CU_DEVICE_ATTRIBUTE_WARP_SIZE).max(kernel::WARP_MIN)
}
