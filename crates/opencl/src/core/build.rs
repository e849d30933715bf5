//! Building, compiling and linking: at once, or in a thread where the program wants to be called back.

use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use penstock_cl_sys::*;
use penstock_wire::Status;

use super::device::Device;
use super::program::Program;
use crate::edge::{ClError, ClResult, Ref};

/// What is to be done.
pub(crate) enum Job {
    /// `clBuildProgram`.
    Build,
    /// `clCompileProgram`, with headers by the names under which they are included.
    Compile(Vec<(String, Ref<Program>)>),
    /// `clLinkProgram`.
    Link(Vec<Ref<Program>>),
}

/// Calls the program back when its build has ended.
pub(crate) type Notify = Box<dyn FnOnce() + Send>;

/// Does `job` to `program` for `devices`; in a thread of its own if there is a `notify`.
///
/// # Errors
/// What the build returned, unless it goes on.
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
    // "If pfn_notify is not NULL, clBuildProgram does not need to wait for the build to complete, and can return
    // immediately". The thread may not outlast a failure to start it.
    let spawned = thread::Builder::new().name("penstock-build".into()).spawn(move || {
        // Its result is in the build status, which the program asks for.
        _ = work(&built, &devices, options.as_deref(), &job);
        // "after the callback": the program may release its own reference there.
        drop((built, job));
        notify();
    });
    spawned.map(drop).map_err(|_| ClError(CL_OUT_OF_HOST_MEMORY))
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

/// How long a driver may go on using a kernel after its last command has ended, before a build is refused for it.
const LINGERS_MAX: Duration = Duration::from_secs(1);

/// Does `build` again while the driver says that the program is in use. We have checked that it has no kernels; but PoCL 3.1
/// lets go of one a moment after its last command is complete.
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
