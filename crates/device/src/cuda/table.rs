//! The dispatch table that begins every object. [`function`] finds its functions without an ICD
//! loader.

use std::ffi::{CStr, c_void};

use penstock_cl_sys::{SLOTS, cl_icd_dispatch, slot};

use super::{
    context, device, enqueue, event, kernel, memory, platform, program, queue, refused, transfer,
};

/// A table without any function.
// SAFETY: the table is `SLOTS` pointers to functions, each of which may be null.
const EMPTY: cl_icd_dispatch = unsafe {
    std::mem::transmute::<[*const c_void; SLOTS], cl_icd_dispatch>([std::ptr::null(); SLOTS])
};

/// The table, never changed.
struct Shared(cl_icd_dispatch);
// SAFETY: its pointers are to code and never change.
unsafe impl Sync for Shared {}

macro_rules! table {
    ($($name:ident: $function:expr,)*) => {
        static TABLE: Shared = Shared(cl_icd_dispatch { $($name: Some($function),)* ..EMPTY });

        /// Name and slot of each function of the table.
        const NAMES: &[(&str, usize)] = &[$((stringify!($name), slot!($name)),)*];
    };
}

table! {
    clGetPlatformIDs: platform::get_ids,
    clGetPlatformInfo: platform::get_info,
    clGetDeviceIDs: device::get_ids,
    clGetDeviceInfo: device::get_info,
    clCreateSubDevices: refused::sub_devices,
    clRetainDevice: device::release,
    clReleaseDevice: device::release,
    clCreateContext: context::create,
    clReleaseContext: context::release,
    clGetSupportedImageFormats: context::image_formats,
    clCreateCommandQueue: queue::create,
    clCreateCommandQueueWithProperties: queue::create_with_properties,
    clReleaseCommandQueue: queue::release,
    clFlush: queue::flush,
    clFinish: queue::finish,
    clCreateBuffer: memory::create,
    clCreateSubBuffer: memory::create_part,
    clReleaseMemObject: memory::release,
    clSetMemObjectDestructorCallback: memory::set_destructor,
    clGetMemObjectInfo: memory::get_info,
    clCreateImage: refused::image,
    clGetImageInfo: refused::image_info,
    clCreatePipe: refused::pipe,
    clCreateSampler: refused::sampler,
    clCreateSamplerWithProperties: refused::sampler_with_properties,
    clReleaseSampler: refused::release_sampler,
    clCreateProgramWithSource: refused::with_source,
    clCreateProgramWithBinary: program::with_binary,
    clCreateProgramWithBuiltInKernels: refused::built_in,
    clCreateProgramWithIL: refused::with_il,
    clReleaseProgram: program::release,
    clBuildProgram: program::build,
    clCompileProgram: refused::compile,
    clLinkProgram: refused::link,
    clSetProgramSpecializationConstant: refused::spec_constant,
    clUnloadPlatformCompiler: refused::unload_compiler,
    clGetProgramInfo: program::get_info,
    clGetProgramBuildInfo: program::get_build_info,
    clCreateKernel: kernel::create,
    clCloneKernel: kernel::duplicate,
    clReleaseKernel: kernel::release,
    clSetKernelArg: kernel::set_arg,
    clSetKernelArgSVMPointer: refused::svm_arg,
    clSetKernelExecInfo: refused::exec_info,
    clGetKernelInfo: kernel::get_info,
    clGetKernelArgInfo: kernel::get_arg_info,
    clGetKernelWorkGroupInfo: kernel::get_work_group_info,
    clGetKernelSubGroupInfo: refused::sub_group_info,
    clWaitForEvents: event::wait,
    clGetEventInfo: event::get_info,
    clCreateUserEvent: event::create_user,
    clReleaseEvent: event::release,
    clSetUserEventStatus: event::set_user_status,
    clSetEventCallback: event::set_callback,
    clGetEventProfilingInfo: event::get_profiling_info,
    clEnqueueReadBuffer: transfer::read,
    clEnqueueReadBufferRect: transfer::read_rect,
    clEnqueueWriteBuffer: transfer::write,
    clEnqueueWriteBufferRect: transfer::write_rect,
    clEnqueueFillBuffer: transfer::fill,
    clEnqueueCopyBuffer: transfer::copy,
    clEnqueueCopyBufferRect: transfer::copy_rect,
    clEnqueueReadImage: refused::read_image,
    clEnqueueWriteImage: refused::write_image,
    clEnqueueFillImage: refused::fill_image,
    clEnqueueCopyImage: refused::copy_image,
    clEnqueueCopyImageToBuffer: refused::image_to_buffer,
    clEnqueueCopyBufferToImage: refused::buffer_to_image,
    clEnqueueMigrateMemObjects: enqueue::migrate,
    clEnqueueNDRangeKernel: enqueue::launch,
    clEnqueueMarkerWithWaitList: enqueue::marker,
    clEnqueueBarrierWithWaitList: enqueue::barrier,
    clGetExtensionFunctionAddressForPlatform: refused::extension_function,
    clGetDeviceAndHostTimer: device::timers,
}

pub(super) fn dispatch() -> *const cl_icd_dispatch {
    &raw const TABLE.0
}

/// Returns the function of this name, if the table has it.
pub(crate) fn function(name: &CStr) -> Option<*const c_void> {
    let name = name.to_str().ok()?;
    let (_, slot) = NAMES.iter().find(|(known, _)| *known == name)?;
    // SAFETY: the slot is within the table, which is an array of pointers.
    Some(unsafe { dispatch().cast::<*const c_void>().add(*slot).read() })
}
