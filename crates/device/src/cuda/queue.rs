//! Command queues: streams, under OpenCL's name.

use std::sync::Arc;

use penstock_cl_sys::{
    _cl_command_queue, CL_INVALID_QUEUE_PROPERTIES, CL_QUEUE_PROFILING_ENABLE, CL_QUEUE_PROPERTIES,
    cl_command_queue, cl_command_queue_properties, cl_context, cl_device_id, cl_int,
    cl_queue_properties,
};
use penstock_wire::status::Status;

use super::context::Context;
use super::object::{self, Body, Object};
use super::stream::Stream;

/// A queue. When it is dropped, its remaining commands still run.
pub(super) struct Queue {
    pub(super) stream: Arc<Stream>,
}

impl Body for Queue {
    type Raw = _cl_command_queue;
    const TAG: usize = 0x5043_4407;
    const WRONG: Status = Status::INVALID_COMMAND_QUEUE;
}

impl Drop for Queue {
    fn drop(&mut self) {
        self.stream.close();
    }
}

/// Most entries of a list of properties; only one property has a meaning here.
const PROPERTIES_MAX: usize = 16;

unsafe fn make(
    context: cl_context,
    device: cl_device_id,
    properties: cl_command_queue_properties,
) -> Result<cl_command_queue, Status> {
    // SAFETY: the caller passes a live handle of this platform.
    let context = unsafe { object::get::<Context>(context) }?;
    if device != context.device.handle() {
        return Err(Status::INVALID_DEVICE);
    }
    // Streams are in order.
    if properties & !CL_QUEUE_PROFILING_ENABLE != 0 {
        return Err(Status(CL_INVALID_QUEUE_PROPERTIES));
    }
    let stream = Stream::new(context.device, properties != 0)?;
    Ok(object::give(Object::new(Queue { stream })))
}

pub(super) unsafe extern "C" fn create(
    context: cl_context,
    device: cl_device_id,
    properties: cl_command_queue_properties,
    code: *mut cl_int,
) -> cl_command_queue {
    // SAFETY: the caller passes live handles, and null or a writable location.
    unsafe { object::made(code, || make(context, device, properties)) }
}

pub(super) unsafe extern "C" fn create_with_properties(
    context: cl_context,
    device: cl_device_id,
    properties: *const cl_queue_properties,
    code: *mut cl_int,
) -> cl_command_queue {
    let make_it = || {
        let mut bits = 0;
        if !properties.is_null() {
            for index in 0..PROPERTIES_MAX {
                // SAFETY: the list ends with a 0 in place of a name, and none was read so far.
                let name = unsafe { properties.add(2 * index).read() };
                if name == 0 {
                    break;
                }
                if name != cl_queue_properties::from(CL_QUEUE_PROPERTIES) {
                    return Err(Status::INVALID_VALUE);
                }
                // SAFETY: each name is followed by its value.
                bits = unsafe { properties.add(2 * index + 1).read() };
            }
        }
        // SAFETY: the caller passes live handles of this platform.
        unsafe { make(context, device, bits) }
    };
    // SAFETY: the caller passes null or a writable location.
    unsafe { object::made(code, make_it) }
}

pub(super) unsafe extern "C" fn release(queue: cl_command_queue) -> cl_int {
    // SAFETY: the caller gives up its own reference.
    unsafe { object::release::<Queue>(queue) }
}

/// Does nothing: streams start by themselves.
pub(super) unsafe extern "C" fn flush(queue: cl_command_queue) -> cl_int {
    // SAFETY: the caller passes a live handle of this platform.
    object::code(|| unsafe { object::get::<Queue>(queue) }.map(|_| ()))
}

pub(super) unsafe extern "C" fn finish(queue: cl_command_queue) -> cl_int {
    object::code(|| {
        // SAFETY: the caller passes a live handle of this platform.
        unsafe { object::get::<Queue>(queue) }?.stream.finish()
    })
}
