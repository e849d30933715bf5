//! Contexts.

use std::ffi::{CString, c_char, c_void};
use std::ptr::null;
use std::sync::Arc;

use super::device::{is_type, of_type};
use crate::core::context::{Context, Notify};
use crate::core::device::Device;
use crate::core::platform::Platform;
use crate::core::pool::platforms;
use crate::edge::{
    Answer, ClError, ClResult, Handle, Object, Ref, UserData, array, cl_entry, functions,
    properties, require,
};
use penstock_cl_sys::*;

functions! {
    slots {
        clCreateContext, clCreateContextFromType, clRetainContext, clReleaseContext,
        clGetContextInfo, clSetContextDestructorCallback,
    }
}

type NotifyFn = Option<unsafe extern "C" fn(*const c_char, *const c_void, usize, *mut c_void)>;
type DestructorFn = Option<unsafe extern "C" fn(cl_context, *mut c_void)>;

cl_entry! {
    fn clCreateContext(
        list: *const cl_context_properties,
        num_devices: cl_uint,
        devices: *const cl_device_id,
        pfn_notify: NotifyFn,
        user_data: *mut c_void,
    ) -> ClResult<cl_context> {
        // SAFETY: guaranteed by the caller.
        let (platform, list) = unsafe { read_properties(list) }?;
        // "CL_INVALID_VALUE if devices is NULL or if num_devices is equal to zero."
        require(num_devices != 0, CL_INVALID_VALUE)?;
        // SAFETY: guaranteed by the caller.
        let devices = unsafe { array(devices, num_devices as usize, CL_INVALID_VALUE) }?;
        let notify = notify(pfn_notify, user_data)?;
        create(platform, list, Device::borrow_all(devices)?, notify)
    }

    fn clCreateContextFromType(
        list: *const cl_context_properties,
        device_type: cl_device_type,
        pfn_notify: NotifyFn,
        user_data: *mut c_void,
    ) -> ClResult<cl_context> {
        // SAFETY: guaranteed by the caller.
        let (platform, list) = unsafe { read_properties(list) }?;
        let notify = notify(pfn_notify, user_data)?;
        require(is_type(device_type), CL_INVALID_DEVICE_TYPE)?;
        // "CL_INVALID_PLATFORM if properties is NULL and no platform could be selected".
        let platform = platform.or_else(|| platforms().first().cloned()).ok_or(ClError(CL_INVALID_PLATFORM))?;
        let devices = of_type(&platform, device_type);
        // "CL_DEVICE_NOT_FOUND if no devices that match device_type ... were found."
        require(!devices.is_empty(), CL_DEVICE_NOT_FOUND)?;
        create(Some(platform), list, devices, notify)
    }
}

cl_entry! {
    fn clRetainContext(context: cl_context) -> ClResult<()> {
        Context::retain(context)
    }

    fn clReleaseContext(context: cl_context) -> ClResult<()> {
        Context::release(context)
    }

    fn clGetContextInfo(
        context: cl_context,
        name: cl_context_info,
        size: usize,
        value: *mut c_void,
        size_ret: *mut usize,
    ) -> ClResult<()> {
        let context = Context::borrow(context)?;
        // SAFETY: guaranteed by the caller.
        let answer = unsafe { Answer::new(size, value, size_ret) };
        match name {
            CL_CONTEXT_REFERENCE_COUNT => answer.value(context.references()),
            CL_CONTEXT_NUM_DEVICES => answer.value(cl_uint::try_from(context.devices.len()).unwrap_or(cl_uint::MAX)),
            CL_CONTEXT_DEVICES => answer.values(&context.devices.iter().map(Handle::raw).collect::<Vec<_>>()),
            CL_CONTEXT_PROPERTIES => answer.values(&context.properties),
            _ => Err(ClError(CL_INVALID_VALUE)),
        }
    }

    fn clSetContextDestructorCallback(
        context: cl_context,
        pfn_notify: DestructorFn,
        user_data: *mut c_void,
    ) -> ClResult<()> {
        let handle = Context::borrow(context)?;
        let notify = pfn_notify.ok_or(ClError(CL_INVALID_VALUE))?;
        let (context, user_data) = (UserData::new(context.cast()), UserData::new(user_data));
        handle.on_destruction(Box::new(move || {
            // SAFETY: calls the program's function with the arguments that it expects.
            unsafe { notify(context.get().cast(), user_data.get()) }
        }));
        Ok(())
    }
}

/// Returns the platform, if the list names one, and the list itself with its final 0.
///
/// # Safety
/// `list` is `NULL` or a property list.
unsafe fn read_properties(
    list: *const cl_context_properties,
) -> ClResult<(Option<Ref<Platform>>, Vec<cl_context_properties>)> {
    // SAFETY: guaranteed by the caller.
    let pairs = unsafe { properties(list, CL_INVALID_PROPERTY) }?;
    let mut platform = None;
    for (at, (name, value)) in pairs.iter().enumerate() {
        // "CL_INVALID_PROPERTY if context property name in properties is not a supported property
        // name, if the value specified for a supported property name is not valid, or if the same
        // property name is specified more than once."
        let again = pairs.iter().take(at).any(|(earlier, _)| earlier == name);
        require(!again, CL_INVALID_PROPERTY)?;
        match u32::try_from(*name) {
            Ok(CL_CONTEXT_PLATFORM) => {
                let raw = std::ptr::with_exposed_provenance_mut(value.cast_unsigned());
                platform = Some(Platform::borrow(raw)?);
            }
            // No graphics API reaches a device of another process, so nothing needs this.
            Ok(CL_CONTEXT_INTEROP_USER_SYNC) => {
                require(matches!(value, 0 | 1), CL_INVALID_PROPERTY)?
            }
            _ => return Err(ClError(CL_INVALID_PROPERTY)),
        }
    }
    let end = (!list.is_null()).then_some(0);
    Ok((platform, pairs.into_iter().flat_map(|(name, value)| [name, value]).chain(end).collect()))
}

fn notify(function: NotifyFn, user_data: *mut c_void) -> ClResult<Option<Arc<Notify>>> {
    let Some(function) = function else {
        // "CL_INVALID_VALUE if pfn_notify is NULL but user_data is not NULL."
        require(user_data.is_null(), CL_INVALID_VALUE)?;
        return Ok(None);
    };
    let user_data = UserData::new(user_data);
    Ok(Some(Arc::new(move |message: &str| {
        let message = CString::new(message.replace('\0', " ")).unwrap_or_default();
        // SAFETY: calls the program's function. The message outlives the call.
        unsafe { function(message.as_ptr(), null(), 0, user_data.get()) }
    })))
}

fn create(
    platform: Option<Ref<Platform>>,
    list: Vec<cl_context_properties>,
    mut devices: Vec<Ref<Device>>,
    notify: Option<Arc<Notify>>,
) -> ClResult<cl_context> {
    let first = devices.first().ok_or(ClError(CL_INVALID_VALUE))?;
    let platform = platform.unwrap_or_else(|| first.platform.clone());
    // "CL_INVALID_DEVICE if any device in devices is not a valid device or is not associated with
    // the specified platform."
    let own = devices.iter().all(|device| Arc::ptr_eq(&device.platform, &platform));
    require(own, CL_INVALID_DEVICE)?;
    // "CL_DEVICE_NOT_AVAILABLE if a device in devices is currently not available".
    require(
        !devices.iter().any(|device| device.pool.session().is_lost()),
        CL_DEVICE_NOT_AVAILABLE,
    )?;
    // "Duplicate devices specified in devices are ignored."
    let mut seen = Vec::new();
    devices.retain(|device| {
        let new = !seen.contains(&device.raw());
        seen.push(device.raw());
        new
    });
    let in_pool: Vec<_> = devices.iter().map(|device| device.pool.clone()).collect();
    let pool = penstock_client::Context::new(&in_pool)?;
    Ok(Handle::create(&*platform, Context::new(pool, devices, list, notify)).raw())
}
