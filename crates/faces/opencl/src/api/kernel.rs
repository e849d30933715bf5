//! Kernel objects: creation, arguments, queries.

use std::ffi::{c_char, c_void};

use penstock_cl_sys::*;

use crate::core::device::Device;
use crate::core::kernel::{Kernel, work_group_info};
use crate::core::program::{Origin, Program};
use crate::edge::{
    Answer, ClError, ClResult, Handle, Object, Ref, array, cl_entry, functions, require, store,
    text,
};

functions! {
    slots {
        clCreateKernel, clCloneKernel, clCreateKernelsInProgram, clRetainKernel, clReleaseKernel,
        clSetKernelArg, clSetKernelArgSVMPointer, clSetKernelExecInfo, clGetKernelInfo,
        clGetKernelArgInfo, clGetKernelWorkGroupInfo, clGetKernelSubGroupInfo,
        clGetKernelSubGroupInfoKHR,
    }
}

cl_entry! {
    fn clCreateKernel(program: cl_program, name: *const c_char) -> ClResult<cl_kernel> {
        let program = Program::borrow(program)?;
        let kernels = program.kernel_descriptions()?;
        // "CL_INVALID_VALUE if kernel_name is NULL."
        // SAFETY: the program passes `NULL` or a string that ends with 0.
        let name = unsafe { text(name, CL_INVALID_VALUE) }?;
        // "CL_INVALID_KERNEL_NAME if kernel_name is not found in program."
        let found = kernels.iter().find(|kernel| kernel.name.as_bytes() == name.to_bytes());
        let found = found.ok_or(ClError(CL_INVALID_KERNEL_NAME))?;
        Ok(Handle::create(&*program, Kernel::new(&program, found)?).raw())
    }
}
cl_entry! {
    fn clCloneKernel(source: cl_kernel) -> ClResult<cl_kernel> {
        let source = Kernel::borrow(source)?;
        Ok(Handle::create(&*source, source.duplicate()?).raw())
    }
}
cl_entry! {
    fn clCreateKernelsInProgram(
        program: cl_program,
        room: cl_uint,
        kernels: *mut cl_kernel,
        count: *mut cl_uint,
    ) -> ClResult<()> {
        let program = Program::borrow(program)?;
        let known = program.kernel_descriptions()?;
        // "CL_INVALID_VALUE if kernels is not NULL and num_kernels is less than the number of
        // kernels in program."
        require(kernels.is_null() || room as usize >= known.len(), CL_INVALID_VALUE)?;
        if !kernels.is_null() {
            let made = known.iter().map(|it| Ok(Handle::create(&*program, Kernel::new(&program, it)?)));
            for (index, kernel) in made.collect::<ClResult<Vec<Ref<Kernel>>>>()?.iter().enumerate() {
                // SAFETY: there is room for all handles.
                unsafe { store(kernels.add(index), kernel.raw()) };
            }
        }
        // SAFETY: the program passes `NULL` or a place for a number.
        unsafe { store(count, cl_uint::try_from(known.len()).unwrap_or(cl_uint::MAX)) };
        Ok(())
    }
    fn clRetainKernel(kernel: cl_kernel) -> ClResult<()> {
        Kernel::retain(kernel)
    }
    fn clReleaseKernel(kernel: cl_kernel) -> ClResult<()> {
        Kernel::release(kernel)
    }
    fn clSetKernelArg(kernel: cl_kernel, index: cl_uint, size: usize, value: *const c_void) -> ClResult<()> {
        let kernel = Kernel::borrow(kernel)?;
        let value = if value.is_null() {
            None
        } else {
            // SAFETY: "arg_value is a pointer to data that should be used as the argument value",
            // of `arg_size` bytes.
            Some(unsafe { array(value.cast::<u8>(), size, CL_INVALID_ARG_SIZE) }?)
        };
        kernel.set(index as usize, size, value)
    }
    fn clSetKernelArgSVMPointer(kernel: cl_kernel, index: cl_uint, value: *const c_void) -> ClResult<()> {
        let kernel = Kernel::borrow(kernel)?;
        // "CL_INVALID_OPERATION if no devices in the context associated with kernel support SVM."
        check_svm(&kernel)?;
        kernel.set_svm(index as usize, value.addr())
    }
    fn clSetKernelExecInfo(
        kernel: cl_kernel,
        name: cl_kernel_exec_info,
        size: usize,
        value: *const c_void,
    ) -> ClResult<()> {
        let kernel = Kernel::borrow(kernel)?;
        // "CL_INVALID_OPERATION if no devices in the context associated with kernel support SVM."
        check_svm(&kernel)?;
        // "CL_INVALID_VALUE if param_name is not valid, if param_value is NULL or if the size
        // specified by param_value_size is not valid."
        // SAFETY: the program passes `size` bytes.
        let bytes = unsafe { array(value.cast::<u8>(), size, CL_INVALID_VALUE) }?;
        match name {
            CL_KERNEL_EXEC_INFO_SVM_PTRS => {
                let (words, rest) = bytes.as_chunks::<{ size_of::<usize>() }>();
                require(rest.is_empty(), CL_INVALID_VALUE)?;
                // An empty list withdraws an earlier one.
                let areas = words.iter().filter_map(|word| kernel.program.context.svm.at(usize::from_ne_bytes(*word)));
                let reaches = areas.map(|area| area.pool.clone()).collect();
                Ok(kernel.pool.set_exec_info(name, bytes, Some(reaches))?)
            }
            CL_KERNEL_EXEC_INFO_SVM_FINE_GRAIN_SYSTEM => {
                require(bytes.len() == size_of::<cl_bool>(), CL_INVALID_VALUE)?;
                // "CL_INVALID_OPERATION if param_name is CL_KERNEL_EXEC_INFO_SVM_FINE_GRAIN_SYSTEM
                // and param_value is CL_TRUE but no devices in context associated with kernel
                // support fine-grain system SVM allocations." No device does.
                require(bytes.iter().all(|byte| *byte == 0), CL_INVALID_OPERATION)
            }
            _ => Err(ClError(CL_INVALID_VALUE)),
        }
    }
    fn clGetKernelInfo(
        kernel: cl_kernel,
        name: cl_kernel_info,
        size: usize,
        value: *mut c_void,
        size_ret: *mut usize,
    ) -> ClResult<()> {
        let kernel = Kernel::borrow(kernel)?;
        let description = kernel.pool.description();
        // SAFETY: the program passes `NULL` or places of sufficient size.
        let answer = unsafe { Answer::new(size, value, size_ret) };
        match name {
            CL_KERNEL_FUNCTION_NAME => answer.text(&description.name),
            CL_KERNEL_NUM_ARGS => answer.value(cl_uint::try_from(description.args.len()).unwrap_or(cl_uint::MAX)),
            CL_KERNEL_REFERENCE_COUNT => answer.value(kernel.references()),
            CL_KERNEL_CONTEXT => answer.value(kernel.program.context.raw()),
            CL_KERNEL_PROGRAM => answer.value(kernel.program.raw()),
            CL_KERNEL_ATTRIBUTES => answer.text(&description.attributes),
            // "CL_INVALID_VALUE if param_name is not valid"
            _ => Err(ClError(CL_INVALID_VALUE)),
        }
    }
    fn clGetKernelArgInfo(
        kernel: cl_kernel,
        index: cl_uint,
        name: cl_kernel_arg_info,
        size: usize,
        value: *mut c_void,
        size_ret: *mut usize,
    ) -> ClResult<()> {
        let kernel = Kernel::borrow(kernel)?;
        let description = kernel.pool.description();
        // "CL_INVALID_ARG_INDEX if arg_index is not a valid argument index."
        let arg = description.args.get(index as usize).ok_or(ClError(CL_INVALID_ARG_INDEX))?;
        // "CL_KERNEL_ARG_INFO_NOT_AVAILABLE if the argument information is not available for
        // kernel." The pool always has it; the driver decides whether the program may see it.
        let shows = description.arg_info && kernel.program.shows_arg_info()?;
        require(shows, CL_KERNEL_ARG_INFO_NOT_AVAILABLE)?;
        // SAFETY: the program passes `NULL` or places of sufficient size.
        let answer = unsafe { Answer::new(size, value, size_ret) };
        match name {
            CL_KERNEL_ARG_ADDRESS_QUALIFIER => answer.value(arg.address),
            CL_KERNEL_ARG_ACCESS_QUALIFIER => answer.value(arg.access),
            CL_KERNEL_ARG_TYPE_NAME => answer.text(&arg.type_name),
            CL_KERNEL_ARG_TYPE_QUALIFIER => answer.value(arg.type_qualifier),
            CL_KERNEL_ARG_NAME => answer.text(&arg.name),
            // "CL_INVALID_VALUE if param_name is not valid"
            _ => Err(ClError(CL_INVALID_VALUE)),
        }
    }
    fn clGetKernelWorkGroupInfo(
        kernel: cl_kernel,
        device: cl_device_id,
        name: cl_kernel_work_group_info,
        size: usize,
        value: *mut c_void,
        size_ret: *mut usize,
    ) -> ClResult<()> {
        let kernel = Kernel::borrow(kernel)?;
        let device = kernel.device(device)?;
        // SAFETY: the program passes `NULL` or places of sufficient size.
        let answer = unsafe { Answer::new(size, value, size_ret) };
        if name == CL_KERNEL_GLOBAL_WORK_SIZE {
            // "CL_INVALID_VALUE if param_name is CL_KERNEL_GLOBAL_WORK_SIZE and device is not a
            // custom device and kernel is not a built-in kernel."
            let custom = device.device_type() & CL_DEVICE_TYPE_CUSTOM != 0;
            require(custom || matches!(kernel.program.origin, Origin::BuiltIn), CL_INVALID_VALUE)?;
        }
        // Only local memory depends on the arguments, so only then the driver is queried.
        let asks = name == CL_KERNEL_LOCAL_MEM_SIZE && kernel.has_local_args();
        match work_group_info(&kernel.program, kernel.pool.description(), &device, name) {
            Some(known) if !asks => answer.bytes(known),
            Some(_) => answer.bytes(&kernel.pool.work_group_info(&device.pool, name)?),
            // "CL_INVALID_VALUE if param_name is not valid"
            None => Err(ClError(CL_INVALID_VALUE)),
        }
    }
    fn clGetKernelSubGroupInfo(
        kernel: cl_kernel,
        device: cl_device_id,
        name: cl_kernel_sub_group_info,
        input_size: usize,
        input: *const c_void,
        size: usize,
        value: *mut c_void,
        size_ret: *mut usize,
    ) -> ClResult<()> {
        let kernel = Kernel::borrow(kernel)?;
        let device = kernel.device(device)?;
        // "CL_INVALID_OPERATION if device does not support subgroups."
        require(device.number(CL_DEVICE_MAX_NUM_SUB_GROUPS) > 0, CL_INVALID_OPERATION)?;
        // "CL_INVALID_VALUE ... if the size in bytes specified by input_value_size is not valid".
        // SAFETY: the program passes `NULL` or `input_size` bytes.
        let input = unsafe { array(input.cast::<u8>(), input_size, CL_INVALID_VALUE) }?;
        let known = kernel.sub_group_info(&device, name, input, size)?;
        // SAFETY: the program passes `NULL` or places of sufficient size.
        unsafe { Answer::new(size, value, size_ret) }.bytes(&known)
    }
    fn clGetKernelSubGroupInfoKHR(
        kernel: cl_kernel,
        device: cl_device_id,
        name: cl_kernel_sub_group_info,
        input_size: usize,
        input: *const c_void,
        size: usize,
        value: *mut c_void,
        size_ret: *mut usize,
    ) -> ClResult<()> {
        // SAFETY: the same parameters.
        let code = unsafe { clGetKernelSubGroupInfo(kernel, device, name, input_size, input, size, value, size_ret) };
        require(code == CL_SUCCESS, code)
    }
}

fn check_svm(kernel: &Kernel) -> ClResult {
    let supports = |device: &Ref<Device>| device.number(CL_DEVICE_SVM_CAPABILITIES) != 0;
    require(kernel.program.context.devices.iter().any(supports), CL_INVALID_OPERATION)
}
