//! Copies of rows and of slices of rows.

use std::ptr::{
    null_mut, with_exposed_provenance, with_exposed_provenance_mut, without_provenance_mut,
};
use std::sync::Arc;

use penstock_cuda_sys::driver::*;

use crate::core::copy::CopyMode;
use crate::core::graph::capture;
use crate::core::graph::work::Work;
use crate::core::slice::{DescribedSide, SliceCopy};
use crate::core::stream::Stream;
use crate::edge::{CuResult, DefaultStream, cu_stream_entry, load, require};

fn run(stream: CUstream, default: DefaultStream, copy: SliceCopy, when: CopyMode) -> CuResult {
    let (context, stream) = Stream::resolve(stream, default)?;
    if when == CopyMode::Now {
        capture::refuse_now(&context, &stream)?;
    } else if capture::takes(&context, &stream, || {
        copy.check().map(|()| Work::Copy(Arc::downgrade(&context), copy))
    })? {
        return Ok(());
    }
    copy.run(&context, &stream, when)
}

/// Converts one side of a description, whose fields it names, without its rows and origin.
macro_rules! side {
    ($copy:ident, $kind:ident, $host:ident, $device:ident, $array:ident, $pitch:ident) => {
        DescribedSide {
            kind: $copy.$kind,
            host: $copy.$host.expose_provenance(),
            device: $copy.$device,
            array: $copy.$array.addr() as u64,
            pitch: $copy.$pitch,
            rows: 0,
            origin: [0; 3],
        }
    };
}

fn rows(
    copy: &CUDA_MEMCPY2D,
    stream: CUstream,
    default: DefaultStream,
    when: CopyMode,
) -> CuResult {
    let to = side!(copy, dstMemoryType, dstHost, dstDevice, dstArray, dstPitch);
    let to = DescribedSide { origin: [copy.dstXInBytes, copy.dstY, 0], ..to };
    let from = side!(copy, srcMemoryType, srcHost, srcDevice, srcArray, srcPitch);
    let from = DescribedSide { origin: [copy.srcXInBytes, copy.srcY, 0], ..from };
    run(stream, default, SliceCopy { to, from, size: [copy.WidthInBytes, copy.Height, 1] }, when)
}

/// Converts the program's description of a copy.
pub(super) fn described(copy: &CUDA_MEMCPY3D) -> CuResult<SliceCopy> {
    // "srcLOD and dstLOD members of the CUDA_MEMCPY3D structure must be set to 0."
    require(copy.srcLOD == 0 && copy.dstLOD == 0, CUDA_ERROR_INVALID_VALUE)?;
    let to = side!(copy, dstMemoryType, dstHost, dstDevice, dstArray, dstPitch);
    let to = DescribedSide {
        rows: copy.dstHeight,
        origin: [copy.dstXInBytes, copy.dstY, copy.dstZ],
        ..to
    };
    let from = side!(copy, srcMemoryType, srcHost, srcDevice, srcArray, srcPitch);
    let from = DescribedSide {
        rows: copy.srcHeight,
        origin: [copy.srcXInBytes, copy.srcY, copy.srcZ],
        ..from
    };
    Ok(SliceCopy { to, from, size: [copy.WidthInBytes, copy.Height, copy.Depth] })
}

/// Converts a copy to the interface's description.
pub(super) fn description(copy: &SliceCopy) -> CUDA_MEMCPY3D {
    let (to, from, [width, height, depth]) = (&copy.to, &copy.from, copy.size);
    let array =
        |part: &DescribedSide| without_provenance_mut(usize::try_from(part.array).unwrap_or(0));
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
        rows(&unsafe { load(copy) }?, null_mut(), default, CopyMode::Now)
    }
    fn cuMemcpy2DUnaligned_v2 / cuMemcpy2DUnaligned_v2_ptds |default| (copy: *const CUDA_MEMCPY2D) {
        // SAFETY: the program promises that `copy` is null or readable.
        rows(&unsafe { load(copy) }?, null_mut(), default, CopyMode::Now)
    }
    fn cuMemcpy2DAsync_v2 / cuMemcpy2DAsync_v2_ptsz |default| (copy: *const CUDA_MEMCPY2D, stream: CUstream) {
        // SAFETY: the program promises that `copy` is null or readable.
        rows(&unsafe { load(copy) }?, stream, default, CopyMode::Later)
    }
    fn cuMemcpy3D_v2 / cuMemcpy3D_v2_ptds |default| (copy: *const CUDA_MEMCPY3D) {
        // SAFETY: the program promises that `copy` is null or readable.
        run(null_mut(), default, described(&unsafe { load(copy) }?)?, CopyMode::Now)
    }
    fn cuMemcpy3DAsync_v2 / cuMemcpy3DAsync_v2_ptsz |default| (copy: *const CUDA_MEMCPY3D, stream: CUstream) {
        // SAFETY: the program promises that `copy` is null or readable.
        run(stream, default, described(&unsafe { load(copy) }?)?, CopyMode::Later)
    }
}
