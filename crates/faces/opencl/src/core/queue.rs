//! Command queues.

use std::sync::Arc;

use penstock_cl_sys::{
    _cl_command_queue, CL_INVALID_COMMAND_QUEUE, CL_QUEUE_ON_DEVICE, CL_QUEUE_PROFILING_ENABLE,
    cl_command_queue_properties, cl_int, cl_queue_properties, cl_uint,
};

use super::context::Context;
use super::device::Device;
use crate::edge::{ClResult, Object, Ref, require};

/// Object behind a `cl_command_queue`.
#[derive(Debug)]
pub(crate) struct Queue {
    pub(crate) pool: Arc<penstock_client::Queue>,
    pub(crate) context: Ref<Context>,
    pub(crate) device: Ref<Device>,
    properties: cl_command_queue_properties,
    /// The program's list with its final 0; `None` if it created the queue without a list.
    pub(crate) list: Option<Vec<cl_queue_properties>>,
    /// Size in bytes of a device queue: `CL_QUEUE_SIZE`.
    pub(crate) size: cl_uint,
}

impl Object for Queue {
    type Raw = _cl_command_queue;
    const INVALID: cl_int = CL_INVALID_COMMAND_QUEUE;
}

impl Queue {
    pub(crate) fn new(
        pool: Arc<penstock_client::Queue>,
        context: Ref<Context>,
        device: Ref<Device>,
        properties: cl_command_queue_properties,
        list: Option<Vec<cl_queue_properties>>,
        size: cl_uint,
    ) -> Self {
        Self { pool, context, device, properties, list, size }
    }

    /// Returns the queue of a handle if it is a host queue.
    ///
    /// # Errors
    /// "CL_INVALID_COMMAND_QUEUE if command_queue is not a valid host command-queue."
    pub(crate) fn borrow_host(raw: *mut _cl_command_queue) -> ClResult<Ref<Self>> {
        let queue = Self::borrow(raw)?;
        require(!queue.is_on_device(), CL_INVALID_COMMAND_QUEUE)?;
        Ok(queue)
    }

    /// Returns whether this is a device queue, which only kernels fill.
    pub(crate) fn is_on_device(&self) -> bool {
        self.properties & CL_QUEUE_ON_DEVICE != 0
    }

    /// Returns `CL_QUEUE_PROPERTIES` of the queue.
    pub(crate) fn properties(&self) -> cl_command_queue_properties {
        self.properties
    }

    /// Returns whether commands of this queue have profiling times.
    pub(crate) fn profiles(&self) -> bool {
        self.properties() & CL_QUEUE_PROFILING_ENABLE != 0
    }
}
