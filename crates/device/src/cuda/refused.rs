//! Functions for what CUDA's driver lacks or has in another form than OpenCL's: images, samplers,
//! pipes, shared virtual memory, sub-devices, and programs that need a compiler of OpenCL C. Each
//! function only returns its error code.

use std::ffi::{c_char, c_void};

use penstock_cl_sys::*;
use penstock_wire::status::Status;

macro_rules! codes {
    ($($code:path => { $(fn $name:ident($($type:ty),* $(,)?);)* })*) => {$($(
        pub(super) unsafe extern "C" fn $name($(_: $type),*) -> cl_int {
            $code
        }
    )*)*};
}

macro_rules! handles {
    ($($code:path => { $(fn $name:ident($($type:ty),* $(,)?) -> $handle:ty;)* })*) => {$($(
        pub(super) unsafe extern "C" fn $name($(_: $type,)* code: *mut cl_int) -> $handle {
            if !code.is_null() {
                // SAFETY: not null, so the caller made it writable.
                unsafe { code.write($code) };
            }
            std::ptr::null_mut()
        }
    )*)*};
}

const INVALID_OPERATION: cl_int = Status::INVALID_OPERATION.0;
const INVALID_VALUE: cl_int = Status::INVALID_VALUE.0;

type NotifyProgram = Option<unsafe extern "C" fn(cl_program, *mut c_void)>;

codes! {
    CL_COMPILER_NOT_AVAILABLE => {
        fn compile(
            cl_program, cl_uint, *const cl_device_id, *const c_char, cl_uint, *const cl_program, *mut *const c_char,
            NotifyProgram, *mut c_void,
        );
    }
    INVALID_VALUE => {
        fn sub_devices(cl_device_id, *const cl_device_partition_property, cl_uint, *mut cl_device_id, *mut cl_uint);
    }
    INVALID_OPERATION => {
        fn image_info(cl_mem, cl_image_info, usize, *mut c_void, *mut usize);
        fn release_sampler(cl_sampler);
        fn spec_constant(cl_program, cl_uint, usize, *const c_void);
        fn svm_arg(cl_kernel, cl_uint, *const c_void);
        fn exec_info(cl_kernel, cl_kernel_exec_info, usize, *const c_void);
        fn sub_group_info(
            cl_kernel, cl_device_id, cl_kernel_sub_group_info, usize, *const c_void, usize, *mut c_void, *mut usize,
        );
        fn read_image(
            cl_command_queue, cl_mem, cl_bool, *const usize, *const usize, usize, usize, *mut c_void, cl_uint,
            *const cl_event, *mut cl_event,
        );
        fn write_image(
            cl_command_queue, cl_mem, cl_bool, *const usize, *const usize, usize, usize, *const c_void, cl_uint,
            *const cl_event, *mut cl_event,
        );
        fn fill_image(
            cl_command_queue, cl_mem, *const c_void, *const usize, *const usize, cl_uint, *const cl_event, *mut cl_event,
        );
        fn copy_image(
            cl_command_queue, cl_mem, cl_mem, *const usize, *const usize, *const usize, cl_uint, *const cl_event,
            *mut cl_event,
        );
        fn image_to_buffer(
            cl_command_queue, cl_mem, cl_mem, *const usize, *const usize, usize, cl_uint, *const cl_event, *mut cl_event,
        );
        fn buffer_to_image(
            cl_command_queue, cl_mem, cl_mem, usize, *const usize, *const usize, cl_uint, *const cl_event, *mut cl_event,
        );
    }
}

handles! {
    CL_COMPILER_NOT_AVAILABLE => {
        fn with_source(cl_context, cl_uint, *mut *const c_char, *const usize) -> cl_program;
    }
    CL_LINKER_NOT_AVAILABLE => {
        fn link(
            cl_context, cl_uint, *const cl_device_id, *const c_char, cl_uint, *const cl_program, NotifyProgram, *mut c_void,
        ) -> cl_program;
    }
    INVALID_OPERATION => {
        fn with_il(cl_context, *const c_void, usize) -> cl_program;
        fn image(cl_context, cl_mem_flags, *const cl_image_format, *const cl_image_desc, *mut c_void) -> cl_mem;
        fn pipe(cl_context, cl_mem_flags, cl_uint, cl_uint, *const cl_pipe_properties) -> cl_mem;
        fn sampler(cl_context, cl_bool, cl_addressing_mode, cl_filter_mode) -> cl_sampler;
        fn sampler_with_properties(cl_context, *const cl_sampler_properties) -> cl_sampler;
    }
    INVALID_VALUE => {
        fn built_in(cl_context, cl_uint, *const cl_device_id, *const c_char) -> cl_program;
    }
}

/// Succeeds: there is no compiler to unload.
pub(super) unsafe extern "C" fn unload_compiler(_: cl_platform_id) -> cl_int {
    CL_SUCCESS
}

/// Returns null: there are no extension functions.
pub(super) unsafe extern "C" fn extension_function(
    _: cl_platform_id,
    _: *const c_char,
) -> *mut c_void {
    std::ptr::null_mut()
}
