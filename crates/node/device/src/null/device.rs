//! The platform and its device, and what they tell of themselves.

use penstock_cl_sys::*;
use penstock_wire::describe::{Info, Timers};
use penstock_wire::status::Status;

use super::builtin::WORK_GROUP_MAX;
use super::context::{Context, QUEUE_PROPERTIES};
use super::engine::Line;
use super::memory::ALIGNMENT_BYTES;
use crate::answer::{sizes, text, uint, ulong};
use crate::driver::{self, ContextDriver, DeviceDriver, Limits, Notify, PlatformDriver};

/// Names that nobody takes for those of hardware.
const PLATFORM_NAME: &str = "Penstock null (simulated)";
const DEVICE_NAME: &str = "simulated device (Penstock null)";
const VERSION: &str = "OpenCL 1.2 Penstock null";
const VENDOR: &str = "Penstock";

/// Memory of the device. Pages that nobody touches cost the host nothing, so it is the same on all
/// hosts, and more than tests need.
const MEMORY_BYTES: u64 = 4 << 30;
/// "The minimum value is max (1/4th of CL_DEVICE_GLOBAL_MEM_SIZE, ...)".
const ALLOCATION_BYTES: u64 = MEMORY_BYTES / 4;
/// "The minimum value is 32 KB". No kernel uses it.
const LOCAL_BYTES: u64 = 32 << 10;

struct Platform {
    line: Line,
}

/// Makes the platform and starts the thread of its device. `None` if there is no thread.
pub(crate) fn platform() -> Option<Box<dyn PlatformDriver>> {
    let (line, run) = Line::new();
    penstock_process::start("null device", run).ok()?;
    Some(Box::new(Platform { line }))
}

impl PlatformDriver for Platform {
    fn name(&self) -> String {
        PLATFORM_NAME.to_owned()
    }

    fn info(&self) -> Info {
        let texts = [
            (CL_PLATFORM_PROFILE, "FULL_PROFILE"),
            (CL_PLATFORM_VERSION, VERSION),
            (CL_PLATFORM_NAME, PLATFORM_NAME),
            (CL_PLATFORM_VENDOR, VENDOR),
            (CL_PLATFORM_EXTENSIONS, ""),
        ];
        texts.map(|(name, value)| (name, text(value))).to_vec()
    }

    fn devices(&self) -> Vec<Box<dyn DeviceDriver>> {
        vec![Box::new(Device)]
    }

    /// `notify` is never called, because every failure is reported where it happens.
    fn context(
        &self,
        _devices: &[driver::Device],
        _notify: Notify,
    ) -> Result<Box<dyn ContextDriver>, Status> {
        Ok(Box::new(Context::new(self.line.clone())))
    }
}

struct Device;

impl DeviceDriver for Device {
    fn number(&self) -> usize {
        // The process has no other device.
        1
    }

    fn name(&self) -> String {
        DEVICE_NAME.to_owned()
    }

    fn info(&self) -> Info {
        let texts = TEXTS.iter().map(|(name, value)| (*name, text(value)));
        texts.chain(numbers()).collect()
    }

    fn limits(&self) -> Limits {
        Limits {
            allocation: ALLOCATION_BYTES,
            alignment: ALIGNMENT_BYTES,
            local: LOCAL_BYTES,
            memory: MEMORY_BYTES,
        }
    }

    fn queue_properties(&self) -> u64 {
        QUEUE_PROPERTIES
    }

    fn may_share_host_memory(&self) -> bool {
        true
    }

    fn timers(&self) -> Result<Timers, Status> {
        // Devices of OpenCL 1.2 have none, and the counter of this one is no time.
        Err(Status::INVALID_OPERATION)
    }
}

const TEXTS: &[(u32, &str)] = &[
    (CL_DEVICE_NAME, DEVICE_NAME),
    (CL_DEVICE_VENDOR, VENDOR),
    (CL_DRIVER_VERSION, env!("CARGO_PKG_VERSION")),
    (CL_DEVICE_PROFILE, "FULL_PROFILE"),
    (CL_DEVICE_VERSION, VERSION),
    (CL_DEVICE_OPENCL_C_VERSION, VERSION),
    (CL_DEVICE_EXTENSIONS, ""),
];

fn numbers() -> Info {
    let group = usize::try_from(WORK_GROUP_MAX).unwrap_or(1);
    let alignment = u32::try_from(ALIGNMENT_BYTES).unwrap_or(1);
    vec![
        // "A custom device does not support programs written in OpenCL C", and
        // `CL_DEVICE_TYPE_ALL` leaves custom devices out. So no program gets this device unless it
        // asks for it.
        (CL_DEVICE_TYPE, ulong(CL_DEVICE_TYPE_CUSTOM)),
        (CL_DEVICE_VENDOR_ID, uint(0)),
        (CL_DEVICE_AVAILABLE, uint(1)),
        // Programs of its own form are built from source.
        (CL_DEVICE_COMPILER_AVAILABLE, uint(1)),
        (CL_DEVICE_LINKER_AVAILABLE, uint(0)),
        (CL_DEVICE_IMAGE_SUPPORT, uint(0)),
        (CL_DEVICE_ENDIAN_LITTLE, uint(u32::from(cfg!(target_endian = "little")))),
        (CL_DEVICE_ADDRESS_BITS, uint(u64::BITS)),
        (CL_DEVICE_MAX_COMPUTE_UNITS, uint(1)),
        (CL_DEVICE_MAX_CLOCK_FREQUENCY, uint(0)),
        (CL_DEVICE_MAX_WORK_ITEM_DIMENSIONS, uint(3)),
        (CL_DEVICE_MAX_WORK_ITEM_SIZES, sizes(&[group, 1, 1])),
        (CL_DEVICE_MAX_WORK_GROUP_SIZE, sizes(&[group])),
        (CL_DEVICE_MAX_PARAMETER_SIZE, sizes(&[1 << 10])),
        (CL_DEVICE_MAX_MEM_ALLOC_SIZE, ulong(ALLOCATION_BYTES)),
        (CL_DEVICE_GLOBAL_MEM_SIZE, ulong(MEMORY_BYTES)),
        (CL_DEVICE_LOCAL_MEM_SIZE, ulong(LOCAL_BYTES)),
        (CL_DEVICE_MEM_BASE_ADDR_ALIGN, uint(alignment * u8::BITS)),
        (CL_DEVICE_HOST_UNIFIED_MEMORY, uint(1)),
        (CL_DEVICE_PROFILING_TIMER_RESOLUTION, sizes(&[1])),
        (CL_DEVICE_EXECUTION_CAPABILITIES, ulong(CL_EXEC_KERNEL)),
        (CL_DEVICE_QUEUE_PROPERTIES, ulong(QUEUE_PROPERTIES)),
    ]
}
