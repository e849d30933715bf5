use std::sync::{Arc, OnceLock};

use penstock_cl_sys::{
    CL_DEVICE_COMMAND_BUFFER_SYNC_DEVICES_KHR, CL_DEVICE_EXECUTION_CAPABILITIES,
    CL_DEVICE_GLOBAL_MEM_SIZE, CL_DEVICE_HOST_UNIFIED_MEMORY, CL_DEVICE_LOCAL_MEM_SIZE,
    CL_DEVICE_MAX_MEM_ALLOC_SIZE, CL_DEVICE_MEM_BASE_ADDR_ALIGN, CL_DEVICE_NAME,
    CL_DEVICE_PARENT_DEVICE, CL_DEVICE_PARENT_DEVICE_EXT, CL_DEVICE_PLATFORM,
    CL_DEVICE_QUEUE_PROPERTIES, CL_DEVICE_SVM_CAPABILITIES, CL_DEVICE_TYPE, CL_DEVICE_TYPE_ALL,
    CL_DEVICE_TYPE_CPU, CL_EXEC_NATIVE_KERNEL, cl_device_id,
};
use penstock_wire::describe::{Info, Timers};
use penstock_wire::status::Status;

use super::api::{self, function};
use super::platform::Platform;
use crate::driver::{DeviceDriver, Limits};

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

/// Queries whose answers are handles, which mean nothing in another process.
const HANDLES: &[u32] = &[
    CL_DEVICE_PLATFORM,
    CL_DEVICE_PARENT_DEVICE,
    CL_DEVICE_PARENT_DEVICE_EXT,
    CL_DEVICE_COMMAND_BUFFER_SYNC_DEVICES_KHR,
];

/// Most devices that are listed. A driver that reports more has a defect.
const LISTED_MAX: u32 = 1 << 12;
/// Most sub-devices of one partition. A driver that reports more has a defect.
const SUB_DEVICES_MAX: u32 = 1 << 16;

/// A device or sub-device. Cheap to clone.
#[derive(Clone, Debug)]
pub(super) struct Device(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    handle: Handle,
    platform: Platform,
    /// The device that a sub-device is a part of; `None` for a root device, which is not counted.
    parent: Option<Device>,
    must_not_wait: OnceLock<bool>,
    runs_tasks: OnceLock<bool>,
    limits: OnceLock<Limits>,
}

#[derive(Debug, Clone, Copy)]
struct Handle(cl_device_id);
// SAFETY: any thread may use a device.
unsafe impl Send for Handle {}
// SAFETY: as above.
unsafe impl Sync for Handle {}

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
    /// Lists the devices of a platform.
    pub(super) fn list(platform: Platform) -> Result<Vec<Self>, Status> {
        let list = function!(clGetDeviceIDs)?;
        let mut count = 0;
        // SAFETY: the platform is one of the loader's; only the length of the list is asked for.
        api::check(unsafe {
            list(platform.raw(), CL_DEVICE_TYPE_ALL, 0, std::ptr::null_mut(), &mut count)
        })?;
        let mut handles: Vec<cl_device_id> =
            vec![std::ptr::null_mut(); count.min(LISTED_MAX) as usize];
        let places = api::count(handles.len())?;
        let start = handles.as_mut_ptr();
        // SAFETY: the list has `places` entries.
        api::check(unsafe {
            list(platform.raw(), CL_DEVICE_TYPE_ALL, places, start, std::ptr::null_mut())
        })?;
        let handles = handles.into_iter().filter(|handle| !handle.is_null());
        Ok(handles.map(|handle| Self::from_handle(platform, handle, None)).collect())
    }

    fn from_handle(platform: Platform, handle: cl_device_id, parent: Option<Self>) -> Self {
        Self(Arc::new(Inner {
            handle: Handle(handle),
            platform,
            parent,
            must_not_wait: OnceLock::new(),
            runs_tasks: OnceLock::new(),
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

    fn ask(&self, name: u32) -> Result<Vec<u8>, Status> {
        let get = function!(clGetDeviceInfo)?;
        // SAFETY: `query` passes a location of the given size.
        api::query(|size, value, true_size| unsafe {
            get(self.raw(), name, size, value, true_size)
        })
    }

    fn ask_number<T: api::Number>(&self, name: u32) -> Result<T, Status> {
        let get = function!(clGetDeviceInfo)?;
        // SAFETY: `number` passes a location of the given size.
        api::number(|size, value, true_size| unsafe {
            get(self.raw(), name, size, value, true_size)
        })
    }

    /// Whether a queue must not be released before its commands have ended, see [`super::retire`].
    pub(super) fn keeps_queues_until_idle(&self) -> bool {
        self.0.platform.name().starts_with("Intel(R) OpenCL")
    }
}

impl DeviceDriver for Device {
    fn number(&self) -> usize {
        self.raw().addr()
    }

    fn name(&self) -> String {
        self.ask(CL_DEVICE_NAME).map(|bytes| api::text(&bytes)).unwrap_or_default()
    }

    fn info(&self) -> Info {
        let numbers = QUERIES.iter().cloned().flatten().filter(|name| !HANDLES.contains(name));
        numbers.filter_map(|name| Some((name, self.ask(name).ok()?))).collect()
    }

    fn limits(&self) -> Limits {
        *self.0.limits.get_or_init(|| Limits {
            allocation: self.ask_number(CL_DEVICE_MAX_MEM_ALLOC_SIZE).unwrap_or(0),
            // The driver reports bits.
            alignment: self.ask_number::<u32>(CL_DEVICE_MEM_BASE_ADDR_ALIGN).unwrap_or(0) as usize
                / 8,
            local: self.ask_number(CL_DEVICE_LOCAL_MEM_SIZE).unwrap_or(0),
            memory: self.ask_number(CL_DEVICE_GLOBAL_MEM_SIZE).unwrap_or(0),
        })
    }

    fn queue_properties(&self) -> u64 {
        self.ask_number(CL_DEVICE_QUEUE_PROPERTIES).unwrap_or(0)
    }

    fn may_share_host_memory(&self) -> bool {
        let unified = self.ask_number::<u32>(CL_DEVICE_HOST_UNIFIED_MEMORY).unwrap_or(0) != 0;
        let kind = self.ask_number::<u64>(CL_DEVICE_TYPE).unwrap_or(0);
        unified || kind & CL_DEVICE_TYPE_CPU != 0
    }

    fn has_svm(&self) -> bool {
        self.0.platform.is_at_least(2, 0)
            && self.ask_number::<u64>(CL_DEVICE_SVM_CAPABILITIES).unwrap_or(0) != 0
    }

    fn runs_tasks(&self) -> bool {
        *self.0.runs_tasks.get_or_init(|| {
            let can = self.ask_number::<u64>(CL_DEVICE_EXECUTION_CAPABILITIES).unwrap_or(0);
            can & CL_EXEC_NATIVE_KERNEL != 0
        })
    }

    fn must_not_wait(&self) -> bool {
        *self.0.must_not_wait.get_or_init(|| match self.0.platform.name().as_str() {
            "Portable Computing Language" => self.name().starts_with("basic"),
            "Oclgrind" => true,
            _ => false,
        })
    }

    fn sub_devices(&self, properties: &[i64]) -> Result<Vec<Box<dyn DeviceDriver>>, Status> {
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
        let part = |handle| Self::from_handle(self.0.platform, handle, Some(self.clone()));
        Ok(handles.map(|handle| Box::new(part(handle)) as _).collect())
    }

    fn timers(&self) -> Result<Timers, Status> {
        self.0.platform.needs(2, 1)?;
        let get = function!(clGetDeviceAndHostTimer)?;
        let (mut device, mut host) = (0, 0);
        // SAFETY: both locations outlive the call.
        api::check(unsafe { get(self.raw(), &mut device, &mut host) })?;
        Ok(Timers { device, host })
    }
}
