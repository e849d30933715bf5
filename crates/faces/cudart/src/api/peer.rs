//! Access of devices to each other's memory.

use std::ffi::{c_int, c_uint, c_void};

use crate::core::context::{current, device};
use crate::core::copy::{Mode, device_pointer};
use crate::core::store;
use crate::driver::driver;
use crate::edge::{RtError, RtResult, by_default, entry, on_stream};
use penstock_cuda_sys::driver::CUstream;
use penstock_cuda_sys::runtime::{Memcpy3DParms, Memcpy3DPeerParms, copy_kind};
use penstock_cuda_sys::runtime_codes as code;

entry! {
    /// Reports whether a device can access another device's memory.
    fn cudaDeviceCanAccessPeer(can: *mut c_int, of: c_int, peer: c_int) {
        if can.is_null() {
            return Err(RtError::INVALID_VALUE);
        }
        let (of, peer) = (device(of)?.handle, device(peer)?.handle);
        driver()?.cuDeviceCanAccessPeer(can, of, peer)
    }
    /// Lets the thread's device access another device's memory.
    fn cudaDeviceEnablePeerAccess(peer: c_int, flags: c_uint) {
        if flags != 0 {
            return Err(RtError::INVALID_VALUE);
        }
        let peer = device(peer)?.primary()?;
        current()?.driver.cuCtxEnablePeerAccess(peer, 0)
    }
    /// Ends the access of the thread's device to another device's memory.
    fn cudaDeviceDisablePeerAccess(peer: c_int) {
        let peer = device(peer)?.primary()?;
        current()?.driver.cuCtxDisablePeerAccess(peer)
    }
    /// Returns an attribute of the connection between two devices.
    fn cudaDeviceGetP2PAttribute(value: *mut c_int, attribute: c_uint, source: c_int, destination: c_int) {
        if value.is_null() {
            return Err(RtError::INVALID_VALUE);
        }
        let (source, destination) = (device(source)?.handle, device(destination)?.handle);
        driver()?.cuDeviceGetP2PAttribute(value, attribute, source, destination)
    }
    /// Copies between the memory of two devices.
    fn cudaMemcpyPeer(
        destination: *mut c_void, destination_device: c_int, source: *const c_void, source_device: c_int, bytes: usize,
    ) {
        let (to, from) = (device(destination_device)?.primary()?, device(source_device)?.primary()?);
        let driver = current()?.driver;
        if bytes == 0 {
            return Ok(());
        }
        driver.cuMemcpyPeer(device_pointer(destination), to, device_pointer(source), from, bytes)
    }
    /// Copies between the memory of two devices in the order of a stream.
    fn cudaMemcpyPeerAsync(
        destination: *mut c_void, destination_device: c_int, source: *const c_void, source_device: c_int, bytes: usize,
        stream: CUstream,
    ) {
        let (to, from) = (device(destination_device)?.primary()?, device(source_device)?.primary()?);
        let driver = current()?.driver;
        if bytes == 0 {
            return Ok(());
        }
        driver.cuMemcpyPeerAsync(device_pointer(destination), to, device_pointer(source), from, bytes, stream)
    }
}

/// Copies a box within one device. Two different devices are not served.
///
/// # Safety
/// `parms` is null or meets the requirements of the functions below.
unsafe fn boxes(parms: *const Memcpy3DPeerParms, stream: CUstream, mode: Mode) -> RtResult {
    if parms.is_null() {
        return Err(RtError::INVALID_VALUE);
    }
    // SAFETY: the caller upholds the contract of this function.
    let parms = unsafe { parms.read_unaligned() };
    device(parms.src_device)?;
    device(parms.dst_device)?;
    if parms.src_device != parms.dst_device {
        crate::edge::unserved::line(format_args!(
            "cudaMemcpy3DPeer between two devices is not served"
        ));
        return Err(RtError(code::NOT_SUPPORTED));
    }
    let plain = Memcpy3DParms {
        src_array: parms.src_array,
        src_pos: parms.src_pos,
        src_ptr: parms.src_ptr,
        dst_array: parms.dst_array,
        dst_pos: parms.dst_pos,
        dst_ptr: parms.dst_ptr,
        extent: parms.extent,
        kind: copy_kind::DEVICE_TO_DEVICE,
    };
    // SAFETY: the caller upholds the contract of this function.
    unsafe { crate::core::copy::boxes(current()?, &plain, stream, mode) }
}

by_default! {
    /// Copies a box between devices. Only a copy within one device is served.
    fn cudaMemcpy3DPeer, cudaMemcpy3DPeer_ptds(parms: *const Memcpy3DPeerParms; stream) {
        boxes(parms, stream, Mode::Blocking)
    }
}

on_stream! {
    /// Like `cudaMemcpy3DPeer`, in the order of a stream.
    fn cudaMemcpy3DPeerAsync, cudaMemcpy3DPeerAsync_ptsz(parms: *const Memcpy3DPeerParms; stream) {
        boxes(parms, stream, Mode::Queued)
    }
}

entry! {
    /// Returns the maximum width of a 1D texture of linear memory.
    fn cudaDeviceGetTexture1DLinearMaxWidth(
        width: *mut usize, desc: *const penstock_cuda_sys::runtime::ChannelFormatDesc, of: c_int,
    ) {
        if width.is_null() || desc.is_null() {
            return Err(RtError::INVALID_VALUE);
        }
        let (format, channels) = crate::core::array::format(&desc.read_unaligned())?;
        let mut found = 0;
        driver()?.cuDeviceGetTexture1DLinearMaxWidth(&raw mut found, format, channels, device(of)?.handle)?;
        store(width, found);
        Ok(())
    }
}
