//! Programs: creation and builds. Queries and kernels are in `report`.

use std::ffi::{CStr, CString};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use penstock_cl_sys::cl_program;
use penstock_wire::status::Status;

use super::api::{self, function};
use super::context::{Context, handles};
use super::owned::OwnedProgram;
use crate::driver;
use crate::driver::Device;

/// Makes the compiler keep the data of `clGetKernelArgInfo`. The client must know which arguments
/// are memory; the worker must refuse bytes that the driver would take for a handle.
pub(super) const ARG_INFO_OPTION: &str = "-cl-kernel-arg-info";

const INVALID_BUILD_OPTIONS: Status = Status(penstock_cl_sys::CL_INVALID_BUILD_OPTIONS);
const INVALID_COMPILER_OPTIONS: Status = Status(penstock_cl_sys::CL_INVALID_COMPILER_OPTIONS);
const INVALID_LINKER_OPTIONS: Status = Status(penstock_cl_sys::CL_INVALID_LINKER_OPTIONS);

/// A program. Cheap to clone.
#[derive(Clone, Debug)]
pub(super) struct Program(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    raw: OwnedProgram,
    context: Context,
    /// Whether the worker added [`ARG_INFO_OPTION`] to the last build.
    arg_info_added: AtomicBool,
    /// Whether the client gave options for the last build.
    had_options: AtomicBool,
    /// Whether it was made from an intermediate language.
    is_of_il: bool,
}

impl Program {
    fn of(raw: OwnedProgram, context: &Context, is_of_il: bool) -> Self {
        let (arg_info_added, had_options) = (AtomicBool::new(false), AtomicBool::new(false));
        let context = context.clone();
        Self(Arc::new(Inner { raw, context, arg_info_added, had_options, is_of_il }))
    }

    /// `clCreateProgramWithSource`.
    pub(super) fn with_source(context: &Context, source: &[u8]) -> Result<Self, Status> {
        let create = function!(clCreateProgramWithSource)?;
        let mut code = 0;
        let (mut text, length) = (source.as_ptr().cast(), source.len());
        // "A length of 0 means the string is null-terminated", which an empty slice is not.
        if source.is_empty() {
            text = c"".as_ptr();
        }
        // SAFETY: one string with its length; the driver copies it.
        let raw = unsafe { create(context.raw(), 1, &mut text, &length, &mut code) };
        Ok(Self::of(OwnedProgram::take(api::made(raw, code)?), context, false))
    }

    /// `clCreateProgramWithBinary`.
    pub(super) fn with_binaries(
        context: &Context,
        binaries: &[(Device, Vec<u8>)],
        codes: &mut [i32],
    ) -> Result<Self, Status> {
        let create = function!(clCreateProgramWithBinary)?;
        let devices: Vec<Device> = binaries.iter().map(|(device, _)| device.clone()).collect();
        let devices = handles(&devices)?;
        let lengths: Vec<_> = binaries.iter().map(|(_, binary)| binary.len()).collect();
        let mut starts: Vec<_> = binaries.iter().map(|(_, binary)| binary.as_ptr()).collect();
        let number = api::count(binaries.len())?;
        let mut code = 0;
        // SAFETY: all lists have `number` entries, each binary its length; the driver copies them.
        let raw = unsafe {
            create(
                context.raw(),
                number,
                devices.as_ptr(),
                lengths.as_ptr(),
                starts.as_mut_ptr(),
                codes.as_mut_ptr(),
                &mut code,
            )
        };
        Ok(Self::of(OwnedProgram::take(api::made(raw, code)?), context, false))
    }

    /// `clCreateProgramWithIL`.
    pub(super) fn with_il(context: &Context, il: &[u8]) -> Result<Self, Status> {
        context.platform().needs(2, 1)?;
        if il.is_empty() {
            return Err(Status::INVALID_VALUE);
        }
        let create = function!(clCreateProgramWithIL)?;
        let mut code = 0;
        // SAFETY: the IL has its length; the driver copies it.
        let raw = unsafe { create(context.raw(), il.as_ptr().cast(), il.len(), &mut code) };
        Ok(Self::of(OwnedProgram::take(api::made(raw, code)?), context, true))
    }

    /// `clCreateProgramWithBuiltInKernels`.
    pub(super) fn with_built_in(
        context: &Context,
        devices: &[Device],
        names: &str,
    ) -> Result<Self, Status> {
        let create = function!(clCreateProgramWithBuiltInKernels)?;
        let names = CString::new(names).map_err(|_| Status::INVALID_VALUE)?;
        let list = handles(devices)?;
        let number = api::count(list.len())?;
        let mut code = 0;
        // SAFETY: the list has `number` devices; the names end with a NUL.
        let raw =
            unsafe { create(context.raw(), number, list.as_ptr(), names.as_ptr(), &mut code) };
        Ok(Self::of(OwnedProgram::take(api::made(raw, code)?), context, false))
    }

    /// `clBuildProgram`.
    pub(super) fn build(&self, devices: &[Device], options: Option<&str>) -> Result<(), Status> {
        let options = self.with_arg_info(options).ok_or(INVALID_BUILD_OPTIONS)?;
        self.build_as_given(devices, Some(&options))
    }

    pub(super) fn build_as_given(
        &self,
        devices: &[Device],
        options: Option<&CStr>,
    ) -> Result<(), Status> {
        let build = function!(clBuildProgram)?;
        let list = handles(devices)?;
        let number = api::count(list.len())?;
        let options = options.map_or(std::ptr::null(), CStr::as_ptr);
        // SAFETY: the program lives, the list has `number` devices, and the options end with a NUL
        // or are null. Without a callback the call blocks until the build has ended.
        api::check(unsafe {
            build(self.raw(), number, some_start(&list), options, None, std::ptr::null_mut())
        })
    }

    /// `clCompileProgram`. Each header comes with the name by which it is included.
    pub(super) fn compile(
        &self,
        devices: &[Device],
        options: Option<&str>,
        headers: &[(String, driver::Program)],
    ) -> Result<(), Status> {
        let compile = function!(clCompileProgram)?;
        let options = self.with_arg_info(options).ok_or(INVALID_COMPILER_OPTIONS)?;
        let list = handles(devices)?;
        let names: Result<Vec<_>, _> =
            headers.iter().map(|(name, _)| CString::new(name.as_str())).collect();
        let names = names.map_err(|_| Status::INVALID_VALUE)?;
        let mut name_starts: Vec<_> = names.iter().map(|name| name.as_ptr()).collect();
        let programs: Vec<_> =
            headers.iter().map(|(_, program)| raw(program)).collect::<Result<_, Status>>()?;
        let (number, header_number) = (api::count(list.len())?, api::count(programs.len())?);
        // "CL_INVALID_VALUE if num_input_headers is zero and header_include_names or input_headers
        // are not NULL".
        let name_start =
            if names.is_empty() { std::ptr::null_mut() } else { name_starts.as_mut_ptr() };
        // SAFETY: all lists have their named lengths, and all texts end with a NUL. Without a
        // callback the call blocks until the compilation has ended.
        api::check(unsafe {
            compile(
                self.raw(),
                number,
                some_start(&list),
                options.as_ptr(),
                header_number,
                some_start(&programs),
                name_start,
                None,
                std::ptr::null_mut(),
            )
        })
    }

    /// `clLinkProgram`. A failed link may still return a program, which has the log.
    pub(super) fn link(
        context: &Context,
        devices: &[Device],
        options: Option<&str>,
        inputs: &[driver::Program],
    ) -> (Result<(), Status>, Option<Self>) {
        let mut code = 0;
        match Self::link_raw(context, devices, options, inputs, &mut code) {
            Ok(raw) if raw.is_null() => (api::check(code).and(Err(Status::OUT_OF_RESOURCES)), None),
            Ok(raw) => (api::check(code), Some(Self::of(OwnedProgram::take(raw), context, false))),
            Err(status) => (Err(status), None),
        }
    }

    fn link_raw(
        context: &Context,
        devices: &[Device],
        options: Option<&str>,
        inputs: &[driver::Program],
        code: &mut i32,
    ) -> Result<cl_program, Status> {
        let link = function!(clLinkProgram)?;
        let options = options.map(CString::new).transpose().map_err(|_| INVALID_LINKER_OPTIONS)?;
        let options = options.as_ref().map_or(std::ptr::null(), |options| options.as_ptr());
        let list = handles(devices)?;
        let programs: Vec<_> = inputs.iter().map(raw).collect::<Result<_, Status>>()?;
        let (number, input_number) = (api::count(list.len())?, api::count(programs.len())?);
        // SAFETY: all lists have their named lengths, and the options end with a NUL or are null.
        // Without a callback the call blocks until the link has ended.
        Ok(unsafe {
            link(
                context.raw(),
                number,
                some_start(&list),
                options,
                input_number,
                some_start(&programs),
                None,
                std::ptr::null_mut(),
                code,
            )
        })
    }

    /// `clSetProgramSpecializationConstant`.
    pub(super) fn set_spec_constant(&self, id: u32, value: &[u8]) -> Result<(), Status> {
        self.0.context.platform().needs(2, 2)?;
        // "CL_INVALID_PROGRAM if program is not a valid program object created from an intermediate
        // language". PoCL 3.1 ends the process for a program whose link has failed.
        if !self.0.is_of_il {
            return Err(Status::INVALID_PROGRAM);
        }
        let set = function!(clSetProgramSpecializationConstant)?;
        // SAFETY: the program lives, and the value has its size.
        api::check(unsafe { set(self.raw(), id, value.len(), value.as_ptr().cast()) })
    }

    pub(super) fn raw(&self) -> cl_program {
        self.0.raw.raw()
    }

    pub(super) fn context(&self) -> &Context {
        &self.0.context
    }

    pub(super) fn arg_info_was_added(&self) -> bool {
        self.0.arg_info_added.load(Ordering::Relaxed)
    }

    /// Whether the client gave options for the last build.
    pub(super) fn had_options(&self) -> bool {
        self.0.had_options.load(Ordering::Relaxed)
    }

    /// Adds [`ARG_INFO_OPTION`] to the options; `None` if they contain a NUL.
    fn with_arg_info(&self, options: Option<&str>) -> Option<CString> {
        self.0.had_options.store(options.is_some(), Ordering::Relaxed);
        let options = options.unwrap_or_default();
        let has_it = options.split_whitespace().any(|option| option == ARG_INFO_OPTION);
        self.0.arg_info_added.store(!has_it, Ordering::Relaxed);
        let options = match (has_it, options.is_empty()) {
            (true, _) => options.to_owned(),
            (false, true) => ARG_INFO_OPTION.to_owned(),
            (false, false) => format!("{options} {ARG_INFO_OPTION}"),
        };
        CString::new(options).ok()
    }
}

fn raw(program: &driver::Program) -> Result<cl_program, Status> {
    Ok(program.driver::<Program>()?.raw())
}

/// Returns the start of a list, or null for an empty list, as most calls require.
fn some_start<T>(list: &[T]) -> *const T {
    if list.is_empty() { std::ptr::null() } else { list.as_ptr() }
}
