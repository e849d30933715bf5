//! Programs. They are built in all places at the same time, and the reports of the builds answer
//! all later queries in the client.

mod built;

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use penstock_ggas::with_header;
use penstock_process::Lock;
use penstock_wire::calls::to_worker;
use penstock_wire::cuda::Global;
use penstock_wire::describe::{BuildOrder, BuildReport, BuiltInKernels, Info, KernelDescription};
use penstock_wire::id::kind;
use penstock_wire::{Id, Request, Status, U32, frame};

use crate::context::{Context, Place};
use crate::error::{Error, Result};
use crate::headers::directive::Directives;
use crate::headers::search::TooMuch;
use crate::headers::{self, ForBuild};
use crate::pool::Device;
use crate::session::Pending;
use built::{Built, device_key, place_of_key};

pub struct Program {
    context: Arc<Context>,
    /// Id of the program in each place, or none where it does not exist.
    ids: Vec<Id<kind::Program>>,
    built: Lock<Built>,
    /// Whether the kernels may print: the source or a file that it includes contains `printf`, or
    /// the client does not know the source.
    may_print: AtomicBool,
    /// What the source includes, if it includes anything.
    directives: Option<Directives>,
}

/// The inputs of a build, compilation or link.
#[derive(Default)]
struct Inputs<'a> {
    options: Option<&'a str>,
    programs: &'a [Input<'a>],
    /// See [`BuildOrder::globals`].
    globals: Option<Vec<String>>,
    is_compilation: bool,
}

/// An input of a compilation or link. For a header, the text is the name under which it is
/// included.
pub type Input<'a> = (&'a str, &'a Arc<Program>);

impl Program {
    /// `clCreateProgramWithSource`. A source may include `ggas.h`.
    ///
    /// # Errors
    /// If a node is lost.
    pub fn with_source(context: &Arc<Context>, source: &[u8]) -> Result<Arc<Self>> {
        Self::with_source_at(context, source, |_| true)
    }

    /// `clCreateProgramWithIL`.
    ///
    /// # Errors
    /// If a node is lost.
    pub fn with_il(context: &Arc<Context>, il: &[u8]) -> Result<Arc<Self>> {
        let ids = each_place(context, |place, program| {
            let call = to_worker::CreateProgramWithIl { program, context: place.id };
            place.session.send(&call, &[], il)
        })?;
        Ok(Self::new(context, ids))
    }

    /// As [`Program::with_source`], but only in the places of these devices. Elsewhere neither the
    /// program nor its kernels exist. For programs that few devices of a large context need.
    ///
    /// # Errors
    /// If one of those nodes is lost.
    pub fn with_source_for(
        context: &Arc<Context>,
        devices: &[Arc<Device>],
        source: &[u8],
    ) -> Result<Arc<Self>> {
        Self::with_source_at(context, source, |place| {
            !devices_at(context, place, devices).is_empty()
        })
    }

    fn with_source_at(
        context: &Arc<Context>,
        source: &[u8],
        is_wanted: impl Fn(usize) -> bool,
    ) -> Result<Arc<Self>> {
        let source = &*with_header(source);
        let directives = Directives::of(source);
        let relocated = directives.as_ref().map(|directives| directives.relocated(source));
        let mut ids = Vec::new();
        for (index, place) in context.places().iter().enumerate() {
            if !is_wanted(index) {
                ids.push(Id::NONE);
                continue;
            }
            let program = crate::ids::next_id();
            let call = to_worker::CreateProgramWithSource { program, context: place.id };
            let relocated = relocated.as_deref().filter(|_| place.session.takes_headers);
            place.session.send(&call, &[], relocated.unwrap_or(source))?;
            ids.push(program);
        }
        // The worker, too, looks for `printf` and collects no text for a program without it.
        let may_print = headers::prints(source);
        Ok(Self::made(context, ids, may_print, directives))
    }

    fn new(context: &Arc<Context>, ids: Vec<Id<kind::Program>>) -> Arc<Self> {
        Self::made(context, ids, true, None)
    }

    fn made(
        context: &Arc<Context>,
        ids: Vec<Id<kind::Program>>,
        may_print: bool,
        directives: Option<Directives>,
    ) -> Arc<Self> {
        let (context, may_print) = (context.clone(), AtomicBool::new(may_print));
        Arc::new(Self { context, ids, built: Lock::default(), may_print, directives })
    }

    pub(crate) fn may_print(&self) -> bool {
        self.may_print.load(Ordering::Relaxed)
    }

    /// `clCreateProgramWithBinary`. Returns the program, and the status of each binary in order.
    /// Waits for the workers.
    ///
    /// # Errors
    /// The driver's code if a driver made no program.
    pub fn with_binaries(
        context: &Arc<Context>,
        binaries: &[(&Arc<Device>, &[u8])],
    ) -> Result<(Arc<Self>, Vec<Status>)> {
        let mut ids = vec![Id::NONE; context.places().len()];
        let mut statuses = vec![Status::OK; binaries.len()];
        let mut devices = Vec::new();
        for (index, place) in context.places().iter().enumerate() {
            let here: Vec<usize> = (0..binaries.len())
                .filter(|at| context.place_of(binaries[*at].0) == Some(index))
                .collect();
            if here.is_empty() {
                continue;
            }
            let payload: Vec<_> =
                here.iter().map(|at| (binaries[*at].0.index(), binaries[*at].1)).collect();
            let program = crate::ids::next_id();
            let call = to_worker::CreateProgramWithBinary {
                request: Id::NONE,
                program,
                context: place.id,
            };
            let loaded = place.session.request(call, &frame::encode(&payload)).wait()?;
            for (at, answer) in here.into_iter().zip(loaded.statuses) {
                statuses[at] = Status(answer);
            }
            ids[index] = program;
            devices
                .extend(loaded.devices.into_iter().map(|(device, info)| ((index, device), info)));
        }
        let program = Self::new(context, ids);
        program.built.lock().devices = devices;
        Ok((program, statuses))
    }

    /// `clCreateProgramWithBuiltInKernels`. Waits for the workers.
    ///
    /// # Errors
    /// The driver's code.
    pub fn with_built_in_kernels(
        context: &Arc<Context>,
        devices: &[Arc<Device>],
        names: &str,
    ) -> Result<Arc<Self>> {
        let mut ids = vec![Id::NONE; context.places().len()];
        for (index, place) in context.places().iter().enumerate() {
            let here = devices_at(context, index, devices);
            if here.is_empty() {
                continue;
            }
            let program = crate::ids::next_id();
            let call = to_worker::CreateProgramWithBuiltInKernels {
                request: Id::NONE,
                program,
                context: place.id,
            };
            let payload = frame::encode(&BuiltInKernels { devices: here, names: names.into() });
            place.session.request(call, &payload).wait()?;
            ids[index] = program;
        }
        Ok(Self::new(context, ids))
    }

    /// `clBuildProgram`, in all places at the same time. Waits for the workers without a time
    /// limit. `options` is `None` if the program gave `NULL`.
    ///
    /// # Errors
    /// The driver's code. The build logs are available in this case too.
    pub fn build<'a>(
        &self,
        devices: &[Arc<Device>],
        options: impl Into<Option<&'a str>>,
    ) -> Result<()> {
        let options = options.into();
        self.make(devices, Inputs { options, ..Inputs::default() }, |program| {
            to_worker::BuildProgram { request: Id::NONE, program }
        })
    }

    /// Has CUDA's driver load a module for its device. `globals` are the names of the variables
    /// that [`Program::globals`] returns if the module has them, or `None` for those that are
    /// visible in the module. Waits as [`Program::build`].
    ///
    /// # Errors
    /// As [`Program::build`].
    pub fn load_module(&self, device: &Arc<Device>, globals: Option<Vec<String>>) -> Result<()> {
        let inputs = Inputs { globals, ..Inputs::default() };
        self.make(std::slice::from_ref(device), inputs, |program| to_worker::BuildProgram {
            request: Id::NONE,
            program,
        })
    }

    /// `clCompileProgram`. Waits as [`Program::build`].
    ///
    /// # Errors
    /// As [`Program::build`].
    pub fn compile(
        &self,
        devices: &[Arc<Device>],
        options: Option<&str>,
        headers: &[Input<'_>],
    ) -> Result<()> {
        let inputs = Inputs { options, programs: headers, globals: None, is_compilation: true };
        self.make(devices, inputs, |program| to_worker::CompileProgram {
            request: Id::NONE,
            program,
        })
    }

    fn make<C: Request<Reply = BuildReport>>(
        &self,
        devices: &[Arc<Device>],
        inputs: Inputs<'_>,
        call: impl Fn(Id<kind::Program>) -> C,
    ) -> Result<()> {
        let headers = match self.headers(&inputs) {
            Ok(headers) => headers,
            Err(error) => return Err(self.refuse(devices, &inputs, &error.to_string())),
        };
        let mut pending = Vec::new();
        for (index, (place, id)) in self.context.places().iter().zip(&self.ids).enumerate() {
            let here = devices_at(&self.context, index, devices);
            if here.is_empty() || id.is_none() {
                continue;
            }
            if let Some(ForBuild { payload, .. }) = &headers
                && place.session.takes_headers
            {
                let call = to_worker::ProgramHeaders { program: *id };
                place.session.send(&call, &[], payload)?;
            }
            let order = inputs.order(here, index);
            pending.push((index, place.session.request(call(*id), &frame::encode(&order))));
        }
        self.collect(pending)
    }

    /// Returns the files that a build includes.
    fn headers(&self, inputs: &Inputs<'_>) -> std::result::Result<Option<ForBuild>, TooMuch> {
        let own = self.directives.iter();
        let given = inputs.programs.iter().filter_map(|(_, header)| header.directives.as_ref());
        let sources: Vec<&Directives> = own.chain(given).collect();
        if sources.is_empty() {
            return Ok(None);
        }
        let headers = headers::for_build(&sources, inputs.options)?;
        if headers.as_ref().is_some_and(|headers| headers.may_print) {
            self.may_print.store(true, Ordering::Relaxed);
        }
        Ok(headers)
    }

    /// Ends a build that no worker has begun, with this log.
    fn refuse(&self, devices: &[Arc<Device>], inputs: &Inputs<'_>, why: &str) -> Error {
        let status = inputs.failure();
        let places = 0..self.context.places().len();
        let report = |place| {
            let here = devices_at(&self.context, place, devices);
            (place, BuildReport::failure(status, &here, inputs.options, why))
        };
        self.built.lock().take(places.map(report).collect());
        Error::Refused { node: "this host".into(), status }
    }

    /// `clLinkProgram`. Returns the program, and the result of linking. Waits as
    /// [`Program::build`].
    ///
    /// # Errors
    /// If a node is lost.
    pub fn link(
        context: &Arc<Context>,
        devices: &[Arc<Device>],
        options: Option<&str>,
        inputs: &[&Arc<Program>],
    ) -> Result<(Arc<Self>, Result<()>)> {
        let programs: Vec<Input<'_>> = inputs.iter().map(|program| ("", *program)).collect();
        let inputs = Inputs { options, programs: &programs, ..Inputs::default() };
        let mut ids = vec![Id::NONE; context.places().len()];
        let mut pending = Vec::new();
        for (index, place) in context.places().iter().enumerate() {
            let here = devices_at(context, index, devices);
            if here.is_empty() {
                continue;
            }
            let program = crate::ids::next_id();
            let call = to_worker::LinkProgram { request: Id::NONE, program, context: place.id };
            let order = inputs.order(here, index);
            pending.push((index, place.session.request(call, &frame::encode(&order))));
            ids[index] = program;
        }
        let program = Self::new(context, ids);
        let linked = program.collect(pending);
        Ok((program, linked))
    }

    /// Takes the reports of all places and returns the first failure. A place without a report does
    /// not discard other reports.
    fn collect(&self, pending: Vec<(usize, Pending<BuildReport>)>) -> Result<()> {
        let mut result = Ok(());
        let mut reports = Vec::new();
        for (place, pending) in pending {
            let node: Arc<str> =
                self.context.places().get(place).map_or("", |at| at.devices()[0].host()).into();
            let ended = pending.wait_report().and_then(|(status, report)| {
                reports.push((place, report));
                status.ok().map_err(|status| Error::Refused { node, status })
            });
            result = result.and(ended);
        }
        self.built.lock().take(reports);
        result
    }

    /// Returns whether the program may see the descriptions of kernel arguments: whether the
    /// drivers themselves would give them under the last build's options. Waits for a worker.
    ///
    /// # Errors
    /// If the node is lost.
    pub fn shows_arg_info(&self) -> Result<bool> {
        let of_place = self.context.places().iter().zip(&self.ids).find(|(_, id)| !id.is_none());
        let Some((place, program)) = of_place else { return Ok(false) };
        let call = to_worker::ShowsArgInfo { request: Id::NONE, program: *program };
        place.session.request(call, &[]).wait()
    }

    /// Returns the driver's answer to query `name` of `clGetProgramBuildInfo`, or `None` before a
    /// build for this device.
    pub fn build_info(&self, device: &Device, name: u32) -> Option<Vec<u8>> {
        let place = self.context.place_of(device)?;
        let built = self.built.lock();
        let info = built.devices.iter().find(|(known, _)| *known == (place, device.index()))?;
        penstock_wire::describe::find(&info.1, name).map(<[u8]>::to_vec)
    }

    /// Returns the driver's answer to query `name` of `clGetProgramInfo`, for queries whose answer
    /// depends on the build.
    pub fn info(&self, name: u32) -> Option<Vec<u8>> {
        penstock_wire::describe::find(&self.built.lock().info, name).map(<[u8]>::to_vec)
    }

    /// Returns the kernels of the executable. The list is empty before a successful build.
    pub fn kernels(&self) -> Vec<Arc<KernelDescription>> {
        self.built.lock().kernels.clone()
    }

    /// Returns the variables of a CUDA module, see [`Program::load_module`].
    pub fn globals(&self) -> Vec<Global> {
        self.built.lock().globals.clone()
    }

    /// Returns the binary of each device of the program that has one. Waits for the workers.
    ///
    /// # Errors
    /// The driver's code. That the program is not built is an error only if this is so in all
    /// places.
    pub fn binaries(&self) -> Result<Vec<(Arc<Device>, Vec<u8>)>> {
        let (mut binaries, mut answered, mut not_built) = (Vec::new(), false, Ok(()));
        for (place, id) in
            self.context.places().iter().zip(&self.ids).filter(|(_, id)| !id.is_none())
        {
            let call = to_worker::ProgramBinaries { request: Id::NONE, program: *id };
            let found = match place.session.request(call, &[]).wait() {
                Err(error) if says_not_built(&error) => {
                    not_built = not_built.and(Err(error));
                    continue;
                }
                found => found?,
            };
            answered = true;
            for (index, binary) in found {
                if let Some(device) = place.devices().iter().find(|device| device.index() == index)
                {
                    binaries.push((device.clone(), binary));
                }
            }
        }
        if answered { Ok(binaries) } else { not_built.map(|()| binaries) }
    }

    /// `clSetProgramSpecializationConstant`. Waits for the workers.
    ///
    /// # Errors
    /// The driver's code.
    pub fn set_spec_constant(&self, spec_id: u32, value: &[u8]) -> Result<()> {
        for (place, program) in self.context.places().iter().zip(&self.ids) {
            let call = to_worker::SetSpecConstant {
                request: Id::NONE,
                program: *program,
                spec_id: U32::new(spec_id),
            };
            place.session.request(call, value).wait()?;
        }
        Ok(())
    }

    pub fn context(&self) -> &Arc<Context> {
        &self.context
    }

    pub(crate) fn ids(&self) -> &[Id<kind::Program>] {
        &self.ids
    }
}

/// Returns whether a driver refuses to give binaries because no build for its devices has
/// succeeded.
fn says_not_built(error: &Error) -> bool {
    let codes = [Status::INVALID_PROGRAM, Status::INVALID_PROGRAM_EXECUTABLE];
    matches!(error, Error::Refused { status, .. } if codes.contains(status))
}

impl KernelInfo for KernelDescription {
    fn work_group_info(&self, context: &Context, device: &Device, name: u32) -> Option<&[u8]> {
        penstock_wire::describe::find(of_device(self, context, device)?, name)
    }

    fn is_for(&self, context: &Context, device: &Device) -> bool {
        of_device(self, context, device).is_some()
    }

    fn is_at(&self, place: usize) -> bool {
        self.work_group.iter().any(|(key, _)| place_of_key(*key) == place)
    }
}

fn of_device<'a>(
    kernel: &'a KernelDescription,
    context: &Context,
    device: &Device,
) -> Option<&'a Info> {
    let key = device_key(context.place_of(device)?, device.index());
    kernel.work_group.iter().find(|(known, _)| *known == key).map(|(_, info)| info)
}

/// Queries about a kernel on the devices of a context.
pub trait KernelInfo {
    /// Returns the driver's answer to query `name` of `clGetKernelWorkGroupInfo`, for a kernel
    /// whose arguments are not set.
    fn work_group_info(&self, context: &Context, device: &Device, name: u32) -> Option<&[u8]>;

    /// Returns whether the executable for a device has the kernel.
    fn is_for(&self, context: &Context, device: &Device) -> bool;

    /// Returns whether the executable for any device of a place has the kernel.
    fn is_at(&self, place: usize) -> bool;
}

/// Makes a program in each place of a context.
fn each_place(
    context: &Arc<Context>,
    create: impl Fn(&Place, Id<kind::Program>) -> Result<()>,
) -> Result<Vec<Id<kind::Program>>> {
    let make = |place: &Place| {
        let id = crate::ids::next_id();
        create(place, id).map(|()| id)
    };
    context.places().iter().map(make).collect()
}

impl Inputs<'_> {
    /// Returns the code of a build that fails because of what the program says.
    fn failure(&self) -> Status {
        if self.is_compilation {
            Status::COMPILE_PROGRAM_FAILURE
        } else {
            Status::BUILD_PROGRAM_FAILURE
        }
    }

    /// Returns what a place shall do for its devices.
    fn order(&self, devices: Vec<u32>, place: usize) -> BuildOrder {
        let id = |program: &Program| program.ids.get(place).map_or(0, |id| id.get());
        let programs = self.programs.iter();
        let programs = programs.map(|(name, program)| ((*name).to_owned(), id(program))).collect();
        let options = self.options.map(str::to_owned);
        BuildOrder { devices, options, programs, globals: self.globals.clone() }
    }
}

/// Returns the node-wide indices of those `devices` that belong to a place.
fn devices_at(context: &Context, place: usize, devices: &[Arc<Device>]) -> Vec<u32> {
    devices.iter().filter(|it| context.place_of(it) == Some(place)).map(|it| it.index()).collect()
}

impl Drop for Program {
    fn drop(&mut self) {
        for (place, program) in
            self.context.places().iter().zip(&self.ids).filter(|(_, id)| !id.is_none())
        {
            // A lost session has released everything.
            _ = place.session.send(&to_worker::ReleaseProgram { program: *program }, &[], &[]);
        }
    }
}

impl fmt::Debug for Program {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Program").field("ids", &self.ids).finish_non_exhaustive()
    }
}
