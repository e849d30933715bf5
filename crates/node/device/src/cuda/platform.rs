//! The one platform: CUDA's driver.

use std::ffi::c_int;
use std::sync::Arc;

use penstock_cl_sys::{
    CL_PLATFORM_EXTENSIONS, CL_PLATFORM_NAME, CL_PLATFORM_PROFILE, CL_PLATFORM_VENDOR,
    CL_PLATFORM_VERSION,
};
use penstock_process::variable;
use penstock_wire::cuda::PLATFORM_NAME;
use penstock_wire::describe::Info;
use penstock_wire::status::Status;

use super::about::{VENDOR, opencl_version};
use super::context::Context;
use super::device::{self, Device as OwnDevice};
use super::driver::{Cuda, check, cuda};
use super::event::Event as OwnEvent;
use super::memory::Memory;
use super::pinned;
use super::program::Program;
use super::queue::Queue;
use crate::answer::text;
use crate::driver;
use crate::driver::{
    Backing, ContextDriver, Device, DeviceDriver, MemDriver, Notify, PlatformDriver, ProgramDriver,
    QueueDriver,
};
use crate::event::Event;
use crate::home::HostMemory;
use crate::staging;

/// Most GPUs of a node. A driver that reports more has a defect.
const DEVICES_MAX: c_int = 256;
/// The platform: CUDA's driver with its GPUs.
struct Platform {
    cuda: &'static Cuda,
    devices: &'static [&'static OwnDevice],
}

/// Returns the platform if there are a driver and a GPU.
pub(crate) fn platform() -> Option<Box<dyn PlatformDriver>> {
    let cuda = cuda()?;
    let devices = devices(cuda).ok().filter(|devices| !devices.is_empty())?;
    staging::pin_with(pinned::pin);
    Some(Box::new(Platform { cuda, devices: device::set_all(devices) }))
}

fn devices(cuda: &'static Cuda) -> Result<Vec<OwnDevice>, Status> {
    let mut count = 0;
    // SAFETY: `count` outlives the call.
    check(unsafe { (cuda.cuDeviceGetCount)(&mut count) })?;
    // The devices of one GPU share one context, so their kernels run at the same time, unlike
    // kernels of two processes. For measurements and tests with one GPU.
    let each = variable::CUDA_EACH.number().unwrap_or(1);
    let mut devices = Vec::new();
    for index in 0..count.min(DEVICES_MAX) {
        let mut ordinal = 0;
        // SAFETY: `ordinal` outlives the call.
        check(unsafe { (cuda.cuDeviceGet)(&mut ordinal, index) })?;
        devices.extend((0..each).map(|_| OwnDevice::new(cuda, ordinal, each > 1)));
    }
    Ok(devices)
}

impl PlatformDriver for Platform {
    fn name(&self) -> String {
        PLATFORM_NAME.to_owned()
    }

    fn info(&self) -> Info {
        let version = opencl_version(self.cuda);
        let texts = [
            (CL_PLATFORM_PROFILE, "FULL_PROFILE"),
            (CL_PLATFORM_VERSION, &version),
            (CL_PLATFORM_NAME, PLATFORM_NAME),
            (CL_PLATFORM_VENDOR, VENDOR),
            (CL_PLATFORM_EXTENSIONS, ""),
        ];
        texts.map(|(name, value)| (name, text(value))).to_vec()
    }

    fn devices(&self) -> Vec<Box<dyn DeviceDriver>> {
        self.devices.iter().map(|device| Box::new(*device) as _).collect()
    }

    fn is_cuda(&self) -> bool {
        true
    }

    /// `notify` is never called, because every failure is reported where it happens.
    fn context(
        &self,
        devices: &[Device],
        _notify: Notify,
    ) -> Result<Box<dyn ContextDriver>, Status> {
        // Memory belongs to one GPU; the session moves content between contexts.
        let [device] = devices else { return Err(Status::INVALID_DEVICE) };
        let device: &'static OwnDevice = device.driver::<&'static OwnDevice>()?;
        Ok(Box::new(Context::new(driver::next_context_id(), device)?))
    }
}

impl ContextDriver for Arc<Context> {
    fn id(&self) -> u64 {
        self.id
    }

    fn user_event(&self) -> Result<Event, Status> {
        Ok(Event(OwnEvent::of_user(self.id)))
    }

    fn queue(
        &self,
        _device: &Device,
        properties: u64,
        size: u32,
    ) -> Result<Box<dyn QueueDriver>, Status> {
        if size != 0 {
            return Err(Status::INVALID_VALUE);
        }
        Ok(Box::new(Queue::new(self, properties)?))
    }

    fn buffer(
        &self,
        _flags: u64,
        bytes: usize,
        backing: Backing,
    ) -> Result<Box<dyn MemDriver>, Status> {
        match backing {
            Backing::Device(share) => Ok(Box::new(Memory::new(self, bytes, share)?)),
            // The GPU has addresses of its own for memory of the host.
            Backing::Home(..) => Err(Status::INVALID_OPERATION),
        }
    }

    fn mapped(
        &self,
        _bytes: usize,
        memory: Box<dyn HostMemory>,
    ) -> Result<Box<dyn MemDriver>, Status> {
        Ok(Box::new(Memory::mapped(self, memory)?))
    }

    fn variable(&self, address: u64, bytes: usize) -> Result<Box<dyn MemDriver>, Status> {
        Ok(Box::new(Memory::variable(self, address, bytes)?))
    }

    fn program_with_binaries(
        &self,
        binaries: &[(Device, Vec<u8>)],
        _codes: &mut [i32],
    ) -> Result<Box<dyn ProgramDriver>, Status> {
        let [(device, image)] = binaries else { return Err(Status::INVALID_VALUE) };
        // "CL_INVALID_DEVICE if any device in device_list is not in the list of devices associated
        // with context."
        let own = device.driver::<&'static OwnDevice>();
        if !own.is_ok_and(|own| std::ptr::eq(*own, self.device)) {
            return Err(Status::INVALID_DEVICE);
        }
        Ok(Box::new(Program::new(self.device, image.clone())))
    }
}
