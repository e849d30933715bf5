//! Programs: creation and queries.

use std::ffi::{c_char, c_uchar, c_void};

use penstock_cl_sys::*;
use penstock_client::Program as PoolProgram;
use penstock_wire::text::to_bytes;

use crate::core::context::Context;
use crate::core::device::Device;
use crate::core::program::{Origin, Program};
use crate::edge::{
    Answer, ClError, ClResult, Handle, Object, Ref, array, cl_entry, functions, require, store,
    text,
};

functions! {
    slots {
        clCreateProgramWithSource, clCreateProgramWithIL, clCreateProgramWithBinary,
        clCreateProgramWithBuiltInKernels, clRetainProgram, clReleaseProgram,
        clSetProgramReleaseCallback, clSetProgramSpecializationConstant, clGetProgramInfo,
        clGetProgramBuildInfo,
    }
    named { clCreateProgramWithILKHR }
}

cl_entry! {
    fn clCreateProgramWithSource(
        context: cl_context,
        count: cl_uint,
        strings: *mut *const c_char,
        lengths: *const usize,
    ) -> ClResult<cl_program> {
        let context = Context::borrow(context)?;
        // "CL_INVALID_VALUE if count is zero or if strings or any entry in strings is NULL."
        require(count > 0, CL_INVALID_VALUE)?;
        // SAFETY: "strings is an array of count pointers".
        let strings = unsafe { array(strings, count as usize, CL_INVALID_VALUE) }?;
        // SAFETY: "lengths argument is an array with the number of chars in each string", or
        // `NULL`.
        let lengths = if lengths.is_null() { &[][..] } else { unsafe { array(lengths, count as usize, CL_INVALID_VALUE) }? };
        let mut source = Vec::new();
        for (index, string) in strings.iter().enumerate() {
            require(!string.is_null(), CL_INVALID_VALUE)?;
            // "If an element in lengths is zero, its accompanying string is null-terminated. If
            // lengths is NULL, all strings in the strings argument are considered null-terminated."
            match lengths.get(index).copied().filter(|length| *length > 0) {
                // SAFETY: the program passes `length` characters.
                Some(length) => source.extend(unsafe { array(string.cast::<u8>(), length, CL_INVALID_VALUE) }?),
                // SAFETY: the program passes `NULL` or a string that ends with 0.
                None => source.extend(unsafe { text(*string, CL_INVALID_VALUE) }?.to_bytes()),
            }
        }
        // A string's final 0 may be included in its length, and the drivers get one string.
        source.retain(|byte| *byte != 0);
        let pool = PoolProgram::with_source(&context.pool, &source)?;
        Ok(create(&context, context.devices.clone(), Origin::Source(source), pool))
    }
}
cl_entry! {
    fn clCreateProgramWithIL(context: cl_context, il: *const c_void, length: usize) -> ClResult<cl_program> {
        let context = Context::borrow(context)?;
        // "CL_INVALID_OPERATION if no devices in context support intermediate language programs."
        require(context.devices.iter().any(|device| takes_il(device)), CL_INVALID_OPERATION)?;
        // "CL_INVALID_VALUE if il is NULL or if length is zero."
        require(length > 0, CL_INVALID_VALUE)?;
        // SAFETY: "il is a pointer to a length-byte block of memory".
        let il = unsafe { array(il.cast::<u8>(), length, CL_INVALID_VALUE) }?;
        // "CL_INVALID_VALUE if the length-byte memory pointed to by il does not contain well-formed
        // intermediate language input".
        require(looks_like_spirv(il), CL_INVALID_VALUE)?;
        let pool = PoolProgram::with_il(&context.pool, il)?;
        Ok(create(&context, context.devices.clone(), Origin::Il(il.to_vec()), pool))
    }
}

/// Returns whether there is a module header. The build checks the rest, where the compiler is.
fn looks_like_spirv(il: &[u8]) -> bool {
    const MAGIC: u32 = 0x0723_0203;
    const HEADER_WORDS: usize = 5;
    // "Consumers can detect by the magic number whether the bytes of words are in another order."
    let (words, rest) = il.as_chunks::<4>();
    let magic = words.first().map(|word| u32::from_le_bytes(*word));
    rest.is_empty()
        && words.len() > HEADER_WORDS
        && (magic == Some(MAGIC) || magic == Some(MAGIC.swap_bytes()))
}

fn takes_il(device: &Device) -> bool {
    device
        .answer(CL_DEVICE_IL_VERSION)
        .is_some_and(|versions| versions.iter().any(|byte| *byte != 0))
}

cl_entry! {
    /// Same as `clCreateProgramWithIL`, for devices before OpenCL 2.1 (`cl_khr_il_program`).
    fn clCreateProgramWithILKHR(context: cl_context, il: *const c_void, length: usize) -> ClResult<cl_program> {
        let mut code = CL_SUCCESS;
        // SAFETY: the same parameters, and a place for the code.
        let program = unsafe { clCreateProgramWithIL(context, il, length, &raw mut code) };
        require(code == CL_SUCCESS, code)?;
        Ok(program)
    }
}

fn create(
    context: &Ref<Context>,
    devices: Vec<Ref<Device>>,
    origin: Origin,
    pool: std::sync::Arc<PoolProgram>,
) -> cl_program {
    Handle::create(&**context, Program::new(context.clone(), devices, origin, Some(pool))).raw()
}

/// Returns devices of `context`.
///
/// # Safety
/// `list` is `NULL` or points to `count` devices.
pub(super) unsafe fn devices_of(
    context: &Context,
    count: cl_uint,
    list: *const cl_device_id,
) -> ClResult<Vec<Ref<Device>>> {
    // SAFETY: guaranteed by the caller.
    let list = unsafe { array(list, count as usize, CL_INVALID_VALUE) }?;
    let devices = Device::borrow_all(list)?;
    // "CL_INVALID_DEVICE if any device in device_list is not in the list of devices associated with
    // context."
    require(devices.iter().all(|device| context.has(device)), CL_INVALID_DEVICE)?;
    Ok(devices)
}

cl_entry! {
    fn clCreateProgramWithBinary(
        context: cl_context,
        count: cl_uint,
        devices: *const cl_device_id,
        lengths: *const usize,
        binaries: *mut *const c_uchar,
        binary_status: *mut cl_int,
    ) -> ClResult<cl_program> {
        let context = Context::borrow(context)?;
        // "CL_INVALID_VALUE if device_list is NULL or num_devices is zero."
        require(count > 0, CL_INVALID_VALUE)?;
        // SAFETY: the program passes `count` devices.
        let devices = unsafe { devices_of(&context, count, devices) }?;
        // SAFETY: "lengths is an array of the size in bytes of the program binaries", one for each
        // device.
        let lengths = unsafe { array(lengths, count as usize, CL_INVALID_VALUE) }?;
        // SAFETY: "binaries is an array of pointers to program binaries", one for each device.
        let binaries = unsafe { array(binaries, count as usize, CL_INVALID_VALUE) }?;
        let tell = |index: usize, status: cl_int| {
            if !binary_status.is_null() {
                // SAFETY: "binary_status returns whether the program binary for each device ... was
                // loaded successfully": a place for each, or `NULL`.
                unsafe { store(binary_status.add(index), status) };
            }
        };
        let mut given = Vec::with_capacity(devices.len());
        for (index, device) in devices.iter().enumerate() {
            // "CL_INVALID_VALUE if lengths or binaries is NULL or if any entry in lengths[i] is
            // zero or binaries[i] is NULL."
            // SAFETY: the program passes `lengths[index]` bytes.
            let bytes = unsafe { array(binaries[index], lengths[index], CL_INVALID_VALUE) };
            let bytes = bytes.and_then(|bytes| require(!bytes.is_empty(), CL_INVALID_VALUE).map(|()| bytes));
            given.push((&device.pool, bytes.inspect_err(|error| tell(index, error.0))?));
        }
        let made = PoolProgram::with_binaries(&context.pool, &given).map_err(ClError::from);
        let (pool, statuses) = made.inspect_err(|error| (0..devices.len()).for_each(|index| tell(index, error.0)))?;
        statuses.iter().enumerate().for_each(|(index, status)| tell(index, status.0));
        // "CL_INVALID_BINARY if an invalid program binary was encountered for any device."
        require(statuses.iter().all(|status| !status.is_error()), CL_INVALID_BINARY)?;
        Ok(create(&context, devices, Origin::Binary, pool))
    }
}
cl_entry! {
    fn clCreateProgramWithBuiltInKernels(
        context: cl_context,
        count: cl_uint,
        devices: *const cl_device_id,
        names: *const c_char,
    ) -> ClResult<cl_program> {
        let context = Context::borrow(context)?;
        // "CL_INVALID_VALUE if device_list is NULL or num_devices is zero."
        require(count > 0, CL_INVALID_VALUE)?;
        // SAFETY: the program passes `count` devices.
        let devices = unsafe { devices_of(&context, count, devices) }?;
        // "CL_INVALID_VALUE if kernel_names is NULL or kernel_names contains a kernel name that is
        // not supported by any of the devices in device_list."
        // SAFETY: the program passes `NULL` or a string that ends with 0.
        let names = unsafe { text(names, CL_INVALID_VALUE) }?.to_string_lossy();
        let known = |name: &str| devices.iter().any(|device| has_built_in(device, name));
        require(names.split(';').all(known), CL_INVALID_VALUE)?;
        let pool_devices: Vec<_> = devices.iter().map(|device| device.pool.clone()).collect();
        let pool = PoolProgram::with_built_in_kernels(&context.pool, &pool_devices, &names)?;
        // A build changes nothing, but reports what must be known about the kernels.
        pool.build(&pool_devices, "")?;
        Ok(create(&context, devices, Origin::BuiltIn, pool))
    }
}

fn has_built_in(device: &Device, name: &str) -> bool {
    let names = device.answer(CL_DEVICE_BUILT_IN_KERNELS).unwrap_or_default();
    let names = String::from_utf8_lossy(names);
    names.trim_end_matches('\0').split(';').any(|known| !known.is_empty() && known == name)
}

cl_entry! {
    fn clRetainProgram(program: cl_program) -> ClResult<()> {
        Program::retain(program)
    }
    fn clReleaseProgram(program: cl_program) -> ClResult<()> {
        Program::release(program)
    }
    fn clSetProgramReleaseCallback(
        program: cl_program,
        _callback: Option<unsafe extern "C" fn(cl_program, *mut c_void)>,
        _user_data: *mut c_void,
    ) -> ClResult<()> {
        Program::borrow(program)?;
        // "CL_INVALID_OPERATION if no devices associated with program support destructors for
        // program scope global variables." Only OpenCL C++ has such destructors, and it is not part
        // of OpenCL 3.0.
        Err(ClError(CL_INVALID_OPERATION))
    }
    fn clSetProgramSpecializationConstant(
        program: cl_program,
        spec_id: cl_uint,
        size: usize,
        value: *const c_void,
    ) -> ClResult<()> {
        let program = Program::borrow(program)?;
        // "CL_INVALID_PROGRAM if program is not a valid program object created from an intermediate
        // language".
        require(matches!(program.origin, Origin::Il(_)), CL_INVALID_PROGRAM)?;
        // "CL_INVALID_VALUE if spec_size does not match the size of the specialization constant in
        // the SPIR-V module, or if spec_value is NULL." No constant has more than 8 bytes.
        require(size > 0 && size <= 8, CL_INVALID_VALUE)?;
        // SAFETY: the program passes `size` bytes.
        let value = unsafe { array(value.cast::<u8>(), size, CL_INVALID_VALUE) }?;
        Ok(program.pool()?.set_spec_constant(spec_id, value)?)
    }
    fn clGetProgramInfo(
        program: cl_program,
        name: cl_program_info,
        size: usize,
        value: *mut c_void,
        size_ret: *mut usize,
    ) -> ClResult<()> {
        let program = Program::borrow(program)?;
        if name == CL_PROGRAM_BINARIES {
            // SAFETY: the program passes `NULL` or places of sufficient size.
            return unsafe { copy_binaries(&program, size, value, size_ret) };
        }
        // SAFETY: the program passes `NULL` or places of sufficient size.
        let answer = unsafe { Answer::new(size, value, size_ret) };
        match name {
            // A kernel "retains" its program.
            CL_PROGRAM_REFERENCE_COUNT => answer.value(program.references().max(1)),
            CL_PROGRAM_CONTEXT => answer.value(program.context.raw()),
            CL_PROGRAM_NUM_DEVICES => answer.value(cl_uint::try_from(program.devices.len()).unwrap_or(cl_uint::MAX)),
            CL_PROGRAM_DEVICES => answer.values(&program.devices.iter().map(Handle::raw).collect::<Vec<_>>()),
            CL_PROGRAM_SOURCE => match &program.origin {
                Origin::Source(source) => answer.bytes(&[source, &b"\0"[..]].concat()),
                // "... a null string" for other programs.
                _ => answer.text(""),
            },
            CL_PROGRAM_IL => match &program.origin {
                Origin::Il(il) => answer.bytes(il),
                // "If program was not created with clCreateProgramWithIL ... param_value_size_ret
                // will be set to 0".
                _ => answer.bytes(&[]),
            },
            CL_PROGRAM_BINARY_SIZES => {
                let sizes: Vec<usize> = program.binaries()?.iter().map(Vec::len).collect();
                answer.values(&sizes)
            }
            CL_PROGRAM_NUM_KERNELS => answer.value(program.kernel_descriptions()?.len()),
            CL_PROGRAM_KERNEL_NAMES => {
                let kernels = program.kernel_descriptions()?;
                let names: Vec<&str> = kernels.iter().map(|kernel| kernel.name.as_str()).collect();
                answer.text(&names.join(";"))
            }
            CL_PROGRAM_SCOPE_GLOBAL_CTORS_PRESENT | CL_PROGRAM_SCOPE_GLOBAL_DTORS_PRESENT => {
                match program.pool()?.info(name) {
                    Some(bytes) => answer.bytes(&bytes),
                    None => answer.bool(false),
                }
            }
            // "CL_INVALID_VALUE if param_name is not valid"
            _ => Err(ClError(CL_INVALID_VALUE)),
        }
    }
    fn clGetProgramBuildInfo(
        program: cl_program,
        device: cl_device_id,
        name: cl_program_build_info,
        size: usize,
        value: *mut c_void,
        size_ret: *mut usize,
    ) -> ClResult<()> {
        let program = Program::borrow(program)?;
        let device = Device::borrow(device)?;
        // SAFETY: the program passes `NULL` or places of sufficient size.
        let answer = unsafe { Answer::new(size, value, size_ret) };
        match name {
            CL_PROGRAM_BUILD_STATUS => answer.value(program.build_status(&device)?),
            CL_PROGRAM_BUILD_OPTIONS => {
                answer.bytes(&[to_bytes(&program.build_options(&device)?), vec![0]].concat())
            }
            CL_PROGRAM_BINARY_TYPE => answer.value(program.binary_type(&device)?),
            CL_PROGRAM_BUILD_LOG => match program.driver_answer(&device, name)? {
                Some(bytes) if bytes.last() == Some(&0) => answer.bytes(&bytes),
                Some(bytes) => answer.text(&String::from_utf8_lossy(&bytes)),
                None => answer.text(""),
            },
            CL_PROGRAM_BUILD_GLOBAL_VARIABLE_TOTAL_SIZE => match program.driver_answer(&device, name)? {
                Some(bytes) => answer.bytes(&bytes),
                None => answer.value(0usize),
            },
            // "CL_INVALID_VALUE if param_name is not valid"; a driver may know more names than this
            // client.
            _ => answer.bytes(&program.driver_answer(&device, name)?.ok_or(ClError(CL_INVALID_VALUE))?),
        }
    }
}

/// Answers `CL_PROGRAM_BINARIES`: copies each binary to the address that the program gave.
///
/// # Safety
/// `value` is `NULL` or points to `size` bytes: an array of pointers, each `NULL` or with room for
/// a device's binary.
unsafe fn copy_binaries(
    program: &Program,
    size: usize,
    value: *mut c_void,
    size_ret: *mut usize,
) -> ClResult {
    let count = program.devices.len();
    let needed = count * size_of::<*mut u8>();
    if !value.is_null() {
        require(size >= needed, CL_INVALID_VALUE)?;
        let binaries = program.binaries()?;
        // SAFETY: guaranteed by the caller.
        let places =
            unsafe { array(value.cast::<*mut u8>().cast_const(), count, CL_INVALID_VALUE) }?;
        for (place, binary) in places.iter().zip(binaries.iter()) {
            // "If an entry value in the array is NULL, the implementation skips copying the program
            // binary".
            if !place.is_null() {
                // SAFETY: "the buffer ... is large enough", as reported by
                // `CL_PROGRAM_BINARY_SIZES`.
                unsafe { place.copy_from_nonoverlapping(binary.as_ptr(), binary.len()) };
            }
        }
    }
    // SAFETY: the program passes `NULL` or a place for a number.
    unsafe { store(size_ret, needed) };
    Ok(())
}
