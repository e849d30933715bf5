//! Device variables, by the addresses of their host variables.

use std::ffi::{c_int, c_void};

use penstock_cuda_sys::driver::CUstream;
use penstock_cuda_sys::runtime::copy_kind;
use penstock_cuda_sys::runtime_codes as code;

use crate::core::context::{Current, current};
use crate::core::copy::{Mode, linear, way};
use crate::core::registry::variable;
use crate::edge::{RtError, RtResult, entry, in_both_modes};

/// Returns the device address at `offset` in a variable if `bytes` bytes fit there.
pub(super) fn place(
    current: Current,
    symbol: *const c_void,
    offset: usize,
    bytes: usize,
) -> RtResult<*mut c_void> {
    let (address, size) = variable(symbol)?.place(current)?;
    let end = offset.checked_add(bytes).ok_or(RtError::INVALID_VALUE)?;
    if end > size {
        return Err(RtError::INVALID_VALUE);
    }
    let start = usize::try_from(address).map_err(|_| RtError::INVALID_VALUE)? + offset;
    Ok(std::ptr::without_provenance_mut(start))
}

/// # Safety
/// Arguments are as CUDA requires of the functions below.
unsafe fn to(
    symbol: *const c_void,
    source: *const c_void,
    bytes: usize,
    offset: usize,
    kind: c_int,
    stream: CUstream,
    mode: Mode,
) -> RtResult {
    if !matches!(kind, copy_kind::HOST_TO_DEVICE | copy_kind::DEVICE_TO_DEVICE | copy_kind::DEFAULT)
    {
        return Err(RtError(code::INVALID_MEMCPY_DIRECTION));
    }
    let current = current()?;
    let destination = place(current, symbol, offset, bytes)?;
    let way = way(current, kind, destination, source)?;
    // SAFETY: the caller upholds the contract of this function.
    unsafe { linear(current, destination, source, bytes, way, stream, mode) }
}

/// # Safety
/// Arguments are as CUDA requires of the functions below.
unsafe fn from(
    destination: *mut c_void,
    symbol: *const c_void,
    bytes: usize,
    offset: usize,
    kind: c_int,
    stream: CUstream,
    mode: Mode,
) -> RtResult {
    if !matches!(kind, copy_kind::DEVICE_TO_HOST | copy_kind::DEVICE_TO_DEVICE | copy_kind::DEFAULT)
    {
        return Err(RtError(code::INVALID_MEMCPY_DIRECTION));
    }
    let current = current()?;
    let source = place(current, symbol, offset, bytes)?;
    let way = way(current, kind, destination, source)?;
    // SAFETY: the caller upholds the contract of this function.
    unsafe { linear(current, destination, source, bytes, way, stream, mode) }
}

in_both_modes! {
    /// Copies into a variable.
    fn cudaMemcpyToSymbol, cudaMemcpyToSymbol_ptds,
        cudaMemcpyToSymbolAsync, cudaMemcpyToSymbolAsync_ptsz(
        symbol: *const c_void,
        source: *const c_void,
        bytes: usize,
        offset: usize,
        kind: c_int;
        stream, mode
    ) {
        to(symbol, source, bytes, offset, kind, stream, mode)
    }
    /// Copies from a variable.
    fn cudaMemcpyFromSymbol, cudaMemcpyFromSymbol_ptds,
        cudaMemcpyFromSymbolAsync, cudaMemcpyFromSymbolAsync_ptsz(
        destination: *mut c_void,
        symbol: *const c_void,
        bytes: usize,
        offset: usize,
        kind: c_int;
        stream, mode
    ) {
        from(destination, symbol, bytes, offset, kind, stream, mode)
    }
}

entry! {
    fn cudaGetSymbolAddress(address: *mut *mut c_void, symbol: *const c_void) {
        let current = current()?;
        if address.is_null() {
            return Err(RtError::INVALID_VALUE);
        }
        address.write(place(current, symbol, 0, 0)?);
        Ok(())
    }
    /// Returns the size of a variable in bytes.
    fn cudaGetSymbolSize(bytes: *mut usize, symbol: *const c_void) {
        let current = current()?;
        if bytes.is_null() {
            return Err(RtError::INVALID_VALUE);
        }
        bytes.write(variable(symbol)?.place(current)?.1);
        Ok(())
    }
}
