//! Platforms, devices and contexts.

use std::hash::{Hash, Hasher};
use std::sync::{Arc, OnceLock};

use penstock_cl_sys::CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE;
use penstock_wire::cuda;
use penstock_wire::describe::{Info, Timers};
use penstock_wire::status::Status;

use crate::driver::{
    Context, ContextParts, Device, DeviceDriver, DeviceParts, Notify, Platform, PlatformDriver,
    PlatformParts, Queue,
};
use crate::event::Event;
use crate::probe;

impl Platform {
    pub(crate) fn new(driver: Box<dyn PlatformDriver>) -> Self {
        Self(Arc::new(PlatformParts { driver, devices: OnceLock::new() }))
    }

    pub fn name(&self) -> String {
        self.0.driver.name()
    }

    /// Returns the answers of `clGetPlatformInfo`, for `PlatformDescription::info`.
    pub fn info(&self) -> Info {
        self.0.driver.info()
    }

    /// Returns its devices of all types.
    pub fn devices(&self) -> Vec<Device> {
        let list = || self.0.driver.devices().into_iter().map(|it| self.device(it)).collect();
        self.0.devices.get_or_init(list).clone()
    }

    fn device(&self, driver: Box<dyn DeviceDriver>) -> Device {
        let platform = self.clone();
        Device(Arc::new(DeviceParts { driver, platform, shares_host_memory: OnceLock::new() }))
    }

    /// Whether it is CUDA's driver, which takes no OpenCL C.
    pub fn is_cuda(&self) -> bool {
        self.0.driver.is_cuda()
    }

    /// `clUnloadPlatformCompiler`; errors are ignored.
    pub fn unload_compiler(&self) {
        self.0.driver.unload_compiler();
    }
}

impl PartialEq for Device {
    fn eq(&self, other: &Self) -> bool {
        self.0.driver.number() == other.0.driver.number()
    }
}
impl Eq for Device {}
impl Hash for Device {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.driver.number().hash(state);
    }
}

impl Device {
    pub fn platform(&self) -> &Platform {
        &self.0.platform
    }

    pub fn name(&self) -> String {
        self.0.driver.name()
    }

    /// Returns the answers of `clGetDeviceInfo`, for `DeviceDescription::info`, without handles.
    pub fn info(&self) -> Info {
        self.0.driver.info()
    }

    /// Returns what CUDA's driver reports, if the device is a GPU that this driver drives.
    pub fn gpu(&self) -> Option<cuda::GpuDescription> {
        self.0.driver.gpu()
    }

    /// Returns whether kernels and this process see the same memory. Tested once.
    pub fn shares_host_memory(&self) -> bool {
        let test = || self.0.driver.may_share_host_memory() && probe::shares_host_memory(self);
        *self.0.shares_host_memory.get_or_init(test)
    }

    /// `clCreateSubDevices`. `properties` lack the final 0.
    ///
    /// # Errors
    /// The driver's error.
    pub fn sub_devices(&self, properties: &[i64]) -> Result<Vec<Self>, Status> {
        // A part has the memory of the whole. A test of its own could fail for another reason, such
        // as a process without free memory, and tell the opposite.
        let shares_host_memory = OnceLock::from(self.shares_host_memory());
        let parts = self.0.driver.sub_devices(properties)?.into_iter().map(|driver| {
            let (platform, shares_host_memory) =
                (self.platform().clone(), shares_host_memory.clone());
            Self(Arc::new(DeviceParts { driver, platform, shares_host_memory }))
        });
        Ok(parts.collect())
    }

    /// `clGetDeviceAndHostTimer`.
    ///
    /// # Errors
    /// The driver's error; `CL_INVALID_OPERATION` if it has no such timer.
    pub fn timers(&self) -> Result<Timers, Status> {
        self.0.driver.timers()
    }

    /// Whether commands must not be enqueued before their wait lists have ended. PoCL's `basic`
    /// device runs a command on the thread that ends its wait list, inside a lock that the command
    /// needs, and hangs. Oclgrind runs commands within `clFlush`, which then waits for ever.
    pub fn must_not_wait(&self) -> bool {
        self.0.driver.must_not_wait()
    }
}

impl Context {
    /// Makes a context over devices of one platform. `notify` gets the driver's errors, on any
    /// thread. It is not called once the last clone has been dropped.
    ///
    /// # Errors
    /// The driver's error; `CL_INVALID_DEVICE` for a device of another platform.
    pub fn new(platform: &Platform, devices: &[Device], notify: Notify) -> Result<Self, Status> {
        if devices.is_empty() {
            return Err(Status::INVALID_VALUE);
        }
        if devices.iter().any(|device| !Arc::ptr_eq(&device.platform().0, &platform.0)) {
            return Err(Status::INVALID_DEVICE);
        }
        let driver = platform.0.driver.context(devices, notify)?;
        Ok(Self(Arc::new(ContextParts {
            id: driver.id(),
            driver,
            platform: platform.clone(),
            devices: devices.to_vec(),
            shares_host_memory: OnceLock::new(),
        })))
    }

    /// Returns a number that is unique in this process. Wait lists cannot span contexts.
    pub fn id(&self) -> u64 {
        self.0.id
    }

    pub fn platform(&self) -> &Platform {
        &self.0.platform
    }

    pub fn devices(&self) -> &[Device] {
        &self.0.devices
    }

    /// Returns whether all its devices share host memory; buffers then have home memory.
    pub fn shares_host_memory(&self) -> bool {
        let all = || self.devices().iter().all(Device::shares_host_memory);
        *self.0.shares_host_memory.get_or_init(all)
    }

    /// `clGetSupportedImageFormats`; returns pairs of channel order and channel type.
    ///
    /// # Errors
    /// The driver's error.
    pub fn image_formats(&self, flags: u64, image_type: u32) -> Result<Vec<(u32, u32)>, Status> {
        self.0.driver.image_formats(flags, image_type)
    }

    /// Returns a queue on the first device for transfers that belong to no queue of the client. It
    /// is out of order if the device allows that, so that no transfer waits for another one.
    ///
    /// # Errors
    /// The driver's error.
    pub fn transfer_queue(&self) -> Result<Queue, Status> {
        let device = self.devices().first().ok_or(Status::INVALID_DEVICE)?;
        let properties =
            device.0.driver.queue_properties() & CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE;
        if properties == 0 {
            // In a shared in-order queue, transfers would wait for each other.
            return Queue::new(self, device, properties, 0);
        }
        Ok(Queue::over(self.0.driver.transfer_queue(device, properties)?, self, device, properties))
    }
}

impl Event {
    /// `clCreateUserEvent`.
    ///
    /// # Errors
    /// The driver's error.
    pub fn user(context: &Context) -> Result<Self, Status> {
        context.0.driver.user_event()
    }
}
