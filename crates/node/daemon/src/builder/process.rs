//! A builder: a process that loads the drivers and builds programs, one after the other.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::time::{Duration, Instant};

use penstock_confine::Begun;
use penstock_device::{Context, Device, Driver, Platform, Program};
use penstock_link::Patience;
use penstock_wire::{Status, frame};
use rustix::fs::MemfdFlags;
use rustix::process::{Resource, Rlimit};

use super::limits::{BUILD_STACK_BYTES, BuildLimits};
use super::task::{FromBuilder, Goal, Making, Origin, Task, ToBuilder};
use crate::message::Control;
use crate::pocl::is_pocl;
use crate::sys;

/// Time without a build after which a builder ends. The next one takes the time in which the
/// drivers load, some 50 to 300 ms, and this one has some 100 MB of memory.
const IDLE_MAX: Duration = Duration::from_secs(20);

/// Most contexts that a builder keeps. Programs use one or two.
const CONTEXTS_MAX: usize = 8;

/// Is a builder until its worker needs it no more. `folder` is the worker's own folder, and `bench`
/// has the drivers, if they are loaded.
pub(super) fn run(
    socket: OwnedFd,
    begun: Begun,
    limits: BuildLimits,
    folder: Option<&Path>,
    bench: Option<&'static mut Bench>,
) -> ! {
    let control = Control::of(socket);
    // It ends with the process: what drivers have made is not released after a panic.
    let mut bench = bench.unwrap_or_else(|| Box::leak(Box::new(Bench::new())));
    if let Some(folder) = folder {
        // The worker has laid out there what programs include. If this fails, the compiler does not
        // find these files, and the worker builds without a rehearsal.
        _ = std::env::set_current_dir(folder);
    }
    let report = begun.finish(bench.runs_programs());
    let resident_bytes = match limit_memory(limits) {
        Ok(resident) => resident,
        Err(error) => {
            tracing::warn!(%error, "a builder cannot limit its memory");
            sys::exit_now(1)
        }
    };
    let Ok(memory) = rustix::fs::memfd_create("penstock-task", MemfdFlags::CLOEXEC) else {
        sys::exit_now(1)
    };
    let memory = File::from(memory);
    let ready = FromBuilder::Ready { level: report.level, resident_bytes };
    if control.send(&ready, Some(memory.as_fd())).is_err() {
        sys::exit_now(0);
    }
    // That was the last descriptor that it sends.
    if let Err(error) = penstock_confine::keep_descriptors(&report, false) {
        tracing::warn!(%error, "a builder cannot be kept from sending descriptors");
        sys::exit_now(1)
    }
    loop {
        let next = control.receive::<ToBuilder>(Patience::Until(Instant::now() + IDLE_MAX));
        let Ok(Some((ToBuilder::Build { bytes }, _))) = next else { sys::exit_now(0) };
        if control.send(&FromBuilder::Begun, None).is_err() {
            sys::exit_now(0);
        }
        let Ok(task) = read(&memory, bytes) else { sys::exit_now(1) };
        bench = bench.perform_in_thread(task);
        if control.send(&FromBuilder::Done, None).is_err() {
            sys::exit_now(0);
        }
    }
}

/// Limits the memory that this process may take from now on. What the drivers have taken does not
/// count, because each has its own pools and threads. Returns how much of it is resident.
fn limit_memory(limits: BuildLimits) -> io::Result<u64> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let bytes = |name| {
        let line = status.lines().find_map(|line| line.strip_prefix(name));
        let kib = line.and_then(|rest| rest.trim().strip_suffix(" kB")?.trim().parse::<u64>().ok());
        Ok::<_, io::Error>(kib.ok_or(io::ErrorKind::InvalidData)? << 10)
    };
    let (taken, resident) = (bytes("VmData:")?, bytes("VmRSS:")?);
    // Linux counts the whole stack of the thread that builds.
    let most = taken.saturating_add(limits.bytes_max).saturating_add(BUILD_STACK_BYTES as u64);
    let limit = Rlimit { current: Some(most), maximum: Some(most) };
    rustix::process::setrlimit(Resource::Data, limit)?;
    Ok(resident)
}

fn read(memory: &File, length: u64) -> io::Result<Task> {
    let length = usize::try_from(length).map_err(io::Error::other)?;
    let mut bytes = Vec::new();
    bytes.try_reserve_exact(length).map_err(io::Error::other)?;
    bytes.resize(length, 0);
    memory.read_exact_at(&mut bytes, 0)?;
    frame::decode("a task for a builder", &bytes).map_err(io::Error::other)
}

/// What a builder works with.
pub(super) struct Bench {
    platforms: Vec<Platform>,
    /// All devices, in the order of the worker's, each with the index of its platform.
    devices: Vec<(usize, Device)>,
    contexts: Vec<(Vec<u32>, Context)>,
}

impl Bench {
    /// Loads the drivers.
    pub(super) fn new() -> Self {
        penstock_device::share_cpus();
        let platforms = Driver::load().map(|driver| driver.platforms()).unwrap_or_default();
        let of = |(index, platform): (usize, &Platform)| {
            platform.devices().into_iter().map(move |device| (index, device)).collect::<Vec<_>>()
        };
        let devices = platforms.iter().enumerate().flat_map(of).collect();
        Self { platforms, devices, contexts: Vec::new() }
    }

    /// Returns the names of all devices.
    pub(super) fn names(&self) -> Vec<String> {
        self.devices.iter().map(|(_, device)| device.name()).collect()
    }

    fn runs_programs(&self) -> bool {
        self.platforms.iter().any(|platform| is_pocl(&platform.info()))
    }

    /// Performs a task on a thread with as much stack as the worker's own builds have: a compiler
    /// that recurses too deep for one does so for the other.
    pub(super) fn perform_in_thread(&'static mut self, task: Task) -> &'static mut Self {
        let work = move || {
            // The program's errors are those of the worker's own build, which follows.
            _ = self.perform(&task);
            self
        };
        let thread = penstock_process::start_with_stack("build", BUILD_STACK_BYTES, work);
        let Ok(thread) = thread else { sys::exit_now(1) };
        // A panic ends this process.
        thread.join().unwrap_or_else(|_| sys::exit_now(101))
    }

    /// Does what the worker does for the same call, until the report on it.
    fn perform(&mut self, task: &Task) -> Result<(), Status> {
        let context = self.context(&task.devices)?;
        let devices = self.chosen(&task.devices)?;
        let indexed: Vec<_> = task.devices.iter().copied().zip(devices.iter().cloned()).collect();
        let (done, program) = match &task.goal {
            Goal::Build(making) => {
                let program = created(&context, &making.origin)?;
                (program.build(&devices, making.options.as_deref()), program)
            }
            Goal::Compile(making) => compiled(&context, &devices, making)?,
            Goal::Link { options, inputs } => {
                let compiled = inputs.iter().map(|input| {
                    let (done, program) = compiled(&context, &devices, input)?;
                    done.map(|()| program)
                });
                let inputs = compiled.collect::<Result<Vec<_>, Status>>()?;
                let (done, made) = Program::link(&context, &devices, options.as_deref(), &inputs);
                (done, made.ok_or(Status::INVALID_PROGRAM)?)
            }
        };
        program.report(done, &indexed);
        Ok(())
    }

    fn chosen(&self, indices: &[u32]) -> Result<Vec<Device>, Status> {
        indices.iter().map(|index| self.device(*index).map(|(_, device)| device.clone())).collect()
    }

    fn device(&self, index: u32) -> Result<&(usize, Device), Status> {
        let index = usize::try_from(index).map_err(|_| Status::INVALID_DEVICE)?;
        self.devices.get(index).ok_or(Status::INVALID_DEVICE)
    }

    fn context(&mut self, indices: &[u32]) -> Result<Context, Status> {
        if let Some((_, context)) = self.contexts.iter().find(|(of, _)| of == indices) {
            return Ok(context.clone());
        }
        let first = indices.first().ok_or(Status::INVALID_DEVICE)?;
        let (platform, _) = self.device(*first)?;
        let platform = self.platforms.get(*platform).ok_or(Status::INVALID_DEVICE)?;
        let context = Context::new(platform, &self.chosen(indices)?, Box::new(|_| ()))?;
        if self.contexts.len() >= CONTEXTS_MAX {
            self.contexts.remove(0);
        }
        self.contexts.push((indices.to_vec(), context.clone()));
        Ok(context)
    }
}

fn created(context: &Context, origin: &Origin) -> Result<Program, Status> {
    match origin {
        Origin::Source(source) => Program::with_source(context, source),
        Origin::Il { code, constants } => {
            let program = Program::with_il(context, code)?;
            for (id, value) in constants {
                program.set_spec_constant(*id, value)?;
            }
            Ok(program)
        }
    }
}

fn compiled(
    context: &Context,
    devices: &[Device],
    making: &Making,
) -> Result<(Result<(), Status>, Program), Status> {
    let program = created(context, &making.origin)?;
    let header = |(name, source): &(String, Vec<u8>)| {
        Ok((name.clone(), Program::with_source(context, source)?))
    };
    let headers = making.headers.iter().map(header).collect::<Result<Vec<_>, Status>>()?;
    Ok((program.compile(devices, making.options.as_deref(), &headers), program))
}
