use std::hash::{Hash, Hasher};
use std::sync::{Arc, OnceLock};

use penstock_cl_sys::{
    CL_DEVICE_COMMAND_BUFFER_SYNC_DEVICES_KHR, CL_DEVICE_LOCAL_MEM_SIZE,
    CL_DEVICE_MAX_MEM_ALLOC_SIZE, CL_DEVICE_MEM_BASE_ADDR_ALIGN, CL_DEVICE_NAME,
    CL_DEVICE_PARENT_DEVICE, CL_DEVICE_PARENT_DEVICE_EXT, CL_DEVICE_PLATFORM,
    CL_DEVICE_QUEUE_PROPERTIES, cl_device_id,
};
use penstock_wire::cuda;
use penstock_wire::describe::{Info, Timers};
use penstock_wire::status::Status;

use super::api::{self, function};
use super::platform::Platform;
use super::probe;

/// Ranges of `clGetDeviceInfo`'s queries: core; command buffers; termination, semaphores and
/// external memory; vendors (NVIDIA, AMD, EXT, Qualcomm, SPIR, Intel, ARM). Whole ranges are asked
/// to include queries that Penstock does not know; a driver refuses what it does not know.
const QUERIES: &[std::ops::RangeInclusive<u32>] = &[
    0x1000..=0x107F,
    0x1298..=0x12BF,
    0x2031..=0x2035,
    0x204C..=0x2053,
    0x4000..=0x40CF,
    0x40E0..=0x40E1,
    0x4100..=0x41DF,
    0x4200..=0x425F,
];

/// Further queries on CUDA's platform, see [`cuda`].
const CUDA_QUERIES: &[std::ops::RangeInclusive<u32>] = &[
    cuda::DEVICE_ATTRIBUTE..=cuda::DEVICE_ATTRIBUTE + cuda::DEVICE_ATTRIBUTES_MAX - 1,
    cuda::DEVICE_DRIVER_VERSION..=cuda::DEVICE_PCI_BUS_ID,
];

/// Queries whose answers are handles, which mean nothing in another process.
const HANDLES: &[u32] = &[
    CL_DEVICE_PLATFORM,
    CL_DEVICE_PARENT_DEVICE,
    CL_DEVICE_PARENT_DEVICE_EXT,
    CL_DEVICE_COMMAND_BUFFER_SYNC_DEVICES_KHR,
];

/// Most sub-devices of one partition. A driver that reports more has a defect.
const SUB_DEVICES_MAX: u32 = 1 << 16;

/// A device or sub-device. Cheap to clone; clones and handles of the same device are equal.
#[derive(Clone, Debug)]
pub struct Device(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    handle: Handle,
    platform: Platform,
    /// The device that a sub-device is a part of; `None` for a root device, which is not counted.
    parent: Option<Device>,
    shares_host_memory: OnceLock<bool>,
    must_not_wait: OnceLock<bool>,
    limits: OnceLock<Limits>,
}

/// Limits that are needed for each buffer or launch.
#[derive(Debug, Clone, Copy)]
pub(super) struct Limits {
    pub(super) allocation: u64,
    /// `CL_DEVICE_MEM_BASE_ADDR_ALIGN`, converted to bytes.
    pub(super) alignment: usize,
    pub(super) local: u64,
}

#[derive(Debug, Clone, Copy)]
struct Handle(cl_device_id);
// SAFETY: any thread may use a device.
unsafe impl Send for Handle {}
// SAFETY: as above.
unsafe impl Sync for Handle {}

impl PartialEq for Device {
    fn eq(&self, other: &Self) -> bool {
        self.raw() == other.raw()
    }
}
impl Eq for Device {}
impl Hash for Device {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.raw().hash(state);
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        if self.parent.is_some()
            && let Ok(release) = function!(clReleaseDevice)
        {
            // SAFETY: the reference from clCreateSubDevices is ours, and given back once.
            let _ = unsafe { release(self.handle.0) };
        }
    }
}

impl Device {
    pub(super) fn root(platform: &Platform, handle: cl_device_id) -> Self {
        Self::from_handle(platform, handle, None)
    }

    fn from_handle(platform: &Platform, handle: cl_device_id, parent: Option<Self>) -> Self {
        Self(Arc::new(Inner {
            handle: Handle(handle),
            platform: platform.clone(),
            parent,
            shares_host_memory: OnceLock::new(),
            must_not_wait: OnceLock::new(),
            limits: OnceLock::new(),
        }))
    }

    pub(super) fn raw(&self) -> cl_device_id {
        self.0.handle.0
    }

    /// Returns the device that this one is a part of.
    pub(super) fn parent(&self) -> Option<&Self> {
        self.0.parent.as_ref()
    }

    pub fn platform(&self) -> &Platform {
        &self.0.platform
    }

    pub fn name(&self) -> String {
        self.ask(CL_DEVICE_NAME).map(|bytes| api::text(&bytes)).unwrap_or_default()
    }

    /// Returns the answers of `clGetDeviceInfo`, for `DeviceDescription::info`, without handles.
    pub fn info(&self) -> Info {
        let more = if self.platform().is_cuda() { CUDA_QUERIES } else { &[] };
        let numbers =
            QUERIES.iter().chain(more).cloned().flatten().filter(|name| !HANDLES.contains(name));
        numbers.filter_map(|name| Some((name, self.ask(name).ok()?))).collect()
    }

    /// Returns whether kernels and this process see the same memory. Tested once.
    pub fn shares_host_memory(&self) -> bool {
        *self.0.shares_host_memory.get_or_init(|| probe::shares_host_memory(self))
    }

    /// `clCreateSubDevices`. `properties` lack the final 0.
    ///
    /// # Errors
    /// The driver's error.
    pub fn sub_devices(&self, properties: &[i64]) -> Result<Vec<Self>, Status> {
        let split = function!(clCreateSubDevices)?;
        let mut list = Vec::with_capacity(properties.len() + 1);
        for &property in properties {
            list.push(isize::try_from(property).map_err(|_| Status::INVALID_VALUE)?);
        }
        list.push(0);
        let mut count = 0;
        // SAFETY: the list of properties ends with 0; only the number of sub-devices is asked for.
        api::check(unsafe {
            split(self.raw(), list.as_ptr(), 0, std::ptr::null_mut(), &mut count)
        })?;
        let mut handles = vec![std::ptr::null_mut(); count.min(SUB_DEVICES_MAX) as usize];
        let places = api::count(handles.len())?;
        // SAFETY: the list of properties ends with 0, and the list of devices has `places` entries.
        api::check(unsafe {
            split(self.raw(), list.as_ptr(), places, handles.as_mut_ptr(), std::ptr::null_mut())
        })?;
        let handles = handles.into_iter().filter(|handle| !handle.is_null());
        Ok(handles
            .map(|handle| Self::from_handle(self.platform(), handle, Some(self.clone())))
            .collect())
    }

    /// `clGetDeviceAndHostTimer`.
    ///
    /// # Errors
    /// The driver's error; `CL_INVALID_OPERATION` if it has no such timer.
    pub fn timers(&self) -> Result<Timers, Status> {
        self.platform().needs(2, 1)?;
        let get = function!(clGetDeviceAndHostTimer)?;
        let (mut device, mut host) = (0, 0);
        // SAFETY: both locations outlive the call.
        api::check(unsafe { get(self.raw(), &mut device, &mut host) })?;
        Ok(Timers { device, host })
    }

    pub(super) fn ask(&self, name: u32) -> Result<Vec<u8>, Status> {
        let get = function!(clGetDeviceInfo)?;
        // SAFETY: `query` passes a location of the given size.
        api::query(|size, value, true_size| unsafe {
            get(self.raw(), name, size, value, true_size)
        })
    }

    pub(super) fn number<T: api::Number>(&self, name: u32) -> Result<T, Status> {
        let get = function!(clGetDeviceInfo)?;
        // SAFETY: `number` passes a location of the given size.
        api::number(|size, value, true_size| unsafe {
            get(self.raw(), name, size, value, true_size)
        })
    }

    pub(super) fn queue_properties(&self) -> u64 {
        self.number(CL_DEVICE_QUEUE_PROPERTIES).unwrap_or(0)
    }

    /// Whether commands must not be enqueued before their wait lists have ended. PoCL's `basic`
    /// device runs a command on the thread that ends its wait list, inside a lock that the command
    /// needs, and hangs. Oclgrind runs commands within `clFlush`, which then waits for ever.
    pub fn must_not_wait(&self) -> bool {
        *self.0.must_not_wait.get_or_init(|| match self.platform().name().as_str() {
            "Portable Computing Language" => self.name().starts_with("basic"),
            "Oclgrind" => true,
            _ => false,
        })
    }

    /// Whether a queue must not be released before its commands have ended, see [`super::retire`].
    pub(super) fn keeps_queues_until_idle(&self) -> bool {
        self.platform().name().starts_with("Intel(R) OpenCL")
    }

    pub(super) fn limits(&self) -> Limits {
        *self.0.limits.get_or_init(|| Limits {
            allocation: self.number(CL_DEVICE_MAX_MEM_ALLOC_SIZE).unwrap_or(0),
            alignment: self.number::<u32>(CL_DEVICE_MEM_BASE_ADDR_ALIGN).unwrap_or(0) as usize / 8,
            local: self.number(CL_DEVICE_LOCAL_MEM_SIZE).unwrap_or(0),
        })
    }
}
