//! Programs, and what became of them for each device.

use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use penstock_cl_sys::*;
use penstock_wire::Status;
use penstock_wire::describe::KernelDescription;

use super::context::Context;
use super::device::Device;
use crate::edge::{ClError, ClResult, Object, Ref, require};

/// Behind a `cl_program`.
pub(crate) struct Program {
    pub(crate) context: Ref<Context>,
    /// `CL_PROGRAM_DEVICES`.
    pub(crate) devices: Vec<Ref<Device>>,
    pub(crate) origin: Origin,
    /// The pool's view of it; not there yet while it is being linked.
    pool: OnceLock<Arc<penstock_client::Program>>,
    builds: Mutex<Vec<Build>>,
    /// Kernel objects of the program.
    kernels: AtomicUsize,
    /// Whether the drivers show descriptions of arguments, once that has been asked for.
    shows_arg_info: Mutex<Option<bool>>,
    /// Answers about binaries, which are asked in two steps and are long.
    binaries: Mutex<Option<Binaries>>,
}

/// The binary of each device of a program; empty where there is none.
pub(crate) type Binaries = Arc<[Vec<u8>]>;

/// What a program was made from.
#[derive(Debug)]
pub(crate) enum Origin {
    /// OpenCL C, strings joined.
    Source(Vec<u8>),
    /// An intermediate language.
    Il(Vec<u8>),
    /// Binaries of devices.
    Binary,
    /// Kernels that devices have.
    BuiltIn,
    /// Other programs, linked.
    Linked,
}

/// What was done to a program for a device.
#[derive(Clone, Debug, Default)]
struct Build {
    state: State,
    /// None where the program gave `NULL`.
    options: Option<String>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum State {
    /// Nothing.
    #[default]
    None,
    /// It is being built, compiled or linked.
    Running,
    /// It has been; the pool knows the result.
    Ended {
        /// What the driver's call returned.
        status: Status,
    },
}

impl Object for Program {
    type Raw = _cl_program;
    const INVALID: cl_int = CL_INVALID_PROGRAM;
}

impl Program {
    pub(crate) fn new(
        context: Ref<Context>,
        devices: Vec<Ref<Device>>,
        origin: Origin,
        pool: Option<Arc<penstock_client::Program>>,
    ) -> Self {
        let builds = Mutex::new(vec![Build::default(); devices.len()]);
        let cell = OnceLock::new();
        if let Some(pool) = pool {
            // A new cell.
            _ = cell.set(pool);
        }
        Self {
            context,
            devices,
            origin,
            pool: cell,
            builds,
            kernels: AtomicUsize::new(0),
            shows_arg_info: Mutex::default(),
            binaries: Mutex::default(),
        }
    }

    /// The pool's view of it.
    ///
    /// # Errors
    /// `CL_INVALID_OPERATION` while it is being linked.
    pub(crate) fn pool(&self) -> ClResult<&Arc<penstock_client::Program>> {
        self.pool.get().ok_or(ClError(CL_INVALID_OPERATION))
    }

    /// Sets what a link made.
    pub(crate) fn set_pool(&self, pool: Arc<penstock_client::Program>) {
        // A program is linked once, when it is made.
        _ = self.pool.set(pool);
    }

    fn builds(&self) -> MutexGuard<'_, Vec<Build>> {
        self.builds.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn index(&self, device: &Ref<Device>) -> ClResult<usize> {
        // "CL_INVALID_DEVICE if device is not in the list of devices associated with program."
        self.devices
            .iter()
            .position(|known| Arc::ptr_eq(known, device))
            .ok_or(ClError(CL_INVALID_DEVICE))
    }

    /// Notes that a build for `devices` begins.
    ///
    /// # Errors
    /// `CL_INVALID_OPERATION` where one is running or there are kernels.
    pub(crate) fn begin(&self, devices: &[Ref<Device>], options: Option<&str>) -> ClResult {
        let mut builds = self.builds();
        // "CL_INVALID_OPERATION if the build of a program executable for any of the devices listed in device_list by a
        // previous call to clBuildProgram for program has not completed."
        require(builds.iter().all(|build| build.state != State::Running), CL_INVALID_OPERATION)?;
        // "CL_INVALID_OPERATION if there are kernel objects attached to program."
        require(self.kernels.load(Ordering::Acquire) == 0, CL_INVALID_OPERATION)?;
        for device in devices {
            let index = self.index(device)?;
            if let Some(build) = builds.get_mut(index) {
                *build = Build { state: State::Running, options: options.map(str::to_owned) };
            }
        }
        Ok(())
    }

    /// Notes how the build for `devices` ended.
    pub(crate) fn end(&self, devices: &[Ref<Device>], status: Status) {
        *self.binaries.lock().unwrap_or_else(PoisonError::into_inner) = None;
        *self.shows_arg_info.lock().unwrap_or_else(PoisonError::into_inner) = None;
        let mut builds = self.builds();
        for device in devices {
            if let Ok(index) = self.index(device)
                && let Some(build) = builds.get_mut(index)
            {
                build.state = State::Ended { status };
            }
        }
    }

    fn build_of(&self, device: &Ref<Device>) -> ClResult<Build> {
        let index = self.index(device)?;
        Ok(self.builds().get(index).cloned().unwrap_or_default())
    }

    /// The device whose build is the one for `device`: "the program executable ... built for a parent device" serves its parts.
    fn built_device(&self, device: &Ref<Device>) -> ClResult<Ref<Device>> {
        self.index(device)?;
        let mut next = Some(device);
        while let Some(candidate) = next {
            if self.build_of(candidate).is_ok_and(|build| build.state != State::None) {
                return Ok(candidate.clone());
            }
            next = candidate.parent.as_ref();
        }
        Ok(device.clone())
    }

    /// `CL_PROGRAM_BUILD_STATUS`.
    pub(crate) fn build_status(&self, device: &Ref<Device>) -> ClResult<cl_build_status> {
        let device = &self.built_device(device)?;
        Ok(match self.build_of(device)?.state {
            // Of a program of binaries the driver knows it without a build: for Intel's runtime, an executable is built.
            State::None => self
                .driver_number(device, CL_PROGRAM_BUILD_STATUS)
                .map_or(CL_BUILD_NONE, u32::cast_signed),
            State::Running => CL_BUILD_IN_PROGRESS,
            // The driver knows it for each device; a build that never came to it has failed for all.
            State::Ended { status } => match self.driver_number(device, CL_PROGRAM_BUILD_STATUS) {
                Some(known) => known.cast_signed(),
                None if status.is_error() => CL_BUILD_ERROR,
                None => CL_BUILD_SUCCESS,
            },
        })
    }

    /// `CL_PROGRAM_BINARY_TYPE`.
    pub(crate) fn binary_type(&self, device: &Ref<Device>) -> ClResult<cl_program_binary_type> {
        let device = &self.built_device(device)?;
        Ok(match self.build_of(device)?.state {
            State::Running => CL_PROGRAM_BINARY_TYPE_NONE,
            // "CL_PROGRAM_BINARY_TYPE ...: Return the program binary type for device": of a program of binaries also before it is built.
            State::None | State::Ended { .. } => self
                .driver_number(device, CL_PROGRAM_BINARY_TYPE)
                .unwrap_or(CL_PROGRAM_BINARY_TYPE_NONE),
        })
    }

    /// `CL_PROGRAM_BUILD_OPTIONS`.
    pub(crate) fn build_options(&self, device: &Ref<Device>) -> ClResult<String> {
        Ok(self.build_of(&self.built_device(device)?)?.options.unwrap_or_default())
    }

    /// The driver's answer to a query about the last build for a device, if there was one.
    pub(crate) fn driver_answer(
        &self,
        device: &Ref<Device>,
        name: cl_program_build_info,
    ) -> ClResult<Option<Vec<u8>>> {
        let device = &self.built_device(device)?;
        let state = self.build_of(device)?.state;
        let built = matches!(state, State::Ended { .. });
        Ok(self.pool.get().filter(|_| built).and_then(|pool| pool.build_info(&device.pool, name)))
    }

    fn driver_number(&self, device: &Ref<Device>, name: cl_program_build_info) -> Option<u32> {
        let bytes = self.pool.get()?.build_info(&device.pool, name)?;
        Some(u32::from_ne_bytes(*bytes.first_chunk()?))
    }

    /// Whether there is an executable for a device.
    pub(crate) fn is_executable(&self, device: &Ref<Device>) -> bool {
        let is_built = |device: Ref<Device>| {
            // What drivers say of binaries that have not been built is not enough: nothing is known of their kernels.
            let has_ended =
                matches!(self.build_of(&device), Ok(Build { state: State::Ended { .. }, .. }));
            has_ended && self.build_status(&device) == Ok(CL_BUILD_SUCCESS)
        };
        let built = || self.built_device(device).is_ok_and(is_built);
        // Some drivers of OpenCL 1.1 do not know the kind.
        let kind = || self.driver_number(&self.built_device(device).ok()?, CL_PROGRAM_BINARY_TYPE);
        built() && kind().is_none_or(|kind| kind == CL_PROGRAM_BINARY_TYPE_EXECUTABLE)
    }

    /// The kernels of the executable.
    ///
    /// # Errors
    /// `CL_INVALID_PROGRAM_EXECUTABLE` without one.
    pub(crate) fn kernel_descriptions(&self) -> ClResult<Vec<Arc<KernelDescription>>> {
        // Kernels that devices have need no build.
        let ready = matches!(self.origin, Origin::BuiltIn)
            || self.devices.iter().any(|device| self.is_executable(device));
        // "CL_INVALID_PROGRAM_EXECUTABLE if there is no successfully built executable for program."
        require(ready, CL_INVALID_PROGRAM_EXECUTABLE)?;
        Ok(self.pool()?.kernels())
    }

    /// Whether the drivers would show descriptions of arguments (`clGetKernelArgInfo`). Asks a worker once for each build.
    pub(crate) fn shows_arg_info(&self) -> ClResult<bool> {
        let known = *self.shows_arg_info.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = known {
            return Ok(known);
        }
        // Not under the lock: this waits.
        let shows = self.pool()?.shows_arg_info()?;
        *self.shows_arg_info.lock().unwrap_or_else(PoisonError::into_inner) = Some(shows);
        Ok(shows)
    }

    /// The binary of each device. Asks the workers once for each build.
    pub(crate) fn binaries(&self) -> ClResult<Binaries> {
        let known = self.binaries.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if let Some(known) = known {
            return Ok(known);
        }
        // Not under the lock: this waits.
        let found = self.pool()?.binaries()?;
        let of =
            |device: &Ref<Device>| found.iter().find(|(owner, _)| Arc::ptr_eq(owner, &device.pool));
        let binaries: Binaries = self
            .devices
            .iter()
            .map(|device| of(device).map_or_else(Vec::new, |(_, bytes)| bytes.clone()))
            .collect();
        *self.binaries.lock().unwrap_or_else(PoisonError::into_inner) = Some(binaries.clone());
        Ok(binaries)
    }

    /// Counts a new kernel object.
    pub(crate) fn attach_kernel(&self) {
        self.kernels.fetch_add(1, Ordering::AcqRel);
    }

    /// Counts a kernel object that is gone.
    pub(crate) fn detach_kernel(&self) {
        self.kernels.fetch_sub(1, Ordering::AcqRel);
    }
}

impl fmt::Debug for Program {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Program")
            .field("devices", &self.devices)
            .field("pool", &self.pool.get())
            .finish_non_exhaustive()
    }
}
