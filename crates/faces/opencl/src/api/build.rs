//! Building, compiling and linking programs.

use std::ffi::{c_char, c_void};
use std::ptr::null_mut;

use penstock_cl_sys::*;
use penstock_wire::text::of_bytes;

use crate::core::build::{self, Job, Notify};
use crate::core::context::Context;
use crate::core::device::Device;
use crate::core::program::{Origin, Program};
use crate::edge::{
    ClError, ClResult, Handle, Object, Ref, UserData, array, cl_entry, functions, require, store,
    text,
};

functions! { slots { clBuildProgram, clCompileProgram, clLinkProgram } }

type NotifyFn = Option<unsafe extern "C" fn(cl_program, *mut c_void)>;

/// Returns a function that calls the program's callback when a build has ended.
fn notify(program: cl_program, callback: NotifyFn, user_data: *mut c_void) -> Option<Notify> {
    let callback = callback?;
    let (program, user_data) = (UserData::new(program.cast()), UserData::new(user_data));
    Some(Box::new(move || {
        // SAFETY: calls the program's own function with its own data.
        unsafe { callback(program.get().cast(), user_data.get()) };
    }))
}

/// Returns the devices of a build and its options.
///
/// # Safety
/// `list` is `NULL` or points to `count` devices; `options` is `NULL` or a string.
unsafe fn order(
    known: &[Ref<Device>],
    (count, list): (cl_uint, *const cl_device_id),
    options: *const c_char,
    (callback, user_data): (NotifyFn, *mut c_void),
) -> ClResult<(Vec<Ref<Device>>, Option<String>)> {
    // "CL_INVALID_VALUE if device_list is NULL and num_devices is greater than zero, or if
    // device_list is not NULL and num_devices is zero."
    require(list.is_null() == (count == 0), CL_INVALID_VALUE)?;
    // "CL_INVALID_VALUE if pfn_notify is NULL but user_data is not NULL."
    require(callback.is_some() || user_data.is_null(), CL_INVALID_VALUE)?;
    let devices = if list.is_null() {
        // "If device_list is a NULL value, the program executable is built for all devices
        // associated with program".
        known.to_vec()
    } else {
        // SAFETY: guaranteed by the caller.
        Device::borrow_all(unsafe { array(list, count as usize, CL_INVALID_VALUE) }?)?
    };
    // "CL_INVALID_DEVICE if any device in device_list is not in the list of devices associated with
    // program."
    let is_known = |device: &Ref<Device>| known.iter().any(|it| std::sync::Arc::ptr_eq(it, device));
    require(devices.iter().all(is_known), CL_INVALID_DEVICE)?;
    let options = if options.is_null() {
        None
    } else {
        // SAFETY: guaranteed by the caller.
        Some(of_bytes(unsafe { text(options, CL_INVALID_VALUE) }?.to_bytes()))
    };
    Ok((devices, options))
}

fn has_compiler(devices: &[Ref<Device>]) -> ClResult {
    // "CL_COMPILER_NOT_AVAILABLE if program is created with clCreateProgramWithSource or
    // clCreateProgramWithIL and a compiler is not available, i.e. CL_DEVICE_COMPILER_AVAILABLE ...
    // is set to CL_FALSE."
    let has = |device: &Ref<Device>| device.number(CL_DEVICE_COMPILER_AVAILABLE) != 0;
    require(devices.iter().all(has), CL_COMPILER_NOT_AVAILABLE)
}

cl_entry! {
    fn clBuildProgram(
        program: cl_program,
        count: cl_uint,
        devices: *const cl_device_id,
        options: *const c_char,
        callback: NotifyFn,
        user_data: *mut c_void,
    ) -> ClResult<()> {
        let handle = program;
        let program = Program::borrow(program)?;
        // SAFETY: the program passes `count` devices and a string.
        let order = unsafe { order(&program.devices, (count, devices), options, (callback, user_data)) }?;
        // "CL_INVALID_OPERATION if program was not created with clCreateProgramWithSource,
        // clCreateProgramWithIL or clCreateProgramWithBinary."
        require(!matches!(program.origin, Origin::Linked), CL_INVALID_OPERATION)?;
        if matches!(program.origin, Origin::Source(_) | Origin::Il(_)) {
            has_compiler(&order.0)?;
        }
        build::run(&program, order.0, order.1.as_deref(), Job::Build, notify(handle, callback, user_data))
    }
    fn clCompileProgram(
        program: cl_program,
        count: cl_uint,
        devices: *const cl_device_id,
        options: *const c_char,
        header_count: cl_uint,
        headers: *const cl_program,
        header_names: *mut *const c_char,
        callback: NotifyFn,
        user_data: *mut c_void,
    ) -> ClResult<()> {
        let handle = program;
        let program = Program::borrow(program)?;
        // SAFETY: the program passes `count` devices and a string.
        let order = unsafe { order(&program.devices, (count, devices), options, (callback, user_data)) }?;
        // "CL_INVALID_OPERATION if program has no source or IL available".
        require(matches!(program.origin, Origin::Source(_) | Origin::Il(_)), CL_INVALID_OPERATION)?;
        has_compiler(&order.0)?;
        // "CL_INVALID_VALUE if num_input_headers is zero and header_include_names or input_headers
        // are not NULL or if num_input_headers is not zero and header_include_names or
        // input_headers are NULL."
        let none = header_count == 0;
        require(headers.is_null() == none && header_names.is_null() == none, CL_INVALID_VALUE)?;
        // SAFETY: "input_headers is an array of program embedded headers" of `header_count`
        // elements.
        let headers = unsafe { array(headers, header_count as usize, CL_INVALID_VALUE) }?;
        // SAFETY: "header_include_names is an array that has a one to one correspondence with
        // input_headers."
        let names = unsafe { array(header_names, header_count as usize, CL_INVALID_VALUE) }?;
        let mut inputs = Vec::with_capacity(headers.len());
        for (header, name) in headers.iter().zip(names) {
            // SAFETY: the program passes `NULL` or a string that ends with 0.
            let name = of_bytes(unsafe { text(*name, CL_INVALID_VALUE) }?.to_bytes());
            inputs.push((name, Program::borrow(*header)?));
        }
        build::run(&program, order.0, order.1.as_deref(), Job::Compile(inputs), notify(handle, callback, user_data))
    }
}
cl_entry! {
    fn clLinkProgram(
        context: cl_context,
        count: cl_uint,
        devices: *const cl_device_id,
        options: *const c_char,
        input_count: cl_uint,
        inputs: *const cl_program,
        callback: NotifyFn,
        user_data: *mut c_void,
        errcode_ret: *mut cl_int,
    ) -> cl_program, or null_mut(); {
        // SAFETY: the program passes `count` devices, `input_count` programs, and a string.
        let linked = unsafe { link(context, (count, devices), options, (input_count, inputs), (callback, user_data)) };
        // "clLinkProgram returns a valid non-zero program object" also if the link failed, so that
        // its log can be read.
        let (program, code) = linked.unwrap_or_else(|error| (null_mut(), error.0));
        // SAFETY: the program passes `NULL` or a place for a code.
        unsafe { store(errcode_ret, code) };
        program
    }
}

/// Links programs and returns the new program and the code.
///
/// # Safety
/// As for [`order`]; `inputs` is `NULL` or points to `input_count` programs.
unsafe fn link(
    context: cl_context,
    devices: (cl_uint, *const cl_device_id),
    options: *const c_char,
    (input_count, inputs): (cl_uint, *const cl_program),
    (callback, user_data): (NotifyFn, *mut c_void),
) -> ClResult<(cl_program, cl_int)> {
    let context = Context::borrow(context)?;
    // SAFETY: guaranteed by the caller.
    let (devices, options) =
        unsafe { order(&context.devices, devices, options, (callback, user_data)) }?;
    // "CL_INVALID_VALUE if num_input_programs is zero and input_programs is NULL", "or if
    // num_input_programs is not zero and input_programs is NULL".
    require(input_count > 0, CL_INVALID_VALUE)?;
    // SAFETY: guaranteed by the caller.
    let inputs = unsafe { array(inputs, input_count as usize, CL_INVALID_VALUE) }?;
    // "CL_INVALID_PROGRAM if programs specified in input_programs are not valid program objects."
    let inputs = Program::borrow_all(inputs)?;
    // "CL_LINKER_NOT_AVAILABLE if a linker is not available".
    let has_linker = |device: &Ref<Device>| {
        device.answer(CL_DEVICE_LINKER_AVAILABLE).is_none_or(|it| it.iter().any(|b| *b != 0))
    };
    require(devices.iter().all(has_linker), CL_LINKER_NOT_AVAILABLE)?;
    for (input, device) in
        inputs.iter().flat_map(|input| devices.iter().map(move |device| (input, device)))
    {
        // "CL_INVALID_OPERATION if the rules for devices containing compiled binaries or libraries
        // as described in input_programs argument below are not followed." Only the driver knows
        // what a binary contains.
        if matches!(input.origin, Origin::Source(_) | Origin::Il(_)) {
            let kind = input.binary_type(device).map_err(|_| ClError(CL_INVALID_OPERATION))?;
            let fits = matches!(
                kind,
                CL_PROGRAM_BINARY_TYPE_COMPILED_OBJECT | CL_PROGRAM_BINARY_TYPE_LIBRARY
            );
            require(fits, CL_INVALID_OPERATION)?;
        }
    }
    let program = Handle::create(
        &*context,
        Program::new(context.clone(), devices.clone(), Origin::Linked, None),
    );
    let raw = program.raw();
    let linked = build::run(
        &program,
        devices,
        options.as_deref(),
        Job::Link(inputs),
        notify(raw, callback, user_data),
    );
    match linked {
        // Nothing was linked, so the program has no log to query.
        Err(error)
            if callback.is_some()
                || program.pool().is_err()
                || error.0 != CL_LINK_PROGRAM_FAILURE =>
        {
            Program::release(raw)?;
            Err(error)
        }
        Err(error) => Ok((raw, error.0)),
        Ok(()) => Ok((raw, CL_SUCCESS)),
    }
}
