//! Building, compiling and linking: in the call, or in a thread if the program gave a callback.

use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use penstock_cl_sys::*;
use penstock_wire::Status;

use super::device::Device;
use super::program::Program;
use crate::edge::{ClError, ClResult, Ref};

/// Operation on a program.
pub(crate) enum Job {
    /// Implements the function `clBuildProgram`.
    Build,
    /// Implements `clCompileProgram`; the headers have their include names.
    Compile(Vec<(String, Ref<Program>)>),
    /// Implements the function `clLinkProgram`.
    Link(Vec<Ref<Program>>),
}

/// Callback of the program for the end of its build.
pub(crate) type Notify = Box<dyn FnOnce() + Send>;

/// Runs `job` on `program` for `devices`, in a new thread if there is a `notify`.
///
/// # Errors
/// Returns the error of the build, unless the build runs in a thread.
pub(crate) fn run(
    program: &Ref<Program>,
    devices: Vec<Ref<Device>>,
    options: Option<&str>,
    job: Job,
    notify: Option<Notify>,
) -> ClResult {
    program.begin(&devices, options)?;
    let (built, options) = (program.clone(), options.map(str::to_owned));
    let Some(notify) = notify else {
        return work(&built, &devices, options.as_deref(), &job);
    };
    // "If pfn_notify is not NULL, clBuildProgram does not need to wait for the build to complete,
    // and can return immediately".
    let started = penstock_process::start("penstock-build", move || {
        // The result is in the build status, which the program queries.
        _ = work(&built, &devices, options.as_deref(), &job);
        // The program may release its own reference in the callback, so ours are dropped before it.
        drop((built, job));
        notify();
    });
    started.map(drop).map_err(|_| ClError(CL_OUT_OF_HOST_MEMORY))
}

fn work(
    program: &Ref<Program>,
    devices: &[Ref<Device>],
    options: Option<&str>,
    job: &Job,
) -> ClResult {
    let pool_devices: Vec<_> = devices.iter().map(|device| device.pool.clone()).collect();
    let result = match job {
        Job::Build => {
            program.pool().and_then(|pool| patiently(|| Ok(pool.build(&pool_devices, options)?)))
        }
        Job::Compile(headers) => program.pool().and_then(|pool| {
            let inputs = headers.iter().map(|(name, header)| Ok((name.as_str(), header.pool()?)));
            let inputs = inputs.collect::<ClResult<Vec<_>>>()?;
            patiently(|| Ok(pool.compile(&pool_devices, options, &inputs)?))
        }),
        Job::Link(inputs) => link(program, &pool_devices, options, inputs),
    };
    program.end(devices, result.err().map_or(Status::OK, |error| Status(error.0)));
    result
}

/// Time that a driver may keep using a kernel after its last command, before a build is refused.
const LINGERS_MAX: Duration = Duration::from_secs(1);

/// Repeats `build` while the driver says that the program is in use. We have checked that it has no
/// kernels, but PoCL 3.1 releases a kernel a moment after its last command is complete.
fn patiently(build: impl Fn() -> ClResult) -> ClResult {
    let start = Instant::now();
    loop {
        let built = build();
        if built != Err(ClError(CL_INVALID_OPERATION)) || start.elapsed() > LINGERS_MAX {
            return built;
        }
        thread::sleep(Duration::from_millis(1));
    }
}

fn link(
    program: &Ref<Program>,
    devices: &[Arc<penstock_client::Device>],
    options: Option<&str>,
    inputs: &[Ref<Program>],
) -> ClResult {
    let inputs = inputs.iter().map(|input| input.pool()).collect::<ClResult<Vec<_>>>()?;
    let (linked, result) =
        penstock_client::Program::link(&program.context.pool, devices, options, &inputs)?;
    program.set_pool(linked);
    Ok(result?)
}
