//! The one platform: CUDA's driver.

use std::ffi::{c_int, c_void};
use std::sync::OnceLock;

use penstock_cl_sys::{
    _cl_platform_id, CL_INVALID_PLATFORM, CL_PLATFORM_EXTENSIONS, CL_PLATFORM_NAME,
    CL_PLATFORM_PROFILE, CL_PLATFORM_VENDOR, CL_PLATFORM_VERSION, cl_int, cl_platform_id,
    cl_platform_info, cl_uint,
};
use penstock_process::variable;
use penstock_wire::cuda::PLATFORM_NAME;
use penstock_wire::status::Status;

use super::answer::{Answer, Place};
use super::device::Device;
use super::driver::{Cuda, check, cuda};
use super::object::{self, Body, Object};

/// Most GPUs of a node. A driver that reports more has a defect.
const DEVICES_MAX: c_int = 256;

/// The platform: CUDA's driver with its GPUs.
pub(super) struct Platform {
    cuda: &'static Cuda,
    devices: Vec<&'static Object<Device>>,
}

impl Body for Platform {
    type Raw = _cl_platform_id;
    const TAG: usize = 0x5043_4400;
    const WRONG: Status = Status(CL_INVALID_PLATFORM);
}

static PLATFORM: OnceLock<Option<&'static Object<Platform>>> = OnceLock::new();

/// Returns the platform's handle if there are a driver and a GPU.
pub(crate) fn platform() -> Option<cl_platform_id> {
    found().map(Object::handle)
}

fn found() -> Option<&'static Object<Platform>> {
    *PLATFORM.get_or_init(|| {
        let cuda = cuda()?;
        let devices = devices(cuda).ok().filter(|devices| !devices.is_empty())?;
        // Handles of platforms and devices stay valid for ever.
        Some(Box::leak(Box::new(Object::plain(Platform { cuda, devices }))))
    })
}

/// Returns the devices of the platform if it has been found already.
pub(super) fn known_devices() -> &'static [&'static Object<Device>] {
    match PLATFORM.get() {
        Some(Some(platform)) => &platform.devices,
        _ => &[],
    }
}

fn devices(cuda: &'static Cuda) -> Result<Vec<&'static Object<Device>>, Status> {
    let mut count = 0;
    // SAFETY: `count` outlives the call.
    check(unsafe { (cuda.cuDeviceGetCount)(&mut count) })?;
    let (each, mut devices) = (each(), Vec::new());
    for index in 0..count.min(DEVICES_MAX) {
        let mut ordinal = 0;
        // SAFETY: `ordinal` outlives the call.
        check(unsafe { (cuda.cuDeviceGet)(&mut ordinal, index) })?;
        for _ in 0..each {
            devices.push(&*Box::leak(Box::new(Object::plain(Device::new(
                cuda,
                ordinal,
                each > 1,
            )))));
        }
    }
    Ok(devices)
}

/// Returns the number of devices that each GPU appears as. They share one context, so their kernels
/// run at the same time, unlike kernels of two processes.
fn each() -> u64 {
    variable::CUDA_EACH.number().unwrap_or(1)
}

impl Platform {
    pub(super) fn devices(&self) -> &[&'static Object<Device>] {
        &self.devices
    }

    fn answer(&self, name: u32) -> Result<Answer, Status> {
        let text = match name {
            CL_PLATFORM_NAME => PLATFORM_NAME.to_owned(),
            CL_PLATFORM_VENDOR => "NVIDIA Corporation".to_owned(),
            CL_PLATFORM_PROFILE => "FULL_PROFILE".to_owned(),
            CL_PLATFORM_VERSION => opencl_version(self.cuda),
            CL_PLATFORM_EXTENSIONS => String::new(),
            _ => return Err(Status::INVALID_VALUE),
        };
        Ok(Answer::text(&text))
    }
}

/// Returns the result of `cuDriverGetVersion`, or 0 if that fails.
pub(super) fn driver_version(cuda: &Cuda) -> c_int {
    let mut version = 0;
    // SAFETY: `version` outlives the call.
    check(unsafe { (cuda.cuDriverGetVersion)(&mut version) }).map_or(0, |()| version)
}

/// Formats the driver's version, like "13.0".
pub(super) fn version_text(cuda: &Cuda) -> String {
    let version = driver_version(cuda);
    format!("{}.{}", version / 1000, version % 1000 / 10)
}

/// Returns the OpenCL version whose functions may be called. 3.0 is needed for device timers and
/// copies of kernels; most of its other features are optional.
pub(super) fn opencl_version(cuda: &Cuda) -> String {
    format!("OpenCL 3.0 CUDA {}", version_text(cuda))
}

pub(super) unsafe extern "C" fn get_ids(
    count: cl_uint,
    list: *mut cl_platform_id,
    number: *mut cl_uint,
) -> cl_int {
    object::code(|| {
        let platform = found().ok_or(Status::INVALID_VALUE)?;
        if !list.is_null() && count > 0 {
            // SAFETY: the caller's list has at least one entry.
            unsafe { list.write(platform.handle()) };
        }
        if !number.is_null() {
            // SAFETY: not null, so the caller made it writable.
            unsafe { number.write(1) };
        }
        Ok(())
    })
}

pub(super) unsafe extern "C" fn get_info(
    platform: cl_platform_id,
    name: cl_platform_info,
    size: usize,
    value: *mut c_void,
    true_size: *mut usize,
) -> cl_int {
    object::code(|| {
        // SAFETY: the caller passes a live handle of this platform.
        let platform = unsafe { object::get::<Platform>(platform) }?;
        // SAFETY: the caller's places, with the size that the caller names.
        unsafe { Place { size, value, true_size }.write(&platform.answer(name)?) }
    })
}
