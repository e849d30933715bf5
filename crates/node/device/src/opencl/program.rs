//! Programs: what their creation and their builds share. Builds and queries are in `report`.

use std::ffi::{CStr, CString};
use std::sync::atomic::{AtomicBool, Ordering};

use penstock_cl_sys::cl_program;
use penstock_wire::status::Status;
use penstock_wire::text::to_bytes;

use super::api::{self, function};
use super::context::{Context, handles};
use super::owned::OwnedProgram;
use crate::driver;
use crate::driver::Device;

/// Makes the compiler keep the data of `clGetKernelArgInfo`. The client must know which arguments
/// are memory; the worker must refuse bytes that the driver would take for a handle.
pub(super) const ARG_INFO_OPTION: &str = "-cl-kernel-arg-info";

#[derive(Debug)]
pub(super) struct Program {
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
    /// Takes over a program.
    pub(super) fn of(raw: cl_program, context: &Context, is_of_il: bool) -> Self {
        let (arg_info_added, had_options) = (AtomicBool::new(false), AtomicBool::new(false));
        let (raw, context) = (OwnedProgram::take(raw), context.clone());
        Self { raw, context, arg_info_added, had_options, is_of_il }
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
        Ok(Self::of(api::made(raw, code)?, context, false))
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

    /// `clLinkProgram`.
    pub(super) fn link(
        context: &Context,
        devices: &[Device],
        options: Option<&str>,
        inputs: &[driver::Program],
        code: &mut i32,
    ) -> Result<cl_program, Status> {
        let link = function!(clLinkProgram)?;
        let options = options
            .map(|it| CString::new(to_bytes(it)))
            .transpose()
            .map_err(|_| Status::INVALID_LINKER_OPTIONS)?;
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

    pub(super) fn raw(&self) -> cl_program {
        self.raw.raw()
    }

    pub(super) fn context(&self) -> &Context {
        &self.context
    }

    pub(super) fn arg_info_was_added(&self) -> bool {
        self.arg_info_added.load(Ordering::Relaxed)
    }

    /// Whether the client gave options for the last build.
    pub(super) fn had_options(&self) -> bool {
        self.had_options.load(Ordering::Relaxed)
    }

    pub(super) fn is_of_il(&self) -> bool {
        self.is_of_il
    }

    /// Adds [`ARG_INFO_OPTION`] to the options; `None` if they contain a NUL.
    pub(super) fn with_arg_info(&self, options: Option<&str>) -> Option<CString> {
        self.had_options.store(options.is_some(), Ordering::Relaxed);
        let options = options.unwrap_or_default();
        let has_it = options.split_whitespace().any(|option| option == ARG_INFO_OPTION);
        self.arg_info_added.store(!has_it, Ordering::Relaxed);
        let options = match (has_it, options.is_empty()) {
            (true, _) => options.to_owned(),
            (false, true) => ARG_INFO_OPTION.to_owned(),
            (false, false) => format!("{options} {ARG_INFO_OPTION}"),
        };
        CString::new(to_bytes(&options)).ok()
    }
}

pub(super) fn raw(program: &driver::Program) -> Result<cl_program, Status> {
    Ok(program.driver::<Program>()?.raw())
}

/// Returns the start of a list, or null for an empty list, as most calls require.
pub(super) fn some_start<T>(list: &[T]) -> *const T {
    if list.is_empty() { std::ptr::null() } else { list.as_ptr() }
}
