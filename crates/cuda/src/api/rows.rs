//! Copies of rows and of slices of rows.

use std::ptr::{
    null_mut, with_exposed_provenance, with_exposed_provenance_mut, without_provenance_mut,
};
use std::sync::Arc;

use penstock_cuda_sys::driver::*;

use crate::core::copy::When;
use crate::core::graph::capture;
use crate::core::graph::work::Work;
use crate::core::slices::{Part, Slices};
use crate::core::stream::Stream;
use crate::edge::{CuResult, DefaultStream, cu_stream_entry, load, require};

fn run(stream: CUstream, default: DefaultStream, copy: Slices, when: When) -> CuResult {
    let (context, stream) = Stream::resolve(stream, default)?;
    if when == When::Now {
        capture::refuse_now(&context, &stream)?;
    } else if capture::takes(&context, &stream, || {
        copy.check().map(|()| Work::Copy(Arc::downgrade(&context), copy))
    })? {
        return Ok(());
    }
    copy.run(&context, &stream, when)
}

fn rows(copy: &CUDA_MEMCPY2D, stream: CUstream, default: DefaultStream, when: When) -> CuResult {
    let to = Part {
        kind: copy.dstMemoryType,
        host: copy.dstHost.expose_provenance(),
        device: copy.dstDevice,
        array: copy.dstArray.addr() as u64,
        pitch: copy.dstPitch,
        rows: 0,
        origin: [copy.dstXInBytes, copy.dstY, 0],
    };
    let from = Part {
        kind: copy.srcMemoryType,
        host: copy.srcHost.expose_provenance(),
        device: copy.srcDevice,
        array: copy.srcArray.addr() as u64,
        pitch: copy.srcPitch,
        rows: 0,
        origin: [copy.srcXInBytes, copy.srcY, 0],
    };
    run(stream, default, Slices { to, from, size: [copy.WidthInBytes, copy.Height, 1] }, when)
}

/// Converts the program's description of a copy.
pub(super) fn described(copy: &CUDA_MEMCPY3D) -> CuResult<Slices> {
    // "srcLOD and dstLOD members of the CUDA_MEMCPY3D structure must be set to 0."
    require(copy.srcLOD == 0 && copy.dstLOD == 0, CUDA_ERROR_INVALID_VALUE)?;
    let to = Part {
        kind: copy.dstMemoryType,
        host: copy.dstHost.expose_provenance(),
        device: copy.dstDevice,
        array: copy.dstArray.addr() as u64,
        pitch: copy.dstPitch,
        rows: copy.dstHeight,
        origin: [copy.dstXInBytes, copy.dstY, copy.dstZ],
    };
    let from = Part {
        kind: copy.srcMemoryType,
        host: copy.srcHost.expose_provenance(),
        device: copy.srcDevice,
        array: copy.srcArray.addr() as u64,
        pitch: copy.srcPitch,
        rows: copy.srcHeight,
        origin: [copy.srcXInBytes, copy.srcY, copy.srcZ],
    };
    Ok(Slices { to, from, size: [copy.WidthInBytes, copy.Height, copy.Depth] })
}

/// Converts a copy to the interface's description.
pub(super) fn description(copy: &Slices) -> CUDA_MEMCPY3D {
    let (to, from, [width, height, depth]) = (&copy.to, &copy.from, copy.size);
    let array = |part: &Part| without_provenance_mut(usize::try_from(part.array).unwrap_or(0));
    CUDA_MEMCPY3D {
        srcXInBytes: from.origin[0],
        srcY: from.origin[1],
        srcZ: from.origin[2],
        srcLOD: 0,
        srcMemoryType: from.kind,
        srcHost: with_exposed_provenance(from.host),
        srcDevice: from.device,
        srcArray: array(from),
        reserved0: null_mut(),
        srcPitch: from.pitch,
        srcHeight: from.rows,
        dstXInBytes: to.origin[0],
        dstY: to.origin[1],
        dstZ: to.origin[2],
        dstLOD: 0,
        dstMemoryType: to.kind,
        dstHost: with_exposed_provenance_mut(to.host),
        dstDevice: to.device,
        dstArray: array(to),
        reserved1: null_mut(),
        dstPitch: to.pitch,
        dstHeight: to.rows,
        WidthInBytes: width,
        Height: height,
        Depth: depth,
    }
}

cu_stream_entry! {
    fn cuMemcpy2D_v2 / cuMemcpy2D_v2_ptds |default| (copy: *const CUDA_MEMCPY2D) {
        // SAFETY: the program promises that `copy` is null or readable.
        rows(&unsafe { load(copy) }?, null_mut(), default, When::Now)
    }
    fn cuMemcpy2DUnaligned_v2 / cuMemcpy2DUnaligned_v2_ptds |default| (copy: *const CUDA_MEMCPY2D) {
        // SAFETY: the program promises that `copy` is null or readable.
        rows(&unsafe { load(copy) }?, null_mut(), default, When::Now)
    }
    fn cuMemcpy2DAsync_v2 / cuMemcpy2DAsync_v2_ptsz |default| (copy: *const CUDA_MEMCPY2D, stream: CUstream) {
        // SAFETY: the program promises that `copy` is null or readable.
        rows(&unsafe { load(copy) }?, stream, default, When::Later)
    }
    fn cuMemcpy3D_v2 / cuMemcpy3D_v2_ptds |default| (copy: *const CUDA_MEMCPY3D) {
        // SAFETY: the program promises that `copy` is null or readable.
        run(null_mut(), default, described(&unsafe { load(copy) }?)?, When::Now)
    }
    fn cuMemcpy3DAsync_v2 / cuMemcpy3DAsync_v2_ptsz |default| (copy: *const CUDA_MEMCPY3D, stream: CUstream) {
        // SAFETY: the program promises that `copy` is null or readable.
        run(stream, default, described(&unsafe { load(copy) }?)?, When::Later)
    }
}
