//! Devices.

use std::ffi::c_void;
use std::time::Instant;

use crate::core::device::Device;
use crate::core::platform::Platform;
use crate::edge::{
    Answer, ClError, ClResult, Handle, Object, Ref, cl_entry, functions, require, store,
};
use penstock_cl_sys::*;

functions! {
    slots {
        clGetDeviceIDs, clGetDeviceInfo, clCreateSubDevices, clRetainDevice, clReleaseDevice,
        clGetDeviceAndHostTimer, clGetHostTimer,
    }
}

/// Host name of a device's node. See include/CL/cl_penstock.h.
const CL_DEVICE_HOSTNAME_PENSTOCK: cl_device_info = 0x5053_0002;

cl_entry! {
    fn clGetDeviceIDs(
        platform: cl_platform_id,
        device_type: cl_device_type,
        num_entries: cl_uint,
        list: *mut cl_device_id,
        num_devices: *mut cl_uint,
    ) -> ClResult<()> {
        let platform = Platform::borrow(platform)?;
        require(is_type(device_type), CL_INVALID_DEVICE_TYPE)?;
        // "CL_INVALID_VALUE if num_entries is equal to zero and devices is not NULL or if both
        // num_devices and devices are NULL."
        require(num_entries != 0 || list.is_null(), CL_INVALID_VALUE)?;
        require(!num_devices.is_null() || !list.is_null(), CL_INVALID_VALUE)?;
        let found = of_type(&platform, device_type);
        // SAFETY: guaranteed by the caller.
        unsafe { store(num_devices, count(found.len())) };
        // "CL_DEVICE_NOT_FOUND if no OpenCL devices that matched device_type were found."
        require(!found.is_empty(), CL_DEVICE_NOT_FOUND)?;
        if !list.is_null() {
            for (at, device) in found.iter().take(num_entries as usize).enumerate() {
                // SAFETY: `at` is below `num_entries`.
                unsafe { store(list.add(at), device.raw()) };
            }
        }
        Ok(())
    }

    /// Answers from what the node reported when its link was opened.
    fn clGetDeviceInfo(
        device: cl_device_id,
        name: cl_device_info,
        size: usize,
        value: *mut c_void,
        size_ret: *mut usize,
    ) -> ClResult<()> {
        let device = Device::borrow(device)?;
        // SAFETY: guaranteed by the caller.
        let answer = unsafe { Answer::new(size, value, size_ret) };
        match name {
            CL_DEVICE_PLATFORM => answer.value(device.platform.raw()),
            CL_DEVICE_PARENT_DEVICE => answer.value(device.parent.as_ref().map_or(std::ptr::null_mut(), Handle::raw)),
            CL_DEVICE_REFERENCE_COUNT => answer.value(if device.parent.is_some() { device.references() } else { 1 }),
            CL_DEVICE_HOSTNAME_PENSTOCK => answer.text(device.pool.host()),
            CL_DEVICE_AVAILABLE if device.pool.session().is_lost() => answer.bool(false),
            // "CL_INVALID_VALUE if param_name is not one of the supported values".
            _ => answer.bytes(device.answer(name).ok_or(ClError(CL_INVALID_VALUE))?),
        }
    }

    fn clCreateSubDevices(
        device: cl_device_id,
        properties: *const cl_device_partition_property,
        num_devices: cl_uint,
        list: *mut cl_device_id,
        num_devices_ret: *mut cl_uint,
    ) -> ClResult<()> {
        let device = Device::borrow(device)?;
        // SAFETY: guaranteed by the caller.
        let properties = unsafe { partition(properties) }?;
        let known = expected_parts(&device, &properties)?;
        if list.is_null()
            && let Some(known) = known
        {
            // SAFETY: guaranteed by the caller.
            unsafe { store(num_devices_ret, count(known)) };
            return Ok(());
        }
        let parts = device.pool.partition(&properties)?;
        // "... or num_devices is less than the number of sub-devices that would be created [and
        // out_devices is not NULL]".
        require(list.is_null() || num_devices as usize >= parts.len(), CL_INVALID_VALUE)?;
        // SAFETY: guaranteed by the caller.
        unsafe { store(num_devices_ret, count(parts.len())) };
        if !list.is_null() {
            for (at, part) in parts.into_iter().enumerate() {
                let part = Device::create(part, &device.platform, Some(device.clone()));
                // SAFETY: there is room for all parts.
                unsafe { store(list.add(at), part.raw()) };
            }
        }
        Ok(())
    }

    /// "If device is a root level device i.e. a cl_device_id returned by clGetDeviceIDs, the device
    /// reference count remains unchanged."
    fn clRetainDevice(device: cl_device_id) -> ClResult<()> {
        match &Device::borrow(device)?.parent {
            Some(_) => Device::retain(device),
            None => Ok(()),
        }
    }

    fn clReleaseDevice(device: cl_device_id) -> ClResult<()> {
        match &Device::borrow(device)?.parent {
            Some(_) => Device::release(device),
            None => Ok(()),
        }
    }

    fn clGetDeviceAndHostTimer(
        device: cl_device_id,
        device_timestamp: *mut cl_ulong,
        host_timestamp: *mut cl_ulong,
    ) -> ClResult<()> {
        let device = Device::borrow(device)?;
        // "CL_INVALID_OPERATION if the platform associated with device does not support device and
        // host timer synchronization."
        require(device.platform.timer_resolution != 0, CL_INVALID_OPERATION)?;
        require(!device_timestamp.is_null() && !host_timestamp.is_null(), CL_INVALID_VALUE)?;
        let (before, start) = (host_time(), Instant::now());
        let timers = device.pool.timers()?;
        // The node's clock differs from this host's clock. The node read its device about halfway
        // between the request and the answer.
        let halfway = u64::try_from(start.elapsed().as_nanos() / 2).unwrap_or(0);
        // SAFETY: guaranteed by the caller.
        unsafe { store(device_timestamp, timers.device) };
        // SAFETY: guaranteed by the caller.
        unsafe { store(host_timestamp, before.saturating_add(halfway)) };
        Ok(())
    }

    fn clGetHostTimer(device: cl_device_id, host_timestamp: *mut cl_ulong) -> ClResult<()> {
        let device = Device::borrow(device)?;
        require(!host_timestamp.is_null(), CL_INVALID_VALUE)?;
        require(device.platform.timer_resolution != 0, CL_INVALID_OPERATION)?;
        // SAFETY: guaranteed by the caller.
        unsafe { store(host_timestamp, host_time()) };
        Ok(())
    }
}

/// "CL_INVALID_DEVICE_TYPE if device_type is not a valid value."
pub(super) fn is_type(device_type: cl_device_type) -> bool {
    const BITS: cl_device_type = CL_DEVICE_TYPE_DEFAULT
        | CL_DEVICE_TYPE_CPU
        | CL_DEVICE_TYPE_GPU
        | CL_DEVICE_TYPE_ACCELERATOR
        | CL_DEVICE_TYPE_CUSTOM;
    device_type == CL_DEVICE_TYPE_ALL || (device_type != 0 && device_type & !BITS == 0)
}

/// Returns the devices of a platform that match `device_type`.
pub(super) fn of_type(platform: &Platform, device_type: cl_device_type) -> Vec<Ref<Device>> {
    let is_custom = |device: &Handle<Device>| device.device_type() & CL_DEVICE_TYPE_CUSTOM != 0;
    // "The default OpenCL device in the system. The default device cannot be a
    // CL_DEVICE_TYPE_CUSTOM device."
    let default = platform.devices().iter().position(|device| !is_custom(device));
    let asked = |at: usize, device: &Handle<Device>| {
        // "All OpenCL devices available in the system except CL_DEVICE_TYPE_CUSTOM devices."
        if device_type == CL_DEVICE_TYPE_ALL {
            return !is_custom(device);
        }
        let kinds = device_type & !CL_DEVICE_TYPE_DEFAULT;
        device.device_type() & kinds != 0
            || (device_type & CL_DEVICE_TYPE_DEFAULT != 0 && Some(at) == default)
    };
    let all = platform.devices().iter().enumerate();
    all.filter(|(at, device)| asked(*at, device)).map(|(_, device)| device.clone()).collect()
}

/// Reads the properties of a partition without the last 0. Unlike other lists it has only one name.
///
/// # Safety
/// `list` is `NULL` or such a list.
unsafe fn partition(list: *const cl_device_partition_property) -> ClResult<Vec<i64>> {
    /// Limit for a list whose end is missing. It is far above the number of parts of any program.
    const COUNTS_MAX: usize = 4096;
    require(!list.is_null(), CL_INVALID_VALUE)?;
    // SAFETY: a list has at least one element.
    let name = unsafe { list.read() };
    let mut properties = vec![name as i64];
    loop {
        // A list of counts ends with a 0 of its own, which another 0 follows.
        let ends = name == 0 || (properties.len() == 2 && name != CL_DEVICE_PARTITION_BY_COUNTS);
        if ends {
            return Ok(properties);
        }
        // SAFETY: the end has not been reached.
        let next = unsafe { list.add(properties.len()).read() };
        properties.push(next as i64);
        if next == CL_DEVICE_PARTITION_BY_COUNTS_LIST_END && name == CL_DEVICE_PARTITION_BY_COUNTS {
            return Ok(properties);
        }
        require(properties.len() < COUNTS_MAX, CL_INVALID_VALUE)?;
    }
}

/// Checks a partition. Returns the number of parts if the client can compute it.
fn expected_parts(device: &Device, properties: &[i64]) -> ClResult<Option<usize>> {
    let name = properties.first().copied().unwrap_or(0);
    // "CL_INVALID_VALUE if values specified in properties are not valid or if values specified in
    // properties are valid but not supported by the device".
    let supported = device.words(CL_DEVICE_PARTITION_PROPERTIES);
    require(name != 0 && supported.iter().any(|known| *known as i64 == name), CL_INVALID_VALUE)?;
    let units = device.number(CL_DEVICE_MAX_COMPUTE_UNITS).cast_signed();
    let values = properties.get(1..).unwrap_or_default();
    match cl_device_partition_property::try_from(name).unwrap_or(0) {
        CL_DEVICE_PARTITION_EQUALLY => {
            let each = values.first().copied().unwrap_or(0);
            require(each > 0, CL_INVALID_VALUE)?;
            // "CL_DEVICE_PARTITION_FAILED if the partition name is supported by the implementation
            // but in_device could not be further partitioned."
            require(each <= units, CL_DEVICE_PARTITION_FAILED)?;
            Ok(usize::try_from(units / each).ok())
        }
        CL_DEVICE_PARTITION_BY_COUNTS => {
            let counts = values.strip_suffix(&[0]).unwrap_or(values);
            // "CL_INVALID_DEVICE_PARTITION_COUNT if ... the number of sub-devices requested exceeds
            // CL_DEVICE_PARTITION_MAX_SUB_DEVICES or the total number of compute units requested
            // exceeds CL_DEVICE_MAX_COMPUTE_UNITS for in_device, or the number of compute units
            // requested for one or more sub-devices is less than zero or the number of sub-devices
            // requested is zero".
            let most = device.number(CL_DEVICE_PARTITION_MAX_SUB_DEVICES);
            let total = counts.iter().try_fold(0i64, |sum, count| sum.checked_add(*count));
            let fits = !counts.is_empty()
                && counts.len() as u64 <= most
                && counts.iter().all(|count| *count >= 0)
                && total.is_some_and(|total| total <= units);
            require(fits, CL_INVALID_DEVICE_PARTITION_COUNT)?;
            Ok(Some(counts.len()))
        }
        _ => Ok(None),
    }
}

fn count(devices: usize) -> cl_uint {
    cl_uint::try_from(devices).unwrap_or(cl_uint::MAX)
}

/// Returns the host's clock in ns, with which programs compare, too.
fn host_time() -> u64 {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: a valid place for the time.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut now) };
    u64::try_from(now.tv_sec).unwrap_or(0) * 1_000_000_000 + u64::try_from(now.tv_nsec).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(list: &[cl_device_partition_property]) -> ClResult<Vec<i64>> {
        // SAFETY: each list of these tests has its end.
        unsafe { partition(list.as_ptr()) }
    }

    #[test]
    fn partitions_are_read_without_their_last_0() {
        assert_eq!(read(&[0]), Ok(vec![0]));
        assert_eq!(read(&[CL_DEVICE_PARTITION_EQUALLY, 2, 0]), Ok(vec![0x1086, 2]));
        assert_eq!(read(&[CL_DEVICE_PARTITION_BY_AFFINITY_DOMAIN, 32, 0]), Ok(vec![0x1088, 32]));
        assert_eq!(read(&[CL_DEVICE_PARTITION_BY_COUNTS, 3, 1, 0, 0]), Ok(vec![0x1087, 3, 1, 0]));
        assert_eq!(read(&[0x4242, 1, 0]), Ok(vec![0x4242, 1]));
        assert_eq!(read(&[CL_DEVICE_PARTITION_BY_COUNTS; 5000]), Err(ClError(CL_INVALID_VALUE)));
        // SAFETY: `NULL` is refused.
        assert_eq!(unsafe { partition(std::ptr::null()) }, Err(ClError(CL_INVALID_VALUE)));
    }

    #[test]
    fn device_types_are_checked() {
        for good in
            [CL_DEVICE_TYPE_ALL, CL_DEVICE_TYPE_DEFAULT, CL_DEVICE_TYPE_CPU | CL_DEVICE_TYPE_GPU]
        {
            assert!(is_type(good));
        }
        for bad in [0, 1 << 20, CL_DEVICE_TYPE_CPU | 1 << 20, u64::MAX] {
            assert!(!is_type(bad));
        }
    }
}
