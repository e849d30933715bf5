//! Copies of rows and of slices of rows.

use std::ffi::c_void;
use std::ptr::null_mut;

use penstock_cuda_sys::driver::*;

use crate::core::array::Array;
use crate::core::copy::When;
use crate::core::platform;
use crate::core::rows::{RowSide, Rows};
use crate::core::stream::{Default, Stream};
use crate::edge::{CuResult, Object as _, cu_stream_entry, load, require};

/// One side of a copy as the program describes it.
struct Part {
    kind: u32,
    host: *const c_void,
    device: CUdeviceptr,
    array: CUarray,
    pitch: usize,
    /// Rows of a slice.
    rows: usize,
    origin: [usize; 3],
}

impl Part {
    /// Where the rows of slice `z` of the copy begin.
    fn slice(&self, z: usize, width: usize, height: usize) -> CuResult<Rows> {
        let [x, y, first] = self.origin;
        if self.kind == CU_MEMORYTYPE_ARRAY {
            let array = Array::borrow(self.array)?;
            let at = [x as u64, y as u64, (first + z) as u64];
            let start = array.at(at, (width as u64, height as u64))?;
            return Ok(Rows { side: RowSide::Device(start), pitch: array.pitch });
        }
        let pitch = if self.pitch == 0 { width } else { self.pitch };
        let rows = if self.rows == 0 { height } else { self.rows };
        let skipped = (first + z).checked_mul(rows).and_then(|skipped| skipped.checked_add(y));
        let offset = skipped.and_then(|rows| rows.checked_mul(pitch)).and_then(|bytes| bytes.checked_add(x));
        let offset = offset.ok_or(CUDA_ERROR_INVALID_VALUE)?;
        let address = match self.kind {
            CU_MEMORYTYPE_HOST => self.host.expose_provenance() as u64,
            CU_MEMORYTYPE_DEVICE | CU_MEMORYTYPE_UNIFIED => self.device,
            _ => return Err(CUDA_ERROR_INVALID_VALUE),
        };
        let start = address.checked_add(offset as u64).ok_or(CUDA_ERROR_INVALID_VALUE)?;
        let side = if platform::device_of(address).is_some() {
            RowSide::Device(start)
        } else if self.kind == CU_MEMORYTYPE_DEVICE || address == 0 {
            return Err(CUDA_ERROR_INVALID_VALUE);
        } else {
            RowSide::Host(usize::try_from(start).map_err(|_| CUDA_ERROR_INVALID_VALUE)?)
        };
        Ok(Rows { side, pitch: pitch as u64 })
    }
}

fn run(stream: CUstream, default: Default, to: &Part, from: &Part, size: [usize; 3], when: When) -> CuResult {
    let (context, stream) = Stream::resolve(stream, default)?;
    let [width, height, depth] = size;
    for z in 0..depth {
        let (to, from) = (to.slice(z, width, height)?, from.slice(z, width, height)?);
        context.copy_rows(&stream, to, from, (width as u64, height as u64), when)?;
    }
    Ok(())
}

fn rows(copy: &CUDA_MEMCPY2D, stream: CUstream, default: Default, when: When) -> CuResult {
    let to = Part {
        kind: copy.dstMemoryType,
        host: copy.dstHost,
        device: copy.dstDevice,
        array: copy.dstArray,
        pitch: copy.dstPitch,
        rows: 0,
        origin: [copy.dstXInBytes, copy.dstY, 0],
    };
    let from = Part {
        kind: copy.srcMemoryType,
        host: copy.srcHost,
        device: copy.srcDevice,
        array: copy.srcArray,
        pitch: copy.srcPitch,
        rows: 0,
        origin: [copy.srcXInBytes, copy.srcY, 0],
    };
    run(stream, default, &to, &from, [copy.WidthInBytes, copy.Height, 1], when)
}

fn slices(copy: &CUDA_MEMCPY3D, stream: CUstream, default: Default, when: When) -> CuResult {
    // "srcLOD and dstLOD members of the CUDA_MEMCPY3D structure must be set to 0."
    require(copy.srcLOD == 0 && copy.dstLOD == 0, CUDA_ERROR_INVALID_VALUE)?;
    let to = Part {
        kind: copy.dstMemoryType,
        host: copy.dstHost,
        device: copy.dstDevice,
        array: copy.dstArray,
        pitch: copy.dstPitch,
        rows: copy.dstHeight,
        origin: [copy.dstXInBytes, copy.dstY, copy.dstZ],
    };
    let from = Part {
        kind: copy.srcMemoryType,
        host: copy.srcHost,
        device: copy.srcDevice,
        array: copy.srcArray,
        pitch: copy.srcPitch,
        rows: copy.srcHeight,
        origin: [copy.srcXInBytes, copy.srcY, copy.srcZ],
    };
    run(stream, default, &to, &from, [copy.WidthInBytes, copy.Height, copy.Depth], when)
}

cu_stream_entry! {
    /// `cuMemcpy2D`.
    fn cuMemcpy2D_v2 / cuMemcpy2D_v2_ptds |default| (copy: *const CUDA_MEMCPY2D) {
        // SAFETY: the program's description.
        rows(&unsafe { load(copy) }?, null_mut(), default, When::Now)
    }
    /// `cuMemcpy2DUnaligned`.
    fn cuMemcpy2DUnaligned_v2 / cuMemcpy2DUnaligned_v2_ptds |default| (copy: *const CUDA_MEMCPY2D) {
        // SAFETY: the program's description.
        rows(&unsafe { load(copy) }?, null_mut(), default, When::Now)
    }
    /// `cuMemcpy2DAsync`.
    fn cuMemcpy2DAsync_v2 / cuMemcpy2DAsync_v2_ptsz |default| (copy: *const CUDA_MEMCPY2D, stream: CUstream) {
        // SAFETY: the program's description.
        rows(&unsafe { load(copy) }?, stream, default, When::Later)
    }
    /// `cuMemcpy3D`.
    fn cuMemcpy3D_v2 / cuMemcpy3D_v2_ptds |default| (copy: *const CUDA_MEMCPY3D) {
        // SAFETY: the program's description.
        slices(&unsafe { load(copy) }?, null_mut(), default, When::Now)
    }
    /// `cuMemcpy3DAsync`.
    fn cuMemcpy3DAsync_v2 / cuMemcpy3DAsync_v2_ptsz |default| (copy: *const CUDA_MEMCPY3D, stream: CUstream) {
        // SAFETY: the program's description.
        slices(&unsafe { load(copy) }?, stream, default, When::Later)
    }
}
