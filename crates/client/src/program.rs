//! Programs. They are built in all places at the same time, and the reports of the builds answer
//! all later queries in the client.

use std::fmt;
use std::sync::Arc;

use penstock_ggas::with_header;
use penstock_process::Lock;
use penstock_wire::calls::to_worker;
use penstock_wire::cuda::Global;
use penstock_wire::describe::{BuildOrder, BuildReport, BuiltInKernels, Info, KernelDescription};
use penstock_wire::id::kind;
use penstock_wire::{Id, Request, Status, U32, frame};

use crate::context::{Context, Place};
use crate::error::{Error, Result};
use crate::pool::Device;
use crate::session::Pending;

pub struct Program {
    context: Arc<Context>,
    /// Id of the program in each place, or none where it does not exist.
    ids: Vec<Id<kind::Program>>,
    built: Lock<Built>,
    /// Whether the kernels may print: the source contains `printf`, or the client does not know the
    /// source.
    may_print: bool,
}

/// Reports of the last build for each device.
#[derive(Default)]
struct Built {
    devices: Vec<((usize, u32), Info)>,
    /// Kernels that any device has. [`KernelDescription::work_group`] tells which devices.
    kernels: Vec<Arc<KernelDescription>>,
    info: Info,
    /// Variables of a CUDA module.
    globals: Vec<Global>,
}

impl Built {
    /// Adds the reports of one build. The reports of other devices stay, even if this build failed,
    /// because a program may build for each device separately.
    fn take(&mut self, reports: Vec<(usize, BuildReport)>) {
        let mut kernels = Vec::new();
        for (place, report) in reports {
            for (device, info) in report.devices {
                self.forget(place, device);
                self.devices.push(((place, device), info));
            }
            self.info = report.info;
            self.globals = report.globals;
            merge(&mut kernels, report.kernels.into_iter().map(|kernel| at_place(kernel, place)));
        }
        // If builds disagree about a kernel, the last one counts.
        let older = std::mem::replace(&mut self.kernels, kernels);
        merge(&mut self.kernels, older);
    }

    /// Removes what earlier builds reported for a device, and the kernels that no other device has.
    fn forget(&mut self, place: usize, device: u32) {
        self.devices.retain(|(known, _)| *known != (place, device));
        let key = device_key(place, device);
        for kernel in &mut self.kernels {
            if kernel.work_group.iter().any(|(known, _)| *known == key) {
                Arc::make_mut(kernel).work_group.retain(|(known, _)| *known != key);
            }
        }
        self.kernels.retain(|kernel| !kernel.work_group.is_empty());
    }
}

/// The inputs of a build, compilation or link.
#[derive(Default)]
struct Inputs<'a> {
    options: Option<&'a str>,
    programs: &'a [Input<'a>],
    /// See [`BuildOrder::globals`].
    globals: Option<Vec<String>>,
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
        let source = &*with_header(source);
        let ids = each_place(context, |place, program| {
            let call = to_worker::CreateProgramWithSource { program, context: place.id };
            place.session.send(&call, &[], source)
        })?;
        Ok(Self::of_source(context, ids, source))
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
        let source = &*with_header(source);
        let mut ids = Vec::new();
        for (index, place) in context.places().iter().enumerate() {
            if devices_at(context, index, devices).is_empty() {
                ids.push(Id::NONE);
                continue;
            }
            let program = crate::ids::next_id();
            let call = to_worker::CreateProgramWithSource { program, context: place.id };
            place.session.send(&call, &[], source)?;
            ids.push(program);
        }
        Ok(Self::of_source(context, ids, source))
    }

    fn new(context: &Arc<Context>, ids: Vec<Id<kind::Program>>) -> Arc<Self> {
        Arc::new(Self { context: context.clone(), ids, built: Lock::default(), may_print: true })
    }

    /// Makes a program whose source is known. The worker, too, looks for `printf` and collects no
    /// text for a program without it.
    fn of_source(context: &Arc<Context>, ids: Vec<Id<kind::Program>>, source: &[u8]) -> Arc<Self> {
        let may_print = source.windows(b"printf".len()).any(|part| part == b"printf");
        Arc::new(Self { context: context.clone(), ids, built: Lock::default(), may_print })
    }

    pub(crate) fn may_print(&self) -> bool {
        self.may_print
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
        let inputs = Inputs { options, programs: headers, globals: None };
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
        let mut pending = Vec::new();
        for (index, (place, id)) in self.context.places().iter().zip(&self.ids).enumerate() {
            let here = devices_at(&self.context, index, devices);
            if here.is_empty() || id.is_none() {
                continue;
            }
            let order = inputs.order(here, index);
            pending.push((index, place.session.request(call(*id), &frame::encode(&order))));
        }
        self.collect(pending)
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
        let inputs = Inputs { options, programs: &programs, globals: None };
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

/// Merges the reports of other devices about the same kernels.
fn merge(
    known: &mut Vec<Arc<KernelDescription>>,
    more: impl IntoIterator<Item = Arc<KernelDescription>>,
) {
    for kernel in more {
        match known.iter_mut().find(|it| it.name == kernel.name) {
            Some(it) => {
                Arc::make_mut(it).work_group.extend(Arc::unwrap_or_clone(kernel).work_group)
            }
            None => known.push(kernel),
        }
    }
}

/// Returns the kernel that a place reports, with device numbers that are distinct from those of
/// other places.
fn at_place(mut kernel: KernelDescription, place: usize) -> Arc<KernelDescription> {
    for (device, _) in &mut kernel.work_group {
        *device = device_key(place, *device);
    }
    Arc::new(kernel)
}

/// Returns a device's number in a merged [`KernelDescription::work_group`]. It contains the place,
/// because nodes number their devices independently. 16 bits each hold 65,536 places and devices.
const fn device_key(place: usize, device: u32) -> u32 {
    #[expect(clippy::cast_possible_truncation, reason = "a context over 65,536 places is not made")]
    let place = place as u32;
    (place << 16) | (device & 0xffff)
}

/// Returns the place in a number that [`device_key`] made.
const fn place_of_key(key: u32) -> usize {
    (key >> 16) as usize
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
