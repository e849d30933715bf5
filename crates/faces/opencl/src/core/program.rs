//! Programs and the results of their builds for each device.

use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use penstock_cl_sys::*;
use penstock_process::Lock;
use penstock_wire::Status;
use penstock_wire::describe::KernelDescription;

use super::context::Context;
use super::device::Device;
use crate::edge::{ClError, ClResult, Object, Ref, require};

/// Object behind a `cl_program`.
pub(crate) struct Program {
    pub(crate) context: Ref<Context>,
    /// Devices of the program: `CL_PROGRAM_DEVICES`.
    pub(crate) devices: Vec<Ref<Device>>,
    pub(crate) origin: Origin,
    /// The pool's program; not set while this program is being linked.
    pool: OnceLock<Arc<penstock_client::Program>>,
    builds: Lock<Vec<Build>>,
    /// Number of kernel objects of the program.
    kernels: AtomicUsize,
    /// Whether the drivers report descriptions of arguments; `None` until a query.
    shows_arg_info: Lock<Option<bool>>,
    /// Cached binaries, which are long and queried in two steps.
    binaries: Lock<Option<Binaries>>,
}

/// Binary of each device of a program; empty for a device without one.
pub(crate) type Binaries = Arc<[Vec<u8>]>;

/// What a program was made from.
#[derive(Debug)]
pub(crate) enum Origin {
    /// OpenCL C, with the strings joined.
    Source(Vec<u8>),
    /// Code in an intermediate language.
    Il(Vec<u8>),
    /// Binaries of one or more devices.
    Binary,
    /// Built-in kernels of devices.
    BuiltIn,
    /// Other programs, which were linked.
    Linked,
}

/// Last build of a program for a device.
#[derive(Clone, Debug, Default)]
struct Build {
    state: BuildState,
    /// `None` if the program gave `NULL`.
    options: Option<String>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum BuildState {
    #[default]
    None,
    /// It is being built, compiled or linked.
    Running,
    /// It has ended; the pool knows the result.
    Ended {
        /// Result of the driver's call.
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
        let builds = Lock::new(vec![Build::default(); devices.len()]);
        let cell = OnceLock::new();
        if let Some(pool) = pool {
            // The cell is new.
            _ = cell.set(pool);
        }
        Self {
            context,
            devices,
            origin,
            pool: cell,
            builds,
            kernels: AtomicUsize::new(0),
            shows_arg_info: Lock::default(),
            binaries: Lock::default(),
        }
    }

    /// Returns the pool's program.
    ///
    /// # Errors
    /// `CL_INVALID_OPERATION` while the program is being linked.
    pub(crate) fn pool(&self) -> ClResult<&Arc<penstock_client::Program>> {
        self.pool.get().ok_or(ClError(CL_INVALID_OPERATION))
    }

    /// Sets the result of a link.
    pub(crate) fn set_pool(&self, pool: Arc<penstock_client::Program>) {
        // A program is linked once, when it is created.
        _ = self.pool.set(pool);
    }

    fn index(&self, device: &Ref<Device>) -> ClResult<usize> {
        // "CL_INVALID_DEVICE if device is not in the list of devices associated with program."
        self.devices
            .iter()
            .position(|known| Arc::ptr_eq(known, device))
            .ok_or(ClError(CL_INVALID_DEVICE))
    }

    /// Records the start of a build for `devices`.
    ///
    /// # Errors
    /// `CL_INVALID_OPERATION` if a build is running or the program has kernels.
    pub(crate) fn begin(&self, devices: &[Ref<Device>], options: Option<&str>) -> ClResult {
        let mut builds = self.builds.lock();
        // "CL_INVALID_OPERATION if the build of a program executable for any of the devices listed
        // in device_list by a previous call to clBuildProgram for program has not completed."
        require(
            builds.iter().all(|build| build.state != BuildState::Running),
            CL_INVALID_OPERATION,
        )?;
        // "CL_INVALID_OPERATION if there are kernel objects attached to program."
        require(self.kernels.load(Ordering::Acquire) == 0, CL_INVALID_OPERATION)?;
        for device in devices {
            let index = self.index(device)?;
            if let Some(build) = builds.get_mut(index) {
                *build = Build { state: BuildState::Running, options: options.map(str::to_owned) };
            }
        }
        Ok(())
    }

    /// Records the result of the build for `devices`.
    pub(crate) fn end(&self, devices: &[Ref<Device>], status: Status) {
        *self.binaries.lock() = None;
        *self.shows_arg_info.lock() = None;
        let mut builds = self.builds.lock();
        for device in devices {
            if let Ok(index) = self.index(device)
                && let Some(build) = builds.get_mut(index)
            {
                build.state = BuildState::Ended { status };
            }
        }
    }

    fn build_of(&self, device: &Ref<Device>) -> ClResult<Build> {
        let index = self.index(device)?;
        Ok(self.builds.lock().get(index).cloned().unwrap_or_default())
    }

    /// Returns the device whose build applies to `device`: "the program executable ... built for a
    /// parent device" serves its sub-devices.
    fn built_device(&self, device: &Ref<Device>) -> ClResult<Ref<Device>> {
        self.index(device)?;
        let mut next = Some(device);
        while let Some(candidate) = next {
            if self.build_of(candidate).is_ok_and(|build| build.state != BuildState::None) {
                return Ok(candidate.clone());
            }
            next = candidate.parent.as_ref();
        }
        Ok(device.clone())
    }

    /// Returns the value of `CL_PROGRAM_BUILD_STATUS`.
    pub(crate) fn build_status(&self, device: &Ref<Device>) -> ClResult<cl_build_status> {
        let device = &self.built_device(device)?;
        Ok(match self.build_of(device)?.state {
            // For unbuilt binaries the driver decides; Intel's runtime says that they are built.
            BuildState::None => self
                .driver_number(device, CL_PROGRAM_BUILD_STATUS)
                .map_or(CL_BUILD_NONE, u32::cast_signed),
            BuildState::Running => CL_BUILD_IN_PROGRESS,
            // The driver has a status per device. A build that never reached it has failed.
            BuildState::Ended { status } => {
                match self.driver_number(device, CL_PROGRAM_BUILD_STATUS) {
                    Some(known) => known.cast_signed(),
                    None if status.is_error() => CL_BUILD_ERROR,
                    None => CL_BUILD_SUCCESS,
                }
            }
        })
    }

    /// Returns the value of `CL_PROGRAM_BINARY_TYPE`.
    pub(crate) fn binary_type(&self, device: &Ref<Device>) -> ClResult<cl_program_binary_type> {
        let device = &self.built_device(device)?;
        Ok(match self.build_of(device)?.state {
            BuildState::Running => CL_PROGRAM_BINARY_TYPE_NONE,
            // "CL_PROGRAM_BINARY_TYPE ...: Return the program binary type for device". A program of
            // binaries has it before a build, too.
            BuildState::None | BuildState::Ended { .. } => self
                .driver_number(device, CL_PROGRAM_BINARY_TYPE)
                .unwrap_or(CL_PROGRAM_BINARY_TYPE_NONE),
        })
    }

    /// Returns the value of `CL_PROGRAM_BUILD_OPTIONS`.
    pub(crate) fn build_options(&self, device: &Ref<Device>) -> ClResult<String> {
        Ok(self.build_of(&self.built_device(device)?)?.options.unwrap_or_default())
    }

    /// Returns the driver's answer to a query about the last build for a device, if there was one.
    pub(crate) fn driver_answer(
        &self,
        device: &Ref<Device>,
        name: cl_program_build_info,
    ) -> ClResult<Option<Vec<u8>>> {
        let device = &self.built_device(device)?;
        let state = self.build_of(device)?.state;
        let built = matches!(state, BuildState::Ended { .. });
        Ok(self.pool.get().filter(|_| built).and_then(|pool| pool.build_info(&device.pool, name)))
    }

    fn driver_number(&self, device: &Ref<Device>, name: cl_program_build_info) -> Option<u32> {
        let bytes = self.pool.get()?.build_info(&device.pool, name)?;
        Some(u32::from_ne_bytes(*bytes.first_chunk()?))
    }

    /// Returns whether there is an executable for a device.
    pub(crate) fn is_executable(&self, device: &Ref<Device>) -> bool {
        let is_built = |device: Ref<Device>| {
            // A driver's status of unbuilt binaries does not suffice: their kernels are unknown.
            let has_ended =
                matches!(self.build_of(&device), Ok(Build { state: BuildState::Ended { .. }, .. }));
            has_ended && self.build_status(&device) == Ok(CL_BUILD_SUCCESS)
        };
        let built = || self.built_device(device).is_ok_and(is_built);
        // Some drivers of OpenCL 1.1 do not know the kind.
        let kind = || self.driver_number(&self.built_device(device).ok()?, CL_PROGRAM_BINARY_TYPE);
        built() && kind().is_none_or(|kind| kind == CL_PROGRAM_BINARY_TYPE_EXECUTABLE)
    }

    /// Returns the kernels of the executable.
    ///
    /// # Errors
    /// `CL_INVALID_PROGRAM_EXECUTABLE` if there is no executable.
    pub(crate) fn kernel_descriptions(&self) -> ClResult<Vec<Arc<KernelDescription>>> {
        // Built-in kernels need no build.
        let ready = matches!(self.origin, Origin::BuiltIn)
            || self.devices.iter().any(|device| self.is_executable(device));
        // "CL_INVALID_PROGRAM_EXECUTABLE if there is no successfully built executable for program."
        require(ready, CL_INVALID_PROGRAM_EXECUTABLE)?;
        Ok(self.pool()?.kernels())
    }

    /// Returns whether the drivers report descriptions of arguments (`clGetKernelArgInfo`). Asks a
    /// worker once for each build.
    pub(crate) fn shows_arg_info(&self) -> ClResult<bool> {
        let known = *self.shows_arg_info.lock();
        if let Some(known) = known {
            return Ok(known);
        }
        // The lock is not held, because the query waits.
        let shows = self.pool()?.shows_arg_info()?;
        *self.shows_arg_info.lock() = Some(shows);
        Ok(shows)
    }

    /// Returns the binary of each device. Asks the workers once for each build.
    pub(crate) fn binaries(&self) -> ClResult<Binaries> {
        let known = self.binaries.lock().clone();
        if let Some(known) = known {
            return Ok(known);
        }
        // The lock is not held, because the query waits.
        let found = self.pool()?.binaries()?;
        let of =
            |device: &Ref<Device>| found.iter().find(|(owner, _)| Arc::ptr_eq(owner, &device.pool));
        let binaries: Binaries = self
            .devices
            .iter()
            .map(|device| of(device).map_or_else(Vec::new, |(_, bytes)| bytes.clone()))
            .collect();
        *self.binaries.lock() = Some(binaries.clone());
        Ok(binaries)
    }

    pub(crate) fn attach_kernel(&self) {
        self.kernels.fetch_add(1, Ordering::AcqRel);
    }

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
