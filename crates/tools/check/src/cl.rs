//! OpenCL's functions, from the `libOpenCL.so.1` that is found at run time. All unsafe code for
//! OpenCL is here.
//!
//! Each handle that reaches these functions is alive and of the right kind, because the runner
//! refuses every program that the ledger rejects. The safety comments below rely on that.
#![allow(unsafe_code)]

mod commands;
pub(crate) mod memory;
mod objects;

use std::collections::HashMap;
use std::ffi::c_void;

use penstock_cl_sys as sys;
use penstock_process::{Lock, SharedLock};
use sys::{cl_context, cl_device_id, cl_int, cl_kernel, cl_platform_id, cl_program};
use thiserror::Error;

use crate::backend::Handle;
use crate::plan::{Device, Kernel, Platform};

/// Why there is no platform to run on.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum OpenError {
    #[error("libOpenCL.so.1 cannot be loaded: {0}")]
    Loader(#[from] libloading::Error),
    #[error("libOpenCL.so.1 has no function {0}")]
    Function(&'static str),
    #[error("clGetPlatformIDs returned {0}")]
    Platforms(i32),
    #[error("no platform's name contains `{wanted}`; there are: {there}")]
    None {
        /// The text that the name must contain.
        wanted: String,
        /// Names of all platforms.
        there: String,
    },
    #[error("platform {0} has no device")]
    Devices(String),
}

macro_rules! functions {
    ($($name:ident: $kind:ident,)*) => {
        /// The functions that the programs call.
        #[allow(non_snake_case, reason = "C's names")]
        struct Functions {
            $($name: sys::$kind,)*
        }

        impl Functions {
            fn load(library: &libloading::Library) -> Result<Self, OpenError> {
                Ok(Self {
                    $($name: {
                        let name = concat!(stringify!($name), "\0").as_bytes();
                        // SAFETY: the type is that of OpenCL's function of this name.
                        let symbol = unsafe { library.get::<sys::$kind>(name) };
                        *symbol.map_err(|_| OpenError::Function(stringify!($name)))?
                    },)*
                })
            }
        }
    };
}

functions! {
    clGetPlatformIDs: cl_api_clGetPlatformIDs,
    clGetPlatformInfo: cl_api_clGetPlatformInfo,
    clGetDeviceIDs: cl_api_clGetDeviceIDs,
    clGetDeviceInfo: cl_api_clGetDeviceInfo,
    clCreateContext: cl_api_clCreateContext,
    clCreateCommandQueue: cl_api_clCreateCommandQueue,
    clReleaseCommandQueue: cl_api_clReleaseCommandQueue,
    clCreateBuffer: cl_api_clCreateBuffer,
    clCreateSubBuffer: cl_api_clCreateSubBuffer,
    clCreateImage: cl_api_clCreateImage,
    clReleaseMemObject: cl_api_clReleaseMemObject,
    clCreateProgramWithSource: cl_api_clCreateProgramWithSource,
    clBuildProgram: cl_api_clBuildProgram,
    clCreateKernel: cl_api_clCreateKernel,
    clSetKernelArg: cl_api_clSetKernelArg,
    clSetKernelArgSVMPointer: cl_api_clSetKernelArgSVMPointer,
    clCreateUserEvent: cl_api_clCreateUserEvent,
    clSetUserEventStatus: cl_api_clSetUserEventStatus,
    clReleaseEvent: cl_api_clReleaseEvent,
    clSetEventCallback: cl_api_clSetEventCallback,
    clGetEventInfo: cl_api_clGetEventInfo,
    clGetEventProfilingInfo: cl_api_clGetEventProfilingInfo,
    clFlush: cl_api_clFlush,
    clFinish: cl_api_clFinish,
    clWaitForEvents: cl_api_clWaitForEvents,
    clEnqueueReadBuffer: cl_api_clEnqueueReadBuffer,
    clEnqueueWriteBuffer: cl_api_clEnqueueWriteBuffer,
    clEnqueueReadBufferRect: cl_api_clEnqueueReadBufferRect,
    clEnqueueWriteBufferRect: cl_api_clEnqueueWriteBufferRect,
    clEnqueueCopyBuffer: cl_api_clEnqueueCopyBuffer,
    clEnqueueCopyBufferRect: cl_api_clEnqueueCopyBufferRect,
    clEnqueueFillBuffer: cl_api_clEnqueueFillBuffer,
    clEnqueueNDRangeKernel: cl_api_clEnqueueNDRangeKernel,
    clEnqueueMarkerWithWaitList: cl_api_clEnqueueMarkerWithWaitList,
    clEnqueueBarrierWithWaitList: cl_api_clEnqueueBarrierWithWaitList,
    clEnqueueMigrateMemObjects: cl_api_clEnqueueMigrateMemObjects,
    clEnqueueMapBuffer: cl_api_clEnqueueMapBuffer,
    clEnqueueUnmapMemObject: cl_api_clEnqueueUnmapMemObject,
    clEnqueueReadImage: cl_api_clEnqueueReadImage,
    clEnqueueWriteImage: cl_api_clEnqueueWriteImage,
    clEnqueueFillImage: cl_api_clEnqueueFillImage,
    clEnqueueCopyImageToBuffer: cl_api_clEnqueueCopyImageToBuffer,
    clEnqueueCopyBufferToImage: cl_api_clEnqueueCopyBufferToImage,
    clSVMAlloc: cl_api_clSVMAlloc,
    clSVMFree: cl_api_clSVMFree,
    clEnqueueSVMMemcpy: cl_api_clEnqueueSVMMemcpy,
    clEnqueueSVMMemFill: cl_api_clEnqueueSVMMemFill,
    clEnqueueSVMMap: cl_api_clEnqueueSVMMap,
    clEnqueueSVMUnmap: cl_api_clEnqueueSVMUnmap,
}

/// Calls a function of OpenCL. It always exists: [`Functions::load`] found each symbol.
macro_rules! call {
    ($self:expr, $name:ident($($argument:expr),* $(,)?)) => {
        match $self.functions.$name {
            // SAFETY: handles are alive, and pointers lead to memory of the stated size (see the
            // head of this module).
            Some(function) => unsafe { function($($argument),*) },
            None => return crate::cl::Missing::missing(),
        }
    };
}
use call;

/// Result of a function that the loader does not have.
trait Missing {
    fn missing() -> Self;
}

impl Missing for i32 {
    fn missing() -> Self {
        MISSING
    }
}

impl<T> Missing for Result<T, i32> {
    fn missing() -> Self {
        Err(MISSING)
    }
}

/// An error code that OpenCL does not use.
const MISSING: i32 = -999_999;

/// Source of all kernels.
pub const SOURCE: &str = include_str!("kernels.cl");

/// What a kernel object is for. Only one thread uses the object.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct KernelUse {
    context: usize,
    thread: usize,
    /// `None` means the launch that cannot run.
    kernel: Option<Kernel>,
}

pub struct Cl {
    functions: Functions,
    platform: cl_platform_id,
    devices: Vec<cl_device_id>,
    contexts: Lock<HashMap<Vec<usize>, usize>>,
    programs: Lock<HashMap<usize, usize>>,
    kernels: Lock<HashMap<KernelUse, usize>>,
    queues: Lock<HashMap<usize, usize>>,
    areas: SharedLock<memory::Areas>,
}

// SAFETY: all threads may call OpenCL's functions, except for those that set kernel arguments. Each
// kernel object belongs to one thread.
unsafe impl Sync for Cl {}
// SAFETY: as for `Sync`.
unsafe impl Send for Cl {}

impl std::fmt::Debug for Cl {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Cl").field("devices", &self.devices.len()).finish_non_exhaustive()
    }
}

impl Cl {
    /// Opens the first platform that has devices and whose name contains `wanted`.
    ///
    /// # Errors
    ///
    /// There is no such platform, or the loader cannot be used.
    pub fn open(wanted: &str) -> Result<Self, OpenError> {
        // SAFETY: loading runs the constructors of the loader and the drivers, which is the purpose
        // of this program.
        let library = unsafe { libloading::Library::new("libOpenCL.so.1") }?;
        let functions = Functions::load(&library)?;
        // Threads of drivers keep running, so their code must stay loaded for the life of the
        // process.
        std::mem::forget(library);
        let mut cl = Self {
            functions,
            platform: std::ptr::null_mut(),
            devices: Vec::new(),
            contexts: Lock::default(),
            programs: Lock::default(),
            kernels: Lock::default(),
            queues: Lock::default(),
            areas: SharedLock::default(),
        };
        let mut there = Vec::new();
        for platform in cl.platforms().map_err(OpenError::Platforms)? {
            let name = cl.platform_text(platform, sys::CL_PLATFORM_NAME);
            if name.contains(wanted) {
                cl.platform = platform;
                cl.devices = cl.list_devices(platform).unwrap_or_default();
                return if cl.devices.is_empty() { Err(OpenError::Devices(name)) } else { Ok(cl) };
            }
            there.push(name);
        }
        Err(OpenError::None { wanted: wanted.to_owned(), there: there.join(", ") })
    }

    /// Describes the platform and the abilities of its devices.
    pub fn describe(&self) -> Platform {
        Platform {
            name: self.platform_text(self.platform, sys::CL_PLATFORM_NAME),
            version: self.platform_text(self.platform, sys::CL_PLATFORM_VERSION),
            devices: self.devices.iter().map(|&device| self.describe_device(device)).collect(),
        }
    }

    fn describe_device(&self, device: cl_device_id) -> Device {
        let number = |name: u32| self.device_number(device, name);
        let images = number(sys::CL_DEVICE_IMAGE_SUPPORT) != 0;
        let align_bits = number(sys::CL_DEVICE_MEM_BASE_ADDR_ALIGN).max(8);
        Device {
            name: self.device_text(device, sys::CL_DEVICE_NAME),
            images,
            svm: number(sys::CL_DEVICE_SVM_CAPABILITIES) & sys::CL_DEVICE_SVM_COARSE_GRAIN_BUFFER
                != 0,
            out_of_order: number(sys::CL_DEVICE_QUEUE_PROPERTIES)
                & sys::CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE
                != 0,
            local_bytes: number(sys::CL_DEVICE_LOCAL_MEM_SIZE),
            align_bytes: usize::try_from(align_bits / 8).unwrap_or(4096),
            view_pixels_max: if images {
                usize::try_from(number(sys::CL_DEVICE_IMAGE_MAX_BUFFER_SIZE)).unwrap_or(0)
            } else {
                0
            },
        }
    }

    fn platforms(&self) -> Result<Vec<cl_platform_id>, i32> {
        let mut count = 0;
        code(call!(self, clGetPlatformIDs(0, std::ptr::null_mut(), &raw mut count)))?;
        let mut all: Vec<cl_platform_id> = vec![std::ptr::null_mut(); count as usize];
        code(call!(self, clGetPlatformIDs(count, all.as_mut_ptr(), std::ptr::null_mut())))?;
        Ok(all)
    }

    fn list_devices(&self, platform: cl_platform_id) -> Result<Vec<cl_device_id>, i32> {
        let (kind, mut count) = (sys::CL_DEVICE_TYPE_ALL, 0);
        code(call!(self, clGetDeviceIDs(platform, kind, 0, std::ptr::null_mut(), &raw mut count)))?;
        let mut all: Vec<cl_device_id> = vec![std::ptr::null_mut(); count as usize];
        code(call!(
            self,
            clGetDeviceIDs(platform, kind, count, all.as_mut_ptr(), std::ptr::null_mut())
        ))?;
        Ok(all)
    }

    fn platform_text(&self, platform: cl_platform_id, name: u32) -> String {
        let mut text = [0_u8; 256];
        let read = || -> i32 {
            let place = text.as_mut_ptr().cast::<c_void>();
            call!(self, clGetPlatformInfo(platform, name, 255, place, std::ptr::null_mut()))
        };
        let mut read = read;
        _ = read();
        plain_text(&text)
    }

    fn device_text(&self, device: cl_device_id, name: u32) -> String {
        let mut text = [0_u8; 256];
        let mut read = || -> i32 {
            let place = text.as_mut_ptr().cast::<c_void>();
            call!(self, clGetDeviceInfo(device, name, 255, place, std::ptr::null_mut()))
        };
        _ = read();
        plain_text(&text)
    }

    fn device_number(&self, device: cl_device_id, name: u32) -> u64 {
        let mut number = 0_u64;
        let mut read = || -> i32 {
            let place = (&raw mut number).cast::<c_void>();
            call!(self, clGetDeviceInfo(device, name, 8, place, std::ptr::null_mut()))
        };
        _ = read();
        number
    }

    /// Returns the context for these devices. Later programs of this process use it again.
    fn context(&self, devices: &[usize]) -> Result<Handle, i32> {
        let mut contexts = self.contexts.lock();
        if let Some(&context) = contexts.get(devices) {
            return Ok(Handle(context));
        }
        let list: Vec<cl_device_id> = devices.iter().map(|&device| self.devices[device]).collect();
        let count = u32::try_from(list.len()).map_err(|_| MISSING)?;
        let mut error = 0;
        let context: cl_context = call!(
            self,
            clCreateContext(
                std::ptr::null(),
                count,
                list.as_ptr(),
                None,
                std::ptr::null_mut(),
                &raw mut error
            )
        );
        code(error)?;
        let text = SOURCE.as_ptr().cast::<std::ffi::c_char>();
        let len = SOURCE.len();
        let program: cl_program = call!(
            self,
            clCreateProgramWithSource(
                context,
                1,
                (&raw const text).cast_mut(),
                &raw const len,
                &raw mut error
            )
        );
        code(error)?;
        code(call!(
            self,
            clBuildProgram(program, count, list.as_ptr(), c"".as_ptr(), None, std::ptr::null_mut())
        ))?;
        self.programs.lock().insert(context as usize, program as usize);
        contexts.insert(devices.to_vec(), context as usize);
        Ok(Handle(context as usize))
    }

    /// Returns a kernel object that only this thread uses. `None` means the launch that cannot run.
    fn kernel(
        &self,
        queue: Handle,
        thread: usize,
        kernel: Option<Kernel>,
    ) -> Result<cl_kernel, i32> {
        let context = *self.queues.lock().get(&queue.0).ok_or(MISSING)?;
        let mut kernels = self.kernels.lock();
        let key = KernelUse { context, thread, kernel };
        if let Some(&known) = kernels.get(&key) {
            return Ok(known as cl_kernel);
        }
        let program = *self.programs.lock().get(&context).ok_or(MISSING)?;
        let name = match kernel {
            Some(Kernel::Put) => c"do_put",
            Some(Kernel::Slow) => c"do_slow",
            Some(Kernel::Cast) => c"do_cast",
            Some(Kernel::Mix) => c"do_mix",
            Some(Kernel::MixPlain) => c"do_mix_plain",
            None => c"do_too_big",
        };
        let mut error: cl_int = 0;
        let made =
            call!(self, clCreateKernel(program as cl_program, name.as_ptr(), &raw mut error));
        code(error)?;
        kernels.insert(key, made as usize);
        Ok(made)
    }
}

fn plain_text(bytes: &[u8]) -> String {
    let end = bytes.iter().position(|&byte| byte == 0).unwrap_or(bytes.len());
    String::from_utf8_lossy(&bytes[..end]).trim().to_owned()
}

fn code(code: i32) -> Result<(), i32> {
    if code == 0 { Ok(()) } else { Err(code) }
}
