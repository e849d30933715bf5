//! Loads the ICD loader and CUDA's driver.

use std::ffi::{CString, c_void};
use std::sync::OnceLock;

use penstock_cl_sys::{CL_DEVICE_TYPE_ALL, cl_device_id, cl_platform_id};
use penstock_process::variable;
use penstock_wire::status::Status;

use super::api::{self, Functions, function};
use super::device::Device;
use super::platform::Platform;
use crate::cuda;

/// Name under which every ICD loader of Linux installs its library.
const LOADER: &str = "libOpenCL.so.1";
/// Name of Penstock's own platform. A worker that drove it would call itself for ever.
const OUR_PLATFORM: &str = "Penstock";
/// Most platforms or devices that are listed. A driver that reports more has a defect.
const LISTED_MAX: u32 = 1 << 12;

#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LoadError {
    #[error(
        "no OpenCL loader at {path}: {reason}; install one (Debian: ocl-icd-libopencl1) or name one in PENSTOCK_LIBOPENCL"
    )]
    Missing {
        /// Path of the library.
        path: String,
        /// Message of the dynamic linker.
        reason: String,
    },
}

/// All platforms that this process can use: the loader's and CUDA's. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Driver {
    platforms: Vec<Platform>,
}

static DRIVER: OnceLock<Result<Driver, LoadError>> = OnceLock::new();

impl Driver {
    /// Loads the platforms, once per process.
    ///
    /// # Errors
    /// Fails if there is neither a loader nor CUDA's driver. A loader without platforms suffices.
    pub fn load() -> Result<Self, LoadError> {
        DRIVER.get_or_init(Self::open).clone()
    }

    /// Returns the platforms in the loader's order, without Penstock's own platform and platforms
    /// older than OpenCL 1.2. CUDA's platform comes last.
    pub fn platforms(&self) -> Vec<Platform> {
        self.platforms.clone()
    }

    fn open() -> Result<Self, LoadError> {
        let cuda = cuda::platform();
        let path = variable::LIBOPENCL.text().unwrap_or_else(|| LOADER.to_owned());
        // SAFETY: runs the constructors of the loader and the drivers, which are trusted.
        match unsafe { libloading::Library::new(&path) } {
            Ok(library) => {
                Functions::load(&|name: &CString| {
                    // SAFETY: the symbol is only kept as an address; it has the type of OpenCL's
                    // function.
                    let symbol = unsafe { library.get::<*const c_void>(name.as_bytes_with_nul()) };
                    symbol.ok().map(|symbol| *symbol)
                });
                // Drivers keep threads running and callbacks pending, so the code must stay loaded.
                std::mem::forget(library);
                let mut platforms = platforms().unwrap_or_default();
                // The loader does not list CUDA's platform, but dispatches calls to it.
                platforms.extend(cuda.map(Platform::from_handle));
                Ok(Self { platforms })
            }
            Err(_) if cuda.is_some() => {
                Functions::load(&|name: &CString| cuda::function(name));
                Ok(Self { platforms: platforms().unwrap_or_default() })
            }
            Err(error) => Err(LoadError::Missing { path, reason: error.to_string() }),
        }
    }
}

fn platforms() -> Result<Vec<Platform>, Status> {
    let list = function!(clGetPlatformIDs)?;
    let mut count = 0;
    // SAFETY: only the length of the list is asked for.
    let code = unsafe { list(0, std::ptr::null_mut(), &mut count) };
    if code != 0 {
        // CL_PLATFORM_NOT_FOUND_KHR: a loader without drivers. After other errors there are none
        // either.
        return Ok(Vec::new());
    }
    let mut handles: Vec<cl_platform_id> =
        vec![std::ptr::null_mut(); count.min(LISTED_MAX) as usize];
    // SAFETY: the list has as many entries as the call is told.
    api::check(unsafe {
        list(api::count(handles.len())?, handles.as_mut_ptr(), std::ptr::null_mut())
    })?;
    let platforms =
        handles.into_iter().filter(|handle| !handle.is_null()).map(Platform::from_handle);
    Ok(platforms
        .filter(|platform| platform.name() != OUR_PLATFORM && platform.is_at_least(1, 2))
        .collect())
}

pub(super) fn devices(platform: &Platform) -> Result<Vec<Device>, Status> {
    let list = function!(clGetDeviceIDs)?;
    let mut count = 0;
    // SAFETY: the platform is one of the loader's; only the length of the list is asked for.
    api::check(unsafe {
        list(platform.raw(), CL_DEVICE_TYPE_ALL, 0, std::ptr::null_mut(), &mut count)
    })?;
    let mut handles: Vec<cl_device_id> = vec![std::ptr::null_mut(); count.min(LISTED_MAX) as usize];
    let places = api::count(handles.len())?;
    // SAFETY: the list has `places` entries.
    api::check(unsafe {
        list(platform.raw(), CL_DEVICE_TYPE_ALL, places, handles.as_mut_ptr(), std::ptr::null_mut())
    })?;
    let handles = handles.into_iter().filter(|handle| !handle.is_null());
    Ok(handles.map(|handle| Device::root(platform, handle)).collect())
}
