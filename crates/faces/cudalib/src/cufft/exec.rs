//! The transforms themselves, and what a program sets for them.

use std::ffi::{c_int, c_void};

use penstock_cuda_sys::driver::{
    CUDA_ERROR_INVALID_VALUE, CUDA_ERROR_NOT_SUPPORTED, CUDA_ERROR_OUT_OF_MEMORY, CUstream,
};
use penstock_wire::library::{LibraryCall, fft};

use super::plan::{self, Form, Type};
use super::{Code, Done, run};
use crate::device_call::{Addresses, Refusal, send};
use crate::edge::{store, version};

/// Values of the parameter `direction`.
const FORWARD: c_int = -1;
const INVERSE: c_int = 1;

/// Runs a transform. `kind` is the type that the function's name says, or `None` for any.
fn transform(
    number: c_int,
    (input, output): (*mut c_void, *mut c_void),
    direction: c_int,
    kind: Option<Type>,
) -> Done {
    let plan = plan::find(number)?;
    let description = plan.description.ok_or(Code::INVALID_PLAN)?;
    if kind.is_some_and(|kind| kind != description.kind) {
        return Err(Code::INVALID_TYPE);
    }
    let forward = match direction {
        FORWARD => true,
        INVERSE => false,
        _ => return Err(Code::INVALID_VALUE),
    };
    if input.is_null() || output.is_null() {
        return Err(Code::INVALID_VALUE);
    }
    plan.check_served()?;
    let in_place = input == output;
    let mut addresses = Addresses::default();
    let call = LibraryCall::Fft(fft::Call {
        shape: description.shape(forward, in_place),
        input: addresses.add(input),
        output: (!in_place).then(|| addresses.add(output)),
    });
    send(plan.driver, plan.place(), &call, &addresses).map_err(|refusal| match refusal {
        Refusal::Misfit => Code::INVALID_SIZE,
        Refusal::Driver(CUDA_ERROR_INVALID_VALUE) => Code::INVALID_VALUE,
        Refusal::Driver(CUDA_ERROR_OUT_OF_MEMORY) => Code::ALLOC_FAILED,
        Refusal::Driver(CUDA_ERROR_NOT_SUPPORTED) => Code::NOT_SUPPORTED,
        Refusal::Driver(_) => Code::EXEC_FAILED,
    })
}

/// Defines functions. `fn name(plan, input, output, direction)`.
macro_rules! transforms {
    ($($name:ident $form:ident $is_double:literal ($($direction:ident)?) $fixed:expr;)+) => {$(
        /// # Safety
        /// Safe with any argument, because the driver checks plan and addresses.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(
            plan: c_int,
            input: *mut c_void,
            output: *mut c_void,
            $($direction: c_int,)?
        ) -> c_int {
            let kind = Type { form: Form::$form, is_double: $is_double };
            run(|| transform(plan, (input, output), $fixed, Some(kind)))
        }
    )+};
}

transforms! {
    cufftExecC2C Complex false (direction) direction;
    cufftExecZ2Z Complex true (direction) direction;
    cufftExecR2C FromReal false () FORWARD;
    cufftExecD2Z FromReal true () FORWARD;
    cufftExecC2R ToReal false () INVERSE;
    cufftExecZ2D ToReal true () INVERSE;
}

/// # Safety
/// Safe with any argument, because the driver checks plan and addresses.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cufftXtExec(
    plan: c_int,
    input: *mut c_void,
    output: *mut c_void,
    direction: c_int,
) -> c_int {
    run(|| transform(plan, (input, output), direction, None))
}

/// # Safety
/// Safe with any argument, because the plan is checked.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cufftDestroy(plan: c_int) -> c_int {
    run(|| plan::destroy(plan))
}

/// # Safety
/// Safe with any argument, because the driver checks the stream when it is used.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cufftSetStream(plan: c_int, stream: CUstream) -> c_int {
    run(|| plan::set_stream(plan, stream))
}

/// The libraries have their own memory.
///
/// # Safety
/// Safe with any argument, because the plan is checked.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cufftSetWorkArea(plan: c_int, _area: *mut c_void) -> c_int {
    run(|| plan::find(plan).map(drop))
}

/// # Safety
/// Safe with any argument, because the plan is checked.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cufftSetAutoAllocation(plan: c_int, _automatic: c_int) -> c_int {
    run(|| plan::find(plan).map(drop))
}

/// # Safety
/// `to` is null or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cufftGetVersion(to: *mut c_int) -> c_int {
    // SAFETY: the program promises that the place is null or writable.
    run(|| if unsafe { store(to, version()) } { Ok(()) } else { Err(Code::INVALID_VALUE) })
}

/// # Safety
/// `to` is null or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cufftGetProperty(property: c_int, to: *mut c_int) -> c_int {
    run(|| {
        // cuFFT's number has one digit more than that of cuBLAS for the minor version.
        let value = match property {
            0 => version() / 1_000,
            1 => version() / 100 % 10,
            2 => version() % 100,
            _ => return Err(Code::INVALID_VALUE),
        };
        // SAFETY: the program promises that the place is null or writable.
        if unsafe { store(to, value) } { Ok(()) } else { Err(Code::INVALID_VALUE) }
    })
}
