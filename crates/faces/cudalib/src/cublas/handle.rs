//! Handles. A handle is a number, so a wrong one is recognised.

use std::ffi::c_int;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicUsize, Ordering};

use penstock_cuda_sys::driver::{
    CUDA_ERROR_OUT_OF_MEMORY, CUDA_SUCCESS, CUcontext, CUresult, CUstream,
};
use penstock_process::{Lock, SharedLock};
use penstock_wire::library::{Kind, Libraries};

use super::{Code, Done, Ptr};
use crate::driver::{Driver, driver};
use crate::edge::say_unserved;

/// Bytes of device memory for a result on its way to the host: one complex number.
const RESULT_BYTES: usize = 16;

pub(super) struct Handle {
    pub(super) driver: &'static Driver,
    context: usize,
    stream: AtomicUsize,
    pub(super) pointer_mode: AtomicI32,
    pub(super) math_mode: AtomicI32,
    pub(super) atomics_mode: AtomicI32,
    pub(super) multiprocessors: AtomicI32,
    /// Device memory for results, allocated when the first is needed.
    result: Lock<Option<u64>>,
    is_served: bool,
}

/// All handles of the process, each at the index that its number names.
static HANDLES: SharedLock<Vec<Option<Arc<Handle>>>> = SharedLock::new(Vec::new());

/// Numbers of handles are no addresses of a program, and not null.
const FIRST: usize = 0x1000;

impl Handle {
    /// Makes a handle for the current context that no number names.
    pub(super) fn new() -> Done<Self> {
        let driver = driver().ok_or(Code::NOT_INITIALIZED)?;
        let context = driver.context().map_err(|_| Code::NOT_INITIALIZED)?;
        let served = Libraries::from_bytes(&driver.support().to_le_bytes());
        Ok(Self {
            driver,
            context: context.expose_provenance(),
            stream: AtomicUsize::new(0),
            pointer_mode: AtomicI32::new(0),
            math_mode: AtomicI32::new(0),
            atomics_mode: AtomicI32::new(0),
            multiprocessors: AtomicI32::new(0),
            result: Lock::default(),
            is_served: served.has(Kind::Blas),
        })
    }

    pub(super) fn create() -> Done<Ptr> {
        let handle = Arc::new(Self::new()?);
        let mut all = HANDLES.write();
        let index = all.iter().position(Option::is_none).unwrap_or(all.len());
        match all.get_mut(index) {
            Some(slot) => *slot = Some(handle),
            None => all.push(Some(handle)),
        }
        Ok(std::ptr::without_provenance(FIRST + index))
    }

    pub(super) fn of(number: Ptr) -> Done<Arc<Self>> {
        let index = number.addr().checked_sub(FIRST).ok_or(Code::NOT_INITIALIZED)?;
        HANDLES.read().get(index).cloned().flatten().ok_or(Code::NOT_INITIALIZED)
    }

    pub(super) fn destroy(number: Ptr) -> Done {
        let index = number.addr().checked_sub(FIRST).ok_or(Code::NOT_INITIALIZED)?;
        let taken = HANDLES.write().get_mut(index).and_then(Option::take);
        let handle = taken.ok_or(Code::NOT_INITIALIZED)?;
        if let Some(address) = handle.result.lock().take() {
            // SAFETY: the memory is the handle's, and no call uses it any more.
            _ = unsafe { (handle.driver.functions.cuMemFree_v2)(address) };
        }
        Ok(())
    }

    pub(super) fn place(&self) -> (CUcontext, CUstream) {
        let context = std::ptr::with_exposed_provenance_mut(self.context);
        (context, self.stream())
    }

    pub(super) fn stream(&self) -> CUstream {
        std::ptr::with_exposed_provenance_mut(self.stream.load(Ordering::Relaxed))
    }

    pub(super) fn set_stream(&self, stream: CUstream) {
        self.stream.store(stream.expose_provenance(), Ordering::Relaxed);
    }

    pub(super) fn is_device_mode(&self) -> bool {
        self.pointer_mode.load(Ordering::Relaxed) != 0
    }

    /// # Errors
    /// `CUBLAS_STATUS_NOT_SUPPORTED` if the device has no library for linear algebra.
    pub(super) fn check_served(&self) -> Done {
        static SAID: AtomicBool = AtomicBool::new(false);
        if self.is_served {
            return Ok(());
        }
        say_unserved(&SAID, Kind::Blas);
        Err(Code::NOT_SUPPORTED)
    }

    /// Runs `send` with device memory for a result, and copies the result to the host. Waits for
    /// the stream.
    pub(super) fn fetch(&self, to: Ptr, bytes: usize, send: impl FnOnce(Ptr) -> Done) -> Done {
        let functions = &self.driver.functions;
        let mut result = self.result.lock();
        let address = match *result {
            Some(address) => address,
            None => {
                let mut address = 0;
                // SAFETY: the pointer is valid for a write of the answer.
                checked(unsafe { (functions.cuMemAlloc_v2)(&raw mut address, RESULT_BYTES) })?;
                *result.insert(address)
            }
        };
        let place = usize::try_from(address).map_err(|_| Code::INTERNAL_ERROR)?;
        send(std::ptr::without_provenance(place))?;
        let stream = self.stream();
        // SAFETY: the program promises memory for the result, which has `bytes` bytes.
        checked(unsafe {
            (functions.cuMemcpyDtoHAsync_v2)(to.cast_mut(), address, bytes, stream)
        })?;
        // SAFETY: the driver checks the handle of the stream.
        checked(unsafe { (functions.cuStreamSynchronize)(stream) })
    }
}

/// Converts a code of the driver.
pub(super) fn code_of(code: CUresult) -> Code {
    use penstock_cuda_sys::driver::{CUDA_ERROR_INVALID_VALUE, CUDA_ERROR_NOT_SUPPORTED};
    match code {
        CUDA_ERROR_INVALID_VALUE => Code::INVALID_VALUE,
        CUDA_ERROR_OUT_OF_MEMORY => Code::ALLOC_FAILED,
        CUDA_ERROR_NOT_SUPPORTED => Code::NOT_SUPPORTED,
        _ => Code::EXECUTION_FAILED,
    }
}

pub(super) fn checked(code: CUresult) -> Done {
    if code == CUDA_SUCCESS { Ok(()) } else { Err(code_of(code)) }
}

/// Sets a mode that is one of the numbers up to `last`.
pub(super) fn set_mode(mode: &AtomicI32, value: c_int, last: c_int) -> Done {
    if !(0..=last).contains(&value) {
        return Err(Code::INVALID_VALUE);
    }
    mode.store(value, Ordering::Relaxed);
    Ok(())
}
