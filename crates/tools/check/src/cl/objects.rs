//! Objects, events and waits.

use std::ffi::c_void;
use std::sync::Arc;

use super::{Cl, MISSING, call, code, sys};
use crate::backend::{At, Backend, Call, Ended, Enqueued, Handle, Origin, Setter, Shape};
use sys::{cl_command_queue, cl_context, cl_event, cl_mem};

/// Pixel format of all images: four bytes per pixel.
pub(super) static FORMAT: sys::cl_image_format = sys::cl_image_format {
    image_channel_order: sys::CL_RGBA,
    image_channel_data_type: sys::CL_UNSIGNED_INT8,
};

impl Cl {
    fn pointer(&self, at: At, len: usize) -> Result<*mut c_void, i32> {
        let areas = self.areas.read();
        areas.address(at, len).map(|address| address as *mut c_void).ok_or(MISSING)
    }
}

impl Backend for Cl {
    fn new_context(&self, devices: &[usize]) -> Result<Handle, i32> {
        self.context(devices)
    }

    fn new_queue(
        &self,
        context: Handle,
        device: usize,
        out_of_order: bool,
        profiling: bool,
    ) -> Result<Handle, i32> {
        let mut properties = 0;
        if out_of_order {
            properties |= sys::CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE;
        }
        if profiling {
            properties |= sys::CL_QUEUE_PROFILING_ENABLE;
        }
        let (context, device) = (context.0, self.devices[device]);
        let mut error = 0;
        let queue = call!(
            self,
            clCreateCommandQueue(context as cl_context, device, properties, &raw mut error)
        );
        code(error)?;
        self.queues.lock().insert(queue as usize, context);
        Ok(Handle(queue as usize))
    }

    fn new_buffer(&self, context: Handle, size: usize, origin: Origin) -> Result<Handle, i32> {
        let (flags, host) = match origin {
            Origin::Plain => (sys::CL_MEM_READ_WRITE, std::ptr::null_mut()),
            Origin::Alloc => (sys::CL_MEM_ALLOC_HOST_PTR, std::ptr::null_mut()),
            Origin::Copy(at) => (sys::CL_MEM_COPY_HOST_PTR, self.pointer(at, size)?),
            Origin::Use(at) => (sys::CL_MEM_USE_HOST_PTR, self.pointer(at, size)?),
        };
        let mut error = 0;
        let mem =
            call!(self, clCreateBuffer(context.0 as cl_context, flags, size, host, &raw mut error));
        code(error)?;
        Ok(Handle(mem as usize))
    }

    fn new_sub(&self, parent: Handle, origin: usize, size: usize) -> Result<Handle, i32> {
        let region = sys::cl_buffer_region { origin, size };
        let place = (&raw const region).cast::<c_void>();
        let mut error = 0;
        let kind = sys::CL_BUFFER_CREATE_TYPE_REGION;
        let mem = call!(
            self,
            clCreateSubBuffer(
                parent.0 as cl_mem,
                sys::CL_MEM_READ_WRITE,
                kind,
                place,
                &raw mut error
            )
        );
        code(error)?;
        Ok(Handle(mem as usize))
    }

    fn new_image(&self, context: Handle, shape: Shape, init: Option<At>) -> Result<Handle, i32> {
        let (kind, width, height, buffer) = match shape {
            Shape::Plane { width, height } => (sys::CL_MEM_OBJECT_IMAGE2D, width, height, 0),
            Shape::View { pixels, buffer } => {
                (sys::CL_MEM_OBJECT_IMAGE1D_BUFFER, pixels, 0, buffer.0)
            }
        };
        let (flags, host) = match init {
            Some(at) => (sys::CL_MEM_COPY_HOST_PTR, self.pointer(at, width * height * 4)?),
            None => (sys::CL_MEM_READ_WRITE, std::ptr::null_mut()),
        };
        let description = sys::cl_image_desc {
            image_type: kind,
            image_width: width,
            image_height: height,
            image_depth: 0,
            image_array_size: 0,
            image_row_pitch: 0,
            image_slice_pitch: 0,
            num_mip_levels: 0,
            num_samples: 0,
            __bindgen_anon_1: sys::_cl_image_desc__bindgen_ty_1 { mem_object: buffer as cl_mem },
        };
        let (mut error, context) = (0, context.0 as cl_context);
        let mem = call!(
            self,
            clCreateImage(
                context,
                flags,
                &raw const FORMAT,
                &raw const description,
                host,
                &raw mut error
            )
        );
        code(error)?;
        Ok(Handle(mem as usize))
    }

    fn new_svm(&self, context: Handle, size: usize) -> Result<Handle, i32> {
        let memory =
            call!(self, clSVMAlloc(context.0 as cl_context, sys::CL_MEM_READ_WRITE, size, 0));
        // clSVMAlloc returns no error code.
        if memory.is_null() { Err(sys::CL_OUT_OF_RESOURCES) } else { Ok(Handle(memory as usize)) }
    }

    fn new_gate(&self, context: Handle) -> Result<Handle, i32> {
        let mut error = 0;
        let event = call!(self, clCreateUserEvent(context.0 as cl_context, &raw mut error));
        code(error)?;
        Ok(Handle(event as usize))
    }

    fn drop_queue(&self, queue: Handle) -> i32 {
        call!(self, clReleaseCommandQueue(queue.0 as cl_command_queue))
    }

    fn drop_mem(&self, mem: Handle, svm: Option<Handle>) -> i32 {
        match svm {
            Some(context) => {
                call!(self, clSVMFree(context.0 as cl_context, mem.0 as *mut c_void));
                0
            }
            None => call!(self, clReleaseMemObject(mem.0 as cl_mem)),
        }
    }

    fn drop_event(&self, event: Handle) -> i32 {
        call!(self, clReleaseEvent(event.0 as cl_event))
    }

    fn set_gate(&self, event: Handle, status: i32) -> i32 {
        call!(self, clSetUserEventStatus(event.0 as cl_event, status))
    }

    fn enqueue(
        &self,
        queue: Handle,
        what: &Call,
        wait: &[Handle],
        wants_event: bool,
        blocking: bool,
    ) -> Result<Enqueued, i32> {
        self.send(queue, what, wait, wants_event, blocking)
    }

    fn flush(&self, queue: Handle) -> i32 {
        call!(self, clFlush(queue.0 as cl_command_queue))
    }

    fn finish(&self, queue: Handle) -> i32 {
        call!(self, clFinish(queue.0 as cl_command_queue))
    }

    fn wait(&self, events: &[Handle]) -> i32 {
        let list: Vec<cl_event> = events.iter().map(|event| event.0 as cl_event).collect();
        let count = u32::try_from(list.len()).unwrap_or(0);
        call!(self, clWaitForEvents(count, list.as_ptr()))
    }

    fn status(&self, event: Handle) -> Result<i32, i32> {
        let (mut status, name) = (0_i32, sys::CL_EVENT_COMMAND_EXECUTION_STATUS);
        let place = (&raw mut status).cast::<c_void>();
        code(call!(
            self,
            clGetEventInfo(event.0 as cl_event, name, 4, place, std::ptr::null_mut())
        ))?;
        Ok(status)
    }

    fn times(&self, event: Handle) -> Result<[u64; 4], i32> {
        let names = [
            sys::CL_PROFILING_COMMAND_QUEUED,
            sys::CL_PROFILING_COMMAND_SUBMIT,
            sys::CL_PROFILING_COMMAND_START,
            sys::CL_PROFILING_COMMAND_END,
        ];
        let mut times = [0_u64; 4];
        for (time, name) in times.iter_mut().zip(names) {
            let (event, place) = (event.0 as cl_event, std::ptr::from_mut(time).cast::<c_void>());
            code(call!(
                self,
                clGetEventProfilingInfo(event, name, 8, place, std::ptr::null_mut())
            ))?;
        }
        Ok(times)
    }

    fn on_end(&self, event: Handle, ended: Ended) -> i32 {
        // The callback runs once and takes ownership of this box.
        let data = Box::into_raw(Box::new(ended)).cast::<c_void>();
        let event = event.0 as cl_event;
        call!(self, clSetEventCallback(event, sys::CL_COMPLETE, Some(event_ended), data))
    }

    fn setter(&self) -> Setter {
        let Some(set) = self.functions.clSetUserEventStatus else { return Arc::new(|_, _| {}) };
        Arc::new(move |event, status| {
            // SAFETY: the event is a user event, and the program releases it only after it is set.
            unsafe { set(event.0 as cl_event, status) };
        })
    }

    fn new_area(&self, len: usize) -> Handle {
        self.areas.write().array(len)
    }

    fn drop_area(&self, area: Handle) {
        self.areas.write().remove(area);
    }

    fn load(&self, at: At, len: usize) -> Vec<u8> {
        self.areas.read().load(at, len)
    }

    fn store(&self, at: At, bytes: &[u8]) {
        self.areas.read().store(at, bytes);
    }
}

unsafe extern "C" fn event_ended(_: cl_event, status: i32, data: *mut c_void) {
    // SAFETY: `on_end` made the pointer with `Box::into_raw`, and the callback runs once.
    let ended = unsafe { Box::from_raw(data.cast::<Ended>()) };
    ended(status);
}
