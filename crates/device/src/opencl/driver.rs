//! Loading the ICD loader, and CUDA's driver beside it.

use std::ffi::{CString, c_void};
use std::sync::OnceLock;

use penstock_cl_sys::{CL_DEVICE_TYPE_ALL, cl_device_id, cl_platform_id};
use penstock_wire::status::Status;

use super::api::{self, Functions, function};
use super::device::Device;
use super::platform::Platform;
use crate::cuda;

/// The name under which every ICD loader of Linux installs itself.
const LOADER: &str = "libOpenCL.so.1";
/// Names another loader.
const LOADER_VARIABLE: &str = "PENSTOCK_LIBOPENCL";
/// The name of our own face's platform: a worker that drove it would call itself for ever.
const OUR_PLATFORM: &str = "Penstock";
/// Platforms and devices that a node may list. A driver that reports more has a defect.
const LISTED_MAX: u32 = 1 << 12;

/// Why no driver could be loaded.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LoadError {
    /// There is no loader.
    #[error(
        "no OpenCL loader at {path}: {reason}; install one (Debian: ocl-icd-libopencl1) or name one in PENSTOCK_LIBOPENCL"
    )]
    Missing {
        /// What was opened.
        path: String,
        /// What the dynamic linker said.
        reason: String,
    },
}

/// The OpenCL loader of this process and the platforms it found. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Driver {
    platforms: Vec<Platform>,
}

static DRIVER: OnceLock<Result<Driver, LoadError>> = OnceLock::new();

impl Driver {
    /// Loads it, once per process.
    ///
    /// # Errors
    /// When there is no loader. A loader without platforms is no error.
    pub fn load() -> Result<Self, LoadError> {
        DRIVER.get_or_init(Self::open).clone()
    }

    /// The platforms in the loader's order, without our own face and without any older than OpenCL 1.2.
    pub fn platforms(&self) -> Vec<Platform> {
        self.platforms.clone()
    }

    fn open() -> Result<Self, LoadError> {
        let cuda = cuda::platform();
        let path = std::env::var(LOADER_VARIABLE).unwrap_or_else(|_| LOADER.to_owned());
        // SAFETY: the loader's and the drivers' constructors run here; that they may is what naming them means.
        match unsafe { libloading::Library::new(&path) } {
            Ok(library) => {
                Functions::load(&|name: &CString| {
                    // SAFETY: the symbol is only kept as an address; its type is that of OpenCL's function of this name.
                    let symbol = unsafe { library.get::<*const c_void>(name.as_bytes_with_nul()) };
                    symbol.ok().map(|symbol| *symbol)
                });
                // Drivers keep threads running and callbacks pending: their code must stay for the life of the process.
                std::mem::forget(library);
                let mut platforms = platforms().unwrap_or_default();
                // The loader does not know it, but its functions go where an object's first word says.
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
    // SAFETY: no list is asked for, only how long it is.
    let code = unsafe { list(0, std::ptr::null_mut(), &mut count) };
    if code != 0 {
        // CL_PLATFORM_NOT_FOUND_KHR: a loader without drivers. Whatever it is, there are no platforms.
        return Ok(Vec::new());
    }
    let mut handles: Vec<cl_platform_id> =
        vec![std::ptr::null_mut(); count.min(LISTED_MAX) as usize];
    // SAFETY: the list has as many places as are named.
    api::check(unsafe {
        list(api::count(handles.len())?, handles.as_mut_ptr(), std::ptr::null_mut())
    })?;
    let platforms =
        handles.into_iter().filter(|handle| !handle.is_null()).map(Platform::from_handle);
    Ok(platforms
        .filter(|platform| platform.name() != OUR_PLATFORM && platform.is_at_least(1, 2))
        .collect())
}

/// All devices of a platform.
pub(super) fn devices(platform: &Platform) -> Result<Vec<Device>, Status> {
    let list = function!(clGetDeviceIDs)?;
    let mut count = 0;
    // SAFETY: the platform is one of the loader's; no list is asked for.
    api::check(unsafe {
        list(platform.raw(), CL_DEVICE_TYPE_ALL, 0, std::ptr::null_mut(), &mut count)
    })?;
    let mut handles: Vec<cl_device_id> = vec![std::ptr::null_mut(); count.min(LISTED_MAX) as usize];
    let places = api::count(handles.len())?;
    // SAFETY: the list has as many places as are named.
    api::check(unsafe {
        list(platform.raw(), CL_DEVICE_TYPE_ALL, places, handles.as_mut_ptr(), std::ptr::null_mut())
    })?;
    let handles = handles.into_iter().filter(|handle| !handle.is_null());
    Ok(handles.map(|handle| Device::root(platform, handle)).collect())
}
