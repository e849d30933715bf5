//! Command queues.

use std::ffi::c_void;
use std::sync::Arc;

use crate::core::context::Context;
use crate::core::device::Device;
use crate::core::queue::Queue;
use crate::edge::{
    Answer, ClError, ClResult, Handle, Object, Ref, cl_entry, functions, properties, require,
};
use penstock_cl_sys::*;

functions! {
    slots {
        clCreateCommandQueue, clCreateCommandQueueWithProperties, clRetainCommandQueue,
        clReleaseCommandQueue, clGetCommandQueueInfo, clSetCommandQueueProperty,
        clSetDefaultDeviceCommandQueue, clFlush, clFinish,
    }
    named { clCreateCommandQueueWithPropertiesKHR }
}

const ORDER_AND_TIMES: cl_command_queue_properties =
    CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE | CL_QUEUE_PROFILING_ENABLE;

cl_entry! {
    fn clCreateCommandQueueWithProperties(
        context: cl_context,
        device: cl_device_id,
        list: *const cl_queue_properties,
    ) -> ClResult<cl_command_queue> {
        let (context, device) = find(context, device)?;
        // SAFETY: guaranteed by the caller.
        let pairs = unsafe { properties(list, CL_INVALID_VALUE) }?;
        let (bits, size) = read_properties(&pairs)?;
        check(&device, bits, size)?;
        let end = (!list.is_null()).then_some(0);
        let list = pairs.into_iter().flat_map(|(name, value)| [name, value]).chain(end).collect();
        create(context, device, bits, Some(list), size)
    }

    /// Same as `clCreateCommandQueueWithProperties`, for devices of OpenCL 1.2
    /// (`cl_khr_create_command_queue`).
    fn clCreateCommandQueueWithPropertiesKHR(
        context: cl_context,
        device: cl_device_id,
        list: *const cl_queue_properties,
    ) -> ClResult<cl_command_queue> {
        let mut code = CL_SUCCESS;
        // SAFETY: guaranteed by the caller.
        let queue = unsafe { clCreateCommandQueueWithProperties(context, device, list, &raw mut code) };
        require(code == CL_SUCCESS, code)?;
        Ok(queue)
    }

    /// Deprecated since OpenCL 2.0.
    fn clCreateCommandQueue(
        context: cl_context,
        device: cl_device_id,
        bits: cl_command_queue_properties,
    ) -> ClResult<cl_command_queue> {
        let (context, device) = find(context, device)?;
        // "CL_INVALID_VALUE if values specified in properties are not valid."
        require(bits & !ORDER_AND_TIMES == 0, CL_INVALID_VALUE)?;
        check(&device, bits, None)?;
        create(context, device, bits, None, None)
    }
}

cl_entry! {
    fn clRetainCommandQueue(queue: cl_command_queue) -> ClResult<()> {
        Queue::retain(queue)
    }

    /// "performs an implicit flush to issue any previously queued OpenCL commands"
    fn clReleaseCommandQueue(queue: cl_command_queue) -> ClResult<()> {
        let handle = Queue::borrow(queue)?;
        if handle.references() <= 1 && !handle.is_on_device() {
            // A lost node has nothing to flush, and the release cannot fail because of it.
            _ = handle.pool.flush();
        }
        drop(handle);
        Queue::release(queue)
    }

    fn clGetCommandQueueInfo(
        queue: cl_command_queue,
        name: cl_command_queue_info,
        size: usize,
        value: *mut c_void,
        size_ret: *mut usize,
    ) -> ClResult<()> {
        let queue = Queue::borrow(queue)?;
        // SAFETY: guaranteed by the caller.
        let answer = unsafe { Answer::new(size, value, size_ret) };
        match name {
            CL_QUEUE_CONTEXT => answer.value(queue.context.raw()),
            CL_QUEUE_DEVICE => answer.value(queue.device.raw()),
            CL_QUEUE_REFERENCE_COUNT => answer.value(queue.references()),
            CL_QUEUE_PROPERTIES => answer.value(queue.properties()),
            CL_QUEUE_PROPERTIES_ARRAY => answer.values(queue.list.as_deref().unwrap_or_default()),
            // "CL_INVALID_COMMAND_QUEUE if command_queue ... is not a valid command-queue for
            // param_name."
            CL_QUEUE_SIZE => {
                require(queue.is_on_device(), CL_INVALID_COMMAND_QUEUE)?;
                answer.value(queue.size)
            }
            CL_QUEUE_DEVICE_DEFAULT => {
                let default = queue.context.default_queue(&queue.device);
                answer.value(default.as_ref().map_or(std::ptr::null_mut(), Handle::raw))
            }
            _ => Err(ClError(CL_INVALID_VALUE)),
        }
    }

    /// Deprecated since OpenCL 1.1, which says: "CL_INVALID_OPERATION if no devices in context
    /// support it"; no device does.
    fn clSetCommandQueueProperty(
        queue: cl_command_queue,
        _properties: cl_command_queue_properties,
        _enable: cl_bool,
        _old_properties: *mut cl_command_queue_properties,
    ) -> ClResult<()> {
        Queue::borrow(queue)?;
        Err(ClError(CL_INVALID_OPERATION))
    }

    /// Always fails: the protocol has no such call, because no known driver has such a device.
    fn clSetDefaultDeviceCommandQueue(
        context: cl_context,
        device: cl_device_id,
        queue: cl_command_queue,
    ) -> ClResult<()> {
        let (context, device) = find(context, device)?;
        // "CL_INVALID_OPERATION if device does not support a replaceable default on-device queue."
        require(device.number(CL_DEVICE_DEVICE_ENQUEUE_CAPABILITIES) & CL_DEVICE_QUEUE_REPLACEABLE_DEFAULT != 0, CL_INVALID_OPERATION)?;
        let queue = Queue::borrow(queue)?;
        // "CL_INVALID_COMMAND_QUEUE if command_queue is not a valid command-queue for device."
        let fits = queue.is_on_device() && Arc::ptr_eq(&queue.device, &device) && Arc::ptr_eq(&queue.context, &context);
        require(fits, CL_INVALID_COMMAND_QUEUE)?;
        Err(ClError(CL_INVALID_OPERATION))
    }

    fn clFlush(queue: cl_command_queue) -> ClResult<()> {
        Ok(Queue::borrow_host(queue)?.pool.flush()?)
    }

    fn clFinish(queue: cl_command_queue) -> ClResult<()> {
        Ok(Queue::borrow_host(queue)?.pool.finish()?)
    }
}

fn find(context: cl_context, device: cl_device_id) -> ClResult<(Ref<Context>, Ref<Device>)> {
    let (context, device) = (Context::borrow(context)?, Device::borrow(device)?);
    // "CL_INVALID_DEVICE if device is not a valid device or is not associated with context."
    require(context.has(&device), CL_INVALID_DEVICE)?;
    Ok((context, device))
}

/// Returns the values of `CL_QUEUE_PROPERTIES` and `CL_QUEUE_SIZE`.
fn read_properties(
    pairs: &[(cl_queue_properties, cl_queue_properties)],
) -> ClResult<(cl_command_queue_properties, Option<cl_uint>)> {
    const KNOWN: cl_command_queue_properties =
        ORDER_AND_TIMES | CL_QUEUE_ON_DEVICE | CL_QUEUE_ON_DEVICE_DEFAULT;
    let (mut bits, mut size) = (None, None);
    for (name, value) in pairs {
        // "CL_INVALID_VALUE if values specified in properties are not valid."
        let new = match u32::try_from(*name) {
            Ok(CL_QUEUE_PROPERTIES) => bits.replace(*value).is_none() && value & !KNOWN == 0,
            Ok(CL_QUEUE_SIZE) => {
                let value = cl_uint::try_from(*value).map_err(|_| ClError(CL_INVALID_VALUE))?;
                size.replace(value).is_none()
            }
            _ => false,
        };
        require(new, CL_INVALID_VALUE)?;
    }
    let bits = bits.unwrap_or(0);
    let on_device = bits & CL_QUEUE_ON_DEVICE != 0;
    // "If CL_QUEUE_ON_DEVICE is set, CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE must also be set." Only
    // device queues can be default queues and have a size.
    require(!on_device || bits & CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE != 0, CL_INVALID_VALUE)?;
    require(
        on_device || (bits & CL_QUEUE_ON_DEVICE_DEFAULT == 0 && size.is_none()),
        CL_INVALID_VALUE,
    )?;
    Ok((bits, size))
}

/// "CL_INVALID_QUEUE_PROPERTIES if values specified in properties are valid but are not supported
/// by the device."
fn check(device: &Device, bits: cl_command_queue_properties, size: Option<cl_uint>) -> ClResult {
    let asked = bits & ORDER_AND_TIMES;
    if bits & CL_QUEUE_ON_DEVICE == 0 {
        return require(
            asked & !device.number(CL_DEVICE_QUEUE_ON_HOST_PROPERTIES) == 0,
            CL_INVALID_QUEUE_PROPERTIES,
        );
    }
    require(
        asked & !device.number(CL_DEVICE_QUEUE_ON_DEVICE_PROPERTIES) == 0,
        CL_INVALID_QUEUE_PROPERTIES,
    )?;
    let most = device.number(CL_DEVICE_QUEUE_ON_DEVICE_MAX_SIZE);
    require(u64::from(size.unwrap_or(0)) <= most, CL_INVALID_QUEUE_PROPERTIES)
}

fn create(
    context: Ref<Context>,
    device: Ref<Device>,
    bits: cl_command_queue_properties,
    list: Option<Vec<cl_queue_properties>>,
    size: Option<cl_uint>,
) -> ClResult<cl_command_queue> {
    let is_default = bits & CL_QUEUE_ON_DEVICE_DEFAULT != 0;
    // "If a default device queue has already been created for the device, the existing one is
    // returned and retained."
    if is_default && let Some(queue) = context.default_queue(&device) {
        Queue::retain(queue.raw())?;
        return Ok(queue.raw());
    }
    let pool = penstock_client::Queue::new(&context.pool, &device.pool, bits, size.unwrap_or(0))?;
    let preferred =
        || cl_uint::try_from(device.number(CL_DEVICE_QUEUE_ON_DEVICE_PREFERRED_SIZE)).unwrap_or(0);
    let size = size.unwrap_or_else(preferred);
    let queue = Queue::new(pool, context.clone(), device.clone(), bits, list, size);
    let queue = Handle::create(&*context, queue);
    context.add_queue(&queue);
    if is_default {
        context.set_default_queue(&queue);
    }
    Ok(queue.raw())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn property_lists_are_checked() {
        const ON_DEVICE: u64 = CL_QUEUE_ON_DEVICE | CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE;
        let (bits, size) = (u64::from(CL_QUEUE_PROPERTIES), u64::from(CL_QUEUE_SIZE));
        assert_eq!(read_properties(&[]), Ok((0, None)));
        assert_eq!(
            read_properties(&[(bits, CL_QUEUE_PROFILING_ENABLE)]),
            Ok((CL_QUEUE_PROFILING_ENABLE, None))
        );
        assert_eq!(read_properties(&[(size, 64), (bits, ON_DEVICE)]), Ok((ON_DEVICE, Some(64))));
        for wrong in [
            vec![(bits, 1 << 20)],
            vec![(0x4242, 1)],
            vec![(u64::MAX, 1)],
            vec![(bits, 0), (bits, 0)],
            vec![(bits, CL_QUEUE_ON_DEVICE)],
            vec![(bits, CL_QUEUE_ON_DEVICE_DEFAULT)],
            vec![(size, 64)],
            vec![(bits, ON_DEVICE), (size, 1 << 32)],
        ] {
            assert_eq!(read_properties(&wrong), Err(ClError(CL_INVALID_VALUE)), "{wrong:?}");
        }
    }
}
