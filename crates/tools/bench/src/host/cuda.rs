//! A GPU, used through CUDA's driver interface as a C program would use it: copies from and to
//! pinned memory in one stream, and an empty kernel.

use std::cell::RefCell;
use std::ffi::{CStr, c_int, c_uint, c_void};
use std::ptr::{NonNull, null_mut};

use libloading::os::unix::{Library, RTLD_LOCAL, RTLD_NOW};
use penstock_cuda_sys::driver::{
    CU_MEMHOSTALLOC_PORTABLE, CUdevice, CUdeviceptr, CUevent, CUfunction, CUresult, CUstream,
};
use penstock_process::variable;

use super::memory::{Room, Span};
use crate::error::{Error, Result};

/// The driver, and the variable that names another one, also for the daemon's workers.
const DRIVER: &str = "libcuda.so.1";
/// Longest device name that is shown.
const NAME_BYTES: usize = 256;
/// The values of `CU_STREAM_NON_BLOCKING` and `CU_EVENT_DISABLE_TIMING`.
const NON_BLOCKING: c_uint = 1;
const DISABLE_TIMING: c_uint = 2;

/// A module with an empty kernel.
const MODULE: &CStr =
    c".version 6.4\n.target sm_70\n.address_size 64\n.visible .entry empty()\n{\nret;\n}\n";
const KERNEL: &CStr = c"empty";

penstock_cuda_sys::driver_table! {
    struct Functions {
        needed {
            cuInit, cuDeviceGetCount, cuDeviceGet, cuDeviceGetName, cuDevicePrimaryCtxRetain,
            cuCtxSetCurrent, cuStreamCreate, cuStreamSynchronize, cuEventCreate, cuEventRecord,
            cuEventSynchronize, cuMemAlloc_v2, cuMemHostRegister_v2, cuMemcpyHtoDAsync_v2,
            cuMemcpyDtoHAsync_v2, cuModuleLoadDataEx, cuModuleGetFunction, cuLaunchKernel,
        }
    }
}

/// A GPU with one stream. Nothing is released, because the process ends after its measurement.
pub struct Gpu {
    api: Functions,
    device: CUdevice,
    stream: CUstream,
    dummy: CUfunction,
    /// Events that are free for the next commands.
    events: RefCell<Vec<CUevent>>,
}

#[derive(Clone, Copy, Debug)]
pub struct Buffer {
    address: CUdeviceptr,
    bytes: usize,
}

/// A copy that has not been waited for.
#[must_use]
#[derive(Debug)]
pub struct Pending(CUevent);

impl std::fmt::Debug for Gpu {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Gpu").field("device", &self.device).finish_non_exhaustive()
    }
}

macro_rules! done {
    ($api:expr, $name:ident ( $($arg:expr),* $(,)? )) => {{
        // SAFETY: handles belong to this driver and are never released. Pointers lead to memory
        // that lives for the call or for the copy, as the parameters of each function here ensure.
        let CUresult(code) = unsafe { ($api.$name)($($arg),*) };
        if code == 0 { Ok(()) } else { Err(Error::Cuda { function: stringify!($name), code }) }
    }};
}

impl Gpu {
    /// Opens GPU `number`, modulo the number of GPUs.
    ///
    /// # Errors
    /// Returns [`Error::Library`] without the driver, [`Error::Absent`] without a GPU, otherwise
    /// [`Error::Cuda`].
    pub fn open(number: u32) -> Result<Self> {
        let api = load()?;
        done!(api, cuInit(0))?;
        let (mut count, mut device) = (0, 0);
        done!(api, cuDeviceGetCount(&raw mut count))?;
        let number = c_int::try_from(number).unwrap_or(c_int::MAX);
        let index = number
            .checked_rem(count)
            .ok_or_else(|| Error::Absent("CUDA's driver has no GPU here".to_owned()))?;
        done!(api, cuDeviceGet(&raw mut device, index))?;
        let (mut context, mut stream) = (null_mut(), null_mut());
        done!(api, cuDevicePrimaryCtxRetain(&raw mut context, device))?;
        done!(api, cuCtxSetCurrent(context))?;
        done!(api, cuStreamCreate(&raw mut stream, NON_BLOCKING))?;
        let (mut module, mut dummy) = (null_mut(), null_mut());
        let text = MODULE.as_ptr().cast();
        done!(api, cuModuleLoadDataEx(&raw mut module, text, 0, null_mut(), null_mut()))?;
        done!(api, cuModuleGetFunction(&raw mut dummy, module, KERNEL.as_ptr()))?;
        Ok(Self { api, device, stream, dummy, events: RefCell::default() })
    }

    /// Returns the GPU's name.
    ///
    /// # Errors
    /// Returns [`Error::Cuda`] if the call fails.
    pub fn name(&self) -> Result<String> {
        let mut text = [0_u8; NAME_BYTES];
        let room = c_int::try_from(NAME_BYTES - 1).unwrap_or(0);
        done!(self.api, cuDeviceGetName(text.as_mut_ptr().cast(), room, self.device))?;
        let text = text.split(|&byte| byte == 0).next().unwrap_or_default();
        Ok(String::from_utf8_lossy(text).into_owned())
    }

    /// Pins memory for copies, as a program does to make them fast.
    ///
    /// # Errors
    /// Returns [`Error::Cuda`] if the call fails.
    pub fn pin(&self, room: Room) -> Result<()> {
        let span = room.all();
        done!(
            self.api,
            cuMemHostRegister_v2(span.start().cast(), span.len(), CU_MEMHOSTALLOC_PORTABLE)
        )
    }

    /// Allocates device memory.
    ///
    /// # Errors
    /// Returns [`Error::Cuda`] if the call fails.
    pub fn buffer(&self, bytes: usize) -> Result<Buffer> {
        let mut address = 0;
        done!(self.api, cuMemAlloc_v2(&raw mut address, bytes))?;
        Ok(Buffer { address, bytes })
    }

    /// Starts a copy from the GPU. `to` must not be used until the copy has ended.
    ///
    /// # Errors
    /// Returns [`Error::Cuda`] if the call fails.
    pub fn start_read(&self, from: Buffer, offset: usize, to: Span) -> Result<Pending> {
        let address = from.place(offset, to.len());
        done!(self.api, cuMemcpyDtoHAsync_v2(to.start().cast(), address, to.len(), self.stream))?;
        self.mark()
    }

    /// Starts a copy to the GPU. `from` must not change until the copy has ended.
    ///
    /// # Errors
    /// Returns [`Error::Cuda`] if the call fails.
    pub fn start_write(&self, to: Buffer, offset: usize, from: Span) -> Result<Pending> {
        let address = to.place(offset, from.len());
        let start = from.start().cast_const().cast();
        done!(self.api, cuMemcpyHtoDAsync_v2(address, start, from.len(), self.stream))?;
        self.mark()
    }

    fn mark(&self) -> Result<Pending> {
        let known = self.events.borrow_mut().pop();
        let mut event = known.unwrap_or(null_mut());
        if known.is_none() {
            done!(self.api, cuEventCreate(&raw mut event, DISABLE_TIMING))?;
        }
        done!(self.api, cuEventRecord(event, self.stream))?;
        Ok(Pending(event))
    }

    /// Waits for a copy.
    ///
    /// # Errors
    /// Returns [`Error::Cuda`] if the call fails.
    pub fn wait(&self, pending: Pending) -> Result<()> {
        done!(self.api, cuEventSynchronize(pending.0))?;
        self.events.borrow_mut().push(pending.0);
        Ok(())
    }

    /// Waits for all commands.
    ///
    /// # Errors
    /// Returns [`Error::Cuda`] if the call fails.
    pub fn finish(&self) -> Result<()> {
        done!(self.api, cuStreamSynchronize(self.stream))
    }

    /// Launches an empty kernel and waits for it.
    ///
    /// # Errors
    /// Returns [`Error::Cuda`] if the call fails.
    pub fn dummy(&self) -> Result<()> {
        done!(
            self.api,
            cuLaunchKernel(self.dummy, 1, 1, 1, 1, 1, 1, 0, self.stream, null_mut(), null_mut())
        )?;
        self.finish()
    }
}

impl Buffer {
    fn place(&self, offset: usize, bytes: usize) -> CUdeviceptr {
        assert!(
            offset.checked_add(bytes).is_some_and(|end| end <= self.bytes),
            "outside of the buffer"
        );
        self.address + offset as u64
    }
}

fn load() -> Result<Functions> {
    let path = variable::LIBCUDA.path().unwrap_or_else(|| DRIVER.into());
    let told =
        |error: libloading::Error| Error::Library { path: path.clone(), reason: error.to_string() };
    // SAFETY: opening runs initialisers of the driver, which the user asks for.
    let library = unsafe { Library::open(Some(&path), RTLD_NOW | RTLD_LOCAL) }.map_err(told)?;
    let find = |name: &CStr| {
        // SAFETY: the address is only looked up, and nothing is read from it.
        let symbol = unsafe { library.get::<*mut c_void>(name.to_bytes_with_nul()) };
        symbol.ok().and_then(|symbol| NonNull::new(*symbol))
    };
    // SAFETY: the library is CUDA's driver or stands in for it, and it is never closed.
    let functions = unsafe { Functions::load(find) }.map_err(|missing| Error::Library {
        path: path.clone(),
        reason: format!("it has no function {missing}"),
    })?;
    // The library stays loaded, because the driver has threads.
    std::mem::forget(library);
    Ok(functions)
}
