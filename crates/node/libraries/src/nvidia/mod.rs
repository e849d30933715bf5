//! NVIDIA's cuBLAS and cuFFT, which serve the calls on devices of CUDA's own driver.
//!
//! A call is enqueued into a stream of the driver and runs in its turn. All sizes and numbers
//! are known when it is enqueued. The memory is the device's: addresses are passed on and never
//! read here.
//!
//! * `find`: how the libraries are found and opened;
//! * `functions`: the functions of cuBLAS and their types;
//! * `vectors`, `triangles`, `dense`, `product`: how a call of the protocol becomes one of cuBLAS;
//! * `fft`: the same for cuFFT.

mod dense;
mod fft;
mod find;
mod functions;
mod product;
mod triangles;
mod vectors;

use std::cell::Cell;
use std::ffi::{c_int, c_void};
use std::sync::OnceLock;

use libloading::os::unix::Library;
use penstock_process::notice;
use penstock_wire::library::blas::{Call, Factor, Number, Routine, Side, Transpose, Uplo};
use penstock_wire::library::{Kind, LibraryCall, Place};
use penstock_wire::status::Status;

use crate::blas::{Scalar, int};
pub use fft::{Ground, Plan, Plans};
use find::{CUBLAS, CUFFT};
use functions::{Functions, Op, Ptr, Raw};

/// `CUBLAS_MATH_DISALLOW_REDUCED_PRECISION_REDUCTION`: parts of a product of half-precision
/// matrices are summed in single precision, too.
const EXACT_SUMS: c_int = 16;

/// The functions that are not routines.
struct Management {
    create: unsafe extern "C" fn(*mut Raw) -> c_int,
    destroy: unsafe extern "C" fn(Raw) -> c_int,
    set_stream: unsafe extern "C" fn(Raw, *mut c_void) -> c_int,
    set_pointer_mode: unsafe extern "C" fn(Raw, c_int) -> c_int,
    set_math_mode: unsafe extern "C" fn(Raw, c_int) -> c_int,
}

/// cuBLAS, opened.
struct Cublas {
    management: Management,
    functions: Functions,
}

/// Returns whether the library for a kind of calls is on this host, for a driver of this version
/// (`cuDriverGetVersion`).
pub fn is_present(kind: Kind, driver_version: u32) -> bool {
    let library = match kind {
        Kind::Blas => CUBLAS,
        Kind::Fft => CUFFT,
    };
    library.find(driver_version).is_some()
}

/// Returns cuBLAS, which the first call opens.
fn opened(driver_version: u32) -> Option<&'static Cublas> {
    static OPENED: OnceLock<Option<Cublas>> = OnceLock::new();
    OPENED.get_or_init(|| load(find::open(&CUBLAS.find(driver_version)?)?)).as_ref()
}

fn load(library: &'static Library) -> Option<Cublas> {
    Some(Cublas {
        management: Management {
            // SAFETY: `cublas_api.h` declares the functions with these types.
            create: unsafe { find::get(library, c"cublasCreate_v2") }?,
            // SAFETY: as above.
            destroy: unsafe { find::get(library, c"cublasDestroy_v2") }?,
            // SAFETY: as above.
            set_stream: unsafe { find::get(library, c"cublasSetStream_v2") }?,
            // SAFETY: as above.
            set_pointer_mode: unsafe { find::get(library, c"cublasSetPointerMode_v2") }?,
            // SAFETY: as above.
            set_math_mode: unsafe { find::get(library, c"cublasSetMathMode") }?,
        },
        // SAFETY: the library is cuBLAS, and it is never closed.
        functions: unsafe { Functions::load(library) },
    })
}

/// A handle of cuBLAS for the calls of one stream. It has memory on the device.
pub struct Handle {
    cublas: &'static Cublas,
    raw: Raw,
}

// SAFETY: cuBLAS lets any thread use a handle, one at a time, in whose context it was made.
unsafe impl Send for Handle {}

impl Handle {
    /// Makes a handle for a stream (`CUstream`).
    ///
    /// # Errors
    /// `CL_INVALID_OPERATION` if cuBLAS is not there, or the error of cuBLAS.
    ///
    /// # Safety
    /// The stream's context is current on this thread, also whenever the handle is used or
    /// dropped. The stream lives as long as the handle.
    pub unsafe fn new(driver_version: u32, stream: *mut c_void) -> Result<Self, Status> {
        let cublas = opened(driver_version).ok_or(Status::INVALID_OPERATION)?;
        let mut raw = std::ptr::null_mut();
        // SAFETY: the output location outlives the call.
        checked("cublasCreate", unsafe { (cublas.management.create)(&raw mut raw) })?;
        let handle = Self { cublas, raw };
        // SAFETY: the handle was made above, and the caller promises the stream.
        let code = unsafe { (cublas.management.set_stream)(raw, stream) };
        checked("cublasSetStream", code)?;
        // SAFETY: as above.
        let code = unsafe { (cublas.management.set_math_mode)(raw, EXACT_SUMS) };
        checked("cublasSetMathMode", code)?;
        Ok(handle)
    }

    /// Enqueues a call. `addresses`: where its operands are on the device, 0 for those without
    /// bytes.
    ///
    /// # Errors
    /// `CL_INVALID_OPERATION` if cuBLAS lacks the routine, `CL_INVALID_VALUE` if the call makes no
    /// sense, or the error of cuBLAS.
    ///
    /// # Safety
    /// At each address, the bytes that `LibraryCall::extents` names are the device's memory until
    /// the stream has executed the call. Addresses in lists are checked by the device alone, as
    /// those of a kernel: they lead to memory of the stream's context or fail that context.
    pub unsafe fn call(&self, call: &LibraryCall, addresses: &[u64]) -> Result<(), Status> {
        let LibraryCall::Blas(Call { number, routine }) = call else {
            return Err(Status::INVALID_OPERATION);
        };
        let task = Task { handle: self, number: *number, addresses, mode: Cell::new(None) };
        match routine {
            routine if routine.is_of_vectors() => task.vectors(routine),
            routine if routine.is_of_triangles() => task.triangles(routine),
            Routine::Gemm(gemm) => task.gemm(gemm),
            _ => task.dense(routine),
        }
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        // SAFETY: the handle is this object's, and the caller of `new` promised the context.
        let code = unsafe { (self.cublas.management.destroy)(self.raw) };
        _ = checked("cublasDestroy", code);
    }
}

/// Where cuBLAS finds factors and results: `cublasPointerMode_t`.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Mode {
    Host,
    Device,
}

/// One call under way.
struct Task<'a> {
    handle: &'a Handle,
    number: Number,
    addresses: &'a [u64],
    /// Where the factors and results are that were asked for so far.
    mode: Cell<Option<Mode>>,
}

/// A factor in this process, or the address of one on the device.
enum Held {
    Here(Scalar),
    There(Ptr),
}

impl Held {
    fn address(&self) -> Ptr {
        match self {
            // cuBLAS only reads factors.
            Self::Here(scalar) => scalar.address().cast_mut(),
            Self::There(address) => *address,
        }
    }
}

impl Task<'_> {
    fn functions(&self) -> &'static Functions {
        &self.handle.cublas.functions
    }

    fn at(&self, place: Place) -> Result<Ptr, Status> {
        address_of(self.addresses, place)
    }

    /// Returns a factor in the type of the call, or of its parts.
    fn factor(&self, factor: Factor, is_real: bool) -> Result<Held, Status> {
        let number = if is_real { self.number.part() } else { self.number };
        match factor {
            Factor::Value(re, im) => {
                self.expect(Mode::Host)?;
                Ok(Held::Here(Scalar::of(number, re, im)))
            }
            Factor::At(place) => {
                self.expect(Mode::Device)?;
                self.at(place).map(Held::There)
            }
        }
    }

    /// Returns the address of a result, which is always on the device.
    fn result(&self, place: Place) -> Result<Ptr, Status> {
        self.expect(Mode::Device)?;
        self.at(place)
    }

    /// Notes where factors and results are: all in the same place, as the faces send them.
    fn expect(&self, mode: Mode) -> Result<(), Status> {
        if self.mode.get().is_some_and(|known| known != mode) {
            return Err(Status::INVALID_VALUE);
        }
        self.mode.set(Some(mode));
        Ok(())
    }

    /// Tells cuBLAS where factors and results are.
    fn set_mode(&self) -> Result<(), Status> {
        let mode = self.mode.get().unwrap_or(Mode::Host) as c_int;
        // SAFETY: the handle lives.
        let code =
            unsafe { (self.handle.cublas.management.set_pointer_mode)(self.handle.raw, mode) };
        checked("cublasSetPointerMode", code)
    }
}

/// Returns the address of an operand. One without bytes has the address of another one, since the
/// libraries may refuse null, and read nothing there.
fn address_of(addresses: &[u64], place: Place) -> Result<Ptr, Status> {
    let own = *addresses.get(usize::from(place.0)).ok_or(Status::INVALID_VALUE)?;
    let any = addresses.iter().copied().find(|address| *address != 0);
    let address = if own == 0 { any.unwrap_or(0) } else { own };
    let address = usize::try_from(address).map_err(|_| Status::INVALID_VALUE)?;
    Ok(std::ptr::without_provenance_mut(address))
}

/// Calls a routine in the type of the call.
macro_rules! call {
    ($task:ident.$name:ident($($arg:expr),* $(,)?)) => {{
        let function = $task.functions().$name.of($task.number);
        let function = function.ok_or_else(|| super::absent(stringify!($name)))?;
        $task.set_mode()?;
        // SAFETY: the arguments are those of the routine, and the caller of `Handle::call` promises
        // the memory. Factors on the host live until the call returns, which has read them then.
        let code = unsafe { function($task.handle.raw, $($arg),*) };
        super::checked(stringify!($name), code)
    }};
}
use call;

/// Translates a code of cuBLAS. The first failure of each routine is told, because the program
/// learns only that its stream has failed.
fn checked(what: &str, code: c_int) -> Result<(), Status> {
    let status = match code {
        0 => return Ok(()),
        // CUBLAS_STATUS_ALLOC_FAILED
        3 => Status::MEM_OBJECT_ALLOCATION_FAILURE,
        // CUBLAS_STATUS_INVALID_VALUE
        7 => Status::INVALID_VALUE,
        // CUBLAS_STATUS_ARCH_MISMATCH and CUBLAS_STATUS_NOT_SUPPORTED
        8 | 15 => Status::INVALID_OPERATION,
        _ => Status::OUT_OF_RESOURCES,
    };
    tell(what, code);
    Err(status)
}

fn tell(what: &str, code: c_int) {
    notice::once(format_args!("{what} returns {code}"));
}

/// Tells that cuBLAS lacks a routine.
fn absent(what: &str) -> Status {
    notice::once(format_args!("cuBLAS lacks {what}"));
    Status::INVALID_OPERATION
}

const fn op(transpose: Transpose) -> Op {
    match transpose {
        Transpose::No => 0,
        Transpose::Yes => 1,
        Transpose::Conjugate => 2,
    }
}

const fn half(uplo: Uplo) -> Op {
    match uplo {
        Uplo::Lower => 0,
        Uplo::Upper => 1,
    }
}

const fn side(side: Side) -> Op {
    match side {
        Side::Left => 0,
        Side::Right => 1,
    }
}

impl std::fmt::Debug for Handle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Handle").finish_non_exhaustive()
    }
}
