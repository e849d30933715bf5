//! Contexts: a device's primary context, under OpenCL's name.

use std::ffi::{c_char, c_void};

use penstock_cl_sys::{
    _cl_context, cl_context, cl_context_properties, cl_device_id, cl_image_format, cl_int,
    cl_mem_flags, cl_mem_object_type, cl_uint,
};
use penstock_wire::status::Status;

use super::device::Device;
use super::object::{self, Body, Object};

pub(super) struct Context {
    pub(super) device: &'static Object<Device>,
}

impl Body for Context {
    type Raw = _cl_context;
    const TAG: usize = 0x5043_4402;
    const WRONG: Status = Status::INVALID_CONTEXT;
}

/// Type of the callback for errors in a context. It is never called here.
type Notify = Option<unsafe extern "C" fn(*const c_char, *const c_void, usize, *mut c_void)>;

pub(super) unsafe extern "C" fn create(
    _properties: *const cl_context_properties,
    count: cl_uint,
    devices: *const cl_device_id,
    _notify: Notify,
    _data: *mut c_void,
    code: *mut cl_int,
) -> cl_context {
    let make = || {
        // Memory belongs to one GPU; the session moves content between contexts.
        if count != 1 || devices.is_null() {
            return Err(Status::INVALID_DEVICE);
        }
        // SAFETY: the list has one entry, a handle of this platform; devices are never freed.
        let device = unsafe { object::get::<Device>(devices.read()) }?;
        device.enter()?;
        Ok(object::give(Object::new(Context { device })))
    };
    // SAFETY: `code` is the caller's, null or writable.
    unsafe { object::made(code, make) }
}

pub(super) unsafe extern "C" fn release(context: cl_context) -> cl_int {
    // SAFETY: the caller gives up its own reference.
    unsafe { object::release::<Context>(context) }
}

/// Reports no image formats, because there are no images.
pub(super) unsafe extern "C" fn image_formats(
    context: cl_context,
    _flags: cl_mem_flags,
    _image_type: cl_mem_object_type,
    _count: cl_uint,
    _list: *mut cl_image_format,
    number: *mut cl_uint,
) -> cl_int {
    object::code(|| {
        // SAFETY: the caller passes a live handle of this platform.
        unsafe { object::get::<Context>(context) }?;
        if !number.is_null() {
            // SAFETY: not null, so the caller made it writable.
            unsafe { number.write(0) };
        }
        Ok(())
    })
}
