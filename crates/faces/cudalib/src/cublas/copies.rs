//! Copies of vectors and matrices between host and device.

use std::ffi::{c_int, c_void};

use penstock_cuda_sys::driver::{
    CU_MEMORYTYPE_DEVICE, CU_MEMORYTYPE_HOST, CUDA_MEMCPY2D, CUstream,
};

use super::entry::run;
use super::handle::checked;
use super::{Code, Done, Ptr};
use crate::driver::driver;

/// Rows of bytes at equal distances, which are columns of a matrix or elements of a vector.
struct Rows {
    width: usize,
    height: usize,
    from: (Ptr, usize),
    to: (*mut c_void, usize),
}

fn bytes(count: i64, element: i64) -> Done<usize> {
    let bytes = count.checked_mul(element).ok_or(Code::INVALID_VALUE)?;
    usize::try_from(bytes).map_err(|_| Code::INVALID_VALUE)
}

/// Size of a matrix, and bytes of an element.
struct Size {
    rows: i64,
    columns: i64,
    element: i64,
}

impl Rows {
    fn matrix(
        Size { rows, columns, element }: Size,
        (from, ld_from): (Ptr, i64),
        (to, ld_to): (*mut c_void, i64),
    ) -> Done<Self> {
        if element <= 0 || ld_from <= 0 || ld_to <= 0 || ld_from < rows || ld_to < rows {
            return Err(Code::INVALID_VALUE);
        }
        Ok(Self {
            width: bytes(rows, element)?,
            height: bytes(columns, 1)?,
            from: (from, bytes(ld_from, element)?),
            to: (to, bytes(ld_to, element)?),
        })
    }

    /// Copies. With a stream, the copy has its turn there.
    fn copy(&self, to_device: bool, stream: Option<CUstream>) -> Done {
        let driver = driver().ok_or(Code::NOT_INITIALIZED)?;
        if self.width == 0 || self.height == 0 {
            return Ok(());
        }
        driver.context().map_err(|_| Code::NOT_INITIALIZED)?;
        let (host, device) = (CU_MEMORYTYPE_HOST, CU_MEMORYTYPE_DEVICE);
        let (from, to) = if to_device { (host, device) } else { (device, host) };
        let copy = CUDA_MEMCPY2D {
            srcXInBytes: 0,
            srcY: 0,
            srcMemoryType: from,
            srcHost: self.from.0,
            srcDevice: self.from.0.addr() as u64,
            srcArray: std::ptr::null_mut(),
            srcPitch: self.from.1,
            dstXInBytes: 0,
            dstY: 0,
            dstMemoryType: to,
            dstHost: self.to.0,
            dstDevice: self.to.0.addr() as u64,
            dstArray: std::ptr::null_mut(),
            dstPitch: self.to.1,
            WidthInBytes: self.width,
            Height: self.height,
        };
        // SAFETY: the program promises that the memory of the host has these rows; the driver
        // checks the addresses of the device.
        checked(unsafe {
            match stream {
                None => (driver.functions.cuMemcpy2DUnaligned_v2)(&raw const copy),
                Some(stream) => (driver.functions.cuMemcpy2DAsync_v2)(&raw const copy, stream),
            }
        })
    }
}

/// Copies bytes to the device, and waits for that.
pub(super) fn upload(from: Ptr, to: *mut c_void, bytes: usize) -> Done {
    Rows { width: bytes, height: 1, from: (from, bytes), to: (to, bytes) }.copy(true, None)
}

/// Defines the forms of one copy: `name of a matrix, name of a vector, to the device, size`, and
/// for the forms in a stream `stream`.
macro_rules! copies {
    ($($matrix:ident $vector:ident $to_device:literal $size:ident $($stream:ident)?;)+) => {$(
        /// # Safety
        /// The program promises the memory of the host.
        #[unsafe(no_mangle)]
        #[allow(clippy::too_many_arguments, reason = "C's shape")]
        pub unsafe extern "C" fn $matrix(
            rows: $size,
            columns: $size,
            element: $size,
            from: Ptr,
            ld_from: $size,
            to: *mut c_void,
            ld_to: $size,
            $($stream: CUstream,)?
        ) -> c_int {
            run(|| {
                let size = Size {
                    rows: rows.into(),
                    columns: columns.into(),
                    element: element.into(),
                };
                Rows::matrix(size, (from, ld_from.into()), (to, ld_to.into()))?
                    .copy($to_device, copies!(@ $($stream)?))
            })
        }

        /// # Safety
        /// The program promises the memory of the host.
        #[unsafe(no_mangle)]
        #[allow(clippy::too_many_arguments, reason = "C's shape")]
        pub unsafe extern "C" fn $vector(
            count: $size,
            element: $size,
            from: Ptr,
            step_from: $size,
            to: *mut c_void,
            step_to: $size,
            $($stream: CUstream,)?
        ) -> c_int {
            run(|| {
                let size =
                    Size { rows: 1, columns: count.into(), element: element.into() };
                Rows::matrix(size, (from, step_from.into()), (to, step_to.into()))?
                    .copy($to_device, copies!(@ $($stream)?))
            })
        }
    )+};
    (@) => { None };
    (@ $stream:ident) => { Some($stream) };
}

copies! {
    cublasSetMatrix cublasSetVector true c_int;
    cublasSetMatrix_64 cublasSetVector_64 true i64;
    cublasSetMatrixAsync cublasSetVectorAsync true c_int stream;
    cublasSetMatrixAsync_64 cublasSetVectorAsync_64 true i64 stream;
    cublasGetMatrix cublasGetVector false c_int;
    cublasGetMatrix_64 cublasGetVector_64 false i64;
    cublasGetMatrixAsync cublasGetVectorAsync false c_int stream;
    cublasGetMatrixAsync_64 cublasGetVectorAsync_64 false i64 stream;
}
